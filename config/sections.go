package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// JudgeModel says what model the judge asks. An empty Provider is none.
type JudgeModel struct {
	// Provider is one of JudgeProviders. "openai" is any server that speaks
	// its protocol, at BaseURL.
	Provider string
	Model    string
	// BaseURL is empty for the provider's own.
	BaseURL string
	// KeyEnv names the variable that holds the key; Key is what it held.
	KeyEnv string
	Key    Secret
	// Command is the program of provider "command" and its arguments.
	Command []string
	// InputUSD and OutputUSD are the prices of a million tokens; 0 is free.
	InputUSD, OutputUSD float64
}

// Provenance says how the origin of texts is kept and shown.
type Provenance struct {
	// DeliverTagged wraps untrusted tool results in tags on their way to the
	// agent; Datamark marks their words too.
	DeliverTagged, Datamark bool
	// MaxText is how many bytes of text a run's index covers.
	MaxText int64
}

// Egress is what the proxies read beside the hosts.
type Egress struct {
	// Ecosystems are those of Ecosystems whose registries, as the user has
	// configured them, may be reached. Nil is the profile's own, an empty list
	// that is not nil none.
	Ecosystems []string
	LLM        []LLMUpstream
	// Prices is the absolute path of a file of models' prices, or empty.
	Prices string
}

// LLMUpstream is a model server that programs reach by a base URL of the
// proxy, which adds the key.
type LLMUpstream struct {
	// Provider is one of LLMProviders, each at most once.
	Provider string
	BaseURL  string
	KeyEnv   string
	Key      Secret
}

// Sandbox is what runtimes with an image of their own start from.
type Sandbox struct {
	// Image names a container image; Rootfs is the absolute path of a file
	// system. Empty is the runtime's default.
	Image, Rootfs string
}

// JudgeModel says what the judge asks.
func (c *Config) JudgeModel() JudgeModel {
	m := c.v.judgeModel
	m.Command = slices.Clone(m.Command)
	return m
}

// Provenance says how the origin of texts is kept and shown.
func (c *Config) Provenance() Provenance { return c.v.provenance }

// ProposalTTL is how long a proposal waits for a person, and an approval to
// be taken up.
func (c *Config) ProposalTTL() time.Duration { return c.v.proposalTTL }

// Egress is what the proxies read beside the hosts, as a copy.
func (c *Config) Egress() Egress {
	e := c.v.egress
	e.Ecosystems, e.LLM = slices.Clone(e.Ecosystems), slices.Clone(e.LLM)
	return e
}

// Sandbox is what runtimes start from.
func (c *Config) Sandbox() Sandbox { return c.v.sandbox }

// JudgeProviders lists what can be asked to judge.
func JudgeProviders() []string { return []string{"anthropic", "openai", "gemini", "command"} }

// LLMProviders lists the protocols of model servers.
func LLMProviders() []string { return []string{"anthropic", "openai", "gemini"} }

// Ecosystems lists the package ecosystems that the proxies know.
func Ecosystems() []string {
	return []string{"npm", "go", "apt", "pip", "cargo", "maven", "gem", "nuget"}
}

// ecosystemWords are what egress.ecosystems takes: "none" drops what was
// named before.
func ecosystemWords() []string { return append(Ecosystems(), "all", "none") }

// addEcosystems reads items that may be lists themselves, as flags are.
func addEcosystems(v *values, list []string, _ places) error {
	for _, item := range list {
		for s := range strings.SplitSeq(item, ",") {
			w, err := oneOf(strings.TrimSpace(s), ecosystemWords()...)
			switch {
			case err != nil:
				return err
			case w == "none":
				v.egress.Ecosystems = []string{}
			case w == "all":
				v.egress.Ecosystems = Ecosystems()
			default:
				appendNew(&v.egress.Ecosystems, w)
			}
		}
	}
	return nil
}

func showEcosystems(v *values) string {
	if v.egress.Ecosystems != nil && len(v.egress.Ecosystems) == 0 {
		return "none"
	}
	return joined(v.egress.Ecosystems)
}

// maxPrice is above any model's price of a million tokens.
const maxPrice = 1_000_000

