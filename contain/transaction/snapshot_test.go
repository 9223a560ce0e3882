//go:build linux

package transaction

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// preserved does a step as a tool outside a sandbox does: what it will change
// is preserved first.
func preserved(s *Snapshot, root string, st step) error {
	touched := []string{st.Path}
	switch st.Do {
	case "replace":
		touched = append(touched, st.Path+".tmp")
	case "move", "link":
		touched = append(touched, st.To)
	}
	for _, p := range touched {
		if err := s.Preserve(p); err != nil {
			return err
		}
	}
	return st.run(root)
}

func TestSnapshotRollbackIsExact(t *testing.T) {
	for _, apart := range []bool{false, true} {
		for seed := range int64(rounds(12)) {
			t.Run(fmt.Sprintf("apart %v %d", apart, seed), func(t *testing.T) {
				dir := tempDir(t)
				ws, state := filepath.Join(dir, "ws"), filepath.Join(dir, "state")
				must(t, os.Mkdir(ws, 0o755))
				mustBase(t, ws, seed)
				if apart {
					state = otherFS(t, ws)
				}
				// From another file system a file cannot be kept itself: it may
				// come back as a copy, apart from its other names.
				seen := mustLook
				if apart {
					seen = func(t *testing.T, root string) tree { return ungrouped(mustLook(t, root)) }
				}
				before := seen(t, ws)
				s, err := BeginSnapshot(Config{ws, state})
				must(t, err)
				r := rand.New(rand.NewSource(seed))
				for i := range 50 {
					st, ok := randomStep(r, ws, i)
					if !ok {
						continue
					}
					if err := preserved(s, ws, st); err != nil && !(os.Geteuid() != 0 && errors.Is(err, os.ErrPermission)) {
						t.Fatalf("%+v: %v", st, err)
					}
				}
				if seed%2 == 0 {
					must(t, s.Rollback())
				} else {
					s.close() // as a crash does
					_, err := Recover(state)
					must(t, err)
				}
				if d := cmp.Diff(before, seen(t, ws)); d != "" {
					t.Errorf("(-before +after):\n%s", d)
				}
				wantEmpty(t, state)
			})
		}
	}
}

// shot is a small workspace with a snapshot open.
func shot(t *testing.T) (s *Snapshot, ws, state string) {
	t.Helper()
	dir := tempDir(t)
	ws, state = filepath.Join(dir, "ws"), filepath.Join(dir, "state")
	must(t, crashBase(ws))
	s, err := BeginSnapshot(Config{ws, state})
	must(t, err)
	t.Cleanup(s.close)
	return s, ws, state
}

func TestX1OnlyWhatIsPreservedIsCopied(t *testing.T) {
	s, ws, _ := shot(t)
	must(t, s.Preserve("plain0"))
	must(t, s.Preserve(filepath.Join(ws, "absent/below")))
	kept, err := os.ReadDir(filepath.Join(s.tx.dir, imageDir))
	must(t, err)
	for _, e := range kept {
		if !strings.HasPrefix(e.Name(), "0") {
			t.Errorf("%s was kept too", e.Name())
		}
	}
	must(t, s.Commit())
}

func TestX2LinksMadeByTheToolDoNotBreakTheRollback(t *testing.T) {
	s, ws, _ := shot(t)
	before := mustLook(t, ws)
	for _, st := range []step{
		do("symlink", "d/loop", "loop"), do("remove", "d/e"), do("symlink", "d/e", "/nonexistent/x"),
		do("remove", "plain0"), do("symlink", "plain0", "."), do("mkdir", "n/m"), do("symlink", "n/m/up", "../.."),
	} {
		must(t, preserved(s, ws, st))
	}
	must(t, s.Rollback())
	if d := cmp.Diff(before, mustLook(t, ws)); d != "" {
		t.Error(d)
	}
}

func TestX3NoLinkIsFollowedOutOfTheWorkspace(t *testing.T) {
	s, ws, _ := shot(t)
	before := mustLook(t, ws)
	outside := tempDir(t)
	must(t, os.MkdirAll(outside+"/e/f", 0o755))
	must(t, os.WriteFile(outside+"/e/f/g", []byte("theirs"), 0o600))
	must(t, os.Symlink(outside, ws+"/way"))
	theirs := mustLook(t, outside)
	for _, p := range []string{"way/e", "way/e/f/g", ws + "/way/new", "../x", "d/../../x", outside + "/e", "/etc/passwd", "", "a\x00b"} {
		if err := s.Preserve(p); err == nil {
			t.Errorf("Preserve(%q) = nil", p)
		}
	}
	must(t, os.Remove(ws+"/way"))
	must(t, s.Preserve("d/e/f/g"))
	must(t, s.Preserve("d/new"))
	// The tool puts a link where the directory was.
	must(t, os.RemoveAll(ws+"/d/e"))
	must(t, os.Symlink(outside+"/e", ws+"/d/e"))
	must(t, s.Rollback())
	if d := cmp.Diff(theirs, mustLook(t, outside)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(before[`"d/e/f/g"`], mustLook(t, ws)[`"d/e/f/g"`]); d != "" {
		t.Error(d)
	}
}

func TestX4TheStateIsOutOfTheRunsReach(t *testing.T) {
	ws := tempDir(t)
	must(t, os.Mkdir(ws+"/in", 0o755))
	link := tempDir(t) + "/link"
	must(t, os.Symlink(ws+"/in", link))
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"in the workspace", Config{ws, ws + "/state"}},
		{"the workspace itself", Config{ws, ws}},
		{"in it by a link", Config{ws, link}},
		{"around the workspace", Config{ws + "/in", ws}},
		{"a relative workspace", Config{"ws", "/tmp/state"}},
		{"a relative state directory", Config{ws, "state"}},
		{"nothing", Config{}},
		{"a workspace that is none", Config{ws + "/absent", "/tmp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if tx, err := Begin(c.cfg); err == nil {
				t.Errorf("Begin = %v", errors.Join(err, tx.Rollback()))
			}
			if s, err := BeginSnapshot(c.cfg); err == nil {
				t.Errorf("BeginSnapshot = %v", errors.Join(err, s.Rollback()))
			}
		})
	}
}

