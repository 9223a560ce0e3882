package mcp

import (
	"path"
	"strings"
)

// isRunner reports whether a program runs the program that is meant.
func isRunner(name string) bool {
	switch strings.TrimSuffix(name, ".exe") {
	case "node", "npx", "npm", "pnpm", "yarn", "bun", "bunx", "deno", "tsx",
		"python", "python3", "uv", "uvx", "pipx", "docker", "podman", "env":
		return true
	}
	return false
}

// isVerb reports whether a word of a runner is no program's name.
func isVerb(word string) bool {
	switch word {
	case "run", "exec", "x", "dlx", "tool":
		return true
	}
	return false
}

// ServerName derives a short name from the command of an MCP server:
// "filesystem" from npx @modelcontextprotocol/server-filesystem, "git" from
// uvx mcp-server-git, "notes" from ./notes.py. It is "server" where there is
// nothing to go by.
func ServerName(command []string) string {
	word := program(command)
	word = strings.ReplaceAll(word, `\`, "/")
	if i := strings.LastIndex(word, "node_modules/"); i >= 0 {
		word = packageOf(word[i+len("node_modules/"):])
	} else {
		word = fileName(word)
	}
	if i := strings.IndexByte(word, '@'); i > 0 {
		word = word[:i] // a version
	}
	if i := strings.IndexByte(word, ':'); i > 0 {
		word = word[:i] // an image's tag
	}
	word = strings.ToLower(strings.TrimPrefix(word, "@"))
	word = strings.NewReplacer("_", "-").Replace(word)
	bare := word
	for _, p := range [...]string{"mcp-server-", "server-", "mcp-"} {
		bare = strings.TrimPrefix(bare, p)
	}
	for _, s := range [...]string{"-mcp-server", "-server", "-mcp"} {
		bare = strings.TrimSuffix(bare, s)
	}
	bare = strings.Map(nameByte, bare)
	if len(bare) > 64 {
		bare = bare[:64]
	}
	if bare == "" {
		return "server"
	}
	return bare
}

// program is the word of a command that names the server.
func program(command []string) string {
	for i := 0; i < len(command); i++ {
		w := command[i]
		switch {
		case w == "-m" && i+1 < len(command):
			return command[i+1]
		case strings.HasPrefix(w, "-") || strings.Contains(w, "=") || i > 0 && isVerb(w):
		case isRunner(path.Base(w)):
		default:
			return w
		}
	}
	if len(command) > 0 {
		return command[0]
	}
	return ""
}

// packageOf is the name of the npm package that a path below node_modules is
// in, without its scope.
func packageOf(p string) string {
	parts := strings.Split(p, "/")
	if strings.HasPrefix(p, "@") && len(parts) > 1 {
		return parts[1]
	}
	return parts[0]
}

// fileName is the last telling step of a path, without its extension.
func fileName(p string) string {
	parts := strings.Split(p, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		name := parts[i]
		for _, ext := range [...]string{".js", ".mjs", ".cjs", ".ts", ".py", ".exe", ".rb", ".sh"} {
			name = strings.TrimSuffix(name, ext)
		}
		switch name {
		case "", "index", "main", "cli", "dist", "build", "src", "bin", "out", "lib", ".", "..", "__main__", "server":
			continue
		}
		return name
	}
	return ""
}

func nameByte(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
		return r
	}
	return -1
}
