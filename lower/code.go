package lower

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

const (
	// maxCode bounds one text that is executed, in bytes; maxHandovers how
	// deep code in code in code is followed, maxHanded how many bytes of it.
	maxCode      = 256 << 10
	maxHandovers = 8
	maxHanded    = 1 << 20
	maxCodes     = 256
	shortSecret  = 16
)

// executed keeps text that is run until language and directory are known.
func (w *walker) executed(role toolspec.Role, s string, f frame) {
	if own := w.spec.Language; role == toolspec.MaybeSQL && own != "" && own != "sql" && w.spec.Executes() {
		w.codes = append(w.codes, piece{role: toolspec.Code, text: s, arg: w.pointer(), soft: !w.spec.Known})
		if own != "?" || !looksSQL(s) {
			return
		}
	}
	if role == toolspec.MaybeSQL {
		if !looksSQL(s) {
			if w.leaves() {
				w.contents = append(w.contents, piece{text: s, arg: w.pointer()})
			}
			return
		}
		role = toolspec.SQL
	}
	if strings.TrimSpace(s) == "" {
		return
	}
	if role == toolspec.Argv {
		// A list's spelling, or the command line itself.
		if s[0] == '[' && w.unpack(s, f) {
			return
		}
		role = toolspec.Shell
	}
	if !f.listed && role == toolspec.Code && !w.spec.Executes() && len(w.languages) == 0 && !codeLike(s) {
		if pathLike(s) {
			w.pathAt(w.pathRole(frame{}), s)
		}
		return
	}
	soft := !f.listed && !f.strong && role == toolspec.Code && !w.spec.Known
	w.codes = append(w.codes, piece{role: role, text: s, arg: w.pointer(), soft: soft, listed: f.listed})
}

// argumentList lowers an array that is a program with its arguments, or a
// list where a command was expected. It reports whether it did.
func (w *walker) argumentList(v *strictjson.Value, f frame) bool {
	if f.role == toolspec.Code && len(v.Items) > 1 {
		return w.codeLines(v)
	}
	if f.role != toolspec.Argv && f.role != toolspec.Shell || len(v.Items) == 0 {
		return false
	}
	words := make([]string, 0, len(v.Items))
	for i := range v.Items {
		switch it := &v.Items[i]; it.Kind {
		case strictjson.String, strictjson.Number:
			words = append(words, it.Str)
		case strictjson.Bool:
			words = append(words, fmt.Sprint(it.Bool))
		default:
			return false
		}
	}
	add := func(text string) {
		w.codes = append(w.codes, piece{role: toolspec.Shell, text: text, arg: w.pointer()})
	}
	if f.role == toolspec.Argv {
		add(commandLine(words))
		if len(words) == 1 && strings.ContainsAny(words[0], " \t\n;|&") {
			add(words[0])
		}
		return true
	}
	// Nobody can tell whether the tool joins the list, runs it as one
	// program, or takes each for a command.
	if strings.HasSuffix(strings.ToLower(lastToken(w.ptr)), "s") {
		for _, s := range words {
			add(s)
		}
		return true
	}
	add(commandLine(words))
	if joined := strings.Join(words, " "); joined != commandLine(words) && !shellScript(words) {
		w.codes = append(w.codes, piece{role: toolspec.Shell, text: joined, arg: w.pointer(), joined: true})
	}
	return true
}

// codeLines lowers a list of strings where code was expected: the lines of
// one text, or texts of their own.
func (w *walker) codeLines(v *strictjson.Value) bool {
	lines := make([]string, 0, len(v.Items))
	for i := range v.Items {
		if v.Items[i].Kind != strictjson.String {
			return false
		}
		lines = append(lines, v.Items[i].Str)
	}
	text := strings.Join(lines, "\n")
	if strings.HasSuffix(lines[0], "\n") {
		text = strings.Join(lines, "")
	}
	w.codes = append(w.codes, piece{role: toolspec.Code, text: text, arg: w.pointer()})
	return true
}

