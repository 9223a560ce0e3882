package python
import ("testing";"os";"context";"fmt";"github.com/cordon-sandbox/cordon/lower/python/syntax";"strings";"slices")
func TestZZ(t *testing.T) {
	for _, fn := range strings.Fields(os.Getenv("ZZ")) {
		b, _ := os.ReadFile(fn)
		f := syntax.Parse(string(b))
		a := newAnalysis(context.Background(), f, testEnv)
		a.run(f.Body)
		l := newLiveness(a)
		fmt.Println("==", fn, l != nil, len(a.by), len(a.effects))
		if l == nil { continue }
		for i := range l.regions { r := &l.regions[i]; if !r.live {continue}
			for _, w := range r.words { if lookups(w) { fmt.Println("  all by", w, "in", r.name) } } }
		for i, e := range a.effects { var names []string; for _, k := range a.by[i] { names = append(names, fmt.Sprint(a.known[k].name, l.runs(k))) }; slices.Sort(names)
			fmt.Println("   ", e.Kind, e.Target, e.Reason, e.Doubtful, names) }
	}
}
