//go:build integration && linux

package escape

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// running is a cordon run, or an attack without walls, that the test talks to.
type running struct {
	p      *place
	cmd    *exec.Cmd
	cancel context.CancelFunc
	in     io.WriteCloser
	out    *bufio.Reader
	errs   bytes.Buffer
	seen   strings.Builder
	ended  sync.Once
	res    *result
}

// start starts cordon run, or the attack alone if bare.
func (p *place) start(i invocation, bare bool) *running {
	p.t.Helper()
	ctx, cancel := i.context()
	r := &running{p: p, cancel: cancel}
	if bare {
		i.env = append(i.env, "CORDON_RUN="+p.id)
		if i.dir == "" {
			i.dir = p.copyWorkspace()
		}
		r.cmd = p.process(ctx, i, append([]string{built.attack}, i.attack...))
	} else {
		r.cmd = p.command(ctx, i)
	}
	r.cmd.Stdin = nil
	var err error
	r.in, err = r.cmd.StdinPipe()
	check(p.t, err)
	out, err := r.cmd.StdoutPipe()
	check(p.t, err)
	r.out = bufio.NewReader(out)
	r.cmd.Stderr = &r.errs
	check(p.t, r.cmd.Start())
	p.t.Cleanup(func() {
		r.cancel()
		r.end()
	})
	return r
}

// await reads up to the line of a try.
func (r *running) await(try string) {
	r.p.t.Helper()
	for {
		l, err := r.out.ReadString('\n')
		r.seen.WriteString(l)
		if strings.Contains(l, `"try":"`+try+`"`) {
			return
		}
		if err != nil {
			r.end()
			r.p.t.Fatalf("it ended before it said %q\n%s", try, r.res.text())
		}
	}
}

// proceed gives the program the word that it waits for, and waits for the end.
func (r *running) proceed(t *testing.T) *result {
	t.Helper()
	_, err := io.WriteString(r.in, "go on\n")
	check(t, err)
	return r.end()
}

// end waits for the end.
func (r *running) end() *result {
	r.ended.Do(func() {
		_ = r.in.Close()
		rest, _ := io.ReadAll(r.out)
		r.seen.Write(rest)
		_ = r.cmd.Wait() // what it ended with is in its state
		r.cancel()
		r.res = r.p.result("run", r.cmd.ProcessState.ExitCode(), r.seen.String(), r.errs.String())
	})
	return r.res
}
