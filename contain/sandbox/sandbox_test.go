package sandbox

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestCappedMarksWhereItCuts(t *testing.T) {
	for _, c := range []struct {
		name   string
		writes []string
		limit  int64
		want   string
		cut    bool
	}{
		{"below the cap", []string{"abc"}, 5, "abc", false},
		{"exactly the cap", []string{"ab", "cde"}, 5, "abcde", false},
		{"past it in one write", []string{"abcdefgh"}, 5, "abcde" + CutMark, true},
		{"past it later, marked once", []string{"abcd", "efg", "h", "i"}, 5, "abcde" + CutMark, true},
		{"nothing at all", []string{"a"}, 0, CutMark, true},
	} {
		var out bytes.Buffer
		w := NewCapped(&out, c.limit)
		for _, s := range c.writes {
			if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("%s: Write = %d, %v", c.name, n, err)
			}
		}
		if out.String() != c.want || w.Cut() != c.cut {
			t.Errorf("%s: %q, cut %v", c.name, out.String(), w.Cut())
		}
	}
}

func TestCapsHaveNoUnlimited(t *testing.T) {
	c, err := Caps{PIDs: 7}.WithDefaults()
	if err != nil || c.PIDs != 7 || c.MemoryBytes != Defaults().MemoryBytes || c.CPUs != Defaults().CPUs {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []Caps{{MemoryBytes: -1}, {PIDs: -1}, {Wall: -1}, {CPUs: -0.5}, {DiskBytes: -1}, {OutputBytes: -1}} {
		if _, err := bad.WithDefaults(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestValidate(t *testing.T) {
	ok := Spec{Argv: []string{"true"}, Env: []string{"A=b"}, Mounts: []Mount{{Source: "/a", Target: "/b"}}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ name, want string }{
		{"no command", "no command"}, {"a NUL", "NUL"}, {"a name without a value", "KEY=value"}, {"a relative mount", "absolute"}, {"an overlay without upper", "upper"},
	} {
		s := ok
		switch c.name {
		case "no command":
			s.Argv = nil
		case "a NUL":
			s.Argv = []string{"a\x00b"}
		case "a name without a value":
			s.Env = []string{"A"}
		case "a relative mount":
			s.Mounts = []Mount{{Source: "a", Target: "/b"}}
		case "an overlay without upper":
			s.Mounts = []Mount{{Source: "/a", Target: "/b", Access: Overlay}}
		}
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestMissingWantsEnforced(t *testing.T) {
	held := []Held{{Seccomp, Enforced, ""}, {MemoryCap, Degraded, "rlimit"}}
	if got := Missing([]Control{Seccomp, MemoryCap, NetNS}, held); len(got) != 2 || got[0] != MemoryCap || got[1] != NetNS {
		t.Errorf("missing %v", got)
	}
	err := error(&RequiredError{"native", []Control{NetNS}})
	var req *RequiredError
	if !errors.As(err, &req) || !strings.Contains(err.Error(), "network_namespace") {
		t.Error(err)
	}
	if s := State(0); s != Absent {
		t.Error("the zero state is not absent")
	}
}

func TestWhatIsSaidOfAProgramIsSafeForATerminal(t *testing.T) {
	for _, c := range []struct {
		program string
		err     error
		want    string
	}{
		{"no-such", &os.PathError{Op: "exec", Path: "no-such", Err: syscall.ENOENT}, "cordon: no-such: no such file or directory\n"},
		{"no\x1b[31m", errors.New("no\x1b[31m is odd"), `cordon: no\x1b[31m: "no\x1b[31m is odd"` + "\n"},
		{"x", &exec.Error{Name: "x", Err: exec.ErrNotFound}, "cordon: x: executable file not found in $PATH\n"},
	} {
		if got := NotStarted(c.program, c.err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
