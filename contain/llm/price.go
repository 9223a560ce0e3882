package llm

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
)

//go:embed prices.json
var pricesText []byte

// Tokens are what a call was billed for. The inputs do not overlap.
type Tokens struct {
	Input      int64
	CacheRead  int64
	CacheWrite int64
	// CacheWrite1h is what was written to a cache that is kept for an hour.
	CacheWrite1h int64
	Output       int64
	// Searches is how often the provider searched the web.
	Searches int64
}

// Price is what a model costs, in US dollars for a million tokens.
type Price struct {
	Provider Provider `json:"provider"`
	// Model is the model's name without its date. "*" in a file of the
	// operator's own prices every model of the provider that no line names.
	Model        string  `json:"model"`
	Input        float64 `json:"input"`
	Output       float64 `json:"output"`
	CacheRead    float64 `json:"cache_read"`
	CacheWrite   float64 `json:"cache_write"`
	CacheWrite1h float64 `json:"cache_write_1h"`
	// LongOver is the number of input tokens past which all input costs
	// LongInput times as much, and output LongOutput times. 0: never.
	LongOver   int64   `json:"long_over,omitempty"`
	LongInput  float64 `json:"long_input,omitempty"`
	LongOutput float64 `json:"long_output,omitempty"`
	// Fast is the factor of the fast or priority service; 0 is 2.5.
	Fast float64 `json:"fast,omitempty"`
	// Source and Date say where the price stood, and when.
	Source string `json:"source"`
	Date   string `json:"date"`
}

// Factors and fees where a model's line says nothing else.
const (
	fastFactor = 2.5
	searchFee  = 0.035 // US dollars a search, the dearest of the three
	// maxTokens is past what any model takes or gives: a count beyond it is
	// no count.
	maxTokens = 100_000_000
)

// Prices is an immutable table of prices. The zero value knows none.
type Prices struct {
	exact   map[Provider]map[string]Price
	dearest map[Provider]Price
	any     map[Provider]Price
}

// DefaultPrices returns the table that is built in.
func DefaultPrices() *Prices { return builtIn() }

var builtIn = sync.OnceValue(func() *Prices {
	p, err := new(Prices).With(pricesText)
	if err != nil {
		panic(err) // the table is part of the program, and a test reads it
	}
	return p
})

// With returns the table with the lines of data, JSON of the form
// {"models": [Price, …]}, before its own. Unknown members and prices that
// are no prices are errors.
func (p *Prices) With(data []byte) (*Prices, error) {
	var file struct {
		Models []Price `json:"models"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("llm: prices: %w", err)
	}
	if dec.More() {
		return nil, errors.New("llm: prices: data after the table")
	}
	q := &Prices{exact: map[Provider]map[string]Price{}, dearest: map[Provider]Price{}, any: map[Provider]Price{}}
	for provider, models := range p.exact {
		for _, m := range models {
			q.add(provider, m)
		}
	}
	for provider, m := range p.any {
		q.any[provider] = m
	}
	for _, m := range file.Models {
		if err := m.check(); err != nil {
			return nil, err
		}
		q.add(m.Provider, m)
	}
	return q, nil
}

func (p *Prices) add(provider Provider, m Price) {
	if m.Model == "*" {
		p.any[provider] = m
		return
	}
	if p.exact[provider] == nil {
		p.exact[provider] = map[string]Price{}
	}
	p.exact[provider][m.Model] = m
	if d, ok := p.dearest[provider]; !ok || m.Input+m.Output > d.Input+d.Output {
		p.dearest[provider] = m
	}
}

func (m *Price) check() error {
	if !m.Provider.known() || m.Model == "" || m.Source == "" || m.Date == "" {
		return fmt.Errorf("llm: price of %q: want a provider, a model, a source and a date", m.Model)
	}
	for _, x := range []float64{m.Input, m.Output, m.CacheRead, m.CacheWrite, m.CacheWrite1h, m.LongInput, m.LongOutput, m.Fast} {
		if x < 0 || x > 1e6 || math.IsNaN(x) {
			return fmt.Errorf("llm: price of %q: %v is no price (want US dollars for a million tokens)", m.Model, x)
		}
	}
	if m.LongOver < 0 || m.LongOver > 0 && (m.LongInput < 1 || m.LongOutput < 1) {
		return fmt.Errorf("llm: price of %q: long_over wants factors of 1 or more", m.Model)
	}
	return nil
}

// Of returns the price of a model. known is false where no line names it:
// the price is then the operator's "*", or the dearest of the provider.
func (p *Prices) Of(provider Provider, model string) (price Price, known bool) {
	model = strings.ToLower(strings.TrimPrefix(model, "models/"))
	if i := strings.LastIndexByte(model, '/'); i >= 0 { // "openai/gpt-5" of a router
		model = model[i+1:]
	}
	for name := model; ; {
		if m, ok := p.exact[provider][name]; ok {
			return m, true
		}
		rest, ok := withoutVersion(name)
		if !ok {
			break
		}
		name = rest
	}
	if m, ok := p.any[provider]; ok {
		return m, true
	}
	return p.dearest[provider], false
}

// withoutVersion cuts one mark of a version off a name: a date, a number,
// "latest", "preview" and the like. What else follows a name is another model.
func withoutVersion(name string) (rest string, ok bool) {
	i := strings.LastIndexAny(name, "-@:[")
	if i <= 0 {
		return "", false
	}
	tail := strings.TrimSuffix(name[i+1:], "]")
	switch tail {
	case "latest", "preview", "exp", "experimental", "chat", "thinking", "customtools", "1m":
		return name[:i], true
	}
	// "-4" alone would make one model of another: a version has two digits or more.
	if len(tail) >= 2 && strings.Trim(tail, "0123456789") == "" {
		return name[:i], true
	}
	return "", false
}

// Cost is what tokens cost in US dollars. fast says that the fast or
// priority service was used.
func (m *Price) Cost(t Tokens, fast bool) float64 {
	in, out := 1.0, 1.0
	if m.LongOver > 0 && t.Input+t.CacheRead+t.CacheWrite+t.CacheWrite1h > m.LongOver {
		in, out = m.LongInput, m.LongOutput
	}
	if fast {
		f := m.Fast
		if f == 0 {
			f = fastFactor
		}
		in, out = in*f, out*f
	}
	usd := in * (float64(t.Input)*m.Input + float64(t.CacheRead)*m.CacheRead +
		float64(t.CacheWrite)*m.CacheWrite + float64(t.CacheWrite1h)*m.CacheWrite1h)
	return (usd+out*float64(t.Output)*m.Output)/1e6 + float64(t.Searches)*searchFee
}

// costOf prices a call by the dearer of the model that was asked for and the
// one that says it answered.
func (p *Prices) costOf(provider Provider, asked, answered string, t Tokens, fast bool) (usd float64, known bool) {
	price, known := p.Of(provider, asked)
	usd = price.Cost(t, fast)
	if answered == "" || answered == asked {
		return usd, known
	}
	other, otherKnown := p.Of(provider, answered)
	switch cost := other.Cost(t, fast); {
	case otherKnown && !known: // an alias, and what it stands for
		return cost, true
	case otherKnown && cost > usd:
		return cost, true
	}
	return usd, known
}
