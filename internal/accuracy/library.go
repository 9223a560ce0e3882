package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile is the size up to which code is read; more is opaque by design.
const maxFile = 256 << 10

// batchBytes bounds what one cordon process is given.
const batchBytes = 8 << 20

// rightly are files of the standard library that do, when they run, what is
// refused. They are left out of the count.
var rightly = map[string]string{
	"antigravity.py": "opens a web page as soon as it is imported",
}

func measureStandardLibrary(ctx context.Context, b *bench, r *report) error {
	dir, err := ask(ctx, "python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))")
	if err != nil {
		return err
	}
	files, err := sourceFiles(dir, []string{".py"}, "test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__")
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return rightly[filepath.Base(f)] != "" })
	s, err := b.decideFiles(ctx, "execute_python", dir, files)
	if err != nil {
		return err
	}
	r.note("%s", dir)
	r.atMost("files blocked", len(s.blocked), s.total, aims.libraryBlocked)
	s.print(r)
	return nil
}

// maxPackages bounds the files taken from installed packages.
const maxPackages = 1000

func measureSitePackages(ctx context.Context, b *bench, r *report) error {
	dir, err := ask(ctx, "python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
	if err != nil {
		return err
	}
	return b.measurePackages(ctx, r, "execute_python", dir, ".py")
}

func measureJavaScript(ctx context.Context, b *bench, r *report) error {
	dir, err := ask(ctx, "npm", "root", "-g")
	if err != nil {
		return err
	}
	return b.measurePackages(ctx, r, "execute_javascript", dir, ".js", ".cjs", ".mjs")
}

// measurePackages prints figures for information: what is installed differs
// from machine to machine.
func (b *bench) measurePackages(ctx context.Context, r *report, tool, dir string, ext ...string) error {
	files, err := sourceFiles(dir, ext, "test", "tests", "__pycache__")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		r.note("%s holds no such files", dir)
		return nil
	}
	s, err := b.decideFiles(ctx, tool, dir, spread(files, maxPackages))
	if err != nil {
		return err
	}
	r.note("%s, %d of %d files", dir, s.total, len(files))
	r.figure("files blocked", len(s.blocked), s.total)
	s.print(r)
	return nil
}

// ask runs a program that prints one line.
func ask(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", absentError(fmt.Sprintf("no %s on this machine", name))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// sourceFiles are the regular files below dir with one of the extensions, up
// to the size that is read, in order; directories named in skip are left out.
func sourceFiles(dir string, ext []string, skip ...string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == dir:
			return nil
		case err != nil:
			return err
		case d.IsDir():
			if path != dir && slices.Contains(skip, d.Name()) {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular() || !slices.Contains(ext, filepath.Ext(path)):
			return nil
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 && info.Size() <= maxFile {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// spread takes n files evenly from the whole list.
func spread(files []string, n int) []string {
	if len(files) <= n {
		return files
	}
	taken := make([]string, n)
	for i := range taken {
		taken[i] = files[i*len(files)/n]
	}
	return taken
}

// fileScore is how a library fared.
type fileScore struct {
	total             int
	blocked           []string
	restricted        int
	blockedBy, heldBy map[string]int
	unread            int
}

func (b *bench) decideFiles(ctx context.Context, tool, dir string, files []string) (*fileScore, error) {
	s := &fileScore{blockedBy: map[string]int{}, heldBy: map[string]int{}}
	var calls []call
	size := 0
	flush := func() error {
		lines, err := encode(calls)
		if err != nil {
			return err
		}
		decisions, err := b.decide(ctx, "coding", "supervised", lines)
		for i := range decisions {
			s.add(calls[i].ID, &decisions[i])
		}
		calls, size = nil, 0
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(dir, f)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call{ID: name, Tool: tool, Args: map[string]any{"code": string(text)}})
		if size += len(text); size > batchBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return s, flush()
}

func (s *fileScore) add(name string, d *decision) {
	s.total++
	switch d.Decision {
	case "blocked":
		rules := rulesOf(d, "", "blocked")
		s.blocked = append(s.blocked, name+": "+strings.Join(rules, ","))
		count(s.blockedBy, rules)
	case "restricted":
		s.restricted++
		count(s.heldBy, rulesOf(d, "", "restricted"))
	}
	for _, f := range d.Findings {
		if f.Rule == "opaque" && strings.Contains(f.Detail, "does not parse") {
			s.unread++
			break
		}
	}
}

func (s *fileScore) print(r *report) {
	r.tally(s.blockedBy)
	r.evidence(s.blocked)
	r.figure("files restricted (aim: at most 3 %)", s.restricted, s.total)
	r.tally(s.heldBy)
	r.figure("files that do not parse", s.unread, s.total)
}
