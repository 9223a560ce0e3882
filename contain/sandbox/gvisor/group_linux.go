package gvisor

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"golang.org/x/sys/unix"
)

// groupPrefix begins the names of our cgroups; the supervisor's process ID
// follows, so that a later one can tell which are left over.
const groupPrefix = "cordon-"

// cgroups are the directories of the host below which groups can be made, per
// controller; "" where none can. v2 keeps all in one.
type cgroups struct {
	v2                         bool
	memory, pids, cpu, cpuacct string
	noMemory, noPIDs, noCPU    string // why not
	swapless                   bool   // the host has no swap
}

// controllerMount is a mounted cgroup hierarchy.
type controllerMount struct {
	dir, root   string
	v2          bool
	controllers []string
}

// findCgroups looks for a place where groups can be made: below our own group,
// so that bounds put on us bound what we run too.
func findCgroups() *cgroups {
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo")
	own, _ := os.ReadFile("/proc/self/cgroup")
	swaps, _ := os.ReadFile("/proc/swaps")
	c := placesFor(parseCgroupMounts(string(mountinfo)), parseOwnGroups(string(own)), canMake)
	c.swapless = strings.Count(string(swaps), "\n") <= 1
	for _, dir := range c.dirs() {
		sweep(dir)
	}
	return c
}

func (c *cgroups) dirs() []string {
	dirs := []string{c.memory, c.pids, c.cpu, c.cpuacct}
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(d string) bool { return d == "" })
}

// parseCgroupMounts reads proc(5) mountinfo.
func parseCgroupMounts(text string) []controllerMount {
	var mounts []controllerMount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f, fs := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(fs) < 3 {
			continue
		}
		switch fs[0] {
		case "cgroup2":
			mounts = append(mounts, controllerMount{dir: f[4], root: f[3], v2: true})
		case "cgroup":
			mounts = append(mounts, controllerMount{dir: f[4], root: f[3], controllers: strings.Split(fs[2], ",")})
		}
	}
	return mounts
}

// parseOwnGroups reads /proc/self/cgroup: the path for each controller, and
// for "" that of v2.
func parseOwnGroups(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			own[name] = parts[2]
		}
	}
	return own
}

// dirOf is where a group is seen below a mount.
func (m controllerMount) dirOf(group string) string {
	if strings.Contains(group, "..") { // outside of our cgroup namespace
		return ""
	}
	if m.root != "/" {
		group = strings.TrimPrefix(group, m.root)
	}
	return filepath.Join(m.dir, group)
}

const noGroups = "no cgroup hierarchy is mounted"

// placesFor chooses directories; usable says why a directory cannot take
// groups, or "".
func placesFor(mounts []controllerMount, own map[string]string, usable func(dir string, v2 bool, controller string) string) *cgroups {
	c := &cgroups{noMemory: noGroups, noPIDs: noGroups, noCPU: noGroups}
	take := func(place, why *string, dir string, v2 bool, controller string) {
		if *place != "" || dir == "" {
			return
		}
		if *why = usable(dir, v2, controller); *why == "" {
			*place = dir
		}
	}
	for _, m := range mounts {
		if m.v2 {
			continue
		}
		for _, name := range m.controllers {
			dir := m.dirOf(own[name])
			switch name {
			case "memory":
				take(&c.memory, &c.noMemory, dir, false, name)
			case "pids":
				take(&c.pids, &c.noPIDs, dir, false, name)
			case "cpu":
				take(&c.cpu, &c.noCPU, dir, false, name)
			case "cpuacct":
				var ignored string
				take(&c.cpuacct, &ignored, dir, false, name)
			}
		}
	}
	if c.memory != "" || c.pids != "" || c.cpu != "" {
		return c
	}
	for _, m := range mounts {
		if m.v2 {
			c.placesV2(m, own[""], usable)
		}
	}
	return c
}

