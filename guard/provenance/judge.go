package provenance

import (
	"path"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// Rules of the findings.
const (
	// RuleVerbatim: the call stands in untrusted text, name and arguments.
	RuleVerbatim = "taint.verbatim_call"
	// The deciding argument came only from untrusted text.
	RuleRecipient  = "taint.recipient"
	RuleHost       = "taint.host"
	RuleURL        = "taint.url"
	RuleCommand    = "taint.command"
	RulePath       = "taint.path"
	RuleAmount     = "taint.amount"
	RuleCredential = "taint.credential"
	RuleReference  = "taint.reference"
	RuleArgument   = "taint.argument"
	// Nobody trusted gave the address, and untrusted text was seen: it may
	// have been there in a form that is not read.
	RuleUnknownRecipient = "taint.unknown_recipient"
	RuleUnknownHost      = "taint.unknown_host"
)

// Input is one call as phase E judges it.
type Input struct {
	Server, Tool string
	Facts        toolspec.Facts
	// Args are the call's arguments as they were parsed; may be nil.
	Args    *strictjson.Value
	Effects []cordon.Effect
	// Index is the run's; nil finds nothing.
	Index *Index
	// Workspace and Home are absolute paths; may be empty.
	Workspace, Home string
	// HostAllowed reports a host that the operator lists; nil is none.
	HostAllowed func(target string) bool
	// Own are domains, addresses and names that the operator vouches for: an
	// address below an own domain may come from anywhere.
	Own []string
}

// Judge finds what of a call only untrusted text decided. It finds nothing
// in a run that has seen none.
//
// Restricted, so that a person is asked, is an effect that cannot be taken
// back or that reaches others, where only untrusted text supplied what decides
// it: the recipient, channel, account or sum; the host of a connection that
// the operator does not list, or the URL below a listed one that data goes to;
// a command that was taken over, where it connects, sends, destroys, deletes
// recursively, persists, administers, or runs what was downloaded or decoded;
// the path of a recursive deletion; a new password; what an unknown tool
// books, buys, cancels or deletes. So is an e-mail address, an account or a
// host that data goes to which nobody named at all. Blocked is a call that
// stands whole in untrusted text and does more than read.
//
// Not found, for it is the ordinary work of an agent: reading, listing and
// plain fetching from listed hosts; writing files; running programs (npm
// test, make, pip install x) that have no such effect, whatever text names
// them; words and numbers that say nothing; what the user or the system names
// as well; paths of ordinary build output; identifiers in the form in which
// tools give them out (alone on a line, in quotes, after "id:"); SQL that adds
// tables or rows.
func Judge(in Input) []cordon.Finding {
	if in.Index == nil {
		return nil
	}
	untrusted, any := in.Index.sawForeign()
	if !any {
		return nil
	}
	j := judge{Input: in, untrusted: untrusted}
	j.verbatim()
	for i := range in.Effects {
		j.effect(&in.Effects[i])
	}
	j.named()
	return j.found
}

// sawForeign reports whether untrusted text was recorded, and any but trusted.
func (ix *Index) sawForeign() (untrusted, any bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.seen, ix.lowest != cordon.Trusted
}

type judge struct {
	Input
	untrusted bool
	found     []cordon.Finding
	parties   map[string]struct{} // values that were judged as recipients
	commands  []command
}

// command is the judgement of one argument that is code.
type command struct {
	arg     string
	tainted bool
	taint   Taint
}

func (j *judge) find(rule, detail, arg string, outcome cordon.Outcome, via []string) {
	for i := range j.found {
		if f := &j.found[i]; f.Rule == rule && f.Arg == arg && f.Detail == detail {
			return
		}
	}
	if len(j.found) < 64 {
		j.found = append(j.found, cordon.Finding{Phase: cordon.PhaseProvenance, Violation: cordon.Provenance,
			Rule: rule, Outcome: outcome, Detail: detail, Arg: arg, Via: via})
	}
}

// restrict finds a value that only untrusted text supplied. shown is empty
// where the value is a secret.
func (j *judge) restrict(rule, what, shown string, t *Taint, arg string, via []string) {
	if shown != "" {
		what += " " + quote(shown)
	}
	detail := what + " came only from untrusted text: " + j.origins(t)
	if t.Part {
		detail = what + " was put together from untrusted text: " + j.origins(t)
	}
	j.find(rule, detail, arg, cordon.Restricted, via)
}

func quote(s string) string {
	const most = 120
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// origins names the chunks and where they came from.
func (j *judge) origins(t *Taint) string {
	if len(t.Chunks) == 0 {
		return "older text, of which only identifiers are still known"
	}
	var b strings.Builder
	for i, c := range t.Chunks {
		if i == 3 {
			b.WriteString(", and others")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("chunk " + quote(c.ID) + " (" + strings.ToValidUTF8(clip(string(c.Type), maxType), ""))
		if c.Source != "" {
			b.WriteString(" from " + quote(c.Source))
			if s := j.Index.Match(c.Source, Path); s.Clean && !s.Trivial {
				b.WriteString(", which the user named")
			}
		}
		b.WriteString(")")
	}
	return b.String()
}

// verbatim blocks a call that stands in untrusted text.
func (j *judge) verbatim() {
	from, found := j.Index.Verbatim(j.Tool, j.Args)
	if !found || j.onlyReads() || j.allSaid(j.Args) {
		return
	}
	j.find(RuleVerbatim, "this very call, with its arguments, stands in untrusted text: "+j.origins(&Taint{Chunks: []Source{from}}), "", cordon.Blocked, nil)
}

// onlyReads reports a call that takes in and does nothing else.
func (j *judge) onlyReads() bool {
	for i := range j.Effects {
		switch e := &j.Effects[i]; e.Kind {
		case cordon.Read, cordon.List:
		case cordon.SQL:
			if e.Op != "read" {
				return false
			}
		case cordon.Connect:
			if e.Sends || !j.listed(e.Target) {
				return false
			}
		default:
			return false
		}
	}
	return len(j.Effects) > 0 || !j.acts()
}

// allSaid reports arguments each of which trusted text holds too.
func (j *judge) allSaid(v *strictjson.Value) bool {
	said, some := true, false
	j.leaves(v, "", "", func(_, _ string, leaf *strictjson.Value) {
		t := j.Index.Match(leaf.Str, Party)
		if len(leaf.Str) > 64 && !t.Clean {
			t = j.Index.Match(leaf.Str, Text)
		}
		said = said && t.Clean
		some = some || !t.Trivial
	})
	return said && some
}

// leaves calls each for the strings and numbers of v with their pointer and
// the name nearest above.
func (j *judge) leaves(v *strictjson.Value, ptr, key string, each func(ptr, key string, leaf *strictjson.Value)) {
	if v == nil {
		return
	}
	switch v.Kind {
	case strictjson.Object:
		for i, k := range v.Keys {
			j.leaves(&v.Items[i], ptr+"/"+strictjson.PointerToken(k), k, each)
		}
	case strictjson.Array:
		for i := range v.Items {
			j.leaves(&v.Items[i], ptr+"/"+strconv.Itoa(i), key, each)
		}
	case strictjson.String, strictjson.Number:
		each(ptr, key, v)
	}
}

// unpacked is leaves of the arguments and of the strings in them that are JSON
// themselves, as tools that run others take theirs. The pointer of what is in
// such a string is the string's.
func (j *judge) unpacked(each func(ptr, key string, leaf *strictjson.Value)) {
	j.leaves(j.Args, "", "", func(ptr, key string, leaf *strictjson.Value) {
		inner, ok := packed(leaf.Str)
		if !ok {
			each(ptr, key, leaf)
			return
		}
		j.leaves(&inner, ptr, key, func(_, key string, leaf *strictjson.Value) { each(ptr, key, leaf) })
	})
}

// packed reads a string that is a JSON object or list.
func packed(s string) (strictjson.Value, bool) {
	s = strings.TrimSpace(s)
	if len(s) < 2 || len(s) > maxMatch || !(s[0] == '{' && s[len(s)-1] == '}' || s[0] == '[' && s[len(s)-1] == ']') {
		return strictjson.Value{}, false
	}
	v, err := strictjson.Parse([]byte(s))
	return v, err == nil
}

func (j *judge) listed(target string) bool {
	return loopback(target) || j.HostAllowed != nil && j.HostAllowed(target) || j.own(target)
}

func loopback(target string) bool {
	h := target
	if i := strings.LastIndexByte(h, ':'); i >= 0 && strings.Count(h, ":") == 1 {
		h = h[:i]
	}
	h = strings.Trim(h, "[]")
	return h == "localhost" || h == "::1" || h == "0.0.0.0" || strings.HasPrefix(h, "127.") && hostLike([]byte(h))
}

// own reports a value that the operator vouches for.
func (j *judge) own(value string) bool {
	if len(j.Own) == 0 {
		return false
	}
	v := string(foldText(nil, strings.TrimSpace(value)))
	host := v
	if h, _ := splitURL([]byte(v)); h != nil {
		host = string(h)
	}
	for _, o := range j.Own {
		o = string(foldText(nil, strings.TrimPrefix(strings.TrimSpace(o), "@")))
		if o == "" {
			continue
		}
		if v == o || host == o || strings.HasSuffix(host, "."+o) {
			return true
		}
	}
	return false
}

// effect judges one effect by its kind.
func (j *judge) effect(e *cordon.Effect) {
	switch e.Kind {
	case cordon.Connect:
		j.connect(e)
	case cordon.Send:
		j.send(e)
	case cordon.Delete:
		if e.Recursive {
			j.path(e, "the path to be deleted with all below")
		}
	case cordon.Write:
		if runsLater(e.Target) {
			j.kept(e)
		}
	case cordon.Persist:
		if !j.command(e) && !j.kept(e) {
			j.path(e, "the target of "+strings.TrimSpace(e.Kind.String()+" "+e.Op))
		}
	case cordon.Destroy, cordon.Administer:
		if !j.command(e) {
			j.path(e, "the target of "+strings.TrimSpace(e.Kind.String()+" "+e.Op))
		}
	case cordon.Privilege:
		j.command(e)
	case cordon.SQL:
		if e.Op == "change" {
			j.command(e)
		}
	case cordon.RunCode, cordon.Execute, cordon.Opaque:
		if e.Origin == cordon.OriginNetwork || e.Origin == cordon.OriginDecoded {
			j.command(e)
		}
	}
}

// connect judges where a connection goes.
func (j *judge) connect(e *cordon.Effect) {
	if e.Op == "listen" || e.Target == "" || loopback(e.Target) || j.own(e.Target) {
		return
	}
	if j.HostAllowed == nil || !j.HostAllowed(e.Target) {
		t := j.Index.Match(e.Target, Host)
		switch {
		case t.Disguised:
			j.find(RuleHost, "the host "+quote(e.Target)+" only looks like one that was named: it has characters that imitate or hide others", e.Arg, cordon.Restricted, e.Via)
		case t.Only():
			j.restrict(RuleHost, "the host", e.Target, &t, e.Arg, e.Via)
		case t.Unknown() && j.untrusted && j.sendsData(e):
			j.find(RuleUnknownHost, "data would go to the host "+quote(e.Target)+", which neither the user nor the operator named, after untrusted text was seen", e.Arg, cordon.Restricted, e.Via)
		}
		j.command(e)
		return
	}
	if !j.sendsData(e) {
		return
	}
	url := j.urlOf(e)
	if t := j.Index.Match(url, Address); url != "" && t.Only() && !t.Part {
		j.restrict(RuleURL, "the address that data goes to,", url, &t, e.Arg, e.Via)
	}
}

// sendsData reports a connection with which data goes out beyond its address.
// Lowering also says so of an address that has room for data; but one that
// untrusted text holds as it stands carries nothing of ours.
func (j *judge) sendsData(e *cordon.Effect) bool {
	if !e.Sends || e.Op == "reverse_shell" || len(e.Data) > 0 || e.Text == "" || e.Text != j.argument(e.Arg) || j.Facts.Outbound {
		return e.Sends
	}
	if j.Args == nil {
		return true
	}
	for i, k := range j.Args.Keys {
		switch normal(k) {
		case "method", "httpmethod", "verb":
			if m := j.Args.Items[i].Str; !strings.EqualFold(m, "GET") && !strings.EqualFold(m, "HEAD") {
				return true
			}
		case "body", "data", "json", "payload", "content", "form", "files", "file", "formdata", "requestbody":
			return true
		}
	}
	return false
}

// urlOf is the address with its path that an effect's argument has for its
// host; "" where it has none.
func (j *judge) urlOf(e *cordon.Effect) string {
	target := []byte(strings.ToLower(e.Target))
	if h, _ := splitURL(target); h != nil {
		target = h
	}
	for _, text := range [...]string{e.Text, j.argument(e.Arg)} {
		if text == "" {
			continue
		}
		f := foldText(nil, clip(text, maxMatch))
		for i := 0; i < len(f); {
			if class[f[i]]&clAtom == 0 {
				i++
				continue
			}
			start := i
			for i < len(f) && class[f[i]]&clAtom != 0 {
				i++
			}
			if host, url := splitURL(f[start:i]); host != nil && string(host) == string(target) && len(url) > len(host) {
				return string(url)
			}
		}
	}
	return ""
}

// argument is the string that an effect came from.
func (j *judge) argument(pointer string) string {
	v := j.Args
	for rest := pointer; rest != "" && v != nil; {
		step, tail, more := strings.Cut(rest[1:], "/")
		rest = ""
		if more {
			rest = "/" + tail
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v.Kind {
		case strictjson.Object:
			v = v.Get(step)
		case strictjson.Array:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(v.Items) {
				return ""
			}
			v = &v.Items[n]
		default:
			return ""
		}
	}
	if v == nil || v.Kind != strictjson.String {
		return ""
	}
	return v.Str
}

// minCommand is how many letters and digits a command must have to have been
// taken over: "git push origin main" is in every handbook.
const minCommand = 24

// command restricts a command that was taken over from untrusted text and
// reports whether it did.
func (j *judge) command(e *cordon.Effect) bool {
	if e.Arg == "" {
		return false
	}
	for i := range j.commands {
		if c := &j.commands[i]; c.arg == e.Arg {
			return c.tainted
		}
	}
	c := command{arg: e.Arg}
	if text := j.argument(e.Arg); len(text) > len(e.Target) && (strings.ContainsAny(text, " \n(;|") || len(text) > 64) {
		c.taint, c.tainted = j.takenOver(text)
	}
	j.commands = append(j.commands, c)
	if c.tainted {
		what := e.Kind.String()
		if e.Op != "" {
			what += " (" + e.Op + ")"
		}
		j.restrict(RuleCommand, "the command, which does more than work here: "+what+",", "", &c.taint, e.Arg, e.Via)
	}
	return c.tainted
}

// path judges the target of what cannot be taken back, in each form in which
// a text may name it.
func (j *judge) path(e *cordon.Effect, what string) {
	inside := false
	var worst Taint
	for _, p := range j.pathForms(e, &inside) {
		t := j.Index.Match(p, Path)
		if t.Clean {
			return
		}
		if t.Only() && !(inside && t.Field) && t.Share > worst.Share {
			worst = t
		}
	}
	if worst.Share > 0 {
		j.restrict(RulePath, what+",", e.Target, &worst, e.Arg, e.Via)
	}
}

// runsLater reports a file whose content is run, or obeyed, without another
// call that would be judged.
func runsLater(target string) bool {
	p := strings.ToLower(path.Clean("/" + strings.ReplaceAll(target, `\`, "/")))
	switch path.Base(p) {
	case ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", "config.fish",
		"authorized_keys", ".npmrc", ".gitconfig", ".mcp.json", "crontab", "sitecustomize.py", "usercustomize.py":
		return true
	}
	for _, dir := range [...]string{"/.git/hooks/", "/.git/config", "/.ssh/", "/.claude/", "/.cursor/", "/.codex/", "/.gemini/", "/.vscode/", "/cron.d/", "/cron.daily/",
		"/systemd/", "/launchagents/", "/launchdaemons/", "/autostart/", "/.husky/"} {
		if strings.Contains(p, dir) {
			return true
		}
	}
	return false
}

// kept restricts content from untrusted text that would run later, whatever
// file it is put in.
func (j *judge) kept(e *cordon.Effect) (found bool) {
	n := 0
	j.leaves(j.Args, "", "", func(ptr, _ string, leaf *strictjson.Value) {
		if ptr == e.Arg || found || !long(leaf.Str) || n >= maxParts {
			return
		}
		n++
		if t, ok := j.takenOver(leaf.Str); ok {
			j.restrict(RuleCommand, "what is to be kept and run later", "", &t, ptr, e.Via)
			found = true
		}
	})
	return found
}

// takenOver reports a command of which the whole or a part of its own came
// only from untrusted text: what else stands around the part does not matter.
func (j *judge) takenOver(text string) (Taint, bool) {
	if t := j.Index.Match(text, Text); t.Only() && long(text) {
		return t, true
	}
	n := 0
	for part := range strings.FieldsFuncSeq(clip(text, maxMatch), func(r rune) bool { return r == ';' || r == '\n' || r == '|' || r == '&' }) {
		if !long(part) {
			continue
		}
		if n++; n > maxParts {
			break
		}
		if t := j.Index.Match(part, Text); t.Only() {
			return t, true
		}
	}
	return Taint{}, false
}

// maxParts bounds the parts of a command that are looked up by themselves.
const maxParts = 64

func long(command string) bool {
	return len(command) >= minCommand && len(symbols(foldText(nil, clip(command, 4096)))) >= minCommand
}

func (j *judge) pathForms(e *cordon.Effect, inside *bool) []string {
	full := e.Target
	if !strings.HasPrefix(full, "/") {
		full = path.Join("/", e.Dir, e.Target)
	}
	var forms []string
	// "build" says nothing here, and much where the call has gone elsewhere.
	if e.Dir == "" || e.Dir == j.Workspace || strings.HasPrefix(e.Dir, strings.TrimSuffix(j.Workspace, "/")+"/") {
		forms = append(forms, e.Target)
	}
	if j.Workspace != "" {
		if rel, ok := strings.CutPrefix(full, strings.TrimSuffix(j.Workspace, "/")+"/"); ok {
			*inside = e.Kind == cordon.Delete
			forms = append(forms, rel)
		}
	}
	if j.Home != "" {
		if rel, ok := strings.CutPrefix(full, strings.TrimSuffix(j.Home, "/")+"/"); ok {
			forms = append(forms, "~/"+rel)
		}
	}
	return append(forms, full)
}

// send judges who gets what a tool hands on.
func (j *judge) send(e *cordon.Effect) {
	if strings.EqualFold(e.Target, j.Tool) || e.Target == j.Facts.Name || e.Target == "package registry" {
		return // the tool itself, or what its name means, is where it goes: no word of the call
	}
	if strings.HasPrefix(e.Target, "github ") {
		j.repository(e)
		return
	}
	for p := range strings.FieldsFuncSeq(e.Target, func(r rune) bool { return r == ',' || r == ';' }) {
		j.party(p, e.Arg, e.Via)
	}
}

// repository judges where the gh program sends to: the repository that its
// options name. Without one it is that of the directory.
func (j *judge) repository(e *cordon.Effect) {
	words := strings.Fields(clip(j.argument(e.Arg), maxMatch))
	for i, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if name != "-R" && name != "--repo" {
			continue
		}
		if !ok && i+1 < len(words) {
			value = words[i+1]
		}
		j.party(strings.Trim(value, `"'`), e.Arg, e.Via)
	}
}

// party judges one recipient.
func (j *judge) party(value, arg string, via []string) {
	value = strings.TrimSpace(value)
	if _, done := j.parties[value]; done {
		return
	}
	if j.parties == nil {
		j.parties = map[string]struct{}{}
	}
	j.parties[value] = struct{}{}
	if value == "" || j.own(value) {
		return
	}
	t := j.Index.Match(value, Party)
	if t.Unknown() && j.calledAtHome(value) {
		return
	}
	switch {
	case t.Disguised:
		j.find(RuleRecipient, "the recipient "+quote(value)+" only looks like one that was named: it has characters that imitate or hide others", arg, cordon.Restricted, via)
	case t.Only():
		j.restrict(RuleRecipient, "the recipient", value, &t, arg, via)
	case t.Unknown() && j.untrusted && addressLike(value):
		j.find(RuleUnknownRecipient, "the recipient "+quote(value)+" was named by nobody who is trusted, after untrusted text was seen", arg, cordon.Restricted, via)
	}
}

// calledAtHome reports a telephone number that somebody trusted gave without
// its country: 0170 1234567 for +49 170 1234567.
func (j *judge) calledAtHome(value string) bool {
	if !phoneNumber(value) {
		return false
	}
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, value)
	for country := 1; country <= 3; country++ {
		for _, form := range [...]string{"0" + digits[country:], digits[country:]} {
			if t := j.Index.Match(form, Party); t.Clean && !t.Trivial {
				return true
			}
		}
	}
	return false
}

// addressLike reports a value that reaches somebody by itself: an e-mail
// address, a URL, a long number.
func addressLike(s string) bool {
	if strings.Contains(s, "://") || strings.Contains(s, "@") && strings.Contains(s, ".") {
		return true
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] >= '0' && s[i] <= '9' {
			n++
		}
	}
	return n >= 8
}
