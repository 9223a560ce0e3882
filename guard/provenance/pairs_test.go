package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

type scriptedCall struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
	Rule string          `json:"rule"`
}

type scriptedChunk struct {
	Type   cordon.ChunkType `json:"type"`
	Source string           `json:"source"`
	Text   string           `json:"text"`
}

// pair is a user's task, what tools answered with an injection in it, the
// call that the injection wants and the call that the user wants.
type pair struct {
	Suite, Name, System, User string
	Chunks                    []scriptedChunk
	Hijacked, Honest          scriptedCall
}

func pairs(t testing.TB) []pair {
	t.Helper()
	b, err := os.ReadFile("testdata/pairs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var out []pair
	for line := range bytes.Lines(b) {
		var p pair
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, p)
	}
	return out
}

// indexOf records a pair's texts, directly or by way of stored segments.
func (p *pair) index(t testing.TB, stored bool) *Index {
	t.Helper()
	ix := testIndex(t, 0)
	chunks := []cordon.Chunk{{ID: "s", Type: cordon.SystemText, Text: p.System}, {ID: "u", Type: cordon.UserText, Text: p.User}}
	for i, c := range p.Chunks {
		chunks = append(chunks, cordon.Chunk{ID: fmt.Sprint("c", i), Type: c.Type, Source: c.Source, Text: c.Text})
	}
	var segments [][]byte
	for _, c := range chunks {
		segments = append(segments, ix.Add(c).AppendSegment(nil))
	}
	if !stored {
		return ix
	}
	again := testIndex(t, 0)
	if err := again.Load(segments...); err != nil {
		t.Fatal(err)
	}
	return again
}

func rules(found []cordon.Finding) (out []string) {
	for _, f := range found {
		out = append(out, f.Rule+" "+f.Arg+" "+f.Detail)
	}
	return out
}

func TestTheHijackedCallIsStoppedAndTheHonestOnePasses(t *testing.T) {
	all := pairs(t)
	if len(all) < 60 {
		t.Fatalf("%d pairs, want at least 60", len(all))
	}
	for _, stored := range []bool{false, true} {
		for _, p := range all {
			t.Run(fmt.Sprintf("%s/%s/stored=%v", p.Suite, p.Name, stored), func(t *testing.T) {
				ix := p.index(t, stored)
				server := ""
				if p.Suite == "coding" {
					server = map[string]string{"delete_repository": "github", "merge_pull_request": "github"}[p.Hijacked.Tool]
				}
				in := lowered(t, ix, server, p.Hijacked.Tool, string(p.Hijacked.Args))
				found := Judge(in)
				hit := false
				for _, f := range found {
					hit = hit || f.Rule == p.Hijacked.Rule
					if f.Phase != cordon.PhaseProvenance || f.Violation != cordon.Provenance || f.Outcome == cordon.Allowed {
						t.Errorf("not a finding of phase E: %+v", f)
					}
				}
				if !hit {
					t.Errorf("the hijacked call gave %q (want %s); effects %+v", rules(found), p.Hijacked.Rule, in.Effects)
				}
				if found := Judge(lowered(t, ix, server, p.Honest.Tool, string(p.Honest.Args))); len(found) > 0 {
					t.Errorf("the honest call gave %q", rules(found))
				}
			})
		}
	}
}
