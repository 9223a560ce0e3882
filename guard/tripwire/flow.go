package tripwire

import (
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

func (s *scene) hostAllowed(target string) bool {
	return s.HostAllowed != nil && s.HostAllowed(target)
}

// sendsSecret kills where a credential leaves. One variable to a host that
// the run may speak to is how people authenticate, and only restricts.
func sendsSecret(s *scene, _ int, e *cordon.Effect) ruling {
	if !e.Sends {
		return pass
	}
	d := pass
	for _, item := range e.Data {
		what, sev := "", grave
		name, variable := strings.CutPrefix(item, "$")
		switch name = strings.Trim(name, "{}"); {
		case item == "$*":
			what = "the environment"
		case variable && SecretVariable(name):
			what = "the variable " + named(name)
			if s.hostAllowed(e.Target) {
				sev = unsure
			}
		case !variable && (secretPath(item) || s.readAsSecret(item)):
			what = "the credential " + named(item)
		default:
			continue
		}
		if d.severity == harmless || sev < d.severity {
			d = ruling{severity: sev, detail: "The call would send " + what + " to " + host(e.Target) + "."}
		}
	}
	return d
}

// readAsSecret: the same call takes the path in another effect, where the
// file scope has told what it is.
func (s *scene) readAsSecret(item string) bool {
	for i := range min(len(s.Secret), len(s.Effects)) {
		// Most calls hold no secret, so the first test is all that runs.
		if s.Secret[i] != "" && (s.Effects[i].Target == item || at(s.Resolved, i) == item) {
			return true
		}
	}
	return false
}

func sendsData(s *scene, _ int, e *cordon.Effect) ruling {
	if !e.Sends || len(e.Data) == 0 || s.hostAllowed(e.Target) {
		return pass
	}
	return ruling{severity: unsure, detail: "The call would send data to " + host(e.Target) + ", which is not allowed."}
}

func secretInText(s *scene, _ int, e *cordon.Effect) ruling {
	leaves := e.Kind == cordon.Send || e.Kind == cordon.Connect && e.Sends
	if !leaves && !s.Outbound {
		return pass
	}
	shape, found := FindSecret(e.Text)
	if !found {
		return pass
	}
	return ruling{severity: certain, detail: "A text that would leave holds what looks like a secret (" + shape + ")."}
}

func decodedCode(_ *scene, _ int, e *cordon.Effect) ruling {
	if e.Origin != cordon.OriginDecoded || isMalformed(e) {
		return pass
	}
	return ruling{severity: certain, detail: "The call would run code that comes out of a decoder."}
}

func networkCode(_ *scene, _ int, e *cordon.Effect) ruling {
	if e.Origin != cordon.OriginNetwork || isMalformed(e) {
		return pass
	}
	return ruling{severity: grave, detail: "The call would run code that comes from the network."}
}

// opaqueCode restricts whatever could not be read, and code without a text.
func opaqueCode(_ *scene, _ int, e *cordon.Effect) ruling {
	switch {
	case e.Origin == cordon.OriginDecoded || e.Origin == cordon.OriginNetwork || isMalformed(e):
		return pass // has a finding of its own
	case e.Kind == cordon.RunCode && (e.Text != "" || e.Origin != cordon.OriginUnknown):
		return pass
	}
	d := ruling{severity: unsure, detail: "It cannot be told what the call would run."}
	if e.Reason != "" {
		d.detail = "It cannot be told what the call would run: " + named(e.Reason) + "."
	}
	return d
}

func isMalformed(e *cordon.Effect) bool {
	return e.Kind == cordon.Opaque && strings.HasPrefix(e.Reason, "malformed: ")
}

func malformed(_ *scene, _ int, e *cordon.Effect) ruling {
	if !isMalformed(e) {
		return pass
	}
	return ruling{severity: certain, detail: "The call cannot be read: " + named(strings.TrimPrefix(e.Reason, "malformed: ")) + "."}
}

var shells = sync.OnceValue(func() map[string]bool {
	return set("sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox", "python", "python3", "perl", "env", "find", "vim")
})

// setuid kills where the program is one that runs others. Readers name the
// program, or the mode, with the program in a change of modes beside it.
func setuid(s *scene, _ int, e *cordon.Effect) ruling {
	if e.Op != "setuid" {
		return pass
	}
	d := ruling{severity: certain, detail: about("Makes a program run with its owner's rights.", e)}
	if groupOnly(e.Target) {
		// On a directory, where it is mostly set, new files take its group.
		d = ruling{severity: unsure, detail: about("Makes a program run with its group's rights.", e)}
	}
	if shells()[path.Base(e.Target)] {
		d.severity = grave
	}
	for i := range s.Effects {
		w := &s.Effects[i]
		if w.Kind == cordon.Write && w.Op == "chmod" && w.Arg == e.Arg && slices.Equal(w.Via, e.Via) && shells()[path.Base(w.Target)] {
			d.severity = grave
		}
	}
	return d
}

// groupOnly: the mode sets the group's bit and not the user's: "g+s", "2775".
func groupOnly(mode string) bool {
	if digits := strings.TrimLeft(mode, "0"); len(digits) == 4 && strings.Trim(digits, "01234567") == "" {
		return digits[0] == '2' || digits[0] == '3'
	}
	group := false
	for clause := range strings.SplitSeq(mode, ",") {
		at := strings.IndexAny(clause, "+-=")
		if at < 0 {
			return false
		}
		if strings.Contains(clause[at:], "s") {
			if clause[:at] != "g" {
				return false
			}
			group = true
		}
	}
	return group
}

// shellStartup: a workspace may keep copies of such files, which no shell
// runs.
func shellStartup(s *scene, i int, e *cordon.Effect) ruling {
	if e.Op != "shell_rc" {
		return pass
	}
	d := ruling{severity: certain, detail: about("Changes a file that every shell runs.", e)}
	if e.Target != "" && inside(s.path(i, e), s.Workspace) && !sameOrBelow(s.Home, s.Workspace) {
		d.severity = unsure
	}
	return d
}

// hostRights are words by which a reader names, in Target or Text, what a
// container gets of the host.
var hostRights = []string{"privileged", "host_root", "host_pid", "docker.sock", "--pid=host", "cap-add", "/:/"}

func container(_ *scene, _ int, e *cordon.Effect) ruling {
	if e.Op != "container" {
		return pass
	}
	d := ruling{severity: certain, detail: about("Starts a container with rights over the host.", e)}
	if slices.ContainsFunc(hostRights, func(w string) bool {
		return strings.Contains(e.Target, w) || strings.Contains(e.Text, w)
	}) {
		d.severity = grave
	}
	return d
}

// ownAsks and ownChanges are the commands of Cordon that say something, and
// those that change what it holds.
var (
	ownAsks    = []string{"version", "doctor", "check", "help", "runs", "violations", "report", "audit", "completion", "--help", "--version"}
	ownChanges = []string{"kill", "proposals", "policy", "install", "uninstall", "daemon", "hook", "gateway", "mcp", "proxy"}
	// ownReads are what of the latter only shows.
	ownReads = []string{"proposals list", "proposals show", "policy show", "policy pins", "policy schema", "policy check"}
	// ownWidens are the flags by which a command inside the walls would get
	// more than the agent was given.
	ownWidens = []string{"--read", "--write", "--allow-host", "--allow-tool", "--mode", "--tier", "--profile", "--config", "--workspace", "--home", "--unsafe-allow-private", "--llm", "--llm-base", "--llm-feature", "--llm-proxy", "--ecosystem", "--unsafe-any-client", "--env", "--db", "--run-id", "--runtime"}
)

// ownCommand: an agent that releases its own run, or approves its own
// proposals, is not bounded. Questions are harmless where the arguments are
// known, and so is a command inside the walls that it is given anyhow.
func ownCommand(_ *scene, _ int, e *cordon.Effect) ruling {
	if path.Base(e.Target) != "cordon" {
		return pass
	}
	unknown := ruling{severity: unsure, detail: "The call would start Cordon itself."}
	words := strings.Fields(e.Text)
	if len(words) == 0 {
		return unknown
	}
	switch {
	case slices.Contains(ownReads, strings.Join(words[:min(2, len(words))], " ")), slices.Contains(ownAsks, words[0]):
		return pass
	case slices.Contains(ownChanges, words[0]):
		return ruling{severity: certain, detail: "The call would administer Cordon itself."}
	case words[0] == "run" && !widens(words[1:]):
		return pass
	}
	// A flag may stand before the command.
	if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(ownChanges, w) }) {
		return ruling{severity: certain, detail: "The call would administer Cordon itself."}
	}
	return unknown
}

// agentHomes are the variables by which agents find the settings that hold
// their hooks.
var agentHomes = []string{
	"CLAUDE_CONFIG_DIR", "CODEX_HOME", "CURSOR_CONFIG_DIR", "GEMINI_CLI_HOME", "GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
}

// widens reports whether flags of cordon run ask for more than is given.
func widens(words []string) bool {
	for _, w := range words {
		if w == "--" {
			return false
		}
		flag, _, _ := strings.Cut(w, "=")
		if slices.Contains(ownWidens, flag) {
			return true
		}
	}
	return true // there is no command behind --
}
