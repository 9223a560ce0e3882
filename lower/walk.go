package lower

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// noObject is the reason of a call whose arguments are no JSON object.
const noObject = "malformed: arguments are no JSON object"

const (
	maxEffects = 4096
	// maxUnpacked bounds the bytes of JSON found in strings, maxUnpacks how
	// deep such strings nest.
	maxUnpacked = 1 << 20
	maxUnpacks  = 4
	// maxPath is the longest string that is taken for a path by its shape
	// (PATH_MAX); a listed path of any length is one.
	maxPath = 4096
)

// frame is what is known about a value from the keys that lead to it.
type frame struct {
	role   toolspec.Role
	listed bool
	strong bool
	dest   bool
	source bool
	many   bool
	route  bool
}

// piece is a string that waits until the whole call was seen.
type piece struct {
	role     toolspec.Role
	text     string
	arg      string
	doubtful bool
	// soft: it may well be no code at all.
	soft bool
	// listed: the catalogue gives the argument its role.
	listed bool
	// joined: it is what becomes of a list of words in a tool that joins
	// them. Where that is no program, no such tool runs it.
	joined bool
}

type walker struct {
	l      *Lowerer
	ctx    context.Context
	env    *Env
	spec   *toolspec.Spec
	schema *toolspec.Schema
	tool   string
	// facts are the tool's, and those of the calls it hands on.
	facts toolspec.Facts
	// depth is how many calls this one stands in.
	depth int

	effects []cordon.Effect
	ptr     []byte
	ptrBuf  [128]byte

	codes, loose []piece
	// stdin is what a program that the call starts would read.
	stdin []piece
	// asides are texts that an executing tool may run if it runs nothing
	// else.
	asides     []piece
	port       string
	contents   []piece
	urlText    []piece
	rest       []string
	languages  []string
	recipient  string
	cwd        string
	cwdIgnored bool
	bytes      int64
	posts      bool
	readsOnly  bool
	path       bool
	full       bool
	// blind: roles of prose are passed over.
	blind bool
	// expected is how many effects there may well be.
	expected int
	unpacks  int
	unpacked int
}

func (w *walker) run(args *strictjson.Value) {
	switch {
	case args == nil || args.Kind == strictjson.Null:
		args = &strictjson.Value{Kind: strictjson.Object}
	case args.Kind != strictjson.Object:
		w.opaque(noObject, "")
	}
	w.expected = min(max(len(args.Keys), 1), 4)
	if w.spec.Known && len(w.effects) == 0 {
		w.expected = 1
	}
	w.readsOnly, w.posts = w.onlyReads(args), posts(args)
	w.value(args, frame{})
	if w.missed() {
		// What the tool works on is nowhere it belongs. A forgiving tool may
		// find it where the catalogue expects prose.
		w.blind = true
		w.bytes, w.contents, w.rest, w.languages, w.asides, w.stdin = 0, nil, nil, nil, nil, nil
		w.value(args, frame{})
	}
	if w.spec.Root != toolspec.Infer && !w.path {
		w.emit(cordon.Effect{Kind: cordon.List, Target: ".", Recursive: true})
	}
	if len(w.codes) == 0 && !w.spec.Executes() {
		w.options()
	}
	switch {
	case w.spec.ReadsEnv:
		w.readEnv(args)
	case w.spec.MayReadEnv && len(args.Keys) == 0:
		w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*", Doubtful: true})
	}
	w.settle()
}

// posts reports an HTTP method that carries data.
func posts(args *strictjson.Value) bool {
	for i, k := range args.Keys {
		if strings.EqualFold(k, "method") || strings.EqualFold(k, "http_method") || strings.EqualFold(k, "httpMethod") {
			switch strings.ToUpper(args.Items[i].Str) {
			case "POST", "PUT", "PATCH", "DELETE":
				return true
			}
		}
	}
	return false
}

// headers looks for the host that the headers of a request name.
func (w *walker) headers(v *strictjson.Value) {
	if name, ok := v.Text("name"); ok && strings.EqualFold(name, "host") {
		value, _ := v.Text("value")
		w.host(value)
	}
	for i, k := range v.Keys {
		if (strings.EqualFold(k, "host") || strings.EqualFold(k, ":authority")) && v.Items[i].Kind == strictjson.String {
			n := len(w.ptr)
			w.push(k)
			w.host(v.Items[i].Str)
			w.ptr = w.ptr[:n]
		}
	}
}