// placesV2 goes from our own group outwards: a group that has processes can
// hand its controllers to no child, but its parent may.
func (c *cgroups) placesV2(m controllerMount, own string, usable func(string, bool, string) string) {
	for dir := m.dirOf(own); dir != "" && inside.Within(dir, m.dir); dir = filepath.Dir(dir) {
		c.noMemory, c.noPIDs, c.noCPU = usable(dir, true, "memory"), usable(dir, true, "pids"), usable(dir, true, "cpu")
		if c.noMemory != "" || c.noPIDs != "" {
			continue
		}
		c.v2, c.memory, c.pids = true, dir, dir
		if c.noCPU == "" {
			c.cpu = dir
		}
		return
	}
}

// canMake looks whether a group with a controller can be made in dir; of v2 it
// tries for real.
func canMake(dir string, v2 bool, controller string) string {
	if v2 {
		enabled, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			return err.Error()
		}
		if !slices.Contains(strings.Fields(string(enabled)), controller) {
			if err := writeFile(dir, "cgroup.subtree_control", "+"+controller); err != nil {
				return fmt.Sprintf("the %s controller is not delegated: %v", controller, err)
			}
		}
	}
	if !v2 {
		// A group takes its time to make and to remove, at each start. Where the
		// directory may be written and still takes none, enter says so.
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return err.Error()
		}
		return ""
	}
	trial := filepath.Join(dir, groupName())
	if err := os.Mkdir(trial, 0o755); err != nil {
		return err.Error()
	}
	if err := os.Remove(trial); err != nil {
		return err.Error()
	}
	return ""
}

func groupName() string {
	return fmt.Sprintf("%s%d-%s", groupPrefix, os.Getpid(), strings.ToLower(rand.Text()[:10]))
}

