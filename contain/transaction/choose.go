//go:build linux

package transaction

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// Conflicts says what Commit does with paths that were changed on both sides.
type Conflicts uint8

const (
	// StopOnConflict is the zero value: nothing is committed.
	StopOnConflict Conflicts = iota
	// KeepWorkspace leaves those paths as they are in the workspace.
	KeepWorkspace
	// OverwriteWorkspace takes the run's.
	OverwriteWorkspace
)

// Options of a Commit.
type Options struct {
	// Protected says why a path may not be changed by the run, or "". It is
	// asked for every path that would change, for those below a directory
	// that would vanish too. nil protects nothing.
	Protected func(rel string, kind ChangeKind) string
	Conflicts Conflicts
	// Progress, if set, is told how far the commit is.
	Progress func(done, total int)
}

// Refusal is a change that was not committed, or not whole.
type Refusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Report is what a Commit did.
type Report struct {
	Applied []Change  `json:"applied"`
	Refused []Refusal `json:"refused,omitempty"`
	// Dropped are set-user-ID bits and file capabilities that were left out
	// of a change that was applied.
	Dropped   []Refusal `json:"dropped,omitempty"`
	Conflicts []Change  `json:"conflicts,omitempty"`
}

// stagePrefix begins the name of the directory that a commit uses in the
// workspace where it can use none beside it.
const stagePrefix = ".cordon-tx-"

// choose divides the changes into those to apply and those refused. What is
// below a refused directory is refused with it.
func (s *scan) choose(o Options) Report {
	r := Report{Applied: []Change{}}
	var shut []string // refused directories; the last is the innermost
	for i := range s.changes {
		c := &s.changes[i]
		why := ""
		for len(shut) > 0 && !below(c.Path, shut[len(shut)-1]) {
			shut = shut[:len(shut)-1]
		}
		if len(shut) > 0 {
			why = "it lies below " + shut[len(shut)-1] + ", which was refused"
		} else {
			why = s.refuse(c, o)
		}
		if why == "" && c.Conflict {
			r.Conflicts = append(r.Conflicts, *c)
			if o.Conflicts == KeepWorkspace {
				why = "it was changed in the workspace meanwhile"
			}
		}
		if why == "" {
			r.Applied = append(r.Applied, *c)
			continue
		}
		if !c.touched {
			r.Refused = append(r.Refused, Refusal{c.Path, why})
		}
		if c.Path != "." && (c.Mode.IsDir() || isDir(c.low)) {
			shut = append(shut, c.Path)
		}
	}
	return r
}

// refuse says why a change is not to be committed. It marks a conflict that
// lies below what would vanish.
func (s *scan) refuse(c *Change, o Options) string {
	if c.touched {
		return ""
	}
	first, _, _ := strings.Cut(c.Path, "/")
	if strings.HasPrefix(first, stagePrefix) {
		return "the name is kept for commits"
	}
	if c.Kind != Deleted {
		switch {
		case c.Mode&fs.ModeSocket != 0:
			return "it is a socket"
		case c.Mode&fs.ModeDevice != 0:
			return "it is a device"
		}
	}
	if o.Protected != nil {
		if why := o.Protected(c.Path, c.Kind); why != "" {
			return why
		}
	}
	if isDir(c.low) && !c.stays() {
		return s.refuseBelow(c, o)
	}
	return ""
}

var errFound = errors.New("found")

// refuseBelow looks at what would vanish with a directory.
func (s *scan) refuseBelow(c *Change, o Options) (why string) {
	err := s.lowTree(c.Path, c.low, func(_ int, _, rel string, st *unix.Stat_t) error {
		// The directory's own time changes with what is in it.
		c.Conflict = c.Conflict || s.newer(st)
		if o.Protected == nil || rel == c.Path {
			return nil
		}
		if why = o.Protected(rel, Deleted); why != "" {
			why = "it holds " + rel + ": " + why
			return errFound
		}
		return nil
	})
	if err != nil && err != errFound {
		return "what it holds could not be looked at: " + err.Error()
	}
	return why
}
