// Package relay hands the event of a hook's process to a daemon that is running
// already: the process opens no database and reads no configuration, and the
// answer is there in the time that a program takes to start.
//
// It guarantees: Ask gives an answer only if the directory of the socket and
// the socket belong to this user and nobody else may write them, the process
// that listens is of this user and, on Linux, runs the very file that this
// process runs, and it answered whole, in time and for this build. In any
// other case there is no answer, and the caller decides by itself; no failure
// here lets a call pass.
//
// What it does not stop: a process of the same user that runs outside of a
// sandbox. It can listen at the socket itself and then become the real program
// while a child of it answers, which no check of the peer can see.
//
// It imports little: what package net and its like need is set up after this
// package, and a process whose event is answered does not wait for it (see
// Main).
package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SocketName is the name in the state directory.
const SocketName = "hook.sock"

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
	// Protocol is the first field of every message.
	Protocol = "cordon-hook/1"
	// MaxFields is the most fields of a message, and the longest list.
	MaxFields = 1 << 10
	// MaxRequest bounds one request: an event and what goes with it.
	MaxRequest = 10 << 20
	// MaxReply bounds one answer.
	MaxReply = 64 << 10
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
	fd, err := dial(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	conn := os.NewFile(uintptr(fd), path)
	if err := CheckPeer(fd, true); err != nil {
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
	conn    *os.File
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
	msg := AppendFields(nil, []byte(Protocol), []byte(c.build), Join(r.Args), Join(r.Env), r.Event)
	if len(msg) > MaxRequest {
		return Reply{}, fmt.Errorf("daemon: the request has %d bytes (want at most %d)", len(msg), MaxRequest)
	}
	if _, err := c.conn.Write(msg); err != nil {
		return Reply{}, fmt.Errorf("daemon: %w", err)
	}
	fields, err := ReadFields(c.conn, MaxReply)
	if err != nil {
		return Reply{}, err
	}
	return ReadReply(fields, c.build)
}

// ReadReply takes the fields of an answer, and believes an answer only if it is whole.
func ReadReply(f [][]byte, build string) (Reply, error) {
	if len(f) != 6 || string(f[0]) != Protocol || string(f[1]) != build {
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
