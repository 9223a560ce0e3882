package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon"
	"golang.org/x/sys/unix"
)

// tunnel opens a CONNECT and relays until both sides are done.
func (c *client) tunnel(req *request, h *headReader, release func()) {
	if !c.openFor(req) {
		return
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.p.limits.HeaderTime))
	if _, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		return
	}
	t := &relay{c: c, req: req, up: c.upstream}
	t.touch()
	// What the origin says first passes at once, though of TLS it says nothing
	// first; what the client says first is looked at.
	var down sync.WaitGroup
	listen := func() { down.Go(func() { t.pump(t.up, c.conn, false) }) }
	tlsFirst := req.port == 443 && c.p.enforcing()
	if !tlsFirst {
		listen()
	}
	first, ok := t.inspect(h)
	if ok {
		ok = t.send(first) && t.send(h.buffered())
	}
	if tlsFirst && ok {
		listen()
	}
	release()
	// Not before the first bytes are on their way.
	_ = t.up.SetKeepAlive(true) // without it the idle time still ends the tunnel
	if ok {
		t.pump(c.conn, t.up, true)
	} else {
		c.close(nil)
	}
	down.Wait()
}

// relay is an open tunnel.
type relay struct {
	c    *client
	req  *request
	up   *net.TCPConn
	last atomic.Int64 // when bytes last passed, in Unix nanoseconds
	half atomic.Bool  // one side has closed
}

func (t *relay) touch() { t.last.Store(time.Now().UnixNano()) }

// idle is how long the tunnel may be silent now.
func (t *relay) idle() time.Duration {
	if t.half.Load() {
		return t.c.p.limits.HalfCloseTime
	}
	return t.c.p.limits.IdleTime
}

// inspect reads the beginning of what the client sends. On port 443 that is
// a ClientHello for the host of the CONNECT. On other ports it may be
// anything, but a ClientHello must not name another host.
func (t *relay) inspect(h *headReader) (first []byte, ok bool) {
	if t.c.p.mode == cordon.Off {
		return nil, true
	}
	if t.req.port != 443 {
		return t.inspectOther(h)
	}
	t.c.conn.SetReadDeadline(time.Now().Add(t.c.p.limits.HelloTime))
	first, sni, err := readHello(h, nil)
	if err == nil {
		return first, t.nameFits(sni, true)
	}
	switch {
	case isTimeout(err):
		err = errors.New("no ClientHello came in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if len(first) == 0 {
			return nil, false // opened, and closed without a byte
		}
		err = errors.New("the client closed within the ClientHello")
	case errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET):
		return nil, false
	}
	return first, !t.refuse(RuleTLS, err.Error())
}

func (t *relay) inspectOther(h *headReader) ([]byte, bool) {
	for len(h.buffered()) == 0 {
		// An origin that speaks first may do so for long.
		left := t.idle() - time.Since(time.Unix(0, t.last.Load()))
		if left <= 0 {
			return nil, false
		}
		t.c.conn.SetReadDeadline(time.Now().Add(left))
		if err := h.fill(); err != nil && !isTimeout(err) {
			// The end of the client's side; the pump will see it too.
			return nil, errors.Is(err, io.EOF)
		}
	}
	if h.buffered()[0] != 22 {
		return nil, true
	}
	t.c.conn.SetReadDeadline(time.Now().Add(t.c.p.limits.HelloTime))
	first, sni, err := readHello(h, nil)
	if err != nil {
		return first, true // no TLS after all, and the rule names this port
	}
	return first, sni == "" || t.nameFits(sni, false)
}

// nameFits holds the server name of the ClientHello equal to the host of the
// CONNECT. Addresses have no server name (RFC 6066).
func (t *relay) nameFits(sni string, required bool) bool {
	isAddr := net.ParseIP(t.req.name) != nil
	if sni == "" {
		if isAddr || !required {
			return true
		}
		return !t.refuse(RuleSNI, "the ClientHello has no server name")
	}
	if name, err := Canonical(sni); err != nil || name != t.req.name {
		return !t.refuse(RuleSNI, fmt.Sprintf("the ClientHello is for %q", clip(sni)))
	}
	return true
}

// alertUnrecognizedName is a fatal TLS alert (RFC 6066), so that a client
// says something more useful than that the connection broke.
const alertUnrecognizedName = "\x15\x03\x03\x00\x02\x02\x70"

