package egress

import (
	"net/netip"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		name, addr string
		public     bool
	}{
		{"an ordinary address", "93.184.216.99", true},
		{"a public resolver", "9.9.9.9", true},
		{"the first address", "0.0.0.0", false},
		{"this network", "0.1.2.3", false},
		{"after this network", "1.0.0.0", true},
		{"ten", "10.255.0.1", false},
		{"before ten", "9.255.255.255", true},
		{"carrier NAT, low end", "100.64.0.0", false},
		{"carrier NAT, high end", "100.127.255.255", false},
		{"after carrier NAT", "100.128.0.1", true},
		{"metadata of Alibaba", "100.100.100.200", false},
		{"loopback", "127.8.9.10", false},
		{"after loopback", "128.0.0.1", true},
		{"metadata of most clouds", "169.254.169.254", false},
		{"metadata of ECS tasks", "169.254.170.2", false},
		{"link-local, high end", "169.254.255.255", false},
		{"metadata of Azure", "168.63.129.16", false},
		{"beside that of Azure", "168.63.129.17", true},
		{"172.16, high end", "172.31.255.255", false},
		{"after 172.16", "172.32.0.1", true},
		{"protocol assignments, metadata of Oracle", "192.0.0.192", false},
		{"documentation 1", "192.0.2.200", false},
		{"6to4 relay", "192.88.99.1", false},
		{"192.168", "192.168.178.1", false},
		{"after 192.168", "192.169.0.1", true},
		{"benchmark, high end", "198.19.255.255", false},
		{"after benchmark", "198.20.0.1", true},
		{"documentation 2", "198.51.100.1", false},
		{"documentation 3", "203.0.113.77", false},
		{"multicast", "239.1.2.3", false},
		{"reserved", "250.1.1.1", false},
		{"broadcast", "255.255.255.255", false},
		{"an ordinary IPv6 address", "2606:4700::6810:84e5", true},
		{"unspecified", "::", false},
		{"IPv6 loopback", "::1", false},
		{"IPv4-mapped loopback", "::ffff:127.0.0.1", false},
		{"IPv4-mapped metadata", "::ffff:169.254.169.254", false},
		{"IPv4-mapped, public inside", "::ffff:9.9.9.9", true},
		{"IPv4-compatible", "::10.0.0.1", false},
		{"IPv4-compatible, public inside", "::9.9.9.9", false},
		{"IPv4-translated", "::ffff:0:10.0.0.1", false},
		{"NAT64 of metadata", "64:ff9b::169.254.169.254", false},
		{"NAT64 of ten", "64:ff9b::10.1.2.3", false},
		{"NAT64 of a public one", "64:ff9b::9.9.9.9", true},
		{"NAT64 prefix with bits between", "64:ff9b::1:9.9.9.9", false},
		{"local NAT64", "64:ff9b:1::9.9.9.9", false},
		{"6to4 of loopback", "2002:7f00:1::1", false},
		{"6to4 of 192.168", "2002:c0a8:101::", false},
		{"6to4 of a public one", "2002:909:909::1", true},
		{"Teredo", "2001:0:909:909::1", false},
		{"ORCHID", "2001:20::1", false},
		{"documentation", "2001:db8:1::1", false},
		{"the newer documentation", "3fff:fff::1", false},
		{"beside documentation", "2001:db9::1", true},
		{"segment routing", "5f00::1", false},
		{"discard", "100::1", false},
		{"unique local", "fc00::1", false},
		{"unique local, metadata of AWS", "fd00:ec2::254", false},
		{"metadata of Google", "fd20:ce::254", false},
		{"link-local", "fe80::1", false},
		{"link-local with a zone", "fe80::1%eth0", false},
		{"a public one with a zone", "2606:4700::1%eth0", false},
		{"site-local", "fec0::1", false},
		{"multicast of all nodes", "ff02::1", false},
		{"unassigned", "4000::1", false},
		{"ISATAP of ten", "2606:4700::5efe:10.0.0.1", false},
		{"ISATAP of a public one", "2606:4700::200:5efe:9.9.9.9", true},
	} {
		a := netip.MustParseAddr(c.addr)
		if what := classify(a); (what == "") != c.public {
			t.Errorf("%s: classify(%s) = %q, want public %v", c.name, c.addr, what, c.public)
		}
	}
	if classify(netip.Addr{}) == "" {
		t.Error("no address at all is taken for a public one")
	}
}

func TestExceptionsCoverWhatTheySay(t *testing.T) {
	p := addrPolicy{[]netip.Prefix{netip.MustParsePrefix("10.7.0.0/16"), netip.MustParsePrefix("fd12::/16")}}
	for _, c := range []struct {
		addr string
		want bool
	}{
		{"10.7.1.1", true}, {"::ffff:10.7.1.1", true}, {"fd12::1", true},
		{"10.8.1.1", false}, {"127.0.0.1", false}, {"64:ff9b::10.7.1.1", false}, {"2002:a07:101::", false}, {"fd12::1%eth0", false},
	} {
		if got := p.refuses(netip.MustParseAddr(c.addr)) == ""; got != c.want {
			t.Errorf("%s passes: %v, want %v", c.addr, got, c.want)
		}
	}
}
