// Package install puts Cordon's hook into the settings file of a coding agent,
// and takes it out again.
//
// It guarantees that every byte of the file that is not Cordon's stays as it
// is: comments, order, unknown keys, indentation, line ends, byte order mark.
// Adding twice is adding once. Removing after adding gives the file back byte
// for byte, and where other parts were edited in between, only Cordon's go. A
// file that cannot be read without doubt is an error and is not touched. A file
// is replaced whole or not at all, and keeps its mode, its owner and the links
// that lead to it.
//
// What it does not stop: whoever may write the settings file may take the hook
// out. Some agents take a crash or a time-out of a hook for a yes and have no
// option against it: see Facts.
package install

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Facts are what an agent's contract says of its hooks.
type Facts struct {
	Agent, Title string
	// Closes names the option by which a hook that fails blocks; "" where
	// there is none and the call proceeds.
	Closes string
	// Note is what the user has to do beside, or "".
	Note string
}

// spec is how one agent is set up.
type spec struct {
	Facts
	// dir and file below the home or the project; homeVar names another
	// directory in place of the one below the home.
	dir, file, homeVar string
	// version is a member that the file has to have.
	version bool
	events  []eventSpec
	// flat: an event's list holds the handlers themselves, not groups of them.
	flat    bool
	handler func(o Options, e eventSpec) object
}

type eventSpec struct {
	name, matcher string
	// pre: the event comes before a call, and its failure can block.
	pre bool
}

// timeout is what agents are told, in seconds. The hook answers long before.
const timeout = 30

var specs = []spec{
	{
		Facts: Facts{Agent: "claude", Title: "Claude Code", Closes: "onFailure: block", Note: "Sessions that are open read the settings again when they are started anew."},
		dir:   ".claude", file: "settings.json", homeVar: "CLAUDE_CONFIG_DIR",
		events: []eventSpec{{"PreToolUse", "*", true}, {"PostToolUse", "*", false}, {"PostToolUseFailure", "*", false}, {"UserPromptSubmit", "", false}},
		handler: func(o Options, e eventSpec) object {
			h := object{{"type", "command"}, {"command", o.Command}, {"args", o.words("claude")}, {"timeout", timeout}}
			if e.pre {
				h = append(h, member{"onFailure", "block"})
			}
			return h
		},
	},
	{
		Facts: Facts{Agent: "codex", Title: "Codex", Note: "Codex runs a hook only after you trusted it: start codex and open /hooks. A version that does not know /hooks wants codex_hooks = true under [features] in config.toml."},
		dir:   ".codex", file: "hooks.json", homeVar: "CODEX_HOME",
		events: []eventSpec{{"PreToolUse", "", true}, {"PostToolUse", "", false}, {"UserPromptSubmit", "", false}},
		handler: func(o Options, _ eventSpec) object {
			return object{{"type", "command"}, {"command", o.line("codex")}, {"timeout", timeout}}
		},
	},
	{
		Facts: Facts{Agent: "cursor", Title: "Cursor", Closes: "failClosed: true"},
		dir:   ".cursor", file: "hooks.json", version: true, flat: true,
		// What preToolUse sees of shells, MCP tools and reads, the events for
		// these see too: asked twice, a call would count twice.
		events: []eventSpec{{"beforeShellExecution", "", true}, {"beforeMCPExecution", "", true}, {"beforeReadFile", "", true},
			{"preToolUse", "^(?!Shell$|Read$|MCP:)", true}, {"beforeSubmitPrompt", "", false},
			{"afterShellExecution", "", false}, {"afterMCPExecution", "", false}},
		// No time-out: sources disagree whether it is in s or in ms.
		handler: func(o Options, e eventSpec) object {
			h := object{{"command", o.line("cursor")}}
			if e.matcher != "" {
				h = append(h, member{"matcher", e.matcher})
			}
			if e.pre {
				h = append(h, member{"failClosed", true})
			}
			return h
		},
	},
	{
		Facts: Facts{Agent: "gemini", Title: "Gemini CLI"},
		dir:   ".gemini", file: "settings.json",
		events: []eventSpec{{"BeforeTool", ".*", true}, {"AfterTool", ".*", false}, {"BeforeAgent", "", false}},
		handler: func(o Options, _ eventSpec) object {
			return object{{"type", "command"}, {"name", "cordon"}, {"command", o.line("gemini")}, {"timeout", timeout * 1000}}
		},
	},
}

