package inside

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

// Binary is the program to show at Path: named, or else this very one. It has
// to run on Linux, by any user, and without any library of the sandbox unless
// the sandbox shows the host's own (libraries).
func Binary(runtimeName, named string, libraries bool) (string, error) {
	path := named
	if path == "" {
		if runtime.GOOS != "linux" {
			return "", &sandbox.UnavailableError{Runtime: runtimeName, Why: "the first process inside must be a Linux program, this is " + runtime.GOOS,
				Fix: "build cordon for Linux (CGO_ENABLED=0 GOOS=linux go build ./cmd/cordon) and name it as the runtime's Init"}
		}
		exe, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("%s: %w", runtimeName, err)
		}
		path = exe
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", runtimeName, err)
	}
	if err := fit(path, libraries); err != nil {
		return "", &sandbox.UnavailableError{Runtime: runtimeName, Why: fmt.Sprintf("%s cannot be the first process inside: %v", path, err),
			Fix: "use a cordon that was built with CGO_ENABLED=0 and that all may read and execute"}
	}
	return path, nil
}

func fit(path string, libraries bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o005 != 0o005 {
		return fmt.Errorf("its mode is %v", info.Mode())
	}
	f, err := elf.Open(path)
	if err != nil {
		return errors.New("it is no Linux program")
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && !libraries {
			return errors.New("it is linked dynamically")
		}
	}
	return nil
}

// Namespaces are the links of /proc/self/ns of this process; none where the
// system has no such thing.
func Namespaces() map[string]string {
	ns := map[string]string{}
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if to, err := os.Readlink("/proc/self/ns/" + name); err == nil {
			ns[name] = to
		}
	}
	return ns
}

// StartTime tells a process from a later one with its number: in ticks since
// the boot (proc(5), field 22 of stat); "" where there is none.
func StartTime(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name in parentheses may hold anything.
	rest := string(text[strings.LastIndexByte(string(text), ')')+1:])
	if f := strings.Fields(rest); len(f) > 19 {
		return f[19]
	}
	return ""
}

// Tail keeps the end of what is written to it, for an error's text.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 2048

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(len(p)-tailSize, 0):]...)
	if n := len(t.text) - tailSize; n > 0 {
		t.text = t.text[:copy(t.text, t.text[n:])]
	}
	return len(p), nil
}

// String is one line.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.FieldsFunc(string(t.text), func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
}

// MountPoints lists where mountinfo (proc(5)) says that something is mounted.
func MountPoints(mountinfo string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 {
			points = append(points, unescapeMount.Replace(f[4]))
		}
	}
	return points
}

// unescapeMount undoes what proc(5) does to paths.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
