package lower

import (
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// maxDispatches is how deep calls in the arguments of calls are followed.
const maxDispatches = 4

// Where a call in a call has the name of its tool and its arguments.
var (
	toolKeys  = [...]string{"tool", "toolname", "recipientname", "name", "action", "function", "method"}
	inputKeys = [...]string{"args", "arguments", "input", "parameters", "params", "toolinput", "toolargs", "actioninput", "payload"}
)

// call lowers an object that names a tool and its arguments as a call of that
// tool, where the outer tool is one that hands calls on, and reports whether
// it did. Where several members could name either, each counts. A call of a
// tool that nobody knows is left to inference: what a dispatcher does with it
// cannot be told from its name.
func (w *walker) call(v *strictjson.Value) bool {
	if w.depth >= maxDispatches || !w.dispatches() {
		return false
	}
	var tools, inputs []int
	for i, k := range v.Keys {
		var buf [64]byte
		n := string(toolspec.AppendNormal(buf[:0], k))
		switch it := &v.Items[i]; {
		case slices.Contains(toolKeys[:], n) && it.Kind == strictjson.String:
			known := w.l.known(it.Str)
			if !known && n != "name" && n != "action" && n != "method" {
				return false
			}
			if known {
				tools = append(tools, i)
			}
		case slices.Contains(inputKeys[:], n) && (it.Kind == strictjson.Object || w.jsonObject(it)):
			inputs = append(inputs, i)
		}
	}
	if len(tools) == 0 || len(inputs) == 0 || len(tools)*len(inputs) > 16 {
		return false
	}
	for _, i := range inputs {
		args := &v.Items[i]
		if args.Kind == strictjson.String {
			parsed, err := strictjson.Parse([]byte(args.Str))
			if err != nil {
				return false
			}
			args = &parsed
		}
		for _, t := range tools {
			w.dispatch(v.Items[t].Str, args, v.Keys[i])
		}
	}
	// What else stands there may move the call or add to it.
	for i, k := range v.Keys {
		if slices.Contains(tools, i) || slices.Contains(inputs, i) {
			continue
		}
		n := len(w.ptr)
		w.push(k)
		child, _ := w.child(k, frame{})
		w.value(&v.Items[i], child)
		w.ptr = w.ptr[:n]
	}
	return true
}

// known reports a tool that the catalogue lists.
func (l *Lowerer) known(name string) bool {
	facts, _ := l.cat.Lookup("", name)
	return facts.Known
}

// jsonObject reports a string that holds a JSON object, and counts it.
func (w *walker) jsonObject(v *strictjson.Value) bool {
	if v.Kind != strictjson.String || w.unpacked+len(v.Str) > maxUnpacked || !strings.HasPrefix(strings.TrimLeft(v.Str, " \t\r\n"), "{") {
		return false
	}
	w.unpacked += len(v.Str)
	parsed, err := strictjson.Parse([]byte(v.Str))
	return err == nil && parsed.Kind == strictjson.Object
}

// dispatch lowers the inner call and takes its effects over.
func (w *walker) dispatch(name string, args *strictjson.Value, key string) {
	facts, spec := w.l.cat.Lookup("", name)
	inner := walker{l: w.l, ctx: w.ctx, env: w.env, spec: spec, tool: name, depth: w.depth + 1, unpacked: w.unpacked, facts: facts}
	inner.ptr = inner.ptrBuf[:0]
	inner.run(args)
	w.unpacked = max(w.unpacked, inner.unpacked)
	w.facts.Irreversible = w.facts.Irreversible || inner.facts.Irreversible
	w.facts.Outbound = w.facts.Outbound || inner.facts.Outbound
	n := len(w.ptr)
	w.push(key)
	at := w.pointer()
	w.ptr = w.ptr[:n]
	for _, e := range inner.effects {
		e.Arg = at + e.Arg
		w.emit(e)
	}
}

// dispatches reports an object that is a call for sure: its tool is an
// unknown one that hands calls on by its name, or it stands in a list of calls.
func (w *walker) dispatches() bool {
	if w.spec.Known {
		return false
	}
	if toolspec.Dispatches(w.tool) {
		return true
	}
	for list := string(w.ptr); list != ""; {
		i := strings.LastIndexByte(list, '/')
		switch string(toolspec.AppendNormal(nil, list[i+1:])) {
		case "calls", "toolcalls", "tooluses", "invocations", "toolinvocations":
			return true
		}
		list = list[:i]
	}
	return false
}

// ports are the port numbers in an object, by what their names have before
// "port", normalised.
type ports struct {
	plain  string
	before []string
	number []string
}

// maxPorts bounds the named ports of one object; one called just "port" always
// counts.
const maxPorts = 32

func portsOf(v *strictjson.Value) (ps ports) {
	for i, k := range v.Keys {
		if n := len(k); n < len("port") || !strings.EqualFold(k[n-len("port"):], "port") {
			continue
		}
		it := &v.Items[i]
		digits := strings.TrimSpace(it.Str)
		if it.Kind != strictjson.String && it.Kind != strictjson.Number || digits == "" || len(digits) > 16 {
			continue
		}
		var buf [64]byte
		switch before := strings.TrimSuffix(string(toolspec.AppendNormal(buf[:0], k)), "port"); before {
		case "", "tcp", "server", "remote":
			ps.plain = digits
		default:
			if len(ps.before) < maxPorts {
				ps.before, ps.number = append(ps.before, before), append(ps.number, digits)
			}
		}
	}
	return ps
}

// of is the port that goes with the host of a name, or "": "db_port" with
// "db_host", before "port" with any.
func (ps *ports) of(host string) string {
	if len(ps.before) > 0 {
		var buf [64]byte
		h := string(toolspec.AppendNormal(buf[:0], host))
		for i, before := range ps.before {
			if strings.HasPrefix(h, before) {
				return ps.number[i]
			}
		}
	}
	return ps.plain
}
