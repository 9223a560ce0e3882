package provenance

import (
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// What a tool does, by the words of its name. Only tools that reach other
// people's systems are judged so; what a call does here, its effects tell.
var (
	readVerbs = []string{"get", "list", "read", "search", "find", "fetch", "show", "view", "check", "query", "lookup", "describe", "count", "browse", "inspect", "look", "summarize", "analyze", "recall", "whoami", "status"}
	// reachVerbs touch others: their parties and sums count.
	reachVerbs = []string{"send", "transfer", "pay", "schedule", "invite", "add", "share", "post", "forward", "reply", "create", "grant", "assign", "publish", "submit", "donate", "wire", "remit", "withdraw", "deposit", "subscribe", "upload", "issue", "refund", "charge", "notify", "message", "email", "call", "dial", "tip", "swap", "trade", "sell", "dispatch", "deliver", "relay", "push", "broadcast", "contact", "ping", "fax", "sms", "tweet", "propose", "handoff", "export", "sync", "authorize", "approve", "update", "set", "change", "edit", "modify", "enable", "register", "connect", "link"}
	// finalVerbs cannot be taken back, or cost: all that names something counts.
	finalVerbs = []string{"delete", "remove", "cancel", "revoke", "book", "reserve", "buy", "purchase", "order", "checkout", "drop", "destroy", "terminate", "erase", "wipe", "purge", "merge", "unsubscribe", "close", "archive", "kick", "ban", "block", "unblock", "accept", "sign", "confirm", "deploy", "rollback", "install"}
	// accountWords with a change make it one of who the user is.
	accountWords = []string{"user", "account", "profile", "password", "credentials", "security", "settings", "info", "payment", "billing", "shipping", "address", "email", "phone"}
)

var (
	partyWords = []string{"recipient", "recipients", "to", "cc", "bcc", "account", "iban", "payee", "beneficiary", "participants", "participant", "attendees", "attendee", "invitees", "invitee", "guests", "email", "emails", "mail", "channel", "channels", "phone", "wallet", "user", "users", "username", "member", "members", "assignee", "assignees", "receiver", "contact", "handle", "chat", "customer", "collaborator", "collaborators", "grantee", "principal", "vpa", "bic", "swift", "routing", "destination", "dest", "owner", "repo", "repository", "organization", "organisation", "org"}
	sumWords   = []string{"amount", "total", "sum", "price", "cost", "payment", "tip", "value", "units", "shares", "quantity", "fee", "limit"}
	keyWords   = []string{"password", "passphrase", "passwd", "secret", "pin", "credential", "pubkey", "publickey"}
	proseWords = []string{"body", "message", "text", "content", "contents", "subject", "description", "title", "comment", "comments", "note", "notes", "summary", "html", "reason", "memo", "caption", "date", "time", "day", "start", "end", "year", "month", "permission", "permissions", "role", "currency", "format", "type", "kind", "status", "priority", "language", "timezone", "recurring", "frequency", "query", "topic", "reminder", "duration", "limit", "page", "color", "from", "sender", "tags", "labels", "force", "confirm", "rating", "review", "scope", "mode", "level", "filter", "visibility", "sort", "state", "action", "method", "option", "options", "branch", "base"}
	refWords   = []string{"id", "ids", "uuid", "guid", "sha", "hash", "number", "ref", "key", "index"}
)

// doWords are in the names of tools that run others, innerWords in those of the
// arguments that say which.
var (
	doWords    = []string{"run", "execute", "exec", "invoke", "call", "perform", "do", "use", "trigger", "action", "tool", "function", "api", "request", "proxy", "dispatch"}
	innerWords = []string{"action", "tool", "function", "method", "operation", "name", "api", "slug"}
	// lineWords name arguments of one line, in which a line break begins
	// another header.
	lineWords = []string{"subject", "title", "from", "sender", "name", "reply", "to", "cc", "topic"}
)

// headers are the addresses of header lines that were put into an argument of
// one line: "Report\r\nBcc: x@evil.example".
func headers(value string) (parties []string) {
	for i, line := range strings.FieldsFunc(clip(value, maxMatch), func(r rune) bool {
		return r == '\n' || r == '\r' || r == '\u2028' || r == '\u0085' || r == '\v' || r == '\f'
	}) {
		name, rest, ok := strings.Cut(line, ":")
		if !ok || i == 0 && !strings.ContainsAny(value[:1], "\r\n") {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "to", "cc", "bcc", "resent-to", "resent-cc", "resent-bcc", "reply-to":
			for p := range strings.FieldsFuncSeq(rest, func(r rune) bool { return r == ',' || r == ';' }) {
				if len(parties) < maxParts {
					parties = append(parties, p)
				}
			}
		}
	}
	return parties
}

// words splits a name at its marks and its capital letters, in small letters.
func words(name string) []string {
	var out []string
	start := -1
	cut := func(end int) {
		if start >= 0 && len(out) < 16 {
			out = append(out, strings.ToLower(name[start:end]))
		}
		start = -1
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case class[c]&(clLetter|clDigit) == 0:
			cut(i)
			continue
		case c >= 'A' && c <= 'Z' && i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z':
			cut(i)
		}
		if start < 0 {
			start = i
		}
	}
	cut(len(name))
	return out
}

