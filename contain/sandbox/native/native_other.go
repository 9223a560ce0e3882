//go:build !linux

package native

import (
	"context"
	"runtime"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

// Main does nothing here: there is no stage to become.
func Main() {}

// Runtime refuses: its walls are those of the Linux kernel.
type Runtime struct{}

var _ sandbox.Runtime = (*Runtime)(nil)

// New returns a runtime that refuses every Start.
func New(Config) (*Runtime, error) { return &Runtime{}, nil }

// Name is "native".
func (*Runtime) Name() string { return Name }

func unavailable() *sandbox.UnavailableError {
	return &sandbox.UnavailableError{
		Runtime: Name, Why: "it needs the Linux kernel, this is " + runtime.GOOS, Fix: "use --runtime docker",
	}
}

// Probe reports why the runtime cannot be used.
func (*Runtime) Probe(context.Context) sandbox.Report {
	e := unavailable()
	return sandbox.Report{Runtime: Name, Why: e.Why, Fix: e.Fix}
}

// Look reports the same.
func (r *Runtime) Look(ctx context.Context) sandbox.Report { return r.Probe(ctx) }

// Start is a sandbox.UnavailableError.
func (*Runtime) Start(context.Context, sandbox.Spec) (sandbox.Process, error) {
	return nil, unavailable()
}

// Close has nothing to release.
func (*Runtime) Close() error { return nil }
