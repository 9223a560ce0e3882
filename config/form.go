package config

import (
	"fmt"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// form is what the file may have in one place. What reads the place decides;
// the form tells it to people, and to editors as a schema.
type form struct {
	kind kind
	// words are those of oneWord and wordsByComma, in any case of letters.
	words []string
	// least and most bound a number; least 0 is then more than 0.
	least, most float64
	// many: one of it, or a list.
	many bool
	// fields are the keys of a mapping, and rule is what holds among them.
	fields func() []field
	rule   func() map[string]any
}

type kind uint8

const (
	unsaid kind = iota // no form was given, which a test refuses
	yesNo
	oneWord
	wordsByComma // one word, or several in one text
	wholeNumber
	positive
	priceOf
	someText
	plainName
	runName
	serverName
	absolute
	belowRoot
	storeName
	webURL
	webOrigin
	address
	variable
	digest
	program
	textByVariable
	variableByHeader
	object    // any mapping
	mapping   // of fields
	items     // a list of mappings of fields
	byName    // names, each with a mapping of fields
	elsewhere // another package reads it
)

// field is one key of a mapping in the file.
type field struct {
	name, about string
	form        form
	required    bool
}

func words(list ...string) form { return form{kind: oneWord, words: list} }

func tiers() []string {
	var list []string
	for t := cordon.Student; t <= cordon.Autonomous; t++ {
		list = append(list, t.String())
	}
	return list
}

func fieldNames(fields func() []field) []string {
	var list []string
	for _, f := range fields() {
		list = append(list, f.name)
	}
	return list
}

func llmFields() []field {
	return []field{
		{"provider", "The protocol that the server speaks; each stands at most once.", words(LLMProviders()...), true},
		{"base_url", "The URL of the server.", form{kind: webURL}, true},
		{"key_env", "The variable that holds the key, which the proxy adds. Needs `https`, or this machine.", form{kind: variable}, false},
	}
}

func tenantFields() []field {
	return []field{
		{"tier", "The highest tier of the tenant's runs.", words(tiers()...), false},
		{"allow_hosts", "The only hosts of the policy that are left; an empty list leaves none.", form{kind: plainName, many: true}, false},
		{"tools", "The only tools of the policy that are left; an empty list leaves none.", form{kind: plainName, many: true}, false},
		{"caps", "Smaller caps.", form{kind: mapping, fields: capFields}, false},
	}
}

func capFields() []field {
	return []field{
		{"tool_calls", "Calls of a run.", form{kind: wholeNumber, least: 1, most: maxCount}, false},
		{"exec_seconds", "Seconds in which a run's tools execute.", form{kind: positive, most: maxSeconds}, false},
		{"bytes_written", "Bytes that a run writes.", form{kind: wholeNumber, least: 1, most: maxBytes}, false},
		{"cost_usd", "Dollars that a run spends.", form{kind: positive, most: maxCost}, false},
	}
}

func serverFields() []field {
	return []field{
		{"name", "1 to 64 letters, digits, `.`, `_` and `-`; each name once, also in another case.", form{kind: serverName}, true},
		{"transport", "`http` is streamable HTTP, `sse` that of 2024-11-05.", words("stdio", "http", "sse"), true},
		{"command", "stdio: the program, by its name or absolute path, and its arguments.", form{kind: program}, false},
		{"env", "stdio: variables that are set for it.", form{kind: textByVariable}, false},
		{"env_from", "stdio: variables of Cordon's own environment that it gets too.", form{kind: variable, many: true}, false},
		{"url", "http, sse: the URL of the server.", form{kind: webURL}, false},
		{"headers_env", "http, sse: headers, each with the variable that holds its value. Needs `https`, or this machine.", form{kind: variableByHeader}, false},
		{"sandbox", "stdio: its walls; without this key `native`.", words("native", "none"), false},
	}
}

func tokenFields() []field {
	return []field{
		{"token_env", fmt.Sprintf("The variable that holds the token, of at least %d characters. Either this or `sha256`.", MinToken), form{kind: variable}, false},
		{"sha256", "The hex SHA-256 of the token. Either this or `token_env`.", form{kind: digest}, false},
		{"tenant", "The tenant that its bearer belongs to.", form{kind: runName}, false},
		{"agent", "The bearer's name, for the audit.", form{kind: runName}, false},
		{"user", "The user's name, for the audit.", form{kind: runName}, false},
		{"tier", "The bearer's tier; without this key `student`.", words(tiers()...), false},
		{"profile", "The profile of its runs; without this key the file's.", words(Profiles()...), false},
		{"workspace", "The directory that its runs work in.", form{kind: absolute}, false},
		{"servers", "The servers that it may call; without this key all of them.", form{kind: serverName, many: true}, false},
		{"asks_its_user", "`true`: a person sits at its client, and may be asked there to approve a call. Not for an agent that holds its token itself.", form{kind: yesNo}, false},
	}
}

// wanted says a form in words, for the reference.
func (f form) wanted() string {
	s := f.wantedOne()
	if f.many {
		return "list of: " + s
	}
	return s
}

func (f form) wantedOne() string {
	switch f.kind {
	case yesNo:
		return "`true` or `false`"
	case oneWord, wordsByComma:
		return "`" + strings.Join(f.words, "`, `") + "`"
	case wholeNumber:
		return fmt.Sprintf("whole number, %s to %s", decimal(f.least), decimal(f.most))
	case positive:
		if f.least > 0 {
			return fmt.Sprintf("number, %s to %s", decimal(f.least), decimal(f.most))
		}
		return fmt.Sprintf("number above 0, at most %s", decimal(f.most))
	case priceOf:
		return fmt.Sprintf("number, 0 to %s", decimal(f.most))
	}
	return map[kind]string{
		someText: "text", plainName: "name", runName: "name, at most 256 bytes", serverName: "name",
		absolute: "path, absolute or below `~/`", belowRoot: "directory below `/`, absolute or below `~/`",
		storeName: "path, absolute or below `~/`, or URL", webURL: "URL, `https://` or `http://`",
		webOrigin: "origin (`https://host[:port]`)", address: "`host:port`", variable: "name of a variable",
		digest: "64 hex digits", program: "program, or list of a program and its arguments",
		textByVariable: "mapping of variables to texts", variableByHeader: "mapping of headers to variables",
		object: "mapping", mapping: "mapping", items: "list of mappings", byName: "mapping of names to mappings", elsewhere: "list of mappings",
	}[f.kind]
}
