package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// gate refuses what a web page in the user's browser could send: requests
// under a name that was made to point here, or from another origin.
type gate struct {
	hosts   map[string]bool // "host" for any port, or "host:port"
	origins map[string]bool
}

func newGate(hosts, origins []string) (*gate, error) {
	g := &gate{hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range hosts {
		if h == "" || strings.ContainsAny(h, "*/ @") {
			return nil, fmt.Errorf("gateway: host %q (want a name or an address, with or without a port)", h)
		}
		g.hosts[strings.ToLower(h)] = true
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.User != nil || u.RawQuery != "" {
			return nil, fmt.Errorf("gateway: origin %q (want scheme://host, nothing more)", o)
		}
		g.origins[strings.ToLower(o)] = true
	}
	return g, nil
}

// refuses says why a request may not come in, or "".
func (g *gate) refuses(r *http.Request) string {
	if !g.host(r.Host) {
		return "this Host is not served here"
	}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
	case len(origins) > 1:
		return "more than one Origin"
	case !g.origin(origins[0], r.Host):
		return "this Origin may not call"
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" && len(origins) == 0 {
		return "a cross-site request without its Origin"
	}
	return ""
}

func (g *gate) host(hostport string) bool {
	hostport = strings.ToLower(hostport)
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if g.hosts[hostport] || g.hosts[host] || host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.IsLoopback()
}

// origin: one that is listed, or the very host that was asked, which a page
// that Cordon did not serve has only where something else answers there.
func (g *gate) origin(origin, host string) bool {
	origin = strings.ToLower(origin)
	if g.origins[origin] {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" || u.User != nil {
		return false
	}
	return u.Host == strings.ToLower(host)
}
