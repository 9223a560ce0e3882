//go:build linux

package transaction

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary starts itself again: as what runs in an overlay, and as what
// crashes.
const roleEnv = "CORDON_TRANSACTION_TEST_ROLE"

// task is what a started test binary is to do.
type task struct {
	// Overlay: mount one of these, and work in Merged.
	Lower, Upper, Work, Merged string
	UserXattr                  bool
	Script                     []step
	Seed                       int64
	Rounds                     int
	// Crash: commit, or recover, and be killed at that point.
	State, Workspace, Point string
	Recover                 bool
	Nth                     int
	// Sabotage is made in the workspace when the first step is done.
	Sabotage string
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	var t task
	err := json.NewDecoder(os.Stdin).Decode(&t)
	if err == nil {
		switch role {
		case "overlay":
			err = t.overlay()
		case "base":
			err = base(t.Merged, t.Seed)
		case "work":
			err = work(t.Merged, t.Script, t.Seed, t.Rounds)
		case "look":
			var seen tree
			if seen, err = look(t.Merged); err == nil {
				err = json.NewEncoder(os.Stdout).Encode(seen)
			}
		case "crash":
			err = t.crash()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// start runs a task and returns what it printed.
func (t *task) start(role string, attr *syscall.SysProcAttr) ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stdin = bytes.NewReader(text)
	cmd.SysProcAttr = attr
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.Bytes(), nil
}

// overlay mounts, works and says what the tree is in the end.
func (t *task) overlay() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := t.mount(); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	if err := work(t.Merged, t.Script, t.Seed, t.Rounds); err != nil {
		return err
	}
	for _, s := range t.Script {
		if s.Do == "deep" {
			return json.NewEncoder(os.Stdout).Encode(tree{}) // too deep to look
		}
	}
	seen, err := look(t.Merged)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

func (t *task) mount() error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{{"source", "overlay"}, {"lowerdir", t.Lower}, {"upperdir", t.Upper}, {"workdir", t.Work}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return fmt.Errorf("%s: %w", o[0], err)
		}
	}
	if t.UserXattr {
		if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(mnt)
	return unix.MoveMount(mnt, "", unix.AT_FDCWD, t.Merged, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// kind of mount: by the host's root, or in a user namespace.
type mountKind struct {
	name      string
	userXattr bool
}

var mountKinds = []mountKind{{"in a user namespace", true}, {"by the host's root", false}}

func (k mountKind) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if !k.userXattr {
		return attr
	}
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	if os.Geteuid() == 0 {
		ids[0].Size = 65536
	}
	attr.UidMappings = ids
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: ids[0].Size}}
	return attr
}

// need skips where this host cannot mount so, and shows that it cannot.
func (k mountKind) need(t *testing.T) {
	t.Helper()
	if !k.userXattr && os.Geteuid() != 0 {
		t.Skipf("user %d is not root", os.Geteuid())
	}
	err := k.works(t, tempDir(t))
	if err == nil {
		return
	}
	if !strings.Contains(err.Error(), "not permitted") && !strings.Contains(err.Error(), "no such device") {
		t.Fatal(err)
	}
	t.Skipf("no overlay %s: %v", k.name, err)
}

func (k mountKind) works(t *testing.T, dir string) error {
	t.Helper()
	probe := task{Lower: dir + "/l", Upper: dir + "/u", Work: dir + "/w", Merged: dir + "/m", UserXattr: k.userXattr}
	for _, d := range []string{"/l", "/u", "/w", "/m"} {
		must(t, os.Mkdir(dir+d, 0o755))
	}
	_, err := probe.start("overlay", k.attr())
	return err
}

// run works in an overlay of a transaction and returns what the run saw last.
func (k mountKind) run(t *testing.T, tx *Tx, script []step, seed int64, rounds int) tree {
	t.Helper()
	merged := tempDir(t)
	out, err := (&task{
		Lower: tx.Workspace(), Upper: tx.Upper(), Work: tx.Work(), Merged: merged, UserXattr: k.userXattr,
		Script: script, Seed: seed, Rounds: rounds,
	}).start("overlay", k.attr())
	must(t, err)
	var seen tree
	must(t, json.Unmarshal(out, &seen))
	return seen
}

// tree is all that there is to know about a directory, by quoted path.
type tree map[string]node

type node struct {
	Mode, Links, UID, GID uint32
	Mtime                 int64
	Size                  int64
	Content               string
	Group                 string // the first path of the same file
	Xattrs                map[string]string
}

func look(root string) (tree, error) {
	seen := tree{}
	first := map[uint64]string{}
	err := filepath.Walk(root, func(p string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		rel, _ := filepath.Rel(root, p)
		rel = fmt.Sprintf("%q", rel)
		n := node{Mode: st.Mode, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano()}
		// A namespace has other numbers for whose the tree is.
		if int(n.UID) == os.Geteuid() {
			n.UID = 0
		}
		if int(n.GID) == os.Getegid() {
			n.GID = 0
		}
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(text)
			n.Content, n.Size = hex.EncodeToString(sum[:8]), st.Size
		case info.Mode()&os.ModeSymlink != 0:
			n.Content, err = os.Readlink(p)
			n.Content = fmt.Sprintf("%q", n.Content)
			if err != nil {
				return err
			}
		}
		if !info.IsDir() && st.Nlink > 1 {
			if f, ok := first[st.Ino]; ok {
				n.Group = f
			} else {
				first[st.Ino] = rel
			}
		}
		fd, err := pinned(unix.AT_FDCWD, p)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, name := range listXattrs(fdPath(fd)) {
			// What the host's root set is seen from inside too.
			if strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.") {
				value, _ := getXattr(fdPath(fd), name)
				if n.Xattrs == nil {
					n.Xattrs = map[string]string{}
				}
				n.Xattrs[name] = string(value)
			}
		}
		seen[rel] = n
		return nil
	})
	return seen, err
}

// asRoot does a task as one that no mode shuts out: in a user namespace, where
// the test is not root.
func (t *task) asRoot(role string) ([]byte, error) {
	if os.Geteuid() == 0 {
		return t.start(role, nil)
	}
	return t.start(role, mountKinds[0].attr())
}

func mustBase(t *testing.T, root string, seed int64) {
	t.Helper()
	_, err := (&task{Merged: root, Seed: seed}).asRoot("base")
	must(t, err)
}

func mustWork(t *testing.T, root string, seed int64, rounds int) {
	t.Helper()
	_, err := (&task{Merged: root, Seed: seed, Rounds: rounds}).asRoot("work")
	must(t, err)
}

func mustLook(t *testing.T, root string) tree {
	t.Helper()
	if os.Geteuid() == 0 {
		seen, err := look(root)
		must(t, err)
		return seen
	}
	out, err := (&task{Merged: root}).asRoot("look")
	must(t, err)
	var seen tree
	must(t, json.Unmarshal(out, &seen))
	return seen
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sameFS and otherFS are the two places of a state directory.
func otherFS(t testing.TB, workspace string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cordon-transaction-test-")
	if err != nil {
		t.Skipf("no second file system: %v", err)
	}
	t.Cleanup(func() { must(t, removeTree(dir)) })
	var a, b unix.Stat_t
	must(t, unix.Stat(dir, &a))
	must(t, unix.Stat(workspace, &b))
	if a.Dev == b.Dev {
		t.Skipf("%s and %s are one file system", dir, workspace)
	}
	return dir
}
