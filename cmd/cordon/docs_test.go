package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

func TestTheReferenceOfTheFileIsCurrent(t *testing.T) {
	got, err := os.ReadFile("../../docs/cordon.yaml.md")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(referencePage()), string(got)); d != "" {
		t.Errorf("docs/cordon.yaml.md is not what go run ./cmd/cordon policy schema --reference prints:\n%s", d)
	}
}

func wholeSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := fileSchema()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func yamlAsJSON(text string) (out any, err error) {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(b, &out)
}

// markdown are the pages that users read.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"../../README.md", "../../docs/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v %v", pattern, files, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			pages[f] = string(text)
		}
	}
	return pages
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```")

func TestTheExamplesOfTheFileLoadAndPassTheirTests(t *testing.T) {
	schema, n := wholeSchema(t), 0
	for page, text := range markdown(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			// Workflows of CI are YAML too.
			if m[1] != "yaml" || strings.Contains(m[2], "\njobs:") {
				continue
			}
			n++
			file := filepath.Join(t.TempDir(), "cordon.yaml")
			if err := os.WriteFile(file, []byte(m[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if code := Run(context.Background(), []string{"policy", "check", file}, Stdio{In: strings.NewReader(""), Out: &out, Err: &out}); code != exitOK {
				t.Errorf("%s: exit %d\n%s\n%s", page, code, m[2], out.String())
			}
			v, err := yamlAsJSON(m[2])
			if err == nil {
				err = schema.Validate(v)
			}
			if err != nil {
				t.Errorf("%s: the schema refuses\n%s\n%v", page, m[2], err)
			}
		}
	}
	if n < 2 {
		t.Errorf("%d examples were found (want that of the README and that of the reference)", n)
	}
}

func TestTheSchemaKnowsTheKeysOfATool(t *testing.T) {
	_, err := toolspec.Parse([]byte("- names: [x]\n  unknown: 1"))
	_, list, ok := strings.Cut(err.Error(), "(want ")
	if !ok {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(strings.ReplaceAll(list, " or ", ", "), ")"), ", ")
	var got []string
	for _, k := range toolKeys() {
		if k.about == "" || k.value == "" {
			t.Errorf("%s: no description", k.name)
		}
		got = append(got, k.name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-toolspec +schema):\n%s", d)
	}
}

func TestTheSchemaOfToolsSaysWhatIsRead(t *testing.T) {
	schema := wholeSchema(t)
	for _, tt := range []struct {
		name, tool string
		want       bool
	}{
		{"a name", "names: a_tool", true},
		{"names with a star", "names: [a_tool, \"b_*\"]", true},
		{"all keys", "{names: [a], server: s, group: exec, irreversible: yes, outbound: false, language: python, root: list, remote: true, reads_env: on, server_only: true, bare: false, args: {read: [p], text: q}, read_when: {mode: [preview]}, weaken: no, match: [a], not_match: [b]}", true},
		{"a sample with roles", "{names: [a], args: {read: [p]}, match: [{tool: s__a, server: x, roles: {p: read}}]}", true},
		{"no names", "{group: exec}", false},
		{"an unknown key", "{names: [a], grupe: exec}", false},
		{"an unknown group", "{names: [a], group: admin}", false},
		{"an unknown role", "{names: [a], args: {reads: [p]}}", false},
		{"another root", "{names: [a], root: write}", false},
		{"a switch that is none", "{names: [a], remote: maybe}", false},
		{"arguments in a list", "{names: [a], args: [p]}", false},
		{"a sample without a tool", "{names: [a], match: [{server: x}]}", false},
		{"a sample's unknown role", "{names: [a], match: [{tool: a, roles: {p: x}}]}", false},
		{"a tool that is a name", "a", false},
	} {
		text := "tools:\n- " + tt.tool + "\n"
		_, parseErr := toolspec.Parse([]byte(text))
		v, err := yamlAsJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		schemaErr := schema.Validate(v)
		if (parseErr == nil) != tt.want || (schemaErr == nil) != tt.want {
			t.Errorf("%s (want taken: %v): toolspec says %v, the schema %v", tt.name, tt.want, parseErr, schemaErr)
		}
	}
}

var (
	codeSpan    = regexp.MustCompile("`([^`\n]+)`")
	commandLine = regexp.MustCompile(`(?:^|[\s;|&(])(?:go run \./cmd/)?cordon ([a-z][^\n]*)`)
	word        = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
)

// commandLines are those of cordon that stand in a page, without its name.
func commandLines(page string) []string {
	var texts, list []string
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if m[1] == "sh" || m[1] == "console" || m[1] == "bash" {
			texts = append(texts, strings.Split(strings.ReplaceAll(m[2], "\\\n", " "), "\n")...)
		}
	}
	for _, m := range codeSpan.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		texts = append(texts, m[1])
	}
	for _, text := range texts {
		for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
	}
	return list
}

