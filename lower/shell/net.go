package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// connectURL emits the connection that a URL stands for; a text without a
// scheme is taken as a host with a path.
func (w *walker) connectURL(v val, data []string, sends bool) {
	s := v.s
	if s == "" {
		return
	}
	scheme := ""
	if i := strings.Index(s, "://"); i > 0 {
		scheme, s = strings.ToLower(s[:i]), s[i+3:]
	} else {
		s = strings.TrimPrefix(s, "//")
	}
	if scheme == "file" {
		if i := strings.IndexByte(s, '/'); i >= 0 {
			w.reads(val{s: s[i:], data: v.data, taint: v.taint})
		}
		return
	}
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		s = s[:i]
	}
	rest := s
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		rest = s[i+1:]
	}
	// A backslash ends the host to some readers and not to others: both.
	if i := strings.IndexByte(rest, '\\'); i >= 0 {
		w.connect(val{s: rest[:i]}, scheme, data, sends)
		rest = rest[i+1:]
	} else if i := strings.IndexByte(s, '\\'); i >= 0 {
		w.connect(val{s: s[:i]}, scheme, data, sends)
	}
	more := v.data
	w.connect(val{s: rest, data: more, taint: v.taint}, scheme, data, sends || secretData(more))
}

func secretData(data []string) bool {
	for _, d := range data {
		if d != "" && (d[0] != '$' || secretName(d[1:])) {
			return true
		}
	}
	return false
}

// connect emits a connection to a host, "host" or "host:port".
func (w *walker) connect(host val, op string, data []string, sends bool) {
	h := strings.TrimSpace(host.s)
	if h == "" {
		return
	}
	h = strings.TrimSuffix(strings.ToLower(h), ".")
	t := w.hostText(val{s: h})
	w.connectPipe(t, op)
	e := cordon.Effect{Kind: cordon.Connect, Target: t, Op: op, Sends: sends || len(data) > 0, Data: union(data, host.data)}
	if !e.Sends {
		e.Data = nil
	}
	if startsUnknown(h) && bare(h) {
		e.Target, e.Doubtful, e.Pattern = "*", true, true
	} else if hasMark(h) {
		e.Pattern = true
	}
	w.emit(e)
}

// urls of an operand may be a list in braces or brackets, as curl reads them.
func curlURLs(v val) []val {
	s := v.s
	i, j := strings.IndexByte(s, '{'), strings.IndexByte(s, '}')
	if i < 0 || j < i {
		return []val{v}
	}
	var out []val
	for _, alt := range strings.Split(s[i+1:j], ",") {
		out = append(out, val{s: s[:i] + alt + s[j+1:], data: v.data, taint: v.taint})
	}
	return out
}

