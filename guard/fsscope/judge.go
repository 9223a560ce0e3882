package fsscope

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/cordon-sandbox/cordon"
)

// The rules of this phase.
const (
	RuleOutOfScope   = "fs.out_of_scope"   // outside every root that permits it
	RuleForbidden    = "fs.forbidden_tree" // /proc, /sys, /dev, /etc, other homes, …
	RuleSystemFile   = "fs.system_file"    // a file of /etc or /proc that every program reads
	RuleCredential   = "fs.credential"     // a secret, by place or by name
	RuleProtected    = "fs.protected"      // a change of what runs code outside the sandbox, or of .env and kin
	RulePersistence  = "fs.persistence"    // a change of a home's start-up or settings files
	RuleSelf         = "fs.self"           // Cordon's own files
	RuleRoot         = "fs.root"           // removal of a root, or of what holds one
	RuleRemote       = "fs.remote"         // a file on another machine
	RuleLinkLoop     = "fs.link_loop"      // links in a circle, or too many
	RuleNUL          = "fs.nul"            // a NUL byte
	RuleTooLong      = "fs.too_long"       // longer than the kernel takes
	RuleUnresolved   = "fs.unresolved"     // where it leads could not be told
	RuleAmbiguous    = "fs.ambiguous"      // more readings than are worth judging
	RuleHardLink     = "fs.hard_link"      // another name of a home's secret
	RuleRelativeDir  = "fs.relative_dir"   // a working directory that is not absolute
	RuleMisconfigure = "fs.no_scope"       // the scope was never made

	// maxTarget bounds a target before it is read: the longest path, all of
	// it in percent forms, and some more.
	maxTarget   = 4 * maxPath
	maxDetail   = 160 // bytes of a path in a detail
	notAbsolute = "not an absolute path"
)

// Verdict is what Judge says of one effect.
type Verdict struct {
	// Requested is the path as asked for: expanded, absolute, clean. Of
	// several readings it is the one judged most strictly.
	Requested string
	// Resolved is where it leads through links.
	Resolved string
	// Findings are against the effect; none: the scope permits it.
	Findings []cordon.Finding
	// Secret is the class of the credential store that the path is or lies
	// in ("ssh key", "browser store"), or empty.
	Secret string
}

// judgement is the verdict while it is made.
type judgement struct {
	Verdict
	effect  *cordon.Effect
	write   bool
	pattern bool // the place that is judged has wildcards in it
	// trials is how many names may still be tried against a pattern, over
	// all readings and alternatives.
	trials *int
}

// Judge decides on the path of a Read, List, Write or Delete; for any other
// kind the verdict is empty. A doubtful effect restricts at most.
func (s *Scope) Judge(e cordon.Effect) Verdict {
	j := judgement{effect: &e, pattern: e.Pattern}
	switch e.Kind {
	case cordon.Read, cordon.List:
	case cordon.Write, cordon.Delete:
		j.write = true
	default:
		return Verdict{}
	}
	if s == nil || s.base == nil {
		j.find(RuleMisconfigure, cordon.Blocked, false, "no scope was issued for this run")
		return j.Verdict
	}
	s.judge(&j)
	if e.Doubtful {
		for i := range j.Findings {
			j.Findings[i].Outcome = max(j.Findings[i].Outcome, cordon.Restricted)
			j.Findings[i].Kill = false
		}
	}
	return j.Verdict
}

func (s *Scope) judge(j *judgement) {
	e := j.effect
	dir := e.Dir
	if dir == "" {
		dir = s.base.workspace.lexical
	}
	if len(e.Target) > maxTarget {
		j.find(RuleTooLong, cordon.Blocked, false, "the path %s is longer than the system takes", quote(e.Target))
		return
	}
	if e.Pattern {
		trials := maxTrials
		j.trials = &trials
	}
	if e.Expanded || isPlain(e.Target) {
		s.reading(j, e.Target, dir)
		return
	}
	r := s.read(e.Target, dir)
	if r.remote != "" {
		j.find(RuleRemote, cordon.Blocked, false, "%s names a file on another machine", quote(r.remote))
	}
	if r.unresolved != "" {
		j.find(RuleUnresolved, cordon.Restricted, false, "%s in the path %s could not be expanded", quote(r.unresolved), quote(e.Target))
	}
	if r.tooMany {
		j.find(RuleAmbiguous, cordon.Restricted, false, "the path %s can be read in too many ways", quote(e.Target))
	}
	first := judgement{}
	for i := range r.list {
		if i == 0 && len(r.list) > 1 && leavesNoName(e.Target, dir) {
			continue
		}
		one := judgement{effect: e, write: j.write, pattern: e.Pattern, trials: j.trials}
		s.reading(&one, r.list[i].text, dir)
		if first.effect == nil || one.strictness() > first.strictness() ||
			one.strictness() == first.strictness() && r.list[i].expanded && len(one.Findings) == 0 {
			first = one
		}
		j.merge(one.Findings)
		if j.Secret == "" {
			j.Secret = one.Secret
		}
	}
	j.Requested, j.Resolved = first.Requested, first.Resolved
	if first.Secret != "" {
		j.Secret = first.Secret
	}
}

