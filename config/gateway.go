package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cordon-sandbox/cordon"
)

// Gateway is what the MCP gateway serves, and to whom. Without tokens nobody
// may use it.
type Gateway struct {
	// Listen is "host:port", the host an address or a name.
	Listen string
	// AllowedHosts and AllowedOrigins are further values of the headers Host
	// and Origin ("https://host[:port]") that are served.
	AllowedHosts, AllowedOrigins []string
	Limits                       GatewayLimits
	Servers                      []GatewayServer
	Tokens                       []GatewayToken
}

// GatewayLimits bound one gateway; each is greater than zero.
type GatewayLimits struct {
	// BodyBytes and HeaderBytes are of one request.
	BodyBytes, HeaderBytes int64
	// Concurrent is how many requests, Sessions how many sessions at once.
	Concurrent, Sessions int64
	// Timeout ends one request.
	Timeout time.Duration
}

// GatewayServer is one upstream server.
type GatewayServer struct {
	// Name is 1 to 64 letters, digits, '.', '_' and '-', unique without regard
	// to case, not dots only.
	Name string
	// Transport is "stdio", "http" (streamable) or "sse" (as of 2024-11-05).
	Transport string
	// Command, Env and Sandbox are of stdio: the program and its arguments,
	// variables set for it, and its walls, "native" or "none". EnvFrom names
	// variables of Cordon's own environment that it gets too.
	Command []string
	Env     map[string]string
	EnvFrom []string
	Sandbox string
	// URL and Headers are of http and sse. HeadersEnv maps a header to the
	// variable that holds its value, Headers to that value.
	URL        string
	HeadersEnv map[string]string
	Headers    map[string]Secret
}

// GatewayToken is a bearer token and what it makes of its bearer.
type GatewayToken struct {
	// TokenEnv names the variable that holds the token; empty where the file
	// has its hash.
	TokenEnv string
	// SHA256 is the hex SHA-256 of the token. Empty: the variable holds none,
	// or one that is too short, and nobody has this token.
	SHA256 string
	// Tenant, Agent and User may be empty. Tier is student where the file has
	// none, and Profile empty, which is the configuration's.
	Tenant, Agent, User string
	Tier                cordon.Tier
	Profile             string
	// Workspace is an absolute path, or empty.
	Workspace string
	// Servers are those that it may call; nil is all of them.
	Servers []string
	// AsksItsUser: a person may be asked through its client.
	AsksItsUser bool
}

// MinToken is the least length of a bearer token in bytes.
const MinToken = 16

// Gateway is what the gateway serves, as a copy.
func (c *Config) Gateway() Gateway {
	g := c.v.gateway
	g.AllowedHosts, g.AllowedOrigins = slices.Clone(g.AllowedHosts), slices.Clone(g.AllowedOrigins)
	g.Tokens, g.Servers = slices.Clone(g.Tokens), slices.Clone(g.Servers)
	for i := range g.Servers {
		s := &g.Servers[i]
		s.Command, s.EnvFrom = slices.Clone(s.Command), slices.Clone(s.EnvFrom)
		s.Env, s.HeadersEnv, s.Headers = maps.Clone(s.Env), maps.Clone(s.HeadersEnv), maps.Clone(s.Headers)
	}
	return g
}

func documentedGateway() Gateway {
	return Gateway{
		Listen: "127.0.0.1:7788",
		Limits: GatewayLimits{BodyBytes: 4 << 20, HeaderBytes: 64 << 10, Concurrent: 1024, Sessions: 4096, Timeout: 120 * time.Second},
	}
}

func gatewaySettings() []setting {
	return []setting{
		{name: "gateway.listen", form: form{kind: address},
			set: func(v *values, s string, _ places) (err error) {
				v.gateway.Listen, err = parseListen(s)
				return err
			},
			show: func(v *values) string { return v.gateway.Listen }},
		names("gateway.allowed_hosts", "", func(v *values) *[]string { return &v.gateway.AllowedHosts }),
		{name: "gateway.allowed_origins", form: form{kind: webOrigin, many: true}, add: func(v *values, list []string, _ places) error {
			for _, s := range list {
				if err := checkOrigin(s); err != nil {
					return err
				}
				appendNew(&v.gateway.AllowedOrigins, s)
			}
			return nil
		}, show: func(v *values) string { return joined(v.gateway.AllowedOrigins) }},
		scaled("gateway.max_body_mb", 20, 1024, func(v *values) *int64 { return &v.gateway.Limits.BodyBytes }),
		scaled("gateway.max_header_kb", 10, 1024, func(v *values) *int64 { return &v.gateway.Limits.HeaderBytes }),
		whole("gateway.max_concurrent", "", 1, 1_000_000, func(v *values) *int64 { return &v.gateway.Limits.Concurrent }),
		whole("gateway.max_sessions", "", 1, 1_000_000, func(v *values) *int64 { return &v.gateway.Limits.Sessions }),
		seconds("gateway.timeout_seconds", "", func(v *values) *duration { return &v.gateway.Limits.Timeout }),
		{name: "gateway.servers", form: form{kind: items, fields: serverFields, rule: serverRule}, node: (*loader).gatewayServers, show: func(v *values) string {
			var list []string
			for _, s := range v.gateway.Servers {
				list = append(list, s.Name)
			}
			return joined(list)
		}},
		{name: "gateway.tokens", form: form{kind: items, fields: tokenFields, rule: tokenRule}, node: (*loader).gatewayTokens, show: func(v *values) string {
			if len(v.gateway.Tokens) == 0 {
				return ""
			}
			return fmt.Sprintf("%d set", len(v.gateway.Tokens))
		}},
	}
}

