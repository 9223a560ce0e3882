package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// description is a bundle, and what has to be mounted for it first.
type description struct {
	spec    specs.Spec
	root    rootPlan
	scratch []string
}

// scratchDirs are writable, of memory, and go with the sandbox.
var scratchDirs = []string{"/tmp", "/var/tmp", "/run", "/dev/shm"}

// devices is of memory as well, and writable for root: it is measured.
const devices = "/dev"

// Names below a run's directory.
const (
	rootDir   = "root"   // becomes the root inside
	mountsDir = "mounts" // what is mounted there, each by its number
	stateDir  = "state"  // runsc's own
	wireID    = "run"    // the container's name, in a state directory of its own
)

// nobody has no files.
const nobody = 65534

// describe makes the bundle. Paths of the host in it are relative to the
// bundle.
func describe(s sandbox.Spec, caps sandbox.Caps, init string, owner func(string) (uid, gid int, err error)) (*description, error) {
	uid, gid := nobody, nobody
	if i := slices.IndexFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Access != sandbox.ReadOnly }); i >= 0 {
		var err error
		if uid, gid, err = owner(s.Mounts[i].Source); err != nil {
			return nil, err
		}
	}
	d := &description{root: rootPlan{Rootfs: s.Rootfs, Init: init, Mounts: s.Mounts, UID: uid, GID: gid}}
	size := fmt.Sprintf("size=%d", caps.DiskBytes+inside.ScratchSlack)
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "nodev", "noexec"}},
		// Not read-only: this kernel then refuses to write to /dev/null too.
		{Destination: devices, Type: "devtmpfs", Source: "none", Options: []string{"nosuid", "noexec"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec"}},
	}
	tmpfs := func(dir, mode string) {
		if slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Target == dir }) {
			return
		}
		d.scratch = append(d.scratch, dir)
		o := []string{"nosuid", "nodev", size, "mode=" + mode}
		if mode != "1777" {
			o = append(o, fmt.Sprintf("uid=%d", uid), fmt.Sprintf("gid=%d", gid))
		}
		mounts = append(mounts, specs.Mount{Destination: dir, Type: "tmpfs", Source: "tmpfs", Options: o})
	}
	for _, dir := range scratchDirs {
		mode := "1777"
		if dir == "/run" {
			mode = "0755"
		}
		tmpfs(dir, mode)
	}
	if h := home(s); h != "" {
		tmpfs(h, "0700")
	}
	d.root.Places = slices.Clone(d.scratch)
	d.scratch = append(d.scratch, devices)
	for i, m := range s.Mounts {
		access := "rw"
		if m.Access == sandbox.ReadOnly {
			access = "ro"
		}
		mounts = append(mounts, specs.Mount{Destination: m.Target, Type: "bind", Source: fmt.Sprintf("%s/%d", mountsDir, i),
			Options: []string{"rbind", access, "nosuid", "nodev"}})
	}
	d.spec = specs.Spec{
		Version: "1.0.2", Hostname: "cordon", Mounts: mounts,
		Root: &specs.Root{Path: rootDir, Readonly: true},
		Process: &specs.Process{
			User: specs.User{UID: uint32(uid), GID: uint32(gid)}, Args: []string{inside.Path, inside.Arg}, Env: inside.Environment(), Cwd: "/",
			NoNewPrivileges: true, Capabilities: &specs.LinuxCapabilities{},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
		}},
	}
	return d, nil
}

// home is the last HOME of env, or "" when there is none to make: the
// sandbox has it, or a mount shows it.
func home(s sandbox.Spec) string {
	h := ""
	for _, e := range s.Env {
		if v, ok := strings.CutPrefix(e, "HOME="); ok {
			h = v
		}
	}
	if !path.IsAbs(h) || path.Clean(h) == "/" {
		return ""
	}
	h = path.Clean(h)
	taken := append(append([]string{"/proc", "/sys", "/dev", "/etc"}, systemDirs...), scratchDirs...)
	for _, m := range s.Mounts {
		taken = append(taken, m.Target)
	}
	if slices.ContainsFunc(taken, func(dir string) bool { return inside.Within(h, dir) }) {
		return ""
	}
	return h
}

