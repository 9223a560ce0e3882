package provenance

import (
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// Form is how a tool call is written.
type Form string

const (
	// JSONForm is an object with the name of a tool and its arguments, as
	// tool_use, function_call and MCP's tools/call have it.
	JSONForm Form = "json"
	// XMLForm is <invoke name="…">, <function=…>, <tool_call>, <tool_use>.
	XMLForm Form = "xml"
	// CallForm is name(args).
	CallForm Form = "call"
)

// Invocation is text in the shape of a tool call.
type Invocation struct {
	// Offset and End are byte positions in the text that was scanned. A call
	// inside a string that holds JSON has the position of the string.
	Offset, End int
	Form        Form
	// Tool as it is written; may be empty in an XML form.
	Tool string
	args *strictjson.Value
}

// maxCalls bounds the calls that are looked for in one text.
const maxCalls = 4096

// Scan finds text in the shape of a tool call, in the order in which it ends.
// known says which names a call name(args) may have; nil takes any name whose
// arguments are quoted or named. complete is false where the text had more
// than is looked at; then what is found is not all. It takes time linear in
// the text.
func Scan(text string, known func(tool string) bool) (found []Invocation, complete bool) {
	s := scanner{known: known, budget: 8*len(text) + 4096}
	s.scan(text, -1, 0)
	return s.found, !s.cut
}

type scanner struct {
	known  func(string) bool
	found  []Invocation
	budget int
	cut    bool
	stack  []frame
}

func (s *scanner) add(i Invocation) {
	if len(s.found) >= maxCalls {
		s.cut = true
		return
	}
	s.found = append(s.found, i)
}

func (s *scanner) spend(n int) bool {
	s.budget -= n
	if s.budget < 0 {
		s.cut = true
	}
	return s.budget >= 0
}

// scan looks through text; at is where it stands in the outer text, or -1
// where it is the outer text.
func (s *scanner) scan(text string, at, depth int) {
	x := xmlScanner{scanner: s, text: text, at: at}
	for i := 0; i < len(text); {
		switch text[i] {
		case '{':
			i = s.object(text, i, at, depth)
		case '<':
			x.tag(i)
			i++
		case '(':
			if end := s.call(text, i, at); end > 0 {
				i = end
				continue
			}
			i++
		default:
			n := strings.IndexAny(text[i:], "{<(")
			if n < 0 {
				return
			}
			i += n
		}
	}
}

// frame is an object that is being read.
type frame struct {
	start int
	array bool
	key   string
	name  string
	args  string // the text of the arguments
	state int8
}

const (
	wantKey int8 = iota
	wantColon
	wantValue
	wantComma
)

// object reads the JSON objects that begin at i, without recursion, and
// returns where to go on. What is no JSON is left where the fault is: an
// object within it would fail at the same place.
func (s *scanner) object(text string, i, at, depth int) int {
	from := i
	stack := s.stack[:0]
	defer func() { s.stack = stack[:0] }()
	// Inside a JSON text that was quoted once more the quotes are escaped.
	for i < len(text) {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case len(stack) == 0 && c != '{':
			return max(i, from+1)
		}
		var top *frame
		if len(stack) > 0 {
			top = &stack[len(stack)-1]
		}
		switch c {
		case '{', '[':
			if top != nil && top.state != wantValue && !(top.array && top.state == wantKey) {
				return max(i, from+1)
			}
			if len(stack) > 512 {
				s.cut = true
				return i + 1
			}
			f := frame{start: i, array: c == '['}
			if f.array {
				f.state = wantValue
			}
			stack = append(stack, f)
			i++
		case '}', ']':
			if top == nil || top.array != (c == ']') || top.state == wantColon || top.state == wantValue && !top.array {
				return max(i, from+1)
			}
			i++
			closed := *top
			stack = stack[:len(stack)-1]
			if !closed.array {
				s.closed(text, &closed, i, at)
			}
			if len(stack) == 0 {
				return i
			}
			up := &stack[len(stack)-1]
			if up.key != "" && !up.array && argKey(up.key) && up.args == "" && !closed.array {
				up.args = text[closed.start:i]
			}
			up.state = wantComma
		case ',':
			if top.state != wantComma {
				return max(i, from+1)
			}
			top.state, top.key = wantKey, ""
			if top.array {
				top.state = wantValue
			}
			i++
		case ':':
			if top.state != wantColon {
				return max(i, from+1)
			}
			top.state = wantValue
			i++
		case '"', '\'':
			end, escaped := stringEnd(text, i)
			if end < 0 {
				return i + 1
			}
			body := text[i+1 : end-1]
			if escaped && depth < maxDepth && len(body) >= 12 && strings.Contains(body, `\"`) && strings.ContainsAny(body, "{<(") && s.spend(len(body)) {
				saved := s.stack
				s.stack = nil
				s.scan(unescape(body), origin(at, i), depth+1)
				s.stack = saved
			} else if strings.ContainsAny(body, "<(") && depth < maxDepth && s.spend(len(body)) {
				s.scan(unescape(body), origin(at, i), depth+1)
			}
			switch {
			case top.state == wantKey && !top.array:
				top.key, top.state = body, wantColon
			case top.state == wantValue:
				s.member(top, body)
				top.state = wantComma
			default:
				return i + 1
			}
			i = end
		default:
			n := literalEnd(text, i)
			if n == i || top.state != wantValue {
				return max(i, from+1)
			}
			top.state = wantComma
			i = n
		}
	}
	return i
}

