package inside

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Frames are a kind, the number of a stream, a length, and that many bytes.
type kind uint8

const (
	kPlan   kind = iota + 1 // to the inside: the plan, JSON
	kGo                     // to the inside: start the program
	kEvent                  // to the outside: an event, JSON
	kOpen                   // to the outside: a connection, of an address's index
	kData                   // bytes of a stream
	kEnd                    // no more bytes come from this side
	kReset                  // the stream is given up
	kCredit                 // so many more bytes may be sent
	kResize                 // to the inside: rows and columns of the terminal
)

const (
	headerSize = 9
	maxData    = 16 << 10
	maxPlan    = 8 << 20
	maxEvent   = 64 << 10
	// window is how much of a stream may be under way.
	window = 128 << 10
	// maxConns are the connections open at one time.
	maxConns = 256
)

// Streams 0 to 2 are the program's own; connections follow.
const (
	streamIn uint32 = iota
	streamOut
	streamErr
	firstConn
)

var (
	errProtocol = errors.New("inside: the protocol was broken")
	errTooLong  = errors.New("inside: arguments and environment are too long")
)

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

// limitOf is how long a frame of a kind may be.
func limitOf(k kind) int {
	switch k {
	case kPlan:
		return maxPlan
	case kEvent:
		return maxEvent
	case kData:
		return maxData
	case kOpen:
		return 2
	case kCredit, kResize:
		return 4
	}
	return 0
}

// link is one end of the wire.
type link struct {
	r *bufio.Reader
	// control takes what is no stream's: the plan and go, or events.
	control func(k kind, payload []byte) error
	// opened takes a new connection; nil where none may come.
	opened func(index int, s *stream) error

	wmu   sync.Mutex
	w     io.Writer
	frame []byte // the last that was sent, for its space

	mu      sync.Mutex
	streams map[uint32]*stream
	last    uint32 // the highest number that was used
	refused int    // connections that are being given up
	err     error
}

func newLink(r io.Reader, w io.Writer) *link {
	l := &link{r: bufio.NewReaderSize(r, maxData+headerSize), w: w, streams: map[uint32]*stream{}, last: firstConn - 1}
	for id := range firstConn {
		l.streams[id] = newStream(l, id)
	}
	return l
}

func (l *link) stream(id uint32) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams[id]
}

func (l *link) send(k kind, id uint32, payload []byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.write(k, id, payload)
}

// write is under l.wmu.
func (l *link) write(k kind, id uint32, payload []byte) error {
	frame := append(l.frame[:0], byte(k))
	frame = binary.BigEndian.AppendUint32(frame, id)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
	frame = append(frame, payload...)
	if len(frame) <= maxData+headerSize { // a plan is sent once
		l.frame = frame
	}
	_, err := l.w.Write(frame)
	return err
}

func (l *link) sendJSON(k kind, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > limitOf(k) {
		return fmt.Errorf("%w: %d bytes (want at most %d)", errTooLong, len(text), limitOf(k))
	}
	return l.send(k, 0, text)
}

// run reads frames until the wire ends or the protocol is broken, and then
// ends all streams. It never waits for a stream's reader, nor writes.
func (l *link) run() error {
	err := l.read()
	l.mu.Lock()
	l.err = err
	streams := l.streams
	l.streams = nil
	l.mu.Unlock()
	for _, s := range streams {
		s.fail(io.ErrUnexpectedEOF)
	}
	return err
}

func (l *link) read() error {
	var header [headerSize]byte
	buf := make([]byte, maxEvent)
	for {
		if _, err := io.ReadFull(l.r, header[:]); err != nil {
			return err
		}
		k, id := kind(header[0]), binary.BigEndian.Uint32(header[1:])
		n := int(binary.BigEndian.Uint32(header[5:]))
		if n < 0 || n > limitOf(k) {
			return broken("a frame of kind %d and %d bytes", k, n)
		}
		if n > len(buf) {
			buf = make([]byte, n)
		}
		if _, err := io.ReadFull(l.r, buf[:n]); err != nil {
			return err
		}
		if err := l.take(k, id, buf[:n]); err != nil {
			return err
		}
	}
}

func (l *link) take(k kind, id uint32, payload []byte) error {
	switch k {
	case kPlan, kGo, kEvent, kResize:
		return l.control(k, payload)
	case kOpen:
		return l.takeOpen(id, payload)
	case kData, kEnd, kReset, kCredit:
	default:
		return broken("kind %d", k)
	}
	l.mu.Lock()
	s, last := l.streams[id], l.last
	l.mu.Unlock()
	if s == nil {
		if id > last {
			return broken("stream %d was not opened", id)
		}
		return nil // given up here, which the other side has yet to learn
	}
	switch k {
	case kData:
		return s.takeData(payload)
	case kEnd:
		s.takeEnd()
	case kReset:
		l.forget(s)
		s.fail(io.ErrUnexpectedEOF)
	case kCredit:
		if len(payload) != 4 {
			return broken("credit of %d bytes", len(payload))
		}
		return s.takeCredit(binary.BigEndian.Uint32(payload))
	}
	return nil
}

func (l *link) takeOpen(id uint32, payload []byte) error {
	if l.opened == nil || len(payload) != 2 {
		return broken("a connection")
	}
	s := newStream(l, id)
	l.mu.Lock()
	switch {
	case id <= l.last:
		l.mu.Unlock()
		return broken("connection %d again", id)
	case len(l.streams)+l.refused > maxConns+int(firstConn):
		l.mu.Unlock()
		return broken("more than %d connections", maxConns)
	}
	l.last, l.streams[id] = id, s
	l.mu.Unlock()
	return l.opened(int(binary.BigEndian.Uint16(payload)), s)
}

// open makes a connection to the supervisor for the address of an index. It
// is nil when there are too many.
func (l *link) open(index int) (*stream, error) {
	l.mu.Lock()
	if l.streams == nil {
		l.mu.Unlock()
		return nil, io.ErrClosedPipe
	}
	if len(l.streams) >= maxConns {
		l.mu.Unlock()
		return nil, nil
	}
	l.last++
	s := newStream(l, l.last)
	l.streams[s.id] = s
	// Numbers go over the wire in order.
	l.wmu.Lock()
	l.mu.Unlock()
	err := l.write(kOpen, s.id, binary.BigEndian.AppendUint16(nil, uint16(index)))
	l.wmu.Unlock()
	return s, err
}

// refuse gives a connection up from the reading goroutine, which must not
// write.
func (l *link) refuse(s *stream) {
	l.mu.Lock()
	l.refused++
	l.mu.Unlock()
	go func() {
		s.Close()
		l.mu.Lock()
		l.refused--
		l.mu.Unlock()
	}()
}

func (l *link) forget(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams[s.id] == s {
		delete(l.streams, s.id)
	}
}
