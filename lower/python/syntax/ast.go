// Package syntax reads Python source: a tokenizer and a parser for Python 3.8
// to 3.14, written to agree with CPython, and a tolerant mode for what does
// not parse (Python 2, notebook magics, broken text).
//
// It guarantees that what CPython compiles gets the tree CPython would build
// (names in NFKC, strings decoded, adjacent literals joined, f-string and
// t-string fields parsed), that no input makes it panic or hang, and that work
// and recursion are bounded by Limits.
//
// It does not stop anything, and it is not a syntax checker: it accepts some
// programs that CPython refuses (an assignment to a call, `return` outside a
// function), because text that would not run is harmless to read.
package syntax

// Node is any part of a tree. Pos is a byte offset into File.Text.
type Node interface{ Pos() int }

// Expr is an expression or an assignment target.
type Expr interface{ Node }

// Stmt is a statement.
type Stmt interface{ Node }

// At is the place of a node, embedded in all of them.
type At int32

// Pos is the byte offset in File.Text.
func (a At) Pos() int { return int(a) }

// File is a module that was read.
type File struct {
	// Text is the source with line ends as "\n" and without a byte order mark.
	Text string
	Body []Stmt
	// Problems say why CPython would refuse or read differently the source:
	// "does not parse as Python: …", a coding cookie, a NUL. Empty for
	// ordinary source.
	Problems []string
	// Limit is set when a limit was hit; the tree then is not complete.
	Limit string
}

// Expressions.
type (
	// Name is an identifier in NFKC.
	Name struct {
		At
		ID string
	}
	// Str is a string or bytes literal, adjacent ones joined. S holds the
	// decoded text as UTF-8 (lone surrogates as their three bytes) or the bytes.
	Str struct {
		At
		S     string
		Bytes bool
	}
	// Num is a number as it was written.
	Num struct {
		At
		Text string
	}
	// Const is None, True, False or an ellipsis ("...").
	Const struct {
		At
		Name string
	}
	// Joined is an f-string or, with Template, a t-string. Values are Str and
	// Field.
	Joined struct {
		At
		Values   []Expr
		Template bool
	}
	// Field is a replacement field; Spec is a *Joined or nil, Conv 0, 'r', 's'
	// or 'a'.
	Field struct {
		At
		Value Expr
		Spec  *Joined
		Text  string
		Conv  byte
	}
	// Seq is a list, tuple or set display: Kind '[', '(' or '{'.
	Seq struct {
		At
		Kind byte
		Elts []Expr
	}
	// Dict is a dict display; a nil key is a `**` item.
	Dict struct {
		At
		Keys, Values []Expr
	}
	// Unary is a prefix operator: Minus, Plus, Tilde or KwNot.
	Unary struct {
		At
		Op Kind
		X  Expr
	}
	// Binary is an arithmetic or bitwise operator.
	Binary struct {
		At
		Op   Kind
		X, Y Expr
	}
	// Bool is a chain of `and` or `or`.
	Bool struct {
		At
		Op     Kind
		Values []Expr
	}
	// Compare is a chain of comparisons.
	Compare struct {
		At
		Left   Expr
		Ops    []CompareOp
		Rights []Expr
	}
	// Call is a call.
	Call struct {
		At
		Func     Expr
		Args     []Expr
		Keywords []Keyword
	}
	// IfExp is `X if Test else Else`.
	IfExp struct {
		At
		Test, X, Else Expr
	}
	// Attribute is X.Name.
	Attribute struct {
		At
		X    Expr
		Name string
	}
	// Subscript is X[Index].
	Subscript struct {
		At
		X, Index Expr
	}
	// Slice is Lo:Hi:Step inside a subscript; each may be nil.
	Slice struct {
		At
		Lo, Hi, Step Expr
	}
	// Starred is *X.
	Starred struct {
		At
		X Expr
	}
	// Lambda is a function expression.
	Lambda struct {
		At
		Params []Param
		Body   Expr
	}
	// Comp is a comprehension: Kind '[', '{', '(' (generator) or ':' (dict,
	// with Elt the key and Value the value).
	Comp struct {
		At
		Kind       byte
		Elt, Value Expr
		Gens       []Gen
	}
	// Await, Yield and YieldFrom; the X of a Yield may be nil.
	Await struct {
		At
		X Expr
	}
	Yield struct {
		At
		X Expr
	}
	YieldFrom struct {
		At
		X Expr
	}
	// Walrus is Target := Value.
	Walrus struct {
		At
		Target *Name
		Value  Expr
	}
)

// CompareOp is a comparison operator.
type CompareOp uint8

// The comparison operators, in the order of their names in CPython's ast.
const (
	Eq CompareOp = iota
	NotEq
	Lt
	LtE
	Gt
	GtE
	Is
	IsNot
	In
	NotIn
)

// Keyword is a keyword argument; an empty name is `**Value`.
type Keyword struct {
	Name  string
	Value Expr
}

// Gen is one `for Target in Iter if …` of a comprehension.
type Gen struct {
	Target, Iter Expr
	Ifs          []Expr
	Async        bool
}

// ParamKind tells the sorts of parameter apart.
type ParamKind uint8

// The sorts of parameter.
const (
	PosOnly ParamKind = iota
	Plain
	VarArg
	KwOnly
	KwArg
)

