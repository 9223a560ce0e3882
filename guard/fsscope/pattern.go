package fsscope

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

const (
	maxBraces  = 64   // alternatives of one pattern
	maxEntries = 1000 // names of directories looked at for one pattern
	maxTrials  = 500  // names tried against one pattern
	// minLiteral is how many characters a wildcard must spell out before it
	// is tried against names without a leading dot: "*" and "*.py" are not
	// about keys.
	minLiteral = 3
)

// patterned judges a glob: its directory before the first wildcard, and
// whether it could match a secret or a protected file.
func (s *Scope) patterned(j *judgement, raw string) {
	i := strings.IndexAny(raw, "*?[")
	cut := strings.LastIndexByte(raw[:i], '/')
	prefix, rest := raw[:max(cut, 1)], strings.TrimLeft(raw[cut+1:], "/")
	s.prefix(j, prefix)
	base := j.Resolved
	j.Requested = path.Clean(raw)
	for _, n := range strings.Split(rest, "/") {
		if n == ".." {
			j.find(RuleUnresolved, cordon.Restricted, false, "the pattern %s goes up after a wildcard", quote(raw))
		}
	}
	rest = path.Clean(rest)
	s.matches(j, base, rest)
	if j.effect.Kind != cordon.List && len(j.Findings) == 0 {
		entries := maxEntries
		s.links(j, base, strings.Split(rest, "/"), false, &entries)
	}
}

// links follows a pattern on the disk for the sake of links: what it matches
// through one is judged as a path of its own. A repository that came from
// elsewhere may hold a link to a key under a harmless name. Past maxEntries
// names it looks no further.
func (s *Scope) links(j *judgement, dir string, names []string, linked bool, entries *int) {
	if *entries--; len(names) == 0 || *entries <= 0 {
		return
	}
	name, rest := names[0], names[1:]
	deep := strings.Trim(name, "*") == "" && len(name) > 1
	if deep {
		s.links(j, dir, rest, linked, entries)
	}
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	list, _ := f.ReadDir(*entries)
	f.Close()
	for _, d := range list {
		if *entries--; *entries <= 0 {
			return
		}
		n := d.Name()
		if n[0] == '.' && name[0] != '.' && name[0] != '[' {
			continue
		}
		if ok, err := path.Match(name, n); err != nil || !ok && !deep {
			continue
		}
		at := dir + "/" + n
		link := d.Type()&os.ModeSymlink != 0
		switch {
		case deep && d.IsDir():
			s.links(j, at, names, linked, entries)
		case len(rest) > 0 && (d.IsDir() || link && !deep):
			s.links(j, at, rest, linked || link, entries)
		case len(rest) == 0 && (link && !j.effect.NoFollow || linked):
			s.match(j, at)
		}
	}
}

// match judges a path that a pattern matches. A link to a directory is
// passed over where only files are meant: reading it fails.
func (s *Scope) match(j *judgement, at string) {
	if st, err := os.Stat(at); err != nil || st.IsDir() && !j.effect.Recursive {
		return
	}
	e := *j.effect
	e.Pattern = false
	one := judgement{effect: &e, write: j.write, pattern: true}
	s.single(&one, at)
	j.merge(one.Findings)
	if one.Secret != "" {
		j.Secret = one.Secret
	}
}

// prefix judges the directory that a pattern starts from: it must be in
// scope, but is not itself what is removed.
func (s *Scope) prefix(j *judgement, dir string) {
	e := *j.effect
	if e.Kind == cordon.Delete {
		e.Kind = cordon.Write
	}
	e.NoFollow, e.Pattern = false, false
	one := judgement{effect: &e, write: j.write, pattern: true}
	s.single(&one, dir)
	j.Requested, j.Resolved = one.Requested, one.Resolved
	if one.Secret != "" {
		j.Secret = one.Secret
	}
	j.merge(one.Findings)
}

// matches tries the names of secrets and protected files against the pattern
// below base.
func (s *Scope) matches(j *judgement, base, pattern string) {
	names := strings.Split(pattern, "/")
	at := strings.TrimSuffix(base, "/")
	s.try(j, at, names, 0)
	if *j.trials <= 0 {
		j.find(RuleUnresolved, cordon.Restricted, false, "the pattern %s could match too much", quote(pattern))
	}
}

