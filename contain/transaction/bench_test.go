//go:build linux

package transaction

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fill makes n small files, a hundred to a directory.
func fill(b *testing.B, root string, n int) {
	b.Helper()
	text := make([]byte, 4096)
	for i := range n {
		dir := fmt.Sprintf("%s/%d", root, i/100)
		if i%100 == 0 {
			must(b, os.MkdirAll(dir, 0o755))
		}
		must(b, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), text, 0o644))
	}
}

func BenchmarkBegin(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n, " files"), func(b *testing.B) {
			dir := tempDir(b)
			must(b, os.Mkdir(dir+"/ws", 0o755))
			fill(b, dir+"/ws", n)
			b.ReportAllocs()
			for b.Loop() {
				tx, err := Begin(Config{dir + "/ws", dir + "/state"})
				must(b, err)
				b.StopTimer()
				must(b, tx.Rollback())
				b.StartTimer()
			}
		})
	}
}

const changedFiles = 1000

// BenchmarkCommit changes files that stood there before; a copy of the same
// files is beside it.
func BenchmarkCommit(b *testing.B) {
	for _, where := range []string{"beside", "another file system"} {
		b.Run(where, func(b *testing.B) {
			dir := tempDir(b)
			ws, state := dir+"/ws", dir+"/state"
			must(b, os.Mkdir(ws, 0o755))
			fill(b, ws, changedFiles)
			if where != "beside" {
				state = otherFS(b, dir)
			}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				tx, err := Begin(Config{ws, state})
				must(b, err)
				fill(b, tx.Upper(), changedFiles)
				b.StartTimer()
				_, err = tx.Commit(Options{})
				must(b, err)
			}
		})
	}
	b.Run("cp -a", func(b *testing.B) {
		dir := tempDir(b)
		fill(b, dir+"/from", changedFiles)
		for i := 0; b.Loop(); i++ {
			to := filepath.Join(dir, fmt.Sprint(i))
			must(b, exec.Command("cp", "-a", dir+"/from", to).Run())
			b.StopTimer()
			must(b, os.RemoveAll(to))
			b.StartTimer()
		}
	})
}

func BenchmarkRollback(b *testing.B) {
	dir := tempDir(b)
	must(b, os.Mkdir(dir+"/ws", 0o755))
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		tx, err := Begin(Config{dir + "/ws", dir + "/state"})
		must(b, err)
		fill(b, tx.Upper(), changedFiles)
		b.StartTimer()
		must(b, tx.Rollback())
	}
}

func BenchmarkSize(b *testing.B) {
	dir := tempDir(b)
	must(b, os.Mkdir(dir+"/ws", 0o755))
	tx, err := Begin(Config{dir + "/ws", dir + "/state"})
	must(b, err)
	fill(b, tx.Upper(), changedFiles)
	b.ReportAllocs()
	for b.Loop() {
		_, err := tx.Size(1e9)
		must(b, err)
	}
	must(b, tx.Rollback())
}

func BenchmarkPreserve(b *testing.B) {
	dir := tempDir(b)
	must(b, os.Mkdir(dir+"/ws", 0o755))
	fill(b, dir+"/ws", 1)
	b.ReportAllocs()
	for b.Loop() {
		s, err := BeginSnapshot(Config{dir + "/ws", dir + "/state"})
		must(b, err)
		must(b, s.Preserve("0/0"))
		must(b, s.Rollback())
	}
}
