package fsscope

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func TestOpenReadsAndWritesInScope(t *testing.T) {
	st := newStage(t)
	f, err := st.Create("lib/new.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("package lib"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f, err = st.Open("inner/new.go"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	f.Close()
	if err != nil || string(b) != "package lib" {
		t.Errorf("read %q, %v", b, err)
	}
	if f, err = st.Create("lib/new.go"); err != nil {
		t.Fatal(err)
	}
	if fi, err := f.Stat(); err != nil || fi.Size() != 0 {
		t.Errorf("Create left %v bytes, %v", fi.Size(), err)
	}
	f.Close()
	if err := st.Mkdir("lib/sub", 0o755); err != nil {
		t.Error(err)
	}
	if err := st.Rename("lib/new.go", "lib/sub/moved.go"); err != nil {
		t.Error(err)
	}
	if err := st.Remove("lib/sub/moved.go"); err != nil {
		t.Error(err)
	}
	if err := st.Remove("lib/sub"); err != nil {
		t.Error(err)
	}
	if err := st.Remove("outer"); err != nil {
		t.Errorf("removing a link: %v", err)
	}
	if _, err := os.Stat(st.out + "/plain.txt"); err != nil {
		t.Errorf("removing a link removed what it led to: %v", err)
	}
	if d, err := st.Open("."); err != nil {
		t.Errorf("opening a directory: %v", err)
	} else {
		d.Close()
	}
	if _, err := st.Open("absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening what is not there: %v", err)
	}
}

func TestOpenRefusesWhatJudgeRefuses(t *testing.T) {
	st := newStage(t)
	acts := map[string]func() error{
		"open a key":          func() error { _, err := st.Open("keys/id_ed25519"); return err },
		"open a neighbour":    func() error { _, err := st.Open("../notes.txt"); return err },
		"create a hook":       func() error { _, err := st.Create(".git/hooks/pre-push"); return err },
		"create behind links": func() error { _, err := st.Create("dangling"); return err },
		"mkdir outside":       func() error { return st.Mkdir("outer/x", 0o755) },
		"remove outside":      func() error { return st.Remove("outer/plain.txt") },
		"rename out":          func() error { return st.Rename("lib/cart.go", "outer/x") },
		"rename in":           func() error { return st.Rename("outer/plain.txt", "x") },
		"move a repository":   func() error { return st.Rename(".git", "x") },
	}
	for name, act := range acts {
		var refused *RefusedError
		if err := act(); !errors.As(err, &refused) || len(refused.Verdict.Findings) == 0 {
			t.Errorf("%s: %v, want a refusal", name, err)
		} else if !strings.Contains(err.Error(), "fs.") {
			t.Errorf("%s: %q names no rule", name, err)
		}
	}
}

func TestOpenDoesNotWaitForAPipe(t *testing.T) {
	st := newStage(t)
	if err := syscall.Mkfifo(st.ws+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Open("pipe"); !errors.Is(err, ErrNotRegular) {
		t.Errorf("opening a pipe: %v", err)
	}
}

func TestOpenKnowsAHardLinkedSecret(t *testing.T) {
	st := newStage(t)
	st.put(st.ws+"/lib/plain.txt", "x")
	if err := os.Link(st.home+"/.ssh/id_ed25519", st.ws+"/lib/k.txt"); err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := st.Open("lib/k.txt"); !errors.As(err, &refused) {
		t.Errorf("opening another name of a key: %v", err)
	}
	if _, err := st.Create("lib/k.txt"); !errors.As(err, &refused) {
		t.Errorf("emptying another name of a key: %v", err)
	}
	if b, _ := os.ReadFile(st.home + "/.ssh/id_ed25519"); string(b) != "x" {
		t.Error("the key was emptied")
	}
}

// TestF5SwappedLinks opens and creates while another goroutine swaps a
// directory for a link out: whatever is opened lies in the workspace.
func TestF5SwappedLinks(t *testing.T) {
	for _, quick := range []bool{true, false} {
		st := newStage(t)
		if quick && !st.base.openat2 {
			continue
		}
		b := *st.base
		b.openat2 = quick
		st.Scope = &Scope{base: &b, temp: st.temp2()}
		st.put(st.ws+"/swap/f.txt", "inside")
		st.put(st.out+"/f.txt", "outside")
		if err := os.Symlink(st.out, st.ws+"/swap-link"); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var swapper sync.WaitGroup
		swapper.Add(1)
		go func() {
			defer swapper.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				os.Rename(st.ws+"/swap", st.ws+"/swap-dir")
				os.Rename(st.ws+"/swap-link", st.ws+"/swap")
				os.Rename(st.ws+"/swap", st.ws+"/swap-link")
				os.Rename(st.ws+"/swap-dir", st.ws+"/swap")
			}
		}()
		opened := 0
		for range 3000 {
			f, err := st.Open("swap/f.txt")
			if err == nil {
				opened++
				if b, _ := io.ReadAll(f); string(b) != "inside" {
					t.Errorf("read %q through a swapped link", b)
				}
				f.Close()
			}
			if f, err := st.OpenFile("swap/new.txt", os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				f.Close()
			}
		}
		close(stop)
		swapper.Wait()
		if _, err := os.Lstat(st.out + "/new.txt"); err == nil {
			t.Error("a file was made outside through a swapped link")
		}
		if opened == 0 {
			t.Error("nothing was ever opened: the test shows nothing")
		}
	}
}

