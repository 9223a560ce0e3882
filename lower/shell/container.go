package shell

import (
	"path"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// handleDocker: what a container gets of the host.
func handleDocker(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 && strings.HasPrefix(args[0].s, "-") {
		if s := args[0].s; (s == "-H" || s == "--host" || s == "-c" || s == "--context" || s == "-f" || s == "--file" || s == "-p" || s == "--project-name" || s == "--env-file" || s == "--config" || s == "-l" || s == "--log-level") && len(args) > 1 {
			if s == "-H" || s == "--host" {
				w.dockerHost(args[1])
			}
			if s == "-f" || s == "--file" {
				w.reads(args[1])
			}
			args = args[1:]
		} else if v, ok := strings.CutPrefix(s, "--host="); ok {
			w.dockerHost(val{s: v})
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	sub := args[0].s
	if sub == "compose" || sub == "container" || sub == "image" {
		if len(args) > 1 {
			w.dockerSub(c, args[1].s, args[2:], sub)
		}
		return
	}
	w.dockerSub(c, sub, args[1:], "")
}

func (w *walker) dockerHost(v val) {
	if strings.HasPrefix(v.s, "unix://") || strings.HasPrefix(v.s, "/") {
		return
	}
	w.connectURL(v, nil, false)
}

func (w *walker) dockerSub(c *inv, sub string, args []val, group string) {
	switch sub {
	case "run", "create", "exec", "build", "buildx":
		if sub == "buildx" && len(args) > 0 {
			args = args[1:]
		}
		w.dockerOptions(c, sub, args)
	case "pull":
		for _, a := range args {
			if !strings.HasPrefix(a.s, "-") {
				w.registry(a, nil)
			}
		}
	case "cp", "save", "export", "load", "import":
		w.dockerCopy(sub, args)
	case "push", "login":
		if sub == "login" {
			for i, a := range args {
				if !strings.HasPrefix(a.s, "-") && strings.Contains(a.s, ".") && (i == 0 || args[i-1].s == "--password-stdin" || !strings.HasPrefix(args[i-1].s, "-")) {
					w.connect(a, "https", nil, true)
				}
				if (a.s == "-p" || a.s == "--password") && i+1 < len(args) {
					w.tells(args[i+1].data)
				}
			}
			return
		}
		for _, a := range args {
			w.registry(a, []string{dropMarks(a.s)})
		}
	case "system", "volume", "network", "builder":
		if len(args) > 0 && (args[0].s == "prune" && (sub == "system" || sub == "volume") || args[0].s == "rm" && sub == "volume") {
			if sub == "volume" || hasArg(args, "-a") || hasArg(args, "--all") || hasArg(args, "-af") || hasArg(args, "-fa") || hasArg(args, "--volumes") {
				w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "container", Target: "docker " + sub + " " + args[0].s})
			}
		}
	case "rm", "rmi", "kill", "stop":
		for _, a := range args {
			if hasMark(a.s) && bare(a.s) {
				w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "container", Target: "docker " + sub, Doubtful: true})
				return
			}
		}
	case "down":
		if group == "compose" && (hasArg(args, "-v") || hasArg(args, "--volumes")) {
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "container", Target: "docker compose down -v", Doubtful: true})
		}
	case "inspect":
		c.print(val{s: mUnknown})
	}
}

func (w *walker) dockerOptions(c *inv, sub string, args []val) {
	image := -1
	for i := 0; i < len(args); i++ {
		s := args[i].s
		if s == "" || s[0] != '-' {
			image = i
			break
		}
		name, value, eq := strings.Cut(s, "=")
		v := val{s: value, data: args[i].data}
		takes := dockerTakes()[name]
		if len(s) > 2 && s[1] != '-' && !eq && (s[1] == 'v' || s[1] == 'e' || s[1] == 'p' || s[1] == 'u' || s[1] == 'w') {
			name, v.s, takes, eq = s[:2], s[2:], true, true
		}
		if takes && !eq && i+1 < len(args) {
			i++
			v = args[i]
		}
		w.dockerOption(sub, name, v)
	}
	if sub == "build" {
		for _, a := range args {
			if pathLike(a.s) && a.s[0] != '-' {
				w.readsAll(a)
			} else if strings.Contains(a.s, "://") {
				w.connectURL(a, nil, false)
			}
		}
	}
	if image >= 0 && (sub == "run" || sub == "create") {
		w.registry(args[image], nil)
	}
}

// registry connects to the server that an image's name gives, if it does.
func (w *walker) registry(image val, data []string) {
	i := strings.IndexByte(image.s, '/')
	if i <= 0 || hasMark(image.s[:i]) || !strings.ContainsAny(image.s[:i], ".:") || strings.HasPrefix(image.s[:i], "localhost") {
		return
	}
	w.connect(val{s: image.s[:i]}, "https", data, len(data) > 0)
}

