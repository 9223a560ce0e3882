package policy

import (
	"fmt"
	"slices"
	"strings"
)

// parseHosts brings host patterns into one form: lower case, no trailing dot,
// sorted, each once. Whether a pattern is a host at all, and too wide, is the
// egress rules' to say when they are built from it; what could not be
// compared here is refused.
func parseHosts(what string, list []string) ([]string, error) {
	hosts := make([]string, 0, len(list))
	for _, h := range list {
		if h == "" || badText(h) || strings.ContainsAny(h, "/@ \\") || strings.Contains(strings.TrimPrefix(h, "*."), "*") {
			return nil, fmt.Errorf(`policy: %s host %q (want "example.com" or "*.example.com", with ":port" if need be)`, what, h)
		}
		hosts = append(hosts, canonicalHost(h))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

func canonicalHost(h string) string {
	name, port := splitPort(strings.ToLower(h))
	return strings.TrimSuffix(name, ".") + port
}

// splitPort cuts ":port" off, colon included. An IPv6 literal without
// brackets has no port.
func splitPort(h string) (name, port string) {
	i := strings.LastIndexByte(h, ':')
	if i < 0 || strings.HasSuffix(h, "]") || strings.Count(h, ":") > 1 && !strings.HasPrefix(h, "[") {
		return h, ""
	}
	return h[:i], h[i:]
}

// narrowHosts is what both lists permit. Of two patterns the narrower one
// stays, if the other covers it.
func narrowHosts(base, override []string) []string {
	kept := []string{}
	for _, b := range base {
		for _, o := range override {
			if covers(b, o) {
				kept = append(kept, o)
			} else if covers(o, b) {
				kept = append(kept, b)
			}
		}
	}
	slices.Sort(kept)
	return slices.Compact(kept)
}

// covers reports whether every host of narrow is one of wide. "*.x" is all
// names below x and not x. Ports must be spelled alike: without knowing the
// default ports, a pattern that names one is not within one that names none.
func covers(wide, narrow string) bool {
	if wide == narrow {
		return true
	}
	w, wp := splitPort(wide)
	n, np := splitPort(narrow)
	suffix, ok := strings.CutPrefix(w, "*")
	return ok && wp == np && len(n) > len(suffix) && strings.HasSuffix(n, suffix)
}
