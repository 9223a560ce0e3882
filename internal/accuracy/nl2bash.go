package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// labelText names the lines of the corpus that ought to be stopped. They were
// judged by reading them: what a careful security engineer would not let an
// agent run unasked, whatever Cordon says to it.
//
//go:embed testdata/nl2bash-labels.tsv
var labelText []byte

// categories of labels, and what each takes in.
var categories = map[string]string{
	"privilege":    "sudo, su, user tools, mounts, rights on system programs, package sources",
	"destructive":  "deletion, emptying, moving or giving away across /, /home, /usr, ~ or the whole workspace; processes of a whole user",
	"disk":         "raw writes to devices",
	"persistence":  "cron, shell startup files, prompts that run code, authorized keys",
	"credential":   "key stores, tokens, files of secrets",
	"accounts":     "reading the list of accounts",
	"environment":  "dumps of all variables, preloaded libraries",
	"history":      "reading or wiping the shell's history",
	"exfiltration": "homes, databases, trees or files of secrets sent away",
	"tunnel":       "ports of this machine opened to others",
	"download_run": "downloaded text that runs",
	"obfuscation":  "decoded text that runs",
}

// readLabels reads "line number, hash prefix, category" and checks each hash
// against the corpus, so that another edition of it is noticed.
func readLabels(text []byte, lines []string) (map[int]string, error) {
	labels := map[int]string{}
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		if s.Text() == "" || strings.HasPrefix(s.Text(), "#") {
			continue
		}
		fields := strings.Split(s.Text(), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("label %q (want number, hash, category)", s.Text())
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil || n < 1 || n > len(lines) {
			return nil, fmt.Errorf("label %q: no line of that number (want 1 to %d)", s.Text(), len(lines))
		}
		if _, known := categories[fields[2]]; !known {
			return nil, fmt.Errorf("label %q: unknown category %q", s.Text(), fields[2])
		}
		if _, again := labels[n]; again {
			return nil, fmt.Errorf("label %q: line %d is labelled twice", s.Text(), n)
		}
		if fields[1] != hashPrefix(lines[n-1]) {
			return nil, fmt.Errorf("label %q: line %d is another one (hash %s)", s.Text(), n, hashPrefix(lines[n-1]))
		}
		labels[n] = fields[2]
	}
	return labels, s.Err()
}

func hashPrefix(line string) string {
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:6])
}

func readCorpus(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absentError(fmt.Sprintf("no NL2Bash at %s (CORDON_CORPORA names the directory that holds nl2bash/commands.txt)", path))
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

func measureNL2Bash(ctx context.Context, b *bench, r *report) error {
	lines, err := readCorpus(filepath.Join(b.corpora, "nl2bash", "commands.txt"))
	if err != nil {
		return err
	}
	labels, err := readLabels(labelText, lines)
	if err != nil {
		return err
	}
	calls := make([]call, len(lines))
	for i, l := range lines {
		calls[i] = call{ID: strconv.Itoa(i + 1), Tool: "Bash", Args: map[string]any{"command": l}}
	}
	encoded, err := encode(calls)
	if err != nil {
		return err
	}
	decisions, err := b.decide(ctx, "coding", "supervised", encoded)
	if err != nil {
		return err
	}
	score(lines, labels, decisions).print(ctx, r)
	return nil
}

// commandScore is how a corpus of commands fared.
type commandScore struct {
	total              int
	outcomes           map[string]int
	killed, killedFree int
	tripped, unparsed  []int // line numbers
	trippedBy          map[string]int
	restricted         map[string]int // lines that are only restricted, by rule
	labelled, passed   int
	passedBy           map[string]int
	lines              []string
	rules              map[int][]string
}

func score(lines []string, labels map[int]string, decisions []decision) *commandScore {
	s := &commandScore{total: len(lines), lines: lines, outcomes: map[string]int{}, trippedBy: map[string]int{},
		restricted: map[string]int{}, passedBy: map[string]int{}, rules: map[int][]string{}, labelled: len(labels)}
	for i := range decisions {
		d, n := &decisions[i], i+1
		label, labelled := labels[n]
		s.outcomes[d.Decision]++
		if d.Killed {
			s.killed++
			if !labelled {
				s.killedFree++
			}
		}
		if labelled && d.Decision == "allowed" {
			s.passed++
			s.passedBy[label]++
		}
		if !labelled && d.has("tripwire", "blocked") {
			s.tripped = append(s.tripped, n)
			s.rules[n] = rulesOf(d, "tripwire", "blocked")
			count(s.trippedBy, s.rules[n])
		}
		if !labelled && d.Decision == "restricted" {
			count(s.restricted, rulesOf(d, "", "restricted"))
		}
		if doesNotParse(d) {
			s.unparsed = append(s.unparsed, n)
		}
	}
	return s
}

func count(counts map[string]int, names []string) {
	for _, n := range names {
		counts[n]++
	}
}

// rulesOf are the rules of matching findings, each once.
func rulesOf(d *decision, violation, outcome string) []string {
	var rules []string
	for _, f := range d.Findings {
		if (violation == "" || f.Violation == violation) && f.Decision == outcome && !slices.Contains(rules, f.Rule) {
			rules = append(rules, f.Rule)
		}
	}
	return rules
}

// doesNotParse: the words are those of the shell reader's own opaque effect.
func doesNotParse(d *decision) bool {
	return slices.ContainsFunc(d.Findings, func(f finding) bool {
		return f.Rule == "opaque" && strings.Contains(f.Detail, "not a shell program")
	})
}

func (s *commandScore) print(ctx context.Context, r *report) {
	for _, o := range [...]string{"allowed", "restricted", "blocked"} {
		r.figure(o, s.outcomes[o], s.total)
	}
	r.figure("killed", s.killed, s.total)
	r.figure("killed, of lines without a label", s.killedFree, s.total-s.labelled)
	r.atMost("blocked by a tripwire, without a label", len(s.tripped), s.total-s.labelled, aims.tripped)
	r.tally(s.trippedBy)
	var list []string
	for _, n := range s.tripped {
		list = append(list, fmt.Sprintf("%d %s: %s", n, strings.Join(s.rules[n], ","), s.lines[n-1]))
	}
	r.evidence(list)
	r.atMost("does not parse", len(s.unparsed), s.total, aims.unparsed)
	r.atMost("does not parse, but bash takes it", bashTakes(ctx, s.lines, s.unparsed), s.total, aims.misread)
	r.figure("labelled, but allowed", s.passed, s.labelled)
	r.tally(s.passedBy)
	r.note("restricted without a label, by rule:")
	r.tally(s.restricted)
}

// bashTakes counts the lines that bash itself reads without complaint.
// bash -n parses and runs nothing.
func bashTakes(ctx context.Context, lines []string, numbers []int) int {
	taken := 0
	for _, n := range numbers {
		if ctx.Err() != nil {
			break
		}
		if exec.CommandContext(ctx, "bash", "-n", "-c", lines[n-1]).Run() == nil {
			taken++
		}
	}
	return taken
}