// scaled is a whole number of units of 2^shift bytes.
func scaled(name string, shift int, most int64, field func(*values) *int64) setting {
	return setting{name: name, form: form{kind: wholeNumber, least: 1, most: float64(most)},
		set: func(v *values, s string, _ places) error {
			n, err := parseWhole(s, 1, most)
			if err == nil {
				*field(v) = n << shift
			}
			return err
		},
		show: func(v *values) string { return strconv.FormatInt(*field(v)>>shift, 10) }}
}

func parseListen(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || strconv.FormatUint(n, 10) != port || host == "" || badText(s) {
		return "", wantError{s, `"host:port"; "0.0.0.0:port" is every address`}
	}
	return s, nil
}

// checkOrigin wants an origin as browsers send it.
func checkOrigin(s string) error {
	scheme, host, ok := strings.Cut(s, "://")
	if !ok || checkName(s) != nil || scheme != "http" && scheme != "https" || host == "" || strings.ContainsAny(host, "/?#@* ") || strings.ToLower(s) != s {
		return wantError{s, `an origin like "https://host" or "http://host:port", in lower case`}
	}
	return nil
}

func parseServerName(s string) (string, error) {
	ok := s != "" && len(s) <= 64 && strings.Trim(s, ".") != ""
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		ok = ok && (letter || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return "", wantError{s, "1 to 64 letters, digits, '.', '_' and '-'"}
	}
	return s, nil
}

func (l *loader) gatewayServers(key string, n *yaml.Node) {
	l.items(key, n, func(at string, item *yaml.Node) {
		s := l.gatewayServer(at, item)
		l.checkServer(at, item, &s)
		l.v.gateway.Servers = append(l.v.gateway.Servers, s)
	})
}

func (l *loader) gatewayServer(at string, item *yaml.Node) (s GatewayServer) {
	l.pairs(item, at+".", fieldNames(serverFields), func(sub string, value *yaml.Node) {
		full := at + "." + sub
		switch sub {
		case "name":
			l.one(&s.Name, full, value, parseServerName)
		case "transport":
			l.one(&s.Transport, full, value, func(t string) (string, error) { return oneOf(t, "stdio", "http", "sse") })
		case "sandbox":
			l.one(&s.Sandbox, full, value, func(t string) (string, error) { return oneOf(t, "native", "none") })
		case "url":
			l.one(&s.URL, full, value, parseURL)
		case "command":
			words, err := list(value)
			if err == nil {
				err = command(&s.Command, words)
			}
			if err != nil {
				l.failAt(value, full, err)
			}
		case "env":
			s.Env = l.stringMap(full, value, parseVariable, plainText)
		case "env_from":
			for _, name := range l.nameList(full, value) {
				if _, err := parseVariable(name); err != nil {
					l.failAt(value, full, err)
				}
				appendNew(&s.EnvFrom, name)
			}
		case "headers_env":
			s.HeadersEnv = l.stringMap(full, value, parseHeader, parseVariable)
			s.Headers = map[string]Secret{}
			for header, variable := range s.HeadersEnv {
				s.Headers[header] = l.secret(variable)
			}
		}
	})
	return s
}

// checkServer looks at what the keys of a server are together. What is not of
// its transport would be taken for something that holds.
func (l *loader) checkServer(at string, n *yaml.Node, s *GatewayServer) {
	stdio := s.Transport == "stdio"
	twice := slices.ContainsFunc(l.v.gateway.Servers, func(o GatewayServer) bool { return strings.EqualFold(o.Name, s.Name) })
	var want string
	switch {
	case s.Name == "" || s.Transport == "":
		want = "a name and a transport"
	case twice:
		want = "each name once, also in another case"
	case stdio && len(s.Command) == 0:
		want = "a command with transport stdio"
	case stdio && (s.URL != "" || s.HeadersEnv != nil):
		want = "neither url nor headers_env with transport stdio"
	case !stdio && s.URL == "":
		want = "a url with transport " + s.Transport
	case !stdio && (s.Command != nil || s.Env != nil || s.EnvFrom != nil || s.Sandbox != ""):
		want = "no command, env, env_from or sandbox with transport " + s.Transport
	case len(s.HeadersEnv) > 0 && clearText(s.URL):
		want = "an https url with headers_env, as secrets are sent there"
	}
	if want != "" {
		l.failAt(n, at, wantError{s.Name, want})
	}
	if stdio && s.Sandbox == "" {
		s.Sandbox = "native" // weaker is to be asked for
	}
}

