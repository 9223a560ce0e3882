// Package daemon lets a hook's process hand its event to one that is running
// already, over a Unix socket: the process opens no database and reads no
// configuration, and the answer is there in the time that a program takes to
// start.
//
// It guarantees: Ask gives an answer only if the directory of the socket and
// the socket belong to this user and nobody else may write them, the process
// that listens is of this user and, on Linux, runs the very file that this
// process runs, and it answered whole, in time and for this build. In any
// other case there is no answer, and the caller decides by itself; no failure
// here lets a call pass. Serve answers this user's processes only, bounded in
// number, size and time, and has no command but to judge an event: nothing is
// approved, released or stopped through it.
//
// What it does not stop: a process of the same user that runs outside of a
// sandbox. It can connect and have events judged, as it could start Cordon by
// hand; it can listen at the socket itself and then become the real program
// while a child of it answers, which no check of the peer can see. The
// socket's directory is among the paths that the guard refuses to tools; what
// a program does behind a permitted command is for a sandbox to hold, where
// the directory is not there.
package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// SocketName and LockName are the names in the state directory.
const (
	SocketName = "hook.sock"
	LockName   = "hook.lock"
)

// Request is one hook's process, as far as a decision depends on it.
type Request struct {
	// Args are the arguments after "hook", the agent among them.
	Args []string
	// Env are the variables, NAME=VALUE, that the configuration is read from.
	Env []string
	// Event is what the agent wrote.
	Event []byte
}

// Reply is what the process gives to its agent.
type Reply struct {
	Stdout []byte
	Stderr string
	Exit   int
}

const (
	protocol  = "cordon-hook/1"
	maxFields = 1 << 10
	// maxRequest bounds one request: an event and what goes with it.
	maxRequest = 10 << 20
	// maxReply bounds one answer.
	maxReply = 64 << 10
)

// ErrNone says that there is no daemon.
var ErrNone = errors.New("daemon: none is there")

// Client asks a daemon.
type Client struct {
	// Dir is the directory of the socket.
	Dir string
	// Build tells builds of the program apart: see ThisBuild.
	Build string
	// Timeout bounds one question, from the connection to the answer; 0 is
	// DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout leaves the caller time to decide by itself.
const DefaultTimeout = 3 * time.Second

// Connect connects to the daemon. It fails with ErrNone where there is none,
// and with another error where there is one that is not to be believed.
func (c *Client) Connect() (*Conn, error) {
	if c.Build == "" {
		return nil, errors.New("daemon: this build has no name")
	}
	path := filepath.Join(c.Dir, SocketName)
	if err := checkPlace(c.Dir, path); err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err := checkPeer(conn.(*net.UnixConn), true); err != nil {
		conn.Close()
		return nil, err
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return &Conn{conn: conn, build: c.Build, timeout: timeout}, nil
}

// checkPlace refuses a socket that somebody else could have put there.
func checkPlace(dir, path string) error {
	sock, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	if sock.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("daemon: %s is no socket", path)
	}
	if err := mine(path, sock, 0o077); err != nil {
		return err
	}
	return CheckDir(dir)
}

// CheckDir reports whether the directory belongs to this user and nobody else
// may write it.
func CheckDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("daemon: %s is no directory", dir)
	}
	return mine(dir, info, 0o022)
}

// Conn is one connection to a daemon, for one question.
type Conn struct {
	conn    net.Conn
	build   string
	timeout time.Duration
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Ask asks, and closes the connection. An error means that there is no answer.
func (c *Conn) Ask(r Request) (Reply, error) {
	defer c.conn.Close()
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return Reply{}, fmt.Errorf("daemon: %w", err)
	}
	msg := appendFields(nil, []byte(protocol), []byte(c.build), join(r.Args), join(r.Env), r.Event)
	if len(msg) > maxRequest {
		return Reply{}, fmt.Errorf("daemon: the request has %d bytes (want at most %d)", len(msg), maxRequest)
	}
	if _, err := c.conn.Write(msg); err != nil {
		return Reply{}, fmt.Errorf("daemon: %w", err)
	}
	fields, err := readFields(c.conn, maxReply)
	if err != nil {
		return Reply{}, err
	}
	return readReply(fields, c.build)
}

// readReply believes an answer only if it is whole.
func readReply(f [][]byte, build string) (Reply, error) {
	if len(f) != 6 || string(f[0]) != protocol || string(f[1]) != build {
		return Reply{}, errors.New("daemon: the answer is of another version")
	}
	if string(f[2]) != "answer" {
		return Reply{}, fmt.Errorf("daemon: it declined: %.200q", f[5])
	}
	code := string(f[3])
	if code != "0" && code != "2" {
		return Reply{}, fmt.Errorf("daemon: exit status %.10q (want 0 or 2)", code)
	}
	if out := f[4]; len(out) > 0 && (out[0] != '{' || !json.Valid(out)) {
		return Reply{}, errors.New("daemon: the answer is not JSON")
	}
	return Reply{Stdout: f[4], Stderr: string(f[5]), Exit: int(code[0] - '0')}, nil
}

// A message is its length, then fields, each with its length before it.
func appendFields(dst []byte, fields ...[]byte) []byte {
	n := 0
	for _, f := range fields {
		n += 4 + len(f)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	for _, f := range fields {
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(f))), f...)
	}
	return dst
}

