package javascript

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// parseJSON is JSON.parse of a text, constant or not.
func (a *analysis) parseJSON(args []set) set {
	x := arg(args, 0)
	if len(args) > 1 {
		a.escape(args[1], unknown)
	}
	out := set{unk: x.unk || len(x.vs) == 0}.with(x)
	for _, v := range x.vs {
		t, ok := a.toText(v)
		if !ok || hasHole(t) {
			out.unk = true
			continue
		}
		a.charge(16 * len(t))
		d := json.NewDecoder(bytes.NewReader([]byte(t)))
		d.UseNumber()
		s, ok := a.jsonValue(d, 0)
		if !ok {
			out.unk = true
			continue
		}
		out = join(out, s)
	}
	return out
}

func (a *analysis) jsonValue(d *json.Decoder, depth int) (set, bool) {
	tok, err := d.Token()
	if err != nil || depth > 64 {
		return set{}, false
	}
	switch t := tok.(type) {
	case nil:
		return one(value{k: vNull}), true
	case bool:
		return boolean(t), true
	case json.Number:
		n, err := strconv.ParseFloat(t.String(), 64)
		return num(n), err == nil
	case string:
		return str(t), true
	case json.Delim:
		if t == '[' {
			return a.jsonArray(d, depth)
		}
		return a.jsonObject(d, depth)
	}
	return set{}, false
}

func (a *analysis) jsonArray(d *json.Decoder, depth int) (set, bool) {
	r := &array{born: a.cond}
	for d.More() {
		s, ok := a.jsonValue(d, depth+1)
		if !ok {
			return set{}, false
		}
		r.append(array{items: []set{s}})
	}
	_, err := d.Token()
	return one(value{k: vArray, p: r}), err == nil
}

func (a *analysis) jsonObject(d *json.Decoder, depth int) (set, bool) {
	o := newObject(a.cond)
	for d.More() {
		tok, err := d.Token()
		key, ok := tok.(string)
		if err != nil || !ok {
			return set{}, false
		}
		s, ok := a.jsonValue(d, depth+1)
		if !ok {
			return set{}, false
		}
		if key == "__proto__" {
			// Here it is a plain key; a careless merge makes it a prototype.
			a.pollution(s)
			a.nestedPollution(s, depth)
		}
		if key == "constructor" {
			if v, ok := s.single(); ok && v.k == vObject {
				a.pollution(a.member(s, "prototype"))
			}
		}
		o.put(key, s)
	}
	_, err := d.Token()
	return one(value{k: vObject, p: o}), err == nil
}

// nestedPollution looks one level deeper: {"__proto__":{"env":{…}}}.
func (a *analysis) nestedPollution(s set, depth int) {
	for _, v := range s.vs {
		o, ok := v.p.(*object)
		if v.k != vObject || !ok || depth > 8 {
			continue
		}
		for _, k := range o.order {
			if k == "__proto__" || k == "constructor" || k == "prototype" {
				a.pollution(o.props[k].v)
				a.nestedPollution(o.props[k].v, depth+1)
			}
		}
	}
}

// stringify is JSON.stringify: plain constants are spelled, the rest keeps its
// sources.
func (a *analysis) stringify(args []set) set {
	x := arg(args, 0)
	a.show(args[:min(1, len(args))])
	if len(args) > 1 {
		a.escape(args[1], unknown)
	}
	d := a.content(x)
	if v, ok := x.single(); ok && len(args) == 1 {
		var b strings.Builder
		if a.spell(&b, v, 0) {
			return str(b.String()).with(d)
		}
	}
	return unknown.with(d)
}

// spellText writes a text as JSON.stringify does.
func spellText(b *strings.Builder, s string) bool {
	var q bytes.Buffer
	e := json.NewEncoder(&q)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return false
	}
	b.WriteString(strings.TrimSuffix(q.String(), "\n"))
	return true
}

func (a *analysis) spell(b *strings.Builder, v value, depth int) bool {
	if !a.tick() || depth > 16 || b.Len() > maxText {
		return false
	}
	switch v.k {
	case vNull, vBool, vNum:
		if v.n != v.n {
			return false
		}
		t, _ := a.toText(v)
		b.WriteString(t)
	case vStr:
		if hasHole(v.s) {
			return false
		}
		return spellText(b, v.s)
	case vArray:
		r := v.p.(*array)
		if r.fuzzy {
			return false
		}
		b.WriteByte('[')
		for i, s := range r.items {
			if i > 0 {
				b.WriteByte(',')
			}
			w, ok := s.single()
			if !ok || !a.spell(b, w, depth+1) {
				return false
			}
		}
		b.WriteByte(']')
	case vObject:
		o := v.p.(*object)
		if o.open || o.class != nil || o.kind != "" {
			return false
		}
		b.WriteByte('{')
		for i, k := range o.keys() {
			if i > 0 {
				b.WriteByte(',')
			}
			if !spellText(b, k) {
				return false
			}
			b.WriteByte(':')
			w, ok := o.props[k].v.single()
			if !ok || o.props[k].accessor || !a.spell(b, w, depth+1) {
				return false
			}
		}
		b.WriteByte('}')
	default:
		return false
	}
	return true
}
