package lower

import (
	"context"
	"fmt"
	"strings"

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
	if role == toolspec.MaybeSQL {
		if !looksSQL(s) {
			if w.spec.Outbound {
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
	w.codes = append(w.codes, piece{role: role, text: s, arg: w.pointer()})
}

// argumentList lowers an array that is a program with its arguments, or a
// list where a command was expected. It reports whether it did.
func (w *walker) argumentList(v *strictjson.Value, f frame) bool {
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
		add(joined)
	}
	return true
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
		if w.cwdIgnored && !strings.HasPrefix(e.Target, "/") {
			other := *e
			other.Dir, other.Doubtful, other.Bytes = w.env.Dir, true, 0
			w.effects = append(w.effects, other)
		}
	}
}

func (w *walker) contentsOut() {
	sent := w.spec.Outbound || w.posts || w.connects()
	if !sent && (w.spec.Known || w.path) {
		return
	}
	target := w.recipient
	if target == "" {
		target = w.spec.Name
	}
	for _, p := range w.contents {
		// A tool that nobody knows and that writes no file puts its text
		// somewhere else. Nothing this short is a secret.
		if !w.spec.Outbound && len(p.text) < shortSecret {
			continue
		}
		w.emit(cordon.Effect{Kind: cordon.Send, Target: target, Text: p.text, Arg: p.arg, Doubtful: !sent})
	}
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
	if len(w.codes) == 0 && len(w.rest) > 0 && w.spec.Executes() {
		w.codes = append(w.codes, piece{role: toolspec.Shell, text: commandLine(w.rest), doubtful: true})
	}
	rest := ""
	if len(w.rest) > 0 {
		rest = " " + commandLine(w.rest)
	}
	if len(w.codes) > maxCodes || len(rest) > maxCode {
		w.opaque("malformed: more code than one call can hold", "")
		return
	}
	for _, p := range w.codes {
		if p.role == toolspec.Shell {
			p.text += rest
		}
		w.code(p)
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
	case toolspec.SQL:
		w.inLanguage("sql", p)
	case toolspec.Shell:
		w.inLanguage("shell", p)
	default:
		langs := w.candidates()
		if len(langs) > 0 {
			for _, l := range langs {
				w.inLanguage(l, p)
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

func (w *walker) inLanguage(lang string, p piece) {
	w.emit(cordon.Effect{Kind: cordon.RunCode, Target: lang, Text: p.text, Origin: cordon.OriginLiteral, Arg: p.arg, Doubtful: p.doubtful})
	for _, e := range w.read(lang, p) {
		w.emit(e)
	}
}

// read has a language's reader read the text.
func (w *walker) read(lang string, p piece) []cordon.Effect {
	dir := w.env.Dir
	if w.cwd != "" {
		dir = w.cwd
	}
	h := handover{w: w}
	es := h.read(w.ctx, lang, p.text, dir)
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
	w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "unknown", Text: p.text, Origin: cordon.OriginLiteral, Arg: p.arg})
	for _, es := range sets {
		if parsed && unparsed(es) {
			continue
		}
		for _, e := range es {
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

// codeLike reports text that is more than a word.
func codeLike(s string) bool { return strings.ContainsAny(s, " \t\n;()=|&<>$`{") }

// sqlVerbs begin a statement in one of the dialects and no question.
var sqlVerbs = verbs(`insert delete drop truncate alter grant revoke with merge exec execute rollback savepoint
	deallocate declare attach detach pragma vacuum reindex upsert shutdown handler reassign raiserror deny waitfor select
	create update replace begin commit prepare kill values`)

// sqlWords begin a statement too, but as often a sentence; sqlSigns tell.
var (
	sqlWords = verbs(`explain show describe desc use call set copy load lock unlock comment security rename do start end
		release reset analyze table flush optimize import install refresh cluster discard listen notify if while print
		backup restore bulk open fetch close move checkpoint export`)
	sqlSigns = verbs("from table into analyze program database data select delete update insert drop outfile infile local session role authorization")
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
			return sqlVerbs[verb] || sqlWords[verb] && sqlSigned(s[end:])
		}
	}
}

// sqlSigned reports what tells a statement from a sentence.
func sqlSigned(s string) bool {
	if strings.ContainsAny(s, ";=*()'\"@`/\\") {
		return true
	}
	for word := range strings.FieldsSeq(s) {
		if sqlSigns[strings.ToLower(word)] {
			return true
		}
	}
	return false
}
