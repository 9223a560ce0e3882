package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Command asks a program. It gets one JSON object on standard input,
//
//	{"version":"1","system":…,"prompt":…,"schema":…,"code":…,"call":{…},"max_tokens":1024}
//
// and answers with one on standard output, the answer of the schema, to which
// it may add what was used:
//
//	{"verdict":"proceed","reason":"…","code":…,"input_tokens":0,"output_tokens":0}
//
// "code" is that of the question; "call" is the data of the prompt for
// programs that are no models. Whatever else it does, the program and its
// process group are killed when the time is over.
type Command struct {
	path string
	args []string
	env  []string
}

var _ Asker = (*Command)(nil)

// NewCommand returns the Asker of a program (a path, or a name that is looked
// up now) and its arguments. env is its environment; nil is that of this
// process.
func NewCommand(words, env []string) (*Command, error) {
	if len(words) == 0 {
		return nil, errors.New("judge: no command was given")
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("judge: command: %w", err)
	}
	return &Command{path, words[1:], env}, nil
}

type commandInput struct {
	Version   string          `json:"version"`
	System    string          `json:"system"`
	Prompt    string          `json:"prompt"`
	Schema    json.RawMessage `json:"schema"`
	Code      string          `json:"code"`
	Call      json.RawMessage `json:"call"`
	MaxTokens int64           `json:"max_tokens"`
}

// drain is how long output is waited for after the program ended or was
// killed, where a child of it holds the pipe open.
const drain = 200 * time.Millisecond

// Ask implements Asker.
func (c *Command) Ask(ctx context.Context, p Prompt) (Reply, error) {
	in, err := json.Marshal(commandInput{PromptVersion, p.System, p.User, p.Schema, p.Code, p.Call, p.MaxTokens})
	if err != nil {
		return Reply{}, errors.New("the question cannot be written")
	}
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Env = c.env
	cmd.Stdin = bytes.NewReader(in)
	out := &limited{left: maxAnswer}
	cmd.Stdout = out
	// A group of its own, so that children which it started die with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drain
	if err := cmd.Start(); err != nil {
		return Reply{}, fmt.Errorf("the command does not start: %w", err)
	}
	err = cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		// Somebody of the group holds the output open, so that its number is
		// still the group's.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have left the group
	}
	switch {
	case out.full:
		return Reply{}, unusable("too long")
	case ctx.Err() != nil:
		return Reply{}, context.Cause(ctx)
	case err != nil:
		return Reply{}, fmt.Errorf("the command failed: %s", exitText(err))
	}
	return commandReply(out.b.Bytes())
}

func exitText(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ProcessState.String()
	}
	return "it left its output open"
}

// limited keeps the first bytes of an output. An error of it ends the copying,
// and with it a program that goes on writing.
type limited struct {
	b    bytes.Buffer
	left int
	full bool
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		l.full = true
		return 0, errors.New("the output is too long")
	}
	l.left -= len(p)
	return l.b.Write(p)
}

// commandReply takes what was used out of the answer.
func commandReply(out []byte) (Reply, error) {
	v, err := strictjson.Parse(out)
	if err != nil || v.Kind != strictjson.Object {
		return Reply{Text: string(out)}, nil // its reader says what is wrong with it
	}
	var r Reply
	rest := strictjson.Value{Kind: strictjson.Object}
	for i, k := range v.Keys {
		switch k {
		case "input_tokens":
			r.InputTokens, err = tokens(&v.Items[i])
		case "output_tokens":
			r.OutputTokens, err = tokens(&v.Items[i])
		default:
			rest.Keys, rest.Items = append(rest.Keys, k), append(rest.Items, v.Items[i])
		}
		if err != nil {
			return Reply{}, err
		}
	}
	r.Text = string(strictjson.AppendCanonical(nil, &rest))
	return r, nil
}

func tokens(v *strictjson.Value) (int64, error) {
	n, err := strconv.ParseInt(v.Str, 10, 64)
	if v.Kind != strictjson.Number || err != nil || n < 0 || n > 1<<40 {
		return 0, unusable("a count of tokens is no number")
	}
	return n, nil
}

// Serve is the other side of Command for a program that asks a model by an
// Asker: it reads one question and writes one answer.
func Serve(ctx context.Context, stdin []byte, a Asker) ([]byte, error) {
	var in commandInput
	if err := json.Unmarshal(stdin, &in); err != nil {
		return nil, errors.New("judge: the question on standard input cannot be read")
	}
	if in.Version != PromptVersion {
		return nil, fmt.Errorf("judge: question of version %q (want %q)", in.Version, PromptVersion)
	}
	r, err := a.Ask(ctx, Prompt{System: in.System, User: in.Prompt, Schema: in.Schema, Code: in.Code, Call: in.Call, MaxTokens: in.MaxTokens})
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	v, err := strictjson.Parse([]byte(r.Text))
	if err != nil || v.Kind != strictjson.Object || len(r.Text) > maxAnswer {
		return nil, fmt.Errorf("judge: %w", unusable("not one JSON object"))
	}
	number := func(n int64) strictjson.Value {
		return strictjson.Value{Kind: strictjson.Number, Str: strconv.FormatInt(n, 10)}
	}
	v.Keys = append(v.Keys, "input_tokens", "output_tokens")
	v.Items = append(v.Items, number(r.InputTokens), number(r.OutputTokens))
	return append(strictjson.AppendCanonical(nil, &v), '\n'), nil
}
