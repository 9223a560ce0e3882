package ecosystem

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed defaults.txt
var defaultsText string

// defaults adds what a tool goes to when nobody configured it.
func (f *finder) defaults() {
	for line := range strings.Lines(defaultsText) {
		data, why, _ := strings.Cut(line, "#")
		if words := strings.Fields(data); len(words) == 2 && words[0] == f.name {
			f.add("https://"+words[1], "its default, "+strings.TrimSpace(why))
		}
	}
}

// companion adds what a default index needs beside itself, where the user
// names that index.
func (f *finder) companion(index string) {
	if h, err := hostOf(index); err == nil && f.isDefault(h.Host) {
		f.defaults()
	}
}

func (f *finder) isDefault(host string) bool {
	for line := range strings.Lines(defaultsText) {
		data, _, _ := strings.Cut(line, "#")
		if words := strings.Fields(data); len(words) == 2 && words[0] == f.name && words[1] == host {
			return true
		}
	}
	return false
}

// pip reads pip's files, each over the former, and its variables over all.
func (f *finder) pip() {
	files := []string{f.system("/etc/xdg/pip/pip.conf"), f.system("/etc/pip.conf"), f.home(".pip", "pip.conf"), f.config("pip", "pip.conf")}
	if runtime.GOOS == "darwin" {
		files = append(files, f.system("/Library/Application Support/pip/pip.conf"), f.home("Library", "Application Support", "pip", "pip.conf"))
	}
	if own := f.env("PIP_CONFIG_FILE"); own == "/dev/null" {
		files = nil
	} else {
		files = append(files, own)
	}
	set := map[string]pipValue{}
	for _, file := range files {
		pipFile(string(f.read(file)), file, set)
	}
	for key, name := range map[string]string{"index-url": "PIP_INDEX_URL", "extra-index-url": "PIP_EXTRA_INDEX_URL", "find-links": "PIP_FIND_LINKS", "no-index": "PIP_NO_INDEX"} {
		if v := f.env(name); v != "" {
			set["global|"+key] = pipValue{v, name}
		}
	}
	value := func(section, key string) pipValue { return set[section+"|"+key] }
	off := !slices.Contains([]string{"", "0", "false", "no", "off"}, strings.ToLower(value("global", "no-index").text))
	for _, section := range []string{"global", "install", "download"} {
		if index := value(section, "index-url"); index.text != "" && !off {
			f.add(index.text, "index-url of "+index.from)
			f.companion(index.text)
		} else if section == "global" && !off {
			f.defaults()
		}
		if !off {
			f.pipURLs(value(section, "extra-index-url"), "extra-index-url")
		}
		f.pipURLs(value(section, "find-links"), "find-links")
	}
}

type pipValue struct{ text, from string }

func (f *finder) pipURLs(v pipValue, key string) {
	for _, u := range strings.Fields(v.text) {
		if strings.Contains(u, "://") {
			f.add(u, key+" of "+v.from)
			f.companion(u)
		}
	}
}

// pipFile reads an INI file: the sections global, install and download.
func pipFile(text, file string, set map[string]pipValue) {
	section, key := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case text[0] == '[':
			section, key = strings.TrimSpace(strings.Trim(text, "[]")), ""
		case line[0] == ' ' || line[0] == '\t':
			if v, ok := set[key]; ok && key != "" {
				set[key] = pipValue{v.text + " " + text, v.from}
			}
		case section == "global" || section == "install" || section == "download":
			i := strings.IndexAny(text, "=:")
			if i < 0 {
				key = ""
				continue
			}
			key = section + "|" + strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text[:i])), "_", "-")
			set[key] = pipValue{strings.TrimSpace(text[i+1:]), file}
		default:
			key = ""
		}
	}
}

