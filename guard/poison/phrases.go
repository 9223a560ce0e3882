package poison

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// set is a step of a phrase: any of its words.
type set map[string]bool

func words(s string) set {
	out := set{}
	for _, w := range strings.Fields(s) {
		out[w] = true
	}
	return out
}

// step is one of a set of words, with at most gap other words before it.
type step struct {
	words set
	gap   int
}

// phrase is an order to the model, as words in one sentence.
type phrase struct {
	rule     string
	severity Severity
	steps    []step
	what     string
}

const (
	person    = "user human person developer operator customer"
	negations = "not dont never without avoid cannot"
	pointers  = "this it that these them tool call step instruction instructions file"
)

// newPhrases is the list of what an honest description has no use for.
func newPhrases() []phrase {
	q, n := Quarantine, Note
	return []phrase{
		{"instruct.secrecy", q, []step{{words(negations), 0}, {words("tell telling inform informing warn warning"), 2}, {words(person), 1}}, "keeping something from the user"},
		{"instruct.secrecy", n, []step{{words(negations), 0}, {words("notify notifying alert alerting"), 2}, {words(person), 1}}, "not notifying the user"},
		{"instruct.secrecy", q, []step{{words(negations), 0}, {words("mention mentioning reveal revealing disclose disclosing discuss explain say"), 2}, {words(pointers), 2}, {words("to"), 4}, {words(person), 1}}, "keeping something from the user"},
		{"instruct.secrecy", n, []step{{words(negations), 0}, {words("mention mentioning reveal revealing disclose disclosing show showing expose display"), 2}, {words("to"), 5}, {words(person), 1}}, "not showing something to the user"},
		{"instruct.secrecy", q, []step{{words(negations), 0}, {words("mention mentioning reveal revealing disclose"), 1}, {words("this it that"), 0}, {words("tool step instruction instructions requirement call"), 1}}, "keeping something quiet"},
		{"instruct.secrecy", q, []step{{words("hide hiding conceal concealing hidden secret"), 0}, {words("from"), 4}, {words(person), 1}}, "hiding something from the user"},
		{"instruct.secrecy", q, []step{{words(person), 0}, {words("not doesnt neednt shouldnt mustnt"), 2}, {words("know notice"), 3}}, "what the user is not to know"},
		{"instruct.secrecy", q, []step{{words("no not"), 0}, {words("need necessary"), 1}, {words("to"), 0}, {words("tell inform mention"), 0}, {words(person + " this it"), 2}}, "keeping something from the user"},
		{"instruct.secrecy", q, []step{{words("refrain abstain"), 0}, {words("from"), 0}, {words("telling informing mentioning notifying alerting showing"), 0}, {words(person + " this it"), 2}}, "keeping something from the user"},
		{"instruct.secrecy", q, []step{{words(negations), 0}, {words("let"), 0}, {words(person), 1}, {words("know notice learn suspect"), 0}}, "what the user is not to know"},
		{"instruct.secrecy", n, []step{{words(negations), 0}, {words("let"), 0}, {words(person), 1}, {words("see"), 0}}, "what the user is not to see"},
		{"instruct.secrecy", q, []step{{words(person), 0}, {words("unaware"), 3}}, "what the user is not to know"},
		{"instruct.secrecy", q, []step{{words("keep stay"), 0}, {words("this it that"), 0}, {words("between"), 1}, {words("us"), 0}}, "keeping something quiet"},
		{"instruct.secrecy", q, []step{{words("silently quietly secretly covertly"), 0}, {words("send copy forward upload read include append exfiltrate post"), 1}}, "doing something unseen"},
		{"instruct.consent", n, []step{{words(person), 0}, {words("already"), 2}, {words("approved consented authorized authorised agreed"), 1}}, "a consent that it cannot know of"},
		{"instruct.precedence", q, []step{{words("before"), 0}, {words("using calling invoking running executing use call"), 1}, {words("any all every other another"), 0}, {words("tool tools function functions"), 2}}, "coming before all other tools"},
		{"instruct.precedence", q, []step{{words("instead rather"), 0}, {words("of than"), 0}, {words("any all every other another"), 0}, {words("tool tools"), 2}}, "taking the place of other tools"},
		{"instruct.precedence", q, []step{{words("prior"), 0}, {words("to"), 0}, {words("any every"), 0}, {words("other"), 0}, {words("action actions tool tools call calls step"), 1}}, "coming before all other tools"},
		{"instruct.precedence", n, []step{{words("first"), 0}, {words("tool function"), 0}, {words("you"), 0}, {words("use call invoke run"), 1}}, "being called first"},
		{"instruct.precedence", n, []step{{words("always"), 0}, {words("call use run invoke"), 1}, {words("this"), 0}, {words("first before"), 3}}, "being called first"},
		{"instruct.override", q, []step{{words("ignore disregard forget override bypass"), 0}, {words("previous prior earlier above preceding your system safety"), 3}, {words("instructions instruction prompt prompts rules guidelines directives policies restrictions"), 2}}, "setting instructions aside"},
		{"instruct.override", n, []step{{words("ignore disregard forget override"), 0}, {words("all any other"), 1}, {words("instructions prompts guidelines directives"), 1}}, "ignoring instructions"},
		{"instruct.override", q, []step{{words("told instructed"), 0}, {words("earlier before previously so"), 1}, {words("longer"), 3}, {words("applies apply valid holds"), 1}}, "setting instructions aside"},
		{"instruct.override", q, []step{{words("new updated additional real actual"), 0}, {words("system"), 0}, {words("instructions prompt instruction"), 0}}, "new instructions"},
		{"instruct.override", n, []step{{words("you"), 0}, {words("are"), 0}, {words("now"), 0}, {words("a an in dan the"), 0}}, "what the model is to be"},
		{"instruct.harvest", q, []step{{words("include pass provide send put insert copy append write supply attach paste repeat output"), 0}, {words("your"), 3}, {words("system"), 1}, {words("prompt instructions message"), 0}}, "handing over the system prompt"},
		{"instruct.harvest", q, []step{{words("include pass provide send put insert copy append write supply attach paste summarize"), 0}, {words("entire full complete whole all previous current"), 3}, {words("conversation chat dialogue transcript"), 2}, {words("history so verbatim above with between including here"), 1}}, "handing over the conversation"},
		{"instruct.harvest", q, []step{{words("include pass provide send put insert copy append write supply attach paste"), 0}, {words("entire full complete whole"), 3}, {words("conversation"), 1}}, "handing over the conversation"},
		{"instruct.harvest", n, []step{{words("include pass provide send put insert copy append write supply attach paste values"), 0}, {words("all"), 3}, {words("environment env"), 0}, {words("variables vars"), 0}}, "handing over the environment"},
	}
}

