package inside

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/meter"
)

// Box is what a runtime has started: a sandbox whose first process is Main.
type Box interface {
	// Wire is its standard input and output.
	Wire() (io.WriteCloser, io.Reader)
	// Kill ends the whole tree. It returns at once and may be called again.
	Kill()
	// Done is closed when nothing of it is left.
	Done() <-chan struct{}
	// Usage is what it has used so far, as far as that is known; after Done
	// what it has used in all.
	Usage() sandbox.Stats
	// OutOfMemory tells whether the kernel killed in it for want of memory.
	OutOfMemory() bool
	// Processes are the process IDs of it on this host, or nil.
	Processes() []int
	// Said is what its first process and the runtime's own program wrote to
	// standard error, which is nothing unless they failed.
	Said() string
	// Release lets go of what is held for it, after Done.
	Release()
}

// Launch is one start.
type Launch struct {
	Runtime string
	Spec    sandbox.Spec
	Caps    sandbox.Caps
	// Scratch are the writable directories of memory inside.
	Scratch []string
	// Controls are the walls as they stand, by what was seen inside.
	Controls func(Seen) []sandbox.Held
	// Start builds the walls and starts the first process in them.
	Start func(context.Context) (Box, error)

	// proof is what the first process shows with what it says once the program
	// runs. A kernel that lets the program open the first process's own
	// descriptors must not let it say how it ended.
	proof string
}

// Process is a program that was started; it is a sandbox.Process.
type Process struct {
	l     *Launch
	box   Box
	began time.Time
	link  *link
	// streams are the program's own, as long as this process is there: the
	// wire may have ended before they are read.
	streams [firstConn]*stream
	// events arrive in order; closed when the wire has ended.
	events    chan event
	listeners []*listener
	controls  []sandbox.Held

	stdout, stderr *sandbox.Capped
	copiers        sync.WaitGroup
	watcher        sync.WaitGroup
	wall           *time.Timer
	stopContext    func() bool

	stop, ended chan struct{}
	result      sandbox.Result

	meter         meter.Meter
	scratch, disk atomic.Int64
	oomKills      atomic.Int64

	mu     sync.Mutex
	cause  error
	exit   *event
	linked error // how the wire ended
	used   sandbox.Stats
}

// Prepare checks a spec and fills in its caps, for any runtime of this kind.
// own are places inside that nothing of the host may be shown at.
func Prepare(runtime string, s sandbox.Spec, own []string) (sandbox.Spec, sandbox.Caps, error) {
	if err := s.Validate(); err != nil {
		return s, s.Caps, err
	}
	caps, err := s.Caps.WithDefaults()
	if err != nil {
		return s, caps, err
	}
	s.Dir = cmp.Or(s.Dir, "/")
	if !path.IsAbs(s.Dir) {
		return s, caps, fmt.Errorf("%s: working directory %q (want an absolute path)", runtime, s.Dir)
	}
	if len(s.Listen) > 0 && s.Accept == nil {
		return s, caps, fmt.Errorf("%s: addresses to listen on, but nothing to accept the listeners", runtime)
	}
	mounts := slices.DeleteFunc(slices.Clone(s.Mounts), func(m sandbox.Mount) bool {
		_, err := os.Lstat(m.Source)
		return m.Optional && errors.Is(err, os.ErrNotExist)
	})
	for i := range mounts {
		m := &mounts[i]
		m.Source, m.Target = path.Clean(m.Source), path.Clean(m.Target)
		if m.Target == "/" {
			return s, caps, fmt.Errorf("%s: a mount at / (the root is the sandbox's own)", runtime)
		}
		for _, o := range append([]string{Path, "/proc", "/sys", "/dev"}, own...) {
			if Within(m.Target, o) {
				return s, caps, fmt.Errorf("%s: a mount at %s (%s is the sandbox's own)", runtime, m.Target, o)
			}
		}
	}
	// Outer ones first.
	slices.SortStableFunc(mounts, func(a, b sandbox.Mount) int {
		return cmp.Compare(strings.Count(a.Target, "/"), strings.Count(b.Target, "/"))
	})
	s.Mounts = mounts
	return s, caps, nil
}

