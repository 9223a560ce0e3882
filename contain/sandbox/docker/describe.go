package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
)

// facts are what a container's description depends on beside the spec.
type facts struct {
	init       string
	engine     system.Info
	api        string // the version that is spoken
	volumes    []string
	socket     string
	uid, gid   int
	owner      func(path string) (uid, gid int, err error)
	supervisor string
	// empty is an empty directory that the engine sees, or "".
	empty string
	// mountedBelow tells whether anything is mounted below a directory.
	mountedBelow func(dir string) bool
}

// description is what the engine is asked to make.
type description struct {
	options client.ContainerCreateOptions
	scratch []string
	// shared are the targets below which sockets of the host lead to it.
	shared []string
}

// scratchDirs are writable, of memory, and go with the container.
var scratchDirs = []string{"/tmp", "/var/tmp", "/run"}

const (
	shm = "/dev/shm"
	// maxInodes bound the number of files in a directory of memory.
	maxInodes = 1 << 18
)

// masked are the paths that show or steer the host: the engine's own list
// (moby, daemon/pkg/oci/defaults.go), and what else tells about other programs.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/config.gz", "/proc/driver", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/key-users",
	"/proc/keys", "/proc/kmsg", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware",
}

var readOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// describe makes the request for a container.
func describe(s sandbox.Spec, caps sandbox.Caps, f facts) (*description, error) {
	uid, gid, err := user(s, f)
	if err != nil {
		return nil, err
	}
	d := &description{}
	mounts, targets, err := f.mounts(s, d)
	if err != nil {
		return nil, err
	}
	tmpfs := f.tmpfs(s, caps, targets, uid, gid)
	d.scratch = append(sortedKeys(tmpfs), shm)
	profile, err := seccompProfile()
	if err != nil {
		return nil, err
	}
	security := []string{"no-new-privileges"}
	if hasOption(f.engine, "seccomp") {
		security = append(security, "seccomp="+profile)
	}
	pids, off := caps.PIDs+inside.Threads, false
	d.options = client.ContainerCreateOptions{
		Config: &container.Config{
			Hostname: "cordon", User: fmt.Sprintf("%d:%d", uid, gid), Image: s.Image,
			Entrypoint: []string{inside.Path}, Cmd: []string{inside.Arg}, Env: inside.Environment(), WorkingDir: "/",
			AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true, StdinOnce: true,
			NetworkDisabled: true, Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels: map[string]string{LabelRun: s.ID, labelSupervisor: f.supervisor}, StopSignal: "SIGKILL",
		},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", DNS: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, IpcMode: container.IPCModePrivate, CgroupnsMode: container.CgroupnsModePrivate,
			ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: security, MaskedPaths: masked, ReadonlyPaths: readOnly,
			AutoRemove: true, LogConfig: container.LogConfig{Type: "none"}, Init: &off,
			ShmSize: caps.DiskBytes + inside.ScratchSlack, Tmpfs: tmpfs, Mounts: mounts,
			Resources: container.Resources{
				Memory: caps.MemoryBytes, MemorySwap: caps.MemoryBytes, PidsLimit: &pids,
				NanoCPUs: nanoCPUs(caps.CPUs, f.engine.NCPU),
			},
		},
	}
	return d, nil
}

// nanoCPUs: the engine refuses more than it has, and less than a hundredth.
func nanoCPUs(cpus float64, has int) int64 {
	if has > 0 {
		cpus = min(cpus, float64(has))
	}
	return int64(max(cpus, 0.01) * 1e9)
}

func hasOption(info system.Info, name string) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
		return o == name || slices.Contains(strings.Split(o, ","), "name="+name)
	})
}

// nobody has no files.
const nobody = 65534

// user is whom the program runs as.
func user(s sandbox.Spec, f facts) (uid, gid int, err error) {
	if hasOption(f.engine, "rootless") {
		return 0, 0, nil // which is the user who runs the engine
	}
	if f.uid != 0 {
		return f.uid, f.gid, nil
	}
	for _, m := range s.Mounts {
		if m.Access == sandbox.ReadOnly {
			continue
		}
		return f.owner(m.Source)
	}
	return nobody, nobody, nil
}

func ownerOf(path string) (uid, gid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("docker: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("docker: %s has no owner", path)
	}
	return int(st.Uid), int(st.Gid), nil
}

// engineSockets are never shown, nor what holds them.
var engineSockets = []string{"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock"}

