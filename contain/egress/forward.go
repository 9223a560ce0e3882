package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// Bounds of plain HTTP.
const (
	// eagerBody is how much of a chunked body is read before the origin hears
	// of the request, so that a malformed one never starts.
	eagerBody = 64 << 10
	eagerTime = 2 * time.Second
	// maxResponseHead bounds what an origin may make the proxy hold.
	maxResponseHead = 64 << 10
	maxInterim      = 8
)

// forward passes one plain HTTP request on, over a connection of its own. It
// reports whether the client's connection can carry another.
func (c *client) forward(req *request, h *headReader) (again bool) {
	conn := idleConn{c.conn, c.p.limits.IdleTime}
	if req.expect && len(h.buffered()) == 0 && req.length != 0 {
		if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	body, err := c.requestBody(req, h)
	if err != nil {
		c.badRequest(err)
		return false
	}
	if !c.openFor(req) {
		return false
	}
	defer c.detach()
	up := idleConn{c.upstream, c.p.limits.IdleTime}
	if err := c.writeAll(up, req.head(), req); err != nil {
		c.failed(err, req)
		return false
	}
	// An origin may answer before it has the whole body.
	sent := make(chan error, 1)
	go func() { sent <- c.sendBody(up, body, req) }()
	again, err = c.respond(conn, up, req)
	if err != nil {
		c.failed(err, req)
		c.close(nil)
		<-sent
		return false
	}
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case err := <-sent:
		return again && err == nil
	case <-timer.C:
	}
	c.close(nil) // answered early, and the rest of the body does not come
	<-sent
	return false
}

// failed answers, where nothing was answered yet, that the origin did not.
func (c *client) failed(err error, req *request) {
	var before *beforeAnswer
	switch {
	case !errors.As(err, &before):
	case isTimeout(err):
		c.answer(http.StatusGatewayTimeout, "", req.address(), "it did not answer in time")
	default:
		c.answer(http.StatusBadGateway, "", req.address(), "its answer could not be read")
	}
}

// beforeAnswer is a failure before the client was sent anything.
type beforeAnswer struct{ err error }

func (e *beforeAnswer) Error() string { return e.err.Error() }
func (e *beforeAnswer) Unwrap() error { return e.err }

// requestBody returns the body as a reader, nil where there is none. Of a
// chunked one the beginning is read and checked; where that is all of it, it
// becomes one of known length.
func (c *client) requestBody(req *request, h *headReader) (io.Reader, error) {
	switch {
	case !req.chunked && req.length == 0:
		return nil, nil
	case !req.chunked:
		return &idleReader{io.LimitReader(h, req.length), c.conn, c.p.limits.IdleTime}, nil
	}
	chunks := &chunkReader{src: h}
	var begin bytes.Buffer
	c.conn.SetReadDeadline(time.Now().Add(eagerTime))
	_, err := io.Copy(&begin, io.LimitReader(chunks, eagerBody))
	if err != nil && !isTimeout(err) {
		return nil, err
	}
	if chunks.done {
		req.chunked, req.length = false, int64(begin.Len())
		return &begin, nil
	}
	return io.MultiReader(&begin, &idleReader{chunks, c.conn, c.p.limits.IdleTime}), nil
}

