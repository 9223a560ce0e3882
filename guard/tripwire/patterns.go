package tripwire

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// pattern is a rule on text that is executed and that no reader could read.
// Text is folded first (fold), so patterns are written in small letters.
type pattern struct {
	Rule
	severity severity
	// literals: the text must contain one of them before anything else runs.
	literals []string
	// match is compiled at its first use; nil leaves it to confirm.
	match func() *regexp.Regexp
	// confirm, when set, decides on the text after match.
	confirm func(text string) bool
}

func (p *pattern) hits(text string) bool {
	for _, l := range p.literals {
		if strings.Contains(text, l) {
			return (p.match == nil || p.match().MatchString(text)) && (p.confirm == nil || p.confirm(text))
		}
	}
	return false
}

func re(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Repetitions are never counted in hundreds: each count would be a state of
// the automaton, and the time for a large text grows with both.

// Pieces of patterns: where a command may start, and the directories that
// nobody deletes.
const (
	start  = "(?:^|[\\n;&|(`{'\"]|\\$\\(|\\b(?:then|do|else|exec|nohup|xargs|time)\\b)\\s*"
	finish = "(?:[\\s;&|)'\"`]|$)"
	vital  = `(?:/(?:bin|boot|dev|etc|home|lib|lib64|opt|root|sbin|srv|sys|usr|var)?|~|\$\{?home\}?)/?\*?`
)

func onText(name, doc string) Rule {
	category, _, _ := strings.Cut(name, ".")
	return Rule{"text." + name, category, doc}
}

// patterns is the registry of text patterns. A pattern is one entry here, and
// its rows in patterns_test.go.
var patterns = []pattern{
	{onText("credential.private_key", "Names a private SSH key."), grave,
		[]string{".ssh/", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa"},
		re(`\.ssh/(?:id_\w+|identity|\*|\?)` + finish + `|\bid_(?:rsa|ed25519|ecdsa|dsa)` + finish), nil},
	{onText("credential.cloud_keys", "Names the credentials of a cloud or cluster."), grave,
		[]string{".aws/", ".config/gcloud", ".azure/", ".kube/config", "169.254.169.254", "metadata.google"},
		nil, nil},
	{onText("credential.login_file", "Names a file that holds logins."), grave,
		[]string{".netrc", ".pgpass", ".git-credentials", ".pypirc", ".docker/config.json", ".gnupg", ".npmrc", ".vault-token"},
		re(`[/~"'\s](?:\.netrc|\.pgpass|\.git-credentials|\.pypirc|\.docker/config\.json|\.gnupg|\.npmrc|\.vault-token)\b`), nil},
	{onText("credential.system_passwords", "Names the password files of the system."), grave,
		[]string{"/etc/"}, re(`/etc/(?:shadow|gshadow|master\.passwd|sudoers)\b`), nil},
	{onText("credential.process_environment", "Names the environment of a process."), certain,
		[]string{"/environ"}, re(`/proc/(?:self|thread-self|\d+|\$\w+|\*)/environ\b`), nil},
	{onText("credential.environment_dump", "Takes the whole environment."), unsure,
		[]string{"env", "environ"},
		re(start + `(?:printenv|env)\s*(?:[|;&>\n)]|$)|(?:dict|print|dumps|str|repr|list)\(\s*(?:dict\()?os\.environ\s*\)|stringify\(\s*process\.env\s*\)`), nil},
	{onText("credential.secret_variable", "Reads a variable whose name says that it is a secret."), unsure,
		[]string{"secret", "token", "password", "passwd", "api_key", "access_key"},
		re(`(?:\benviron|getenv|process\.env|\benv\[)\W{0,3}\w{0,40}(?:secret|token|password|passwd|api_key|access_key)|\$\{?[a-z0-9_]{0,40}_(?:secret|token|password|api_key|access_key)\b`), nil},

	{onText("destructive.recursive_delete", "Deletes the root, a system directory or a home."), grave,
		[]string{"rm"}, re(`\brm\s+(?:-\S+\s+)*(?:-[a-z]*r[a-z]*|--recursive)\s+(?:-\S*\s+)*["']?` + vital + finish), nil},
	{onText("destructive.tree_removal", "Deletes the root, a system directory or a home from a program."), grave,
		[]string{"rmtree", "rmsync", "remove_dir_all", "rm_rf", "remove_entry", "rimraf"},
		re(`(?:rmtree|rm(?:sync)?|remove_dir_all|rm_rf|remove_entry\w*|rimraf)\s*\(?\s*["']` + vital + `["']|rmtree\s*\(\s*(?:os\.path\.expanduser|path\.home|os\.environ)`), nil},
	{onText("destructive.disk", "Formats, wipes or overwrites a disk."), grave,
		[]string{"mkfs", "/dev/", "wipefs", "blkdiscard"},
		re(start + `(?:mkfs(?:\.\w+)?|wipefs|blkdiscard)\s+\S|\bof=/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|mapper|disk)|>\s*/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk)|\bshred\s[^\n;|]*/dev/(?:sd|hd|vd|xvd|nvme|mmcblk)`), nil},
	{onText("destructive.fork_bomb", "Starts processes without end."), grave,
		[]string{"()", "( )"}, nil, forkBomb},
	{onText("destructive.kill_all", "Ends every process."), grave,
		[]string{"kill"}, re(`\bkill\s+(?:-(?:\d+|[a-z]+|s\s+\w+)\s+(?:--\s+)?|--\s+)-1` + finish + `|os\.kill\(\s*-1\b|process\.kill\(\s*-1\b`), nil},
	{onText("destructive.drop_table", "Drops a table or schema."), certain,
		[]string{"drop"}, re(`\bdrop\s+(?:table|schema)\s+[\w"'\x60.\[]`), nil},
	{onText("destructive.drop_database", "Drops a database."), grave,
		[]string{"drop"}, re(`\bdropdb\s+\S|\bdrop\s+(?:database|tablespace)\s+[\w"'\x60.\[]`), nil},
	{onText("destructive.truncate_table", "Empties a table."), certain,
		[]string{"truncate"}, re(`(?:^|[;'"(\n])\s*truncate\s+(?:table\s+)?(?:only\s+)?[a-z_"\x60\[][\w".\x60\]]*\s*(?:[,;'")]|cascade|restart|$)`), nil},
	{onText("destructive.delete_unfiltered", "Deletes every row of a table."), certain,
		[]string{"delete"}, re(`\bdelete\s+from\s+(?:only\s+)?[\w"\x60.\[\]]+\s*(?:[;'")]|$)`), nil},
	{onText("destructive.update_unfiltered", "Changes every row of a table."), certain,
		[]string{"update"}, nil, updateWithoutFilter},
	{onText("destructive.force_push", "Overwrites the history of a remote repository."), unsure,
		[]string{"push"}, re(`\bgit\b[^\n;|&]*\bpush\b[^\n;|&]*\s(?:--force\b|-f\b|--mirror\b|\+[\w/]+)`), nil},
	{onText("destructive.power", "Stops or restarts the machine."), certain,
		[]string{"shutdown", "reboot", "poweroff", "halt", "init "},
		re(start + `(?:/?\w*/)*(?:shutdown\s+(?:-\w+|now)|reboot|poweroff|halt|init\s+[06])` + finish), nil},

	{onText("privilege.sudo", "Runs a program with another user's rights."), certain,
		[]string{"sudo", "doas", "pkexec"}, re(start + `(?:\w+=\S*\s+)*(?:/\w+)*/?(?:sudo|doas|pkexec)(?:["'],|\s+[-/\w.])`), nil},
	{onText("privilege.setuid", "Makes a program run with its owner's rights."), certain,
		[]string{"chmod", "setcap", "s_isuid"},
		re(`\bchmod\s+(?:-\S+\s+)*(?:[ugoa]*[+=][rwxt]*s[rwxt]*|0?[2-7][0-7]{3})\s|chmod\([^\n)]*0o?[2-7][0-7]{3}\b|chmod\([^\n)]*s_isuid|` + start + `setcap\s+\S`), nil},
	{onText("privilege.user_admin", "Adds or changes users, groups or passwords."), grave,
		[]string{"user", "group", "passwd", "visudo"},
		re(start + `(?:/\w+)*/?(?:useradd|adduser|usermod|groupmod|chpasswd|visudo|gpasswd)(?:\s+-|\s+\w|["'],|\s*$|\n)`), nil},
	{onText("privilege.host_container", "Starts a container with rights over the host, or enters the host."), grave,
		[]string{"docker", "podman", "nsenter", "nerdctl"},
		re(`\b(?:docker|podman|nerdctl)\b[^\n;|]*(?:--privileged|-v[\s=]*/:|--volume[\s=]/:|--pid[\s=]host|source=/,|docker\.sock)|\bnsenter\s+-`), nil},

	{onText("cron.crontab", "Replaces a crontab."), grave,
		[]string{"crontab"}, re(`(?:^|[\s;&|("'/])crontab\s+(?:-\s*(?:["';&|)\n]|$)|-[eru]\b|[^-\s|;&)])`), nil},
	{onText("cron.system_file", "Writes to the system's schedule."), grave,
		[]string{"/etc/cron", "/var/spool/cron"}, re(`/etc/cron(?:tab|\.d|\.hourly|\.daily|\.weekly|\.monthly)|/var/spool/cron`), nil},
	{onText("cron.service", "Installs a service."), grave,
		[]string{"systemctl", "systemd", "launchctl", "/etc/rc.local", "autostart"},
		re(`\bsystemctl\s+(?:-\S+\s+)*(?:enable|link)\b|systemd/(?:system|user)/|\blaunchctl\s+(?:load|bootstrap)\b|/etc/rc\.local|\.config/autostart/`), nil},
	{onText("cron.shell_rc", "Writes to a file that every shell runs."), certain,
		[]string{".bashrc", ".zshrc", "profile", ".zshenv", ".bash_login"},
		re(`(?:>>?|\btee\b[^\n|;]*)\s*["']?\S*(?:\.bashrc|\.zshrc|\.zshenv|\.bash_profile|\.profile|\.bash_login)\b|(?:\.bashrc|\.zshrc|\.zshenv|\.bash_profile|\.profile|\.bash_login)["']\)?\s*,\s*["'][awx]`), nil},
	{onText("cron.authorized_keys", "Lets a key log in."), grave,
		[]string{"authorized_keys"},
		re(`(?:>>?|\btee\b[^\n|;]*|\bcp\b[^\n|;]*)\s*["']?\S*authorized_keys|authorized_keys["']\)?\s*,\s*["'][awx]|authorized_keys[^\n]{0,40}(?:write_text|appendfile|writefile)|(?:appendfile|writefile)\w*\([^\n]*authorized_keys`), nil},

	{onText("admin.iam", "Changes who may do what in a cloud account."), certain,
		[]string{"iam", "role", "_policy", "access_key"},
		re(`\baws\b[^\n;|]*\biam\s+(?:attach|put|create|add|update)-|\b(?:attach_(?:user|role|group)_policy|put_(?:user|role)_policy|create_access_key|create_login_profile)\(|add-iam-policy-binding|\baz\s+role\s+assignment\s+create`), nil},
	{onText("admin.cluster", "Gives a cluster's rights."), grave,
		[]string{"clusterrole", "cluster-admin"}, re(`\b(?:create|apply|patch|edit|replace)\b[^\n;|]*clusterrole|clusterrole[= ]cluster-admin`), nil},
	{onText("admin.sql_rights", "Grants rights or makes roles in a database."), certain,
		[]string{"grant", "superuser", "create role", "create user", "alter role", "alter user", "identified by"},
		re(`\bgrant\s+[a-z_, ]{2,80}\s+(?:on|to)\s|\b(?:alter|create)\s+(?:role|user)\s+\S+\s[^;]*(?:superuser|createrole|password|identified\s+by)`), nil},
	{onText("admin.protection_off", "Turns off a protection of the machine."), grave,
		[]string{"iptables", "ufw", "setenforce", "nft ", "apparmor", "auditctl"},
		re(start + `(?:\w+\s+)?(?:iptables\s+(?:-f|--flush|-p\s+\w+\s+accept)|ufw\s+(?:disable|reset)|setenforce\s+0|nft\s+flush|auditctl\s+-[de])|systemctl\s+(?:stop|disable)\s+(?:apparmor|auditd|firewalld|ufw)`), nil},

	{onText("reverse_shell.dev_tcp", "Opens a shell over the shell's own network files."), grave,
		[]string{"/dev/tcp/", "/dev/udp/", "/inet/tcp/", "/inet/udp/"}, re(`/inet/(?:tcp|udp)/[\s\S]*\|&\s*getline|\bsh\b[^\n]*/dev/(?:tcp|udp)/|\bexec\s+\d*<>\s*/dev/(?:tcp|udp)/|[<>]&\s*/dev/(?:tcp|udp)/`), nil},
	{onText("reverse_shell.netcat", "Gives a shell to netcat."), grave,
		[]string{"nc", "netcat"},
		re(`\b(?:nc|ncat|netcat)(?:\.\w+)?\s[^\n;|]*(?:-[a-z]*[ec]|--exec|--sh-exec)[\s=]+\S*(?:sh|cmd|python)|\bmkfifo\b[\s\S]*\bsh\b[\s\S]*\b(?:nc|ncat|netcat|openssl|telnet)\b`), nil},
	{onText("reverse_shell.socat", "Gives a shell to socat."), grave,
		[]string{"socat"}, re(`\bsocat\b[^\n]*\b(?:exec|system):`), nil},
	{onText("reverse_shell.program", "Joins a socket to a shell in a program."), grave,
		[]string{"sock", "net.connect", "tcpsocket", "createconnection", "net.dial", "'net'", "\"net\"", "node:net"}, nil, socketShell},

	{onText("exfil.upload", "Sends a file away."), unsure,
		[]string{"curl", "wget"},
		re(`\bcurl\b[^\n;|]*\s(?:-d\s*|--data(?:-\w+)?[\s=]|-f\s*\S*=|--form[\s=]\S*=)["']?@|\bcurl\b[^\n;|]*\s(?:-t|--upload-file)[\s=]+\S|\bwget\b[^\n;|]*--(?:post|body)-file`), nil},
	{onText("exfil.pipe", "Pipes data into the network."), unsure,
		[]string{"|"}, re(`(?:^|[^|])\|\s*(?:nc|ncat|netcat|socat|telnet|openssl\s+s_client|curl\b[^\n|;]*(?:@-|-t\s*-))` + finish), nil},
	{onText("exfil.dns", "Puts data into the names that it looks up."), certain,
		[]string{"dig ", "nslookup ", "host ", "ping "}, re(start + `(?:dig|nslookup|host|ping)\s[^\n;|]*(?:\$\([^\n)]*\)|\x60[^\n\x60]*\x60)\.\w`), nil},
	{onText("exfil.credential", "Sends a credential away."), grave,
		[]string{"curl", "wget", "nc ", "scp ", "requests.", "urlopen", "fetch("}, nil, sendsCredential},

	{onText("obfuscation.download_run", "Runs what it downloads."), grave,
		[]string{"curl", "wget", "urlopen", "requests.get"},
		re(`\b(?:curl|wget)\b[^\n;]*\|\s*(?:sudo\s+)?(?:env\s+)?(?:/\w+)*/?(?:(?:ba|z|da|k|a)?sh|python[\d.]*|perl|ruby|node|php)` + finish +
			`|(?:sh|eval|source)\b[^\n]{0,20}(?:<\(|\$\()\s*(?:curl|wget)\b|\bexec\(\s*(?:urllib\.request\.)?(?:urlopen|requests\.get)\(`), nil},
	{onText("obfuscation.decode_run", "Runs what it decodes."), certain,
		[]string{"base64", "xxd", "b64decode", "atob", "frombase64", "decode("},
		re(`\b(?:base64|base32|xxd|openssl)\b[^\n;]*\|\s*(?:(?:ba|z|da|k|a)?sh|python[\d.]*|perl|ruby|node)` + finish +
			`|\b(?:eval|exec)\b[\s(]{1,4}[^\n]*(?:b64decode|base64_decode|decode64|atob|frombase64|unhexlify|base64)`), nil},
}

func forkBomb(text string) bool {
	if !strings.Contains(text, "|") {
		return false
	}
	squeezed := strings.NewReplacer(" ", "", "\t", "", "\n", "").Replace(text)
	at := strings.Index(squeezed, "(){")
	for at >= 0 {
		name := squeezed[:at]
		first := strings.LastIndexAny(name, ";&|{}()'\"") + 1
		name = strings.TrimPrefix(name[first:], "function")
		body := squeezed[at+len("(){"):]
		if name != "" && len(name) <= 64 && strings.HasPrefix(body, name+"|"+name+"&") {
			return true
		}
		squeezed = body
		at = strings.Index(squeezed, "(){")
	}
	return false
}

var updateSet = re(`\bupdate\s+(?:only\s+)?[\w"\x60.\[\]]+\s+(?:as\s+\w+\s+)?set\s`)

// updateWithoutFilter looks for an UPDATE whose statement ends without a
// WHERE, which one regular expression cannot say.
func updateWithoutFilter(text string) bool {
	for statement := range strings.SplitSeq(text, ";") {
		at := updateSet().FindStringIndex(statement)
		if at != nil && !containsAny(statement[at[1]:], "where", "join") {
			return true
		}
	}
	return false
}

func socketShell(text string) bool {
	return containsAny(text, "socket", "fsockopen", "net.connect", "createconnection", "net.dial", "'net'", "\"net\"", "node:net") &&
		containsAny(text, "connect", "new(", "open(", "dial", "inet", "fsockopen", "[socket ", "socket(") &&
		containsAny(text, "dup2", "fileno()", ">&", "<&", ".pipe(", "stdin", "io.popen", "os.execute", "proc_open", "exec sh", "<&%d", "spawn(", "/bin/sh -i") &&
		containsAny(text, "/bin/sh", "/bin/bash", `"sh"`, "'sh'", "bash -i", "sh -i", "exec sh", "cmd.exe", "pty.spawn", "io.popen", "powershell")
}

func containsAny(text string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

var credentialFile = re(`\.ssh/(?:id_\w+|\*)|\.aws/credentials|\.netrc\b|\.git-credentials|\.kube/config|\.gnupg|\.pgpass|/etc/shadow|/\.env\b|[\s@"']\.env\b`)

// sendsCredential wants the file and the sender in one line.
func sendsCredential(text string) bool {
	for line := range strings.Lines(text) {
		if containsAny(line, "curl", "wget", "nc ", "scp ", "requests.", "urlopen", "fetch(") && containsAny(line, ".", "/etc/") && credentialFile().MatchString(line) {
			return true
		}
	}
	return false
}

// readable are the languages that have a reader, and the small ones that the
// shell's reader reads itself; "unknown" is read under each that it may be.
// Code in another one is never read, so its text is always searched.
var readable = sync.OnceValue(func() map[string]bool {
	return set("shell", "sh", "bash", "python", "javascript", "js", "typescript", "ts", "jsx", "tsx", "sql", "awk", "sed", "jq", "unknown")
})

// textBudget is how many bytes of unread code are searched in one call. More
// is no ordinary call; it stays restricted as opaque.
const textBudget = 512 << 10

// judgeText runs the patterns on code that nobody could read: an Opaque
// effect's text, or the RunCode that an Opaque effect stands beside.
func (s *scene) judgeText(e *cordon.Effect) {
	mildest := s.unread(e)
	if e.Text == "" || mildest == harmless {
		return
	}
	if s.searched += len(e.Text); s.searched > textBudget {
		s.report(e, "opaque", ruling{severity: unsure, detail: "The call holds more unread code than is searched."})
		return
	}
	folded := fold(e.Text, e.Target == "sql")
	for i := range patterns {
		p := &patterns[i]
		if !p.hits(folded) {
			continue
		}
		d := ruling{severity: max(p.severity, mildest), detail: "Unread code: " + p.Doc}
		if mildest == certain && p.Category == "reverse_shell" {
			d.severity = p.severity // its parts do not stand together by chance
		}
		s.report(e, p.Name, d)
	}
}

// unread says how severe a hit in the text may be at most: harmless where
// the code was read. Words in code that was read in part, or by a reader
// that doubts whether it is code, may stand in a string or a pattern that
// the code searches for.
func (s *scene) unread(e *cordon.Effect) severity {
	switch {
	case e.Kind == cordon.Opaque:
		return grave
	case !readable()[e.Target]:
		if s.failed(e) == grave {
			return grave
		}
		return certain
	case e.Doubtful && e.Target == "unknown":
		return unsure // text of unknown role, which no reader is asked about
	}
	return s.failed(e)
}

// failed looks for the Opaque effect of the same argument and chain by which
// the reader of the code says that it failed. One that carries another text
// speaks of that, and what a decoder or the network feeds is not this code.
func (s *scene) failed(code *cordon.Effect) severity {
	mildest := harmless
	for i := range s.Effects {
		o := &s.Effects[i]
		if o.Kind != cordon.Opaque || o.Arg != code.Arg || o.Origin > cordon.OriginLiteral ||
			!sameText(o.Text, code.Text) || !slices.Equal(o.Via, code.Via) {
			continue
		}
		switch {
		case !failure(o.Reason):
			mildest = min(mildest, unsure)
		case o.Doubtful:
			mildest = min(mildest, certain)
		default:
			return grave
		}
	}
	return mildest
}

// sameText: readers leave the text away, or cut a long one.
func sameText(opaque, code string) bool {
	return opaque == "" || opaque == code || len(opaque) >= 512 && strings.HasPrefix(code, opaque)
}

// failure: the reason says that the code as a whole was not read, and not
// that one thing in it cannot be told. No reason is a failure too.
func failure(reason string) bool {
	return reason == "" || containsAny(reason, "not a ", "no reader", "limit", "nest", "more than", "longer", "too ", "takes", "time",
		"parse", "syntax", "not closed", "unexpected", "malformed")
}
