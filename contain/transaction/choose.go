//go:build linux

package transaction

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
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
	// Together names what belongs together: of the paths that it gives one
	// name other than "" all are committed, or none where one is refused. nil
	// keeps nothing together.
	Together  func(rel string) string
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

// choose divides the changes into those to apply and those refused.
func (s *scan) choose(o Options) (Report, error) {
	r, err := s.divide(o, nil)
	if err != nil || o.Together == nil {
		return r, err
	}
	parted := map[string]string{}
	for _, x := range r.Refused {
		if name := o.Together(x.Path); name != "" && parted[name] == "" {
			parted[name] = x.Path
		}
	}
	if len(parted) == 0 {
		return r, nil
	}
	return s.divide(o, parted)
}

// divide refuses what is below a refused directory with it, and what belongs
// to a group that is parted, by its name, through the path that stands there.
func (s *scan) divide(o Options, parted map[string]string) (Report, error) {
	r := Report{Applied: []Change{}}
	var shut []*Change // refused directories; the last is the innermost
	for i := range s.changes {
		c := &s.changes[i]
		why := ""
		for len(shut) > 0 && !below(c.Path, shut[len(shut)-1].Path) {
			shut = shut[:len(shut)-1]
		}
		switch {
		case len(shut) > 0:
			why = "it lies below " + shut[len(shut)-1].Path + ", which was refused"
		default:
			why = s.refuse(c, o)
		}
		if why == "" && len(parted) > 0 && !c.touched {
			if with := parted[o.Together(c.Path)]; with != "" {
				why = "it belongs together with " + with + ", which was refused"
			}
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
		// A file that was written anew with what it held is not changed.
		if same, err := s.same(c); err != nil {
			return r, err
		} else if same {
			continue
		}
		// What a refused directory would have hidden goes without saying.
		hidden := c.Kind == Deleted && len(shut) > 0 && shut[len(shut)-1].replaced
		if !hidden && (!c.touched || c.replaced) {
			r.Refused = append(r.Refused, Refusal{c.Path, why})
		}
		if c.Path != "." && (c.Mode.IsDir() || isDir(c.low)) {
			shut = append(shut, c)
		}
	}
	return r, nil
}

// same reports whether a regular file was replaced by one of the same
// content, mode, owner and attributes.
func (s *scan) same(c *Change) (bool, error) {
	if c.Kind != Changed || !isRegular(c.up) || !isRegular(c.low) || c.up.Size != c.low.Size || c.up.Mode != c.low.Mode || c.up.Uid != c.low.Uid || c.up.Gid != c.low.Gid {
		return false, nil
	}
	up, err := s.openUpper(path.Dir(c.Path))
	if err != nil {
		return false, err
	}
	defer unix.Close(up)
	low, err := s.openLow(path.Dir(c.Path))
	if err != nil {
		return false, err
	}
	defer unix.Close(low)
	name := path.Base(c.Path)
	was, err := metaAt(low, name)
	if err != nil {
		return false, err
	}
	is, err := metaOf(up, name, c.up)
	if err != nil {
		return false, err
	}
	if s.translate(is); !is.sameBut(was) {
		return false, nil
	}
	return sameContent(entry{up, name}, entry{low, name})
}

func sameContent(a, b entry) (bool, error) {
	x, err := openForReading(a)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := openForReading(b)
	if err != nil {
		return false, err
	}
	defer y.Close()
	p, q := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(x, p)
		m, err2 := io.ReadFull(y, q)
		if !bytes.Equal(p[:n], q[:m]) {
			return false, nil
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return err2 == err, nil
		}
		if err := errors.Join(err, err2); err != nil {
			return false, err
		}
	}
}

// refuse says why a change is not to be committed. It marks a conflict that
// lies below what would vanish.
func (s *scan) refuse(c *Change, o Options) string {
	if c.replaced && o.Protected != nil {
		// What it was is gone as a whole, though a directory is there again.
		if why := o.Protected(c.Path, Deleted); why != "" {
			return why
		}
	}
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
