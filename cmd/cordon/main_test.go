package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cordon": main, "fakemcp": fakeMCP, "flipbyte": flipByte})
}

// The scripts drive the real binary: what a user types, and what is printed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
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