// handleCurl: what is fetched, sent, written, and by way of whom.
func handleCurl(w *walker, c *inv) {
	var data []string
	sends, upload := false, false
	urls := append([]val(nil), c.ops...)
	for _, o := range c.opts {
		v := o.v
		switch o.name {
		case "-d", "--data-binary", "--data-urlencode", "--json", "--url-query":
			sends = true
			data = union(data, w.curlData(c, o.name, v))
		case "--data-raw", "--data-ascii":
			sends = true
			data = union(data, v.data)
		case "-F", "--form-string":
			sends = true
			data = union(data, w.curlForm(v))
		case "-T":
			sends, upload = true, true
			data = union(data, w.sent(c, v))
		case "-H", "--proxy-header", "-A", "-e", "-u", "-b", "-U", "--oauth2-bearer":
			data = union(data, w.curlHeader(c, o.name, v))
			if len(v.data) > 0 && secretData(v.data) {
				sends = true
			}
		case "-x", "--preproxy", "--socks5", "--socks4", "--socks4a", "--socks5-hostname", "--proxy1.0":
			w.connectURL(v, nil, false)
		case "--doh-url":
			w.connectURL(v, nil, false)
		case "--dns-servers":
			w.connect(v, "dns", nil, false)
		case "--connect-to":
			w.remapped(v, 2)
		case "--resolve":
			w.remapped(v, 2)
		case "--url":
			if p, ok := strings.CutPrefix(v.s, "@"); ok {
				w.reads(val{s: p})
			} else {
				urls = append(urls, v)
			}
		case "-K":
			w.curlConfig(c, v)
		case "--unix-socket", "--abstract-unix-socket":
			w.unixSocket(v)
		case "-o", "--output-dir", "-D", "-c", "--trace", "--trace-ascii", "--stderr", "--libcurl", "--hsts", "--alt-svc", "--etag-save":
			if v.s != "-" {
				w.writes(v, "create")
			}
			if o.name == "-o" {
				w.storeAt(v, val{s: mNet, taint: tNet}, false)
			}
		case "--cacert", "-E", "--key", "--netrc-file", "--etag-compare", "--proxy-cert", "--proxy-key":
			w.reads(v)
			data = union(data, v.data)
		case "-n", "--netrc-optional":
			w.reads(val{s: w.homePath(".netrc")})
		}
	}
	_ = upload
	for _, u := range urls {
		for _, x := range curlURLs(u) {
			w.connectURL(x, data, sends)
		}
		if strings.HasPrefix(strings.ToLower(u.s), "telnet:") || strings.HasPrefix(strings.ToLower(u.s), "gopher:") {
			w.connectURL(u, []string{"-"}, true)
		}
	}
	if c.has("-O", "-J") {
		for _, u := range urls {
			name := u.s[strings.LastIndexByte(u.s, '/')+1:]
			name, _, _ = strings.Cut(name, "?")
			w.writes(val{s: name}, "create")
			w.storeAt(val{s: name}, val{s: mNet, taint: tNet}, false)
		}
	}
	c.print(val{s: mNet, data: data, taint: tNet})
	if allFiles(urls) {
		c.print(val{s: mFile, data: c.out.data, taint: tFile})
	}
}

func allFiles(urls []val) bool {
	for _, u := range urls {
		if !strings.HasPrefix(strings.ToLower(u.s), "file:") {
			return false
		}
	}
	return len(urls) > 0
}

func (w *walker) homePath(rest string) string {
	if w.env.Home == "" {
		return "~/" + rest
	}
	return w.env.Home + "/" + rest
}

// sent reads a file that is sent, or the standard input.
func (w *walker) sent(c *inv, v val) []string {
	if v.s == "-" || v.s == "." || v.s == "/dev/stdin" {
		if c.io.in == nil {
			return []string{"-"}
		}
		if len(c.in.data) > 0 {
			return c.in.data
		}
		if c.in.known() {
			return nil
		}
		return []string{"-"}
	}
	w.reads(v)
	if cv, ok := w.written(v); ok {
		return union(cv.data, []string{dropMarks(v.s)})
	}
	t, _ := globTarget(v.s)
	return union(v.data, []string{t})
}

func (w *walker) curlData(c *inv, opt string, v val) []string {
	if p, ok := strings.CutPrefix(v.s, "@"); ok {
		return w.sent(c, val{s: p, data: v.data})
	}
	if opt == "--data-urlencode" || opt == "--url-query" {
		if i := strings.IndexByte(v.s, '@'); i > 0 && !strings.Contains(v.s[:i], "=") && !strings.ContainsAny(v.s[:i], " :/") {
			return w.sent(c, val{s: v.s[i+1:], data: v.data})
		}
	}
	return v.data
}

func (w *walker) curlForm(v val) []string {
	_, value, ok := strings.Cut(v.s, "=")
	if ok && value != "" && (value[0] == '@' || value[0] == '<') {
		p, _, _ := strings.Cut(value[1:], ";")
		for _, f := range strings.Split(p, ",") {
			w.reads(val{s: strings.Trim(f, `"`)})
		}
		return union(v.data, []string{p})
	}
	return v.data
}

func (w *walker) curlHeader(c *inv, opt string, v val) []string {
	if p, ok := strings.CutPrefix(v.s, "@"); ok && (opt == "-H" || opt == "--proxy-header") {
		return w.sent(c, val{s: p})
	}
	if opt == "-b" && !strings.Contains(v.s, "=") {
		w.reads(v)
	}
	return v.data
}

