// Package ecosystem says which hosts the user's own package tools go to: the
// registries, mirrors and indexes of npm, Go, apt, pip, cargo, maven, gem and
// nuget, as the user has configured each of them. Mirrors and private
// registries therefore work inside a sandbox as they do outside.
//
// It guarantees that
//
//   - nothing inside a workspace decides: no program there is started, no
//     file there is read, and a tool that is asked runs where no project's
//     configuration applies, with a small environment, bounded in time and
//     output;
//   - a host is named only where the user's configuration or, for pip, cargo,
//     maven, gem and nuget, the tool's published default names it; what cannot
//     be read, or is not known, adds nothing and is a Problem;
//   - no user name, password, token, path or query of a URL is kept, and no
//     Problem holds one.
//
// What it does not stop: a registry that is allowed serves what its users
// publish, and takes uploads from those who have credentials for it. A
// registry that sends its clients on to further hosts (an index whose files
// lie elsewhere) is not followed: those hosts have to be named by hand. A
// user's own configuration that the agent can write decides as well; where
// the home directory lies in a workspace it is therefore not read.
package ecosystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Host is one host that an ecosystem needs.
type Host struct {
	// Host is a name in lower case, or an IP address.
	Host string
	// Port is 0 for the usual one of Scheme.
	Port uint16
	// Scheme is "https", "http" or "ssh".
	Scheme    string
	Ecosystem string
	// Why says where it stood: "pip: index-url of /etc/pip.conf".
	Why string
}

// Rule is the host as a rule of the egress policy: "host" or "host:port".
func (h Host) Rule() string {
	port := h.Port
	if port == 0 && h.Scheme == "ssh" {
		port = 22 // which no proxy takes without being told
	}
	if port == 0 {
		if strings.Contains(h.Host, ":") {
			return "[" + h.Host + "]"
		}
		return h.Host
	}
	return net.JoinHostPort(h.Host, strconv.Itoa(int(port)))
}

// Problem is why an ecosystem has fewer hosts than one might expect, or a
// host that will not be reached as it stands.
type Problem struct {
	Ecosystem string
	// What is one sentence without secrets, Hint what would help.
	What, Hint string
}

func (p Problem) String() string {
	if p.Hint == "" {
		return p.Ecosystem + ": " + p.What
	}
	return p.Ecosystem + ": " + p.What + " (" + p.Hint + ")"
}

// Config is where to look. The zero value finds nothing.
type Config struct {
	// Home is the user's home directory, absolute.
	Home string
	// Env reads the user's environment, os.Getenv for the process's own;
	// PATH in it says where programs are.
	Env func(string) string
	// Workspaces are the directories that agents can write, absolute.
	Workspaces []string
	// Root is put before the system's own files ("/etc/…"); empty is "/".
	Root string
	// Timeout bounds one question to a tool. Zero is 10 s.
	Timeout time.Duration
}

// Bounds of what is read.
const (
	maxFile   = 1 << 20
	maxOutput = 256 << 10
	maxHosts  = 256 // of one ecosystem
)

// resolvers are the ecosystems, in the order in which they are listed.
var resolvers = []struct {
	name string
	find func(*finder)
}{
	{"npm", (*finder).npm},
	{"go", (*finder).golang},
	{"apt", (*finder).apt},
	{"pip", (*finder).pip},
	{"cargo", (*finder).cargo},
	{"maven", (*finder).maven},
	{"gem", (*finder).gem},
	{"nuget", (*finder).nuget},
}

// Names lists the ecosystems.
func Names() []string {
	out := make([]string, len(resolvers))
	for i, r := range resolvers {
		out[i] = r.name
	}
	return out
}

