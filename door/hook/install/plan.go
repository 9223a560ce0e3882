package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tailscale/hujson"
)

// Add returns the settings file with Cordon's hook in it; old is nil where
// there is no file. What of it is there already is brought up to date.
func Add(agent string, old []byte, o Options) ([]byte, error) {
	s, err := specOf(agent)
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if old == nil {
		return fresh(s, o), nil
	}
	body, mark := bytes.CutPrefix(old, bom)
	f, err := read(s, body)
	if err != nil {
		return nil, err
	}
	empty := len(parts(&f.root)) == 0
	if v, err := f.find(key("version")); err != nil || s.version && v == nil && !empty {
		return nil, errors.Join(err, fmt.Errorf(`install: it has no "version" (%s wants "version": 1 in it)`, s.Title))
	}
	for _, e := range s.events {
		if err := f.addEvent(o, e); err != nil {
			return nil, err
		}
	}
	if s.version && empty {
		if err := f.add(&f.root, `"version": 1`, 1); err != nil {
			return nil, err
		}
	}
	if mark {
		return slices.Concat(bom, f.src), nil
	}
	return f.src, nil
}

// fresh is a file with nothing but Cordon's hook.
func fresh(s *spec, o Options) []byte {
	var events object
	for _, e := range s.events {
		events = append(events, member{e.name, []any{s.group(o, e)}})
	}
	root := object{{"hooks", events}}
	if s.version {
		root = append(root, member{"version", 1})
	}
	st := style{newline: "\n", unit: "  "}
	return []byte(st.text(root, 0) + st.newline)
}

// group is what stands in an event's list.
func (s *spec) group(o Options, e eventSpec) object {
	h := s.handler(o, e)
	if s.flat {
		return h
	}
	g := object{{"hooks", []any{h}}}
	if e.matcher != "" {
		g = append(object{{"matcher", e.matcher}}, g...)
	}
	return g
}

// place is where a handler of Cordon's stands: the index in the event's list,
// and the index in the group's, where there are groups.
type place struct{ group, handler int }

// addEvent adds the handler of one event, or brings it up to date.
func (f *file) addEvent(o Options, e eventSpec) error {
	found, err := f.places(e.name)
	if err != nil {
		return err
	}
	for len(found) > 1 {
		// One call would be judged twice.
		if err := f.dropHandler(e.name, found[len(found)-1]); err != nil {
			return err
		}
		found = found[:len(found)-1]
	}
	if len(found) == 1 {
		return f.update(o, e, found[0])
	}
	hooks, err := f.container("object", key("hooks"))
	if err != nil {
		return err
	}
	group := f.spec.group(o, e)
	if hooks == nil {
		text := `"hooks": ` + f.text(object{{e.name, []any{group}}}, 1)
		return f.add(&f.root, text, 1)
	}
	list, err := f.container("array", key("hooks"), key(e.name))
	if err != nil {
		return err
	}
	if list == nil {
		name, _ := json.Marshal(e.name) // a constant of this package
		return f.add(hooks, string(name)+": "+f.text([]any{group}, 2), 2)
	}
	return f.add(list, f.text(group, 3), 3)
}

// update brings a handler up to date, where it says something else.
func (f *file) update(o Options, e eventSpec, p place) error {
	path := p.path(f.spec, e.name)
	v, err := f.find(path...)
	if err != nil {
		return err
	}
	here := f.style
	here.base = f.indent(v.StartOffset)
	text := here.text(f.spec.handler(o, e), 0)
	if same(v.Pack(), []byte(text)) {
		return nil
	}
	return f.replace(v, text)
}

// same compares two values without regard to white space and comments.
func same(a, b []byte) bool {
	ma, err := hujson.Minimize(slices.Clone(a))
	if err != nil {
		return false
	}
	mb, err := hujson.Minimize(slices.Clone(b))
	return err == nil && bytes.Equal(ma, mb)
}

func (p place) path(s *spec, event string) []step {
	if s.flat {
		return []step{key("hooks"), key(event), at(p.handler)}
	}
	return []step{key("hooks"), key(event), at(p.group), key("hooks"), at(p.handler)}
}

// container finds an object or array; nil where it is absent.
func (f *file) container(kind string, path ...step) (*hujson.Value, error) {
	v, err := f.find(path...)
	if err != nil || v == nil {
		return nil, err
	}
	got := "value"
	switch v.Value.(type) {
	case *hujson.Object:
		got = "object"
	case *hujson.Array:
		got = "array"
	}
	if got != kind {
		return nil, fmt.Errorf("install: %q is no JSON %s", path[len(path)-1].key, kind)
	}
	return v, nil
}

// places finds the handlers of Cordon's in an event's list.
func (f *file) places(event string) ([]place, error) {
	if v, err := f.container("object", key("hooks")); err != nil || v == nil {
		return nil, err
	}
	list, err := f.container("array", key("hooks"), key(event))
	if err != nil || list == nil {
		return nil, err
	}
	var found []place
	for i, v := range list.Value.(*hujson.Array).Elements {
		if f.spec.flat {
			if f.isOurs(&v) {
				found = append(found, place{0, i})
			}
			continue
		}
		inner, err := f.find(key("hooks"), key(event), at(i), key("hooks"))
		if err != nil {
			return nil, err
		}
		if inner == nil {
			continue
		}
		handlers, ok := inner.Value.(*hujson.Array)
		if !ok {
			continue // not ours, and not ours to judge
		}
		for j := range handlers.Elements {
			if f.isOurs(&handlers.Elements[j]) {
				found = append(found, place{i, j})
			}
		}
	}
	return found, nil
}

