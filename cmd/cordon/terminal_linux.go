package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"golang.org/x/term"
)

// terminal is the user's, while a command has one of its own inside: nothing
// inside ever holds the user's (it could type into it).
type terminal struct {
	fd    int
	state *term.State
	sizes chan os.Signal
}

// openTerminal gives the command a terminal of its own where it would have
// had one: both its input and its output are the user's terminal.
func openTerminal(s *sandbox.Spec) (*terminal, error) {
	in, ok := s.Stdin.(*os.File)
	out, ok2 := s.Stdout.(*os.File)
	if !ok || !ok2 || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return &terminal{}, nil
	}
	t := &terminal{fd: int(in.Fd())}
	cols, rows, err := term.GetSize(int(out.Fd()))
	if err != nil {
		return nil, err
	}
	if t.state, err = term.MakeRaw(t.fd); err != nil {
		return nil, err
	}
	s.TTY, s.Rows, s.Cols = true, uint16(rows), uint16(cols)
	return t, nil
}

// follow passes the terminal's size on whenever it changes.
func (t *terminal) follow(p sandbox.Process) {
	if t.state == nil {
		return
	}
	t.sizes = make(chan os.Signal, 1)
	signal.Notify(t.sizes, syscall.SIGWINCH)
	go func() {
		for range t.sizes {
			if cols, rows, err := term.GetSize(t.fd); err == nil {
				p.Resize(uint16(rows), uint16(cols))
			}
		}
	}()
}

func (t *terminal) restore() {
	if t.sizes != nil {
		signal.Stop(t.sizes)
		close(t.sizes)
	}
	if t.state != nil {
		_ = term.Restore(t.fd, t.state) // it is gone, or restored
	}
}
