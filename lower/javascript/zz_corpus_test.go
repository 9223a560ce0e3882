package javascript

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"
)

func TestZZCorpus(t *testing.T) {
	root := os.Getenv("CORPUS")
	if root == "" {
		t.Skip()
	}
	n, bad, slow, flag := 0, 0, 0, 0
	var tot time.Duration
	why := map[string]int{}
	ex := map[string]string{}
	filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		e := filepath.Ext(p)
		if e != ".js" && e != ".mjs" && e != ".cjs" && e != ".ts" {
			return nil
		}
		if strings.HasSuffix(p, ".d.ts") {
			return nil
		}
		b, _ := os.ReadFile(p)
		if len(b) > 256<<10 {
			return nil
		}
		n++
		env := testEnv()
		env.TypeScript = e == ".ts"
		st := time.Now()
		ef := Lower(t.Context(), string(b), env)
		el := time.Since(st)
		tot += el
		if el > 60*time.Millisecond {
			slow++
			fmt.Println("slow", el, len(b), p)
		}
		h := harmful(ef)
		if len(h) > 0 {
			flag++
		}
		for _, x := range h {
			if strings.Contains(x, "parse") || strings.Contains(x, "limit") {
				bad++
				fmt.Println("BAD", p, x)
				continue
			}
			k := x
			if len(k) > 70 {
				k = k[:70]
			}
			why[k]++
			ex[k] = p
		}
		return nil
	})
	fmt.Println("files", n, "bad", bad, "slow", slow, "flagged", flag, "total", tot)
	ks := make([]string, 0)
	for k := range why {
		ks = append(ks, k)
	}
	sort.Slice(ks, func(i, j int) bool { return why[ks[i]] > why[ks[j]] })
	for i, k := range ks {
		if i > 70 {
			break
		}
		fmt.Println(why[k], k, ex[k])
	}
}
