package javascript

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

func opaqueReason(effects []cordon.Effect) string {
	var out []string
	for _, e := range effects {
		if e.Kind == cordon.Opaque {
			out = append(out, e.Reason)
		}
	}
	return strings.Join(out, "\n")
}

// bombs are texts that are small to write and large to read. Each must come
// back, and without a panic; those with a want must say which limit it was.
var bombs = []struct{ name, src, want string }{
	{"too large", strings.Repeat("a;", 140<<10), "limit: JavaScript of more than 256 KiB"},
	{"brackets", strings.Repeat("(", 100_000), "limit: JavaScript nested more than 500 deep"},
	{"arrays", strings.Repeat("[", 120_000) + strings.Repeat("]", 120_000), "limit: JavaScript nested"},
	{"blocks", strings.Repeat("{", 2000) + strings.Repeat("}", 2000), "limit: JavaScript nested"},
	{"templates", strings.Repeat("`${", 3000) + "1" + strings.Repeat("}`", 3000), "limit: JavaScript nested"},
	{"signs", strings.Repeat("!", 100_000) + "1", "limit: JavaScript nested"},
	{"typeof", strings.Repeat("typeof ", 20_000) + "1", "limit: JavaScript nested"},
	{"arrows", strings.Repeat("a=>", 50_000) + "1", "limit: JavaScript nested"},
	{"conditions", strings.Repeat("a?b:", 50_000) + "1", "limit: JavaScript nested"},
	{"assignments", strings.Repeat("a=", 50_000) + "1", "limit: JavaScript nested"},
	{"powers", strings.Repeat("a**", 50_000) + "1", "limit: JavaScript nested"},
	{"else if", strings.Repeat("if(a)b;else ", 20_000) + "c", ""},
	{"closers in comments hide openers", strings.Repeat("(/*)*/", 20_000), "limit: JavaScript nested"},
	{"a regular expression misleads the scan", "/`/;" + strings.Repeat("(", 30_000), ""},
	{"sums", "x=" + strings.Repeat("'a'+", 50_000) + "'b'", ""},
	{"members", "a" + strings.Repeat(".b", 60_000), ""},
	{"calls", "a" + strings.Repeat("()", 60_000), ""},
	{"labels", strings.Repeat("a:", 60_000) + "1", ""},
	{"new", strings.Repeat("new ", 50_000) + "a", "limit: JavaScript nested"},
	{"endless loop", "for (let i = 0; ; i++) {}", ""},
	{"endless loop with work", "let s = 'a'; while (true) s += s;", ""},
	{"nested loops", "for (let a=0;a<4000;a++) for (let b=0;b<4000;b++) for (let c=0;c<4000;c++) x = a+b+c;", ""},
	{"nested maps", "const r = Array.from({length: 2000}, (_, i) => i); r.map(() => r.map(() => r.map((x) => x + 1)));", ""},
	{"recursion", "const f = (n) => f(n + 1) + f(n + 2); f(0);", ""},
	{"recursion of unknown depth", "const f = (n) => n < 2 ? n : f(n - 1) + f(n - 2); f(process.argv.length);", ""},
	{"growing array", "const r = [1]; for (let i = 0; i < 30; i++) r.push(...r);", ""},
	{"nested arrays as text", "let r = ['']; for (let i = 0; i < 60; i++) r = [r, r]; String(r);", ""},
	{"nested arrays printed", "let r = new Array(2000).fill(1); for (let i = 0; i < 6; i++) r = new Array(2000).fill(r); console.log(r); JSON.stringify(r); fetch('https://pypi.org', {body: r});", ""},
	{"an object that holds itself", "const o = {}; o.o = o; o.a = [o]; console.log(o, JSON.stringify({...o})); String(o.a); Object.assign(o, o);", ""},
	{"a prototype that is itself", "const o = {}; o.__proto__ = o; o.x; Object.setPrototypeOf(o, new Proxy(o, o)); o.y;", ""},
	{"a class that extends itself", "class A extends A {} new A(); let B = class {}; B.__proto__ = B; B.x; Object.setPrototypeOf(B.prototype, B.prototype); new B().y;", ""},
	{"a getter that reads itself", "const o = { get a() { return this.a + this.a } }; o.a; `${{ toString() { return `${this}` } }}`;", ""},
	{"regular expression", "'" + strings.Repeat("x", 16000) + "'.replace(/((x+x+)+y){1,50}/g, (m) => m + m);", ""},
	{"eval in eval", `let s = "1"; for (let i = 0; i < 12; i++) s = "eval(" + JSON.stringify(s) + ")"; eval(s);`, "limit: JavaScript in strings"},
	{"a text that evaluates itself", "const s = 'eval(s);eval(s)'; eval(s);", ""},
	{"many values", "let x; " + strings.Repeat("if (a) x = 'k' + x + Math.random(); ", 3000) + "eval(x)", ""},
	{"many effects", "const fs = require('fs');" + strings.Repeat("fs.readFileSync('/etc/' + (i += 'x'));", 3000), ""},
	{"many functions", strings.Repeat("(function f(a){return g(f,a)});", 8000), ""},
	{"destructuring", "let " + strings.Repeat("[", 450) + "a" + strings.Repeat("]", 450) + " = b;", ""},
	{"sort by what cannot be told", "const r = Array.from({length: 2000}, Math.random); for (;;) r.sort((a, b) => r.sort() && a - b);", ""},
}

func TestBombs(t *testing.T) {
	for _, c := range bombs {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			got := opaqueReason(Lower(t.Context(), c.src, testEnv()))
			t.Logf("%v", time.Since(start).Round(time.Millisecond))
			if !strings.Contains(got, c.want) {
				t.Errorf("no %q in %q", c.want, got)
			}
		})
	}
}

func TestContextEndsTheReading(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src := "const r = Array.from({length: 2000}, (_, i) => i); " + strings.Repeat("r.map((x) => x + 1);", 100)
	if got := opaqueReason(Lower(ctx, src, testEnv())); !strings.Contains(got, "limit: time") {
		t.Errorf("a cancelled context leaves %q", got)
	}
}

func TestTextThatDoesNotParseIsOpaque(t *testing.T) {
	for _, src := range []string{"const = 1", "this is prose, not code.", "'unterminated", "if (", "\x00", "require('child_process').exec(`x"} {
		if got := opaqueReason(lowered(t, src)); !strings.Contains(got, "does not parse as JavaScript") {
			t.Errorf("%q gives %q", src, got)
		}
	}
	got := opaqueReason(lowered(t, "const = require('child_process')"))
	if !strings.Contains(got, "names child_process") {
		t.Errorf("the scan of what does not parse gives %q", got)
	}
}

func FuzzLower(f *testing.F) {
	for _, c := range attacks {
		f.Add(c.src, c.run == "ts")
	}
	for _, c := range benign {
		f.Add(c.src, c.run == "ts")
	}
	for _, c := range bombs {
		if len(c.src) < 4096 {
			f.Add(c.src, false)
		}
	}
	f.Fuzz(func(t *testing.T, src string, ts bool) {
		env := testEnv()
		env.TypeScript = ts
		start := time.Now()
		for _, e := range Lower(t.Context(), src, env) {
			if e.Kind == cordon.Opaque && e.Reason == "" {
				t.Errorf("an opaque effect without a reason: %q", src)
			}
			if strings.Contains(e.Reason, "reader failed") {
				t.Errorf("%s: %q", e.Reason, src)
			}
			if strings.Contains(e.Target+e.Text+e.Reason, hole) {
				t.Errorf("a hole shows in %+v: %q", e, src)
			}
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("took %v: %q", d, src)
		}
	})
}
