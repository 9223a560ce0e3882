package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// Input is where a configuration is loaded from.
type Input struct {
	// Flags holds what was given on the command line, by name without dashes
	// ("mode", "allow-host"); a flag that was not given has no entry. Of a
	// flag that is no list the last value counts. Settings names the flags.
	Flags map[string][]string
	// Getenv looks a variable up, as os.LookupEnv does; nil is an empty
	// environment. A variable that is set to nothing or to spaces counts as
	// not set.
	Getenv func(name string) (value string, set bool)
	// File is the flag --config. Empty: $CORDON_CONFIG, or else
	// cordon/cordon.yaml in $XDG_CONFIG_HOME (~/.config) if it is there.
	File string
	// ReadFile reads a file; nil reads the file system.
	ReadFile func(path string) ([]byte, error)
	// Dir is the working directory, which relative paths in flags start from.
	// Empty: they are errors.
	Dir string
}

// maxFile is the largest configuration file in bytes.
const maxFile = 1 << 20

// Load reads the configuration: flag over variable over file over the
// defaults of Doors. Lists (read, write, allow_hosts, allow_tools) add up
// instead. The error names everything that is wrong; then there is no
// configuration.
//
// ATOM_SANDBOX_ENABLED=false turns everything off, whatever else says
// otherwise. ATOM_SANDBOX_ENABLED=true turns "off" into "shadow" and leaves
// "enforce" alone; ATOM_SANDBOX_FORCE_ENFORCE=true is mode enforce.
func Load(in Input) (*Config, error) {
	l := &loader{in: in, v: doors(), origins: map[string]origin{}, settings: table()}
	l.places.home = l.env("HOME")
	l.loadFile()
	l.loadEnv()
	l.modeOfEnv()
	l.loadFlags()
	l.masterSwitch()
	l.checkJudge()
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	return &Config{v: l.v, origins: l.origins, file: l.file, notes: l.notes()}, nil
}

type loader struct {
	in       Input
	v        values
	origins  map[string]origin
	settings []setting
	places   places
	file     string
	errs     []error
}

func (l *loader) env(name string) string {
	if l.in.Getenv == nil {
		return ""
	}
	s, _ := l.in.Getenv(name)
	return strings.TrimSpace(s)
}

// fail keeps an error; where is what to look at: "--mode", a variable, or a
// line of the file with its key.
func (l *loader) fail(where string, err error) {
	l.errs = append(l.errs, fmt.Errorf("config: %s %w", where, err))
}

func (l *loader) came(name, source, detail string) {
	o, ok := l.origins[name]
	if s := l.setting(name); ok && s != nil && s.add != nil {
		source, detail = o.source+"+"+source, o.detail+", "+detail
	}
	l.origins[name] = origin{source, detail}
}

func (l *loader) setting(name string) *setting {
	for i := range l.settings {
		if l.settings[i].name == name {
			return &l.settings[i]
		}
	}
	return nil
}

func (l *loader) loadEnv() {
	for _, s := range l.settings {
		if s.env == "" {
			continue
		}
		text := l.env(s.env)
		if text == "" {
			continue
		}
		if err := s.set(&l.v, text, l.places); err != nil {
			l.fail(s.env, err)
			continue
		}
		l.came(s.name, "env", s.env)
	}
}

// modeOfEnv sets the mode that variables ask for. "Enabled" is no wish to
// weaken: it lifts what the file switched off and leaves enforce as it is.
func (l *loader) modeOfEnv() {
	switch {
	case l.v.forceEnforce:
		l.v.mode = cordon.Enforce
		l.came("mode", "env", "ATOM_SANDBOX_FORCE_ENFORCE")
	case l.v.enabled != nil && *l.v.enabled && l.v.mode == cordon.Off:
		l.v.mode = cordon.Shadow
		l.came("mode", "env", "ATOM_SANDBOX_ENABLED")
	}
}