// cargo reads the user's file: replaced sources and further registries.
func (f *finder) cargo() {
	dir := f.home(".cargo")
	if own := f.env("CARGO_HOME"); filepath.IsAbs(own) {
		dir = own
	}
	var t *table
	file := ""
	if dir != "" {
		for _, name := range []string{"config", "config.toml"} { // cargo prefers the former
			file = filepath.Join(dir, name)
			data := f.read(file)
			if data == nil {
				continue
			}
			var err error
			if t, err = parseTOML(string(data)); err != nil {
				f.problem(fmt.Sprintf("%s cannot be read: %v", file, err), "")
			}
			break
		}
	}
	source, replaced := "crates-io", false
	for range 16 { // a ring of sources ends
		next, ok := t.text("source", source, "replace-with")
		if !ok {
			break
		}
		source, replaced = next, true
	}
	if !replaced || source == "crates-io" {
		f.defaults()
	} else {
		f.cargoSource(t, source, file)
	}
	for _, name := range t.names("registries") {
		if index, ok := t.text("registries", name, "index"); ok {
			f.add(index, fmt.Sprintf("registries.%s of %s", name, file))
		}
	}
}

func (f *finder) cargoSource(t *table, source, file string) {
	for _, key := range []string{"registry", "git"} {
		if u, ok := t.text("source", source, key); ok {
			f.add(u, fmt.Sprintf("source.%s of %s", source, file))
			return
		}
	}
	if u, ok := t.text("registries", source, "index"); ok {
		f.add(u, fmt.Sprintf("registries.%s of %s", source, file))
		return
	}
	for _, key := range []string{"directory", "local-registry"} {
		if _, ok := t.text("source", source, key); ok {
			return // needs no network
		}
	}
	f.problem(fmt.Sprintf("source %.64q, which replaces crates-io, has no address in %s", source, file), "")
}

// settings is Maven's settings.xml.
type settings struct {
	Mirrors []struct {
		URL     string `xml:"url"`
		Of      string `xml:"mirrorOf"`
		Blocked bool   `xml:"blocked"`
	} `xml:"mirrors>mirror"`
	Profiles []struct {
		Repositories []string `xml:"repositories>repository>url"`
		Plugins      []string `xml:"pluginRepositories>pluginRepository>url"`
	} `xml:"profiles>profile"`
}

// maven reads the installation's settings and the user's.
func (f *finder) maven() {
	files := []string{f.home(".m2", "settings.xml"), f.system("/etc/maven/settings.xml")}
	for _, name := range []string{"MAVEN_HOME", "M2_HOME"} {
		if dir := f.env(name); filepath.IsAbs(dir) {
			files = append(files, filepath.Join(dir, "conf", "settings.xml"))
		}
	}
	central := true
	for _, file := range files {
		data := f.read(file)
		if data == nil {
			continue
		}
		var s settings
		if err := unmarshalXML(data, &s); err != nil {
			f.problem(fmt.Sprintf("%s cannot be read: %v", file, err), "")
			continue
		}
		for _, m := range s.Mirrors {
			if m.Blocked {
				continue
			}
			f.mavenURL(m.URL, "a mirror of "+file)
			central = central && !mirrorsCentral(m.Of)
		}
		for _, p := range s.Profiles {
			for _, u := range append(p.Repositories, p.Plugins...) {
				f.mavenURL(u, "a repository of "+file)
			}
		}
	}
	if central {
		f.defaults()
	}
}

// mirrorsCentral reads mirrorOf: "*", "external:*" or a list with "central",
// from which "!central" takes it out again.
func mirrorsCentral(of string) bool {
	parts := strings.Split(of, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return !slices.Contains(parts, "!central") &&
		(slices.Contains(parts, "*") || slices.Contains(parts, "external:*") || slices.Contains(parts, "central"))
}

// mavenURL fills in variables of the environment, the only ones whose values
// are known here.
func (f *finder) mavenURL(text, why string) {
	for range 8 {
		before, rest, ok := strings.Cut(text, "${env.")
		name, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			break
		}
		text = before + f.env(name) + after
	}
	f.add(text, why)
}

// unmarshalXML reads one document. The decoder knows no entities but the
// five of XML itself, and depth is bounded here.
func unmarshalXML(data []byte, v any) error {
	const maxDepth = 64
	depth := 0
	for dec := xml.NewDecoder(bytes.NewReader(data)); ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.New("it is no XML")
		}
		switch tok.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
		if depth > maxDepth {
			return errors.New("it nests too deep")
		}
	}
	if xml.Unmarshal(data, v) != nil {
		return errors.New("it does not have the form of its kind")
	}
	return nil
}

