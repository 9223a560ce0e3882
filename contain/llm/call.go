package llm

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Upper estimates, for answers that do not say what they cost.
const (
	// maxInput and maxOutput are the most that any model takes and gives,
	// usualOutput the most that it gives where the call does not say.
	maxInput    = 2_000_000
	maxOutput   = 300_000
	usualOutput = 128_000
	// hiddenTokens are counted for what the provider reads beside the body.
	hiddenTokens = 200_000
	// tokensPerSecond is more than any model writes, startTime what it may
	// have run beyond what was seen of it.
	tokensPerSecond = 1000
	startTime       = 2 * time.Second
	// bytesPerMediaToken is less than what a token of a picture or a page
	// takes, and perItem what the smallest one is counted as.
	bytesPerMediaToken = 32
	// likelyOutput is what a call is expected to give, at the least, when it
	// is decided whether the run's money suffices for it.
	likelyOutput = 1000
	// chargeTime bounds the booking of one charge.
	chargeTime = 10 * time.Second
	// maxEvent and maxKept are how much of one event, and of an answer that
	// is no stream, is read for its usage.
	maxEvent = 8 << 20
	maxKept  = 16 << 20
	// maxErrorBody is how much of a provider's error is passed on.
	maxErrorBody = 1 << 20
)

// runState is what the calls of a run share.
type runState struct {
	id      string
	calling sync.WaitGroup
	// admitting is held while it is decided whether the money suffices.
	admitting sync.Mutex

	mu       sync.Mutex
	killed   bool
	servers  map[*http.Server]struct{}
	calls    map[*call]struct{}
	reserved float64 // what calls in flight may cost at most
	spent    float64
	owed     []Charge // what Charge did not take
}

// cancels returns how to end the calls in flight; r.mu is held.
func (r *runState) cancels() []context.CancelCauseFunc {
	out := make([]context.CancelCauseFunc, 0, len(r.calls))
	for c := range r.calls {
		out = append(out, c.cancel)
	}
	return out
}

// call is one request on its way.
type call struct {
	p        *Proxy
	run      *runState
	w        http.ResponseWriter
	req      *http.Request
	ctx      context.Context
	cancel   context.CancelCauseFunc
	provider Provider
	up       *upstream
	path     string
	query    []pair
	route    route
	plan     plan
	size     int // of the body that goes out
	reserved float64
	sent     time.Time
	wrote    atomic.Bool // the request went out
	answered bool        // a status was written
}

// Handler serves the clients of one run.
func (p *Proxy) Handler(run string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := &call{p: p, w: w, req: req}
		c.ctx, c.cancel = context.WithCancelCause(req.Context())
		defer c.cancel(nil)
		p.mu.Lock()
		c.run = p.run(run)
		closed := p.closed
		if !closed {
			c.run.calling.Add(1)
		}
		p.mu.Unlock()
		if closed {
			writeError(w, c.provider, 503, "", "the proxy is closed")
			return
		}
		defer c.run.calling.Done()
		c.serve()
	})
}

// serve decides and forwards. Whatever is refused is answered when it
// returns.
func (c *call) serve() {
	t, err := parseTarget(c.req.RequestURI)
	c.provider, c.path = t.provider, t.path
	if c.isKilled() {
		c.refused(refusal{status: 403, rule: RuleKilled, why: "the run was killed", always: true})
		return
	}
	if err != nil {
		c.refused(refusal{status: 404, rule: RuleSyntax, why: err.Error(), always: true})
		return
	}
	if c.up = c.p.upstreams[c.provider]; c.up == nil {
		c.refused(refusal{status: 404, rule: RulePath, why: fmt.Sprintf("no upstream for %s", c.provider), always: true})
		return
	}
	if r := c.p.checkKey(c.run.id, keys(c.req.Header, t.query)); r != nil {
		c.refused(*r)
		return
	}
	if c.p.mode == cordon.Enforce {
		if err := c.p.ledger.healthy(); err != nil {
			c.p.logf("%v", err)
			c.fail(503, RuleUnaudited, "refusals cannot be stored, so nothing is let through")
			return
		}
	}
	if !c.checkTarget(t) {
		return
	}
	// Before the body, which takes memory.
	if !c.enter() {
		return
	}
	defer c.leave()
	body, ok := c.body()
	if !ok || !c.admit() {
		return
	}
	c.forward(body)
}