// typed keeps what a program would read from its input.
func (w *walker) typed(s string) {
	if strings.TrimSpace(s) == "" || w.unpack(s, frame{}) {
		return
	}
	if w.leaves() {
		w.contents = append(w.contents, piece{text: s, arg: w.pointer()})
	}
	w.stdin = append(w.stdin, piece{text: s, arg: w.pointer(), doubtful: true})
}

// fed is a command line with the text that it gets as its input.
func fed(command, input string) string {
	end := "CORDON_INPUT"
	for strings.Contains(input, end) {
		end += "_"
	}
	return command + " <<'" + end + "'\n" + input + "\n" + end + "\n"
}

// shellScript reports sh -c SCRIPT, whose words joined mean something else.
func shellScript(words []string) bool {
	if len(words) < 3 || language(words[0]) != "shell" {
		return false
	}
	for _, flag := range words[1 : len(words)-1] {
		if len(flag) > 1 && flag[0] == '-' && flag[1] != '-' && strings.HasSuffix(flag, "c") {
			return true
		}
	}
	return false
}

// commandLine is the command line that means the list of words: the script
// itself for sh -c SCRIPT, else the words quoted.
func commandLine(words []string) string {
	if len(words) == 3 && shellScript(words) {
		return words[2]
	}
	var b strings.Builder
	for i, s := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		quote(&b, s)
	}
	return b.String()
}

func quote(b *strings.Builder, s string) {
	safe := s != ""
	for i := 0; i < len(s) && safe; i++ {
		c := s[i]
		safe = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-./:@%+,", c) >= 0
	}
	if safe {
		b.WriteString(s)
		return
	}
	b.WriteByte('\'')
	b.WriteString(strings.ReplaceAll(s, `'`, `'\''`))
	b.WriteByte('\'')
}

// settle lowers what had to wait, and fills in what was found out late.
func (w *walker) settle() {
	w.ptr = w.ptr[:0]
	w.addresses()
	w.places()
	w.contentsOut()
	w.runCodes()
}

// addresses are those in prose that a tool fetches. Claude Code's WebFetch
// takes its address from another argument and hands the prompt to a model;
// Gemini's web_fetch has nothing but the prompt.
func (w *walker) addresses() {
	connects := false
	for i := range w.effects {
		connects = connects || w.effects[i].Kind == cordon.Connect
	}
	if connects && !strings.ContainsAny(w.tool, "_-") {
		return
	}
	for _, p := range w.urlText {
		w.ptr = append(w.ptr[:0], p.arg...)
		for field := range strings.FieldsSeq(p.text) {
			if i := strings.Index(field, "://"); i >= 0 {
				for i > 0 && (field[i-1]|0x20) >= 'a' && (field[i-1]|0x20) <= 'z' {
					i--
				}
				w.url(strings.TrimRight(field[i:], ".,;:!?)]}>'\""), false)
			}
		}
	}
	w.ptr = w.ptr[:0]
}

// places gives relative paths the directory they start from.
func (w *walker) places() {
	dir := w.env.Dir
	if w.cwd != "" {
		dir = w.cwd
	}
	first := true
	for i, n := 0, len(w.effects); i < n; i++ {
		e := &w.effects[i]
		switch e.Kind {
		case cordon.Write:
			if first {
				e.Bytes, first = w.bytes, false
			}
		case cordon.Read, cordon.List, cordon.Delete:
		case cordon.Connect:
			e.Sends = e.Sends || w.posts || w.bytes > 0
			continue
		default:
			continue
		}
		if e.Dir != "" {
			continue
		}
		e.Dir = dir
		// A tool that knows no such argument stays where it was.
		if w.cwdIgnored && !strings.HasPrefix(e.Target, "/") && !w.ordinary(e) {
			other := *e
			other.Dir, other.Doubtful, other.Bytes = w.env.Dir, true, 0
			w.effects = append(w.effects, other)
		}
	}
}