// gem reads RubyGems' files and Bundler's mirrors.
func (f *finder) gem() {
	files := []string{f.system("/etc/gemrc"), f.home(".gemrc"), f.config("gem", "gemrc")}
	files = append(files, filepath.SplitList(f.env("GEMRC"))...)
	named := false
	for _, file := range files {
		for _, u := range f.yamlTexts(file, func(key string) bool { return key == ":sources" || key == "sources" }) {
			named = true
			f.add(u, "sources of "+file)
			f.companion(u)
		}
	}
	if !named {
		f.defaults()
	}
	bundle := f.home(".bundle", "config")
	for _, u := range f.yamlTexts(bundle, func(key string) bool {
		return strings.HasPrefix(key, "BUNDLE_MIRROR__") && !strings.HasSuffix(key, "FALLBACK_TIMEOUT/") && !strings.HasSuffix(key, "FALLBACK_TIMEOUT")
	}) {
		f.add(u, "a mirror of "+bundle)
	}
}

// yamlTexts returns the texts, alone or in lists, at the top-level keys that
// want takes.
func (f *finder) yamlTexts(file string, want func(string) bool) []string {
	data := f.read(file)
	if len(data) == 0 {
		return nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		f.problem(fmt.Sprintf("%s cannot be read: it is no YAML", file), "")
		return nil
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	var out []string
	top := doc.Content[0].Content
	for i := 0; i+1 < len(top); i += 2 {
		if !want(top[i].Value) {
			continue
		}
		items := []*yaml.Node{top[i+1]}
		if top[i+1].Kind == yaml.SequenceNode {
			items = top[i+1].Content
		}
		for _, item := range items {
			if item.Kind == yaml.ScalarNode && item.Value != "" {
				out = append(out, item.Value)
			}
		}
	}
	return out
}

// nugetConfig is NuGet.Config.
type nugetConfig struct {
	Sources *struct {
		Items []nugetItem `xml:",any"`
	} `xml:"packageSources"`
	Disabled struct {
		Items []nugetItem `xml:",any"`
	} `xml:"disabledPackageSources"`
}

type nugetItem struct {
	XMLName xml.Name
	Key     string `xml:"key,attr"`
	Value   string `xml:"value,attr"`
}

// nuget reads the machine's files, then the user's over them.
func (f *finder) nuget() {
	var files []string
	for _, pattern := range []string{"/etc/opt/NuGet/Config/*.[cC]onfig", "/Library/Application Support/NuGet/Config/*.[cC]onfig"} {
		more, _ := filepath.Glob(f.system(pattern)) // the pattern is fixed
		files = append(files, more...)
	}
	for _, name := range []string{"NuGet.Config", "NuGet.config", "nuget.config"} {
		files = append(files, f.config("NuGet", name), f.home(".nuget", "NuGet", name))
	}
	type source struct{ key, url, from string }
	var sources []source
	disabled := map[string]bool{}
	named := false
	for _, file := range files {
		data := f.read(file)
		if data == nil {
			continue
		}
		var c nugetConfig
		if err := unmarshalXML(bytes.TrimPrefix(data, []byte("\ufeff")), &c); err != nil {
			f.problem(fmt.Sprintf("%s cannot be read: %v", file, err), "")
			continue
		}
		for _, d := range c.Disabled.Items {
			if strings.EqualFold(d.Value, "true") {
				disabled[strings.ToLower(d.Key)] = true
			}
		}
		if c.Sources == nil {
			continue
		}
		named = true
		for _, item := range c.Sources.Items {
			switch item.XMLName.Local {
			case "clear":
				sources = nil
			case "add":
				sources = append(sources, source{item.Key, item.Value, file})
			}
		}
	}
	for _, s := range sources {
		if !disabled[strings.ToLower(s.key)] {
			f.add(s.url, "a source of "+s.from)
		}
	}
	if !named {
		f.defaults()
	}
}
