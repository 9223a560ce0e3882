package llm

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Bounds of one request head.
const (
	maxPath   = 512
	maxQuery  = 2 << 10
	maxHeader = 1 << 10
)

// target is a request target, read strictly.
type target struct {
	provider Provider
	// path is what follows the provider's prefix, "/v1/messages".
	path  string
	query []pair
}

type pair struct{ name, value string }

// parseTarget reads "/provider/path?query" as it was sent. A path has plain
// segments only: nothing in it could be decoded, joined or cut differently
// by the next reader. The provider is known as soon as the first segment is.
func parseTarget(s string) (t target, err error) {
	path, query, _ := strings.Cut(s, "?")
	if len(path) > maxPath || len(query) > maxQuery {
		return t, errors.New("the target is too long")
	}
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return t, errors.New("the target is no path (want /anthropic/…, /openai/… or /gemini/…)")
	}
	name, rest, ok := strings.Cut(rest, "/")
	if p := Provider(name); p.known() {
		t.provider = p
	} else {
		return t, fmt.Errorf("no provider %q (want /anthropic/…, /openai/… or /gemini/…)", clip(name, 32))
	}
	if !ok {
		return t, errors.New("the path ends after the provider")
	}
	for seg := range strings.SplitSeq(rest, "/") {
		if err := plainSegment(seg); err != nil {
			return t, err
		}
	}
	t.path = "/" + rest
	t.query, err = parseQuery(query)
	return t, err
}

// plainSegment takes letters, digits and "._:@~+-[]", and not only dots.
func plainSegment(seg string) error {
	if strings.Trim(seg, ".") == "" {
		return fmt.Errorf("the path has an empty or dotted segment %q", clip(seg, 32))
	}
	for i := range len(seg) {
		if !alnum(seg[i]) && !strings.ContainsRune("._:@~+-[]", rune(seg[i])) {
			return fmt.Errorf("the path has a character %q that could be read in two ways", seg[i])
		}
	}
	return nil
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func parseQuery(query string) ([]pair, error) {
	if query == "" {
		return nil, nil
	}
	var out []pair
	for part := range strings.SplitSeq(query, "&") {
		name, text, _ := strings.Cut(part, "=")
		value, err := url.QueryUnescape(text)
		if name == "" || err != nil {
			return nil, errors.New("the query cannot be read")
		}
		for i := range len(name) {
			if !alnum(name[i]) && name[i] != '_' && name[i] != '-' {
				return nil, fmt.Errorf("the query has a name with %q", name[i])
			}
		}
		for i := range len(value) {
			if !alnum(value[i]) && !strings.ContainsRune("._~+/=-", rune(value[i])) {
				return nil, fmt.Errorf("the query has a value with %q", value[i])
			}
		}
		if slices.ContainsFunc(out, func(p pair) bool { return protoName(p.name) == protoName(name) }) {
			return nil, fmt.Errorf("the query names %q twice", clip(name, 32))
		}
		out = append(out, pair{name, value})
	}
	return out, nil
}

// keys are every key that a request shows, by whichever way clients show one.
func keys(h http.Header, query []pair) []string {
	var out []string
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key", "Api-Key"} {
		out = append(out, h.Values(name)...)
	}
	for _, v := range h.Values("Authorization") {
		if scheme, key, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "bearer") {
			out = append(out, strings.TrimSpace(key))
		} else {
			out = append(out, v)
		}
	}
	for _, p := range query {
		if p.name == "key" {
			out = append(out, p.value)
		}
	}
	return out
}

// checkKey holds what the client shows against the run's placeholder.
func (p *Proxy) checkKey(run string, shown []string) *refusal {
	if p.anyKey {
		return nil
	}
	want := []byte(p.Placeholder(run))
	ok := false
	for _, k := range shown {
		if subtle.ConstantTimeCompare([]byte(k), want) == 1 {
			ok = true
		}
	}
	if ok {
		return nil
	}
	why := "the key is not this run's placeholder (use the one of the environment; the real key is added outside)"
	if len(shown) == 0 {
		why = "no key (use the placeholder of the environment; the real key is added outside)"
	}
	return &refusal{status: 401, rule: RuleKey, why: why, always: true}
}

// checkQuery holds the parameters against the list, and drops the key.
func (c *call) checkQuery(query []pair) (kept []pair, found []refusal) {
	for _, q := range query {
		if q.name == "key" {
			if !c.p.anyKey && q.value != c.p.Placeholder(c.run.id) {
				found = append(found, refusal{status: 401, rule: RuleKey, why: "the query holds a key of its own", always: true})
			}
			continue
		}
		if _, ok := allowed().find(placeQuery, string(c.provider), protoNameFor(c.provider, q.name)); !ok {
			found = append(found, refusal{status: 400, rule: RuleQuery, why: fmt.Sprintf("query parameter %q is not passed on", clip(q.name, 32))})
		}
		kept = append(kept, q)
	}
	return kept, found
}

