package inside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

// found is what the program of a probe saw inside.
type found struct {
	Status map[string]string // of /proc/self/status
	// Errnos of what must fail; 0 is that it did not.
	Mount, Unshare, Ptrace, WriteRoot int
	Processes, Interfaces             int
	OverlayErr                        string
	// Stat is the errno of stat as C libraries and coreutils ask for it.
	Stat int
}

const overlayAt = "/mnt/overlay"

// Prober tries a runtime's controls for real.
type Prober struct {
	Runtime string
	Start   func(context.Context, sandbox.Spec) (sandbox.Process, error)
	// Dir is a directory of the host for a trial overlay.
	Dir string
}

// Probe starts programs that try each control, and reports what held.
func (p *Prober) Probe(ctx context.Context) sandbox.Report {
	report := p.Look(ctx)
	if report.Available {
		p.caps(ctx, report.Controls)
	}
	return report
}

// Look starts one program that looks around.
func (p *Prober) Look(ctx context.Context) sandbox.Report {
	report := sandbox.Report{Runtime: p.Runtime}
	dir, err := os.MkdirTemp(p.Dir, "cordon-probe-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		report.Why, report.Fix = err.Error(), "give the runtime a directory that can be written"
		return report
	}
	defer os.RemoveAll(dir)
	held, in, err := p.walls(ctx, dir)
	if err != nil {
		report.Why = err.Error()
		var u *sandbox.UnavailableError
		if errors.As(err, &u) {
			report.Why, report.Fix = u.Why, u.Fix
		}
		return report
	}
	report.Available, report.Controls = true, held
	if in.Stat != 0 {
		report.Unfit = "its kernel refuses stat with AT_NO_AUTOMOUNT, so that ls, stat and others of coreutils fail"
	}
	return report
}

func probeSpec(what string) sandbox.Spec {
	return sandbox.Spec{ID: "probe", Argv: []string{Path, what}, Env: []string{"PATH=/usr/bin:/bin"}, Caps: sandbox.Caps{Wall: 20 * time.Second}}
}

func (p *Prober) run(ctx context.Context, s sandbox.Spec) (sandbox.Result, error) {
	proc, err := p.Start(ctx, s)
	if err != nil {
		return sandbox.Result{}, err
	}
	return proc.Wait()
}

func (p *Prober) walls(ctx context.Context, dir string) (_ []sandbox.Held, in found, _ error) {
	overlay := sandbox.Mount{Source: dir + "/lower", Target: overlayAt, Access: sandbox.Overlay, Upper: dir + "/upper", Work: dir + "/work"}
	for _, d := range []string{overlay.Source, overlay.Upper, overlay.Work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, in, err
		}
	}
	s := probeSpec("look")
	var out, errs bytes.Buffer
	s.Mounts, s.Stdout, s.Stderr = []sandbox.Mount{overlay}, &out, &errs
	note := ""
	res, err := p.run(ctx, s)
	if err != nil && ctx.Err() == nil {
		// Without the overlay, which not every file system can carry.
		note = err.Error()
		s.Mounts = nil
		res, err = p.run(ctx, s)
	}
	if err != nil {
		return nil, in, err
	}
	if err := json.Unmarshal(out.Bytes(), &in); err != nil {
		return nil, in, fmt.Errorf("%s: the probe inside ended with %d (%v) and said %q", p.Runtime, res.ExitCode, res.Cause, errs.String())
	}
	if note != "" {
		res.Controls = append(res.Controls, sandbox.Held{Control: sandbox.OverlayFS, Note: note})
	} else if _, err := os.Lstat(overlay.Source + "/changed"); err == nil {
		in.OverlayErr = "a change came through to the lower directory"
	} else if _, err := os.Lstat(overlay.Upper + "/changed"); err != nil && in.OverlayErr == "" {
		in.OverlayErr = "a change did not come to the upper directory"
	}
	return contradict(res.Controls, in), in, nil
}

// contradict takes back what was claimed where the look inside shows
// something else.
func contradict(held []sandbox.Held, in found) []sandbox.Held {
	refused := func(what string, errno int) string {
		if errno == 0 {
			return what + " was not refused"
		}
		return ""
	}
	for i, h := range held {
		var seen string
		switch h.Control {
		case sandbox.PIDNS:
			if in.Processes > 2 {
				seen = "other processes can be seen"
			}
		case sandbox.NetNS:
			if in.Interfaces != 1 {
				seen = fmt.Sprintf("%d network devices instead of loopback alone", in.Interfaces)
			}
		case sandbox.PrivateFS:
			seen = refused("a file in the root", in.WriteRoot)
		case sandbox.OverlayFS:
			seen = in.OverlayErr
		case sandbox.NoCaps:
			if got := in.Status["CapEff"]; strings.Trim(got, "0") != "" {
				seen = "CapEff is " + got
			}
			seen += refused("a mount", in.Mount)
		case sandbox.Seccomp:
			seen = refused("unshare", in.Unshare) + refused("ptrace", in.Ptrace)
		}
		if seen != "" && h.State == sandbox.Enforced {
			held[i].State, held[i].Note = sandbox.Absent, "tried and not held: "+seen
		}
	}
	return held
}

// caps breaks each cap once.
func (p *Prober) caps(ctx context.Context, held []sandbox.Held) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	try := func(c sandbox.Control, what string, caps sandbox.Caps, ended func(sandbox.Result) bool) {
		wg.Go(func() {
			s := probeSpec(what)
			s.Caps = caps
			res, err := p.run(ctx, s)
			if err == nil && ended(res) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			i := slices.IndexFunc(held, func(h sandbox.Held) bool { return h.Control == c })
			if i < 0 || held[i].State == sandbox.Absent {
				return
			}
			held[i].Note = strings.TrimPrefix(fmt.Sprintf("%s; tried and not held (exit %d, cause %v, error %v)", held[i].Note, res.ExitCode, res.Cause, err), "; ")
			held[i].State = sandbox.Absent
		})
	}
	by := func(cause error) func(sandbox.Result) bool {
		return func(r sandbox.Result) bool { return errors.Is(r.Cause, cause) }
	}
	const wall = 30 * time.Second
	try(sandbox.MemoryCap, "memory", sandbox.Caps{MemoryBytes: 128 << 20, Wall: wall}, by(sandbox.ErrMemory))
	// A kernel of its own may end over it instead of refusing.
	try(sandbox.PIDsCap, "pids", sandbox.Caps{PIDs: 16, Wall: wall}, func(r sandbox.Result) bool { return r.ExitCode == 0 || r.Cause != nil })
	try(sandbox.DiskCap, "disk", sandbox.Caps{DiskBytes: 4 << 20, Wall: wall}, by(sandbox.ErrDisk))
	try(sandbox.WallCap, "wait", sandbox.Caps{Wall: time.Second}, func(r sandbox.Result) bool { return errors.Is(r.Cause, sandbox.ErrTimeout) })
	wg.Wait()
}
