package llm

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// maxModel is how long a model's name may be.
const maxModel = 256

// plan is what a body was read as.
type plan struct {
	model  string
	stream bool
	fast   bool
	// maxOutput is the length of the answer that the body asks for, in
	// tokens; 0 where it does not say. answers is how many.
	maxOutput, answers int64
	// media is how many bytes of the body are pictures and the like.
	media int64
	// hidden: the provider reads more than the body holds, such as turns of
	// before.
	hidden bool
	// addUsage: the body must ask for the usage at the end of the stream.
	addUsage bool
	// found is what is refused, in the order in which it stands.
	found []refusal
}

// inspector reads a body against the list.
type inspector struct {
	allow    *allowList
	features map[Feature]bool
	dialect  string
	plan     plan
}

// inspect reads a body. What it holds against it stands in the plan.
func (p *Proxy) inspect(dialect string, v *strictjson.Value) plan {
	in := &inspector{allow: allowed(), features: p.features, dialect: dialect}
	in.plan.answers = 1
	if v.Kind != strictjson.Object {
		in.wrong("the body", "object")
		return in.plan
	}
	in.fields(v)
	switch dialect {
	case "messages":
		in.messages(v)
	case "chat":
		in.chat(v)
	case "responses":
		in.responses(v)
	case "gemini":
		in.gemini(v, 0)
	}
	if dialect != "gemini" {
		in.common(v)
	}
	return in.plan
}

func (in *inspector) refuse(rule, format string, args ...any) {
	if len(in.plan.found) < 32 {
		in.plan.found = append(in.plan.found, refusal{status: 403, rule: rule, why: fmt.Sprintf(format, args...)})
	}
}

func (in *inspector) wrong(what, want string) {
	if len(in.plan.found) < 32 {
		in.plan.found = append(in.plan.found, refusal{status: 400, rule: RuleBody, why: fmt.Sprintf("%s is of the wrong type (want %s)", what, want)})
	}
}

// check holds one name against the list.
func (in *inspector) check(place, name string) {
	shown := strconv.Quote(clip(name, 64))
	w, ok := in.allow.find(place, in.dialect, name)
	switch {
	case !ok && !in.features[Unknown]:
		in.refuse(RuleField, "%s %s is not known to the proxy (the operator can allow %q)", place, shown, Unknown)
	case ok && w.needs != "" && !in.features[w.needs]:
		in.refuse(RuleFeature, "%s %s makes the provider act on its own (the operator can allow %q)", place, shown, w.needs)
	}
}

func (in *inspector) fields(v *strictjson.Value) {
	for i, k := range v.Keys {
		// What is null was not asked for, and neither is an empty list.
		if m := &v.Items[i]; m.Kind == strictjson.Null || m.Kind == strictjson.Array && len(m.Items) == 0 {
			continue
		}
		if k == "background" && v.Items[i].Kind == strictjson.Bool && !v.Items[i].Bool {
			continue
		}
		if in.dialect == "gemini" {
			k = protoName(k)
		}
		in.plan.hidden = in.plan.hidden || hiddenInput[in.dialect+" "+k]
		in.check(placeField, k)
	}
}

// hiddenInput are the fields that name what the provider has already.
var hiddenInput = map[string]bool{
	"responses previous_response_id": true, "responses conversation": true, "responses prompt": true,
	"messages container": true, "gemini cachedcontent": true,
}

// common reads the fields that Anthropic and OpenAI share.
func (in *inspector) common(v *strictjson.Value) {
	p := &in.plan
	model, ok := v.Text("model")
	if !ok || !nameLike(model) {
		in.wrong("\"model\"", "the name of a model")
	}
	p.model = model
	if in.dialect == "chat" && strings.Contains(model, "-search") && !in.features[WebSearch] {
		in.refuse(RuleFeature, "model %q searches the web on its own (the operator can allow %q)", model, WebSearch)
	}
	if strings.HasSuffix(model, ":online") && !in.features[WebSearch] {
		in.refuse(RuleFeature, "model %q searches the web on its own (the operator can allow %q)", model, WebSearch)
	}
	switch s := v.Get("stream"); {
	case s == nil || s.Kind == strictjson.Null:
	case s.Kind == strictjson.Bool:
		p.stream = s.Bool
	default:
		in.wrong("\"stream\"", "true or false")
	}
	for _, k := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		p.maxOutput = max(p.maxOutput, in.number(v, k))
	}
	for _, k := range []string{"n", "best_of"} {
		p.answers = max(p.answers, in.number(v, k))
	}
	tier, _ := v.Text("service_tier")
	speed, _ := v.Text("speed")
	p.fast = tier == "priority" || tier == "fast" || speed == "fast"
	if in.dialect == "chat" || in.dialect == "completions" {
		p.addUsage = p.stream && !asksUsage(v)
	}
}

