package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// newClient is the HTTP client for servers. Redirects are not followed: they
// would carry the configured headers elsewhere.
func newClient(l Limits) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxIdleConns:           1024,
			MaxIdleConnsPerHost:    256,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: int64(l.Header),
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// httpLink is a link to a streamable HTTP server, with a session of its own
// where the server gives one.
type httpLink struct {
	peer *peer
	// stateless: revision 2026-07-28; each request stands for itself.
	stateless bool
	life      context.Context
	end       context.CancelFunc
	gone      chan struct{}
	once      sync.Once
	// heard is closed when the session's own stream is open, or will not be.
	heard chan struct{}

	mu        sync.Mutex // guards all below
	session   string
	version   string
	listening bool
}

func newHTTPLink(c *peer, stateless bool) *httpLink {
	h := &httpLink{peer: c, stateless: stateless, gone: make(chan struct{}), heard: make(chan struct{})}
	h.life, h.end = context.WithCancel(c.party.ctx)
	return h
}

func (h *httpLink) dead() <-chan struct{} { return h.gone }

func (h *httpLink) opened(version string) {
	h.mu.Lock()
	h.version = version
	h.mu.Unlock()
}

// close ends the server's session, as far as it listens.
func (h *httpLink) close(bool) {
	h.once.Do(func() { close(h.gone) })
	h.end()
	h.mu.Lock()
	session := h.session
	h.mu.Unlock()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if req, err := h.newRequest(ctx, http.MethodDelete, nil); err == nil {
		if resp, err := h.peer.up.gw.client.Do(req); err == nil {
			drainBody(resp.Body)
		}
	}
}

func (h *httpLink) newRequest(ctx context.Context, method string, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.peer.up.cfg.URL, r)
	if err != nil {
		return nil, err
	}
	setHeaders(req, h.peer.up.cfg.Header)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != "" {
		req.Header.Set(headerSession, h.session)
	}
	if h.version != "" && (h.version >= "2025-06-18") {
		req.Header.Set(headerVersion, h.version)
	}
	return req, nil
}

func (h *httpLink) tell(ctx context.Context, msg []byte) error {
	ctx, cancel := context.WithTimeout(ctx, h.peer.up.gw.limits.Write)
	defer cancel()
	req, err := h.newRequest(ctx, http.MethodPost, msg)
	if err != nil {
		return err
	}
	if h.stateless {
		if e, ok := mcp.ReadEnvelope(msg); ok && e.Method != "" {
			req.Header.Set(headerMethod, e.Method)
		}
	}
	resp, err := h.peer.up.gw.client.Do(req)
	if err != nil {
		return err
	}
	drainBody(resp.Body)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the message was answered by %s", resp.Status)
	}
	return nil
}

func (h *httpLink) do(ctx context.Context, x *exchange) ([]byte, error) {
	req, err := h.newRequest(ctx, http.MethodPost, x.msg)
	if err != nil {
		return nil, err
	}
	for k, v := range x.headers {
		req.Header.Set(k, v)
	}
	resp, err := h.peer.up.gw.client.Do(req)
	if err != nil {
		h.gaveUp(ctx, x)
		return nil, plainError(ctx, err)
	}
	defer drainBody(resp.Body)
	if s := resp.Header.Get(headerSession); x.method == "initialize" && s != "" && !h.stateless {
		if len(s) > 1024 {
			return nil, errors.New("the server's session id is longer than 1024 bytes")
		}
		h.mu.Lock()
		h.session = s
		h.mu.Unlock()
	}
	if isEvents(resp) && resp.StatusCode == http.StatusOK {
		if x.out != nil {
			x.out.mirror()
		}
		answer, err := h.events(ctx, x, resp.Body)
		if err != nil && ctx.Err() != nil {
			h.gaveUp(ctx, x)
			return nil, context.Cause(ctx)
		}
		return answer, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(h.peer.up.gw.limits.Message)+1))
	if err != nil {
		h.gaveUp(ctx, x)
		return nil, plainError(ctx, err)
	}
	if len(body) > h.peer.up.gw.limits.Message {
		return mcp.ErrorAnswer(x.id, -32000, fmt.Sprintf("Cordon dropped the server's answer: it is longer than %d bytes. Ask for less at a time.", h.peer.up.gw.limits.Message)), nil
	}
	e, ok := mcp.ReadEnvelope(body)
	isAnswer := ok && e.Method == "" && (mcp.Member(body, "result") != nil || mcp.Member(body, "error") != nil)
	h.mu.Lock()
	inSession := h.session != ""
	h.mu.Unlock()
	switch {
	case resp.StatusCode == http.StatusNotFound && inSession && x.method != "initialize":
		return nil, errGone
	case isAnswer:
		return body, nil
	}
	return nil, fmt.Errorf("the server answered by %s and no message", resp.Status)
}