func (c *call) checkTarget(t target) bool {
	switch c.req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		c.refused(refusal{status: 405, rule: RulePath, why: fmt.Sprintf("method %q is not passed on", clip(c.req.Method, 16)), always: true})
		return false
	}
	var known, pathKnown bool
	var id string
	if c.route, id, known, pathKnown = allowed().route(c.provider, c.req.Method, c.path); !known {
		r := refusal{status: 404, rule: RulePath, why: fmt.Sprintf("%s %s is not passed on", c.req.Method, c.path)}
		if pathKnown {
			r.status = 405
		}
		if c.refused(r) {
			return false
		}
	}
	var found []refusal
	c.query, found = c.checkQuery(t.query)
	for _, r := range found {
		if c.refused(r) {
			return false
		}
	}
	if c.provider == Gemini && !c.p.features[ImageGeneration] && !c.route.free && (strings.Contains(id, "-image") || strings.Contains(id, "-tts")) {
		if c.refused(refusal{status: 403, rule: RuleFeature, why: fmt.Sprintf("model %q answers by no text, at a price that is not known here (the operator can allow %q)", clip(id, 64), ImageGeneration)}) {
			return false
		}
	}
	c.plan.model = id
	c.plan.stream = c.provider == Gemini && strings.HasSuffix(c.path, ":streamGenerateContent")
	return true
}

// body reads and judges the body, and returns what goes out.
func (c *call) body() (body []byte, ok bool) {
	body, r := c.readBody()
	if r != nil {
		c.refused(*r)
		return nil, false
	}
	switch c.route.dialect {
	case "": // an unlisted path in shadow mode
		return body, true
	case "list":
		if len(body) > 0 && c.refused(refusal{status: 400, rule: RuleBody, why: "a body where none belongs"}) {
			return nil, false
		}
		return nil, true
	}
	v, r := c.readJSON(body)
	if r != nil {
		if c.refused(*r) {
			return nil, false
		}
		if v, r = c.parseAnyway(body); r != nil {
			c.refused(*r)
			return nil, false
		}
	}
	asked := c.plan
	c.plan = c.p.inspect(c.route.dialect, &v)
	if c.provider == Gemini {
		c.plan.model, c.plan.stream = asked.model, asked.stream
	}
	stop := false
	for _, r := range c.plan.found {
		stop = c.note(r) || stop
	}
	if stop {
		first := c.plan.found[0]
		c.fail(first.status, first.rule, first.why)
		return nil, false
	}
	if c.plan.addUsage {
		body = withUsage(body, &v)
	}
	c.size = len(body)
	return body, true
}

// parseAnyway reads a body whose content type is wrong, in shadow mode.
func (c *call) parseAnyway(body []byte) (strictjson.Value, *refusal) {
	v, err := strictjson.Parse(body)
	if err != nil {
		return v, &refusal{status: 400, rule: RuleBody, why: err.Error(), always: true}
	}
	return v, nil
}

func (c *call) isKilled() bool {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	return c.run.killed
}

// note records a refusal and reports whether it stops the call.
func (c *call) note(r refusal) (stop bool) {
	stop = r.always || c.p.mode == cordon.Enforce
	if c.p.mode == cordon.Off {
		return stop
	}
	err := c.p.ledger.note(Refusal{
		Run: c.run.id, Provider: c.provider, Rule: r.rule, Method: clip(c.req.Method, 16), Path: clip(c.path, 128), Why: r.why, Enforced: stop,
	})
	if err != nil {
		c.p.logf("%v", err)
	}
	return stop
}