// ParseNames reads "npm,go" or "all"; an unknown name is an error.
func ParseNames(list string) ([]string, error) {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "all":
			out = append(out, Names()...)
		case slices.Contains(Names(), name):
			out = append(out, name)
		default:
			return nil, fmt.Errorf("ecosystem: unknown ecosystem %q (want some of %q, or \"all\")", name, Names())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Resolver finds each ecosystem once and remembers it.
type Resolver struct {
	c    Config
	path []string // of PATH, without workspaces

	mu    sync.Mutex
	known map[string]*found
}

type found struct {
	hosts    []Host
	problems []Problem
}

// New checks the configuration.
func New(c Config) (*Resolver, error) {
	if c.Env == nil {
		c.Env = func(string) string { return "" }
	}
	if c.Home != "" && !filepath.IsAbs(c.Home) {
		return nil, fmt.Errorf("ecosystem: home %q (want an absolute path)", c.Home)
	}
	if c.Timeout < 0 {
		return nil, errors.New("ecosystem: the time limit is negative")
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Root == "" {
		c.Root = "/"
	}
	r := &Resolver{c: c, known: map[string]*found{}}
	r.c.Workspaces = nil
	for _, w := range c.Workspaces {
		if !filepath.IsAbs(w) {
			return nil, fmt.Errorf("ecosystem: workspace %q (want an absolute path)", w)
		}
		r.c.Workspaces = append(r.c.Workspaces, filepath.Clean(w))
		if real, err := filepath.EvalSymlinks(w); err == nil {
			r.c.Workspaces = append(r.c.Workspaces, real)
		}
	}
	for _, dir := range filepath.SplitList(c.Env("PATH")) {
		if filepath.IsAbs(dir) && !r.inWorkspace(dir) {
			r.path = append(r.path, dir)
		}
	}
	return r, nil
}

// Resolve finds the hosts of the named ecosystems, in the order of Names.
// An unknown name is a Problem.
func (r *Resolver) Resolve(ctx context.Context, names []string) ([]Host, []Problem) {
	var hosts []Host
	var problems []Problem
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			problems = append(problems, Problem{n, "no such ecosystem", "one of " + strings.Join(Names(), ", ")})
		}
	}
	for _, one := range resolvers {
		if !slices.Contains(names, one.name) {
			continue
		}
		f := r.find(ctx, one.name, one.find)
		hosts = append(hosts, f.hosts...)
		problems = append(problems, f.problems...)
	}
	return hosts, problems
}

// find looks once. What was cut short by ctx is not remembered.
func (r *Resolver) find(ctx context.Context, name string, look func(*finder)) *found {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.known[name]; f != nil {
		return f
	}
	f := &finder{r: r, ctx: ctx, name: name, seen: map[string]bool{}}
	if r.c.Home != "" && r.inWorkspace(r.c.Home) {
		f.homeless = true
		f.problem("the home directory lies in a workspace, so the user's own configuration is not read", "choose a workspace below the home directory")
	}
	look(f)
	if ctx.Err() == nil {
		r.known[name] = &f.found
	}
	return &f.found
}