// remapped is "--resolve HOST:PORT:ADDR" or "--connect-to H:P:HOST2:PORT2".
func (w *walker) remapped(v val, n int) {
	f := strings.SplitN(v.s, ":", n+1)
	if len(f) <= n {
		return
	}
	for _, addr := range strings.Split(f[n], ",") {
		w.connect(val{s: strings.TrimPrefix(addr, "+")}, "", nil, false)
	}
}

func (w *walker) unixSocket(v val) {
	if strings.Contains(v.s, "docker.sock") || strings.Contains(v.s, "containerd.sock") || strings.Contains(v.s, "podman.sock") {
		w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: v.s})
		return
	}
	w.emit(cordon.Effect{Kind: cordon.Connect, Target: "unix:" + dropMarks(v.s), Op: "unix", Sends: true, Doubtful: true})
}

// curlConfig reads "-K FILE": one option a line.
func (w *walker) curlConfig(c *inv, v val) {
	var text val
	switch {
	case v.s == "-" && c.io.in != nil:
		text = *c.io.in
	case v.s == "-":
		return
	default:
		w.reads(v)
		t, ok := w.written(v)
		if !ok {
			if t, ok = w.readScript(v); !ok {
				w.emit(cordon.Effect{Kind: cordon.Opaque, Origin: cordon.OriginFile, Doubtful: true, Reason: "curl takes its options from a file", Text: dropMarks(v.s)})
				return
			}
		}
		text = t
	}
	args := []val{{s: "curl"}}
	for _, line := range strings.Split(text.s, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value := line, ""
		if i := strings.IndexAny(line, " =:\t"); i > 0 {
			key, value = line[:i], strings.Trim(strings.TrimLeft(line[i:], " =:\t"), `"`)
		}
		if !strings.HasPrefix(key, "-") {
			key = "--" + key
		}
		args = append(args, val{s: key})
		if value != "" {
			args = append(args, val{s: value, data: text.data, taint: text.taint})
		}
	}
	if len(args) > 1 && c.turnsLeft(w) {
		w.sub(args, stdio{}, "curl -K")
	}
}

func (c *inv) turnsLeft(w *walker) bool { return w.turns < 4 }

func handleWget(w *walker, c *inv) {
	var data []string
	sends := false
	out := val{}
	urls := append([]val(nil), c.ops...)
	for _, o := range c.opts {
		switch o.name {
		case "--post-file", "--body-file":
			sends = true
			data = union(data, w.sent(c, o.v))
		case "--post-data", "--body-data":
			sends = true
			data = union(data, o.v.data)
		case "--header", "-U", "--user", "--password", "--referer":
			data = union(data, o.v.data)
		case "-O", "-o", "-a", "-P":
			if o.v.s != "-" {
				w.writes(o.v, "create")
			}
			if o.name == "-O" {
				out = o.v
			}
		case "-i":
			w.reads(o.v)
			body := w.content(o.v)
			if o.v.s == "-" {
				body = c.in
			}
			if body.known() {
				for _, u := range strings.Fields(body.s) {
					urls = append(urls, val{s: u})
				}
			} else {
				data = union(data, body.data)
				w.emit(cordon.Effect{Kind: cordon.Connect, Target: "*", Pattern: true, Doubtful: true, Sends: len(body.data) > 0, Data: body.data})
			}
		case "-e":
			if k, v, ok := strings.Cut(o.v.s, "="); ok {
				k = strings.TrimSpace(k)
				if strings.HasSuffix(k, "_proxy") {
					w.connectURL(val{s: strings.TrimSpace(v)}, nil, false)
				} else if k == "use_askpass" || k == "use-askpass" {
					w.sub([]val{{s: strings.TrimSpace(v)}}, stdio{}, "wget -e")
				} else if k == "post_file" || k == "output_document" {
					w.reads(val{s: strings.TrimSpace(v)})
				}
			}
		case "--use-askpass":
			w.sub([]val{o.v}, stdio{}, "wget --use-askpass")
		case "--config", "--load-cookies", "--certificate", "--private-key", "--ca-certificate":
			w.reads(o.v)
		case "--save-cookies", "--warc-file", "--rejected-log":
			w.writes(o.v, "create")
		}
	}
	sends = sends || secretData(data)
	for _, u := range urls {
		w.connectURL(u, data, sends)
		f := out
		if f.s == "" {
			name := u.s[strings.LastIndexByte(u.s, '/')+1:]
			name, _, _ = strings.Cut(name, "?")
			f = val{s: name}
		}
		if f.s != "-" && f.s != "" {
			w.storeAt(f, val{s: mNet, taint: tNet}, false)
		}
	}
	c.print(val{})
	if out.s == "-" {
		c.print(val{s: mNet, taint: tNet, data: data})
	}
}

