package fsscope

import "syscall"

// homeInodes are the usual secrets and start-up files of a home. A file with
// several names in a root is compared with them: a hard link shows no other
// trace of what it is.
var homeInodes = [...]string{
	".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/id_ecdsa", ".ssh/id_dsa", ".ssh/authorized_keys", ".ssh/config",
	".aws/credentials", ".aws/config", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".my.cnf", ".env", ".vault-token",
	".kube/config", ".docker/config.json", ".config/gh/hosts.yml", ".cargo/credentials.toml",
	".config/gcloud/application_default_credentials.json", ".config/gcloud/credentials.db",
	".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".bash_history", ".zsh_history",
	".bashrc", ".profile", ".zshrc", ".zshenv", ".bash_profile", ".gitconfig", ".claude/settings.json", ".codex/config.toml",
}

// systemInodes are files of the system that root may have been made to link.
var systemInodes = [...]string{"/etc/shadow", "/etc/passwd", "/etc/sudoers", "/etc/gshadow", "/etc/crontab"}

// protectedInodes are files of a workspace that may be read but not changed.
var protectedInodes = [...]string{
	".git/config", ".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".vscode/settings.json", ".vscode/tasks.json",
	".git/hooks/pre-commit", ".git/hooks/post-checkout", ".git/hooks/post-merge", ".git/hooks/pre-push", ".git/hooks/commit-msg",
}

// knownInode tells whether a file with several names is one of the usual
// secrets, or for a change one of the protected files, and what it is.
func (b *Base) knownInode(dev, ino uint64, write bool) string {
	for _, name := range homeInodes {
		if sameInode(b.home.real+"/"+name, dev, ino) {
			if c := secretOf(foldPath(name), 0).class; c != "" {
				return c
			}
			return "start-up file"
		}
	}
	for _, name := range systemInodes {
		if sameInode(name, dev, ino) {
			return "system secret"
		}
	}
	for i := range b.self {
		if sameInode(b.self[i].real, dev, ino) {
			return "file of Cordon"
		}
	}
	if sameInode(b.workspace.real+"/.env", dev, ino) {
		return "environment file"
	}
	for _, name := range protectedInodes {
		if write && sameInode(b.workspace.real+"/"+name, dev, ino) {
			return "protected file"
		}
	}
	return ""
}

func sameInode(name string, dev, ino uint64) bool {
	var st syscall.Stat_t
	return syscall.Stat(name, &st) == nil && uint64(st.Dev) == dev && st.Ino == ino
}
