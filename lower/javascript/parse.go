package javascript

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"

	"github.com/cordon-sandbox/cordon"
)

const (
	// maxSource is how much text is read, in bytes.
	maxBytes = 256 << 10
	// maxNesting is how deep brackets, and chains that recurse, may go.
	maxNesting = 500
	// maxParse is how long one parse of a text may take.
	maxParse = 2 * time.Second
)

// program parses and runs one text, and those of its other readings that a
// JavaScript runtime could take.
func (a *analysis) program(src string) {
	if why := prescan(src); why != "" {
		a.limit("JavaScript " + why)
		return
	}
	src = strings.TrimPrefix(src, "\ufeff")
	a.pragma(src)
	tree, err := a.parse(src)
	if err != nil {
		if others := a.otherReadings(src); len(others) > 0 {
			for _, other := range others {
				a.run(other)
			}
			return
		}
		a.opaque("does not parse as JavaScript: "+oneLine(err.Error()), cordon.OriginLiteral, false)
		a.scan(src)
		return
	}
	a.run(tree)
	for _, other := range a.otherReadings(src) {
		a.run(other)
	}
}

// pragma notes a comment that makes an evaluator or loader the factory of JSX
// elements: their names and children then are its arguments.
func (a *analysis) pragma(src string) {
	if !strings.Contains(src, "@jsx") {
		return
	}
	for _, m := range jsxFactory().FindAllStringSubmatch(src, 8) {
		for _, name := range strings.FieldsFunc(m[1], func(r rune) bool { return r == '.' || r == '(' || r == ')' || r == ',' || r == '[' || r == ']' }) {
			if tables().named(name) || name == "require" || name == "import" || name == "setTimeout" {
				a.opaque("JSX elements are calls of "+name, cordon.OriginLiteral, true)
			}
		}
	}
}

var jsxFactory = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`@jsx(?:Frag)?[ \t]+(\S+)`)
})

// otherReadings are the trees of the same text under the rules that parse
// did not choose: "<!--" is a comment in a script and an operator in a module,
// f<T>(x) is a call in TypeScript and a comparison in JavaScript.
func (a *analysis) otherReadings(src string) (trees []*js.AST) {
	if strings.Contains(src, "<!--") || strings.Contains(src, "-->") {
		module := strings.NewReplacer("<!--", "< ! --", "-->", "-- >").Replace(src)
		if t, err := a.canonical(module, a.loaders()); err == nil {
			trees = append(trees, t)
		}
	}
	if !a.env.TypeScript && mayBeGeneric(src) {
		if t, err := a.canonical(src, []api.Loader{api.LoaderTS}); err == nil {
			trees = append(trees, t)
		}
	}
	return trees
}

// genericCall finds what may be a call with type arguments; most of what it
// finds is a comparison, and costs a second reading.
var genericCall = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[^=\s]\s*>\s*(?:\?\.)?\s*[(` + "`" + `]`)
})

func mayBeGeneric(src string) bool {
	return strings.IndexByte(src, '<') >= 0 && genericCall().MatchString(src)
}

// parse gives the tree of src. Text that tdewolff's parser reads as every
// runtime does goes there directly; the rest by way of esbuild.
func (a *analysis) parse(src string) (*js.AST, error) {
	if plain(src) {
		if t, err := parseTree(src); err == nil {
			return t, nil
		}
	}
	t, err := a.canonical(src, a.loaders())
	if err == nil {
		return t, nil
	}
	// A body with "return" in it, as tools that wrap what they run take it.
	if strings.Contains(err.Error(), "eturn") {
		if t, e := a.canonical("(async function(){\n"+withoutHashbang(src)+"\n})()", a.loaders()); e == nil {
			return t, nil
		}
	}
	return nil, err
}

// slowMarks are what the direct parser reads in another way than runtimes do,
// or not at all.
var slowMarks = []string{"<!--", "-->", "\u2028", "\u2029", "\\u", "using ", "accessor "}

