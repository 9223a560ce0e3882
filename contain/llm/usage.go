package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// wire is what of an answer, or of one event of it, says what was billed.
// The three protocols do not share a name with two meanings.
type wire struct {
	Type         string          `json:"type"`
	Model        string          `json:"model"`
	ModelVersion string          `json:"modelVersion"`
	ServiceTier  string          `json:"service_tier"`
	Usage        *wireUsage      `json:"usage"`
	UsageMeta    *geminiUsage    `json:"usageMetadata"`
	Choices      json.RawMessage `json:"choices"`
	Message      *wireInner      `json:"message"`
	Response     *wireInner      `json:"response"`
}

type wireInner struct {
	Model       string     `json:"model"`
	ServiceTier string     `json:"service_tier"`
	Usage       *wireUsage `json:"usage"`
}

// UnmarshalJSON takes an object and lets anything else be: "message" is a
// text in some answers.
func (w *wireInner) UnmarshalJSON(b []byte) error {
	type plain wireInner
	if len(b) == 0 || b[0] != '{' {
		return nil
	}
	return json.Unmarshal(b, (*plain)(w))
}

type wireUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Creation   *struct {
		FiveMinutes int64 `json:"ephemeral_5m_input_tokens"`
		OneHour     int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	InputDetails  *wireDetails `json:"input_tokens_details"`
	PromptDetails *wireDetails `json:"prompt_tokens_details"`
	ServerTools   *struct {
		Searches int64 `json:"web_search_requests"`
	} `json:"server_tool_use"`
	// Iterations are the parts of a call whose turns were shortened on the
	// way; the totals leave those parts out.
	Iterations []struct {
		Input      int64 `json:"input_tokens"`
		Output     int64 `json:"output_tokens"`
		CacheRead  int64 `json:"cache_read_input_tokens"`
		CacheWrite int64 `json:"cache_creation_input_tokens"`
	} `json:"iterations"`
	Speed string `json:"speed"`
	Tier  string `json:"service_tier"`
}

type wireDetails struct {
	Cached  int64 `json:"cached_tokens"`
	Written int64 `json:"cache_write_tokens"`
}

type geminiUsage struct {
	Prompt     int64 `json:"promptTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
	ToolUse    int64 `json:"toolUsePromptTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
}

// meter gathers what an answer says about its own cost.
type meter struct {
	tokens Tokens
	model  string
	fast   bool
	// input: the input tokens are known. final: all are.
	input, final bool
	// bad: a count was no count.
	bad bool
}

// read takes one JSON document of an answer. It reports whether the document
// is nothing but the usage at the end of a chat stream.
func (m *meter) read(data []byte) (usageOnly bool) {
	if !bytes.Contains(data, []byte("sage")) {
		return false // neither "usage", nor "usageMetadata", nor "message_stop"
	}
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		m.bad = m.bad || errors.As(err, new(*json.UnmarshalTypeError))
		return false
	}
	m.note(w.Model+w.ModelVersion, w.ServiceTier)
	switch {
	case w.Type == "message_start" && w.Message != nil:
		m.note(w.Message.Model, w.Message.ServiceTier)
		m.anthropic(w.Message.Usage)
	case w.Type == "message_delta":
		m.anthropic(w.Usage)
	case w.Type == "message_stop":
		m.final = m.input
	case w.Response != nil:
		m.note(w.Response.Model, w.Response.ServiceTier)
		if w.Response.Usage != nil {
			m.openai(w.Response.Usage)
			m.final = true
		}
	case w.UsageMeta != nil:
		m.gemini(w.UsageMeta)
		m.final = true
	case w.Usage != nil && w.Type == "message":
		m.anthropic(w.Usage)
		m.final = true
	case w.Usage != nil:
		m.openai(w.Usage)
		m.final = true
		return string(bytes.TrimSpace(w.Choices)) == "[]"
	}
	return false
}

func (m *meter) note(model, tier string) {
	if model != "" && len(model) <= maxModel {
		m.model = model
	}
	m.fast = m.fast || tier == "priority" || tier == "fast"
}

// count takes a number that the answer gives. Streams repeat their totals, so
// the greatest counts.
func (m *meter) count(to *int64, n int64) {
	if n < 0 || n > maxTokens {
		m.bad = true
		return
	}
	*to = max(*to, n)
}

func (m *meter) anthropic(u *wireUsage) {
	if u == nil {
		return
	}
	m.note("", u.Tier)
	m.fast = m.fast || u.Speed == "fast"
	if u.Input != nil {
		m.count(&m.tokens.Input, *u.Input)
		m.input = true
	}
	if u.CacheRead != nil {
		m.count(&m.tokens.CacheRead, *u.CacheRead)
	}
	switch {
	case u.Creation != nil:
		m.count(&m.tokens.CacheWrite, u.Creation.FiveMinutes)
		m.count(&m.tokens.CacheWrite1h, u.Creation.OneHour)
		if u.CacheWrite != nil { // what neither of them names
			m.count(&m.tokens.CacheWrite, *u.CacheWrite-u.Creation.OneHour)
		}
	case u.CacheWrite != nil:
		m.count(&m.tokens.CacheWrite, *u.CacheWrite-m.tokens.CacheWrite1h)
	}
	if u.Output != nil {
		m.count(&m.tokens.Output, *u.Output)
	}
	var sum Tokens
	for _, i := range u.Iterations {
		if min(i.Input, i.Output, i.CacheRead, i.CacheWrite) < 0 || max(i.Input, i.Output, i.CacheRead, i.CacheWrite) > maxTokens {
			m.bad = true
			return
		}
		sum.Input, sum.Output = sum.Input+i.Input, sum.Output+i.Output
		sum.CacheRead, sum.CacheWrite = sum.CacheRead+i.CacheRead, sum.CacheWrite+i.CacheWrite
	}
	m.count(&m.tokens.Input, sum.Input)
	m.count(&m.tokens.Output, sum.Output)
	m.count(&m.tokens.CacheRead, sum.CacheRead)
	m.count(&m.tokens.CacheWrite, max(0, sum.CacheWrite-m.tokens.CacheWrite1h))
	if u.ServerTools != nil {
		m.count(&m.tokens.Searches, u.ServerTools.Searches)
	}
}