func (w *walker) contentsOut() {
	sent := w.spec.Outbound || w.posts || w.connects()
	if !sent && w.spec.Group != toolspec.Memory && (w.spec.Known || w.path) {
		return
	}
	target := w.recipient
	if target == "" {
		target = w.spec.Name
	}
	// Where no file is named, what an unknown tool keeps counts with what it
	// hands on.
	counts := !w.spec.Known && !w.writes() && !w.connects()
	for _, p := range w.contents {
		// A tool that nobody knows and that writes no file puts its text
		// somewhere else. Nothing this short is a secret.
		if !w.spec.Outbound && len(p.text) < shortSecret {
			continue
		}
		e := cordon.Effect{Kind: cordon.Send, Target: target, Text: p.text, Arg: p.arg, Doubtful: !sent}
		if counts {
			e.Bytes = int64(len(p.text))
		}
		w.emit(e)
	}
}

func (w *walker) writes() bool {
	for i := range w.effects {
		if w.effects[i].Kind == cordon.Write {
			return true
		}
	}
	return false
}

func (w *walker) connects() bool {
	for i := range w.effects {
		if w.effects[i].Kind == cordon.Connect {
			return true
		}
	}
	return false
}

func (w *walker) runCodes() {
	if len(w.codes) == 0 && w.spec.Executes() {
		w.loose = append(append(w.loose, w.asides...), w.stdin...)
		w.stdin = nil
	}
	if len(w.codes) == 0 && len(w.loose) > 0 {
		for _, p := range w.loose {
			p.role = toolspec.Code
			w.codes = append(w.codes, p)
		}
		w.loose = nil
	}
	for _, p := range w.loose {
		w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "unknown", Text: p.text, Origin: cordon.OriginLiteral, Arg: p.arg, Doubtful: true})
	}
	if program := w.spec.Program; program != "" {
		w.named(program)
	} else if len(w.codes) == 0 && len(w.rest) > 0 && w.spec.Executes() {
		w.codes = append(w.codes, piece{role: toolspec.Shell, text: commandLine(w.rest), doubtful: true})
	}
	rest := ""
	if len(w.rest) > 0 {
		rest = " " + commandLine(w.rest)
	}
	if len(w.codes)*max(len(w.stdin), 1) > maxCodes || len(rest) > maxCode {
		w.opaque("malformed: more code than one call can hold", "")
		return
	}
	for _, p := range w.codes {
		if p.role == toolspec.Shell {
			if len(w.rest) == 1 && strings.ContainsAny(w.rest[0], " \t\n") {
				// All arguments in one string, which tools split.
				split := p
				split.text += " " + w.rest[0]
				w.code(split)
			}
			p.text += rest
			for _, in := range w.stdin {
				if line := strings.TrimSpace(p.text); !strings.Contains(line, "\n") {
					w.code(piece{role: p.role, text: fed(line, in.text), arg: in.arg, doubtful: true})
				} else {
					w.guess(piece{text: in.text, arg: in.arg, soft: true})
				}
			}
		}
		w.code(p)
	}
}

// named gives the program that a tool is named after its arguments: those of
// the call, or a command that leaves the program out.
func (w *walker) named(program string) {
	if len(w.codes) == 0 && len(w.rest) > 0 {
		w.codes = append(w.codes, piece{role: toolspec.Shell, text: program})
		return
	}
	for _, p := range w.codes {
		if first, _, _ := strings.Cut(strings.TrimSpace(p.text), " "); p.role != toolspec.Shell || first == program {
			continue
		}
		bare, quoted := p, p
		bare.text = program + " " + p.text
		quoted.text = program + " " + commandLine([]string{p.text})
		w.codes = append(w.codes, bare, quoted)
	}
}

