package fsscope

import (
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func BenchmarkJudge(b *testing.B) {
	st := newStage(b)
	for _, c := range []struct {
		name string
		e    cordon.Effect
	}{
		{"workspace read", cordon.Effect{Kind: rd, Target: st.ws + "/lib/cart.go", Dir: st.ws}},
		{"relative read", cordon.Effect{Kind: rd, Target: "lib/cart.go", Dir: st.ws}},
		{"new file", cordon.Effect{Kind: wr, Target: "lib/new.go", Dir: st.ws}},
		{"directory listed", cordon.Effect{Kind: ls, Target: "lib", Dir: st.ws}},
		{"name with a blank", cordon.Effect{Kind: rd, Target: "My Notes.txt", Dir: st.ws}},
		{"hidden file", cordon.Effect{Kind: rd, Target: ".gitignore", Dir: st.ws}},
		{"link within", cordon.Effect{Kind: rd, Target: "inner/cart.go", Dir: st.ws}},
		{"home key", cordon.Effect{Kind: rd, Target: "~/.ssh/id_ed25519", Dir: st.ws}},
		{"glob", cordon.Effect{Kind: rd, Target: "lib/**/*.go", Dir: st.ws, Pattern: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				st.Judge(c.e)
			}
		})
	}
}

func BenchmarkForRun(b *testing.B) {
	st := newStage(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := st.base.ForRun(st.temp); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	st := newStage(b)
	c := Config{Roots: []Root{{Path: st.ws, Write: true}}, Workspace: st.ws, Home: st.home, TempRoot: st.temp, Coding: true}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Prepare(c); err != nil {
			b.Fatal(err)
		}
	}
}