func (m *meter) openai(u *wireUsage) {
	m.note("", u.Tier)
	var in, out, cached, written int64
	for _, n := range []*int64{u.Input, u.Prompt} {
		if n != nil {
			m.count(&in, *n)
		}
	}
	for _, n := range []*int64{u.Output, u.Completion} {
		if n != nil {
			m.count(&out, *n)
		}
	}
	for _, d := range []*wireDetails{u.InputDetails, u.PromptDetails} {
		if d != nil {
			m.count(&cached, d.Cached)
			m.count(&written, d.Written)
		}
	}
	if cached+written > in {
		m.bad = true
		return
	}
	m.total(Tokens{Input: in - cached - written, CacheRead: cached, CacheWrite: written, Output: out})
}

// total takes a count of the whole call. Of several the greatest stays.
func (m *meter) total(t Tokens) {
	m.input = true
	sum := func(t Tokens) int64 { return t.Input + t.CacheRead + t.CacheWrite + t.Output }
	if sum(t) >= sum(m.tokens) {
		m.tokens = t
	}
}

func (m *meter) gemini(u *geminiUsage) {
	in, out := u.Prompt+u.ToolUse, u.Candidates+u.Thoughts
	for _, n := range []int64{u.Prompt, u.ToolUse, u.Candidates, u.Thoughts, u.Cached} {
		if n < 0 || n > maxTokens {
			m.bad = true
			return
		}
	}
	if u.Cached > in {
		m.bad = true
		return
	}
	m.total(Tokens{Input: in - u.Cached, CacheRead: u.Cached, Output: out})
}

// complete reports whether the tokens are all that was billed. An answer
// that says it took nothing and gave nothing is not believed.
func (m *meter) complete() bool {
	return m.final && !m.bad && m.tokens != Tokens{Searches: m.tokens.Searches}
}

// readBody takes the whole of an answer that is no stream: an object, or
// Gemini's array of them.
func (m *meter) readBody(data []byte) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '[' {
		m.read(data)
		return
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return
	}
	for dec.More() {
		var one json.RawMessage
		if err := dec.Decode(&one); err != nil {
			m.final = false
			return
		}
		m.read(one)
	}
}

// eventReader cuts a stream of server-sent events into events.
type eventReader struct {
	r   io.Reader
	max int
	buf []byte
	// r0 to len(buf) is unread; scanned of it holds no end.
	r0, scanned int
	err         error
}

// next returns the next event with the empty line that ends it, valid until
// the next call. whole is false for a piece of an event that is longer than
// max, and for what stands after the last event.
func (e *eventReader) next() (event []byte, whole bool, err error) {
	for {
		unread := e.buf[e.r0:]
		if n, at := eventEnd(unread, e.scanned); n > 0 {
			e.r0, e.scanned = e.r0+n, 0
			return unread[:n], true, nil
		} else {
			e.scanned = at
		}
		if e.err != nil || len(unread) >= e.max {
			e.r0, e.scanned = len(e.buf), 0
			if len(unread) == 0 {
				return nil, false, e.err
			}
			return unread, false, nil
		}
		e.fill()
	}
}

func (e *eventReader) fill() {
	if e.r0 > 0 {
		e.buf = e.buf[:copy(e.buf, e.buf[e.r0:])]
		e.r0 = 0
	}
	if cap(e.buf)-len(e.buf) < 512 {
		grown := make([]byte, len(e.buf), max(4<<10, 2*cap(e.buf)))
		copy(grown, e.buf)
		e.buf = grown
	}
	n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	if err != nil {
		e.err = err
	}
}

// eventEnd finds the end of the first event: two line ends in a row, each
// CR LF, LF or CR. It looks from a place where a former call stopped, and
// returns the next such place where there is no end.
func eventEnd(b []byte, from int) (n, at int) {
	for i := from; i < len(b); {
		j := bytes.IndexAny(b[i:], "\r\n")
		if j < 0 {
			return 0, len(b)
		}
		i += j
		first := lineEnd(b[i:])
		if first == 0 {
			return 0, i
		}
		switch second := lineEnd(b[i+first:]); {
		case second > 0:
			return i + first + second, 0
		case i+first >= len(b) || b[i+first] == '\r':
			return 0, i
		}
		i += first
	}
	return 0, len(b)
}

// lineEnd is the length of the line end that b begins with, 0 where there is
// none or it cannot be told yet.
func lineEnd(b []byte) int {
	switch {
	case len(b) == 0:
		return 0
	case b[0] == '\n':
		return 1
	case b[0] != '\r' || len(b) == 1:
		return 0
	case b[1] == '\n':
		return 2
	}
	return 1
}

// eventData joins the data lines of an event.
func eventData(event []byte) []byte {
	var data []byte
	for len(event) > 0 {
		end := bytes.IndexAny(event, "\r\n")
		line := event
		if end < 0 {
			event = nil
		} else {
			line, event = event[:end], event[end+1:]
		}
		value, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if data == nil {
			data = value[:len(value):len(value)]
			continue
		}
		data = append(append(data, '\n'), value...)
	}
	return data
}