// inWorkspace reports whether a path lies in a workspace, as it is written
// or as its links lead. Names that differ in case only are one, as they are
// on some file systems.
func (r *Resolver) inWorkspace(path string) bool {
	paths := []string{filepath.Clean(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		paths = append(paths, real)
	}
	for _, p := range paths {
		for _, w := range r.c.Workspaces {
			p, w := strings.ToLower(p), strings.ToLower(w)
			if p == w || strings.HasPrefix(p, strings.TrimSuffix(w, "/")+"/") {
				return true
			}
		}
	}
	return false
}

// finder finds one ecosystem.
type finder struct {
	found
	r        *Resolver
	ctx      context.Context
	name     string
	seen     map[string]bool
	homeless bool
}

func (f *finder) env(name string) string { return f.r.c.Env(name) }

func (f *finder) problem(what, hint string) {
	if len(f.problems) < maxHosts {
		f.problems = append(f.problems, Problem{f.name, what, hint})
	}
}

// home joins a path below the home directory; "" where there is none.
func (f *finder) home(elem ...string) string {
	if f.r.c.Home == "" || f.homeless {
		return ""
	}
	return filepath.Join(append([]string{f.r.c.Home}, elem...)...)
}

// config is the directory of the user's configuration files.
func (f *finder) config(elem ...string) string {
	if x := f.env("XDG_CONFIG_HOME"); filepath.IsAbs(x) {
		return filepath.Join(append([]string{x}, elem...)...)
	}
	return f.home(append([]string{".config"}, elem...)...)
}

// system is a file of the system's own.
func (f *finder) system(path string) string { return filepath.Join(f.r.c.Root, path) }

// read returns a file, or nil where there is none or it may not be read.
func (f *finder) read(path string) []byte {
	if path == "" || !filepath.IsAbs(path) {
		return nil
	}
	if f.r.inWorkspace(path) {
		if _, err := os.Stat(path); err == nil {
			f.problem(fmt.Sprintf("%s lies in a workspace, so it is not read", path), "keep the registry in the user's own configuration")
		}
		return nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("no regular file")
	}
	var data []byte
	if err == nil {
		data, err = readBounded(path)
	}
	if err != nil {
		f.problem(fmt.Sprintf("%s cannot be read: %v", path, reason(err)), "")
		return nil
	}
	return data
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return data, err
}

// reason is an error without the path that it repeats.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// add names the host of a URL. why says where the URL stood.
func (f *finder) add(text, why string) {
	text = strings.TrimSpace(text)
	h, err := hostOf(text)
	if err != nil {
		f.problem(fmt.Sprintf("the address at %s is not used: %v", why, err), "")
		return
	}
	if h.Host == "" || f.seen[h.Rule()] {
		return
	}
	if len(f.hosts) >= maxHosts {
		if !f.seen["*"] {
			f.seen["*"] = true
			f.problem(fmt.Sprintf("more than %d hosts", maxHosts), "name further ones by --allow-host")
		}
		return
	}
	f.seen[h.Rule()] = true
	h.Ecosystem, h.Why = f.name, f.name+": "+why
	f.hosts = append(f.hosts, h)
	if cidr := private(h.Host); cidr != "" {
		f.problem(fmt.Sprintf("%s is a private address, which is not reached without being named", h.Host), "--unsafe-allow-private "+cidr)
	}
}

// hostOf reads the host of a URL. The zero Host is an address that needs no
// network. Errors do not repeat the URL.
func hostOf(text string) (Host, error) {
	for _, prefix := range []string{"sparse+", "registry+", "git+", "mirror+"} {
		text = strings.TrimPrefix(text, prefix)
	}
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		return Host{}, nil // a directory
	}
	u, err := url.Parse(text)
	if err != nil {
		return Host{}, errors.New("it is no URL")
	}
	scheme := strings.ToLower(u.Scheme)
	switch scheme {
	case "file", "copy", "cdrom":
		return Host{}, nil
	case "http", "https", "ssh":
	case "":
		return Host{}, errors.New("it has no scheme")
	default:
		return Host{}, fmt.Errorf("its scheme is %.16q (want https, http or ssh)", scheme)
	}
	h := Host{Host: strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), Scheme: scheme}
	if err := plainHost(h.Host); err != nil {
		return Host{}, err
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return Host{}, errors.New("its port is none")
		}
		if !(scheme == "https" && n == 443 || scheme == "http" && n == 80) {
			h.Port = uint16(n)
		}
	}
	return h, nil
}

// plainHost takes names of letters, digits, '.', '-' and '_', and addresses.
// Whether a name is one that rules may hold is for the egress policy to say.
func plainHost(host string) error {
	if host == "" {
		return errors.New("it has no host")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		if strings.Contains(host, "%") {
			return errors.New("its address has a zone")
		}
		return nil
	}
	if len(host) > 253 {
		return errors.New("its host is too long")
	}
	for _, c := range []byte(host) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
			return errors.New("its host has characters that no host has, or a variable that is not filled in")
		}
	}
	if strings.Contains(host, "..") || strings.HasPrefix(host, ".") {
		return errors.New("its host has an empty label")
	}
	return nil
}

// private is the range to name for a host that is plainly not public; ""
// for all others. Names are resolved, and judged, by the proxy.
func private(host string) string {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return "127.0.0.0/8"
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	if a = a.Unmap(); a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || cgnat.Contains(a) {
		return netip.PrefixFrom(a, a.BitLen()).String()
	}
	return ""
}

var cgnat = netip.MustParsePrefix("100.64.0.0/10")
