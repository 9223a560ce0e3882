package lower

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/javascript"
	"github.com/cordon-sandbox/cordon/lower/python"
	"github.com/cordon-sandbox/cordon/lower/shell"
	"github.com/cordon-sandbox/cordon/lower/sql"
)

// CodeEnv is where code would run.
type CodeEnv struct {
	// Dir is the absolute working directory.
	Dir                   string
	Workspace, Home, User string
	// Code reads code in another language that the code at hand would run;
	// lang in any spelling, dir absolute. It gives a RunCode effect for the
	// text and the effects of running it. Nesting and volume are bounded;
	// past that it gives an Opaque effect.
	Code func(ctx context.Context, lang, src, dir string) []cordon.Effect
}

// Reader gives the effects of running source text. Text that is no program of
// the language gives an Opaque effect whose Reason starts with "not a " ("not
// a shell program: …") or holds the word "syntax" or "parse".
type Reader = func(ctx context.Context, src string, env CodeEnv) []cordon.Effect

// Languages are the readers of code. The zero value reads nothing: all code
// is opaque.
type Languages struct {
	Shell, Python, JavaScript, TypeScript, SQL Reader
}

// DefaultLanguages are the readers that Cordon ships with.
func DefaultLanguages() Languages {
	return Languages{
		Shell: func(ctx context.Context, src string, e CodeEnv) []cordon.Effect {
			return shell.Lower(ctx, src, shell.Env{Dir: e.Dir, Workspace: e.Workspace, Home: e.Home, User: e.User, Code: e.Code, ReadScript: scriptsIn(e.Workspace)})
		},
		Python: func(ctx context.Context, src string, e CodeEnv) []cordon.Effect {
			return python.Lower(ctx, src, python.Env{Dir: e.Dir, Workspace: e.Workspace, Home: e.Home, User: e.User, Code: e.Code})
		},
		JavaScript: script(false),
		TypeScript: script(true),
		SQL: func(ctx context.Context, src string, e CodeEnv) []cordon.Effect {
			return sql.Lower(ctx, src, sql.Env{Dir: e.Dir, Code: e.Code})
		},
	}
}

func script(typed bool) Reader {
	return func(ctx context.Context, src string, e CodeEnv) []cordon.Effect {
		return javascript.Lower(ctx, src, javascript.Env{Dir: e.Dir, Workspace: e.Workspace, Home: e.Home, User: e.User, TypeScript: typed, Code: e.Code})
	}
}

// maxScript is how much of a script is read to be lowered in turn.
const maxScript = 256 << 10

// scriptsIn reads scripts that stand in the workspace. Links out of it lead
// nowhere, and nothing but a regular file is read.
func scriptsIn(workspace string) func(path string) ([]byte, bool) {
	return func(path string) ([]byte, bool) {
		rel, err := filepath.Rel(workspace, path)
		if workspace == "" || err != nil || !filepath.IsLocal(rel) {
			return nil, false
		}
		root, err := os.OpenRoot(workspace)
		if err != nil {
			return nil, false
		}
		defer root.Close()
		// Without O_NONBLOCK a FIFO would hold the decision.
		f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, false
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxScript {
			return nil, false
		}
		text, err := io.ReadAll(io.LimitReader(f, maxScript+1))
		return text, err == nil && len(text) <= maxScript
	}
}

func (l *Languages) reader(lang string) Reader {
	switch lang {
	case "shell":
		return l.Shell
	case "python":
		return l.Python
	case "javascript":
		return l.JavaScript
	case "typescript":
		return l.TypeScript
	case "sql":
		return l.SQL
	}
	return nil
}

// language gives the one name of a language that goes by several, or the
// lower-case word itself.
func language(name string) string {
	if len(name) > 64 {
		name = name[:64]
	}
	n := strings.ToLower(strings.TrimSpace(name))
	if i := strings.LastIndexAny(n, "/\\"); i >= 0 {
		n = n[i+1:]
	}
	n = strings.TrimSuffix(strings.TrimPrefix(n, "."), ".exe")
	switch n {
	case "bat", "batch", "cmd", "cmd.exe":
		return "cmd"
	case "c++", "c#", "f#", "c":
		return n
	}
	bare := strings.TrimRight(n, "0123456789. -_v=")
	switch strings.NewReplacer("-", "", "_", "", " ", "", ".", "").Replace(bare) {
	case "shell", "bash", "sh", "zsh", "dash", "ksh", "ash", "mksh", "fish", "shellscript", "console", "terminal", "posix", "posixsh", "bashscript":
		return "shell"
	case "python", "py", "ipython", "cpython", "pypy", "pyodide", "jupyter", "python3", "micropython", "pythonscript":
		return "python"
	case "javascript", "js", "node", "nodejs", "mjs", "cjs", "ecmascript", "jsx", "es", "javascriptreact":
		return "javascript"
	case "typescript", "ts", "tsx", "deno", "bun", "tsnode", "mts", "cts", "typescriptreact":
		return "typescript"
	case "sql", "postgres", "postgresql", "psql", "pgsql", "plpgsql", "mysql", "sqlite", "mariadb", "tsql", "mssql", "duckdb", "plsql", "sqlserver":
		return "sql"
	case "pwsh", "ps", "powershell":
		return "powershell"
	case "rb", "ruby", "irb":
		return "ruby"
	case "pl", "perl":
		return "perl"
	}
	if n == "" {
		return "unknown"
	}
	return n
}
