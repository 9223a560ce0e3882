package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Tokens are put together here, so that no scanner of repositories takes
// the examples for real ones.
var (
	digits  = "0f1e2d3c4b5a69788796"
	ghToken = "gh" + "p_" + digits + "ABCDefgh"
	skToken = "s" + "k-proj-" + digits + "ZZZ"
	awsID   = "AK" + "IA" + "Q3EGRZX7TOYHB2KD"
	jwt     = "ey" + "JhbGciOiJIUzI1NiJ9" + ".ey" + "JzdWIiOiI0MiJ9" + ".c2lnbmF0dXJl"
	pem     = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----"
)

func TestA2DetailsHoldNoSecret(t *testing.T) {
	const r = Mark
	tests := []struct{ name, in, want string }{
		{"assignment of a variable", "export FOO_TOKEN=zebra4", "export FOO_TOKEN=" + r},
		{"assignment in quotes", `DB_PASSWORD="two words" make`, `DB_PASSWORD="` + r + `" make`},
		{"flag with =", "tool --password=zebra --x", "tool --password=" + r + " --x"},
		{"flag with a blank", "tool --password zebra --x", "tool --password " + r + " --x"},
		{"flag of an API key with a blank", "tool --api-key zeb4ra9", "tool --api-key " + r},
		{"key as a query value", "https://x.example/q?key=abcdef&page=2", "https://x.example/q?key=" + r + "&page=2"},
		{"token before a fragment", "https://x.example/q?access_token=abcdef#top", "https://x.example/q?access_token=" + r + "#top"},
		{"signature in a query", "https://x.example/q?sig=a8Kd92jX0slQp3Zm", "https://x.example/q?sig=" + r},
		{"password in a URL", "postgres://bob:hunter2@db.example/x", "postgres://bob:" + r + "@db.example/x"},
		{"password in a URL whose path was cleaned", "\"/srv/postgres:/bob:hunter2@db.example/x\" is out of scope", "\"/srv/postgres:/bob:" + r + "@db.example/x\" is out of scope"},
		{"cleaned URL without a user", "/srv/redis:/:zebra@cache:6379", "/srv/redis:/:" + r + "@cache:6379"},
		{"password with a slash in a URL", "postgres://bob:hun/ter2@db.example/x", "postgres://bob:" + r + "@db.example/x"},
		{"token as a URL's user", "https://" + digits + "@git.example/x", "https://" + r + "@git.example/x"},
		{"bearer header", "Authorization: Bearer abc", "Authorization: Bearer " + r},
		{"bearer header in a curl command", `curl -H "Authorization: Bearer abc" x.example`, `curl -H "Authorization: Bearer ` + r + `" x.example`},
		{"bearer without a header", "sent Bearer a1b2c3d4 along", "sent Bearer " + r + " along"},
		{"lower-case bearer", "authorization: bearer a1b2c3d4", "authorization: bearer " + r},
		{"basic without a header", "Basic Ym9iOmh1bnRlcjI=", "Basic " + r},
		{"cookie header takes all of the line", "Cookie: a=1; b=2\nHost: x", "Cookie: " + r + "\nHost: x"},
		{"JSON in text", `{"api_key": "zebra", "n": 1}`, `{"api_key": "` + r + `", "n": 1}`},
		{"JSON in JSON in text", `"{\"password\": \"zebra\", \"n\": 1}"`, `"{\"password\": \"` + r + `\", \"n\": 1}"`},
		{"YAML", "password: zebra", "password: " + r},
		{"dict literal", "{'secret': 'zebra'}", "{'secret': '" + r + "'}"},
		{"subscript", `os.environ["API_TOKEN"] = "zebra"`, `os.environ["API_TOKEN"] = "` + r + `"`},
		{"comparison with a literal", `if password == "zebra"`, `if password == "` + r + `"`},
		{"tuple", `[("password", "zebra"), ("n", "1")]`, `[("password", "` + r + `"), ("n", "1")]`},
		{"SQL", "WHERE password = 'zebra' AND x", "WHERE password = '" + r + "' AND x"},
		{"GitHub token", "push " + ghToken + " now", "push " + r + " now"},
		{"sk token", "use " + skToken, "use " + r},
		{"AWS id", "id " + awsID + ".", "id " + r},
		{"JWT", "see " + jwt + " ok", "see " + r + " ok"},
		{"private key", "a " + pem + " b", "a -----BEGIN OPENSSH PRIVATE KEY-----" + r + "-----END OPENSSH PRIVATE KEY----- b"},
		{"private key cut off", pem[:50], pem[:35] + r},
		{"mysql -p", "mysql -u root -pzebra db", "mysql -u root -p" + r + " db"},
		{"curl -u", "curl -u bob:zebra x.example", "curl -u bob:" + r + " x.example"},
		{"sshpass", "sshpass -p zebra ssh h", "sshpass -p " + r + " ssh h"},
		{"value beside the name", "aws configure set aws_secret_access_key wJalrXUtnFEMIK7MDENGbPx", "aws configure set aws_secret_access_key " + r},
		{"scheme after another name", "token: Bearer zebra", "token: Bearer " + r},
		{"scheme after =", "Authorization=Bearer zebra", "Authorization=Bearer " + r},
		{"registry login", "docker login -u bob -p zebra r.example", "docker login -u bob -p " + r + " r.example"},
		{"Redis URL without a user", "redis://:zebra@cache:6379/0", "redis://:" + r + "@cache:6379/0"},
		{"signed query", "https://x.example/?X-Amz-Signature=0a1b2c3d4e5f6071829&X-Amz-Expires=30", "https://x.example/?X-Amz-Signature=" + r + "&X-Amz-Expires=30"},
		{"npmrc", "//reg.example/:_authToken=zebra", "//reg.example/:_authToken=" + r},
		{"netrc", "machine x login bob password zebra99", "machine x login bob password " + r},
		{"connection string", "Server=y;Password=zebra;User=x", "Server=y;Password=" + r + ";User=x"},
		{"prose", "the password is hunter2.", "the password is " + r},
		{"token of an ordinary name in camel case", "accessToken=zebra", "accessToken=" + r},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := RedactText(tt.in)
			if got != tt.want {
				t.Errorf("RedactText(%q)\n got %q\nwant %q", tt.in, got, tt.want)
			}
			if again := RedactText(got); again != got {
				t.Errorf("twice: %q", again)
			}
		})
	}
}

