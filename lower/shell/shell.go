// Package shell reads a shell command line or script and says what running
// it would do: the effects of every command that it would start, with the
// words expanded as a shell expands them.
//
// It guarantees: every list, pipeline, branch, loop, function, trap,
// substitution, here-document and nested shell in the text is walked;
// quoting, braces, variables, parameter expansions, arithmetic, tildes and
// word splitting are applied as bash does wherever their values can be known
// from the text; what cannot be known is either harmless where it stands (an
// operand of a program that only reads) or comes out as an effect that says
// so (Opaque, Doubtful, Pattern). Programs are described by data: see the
// files in programs/. The work is bounded by the size of the text, the depth
// of its nesting and the context; past a bound an Opaque effect names it. It
// never runs anything, never opens a file and never resolves a name.
//
// It does not stop anything: it only reads. It does not see what a program
// does beyond its command line (a build script, a Makefile, a test may do
// anything), the contents of files other than those that Env.ReadScript
// gives, or values that only exist at run time.
package shell

import (
	"context"
	"hash/maphash"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/cordon-sandbox/cordon"
)

// Env is what is known of the place where the text will run. The zero value
// knows nothing: paths stay relative, nothing is read.
type Env struct {
	// Dir is the absolute working directory. Workspace is the absolute path
	// of the directory that is worked in; empty is Dir. Home is what "~"
	// means; empty leaves tildes in the targets. User is the login name.
	Dir, Workspace, Home, User string
	// Vars are environment variables whose values are known; may be nil.
	Vars map[string]string
	// Code reads code in another language ("python", "javascript",
	// "typescript", "sql") that the text would run in dir. Nil makes such
	// code opaque. Languages it is not asked about are scanned here.
	Code func(ctx context.Context, lang, src, dir string) []cordon.Effect
	// ReadScript gives the content of a script in the workspace that would
	// be run, to be read in turn; ok is false where it cannot be read. Nil
	// reads none.
	ReadScript func(path string) (content []byte, ok bool)
	// Glob expands a pathname pattern (absolute) against the file system; ok
	// is false where it cannot tell. Nil expands none.
	Glob func(pattern string) (paths []string, ok bool)
}

const (
	maxDepth   = 1200 // recursion of the walker
	maxTurns   = 40   // texts within texts
	maxEffects = 4096
)

// Lower reads src as bash does and returns the effects of running it, in the
// order in which they were met, without duplicates. It never fails: what
// cannot be read is an Opaque effect.
func Lower(ctx context.Context, src string, env Env) []cordon.Effect {
	if env.Workspace == "" {
		env.Workspace = env.Dir
	}
	w := &walker{ctx: ctx, env: env, arg0: lit("bash"), budget: 8_000 + len(src)}
	if len(src) > maxSize {
		w.opaque("the text is longer than 256 KiB", cordon.OriginLiteral, "")
		return w.effects
	}
	src = cleanInput(strings.ToValidUTF8(src, "\uFFFD"))
	w.checkText(src)
	w.script(src, cordon.OriginLiteral)
	w.leave()
	return w.effects
}

// walker reads one text. It is used once, by one goroutine.
type walker struct {
	ctx     context.Context
	env     Env
	effects []cordon.Effect
	seen    map[uint64]struct{}

	names      names
	params     []val
	openParams bool // positional parameters exist but are not known
	arg0       val
	picks      picks

	parser *syntax.Parser
	src    string
	origin cordon.Origin // of the text being read
	via    []string
	acting string // the program that is being lowered
	viaKey string

	files   map[string]val    // what the text wrote, by absolute path
	links   map[string]string // links that the text made
	fds     map[string]val
	socks   map[string]string
	traps   []val
	aliased map[string]bool
	active  map[string]int // functions being run
	gitConf map[string]string
	pipe    *pipeInfo
	inherit stdio // what the text being read has for input and output

	expanding int
	depth     int
	turns     int
	evals     int
	loops     int
	pipes     int
	doubt     int
	budget    int
	ticks     uint
	allExport bool
	stopped   bool
	limited   map[string]bool
}

type pipeInfo struct {
	shell  bool   // a command interpreter stands in the pipeline
	remote string // the far side of a connection in it
	op     string
	picks  string // the one variable that the next element lets through
}

// spend takes n units of work; false when there are none left.
func (w *walker) spend(n int) bool {
	if w.stopped {
		return false
	}
	if w.budget -= n; w.budget < 0 {
		w.stopped = true
		w.limit("work")
		return false
	}
	if w.ticks++; w.ticks&63 == 0 && w.ctx.Err() != nil {
		w.stopped = true
		w.limit("time")
		return false
	}
	return true
}

// limit records, once, that a bound was reached.
func (w *walker) limit(what string) {
	if w.limited[what] {
		return
	}
	if w.limited == nil {
		w.limited = make(map[string]bool)
	}
	w.limited[what] = true
	w.opaque("limit reached: "+what, cordon.OriginLiteral, "")
}

