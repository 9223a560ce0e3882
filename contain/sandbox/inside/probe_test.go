package inside

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

// told is a program that has told what it found.
type told struct{ controls []sandbox.Held }

func (p told) Wait() (sandbox.Result, error) { return sandbox.Result{Controls: p.controls}, nil }
func (told) Kill(error)                      {}
func (told) Resize(_, _ uint16)              {}
func (told) Stats() sandbox.Stats            { return sandbox.Stats{} }

func TestALookStartsOneProgramAndBelievesIt(t *testing.T) {
	const refused = 1
	sound := found{Mount: refused, Unshare: refused, Ptrace: refused, WriteRoot: refused, Processes: 2, Interfaces: 1, OverlayErr: "none here"}
	with := func(change func(*found)) found { f := sound; change(&f); return f }
	for _, row := range []struct {
		name  string
		found found
		unfit bool
		lost  sandbox.Control
	}{
		{"all is well", sound, false, ""},
		{"stat fails as coreutils ask for it", with(func(f *found) { f.Stat = 22 }), true, ""},
		{"a mount was not refused", with(func(f *found) { f.Mount = 0 }), false, sandbox.NoCaps},
		{"other processes are seen", with(func(f *found) { f.Processes = 90 }), false, sandbox.PIDNS},
		{"there is a network", with(func(f *found) { f.Interfaces = 2 }), false, sandbox.NetNS},
	} {
		t.Run(row.name, func(t *testing.T) {
			started := 0
			p := Prober{Runtime: "r", Dir: t.TempDir(), Start: func(_ context.Context, s sandbox.Spec) (sandbox.Process, error) {
				started++
				var held []sandbox.Held
				for _, c := range []sandbox.Control{sandbox.NoCaps, sandbox.PIDNS, sandbox.NetNS} {
					held = append(held, sandbox.Held{Control: c, State: sandbox.Enforced})
				}
				return told{held}, json.NewEncoder(s.Stdout).Encode(row.found)
			}}
			report := p.Look(t.Context())
			if !report.Available || (report.Unfit != "") != row.unfit || started != 1 {
				t.Errorf("%+v after %d starts", report, started)
			}
			for _, h := range report.Controls {
				if (h.State == sandbox.Absent) != (h.Control == row.lost) {
					t.Errorf("%+v", h)
				}
			}
			if len(report.Controls) != 3 || row.lost != "" && !slices.ContainsFunc(report.Controls, func(h sandbox.Held) bool { return h.Control == row.lost }) {
				t.Errorf("%+v", report.Controls)
			}
		})
	}
}

func TestALookOfWhatIsNotThereSaysWhyAndWhatToDo(t *testing.T) {
	p := Prober{Runtime: "r", Dir: t.TempDir(), Start: func(context.Context, sandbox.Spec) (sandbox.Process, error) {
		return nil, &sandbox.UnavailableError{Runtime: "r", Why: "why", Fix: "fix"}
	}}
	if r := p.Look(t.Context()); r.Available || r.Why != "why" || r.Fix != "fix" {
		t.Errorf("%+v", r)
	}
	p.Start = func(context.Context, sandbox.Spec) (sandbox.Process, error) { return nil, errors.New("broken") }
	if r := p.Probe(t.Context()); r.Available || r.Why != "broken" || len(r.Controls) > 0 {
		t.Errorf("%+v", r)
	}
}