// Within tells whether path is dir or below it; both are clean.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Run starts the program. On an error nothing is left.
func (l *Launch) Run(ctx context.Context) (*Process, error) {
	p := &Process{l: l, began: time.Now(), events: make(chan event, 16), stop: make(chan struct{}), ended: make(chan struct{})}
	for _, m := range l.Spec.Mounts {
		if m.Access == sandbox.Overlay {
			p.meter.Add(m.Upper)
		}
	}
	box, err := l.Start(ctx)
	if err != nil {
		return nil, err
	}
	p.box = box
	p.stopContext = context.AfterFunc(ctx, func() { p.Kill(context.Cause(ctx)) })
	p.wall = time.AfterFunc(l.Caps.Wall, func() { p.Kill(sandbox.ErrTimeout) })
	if err := p.handshake(); err != nil {
		if cause := p.killedFor(); cause != nil {
			err = cause
		}
		p.Kill(err)
		go discard(p.events)
		<-box.Done()
		p.stopContext()
		p.wall.Stop()
		box.Release()
		return nil, err
	}
	p.stdout = sandbox.NewCapped(l.Spec.Stdout, l.Caps.OutputBytes)
	p.stderr = sandbox.NewCapped(l.Spec.Stderr, l.Caps.OutputBytes)
	p.copy(p.stdout, p.streams[streamOut])
	p.copy(p.stderr, p.streams[streamErr])
	go feed(p.streams[streamIn], l.Spec.Stdin)
	p.watcher.Go(p.watch)
	go p.finish()
	return p, nil
}

func discard(events <-chan event) {
	for range events {
	}
}

// handshake sends the plan, hears what is seen inside, and starts the program.
func (p *Process) handshake() error {
	s, l := p.l.Spec, p.l
	if l.proof == "" {
		l.proof = rand.Text()
	}
	in, out := p.box.Wire()
	p.link = newLink(out, in)
	for id := range p.streams {
		p.streams[id] = p.link.stream(uint32(id))
	}
	p.link.control = func(k kind, payload []byte) error {
		var e event
		if k != kEvent || json.Unmarshal(payload, &e) != nil {
			return broken("no event")
		}
		if (e.Kind == "use" || e.Kind == "exit") && e.Proof != l.proof {
			return broken("word of %q that is not the first process's", e.Kind)
		}
		if e.Kind == "use" {
			p.use(&e)
			return nil
		}
		select {
		case p.events <- e:
			return nil
		default:
			return broken("too many events")
		}
	}
	for _, addr := range s.Listen {
		p.listeners = append(p.listeners, newListener(addr))
	}
	p.link.opened = func(index int, c *stream) error {
		if index >= len(p.listeners) {
			return broken("a connection to address %d of %d", index, len(p.listeners))
		}
		if !p.listeners[index].offer(c) {
			p.link.refuse(c)
		}
		return nil
	}
	go func() {
		err := p.link.run()
		p.mu.Lock()
		p.linked = err
		p.mu.Unlock()
		if errors.Is(err, errProtocol) {
			p.Kill(err)
		}
		for _, one := range p.listeners {
			one.Close()
		}
		close(p.events)
		_, _ = io.Copy(io.Discard, out)
	}()
	pl := plan{
		Argv: s.Argv, Env: s.Env, Dir: s.Dir, FileBytes: l.Caps.FileBytes, OpenFiles: l.Caps.OpenFiles,
		Listen: s.Listen, TTY: s.TTY, Rows: s.Rows, Cols: s.Cols, Scratch: l.Scratch, Proof: l.proof,
	}
	for _, m := range s.Mounts {
		if m.Access != sandbox.ReadOnly {
			pl.Writable = append(pl.Writable, m.Target)
		}
	}
	switch err := p.link.sendJSON(kPlan, pl); {
	case errors.Is(err, errTooLong):
		return err
	case err != nil: // it is gone, and how is told by its end
		p.box.Kill()
	}
	e, ok := <-p.events
	switch {
	case !ok:
		<-p.box.Done()
		return p.early()
	case e.Kind == "error":
		return startError(l.Runtime, &e)
	case e.Kind != "ready" || e.Seen == nil:
		return broken("no word that the walls stand")
	}
	p.controls = l.Controls(*e.Seen)
	if missing := sandbox.Missing(s.Require, p.controls); len(missing) > 0 {
		return &sandbox.RequiredError{Runtime: l.Runtime, Missing: missing}
	}
	for i, addr := range s.Listen {
		s.Accept(addr, p.listeners[i])
	}
	return p.link.send(kGo, 0, nil)
}

