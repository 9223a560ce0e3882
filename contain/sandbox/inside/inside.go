// Package inside is what the runtimes share whose walls another program
// builds (dockerd, runsc): the first process inside a sandbox (Main), the
// wire between it and its supervisor, and the supervisor's half of a run
// (Launch).
//
// The first process is this very binary, shown at Path. It talks with the
// supervisor over its own standard input and output alone, so that no socket
// and no directory of the host is needed inside, and so that it can be one
// kernel, one virtual machine or one network away. Over that wire go the
// plan, the program's three streams, each connection to an address that is
// listened on inside, and what became of the program.
//
// It guarantees that the program gets exactly the plan's environment and
// three descriptors; that it is held to the same system calls as under the
// native runtime, whatever filter the runtime's own program loads; that it
// ends, with all that is inside, when the supervisor is gone; and that what
// comes over the wire can cost the supervisor no more than a bounded amount
// of memory and the run: who breaks the protocol is killed.
//
// What it does not stop: the program and the first process have one user ID.
// Where a kernel lets one process write to another's descriptors (Linux does
// not: the first process is not dumpable) the program could claim another
// exit code than its own, or that its output ended early. It cannot claim a
// control: those are told before it starts.
package inside

import "github.com/cordon-sandbox/cordon/contain/sandbox"

// Path is where a runtime shows this binary inside, read-only, and what it
// starts with the one argument Arg.
const (
	Path = "/.cordon-init"
	Arg  = "init"
)

// Environment is that of the first process, not of the program: the Go
// runtime must not need threads that a full pids cap would deny it.
func Environment() []string { return []string{"GOMAXPROCS=2", "GOTRACEBACK=none"} }

// Threads are the tasks of the first process itself, which come on top of the
// cap of processes.
const Threads = 16

// ScratchSlack is how much larger than the disk cap each directory of memory
// is: who fills one has to be seen over the cap.
const ScratchSlack = 4 << 20

// plan is what the supervisor tells the first process.
type plan struct {
	Argv, Env []string
	Dir       string
	// Limits are rlimits; zero leaves one as it is.
	FileBytes, OpenFiles int64
	// Listen are the addresses to listen on; a connection names its index.
	Listen     []string
	TTY        bool
	Rows, Cols uint16
	// Scratch are the writable directories of memory, to be measured;
	// Writable what else may be written to.
	Scratch, Writable []string
	// Proof is shown with events of kind "use" and "exit".
	Proof string
}

// event is what the first process tells the supervisor.
type event struct {
	// Kind is "ready", "error", "use" or "exit".
	Kind  string
	Proof string `json:",omitempty"`
	// Step is what failed, Error how, of kind "error".
	Step, Error string `json:",omitempty"`
	// Errno of that, where the kernel gave one.
	Errno int `json:",omitempty"`
	// Seen, of kind "ready".
	Seen *Seen `json:",omitempty"`
	// ScratchBytes is what the directories of memory hold; OOMKills what the
	// kernel has killed for want of memory; Stats what our cgroup tells, where
	// it is shown. Of kind "use" and "exit".
	ScratchBytes, OOMKills int64         `json:",omitempty"`
	Stats                  sandbox.Stats `json:",omitzero"`
	// Code and Signal of kind "exit"; User and System in nanoseconds.
	Code, Signal int   `json:",omitempty"`
	User, System int64 `json:",omitempty"`
}

// Seen is what the first process finds around it before the program starts.
type Seen struct {
	// Namespaces are the links of /proc/self/ns by their names.
	Namespaces map[string]string
	// NoNewPrivs and NoCaps are the kernel's own word; Filter is that the
	// filter of system calls was loaded.
	NoNewPrivs, NoCaps, Filter bool
	// Devices is the number of network devices, loopback among them.
	Devices int
	// Landlock is the version of it that is in force, or 0.
	Landlock int
}
