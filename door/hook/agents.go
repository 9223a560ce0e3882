package hook

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// agent is what differs between the agents. All of it is fixed.
type agent struct {
	name, title string
	// sessionKey is the member that names the session, projectVar the
	// variable in which the agent tells its hooks the project's directory.
	sessionKey, projectVar string
	// events are those that there are; any other is refused.
	events map[string]kind
	// read fills in what an event of a kind other than ignored says.
	read func(*event)
	// pass, deny and ask write the answers; ask is nil where there is none.
	pass func(*event) []byte
	deny func(*event, string) []byte
	ask  func(*event, string) []byte
}

var agents = map[string]*agent{
	"claude": {
		name: "claude", title: "Claude Code", sessionKey: "session_id", projectVar: "CLAUDE_PROJECT_DIR",
		events: kinds(map[kind]string{
			preTool: "PreToolUse", postTool: "PostToolUse PostToolUseFailure", prompt: "UserPromptSubmit",
			ignored: "SessionStart SessionEnd Setup Stop StopFailure SubagentStart SubagentStop Notification PreCompact PostCompact " +
				"PermissionRequest PermissionDenied TeammateIdle TaskCreated TaskCompleted ConfigChange InstructionsLoaded " +
				"CwdChanged FileChanged WorktreeCreate WorktreeRemove Elicitation ElicitationResult",
		}),
		read: readClaude, pass: passSilent("{}"), deny: denyClaude, ask: askClaude,
	},
	"codex": {
		name: "codex", title: "Codex", sessionKey: "session_id",
		events: kinds(map[kind]string{
			preTool: "PreToolUse", postTool: "PostToolUse", prompt: "UserPromptSubmit",
			ignored: "SessionStart SessionEnd Stop StopFailure SubagentStart SubagentStop PreCompact PostCompact PermissionRequest Interrupt",
		}),
		// Codex reads an ask, and an allow, as no decision: the tool runs.
		read: readClaude, pass: passSilent(""), deny: denyClaude,
	},
	"cursor": {
		name: "cursor", title: "Cursor", sessionKey: "conversation_id", projectVar: "CURSOR_PROJECT_DIR",
		events: kinds(map[kind]string{
			preTool:  "preToolUse beforeShellExecution beforeMCPExecution beforeReadFile beforeTabFileRead",
			postTool: "postToolUse postToolUseFailure afterShellExecution afterMCPExecution",
			prompt:   "beforeSubmitPrompt",
			ignored:  "sessionStart sessionEnd stop subagentStart subagentStop preCompact afterFileEdit afterTabFileEdit afterAgentResponse afterAgentThought workspaceOpen",
		}),
		read: readCursor, pass: passCursor, deny: denyCursor, ask: askCursor,
	},
	"gemini": {
		name: "gemini", title: "Gemini CLI", sessionKey: "session_id", projectVar: "GEMINI_PROJECT_DIR",
		events: kinds(map[kind]string{
			preTool: "BeforeTool", postTool: "AfterTool", prompt: "BeforeAgent",
			ignored: "SessionStart SessionEnd AfterAgent BeforeModel AfterModel BeforeToolSelection Notification PreCompress",
		}),
		read: readGemini, pass: passSilent("{}"), deny: denyGemini,
	},
}

func kinds(by map[kind]string) map[string]kind {
	m := map[string]kind{}
	for k, names := range by {
		for _, name := range strings.Fields(names) {
			m[name] = k
		}
	}
	return m
}

// readClaude reads the events of Claude Code, and of Codex, which took its
// names.
func readClaude(e *event) {
	e.permission = e.text("permission_mode")
	if e.kind == prompt {
		e.said("prompt")
		return
	}
	var server struct{ Name string }
	if raw, ok := e.members["mcp_server"]; ok && json.Unmarshal(raw, &server) != nil {
		server.Name = ""
	}
	e.tool(server.Name)
	if e.kind == postTool {
		e.took = e.duration("duration_ms")
		e.failed = e.name == "PostToolUseFailure"
		e.gave("tool_response", "error")
	}
}

func readGemini(e *event) {
	if e.kind == prompt {
		e.said("prompt")
		return
	}
	e.tool("")
	var mcp struct {
		Server string `json:"server_name"`
		Tool   string `json:"tool_name"`
	}
	if raw, ok := e.members["mcp_context"]; ok && json.Unmarshal(raw, &mcp) == nil && mcp.Server != "" {
		e.call.Server = mcp.Server
		if mcp.Tool != "" {
			e.call.Tool = mcp.Tool
		}
	}
	if e.kind == postTool {
		var result struct {
			Content json.RawMessage `json:"llmContent"`
			Error   json.RawMessage `json:"error"`
		}
		// The model sees llmContent; what is shown to the user beside it is
		// the same, or less.
		if json.Unmarshal(e.members["tool_response"], &result) == nil && len(result.Content) > 0 {
			e.members["tool_response"] = result.Content
			e.failed = len(result.Error) > 0 && string(result.Error) != "null"
		}
		e.gave("tool_response")
	}
}

