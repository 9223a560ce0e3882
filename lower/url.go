package lower

import (
	"encoding/base64"
	"net/url"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// address is a host as it was written, with its port if it has one, and the
// scheme it is spoken to in.
type address struct{ host, scheme string }

// reading is what an address may mean. Readers of URLs differ (WHATWG's, RFC
// 3986's, older ones); hosts holds what each would connect to.
type reading struct {
	hosts []address
	// file: it is a path of this machine, or of a host in hosts.
	file bool
	// script is what a browser would run for it.
	script string
	// opaque says why it cannot be told; malformed that it is broken.
	opaque, malformed string
	// mail is who a mailto: address writes to.
	mail string
	// none: it means nothing outside the tool (about:blank).
	none bool
	// own: the scheme is none that is spoken to hosts. It may be a server's
	// own name for what it keeps (memo://note).
	own bool
	// path is what a file address is without what was wrapped around it.
	path string
}

// Schemes whose rest is an address of its own.
var wrappers = map[string]bool{"view-source": true, "jar": true, "blob": true, "feed": true, "url": true, "filesystem": true, "web+http": true, "read": true, "cache": true, "jdbc": true, "r2dbc": true, "odbc": true, "about-reader": true}

// Schemes for which browsers take any number of slashes of either kind.
var special = map[string]bool{"http": true, "https": true, "ws": true, "wss": true, "ftp": true, "": true}

// Schemes that are spoken to hosts.
var network = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"http": true, "https": true, "ws": true, "wss": true, "ftp": true, "ftps": true, "sftp": true,
		"ssh": true, "scp": true, "git": true, "smb": true, "cifs": true, "nfs": true, "ldap": true, "ldaps": true, "gopher": true,
		"dict": true, "telnet": true, "rsync": true, "svn": true, "tcp": true, "udp": true, "tls": true, "imap": true, "imaps": true,
		"smtp": true, "smtps": true, "pop3": true, "redis": true, "rediss": true, "rtsp": true, "rtmp": true, "mqtt": true, "mqtts": true, "webdav": true, "dav": true,
		"tftp": true, "nntp": true, "irc": true, "ircs": true, "xmpp": true, "sip": true, "vnc": true, "rdp": true, "winrm": true, "docker": true,
		"postgres": true, "postgresql": true, "mysql": true, "mariadb": true, "mongodb": true, "sqlserver": true, "mssql": true, "oracle": true,
		"clickhouse": true, "cassandra": true, "neo4j": true, "bolt": true, "couchbase": true, "memcached": true, "elasticsearch": true, "snowflake": true, "libsql": true,
		"amqp": true, "amqps": true, "kafka": true, "nats": true, "stomp": true, "zmq": true, "grpc": true, "grpcs": true, "thrift": true, "socks": true, "socks4": true, "socks5": true, "socks5h": true,
		"s3": true, "s3a": true, "s3n": true, "gs": true, "gcs": true, "az": true, "azure": true, "abfs": true, "abfss": true, "wasb": true, "wasbs": true, "adl": true, "hdfs": true, "webhdfs": true, "oss": true, "cos": true, "r2": true, "b2": true, "swift": true,
		"magnet": true, "ipfs": true, "ipns": true, "hg": true, "bzr": true, "cvs": true, "afp": true, "finger": true, "whois": true, "dns": true, "ntp": true, "snmp": true, "rtmps": true, "rtsps": true, "srt": true, "rtp": true, "hxxp": true, "hxxps": true, "shttp": true}
})

// Schemes that name a file of this machine.
var local = map[string]bool{"file": true, "local": true, "localfile": true, "fs": true, "vscode-file": true, "vscode-local": true, "host": true, "unix": true, "npipe": true}

// Schemes of databases that are a file, which may be named without slashes.
var fileDatabase = map[string]bool{"sqlite": true, "sqlite3": true, "pysqlite": true, "aiosqlite": true, "duckdb": true}