// readEnv emits the variables that a tool gives out: those the call names,
// else all.
func (w *walker) readEnv(args *strictjson.Value) {
	var names []string
	plain := len(args.Keys) > 0
	for i, k := range args.Keys {
		it := &args.Items[i]
		switch it.Kind {
		case strictjson.String:
			var buf [64]byte
			switch string(toolspec.AppendNormal(buf[:0], k)) {
			case "prefix", "pattern", "filter", "regex", "search", "query", "match", "format":
				plain = false
			}
			names = append(names, it.Str)
		case strictjson.Array:
			for j := range it.Items {
				names = append(names, it.Items[j].Str)
			}
		default:
			plain = plain && it.Kind == strictjson.Bool && strings.EqualFold(k, "required")
		}
	}
	for _, name := range names {
		plain = plain && variableName(name)
	}
	if !plain || len(names) == 0 || len(names) > 64 {
		names = []string{"*"}
	}
	for _, name := range names {
		w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: name})
	}
}

func variableName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// options looks at the arguments of a program that nobody named.
func (w *walker) options() {
	for _, s := range w.rest {
		if _, val, ok := strings.Cut(s, "="); ok && s[0] == '-' {
			s = val
		}
		w.str(s, frame{})
	}
}

// missed reports a call of a known tool without anything it could work on.
func (w *walker) missed() bool {
	switch w.spec.Group {
	case toolspec.ReadOnly, toolspec.FSWrite, toolspec.Exec, toolspec.Network:
	default:
		return false
	}
	return len(w.effects)+len(w.codes)+len(w.loose)+len(w.urlText) == 0 && w.spec.Root == toolspec.Infer && w.spec.Acts()
}

// onlyReads reports whether an argument says that a writer only reads. The
// argument counts when no other spelling of it says otherwise.
func (w *walker) onlyReads(args *strictjson.Value) bool {
	if len(w.spec.ReadWhen) == 0 {
		return false
	}
	reads := false
	for i, k := range args.Keys {
		var buf [64]byte
		want, listed := w.spec.ReadWhen[string(toolspec.AppendNormal(buf[:0], k))]
		if !listed {
			continue
		}
		if args.Items[i].Kind != strictjson.String || !slices.Contains(want, args.Items[i].Str) {
			return false
		}
		reads = true
	}
	return reads
}

func (w *walker) value(v *strictjson.Value, f frame) {
	switch v.Kind {
	case strictjson.Object:
		w.object(v, f)
	case strictjson.Array:
		if w.argumentList(v, f) {
			return
		}
		f.many = false
		for i := range v.Items {
			n := len(w.ptr)
			w.ptr = strconv.AppendInt(append(w.ptr, '/'), int64(i), 10)
			w.value(&v.Items[i], f)
			w.ptr = w.ptr[:n]
		}
	case strictjson.String:
		w.str(v.Str, f)
	case strictjson.Number, strictjson.Bool:
		if f.wantsText() {
			w.opaque("malformed: the argument is a "+v.Kind.String()+" (want a string)", "")
		}
		if v.Kind == strictjson.Bool {
			return
		}
		// A tool that wants a string takes a number's spelling for it.
		if f.listed && f.role > toolspec.Language || f.role == toolspec.Content {
			w.str(v.Str, f)
		}
	}
}

// wantsText: the tool is known to take text here, and what it makes of
// another type is its own guess. Words of an argument list are often numbers.
func (f frame) wantsText() bool {
	switch f.role {
	case toolspec.URL, toolspec.Patch, toolspec.SQL, toolspec.Code, toolspec.Shell:
		return f.listed
	}
	return f.listed && f.role.IsPath()
}

func (w *walker) object(v *strictjson.Value, f frame) {
	if f.listed && f.role == toolspec.Text && !w.spec.Outbound && w.spec.Group != toolspec.Memory {
		w.headers(v)
		return
	}
	if f.role == toolspec.Env {
		w.variables(v)
		return
	}
	if w.call(v) {
		return
	}
	var ps ports
	if len(v.Keys) > 1 {
		ps = portsOf(v)
	}
	for i, k := range v.Keys {
		n := len(w.ptr)
		w.push(k)
		child, keyed := w.child(k, f)
		if keyed {
			w.key(k, f)
		}
		if child.role == toolspec.Host || child.role == toolspec.URL && !child.strong {
			w.port = ps.of(k)
		}
		w.value(&v.Items[i], child)
		w.port = ""
		w.ptr = w.ptr[:n]
	}
}

