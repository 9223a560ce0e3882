// Command accuracy measures verdicts through the front door: it builds
// cordon, feeds `cordon check --profile coding --mode enforce` with public
// command collections, example cases and the libraries of the machine's own
// interpreters, and prints what was refused. It is what `make accuracy` runs.
//
// It guarantees that the figures are those of the binary a user would get,
// from JSON in to the decision out, and that a figure that has reached its
// aim cannot fall below it without a non-zero exit.
//
// It does not tell whether a refusal was right beyond what the labels and the
// cases say, and a file that is absent is not measured: outside of CI that is
// a skip with its cause, in CI (CI=true) a failure.
//
// CORDON_CORPORA and CORDON_CASES name the directories of the collections;
// without them ../shared/corpora and ../shared/cases beside the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Getenv)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

// measures in the order in which they are printed.
var measures = []struct {
	name string
	run  func(context.Context, *bench, *report) error
}{
	{"NL2Bash", measureNL2Bash},
	{"cases", measureCases},
	{"Python standard library", measureStandardLibrary},
	{"Python site packages", measureSitePackages},
	{"JavaScript packages", measureJavaScript},
}

// errAims is what a run ends with whose figures are worse than their aims.
var errAims = errors.New("an aim that held is broken, or what it is measured on is absent (see above)")

func run(ctx context.Context, args []string, out io.Writer, getenv func(string) string) error {
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	only := flags.String("only", "", "run the `measure` of this name alone")
	list := flags.Int("list", 40, "lines of evidence printed for each list; 0 prints all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := newBench(ctx, getenv)
	if err != nil {
		return err
	}
	defer b.close()

	r := &report{out: out, ci: getenv("CI") == "true", lines: *list}
	ran := false
	for _, m := range measures {
		if *only != "" && *only != m.name {
			continue
		}
		ran = true
		start := time.Now()
		r.section(m.name)
		var absent absentError
		switch err := m.run(ctx, b, r); {
		case errors.As(err, &absent):
			r.absent(absent)
		case err != nil:
			return fmt.Errorf("%s: %w", m.name, err)
		}
		r.note("took %s", time.Since(start).Round(100*time.Millisecond))
	}
	if !ran {
		return fmt.Errorf("unknown measure %q", *only)
	}
	if r.broken {
		return errAims
	}
	return nil
}

// absentError says what is missing on this machine and what would bring it.
type absentError string

func (e absentError) Error() string { return string(e) }

// moduleRoot is the nearest directory upwards that holds go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod in this directory or above it (run it inside the repository)")
		}
		dir = parent
	}
}
