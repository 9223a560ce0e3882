// Package sandbox runs a program inside walls. Runtime is one way of building
// them (kernel namespaces, Docker, gVisor, a microVM, a remote sandbox), Spec
// is what to run and what it may touch, Result is what became of it and which
// of the walls were really there.
//
// It guarantees that a runtime that was asked for by name is the one that is
// used, that a control the caller requires is held or the start is an error
// (G7), that code reaches its interpreter as a file or as standard input,
// never spliced into a wrapper (R3), and that output is capped with a mark
// that says so.
//
// What it does not stop: what the Spec permits. Data leaves through whatever
// sockets are handed in, and a workspace mounted writable can be emptied;
// contain/egress and contain/transaction hold those.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Runtime builds the walls. Implementations are safe for concurrent use.
type Runtime interface {
	// Name is the one that --runtime takes.
	Name() string
	// Probe tries each control for real on this host.
	Probe(ctx context.Context) Report
	// Look is a quick Probe: it starts one program, which looks around, and
	// reaches no cap.
	Look(ctx context.Context) Report
	// Start runs the program. When it returns an error nothing is running.
	// Cancelling ctx kills the process tree; its cause is kept in the Result.
	Start(ctx context.Context, s Spec) (Process, error)
	// Close releases what the runtime holds; running processes are killed.
	Close() error
}

// Process is a program that was started.
type Process interface {
	// Wait returns when the whole process tree has ended. It may be called
	// once.
	Wait() (Result, error)
	// Kill ends the whole tree and keeps cause for the Result. It returns at
	// once, and does nothing after the first call.
	Kill(cause error)
	// Resize tells the program's terminal its size; without one it does
	// nothing.
	Resize(rows, cols uint16)
	// Stats is what has been used so far.
	Stats() Stats
}

// Access is what a mount permits.
type Access uint8

const (
	// ReadOnly is the zero value.
	ReadOnly Access = iota
	// ReadWrite changes the host's own files.
	ReadWrite
	// Overlay shows Source and keeps all changes in Upper.
	Overlay
)

// Mount shows a directory or file of the host inside.
type Mount struct {
	// Source and Target are absolute; Target is the path inside.
	Source, Target string
	Access         Access
	// Upper and Work are the directories of an Overlay, on one file system,
	// out of reach from inside. They serve one Start.
	Upper, Work string
	// Optional: a Source that does not exist is passed over.
	Optional bool
}

// Caps bound one program. Zero is not "unlimited" but the runtime's default.
type Caps struct {
	// MemoryBytes includes the page cache of tmpfs; there is no swap.
	MemoryBytes int64
	// CPUs is a number of processors, 0.5 being half of one.
	CPUs float64
	PIDs int64
	// Wall is from start to end.
	Wall time.Duration
	// FileBytes bounds a single file, DiskBytes all that overlays and
	// temporary directories hold.
	FileBytes, DiskBytes int64
	// OutputBytes bounds each of stdout and stderr.
	OutputBytes int64
	OpenFiles   int64
}

// Defaults are the caps of a Spec that names none.
func Defaults() Caps {
	return Caps{
		MemoryBytes: 2 << 30, CPUs: 2, PIDs: 512, Wall: 10 * time.Minute,
		FileBytes: 1 << 30, DiskBytes: 1 << 30, OutputBytes: 8 << 20, OpenFiles: 1024,
	}
}

// WithDefaults fills in what is zero. A negative cap is an error.
func (c Caps) WithDefaults() (Caps, error) {
	d := Defaults()
	for _, f := range []struct {
		name string
		v    *int64
		def  int64
	}{
		{"memory", &c.MemoryBytes, d.MemoryBytes}, {"pids", &c.PIDs, d.PIDs}, {"wall", (*int64)(&c.Wall), int64(d.Wall)},
		{"file size", &c.FileBytes, d.FileBytes}, {"disk", &c.DiskBytes, d.DiskBytes}, {"output", &c.OutputBytes, d.OutputBytes},
		{"open files", &c.OpenFiles, d.OpenFiles},
	} {
		switch {
		case *f.v < 0:
			return c, fmt.Errorf("sandbox: %s cap %d (want more than zero)", f.name, *f.v)
		case *f.v == 0:
			*f.v = f.def
		}
	}
	switch {
	case c.CPUs < 0 || c.CPUs != c.CPUs:
		return c, fmt.Errorf("sandbox: cpus cap %v (want more than zero)", c.CPUs)
	case c.CPUs == 0:
		c.CPUs = d.CPUs
	}
	return c, nil
}

