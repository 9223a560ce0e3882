package llm

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed allow.txt
var allowText string

// Feature is something that a provider does on its own side when a body asks
// for it. None is on unless the operator names it.
type Feature string

const (
	// WebSearch lets the provider search the web with the model's words.
	WebSearch Feature = "web_search"
	// WebFetch lets the provider fetch URLs that the model names.
	WebFetch Feature = "web_fetch"
	// RemoteURLs lets the provider fetch images and files that the body names
	// by URL.
	RemoteURLs Feature = "remote_urls"
	// CodeExecution lets the model run code on the provider's machines.
	CodeExecution Feature = "code_execution"
	// MCP lets the provider connect to MCP servers that the body names.
	MCP Feature = "mcp"
	// Files lets a body use files and vector stores of the account.
	Files Feature = "files"
	// Stored lets a body use stored prompts, conversations and caches.
	Stored Feature = "stored"
	// Background lets a response go on without a connection; what it costs
	// after that is an estimate.
	Background Feature = "background"
	// ImageGeneration lets the model make images and sound, whose price is
	// not known here.
	ImageGeneration Feature = "image_generation"
	// Unknown lets fields, tools and parts through that the proxy does not
	// know, whatever they make the provider do.
	Unknown Feature = "unknown_fields"
)

var features = [...]Feature{WebSearch, WebFetch, RemoteURLs, CodeExecution, MCP, Files, Stored, Background, ImageGeneration, Unknown}

// ParseFeature reads the name of a feature.
func ParseFeature(s string) (Feature, error) {
	for _, f := range features {
		if string(f) == s {
			return f, nil
		}
	}
	return "", fmt.Errorf("llm: unknown feature %q (want one of %q)", s, features)
}

// Places of allow.txt.
const (
	placeRoute  = "route"
	placeQuery  = "query"
	placeHeader = "header"
	placeAnswer = "answer"
	placeBeta   = "beta"
	placeField  = "field"
	placeTool   = "tool"
	placePart   = "part"
	placeItem   = "item"
	placeSource = "source"
)

// word is one name of the list. needs is the feature, empty for none.
type word struct {
	name   string
	prefix bool
	needs  Feature
}

type route struct {
	method, path string
	dialect      string
	free         bool
}

// allowList is allow.txt, read.
type allowList struct {
	words  map[string][]word // by place and dialect
	routes map[Provider][]route
}

var allowed = sync.OnceValue(func() *allowList {
	a, err := parseAllow(allowText)
	if err != nil {
		panic(err) // the file is part of the program, and a test reads it
	}
	return a
})

func parseAllow(text string) (*allowList, error) {
	a := &allowList{words: map[string][]word{}, routes: map[Provider][]route{}}
	for line := range strings.Lines(text) {
		data, reason, _ := strings.Cut(line, "#")
		f := strings.Fields(data)
		if len(f) == 0 {
			continue
		}
		if len(f) != 4 || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("llm: line %q (want place, dialect, name, need and a reason)", line)
		}
		if err := a.add(f[0], f[1], f[2], f[3]); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *allowList) add(place, dialect, name, needs string) error {
	if place == placeRoute {
		method, path, ok := strings.Cut(name, ":")
		if !ok {
			return fmt.Errorf("llm: route %q (want METHOD:/path)", name)
		}
		d, free := strings.CutSuffix(needs, ".free")
		a.routes[Provider(dialect)] = append(a.routes[Provider(dialect)], route{method, path, d, free})
		return nil
	}
	w := word{name: name}
	w.name, w.prefix = strings.CutSuffix(name, "*")
	if needs != "-" {
		f, err := ParseFeature(needs)
		if err != nil {
			return err
		}
		w.needs = f
	}
	key := place + " " + dialect
	a.words[key] = append(a.words[key], w)
	return nil
}

// find returns the entry of a name: an exact one, else the longest prefix.
func (a *allowList) find(place, dialect, name string) (found word, ok bool) {
	for _, w := range a.words[place+" "+dialect] {
		switch {
		case !w.prefix && w.name == name:
			return w, true
		case w.prefix && strings.HasPrefix(name, w.name) && (!ok || len(w.name) > len(found.name)):
			found, ok = w, true
		}
	}
	return found, ok
}

// route finds the route of a method and a path, and the name in the path.
func (a *allowList) route(p Provider, method, path string) (r route, id string, known, pathKnown bool) {
	for _, r := range a.routes[p] {
		id, ok := matchPath(r.path, path)
		if !ok {
			continue
		}
		if r.method == method {
			return r, id, true, true
		}
		pathKnown = true
	}
	return route{}, "", false, pathKnown
}

// matchPath matches a pattern with at most one {id}, which takes a name
// without '/' and, where a ":verb" follows it, without ':'.
func matchPath(pattern, path string) (id string, ok bool) {
	before, after, variable := strings.Cut(pattern, "{id}")
	if !variable {
		return "", pattern == path
	}
	rest, ok := strings.CutPrefix(path, before)
	if !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(rest, after)
	if !ok || id == "" || len(id) > maxModel || strings.Contains(id, "/") || after != "" && strings.Contains(id, ":") {
		return "", false
	}
	return id, true
}