var dockerTakes = sync.OnceValue(func() map[string]bool {
	return map[string]bool{
		"-v": true, "--volume": true, "--mount": true, "-e": true, "--env": true, "--env-file": true, "-p": true, "--publish": true, "-w": true, "--workdir": true,
		"-u": true, "--user": true, "--name": true, "--network": true, "--net": true, "--pid": true, "--ipc": true, "--uts": true, "--userns": true, "--cap-add": true,
		"--cap-drop": true, "--device": true, "--security-opt": true, "--entrypoint": true, "-h": true, "--hostname": true, "-m": true, "--memory": true, "--cpus": true,
		"--label": true, "-l": true, "--add-host": true, "--dns": true, "--restart": true, "--platform": true, "--gpus": true, "--ulimit": true, "--tmpfs": true,
		"-f": true, "--file": true, "-t": true, "--tag": true, "--build-arg": true, "--target": true, "--cache-from": true, "--secret": true, "--ssh": true, "-o": true, "--output": true,
		"--cgroupns": true, "--volumes-from": true, "--runtime": true, "--shm-size": true, "--pull": true, "--log-driver": true, "--cidfile": true, "--expose": true, "--cgroup-parent": true,
	}
})

func (w *walker) dockerOption(sub, name string, v val) {
	priv := func(t string) {
		w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: t})
	}
	switch name {
	case "--privileged":
		if v.s != "false" {
			priv(name)
		}
	case "--pid", "--ipc", "--uts", "--userns", "--cgroupns", "--network", "--net":
		if v.s == "host" || strings.HasPrefix(v.s, "container:") && name == "--pid" {
			if name == "--network" || name == "--net" {
				w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: name + "=" + v.s, Doubtful: true})
			} else {
				priv(name + "=" + v.s)
			}
		}
	case "--cap-add":
		switch strings.ToUpper(strings.TrimPrefix(strings.ToUpper(v.s), "CAP_")) {
		case "NET_BIND_SERVICE", "CHOWN", "SETUID", "SETGID", "KILL", "FOWNER":
		default:
			priv("--cap-add=" + v.s)
		}
	case "--security-opt":
		if strings.Contains(v.s, "unconfined") || strings.Contains(v.s, "disable") {
			priv("--security-opt=" + v.s)
		}
	case "--device":
		if !strings.HasPrefix(v.s, "/dev/dri") && !strings.HasPrefix(v.s, "/dev/null") {
			priv("--device=" + v.s)
		}
	case "-v", "--volume":
		src, rest, ok := strings.Cut(v.s, ":")
		if ok && (strings.HasPrefix(src, "/") || strings.HasPrefix(src, "~") || strings.HasPrefix(src, ".") || hasMark(src)) {
			w.dockerMount(val{s: src}, strings.HasSuffix(rest, ":ro") || strings.Contains(rest, ":ro,"))
		}
	case "--mount":
		src, bind, ro := "", false, false
		for _, f := range strings.Split(v.s, ",") {
			k, x, _ := strings.Cut(f, "=")
			switch k {
			case "source", "src":
				src = x
			case "type":
				bind = x == "bind"
			case "readonly", "ro":
				ro = x != "false"
			}
		}
		if bind {
			w.dockerMount(val{s: src}, ro)
		}
	case "-e", "--env":
		k, _, ok := strings.Cut(v.s, "=")
		if !ok && secretName(k) {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: k, Doubtful: true})
		}
		w.tells(v.data)
	case "--env-file", "-f", "--file":
		w.reads(v)
	case "-u", "--user":
		if sub == "exec" && (v.s == "0" || v.s == "root") {
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: "docker exec -u root", Doubtful: true})
		}
	case "--secret":
		for _, f := range strings.Split(v.s, ",") {
			if k, x, _ := strings.Cut(f, "="); k == "src" || k == "source" {
				w.reads(val{s: w.tildeText(x)})
			}
		}
	case "--cidfile":
		w.writes(v, "create")
	}
}

// dockerMount: a host directory given to a container.
func (w *walker) dockerMount(src val, ro bool) {
	s := src.s
	if !hasMark(s) {
		clean := path.Clean(s)
		switch {
		case clean == "/", strings.HasSuffix(clean, "docker.sock"), strings.HasSuffix(clean, "containerd.sock"), strings.HasPrefix(clean, "/etc") && clean != "/etc/localtime" && clean != "/etc/timezone" && !strings.HasPrefix(clean, "/etc/ssl"),
			clean == "/proc", clean == "/sys", clean == "/dev", clean == "/root", clean == "/var", clean == "/home", clean == "/var/run", clean == "/run", clean == "/boot", clean == "/usr":
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: "mount " + clean})
		}
	}
	w.readsAll(src)
	if !ro && !w.inside(src) {
		w.writes(src, "")
	}
}

