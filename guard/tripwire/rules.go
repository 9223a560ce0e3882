package tripwire

import (
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// Rule is what a report or a table of rules shows of one rule.
type Rule struct {
	// Name is stable: "destructive.recursive_delete". Rules on text start
	// with "text.".
	Name string
	// Category is "credential", "destructive", "privilege", "persistence",
	// "cron", "admin", "reverse_shell", "exfil", "environment",
	// "obfuscation" or "self".
	Category string
	// Doc says in one sentence what it fires on.
	Doc string
}

// effectRule judges effects of its kinds.
type effectRule struct {
	Rule
	kinds []cordon.Kind
	judge func(s *scene, i int, e *cordon.Effect) ruling
}

// Rules lists every rule, effect rules first, in the order in which they
// judge.
func Rules() []Rule {
	var out []Rule
	for i := range effectRules {
		out = append(out, effectRules[i].Rule)
	}
	for i := range patterns {
		out = append(out, patterns[i].Rule)
	}
	return out
}

// byKind finds the rules of an effect without walking the whole list.
var byKind = sync.OnceValue(func() [][]*effectRule {
	return indexRules(effectRules)
})

func indexRules(rules []effectRule) [][]*effectRule {
	index := make([][]*effectRule, cordon.SQL+1)
	for i := range rules {
		for _, k := range rules[i].kinds {
			index[k] = append(index[k], &rules[i])
		}
	}
	return index
}

var (
	pathKinds = []cordon.Kind{cordon.Read, cordon.List, cordon.Write, cordon.Delete, cordon.Execute}
	codeKinds = []cordon.Kind{cordon.Opaque, cordon.Execute, cordon.RunCode}
	changes   = []cordon.Kind{cordon.Write, cordon.Delete}
)

// malformedRule is the one rule whose violation is not a tripwire.
const malformedRule = "malformed"

// effectRules is the registry. A rule is one line here, and its rows in
// rules_test.go.
var effectRules = []effectRule{
	{Rule{"credential.store", "credential", "Touches a key, token or credential store."}, pathKinds, credentialStore},
	{Rule{"credential.env_secret", "credential", "Reads an environment variable whose name says that it is a secret."}, []cordon.Kind{cordon.ReadEnv}, secretVariable},
	{Rule{"credential.env_dump", "credential", "Reads the whole environment."}, []cordon.Kind{cordon.ReadEnv}, environmentDump},

	{Rule{"destructive.recursive_delete", "destructive", "Deletes the root, a system directory, a home or the workspace with all below."}, []cordon.Kind{cordon.Delete}, recursiveDelete},
	{Rule{"destructive.recursive_mode", "destructive", "Changes modes or owners of the root, a system directory or a home with all below."}, []cordon.Kind{cordon.Write}, recursiveMode},
	{Rule{"destructive.disk_write", "destructive", "Writes to a disk or memory device."}, changes, diskWrite},
	op(cordon.Destroy, "disk", "destructive.disk", grave, "Formats, wipes or overwrites a disk."),
	op(cordon.Destroy, "drop_table", "destructive.drop_table", certain, "Drops a table."),
	op(cordon.Destroy, "drop_database", "destructive.drop_database", grave, "Drops a database."),
	op(cordon.Destroy, "truncate_table", "destructive.truncate_table", certain, "Empties a table."),
	op(cordon.Destroy, "delete_unfiltered", "destructive.delete_unfiltered", certain, "Deletes every row of a table."),
	op(cordon.Destroy, "update_unfiltered", "destructive.update_unfiltered", certain, "Changes every row of a table."),
	op(cordon.Destroy, "force_push", "destructive.force_push", unsure, "Overwrites the history of a remote repository."),
	op(cordon.Destroy, "kill_all", "destructive.kill_all", grave, "Ends every process it can reach."),
	op(cordon.Destroy, "fork_bomb", "destructive.fork_bomb", grave, "Starts processes without end."),
	op(cordon.Destroy, "cluster", "destructive.cluster", certain, "Deletes what a cluster holds."),
	op(cordon.Destroy, "cloud", "destructive.cloud", certain, "Deletes resources of a cloud account."),
	op(cordon.Destroy, "container", "destructive.container", unsure, "Removes containers, images or volumes."),
	op(cordon.Destroy, "power", "destructive.power", certain, "Stops or restarts the machine."),
	op(cordon.Destroy, "history", "destructive.history", unsure, "Rewrites or drops a history that cannot be got back."),

	op(cordon.Privilege, "sudo", "privilege.sudo", certain, "Runs a program with another user's rights."),
	op(cordon.Privilege, "su", "privilege.su", certain, "Becomes another user."),
	{Rule{"privilege.setuid", "privilege", "Makes a program run with its owner's rights."}, []cordon.Kind{cordon.Privilege}, setuid},
	op(cordon.Privilege, "setcap", "privilege.setcap", certain, "Gives a program capabilities."),
	op(cordon.Privilege, "user_admin", "privilege.user_admin", grave, "Adds or changes users, groups or passwords."),
	op(cordon.Privilege, "namespace", "privilege.namespace", certain, "Enters or makes namespaces."),
	{Rule{"privilege.container", "privilege", "Starts a container with rights over the host."}, []cordon.Kind{cordon.Privilege}, container},
	op(cordon.Privilege, "mount", "privilege.mount", certain, "Mounts or unmounts a file system."),
	op(cordon.Privilege, "ptrace", "privilege.ptrace", certain, "Takes hold of another process."),
	op(cordon.Privilege, "module", "privilege.module", certain, "Loads code into the kernel."),

	op(cordon.Persist, "cron", "persistence.cron", grave, "Schedules code to run later."),
	op(cordon.Persist, "service", "persistence.service", grave, "Installs a service."),
	{Rule{"persistence.shell_rc", "persistence", "Changes a file that every shell runs."}, []cordon.Kind{cordon.Persist}, shellStartup},
	op(cordon.Persist, "authorized_keys", "persistence.authorized_keys", grave, "Lets a key log in."),
	op(cordon.Persist, "autostart", "persistence.autostart", certain, "Makes code run at login."),
	op(cordon.Persist, "git_hook", "persistence.git_hook", certain, "Makes git run code."),
	op(cordon.Persist, "git_config", "persistence.git_config", certain, "Changes a git setting that runs code."),
	op(cordon.Persist, "agent_settings", "persistence.agent_settings", certain, "Changes the settings of an agent or editor that run code."),
	op(cordon.Persist, "startup_file", "persistence.startup_file", certain, "Changes a file that an interpreter runs when it starts."),
	{Rule{"persistence.file", "persistence", "Writes a file that makes code run later."}, []cordon.Kind{cordon.Write}, startupFile},

	op(cordon.Administer, "iam", "admin.iam", certain, "Changes who may do what in a cloud account."),
	op(cordon.Administer, "cluster_admin", "admin.cluster_admin", grave, "Gives a cluster's full rights."),
	op(cordon.Administer, "sql_grant", "admin.sql_grant", certain, "Grants rights in a database."),
	op(cordon.Administer, "sql_role", "admin.sql_role", certain, "Makes or changes a database role."),
	op(cordon.Administer, "sql_security", "admin.sql_security", certain, "Turns off a protection of a database."),
	op(cordon.Administer, "credential", "admin.credential", certain, "Makes or prints a token."),
	op(cordon.Administer, "firewall", "admin.firewall", certain, "Changes the firewall."),
	op(cordon.Administer, "security_off", "admin.security_off", grave, "Turns off a protection of the machine."),
	{Rule{"admin.other", "admin", "Destroys, raises, plants or administers in a way that no other rule names."},
		[]cordon.Kind{cordon.Destroy, cordon.Privilege, cordon.Persist, cordon.Administer}, unknownOp},

	op(cordon.Connect, "reverse_shell", "reverse_shell.connect", grave, "Gives a command interpreter to the far side of a connection."),

	{Rule{"exfil.secret", "exfil", "Sends a credential or the environment away."}, []cordon.Kind{cordon.Connect}, sendsSecret},
	{Rule{"exfil.data", "exfil", "Sends data to a host that is not allowed."}, []cordon.Kind{cordon.Connect}, sendsData},
	{Rule{"exfil.secret_in_message", "exfil", "A text that leaves holds a key, token or password."},
		[]cordon.Kind{cordon.Send, cordon.Connect, cordon.Write, cordon.Opaque}, secretInText},

	{Rule{"environment.loader", "environment", "Loads foreign code into every program that starts."}, []cordon.Kind{cordon.SetEnv}, setLoader},
	{Rule{"environment.shell", "environment", "Makes shells run code when they start or prompt."}, []cordon.Kind{cordon.SetEnv}, setShellStartup},
	{Rule{"environment.interpreter", "environment", "Makes an interpreter load code or modules from elsewhere."}, []cordon.Kind{cordon.SetEnv}, setInterpreter},
	{Rule{"environment.command", "environment", "Names a command as pager, editor, browser or helper."}, []cordon.Kind{cordon.SetEnv}, setCommand},
	{Rule{"environment.git", "environment", "Changes what git runs or where its settings come from."}, []cordon.Kind{cordon.SetEnv}, setGit},
	{Rule{"environment.path", "environment", "Puts a directory that can be written in front of the programs."}, []cordon.Kind{cordon.SetEnv}, setPath},
	{Rule{"environment.redirect", "environment", "Leads downloads or uploads to a host that is not allowed."}, []cordon.Kind{cordon.SetEnv}, setRedirect},

	{Rule{"obfuscation.decoded", "obfuscation", "Runs code that comes out of a decoder."}, codeKinds, decodedCode},
	{Rule{"obfuscation.network", "obfuscation", "Runs code that comes from the network."}, codeKinds, networkCode},
	{Rule{"opaque", "obfuscation", "What would run cannot be told."}, []cordon.Kind{cordon.Opaque, cordon.RunCode}, opaqueCode},
	{Rule{malformedRule, "obfuscation", "What would run is malformed."}, []cordon.Kind{cordon.Opaque}, malformed},

	{Rule{"self.files", "self", "Changes Cordon's own configuration or records."}, changes, ownFiles},
	{Rule{"self.agent_settings", "self", "Changes the settings that say what the agent itself may do."}, changes, agentSettings},
	{Rule{"self.command", "self", "Administers Cordon."}, []cordon.Kind{cordon.Execute}, ownCommand},
	{Rule{"self.environment", "self", "Sets Cordon's own variables."}, []cordon.Kind{cordon.SetEnv}, ownVariable},
}

// op is a rule that fires on one operation of a kind.
func op(kind cordon.Kind, operation, name string, sev severity, doc string) effectRule {
	category := name
	for i := range name {
		if name[i] == '.' {
			category = name[:i]
			break
		}
	}
	return effectRule{
		Rule:  Rule{name, category, doc},
		kinds: []cordon.Kind{kind},
		judge: func(_ *scene, _ int, e *cordon.Effect) ruling {
			if e.Op != operation {
				return pass
			}
			return ruling{severity: sev, detail: about(doc, e)}
		},
	}
}

// about is the rule's sentence with the target, where there is one.
func about(doc string, e *cordon.Effect) string {
	switch {
	case e.Target == "":
		return doc
	case e.Kind == cordon.Connect:
		return doc[:len(doc)-1] + ": " + host(e.Target) + "."
	}
	return doc[:len(doc)-1] + ": " + named(e.Target) + "."
}

// knownOps are the operations that a rule of their own judges.
var knownOps = map[cordon.Kind]map[string]bool{
	cordon.Destroy: set("disk", "drop_table", "drop_database", "truncate_table", "delete_unfiltered", "update_unfiltered",
		"force_push", "kill_all", "fork_bomb", "cluster", "cloud", "container", "power", "history"),
	cordon.Privilege: set("sudo", "su", "setuid", "setcap", "user_admin", "namespace", "container", "mount", "ptrace", "module"),
	cordon.Persist: set("cron", "service", "shell_rc", "authorized_keys", "autostart", "git_hook", "git_config",
		"agent_settings", "startup_file"),
	cordon.Administer: set("iam", "cluster_admin", "sql_grant", "sql_role", "sql_security", "credential", "firewall", "security_off"),
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// unknownOp blocks an operation that a newer reader names and no rule here
// knows yet: those kinds hold nothing harmless.
func unknownOp(_ *scene, _ int, e *cordon.Effect) ruling {
	if knownOps[e.Kind][e.Op] {
		return pass
	}
	return ruling{severity: certain, detail: "The operation " + named(e.Kind.String()+" "+e.Op) + " is not known to be harmless."}
}
