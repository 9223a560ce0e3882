package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
	"github.com/spf13/cobra"
)

func policyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong in a cordon.yaml, and run its tests",
		Long: `Load a cordon.yaml as the doors would, say what is wrong with the lines, and run
its tests: match and not_match of its tools, and the list "tests", whose calls
are judged in mode enforce by the file's own settings. Variables that set
settings do not count. Nothing is run, and the judge is not asked.

Exit status: 0 the file loads and all tests are as wanted, 1 not, 2 wrong usage.`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		result, err := checkPolicy(cmd.Context(), args[0], cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if *asJSON {
			err = json.NewEncoder(cmd.OutOrStdout()).Encode(result)
		} else {
			err = result.print(cmd.OutOrStdout())
		}
		if err == nil && !result.OK {
			return exitError{code: exitMalfunction}
		}
		return err
	}
	return cmd
}

// policyResult is what a file's check found.
type policyResult struct {
	File   string        `json:"file"`
	OK     bool          `json:"ok"`
	Errors []policyFault `json:"errors"`
	Notes  []string      `json:"notes"`
	Tests  []testResult  `json:"tests"`
}

// policyFault is one thing that is wrong; Line is 0 where it has none.
type policyFault struct {
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

// testResult is what became of one test's call.
type testResult struct {
	Name string         `json:"name"`
	Line int            `json:"line"`
	OK   bool           `json:"ok"`
	Want cordon.Outcome `json:"want"`
	Got  cordon.Outcome `json:"got"`
	// Rule is the one that was wanted, Rules those that refused the call.
	Rule  string   `json:"rule,omitempty"`
	Rules []string `json:"rules"`
	// Why is the first reason of a refusal.
	Why string `json:"why,omitempty"`
}

func checkPolicy(ctx context.Context, file string, stderr io.Writer) (*policyResult, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	data, err := readPolicy(path)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	r := &policyResult{File: file, Errors: []policyFault{}, Notes: []string{}, Tests: []testResult{}}
	in := config.Input{File: path, Getenv: fileOnly(nil), ReadFile: func(string) ([]byte, error) { return data, nil }}
	c, err := config.Load(in)
	r.add(path, err)
	switch {
	case c != nil:
		r.Notes = append(r.Notes, c.Notes()...)
		r.checkParts(path, c)
	case len(data) < maxPolicy:
		// Without a configuration the tools can still be read.
		r.add(path, toolsIn(data))
	}
	slices.SortStableFunc(r.Errors, func(a, b policyFault) int { return a.Line - b.Line })
	if r.OK = len(r.Errors) == 0; !r.OK || len(c.Tests()) == 0 {
		return r, nil
	}
	if r.Tests, err = runTests(ctx, in, &lineLog{w: stderr}); err != nil {
		return nil, err
	}
	r.OK = !slices.ContainsFunc(r.Tests, func(t testResult) bool { return !t.OK })
	return r, nil
}

// maxPolicy is more than a configuration may have, which loading it then says.
const maxPolicy = 1<<20 + 1

// readPolicy reads a file once, which may be a pipe.
func readPolicy(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPolicy))
}

// fileOnly is the environment without the variables that set settings, but
// for those that are given.
func fileOnly(given map[string]string) func(string) (string, bool) {
	hidden := map[string]bool{}
	for _, s := range config.Doors().Settings() {
		hidden[s.Env] = true
	}
	return func(name string) (string, bool) {
		if v, ok := given[name]; ok {
			return v, true
		}
		if hidden[name] {
			return "", false
		}
		return os.LookupEnv(name)
	}
}

// toolsIn says what is wrong with the tools of a file that does not load. A
// file that is no YAML has been said to be none.
func toolsIn(data []byte) error {
	entries, err := toolspec.Parse(data)
	if err != nil && strings.Contains(err.Error(), "yaml: ") {
		return nil
	}
	if err == nil {
		_, err = toolspec.Builtin().With(entries)
	}
	return err
}

// checkParts checks what the packages read that use it.
func (r *policyResult) checkParts(path string, c *config.Config) {
	_, err := catalogueOf(c)
	r.add(path, err)
	lines := map[string]int{}
	for _, s := range c.Settings() {
		lines[s.Name] = lineIn(path, s.SourceDetail)
	}
	hosts := func(where, setting string, list []string) {
		for _, h := range list {
			if _, err := egress.ParseRules([]string{h}); err != nil {
				r.Errors = append(r.Errors, policyFault{lines[setting], where + ": " + err.Error()})
			}
		}
	}
	hosts("allow_hosts", "allow_hosts", c.AllowHosts())
	for name, t := range c.Tenants() {
		hosts("tenants."+name+".allow_hosts", "tenants", t.AllowHosts)
	}
	before := len(r.Errors)
	_, err = policy.NewIssuer(policyConfig(c))
	r.add(path, err)
	for i := before; i < len(r.Errors); i++ {
		f := &r.Errors[i]
		for _, part := range [][2]string{{"allowed tools", "allow_tools"}, {"tenant", "tenants"}, {"write root", "write"}, {"read root", "read"}, {"host", "allow_hosts"}} {
			if f.Line == 0 && strings.Contains(f.Text, part[0]) {
				f.Line = lines[part[1]]
			}
		}
	}
}

