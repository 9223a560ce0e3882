//go:build integration && linux

package escape

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// place is one test's own world: a home with a secret, a workspace in it, a
// directory that is nobody's business, and Cordon's stores.
type place struct {
	t *testing.T
	underTest

	base, home, workspace, outside, state, config, db string
	// secret is a file of the home that holds word; word is in nothing else.
	secret, word string
	// id of the runs, and by which their processes are found.
	id     string
	before map[string]string
	runs   *int
}

func newPlace(t *testing.T, under underTest) *place {
	t.Helper()
	base, err := os.MkdirTemp(built.dir, "place-")
	check(t, err)
	tag := strings.ToLower(rand.Text()[:12])
	p := &place{
		t: t, underTest: under, base: base, home: base + "/home", workspace: base + "/home/project", outside: base + "/outside",
		state: base + "/home/.local/state", config: base + "/home/.config", db: base + "/home/.local/state/audit.db",
		secret: base + "/home/.ssh/id_ed25519", word: "secret-" + tag, id: "escape-" + tag, runs: new(int),
	}
	p.dir(0o755, base, p.home, p.workspace, p.outside, p.home+"/.local", p.home+"/bin")
	p.dir(0o700, p.home+"/.ssh", p.state, p.config)
	p.file(p.secret, p.word+"\n", 0o600)
	p.file(p.home+"/.bashrc", "# mine\n", 0o644)
	p.file(p.outside+"/canary", "canary\n", 0o644)
	p.file(p.workspace+"/README", "the project\n", 0o644)
	if len(under.platform) > 0 {
		p.dir(0o700, p.state+"/cordon", filepath.Dir(p.state+platformFile))
		p.file(p.state+platformFile, string(under.platform), 0o600)
	}
	p.before = p.surroundings()
	t.Cleanup(p.end)
	return p
}

// in is the place in a subtest.
func (p *place) in(t *testing.T) *place {
	q := *p
	q.t = t
	return &q
}

// dir makes directories that belong to the user.
func (p *place) dir(mode os.FileMode, paths ...string) {
	p.t.Helper()
	for _, path := range paths {
		check(p.t, os.MkdirAll(path, mode))
		check(p.t, os.Chmod(path, mode))
		p.own(path)
	}
}

func (p *place) file(path, text string, mode os.FileMode) {
	p.t.Helper()
	check(p.t, os.WriteFile(path, []byte(text), 0o600))
	check(p.t, os.Chmod(path, mode))
	p.own(path)
}

func (p *place) own(path string) {
	if p.user != nil {
		check(p.t, os.Lchown(path, int(p.user.Uid), int(p.user.Gid)))
	}
}

// ownAll is own for a tree that the test made.
func (p *place) ownAll(dir string) {
	p.t.Helper()
	check(p.t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && p.user != nil {
			err = os.Lchown(path, int(p.user.Uid), int(p.user.Gid))
		}
		return err
	}))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// surroundings is what no run may change: all of the place but the workspace
// and Cordon's own.
func (p *place) surroundings() map[string]string {
	p.t.Helper()
	return look(p.t, p.base, func(rel string) bool {
		return rel == "home/project" || rel == "home/.local/state" || rel == "home/.config" || rel == "copy"
	})
}

// look is a tree as text: kind, mode, owner, size, content, target and names
// of one inode by path.
func look(t testing.TB, top string, skip func(rel string) bool) map[string]string {
	t.Helper()
	seen := map[string]string{}
	first := map[uint64]string{}
	lookDir(t, top, "", skip, seen, first)
	return seen
}