// handleSSH: the connection, what options run here, and forwarding.
func handleSSH(w *walker, c *inv) {
	w.sshOptions(c)
	ops := c.ops
	if len(ops) == 0 {
		return
	}
	host := ops[0]
	if i := strings.Index(host.s, "ssh://"); i == 0 {
		w.connectURL(host, nil, false)
	} else {
		h := host.s[strings.LastIndexByte(host.s, '@')+1:]
		if p, ok := c.get("-p"); ok {
			h += ":" + p.s
		}
		var data []string
		for _, a := range ops[1:] {
			data = union(data, a.data)
		}
		data = union(data, c.in.data)
		if c.io.in != nil && len(c.in.data) == 0 && !c.in.known() {
			data = append(data, "-")
		}
		w.connect(val{s: h, taint: host.taint}, "ssh", data, len(data) > 0)
		if c.has("-R") && w.pipe != nil {
			w.pipe.op = "ssh"
		}
	}
	c.print(val{s: mNet, taint: tNet})
}

// sshOptions reads the options that run something on this side.
func (w *walker) sshOptions(c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "-o":
			k, v, ok := strings.Cut(o.v.s, "=")
			if !ok {
				k, v, _ = strings.Cut(strings.TrimSpace(o.v.s), " ")
			}
			v = strings.Trim(strings.TrimSpace(v), `"`)
			switch strings.ToLower(strings.TrimSpace(k)) {
			case "proxycommand", "localcommand", "knownhostscommand":
				if v != "none" {
					w.turn(val{s: v, data: o.v.data, taint: o.v.taint}, c.name+" "+strings.TrimSpace(k), stdio{})
				}
			case "proxyjump":
				w.connect(val{s: v[strings.LastIndexByte(v, '@')+1:]}, "ssh", nil, false)
			case "hostname":
				w.connect(val{s: v}, "ssh", nil, false)
			case "identityfile", "certificatefile":
				// A key is used to log in, not read out.
			case "include", "controlpath":
			case "pkcs11provider", "securitykeyprovider":
				w.opaque("loads native code", cordon.OriginFile, v)
			}
		case "-J":
			for _, h := range strings.Split(o.v.s, ",") {
				w.connect(val{s: h[strings.LastIndexByte(h, '@')+1:]}, "ssh", nil, false)
			}
		case "-S":
			if c.name == "scp" || c.name == "sftp" {
				w.turn(o.v, c.name+" -S", stdio{})
			}
		case "-D":
			if c.name == "sftp" {
				w.turn(o.v, "sftp -D", stdio{})
			}
		case "-F":
			if o.v.s != "none" {
				w.reads(o.v)
				if body, ok := w.written(o.v); ok {
					w.sshConfig(body)
				}
			}
		case "-I":
			w.opaque("loads native code", cordon.OriginFile, o.v.s)
		case "-E":
			w.writes(o.v, "append")
		}
	}
}

// handleKeygen: -y, -e and -i print a key; the rest looks at one, changes it
// or makes a new one.
func handleKeygen(w *walker, c *inv) {
	w.optionRoles(c)
	f, has := c.get("-f")
	switch {
	case c.has("-y", "-e", "-i"):
		if !has {
			f.s = w.homePath(".ssh/id_rsa")
		}
		w.reads(f)
		c.took(f)
	case c.has("-l", "-B", "-F", "-Y", "-s", "-Q", "-L", "-k"):
		if has {
			w.lists(f, false)
		}
	case has:
		w.writes(f, "")
	case c.has("-R", "-H"):
		w.writes(val{s: w.homePath(".ssh/known_hosts")}, "")
	default:
		w.writes(val{s: w.homePath(".ssh/id_ed25519")}, "create")
	}
}

