package fsscope

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// realPath asks the kernel, by another way than the scope does.
func realPath(p string, nofollow bool) (string, bool) {
	flag := unix.O_PATH | unix.O_CLOEXEC
	if nofollow {
		flag |= unix.O_NOFOLLOW
	}
	if strings.IndexByte(p, 0) >= 0 {
		return "", false
	}
	fd, err := unix.Open(p, flag, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return real, err == nil
}

// permitted by another reckoning: the workspace, the temporary root, the
// system's programs, and the devices that harm nobody.
func (st *stage) permitted(real string, write bool) bool {
	roots := []string{st.ws, st.temp}
	if !write {
		roots = append(roots, systemRoots[:]...)
	}
	for _, r := range roots {
		if rel, err := filepath.Rel(r, real); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return true
		}
	}
	return deviceAllowed[real] || strings.HasPrefix(real, "/dev/pts/") || strings.HasPrefix(real, "pipe:")
}

var deviceAllowed = map[string]bool{
	"/dev/null": true, "/dev/zero": true, "/dev/full": true, "/dev/random": true, "/dev/urandom": true, "/dev/tty": true,
}

var seeds = []string{
	"lib/cart.go", "../notes.txt", "outer/../x", "keys/id_ed25519", "~/.ssh/x", "${HOME:-/etc}/x", "file://host/x", "%2e%2e%2f", "a\x00b", "loop/x",
	"inner/../outer/back/lib", "hook", "nil", "me/etc", "dangling", "\uff0e\uff0e/x", ".git\u200c/hooks", "{a,{b,c}}*", "[", "/proc/self/root/tmp", "//", `\\h\x`, "~+/..",
	"$", "${", "$(", "%", "%u002f", "/dev/fd/0", "~root", "*/..", "keys/.", "outer/.", ".",
}

// TestWithoutOpenat2TheVerdictsAreTheSame covers old kernels, filters that
// refuse the call, and macOS.
func TestWithoutOpenat2TheVerdictsAreTheSame(t *testing.T) {
	st := newStage(t)
	if !st.base.openat2 {
		t.Skip("this kernel has no openat2")
	}
	if err := os.Link(st.home+"/.ssh/id_ed25519", st.ws+"/lib/key.txt"); err != nil {
		t.Fatal(err)
	}
	old := *st.base
	old.openat2 = false
	slow := &Scope{base: &old, temp: st.Scope.temp}
	for _, target := range append([]string{"lib/key.txt"}, seeds...) {
		for bits := range uint8(64) {
			e := cordon.Effect{
				Kind: []cordon.Kind{rd, ls, wr, rm}[bits&3], Target: target, Dir: st.ws,
				Expanded: bits&4 != 0, NoFollow: bits&8 != 0, Pattern: bits&16 != 0, Recursive: bits&32 != 0,
			}
			if diff := cmp.Diff(st.Judge(e), slow.Judge(e)); diff != "" {
				t.Errorf("%s of %q (%b): with and without openat2:\n%s", e.Kind, target, bits, diff)
			}
		}
	}
}

// FuzzJudge: Judge never panics, and never passes a path that the kernel
// takes to a place outside every root.
func FuzzJudge(f *testing.F) {
	for _, s := range seeds {
		for kind := range uint8(16) {
			f.Add(s, kind)
		}
	}
	st := newStage(f)
	f.Fuzz(func(t *testing.T, target string, bits uint8) {
		e := cordon.Effect{
			Kind: []cordon.Kind{rd, ls, wr, rm}[bits&3], Target: target, Dir: st.ws,
			Expanded: bits&4 != 0, NoFollow: bits&8 != 0, Pattern: bits&16 != 0, Recursive: bits&32 != 0,
		}
		v := st.Judge(e)
		if len(v.Findings) > 0 || e.Pattern {
			return
		}
		raw := target
		if !strings.HasPrefix(raw, "/") {
			raw = st.ws + "/" + raw
		}
		if within(filepath.Clean(raw), "/dev") && !strings.Contains(raw, "/..") {
			return // standard streams: what they are is the tool's own affair
		}
		for _, p := range []string{raw, filepath.Clean(raw)} {
			if real, ok := realPath(p, e.NoFollow); ok && !st.permitted(real, e.Kind == wr || e.Kind == rm) {
				t.Errorf("%s of %q passed, and leads to %q", e.Kind, target, real)
			}
		}
	})
}