func asksUsage(v *strictjson.Value) bool {
	u := v.Get("stream_options").Get("include_usage")
	return u != nil && u.Kind == strictjson.Bool && u.Bool
}

// number reads a count; what is none is refused.
func (in *inspector) number(v *strictjson.Value, key string) int64 {
	m := v.Get(key)
	if m == nil || m.Kind == strictjson.Null {
		return 0
	}
	if m.Kind == strictjson.Number {
		if f, err := strconv.ParseFloat(m.Str, 64); err == nil && f >= 0 && f <= maxTokens && f == math.Trunc(f) {
			return int64(f)
		}
	}
	in.wrong(strconv.Quote(key), "a whole number")
	return 0
}

// list calls do for each item of the member, which must be a list of
// objects.
func (in *inspector) list(v *strictjson.Value, key string, do func(*strictjson.Value)) {
	m := v.Get(key)
	if m == nil || m.Kind == strictjson.Null {
		return
	}
	if m.Kind != strictjson.Array {
		in.wrong(strconv.Quote(key), "a list")
		return
	}
	for i := range m.Items {
		if m.Items[i].Kind != strictjson.Object {
			in.wrong("an item of "+strconv.Quote(key), "an object")
			continue
		}
		in.spelling(&m.Items[i])
		do(&m.Items[i])
	}
}

// telling are the members that say what the provider is to do. Some servers
// take them in any case, and would see one that is overlooked here.
var telling = map[string]bool{
	"type": true, "content": true, "source": true, "tool": true, "tools": true, "url": true, "image_url": true, "file_url": true,
	"video_url": true, "audio_url": true, "file_id": true, "file": true, "file_data": true, "data": true, "input_audio": true,
	"environment": true, "output": true,
}

// spelling refuses a telling member in another case.
func (in *inspector) spelling(v *strictjson.Value) {
	for _, k := range v.Keys {
		if low := strings.ToLower(k); low != k && telling[low] {
			in.wrong(fmt.Sprintf("the member %q", clip(k, 32)), strconv.Quote(low))
		}
	}
}

// content reads a text, or a list of parts.
func (in *inspector) content(v *strictjson.Value, key string, part func(*strictjson.Value)) {
	m := v.Get(key)
	if m == nil || m.Kind == strictjson.Null || m.Kind == strictjson.String {
		return
	}
	in.list(v, key, part)
}

// typeOf is the "type" of a part or tool; def where it names none.
func (in *inspector) typeOf(v *strictjson.Value, def string) string {
	t := v.Get("type")
	switch {
	case t == nil || t.Kind == strictjson.Null:
		return def
	case t.Kind == strictjson.String:
		return t.Str
	}
	in.wrong("\"type\"", "a name")
	return def
}

func (in *inspector) messages(v *strictjson.Value) {
	in.list(v, "tools", func(t *strictjson.Value) { in.check(placeTool, in.typeOf(t, "custom")) })
	in.content(v, "system", in.block)
	in.list(v, "messages", func(m *strictjson.Value) { in.content(m, "content", in.block) })
	in.betas(v.Get("betas"))
}

// betas judges what the header says too. There it would be left out.
func (in *inspector) betas(v *strictjson.Value) {
	if v == nil || v.Kind == strictjson.Null {
		return
	}
	if v.Kind != strictjson.Array {
		in.wrong("\"betas\"", "a list")
		return
	}
	for i := range v.Items {
		name := v.Items[i].Str
		w, ok := in.allow.find(placeBeta, string(Anthropic), name)
		switch {
		case v.Items[i].Kind != strictjson.String:
			in.wrong("an item of \"betas\"", "a name")
		case !ok && !in.features[Unknown]:
			in.refuse(RuleField, "beta %q is not known to the proxy (the operator can allow %q)", clip(name, 64), Unknown)
		case ok && w.needs != "" && !in.features[w.needs]:
			in.refuse(RuleFeature, "beta %q makes the provider act on its own (the operator can allow %q)", clip(name, 64), w.needs)
		}
	}
}

