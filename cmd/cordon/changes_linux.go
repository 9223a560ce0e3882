package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/transaction"
	"github.com/cordon-sandbox/cordon/guard/fsscope"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/cordon-sandbox/cordon/internal/gitcode"
)

// outcome is what --json prints.
type outcome struct {
	Run       string                `json:"run_id"`
	Decision  string                `json:"decision"`
	Runtime   string                `json:"runtime,omitempty"`
	ExitCode  int                   `json:"exit_code"`
	Cause     string                `json:"cause,omitempty"`
	Wall      float64               `json:"wall_seconds"`
	Stats     sandbox.Stats         `json:"stats"`
	Sent      int64                 `json:"sent_bytes"`
	Received  int64                 `json:"received_bytes"`
	Controls  []sandbox.Held        `json:"controls"`
	Committed bool                  `json:"committed"`
	Changes   []transaction.Change  `json:"changes"`
	Refused   []transaction.Refusal `json:"refused,omitempty"`
	// Dropped are rights that were left out of changes that were committed.
	Dropped []transaction.Refusal `json:"dropped,omitempty"`

	// Patch is what --patch shows.
	Patch []string `json:"patch,omitempty"`
}

// conflictChoices are the words of --on-conflict.
var conflictChoices = map[string]transaction.Conflicts{
	"stop": transaction.StopOnConflict, "keep": transaction.KeepWorkspace, "overwrite": transaction.OverwriteWorkspace,
}

// conclude commits or throws away. Paths outside of the workspace are
// reported absolute.
func (o *runOptions) conclude(out *outcome, roots []writableRoot, w *walls, r sandbox.Result) error {
	for i, root := range roots {
		changes, err := root.tx.Diff()
		if err != nil {
			return errors.Join(err, rollbackAll(roots))
		}
		out.Changes = append(out.Changes, shown(root, i, changes)...)
		if err := o.collectPatches(out, root, changes); err != nil {
			return errors.Join(err, rollbackAll(roots))
		}
	}
	keep := r.Cause == nil && (r.ExitCode == 0 || o.commit) && !o.discard
	if !keep || len(out.Changes) == 0 {
		return rollbackAll(roots)
	}
	// Of several directories none is committed when one cannot be.
	if o.onConflict == "stop" && o.conflicts(out.Changes) {
		return errors.Join(fmt.Errorf("nothing was committed: %w", transaction.ErrConflict), rollbackAll(roots))
	}
	out.Changes = nil
	for i, root := range roots {
		if err := o.commitRoot(out, root, i, w); err != nil {
			return errors.Join(err, rollbackAll(roots[i:]))
		}
	}
	out.Committed = true
	return nil
}

func (o *runOptions) conflicts(changes []transaction.Change) (any bool) {
	for _, c := range changes {
		if c.Conflict {
			any = true
			fmt.Fprintf(o.runFlags.cmd.ErrOrStderr(), "cordon: %s was changed in the workspace meanwhile\n", printable(c.Path))
		}
	}
	return any
}

// shown gives the changes of the further roots absolute paths.
func shown(root writableRoot, i int, changes []transaction.Change) []transaction.Change {
	if i == 0 {
		return changes
	}
	out := make([]transaction.Change, len(changes))
	for j, c := range changes {
		c.Path = filepath.Join(root.path, c.Path)
		out[j] = c
	}
	return out
}

// maxPatches is how many files --patch shows.
const maxPatches = 200

func (o *runOptions) collectPatches(out *outcome, root writableRoot, changes []transaction.Change) error {
	if !o.patch {
		return nil
	}
	for _, c := range changes {
		if c.Mode.IsDir() {
			continue
		}
		if len(out.Patch) == maxPatches {
			out.Patch = append(out.Patch, "further files are not shown\n")
			return nil
		}
		text, err := root.tx.TextDiff(c.Path)
		if err != nil {
			return err
		}
		out.Patch = append(out.Patch, fmt.Sprintf("%s %s (%s)\n", c.Kind, c.Path, c.Mode)+text)
	}
	return nil
}

func (o *runOptions) commitRoot(out *outcome, root writableRoot, i int, w *walls) error {
	protected, err := protection(w.policy, root, w.self)
	if err != nil {
		return err
	}
	report, err := root.tx.Commit(transaction.Options{
		Protected: protected, Together: together, Conflicts: conflictChoices[o.onConflict], Progress: progress(o.runFlags.cmd.ErrOrStderr()),
	})
	if errors.Is(err, transaction.ErrConflict) {
		o.conflicts(shown(root, i, report.Conflicts))
		return fmt.Errorf("%s: nothing was committed: %w", printable(root.path), err)
	}
	if err != nil {
		return err
	}
	out.Changes = append(out.Changes, shown(root, i, report.Applied)...)
	out.Refused = append(out.Refused, placed(root, i, report.Refused)...)
	out.Dropped = append(out.Dropped, placed(root, i, report.Dropped)...)
	return nil
}

func placed(root writableRoot, i int, list []transaction.Refusal) []transaction.Refusal {
	for j := range list {
		if i > 0 {
			list[j].Path = filepath.Join(root.path, list[j].Path)
		}
	}
	return list
}