func (c *client) sendBody(up idleConn, body io.Reader, req *request) error {
	if body == nil {
		return nil
	}
	var w io.WriteCloser = nopCloser{up}
	if req.chunked {
		w = httputil.NewChunkedWriter(up)
	}
	n, err := io.Copy(w, &chargedReader{body, c, true})
	if err == nil && !req.chunked && n < req.length {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil && req.chunked {
		_, err = io.WriteString(up, "\r\n") // no trailers
	}
	var syntax *syntaxError
	switch {
	case errors.Is(err, errCap):
		c.capped(true, req)
	case errors.As(err, &syntax):
		c.refused(Refusal{Rule: RuleSyntax, Host: req.name, Port: req.port, Why: syntax.why}, true)
		c.detach()
	case err != nil:
		// The origin must not take what came for the whole.
		c.detach()
	}
	return err
}

func (c *client) writeAll(up idleConn, b []byte, req *request) error {
	if err := c.charge(true, int64(len(b))); err != nil {
		c.capped(true, req)
		return err
	}
	if _, err := up.Write(b); err != nil {
		return &beforeAnswer{err}
	}
	return nil
}

// hopByHop are the fields that end at a proxy (RFC 9110, 7.6.1), with those
// that the proxy writes itself.
var hopByHop = map[string]bool{
	"connection": true, "proxy-connection": true, "keep-alive": true, "te": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true, "proxy-authorization": true, "proxy-authenticate": true,
	"proxy-authentication-info": true, "http2-settings": true, "expect": true, "host": true, "content-length": true,
}

// head spells the request for the origin.
func (r *request) head() []byte {
	var b bytes.Buffer
	host := r.name
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if r.port != 80 {
		host += ":" + strconv.Itoa(int(r.port))
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.path, host)
	for _, f := range r.fields {
		if hopByHop[strings.ToLower(f.name)] || r.connectionSays(f.name) {
			continue
		}
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
	switch {
	case r.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case r.length > 0 || r.method == http.MethodPost || r.method == http.MethodPut || r.method == http.MethodPatch:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", r.length)
	}
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}

// respond reads the origin's answer and passes it on.
func (c *client) respond(conn, up idleConn, req *request) (again bool, err error) {
	limited := &io.LimitedReader{R: &chargedReader{up, c, false}, N: maxResponseHead}
	br := bufio.NewReaderSize(limited, 4<<10)
	var resp *http.Response
	for n := 0; ; n++ {
		if resp, err = http.ReadResponse(br, &http.Request{Method: req.method}); err != nil {
			if errors.Is(err, errCap) {
				c.capped(false, req)
			}
			return false, &beforeAnswer{err}
		}
		if resp.StatusCode >= 200 {
			break
		}
		if n >= maxInterim || resp.StatusCode == http.StatusSwitchingProtocols {
			return false, &beforeAnswer{errors.New("egress: an interim answer that was not asked for")}
		}
	}
	defer resp.Body.Close()
	limited.N = math.MaxInt64
	bodyless := req.method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	chunked := !bodyless && resp.ContentLength < 0 && req.minor == 1
	again = req.keepOpen && (bodyless || chunked || resp.ContentLength >= 0)
	if _, err := conn.Write(responseHead(resp, chunked, again)); err != nil {
		return false, err
	}
	if bodyless {
		return again, nil
	}
	var w io.WriteCloser = nopCloser{conn}
	if chunked {
		w = httputil.NewChunkedWriter(conn)
	}
	_, err = io.Copy(w, resp.Body)
	if errors.Is(err, errCap) {
		c.capped(false, req)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil && chunked {
		_, err = io.WriteString(conn, "\r\n")
	}
	return again, err
}

func responseHead(resp *http.Response, chunked, again bool) []byte {
	var b bytes.Buffer
	reason := http.StatusText(resp.StatusCode)
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, reason)
	listed := resp.Header.Values("Connection")
	for name := range resp.Header {
		drop := hopByHop[strings.ToLower(name)]
		for _, list := range listed {
			drop = drop || listHas(list, name)
		}
		if drop {
			resp.Header.Del(name)
		}
	}
	_ = resp.Header.Write(&b) // a buffer takes everything
	switch {
	case chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case resp.ContentLength >= 0 && resp.StatusCode != http.StatusNoContent:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", resp.ContentLength)
	}
	if !again {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// idleConn bounds each read and write.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (c idleConn) Read(p []byte) (int, error) {
	c.Conn.SetReadDeadline(time.Now().Add(c.idle))
	return c.Conn.Read(p)
}

func (c idleConn) Write(p []byte) (int, error) {
	c.Conn.SetWriteDeadline(time.Now().Add(c.idle))
	return c.Conn.Write(p)
}

// idleReader bounds each read from conn that r makes.
type idleReader struct {
	r    io.Reader
	conn net.Conn
	idle time.Duration
}

func (r *idleReader) Read(p []byte) (int, error) {
	r.conn.SetReadDeadline(time.Now().Add(r.idle))
	return r.r.Read(p)
}

// chargedReader counts what is read, and fails before it hands out what
// exceeds the cap.
type chargedReader struct {
	r  io.Reader
	c  *client
	up bool
}

func (r *chargedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		if err := r.c.charge(r.up, int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
