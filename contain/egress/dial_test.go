package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestDial(t *testing.T) {
	for _, c := range []struct {
		name, network, address string
		kind                   Kind
		change                 func(*rig)
		err                    string // "" for a connection
		asked, dials           int
	}{
		{name: "an LLM host by the LLM proxy", address: "api.openai.com:443", kind: LLMProxy, asked: 1, dials: 1},
		{name: "an LLM host in another spelling", address: "API.OpenAI.com.:443", kind: LLMProxy, asked: 1, dials: 1},
		{name: "an LLM host on another port", address: "api.openai.com:80", kind: LLMProxy, err: "port 443 only"},
		{name: "a tool's host by the LLM proxy", address: "pkg.example.net:443", kind: LLMProxy, err: "no LLM API host"},
		{name: "a listed host by the tool proxy", address: "pkg.example.net:443", asked: 1, dials: 1},
		{name: "a host that no rule names", address: "evil.test:443", err: "no rule"},
		{name: "an LLM host by the tool proxy", address: "api.openai.com:443", err: "LLM API host"},
		{name: "a listed host on a port that no rule names", address: "pkg.example.net:8443", err: "port 8443"},
		{name: "a host that resolves to a private address", address: "pkg.example.net:443", err: "127.0.0.1", asked: 1,
			change: func(r *rig) { r.resolver.set("pkg.example.net", "127.0.0.1") }},
		{name: "one private address among public ones", address: "pkg.example.net:443", err: "169.254.169.254", asked: 1,
			change: func(r *rig) { r.resolver.set("pkg.example.net", publicAddr, "169.254.169.254") }},
		{name: "UDP", network: "udp", address: "pkg.example.net:443", err: "want tcp"},
		{name: "no port", address: "pkg.example.net", err: "host:port"},
		{name: "a user in the host", address: "user@pkg.example.net:443", err: "characters"},
		{name: "after the proxy was closed", address: "pkg.example.net:443", err: "closed",
			change: func(r *rig) { r.proxy.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(conf *Config) {
				conf.Kind = c.kind
			})
			if c.change != nil {
				c.change(r)
			}
			network := c.network
			if network == "" {
				network = "tcp"
			}
			conn, err := r.proxy.Dial(t.Context(), network, c.address)
			if conn != nil {
				conn.Close()
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if r.resolver.queries() != c.asked || r.dials() != c.dials {
				t.Errorf("%d names asked for and %d addresses dialled, want %d and %d", r.resolver.queries(), r.dials(), c.asked, c.dials)
			}
		})
	}
}

func TestDialRefusesInEveryMode(t *testing.T) {
	for _, mode := range []string{"shadow", "off"} {
		r := newRig(t, func(c *Config) {
			if err := c.Mode.UnmarshalText([]byte(mode)); err != nil {
				t.Fatal(err)
			}
			c.UnsafeAllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		})
		if conn, err := r.proxy.Dial(t.Context(), "tcp", "nobody-named.test:443"); err == nil {
			conn.Close()
			t.Errorf("mode %s: connected", mode)
		}
		if n := r.resolver.queries(); n != 0 {
			t.Errorf("mode %s: %d names asked for", mode, n)
		}
	}
}