// temp2 is the scope's own temporary root.
func (st *stage) temp2() root { return st.Scope.temp }

func TestOpenWalkingFollowsNoLink(t *testing.T) {
	st := newStage(t)
	for p, want := range map[string]error{
		st.ws + "/lib/cart.go":   nil,
		st.ws + "/inner/cart.go": syscall.ELOOP,
		st.ws + "/nil":           syscall.ELOOP,
		st.ws + "/absent/x":      syscall.ENOENT,
	} {
		fd, err := openWalking(p, syscall.O_RDONLY, 0)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", p, err, want)
		}
		if err == nil {
			syscall.Close(fd)
		}
	}
}

func TestF6RewriteStaysInTheTemporaryRoot(t *testing.T) {
	st := newStage(t)
	for _, p := range []string{
		"/srv/a.txt", "../../../x", "/../../etc/hosts", "a/../../b", "/a//b/./c", "~/x", "\\..\\x", "/tmp/agent/../..", strings.Repeat("../", 100) + "x",
		"/a\x00b", "/", "", "/home/mia/.ssh/id_rsa", "/w/.git/hooks/x", "/" + strings.Repeat("d/", 2100),
	} {
		out := st.Rewrite(p)
		if out == "" {
			continue
		}
		if !strings.HasPrefix(out, st.temp+"/") || filepath.Clean(out) != out {
			t.Errorf("Rewrite(%q) = %q", p, out)
		}
		if v := st.Judge(cordon.Effect{Kind: wr, Target: out, Expanded: true}); worst(v) != "pass" {
			t.Errorf("Rewrite(%q) = %q, which is %s (%s)", p, out, worst(v), rules(v))
		}
	}
	for _, p := range []string{"/", "", "/home/mia/.ssh/id_rsa", "/w/.git/hooks/x", "/a\x00b"} {
		if out := st.Rewrite(p); out != "" {
			t.Errorf("Rewrite(%q) = %q, want none", p, out)
		}
	}
	v := st.Judge(cordon.Effect{Kind: wr, Target: "/srv/report.txt", Dir: st.ws})
	if len(v.Findings) != 1 || v.Findings[0].Rewrite != st.temp+"/srv/report.txt" {
		t.Errorf("no rewrite was proposed: %+v", v.Findings)
	}
	v = st.Judge(cordon.Effect{Kind: wr, Target: "outer/report.txt", Dir: st.ws})
	if len(v.Findings) != 1 || !strings.HasPrefix(v.Findings[0].Rewrite, st.temp+"/") {
		t.Errorf("no rewrite was proposed for a link out: %+v", v.Findings)
	}
	if _, err := os.Lstat(st.temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("judging made the temporary root: %v", err)
	}
	s, err := New(Config{Roots: []Root{{Path: st.ws}}, Workspace: st.ws, Home: st.home, TempRoot: st.temp})
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Judge(cordon.Effect{Kind: wr, Target: "/srv/x"}); len(v.Findings) != 1 || v.Findings[0].Rewrite != "" {
		t.Errorf("a run that may not write its temporary root was offered it: %+v", v.Findings)
	}
}

func TestMakeTemp(t *testing.T) {
	st := newStage(t)
	for range 2 {
		if err := st.MakeTemp(); err != nil {
			t.Fatal(err)
		}
	}
	if fi, err := os.Lstat(st.temp); err != nil || fi.Mode() != os.ModeDir|0o700 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if err := os.Remove(st.temp); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(st.out, st.temp); err != nil {
		t.Fatal(err)
	}
	if err := st.MakeTemp(); err == nil {
		t.Error("a link was taken for the temporary root")
	}
	if v := st.Judge(cordon.Effect{Kind: wr, Target: st.temp + "/x"}); worst(v) == "pass" {
		t.Error("a link in the temporary root's place opened what it leads to")
	}
	if err := os.Remove(st.temp); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(st.temp, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(st.temp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := st.MakeTemp(); err == nil {
		t.Error("a directory that others write was taken for the temporary root")
	}
	if err := new(Scope).MakeTemp(); err == nil {
		t.Error("the zero scope made a directory")
	}
}