// lookDir goes down by descriptors: paths may be longer than the kernel takes.
func lookDir(t testing.TB, dir, rel string, skip func(string) bool, seen map[string]string, first map[uint64]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) { // not started as root
		seen[rel] += " shut"
		return
	}
	check(t, err)
	f, err := os.Open(dir)
	check(t, err)
	defer f.Close()
	for _, e := range entries {
		at, name := filepath.Join(rel, e.Name()), fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), e.Name())
		if skip != nil && skip(at) {
			continue
		}
		var st unix.Stat_t
		check(t, unix.Lstat(name, &st))
		text := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			to, err := os.Readlink(name)
			check(t, err)
			text += " -> " + to
		case unix.S_IFREG:
			text += fmt.Sprintf(" %d %d*2M %s", st.Size, st.Blocks/4096, content(t, name))
			if other := first[st.Ino]; st.Nlink > 1 && other != "" {
				text += " = " + other
			}
			if st.Nlink > 1 && first[st.Ino] == "" {
				first[st.Ino] = at
			}
		case unix.S_IFCHR, unix.S_IFBLK:
			text += fmt.Sprintf(" device %x", st.Rdev)
		}
		seen[at] = text
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			lookDir(t, name, at, skip, seen, first)
		}
	}
}

func content(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrPermission) {
		return "unreadable"
	}
	check(t, err)
	if len(text) > 64 {
		h := uint64(14695981039346656037)
		for _, c := range text {
			h = (h ^ uint64(c)) * 1099511628211
		}
		return fmt.Sprintf("%x", h)
	}
	return fmt.Sprintf("%q", text)
}

// end looks at the host after the test.
func (p *place) end() {
	if diff := cmp.Diff(p.before, p.surroundings()); diff != "" {
		p.t.Errorf("something outside of the workspace was changed (- before, + after):\n%s", diff)
	}
	if left := p.awaitNone(p.id); len(left) > 0 {
		p.t.Errorf("processes of the run are left: %v", left)
		for pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL) // ours: it carries our own mark
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), p.base) {
		p.t.Errorf("mounts of the run are left (%v)", err)
	}
	check(p.t, removeAll(p.base))
}

// removeAll removes a tree in which directories may be shut.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// awaitNone waits until no process has the mark on its command line or in its
// environment, and returns those that stay.
func (p *place) awaitNone(mark string) map[int]string {
	var left map[int]string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = marked(mark); len(left) == 0 {
			return nil
		}
	}
	return left
}

// marked finds processes of the host.
func marked(mark string) map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		for _, file := range []string{"/cmdline", "/environ"} {
			text, err := os.ReadFile(dir + file)
			if err == nil && bytes.Contains(text, []byte(mark)) {
				pid := 0
				_, _ = fmt.Sscan(filepath.Base(dir), &pid)
				if state, _ := os.ReadFile(dir + "/stat"); pid != os.Getpid() && !strings.Contains(string(state), ") Z ") {
					found[pid] = strings.ReplaceAll(string(text), "\x00", " ")
				}
				break
			}
		}
	}
	return found
}

// invocation is one start of cordon run, or of the attack without it.
type invocation struct {
	// attack are the arguments of the attack program; command is run instead
	// where it is set.
	attack, command []string
	flags           []string
	// wrap is a command that cordon is started by.
	wrap []string
	dir  string
	env  []string
	// stdin is what the command gets; stdinFile stands before it.
	stdin     string
	stdinFile *os.File
	files     []*os.File
	timeout   time.Duration
	// unshare are namespaces for an attack without walls.
	unshare uintptr
	// root: as the test's own user, not the place's.
	root bool
}

// line is what the attack program prints.
type line struct{ Try, Got, Note string }

type result struct {
	t              *testing.T
	what           string
	code           int
	stdout, stderr string
	lines          []line
	outcome        outcome
	cut            bool
	state          string // of the place, where it is asked for
}

// outcome is what cordon prints with --json.
type outcome struct {
	Decision  string
	ExitCode  int `json:"exit_code"`
	Cause     string
	Committed bool
	Changes   []struct{ Path, Kind string }
	Refused   []struct{ Path, Why string }
	Controls  []struct{ Control, State, Note string }
	Stats     struct {
		Peak int64 `json:"peak_memory_bytes"`
	}
}