// code lowers one executed text in the languages that it may be in.
func (w *walker) code(p piece) {
	if strings.IndexByte(p.text, 0) >= 0 {
		w.emit(cordon.Effect{Kind: cordon.Opaque, Reason: "malformed: NUL byte in code", Arg: p.arg, Origin: cordon.OriginLiteral})
	}
	switch p.role {
	case toolspec.PageScript:
		// It runs in the page, not on this machine: only its text counts.
		w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "javascript-page", Text: p.text, Origin: cordon.OriginLiteral, Arg: p.arg})
		w.page(p)
	case toolspec.SQL:
		w.inLanguage("sql", p)
	case toolspec.Shell:
		w.inLanguage("shell", p)
		switch own := w.spec.Language; {
		case own == "?":
			w.misnamed("shell", p)
		case own != "" && own != "shell" && !p.listed:
			w.inLanguage(own, p)
		}
	default:
		langs := w.candidates()
		if len(langs) > 0 {
			for _, l := range langs {
				read := w.inLanguage(l, p)
				// Shell and SQL readers take nearly any text.
				if w.spec.Language == "?" && len(langs) == 1 && (!read || l == "shell" || l == "sql") {
					w.misnamed(l, p)
				}
			}
			return
		}
		w.guess(p)
	}
}

// candidates are the languages that the call and the tool name.
func (w *walker) candidates() []string {
	var langs []string
	add := func(l string) {
		for _, have := range langs {
			if have == l {
				return
			}
		}
		if len(langs) < 8 {
			langs = append(langs, l)
		}
	}
	for _, s := range w.languages {
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "", "auto", "default", "detect":
		default:
			add(language(s))
		}
	}
	if l := w.spec.Language; l != "" && l != "?" {
		add(l)
	}
	return langs
}

// inLanguage lowers text in a language, and reports whether it is a program
// of that language.
func (w *walker) inLanguage(lang string, p piece) bool {
	es := w.read(lang, p)
	// Shells run the lines above one that is no program.
	if p.joined && len(es) == 1 && strings.HasPrefix(es[0].Reason, "not a shell program") && !strings.ContainsAny(p.text, "\r\n") {
		return false
	}
	w.emit(cordon.Effect{Kind: cordon.RunCode, Target: lang, Text: p.text, Origin: cordon.OriginLiteral, Arg: p.arg, Doubtful: p.doubtful})
	for _, e := range es {
		w.emit(e)
	}
	return !unparsed(es)
}

// read has a language's reader read the text.
func (w *walker) read(lang string, p piece) []cordon.Effect {
	dir := w.env.Dir
	if w.cwd != "" {
		dir = w.cwd
	}
	h := handover{w: w}
	es := h.read(w.ctx, lang, p.text, dir)
	if lang == "shell" {
		es = append(es, patched(es, p.text, dir)...)
	}
	via := w.spec.Name
	if !w.spec.Known || len(via) > 64 {
		via = lang
	}
	for i := range es {
		e := &es[i]
		e.Arg = p.arg
		e.Doubtful = e.Doubtful || p.doubtful
		e.Via = append([]string{via}, e.Via...)
	}
	return es
}

// page lowers what a script in a page connects to; the rest of what it does
// stays there.
func (w *walker) page(p piece) {
	for _, e := range w.read("javascript", p) {
		if e.Kind == cordon.Connect && e.Target != "" && !e.Pattern {
			w.emit(e)
		}
	}
	if navigates(p.text) {
		w.ptr = append(w.ptr[:0], p.arg...)
		w.loads(p.text)
		w.ptr = w.ptr[:0]
	}
}

// pageSinks take an address that the page then loads; those that end in '='
// are properties that are assigned to.
var pageSinks = [...]string{".src=", ".srcset=", ".href=", ".action=", ".data=", "location=", "HTML=", "location.assign(", "location.replace(",
	"open(", "insertAdjacentHTML(", "document.write", "setAttribute(", "srcdoc=", "postMessage("}

