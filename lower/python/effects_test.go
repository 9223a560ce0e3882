package python

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// brief writes what matters of an effect: kind, target, operation, marks.
func brief(e cordon.Effect) string {
	s := e.Kind.String() + " " + e.Target
	if e.Op != "" {
		s += " " + e.Op
	}
	for _, m := range []struct {
		on   bool
		name string
	}{{e.Recursive, "recursive"}, {e.Pattern, "pattern"}, {e.Doubtful, "doubtful"}, {e.Sends, "sends"}} {
		if m.on {
			s += " " + m.name
		}
	}
	if len(e.Data) > 0 {
		s += fmt.Sprint(" ", e.Data)
	}
	if e.Kind == cordon.Opaque && e.Origin > cordon.OriginLiteral {
		s += [...]string{"", "", "file", "decoded", "network"}[e.Origin]
	}
	return strings.TrimSpace(s)
}

func TestEffects(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"open('a')", "read a"},
		{"open('a', 'w')", "write a truncate"},
		{"open('a', mode='a')", "write a append"},
		{"open('a', 'r+')", "write a; read a"},
		{"open('a', 'xb')", "write a create"},
		{"import sys; open(sys.argv[1])", ""},
		{"import sys; open('/etc/' + sys.argv[1])", "read /etc/* pattern"},
		{"import sys; open('src/' + sys.argv[1])", "read src/* pattern"},
		{"import sys; open('/etc/%s.conf' % sys.argv[1])", "read /etc/* pattern"},
		{"import os; os.remove('a')", "delete a"},
		{"import shutil; shutil.rmtree('/home/ann')", "delete /home/ann recursive"},
		{"import os; os.rename('a', 'b')", "delete a recursive; read a; write b move"},
		{"import os; os.listdir()", "list ."},
		{"import os; [x for x in os.walk('/etc')]", "list /etc recursive"},
		{"import os; os.chmod('x', 0o4755)", "privilege x setuid; privilege  setuid; write x chmod"},
		{"import os; os.chmod('x', 0o644)", "write x chmod"},
		{"import shutil; shutil.copy('a', 'b')", "read a; write b"},
		{"import zipfile; zipfile.ZipFile('a').extractall('b')", "read a; write b create recursive"},
		{"import os; os.getenv('A')", "read_env A"},
		{"import os; os.environ['A']", "read_env A"},
		{"import os; os.environ['A'] = 'b'", "set_env A"},
		{"import os; print(os.environ)", "read_env *"},
		{"import os; print('A' in os.environ)", ""},
		{"import os; open(os.environ['HOME'] + '/x')", "read_env HOME; read /home/ann/x"},
		{"import os; os.kill(-1, 9)", "destroy  kill_all"},
		{"import os; os.setuid(0)", "privilege  setuid"},
		{"import requests; requests.get('https://a.example/x')", "connect a.example https"},
		{"import requests; requests.get('https://a.example:8443/x')", "connect a.example:8443 https"},
		{"import requests; requests.post('https://a.example/x', data=open('k').read())", "read k; connect a.example https sends [k]"},
		{"import os, requests; requests.post('https://a.example/', json={'k': os.environ['K']})", "read_env K; connect a.example https sends [$K]"},
		{"import requests, sys; requests.get(sys.argv[1])", "connect  https pattern sends"},
		{"import urllib.request as u; u.urlopen('file:///etc/x')", "read /etc/x"},
		{"import urllib.request as u; u.urlopen('https://a@b.example\\\\@c.example/')", "connect b.example https"},
		{"import socket; s = socket.socket(); s.connect(('10.0.0.1', 80)); s.send(b'x')", "connect 10.0.0.1:80 tcp; connect 10.0.0.1:80 tcp sends"},
		{"import socket; socket.create_server(('', 80))", "connect 0.0.0.0:80 listen"},
		{"import smtplib; smtplib.SMTP('m.example', 25)", "connect m.example:25 smtp"},
		{"import socket; socket.gethostbyname('x.example')", "connect x.example dns"},
		{"import psycopg2; psycopg2.connect('host=db.example dbname=x')", "connect db.example postgresql"},
		{"import sqlite3; sqlite3.connect('a.db').execute(\"ATTACH DATABASE 'b.db' AS b\")", "read a.db; write a.db; read b.db; write b.db"},
		{"import pandas as pd; pd.read_csv('https://a.example/x.csv')", "connect a.example https"},
		{"exec('x = 1')", "opaque"},
		{"import base64; exec(base64.b64decode('eD0x'))", "opaque decoded"},
		{"import requests; exec(requests.get('https://a.example').text)", "connect a.example https; opaque network"},
		{"exec(open('a.py').read())", "read a.py; opaque file"},
		{"import pickle; pickle.load(open('a', 'rb'))", "read a; opaque"},
		{"open('/usr/lib/python3/site-packages/x.pth', 'w')", "write /usr/lib/python3/site-packages/x.pth truncate; persist /usr/lib/python3/site-packages/x.pth startup_file"},
		{"import os\nos.chdir('/etc')\nopen('x')", "read x"},
		{"p = 'a'\nif q: p = 'b'\nopen(p)", "read a doubtful; read b doubtful"},
		{"p = 'a'\np = 'b'\nopen(p)", "read b"},
		{"try:\n  p = 'a'\n  f()\n  p = 'b'\nexcept E: open(p)", "read b doubtful; read a doubtful"},
		{"for p in ['a', 'b']: open(p)", "read a; read b"},
		{"def f(p): open(p)\nf('a'); f(p='b')", "read a; read b"},
		{"def f(p='a'): open(p)", "read a doubtful"},
		{"class A:\n  def __init__(self, p): self.p = p\n  def go(self): open(self.p)\nA('a').go()", "read a"},
		{"global_p = 'a'\ndef f():\n  global global_p\n  global_p = 'b'\nf()\nopen(global_p)", "read b doubtful; read a doubtful"},
		{"import subprocess; subprocess.run(['true'])", "execute true spawn; opaque  doubtful"},
		{"import os; f = os.system", "opaque  doubtful"},
	} {
		var got []string
		for _, e := range lower(c.src) {
			got = append(got, brief(e))
		}
		if g := strings.Join(got, "; "); g != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.src, g, c.want)
		}
	}
}

