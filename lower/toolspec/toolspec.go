// Package toolspec is the catalogue of the tools that agents call: which
// argument of which tool is a path, a URL, a command, code, SQL or prose, and
// what group of effects a tool belongs to. The catalogue is data: the YAML
// files below data/, one a family of tools, in the form that a user's own
// cordon.yaml takes too.
//
// It guarantees that a known tool is recognised under every usual spelling
// and qualification of its name, that a name made of unusual characters is
// never taken for a known tool, that a user's entry cannot take a role from a
// built-in tool without saying that it weakens, and that an argument the
// catalogue does not list is classified by its name.
//
// What this package does not stop: a server that gives a familiar name to a
// tool which does something else. Definitions are pinned elsewhere, and the
// walls of a runtime hold what runs.
package toolspec

import (
	"fmt"
	"slices"
	"strings"
)

// Group is the family of effects that a tool belongs to; tiers are granted
// tools by group. The zero value is a tool that nobody knows.
type Group uint8

const (
	// Unknown is no group: only a tier that may use every tool may use it.
	Unknown Group = iota
	// ReadOnly tools look at files or at the agent's own state.
	ReadOnly
	// Memory tools keep and find the agent's notes.
	Memory
	// ProductivityRead tools read other people's systems.
	ProductivityRead
	// Browser tools drive a browser.
	Browser
	// ProductivityWrite tools change other people's systems.
	ProductivityWrite
	// FSWrite tools change files.
	FSWrite
	// Exec tools run commands, code or SQL.
	Exec
	// Network tools fetch from hosts that the call names.
	Network
)

var groupNames = [...]string{
	"unknown", "read_only", "memory", "productivity_read", "browser",
	"productivity_write", "fs_write", "exec", "network",
}

func (g Group) String() string {
	if int(g) < len(groupNames) {
		return groupNames[g]
	}
	return fmt.Sprintf("group(%d)", uint8(g))
}

// ParseGroup reads a group's name as the catalogue spells it.
func ParseGroup(s string) (Group, error) {
	for i, n := range groupNames {
		if n == s {
			return Group(i), nil
		}
	}
	return Unknown, fmt.Errorf("toolspec: unknown group %q (want one of %q)", s, groupNames)
}

// Role is what an argument means to its tool. The zero value is an argument
// of which nothing is known, so that its name and value must tell.
type Role uint8

const (
	// Infer: by the argument's name and the shape of its value.
	Infer Role = iota
	// Text is prose, a number or an option: what it mentions has no effect.
	Text
	// Content is what a tool writes or hands on.
	Content
	// Send is text that leaves for another system whatever the tool's group.
	Send
	// URLsInText is prose whose web addresses the tool fetches.
	URLsInText
	// Recipient names who gets what the tool hands on.
	Recipient
	// Stdin is what the program that the call starts reads as its input.
	Stdin
	// Language names the language of the code argument.
	Language
	// Ref is a revision or other word that a program gets as one argument.
	Ref
	// Glob is a file name pattern, searched below the path argument or, where
	// it is absolute or climbs, below its own static prefix.
	Glob
	// ReadGlob is a pattern or path whose matches are read.
	ReadGlob
	// Read, List (with all below), Write, Delete and Move (read, then taken
	// away) are paths.
	Read
	List
	Write
	Delete
	Move
	// Cwd is the directory that relative paths and commands start from.
	Cwd
	// URL is an address to connect to, or a file: URL to read.
	URL
	// Host is a host name with or without a port.
	Host
	// Interpreter is the program that the command or code is given to.
	Interpreter
	// Env is an object of environment variables for what runs.
	Env
	// Patch is the text of a patch that names the files it changes.
	Patch
	// PageScript is JavaScript that runs inside a web page.
	PageScript
	// SQL is one or more SQL statements.
	SQL
	// MaybeSQL is SQL where it starts like a statement, else prose.
	MaybeSQL
	// Code is source text in the spec's or the language argument's language.
	Code
	// Shell is a command line.
	Shell
	// Argv is a program and its arguments as a list.
	Argv
	// ArgvRest is the arguments of the program that a Shell argument names.
	ArgvRest
)