func readCursor(e *event) {
	e.root = e.firstRoot()
	switch e.name {
	case "beforeSubmitPrompt":
		e.said("prompt")
	case "beforeShellExecution", "afterShellExecution":
		e.call.Tool, e.call.Args = "run_terminal_cmd", e.wrapped("command")
		e.took = e.duration("duration")
		e.gave("output")
	case "beforeReadFile", "beforeTabFileRead":
		e.call.Tool, e.call.Args = "Read", e.wrapped("file_path")
		e.gave("content")
	case "beforeMCPExecution", "afterMCPExecution":
		e.tool("")
		e.call.Server = e.cursorServer()
		e.took = e.duration("duration")
		e.gave("result_json")
	case "preToolUse":
		e.tool("")
	default:
		e.tool("")
		e.took = e.duration("duration")
		e.failed = e.name == "postToolUseFailure"
		e.gave("tool_output", "error_message")
	}
}

// tool reads tool_name and tool_input. server is the MCP server's own name
// where the agent tells it.
func (e *event) tool(server string) {
	e.call.ID = e.text("tool_use_id")
	e.call.Tool = e.text("tool_name")
	if e.call.Tool == "" {
		e.wrong(`the event names no "tool_name"`)
	}
	e.call.Server, e.call.Tool = splitTool(e.call.Tool, server)
	args := e.members["tool_input"]
	// Cursor hands the arguments of MCP tools on as it got them, as text.
	var text string
	if len(args) > 0 && args[0] == '"' && e.agent.name == "cursor" && json.Unmarshal(args, &text) == nil {
		args = json.RawMessage(text)
	}
	e.call.Args = args
}

// unnamed is the server of an MCP tool whose server is not known. Without one
// the tool could pass for what is built into the agent.
const unnamed = "server"

// splitTool takes a qualified name apart, so that the call is the same as at
// the MCP door.
func splitTool(name, server string) (srv, tool string) {
	if rest, ok := strings.CutPrefix(name, "MCP:"); ok && rest != "" {
		return unnamed, rest
	}
	rest, ok := strings.CutPrefix(name, "mcp__")
	if !ok {
		return "", name
	}
	plain := strings.Map(plainRune, server)
	if tool, ok := strings.CutPrefix(rest, plain+"__"); ok && plain != "" && tool != "" {
		return plain, tool
	}
	if s, t, ok := strings.Cut(rest, "__"); ok && s != "" && t != "" {
		return s, t
	}
	return unnamed, name
}

// plainRune is what Claude Code leaves of a server's name in its tools' names.
func plainRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
		return r
	}
	return '_'
}

// wrapped is an argument object of one member, byte for byte.
func (e *event) wrapped(key string) json.RawMessage {
	raw, ok := e.members[key]
	if !ok {
		e.wrong("the event has no " + `"` + key + `"`)
		return nil
	}
	out := append(strictjson.AppendString([]byte{'{'}, key), ':')
	return append(append(out, raw...), '}')
}

func (e *event) firstRoot() string {
	var roots []string
	if raw, ok := e.members["workspace_roots"]; ok {
		if err := json.Unmarshal(raw, &roots); err != nil {
			e.wrong(`"workspace_roots" is no list of strings`)
		}
	}
	if len(roots) == 0 {
		return ""
	}
	return roots[0]
}

// cursorServer names the server of an MCP call by its address. Where it has a
// command instead, the Door knows how to name it.
func (e *event) cursorServer() string {
	if url := e.text("url"); url != "" {
		_, host, _ := strings.Cut(url, "://")
		host, _, _ = strings.Cut(host, "/")
		if host != "" {
			return clip(host, 200)
		}
	}
	return unnamed
}

// duration reads milliseconds; what is none is 0.
func (e *event) duration(key string) time.Duration {
	var ms float64
	if raw, ok := e.members[key]; !ok || json.Unmarshal(raw, &ms) != nil || !(ms > 0) {
		return 0
	}
	const most = 24 * time.Hour
	return time.Duration(math.Min(ms, float64(most/time.Millisecond))) * time.Millisecond
}

// said makes a chunk of what the user said.
func (e *event) said(key string) {
	if text := e.loose(key); text != "" {
		e.chunks = []cordon.Chunk{{Type: cordon.UserText, Source: e.agent.name, Text: text}}
	}
}

// gave makes a chunk of what a tool gave back, from the first member that is
// there.
func (e *event) gave(keys ...string) {
	for _, key := range keys {
		raw, ok := e.members[key]
		if !ok {
			continue
		}
		if text := flatten(raw, ownStrings(e.call.Args)); text != "" {
			t, source := origin(&e.call)
			e.chunks = []cordon.Chunk{{Type: t, Source: source, Text: text}}
			return
		}
	}
}