// readAddress reads an address with or without a scheme.
func readAddress(s string) reading {
	var r reading
	r.read(s, 4)
	return r
}

func (r *reading) read(s string, depth int) {
	if strings.IndexByte(s, 0) >= 0 {
		r.malformed = "malformed: NUL byte in a URL"
	}
	s = strings.TrimFunc(s, func(c rune) bool {
		return c <= ' ' || c == 0x7f || c == '"' || c == 0xa0 || c == 0xfeff || c == 0x200b
	})
	if len(s) > 2 && s[0] == '<' && s[len(s)-1] == '>' {
		s = s[1 : len(s)-1]
	}
	if strings.ContainsAny(s, "\t\r\n") {
		joined := dropBreaks(s)
		if head := strings.FieldsFunc(s, func(c rune) bool { return c == '\t' || c == '\r' || c == '\n' }); len(head) > 0 {
			r.one(head[0], depth)
		}
		s = joined
	}
	r.one(s, depth)
}

func (r *reading) one(s string, depth int) {
	scheme, rest := splitScheme(s)
	switch {
	case depth > 0 && wrappers[scheme]:
		r.read(rest, depth-1)
		return
	case scheme == "file":
		r.file, r.path = true, s
		r.fileHost(rest)
		return
	case local[scheme] && strings.HasPrefix(rest, "//"):
		r.file, r.path = true, "file:///"+strings.TrimLeft(rest, "/")
		if u, err := url.PathUnescape(r.path); err == nil && scheme == "unix" {
			r.path = "file:///" + strings.TrimLeft(u[len("file:"):], "/")
		}
		return
	case fileDatabase[scheme]:
		r.file, r.path, r.none = true, databaseFile(rest), true
		return
	case scheme == "data" || scheme == "javascript":
		if scheme == "javascript" || rendered(rest) {
			r.script = inline(scheme, rest)
		} else {
			r.none = true
		}
		return
	case scheme == "vbscript":
		r.opaque = "VBScript in an address"
		return
	case scheme == "about" || scheme == "urn" || scheme == "tel" || scheme == "cid":
		r.none = true
		return
	case scheme == "mailto":
		r.mail, _, _ = strings.Cut(rest, "?")
		return
	case scheme == "chrome" || scheme == "edge" || scheme == "devtools" || scheme == "chrome-extension" || scheme == "moz-extension" || scheme == "safari-extension" || scheme == "edge-extension":
		r.opaque = "a page of the browser itself"
		return
	}
	if scheme == "" && strings.HasPrefix(s, `\\`) {
		r.file = true
		r.fileHost(s)
		return
	}
	if scheme == "" {
		if host, ok := scpHost(s); ok {
			r.add(host, "ssh")
			return
		}
	}
	r.own = scheme != "" && !network()[scheme] && strings.HasPrefix(rest, "//")
	r.authority(scheme, rest)
}

var breaks = strings.NewReplacer("\t", "", "\r", "", "\n", "")

// dropBreaks drops what browsers drop wherever it stands.
func dropBreaks(s string) string {
	if strings.ContainsAny(s, "\t\r\n") {
		return breaks.Replace(s)
	}
	return s
}

