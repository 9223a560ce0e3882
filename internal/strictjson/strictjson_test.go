package strictjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestG3Refused(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2)
	for _, c := range []struct{ name, in, reason string }{
		{"nothing", "", "unexpected end"},
		{"a word", "yes", "unexpected character"},
		{"data after the value", "{} x", "data after"},
		{"two values", "{}{}", "data after"},
		{"a duplicate key", `{"a":1,"a":2}`, "duplicate key"},
		{"a duplicate key by escape", `{"a":1,"\u0061":2}`, "duplicate key"},
		{"keys that differ in case", `{"path":1,"Path":2}`, "differ in case"},
		{"keys that differ by a long s", `{"paths":1,"path\u017f":2}`, "differ in case"},
		{"many keys, two alike but for case", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"A":1}`, "differ in case"},
		{"a clash below", `[{"x":{"k":1,"K":2}}]`, "differ in case"},
		{"invalid UTF-8", "\"\xff\"", "invalid UTF-8"},
		{"invalid UTF-8 beside an escape", "\"\\n\xc0\x80\"", "invalid UTF-8"},
		{"a lone surrogate", `"\ud800"`, "lone surrogate"},
		{"two high surrogates", `"\ud800\ud800"`, "lone surrogate"},
		{"a raw newline in a string", "\"a\nb\"", "control character"},
		{"a raw NUL in a string", "\"a\x00b\"", "control character"},
		{"an unterminated string", `"abc`, "unterminated"},
		{"an unknown escape", `"\x41"`, "unknown escape"},
		{"a short escape", `"\u12"`, "\\u escape"},
		{"a leading zero", `01`, "data after"},
		{"a bare minus", `-`, "malformed number"},
		{"a trailing point", `1.`, "malformed number"},
		{"NaN", `NaN`, "unexpected character"},
		{"a trailing comma", `[1,]`, "unexpected character"},
		{"a missing colon", `{"a" 1}`, "expected a colon"},
		{"a bare key", `{a:1}`, "expected a key"},
		{"a comment", `{/**/}`, "expected a key"},
		{"too deep", deep, "nested deeper"},
		{"a byte order mark", "\ufeff{}", "unexpected character"},
		{"too large", `"` + strings.Repeat("x", MaxSize) + `"`, "larger than"},
	} {
		_, err := Parse([]byte(c.in))
		if err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.reason)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"keys are sorted", `{"b":1,"a":[true,null,"x"]}`, `{"a":[true,null,"x"],"b":1}`},
		{"escapes get one spelling", `"\u0061\/\u001f\t\ud83d\ude00"`, `"a/\u001f\t😀"`},
		{"a number past 2^53 keeps its digits", `9007199254740993`, `9007199254740993`},
		{"a number keeps its spelling", `-1.50E+2`, `-1.50E+2`},
		{"an escaped NUL stays escaped", `"\u0000"`, `"\u0000"`},
	} {
		v, err := Parse([]byte(c.in))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := string(AppendCanonical(nil, &v)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestGet(t *testing.T) {
	v, err := Parse([]byte(`{"a":{"b":"c"},"n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := v.Get("a").Text("b"); !ok || s != "c" {
		t.Errorf("a.b = %q, %v", s, ok)
	}
	if _, ok := v.Text("n"); ok {
		t.Error("a number was read as a string")
	}
	if v.Get("z") != nil || v.Get("n").Get("x") != nil {
		t.Error("an absent member was found")
	}
}

// What we accept, the standard library must read as the same value; what it
// refuses, we must refuse.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `[1,2.5e3,"a\u00e9"]`, `{"a":{"b":[null,true]}}`, `"\ud83d\ude00"`, `-0`, `{"a":1,"A":2}`, `[[[[]]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if err != nil {
			return
		}
		canon := AppendCanonical(nil, &v)
		var a, c any
		if err := decode(b, &a); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", b, err)
		}
		if err := decode(canon, &c); err != nil {
			t.Fatalf("canonical form %q does not decode: %v", canon, err)
		}
		if !reflect.DeepEqual(a, c) {
			t.Fatalf("%q became %q", b, canon)
		}
	})
}

func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

func BenchmarkParse(b *testing.B) {
	in := []byte(`{"file_path":"/home/dev/ws/src/main.py","limit":100,"offset":0}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(in); err != nil {
			b.Fatal(err)
		}
	}
}