// refused records a refusal and, where it stops the call, answers it.
func (c *call) refused(r refusal) (stop bool) {
	if !c.note(r) {
		return false
	}
	c.fail(r.status, r.rule, r.why)
	return true
}

// fail answers with an error, unless an answer has begun: then the
// connection breaks, so that nobody takes the beginning for the whole.
func (c *call) fail(status int, rule, why string) {
	if c.answered {
		panic(http.ErrAbortHandler)
	}
	c.answered = true
	writeError(c.w, c.provider, status, rule, why)
}

// estimate is what the call may cost at most, and what it will likely cost
// at the least.
func (c *call) estimate() (most, likely float64) {
	if c.route.free {
		return 0, 0
	}
	price, _ := c.p.prices.Of(c.provider, c.plan.model)
	top := c.upper(meter{}, time.Hour)
	most = price.Cost(top, c.plan.fast)
	little := Tokens{Input: top.Input / 4, Output: min(top.Output, likelyOutput)}
	return most, price.Cost(little, c.plan.fast)
}

// upper is what the call may have taken and given at most, beside what m
// says it did, when it ran for so long.
func (c *call) upper(m meter, ran time.Duration) Tokens {
	t := m.tokens
	if !m.input || m.bad {
		media := min(c.plan.media, int64(c.size))
		t.Input = max(t.Input, min(maxInput, int64(c.size)-media+media/bytesPerMediaToken))
		if c.plan.hidden {
			t.Input += hiddenTokens
		}
	}
	if c.route.dialect == "embeddings" || strings.HasSuffix(c.path, "mbedContent") || strings.HasSuffix(c.path, "mbedContents") {
		return t
	}
	out := c.plan.maxOutput
	if out == 0 {
		out = usualOutput
	}
	out = min(out, maxOutput)
	if written := int64((ran + startTime).Seconds() * tokensPerSecond); written < out {
		out = written
	}
	t.Output = max(t.Output, out*max(1, min(c.plan.answers, 128)))
	return t
}

// enter takes one of the run's places.
func (c *call) enter() bool {
	r := c.run
	r.mu.Lock()
	full := len(r.calls) >= c.p.limits.Calls
	if !full {
		r.calls[c] = struct{}{}
	}
	r.mu.Unlock()
	if full {
		c.refused(refusal{status: 429, rule: RuleBusy, why: fmt.Sprintf("more than %d calls at once", c.p.limits.Calls), always: true})
	}
	return !full
}

// admit reserves what the call may cost, and refuses it where the run has
// too little money.
func (c *call) admit() bool {
	r := c.run
	most, likely := c.estimate()
	r.admitting.Lock()
	defer r.admitting.Unlock()
	if err := c.p.payOwed(r); err != nil {
		c.p.logf("%v", err)
		if c.p.mode == cordon.Enforce {
			c.fail(503, RuleUncharged, "what was spent cannot be booked, so nothing is let through")
			return false
		}
	}
	if !c.route.free {
		if f := c.unaffordable(likely); f != nil && c.refused(*f) {
			return false
		}
	}
	r.mu.Lock()
	r.reserved += most
	c.reserved = most
	killed := r.killed
	r.mu.Unlock()
	if killed { // while the body came
		c.refused(refusal{status: 403, rule: RuleKilled, why: "the run was killed", always: true})
	}
	return !killed
}

// unaffordable asks whether the run has the money. Where it is only that
// calls in flight may still cost too much, the client may come again.
func (c *call) unaffordable(likely float64) *refusal {
	c.run.mu.Lock()
	reserved := c.run.reserved
	c.run.mu.Unlock()
	err := c.p.allowed(c.run.id, reserved+likely)
	if err == nil {
		return nil
	}
	if reserved > 0 && c.p.allowed(c.run.id, likely) == nil {
		return &refusal{status: 429, rule: RuleCap, why: "what the calls in flight may still cost leaves no money for another one; try again when they are done"}
	}
	return &refusal{status: 402, rule: RuleCap, why: clip(err.Error(), 300)}
}

