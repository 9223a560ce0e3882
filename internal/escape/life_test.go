//go:build integration && linux

package escape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var lifeKinds = []kind{
	{33, "bombs, hogs, fills and floods end by their cap", nil, bombs},
	{34, "a daemon that forks twice dies with the run", nil, daemons},
	{35, "the sandbox dies with its supervisor", nil, killedSupervisor},
	{36, "a supervisor killed in mid-commit leaves all or nothing", nil, killedCommit},
	{37, "the host's environment is scrubbed", nil, environment},
	{40, "a host that lacks a wall says so, and what is required is refused", nil, poorHost},
}

func bombs(t *testing.T, p *place) {
	p.file(p.workspace+"/precious", "precious", 0o644)
	before := look(t, p.workspace, nil)
	for _, c := range []struct {
		name   string
		attack []string
		flags  []string
		// ends says which ends are right: a word of the cause, or an exit code.
		ends []string
	}{
		{"a fork bomb", []string{"forkbomb"}, []string{"--pids", "64", "--timeout", "3s"}, []string{"time"}},
		{"a memory hog", []string{"hog"}, []string{"--mem", "64", "--timeout", "60s"}, []string{"memory", "137", "2"}},
		{"memory that belongs to no process", []string{"hog-shared"}, []string{"--mem", "96", "--timeout", "60s"}, []string{"memory", "disk"}},
		{"a disk fill", []string{"fill", "dir=."}, []string{"--max-bytes", "20000000", "--timeout", "60s"}, []string{"disk", "8"}},
		{"a disk fill in a temporary directory", []string{"fill", "dir=/tmp"}, []string{"--max-bytes", "20000000", "--timeout", "60s"}, []string{"disk", "memory", "8"}},
		{"a disk fill by a deleted file", []string{"fill-deleted", "dir=."}, []string{"--max-bytes", "20000000", "--timeout", "30s"}, []string{"disk", "153"}},
		{"an inode fill", []string{"inodes", "dir=."}, []string{"--max-bytes", "20000000", "--timeout", "60s"}, []string{"disk"}},
		{"an inode fill in a temporary directory", []string{"inodes", "dir=/tmp"}, []string{"--max-bytes", "20000000", "--timeout", "60s"}, []string{"disk", "memory", "8"}},
		{"an endless loop", []string{"spin"}, []string{"--timeout", "2s"}, []string{"time"}},
		{"a process that will not end", []string{"hold", "word=" + p.id + "-hold"}, []string{"--timeout", "2s"}, []string{"time"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.in(t)
			if p.runtime == "gvisor" {
				// Its process cap ends the run, and it is slow at making files.
				c.ends = append(c.ends, "ended without a result")
				if c.attack[0] == "inodes" {
					c.ends, c.flags = append(c.ends, "time"), append(c.flags, "--timeout", "15s")
				}
			}
			began := time.Now()
			r := p.cordon(invocation{attack: c.attack, flags: c.flags, timeout: 90 * time.Second})
			if r.code == 0 || !slices.ContainsFunc(c.ends, func(e string) bool { return strings.Contains(r.outcome.Cause, e) || e == fmt.Sprint(r.code) }) {
				t.Errorf("it ended with %d for %q (want one of %q)\n%s", r.code, r.outcome.Cause, c.ends, r.text())
			}
			if r.outcome.Committed {
				t.Error("its changes were committed")
			}
			if left := p.awaitNone(p.id); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			if diff := cmp.Diff(before, look(t, p.workspace, nil)); diff != "" {
				t.Errorf("the workspace is another (- before, + after):\n%s", diff)
			}
			t.Logf("ended with %d for %q after %s", r.code, r.outcome.Cause, time.Since(began).Round(time.Millisecond))
		})
	}
	t.Run("the bomb went off", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{attack: []string{"forkbomb"}, flags: []string{"--pids", "64", "--timeout", "3s"}})
		if r.got("forks") != "EAGAIN" && p.runtime != "gvisor" {
			t.Errorf("it was not refused a process\n%s", r.text())
		}
	})
	t.Run("a flood of output", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{attack: []string{"flood"}, flags: []string{"--timeout", "60s", "--max-output", "8000000"}})
		if len(r.stdout) > 40<<20 || !r.cut {
			t.Errorf("%d bytes came through (marked as cut: %v)", len(r.stdout), r.cut)
		}
	})
	entries, err := os.ReadDir(p.state + "/cordon/transactions")
	if err == nil && len(entries) > 0 {
		t.Errorf("transactions are left: %v", entries)
	}
}