// Spec is one program to run.
type Spec struct {
	// ID names the run, for labels and for killing by it.
	ID string
	// Argv is the program and its arguments; the program is looked up in the
	// sandbox's own PATH.
	Argv []string
	// Env is the whole environment as "KEY=value"; nothing of the host's is
	// added to it.
	Env []string
	// Dir is the working directory inside, absolute.
	Dir    string
	Mounts []Mount
	Caps   Caps
	// Stdin may be nil (empty). Stdout and Stderr may be nil (discarded).
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY gives the program a fresh terminal of the size Rows × Cols in
	// place of the three streams; what it prints goes to Stdout.
	TTY        bool
	Rows, Cols uint16
	// Listen are loopback addresses ("127.0.0.1:3128") to listen on inside.
	// Each listener is handed to Accept, which owns it; nothing else leads
	// out.
	Listen []string
	Accept func(inside string, l net.Listener)
	// Require are controls that must be enforced; if one cannot be, Start is
	// an error that names it.
	Require []Control
	// Image and Rootfs choose what is inside, for the runtimes that have a
	// choice.
	Image, Rootfs string
}

// Validate reports what no runtime could run.
func (s *Spec) Validate() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return errors.New("sandbox: no command")
	}
	for _, a := range s.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return fmt.Errorf("sandbox: argument %q holds a NUL", a)
		}
	}
	for _, e := range s.Env {
		if i := strings.IndexByte(e, '='); i <= 0 || strings.IndexByte(e, 0) >= 0 {
			return fmt.Errorf("sandbox: environment entry %.40q (want KEY=value)", e)
		}
	}
	for _, m := range s.Mounts {
		for _, p := range []string{m.Source, m.Target} {
			if !strings.HasPrefix(p, "/") {
				return fmt.Errorf("sandbox: mount of %q at %q (want absolute paths)", m.Source, m.Target)
			}
		}
		if m.Access == Overlay && (m.Upper == "" || m.Work == "") {
			return fmt.Errorf("sandbox: overlay of %q without upper and work directory", m.Source)
		}
	}
	return nil
}

// Control is one thing that a wall holds.
type Control string

const (
	UserNS     Control = "user_namespace"
	MountNS    Control = "mount_namespace"
	PIDNS      Control = "pid_namespace"
	NetNS      Control = "network_namespace"
	IPCNS      Control = "ipc_namespace"
	UTSNS      Control = "uts_namespace"
	CgroupNS   Control = "cgroup_namespace"
	PrivateFS  Control = "private_root"
	OverlayFS  Control = "overlay"
	NoNewPrivs Control = "no_new_privs"
	NoCaps     Control = "empty_capabilities"
	Seccomp    Control = "seccomp"
	Landlock   Control = "landlock"
	MemoryCap  Control = "memory_cap"
	NoSwap     Control = "no_swap"
	PIDsCap    Control = "pids_cap"
	CPUCap     Control = "cpu_cap"
	DiskCap    Control = "disk_cap"
	WallCap    Control = "wall_cap"
	KernelWall Control = "separate_kernel"
)

// Controls are all of them.
func Controls() []Control {
	return []Control{
		UserNS, MountNS, PIDNS, NetNS, IPCNS, UTSNS, CgroupNS, PrivateFS, OverlayFS, NoNewPrivs, NoCaps, Seccomp, Landlock,
		MemoryCap, NoSwap, PIDsCap, CPUCap, DiskCap, WallCap, KernelWall,
	}
}

// State is how far a control is held. The zero value is not at all.
type State uint8

var stateNames = [...]string{"absent", "degraded", "enforced"}

const (
	Absent State = iota
	// Degraded: something weaker stands in for it; the note says what.
	Degraded
	Enforced
)

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", s)
}

// MarshalText spells the state.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads "absent", "degraded" or "enforced"; an unknown word is
// an error and leaves Absent.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	*s = State(max(i, 0))
	if i < 0 {
		return fmt.Errorf("sandbox: unknown state %q (want one of %q)", b, stateNames)
	}
	return nil
}

// Held is the state of one control, with what is to be known about it.
type Held struct {
	Control Control `json:"control"`
	State   State   `json:"state"`
	Note    string  `json:"note,omitempty"`
}

