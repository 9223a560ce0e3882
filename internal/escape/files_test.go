//go:build integration && linux

package escape

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var fileKinds = []kind{
	{1, "a link in the workspace to a key cannot be read", nil, linkToKey},
	{2, "a directory and a link swapped while writing never land outside", nil, swapWhileWriting},
	{3, "the commit follows no link", nil, commitFollowsNoLink},
	{4, "the root and cwd links of proc lead to the sandbox's own root", nil, procRoots},
	{5, "no process of the host is in proc", nil, procList},
	{6, "an outside inode cannot be linked or changed", nil, hardLinks},
	{7, "only the three streams are open", nil, descriptors},
	{13, "no device can be made or opened", nil, devices},
	{14, "set-user-ID files give nothing", nil, setuid},
	{15, "a working directory of the model's choice leaves the roots as they are", nil, wander},
	{16, "the policy, audit and rollback stores are out of reach", nil, stores},
}

const relativeSecret = "../.ssh/id_ed25519"

func linkToKey(t *testing.T, p *place) {
	check(t, os.Symlink(p.secret, p.workspace+"/planted"))
	p.own(p.workspace + "/planted")
	attack := []string{"links", "secret=" + p.secret, "relative=" + relativeSecret}
	r := p.cordon(invocation{attack: attack}).ended(0)
	r.refused(answers{"read through *": "ENOENT EACCES", "write through *": refusals})
	if strings.Contains(r.stdout+r.stderr, p.word) {
		t.Error("the secret was printed")
	}
	// Next to the home, so that the relative one leads to it as well.
	dir := p.base + "/copy"
	p.dir(0o755, dir)
	check(t, os.Symlink(p.secret, dir+"/planted"))
	p.bare(invocation{attack: []string{"links", "secret=" + dir + "/key/own", "relative=key/own"}, dir: p.withKey(dir)}).
		reached("read through absolute", "read through to-directory", "read through relative", "read through dotted", "read through by-proc", "read through by-cwd", "read through planted", "write through to-directory")
}

// withKey puts a file into a directory that an attack without walls may read
// and change, and lets "planted" lead to it.
func (p *place) withKey(dir string) string {
	p.t.Helper()
	p.dir(0o755, dir+"/key")
	p.file(dir+"/key/own", "own key\n", 0o600)
	check(p.t, os.Remove(dir+"/planted"))
	check(p.t, os.Symlink(dir+"/key/own", dir+"/planted"))
	p.own(dir + "/planted")
	return dir
}

func swapWhileWriting(t *testing.T, p *place) {
	for round := range 3 {
		r := p.cordon(invocation{attack: []string{"swap", "outside=" + p.outside}, flags: []string{"--commit"}})
		if r.got("writes") == "" || r.got("writes") == "0" {
			t.Fatalf("round %d wrote nothing\n%s", round, r.text())
		}
		landed(t, p.outside, 1)
		check(t, removeAll(p.workspace+"/swapped"))
		check(t, removeAll(p.workspace+"/lure"))
	}
	dir := p.copyWorkspace()
	p.dir(0o755, dir+"-out", dir)
	defer os.RemoveAll(dir + "-out")
	for range 5 {
		p.bare(invocation{attack: []string{"swap", "outside=" + dir + "-out"}}).ended(0)
		if entries, err := os.ReadDir(dir + "-out"); err == nil && len(entries) > 0 {
			return
		}
	}
	t.Error("the attack proves nothing: without walls nothing landed outside either")
}

// landed wants no more entries in a directory than there were.
func landed(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	if len(entries) != want {
		t.Errorf("%s holds %v: something landed outside", dir, entries)
	}
}

