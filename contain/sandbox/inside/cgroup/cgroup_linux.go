package cgroup

import (
	"crypto/rand"
	"errors"
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

// Prefix begins the names of our groups; the supervisor's process ID
// follows, so that a later one can tell which are left over.
const Prefix = "cordon-"

// Site is the directories of the host below which groups can be made, per
// controller; "" where none can. v2 keeps all in one.
type Site struct {
	Memory, PIDs, CPU, CPUAcct string
	NoMemory, NoPIDs, NoCPU    string // why not
	// Legacy: a hierarchy of version 1 has the memory, which no user is given
	// a part of.
	Legacy   bool
	v2       bool
	swapless bool // the host has no swap
}

// controllerMount is a mounted cgroup hierarchy.
type controllerMount struct {
	dir, root   string
	v2          bool
	controllers []string
}

// Find looks for a place where groups can be made: below our own group,
// so that bounds put on us bound what we run too.
func Find() *Site {
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo")
	own, _ := os.ReadFile("/proc/self/cgroup")
	swaps, _ := os.ReadFile("/proc/swaps")
	c := placesFor(parseCgroupMounts(string(mountinfo)), parseOwnGroups(string(own)), canMake)
	c.swapless = strings.Count(string(swaps), "\n") <= 1
	for _, dir := range c.Dirs() {
		sweep(dir)
	}
	return c
}

// Dirs are all of them, each once.
func (c *Site) Dirs() []string {
	dirs := []string{c.Memory, c.PIDs, c.CPU, c.CPUAcct}
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

// NoGroups is why a host has no group where it knows none.
const NoGroups = "no cgroup hierarchy is mounted"

// placesFor chooses directories; usable says why a directory cannot take
// groups, or "".
func placesFor(mounts []controllerMount, own map[string]string, usable func(dir string, v2 bool, controller string) string) *Site {
	c := &Site{NoMemory: NoGroups, NoPIDs: NoGroups, NoCPU: NoGroups}
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
		c.Legacy = c.Legacy || slices.Contains(m.controllers, "memory")
		for _, name := range m.controllers {
			dir := m.dirOf(own[name])
			switch name {
			case "memory":
				take(&c.Memory, &c.NoMemory, dir, false, name)
			case "pids":
				take(&c.PIDs, &c.NoPIDs, dir, false, name)
			case "cpu":
				take(&c.CPU, &c.NoCPU, dir, false, name)
			case "cpuacct":
				var ignored string
				take(&c.CPUAcct, &ignored, dir, false, name)
			}
		}
	}
	if c.Memory != "" || c.PIDs != "" || c.CPU != "" {
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
func (c *Site) placesV2(m controllerMount, own string, usable func(string, bool, string) string) {
	for dir := m.dirOf(own); dir != "" && inside.Within(dir, m.dir); dir = filepath.Dir(dir) {
		c.NoMemory, c.NoPIDs, c.NoCPU = usable(dir, true, "memory"), usable(dir, true, "pids"), usable(dir, true, "cpu")
		if c.NoMemory != "" || c.NoPIDs != "" {
			continue
		}
		c.v2, c.Memory, c.PIDs = true, dir, dir
		if c.NoCPU == "" {
			c.CPU = dir
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
	return fmt.Sprintf("%s%d-%s", Prefix, os.Getpid(), strings.ToLower(rand.Text()[:10]))
}

// sweep removes groups whose supervisor was killed. The kernel refuses to
// remove one in which a process lives.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), Prefix)
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

// ReadField is the number after a word of a file of "word number" lines.
func ReadField(dir, name, field string) int64 {
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

// Group is one sandbox's cgroup: a directory per controller, or "".
type Group struct {
	Memory, PIDs, CPU, CPUAcct string
	NoMemory, NoPIDs, NoCPU    string // why not
	site                       *Site
	noSwap                     sandbox.Held
}

// Enter makes a group and sets its caps; own are tasks of the runtime's own,
// which come on top of the cap. Where it fails the reasons stand in the group,
// and the caller falls back.
func (c *Site) Enter(caps sandbox.Caps, own int64) *Group {
	g := &Group{site: c, NoMemory: c.NoMemory, NoPIDs: c.NoPIDs, NoCPU: c.NoCPU}
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
	make(c.Memory, &g.Memory, &g.NoMemory, func(dir string) error { return g.capMemory(dir, caps.MemoryBytes) })
	make(c.PIDs, &g.PIDs, &g.NoPIDs, func(dir string) error {
		return writeFile(dir, "pids.max", strconv.FormatInt(caps.PIDs+own, 10))
	})
	make(c.CPU, &g.CPU, &g.NoCPU, func(dir string) error { return c.capCPU(dir, caps.CPUs) })
	var ignored string
	make(c.CPUAcct, &g.CPUAcct, &ignored, func(string) error { return nil })
	return g
}

func (g *Group) capMemory(dir string, n int64) error {
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
func (c *Site) withoutSwapCap(why string) sandbox.Held {
	if c.swapless {
		return sandbox.Held{Control: sandbox.NoSwap, State: sandbox.Enforced, Note: "the host has no swap"}
	}
	return sandbox.Held{Control: sandbox.NoSwap, State: sandbox.Absent, Note: why}
}

// Swap is how far swapping is bounded.
func (g *Group) Swap() sandbox.Held {
	if g.Memory == "" {
		return g.site.withoutSwapCap("no cgroup: " + g.NoMemory)
	}
	return g.noSwap
}

// period of the cpu controller, in microseconds.
const period = 100_000

func (c *Site) capCPU(dir string, cpus float64) error {
	quota := strconv.FormatInt(max(int64(cpus*period), 1000), 10)
	if c.v2 {
		return writeFile(dir, "cpu.max", quota+" "+strconv.Itoa(period))
	}
	if err := writeFile(dir, "cpu.cfs_period_us", strconv.Itoa(period)); err != nil {
		return err
	}
	return writeFile(dir, "cpu.cfs_quota_us", quota)
}

// Dirs are those of all controllers, each once.
func (g *Group) Dirs() []string {
	return (&Site{Memory: g.Memory, PIDs: g.PIDs, CPU: g.CPU, CPUAcct: g.CPUAcct}).Dirs()
}

// Attach has a process that is about to be started begin in the group. For
// v1 this thread, whose child it will be, goes there first: moving a thread by
// itself needs none of the kernel's locks that moving another process waits
// for. The function that it returns takes the thread back.
func (g *Group) Attach(attr *syscall.SysProcAttr) (back func() error, err error) {
	if g.site.v2 {
		if g.Memory == "" {
			return func() error { return nil }, nil
		}
		dir, err := os.Open(g.Memory)
		if err != nil {
			return nil, err
		}
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
		return dir.Close, nil
	}
	back = func() error {
		for _, dir := range g.Dirs() {
			if err := writeFile(filepath.Dir(dir), "tasks", "0"); err != nil {
				return err
			}
		}
		return nil
	}
	for _, dir := range g.Dirs() {
		if err := writeFile(dir, "tasks", "0"); err != nil {
			return nil, errors.Join(err, back())
		}
	}
	return back, nil
}

// Nowhere is a host on which no group can be made.
func Nowhere() *Site { return &Site{NoMemory: NoGroups, NoPIDs: NoGroups, NoCPU: NoGroups} }

// Legacy tells whether the host keeps memory by version 1.
func (g *Group) Legacy() bool { return g.site.Legacy }

// None is for a host whose groups turned out not to be usable.
func (c *Site) None(why error) *Group {
	return &Group{site: c, NoMemory: why.Error(), NoPIDs: why.Error(), NoCPU: why.Error()}
}

// Remove takes the group away after its last process has ended; the kernel
// may need a moment to see that.
func (g *Group) Remove() {
	for _, dir := range g.Dirs() {
		for range 50 {
			if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// OOMKills is how many the kernel has killed for want of memory.
func (g *Group) OOMKills() int64 {
	if g.site.v2 {
		return ReadField(g.Memory, "memory.events", "oom_kill")
	}
	return ReadField(g.Memory, "memory.oom_control", "oom_kill")
}

// Stats is what it has used so far.
func (g *Group) Stats() sandbox.Stats {
	var s sandbox.Stats
	if g.site.v2 {
		s.MemoryBytes, s.PeakBytes = readNumber(g.Memory, "memory.current"), readNumber(g.Memory, "memory.peak")
	} else {
		s.MemoryBytes, s.PeakBytes = readNumber(g.Memory, "memory.usage_in_bytes"), readNumber(g.Memory, "memory.max_usage_in_bytes")
	}
	user, system := g.Times(nil)
	s.CPU = user + system
	return s
}

// Times of the whole tree: from the group where there is one, else those of
// PID 1 and what it waited for.
func (g *Group) Times(state *os.ProcessState) (user, system time.Duration) {
	switch {
	case g.site.v2 && g.cpuDir() != "":
		dir := g.cpuDir()
		return time.Duration(ReadField(dir, "cpu.stat", "user_usec")) * time.Microsecond, time.Duration(ReadField(dir, "cpu.stat", "system_usec")) * time.Microsecond
	case g.CPUAcct != "":
		return time.Duration(readNumber(g.CPUAcct, "cpuacct.usage_user")), time.Duration(readNumber(g.CPUAcct, "cpuacct.usage_sys"))
	case state != nil:
		return state.UserTime(), state.SystemTime()
	}
	return 0, 0
}

// cpuDir: every group of v2 has cpu.stat, whatever its controllers.
func (g *Group) cpuDir() string {
	if g.CPU != "" {
		return g.CPU
	}
	return g.Memory
}
