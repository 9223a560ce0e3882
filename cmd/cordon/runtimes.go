package main

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/docker"
	"github.com/cordon-sandbox/cordon/contain/sandbox/gvisor"
	"github.com/cordon-sandbox/cordon/contain/sandbox/native"
)

// runtimes are what --runtime takes, the strongest first: a kernel of its own
// before the host's, and of those that share it the one with more walls.
var runtimes = []struct {
	name string
	open func(state string) (sandbox.Runtime, error)
}{
	{gvisor.Name, func(state string) (sandbox.Runtime, error) {
		return gvisor.New(gvisor.Config{StateDir: filepath.Join(state, gvisor.Name)})
	}},
	{native.Name, func(state string) (sandbox.Runtime, error) {
		return native.New(native.Config{StateDir: filepath.Join(state, native.Name)})
	}},
	{docker.Name, func(string) (sandbox.Runtime, error) { return docker.New(docker.Config{}) }},
}

func runtimeNames() string {
	var names []string
	for _, r := range runtimes {
		names = append(names, r.name)
	}
	return strings.Join(names, ", ")
}

// fits tells whether --runtime auto may take a runtime.
func fits(r sandbox.Report) bool { return r.Available && r.Unfit == "" }

// openRuntime opens the runtime of that name; "auto" is the strongest that
// this host can start ordinary programs in.
func openRuntime(name, state string) (sandbox.Runtime, error) {
	for _, r := range runtimes {
		if name == r.name {
			return r.open(state)
		}
	}
	if name != "auto" {
		return nil, usagef("runtime %q is none of Cordon's yet (want %s or auto)", name, runtimeNames())
	}
	var why []string
	for _, r := range runtimes {
		runtime, err := r.open(state)
		if err != nil {
			return nil, err
		}
		report := runtime.Look(context.Background())
		if fits(report) {
			return runtime, nil
		}
		why = append(why, report.Runtime+": "+cmp.Or(report.Why, report.Unfit))
		if err := runtime.Close(); err != nil {
			return nil, err
		}
	}
	return nil, &sandbox.UnavailableError{Runtime: name, Why: strings.Join(why, "; "), Fix: "see: cordon doctor"}
}