// commitFollowsNoLink: somebody on the host puts a link where a directory was
// while the run goes on, and while its commit does.
func commitFollowsNoLink(t *testing.T, p *place) {
	write := invocation{attack: []string{"write-wait", "dir=target/sub", "n=20", "text=from inside"}}
	t.Run("a directory becomes a link before the commit", func(t *testing.T) {
		p := p.in(t)
		for _, link := range []string{"target", "target/sub"} {
			p.dir(0o755, p.workspace+"/target", p.workspace+"/target/sub")
			p.file(p.workspace+"/target/sub/file-0001", "from the host", 0o644)
			run := p.start(write, false)
			run.await("ready")
			check(t, os.RemoveAll(p.workspace+"/"+link))
			check(t, os.Symlink(p.outside, p.workspace+"/"+link))
			r := run.proceed(t)
			if r.code == 0 && r.outcome.Committed {
				t.Errorf("%s: it was committed over what somebody else put there\n%s", link, r.text())
			}
			landed(t, p.outside, 1)
			check(t, os.RemoveAll(p.workspace+"/target"))
		}
	})
	t.Run("a link that the run itself left", func(t *testing.T) {
		p := p.in(t)
		p.dir(0o755, p.workspace+"/target", p.workspace+"/target/sub")
		p.cordon(invocation{command: []string{"sh", "-c", "rm -r target && ln -s " + p.outside + " target"}}).ended(0)
		if to, err := os.Readlink(p.workspace + "/target"); err != nil || to != p.outside {
			t.Fatalf("the link was not committed as a link: %q, %v", to, err)
		}
		for _, script := range []string{
			"mkdir -p " + p.outside + "; echo x > target/landed; true",
			"rm target && mkdir target && echo x > target/landed",
			"mv target t2 && mkdir target && mv t2 target/inner && echo x > target/landed",
		} {
			p.cordon(invocation{command: []string{"sh", "-c", script}})
			landed(t, p.outside, 1)
		}
		if _, err := os.Lstat(p.workspace + "/target/landed"); err != nil {
			t.Error("a directory in place of the link was not committed:", err)
		}
		check(t, os.RemoveAll(p.workspace+"/target"))
	})
	t.Run("a race with the commit", func(t *testing.T) {
		p := p.in(t)
		var committed, stopped int
		for range 6 {
			p.dir(0o755, p.workspace+"/target", p.workspace+"/target/sub")
			p.dir(0o755, p.base+"/copy")
			check(t, removeAll(p.base+"/copy"))
			check(t, os.Symlink(p.outside, p.base+"/copy"))
			run := p.start(invocation{attack: []string{"write-wait", "dir=target/sub", "n=400", "text=from inside"}}, false)
			run.await("ready")
			stop, stopped2 := make(chan bool), make(chan bool)
			go func() {
				defer close(stopped2)
				journal := p.state + "/cordon/transactions/*/journal.json"
				for begun := false; ; {
					select {
					case <-stop:
						return
					default:
					}
					if !begun { // from the journal on it is being carried out
						found, _ := filepath.Glob(journal)
						begun = len(found) > 0
					} else {
						_ = unix.Renameat2(unix.AT_FDCWD, p.base+"/copy", unix.AT_FDCWD, p.workspace+"/target/sub", unix.RENAME_EXCHANGE)
					}
				}
			}()
			r := run.proceed(t)
			close(stop)
			<-stopped2
			if r.outcome.Committed {
				committed++
			} else {
				stopped++
			}
			landed(t, p.outside, 1)
			check(t, os.RemoveAll(p.workspace+"/target"))
			check(t, os.RemoveAll(p.base+"/copy"))
		}
		t.Logf("%d commits went through, %d were stopped", committed, stopped)
	})
}

func procRoots(t *testing.T, p *place) {
	attack := []string{"proc-roots", "secret=" + p.secret, "outside=" + p.outside}
	r := p.cordon(invocation{attack: attack}).ended(0)
	r.refused(nil)
	landed(t, p.outside, 1)
	dir := p.copyWorkspace()
	p.dir(0o755, dir+"/key")
	p.file(dir+"/key/own", "own", 0o600)
	p.bare(invocation{attack: []string{"proc-roots", "secret=" + dir + "/key/own", "outside=" + dir}, dir: dir}).
		reached("secret by /proc/self/root", "secret by /proc/self/cwd/../../../../../..", "secret by any root or cwd", "write by a root")
}