func plainText(s string) (string, error) {
	if badText(s) {
		return "", secretError{}
	}
	return s, nil
}

func parseHeader(s string) (string, error) {
	ok := s != "" && len(s) <= 128
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		ok = ok && (letter || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok || slices.Contains(ownHeaders(), strings.ToLower(s)) {
		return "", wantError{s, "the name of a header that is not the connection's own"}
	}
	return s, nil
}

// ownHeaders are the connection's own.
func ownHeaders() []string {
	return []string{"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
}

// stringMap reads a mapping of single values.
func (l *loader) stringMap(key string, n *yaml.Node, name, value func(string) (string, error)) map[string]string {
	m := map[string]string{}
	l.pairs(n, key+".", nil, func(k string, v *yaml.Node) {
		if _, err := name(k); err != nil {
			l.failAt(v, key, err)
			return
		}
		var s string
		l.one(&s, key+"."+k, v, value)
		m[k] = s
	})
	return m
}

func (l *loader) gatewayTokens(key string, n *yaml.Node) {
	l.items(key, n, func(at string, item *yaml.Node) {
		t := l.gatewayToken(at, item)
		if (t.TokenEnv == "") == (t.SHA256 == "") {
			l.failAt(item, at, wantError{t.TokenEnv, "either token_env or sha256"})
			return
		}
		if t.TokenEnv != "" {
			if token := l.env(t.TokenEnv); len(token) >= MinToken {
				sum := sha256.Sum256([]byte(token))
				t.SHA256 = hex.EncodeToString(sum[:])
			}
		}
		if t.SHA256 != "" && slices.ContainsFunc(l.v.gateway.Tokens, func(o GatewayToken) bool { return o.SHA256 == t.SHA256 }) {
			l.failAt(item, at, wantError{t.TokenEnv, "each token once: whose it is must be certain"})
		}
		l.v.gateway.Tokens = append(l.v.gateway.Tokens, t)
	})
}

func (l *loader) gatewayToken(at string, item *yaml.Node) (t GatewayToken) {
	l.pairs(item, at+".", fieldNames(tokenFields), func(sub string, value *yaml.Node) {
		full := at + "." + sub
		switch sub {
		case "token_env":
			l.one(&t.TokenEnv, full, value, parseVariable)
		case "sha256":
			l.one(&t.SHA256, full, value, parseSHA256)
		case "tenant":
			l.one(&t.Tenant, full, value, parseRunName)
		case "agent":
			l.one(&t.Agent, full, value, parseRunName)
		case "user":
			l.one(&t.User, full, value, parseRunName)
		case "tier":
			if p := single(l, full, value, parseTier); p != nil {
				t.Tier = *p
			}
		case "profile":
			l.one(&t.Profile, full, value, func(s string) (string, error) { return oneOf(s, Profiles()...) })
		case "workspace":
			l.one(&t.Workspace, full, value, l.places.path)
		case "servers":
			t.Servers = []string{} // an empty list permits none
			for _, name := range l.nameList(full, value) {
				if _, err := parseServerName(name); err != nil {
					l.failAt(value, full, err)
				}
				appendNew(&t.Servers, name)
			}
		case "asks_its_user":
			if p := single(l, full, value, parseBool); p != nil {
				t.AsksItsUser = *p
			}
		}
	})
	return t
}

func parseRunName(s string) (string, error) {
	if checkName(s) != nil || len(s) > maxTenantName {
		return "", wantError{s, fmt.Sprintf("a name of at most %d bytes without control characters", maxTenantName)}
	}
	return s, nil
}

// parseSHA256 does not show what stands in its place, which may be the token.
func parseSHA256(s string) (string, error) {
	if b, err := hex.DecodeString(s); err != nil || len(b) != sha256.Size {
		return "", hashError{}
	}
	return strings.ToLower(s), nil
}

type hashError struct{}

func (hashError) Error() string { return "value (want the 64 hex digits of the token's SHA-256)" }

// gatewayNotes are about tokens that nobody has.
func (l *loader) gatewayNotes() []string {
	var list []string
	for i, t := range l.v.gateway.Tokens {
		if t.SHA256 == "" {
			list = append(list, fmt.Sprintf("gateway.tokens[%d]: %s holds no token of at least %d characters, so that nobody has it.", i, t.TokenEnv, MinToken))
		}
	}
	return list
}