func origin(at, i int) int {
	if at >= 0 {
		return at
	}
	return i
}

// member notes a string that names the tool or holds its arguments.
func (s *scanner) member(f *frame, body string) {
	if f.array || len(f.key) > 32 {
		return
	}
	if toolKey(f.key) && f.name == "" && len(body) <= 128 {
		f.name = unescape(body)
	} else if argKey(f.key) && f.args == "" {
		f.args = unescape(body)
	}
}

// closed ends an object; one that names a tool and has arguments is a call.
func (s *scanner) closed(text string, f *frame, end, at int) {
	if f.name == "" || f.args == "" || !s.spend(len(f.args)) {
		return
	}
	inv := Invocation{Offset: f.start, End: end, Form: JSONForm, Tool: f.name}
	if at >= 0 {
		inv.Offset, inv.End = at, at
	}
	if v, err := strictjson.Parse([]byte(f.args)); err == nil && v.Kind == strictjson.Object {
		inv.args = &v
	}
	s.add(inv)
}

func normal(k string) string {
	var buf [48]byte
	return string(toolspec.AppendNormal(buf[:0], k))
}

func toolKey(k string) bool {
	switch normal(k) {
	case "name", "tool", "toolname", "function", "recipientname", "action", "functionname":
		return true
	}
	return false
}

func argKey(k string) bool {
	if len(k) > 32 {
		return false
	}
	switch normal(k) {
	case "arguments", "args", "input", "parameters", "params", "toolinput", "actioninput", "kwargs", "toolargs":
		return true
	}
	return false
}

// stringEnd is the position after the string that begins at i; -1 where it is
// not closed on its line.
func stringEnd(text string, i int) (end int, escaped bool) {
	quote := text[i]
	for j := i + 1; j < len(text); j++ {
		switch text[j] {
		case quote:
			return j + 1, escaped
		case '\\':
			escaped = true
			j++
		case '\n':
			return -1, escaped
		}
	}
	return -1, escaped
}

func literalEnd(text string, i int) int {
	for i < len(text) {
		c := text[i]
		if class[c]&(clLetter|clDigit) == 0 && c != '-' && c != '+' && c != '.' {
			break
		}
		i++
	}
	return i
}

