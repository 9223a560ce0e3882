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
	// What the origin says first passes at once; what the client says first
	// is looked at.
	var down sync.WaitGroup
	down.Go(func() { t.pump(t.up, c.conn, false) })
	first, ok := t.inspect(h)
	rest := h.buffered()
	if ok {
		ok = t.send(first) && t.send(rest)
	}
	release()
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
	if len(h.buffered()) == 0 {
		if !t.wait(t.c.conn) {
			return nil, false
		}
		t.c.conn.SetReadDeadline(time.Now().Add(t.c.p.limits.HelloTime))
		if err := h.fill(); err != nil {
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

// burst is how long a copy goes on before it looks at the clock again. It
// holds a pipe or a buffer only for that long, so an idle tunnel costs
// neither.
const burst = 500 * time.Millisecond

// pump copies one direction until its end, and then half-closes dst. A
// failure closes the tunnel.
func (t *relay) pump(src, dst net.Conn, up bool) {
	limit := t.c.p.limits.DownloadBytes
	if up {
		limit = t.c.p.limits.UploadBytes
	}
	copyBurst := t.splice
	if limit > 0 {
		copyBurst = t.copyCounted
	}
	for t.wait(src) {
		done, err := copyBurst(src, dst, up)
		if err != nil {
			if errors.Is(err, errCap) {
				t.c.capped(up, t.req)
			}
			break
		}
		if done {
			t.finish(src, dst)
			return
		}
	}
	t.c.close(nil)
}

// finish half-closes: what the other side still has to say is heard, while
// it says something.
func (t *relay) finish(src, dst net.Conn) {
	t.touch()
	closeWrite(dst)
	if t.half.Swap(true) {
		return
	}
	// The other direction may be waiting by the longer time.
	dst.SetReadDeadline(time.Now().Add(t.c.p.limits.HalfCloseTime))
}

// splice copies from a src that is readable, by splice(2) where both ends
// are sockets that can, until src has been silent or burst is over. done
// reports the end of src.
func (t *relay) splice(src, dst net.Conn, up bool) (done bool, err error) {
	now := time.Now()
	stall := now.Add(burst + t.idle())
	src.SetReadDeadline(now.Add(burst))
	dst.SetWriteDeadline(stall)
	n, err := io.Copy(dst, src)
	t.touch()
	if cerr := t.c.charge(up, n); cerr != nil {
		return false, cerr
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(stall):
		return false, nil // of reading; nothing is lost by it
	}
	return false, err
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// copyCounted copies what one read returns, and counts before it writes.
func (t *relay) copyCounted(src, dst net.Conn, up bool) (done bool, err error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	src.SetReadDeadline(time.Now().Add(burst))
	n, err := src.Read(*buf)
	if n > 0 {
		if err := t.c.charge(up, int64(n)); err != nil {
			return false, err
		}
		dst.SetWriteDeadline(time.Now().Add(t.idle()))
		if _, err := dst.Write((*buf)[:n]); err != nil {
			return false, err
		}
		t.touch()
	}
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case isTimeout(err):
		return false, nil
	}
	return false, err
}

// wait waits until src has bytes or has ended, without a buffer. It reports
// false when the tunnel has been silent for too long, or src failed.
func (t *relay) wait(src net.Conn) bool {
	raw, ok := src.(syscall.Conn)
	if !ok {
		return true
	}
	rc, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	for {
		limit := t.idle()
		left := limit - time.Since(time.Unix(0, t.last.Load()))
		if left <= 0 || t.c.ctx.Err() != nil {
			return false
		}
		src.SetReadDeadline(time.Now().Add(left))
		if t.idle() != limit {
			continue // half-closed between the two; the shorter time holds
		}
		err := rc.Read(readable)
		if err == nil {
			return true
		}
		if !isTimeout(err) {
			return false
		}
	}
}

// readable peeks one byte. Errors other than "not yet" are for the read that
// follows.
func readable(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return err != unix.EAGAIN
		}
	}
}
