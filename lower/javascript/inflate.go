package javascript

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
)

// inflate unpacks constant bytes as the function of node:zlib does, bounded.
func inflate(x set, name string) (set, bool) {
	v, ok := x.single()
	if !ok || v.k != vBytes {
		return set{}, false
	}
	in := bytes.NewReader([]byte(v.s))
	var r io.Reader
	var err error
	low := strings.ToLower(name)
	switch {
	case strings.Contains(low, "inflateraw"):
		r = flate.NewReader(in)
	case strings.Contains(low, "gunzip"), strings.HasPrefix(low, "unzip") && strings.HasPrefix(v.s, "\x1f\x8b"):
		r, err = gzip.NewReader(in)
	case strings.Contains(low, "inflate"), strings.HasPrefix(low, "unzip"):
		r, err = zlib.NewReader(in)
	default:
		return set{}, false
	}
	if err != nil {
		return set{}, false
	}
	b, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil || len(b) > maxText {
		return set{}, false
	}
	out := one(value{k: vBytes, s: string(b)}).with(x)
	out.t |= decoded
	return out, true
}
