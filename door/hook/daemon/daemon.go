// Package daemon answers the events of hooks' processes over a Unix socket, so
// that they need not open a database and read a configuration each: package
// relay is their side.
//
// It guarantees: Serve answers this user's processes only, bounded in number,
// size and time, and has no command but to judge an event: nothing is
// approved, released or stopped through it.
//
// What it does not stop: a process of the same user that runs outside of a
// sandbox. It can connect and have events judged, as it could start Cordon by
// hand. The socket's directory is among the paths that the guard refuses to
// tools; what a program does behind a permitted command is for a sandbox to
// hold, where the directory is not there.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon/door/hook/daemon/relay"
)

// What is asked and answered, and where: see package relay.
type (
	Request = relay.Request
	Reply   = relay.Reply
)

// SocketName and LockName are the names in the state directory.
const (
	SocketName = relay.SocketName
	LockName   = "hook.lock"
)

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
	if err := checkPeer(uc); err != nil {
		s.cfg.Logf("%v", err)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(requestTime)) // without one, Read fails soon enough
	fields, err := relay.ReadFields(conn, relay.MaxRequest)
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
	_, _ = conn.Write(relay.AppendFields(nil, []byte(relay.Protocol), []byte(s.cfg.Build), []byte(status),
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
	if len(f) != 5 || string(f[0]) != relay.Protocol || string(f[1]) != build {
		return Request{}, errors.New("daemon: the client is of another version; end the daemon and start it anew")
	}
	args, err := relay.Split(f[2])
	if err != nil {
		return Request{}, err
	}
	env, err := relay.Split(f[3])
	return Request{Args: args, Env: env, Event: f[4]}, err
}

// checkPeer refuses a peer of another user.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	cerr := raw.Control(func(fd uintptr) { err = relay.CheckPeer(int(fd), false) })
	if cerr != nil {
		return fmt.Errorf("daemon: %w", cerr)
	}
	return err
}

// CheckDir reports whether the directory belongs to this user and nobody else
// may write it.
func CheckDir(dir string) error { return relay.CheckDir(dir) }

// Identity names the present state of a file: see package relay.
func Identity(path string) string { return relay.Identity(path) }

// ThisBuild names the file that this process runs.
func ThisBuild() (string, error) { return relay.ThisBuild() }
