package provenance

import (
	"encoding/base64"
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
	reachVerbs = []string{"send", "transfer", "pay", "schedule", "invite", "add", "share", "post", "forward", "reply", "create", "grant", "assign", "publish", "submit", "donate", "wire", "remit", "withdraw", "deposit", "subscribe", "upload", "issue", "refund", "charge", "notify", "message", "email", "call", "dial", "tip", "swap", "trade", "sell", "dispatch", "deliver", "relay", "push", "broadcast", "contact", "ping", "fax", "sms", "tweet", "propose", "handoff", "export", "sync", "authorize", "approve", "put", "update", "set", "change", "edit", "modify", "enable", "register", "connect", "link"}
	// finalVerbs cannot be taken back, or cost: all that names something counts.
	finalVerbs = []string{"delete", "remove", "cancel", "revoke", "book", "reserve", "buy", "purchase", "order", "checkout", "drop", "destroy", "terminate", "erase", "wipe", "purge", "merge", "unsubscribe", "close", "archive", "kick", "ban", "block", "unblock", "accept", "sign", "confirm", "deploy", "rollback", "install"}
	// accountWords with a change make it one of who the user is.
	accountWords = []string{"user", "account", "profile", "password", "credentials", "security", "settings", "info", "payment", "billing", "shipping", "address", "email", "phone", "iban", "bank", "payout", "wallet"}
	// payoutWords with a change say where the user's money goes from then on.
	payoutWords = []string{"iban", "bank", "payout", "wallet"}
)

var (
	partyWords = []string{"recipient", "recipients", "to", "cc", "bcc", "account", "iban", "payee", "beneficiary", "participants", "participant", "attendees", "attendee", "invitees", "invitee", "guests", "email", "emails", "mail", "channel", "channels", "phone", "wallet", "user", "users", "username", "member", "members", "assignee", "assignees", "receiver", "contact", "handle", "chat", "customer", "collaborator", "collaborators", "grantee", "principal", "vpa", "bic", "swift", "routing", "destination", "dest", "owner", "repo", "repository", "organization", "organisation", "org", "mobile", "msisdn", "jid", "bucket", "dst", "payto", "merchant", "biller", "vendor", "seller", "supplier", "creditor", "counterparty"}
	// partyRefWords make an identifier that of a party: payee_id, phone_number.
	partyRefWords = []string{"account", "recipient", "wallet", "channel", "user", "chat", "to", "phone", "mobile", "payee", "beneficiary", "receiver", "merchant", "creditor"}
	// payWords name a party where money moves, and no more than a place or a
	// thing elsewhere; grantWords one where rights are given.
	payWords   = []string{"address", "target"}
	grantWords = []string{"subject", "grantee", "principal", "identity"}
	sumWords   = []string{"amount", "total", "sum", "price", "cost", "payment", "tip", "value", "units", "shares", "quantity", "fee", "limit"}
	keyWords   = []string{"password", "passphrase", "passwd", "secret", "pin", "credential", "pubkey", "publickey"}
	proseWords = []string{"body", "message", "text", "content", "contents", "subject", "description", "title", "comment", "comments", "note", "notes", "summary", "html", "reason", "memo", "caption", "date", "time", "day", "start", "end", "year", "month", "permission", "permissions", "role", "currency", "format", "type", "kind", "status", "priority", "language", "timezone", "recurring", "frequency", "query", "topic", "reminder", "duration", "limit", "page", "color", "from", "sender", "tags", "labels", "force", "confirm", "rating", "review", "scope", "mode", "level", "filter", "visibility", "sort", "state", "action", "method", "option", "options", "branch", "base", "reference"}
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
	// mailWords name arguments that are a whole mail, its head included.
	mailWords = []string{"raw", "mime", "eml", "rfc822"}
)

// mail is the head of a whole mail, as it stands or in base64; "" where value
// is none.
func mail(value string) string {
	value = clip(value, maxMatch)
	if !strings.Contains(value, ":") {
		packed := strings.NewReplacer("-", "+", "_", "/", "=", "", "\r", "", "\n", "").Replace(value)
		b, err := base64.RawStdEncoding.DecodeString(packed[:len(packed)&^3])
		if err != nil {
			return ""
		}
		value = string(b)
	}
	head, _, _ := strings.Cut(strings.ReplaceAll(value, "\r\n", "\n"), "\n\n")
	name, _, ok := strings.Cut(head, ":")
	if !ok || strings.ContainsAny(name, " \n\t") {
		return ""
	}
	return strings.NewReplacer("\n ", " ", "\n\t", " ").Replace(head)
}

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
type deed struct{ reaches, final, account, pays, grants, payout bool }

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
	d.payout = d.account && has(w, payoutWords)
	d.grants = has(w, []string{"grant", "authorize", "permit"})
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
		j.keyParties(ptr)
		j.argumentOf(d, ptr, words(key), leaf)
	})
}

