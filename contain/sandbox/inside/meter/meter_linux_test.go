package meter

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUsageCountsWhatIsThereAndFollowsNoLink(t *testing.T) {
	top, outside := t.TempDir(), t.TempDir()
	big := make([]byte, 1<<20)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside+"/big", big, 0o600))
	must(os.MkdirAll(top+"/a/b", 0o700))
	must(os.Symlink(outside, top+"/a/out"))
	must(os.WriteFile(top+"/a/b/one", big, 0o600))
	must(os.Link(top+"/a/b/one", top+"/a/two"))
	must(os.WriteFile(top+"/empty", nil, 0o600))
	sparse, err := os.Create(top + "/sparse")
	must(err)
	must(sparse.Truncate(1 << 30))
	must(sparse.Close())
	u := usage{limit: 1 << 40, linked: map[inode]struct{}{}}
	u.tree(top)
	// The directories a and b, the link, an empty and a sparse file.
	if least, most := int64(1<<20+5*MinFileBytes), int64(1<<20+8*MinFileBytes); u.bytes < least || u.bytes > most {
		t.Errorf("%d bytes, want %d to %d", u.bytes, least, most)
	}
}

func TestUsageOfDeepTrees(t *testing.T) {
	for _, c := range []struct {
		name    string
		depth   int
		tooMuch bool
	}{
		{"longer than the kernel takes as one path", 40, false},
		{"deeper than can be committed is too much", 80, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			t.Chdir(top)
			name := strings.Repeat("d", 250)
			for range c.depth {
				if err := os.Mkdir(name, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chdir(name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile("end", make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			u := usage{limit: 1 << 40, linked: map[inode]struct{}{}}
			u.tree(top)
			if tooMuch := u.bytes > u.limit; tooMuch != c.tooMuch || u.bytes < 1<<20 {
				t.Errorf("%d bytes", u.bytes)
			}
			if err := os.Chdir("/"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestUsageLooksIntoWhatWasShut(t *testing.T) {
	for name, modes := range map[string][2]os.FileMode{"both": {0o100, 0}, "to be entered, not listed": {0o300, 0o300}, "to be listed, not entered": {0o400, 0o600}} {
		t.Run(name, func(t *testing.T) { lookIntoShut(t, modes[0], modes[1]) })
	}
}

func lookIntoShut(t *testing.T, outerMode, innerMode os.FileMode) {
	top := t.TempDir()
	inner := top + "/shut/inner"
	if err := errors.Join(os.MkdirAll(inner, 0o755), os.WriteFile(inner+"/file", make([]byte, 1<<20), 0)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// The rights of a user, for this thread, which ends with the test.
		const somebody = 29876
		for _, p := range []string{top, top + "/shut", inner} {
			if err := os.Chown(p, somebody, somebody); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Dir(top), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Setfsuid(0) })
		runtime.LockOSThread()
		if err := unix.Setfsuid(somebody); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(inner, innerMode), os.Chmod(top+"/shut", outerMode)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(top+"/shut", 0o700)
	if _, err := os.ReadDir(inner); !errors.Is(err, os.ErrPermission) {
		t.Fatal("it is not shut: ", err)
	}
	u := usage{limit: 1 << 40, linked: map[inode]struct{}{}}
	u.tree(top)
	if u.bytes < 1<<20 || u.bytes > u.limit {
		t.Errorf("%d bytes", u.bytes)
	}
	var st unix.Stat_t
	if err := unix.Lstat(top+"/shut", &st); err != nil || os.FileMode(st.Mode&0o7777) != outerMode {
		t.Errorf("mode %o, %v: it is not as it was", st.Mode, err)
	}
	if err := errors.Join(os.Chmod(top+"/shut", 0o700), unix.Lstat(inner, &st)); err != nil || os.FileMode(st.Mode&0o7777) != innerMode {
		t.Errorf("mode %o, %v: it is not as it was", st.Mode, err)
	}
	_ = os.Chmod(inner, 0o700)
}