// navigates reports a script of a page that makes it load something.
func navigates(s string) bool {
	if !strings.Contains(s, "//") || len(s) > maxCode {
		return false
	}
	dense := strings.NewReplacer(" ", "", "\t", "", "\n", "", "\r", "").Replace(s)
	for _, sink := range pageSinks {
		for rest := dense; ; {
			i := strings.Index(rest, sink)
			if i < 0 {
				break
			}
			rest = rest[i+len(sink):]
			if !strings.HasSuffix(sink, "=") || !strings.HasPrefix(rest, "=") {
				return true
			}
		}
	}
	return false
}

// misnamed reads text under the languages that it is said not to be in, for
// the tool may go by the text. What it is said to be in was read before.
func (w *walker) misnamed(lang string, p piece) {
	p.doubtful = true
	for _, other := range guesses {
		if other == lang || other == "javascript" && lang == "typescript" {
			continue
		}
		es := w.read(other, p)
		if unparsed(es) {
			continue
		}
		for _, e := range es {
			if e.Kind != cordon.Opaque {
				w.emit(e)
			}
		}
	}
}

var guesses = [...]string{"python", "javascript", "shell"}

// guess reads text of an unnamed language under each that it may be. What is
// no program in one language does not count against the call while it is one
// in another.
func (w *walker) guess(p piece) {
	p.doubtful = true
	var sets [len(guesses)][]cordon.Effect
	parsed := false
	for i, lang := range guesses {
		sets[i] = w.read(lang, p)
		parsed = parsed || !unparsed(sets[i])
	}
	if p.soft && !parsed {
		return
	}
	w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "unknown", Text: p.text, Origin: cordon.OriginLiteral, Arg: p.arg, Doubtful: p.soft})
	for _, es := range sets {
		if parsed && unparsed(es) {
			continue
		}
		for _, e := range es {
			// What may be no code at all need not be read to the end, but
			// nothing that is no code is decoded and run.
			if p.soft && e.Kind == cordon.Opaque && e.Origin != cordon.OriginDecoded && e.Origin != cordon.OriginNetwork {
				continue
			}
			w.emit(e)
		}
	}
}

func unparsed(es []cordon.Effect) bool {
	for i := range es {
		r := es[i].Reason
		if es[i].Kind == cordon.Opaque && (strings.HasPrefix(r, "not a ") || strings.Contains(r, "syntax") || strings.Contains(r, "parse")) {
			return true
		}
	}
	return false
}

// handover follows code in other code, within bounds that all of a text's
// hand-overs share.
type handover struct {
	w     *walker
	depth int
	bytes int
}

func (h *handover) read(ctx context.Context, lang, src, dir string) []cordon.Effect {
	lang = language(lang)
	h.bytes += len(src)
	reason := ""
	switch {
	case len(src) > maxCode:
		reason = fmt.Sprintf("code of more than %d bytes", maxCode)
	case h.depth >= maxHandovers:
		reason = fmt.Sprintf("code nested deeper than %d", maxHandovers)
	case h.bytes > maxHanded:
		reason = fmt.Sprintf("nested code of more than %d bytes", maxHanded)
	}
	reader := h.w.l.langs.reader(lang)
	if reason == "" && reader == nil {
		reason = "no reader for " + lang
	}
	if reason != "" {
		return []cordon.Effect{{Kind: cordon.Opaque, Reason: reason, Text: src[:min(len(src), 1024)], Origin: cordon.OriginLiteral}}
	}
	h.depth++
	defer func() { h.depth-- }()
	return reader(ctx, src, CodeEnv{Dir: dir, Workspace: h.w.env.Workspace, Home: h.w.env.Home, User: h.w.env.User, Code: h.inner})
}

