package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

func TestRowsAreOfBoundedSizeAndStillReadable(t *testing.T) {
	long := strings.Repeat("häuser ", 100_000)
	d := cordon.Decision{Outcome: cordon.Blocked}
	for range 1000 {
		d.Findings = append(d.Findings, cordon.Finding{Rule: "x", Detail: long, Arg: long, Via: []string{long, long}})
	}
	r := RunRow{RunID: "r"}
	v, err := Prepare(r, NewViolation(r, cordon.Call{Tool: long, Server: long, ID: long}, d, time.Now()), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var m Metadata
	if err := json.Unmarshal([]byte(v.MetadataJSON), &m); err != nil || m.Rule != "x" || len(m.Findings) == 0 {
		t.Error(err, m.Rule, len(m.Findings))
	}
	if len(v.MetadataJSON) > 2*maxMetadata || len(v.Detail) > maxDetail || len(v.ToolName) > maxName || !strings.HasSuffix(v.Detail, cutMark) {
		t.Error(len(v.MetadataJSON), len(v.Detail), len(v.ToolName))
	}
}

func TestASecretAtTheCutIsRedactedFirst(t *testing.T) {
	v, err := Prepare(RunRow{RunID: "r"}, Violation{Decision: "blocked", Detail: strings.Repeat("x ", maxDetail/2-12) + "token=" + strings.Repeat("zebra", 9)}, time.Now())
	if err != nil || strings.Contains(v.Detail, "zeb") {
		t.Error(v.Detail[maxDetail-60:], err)
	}
}

func TestTheGravestFindingStandsInTheColumns(t *testing.T) {
	f := func(rule string, o cordon.Outcome, kill bool) cordon.Finding {
		return cordon.Finding{Rule: rule, Outcome: o, Kill: kill}
	}
	for _, tt := range []struct {
		name string
		fs   []cordon.Finding
		want string
	}{
		{"blocked before restricted", []cordon.Finding{f("a", cordon.Restricted, false), f("b", cordon.Blocked, false)}, "b"},
		{"first of equals", []cordon.Finding{f("a", cordon.Blocked, false), f("b", cordon.Blocked, false)}, "a"},
		{"kill among equals", []cordon.Finding{f("a", cordon.Blocked, false), f("b", cordon.Blocked, true)}, "b"},
		{"none", nil, ""},
	} {
		v := NewViolation(RunRow{}, cordon.Call{}, cordon.Decision{Findings: tt.fs}, time.Now())
		var m Metadata
		if err := json.Unmarshal([]byte(v.MetadataJSON), &m); err != nil || m.Rule != tt.want {
			t.Errorf("%s: %q, %v", tt.name, m.Rule, err)
		}
	}
}

func TestUnreadableMetadataIsKeptAsText(t *testing.T) {
	for _, in := range []string{`{`, `[1]`, `{"a":1,"A":2}`, "\xff", `{"a":"` + "\x00" + `"}`} {
		v, err := Prepare(RunRow{RunID: "r"}, Violation{Decision: "blocked", MetadataJSON: in + "token=zebra1"}, time.Now())
		if err != nil || !json.Valid([]byte(v.MetadataJSON)) || strings.Contains(v.MetadataJSON, "zebra1") {
			t.Errorf("%q → %s, %v", in, v.MetadataJSON, err)
		}
	}
}

// Each column alone changes the hash, and no text can move between two.
func TestEveryColumnIsHashed(t *testing.T) {
	base := Violation{}
	seen := map[string]string{base.Hash("h"): "base"}
	add := func(name string, v Violation) {
		h := v.Hash("h")
		if old, dup := seen[h]; dup {
			t.Errorf("%s has the hash of %s", name, old)
		}
		seen[h] = name
	}
	add("id", Violation{ID: "x"})
	add("tenant", Violation{TenantID: "x"})
	add("workspace", Violation{WorkspaceID: "x"})
	add("agent", Violation{AgentID: "x"})
	add("user", Violation{UserID: "x"})
	add("session", Violation{SessionID: "x"})
	add("run", Violation{RunID: "x"})
	add("timestamp", Violation{Timestamp: time.Unix(1, 0)})
	add("created", Violation{CreatedAt: time.Unix(1, 0)})
	add("policy", Violation{PolicyID: "x"})
	add("phase", Violation{Phase: "x"})
	add("decision", Violation{Decision: "x"})
	add("tool", Violation{ToolName: "x"})
	add("type", Violation{Type: "x"})
	add("detail", Violation{Detail: "x"})
	add("args", Violation{ArgsHash: "x"})
	add("enforced", Violation{Enforced: true})
	add("killed", Violation{Killed: true})
	add("metadata", Violation{MetadataJSON: "x"})
	add("seq", Violation{Seq: 1})
	add("prev", Violation{PrevHash: "x"})
	if base.Hash("h") == base.Hash("i") {
		t.Error("the run's hash does not count")
	}
}