// plainError leaves out the address that errors of the client carry.
func plainError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var op interface{ Unwrap() error }
	if errors.As(err, &op) && op.Unwrap() != nil {
		err = op.Unwrap()
	}
	return fmt.Errorf("the server cannot be reached: %w", err)
}

// gaveUp tells a server with sessions that nobody waits any more. One without
// sees its stream end.
func (h *httpLink) gaveUp(ctx context.Context, x *exchange) {
	if h.stateless || ctx.Err() == nil || x.method == "initialize" {
		return
	}
	g := h.peer.up.gw
	g.work.Add(1)
	go func() {
		defer g.work.Done()
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = h.tell(short, cancelNote(x.id)) // nothing waits for it
	}()
}

const (
	// retryFirst is how long to wait before a stream is taken up again, where the
	// server does not say; retryMost is the most that it may say.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
	// retries is how often a stream is taken up without an event in between.
	retries = 5
)

// events reads the stream that answers x. A stream that ends early is taken up
// where it ended, if its events have ids.
func (h *httpLink) events(ctx context.Context, x *exchange, body io.Reader) ([]byte, error) {
	last, wait := "", retryFirst
	for tries := 0; ; {
		answer, err := h.read(body, x, &last, &wait, &tries)
		if answer != nil {
			return answer, nil
		}
		if errors.Is(err, errLongEvent) {
			return mcp.ErrorAnswer(x.id, -32000, fmt.Sprintf("Cordon dropped the server's answer: it is longer than %d bytes. Ask for less at a time.", h.peer.up.gw.limits.Message)), nil
		}
		if last == "" || h.stateless || tries >= retries || ctx.Err() != nil {
			return nil, errEnded
		}
		tries++
		if !pause(ctx, wait) {
			return nil, context.Cause(ctx)
		}
		resp, err := h.resume(ctx, last)
		if err != nil {
			return nil, errEnded
		}
		defer drainBody(resp.Body) // at most retries of them
		body = resp.Body
	}
}

// read reads one stream to its end, or to the answer.
func (h *httpLink) read(body io.Reader, x *exchange, last *string, wait *time.Duration, tries *int) ([]byte, error) {
	key := mcp.KeyOf(x.id)
	r := newEventReader(body, h.peer.up.gw.limits.Message)
	for {
		ev, err := r.next()
		if err != nil {
			return nil, err
		}
		if ev.hasID {
			*last, *tries = ev.id, 0
		}
		if ev.retry > 0 {
			*wait = min(ev.retry, retryMost)
		}
		if len(ev.data) == 0 || ev.name != "" && ev.name != "message" {
			continue
		}
		msgs := [][]byte{ev.data}
		if items := batchOf(ev.data); items != nil {
			msgs = items
		}
		for _, msg := range msgs {
			e, ok := mcp.ReadEnvelope(msg)
			switch {
			case !ok:
			case e.Method == "" && e.Key == key:
				return msg, nil
			case e.Method != "" && x.got != nil:
				x.got(x.restored(msg))
			}
		}
	}
}

func batchOf(msg []byte) [][]byte {
	if t := bytes.TrimLeft(msg, " \t\r\n"); len(t) == 0 || t[0] != '[' {
		return nil
	}
	var out [][]byte
	for _, e := range mcp.Elements(msg) {
		if out = append(out, e); len(out) >= 256 {
			break
		}
	}
	return out
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// resume opens a stream after the last event that was seen; "" is the session's
// own, from now on.
func (h *httpLink) resume(ctx context.Context, last string) (*http.Response, error) {
	req, err := h.newRequest(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set(headerLast, last)
	}
	resp, err := h.peer.up.gw.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !isEvents(resp) {
		drainBody(resp.Body)
		return nil, fmt.Errorf("the stream was answered by %s", resp.Status)
	}
	return resp, nil
}

// listen reads the session's own stream, if the server has one.
func (h *httpLink) listen() {
	h.mu.Lock()
	first := !h.listening
	h.listening = true
	has := !h.stateless && h.session != ""
	h.mu.Unlock()
	if !first {
		return
	}
	var once sync.Once
	heard := func() { once.Do(func() { close(h.heard) }) }
	if !has {
		heard()
		return
	}
	g := h.peer.up.gw
	g.work.Add(1)
	go func() {
		defer g.work.Done()
		defer heard()
		last, wait := "", retryFirst
		x := &exchange{got: h.peer.unsolicited}
		for tries := 0; tries <= retries; tries++ {
			resp, err := h.resume(h.life, last)
			if err != nil {
				return // it has none, or the session is gone: that shows at the next request
			}
			heard()
			_, _ = h.read(resp.Body, x, &last, &wait, &tries)
			_ = resp.Body.Close()
			if !pause(h.life, wait) {
				return
			}
		}
	}()
}
