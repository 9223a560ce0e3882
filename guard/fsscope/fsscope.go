// Package fsscope is phase B: it decides whether a call may touch a path.
//
// A Scope knows the roots of one run. Judge reads a path as forgiving tools
// do (tildes, variables, file URIs, percent forms, backslashes, look-alike
// characters), follows links as the kernel does, and judges every reading,
// as requested and as resolved: it must be inside a root that permits the
// kind of access, outside the forbidden trees, no credential store, no
// protected file, and none of Cordon's own files. The strictest reading wins.
// Judge writes nothing. Open, Create, Mkdir, Remove and Rename hold the same
// verdict at the time of use, against links that are swapped in between.
//
// What it guarantees: a path whose real place at the time of judging is
// outside every root is never passed, and a secret is known by its name in
// any home, any directory and any spelling that a file system folds together.
//
// What it does not stop: a tool that opens the path by itself after the
// verdict can be raced (only the sandbox holds then); a hard link to a secret
// whose inode is not among the usual ones of the home; bind mounts inside a
// root; secrets that are called something else; and what a glob matches
// through links deeper in a root.
package fsscope

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// Root is a directory (or file) that a run may use.
type Root struct {
	// Path is absolute. It need not exist yet.
	Path string
	// Write permits changes as well; a write root is readable.
	Write bool
}

// Config is what a scope is made of.
type Config struct {
	// Roots are all that the run may use. One whose Path is TempRoot moves
	// with the temporary root that ForRun names. A root that names a
	// credential store ("/home/dev/.aws") opens that store for what the root
	// permits: it was spelled out. The workspace itself never does.
	Roots []Root
	// Workspace is the absolute directory that relative paths start from
	// where an effect names none. It is a root only if Roots says so.
	Workspace string
	// Home is the absolute path that "~" means; User the name it belongs to.
	Home, User string
	// TempRoot is the run's own temporary directory, "/tmp/agent/{run}".
	// Empty: nothing is ever proposed as a rewrite.
	TempRoot string
	// Coding is profile "coding": the system's programs and libraries (/usr,
	// /lib, /bin, /sbin, /opt) may be read beside the roots.
	Coding bool
	// SelfPaths are Cordon's own files and directories (database, state,
	// configuration). No call touches them, whatever the roots say.
	SelfPaths []string
}

// systemRoots may be read by profile coding.
var systemRoots = [...]string{"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt"}

type root struct {
	// lexical is the path as configured, real the one through links.
	lexical, real string
	write, system bool
	// forbidden: the root lies inside a forbidden tree, so that what is
	// below it is not refused for that tree.
	forbidden bool
	// startup: the root lies in a directory of start-up files.
	startup bool
	// named: the root names a credential store by itself.
	named bool
}

type place struct{ lexical, real string }

// Base is all of a scope that runs share. It is immutable.
type Base struct {
	roots     []root
	workspace place
	home      place
	user      string
	temp      place // the parent of the runs' temporary roots
	// tempRead and tempWrite: the temporary root is a root of the run.
	tempRead, tempWrite bool
	self                []place
	homes               []string          // homes of others that are not below /home
	users               map[string]string // name to home
	openat2             bool
}

// Scope judges paths for one run. It is immutable and safe for concurrent
// use. The zero value refuses everything.
type Scope struct {
	base *Base
	temp root
}

// New is Prepare and ForRun in one.
func New(c Config) (*Scope, error) {
	b, err := Prepare(c)
	if err != nil {
		return nil, err
	}
	return b.ForRun(c.TempRoot)
}

// Prepare validates the configuration and resolves its roots through links.
// What stands in it then is what is meant for all of the base's runs. Roots
// below the workspace are not followed: an agent that could make such a root
// a link would move it.
func Prepare(c Config) (*Base, error) {
	for _, p := range []struct{ name, path string }{{"workspace", c.Workspace}, {"home", c.Home}} {
		if err := checkAbsolute(p.name, p.path); err != nil {
			return nil, err
		}
	}
	b := &Base{user: c.User, openat2: probeOpenat2()}
	var err error
	if b.workspace, err = b.settle(c.Workspace); err != nil {
		return nil, err
	}
	if b.home, err = b.settle(c.Home); err != nil {
		return nil, err
	}
	if err := b.prepareTemp(c); err != nil {
		return nil, err
	}
	b.users, b.homes = readPasswd("/etc/passwd", b.home.lexical)
	for _, r := range c.Roots {
		if err := b.addRoot(r, c.TempRoot); err != nil {
			return nil, err
		}
	}
	if c.Coding {
		for _, p := range systemRoots {
			b.roots = append(b.roots, root{lexical: p, real: p, system: true})
		}
	}
	for _, p := range c.SelfPaths {
		if err := checkAbsolute("self path", p); err != nil {
			return nil, err
		}
		s, err := b.settle(p)
		if err != nil {
			return nil, err
		}
		b.self = append(b.self, s)
	}
	return b, nil
}

// ForRun is the base's scope with tempRoot as the run's temporary root. It
// must lie directly in the directory that Config.TempRoot lies in, so that no
// run's name can move it (empty: the run has none). It makes no system call.
func (b *Base) ForRun(tempRoot string) (*Scope, error) {
	if tempRoot == "" {
		return &Scope{base: b}, nil
	}
	i := strings.LastIndexByte(tempRoot, '/')
	if i < 0 || b.temp.lexical == "" || tempRoot[:i] != b.temp.lexical {
		return nil, fmt.Errorf("fsscope: temporary root %q (want a directory in %q)", tempRoot, b.temp.lexical)
	}
	name := tempRoot[i+1:]
	if name == "" || name == "." || name == ".." || strings.IndexByte(name, 0) >= 0 || len(name) > maxName {
		return nil, fmt.Errorf("fsscope: temporary root %q (want a plain name in %q)", tempRoot, b.temp.lexical)
	}
	s := &Scope{base: b, temp: root{lexical: tempRoot, real: tempRoot, write: b.tempWrite}}
	if b.temp.real != b.temp.lexical {
		s.temp.real = b.temp.real + "/" + name
	}
	return s, nil
}

