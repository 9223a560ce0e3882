// Command cordon-judge asks a model about one call: a question on standard
// input, one answer on standard output. Cordon starts it where its judge is to
// ask a provider. It is a program of its own because the providers' kits weigh
// more than all of Cordon and would slow every start of it.
//
// What it does not do: decide. Cordon reads the answer strictly, and knows what
// to do where there is none.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/cordon-sandbox/cordon/guard/judge"
	"github.com/cordon-sandbox/cordon/guard/judge/anthropic"
	"github.com/cordon-sandbox/cordon/guard/judge/gemini"
	"github.com/cordon-sandbox/cordon/guard/judge/openai"
)

// keyVariable holds the provider's key.
const keyVariable = "CORDON_JUDGE_KEY"

// maxQuestion is the largest question, in bytes.
const maxQuestion = 4 << 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cordon-judge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("cordon-judge", flag.ContinueOnError)
	provider := flags.String("provider", "", "anthropic, openai (or any server that speaks its protocol) or gemini")
	model := flags.String("model", "", "the `MODEL` to ask")
	base := flags.String("base-url", "", "the `URL` of the server (default the provider's own)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	asker, err := newAsker(*provider, *model, *base, os.Getenv(keyVariable))
	if err != nil {
		return err
	}
	question, err := io.ReadAll(io.LimitReader(in, maxQuestion+1))
	switch {
	case err != nil:
		return err
	case len(question) > maxQuestion:
		return fmt.Errorf("a question of more than %d bytes", maxQuestion)
	}
	answer, err := judge.Serve(ctx, question, asker)
	if err != nil {
		return err
	}
	_, err = out.Write(answer)
	return err
}

func newAsker(provider, model, base, key string) (judge.Asker, error) {
	switch provider {
	case "anthropic":
		return anthropic.New(anthropic.Config{Model: model, Key: key, BaseURL: base})
	case "openai":
		return openai.New(openai.Config{Model: model, Key: key, BaseURL: base})
	case "gemini":
		return gemini.New(gemini.Config{Model: model, Key: key, BaseURL: base})
	}
	return nil, fmt.Errorf("provider %q (want anthropic, openai or gemini)", provider)
}
