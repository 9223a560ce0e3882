package shell

import "strings"

// handleSed reads sed scripts for what they run, read and write.
func handleSed(w *walker, c *inv) {
	var scripts []val
	files := c.ops
	inPlace := false
	hasScript := false
	for _, o := range c.opts {
		switch o.name {
		case "-e":
			scripts = append(scripts, o.v)
			hasScript = true
		case "-f":
			hasScript = true
			w.reads(o.v)
			if body, ok := w.written(o.v); ok {
				scripts = append(scripts, body)
			} else if o.v.s == "-" {
				scripts = append(scripts, c.in)
			} else if body, ok := w.readScript(o.v); ok {
				scripts = append(scripts, body)
			}
		case "-i":
			inPlace = true
		}
	}
	if !hasScript && len(files) > 0 {
		scripts, files = append(scripts, files[0]), files[1:]
	}
	for _, s := range scripts {
		w.sedScript(c, s)
	}
	in := c.in
	for i, f := range files {
		w.reads(f)
		c.took(f)
		if inPlace {
			w.writes(f, "")
		}
		if i == 0 {
			in = w.content(f)
		}
	}
	if inPlace {
		c.print(val{})
		return
	}
	if in.known() && in.s != "" && len(scripts) == 1 {
		if out, ok := sedApply(scripts[0].s, in.s); ok {
			c.print(val{s: out, data: union(in.data, c.out.data), taint: in.taint})
			return
		}
		c.print(val{s: mDecoded, data: union(in.data, c.out.data), taint: in.taint | tDecoded})
		return
	}
	if strings.HasPrefix(in.s, mPath) || strings.Contains(in.s, "/"+mPath) {
		c.print(val{s: somePath(in.s) + "\n", data: in.data})
	}
}

// sedApply performs a script of plain substitutions of literal text.
func sedApply(script, text string) (string, bool) {
	for _, cmd := range strings.Split(script, ";") {
		cmd = strings.TrimSpace(cmd)
		if len(cmd) < 4 || cmd[0] != 's' {
			return "", false
		}
		parts := splitDelim(cmd[2:], cmd[1])
		if len(parts) < 2 {
			return "", false
		}
		if strings.ContainsAny(parts[0], `.*[]^$\+?(){}|`) || strings.ContainsAny(parts[1], `\&`) {
			return "", false
		}
		n := 1
		if len(parts) > 2 && strings.Contains(parts[2], "g") {
			n = -1
		}
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = strings.Replace(lines[i], parts[0], parts[1], n)
		}
		text = strings.Join(lines, "\n")
	}
	return text, true
}

func splitDelim(s string, d byte) []string {
	var out []string
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if s[i+1] != d {
				b.WriteByte(s[i])
			}
			i++
			b.WriteByte(s[i])
			continue
		}
		if s[i] == d && len(out) < 2 {
			out = append(out, b.String())
			b.Reset()
			continue
		}
		b.WriteByte(s[i])
	}
	return append(out, b.String())
}

// sedScript scans one script command by command.
func (w *walker) sedScript(c *inv, v val) {
	s := deactivate(v.s)
	for i := 0; i < len(s) && w.spend(1); {
		i = sedAddress(s, i)
		if i >= len(s) {
			return
		}
		cmd := s[i]
		i++
		switch cmd {
		case 's', 'y':
			i = w.sedSubst(c, s, i, cmd)
		case 'e':
			end := lineEnd(s, i)
			text := strings.TrimSpace(s[i:end])
			if text == "" {
				// The pattern space itself is run.
				w.sedRuns(c)
			} else {
				w.turn(val{s: text, data: v.data, taint: v.taint}, "sed e", stdio{})
			}
			i = end
		case 'r', 'R', 'w', 'W':
			end := lineEnd(s, i)
			name := val{s: strings.TrimSpace(s[i:end])}
			if cmd == 'r' || cmd == 'R' {
				if name.s != "/dev/stdin" {
					w.reads(name)
					c.took(name)
				}
			} else if name.s != "/dev/stdout" && name.s != "/dev/stderr" {
				w.writes(name, "create")
				w.storeAt(name, c.in, false)
			}
			i = end
		case 'a', 'i', 'c':
			i = lineEnd(s, i)
			for i > 0 && i < len(s) && s[i-1] == '\\' {
				i = lineEnd(s, i+1)
			}
		case ':', 'b', 't', 'T', 'l', 'L', 'q', 'Q':
			for i < len(s) && s[i] != ';' && s[i] != '\n' && s[i] != '}' {
				i++
			}
		case '#':
			i = lineEnd(s, i)
		}
	}
}

// sedRuns is "e" without a command: the lines that stand there are run.
func (w *walker) sedRuns(c *inv) {
	w.turn(val{s: orUnknown(c.in.s), data: c.in.data, taint: c.in.taint}, "sed e", stdio{})
}

func orUnknown(s string) string {
	if s == "" {
		return mUnknown
	}
	return s
}

func lineEnd(s string, i int) int {
	if i > len(s) {
		return len(s)
	}
	if j := strings.IndexByte(s[i:], '\n'); j >= 0 {
		return i + j
	}
	return len(s)
}

// sedAddress skips blanks, separators and addresses.
func sedAddress(s string, i int) int {
	for i < len(s) {
		switch c := s[i]; {
		case strings.IndexByte(" \t\n;{},!$0123456789~+", c) >= 0:
			i++
		case c == 'I' || c == 'M':
			if i > 0 && (s[i-1] == '/' || s[i-1] == 'I') {
				i++
				continue
			}
			return i
		case c == '/':
			i = sedSkip(s, i+1, '/')
		case c == '\\' && i+1 < len(s):
			i = sedSkip(s, i+2, s[i+1])
		default:
			return i
		}
	}
	return i
}

func sedSkip(s string, i int, d byte) int {
	class := false
	for ; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == '[':
			class = strings.IndexByte(s[i:], ']') > 0
		case s[i] == ']':
			class = false
		case s[i] == d && !class:
			return i + 1
		}
	}
	return len(s)
}

// sedSubst skips s/…/…/ and acts on its flags.
func (w *walker) sedSubst(c *inv, s string, i int, cmd byte) int {
	if i >= len(s) {
		return i
	}
	d := s[i]
	b := i + 1
	i = sedSkip(s, b, d)
	r := i
	for i < len(s) && s[i] != d {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	repl := ""
	if r <= len(s) && i <= len(s) {
		repl = strings.ReplaceAll(s[min(r, i):i], `\`+string(d), string(d))
	}
	i++
	if cmd == 'y' {
		return i
	}
	for i < len(s) {
		switch s[i] {
		case 'g', 'p', 'i', 'I', 'm', 'M', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			i++
		case 'e':
			w.turn(val{s: orUnknown(strings.ReplaceAll(repl, "&", ""))}, "sed s///e", stdio{})
			if strings.Contains(repl, "&") || strings.Contains(repl, `\1`) {
				w.sedRuns(c)
			}
			i++
		case 'w':
			end := lineEnd(s, i)
			name := val{s: strings.TrimSpace(s[i+1 : end])}
			if name.s != "/dev/stdout" && name.s != "/dev/stderr" {
				w.writes(name, "create")
			}
			return end
		default:
			return i
		}
	}
	return i
}
