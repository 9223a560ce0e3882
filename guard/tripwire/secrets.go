package tripwire

import (
	"math"
	"strings"
)

// FindSecret looks in a text for what has the shape of a key, a token, a
// private key block or an assigned password, and names the first shape
// ("GitHub token"). Placeholders and documentation's examples are not found:
// repeated or counted-up characters, the words that stand for "put yours
// here", values with little entropy. It reads the text once.
func FindSecret(text string) (shape string, found bool) {
	for i := range tokenShapes {
		if tokenShapes[i].in(text) {
			return tokenShapes[i].name, true
		}
	}
	switch {
	case hasPrivateKey(text):
		return "private key", true
	case hasJWT(text):
		return "signed web token", true
	case hasAssignment(text):
		return "assigned secret", true
	}
	return "", false
}

// tokenShape is a token that starts with a fixed prefix.
type tokenShape struct {
	name, prefix string
	// shortest and longest count the characters after the prefix.
	shortest, longest int
	class             charClass
	// mixed: the rest must hold small and capital letters and digits, where
	// the prefix alone is a word of ordinary text.
	mixed bool
}

type charClass uint8

const (
	capitals charClass = iota // A-Z 0-9
	letters                   // A-Z a-z 0-9
	wordy                     // and _ -
	dotted                    // and .
	base64                    // A-Z a-z 0-9 + / _ - =
)

var tokenShapes = []tokenShape{
	{"AWS access key", "AKIA", 16, 16, capitals, false},
	{"AWS temporary key", "ASIA", 16, 16, capitals, false},
	{"GitHub token", "ghp_", 30, 255, letters, false},
	{"GitHub token", "gho_", 30, 255, letters, false},
	{"GitHub token", "ghu_", 30, 255, letters, false},
	{"GitHub token", "ghs_", 30, 255, letters, false},
	{"GitHub token", "ghr_", 30, 255, letters, false},
	{"GitHub token", "github_pat_", 40, 255, wordy, false},
	{"GitLab token", "glpat-", 20, 255, wordy, false},
	{"API key", "sk-", 20, 400, wordy, true},
	{"Stripe key", "sk_live_", 16, 255, letters, false},
	{"Stripe key", "rk_live_", 16, 255, letters, false},
	{"Slack token", "xoxb-", 20, 255, wordy, false},
	{"Slack token", "xoxp-", 20, 255, wordy, false},
	{"Slack token", "xoxa-", 20, 255, wordy, false},
	{"Slack token", "xoxs-", 20, 255, wordy, false},
	{"Slack token", "xapp-", 20, 255, wordy, false},
	{"Google API key", "AIza", 35, 35, wordy, false},
	{"Google access token", "ya29.", 30, 2000, wordy, false},
	{"npm token", "npm_", 30, 80, letters, false},
	{"PyPI token", "pypi-", 50, 400, wordy, false},
	{"SendGrid key", "SG.", 40, 100, dotted, true},
	{"Hugging Face token", "hf_", 30, 60, letters, false},
	{"DigitalOcean token", "dop_v1_", 60, 70, letters, false},
	{"Shopify token", "shpat_", 30, 40, letters, false},
	{"age key", "AGE-SECRET-KEY-1", 50, 60, capitals, false},
	{"Vault token", "hvs.", 24, 255, wordy, false},
}

func (t *tokenShape) in(text string) bool {
	for from := 0; ; {
		at := strings.Index(text[from:], t.prefix)
		if at < 0 {
			return false
		}
		at += from
		from = at + len(t.prefix)
		if at > 0 && wordy.has(text[at-1]) {
			continue // in the middle of a word: "risk-"
		}
		body := t.class.run(text[from:])
		from += len(body)
		if len(body) < t.shortest || len(body) > t.longest || t.mixed && !mixed(body) || placeholder(body) {
			continue
		}
		return true
	}
}

func (c charClass) has(b byte) bool {
	switch {
	case b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		return true
	case b >= 'a' && b <= 'z':
		return c > capitals
	case b == '_' || b == '-':
		return c >= wordy
	case b == '.':
		return c == dotted
	case b == '+' || b == '/' || b == '=':
		return c == base64
	}
	return false
}

// run is the longest prefix of s in the class.
func (c charClass) run(s string) string {
	for i := range len(s) {
		if !c.has(s[i]) {
			return s[:i]
		}
	}
	return s
}

func mixed(s string) bool {
	var small, capital, digit bool
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z':
			small = true
		case c >= 'A' && c <= 'Z':
			capital = true
		case c >= '0' && c <= '9':
			digit = true
		}
	}
	return small && capital && digit
}

