package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var lifeKinds = map[string]func(args){
	"sleep":        func(args) { time.Sleep(time.Minute) },
	"forkbomb":     forkBomb,
	"hog":          hog,
	"hog-shared":   hogShared,
	"fill":         fill,
	"inodes":       inodes,
	"fill-deleted": fillDeleted,
	"flood":        flood,
	"spin":         func(args) { spin() },
	"daemon":       daemon,
	"hold":         hold,
	"environment":  environment,
	"without":      without,
}

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// forkBomb makes processes that make processes. The first of them counts what
// it got, and says so when it gets no more.
func forkBomb(args) {
	made := 0
	for {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			say(line{Try: "forks", Got: answer(errno), Note: fmt.Sprint(made)})
			break
		}
		if pid == 0 {
			bomb()
		}
		made++
	}
	time.Sleep(time.Minute)
}

// bomb runs in a child of one thread, which must not come back into Go.
//
//go:nosplit
func bomb() {
	for {
		syscall.RawSyscall6(unix.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	}
}

func hog(args) {
	var kept [][]byte
	for i := range 1 << 16 {
		block := make([]byte, 1<<20)
		for at := 0; at < len(block); at += 4096 {
			block[at] = 1
		}
		kept = append(kept, block)
		if i%64 == 0 {
			say(line{Try: "megabytes", Got: fmt.Sprint(i)})
		}
	}
	runtime.KeepAlive(kept)
}

// hogShared takes memory that belongs to no process: files of memory.
func hogShared(args) {
	block := make([]byte, 1<<20)
	for _, dir := range []string{"/dev/shm", "/tmp"} {
		for i := range 4096 {
			if err := os.WriteFile(fmt.Sprintf("%s/hog-%d", dir, i), block, 0o600); err != nil {
				say(line{Try: "shared in " + dir, Got: answer(err), Note: fmt.Sprint(i)})
				break
			}
		}
	}
	for i := range 4096 {
		fd, err := unix.MemfdCreate("hog", 0)
		if err == nil {
			_, err = unix.Write(fd, block)
		}
		if err != nil {
			say(line{Try: "shared in memfd", Got: answer(err), Note: fmt.Sprint(i)})
			break
		}
	}
}

func fill(a args) {
	block := make([]byte, 1<<20)
	for i := range 1 << 20 {
		f, err := os.OpenFile(fmt.Sprintf("%s/fill-%d", a["dir"], i/64), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.Write(block)
			f.Close()
		}
		if err != nil {
			say(line{Try: "filled", Got: answer(err), Note: fmt.Sprint(i)})
			os.Exit(8)
		}
		if i%16 == 0 {
			say(line{Try: "megabytes", Got: fmt.Sprint(i)})
		}
	}
}

func fillDeleted(a args) {
	f, err := os.Create(a["dir"] + "/deleted")
	must(err)
	must(os.Remove(a["dir"] + "/deleted"))
	block := make([]byte, 1<<20)
	for i := range 1 << 20 {
		if _, err := f.Write(block); err != nil {
			say(line{Try: "filled", Got: answer(err), Note: fmt.Sprint(i)})
			break
		}
	}
	time.Sleep(time.Minute)
}

func inodes(a args) {
	for i := range 1 << 22 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", a["dir"], i), nil, 0o600); err != nil {
			say(line{Try: "inodes", Got: answer(err), Note: fmt.Sprint(i)})
			os.Exit(8)
		}
	}
}

func flood(args) {
	signal.Ignore(syscall.SIGPIPE)
	block := []byte(strings.Repeat("flood\n", 10000))
	for range 2000 { // 120 MB
		if _, err := os.Stdout.Write(block); err != nil {
			os.Exit(8)
		}
		_, _ = os.Stderr.Write(block[:6000])
	}
}

func spin() {
	for range runtime.NumCPU() {
		go func() {
			for x := 1; x != 0; x |= 1 {
			}
		}()
	}
	time.Sleep(time.Hour)
}

// daemon leaves a process behind that has no parent, no session, no group and
// no streams of ours. The word is what the test finds it by.
func daemon(a args) {
	if a["stage"] == "" {
		cmd := exec.Command(os.Args[0], "daemon", "stage=1", "word="+a["word"])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(cmd.Start())
		for range 200 { // until the last one is there
			if found := withWord(a["word"] + "-last"); found > 0 {
				say(line{Try: "daemons", Got: fmt.Sprint(found)})
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		die(fmt.Errorf("the daemon did not start"))
	}
	if a["stage"] == "1" {
		cmd := exec.Command(os.Args[0], "daemon", "stage=2", "word="+a["word"]+"-last")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(cmd.Start())
		os.Exit(0)
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	time.Sleep(time.Minute)
}

// withWord counts the processes that have a word on their command line.
func withWord(word string) int {
	n := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if strings.Contains(string(text), "word="+word) {
			n++
		}
	}
	return n
}

// hold starts a child with the word too, and waits.
func hold(a args) {
	cmd := exec.Command(os.Args[0], "daemon", "stage=2", "word="+a["word"])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(cmd.Start())
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	say(line{Try: "ready", Got: "ready"})
	time.Sleep(time.Minute)
}

// environment prints what is there, and looks into PID 1's.
func environment(args) {
	for _, v := range os.Environ() {
		say(line{Try: "variable", Got: v})
	}
	try("environment of PID 1", func() error {
		text, err := os.ReadFile("/proc/1/environ")
		if err != nil {
			return err
		}
		note("%q", text)
		return refuseUnless(strings.Contains(string(text), "CORDON_ESCAPE_SECRET"))
	})
}

// without runs a command on a kernel that seems to lack something: the system
// calls of what=landlock or what=namespaces are answered as where they are
// absent or refused. The command follows after "--".
func without(a args) {
	at := 0
	for i, arg := range os.Args {
		if arg == "--" {
			at = i + 1
			break
		}
	}
	if at == 0 || at == len(os.Args) {
		die(fmt.Errorf("no command"))
	}
	calls := map[string][]uint32{
		"landlock":   {unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF},
		"mount_api":  {unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_MOVE_MOUNT},
		"namespaces": {},
	}[a["what"]]
	errno := uint32(unix.ENOSYS)
	prog := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}
	for _, nr := range calls {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | errno})
	}
	if a["what"] == "namespaces" { // as in a container with the engine's own profile
		deny := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
		for _, nr := range []uint32{unix.SYS_UNSHARE, unix.SYS_MOUNT, unix.SYS_SETNS} {
			prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1}, deny)
		}
		prog = append(prog,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | errno},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE, SkipTrue: 3},
			bpf.LoadAbsolute{Off: 16, Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: 0x7e020000, SkipTrue: 1}, deny)
	}
	prog = append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	raw, err := bpf.Assemble(prog)
	must(err)
	insns := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		insns[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	runtime.LockOSThread()
	must(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	load(insns)
	must(syscall.Exec(os.Args[at], os.Args[at:], os.Environ()))
}
