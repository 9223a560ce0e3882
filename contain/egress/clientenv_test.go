package egress

import (
	"strings"
	"testing"
)

func TestClientEnv(t *testing.T) {
	for _, c := range []struct {
		name, proxy   string
		has, hasNot   []string
		anyWithSecret string
	}{
		{"an address alone", "127.0.0.1:3128", []string{
			"http_proxy=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128", "no_proxy=", "NO_PROXY=",
			"npm_config_noproxy=", "GIT_CONFIG_VALUE_0=http://127.0.0.1:3128",
		}, []string{"GIT_HTTP_PROXY_AUTHMETHOD=basic"}, ""},
		{"a URL", "http://proxy:3128", []string{"https_proxy=http://proxy:3128"}, nil, ""},
		{"a URL with a token", "http://run:SECRET@10.0.0.1:3128", []string{
			"https_proxy=http://run:SECRET@10.0.0.1:3128", "GIT_HTTP_PROXY_AUTHMETHOD=basic",
		}, nil, "JAVA_TOOL_OPTIONS"},
		{"an IPv6 address", "[::1]:3128", []string{"http_proxy=http://[::1]:3128"}, nil, ""},
	} {
		env := ClientEnv(c.proxy)
		seen := map[string]bool{}
		for _, e := range env {
			name, value, ok := strings.Cut(e, "=")
			if !ok || name == "" || seen[name] {
				t.Errorf("%s: %q is no variable, or there twice", c.name, e)
			}
			seen[name] = true
			if name == c.anyWithSecret && strings.Contains(value, "SECRET") {
				t.Errorf("%s: %s has the token", c.name, name)
			}
		}
		all := "\n" + strings.Join(env, "\n") + "\n"
		for _, want := range c.has {
			if !strings.Contains(all, "\n"+want+"\n") {
				t.Errorf("%s: no %q", c.name, want)
			}
		}
		for _, no := range c.hasNot {
			if strings.Contains(all, "\n"+no+"\n") {
				t.Errorf("%s: has %q", c.name, no)
			}
		}
	}
	if java := ClientEnv("[::1]:3128"); !strings.Contains(java[len(java)-1], "-Dhttps.proxyHost=::1 -Dhttps.proxyPort=3128") {
		t.Errorf("%q", java[len(java)-1])
	}
}