func TestA3WhatIsNoSecretStays(t *testing.T) {
	for _, s := range []string{
		"author=bob", "author: \"Bob Zebra99\"", "keyboard=qwerty1", "monkey: banana7", "tokenizer=bpe12",
		"max_tokens=4096", "maxTokens: 4096", "keywords=a,b,c9", "primary_key=id9", "sort_key=name2", "next_page_token=abc123",
		"public_key: abc123", "password_file=/run/x", "token_type=bearer", "secret_name=db/main", "PWD=/home/bob",
		"export FOO_TOKEN=$OTHER_TOKEN", `--password="${DB_PASSWORD}"`, "api_key=os.environ.get('X')", "token=$(cat f)",
		"token = get_token()", "password: string, token: str", "syntax error: missing token: expected", "the bearer of good news came",
		"basic authentication required", "mkdir -p build/out", "docker run -p 8080:80 x", "ssh -p2222 host", "mysql -P3306 -p db",
		"credentials: /home/bob/.aws/credentials", "cat ~/.aws/credentials; ls", "https://x.example:8443/a@b", "git@github.com:a/b.git",
		"https://x.example/q?page=2&sort=key", "sk-learn", "commit 3f786850e387550fdab836ed7e6dc881de23001b", "password reset mail sent",
		"secret manager", "grep -n token: src/lexer.go", "monkeypatch", "keyless entry", "-----BEGIN CERTIFICATE-----\nMIIB\n",
		"if token == nil {", `if key == "Enter"`, "const key = event.key", `rg "token:" lexer/`, "the key: press Enter",
		"docker run --login x -p 80:80 y", "ssh://git@git.example:22/r.git", "scp build.tgz bob@host:/srv/app/v1:b", "docker run -v /src:/work:ro img@sha256:ab", "C:/Users/bob", "https:/x.example/a@b", `argument "password" has the wrong type: want string`,
		"for key in keys: print(key)", `tool "get_token" is not whitelisted`, "host api.token.example:443 is not allowed", "SELECT password FROM users", "Authorization: $HEADER", "pass the salt",
	} {
		if got := RedactText(s); got != s {
			t.Errorf("RedactText(%q) = %q", s, got)
		}
	}
}

func TestA3NamesAreJudgedByTheirWords(t *testing.T) {
	for level, names := range map[nameLevel]string{
		secretName: "api_key apiKey APIKey X-Api-Key x-auth-token password2 db.password DB_PASS userPwd pass_phrase seedPhrase " +
			"private_key_pem cookies session_token id_token access_tokens ssh_key signing_key AWS_SECRET_ACCESS_KEY key token " +
			"dbpassword myapikey PROXY_AUTHORIZATION client-secret bearer",
		doubtful: "tokens keys sig signature session",
		plainName: "keyboard author authority tokenizer token_count key_value keyFile nextPageToken max_tokens maxTokens public_key " +
			"primaryKey sort_key key_id secretary passport compass bypass hotkey keystore passwordless keyPath object_key monkey " +
			"keywords password_file secret_name PWD token_type",
	} {
		for _, n := range strings.Fields(names) {
			if got := classify(n); got != level {
				t.Errorf("classify(%q) = %d, want %d", n, got, level)
			}
		}
	}
}

func parse(t testing.TB, s string) *strictjson.Value {
	t.Helper()
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return &v
}