// splitScheme cuts the scheme off, in lower case and without a "git+" or
// "svn+" before it. host:port is no scheme.
func splitScheme(s string) (scheme, rest string) {
	i := strings.IndexByte(s, ':')
	if i <= 0 || i > 32 {
		return "", s
	}
	for j := 0; j < i; j++ {
		c := s[j]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (j == 0 || !(c >= '0' && c <= '9') && c != '+' && c != '-' && c != '.') {
			return "", s
		}
	}
	rest = s[i+1:]
	if !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, `\`) {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		name := strings.ToLower(s[:i])
		port := digits > 0 && (digits == len(rest) || strings.IndexByte("/\\?#", rest[digits]) >= 0)
		if !special[name] && (port || strings.IndexByte(name, '.') >= 0) {
			return "", s
		}
	}
	scheme = strings.ToLower(s[:i])
	if p := strings.LastIndexByte(scheme, '+'); p >= 0 && !wrappers[scheme] {
		before, after := scheme[:p], scheme[p+1:]
		if scheme = after; network()[before] && !network()[after] && !local[after] {
			scheme = before
		}
	}
	return scheme, rest
}

// scpHost reads user@host:path, as git and scp do.
func scpHost(s string) (host string, ok bool) {
	if strings.ContainsAny(s, " \t\r\n") {
		return "", false
	}
	at := strings.IndexByte(s, '@')
	if at <= 0 || strings.ContainsAny(s[:at], `/\:?#`) {
		return "", false
	}
	host, path, ok := strings.Cut(s[at+1:], ":")
	if !ok || host == "" || path == "" || strings.ContainsAny(host, `/\?#@`) || strings.HasPrefix(path, "//") {
		return "", false
	}
	for _, c := range path {
		if c < '0' || c > '9' {
			return host, c != '@'
		}
	}
	return "", false // user@host:port
}

// databaseFile is the file in sqlite:///x.db (relative), sqlite:////x.db and
// sqlite:x.db.
func databaseFile(rest string) string {
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "///"), "//")
	rest, _, _ = strings.Cut(rest, "?")
	return rest
}

// fileHost notes the other machine that a file: URL or share names.
func (r *reading) fileHost(rest string) {
	rest = strings.ReplaceAll(rest, `\`, "/")
	host, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return
	}
	// file:////host/share is a share too.
	if t := strings.TrimLeft(host, "/"); len(host)-len(t) >= 2 {
		host = t
	}
	host, _, _ = strings.Cut(host, "/")
	host, _, _ = strings.Cut(host, "?")
	host, _, _ = strings.Cut(host, "#")
	switch strings.ToLower(host) {
	case "", "localhost", "127.0.0.1", "[::1]", ".", "?", "~":
		return
	}
	if len(host) == 2 && (host[1] == ':' || host[1] == '|') {
		return
	}
	if strings.HasPrefix(host, "$") || strings.HasPrefix(host, "%24") {
		return
	}
	r.add(host, "smb")
}

// rendered reports a data: address of a type that a browser shows as a page
// or runs: a picture or plain text does nothing.
func rendered(rest string) bool {
	head, _, _ := strings.Cut(rest, ",")
	head, _, _ = strings.Cut(strings.ToLower(head), ";")
	for _, inert := range [...]string{"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/x-icon", "audio/", "video/", "font/", "application/pdf", "application/octet-stream", "application/json", "text/plain", "text/csv"} {
		if strings.HasPrefix(strings.TrimSpace(head), inert) {
			return false
		}
	}
	return true
}

func inline(scheme, rest string) string {
	if scheme == "data" {
		head, body, ok := strings.Cut(rest, ",")
		if !ok {
			return rest
		}
		if u, err := url.PathUnescape(body); err == nil {
			body = u
		}
		if strings.HasSuffix(strings.ToLower(strings.TrimSpace(head)), "base64") {
			if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(body)); err == nil {
				return string(b)
			}
		}
		return body
	}
	if u, err := url.PathUnescape(rest); err == nil {
		return u
	}
	return rest
}

// authority finds the hosts in what follows the scheme.
func (r *reading) authority(scheme, rest string) {
	body := strings.TrimLeft(rest, "/")
	if special[scheme] {
		body = strings.TrimLeft(rest, `/\`)
	}
	if body == "" {
		r.malformed = "malformed: a URL without a host"
		return
	}
	if len(body) != len(rest) || special[scheme] {
		r.hostsIn(scheme, body)
		return
	}
	// scheme:opaque has no host anybody would connect to.
	r.opaque = "an address of scheme " + scheme
}

func (r *reading) hostsIn(scheme, body string) {
	op := scheme
	if op == "" {
		op = "https"
	}
	// WHATWG: the authority ends at the first of / \ ? #; the last @ counts.
	end := strings.IndexAny(body, `/\?#`)
	strict := body
	if end >= 0 {
		strict = body[:end]
	}
	r.userinfo(strict, op)
	// RFC 3986 does not know the backslash; older readers end it at / only.
	slash := body
	if i := strings.IndexByte(body, '/'); i >= 0 {
		slash = body[:i]
	}
	if slash != strict && (strings.Contains(slash, "@") || strings.Contains(slash, `\`)) {
		rfc := body
		if i := strings.IndexAny(body, "/?#"); i >= 0 {
			rfc = body[:i]
		}
		if rfc != strict {
			r.userinfo(rfc, op)
		}
		if strings.Contains(slash[len(strict):], "@") {
			r.userinfo(slash, op)
		}
	}
	if strings.ContainsAny(strict, " \x00\x7f") || hasControl(strict) {
		r.malformed = "malformed: white space or control characters in a URL's host"
	}
}

func hasControl(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' {
			return true
		}
	}
	return false
}

// userinfo takes the host out of an authority, by the last @ and, where
// there are several, by the first.
func (r *reading) userinfo(auth, scheme string) {
	last := strings.LastIndexByte(auth, '@')
	r.add(auth[last+1:], scheme)
	if first := strings.IndexByte(auth, '@'); first != last {
		next := auth[first+1:]
		if i := strings.IndexByte(next, '@'); i >= 0 {
			next = next[:i]
		}
		r.add(next, scheme)
	}
	// A percent-encoded @ is decoded too early by some.
	if i := strings.Index(strings.ToLower(auth), "%40"); i >= 0 && last >= 0 {
		r.add(auth[i+3:][max(strings.LastIndexByte(auth[i+3:], '@')+1, 0):], scheme)
	}
}

func (r *reading) add(host, scheme string) {
	if host == "" {
		if len(r.hosts) == 0 {
			r.malformed = "malformed: a URL without a host"
		}
		return
	}
	r.put(address{host, scheme})
	if strings.IndexByte(host, '%') >= 0 && !strings.HasPrefix(host, "[") {
		if u, err := url.PathUnescape(host); err == nil && u != host {
			if i := strings.IndexAny(u, `/\?#`); i >= 0 {
				u = u[:i]
			}
			if i := strings.LastIndexByte(u, '@'); i >= 0 {
				u = u[i+1:]
			}
			if u != "" {
				r.put(address{u, scheme})
			}
		}
	}
}