func (w *walker) push(key string) {
	w.ptr = append(w.ptr, '/')
	if strings.ContainsAny(key, "~/") {
		key = strictjson.PointerToken(key)
	}
	w.ptr = append(w.ptr, key...)
}

// child is what a member's name, within its container, says about its value.
// keyed is set where the name itself may be a value (a path as a key).
func (w *walker) child(key string, f frame) (c frame, keyed bool) {
	if f.listed && (f.role == toolspec.Text || w.spec.Remote && f.role == toolspec.Content) {
		return f, false
	}
	if r, ok := w.spec.Role(key); ok && !(w.blind && (r == toolspec.Text || r == toolspec.Content)) {
		if f.listed && f.role == toolspec.Content && r != toolspec.Text && !r.IsPath() {
			return f, false
		}
		return frame{role: r, listed: true, strong: true, many: strings.HasSuffix(key, "s")}, false
	}
	h := toolspec.Hint{}
	if !pathShape(key) && !addressShape(key) {
		h = toolspec.InferArg(key)
	}
	prose := h.Role == toolspec.Text || h.Role == toolspec.Content || h.Role == toolspec.Recipient
	if f.listed && f.role != toolspec.Infer {
		switch {
		case f.role == toolspec.Content:
			// edits: [{path: …}] names a file in each part.
			if h.Role.IsPath() && h.Strong && w.spec.Group == toolspec.FSWrite {
				return frame{role: h.Role, strong: true, dest: true}, false
			}
			return f, false
		case f.role.IsCode() || !h.Strong || h.Role == toolspec.Infer || prose && !f.role.IsPath():
			return f, pathLike(key) || f.role.IsCode()
		}
	}
	if w.spec.Outbound && strings.EqualFold(key, "to") {
		h = toolspec.Hint{Role: toolspec.Recipient, Strong: true}
	}
	if h.Role == toolspec.Text && w.spec.Globs() && strings.EqualFold(key, "pattern") {
		h.Role = toolspec.Glob
	}
	if r := w.schema.Role(key); r != toolspec.Infer && !(h.Strong && h.Role != toolspec.Infer) {
		h.Role, h.Strong = r, w.schema.Sure(key)
	}
	if h.Role == toolspec.Infer && (f.role.IsPath() || f.role == toolspec.URL) && f.strong {
		if pathLike(key) {
			return frame{role: toolspec.Content, strong: true}, true
		}
		return frame{role: f.role, strong: true, dest: f.dest, source: f.source, many: f.many}, true
	}
	c = frame{role: h.Role, strong: h.Strong, dest: h.Dest || f.dest, source: h.Source || f.source, many: h.Many, route: h.Route}
	return c, h.Role == toolspec.Infer
}

// key lowers a member's name that is itself a path or an address.
func (w *walker) key(k string, f frame) {
	switch {
	case addressShape(k):
		w.url(k, false)
	case pathShape(k), f.role.IsPath() && pathLike(k):
		w.pathAt(w.pathRole(f), k)
	case f.role.IsCode() && codeLike(k):
		w.executed(f.role, k, f)
	}
}

func (w *walker) pointer() string { return string(w.ptr) }

func (w *walker) emit(e cordon.Effect) {
	if len(w.effects) >= maxEffects {
		if !w.full {
			w.full = true
			w.effects = append(w.effects, cordon.Effect{Kind: cordon.Opaque,
				Reason: "malformed: more effects than " + strconv.Itoa(maxEffects)})
		}
		return
	}
	if e.Arg == "" && len(w.ptr) > 0 {
		e.Arg = w.pointer()
	}
	if w.effects == nil {
		w.effects = make([]cordon.Effect, 0, w.expected)
	}
	w.effects = append(w.effects, e)
}

func (w *walker) opaque(reason, text string) {
	w.emit(cordon.Effect{Kind: cordon.Opaque, Reason: reason, Text: text, Origin: cordon.OriginLiteral})
}

