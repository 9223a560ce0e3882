package egress

import (
	"encoding/binary"
	"errors"
	"io"
)

// maxHello bounds a ClientHello. Those of browsers with post-quantum keys
// have some 2 KiB.
const maxHello = 16 << 10

// Why a ClientHello is refused.
var (
	errNotTLS    = errors.New("the tunnel does not begin with a TLS ClientHello")
	errHelloSize = errors.New("the ClientHello is larger than 16 KiB")
	errHelloForm = errors.New("the ClientHello is malformed")
	errTwoNames  = errors.New("the ClientHello has more than one server name")
)

// readHello reads a ClientHello from r, which may come in any number of
// segments and TLS records (RFC 8446, 5.1), and returns all bytes read, for
// they are to be passed on, with the server name; "" where there is none. An
// error of r is returned as it is. buf is appended to.
func readHello(r io.Reader, buf []byte) (raw []byte, sni string, err error) {
	var message []byte
	want := 4
	for len(message) < want {
		at := len(buf)
		if buf, err = readMore(r, buf, 5); err != nil {
			return buf, "", err
		}
		head := buf[at : at+5]
		if head[0] != 22 || head[1] != 3 || head[2] > 4 {
			return buf, "", errNotTLS
		}
		n := int(binary.BigEndian.Uint16(head[3:]))
		if n == 0 {
			return buf, "", errHelloForm // an empty record serves to hide, RFC 8446 forbids it
		}
		// Many tiny records cost more than they carry: what was read counts too.
		if n > maxHello || len(message)+n > maxHello+4 || len(buf) > 2*maxHello {
			return buf, "", errHelloSize
		}
		if buf, err = readMore(r, buf, n); err != nil {
			return buf, "", err
		}
		message = append(message, buf[len(buf)-n:]...)
		if message[0] != 1 {
			return buf, "", errNotTLS
		}
		if len(message) >= 4 {
			want = 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
			if want > maxHello+4 {
				return buf, "", errHelloSize
			}
		}
	}
	// A client has nothing to say after its ClientHello in the same flight of
	// handshake records.
	if len(message) > want {
		return buf, "", errHelloForm
	}
	sni, err = serverName(message[4:want])
	return buf, sni, err
}

func readMore(r io.Reader, buf []byte, n int) ([]byte, error) {
	at := len(buf)
	if cap(buf) < at+n {
		grown := make([]byte, at, max(2*cap(buf), at+n))
		copy(grown, buf)
		buf = grown
	}
	got, err := io.ReadFull(r, buf[at:at+n])
	return buf[:at+got], err
}

// serverName reads the body of a ClientHello (RFC 8446, 4.1.2) and its
// server_name extension (RFC 6066, 3). The lengths have to come out even.
func serverName(b []byte) (string, error) {
	h := cursor{b: b}
	h.take(2 + 32) // legacy_version, random
	if id := h.vector(1); len(id) > 32 {
		return "", errHelloForm
	}
	if suites := h.vector(2); len(suites) < 2 || len(suites)%2 != 0 {
		return "", errHelloForm
	}
	if methods := h.vector(1); len(methods) == 0 {
		return "", errHelloForm
	}
	if h.bad {
		return "", errHelloForm
	}
	if len(h.b) == 0 {
		return "", nil // no extensions: an old client, without a name
	}
	exts := cursor{b: h.vector(2)}
	if h.bad || len(h.b) != 0 {
		return "", errHelloForm
	}
	name, seen := "", false
	for len(exts.b) > 0 && !exts.bad {
		kind, body := exts.uint16(), exts.vector(2)
		if kind != 0 || exts.bad {
			continue
		}
		if seen {
			return "", errTwoNames
		}
		seen = true
		var err error
		if name, err = hostName(body); err != nil {
			return "", err
		}
	}
	if exts.bad {
		return "", errHelloForm
	}
	return name, nil
}

func hostName(ext []byte) (string, error) {
	e := cursor{b: ext}
	list := cursor{b: e.vector(2)}
	kind := list.take(1)
	name := list.vector(2)
	if e.bad || list.bad || len(e.b) != 0 || len(name) == 0 || kind[0] != 0 {
		return "", errHelloForm
	}
	if len(list.b) != 0 {
		return "", errTwoNames
	}
	for _, c := range name {
		// Bytes, never mapped: what a server reads raw is compared raw.
		if !letter(c) && !digit(c) && c != '.' && c != '-' && c != '_' && c != ':' {
			return "", errHelloForm
		}
	}
	return string(name), nil
}

// cursor reads length-prefixed fields; past the end it turns bad.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || len(c.b) < n {
		c.bad = true
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) uint16() int {
	b := c.take(2)
	if b == nil {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}

func (c *cursor) vector(prefix int) []byte {
	n := 0
	for _, b := range c.take(prefix) {
		n = n<<8 | int(b)
	}
	return c.take(n)
}
