package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox/native"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	native.Main() // a sandbox's stages are this binary too
	testscript.Main(m, map[string]func(){"cordon": main, "fakemcp": fakeMCP, "flipbyte": flipByte})
}

// condition "walls" holds where this host lets the native runtime start. In CI
// it must.
func condition(name string) (bool, error) {
	if name != "walls" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	r, err := native.New(native.Config{})
	if err != nil {
		return false, err
	}
	defer r.Close()
	report := r.Probe(context.Background())
	if !report.Available && os.Getenv("CI") == "true" {
		return false, fmt.Errorf("the native runtime is not available here: %s", report.Why)
	}
	return report.Available, nil
}

// The scripts drive the real binary: what a user types, and what is printed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:       "testdata/script",
		Condition: condition,
		Setup: func(env *testscript.Env) error {
			home := env.WorkDir + "/home"
			env.Setenv("HOME", home)
			env.Setenv("WS", home+"/ws")
			env.Setenv("XDG_STATE_HOME", env.WorkDir+"/state")
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/config")
			for _, dir := range []string{home + "/ws/src", home + "/.ssh"} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			if err := os.WriteFile(home+"/.ssh/id_rsa", []byte("KEY\n"), 0o600); err != nil {
				return err
			}
			return os.Symlink(home+"/.ssh", home+"/ws/out")
		},
	})
}
