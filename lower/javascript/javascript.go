// Package javascript reads JavaScript and TypeScript source and says what
// running it would do, as effects in Cordon's vocabulary.
//
// The source is parsed (by tdewolff's parser, behind esbuild where the text
// needs it: TypeScript, JSX, decorators, HTML-like comments, escapes in names)
// and then run in the abstract: names hold sets of possible values, constants
// are folded through strings, arrays, objects and calls, loops over constants
// are run, imports, aliases, destructuring and reflection are followed, the
// functions of the source are run where they are called and the others once at
// the end. What modules and functions do is data, in table/*.txt.
//
// It guarantees that for every value that can be told, a use of the process,
// network, file, environment, evaluator, loader and native interfaces in the
// table gives an effect; that handing such a function on as a value counts as
// using it; that code which reaches for names which cannot be told (computed
// modules, computed members of what could do harm, evaluated text that is not
// constant) is opaque; that work, recursion and memory are bounded, and that
// what runs into a limit is opaque.
//
// It does not stop a path or the rest of a URL that only the running program
// knows: readFileSync(process.argv[2]) gives no effect, because ordinary code
// is full of it and the sandbox holds it. It does not see what imported
// third-party or local modules do beyond the table, knows no types of
// parameters that nobody passes, and follows no value through files, workers'
// messages or WebAssembly.
package javascript

import (
	"context"
	"fmt"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// Env is what the code will find around itself.
type Env struct {
	// Dir is the absolute working directory; Workspace the directory that is
	// worked in; Home and User what os.homedir() and $USER mean.
	Dir, Workspace, Home, User string
	// TypeScript: the text is read as TypeScript first, as JavaScript where
	// that fails; otherwise the other way round.
	TypeScript bool
	// Code reads src in another language ("shell", "sqlite") in directory
	// dir. Where it is nil, a command is only an Execute and an Opaque.
	Code func(ctx context.Context, lang, src, dir string) []cordon.Effect
}

const (
	// maxEffects bounds the answer.
	maxEffects = 500
	// maxCodeDepth is how deep code in strings is read (eval in eval).
	maxCodeDepth = 4
	// maxInline is how many steps are spent on running functions and loops
	// again for the values of one more call or turn.
	maxInline = 40_000
	// maxSteps bounds all steps; an honest text of the greatest size that is
	// read needs a tenth of it.
	maxSteps = 500_000
)

// Lower reads src and returns its effects, in the order in which they were
// found; nil for code that does nothing outside itself. It never fails: what
// cannot be read is Opaque with a Reason. The context bounds the time.
func Lower(ctx context.Context, src string, env Env) (effects []cordon.Effect) {
	a := newAnalysis(ctx, env)
	defer func() {
		// The parsers are other people's code and the text is an attacker's.
		if r := recover(); r != nil {
			effects = append(a.effects, cordon.Effect{Kind: cordon.Opaque, Reason: fmt.Sprintf("limit: JavaScript reader failed: %.80v", r)})
		}
	}()
	a.program(src)
	a.finish()
	return a.effects
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

// emit adds an effect unless the same one is there.
func (a *analysis) emit(e cordon.Effect) {
	if a.quiet > 0 {
		return
	}
	if a.doubt > 0 {
		e.Doubtful = true
	}
	if e.Via == nil {
		e.Via = a.chain()
	}
	key := fmt.Sprint(e.Kind, e.Target, "\x00", e.Op, "\x00", e.Dir, e.Recursive, e.Pattern, e.NoFollow, e.Sends, e.Data, e.Text, e.Origin, e.Reason)
	if i, ok := a.seen[key]; ok {
		// Of two same effects the certain one counts.
		if !e.Doubtful {
			a.effects[i].Doubtful = false
		}
		return
	}
	if len(a.effects) >= maxEffects {
		if len(a.effects) == maxEffects {
			a.effects = append(a.effects, cordon.Effect{Kind: cordon.Opaque, Reason: "limit: more than 500 effects"})
		}
		return
	}
	a.seen[key] = len(a.effects)
	a.effects = append(a.effects, e)
}

// chain is the call being read, inside the code strings that led to it.
func (a *analysis) chain() []string {
	via := append([]string(nil), a.via...)
	if a.sym != "" {
		via = append(via, "javascript: "+strings.TrimPrefix(a.sym, "?."))
	}
	return via
}