func (c *call) leave() {
	r := c.run
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, c)
	if r.reserved -= c.reserved; len(r.calls) == 0 {
		r.reserved = 0 // no rounding stays behind
	}
}

// payOwed books what could not be booked before.
func (p *Proxy) payOwed(r *runState) error {
	for {
		r.mu.Lock()
		if len(r.owed) == 0 {
			r.mu.Unlock()
			return nil
		}
		next := r.owed[0]
		r.owed = r.owed[1:]
		r.mu.Unlock()
		if err := p.book(next); err != nil {
			r.mu.Lock()
			r.owed = append(r.owed, next)
			r.mu.Unlock()
			return err
		}
	}
}

func (p *Proxy) book(ch Charge) error {
	ctx, cancel := context.WithTimeout(context.Background(), chargeTime)
	defer cancel()
	if err := p.charge(ctx, ch); err != nil {
		return fmt.Errorf("llm: %.6f US dollars of run %q were not booked: %w", ch.USD, ch.Run, err)
	}
	return nil
}

// settle charges the call. complete says that the answer came whole.
func (c *call) settle(m meter, whole bool) {
	if c.route.free || c.route.dialect == "" {
		return
	}
	ch := Charge{Run: c.run.id, Provider: c.provider, Model: c.plan.model, Tokens: m.tokens, Time: time.Now()}
	// Gemini repeats its counts as they grow: those of a cut answer are old.
	if ch.Estimated = !m.complete() || c.provider == Gemini && !whole; ch.Estimated {
		ch.Tokens = c.upper(m, time.Since(c.sent))
	}
	usd, known := c.p.prices.costOf(c.provider, c.plan.model, m.model, ch.Tokens, c.plan.fast || m.fast)
	ch.USD, ch.Unpriced = usd, !known
	c.run.mu.Lock()
	c.run.spent += usd
	c.run.mu.Unlock()
	if err := c.p.book(ch); err != nil {
		c.p.logf("%v", err)
		c.run.mu.Lock()
		c.run.owed = append(c.run.owed, ch)
		c.run.mu.Unlock()
	}
}

func newTransport(c Config, l Limits) *http.Transport {
	return &http.Transport{
		DialContext: c.Dial, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: l.AnswerTime, MaxResponseHeaderBytes: 256 << 10,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}, // a dead connection shows
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs},
	}
}

// outgoing makes the request that goes to the provider, and returns the key
// in it.
func (c *call) outgoing(body []byte) (*http.Request, Secret, error) {
	u := *c.up.base
	path := c.path
	if c.provider == OpenAI { // whose base ends in /v1
		path = strings.TrimPrefix(path, "/v1")
	}
	u.Path += path
	q := url.Values{}
	for _, p := range c.query {
		q.Set(p.name, p.value)
	}
	u.RawQuery = q.Encode()
	var r io.Reader
	if len(body) > 0 {
		r = bytes.NewReader(body)
	}
	// A connection that fails before that costs nothing.
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{WroteHeaders: func() { c.wrote.Store(true) }})
	out, err := http.NewRequestWithContext(ctx, c.req.Method, u.String(), r)
	if err != nil {
		return nil, Secret{}, fmt.Errorf("llm: %w", err)
	}
	out.Header = c.headers(c.req.Header)
	if len(body) > 0 {
		kind := "application/json"
		if c.route.dialect == "" {
			kind = clip(c.req.Header.Get("Content-Type"), maxHeader)
		}
		out.Header.Set("Content-Type", kind)
	}
	if c.up.key == nil {
		return out, Secret{}, nil
	}
	key, err := c.up.key(c.ctx)
	if err != nil || key.value == "" {
		return nil, Secret{}, fmt.Errorf("llm: no key for %s: %w", c.provider, errors.Join(err, errNoKey(key)))
	}
	switch c.provider {
	case Anthropic:
		out.Header.Set("X-Api-Key", key.value)
	case OpenAI:
		out.Header.Set("Authorization", "Bearer "+key.value)
	case Gemini:
		out.Header.Set("X-Goog-Api-Key", key.value)
	}
	return out, key, nil
}