func (r *reading) put(a address) {
	for _, have := range r.hosts {
		if have == a {
			return
		}
	}
	if len(r.hosts) < 16 {
		r.hosts = append(r.hosts, a)
	}
}

// urls lowers a string in an address role; it may hold several.
func (w *walker) urls(s string, f frame) {
	if s == "" {
		return
	}
	if (s[0] == '[' || s[0] == '{') && w.unpack(s, f) {
		return
	}
	w.url(s, f.listed || f.strong)
	if !strings.ContainsAny(s, " ,|;\n\t") || len(s) > 5 && strings.EqualFold(s[:5], "data:") {
		return
	}
	for n, part := range strings.FieldsFunc(s, func(c rune) bool { return c == ' ' || c == ',' || c == '|' || c == ';' || c == '\n' || c == '\t' }) {
		if n > 0 && n < 256 && addressShape(part) && strings.Contains(part, ":") {
			w.url(part, false)
		}
	}
}

// url emits the effects of one address. sure: the argument is an address
// whatever it looks like.
func (w *walker) url(s string, sure bool) {
	if sure && !addressShape(s) {
		t := strings.TrimSpace(s)
		// A tool that takes URLs may take paths too.
		if pathShape(t) && !strings.HasPrefix(t, "//") && !strings.HasPrefix(t, "/\\") {
			w.pathAt(w.readRole(), s)
			return
		}
		if !bareAddress(t) && strings.ContainsAny(t, " \n") && !w.spec.Known {
			return
		}
	}
	r := readAddress(s)
	if w.port != "" && len(r.hosts) == 1 && r.hosts[0].host == strings.TrimSpace(s) {
		r.hosts[0].host = w.withPort(r.hosts[0].host)
	}
	if r.own && strings.IndexByte(s, 0) < 0 && w.keepsNames() {
		return
	}
	if r.file {
		if t := strings.TrimSpace(s); r.path != "" && r.path != t {
			w.pathAt(w.readRole(), r.path)
		} else {
			w.pathAt(w.readRole(), t)
		}
	} else {
		for _, a := range r.hosts {
			// An address with room for it may carry a secret out.
			carries := len(s)-len(a.host)-len(a.scheme)-len("://") >= shortSecret
			w.emit(cordon.Effect{Kind: cordon.Connect, Target: a.host, Op: a.scheme, Text: s, Sends: carries})
		}
	}
	if r.script != "" {
		w.inline(r.script, s)
	}
	if r.mail != "" {
		w.emit(cordon.Effect{Kind: cordon.Send, Target: r.mail, Text: s})
	}
	if r.opaque != "" {
		w.opaque(r.opaque, s)
	}
	if r.malformed != "" {
		w.opaque(r.malformed, s)
	}
}