// leavesNoName reports whether a target that starts with a tilde or a
// variable cannot be meant literally, since no such name stands in dir.
func leavesNoName(target, dir string) bool {
	if target[0] != '~' && target[0] != '$' || strings.HasPrefix(target, "$(") {
		return false
	}
	name, _, slash := strings.Cut(target, "/")
	if !slash && name != "~" || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	_, err := os.Lstat(dir + "/" + name)
	return errors.Is(err, os.ErrNotExist)
}

// strictness orders verdicts: a kill above a block above a restriction.
func (j *judgement) strictness() int {
	n := 0
	for i := range j.Findings {
		f := &j.Findings[i]
		v := 1 + int(cordon.Allowed-f.Outcome)
		if f.Kill {
			v++
		}
		n = max(n, v)
	}
	return n
}

// merge adds findings, one for each rule, the strictest.
func (j *judgement) merge(fs []cordon.Finding) {
next:
	for _, f := range fs {
		for i := range j.Findings {
			if g := &j.Findings[i]; g.Rule == f.Rule {
				if f.Outcome < g.Outcome || f.Kill && !g.Kill {
					f.Kill = f.Kill || g.Kill
					*g = f
				}
				continue next
			}
		}
		j.Findings = append(j.Findings, f)
	}
}

func (j *judgement) find(rule string, o cordon.Outcome, kill bool, format string, args ...any) {
	j.merge([]cordon.Finding{{
		Phase: cordon.PhaseFS, Violation: cordon.FSPath, Rule: rule, Outcome: o, Kill: kill,
		Detail: fmt.Sprintf(format, args...), Arg: j.effect.Arg, Via: j.effect.Via,
	}})
}

func quote(p string) string {
	if len(p) > maxDetail {
		p = p[:maxDetail] + "…"
	}
	return fmt.Sprintf("%q", strings.ToValidUTF8(p, "\ufffd"))
}

// reading judges one way of taking the target.
func (s *Scope) reading(j *judgement, target, dir string) {
	if j.pattern && strings.IndexByte(target, '{') >= 0 {
		alternatives, ok := braces(target)
		if !ok {
			j.find(RuleUnresolved, cordon.Restricted, false, "the pattern %s has too many alternatives", quote(target))
		}
		for _, a := range alternatives {
			s.alternative(j, a, dir)
		}
		return
	}
	s.alternative(j, target, dir)
}

// alternative judges a target without braces.
func (s *Scope) alternative(j *judgement, target, dir string) {
	raw := target
	if !strings.HasPrefix(raw, "/") {
		if !strings.HasPrefix(dir, "/") {
			j.find(RuleRelativeDir, cordon.Blocked, false, "the working directory %s is %s", quote(dir), notAbsolute)
			return
		}
		raw = dir + "/" + target
	}
	if strings.IndexByte(raw, 0) >= 0 {
		j.find(RuleNUL, cordon.Blocked, false, "the path %s holds a NUL byte", quote(target))
		return
	}
	if tooLong(raw) {
		j.find(RuleTooLong, cordon.Blocked, false, "the path %s is longer than the system takes", quote(target))
		return
	}
	if j.pattern && strings.ContainsAny(raw, "*?[") {
		s.patterned(j, raw)
		return
	}
	if e := j.effect; e.Pattern { // an alternative, or a pattern that is none
		plain := *e
		plain.Pattern = false
		j.effect = &plain
		defer func() { j.effect = e }()
	}
	s.single(j, raw)
}

// tooLong reports a path past PATH_MAX or an element past NAME_MAX.
func tooLong(p string) bool {
	if len(p) >= maxPath {
		return true
	}
	for len(p) > maxName {
		i := strings.LastIndexByte(p[:maxName+1], '/')
		if i < 0 {
			return true
		}
		p = p[i+1:]
	}
	return false
}