func errNoKey(k Secret) error {
	if k.value == "" {
		return errors.New("it is empty")
	}
	return nil
}

// forward sends the call and passes the answer on.
func (c *call) forward(body []byte) {
	out, key, err := c.outgoing(body)
	if err != nil {
		c.p.logf("%s", scrub(err.Error(), key))
		c.fail(502, "", "the operator's key for this provider is not to be had")
		return
	}
	c.sent = time.Now()
	resp, err := c.p.transport.RoundTrip(out)
	if err != nil {
		c.unanswered(err, key)
		return
	}
	defer resp.Body.Close()
	c.respond(resp, key)
}

// unanswered charges and answers a call that got no answer. Where the
// provider was never reached it costs nothing.
func (c *call) unanswered(err error, key Secret) {
	if c.wrote.Load() {
		c.settle(meter{}, false)
	}
	if cause := context.Cause(c.ctx); cause != nil {
		if errors.Is(cause, cordon.ErrKilled) {
			c.refused(refusal{status: 403, rule: RuleKilled, why: "the run was killed", always: true})
			return
		}
		panic(http.ErrAbortHandler) // the client is gone, or the proxy closes
	}
	c.p.logf("%s", scrub(fmt.Sprintf("llm: %s: %v", c.provider, err), key))
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.fail(504, "", "the provider did not answer in time")
		return
	}
	c.fail(502, "", "the provider could not be reached")
}

// respond passes an answer on.
func (c *call) respond(resp *http.Response, key Secret) {
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized:
		// The provider's words name parts of the key.
		c.p.logf("llm: %s does not take the operator's key (status 401)", c.provider)
		c.fail(401, "", "the provider does not take the operator's key")
		return
	case s < 200 || s >= 300 && s < 400:
		c.fail(502, "", fmt.Sprintf("the provider answered with status %d, which is not followed", s))
		return
	}
	body, err := c.decoded(resp)
	if err != nil {
		c.settle(meter{}, false)
		c.fail(502, "", "the provider's answer has an encoding that was not asked for")
		return
	}
	c.copyHeaders(resp.Header, key)
	limit := c.p.limits.ResponseBytes
	if resp.StatusCode >= 400 {
		limit = min(limit, maxErrorBody)
	}
	src := &idleReader{r: body, left: limit, limit: c.p.limits.IdleTime, expire: func() { c.cancel(errIdle) }}
	defer src.stop()
	src.start()
	dst := &writer{c: c, rc: http.NewResponseController(c.w), cut: newRedactor(key)}
	c.answered = true
	c.w.WriteHeader(resp.StatusCode)
	var m meter
	events := strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/event-stream")
	if events {
		err = c.copyEvents(dst, src, &m)
	} else {
		err = c.copyBody(dst, src, &m)
	}
	if err == nil {
		err = dst.finish()
	}
	if resp.StatusCode < 400 {
		c.settle(m, err == nil)
	}
	if err != nil {
		if errors.Is(err, errTooLong) {
			c.p.logf("llm: %s: %v", c.provider, err)
		}
		panic(http.ErrAbortHandler)
	}
}

// decoded undoes gzip, which some servers send unasked.
func (c *call) decoded(resp *http.Response) (io.Reader, error) {
	switch enc := strings.ToLower(resp.Header.Get("Content-Encoding")); enc {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return gzip.NewReader(resp.Body)
	default:
		return nil, fmt.Errorf("llm: content encoding %q", enc)
	}
}