func sectionSettings() []setting {
	return []setting{
		{name: "judge.provider", form: words(JudgeProviders()...),
			set:  word(func(v *values) *string { return &v.judgeModel.Provider }, JudgeProviders()),
			show: func(v *values) string { return v.judgeModel.Provider }},
		textValue("judge.model", func(v *values) *string { return &v.judgeModel.Model }),
		{name: "judge.base_url", form: form{kind: webURL},
			set: func(v *values, s string, _ places) (err error) {
				v.judgeModel.BaseURL, err = parseURL(s)
				return err
			},
			show: func(v *values) string { return v.judgeModel.BaseURL }},
		{name: "judge.key_env", form: form{kind: variable},
			set: func(v *values, s string, _ places) (err error) {
				v.judgeModel.KeyEnv, err = parseVariable(s)
				return err
			},
			show: func(v *values) string { return v.judgeModel.KeyEnv }},
		{name: "judge.command", form: form{kind: program}, add: func(v *values, list []string, _ places) error {
			return command(&v.judgeModel.Command, list)
		}, show: func(v *values) string { return joined(v.judgeModel.Command) }},
		price("judge.input_usd", func(v *values) *float64 { return &v.judgeModel.InputUSD }),
		price("judge.output_usd", func(v *values) *float64 { return &v.judgeModel.OutputUSD }),
		onOff("provenance.deliver_tagged", func(v *values) *bool { return &v.provenance.DeliverTagged }),
		onOff("provenance.datamark", func(v *values) *bool { return &v.provenance.Datamark }),
		{name: "provenance.max_text_mb", form: form{kind: wholeNumber, least: 1, most: 1024},
			set: func(v *values, s string, _ places) error {
				n, err := parseWhole(s, 1, 1024)
				v.provenance.MaxText = n << 20
				return err
			},
			show: func(v *values) string { return strconv.FormatInt(v.provenance.MaxText>>20, 10) }},
		{name: "proposals.ttl_seconds", form: form{kind: positive, least: 1, most: 2592000},
			set: func(v *values, s string, _ places) error {
				d, err := parseSeconds(s)
				if err == nil && (d < time.Second || d > 30*24*time.Hour) {
					err = wantError{s, "a number of seconds from 1 to 2592000"}
				}
				v.proposalTTL = d
				return err
			},
			show: func(v *values) string { return decimal(v.proposalTTL.Seconds()) }},
		{name: "egress.ecosystems", flag: "ecosystem", form: form{kind: wordsByComma, words: ecosystemWords(), many: true},
			add: addEcosystems, show: showEcosystems},
		{name: "egress.llm", form: form{kind: items, fields: llmFields, rule: llmRule}, node: (*loader).llm, show: func(v *values) string {
			var names []string
			for _, u := range v.egress.LLM {
				names = append(names, u.Provider)
			}
			return joined(names)
		}},
		filePath("egress.prices", func(v *values) *string { return &v.egress.Prices }),
		textValue("sandbox.image", func(v *values) *string { return &v.sandbox.Image }),
		filePath("sandbox.rootfs", func(v *values) *string { return &v.sandbox.Rootfs }),
	}
}

func textValue(name string, field func(*values) *string) setting {
	return setting{name: name, form: form{kind: plainName},
		set: func(v *values, s string, _ places) error {
			err := checkName(s)
			if err == nil {
				*field(v) = s
			}
			return err
		},
		show: func(v *values) string { return *field(v) }}
}

func filePath(name string, field func(*values) *string) setting {
	return setting{name: name, form: form{kind: absolute},
		set: func(v *values, s string, p places) (err error) {
			*field(v), err = p.path(s)
			return err
		},
		show: func(v *values) string { return *field(v) }}
}

func onOff(name string, field func(*values) *bool) setting {
	return setting{name: name, form: form{kind: yesNo}, set: boolean(field), show: showBool(field)}
}

// price is of a million tokens; a free model's is 0.
func price(name string, field func(*values) *float64) setting {
	return setting{name: name, form: form{kind: priceOf, most: maxPrice},
		set: func(v *values, s string, _ places) (err error) {
			if strings.Trim(s, "0.") == "" && strings.Contains(s, "0") {
				*field(v) = 0
				return nil
			}
			*field(v), err = parsePositive(s, maxPrice)
			return err
		},
		show: func(v *values) string { return decimal(*field(v)) }}
}

// command is a program by its absolute path or its name, and its arguments.
func command(to *[]string, list []string) error {
	if len(list) == 0 || list[0] == "" {
		return wantError{"", "a program and its arguments"}
	}
	for _, s := range list {
		if badText(s) {
			return wantError{s, "text without control characters"}
		}
	}
	if s := list[0]; strings.Contains(s, "/") && !strings.HasPrefix(s, "/") {
		return wantError{s, "the name or the absolute path of a program"}
	}
	*to = list
	return nil
}