func TestA3ArgumentsAreRedactedByNameAndShape(t *testing.T) {
	const r = `"` + Mark + `"`
	tests := []struct{ name, in, want string }{
		{"members are sorted", `{"b":1,"a":"x"}`, `{"a":"x","b":1}`},
		{"key", `{"key":"zebra"}`, `{"key":` + r + `}`},
		{"number under a secret name", `{"password":1234}`, `{"password":` + r + `}`},
		{"all below a secret name", `{"credentials":{"user":"bob","x":["y",true,null]}}`, `{"credentials":{"user":` + r + `,"x":[` + r + `,true,null]}}`},
		{"nested in lists", `{"a":[{"apiKey":"zebra"}]}`, `{"a":[{"apiKey":` + r + `}]}`},
		{"pair of a list", `{"headers":[["Authorization","zebra"],["Host","x"]]}`, `{"headers":[["Authorization",` + r + `],["Host","x"]]}`},
		{"flat list of pairs", `["token","zebra","n","1"]`, `["token",` + r + `,"n","1"]`},
		{"pair as an object", `[{"name":"X-Api-Key","value":"zebra"}]`, `[{"name":"X-Api-Key","value":` + r + `}]`},
		{"pair with key as the name", `[{"key":"X-Api-Key","value":"zebra"},{"key":"Host","value":"x"}]`, `[{"key":"X-Api-Key","value":` + r + `},{"key":` + r + `,"value":"x"}]`},
		{"argument vector", `["tool","--password","zebra","-v"]`, `["tool","--password",` + r + `,"-v"]`},
		{"argument vector with =", `["tool","--token=zebra"]`, `["tool","--token=` + Mark + `"]`},
		{"argument vector of mysql", `["/usr/bin/mysql","-pzebra"]`, `["/usr/bin/mysql","-p` + Mark + `"]`},
		{"argument vector of curl", `["curl","-u","bob:zebra"]`, `["curl","-u",` + r + `]`},
		{"reference stays", `{"password":"$DB_PASSWORD"}`, `{"password":"$DB_PASSWORD"}`},
		{"secret as a key", `{"` + ghToken + `":1}`, `{"` + Mark + `":1}`},
		{"session that looks random", `{"session":"a8Kd92jX0slQp3Zm"}`, `{"session":` + r + `}`},
		{"ordinary", `{"author":"a","max_tokens":5,"primary_key":"id","keywords":["k"],"file_path":"/x","tokens":["a"]}`,
			`{"author":"a","file_path":"/x","keywords":["k"],"max_tokens":5,"primary_key":"id","tokens":["a"]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendRedacted(nil, parse(t, tt.in))); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestArgsHashTellsNoSecretAndNoOrder(t *testing.T) {
	a := ArgsHash(parse(t, `{"token":"one","path":"/x"}`))
	if b := ArgsHash(parse(t, `{"path":"/x","token":"two"}`)); a != b {
		t.Error("the hash depends on the secret or on the order of members")
	}
	if c := ArgsHash(parse(t, `{"path":"/y","token":"one"}`)); a == c {
		t.Error("another path has the same hash")
	}
	if len(a) != 64 {
		t.Errorf("length %d", len(a))
	}
}

func FuzzRedactText(f *testing.F) {
	for _, s := range []string{"password=x", "Authorization: Bearer abc", pem, "postgres://a:b@c", "mysql -px", `{"key":"v"}`, `sig="\"`, jwt, "key=$(", "('token', 'x')", "cookie:/", Mark + Mark} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := RedactText(s)
		if twice := RedactText(once); twice != once {
			t.Errorf("%q → %q → %q", s, once, twice)
		}
	})
}

func FuzzAppendRedacted(f *testing.F) {
	for _, s := range []string{`{"key":"a","b":[["token","x"]]}`, `["-p","x"]`, `{"name":"key","value":{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := strictjson.Parse(b)
		if err != nil {
			return
		}
		out := AppendRedacted(nil, &v)
		for _, c := range out {
			if c < ' ' {
				t.Fatalf("control byte in %q", out)
			}
		}
	})
}

// Each of these makes a naive reading start anew at every name. The figures
// per byte must not grow with the size.
func BenchmarkRedactTextHostile(b *testing.B) {
	for _, unit := range []string{"sig=", "key=$(", "cookie:/", "eyJ-", "AKIA.", "://a:b", ":/a:b", " -p", "mysql -p", "password ", `sig="\`,
		"--secret", "Bearer ", "-----BEGIN PRIVATE KEY", "key: ", "('key',"} {
		for _, size := range []int{64 << 10, 512 << 10} {
			s := strings.Repeat(unit, size/len(unit))
			b.Run(fmt.Sprintf("%q/%dKiB", unit, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(s)))
				for b.Loop() {
					RedactText(s)
				}
			})
		}
	}
}

func BenchmarkArgsHash(b *testing.B) {
	for _, bb := range []struct{ name, in string }{
		{"short", `{"file_path":"/home/bob/proj/src/main.go","limit":200}`},
		{"edit", `{"file_path":"/home/bob/proj/src/main.go","old_string":"if err != nil {\n\treturn err\n}","new_string":"if err != nil {\n\treturn fmt.Errorf(\"read: %w\", err)\n}"}`},
		{"secret", `{"command":"curl -H 'Authorization: Bearer abcdef123456' https://x.example/q?key=abc"}`},
		{"1MB", `{"content":"` + strings.Repeat("the quick brown fox = key value. ", 32000) + `"}`},
	} {
		v := parse(b, bb.in)
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.in)))
			for b.Loop() {
				ArgsHash(v)
			}
		})
	}
}