func readFields(r io.Reader, most int) ([][]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > most {
		return nil, fmt.Errorf("daemon: a message of %d bytes (want at most %d)", n, most)
	}
	// What is announced is not believed until it came.
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	return splitFields(buf.Bytes())
}

func splitFields(b []byte) ([][]byte, error) {
	var fields [][]byte
	for len(b) > 0 {
		if len(b) < 4 || len(fields) == maxFields {
			return nil, errors.New("daemon: a malformed message")
		}
		n := int(binary.BigEndian.Uint32(b))
		if b = b[4:]; n > len(b) {
			return nil, errors.New("daemon: a malformed message")
		}
		fields, b = append(fields, b[:n:n]), b[n:]
	}
	return fields, nil
}

func join(list []string) []byte {
	var b []byte
	for _, s := range list {
		b = append(append(b, s...), 0)
	}
	return b
}

func split(b []byte) ([]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	s, ok := strings.CutSuffix(string(b), "\x00")
	if !ok {
		return nil, errors.New("daemon: a malformed list")
	}
	list := strings.Split(s, "\x00")
	if len(list) > maxFields {
		return nil, fmt.Errorf("daemon: a list of %d (want at most %d)", len(list), maxFields)
	}
	return list, nil
}

// Config is what Serve needs; all of it is required but Logf.
type Config struct {
	Listener net.Listener
	Build    string
	// Answer judges an event. An error is told to the client, which then
	// decides by itself.
	Answer func(context.Context, Request) (Reply, error)
	// Idle is how long nothing may come before Serve returns.
	Idle time.Duration
	// Logf is told of what was refused.
	Logf func(format string, args ...any)
}

const (
	// maxConns is how many clients are served at once; more wait.
	maxConns = 64
	// requestTime bounds the arrival of a request, answerTime its answer.
	requestTime = 5 * time.Second
	answerTime  = 10 * time.Second
)

// Serve answers until ctx is done or nothing came for Idle. It closes the
// listener, waits for the answers that are being worked on, and returns nil
// for both ends.
func Serve(ctx context.Context, c Config) error {
	if c.Listener == nil || c.Build == "" || c.Answer == nil || c.Idle <= 0 {
		return errors.New("daemon: listener, build, answer and idle time are required")
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	s := &server{cfg: c}
	s.touch()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.watch(ctx); cancel(); c.Listener.Close() })
	err := s.accept(ctx)
	cancel()
	wg.Wait()
	return err
}

type server struct {
	cfg    Config
	last   atomic.Int64 // when something came, Unix nanoseconds
	active atomic.Int64
	wg     sync.WaitGroup
}

func (s *server) touch() { s.last.Store(time.Now().UnixNano()) }

// watch returns when ctx is done or nothing came for the idle time.
func (s *server) watch(ctx context.Context) {
	timer := time.NewTimer(s.cfg.Idle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		left := s.cfg.Idle - time.Since(time.Unix(0, s.last.Load()))
		if left <= 0 && s.active.Load() == 0 {
			return
		}
		timer.Reset(max(left, 10*time.Millisecond))
	}
}

func (s *server) accept(ctx context.Context) error {
	defer s.wg.Wait()
	slots := make(chan struct{}, maxConns)
	for {
		conn, err := s.cfg.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("daemon: %w", err)
		}
		slots <- struct{}{}
		s.active.Add(1)
		s.wg.Go(func() {
			defer func() { conn.Close(); s.touch(); s.active.Add(-1); <-slots }()
			s.serve(ctx, conn)
		})
	}
}

func (s *server) serve(ctx context.Context, conn net.Conn) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		s.cfg.Logf("daemon: a client that is not on a Unix socket was refused")
		return
	}
	if err := checkPeer(uc, false); err != nil {
		s.cfg.Logf("%v", err)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(requestTime)) // without one, Read fails soon enough
	fields, err := readFields(conn, maxRequest)
	if err != nil {
		return // it went away, or is not a client
	}
	status, reply := "answer", Reply{}
	if req, rerr := readRequest(fields, s.cfg.Build); rerr != nil {
		err = rerr
	} else {
		_ = conn.SetDeadline(time.Now().Add(answerTime))
		reply, err = s.answer(ctx, req)
	}
	if err != nil {
		status, reply = "declined", Reply{Stderr: err.Error()}
	}
	_, _ = conn.Write(appendFields(nil, []byte(protocol), []byte(s.cfg.Build), []byte(status),
		strconv.AppendInt(nil, int64(reply.Exit), 10), reply.Stdout, []byte(reply.Stderr))) // a client that left decides by itself
}

// answer keeps a panic from ending the daemon: the client decides by itself.
func (s *server) answer(ctx context.Context, r Request) (reply Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("daemon: panic: %v", p)
			s.cfg.Logf("%v", err)
		}
	}()
	return s.cfg.Answer(context.WithoutCancel(ctx), r) // what began is finished
}

func readRequest(f [][]byte, build string) (Request, error) {
	if len(f) != 5 || string(f[0]) != protocol || string(f[1]) != build {
		return Request{}, errors.New("daemon: the client is of another version; end the daemon and start it anew")
	}
	args, err := split(f[2])
	if err != nil {
		return Request{}, err
	}
	env, err := split(f[3])
	return Request{Args: args, Env: env, Event: f[4]}, err
}