func daemons(t *testing.T, p *place) {
	attack := []string{"daemon", "word=" + p.id + "-daemon"}
	r := p.cordon(invocation{attack: attack})
	if p.runtime == "native" || r.code == 0 {
		r.ended(0)
	}
	if r.got("daemons") == "" {
		t.Fatalf("no daemon was started\n%s", r.text())
	}
	if left := p.awaitNone(p.id + "-daemon"); len(left) > 0 {
		t.Errorf("it lives on: %v", left)
	}
	p.bare(invocation{attack: []string{"daemon", "word=" + p.word + "-bare"}}).ended(0)
	found := marked(p.word + "-bare-last")
	if len(found) == 0 {
		t.Error("the attack proves nothing: without walls no daemon lives on")
	}
	for pid := range found {
		_ = unix.Kill(pid, unix.SIGKILL) // it carries the mark that this test gave it
	}
}

func killedSupervisor(t *testing.T, p *place) {
	for _, s := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		t.Run(unix.SignalName(s), func(t *testing.T) {
			p := p.in(t)
			mark := fmt.Sprintf("%s-%d", p.id, int(s))
			run := p.start(invocation{attack: []string{"hold", "word=" + mark}}, false)
			run.await("ready")
			if len(marked("word="+mark)) < 2 && p.runtime != "gvisor" {
				t.Errorf("the processes of the run are not seen on the host: %v", marked(mark))
			}
			check(t, run.cmd.Process.Signal(s))
			run.end()
			if left := p.awaitNone(mark); len(left) > 0 {
				t.Errorf("it lives on: %v", left)
			}
			r := p.cordon(invocation{command: []string{"true"}}).ended(0)
			if entries, err := os.ReadDir(p.state + "/cordon/transactions"); err != nil || len(entries) > 0 {
				t.Errorf("transactions are left after the next run: %v, %v\n%s", entries, err, r.text())
			}
		})
	}
}

// killedCommit kills Cordon while it commits, at times that differ, and looks
// at what the next run makes of it.
func killedCommit(t *testing.T, p *place) {
	const files = 600
	fill := func(text string) {
		p.dir(0o755, p.workspace+"/target")
		for i := range files {
			p.file(fmt.Sprintf("%s/target/file-%04d", p.workspace, i), text, 0o644)
		}
	}
	var all, nothing, inCommit int
	for round := range 9 {
		fill("old")
		run := p.start(invocation{attack: []string{"write-wait", "dir=target", fmt.Sprint("n=", files), "text=new"}}, false)
		run.await("ready")
		journal := p.state + "/cordon/transactions/*/journal.json"
		go func() { _, _ = run.in.Write([]byte("go on\n")) }()
		// From the journal on the commit goes on; before, it has not begun. In
		// every third round the kill does not wait for it.
		for end := time.Now().Add(20 * time.Second); round%3 != 2 && time.Now().Before(end); {
			if found, _ := filepath.Glob(journal); len(found) > 0 {
				inCommit++
				break
			}
			if unix.Kill(run.cmd.Process.Pid, 0) != nil {
				break
			}
		}
		for began := time.Now(); time.Since(began) < time.Duration(round)*700*time.Microsecond; {
		}
		check(t, run.cmd.Process.Kill())
		run.end()
		r := p.cordon(invocation{command: []string{"true"}}).ended(0)
		counts := map[string]int{}
		for i := range files {
			text, err := os.ReadFile(fmt.Sprintf("%s/target/file-%04d", p.workspace, i))
			check(t, err)
			counts[string(text)]++
		}
		switch {
		case counts["new"] == files:
			all++
		case counts["old"] == files:
			nothing++
		default:
			t.Errorf("round %d: half: %v\n%s", round, counts, r.text())
		}
		entries, err := os.ReadDir(p.workspace)
		check(t, err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".cordon") {
				t.Errorf("round %d: %s is left in the workspace", round, e.Name())
			}
		}
	}
	t.Logf("killed %d times after the journal was written; %d times all was there, %d times nothing", inCommit, all, nothing)
	if inCommit == 0 || nothing == 0 || all == 0 {
		t.Error("the kills met no commit, or all met it at the same stage")
	}
}