// add takes an error apart into what it joins, with their lines.
func (r *policyResult) add(path string, err error) {
	var many interface{ Unwrap() []error }
	switch {
	case err == nil:
	case errors.As(err, &many):
		for _, e := range many.Unwrap() {
			r.add(path, e)
		}
	default:
		line := lineIn(path, err.Error())
		text := strings.TrimPrefix(err.Error(), "config: ")
		text = strings.TrimPrefix(text, fmt.Sprintf("%s:%d: ", path, line))
		text = strings.TrimPrefix(text, path+": ")
		r.Errors = append(r.Errors, policyFault{line, text})
	}
}

var lineWord = regexp.MustCompile(`\bline (\d+):`)

// lineIn is the line that a text names, or 0.
func lineIn(path, text string) int {
	digits := ""
	if _, rest, ok := strings.Cut(text, path+":"); ok {
		digits = rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	}
	// An error of the tools names the file, and then lines in words: the tool's,
	// and that of what is wrong in it.
	if all := lineWord.FindAllStringSubmatch(text, -1); digits == "" && all != nil {
		digits = all[len(all)-1][1]
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// runTests judges the tests' calls, each in a run of its own, on a store that
// is thrown away.
func runTests(ctx context.Context, in config.Input, log *lineLog) (results []testResult, err error) {
	dir, err := os.MkdirTemp("", "cordon-policy-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The temporary directory may lie behind a link; reasons name real paths.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	db := filepath.Join(dir, "audit.db")
	in.Flags = map[string][]string{"mode": {cordon.Enforce.String()}, "db": {db}}
	in.Getenv = fileOnly(map[string]string{"ATOM_SANDBOX_JUDGE_ENABLED": "false"})
	c, err := config.Load(in)
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, db)
	if err != nil {
		return nil, err
	}
	g, err := newGuard(c, store, log)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		home = filepath.Join(dir, "home")
	}
	for i, t := range c.Tests() {
		workspace := filepath.Join(dir, "workspaces", strconv.Itoa(i))
		if err = os.MkdirAll(workspace, 0o700); err != nil {
			break
		}
		results = append(results, judgeTest(ctx, g, c, t, workspace, home))
	}
	return results, errors.Join(err, g.Close(ctx), store.Close())
}

func judgeTest(ctx context.Context, g cordon.Guard, c *config.Config, t config.Test, workspace, home string) testResult {
	run := cordon.Run{Tenant: t.Tenant, Tier: c.Tier(), Profile: c.Profile(), Workspace: workspace, Home: home}
	if t.Tier != nil {
		run.Tier = *t.Tier
	}
	if t.Profile != "" {
		run.Profile = t.Profile
	}
	// In JSON the word stands in a text; nowhere else could it.
	inText, err := json.Marshal(workspace)
	if err != nil {
		inText = []byte(`""`)
	}
	args := bytes.ReplaceAll(t.Args, []byte("{workspace}"), bytes.Trim(inText, `"`))
	d := g.Decide(ctx, cordon.Call{ID: t.Name, Run: run, Server: t.Server, Tool: t.Tool, Args: args})
	r := testResult{Name: t.Name, Line: t.Line, Want: t.Want, Got: d.Outcome, Rule: t.Rule, Rules: []string{}}
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.Outcome == cordon.Allowed {
			continue
		}
		if !slices.Contains(r.Rules, f.Rule) {
			r.Rules = append(r.Rules, f.Rule)
		}
		if r.Why == "" {
			r.Why = strings.ReplaceAll(f.Detail, workspace, "{workspace}")
		}
	}
	r.OK = r.Got == r.Want && (r.Rule == "" || slices.Contains(r.Rules, r.Rule))
	return r
}

func (r *policyResult) print(out io.Writer) error {
	for _, e := range r.Errors {
		place := r.File
		if e.Line > 0 {
			place += ":" + strconv.Itoa(e.Line)
		}
		fmt.Fprintf(out, "%s: %s\n", place, printable(e.Text))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", printable(n))
	}
	if len(r.Errors) > 0 {
		_, err := fmt.Fprintf(out, "%s: errors: %d; its tests were not run\n", r.File, len(r.Errors))
		return err
	}
	failed := 0
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(r.Tests) > 0 {
		fmt.Fprintln(w, "\tLINE\tTEST\tWANT\tGOT\tRULES")
	}
	for _, t := range r.Tests {
		verdict, want := "ok", t.Want.String()
		if t.Rule != "" {
			want += " by " + t.Rule
		}
		if !t.OK {
			verdict = "FAIL"
			failed++
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", verdict, t.Line, printable(t.Name), printable(want), t.Got, strings.Join(t.Rules, " "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range r.Tests {
		if !t.OK && t.Why != "" {
			fmt.Fprintf(out, "%s:%d: %s\n", r.File, t.Line, printable(t.Why))
		}
	}
	_, err := fmt.Fprintf(out, "%s: no errors; tests: %d, failed: %d\n", r.File, len(r.Tests), failed)
	return err
}
