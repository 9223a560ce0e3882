//go:build integration

package ecosystem

import (
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The hosts are those that the machine's own tools name.
func TestRealTools(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Home: home, Env: os.Getenv, Workspaces: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ecosystem, program string
		args               []string
	}{
		{"npm", "npm", []string{"config", "get", "registry"}},
		{"go", "go", []string{"env", "GOPROXY"}},
		{"apt", "apt-get", []string{"indextargets", "--format", "$(REPO_URI)"}},
	} {
		t.Run(c.ecosystem, func(t *testing.T) {
			path, err := exec.LookPath(c.program)
			if err != nil {
				t.Skipf("%s is not installed: %v", c.program, err)
			}
			cmd := exec.Command(path, c.args...)
			cmd.Dir = "/"
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{}
			for word := range strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == ',' || r == '|' || r <= ' ' }) {
				if u, err := url.Parse(word); err == nil && u.Hostname() != "" {
					want[u.Hostname()] = true
				}
			}
			if len(want) == 0 {
				t.Fatalf("%s named no host: %s", c.program, out)
			}
			hosts, problems := r.Resolve(t.Context(), []string{c.ecosystem})
			got := map[string]bool{}
			for _, h := range hosts {
				if !strings.HasPrefix(h.Why, "go: GOSUMDB") {
					got[h.Host] = true
				}
			}
			for h := range want {
				if !got[h] {
					t.Errorf("%s goes to %s, which was not found; problems %v", c.program, h, problems)
				}
			}
			for h := range got {
				if !want[h] {
					t.Errorf("%s was found, but %s does not name it", h, c.program)
				}
			}
		})
	}
}

// A tool that is asked leaves nothing in the user's home.
func TestAskingLeavesNothingInTheHome(t *testing.T) {
	home := t.TempDir()
	r, err := New(Config{Home: home, Env: func(name string) string {
		if name == "PATH" {
			return os.Getenv(name)
		}
		return ""
	}, Workspaces: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if hosts, problems := r.Resolve(t.Context(), Names()); len(hosts) == 0 {
		t.Fatalf("no host was found: %v", problems)
	}
	left, err := os.ReadDir(home)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the home: %v, %v", left, err)
	}
}
