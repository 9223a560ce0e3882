package tripwire

import (
	"slices"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

const (
	workspace = "/home/dev/shop"
	home      = "/home/dev"
)

// row is one effect and what its rule makes of it; harmless rows are the
// near-misses.
type row struct {
	name   string
	effect cordon.Effect
	// resolved and secret are what the file scope found.
	resolved, secret string
	want             severity
}

func input(rows ...row) Input {
	in := Input{
		Workspace: workspace, Home: home, User: "dev",
		HostAllowed: func(target string) bool { return strings.HasPrefix(target, "github.com") },
	}
	for _, r := range rows {
		in.Effects = append(in.Effects, r.effect)
		in.Resolved = append(in.Resolved, r.resolved)
		in.Secret = append(in.Secret, r.secret)
	}
	return in
}

func outcome(f cordon.Finding) severity {
	switch {
	case f.Outcome == cordon.Blocked && f.Kill:
		return grave
	case f.Outcome == cordon.Blocked:
		return certain
	case f.Kill:
		panic("a restriction kills")
	}
	return unsure
}

// verdict is the worst finding of a rule, or harmless.
func verdict(findings []cordon.Finding, rule string) severity {
	worst := harmless
	for _, f := range findings {
		if rule == "persistence.file" && strings.HasPrefix(f.Rule, "persistence.") || f.Rule == rule || rule == "credential.store" && slices.Contains([]string{"credential.ssh_key", "credential.env_file", "credential.shell_history", "credential.cloud_credentials"}, f.Rule) {
			worst = min(worst, outcome(f))
		}
	}
	return worst
}

func (s severity) String() string {
	return [...]string{"blocked and killed", "blocked", "restricted", "no finding"}[s]
}

// do is an effect with an operation.
func do(kind cordon.Kind, op, target string) cordon.Effect {
	return cordon.Effect{Kind: kind, Op: op, Target: target}
}

func env(name, value string) cordon.Effect {
	return cordon.Effect{Kind: cordon.SetEnv, Target: name, Text: value}
}

func rm(target string) cordon.Effect {
	return cordon.Effect{Kind: cordon.Delete, Target: target, Recursive: true, NoFollow: true}
}

func glob(target string) cordon.Effect {
	e := rm(target)
	e.Pattern = true
	return e
}

// match is an effect on all that a pattern takes.
func match(kind cordon.Kind, pattern string) cordon.Effect {
	return cordon.Effect{Kind: kind, Target: pattern, Pattern: true}
}

func sends(target string, data ...string) cordon.Effect {
	return cordon.Effect{Kind: cordon.Connect, Op: "https", Target: target, Sends: true, Data: data}
}

func reads(path string) cordon.Effect { return cordon.Effect{Kind: cordon.Read, Target: path} }

var effectCases = map[string][]row{
	"credential.store": {
		{"a private key is read", reads("~/.ssh/id_ed25519"), home + "/.ssh/id_ed25519", "SSH key", grave},
		{"a private key is overwritten", do(cordon.Write, "", "/root/.ssh/id_rsa"), "/root/.ssh/id_rsa", "SSH key", grave},
		{"cloud credentials are searched", cordon.Effect{Kind: cordon.List, Recursive: true, Target: "~/.aws"}, home + "/.aws", "cloud credentials", grave},
		{"names of a credential folder are listed", cordon.Effect{Kind: cordon.List, Target: "~/.ssh"}, home + "/.ssh", "SSH key", certain},
		{"a link to a key is looked at", cordon.Effect{Kind: cordon.Read, NoFollow: true, Target: "~/.ssh/id_rsa"}, home + "/.ssh/id_rsa", "SSH key", certain},
		{"the workspace's own environment file", reads(".env"), workspace + "/.env", "env file", certain},
		{"a shell history", reads("~/.bash_history"), home + "/.bash_history", "shell history", certain},
		{"perhaps a private key", cordon.Effect{Kind: cordon.Read, Doubtful: true, Target: "~/.ssh/id_rsa"}, home + "/.ssh/id_rsa", "SSH key", unsure},
		{"a file of the workspace", reads("src/keys.py"), workspace + "/src/keys.py", "", harmless},
		{"all of a store by a star", match(cordon.Read, "~/.ssh/*"), home + "/.ssh/*", "SSH key", grave},
		{"all below a store", match(cordon.Read, "~/.aws/**"), home + "/.aws/**", "cloud credentials", grave},
		{"a store whose name is masked", match(cordon.Read, "~/.s?h/*"), home + "/.s?h/*", "SSH key", grave},
		{"a key whose name is masked", match(cordon.Read, "~/.s*/id_*"), home + "/.s*/id_*", "SSH key", grave},
		{"a masked store anywhere", match(cordon.Read, "/home/**/.ss[h]/*"), "/home/**/.ss[h]/*", "SSH key", grave},
		{"a key looked for in the whole home", match(cordon.Read, "~/**/id_ed25519"), home + "/**/id_ed25519", "SSH key", grave},
		{"keys looked for in the whole home", match(cordon.Read, "~/**/id_*"), home + "/**/id_*", "SSH key", grave},
		{"key files looked for everywhere", match(cordon.Read, "/**/*.pem"), "/**/*.pem", "SSH key", grave},
		{"a masked name in the home", match(cordon.Read, "~/.net*"), home + "/.net*", "SSH key", grave},
		{"a class that spells a name", match(cordon.Read, "~/[.]netr[c]"), home + "/[.]netr[c]", "SSH key", grave},
		{"the hidden names of a home", match(cordon.Read, "~/.*"), home + "/.*", "SSH key", unsure},
		{"hidden names beside the two dots", match(cordon.Write, ".[^.]*"), workspace + "/.[^.]*", "env file", unsure},
		{"names that do not start with a letter", match(cordon.Read, "/mnt/usb/[!x]*"), "/mnt/usb/[!x]*", "SSH key", unsure},
		{"databases wherever they lie", match(cordon.Read, "**/*.db"), workspace + "/**/*.db", "SSH key", unsure},
		{"all logs below a directory", match(cordon.Read, "/srv/app/**/log*"), "/srv/app/**/log*", "SSH key", unsure},
	},
	"credential.env_secret": {
		{"an API key", do(cordon.ReadEnv, "", "MISTRAL_API_KEY"), "", "", unsure},
		{"a database password in one word", do(cordon.ReadEnv, "", "PGPASSWORD"), "", "", unsure},
		{"the key of a cloud account", do(cordon.ReadEnv, "", "AWS_SECRET_ACCESS_KEY"), "", "", certain},
		{"all variables of a prefix that says token", do(cordon.ReadEnv, "", "GH_TOKEN*"), "", "", unsure},
		{"the home directory", do(cordon.ReadEnv, "", "HOME"), "", "", harmless},
		{"a mode", do(cordon.ReadEnv, "", "NODE_ENV"), "", "", harmless},
		{"a number of tokens", do(cordon.ReadEnv, "", "MAX_TOKENS"), "", "", harmless},
		{"an author", do(cordon.ReadEnv, "", "GIT_AUTHOR_NAME"), "", "", harmless},
		{"the working directory", do(cordon.ReadEnv, "", "OLDPWD"), "", "", harmless},
		{"the path of a password file", do(cordon.ReadEnv, "", "DB_PASSWORD_FILE"), "", "", harmless},
		{"a script's own variable", do(cordon.ReadEnv, "", "sort_key"), "", "", harmless},
	},
	"credential.env_dump": {
		{"the whole environment", do(cordon.ReadEnv, "", "*"), "", "", unsure},
		{"one variable", do(cordon.ReadEnv, "", "LANG"), "", "", harmless},
	},

	"destructive.recursive_delete": {
		{"the root", rm("/"), "/", "", grave},
		{"the root's entries", glob("/*"), "", "", grave},
		{"some of the root's entries", glob("/us*"), "", "", grave},
		{"all below the root by two stars", glob("/**"), "", "", grave},
		{"a system directory", rm("/usr/lib"), "/usr/lib", "", grave},
		{"the home by a tilde", rm("~"), "", "", grave},
		{"the home's entries", glob("~/*"), "", "", grave},
		{"the home's hidden entries", glob("$HOME/.*"), "", "", grave},
		{"another home", rm("/home/ops"), "/home/ops", "", grave},
		{"every home", glob("/home/*"), "", "", grave},
		{"the workspace by a dot", rm("."), workspace, "", grave},
		{"what stands above the workspace", rm("../.."), "", "", grave},
		{"the workspace with a detour", rm("src/../"), "", "", grave},
		{"a pattern above the workspace", glob("../s*"), "", "", grave},
		{"all below the workspace with the hidden names", glob("./**"), "", "", certain},
		{"the hidden names of the workspace", glob(".*"), workspace, "", certain},
		{"the visible names of the workspace", glob("*"), workspace, "", unsure},
		{"the files of the home, but no trees", cordon.Effect{Kind: cordon.Delete, Pattern: true, Target: "~/*"}, "", "", certain},
		{"perhaps the root", cordon.Effect{Kind: cordon.Delete, Recursive: true, Doubtful: true, Target: "/"}, "/", "", unsure},
		{"the home is moved away", cordon.Effect{Kind: cordon.Delete, Op: "move", Recursive: true, Target: "~"}, "", "", certain},
		{"names below directories of the workspace are moved", cordon.Effect{Kind: cordon.Delete, Op: "move", Recursive: true, Pattern: true, Target: "**/*"}, workspace, "", harmless},
		{"the visible names of the workspace are moved", cordon.Effect{Kind: cordon.Delete, Op: "move", Recursive: true, Pattern: true, Target: "*"}, workspace, "", harmless},
		{"empty directories wherever they lie", cordon.Effect{Kind: cordon.Delete, Op: "empty", Pattern: true, Target: "./**"}, workspace + "/**", "", harmless},
		{"a build directory", rm("build"), workspace + "/build", "", harmless},
		{"modules below the workspace", rm(workspace + "/node_modules/"), workspace + "/node_modules", "", harmless},
		{"what a build directory holds", glob("build/*"), workspace + "/build", "", harmless},
		{"bytecode wherever it lies", glob("./**/*.pyc"), "", "", harmless},
		{"names that end in a dot", glob("./**/*."), "", "", harmless},
		{"names that hold a dot", glob("./**/*.*"), "", "", unsure},
		{"generated directories by a pattern", glob("*.egg-info"), workspace, "", harmless},
		{"caches one level down", glob("*/__pycache__"), workspace, "", harmless},
		{"the visible files of the workspace", cordon.Effect{Kind: cordon.Delete, Pattern: true, Target: "*"}, workspace, "", harmless},
		{"a directory whose name starts like the workspace's", rm(workspace + "-old/x"), workspace + "-old/x", "", harmless},
		{"a directory called tilde", cordon.Effect{Kind: cordon.Delete, Recursive: true, Expanded: true, Target: "~"}, workspace + "/~", "", harmless},
		{"a single file of the system", cordon.Effect{Kind: cordon.Delete, Target: "/usr"}, "/usr", "", harmless},
		{"a run's temporary directory", rm("/tmp/agent/r1/x"), "/tmp/agent/r1/x", "", harmless},
	},
	"destructive.recursive_mode": {
		{"the modes of the root", cordon.Effect{Kind: cordon.Write, Op: "chmod", Recursive: true, Target: "/"}, "/", "", grave},
		{"the modes of the home", cordon.Effect{Kind: cordon.Write, Op: "chmod", Recursive: true, Target: "~"}, "", "", grave},
		{"the modes of the workspace", cordon.Effect{Kind: cordon.Write, Op: "chmod", Recursive: true, Target: "."}, workspace, "", harmless},
		{"the modes of one directory", cordon.Effect{Kind: cordon.Write, Op: "chmod", Recursive: true, Target: "bin"}, workspace + "/bin", "", harmless},
		{"the mode of the root alone", cordon.Effect{Kind: cordon.Write, Op: "chmod", Target: "/"}, "/", "", harmless},
	},
	"destructive.disk_write": {
		{"a disk", do(cordon.Write, "", "/dev/sdb"), "/dev/sdb", "", grave},
		{"a partition of a fast disk", do(cordon.Write, "", "/dev/nvme0n1p2"), "/dev/nvme0n1p2", "", grave},
		{"the null device", do(cordon.Write, "", "/dev/null"), "/dev/null", "", harmless},
		{"a file called sda", do(cordon.Write, "", "dev/sda"), workspace + "/dev/sda", "", harmless},
		{"a disk that is read", reads("/dev/sda"), "/dev/sda", "", harmless},
	},
	"destructive.disk":              {{"a file system is made", do(cordon.Destroy, "disk", "/dev/sdb1"), "", "", grave}, {"a file is read", reads("disk.img"), "", "", harmless}},
	"destructive.drop_table":        {{"a table", do(cordon.Destroy, "drop_table", "orders"), "", "", certain}, {"a table is made", do(cordon.SQL, "create", "orders"), "", "", harmless}},
	"destructive.drop_database":     {{"a database", do(cordon.Destroy, "drop_database", "shop"), "", "", grave}, {"a table of that name", do(cordon.Destroy, "drop_table", "shop"), "", "", harmless}},
	"destructive.truncate_table":    {{"a table", do(cordon.Destroy, "truncate_table", "orders"), "", "", certain}, {"a row is added", do(cordon.SQL, "insert", "orders"), "", "", harmless}},
	"destructive.delete_unfiltered": {{"all rows", do(cordon.Destroy, "delete_unfiltered", "orders"), "", "", certain}, {"a filtered change", do(cordon.SQL, "change", "orders"), "", "", harmless}},
	"destructive.update_unfiltered": {{"all rows", do(cordon.Destroy, "update_unfiltered", "orders"), "", "", certain}, {"a filtered change", do(cordon.SQL, "change", "orders"), "", "", harmless}},
	"destructive.force_push":        {{"a branch", do(cordon.Destroy, "force_push", "origin"), "", "", unsure}, {"an ordinary push", sends("github.com:443", "-"), "", "", harmless}},
	"destructive.kill_all":          {{"every process", do(cordon.Destroy, "kill_all", "-1"), "", "", grave}, {"one program is started", do(cordon.Execute, "", "kill"), "", "", harmless}},
	"destructive.fork_bomb":         {{"a fork bomb", do(cordon.Destroy, "fork_bomb", ""), "", "", grave}, {"perhaps one", cordon.Effect{Kind: cordon.Destroy, Op: "fork_bomb", Doubtful: true}, "", "", unsure}, {"a fork is started", do(cordon.Execute, "", "fork"), "", "", harmless}},
	"destructive.cluster":           {{"a namespace", do(cordon.Destroy, "cluster", "ns/shop"), "", "", certain}, {"the cluster is asked", sends("github.com"), "", "", harmless}},
	"destructive.cloud":             {{"a bucket", do(cordon.Destroy, "cloud", "s3://b"), "", "", certain}, {"a container is removed", do(cordon.Destroy, "container", "web"), "", "", harmless}},
	"destructive.container":         {{"all images", do(cordon.Destroy, "container", "*"), "", "", unsure}, {"docker is started", do(cordon.Execute, "", "docker"), "", "", harmless}},
	"destructive.power":             {{"the machine is stopped", do(cordon.Destroy, "power", ""), "", "", certain}, {"a history is dropped", do(cordon.Destroy, "history", ""), "", "", harmless}},
	"destructive.history":           {{"the reflog", do(cordon.Destroy, "history", "reflog"), "", "", unsure}, {"the machine is stopped", do(cordon.Destroy, "power", ""), "", "", harmless}},

	"privilege.sudo": {{"sudo", do(cordon.Privilege, "sudo", "apt"), "", "", certain}, {"a program named sudoku", do(cordon.Execute, "", "sudoku"), "", "", harmless}},
	"privilege.su":   {{"su", do(cordon.Privilege, "su", "root"), "", "", certain}, {"sudo has its own rule", do(cordon.Privilege, "sudo", "root"), "", "", harmless}},
	"privilege.setuid": {
		{"a shell gets its owner's rights", do(cordon.Privilege, "setuid", "/tmp/x/bash"), "", "", grave},
		{"some file", do(cordon.Privilege, "setuid", "bin/tool"), "", "", certain},
		{"by a mode in octal", do(cordon.Privilege, "setuid", "04755"), "", "", certain},
		{"the user's bit and the group's", do(cordon.Privilege, "setuid", "6755"), "", "", certain},
		{"both bits by letters", do(cordon.Privilege, "setuid", "u+s,g+s"), "", "", certain},
		{"both bits in one clause", do(cordon.Privilege, "setuid", "ug+s"), "", "", certain},
		{"every bit that there is", do(cordon.Privilege, "setuid", "+s"), "", "", certain},
		{"the group's bit, as on shared directories", do(cordon.Privilege, "setuid", "2775"), "", "", unsure},
		{"the group's bit by a letter", do(cordon.Privilege, "setuid", "g+s,o-w"), "", "", unsure},
		{"an ordinary mode", do(cordon.Write, "chmod", "bin/tool"), workspace + "/bin/tool", "", harmless},
	},
	"privilege.setcap":     {{"a capability", do(cordon.Privilege, "setcap", "bin/x"), "", "", certain}, {"setuid has its own rule", do(cordon.Privilege, "setuid", "bin/x"), "", "", harmless}},
	"privilege.user_admin": {{"a user is added", do(cordon.Privilege, "user_admin", "eve"), "", "", grave}, {"who am I", do(cordon.Execute, "", "whoami"), "", "", harmless}},
	"privilege.namespace":  {{"a namespace is entered", do(cordon.Privilege, "namespace", "1"), "", "", certain}, {"a mount has its own rule", do(cordon.Privilege, "mount", ""), "", "", harmless}},
	"privilege.container": {
		{"the host's root", do(cordon.Privilege, "container", "host_root"), "", "", grave},
		{"a socket of the container engine", cordon.Effect{Kind: cordon.Privilege, Op: "container", Text: "/var/run/docker.sock"}, "", "", grave},
		{"rights that are not named", do(cordon.Privilege, "container", ""), "", "", certain},
		{"a container without rights", do(cordon.Execute, "", "docker"), "", "", harmless},
	},
	"privilege.mount":  {{"a mount", do(cordon.Privilege, "mount", "/dev/sda1"), "", "", certain}, {"a module has its own rule", do(cordon.Privilege, "module", ""), "", "", harmless}},
	"privilege.ptrace": {{"another process", do(cordon.Privilege, "ptrace", "1"), "", "", certain}, {"strace's name alone", do(cordon.Execute, "", "strace"), "", "", harmless}},
	"privilege.module": {{"a module", do(cordon.Privilege, "module", "x.ko"), "", "", certain}, {"a python module", do(cordon.RunCode, "", "python"), "", "", harmless}},

	"persistence.cron":    {{"a crontab", do(cordon.Persist, "cron", ""), "", "", grave}, {"a file named crontab", do(cordon.Write, "", "docs/crontab"), workspace + "/docs/crontab", "", harmless}},
	"persistence.service": {{"a unit", do(cordon.Persist, "service", "x.service"), "", "", grave}, {"a file", do(cordon.Write, "", "deploy/x.service"), workspace + "/deploy/x.service", "", harmless}},
	"persistence.shell_rc": {{"a profile", do(cordon.Persist, "shell_rc", "~/.profile"), "", "", certain},
		{"a file that is not named", do(cordon.Persist, "shell_rc", ""), "", "", certain}, {"the workspace's own copy", do(cordon.Persist, "shell_rc", "dotfiles/.profile"), "", "", unsure},
		{"one reached from the workspace", do(cordon.Persist, "shell_rc", "../.profile"), "", "", certain}, {"it is read", reads("~/.profile"), home + "/.profile", "", harmless}},
	"persistence.authorized_keys": {{"a key", do(cordon.Persist, "authorized_keys", ""), "", "", grave}, {"a git hook has its own rule", do(cordon.Persist, "git_hook", ""), "", "", harmless}},
	"persistence.autostart":       {{"a desktop entry", do(cordon.Persist, "autostart", ""), "", "", certain}, {"a service has its own rule", do(cordon.Persist, "service", ""), "", "", harmless}},
	"persistence.git_hook":        {{"a hook", do(cordon.Persist, "git_hook", ""), "", "", certain}, {"a commit", do(cordon.Execute, "", "git"), "", "", harmless}},
	"persistence.git_config":      {{"an alias", do(cordon.Persist, "git_config", "alias.x"), "", "", certain}, {"a hook has its own rule", do(cordon.Persist, "git_hook", ""), "", "", harmless}},
	"persistence.agent_settings":  {{"settings", do(cordon.Persist, "agent_settings", ""), "", "", certain}, {"they are read", reads(".claude/settings.json"), workspace + "/.claude/settings.json", "", harmless}},
	"persistence.startup_file":    {{"a site file", do(cordon.Persist, "startup_file", ""), "", "", certain}, {"an ordinary module", do(cordon.Write, "", "src/site.py"), workspace + "/src/site.py", "", harmless}},

	"persistence.file": {
		{"a shell's startup file by a file tool", do(cordon.Write, "append", "~/.zshenv"), "", "", certain},
		{"a key that logs in", do(cordon.Write, "", "~/.ssh/authorized_keys"), "", "", grave},
		{"the system's schedule", do(cordon.Write, "create", "/etc/cron.d/x"), "/etc/cron.d/x", "", grave},
		{"a unit of the user", do(cordon.Write, "create", "~/.config/systemd/user/x.service"), "", "", grave},
		{"a hook of the workspace", do(cordon.Write, "create", ".git/hooks/pre-push"), workspace + "/.git/hooks/pre-push", "", certain},
		{"a hook of a nested repository", do(cordon.Write, "create", "lib/x/.git/hooks/pre-push"), "", "", certain},
		{"a sample kept in the workspace", do(cordon.Write, "create", "dotfiles/.zshrc"), workspace + "/dotfiles/.zshrc", "", harmless},
		{"an ignore file", do(cordon.Write, "create", ".gitignore"), workspace + "/.gitignore", "", harmless},
		{"a folder named hooks", do(cordon.Write, "create", "src/hooks/useCart.ts"), workspace + "/src/hooks/useCart.ts", "", harmless},
		{"a startup file is read", reads("~/.zshrc"), home + "/.zshrc", "", harmless},
	},

	"admin.iam":           {{"a policy", do(cordon.Administer, "iam", "role"), "", "", certain}, {"identities are listed", do(cordon.Execute, "", "aws"), "", "", harmless}},
	"admin.cluster_admin": {{"a binding", do(cordon.Administer, "cluster_admin", ""), "", "", grave}, {"a policy has its own rule", do(cordon.Administer, "iam", ""), "", "", harmless}},
	"admin.sql_grant":     {{"a grant", do(cordon.Administer, "sql_grant", ""), "", "", certain}, {"rows are read", do(cordon.SQL, "read", "grants"), "", "", harmless}},
	"admin.sql_role":      {{"a role", do(cordon.Administer, "sql_role", ""), "", "", certain}, {"rows are read", do(cordon.SQL, "read", "roles"), "", "", harmless}},
	"admin.sql_security":  {{"row security", do(cordon.Administer, "sql_security", ""), "", "", certain}, {"a session setting", do(cordon.SQL, "session", ""), "", "", harmless}},
	"admin.credential":    {{"a token", do(cordon.Administer, "credential", "gh"), "", "", certain}, {"the tool is started", do(cordon.Execute, "", "gh"), "", "", harmless}},
	"admin.firewall":      {{"the rules", do(cordon.Administer, "firewall", ""), "", "", certain}, {"a role has its own rule", do(cordon.Administer, "sql_role", ""), "", "", harmless}},
	"admin.security_off":  {{"a protection", do(cordon.Administer, "security_off", ""), "", "", grave}, {"the firewall has its own rule", do(cordon.Administer, "firewall", ""), "", "", harmless}},
	"admin.other": {
		{"an operation of a newer reader", do(cordon.Destroy, "satellite", ""), "", "", certain},
		{"no operation", do(cordon.Privilege, "", ""), "", "", certain},
		{"a known operation", do(cordon.Persist, "cron", ""), "", "", harmless},
	},

	"reverse_shell.connect": {
		{"a shell for the far side", do(cordon.Connect, "reverse_shell", "198.51.100.7:9001"), "", "", grave},
		{"a bound port", do(cordon.Connect, "listen", "0.0.0.0:8000"), "", "", harmless},
		{"a remote login", do(cordon.Connect, "ssh", "build.example"), "", "", harmless},
	},
	"exfil.secret": {
		{"a private key by its path", sends("paste.example:443", home+"/.ssh/id_rsa"), "", "", grave},
		{"a key even to an allowed host", sends("github.com", "~/.netrc"), "", "", grave},
		{"the environment", sends("github.com", "$*"), "", "", grave},
		{"a token to an unknown host", sends("paste.example", "$CI_JOB_TOKEN"), "", "", grave},
		{"a token among other data", sends("paste.example", "data/a.csv", "${DEPLOY_TOKEN}"), "", "", grave},
		{"a token to an allowed host, as a login does", sends("github.com", "$GITHUB_TOKEN"), "", "", unsure},
		{"perhaps a key", cordon.Effect{Kind: cordon.Connect, Sends: true, Doubtful: true, Data: []string{"~/.pgpass"}}, "", "", unsure},
		{"a public key", sends("github.com", "~/.ssh/id_rsa.pub"), "", "", harmless},
		{"an example of an environment file", sends("github.com", ".env.example"), "", "", harmless},
		{"a harmless variable", sends("paste.example", "$USER"), "", "", harmless},
		{"nothing is sent", cordon.Effect{Kind: cordon.Connect, Target: "paste.example", Data: []string{"~/.netrc"}}, "", "", harmless},
	},
	"exfil.data": {
		{"a file of the workspace to an unknown host", sends("paste.example", "data/a.csv"), "", "", unsure},
		{"unknown content to an unknown host", sends("paste.example", "-"), "", "", unsure},
		{"a file to an allowed host", sends("github.com:443", "data/a.csv"), "", "", harmless},
		{"constant text to an unknown host is left to the egress phase", sends("paste.example"), "", "", harmless},
	},
	"exfil.secret_in_message": {
		{"a token in a chat message", cordon.Effect{Kind: cordon.Send, Text: "use " + fakeGitHub + " please"}, "", "", certain},
		{"a token in a request", cordon.Effect{Kind: cordon.Connect, Sends: true, Target: "github.com", Text: fakeAWS}, "", "", certain},
		{"commands in a chat message", cordon.Effect{Kind: cordon.Send, Text: "never run rm -rf / or sudo reboot; see crontab -e"}, "", "", harmless},
		{"a placeholder", cordon.Effect{Kind: cordon.Send, Text: "export GH_TOKEN=ghp_" + strings.Repeat("x", 36)}, "", "", harmless},
		{"a token in a file that stays", cordon.Effect{Kind: cordon.Write, Target: "x", Text: fakeGitHub}, workspace + "/x", "", harmless},
	},

	"environment.loader": {
		{"a library for every program", env("LD_PRELOAD", "./hook.so"), "", "", certain},
		{"an allocator of the system", env("LD_PRELOAD", "/usr/lib/libjemalloc.so.2"), "", "", unsure},
		{"libraries from a temporary directory", env("LD_LIBRARY_PATH", "/tmp/x"), "", "", unsure},
		{"libraries that the workspace built", env("LD_LIBRARY_PATH", "./build/lib:$LD_LIBRARY_PATH"), "", "", harmless},
		{"an unknown library", env("LD_PRELOAD", ""), "", "", unsure},
		{"the path of libraries of one's own program", env("MY_LIBRARY_PATH", "/tmp/x"), "", "", harmless},
	},
	"environment.shell": {
		{"a file for every shell", env("BASH_ENV", "data/x.sh"), "", "", certain},
		{"a command at each prompt", env("PROMPT_COMMAND", "id"), "", "", certain},
		{"a prompt that runs a command", env("PS4", "$(id)"), "", "", certain},
		{"a startup file by the old name", env("ENV", "./rc"), "", "", certain},
		{"an unknown file for every shell", env("BASH_ENV", ""), "", "", unsure},
		{"a function in place of a command", env("BASH_FUNC_ls%%", "() { id; }"), "", "", certain},
		{"other startup files", env("ZDOTDIR", "data"), "", "", unsure},
		{"the name of a stage", env("ENV", "production"), "", "", harmless},
		{"a plain prompt", env("PS4", "+ "), "", "", harmless},
	},
	"environment.interpreter": {
		{"a startup file for python", env("PYTHONSTARTUP", "x.py"), "", "", unsure},
		{"modules from a temporary directory", env("PYTHONPATH", "/tmp/mods"), "", "", unsure},
		{"a function at a breakpoint", env("PYTHONBREAKPOINT", "os.system"), "", "", unsure},
		{"a file that node loads", env("NODE_OPTIONS", "--max-old-space-size=2048 --require ./hook.js"), "", "", certain},
		{"a file that node loads, joined", env("NODE_OPTIONS", "--import=data:text/javascript,1"), "", "", certain},
		{"a file that node loads, short", env("NODE_OPTIONS", "-r./hook.js"), "", "", certain},
		{"a module that ruby loads", env("RUBYOPT", "-r./hook"), "", "", certain},
		{"a module that perl loads", env("PERL5OPT", "-Mhook"), "", "", certain},
		{"an agent that java loads", env("JAVA_TOOL_OPTIONS", "-javaagent:x.jar"), "", "", certain},
		{"modules of the workspace", env("PYTHONPATH", "src:tests"), "", "", harmless},
		{"memory for node", env("NODE_OPTIONS", "--max-old-space-size=2048"), "", "", harmless},
		{"a compiler that node loads every day", env("NODE_OPTIONS", "--import tsx"), "", "", harmless},
		{"memory for java", env("JAVA_TOOL_OPTIONS", "-Xmx2g -Dfile.encoding=UTF-8"), "", "", harmless},
		{"warnings for ruby", env("RUBYOPT", "-W:no-deprecated"), "", "", harmless},
		{"no breakpoints", env("PYTHONBREAKPOINT", "0"), "", "", harmless},
		{"an unrelated variable", env("DEBUG", "--require x"), "", "", harmless},
	},
	"environment.command": {
		{"a pager that runs another program", env("PAGER", "sh -c id"), "", "", unsure},
		{"a pager that reads another file", env("MANPAGER", "cat /srv/notes"), "", "", unsure},
		{"a filter before the pager", env("LESSOPEN", "|id %s"), "", "", unsure},
		{"an editor with a command in it", env("EDITOR", "vim -c ':!id'"), "", "", unsure},
		{"sed that executes", env("GIT_SEQUENCE_EDITOR", "sed -i s/x/id/e"), "", "", unsure},
		{"a goal for make", env("MAKEFLAGS", "--eval=$(shell id)"), "", "", unsure},
		{"a wrapper for the go tools", env("GOFLAGS", "-toolexec=./x"), "", "", unsure},
		{"no pager", env("GIT_PAGER", "cat"), "", "", harmless},
		{"a pager with options", env("PAGER", "less -FRX"), "", "", harmless},
		{"an editor that waits", env("GIT_EDITOR", "code --wait"), "", "", harmless},
		{"an editor that does nothing", env("GIT_EDITOR", "true"), "", "", harmless},
		{"a rebase that squashes", env("GIT_SEQUENCE_EDITOR", "sed -i -e '2s/pick/squash/'"), "", "", harmless},
		{"jobs for make", env("MAKEFLAGS", "-j8"), "", "", harmless},
		{"vendored modules", env("GOFLAGS", "-mod=vendor"), "", "", harmless},
	},
	"environment.git": {
		{"a command in place of ssh", env("GIT_SSH_COMMAND", "sh -c id"), "", "", certain},
		{"ssh with a proxy command", env("GIT_SSH_COMMAND", "ssh -o ProxyCommand=id"), "", "", certain},
		{"a command in place of diff", env("GIT_EXTERNAL_DIFF", "./x"), "", "", certain},
		{"settings from another file", env("GIT_CONFIG_GLOBAL", "data/gitconfig"), "", "", unsure},
		{"settings in a parameter", env("GIT_CONFIG_PARAMETERS", "'core.pager'='id'"), "", "", unsure},
		{"hooks from a template", env("GIT_TEMPLATE_DIR", "data/template"), "", "", unsure},
		{"a setting that runs code", env("GIT_CONFIG_KEY_0", "core.fsmonitor"), "", "", unsure},
		{"ssh with a key and no questions", env("GIT_SSH_COMMAND", "ssh -i deploy -o BatchMode=yes"), "", "", harmless},
		{"no settings at all", env("GIT_CONFIG_GLOBAL", "/dev/null"), "", "", harmless},
		{"a safe directory", env("GIT_CONFIG_KEY_0", "safe.directory"), "", "", harmless},
		{"an author", env("GIT_AUTHOR_NAME", "Ann"), "", "", harmless},
	},
	"environment.path": {
		{"a temporary directory first", env("PATH", "/tmp/x:/usr/bin:/bin"), "", "", unsure},
		{"the current directory first", env("PATH", ".:$PATH"), "", "", unsure},
		{"an empty entry", env("PATH", ":$PATH"), "", "", unsure},
		{"a data directory of the workspace", env("PATH", "data:$PATH"), "", "", unsure},
		{"the workspace's own programs", env("PATH", "./bin:$PATH"), "", "", harmless},
		{"installed modules' programs", env("PATH", workspace+"/node_modules/.bin:/usr/bin"), "", "", harmless},
		{"a virtual environment", env("PATH", ".venv/bin:${PATH}"), "", "", harmless},
		{"a directory behind the system's", env("PATH", "$PATH:/tmp/x"), "", "", harmless},
		{"the user's own tools", env("PATH", "$HOME/.cargo/bin:$PATH"), "", "", harmless},
	},
	"environment.redirect": {
		{"a proxy on an unknown host", env("https_proxy", "http://198.51.100.7:8080"), "", "", unsure},
		{"a package index on an unknown host", env("PIP_INDEX_URL", "https://index.example/simple"), "", "", unsure},
		{"an allowed name as userinfo", env("GOPROXY", "https://github.com@index.example"), "", "", unsure},
		{"one of two is unknown", env("GOPROXY", "https://github.com,https://index.example,direct"), "", "", unsure},
		{"an unknown value", env("HTTP_PROXY", ""), "", "", unsure},
		{"an allowed host", env("PIP_INDEX_URL", "https://github.com/simple"), "", "", harmless},
		{"no downloads", env("GOPROXY", "off"), "", "", harmless},
		{"what is not proxied", env("NO_PROXY", "localhost"), "", "", harmless},
	},

	"obfuscation.decoded": {
		{"a shell fed by a decoder", cordon.Effect{Kind: cordon.Opaque, Origin: cordon.OriginDecoded}, "", "", certain},
		{"code that was decoded and read", cordon.Effect{Kind: cordon.RunCode, Target: "python", Text: "1", Origin: cordon.OriginDecoded}, "", "", certain},
		{"code that stands in the call", cordon.Effect{Kind: cordon.RunCode, Target: "python", Text: "1", Origin: cordon.OriginLiteral}, "", "", harmless},
	},
	"obfuscation.network": {
		{"a shell fed by a download", cordon.Effect{Kind: cordon.Opaque, Origin: cordon.OriginNetwork}, "", "", grave},
		{"a program that was downloaded", cordon.Effect{Kind: cordon.Execute, Target: "./x", Origin: cordon.OriginNetwork}, "", "", grave},
		{"perhaps a download", cordon.Effect{Kind: cordon.Execute, Target: "./x", Origin: cordon.OriginNetwork, Doubtful: true}, "", "", unsure},
		{"a program of the workspace", cordon.Effect{Kind: cordon.Execute, Target: "./x", Origin: cordon.OriginFile}, "", "", harmless},
	},
	"opaque": {
		{"a command word that cannot be told", cordon.Effect{Reason: "command word from a file"}, "", "", unsure},
		{"the zero effect", cordon.Effect{}, "", "", unsure},
		{"code past a limit", cordon.Effect{Origin: cordon.OriginLiteral, Reason: "nesting above 500"}, "", "", unsure},
		{"code without a text", cordon.Effect{Kind: cordon.RunCode, Target: "python"}, "", "", unsure},
		{"code that was read", cordon.Effect{Kind: cordon.RunCode, Target: "shell", Text: "ls"}, "", "", harmless},
		{"a script that stood there before", cordon.Effect{Kind: cordon.RunCode, Target: "python", Origin: cordon.OriginFile}, "", "", harmless},
		{"a decoder has its own rule", cordon.Effect{Origin: cordon.OriginDecoded}, "", "", harmless},
	},
	"malformed": {
		{"code with a NUL", cordon.Effect{Reason: "malformed: NUL in the code"}, "", "", certain},
		{"a word about malformed input", cordon.Effect{Reason: "reads malformed: input"}, "", "", harmless},
	},

	"self.files": {
		{"the configuration", do(cordon.Write, "", "cordon.yaml"), workspace + "/cordon.yaml", "", certain},
		{"the records", do(cordon.Delete, "", "~/.local/state/cordon/audit.db"), "", "", certain},
		{"it is read", reads("cordon.yaml"), workspace + "/cordon.yaml", "", harmless},
		{"a file with a similar name", do(cordon.Write, "", "~/.config/cordonbleu/x"), "", "", harmless},
	},
	"self.agent_settings": {
		{"an agent's settings in the workspace", do(cordon.Write, "", ".claude/settings.local.json"), workspace + "/.claude/settings.local.json", "", certain},
		{"its servers, in another case", do(cordon.Write, "", ".MCP.json"), workspace + "/.MCP.json", "", certain},
		{"the folder is removed", rm(".claude"), workspace + "/.claude", "", certain},
		{"they are read", reads(".claude/settings.json"), workspace + "/.claude/settings.json", "", harmless},
		{"a file of one's own called settings.json", do(cordon.Write, "", "conf/settings.json"), workspace + "/conf/settings.json", "", harmless},
	},
	"self.command": {
		{"a kill is released", cordon.Effect{Kind: cordon.Execute, Target: "/usr/bin/cordon", Text: "kill --release r1 --why x"}, "", "", certain},
		{"unknown arguments", do(cordon.Execute, "", "cordon"), "", "", unsure},
		{"a proposal is approved", cordon.Effect{Kind: cordon.Execute, Target: "cordon", Text: "proposals approve prop-1"}, "", "", certain},
		{"a flag before the command", cordon.Effect{Kind: cordon.Execute, Target: "cordon", Text: "--db x proposals approve prop-1"}, "", "", certain},
		{"its hooks are taken away", cordon.Effect{Kind: cordon.Execute, Target: "cordon", Text: "uninstall claude"}, "", "", certain},
		{"a command inside wider walls", cordon.Effect{Kind: cordon.Execute, Target: "cordon", Text: "run --write=/ -- rm -r x"}, "", "", unsure},
		{"a command inside the walls", cordon.Effect{Kind: cordon.Execute, Target: "cordon", Text: "run --diff -- make test"}, "", "", harmless},
		{"proposals are listed", cordon.Effect{Kind: cordon.Execute, Target: "cordon", Text: "proposals list --json"}, "", "", harmless},
		{"its version", cordon.Effect{Kind: cordon.Execute, Target: "cordon", Text: "version"}, "", "", harmless},
		{"another program", do(cordon.Execute, "", "cordonbleu"), "", "", harmless},
	},
	"self.environment": {
		{"the switch", env("ATOM_SANDBOX_ENABLED", "false"), "", "", unsure},
		{"where an agent's hooks are looked for", env("CLAUDE_CONFIG_DIR", "/tmp/c"), "", "", unsure},
		{"a variable of one's own", env("SANDBOX_ENABLED", "false"), "", "", harmless},
	},
}

func TestEffectRules(t *testing.T) {
	for rule, rows := range effectCases {
		for _, row := range rows {
			t.Run(rule+"/"+row.name, func(t *testing.T) {
				findings := Judge(input(row))
				if got := verdict(findings, rule); got != row.want {
					t.Errorf("%s, want %s; findings %+v", got, row.want, findings)
				}
			})
		}
	}
}

// Near-misses of a rule that only reads are calls that people make: nothing
// else may fire on them either.
func TestOrdinaryEffectsHaveNoFindingAtAll(t *testing.T) {
	for _, rule := range []string{"credential.env_secret", "destructive.recursive_delete", "destructive.recursive_mode", "environment.loader",
		"environment.shell", "environment.interpreter", "environment.command", "environment.git", "environment.path"} {
		for _, row := range effectCases[rule] {
			if row.want != harmless {
				continue
			}
			t.Run(rule+"/"+row.name, func(t *testing.T) {
				if findings := Judge(input(row)); len(findings) != 0 {
					t.Errorf("findings %+v", findings)
				}
			})
		}
	}
}

// The mutation proof: a rule that never fires, or that always does, breaks
// a row; a rule without rows breaks this.
func TestEveryRuleHasHitsAndNearMisses(t *testing.T) {
	names := map[string]bool{}
	for _, rule := range Rules() {
		if names[rule.Name] {
			t.Errorf("%s stands twice", rule.Name)
		}
		names[rule.Name] = true
		if rule.Category == "" || !strings.HasSuffix(rule.Doc, ".") {
			t.Errorf("%s lacks a category or a sentence", rule.Name)
		}
		hits, misses := 0, 0
		for _, row := range effectCases[rule.Name] {
			if row.want == harmless {
				misses++
			} else {
				hits++
			}
		}
		if c, ok := patternCases[rule.Name]; ok {
			hits, misses = len(c.hits), len(c.misses)
		}
		if hits == 0 || misses == 0 {
			t.Errorf("%s has %d hits and %d near-misses, want some of both", rule.Name, hits, misses)
		}
	}
	for name := range effectCases {
		if !names[name] {
			t.Errorf("rows for %s, which is no rule", name)
		}
	}
	for name := range patternCases {
		if !names[name] {
			t.Errorf("rows for %s, which is no rule", name)
		}
	}
}

func TestOperationsAndTheirRulesAgree(t *testing.T) {
	for kind, ops := range knownOps {
		for operation := range ops {
			found := false
			for _, f := range Judge(Input{Effects: []cordon.Effect{do(kind, operation, "x")}}) {
				found = found || f.Rule != "admin.other"
			}
			if !found {
				t.Errorf("%s %s is called known, but no rule judges it", kind, operation)
			}
		}
	}
}