// Param is a parameter of a function; Annotation and Default may be nil.
type Param struct {
	At
	Name                string
	Kind                ParamKind
	Annotation, Default Expr
}

// TypeParam is a type parameter: Star 0, 1 (TypeVarTuple) or 2 (ParamSpec).
type TypeParam struct {
	At
	Name           string
	Star           int
	Bound, Default Expr
}

// Statements.
type (
	// FunctionDef is `def` or, with Async, `async def`. End is where the
	// text of its body ends.
	FunctionDef struct {
		At
		End        int32
		Name       string
		TypeParams []TypeParam
		Params     []Param
		Returns    Expr
		Body       []Stmt
		Decorators []Expr
		Async      bool
	}
	// ClassDef is a class. End is where the text of its body ends.
	ClassDef struct {
		At
		End        int32
		Name       string
		TypeParams []TypeParam
		Bases      []Expr
		Keywords   []Keyword
		Body       []Stmt
		Decorators []Expr
	}
	// Return has a nil X for a bare return.
	Return struct {
		At
		X Expr
	}
	// Delete is `del`.
	Delete struct {
		At
		Targets []Expr
	}
	// Assign is `a = b = value`.
	Assign struct {
		At
		Targets []Expr
		Value   Expr
	}
	// AugAssign is `a += value`, Op being the operator without the equals.
	AugAssign struct {
		At
		Target Expr
		Op     Kind
		Value  Expr
	}
	// AnnAssign is `a: annotation = value`; Value may be nil. Simple: the
	// target is a name without parentheses.
	AnnAssign struct {
		At
		Target, Annotation, Value Expr
		Simple                    bool
	}
	// TypeAlias is `type Name[…] = Value`.
	TypeAlias struct {
		At
		Name       *Name
		TypeParams []TypeParam
		Value      Expr
	}
	// For is a for loop.
	For struct {
		At
		Target, Iter Expr
		Body, Else   []Stmt
		Async        bool
	}
	// While is a while loop.
	While struct {
		At
		Test       Expr
		Body, Else []Stmt
	}
	// If holds the `if` and all of its `elif`s; Else may be empty.
	If struct {
		At
		Clauses []IfClause
		Else    []Stmt
	}
	// With is `with` or `async with`.
	With struct {
		At
		Items []WithItem
		Body  []Stmt
		Async bool
	}
	// Match is a match statement.
	Match struct {
		At
		Subject Expr
		Cases   []Case
	}
	// Raise has nil fields where nothing stands.
	Raise struct {
		At
		X, Cause Expr
	}
	// Try is a try statement; Star for `except*`.
	Try struct {
		At
		Body          []Stmt
		Handlers      []Handler
		Else, Finally []Stmt
		Star          bool
	}
	// Assert is an assertion; Msg may be nil.
	Assert struct {
		At
		Test, Msg Expr
	}
	// Import is `import a.b as c, d`.
	Import struct {
		At
		Names []Alias
	}
	// ImportFrom is `from ..Module import names`; a star is a name "*".
	ImportFrom struct {
		At
		Module string
		Level  int
		Names  []Alias
	}
	// Scope is `global` or, with Nonlocal, `nonlocal`.
	Scope struct {
		At
		Names    []string
		Nonlocal bool
	}
	// ExprStmt is an expression for its effect.
	ExprStmt struct {
		At
		X Expr
	}
	// Simple is pass, break or continue.
	Simple struct {
		At
		Op Kind
	}
	// Bad is a statement of the tolerant mode that could not be read. Exprs
	// are the expressions found in it; Shell is the command of a notebook
	// line that starts with "!"; Exec marks Python 2's exec statement, whose
	// code is Exprs[0].
	Bad struct {
		At
		Exprs []Expr
		Shell string
		Exec  bool
	}
)

// IfClause is one condition and its block.
type IfClause struct {
	At
	Test Expr
	Body []Stmt
}

// WithItem is one context manager; Target may be nil.
type WithItem struct {
	X, Target Expr
}

// Handler is an except clause; Type may be nil and Name empty.
type Handler struct {
	At
	Type Expr
	Name string
	Body []Stmt
}

// Alias is an imported name; As may be empty.
type Alias struct {
	At
	Name, As string
}

// Case is one case of a match; Guard may be nil.
type Case struct {
	At
	Pattern *Pattern
	Guard   Expr
	Body    []Stmt
}

// PatternKind tells the patterns apart.
type PatternKind uint8

// The patterns, as CPython's ast names them.
const (
	MatchValue PatternKind = iota
	MatchSingleton
	MatchSequence
	MatchMapping
	MatchClass
	MatchStar
	MatchAs
	MatchOr
)

// Pattern is a pattern of a match statement.
type Pattern struct {
	At
	Kind PatternKind
	// X is the value of MatchValue and MatchSingleton, the class of MatchClass.
	X Expr
	// Name is what MatchAs and MatchStar bind (empty for "_"), and the rest
	// of a MatchMapping.
	Name string
	// Subs are the parts; for MatchMapping those of Keys, for MatchClass
	// first the positional ones, then those of Names. MatchAs has none or one.
	Subs  []*Pattern
	Keys  []Expr
	Names []string
}