// single judges an absolute path that may still hold "..", "//" and ".".
func (s *Scope) single(j *judgement, raw string) {
	clean := path.Clean(raw)
	j.Requested, j.Resolved = clean, clean
	s.place(j, clean, false)
	if !strings.Contains(raw, "/..") && j.settled(clean) {
		return
	}
	nofollow := j.effect.NoFollow && path.Base(clean) == raw[strings.LastIndexByte(raw, '/')+1:]
	r := s.base.resolve(clean, nofollow, !j.effect.NoFollow)
	s.land(j, r, clean)
	j.Resolved = r.path
	if strings.Contains(raw, "/..") {
		// The kernel takes ".." after the links before it, tools that clean
		// first do not: both ways must be in scope.
		if k := walk(raw, nofollow); k.path != r.path || k.err != nil || k.magic {
			s.land(j, k, clean)
			j.Resolved = k.path
		}
	}
}

// settled reports a path whose links are the system's own affair: /dev/stdin
// leads to whatever the tool's descriptor is, /etc/resolv.conf to a file that
// some service keeps.
func (j *judgement) settled(clean string) bool {
	switch {
	case within(clean, "/dev"):
		t := deviceTree(clean)
		return t == treeDevice || t == treeDescriptor
	case within(clean, "/etc"):
		return !j.write && etcTree(clean) == treeCommon
	}
	return false
}

// land judges where a path led.
func (s *Scope) land(j *judgement, r landing, requested string) {
	switch {
	case errors.Is(r.err, syscall.ELOOP):
		j.find(RuleLinkLoop, cordon.Blocked, false, "the links of %s go in a circle", quote(requested))
		return
	case errors.Is(r.err, syscall.ENAMETOOLONG):
		j.find(RuleTooLong, cordon.Blocked, false, "%s leads to a path longer than the system takes", quote(requested))
		return
	case r.err != nil:
		j.find(RuleUnresolved, cordon.Restricted, false, "where %s leads could not be told: %s", quote(requested), r.err)
	}
	if r.magic {
		kill := j.write || behindProc(r.path) != r.path && secretOf(foldPath(behindProc(r.path)), 0).class != ""
		j.find(RuleForbidden, cordon.Blocked, kill, "%s leads through /proc", quote(requested))
		return
	}
	if r.path != requested {
		s.place(j, r.path, true)
	} else if ok, _ := s.permits(r.path, true, j.write); !ok && len(j.Findings) == 0 && s.base.tree(r.path) != treeDevice {
		// A root's lexical spelling no longer leads where it did.
		s.outOfScope(j, r.path)
	}
	if r.shared {
		if class := s.base.knownInode(r.dev, r.ino, j.write); class != "" {
			j.hardLink(requested, class)
		}
	}
}

// place judges one clean absolute path against all rules.
func (s *Scope) place(j *judgement, p string, resolved bool) {
	b, e := s.base, j.effect
	if b.isSelf(p) || e.Kind == cordon.Delete && e.Recursive && b.holdsSelf(p) {
		j.find(RuleSelf, cordon.Blocked, e.Kind != cordon.List && !j.pattern, "%s belongs to Cordon itself", quote(p))
	}
	in, holder := s.permits(p, resolved, j.write)
	where := b.tree(p)
	if holder != nil && holder.forbidden {
		where = treeNone
	}
	if holder == nil || interesting(p) || where != treeNone {
		s.names(j, p, in, holder)
	}
	if where == treeDevice && e.Kind != cordon.List {
		if e.Kind == cordon.Read || e.Kind == cordon.Write && e.Op != "move" && e.Op != "link" && e.Op != "chmod" {
			return
		}
		where = treeForbidden
	}
	if where != treeNone {
		s.forbid(j, p, where)
		return
	}
	if !in {
		s.outOfScope(j, p)
	}
	if e.Kind == cordon.Delete {
		s.removal(j, p)
	}
}

func (s *Scope) forbid(j *judgement, p string, where tree) {
	if where == treeCommon && !j.write {
		j.find(RuleSystemFile, cordon.Restricted, false, "%s is a system file outside the roots", quote(p))
		return
	}
	if where == treeDescriptor && j.effect.Kind != cordon.Delete {
		j.find(RuleUnresolved, cordon.Restricted, false, "what the open descriptor %s is cannot be told", quote(p))
		return
	}
	if where == treeHome {
		j.find(RuleForbidden, cordon.Blocked, false, "%s is in another user's home", quote(p))
		return
	}
	j.find(RuleForbidden, cordon.Blocked, j.write && !j.pattern, "%s is in a part of the system that no call may touch", quote(p))
}

func (s *Scope) outOfScope(j *judgement, p string) {
	j.find(RuleOutOfScope, cordon.Restricted, false, "%s is outside of what this run may %s", quote(p), verb(j.effect.Kind))
	f := &j.Findings[len(j.Findings)-1]
	// Only for a write: what would be read or deleted is not there.
	if f.Rule == RuleOutOfScope && f.Rewrite == "" && j.effect.Kind == cordon.Write && !j.pattern && s.base.tempWrite {
		f.Rewrite = s.Rewrite(j.Requested)
	}
}