// script parses and runs a text in the current shell.
func (w *walker) script(src string, origin cordon.Origin) {
	if !w.spend(len(src)/64 + 1) {
		return
	}
	if tooDeep(src) {
		w.opaque("limit reached: nesting of 500", origin, "")
		return
	}
	if w.ctx.Err() != nil {
		w.limit("time")
		return
	}
	saved, savedOrigin := w.src, w.origin
	w.src, w.origin = src, origin
	defer func() { w.src, w.origin = saved, savedOrigin }()
	if w.parser == nil {
		w.parser = syntax.NewParser()
	}
	f, err := w.parser.Parse(strings.NewReader(src), "")
	if err != nil {
		w.unparsed(src, origin, err)
		return
	}
	w.stmts(f.Stmts, w.topIO())
}

func (w *walker) topIO() stdio { return w.inherit }

// unparsed reads what bash's grammar (as the parser has it) does not take:
// other dialects first, then whatever statements stand before the error, and
// each further line for itself.
func (w *walker) unparsed(src string, origin cordon.Origin, err error) {
	if text, ok := endHeredocs(src, err); ok {
		if f, err := syntax.NewParser().Parse(strings.NewReader(text), ""); err == nil {
			w.src = text
			w.stmts(f.Stmts, w.topIO())
			return
		}
	}
	if text := fillPlaceholders(src); text != src {
		// "grep x <file>": bash refuses it; what it is meant to do is read.
		if f, err := syntax.NewParser().Parse(strings.NewReader(text), ""); err == nil {
			w.src = text
			w.stmts(f.Stmts, w.topIO())
			return
		}
	}
	for _, lang := range [...]syntax.LangVariant{syntax.LangZsh, syntax.LangMirBSDKorn, syntax.LangPOSIX} {
		if f, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(src), ""); err == nil {
			w.stmts(f.Stmts, w.topIO())
			return
		}
	}
	n := 0
	for s, err := range syntax.NewParser().StmtsSeq(strings.NewReader(src)) {
		if err != nil || w.stopped {
			break
		}
		n++
		w.stmt(s, w.topIO())
	}
	if n == 0 || strings.Count(src, "\n") > 0 {
		w.lines(src)
	}
	w.emit(cordon.Effect{Kind: cordon.Opaque, Origin: origin, Doubtful: true, Text: src,
		Reason: "not a shell program: " + err.Error()})
}

// endHeredocs closes here-documents that the end of the text closes, as bash
// does with a warning.
func endHeredocs(src string, err error) (text string, ok bool) {
	for range 4 {
		_, rest, cut := strings.Cut(err.Error(), "unclosed here-document `")
		if !cut {
			return src, false
		}
		end := strings.TrimSuffix(rest, "`")
		if end == "" || len(src)+len(end) > maxSize {
			return src, false
		}
		src = strings.TrimSuffix(src, "\n") + "\n" + end + "\n"
		if _, err = syntax.NewParser().Parse(strings.NewReader(src), ""); err == nil {
			return src, true
		}
	}
	return src, false
}

// fillPlaceholders puts a plain word for "<name of a thing>", as people write
// in instructions.
func fillPlaceholders(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '<')
		if i < 0 {
			break
		}
		j := strings.IndexByte(s[i:], '>')
		if j < 2 || strings.Trim(strings.ToLower(s[i+1:i+j]), "abcdefghijklmnopqrstuvwxyz0123456789_- .") != "" || s[i+1] == ' ' {
			b.WriteString(s[:i+1])
			s = s[i+1:]
			continue
		}
		b.WriteString(s[:i])
		b.WriteString("x")
		s = s[i+j+1:]
	}
	b.WriteString(s)
	return b.String()
}

// lines reads a text line by line where the whole does not parse.
func (w *walker) lines(src string) {
	w.doubt++ // it may be prose
	defer func() { w.doubt-- }()
	for i, line := range strings.Split(src, "\n") {
		if i > 200 || !w.spend(1) {
			return
		}
		f, err := syntax.NewParser(syntax.RecoverErrors(4)).Parse(strings.NewReader(line), "")
		if err == nil && f != nil {
			w.src = line
			w.stmts(f.Stmts, w.topIO())
			continue
		}
		w.src = line
		for s, err := range syntax.NewParser().StmtsSeq(strings.NewReader(line)) {
			if err != nil || w.stopped {
				break
			}
			w.stmt(s, w.topIO())
		}
	}
}

