package egress

import (
	"errors"
	"io"
	"strings"
)

// Bounds of the lines in a chunked body.
const (
	maxChunkLine = 256
	maxTrailer   = 4 << 10
)

// chunkReader reads a chunked body (RFC 9112, 7.1) strictly: hexadecimal
// sizes of at most eight digits, CR LF everywhere. Extensions and trailers
// are read and dropped. A read that failed with a timeout can be taken up
// again.
type chunkReader struct {
	src     io.Reader
	state   chunkState
	left    int64
	line    []byte
	trailer int
	done    bool
	failed  error
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd
	chunkTrailer
)

func (r *chunkReader) Read(p []byte) (int, error) {
	for {
		switch {
		case r.failed != nil:
			return 0, r.failed
		case r.done:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		if r.state == chunkData {
			n, err := r.src.Read(p[:min(int64(len(p)), r.left)])
			if r.left -= int64(n); r.left == 0 {
				r.state = chunkEnd
			}
			if n > 0 {
				return n, nil
			}
			return 0, unexpected(err)
		}
		line, err := r.readLine()
		if err != nil {
			return 0, err
		}
		if err := r.take(line); err != nil {
			r.failed = err
			return 0, err
		}
	}
}

// take acts on one whole line.
func (r *chunkReader) take(line string) error {
	switch r.state {
	case chunkSize:
		n, err := parseChunkSize(line)
		if err != nil {
			return err
		}
		r.left, r.state = n, chunkData
		if n == 0 {
			r.state = chunkTrailer
		}
	case chunkEnd:
		if line != "" {
			return malformed("a chunk is longer than its size")
		}
		r.state = chunkSize
	case chunkTrailer:
		if line == "" {
			r.done = true
			return nil
		}
		if r.trailer += len(line); r.trailer > maxTrailer {
			return malformed("the trailers are too large")
		}
		name, _, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsFunc(name, func(c rune) bool { return c > 0x7f || !tokenByte(byte(c)) }) {
			return malformed("a trailer without a name and a colon")
		}
		if hopByHop[strings.ToLower(name)] {
			return malformed("a trailer that decides where the message ends or goes")
		}
	}
	return nil
}

// readLine reads up to CR LF, one byte at a time from what is buffered.
func (r *chunkReader) readLine() (string, error) {
	var one [1]byte
	for {
		n, err := r.src.Read(one[:])
		if n == 0 {
			return "", unexpected(err)
		}
		c := one[0]
		cr := len(r.line) > 0 && r.line[len(r.line)-1] == '\r'
		switch {
		case c == '\n' && cr:
			line := string(r.line[:len(r.line)-1])
			r.line = r.line[:0]
			return line, nil
		case c == '\n' || cr:
			r.failed = malformed("a bare CR or LF in a chunked body")
		case c < ' ' && c != '\r' && c != '\t' || c == 0x7f:
			r.failed = malformed("a control character in a chunked body")
		case len(r.line) >= maxChunkLine:
			r.failed = malformed("a line of a chunked body is too long")
		}
		if r.failed != nil {
			return "", r.failed
		}
		r.line = append(r.line, c)
	}
}

func parseChunkSize(line string) (int64, error) {
	digits, extension, _ := strings.Cut(line, ";")
	if len(digits) == 0 || len(digits) > 8 {
		return 0, malformed("a chunk size of %d digits (want 1 to 8)", len(digits))
	}
	if strings.ContainsAny(extension, "\t") {
		return 0, malformed("a control character in a chunk extension")
	}
	var n int64
	for _, c := range []byte(digits) {
		if !hexDigit(c) {
			return 0, malformed("chunk size %q (want hexadecimal digits)", digits)
		}
		n = n<<4 | int64(hexValue(c))
	}
	return n, nil
}

func hexValue(c byte) byte {
	switch {
	case digit(c):
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}

func unexpected(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
