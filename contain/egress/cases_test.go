package egress

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// rawCase is what a client sends, byte for byte, and what must come of it.
type rawCase struct {
	name, raw string
	// want is the status; 200 means that the origin is reached.
	want int
	// rule is what X-Cordon-Refused says.
	rule string
	// asks: the name may be resolved although the request is refused.
	asks bool
}

func refusedConnect(name, target string) rawCase {
	return rawCase{name, connectHead(target), 403, RuleHost, false}
}

func badConnect(name, target string) rawCase {
	return rawCase{name, "CONNECT " + target + " HTTP/1.1\r\nHost: pkg.example.net:443\r\n\r\n", 400, RuleSyntax, false}
}

func bad(name, raw string, status int) rawCase { return rawCase{name, raw, status, RuleSyntax, false} }

const post = "POST http://www.shop.example.net/ HTTP/1.1\r\nHost: www.shop.example.net\r\n"

func withHeader(name, line string, status int) rawCase {
	return bad(name, "GET http://www.shop.example.net/ HTTP/1.1\r\nHost: www.shop.example.net\r\n"+line+"\r\n\r\n", status)
}

func framed(name, rest string, status int) rawCase { return bad(name, post+rest, status) }

func hostCases() []rawCase {
	long := strings.Repeat("a", 64)
	return []rawCase{
		{"a listed host", connectHead("pkg.example.net:443"), 200, "", true},
		{"a listed host in capitals", connectHead("PKG.Example.NET:443"), 200, "", true},
		{"a listed host with its final dot", connectHead("pkg.example.net.:443"), 200, "", true},
		{"a subdomain under a wildcard", connectHead("eu.www.shop.example.net:443"), 200, "", true},
		{"an underscore in a name under a wildcard", connectHead("a_b.shop.example.net:443"), 200, "", true},
		{"a listed name in punycode", connectHead("xn--bcher-kva.example.net:443"), 200, "", true},
		{"a listed address", connectHead("198.51.101.9:443"), 200, "", true},
		{"a listed IPv6 address", connectHead("[2606:4700:1::9]:443"), 200, "", true},
		{"a listed IPv6 address written otherwise", connectHead("[2606:4700:0001:0::0009]:443"), 200, "", true},
		{"a port that the rule names", connectHead("db.example.net:8443"), 200, "", true},
		{"no port in Host of a CONNECT", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 200, "", true},
		{"HTTP/1.0 without Host", "CONNECT pkg.example.net:443 HTTP/1.0\r\n\r\n", 200, "", true},
		{"an empty body said of a CONNECT", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net:443\r\nContent-Length: 0\r\n\r\n", 200, "", true},
		{"credentials for the proxy, which needs none", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net:443\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: Keep-Alive\r\n\r\n", 200, "", true},

		refusedConnect("an unlisted host", "evil.test:443"),
		refusedConnect("the apex of a wildcard", "shop.example.net:443"),
		refusedConnect("a suffix of a label under a wildcard", "xshop.example.net:443"),
		refusedConnect("a listed name as a prefix", "pkg.example.net.evil.test:443"),
		refusedConnect("a listed name with a dash after it", "pkg.example.net-evil.test:443"),
		refusedConnect("a listed name with letters before it", "xpkg.example.net:443"),
		refusedConnect("a subdomain of a listed name", "a.pkg.example.net:443"),
		refusedConnect("the parent of a listed name", "example.net:443"),
		refusedConnect("the top level of a listed name", "net:443"),
		refusedConnect("a listed name without its dots", "pkgexamplenet:443"),
		refusedConnect("a listed name with dashes for dots", "pkg-example-net:443"),
		refusedConnect("one letter for another", "pkq.example.net:443"),
		refusedConnect("a digit for a letter", "pkg.examp1e.net:443"),
		refusedConnect("a homoglyph in punycode", "xn--pk-6sb.example.net:443"),
		refusedConnect("a single label", "localhost:443"),
		refusedConnect("a name that a search domain would complete", "pkg:443"),
		refusedConnect("a local name", "printer.local:443"),
		refusedConnect("an internal cloud name", "metadata.google.internal:443"),
		refusedConnect("a name that spells loopback", "127.0.0.1.sslip.test:443"),
		refusedConnect("an LDAP-like name", "_ldap._tcp.example.net:443"),
		refusedConnect("the reverse zone", "1.0.0.127.in-addr.arpa:443"),
		refusedConnect("another public address", "198.51.101.10:443"),

		badConnect("two final dots", "pkg.example.net..:443"),
		badConnect("an empty first label", ".shop.example.net:443"),
		badConnect("an empty label in the middle", "a..shop.example.net:443"),
		badConnect("a label of 64 bytes", long+".shop.example.net:443"),
		badConnect("a name past 253 bytes", strings.Repeat("abcdefg.", 40)+"shop.example.net:443"),
		badConnect("a wildcard in a request", "*.shop.example.net:443"),
		badConnect("broken punycode", "xn--99999999999.example.net:443"),
		badConnect("five numbers", "1.2.3.4.5:443"),
		badConnect("a number too large for an address", "4294967296:443"),
		badConnect("an octet too large", "300.1.1.1:443"),
		badConnect("an octal octet with an eight", "0189.0.0.1:443"),
		badConnect("a name that ends in a number", "pkg.example.42:443"),
		badConnect("full-width letters", "ｐkg.example.net:443"),
		badConnect("an ideographic full stop", "pkg。example.net:443"),
		badConnect("a half-width ideographic stop", "pkg｡example.net:443"),
		badConnect("full-width digits", "１２７.0.0.1:443"),
		badConnect("a zero-width joiner", "pk\u200dg.example.net:443"),
		badConnect("a Cyrillic letter", "рkg.example.net:443"),
		badConnect("a right-to-left override", "pkg\u202e.example.net:443"),
		badConnect("a sharp s", "straße.shop.example.net:443"),
		badConnect("a byte that is no UTF-8", "pkg\xff.example.net:443"),
	}
}

func addressCases() []rawCase {
	var out []rawCase
	for _, a := range []string{
		"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "0x7F.1", "0", "0.0.0.0",
		"169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518", "10.0.0.8", "012.0.0.1", "172.16.5.4", "192.168.1",
		"100.64.9.9", "100.100.100.200", "168.63.129.16", "198.18.0.5", "192.0.0.192", "224.0.0.251", "240.0.0.1", "255.255.255.255", "203.0.113.9",
		"[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::a00:1]",
		"[2002:7f00:1::]", "[2001::1]", "[2001:db8::5]", "[fc00::5]", "[fd00:ec2::254]", "[fe80::5]", "[fec0::5]", "[ff05::2]", "[100::9]", "[5f00::9]",
	} {
		out = append(out, refusedConnect("the address "+a+" by CONNECT", a+":443"))
	}
	for _, a := range []string{"127.0.0.1", "0x7f.1", "2130706433", "169.254.169.254", "[::1]", "[::ffff:a9fe:a9fe]"} {
		out = append(out, rawCase{"the address " + a + " by plain HTTP", getHead("http://"+a+"/latest/meta-data/", a), 403, RuleHost, false})
	}
	return append(out,
		badConnect("an IPv6 zone", "[fe80::1%eth0]:443"),
		badConnect("an encoded IPv6 zone", "[fe80::1%25eth0]:443"),
		badConnect("IPv6 without brackets", "2606:4700:1::9:443"),
		badConnect("a bracket that is not closed", "[2606:4700:1::9:443"),
		badConnect("a bracket that was not opened", "2606:4700:1::9]:443"),
		badConnect("a name in brackets", "[pkg.example.net]:443"),
		badConnect("an IPv4 address in brackets", "[198.51.101.9]:443"),
		badConnect("a future address form", "[v1.fe80]:443"),
		badConnect("text after the bracket", "[2606:4700:1::9]x:443"),
		badConnect("two brackets", "[[2606:4700:1::9]]:443"),
		badConnect("too many colons in brackets", "[1:2:3:4:5:6:7:8:9]:443"),
		badConnect("empty brackets", "[]:443"),
	)
}

func targetCases() []rawCase {
	out := []rawCase{
		badConnect("userinfo", "pkg.example.net@evil.test:443"),
		badConnect("userinfo with a password", "u:p@pkg.example.net:443"),
		badConnect("a scheme", "https://pkg.example.net:443"),
		badConnect("slashes without a scheme", "//pkg.example.net:443"),
		badConnect("a path", "pkg.example.net:443/x"),
		badConnect("a path before the port", "pkg.example.net/:443"),
		badConnect("a query", "pkg.example.net:443?x"),
		badConnect("a fragment", "pkg.example.net:443#x"),
		badConnect("a fragment before another host", "pkg.example.net#.evil.test:443"),
		badConnect("a backslash", "pkg.example.net\\.evil.test:443"),
		badConnect("an encoded letter", "%70kg.example.net:443"),
		badConnect("an encoded NUL", "pkg.example.net%00.evil.test:443"),
		badConnect("an encoded dot", "pkg%2eexample.net:443"),
		badConnect("quotes", "\"pkg.example.net\":443"),
		badConnect("a comma and another host", "pkg.example.net,evil.test:443"),
		badConnect("a semicolon", "pkg.example.net;x:443"),
		badConnect("a tab", "pkg.example.net\t:443"),
		badConnect("a NUL", "pkg.example.net\x00.evil.test:443"),
		badConnect("a bare CR", "pkg.example.net\r:443"),
		badConnect("a bare LF", "pkg.example.net\n:443"),
		badConnect("a vertical tab", "pkg.example.net\v:443"),
		badConnect("a delete character", "pkg.example.net\x7f:443"),
		badConnect("two targets", "pkg.example.net:443 evil.test:443"),
		badConnect("a dollar sign", "pkg.example.net$:443"),
		badConnect("an asterisk form", "*"),
		badConnect("an origin form", "/"),
		badConnect("no host", ":443"),
		bad("no target", "CONNECT HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 400),
		bad("two spaces before the target", "CONNECT  pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 400),
		bad("a tab for a space", "CONNECT\tpkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 400),
		bad("a space after the version", "CONNECT pkg.example.net:443 HTTP/1.1 \r\nHost: pkg.example.net\r\n\r\n", 400),
		bad("a space before the method", " CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 400),
		bad("an empty line first", "\r\nCONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 400),
	}
	for _, p := range []string{"", "0", "00443", "0443", "65536", "99999", "4294967739", "18446744073709552059", "https", "+443", "-443", "443.0", "4 43", "0x1bb", "44３", "443a", "443:443", "1e3"} {
		out = append(out, badConnect(fmt.Sprintf("the port %q", p), "pkg.example.net:"+p))
	}
	out = append(out, badConnect("no port", "pkg.example.net"))
	for _, p := range []string{"22", "25", "53", "80", "3306", "6379", "8080", "8443", "44300"} {
		out = append(out, rawCase{"port " + p + " of a listed host", connectHead("pkg.example.net:" + p), 403, RulePort, false})
	}
	return append(out,
		rawCase{"the usual port where the rule names another", connectHead("db.example.net:443"), 403, RulePort, false},
		rawCase{"plain HTTP to the port of TLS", getHead("http://pkg.example.net:443/", "pkg.example.net:443"), 403, RulePort, false},
		rawCase{"plain HTTP to another port", getHead("http://pkg.example.net:8080/", "pkg.example.net:8080"), 403, RulePort, false},
		rawCase{"an LLM host by the tool proxy", connectHead("api.anthropic.com:443"), 403, RuleLLM, false},
		rawCase{"an LLM host in capitals with a dot", connectHead("API.OpenAI.com.:443"), 403, RuleLLM, false},
		rawCase{"a regional LLM host", connectHead("us-east1-aiplatform.googleapis.com:443"), 403, RuleLLM, false},
		rawCase{"an LLM host by plain HTTP", getHead("http://api.mistral.ai/v1/x", "api.mistral.ai"), 403, RuleLLM, false},
	)
}

func plainCases() []rawCase {
	return []rawCase{
		{"plain HTTP to a listed host", getHead("http://pkg.example.net/a?b=c", "pkg.example.net"), 200, "", true},
		{"its port spelled out", getHead("http://pkg.example.net:80/", "pkg.example.net"), 200, "", true},
		{"no path", getHead("http://pkg.example.net", "pkg.example.net"), 200, "", true},
		{"a query without a path", getHead("http://pkg.example.net?x=/../", "pkg.example.net"), 200, "", true},
		{"the scheme in capitals", getHead("HTTP://PKG.example.net/", "pkg.example.NET"), 200, "", true},
		{"another URI in the query", getHead("http://www.shop.example.net/?u=http://evil.test@x/", "www.shop.example.net"), 200, "", true},
		{"an at sign in the path", getHead("http://www.shop.example.net/@scope/name", "www.shop.example.net"), 200, "", true},
		{"a port that the rule names, by plain HTTP", getHead("http://old.example.net:8080/", "old.example.net:8080"), 200, "", true},
		{"a body of known length", post + "Content-Length: 5\r\n\r\nhello", 200, "", true},
		{"a chunked body", post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, "", true},
		{"a chunked body with an extension and a trailer", post + "Transfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", 200, "", true},
		{"a GET by HTTP/1.0", "GET http://pkg.example.net/ HTTP/1.0\r\n\r\n", 200, "", true},

		{"an unlisted host by plain HTTP", getHead("http://evil.test/", "evil.test"), 403, RuleHost, false},
		{"a listed host in the path", getHead("http://evil.test/pkg.example.net", "evil.test"), 403, RuleHost, false},
		{"a listed host in the query", getHead("http://evil.test?.shop.example.net", "evil.test"), 403, RuleHost, false},
		bad("a listed Host on another URI", getHead("http://evil.test/", "pkg.example.net"), 400),
		bad("another Host on a listed URI", getHead("http://pkg.example.net/", "evil.test"), 400),
		bad("another port in Host", getHead("http://pkg.example.net/", "pkg.example.net:8080"), 400),
		bad("another Host on a CONNECT", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", 400),
		bad("another port in Host of a CONNECT", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net:80\r\n\r\n", 400),
		bad("userinfo in a URI", getHead("http://pkg.example.net@evil.test/", "pkg.example.net"), 400),
		bad("userinfo before a listed host", getHead("http://u@pkg.example.net/", "pkg.example.net"), 400),
		bad("a backslash before an at sign", getHead("http://evil.test\\@pkg.example.net/", "pkg.example.net"), 400),
		bad("a backslash in the path", getHead("http://pkg.example.net/\\evil", "pkg.example.net"), 400),
		bad("a fragment in a URI", getHead("http://pkg.example.net/#x", "pkg.example.net"), 400),
		bad("an empty port in a URI", getHead("http://pkg.example.net:/", "pkg.example.net"), 400),
		bad("three slashes", getHead("http:///pkg.example.net/", "pkg.example.net"), 400),
		bad("one slash", getHead("http:/pkg.example.net/", "pkg.example.net"), 400),
		bad("TLS asked of the proxy", getHead("https://pkg.example.net/", "pkg.example.net"), 400),
		bad("another scheme", getHead("ftp://pkg.example.net/", "pkg.example.net"), 400),
		bad("a file", getHead("file:///etc/passwd", "pkg.example.net"), 400),
		bad("a websocket scheme", getHead("ws://pkg.example.net/", "pkg.example.net"), 400),
		bad("an origin form with a listed Host", getHead("/x", "pkg.example.net"), 400),
		bad("an asterisk", "OPTIONS * HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 400),
		bad("an authority form of a GET", getHead("pkg.example.net:80", "pkg.example.net"), 400),
		bad("an encoded slash in the host", getHead("http://evil.test%2f.shop.example.net/", "www.shop.example.net"), 400),
		bad("raw bytes past ASCII in the path", getHead("http://pkg.example.net/é", "pkg.example.net"), 400),
		bad("a target too long", getHead("http://pkg.example.net/"+strings.Repeat("a", maxTarget), "pkg.example.net"), 414),
		bad("a request line without end", "GET http://pkg.example.net/"+strings.Repeat("a", 40<<10), 414),
	}
}

func versionCases() []rawCase {
	line := func(l string) string { return l + "\r\nHost: pkg.example.net\r\n\r\n" }
	return []rawCase{
		bad("a method in lower case", line("connect pkg.example.net:443 HTTP/1.1"), 400),
		bad("a method in mixed case", line("Get http://pkg.example.net/ HTTP/1.1"), 400),
		bad("a method with a digit", line("GET1 http://pkg.example.net/ HTTP/1.1"), 400),
		bad("a method that nobody knows", line("FROB http://pkg.example.net/ HTTP/1.1"), 501),
		bad("a method that is too long", line(strings.Repeat("A", 40)+" http://pkg.example.net/ HTTP/1.1"), 400),
		bad("TRACE", line("TRACE http://pkg.example.net/ HTTP/1.1"), 405),
		bad("no version", "GET http://pkg.example.net/\r\n\r\n", 400),
		bad("no version, and the client waits", "GET http://pkg.example.net/\r\n", 400),
		bad("version 0.9", line("GET http://pkg.example.net/ HTTP/0.9"), 505),
		bad("version 1.2", line("CONNECT pkg.example.net:443 HTTP/1.2"), 505),
		bad("version 2.0", line("CONNECT pkg.example.net:443 HTTP/2.0"), 505),
		bad("version 2", line("CONNECT pkg.example.net:443 HTTP/2"), 400),
		bad("version 1.10", line("CONNECT pkg.example.net:443 HTTP/1.10"), 400),
		bad("version 01.1", line("CONNECT pkg.example.net:443 HTTP/01.1"), 400),
		bad("a protocol in lower case", line("CONNECT pkg.example.net:443 http/1.1"), 400),
		bad("another protocol", line("CONNECT pkg.example.net:443 HTTPS/1.1"), 400),
		bad("a comma in the version", line("CONNECT pkg.example.net:443 HTTP/1,1"), 400),
		bad("prior-knowledge HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
		bad("an upgrade to h2c", getHead("http://pkg.example.net/", "pkg.example.net", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), 501),
		bad("an upgrade to h2c among others", getHead("http://pkg.example.net/", "pkg.example.net", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n"), 501),
		bad("an upgrade to TLS", getHead("http://pkg.example.net/", "pkg.example.net", "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"), 501),
		bad("SOCKS 5", "\x05\x01\x00", 400),
		bad("SOCKS 4", "\x04\x01\x01\xbb\x00\x00\x00\x01x\x00pkg.example.net\x00", 400),
		bad("TLS to the proxy itself", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", 400),
		bad("the PROXY protocol", "PROXY TCP4 127.0.0.1 127.0.0.1 1 443\r\nCONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", 400),
		bad("the binary PROXY protocol", "\r\n\r\n\x00\r\nQUIT\n", 400),
		bad("an SSH banner", "SSH-2.0-x\r\n", 400),
	}
}

func headerCases() []rawCase {
	return []rawCase{
		bad("no Host", "CONNECT pkg.example.net:443 HTTP/1.1\r\n\r\n", 400),
		bad("an empty Host", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost:\r\n\r\n", 400),
		withHeader("two Hosts", "Host: www.shop.example.net", 400),
		withHeader("a second Host in other case", "HOST: evil.test", 400),
		bad("two hosts in one Host", getHead("http://pkg.example.net/", "pkg.example.net, evil.test"), 400),
		bad("userinfo in Host", getHead("http://pkg.example.net/", "u@pkg.example.net"), 400),
		bad("a path in Host", getHead("http://pkg.example.net/", "pkg.example.net/x"), 400),
		withHeader("a folded line", "X-A: b\r\n c", 400),
		withHeader("a folded line by a tab", "X-A: b\r\n\tHost: evil.test", 400),
		bad("a folded first line", "GET http://pkg.example.net/ HTTP/1.1\r\n Host: pkg.example.net\r\n\r\n", 400),
		withHeader("a space before the colon", "X-A : b", 400),
		withHeader("a tab before the colon", "Content-Length\t: 0", 400),
		withHeader("a line without a colon", "X-A", 400),
		withHeader("an empty name", ": b", 400),
		withHeader("a slash in a name", "X/A: b", 400),
		withHeader("a name past ASCII", "Ünder: b", 400),
		withHeader("a NUL in a value", "X-A: b\x00c", 400),
		withHeader("a bare CR in a value", "X-A: b\rHost: evil.test", 400),
		withHeader("a bare LF in a value", "X-A: b\nHost: evil.test", 400),
		withHeader("a bell in a value", "X-A: \x07", 400),
		bad("bare LF everywhere", "GET http://pkg.example.net/ HTTP/1.1\nHost: pkg.example.net\n\n", 400),
		bad("bare LF at the end", "GET http://pkg.example.net/ HTTP/1.1\r\nHost: pkg.example.net\r\n\n", 400),
		bad("bare CR at the ends", "GET http://pkg.example.net/ HTTP/1.1\rHost: pkg.example.net\r\r\n\r\n", 400),
		withHeader("an Expect that is no 100-continue", "Expect: 200-ok", 417),
		withHeader("a head past its size", "X-A: "+strings.Repeat("a", 20<<10), 431),
		withHeader("more fields than anybody needs", strings.TrimSuffix(strings.Repeat("A: b\r\n", 200), "\r\n"), 431),

		framed("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
		framed("two equal lengths", "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
		framed("a list of lengths", "Content-Length: 5, 5\r\n\r\nhello", 400),
		framed("an empty length", "Content-Length:\r\n\r\nhello", 400),
		framed("a plus sign", "Content-Length: +5\r\n\r\nhello", 400),
		framed("a minus sign", "Content-Length: -5\r\n\r\nhello", 400),
		framed("a hexadecimal length", "Content-Length: 0x5\r\n\r\nhello", 400),
		framed("a length with a leading zero", "Content-Length: 05\r\n\r\nhello", 400),
		framed("a length past 64 bits", "Content-Length: 18446744073709551621\r\n\r\nhello", 400),
		framed("a length with a fraction", "Content-Length: 5.0\r\n\r\nhello", 400),
		framed("a length past ASCII", "Content-Length: ５\r\n\r\nhello", 400),
		framed("a length and a coding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
		framed("a coding and a length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
		framed("two codings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
		framed("a list of codings", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
		framed("a coding nobody knows", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
		framed("the coding identity", "Transfer-Encoding: identity\r\n\r\nhello", 501),
		framed("a quoted coding", "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 501),
		framed("an empty coding", "Transfer-Encoding:\r\n\r\n0\r\n\r\n", 501),
		framed("a vertical tab before the coding", "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", 400),
		framed("a space before the colon of a coding", "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
		bad("a coding in HTTP/1.0", "POST http://pkg.example.net/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
		framed("a chunk size with a prefix", "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", 400),
		framed("a negative chunk size", "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", 400),
		framed("an empty chunk size", "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n", 400),
		framed("a chunk size of nine digits", "Transfer-Encoding: chunked\r\n\r\n000000005\r\nhello\r\n0\r\n\r\n", 400),
		framed("a chunk size with a space", "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n", 400),
		framed("a chunk line by bare LF", "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400),
		framed("a bare LF in a chunk extension", "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n", 400),
		framed("a chunk longer than its size", "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n", 400),
		framed("a second chunk that is malformed", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", 400),
		framed("a trailer that names a length", "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", 400),
		framed("a trailer without a colon", "Transfer-Encoding: chunked\r\n\r\n0\r\nGET http\r\n\r\n", 400),
		bad("a CONNECT with a body", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net:443\r\nContent-Length: 5\r\n\r\nhello", 400),
		bad("a CONNECT with a chunked body", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net:443\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
		bad("a request after a CONNECT, unasked", connectHead("pkg.example.net:443")+getHead("http://evil.test/", "evil.test"), 400),
		bad("bytes after a CONNECT", connectHead("pkg.example.net:443")+"SSH-2.0-x\r\n", 400),
	}
}

func allCases() map[string][]rawCase {
	return map[string][]rawCase{
		"hosts": hostCases(), "addresses": addressCases(), "targets": targetCases(),
		"plain": plainCases(), "versions": versionCases(), "headers": headerCases(),
	}
}

func TestRawRequests(t *testing.T) {
	total := 0
	for kind, cases := range allCases() {
		total += len(cases)
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, nil)
			for _, c := range cases {
				runRawCase(t, r, c)
			}
		})
	}
	if total < 150 {
		t.Errorf("%d cases (want at least 150)", total)
	}
}

func runRawCase(t *testing.T, r *rig, c rawCase) {
	t.Helper()
	asked, dials, stored := r.resolver.queries(), r.dials(), len(r.rows.list())
	rep, conn, br := r.ask(c.raw)
	defer conn.Close()
	if rep.status != c.want || rep.header.Get("X-Cordon-Refused") != c.rule {
		t.Errorf("%s: %d %q (want %d %q): %s", c.name, rep.status, rep.header.Get("X-Cordon-Refused"), c.want, c.rule, rep.body)
	}
	reached := r.dials() > dials
	if reached != (c.want == 200) {
		t.Errorf("%s: dialled %v", c.name, reached)
	}
	if !c.asks && r.resolver.queries() > asked {
		t.Errorf("%s: a name was resolved although it was refused", c.name)
	}
	if c.want == 200 {
		if len(r.rows.list()) != stored {
			t.Errorf("%s: allowed, but a row was stored: %+v", c.name, r.rows.list()[stored:])
		}
		return
	}
	if !strings.Contains(rep.body, c.rule) {
		t.Errorf("%s: the body does not name the rule: %q", c.name, rep.body)
	}
	if rest := ended(t, conn, br); rest != "" {
		t.Errorf("%s: more came after the refusal: %q", c.name, rest)
	}
}

func TestLLMProxy(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Kind = LLMProxy })
	for _, c := range []rawCase{
		{"a model's host", connectHead("api.anthropic.com:443"), 200, "", true},
		{"a model's host in capitals", connectHead("API.openai.COM:443"), 200, "", true},
		{"a host under a wildcard", connectHead("acme.openai.azure.com:443"), 200, "", true},
		{"its apex", connectHead("openai.azure.com:443"), 403, RuleHost, false},
		{"a registry", connectHead("pypi.org:443"), 403, RuleHost, false},
		{"a host that tools may reach", connectHead("pkg.example.net:443"), 403, RuleHost, false},
		{"a suffix of a label", connectHead("xapi.openai.com:443"), 403, RuleHost, false},
		{"a model's host as a prefix", connectHead("api.openai.com.evil.test:443"), 403, RuleHost, false},
		{"another port", connectHead("api.openai.com:8443"), 403, RulePort, false},
		{"plain HTTP", getHead("http://api.openai.com/v1/models", "api.openai.com"), 403, RulePort, false},
		{"plain HTTP to the port of TLS", getHead("http://api.openai.com:443/v1/models", "api.openai.com:443"), 403, RulePort, false},
		{"metadata", connectHead("169.254.169.254:443"), 403, RuleHost, false},
	} {
		runRawCase(t, r, c)
	}
}

func TestAnswersOfTheResolver(t *testing.T) {
	for i, c := range []struct {
		name    string
		answers []string
		want    int
		rule    string
	}{
		{"a public address", []string{"198.51.101.8"}, 200, ""},
		{"two public addresses", []string{"198.51.101.8", "2606:4700::1"}, 200, ""},
		{"loopback", []string{"127.0.0.1"}, 403, RulePrivate},
		{"metadata", []string{"169.254.169.254"}, 403, RulePrivate},
		{"a public address first and a private one", []string{"198.51.101.8", "10.0.0.1"}, 403, RulePrivate},
		{"a private address past those that would be dialled", []string{"9.9.9.1", "9.9.9.2", "9.9.9.3", "9.9.9.4", "9.9.9.5", "192.168.0.1"}, 403, RulePrivate},
		{"a private IPv6 address beside a public IPv4 one", []string{"198.51.101.8", "fd00::1"}, 403, RulePrivate},
		{"mapped loopback", []string{"::ffff:127.0.0.1"}, 403, RulePrivate},
		{"NAT64 of loopback", []string{"64:ff9b::7f00:1"}, 403, RulePrivate},
		{"zero", []string{"0.0.0.0"}, 403, RulePrivate},
		{"nothing", nil, 502, ""},
	} {
		r := newRig(t, nil)
		host := fmt.Sprintf("n%d.shop.example.net", i)
		r.resolver.set(host, c.answers...)
		for _, raw := range []string{connectHead(host + ":443"), getHead("http://"+host+"/", host)} {
			rep, conn, _ := r.ask(raw)
			conn.Close()
			if rep.status != c.want || rep.header.Get("X-Cordon-Refused") != c.rule {
				t.Errorf("%s: %d %q, want %d %q", c.name, rep.status, rep.header.Get("X-Cordon-Refused"), c.want, c.rule)
			}
		}
		if c.want != 200 && r.dials() != 0 {
			t.Errorf("%s: dialled %v", c.name, r.dialled)
		}
		if got := r.rows.has(RulePrivate); got != (c.rule == RulePrivate) {
			t.Errorf("%s: row of %s: %v", c.name, RulePrivate, got)
		}
	}
}

func TestNameIsAskedOnceAndWithoutSearchDomains(t *testing.T) {
	r := newRig(t, nil)
	r.connectTo("PKG.example.net:443")
	if got := r.resolver.asked; len(got) != 1 || got[0] != "pkg.example.net." {
		t.Errorf("asked %q, want the one absolute name", got)
	}
}

// G6: in shadow mode the policy refuses nothing, and no row claims that
// anything was enforced. What is no policy of the run's holds in every mode.
func TestG6ShadowPassesAndSaysSo(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Mode = cordon.Shadow })
	conn, _ := r.connectTo("evil.test:443")
	hello := clientHello(t, "other.test")
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(hello))); err != nil {
		t.Fatalf("the tunnel does not pass in shadow mode: %v", err)
	}
	for _, rule := range []string{RuleHost, RuleSNI} {
		if !r.rows.has(rule) {
			t.Errorf("no row of %s", rule)
		}
	}
	for _, x := range r.rows.list() {
		if x.Enforced {
			t.Errorf("a row of shadow mode claims that it was enforced: %+v", x)
		}
	}
	r.resolver.set("inner.test", "10.1.2.3")
	if rep, _, _ := r.ask(connectHead("inner.test:443")); rep.status != 403 {
		t.Errorf("a private range in shadow mode: %d, want 403", rep.status)
	}
	if rep, _, _ := r.ask("GET /x HTTP/1.1\r\nHost: x\r\n\r\n"); rep.status != 400 {
		t.Errorf("an unreadable request in shadow mode: %d, want 400", rep.status)
	}
	for _, x := range r.rows.list() {
		wall := x.Rule == RulePrivate || x.Rule == RuleSyntax
		if x.Enforced || x.Refused != wall {
			t.Errorf("row of shadow mode: %+v", x)
		}
	}
}

func TestOffJudgesAndRecordsNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Mode = cordon.Off })
	conn, _ := r.connectTo("evil.test:443")
	if _, err := io.WriteString(conn, "no TLS"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	r.resolver.set("inner.test", "10.1.2.3")
	if rep, _, _ := r.ask(connectHead("inner.test:443")); rep.status != 403 {
		t.Errorf("a private range in mode off: %d, want 403", rep.status)
	}
	if got := r.rows.list(); len(got) != 0 {
		t.Errorf("rows in mode off: %+v", got)
	}
}
