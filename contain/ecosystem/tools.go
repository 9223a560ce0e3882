package ecosystem

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// The variables of the user's environment that the tools are given.
var (
	npmVars = []string{"npm_config_registry", "NPM_CONFIG_REGISTRY", "npm_config_userconfig", "NPM_CONFIG_USERCONFIG",
		"npm_config_globalconfig", "NPM_CONFIG_GLOBALCONFIG", "npm_config_prefix", "NPM_CONFIG_PREFIX"}
	goVars = []string{"GOPROXY", "GOSUMDB", "GOENV", "GONOSUMDB", "GOPRIVATE", "GOROOT"}
)

// npm asks npm, whose default stands in no file: "registry", and
// "@scope:registry" for each scope.
func (f *finder) npm() {
	vars := npmVars
	// It would leave a log and a cache in the user's home for being asked.
	cache, err := os.MkdirTemp("", "cordon-npm-")
	if err != nil {
		f.unasked("npm", reason(err))
		return
	}
	defer os.RemoveAll(cache)
	extra := []string{"npm_config_update_notifier=false", "npm_config_offline=true", "npm_config_logs_max=0", "npm_config_cache=" + cache}
	if f.homeless || f.leadsInside(f.home(".npmrc")) {
		extra = append(extra, "npm_config_userconfig=/dev/null")
		vars = []string{"npm_config_registry", "NPM_CONFIG_REGISTRY"}
	}
	out, err := f.ask("npm", []string{"config", "list", "--json"}, vars, extra)
	if err != nil {
		f.unasked("npm", err)
		return
	}
	v, err := strictjson.Parse(out)
	if err != nil || v.Kind != strictjson.Object {
		f.unasked("npm", fmt.Errorf("its answer is no JSON object"))
		return
	}
	for i, key := range v.Keys {
		if key != "registry" && !strings.HasSuffix(key, ":registry") {
			continue
		}
		if v.Items[i].Kind == strictjson.String {
			f.add(v.Items[i].Str, key+" of npm config")
		}
	}
	if len(f.hosts) == 0 {
		f.problem("npm config names no registry", "name the hosts by --allow-host")
	}
}

// golang asks go for its proxies and its checksum database.
func (f *finder) golang() {
	vars := goVars
	// It keeps counters beside its configuration for being asked; it is told
	// where the latter is, and that the former's place is elsewhere.
	counters, err := os.MkdirTemp("", "cordon-go-")
	if err != nil {
		f.unasked("go", reason(err))
		return
	}
	defer os.RemoveAll(counters)
	extra := []string{"GOTOOLCHAIN=local", "GOWORK=off", "GO111MODULE=on", "GOFLAGS=", "XDG_CONFIG_HOME=" + counters}
	if f.homeless || f.leadsInside(f.config("go", "env")) || f.leadsInside(f.home("Library", "Application Support", "go", "env")) {
		extra = append(extra, "GOENV=off")
		vars = []string{"GOPROXY", "GOSUMDB", "GOROOT"}
	} else if f.env("GOENV") == "" && runtime.GOOS == "linux" {
		extra = append(extra, "GOENV="+f.config("go", "env"))
	}
	out, err := f.ask("go", []string{"env", "-json", "GOPROXY", "GOSUMDB"}, vars, extra)
	if err != nil {
		f.unasked("go", err)
		return
	}
	v, err := strictjson.Parse(out)
	if err != nil {
		f.unasked("go", fmt.Errorf("its answer is no JSON object"))
		return
	}
	proxies, _ := v.Text("GOPROXY")
	direct := false
	for _, p := range strings.FieldsFunc(proxies, func(r rune) bool { return r == ',' || r == '|' }) {
		switch p = strings.TrimSpace(p); p {
		case "":
		case "off":
		case "direct":
			direct = true
		default:
			f.add(p, "GOPROXY of go env")
		}
	}
	if len(f.hosts) == 0 {
		what := "GOPROXY names no proxy"
		if direct {
			what = "GOPROXY is \"direct\", so modules come from their own hosts"
		}
		f.problem(what, "set GOPROXY, or name the hosts by --allow-host")
		return
	}
	sumdb, _ := v.Text("GOSUMDB")
	f.checksums(sumdb)
}

// checksums reads GOSUMDB: "off", "name", "name+key" or either with a URL.
func (f *finder) checksums(text string) {
	parts := strings.Fields(text)
	switch {
	case len(parts) == 0 || parts[0] == "off":
	case len(parts) > 1:
		f.add(parts[1], "GOSUMDB of go env")
	default:
		name, _, _ := strings.Cut(parts[0], "+")
		f.add("https://"+name, "GOSUMDB of go env")
	}
}

// apt reads the sources of the system, in both of their forms.
func (f *finder) apt() {
	dir := f.system("/etc/apt")
	files := []string{filepath.Join(dir, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		// The pattern is fixed, so it cannot be malformed.
		more, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", pattern))
		slices.Sort(more)
		files = append(files, more...)
	}
	for _, file := range files {
		data := f.read(file)
		if strings.HasSuffix(file, ".sources") {
			f.stanzas(string(data), file)
			continue
		}
		for line := range strings.Lines(string(data)) {
			if uri := aptLine(line); uri != "" {
				f.aptURI(uri, file)
			}
		}
	}
	if len(f.hosts) == 0 {
		f.problem("no source of apt was found", "name the hosts by --allow-host")
	}
}

// aptLine returns the URI of a line "deb [options] URI suite component…".
func aptLine(line string) string {
	line, _, _ = strings.Cut(line, "#")
	kind, rest, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
	if kind != "deb" && kind != "deb-src" {
		return ""
	}
	rest = strings.TrimSpace(rest)
	if strings.HasPrefix(rest, "[") {
		_, after, ok := strings.Cut(rest, "]")
		if !ok {
			return ""
		}
		rest = strings.TrimSpace(after)
	}
	uri, _, _ := strings.Cut(rest, " ")
	return uri
}

// stanzas reads deb822: paragraphs of "Name: value" with continuations.
func (f *finder) stanzas(text, file string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for stanza := range strings.SplitSeq(text, "\n\n") {
		fields := map[string]string{}
		name := ""
		for line := range strings.Lines(stanza) {
			line = strings.TrimRight(line, "\n")
			switch {
			case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			case line[0] == ' ' || line[0] == '\t':
				fields[name] += " " + strings.TrimSpace(line)
			default:
				key, value, _ := strings.Cut(line, ":")
				name = strings.ToLower(strings.TrimSpace(key))
				fields[name] = strings.TrimSpace(value)
			}
		}
		if no := strings.ToLower(fields["enabled"]); no == "no" || no == "false" || no == "0" || no == "off" || no == "without" || no == "disable" {
			continue
		}
		for _, uri := range strings.Fields(fields["uris"]) {
			f.aptURI(uri, file)
		}
	}
}

// aptURI takes one URI. A list of mirrors that lies in a file is read.
func (f *finder) aptURI(uri, file string) {
	list, ok := strings.CutPrefix(uri, "mirror+file:")
	if !ok {
		if rest, mirror := strings.CutPrefix(uri, "mirror://"); mirror {
			f.problem("a list of mirrors that lies on a server is not followed", "name the mirrors by --allow-host")
			uri = "http://" + rest
		}
		f.add(uri, "a source in "+file)
		return
	}
	list = f.system("/" + strings.TrimLeft(list, "/"))
	for line := range strings.Lines(string(f.read(list))) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			f.add(words[0], "a mirror in "+list)
		}
	}
}