// TestTheCommandLinesOfTheDocsParse holds pages to the commands and flags that
// there are.
func TestTheCommandLinesOfTheDocsParse(t *testing.T) {
	n := 0
	for page, text := range markdown(t) {
		for _, line := range commandLines(text) {
			n++
			if err := parses(line); err != nil {
				t.Errorf("%s: cordon %s: %v", page, line, err)
			}
		}
	}
	if n < 10 {
		t.Errorf("%d command lines were found", n)
	}
	for _, line := range []string{"nosuch", "policy shows", "run --no-such-flag -- x", "check --modus enforce"} {
		if parses(line) == nil {
			t.Errorf("cordon %s: taken", line)
		}
	}
}

// parses finds the command of a line and reads its flags. It goes up to what a
// shell would take for the end of the command.
func parses(line string) error {
	var args []string
	for _, w := range word.FindAllString(line, -1) {
		if w == "|" || w == "#" || w == "&&" || w == ">" || strings.HasPrefix(w, ">") || w == "--" {
			break
		}
		end := strings.HasSuffix(w, ";")
		args = append(args, strings.Trim(w, `'";`))
		if end {
			break
		}
	}
	root := rootCommand()
	root.SetOut(io.Discard)
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	// A flag whose value the text leaves out is named all the same.
	if err := cmd.ParseFlags(rest); err != nil && !strings.Contains(err.Error(), "needs an argument") {
		return err
	}
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return cobra.NoArgs(cmd, cmd.Flags().Args())
	}
	return nil
}

var longFlag = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

func TestManualPagesNameEveryCommandAndFlag(t *testing.T) {
	root := rootCommand()
	root.InitDefaultCompletionCmd()
	dir := t.TempDir()
	if code := Run(context.Background(), []string{"man", dir}, Stdio{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	for _, c := range documented(root) {
		file := filepath.Join(dir, manName(c)+".1")
		page, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		var help bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		Run(context.Background(), args, Stdio{In: strings.NewReader(""), Out: &help, Err: &help})
		plain := strings.ReplaceAll(string(page), `\-`, "-")
		for _, flag := range longFlag.FindAllString(help.String(), -1) {
			if !strings.Contains(plain, flag) {
				t.Errorf("%s does not name %s", manName(c), flag)
			}
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && !strings.Contains(plain, ".BR "+manName(sub)+" (1)") {
				t.Errorf("%s does not name %s", manName(c), sub.Name())
			}
		}
		lintRoff(t, file, page)
	}
}

// lintRoff looks for what would be read as a macro, and asks groff where it is.
func lintRoff(t *testing.T, file string, page []byte) {
	t.Helper()
	known := []string{".TH", ".SH", ".PP", ".TP", ".B", ".BR", ".I", ".nf", ".fi", ".br"}
	for line := range strings.Lines(string(page)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if line[0] == '\'' || line[0] == '.' && !slices.Contains(known, name) {
			t.Errorf("%s: an unknown macro in %q", file, line)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	if out, err := exec.Command(groff, "-man", "-Tascii", "-ww", "-z", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

func TestTextsCannotBecomeMacros(t *testing.T) {
	for in, want := range map[string]string{
		".so /etc/passwd": `\&.so /etc/passwd`, "'x": `\&'x`, `a\b-c`: `a\eb\-c`, "é": `\[u00E9]`, "a …": "a ...", "a\n.b": "a .b",
	} {
		if got := roff(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := quoted(`a"b`); got != `"a\(dqb"` {
		t.Error(got)
	}
}