// EarlyError is that the first process inside never came to its word.
type EarlyError struct {
	Runtime, Said string
	OutOfMemory   bool
}

func (e *EarlyError) Error() string {
	text := e.Runtime + ": the first process inside ended before the program began"
	if e.OutOfMemory {
		text += ", for want of memory"
	}
	if e.Said != "" {
		text += ": " + e.Said
	}
	return text
}

func (p *Process) early() error {
	return &EarlyError{Runtime: p.l.Runtime, Said: p.box.Said(), OutOfMemory: p.box.OutOfMemory()}
}

func startError(runtime string, e *event) error {
	if e.Errno != 0 {
		return fmt.Errorf("%s: %s: %s: %w", runtime, e.Step, e.Error, syscall.Errno(e.Errno))
	}
	return fmt.Errorf("%s: %s: %s", runtime, e.Step, e.Error)
}

// Kill ends the whole tree and keeps cause for the Result. Nothing happens
// after the first call, or after the program's own end.
func (p *Process) Kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause != nil || p.exit != nil {
		return
	}
	if cause == nil {
		cause = fmt.Errorf("%s: killed", p.l.Runtime)
	}
	p.cause = cause
	p.box.Kill()
}

// Resize tells the program's terminal its size; without one it does nothing.
func (p *Process) Resize(rows, cols uint16) {
	if p.l.Spec.TTY {
		size := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), cols)
		_ = p.link.send(kResize, 0, size) // a program that has ended has no terminal
	}
}

func (p *Process) killedFor() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// Ended is closed when Wait has its result.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait returns when the tree has ended and all its output has been written.
func (p *Process) Wait() (sandbox.Result, error) {
	<-p.ended
	return p.result, nil
}

func (p *Process) copy(w *sandbox.Capped, s *stream) {
	p.copiers.Go(func() {
		// Where it is the writer that fails, the program's next write fails
		// too, as it would without walls.
		if _, _ = io.Copy(w, onlyReader{s}); w.Err() != nil {
			s.Close()
		}
	})
}

// feed gives the program its input and then its end. Nobody waits for it: a
// terminal's Read may never return.
func feed(s *stream, r io.Reader) {
	if r != nil {
		_, _ = io.Copy(onlyWriter{s}, onlyReader{r}) // the program may not want it
	}
	_ = s.CloseWrite()
}

// onlyWriter and onlyReader hide descriptors: io.Copy would splice between
// them, and then block where it cannot be ended.
type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }

// use takes what the first process tells about what is used.
func (p *Process) use(e *event) {
	p.scratch.Store(max(e.ScratchBytes, 0))
	p.oomKills.Store(max(e.OOMKills, p.oomKills.Load()))
	p.merge(e.Stats)
}

// merge keeps the newer of what is used now, and the most of what adds up.
func (p *Process) merge(s sandbox.Stats) sandbox.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := &p.used
	if s.MemoryBytes > 0 || s.PIDs > 0 {
		u.MemoryBytes, u.PIDs = s.MemoryBytes, s.PIDs
	}
	u.CPU, u.PeakBytes = max(u.CPU, s.CPU), max(u.PeakBytes, s.PeakBytes, s.MemoryBytes)
	return *u
}

// exitGrace is how long the first process may take to end after its word.
const exitGrace = 2 * time.Second

