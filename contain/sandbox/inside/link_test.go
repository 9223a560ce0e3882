package inside

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire is two links that talk with each other.
type wire struct {
	inside, outside *link
	conns           chan *stream
	cut             func()
}

func newWire(t testing.TB) *wire {
	t.Helper()
	inR, outW := io.Pipe()
	outR, inW := io.Pipe()
	w := &wire{inside: newLink(inR, inW), outside: newLink(outR, outW), conns: make(chan *stream, maxConns)}
	w.cut = func() { inW.Close(); outW.Close(); inR.Close(); outR.Close() }
	control := func(kind, []byte) error { return nil }
	w.inside.control, w.outside.control = control, control
	w.outside.opened = func(_ int, s *stream) error { w.conns <- s; return nil }
	var ended sync.WaitGroup
	for _, l := range []*link{w.inside, w.outside} {
		ended.Go(func() { _ = l.run() })
	}
	t.Cleanup(func() { w.cut(); ended.Wait() })
	return w
}

func (w *wire) conn(t testing.TB) (in, out *stream) {
	t.Helper()
	in, err := w.inside.open(0)
	if err != nil || in == nil {
		t.Fatalf("open: %v", err)
	}
	return in, <-w.conns
}

func TestBytesComeThroughInBothDirectionsPastTheWindow(t *testing.T) {
	w := newWire(t)
	in, out := w.conn(t)
	text := bytes.Repeat([]byte("0123456789"), window/2) // five windows
	var wg sync.WaitGroup
	for _, pair := range [][2]*stream{{in, out}, {out, in}} {
		wg.Go(func() {
			if n, err := pair[0].Write(text); n != len(text) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
			if err := pair[0].CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if got, err := io.ReadAll(onlyReader{pair[1]}); err != nil || !bytes.Equal(got, text) {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	for name, l := range map[string]*link{"inside": w.inside, "outside": w.outside} {
		if l.stream(in.id) != nil {
			t.Errorf("%s keeps a stream that ended in both directions", name)
		}
	}
}

func TestAStreamThatNobodyReadsHoldsNoOtherUp(t *testing.T) {
	w := newWire(t)
	stuck, _ := w.conn(t)
	go func() { _, _ = stuck.Write(make([]byte, 4*window)) }()
	in, out := w.conn(t)
	go func() { _, _ = in.Write([]byte("hello")) }()
	got := make([]byte, 5)
	if _, err := io.ReadFull(onlyReader{out}, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatWasSentBeforeACloseIsStillRead(t *testing.T) {
	w := newWire(t)
	in, out := w.conn(t)
	if _, err := out.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(onlyReader{in})
	if string(got) != "answer" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := in.Write([]byte("more")); err == nil {
		t.Error("a stream that was given up takes bytes")
	}
}

func TestDeadlinesEndReadAndWrite(t *testing.T) {
	w := newWire(t)
	in, out := w.conn(t)
	if err := out.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	if _, err := out.Write(make([]byte, 2*window)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	if err := out.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("after the deadline was taken back: %d, %v", n, err)
	}
}

func TestTheEndOfTheWireEndsWhatWaits(t *testing.T) {
	w := newWire(t)
	in, out := w.conn(t)
	var wg sync.WaitGroup
	for _, s := range []*stream{in, out} {
		wg.Go(func() {
			if _, err := s.Read(make([]byte, 1)); err == nil {
				t.Error("read something")
			}
		})
		wg.Go(func() {
			if _, err := s.Write(make([]byte, 4*window)); err == nil {
				t.Error("wrote all")
			}
		})
	}
	w.cut()
	wg.Wait()
}

func TestNoMoreConnectionsThanAreAllowed(t *testing.T) {
	w := newWire(t)
	n := 0
	for range maxConns + 10 {
		s, err := w.inside.open(0)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			n++
		}
	}
	if n == 0 || n > maxConns {
		t.Errorf("%d connections (want at most %d)", n, maxConns)
	}
}

func TestAListenerThatIsClosedRefuses(t *testing.T) {
	l := newListener("127.0.0.1:3128")
	if l.Addr().String() != "127.0.0.1:3128" {
		t.Errorf("address %v", l.Addr())
	}
	w := newWire(t)
	_, out := w.conn(t)
	if !l.offer(out) {
		t.Fatal("an open one refused")
	}
	if c, err := l.Accept(); err != nil || c.LocalAddr().String() != "127.0.0.1:3128" {
		t.Errorf("%v", err)
	}
	l.Close()
	if l.offer(out) {
		t.Error("a closed one took a connection")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

// frame is one by hand.
func frame(k kind, id uint32, payload string) string {
	b := binary.BigEndian.AppendUint32([]byte{byte(k)}, id)
	return string(binary.BigEndian.AppendUint32(b, uint32(len(payload)))) + payload
}

// supervisorEnd is a link as Launch makes it.
func supervisorEnd(r io.Reader) *link {
	l := newLink(r, io.Discard)
	l.control = func(k kind, _ []byte) error {
		if k != kEvent {
			return broken("no event")
		}
		return nil
	}
	l.opened = func(index int, s *stream) error {
		if index > 1 {
			return broken("address")
		}
		return nil
	}
	return l
}

func TestWhoBreaksTheProtocolIsFoundOut(t *testing.T) {
	open := frame(kOpen, firstConn, "\x00\x00")
	for _, row := range []struct {
		name, sent string
		broken     bool
	}{
		{"an event", frame(kEvent, 0, "{}"), false},
		{"data of the output", frame(kData, streamOut, "hello"), false},
		{"a connection and its data", open + frame(kData, firstConn, "hello") + frame(kEnd, firstConn, ""), false},
		{"data after this side has forgotten the stream", open + frame(kReset, firstConn, "") + frame(kData, firstConn, "late"), false},
		{"a kind that is unknown", frame(0, 0, ""), true},
		{"another kind that is unknown", frame(99, 0, ""), true},
		{"a plan from inside", frame(kPlan, 0, "{}"), true},
		{"an event that is too long", frame(kEvent, 0, strings.Repeat(" ", maxEvent+1)), true},
		{"data that is too long", frame(kData, streamOut, strings.Repeat("x", maxData+1)), true},
		{"more data than the window", strings.Repeat(frame(kData, streamOut, strings.Repeat("x", maxData)), window/maxData+1), true},
		{"data after the end", frame(kEnd, streamOut, "") + frame(kData, streamOut, "x"), true},
		{"data of a stream that is not open", frame(kData, firstConn+7, "x"), true},
		{"a connection twice", open + open, true},
		{"a connection to an address that is not listened on", frame(kOpen, firstConn, "\x00\x07"), true},
		{"a connection by one byte", frame(kOpen, firstConn, "\x00"), true},
		{"credit that was never taken", frame(kCredit, streamIn, "\x00\x00\x00\x01"), true},
		{"credit beyond all numbers", frame(kCredit, streamIn, "\xff\xff\xff\xff"), true},
		{"credit of two bytes", frame(kCredit, streamIn, "\x00\x01"), true},
		{"a length beyond all numbers", "\x05\x00\x00\x00\x01\xff\xff\xff\xff", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := supervisorEnd(strings.NewReader(row.sent)).run(); errors.Is(err, errProtocol) != row.broken {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("connections without end", func(t *testing.T) {
		var sent strings.Builder
		for i := range uint32(maxConns + 10) {
			sent.WriteString(frame(kOpen, firstConn+i, "\x00\x00"))
		}
		if err := supervisorEnd(strings.NewReader(sent.String())).run(); !errors.Is(err, errProtocol) {
			t.Errorf("error %v", err)
		}
	})
}

// FuzzLink: whatever comes from inside, the supervisor's end neither panics
// nor keeps more than the windows of its streams.
func FuzzLink(f *testing.F) {
	f.Add([]byte(frame(kEvent, 0, `{"Kind":"ready"}`) + frame(kOpen, firstConn, "\x00\x00") + frame(kData, firstConn, "hello") + frame(kEnd, firstConn, "")))
	f.Add([]byte(frame(kData, streamOut, "out") + frame(kCredit, streamIn, "\x00\x00\x10\x00") + frame(kReset, firstConn, "")))
	f.Fuzz(func(t *testing.T, sent []byte) {
		l := supervisorEnd(bytes.NewReader(sent))
		var kept []*stream
		l.opened = func(_ int, s *stream) error { kept = append(kept, s); return nil }
		for id := range firstConn {
			kept = append(kept, l.stream(id))
		}
		if err := l.run(); err == nil {
			t.Error("the wire ended without an error")
		}
		for _, s := range kept {
			if len(s.in) > window {
				t.Errorf("stream %d keeps %d bytes", s.id, len(s.in))
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	w := newWire(b)
	in, out := w.conn(b)
	chunk := make([]byte, 32<<10)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	go func() {
		for {
			if _, err := in.Write(chunk); err != nil {
				return
			}
		}
	}()
	got := make([]byte, len(chunk))
	for b.Loop() {
		if _, err := io.ReadFull(onlyReader{out}, got); err != nil {
			b.Fatal(err)
		}
	}
}