// FuzzWalk: the walk agrees with the kernel wherever the path exists.
func FuzzWalk(f *testing.F) {
	for _, s := range []string{
		"lib/cart.go", "inner/cart.go", "inner/../lib/./cart.go", "outer/back/lib//cart.go", "loop", "outer/../..", "keys/", "keys", "nil", "hook", "a/../lib", "pyenv/.env/..",
		"outer/back/inner/../outer/back/keys/.",
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	st := newStage(f)
	f.Fuzz(func(t *testing.T, target string, nofollow bool) {
		p := st.ws + "/" + target
		real, ok := realPath(p, nofollow)
		if !ok || strings.HasPrefix(real, "/proc") {
			return
		}
		r := walk(p, nofollow)
		if r.magic {
			return
		}
		if r.path != real {
			t.Errorf("walk(%q) = %q (%v), the kernel says %q", p, r.path, r.err, real)
		}
	})
}

// TestProofAgreesWithTheWalk puts the quick and the thorough way side by side.
func TestProofAgreesWithTheWalk(t *testing.T) {
	st := newStage(t)
	if !st.base.openat2 {
		t.Skip("this kernel has no openat2")
	}
	proven := 0
	for _, rel := range []string{"lib/cart.go", "lib", "absent", "absent/x", "lib/cart.go/x", "keys", "keys/id_ed25519", "outer/x", "loop", "dangling", "nil", "inner/cart.go"} {
		for _, nofollow := range []bool{false, true} {
			p := st.ws + "/" + rel
			r, ok := prove(p, nofollow)
			w := walk(p, nofollow)
			if ok {
				proven++
				if r.path != w.path || w.err != nil {
					t.Errorf("%s: proof %q, walk %q (%v)", rel, r.path, w.path, w.err)
				}
			} else if !w.linked {
				t.Errorf("%s: no link on the way, and no proof", rel)
			}
		}
	}
	if proven < 10 {
		t.Errorf("only %d proofs", proven)
	}
}

func TestChainsOfLinksEndWhereTheKernelEndsThem(t *testing.T) {
	st := newStage(t)
	prev := "lib/cart.go"
	for i := 1; i <= 44; i++ {
		name := "chain" + strconv.Itoa(i)
		if err := os.Symlink(prev, st.ws+"/"+name); err != nil {
			t.Fatal(err)
		}
		prev = name
		_, err := os.Stat(st.ws + "/" + name)
		v := st.Judge(cordon.Effect{Kind: rd, Target: name, Dir: st.ws})
		if refused := rules(v) == "link_loop"; refused != (err != nil) || !refused && worst(v) != "pass" {
			t.Errorf("%d links: %s (%s), the kernel says %v", i, worst(v), rules(v), err)
		}
	}
}

func TestWhatCannotBeLookedAtIsUnresolved(t *testing.T) {
	st := newStage(t)
	for err, want := range map[unix.Errno]string{unix.EACCES: RuleUnresolved, unix.EIO: RuleUnresolved, unix.ENAMETOOLONG: RuleTooLong, unix.ELOOP: RuleLinkLoop} {
		j := judgement{effect: &cordon.Effect{Kind: rd}}
		st.land(&j, landing{path: st.ws + "/lib", err: err}, st.ws+"/lib")
		if len(j.Findings) != 1 || j.Findings[0].Rule != want {
			t.Errorf("%v: %+v, want %s", err, j.Findings, want)
		}
	}
}
