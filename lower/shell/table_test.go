package shell

import (
	"testing"
)

func TestEveryProgramOfTheTableIsReadable(t *testing.T) {
	names := 0
	for n, e := range table() {
		names++
		p, err := parseProgram(e.text)
		if err != nil {
			t.Errorf("%s: %v", n, err)
			continue
		}
		if p.handler == "" && len(p.args) == 0 && len(p.opts) == 0 && len(p.whens) == 0 && p.out == "" && !p.builtin {
			t.Errorf("%s: the entry says nothing", n)
		}
	}
	if names < 250 {
		t.Errorf("%d programs, want at least 250", names)
	}
	t.Logf("%d names", names)
}

func TestProgramTableRefusesMistakes(t *testing.T) {
	for _, text := range []string{
		"x\nargs nonsense",
		"x\nstyle sideways",
		"x\nhandler nobody",
		"x\nwhen a b",
		"x\nwhen a => explode",
		"x\nsomething -f",
	} {
		if _, err := parseProgram(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