func (w *walker) sshConfig(body val) {
	for _, line := range strings.Split(body.s, "\n") {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(k) {
		case "proxycommand", "localcommand", "knownhostscommand":
			w.turn(val{s: strings.TrimSpace(v)}, "ssh -F", stdio{})
		}
	}
}

// remoteSpec splits "user@host:path"; ok is false for a local path.
func remoteSpec(s string) (host, path string, ok bool) {
	if strings.HasPrefix(s, "rsync://") || strings.HasPrefix(s, "scp://") || strings.HasPrefix(s, "sftp://") {
		i := strings.Index(s, "://") + 3
		j := strings.IndexByte(s[i:], '/')
		if j < 0 {
			j = len(s) - i
		}
		return s[i : i+j][strings.LastIndexByte(s[i:i+j], '@')+1:], s[i+j:], true
	}
	i := strings.IndexByte(s, ':')
	if i <= 0 || strings.IndexByte(s[:i], '/') >= 0 {
		return "", "", false
	}
	h := s[:i]
	return h[strings.LastIndexByte(h, '@')+1:], strings.TrimPrefix(s[i+1:], ":"), true
}

// handleCopyNet is scp and rsync: local operands are read or written, remote
// ones connected to.
func handleCopyNet(w *walker, c *inv) {
	if c.name != "rsync" {
		w.sshOptions(c)
	} else {
		for _, o := range c.opts {
			switch o.name {
			case "-e":
				w.turn(o.v, "rsync -e", stdio{})
			case "--files-from", "--exclude-from", "--include-from", "--password-file":
				w.reads(o.v)
			case "--log-file", "--backup-dir", "-T", "--partial-dir", "--write-batch":
				w.writes(o.v, "")
			case "--rsync-path":
				if !remoteIn(c.ops) {
					w.turn(o.v, "rsync --rsync-path", stdio{})
				}
			case "--link-dest", "--compare-dest", "--copy-dest":
				w.readsAll(o.v)
			}
		}
	}
	if len(c.ops) == 0 {
		return
	}
	if c.name == "sftp" {
		h, _, _ := strings.Cut(strings.TrimPrefix(c.ops[0].s, "sftp://"), ":")
		w.connect(val{s: h[strings.LastIndexByte(h, '@')+1:]}, "ssh", c.in.data, c.io.in != nil)
		w.ftpCommands(c, c.in)
		if b, ok := c.get("-b"); ok && b.s != "-" {
			w.reads(b)
		}
		return
	}
	var data []string
	last := len(c.ops) - 1
	if len(c.ops) == 1 {
		last = 1
	}
	for i, v := range c.ops {
		if _, _, remote := remoteSpec(v.s); remote || i == last {
			continue
		}
		w.readsAll(v)
		t, _ := globTarget(v.s)
		data = append(data, t)
	}
	for i, v := range c.ops {
		h, _, remote := remoteSpec(v.s)
		switch {
		case remote && i == last:
			w.connect(val{s: h, data: v.data, taint: v.taint}, "ssh", data, true)
		case remote:
			w.connect(val{s: h, data: v.data, taint: v.taint}, "ssh", nil, false)
		case i == last:
			w.writes(v, "create")
			if c.has("--delete", "--del", "--delete-after", "--delete-before", "--delete-excluded", "--delete-during") {
				w.deletes(v, true)
			}
			if c.has("--remove-source-files") {
				w.deletes(c.ops[0], true)
			}
		}
	}
}

func remoteIn(ops []val) bool {
	for _, v := range ops {
		if _, _, ok := remoteSpec(v.s); ok {
			return true
		}
	}
	return false
}

