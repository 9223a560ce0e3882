package python

import (
	"context"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// TestWhatNothingSetsOffIsDoubtful: each program would read a key; the effect
// is certain where something can run the function.
func TestWhatNothingSetsOffIsDoubtful(t *testing.T) {
	const read = "open('/home/ann/.ssh/id_rsa')\n"
	for _, row := range []struct {
		name, src string
		certain   bool
	}{
		{"a function that is only defined", "def f():\n    " + read, false},
		{"a function that is called", "def f():\n    " + read + "f()\n", true},
		{"its name in a comment", "# f()\ndef f():\n    " + read, false},
		{"its name in the text of the module", "'call f'\ndef f():\n    " + read, false},
		{"its name in the list of exports", "__all__ = ['f']\ndef f():\n    " + read, false},
		{"its name in some other text", "def f():\n    " + read + "go('m:f')\n", true},
		{"handed to something unknown", "import x\ndef f():\n    " + read + "x.on(f)\n", true},
		{"a decorator that is not known", "import x\n@x\ndef f():\n    " + read, true},
		{"called by a function that is only defined", "def f():\n    " + read + "def g():\n    f()\n", false},
		{"called by a function that is handed on", "import x\ndef f():\n    " + read + "def g():\n    f()\nx(g)\n", true},
		{"a method of a class that nobody names", "class A:\n    def f(self):\n        " + read, false},
		{"the end of an object that is never made", "class A:\n    def __del__(self):\n        " + read, false},
		{"a special method of a class that is named", "import x\nclass A:\n    def __del__(self):\n        " + read + "x.keep(A)\n", true},
		{"a plain method of a class that is named", "import x\nclass A:\n    def f(self):\n        " + read + "x.keep(A)\n", false},
		{"a method of a class with a strange base", "import x\nclass A(x.B):\n    def f(self):\n        " + read, true},
		{"a method of a thread that is never made", "import threading\nclass A(threading.Thread):\n    def run(self):\n        " + read, false},
		{"a method of a thread that is made", "import threading\nclass A(threading.Thread):\n    def run(self):\n        " + read + "A().start()\n", true},
		{"a class made by a metaclass", "import x\nclass A(metaclass=x.M):\n    def __call__(self):\n        " + read, true},
		{"a class that its base notes down", "class B:\n    seen = []\n    def __init_subclass__(cls): B.seen.append(cls)\nclass A(B):\n    def __call__(self):\n        " + read + "B.seen[0]()()\n", true},
		{"found by walking over the subclasses", "class B: pass\nclass A(B):\n    def f(self):\n        " + read + "[c().f() for c in B.__subclasses__()]\n", true},
		{"found by a computed name", "import sys\ndef f():\n    " + read + "getattr(sys.modules[__name__], sys.argv[1])()\n", true},
		{"another found by a name that stands there", "import sys\ndef f():\n    " + read + "getattr(sys, 'maxsize', 0)\n", false},
		{"found among the global names", "def f():\n    " + read + "[*globals().values()][-1]()\n", true},
		{"a test", "def test_key():\n    " + read, true},
		{"a lambda in a function that is only defined", "def f():\n    return lambda: " + read, false},
		{"a lambda of the module", "import x\nx.y = lambda: " + read, true},
		{"a function in one that is only defined", "def f():\n    def g():\n        " + read + "    g()\n", false},
		{"a branch that never runs", "if 0:\n    " + read, false},
		{"a function called in such a branch and after it", "def f():\n    " + read + "if 0:\n    f()\nf()\n", true},
		{"the same in a function that runs", "def f():\n    " + read + "def g():\n    " + read + "g()\n", true},
		{"a name in other letters", "def f():\n    " + read + "ｆ()\n", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			found, certain := false, false
			for _, e := range Lower(context.Background(), row.src, testEnv) {
				if e.Kind == cordon.Read {
					found, certain = true, certain || !e.Doubtful
				}
			}
			if !found || certain != row.certain {
				t.Errorf("found %v, certain %v, want %v\n%s", found, certain, row.certain, row.src)
			}
		})
	}
}

// TestUnknownHostOfAnUncalledFunctionIsDropped: but not where data goes there.
func TestUnknownHostOfAnUncalledFunctionIsDropped(t *testing.T) {
	for src, want := range map[string]bool{
		"import socket\ndef f(h):\n    socket.create_connection((h, 80))\n":                             false,
		"import socket\ndef f(h):\n    socket.create_connection((h, 80))\nf(input())\n":                 true,
		"import requests\ndef f(u):\n    requests.post(u, data=open('/home/ann/.ssh/id_rsa').read())\n": true,
	} {
		got := false
		for _, e := range Lower(context.Background(), src, testEnv) {
			got = got || e.Kind == cordon.Connect
		}
		if got != want {
			t.Errorf("connects %v, want %v:\n%s", got, want, src)
		}
	}
}

// TestRightsAreGivenUp: only root's id, or a device, is a gain that is certain.
func TestRightsAreGivenUp(t *testing.T) {
	for src, want := range map[string]string{
		"import os; os.setuid(0)":                              "certain",
		"import os; os.setgroups([0])":                         "certain",
		"import os; os.setuid(65534)":                          "doubtful",
		"import os, pwd; os.setuid(pwd.getpwnam('x').pw_uid)":  "doubtful",
		"import os, stat; os.mknod('d', stat.S_IFBLK | 0o600)": "certain",
		"import os, sys; os.mknod('d', int(sys.argv[1]))":      "doubtful",
		"import os; os.mknod('p', 0o644)":                      "",
	} {
		got := ""
		for _, e := range Lower(context.Background(), src, testEnv) {
			if e.Kind == cordon.Privilege {
				if got = "certain"; e.Doubtful {
					got = "doubtful"
				}
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
}
