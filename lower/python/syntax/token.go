package syntax

// Kind is the kind of a token; each operator and hard keyword has its own.
type Kind uint8

// The kinds of token.
const (
	EOF Kind = iota
	Newline
	Indent
	Dedent
	Ident
	Number
	String  // a string or bytes literal with its prefix and quotes
	FString // an f-string or t-string, whole
	Unknown // a character Python has no use for (tolerant mode only)

	LParen
	RParen
	LBracket
	RBracket
	LBrace
	RBrace
	Colon
	Comma
	Semi
	Dot
	Ellipsis
	AtSign
	Equals
	Arrow
	ColonEq
	Bang
	Backquote

	Plus
	Minus
	Star
	DoubleStar
	Slash
	DoubleSlash
	Percent
	Amp
	Pipe
	Caret
	Tilde
	LShift
	RShift
	Less
	Greater
	LessEq
	GreaterEq
	EqEq
	BangEq

	// AugFirst to AugLast are the augmented assignments; augOps has the
	// operator of each.
	PlusEq
	MinusEq
	StarEq
	DoubleStarEq
	SlashEq
	DoubleSlashEq
	PercentEq
	AmpEq
	PipeEq
	CaretEq
	LShiftEq
	RShiftEq
	AtEq

	KwAnd
	KwAs
	KwAssert
	KwAsync
	KwAwait
	KwBreak
	KwClass
	KwContinue
	KwDef
	KwDel
	KwElif
	KwElse
	KwExcept
	KwFalse
	KwFinally
	KwFor
	KwFrom
	KwGlobal
	KwIf
	KwImport
	KwIn
	KwIs
	KwLambda
	KwNone
	KwNonlocal
	KwNot
	KwOr
	KwPass
	KwRaise
	KwReturn
	KwTrue
	KwTry
	KwWhile
	KwWith
	KwYield
)

// Token is a piece of the text: Text[Start:End]. Newline, Indent and Dedent
// may be empty.
type Token struct {
	Start, End int32
	Kind       Kind
}

// Tokens cuts the text of a File into tokens, the last one being EOF; false
// where CPython could not.
func Tokens(text string) ([]Token, bool) {
	lx := lexer{text: text, end: len(text), toks: make([]Token, 0, len(text)/3+16)}
	lx.run()
	return lx.toks, lx.err == ""
}

// Identifier is the name that a token Ident spells.
func Identifier(s string) string { return identName(s) }

func augOp(k Kind) (Kind, bool) {
	switch k {
	case PlusEq:
		return Plus, true
	case MinusEq:
		return Minus, true
	case StarEq:
		return Star, true
	case DoubleStarEq:
		return DoubleStar, true
	case SlashEq:
		return Slash, true
	case DoubleSlashEq:
		return DoubleSlash, true
	case PercentEq:
		return Percent, true
	case AmpEq:
		return Amp, true
	case PipeEq:
		return Pipe, true
	case CaretEq:
		return Caret, true
	case LShiftEq:
		return LShift, true
	case RShiftEq:
		return RShift, true
	case AtEq:
		return AtSign, true
	}
	return 0, false
}

func keyword(s string) Kind {
	if len(s) < 2 || len(s) > 8 {
		return Ident
	}
	switch s {
	case "and":
		return KwAnd
	case "as":
		return KwAs
	case "assert":
		return KwAssert
	case "async":
		return KwAsync
	case "await":
		return KwAwait
	case "break":
		return KwBreak
	case "class":
		return KwClass
	case "continue":
		return KwContinue
	case "def":
		return KwDef
	case "del":
		return KwDel
	case "elif":
		return KwElif
	case "else":
		return KwElse
	case "except":
		return KwExcept
	case "False":
		return KwFalse
	case "finally":
		return KwFinally
	case "for":
		return KwFor
	case "from":
		return KwFrom
	case "global":
		return KwGlobal
	case "if":
		return KwIf
	case "import":
		return KwImport
	case "in":
		return KwIn
	case "is":
		return KwIs
	case "lambda":
		return KwLambda
	case "None":
		return KwNone
	case "nonlocal":
		return KwNonlocal
	case "not":
		return KwNot
	case "or":
		return KwOr
	case "pass":
		return KwPass
	case "raise":
		return KwRaise
	case "return":
		return KwReturn
	case "True":
		return KwTrue
	case "try":
		return KwTry
	case "while":
		return KwWhile
	case "with":
		return KwWith
	case "yield":
		return KwYield
	}
	return Ident
}

// operator reads the longest operator at the start of s.
func operator(s string) (Kind, int) {
	at := func(i int) byte {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	withEq := func(plain, eq Kind) (Kind, int) {
		if at(1) == '=' {
			return eq, 2
		}
		return plain, 1
	}
	switch s[0] {
	case '(':
		return LParen, 1
	case ')':
		return RParen, 1
	case '[':
		return LBracket, 1
	case ']':
		return RBracket, 1
	case '{':
		return LBrace, 1
	case '}':
		return RBrace, 1
	case ',':
		return Comma, 1
	case ';':
		return Semi, 1
	case '~':
		return Tilde, 1
	case '`':
		return Backquote, 1
	case ':':
		return withEq(Colon, ColonEq)
	case '.':
		if at(1) == '.' && at(2) == '.' {
			return Ellipsis, 3
		}
		return Dot, 1
	case '=':
		return withEq(Equals, EqEq)
	case '!':
		return withEq(Bang, BangEq)
	case '+':
		return withEq(Plus, PlusEq)
	case '-':
		if at(1) == '>' {
			return Arrow, 2
		}
		return withEq(Minus, MinusEq)
	case '%':
		return withEq(Percent, PercentEq)
	case '&':
		return withEq(Amp, AmpEq)
	case '|':
		return withEq(Pipe, PipeEq)
	case '^':
		return withEq(Caret, CaretEq)
	case '@':
		return withEq(AtSign, AtEq)
	case '*':
		return doubled(at, '*', Star, StarEq, DoubleStar, DoubleStarEq)
	case '/':
		return doubled(at, '/', Slash, SlashEq, DoubleSlash, DoubleSlashEq)
	case '<':
		if at(1) == '>' {
			return BangEq, 2
		}
		return doubled(at, '<', Less, LessEq, LShift, LShiftEq)
	case '>':
		return doubled(at, '>', Greater, GreaterEq, RShift, RShiftEq)
	}
	return Unknown, 0
}

func doubled(at func(int) byte, c byte, one, oneEq, two, twoEq Kind) (Kind, int) {
	switch {
	case at(1) == c && at(2) == '=':
		return twoEq, 3
	case at(1) == c:
		return two, 2
	case at(1) == '=':
		return oneEq, 2
	}
	return one, 1
}
