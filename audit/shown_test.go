package audit

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

func TestShownValuesDoNotPushEachOtherOut(t *testing.T) {
	v, err := strictjson.Parse([]byte(`{"body":"` + strings.Repeat("word é ", 5000) + `","password":"zebra99","to":"x@example.com"}`))
	if err != nil {
		t.Fatal(err)
	}
	got := string(AppendShown(nil, &v, 512))
	if len(got) > 1000 || !strings.Contains(got, `"to":"x@example.com"`) || strings.Contains(got, "zebra99") || !strings.Contains(got, "bytes are not shown") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	// Two names that are secrets are alike once they are redacted.
	v = strictjson.Value{Kind: strictjson.Object, Keys: []string{"a", "a"}, Items: make([]strictjson.Value, 2)}
	if got := string(AppendShown(nil, &v, 512)); got == "" || got[0] != '"' {
		t.Errorf("%s", got)
	}
}

func TestShorten(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", 100), strings.Repeat("é", 300), strings.Repeat("\U0001F600", 200), strings.Repeat("\x80", 500)} {
		got := Shorten(s, 100)
		if utf8.ValidString(s) && !utf8.ValidString(got) || len(s) <= 100 && got != s || len(got) > 160 {
			t.Errorf("%q", got)
		}
	}
}

func TestVisible(t *testing.T) {
	tests := []struct{ name, s, want string }{
		{"plain text", "plain text é 漢字 😀", "plain text é 漢字 😀"},
		{"what turns the reading direction", "a\u202eb", `a\u{202e}b`},
		{"nothing between letters", "a\u200bb\ufeffc\u00add", `a\u{200b}b\u{feff}c\u{ad}d`},
		{"tag characters", "a\U000e0041", `a\u{e0041}`},
		{"fillers that count as letters", "\u3164\u115f\u2800", `\u{3164}\u{115f}\u{2800}`},
		{"a terminal's escape", "\x1b[2J\x07\x7f\u009b", `\u{1b}[2J\u{7}\u{7f}\u{9b}`},
		{"line breaks", "a\nb\r\u2028c", `a\u{a}b\u{d}\u{2028}c`},
		{"spaces that are no space", "a\u00a0b\u3000c", `a\u{a0}b\u{3000}c`},
		{"a variation selector", "a\ufe0f", `a\u{fe0f}`},
		{"private characters", "\ue000", `\u{e000}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Visible(tt.s); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestProposalsThatCannotBeStored(t *testing.T) {
	ok := Proposal{ID: "p", Binding: Binding{RunID: "r", Tool: "x", ArgsHash: "a", PolicyHash: "p"}}
	now := time.Unix(100, 0)
	ok.CreatedAt, ok.ExpiresAt = now, time.Unix(200, 0)
	if _, err := PrepareProposal(ok, now); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Proposal){
		"no id":                     func(p *Proposal) { p.ID = "" },
		"no run":                    func(p *Proposal) { p.RunID = "" },
		"no tool":                   func(p *Proposal) { p.Tool = "" },
		"no arguments' hash":        func(p *Proposal) { p.ArgsHash = "" },
		"no policy":                 func(p *Proposal) { p.PolicyHash = "" },
		"a tool that is not UTF-8":  func(p *Proposal) { p.Tool = "x\xff" },
		"a server with a NUL":       func(p *Proposal) { p.Server = "a\x00" },
		"a name without end":        func(p *Proposal) { p.AgentID = strings.Repeat("a", maxName+1) },
		"over before it begins":     func(p *Proposal) { p.ExpiresAt = now },
		"no time when it would end": func(p *Proposal) { p.ExpiresAt = time.Time{} },
	} {
		p := ok
		change(&p)
		if _, err := PrepareProposal(p, now); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestOnlyTheseMovesAreMoves(t *testing.T) {
	all := []ProposalState{"", ProposalPending, ProposalApproved, ProposalRejected, ProposalExpired, ProposalExecuted, ProposalFailed, ProposalCancelled, "x"}
	may := map[string]bool{
		"pending approved": true, "pending rejected": true, "pending expired": true, "pending cancelled": true,
		"approved executed": true, "approved expired": true, "approved cancelled": true, "executed failed": true,
	}
	for _, from := range all {
		for _, to := range all {
			_, err := PrepareMove(ProposalMove{ID: "p", From: from, To: to, By: "ann"}, time.Unix(1, 0))
			if (err == nil) != may[string(from)+" "+string(to)] {
				t.Errorf("from %q to %q: %v", from, to, err)
			}
		}
		if _, err := ParseProposalState(string(from)); (err == nil) != (from != "" && from != "x") {
			t.Errorf("%q: %v", from, err)
		}
	}
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"plain", "\u202e", "\x00\xff", "e\u0301", "\U000e0041", "\u3164"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Visible(s)
		if strings.ContainsFunc(got, Hidden) || Visible(got) != got {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}
