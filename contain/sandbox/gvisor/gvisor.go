// Package gvisor runs a program under gVisor's runsc: a kernel of its own in
// user space answers its system calls, so that it does not talk to the
// host's. What it is shown is what the native runtime shows: the system's
// programs (or the Spec's Rootfs) read-only, the workspace as an overlay,
// temporary directories of memory, no network.
//
// It guarantees that what Result.Controls calls enforced stood before the
// program's first instruction; that runsc and all of its helpers live in
// namespaces that are the run's own (processes, mounts, network, IPC, names)
// and so end with Kill and with the supervisor, even when that is killed by
// SIGKILL; and that no mount of a run is ever seen in the host's namespace, so
// that nothing has to be unmounted after a crash.
//
// What it does not stop: an attack that leads through gVisor's own kernel and
// then through the host's, of which the former may call only a few; side
// channels; use of the caps to the full. Files behind a ReadWrite mount are
// the host's own: the disk cap does not count them. The process cap is one of
// the host's tasks, which gVisor needs one of for each of the program's and
// some for itself: who reaches it ends the run. System calls that this
// version of gVisor does not have fail as on an old kernel.
//
// It needs Linux, root (runsc makes devices, mounts and namespaces), the
// program runsc, and nothing else: the platform is KVM where it works here,
// else what this runsc calls its default without it (systrap, or ptrace).
//
// Two of the processes of a run are this very binary: the program's main must
// call Main and inside.Main before anything else.
package gvisor

// Name is what --runtime takes.
const Name = "gvisor"

// Config says which runsc to use, and where.
type Config struct {
	// StateDir is an absolute directory that agents cannot reach, made with
	// mode 0700 if it is absent. Empty: a temporary one that Close removes.
	StateDir string
	// Runsc is the path or name of the program; empty is "runsc".
	Runsc string
	// Platform is "kvm", "systrap" or "ptrace"; empty is the best that works.
	Platform string
	// Init is the path of the binary that becomes the first process inside: a
	// static Linux program whose main calls inside.Main. Empty is this binary.
	Init string
}