// keepsNames reports a tool whose address in an unknown scheme is the name of
// something that its server keeps, not one that it would dial.
func (w *walker) keepsNames() bool {
	switch w.spec.Group {
	case toolspec.Network, toolspec.Browser, toolspec.Exec:
		return false
	}
	return true
}

// inline lowers an address that holds what it stands for: a script, or a page
// with the addresses that it would load from or send to.
func (w *walker) inline(text, addr string) {
	w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "javascript-page", Text: text, Origin: cordon.OriginLiteral})
	if scheme, _ := splitScheme(dropBreaks(strings.TrimSpace(addr[:min(len(addr), 256)]))); scheme != "data" {
		w.page(piece{text: text, arg: w.pointer()})
	}
	w.loads(text)
}

// loads lowers the addresses that stand in the text of a page.
func (w *walker) loads(text string) {
	for n, rest := 0, text; n < 64; n++ {
		i := strings.Index(rest, "//")
		if i < 0 {
			return
		}
		host := rest[i+2:]
		if end := strings.IndexFunc(host, func(c rune) bool { return c <= ' ' || strings.ContainsRune("\"'`<>()/\\?#,;+", c) }); end >= 0 {
			host = host[:end]
		}
		if hostLike(host) {
			w.url("//"+host, false)
		}
		rest = rest[i+2:]
	}
}

// connectionHosts are the hosts in a database's connection string, in the
// forms "host=a port=1", "Server=a;Database=b" and "user@tcp(a:1)/b". Only an
// argument that is called like one is taken for one.
func connectionHosts(arg, s string) []string {
	var buf [64]byte
	name := string(toolspec.AppendNormal(buf[:0], arg))
	if !strings.HasPrefix(name, "conn") && !strings.Contains(name, "dsn") && !strings.HasSuffix(name, "connectionstring") && !strings.HasSuffix(name, "connstr") {
		return nil
	}
	if _, rest, ok := strings.Cut(s, "@tcp("); ok {
		host, _, _ := strings.Cut(rest, ")")
		return []string{host}
	}
	var hosts []string
	port := ""
	split := func(r rune) bool { return r == ';' || r == ' ' }
	if strings.Contains(s, ";") {
		split = func(r rune) bool { return r == ';' }
	}
	for part := range strings.FieldsFuncSeq(s, split) {
		key, val, _ := strings.Cut(part, "=")
		val = strings.Trim(strings.TrimSpace(val), `'"`)
		switch strings.ToLower(strings.ReplaceAll(strings.TrimSpace(key), " ", "")) {
		case "port":
			port = val
		case "host", "hostaddr", "server", "datasource", "addr", "address", "networkaddress", "hostname":
			val, number, _ := strings.Cut(strings.TrimPrefix(val, "tcp:"), ",")
			if number != "" {
				val += ":" + number
			}
			if val != "" && !strings.HasPrefix(val, "/") && len(hosts) < 16 {
				hosts = append(hosts, val)
			}
		}
	}
	for i, h := range hosts {
		if port != "" && !strings.Contains(h, ":") {
			hosts[i] = h + ":" + port
		}
	}
	return hosts
}

