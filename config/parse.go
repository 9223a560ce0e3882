package config

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon"
)

type duration = time.Duration

// Upper ends keep sums of caps within their types, and a slip of the finger
// ("1e300") from meaning unlimited.
const (
	maxCount   = 1_000_000_000
	maxBytes   = 1 << 50
	maxSeconds = 1_000_000_000
	maxCost    = 1_000_000_000
	maxMemMB   = 1 << 24
	maxVCPUs   = 1024
)

// wantError is a value that could not be read. Whoever knows where it stood
// puts that in front.
type wantError struct{ value, want string }

func (e wantError) Error() string { return fmt.Sprintf("%q (want %s)", clip(e.value), e.want) }

// secretError is a secret that could not be read; it does not hold it.
type secretError struct{}

func (secretError) Error() string { return "value (want text without control characters)" }

func clip(s string) string {
	if len(s) <= 100 {
		return s
	}
	return strings.ToValidUTF8(s[:100], "") + "…"
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, wantError{s, "true or false"}
}

func oneOf(s string, known ...string) (string, error) {
	w := strings.ToLower(s)
	if slices.Contains(known, w) {
		return w, nil
	}
	return "", wantError{s, "one of " + joined(known)}
}

func parseTier(s string) (cordon.Tier, error) {
	t, known := cordon.ParseTier(strings.ToLower(s))
	if !known {
		return t, wantError{s, "one of student, intern, supervised, autonomous"}
	}
	return t, nil
}

func parseWhole(s string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, wantError{s, fmt.Sprintf("a whole number from %d to %d", least, most)}
	}
	return n, nil
}

// parsePositive reads a decimal number greater than zero.
func parsePositive(s string, most float64) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	// ParseFloat also takes "inf", "nan", "0x1p3" and "1_0".
	plain := strings.Trim(s, "0123456789.eE+-") == ""
	if err != nil || !plain || !(f > 0) || f > most {
		return 0, wantError{s, fmt.Sprintf("a number greater than 0, at most %s", decimal(most))}
	}
	return f, nil
}

func parseSeconds(s string) (time.Duration, error) {
	f, err := parsePositive(s, maxSeconds)
	if err != nil {
		return 0, err
	}
	// Less than a nanosecond would be rounded to no time at all.
	return max(time.Duration(math.Round(f*1e9)), 1), nil
}

func checkName(s string) error {
	if s == "" || badText(s) || strings.TrimSpace(s) != s {
		return wantError{s, "a name without spaces around it or control characters"}
	}
	return nil
}

func badText(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
}

// places are what a path may start from: "~" and, for flags, the working
// directory. Empty ones are not known.
type places struct{ home, dir string }

// path makes a path absolute and clean.
func (p places) path(s string) (string, error) {
	full := s
	switch {
	case s == "" || badText(s):
		return "", wantError{s, "a path without control characters"}
	case s == "~" || strings.HasPrefix(s, "~/"):
		if !path.IsAbs(p.home) {
			return "", wantError{s, "an absolute path: HOME is not set"}
		}
		full = p.home + s[1:]
	case strings.HasPrefix(s, "~"):
		return "", wantError{s, `an absolute path, or one that starts with "~/"`}
	case !path.IsAbs(s):
		if !path.IsAbs(p.dir) {
			return "", wantError{s, `an absolute path, or one that starts with "~/"`}
		}
		full = p.dir + "/" + s
	}
	return path.Clean(full), nil
}

// store reads the audit store's name.
func (p places) store(s string) (string, error) {
	if strings.Contains(s, "://") || strings.HasPrefix(s, ":") {
		if badText(s) {
			return "", wantError{withoutPassword(s), "a path or a URL without control characters"}
		}
		return s, nil
	}
	return p.path(s)
}
