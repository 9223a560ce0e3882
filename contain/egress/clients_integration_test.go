//go:build integration

package egress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// clientRig is what a real program finds inside of a sandbox: names that only
// the proxy can resolve, an origin with a certificate of a test CA, and the
// environment of ClientEnv. The origin is listed, "closed.example.test" at the
// same address is not.
type clientRig struct {
	t      *testing.T
	proxy  *Proxy
	rows   *rows
	origin *httptest.Server // TLS
	plain  *httptest.Server
	port   string
	env    []string
	dir    string
	caFile string

	mu   sync.Mutex
	seen []string // "host path" of requests that reached an origin
}

const clientHost = "open.example.test"

func newClientRig(t *testing.T, shared bool, mux http.Handler) *clientRig {
	t.Helper()
	r := &clientRig{t: t, rows: &rows{}, dir: t.TempDir()}
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, req.Host+" "+req.URL.Path)
		r.mu.Unlock()
		if _, ok := req.Header["Proxy-Authorization"]; ok {
			t.Error("the token reached the origin")
		}
		mux.ServeHTTP(w, req)
	})
	cert, _ := testCA(t, clientHost, "closed.example.test")
	r.origin = httptest.NewUnstartedServer(handler)
	r.origin.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	r.origin.StartTLS()
	t.Cleanup(r.origin.Close)
	r.plain = httptest.NewServer(handler)
	t.Cleanup(r.plain.Close)
	r.caFile = filepath.Join(r.dir, "ca.pem")
	if err := os.WriteFile(r.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	_, r.port, _ = net.SplitHostPort(r.origin.Listener.Addr().String())
	_, plainPort, _ := net.SplitHostPort(r.plain.Listener.Addr().String())
	z := newZone(t, map[string][]string{clientHost + ". A": {"127.0.0.1"}, "closed.example.test. A": {"127.0.0.1"}})
	resolver, err := NewResolver(z.addr)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := ParseRules([]string{clientHost + ":" + r.port, clientHost + ":" + plainPort})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy, err = New(Config{
		Mode: cordon.Enforce, Rules: rules, Resolver: resolver, Recorder: r.rows,
		UnsafeAllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.proxy.Close() })
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if shared {
		token, err := r.proxy.Register("run-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		address = "http://run:" + token + "@" + address
		go r.proxy.ServeShared(context.Background(), l, "lobby")
	} else {
		go r.proxy.Serve(context.Background(), l, "run-1")
	}
	r.env = append(ClientEnv(address), "HOME="+r.dir, "PATH="+os.Getenv("PATH"), "LANG=C.UTF-8",
		"CURL_CA_BUNDLE="+r.caFile, "SSL_CERT_FILE="+r.caFile, "GIT_SSL_CAINFO="+r.caFile, "PIP_CERT="+r.caFile,
		"npm_config_cafile="+r.caFile, "NODE_EXTRA_CA_CERTS="+r.caFile)
	for _, name := range []string{"PYENV_ROOT", "RUSTUP_HOME", "JAVA_HOME"} {
		if v, ok := os.LookupEnv(name); ok {
			r.env = append(r.env, name+"="+v)
		}
	}
	if home, err := os.UserHomeDir(); err == nil && os.Getenv("RUSTUP_HOME") == "" {
		r.env = append(r.env, "RUSTUP_HOME="+filepath.Join(home, ".rustup")) // where the toolchain is, not what is tested
	}
	return r
}

func (r *clientRig) url(path string) string { return "https://" + clientHost + ":" + r.port + path }

func (r *clientRig) closedURL(path string) string {
	return "https://closed.example.test:" + r.port + path
}

// run runs a program in the sandbox's environment. One that is not here skips
// the test.
func (r *clientRig) run(extra []string, name string, args ...string) (string, error) {
	r.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		r.t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir = append(append([]string(nil), r.env...), extra...), r.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *clientRig) must(extra []string, name string, args ...string) string {
	r.t.Helper()
	out, err := r.run(extra, name, args...)
	if err != nil {
		r.t.Fatalf("%s %q: %v\n%s\nrows: %+v", name, args, err, out, r.rows.list())
	}
	return out
}

// reached reports whether an origin got a request whose path contains part.
func (r *clientRig) reached(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

// refusedAlone checks that a program failed for the host that is not listed.
func (r *clientRig) refusedAlone(out string, err error) {
	r.t.Helper()
	if err == nil {
		r.t.Errorf("it reached a host that is not listed:\n%s", out)
	}
	if r.reached("closed.example.test") {
		r.t.Error("the origin was asked for the host that is not listed")
	}
	found := false
	for _, x := range r.rows.list() {
		found = found || x.Host == "closed.example.test" && x.Run == "run-1" && x.Enforced
	}
	if !found {
		r.t.Errorf("no row of the refusal: %+v\n%s", r.rows.list(), out)
	}
}

// noRows: an ordinary call of an ordinary program is no refusal.
func (r *clientRig) noRows() {
	r.t.Helper()
	if rows := r.rows.list(); len(rows) != 0 {
		r.t.Errorf("rows of what was allowed: %+v", rows)
	}
}

// bothListeners runs a test with a listener of the run's own, and with a
// shared one and a token.
func bothListeners(t *testing.T, mux http.Handler, test func(t *testing.T, r *clientRig)) {
	for name, shared := range map[string]bool{"own": false, "shared": true} {
		t.Run(name, func(t *testing.T) { test(t, newClientRig(t, shared, mux)) })
	}
}

func TestCurlAndWget(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/x", helloPage)
	bothListeners(t, mux, func(t *testing.T, r *clientRig) {
		_, port, _ := net.SplitHostPort(r.plain.Listener.Addr().String())
		plain := "http://" + clientHost + ":" + port + "/x"
		for _, args := range [][]string{
			{"curl", "-sS", "--fail", r.url("/x")},
			{"curl", "-sS", "--fail", plain},
			{"curl", "-sS", "--fail", "--http2", r.url("/x")},
			{"curl", "-sS", "--fail", plain, plain},
			{"curl", "-sS", "--fail", "-F", "file=@" + r.caFile, r.url("/x")},
			{"curl", "-sS", "--fail", "-T", r.caFile, plain},
			{"curl", "-sS", "--fail", "-H", "Transfer-Encoding: chunked", "-d", "@" + r.caFile, plain},
			{"wget", "-q", "-O", "-", "--ca-certificate=" + r.caFile, r.url("/x")},
			{"wget", "-q", "-O", "-", plain},
		} {
			if out := r.must(nil, args[0], args[1:]...); !strings.Contains(out, "hello from the origin") {
				t.Errorf("%q: %q", args, out)
			}
		}
		// wget asks without its token first.
		if !strings.Contains(t.Name(), "shared") {
			r.noRows()
		}
		out, err := r.run(nil, "curl", "-sS", "--fail", r.closedURL("/x"))
		r.refusedAlone(out, err)
		for _, around := range [][]string{
			{"--noproxy", "*"}, {"--connect-to", "::127.0.0.1:" + r.port}, {"-x", "socks5h://" + r.proxyAddr()},
		} {
			args := append([]string{"-sS", "--fail", "-m", "5"}, append(around, r.closedURL("/x"))...)
			if out, err := r.run(nil, "curl", args...); err == nil {
				t.Errorf("curl %q: %s", args, out)
			}
		}
	})
}

func helloPage(w http.ResponseWriter, req *http.Request) {
	io.Copy(io.Discard, req.Body)
	io.WriteString(w, "hello from the origin")
}

func (r *clientRig) proxyAddr() string {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	for _, a := range r.proxy.own {
		return a.String()
	}
	return ""
}

func TestGit(t *testing.T) {
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip("no git here: ", err)
	}
	backend := filepath.Join(strings.TrimSpace(string(core)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip(err)
	}
	root := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", filepath.Join(root, "src")},
		{"-C", filepath.Join(root, "src"), "-c", "user.name=x", "-c", "user.email=x@example.test", "commit", "-q", "--allow-empty", "-m", "first"},
		{"clone", "-q", "--bare", filepath.Join(root, "src"), filepath.Join(root, "r.git")},
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	mux := &cgi.Handler{Path: backend, Root: "/", Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root}}
	bothListeners(t, mux, func(t *testing.T, r *clientRig) {
		// A proxy of the user's own, which is not there.
		gitconfig := "[http]\n\tproxy = http://127.0.0.1:9\n[safe]\n\tdirectory = *\n"
		if err := os.WriteFile(filepath.Join(r.dir, ".gitconfig"), []byte(gitconfig), 0o600); err != nil {
			t.Fatal(err)
		}
		r.must(nil, "git", "clone", "-q", r.url("/r.git"), "copy")
		if out := r.must(nil, "git", "-C", "copy", "log", "--format=%s"); out != "first\n" {
			t.Errorf("log %q", out)
		}
		r.noRows()
		out, err := r.run([]string{"GIT_TERMINAL_PROMPT=0"}, "git", "clone", "-q", r.closedURL("/r.git"), "other")
		r.refusedAlone(out, err)
	})
}

func TestNpm(t *testing.T) {
	var tarball bytes.Buffer
	zw := gzip.NewWriter(&tarball)
	tw := tar.NewWriter(zw)
	manifest := `{"name":"tiny","version":"1.0.0","main":"index.js"}`
	for name, text := range map[string]string{"package/package.json": manifest, "package/index.js": "module.exports=1\n"} {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(tw, text)
	}
	tw.Close()
	zw.Close()
	sum := sha512.Sum512(tarball.Bytes())
	old := sha1.Sum(tarball.Bytes())
	mux := http.NewServeMux()
	mux.HandleFunc("/tiny", func(w http.ResponseWriter, req *http.Request) {
		dist := map[string]any{
			"tarball": "https://" + req.Host + "/tiny/-/tiny-1.0.0.tgz", "shasum": hex.EncodeToString(old[:]),
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}
		json.NewEncoder(w).Encode(map[string]any{
			"name": "tiny", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{"name": "tiny", "version": "1.0.0", "dist": dist}},
		})
	})
	mux.HandleFunc("/tiny/-/tiny-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { w.Write(tarball.Bytes()) })
	bothListeners(t, mux, func(t *testing.T, r *clientRig) {
		// A proxy of the user's own, which is not there.
		if err := os.WriteFile(filepath.Join(r.dir, ".npmrc"), []byte("proxy=http://127.0.0.1:9\nhttps-proxy=http://127.0.0.1:9\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		project := filepath.Join(r.dir, "project")
		if err := os.Mkdir(project, 0o700); err != nil {
			t.Fatal(err)
		}
		install := func(registry string) (string, error) {
			return r.run(nil, "npm", "install", "--prefix", project, "--no-audit", "--no-fund", "--no-update-notifier",
				"--fetch-retries=0", "--registry="+registry, "tiny")
		}
		if out, err := install(r.url("/")); err != nil {
			t.Fatalf("%v\n%s\n%+v", err, out, r.rows.list())
		}
		if _, err := os.Stat(filepath.Join(project, "node_modules", "tiny", "index.js")); err != nil {
			t.Error(err)
		}
		r.noRows()
		if err := os.RemoveAll(filepath.Join(project, "node_modules")); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(project, "package-lock.json"))
		r.refusedAlone(install(r.closedURL("/")))
	})
}

func TestPip(t *testing.T) {
	var wheel bytes.Buffer
	zw := zip.NewWriter(&wheel)
	for name, text := range map[string]string{
		"tiny.py": "x = 1\n", "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
		"tiny-1.0.dist-info/WHEEL":  "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"tiny-1.0.dist-info/RECORD": "",
	} {
		w, err := zw.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	zw.Close()
	const file = "tiny-1.0-py3-none-any.whl"
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/tiny/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><html><body><a href="/files/%s">%s</a></body></html>`, file, file)
	})
	mux.HandleFunc("/files/"+file, func(w http.ResponseWriter, _ *http.Request) { w.Write(wheel.Bytes()) })
	bothListeners(t, mux, func(t *testing.T, r *clientRig) {
		install := func(index, target string) (string, error) {
			return r.run([]string{"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1"}, "python3", "-m", "pip", "install", "--no-deps",
				"--retries=0", "--no-cache-dir", "--target", filepath.Join(r.dir, target), "--index-url", index, "tiny")
		}
		if out, err := r.run(nil, "python3", "-m", "pip", "--version"); err != nil {
			t.Skipf("no pip here: %v: %s", err, out)
		}
		if out, err := install(r.url("/simple/"), "in"); err != nil {
			t.Fatalf("%v\n%s\n%+v", err, out, r.rows.list())
		}
		if _, err := os.Stat(filepath.Join(r.dir, "in", "tiny.py")); err != nil {
			t.Error(err)
		}
		r.noRows()
		r.refusedAlone(install(r.closedURL("/simple/"), "out"))
	})
}

func TestGoToolchain(t *testing.T) {
	var module bytes.Buffer
	zw := zip.NewWriter(&module)
	w, err := zw.Create("example.test/tiny@v1.0.0/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "module example.test/tiny\n")
	zw.Close()
	mux := http.NewServeMux()
	base := "/example.test/tiny/@v/"
	mux.HandleFunc(base+"v1.0.0.info", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"Version":"v1.0.0"}`) })
	mux.HandleFunc(base+"v1.0.0.mod", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "module example.test/tiny\n") })
	mux.HandleFunc(base+"v1.0.0.zip", func(w http.ResponseWriter, _ *http.Request) { w.Write(module.Bytes()) })
	bothListeners(t, mux, func(t *testing.T, r *clientRig) {
		download := func(proxy, cache string) (string, error) {
			return r.run([]string{"GOPROXY=" + proxy, "GONOSUMDB=*", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOFLAGS=-modcacherw",
				"GOPATH=" + filepath.Join(r.dir, cache)}, "go", "mod", "download", "example.test/tiny@v1.0.0")
		}
		if out, err := download(r.url(""), "in"); err != nil {
			t.Fatalf("%v\n%s\n%+v", err, out, r.rows.list())
		}
		if !r.reached(base + "v1.0.0.zip") {
			t.Error("the module was not fetched")
		}
		r.noRows()
		r.refusedAlone(download(r.closedURL(""), "out"))
	})
}

