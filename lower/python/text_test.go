package python

import (
	"context"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func lower(src string) []cordon.Effect { return Lower(context.Background(), src, testEnv) }

// starts tells whether the program os.system("uname") was found.
func starts(es []cordon.Effect) bool {
	for _, e := range es {
		if e.Kind == cordon.Execute && e.Target == "uname" {
			return true
		}
	}
	return false
}

func TestT10TextThatHidesCode(t *testing.T) {
	const code = `os.system("uname")`
	for name, src := range map[string]string{
		"a byte order mark":               "\ufeffimport os\n" + code,
		"a carriage return ends a line":   "import os # x\r" + code,
		"a carriage return and a comment": "import os\r# x\r\n" + code,
		"a form feed before a statement":  "import os\n\f" + code,
		"a form feed in the indentation":  "import os\nif 1:\n  \f  " + code,
		"a NUL between lines":             "import os\x00" + code,
		"a NUL at the end":                "import os\n" + code + "\x00",
		"a trailing question mark":        "import os\n" + code + "?",
		"leading spaces":                  "   import os\n   " + code,
		"leading tabs and blank lines":    "\n\n\t\timport os\n\t\t" + code,
		"a last line without an end":      "import os;" + code,
		"a continued line":                "import os\nos.\\\nsystem('uname')",
		"invalid bytes":                   "import os\n" + code + "\n# \xff\xfe",
		"python 2's print":                "import os\nprint os.popen('x').read(), " + code,
		"python 2's exceptions":           "import os\ntry:\n  " + code + "\nexcept OSError, e:\n  raise ValueError, 'x'",
		"python 2's numbers and strings":  "import os\nx = 0777L + 10L; y = ur'x'; z = `x`; w = x <> 1\n" + code,
		"an unclosed string after it":     "import os\n" + code + "\nx = 'abc",
		"an unclosed docstring before it": "import os\nx = '''abc\n" + code,
		"a bad line before it":            "import os\nthis is no python\n" + code,
		"a half block":                    "import os\nif x:\n" + code,
		"a prompt in front":               ">>> import os\n>>> " + code,
		"a magic of a notebook":           "%matplotlib inline\nimport os\n" + code,
		"full-width letters":              "import os\nｏｓ.ｓｙｓｔｅｍ('uname')",
		"a coding cookie of latin-1":      "# -*- coding: latin-1 -*-\nimport os\n" + code,
	} {
		t.Run(name, func(t *testing.T) {
			if es := lower(src); !starts(es) {
				t.Errorf("%q was not seen:%s", src, describe(es))
			}
		})
	}
}

func TestCodingCookies(t *testing.T) {
	for src, odd := range map[string]bool{
		"# coding: utf-7\nx = 1":                      true,
		"#!/usr/bin/python\n# vim:fileencoding=gbk\n": true,
		"# coding=unicode_escape":                     true,
		"# x\r# coding: rot13\r":                      true,
		"# coding: utf-8\nx = 1":                      false,
		"# -*- coding: latin-1 -*-":                   false,
		"# coding: ascii":                             false,
		"x = 1\n# coding: utf-7":                      false,
		"\n\n# coding: utf-7":                         false,
		"x = '''\n# coding: utf-7'''":                 false,
	} {
		if got := len(lower(src)) > 0; got != odd {
			t.Errorf("%q: opaque is %v, want %v", src, got, odd)
		}
	}
}

func TestLimitsAreSaid(t *testing.T) {
	for name, src := range map[string]string{
		"larger than 256 KiB":   strings.Repeat("x = 1\n", 50000),
		"nests deeper than 500": strings.Repeat("(", 600) + strings.Repeat(")", 600),
	} {
		es := lower(src)
		found := false
		for _, e := range es {
			found = found || e.Kind == cordon.Opaque && strings.HasPrefix(e.Reason, "limit:")
		}
		if !found {
			t.Errorf("%s: no limit was reported:%s", name, describe(es))
		}
	}
}

func TestAContextThatHasEndedIsSaid(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	es := Lower(ctx, strings.Repeat("f(x)\n", 5000), testEnv)
	if len(es) == 0 || es[len(es)-1].Kind != cordon.Opaque {
		t.Errorf("got %s, want an opaque effect", describe(es))
	}
}

// TestShellGetsCommands checks what is handed to the reader of shell.
func TestShellGetsCommands(t *testing.T) {
	for src, want := range map[string]string{
		"import os; os.system('ls -l | wc')":                                  "/home/ann/work: ls -l | wc",
		"import subprocess as s; s.run(['ls', '-l', 'a b', \"it's\"])":        `/home/ann/work: ls -l 'a b' 'it'\''s'`,
		"import subprocess as s; s.run('ls $HOME', shell=True, cwd='/tmp')":   "/tmp: ls $HOME",
		"import subprocess as s; s.Popen(['ls'], cwd='src')":                  "/home/ann/work/src: ls",
		"import os; os.execvp('ls', ['x', '-l'])":                             "/home/ann/work: ls -l",
		"import os; os.execl('/bin/ls', 'ls', '$HOME')":                       "/home/ann/work: /bin/ls '$HOME'",
		"import os; d = 'x'; os.system(f'ls {d}')":                            "/home/ann/work: ls x",
		"import os, sys; os.system('ls ' + sys.argv[1])":                      "",
		"import shlex, subprocess; subprocess.run(shlex.split('ls \"a b\"'))": "/home/ann/work: ls 'a b'",
		"!ls -l\n": "/home/ann/work: ls -l",
	} {
		var got []string
		env := testEnv
		env.Code = func(_ context.Context, lang, src, dir string) []cordon.Effect {
			got = append(got, dir+": "+src)
			return []cordon.Effect{{Kind: cordon.Read, Target: "inner", Via: []string{"inner"}}}
		}
		es := Lower(context.Background(), src, env)
		if strings.Join(got, ";") != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
		chain := false
		for _, e := range es {
			chain = chain || len(e.Via) == 2 && e.Via[1] == "inner" && strings.HasPrefix(e.Via[0], "python: ")
		}
		if chain != (want != "") {
			t.Errorf("%s: the chain is lost:%s", src, describe(es))
		}
	}
}
