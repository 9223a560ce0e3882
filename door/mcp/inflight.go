package mcp

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

const (
	// maxInFlight is how many requests may wait for the server's answer.
	maxInFlight = 4096
	// maxCancelled is how many cancelled requests are remembered in case the
	// server answers them all the same.
	maxCancelled = 256
	// maxID is how long a request id may be.
	maxID = 1024
)

// request is one request of the client that the server has not answered.
type request struct {
	key    string
	raw    []byte // the id as it was spelled
	method string
	tool   string // of a call: its name, or the URI that is read
	since  time.Time
	call   *cordon.Decision // of a decided request, until it is settled
	// cancelled: the client no longer waits. warned: its silence was noted.
	cancelled, warned bool
}

// inflight knows the requests that wait for an answer.
type inflight struct {
	mu        sync.Mutex
	byKey     map[string][]*request // more than one only where not enforced
	n         int
	cancelled []*request
	down      string // why the server no longer answers; empty while it does
	killed    bool
}

// idKey tells ids apart as JSON does: 1 and "1" differ, 1 and 1.0 do not.
func idKey(id *strictjson.Value) string {
	if id.Kind == strictjson.String {
		return "s" + id.Str
	}
	if f, err := strconv.ParseFloat(id.Str, 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return "n" + strconv.FormatInt(int64(f), 10)
	}
	return "n" + id.Str
}

// admits says why a request with this id cannot be followed, or "".
func (f *inflight) admits(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n-len(f.cancelled) >= maxInFlight {
		return "too many requests are waiting for an answer"
	}
	for _, r := range f.byKey[key] {
		if !r.cancelled {
			return "the id is that of a request which still waits for its answer"
		}
	}
	return ""
}

// add starts to follow a request. It returns why the server is down, and
// follows nothing, when it is.
func (f *inflight) add(r *request) (down string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != "" {
		return f.down
	}
	if f.n-len(f.cancelled) >= maxInFlight {
		return ""
	}
	if f.byKey == nil {
		f.byKey = map[string][]*request{}
	}
	f.byKey[r.key] = append(f.byKey[r.key], r)
	f.n++
	return ""
}

// take ends the request that an answer with this id belongs to.
func (f *inflight) take(key string) *request {
	f.mu.Lock()
	defer f.mu.Unlock()
	rs := f.byKey[key]
	if len(rs) == 0 {
		return nil
	}
	// A client may use the id of a cancelled request again; servers do not
	// answer what was cancelled, as a rule.
	r := rs[0]
	for _, other := range rs {
		if !other.cancelled {
			r = other
			break
		}
	}
	f.remove(r)
	return r
}

func (f *inflight) remove(r *request) {
	rs := f.byKey[r.key]
	kept := make([]*request, 0, len(rs))
	for _, other := range rs {
		if other != r {
			kept = append(kept, other)
		}
	}
	f.n -= len(rs) - len(kept)
	if len(kept) == 0 {
		delete(f.byKey, r.key)
	} else {
		f.byKey[r.key] = kept
	}
	for i, c := range f.cancelled {
		if c == r {
			f.cancelled = append(f.cancelled[:i:i], f.cancelled[i+1:]...)
			break
		}
	}
}

// cancel notes that the client gave up a request, and returns its decision
// if it has still to be settled.
func (f *inflight) cancel(key string) (*cordon.Decision, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.byKey[key] {
		if r.cancelled {
			continue
		}
		d := r.call
		r.cancelled, r.call = true, nil
		f.cancelled = append(f.cancelled, r)
		if len(f.cancelled) > maxCancelled {
			f.remove(f.cancelled[0])
		}
		return d, time.Since(r.since)
	}
	return nil, 0
}

// close marks the server as down and returns the requests that it leaves.
// The first reason stands, but a kill is remembered whenever it comes.
func (f *inflight) close(why string, killed bool) []*request {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = f.killed || killed
	if f.down == "" || killed {
		f.down = why
	}
	var left []*request
	for _, rs := range f.byKey {
		left = append(left, rs...)
	}
	f.byKey, f.n, f.cancelled = nil, 0, nil
	return left
}

// unanswered is how many requests still wait for the server.
func (f *inflight) unanswered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n - len(f.cancelled)
}

func (f *inflight) state() (down string, killed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down, f.killed
}

// silent returns the requests that have waited longer than d and were not
// named before.
func (f *inflight) silent(d time.Duration) []*request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*request
	for _, rs := range f.byKey {
		for _, r := range rs {
			if !r.warned && !r.cancelled && time.Since(r.since) > d {
				r.warned = true
				out = append(out, r)
			}
		}
	}
	return out
}
