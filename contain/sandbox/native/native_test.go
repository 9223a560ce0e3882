//go:build linux

package native

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

func TestTrue(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out, errs bytes.Buffer
	p, err := r.Start(context.Background(), sandbox.Spec{Argv: []string{"sh", "-c", "id; cat /proc/self/status | grep -E 'Cap|Secc|NoNew'; ls -la / /dev /proc/self/fd; cat /proc/self/mountinfo /proc/self/cgroup; env; exit 3"}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/agent"}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait()
	t.Logf("%+v %v\n%s\n%s", res, err, out.String(), errs.String())
}

func TestProbe(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rep := r.Probe(t.Context())
	for _, h := range rep.Controls {
		t.Log(h.Control, h.State, h.Note)
	}
	t.Log(rep.Available, rep.Why, rep.Fix)
}
