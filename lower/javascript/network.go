package javascript

import (
	"net/url"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// networkVerb gives the effects of functions that connect, listen or send.
func (a *analysis) networkVerb(v value, c act, args []set) (set, *conn) {
	switch c.verb {
	case "listen":
		a.emit(cordon.Effect{Kind: cordon.Connect, Op: "listen", Target: a.listenAddress(args)})
		return set{}, nil
	case "base":
		return set{}, a.baseAddress(args)
	case "address":
		return set{}, a.address(arg(args, c.arg))
	case "send":
		k, _ := v.p.(*conn)
		if k != nil && !k.process {
			a.sendOn(k, arg(args, c.arg))
		}
		return set{t: network}, nil
	case "host":
		return set{t: network}, a.connectHost(arg(args, c.arg), c.word)
	case "datagram":
		return set{t: network}, a.datagram(args)
	case "socket":
		k := a.socket(args, c.word)
		return set{t: network}, k
	}
	k := a.connectArgs(v, c, args)
	return set{t: network}, k
}

func (a *analysis) listenAddress(args []set) string {
	for _, s := range args {
		if n, ok := s.number(); ok && n > 0 {
			return "0.0.0.0:" + numberText(n)
		}
		if v, ok := s.single(); ok && v.k == vObject {
			if n, ok := a.member(s, "port").number(); ok {
				return "0.0.0.0:" + numberText(n)
			}
		}
	}
	return "0.0.0.0"
}

// address is the connection that a URL would make, not yet made.
func (a *analysis) address(s set) *conn {
	a.quiet++
	defer func() { a.quiet-- }()
	if v, ok := s.single(); ok {
		if k, ok := v.p.(*conn); ok && v.k == vSym {
			return k
		}
		if k := a.connectURL(v.s, "https", set{}); (v.k == vStr || v.k == vURL) && k != nil {
			return k
		}
	}
	return &conn{op: "https", pattern: true}
}

// baseAddress is the address that a client made here puts before what it is
// asked for.
func (a *analysis) baseAddress(args []set) *conn {
	v, ok := arg(args, 0).single()
	if !ok || v.k != vObject {
		return nil
	}
	for _, name := range []string{"baseURL", "prefixUrl", "baseUrl", "uri"} {
		if t := a.texts(a.member(one(v), name)); len(t) == 1 && t[0] != hole && t[0] != "undefined" {
			return a.connectURL(t[0], "https", set{})
		}
	}
	return nil
}

// connected emits a connection and keeps it.
func (a *analysis) connected(k *conn, data set) *conn {
	e := cordon.Effect{Kind: cordon.Connect, Target: k.target, Op: k.op, Pattern: k.pattern}
	if len(data.src) > 0 {
		e.Sends, e.Data = true, data.src
	} else if data.unk || data.t != 0 {
		e.Sends, e.Data = true, []string{"-"}
	}
	a.emit(e)
	switch k.op {
	case "tcp", "tls", "wss", "udp":
		if len(a.sockets) < maxValues {
			a.sockets = append(a.sockets, e)
		}
	}
	return k
}

func (a *analysis) sendOn(k *conn, data set) {
	d := a.content(data)
	if len(d.src) == 0 && !d.unk {
		return
	}
	a.connected(&conn{target: k.target, op: k.op, pattern: k.pattern}, d)
}

// content is what a value is made of, through arrays and objects.
func (a *analysis) content(s set) set { return a.contentDeep(s, 0) }

func (a *analysis) contentDeep(s set, depth int) set {
	out := set{src: s.src, t: s.t & (file | network), unk: s.unk && len(s.src) > 0}
	if !a.tick() || depth > 4 {
		return out
	}
	for _, v := range s.vs {
		switch v.k {
		case vArray:
			for i, x := range v.p.(*array).items {
				if i > 32 || a.stopped {
					break
				}
				out = out.with(a.contentDeep(x, depth+1))
			}
		case vObject:
			o := v.p.(*object)
			for i, k := range o.order {
				if i > 32 {
					break
				}
				if p, ok := o.props[k]; ok {
					out = out.with(a.contentDeep(p.v, depth+1))
				}
			}
			out = out.with(a.contentDeep(o.rest, depth+1))
		case vSym:
			if v.s == "process.env" || v.s == "process" {
				out = out.with(set{src: []string{"$*"}})
			}
		}
	}
	return out
}

// changeURL is what the URLs in x are after url.name = s, and whether that
// changes where they lead.
func (a *analysis) changeURL(x set, name string, s set) (set, bool) {
	switch name {
	case "href", "host", "hostname", "protocol":
	default:
		return x, false
	}
	out, changed := x, false
	out.vs = nil
	for _, v := range x.vs {
		if v.k != vURL {
			out.add(v)
			continue
		}
		changed = true
		t, ok := s.text()
		if !ok {
			t = hole
		}
		v.s = rewriteURL(v.s, name, t)
		out.add(v)
		if len(a.rewritten) < maxItems {
			a.rewritten = append(a.rewritten, v.s)
		}
	}
	return out.with(s), changed
}

// aliases connects to what other names of a URL object may have made of it.
func (a *analysis) aliases(s, op string, data set) {
	a.doubt++
	for _, t := range a.rewritten {
		if t != s {
			a.connectURL(t, op, data)
		}
	}
	a.doubt--
}

// rewriteURL is a URL with another href, protocol or host.
func rewriteURL(s, name, to string) string {
	if name == "href" {
		return to
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	if name == "protocol" {
		return strings.TrimSuffix(to, ":") + "://" + rest
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	port := ""
	if i := strings.LastIndexByte(rest[:end], ':'); i >= 0 && name == "hostname" {
		port = rest[i:end]
	}
	return scheme + "://" + to + port + rest[end:]
}

// connectArgs reads (url, options), (options) or (url, body).
func (a *analysis) connectArgs(v value, c act, args []set) *conn {
	var data set
	for _, s := range args {
		data = data.with(a.content(s))
	}
	a.socketPath(args)
	target := arg(args, c.arg)
	var last *conn
	known := false
	for _, w := range target.vs {
		switch w.k {
		case vStr, vURL:
			known = true
			if w.k == vURL {
				a.aliases(w.s, c.word, data)
			}
			k := a.connectURL(w.s, c.word, data)
			if k == nil {
				k = a.relative(v, w.s, data)
			}
			last = k
		case vObject:
			known = true
			last = a.connectOptions(v, one(w), c, data)
		case vSym:
			if k, ok := w.p.(*conn); ok {
				known = true
				last = a.connected(k, data)
			}
		case vArray:
			for _, i := range w.p.(*array).items {
				if t, ok := i.text(); ok {
					known = true
					last = a.connectURL(t, c.word, data)
				}
			}
		}
	}
	// (url, options): the options' host counts too.
	if o, ok := arg(args, c.arg+1).single(); ok && o.k == vObject {
		for _, name := range []string{"hostname", "host", "proxy", "baseURL", "prefixUrl", "socketPath"} {
			if p, ok := o.p.(*object).props[name]; ok && len(p.v.vs) > 0 {
				last = a.connectOptions(v, one(o), c, data)
				break
			}
		}
	}
	if target.unk || !known {
		if k, ok := v.p.(*conn); ok && !target.unk && !known {
			return a.connected(k, data)
		}
		return a.connected(&conn{op: c.word, pattern: true}, data)
	}
	return last
}

// relative is an address without a host: that of the client it is a method of.
func (a *analysis) relative(v value, s string, data set) *conn {
	if k, ok := v.p.(*conn); ok {
		return a.connected(&conn{target: k.target, op: k.op, pattern: k.pattern}, data)
	}
	if strings.HasPrefix(s, hole) {
		return a.connected(&conn{op: "https", pattern: true}, data)
	}
	return nil
}

// socketPath notes a connection to a socket in the file system.
func (a *analysis) socketPath(args []set) {
	for _, s := range args {
		for _, w := range s.vs {
			if o, ok := w.p.(*object); ok && w.k == vObject {
				if p, ok := o.props["socketPath"]; ok {
					for _, t := range a.paths(p.v) {
						a.pathEffect(cordon.Effect{Kind: cordon.Write}, t)
					}
				}
			}
		}
	}
}

// connectOptions reads an options object.
func (a *analysis) connectOptions(v value, o set, c act, data set) *conn {
	var last *conn
	for _, name := range []string{"url", "uri", "href", "baseURL", "prefixUrl", "baseUrl", "origin", "connectionString", "servers", "node", "proxy"} {
		t := a.texts(a.member(o, name))
		if len(t) == 1 && t[0] != "undefined" && t[0] != "false" && (t[0] != hole || name == "url" || name == "uri") {
			k := a.connectURL(t[0], c.word, data)
			if k == nil && t[0] == hole {
				k = a.connected(&conn{op: c.word, pattern: true}, data)
			}
			if k == nil && name != "proxy" {
				continue
			}
			last = k
		}
	}
	for _, name := range []string{"hostname", "host", "server", "address", "service"} {
		h := a.member(o, name)
		if n, ok := nullish(h); ok && n {
			continue
		}
		for _, t := range a.texts(h) {
			port := a.portText(a.member(o, "port"))
			last = a.connected(&conn{target: hostPort(t, port), op: c.word, pattern: hasHole(t)}, data)
		}
	}
	if last == nil {
		if k, ok := v.p.(*conn); ok {
			return a.connected(k, data)
		}
		ob, _ := o.single()
		if p, _ := ob.p.(*object); p != nil && (p.open || c.word != "https" && c.word != "http") {
			if p.open {
				return a.connected(&conn{op: c.word, pattern: true}, data)
			}
		}
		if c.word == "http" || c.word == "https" {
			return a.connected(&conn{target: "localhost", op: c.word}, data)
		}
		return a.connected(&conn{target: "localhost", op: c.word}, data)
	}
	return last
}

func (a *analysis) portText(s set) string {
	t := a.texts(s)
	if len(t) != 1 || hasHole(t[0]) || t[0] == "undefined" || t[0] == "null" {
		return ""
	}
	return t[0]
}

func hostPort(host, port string) string {
	if hasHole(host) {
		return ""
	}
	if port == "" {
		return host
	}
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		return "[" + host + "]:" + port
	}
	return host + ":" + port
}

// connectURL emits the connection that an address means; nil where it names
// no host.
func (a *analysis) connectURL(s, op string, data set) *conn {
	scheme, rest, ok := cutScheme(s)
	if !ok {
		return nil
	}
	switch scheme {
	case "data", "blob", "about", "javascript", "mailto":
		return &conn{target: "", op: scheme}
	case "file":
		a.pathEffect(cordon.Effect{Kind: cordon.Read}, fileURL(strings.ReplaceAll(s, hole, "*")))
		return &conn{op: "file"}
	}
	host := rest
	if i := strings.IndexAny(host, "/?#\\"); i >= 0 {
		host = host[:i]
	}
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	k := &conn{target: host, op: firstText(scheme, op)}
	if hasHole(host) {
		name, port, _ := strings.Cut(host, ":")
		if hasHole(port) && !hasHole(name) {
			k.target = name
		} else {
			// Part of the host is put in: data can leave in it.
			k.target, k.pattern = "", true
			data = data.with(set{src: []string{"-"}})
		}
	}
	if strings.Contains(k.target, "%") {
		if u, err := url.PathUnescape(k.target); err == nil {
			k.target = u
		}
	}
	return a.connected(k, data)
}

// cutScheme splits an address the way URL parsers do: control characters and
// blanks around it count for nothing, slashes may be missing or turned round.
func cutScheme(s string) (scheme, rest string, ok bool) {
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, s)
	s = strings.TrimLeft(s, " \x00")
	if strings.HasPrefix(s, "//") {
		return "", s[2:], true
	}
	i := strings.IndexByte(s, ':')
	if i <= 0 {
		return "", "", false
	}
	for j := 0; j < i; j++ {
		c := s[j] | 0x20
		if (c < 'a' || c > 'z') && (j == 0 || !strings.ContainsRune("0123456789+-.", rune(s[j]))) {
			return "", "", false
		}
	}
	scheme = strings.ToLower(s[:i])
	rest = s[i+1:]
	if strings.HasPrefix(rest, "//") || scheme == "http" || scheme == "https" || scheme == "ws" || scheme == "wss" || scheme == "ftp" {
		return scheme, strings.TrimLeft(rest, "/\\"), true
	}
	switch scheme {
	case "data", "blob", "about", "javascript", "mailto", "file":
		return scheme, rest, true
	}
	return "", "", false
}

// connectHost connects to a bare host, or to several.
func (a *analysis) connectHost(s set, op string) *conn {
	var k *conn
	for _, v := range s.vs {
		if v.k == vArray {
			for _, i := range v.p.(*array).items {
				k = a.connectHost(i, op)
			}
			continue
		}
		t, _ := a.toText(v)
		var data set
		if hasHole(t) {
			data.src = mergeSources([]string{"-"}, s.src)
		}
		k = a.connected(&conn{target: hostPort(t, ""), op: op, pattern: hasHole(t)}, data)
	}
	if s.unk || len(s.vs) == 0 {
		k = a.connected(&conn{op: op, pattern: true}, set{src: s.src})
	}
	return k
}

// socket reads what net.connect takes.
func (a *analysis) socket(args []set, op string) *conn {
	first := arg(args, 0)
	a.socketPath(args)
	var k *conn
	for _, v := range first.vs {
		switch v.k {
		case vNum:
			k = a.socketHost(arg(args, 1), numberText(v.n), op)
		case vStr:
			if _, err := parseNumber(v.s); err {
				k = a.socketHost(arg(args, 1), v.s, op)
			} else if strings.HasPrefix(v.s, "/") || strings.HasPrefix(v.s, ".") {
				a.pathEffect(cordon.Effect{Kind: cordon.Write}, v.s)
			} else {
				k = a.socketHost(one(v), a.portText(arg(args, 1)), op)
			}
		case vObject:
			if p, ok := v.p.(*object).props["path"]; ok {
				for _, t := range a.paths(p.v) {
					a.pathEffect(cordon.Effect{Kind: cordon.Write}, t)
				}
				continue
			}
			host := a.member(one(v), "host")
			if n, ok := nullish(host); ok && n {
				host = a.member(one(v), "hostname")
			}
			k = a.socketHost(host, a.portText(a.member(one(v), "port")), op)
		}
	}
	if first.unk || len(first.vs) == 0 {
		k = a.socketHost(join(arg(args, 1), set{unk: len(args) < 2}), "", op)
	}
	return k
}

func (a *analysis) socketHost(host set, port, op string) *conn {
	var k *conn
	for _, v := range host.vs {
		t := "localhost"
		if v.k == vStr {
			t = v.s
		} else if v.k >= vArray && v.k != vFunc {
			t = hole
		}
		k = a.connected(&conn{target: hostPort(t, port), op: op, pattern: hasHole(t)}, set{})
	}
	if host.unk || len(host.vs) == 0 {
		k = a.connected(&conn{op: op, pattern: true}, set{})
	}
	return k
}

// datagram is socket.send(msg[, offset, length], port, host, …).
func (a *analysis) datagram(args []set) *conn {
	data := a.content(arg(args, 0))
	for i := 1; i+1 < len(args); i++ {
		if t, ok := args[i+1].text(); ok {
			return a.connected(&conn{target: hostPort(t, a.portText(args[i])), op: "udp"}, data)
		}
	}
	for _, s := range args[min(1, len(args)):] {
		if s.unk {
			return a.connected(&conn{op: "udp", pattern: true}, data)
		}
	}
	return a.connected(&conn{target: "localhost", op: "udp"}, data)
}