var typeArguments = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[\w$)\]]<[\w$\[({]|\b(?:enum|namespace|declare|abstract|implements|satisfies|interface)\b`)
})

func plain(src string) bool {
	for _, m := range slowMarks {
		if strings.Contains(src, m) {
			return false
		}
	}
	return strings.IndexByte(src, '<') < 0 || !typeArguments().MatchString(src) && !genericCall().MatchString(src)
}

func (a *analysis) loaders() []api.Loader {
	if a.env.TypeScript {
		return []api.Loader{api.LoaderTS, api.LoaderTSX, api.LoaderJSX}
	}
	return []api.Loader{api.LoaderJSX, api.LoaderTS, api.LoaderTSX}
}

// canonical has esbuild rewrite src to plain JavaScript and parses that.
func (a *analysis) canonical(src string, loaders []api.Loader) (*js.AST, error) {
	var first error
	for _, l := range loaders {
		code, err := a.rewrite(src, l, true)
		if errors.Is(err, errSlow) {
			return nil, err
		}
		if err == nil {
			var t *js.AST
			if t, err = parseBody(code); err == nil {
				return t, nil
			}
			// The parser trips over some defaults of arrows' parameters.
			if code, e := a.rewrite(src, l, false); e == nil {
				if t, e := parseBody(code); e == nil {
					return t, nil
				}
			}
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

var errSlow = errors.New("limit: time for parsing JavaScript")

// transform is api.Transform, left to itself when it takes too long: it cannot
// be interrupted, and its work on some texts grows with the square of their
// length.
func (a *analysis) transform(src string, o api.TransformOptions) (api.TransformResult, bool) {
	if len(src) < 8<<10 {
		return api.Transform(src, o), true
	}
	done := make(chan api.TransformResult, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- api.TransformResult{Errors: []api.Message{{Text: fmt.Sprintf("parser failed: %v", r)}}}
			}
		}()
		done <- api.Transform(src, o)
	}()
	limit := time.NewTimer(maxParse)
	defer limit.Stop()
	select {
	case r := <-done:
		return r, true
	case <-a.ctx.Done():
	case <-limit.C:
	}
	return api.TransformResult{}, false
}

// parseTree is js.Parse; a panic in it, which some broken texts cause, is an
// error like any other.
func parseTree(src string) (t *js.AST, err error) {
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("parser failed: %v", r)
		}
	}()
	return js.Parse(parse.NewInputString(src), js.Options{})
}

// rewrite has esbuild print src as plain JavaScript.
func (a *analysis) rewrite(src string, l api.Loader, arrows bool) (string, error) {
	r, ok := a.transform(src, api.TransformOptions{
		Loader:      l,
		Target:      api.ES2022,
		TreeShaking: api.TreeShakingFalse,
		LogLevel:    api.LogLevelSilent,
		Charset:     api.CharsetUTF8,
		Supported:   map[string]bool{"using": false, "decorators": false, "import-attributes": false, "arrow": arrows},
		TsconfigRaw: `{"compilerOptions":{"experimentalDecorators":true,"verbatimModuleSyntax":true}}`,
	})
	switch {
	case !ok:
		return "", errSlow
	case len(r.Errors) > 0:
		return "", errors.New(r.Errors[0].Text)
	}
	return string(r.Code), nil
}

// parseBody is parseTree for what may have a return at its top.
func parseBody(code string) (*js.AST, error) {
	t, err := parseTree(code)
	if err != nil && strings.Contains(code, "return") {
		if w, e := parseTree("(async function(){\n" + withoutHashbang(code) + "\n})()"); e == nil {
			return w, nil
		}
	}
	return t, err
}

func withoutHashbang(s string) string {
	if strings.HasPrefix(s, "#!") {
		return "//" + s
	}
	return s
}

func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 120 {
		s = s[:120]
	}
	return s
}

// scan looks over text that does not parse for names that do harm wherever
// they stand.
func (a *analysis) scan(src string) {
	// The lexer may fail where the parser did.
	defer func() { _ = recover() }()
	l := js.NewLexer(parse.NewInputString(src))
	found := map[string]bool{}
	for {
		tt, data := l.Next()
		if tt == js.ErrorToken {
			if errors.Is(l.Err(), io.EOF) || l.Err() == nil || len(data) == 0 {
				break
			}
			continue
		}
		word := ""
		switch {
		case tt == js.StringToken:
			word, _ = unquote(data)
		case js.IsIdentifierName(tt):
			word = identifier(data)
		default:
			continue
		}
		word = strings.TrimPrefix(word, "node:")
		if len(word) > 64 || found[word] || !tables().named(word) {
			continue
		}
		found[word] = true
		a.opaque(fmt.Sprintf("JavaScript that does not parse names %s", word), cordon.OriginLiteral, true)
	}
}
