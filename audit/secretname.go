package audit

import "strings"

// nameLevel says what a name tells about the value it stands for.
type nameLevel uint8

const (
	plainName  nameLevel = iota
	doubtful             // redact a value that looks random
	secretName           // redact any value
)

// What the words of a name mean. The names are split at '_', '-', '.', space
// and changes of case, so "author" holds no "auth" and "monkey" no "key".
var (
	// alwaysSecret make a name secret wherever they stand in it.
	alwaysSecret = set("password passwd passphrase passcode secret secrets credential credentials " +
		"authorization bearer cookie cookies apikey apikeys privatekey accesskey secretkey authtoken accesstoken " +
		"refreshtoken bearertoken clientsecret jwt mnemonic otp sessionid jsessionid phpsessid sid")
	// secretAtEnd make it secret as its last word.
	secretAtEnd = set("pass pwd token key auth oauth")
	// doubtfulAtEnd make it doubtful as its last word.
	doubtfulAtEnd = set("tokens keys sig signature sas hmac session seed")
	// aboutSecret, as the last word, name something about a secret.
	aboutSecret = set("file path name type policy length url uri field label count limit ttl expiry expires " +
		"expiration reset required enabled min max hint prompt manager store provider helper version format dir " +
		"directory mode algorithm header prefix suffix")
	// plainToken before "token" or "tokens", and plainKey before "key" or
	// "keys", are quantities, cursors, indexes and buttons.
	plainToken = set("max min num total n prompt completion input output next prev previous page continuation " +
		"cursor stop pad eos bos unk start end sync count budget cached reasoning")
	plainKey = set("primary sort partition foreign public pub cache group order row column col index map dict object " +
		"hot short shortcut arrow translation lookup unique composite natural surrogate candidate range config " +
		"setting settings press event data query state issue project routing message bucket idempotency dedup " +
		"feature flag locale hash join parent child item node tree meta metadata property answer turn")
	// filler after a name says nothing more.
	filler       = set("value data pem b64 base64 raw plain plaintext str string env prod dev test staging new old current tmp")
	beforePhrase = set("pass seed recovery backup secret")
	// revealing before "tokens" or "keys" make the plural secret.
	revealing = set("api access auth refresh secret private ssh signing encryption master session bearer account")
	// secretTails are for names written as one word: "dbpassword".
	secretTails = []string{"password", "passwd", "passphrase", "apikey", "authtoken", "accesstoken", "secretkey",
		"privatekey", "accesskey", "clientsecret"}
)

func set(words string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

// classify judges a name of an argument, variable, flag, header or field.
func classify(name string) nameLevel {
	if len(name) > 128 || len(name) < 2 {
		return plainName
	}
	var buf [144]byte
	var words [16]string
	ws := splitName(words[:0], buf[:0], name)
	if len(ws) == 0 {
		return plainName
	}
	for len(ws) > 2 && filler[ws[len(ws)-1]] {
		ws = ws[:len(ws)-1]
	}
	last, before := ws[len(ws)-1], ""
	if len(ws) > 1 {
		before = ws[len(ws)-2]
	}
	strong := false
	for _, w := range ws {
		strong = strong || alwaysSecret[w] || hasSecretTail(w)
	}
	switch {
	case strong && aboutSecret[last]:
		return plainName
	case strong:
		return secretName
	case last == "token" || last == "tokens":
		return nounLevel(last == "tokens", before, plainToken)
	case last == "key" || last == "keys":
		return nounLevel(last == "keys", before, plainKey)
	case last == "pwd" && (name == "PWD" || name == "OLDPWD"):
		return plainName
	case secretAtEnd[last], last == "phrase" && beforePhrase[before]:
		return secretName
	case doubtfulAtEnd[last]:
		return doubtful
	}
	return plainName
}

func nounLevel(plural bool, before string, plain map[string]bool) nameLevel {
	switch {
	case plain[before]:
		return plainName
	case plural && !revealing[before]:
		return doubtful
	}
	return secretName
}

func hasSecretTail(w string) bool {
	if len(w) < 7 {
		return false
	}
	for _, t := range secretTails {
		if strings.HasSuffix(w, t) {
			return true
		}
	}
	return false
}

// splitName appends the lower-case words of an ASCII name, of which digits
// at the end are dropped ("token2"), using buf for their bytes.
func splitName(words []string, buf []byte, name string) []string {
	for i := 0; i < len(name); i++ {
		buf = append(buf, lower(name[i]))
	}
	low := string(buf)
	start := 0
	flush := func(end int) {
		w := strings.TrimRight(low[start:end], "0123456789")
		if w != "" && len(words) < cap(words) {
			words = append(words, w)
		}
		start = end
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case !isAlnum(c):
			flush(i)
			start = i + 1
		case i > start && isUpper(c) && (isLower(name[i-1]) || i+1 < len(name) && isLower(name[i+1])):
			flush(i)
		}
	}
	flush(len(name))
	return words
}

func lower(c byte) byte {
	if isUpper(c) {
		return c | 0x20
	}
	return c
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlnum(c byte) bool { return isUpper(c) || isLower(c) || isDigit(c) }