// progress says on w how far a long commit is, once a second.
func progress(w io.Writer) func(done, total int) {
	last := time.Now()
	return func(done, total int) {
		if time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		fmt.Fprintf(w, "cordon: committing: %d of %d changes\n", done, total)
	}
}

// protection asks the file scope which paths a run may not leave changed.
func protection(p *policy.Policy, root writableRoot, self []string) (protector, error) {
	scope, err := fsscope.New(fsscope.Config{
		Roots:     []fsscope.Root{{Path: root.path, Write: true}},
		Workspace: root.path, Home: p.Home(), Coding: true, SelfPaths: self,
	})
	if err != nil {
		return nil, err
	}
	names := gitcode.New(gitConfigs(p.Home())...)
	return func(rel string, kind transaction.ChangeKind) string {
		if kind == transaction.ModeOnly {
			return "" // a directory whose content changed
		}
		if why := names.Why(filepath.Join(root.path, rel)); why != "" {
			return why
		}
		e := cordon.Effect{Kind: cordon.Write, Target: filepath.Join(root.path, rel), Dir: "/", Expanded: true, NoFollow: true}
		if kind == transaction.Deleted {
			e.Kind = cordon.Delete
		} else if root.tx == nil {
			// It is asked about as it stands in the workspace.
		} else if info, err := os.Lstat(filepath.Join(root.tx.Upper(), rel)); err == nil && info.IsDir() {
			e.Op = "create" // an empty directory runs nothing; what is in it is asked about by itself
		}
		for _, f := range scope.Judge(e).Findings {
			if f.Rule == fsscope.RuleProtected || f.Rule == fsscope.RulePersistence || f.Rule == fsscope.RuleSelf {
				return f.Detail
			}
		}
		return ""
	}, nil
}

// together names the repository of a path that is part of its state: a half of
// it would be a repository that is in no state at all. What is half done in it
// (the commands of a rebase, a new worktree) is protected, as git would execute
// it, and so keeps the rest back.
func together(rel string) string {
	dir, below, found := strings.Cut("/"+rel, "/.git/")
	if !found {
		return ""
	}
	first, rest, _ := strings.Cut(below, "/")
	switch {
	case first == "worktrees" && rest != "":
		name, _, _ := strings.Cut(rest, "/")
		return dir + "/.git/worktrees/" + name
	case strings.HasSuffix(first, "HEAD"), strings.HasPrefix(first, "MERGE_"):
		return dir + "/.git"
	case slices.Contains(gitState, first):
		return dir + "/.git"
	}
	return ""
}

// gitState are the further names, in a git directory, of what belongs together.
var gitState = []string{"index", "packed-refs", "refs", "logs", "AUTO_MERGE", "SQUASH_MSG", "rebase-merge", "rebase-apply", "sequencer"}

// protector says why a path may not be changed by the run, or "".
type protector = func(rel string, kind transaction.ChangeKind) string

// gitConfigs are the files that count for all repositories of the user.
func gitConfigs(home string) []string {
	files := []string{"/etc/gitconfig", filepath.Join(home, ".gitconfig")}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "git", "config"))
	}
	return files
}

// report says what became of the run, on standard error: standard output is
// the command's.
func (o *runOptions) report(out *outcome) error {
	w := o.runFlags.cmd.ErrOrStderr()
	if o.asJSON {
		return json.NewEncoder(w).Encode(out)
	}
	if out.Cause != "" {
		fmt.Fprintf(w, "cordon: ended: %s\n", out.Cause)
	}
	listRefused(w, out.Refused)
	for _, d := range out.Dropped {
		fmt.Fprintf(w, "cordon: committed without: %s: %s\n", printable(d.Path), printable(d.Why))
	}
	if o.diff {
		listChanges(w, out)
	}
	for _, text := range out.Patch {
		if _, err := io.WriteString(w, printableLines(text)); err != nil {
			return err
		}
	}
	return nil
}

// listRefused says of each directory and each reason one line: what lies below
// a path that was refused goes without saying.
func listRefused(w io.Writer, refused []transaction.Refusal) {
	type group struct {
		first transaction.Refusal
		more  int
	}
	groups := map[string]*group{}
	var order []string
	top := ""
	for _, r := range refused {
		if top != "" && strings.HasPrefix(r.Path, top+"/") {
			continue
		}
		top = r.Path
		// The reason names the path; what it says of it is the same for many.
		why := strings.ReplaceAll(r.Why, r.Path, "")
		if g := groups[why]; g != nil {
			g.more++
			continue
		}
		groups[why] = &group{first: r}
		order = append(order, why)
	}
	for _, why := range order {
		g, more := groups[why], ""
		if g.more > 0 {
			more = fmt.Sprintf(" and %d more", g.more)
		}
		fmt.Fprintf(w, "cordon: not committed: %s%s: %s\n", printable(g.first.Path), more, printable(g.first.Why))
	}
}

func listChanges(w io.Writer, out *outcome) {
	what := "thrown away"
	if out.Committed {
		what = "committed"
	}
	noun := "changes"
	if len(out.Changes) == 1 {
		noun = "change"
	}
	fmt.Fprintf(w, "cordon: %d %s, %s\n", len(out.Changes), noun, what)
	for _, c := range out.Changes {
		fmt.Fprintf(w, "  %-8s %s\n", c.Kind, printable(c.Path))
	}
}
