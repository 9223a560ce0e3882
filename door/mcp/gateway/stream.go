package gateway

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// keepAlive is after what silence a stream shows that it is alive, and an
// answer that is not there yet becomes a stream.
const keepAlive = 15 * time.Second

// stream is one response to a client: a single answer as JSON, or events.
// Events of a session are numbered and kept, so that a client which lost the
// connection can have them again.
type stream struct {
	mu sync.Mutex // guards all below, and the order of what is written
	// w is nil while no client listens.
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool // headers of an event stream were sent
	// events: the client takes event streams. single: only one answer is told,
	// by a status.
	events bool
	// via takes all that is sent, where answers do not go with their requests.
	via *stream
	// mirrors: the server answered by events, and so the client is.
	mirrors bool
	log     *eventLog // nil where nothing is kept
	id      string
	n       int
	prime   bool // begins with an empty event that has an id
	write   time.Duration
	over    bool
	gone    chan struct{} // closed when over, or when another listener took over
	beat    *time.Timer
}

func newStream(w http.ResponseWriter, events bool, write time.Duration) *stream {
	s := &stream{w: w, events: events, write: write, gone: make(chan struct{})}
	if w != nil {
		s.rc = http.NewResponseController(w)
	}
	return s
}

// kept makes the stream one whose events are kept.
func (s *stream) kept(log *eventLog, id string, prime bool) {
	s.log, s.id, s.prime = log, id, prime
}

// keepsAlive starts to show life after a while.
func (s *stream) keepsAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events && !s.over && s.via == nil {
		s.beat = time.AfterFunc(keepAlive, s.pulse)
	}
}

func (s *stream) pulse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if s.w != nil {
		s.begin()
		s.put([]byte(": alive\n\n"))
	}
	s.beat.Reset(keepAlive)
}

// begin sends the headers of an event stream. The caller holds mu.
func (s *stream) begin() {
	if s.begun || s.w == nil {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	if s.prime && s.log != nil && s.n == 0 {
		s.n++
		s.put([]byte("id: " + eventID(s.id, s.n) + "\ndata: \n\n"))
		s.log.add(event{stream: s.id, n: s.n})
	}
}

// put writes to the client; one that does not take it is gone. The caller
// holds mu.
func (s *stream) put(b []byte) {
	if s.w == nil {
		return
	}
	// A client that does not read must not hold up the others of its session.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.write))
	_, err := s.w.Write(b)
	if err == nil {
		err = s.rc.Flush()
	}
	if err != nil {
		s.w = nil
	}
}

// send sends one message as an event. It reports whether a client is there, or
// the event was kept for it.
func (s *stream) send(msg []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(msg)
}

func (s *stream) sendLocked(msg []byte) bool {
	if s.via != nil {
		return !s.over && s.via.send(msg)
	}
	if s.over || !s.events {
		return false
	}
	s.begin()
	s.n++
	if s.log != nil {
		s.log.add(event{stream: s.id, n: s.n, data: msg})
	}
	s.put(frame(s.id, s.n, msg, s.log != nil))
	return s.w != nil || s.log != nil
}

// finish sends the answer and ends the stream; a nil answer only ends it.
func (s *stream) finish(answer []byte, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	switch {
	case s.via != nil:
		if answer != nil {
			s.via.send(answer)
		}
	case answer == nil:
		if s.w != nil && !s.begun {
			s.w.WriteHeader(status)
		}
	case s.begun, s.mirrors && s.events:
		s.sendLocked(answer)
	case s.w != nil:
		_ = s.rc.SetWriteDeadline(time.Now().Add(s.write))
		h := s.w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(answer)))
		s.w.WriteHeader(status)
		_, _ = s.w.Write(answer) // the client may be gone; nobody else waits
	}
	s.endLocked()
}

// mirror has the answer be told as an event too.
func (s *stream) mirror() {
	s.mu.Lock()
	s.mirrors = true
	s.mu.Unlock()
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
}

func (s *stream) endLocked() {
	if s.over {
		return
	}
	s.over = true
	if s.beat != nil {
		s.beat.Stop()
	}
	close(s.gone)
}

// attach lets another response listen from now on, after the events of the
// stream that came after the last one it has. It returns what is closed when
// it should end.
func (s *stream) attach(w http.ResponseWriter, after int, again bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		close(s.gone)
		s.gone = make(chan struct{})
	}
	s.w, s.rc, s.begun, s.events = w, http.NewResponseController(w), false, true
	prime := s.prime
	s.prime = prime && !again
	s.begin()
	s.prime = prime
	if s.log != nil && again {
		for _, e := range s.log.after(s.id, after) {
			if e.data != nil {
				s.put(frame(s.id, e.n, e.data, true))
			}
		}
	}
	_ = s.rc.Flush()
	return s.gone
}

// detach: w no longer listens.
func (s *stream) detach(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == w {
		s.w = nil
	}
}

func (s *stream) listened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w != nil && s.events && !s.over
}

// frame is a message as an event. JSON has line ends only where white space
// may stand, and an event has none inside.
func frame(id string, n int, msg []byte, numbered bool) []byte {
	out := make([]byte, 0, len(msg)+len(id)+40)
	if numbered {
		out = append(append(append(out, "id: "...), eventID(id, n)...), '\n')
	}
	out = append(out, "event: message\ndata: "...)
	if bytes.ContainsAny(msg, "\r\n") {
		msg = bytes.Map(func(r rune) rune {
			if r == '\r' || r == '\n' {
				return ' '
			}
			return r
		}, msg)
	}
	return append(append(out, msg...), "\n\n"...)
}

func eventID(stream string, n int) string { return stream + "-" + strconv.Itoa(n) }

// event is a kept event; a nil data is the empty one that a stream begins with.
type event struct {
	stream string
	n      int
	data   []byte
}

// eventLog keeps the last events of a session.
type eventLog struct {
	mu     sync.Mutex
	events []event
	bytes  int
	// maxEvents and maxBytes bound it.
	maxEvents, maxBytes int
}

func (l *eventLog) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	l.bytes += len(e.data)
	drop := 0
	for drop < len(l.events) && (len(l.events)-drop > l.maxEvents || l.bytes > l.maxBytes) {
		l.bytes -= len(l.events[drop].data)
		l.events[drop] = event{}
		drop++
	}
	if drop > 0 {
		l.events = append(l.events[:0:0], l.events[drop:]...)
	}
}

func (l *eventLog) after(stream string, n int) []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []event
	for _, e := range l.events {
		if e.stream == stream && e.n > n {
			out = append(out, e)
		}
	}
	return out
}

// splitEventID reads the id of an event.
func splitEventID(id string) (stream string, n int, ok bool) {
	i := -1
	for k := len(id) - 1; k >= 0; k-- {
		if id[k] == '-' {
			i = k
			break
		}
	}
	if i <= 0 || len(id) > 64 {
		return "", 0, false
	}
	n, err := strconv.Atoi(id[i+1:])
	return id[:i], n, err == nil && n >= 0
}
