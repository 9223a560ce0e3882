package inside

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is one flow of bytes in both directions, with a window in each. It
// is a net.Conn that can be closed by halves.
type stream struct {
	l             *link
	id            uint32
	local, remote net.Addr

	wmu sync.Mutex // one Write at a time

	mu       sync.Mutex
	change   *sync.Cond
	in       []byte // received and not read
	eaten    uint32 // read and not credited
	credit   int    // may be sent
	inEnd    bool
	outEnd   bool
	err      error
	readBy   deadline
	writtenB deadline
}

// deadline wakes the stream's waiters when it has passed.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newStream(l *link, id uint32) *stream {
	s := &stream{l: l, id: id, credit: window}
	s.change = sync.NewCond(&s.mu)
	return s
}

func (s *stream) takeData(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inEnd || len(s.in)+int(s.eaten)+len(p) > window {
		return broken("stream %d sends what it may not", s.id)
	}
	if s.err == nil {
		s.in = append(s.in, p...)
		s.change.Broadcast()
	}
	return nil
}

func (s *stream) takeEnd() {
	s.mu.Lock()
	s.inEnd = true
	over := s.outEnd
	s.change.Broadcast()
	s.mu.Unlock()
	if over {
		s.l.forget(s)
	}
}

func (s *stream) takeCredit(n uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > window || s.credit+int(n) > window {
		return broken("stream %d has too much credit", s.id)
	}
	s.credit += int(n)
	s.change.Broadcast()
	return nil
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.change.Broadcast()
}

// passed is under s.mu.
func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// Read gives what has come, also when the stream has failed since.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	for len(s.in) == 0 {
		switch {
		case s.readBy.passed():
			s.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case s.inEnd:
			s.mu.Unlock()
			return 0, io.EOF
		case s.err != nil:
			defer s.mu.Unlock()
			return 0, s.err
		case len(p) == 0:
			s.mu.Unlock()
			return 0, nil
		}
		s.change.Wait()
	}
	n := copy(p, s.in)
	s.in = s.in[:copy(s.in, s.in[n:])]
	s.eaten += uint32(n)
	var grant uint32
	if (len(s.in) == 0 || s.eaten >= window/2) && !s.inEnd && s.err == nil {
		grant, s.eaten = s.eaten, 0
	}
	s.mu.Unlock()
	if grant > 0 {
		var payload [4]byte
		binary.BigEndian.PutUint32(payload[:], grant)
		_ = s.l.send(kCredit, s.id, payload[:]) // a wire that is gone fails the stream too
	}
	return n, nil
}

func (s *stream) Write(p []byte) (n int, err error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	for n < len(p) {
		m, err := s.take(len(p) - n)
		if err != nil {
			return n, err
		}
		if err := s.l.send(kData, s.id, p[n:n+m]); err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// take waits for credit and takes at most n of it.
func (s *stream) take(n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.outEnd:
			return 0, net.ErrClosed
		case s.writtenB.passed():
			return 0, os.ErrDeadlineExceeded
		case s.credit > 0:
			n = min(n, s.credit, maxData)
			s.credit -= n
			return n, nil
		}
		s.change.Wait()
	}
}

// CloseWrite tells the other side that no more comes.
func (s *stream) CloseWrite() error {
	s.mu.Lock()
	if s.outEnd || s.err != nil {
		s.mu.Unlock()
		return nil
	}
	s.outEnd = true
	over := s.inEnd
	s.change.Broadcast()
	s.mu.Unlock()
	err := s.l.send(kEnd, s.id, nil)
	if over {
		s.l.forget(s)
	}
	return err
}

// Close gives the stream up where it has not ended in both directions.
func (s *stream) Close() error {
	s.mu.Lock()
	finished := s.err != nil || s.inEnd && s.outEnd && len(s.in) == 0
	if s.err == nil {
		s.err = net.ErrClosed
	}
	ended := s.inEnd
	quiet := s.outEnd
	s.outEnd, s.in = true, nil
	s.change.Broadcast()
	s.mu.Unlock()
	s.l.forget(s)
	switch {
	case finished:
		return nil
	case ended && quiet:
		return nil
	case ended: // the other side has said all it had to: it gets what we sent
		return s.l.send(kEnd, s.id, nil)
	}
	return s.l.send(kReset, s.id, nil)
}

func (s *stream) LocalAddr() net.Addr  { return s.local }
func (s *stream) RemoteAddr() net.Addr { return s.remote }

func (s *stream) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(&s.readBy, t)
	s.set(&s.writtenB, t)
	return nil
}

func (s *stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(&s.readBy, t)
	return nil
}

func (s *stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(&s.writtenB, t)
	return nil
}

// set is under s.mu.
func (s *stream) set(d *deadline, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.change.Broadcast()
		})
	}
	s.change.Broadcast()
}

// listener is an address inside, outside.
type listener struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener(addr string) *listener {
	l := &listener{conns: make(chan net.Conn, maxConns+int(firstConn)), done: make(chan struct{})}
	l.addr = &net.TCPAddr{}
	if a, err := net.ResolveTCPAddr("tcp", addr); err == nil { // an IP address: nothing is looked up
		l.addr = a
	}
	return l
}

// Accept returns the next connection from inside.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	case c := <-l.conns:
		return c, nil
	}
}

// Close ends Accept; connections that nobody took are given up.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	for {
		select {
		case c := <-l.conns:
			c.Close()
		default:
			return nil
		}
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

// offer hands a connection on, or tells that nobody takes it.
func (l *listener) offer(s *stream) bool {
	s.local, s.remote = l.addr, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	select {
	case <-l.done:
		return false
	default:
	}
	select {
	case l.conns <- s:
		return true
	default:
		return false
	}
}