// mounts are the binary inside and what the spec names. It notes in d how
// directories are shown.
func (f facts) mounts(s sandbox.Spec, d *description) (list []mount.Mount, targets []string, err error) {
	bind := func(source, target string, ro bool) mount.Mount {
		o := &mount.BindOptions{Propagation: mount.PropagationRPrivate}
		// Before API 1.44 mounts below a read-only one stay writable: they are
		// not shown then.
		o.NonRecursive = ro && olderThan(f.api, 44)
		return mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: ro, BindOptions: o}
	}
	list = []mount.Mount{bind(f.init, inside.Path, true)}
	for _, m := range s.Mounts {
		if err := checkSource(m, f.socket); err != nil {
			return nil, nil, err
		}
		targets = append(targets, m.Target)
		info, err := os.Stat(m.Source)
		if err != nil {
			return nil, nil, fmt.Errorf("docker: %w", err)
		}
		switch {
		case m.Access == sandbox.Overlay:
			options, err := overlayOptions(m)
			if err != nil {
				return nil, nil, err
			}
			list = append(list, overlay(s.ID, m.Target, options))
		case m.Access == sandbox.ReadOnly && f.canLayer(info, m.Source):
			list = append(list, overlay(s.ID, m.Target, "ro,nosuid,nodev,lowerdir="+m.Source+":"+f.empty+",userxattr"))
		case m.Access == sandbox.ReadOnly && info.Mode()&fs.ModeSocket != 0:
			return nil, nil, &fs.PathError{Op: "docker: show", Path: m.Source, Err: errors.New("it is a socket, which reading is no use of")}
		default:
			if info.IsDir() {
				d.shared = append(d.shared, m.Target)
			}
			list = append(list, bind(m.Source, m.Target, m.Access == sandbox.ReadOnly))
		}
	}
	return list, targets, nil
}

// overlay is a volume that goes with its container.
func overlay(run, target, options string) mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Target: target, VolumeOptions: &mount.VolumeOptions{
		NoCopy: true, Labels: map[string]string{LabelRun: run},
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "overlay", "device": "overlay", "o": options}},
	}}
}

// canLayer tells whether a directory to be read can be shown as the lower
// layer of an overlay with nothing above it: its files are the host's, but its
// sockets are not the ones that daemons of the host listen on, which a
// read-only mount would not keep anybody from connecting to. An overlay needs
// a second layer, shows nothing of other mounts, and its path cannot be quoted.
// The price: a name that the program looked for in vain may stay absent for it
// when the host makes it while it runs.
func (f facts) canLayer(info fs.FileInfo, dir string) bool {
	return info.IsDir() && f.empty != "" && !f.mountedBelow(dir) && !strings.ContainsAny(dir+f.empty, unquotable) && len(dir) < 3000
}

// unquotable is what separates options of a mount, and what the kernel reads
// otherwise than it is written.
const unquotable = ",:\\\"\n"

// checkSource: what is shown is named by its real path, because an agent can
// leave links in a workspace, and is not the way to the engine.
func checkSource(m sandbox.Mount, socket string) error {
	for _, p := range []string{m.Source, m.Upper, m.Work} {
		if p == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return &fs.PathError{Op: "docker: mount", Path: p, Err: errorOf(err)}
		}
		if real != path.Clean(p) {
			return fmt.Errorf("docker: mount of %s, which is or passes through a symbolic link (name the directory that it leads to)", p)
		}
	}
	for _, sock := range append([]string{socket}, engineSockets...) {
		if real, err := filepath.EvalSymlinks(sock); err == nil {
			sock = real
		}
		if sock != "" && inside.Within(sock, m.Source) && isSocket(sock) {
			return fmt.Errorf("docker: mount of %s, which holds the engine's own socket %s (who reaches that is root on the host)", m.Source, sock)
		}
	}
	return nil
}

func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

// errorOf is the kernel's word in an error of a path.
func errorOf(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}

// overlayOptions is what the engine's local driver gives mount(2). It cuts at
// commas and overlayfs at colons, and neither lets them be quoted in all
// versions; all has to fit into a page. With userxattr the kernel keeps its
// marks where the transaction looks for them, and where the program cannot
// forge them.
func overlayOptions(m sandbox.Mount) (string, error) {
	for _, p := range []string{m.Source, m.Upper, m.Work} {
		if !filepath.IsAbs(p) || strings.ContainsAny(p, unquotable) {
			return "", fmt.Errorf("docker: overlay with the directory %q (want an absolute path without comma, colon, quote or backslash; use --runtime native)", p)
		}
	}
	o := fmt.Sprintf("nosuid,nodev,lowerdir=%s,upperdir=%s,workdir=%s,userxattr", m.Source, m.Upper, m.Work)
	if len(o) > 4000 {
		return "", fmt.Errorf("docker: overlay of %.40s…: paths of %d bytes together (want at most 4000)", m.Source, len(o))
	}
	return o, nil
}

