package tripwire

import (
	"strings"
	"testing"
)

const material = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"

func TestFindSecret(t *testing.T) {
	header, payload, signature := "eyJhbGciOiJFUzI1NiJ9", "eyJpc3MiOiJzaG9wIiwidWlkIjo0Mn0", "q8ZtR2vXk1LmN7pWc5Yb0Gd3Hf6Js9KaTe4Uw"
	rows := []struct {
		name, text string
		want       bool
	}{
		{"a GitHub token", "token " + fakeGitHub + ".", true},
		{"an AWS key in JSON", `{"k":"` + fakeAWS + `"}`, true},
		{"an OpenAI key", "sk-" + "proj-aB3dE5fG7hI9jK1lM2nO4pQ6", true},
		{"a Slack token", "xoxb-" + "2847502938-5830284756-kQ8rT2vXz1LmN7pW", true},
		{"a Stripe key", "sk_live_" + "9fK2mQ7xW4pL8vT3", true},
		{"a signed web token", "Bearer " + header + "." + payload + "." + signature, true},
		{"a private key block", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + material + "\n-----END OPENSSH PRIVATE KEY-----", true},
		{"a private key with escaped line ends", `"-----BEGIN PRIVATE KEY-----\n` + material + `\n-----END PRIVATE KEY-----"`, true},
		{"an assigned cloud key", "AWS_SECRET_ACCESS_KEY=" + "qN7vR2xLk9WmT4pYc8Zb1Gd5Hf0Js3KaUe6Xo/+w", true},
		{"an assigned password in JSON", `{"db_password": "` + `t7Rk2mQ9xW4pL8vTzB"}`, true},
		{"an assigned password of the environment", `DB_PASSWORD="` + `t7Rk2mQ9xW4pL8vTzB"`, true},
		{"a password by its plain name", "password: t7Rk2mQ9xW4pL8vTzB", true},
		{"the second of two tokens is real", "ghp_" + strings.Repeat("x", 36) + " " + fakeGitHub, true},

		{"a token of one letter", "ghp_" + strings.Repeat("x", 36), false},
		{"a counted token", "ghp_1234567890abcdefghijklmnopqrstuvwxyz12", false},
		{"the documentation's AWS key", "AKIAIOSFODNN7EXAMPLE", false},
		{"the documentation's AWS secret", "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", false},
		{"a stand-in", "GH_TOKEN=YOUR_TOKEN_GOES_HERE_42", false},
		{"a stand-in in angle brackets", "GH_TOKEN=<token>", false},
		{"a variable", "password=$DB_PASSWORD", false},
		{"a short password in prose", "password: hunter2", false},
		{"a style's name", "class sk-fading-circle-container-large", false},
		{"a word that ends in the prefix", "risk-aB3dE5fG7hI9jK1lM2nO4pQ6", false},
		{"an AWS key that is too long", fakeAWS + "A", false},
		{"a commit", "commit: 3f786850e387550fdab836ed7e6dc881de23001b", false},
		{"a certificate", "-----BEGIN CERTIFICATE-----\n" + material + "\n-----END CERTIFICATE-----", false},
		{"the frame of a private key", "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----", false},
		{"the documentation's web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + signature, false},
		{"half a web token", header + "." + payload, false},
		{"a path as a key's value", "CACHE_KEY=src/lib/v1/handlers/main_2", false},
		{"prose about tokens", "the token: it expires; a secret = something that you keep", false},
		{"nothing", "", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			shape, got := FindSecret(row.text)
			if got != row.want {
				t.Errorf("found %v (%s), want %v", got, shape, row.want)
			}
		})
	}
}

func FuzzFindSecret(f *testing.F) {
	for _, piece := range []string{"eyJ", "ghp_", "-----BEGIN PRIVATE KEY-----", "token=", "sk-", fakeGitHub, "a.b.", "password: \""} {
		f.Add(piece)
		f.Add(strings.Repeat(piece, 300))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, found := FindSecret(text); found && len(text) < 16 {
			t.Errorf("a secret in %q", text)
		}
		// What is found alone is found in a text around it.
		if _, found := FindSecret(text); found {
			if _, again := FindSecret("see\n" + text + "\n."); !again {
				t.Errorf("%q is found alone only", text)
			}
		}
	})
}

func BenchmarkFindSecret(b *testing.B) {
	line := "The build: 42 files, token count = 7, see https://docs.example/a?b=c for password rules.\n"
	text := strings.Repeat(line, 1024/len(line)+1)[:1024]
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, found := FindSecret(text); found {
			b.Fatal("found")
		}
	}
}
