// Package egress decides which hosts a run may reach, and is the only way
// there. Its host rules serve the guard's phase D and the two proxies alike:
// LLMProxy admits LLM API hosts only, ToolProxy admits the hosts of its rules
// and never an LLM host. A Proxy speaks HTTP CONNECT and plain HTTP with an
// absolute URI; the sandboxes of its runs have no other network.
//
// It guarantees that
//
//   - a name is brought to one canonical form before any comparison, a
//     pattern too wide to mean anything is refused when it is loaded, an IP
//     address never matches a name, and LLM API hosts are never admitted for
//     tools, not even under a wildcard;
//   - a request that two parsers could read in two ways is refused, whatever
//     it asks for, and each request of a connection is decided by itself;
//   - CONNECT goes to port 443 and plain HTTP to port 80, unless the rule
//     names a port; on port 443 the server name of the ClientHello equals the
//     host of the CONNECT before a byte goes out;
//   - no name is resolved and no address dialled before the rules allowed it;
//     one special or private address among the answers refuses all of them,
//     and the address that was checked is the one that is dialled;
//   - each refusal is recorded or counted before the client hears of it, and
//     enforce mode refuses everything while that cannot be done;
//   - headers, waiting, tunnels and, where a cap is set, bytes are bounded,
//     and counted before they pass; a tunnel ends when the rules no longer
//     allow it, when its run has used up its bytes, or when it is killed.
//
// What it does not stop: data sent to an allowed host by way of what that
// host stores for others (an issue, a gist, a package upload); another site
// behind the same address as an allowed one, named inside TLS (in the Host
// header, in a second ClientHello, or under Encrypted ClientHello whose outer
// name is allowed), since TLS is not opened; what is spoken on a port other
// than 443 that a rule names; data in the labels of a name below an allowed
// wildcard, which reaches that domain's own name servers; how long and how
// much is talked, as a signal.
//
// Runs are told apart by the listener that a client came by, or by the token
// that each request shows on a shared one. In shadow mode the policy refuses
// nothing, and no row says that it did. What is no policy of the run's refuses
// in every mode: special and private addresses, requests that cannot be read,
// tokens, the number of connections; those rows say that the client was
// refused, though not that the mode enforced it. Mode off is the same without
// rows.
package egress

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

//go:embed baseline.txt
var baselineText string

//go:embed llm.txt
var llmText string

// Baseline returns the curated hosts that a supervised run reaches without
// being named in its policy.
func Baseline() []string { return dataLines(baselineText) }

// dataLines reads "word # reason" lines.
func dataLines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		word, _, _ := strings.Cut(line, "#")
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

// Rules is an immutable list of host rules. The zero value admits nothing.
type Rules struct {
	exact map[string][]rule
	wild  []rule
	llm   bool // from ParseLLMRules
}

type rule struct {
	text   string // as it was written
	suffix string // ".example.com" for a wildcard
	port   uint16 // 0: the scheme's usual ports
}

