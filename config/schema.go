package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"unicode"
)

// Schema is the JSON Schema (2020-12) of the file, made from the same table
// that reads it. tools is the schema of one entry of the key "tools", which
// another package reads; nil is any. The error is that tools is no JSON.
//
// The schema sees values, not how they were spelt, and no two places at once.
// So it does not refuse what only Load can tell: an anchor's alias for a
// value, "1e3" for a whole number, names that stand twice, a path below "~/"
// where there is no home, a URL that is wrong within its host.
func Schema(tools json.RawMessage) ([]byte, error) {
	if tools == nil {
		tools = json.RawMessage("true")
	}
	top, sections := map[string]any{}, map[string]map[string]any{}
	for _, s := range table() {
		if s.noFile {
			continue
		}
		node := map[string]any{"type": "array", "items": tools}
		if s.form.kind != elsewhere {
			node = s.form.schema()
		}
		node["description"] = plainly(about(s.name))
		section, sub, nested := strings.Cut(s.name, ".")
		if !nested {
			top[s.name] = node
			continue
		}
		if sections[section] == nil {
			sections[section] = map[string]any{}
			top[section] = mappingSchema(sections[section], about(section), sectionRule(section))
		}
		sections[section][sub] = node
	}
	root := mappingSchema(top, "Cordon's configuration file.", nil)
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "cordon.yaml"
	// A file may be empty.
	root["type"] = []string{"object", "null"}
	return json.MarshalIndent(root, "", "  ")
}

func mappingSchema(properties map[string]any, description string, rule map[string]any) map[string]any {
	m := map[string]any{"type": "object", "properties": properties, "additionalProperties": false, "description": plainly(description)}
	maps.Copy(m, rule)
	return m
}

// plainly is a description without Markdown's marks for code.
func plainly(s string) string { return strings.ReplaceAll(s, "`", "") }

// schema of a place in the file.
func (f form) schema() map[string]any {
	one := f.schemaOne()
	if !f.many {
		return one
	}
	return map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": one}}}
}

func (f form) schemaOne() map[string]any {
	switch f.kind {
	case yesNo:
		return anyOf(map[string]any{"type": "boolean"}, pattern(anyCase("true", "false", "yes", "no", "on", "off", "1", "0")), map[string]any{"enum": []int{0, 1}})
	case oneWord:
		return anyOf(map[string]any{"enum": f.words}, pattern(anyCase(f.words...)))
	case wordsByComma:
		one := anyCase(f.words...)
		return anyOf(map[string]any{"enum": f.words}, pattern(one+`(?:\s*,\s*`+one+`)*`))
	case wholeNumber:
		return anyOf(map[string]any{"type": "integer", "minimum": f.least, "maximum": f.most}, pattern(`\+?0*[1-9][0-9]{0,15}`))
	case positive:
		number := map[string]any{"type": "number", "exclusiveMinimum": 0, "maximum": f.most}
		if f.least > 0 {
			number["minimum"] = f.least
		}
		return anyOf(number, pattern(`\+?`+aboveZero+exponent))
	case priceOf:
		return anyOf(map[string]any{"type": "number", "minimum": 0, "maximum": f.most}, pattern(`\+?`+aboveZero+exponent), pattern(`[0.]*0[0.]*`))
	case program:
		return programSchema()
	case object:
		return map[string]any{"type": "object"}
	case mapping:
		return f.mappingSchema()
	case items:
		return map[string]any{"type": "array", "maxItems": maxItems, "items": f.mappingSchema()}
	case byName:
		return namesSchema(map[string]any{"pattern": `^` + nameWithin + `$`, "maxLength": maxTenantName}, f.mappingSchema())
	case textByVariable:
		return namesSchema(map[string]any{"pattern": `^` + variableName + `$`}, form{kind: someText}.schemaOne())
	case variableByHeader:
		return namesSchema(map[string]any{"pattern": `^[A-Za-z0-9_\-]{1,128}$`, "not": map[string]any{"pattern": `^` + anyCase(ownHeaders()...) + `$`}}, form{kind: variable}.schemaOne())
	}
	return f.textSchema()
}

// textSchema is of a single value that is text. What is no path, URL and the
// like may look like a number or a truth value to YAML.
func (f form) textSchema() map[string]any {
	loose := func(p string) map[string]any {
		return map[string]any{"type": []string{"string", "number", "boolean"}, "pattern": anchored(p)}
	}
	switch f.kind {
	case someText:
		return loose(control + `*`)
	case plainName:
		return loose(nameWithin)
	case runName:
		m := loose(nameWithin)
		m["maxLength"] = maxTenantName
		return m
	case serverName:
		m := loose(`[A-Za-z0-9._\-]{1,64}`)
		m["not"] = pattern(`\.+`)
		return m
	case absolute:
		return pattern(absolutePath)
	case belowRoot:
		m := pattern(absolutePath)
		m["not"] = pattern(`/(?:\.{0,2}/)*\.{0,2}`)
		return m
	case storeName:
		return pattern(`(?:` + absolutePath + `|:` + control + `*|` + control + `*://` + control + `*)`)
	case webURL:
		return pattern(anyCase("http", "https") + `://` + urlHost + `(?::[0-9]*)?(?:[/?](?:[^#\x00-\x1f\x7f-\x9f])*)?`)
	case webOrigin:
		return pattern(`https?://[^/?#@*\sA-Z\x00-\x1f\x7f-\x9f]+`)
	case address:
		return pattern(`(?:\[[^\[\]\x00-\x1f\x7f-\x9f]+\]|[^:\[\]\x00-\x1f\x7f-\x9f]+):` + port)
	case variable:
		return pattern(variableName)
	case digest:
		return pattern(`[0-9a-fA-F]{64}`)
	}
	return map[string]any{"not": map[string]any{}} // no form: nothing fits
}

