package audit

// triggerKind says what a literal may begin.
type triggerKind uint8

const (
	kindWord  triggerKind = iota // part of a name that may be a secret's
	kindToken                    // the fixed beginning of a token
	kindJWT
	kindPEM
	kindURL
	kindScheme
	kindFlag
)

// trigger is a literal without which nothing is looked at. Words, schemes
// and flags are found in any case, tokens in their own.
type trigger struct {
	lit    string
	kind   triggerKind
	min    int  // bytes after the literal of a token
	digits bool // of which one must be a digit
}

// triggers: the shapes of tokens are those that their issuers document.
var triggers = []trigger{
	{lit: "pass"}, {lit: "pwd"}, {lit: "secret"}, {lit: "token"}, {lit: "key"}, {lit: "auth"}, {lit: "cookie"},
	{lit: "cred"}, {lit: "sig"}, {lit: "sas"}, {lit: "hmac"}, {lit: "jwt"}, {lit: "otp"}, {lit: "bearer"},
	{lit: "session"}, {lit: "sessid"}, {lit: "sid"}, {lit: "mnemonic"}, {lit: "seed"},
	{lit: "bearer ", kind: kindScheme}, {lit: "basic ", kind: kindScheme},
	// A path that was cleaned has lost one of a URL's slashes.
	{lit: "://", kind: kindURL}, {lit: ":/", kind: kindURL}, {lit: "-----BEGIN", kind: kindPEM}, {lit: "eyJ", kind: kindJWT},
	{lit: " -p", kind: kindFlag}, {lit: " -u", kind: kindFlag}, {lit: " -a", kind: kindFlag},
	{lit: "sk-", kind: kindToken, min: 16, digits: true},
	{lit: "sk_live_", kind: kindToken, min: 8}, {lit: "sk_test_", kind: kindToken, min: 8}, {lit: "rk_live_", kind: kindToken, min: 8},
	{lit: "ghp_", kind: kindToken, min: 16}, {lit: "gho_", kind: kindToken, min: 16}, {lit: "ghu_", kind: kindToken, min: 16},
	{lit: "ghs_", kind: kindToken, min: 16}, {lit: "ghr_", kind: kindToken, min: 16},
	{lit: "github_pat_", kind: kindToken, min: 16}, {lit: "glpat-", kind: kindToken, min: 12},
	{lit: "AKIA", kind: kindToken, min: 12, digits: true}, {lit: "ASIA", kind: kindToken, min: 12, digits: true},
	{lit: "xoxa-", kind: kindToken, min: 8}, {lit: "xoxb-", kind: kindToken, min: 8}, {lit: "xoxp-", kind: kindToken, min: 8},
	{lit: "xoxe-", kind: kindToken, min: 8}, {lit: "xoxr-", kind: kindToken, min: 8}, {lit: "xoxs-", kind: kindToken, min: 8},
	{lit: "xapp-", kind: kindToken, min: 8, digits: true},
	{lit: "AIza", kind: kindToken, min: 24}, {lit: "ya29.", kind: kindToken, min: 16},
	{lit: "npm_", kind: kindToken, min: 20}, {lit: "pypi-", kind: kindToken, min: 24, digits: true},
	{lit: "hf_", kind: kindToken, min: 20}, {lit: "SG.", kind: kindToken, min: 20}, {lit: "dop_v1_", kind: kindToken, min: 20},
	{lit: "whsec_", kind: kindToken, min: 16}, {lit: "shpat_", kind: kindToken, min: 16},
	{lit: "AGE-SECRET-KEY-1", kind: kindToken, min: 16}, {lit: "hvs.", kind: kindToken, min: 20},
}

// The prefilter: a byte has a class (0 for bytes that no trigger begins
// with), and a pair of classes a list of triggers. Built once, read only.
var (
	byteClass   = classes()
	pairToGroup = make([]uint8, classCount*classCount)
	groups      = group(pairToGroup)
)

const classCount = 32

// classes gives letters, in either case, and the few other bytes that stand
// first or second in a trigger a class of their own.
func classes() (c [256]uint8) {
	for b := byte('a'); b <= 'z'; b++ {
		c[b], c[b-0x20] = b-'a'+1, b-'a'+1
	}
	c['-'], c[':'], c['/'], c[' '] = 27, 28, 29, 30
	return c
}

func group(pairs []uint8) [][]trigger {
	gs := make([][]trigger, 1)
	for _, t := range triggers {
		p := pairOf(t.lit[0], t.lit[1])
		if pairs[p] == 0 {
			pairs[p] = uint8(len(gs))
			gs = append(gs, nil)
		}
		gs[pairs[p]] = append(gs[pairs[p]], t)
	}
	return gs
}

func pairOf(a, b byte) int { return int(byteClass[a])*classCount + int(byteClass[b]) }

// nextTrigger is the first place at or after i where a trigger may start,
// len(s) if there is none.
func nextTrigger(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	row := int(byteClass[s[i]]) * classCount
	for ; i+1 < len(s); i++ {
		c := int(byteClass[s[i+1]])
		if pairToGroup[(row+c)&(classCount*classCount-1)] != 0 {
			return i
		}
		row = c * classCount
	}
	return len(s)
}

// triggerAt is the trigger that s has at i, or nil. Where two match the
// special one wins over the word.
func triggerAt(s string, i int) *trigger {
	if i+1 >= len(s) {
		return nil
	}
	g := groups[pairToGroup[pairOf(s[i], s[i+1])]]
	var word *trigger
	for k := range g {
		t := &g[k]
		switch t.kind {
		case kindWord:
			if word == nil && hasFold(s, i, t.lit) {
				word = t
			}
		case kindScheme, kindFlag:
			if hasFold(s, i, t.lit) {
				return t
			}
		default:
			if len(s)-i >= len(t.lit) && s[i:i+len(t.lit)] == t.lit {
				return t
			}
		}
	}
	return word
}

// hasFold reports whether s has the lower-case ASCII lit at i, in any case.
func hasFold(s string, i int, lit string) bool {
	if len(s)-i < len(lit) {
		return false
	}
	for k := range len(lit) {
		if lower(s[i+k]) != lit[k] {
			return false
		}
	}
	return true
}
