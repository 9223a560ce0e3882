//go:build linux

package transaction

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"
)

// How much of a text diff is made: the input of either side, and what comes
// out.
const (
	maxDiffInput = 1 << 20
	maxDiff      = 256 << 10
)

// TextDiff shows what the run changed in one file as a unified diff of at
// most 256 KiB; "" where its text is the same. Files that are not text, or too
// large, are named as such. Of a link the target is the text. It follows none.
func (t *Tx) TextDiff(rel string) (string, error) {
	if rel == "" || rel != path.Clean(rel) || path.IsAbs(rel) || below(rel, "..") {
		return "", fmt.Errorf("transaction: text diff of %q (want a clean path below the workspace)", rel)
	}
	s, err := t.scanOnly(rel)
	if err != nil {
		return "", fmt.Errorf("transaction: text diff: %w", err)
	}
	text, err := s.textDiff(rel)
	if err = errors.Join(err, s.close()); err != nil {
		return "", fmt.Errorf("transaction: text diff of %q: %w", rel, err)
	}
	return text, nil
}

func (s *scan) textDiff(rel string) (string, error) {
	for i := range s.changes {
		c := &s.changes[i]
		if c.Path != rel || c.stays() {
			continue
		}
		before, err := sideText(s.root, rel, c.low)
		if err != nil {
			return "", err
		}
		after, err := sideText(s.up, rel, c.up)
		if err != nil {
			return "", err
		}
		return unified(rel, before, after), nil
	}
	return "", nil
}

// side is one of the two texts. why: it is not shown, for this reason.
type side struct {
	there bool
	text  []byte
	why   string
}

func sideText(root int, rel string, st *unix.Stat_t) (side, error) {
	if st == nil {
		return side{}, nil
	}
	dir, base, err := openParent(root, rel)
	if err != nil {
		return side{}, err
	}
	defer unix.Close(dir)
	e := entry{dir, base}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		text, err := readlink(e)
		return side{there: true, text: []byte(text + "\n")}, err
	case unix.S_IFREG:
	default:
		return side{there: true, why: "is no file"}, nil
	}
	if st.Size > maxDiffInput {
		return side{there: true, why: fmt.Sprintf("is too large to be shown (%d bytes)", st.Size)}, nil
	}
	f, err := openForReading(e)
	if err != nil {
		return side{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDiffInput))
	if err != nil {
		return side{}, err
	}
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return side{there: true, why: "is binary"}, nil
	}
	return side{there: true, text: text}, nil
}

func unified(rel string, before, after side) string {
	from, to := "a/"+rel, "b/"+rel
	if !before.there {
		from = "/dev/null"
	}
	if !after.there {
		to = "/dev/null"
	}
	for _, x := range []side{before, after} {
		if x.why != "" {
			return fmt.Sprintf("%s and %s differ: the file %s\n", quoteName(from), quoteName(to), x.why)
		}
	}
	text := diff.Diff(quoteName(from), before.text, quoteName(to), after.text)
	// The first line names the command that would have made it.
	_, text, _ = bytes.Cut(text, []byte("\n"))
	if len(text) <= maxDiff {
		return string(text)
	}
	const mark = "\n[the rest of the diff is left out]\n"
	text = text[:maxDiff-len(mark)]
	if i := bytes.LastIndexByte(text, '\n'); i > 0 {
		text = text[:i]
	}
	return string(text) + mark
}

// quoteName keeps a name on its line: a run may name files as it likes.
func quoteName(name string) string {
	q := fmt.Sprintf("%q", name)
	if q == `"`+name+`"` && !strings.ContainsAny(name, " ") {
		return name
	}
	return q
}