// masterSwitch comes last: who switches everything off because it stands in
// the way must not have to find each flag first.
func (l *loader) masterSwitch() {
	if l.v.enabled == nil || *l.v.enabled {
		return
	}
	l.v.mode, l.v.phases, l.v.transactions = cordon.Off, Phases{}, false
	for _, s := range l.settings {
		if s.name == "mode" || s.name == "transactions" || strings.HasPrefix(s.name, "phases.") {
			l.origins[s.name] = origin{"env", "ATOM_SANDBOX_ENABLED"}
		}
	}
}

func (l *loader) loadFlags() {
	p := l.places
	p.dir = l.in.Dir
	for _, name := range slices.Sorted(maps.Keys(l.in.Flags)) {
		list := l.in.Flags[name]
		i := slices.IndexFunc(l.settings, func(s setting) bool { return s.flag == name && name != "" })
		if i < 0 {
			l.fail("flag", wantError{name, "one of " + joined(l.flags())})
			continue
		}
		if len(list) == 0 {
			continue
		}
		s := l.settings[i]
		var err error
		if s.add != nil {
			err = s.add(&l.v, list, p)
		} else {
			err = s.set(&l.v, list[len(list)-1], p)
		}
		if err != nil {
			l.fail("--"+name, err)
			continue
		}
		l.came(s.name, "flag", "--"+name)
	}
}

func (l *loader) flags() []string {
	var list []string
	for _, s := range l.settings {
		if s.flag != "" {
			list = append(list, s.flag)
		}
	}
	return list
}

func (l *loader) notes() []string {
	var list []string
	if l.v.enabled != nil && !*l.v.enabled {
		list = append(list, "ATOM_SANDBOX_ENABLED=false: everything is off, whatever else is set.")
	}
	if len(l.v.tenants) > 0 && !l.v.tenantOverride {
		list = append(list, "tenants: the overrides have no effect while policy_tenant_override is false.")
	}
	if l.v.phases.Judge && l.v.judgeModel.Provider == "" {
		list = append(list, "phases.judge: no judge is asked while judge.provider is not set.")
	}
	return append(list, l.gatewayNotes()...)
}

// loadFile finds, reads and applies the file. The working directory is not
// searched: what lies there is written by agents.
func (l *loader) loadFile() {
	name, asked := l.fileName()
	if name == "" {
		return
	}
	read := l.in.ReadFile
	if read == nil {
		read = readFile
		if asked == "" {
			read = readRegular
		}
	}
	data, err := read(name)
	if asked == "" && errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is too large (want at most %d bytes)", name, maxFile)
	}
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("config: configuration file: %w", err))
		return
	}
	l.file = name
	l.parseFile(data)
}

// fileName is the file to read, and what asked for it; nothing asks for the
// one in the configuration directory, which need not be there.
func (l *loader) fileName() (name, asked string) {
	p := l.places
	if l.in.File != "" {
		p.dir = l.in.Dir
		return l.named("--config", l.in.File, p)
	}
	// A relative $CORDON_CONFIG would be read from the workspace.
	if s := l.env("CORDON_CONFIG"); s != "" {
		return l.named("CORDON_CONFIG", s, p)
	}
	dir := l.env("XDG_CONFIG_HOME")
	if !path.IsAbs(dir) {
		if !path.IsAbs(p.home) {
			return "", ""
		}
		dir = p.home + "/.config"
	}
	return path.Join(dir, "cordon", "cordon.yaml"), ""
}

func (l *loader) named(asked, s string, p places) (string, string) {
	name, err := p.path(s)
	if err != nil {
		l.fail(asked, err)
		return "", asked
	}
	return name, asked
}

// readRegular reads a file that nobody named: a pipe in its place would hold up
// every door for ever. Who names one ("--config <(…)") means it.
func readRegular(name string) ([]byte, error) {
	at, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !at.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file (want one, or --config FILE)", name)
	}
	return readFile(name)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
