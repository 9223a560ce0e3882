package python

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// connectURL opens what a URL names.
func connectURL(a *analysis, x *act, c *call, r *outcome) {
	s := a.arg(x, 0, c)
	r.inst.t |= network
	r.inst.src = []string{"-"}
	known := false
	for _, v := range s.vs {
		switch {
		case v.k == vStr || v.k == vBytes || v.k == vPath:
			if a.url(v.s, c, false) {
				r.inst.t = r.inst.t&^network | file
			}
			known = true
		case v.k == vInst:
			// A Request was read when it was made.
			known = true
			in, _ := v.p.(*instance)
			if in != nil && len(in.args) == 0 && !strings.HasSuffix(v.s, "Request") {
				a.connect("", a.scheme(), c, true)
			}
		}
	}
	if !known || s.unk {
		a.connect("", a.scheme(), c, true)
	}
}

// scheme is the protocol of the module whose function is called.
func (a *analysis) scheme() string {
	top, _, _ := strings.Cut(a.sym, ".")
	switch top {
	case "ftplib":
		return "ftp"
	case "smtplib", "aiosmtplib":
		return "smtp"
	case "poplib":
		return "pop3"
	case "imaplib":
		return "imap"
	case "telnetlib":
		return "telnet"
	case "nntplib":
		return "nntp"
	case "socket", "asyncio", "socketserver", "ssl", "multiprocessing", "trio", "anyio", "select", "selectors":
		return "tcp"
	case "paramiko", "fabric", "asyncssh", "plumbum":
		return "ssh"
	case "psycopg2", "psycopg", "asyncpg", "pg8000":
		return "postgresql"
	case "pymysql", "MySQLdb", "mysql", "aiomysql":
		return "mysql"
	case "redis", "pymongo", "pika", "kafka", "ldap3", "memcache":
		return top
	case "websocket", "websockets":
		return "ws"
	case "http", "urllib", "urllib2", "httplib", "requests", "httpx", "aiohttp", "urllib3", "httplib2", "xmlrpc":
		return "https"
	}
	return top
}