// inner reads code in other code, whose text counts as that of the call.
func (h *handover) inner(ctx context.Context, lang, src, dir string) []cordon.Effect {
	run := cordon.Effect{Kind: cordon.RunCode, Target: language(lang), Text: src, Origin: cordon.OriginLiteral}
	return append([]cordon.Effect{run}, h.read(ctx, lang, src, dir)...)
}

// interpreter lowers the name of the program that a command is given to.
func (w *walker) interpreter(s string) {
	dir, name := "", s
	if i := strings.LastIndexByte(s, '/'); i >= 0 {
		dir, name = s[:i+1], s[i+1:]
	}
	switch dir {
	case "", "/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/":
		switch name {
		case "", "true", "false", "default", "bash", "sh", "zsh", "dash", "ksh", "fish", "pwsh", "powershell", "cmd", "cmd.exe", "powershell.exe":
			return
		}
	}
	w.executed(toolspec.Shell, s, frame{listed: true})
}

// programLike reports text with what sentences have not, as source text has.
func programLike(s string) bool {
	for _, sign := range [...]string{"&&", "||", "$(", "#!", "import ", "require(", "=>", "__", "eval(", "exec("} {
		if strings.Contains(s, sign) {
			return true
		}
	}
	return false
}

// codeLike reports text that is more than a word.
func codeLike(s string) bool { return strings.ContainsAny(s, " \t\n;()=|&<>$`{") }

// sqlVerbs begin a statement in one of the dialects and no question.
var sqlVerbs = sync.OnceValue(func() map[string]bool {
	return verbs(`insert delete drop truncate alter grant revoke with merge exec execute rollback savepoint
	deallocate declare attach detach pragma vacuum reindex upsert shutdown handler reassign raiserror deny waitfor select
	create update replace begin commit prepare kill values`)
})

// sqlWords begin a statement too, but as often a sentence; sqlSigns tell.
var (
	sqlWords = sync.OnceValue(func() map[string]bool {
		return verbs(`explain show describe desc use call set copy load lock unlock comment security rename do start end
		release reset analyze table flush optimize import install refresh cluster discard listen notify if while print
		backup restore bulk open fetch close move checkpoint export`)
	})
	sqlSigns = sync.OnceValue(func() map[string]bool {
		return verbs("from table into analyze program database data select delete update insert drop outfile infile local session role authorization")
	})
)

func verbs(list string) map[string]bool {
	m := map[string]bool{}
	for v := range strings.FieldsSeq(list) {
		m[v] = true
	}
	return m
}

// looksSQL reports text whose first word, past comments and punctuation,
// begins a statement, or that is a command of a database client.
func looksSQL(s string) bool {
	for {
		s = strings.TrimLeft(s, " \t\r\n;(\ufeff\u00a0\v\f")
		switch {
		case strings.HasPrefix(s, "--"), strings.HasPrefix(s, "#"):
			_, rest, ok := strings.Cut(s, "\n")
			if !ok {
				return false
			}
			s = rest
		case strings.HasPrefix(s, "/*!"):
			return true
		case strings.HasPrefix(s, "/*"):
			_, rest, ok := strings.Cut(s[2:], "*/")
			if !ok {
				return true
			}
			s = rest
		default:
			if s != "" && (s[0] == '\\' || s[0] == '.') {
				return true
			}
			end := 0
			for end < len(s) && ((s[end]|0x20) >= 'a' && (s[end]|0x20) <= 'z') {
				end++
			}
			verb := strings.ToLower(s[:min(end, 16)])
			return sqlVerbs()[verb] || sqlWords()[verb] && sqlSigned(s[end:])
		}
	}
}

// sqlSigned reports what tells a statement from a sentence.
func sqlSigned(s string) bool {
	if strings.ContainsAny(s, ";=*()'\"@`/\\") {
		return true
	}
	for word := range strings.FieldsSeq(s) {
		if sqlSigns()[strings.ToLower(word)] {
			return true
		}
	}
	return false
}
