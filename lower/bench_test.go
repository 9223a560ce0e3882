package lower

import (
	"context"
	"testing"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

func benchmark(b *testing.B, tool, args string) {
	l, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	v, err := strictjson.Parse([]byte(args))
	if err != nil {
		b.Fatal(err)
	}
	env := Env{Workspace: "/work", Home: "/home/dev"}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l.Lower(ctx, "", tool, &v, env)
	}
}

func BenchmarkKnownPathCall(b *testing.B) {
	benchmark(b, "Read", `{"file_path":"src/main.go"}`)
}

func BenchmarkQualifiedPathCall(b *testing.B) {
	benchmark(b, "mcp__filesystem__write_file", `{"path":"src/main.go","content":"package main\n"}`)
}

func BenchmarkUnknownToolOfTenArguments(b *testing.B) {
	benchmark(b, "mcp__lab__convert_scan", `{"source_file":"in/a.tif","output":{"path":"out/a.png"},"dpi":300,"mode":"grey",
		"comment":"first pass, see notes","callback_url":"https://example.com/done","tags":["a","b"],"overwrite":true,
		"profile":"fast","work_dir":"scans"}`)
}

func BenchmarkAddress(b *testing.B) {
	benchmark(b, "fetch", `{"url":"https://example.com/a/b?c=d"}`)
}