func TestNodeFetch(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/x", helloPage)
	bothListeners(t, mux, nodeFetch)
}

func nodeFetch(t *testing.T, r *clientRig) {
	const script = `fetch(process.argv[1]).then(r=>{if(!r.ok)throw r.status;return r.text()}).then(t=>console.log(t))`
	_, err := r.run(nil, "node", "--use-env-proxy", "-e", "0")
	out, fetched := r.run(nil, "node", "-e", script, r.url("/x"))
	if err != nil {
		// This Node cannot be told. It must not find another way out.
		if fetched == nil || r.reached("/x") {
			t.Errorf("a Node without proxies reached the origin: %s", out)
		}
		t.Skip("this Node has no --use-env-proxy, so its fetch uses no proxy and finds no name")
	}
	if fetched != nil || !strings.Contains(out, "hello from the origin") {
		t.Errorf("%v: %s", fetched, out)
	}
	out, err = r.run(nil, "node", "-e", script, r.closedURL("/x"))
	r.refusedAlone(out, err)
}

func TestCargo(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/index/config.json", func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintf(w, `{"dl":"https://%s/dl","api":"https://%s"}`, req.Host, req.Host)
	})
	mux.HandleFunc("/index/ti/ny/tiny", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"`+strings.Repeat("0", 64)+`","features":{},"yanked":false}`)
	})
	bothListeners(t, mux, func(t *testing.T, r *clientRig) {
		if out, err := r.run(nil, "cargo", "--version"); err != nil {
			t.Skipf("no cargo here: %v: %s", err, out)
		}
		lock := func(url, name string) (string, error) {
			project := filepath.Join(r.dir, name)
			if err := os.MkdirAll(filepath.Join(project, "src"), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{
				"Cargo.toml": "[package]\nname=\"x\"\nversion=\"0.1.0\"\n[dependencies]\ntiny={version=\"1\",registry=\"test\"}\n", "src/lib.rs": "",
			} {
				if err := os.WriteFile(filepath.Join(project, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return r.run([]string{"CARGO_REGISTRIES_TEST_INDEX=sparse+" + url, "CARGO_HTTP_CAINFO=" + r.caFile, "CARGO_NET_RETRY=0", "CARGO_HOME=" + filepath.Join(project, "home")},
				"cargo", "generate-lockfile", "--manifest-path", filepath.Join(project, "Cargo.toml"))
		}
		if out, err := lock(r.url("/index/"), "in"); err != nil {
			t.Fatalf("%v\n%s\n%+v", err, out, r.rows.list())
		}
		if !r.reached("/index/ti/ny/tiny") {
			t.Error("the index was not asked")
		}
		r.noRows()
		r.refusedAlone(lock(r.closedURL("/index/"), "out"))
	})
}

func TestMaven(t *testing.T) {
	const parent = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		`<groupId>test.example</groupId><artifactId>parent</artifactId><version>1</version><packaging>pom</packaging></project>`
	mux := http.NewServeMux()
	base := "/m2/test/example/parent/1/parent-1.pom"
	mux.HandleFunc(base, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, parent) })
	mux.HandleFunc(base+".sha1", func(w http.ResponseWriter, _ *http.Request) {
		sum := sha1.Sum([]byte(parent))
		io.WriteString(w, hex.EncodeToString(sum[:]))
	})
	r := newClientRig(t, false, mux)
	store := filepath.Join(r.dir, "trust.p12")
	r.must(nil, "keytool", "-importcert", "-noprompt", "-alias", "test", "-file", r.caFile, "-keystore", store, "-storetype", "PKCS12", "-storepass", "changeit")
	validate := func(repository, name string) (string, error) {
		project := filepath.Join(r.dir, name)
		if err := os.Mkdir(project, 0o700); err != nil {
			t.Fatal(err)
		}
		settings := `<settings><localRepository>` + filepath.Join(project, "repo") + `</localRepository><mirrors><mirror><id>only</id><mirrorOf>*</mirrorOf><url>` +
			repository + `</url></mirror></mirrors></settings>`
		pom := strings.NewReplacer("<groupId>", "<parent><groupId>", "</version>", "</version><relativePath/></parent><artifactId>child</artifactId>").Replace(parent)
		for file, text := range map[string]string{"settings.xml": settings, "pom.xml": pom} {
			if err := os.WriteFile(filepath.Join(project, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return r.run([]string{"MAVEN_OPTS=-Djavax.net.ssl.trustStore=" + store + " -Djavax.net.ssl.trustStorePassword=changeit"},
			"mvn", "-B", "-q", "-s", filepath.Join(project, "settings.xml"), "-f", filepath.Join(project, "pom.xml"), "validate")
	}
	if out, err := validate(r.url("/m2"), "in"); err != nil {
		t.Fatalf("%v\n%s\n%+v", err, out, r.rows.list())
	}
	if !r.reached(base) {
		t.Error("the parent was not fetched")
	}
	r.noRows()
	r.refusedAlone(validate(r.closedURL("/m2"), "out"))
}