// str lowers one string in its role.
func (w *walker) str(s string, f frame) {
	role := f.role
	if !f.listed && !f.strong {
		role = w.shape(s, f)
		if role == toolspec.Infer {
			w.unknown(s, f)
			return
		}
	}
	switch {
	case role.IsPath():
		if !f.listed {
			role = w.pathRole(f)
		}
		w.paths(role, s, f)
		return
	case role == toolspec.URL:
		if f.route && strings.HasPrefix(s, "/") && !addressShape(s) && !climbs(s) {
			return
		}
		w.urls(s, f)
		return
	}
	w.other(role, s, f)
}

func (w *walker) other(role toolspec.Role, s string, f frame) {
	switch role {
	case toolspec.Text:
		if f.listed && len(s) > len("host:") && strings.EqualFold(s[:len("host:")], "host:") {
			w.host(s[len("host:"):])
		}
		if w.leaves() && (!f.listed || w.spec.Group == toolspec.Memory) {
			w.contents = append(w.contents, piece{text: s, arg: w.pointer()})
		}
		if !f.listed {
			w.aside(s)
		}
	case toolspec.Content:
		if !f.listed {
			w.aside(s)
		}
		w.bytes += int64(len(s))
		w.contents = append(w.contents, piece{text: s, arg: w.pointer()})
	case toolspec.Send:
		w.emit(cordon.Effect{Kind: cordon.Send, Target: w.spec.Name, Text: s})
	case toolspec.URLsInText:
		w.urlText = append(w.urlText, piece{text: s, arg: w.pointer()})
	case toolspec.Recipient:
		if addressShape(s) && strings.Contains(s, "://") {
			w.url(s, true)
		}
		w.receiver(s)
	case toolspec.Language:
		w.languages = append(w.languages, s)
	case toolspec.Ref:
		if strings.HasPrefix(strings.TrimSpace(s), "-") {
			w.opaque("malformed: an option where a revision is expected", s)
		}
	case toolspec.Glob:
		w.glob(s)
	case toolspec.ReadGlob:
		w.paths(toolspec.ReadGlob, s, f)
	case toolspec.Cwd:
		w.moveTo(s, f)
	case toolspec.Host:
		w.host(s)
	case toolspec.Interpreter:
		w.interpreter(s)
	case toolspec.Env:
		w.variable(s)
	case toolspec.Patch:
		w.patch(s)
	case toolspec.ArgvRest:
		w.rest = append(w.rest, s)
	case toolspec.Stdin:
		w.typed(s)
	default:
		w.executed(role, s, f)
	}
}

// aside keeps text that a tool which executes may run, for nothing else in
// the call says what it runs. A JSON object is looked into instead.
func (w *walker) aside(s string) {
	if !w.spec.Executes() || !codeLike(s) {
		return
	}
	if t := strings.TrimLeft(s, " \t\r\n"); t[0] == '{' && w.unpack(t, frame{}) {
		return
	}
	w.asides = append(w.asides, piece{text: s, arg: w.pointer(), soft: !w.spec.Known})
}

// leaves reports whether what a tool is told may go to others, or to later
// sessions by way of notes.
func (w *walker) leaves() bool {
	return w.spec.Outbound || !w.spec.Known || w.spec.Group == toolspec.Memory
}

func (w *walker) receiver(s string) {
	if w.recipient == "" {
		w.recipient = s
	} else if len(w.recipient) < 256 {
		w.recipient += ", " + s
	}
}

// shape takes a string whose name tells little for what it looks like.
func (w *walker) shape(s string, f frame) toolspec.Role {
	switch {
	case len(s) == 0:
		return toolspec.Infer
	case f.role == toolspec.Code || f.role == toolspec.Shell:
		if codeLike(s) {
			return f.role
		}
	case f.role == toolspec.Stdin:
		return f.role
	case w.spec.Dials && hostLike(s) && !addressShape(s):
		return toolspec.Host
	case f.role == toolspec.URL && addressShape(dropBreaks(s)):
		return toolspec.URL
	case f.role == toolspec.Host && hostLike(s):
		return toolspec.Host
	case f.role == toolspec.Env && strings.Contains(s, "="), f.role == toolspec.Glob:
		return f.role
	}
	switch {
	case addressShape(s):
		return toolspec.URL
	case pathShape(s), dotFile(s):
		return toolspec.Write
	case f.role.IsPath() && pathLike(s):
		if w.spec.Executes() && strings.ContainsAny(s, "();=`") {
			w.loose = append(w.loose, piece{text: s, arg: w.pointer(), doubtful: true})
		}
		return toolspec.Write
	case f.role == toolspec.URL && bareAddress(s):
		return toolspec.URL
	case f.role == toolspec.Content:
		return toolspec.Content
	}
	return toolspec.Infer
}

