package provenance

import (
	"context"
	"testing"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower"
)

func lowered(t testing.TB, ix *Index, server, tool, args string) Input {
	t.Helper()
	l, err := lower.New(lower.Config{Languages: lower.DefaultLanguages()})
	if err != nil {
		t.Fatal(err)
	}
	v, err := strictjson.Parse([]byte(args))
	if err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	r := l.Lower(context.Background(), server, tool, &v, lower.Env{Workspace: "/work/widget", Home: "/home/dev", User: "dev"})
	return Input{Server: server, Tool: tool, Facts: r.Tool, Args: &v, Effects: r.Effects, Index: ix,
		Workspace: "/work/widget", Home: "/home/dev", HostAllowed: func(h string) bool { return h == "github.com" || h == "registry.example.org" }}
}

func emailCall(t testing.TB, ix *Index, to, body string) Input {
	args := strictjson.AppendString([]byte(`{"to":`), to)
	args = strictjson.AppendString(append(args, `,"subject":"report","body":`...), body)
	return lowered(t, ix, "", "send_email", string(args)+"}")
}

func bashCall(t testing.TB, ix *Index, command string) Input {
	return lowered(t, ix, "", "Bash", string(strictjson.AppendString([]byte(`{"command":`), command))+"}")
}
