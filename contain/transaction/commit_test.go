//go:build linux

package transaction

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// ran is a transaction after a script ran in it.
func ran(t *testing.T, script ...step) (tx *Tx, ws, state string) {
	t.Helper()
	mountKinds[0].need(t)
	dir := tempDir(t)
	ws, state = filepath.Join(dir, "ws"), filepath.Join(dir, "state")
	must(t, crashBase(ws))
	tx, err := Begin(Config{ws, state})
	must(t, err)
	t.Cleanup(func() { must(t, tx.Rollback()) })
	mountKinds[0].run(t, tx, script, 0, 0)
	return tx, ws, state
}

func shown(changes []Change) []string {
	var out []string
	for _, c := range changes {
		line := c.Kind.String() + " " + c.Path
		if c.Conflict {
			line += " conflict"
		}
		out = append(out, line)
	}
	return out
}

func TestDiffSaysWhatTheRunDid(t *testing.T) {
	for _, c := range []struct {
		name   string
		script []step
		want   []string
	}{
		{"nothing", nil, nil},
		{"a file made and deleted", []step{do("write", "t", "x"), do("remove", "t")}, nil},
		{"a file changed deep down shows no directories", []step{do("write", "d/e/f/g", "x")}, []string{"changed d/e/f/g"}},
		{"a directory deleted stands for what it held", []step{do("remove", "d/e")}, []string{"deleted d/e"}},
		{"a directory made anew is compared", []step{do("remove", "d"), do("mkdir", "d/e"), do("write", "d/e/h", "x")},
			[]string{"deleted d/e/f", "added d/e/h", "deleted d/hl1"}},
		{"a directory made a file", []step{do("remove", "d"), do("write", "d", "x")}, []string{"changed d"}},
		{"a file made a directory", []step{do("remove", "exe"), do("mkdir", "exe"), do("write", "exe/in", "x")}, []string{"changed exe", "added exe/in"}},
		{"a directory made a link", []step{do("remove", "shut"), do("symlink", "shut", "/etc")}, []string{"changed shut"}},
		{"a file renamed is no conflict", []step{do("move", "plain0", "moved")}, []string{"added moved", "deleted plain0"}},
		{"a file renamed out of a directory that then vanishes", []step{do("move", "d/e/f/g", "g"), do("remove", "d/e")}, []string{"deleted d/e", "added g"}},
		{"a directory renamed", []step{do("move", "d/e", "e2")}, []string{"deleted d/e", "added e2", "added e2/f", "added e2/f/g"}},
		{"a directory's mode", []step{do("chmod", "d", 0o700)}, []string{"mode d"}},
		{"the root's mode", []step{do("chmod", ".", 0o700)}, []string{"mode ."}},
		{"a directory's attribute", []step{do("setxattr", "d", "v")}, []string{"mode d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, _, _ := ran(t, c.script...)
			got, err := tx.Diff()
			must(t, err)
			if d := cmp.Diff(c.want, shown(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	write := func(ws, p string) error { return os.WriteFile(ws+"/"+p, []byte("theirs"), 0o644) }
	for _, c := range []struct {
		name   string
		run    []step
		theirs func(ws string) error
		want   []string
	}{
		{"another file", []step{do("write", "exe", "x")}, func(ws string) error { return write(ws, "plain0") }, nil},
		{"another file in the same directory", []step{do("write", "d/new", "x")}, func(ws string) error { return write(ws, "d/new2") }, nil},
		{"changed on both sides", []step{do("write", "plain0", "x")}, func(ws string) error { return write(ws, "plain0") }, []string{"changed plain0 conflict"}},
		{"changed with its time set back", []step{do("write", "plain0", "x")}, func(ws string) error {
			return errors.Join(write(ws, "plain0"), unix.UtimesNanoAt(unix.AT_FDCWD, ws+"/plain0", []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0))
		}, []string{"changed plain0 conflict"}},
		{"deleted by the run, changed by them", []step{do("remove", "plain0")}, func(ws string) error { return write(ws, "plain0") }, []string{"deleted plain0 conflict"}},
		{"changed by the run, deleted by them", []step{do("append", "plain0", "x")}, func(ws string) error { return os.Remove(ws + "/plain0") }, []string{"added plain0 conflict"}},
		{"changed by the run, its directory deleted by them", []step{do("append", "d/e/f/g", "x")}, func(ws string) error { return os.RemoveAll(ws + "/d/e") },
			[]string{"added d/e conflict", "added d/e/f conflict", "added d/e/f/g conflict"}},
		{"made on both sides", []step{do("write", "n", "x")}, func(ws string) error { return write(ws, "n") }, []string{"changed n conflict"}},
		{"deleted on both sides", []step{do("remove", "plain0")}, func(ws string) error { return os.Remove(ws + "/plain0") }, nil},
		{"a directory deleted that they changed a file in", []step{do("remove", "d/e")}, func(ws string) error { return write(ws, "d/e/f/g") }, []string{"deleted d/e conflict"}},
		{"a directory deleted that they made a file in", []step{do("remove", "d/e")}, func(ws string) error { return write(ws, "d/e/f/n") }, []string{"deleted d/e conflict"}},
		{"renamed by the run, changed by them", []step{do("move", "plain0", "m")}, func(ws string) error { return write(ws, "plain0") }, []string{"deleted plain0 conflict"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, ws, _ := ran(t, c.run...)
			must(t, c.theirs(ws))
			before := mustLook(t, ws)
			r, err := tx.Commit(Options{})
			if d := cmp.Diff(c.want, shown(r.Conflicts)); d != "" {
				t.Error(d)
			}
			if len(c.want) == 0 {
				must(t, err)
				return
			}
			if !errors.Is(err, ErrConflict) {
				t.Errorf("Commit = %v", err)
			}
			if d := cmp.Diff(before, mustLook(t, ws)); d != "" {
				t.Errorf("something was changed:\n%s", d)
			}
		})
	}
}

func TestTheUserChoosesOverConflicts(t *testing.T) {
	for how, want := range map[Conflicts]string{KeepWorkspace: "theirs", OverwriteWorkspace: "run's"} {
		tx, ws, _ := ran(t, do("write", "plain0", "run's"), do("write", "exe", "run's"))
		must(t, os.WriteFile(ws+"/plain0", []byte("theirs"), 0o644))
		r, err := tx.Commit(Options{Conflicts: how})
		must(t, err)
		for name, want := range map[string]string{"plain0": want, "exe": "run's"} {
			if text, _ := os.ReadFile(ws + "/" + name); string(text) != want {
				t.Errorf("%v: %s = %q, want %q", how, name, text, want)
			}
		}
		if len(r.Conflicts) != 1 {
			t.Errorf("%+v", r)
		}
	}
}

func TestProtectedPathsStay(t *testing.T) {
	protect := func(names ...string) func(string, ChangeKind) string {
		return func(rel string, _ ChangeKind) string {
			for _, n := range names {
				if rel == n {
					return "it is protected"
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		name    string
		protect []string
		run     []step
		applied []string
		refused []string
	}{
		{"a file", []string{"exe"}, []step{do("write", "exe", "y"), do("write", "plain0", "x")}, []string{"changed plain0"}, []string{"exe"}},
		{"a near-miss", []string{"ex", "exe/"}, []step{do("write", "exe", "x")}, []string{"changed exe"}, nil},
		{"made", []string{"d/hooks"}, []step{do("mkdir", "d/hooks"), do("write", "d/hooks/h", "x")}, nil, []string{"d/hooks", "d/hooks/h"}},
		{"in a directory that is made", []string{"n/hooks"}, []step{do("mkdir", "n/hooks"), do("write", "n/hooks/h", "x"), do("write", "n/ok", "x")},
			[]string{"added n", "added n/ok"}, []string{"n/hooks", "n/hooks/h"}},
		{"deleted with its directory", []string{"d/e/f/g"}, []step{do("remove", "d/e")}, nil, []string{"d/e"}},
		{"deleted by a directory made anew", []string{"d/e/f/g"}, []step{do("remove", "d/e"), do("mkdir", "d/e/f")}, nil, []string{"d/e/f/g"}},
		{"replaced by a link above it", []string{"d/e/f/g"}, []step{do("remove", "d"), do("symlink", "d", "/etc")}, nil, []string{"d"}},
		{"itself, replaced by another directory", []string{"d"}, []step{do("remove", "d"), do("mkdir", "d/e"), do("write", "d/new", "x")}, nil,
			[]string{"d", "d/e", "d/new"}},
		{"below a directory that was replaced", []string{"d/e"}, []step{do("remove", "d"), do("mkdir", "d/e"), do("write", "d/new", "x")},
			[]string{"deleted d/hl1", "added d/new"}, []string{"d/e"}},
		{"a directory replaced, of which nothing is protected", []string{"exe"}, []step{do("remove", "d"), do("mkdir", "d/e")},
			[]string{"deleted d/e/f", "deleted d/hl1"}, nil},
		{"written anew with what it held", []string{"exe", "plain0"}, []step{do("replace", "exe", "x"), do("chmod", "exe", 0o644), do("write", "plain0", "one"), do("write", "new", "x")},
			[]string{"added new"}, nil},
		{"written anew with another mode", []string{"exe"}, []step{do("replace", "exe", "x"), do("chmod", "exe", 0o755)}, nil, []string{"exe"}},
		{"written anew with another byte", []string{"exe"}, []step{do("write", "exe", "y")}, nil, []string{"exe"}},
		{"written anew with another attribute", []string{"exe"}, []step{do("setxattr", "exe", "v")}, nil, []string{"exe"}},
		{"moved away with its directory", []string{"d/e"}, []step{do("move", "d", "x"), do("mkdir", "d/e")}, nil, nil},
		{"a child of a directory that is only passed through", []string{"d"}, []step{do("write", "d/e/f/g", "x")}, []string{"changed d/e/f/g"}, nil},
		{"a directory's mode shuts its children", []string{"d"}, []step{do("chmod", "d", 0o777), do("write", "d/e/f/g", "x")}, nil, []string{"d", "d/e/f/g"}},
		{"a name kept for commits", nil, []step{do("mkdir", ".cordon-tx-0"), do("write", ".cordon-tx-0/f", "x"), do("write", "cordon-tx-0", "x")},
			[]string{"added cordon-tx-0"}, []string{".cordon-tx-0", ".cordon-tx-0/f"}},
		{"a socket", nil, []step{do("socket", "s"), do("fifo", "p")}, []string{"added p"}, []string{"s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, ws, _ := ran(t, c.run...)
			before := mustLook(t, ws)
			r, err := tx.Commit(Options{Protected: protect(c.protect...)})
			must(t, err)
			var refused []string
			for _, x := range r.Refused {
				refused = append(refused, x.Path)
			}
			after := mustLook(t, ws)
			if c.name == "moved away with its directory" {
				// The whole is compared: what is protected is as it was.
				if _, ok := after[`"d/e"`]; !ok {
					t.Error("d/e is gone")
				}
				return
			}
			if d := cmp.Diff(c.applied, shown(r.Applied)); d != "" {
				t.Errorf("applied:\n%s", d)
			}
			if d := cmp.Diff(c.refused, refused); d != "" {
				t.Errorf("refused:\n%s", d)
			}
			for _, p := range append(c.refused, c.protect...) {
				p = `"` + p + `"`
				was, is := before[p], after[p]
				was.Mtime, is.Mtime = 0, 0
				if d := cmp.Diff(was, is); d != "" {
					t.Errorf("%s:\n%s", p, d)
				}
			}
		})
	}
}

func TestWhatBelongsTogetherIsCommittedTogether(t *testing.T) {
	together := func(rel string) string {
		if strings.HasPrefix(rel, "d/") {
			return "d"
		}
		return ""
	}
	protect := func(rel string, _ ChangeKind) string {
		if rel == "d/config" {
			return "it is protected"
		}
		return ""
	}
	for _, c := range []struct {
		name             string
		run              []step
		applied, refused []string
	}{
		{"nothing of it is refused", []step{do("write", "d/e/f/g", "x"), do("write", "d/new", "x"), do("write", "exe", "y")},
			[]string{"changed d/e/f/g", "added d/new", "changed exe"}, nil},
		{"one of it is refused", []step{do("write", "d/config", "x"), do("write", "d/e/f/g", "x"), do("remove", "d/hl1"), do("mkdir", "d/n"), do("write", "d/n/m", "x"), do("write", "exe", "y")},
			[]string{"changed exe"}, []string{"d/config", "d/e/f/g", "d/hl1", "d/n", "d/n/m"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, _, _ := ran(t, c.run...)
			r, err := tx.Commit(Options{Protected: protect, Together: together})
			must(t, err)
			var refused []string
			for _, x := range r.Refused {
				refused = append(refused, x.Path)
			}
			if d := cmp.Diff(c.applied, shown(r.Applied)); d != "" {
				t.Errorf("applied:\n%s", d)
			}
			if d := cmp.Diff(c.refused, refused); d != "" {
				t.Errorf("refused:\n%s", d)
			}
		})
	}
}

func TestSetIDBitsAndCapabilitiesAreDroppedAndReported(t *testing.T) {
	for _, apart := range []bool{false, true} {
		dir := tempDir(t)
		must(t, crashBase(dir+"/ws"))
		state := dir + "/state"
		if apart {
			state = otherFS(t, dir)
		}
		tx, err := Begin(Config{dir + "/ws", state})
		must(t, err)
		mountKinds[0].need(t)
		mountKinds[0].run(t, tx, []step{do("write", "suid", "x"), do("chmod", "suid", 0o6755), do("write", "plain", "x"), do("mkdir", "sg"), do("chmod", "sg", 0o2755)}, 0, 0)
		want := []string{"suid"}
		if os.Geteuid() == 0 {
			capable := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
			must(t, unix.Setxattr(tx.Upper()+"/plain", capability, capable, 0))
			want = []string{"plain", "suid"}
		}
		r, err := tx.Commit(Options{})
		must(t, err)
		var got []string
		for _, d := range r.Dropped {
			got = append(got, d.Path)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("apart %v: %s", apart, d)
		}
		var st unix.Stat_t
		must(t, unix.Stat(dir+"/ws/suid", &st))
		if st.Mode&0o7777 != 0o755 {
			t.Errorf("suid: %o", st.Mode)
		}
		must(t, unix.Stat(dir+"/ws/sg", &st))
		if st.Mode&0o7777 != 0o2755 {
			t.Errorf("sg: %o", st.Mode)
		}
		if _, ok := getXattr(dir+"/ws/plain", capability); ok {
			t.Error("the capabilities are there")
		}
	}
}

func TestTheOverlaysMarksAreNotCommitted(t *testing.T) {
	tx, ws, _ := ran(t, do("append", "plain0", "x"), do("append", "d/e/f/g", "x"), do("remove", "d/hl1"), do("remove", "empty"), do("mkdir", "empty"))
	_, err := tx.Commit(Options{})
	must(t, err)
	must(t, filepath.Walk(ws, func(p string, _ os.FileInfo, err error) error {
		for _, n := range listXattrs(p) {
			if strings.Contains(n, "overlay") {
				t.Errorf("%s has %s", p, n)
			}
		}
		return err
	}))
}

func TestMarksThatMeanAnotherMountAreRefused(t *testing.T) {
	tx, _, _ := ran(t, do("append", "plain0", "x"))
	must(t, unix.Setxattr(tx.Upper()+"/plain0", "user.overlay.metacopy", nil, 0))
	if _, err := tx.Commit(Options{}); err == nil || !strings.Contains(err.Error(), "metacopy") {
		t.Errorf("%v", err)
	}
}

func TestAWhiteoutAsAMark(t *testing.T) {
	tx, ws, _ := ran(t)
	must(t, os.WriteFile(tx.Upper()+"/exe", nil, 0o600))
	must(t, unix.Setxattr(tx.Upper()+"/exe", "user.overlay.whiteout", nil, 0))
	must(t, os.Mkdir(tx.Upper()+"/d", 0o755))
	must(t, unix.Setxattr(tx.Upper()+"/d", "user.overlay.opaque", []byte("x"), 0)) // holds such marks, hides nothing
	_, err := tx.Commit(Options{})
	must(t, err)
	after := mustLook(t, ws)
	if _, ok := after[`"exe"`]; ok {
		t.Error("exe is still there")
	}
	if _, ok := after[`"d/e/f/g"`]; !ok {
		t.Error("d was emptied")
	}
}

// With marks in trusted.* those in user.* are the run's own doing.
func TestForgedMarksAreNotBelieved(t *testing.T) {
	k := mountKinds[1]
	k.need(t)
	dir := tempDir(t)
	must(t, crashBase(dir+"/ws"))
	tx, err := Begin(Config{dir + "/ws", dir + "/state"})
	must(t, err)
	k.run(t, tx, []step{do("append", "plain0", "x"), do("chmod", "d", 0o711)}, 0, 0)
	must(t, unix.Setxattr(tx.Upper()+"/d", "user.overlay.opaque", []byte("y"), 0))
	_, err = tx.Commit(Options{})
	must(t, err)
	if _, ok := mustLook(t, dir+"/ws")[`"d/e/f/g"`]; !ok {
		t.Error("d was emptied")
	}
}

func TestALinkSwappedInDuringTheCommit(t *testing.T) {
	for _, c := range []struct {
		name, dir string
	}{{"at the parent", "d/e/f"}, {"above it", "d"}} {
		t.Run(c.name, func(t *testing.T) {
			tx, ws, _ := ran(t, do("write", "d/e/f/g", "x"), do("write", "a-first", "x"))
			outside := tempDir(t)
			must(t, os.MkdirAll(outside+"/e/f", 0o755))
			must(t, os.WriteFile(outside+"/g", []byte("theirs"), 0o600))
			theirs := mustLook(t, outside)
			tx.crashAt = func(point string) {
				if point == "op 1" {
					must(t, os.Rename(ws+"/"+c.dir, ws+"/away"))
					must(t, os.Symlink(outside, ws+"/"+c.dir))
				}
			}
			_, err := tx.Commit(Options{})
			if err == nil {
				t.Error("committed")
			}
			if d := cmp.Diff(theirs, mustLook(t, outside)); d != "" {
				t.Error(d)
			}
			if _, err := os.Lstat(ws + "/a-first"); err == nil {
				t.Error("half of it was committed")
			}
		})
	}
}

func TestAnotherWorkspaceUnderTheSameName(t *testing.T) {
	tx, ws, _ := ran(t, do("write", "plain0", "x"))
	must(t, os.Rename(ws, ws+"2"))
	must(t, os.Mkdir(ws, 0o755))
	if _, err := tx.Commit(Options{}); err == nil {
		t.Error("committed")
	}
}

func TestDeepTrees(t *testing.T) {
	tx, ws, state := ran(t, do("mkdir", "deep"), do("deep", "deep", "end", 40), do("remove", "d"))
	_, err := tx.Commit(Options{}) // 8,000 bytes of path: more than PATH_MAX
	must(t, err)
	wantEmpty(t, state)
	fd, err := unix.Open(ws, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	end, err := openDir(fd, "deep"+strings.Repeat("/"+strings.Repeat("d", 200), 40), unix.O_RDONLY)
	must(t, err)
	defer unix.Close(end)
	if !exists(end, "end") {
		t.Error("the end is missing")
	}
}

func TestTreesTooDeepAreRefusedAndRolledBack(t *testing.T) {
	tx, ws, state := ran(t, do("mkdir", "deep"), do("deep", "deep", "end", 400))
	before := mustLook(t, ws)
	if _, err := tx.Commit(Options{}); err == nil || !strings.Contains(err.Error(), "a path of") {
		t.Errorf("Commit = %.200v", err)
	}
	must(t, tx.Rollback())
	wantEmpty(t, state)
	if d := cmp.Diff(before, mustLook(t, ws)); d != "" {
		t.Error(d)
	}
}

func TestHolesStayHoles(t *testing.T) {
	for _, apart := range []bool{false, true} {
		dir := tempDir(t)
		must(t, os.Mkdir(dir+"/ws", 0o755))
		state := dir + "/state"
		if apart {
			state = otherFS(t, dir)
		}
		tx, err := Begin(Config{dir + "/ws", state})
		must(t, err)
		must(t, os.WriteFile(tx.Upper()+"/f", []byte("begin"), 0o600))
		must(t, os.Truncate(tx.Upper()+"/f", 1<<30))
		_, err = tx.Commit(Options{})
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Stat(dir+"/ws/f", &st))
		if st.Size != 1<<30 || st.Blocks*512 > 1<<20 {
			t.Errorf("apart %v: %d bytes in %d blocks", apart, st.Size, st.Blocks)
		}
	}
}

func TestTextDiff(t *testing.T) {
	tx, _, _ := ran(t,
		do("write", "plain0", "two\n"), do("remove", "exe"), do("write", "new", "line\n"), do("write", "bin", "\x00\x01"),
		do("symlink", "li", "/etc/passwd"), do("sparse", "big", "x"), do("write", "a\nb", "x\n"),
		do("write", "long", strings.Repeat("a long line of text\n", 20000)))
	for rel, want := range map[string]string{
		"plain0":  "--- a/plain0\n+++ b/plain0\n@@ -1,1 +1,1 @@\n-one\n\\ No newline at end of file\n+two\n",
		"exe":     "--- a/exe\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n\\ No newline at end of file\n",
		"new":     "--- /dev/null\n+++ b/new\n@@ -0,0 +1,1 @@\n+line\n",
		"bin":     "/dev/null and b/bin differ: the file is binary\n",
		"li":      "--- /dev/null\n+++ b/li\n@@ -0,0 +1,1 @@\n+/etc/passwd\n",
		"big":     "/dev/null and b/big differ: the file is binary\n",
		"a\nb":    "--- /dev/null\n+++ \"b/a\\nb\"\n@@ -0,0 +1,1 @@\n+x\n",
		"d/e/f/g": "",
	} {
		got, err := tx.TextDiff(rel)
		must(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s:\n%s", rel, d)
		}
	}
	got, err := tx.TextDiff("long")
	must(t, err)
	if len(got) > maxDiff || !strings.HasSuffix(got, "left out]\n") {
		t.Errorf("%d bytes ending in %q", len(got), got[len(got)-40:])
	}
	for _, rel := range []string{"", "/etc/passwd", "../x", "a/../b", ".."} {
		if _, err := tx.TextDiff(rel); err == nil {
			t.Errorf("TextDiff(%q) = nil", rel)
		}
	}
}

// A mount by the host's root says what a file was copied from.
func TestRenamedOrTakenAway(t *testing.T) {
	k := mountKinds[1]
	k.need(t)
	for _, c := range []struct {
		name   string
		run    []step
		theirs func(ws string) error
		want   []string
	}{
		{"renamed, while they made another file", []step{do("move", "plain0", "m")}, func(ws string) error { return os.WriteFile(ws+"/n", nil, 0o600) },
			[]string{"added m", "deleted plain0"}},
		{"renamed from a directory that the run deleted, while they made another file", []step{do("move", "d/e/f/g", "m"), do("remove", "d/e")},
			func(ws string) error { return os.WriteFile(ws+"/n", nil, 0o600) }, []string{"deleted d/e", "added m"}},
		{"changed, and taken away by them", []step{do("append", "plain0", "x")}, func(ws string) error { return os.Remove(ws + "/plain0") },
			[]string{"added plain0 conflict"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			must(t, crashBase(dir+"/ws"))
			tx, err := Begin(Config{dir + "/ws", dir + "/state"})
			must(t, err)
			k.run(t, tx, c.run, 0, 0)
			must(t, c.theirs(dir+"/ws"))
			got, err := tx.Diff()
			must(t, err)
			if d := cmp.Diff(c.want, shown(got)); d != "" {
				t.Error(d)
			}
			must(t, tx.Rollback())
		})
	}
}

// A change made in the clock tick that Begin falls into is told from one
// before.
func TestConflictsWithinAClockTick(t *testing.T) {
	dir := tempDir(t)
	must(t, crashBase(dir+"/ws"))
	for range 20 {
		must(t, os.WriteFile(dir+"/ws/plain0", []byte("before"), 0o644))
		tx, err := Begin(Config{dir + "/ws", dir + "/state"})
		must(t, err)
		must(t, os.WriteFile(dir+"/ws/exe", []byte("after"), 0o644))
		for _, name := range []string{"plain0", "exe"} {
			must(t, os.WriteFile(tx.Upper()+"/"+name, []byte("x"), 0o644))
		}
		got, err := tx.Diff()
		must(t, err)
		if d := cmp.Diff([]string{"changed exe conflict", "changed plain0"}, shown(got)); d != "" {
			t.Error(d)
		}
		must(t, tx.Rollback())
	}
}

func TestARunThatOnlyReadsLeavesNoTrace(t *testing.T) {
	tx, ws, state := ran(t, do("write", "tmp", "x"), do("remove", "tmp"), do("times", ".", 7)) // as it was
	before := mustLook(t, ws)
	tx.crashAt = func(point string) { t.Errorf("it came to %s", point) }
	_, err := tx.Commit(Options{})
	must(t, err)
	wantEmpty(t, state)
	if d := cmp.Diff(before, mustLook(t, ws)); d != "" {
		t.Error(d)
	}
}

func FuzzUnified(f *testing.F) {
	f.Add("name", []byte("a\nb\n"), []byte("a\nc"), true)
	f.Add("a\nb\x1b", []byte(""), []byte("\x00"), false)
	f.Add("", []byte("\n\n\n"), []byte("\\ No newline"), true)
	f.Fuzz(func(t *testing.T, name string, before, after []byte, there bool) {
		text := unified(name, side{there: there, text: before}, side{there: true, text: after})
		if len(text) > maxDiff {
			t.Errorf("%d bytes", len(text))
		}
		if text == "" && there && string(before) != string(after) {
			t.Error("no difference is shown")
		}
		if header, _, _ := strings.Cut(text, "\n@@"); strings.Count(header, "\n") > 1 {
			t.Errorf("the name broke out of its line: %q", header)
		}
	})
}
