package relay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MaxEvent is the size of the largest event that a hook takes.
const MaxEvent = 8 << 20

// drainBytes is how much of an event that is too large is read all the same:
// an agent whose hook does not read may take that for a failed hook.
const drainBytes = 256 << 20

// stdio is what a process reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	// patience is how long an event may take to come; 0 is eventTime.
	patience time.Duration
}

// process is this process: in holds what was read where it was not done.
var process = stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}

// A program of Cordon's name does not wait for the packages that are set up
// after this one: for an event that a daemon answers they would be most of
// its time.
func init() {
	if strings.HasPrefix(filepath.Base(os.Args[0]), "cordon") {
		relayed = true
		take()
	}
}

// relayed: it was tried.
var relayed bool

// Main takes over where the process is "cordon hook" and a daemon answers, and
// then never returns. The program's main calls it before anything else, and
// reads what is returned in place of standard input.
func Main() (stdin io.Reader) {
	if !relayed {
		relayed = true
		take()
	}
	return process.in
}

func take() {
	if code, done := process.hook(os.Args[1:]); done {
		os.Exit(code)
	}
}

// hook hands "cordon hook" to a daemon, where one is there that can be
// believed. Where it is not done, s.in has what was read put back.
func (s *stdio) hook(args []string) (code int, done bool) {
	if len(args) < 2 || args[0] != "hook" || slices.ContainsFunc(args, ownProcess) {
		return 0, false
	}
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(s.err, "cordon: daemon: panic: %v; deciding without it\n", p)
			code, done = 0, false
		}
	}()
	dir, err := StateDir()
	if err != nil {
		return 0, false
	}
	if _, err := os.Lstat(filepath.Join(dir, SocketName)); err != nil {
		return 0, false // the usual case without one
	}
	build, err := ThisBuild()
	if err != nil {
		return 0, false
	}
	client := Client{Dir: dir, Build: build}
	conn, err := client.Connect()
	if err != nil {
		if !errors.Is(err, ErrNone) {
			fmt.Fprintf(s.err, "cordon: %v; deciding without it\n", err)
		}
		return 0, false
	}
	late := readLate(s.in)
	s.in = late
	select {
	case <-late.done:
	case <-time.After(cmp.Or(s.patience, eventTime)):
	}
	if !late.whole() {
		conn.Close() // the process itself has a deadline, and an answer for it
		return 0, false
	}
	reply, err := conn.Ask(Request{Args: args[1:], Env: Env(), Event: late.event})
	if err != nil {
		fmt.Fprintf(s.err, "cordon: %v; deciding without it\n", err)
		return 0, false
	}
	return s.write(reply), true
}

// write writes an answer, and returns the exit status. The agent reads
// standard error where that is not 0.
func (s *stdio) write(r Reply) int {
	if r.Stderr != "" {
		fmt.Fprintln(s.err, r.Stderr)
	}
	if len(r.Stdout) > 0 {
		if _, err := s.out.Write(append(slices.Clip(r.Stdout), '\n')); err != nil {
			return 2 // a refusal to every agent; what was written may be cut
		}
	}
	return r.Exit
}

// ownProcess: the flag asks for something that only this process can do.
func ownProcess(arg string) bool {
	return arg == "-h" || arg == "--help" || strings.HasPrefix(arg, "--no-daemon")
}

// eventTime is how long an event may take to come. With a whole deadline after
// it there is an answer before any agent's own time is over.
const eventTime = 2 * time.Second

// lateEvent is an event that may still come. As a reader it gives what came,
// and the error that ended it.
type lateEvent struct {
	done  chan struct{} // closed when the rest is set
	event []byte
	err   error
	at    int
}

func readLate(in io.Reader) *lateEvent {
	l := &lateEvent{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.event, l.err = ReadEvent(in)
	}()
	return l
}

// whole reports whether the event has come, and without an error.
func (l *lateEvent) whole() bool {
	select {
	case <-l.done:
		return l.err == nil
	default:
		return false
	}
}

func (l *lateEvent) Read(p []byte) (int, error) {
	<-l.done
	n := copy(p, l.event[l.at:])
	l.at += n
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case l.err != nil:
		return 0, l.err
	}
	return 0, io.EOF
}

// ReadEvent reads an event, and one byte more than it may have where it is too
// large.
func ReadEvent(in io.Reader) ([]byte, error) {
	event, err := io.ReadAll(io.LimitReader(in, MaxEvent+1))
	if err != nil {
		return event, fmt.Errorf("read the event: %w", err)
	}
	if len(event) > MaxEvent {
		_, _ = io.CopyN(io.Discard, in, drainBytes) // it is refused whatever comes
	}
	return event, nil
}

// Env are the variables that a decision depends on, NAME=VALUE.
func Env() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "ATOM_"), strings.HasPrefix(name, "CORDON_"), strings.HasPrefix(name, "XDG_"),
			strings.HasSuffix(name, "_PROJECT_DIR"), name == "HOME":
			env = append(env, kv)
		}
	}
	slices.Sort(env)
	return env
}

// StateDir is where the socket is, and the database: cordon under
// XDG_STATE_HOME, or under ~/.local/state where that is not set to an absolute
// path.
func StateDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "cordon"), nil
}