// unknown is a string that neither its name nor its shape explains.
func (w *walker) unknown(s string, f frame) {
	if w.unpack(s, frame{}) {
		return
	}
	if pathLines(s) {
		for line := range strings.SplitSeq(s, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				w.str(line, frame{})
			}
		}
		return
	}
	if w.leaves() {
		w.contents = append(w.contents, piece{text: s, arg: w.pointer()})
	}
	for _, host := range connectionHosts(lastToken(w.ptr), s) {
		w.host(host)
	}
	switch {
	case w.spec.Executes() && typedAt(w.ptr):
		w.stdin = append(w.stdin, piece{text: s, arg: w.pointer(), doubtful: true})
	case w.spec.Executes() && codeLike(s):
		w.loose = append(w.loose, piece{text: s, arg: w.pointer(), doubtful: true})
	case !w.spec.Known && f.source && programLike(s):
		// A source may be source code.
		w.loose = append(w.loose, piece{text: s, arg: w.pointer(), doubtful: true, soft: true})
	}
}

// typedAt reports a place within an argument called input.
func typedAt(ptr []byte) bool {
	for part := range strings.SplitSeq(string(ptr), "/") {
		if strings.EqualFold(part, "input") || strings.EqualFold(part, "inputs") {
			return true
		}
	}
	return false
}

// unpack reads a string that holds JSON. Where a strict reader refuses what a
// forgiving one may take, the quoted strings in it are looked at.
func (w *walker) unpack(s string, f frame) bool {
	t := strings.TrimLeft(s, " \t\r\n")
	if len(t) < 2 || t[0] != '{' && t[0] != '[' && !(t[0] == '"' && f.role != toolspec.Infer) {
		return false
	}
	w.unpacked += len(t)
	if w.unpacks >= maxUnpacks || w.unpacked > maxUnpacked {
		w.opaque("malformed: JSON in strings beyond the limit", "")
		return true
	}
	w.unpacks++
	defer func() { w.unpacks-- }()
	v, err := strictjson.Parse([]byte(t))
	if err == nil {
		w.value(&v, f)
		return true
	}
	if t[0] == '[' && len(t) > 2 || strings.HasPrefix(strings.TrimLeft(t[1:], " \t\r\n"), `"`) {
		w.quoted(t)
	}
	return false
}

// quoted looks at what stands between quotes in text that is almost JSON.
func (w *walker) quoted(t string) {
	for n := 0; n < 256; n++ {
		i := strings.IndexAny(t, `"'`)
		if i < 0 {
			return
		}
		end := strings.IndexByte(t[i+1:], t[i])
		if end < 0 {
			return
		}
		if s := t[i+1 : i+1+end]; pathShape(s) || addressShape(s) {
			w.str(s, frame{})
		}
		t = t[i+end+2:]
	}
}

func (w *walker) variables(v *strictjson.Value) {
	for i, k := range v.Keys {
		n := len(w.ptr)
		w.push(k)
		item := &v.Items[i]
		switch item.Kind {
		case strictjson.String, strictjson.Number:
			w.setEnv(k, item.Str)
		case strictjson.Object, strictjson.Array:
			w.value(item, frame{role: toolspec.Env, listed: true})
		}
		w.ptr = w.ptr[:n]
	}
	// [{name: …, value: …}] is the other usual form.
	if name, ok := v.Text("name"); ok {
		val, _ := v.Text("value")
		w.setEnv(name, val)
	}
}

func (w *walker) variable(s string) {
	if name, val, ok := strings.Cut(s, "="); ok {
		w.setEnv(name, val)
	}
}

func (w *walker) setEnv(name, val string) {
	w.emit(cordon.Effect{Kind: cordon.SetEnv, Target: name, Text: val})
}