// unescape reads the escapes of a JSON string body.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	if v, err := strictjson.Parse([]byte(`"` + s + `"`)); err == nil {
		return v.Str
	}
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\/`, "/").Replace(s)
}

// call reads name(args) whose opening parenthesis is at i.
func (s *scanner) call(text string, i, at int) int {
	start := i
	for start > 0 && i-start <= 96 {
		c := text[start-1]
		if class[c]&(clLetter|clDigit) == 0 && c != '_' && c != '.' && c != '-' {
			break
		}
		start--
	}
	name := text[start:i]
	if len(name) < 2 || class[name[0]]&clLetter == 0 {
		return 0
	}
	isKnown := s.known != nil && s.known(name)
	if s.known != nil && !isKnown {
		return 0
	}
	args, end, ok := s.callArgs(text, i+1)
	if !ok || s.known == nil && len(args.Keys) == 0 {
		return 0
	}
	inv := Invocation{Offset: start, End: end, Form: CallForm, Tool: name, args: &args}
	if at >= 0 {
		inv.Offset, inv.End = at, at
	}
	s.add(inv)
	return end
}

// callArgs reads arguments up to the closing parenthesis: k=v or k: v, whose
// values are quoted, lists of such, numbers or words. Values without a name get none.
func (s *scanner) callArgs(text string, i int) (args strictjson.Value, end int, ok bool) {
	const maxArgs = 8 << 10
	args.Kind = strictjson.Object
	from := i
	defer func() { s.spend(i - from) }()
	if s.budget < 0 {
		s.cut = true
		return args, 0, false
	}
	for i < len(text) && i-from < maxArgs {
		i = skipBlank(text, i)
		if i < len(text) && text[i] == ')' {
			return args, i + 1, true
		}
		key := ""
		if n := literalEnd2(text, i); n > i {
			if m := skipBlank(text, n); m < len(text) && (text[m] == '=' || text[m] == ':') {
				key, i = text[i:n], skipBlank(text, m+1)
			}
		}
		v, n, good := callValue(text, i, 0)
		if !good {
			return args, 0, false
		}
		if key != "" && len(args.Keys) < 64 {
			args.Keys, args.Items = append(args.Keys, key), append(args.Items, v)
		}
		i = skipBlank(text, n)
		if i < len(text) && text[i] == ',' {
			i++
		} else if i >= len(text) || text[i] != ')' {
			return args, 0, false
		}
	}
	return args, 0, false
}

func skipBlank(text string, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

func literalEnd2(text string, i int) int {
	for i < len(text) && (class[text[i]]&(clLetter|clDigit) != 0 || text[i] == '_') {
		i++
	}
	return i
}

func callValue(text string, i, depth int) (v strictjson.Value, end int, ok bool) {
	if i >= len(text) {
		return v, 0, false
	}
	switch c := text[i]; c {
	case '"', '\'':
		for j := i + 1; j < len(text) && j-i < 8<<10; j++ {
			if text[j] == '\\' {
				j++
			} else if text[j] == c {
				return strictjson.Value{Kind: strictjson.String, Str: unescape(text[i+1 : j])}, j + 1, true
			}
		}
		return v, 0, false
	case '[':
		v.Kind = strictjson.Array
		for i = skipBlank(text, i+1); i < len(text) && depth < 4; {
			if text[i] == ']' {
				return v, i + 1, true
			}
			item, n, good := callValue(text, i, depth+1)
			if !good || len(v.Items) >= 64 {
				return v, 0, false
			}
			v.Items = append(v.Items, item)
			if i = skipBlank(text, n); i < len(text) && text[i] == ',' {
				i = skipBlank(text, i+1)
			}
		}
		return v, 0, false
	}
	n := literalEnd(text, i)
	return strictjson.Value{Kind: strictjson.Number, Str: text[i:n]}, n, n > i
}

// xmlScanner finds the XML forms. Where a tag closes is looked for once for
// all openings before it.
type xmlScanner struct {
	*scanner
	text  string
	at    int
	close map[string]int
}

var xmlForms = [...]struct{ open, close string }{
	{"<invoke", "</invoke>"}, {"<tool_call", "</tool_call>"}, {"<tool_use", "</tool_use>"},
	{"<function_call", "</function_call>"}, {"<function=", "</function>"}, {"<use_tool", "</use_tool>"}, {"<use_mcp_tool", "</use_mcp_tool>"},
}

func (x *xmlScanner) tag(i int) {
	rest := x.text[i:]
	for _, f := range xmlForms {
		n := len(f.open)
		if len(rest) < n || !strings.EqualFold(rest[:n], f.open) ||
			f.open[n-1] != '=' && n < len(rest) && class[rest[n]]&clSymbol != 0 && !strings.HasPrefix(rest[n:], "s>") {
			continue
		}
		inv := Invocation{Offset: i, End: len(x.text), Form: XMLForm}
		stop := x.closing(i, f.close)
		if stop >= 0 {
			inv.End = stop + len(f.close)
		}
		head := x.text[i:min(len(x.text), i+256)]
		inv.Tool = xmlName(head)
		if stop >= 0 && inv.Tool != "" && x.spend(stop-i) {
			inv.args = xmlArgs(x.text[i:stop])
		}
		if x.at >= 0 {
			inv.Offset, inv.End = x.at, x.at
		}
		x.add(inv)
		return
	}
}

func (x *xmlScanner) closing(i int, tag string) int {
	if p, ok := x.close[tag]; ok && (p < 0 || p >= i) {
		return p
	}
	p := strings.Index(x.text[i:], tag)
	if p >= 0 {
		p += i
	}
	if x.close == nil {
		x.close = map[string]int{}
	}
	x.close[tag] = p
	return p
}

// xmlName is the tool that an opening tag names.
func xmlName(head string) string {
	end := strings.IndexByte(head, '>')
	if end < 0 {
		return ""
	}
	head = head[:end]
	if _, name, ok := strings.Cut(head, "<function="); ok {
		return strings.Trim(name, `"' /`)
	}
	_, name, ok := strings.Cut(head, "name=")
	if !ok || name == "" {
		return ""
	}
	if q := name[0]; q == '"' || q == '\'' {
		name, _, _ = strings.Cut(name[1:], string(q))
		return name
	}
	name, _, _ = strings.Cut(name, " ")
	return name
}

