package docker

import (
	"encoding/json"
	"slices"
	"strings"
)

// profile is what the engine reads (moby, profiles/seccomp): what is not
// named is refused with EPERM.
type profile struct {
	DefaultAction   string    `json:"defaultAction"`
	DefaultErrnoRet int       `json:"defaultErrnoRet"`
	ArchMap         []archMap `json:"archMap"`
	Syscalls        []rule    `json:"syscalls"`
}

type archMap struct {
	Architecture     string   `json:"architecture"`
	SubArchitectures []string `json:"subArchitectures"`
}

type rule struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	ErrnoRet *int     `json:"errnoRet,omitempty"`
	Args     []arg    `json:"args,omitempty"`
}

type arg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

const (
	allow = "SCMP_ACT_ALLOW"
	errno = "SCMP_ACT_ERRNO"
)

// Numbers of Linux, which every system that this compiles for must know.
const (
	enosys        = 38
	newNamespaces = 0x7e020000 // CLONE_NEW* of clone(2)
	afUnix        = 1
	afInet        = 2
	afInet6       = 10
	afNetlink     = 16
)

// seccompProfile is the list of system calls of contain/sandbox, in the
// engine's words. Its arguments are compared there by 64 bits, which is right
// for what is admitted and wrong for what is refused (an ioctl's number has
// 32), and old versions of x86 are refused rather than killed: for both the
// first process loads the exact filter on top.
func seccompProfile() (string, error) {
	e := enosys
	p := profile{
		DefaultAction: errno, DefaultErrnoRet: 1,
		// No other architecture: what speaks it is refused as a whole.
		ArchMap: []archMap{{"SCMP_ARCH_X86_64", nil}, {"SCMP_ARCH_AARCH64", nil}},
		Syscalls: []rule{
			{Names: allowedNames(), Action: allow},
			// Their arguments are for the exact filter to look at.
			{Names: []string{"ioctl", "mknod", "mknodat"}, Action: allow},
			{Names: []string{"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "statmount", "listmount"}, Action: errno, ErrnoRet: &e},
			{Names: []string{"clone"}, Action: allow, Args: []arg{{0, newNamespaces, 0, "SCMP_CMP_MASKED_EQ"}}},
			{Names: []string{"socketpair"}, Action: allow, Args: []arg{{0, afUnix, 0, "SCMP_CMP_EQ"}}},
			{Names: []string{"socket"}, Action: allow, Args: []arg{{0, afNetlink, 0, "SCMP_CMP_EQ"}, {2, 0, 0, "SCMP_CMP_EQ"}}},
		},
	}
	for _, family := range []uint64{afUnix, afInet, afInet6} {
		p.Syscalls = append(p.Syscalls, rule{Names: []string{"socket"}, Action: allow, Args: []arg{{0, family, 0, "SCMP_CMP_EQ"}}})
	}
	for _, persona := range []uint64{0, 0x20000, 0xffffffff} {
		p.Syscalls = append(p.Syscalls, rule{Names: []string{"personality"}, Action: allow, Args: []arg{{0, persona, 0, "SCMP_CMP_EQ"}}})
	}
	text, err := json.Marshal(p)
	return string(text), err
}

// allowedNames are admitted with any arguments: those of contain/sandbox's
// table (a test compares them), of all architectures.
func allowedNames() []string {
	names := strings.Fields(calls)
	slices.Sort(names)
	return names
}

const calls = `
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_getres clock_gettime clock_nanosleep close close_range
connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat
exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock
fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list
get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch
inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioprio_get ioprio_set kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listxattr listxattrat llistxattr lremovexattr
lseek lsetxattr lstat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mlock mlock2 mlockall mmap
mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall
munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect
poll ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg
recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid setfsuid
setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat
shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill
time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask
uname unlink unlinkat uretprobe utime utimensat utimes vfork vmsplice wait4 waitid write writev
`