// parseURL reads the URL of a server. A user part would be a secret in a file
// that is shown.
func parseURL(s string) (string, error) {
	want := wantError{clearUser(s), `a URL like "https://host/path"`}
	u, err := url.Parse(s)
	if err != nil || badText(s) || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Fragment != "" {
		return "", want
	}
	if u.User != nil {
		want.want += " without a user"
		return "", want
	}
	return s, nil
}

func clearUser(s string) string {
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		return "…" + s[at:]
	}
	return s
}

// clearText reports whether what is sent there can be read on the way.
func clearText(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host != "localhost" && !(ip != nil && ip.IsLoopback())
}

func parseVariable(s string) (string, error) {
	for i, c := range []byte(s) {
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			s = ""
			break
		}
	}
	if s == "" || len(s) > 256 {
		// What stands there may be the secret itself.
		return "", secretName{}
	}
	return s, nil
}

// secretName is a variable's name that could not be read; it does not show
// what stands in its place, which people take for the place of the secret.
type secretName struct{}

func (secretName) Error() string { return "value (want the name of an environment variable)" }

// secret is what a variable holds.
func (l *loader) secret(variable string) Secret {
	if variable == "" {
		return Secret{}
	}
	s := l.env(variable)
	return Secret{func() string { return s }}
}

func (l *loader) llm(key string, n *yaml.Node) {
	l.items(key, n, func(at string, item *yaml.Node) {
		var u LLMUpstream
		l.pairs(item, at+".", fieldNames(llmFields), func(sub string, value *yaml.Node) {
			full := at + "." + sub
			switch sub {
			case "provider":
				l.one(&u.Provider, full, value, func(s string) (string, error) { return oneOf(s, LLMProviders()...) })
			case "base_url":
				l.one(&u.BaseURL, full, value, parseURL)
			case "key_env":
				l.one(&u.KeyEnv, full, value, parseVariable)
			}
		})
		u.Key = l.secret(u.KeyEnv)
		twice := slices.ContainsFunc(l.v.egress.LLM, func(o LLMUpstream) bool { return o.Provider == u.Provider })
		switch {
		case u.Provider == "" || u.BaseURL == "":
			l.failAt(item, at, wantError{u.Provider, "a provider and a base_url"})
		case twice:
			l.failAt(item, at+".provider", wantError{u.Provider, "each provider once"})
		case u.KeyEnv != "" && clearText(u.BaseURL):
			l.failAt(item, at+".base_url", wantError{u.BaseURL, "https, as a key is sent there"})
		}
		l.v.egress.LLM = append(l.v.egress.LLM, u)
	})
}

// one reads a single value into to, or keeps the error.
func (l *loader) one(to *string, key string, n *yaml.Node, parse func(string) (string, error)) {
	if p := single(l, key, n, parse); p != nil {
		*to = *p
	}
}

// maxItems bounds a list of structures.
const maxItems = 1000

// items walks a list of mappings.
func (l *loader) items(key string, n *yaml.Node, each func(at string, item *yaml.Node)) {
	if n.Kind != yaml.SequenceNode || len(n.Content) > maxItems {
		l.failAt(n, key, wantError{spelled(n), fmt.Sprintf("a list of at most %d mappings", maxItems)})
		return
	}
	for i, item := range n.Content {
		each(fmt.Sprintf("%s[%d]", key, i), item)
	}
}

// checkJudge looks at what the judge's settings are together.
func (l *loader) checkJudge() {
	m := &l.v.judgeModel
	m.Key = l.secret(m.KeyEnv)
	// The place of what is missing is the provider's, which asks for it.
	where := l.origins["judge.provider"].detail + ": judge.provider"
	switch {
	case m.Provider == "command" && len(m.Command) == 0:
		l.fail(where, wantError{m.Provider, "judge.command with provider command"})
	case m.Provider != "" && m.Provider != "command" && m.Model == "":
		l.fail(where, wantError{m.Provider, "judge.model with provider " + m.Provider})
	case m.KeyEnv != "" && m.BaseURL != "" && clearText(m.BaseURL):
		l.fail(l.origins["judge.base_url"].detail+": judge.base_url", wantError{m.BaseURL, "https, as a key is sent there"})
	}
}
