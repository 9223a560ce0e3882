package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// AppendFields appends a message: its length, then fields, each with its length
// before it.
func AppendFields(dst []byte, fields ...[]byte) []byte {
	n := 0
	for _, f := range fields {
		n += 4 + len(f)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	for _, f := range fields {
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(f))), f...)
	}
	return dst
}

// ReadFields reads a message of at most most bytes.
func ReadFields(r io.Reader, most int) ([][]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > most {
		return nil, fmt.Errorf("daemon: a message of %d bytes (want at most %d)", n, most)
	}
	// What is announced is not believed until it came.
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	return SplitFields(buf.Bytes())
}

// SplitFields takes apart what comes after the length.
func SplitFields(b []byte) ([][]byte, error) {
	var fields [][]byte
	for len(b) > 0 {
		if len(b) < 4 || len(fields) == MaxFields {
			return nil, errors.New("daemon: a malformed message")
		}
		n := int(binary.BigEndian.Uint32(b))
		if b = b[4:]; n > len(b) {
			return nil, errors.New("daemon: a malformed message")
		}
		fields, b = append(fields, b[:n:n]), b[n:]
	}
	return fields, nil
}

// Join makes a field of a list.
func Join(list []string) []byte {
	var b []byte
	for _, s := range list {
		b = append(append(b, s...), 0)
	}
	return b
}

// Split takes it apart.
func Split(b []byte) ([]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	s, ok := strings.CutSuffix(string(b), "\x00")
	if !ok {
		return nil, errors.New("daemon: a malformed list")
	}
	list := strings.Split(s, "\x00")
	if len(list) > MaxFields {
		return nil, fmt.Errorf("daemon: a list of %d (want at most %d)", len(list), MaxFields)
	}
	return list, nil
}