// block reads one part of Anthropic's content. The reader of JSON bounds how
// deep they nest.
func (in *inspector) block(b *strictjson.Value) {
	kind := in.typeOf(b, "")
	in.check(placePart, kind)
	switch kind {
	case "image", "document":
		in.source(b.Get("source"))
	case "tool_result", "search_result":
		in.content(b, "content", in.block)
	case "tool_addition", "tool_removal":
		t := b.Get("tool")
		if t == nil || t.Kind != strictjson.Object {
			in.wrong("\"tool\"", "an object")
			return
		}
		in.spelling(t)
		if name := in.typeOf(t, ""); name != "tool_reference" {
			in.check(placeTool, name) // a definition is none of its names
		}
	}
}

func (in *inspector) source(s *strictjson.Value) {
	if s == nil || s.Kind != strictjson.Object {
		in.wrong("\"source\"", "an object")
		return
	}
	in.spelling(s)
	kind := in.typeOf(s, "")
	in.check(placeSource, kind)
	switch kind {
	case "base64":
		in.mediaText(s, "data")
	case "content":
		in.content(s, "content", in.block)
	case "url", "file":
		in.plan.hidden = true
	}
}

func (in *inspector) mediaText(v *strictjson.Value, key string) {
	if s, ok := v.Text(key); ok {
		in.plan.media += int64(len(s))
	}
}

func (in *inspector) chat(v *strictjson.Value) {
	in.list(v, "tools", func(t *strictjson.Value) { in.check(placeTool, in.typeOf(t, "function")) })
	in.list(v, "messages", func(m *strictjson.Value) { in.content(m, "content", in.part) })
	if m := v.Get("modalities"); m != nil {
		in.modalities(m)
	}
}

// modalities refuses answers that are no text: what they cost is not known.
func (in *inspector) modalities(v *strictjson.Value) {
	if in.features[ImageGeneration] || v.Kind == strictjson.Null {
		return
	}
	if v.Kind != strictjson.Array {
		in.wrong("the kinds of answer", "a list")
		return
	}
	for i := range v.Items {
		if !strings.EqualFold(v.Items[i].Str, "text") {
			in.refuse(RuleFeature, "an answer that is no text has a price that is not known here (the operator can allow %q)", ImageGeneration)
			return
		}
	}
}

// part reads one part of OpenAI's content: what it names by address or
// number, whatever its type is.
func (in *inspector) part(b *strictjson.Value) {
	in.check(placePart, in.typeOf(b, ""))
	in.references(b)
}

func (in *inspector) references(b *strictjson.Value) {
	in.spelling(b)
	for i, key := range b.Keys {
		m := &b.Items[i]
		switch key {
		case "image_url", "file_url", "video_url", "audio_url", "url":
			if m.Kind == strictjson.String {
				in.address(m.Str)
			}
			in.within(m, key)
		case "file", "input_audio":
			in.within(m, key)
		case "file_id":
			in.plan.hidden = true
			if m.Kind != strictjson.Null && !in.features[Files] {
				in.refuse(RuleFeature, "%q names a file of the account (the operator can allow %q)", key, Files)
			}
		case "file_data", "data":
			if m.Kind == strictjson.String {
				in.plan.media += int64(len(m.Str))
			}
		}
	}
}

// within reads what a part says of a file one level down. Whatever its type
// is, some servers go by the name of the member alone.
func (in *inspector) within(m *strictjson.Value, key string) {
	switch m.Kind {
	case strictjson.Object:
		in.references(m)
	case strictjson.Array:
		in.wrong(strconv.Quote(key), "a text or an object")
	}
}

func (in *inspector) address(s string) {
	if strings.HasPrefix(s, "data:") {
		in.plan.media += int64(len(s))
		return
	}
	in.plan.hidden = true
	if !in.features[RemoteURLs] {
		in.refuse(RuleFeature, "the provider would fetch a URL that the body names (the operator can allow %q; or send the bytes as a data: URL)", RemoteURLs)
	}
}

func (in *inspector) responses(v *strictjson.Value) {
	in.list(v, "tools", in.responseTool)
	in.content(v, "input", in.item)
}

func (in *inspector) responseTool(t *strictjson.Value) {
	kind := in.typeOf(t, "")
	in.check(placeTool, kind)
	switch kind {
	case "namespace":
		in.list(t, "tools", in.responseTool)
	case "shell":
		env := t.Get("environment")
		if env != nil {
			in.spelling(env)
		}
		if where, _ := env.Text("type"); where != "local" && !in.features[CodeExecution] {
			in.refuse(RuleFeature, "tool \"shell\" runs at the provider unless its environment is \"local\" (the operator can allow %q)", CodeExecution)
		}
	}
}