// refuse records a refusal in a tunnel, and reports whether it is carried out.
func (t *relay) refuse(rule, why string) bool {
	if !t.c.refused(Refusal{Rule: rule, Host: t.req.name, Port: t.req.port, Why: why}, false) {
		return false
	}
	if rule == RuleSNI {
		t.c.conn.SetWriteDeadline(time.Now().Add(lingerTime))
		_, _ = io.WriteString(t.c.conn, alertUnrecognizedName) // a courtesy
	}
	return true
}

// send passes bytes on that were read from the client already.
func (t *relay) send(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if err := t.c.charge(true, int64(len(b))); err != nil {
		t.c.capped(true, t.req)
		return false
	}
	t.up.SetWriteDeadline(time.Now().Add(t.idle()))
	_, err := t.up.Write(b)
	t.touch()
	return err == nil
}

// What a direction reads into: a small buffer, and a large one as long as it
// fills. An idle tunnel holds none. Measured over loopback, copying
// through the large one takes less of the processor than splice(2), whose
// work is by the page, and every byte is counted before it passes.
var (
	small = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}
	large = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}
)

// pump copies one direction until its end, and then half-closes dst. A
// failure closes the tunnel.
func (t *relay) pump(src, dst net.Conn, up bool) {
	in := newTap(src)
	for {
		n, err := t.next(in)
		if n > 0 {
			err = t.pass(in, n, dst, up)
		}
		in.release(n)
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			t.finish(dst)
			return
		case errors.Is(err, errCap):
			t.c.capped(up, t.req)
		}
		t.c.close(nil)
		return
	}
}

// pass counts n bytes that were read and writes them.
func (t *relay) pass(in *tap, n int, dst net.Conn, up bool) error {
	if err := t.c.charge(up, int64(n)); err != nil {
		return err
	}
	dst.SetWriteDeadline(time.Now().Add(t.idle()))
	_, err := dst.Write(in.held()[:n])
	t.touch()
	return err
}

// finish half-closes: what the other side still has to say is heard, while
// it says something.
func (t *relay) finish(dst net.Conn) {
	t.touch()
	if t.half.Swap(true) {
		return // the second end: both connections are closed next
	}
	closeWrite(dst)
	// The other direction may be waiting by the longer time.
	dst.SetReadDeadline(time.Now().Add(t.c.p.limits.HalfCloseTime))
}

// tap reads from a connection into a buffer that it takes only when there is
// something to read.
type tap struct {
	conn net.Conn
	raw  syscall.RawConn // nil: not a socket
	pool *sync.Pool      // what the next buffer comes from
	buf  *[]byte
	n    int
	err  error
	try  func(fd uintptr) bool
}

func newTap(conn net.Conn) *tap {
	in := &tap{conn: conn, pool: &small}
	in.try = in.tryRead
	if s, ok := conn.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			in.raw = raw
		}
	}
	return in
}

func (in *tap) held() []byte { return *in.buf }

func (in *tap) hold() {
	if in.buf == nil {
		in.buf = in.pool.Get().(*[]byte)
	}
}

// release gives the buffer back after n bytes, which tell how large the next
// one is to be.
func (in *tap) release(n int) {
	if in.buf == nil {
		return
	}
	size := len(*in.buf)
	in.pool.Put(in.buf)
	in.buf = nil
	switch {
	case in.pool == &small && n == size:
		in.pool = &large
	case in.pool == &large && n < size/8:
		in.pool = &small
	}
}

// read reads once. The bytes are in held until release.
func (in *tap) read() (int, error) {
	if in.raw == nil {
		in.hold()
		return in.conn.Read(*in.buf)
	}
	if err := in.raw.Read(in.try); err != nil {
		return 0, err
	}
	if in.n == 0 && in.err == nil {
		return 0, io.EOF
	}
	return in.n, in.err
}

// tryRead reports false when there is nothing to read yet.
func (in *tap) tryRead(fd uintptr) bool {
	in.hold()
	for {
		in.n, in.err = unix.Read(int(fd), *in.buf)
		switch in.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			in.release(0)
			return false
		}
		in.n = max(in.n, 0)
		return true
	}
}

// next waits for bytes and reads some. The error is io.EOF at the end, and a
// timeout when the tunnel has been silent for too long.
func (t *relay) next(in *tap) (int, error) {
	for {
		limit := t.idle()
		left := limit - time.Since(time.Unix(0, t.last.Load()))
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		in.conn.SetReadDeadline(time.Now().Add(left))
		if t.idle() != limit {
			continue // half-closed between the two; the shorter time holds
		}
		n, err := in.read()
		if n > 0 || !isTimeout(err) {
			return n, err
		}
		in.release(0) // silent on this side; perhaps not on the other
	}
}