// xmlArgs reads <parameter name="k">v</parameter> and <parameter=k>v</parameter>.
func xmlArgs(s string) *strictjson.Value {
	v := &strictjson.Value{Kind: strictjson.Object}
	for len(v.Keys) < 64 {
		i := strings.Index(s, "parameter")
		if i < 0 {
			break
		}
		s = s[i+len("parameter"):]
		open := strings.IndexByte(s, '>')
		if open < 0 {
			break
		}
		key := strings.Trim(strings.TrimPrefix(strings.TrimLeft(s[:open], " "), "name="), `="' `)
		stop := strings.Index(s, "</")
		if stop < open {
			break
		}
		if key != "" && !slices.Contains(v.Keys, key) {
			v.Keys = append(v.Keys, key)
			v.Items = append(v.Items, strictjson.Value{Kind: strictjson.String, Str: s[open+1 : stop]})
		}
		next := strings.IndexByte(s[stop:], '>')
		if next < 0 {
			break
		}
		s = s[stop+next+1:]
	}
	return v
}

// calls records the tool calls that a text spells.
func (d *digester) calls(text string) {
	found, complete := Scan(text, nil)
	d.overrun = d.overrun || !complete
	for i := range found {
		if f := &found[i]; f.args != nil && f.Tool != "" {
			if h, ok := d.callHash(f.Tool, f.args); ok {
				d.hash(h)
			}
		}
	}
}

// callHash is the hash of a call: the tool by the last part of its name, and
// the leaves of its arguments in an order of their own, each by its path and
// its text, so that 5 and "5" are one. ok is false for a call without arguments.
func (h *hasher) callHash(tool string, args *strictjson.Value) (sum uint64, ok bool) {
	n := 0
	sum = h.leaves(args, h.a, &n)
	if n == 0 {
		return 0, false
	}
	return h.bytes(idCall, binaryAppend(toolspec.AppendNormal(nil, lastName(tool)), sum)), true
}

func binaryAppend(b []byte, v uint64) []byte {
	for range 8 {
		b = append(b, byte(v))
		v >>= 8
	}
	return b
}

// lastName is the tool's own name in a qualified one.
func lastName(tool string) string {
	if i := strings.LastIndex(tool, "__"); i >= 0 && i+2 < len(tool) {
		tool = tool[i+2:]
	}
	if i := strings.LastIndexAny(tool, "./:"); i >= 0 && i+1 < len(tool) {
		tool = tool[i+1:]
	}
	return tool
}

// leaves adds up the hashes of all leaves, so that their order does not count.
func (h *hasher) leaves(v *strictjson.Value, path uint64, n *int) (sum uint64) {
	switch v.Kind {
	case strictjson.Object:
		for i, k := range v.Keys {
			sum += h.leaves(&v.Items[i], mum(path^h.bytes('k', toolspec.AppendNormal(nil, k)), h.d), n)
		}
		return sum
	case strictjson.Array:
		for i := range v.Items {
			sum += h.leaves(&v.Items[i], mum(path^uint64(i+1), h.c), n)
		}
		return sum
	case strictjson.Null:
		return 0
	}
	text := v.Str
	if v.Kind == strictjson.Bool {
		text = "false"
		if v.Bool {
			text = "true"
		}
	}
	*n++
	return mum(path^h.bytes('v', compactText(text)), h.b)
}

// compactText is the folded text without its blanks, quotes and escapes.
func compactText(s string) []byte {
	f := foldText(make([]byte, 0, len(s)), s)
	out := f[:0]
	for _, c := range f {
		if c > ' ' && c != '"' && c != '\'' && c != '\\' {
			out = append(out, c)
		}
	}
	return out
}