// handleNetcat: connection, listening, and who gets a command interpreter.
func handleNetcat(w *walker, c *inv) {
	var host, port string
	nums := 0
	for _, v := range c.ops {
		if isDigits(v.s) || strings.Trim(v.s, "0123456789-") == "" {
			port = v.s
			nums++
		} else if host == "" {
			host = w.hostText(v)
		} else if port == "" {
			port = v.s
		}
	}
	if host == "" && nums > 1 {
		host = c.ops[0].s
	}
	listen := c.has("-l", "--listen")
	runs := ""
	for _, o := range c.opts {
		switch o.name {
		case "-e", "--exec", "-c", "--sh-exec", "--lua-exec":
			if o.has {
				runs = o.v.s
			}
		case "--proxy", "-x":
			w.connect(o.v, "", nil, false)
		case "-o", "--output":
			w.writes(o.v, "create")
		case "-U", "--unixsock":
			return
		}
	}
	addr := host
	if port != "" {
		addr += ":" + port
	}
	if runs != "" {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: addr, Op: "reverse_shell", Sends: true, Text: runs})
		w.turn(val{s: runs}, c.name+" -e", stdio{})
	}
	if listen {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: addr, Op: "listen", Sends: c.io.in != nil, Data: c.in.data})
		w.connectPipe(addr, "listen")
		c.print(val{s: mNet, taint: tNet})
		return
	}
	if host == "" {
		return
	}
	scan := c.has("-z")
	w.connectPipe(addr, "tcp")
	data := c.in.data
	if c.io.in != nil && len(data) == 0 && !c.in.known() {
		data = []string{"-"}
	}
	w.emit(cordon.Effect{Kind: cordon.Connect, Target: addr, Op: "tcp", Sends: c.io.in != nil && !scan, Data: data})
	c.print(val{s: mNet, taint: tNet})
}

// handleSocat reads both addresses.
func handleSocat(w *walker, c *inv) {
	runs, remote := "", ""
	for _, v := range c.ops {
		kind, rest, _ := strings.Cut(v.s, ":")
		first, _, _ := strings.Cut(rest, ",")
		switch k := strings.ToUpper(kind); {
		case k == "EXEC" || k == "SYSTEM" || k == "SHELL":
			runs = first
			w.turn(val{s: strings.Trim(first, `'"`)}, "socat "+kind, stdio{})
		case strings.Contains(k, "LISTEN") || strings.HasSuffix(k, "-L") || strings.Contains(k, "RECV") && !strings.Contains(k, "SENDTO"):
			remote = ":" + first
			w.emit(cordon.Effect{Kind: cordon.Connect, Target: ":" + first, Op: "listen"})
		case strings.HasPrefix(k, "TCP") || strings.HasPrefix(k, "UDP") || strings.HasPrefix(k, "OPENSSL") || strings.HasPrefix(k, "SSL") || strings.HasPrefix(k, "SCTP"):
			remote = first
			w.connect(val{s: first}, "tcp", union(c.in.data, c.out.data), true)
		case strings.HasPrefix(k, "SOCKS") || k == "PROXY" || strings.HasPrefix(k, "PROXY-"):
			host, _, _ := strings.Cut(rest, ":")
			remote = host
			w.connect(val{s: host}, "socks", nil, true)
		case k == "FILE" || k == "OPEN" || k == "GOPEN" || k == "READ":
			w.reads(val{s: first})
			c.took(val{s: first})
		case k == "CREATE" || k == "CREAT":
			w.writes(val{s: first}, "create")
		case strings.HasPrefix(k, "UNIX"):
			w.unixSocket(val{s: first})
		case strings.HasPrefix(v.s, "/") || strings.HasPrefix(v.s, "~") || strings.HasPrefix(v.s, "."):
			w.reads(v)
			c.took(v)
		}
	}
	if runs != "" && remote != "" {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: remote, Op: "reverse_shell", Sends: true, Text: runs})
	}
	if c.io.in != nil && remote != "" {
		w.connectPipe(remote, "tcp")
	}
	if len(c.out.data) > 0 && remote != "" {
		w.connect(val{s: remote}, "tcp", c.out.data, true)
	}
	c.print(val{s: mNet, taint: tNet})
}

