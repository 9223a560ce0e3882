package fsscope

import (
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
)

// Rewrite proposes a path inside the run's temporary root in place of p: p's
// own elements below it, so that two paths stay two. It leads out by no "..",
// names no secret and no protected file, and writes nothing; empty: there is
// none to propose. MakeTemp makes the root once the proposal is taken up.
func (s *Scope) Rewrite(p string) string {
	if s == nil || s.base == nil || s.temp.lexical == "" || strings.IndexByte(p, 0) >= 0 {
		return ""
	}
	tail := path.Clean("/" + p)
	names := foldPath(tail)
	if tail == "/" || secretOf(names, 0).class != "" || protectedOf(names, 0, tail) != "" {
		return ""
	}
	out := s.temp.lexical + tail
	if tooLong(out) {
		return ""
	}
	return out
}

// MakeTemp makes the run's temporary root and the directory that holds those
// of all runs, both for their owner only. One that exists already must be a
// directory, no link, and belong to this user alone; else another user could
// read or redirect what the run writes.
func (s *Scope) MakeTemp() error {
	if s == nil || s.base == nil || s.temp.real == "" {
		return fmt.Errorf("fsscope: making the temporary root: the run has none")
	}
	for _, dir := range [...]string{path.Dir(s.temp.real), s.temp.real} {
		if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
			return fmt.Errorf("fsscope: making the temporary root: %w", err)
		}
		st, err := os.Lstat(dir)
		if err != nil {
			return fmt.Errorf("fsscope: making the temporary root: %w", err)
		}
		own, ok := st.Sys().(*syscall.Stat_t)
		if !st.IsDir() || !ok || int(own.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("fsscope: temporary root %q (want a directory that belongs to user %d and that nobody else can write)", dir, os.Geteuid())
		}
	}
	return nil
}
