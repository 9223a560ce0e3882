package docker

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
)

// someFacts are of root, with an engine that can do all.
func someFacts() facts {
	return facts{
		init: "/usr/bin/cordon", api: "1.41", supervisor: "boot/1/2",
		engine: system.Info{NCPU: 4, MemoryLimit: true, SwapLimit: true, PidsLimit: true, CPUCfsQuota: true, SecurityOptions: []string{"name=seccomp,profile=default"}},
		owner:  func(string) (int, int, error) { return 1000, 1001, nil },
		empty:  "/empty", mountedBelow: func(dir string) bool { return strings.HasSuffix(dir, "/mounted") },
	}
}

func someSpec() sandbox.Spec {
	return sandbox.Spec{ID: "run-1", Argv: []string{"true"}, Env: []string{"HOME=/home/agent", "TOKEN=secret"}, Image: "image:1"}
}

func TestAContainerIsAskedForWithAllItsWalls(t *testing.T) {
	caps, _ := sandbox.Caps{MemoryBytes: 1 << 30, CPUs: 1.5, PIDs: 10, DiskBytes: 1 << 20}.WithDefaults()
	f := someFacts()
	f.volumes = []string{"/data", "/"}
	d, err := describe(someSpec(), caps, f)
	if err != nil {
		t.Fatal(err)
	}
	c, h := d.options.Config, d.options.HostConfig
	for what, ok := range map[string]bool{
		"no network":            h.NetworkMode == "none" && c.NetworkDisabled,
		"read-only root":        h.ReadonlyRootfs,
		"no capabilities":       slices.Equal(h.CapDrop, []string{"ALL"}) && len(h.CapAdd) == 0,
		"no new privileges":     slices.Contains(h.SecurityOpt, "no-new-privileges"),
		"our system calls":      slices.ContainsFunc(h.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "seccomp={") }),
		"nobody":                c.User == "65534:65534",
		"memory without swap":   h.Memory == 1<<30 && h.MemorySwap == 1<<30,
		"processors":            h.NanoCPUs == 1_500_000_000,
		"processes":             *h.PidsLimit == 10+inside.Threads,
		"its own IPC":           h.IpcMode == "private",
		"its own cgroups":       h.CgroupnsMode == "private",
		"gone at its end":       h.AutoRemove && h.RestartPolicy.Name == "",
		"no logs":               h.LogConfig.Type == "none",
		"not privileged":        !h.Privileged && h.PidMode == "" && h.UTSMode == "" && len(h.Devices) == 0 && len(h.Binds) == 0,
		"our first process":     slices.Equal(c.Entrypoint, []string{inside.Path}) && slices.Equal(c.Cmd, []string{inside.Arg}),
		"no check of health":    slices.Equal(c.Healthcheck.Test, []string{"NONE"}),
		"input ends with us":    c.OpenStdin && c.StdinOnce,
		"labels":                c.Labels[LabelRun] == "run-1" && c.Labels[labelSupervisor] == "boot/1/2",
		"masked":                slices.Contains(h.MaskedPaths, "/proc/kcore") && slices.Contains(h.ReadonlyPaths, "/proc/sys"),
		"a home of memory":      strings.Contains(h.Tmpfs["/home/agent"], "mode=700,uid=65534"),
		"/tmp of memory":        strings.Contains(h.Tmpfs["/tmp"], "nosuid,nodev,exec,size=5242880,nr_inodes=1024,mode=1777"),
		"volumes of the image":  h.Tmpfs["/data"] != "" && h.Tmpfs["/"] == "",
		"all that is writable":  slices.Equal(d.scratch, []string{"/data", "/home/agent", "/run", "/tmp", "/var/tmp", "/dev/shm"}),
		"only the first mount":  len(h.Mounts) == 1 && h.Mounts[0].Source == "/usr/bin/cordon" && h.Mounts[0].ReadOnly,
		"nothing of the spec's": !slices.Contains(c.Env, "TOKEN=secret"),
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
}

func TestTheProgramRunsAsTheOwnerOfWhatItMayWrite(t *testing.T) {
	dir := real(t, t.TempDir())
	with := func(a sandbox.Access) sandbox.Spec {
		s := someSpec()
		s.Mounts = []sandbox.Mount{{Source: dir, Target: "/a"}, {Source: dir, Target: "/b", Access: a}}
		return s
	}
	rootless := someFacts()
	rootless.engine.SecurityOptions = []string{"name=rootless"}
	plain := someFacts()
	plain.uid, plain.gid = 501, 20
	for _, row := range []struct {
		name  string
		spec  sandbox.Spec
		facts facts
		uid   int
	}{
		{"under root, the owner of the writable mount", with(sandbox.ReadWrite), someFacts(), 1000},
		{"under root, nobody where all is read-only", with(sandbox.ReadOnly), someFacts(), nobody},
		{"under a user, the user", with(sandbox.ReadWrite), plain, 501},
		{"in a rootless engine, its root, who is the user", with(sandbox.ReadWrite), rootless, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			if uid, _, err := user(row.spec, row.facts); uid != row.uid || err != nil {
				t.Errorf("user %d, %v (want %d)", uid, err, row.uid)
			}
		})
	}
}