// marks are texts that only prompts have.
var marks = [...]struct {
	text string
	sev  Severity
}{
	{"<important", Quarantine}, {"</important", Quarantine}, {"<system>", Quarantine}, {"<system_prompt", Quarantine},
	{"<system-reminder", Quarantine}, {"<system-prompt", Quarantine}, {"<hidden", Quarantine}, {"<secret>", Quarantine},
	{"<|im_start|>", Quarantine}, {"<|system|>", Quarantine}, {"<|end", Quarantine}, {"<<sys>>", Quarantine}, {"[/inst]", Quarantine},
	{"</tool_result", Quarantine}, {"</function_results", Quarantine}, {"<instructions>", Note}, {"[system]", Note}, {"<!--", Note},
}

// secretPlaces are files whose content nobody's description has to order.
var secretPlaces = [...]string{
	"/.ssh", "id_rsa", "id_ed25519", ".aws/credentials", ".netrc", ".git-credentials", ".kube/config", "/etc/shadow", "/etc/passwd",
	"mcp.json", "claude_desktop_config", ".cursor/", ".env file", "/.env", "wallet.dat", ".bash_history", ".pgpass",
}

// phrases looks for orders in a text, sentence by sentence.
func (c *checker) phrases(s, where string, r role) {
	low := flatten(s)
	for _, m := range marks {
		if strings.Contains(low, m.text) {
			c.find("instruct.markup", m.sev, where, fmt.Sprintf("it has the mark %q of a prompt", m.text))
		}
	}
	for sentence := range sentences(low) {
		ws := split(sentence)
		c.orders(ws, sentence, where)
		if strings.IndexByte(sentence, '_') >= 0 { // words_may_be_joined
			c.orders(split(strings.ReplaceAll(sentence, "_", " ")), sentence, where)
		}
		c.secrets(sentence, ws, where)
		c.sends(ws, sentence, where)
		c.others(s, ws, sentence, where)
	}
}

// orders looks for phrases among the words of a sentence.
func (c *checker) orders(ws []string, sentence, where string) {
	for i, w := range ws {
		for _, o := range orders[w] {
			if o.from(ws, i+1) {
				c.find(o.rule, o.severity, where, fmt.Sprintf("it tells the model about %s: %s", o.what, shown(sentence)))
			}
		}
	}
}

// orders are the phrases by their first words. Nothing changes them.
var orders = byFirstWord(newPhrases())

func byFirstWord(list []phrase) map[string][]*phrase {
	out := map[string][]*phrase{}
	for i := range list {
		for w := range list[i].steps[0].words {
			out[w] = append(out[w], &list[i])
		}
	}
	return out
}

