//go:build linux

package transaction

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Root passes over all modes: the tests that modes matter to are done as
// somebody else too.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("user %d is ordinary", os.Geteuid())
	}
	cmd := exec.Command("/proc/self/exe", "-test.short", "-test.run", "MatchAPlainCopy|RollbackIsExact|DiffSays|Shut|X6|X7|SetID")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("no tests")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// What its owner may not read, enter or change is changed and rolled back all
// the same, and has its modes in the end.
func TestShutFilesAndDirectories(t *testing.T) {
	script := []step{
		do("chmod", "shut", 0o755), do("write", "shut/in", "x"), do("chmod", "shut", 0o555),
		do("write", "plain0", "secret"), do("chmod", "plain0", 0), do("setxattr", "exe", "v"), do("chmod", "exe", 0o200),
		do("mkdir", "n/closed"), do("write", "n/closed/f", "x"), do("chmod", "n/closed/f", 0), do("chmod", "n/closed", 0), do("chmod", "n", 0o555),
		do("remove", "d/e"), do("chmod", "d", 0o500),
	}
	for _, apart := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			mountKinds[0].need(t)
			dir := tempDir(t)
			ws, state := dir+"/ws", dir+"/state"
			must(t, crashBase(ws))
			must(t, errors.Join(os.Chmod(ws+"/d/e/f", 0o500), os.Chmod(ws+"/shut", 0o555), os.Chmod(ws, 0o555)))
			if apart {
				state = otherFS(t, dir)
			}
			before := mustLook(t, ws)
			tx, err := Begin(Config{ws, state})
			must(t, err)
			seen := mountKinds[0].run(t, tx, script, 0, 0)
			if fails {
				tx.crashAt = func(point string) {
					if point == "op 0" { // the last file in order is not what it was
						must(t, os.WriteFile(ws+"/plain0", []byte("theirs"), 0o600))
					}
				}
			}
			_, err = tx.Commit(Options{})
			after := mustLook(t, ws)
			if !fails {
				must(t, err)
				if d := cmp.Diff(committed(seen), after); d != "" {
					t.Errorf("apart %v (-the run saw +workspace):\n%s", apart, d)
				}
				wantEmpty(t, state)
				continue
			}
			if !errors.Is(err, ErrConflict) {
				t.Errorf("apart %v: %v", apart, err)
			}
			for _, p := range []string{`"plain0"`, `"."`} { // what the other changed
				delete(before, p)
				delete(after, p)
			}
			if d := cmp.Diff(before, after); d != "" {
				t.Errorf("apart %v, taken back (-before +after):\n%s", apart, d)
			}
			must(t, tx.Rollback())
			wantEmpty(t, state)
		}
	}
}

func TestAReadOnlyWorkspaceIsToldPlainly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("user %d cannot mount", os.Geteuid())
	}
	dir := tempDir(t)
	must(t, os.Mkdir(dir+"/ws", 0o755))
	tx, err := Begin(Config{dir + "/ws", dir + "/state"})
	must(t, err)
	must(t, os.WriteFile(tx.Upper()+"/f", nil, 0o600))
	done := make(chan error)
	go func() { done <- readOnlyCommit(tx) }()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "read-only file system") {
		t.Errorf("%v", err)
	}
	must(t, tx.Rollback())
}

func TestNoRoomMeansNoChange(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("user %d cannot mount", os.Geteuid())
	}
	dir := tempDir(t)
	must(t, os.Mkdir(dir+"/ws", 0o755))
	done := make(chan error)
	go func() { done <- fullCommit(dir) }()
	must(t, <-done)
}

// ownMounts gives the calling goroutine's thread, which is never used again, a
// mount namespace.
func ownMounts() error {
	runtime.LockOSThread()
	return errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

func readOnlyCommit(tx *Tx) error {
	ws := tx.Workspace()
	err := errors.Join(ownMounts(), unix.Mount(ws, ws, "", unix.MS_BIND, ""), unix.Mount("", ws, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if err != nil {
		return err
	}
	_, err = tx.Commit(Options{})
	return err
}

func fullCommit(dir string) error {
	ws := dir + "/ws"
	if err := errors.Join(ownMounts(), unix.Mount("tmpfs", ws, "tmpfs", 0, "size=1m")); err != nil {
		return err
	}
	if err := crashBase(ws + "/w"); err != nil {
		return err
	}
	before, err := look(ws + "/w")
	if err != nil {
		return err
	}
	tx, err := Begin(Config{ws + "/w", dir + "/state"})
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(tx.Upper()+"/a", []byte("x"), 0o600), os.WriteFile(tx.Upper()+"/b", make([]byte, 2<<20), 0o600))
	if err != nil {
		return err
	}
	if _, err := tx.Commit(Options{}); !errors.Is(err, unix.ENOSPC) {
		return errors.Join(errors.New("want no space"), err)
	}
	after, err := look(ws + "/w")
	if d := cmp.Diff(before, after); d != "" {
		err = errors.Join(err, errors.New(d))
	}
	return errors.Join(err, tx.Rollback())
}