// ParseRules reads host rules: "example.com", "*.example.com" (the
// subdomains, not the name itself), an IP address, each with an optional
// ":port". Too wide a pattern, a malformed name and a bad port are errors
// that name the rule.
func ParseRules(patterns []string) (*Rules, error) {
	r := &Rules{exact: make(map[string][]rule, len(patterns))}
	var errs []error
	for _, p := range patterns {
		if err := r.add(p); err != nil {
			errs = append(errs, fmt.Errorf("egress: host rule %q: %w", p, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// ParseLLMRules reads rules that narrow an LLM proxy to some of its hosts:
// names, or "*." before a name, that the list of LLM API hosts covers. Tools
// reach none of them by such rules either. An empty list admits nothing.
func ParseLLMRules(patterns []string) (*Rules, error) {
	r := &Rules{exact: make(map[string][]rule, len(patterns)), llm: true}
	var errs []error
	for _, p := range patterns {
		base, wild := strings.CutPrefix(p, "*.")
		name, err := Canonical(base)
		switch {
		case err != nil:
		case wild && IsLLM("x."+name):
			r.wild = append(r.wild, rule{text: p, suffix: "." + name})
			continue
		case !wild && IsLLM(name):
			r.exact[name] = append(r.exact[name], rule{text: p})
			continue
		default:
			err = errors.New("is no LLM API host")
		}
		errs = append(errs, fmt.Errorf("egress: LLM host rule %q: %w", p, err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

func (r *Rules) add(pattern string) error {
	host, port, err := SplitHostPort(pattern)
	if err != nil {
		return err
	}
	ru := rule{text: pattern, port: port}
	base, wild := strings.CutPrefix(host, "*.")
	if strings.Contains(base, "*") {
		return errors.New("too wide or malformed (want a name, or \"*.\" before a registered domain)")
	}
	name, err := Canonical(base)
	if err != nil {
		return err
	}
	if !wild {
		if IsLLM(name) {
			return errors.New("is an LLM API host, which tools never reach")
		}
		r.exact[name] = append(r.exact[name], ru)
		return nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return errors.New("a wildcard cannot stand before an address")
	}
	// A public suffix ("com", "co.uk", "github.io") belongs to everybody.
	if suffix, _ := publicsuffix.PublicSuffix(name); suffix == name {
		return fmt.Errorf("too wide: %q is a public suffix, anybody can register below it", name)
	}
	ru.suffix = "." + name
	r.wild = append(r.wild, ru)
	return nil
}

// Verdict is the answer about one host. The zero value refuses.
type Verdict struct {
	Allowed bool
	// Host is the canonical form, Port the one that was judged.
	Host string
	Port uint16
	// Rule is the rule that admits it, as it was written.
	Rule string
	// Why says in a few words why it is refused.
	Why string
}

// Match judges target ("host" or "host:port", the host as a client wrote it)
// reached by scheme ("https", "ssh", …; "" for unknown).
func (r *Rules) Match(target, scheme string) Verdict {
	host, port, err := SplitHostPort(target)
	if err != nil {
		return Verdict{Why: err.Error()}
	}
	name, err := Canonical(host)
	if err != nil {
		return Verdict{Host: host, Why: err.Error()}
	}
	v := Verdict{Host: name, Port: port}
	if port == 0 {
		v.Port = usualPort(scheme)
	}
	if llmRules().matchName(name, 0, "", true) != nil {
		v.Why = "it is an LLM API host, which tools never reach"
		return v
	}
	if m := r.matchName(name, v.Port, scheme, false); m != nil {
		v.Allowed, v.Rule = true, m.text
		return v
	}
	if r != nil && r.matchName(name, 0, "", true) != nil {
		v.Why = fmt.Sprintf("the host is listed, but not for port %d", v.Port)
		return v
	}
	v.Why = "no rule of the policy names it (--allow-host would)"
	return v
}

// schemePorts are the ports that a scheme goes to when none is named.
var schemePorts = map[string]uint16{
	"http": 80, "ws": 80, "https": 443, "wss": 443, "git+https": 443, "h2": 443, "": 443,
	"ssh": 22, "scp": 22, "sftp": 22, "git+ssh": 22, "rsync+ssh": 22, "svn+ssh": 22,
	"ftp": 21, "ftps": 990, "git": 9418, "svn": 3690, "rsync": 873, "telnet": 23, "smtp": 25, "smtps": 465, "dns": 53, "tftp": 69,
	"gopher": 70, "finger": 79, "pop3": 110, "imap": 143, "imaps": 993, "ldap": 389, "ldaps": 636, "smb": 445, "rtsp": 554,
	"mysql": 3306, "postgres": 5432, "postgresql": 5432, "redis": 6379, "rediss": 6379, "mongodb": 27017, "amqp": 5672,
	"mqtt": 1883, "kafka": 9092, "memcached": 11211, "mssql": 1433, "sqlserver": 1433, "oracle": 1521, "vnc": 5900, "rdp": 3389, "docker": 2375,
}

func usualPort(scheme string) uint16 { return schemePorts[scheme] }

// freePort reports whether a rule that names no port admits this one: the
// web's ports, and the one of ssh for what speaks ssh.
func freePort(port uint16, scheme string) bool {
	switch port {
	case 443, 80:
		return usualPort(scheme) != 22
	case 22:
		return usualPort(scheme) == 22
	}
	return false
}

func (r *Rules) matchName(name string, port uint16, scheme string, anyPort bool) *rule {
	if r == nil {
		return nil
	}
	fits := func(ru *rule) bool {
		if anyPort {
			return true
		}
		if ru.port == 0 {
			return freePort(port, scheme)
		}
		return ru.port == port
	}
	for i := range r.exact[name] {
		if ru := &r.exact[name][i]; fits(ru) {
			return ru
		}
	}
	for i := range r.wild {
		if ru := &r.wild[i]; strings.HasSuffix(name, ru.suffix) && len(name) > len(ru.suffix) && fits(ru) {
			return ru
		}
	}
	return nil
}

var llmRules = sync.OnceValue(func() *Rules {
	r := &Rules{exact: map[string][]rule{}}
	for _, p := range dataLines(llmText) {
		if rest, wild := strings.CutPrefix(p, "*"); wild {
			r.wild = append(r.wild, rule{text: p, suffix: rest})
			continue
		}
		r.exact[p] = []rule{{text: p}}
	}
	return r
})

// IsLLM reports whether a canonical host name is an LLM API's.
func IsLLM(name string) bool { return llmRules().matchName(name, 0, "", true) != nil }

// connectTo judges a host in canonical form and a port for one method of the
// tool proxy: CONNECT goes to 443 and plain HTTP to 80, unless the rule names
// a port. It is Match, narrowed.
func (r *Rules) connectTo(name string, port uint16, plain bool) Verdict {
	scheme, usual := "https", uint16(443)
	if plain {
		scheme, usual = "http", 80
	}
	target := name
	if strings.Contains(name, ":") {
		target = "[" + name + "]"
	}
	v := r.Match(fmt.Sprintf("%s:%d", target, port), scheme)
	if !v.Allowed || port == usual || r.namesPort(name, port) {
		return v
	}
	return Verdict{Host: v.Host, Port: v.Port, Why: fmt.Sprintf("the host is listed, but not for port %d by this method", port)}
}

// namesPort reports whether a rule that covers the name spells this port out.
func (r *Rules) namesPort(name string, port uint16) bool {
	for _, ru := range r.exact[name] {
		if ru.port == port {
			return true
		}
	}
	for i := range r.wild {
		if ru := &r.wild[i]; ru.port == port && strings.HasSuffix(name, ru.suffix) && len(name) > len(ru.suffix) {
			return true
		}
	}
	return false
}

// llmConnectTo is the same for the LLM proxy, whose hosts take TLS on 443
// and nothing else. Rules narrow its list; nil is all of it.
func (r *Rules) llmConnectTo(name string, port uint16, plain bool) Verdict {
	v := Verdict{Host: name, Port: port}
	ru := llmRules().matchName(name, 0, "", true)
	switch {
	case ru == nil:
		v.Why = "it is no LLM API host"
	case plain:
		v.Why = "LLM API hosts are reached by TLS only"
	case port != 443:
		v.Why = fmt.Sprintf("LLM API hosts are reached on port 443 only, not %d", port)
	case r != nil && r.matchName(name, port, "https", false) == nil:
		v.Why = "it is an LLM API host that the policy does not name"
	default:
		v.Allowed, v.Rule = true, ru.text
	}
	return v
}

// SplitHostPort splits "host", "host:port", "[v6]:port" and a bare IPv6
// address. Port 0 means that none was given; a port that is empty, zero,
// not decimal or past 65535 is an error.
func SplitHostPort(s string) (host string, port uint16, err error) {
	host, digits := s, ""
	switch i := strings.LastIndexByte(s, ':'); {
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", 0, errors.New("unclosed bracket in the host")
		}
		host = s[1:end]
		if rest := s[end+1:]; rest == "" {
			return host, 0, nil
		} else if rest[0] != ':' {
			return "", 0, errors.New("text after the bracket of the host")
		} else {
			digits = rest[1:]
		}
	case i < 0 || strings.IndexByte(s, ':') != i: // none, or a bare IPv6 address
		return host, 0, nil
	default:
		host, digits = s[:i], s[i+1:]
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || digits[0] == '0' {
		return "", 0, fmt.Errorf("bad port %q (want 1 to 65535)", digits)
	}
	return host, uint16(n), nil
}

var errEmptyHost = errors.New("empty host")

// lookupProfile maps as browsers and resolvers do: case, width, dots.
var lookupProfile = idna.New(
	idna.MapForLookup(),
	idna.BidiRule(),
	idna.Transitional(false),
	idna.StrictDomainName(false),
)

// Canonical brings a host to its one form: a lower-case ASCII name without a
// trailing dot, or an IP address in netip's spelling. Every numeric spelling
// that inet_aton takes (octal, hexadecimal, short, one number) becomes the
// address that it means. IPv4-mapped IPv6 becomes IPv4.
func Canonical(host string) (string, error) {
	if simpleName(host) {
		return host, nil
	}
	if host == "" {
		return "", errEmptyHost
	}
	if len(host) > 1024 {
		return "", fmt.Errorf("host of %d bytes (want at most 253)", len(host))
	}
	if !utf8.ValidString(host) || strings.ContainsRune(host, utf8.RuneError) {
		return "", errors.New("host is not valid UTF-8")
	}
	if !hostCharacters(host) {
		return "", fmt.Errorf("host %q has characters that no host has", host)
	}
	if strings.Contains(host, ":") {
		return canonicalAddr(host)
	}
	name, err := lookupProfile.ToASCII(host)
	if err != nil {
		return "", fmt.Errorf("host %q is not a valid name: %w", host, err)
	}
	name = strings.TrimSuffix(name, ".")
	// The mapping makes an ideographic space a plain one, and the like.
	if !hostCharacters(name) || strings.Contains(name, ":") {
		return "", fmt.Errorf("host %q has characters that no host has", host)
	}
	if err := checkLabels(name); err != nil {
		return "", fmt.Errorf("host %q: %w", host, err)
	}
	if a, ok, err := legacyIPv4(name); err != nil {
		return "", fmt.Errorf("host %q: %w", host, err)
	} else if ok {
		return a.String(), nil
	}
	return name, nil
}

// hostCharacters reports whether s is free of what separates the parts of an
// address, of blanks and controls, and of what a shell or a pattern is made of:
// a name that still has those was never told to the end.
func hostCharacters(s string) bool {
	return !strings.ContainsAny(s, "%@/\\?#\"<>^`{|}[]!$&'()*+,;=~") && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

func canonicalAddr(host string) (string, error) {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return "", fmt.Errorf("host %q is no IPv6 address", host)
	}
	if a.Zone() != "" {
		return "", fmt.Errorf("address %q has a zone", host)
	}
	return a.Unmap().String(), nil
}

// simpleName is the fast path: plain lower-case names with a letter in their
// last label need no mapping.
func simpleName(s string) bool {
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	start, letter := 0, false
	for i := 0; i <= len(s); i++ {
		if i == len(s) || s[i] == '.' {
			if i == start || i-start > 63 || s[start] == '-' || s[i-1] == '-' || strings.HasPrefix(s[start:i], "xn--") {
				return false
			}
			if i < len(s) {
				start, letter = i+1, false
			}
			continue
		}
		c := s[i]
		switch {
		case c >= 'g' && c <= 'z' && c != 'x':
			letter = true
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
		default:
			return false
		}
	}
	// Letters of a hexadecimal number (0x7f, face) do not prove a name.
	return letter
}

func checkLabels(name string) error {
	if name == "" {
		return errEmptyHost
	}
	if len(name) > 253 {
		return errors.New("longer than 253 bytes")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" {
			return errors.New("empty label")
		}
		if len(label) > 63 {
			return errors.New("label longer than 63 bytes")
		}
	}
	return nil
}

// legacyIPv4 reads what inet_aton reads: one to four numbers, each decimal,
// octal (0…) or hexadecimal (0x…), the last filling what is left. A name
// whose last label is numeric but that is no address is an error: resolvers
// and URL parsers disagree about it.
func legacyIPv4(name string) (netip.Addr, bool, error) {
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	if !numeric(last) {
		return netip.Addr{}, false, nil
	}
	bad := errors.New("ends in a number but is no IPv4 address")
	if len(parts) > 4 {
		return netip.Addr{}, false, bad
	}
	var v uint64
	for i, p := range parts {
		n, err := parseNumber(p)
		if err != nil {
			return netip.Addr{}, false, bad
		}
		if i < len(parts)-1 {
			if n > 255 {
				return netip.Addr{}, false, bad
			}
			v |= n << (24 - 8*i)
			continue
		}
		if n >= 1<<(8*(5-len(parts))) {
			return netip.Addr{}, false, bad
		}
		v |= n
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true, nil
}

func numeric(s string) bool {
	if len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X") {
		_, err := strconv.ParseUint(s[2:], 16, 64)
		return err == nil
	}
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func parseNumber(s string) (uint64, error) {
	switch {
	case s == "0x" || s == "0X":
		return 0, nil
	case len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X"):
		return strconv.ParseUint(s[2:], 16, 64)
	case len(s) > 1 && s[0] == '0':
		return strconv.ParseUint(s, 8, 64)
	}
	return strconv.ParseUint(s, 10, 64)
}
