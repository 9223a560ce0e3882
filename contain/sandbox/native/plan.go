//go:build linux

package native

import "github.com/cordon-sandbox/cordon/contain/sandbox"

// plan is what the parent tells the stage inside, as JSON over a pipe whose
// other end stays open for as long as the parent lives.
type plan struct {
	Argv, Env []string
	// Dir is the working directory inside; Home is made there, unless it is
	// empty or a mount shows it.
	Dir, Home string
	// Root is an empty directory of the host that the new root is mounted on.
	Root string
	// Mounts are sorted, outer ones first.
	Mounts []sandbox.Mount
	// TmpBytes bounds all temporary directories together.
	TmpBytes   int64
	Limits     limits
	Listen     []string
	TTY        bool
	Rows, Cols uint16
	// Held are the controls that the parent has set up, Require those that
	// must stand before the program starts.
	Held    held
	Require []sandbox.Control
	// DropGroups: the host's supplementary groups can be and are left.
	DropGroups bool
}

// limits are rlimits; zero leaves one as it is.
type limits struct {
	FileBytes, OpenFiles, PIDs, DataBytes, CPUSeconds int64
}

// event is what the stage tells the parent, one JSON object a line.
type event struct {
	// Kind is "ready", "missing", "error" or "exit".
	Kind string
	// Error of kind "error"; Step is what failed, Errno the kernel's word.
	Step, Error string
	Errno       int
	// Code and Signal of kind "exit".
	Code, Signal int
	// Held are all controls as they stand, of kind "ready".
	Held held
	// Missing controls, of kind "missing".
	Missing []sandbox.Control
}

// The descriptors of the stage, beside 0 to 2.
const (
	fdPlan = 3 + iota
	fdStatus
	fdSocket
)

// What the stage hands out over the socket besides listeners, whose message
// is their address.
const (
	sentTmp = "tmp"
	sentTTY = "tty"
)

// stageName is argv[0] of the stage; a user's command line cannot have it.
const stageName = "cordon-sandbox-stage"

// initThreads are the tasks of PID 1 itself, which come on top of the cap.
const initThreads = 12

// held is a list of controls on the wire: their states are numbers there.
type held []struct {
	Control sandbox.Control
	State   uint8
	Note    string
}

func toWire(list []sandbox.Held) held {
	w := make(held, len(list))
	for i, h := range list {
		w[i].Control, w[i].State, w[i].Note = h.Control, uint8(h.State), h.Note
	}
	return w
}

func (w held) controls() []sandbox.Held {
	list := make([]sandbox.Held, len(w))
	for i, h := range w {
		list[i] = sandbox.Held{Control: h.Control, State: sandbox.State(min(h.State, uint8(sandbox.Enforced))), Note: h.Note}
	}
	return list
}
