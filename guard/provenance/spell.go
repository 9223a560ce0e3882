package provenance

import "bytes"

// speller puts identifiers together that a text takes apart: addresses that
// are spelt out ("name at domain dot com", "x [at] y (dot) z", "x @ y . z")
// and account numbers in groups.
type speller struct {
	last      []byte // the word before, within the text
	addr      []byte // what was joined so far
	at, dot   bool
	open      bool // the address so far ends in a joint
	num       []byte
	groups    int
	numDigits bool
}

const maxSpelled = 128

func (s *speller) reset() { *s = speller{addr: s.addr[:0], num: s.num[:0]} }

// plain takes a word of letters, which is most of them.
func (s *speller) plain(d *digester, a []byte) {
	if len(s.addr) > 0 || s.groups > 0 || len(a) == 2 && a[0] == 'a' && a[1] == 't' || len(a) == 3 && a[0] == 'd' && a[1] == 'o' && a[2] == 't' {
		s.word(d, a)
		return
	}
	s.last = a
}

// begun reports something that a joint may go on with, and takes it up.
func (s *speller) begun() bool {
	if s.open {
		return false
	}
	if len(s.addr) == 0 && len(s.last) > 0 && len(s.last) <= 64 {
		s.addr = append(s.addr, s.last...)
	}
	return len(s.addr) > 0
}

// word takes a word of letters and digits, dots within.
func (s *speller) word(d *digester, a []byte) {
	switch {
	case len(a) == 2 && a[0] == 'a' && a[1] == 't':
		if !s.at && s.begun() {
			s.join('@')
			s.at = true
			s.number(d, nil)
			return
		}
	case len(a) == 3 && a[0] == 'd' && a[1] == 'o' && a[2] == 't':
		if s.begun() {
			s.join('.')
			s.dot = true
			s.number(d, nil)
			return
		}
	}
	s.number(d, a)
	if s.open && len(s.addr)+len(a) <= maxSpelled {
		s.addr = append(s.addr, a...)
		s.open = false
		s.dot = s.dot || bytes.IndexByte(a, '.') >= 0
		return
	}
	s.flushAddress(d)
	s.last = a
}

// mark takes an atom without letters and digits.
func (s *speller) mark(d *digester, a []byte) {
	if len(a) == 1 && (a[0] == '@' || a[0] == '.' || a[0] == '-' || a[0] == '_') && s.begun() {
		s.join(a[0])
		s.at, s.dot = s.at || a[0] == '@', s.dot || a[0] == '.'
		return
	}
	if len(a) == 1 && (a[0] == '-' || a[0] == '.') {
		return
	}
	s.flush(d)
}

// address takes an atom with marks in it; "@evil.example" goes on with what
// stood before.
func (s *speller) address(d *digester, a []byte, flags uint8) {
	s.number(d, nil)
	if flags&clSlash == 0 && (s.open || a[0] == '@' && s.begun()) && len(s.addr)+len(a) <= maxSpelled {
		s.addr = append(s.addr, a...)
		s.open = false
		s.at, s.dot = s.at || flags&clAt != 0, s.dot || flags&clDot != 0
		return
	}
	s.flushAddress(d)
	if flags&clSlash == 0 {
		s.last = a
	}
}

func (s *speller) join(c byte) {
	s.addr = append(s.addr, c)
	s.open = true
}

// number takes the next group of what may be an account number; nil ends it.
func (s *speller) number(d *digester, a []byte) {
	hasDigit, all := false, len(a) > 0
	for _, c := range a {
		digit := class[c]&clDigit != 0
		hasDigit, all = hasDigit || digit, all && digit
	}
	short := len(a) > 0 && (len(a) <= 5 || all && len(a) <= 7)
	if short && (hasDigit || len(a) == 4 || len(a) == 2) && len(s.num)+len(a) <= 48 {
		s.num = append(s.num, a...)
		s.groups++
		s.numDigits = s.numDigits || hasDigit
		if hasDigit && s.groups >= 2 && len(s.num) >= 6 {
			d.ident(idNumber, s.num)
			d.suffixes(s.num)
		}
		return
	}
	s.num, s.groups, s.numDigits = s.num[:0], 0, false
}

// suffixes: a word of the sentence may stand before the first group.
func (d *digester) suffixes(num []byte) {
	for _, skip := range [...]int{2, 4} {
		if len(num)-skip >= 8 && class[num[skip-1]]&clLetter != 0 {
			d.ident(idNumber, num[skip:])
		}
	}
}

func (s *speller) flush(d *digester) {
	s.flushAddress(d)
	s.number(d, nil)
}

// flushAddress records what was spelt out, if it is an address.
func (s *speller) flushAddress(d *digester) {
	if s.dot && len(s.addr) > 4 {
		a := trimAtom(s.addr)
		if host, url := d.splitURL(a); host != nil {
			d.ident(idHost, host)
			d.ident(idURL, url)
			d.ident(idToken, a)
		}
	}
	s.addr, s.last, s.at, s.dot, s.open = s.addr[:0], nil, false, false, false
}
