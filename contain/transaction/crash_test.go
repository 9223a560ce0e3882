//go:build linux

package transaction

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// crash commits or recovers what stands in the state directory, and ends by
// SIGKILL at the Nth point where a crash could be.
func (t *task) crash() error {
	n := 0
	point := func(name string) {
		if name == "op 1" && t.Sabotage != "" {
			// A helper's error would look like a commit's: it ends otherwise.
			if os.WriteFile(t.Sabotage, []byte("somebody else's"), 0o644) != nil {
				os.Exit(3)
			}
		}
		if n++; n == t.Nth {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	if t.Recover {
		_, err := recoverAll(t.State, point)
		return err
	}
	tx, err := adopt(t.State)
	if err != nil {
		return err
	}
	tx.crashAt = point
	_, err = tx.Commit(Options{})
	if t.Sabotage != "" && err != nil && errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// adopt takes over the only transaction in a state directory.
func adopt(state string) (*Tx, error) {
	dirs, err := filepath.Glob(filepath.Join(state, "tx-*"))
	if err != nil || len(dirs) != 1 {
		return nil, fmt.Errorf("%d transactions in %s: %w", len(dirs), state, err)
	}
	text, err := os.ReadFile(filepath.Join(dirs[0], recordFile))
	if err != nil {
		return nil, err
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return nil, err
	}
	lock, free, err := lockDir(dirs[0])
	if err != nil || !free {
		return nil, fmt.Errorf("locked: %w", err)
	}
	return &Tx{cfg: Config{string(rec.Workspace), state}, dir: dirs[0], ws: rec.WS, begun: rec.Begun, lock: lock}, nil
}

func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// crashScript has each kind of step.
var crashScript = []step{
	do("write", "plain0", "changed"), do("remove", "exe"), do("mkdir", "new/sub"), do("write", "new/sub/file", "x"),
	do("chmod", "new/sub", 0o555), do("remove", "d/e"), do("write", "d/e", "a file now"), do("remove", "empty"),
	do("symlink", "empty", "/etc"), do("write", "zz", "last"), do("remove", "d/hl1"), do("times", "shut", 9),
}

func crashBase(root string) error {
	return errors.Join(os.Mkdir(root, 0o755), work(root, []step{
		do("write", "plain0", "one"), do("write", "exe", "x"), do("mkdir", "d/e/f"), do("write", "d/e/f/g", "deep"),
		do("write", "d/hl1", "names"), do("link", "d/hl1", "hl2"), do("mkdir", "empty"), do("mkdir", "shut"),
		do("times", "d/e", 5), do("times", "d", 6), do("times", ".", 7), do("times", "plain0", 8),
	}, 0, 0))
}

func TestG8ACrashAnywhereLeavesAllOrNothing(t *testing.T) {
	k := mountKinds[0]
	k.need(t)
	quick := k.works(t, otherFS(t, os.TempDir())) == nil
	for _, c := range []struct {
		name            string
		apart, sabotage bool
	}{
		{"state beside", false, false},
		{"state on another file system", true, false},
		{"a step fails, state beside", false, true},
		{"a step fails, state on another file system", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			// In memory there is no disk to wait for.
			parent := ""
			if !c.apart && quick {
				parent = "/dev/shm"
			}
			n := 1
			for ; crashOnce(t, k, c.apart, c.sabotage, parent, n); n++ {
				if n > 200 {
					t.Fatal("it never ends")
				}
			}
			if n < 10 {
				t.Errorf("only %d points to crash at", n)
			}
			t.Logf("%d points", n-1)
		})
	}
}

// crashOnce reports false when there was no nth point any more.
func crashOnce(t *testing.T, k mountKind, apart, sabotage bool, parent string, nth int) bool {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "cordon-transaction-test-")
	must(t, err)
	defer func() { must(t, removeTree(dir)) }()
	ws, state := filepath.Join(dir, "ws"), filepath.Join(dir, "state")
	if apart {
		state = otherFS(t, ws[:len(ws)-3])
	}
	must(t, crashBase(ws))
	before := mustLook(t, ws)
	tx, err := Begin(Config{ws, state})
	must(t, err)
	seen := k.run(t, tx, crashScript, 0, 0)
	tx.release()
	job := task{State: state, Nth: nth}
	if sabotage {
		job.Sabotage = filepath.Join(ws, "zz")
	}
	_, err = job.start("crash", nil)
	if err != nil && !killed(err) {
		t.Fatalf("point %d: %v", nth, err)
	}
	died := err != nil
	// Recovery dies too, once.
	_, err = (&task{State: state, Recover: true, Nth: nth*7%13 + 1}).start("crash", nil)
	if err != nil && !killed(err) {
		t.Fatalf("point %d: recovery: %v", nth, err)
	}
	recovered, err := Recover(state)
	if err != nil {
		t.Fatalf("point %d: %v", nth, err)
	}
	wantEmpty(t, state)
	after := mustLook(t, ws)
	made := false
	if text, err := os.ReadFile(filepath.Join(ws, "zz")); err == nil && string(text) == "somebody else's" {
		made = true
		delete(after, `"zz"`)
		after[`"."`] = before[`"."`] // its time is the saboteur's
	}
	all, nothing := cmp.Diff(committed(seen), after), cmp.Diff(before, after)
	switch {
	case made && nothing != "":
		t.Fatalf("point %d: a step could not be done, but some were (-want +got):\n%s\n%+v", nth, nothing, recovered)
	case all != "" && nothing != "":
		t.Fatalf("point %d: neither all (-want +got):\n%s\nnor nothing:\n%s\n%+v", nth, all, nothing, recovered)
	case !died && !made && all != "":
		t.Fatalf("no crash, but not all:\n%s", all)
	case !died && made != sabotage:
		t.Fatal("the sabotage did not come to pass")
	}
	return died
}