var roleNames = [...]string{
	"infer", "text", "content", "send", "urls_in_text", "recipient",
	"stdin", "language", "ref", "glob", "read_glob", "read", "list", "write", "delete",
	"move", "cwd", "url", "host", "interpreter", "env", "patch", "page_script", "sql",
	"maybe_sql", "code", "shell", "argv", "argv_rest",
}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// ParseRole reads a role's name as the catalogue spells it.
func ParseRole(s string) (Role, error) {
	for i, n := range roleNames {
		if n == s {
			return Role(i), nil
		}
	}
	return Infer, fmt.Errorf("toolspec: unknown role %q (want one of %q)", s, roleNames)
}

// IsPath reports whether the role is a path of any kind.
func (r Role) IsPath() bool { return r >= Read && r <= Move }

// IsCode reports whether the role is something that is executed.
func (r Role) IsCode() bool { return r >= SQL }

// Facts are what the guard needs to know of a tool.
type Facts struct {
	// Name is the canonical name of a known tool, else the name as called.
	Name  string
	Group Group
	// Known: the catalogue or the user lists the tool.
	Known bool
	// Irreversible: what the tool does cannot be taken back.
	Irreversible bool
	// Outbound: the tool hands its content to other people or systems.
	Outbound bool
	// SuspectName: the name holds characters outside [A-Za-z0-9_./:-], as a
	// look-alike of another tool's name does, or is empty.
	SuspectName bool
}

// Spec is what is known about one tool. It is immutable and safe for
// concurrent use.
type Spec struct {
	Facts
	// Language is what Code arguments are written in where no argument says
	// ("" is not known).
	Language string
	// Root is what happens to the working directory when the call names no
	// path: List, or Infer for nothing.
	Root Role
	// ReadWhen: where the argument of the key's name (normalised) has one of
	// the values, the tool only reads what it would otherwise write.
	ReadWhen map[string][]string
	// PathRole is the role of a path argument that is found by inference.
	PathRole Role
	// Remote: the tool acts on another system, and its paths are names there.
	Remote bool
	// ReadsEnv: the tool gives out the environment of its server.
	ReadsEnv bool
	// Dials: the words of its name say that it speaks to the hosts that its
	// arguments name, whatever they are called.
	Dials bool
	// Program is the program that the tool is named after, whose arguments
	// its own arguments are; "" for none.
	Program string
	// MayReadEnv: it may do so where it is called without an argument, by its
	// name alone.
	MayReadEnv bool

	args *roles // nil for none
	*spelling
	source string
	weaken bool
	// serverOnly: the names mean nothing without the server. bare: they mean
	// nothing with one, for they are built into agents.
	serverOnly, bare bool
	// globs: a pattern argument is a file name pattern.
	globs          bool
	match, noMatch []sample
	explicit       uint8
}

// Role returns the role that the catalogue gives to an argument, in whatever
// spelling; listed is false where it says nothing about it.
func (s *Spec) Role(arg string) (r Role, listed bool) {
	var buf [64]byte
	return s.args.of(AppendNormal(buf[:0], arg))
}

// Lists reports whether the catalogue gives any argument the role.
func (s *Spec) Lists(r Role) bool {
	for _, a := range s.args.all() {
		if a.role == r {
			return true
		}
	}
	return false
}

// Acts reports whether the catalogue lists an argument that is a path, an
// address or code.
func (s *Spec) Acts() bool {
	for _, a := range s.args.all() {
		if r := a.role; r.IsPath() || r == URL || r >= SQL {
			return true
		}
	}
	return false
}

// spelling is what a tool is called; only an entry of a catalogue has one.
type spelling struct {
	// names as compared and as written; servers the entry is bound to.
	names, spelled, servers []string
}

// roles are those of arguments, in the order of their normalised names. A nil
// *roles lists none.
type roles struct{ list []argRole }

type argRole struct {
	name string
	role Role
}

func (rs *roles) all() []argRole {
	if rs == nil {
		return nil
	}
	return rs.list
}

func byName(a, b argRole) int { return strings.Compare(a.name, b.name) }

func (rs *roles) of(arg []byte) (r Role, listed bool) {
	list := rs.all()
	low, high := 0, len(list)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if list[middle].name < string(arg) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(list) && list[low].name == string(arg) {
		return list[low].role, true
	}
	return Infer, false
}

// over are the roles with others before them.
func (rs *roles) over(others *roles) *roles {
	all := slices.Clone(others.all())
	for _, a := range rs.all() {
		if _, listed := others.of([]byte(a.name)); !listed {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, byName)
	return &roles{all}
}

// inferredPathRole is what a path argument nobody listed is taken for.
func inferredPathRole(g Group) Role {
	if g == ReadOnly || g == ProductivityRead {
		return Read
	}
	return Write
}
