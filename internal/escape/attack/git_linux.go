package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

var gitKinds = map[string]func(args){
	"git-move":   gitMove,
	"git-poison": gitPoison,
}

// trap is a configuration with which the host's git would run a command in
// whatever it is asked to do. trigger must be one word.
func trap(trigger string) string {
	return "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = " + trigger + "\n\thooksPath = " + filepath.Dir(trigger) + "\n" +
		"\tpager = " + trigger + "\n\teditor = " + trigger + "\n\tsshCommand = " + trigger + "\n" +
		"[diff]\n\texternal = " + trigger + "\n" +
		"[filter \"trap\"]\n\tclean = " + trigger + "\n\tsmudge = " + trigger + "\n\tprocess = " + trigger + "\n\trequired = false\n" +
		"[diff \"trap\"]\n\ttextconv = " + trigger + "\n[alias]\n\tst = !" + trigger + "\n"
}

func plantTrigger(a args) {
	must(os.MkdirAll("tools", 0o755))
	script := "#!/bin/sh\necho ran \"$0\" \"$@\" >> '" + a["mark"] + "'\n"
	must(os.WriteFile("tools/trigger", []byte(script), 0o755))
	for _, hook := range []string{"pre-commit", "post-commit", "post-checkout", "post-index-change", "prepare-commit-msg", "commit-msg", "reference-transaction"} {
		must(os.WriteFile("tools/"+hook, []byte(script), 0o755))
	}
}

// gitMove puts the repository away and another in its place.
func gitMove(a args) {
	plantTrigger(a)
	for _, way := range []struct {
		name string
		do   func() error
	}{
		{"mv .git x", func() error { return rename(".git", "x") }},
		{"mkdir .git", func() error { return os.Mkdir(".git", 0o755) }},
		{"a new config", func() error { return os.WriteFile(".git/config", []byte(trap(a["workspace"]+"/tools/trigger")), 0o644) }},
		{"a new HEAD", func() error { return os.WriteFile(".git/HEAD", []byte("ref: refs/heads/main\n"), 0o644) }},
		{"objects and refs", func() error {
			if err := os.MkdirAll(".git/objects", 0o755); err != nil {
				return err
			}
			return os.MkdirAll(".git/refs/heads", 0o755)
		}},
		{"a hook", func() error {
			if err := os.Mkdir(".git/hooks", 0o755); err != nil {
				return err
			}
			return os.WriteFile(".git/hooks/pre-commit", []byte("#!/bin/sh\necho ran >> '"+a["mark"]+"'\n"), 0o755)
		}},
	} {
		try(way.name, way.do)
	}
}

// gitPoison changes an existing repository so that git would run something.
func gitPoison(a args) {
	plantTrigger(a)
	trigger := a["workspace"] + "/tools/trigger"
	put := func(path, text string, mode os.FileMode) {
		try(path, func() error {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				return err
			}
			return os.WriteFile(path, []byte(text), mode)
		})
	}
	dir := ".git"
	put(dir+"/config", trap(trigger), 0o644)
	put(dir+"/config.worktree", trap(trigger), 0o644)
	put(dir+"/info/attributes", "* filter=trap diff=trap\n", 0o644)
	put(".gitattributes", "* filter=trap diff=trap\n", 0o644)
	for _, hook := range []string{"pre-commit", "post-commit", "post-checkout", "post-index-change", "commit-msg", "reference-transaction"} {
		put(dir+"/hooks/"+hook, "#!/bin/sh\necho ran >> '"+a["mark"]+"'\n", 0o755)
	}
	put(dir+"/objects/info/alternates", a["workspace"]+"/tools\n", 0o644)
	try("hooks as a link", func() error {
		if err := os.RemoveAll(dir + "/hooks"); err != nil {
			return err
		}
		return os.Symlink("../tools", dir+"/hooks")
	})
	try("config as a link", func() error {
		if err := os.Remove(dir + "/config"); err != nil {
			return err
		}
		must(os.WriteFile("tools/config", []byte(trap(trigger)), 0o644))
		return os.Symlink("../tools/config", dir+"/config")
	})
	try("config by exchange", func() error {
		must(os.WriteFile("other-config", []byte(trap(trigger)), 0o644))
		return unix.Renameat2(unix.AT_FDCWD, "other-config", unix.AT_FDCWD, dir+"/config", unix.RENAME_EXCHANGE)
	})
	say(line{Try: "trap", Got: fmt.Sprint(strings.Count(trap(trigger), trigger))})
}
