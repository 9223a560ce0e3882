package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// cutter copies the message at at, with other bytes in the place of some.
// The places come in order.
type cutter struct {
	msg  []byte
	at   span
	out  []byte
	upTo int
}

func (c *cutter) put(place span, with []byte) {
	if c.out == nil {
		c.upTo = c.at.lo
	}
	c.out = append(c.out, c.msg[c.upTo:place.lo]...)
	c.out = append(c.out, with...)
	c.upTo = place.hi
}

// bytes is the whole message where nothing was put.
func (c *cutter) bytes() []byte {
	if c.out == nil {
		return c.msg
	}
	return append(c.out, c.msg[c.upTo:c.at.hi]...)
}

// cut holds a tool's result to maxResult bytes: its content to that, and
// each other member to the same. Where cutting long strings is enough the
// shape of a member stays: clients hold structuredContent to a schema.
func (j *Judge) cut(c *cutter, ms []member) {
	content, _ := find(ms, "content")
	limit := j.maxResult
	if holdsData(c.msg, content) {
		limit *= dataFactor
	}
	for _, m := range ms {
		switch {
		case m.val.len() <= j.maxResult:
		case m.key == "content" && c.msg[m.val.lo] == '[':
			j.cutContent(c, m.val)
		case m.val.len() <= limit:
		default:
			if short := cutStrings(m.val.of(c.msg), limit); short != nil {
				c.put(m.val, short)
				continue
			}
			note := fmt.Sprintf("[cordon: %s of %d bytes left out, more than %d]", clip(m.key, 64), m.val.len(), limit)
			c.put(m.val, append(strictjson.AppendString([]byte(`{"cordon":`), note), '}'))
		}
	}
}

// dataFactor is how many times the size of text data may have: an ordinary
// screenshot is larger than any text that a model should be given, and half an
// image is none.
const dataFactor = 8

// isData reports whether a content is an image, sound or another resource's
// bytes rather than text.
func isData(raw []byte) bool {
	ms := members(raw, span{0, len(raw)})
	kind, _ := find(ms, "type")
	switch string(kind.of(raw)) {
	case `"image"`, `"audio"`:
		return true
	case `"resource"`:
		at, _ := find(ms, "resource")
		_, blob := find(members(raw, at), "blob")
		return blob
	}
	return false
}

// holdsData reports whether data is among contents.
func holdsData(msg []byte, content span) bool {
	for _, e := range elements(msg, content) {
		if isData(e.of(msg)) {
			return true
		}
	}
	return false
}

// cutContent replaces the list of contents by as much of it as may pass.
func (j *Judge) cutContent(c *cutter, at span) {
	left, data := j.maxResult, j.maxResult*dataFactor
	var kept [][]byte
	dropped, droppedBytes, cut := 0, 0, false
	for _, e := range elements(c.msg, at) {
		raw := e.of(c.msg)
		if dropped == 0 && len(raw) <= data && isData(raw) {
			kept = append(kept, raw)
			data -= len(raw)
			continue
		}
		if dropped == 0 && len(raw) <= left {
			kept = append(kept, raw)
			left -= len(raw)
			continue
		}
		if short := cutText(raw, left); dropped == 0 && short != nil {
			kept = append(kept, short)
			left, cut = 0, true
			continue
		}
		dropped++
		droppedBytes += len(raw)
	}
	if dropped > 0 {
		note := fmt.Sprintf("[cordon: result cut: %d more contents of %d bytes left out]", dropped, droppedBytes)
		kept = append(kept, append(strictjson.AppendString([]byte(`{"type":"text","text":`), note), '}'))
	}
	if cut || dropped > 0 {
		c.put(at, list(kept))
	}
}

// cutText shortens a text content to about room bytes and marks it. It
// returns nil where raw is none. Annotations and other members stay unless
// they are what is too long.
func cutText(raw []byte, room int) []byte {
	ms := members(raw, span{0, len(raw)})
	kind, _ := find(ms, "type")
	at, ok := find(ms, "text")
	if !ok || string(kind.of(raw)) != `"text"` || raw[at.lo] != '"' {
		return nil
	}
	rest := len(raw) - at.len()
	if rest > room {
		return nil
	}
	var text string
	if json.Unmarshal(at.of(raw), &text) != nil {
		return nil
	}
	n := fits(text, room-rest)
	mark := fmt.Sprintf("\n[cordon: result cut at %d of %d bytes]", n, len(text))
	out := append([]byte(nil), raw[:at.lo]...)
	out = strictjson.AppendString(out, strings.ToValidUTF8(text[:n], "\uFFFD")+mark)
	return append(out, raw[at.hi:]...)
}

// shortString is how long a string may be that is never cut: names and
// choices, without which a value means nothing.
const shortString = 64

// cutStrings shortens the long strings in a value, the first ones least, so
// that it takes up about room bytes. It returns nil where they are not what
// makes it long.
func cutStrings(raw []byte, room int) []byte {
	var long []span
	left := room - len(raw)
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		s := span{i, skipString(raw, i)}
		i = s.hi - 1
		next := skipSpace(raw, s.hi)
		if isKey := next < len(raw) && raw[next] == ':'; !isKey && s.len() > shortString {
			long = append(long, s)
			left += s.len()
		}
	}
	if left < len(long)*shortString {
		return nil
	}
	left -= len(long) * shortString // for the marks
	c := cutter{msg: raw, at: span{0, len(raw)}}
	for _, s := range long {
		if s.len() <= left {
			left -= s.len()
			continue
		}
		text := decode(s.of(raw))
		n := fits(text, left)
		left = max(0, left-n-2)
		mark := fmt.Sprintf("[cordon: result cut at %d of %d bytes]", n, len(text))
		c.put(s, strictjson.AppendString(nil, strings.ToValidUTF8(text[:n], "\uFFFD")+mark))
	}
	return c.bytes()
}

// fits is how many bytes of text, up to the end of a character, take up no
// more than room bytes as a JSON string.
func fits(text string, room int) int {
	room -= 2
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		cost := size
		switch c := text[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			cost = 2
		case c < ' ':
			cost = 6
		}
		if room -= cost; room < 0 {
			return i
		}
		i += size
	}
	return len(text)
}
