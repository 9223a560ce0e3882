package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Script is code that a tool was given to execute. It reaches its interpreter
// as a file that the program inside cannot change; nothing of it is ever part
// of a command line.
type Script struct {
	// Language is "python", "javascript", "bash" or "shell".
	Language string
	Code     string
	Args     []string
}

// interpreters run the scripts of a language.
var interpreters = map[string]struct{ program, extension string }{
	"python":     {"python3", ".py"},
	"javascript": {"node", ".js"},
	"bash":       {"bash", ".sh"},
	"shell":      {"sh", ".sh"},
}

// scriptDir is where a script is seen inside.
const scriptDir = "/run/cordon"

// maxScript is the size of the largest script, in bytes.
const maxScript = 16 << 20

// Put makes the script what s runs. dir is a directory of the host that no
// agent can reach; remove deletes the file that was made in it, after the run.
func (c Script) Put(s *Spec, dir string) (remove func() error, err error) {
	in, known := interpreters[c.Language]
	switch {
	case !known:
		return nil, fmt.Errorf("sandbox: script in %q (want python, javascript, bash or shell)", c.Language)
	case len(c.Code) > maxScript:
		return nil, fmt.Errorf("sandbox: script of %d bytes (want at most %d)", len(c.Code), maxScript)
	}
	f, err := os.CreateTemp(dir, "script-*"+in.extension)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	// Whoever the program runs as inside has to read it; the directory keeps
	// everybody else on the host from it.
	_, err = f.WriteString(c.Code)
	err = errors.Join(err, f.Chmod(0o444), f.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: script: %w", err), os.Remove(f.Name()))
	}
	inside := scriptDir + "/script" + in.extension
	s.Mounts = append(s.Mounts, Mount{Source: f.Name(), Target: inside})
	s.Argv = append([]string{in.program, inside}, c.Args...)
	return func() error { return os.Remove(f.Name()) }, nil
}

// ExecutePython is a Script in Python.
func ExecutePython(code string, args ...string) Script {
	return Script{Language: "python", Code: code, Args: args}
}

// ExecuteCommand is a command line for the shell.
func ExecuteCommand(line string) Script {
	return Script{Language: "shell", Code: strings.TrimSuffix(line, "\n") + "\n"}
}