func has(words []string, list []string) bool {
	for _, w := range words {
		if slices.Contains(list, w) {
			return true
		}
	}
	return false
}

// deed is what the words of a tool's name say that it does.
type deed struct{ reaches, final, account, pays bool }

func (j *judge) deed() (d deed) {
	w := words(lastName(j.Tool))
	runs := has(w, doWords)
	switch j.Facts.Group {
	case toolspec.Unknown, toolspec.ProductivityWrite:
	default:
		if !j.Facts.Irreversible && !j.Facts.Outbound && !runs {
			return d
		}
	}
	if runs {
		w = append(w, j.inner()...)
	}
	if len(w) == 0 || slices.Contains(readVerbs, w[0]) && !j.Facts.Irreversible {
		return d
	}
	d.final = has(w, finalVerbs)
	d.reaches = d.final || has(w, reachVerbs) || j.Facts.Outbound || j.Facts.Irreversible
	d.account = has(w, []string{"update", "set", "change", "edit", "modify", "reset"}) && has(w, accountWords)
	d.pays = has(w, []string{"pay", "payment", "transfer", "money", "transaction", "wire", "remit", "donate", "withdraw", "deposit", "buy", "purchase", "order", "refund", "charge", "tip", "swap", "trade", "sell", "invoice", "bill", "checkout"})
	return d
}

// inner is the words of the name of what a tool is told to run, where it runs
// others: run_action with {"action": "send_email", …}.
func (j *judge) inner() (names []string) {
	j.unpacked(func(_, key string, leaf *strictjson.Value) {
		if leaf.Kind == strictjson.String && len(leaf.Str) <= 64 && len(names) < 64 && has(words(key), innerWords) {
			if w := words(lastName(leaf.Str)); len(w) > 0 && !slices.Contains(readVerbs, w[0]) {
				names = append(names, w...)
			}
		}
	})
	return names
}

func (j *judge) acts() bool {
	d := j.deed()
	return d.reaches || j.Facts.Irreversible || j.Facts.Outbound
}

// named judges the arguments that the catalogue does not know, by their names
// and by what the tool's name says that it does.
func (j *judge) named() {
	d := j.deed()
	account, amount := j.payment()
	d.pays = d.pays || account && amount
	d.reaches = d.reaches || d.pays
	if !d.reaches {
		return
	}
	j.unpacked(func(ptr, key string, leaf *strictjson.Value) {
		j.argumentOf(d, ptr, words(key), leaf)
	})
}

// payment reports arguments that name an account and a sum, whatever the tool
// is called.
func (j *judge) payment() (account, amount bool) {
	if j.Facts.Known {
		return false, false
	}
	j.unpacked(func(_, key string, leaf *strictjson.Value) {
		w := words(key)
		amount = amount || has(w, []string{"amount", "sum", "total"})
		account = account || has(w, partyWords)
	})
	return account, amount
}

// oneAddress reports a value that is an e-mail address and nothing else,
// whatever the argument is called.
func oneAddress(s string) bool {
	at := strings.IndexByte(s, '@')
	return at > 0 && !strings.ContainsAny(s, " /\n\t") && strings.IndexByte(s[at:], '.') > 1
}

func (j *judge) argumentOf(d deed, ptr string, key []string, leaf *strictjson.Value) {
	value := leaf.Str
	if strings.ContainsAny(value, "\r\n\v\f\u2028\u0085") && has(key, lineWords) {
		for _, p := range headers(value) {
			j.party(p, ptr, nil)
		}
	}
	switch {
	case has(key, keyWords):
		if t := j.Index.Match(value, Party); t.Only() {
			j.restrict(RuleCredential, "the new secret", "", &t, ptr, nil)
		}
	case has(key, sumWords):
		if t := j.Index.Match(value, Amount); d.pays && t.Only() {
			j.restrict(RuleAmount, "the sum", value, &t, ptr, nil)
		}
	case has(key, partyWords) && !(has(key, refWords) && !has(key, []string{"account", "recipient", "wallet", "channel", "user", "chat"})):
		if len(value) <= 1024 {
			for p := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ';' }) {
				j.party(p, ptr, nil)
			}
		}
	case len(value) <= 256 && oneAddress(value):
		j.party(value, ptr, nil)
	case has(key, proseWords), leaf.Kind == strictjson.Number && !has(key, refWords):
	case has(key, refWords):
		if !d.final {
			return
		}
		if t := j.Index.Match(value, Reference); t.Only() && !t.Field {
			j.restrict(RuleReference, "the reference", value, &t, ptr, nil)
		}
	case d.final || d.account:
		if len(value) > 256 {
			return
		}
		if t := j.Index.Match(value, Party); t.Only() && !j.own(value) {
			j.restrict(RuleArgument, "what it is done to,", value, &t, ptr, nil)
		}
	}
}
