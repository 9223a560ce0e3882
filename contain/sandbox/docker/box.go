package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/meter"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
)

// patience is how long the engine may take over a kill.
const patience = 30 * time.Second

// box is one container.
type box struct {
	r    *Runtime
	id   string
	conn client.HijackedResponse
	out  *io.PipeReader
	said inside.Tail
	// done is closed when the container was removed, died when the engine has
	// told all that happened in it.
	done, died chan struct{}
	oom        atomic.Bool
	cancel     context.CancelFunc
	pid        int
	empty      string // a directory to remove in the end, or ""
}

// box makes a container and starts it. On an error nothing is left.
func (r *Runtime) box(ctx context.Context, o client.ContainerCreateOptions, empty string) (_ inside.Box, err error) {
	r.sweep(ctx)
	made, err := r.api.ContainerCreate(ctx, o)
	if err != nil {
		return nil, explain("make a container", err)
	}
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &box{r: r, id: made.ID, done: make(chan struct{}), died: make(chan struct{}), cancel: cancel, empty: empty}
	defer func() {
		if err != nil {
			cancel()
			late, cancelLate := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancelLate()
			err = errors.Join(err, r.remove(late, made.ID))
		}
	}()
	attached, err := r.api.ContainerAttach(watch, b.id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, explain("attach", err)
	}
	b.conn = attached.HijackedResponse
	b.listen(watch)
	gone := r.api.ContainerWait(watch, b.id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	if _, err := r.api.ContainerStart(ctx, b.id, client.ContainerStartOptions{}); err != nil {
		b.conn.Close()
		return nil, explain("start the container", err)
	}
	if at, err := r.api.ContainerInspect(ctx, b.id, client.ContainerInspectOptions{}); err == nil && at.Container.State != nil {
		b.pid = at.Container.State.Pid
	}
	reader, writer := io.Pipe()
	b.out = reader
	go func() {
		_, err := stdcopy.StdCopy(writer, &b.said, b.conn.Reader)
		writer.CloseWithError(err) // nil is the end
	}()
	go b.await(watch, gone)
	return b, nil
}

// await closes done when the container has gone. An engine that ends has
// killed it, or will find it ended: its first process has lost its wire.
func (b *box) await(ctx context.Context, gone client.ContainerWaitResult) {
	defer close(b.done)
	select {
	case <-gone.Result:
		return
	case <-gone.Error:
	}
	b.conn.Close()
	for range 50 { // the engine may be back
		at, cancel := context.WithTimeout(ctx, patience)
		_, err := b.r.api.ContainerInspect(at, b.id, client.ContainerInspectOptions{})
		cancel()
		if isMissing(err) || ctx.Err() != nil {
			return
		}
		if err == nil {
			b.Kill()
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprint(&b.said, "the engine was lost")
}

// listen hears from the engine what the kernel killed.
func (b *box) listen(ctx context.Context) {
	f := make(client.Filters).Add("type", "container").Add("container", b.id).Add("event", string(events.ActionOOM), string(events.ActionDie))
	heard := b.r.api.Events(ctx, client.EventsListOptions{Filters: f})
	go func() {
		defer close(b.died)
		for {
			select {
			case m := <-heard.Messages:
				switch m.Action {
				case events.ActionOOM:
					b.oom.Store(true)
				case events.ActionDie:
					return
				}
			case <-heard.Err:
				return
			}
		}
	}()
}

// Wire is the attached connection.
func (b *box) Wire() (io.WriteCloser, io.Reader) { return b.conn.Conn, b.out }

// Kill asks the engine; what the engine cannot do it may be asked again.
func (b *box) Kill() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := b.r.api.ContainerKill(ctx, b.id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			_ = b.r.remove(ctx, b.id)
		}
	}()
}

func (b *box) Done() <-chan struct{} { return b.done }

// Usage is told by the first process.
func (b *box) Usage() sandbox.Stats { return sandbox.Stats{} }

// OutOfMemory waits, after the end, for the engine to have told all.
func (b *box) OutOfMemory() bool {
	select {
	case <-b.done:
		select {
		case <-b.died:
		case <-time.After(time.Second):
		}
	default:
	}
	return b.oom.Load()
}

// Processes of an engine on this host.
func (b *box) Processes() []int {
	select {
	case <-b.done:
		return nil
	default:
	}
	if b.pid <= 0 || b.r.sock == "" {
		return nil
	}
	return meter.Descendants(b.pid)
}

func (b *box) Said() string { return b.said.String() }

func (b *box) Release() {
	b.cancel()
	b.conn.Close()
	if b.empty != "" {
		_ = os.Remove(b.empty) // an empty directory does no harm
	}
}

// noVolume is that an overlay could not be mounted.
type noVolume struct{ sandbox.UnavailableError }

func (e *noVolume) Unwrap() error { return &e.UnavailableError }

// explain turns what the engine refused into what a person can do about it.
func explain(what string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "bind source path does not exist"):
		return &sandbox.UnavailableError{Runtime: Name, Why: "the engine does not see the paths of this machine (" + text + ")",
			Fix: "use an engine that runs here, or share the directory with its virtual machine"}
	case strings.Contains(text, "failed to mount local volume"):
		return &noVolume{sandbox.UnavailableError{Runtime: Name, Why: "the engine cannot mount an overlay of the workspace (" + text + ")",
			Fix: "keep Cordon's state on a file system that overlays can use (ext4, xfs, btrfs, tmpfs), use an engine that runs on this machine, or --runtime native"}}
	}
	return fmt.Errorf("docker: %s: %w", what, err)
}
