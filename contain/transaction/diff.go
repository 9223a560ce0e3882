//go:build linux

package transaction

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

type unixStat = syscall.Stat_t

// ChangeKind is what happened to a path.
type ChangeKind uint8

const (
	Added ChangeKind = iota + 1
	Changed
	Deleted
	// ModeOnly: mode, owner, times or attributes of a directory.
	ModeOnly
)

var changeNames = [...]string{"", "added", "changed", "deleted", "mode"}

func (k ChangeKind) String() string { return changeNames[k] }

// MarshalText spells the kind.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Change is one path that differs from the workspace as it was.
type Change struct {
	Path string      `json:"path"` // slash-separated, relative to the workspace
	Kind ChangeKind  `json:"kind"`
	Mode fs.FileMode `json:"mode"`
	Size int64       `json:"size"`
	// Conflict: the workspace's own path was changed since Begin.
	Conflict bool `json:"conflict,omitempty"`

	opaque bool // a directory that hides what was below it
}

// Diff lists the changes, parents before children.
func (t *Tx) Diff() ([]Change, error) {
	var changes []Change
	err := filepath.WalkDir(t.Upper(), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(t.Upper(), p)
		if err != nil || rel == "." {
			return err
		}
		c, err := t.change(filepath.ToSlash(rel), d)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		if c.Kind != 0 {
			changes = append(changes, c)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("transaction: diff: %w", err)
	}
	return changes, nil
}

func (t *Tx) change(rel string, d fs.DirEntry) (Change, error) {
	c := Change{Path: rel}
	info, err := d.Info()
	if err != nil {
		return c, err
	}
	up := filepath.Join(t.Upper(), rel)
	low, lowErr := os.Lstat(filepath.Join(t.cfg.Workspace, rel))
	if lowErr != nil && !errors.Is(lowErr, fs.ErrNotExist) && !errors.Is(lowErr, syscall.ENOTDIR) {
		return c, lowErr
	}
	exists := lowErr == nil
	c.Mode, c.Size = info.Mode(), info.Size()
	if exists {
		c.Conflict = t.newer(low)
	}
	switch {
	case isWhiteout(info, up):
		if !exists {
			return Change{}, nil // made and deleted again, or gone by itself
		}
		c.Kind, c.Mode, c.Size = Deleted, low.Mode(), 0
		return c, nil
	case info.IsDir() && exists && low.IsDir():
		c.opaque = isOpaque(up)
		c.Kind = ModeOnly
		// Its children changing is no conflict of the directory's own.
		c.Conflict = false
		if c.opaque {
			c.Kind = Changed
		}
	case exists:
		c.Kind = Changed
	default:
		c.Kind = Added
		c.Conflict = hasOrigin(up) && !info.IsDir() // it was copied up from what is gone now
	}
	return c, nil
}

// newer reports whether a file of the workspace was changed after Begin. The
// status time cannot be set back by a program.
func (t *Tx) newer(info fs.FileInfo) bool {
	st, ok := info.Sys().(*unixStat)
	if !ok {
		return true
	}
	return st.Ctim.Sec > t.begun.Unix() || st.Ctim.Sec == t.begun.Unix() && st.Ctim.Nsec > int64(t.begun.Nanosecond())
}

// Overlays mark what they hide: a deleted file is a character device 0:0 or
// an empty file with the attribute "whiteout", a directory that hides the
// lower one has the attribute "opaque", and what was copied up has "origin".
// The attributes are in trusted.* for mounts of the host's root and in user.*
// for others (Documentation/filesystems/overlayfs.rst).
func isWhiteout(info fs.FileInfo, path string) bool {
	if st, ok := info.Sys().(*unixStat); ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0 {
		return true
	}
	return info.Mode().IsRegular() && info.Size() == 0 && overlayAttr(path, "whiteout") != ""
}

func isOpaque(path string) bool { return overlayAttr(path, "opaque") == "y" }

func hasOrigin(path string) bool { return overlayAttr(path, "origin") != "" }

func overlayAttr(path, name string) string {
	var buf [256]byte
	for _, space := range []string{"user.overlay.", "trusted.overlay."} {
		if n, err := unix.Lgetxattr(path, space+name, buf[:]); err == nil && n > 0 {
			return string(buf[:n])
		}
	}
	return ""
}

// overlayXattr reports whether an attribute is the overlay's own.
func overlayXattr(name string) bool {
	return strings.HasPrefix(name, "user.overlay.") || strings.HasPrefix(name, "trusted.overlay.")
}

// below reports whether rel is dir or lies below it.
func below(rel, dir string) bool {
	return rel == dir || strings.HasPrefix(rel, dir+"/")
}

// parents lists the directories above rel, the outermost first.
func parents(rel string) []string {
	var out []string
	for d := path.Dir(rel); d != "."; d = path.Dir(d) {
		out = append([]string{d}, out...)
	}
	return out
}