// turn reads a text that a command of the outer text would run.
func (w *walker) turn(text val, via string, io stdio) {
	text.s = settle(text.s)
	defer w.push(via)()
	if w.turns >= maxTurns {
		w.limit("texts within texts")
		return
	}
	if o := text.origin(); o == cordon.OriginDecoded || o == cordon.OriginNetwork {
		// A command with a decompressed line among its words may be meant.
		part := !text.known() && !startsUnknown(text.s) && !strings.Contains(text.s, mDecoded) && !strings.Contains(text.s, mNet)
		w.emit(cordon.Effect{Kind: cordon.Opaque, Origin: o, Text: dropMarks(text.s), Doubtful: part,
			Reason: "runs text that was " + map[bool]string{true: "downloaded", false: "decoded"}[o == cordon.OriginNetwork]})
	} else if bare(strings.TrimSpace(text.s)) {
		if text.s == mPath {
			return
		}
		w.opaque("runs text that cannot be told", o, "")
		return
	}
	if len(text.s) > maxSize {
		w.limit("size of a text within the text")
		return
	}
	w.turns++
	saved := w.inherit
	w.inherit = io
	w.script(text.s, text.origin())
	w.inherit = saved
	w.turns--
}

// push enters a link of the chain; the result leaves it.
func (w *walker) push(via string) func() {
	if via == "" {
		return func() {}
	}
	old, oldKey := w.via, w.viaKey
	w.via = append(old[:len(old):len(old)], via)
	w.viaKey = oldKey + "\x00" + via
	return func() { w.via, w.viaKey = old, oldKey }
}

// leave runs what runs at the end: traps.
func (w *walker) leave() {
	for i := 0; i < len(w.traps) && i < 32; i++ {
		w.turn(w.traps[i], "trap", stdio{})
	}
}

// seed makes the fingerprints of effects unforeseeable.
var seed = maphash.MakeSeed()

// fingerprint tells effects apart; equal ones are kept once.
func (w *walker) fingerprint(e *cordon.Effect) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	flags := byte(0)
	for i, b := range [...]bool{e.Recursive, e.Pattern, e.NoFollow, e.Doubtful, e.Sends} {
		if b {
			flags |= 1 << i
		}
	}
	_ = h.WriteByte(byte(e.Kind))
	_ = h.WriteByte(flags)
	_ = h.WriteByte(byte(e.Origin))
	for _, s := range [...]string{e.Target, e.Dir, e.Op, e.Text, e.Reason, w.viaKey} {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	for _, s := range e.Data {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(1)
	}
	return h.Sum64()
}

// chain is what led to an effect, the program that has it last.
func (w *walker) chain() []string {
	n := len(w.via)
	if w.acting == "" || n > 0 && (w.via[n-1] == w.acting || strings.HasPrefix(w.via[n-1], w.acting+" ")) {
		return w.via
	}
	return append(w.via[:n:n], w.acting)
}

// act names the program whose effects follow, until the returned function is
// called.
func (w *walker) act(name string) (done func()) {
	before := w.acting
	w.acting = plain(name)
	return func() { w.acting = before }
}

func (w *walker) emit(e cordon.Effect) {
	if w.doubt > 0 {
		e.Doubtful = true
	}
	e.Via = w.chain()
	e.Target, e.Text, e.Dir = plain(e.Target), plain(e.Text), plain(e.Dir)
	k := w.fingerprint(&e)
	if _, dup := w.seen[k]; dup {
		return
	}
	if len(w.effects) == maxEffects {
		w.stopped = true
		w.effects = append(w.effects, cordon.Effect{Kind: cordon.Opaque, Origin: cordon.OriginLiteral,
			Reason: "limit reached: effects"})
		return
	}
	if len(w.effects) > maxEffects {
		return
	}
	if w.seen == nil {
		w.seen = make(map[uint64]struct{}, 16)
		w.effects = make([]cordon.Effect, 0, min(max(len(w.src)/24, 4), 64))
	}
	w.seen[k] = struct{}{}
	w.effects = append(w.effects, e)
}

// plain keeps marks from leaving the package.
func plain(s string) string {
	if !hasMark(s) {
		return s
	}
	t, _ := globTarget(s)
	return t
}

func (w *walker) opaque(reason string, o cordon.Origin, text string) {
	w.emit(cordon.Effect{Kind: cordon.Opaque, Reason: reason, Origin: o, Text: text})
}

// checkText looks for characters that hide what a text does from a reader.
func (w *walker) checkText(src string) {
	if i := strings.IndexByte(src, '\r'); i >= 0 {
		lone := strings.ReplaceAll(src, "\r\n", "\n")
		if strings.IndexByte(lone, '\r') >= 0 {
			w.opaque("a carriage return hides text", cordon.OriginLiteral, "")
			w.doubt++
			w.script(strings.ReplaceAll(lone, "\r", "\n"), cordon.OriginLiteral)
			w.doubt--
		} else {
			w.doubt++
			w.script(lone, cordon.OriginLiteral)
			w.doubt--
		}
	}
	for _, r := range src {
		if r == 0x1b || r == 0x9b {
			w.opaque("terminal escapes hide text", cordon.OriginLiteral, "")
			return
		}
		if r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 {
			w.opaque("bidirectional controls hide text", cordon.OriginLiteral, "")
			return
		}
	}
}