func (in *inspector) item(b *strictjson.Value) {
	kind := in.typeOf(b, "message")
	in.check(placeItem, kind)
	in.plan.hidden = in.plan.hidden || kind == "item_reference"
	in.references(b)
	in.content(b, "content", in.part)
	switch out := b.Get("output"); {
	case out == nil:
	case kind == "shell_call_output": // {"stdout","stderr","outcome"}, no parts
		in.content(b, "output", in.references)
	case out.Kind == strictjson.Object:
		in.references(out)
	default:
		in.content(b, "output", in.part)
	}
	if kind == "tool_search_output" || kind == "additional_tools" {
		in.list(b, "tools", in.responseTool)
	}
}

// protoName is the one form of a field's two spellings in Gemini's protocol.
func protoName(k string) string { return strings.ToLower(strings.ReplaceAll(k, "_", "")) }

// member finds a member by its name in Gemini's protocol. Where both
// spellings stand, each is read.
func (in *inspector) member(v *strictjson.Value, name string, do func(*strictjson.Value)) {
	for i, k := range v.Keys {
		if protoName(k) == name && v.Items[i].Kind != strictjson.Null {
			do(&v.Items[i])
		}
	}
}

// object calls do where v is an object, and for each where it is a list of
// them: the protocol takes one for the other in places.
func (in *inspector) objects(v *strictjson.Value, what string, do func(*strictjson.Value)) {
	switch v.Kind {
	case strictjson.Object:
		do(v)
	case strictjson.Array:
		for i := range v.Items {
			if v.Items[i].Kind != strictjson.Object {
				in.wrong("an item of "+strconv.Quote(what), "an object")
				continue
			}
			do(&v.Items[i])
		}
	default:
		in.wrong(strconv.Quote(what), "an object or a list of them")
	}
}

func (in *inspector) gemini(v *strictjson.Value, depth int) {
	for _, name := range []string{"contents", "content", "systeminstruction"} {
		in.member(v, name, func(m *strictjson.Value) { in.objects(m, name, in.geminiContent) })
	}
	in.member(v, "tools", func(m *strictjson.Value) {
		in.objects(m, "tools", func(t *strictjson.Value) {
			for _, k := range t.Keys {
				in.check(placeTool, protoName(k))
			}
		})
	})
	in.member(v, "servicetier", func(m *strictjson.Value) {
		// Its values are written in short or in full, SERVICE_TIER_PRIORITY.
		in.plan.fast = in.plan.fast || strings.Contains(strings.ToLower(m.Str), "priority")
	})
	in.member(v, "generationconfig", func(m *strictjson.Value) {
		in.member(m, "maxoutputtokens", func(n *strictjson.Value) { in.plan.maxOutput = max(in.plan.maxOutput, in.value(n, "maxOutputTokens")) })
		in.member(m, "responsemodalities", in.modalities)
		in.member(m, "candidatecount", func(n *strictjson.Value) { in.plan.answers = max(in.plan.answers, in.value(n, "candidateCount")) })
	})
	for _, name := range []string{"requests", "generatecontentrequest"} {
		in.member(v, name, func(m *strictjson.Value) {
			if depth > 0 {
				in.wrong(strconv.Quote(name), "none within another")
				return
			}
			in.objects(m, name, func(r *strictjson.Value) {
				in.fields(r)
				in.gemini(r, depth+1)
			})
		})
	}
}

// value is number, of a value; the protocol takes numbers in quotes too.
func (in *inspector) value(v *strictjson.Value, what string) int64 {
	n := *v
	if n.Kind == strictjson.String {
		n.Kind = strictjson.Number
	}
	return in.number(&strictjson.Value{Kind: strictjson.Object, Keys: []string{what}, Items: []strictjson.Value{n}}, what)
}

func (in *inspector) geminiContent(c *strictjson.Value) {
	if c.Kind != strictjson.Object {
		in.wrong("a content", "an object")
		return
	}
	in.member(c, "parts", func(m *strictjson.Value) { in.objects(m, "parts", in.geminiPart) })
}

func (in *inspector) geminiPart(part *strictjson.Value) {
	for i, k := range part.Keys {
		name, m := protoName(k), &part.Items[i]
		if m.Kind == strictjson.Null {
			continue
		}
		in.check(placePart, name)
		switch name {
		case "filedata":
			in.plan.hidden = true
		case "inlinedata":
			in.mediaText(m, "data")
		case "functionresponse":
			in.member(m, "parts", func(ps *strictjson.Value) { in.objects(ps, "parts", in.geminiPart) })
		}
	}
}

// nameLike reports whether s looks like the name of a model.
func nameLike(s string) bool {
	return s != "" && len(s) <= maxModel && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._:/@-[]+", r))
	})
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