// finish waits for the end and says what became of it.
func (p *Process) finish() {
	var grace *time.Timer
	for e := range p.events {
		p.mu.Lock()
		first := e.Kind == "exit" && p.cause == nil && p.exit == nil
		if first {
			p.exit = &e
		}
		p.mu.Unlock()
		if first {
			p.use(&e)
			grace = time.AfterFunc(exitGrace, p.box.Kill)
		}
	}
	if grace == nil { // the wire has ended: what is left has lost its supervisor
		grace = time.AfterFunc(exitGrace, p.box.Kill)
	}
	<-p.box.Done()
	grace.Stop()
	close(p.stop)
	p.watcher.Wait()
	wall := time.Since(p.began)
	p.copiers.Wait()
	p.meter.Walk(p.l.Caps.DiskBytes, nil) // what was written between two looks counts too
	p.disk.Store(p.meter.Bytes() + p.scratch.Load())
	p.result = p.outcome(wall)
	p.stopContext()
	p.wall.Stop()
	in, _ := p.box.Wire()
	in.Close()
	p.box.Release()
	close(p.ended)
}

func (p *Process) outcome(wall time.Duration) sandbox.Result {
	stats := p.merge(p.box.Usage())
	stats.DiskBytes, stats.PIDs, stats.MemoryBytes = p.disk.Load(), 0, 0
	r := sandbox.Result{Wall: wall, Stats: stats, StdoutCut: p.stdout.Cut(), StderrCut: p.stderr.Cut(), Controls: p.controls}
	r.OutputErr = errors.Join(p.stdout.Err(), p.stderr.Err())
	p.mu.Lock()
	exit, cause, linked := p.exit, p.cause, p.linked
	p.mu.Unlock()
	r.ExitCode, r.Signal = 128+int(syscall.SIGKILL), int(syscall.SIGKILL)
	switch {
	case exit != nil:
		r.ExitCode, r.Signal = exit.Code, exit.Signal
		r.User, r.System = time.Duration(exit.User), time.Duration(exit.System)
		r.Cause = p.capReached(exit.Signal)
	case cause != nil:
		r.Cause = cause
	default:
		if r.Cause = p.capReached(0); r.Cause == nil {
			r.Cause = fmt.Errorf("%s: the sandbox ended without a result (%v): %s", p.l.Runtime, linked, p.box.Said())
		}
	}
	if r.Stats.CPU > r.User+r.System {
		// What was not reaped inside counts by the runtime's word.
		r.System = r.Stats.CPU - r.User
	}
	r.Stats.CPU = r.User + r.System
	return r
}

// capReached tells whether what ended by itself did so over a cap.
func (p *Process) capReached(signal int) error {
	switch {
	case p.outOfMemory():
		return sandbox.ErrMemory
	case p.disk.Load() > p.l.Caps.DiskBytes || signal == int(sigXFSZ):
		return sandbox.ErrDisk
	}
	return nil
}

func (p *Process) outOfMemory() bool { return p.oomKills.Load() > 0 || p.box.OutOfMemory() }

// sigXFSZ has this number on every Linux, and is not in every syscall package.
const sigXFSZ = syscall.Signal(25)

// lookEvery is the time between two looks at what is used.
const lookEvery = 50 * time.Millisecond

// watch kills what is over a cap that the kernel does not hold by itself.
func (p *Process) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
		}
		if cause := p.look(); cause != nil {
			p.Kill(cause)
			return
		}
	}
}

func (p *Process) look() error {
	if p.meter.Due(p.l.Caps.DiskBytes - p.meter.Bytes()) {
		p.meter.Walk(p.l.Caps.DiskBytes, p.box.Processes())
	}
	p.disk.Store(p.meter.Bytes() + p.scratch.Load())
	p.merge(p.box.Usage())
	if p.disk.Load() > p.l.Caps.DiskBytes {
		return sandbox.ErrDisk
	}
	if p.outOfMemory() {
		return sandbox.ErrMemory
	}
	return nil
}

// Stats is what has been used so far.
func (p *Process) Stats() sandbox.Stats {
	s := p.merge(p.box.Usage())
	s.DiskBytes = p.disk.Load()
	return s
}
