// Package gitcode finds what git runs out of a worktree: files that a
// repository's own configuration names as hooks, filters, monitors or further
// configuration. Whoever changes such a file has git run something the next
// time that its owner uses git there.
//
// It guarantees that it starts no program, changes nothing, and reads a
// bounded amount, whatever the configuration holds.
//
// What it does not find: what a program that is named runs in turn, commands
// that are put together in a shell, and files that are found by PATH.
package gitcode

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxConfig   = 1 << 20
	maxIncludes = 64
	maxPaths    = 4096
)

// Finder answers for one moment: it keeps what it has read. It is for one
// goroutine.
type Finder struct {
	user  []string
	repos map[string]*repo
}

// New returns a finder. user are configuration files that count for every
// repository, such as that of the user's home; those that are absent count
// for nothing.
func New(user ...string) *Finder { return &Finder{user: user, repos: map[string]*repo{}} }

// repo is what one repository names, as absolute paths.
type repo struct {
	top         string
	files, dirs []string
	includes    int
}

// Why says what git would do with the file at an absolute path if it were
// changed, or "". Repositories of all directories above it count.
func (f *Finder) Why(path string) string {
	path = filepath.Clean(path)
	real := realParent(path)
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if r := f.repo(dir); r != nil {
			for _, p := range []string{path, real} {
				if why := r.why(p); why != "" {
					return why
				}
			}
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// realParent is the path with the links in its directory resolved.
func realParent(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

func (r *repo) why(path string) string {
	for _, d := range r.dirs {
		if path == d || strings.HasPrefix(path, d+"/") {
			return "git runs what is in " + d + " as hooks"
		}
	}
	for _, p := range r.files {
		if path == p || strings.HasPrefix(p, path+"/") {
			return "git's configuration of " + r.top + " has it run or read"
		}
	}
	return ""
}

// repo reads the configuration of the repository whose worktree dir is the
// top of; nil where it is none.
func (f *Finder) repo(dir string) *repo {
	if r, known := f.repos[dir]; known {
		return r
	}
	var r *repo
	if git := gitDir(dir); git != "" {
		r = &repo{top: dir}
		common := commonDir(git)
		for _, file := range append(slices.Clone(f.user), filepath.Join(common, "config"), filepath.Join(common, "config.worktree"), filepath.Join(git, "config.worktree")) {
			r.read(file)
		}
	}
	f.repos[dir] = r
	return r
}

// gitDir is the git directory of a worktree, also where .git is a file that
// leads there (gitrepository-layout(5)).
func gitDir(top string) string {
	git := filepath.Join(top, ".git")
	info, err := os.Stat(git)
	if err != nil {
		return ""
	}
	if info.IsDir() {
		return git
	}
	text, err := readSmall(git)
	to, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir:")
	if err != nil || !ok {
		return ""
	}
	return from(top, strings.TrimSpace(to))
}

// commonDir is where a linked worktree shares its configuration.
func commonDir(git string) string {
	text, err := readSmall(filepath.Join(git, "commondir"))
	if err != nil {
		return git
	}
	return from(git, strings.TrimSpace(text))
}

func from(dir, path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// readSmall reads a regular file of at most maxConfig bytes.
func readSmall(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfig {
		return "", os.ErrInvalid
	}
	text, err := os.ReadFile(path)
	return string(text[:min(len(text), maxConfig)]), err
}

// read takes one file of configuration, and what it includes whatever the
// condition.
func (r *repo) read(file string) {
	text, err := readSmall(file)
	if err != nil {
		return
	}
	for _, v := range parse(text) {
		r.take(v, filepath.Dir(file))
	}
}

func (r *repo) take(v variable, dir string) {
	value := v.value
	switch {
	case v.section == "include" && v.name == "path" || v.section == "includeif" && v.name == "path":
		path := from(dir, value)
		r.add(&r.files, path)
		if r.includes++; r.includes <= maxIncludes {
			r.read(path)
		}
	case v.section == "core" && v.name == "hookspath":
		r.add(&r.dirs, from(r.top, value))
	case v.section == "core" && v.name == "attributesfile", v.section == "commit" && v.name == "template":
		// Read, but nothing of it is run.
	case runs(v):
		for _, word := range words(value) {
			r.addWord(word)
		}
	}
}

// runs tells whether the value of a variable is a command (git-config(1)).
func runs(v variable) bool {
	switch v.section {
	case "alias", "pager", "man", "browser", "difftool", "mergetool", "guitool", "hook":
		return true
	case "core":
		return slices.Contains([]string{"fsmonitor", "sshcommand", "pager", "editor", "askpass", "gitproxy", "alternaterefscommand"}, v.name)
	case "filter":
		return slices.Contains([]string{"clean", "smudge", "process"}, v.name)
	case "diff":
		return slices.Contains([]string{"textconv", "command", "external"}, v.name)
	case "merge", "interactive", "gpg", "credential", "sequence", "uploadpack", "receive", "sendemail", "trailer", "submodule", "remote", "tar", "web", "instaweb", "log":
		return slices.Contains([]string{
			"driver", "difffilter", "program", "helper", "editor", "packobjectshook", "tocmd", "cccmd", "smtpserver", "command", "cmd", "update", "uploadpack", "receivepack", "vcs", "proccommand",
		}, v.name)
	}
	return false
}

// addWord adds a word of a command that is a file below the worktree, or the
// value of an option that is one.
func (r *repo) addWord(word string) {
	for _, w := range []string{word, word[strings.IndexByte(word, '=')+1:]} {
		w = strings.TrimPrefix(w, "!")
		if w == "" || len(w) > 4096 {
			continue
		}
		path := from(r.top, w)
		if path == r.top || !strings.HasPrefix(path, r.top+"/") {
			continue
		}
		// A file that is not there yet counts if it is named as a path.
		if _, err := os.Lstat(path); err == nil || strings.Contains(w, "/") {
			r.add(&r.files, path)
		}
	}
}

func (r *repo) add(list *[]string, path string) {
	for _, p := range []string{path, realParent(path)} {
		if len(r.files)+len(r.dirs) < maxPaths && !slices.Contains(*list, p) {
			*list = append(*list, p)
		}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(*list, real) && len(*list) < maxPaths {
		*list = append(*list, real)
	}
}

// words splits a command roughly as a shell does: more words than there are
// do no harm.
func words(command string) []string {
	return strings.FieldsFunc(command, func(r rune) bool {
		return strings.ContainsRune(" \t\r\n'\"`;&|<>(){}$,:", r)
	})
}