// try puts names that match in the place of the wildcards from element i on
// and judges the path that comes of it, as far as names go.
func (s *Scope) try(j *judgement, at string, names []string, i int) {
	if *j.trials--; *j.trials < 0 {
		return
	}
	for i < len(names) && (!strings.ContainsAny(names[i], "*?[") || strings.Trim(names[i], "*") == "") {
		i++
	}
	if i == len(names) {
		s.candidate(j, at+"/"+strings.Join(names, "/"))
		return
	}
	was := names[i]
	fold := strings.ToLower(was)
	telling := literals(was) >= minLiteral && !anyOfAKind(was) || hiddenAbove(names[:i])
	s.try(j, at, names, i+1)
	for _, n := range temptations {
		if n[0] == '.' && was[0] != '.' && was[0] != '[' || n[0] != '.' && !telling {
			continue
		}
		if ok, err := path.Match(fold, n); err != nil || !ok {
			continue
		}
		names[i] = n
		s.try(j, at, names, i+1)
	}
	names[i] = was
}

// keyKinds are endings that say "secret" by themselves.
var keyKinds = []string{".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".ppk", ".env", ".keytab", ".ovpn", ".tfstate", ".tfvars", ".dat", ".asc", ".gpg"}

// anyOfAKind: a pattern such as "*.json" is about files of a kind, not about
// the one that is a secret.
func anyOfAKind(pattern string) bool {
	ending := strings.TrimLeft(strings.ToLower(pattern), "*")
	return len(ending) < len(pattern) && strings.LastIndexByte(ending, '.') == 0 && !strings.ContainsAny(ending, "*?[") && !slices.Contains(keyKinds, ending)
}

// literals counts what a wildcard spells out.
func literals(pattern string) (n int) {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?':
		case '[':
			if j := strings.IndexByte(pattern[i:], ']'); j > 0 {
				i += j
			}
		default:
			n++
		}
	}
	return n
}

func hiddenAbove(names []string) bool {
	for _, n := range names {
		if strings.HasPrefix(n, ".") {
			return true
		}
	}
	return false
}

// candidate judges one path that a pattern could match, by its names only.
// A listing tells no more than names.
func (s *Scope) candidate(j *judgement, p string) {
	if !interesting(p) || j.effect.Kind == cordon.List {
		return
	}
	in, holder := s.permits(p, true, j.write)
	s.names(j, p, in, holder)
}

// temptations are the names that wildcards are tried with.
var temptations = [...]string{
	".ssh", ".aws", ".azure", ".kube", ".gnupg", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".docker", ".config",
	".git-credentials", ".cargo", ".gem", ".m2", ".env", ".env.local", ".env.production", ".vault-token", ".terraform.d",
	".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history", ".mozilla",
	".claude", ".codex", ".gemini", ".cursor", ".local", ".password-store", ".credentials.json",
	".git", ".vscode", ".idea", ".mcp.json", ".envrc", ".vimrc", ".exrc", ".nvim.lua", ".dir-locals.el",
	"id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", "server.key", "private.key", "key.pem", "privkey.pem", "private_key.pem",
	"credentials", "config.json", "hosts.yml", "gcloud", "gh", "settings.xml", "auth.json", "oauth_creds.json", "keyrings", "share",
	"keystore.jks", "cert.p12", "cert.pfx", "passwords.kdbx", "login data", "cookies.sqlite", "logins.json", "key4.db",
	"wallet.dat", ".secrets", ".secrets.toml", ".secret_key", ".vault_pass", "prod.env", "production.env", "terraform.tfstate", "secrets.tfvars", ".dev.vars",
	"hooks", "config", "settings.json", "settings.local.json", "tasks.json", "launch.json", "mcp.json", "pre-commit", "info", "attributes",
}

// braces expands {a,b}, innermost first. ok is false where there are more
// alternatives than maxBraces; those made so far are returned.
func braces(p string) (out []string, ok bool) {
	todo := []string{p}
	for len(todo) > 0 {
		t := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		end := strings.IndexByte(t, '}')
		start := -1
		if end >= 0 {
			start = strings.LastIndexByte(t[:end], '{')
		}
		if start < 0 || strings.IndexByte(t[start:end], ',') < 0 {
			out = append(out, t)
			continue
		}
		for _, a := range strings.Split(t[start+1:end], ",") {
			todo = append(todo, t[:start]+a+t[end+1:])
		}
		if len(todo)+len(out) > maxBraces {
			return append(out, todo...), false
		}
	}
	return out, true
}