// keyParties judges the names on the way to an argument that are addresses
// themselves: {"recipients": {"x@evil.example": "bcc"}}.
func (j *judge) keyParties(ptr string) {
	if !strings.ContainsAny(ptr, "@+") {
		return
	}
	for name := range strings.SplitSeq(ptr, "/") {
		if name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name); len(name) <= 256 && oneAddress(name) {
			j.party(name, ptr, nil)
		}
	}
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
		account = account || has(w, partyWords) || has(w, payWords)
	})
	return account, amount
}

// oneAddress reports a value that is an address of somebody and nothing else,
// whatever the argument is called: an e-mail address, a telephone number with
// its country, a wallet.
func oneAddress(s string) bool {
	if at := strings.IndexByte(s, '@'); at > 0 {
		return !strings.ContainsAny(s, " /\n\t") && strings.IndexByte(s[at:], '.') > 1
	}
	return phoneNumber(s) || wallet(s)
}

func phoneNumber(s string) bool {
	rest, ok := strings.CutPrefix(s, "+")
	digits := 0
	for i := range len(rest) {
		switch c := rest[i]; {
		case c >= '0' && c <= '9':
			digits++
		case !strings.ContainsRune(" -().", rune(c)):
			return false
		}
	}
	return ok && digits >= 8 && digits <= 15
}

func wallet(s string) bool {
	s = strings.ToLower(s)
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		return len(hex) == 40 && strings.Trim(hex, "0123456789abcdef") == ""
	}
	rest, ok := strings.CutPrefix(s, "bc1")
	return ok && len(rest) >= 20 && len(rest) <= 87 && strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// publicKey reports a key that lets its owner in where it is added.
func publicKey(s string) bool {
	for _, kind := range [...]string{"ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-", "-----BEGIN "} {
		if rest, ok := strings.CutPrefix(s, kind); ok && len(rest) >= 32 {
			return true
		}
	}
	return false
}

// number reports a leaf that is one, in quotes or without.
func number(leaf *strictjson.Value) bool {
	return leaf.Kind == strictjson.Number || strings.Trim(leaf.Str, "0123456789.,+- ") == ""
}

func (j *judge) argumentOf(d deed, ptr string, key []string, leaf *strictjson.Value) {
	value := leaf.Str
	if strings.ContainsAny(value, "\r\n\v\f\u2028\u0085") && has(key, lineWords) {
		for _, p := range headers(value) {
			j.party(p, ptr, nil)
		}
	}
	if has(key, mailWords) {
		for _, p := range headers("\n" + mail(value)) {
			j.party(p, ptr, nil)
		}
	}
	switch {
	case has(key, keyWords), publicKey(value):
		if t := j.Index.Match(value, Party); t.Only() {
			j.restrict(RuleCredential, "the new secret", "", &t, ptr, nil)
		}
	case has(key, sumWords) && !(d.payout && !number(leaf)):
		if t := j.Index.Match(value, Amount); d.pays && t.Only() {
			j.restrict(RuleAmount, "the sum", value, &t, ptr, nil)
		}
	case has(key, partyWords) && !(has(key, refWords) && !has(key, partyRefWords)), d.pays && has(key, payWords), d.grants && has(key, grantWords):
		if len(value) <= 1024 {
			for p := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ';' }) {
				j.party(p, ptr, nil)
			}
		}
	case len(value) <= 256 && oneAddress(value):
		j.party(value, ptr, nil)
	case has(key, proseWords), leaf.Kind == strictjson.Number && !has(key, refWords):
	case has(key, refWords):
		if !d.final && !d.pays {
			return
		}
		if t := j.Index.Match(value, Reference); t.Only() && !t.Field {
			j.restrict(RuleReference, "the reference", value, &t, ptr, nil)
		}
	case d.final || d.account || d.pays:
		if len(value) > 256 {
			return
		}
		if t := j.Index.Match(value, Party); t.Only() && !j.own(value) {
			j.restrict(RuleArgument, "what it is done to,", value, &t, ptr, nil)
		}
	}
}