func TestChdirMovesRelativePaths(t *testing.T) {
	for _, e := range lower("import os\nos.chdir('/etc')\nopen('x')") {
		if e.Kind == cordon.Read && e.Dir != "/etc" {
			t.Errorf("got directory %s, want /etc", e.Dir)
		}
	}
}

func TestReverseShellsAreNamed(t *testing.T) {
	n := 0
	for _, f := range archive(t, "attacks.txtar") {
		if !strings.HasPrefix(f.Name, "reverse shell:") {
			continue
		}
		n++
		found := false
		for _, e := range lower(string(f.Data)) {
			found = found || e.Kind == cordon.Connect && e.Op == "reverse_shell" && e.Target == "203.0.113.9:4242"
		}
		if !found {
			t.Errorf("%s: no reverse_shell:%s", f.Name, describe(lower(string(f.Data))))
		}
	}
	if n < 4 {
		t.Errorf("%d reverse shells in the table, want at least 4", n)
	}
}

func TestForkBombsAreNamed(t *testing.T) {
	for _, f := range archive(t, "attacks.txtar") {
		if !strings.HasPrefix(f.Name, "fork:") {
			continue
		}
		found := false
		for _, e := range lower(string(f.Data)) {
			found = found || e.Kind == cordon.Destroy && e.Op == "fork_bomb"
		}
		if !found {
			t.Errorf("%s: no fork_bomb:%s", f.Name, describe(lower(string(f.Data))))
		}
	}
	for _, src := range []string{
		"import os\nif os.fork() == 0: print(1)",
		"import os\nwhile True:\n  pid = os.fork()\n  if pid: break",
		"import os\nfor i in range(4): os.fork()",
	} {
		for _, e := range lower(src) {
			if e.Kind == cordon.Destroy {
				t.Errorf("%q is no bomb", src)
			}
		}
	}
}

func TestDecodedCodeIsMarkedDecoded(t *testing.T) {
	for _, src := range []string{
		"import base64; exec(base64.b64decode('cHJpbnQoMSk='))",
		"import codecs; exec(codecs.decode('cevag(1)', 'rot13'))",
		"exec(''.join(chr(c) for c in [112, 114]))",
		"exec(bytes.fromhex('7072696e74'))",
		"exec('tnirp'[::-1])",
		"import zlib; exec(zlib.decompress(x))",
	} {
		found := false
		for _, e := range lower(src) {
			found = found || e.Kind == cordon.Opaque && e.Origin == cordon.OriginDecoded && !e.Doubtful
		}
		if !found {
			t.Errorf("%s: not marked:%s", src, describe(lower(src)))
		}
	}
}
