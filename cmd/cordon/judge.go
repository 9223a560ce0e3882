package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/guard"
	"github.com/cordon-sandbox/cordon/guard/judge"
)

// judgeProgram asks the providers' models; it is installed beside cordon.
const judgeProgram = "cordon-judge"

// openJudge is the judge that the configuration names, or nil: it is off by
// default.
func openJudge(c *config.Config) (guard.ActionJudge, error) {
	if !c.Phases().Judge {
		return nil, nil
	}
	m, bounds := c.JudgeModel(), c.Judge()
	words, env := m.Command, []string(nil)
	if m.Provider != "command" {
		program, err := besideThis(judgeProgram)
		if err != nil {
			return nil, fmt.Errorf("judge: provider %q needs the program %s beside cordon or on the PATH (go install ./cmd/%s): %w", m.Provider, judgeProgram, judgeProgram, err)
		}
		words = []string{program, "-provider", m.Provider, "-model", m.Model}
		if m.BaseURL != "" {
			words = append(words, "-base-url", m.BaseURL)
		}
		env = []string{"CORDON_JUDGE_KEY=" + m.Key.Reveal()}
		for _, name := range []string{"PATH", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "https_proxy"} {
			if v, ok := os.LookupEnv(name); ok {
				env = append(env, name+"="+v)
			}
		}
	}
	asker, err := judge.NewCommand(words, env)
	if err != nil {
		return nil, err
	}
	j, err := judge.New(judge.Config{
		Asker: asker, Model: m.Provider + " " + m.Model, Timeout: bounds.Timeout, Threshold: int(bounds.CircuitThreshold),
		Cooldown: bounds.CircuitCooldown, InputUSD: m.InputUSD, OutputUSD: m.OutputUSD,
	})
	if err != nil {
		return nil, err
	}
	return actionJudge{j}, nil
}

// besideThis finds a program in the directory of this one, or on the PATH.
func besideThis(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), name); isExecutable(path) {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// actionJudge lets the guard ask the judge.
type actionJudge struct{ judge *judge.Judge }

var _ guard.ActionJudge = actionJudge{}

func (a actionJudge) Concerns(effects []cordon.Effect) bool { return judge.Irreversible(effects) }

func (a actionJudge) Judge(ctx context.Context, s guard.Subject) (cordon.Finding, bool) {
	r := judge.Request{
		Tenant: s.Tenant, Server: s.Server, Tool: s.Tool, Args: s.Args, Effects: s.Effects, PolicyHash: s.PolicyHash,
		Facts: []string{"tier " + s.Tier.String()},
	}
	for i := range s.Findings {
		if f := &s.Findings[i]; f.Phase == cordon.PhaseProvenance && f.Outcome != cordon.Allowed {
			r.Untrusted = true
			r.Sources = append(r.Sources, judge.Source{Arg: f.Arg, Type: cordon.Retrieved, Source: f.Detail})
		}
	}
	verdict := a.judge.Judge(ctx, r)
	for _, f := range verdict.Findings() {
		return f, true
	}
	return cordon.Finding{}, false
}