// Report is what a host can hold with a runtime.
type Report struct {
	Runtime string `json:"runtime"`
	// Available: a program can be started at all. Why says why not, Fix what
	// to do about it.
	Available bool   `json:"available"`
	Why       string `json:"why,omitempty"`
	Fix       string `json:"fix,omitempty"`
	// Unfit is what ordinary programs would miss, so that nobody should get
	// this runtime who did not ask for it; Fix then says what to do about that.
	Unfit    string `json:"unfit,omitempty"`
	Controls []Held `json:"controls,omitempty"`
}

// Missing names those of the required controls that are not enforced.
func Missing(required []Control, held []Held) []Control {
	var missing []Control
	for _, c := range required {
		if !slices.ContainsFunc(held, func(h Held) bool { return h.Control == c && h.State == Enforced }) {
			missing = append(missing, c)
		}
	}
	return missing
}

// Stats is what a program has used.
type Stats struct {
	CPU         time.Duration `json:"cpu_ns"`
	MemoryBytes int64         `json:"memory_bytes"`
	PeakBytes   int64         `json:"peak_memory_bytes"`
	PIDs        int64         `json:"pids"`
	DiskBytes   int64         `json:"disk_bytes"`
}

// Result is what became of a program.
type Result struct {
	// ExitCode is the program's own; 128 plus the number for a signal.
	ExitCode int
	// Signal that ended it, or 0.
	Signal int
	// Cause is why it was ended from outside (ErrTimeout, ErrDisk, ErrMemory,
	// cordon.ErrKilled, the context's cause), or nil.
	Cause error
	// Wall and User, System are durations of the whole tree.
	Wall, User, System time.Duration
	Stats              Stats
	// StdoutCut and StderrCut: output past the cap was dropped.
	StdoutCut, StderrCut bool
	// OutputErr is why output could not be passed on, or nil.
	OutputErr error
	// Controls are the walls as they really stood.
	Controls []Held
}

// Causes that a runtime ends a program for.
var (
	ErrTimeout = errors.New("sandbox: the time cap was reached")
	ErrDisk    = errors.New("sandbox: the disk cap was reached")
	ErrMemory  = errors.New("sandbox: the memory cap was reached")
)

// UnavailableError says that a runtime cannot be used here, and what to do.
type UnavailableError struct {
	Runtime, Why, Fix string
}

func (e *UnavailableError) Error() string {
	s := fmt.Sprintf("sandbox: runtime %q is not available: %s", e.Runtime, e.Why)
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// RequiredError says that a required control cannot be held here.
type RequiredError struct {
	Runtime string
	Missing []Control
}

func (e *RequiredError) Error() string {
	return fmt.Sprintf("sandbox: runtime %q cannot hold %v on this host (see: cordon doctor)", e.Runtime, e.Missing)
}

// CutMark is written once where output passes its cap.
const CutMark = "\n[cordon: output cut here]\n"

// Capped passes at most limit bytes on to w, then CutMark, and drops the
// rest without an error, so that the program is not stopped by it.
type Capped struct {
	w     io.Writer
	left  int64
	isCut bool
	err   error
}

// NewCapped returns a writer that is capped at limit bytes. A nil w discards.
func NewCapped(w io.Writer, limit int64) *Capped {
	if w == nil {
		w = io.Discard
	}
	return &Capped{w: w, left: limit}
}

// Write is for one goroutine at a time.
func (c *Capped) Write(p []byte) (int, error) {
	n := len(p)
	if c.isCut || c.err != nil {
		return n, c.err
	}
	if int64(n) <= c.left {
		c.left -= int64(n)
		n, c.err = c.w.Write(p)
		return n, c.err
	}
	c.isCut = true
	if _, c.err = c.w.Write(p[:c.left]); c.err != nil {
		return 0, c.err
	}
	_, c.err = io.WriteString(c.w, CutMark)
	return n, c.err
}

// Err is the first error of the writer behind, or nil.
func (c *Capped) Err() error { return c.err }

// Cut reports whether anything was dropped.
func (c *Capped) Cut() bool { return c.isCut }

// NotStarted is the line about a program that could not be started, safe for a
// terminal whatever it is called.
func NotStarted(program string, err error) string {
	why := strconv.QuoteToGraphic(err.Error())
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		why = errno.Error()
	case errors.Is(err, exec.ErrNotFound):
		why = exec.ErrNotFound.Error()
	}
	return "cordon: " + strings.Trim(strconv.QuoteToGraphic(program), `"`) + ": " + why + "\n"
}
