package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// serverEvent is one event of an event stream.
type serverEvent struct {
	name, id string
	data     []byte
	retry    time.Duration
	hasID    bool
}

// eventReader reads an event stream as the HTML standard has it, and holds no
// more than max bytes of one event.
type eventReader struct {
	r   *bufio.Reader
	max int
}

var errLongEvent = errors.New("an event is longer than allowed")

func newEventReader(r io.Reader, max int) *eventReader {
	return &eventReader{bufio.NewReaderSize(r, 16<<10), max}
}

// next returns the next event that has data, an id or a time to wait.
func (e *eventReader) next() (serverEvent, error) {
	var ev serverEvent
	some := false
	for {
		line, err := e.line(e.max - len(ev.data))
		if err != nil {
			return ev, err // an event that has not ended is none
		}
		if len(line) == 0 {
			if some {
				ev.data = bytes.TrimSuffix(ev.data, []byte{'\n'})
				return ev, nil
			}
			ev = serverEvent{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			ev.data = append(append(ev.data, value...), '\n')
			some = true
		case "event":
			ev.name = string(value)
		case "id":
			if len(value) <= 1024 && bytes.IndexByte(value, 0) < 0 {
				ev.id, ev.hasID, some = string(value), true, true
			}
		case "retry":
			if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 && ms < 1<<30 {
				ev.retry, some = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
}

// line reads up to a line end of any kind.
func (e *eventReader) line(max int) ([]byte, error) {
	var line []byte
	for {
		part, err := e.r.ReadSlice('\n')
		if len(line)+len(part) > max+8 {
			return nil, errLongEvent
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

// dialSSE opens the transport of 2024-11-05: a stream whose first event names
// where messages are posted to.
func dialSSE(ctx context.Context, c *peer) (link, error) {
	u := c.up
	p := newPipe(c)
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopDial := context.AfterFunc(ctx, cancel)
	req, err := http.NewRequestWithContext(life, http.MethodGet, u.cfg.URL, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	setHeaders(req, u.cfg.Header)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := u.gw.client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	fail := func(err error) (link, error) {
		cancel()
		_ = resp.Body.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !isEvents(resp) {
		return fail(fmt.Errorf("the event stream was answered by %s", resp.Status))
	}
	events := newEventReader(resp.Body, u.gw.limits.Message)
	first, err := events.next()
	if err != nil {
		return fail(fmt.Errorf("the event stream: %w", err))
	}
	to, err := endpointURL(u.cfg.URL, first)
	if err != nil {
		return fail(err)
	}
	if !stopDial() {
		return fail(context.Cause(ctx))
	}
	p.end = func(bool) {
		cancel()
		_ = resp.Body.Close()
	}
	p.write = func(ctx context.Context, msg []byte) error { return postPlain(ctx, u, to, msg) }
	u.gw.work.Add(1)
	go func() {
		defer u.gw.work.Done()
		defer p.died()
		for {
			ev, err := events.next()
			if err != nil {
				return
			}
			if len(ev.data) > 0 && (ev.name == "message" || ev.name == "") {
				p.took(ev.data)
			}
		}
	}()
	return p, nil
}

// endpointURL is where messages go. A server may not send them, and the
// headers that go with them, to another origin.
func endpointURL(base string, ev serverEvent) (string, error) {
	if ev.name != "endpoint" {
		return "", fmt.Errorf("the first event is %.32q (want endpoint)", ev.name)
	}
	b, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	to, err := b.Parse(strings.TrimSpace(string(ev.data)))
	if err != nil || to.Scheme != b.Scheme || to.Host != b.Host || to.User != nil {
		return "", errors.New("the endpoint is of another origin than the event stream")
	}
	return to.String(), nil
}

func postPlain(ctx context.Context, u *upstream, to string, msg []byte) error {
	ctx, cancel := context.WithTimeout(ctx, u.gw.limits.Write)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(msg))
	if err != nil {
		return err
	}
	setHeaders(req, u.cfg.Header)
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.gw.client.Do(req)
	if err != nil {
		return err
	}
	drainBody(resp.Body)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the message was answered by %s", resp.Status)
	}
	return nil
}

func setHeaders(req *http.Request, h http.Header) {
	for k, vs := range h {
		req.Header[http.CanonicalHeaderKey(k)] = vs
	}
}

func isEvents(resp *http.Response) bool {
	return strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/event-stream")
}
