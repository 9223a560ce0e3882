package egress

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// hello builds a ClientHello message with these extensions.
func hello(extensions ...[]byte) []byte {
	var exts []byte
	for _, e := range extensions {
		exts = append(exts, e...)
	}
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	body = binary.BigEndian.AppendUint16(body, uint16(len(exts)))
	body = append(body, exts...)
	return append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

func extension(kind uint16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

func nameList(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(n)))
		list = append(list, n...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)
}

// records cuts a message into TLS records of at most size bytes.
func records(message []byte, size int) []byte {
	var out []byte
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, 22, 3, 1, byte(n>>8), byte(n))
		out = append(out, message[:n]...)
		message = message[n:]
	}
	return out
}

func TestReadHello(t *testing.T) {
	named := hello(extension(0x0a0a, nil), extension(0, nameList("pkg.example.net")), extension(16, []byte("h2")))
	huge := hello(extension(0, nameList("pkg.example.net")), extension(21, make([]byte, 15<<10)))
	for _, c := range []struct {
		name, sni string
		raw       []byte
		err       error
	}{
		{"one record", "pkg.example.net", records(named, 1<<14), nil},
		{"many records", "pkg.example.net", records(named, 7), nil},
		{"records of one byte", "pkg.example.net", records(named, 1), nil},
		{"no server name", "", records(hello(extension(16, nil)), 1<<14), nil},
		{"no extensions at all", "", records(append([]byte{1, 0, 0, 41, 3, 3}, append(make([]byte, 32), 0, 0, 2, 0x13, 1, 1, 0)...), 1<<14), nil},
		{"an ECH extension beside the outer name", "pkg.example.net", records(hello(extension(0xfe0d, []byte{0, 1}), extension(0, nameList("pkg.example.net"))), 1<<14), nil},
		{"large, but within bounds", "pkg.example.net", records(huge, 4096), nil},
		{"larger than 16 KiB", "", records(hello(extension(21, make([]byte, 17<<10)), extension(0, nameList("pkg.example.net"))), 1<<14), errHelloSize},
		{"said to be larger than 16 KiB", "", records([]byte{1, 1, 0, 0}, 4), errHelloSize},
		{"a record larger than 16 KiB", "", []byte{22, 3, 1, 0xff, 0xff, 1}, errHelloSize},
		{"so many tiny records that they cost more than they carry", "", records(hello(extension(21, make([]byte, 12<<10))), 1), errHelloSize},
		{"two server_name extensions", "", records(hello(extension(0, nameList("pkg.example.net")), extension(0, nameList("evil.test"))), 1<<14), errTwoNames},
		{"two names in one extension", "", records(hello(extension(0, nameList("pkg.example.net", "evil.test"))), 1<<14), errTwoNames},
		{"an empty name", "", records(hello(extension(0, nameList(""))), 1<<14), errHelloForm},
		{"a NUL in the name", "", records(hello(extension(0, nameList("pkg.example.net\x00.evil.test"))), 1<<14), errHelloForm},
		{"a name past ASCII", "", records(hello(extension(0, nameList("ｐkg.example.net"))), 1<<14), errHelloForm},
		{"an empty list of names", "", records(hello(extension(0, []byte{0, 0})), 1<<14), errHelloForm},
		{"bytes after the list of names", "", records(hello(extension(0, append(nameList("pkg.example.net"), 0))), 1<<14), errHelloForm},
		{"an extension longer than what is left", "", records(hello([]byte{0, 0, 0, 99, 0}), 1<<14), errHelloForm},
		{"bytes after the message in its record", "", records(append(bytes.Clone(named), 1, 0, 0, 0), 1<<14), errHelloForm},
		{"an empty record", "", append([]byte{22, 3, 1, 0, 0}, records(named, 1<<14)...), errHelloForm},
		{"another handshake message", "", records([]byte{2, 0, 0, 0}, 4), errNotTLS},
		{"an alert", "", []byte{21, 3, 3, 0, 2, 2, 40}, errNotTLS},
		{"an alert between two records", "", append(records(named[:9], 9), 21, 3, 3, 0, 2, 1, 0), errNotTLS},
		{"SSL 2", "", []byte{0x80, 0x2e, 1, 3, 1, 0, 0x15}, errNotTLS},
		{"HTTP", "", []byte("GET / HTTP/1.1\r\n\r\n"), errNotTLS},
		{"an end in the middle", "", records(named, 1<<14)[:30], io.ErrUnexpectedEOF},
		{"nothing", "", nil, io.EOF},
	} {
		for _, r := range []io.Reader{bytes.NewReader(c.raw), iotest.OneByteReader(bytes.NewReader(c.raw))} {
			raw, sni, err := readHello(r, nil)
			if sni != c.sni || !errors.Is(err, c.err) {
				t.Errorf("%s: %q, %v; want %q, %v", c.name, sni, err, c.sni, c.err)
			}
			if !bytes.HasPrefix(c.raw, raw) || err == nil && len(raw) != len(c.raw) {
				t.Errorf("%s: the bytes read (%d) are not those sent (%d)", c.name, len(raw), len(c.raw))
			}
		}
	}
}

