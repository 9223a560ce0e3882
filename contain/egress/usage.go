package egress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// How often Config.Usage is told.
const (
	usageStep  = 256 << 10
	usageEvery = 250 * time.Millisecond
	usageTime  = 5 * time.Second
)

// meter is what Config.Usage has still to be told of a run, and what it said
// last.
type meter struct {
	up, down atomic.Int64
	over     atomic.Pointer[refusedUsage] // nil: all is well

	telling sync.Mutex // one call at a time
}

// refusedUsage is an error of Config.Usage and when it came.
type refusedUsage struct {
	err error
	at  time.Time
}

var (
	// errCap is a byte cap of the run that would be exceeded.
	errCap = errors.New("the run's byte cap is exceeded")
	// errOver is what Config.Usage said no to. The run was cut for it.
	errOver = errors.New("the run has used up its bytes")
)

// charge counts bytes before they pass. Those past a cap are not counted in
// enforce mode, and must not pass.
func (c *client) charge(up bool, n int64) error {
	r := c.run.Load()
	used, fresh, limit := &r.down, &r.meter.down, c.p.limits.DownloadBytes
	if up {
		used, fresh, limit = &r.up, &r.meter.up, c.p.limits.UploadBytes
	}
	if now := used.Add(n); limit > 0 && now > limit {
		if c.p.enforcing() {
			used.Add(-n)
			return errCap
		}
		if now-n <= limit { // said once
			c.overCap(up, nil)
		}
	}
	if c.p.usage == nil || fresh.Add(n) < usageStep {
		return nil
	}
	if err := c.p.report(r, false); err != nil && c.p.enforcing() {
		return errOver
	}
	return nil
}

// capped records that a connection is cut by a byte cap, and cuts it.
func (c *client) capped(up bool, req *request) {
	c.overCap(up, req)
	c.close(errCap)
}

func (c *client) overCap(up bool, req *request) {
	rule, limit := RuleDownload, c.p.limits.DownloadBytes
	if up {
		rule, limit = RuleUpload, c.p.limits.UploadBytes
	}
	ref := Refusal{Rule: rule, Host: "*", Why: fmt.Sprintf("the run's cap of %d bytes is used up", limit)}
	if req != nil {
		ref.Host, ref.Port = req.name, req.port
	}
	c.refused(ref, false)
}

// report tells Config.Usage what it has not heard of a run, if there is
// anything or if it is to be asked. Where it says no, the run is cut.
func (p *Proxy) report(r *runState, ask bool) error {
	if p.usage == nil {
		return nil
	}
	r.meter.telling.Lock()
	defer r.meter.telling.Unlock()
	over := r.meter.over.Load()
	up, down := r.meter.up.Swap(0), r.meter.down.Swap(0)
	// A client that is refused and asks again must not be a load elsewhere.
	if up == 0 && down == 0 && (!ask || over != nil && time.Since(over.at) < usageEvery) {
		if over != nil {
			return over.err
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), usageTime)
	defer cancel()
	err := p.usage(ctx, r.id, up, down)
	if err == nil {
		r.meter.over.Store(nil)
		return nil
	}
	r.meter.over.Store(&refusedUsage{err, time.Now()})
	if p.enforcing() {
		p.cut(r, err)
	}
	return err
}

// cut closes the connections of a run that are open to an origin.
func (p *Proxy) cut(r *runState, why error) {
	r.mu.Lock()
	open := make([]*client, 0, len(r.clients))
	for c := range r.clients {
		open = append(open, c)
	}
	r.mu.Unlock()
	for _, c := range open {
		c.mu.Lock()
		to, closed := c.to, c.closed
		c.mu.Unlock()
		if to == nil || closed {
			continue
		}
		c.refused(Refusal{Rule: RuleUsage, Host: to.name, Port: to.port, Why: why.Error()}, false)
		c.close(errOver)
	}
}

// affords refuses a request of a run that Config.Usage said no to, unless it
// has changed its mind.
func (c *client) affords(req *request) bool {
	r := c.run.Load()
	if r.meter.over.Load() == nil {
		return true
	}
	err := c.p.report(r, true)
	if err == nil || !c.refused(Refusal{Rule: RuleUsage, Host: req.name, Port: req.port, Why: err.Error()}, false) {
		return true
	}
	// The error is the operator's to read, not the tool's.
	c.answer(http.StatusForbidden, RuleUsage, req.address(), errOver.Error())
	return false
}

// usageLoop tells of what is too little for a call of its own.
func (p *Proxy) usageLoop() {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		var due []*runState
		for _, r := range p.runs {
			if r.meter.up.Load() > 0 || r.meter.down.Load() > 0 {
				due = append(due, r)
			}
		}
		p.mu.Unlock()
		for _, r := range due {
			_ = p.report(r, false) // it has cut the run
		}
	}
}