func specOf(agent string) (*spec, error) {
	i := slices.IndexFunc(specs, func(s spec) bool { return s.Agent == agent })
	if i < 0 {
		return nil, fmt.Errorf("install: unknown agent %q (want one of %q)", agent, Agents())
	}
	return &specs[i], nil
}

// Agents lists the agents that can be set up.
func Agents() []string {
	var names []string
	for _, s := range specs {
		names = append(names, s.Agent)
	}
	return names
}

// FactsOf says what an agent's contract says of its hooks.
func FactsOf(agent string) (Facts, error) {
	s, err := specOf(agent)
	if err != nil {
		return Facts{}, err
	}
	return s.Facts, nil
}

// Path is the agent's settings file: the project's where project is an absolute
// directory, else the user's own, below home or where the agent's variable says.
func Path(agent, home, project string, getenv func(string) string) (string, error) {
	s, err := specOf(agent)
	if err != nil {
		return "", err
	}
	base := filepath.Join(home, s.dir)
	if project != "" {
		home, base = project, filepath.Join(project, s.dir)
	} else if s.homeVar != "" && getenv(s.homeVar) != "" {
		home = getenv(s.homeVar)
		base = home
	}
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("install: directory %q (want an absolute path)", home)
	}
	return filepath.Join(base, s.file), nil
}

// Options are the command that the agent will run.
type Options struct {
	// Command is the absolute path of the cordon program.
	Command string
	// Args are the flags after "hook AGENT".
	Args []string
}

func (o Options) words(agent string) []any {
	words := []any{"hook", agent}
	for _, a := range o.Args {
		words = append(words, a)
	}
	return words
}

// line is the command for agents that give it to a shell.
func (o Options) line(agent string) string {
	words := []string{quote(o.Command), "hook", agent}
	for _, a := range o.Args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

func (o Options) check() error {
	for _, w := range append([]string{o.Command}, o.Args...) {
		if strings.ContainsFunc(w, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
			return fmt.Errorf("install: %q cannot stand in a command (it holds a control character, or is no UTF-8)", w)
		}
	}
	if !filepath.IsAbs(o.Command) {
		return fmt.Errorf("install: program %q (want an absolute path)", o.Command)
	}
	return nil
}

// quote writes a word for a POSIX shell.
func quote(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-=:,+@%", r))
	})
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// unquote reads a line that line wrote; ok is false for any other.
func unquote(s string) (words []string, ok bool) {
	for s != "" {
		var b strings.Builder
		for s != "" && s[0] != ' ' {
			switch {
			case s[0] == '\'':
				end := strings.IndexByte(s[1:], '\'')
				if end < 0 {
					return nil, false
				}
				b.WriteString(s[1 : 1+end])
				s = s[end+2:]
			case strings.HasPrefix(s, `\'`):
				b.WriteByte('\'')
				s = s[2:]
			case strings.IndexByte("\"\\$`;&|<>()*?[]{}#~!\n\t", s[0]) >= 0:
				return nil, false
			default:
				b.WriteByte(s[0])
				s = s[1:]
			}
		}
		words = append(words, b.String())
		s = strings.TrimPrefix(s, " ")
	}
	return words, true
}

// Handler is a hook of Cordon's as it stands in a settings file.
type Handler struct {
	Event, Matcher string
	// Words are the program and its arguments.
	Words []string
	// Timeout is as written; 0 is none.
	Timeout float64
	// Closed: the option is set by which a failure blocks.
	Closed bool
}

// ours reports whether a command is a hook of Cordon's for the agent.
func ours(words []string, agent string) bool {
	return len(words) >= 3 && strings.TrimSuffix(filepath.Base(words[0]), ".exe") == "cordon" && words[1] == "hook" && words[2] == agent
}
