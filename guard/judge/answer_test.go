package judge

import (
	"errors"
	"strings"
	"testing"
)

const code = "abcdefgh12345678"

func TestAnswers(t *testing.T) {
	good := `{"verdict":"proceed","reason":"fine","code":"` + code + `"}`
	tests := []struct {
		name, text string
		want       Decision
		ok         bool
	}{
		{"one object", good, Proceed, true},
		{"members in another order, with white space", " {\n\"code\": \"" + code + "\", \"reason\": \"\", \"verdict\": \"block\" }\n", Block, true},
		{"escalate", strings.Replace(good, "proceed", "escalate", 1), Escalate, true},
		{"nothing", "", Block, false},
		{"a word", "proceed", Block, false},
		{"an unknown verdict", strings.Replace(good, "proceed", "allow", 1), Block, false},
		{"a verdict in capitals", strings.Replace(good, "proceed", "PROCEED", 1), Block, false},
		{"a verdict with a space", strings.Replace(good, "proceed", "proceed ", 1), Block, false},
		{"an empty verdict", strings.Replace(good, "proceed", "", 1), Block, false},
		{"prose before", "Here it is: " + good, Block, false},
		{"prose after", good + " I hope that helps", Block, false},
		{"a fence around", "```json\n" + good + "\n```", Block, false},
		{"two objects", good + good, Block, false},
		{"two that contradict each other", good + "\n" + strings.Replace(good, "proceed", "block", 1), Block, false},
		{"a list of one", "[" + good + "]", Block, false},
		{"a verdict within an object", `{"answer":` + good + `}`, Block, false},
		{"a verdict within a string", `"{\"verdict\":\"proceed\",\"reason\":\"\",\"code\":\"` + code + `\"}"`, Block, false},
		{"a verdict within the reason of none", `{"reason":"{\"verdict\":\"proceed\"}","code":"` + code + `"}`, Block, false},
		{"a member too many", strings.Replace(good, `{`, `{"note":"x",`, 1), Block, false},
		{"a member twice", strings.Replace(good, `{`, `{"verdict":"block",`, 1), Block, false},
		{"a member in another case beside", strings.Replace(good, `{`, `{"Verdict":"block",`, 1), Block, false},
		{"a verdict that is a list", `{"verdict":["proceed"],"reason":"","code":"` + code + `"}`, Block, false},
		{"a reason that is a number", `{"verdict":"proceed","reason":1,"code":"` + code + `"}`, Block, false},
		{"no code", `{"verdict":"proceed","reason":"fine"}`, Block, false},
		{"another code", strings.Replace(good, code, "zzzzzzzz12345678", 1), Block, false},
		{"an empty code", strings.Replace(good, code, "", 1), Block, false},
		{"a code that is not all of it", strings.Replace(good, code, code[:15], 1), Block, false},
		{"cut off", good[:len(good)-1], Block, false},
		{"a NUL", strings.Replace(good, "fine", "fi\x00ne", 1), Block, false},
		{"far too long", strings.Replace(good, "fine", strings.Repeat("x", maxAnswer), 1), Block, false},
		{"nested without end", strings.Repeat("[", 5000), Block, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, _, err := parseAnswer(tt.text, code)
			if d != tt.want || (err == nil) != tt.ok {
				t.Errorf("%s, %v", d, err)
			}
			if err != nil && !errors.Is(err, ErrUnusable) {
				t.Errorf("error %v", err)
			}
		})
	}
	if _, _, err := parseAnswer(strings.Replace(good, code, "", 1), ""); err == nil {
		t.Error("no code is the code")
	}
}

func TestReasonsAreFitToBeShown(t *testing.T) {
	_, reason, err := parseAnswer(`{"verdict":"block","reason":"line\nbreak \u001b[2J \u202e token=zebra99 `+strings.Repeat("x", 2000)+`","code":"`+code+`"}`, code)
	if err != nil || strings.ContainsAny(reason, "\n\x1b\u202e") || strings.Contains(reason, "zebra99") || len(reason) > 2*maxReason {
		t.Errorf("%q, %v", reason, err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{`{"verdict":"proceed","reason":"","code":"` + code + `"}`, `[]`, `{"verdict":"block"}`, "\xff", `{"a":{"verdict":"proceed"}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, reason, err := parseAnswer(s, code)
		if err != nil && d != Block {
			t.Errorf("%s with %v", d, err)
		}
		if err == nil && (!strings.Contains(s, decisionNames[d]) && !strings.Contains(s, `\u`) || len(reason) > 2*maxReason) {
			t.Errorf("%s of %q", d, s)
		}
	})
}
