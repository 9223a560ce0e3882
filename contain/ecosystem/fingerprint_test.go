package ecosystem

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func (w *world) fingerprint(name string) string {
	w.t.Helper()
	r, err := New(Config{Home: w.home, Env: func(k string) string { return w.env[k] }, Workspaces: []string{w.work}, Root: w.root})
	if err != nil {
		w.t.Fatal(err)
	}
	fp, err := r.Fingerprint(name)
	if err != nil || fp == "" {
		w.t.Fatalf("fingerprint %q, %v", fp, err)
	}
	return fp
}

func TestAFingerprintFollowsWhatTheToolGoesBy(t *testing.T) {
	for _, c := range []struct {
		name, ecosystem string
		change          func(w *world)
		same            bool
	}{
		{name: "the user's npmrc appears", ecosystem: "npm", change: func(w *world) { w.file("~/.npmrc", "registry=https://x.test\n") }},
		{name: "a file in the workspace changes nothing", ecosystem: "npm", same: true, change: func(w *world) { w.file("work/.npmrc", "registry=https://x.test\n") }},
		{name: "npm's configuration in another place", ecosystem: "npm", change: func(w *world) { w.env["npm_config_userconfig"] = w.file("~/other", "x") }},
		{name: "a registry in the environment", ecosystem: "npm", change: func(w *world) { w.env["NPM_CONFIG_REGISTRY"] = "https://x.test" }},
		{name: "the file beside the program", ecosystem: "npm", change: func(w *world) { w.file("bin/../etc/npmrc", "x") }},
		{name: "another program", ecosystem: "npm", change: func(w *world) { w.tool("npm", `{"registry": "https://other.test"}`) }},
		{name: "a program that is taken away", ecosystem: "npm", change: func(w *world) { os.Remove(filepath.Join(w.bin, "npm")) }},
		{name: "a file that was written again", ecosystem: "go", change: func(w *world) {
			path := w.file("~/.config/go/env", "GOPROXY=a")
			old := w.fingerprint("go")
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
				w.t.Fatal(err)
			}
			if w.fingerprint("go") == old {
				w.t.Error("the same after it was written")
			}
		}},
		{name: "GOPROXY in the environment", ecosystem: "go", change: func(w *world) { w.env["GOPROXY"] = "https://x.test" }},
		{name: "a variable that go does not go by", ecosystem: "go", same: true, change: func(w *world) { w.env["EDITOR"] = "vi" }},
		{name: "the home becomes a workspace", ecosystem: "go", change: func(w *world) { w.work = w.home }},
		{name: "another workspace", ecosystem: "go", same: true, change: func(w *world) { w.work = w.root }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.tool("npm", "{}")
			w.tool("go", "{}")
			before := w.fingerprint(c.ecosystem)
			c.change(w)
			if after := w.fingerprint(c.ecosystem); (before == after) != c.same {
				t.Errorf("before %s, after %s", before, after)
			}
		})
	}
}

func TestOnlyWhatIsAskedHasAFingerprint(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pip", "apt", "", "cobol"} {
		if fp, err := r.Fingerprint(name); err == nil {
			t.Errorf("%q has %q", name, fp)
		}
	}
}