func protoNameFor(p Provider, name string) string {
	if p == Gemini {
		return protoName(name)
	}
	return name
}

// headers are those of the request that go out. What is not listed is left
// out, without a word: clients send many.
func (c *call) headers(in http.Header) http.Header {
	out := http.Header{}
	for name, values := range in {
		lower := strings.ToLower(name)
		if !c.listed(placeHeader, lower) || len(values) != 1 || len(values[0]) > maxHeader {
			continue
		}
		out[name] = []string{values[0]}
	}
	if name, ok := betaHeader[c.provider]; ok {
		if betas := c.betas(in.Values(name)); betas != "" {
			out.Set(name, betas)
		}
	}
	if out.Get("User-Agent") == "" {
		out["User-Agent"] = nil // not net/http's own
	}
	out.Set("Accept-Encoding", "identity")
	return out
}

var betaHeader = map[Provider]string{Anthropic: "Anthropic-Beta", OpenAI: "Openai-Beta"}

func (c *call) listed(place, name string) bool {
	if _, ok := allowed().find(place, "any", name); ok {
		return true
	}
	_, ok := allowed().find(place, string(c.provider), name)
	return ok
}

func (c *call) betas(values []string) string {
	var kept []string
	for _, v := range values {
		for beta := range strings.SplitSeq(v, ",") {
			beta = strings.TrimSpace(beta)
			w, ok := allowed().find(placeBeta, string(c.provider), beta)
			if !ok || len(beta) > 64 || w.needs != "" && !c.p.features[w.needs] {
				continue
			}
			if len(kept) < 32 && !slices.Contains(kept, beta) {
				kept = append(kept, beta)
			}
		}
	}
	return strings.Join(kept, ",")
}

// readBody reads the body whole.
func (c *call) readBody() ([]byte, *refusal) {
	if enc := c.req.Header.Values("Content-Encoding"); len(enc) > 0 && !(len(enc) == 1 && strings.EqualFold(enc[0], "identity")) {
		return nil, &refusal{status: 415, rule: RuleBody, why: "a body with a content encoding (send it as it is)", always: true}
	}
	tooLarge := &refusal{status: 413, rule: RuleBody, why: fmt.Sprintf("a body of more than %d bytes", c.p.limits.BodyBytes), always: true}
	if c.req.ContentLength > c.p.limits.BodyBytes {
		return nil, tooLarge
	}
	rc := http.NewResponseController(c.w)
	_ = rc.SetReadDeadline(time.Now().Add(c.p.limits.BodyTime)) // a recorder in tests has none
	var buf bytes.Buffer
	buf.Grow(int(max(512, c.req.ContentLength+bytes.MinRead)))
	_, err := buf.ReadFrom(io.LimitReader(c.req.Body, c.p.limits.BodyBytes+1))
	body := buf.Bytes()
	_ = rc.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return nil, &refusal{status: 400, rule: RuleBody, why: "the body could not be read", always: true}
	case int64(len(body)) > c.p.limits.BodyBytes:
		return nil, tooLarge
	}
	return body, nil
}

// readJSON reads a body of one of the listed routes.
func (c *call) readJSON(body []byte) (v strictjson.Value, r *refusal) {
	kind, _, err := mime.ParseMediaType(c.req.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return v, &refusal{status: 415, rule: RuleBody, why: "the content type is not application/json"}
	}
	v, err = strictjson.Parse(body)
	if err != nil {
		return v, &refusal{status: 400, rule: RuleBody, why: err.Error(), always: true}
	}
	return v, nil
}

// withUsage returns a chat body that asks for the usage at the end of the
// stream. Only where the client set options of its own is it written anew.
func withUsage(body []byte, v *strictjson.Value) []byte {
	i := slices.Index(body, '{')
	if i < 0 {
		return body
	}
	if v.Get("stream_options") == nil {
		out := make([]byte, 0, len(body)+48)
		out = append(append(out, body[:i+1]...), `"stream_options":{"include_usage":true}`...)
		if len(v.Keys) > 0 {
			out = append(out, ',')
		}
		return append(out, body[i+1:]...)
	}
	edited := *v
	edited.Items = slices.Clone(v.Items)
	k := slices.Index(v.Keys, "stream_options")
	opts := strictjson.Value{Kind: strictjson.Object}
	for j, name := range v.Items[k].Keys {
		if name != "include_usage" {
			opts.Keys, opts.Items = append(opts.Keys, name), append(opts.Items, v.Items[k].Items[j])
		}
	}
	opts.Keys = append(opts.Keys, "include_usage")
	opts.Items = append(opts.Items, strictjson.Value{Kind: strictjson.Bool, Bool: true})
	edited.Items[k] = opts
	return strictjson.AppendCanonical(nil, &edited)
}