// handlerJSON is what is read of a handler.
type handlerJSON struct {
	Command    string   `json:"command"`
	Args       []string `json:"args"`
	Timeout    float64  `json:"timeout"`
	OnFailure  string   `json:"onFailure"`
	FailClosed bool     `json:"failClosed"`
	Matcher    string   `json:"matcher"`
}

func readHandler(v *hujson.Value) (h handlerJSON, words []string, ok bool) {
	std, err := hujson.Standardize(v.Pack())
	if err != nil || json.Unmarshal(std, &h) != nil {
		return h, nil, false
	}
	if len(h.Args) > 0 {
		return h, append([]string{h.Command}, h.Args...), true
	}
	words, ok = unquote(h.Command)
	return h, words, ok
}

func (f *file) isOurs(v *hujson.Value) bool {
	_, words, ok := readHandler(v)
	return ok && ours(words, f.spec.Agent)
}

// Remove returns the settings file without Cordon's hook. gone is set where
// nothing is left of a file that was made for it.
func Remove(agent string, old []byte) (text []byte, gone bool, err error) {
	s, err := specOf(agent)
	if err != nil {
		return nil, false, err
	}
	body, mark := bytes.CutPrefix(old, bom)
	f, err := read(s, body)
	if err != nil {
		return nil, false, err
	}
	// In the reverse order of adding, so that each step undoes one.
	for _, e := range slices.Backward(s.events) {
		found, err := f.places(e.name)
		if err != nil {
			return nil, false, err
		}
		for _, p := range slices.Backward(found) {
			if err := f.dropHandler(e.name, p); err != nil {
				return nil, false, err
			}
			if f.src == nil {
				return nil, true, nil
			}
		}
	}
	if mark {
		return slices.Concat(bom, f.src), false, nil
	}
	return f.src, false, nil
}

// dropHandler takes a handler out, and what was made for it. f.src is nil
// where that is the whole file.
func (f *file) dropHandler(event string, p place) error {
	if !f.spec.flat {
		alone, err := f.alone(event, p)
		if err != nil {
			return err
		}
		if !alone {
			c, err := f.find(key("hooks"), key(event), at(p.group), key("hooks"))
			if err != nil {
				return err
			}
			return f.cut(c, p.handler)
		}
		p.handler = p.group
	}
	list, err := f.find(key("hooks"), key(event))
	if err != nil {
		return err
	}
	if made, err := f.drop(list, p.handler); err != nil || !made {
		return err
	}
	hooks, err := f.find(key("hooks"))
	if err != nil {
		return err
	}
	if made, err := f.drop(hooks, index(hooks, list)); err != nil || !made {
		return err
	}
	return f.dropHooks(hooks)
}

// alone reports whether a group holds nothing but the handler.
func (f *file) alone(event string, p place) (bool, error) {
	g, err := f.find(key("hooks"), key(event), at(p.group))
	if err != nil {
		return false, err
	}
	for _, m := range g.Value.(*hujson.Object).Members {
		if name := m.Name.Value.(hujson.Literal).String(); name != "hooks" && name != "matcher" {
			return false, nil
		}
	}
	list, err := f.find(key("hooks"), key(event), at(p.group), key("hooks"))
	return err == nil && len(parts(list)) == 1, err
}

// dropHooks takes the whole of "hooks" out, with the version that was added
// behind it.
func (f *file) dropHooks(hooks *hujson.Value) error {
	i := index(&f.root, hooks)
	if ms := f.root.Value.(*hujson.Object).Members; f.spec.version && i == 0 && len(ms) == 2 && ms[1].Name.Value.(hujson.Literal).String() == "version" {
		if err := f.cut(&f.root, 1); err != nil {
			return err
		}
	}
	made, err := f.drop(&f.root, i)
	if made {
		f.src = nil
	}
	return err
}

// index is the place of a part in its container, by its value.
func index(c, v *hujson.Value) int {
	return slices.IndexFunc(parts(c), func(p part) bool { return p.end == v.EndOffset })
}

// Find lists the hooks of Cordon's in a settings file.
func Find(agent string, text []byte) ([]Handler, error) {
	s, err := specOf(agent)
	if err != nil {
		return nil, err
	}
	f, err := read(s, bytes.TrimPrefix(text, bom))
	if err != nil {
		return nil, err
	}
	var list []Handler
	for _, e := range s.events {
		found, err := f.places(e.name)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			v, err := f.find(p.path(s, e.name)...)
			if err != nil {
				return nil, err
			}
			h, words, _ := readHandler(v)
			list = append(list, Handler{
				Event: e.name, Matcher: h.Matcher, Words: words, Timeout: h.Timeout,
				Closed: h.OnFailure == "block" || h.FailClosed,
			})
		}
	}
	return list, nil
}

// Disabled names the setting by which no hook of the agent's runs, "" where
// there is none in the file.
func Disabled(agent string, text []byte) (setting string, err error) {
	s, err := specOf(agent)
	if err != nil {
		return "", err
	}
	f, err := read(s, bytes.TrimPrefix(text, bom))
	if err != nil || agent != "claude" {
		return "", err
	}
	v, err := f.find(key("disableAllHooks"))
	if err != nil || v == nil || string(f.src[v.StartOffset:v.EndOffset]) != "true" {
		return "", err
	}
	return "disableAllHooks", nil
}