func (w *walker) dockerCopy(sub string, args []val) {
	var ops []val
	for i := 0; i < len(args); i++ {
		if s := args[i].s; (s == "-o" || s == "--output" || s == "-i" || s == "--input") && i+1 < len(args) {
			i++
			if s == "-o" || s == "--output" {
				w.writes(args[i], "create")
			} else {
				w.reads(args[i])
			}
			continue
		} else if strings.HasPrefix(s, "-") && s != "-" {
			continue
		}
		ops = append(ops, args[i])
	}
	if sub != "cp" || len(ops) != 2 {
		return
	}
	if !strings.Contains(ops[0].s, ":") {
		w.readsAll(ops[0])
	}
	if !strings.Contains(ops[1].s, ":") {
		w.writes(ops[1], "create")
	}
}

// handleKubectl: the table has the rules; files and local commands here.
func handleKubectl(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "-f", "-k":
			if !o.has || len(c.ops) > 0 && c.ops[0].s == "logs" {
				continue
			}
			if strings.Contains(o.v.s, "://") {
				w.connectURL(o.v, nil, false)
			} else if o.v.s != "-" {
				w.reads(o.v)
			}
		case "--kubeconfig":
			if !w.inside(o.v) {
				w.reads(o.v)
			}
		case "--from-file":
			_, p, ok := strings.Cut(o.v.s, "=")
			if !ok {
				p = o.v.s
			}
			w.reads(val{s: p})
		case "--from-env-file":
			w.reads(o.v)
		case "-s", "--server":
			w.connectURL(o.v, nil, false)
		}
	}
	for _, a := range c.args {
		if strings.HasSuffix(a.s, "/serviceaccount/token") {
			w.emit(cordon.Effect{Kind: cordon.Administer, Op: "credential", Target: "a pod's token"})
		}
	}
	if len(c.ops) == 0 {
		return
	}
	switch c.ops[0].s {
	case "delete":
		w.kubeDelete(c)
	case "cp":
		for i, v := range c.ops[1:] {
			if strings.Contains(v.s, ":") {
				continue
			}
			if i == 0 {
				w.readsAll(v)
			} else {
				w.writes(v, "create")
			}
		}
	case "get":
		if len(c.ops) > 1 {
			switch strings.SplitN(strings.SplitN(c.ops[1].s, "/", 2)[0], ",", 2)[0] {
			case "secret", "secrets":
				if o, ok := c.get("-o"); ok && o.s != "name" && o.s != "wide" || c.has("--template") {
					w.emit(cordon.Effect{Kind: cordon.Administer, Op: "credential", Target: "kubectl get secret"})
				}
			}
		}
		if o, ok := c.get("-o"); ok && o.s == "name" {
			kind := operandText(c.ops, 1)
			c.print(val{s: kind + "/" + mName + "\n"})
		}
	case "edit":
		w.emit(cordon.Effect{Kind: cordon.Execute, Target: "editor"})
	}
	w.kubeText(c)
}

// kubeText looks into manifests on the input for what rules name.
func (w *walker) kubeText(c *inv) {
	f, ok := c.get("-f")
	if !ok {
		return
	}
	body := c.in
	if f.s != "-" {
		var known bool
		if body, known = w.written(f); !known {
			return
		}
	}
	if strings.Contains(body.s, "cluster-admin") && strings.Contains(body.s, "Binding") {
		w.emit(cordon.Effect{Kind: cordon.Administer, Op: "cluster_admin", Target: "kubectl " + c.ops[0].s})
	}
	if strings.Contains(body.s, "privileged: true") || strings.Contains(body.s, "hostPID: true") || strings.Contains(body.s, "hostNetwork: true") || strings.Contains(body.s, "hostPath:") {
		w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: "kubectl " + c.ops[0].s})
	}
}

var kubeGrave = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"ns": true, "namespace": true, "namespaces": true, "node": true, "nodes": true, "no": true, "pv": true, "persistentvolume": true,
		"persistentvolumes": true, "pvc": true, "persistentvolumeclaim": true, "persistentvolumeclaims": true, "crd": true, "crds": true, "customresourcedefinition": true,
		"customresourcedefinitions": true, "clusterrole": true, "clusterrolebinding": true, "all": true, "sts": true, "statefulset": true, "statefulsets": true,
		"secret": true, "secrets": true, "deploy": false, "storageclass": true}
})

func (w *walker) kubeDelete(c *inv) {
	grave := c.has("--all", "-A", "--all-namespaces")
	doubt := false
	for i, v := range c.ops[1:] {
		kinds, _, named := strings.Cut(v.s, "/")
		if i == 0 || named {
			for _, k := range strings.Split(kinds, ",") {
				if kubeGrave()[strings.ToLower(k)] {
					grave = true
				}
			}
		}
		if hasMark(v.s) && bare(strings.TrimSpace(v.s)) {
			grave, doubt = true, !grave
		}
	}
	if grave {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "cluster", Target: "kubectl delete " + operandText(c.ops, 1), Doubtful: doubt})
	} else {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "cluster", Target: "kubectl delete " + operandText(c.ops, 1), Doubtful: true})
	}
}