// sweep removes groups whose supervisor was killed. The kernel refuses to
// remove one in which a process lives.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), groupPrefix)
		pid, _, _ := strings.Cut(rest, "-")
		if n, err := strconv.Atoi(pid); ok && err == nil && n != os.Getpid() && syscall.Kill(n, 0) == syscall.ESRCH {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func writeFile(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(value); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func readNumber(dir, name string) int64 {
	if dir == "" {
		return 0
	}
	text, _ := os.ReadFile(filepath.Join(dir, name))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// readField is the number after a word of a file of "word number" lines.
func readField(dir, name, field string) int64 {
	if dir == "" {
		return 0
	}
	text, _ := os.ReadFile(filepath.Join(dir, name))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == field {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// group is one sandbox's cgroup: a directory per controller, or "".
type group struct {
	site                       *cgroups
	memory, pids, cpu, cpuacct string
	noMemory, noPIDs, noCPU    string
	noSwap                     sandbox.Held
}

// enter makes a group and sets its caps. Where that fails the caller falls
// back, and what is held says so.
func (c *cgroups) enter(caps sandbox.Caps) *group {
	g := &group{site: c, noMemory: c.noMemory, noPIDs: c.noPIDs, noCPU: c.noCPU}
	name := groupName()
	make := func(parent string, place, why *string, set func(dir string) error) {
		if parent == "" {
			return
		}
		dir := filepath.Join(parent, name)
		err := os.Mkdir(dir, 0o755)
		shared := os.IsExist(err) // with another controller
		if err == nil || shared {
			if err = set(dir); err == nil {
				*place = dir
				return
			}
			if !shared {
				_ = os.Remove(dir)
			}
		}
		*why = err.Error()
	}
	make(c.memory, &g.memory, &g.noMemory, func(dir string) error { return g.capMemory(dir, caps.MemoryBytes) })
	make(c.pids, &g.pids, &g.noPIDs, func(dir string) error {
		return writeFile(dir, "pids.max", strconv.FormatInt(caps.PIDs+ownTasks, 10))
	})
	make(c.cpu, &g.cpu, &g.noCPU, func(dir string) error { return c.capCPU(dir, caps.CPUs) })
	var ignored string
	make(c.cpuacct, &g.cpuacct, &ignored, func(string) error { return nil })
	return g
}

func (g *group) capMemory(dir string, n int64) error {
	value := strconv.FormatInt(n, 10)
	limit, swap, swapValue := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", value
	if g.site.v2 {
		limit, swap, swapValue = "memory.max", "memory.swap.max", "0"
		_ = writeFile(dir, "memory.oom.group", "1") // the watch ends the tree too
	}
	if err := writeFile(dir, limit, value); err != nil {
		return err
	}
	g.noSwap = sandbox.Held{Control: sandbox.NoSwap, State: sandbox.Enforced}
	if err := writeFile(dir, swap, swapValue); err != nil {
		g.noSwap = g.site.withoutSwapCap("the kernel does not account for swap")
	}
	return nil
}

// withoutSwapCap: what cannot swap needs no cap.
func (c *cgroups) withoutSwapCap(why string) sandbox.Held {
	if c.swapless {
		return sandbox.Held{Control: sandbox.NoSwap, State: sandbox.Enforced, Note: "the host has no swap"}
	}
	return sandbox.Held{Control: sandbox.NoSwap, State: sandbox.Absent, Note: why}
}

// period of the cpu controller, in microseconds.
const period = 100_000

func (c *cgroups) capCPU(dir string, cpus float64) error {
	quota := strconv.FormatInt(max(int64(cpus*period), 1000), 10)
	if c.v2 {
		return writeFile(dir, "cpu.max", quota+" "+strconv.Itoa(period))
	}
	if err := writeFile(dir, "cpu.cfs_period_us", strconv.Itoa(period)); err != nil {
		return err
	}
	return writeFile(dir, "cpu.cfs_quota_us", quota)
}

func (g *group) dirs() []string {
	return (&cgroups{memory: g.memory, pids: g.pids, cpu: g.cpu, cpuacct: g.cpuacct}).dirs()
}

// remove takes the group away after its last process has ended; the kernel
// may need a moment to see that.
func (g *group) remove() {
	for _, dir := range g.dirs() {
		for range 50 {
			if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// ownTasks are those of runsc, its gofer and the sandbox's own kernel, which
// come on top of the cap.
const ownTasks = 160

// held is what the group bounds.
func (g *group) held() []sandbox.Held {
	state := func(c sandbox.Control, dir, why, note string) sandbox.Held {
		if dir != "" {
			return sandbox.Held{Control: c, State: sandbox.Enforced, Note: note}
		}
		return sandbox.Held{Control: c, State: sandbox.Absent, Note: "no cgroup: " + why}
	}
	swap := g.noSwap
	if g.memory == "" {
		swap = g.site.withoutSwapCap("no cgroup: " + g.noMemory)
	}
	return []sandbox.Held{
		state(sandbox.MemoryCap, g.memory, g.noMemory, "that of the sandbox's own kernel included"), swap,
		state(sandbox.PIDsCap, g.pids, g.noPIDs, "who reaches it ends the sandbox"),
		state(sandbox.CPUCap, g.cpu, g.noCPU, ""),
	}
}

func (g *group) oomKills() int64 {
	if g.site.v2 {
		return readField(g.memory, "memory.events", "oom_kill")
	}
	return readField(g.memory, "memory.oom_control", "oom_kill")
}

func (g *group) stats() sandbox.Stats {
	var s sandbox.Stats
	if g.site.v2 {
		s.MemoryBytes, s.PeakBytes = readNumber(g.memory, "memory.current"), readNumber(g.memory, "memory.peak")
	} else {
		s.MemoryBytes, s.PeakBytes = readNumber(g.memory, "memory.usage_in_bytes"), readNumber(g.memory, "memory.max_usage_in_bytes")
	}
	user, system := g.times()
	s.CPU = user + system
	return s
}

// times of the whole tree.
func (g *group) times() (user, system time.Duration) {
	switch {
	case g.site.v2 && g.cpuDir() != "":
		dir := g.cpuDir()
		return time.Duration(readField(dir, "cpu.stat", "user_usec")) * time.Microsecond, time.Duration(readField(dir, "cpu.stat", "system_usec")) * time.Microsecond
	case g.cpuacct != "":
		return time.Duration(readNumber(g.cpuacct, "cpuacct.usage_user")), time.Duration(readNumber(g.cpuacct, "cpuacct.usage_sys"))
	}
	return 0, 0
}

// cpuDir: every group of v2 has cpu.stat, whatever its controllers.
func (g *group) cpuDir() string {
	if g.cpu != "" {
		return g.cpu
	}
	return g.memory
}
