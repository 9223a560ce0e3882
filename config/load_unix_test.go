//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// What lies in the place of the user's file without being one must not hold up
// every door, nor count as no file.
func TestAPipeInThePlaceOfTheUsersFileIsAnError(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "cordon", "cordon.yaml")
	if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(v string) (string, bool) {
		if v == "XDG_CONFIG_HOME" {
			return dir, true
		}
		return "", false
	}
	if _, err := Load(Input{Getenv: env}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error %v", err)
	}
}

func TestAPipeThatIsNamedIsRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(name, []byte("tier: intern\n"), 0o600) }()
	c, err := Load(Input{File: name})
	if err != nil || c.Tier() != cordon.Intern {
		t.Errorf("%v, %v", c, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}