// prepareTemp resolves the directory two levels above the temporary roots
// and nothing below it: /tmp may be a link that the system made, /tmp/agent
// one that another user did.
func (b *Base) prepareTemp(c Config) error {
	if c.TempRoot == "" {
		return nil
	}
	if err := checkAbsolute("temporary root", c.TempRoot); err != nil {
		return err
	}
	parent := path.Dir(c.TempRoot)
	if strings.Count(c.TempRoot, "/") < 2 || path.Clean(c.TempRoot) != c.TempRoot {
		return fmt.Errorf("fsscope: temporary root %q (want a clean path such as /tmp/agent/run)", c.TempRoot)
	}
	up, err := b.settle(path.Dir(parent))
	if err != nil {
		return err
	}
	b.temp = place{lexical: parent, real: path.Join(up.real, path.Base(parent))}
	return nil
}

func (b *Base) addRoot(r Root, tempRoot string) error {
	if err := checkAbsolute("root", r.Path); err != nil {
		return err
	}
	if tempRoot != "" && path.Clean(r.Path) == tempRoot {
		b.tempRead = true
		b.tempWrite = b.tempWrite || r.Write
		return nil
	}
	p, err := b.settle(r.Path)
	if err != nil {
		return err
	}
	n := root{lexical: p.lexical, real: p.real, write: r.Write}
	n.startup = b.persistence(p.lexical) || b.persistence(p.real)
	n.forbidden = b.tree(p.real) != treeNone || b.tree(p.lexical) != treeNone
	if p.lexical != b.workspace.lexical {
		n.named = secretOf(foldPath(p.lexical), 0).class != "" || secretOf(foldPath(p.real), 0).class != ""
	}
	b.roots = append(b.roots, n)
	return nil
}

// settle resolves a configured path; one below the workspace only as far as
// the workspace itself.
func (b *Base) settle(p string) (place, error) {
	p = path.Clean(p)
	if w := b.workspace; w.lexical != "" && within(p, w.lexical) {
		return place{lexical: p, real: path.Join(w.real, p[len(w.lexical):])}, nil
	}
	r := walk(p, false)
	if r.err != nil {
		return place{}, fmt.Errorf("fsscope: resolving %q: %w", p, r.err)
	}
	return place{lexical: p, real: r.path}, nil
}

func checkAbsolute(what, p string) error {
	if !strings.HasPrefix(p, "/") || strings.IndexByte(p, 0) >= 0 || len(p) > maxPath {
		return fmt.Errorf("fsscope: %s %q (want an absolute path)", what, p)
	}
	return nil
}

// within reports whether p is dir or below it; both are clean.
func within(p, dir string) bool {
	if len(dir) <= 1 {
		return dir == "/"
	}
	return len(p) >= len(dir) && p[:len(dir)] == dir && (len(p) == len(dir) || p[len(dir)] == '/')
}

// permits reports whether a root holds p with the access that is wanted, and
// the innermost root that holds it at all (nil: none).
func (s *Scope) permits(p string, resolved, write bool) (ok bool, holder *root) {
	b := s.base
	for i := range b.roots {
		r := &b.roots[i]
		if !within(p, r.real) && (resolved || !within(p, r.lexical)) {
			continue
		}
		ok = ok || r.write || !write
		if holder == nil || len(r.real) > len(holder.real) {
			holder = r
		}
	}
	if b.tempRead && s.inTemp(p, resolved) {
		ok = ok || b.tempWrite || !write
		holder = &s.temp
	}
	return ok, holder
}

func (s *Scope) inTemp(p string, resolved bool) bool {
	return s.temp.lexical != "" && (within(p, s.temp.real) || !resolved && within(p, s.temp.lexical))
}

// isSelf reports whether p is one of Cordon's own files, or what SQLite and
// kin put beside them ("audit.db-wal").
func (b *Base) isSelf(p string) bool {
	for i := range b.self {
		for _, own := range [...]string{b.self[i].lexical, b.self[i].real} {
			if within(p, own) {
				return true
			}
			if rest, ok := strings.CutPrefix(p, own); ok && (rest == "-wal" || rest == "-shm" || rest == "-journal") {
				return true
			}
		}
	}
	return false
}

// holdsSelf reports whether one of Cordon's own files is below p.
func (b *Base) holdsSelf(p string) bool {
	for i := range b.self {
		if within(b.self[i].lexical, p) || within(b.self[i].real, p) {
			return true
		}
	}
	return false
}

// readPasswd reads names and homes. A machine without the file has no other
// homes than those below /home and kin.
func readPasswd(file, own string) (users map[string]string, homes []string) {
	users = map[string]string{}
	f, err := os.Open(file)
	if err != nil {
		return users, nil
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		field := strings.Split(sc.Text(), ":")
		if len(field) < 7 || !strings.HasPrefix(field[5], "/") {
			continue
		}
		home := path.Clean(field[5])
		users[field[0]] = home
		uid, err := strconv.Atoi(field[2])
		person := err == nil && uid >= 1000 && uid < 65534
		if person && home != "/" && home != own && !within(own, home) && strings.Count(home, "/") > 1 {
			homes = append(homes, home)
		}
	}
	return users, homes
}
