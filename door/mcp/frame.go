package mcp

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// lineReader reads messages that are one line each, and holds no more than
// max bytes of one.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, 64<<10), max}
}

// line is one line as it came.
type line struct {
	// text is the line without its '\n'; only its beginning when long.
	text []byte
	// ended says that the '\n' was there: a stream may end without one.
	ended bool
	// long says that the line is longer than the limit; unless it has ended,
	// rest takes what is left of it.
	long bool
}

// next returns the next line. Its text belongs to the caller and has room
// for one byte more. io.EOF is returned alone, after the last line.
func (l *lineReader) next() (line, error) {
	var text []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if text == nil {
			// The usual case is one allocation, of the right size.
			text = make([]byte, 0, len(part))
		}
		text = append(text, part...)
		switch {
		case err == nil:
			text = text[:len(text)-1]
			return line{text: text, ended: true, long: len(text) > l.max}, nil
		case errors.Is(err, bufio.ErrBufferFull):
			if len(text) > l.max {
				return line{text: text, long: true}, nil
			}
		case len(text) > 0 && errors.Is(err, io.EOF):
			return line{text: text, long: len(text) > l.max}, nil
		default:
			return line{}, err
		}
	}
}

// rest copies what is left of a long line, with its '\n', to w.
func (l *lineReader) rest(of line, w io.Writer) error {
	if of.ended {
		_, err := w.Write([]byte{'\n'})
		return err
	}
	for {
		part, err := l.r.ReadSlice('\n')
		if _, werr := w.Write(part); werr != nil {
			return werr
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// tail keeps the last bytes that were written to it.
type tail struct{ b []byte }

const tailSize = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[max(0, len(p)-tailSize):]...)
	t.b = t.b[max(0, len(t.b)-tailSize):]
	return len(p), nil
}

// lockedWriter makes every Write whole among several writers.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// send writes one message and its line end at once.
func send(w io.Writer, msg []byte) error {
	if msg == nil {
		return nil
	}
	_, err := w.Write(append(msg[:len(msg):cap(msg)], '\n'))
	return err
}