func (p *place) environment(more []string) []string {
	env := []string{
		"HOME=" + p.home, "XDG_STATE_HOME=" + p.state, "XDG_CONFIG_HOME=" + p.config, "XDG_CACHE_HOME=" + p.home + "/.cache",
		"PATH=" + os.Getenv("PATH"), "TERM=dumb", "ATOM_SANDBOX_MAX_EXEC_SECONDS=600",
	}
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(append(env, p.env...), more...)
}

// command is cordon run as a user would start it.
func (p *place) command(ctx context.Context, i invocation) *exec.Cmd {
	*p.runs++
	argv := []string{built.cordon, "run", "--json", "--runtime", p.runtime, "--db", p.db, "--workspace", p.workspace, "--run-id", fmt.Sprintf("%s-%d", p.id, *p.runs), "--read", filepath.Dir(built.attack)}
	if image := os.Getenv("CORDON_ESCAPE_IMAGE"); image != "" && p.runtime == "docker" {
		argv = append(argv, "--image", image)
	}
	argv = append(append(append(argv, p.flags...), i.flags...), "--")
	if i.command != nil {
		argv = append(argv, i.command...)
	} else {
		argv = append(append(argv, built.attack), i.attack...)
	}
	argv = append(slices.Clone(i.wrap), argv...)
	return p.process(ctx, i, argv)
}

func (p *place) process(ctx context.Context, i invocation, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = i.dir, p.environment(i.env), i.files
	if cmd.Dir == "" {
		cmd.Dir = p.workspace
	}
	cmd.Stdin = strings.NewReader(i.stdin)
	if i.stdinFile != nil {
		cmd.Stdin = i.stdinFile
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: i.unshare}
	if p.user != nil && !i.root {
		cmd.SysProcAttr.Credential = p.user
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (i *invocation) context() (context.Context, context.CancelFunc) {
	if i.timeout == 0 {
		i.timeout = 2 * time.Minute
	}
	return context.WithTimeout(context.Background(), i.timeout)
}

// cordon runs it to its end.
func (p *place) cordon(i invocation) *result {
	p.t.Helper()
	ctx, cancel := i.context()
	defer cancel()
	return p.finish("cordon run", p.command(ctx, i), ctx)
}

// bare runs the attack without walls, in a copy of the workspace: the proof
// that it is one.
func (p *place) bare(i invocation) *result {
	p.t.Helper()
	if i.dir == "" {
		i.dir = p.copyWorkspace()
	}
	i.env = append(i.env, "CORDON_RUN="+p.id)
	ctx, cancel := i.context()
	defer cancel()
	argv := append([]string{built.attack}, i.attack...)
	if i.command != nil {
		argv = i.command
	}
	return p.finish("without walls", p.process(ctx, i, argv), ctx)
}

// copyWorkspace makes a copy beside the place's own things.
func (p *place) copyWorkspace() string {
	p.t.Helper()
	to := p.base + "/copy"
	check(p.t, removeAll(to))
	out, err := exec.Command("cp", "-a", p.workspace, to).CombinedOutput()
	if err != nil {
		p.t.Fatalf("cp: %v: %s", err, out)
	}
	return to
}

func (p *place) finish(what string, cmd *exec.Cmd, ctx context.Context) *result {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		p.t.Fatalf("%s %q did not end in time\nstdout: %.2000s\nstderr: %.2000s", what, cmd.Args, &out, &errs)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.t.Fatalf("%s %q: %v", what, cmd.Args, err)
	}
	return p.result(what, cmd.ProcessState.ExitCode(), out.String(), errs.String())
}

func (p *place) result(what string, code int, stdout, stderr string) *result {
	r := &result{t: p.t, what: what, code: code, stdout: stdout, stderr: stderr}
	for l := range strings.Lines(stdout) {
		var one line
		if json.Unmarshal([]byte(l), &one) == nil && one.Try != "" {
			r.lines = append(r.lines, one)
		}
		r.cut = r.cut || strings.Contains(l, "[cordon: output cut here]")
	}
	for l := range strings.Lines(stderr) {
		if strings.HasPrefix(l, `{"run_id"`) {
			_ = json.Unmarshal([]byte(l), &r.outcome)
		}
	}
	return r
}

// got is the answer to a try, "" if it was not tried.
func (r *result) got(try string) string {
	for _, l := range r.lines {
		if l.Try == try {
			return l.Got
		}
	}
	return ""
}

func (r *result) text() string {
	return fmt.Sprintf("%s ended with %d\nstdout: %.6000s\nstderr: %.3000s", r.what, r.code, r.stdout, r.stderr)
}

// ended wants an exit code.
func (r *result) ended(code int) *result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit %d (want %d)\n%s", r.code, code, r.text())
	}
	return r
}