func TestX5AKilledToolIsRolledBack(t *testing.T) {
	s, ws, state := shot(t)
	before := mustLook(t, ws)
	must(t, preserved(s, ws, do("remove", "d")))
	if got, err := Recover(state); err != nil || len(got) != 0 {
		t.Errorf("Recover took what is in use: %v, %v", got, err)
	}
	s.close()
	got, err := Recover(state)
	must(t, err)
	if d := cmp.Diff([]Recovered{{Workspace: ws}}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(before, mustLook(t, ws)); d != "" {
		t.Error(d)
	}
}

func TestX6ATransientFileIsCounted(t *testing.T) {
	dir := tempDir(t)
	must(t, os.Mkdir(dir+"/ws", 0o755))
	tx, err := Begin(Config{dir + "/ws", dir + "/state"})
	must(t, err)
	size := func() Usage {
		u, err := tx.Size(1e9)
		must(t, err)
		return u
	}
	if u := size(); u.Bytes != 0 || u.Files != 0 {
		t.Errorf("empty: %+v", u)
	}
	must(t, os.MkdirAll(tx.Upper()+"/a/shut", 0o755))
	must(t, os.WriteFile(tx.Upper()+"/a/shut/f", make([]byte, 10<<20), 0o600))
	must(t, os.Chmod(tx.Upper()+"/a", 0))
	if u := size(); u.Bytes < 10<<20 || u.Files != 3 {
		t.Errorf("with a file of 10 MiB: %+v", u)
	}
	must(t, os.Chmod(tx.Upper()+"/a", 0o700))
	must(t, os.RemoveAll(tx.Upper()+"/a"))
	if u := size(); u.Bytes != 0 {
		t.Errorf("after it: %+v", u)
	}
	// Too little time for all: several calls see it.
	for i := range 700 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%d", tx.Upper(), i), []byte("x"), 0o600))
	}
	for calls := 1; ; calls++ {
		u, err := tx.Size(0)
		must(t, err)
		if !u.Partial {
			if u.Files != 700 || calls < 2 {
				t.Errorf("%+v after %d calls", u, calls)
			}
			break
		}
	}
	must(t, tx.Rollback())
}

func TestX7LinksModesAndTimesComeBack(t *testing.T) {
	s, ws, _ := shot(t)
	must(t, os.Chmod(ws+"/exe", 0o6711))
	must(t, unix.Setxattr(ws+"/exe", "user.k", []byte("v"), 0))
	before := mustLook(t, ws)
	var was, is unix.Stat_t
	must(t, unix.Stat(ws+"/hl2", &was))
	for _, st := range []step{
		do("write", "d/hl1", "in place"), do("replace", "exe", "other"), do("chmod", "exe", 0o777),
		do("times", "exe", 77), do("remove", "shut"), do("chmod", "d", 0o700),
	} {
		must(t, preserved(s, ws, st))
	}
	must(t, s.Rollback())
	if d := cmp.Diff(before, mustLook(t, ws)); d != "" {
		t.Error(d)
	}
	must(t, unix.Stat(ws+"/d/hl1", &is))
	if was.Ino != is.Ino || is.Nlink != 2 {
		t.Errorf("inode %d with %d names, was %d", is.Ino, is.Nlink, was.Ino)
	}
}

func TestSnapshotCommitKeepsWhatTheToolDid(t *testing.T) {
	s, ws, state := shot(t)
	must(t, preserved(s, ws, do("write", "plain0", "new")))
	must(t, s.Commit())
	wantEmpty(t, state)
	if text, err := os.ReadFile(ws + "/plain0"); err != nil || string(text) != "new" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestSnapshotRefusesWhatItCannotPutBack(t *testing.T) {
	s, ws, _ := shot(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: ws + "/sock"}))
	if err := s.Preserve("sock"); err == nil {
		t.Error("a socket was preserved")
	}
}

// A tree of which a part could not be kept is not taken for kept later.
func TestAPreserveThatFailedIsDoneAgain(t *testing.T) {
	s, ws, _ := shot(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: ws + "/d/e/sock"}))
	for range 2 {
		if err := s.Preserve("d"); err == nil {
			t.Error("Preserve = nil")
		}
	}
	must(t, os.Remove(ws+"/d/e/sock"))
	before := mustLook(t, ws)
	must(t, preserved(s, ws, do("remove", "d")))
	must(t, s.Rollback())
	after := mustLook(t, ws)
	delete(before, `"d/e"`) // its time is from before the socket went
	delete(after, `"d/e"`)
	if d := cmp.Diff(before, after); d != "" {
		t.Error(d)
	}
}
