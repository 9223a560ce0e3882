package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// caseFiles are the example sets whose lines are calls. The attack tables of
// the language packages are tests of those packages and run with them.
var caseFiles = []string{"shell", "python", "javascript", "sql", "fs", "args"}

// example is one line of a case file. Of raw and call, one is set.
type example struct {
	ID, Kind  string
	Call      map[string]json.RawMessage `json:"call"`
	Raw       *string                    `json:"call_raw"`
	Want      string
	Accept    []string
	Debatable bool
	Profile   string
	Tier      string
	Setup     []struct{ Op, Path, Target, Content string }
}

func measureCases(ctx context.Context, b *bench, r *report) error {
	// A way out of the workspace that stands there before the call.
	if err := os.Symlink(filepath.Join(b.home, ".ssh"), filepath.Join(b.workspace, "out")); err != nil {
		return err
	}
	defer os.Remove(filepath.Join(b.workspace, "out"))
	found := 0
	var total caseScore
	for _, name := range caseFiles {
		path := filepath.Join(b.cases, name+".jsonl")
		examples, err := readExamples(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		found++
		if err := b.runExamples(ctx, name, examples, &total); err != nil {
			return err
		}
	}
	if found == 0 {
		return absentError(fmt.Sprintf("no example cases in %s (CORDON_CASES names the directory)", b.cases))
	}
	r.atLeast("attacks denied", total.denied, total.attacks, aims.attacks)
	r.atLeast("benign calls allowed", total.allowed, total.benign, aims.benign)
	r.atMost("benign calls killed", total.killed, total.benign, aims.killed)
	r.figure("debatable as expected", total.debatableMet, total.debatable)
	r.evidence(total.misses)
	return nil
}

func readExamples(path string) ([]example, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []example
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		var e example
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		e.Profile, e.Tier = or(e.Profile, "coding"), or(e.Tier, "supervised")
		all = append(all, e)
	}
	return all, s.Err()
}

// caseScore counts over all files.
type caseScore struct {
	attacks, denied, benign, allowed, killed, debatable, debatableMet int
	misses                                                            []string
}

func (b *bench) runExamples(ctx context.Context, file string, examples []example, total *caseScore) error {
	type rights struct{ profile, tier string }
	groups := map[rights][]example{}
	var order []rights
	for _, e := range examples {
		key := rights{e.Profile, e.Tier}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], e)
	}
	for _, key := range order {
		lines := make([][]byte, len(groups[key]))
		for i, e := range groups[key] {
			line, err := b.line(&e)
			if err != nil {
				return fmt.Errorf("case %s: %w", e.ID, err)
			}
			lines[i] = line
		}
		decisions, err := b.decide(ctx, key.profile, key.tier, lines)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for i := range decisions {
			total.add(&groups[key][i], &decisions[i])
		}
	}
	return nil
}

// line is what goes to cordon for an example, its files made first.
func (b *bench) line(e *example) ([]byte, error) {
	fill := strings.NewReplacer("{WSBASE}", filepath.Base(b.workspace), "{WS}", b.workspace, "{HOME}", b.home, "\n", " ").Replace
	for _, op := range e.Setup {
		path := fill(op.Path)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		var err error
		if op.Op == "symlink" {
			err = os.Symlink(fill(op.Target), path)
		} else {
			err = write(path, or(op.Content, "x"))
		}
		if err != nil {
			return nil, err
		}
	}
	if e.Raw != nil {
		return []byte(fill(*e.Raw)), nil
	}
	line, err := json.Marshal(e.Call)
	return []byte(fill(string(line))), err
}

func (s *caseScore) add(e *example, d *decision) {
	want := e.Accept
	if len(want) == 0 {
		want = []string{e.Want}
	}
	met := slices.Contains(want, d.Decision) || d.Decision != "allowed" && slices.Contains(want, "denied")
	switch {
	case e.Debatable:
		s.debatable++
		s.debatableMet += one(met)
		return
	case e.Want == "allowed":
		s.benign++
		s.allowed += one(met)
		s.killed += one(d.Killed)
	default:
		s.attacks++
		s.denied += one(met)
	}
	if !met {
		s.misses = append(s.misses, fmt.Sprintf("%s %s: wanted %s, got %s %s", e.ID, e.Kind, e.Want, d.Decision,
			strings.Join(append(rulesOf(d, "", "blocked"), rulesOf(d, "", "restricted")...), ",")))
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
