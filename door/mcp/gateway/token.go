package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// Identity is who a token stands for. Its runs are judged by it.
type Identity struct {
	// Name tells identities apart, in logs and limits: 1 to 64 letters, digits,
	// '.', '_' and '-'.
	Name                string
	Tenant, Agent, User string
	Tier                cordon.Tier
	Profile             string
	// Workspace is the directory that its runs work in; empty is Config's.
	Workspace string
	// Servers are those that may be called; "*" is all of them.
	Servers []string
	// NoElicitation: proposals are never shown to the client of this token. It
	// belongs to agents that hold their token themselves.
	NoElicitation bool
}

// Token is an identity and the hash of the secret that proves it.
type Token struct {
	Identity
	// Hash is the hex SHA-256 of the secret, with or without "sha256:".
	Hash string
}

// tokenPrefix marks a secret as one of Cordon's, for scanners.
const tokenPrefix = "cordon_"

// NewSecret returns a random secret, and the hash of it to configure.
func NewSecret() (secret, hash string) {
	secret = tokenPrefix + strings.ToLower(rand.Text()+rand.Text()[:6])
	return secret, HashSecret(secret)
}

// HashSecret is the hash of a secret as Token.Hash has it. Secrets are random
// and long, so that a plain hash holds.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// authority tells who calls.
type authority struct {
	tokens []credential
	nobody *Identity
}

type credential struct {
	sum [sha256.Size]byte
	who *Identity
}

func newAuthority(cfg Config, servers map[string]*upstream) (authority, error) {
	var a authority
	if len(cfg.Tokens) == 0 && cfg.Anonymous == nil {
		return a, errors.New("gateway: no tokens (want at least one, or anonymous access spelled out)")
	}
	names := map[string]bool{}
	sums := map[string]bool{}
	check := func(id *Identity) error {
		if !validIdentity(id.Name) || names[id.Name] {
			return fmt.Errorf("gateway: token name %q (want 1 to 64 letters, digits, '.', '_' and '-', each once)", id.Name)
		}
		names[id.Name] = true
		if len(id.Servers) == 0 {
			return fmt.Errorf("gateway: token %q names no servers (want names, or \"*\")", id.Name)
		}
		for _, s := range id.Servers {
			if s != "*" && servers[s] == nil {
				return fmt.Errorf("gateway: token %q names the unknown server %q", id.Name, s)
			}
		}
		return nil
	}
	for i := range cfg.Tokens {
		t := cfg.Tokens[i] // a copy: the configuration is immutable from here on
		if err := check(&t.Identity); err != nil {
			return a, err
		}
		raw, err := hex.DecodeString(strings.TrimPrefix(t.Hash, "sha256:"))
		if err != nil || len(raw) != sha256.Size {
			return a, fmt.Errorf("gateway: token %q: its hash is no hex SHA-256 (cordon gateway token makes one)", t.Name)
		}
		if sums[string(raw)] {
			return a, fmt.Errorf("gateway: token %q has the secret of another", t.Name)
		}
		sums[string(raw)] = true
		a.tokens = append(a.tokens, credential{[sha256.Size]byte(raw), &t.Identity})
	}
	if cfg.Anonymous != nil {
		id := *cfg.Anonymous
		if id.Name == "" {
			id.Name = "anonymous"
		}
		if err := check(&id); err != nil {
			return a, err
		}
		a.nobody = &id
	}
	return a, nil
}

func validIdentity(s string) bool {
	return len(s) > 0 && len(s) <= 64 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) < 0
}

// identify returns who sent r, or nil. All tokens are compared, each in
// constant time, whichever fits.
func (a *authority) identify(r *http.Request) *Identity {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return a.nobody
	}
	scheme, secret, ok := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || len(secret) > 1024 {
		return nil
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	var who *Identity
	for i := range a.tokens {
		if subtle.ConstantTimeCompare(sum[:], a.tokens[i].sum[:]) == 1 {
			who = a.tokens[i].who
		}
	}
	return who
}

func (id *Identity) may(server string) bool {
	for _, s := range id.Servers {
		if s == "*" || s == server {
			return true
		}
	}
	return false
}
