package egress

import (
	"encoding/binary"
	"net/netip"
)

// special is one range that no public host lives in.
type special struct {
	prefix netip.Prefix
	what   string
}

// specialV4 are the ranges of IPv4 that are not dialled, most specific name
// first. Sources: IANA IPv4 Special-Purpose Address Registry (RFC 6890) and
// the clouds' own documentation.
var specialV4 = []special{
	{pfx("168.63.129.16/32"), "cloud metadata (Azure)"},
	{pfx("100.100.100.200/32"), "cloud metadata (Alibaba)"},
	{pfx("169.254.0.0/16"), "link-local, cloud metadata (RFC 3927)"},
	{pfx("0.0.0.0/8"), "this network (RFC 1122)"},
	{pfx("10.0.0.0/8"), "private (RFC 1918)"},
	{pfx("100.64.0.0/10"), "carrier NAT (RFC 6598)"},
	{pfx("127.0.0.0/8"), "loopback (RFC 1122)"},
	{pfx("172.16.0.0/12"), "private (RFC 1918)"},
	{pfx("192.0.0.0/24"), "protocol assignments (RFC 6890)"},
	{pfx("192.0.2.0/24"), "documentation (RFC 5737)"},
	{pfx("192.88.99.0/24"), "6to4 relay (RFC 7526)"},
	{pfx("192.168.0.0/16"), "private (RFC 1918)"},
	{pfx("198.18.0.0/15"), "benchmarking (RFC 2544)"},
	{pfx("198.51.100.0/24"), "documentation (RFC 5737)"},
	{pfx("203.0.113.0/24"), "documentation (RFC 5737)"},
	{pfx("224.0.0.0/4"), "multicast (RFC 5771)"},
	{pfx("255.255.255.255/32"), "broadcast (RFC 919)"},
	{pfx("240.0.0.0/4"), "reserved (RFC 1112)"},
}

// specialV6 likewise (IANA IPv6 Special-Purpose Address Registry). What is
// outside of 2000::/3 and not listed is refused as unassigned.
var specialV6 = []special{
	{pfx("::/128"), "unspecified (RFC 4291)"},
	{pfx("::1/128"), "loopback (RFC 4291)"},
	{pfx("::/96"), "IPv4-compatible (RFC 4291)"},
	{pfx("64:ff9b:1::/48"), "local NAT64 (RFC 8215)"},
	{pfx("100::/64"), "discard (RFC 6666)"},
	{pfx("2001::/32"), "Teredo (RFC 4380)"},
	{pfx("2001::/23"), "protocol assignments (RFC 2928)"},
	{pfx("2001:db8::/32"), "documentation (RFC 3849)"},
	{pfx("3fff::/20"), "documentation (RFC 9637)"},
	{pfx("5f00::/16"), "segment routing (RFC 9602)"},
	{pfx("fd00:ec2::254/128"), "cloud metadata (AWS)"},
	{pfx("fd20:ce::254/128"), "cloud metadata (Google)"},
	{pfx("fc00::/7"), "unique local (RFC 4193)"},
	{pfx("fe80::/10"), "link-local (RFC 4291)"},
	{pfx("fec0::/10"), "site-local (RFC 3879)"},
	{pfx("ff00::/8"), "multicast (RFC 4291)"},
}

var (
	nat64     = pfx("64:ff9b::/96") // RFC 6052
	sixToFour = pfx("2002::/16")    // RFC 3056
	global6   = pfx("2000::/3")     // RFC 3587
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// classify says what is special about an address, "" for a public one. An
// IPv4 address inside an IPv6 one (mapped, NAT64, 6to4) is judged itself.
func classify(a netip.Addr) string {
	if !a.IsValid() {
		return "no address"
	}
	if a.Zone() != "" {
		return "an address with a zone"
	}
	a = a.Unmap() // ::ffff:0:0/96, RFC 4291
	if a.Is4() {
		return lookup(specialV4, a)
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return inner("NAT64 of ", b[12:16])
	case sixToFour.Contains(a):
		return inner("6to4 of ", b[2:6])
	}
	if what := lookup(specialV6, a); what != "" {
		return what
	}
	// Mapped forms by SIIT (RFC 2765, ::ffff:0:0:0/96) and all that nobody
	// was assigned end here.
	if !global6.Contains(a) {
		return "unassigned (RFC 4291)"
	}
	return isatap(b)
}

// isatap judges the IPv4 address in an ISATAP interface identifier
// (RFC 5214): a router that speaks it would deliver there.
func isatap(b [16]byte) string {
	if id := binary.BigEndian.Uint32(b[8:12]); id == 0x00005efe || id == 0x02005efe {
		return inner("ISATAP of ", b[12:16])
	}
	return ""
}

func inner(form string, b []byte) string {
	if what := lookup(specialV4, netip.AddrFrom4([4]byte(b))); what != "" {
		return form + what
	}
	return ""
}

func lookup(table []special, a netip.Addr) string {
	for i := range table {
		if table[i].prefix.Contains(a) {
			return table[i].what
		}
	}
	return ""
}

// addrPolicy is the table with the exceptions that a person spelled out.
type addrPolicy struct{ exceptions []netip.Prefix }

// refuses says why an address is not dialled, "" where it may be. An
// exception covers the address as it would be dialled, not one inside it.
func (p addrPolicy) refuses(a netip.Addr) string {
	what := classify(a)
	if what == "" {
		return ""
	}
	for _, e := range p.exceptions {
		if a.Zone() == "" && e.Contains(a.Unmap()) {
			return ""
		}
	}
	return what
}
