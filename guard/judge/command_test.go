package judge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script is a command of these lines of shell.
func script(t *testing.T, lines string) *Command {
	t.Helper()
	name := filepath.Join(t.TempDir(), "judge.sh")
	if err := os.WriteFile(name, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := NewCommand([]string{"/bin/sh", name}, []string{"PATH=/usr/bin:/bin"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is a shell line that takes the code out of the question and answers.
const answerLine = `code=$(sed 's/.*"code":"\([a-z0-9]*\)".*/\1/')
`

func TestACommandJudges(t *testing.T) {
	c := script(t, answerLine+`printf '{"verdict":"block","reason":"no","code":"%s","input_tokens":10,"output_tokens":5}\n' "$code"`)
	j := newJudge(t, c)
	v := j.Judge(t.Context(), request(`{"to":"x"}`))
	if v.Failed || v.Decision != Block || v.Reason != "no" || v.CostUSD != 60e-6 {
		t.Errorf("%+v", v)
	}
}

func TestACommandGetsTheCallAsJSON(t *testing.T) {
	out := filepath.Join(t.TempDir(), "in.json")
	c := script(t, "cat >'"+out+"'\n")
	newJudge(t, c).Judge(t.Context(), request(`{"to":"x","password":"zebra99"}`))
	in, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"version":"1"`, `"call":{"server":"mail"`, `"schema":{`, `"max_tokens":1024`, `"code":"`} {
		if !strings.Contains(string(in), want) {
			t.Errorf("the question lacks %s: %s", want, in)
		}
	}
	if strings.Contains(string(in), "zebra99") {
		t.Error("a secret is sent")
	}
}

func TestCommandsThatGiveNoVerdict(t *testing.T) {
	tests := []struct {
		name, lines string
		is          error
	}{
		{"nothing", "cat >/dev/null", ErrUnusable},
		{"the question itself", "cat", ErrUnusable},
		{"prose", "echo proceed", ErrUnusable},
		{"output without end", "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", ErrUnusable},
		{"an exit code", answerLine + `printf '{"verdict":"proceed","reason":"","code":"%s"}' "$code"; exit 3`, nil},
		{"tokens that are none", answerLine + `printf '{"verdict":"proceed","reason":"","code":"%s","input_tokens":-1}' "$code"`, ErrUnusable},
		{"tokens that are text", answerLine + `printf '{"verdict":"proceed","reason":"","code":"%s","input_tokens":"1"}' "$code"`, ErrUnusable},
		{"a crash", "kill -9 $$", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJudge(t, script(t, tt.lines), func(c *Config) { c.Timeout = 10 * time.Second })
			v := j.Judge(t.Context(), request(`{"to":"zebra99"}`))
			if !v.Failed || tt.is != nil && !errors.Is(v.Err, tt.is) || errors.Is(v.Err, ErrTimeout) {
				t.Errorf("%+v", v)
			}
			if strings.Contains(v.Err.Error()+v.Reason, "zebra99") {
				t.Errorf("content in %v", v.Err)
			}
		})
	}
	if _, err := NewCommand(nil, nil); err == nil {
		t.Error("no command was accepted")
	}
	if _, err := NewCommand([]string{"/nonexistent/judge"}, nil); err == nil {
		t.Error("a command that is not there was accepted")
	}
}

func TestACommandIsKilledWithItsGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	c := script(t, "trap '' TERM INT HUP\nsleep 1000 &\necho $$ $! >'"+pids+"'\nwait\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Ask(ctx, promptOf(request(`{}`)))
		failed <- err
	}()
	line, err := os.ReadFile(pids) // opens once the other end writes
	if err != nil {
		t.Fatal(err)
	}
	over := errors.New("time is over")
	cancel(over)
	if err := <-failed; !errors.Is(err, over) {
		t.Errorf("error %v", err)
	}
	for _, field := range strings.Fields(string(line)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		awaitDead(t, pid)
	}
}

// awaitDead waits until a process is gone, or a zombie that nobody reaps.
func awaitDead(t *testing.T, pid int) {
	t.Helper()
	for range 500 {
		if err := syscall.Kill(pid, 0); err != nil {
			return
		}
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d lives on", pid)
}

// A child that leaves the group and keeps the output open must not hold the
// answer up for ever.
func TestAnOutputThatStaysOpenIsAFailure(t *testing.T) {
	c := script(t, answerLine+`sleep 5 &
printf '{"verdict":"proceed","reason":"","code":"%s"}' "$code"`)
	v := newJudge(t, c, func(c *Config) { c.Timeout = 4 * time.Second }).Judge(t.Context(), request(`{}`))
	if !v.Failed || errors.Is(v.Err, ErrTimeout) {
		t.Errorf("%+v", v)
	}
}

func TestServeIsTheOtherSideOfACommand(t *testing.T) {
	out := filepath.Join(t.TempDir(), "in.json")
	newJudge(t, script(t, "cat >'"+out+"'\n")).Judge(t.Context(), request(`{"to":"x"}`))
	in, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var asked Prompt
	reply, err := Serve(t.Context(), in, askerFunc(func(ctx context.Context, p Prompt) (Reply, error) {
		asked = p
		return says("escalate")(ctx, p)
	}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := commandReply(reply)
	if err != nil || r.InputTokens != 1000 || r.OutputTokens != 100 {
		t.Errorf("%+v %v", r, err)
	}
	if d, _, err := parseAnswer(r.Text, asked.Code); err != nil || d != Escalate || asked.System != system || asked.MaxTokens != maxTokens {
		t.Errorf("%s %v %+v", d, err, asked)
	}
	for name, b := range bad {
		if name == "a silent one" || name == "a panic" || name == "another's code" {
			continue // nothing for the other side to notice
		}
		if got, err := Serve(t.Context(), in, b.asker); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, text := range []string{"", "[]", `{"version":"0"}`} {
		if _, err := Serve(t.Context(), []byte(text), says("proceed")); err == nil {
			t.Errorf("question %q was accepted", text)
		}
	}
}

func FuzzCommandReply(f *testing.F) {
	for _, s := range []string{`{"verdict":"proceed","input_tokens":1}`, `{"output_tokens":1e3}`, `[1]`, "x", `{"input_tokens":-1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		r, err := commandReply(out)
		if err == nil && (r.InputTokens < 0 || r.OutputTokens < 0) {
			t.Errorf("%+v", r)
		}
	})
}