// tmpfs are the directories of memory: our own, the image's volumes (which
// would be the host's disk) and a home where there is none.
func (f facts) tmpfs(s sandbox.Spec, caps sandbox.Caps, targets []string, uid, gid int) map[string]string {
	size := fmt.Sprintf("rw,nosuid,nodev,exec,size=%d,nr_inodes=%d", caps.DiskBytes+inside.ScratchSlack, min(max(caps.DiskBytes/4096, 1024), maxInodes))
	own := fmt.Sprintf(",uid=%d,gid=%d", uid, gid)
	dirs := map[string]string{}
	for _, dir := range scratchDirs {
		dirs[dir] = size + ",mode=1777"
	}
	dirs["/run"] = size + ",mode=755" + own
	for _, v := range f.volumes {
		if v = path.Clean("/" + v); v != "/" {
			dirs[v] = size + ",mode=755" + own
		}
	}
	if h := home(s.Env); h != "" {
		covered := func(dir string) bool { return inside.Within(h, dir) }
		system := []string{"/proc", "/sys", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt"}
		if !slices.ContainsFunc(targets, covered) && !slices.ContainsFunc(system, covered) && !slices.ContainsFunc(sortedKeys(dirs), covered) {
			dirs[h] = size + ",mode=700" + own
		}
	}
	for _, t := range targets {
		delete(dirs, t)
	}
	return dirs
}

// home is the last HOME of env, or "" when there is none to make.
func home(env []string) string {
	h := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "HOME="); ok {
			h = v
		}
	}
	if !path.IsAbs(h) || path.Clean(h) == "/" || strings.ContainsAny(h, ":,\n") {
		return ""
	}
	return path.Clean(h)
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// olderThan tells whether an API version is below 1.minor.
func olderThan(version string, minor int) bool {
	major, rest, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(rest)
	return major != "1" || err != nil || n < minor
}

// controls are the walls as they stand: by what the engine says it can hold,
// and by what the first process sees inside. own are the supervisor's
// namespaces, or nil where the engine's kernel is another.
func controls(s sandbox.Spec, shared []string, engine system.Info, seen inside.Seen, own map[string]string) []sandbox.Held {
	var held []sandbox.Held
	hold := func(c sandbox.Control, ok bool, otherwise sandbox.State, why string) {
		h := sandbox.Held{Control: c, State: sandbox.Enforced}
		if !ok {
			h.State, h.Note = otherwise, why
		}
		held = append(held, h)
	}
	for c, name := range map[sandbox.Control]string{
		sandbox.MountNS: "mnt", sandbox.PIDNS: "pid", sandbox.IPCNS: "ipc", sandbox.UTSNS: "uts", sandbox.CgroupNS: "cgroup",
	} {
		hold(c, seen.Namespaces[name] != "" && seen.Namespaces[name] != own[name], sandbox.Absent, "the container is in the host's")
	}
	ownNet := seen.Namespaces["net"] != "" && seen.Namespaces["net"] != own["net"]
	hold(sandbox.NetNS, ownNet && seen.Devices <= 1, sandbox.Absent, fmt.Sprintf("the container is in the host's, or has more than loopback (%d devices)", seen.Devices))
	hold(sandbox.UserNS, seen.Namespaces["user"] != "" && seen.Namespaces["user"] != own["user"] && (hasOption(engine, "userns") || hasOption(engine, "rootless")),
		sandbox.Absent, "the engine maps no users (dockerd --userns-remap=default, or a rootless engine, does)")
	hold(sandbox.PrivateFS, true, 0, "")
	if len(shared) > 0 {
		// A mount, read-only or not, keeps nobody from a socket's other end.
		held[len(held)-1].Note = "sockets below " + strings.Join(shared, ", ") + " can be connected to"
	}
	if slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Access == sandbox.Overlay }) {
		hold(sandbox.OverlayFS, true, 0, "")
	}
	hold(sandbox.NoNewPrivs, seen.NoNewPrivs, sandbox.Absent, "the first process could gain privileges")
	hold(sandbox.NoCaps, seen.NoCaps, sandbox.Absent, "the first process has capabilities")
	hold(sandbox.Seccomp, seen.Filter, sandbox.Absent, "no filter was loaded")
	if !hasOption(engine, "seccomp") {
		held[len(held)-1].Note = "by the first process alone: the engine has no seccomp"
	}
	hold(sandbox.Landlock, seen.Landlock > 0, sandbox.Absent, "this kernel has no Landlock of version 2 or later, or it is switched off")
	if seen.Landlock > 0 {
		held[len(held)-1].Note = fmt.Sprintf("ABI %d", seen.Landlock)
	}
	hold(sandbox.MemoryCap, engine.MemoryLimit, sandbox.Absent, "the engine cannot limit memory here")
	hold(sandbox.NoSwap, engine.SwapLimit, sandbox.Absent, "the engine cannot limit swap here")
	if !engine.SwapLimit && swapless() && own != nil {
		held[len(held)-1] = sandbox.Held{Control: sandbox.NoSwap, State: sandbox.Enforced, Note: "the host has no swap"}
	}
	hold(sandbox.PIDsCap, engine.PidsLimit, sandbox.Absent, "the engine cannot limit processes here")
	hold(sandbox.CPUCap, engine.CPUCfsQuota, sandbox.Absent, "the engine cannot limit processors here")
	writable := slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Access == sandbox.ReadWrite })
	hold(sandbox.DiskCap, !writable, sandbox.Degraded, "directories of the host that were mounted writable are bounded by the size of single files only")
	hold(sandbox.WallCap, true, 0, "")
	hold(sandbox.KernelWall, false, sandbox.Absent, "the host's kernel is shared")
	slices.SortStableFunc(held, func(a, b sandbox.Held) int { return strings.Compare(string(a.Control), string(b.Control)) })
	return held
}

func swapless() bool {
	text, err := os.ReadFile("/proc/swaps")
	return err == nil && strings.Count(string(text), "\n") <= 1
}
