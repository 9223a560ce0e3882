package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/google/go-cmp/cmp"
)

// charged is a network whose guard knows a cap and what was used.
func charged(t *testing.T, enforce bool, used, limit int64) (n *network, booked *int64, stopped func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	rows := &keptRefusals{}
	n = &network{enforce: enforce, stop: cancel, log: t.Logf, rows: rows}
	t.Cleanup(func() {
		if over := n.excess() != nil; over != (len(rows.list) == 1) {
			t.Errorf("over the cap %v, but %d rows", over, len(rows.list))
		}
	})
	n.charge = func(u cordon.Usage) ([]cordon.Finding, error) {
		used += u.BytesWritten
		if used < 0 {
			return nil, errors.New("the guard fails")
		}
		findings := []cordon.Finding{{Rule: "caps.cost_usd", Detail: "the money is used up"}} // no matter of the traffic's
		if used > limit {
			findings = append(findings, cordon.Finding{Rule: bytesRule, Detail: "the bytes are used up"})
		}
		return findings, nil
	}
	return n, &used, func() error { return context.Cause(ctx) }
}

type keptRefusals struct{ list []egress.Refusal }

func (k *keptRefusals) Record(_ context.Context, r egress.Refusal) error {
	k.list = append(k.list, r)
	return nil
}

func TestTrafficIsBookedOnceAndCutPastTheCap(t *testing.T) {
	for _, c := range []struct {
		name        string
		enforce     bool
		used, limit int64
		reports     [][2]int64 // up, down
		booked      int64
		over        bool
	}{
		{"below the cap", true, 0, 100, [][2]int64{{40, 10}, {60, 0}}, 100, false},
		{"a byte past the cap", true, 0, 100, [][2]int64{{40, 0}, {61, 0}}, 101, true},
		{"what the run used before counts", true, 90, 100, [][2]int64{{11, 0}}, 101, true},
		{"what is received does not count", true, 0, 100, [][2]int64{{0, 1000}}, 0, false},
		{"in shadow mode the policy's cap refuses nothing", false, 0, 100, [][2]int64{{500, 0}}, 500, false},
		{"a guard that fails is no leave to send", true, -1000, 100, [][2]int64{{1, 0}}, -999, true},
		{"nor in shadow mode a reason to stop", false, -1000, 100, [][2]int64{{1, 0}}, -999, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, booked, stopped := charged(t, c.enforce, c.used, c.limit)
			var up, down int64
			var err error
			for _, r := range c.reports {
				err = n.spent(egress.ToolProxy)(t.Context(), "run", r[0], r[1])
				up, down = up+r[0], down+r[1]
			}
			if (err != nil) != c.over || *booked != c.booked {
				t.Errorf("error %v, booked %d, want %d", err, *booked, c.booked)
			}
			if n.up != up || n.down != down {
				t.Errorf("counted %d up and %d down, want %d and %d", n.up, n.down, up, down)
			}
			if got := n.excess(); errors.Is(got, errTraffic) != c.over || errors.Is(stopped(), errTraffic) != c.over {
				t.Errorf("excess %v, the command's cause %v", got, stopped())
			}
		})
	}
}

func TestWhatIsReceivedDoesNotForgiveWhatWasSent(t *testing.T) {
	n, _, _ := charged(t, true, 0, 100)
	if n.spent(egress.ToolProxy)(t.Context(), "run", 200, 0) == nil {
		t.Fatal("no error past the cap")
	}
	if n.spent(egress.ToolProxy)(t.Context(), "run", 0, 5) == nil {
		t.Error("a download makes the proxy let the run go on")
	}
	if n.spent(egress.ToolProxy)(t.Context(), "run", 0, 0) == nil {
		t.Error("so does asking again")
	}
}

func TestLoopbackIsReachedWithoutAProxy(t *testing.T) {
	n := &network{env: []string{"no_proxy=", "NO_PROXY=", "JAVA_TOOL_OPTIONS=-Dhttp.nonProxyHosts= -Dx=y", "HTTP_PROXY=http://127.0.0.1:3128"}}
	n.ownLoopback()
	want := []string{"JAVA_TOOL_OPTIONS=-Dhttp.nonProxyHosts=localhost|127.*|0.0.0.0 -Dx=y", "HTTP_PROXY=http://127.0.0.1:3128",
		"NO_PROXY=localhost,127.0.0.1,::1,0.0.0.0", "no_proxy=localhost,127.0.0.1,::1,0.0.0.0"}
	if d := cmp.Diff(want, n.env); d != "" {
		t.Error(d)
	}
}

func TestAPersonIsToldWhatWasNotReached(t *testing.T) {
	n := &network{}
	if got := n.refusals(); got != nil {
		t.Errorf("%q", got)
	}
	for range 3 {
		n.note(egress.Refusal{Host: "evil.test", Port: 443, Why: "no rule of the policy names it"})
	}
	n.note(egress.Refusal{Host: "*", Why: "the cap is used up"})
	n.note(egress.Refusal{Why: "the target is no absolute URI"})
	want := []string{"refused: a request that names no host: the target is no absolute URI", "refused: connection to *: the cap is used up", "refused: connection to evil.test:443: no rule of the policy names it"}
	if d := cmp.Diff(want, n.refusals()); d != "" {
		t.Error(d)
	}
	for i := range 10_000 {
		n.note(egress.Refusal{Host: fmt.Sprintf("h%d.test", i), Port: 443})
	}
	if got := n.refusals(); len(got) != maxSaid+1 || len(n.said) > maxSaid+1 {
		t.Errorf("%d lines, %d kept", len(got), len(n.said))
	}
}
