package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/google/go-cmp/cmp"
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
		want        Site
	}{
		{"v1 beside an empty v2, below our own groups", v1Mounts, v1Own, all,
			Site{Legacy: true, Memory: "/sys/fs/cgroup/memory/job", PIDs: "/sys/fs/cgroup/pids/user", CPU: "/sys/fs/cgroup/cpu,cpuacct", CPUAcct: "/sys/fs/cgroup/cpu,cpuacct"}},
		{"v1 where one controller is read-only", v1Mounts, v1Own, func(dir string, _ bool, c string) string {
			if c == "memory" {
				return "read-only file system"
			}
			return ""
		}, Site{Legacy: true, NoMemory: "read-only file system", PIDs: "/sys/fs/cgroup/pids/user", CPU: "/sys/fs/cgroup/cpu,cpuacct", CPUAcct: "/sys/fs/cgroup/cpu,cpuacct"}},
		{"v2 beside our own group, which has processes", v2Mounts, v2Own, func(dir string, _ bool, c string) string {
			if dir == app {
				return ""
			}
			return "device or resource busy"
		}, Site{v2: true, Memory: app, PIDs: app, CPU: app}},
		{"v2 where cpu is not delegated", v2Mounts, v2Own, func(dir string, _ bool, c string) string {
			if dir == app && c != "cpu" {
				return ""
			}
			return "not delegated"
		}, Site{v2: true, Memory: app, PIDs: app, NoCPU: "not delegated"}},
		{"v2 with nothing delegated", v2Mounts, v2Own, func(string, bool, string) string { return "no" },
			Site{NoMemory: "no", NoPIDs: "no", NoCPU: "no"}},
		{"v2 seen from another cgroup namespace", v2Mounts, "0::/../other\n", all, Site{NoMemory: NoGroups, NoPIDs: NoGroups, NoCPU: NoGroups}},
		{"no hierarchy at all", "22 27 0:21 / /proc rw - proc proc rw\n", "", all, Site{NoMemory: NoGroups, NoPIDs: NoGroups, NoCPU: NoGroups}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := placesFor(parseCgroupMounts(row.mounts), parseOwnGroups(row.own), row.usable)
			if diff := cmp.Diff(row.want, *got, cmp.AllowUnexported(Site{})); diff != "" {
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
	g := &Group{site: &Site{v2: true}}
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
	g.Memory, g.PIDs = dir, dir
	for name, text := range map[string]string{"memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1\n", "memory.peak": "77\n", "memory.current": "66\n",
		"cpu.stat": "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := sandbox.Stats{CPU: 3_000_000, MemoryBytes: 66, PeakBytes: 77}
	if got := g.Stats(); got != want || g.OOMKills() != 2 {
		t.Errorf("%+v, %d kills, want %+v", got, g.OOMKills(), want)
	}
}

func TestSwapWithoutAccountingIsNotCalledHeld(t *testing.T) {
	for swapless, want := range map[bool]sandbox.State{true: sandbox.Enforced, false: sandbox.Absent} {
		g := &Group{site: &Site{swapless: swapless}}
		if err := g.capMemory(fakeV2(t, "memory.limit_in_bytes"), 1<<20); err != nil {
			t.Fatal(err)
		}
		if g.noSwap.State != want {
			t.Errorf("swapless %v: %+v", swapless, g.noSwap)
		}
	}
}
