package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/cordon-sandbox/cordon"
)

// redirs applies redirections: the input and output that the command gets,
// and what is to be done with its output once it ran.
func (w *walker) redirs(rs []*syntax.Redirect, io stdio, noCommand bool) (stdio, func()) {
	if len(rs) == 0 {
		return io, func() {}
	}
	var after []func()
	for _, r := range rs {
		io = w.redirect(r, io, noCommand, &after)
	}
	return io, func() {
		for _, f := range after {
			f()
		}
	}
}

func (w *walker) redirect(r *syntax.Redirect, io stdio, noCommand bool, after *[]func()) stdio {
	fd := ""
	if r.N != nil {
		fd = r.N.Value
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		v := w.heredoc(r)
		w.tells(v.data)
		return w.setInput(io, fd, v, val{})
	case syntax.WordHdoc:
		v := w.single(r.Word)
		w.tells(v.data)
		v.s += "\n"
		return w.setInput(io, fd, v, val{})
	}
	target := w.redirTarget(r.Word)
	switch r.Op {
	case syntax.RdrIn, syntax.RdrInOut:
		if w.socket(target, fd, &io, r.Op == syntax.RdrInOut, after) {
			return io
		}
		if r.Op == syntax.RdrInOut {
			w.writes(target, "append")
		}
		w.reads(target)
		return w.setInput(io, fd, w.content(target), target)
	case syntax.DplIn, syntax.DplOut:
		return w.dup(r, target, fd, io, after)
	}
	if w.socket(target, fd, &io, true, after) {
		return io
	}
	op := "create"
	switch r.Op {
	case syntax.AppOut, syntax.AppAll, syntax.AppClob, syntax.AppAllClob:
		op = "append"
	default:
		if noCommand {
			op = "truncate"
		}
	}
	w.writes(target, op)
	if fd == "" || fd == "1" {
		return w.setOutput(io, target, op == "append", after)
	}
	w.setFD(fd, val{s: mUnset})
	return io
}

func (w *walker) redirTarget(word *syntax.Word) val {
	f := fields{w: w, split: true}
	f.parts(word.Parts, false, true)
	f.flush()
	if len(f.out) == 1 {
		return f.out[0]
	}
	return joinVals(f.out, " ")
}

func (w *walker) setFD(fd string, v val) {
	if fd == "" {
		return
	}
	if w.fds == nil {
		w.fds = make(map[string]val)
	}
	w.fds[fd] = v
}

func (w *walker) setInput(io stdio, fd string, v, from val) stdio {
	if fd == "" || fd == "0" {
		io.in, io.inPath = &v, from
	}
	w.setFD(fd, v)
	return io
}

func (w *walker) setOutput(io stdio, target val, add bool, after *[]func()) stdio {
	out := &sink{}
	io.out = out
	*after = append(*after, func() { w.storeAt(target, out.v, add) })
	return io
}

// socket recognises bash's /dev/tcp and /dev/udp.
func (w *walker) socket(target val, fd string, io *stdio, out bool, after *[]func()) bool {
	proto, rest, ok := "", "", false
	for _, p := range [...]string{"tcp", "udp"} {
		if rest, ok = strings.CutPrefix(target.s, "/dev/"+p+"/"); ok {
			proto = p
			break
		}
	}
	if !ok {
		return false
	}
	host, port, _ := strings.Cut(rest, "/")
	addr := w.hostText(val{s: host})
	if port != "" {
		addr += ":" + dropMarks(port)
	}
	w.connectPipe(addr, proto)
	if fd != "" && fd != "0" && fd != "1" && fd != "2" {
		if w.socks == nil {
			w.socks = make(map[string]string)
		}
		w.socks[fd] = addr
	}
	io.sock = addr
	if !out {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: addr, Op: proto})
		io.in = &val{s: mNet, taint: tNet}
		return true
	}
	s := &sink{}
	if fd == "" || fd == "1" {
		io.out = s
	}
	*after = append(*after, func() {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: addr, Op: proto, Sends: true, Data: s.v.data})
	})
	return true
}

func (w *walker) dup(r *syntax.Redirect, target val, fd string, io stdio, after *[]func()) stdio {
	n := strings.TrimSuffix(target.s, "-")
	if addr, ok := w.socks[n]; ok {
		io.sock = addr
		if r.Op == syntax.DplIn {
			io.in = &val{s: mNet, taint: tNet}
		} else if fd == "" || fd == "1" {
			s := &sink{}
			io.out = s
			*after = append(*after, func() {
				w.emit(cordon.Effect{Kind: cordon.Connect, Target: addr, Op: "tcp", Sends: true, Data: s.v.data})
			})
		}
		return io
	}
	if n == "" || isDigits(n) {
		if v, ok := w.fds[n]; ok && r.Op == syntax.DplIn {
			return w.setInput(io, fd, v, val{})
		}
		return io
	}
	if r.Op == syntax.DplOut && !startsUnknown(target.s) {
		if w.socket(target, fd, &io, true, after) {
			return io
		}
		w.writes(target, "create")
		return w.setOutput(io, target, false, after)
	}
	return io
}

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func (w *walker) heredoc(r *syntax.Redirect) val {
	if r.Hdoc == nil {
		return val{}
	}
	quoted := false
	for _, p := range r.Word.Parts {
		l, ok := p.(*syntax.Lit)
		quoted = quoted || !ok || strings.IndexByte(l.Value, '\\') >= 0
	}
	f := fields{w: w}
	if !quoted {
		f.parts(r.Hdoc.Parts, true, false)
		return val{s: string(f.b), data: f.data, taint: f.taint}
	}
	for _, p := range r.Hdoc.Parts {
		if l, ok := p.(*syntax.Lit); ok {
			f.b = append(f.b, l.Value...)
		}
	}
	return val{s: string(f.b)}
}
