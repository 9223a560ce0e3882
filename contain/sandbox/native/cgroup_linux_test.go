package native

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	v1Mounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	v1Own    = "9:name=systemd:/user\n8:pids:/user\n4:memory:/docker/abc/job\n1:cpu,cpuacct:/\n0::/user\n"
	v2Mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v2Own    = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n"
)

func TestThePlaceForGroupsIsFound(t *testing.T) {
	all := func(string, bool, string) string { return "" }
	app := "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice"
	for _, row := range []struct {
		name        string
		mounts, own string
		usable      func(dir string, v2 bool, controller string) string
		want        cgroups
	}{
		{"v1 beside an empty v2, below our own groups", v1Mounts, v1Own, all,
			cgroups{memory: "/sys/fs/cgroup/memory/job", pids: "/sys/fs/cgroup/pids/user", cpu: "/sys/fs/cgroup/cpu,cpuacct", cpuacct: "/sys/fs/cgroup/cpu,cpuacct"}},
		{"v1 where one controller is read-only", v1Mounts, v1Own, func(dir string, _ bool, c string) string {
			if c == "memory" {
				return "read-only file system"
			}
			return ""
		}, cgroups{noMemory: "read-only file system", pids: "/sys/fs/cgroup/pids/user", cpu: "/sys/fs/cgroup/cpu,cpuacct", cpuacct: "/sys/fs/cgroup/cpu,cpuacct"}},
		{"v2 beside our own group, which has processes", v2Mounts, v2Own, func(dir string, _ bool, c string) string {
			if dir == app {
				return ""
			}
			return "device or resource busy"
		}, cgroups{v2: true, memory: app, pids: app, cpu: app}},
		{"v2 where cpu is not delegated", v2Mounts, v2Own, func(dir string, _ bool, c string) string {
			if dir == app && c != "cpu" {
				return ""
			}
			return "not delegated"
		}, cgroups{v2: true, memory: app, pids: app, noCPU: "not delegated"}},
		{"v2 with nothing delegated", v2Mounts, v2Own, func(string, bool, string) string { return "no" },
			cgroups{noMemory: "no", noPIDs: "no", noCPU: "no"}},
		{"v2 seen from another cgroup namespace", v2Mounts, "0::/../other\n", all, cgroups{noMemory: noGroups, noPIDs: noGroups, noCPU: noGroups}},
		{"no hierarchy at all", "22 27 0:21 / /proc rw - proc proc rw\n", "", all, cgroups{noMemory: noGroups, noPIDs: noGroups, noCPU: noGroups}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := placesFor(parseCgroupMounts(row.mounts), parseOwnGroups(row.own), row.usable)
			if diff := cmp.Diff(row.want, *got, cmp.AllowUnexported(cgroups{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// fakeV2 is a directory with the files that the kernel would make.
func fakeV2(t *testing.T, files ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCapsOfV2AreWrittenAndRead(t *testing.T) {
	dir := fakeV2(t, "memory.max", "memory.swap.max", "memory.oom.group", "cpu.max")
	g := &group{site: &cgroups{v2: true}}
	if err := g.capMemory(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := g.site.capCPU(dir, 0.5); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "memory.oom.group": "1", "cpu.max": "50000 100000"} {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	g.memory, g.pids = dir, dir
	for name, text := range map[string]string{"memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1\n", "memory.peak": "77\n", "memory.current": "66\n",
		"cpu.stat": "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := sandbox.Stats{CPU: 3_000_000, MemoryBytes: 66, PeakBytes: 77}
	if got := g.stats(); got != want || g.oomKills() != 2 {
		t.Errorf("%+v, %d kills, want %+v", got, g.oomKills(), want)
	}
}

func TestSwapWithoutAccountingIsNotCalledHeld(t *testing.T) {
	for swapless, want := range map[bool]sandbox.State{true: sandbox.Enforced, false: sandbox.Absent} {
		g := &group{site: &cgroups{swapless: swapless}}
		if err := g.capMemory(fakeV2(t, "memory.limit_in_bytes"), 1<<20); err != nil {
			t.Fatal(err)
		}
		if g.noSwap.State != want {
			t.Errorf("swapless %v: %+v", swapless, g.noSwap)
		}
	}
}

func TestUsageCountsWhatIsThereAndFollowsNoLink(t *testing.T) {
	top, outside := t.TempDir(), t.TempDir()
	big := make([]byte, 1<<20)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside+"/big", big, 0o600))
	must(os.MkdirAll(top+"/a/b", 0o700))
	must(os.Symlink(outside, top+"/a/out"))
	must(os.WriteFile(top+"/a/b/one", big, 0o600))
	must(os.Link(top+"/a/b/one", top+"/a/two"))
	must(os.WriteFile(top+"/empty", nil, 0o600))
	sparse, err := os.Create(top + "/sparse")
	must(err)
	must(sparse.Truncate(1 << 30))
	must(sparse.Close())
	u := usage{limit: 1 << 40, linked: map[inode]struct{}{}}
	u.tree(top)
	// The directories a and b, the link, an empty and a sparse file.
	if least, most := int64(1<<20+5*minFileBytes), int64(1<<20+8*minFileBytes); u.bytes < least || u.bytes > most {
		t.Errorf("%d bytes, want %d to %d", u.bytes, least, most)
	}
}

func TestUsageOfDeepTrees(t *testing.T) {
	for _, c := range []struct {
		name    string
		depth   int
		tooMuch bool
	}{
		{"longer than the kernel takes as one path", 40, false},
		{"deeper than can be committed is too much", 80, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			t.Chdir(top)
			name := strings.Repeat("d", 250)
			for range c.depth {
				if err := os.Mkdir(name, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chdir(name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile("end", make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			u := usage{limit: 1 << 40, linked: map[inode]struct{}{}}
			u.tree(top)
			if tooMuch := u.bytes > u.limit; tooMuch != c.tooMuch || u.bytes < 1<<20 {
				t.Errorf("%d bytes", u.bytes)
			}
			if err := os.Chdir("/"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestUsageLooksIntoWhatWasShut(t *testing.T) {
	for name, modes := range map[string][2]os.FileMode{"both": {0o100, 0}, "to be entered, not listed": {0o300, 0o300}, "to be listed, not entered": {0o400, 0o600}} {
		t.Run(name, func(t *testing.T) { lookIntoShut(t, modes[0], modes[1]) })
	}
}

func lookIntoShut(t *testing.T, outerMode, innerMode os.FileMode) {
	top := t.TempDir()
	inner := top + "/shut/inner"
	if err := errors.Join(os.MkdirAll(inner, 0o755), os.WriteFile(inner+"/file", make([]byte, 1<<20), 0)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// The rights of a user, for this thread, which ends with the test.
		const somebody = 29876
		for _, p := range []string{top, top + "/shut", inner} {
			if err := os.Chown(p, somebody, somebody); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Dir(top), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Setfsuid(0) })
		runtime.LockOSThread()
		if err := unix.Setfsuid(somebody); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(inner, innerMode), os.Chmod(top+"/shut", outerMode)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(top+"/shut", 0o700)
	if _, err := os.ReadDir(inner); !errors.Is(err, os.ErrPermission) {
		t.Fatal("it is not shut: ", err)
	}
	u := usage{limit: 1 << 40, linked: map[inode]struct{}{}}
	u.tree(top)
	if u.bytes < 1<<20 || u.bytes > u.limit {
		t.Errorf("%d bytes", u.bytes)
	}
	var st unix.Stat_t
	if err := unix.Lstat(top+"/shut", &st); err != nil || os.FileMode(st.Mode&0o7777) != outerMode {
		t.Errorf("mode %o, %v: it is not as it was", st.Mode, err)
	}
	if err := errors.Join(os.Chmod(top+"/shut", 0o700), unix.Lstat(inner, &st)); err != nil || os.FileMode(st.Mode&0o7777) != innerMode {
		t.Errorf("mode %o, %v: it is not as it was", st.Mode, err)
	}
	_ = os.Chmod(inner, 0o700)
}

func TestMountsAreSortedAndSystemDirectoriesAreNotShownTwice(t *testing.T) {
	got, err := sortMounts([]sandbox.Mount{
		{Source: "/h/ws/.git", Target: "/h/ws/.git/"}, {Source: "/usr", Target: "/usr"}, {Source: "/bin", Target: "/bin"},
		{Source: "/h/x", Target: "/usr/local/x"}, {Source: "/h", Target: "/h", Access: sandbox.ReadWrite}, {Source: "/opt", Target: "/opt", Access: sandbox.ReadWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range got {
		targets = append(targets, m.Target)
	}
	if want := []string{"/h", "/opt", "/h/ws/.git", "/usr/local/x"}; !slices.Equal(targets, want) {
		t.Errorf("%v, want %v", targets, want)
	}
}
