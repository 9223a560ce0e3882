// Package lower turns a tool call into effects: what the call would read,
// list, write, delete, run, connect to and send. The catalogue in toolspec
// says what each argument of a known tool means; for the rest, names, JSON
// schemas and the shapes of values tell, at any depth, in arrays, in keys
// and in strings that hold JSON. Code goes to the readers in Languages, and a
// call that a dispatcher hands on is lowered as the call it is.
//
// It guarantees that every string of a call is looked at; that a string in
// a role of a known tool has that role whatever container it comes in; that
// what two readers of an address would understand differently gives an
// effect for each; and that what cannot be told becomes an Opaque effect
// rather than none. Work is bounded: past a limit the call is opaque.
//
// What this package does not stop: it judges nothing, resolves no path and no
// name, and reads no file. A tool that does not do what its name and
// arguments say is beyond it.
package lower

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// Env is where a call would happen.
type Env struct {
	// Workspace and Home are absolute paths; Home is what "~" means.
	Workspace, Home string
	// User is the account's name; may be empty.
	User string
	// Dir is the absolute working directory; empty is the workspace.
	Dir string
	// Schema is the JSON schema of the tool's input; may be nil.
	Schema []byte
}

// Reading is what a call was read as.
type Reading struct {
	Tool toolspec.Facts
	// Effects, in the order of the arguments; those of code come last.
	Effects []cordon.Effect
}

// Config is what a Lowerer works with.
type Config struct {
	// Catalogue of tools; nil is toolspec.Builtin().
	Catalogue *toolspec.Catalogue
	// Languages are the readers of code; a nil reader makes such code opaque.
	Languages Languages
}

// Lowerer lowers calls. It is immutable but for a cache of parsed schemas,
// and safe for concurrent use.
type Lowerer struct {
	cat   *toolspec.Catalogue
	langs Languages

	seed    maphash.Seed
	mu      sync.RWMutex // guards schemas
	schemas map[uint64]schemaEntry
}

type schemaEntry struct {
	raw    string
	parsed *toolspec.Schema
}

const maxSchemas = 1024

// New returns a Lowerer.
func New(cfg Config) (*Lowerer, error) {
	if cfg.Catalogue == nil {
		cfg.Catalogue = toolspec.Builtin()
	}
	return &Lowerer{cat: cfg.Catalogue, langs: cfg.Languages, seed: maphash.MakeSeed(),
		schemas: make(map[uint64]schemaEntry)}, nil
}

// Lower reads one call. args is the parsed argument object; nil or null is an
// empty one. It never fails: what cannot be read is an Opaque effect whose
// Reason starts with "malformed: " where the input is at fault.
func (l *Lowerer) Lower(ctx context.Context, server, tool string, args *strictjson.Value, env Env) Reading {
	facts, spec := l.cat.Lookup(server, tool)
	if env.Dir == "" {
		env.Dir = env.Workspace
	}
	w := walker{l: l, ctx: ctx, env: &env, spec: spec, tool: tool, facts: facts}
	w.ptr = w.ptrBuf[:0]
	if len(env.Schema) > 0 {
		w.schema = l.schema(env.Schema)
	}
	w.run(args)
	return Reading{Tool: w.facts, Effects: w.effects}
}

// Lookup returns what is known of a tool, as Lower would report it.
func (l *Lowerer) Lookup(server, tool string) (toolspec.Facts, *toolspec.Spec) {
	return l.cat.Lookup(server, tool)
}

func (l *Lowerer) schema(raw []byte) *toolspec.Schema {
	h := maphash.Bytes(l.seed, raw)
	l.mu.RLock()
	e, ok := l.schemas[h]
	l.mu.RUnlock()
	if ok && e.raw == string(raw) {
		return e.parsed
	}
	s := toolspec.ParseSchema(raw)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.schemas) >= maxSchemas {
		clear(l.schemas)
	}
	l.schemas[h] = schemaEntry{string(raw), s}
	return s
}