func (f form) mappingSchema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, field := range f.fields() {
		node := field.form.schema()
		node["description"] = plainly(field.about)
		properties[field.name] = node
		if field.required {
			required = append(required, field.name)
		}
	}
	m := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		m["required"] = required
	}
	if f.rule != nil {
		maps.Copy(m, f.rule())
	}
	return m
}

func namesSchema(names, values map[string]any) map[string]any {
	return map[string]any{"type": "object", "propertyNames": names, "additionalProperties": values}
}

// programSchema is of a program, and of its arguments.
func programSchema() map[string]any {
	first := map[string]any{"type": []string{"string", "number", "boolean"}, "pattern": anchored(`(?:[^/\s\x00-\x1f\x7f-\x9f]` + `[^/\x00-\x1f\x7f-\x9f]*|/` + control + `*)`)}
	return anyOf(first, map[string]any{
		"type": "array", "minItems": 1, "prefixItems": []any{first}, "items": form{kind: someText}.schemaOne(),
	})
}

// Parts of patterns, in what ECMAScript's and Go's syntax have in common.
const (
	control      = `[^\x00-\x1f\x7f-\x9f]`
	nameEnd      = `[^\s\x00-\x1f\x7f-\x9f]`
	nameWithin   = nameEnd + `(?:` + control + `*` + nameEnd + `)?`
	absolutePath = `(?:/` + control + `*|~|~/` + control + `*)`
	variableName = `[A-Za-z_][A-Za-z0-9_]{0,255}`
	urlHost      = `(?:\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]<>"\\^` + "`" + `{|}%\x00-\x1f\x7f-\x9f]+)`
	port         = `(?:0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`
	aboveZero    = `(?:[0-9]*[1-9][0-9]*\.?[0-9]*|[0-9]*\.[0-9]*[1-9][0-9]*)`
	exponent     = `(?:[eE][+\-]?[0-9]+)?`
)

// anchored: values are read without the spaces around them.
func anchored(p string) string { return `^\s*(?:` + p + `)\s*$` }

func pattern(p string) map[string]any {
	return map[string]any{"type": "string", "pattern": anchored(p)}
}

func anyOf(list ...map[string]any) map[string]any { return map[string]any{"anyOf": list} }

// anyCase is a pattern of words in any case of letters, without a flag, which
// patterns of schemas do not have.
func anyCase(list ...string) string {
	var b strings.Builder
	b.WriteString("(?:")
	for i, w := range list {
		if i > 0 {
			b.WriteByte('|')
		}
		for _, c := range w {
			switch upper := unicode.ToUpper(c); {
			case upper != c:
				fmt.Fprintf(&b, "[%c%c]", c, upper)
			case c == '-':
				b.WriteString(`\-`)
			default:
				b.WriteRune(c)
			}
		}
	}
	b.WriteByte(')')
	return b.String()
}

// secretsSafe is a URL on whose way nobody can read what is sent.
func secretsSafe() map[string]any {
	return anyOf(
		pattern(anyCase("https")+`:`+control+`*`),
		pattern(anyCase("http")+`://(?:localhost|127\.[0-9.]+|\[::1\])(?:[:/?]`+control+`*)?`))
}

func where(key, p string) map[string]any {
	return map[string]any{"properties": map[string]any{key: map[string]any{"pattern": anchored(p)}}, "required": []string{key}}
}

func llmRule() map[string]any {
	return map[string]any{"if": map[string]any{"required": []string{"key_env"}}, "then": map[string]any{"properties": map[string]any{"base_url": secretsSafe()}}}
}

func serverRule() map[string]any {
	none := map[string]any{"type": "array", "maxItems": 0}
	return map[string]any{
		"if":   where("transport", anyCase("stdio")),
		"then": map[string]any{"required": []string{"command"}, "properties": map[string]any{"url": false, "headers_env": false}},
		"else": map[string]any{"required": []string{"url"}, "properties": map[string]any{"command": false, "env": false, "env_from": none, "sandbox": false}},
		"allOf": []any{map[string]any{
			"if":   map[string]any{"required": []string{"headers_env"}, "properties": map[string]any{"headers_env": map[string]any{"minProperties": 1}}},
			"then": map[string]any{"properties": map[string]any{"url": secretsSafe()}},
		}},
	}
}

func tokenRule() map[string]any {
	return map[string]any{"oneOf": []any{map[string]any{"required": []string{"token_env"}}, map[string]any{"required": []string{"sha256"}}}}
}

// sectionRule is what holds among the keys of a section.
func sectionRule(section string) map[string]any {
	if section != "judge" {
		return nil
	}
	models := []string{}
	for _, p := range JudgeProviders() {
		if p != "command" {
			models = append(models, p)
		}
	}
	return map[string]any{"allOf": []any{
		map[string]any{"if": where("provider", anyCase("command")), "then": map[string]any{"required": []string{"command"}}},
		map[string]any{"if": where("provider", anyCase(models...)), "then": map[string]any{"required": []string{"model"}}},
		map[string]any{"if": map[string]any{"required": []string{"key_env", "base_url"}}, "then": map[string]any{"properties": map[string]any{"base_url": secretsSafe()}}},
	}}
}
