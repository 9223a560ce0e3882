package audit

import (
	"fmt"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// AppendShown appends v as AppendRedacted does, but with each string
// shortened to about limit bytes: one long value must not push the others out
// of what a reader gets to see.
func AppendShown(dst []byte, v *strictjson.Value, limit int) []byte {
	red := AppendRedacted(nil, v)
	again, err := strictjson.Parse(red)
	if err != nil {
		// Names of members that became alike by redaction, or a tree that was
		// built by hand.
		return strictjson.AppendString(dst, Shorten(string(red), 4*limit))
	}
	shortenAll(&again, limit)
	return strictjson.AppendCanonical(dst, &again)
}

// shortenAll recurses as deep as strictjson reads.
func shortenAll(v *strictjson.Value, limit int) {
	if v.Kind == strictjson.String {
		v.Str = Shorten(v.Str, limit)
	}
	for i := range v.Items {
		shortenAll(&v.Items[i], limit)
	}
}

// Shorten keeps the beginning and the end of a text, which tell most of it,
// and says how much is missing. The result is limit bytes, and what says so.
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head, tail := limit*3/4, len(s)-limit/4
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s…[%d bytes are not shown]…%s", s[:head], tail-head, s[tail:])
}