// controls are the walls as they stand.
func controls(s sandbox.Spec, g *cgroup.Group, platform string, seen inside.Seen) []sandbox.Held {
	const own = "of the sandbox's own kernel, and of the host's around it"
	held := []sandbox.Held{
		{Control: sandbox.UserNS, State: sandbox.Enforced, Note: "of the sandbox's own kernel"},
		{Control: sandbox.MountNS, State: sandbox.Enforced, Note: own},
		{Control: sandbox.PIDNS, State: sandbox.Enforced, Note: own},
		{Control: sandbox.IPCNS, State: sandbox.Enforced, Note: own},
		{Control: sandbox.UTSNS, State: sandbox.Enforced, Note: own},
		{Control: sandbox.CgroupNS, State: sandbox.Enforced, Note: "the sandbox's own kernel shows no cgroups"},
		{Control: sandbox.PrivateFS, State: sandbox.Enforced},
		{Control: sandbox.Landlock, Note: "the sandbox's own kernel has none"},
		{Control: sandbox.WallCap, State: sandbox.Enforced},
		{Control: sandbox.KernelWall, State: sandbox.Enforced, Note: platformNote(platform, "/dev/kvm")},
	}
	hold := func(c sandbox.Control, ok bool, why string) {
		h := sandbox.Held{Control: c, State: sandbox.Enforced}
		if !ok {
			h.State, h.Note = sandbox.Absent, why
		}
		held = append(held, h)
	}
	hold(sandbox.NetNS, seen.Devices == 1, fmt.Sprintf("%d network devices instead of loopback alone", seen.Devices))
	hold(sandbox.NoNewPrivs, seen.NoNewPrivs, "the first process could gain privileges")
	hold(sandbox.NoCaps, seen.NoCaps, "the first process has capabilities")
	hold(sandbox.Seccomp, seen.Filter, "no filter was loaded")
	if slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Access == sandbox.Overlay }) {
		hold(sandbox.OverlayFS, true, "")
	}
	disk := sandbox.Held{Control: sandbox.DiskCap, State: sandbox.Enforced}
	if slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Access == sandbox.ReadWrite }) {
		disk.State, disk.Note = sandbox.Degraded, "directories of the host that were mounted writable are bounded by the size of single files only"
	}
	return append(append(held, disk), groupHeld(g)...)
}

// platformNote names the platform, and what stands against the fastest.
func platformNote(platform, kvm string) string {
	note := "gVisor on " + platform
	if platform == "kvm" {
		return note
	}
	f, err := os.OpenFile(kvm, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return note + " (there is a " + kvm + ", but this runsc does not run on it here)"
	case errors.Is(err, fs.ErrNotExist):
		return note + " (there is no " + kvm + ", on which it would be faster)"
	}
	return note + " (" + kvm + ", on which it would be faster, cannot be opened: " + err.Error() + ")"
}

// ownTasks are those of runsc, its gofer and the sandbox's own kernel, which
// come on top of the cap.
const ownTasks = 160

// groupHeld is what the group bounds.
func groupHeld(g *cgroup.Group) []sandbox.Held {
	state := func(c sandbox.Control, dir, why, note string) sandbox.Held {
		if dir != "" {
			return sandbox.Held{Control: c, State: sandbox.Enforced, Note: note}
		}
		return sandbox.Held{Control: c, State: sandbox.Absent, Note: "no cgroup: " + why}
	}
	return []sandbox.Held{
		state(sandbox.MemoryCap, g.Memory, g.NoMemory, "that of the sandbox's own kernel included"), g.Swap(),
		state(sandbox.PIDsCap, g.PIDs, g.NoPIDs, "who reaches it ends the sandbox"),
		state(sandbox.CPUCap, g.CPU, g.NoCPU, ""),
	}
}