func (c *call) copyHeaders(in http.Header, key Secret) {
	h := c.w.Header()
	for name, values := range in {
		if !c.listed(placeAnswer, strings.ToLower(name)) {
			continue
		}
		for _, v := range values {
			if len(v) <= maxHeader && (key.value == "" || !strings.Contains(v, key.value)) {
				h.Add(name, v)
			}
		}
	}
	h.Set("X-Content-Type-Options", "nosniff")
}

// copyEvents passes a stream on event by event, and reads the usage in it.
func (c *call) copyEvents(dst *writer, src io.Reader, m *meter) error {
	events := &eventReader{r: src, max: maxEvent}
	for {
		event, whole, err := events.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if whole || bytes.HasPrefix(bytes.TrimSpace(event), []byte("data:")) {
			usageOnly := m.read(eventData(event))
			if usageOnly && c.plan.addUsage {
				continue // the client did not ask for it
			}
		}
		if err := dst.write(event); err != nil {
			return err
		}
	}
}

// copyBody passes an answer on that is no stream of events.
func (c *call) copyBody(dst *writer, src io.Reader, m *meter) error {
	var kept []byte
	over := false
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if len(kept)+n > maxKept {
				over, kept = true, nil
			} else if !over {
				kept = append(kept, buf[:n]...)
			}
			if err := dst.write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			m.readBody(kept)
			return nil
		}
		if err != nil {
			m.readBody(kept) // an array of pieces says what there was so far
			m.final = false
			return err
		}
	}
}

var (
	errIdle    = errors.New("llm: the answer was silent for too long")
	errTooLong = errors.New("llm: the answer is too long")
)

// idleReader ends the call when the source is silent, and bounds its length.
type idleReader struct {
	r      io.Reader
	left   int64
	limit  time.Duration
	expire func()
	timer  *time.Timer
}

func (r *idleReader) start() { r.timer = time.AfterFunc(r.limit, r.expire) }
func (r *idleReader) stop()  { r.timer.Stop() }

func (r *idleReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLong
	}
	n, err := r.r.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	r.timer.Reset(r.limit)
	return n, err
}

// writer writes to the client at once, without the key.
type writer struct {
	c   *call
	rc  *http.ResponseController
	cut *redactor
}

func (w *writer) write(b []byte) error {
	return w.send(w.cut.next(b))
}

func (w *writer) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.c.p.limits.IdleTime)) // a recorder in tests has none
	if _, err := w.c.w.Write(b); err != nil {
		return err
	}
	return w.rc.Flush()
}

func (w *writer) finish() error { return w.send(w.cut.rest()) }

// redactor replaces a key in a stream. It holds back only what could be the
// beginning of one.
type redactor struct {
	key  []byte
	held []byte
}

const redacted = "[redacted]"

func newRedactor(key Secret) *redactor { return &redactor{key: []byte(key.value)} }

func (r *redactor) next(b []byte) []byte {
	if len(r.key) == 0 {
		return b
	}
	if len(r.held) > 0 {
		b = append(r.held, b...)
		r.held = nil
	}
	if bytes.Contains(b, r.key) {
		b = bytes.ReplaceAll(b, r.key, []byte(redacted))
	}
	for n := min(len(r.key)-1, len(b)); n > 0; n-- {
		if bytes.HasSuffix(b, r.key[:n]) {
			r.held = append([]byte(nil), b[len(b)-n:]...)
			return b[:len(b)-n]
		}
	}
	return b
}

func (r *redactor) rest() []byte {
	b := r.held
	r.held = nil
	return b
}

// scrub cuts a key out of a text.
func scrub(s string, key Secret) string {
	if key.value == "" {
		return s
	}
	return strings.ReplaceAll(s, key.value, redacted)
}