// url connects to the host of a URL; true if it was a file.
func (a *analysis) url(raw string, c *call, sends bool) (isFile bool) {
	t := strings.TrimSpace(raw)
	t = strings.TrimPrefix(t, "url:")
	scheme, rest, ok := strings.Cut(t, ":")
	if !ok || strings.ContainsAny(scheme, hole+"/?#") {
		if hasHole(scheme) || !ok && hasHole(t) || t == "" {
			a.connect("", a.scheme(), c, true)
			return false
		}
		// A relative URL goes to the base of a client.
		host := t
		if i := strings.IndexAny(host, "/?#"); i >= 0 {
			host = host[:i]
		}
		if strings.Contains(host, ".") {
			a.connect(host, a.scheme(), c, sends || hasHole(t))
		}
		return false
	}
	scheme = strings.ToLower(scheme)
	switch scheme {
	case "file", "local_file":
		p := strings.TrimPrefix(rest, "//")
		if i := strings.IndexByte(p, '/'); i > 0 {
			p = p[i:]
		}
		if u, err := url.PathUnescape(p); err == nil {
			p = u
		}
		a.path(p, cordon.Effect{Kind: cordon.Read})
		return true
	case "data", "blob", "about", "memory":
		return false
	}
	rest = strings.TrimLeft(rest, `/\`)
	end := strings.IndexAny(rest, `/?#\`)
	host, path := rest, ""
	if end >= 0 {
		host, path = rest[:end], rest[end:]
	}
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	if i := strings.Index(host, hole); i >= 0 {
		// "host:port" with a port that is not known still names the host.
		h, _, hasPort := strings.Cut(host, ":")
		if !hasPort || hasHole(h) {
			a.connect("", scheme, c, true)
			return false
		}
		host = h
	}
	a.connect(host, scheme, c, sends || strings.Contains(path, hole))
	return false
}

// connect reports a connection; an empty host is one that cannot be told.
func (a *analysis) connect(host, op string, c *call, sends bool) {
	if strings.HasPrefix(host, ":") {
		host = "" // a default that stands for a host given elsewhere
	}
	e := cordon.Effect{Kind: cordon.Connect, Target: host, Op: op, Pattern: host == ""}
	for _, s := range c.all() {
		e.Data = mergeSources(e.Data, s.src)
		for _, v := range s.vs {
			switch v.k {
			case vMap:
				for _, m := range v.p.(*mapping).vals {
					e.Data = mergeSources(e.Data, m.src)
				}
			case vSeq:
				for _, m := range v.p.(*sequence).items {
					e.Data = mergeSources(e.Data, m.src)
				}
			case vInst:
				if in, ok := v.p.(*instance); ok {
					e.Data = mergeSources(e.Data, in.src)
				}
			}
		}
	}
	for _, k := range c.kws {
		switch k.name {
		case "data", "json", "files", "content", "body":
			sends = sends || k.val.unk || len(k.val.vs) > 0 && k.val.vs[0].k != vNone
		}
	}
	low := strings.ToLower(a.sym)
	for _, m := range []string{".post", ".put", ".patch", "upload", "sendmail", "send_message"} {
		sends = sends || strings.HasSuffix(low, m)
	}
	e.Sends = sends || len(e.Data) > 0
	a.emit(e)
}

// hostPort writes an address.
func hostPort(host, port set) (string, bool) {
	h, ok := host.text()
	if !ok {
		return "", false
	}
	if p, ok := port.single(); ok && p.k == vInt {
		h += ":" + strconv.FormatInt(p.n, 10)
	} else if t, ok := port.text(); ok && t != "" {
		h += ":" + t
	}
	return h, true
}

// connectHost is a client that takes a host and a port.
func connectHost(a *analysis, x *act, c *call, r *outcome) {
	host, ok := a.argOK(x, 0, c)
	r.inst.t |= network
	r.inst.src = []string{"-"}
	if v, single := host.single(); !ok || single && v.k == vNone {
		return // connected later, by a method
	}
	port, _ := a.argOK(x, 1, c)
	hosts := 0
	for _, v := range host.vs {
		if v.k == vSeq {
			connectAddr(a, x, c, r)
			return
		}
		if v.k != vStr && v.k != vBytes {
			continue
		}
		hosts++
		if strings.Contains(v.s, "://") {
			a.url(v.s, c, false)
			continue
		}
		t, ok := hostPort(one(v), port)
		a.perhaps(host, v, func() { a.connected(t, ok, c, r) })
	}
	if hosts == 0 || host.unk {
		a.connected("", false, c, r)
	}
}

// perhaps: the machine itself as one of several hosts is a default, which the
// caller replaces.
func (a *analysis) perhaps(hosts set, v value, f func()) {
	if loop := v.s == "localhost" || v.s == "127.0.0.1" || v.s == "::1"; loop && (hosts.unk || len(hosts.vs) > 1) {
		a.idle++
		defer func() { a.idle-- }()
	}
	f()
}

func (a *analysis) connected(host string, known bool, c *call, r *outcome) {
	if !known || strings.HasPrefix(host, ":") {
		host = ""
	}
	r.inst.addr = host
	if in, ok := c.recv.p.(*instance); ok && c.recv.k == vInst {
		in.addr = host
		in.t |= network
	}
	d := *c
	a.connect(host, a.scheme(), &d, false)
	if len(a.facts.connected) < 16 {
		a.facts.connected = append(a.facts.connected, host)
	}
}

// connectAddr is a client that takes a (host, port) pair.
func connectAddr(a *analysis, x *act, c *call, r *outcome) {
	s := a.arg(x, 0, c)
	r.inst.t |= network
	pairs := 0
	for _, v := range s.vs {
		switch v.k {
		case vSeq:
			q := v.p.(*sequence)
			pairs++
			if q.fuzzy || len(q.items) < 2 {
				a.connected("", false, c, r)
				continue
			}
			hosts := q.items[0]
			for _, h := range hosts.vs {
				t, ok := hostPort(one(h), q.items[1])
				a.perhaps(hosts, h, func() { a.connected(t, ok, c, r) })
			}
			if hosts.unk || len(hosts.vs) == 0 {
				a.connected("", false, c, r)
			}
		case vStr, vPath, vBytes:
			pairs++
			if strings.Contains(v.s, "docker") || strings.Contains(v.s, "containerd") {
				a.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: v.s})
			}
			a.path(v.s, cordon.Effect{Kind: cordon.Write}) // a socket in the file system
		}
	}
	if strings.HasPrefix(a.sym, "?.") {
		return // a method of that name of who knows what
	}
	if pairs == 0 || s.unk {
		a.connected("", false, c, r)
	}
}

// listen binds a port.
func listen(a *analysis, x *act, c *call, r *outcome) {
	s, ok := a.argOK(x, 0, c)
	r.inst.t |= network
	if !ok {
		return
	}
	for _, v := range s.vs {
		switch v.k {
		case vSeq:
			q := v.p.(*sequence)
			if len(q.items) >= 2 {
				if t, ok := hostPort(q.items[0], q.items[1]); ok {
					a.bound(t)
				}
			}
		case vStr:
			if len(x.args) > 1 {
				t, _ := hostPort(one(v), a.arg(x, 1, c))
				a.bound(t)
			} else if !hasHole(v.s) {
				a.path(v.s, cordon.Effect{Kind: cordon.Write, Op: "create"})
			}
		}
	}
}

func (a *analysis) bound(addr string) {
	if strings.HasPrefix(addr, ":") {
		addr = "0.0.0.0" + addr
	}
	a.emit(cordon.Effect{Kind: cordon.Connect, Target: addr, Op: "listen"})
}

// rawSocket: packets past the rules for connections.
func rawSocket(a *analysis, x *act, c *call, _ *outcome) {
	for i := range x.args {
		for _, v := range a.arg(x, i, c).vs {
			switch v.s {
			case "socket.AF_PACKET", "socket.SOCK_RAW", "socket.PF_PACKET", "socket.AF_VSOCK", "socket.AF_ALG", "socket.AF_NETLINK":
				a.opaque("opens a raw socket", cordon.OriginLiteral, false)
			}
		}
	}
}

// send gives data to a connection that was made before.
func send(a *analysis, x *act, c *call, r *outcome) {
	in, ok := c.recv.p.(*instance)
	s := a.arg(x, 0, c)
	if !ok || in.t&network == 0 {
		return
	}
	e := cordon.Effect{Kind: cordon.Connect, Target: in.addr, Op: a.scheme(), Sends: true, Pattern: in.addr == ""}
	e.Data = mergeSources(nil, s.src)
	a.emit(e)
	r.is(unknown)
}
