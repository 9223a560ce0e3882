package fsscope

import "strings"

// tree says what part of the system a path belongs to.
type tree uint8

const (
	treeNone tree = iota
	// treeDevice is a device that harms nobody: it passes.
	treeDevice
	// treeCommon is a file that every program reads.
	treeCommon
	// treeDescriptor is an open descriptor of whoever opens it.
	treeDescriptor
	// treeHome is another user's.
	treeHome
	// treeForbidden belongs to the system.
	treeForbidden
)

// tree tells the tree of a clean absolute path. The first letter spares most
// paths the comparisons.
func (b *Base) tree(p string) tree {
	if len(p) < 2 {
		return treeNone
	}
	if strings.HasPrefix(p, "/private/") { // where macOS keeps /etc, /var and /tmp
		p = p[len("/private"):]
	}
	switch p[1] {
	case 'p':
		if within(p, "/proc") {
			return procTree(p)
		}
	case 'd':
		if within(p, "/dev") {
			return deviceTree(p)
		}
	case 'e':
		if within(p, "/etc") {
			return etcTree(p)
		}
	case 's':
		if within(p, "/sys") {
			return treeForbidden
		}
	case 'b':
		if within(p, "/boot") {
			return treeForbidden
		}
	case 'v', 'r', 'l':
		for _, dir := range forbiddenDirs {
			if within(p, dir) {
				return treeForbidden
			}
		}
		if isContainerSocket(p) {
			return treeForbidden
		}
	}
	if b.otherHome(p) {
		return treeHome
	}
	return treeNone
}

var forbiddenDirs = [...]string{
	"/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet",
	"/var/lib/rancher", "/var/lib/etcd", "/var/lib/sss", "/var/lib/lxc", "/var/lib/lxd", "/var/lib/incus",
	"/var/lib/cloud", "/var/lib/NetworkManager", "/var/lib/systemd", "/var/lib/samba/private",
	"/var/spool/cron", "/var/spool/at", "/var/at", "/var/db/sudo", "/var/db/dslocal",
	"/var/run/secrets", "/run/secrets", "/run/credentials", "/run/systemd", "/run/sudo", "/run/agenix",
	"/var/run/systemd", "/run/dbus", "/var/run/dbus", "/run/containerd", "/var/run/containerd",
	"/var/backups", "/var/log/audit", "/var/mail", "/var/spool/mail", "/lost+found",
}

// isContainerSocket knows the control sockets of container engines, which
// are as good as root, in /run, /var/run and /run/user.
func isContainerSocket(p string) bool {
	if !strings.HasPrefix(p, "/run/") && !strings.HasPrefix(p, "/var/run/") {
		return false
	}
	for _, name := range [...]string{"docker", "containerd", "podman", "crio", "cri-dockerd", "buildkit", "lxd", "incus"} {
		if strings.Contains(p, "/"+name) {
			return true
		}
	}
	return false
}

// procCommon are files about the machine that tell nothing of a process.
var procCommon = [...]string{
	"/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/loadavg", "/proc/uptime",
	"/proc/stat", "/proc/filesystems", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2",
}

func procTree(p string) tree {
	for _, c := range procCommon {
		if p == c {
			return treeCommon
		}
	}
	return treeForbidden
}

func deviceTree(p string) tree {
	switch p[len("/dev"):] {
	case "/null", "/zero", "/full", "/random", "/urandom", "/tty",
		"/stdin", "/stdout", "/stderr", "/fd/0", "/fd/1", "/fd/2":
		return treeDevice
	}
	switch {
	case within(p, "/dev/shm"): // another /tmp
		return treeNone
	case strings.HasPrefix(p, "/dev/fd/") && isDigits(p[len("/dev/fd/"):]):
		return treeDescriptor
	}
	return treeForbidden
}

// etcCommon are read by every program that looks up a host, a time or a
// locale; a name that ends in '/' is a directory with all below it.
var etcCommon = [...]string{
	"os-release", "lsb-release", "debian_version", "redhat-release", "fedora-release", "alpine-release",
	"issue", "issue.net", "localtime", "timezone", "hosts", "host.conf", "hostname", "resolv.conf",
	"nsswitch.conf", "gai.conf", "protocols", "services", "networks", "ethertypes", "rpc", "mime.types",
	"magic", "shells", "locale.conf", "locale.alias", "locale.gen", "default/locale", "ld.so.cache",
	"ld.so.conf", "ld.so.conf.d/", "inputrc", "environment.d/", "terminfo/", "ssl/certs/", "ssl/cert.pem",
	"ssl/openssl.cnf", "pki/tls/certs/", "pki/tls/cert.pem", "pki/ca-trust/", "ca-certificates/",
	"ca-certificates.conf", "fonts/", "alternatives/", "machine-info", "python3/", "mailcap", "login.defs",
	"filesystems",
}

func etcTree(p string) tree {
	rest := strings.TrimPrefix(p[len("/etc"):], "/")
	for _, c := range etcCommon {
		if dir, ok := strings.CutSuffix(c, "/"); ok && within(rest, dir) || rest == c {
			return treeCommon
		}
	}
	return treeForbidden
}

// homeParents hold one home for each name below them.
var homeParents = [...]string{"/home/", "/Users/", "/var/home/", "/export/home/", "/usr/home/"}

// otherHome reports whether p is in the home of somebody else.
func (b *Base) otherHome(p string) bool {
	if b.ownHome(p) {
		return false
	}
	for _, dir := range homeParents {
		if rest, ok := strings.CutPrefix(p, dir); ok && rest != "" {
			name, _, _ := strings.Cut(rest, "/")
			return name != "Shared" && !within(b.home.lexical, dir+name) && !within(b.home.real, dir+name)
		}
	}
	if within(p, "/root") || within(p, "/var/root") {
		return true
	}
	for _, h := range b.homes {
		if within(p, h) {
			return true
		}
	}
	return false
}

// ownHome reports whether p is in the run's home. A home of "/", as some
// containers have it, makes nothing one's own.
func (b *Base) ownHome(p string) bool {
	return len(b.home.lexical) > 1 && within(p, b.home.lexical) || len(b.home.real) > 1 && within(p, b.home.real)
}

// inHome reports whether p is below anybody's home.
func (b *Base) inHome(p string) bool {
	_, other := anyHome(p)
	return other || b.ownHome(p)
}

// behindProc is the path that a path through a process's root or working
// directory names: "/proc/1/root/etc/shadow" is "/etc/shadow".
func behindProc(p string) string {
	rest, ok := strings.CutPrefix(p, "/proc/")
	if !ok {
		return p
	}
	for _, door := range [...]string{"/root/", "/cwd/"} {
		if i := strings.LastIndex(rest, door); i >= 0 {
			return rest[i+len(door)-1:]
		}
	}
	return p
}
