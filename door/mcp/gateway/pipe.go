package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// pipe is a link over one stream of messages each way: a process, or the two
// halves of the transport of 2024-11-05.
type pipe struct {
	peer *peer
	// write sends one message; end closes what carries them.
	write func(ctx context.Context, msg []byte) error
	end   func(hard bool)
	gone  chan struct{}
	once  sync.Once

	mu    sync.Mutex // guards waits
	waits map[string]chan []byte
}

func newPipe(c *peer) *pipe {
	return &pipe{peer: c, gone: make(chan struct{}), waits: map[string]chan []byte{}}
}

func (p *pipe) dead() <-chan struct{} { return p.gone }
func (p *pipe) died()                 { p.once.Do(func() { close(p.gone) }) }

func (p *pipe) close(hard bool) {
	p.died()
	p.end(hard)
}

func (p *pipe) tell(ctx context.Context, msg []byte) error { return p.write(ctx, msg) }

// errEnded: the server went away before it answered.
var errEnded = errors.New("the server ended before it answered")

func (p *pipe) do(ctx context.Context, x *exchange) ([]byte, error) {
	key := mcp.KeyOf(x.id)
	wait := make(chan []byte, 1)
	p.mu.Lock()
	p.waits[key] = wait
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waits, key)
		p.mu.Unlock()
	}()
	if err := p.write(ctx, x.msg); err != nil {
		return nil, fmt.Errorf("%w: %w", errEnded, err)
	}
	select {
	case answer := <-wait:
		return answer, nil
	case <-p.gone:
		select {
		case answer := <-wait: // it answered with its last breath
			return answer, nil
		default:
			return nil, errEnded
		}
	case <-ctx.Done():
		if x.method != "initialize" {
			_ = p.write(context.WithoutCancel(ctx), cancelNote(x.id)) // nothing waits for it
		}
		return nil, context.Cause(ctx)
	}
}

func cancelNote(id []byte) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), id...)
	return append(out, `,"reason":"the client no longer waits"}}`...)
}

// took takes one message of the server, or a batch of them (2025-03-26), which
// holds no other batch.
func (p *pipe) took(msg []byte) {
	items := batchOf(msg)
	if items == nil {
		items = [][]byte{msg}
	}
	for _, one := range items {
		p.tookOne(one)
	}
}

func (p *pipe) tookOne(msg []byte) {
	e, ok := mcp.ReadEnvelope(msg)
	switch {
	case !ok:
		p.peer.up.gw.cfg.Logf("gateway: server %q wrote what is no JSON-RPC message (%d bytes)", p.peer.up.cfg.Name, len(msg))
	case e.Method != "":
		p.peer.came(msg)
	case e.ID != nil:
		p.mu.Lock()
		wait := p.waits[e.Key]
		delete(p.waits, e.Key)
		p.mu.Unlock()
		if wait != nil {
			wait <- msg
		}
	}
}

// startPipe starts the server's command.
func startPipe(ctx context.Context, c *peer) (link, error) {
	u := c.up
	p := newPipe(c)
	if !u.starts() {
		return nil, fmt.Errorf("server %q: %w", u.cfg.Name, errTooMany)
	}
	l, err := p.start(ctx)
	if err != nil {
		u.stopped()
		return nil, err
	}
	return l, nil
}

func (p *pipe) start(ctx context.Context) (link, error) {
	c, u := p.peer, p.peer.up
	var stream io.ReadWriter
	if u.cfg.Sandbox != "" {
		s, wait, err := u.gw.cfg.StartSandboxed(context.WithoutCancel(ctx), c.party.run, u.cfg.Sandbox, u.cfg.Command, u.cfg.Env)
		if err != nil {
			return nil, fmt.Errorf("server %q could not be started in runtime %q: %w", u.cfg.Name, u.cfg.Sandbox, err)
		}
		stream = s
		p.end = func(bool) {
			_ = s.Close() // it ends the command; there is nothing left to tell
			_ = wait()
		}
	} else {
		env := u.cfg.Env
		if env == nil {
			env = os.Environ()
		}
		proc, err := mcp.Start(u.cfg.Name, u.cfg.Command, env, c.party.dirOf(u), u.gw.cfg.Stderr, 0)
		if err != nil {
			return nil, err
		}
		stream = proc
		p.end = func(hard bool) {
			if hard {
				proc.Kill()
			}
			_ = proc.Close()
		}
	}
	ended, once := p.end, sync.Once{}
	p.end = func(hard bool) {
		ended(hard)
		once.Do(u.stopped)
	}
	var wmu sync.Mutex
	p.write = func(_ context.Context, msg []byte) error {
		wmu.Lock()
		defer wmu.Unlock()
		if d, ok := stream.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = d.SetWriteDeadline(time.Now().Add(u.gw.limits.Write)) // else a server that does not read holds the call
		}
		_, err := stream.Write(append(oneLine(msg), '\n'))
		if err != nil {
			p.died() // half a message may have gone out
		}
		return err
	}
	u.gw.work.Add(1)
	go func() {
		defer u.gw.work.Done()
		p.readLines(stream, u.gw.limits.Message)
		p.died()
	}()
	return p, nil
}

// oneLine is the message without line ends, which JSON has only between its
// tokens, with room for one more byte.
func oneLine(msg []byte) []byte {
	out := make([]byte, len(msg), len(msg)+1)
	for i, b := range msg {
		if b == '\n' || b == '\r' {
			b = ' '
		}
		out[i] = b
	}
	return out
}

// readLines takes each line as a message. One that is too long is dropped; who
// waits for it is told when the wait ends.
func (p *pipe) readLines(r io.Reader, limit int) {
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if !long && len(line)+len(part) > limit {
			long, line = true, nil
			p.peer.up.gw.cfg.Logf("gateway: server %q wrote a message longer than %d bytes; dropped", p.peer.up.cfg.Name, limit)
			p.tooLong(limit)
		}
		if !long {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if n := len(line); n > 0 && !long {
			if line[n-1] == '\n' {
				line = line[:n-1]
			}
			if len(line) > 0 {
				p.took(line)
			}
		}
		if err != nil {
			return
		}
		line, long = nil, false
	}
}

// tooLong answers who waits alone: of several it is not known whose answer was
// dropped.
func (p *pipe) tooLong(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waits) != 1 {
		return
	}
	for key, wait := range p.waits {
		delete(p.waits, key)
		wait <- mcp.ErrorAnswer([]byte(`0`), -32000, fmt.Sprintf("Cordon dropped the server's answer: it is longer than %d bytes. Ask for less at a time.", limit))
	}
}