// refusals are the answers that a wall gives.
const refusals = "EPERM EACCES ENOSYS EROFS EXDEV ENOENT ESRCH ECONNREFUSED ENETUNREACH EHOSTUNREACH EADDRNOTAVAIL ENOTDIR EBADF ENXIO refused"

// answers says for the try of a name, or all whose names begin with what
// stands before a "*", which are right, separated by spaces.
type answers map[string]string

// refused wants a refusal as the answer to every try: one of those named for
// it in want, else one of the usual. What want names must have been tried.
func (r *result) refused(want answers) {
	r.t.Helper()
	used, tried := map[string]bool{}, 0
	for _, l := range r.lines {
		if slices.Contains([]string{"ready", "writes", "processes", "variable", "interfaces", "work", "trap", "daemons"}, l.Try) {
			continue
		}
		tried++
		right := refusals
		if key, ok := want.keyOf(l.Try); ok {
			used[key], right = true, want[key]
		}
		if !slices.Contains(strings.Fields(right), l.Got) {
			r.t.Errorf("%s: %s: got %s %s (want one of %s)", r.what, l.Try, l.Got, l.Note, right)
		}
	}
	for key := range want {
		if !used[key] {
			r.t.Errorf("%s: %q was not tried", r.what, key)
		}
	}
	if tried == 0 {
		r.t.Errorf("nothing was tried\n%s", r.text())
	}
}

func (a answers) keyOf(try string) (string, bool) {
	if _, ok := a[try]; ok {
		return try, true
	}
	best, found := "", false
	for key := range a {
		if prefix, ok := strings.CutSuffix(key, "*"); ok && strings.HasPrefix(try, prefix) && len(key) > len(best) {
			best, found = key, true
		}
	}
	return best, found
}

// reached wants tries to have succeeded without walls. Those of maybe depend
// on the kernel; the others prove the attack.
func (r *result) reached(tries ...string) {
	r.t.Helper()
	for _, try := range tries {
		if got := r.got(try); got != "reached" {
			r.t.Errorf("the attack proves nothing: %s: %s: got %q\n%s", r.what, try, got, r.text())
		}
	}
}

// saw notes which tries succeed without walls, where that depends on the host.
func (r *result) saw() {
	r.t.Helper()
	yes, no := 0, []string{}
	for _, l := range r.lines {
		if l.Got == "reached" {
			yes++
		} else {
			no = append(no, l.Try+": "+l.Got)
		}
	}
	r.t.Logf("%s: %d of %d tries succeed; not: %q", r.what, yes, len(r.lines), no)
}

// reportsRefused wants the paths to be named as not committed, themselves or
// by a directory that they are in.
func (r *result) reportsRefused(paths ...string) {
	r.t.Helper()
	for _, path := range paths {
		if !slices.ContainsFunc(r.outcome.Refused, func(x struct{ Path, Why string }) bool {
			return x.Path == path || strings.HasPrefix(path, x.Path+"/")
		}) {
			r.t.Errorf("%s was not reported as refused; reported: %v", path, r.outcome.Refused)
		}
	}
}