// hostProcess starts a process of the place's user that a run must not see.
func (p *place) hostProcess() (pid int, word string, alive func() bool) {
	p.t.Helper()
	word = "host-" + p.id[len("escape-"):]
	cmd := exec.Command(built.attack, "sleep", "word="+word)
	cmd.Env = []string{"HOST_WORD=" + word}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.user != nil {
		cmd.SysProcAttr.Credential = p.user
	}
	check(p.t, cmd.Start())
	ended := make(chan bool)
	go func() {
		_ = cmd.Wait() // killed at the end
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return cmd.Process.Pid, word, func() bool {
		select {
		case <-ended:
			return false
		default:
		}
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		return err == nil && !strings.Contains(string(state), ") T ")
	}
}

func procList(t *testing.T, p *place) {
	pid, word, _ := p.hostProcess()
	// The word in two parts: the attack's own command line is no find.
	attack := []string{"proc-list", "word=" + word, fmt.Sprint("pid=", pid)}
	r := p.cordon(invocation{attack: attack}).ended(0)
	r.refused(nil)
	n := 0
	if _, err := fmt.Sscan(r.got("processes"), &n); err != nil || n > 4 {
		t.Errorf("%q processes are seen inside", r.got("processes"))
	}
	p.bare(invocation{attack: attack}).reached("cmdline of the host's process", "environ of the host's process", "maps of the host's process by number")
}

func hardLinks(t *testing.T, p *place) {
	outer := p.outside + "/shared"
	p.file(outer, "outside", 0o644)
	p.before = p.surroundings()
	check(t, os.Link(outer, p.workspace+"/planted"))
	p.before = p.surroundings()
	r := p.cordon(invocation{attack: []string{"hard-links", "secret=" + p.secret, "readable=" + filepath.Dir(built.attack) + "/readable"}}).ended(0)
	// The name in the workspace is its own: a change there makes it a file of
	// its own, and the other name keeps what it had.
	r.refused(answers{"write to a planted hard link": "reached", "mode of a planted hard link": "reached", "link of *": "ENOENT EXDEV EPERM EROFS EACCES", "move of *": refusals})
	if text, err := os.ReadFile(outer); err != nil || string(text) != "outside" {
		t.Errorf("the outside file holds %q, %v", text, err)
	}
	if text, err := os.ReadFile(p.workspace + "/planted"); err != nil || string(text) != "changed inside" {
		t.Errorf("the change in the workspace was lost: %q, %v", text, err)
	}
	dir := p.copyWorkspace()
	p.file(dir+"/secret", "s", 0o600)
	p.file(dir+"/readable", "r", 0o600)
	p.bare(invocation{attack: []string{"hard-links", "secret=secret", "readable=readable"}, dir: dir}).
		reached("link of secret", "write to secret", "move of secret", "link of readable", "link of readable by descriptor")
}

func descriptors(t *testing.T, p *place) {
	home, err := os.Open(filepath.Dir(p.secret))
	check(t, err)
	defer home.Close()
	root, err := os.Open("/")
	check(t, err)
	defer root.Close()
	key, err := os.OpenFile(p.secret, os.O_RDWR, 0)
	check(t, err)
	defer key.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check(t, err)
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	defer unix.Close(pair[1])
	i := invocation{attack: []string{"descriptors", "secret=" + p.secret}, files: []*os.File{home, root, key, socket, home, home, home}, stdinFile: home}
	r := p.cordon(i).ended(0)
	r.refused(answers{"openat(0, *": "ENOTDIR EBADF EACCES", "openat(1, *": "ENOTDIR EBADF EACCES", "openat(2, *": "ENOTDIR EBADF EACCES"})
	p.bare(i).reached("descriptor 3", "descriptor 9", `openat(0, "id_ed25519")`, `openat(3, "..")`, `openat(3, "id_ed25519")`, "fchdir(4)")
}

func devices(t *testing.T, p *place) {
	want := answers{
		"mem at *": "EPERM EACCES EROFS", "null at *": "EPERM EACCES EROFS", "disk at *": "EPERM EACCES EROFS", "whiteout in the workspace": "EPERM EACCES",
		"open *": "ENOENT EPERM EACCES ENXIO",
	}
	if p.runtime == "gvisor" { // its own kernel makes nodes in its own memory, which lead to its own devices
		for _, name := range []string{"mem at *", "null at *", "disk at *"} {
			want[name] += " reached"
		}
		want["mem at dev-node"], want["null at dev-node"], want["disk at dev-node"] = "EPERM EACCES EROFS", "EPERM EACCES EROFS", "EPERM EACCES EROFS"
		want["open /dev/fuse"], want["open /dev/net/tun"] = refusals+" reached", refusals+" reached"
	}
	p.cordon(invocation{attack: []string{"devices"}}).ended(0).refused(want)
	for name := range look(t, p.workspace, nil) {
		if strings.Contains(name, "dev-node") || name == "whiteout" {
			t.Errorf("%s was committed", name)
		}
	}
	if os.Geteuid() == 0 {
		i := invocation{attack: []string{"devices"}, unshare: unix.CLONE_NEWNS, root: true}
		bare := p.bare(i)
		bare.reached("null at dev-node", "whiteout in the workspace")
		bare.saw()
		for _, at := range []string{"/tmp/dev-node", "/dev/dev-node", "/dev/shm/dev-node"} {
			for _, end := range []string{"-mem", "-null", "-disk"} {
				_ = os.Remove(at + end) // it may not have been made
			}
		}
	}
}

func setuid(t *testing.T, p *place) {
	text, err := os.ReadFile(built.attack)
	check(t, err)
	check(t, os.WriteFile(p.workspace+"/suid", text, 0o755))
	check(t, os.Chmod(p.workspace+"/suid", 0o755|os.ModeSetuid|os.ModeSetgid)) // the test's own: root's, if it is root
	p.cordon(invocation{command: []string{p.workspace + "/suid", "setuid", "as=root", "secret=/etc/shadow"}}).ended(0).refused(nil)
	p.cordon(invocation{attack: []string{"setuid"}}).ended(0).
		refused(answers{"set-user-ID bit on an own file": "reached EPERM", "another user": "EINVAL EPERM", "another group": "EINVAL EPERM", "supplementary groups": "EPERM EINVAL", "file capabilities": "EPERM EOPNOTSUPP ENOTSUP"})
	for _, name := range []string{"own-setuid", "capable"} {
		var st unix.Stat_t
		err := unix.Lstat(p.workspace+"/"+name, &st)
		if err == nil && st.Mode&0o6000 != 0 {
			t.Errorf("%s was committed with mode %o", name, st.Mode)
		}
		if n, err := unix.Getxattr(p.workspace+"/"+name, "security.capability", make([]byte, 64)); err == nil && n > 0 {
			t.Errorf("%s was committed with capabilities", name)
		}
	}
	if p.user != nil {
		bare := p.bare(invocation{command: []string{p.workspace + "/suid", "setuid", "as=root", "secret=/etc/shadow"}})
		bare.reached("effective root by a set-user-ID file", "capabilities in CapEff", "read what only root may")
	}
}

func wander(t *testing.T, p *place) {
	attack := []string{
		"wander", "outside=" + p.outside, "home=" + p.home, "secret=" + p.secret, "workspace=" + p.workspace, "bin=" + built.attack,
		"relative=" + relativeSecret,
	}
	for _, dir := range []string{p.workspace, p.home, "/"} {
		// --home too: what the guard takes for ~ shows nothing inside.
		r := p.cordon(invocation{attack: attack, dir: dir, flags: []string{"--home", p.home}}).ended(0)
		// A directory on the way to the workspace is there, empty but for it.
		r.refused(answers{"chdir to *": "ENOENT EACCES reached", "list *": "ENOENT EACCES refused", "write in *": refusals + " reached", "write above the workspace": refusals + " reached"})
		landed(t, p.outside, 1)
		if strings.Contains(r.stdout, p.word) {
			t.Error("the secret was printed")
		}
	}
	p.bare(invocation{attack: []string{
		"wander", "outside=" + p.base + "/copy", "home=" + p.base + "/copy", "secret=" + p.secret, "workspace=" + p.copyWorkspace(), "bin=" + built.attack,
		"relative=../home/.ssh/id_ed25519",
	}}).reached("read above the workspace", "read from the root by climbing", "chdir to "+p.base+"/copy")
	for _, dir := range []string{p.base, filepath.Dir(p.secret)} {
		check(t, os.Remove(dir+"/wandered")) // by the one without walls
	}
}

func stores(t *testing.T, p *place) {
	p.file(p.config+"/probe", "config", 0o600)
	attack := []string{"stores", "state=" + p.state, "db=" + p.db, "config=" + p.config, "transactions=" + p.state + "/cordon/transactions"}
	want := answers{"look at *": "ENOENT EACCES", "read *": "ENOENT EACCES", "write to *": refusals}
	if p.runtime == "docker" { // which names the layers of an overlay to whom it shows it: no way there
		want["where the stores are, in mountinfo"] = "refused reached"
	}
	p.cordon(invocation{attack: attack}).ended(0).refused(want)
	t.Run("below a root that is read", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{attack: attack, flags: []string{"--read", p.home}})
		r.storesUntouched(t, p)
	})
	t.Run("below a root that is written", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{attack: attack, flags: []string{"--write", p.home}})
		r.storesUntouched(t, p)
	})
	t.Run("in the workspace", func(t *testing.T) {
		p := p.in(t)
		// A store where the agent works is refused, or the agent cannot
		// change it.
		r := p.cordon(invocation{command: []string{"sh", "-c", "rm -f stored.db* && echo mine > stored.db"}, flags: []string{"--db", p.workspace + "/stored.db"}})
		if text, err := os.ReadFile(p.workspace + "/stored.db"); err == nil && strings.HasPrefix(string(text), "mine") {
			t.Errorf("the run replaced the audit database\n%s", r.text())
		}
	})
	t.Run("the workspace is the home", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{attack: attack, flags: []string{"--workspace", p.home}, dir: p.home})
		r.storesUntouched(t, p)
	})
	bare := p.bare(invocation{attack: attack})
	bare.reached("look at state", "read state", "look at db", "read db", "read config")
	check(t, os.RemoveAll(p.state+"/planted"))
}

// storesUntouched: what lies over the stores is refused, or they are not
// shown.
func (r *result) storesUntouched(t *testing.T, p *place) {
	t.Helper()
	for _, path := range []string{p.state + "/planted", p.config + "/planted", p.state + "/cordon/transactions/planted", p.state + "/cordon/planted"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("the run wrote %s\n%s", path, r.text())
			check(t, os.Remove(path))
		}
	}
	if r.code == 0 {
		for _, try := range []string{"read transactions", "read db", "write to db", "write to transactions"} {
			if r.got(try) == "reached" {
				t.Errorf("%s: reached", try)
			}
		}
	}
}

// listener answers on the host until the test ends.
func listener(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	check(t, err)
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the place is looked at after this
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l
}