// handleDNS: names are looked up; a name made of data carries it out.
func handleDNS(w *walker, c *inv) {
	for _, v := range c.ops {
		switch {
		case strings.HasPrefix(v.s, "@"):
			w.connect(val{s: v.s[1:]}, "dns", nil, false)
		case strings.HasPrefix(v.s, "+"):
		default:
			if isType(v.s) {
				continue
			}
			sends := secretData(v.data) || hasMark(v.s)
			var data []string
			if sends {
				data = v.data
				if len(data) == 0 {
					data = []string{"-"}
				}
			}
			w.connect(val{s: v.s}, "dns", data, sends)
		}
	}
	if f, ok := c.get("-f"); ok && c.name == "dig" {
		w.reads(f)
		t, _ := globTarget(f.s)
		w.connect(val{s: mUnknown}, "dns", []string{t}, true)
	}
}

func isType(s string) bool {
	switch strings.ToUpper(s) {
	case "A", "AAAA", "MX", "TXT", "NS", "ANY", "CNAME", "SOA", "PTR", "SRV", "CAA", "IN", "CH", "AXFR":
		return true
	}
	return false
}

// handleOpenSSL: connections, decoding, and files by option.
func handleOpenSSL(w *walker, c *inv) {
	if len(c.args) == 0 {
		return
	}
	sub := c.args[0].s
	decode := sub == "base64" || sub == "enc" || strings.HasPrefix(sub, "aes") || strings.HasPrefix(sub, "des") || sub == "zlib"
	dec := false
	in := c.in
	args := c.args[1:]
	for i := 0; i < len(args); i++ {
		s := args[i].s
		var v val
		if i+1 < len(args) {
			v = args[i+1]
		}
		switch strings.TrimPrefix(s, "-") {
		case "d", "decrypt":
			dec = decode
		case "in":
			w.reads(v)
			c.took(v)
			in = w.content(v)
			i++
		case "inkey", "key", "cert", "CA", "CAfile", "config", "keyfile", "certfile", "signkey", "CAkey", "kfile", "rand", "sess_in":
			if strings.HasPrefix(s, "-") {
				w.reads(v)
				i++
			}
		case "out", "keyout", "writerand", "sess_out":
			if strings.HasPrefix(s, "-") {
				w.writes(v, "create")
				i++
			}
		case "pass", "passin", "passout":
			if p, ok := strings.CutPrefix(v.s, "file:"); ok {
				w.reads(val{s: p})
			}
			i++
		case "connect", "host", "proxy":
			if sub == "s_client" || sub == "s_time" || sub == "ocsp" {
				data := c.in.data
				if c.io.in != nil && len(data) == 0 && !c.in.known() {
					data = []string{"-"}
				}
				w.connect(v, "tls", data, c.io.in != nil)
				i++
			}
		case "subj", "addext":
			i++ // "/CN=name"
		case "engine", "provider", "provider-path":
			if strings.ContainsAny(v.s, "/.") {
				w.opaque("loads native code", cordon.OriginFile, v.s)
			}
			i++
		default:
			if sub == "s_client" && !strings.HasPrefix(s, "-") && (i == 0 || !strings.HasPrefix(args[i-1].s, "-") || i == len(args)-1) && strings.Contains(s, ".") {
				w.connect(args[i], "tls", c.in.data, c.io.in != nil)
			} else if !strings.HasPrefix(s, "-") && pathLike(s) {
				w.reads(args[i])
				c.took(args[i])
			}
		}
	}
	if sub == "s_server" {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: "", Op: "listen"})
	}
	if sub == "s_client" || sub == "s_server" {
		c.print(val{s: mNet, taint: tNet})
		return
	}
	if dec {
		out := in
		if t, ok := decodeBase64(out.s); ok && out.s != "" && out.known() && (sub == "base64" || hasArg(args, "-base64") || hasArg(args, "-a")) && !hasArg(args, "-k") && !hasArg(args, "-pass") {
			c.print(val{s: t, data: out.data, taint: out.taint | tDecoded})
			return
		}
		c.print(val{s: mDecoded, taint: tDecoded, data: union(c.in.data, c.out.data)})
	}
}

func hasArg(args []val, s string) bool {
	for _, a := range args {
		if a.s == s {
			return true
		}
	}
	return false
}
