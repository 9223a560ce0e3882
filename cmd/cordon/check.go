package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/door/api"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/spf13/cobra"
)

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Decide on calls read from standard input, one JSON object a line",
		Long: `Decide on calls read from standard input, one JSON object a line:
{"id","run_id","tier","server","tool","args",…}. One decision is written a
line, in the same order. Blank lines are passed over.

Exit status: 0 all were allowed, 3 the worst was restricted, 4 blocked,
2 wrong usage, 1 Cordon itself failed.`,
		Args: cobra.NoArgs,
	}
	flags := addRunFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		core, run, err := flags.open()
		if err != nil {
			return err
		}
		worst, err := check(cmd.Context(), core.guard, run, cmd.InOrStdin(), cmd.OutOrStdout())
		if err := errors.Join(err, core.close()); err != nil {
			return err
		}
		switch worst {
		case cordon.Blocked:
			return exitError{code: exitBlocked}
		case cordon.Restricted:
			return exitError{code: exitRestricted}
		}
		return nil
	}
	return cmd
}

// Lines that have arrived are decided in batches, so that the rows of refused
// ones share a commit. A batch ends where the next read would wait.
const (
	batchLines = 1024
	workers    = 128
)

// check decides on every line of in and writes to out. worst is the worst
// outcome of all.
func check(ctx context.Context, g cordon.Guard, base cordon.Run, in io.Reader, out io.Writer) (worst cordon.Outcome, err error) {
	worst = cordon.Allowed
	r := bufio.NewReaderSize(in, 256<<10)
	w := bufio.NewWriterSize(out, 256<<10)
	for {
		batch, readErr := readBatch(r, base)
		outcomes, err := decideBatch(ctx, g, batch, w)
		worst = cordon.Worst(worst, outcomes)
		switch {
		case err != nil:
			return worst, fmt.Errorf("write decisions: %w", err)
		case readErr == io.EOF:
			return worst, nil
		case readErr != nil:
			return worst, fmt.Errorf("read calls: %w", readErr)
		case ctx.Err() != nil:
			return worst, fmt.Errorf("interrupted: %w", ctx.Err())
		}
	}
}

// readBatch reads at least one line, and more as long as they are there.
func readBatch(r *bufio.Reader, base cordon.Run) ([]api.Request, error) {
	var batch []api.Request
	for len(batch) < batchLines {
		line, err := readLine(r)
		if len(bytes.TrimSpace(line)) > 0 {
			batch = append(batch, api.ReadCall(line, base))
		}
		if err != nil {
			return batch, err
		}
		if buffered, _ := r.Peek(r.Buffered()); len(batch) > 0 && bytes.IndexByte(buffered, '\n') < 0 {
			return batch, nil
		}
	}
	return batch, nil
}

// readLine reads up to a newline. Of a line past the size limit only as much
// is kept as shows that it is past it.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line) <= strictjson.MaxSize {
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// decideBatch decides on a batch and writes the decisions in its order.
func decideBatch(ctx context.Context, g cordon.Guard, batch []api.Request, w *bufio.Writer) (cordon.Outcome, error) {
	worst := cordon.Allowed
	decisions := decideAll(ctx, g, batch)
	var line []byte
	for i := range decisions {
		worst = cordon.Worst(worst, decisions[i].Outcome)
		line = append(api.AppendDecision(line[:0], batch[i].RawID, &decisions[i]), '\n')
		if _, err := w.Write(line); err != nil {
			return worst, err
		}
	}
	return worst, w.Flush()
}

// decideAll keeps the order among lines that share a run or a session; a line
// that is a run of its own depends on no other.
func decideAll(ctx context.Context, g cordon.Guard, batch []api.Request) []cordon.Decision {
	decisions := make([]cordon.Decision, len(batch))
	if len(batch) == 1 {
		decisions[0] = g.Decide(ctx, batch[0].Call)
		return decisions
	}
	next := make(chan int, len(batch))
	var wg sync.WaitGroup
	for range min(workers, len(batch)) {
		wg.Go(func() {
			for i := range next {
				decisions[i] = g.Decide(ctx, batch[i].Call)
			}
		})
	}
	for i := range batch {
		if !batch[i].Shared {
			next <- i
		}
	}
	close(next)
	for i := range batch {
		if batch[i].Shared {
			decisions[i] = g.Decide(ctx, batch[i].Call)
		}
	}
	wg.Wait()
	return decisions
}