func FuzzReadHello(f *testing.F) {
	named := hello(extension(0, nameList("pkg.example.net")))
	for _, b := range [][]byte{records(named, 1<<14), records(named, 3), hello(extension(0, nameList("a", "b"))), {22, 3, 1, 0, 0}, []byte("GET /")} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, sni, err := readHello(bytes.NewReader(b), nil)
		if !bytes.HasPrefix(b, raw) {
			t.Fatalf("bytes read are not those sent")
		}
		if len(raw) > 3*maxHello {
			t.Fatalf("%d bytes were read for one ClientHello", len(raw))
		}
		if err == nil && sni != "" && !bytes.Contains(joined(raw), []byte(sni)) {
			t.Fatalf("the name %q is not in the bytes", sni)
		}
		// How the records are cut makes no difference to the name.
		if err == nil {
			if _, again, err := readHello(bytes.NewReader(records(joined(raw), 100)), nil); err != nil || again != sni {
				t.Fatalf("cut otherwise: %q, %v; want %q", again, err, sni)
			}
		}
	})
}

// joined is the handshake message without the record headers.
func joined(raw []byte) []byte {
	var out []byte
	for len(raw) >= 5 {
		n := int(binary.BigEndian.Uint16(raw[3:]))
		n = min(n, len(raw)-5)
		out = append(out, raw[5:5+n]...)
		raw = raw[5+n:]
	}
	return out
}

func FuzzParseHead(f *testing.F) {
	for _, cases := range allCases() {
		for _, c := range cases {
			if len(c.raw) < 2000 {
				f.Add([]byte(c.raw))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &headReader{src: bytes.NewReader(b), buf: make([]byte, 4<<10)}
		head, err := h.head()
		if err != nil {
			return
		}
		r, err := parseHead(head)
		if err != nil {
			return
		}
		if again, err := Canonical(r.name); err != nil || again != r.name || r.port == 0 {
			t.Fatalf("%q: name %q (%v), port %d", head, r.name, err, r.port)
		}
		if !r.plain() {
			sameByNetHTTP(t, head, r, r.address())
			return
		}
		// What goes to the origin is read the same way by the same reader, and
		// by another one.
		out := r.head()
		host := r.name
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if r.port != 80 {
			host += ":" + strconv.Itoa(int(r.port))
		}
		sameByNetHTTP(t, out, r, host)
		if bytes.Count(out, []byte("\r\n\r\n")) != 1 || !bytes.HasSuffix(out, []byte("\r\n\r\n")) {
			t.Fatalf("%q became more than one head: %q", head, out)
		}
		lines, err := splitLines(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", head, out, err)
		}
		hosts, ends := 0, 0
		for _, l := range lines[1:] {
			l := bytes.ToLower([]byte(l))
			if bytes.HasPrefix(l, []byte("host:")) {
				hosts++
			}
			if bytes.HasPrefix(l, []byte("content-length:")) || bytes.HasPrefix(l, []byte("transfer-encoding:")) {
				ends++
			}
		}
		if hosts != 1 || ends > 1 {
			t.Fatalf("%q became %q: %d hosts, %d framings", head, out, hosts, ends)
		}
	})
}

// sameByNetHTTP holds what was accepted against another reader.
func sameByNetHTTP(t *testing.T, head []byte, r *request, host string) {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		t.Fatalf("%q: accepted here, by net/http: %v", head, err)
	}
	if r.plain() && req.Host != host || !r.plain() && !sameAuthority(req.URL.Host, r) {
		t.Fatalf("%q: for %q here, for %q by net/http", head, host, req.Host)
	}
	if req.Method != r.method {
		t.Fatalf("%q: method %q here, %q by net/http", head, r.method, req.Method)
	}
	if chunked := len(req.TransferEncoding) > 0; chunked != r.chunked || !chunked && req.ContentLength != r.length {
		t.Fatalf("%q: length %d (chunked %v) here, %d (%v) by net/http", head, r.length, r.chunked, req.ContentLength, chunked)
	}
}

// sameAuthority reports whether "host:port" is what a CONNECT was read as.
func sameAuthority(authority string, r *request) bool {
	host, port, err := SplitHostPort(authority)
	return err == nil && host == r.host && port == r.port
}

func FuzzChunks(f *testing.F) {
	for _, s := range []string{"5\r\nhello\r\n0\r\n\r\n", "5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n", "0\r\n\r\n", "ffffffff\r\nx", "5\nhello", "-1\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		whole, err := io.ReadAll(&chunkReader{src: bytes.NewReader([]byte(s))})
		slow, err2 := io.ReadAll(iotest.OneByteReader(&chunkReader{src: iotest.OneByteReader(bytes.NewReader([]byte(s)))}))
		if !bytes.Equal(whole, slow) || (err == nil) != (err2 == nil) {
			t.Fatalf("%q: %q, %v and in pieces %q, %v", s, whole, err, slow, err2)
		}
		if len(whole) > len(s) {
			t.Fatalf("%q: %d bytes out of %d", s, len(whole), len(s))
		}
	})
}