// host lowers a host name; a whole URL in its place is one.
func (w *walker) host(s string) {
	t := strings.TrimSpace(s)
	if t == "" {
		return
	}
	if strings.ContainsAny(t, `/\@?#% `) || hasControl(t) {
		w.url(s, true)
		return
	}
	w.emit(cordon.Effect{Kind: cordon.Connect, Target: w.withPort(t), Op: "tcp"})
}

// withPort adds the port that stands beside the host, where it has none.
func (w *walker) withPort(host string) string {
	switch {
	case w.port == "":
		return host
	case strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]"):
		return host + ":" + w.port
	case strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "["):
		return "[" + host + "]:" + w.port
	case strings.Contains(host, ":"):
		return host
	}
	return host + ":" + w.port
}

// addressShape reports a string that is an address whatever its name.
func addressShape(s string) bool {
	s = strings.TrimFunc(s, func(c rune) bool { return c <= ' ' || c == '<' || c == '"' })
	if len(s) < 4 || len(s) > 64<<10 {
		return false
	}
	if s[0] == '/' || s[0] == '\\' {
		// //host/path: protocol-relative, but //etc/passwd is a path.
		if len(s) > 2 && (s[1] == '/' || s[1] == '\\') && s[2] != '/' {
			host := s[2:]
			if i := strings.IndexAny(host, `/\?#`); i >= 0 {
				host = host[:i]
			}
			return s[0] == '/' && hostLike(host)
		}
		return false
	}
	i := strings.IndexByte(s, ':')
	if i < 0 {
		return false
	}
	if j := strings.IndexAny(s[:i], " \n\"'`()"); j >= 0 {
		return false
	}
	scheme, rest := splitScheme(dropBreaks(s[:min(len(s), 256)]))
	switch scheme {
	case "":
		_, scp := scpHost(s)
		return scp
	case "ext", "fd":
		// Helpers of git, which run what follows.
		return strings.HasPrefix(rest, ":")
	case "jdbc":
		return strings.Contains(rest, ":")
	case "file", "http", "https", "ws", "wss", "ftp", "ftps", "sftp", "ssh", "scp", "git", "data", "javascript", "vbscript", "view-source", "jar", "blob":
		if strings.HasPrefix(rest, " ") {
			return false
		}
		return scheme != "data" || strings.Contains(rest, ",")
	}
	return strings.HasPrefix(rest, "//") && len(rest) > 2 || wrappers[scheme] && strings.Contains(rest, "://")
}

// bareAddress reports host/path without a scheme, for address-like names.
func bareAddress(s string) bool {
	if addressShape(s) {
		return true
	}
	if strings.ContainsAny(s, " \t\n") {
		return false
	}
	host := s
	if i := strings.IndexAny(host, `/\?#`); i >= 0 {
		host = host[:i]
	}
	return hostLike(host[strings.LastIndexByte(host, '@')+1:])
}

// hostLike reports a name with a dot, an address, or a name with a port.
func hostLike(h string) bool {
	if h == "" || len(h) > 512 || strings.ContainsAny(h, " \t\n/'\"") {
		return false
	}
	if h[0] == '[' {
		return true
	}
	name, port, ok := strings.Cut(h, ":")
	if ok && strings.IndexByte(port, ':') < 0 && name != "" && port != "" && strings.Trim(port, "0123456789") == "" {
		return true
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	i := strings.LastIndexByte(strings.TrimRight(name, "."), '.')
	return i > 0 && i < len(name)-1 || !isASCII(name)
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