var standIns = []string{"example", "your", "xxxx", "placeholder", "changeme", "change_me", "dummy", "redacted", "sample",
	"insert", "replace", "secret_here", "00000000", "deadbeef", "1234567890", "0123456789", "abcdefgh", "todo", "foobar"}

// placeholder tells a value that nobody logs in with.
func placeholder(value string) bool {
	if len(value) > 1024 {
		value = value[:1024]
	}
	lower := strings.ToLower(value)
	for _, w := range standIns {
		if strings.Contains(lower, w) {
			return true
		}
	}
	return entropy(value) < 2.8
}

// entropy is Shannon's, in bits for each byte: random hex has up to 4, a
// random key of 20 letters and digits about 4, "aaaa" 0.
func entropy(s string) float64 {
	if s == "" {
		return 0
	}
	var count [256]int
	for i := range len(s) {
		count[s[i]]++
	}
	bits, n := 0.0, float64(len(s))
	for _, c := range count {
		if c > 0 {
			p := float64(c) / n
			bits -= p * math.Log2(p)
		}
	}
	return bits
}

// hasPrivateKey: the header of a private key block with material between it
// and the next dashes, in lines or with the line ends spelled as \n.
func hasPrivateKey(text string) bool {
	const begin = "-----BEGIN "
	for {
		_, rest, ok := strings.Cut(text, begin)
		if !ok {
			return false
		}
		text = rest
		label, _, ok := strings.Cut(rest[:min(len(rest), 64)], "-----")
		if !ok || !strings.HasSuffix(label, "PRIVATE KEY") {
			continue
		}
		text = text[len(label)+len("-----"):]
		block, _, _ := strings.Cut(text, "-----")
		text = text[len(block):]
		if m := keyMaterial(block[:min(len(block), 8192)]); len(m) >= 40 && !placeholder(m) {
			return true
		}
	}
}

// keyMaterial joins the words of a block that are nothing but base64.
func keyMaterial(block string) string {
	var out strings.Builder
	for _, word := range strings.Fields(strings.NewReplacer(`\n`, "\n", `\r`, "").Replace(block)) {
		if len(base64.run(word)) == len(word) {
			out.WriteString(word)
		}
	}
	return out.String()
}

// documentedJWT is the payload that documentation shows: subject 1234567890.
const documentedJWT = "eyJzdWIiOiIxMjM0NTY3ODkw"

func hasJWT(text string) bool {
	for from := 0; ; {
		at := strings.Index(text[from:], "eyJ")
		if at < 0 {
			return false
		}
		at += from
		header := wordy.run(text[at:])
		from = at + len(header)
		payload, ok := afterDot(text, from)
		if !ok || len(header) < 10 {
			continue
		}
		from += 1 + len(payload)
		signature, ok := afterDot(text, from)
		if !ok || !strings.HasPrefix(payload, "eyJ") || len(payload) < 10 || len(signature) < 20 {
			continue
		}
		from += 1 + len(signature)
		if !strings.HasPrefix(payload, documentedJWT) && !placeholder(signature) {
			return true
		}
	}
}

func afterDot(text string, at int) (string, bool) {
	if at >= len(text) || text[at] != '.' {
		return "", false
	}
	return wordy.run(text[at+1:]), true
}

// hasAssignment: NAME=value or "name": "value" where the name says secret
// and the value looks random.
func hasAssignment(text string) bool {
	for from := 0; from < len(text); {
		at := strings.IndexAny(text[from:], "=:")
		if at < 0 {
			return false
		}
		at += from
		from = at + 1
		if !secretName(nameBefore(text, at)) {
			continue
		}
		value := base64.run(strings.TrimLeft(text[from:min(len(text), from+512)], " \t\"'"))
		if len(value) >= 16 && looksRandom(value) && !placeholder(value) {
			return true
		}
	}
	return false
}

// nameBefore is the word that ends before text[at], quotes and blanks
// skipped.
func nameBefore(text string, at int) string {
	const most = 64
	low := max(0, at-most)
	s := strings.TrimRight(text[low:at], " \t\"'")
	start := len(s)
	for start > 0 && wordy.has(s[start-1]) {
		start--
	}
	return s[start:]
}

func secretName(name string) bool {
	if len(name) < 4 {
		return false
	}
	name = strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	switch name {
	case "PASSWORD", "PASSWD", "SECRET", "TOKEN", "APIKEY", "AUTHTOKEN":
		return true
	}
	return SecretVariable(name)
}

// looksRandom: letters and digits together, and more spread than a word or
// a path has.
func looksRandom(value string) bool {
	var letter, digit bool
	for i := range len(value) {
		c := value[i]
		digit = digit || c >= '0' && c <= '9'
		letter = letter || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	return letter && digit && entropy(value) >= 3.3
}
