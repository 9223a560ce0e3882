// Package native runs a program behind walls that this machine's own Linux
// kernel builds: namespaces of users, mounts, processes, network, IPC, names
// and cgroups; a private root with the system read-only and everything else
// absent; cgroups for memory, processes and processors; Landlock, a
// default-deny seccomp filter, no capabilities, no new privileges.
//
// It guarantees that what Result.Controls calls enforced stood before the
// program's first instruction; that nothing of the host's environment or
// descriptors is inherited; that the whole tree dies with PID 1 of its
// namespace, with Kill, and with the supervisor even when that is killed by
// SIGKILL; and that nothing of a run (mounts, cgroups, directories) is left.
//
// What it does not stop: an attack on the kernel itself, which all sandboxes
// of this runtime share; reading what the mounts show, the host's programs
// under /usr among it; side channels between processes of one machine; and
// use of the caps to the full. Files behind a ReadWrite mount are the host's
// own: the disk cap does not count them.
//
// The walls are built by this very binary, started again as PID 1 inside:
// the program's main must call Main before anything else.
package native

// Name is what --runtime takes.
const Name = "native"

// Config is where the runtime keeps its things.
type Config struct {
	// StateDir is an absolute directory that agents cannot reach, made if it
	// is absent. Empty: a temporary one that Close removes.
	StateDir string
}
