package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Mark stands in the place of what was redacted.
const Mark = "[redacted]"

// maxRedactDepth is above what strictjson reads; a tree built by hand may
// be deeper, and is cut there.
const maxRedactDepth = 512

// ArgsHash is the hex SHA-256 of the arguments' redacted canonical JSON, so
// that no secret can be guessed from the hash.
func ArgsHash(v *strictjson.Value) string {
	var buf [1024]byte
	sum := sha256.Sum256(AppendRedacted(buf[:0], v))
	return hex.EncodeToString(sum[:])
}

// AppendRedacted appends v in the canonical form of strictjson, with Mark
// for every value that is a secret by the name it stands under (as a
// member, in a pair, after a flag of a command line) or by its shape.
func AppendRedacted(dst []byte, v *strictjson.Value) []byte {
	return appendRedacted(dst, v, plainName, 0)
}

func appendRedacted(dst []byte, v *strictjson.Value, level nameLevel, depth int) []byte {
	if depth > maxRedactDepth {
		return append(dst, `"[too deep]"`...)
	}
	switch v.Kind {
	case strictjson.String:
		return strictjson.AppendString(dst, redactValue(v.Str, level))
	case strictjson.Number:
		if level == secretName {
			return strictjson.AppendString(dst, Mark)
		}
	case strictjson.Array:
		return appendList(dst, v, level, depth)
	case strictjson.Object:
		return appendObject(dst, v, level, depth)
	}
	return strictjson.AppendCanonical(dst, v)
}

// redactValue is a whole string that stands under a name of that level.
func redactValue(s string, level nameLevel) string {
	switch {
	case level == secretName && s != "" && !isReference(s),
		level == doubtful && looksRandom(s):
		return Mark
	}
	return RedactText(s)
}

func appendObject(dst []byte, v *strictjson.Value, level nameLevel, depth int) []byte {
	var small [16]int
	pair := pairLevel(v)
	dst = append(dst, '{')
	for n, i := range keyOrder(small[:0], v.Keys) {
		if n > 0 {
			dst = append(dst, ',')
		}
		key := v.Keys[i]
		dst = append(strictjson.AppendString(dst, RedactText(key)), ':')
		l := max(level, keyLevel(key))
		if pair != plainName {
			// {"name": "Authorization", "value": …}
			l = level
			if pairValue[strings.ToLower(key)] {
				l = pair
			}
		}
		dst = appendRedacted(dst, &v.Items[i], l, depth+1)
	}
	return append(dst, '}')
}

// keyLevel is classify behind the literal prefilter.
func keyLevel(key string) nameLevel {
	for i := nextTrigger(key, 0); i < len(key); i = nextTrigger(key, i+1) {
		if t := triggerAt(key, i); t != nil && t.kind == kindWord {
			return classify(key)
		}
	}
	return plainName
}

var (
	pairName  = set("name key header field k variable env var param parameter")
	pairValue = set("value val v content data default values text")
)

// pairLevel is the level of the value of an object that is a pair of a name
// and a value.
func pairLevel(v *strictjson.Value) nameLevel {
	if len(v.Keys) < 2 || len(v.Keys) > 8 {
		return plainName
	}
	level, hasValue := plainName, false
	for i, k := range v.Keys {
		if len(k) > 9 {
			continue
		}
		k = strings.ToLower(k)
		if pairName[k] && v.Items[i].Kind == strictjson.String {
			level = max(level, keyLevel(v.Items[i].Str))
		}
		hasValue = hasValue || pairValue[k]
	}
	if !hasValue {
		return plainName
	}
	return level
}

func appendList(dst []byte, v *strictjson.Value, level nameLevel, depth int) []byte {
	dst = append(dst, '[')
	next := plainName
	argv := argvNone
	for i := range v.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		e := &v.Items[i]
		l := max(level, next)
		next = plainName
		if e.Kind != strictjson.String || l == secretName {
			dst = appendRedacted(dst, e, l, depth+1)
			continue
		}
		s := e.Str
		next = followLevel(s, i, len(v.Items), argv)
		if argv == argvMySQL && strings.HasPrefix(s, "-p") && len(s) > 2 {
			dst = strictjson.AppendString(dst, "-p"+Mark)
		} else {
			dst = strictjson.AppendString(dst, redactValue(s, l))
		}
		if t := argvTool(s); t != argvNone {
			argv = t
		}
	}
	return append(dst, ']')
}

// followLevel is what a string of a list says about the one after it: it
// may be a flag that takes a secret, or the name in a pair of two (or of a
// flat list of pairs).
func followLevel(s string, i, n int, argv argvKind) nameLevel {
	if len(s) < 2 || len(s) > 128 {
		return plainName
	}
	if s[0] == '-' {
		if argv == argvCurl && (s == "-u" || s == "--user" || s == "-U" || s == "--proxy-user") ||
			(argv == argvSSHPass || argv == argvLogin) && s == "-p" || argv == argvRedis && s == "-a" {
			return secretName
		}
		return keyLevel(strings.TrimLeft(s, "-"))
	}
	if n%2 == 0 && i%2 == 0 && !strings.ContainsAny(s, " =/") {
		return keyLevel(s)
	}
	return plainName
}

// keyOrder are the indexes of keys in sorted order.
func keyOrder(idx []int, keys []string) []int {
	for i := range keys {
		idx = append(idx, i)
	}
	if len(keys) > 12 {
		slices.SortFunc(idx, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })
		return idx
	}
	for i := 1; i < len(idx); i++ {
		for j := i; j > 0 && keys[idx[j]] < keys[idx[j-1]]; j-- {
			idx[j], idx[j-1] = idx[j-1], idx[j]
		}
	}
	return idx
}

// argvKind is a program whose short flags carry secrets.
type argvKind uint8

const (
	argvNone argvKind = iota
	argvMySQL
	argvCurl
	argvSSHPass
	argvRedis
	argvLogin // "docker login" and kin
)

func argvTool(s string) argvKind {
	if len(s) > 64 {
		return argvNone
	}
	base := s[strings.LastIndexByte(s, '/')+1:]
	switch {
	case strings.HasPrefix(base, "mysql"), strings.HasPrefix(base, "mariadb"):
		return argvMySQL
	case base == "curl":
		return argvCurl
	case base == "sshpass":
		return argvSSHPass
	case base == "login":
		return argvLogin
	case base == "redis-cli":
		return argvRedis
	}
	return argvNone
}
