package ecosystem

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// asked are the ecosystems that only a program can tell of, with the variables
// and files that it goes by. Asking takes a tenth of a second or more.
var asked = map[string]struct {
	program string
	vars    []string
	files   func(f *finder, program string) []string
}{
	"npm": {"npm", npmVars, (*finder).npmFiles},
	"go":  {"go", goVars, (*finder).goFiles},
}

// Asked lists the ecosystems for which Resolve starts a program.
func Asked() []string { return []string{"npm", "go"} }

// Fingerprint changes when what Resolve finds for one of Asked may have
// changed: with the program, the user's environment and the files that the
// program goes by, as far as they are known without asking it. A file that
// another file names is not among them, so what is kept by a fingerprint wants
// a bounded age. It holds no secret: it is a digest.
func (r *Resolver) Fingerprint(name string) (string, error) {
	a, ok := asked[name]
	if !ok {
		return "", fmt.Errorf("ecosystem: %q is not found by asking a program (want one of %q)", name, Asked())
	}
	f := &finder{r: r, name: name, seen: map[string]bool{}}
	f.homeless = r.c.Home != "" && r.inWorkspace(r.c.Home)
	h := sha256.New()
	fmt.Fprintf(h, "1\x00%s\x00%q\x00%v\x00", name, f.home(), f.homeless)
	for _, v := range a.vars {
		fmt.Fprintf(h, "%s=%q\x00", v, f.env(v))
	}
	program, err := f.program(a.program)
	fmt.Fprintf(h, "%q %v\x00", program, err)
	for _, file := range append(a.files(f, program), program) {
		f.stamp(h, file)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// stamp writes what tells one state of a file from another.
func (f *finder) stamp(h hash.Hash, file string) {
	if !filepath.IsAbs(file) {
		return
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		io.WriteString(h, "none\x00")
	case err != nil:
		fmt.Fprintf(h, "%q fails\x00", file)
	default:
		fmt.Fprintf(h, "%q %d %d %v\x00", file, info.Size(), info.ModTime().UnixNano(), f.r.inWorkspace(file))
	}
}

func (f *finder) npmFiles(program string) []string {
	files := []string{f.home(".npmrc")}
	for _, v := range []string{"npm_config_userconfig", "NPM_CONFIG_USERCONFIG", "npm_config_globalconfig", "NPM_CONFIG_GLOBALCONFIG"} {
		files = append(files, f.env(v))
	}
	for _, v := range []string{"npm_config_prefix", "NPM_CONFIG_PREFIX"} {
		if dir := f.env(v); dir != "" {
			files = append(files, filepath.Join(dir, "etc", "npmrc"))
		}
	}
	for _, p := range []string{program, target(program)} {
		if p != "" {
			files = append(files, filepath.Join(filepath.Dir(p), "..", "etc", "npmrc"), filepath.Join(filepath.Dir(p), "..", "npmrc"))
		}
	}
	return files
}

func (f *finder) goFiles(program string) []string {
	files := []string{f.env("GOENV"), f.config("go", "env"), f.home("Library", "Application Support", "go", "env")}
	if root := f.env("GOROOT"); root != "" {
		files = append(files, filepath.Join(root, "go.env"))
	}
	if p := target(program); p != "" {
		files = append(files, filepath.Join(filepath.Dir(p), "..", "go.env"))
	}
	return files
}

// target is a path as its links lead; "" where it leads nowhere.
func target(path string) string {
	if path == "" {
		return ""
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	return real
}
