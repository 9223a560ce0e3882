package egress

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	rules, err := ParseRules([]string{"pypi.org", "*.example.com", "github.com", "internal.example.net:8443", "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, target, scheme string
		want                 bool
	}{
		{"a listed name", "pypi.org", "https", true},
		{"its usual port spelled out", "pypi.org:443", "https", true},
		{"upper case is the same name", "PyPI.ORG", "https", true},
		{"a trailing dot is the same name", "pypi.org.", "https", true},
		{"full-width letters are the same name", "ｐypi.org", "https", true},
		{"an ideographic full stop is a dot", "pypi。org", "https", true},
		{"another port of a listed name", "pypi.org:8443", "https", false},
		{"the scheme's own odd port", "pypi.org", "ftp", false},
		{"git over ssh to a listed host", "github.com:22", "ssh", true},
		{"the web to the port of ssh", "github.com:22", "https", false},
		{"ssh to the port of the web", "github.com:443", "ssh", false},
		{"a raw connection to the port of ssh", "github.com:22", "", false},
		{"a database on a listed host", "github.com", "postgres", false},
		{"a scheme nobody knows", "github.com", "quux", false},
		{"plain http to its port", "pypi.org", "http", true},
		{"a port rule admits its port", "internal.example.net:8443", "https", true},
		{"a port rule admits no other", "internal.example.net", "https", false},
		{"a subdomain under a wildcard", "a.b.example.com", "https", true},
		{"the apex is not under its wildcard", "example.com", "https", false},
		{"a name that merely ends the same", "notexample.com", "https", false},
		{"a listed name as a prefix", "pypi.org.evil.test", "https", false},
		{"a listed name as a suffix of a label", "notgithub.com", "https", false},
		{"a homoglyph", "gіthub.com", "https", false},
		{"userinfo does not reach here", "github.com@evil.test", "https", false},
		{"a listed address", "192.0.2.7", "https", true},
		{"the same address in octal", "0300.0.2.7", "https", true},
		{"the same address as one number", "3221225991", "https", true},
		{"loopback in hexadecimal", "0x7f.1", "http", false},
		{"loopback as IPv4-mapped IPv6", "[::ffff:127.0.0.1]", "http", false},
		{"a zone in an address", "[fe80::1%eth0]", "http", false},
		{"a single label", "localhost", "http", false},
		{"an ideographic space", "pypi.org\u3000", "https", false},
		{"a full-width at sign", "pypi.org\uff20evil.test", "https", false},
		{"a full-width colon", "pypi.org\uff1a443", "https", false},
		{"a percent sign", "pypi.org%00.evil.test", "https", false},
		{"an asterisk under its own wildcard", "*.example.com", "https", false},
		{"a variable that nobody expanded", "$TOKEN.example.com", "https", false},
		{"a command that nobody ran", "$(id).example.com", "https", false},
		{"alternatives of a shell", "a,b.example.com", "https", false},
		{"an underscore, which service names have", "_dmarc.example.com", "https", true},
		{"port zero", "pypi.org:0", "https", false},
		{"a port past the end", "pypi.org:99999", "https", false},
		{"a port with a leading zero", "pypi.org:0443", "https", false},
		{"a named port", "pypi.org:https", "https", false},
		{"an empty port", "pypi.org:", "https", false},
		{"an empty host", "", "https", false},
		{"five numbers", "1.2.3.4.5", "https", false},
		{"a number too large", "999999999999", "https", false},
		{"a label of 64 bytes", strings.Repeat("a", 64) + ".example.com", "https", false},
		{"a name of 300 bytes", strings.Repeat("a.", 150) + "example.com", "https", false},
	} {
		v := rules.Match(c.target, c.scheme)
		if v.Allowed != c.want {
			t.Errorf("%s: Match(%q, %q) = %+v, want allowed %v", c.name, c.target, c.scheme, v, c.want)
		}
		if !v.Allowed && v.Why == "" {
			t.Errorf("%s: refused without a reason", c.name)
		}
		if v.Allowed && v.Rule == "" {
			t.Errorf("%s: allowed without a rule", c.name)
		}
	}
}

func TestZeroRulesAdmitNothing(t *testing.T) {
	var none *Rules
	if v := none.Match("pypi.org", "https"); v.Allowed {
		t.Error("a nil list admitted a host")
	}
	if v := new(Rules).Match("pypi.org", "https"); v.Allowed {
		t.Error("an empty list admitted a host")
	}
}

func TestLLMHostsAreNeverForTools(t *testing.T) {
	rules, err := ParseRules([]string{"*.openai.com", "*.anthropic.com", "storage.googleapis.com", "*.openai.azure.com"})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"api.anthropic.com", "API.openai.com.", "acme.openai.azure.com"} {
		if v := rules.Match(h, "https"); v.Allowed {
			t.Errorf("%s was admitted by rule %q", h, v.Rule)
		}
	}
	if v := rules.Match("storage.googleapis.com", "https"); !v.Allowed {
		t.Errorf("a host that is no LLM's was refused: %s", v.Why)
	}
}

func TestRulesTooWide(t *testing.T) {
	for _, p := range []string{"*", "*.com", "*.co.uk", "*.github.io", "**.example.com", "*.*.example.com", "ex*mple.com", "", "*.", "a b.com", "pypi.org:0", "pypi.org:x", "api.openai.com", "europe-west4-aiplatform.googleapis.com:443", "*.192.0.2.1", "https://pypi.org"} {
		if _, err := ParseRules([]string{p}); err == nil {
			t.Errorf("rule %q was loaded", p)
		} else if !strings.Contains(err.Error(), "egress: host rule") {
			t.Errorf("rule %q: error does not name the rule: %v", p, err)
		}
	}
}

func TestBaselineLoads(t *testing.T) {
	if _, err := ParseRules(Baseline()); err != nil {
		t.Fatal(err)
	}
	for _, h := range Baseline() {
		if IsLLM(h) {
			t.Errorf("%s is in the baseline and an LLM host", h)
		}
	}
	for _, h := range dataLines(llmText) {
		if name := strings.TrimLeft(h, "*.-"); name == "" {
			t.Errorf("LLM host %q is empty", h)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"pypi.org", "0x7f.1", "[::1]", "ｐypi。org", "xn--p1ai", "a..b", "1.2.3", "\xff.com", "%31.com", "\u3000", "a\uff20b.com", "a\uff0fb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := Canonical(s)
		if err != nil {
			return
		}
		if again, err := Canonical(name); err != nil || again != name {
			t.Errorf("Canonical(%q) = %q, and of that %q, %v", s, name, again, err)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	rules, err := ParseRules(append(Baseline(), "*.example.com"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		rules.Match("files.pythonhosted.org", "https")
	}
}
