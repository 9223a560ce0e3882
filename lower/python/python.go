// Package python reads Python source and says what running it would do, as
// effects in Cordon's vocabulary.
//
// The source is parsed (package syntax) and then run in the abstract: names
// hold sets of possible values, constants are folded through strings, bytes,
// containers, codecs and calls, loops over constants are run, imports and
// aliases are followed, the functions defined in the source are run where they
// are called, and once more at the end for whoever may call them. What modules
// and functions do is data, in table/*.txt.
//
// It guarantees that for every value that can be told, a use of the process,
// network, file, environment, evaluator, deserialiser and native interfaces in
// the table gives an effect; that handing such a function on as a value counts
// as using it; that code which reaches for names by reflection (frames,
// globals of functions, subclass walks, computed attributes of a module that
// could do harm, values built by a decoder) is opaque; that work, recursion
// and memory are bounded, and that what runs into a limit is opaque.
//
// An effect is doubtful, and so restricts at most, where it stands in a branch
// that by all that is known does not run, or in a function that nothing in the
// text sets off (live.go); an unknown host or import in such a function is no
// effect at all. Annotations that are text are read as the code they are.
//
// It does not stop a path, a URL's path or a variable's name that only the
// running program knows: open(sys.argv[1]) gives no effect, because ordinary
// code is full of it and the sandbox holds it. It does not see what imported
// third-party or local modules do beyond the table, it knows no types of
// parameters that nobody passes, and it does not follow values through
// threads, pickles or files.
package python

import (
	"context"
	"fmt"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// Env is what the code will find around itself.
type Env struct {
	// Dir is the absolute working directory; Workspace the directory that is
	// worked in; Home and User what "~", $HOME and $USER mean.
	Dir, Workspace, Home, User string
	// Argv is sys.argv where it is known.
	Argv []string
	// Code reads src in another language ("shell", "sqlite") in directory
	// dir. Where it is nil, a command is only an Execute and an Opaque.
	Code func(ctx context.Context, lang, src, dir string) []cordon.Effect
}

const (
	// maxEffects bounds the answer.
	maxEffects = 500
	// maxCodeDepth is how deep code in strings is read (exec in exec).
	maxCodeDepth = 4
)

// Lower reads src and returns its effects, in the order in which they were
// found; nil for code that does nothing outside itself. It never fails: what
// cannot be read is Opaque with a Reason. The context bounds the time.
func Lower(ctx context.Context, src string, env Env) []cordon.Effect {
	f := syntax.Parse(src)
	a := newAnalysis(ctx, f, env)
	for _, p := range f.Problems {
		a.opaque(p, cordon.OriginLiteral, false)
	}
	if f.Limit != "" {
		a.opaque("limit: "+f.Limit, cordon.OriginUnknown, false)
	}
	a.run(f.Body)
	return a.effects
}

// run reads the body. A fault of the reader itself must not let the code
// pass, nor end the process that asked.
func (a *analysis) run(body []syntax.Stmt) {
	defer func() {
		if r := recover(); r != nil {
			a.opaque(fmt.Sprintf("the reader failed: %v", r), cordon.OriginUnknown, false)
		}
	}()
	a.module(body)
}

// opaque reports that something cannot be told.
func (a *analysis) opaque(reason string, origin cordon.Origin, doubtful bool) {
	a.emit(cordon.Effect{Kind: cordon.Opaque, Reason: reason, Origin: origin, Doubtful: doubtful})
}

// limit reports, once, that the analysis stopped short.
func (a *analysis) limit(what string) {
	if !a.stopped {
		a.stopped = true
		a.opaque("limit: "+what, cordon.OriginUnknown, false)
	}
}

// effectKey is what makes two effects the same.
type effectKey struct {
	kind                                cordon.Kind
	origin                              cordon.Origin
	recursive, pattern, nofollow, sends bool
	target, op, dir, text, reason, data string
}

// emit adds an effect unless the same one is there.
func (a *analysis) emit(e cordon.Effect) {
	key := effectKey{
		kind: e.Kind, target: e.Target, op: e.Op, dir: e.Dir, text: e.Text, reason: e.Reason, data: strings.Join(e.Data, "\x00"),
		recursive: e.Recursive, pattern: e.Pattern, nofollow: e.NoFollow, sends: e.Sends, origin: e.Origin,
	}
	e.Doubtful = e.Doubtful || a.idle > 0
	if i, ok := a.seen[key]; ok {
		// Of two same effects the certain one counts.
		if !e.Doubtful {
			a.effects[i].Doubtful = false
		}
		a.blame(i, false)
		return
	}
	if len(a.effects) >= maxEffects {
		if len(a.effects) == maxEffects {
			a.effects = append(a.effects, cordon.Effect{Kind: cordon.Opaque, Reason: "limit: more than 500 effects"})
		}
		return
	}
	if e.Via == nil {
		e.Via = a.chain()
	}
	a.seen[key] = len(a.effects)
	a.blame(len(a.effects), true)
	a.effects = append(a.effects, e)
}

// chain is the call being read, inside the code strings that led to it.
func (a *analysis) chain() []string {
	via := append([]string(nil), a.via...)
	if a.sym != "" {
		via = append(via, "python: "+a.sym)
	}
	return via
}
