//go:build linux

package transaction

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// committed is what a tree is after its commit: what the run saw, less what
// runs programs with other rights, sockets and devices. (Base trees may have
// set-ID bits too, which stay; that is another test's.)
func committed(seen tree) tree {
	out := tree{}
	for p, n := range seen {
		switch n.Mode & unix.S_IFMT {
		case unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
			continue
		case unix.S_IFREG:
			n.Mode &^= setIDs
		}
		out[p] = n
	}
	return out
}

// timeless leaves out what differs between two runs of the same script.
func timeless(seen tree) tree {
	out := tree{}
	for p, n := range seen {
		n.Mtime = 0
		out[p] = n
	}
	return out
}

// ungrouped leaves out which names are one file: an overlay without an index
// shows different numbers for the names of a file that it copied up.
func ungrouped(seen tree) tree {
	out := tree{}
	for p, n := range seen {
		n.Group = ""
		out[p] = n
	}
	return out
}

func TestG8CommitAndRollbackMatchAPlainCopy(t *testing.T) {
	for _, k := range mountKinds {
		for _, apart := range []bool{false, true} {
			where := map[bool]string{false: "state beside", true: "state on another file system"}[apart]
			t.Run(k.name+", "+where, func(t *testing.T) {
				k.need(t)
				for seed := range int64(rounds(5)) {
					t.Run(fmt.Sprint(seed), func(t *testing.T) { property(t, k, apart, 1+seed) })
				}
			})
		}
	}
}

func rounds(n int) int {
	if testing.Short() {
		return max(1, n/4)
	}
	return n
}

func property(t *testing.T, k mountKind, apart bool, seed int64) {
	dir := tempDir(t)
	ws := filepath.Join(dir, "ws")
	must(t, os.Mkdir(ws, 0o755))
	mustBase(t, ws, seed)
	state := filepath.Join(dir, "state")
	if apart {
		state = otherFS(t, ws)
	}
	copied := filepath.Join(dir, "copy")
	cp := exec.Command("cp", "-a", ws, copied)
	if os.Geteuid() != 0 {
		cp.SysProcAttr = mountKinds[0].attr()
	}
	if out, err := cp.CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	before := mustLook(t, ws)

	tx, err := Begin(Config{ws, state})
	must(t, err)
	k.run(t, tx, nil, seed+1000, 60)
	_, err = tx.Diff()
	must(t, err)
	must(t, tx.Rollback())
	if d := cmp.Diff(before, mustLook(t, ws)); d != "" {
		t.Errorf("rollback (-before +after):\n%s", d)
	}
	wantEmpty(t, state)

	tx, err = Begin(Config{ws, state})
	must(t, err)
	seen := k.run(t, tx, nil, seed, 60)
	r, err := tx.Commit(Options{})
	must(t, err)
	after := mustLook(t, ws)
	if d := cmp.Diff(ungrouped(committed(seen)), ungrouped(committed(after))); d != "" {
		t.Errorf("commit (-the run saw +workspace):\n%s\n%+v", d, r.Refused)
	}
	wantEmpty(t, state)
	mustWork(t, copied, seed, 60)
	if d := cmp.Diff(timeless(committed(mustLook(t, copied))), timeless(committed(after))); d != "" {
		t.Errorf("commit (-plain copy +workspace):\n%s", d)
	}
}

// tempDir is removed also where a test shut it.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cordon-transaction-test-")
	must(t, err)
	t.Cleanup(func() { must(t, removeTree(dir)) })
	return dir
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		t.Errorf("%s is left in %s", e.Name(), dir)
	}
}