func environment(t *testing.T, p *place) {
	secret := "CORDON_ESCAPE_SECRET-" + p.word
	var env []string
	names := []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "PROMPT_COMMAND", "GIT_DIR", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF",
		"PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN",
		"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK", "KUBECONFIG", "DATABASE_URL", "VAULT_TOKEN", "HTTP_PROXY", "https_proxy",
		"SECRET", "MY_PASSWORD", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "MAIL", "PS4", "SHELLOPTS", "IFS", "CDPATH", "EDITOR", "PAGER", "LESSOPEN", "TMUX",
	}
	for _, name := range names {
		if name != "GIT_DIR" && name != "LD_PRELOAD" && name != "LD_AUDIT" { // the test's own helpers need to start
			env = append(env, name+"="+secret)
		}
	}
	env = append(env, "LD_PRELOAD=/"+secret, "GIT_DIR=/"+secret, "LC_ALL=C.UTF-8")
	r := p.cordon(invocation{attack: []string{"environment"}, env: env}).ended(0)
	// What the run sets itself under such a name holds nothing of the host's.
	if strings.Contains(r.stdout, "CORDON_ESCAPE_SECRET") {
		t.Errorf("variables of the host are seen inside\n%s", r.text())
	}
	for _, l := range r.lines {
		name, _, _ := strings.Cut(l.Got, "=")
		if l.Try == "variable" && slices.Contains([]string{"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "GIT_DIR", "GIT_ASKPASS", "SHELLOPTS"}, name) {
			t.Errorf("%s is set inside", l.Got)
		}
	}
	r.refused(answers{"environment of PID 1": "refused EACCES EPERM ENOENT"})
	bare := p.bare(invocation{attack: []string{"environment"}, env: env})
	if strings.Count(bare.stdout, secret) < len(names)-4 {
		t.Errorf("the attack proves nothing\n%s", bare.text())
	}
	t.Run("a shell is not led astray", func(t *testing.T) {
		p := p.in(t)
		p.file(p.workspace+"/rc", "echo led astray\n", 0o755)
		env := []string{"BASH_ENV=" + p.workspace + "/rc", "ENV=" + p.workspace + "/rc", "PYTHONSTARTUP=" + p.workspace + "/rc"}
		if r := p.cordon(invocation{command: []string{"sh", "-c", "echo plain"}, env: env}).ended(0); r.stdout != "plain\n" {
			t.Errorf("it printed %q", r.stdout)
		}
		// A program of the workspace is not taken for one of the system.
		p.file(p.workspace+"/ls", "#!/bin/sh\necho led astray\n", 0o755)
		if r := p.cordon(invocation{command: []string{"ls"}, env: []string{"PATH=.::tools:" + os.Getenv("PATH")}}); strings.Contains(r.stdout, "led astray\n") {
			t.Errorf("ls was the workspace's: %q", r.stdout)
		}
	})
}

// poorHost makes this host look like one that lacks something.
func poorHost(t *testing.T, p *place) {
	switch p.runtime {
	case "docker":
		p.lacks(t, []string{"DOCKER_HOST=unix:///nowhere/docker.sock"}, "nowhere/docker.sock")
		p.requires(t, "separate_kernel", nil)
	case "gvisor":
		p.lacks(t, []string{"PATH=/nowhere"}, "runsc")
		p.requires(t, "landlock", nil)
	default:
		poorKernel(t, p)
	}
}