func real(t *testing.T, dir string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMountsAreAskedForAsTheyAre(t *testing.T) {
	dir := real(t, t.TempDir())
	for _, d := range []string{"src", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := someSpec()
	s.Mounts = []sandbox.Mount{
		{Source: dir + "/src", Target: "/ro"}, {Source: dir + "/src", Target: "/rw", Access: sandbox.ReadWrite},
		{Source: dir + "/src", Target: "/ws", Access: sandbox.Overlay, Upper: dir + "/upper", Work: dir + "/work"},
	}
	plain := someFacts()
	plain.empty = "" // no overlays of what is only read
	var d description
	list, targets, err := plain.mounts(s, &d)
	if diff := cmp.Diff([]string{"/ro", "/rw"}, d.shared); diff != "" {
		t.Errorf("below which sockets lead to the host (-want +got):\n%s", diff)
	}
	if err != nil || len(list) != 4 || !slices.Equal(targets, []string{"/ro", "/rw", "/ws"}) {
		t.Fatalf("%+v, %v, %v", list, targets, err)
	}
	if ro := list[1]; !ro.ReadOnly || !ro.BindOptions.NonRecursive || ro.BindOptions.Propagation != mount.PropagationRPrivate {
		t.Errorf("read-only: %+v", ro)
	}
	if rw := list[2]; rw.ReadOnly || rw.Type != mount.TypeBind {
		t.Errorf("writable: %+v", rw)
	}
	want := map[string]string{"type": "overlay", "device": "overlay",
		"o": "nosuid,nodev,lowerdir=" + dir + "/src,upperdir=" + dir + "/upper,workdir=" + dir + "/work,userxattr"}
	if diff := cmp.Diff(want, list[3].VolumeOptions.DriverConfig.Options); diff != "" || list[3].Type != mount.TypeVolume || !list[3].VolumeOptions.NoCopy {
		t.Errorf("overlay: %+v\n%s", list[3], diff)
	}
	newer := plain
	newer.api = "1.44"
	if list, _, err := newer.mounts(s, &d); err != nil || list[1].BindOptions.NonRecursive {
		t.Errorf("with a newer engine, which makes all below read-only: %+v, %v", list[1].BindOptions, err)
	}
}

func TestADirectoryThatIsReadShowsNoSocketThatADaemonListensOn(t *testing.T) {
	dir := real(t, t.TempDir())
	for _, d := range []string{"plain", "mounted", "with,comma"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, row := range []struct {
		name, source string
		layered      bool
		shared       int
		fails        bool
	}{
		{"a directory is the lower layer of an overlay with none above", "plain", true, 0, false},
		{"what is mounted below one would not be seen", "mounted", false, 1, false},
		{"a path that cannot be quoted", "with,comma", false, 1, false},
		{"a file", "file", false, 0, false},
		{"a socket itself", "sock", false, 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := someSpec()
			s.Mounts = []sandbox.Mount{{Source: filepath.Join(dir, row.source), Target: "/m"}}
			var d description
			list, _, err := someFacts().mounts(s, &d)
			if row.fails || err != nil {
				if !row.fails || err == nil {
					t.Errorf("error %v", err)
				}
				return
			}
			m := list[1]
			if (m.Type == mount.TypeVolume) != row.layered || m.ReadOnly == row.layered || len(d.shared) != row.shared {
				t.Errorf("%+v, shared %v", m, d.shared)
			}
			if want := "ro,nosuid,nodev,lowerdir=" + dir + "/plain:/empty,userxattr"; row.layered && m.VolumeOptions.DriverConfig.Options["o"] != want {
				t.Errorf("options %q (want %q)", m.VolumeOptions.DriverConfig.Options["o"], want)
			}
		})
	}
}

func TestOverlayPathsThatTheKernelWouldReadOtherwiseAreRefused(t *testing.T) {
	for path, ok := range map[string]bool{
		"/w": true, "/w with space": true, "/w=x": true, "/wörk": true,
		"/w,ro": false, "/w:/etc": false, `/w\`: false, `/w"`: false, "/w\n": false, "w": false, "/" + strings.Repeat("long/", 900): false,
	} {
		_, err := overlayOptions(sandbox.Mount{Source: path, Upper: "/u", Work: "/k"})
		if (err == nil) != ok {
			t.Errorf("%.40q: %v", path, err)
		}
	}
}

func TestSourcesThatLeadElsewhereAreRefused(t *testing.T) {
	dir := real(t, t.TempDir())
	if err := errors.Join(os.Mkdir(dir+"/d", 0o755), os.Symlink("d", dir+"/l")); err != nil {
		t.Fatal(err)
	}
	sock := dir + "/d/s"
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, row := range []struct {
		name, source, want string
	}{
		{"a directory", dir + "/l/..", ""},
		{"a link", dir + "/l", "symbolic link"},
		{"what is not there", dir + "/none", "no such file"},
		{"the socket of the engine", sock, "socket"},
		{"a directory that holds it", dir + "/d", "socket"},
		{"all", "/", "socket"},
	} {
		t.Run(row.name, func(t *testing.T) {
			socket := sock
			if row.want == "" {
				socket = "" // the directory holds it too
			}
			err := checkSource(sandbox.Mount{Source: filepath.Clean(row.source)}, socket)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v (want %q)", err, row.want)
			}
		})
	}
}

func TestAnEngineThatDoesNotAnswerIsExplainedByItsSocket(t *testing.T) {
	dir := real(t, t.TempDir())
	mute, err := net.Listen("unix", dir+"/mute")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/dead", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if err := os.Mkdir(dir+"/run", 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := net.Listen("unix", dir+"/run/docker.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, row := range []struct{ name, sock, runtimeDir, why, fix string }{
		{"there is none", dir + "/none", "", "there is no Docker engine", "apt-get install docker.io"},
		{"it has ended", dir + "/dead", "", "no Docker engine listens", "systemctl start docker"},
		{"it listens and is mute", dir + "/mute", "", "does not answer (the client's word)", "systemctl start docker"},
		{"it is elsewhere", "", "", "does not answer (the client's word)", "DOCKER_HOST"},
		{"this user has one", dir + "/none", dir + "/run", "there is no Docker engine", "DOCKER_HOST=unix://" + dir + "/run/docker.sock"},
		{"this user could have one", dir + "/none", dir, "there is no Docker engine", "apt-get install docker.io"},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := noEngine("unix://"+row.sock, row.sock, row.runtimeDir, errors.New("the client's word"))
			if !strings.Contains(e.Why, row.why) || !strings.Contains(e.Fix, row.fix) {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestTheProfileHoldsTheNamesOfTheTable(t *testing.T) {
	names := map[string]bool{}
	files, err := filepath.Glob("../syscalls_linux*.go")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		// Lists of calls that are admitted with any arguments end in "Calls".
		for _, list := range regexp.MustCompile(`(?s)var (\w+) = .*?\n\}`).FindAllStringSubmatch(string(text), -1) {
			if list[1] != "commonCalls" && list[1] != "allowedCalls" {
				continue
			}
			for _, n := range regexp.MustCompile(`SYS_([A-Z0-9_]+)`).FindAllStringSubmatch(list[0], -1) {
				names[strings.ToLower(n[1])] = true
			}
		}
	}
	var want []string
	for n := range names {
		want = append(want, n)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, allowedNames()); diff != "" {
		t.Errorf("the table and the profile differ (-table +profile):\n%s", diff)
	}
}

func TestTheProfileDeniesByDefault(t *testing.T) {
	text, err := seccompProfile()
	if err != nil {
		t.Fatal(err)
	}
	var p profile
	if err := json.Unmarshal([]byte(text), &p); err != nil || p.DefaultAction != errno || p.DefaultErrnoRet != 1 {
		t.Fatalf("%v, %+v", err, p)
	}
	admitted := map[string]bool{}
	for _, r := range p.Syscalls {
		for _, n := range r.Names {
			admitted[n] = admitted[n] || r.Action == allow && len(r.Args) == 0
		}
	}
	for name, want := range map[string]bool{
		"read": true, "openat": true, "execve": true, "clone": false, "clone3": false, "socket": false, "ptrace": false, "bpf": false, "mount": false,
		"keyctl": false, "io_uring_setup": false, "unshare": false, "setns": false, "userfaultfd": false, "process_vm_readv": false, "personality": false,
	} {
		if admitted[name] != want {
			t.Errorf("%s is admitted: %v", name, admitted[name])
		}
	}
}

func TestControlsAreNoMoreThanWhatWasSeen(t *testing.T) {
	inside1 := map[string]string{"mnt": "mnt:[2]", "pid": "pid:[2]", "net": "net:[2]", "ipc": "ipc:[2]", "uts": "uts:[2]", "cgroup": "cgroup:[2]", "user": "user:[1]"}
	outside := map[string]string{"mnt": "mnt:[1]", "pid": "pid:[1]", "net": "net:[1]", "ipc": "ipc:[1]", "uts": "uts:[1]", "cgroup": "cgroup:[1]", "user": "user:[1]"}
	good := inside.Seen{Namespaces: inside1, NoNewPrivs: true, NoCaps: true, Filter: true, Devices: 1, Landlock: 7}
	state := func(seen inside.Seen, engine system.Info, c sandbox.Control) sandbox.State {
		var states []sandbox.State
		for _, h := range controls(someSpec(), nil, engine, seen, outside) {
			if h.Control == c {
				states = append(states, h.State)
			}
		}
		if len(states) != 1 {
			t.Errorf("%s is told %d times", c, len(states))
		}
		return states[0]
	}
	for _, c := range []sandbox.Control{sandbox.MountNS, sandbox.PIDNS, sandbox.NetNS, sandbox.IPCNS, sandbox.UTSNS, sandbox.CgroupNS, sandbox.NoCaps,
		sandbox.NoNewPrivs, sandbox.Seccomp, sandbox.Landlock, sandbox.MemoryCap, sandbox.NoSwap, sandbox.PIDsCap, sandbox.CPUCap, sandbox.DiskCap} {
		if state(good, someFacts().engine, c) != sandbox.Enforced {
			t.Errorf("%s is not held", c)
		}
	}
	for _, c := range []sandbox.Control{sandbox.UserNS, sandbox.KernelWall} {
		if state(good, someFacts().engine, c) != sandbox.Absent {
			t.Errorf("%s is held", c)
		}
	}
	bad := inside.Seen{Namespaces: outside, Devices: 3}
	for _, c := range []sandbox.Control{sandbox.MountNS, sandbox.PIDNS, sandbox.NetNS, sandbox.IPCNS, sandbox.UTSNS, sandbox.CgroupNS, sandbox.NoCaps,
		sandbox.NoNewPrivs, sandbox.Seccomp, sandbox.Landlock} {
		if state(bad, someFacts().engine, c) != sandbox.Absent {
			t.Errorf("%s is claimed", c)
		}
	}
	for _, c := range []sandbox.Control{sandbox.MemoryCap, sandbox.PIDsCap, sandbox.CPUCap} {
		if state(good, system.Info{}, c) != sandbox.Absent {
			t.Errorf("%s is claimed of an engine that cannot hold it", c)
		}
	}
	more := good
	more.Devices = 2
	if state(more, someFacts().engine, sandbox.NetNS) != sandbox.Absent {
		t.Error("a second network device is taken for none")
	}
}

func TestAnEngineThatIsNotThereIsNamedWithTheWayToGetIt(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Binary(Name, "", false); err != nil {
		exe = staticProgram(t) // this test binary is not
	}
	r, err := New(Config{Host: "unix://" + t.TempDir() + "/none.sock", Init: exe})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Start(t.Context(), someSpec())
	var u *sandbox.UnavailableError
	if !errors.As(err, &u) || !strings.Contains(u.Fix, "docker.io") || !strings.Contains(u.Why, "none.sock") {
		t.Errorf("error %v", err)
	}
	if report := r.Probe(t.Context()); report.Available || report.Fix == "" {
		t.Errorf("%+v", report)
	}
	if _, err := r.KillRun(t.Context(), ""); err == nil {
		t.Error("all runs would be killed")
	}
}

// staticProgram is the least that is a Linux program without an interpreter.
func staticProgram(t *testing.T) string {
	t.Helper()
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[16], header[18], header[20], header[52], header[54], header[58] = 2, 62, 1, 64, 56, 64
	path := filepath.Join(real(t, t.TempDir()), "static")
	if err := os.WriteFile(path, header, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestABinaryThatCannotRunInsideIsRefused(t *testing.T) {
	dir := real(t, t.TempDir())
	script, private := dir+"/script", dir+"/private"
	if err := errors.Join(os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755), os.WriteFile(private, nil, 0o700)); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{staticProgram(t): true, script: false, private: false} {
		_, err := inside.Binary(Name, path, false)
		var u *sandbox.UnavailableError
		if (err == nil) != ok || err != nil && !errors.As(err, &u) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestCPUsAreWhatTheEngineTakes(t *testing.T) {
	for _, row := range []struct {
		cpus float64
		has  int
		want int64
	}{{0.5, 4, 5e8}, {8, 4, 4e9}, {0.001, 4, 1e7}, {8, 0, 8e9}} {
		if got := nanoCPUs(row.cpus, row.has); got != row.want {
			t.Errorf("%v of %d: %d (want %d)", row.cpus, row.has, got, row.want)
		}
	}
}

func TestASupervisorIsToldFromALaterOne(t *testing.T) {
	own := supervisor()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system has no /proc: nothing is swept by it")
	}
	for name, want := range map[string]bool{
		own: true, own + "9": false, strings.Replace(own, bootID(), "another-boot", 1): true, bootID() + "/999999999/5": false, "": true, "x/y": true,
	} {
		if got := alive(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
