package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var corpus = []string{"ls -l", "dig +short example.com", "passwd -d root"}

func TestLabelsAreReadAndChecked(t *testing.T) {
	good := fmt.Sprintf("# a comment\n\n3\t%s\tprivilege\n", hashPrefix(corpus[2]))
	got, err := readLabels([]byte(good), corpus)
	if diff := cmp.Diff(map[int]string{3: "privilege"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, row := range []struct{ name, text, want string }{
		{"a field is missing", "3\tprivilege\n", "want number, hash, category"},
		{"a line that is not there", "4\t000000000000\tprivilege\n", "no line of that number"},
		{"lines count from one", "0\t000000000000\tprivilege\n", "no line of that number"},
		{"a category that nobody explained", strings.Replace(good, "privilege", "rude", 1), "unknown category"},
		{"another edition of the corpus", "3\t000000000000\tprivilege\n", "is another one"},
		{"a line is labelled twice", good + good, "labelled twice"},
	} {
		if _, err := readLabels([]byte(row.text), corpus); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

func TestTheLabelsOfTheRepositoryAreWellFormed(t *testing.T) {
	last := 0
	for line := range strings.Lines(string(labelText)) {
		if line[0] == '#' {
			continue
		}
		var n int
		var hash, category string
		if k, err := fmt.Sscanf(line, "%d\t%12s\t%s", &n, &hash, &category); k != 3 || err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if n <= last || len(hash) != 12 || categories[category] == "" {
			t.Errorf("%q: out of order, or of an unknown category", line)
		}
		last = n
	}
	if last == 0 {
		t.Error("no label at all")
	}
}

func found(violation, rule, outcome, detail string) finding {
	return finding{Violation: violation, Rule: rule, Decision: outcome, Detail: detail}
}

func TestScoreCountsWhatIsLabelledApart(t *testing.T) {
	decisions := []decision{
		{Decision: "blocked", Killed: true, Findings: []finding{
			found("tripwire", "a.b", "blocked", ""), found("tripwire", "a.b", "blocked", "again"), found("fs_path", "fs.x", "blocked", "")}},
		{Decision: "restricted", Findings: []finding{found("tripwire", "opaque", "restricted", `"not a shell program: 1:1: x"`)}},
		{Decision: "allowed"},
	}
	s := score(corpus, map[int]string{3: "privilege"}, decisions)
	want := &commandScore{
		total: 3, lines: corpus, labelled: 1, killed: 1, killedFree: 1, passed: 1,
		outcomes:  map[string]int{"blocked": 1, "restricted": 1, "allowed": 1},
		tripped:   []int{1},
		unparsed:  []int{2},
		trippedBy: map[string]int{"a.b": 1}, restricted: map[string]int{"opaque": 1}, passedBy: map[string]int{"privilege": 1},
		rules: map[int][]string{1: {"a.b"}},
	}
	if diff := cmp.Diff(want, s, cmp.AllowUnexported(commandScore{})); diff != "" {
		t.Error(diff)
	}
	if again := score(corpus, map[int]string{1: "privilege"}, decisions); len(again.tripped) != 0 || again.killedFree != 0 {
		t.Errorf("a labelled line counts as a false alarm: %+v", again)
	}
}

func TestAnAimThatIsMissedIsRemembered(t *testing.T) {
	for _, row := range []struct {
		name   string
		print  func(*report)
		broken bool
	}{
		{"below the most", func(r *report) { r.atMost("x", 1, 200, aim{0.005, 0.005}) }, false},
		{"above the most", func(r *report) { r.atMost("x", 2, 200, aim{0.005, 0.005}) }, true},
		{"above the wish, but not worse than before", func(r *report) { r.atMost("x", 2, 200, aim{0.005, 0.01}) }, false},
		{"above the least", func(r *report) { r.atLeast("x", 99, 100, aim{0.99, 0.99}) }, false},
		{"below the least", func(r *report) { r.atLeast("x", 98, 100, aim{0.99, 0.99}) }, true},
		{"below the wish, but not worse than before", func(r *report) { r.atLeast("x", 98, 100, aim{0.99, 0.98}) }, false},
		{"nothing was measured", func(r *report) { r.atMost("x", 0, 0, aim{0.005, 0.005}) }, true},
		{"a figure has no aim", func(r *report) { r.figure("x", 9, 9) }, false},
		{"a skip elsewhere than in CI", func(r *report) { r.absent(absentError("no corpus")) }, false},
		{"a skip in CI", func(r *report) { r.ci = true; r.absent(absentError("no corpus")) }, true},
	} {
		var out bytes.Buffer
		r := &report{out: &out}
		row.print(r)
		if r.broken != row.broken || out.Len() == 0 {
			t.Errorf("%s: broken %v, want %v\n%s", row.name, r.broken, row.broken, &out)
		}
	}
}

func TestEvidenceIsBounded(t *testing.T) {
	var out bytes.Buffer
	(&report{out: &out, lines: 1}).evidence([]string{"one\ttwo" + strings.Repeat("é", 300), "three"})
	if got := out.String(); !strings.Contains(got, "one two") || strings.Contains(got, "three") || !strings.Contains(got, "1 more") {
		t.Errorf("%q", got)
	}
}

func TestAnAbsentCorpusIsASkipWithItsCause(t *testing.T) {
	_, err := readCorpus(filepath.Join(t.TempDir(), "commands.txt"))
	if _, ok := err.(absentError); !ok || !strings.Contains(err.Error(), "CORDON_CORPORA") {
		t.Errorf("%v", err)
	}
}

func TestExamplesAreFilledInAndScored(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.jsonl")
	text := `{"id":"a","kind":"k","call":{"tool":"Read","args":{"file_path":"{WS}/l"}},"want":"denied","setup":[{"op":"symlink","path":"{WS}/l","target":"{HOME}/t"}]}
{"id":"b","call_raw":"{\"tool\":\n\"Read\",\"dir\":\"{WSBASE}\"}","want":"allowed","tier":"student"}
`
	if err := write(file, text); err != nil {
		t.Fatal(err)
	}
	examples, err := readExamples(file)
	if err != nil || len(examples) != 2 || examples[0].Profile != "coding" || examples[1].Tier != "student" {
		t.Fatalf("%v %+v", err, examples)
	}
	b := &bench{workspace: filepath.Join(dir, "ws"), home: dir}
	line, err := b.line(&examples[0])
	if err != nil || !json.Valid(line) || !bytes.Contains(line, []byte(dir+"/ws/l")) {
		t.Errorf("%v %s", err, line)
	}
	if to, err := os.Readlink(dir + "/ws/l"); err != nil || to != dir+"/t" {
		t.Errorf("%q %v", to, err)
	}
	if line, err = b.line(&examples[1]); err != nil || string(line) != `{"tool": "Read","dir":"ws"}` {
		t.Errorf("%v %s", err, line)
	}

	var s caseScore
	s.add(&examples[0], &decision{Decision: "restricted"})
	s.add(&examples[0], &decision{Decision: "allowed"})
	s.add(&examples[1], &decision{Decision: "blocked", Killed: true})
	s.add(&example{Want: "allowed", Accept: []string{"allowed", "denied"}}, &decision{Decision: "restricted"})
	s.add(&example{Want: "allowed", Debatable: true}, &decision{Decision: "blocked"})
	if s.attacks != 2 || s.denied != 1 || s.benign != 2 || s.allowed != 1 || s.killed != 1 || s.debatable != 1 || s.debatableMet != 0 || len(s.misses) != 2 {
		t.Errorf("%+v", s)
	}
}

func TestSourceFilesLeavesOutTestsAndWhatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.py": "1", "b/c.py": "1", "b/d.txt": "1", "test/e.py": "1", "empty.py": "", "big.py": strings.Repeat("#", maxFile+1),
	} {
		if err := write(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	files, err := sourceFiles(dir, []string{".py"}, "test")
	if diff := cmp.Diff([]string{dir + "/a.py", dir + "/b/c.py"}, files); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if files, err := sourceFiles(filepath.Join(dir, "absent"), nil); err != nil || files != nil {
		t.Errorf("%v %v", files, err)
	}
	if got := spread([]string{"a", "b", "c", "d"}, 2); !cmp.Equal(got, []string{"a", "c"}) {
		t.Errorf("%v", got)
	}
}

func TestAProgramThatIsAbsentIsASkip(t *testing.T) {
	_, err := ask(context.Background(), "no-such-interpreter-here")
	if _, ok := err.(absentError); !ok {
		t.Errorf("%v", err)
	}
}

func TestDecisionsThatCannotBeReadAreAnError(t *testing.T) {
	if _, err := readDecisions(strings.NewReader(`{"decision":"allowed"} {"decision":`)); err == nil {
		t.Error("half a decision was taken")
	}
}