// lacks wants that what the runtime needs and does not find is named, and
// that nothing else is taken in its place.
func (p *place) lacks(t *testing.T, env []string, what string) {
	t.Helper()
	r := p.cordon(invocation{command: []string{"sh", "-c", "echo ran"}, env: env})
	if r.code != 125 || !strings.Contains(r.stderr, what) || strings.Contains(r.stdout, "ran") {
		t.Errorf("it does not say what is lacking\n%s", r.text())
	}
}

func poorKernel(t *testing.T, p *place) {
	control := func(r *result, name string) (state, note string) {
		for _, c := range r.outcome.Controls {
			if c.Control == name {
				return c.State, c.Note
			}
		}
		return "", ""
	}
	without := func(what string) []string { return []string{built.attack, "without", "what=" + what, "--"} }
	t.Run("without Landlock", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{attack: []string{"steer"}, wrap: without("landlock")}).ended(0)
		if state, note := control(r, "landlock"); state != "absent" || note == "" {
			t.Errorf("landlock is said to be %q (%q)", state, note)
		}
		r.refused(nil) // the other walls stand
		p.requires(t, "landlock", without("landlock"))
	})
	t.Run("where new namespaces are refused, as in a container", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{command: []string{"true"}, wrap: without("namespaces")})
		if r.code != 125 || !strings.Contains(r.stderr, "namespaces") || !strings.Contains(r.stderr, "docker") {
			t.Errorf("it does not say what to do\n%s", r.text())
		}
	})
	t.Run("on an old kernel", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{command: []string{"true"}, wrap: without("mount_api")})
		if r.code != 125 || !strings.Contains(r.stderr, "kernel") {
			t.Errorf("it does not say what is lacking\n%s", r.text())
		}
	})
	t.Run("without user namespaces", func(t *testing.T) {
		p := p.in(t)
		script := "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\""
		r := p.cordon(invocation{command: []string{"true"}, wrap: []string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"}})
		if r.code != 125 || !strings.Contains(r.stderr, "max_user_namespaces") {
			t.Errorf("it does not say what is lacking\n%s", r.text())
		}
	})
	t.Run("without cgroups", func(t *testing.T) {
		p := p.in(t)
		hide := []string{"unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"", "sh"}
		if os.Geteuid() == 0 && p.user == nil {
			hide = []string{"unshare", "--mount", "sh", "-c", "umount -R -l /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"", "sh"}
		}
		r := p.cordon(invocation{command: []string{"true"}, wrap: hide}).ended(0)
		for _, c := range []string{"memory_cap", "pids_cap", "cpu_cap"} {
			if state, note := control(r, c); state == "enforced" && c != "pids_cap" || state == "" || note == "" {
				t.Errorf("%s is said to be %q (%q)", c, state, note)
			}
		}
		for _, bomb := range []struct{ attack, flags []string }{
			{[]string{"hog"}, []string{"--mem", "64", "--timeout", "30s"}},
			{[]string{"forkbomb"}, []string{"--pids", "64", "--timeout", "3s"}},
		} {
			if r := p.cordon(invocation{attack: bomb.attack, flags: bomb.flags, wrap: hide}); r.code == 0 {
				t.Errorf("%q went through\n%s", bomb.attack, r.text())
			}
		}
		p.requires(t, "memory_cap", hide)
	})
}

// requires wants that a control which this host cannot hold is refused where
// it is required, and one that it holds is not.
func (p *place) requires(t *testing.T, control string, wrap []string) {
	t.Helper()
	help, err := exec.Command(built.cordon, "run", "--help").CombinedOutput()
	check(t, err)
	if !strings.Contains(string(help), "--require") {
		t.Skip("cordon run --help names no --require")
	}
	mark := p.workspace + "/ran"
	r := p.cordon(invocation{command: []string{"sh", "-c", "echo ran; echo > ran"}, flags: []string{"--require", control}, wrap: wrap})
	if _, err := os.Lstat(mark); err == nil || r.code != 125 || !strings.Contains(r.stderr, control) || strings.Contains(r.stdout, "ran") {
		t.Errorf("%s is required and cannot be held\n%s", control, r.text())
	}
	p.cordon(invocation{command: []string{"true"}, flags: []string{"--require", "seccomp"}, wrap: wrap}).ended(0)
}
