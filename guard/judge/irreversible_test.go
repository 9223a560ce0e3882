package judge

import (
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func TestP9TheEffectsDecideWhatIsIrreversible(t *testing.T) {
	tests := []struct {
		name string
		e    cordon.Effect
		want bool
	}{
		{"rm -rf /", cordon.Effect{Kind: cordon.Delete, Target: "/", Recursive: true}, true},
		{"one file deleted", cordon.Effect{Kind: cordon.Delete, Target: "a.txt"}, true},
		{"a message", cordon.Effect{Kind: cordon.Send, Target: "#general"}, true},
		{"a table dropped", cordon.Effect{Kind: cordon.Destroy, Op: "drop_table"}, true},
		{"a role given", cordon.Effect{Kind: cordon.Administer, Op: "iam"}, true},
		{"a cron job", cordon.Effect{Kind: cordon.Persist, Op: "cron"}, true},
		{"an upload", cordon.Effect{Kind: cordon.Connect, Target: "h", Sends: true}, true},
		{"a shell for the far side", cordon.Effect{Kind: cordon.Connect, Op: "reverse_shell"}, true},
		{"rows changed", cordon.Effect{Kind: cordon.SQL, Op: "change"}, true},
		{"SQL of an unknown kind", cordon.Effect{Kind: cordon.SQL}, true},
		{"what cannot be told", cordon.Effect{}, true},
		{"what may happen", cordon.Effect{Kind: cordon.Delete, Doubtful: true}, true},
		{"code from the network", cordon.Effect{Kind: cordon.RunCode, Origin: cordon.OriginNetwork}, true},
		{"a program from a decoder", cordon.Effect{Kind: cordon.Execute, Origin: cordon.OriginDecoded}, true},
		{"code of unknown origin", cordon.Effect{Kind: cordon.RunCode}, true},
		{"a kind that is not known here", cordon.Effect{Kind: 200}, true},
		{"a read", cordon.Effect{Kind: cordon.Read, Target: "update_frequency"}, false},
		{"a listing", cordon.Effect{Kind: cordon.List}, false},
		{"a write", cordon.Effect{Kind: cordon.Write, Target: "delete_me.txt"}, false},
		{"a download", cordon.Effect{Kind: cordon.Connect, Target: "h", Op: "https"}, false},
		{"a port", cordon.Effect{Kind: cordon.Connect, Op: "listen"}, false},
		{"a program by name", cordon.Effect{Kind: cordon.Execute, Target: "ls"}, false},
		{"code of the call, read into effects of its own", cordon.Effect{Kind: cordon.RunCode, Origin: cordon.OriginLiteral}, false},
		{"rows read", cordon.Effect{Kind: cordon.SQL, Op: "read"}, false},
		{"a row added", cordon.Effect{Kind: cordon.SQL, Op: "insert"}, false},
		{"a variable", cordon.Effect{Kind: cordon.SetEnv}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Irreversible([]cordon.Effect{{Kind: cordon.Read}, tt.e}); got != tt.want {
				t.Errorf("%v", got)
			}
		})
	}
	if Irreversible(nil) {
		t.Error("nothing is irreversible")
	}
}