func verb(k cordon.Kind) string {
	switch k {
	case cordon.Write:
		return "write"
	case cordon.Delete:
		return "delete"
	case cordon.List:
		return "list"
	}
	return "read"
}

// removal refuses to take away a root, or what holds one.
func (s *Scope) removal(j *judgement, p string) {
	for i := range s.base.roots {
		r := &s.base.roots[i]
		if !r.system && (within(r.lexical, p) || within(r.real, p)) {
			j.find(RuleRoot, cordon.Blocked, false, "%s holds what this run works in", quote(p))
			return
		}
	}
	if within(s.base.home.lexical, p) {
		j.find(RuleRoot, cordon.Blocked, false, "%s holds the home directory", quote(p))
	}
}

// names judges what the path is called: secrets, protected files, and files
// that run code later.
func (s *Scope) names(j *judgement, p string, in bool, holder *root) {
	e := j.effect
	names, from := foldPath(p), 0
	if holder != nil {
		from = strings.Count(holder.lexical, "/")
		if !within(p, holder.lexical) {
			from = strings.Count(holder.real, "/")
		}
	}
	sec := secretOf(names, from)
	if q := behindProc(p); sec.class == "" && q != p {
		sec = secretOf(foldPath(q), 0)
	}
	if sec.class == "" && (holder == nil || !s.base.storesAbove(holder.lexical)) {
		sec.class = s.base.homeSecret(behindProc(p))
	}
	if sec.class != "" && !s.excused(p, sec, in, holder, j) {
		j.Secret = sec.class
		s.credential(j, p, sec, holder != nil)
	}
	if !j.write {
		return
	}
	what := protectedOf(names, from, p)
	if what != "" && e.Op == "create" && !e.Recursive && plainDirectory(names[len(names)-1]) {
		what = "" // mkdir .vscode
	}
	settings := what != "" && what != "git" && holder == nil && s.base.inHome(p)
	meant := holder != nil && holder.startup // a workspace in ~/.config/nvim
	if settings || !meant && s.base.persistence(p) {
		j.find(RulePersistence, cordon.Blocked, holder == nil && !j.pattern, "%s runs code when its owner next logs in or works", quote(p))
	} else if what != "" {
		j.find(RuleProtected, cordon.Blocked, false, "%s is protected (%s): what stands in it would run outside the sandbox", quote(p), what)
	}
}

// plainDirectory knows the directories of agents and editors that do nothing
// while they are empty.
func plainDirectory(n string) bool {
	return strings.HasPrefix(n, ".") && n != ".git" && strings.IndexByte(n[1:], '.') < 0 && !strings.HasSuffix(n, "rc")
}

// excused reports a secret that the call may touch all the same: one that a
// root names, a template, a directory that is called like an environment
// file, a key that is made in the workspace.
func (s *Scope) excused(p string, sec secret, in bool, holder *root, j *judgement) bool {
	switch {
	case holder != nil && holder.named && in:
		return true
	case holder != nil && isTemplate(path.Base(p)):
		return true
	case sec.key && j.write && in && holder != nil:
		return true
	case sec.file && holder != nil && !j.effect.Pattern:
		st, err := os.Lstat(p)
		return err == nil && st.IsDir()
	}
	return false
}

// credential finds against a secret. Outside of the roots a read or a change
// of one ends the run; a listing, or a link looked at, does not.
func (s *Scope) credential(j *judgement, p string, sec secret, rooted bool) {
	e := j.effect
	kill := !rooted && !j.pattern && (j.write || e.Kind == cordon.Read && !e.NoFollow)
	if sec.key && !containsFold(path.Base(p), "id_") {
		kill = false // "slides.key" of another project is no theft
	}
	if sec.class == knownHosts && !j.write {
		kill = false
	}
	if j.write && rooted {
		j.find(RuleProtected, cordon.Blocked, false, "%s is protected (%s)", quote(p), sec.class)
		return
	}
	j.find(RuleCredential, cordon.Blocked, kill, "%s is a credential store (%s)", quote(p), sec.class)
}

// hardLink finds against another name of a file that is kept from the call.
// A secret from outside the workspace ends the run.
func (j *judgement) hardLink(p, class string) {
	if class != "protected file" && class != "start-up file" {
		j.Secret = class
	}
	j.find(RuleHardLink, cordon.Blocked, j.Secret != "" && class != "environment file", "%s is another name of a %s", quote(p), class)
}