// from takes, for each further step, the first word that fits: gaps are short,
// so that nothing is tried twice.
func (p *phrase) from(ws []string, i int) bool {
	for _, s := range p.steps[1:] {
		found := false
		for k := i; k < len(ws) && k <= i+s.gap; k++ {
			if s.words[ws[k]] {
				i, found = k+1, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

var (
	urges    = words("must should need always first ensure sure please required remember before mandatory have important necessary also needed")
	reads    = words("read cat open load include pass send access fetch provide copy print paste get retrieve attach content contents")
	sends    = words("send forward bcc cc copy upload post email transmit report mail exfiltrate recipient")
	replaces = words("instead never not replaces when whenever")
	// redirects are of a condition under which another address is to be used.
	redirects = words("when whenever instead replaces")
	insist    = words("also always must every each all additionally secretly first bcc forward")
)

// secrets: the model is urged to read a file that holds credentials.
func (c *checker) secrets(sentence string, ws []string, where string) {
	for _, p := range secretPlaces {
		if !strings.Contains(sentence, p) {
			continue
		}
		if has(ws, urges) && has(ws, reads) || len(ws) > 0 && ws[0] == "cat" {
			c.find("instruct.secret_file", Quarantine, where, fmt.Sprintf("it urges the model to read credentials: %s", shown(sentence)))
			return
		}
	}
}

// sends: the model is told to send to an address that stands in the text.
func (c *checker) sends(ws []string, sentence, where string) {
	for i, w := range ws {
		if !sends[w] {
			continue
		}
		for k := i + 1; k < len(ws) && k <= i+10; k++ {
			switch {
			case isMail(ws[k]) && (has(ws, insist) || has(ws, redirects)):
			case isURL(ws[k]) && (has(ws[:i], insist) || has(ws[i+1:], insist) || w == "bcc"):
			default:
				continue
			}
			sev := Quarantine
			if isURL(ws[k]) && w != "bcc" && w != "forward" && w != "upload" {
				sev = Note // an API names its own address
			}
			c.find("instruct.send", sev, where, fmt.Sprintf("it tells the model where to send something: %s", shown(sentence)))
			return
		}
	}
}

func isMail(w string) bool {
	at := strings.IndexByte(w, '@')
	return at > 0 && strings.IndexByte(w[at:], '.') > 1 && !strings.Contains(w, "example.") && !strings.Contains(w, "/")
}

func isURL(w string) bool {
	return strings.HasPrefix(w, "http:") || strings.HasPrefix(w, "https:")
}

// others: the text speaks of another server's tool.
func (c *checker) others(text string, ws []string, sentence, where string) {
	if c.known == nil {
		return
	}
	for _, w := range ws {
		if len(w) < 5 || !strings.ContainsAny(w, "_-.") {
			continue // an ordinary word
		}
		server := c.known.another(c.def.Server, w)
		if server == "" {
			continue
		}
		sev := Note
		if has(ws, urges) || has(ws, insist) || has(ws, replaces) {
			sev = Quarantine
		}
		c.find("shadow.mention", sev, where, fmt.Sprintf("it speaks of %q, a tool of server %q: %s", w, server, shown(sentence)))
	}
}

func has(ws []string, of set) bool {
	for _, w := range ws {
		if of[w] {
			return true
		}
	}
	return false
}

// flatten is a text as a model reads it: without what does not show, in small
// Latin letters.
func flatten(s string) string {
	if !plain(s) {
		s = norm.NFKC.String(s)
	}
	return strings.Map(func(r rune) rune {
		if r < 0x80 {
			return unicode.ToLower(r)
		}
		if rule, _ := hiddenRule('a', r, 'a'); strings.HasPrefix(rule, "hidden.") && rule != "hidden.private" {
			return -1
		}
		switch r {
		case '’', '‘':
			return '\''
		}
		return confusable(unicode.ToLower(r))
	}, s)
}

// sentences yields the sentences of a text. A full stop ends one only before a
// blank: paths and addresses have them inside.
func sentences(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		from := 0
		for i := 0; i < len(s); i++ {
			end := false
			switch s[i] {
			case '!', '?', ';':
				end = true
			case '.':
				end = i+1 == len(s) || s[i+1] == ' ' || s[i+1] == '\n'
			case '\n':
				end = i+1 < len(s) && (s[i+1] == '\n' || s[i+1] == '-' || s[i+1] == '*')
			}
			if end {
				if !yield(s[from:i]) {
					return
				}
				from = i + 1
			}
		}
		if from < len(s) {
			yield(s[from:])
		}
	}
}

// split cuts a sentence into words; addresses and names of tools stay whole.
func split(s string) []string {
	fields := strings.FieldsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 0x80 || strings.ContainsRune("_-.@/:'~", r))
	})
	out := make([]string, 0, len(fields))
	for _, f := range fields {
		f = strings.Trim(f, "-.:/'~")
		if !isURL(f) && strings.IndexByte(f, '/') > 0 && strings.IndexByte(f, '.') < 0 {
			// "read/write" is two words.
			for _, part := range strings.Split(f, "/") {
				if part = bare(part); part != "" {
					out = append(out, part)
				}
			}
			continue
		}
		if f = bare(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}

// bare is a word without apostrophes: don't is dont, the user's is users.
func bare(w string) string {
	if strings.IndexByte(w, '\'') >= 0 {
		return strings.ReplaceAll(w, "'", "")
	}
	return w
}
