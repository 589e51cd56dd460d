//! THE syscall table: one row for every x86-64 system call.
//!
//! The vocabulary is in [`crate::syscall`]. A row reads
//!
//! ```text
//! NUMBER NAME(ARGUMENT: WHAT, ...) -> RESULT: TYPE, HOW, "note";
//! ```
//!
//! Sizes are those of the kernel's structures on x86-64. `Out` is for what a
//! successful call always writes in full; what is written only sometimes is
//! `InOut`, so that it keeps its old content. A number without a row (337 to
//! 423, and what the future brings after the last row) is refused with ENOSYS.

use crate::names;
use crate::syscall::Arg::*;
use crate::syscall::How::*;
use crate::syscall::Shape::*;
use crate::syscall::{Arg, Len, Ret, SYSCALLS_END, Syscall, Type};

macro_rules! table {
    ($($nr:literal $name:ident($($arg:ident: $what:expr),*) -> $ret:ident:
        $kind:ident, $how:expr $(, $note:literal)?;)*) => {
        /// Every row, by number.
        pub static TABLE: &[Syscall] = &[$(Syscall {
            nr: $nr,
            name: stringify!($name),
            kind: Type::$kind,
            how: $how,
            args: &[$((stringify!($arg), $what)),*],
            ret: Ret::$ret,
            note: concat!($($note)?),
        }),*];
    };
}

const EPERM: i32 = 1;
const EINTR: i32 = 4;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

const STAT: Arg = Out(Stat, Len::Fixed(144));
const STATFS: Arg = Out(Statfs, Len::Fixed(120));
const TIMESPEC: Arg = In(Timespec, Len::Fixed(16));
const TIMESPEC_OUT: Arg = Out(Timespec, Len::Fixed(16));
const TIMESPEC_LEFT: Arg = InOut(Timespec, Len::Fixed(16));
const ITIMERSPEC: Arg = In(Itimerspec, Len::Fixed(32));
const ITIMERSPEC_OUT: Arg = Out(Itimerspec, Len::Fixed(32));
const SIGSET: Arg = In(Sigset, Len::Fixed(8));
const SIGINFO: Arg = In(Siginfo, Len::Fixed(128));
const ID_OUT: Arg = Out(Uint32, Len::Fixed(4));
const SOCKLEN: Arg = InOut(Uint32, Len::Fixed(4));
const OFFSET: Arg = InOut(Int64, Len::Fixed(8));

/// Bytes behind the third argument of `fcntl`.
const FCNTL_BYTES: &[(u32, u32)] = &[
    (5, 32),   // F_GETLK
    (6, 32),   // F_SETLK
    (7, 32),   // F_SETLKW
    (36, 32),  // F_OFD_GETLK
    (37, 32),  // F_OFD_SETLK
    (38, 32),  // F_OFD_SETLKW
    (15, 8),   // F_SETOWN_EX
    (16, 8),   // F_GETOWN_EX
    (17, 8),   // F_GETOWNER_UIDS
    (1035, 8), // F_GET_RW_HINT
    (1036, 8), // F_SET_RW_HINT
    (1037, 8), // F_GET_FILE_RW_HINT
    (1038, 8), // F_SET_FILE_RW_HINT
    (1039, 8), // F_GETDELEG
    (1040, 8), // F_SETDELEG
];

/// Bytes behind the second argument of `prctl`.
const PRCTL_BYTES: &[(u32, u32)] = &[
    (2, 4),   // PR_GET_PDEATHSIG
    (15, 16), // PR_SET_NAME
    (16, 16), // PR_GET_NAME
    (25, 4),  // PR_GET_TSC
    (37, 4),  // PR_GET_CHILD_SUBREAPER
    (40, 8),  // PR_GET_TID_ADDRESS
];

/// Bytes behind the second argument of `arch_prctl`.
const ARCH_PRCTL_BYTES: &[(u32, u32)] = &[
    (0x1003, 8), // ARCH_GET_FS
    (0x1004, 8), // ARCH_GET_GS
    (0x1021, 8), // ARCH_GET_XCOMP_SUPP
    (0x1022, 8), // ARCH_GET_XCOMP_PERM
    (0x1024, 8), // ARCH_GET_XCOMP_GUEST_PERM
    (0x4001, 8), // ARCH_GET_UNTAG_MASK
    (0x4003, 8), // ARCH_GET_MAX_TAG_BITS
    (0x5005, 8), // ARCH_SHSTK_STATUS
];

const SHMCTL_BYTES: &[(u32, u32)] = &[
    (1, 112),  // IPC_SET
    (2, 112),  // IPC_STAT
    (3, 72),   // IPC_INFO
    (13, 112), // SHM_STAT
    (14, 48),  // SHM_INFO
    (15, 112), // SHM_STAT_ANY
];

const SEMCTL_BYTES: &[(u32, u32)] = &[
    (1, 104),  // IPC_SET
    (2, 104),  // IPC_STAT
    (3, 40),   // IPC_INFO
    (18, 104), // SEM_STAT
    (19, 40),  // SEM_INFO
    (20, 104), // SEM_STAT_ANY
];

/// Bytes behind the fourth argument of `name_to_handle_at`: with
/// AT_HANDLE_MNT_ID_UNIQUE, eight.
const MOUNT_ID_BYTES: &[(u32, u32)] = &[
    (0, 4),
    (0x200, 4),
    (0x400, 4),
    (0x1000, 4),
    (0x1200, 4),
    (0x1400, 4),
    (1, 8),
    (0x201, 8),
    (0x401, 8),
    (0x1001, 8),
    (0x1201, 8),
    (0x1401, 8),
];

/// Bytes behind the last argument of `quotactl`: of users, groups, projects.
const QUOTA_BYTES: &[(u32, u32)] = &[
    (0x8000_0400, 4), // Q_GETFMT
    (0x8000_0401, 4),
    (0x8000_0402, 4),
    (0x8000_0500, 24), // Q_GETINFO
    (0x8000_0501, 24),
    (0x8000_0502, 24),
    (0x8000_0600, 24), // Q_SETINFO
    (0x8000_0601, 24),
    (0x8000_0602, 24),
    (0x8000_0700, 72), // Q_GETQUOTA
    (0x8000_0701, 72),
    (0x8000_0702, 72),
    (0x8000_0800, 72), // Q_SETQUOTA
    (0x8000_0801, 72),
    (0x8000_0802, 72),
    (0x8000_0900, 72), // Q_GETNEXTQUOTA
    (0x8000_0901, 72),
    (0x8000_0902, 72),
    (0x58_0300, 112), // Q_XGETQUOTA
    (0x58_0301, 112),
    (0x58_0302, 112),
    (0x58_0400, 112), // Q_XSETQLIM
    (0x58_0401, 112),
    (0x58_0402, 112),
    (0x58_0500, 80), // Q_XGETQSTAT
    (0x58_0501, 80),
    (0x58_0502, 80),
    (0x58_0800, 160), // Q_XGETQSTATV
    (0x58_0801, 160),
    (0x58_0802, 160),
    (0x58_0900, 112), // Q_XGETNEXTQUOTA
    (0x58_0901, 112),
    (0x58_0902, 112),
];

const MSGCTL_BYTES: &[(u32, u32)] = &[
    (1, 120),  // IPC_SET
    (2, 120),  // IPC_STAT
    (3, 32),   // IPC_INFO
    (11, 120), // MSG_STAT
    (12, 32),  // MSG_INFO
    (13, 120), // MSG_STAT_ANY
];

table! {
    0 read(fd: Fd, buf: Out(Text, Len::Ret), count: Size) -> Int: Recv, Block;
    1 write(fd: Fd, buf: In(Text, Len::Arg(2)), count: Size) -> Int: Send, Block;
    2 open(path: Path, flags: Named(&names::OPEN), mode: Octal) -> Fd: Open, Block,
        "Blocks on a FIFO without a peer.";
    3 close(fd: Fd) -> Int: Close, Plain,
        "Of a socket that lingers (SO_LINGER): two events, since it waits.";
    4 stat(path: Path, buf: STAT) -> Int: File, Plain;
    5 fstat(fd: Fd, buf: STAT) -> Int: File, Plain;
    6 lstat(path: Path, buf: STAT) -> Int: File, Plain;
    7 poll(fds: InOut(PollFds, Len::ArgTimes(1, 8)), nfds: Uint, timeout: Int) -> Int: Poll, Block,
        "The kernel writes revents even when a signal ends the call.";
    8 lseek(fd: Fd, offset: Long, whence: Named(&names::SEEK)) -> Int: File, Plain;
    9 mmap(addr: Addr, length: Size, prot: Named(&names::PROT), flags: Named(&names::MAP),
        fd: Fd, offset: Hex) -> Hex: Memory, Memory;
    10 mprotect(addr: Addr, length: Size, prot: Named(&names::PROT)) -> Int: Memory, Memory;
    11 munmap(addr: Addr, length: Size) -> Int: Memory, Memory;
    12 brk(addr: Addr) -> Hex: Memory, Memory;
    13 rt_sigaction(sig: Sig, act: In(Sigaction, Len::Fixed(32)),
        oldact: Out(Sigaction, Len::Fixed(32)), sigsetsize: Size) -> Int: Signal, Control;
    14 rt_sigprocmask(how: Named(&names::SIGMASK), set: SIGSET,
        oldset: Out(Sigset, Len::Fixed(8)), sigsetsize: Size) -> Int: Signal, Control;
    15 rt_sigreturn() -> None: Signal, Control;
    16 ioctl(fd: Fd, request: Named(&names::IOCTL), arg: Addr) -> Int: File, Plain,
        "The monitor knows what each request reads and writes. One it does not know gets ENOTTY. \
         Those that may wait (terminals' output, devices) are two events.";
    17 pread64(fd: Fd, buf: Out(Text, Len::Ret), count: Size, offset: Long) -> Int: File, Block;
    18 pwrite64(fd: Fd, buf: In(Text, Len::Arg(2)), count: Size, offset: Long) -> Int: File, Block;
    19 readv(fd: Fd, iov: IovOut(2), iovcnt: Size) -> Int: Recv, Block;
    20 writev(fd: Fd, iov: IovIn(2), iovcnt: Size) -> Int: Send, Block;
    21 access(path: Path, mode: Named(&names::ACCESS)) -> Int: File, Plain;
    22 pipe(fds: Out(FdPair, Len::Fixed(8))) -> Int: Open, Plain;
    23 select(nfds: Int, readfds: InOut(FdSet, Len::Bits(0)), writefds: InOut(FdSet, Len::Bits(0)),
        exceptfds: InOut(FdSet, Len::Bits(0)), timeout: InOut(Timeval, Len::Fixed(16))) -> Int:
        Poll, Block, "The time left is written back. The kernel takes no more of the sets than the \
        process can have descriptors.";
    24 sched_yield() -> Int: Thread, Plain, "Ends the thread's turn, if another thread waits for it.";
    25 mremap(addr: Addr, old_length: Size, new_length: Size, flags: Named(&names::MREMAP),
        new_addr: Addr) -> Hex: Memory, Memory;
    26 msync(addr: Addr, length: Size, flags: Named(&names::MSYNC)) -> Int: Memory, Block;
    27 mincore(addr: Addr, length: Size, vec: InOut(Bytes, Len::ArgPages(1))) -> Int: Memory, Plain,
        "What is mapped is told up to where something is not.";
    28 madvise(addr: Addr, length: Size, advice: Named(&names::MADVISE)) -> Int: Memory, Memory,
        "Replay repeats what changes content (MADV_DONTNEED, MADV_REMOVE and the like).";
    29 shmget(key: Hex, size: Size, flags: Named(&names::IPC_GET)) -> Int: Memory, Plain;
    30 shmat(shmid: Int, addr: Addr, flags: Named(&names::SHMAT)) -> Hex: Memory, Memory;
    31 shmctl(shmid: Int, cmd: Named(&names::SHMCTL),
        buf: InOut(Bytes, Len::By(1, SHMCTL_BYTES))) -> Int: Memory, Plain;
    32 dup(fd: Fd) -> Fd: Open, Plain;
    33 dup2(oldfd: Fd, newfd: Fd) -> Fd: Open, Plain;
    34 pause() -> Int: Signal, Block;
    35 nanosleep(request: TIMESPEC, remain: TIMESPEC_LEFT) -> Int: Sleep, Block,
        "The time left is written only when a signal ends the call.";
    36 getitimer(which: Named(&names::ITIMER), value: Out(Itimerval, Len::Fixed(32))) -> Int:
        Time, Plain;
    37 alarm(seconds: Uint) -> Int: Time, Plain;
    38 setitimer(which: Named(&names::ITIMER), new: In(Itimerval, Len::Fixed(32)),
        old: Out(Itimerval, Len::Fixed(32))) -> Int: Time, Plain;
    39 getpid() -> Pid: Process, Plain;
    40 sendfile(out_fd: Fd, in_fd: Fd, offset: OFFSET, count: Size) -> Int: Send, Block,
        "The bytes do not pass through the program.";
    41 socket(domain: Named(&names::DOMAIN), type: Named(&names::SOCK),
        protocol: Named(&names::PROTOCOL)) -> Fd: Socket, Plain;
    42 connect(fd: Fd, addr: In(Sockaddr, Len::Arg(2)), addrlen: Int) -> Int: Connect, Block;
    43 accept(fd: Fd, addr: Out(Sockaddr, Len::Pointee(2)), addrlen: SOCKLEN) -> Fd: Accept, Block;
    44 sendto(fd: Fd, buf: In(Text, Len::Arg(2)), length: Size, flags: Named(&names::MSG),
        addr: In(Sockaddr, Len::Arg(5)), addrlen: Int) -> Int: Send, Block;
    45 recvfrom(fd: Fd, buf: Out(Text, Len::RetMax(2)), length: Size, flags: Named(&names::MSG),
        addr: Out(Sockaddr, Len::Pointee(5)), addrlen: SOCKLEN) -> Int: Recv, Block,
        "With MSG_TRUNC a datagram's result may be larger than the buffer, and a stream's bytes \
         are dropped without being written.";
    46 sendmsg(fd: Fd, msg: MsgIn, flags: Named(&names::MSG)) -> Int: Send, Block;
    47 recvmsg(fd: Fd, msg: MsgOut, flags: Named(&names::MSG)) -> Int: Recv, Block,
        "With MSG_TRUNC as for recvfrom.";
    48 shutdown(fd: Fd, how: Named(&names::SHUT)) -> Int: Socket, Plain;
    49 bind(fd: Fd, addr: In(Sockaddr, Len::Arg(2)), addrlen: Int) -> Int: Socket, Plain;
    50 listen(fd: Fd, backlog: Int) -> Int: Socket, Plain;
    51 getsockname(fd: Fd, addr: Out(Sockaddr, Len::Pointee(2)), addrlen: SOCKLEN) -> Int:
        Socket, Plain;
    52 getpeername(fd: Fd, addr: Out(Sockaddr, Len::Pointee(2)), addrlen: SOCKLEN) -> Int:
        Socket, Plain;
    53 socketpair(domain: Named(&names::DOMAIN), type: Named(&names::SOCK),
        protocol: Named(&names::PROTOCOL), fds: Out(FdPair, Len::Fixed(8))) -> Int: Socket, Plain;
    54 setsockopt(fd: Fd, level: Named(&names::SOL), option: Int, value: In(Bytes, Len::Arg(4)),
        length: Int) -> Int: Socket, Plain, "The printer names the option by its level.";
    55 getsockopt(fd: Fd, level: Named(&names::SOL), option: Int,
        value: Out(Bytes, Len::Pointee(4)), length: SOCKLEN) -> Int: Socket, Plain,
        "TCP_ZEROCOPY_RECEIVE fills mapped memory, and SO_GET_FILTER counts instructions instead of \
         bytes: the monitor answers both with ENOPROTOOPT.";
    56 clone(flags: Named(&names::CLONE), stack: Addr, parent_tid: Addr, child_tid: Addr,
        tls: Hex) -> Pid: Fork, Control;
    57 fork() -> Pid: Fork, Control;
    58 vfork() -> Pid: Fork, Control;
    59 execve(path: Path, argv: StrVec, envp: StrVec) -> Int: Exec, Control;
    60 exit(status: Int) -> None: Exit, Control;
    61 wait4(pid: Pid, status: InOut(Int32, Len::Fixed(4)), options: Named(&names::WAIT),
        rusage: InOut(Rusage, Len::Fixed(144))) -> Pid: Wait, Block,
        "With WNOHANG and no child to report nothing is written.";
    62 kill(pid: Pid, sig: Sig) -> Int: Signal, Plain;
    63 uname(buf: Out(Utsname, Len::Fixed(390))) -> Int: Info, Plain;
    64 semget(key: Hex, nsems: Int, flags: Named(&names::IPC_GET)) -> Int: Lock, Plain;
    65 semop(semid: Int, ops: In(Bytes, Len::ArgTimes(2, 6)), nops: Uint) -> Int: Lock, Block;
    66 semctl(semid: Int, semnum: Int, cmd: Named(&names::SEMCTL),
        arg: InOut(Bytes, Len::By(2, SEMCTL_BYTES))) -> Int: Lock, Plain,
        "GETALL writes two bytes for each semaphore of the set: the monitor asks IPC_STAT how \
         many there are.";
    67 shmdt(addr: Addr) -> Int: Memory, Memory;
    68 msgget(key: Hex, flags: Named(&names::IPC_GET)) -> Int: Socket, Plain;
    69 msgsnd(msqid: Int, msg: In(Bytes, Len::ArgPlus(2, 8)), size: Size,
        flags: Named(&names::MSG_IPC)) -> Int: Send, Block;
    70 msgrcv(msqid: Int, msg: Out(Bytes, Len::RetPlus(8)), size: Size, type: Long,
        flags: Named(&names::MSG_IPC)) -> Int: Recv, Block,
        "The result counts the text after the eight bytes of the type.";
    71 msgctl(msqid: Int, cmd: Named(&names::MSGCTL),
        buf: InOut(Bytes, Len::By(1, MSGCTL_BYTES))) -> Int: Socket, Plain;
    72 fcntl(fd: Fd, cmd: Named(&names::FCNTL),
        arg: InOut(Flock, Len::By(1, FCNTL_BYTES))) -> Int: File, Block,
        "Only F_SETLKW and F_OFD_SETLKW wait; 32 bytes are a flock, 8 two numbers.";
    73 flock(fd: Fd, operation: Named(&names::FLOCK)) -> Int: Lock, Block;
    74 fsync(fd: Fd) -> Int: File, Block;
    75 fdatasync(fd: Fd) -> Int: File, Block;
    76 truncate(path: Path, length: Long) -> Int: File, Block,
        "Waits for who has a lease on the file.";
    77 ftruncate(fd: Fd, length: Long) -> Int: File, Plain;
    78 getdents(fd: Fd, buf: Out(Bytes, Len::Ret), count: Uint) -> Int: File, Plain;
    79 getcwd(buf: Out(Text, Len::Ret), size: Size) -> Int: File, Plain;
    80 chdir(path: Path) -> Int: File, Plain;
    81 fchdir(fd: Fd) -> Int: File, Plain;
    82 rename(oldpath: Path, newpath: Path) -> Int: File, Plain;
    83 mkdir(path: Path, mode: Octal) -> Int: File, Plain;
    84 rmdir(path: Path) -> Int: File, Plain;
    85 creat(path: Path, mode: Octal) -> Fd: Open, Block;
    86 link(oldpath: Path, newpath: Path) -> Int: File, Plain;
    87 unlink(path: Path) -> Int: File, Plain;
    88 symlink(target: Path, linkpath: Path) -> Int: File, Plain;
    89 readlink(path: Path, buf: Out(Text, Len::RetMax(2)), size: Int) -> Int: File, Plain;
    90 chmod(path: Path, mode: Octal) -> Int: File, Plain;
    91 fchmod(fd: Fd, mode: Octal) -> Int: File, Plain;
    92 chown(path: Path, owner: Int, group: Int) -> Int: File, Plain;
    93 fchown(fd: Fd, owner: Int, group: Int) -> Int: File, Plain;
    94 lchown(path: Path, owner: Int, group: Int) -> Int: File, Plain;
    95 umask(mask: Octal) -> Int: File, Plain;
    96 gettimeofday(tv: Out(Timeval, Len::Fixed(16)), tz: Out(Timezone, Len::Fixed(8))) -> Int:
        Time, Plain;
    97 getrlimit(resource: Named(&names::RLIMIT), limit: Out(Rlimit, Len::Fixed(16))) -> Int:
        Info, Plain;
    98 getrusage(who: Named(&names::RUSAGE), usage: Out(Rusage, Len::Fixed(144))) -> Int:
        Info, Plain;
    99 sysinfo(info: Out(Sysinfo, Len::Fixed(112))) -> Int: Info, Plain;
    100 times(buf: Out(Tms, Len::Fixed(32))) -> Int: Time, Plain;
    101 ptrace(request: Int, pid: Pid, addr: Addr, data: Addr) -> Int: Refused, Refuse(EPERM),
        "A tracer changes memory and registers behind the recorder's back. The program sees EPERM, \
         as where tracing is restricted.";
    102 getuid() -> Int: Info, Plain;
    103 syslog(type: Int, buf: InOut(Text, Len::RetMax(2)), length: Int) -> Int: Info, Block;
    104 getgid() -> Int: Info, Plain;
    105 setuid(uid: Int) -> Int: Process, Plain;
    106 setgid(gid: Int) -> Int: Process, Plain;
    107 geteuid() -> Int: Info, Plain;
    108 getegid() -> Int: Info, Plain;
    109 setpgid(pid: Pid, pgid: Pid) -> Int: Process, Plain;
    110 getppid() -> Pid: Process, Plain;
    111 getpgrp() -> Pid: Process, Plain;
    112 setsid() -> Pid: Process, Plain;
    113 setreuid(ruid: Int, euid: Int) -> Int: Process, Plain;
    114 setregid(rgid: Int, egid: Int) -> Int: Process, Plain;
    115 getgroups(size: Int, list: Out(Uint32s, Len::RetTimesMax(4, 0))) -> Int: Info, Plain,
        "With size 0 the result is the number of groups and nothing is written.";
    116 setgroups(size: Int, list: In(Uint32s, Len::ArgTimes(0, 4))) -> Int: Process, Plain;
    117 setresuid(ruid: Int, euid: Int, suid: Int) -> Int: Process, Plain;
    118 getresuid(ruid: ID_OUT, euid: ID_OUT, suid: ID_OUT) -> Int: Info, Plain;
    119 setresgid(rgid: Int, egid: Int, sgid: Int) -> Int: Process, Plain;
    120 getresgid(rgid: ID_OUT, egid: ID_OUT, sgid: ID_OUT) -> Int: Info, Plain;
    121 getpgid(pid: Pid) -> Pid: Process, Plain;
    122 setfsuid(uid: Int) -> Int: Process, Plain;
    123 setfsgid(gid: Int) -> Int: Process, Plain;
    124 getsid(pid: Pid) -> Pid: Process, Plain;
    125 capget(header: InOut(Bytes, Len::Fixed(8)), data: InOut(Bytes, Len::Fixed(24))) -> Int:
        Info, Plain, "The first version of the interface writes only twelve bytes of data.";
    126 capset(header: InOut(Bytes, Len::Fixed(8)), data: In(Bytes, Len::Fixed(24))) -> Int:
        Process, Plain;
    127 rt_sigpending(set: Out(Sigset, Len::Arg(1)), sigsetsize: Size) -> Int: Signal, Control;
    128 rt_sigtimedwait(set: SIGSET, info: Out(Siginfo, Len::Fixed(128)), timeout: TIMESPEC,
        sigsetsize: Size) -> Int: Signal, Block, "The result is the signal.";
    129 rt_sigqueueinfo(pid: Pid, sig: Sig, info: SIGINFO) -> Int: Signal, Plain;
    130 rt_sigsuspend(mask: SIGSET, sigsetsize: Size) -> Int: Signal, Control;
    131 sigaltstack(new: In(StackT, Len::Fixed(24)), old: Out(StackT, Len::Fixed(24))) -> Int:
        Signal, Control;
    132 utime(path: Path, times: In(Bytes, Len::Fixed(16))) -> Int: File, Plain;
    133 mknod(path: Path, mode: Octal, dev: Hex) -> Int: File, Plain;
    134 uselib(path: Path) -> Int: Refused, Refuse(ENOSYS),
        "Gone from the kernel. The program sees ENOSYS.";
    135 personality(persona: Hex) -> Int: Process, Plain,
        "READ_IMPLIES_EXEC changes what later calls map; the result of those is recorded.";
    136 ustat(dev: Uint, buf: Out(Bytes, Len::Fixed(32))) -> Int: File, Plain;
    137 statfs(path: Path, buf: STATFS) -> Int: File, Plain;
    138 fstatfs(fd: Fd, buf: STATFS) -> Int: File, Plain;
    139 sysfs(option: Int, arg1: Hex, arg2: Hex) -> Int: Refused, Refuse(ENOSYS),
        "Writes a name of unknown length; nobody uses it since /proc/filesystems. The program sees \
         ENOSYS, as from a kernel without CONFIG_SYSFS_SYSCALL.";
    140 getpriority(which: Named(&names::PRIO), who: Int) -> Int: Info, Plain;
    141 setpriority(which: Named(&names::PRIO), who: Int, priority: Int) -> Int: Process, Plain;
    142 sched_setparam(pid: Pid, param: In(Int32, Len::Fixed(4))) -> Int: Thread, Plain;
    143 sched_getparam(pid: Pid, param: Out(Int32, Len::Fixed(4))) -> Int: Thread, Plain;
    144 sched_setscheduler(pid: Pid, policy: Named(&names::SCHED),
        param: In(Int32, Len::Fixed(4))) -> Int: Thread, Plain;
    145 sched_getscheduler(pid: Pid) -> Int: Thread, Plain;
    146 sched_get_priority_max(policy: Named(&names::SCHED)) -> Int: Thread, Plain;
    147 sched_get_priority_min(policy: Named(&names::SCHED)) -> Int: Thread, Plain;
    148 sched_rr_get_interval(pid: Pid, interval: TIMESPEC_OUT) -> Int: Thread, Plain;
    149 mlock(addr: Addr, length: Size) -> Int: Memory, Plain;
    150 munlock(addr: Addr, length: Size) -> Int: Memory, Plain;
    151 mlockall(flags: Named(&names::MLOCKALL)) -> Int: Memory, Plain,
        "Locks the program's memory, not the monitor's.";
    152 munlockall() -> Int: Memory, Plain;
    153 vhangup() -> Int: System, Plain;
    154 modify_ldt(func: Int, ptr: Addr, bytecount: Size) -> Int: Refused, Refuse(ENOSYS),
        "Changes what segment registers mean. The program sees ENOSYS, as from a kernel without \
         CONFIG_MODIFY_LDT_SYSCALL.";
    155 pivot_root(new_root: Path, put_old: Path) -> Int: System, Plain;
    156 _sysctl(args: Addr) -> Int: Refused, Refuse(ENOSYS),
        "Gone from the kernel. The program sees ENOSYS.";
    157 prctl(option: Named(&names::PRCTL), arg2: InOut(Bytes, Len::By(0, PRCTL_BYTES)), arg3: Hex,
        arg4: Hex, arg5: Hex) -> Int: Process, Control,
        "PR_SET_SYSCALL_USER_DISPATCH, PR_SET_MM of the heap or of all at once, and PR_GET_AUXV \
         get EINVAL.";
    158 arch_prctl(code: Named(&names::ARCH_PRCTL),
        addr: InOut(Uint64, Len::By(0, ARCH_PRCTL_BYTES))) -> Int: Thread, Control,
        "The gs base is the monitor's: ARCH_SET_GS gets EPERM, ARCH_GET_GS says 0. Shadow stacks, \
         32-bit vdsos and the rest get EINVAL.";
    159 adjtimex(buf: InOut(Bytes, Len::Fixed(208))) -> Int: Time, Plain;
    160 setrlimit(resource: Named(&names::RLIMIT), limit: In(Rlimit, Len::Fixed(16))) -> Int:
        Process, Plain, "RLIMIT_AS also binds the monitor's memory.";
    161 chroot(path: Path) -> Int: File, Plain;
    162 sync() -> Int: File, Block;
    163 acct(path: Path) -> Int: System, Plain;
    164 settimeofday(tv: In(Timeval, Len::Fixed(16)), tz: In(Timezone, Len::Fixed(8))) -> Int:
        Time, Plain;
    165 mount(source: Path, target: Path, fstype: Str, flags: Named(&names::MOUNT),
        data: Addr) -> Int: System, Plain;
    166 umount2(target: Path, flags: Named(&names::UMOUNT)) -> Int: System, Plain;
    167 swapon(path: Path, flags: Hex) -> Int: System, Plain;
    168 swapoff(path: Path) -> Int: System, Plain;
    169 reboot(magic: Hex, magic2: Hex, cmd: Hex, arg: Addr) -> Int: Refused, Refuse(EPERM),
        "Would end the recording with the machine. The program sees EPERM, as without the \
         privilege.";
    170 sethostname(name: In(Text, Len::Arg(1)), length: Int) -> Int: System, Plain;
    171 setdomainname(name: In(Text, Len::Arg(1)), length: Int) -> Int: System, Plain;
    172 iopl(level: Int) -> Int: Refused, Refuse(EPERM),
        "Input from ports cannot be recorded. The program sees EPERM, as without the privilege.";
    173 ioperm(from: Size, num: Size, turn_on: Int) -> Int: Refused, Refuse(EPERM),
        "Input from ports cannot be recorded. The program sees EPERM, as without the privilege.";
    174 create_module(name: Str, size: Size) -> Int: Refused, Refuse(ENOSYS),
        "Gone from the kernel. The program sees ENOSYS.";
    175 init_module(image: Addr, length: Size, params: Str) -> Int: Refused, Refuse(ENOSYS),
        "Changes the kernel under the recorder. The program sees ENOSYS, as from a kernel without \
         modules.";
    176 delete_module(name: Str, flags: Hex) -> Int: Refused, Refuse(ENOSYS),
        "Changes the kernel under the recorder. The program sees ENOSYS, as from a kernel without \
         modules.";
    177 get_kernel_syms(table: Addr) -> Int: Refused, Refuse(ENOSYS),
        "Gone from the kernel. The program sees ENOSYS.";
    178 query_module(name: Str, which: Int, buf: Addr, size: Size, ret: Addr) -> Int:
        Refused, Refuse(ENOSYS), "Gone from the kernel. The program sees ENOSYS.";
    179 quotactl(cmd: Named(&names::QUOTA), special: Path, id: Int,
        addr: InOut(Bytes, Len::By(0, QUOTA_BYTES))) -> Int: System, Plain;
    180 nfsservctl(cmd: Int, arg: Addr, res: Addr) -> Int: Refused, Refuse(ENOSYS),
        "Gone from the kernel. The program sees ENOSYS.";
    181 getpmsg() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    182 putpmsg() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    183 afs_syscall() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    184 tuxcall() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    185 security() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    186 gettid() -> Pid: Thread, Plain;
    187 readahead(fd: Fd, offset: Long, count: Size) -> Int: File, Plain;
    188 setxattr(path: Path, name: Str, value: In(Bytes, Len::Arg(3)), size: Size,
        flags: Named(&names::XATTR)) -> Int: File, Plain;
    189 lsetxattr(path: Path, name: Str, value: In(Bytes, Len::Arg(3)), size: Size,
        flags: Named(&names::XATTR)) -> Int: File, Plain;
    190 fsetxattr(fd: Fd, name: Str, value: In(Bytes, Len::Arg(3)), size: Size,
        flags: Named(&names::XATTR)) -> Int: File, Plain;
    191 getxattr(path: Path, name: Str, value: Out(Bytes, Len::RetMax(3)), size: Size) -> Int:
        File, Plain;
    192 lgetxattr(path: Path, name: Str, value: Out(Bytes, Len::RetMax(3)), size: Size) -> Int:
        File, Plain;
    193 fgetxattr(fd: Fd, name: Str, value: Out(Bytes, Len::RetMax(3)), size: Size) -> Int:
        File, Plain;
    194 listxattr(path: Path, list: Out(Text, Len::RetMax(2)), size: Size) -> Int: File, Plain;
    195 llistxattr(path: Path, list: Out(Text, Len::RetMax(2)), size: Size) -> Int: File, Plain;
    196 flistxattr(fd: Fd, list: Out(Text, Len::RetMax(2)), size: Size) -> Int: File, Plain;
    197 removexattr(path: Path, name: Str) -> Int: File, Plain;
    198 lremovexattr(path: Path, name: Str) -> Int: File, Plain;
    199 fremovexattr(fd: Fd, name: Str) -> Int: File, Plain;
    200 tkill(tid: Pid, sig: Sig) -> Int: Signal, Plain;
    201 time(tloc: Out(Int64, Len::Fixed(8))) -> Int: Time, Plain;
    202 futex(uaddr: Addr, op: Named(&names::FUTEX), val: Uint, timeout: TIMESPEC, uaddr2: Addr,
        val3: Hex) -> Int: Lock, Block,
        "The fourth argument is a number, not a timeout, for the REQUEUE operations and WAKE_OP. \
         The kernel writes *uaddr2 for WAKE_OP. The PI operations, for which it would write *uaddr \
         at any time, are done by the monitor, without lending priorities; those that requeue get \
         ENOSYS.";
    203 sched_setaffinity(pid: Pid, size: Uint, mask: In(CpuSet, Len::Arg(1))) -> Int:
        Thread, Plain;
    204 sched_getaffinity(pid: Pid, size: Uint, mask: Out(CpuSet, Len::Ret)) -> Int: Thread, Plain;
    205 set_thread_area(desc: Addr) -> Int: Refused, Refuse(ENOSYS),
        "Segments are for 32-bit programs. The program sees ENOSYS, as 64-bit ones always do.";
    206 io_setup(nr_events: Uint, ctx: Addr) -> Int: Refused, Refuse(ENOSYS),
        "Asynchronous I/O writes memory at any time. The program sees ENOSYS, as from a kernel \
         without CONFIG_AIO.";
    207 io_destroy(ctx: Addr) -> Int: Refused, Refuse(ENOSYS),
        "See io_setup. The program sees ENOSYS.";
    208 io_getevents(ctx: Addr, min_nr: Long, nr: Long, events: Addr, timeout: TIMESPEC) -> Int:
        Refused, Refuse(ENOSYS), "See io_setup. The program sees ENOSYS.";
    209 io_submit(ctx: Addr, nr: Long, iocbs: Addr) -> Int: Refused, Refuse(ENOSYS),
        "See io_setup. The program sees ENOSYS.";
    210 io_cancel(ctx: Addr, iocb: Addr, result: Addr) -> Int: Refused, Refuse(ENOSYS),
        "See io_setup. The program sees ENOSYS.";
    211 get_thread_area(desc: Addr) -> Int: Refused, Refuse(ENOSYS),
        "Segments are for 32-bit programs. The program sees ENOSYS, as 64-bit ones always do.";
    212 lookup_dcookie(cookie: Hex, buf: Addr, length: Size) -> Int: Refused, Refuse(ENOSYS),
        "Gone from the kernel. The program sees ENOSYS.";
    213 epoll_create(size: Int) -> Fd: Poll, Plain;
    214 epoll_ctl_old() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    215 epoll_wait_old() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    216 remap_file_pages(addr: Addr, size: Size, prot: Named(&names::PROT), pgoff: Size,
        flags: Named(&names::MAP)) -> Int: Refused, Refuse(ENOSYS),
        "Deprecated, and emulated by the kernel with mappings that the recorder would not see. The \
         program sees ENOSYS.";
    217 getdents64(fd: Fd, buf: Out(Dirents64, Len::Ret), count: Uint) -> Int: File, Plain;
    218 set_tid_address(tid: Addr) -> Pid: Thread, Control;
    219 restart_syscall() -> Int: Refused, Refuse(EINTR),
        "Only the kernel issues it, at the monitor's own calls. A program that does sees EINTR, as \
         from a kernel with nothing to restart.";
    220 semtimedop(semid: Int, ops: In(Bytes, Len::ArgTimes(2, 6)), nops: Uint,
        timeout: TIMESPEC) -> Int: Lock, Block;
    221 fadvise64(fd: Fd, offset: Long, length: Long, advice: Named(&names::FADVISE)) -> Int:
        File, Plain;
    222 timer_create(clock: Named(&names::CLOCK), event: In(Sigevent, Len::Fixed(64)),
        timer: InOut(Int32, Len::Fixed(4))) -> Int: Time, Plain;
    223 timer_settime(timer: Int, flags: Named(&names::TIMER), new: ITIMERSPEC,
        old: ITIMERSPEC_OUT) -> Int: Time, Plain;
    224 timer_gettime(timer: Int, value: ITIMERSPEC_OUT) -> Int: Time, Plain;
    225 timer_getoverrun(timer: Int) -> Int: Time, Plain;
    226 timer_delete(timer: Int) -> Int: Time, Plain;
    227 clock_settime(clock: Named(&names::CLOCK), time: TIMESPEC) -> Int: Time, Plain;
    228 clock_gettime(clock: Named(&names::CLOCK), time: TIMESPEC_OUT) -> Int: Time, Plain;
    229 clock_getres(clock: Named(&names::CLOCK), resolution: TIMESPEC_OUT) -> Int: Time, Plain;
    230 clock_nanosleep(clock: Named(&names::CLOCK), flags: Named(&names::TIMER),
        request: TIMESPEC, remain: TIMESPEC_LEFT) -> Int: Sleep, Block,
        "The time left is written only when a signal ends a relative sleep.";
    231 exit_group(status: Int) -> None: Exit, Control;
    232 epoll_wait(epfd: Fd, events: Out(EpollEvents, Len::RetTimes(12)), maxevents: Int,
        timeout: Int) -> Int: Poll, Block;
    233 epoll_ctl(epfd: Fd, op: Named(&names::EPOLL_OP), fd: Fd,
        event: In(EpollEvent, Len::Fixed(12))) -> Int: Poll, Plain;
    234 tgkill(tgid: Pid, tid: Pid, sig: Sig) -> Int: Signal, Plain;
    235 utimes(path: Path, times: In(Timeval, Len::Fixed(32))) -> Int: File, Plain;
    236 vserver() -> Int: Refused, Refuse(ENOSYS), "Never existed. The program sees ENOSYS.";
    237 mbind(addr: Addr, length: Size, mode: Named(&names::MEMPOLICY),
        nodes: In(Bytes, Len::NodeBits(4)), maxnode: Size, flags: Hex) -> Int: Memory, Plain;
    238 set_mempolicy(mode: Named(&names::MEMPOLICY), nodes: In(Bytes, Len::NodeBits(2)),
        maxnode: Size) -> Int: Memory, Plain;
    239 get_mempolicy(mode: Out(Int32, Len::Fixed(4)), nodes: Out(Bytes, Len::NodeBits(2)),
        maxnode: Size, addr: Addr, flags: Hex) -> Int: Memory, Plain;
    240 mq_open(name: Str, flags: Named(&names::OPEN), mode: Octal,
        attr: In(Bytes, Len::Fixed(64))) -> Fd: Open, Plain;
    241 mq_unlink(name: Str) -> Int: File, Plain;
    242 mq_timedsend(mqd: Fd, msg: In(Text, Len::Arg(2)), length: Size, priority: Uint,
        timeout: TIMESPEC) -> Int: Send, Block;
    243 mq_timedreceive(mqd: Fd, msg: Out(Text, Len::Ret), length: Size,
        priority: Out(Uint32, Len::Fixed(4)), timeout: TIMESPEC) -> Int: Recv, Block;
    244 mq_notify(mqd: Fd, event: In(Sigevent, Len::Fixed(64))) -> Int: Signal, Plain;
    245 mq_getsetattr(mqd: Fd, new: In(Bytes, Len::Fixed(64)),
        old: Out(Bytes, Len::Fixed(64))) -> Int: File, Plain;
    246 kexec_load(entry: Addr, nr_segments: Size, segments: Addr, flags: Hex) -> Int:
        Refused, Refuse(ENOSYS),
        "Changes the kernel under the recorder. The program sees ENOSYS, as from a kernel without \
         kexec.";
    247 waitid(idtype: Named(&names::IDTYPE), id: Pid, info: InOut(Siginfo, Len::Fixed(128)),
        options: Named(&names::WAIT), rusage: InOut(Rusage, Len::Fixed(144))) -> Int: Wait, Block,
        "The kernel writes single fields of info.";
    248 add_key(type: Str, description: Str, payload: In(Bytes, Len::Arg(3)), length: Size,
        keyring: Int) -> Int: System, Plain;
    249 request_key(type: Str, description: Str, callout: Str, keyring: Int) -> Int:
        System, Block;
    250 keyctl(operation: Named(&names::KEYCTL), arg2: Hex, arg3: Hex, arg4: Hex, arg5: Hex) -> Int:
        System, Control,
        "Operations with public keys get EOPNOTSUPP, as from a kernel without such keys.";
    251 ioprio_set(which: Int, who: Int, priority: Hex) -> Int: Process, Plain;
    252 ioprio_get(which: Int, who: Int) -> Int: Info, Plain;
    253 inotify_init() -> Fd: File, Plain;
    254 inotify_add_watch(fd: Fd, path: Path, mask: Named(&names::INOTIFY)) -> Int: File, Plain;
    255 inotify_rm_watch(fd: Fd, watch: Int) -> Int: File, Plain;
    256 migrate_pages(pid: Pid, maxnode: Size, old_nodes: In(Bytes, Len::NodeBits(1)),
        new_nodes: In(Bytes, Len::NodeBits(1))) -> Int: Memory, Plain;
    257 openat(dirfd: DirFd, path: Path, flags: Named(&names::OPEN), mode: Octal) -> Fd:
        Open, Block, "Blocks on a FIFO without a peer.";
    258 mkdirat(dirfd: DirFd, path: Path, mode: Octal) -> Int: File, Plain;
    259 mknodat(dirfd: DirFd, path: Path, mode: Octal, dev: Hex) -> Int: File, Plain;
    260 fchownat(dirfd: DirFd, path: Path, owner: Int, group: Int, flags: Named(&names::AT)) -> Int:
        File, Plain;
    261 futimesat(dirfd: DirFd, path: Path, times: In(Timeval, Len::Fixed(32))) -> Int: File, Plain;
    262 newfstatat(dirfd: DirFd, path: Path, buf: STAT, flags: Named(&names::AT)) -> Int:
        File, Plain;
    263 unlinkat(dirfd: DirFd, path: Path, flags: Named(&names::AT_UNLINK)) -> Int: File, Plain;
    264 renameat(olddirfd: DirFd, oldpath: Path, newdirfd: DirFd, newpath: Path) -> Int:
        File, Plain;
    265 linkat(olddirfd: DirFd, oldpath: Path, newdirfd: DirFd, newpath: Path,
        flags: Named(&names::AT)) -> Int: File, Plain;
    266 symlinkat(target: Path, newdirfd: DirFd, linkpath: Path) -> Int: File, Plain;
    267 readlinkat(dirfd: DirFd, path: Path, buf: Out(Text, Len::RetMax(3)), size: Int) -> Int:
        File, Plain;
    268 fchmodat(dirfd: DirFd, path: Path, mode: Octal) -> Int: File, Plain;
    269 faccessat(dirfd: DirFd, path: Path, mode: Named(&names::ACCESS)) -> Int: File, Plain;
    270 pselect6(nfds: Int, readfds: InOut(FdSet, Len::Bits(0)),
        writefds: InOut(FdSet, Len::Bits(0)), exceptfds: InOut(FdSet, Len::Bits(0)),
        timeout: TIMESPEC_LEFT, sigmask: In(Bytes, Len::Fixed(16))) -> Int: Poll, Block,
        "The last argument points to a pointer to the mask and its size. The mask is virtual.";
    271 ppoll(fds: InOut(PollFds, Len::ArgTimes(1, 8)), nfds: Uint, timeout: TIMESPEC_LEFT,
        sigmask: SIGSET, sigsetsize: Size) -> Int: Poll, Block,
        "The time left is written back. The mask is virtual.";
    272 unshare(flags: Named(&names::NAMESPACE)) -> Int: Process, Plain;
    273 set_robust_list(head: Addr, length: Size) -> Int: Thread, Control;
    274 get_robust_list(pid: Pid, head: Out(Uint64, Len::Fixed(8)),
        length: Out(Uint64, Len::Fixed(8))) -> Int: Thread, Control;
    275 splice(fd_in: Fd, off_in: OFFSET, fd_out: Fd, off_out: OFFSET, length: Size,
        flags: Named(&names::SPLICE)) -> Int: Send, Block,
        "The bytes do not pass through the program.";
    276 tee(fd_in: Fd, fd_out: Fd, length: Size, flags: Named(&names::SPLICE)) -> Int: Send, Block,
        "The bytes do not pass through the program.";
    277 sync_file_range(fd: Fd, offset: Long, length: Long, flags: Named(&names::SYNC_RANGE)) -> Int:
        File, Block;
    278 vmsplice(fd: Fd, iov: IovIn(2), nr_segs: Size, flags: Named(&names::SPLICE)) -> Int:
        Send, Block,
        "On the reading end of a pipe it fills the vector, and is recorded like readv.";
    279 move_pages(pid: Pid, count: Size, pages: In(Bytes, Len::ArgTimes(1, 8)),
        nodes: In(Bytes, Len::ArgTimes(1, 4)), status: InOut(Bytes, Len::ArgTimes(1, 4)),
        flags: Hex) -> Int: Memory, Plain;
    280 utimensat(dirfd: DirFd, path: Path, times: In(Timespec, Len::Fixed(32)),
        flags: Named(&names::AT)) -> Int: File, Plain;
    281 epoll_pwait(epfd: Fd, events: Out(EpollEvents, Len::RetTimes(12)), maxevents: Int,
        timeout: Int, sigmask: SIGSET, sigsetsize: Size) -> Int: Poll, Block,
        "The mask is virtual.";
    282 signalfd(fd: Fd, mask: SIGSET, size: Size) -> Fd: Signal, Plain;
    283 timerfd_create(clock: Named(&names::CLOCK), flags: Named(&names::TIMERFD)) -> Fd:
        Time, Plain;
    284 eventfd(count: Uint) -> Fd: Open, Plain;
    285 fallocate(fd: Fd, mode: Named(&names::FALLOC), offset: Long, length: Long) -> Int:
        File, Plain;
    286 timerfd_settime(fd: Fd, flags: Named(&names::TIMERFD_SET), new: ITIMERSPEC,
        old: ITIMERSPEC_OUT) -> Int: Time, Plain;
    287 timerfd_gettime(fd: Fd, value: ITIMERSPEC_OUT) -> Int: Time, Plain;
    288 accept4(fd: Fd, addr: Out(Sockaddr, Len::Pointee(2)), addrlen: SOCKLEN,
        flags: Named(&names::SOCK_FLAGS)) -> Fd: Accept, Block;
    289 signalfd4(fd: Fd, mask: SIGSET, size: Size, flags: Named(&names::SIGNALFD)) -> Fd:
        Signal, Plain;
    290 eventfd2(count: Uint, flags: Named(&names::EVENTFD)) -> Fd: Open, Plain;
    291 epoll_create1(flags: Named(&names::EPOLL_CREATE)) -> Fd: Poll, Plain;
    292 dup3(oldfd: Fd, newfd: Fd, flags: Named(&names::PIPE)) -> Fd: Open, Plain;
    293 pipe2(fds: Out(FdPair, Len::Fixed(8)), flags: Named(&names::PIPE)) -> Int: Open, Plain;
    294 inotify_init1(flags: Named(&names::INOTIFY_INIT)) -> Fd: File, Plain;
    295 preadv(fd: Fd, iov: IovOut(2), iovcnt: Size, offset: Long, offset_high: Long) -> Int:
        File, Block;
    296 pwritev(fd: Fd, iov: IovIn(2), iovcnt: Size, offset: Long, offset_high: Long) -> Int:
        File, Block;
    297 rt_tgsigqueueinfo(tgid: Pid, tid: Pid, sig: Sig, info: SIGINFO) -> Int: Signal, Plain;
    298 perf_event_open(attr: Addr, pid: Pid, cpu: Int, group_fd: Fd, flags: Hex) -> Fd:
        Refused, Refuse(ENOSYS),
        "Its counters are shared memory that the kernel writes at any time. The program sees \
         ENOSYS, as from a kernel without CONFIG_PERF_EVENTS.";
    299 recvmmsg(fd: Fd, msgs: MmsgOut(2), count: Uint, flags: Named(&names::MSG),
        timeout: TIMESPEC_LEFT) -> Int: Recv, Block;
    300 fanotify_init(flags: Hex, event_flags: Named(&names::OPEN)) -> Fd: File, Plain;
    301 fanotify_mark(fd: Fd, flags: Hex, mask: Hex, dirfd: DirFd, path: Path) -> Int: File, Plain;
    302 prlimit64(pid: Pid, resource: Named(&names::RLIMIT), new: In(Rlimit, Len::Fixed(16)),
        old: Out(Rlimit, Len::Fixed(16))) -> Int: Process, Plain,
        "RLIMIT_AS also binds the monitor's memory.";
    303 name_to_handle_at(dirfd: DirFd, path: Path, handle: InOut(Bytes, Len::HeadPlus(2, 8)),
        mount_id: InOut(Int32, Len::By(4, MOUNT_ID_BYTES)), flags: Named(&names::AT)) -> Int:
        File, Plain;
    304 open_by_handle_at(mount_fd: Fd, handle: In(Bytes, Len::HeadPlus(1, 8)),
        flags: Named(&names::OPEN)) -> Fd: Open, Block;
    305 clock_adjtime(clock: Named(&names::CLOCK), buf: InOut(Bytes, Len::Fixed(208))) -> Int:
        Time, Plain;
    306 syncfs(fd: Fd) -> Int: File, Block;
    307 sendmmsg(fd: Fd, msgs: MmsgIn(2), count: Uint, flags: Named(&names::MSG)) -> Int:
        Send, Block;
    308 setns(fd: Fd, flags: Named(&names::NAMESPACE)) -> Int: Process, Plain;
    309 getcpu(cpu: ID_OUT, node: ID_OUT, cache: Addr) -> Int: Info, Plain;
    310 process_vm_readv(pid: Pid, local: IovOut(2), local_count: Size,
        remote: In(Bytes, Len::ArgTimes(4, 16)), remote_count: Size, flags: Hex) -> Int:
        Process, Plain;
    311 process_vm_writev(pid: Pid, local: IovIn(2), local_count: Size,
        remote: In(Bytes, Len::ArgTimes(4, 16)), remote_count: Size, flags: Hex) -> Int:
        Process, Plain, "To the process itself. To another, which may run meanwhile, the program \
        gets EPERM.";
    312 kcmp(pid1: Pid, pid2: Pid, type: Named(&names::KCMP), idx1: Hex, idx2: Hex) -> Int:
        Info, Plain;
    313 finit_module(fd: Fd, params: Str, flags: Hex) -> Int: Refused, Refuse(ENOSYS),
        "Changes the kernel under the recorder. The program sees ENOSYS, as from a kernel without \
         modules.";
    314 sched_setattr(pid: Pid, attr: InOut(Bytes, Len::Fixed(48)), flags: Hex) -> Int: Thread, Plain,
        "A size that is too large is corrected.";
    315 sched_getattr(pid: Pid, attr: InOut(Bytes, Len::Arg(2)), size: Uint, flags: Hex) -> Int:
        Thread, Plain;
    316 renameat2(olddirfd: DirFd, oldpath: Path, newdirfd: DirFd, newpath: Path,
        flags: Named(&names::RENAME)) -> Int: File, Plain;
    317 seccomp(operation: Named(&names::SECCOMP), flags: Named(&names::SECCOMP_FLAGS),
        args: Addr) -> Int: Process, Control,
        "The monitor asks the program's filters itself, at each call. A filter with a listener \
         gets EINVAL.";
    318 getrandom(buf: Out(Bytes, Len::Ret), count: Size, flags: Named(&names::GETRANDOM)) -> Int:
        Random, Plain;
    319 memfd_create(name: Str, flags: Named(&names::MEMFD)) -> Fd: Open, Plain;
    320 kexec_file_load(kernel_fd: Fd, initrd_fd: Fd, length: Size, cmdline: Str, flags: Hex) -> Int:
        Refused, Refuse(ENOSYS),
        "Changes the kernel under the recorder. The program sees ENOSYS, as from a kernel without \
         kexec.";
    321 bpf(cmd: Int, attr: Addr, size: Uint) -> Int: Refused, Refuse(EPERM),
        "Its maps are memory that the kernel writes at any time. The program sees EPERM, as \
         without the privilege.";
    322 execveat(dirfd: DirFd, path: Path, argv: StrVec, envp: StrVec, flags: Named(&names::AT))
        -> Int: Exec, Control;
    323 userfaultfd(flags: Hex) -> Fd: Refused, Refuse(ENOSYS),
        "Page faults would become events. The program sees ENOSYS, as from a kernel without \
         CONFIG_USERFAULTFD.";
    324 membarrier(cmd: Named(&names::MEMBARRIER), flags: Hex, cpu: Int) -> Int: Memory, Plain;
    325 mlock2(addr: Addr, length: Size, flags: Hex) -> Int: Memory, Plain;
    326 copy_file_range(fd_in: Fd, off_in: OFFSET, fd_out: Fd, off_out: OFFSET, length: Size,
        flags: Hex) -> Int: File, Block;
    327 preadv2(fd: Fd, iov: IovOut(2), iovcnt: Size, offset: Long, offset_high: Long,
        flags: Named(&names::RWF)) -> Int: Recv, Block,
        "With offset -1 it reads where the descriptor stands, and may block like readv.";
    328 pwritev2(fd: Fd, iov: IovIn(2), iovcnt: Size, offset: Long, offset_high: Long,
        flags: Named(&names::RWF)) -> Int: Send, Block,
        "With offset -1 it writes where the descriptor stands, and may block like writev.";
    329 pkey_mprotect(addr: Addr, length: Size, prot: Named(&names::PROT), pkey: Int) -> Int:
        Memory, Memory;
    330 pkey_alloc(flags: Hex, rights: Hex) -> Int: Refused, Refuse(ENOSPC),
        "Rights change without a system call and would bind the monitor. The program sees ENOSPC, \
         as on a processor without protection keys.";
    331 pkey_free(pkey: Int) -> Int: Refused, Refuse(EINVAL),
        "No key was ever given out. The program sees EINVAL.";
    332 statx(dirfd: DirFd, path: Path, flags: Named(&names::AT), mask: Named(&names::STATX),
        buf: Out(Statx, Len::Fixed(256))) -> Int: File, Plain;
    333 io_pgetevents(ctx: Addr, min_nr: Long, nr: Long, events: Addr, timeout: TIMESPEC,
        sigmask: Addr) -> Int: Refused, Refuse(ENOSYS), "See io_setup. The program sees ENOSYS.";
    334 rseq(area: Addr, length: Uint, flags: Hex, sig: Hex) -> Int: Refused, Refuse(ENOSYS),
        "The kernel would write the processor's number into memory at every switch. The program \
         sees ENOSYS, as from a kernel without CONFIG_RSEQ; C libraries do without.";
    335 uretprobe() -> Int: Refused, Refuse(ENOSYS),
        "Only for the kernel's own trampoline. The program sees ENOSYS.";
    336 uprobe() -> Int: Refused, Refuse(ENOSYS),
        "Only for the kernel's own trampoline. The program sees ENOSYS.";
    424 pidfd_send_signal(pidfd: Fd, sig: Sig, info: SIGINFO, flags: Hex) -> Int: Signal, Plain;
    425 io_uring_setup(entries: Uint, params: Addr) -> Fd: Refused, Refuse(ENOSYS),
        "The rings are memory that the kernel writes at any time. The program sees ENOSYS, as from \
         a kernel without CONFIG_IO_URING.";
    426 io_uring_enter(fd: Fd, to_submit: Uint, min_complete: Uint, flags: Hex, arg: Addr,
        size: Size) -> Int: Refused, Refuse(ENOSYS),
        "See io_uring_setup. The program sees ENOSYS.";
    427 io_uring_register(fd: Fd, opcode: Uint, arg: Addr, count: Uint) -> Int:
        Refused, Refuse(ENOSYS), "See io_uring_setup. The program sees ENOSYS.";
    428 open_tree(dirfd: DirFd, path: Path, flags: Hex) -> Fd: System, Plain;
    429 move_mount(from_dirfd: DirFd, from_path: Path, to_dirfd: DirFd, to_path: Path,
        flags: Hex) -> Int: System, Plain;
    430 fsopen(fstype: Str, flags: Hex) -> Fd: System, Plain;
    431 fsconfig(fd: Fd, cmd: Uint, key: Str, value: Addr, aux: Int) -> Int: System, Plain;
    432 fsmount(fd: Fd, flags: Hex, attr_flags: Hex) -> Fd: System, Plain;
    433 fspick(dirfd: DirFd, path: Path, flags: Hex) -> Fd: System, Plain;
    434 pidfd_open(pid: Pid, flags: Named(&names::PIPE)) -> Fd: Process, Plain;
    435 clone3(args: Addr, size: Size) -> Pid: Refused, Refuse(ENOSYS),
        "All it can do for a program clone can. The program sees ENOSYS, as from a kernel before \
         5.3; C libraries fall back.";
    436 close_range(first: Uint, last: Uint, flags: Named(&names::CLOSE_RANGE)) -> Int:
        Close, Plain, "The monitor's own descriptors stay open.";
    437 openat2(dirfd: DirFd, path: Path, how: In(OpenHow, Len::Arg(3)), size: Size) -> Fd:
        Open, Block;
    438 pidfd_getfd(pidfd: Fd, target_fd: Fd, flags: Hex) -> Fd: Open, Plain;
    439 faccessat2(dirfd: DirFd, path: Path, mode: Named(&names::ACCESS),
        flags: Named(&names::AT_ACCESS)) -> Int: File, Plain;
    440 process_madvise(pidfd: Fd, iov: Addr, iovcnt: Size, advice: Named(&names::MADVISE),
        flags: Hex) -> Int: Refused, Refuse(ENOSYS),
        "Advice through a descriptor cannot be repeated in replay. The program sees ENOSYS, as \
         from a kernel before 5.10; allocators fall back to madvise.";
    441 epoll_pwait2(epfd: Fd, events: Out(EpollEvents, Len::RetTimes(12)), maxevents: Int,
        timeout: TIMESPEC, sigmask: SIGSET, sigsetsize: Size) -> Int: Poll, Block,
        "The mask is virtual.";
    442 mount_setattr(dirfd: DirFd, path: Path, flags: Named(&names::AT),
        attr: In(Bytes, Len::Arg(4)), size: Size) -> Int: System, Plain;
    443 quotactl_fd(fd: Fd, cmd: Named(&names::QUOTA), id: Int,
        addr: InOut(Bytes, Len::By(1, QUOTA_BYTES))) -> Int: System, Plain;
    444 landlock_create_ruleset(attr: In(Bytes, Len::Arg(1)), size: Size, flags: Hex) -> Fd:
        Process, Plain;
    445 landlock_add_rule(fd: Fd, type: Int, attr: In(Bytes, Len::Fixed(12)), flags: Hex) -> Int:
        Process, Plain;
    446 landlock_restrict_self(fd: Fd, flags: Hex) -> Int: Process, Plain,
        "Binds the monitor too, which needs only what is open already.";
    447 memfd_secret(flags: Hex) -> Fd: Refused, Refuse(ENOSYS),
        "Not even the kernel can read such memory. The program sees ENOSYS, as from a kernel \
         without CONFIG_SECRETMEM.";
    448 process_mrelease(pidfd: Fd, flags: Hex) -> Int: Process, Plain;
    449 futex_waitv(waiters: In(Bytes, Len::ArgTimes(1, 24)), count: Uint, flags: Hex,
        timeout: TIMESPEC, clock: Int) -> Int: Lock, Block;
    450 set_mempolicy_home_node(addr: Addr, length: Size, node: Size, flags: Hex) -> Int:
        Memory, Plain;
    451 cachestat(fd: Fd, range: In(Bytes, Len::Fixed(16)), stat: Out(Bytes, Len::Fixed(40)),
        flags: Hex) -> Int: File, Plain;
    452 fchmodat2(dirfd: DirFd, path: Path, mode: Octal, flags: Named(&names::AT)) -> Int:
        File, Plain;
    453 map_shadow_stack(addr: Addr, size: Size, flags: Hex) -> Hex: Refused, Refuse(ENOSYS),
        "The monitor's stubs do not keep shadow stacks. The program sees ENOSYS, as from a kernel \
         without them.";
    454 futex_wake(uaddr: Addr, mask: Hex, count: Int, flags: Hex) -> Int: Wake, Plain;
    455 futex_wait(uaddr: Addr, val: Size, mask: Hex, flags: Hex, timeout: TIMESPEC, clock: Int)
        -> Int: Lock, Block;
    456 futex_requeue(waiters: In(Bytes, Len::Fixed(48)), flags: Hex, wake: Int, requeue: Int)
        -> Int: Wake, Plain;
    457 statmount(request: In(Bytes, Len::Fixed(24)), buf: Out(Bytes, Len::Arg(2)), size: Size,
        flags: Hex) -> Int: Info, Plain, "Writes as much as its first field says.";
    458 listmount(request: In(Bytes, Len::Fixed(24)), ids: Out(Bytes, Len::RetTimes(8)),
        count: Size, flags: Hex) -> Int: Info, Plain;
    459 lsm_get_self_attr(attr: Uint, ctx: Out(Bytes, Len::Pointee(2)), size: SOCKLEN,
        flags: Hex) -> Int: Info, Plain;
    460 lsm_set_self_attr(attr: Uint, ctx: In(Bytes, Len::Arg(2)), size: Uint, flags: Hex) -> Int:
        Process, Plain;
    461 lsm_list_modules(ids: Out(Bytes, Len::Pointee(1)), size: SOCKLEN, flags: Hex) -> Int:
        Info, Plain;
    462 mseal(addr: Addr, length: Size, flags: Hex) -> Int: Memory, Memory,
        "Replay may leave it out: refused changes have recorded results.";
    463 setxattrat(dirfd: DirFd, path: Path, flags: Named(&names::AT), name: Str,
        args: In(Bytes, Len::Arg(5)), size: Size) -> Int: File, Plain;
    464 getxattrat(dirfd: DirFd, path: Path, flags: Named(&names::AT), name: Str,
        args: In(Bytes, Len::Arg(5)), size: Size) -> Int: File, Plain,
        "The buffer that its structure leads to is recorded.";
    465 listxattrat(dirfd: DirFd, path: Path, flags: Named(&names::AT),
        list: Out(Text, Len::RetMax(4)), size: Size) -> Int: File, Plain;
    466 removexattrat(dirfd: DirFd, path: Path, flags: Named(&names::AT), name: Str) -> Int:
        File, Plain;
    467 open_tree_attr(dirfd: DirFd, path: Path, flags: Hex, attr: In(Bytes, Len::Arg(4)),
        size: Size) -> Fd: System, Plain;
    468 file_getattr(dirfd: DirFd, path: Path, attr: Out(Bytes, Len::Arg(3)), size: Size,
        flags: Named(&names::AT)) -> Int: File, Plain;
    469 file_setattr(dirfd: DirFd, path: Path, attr: In(Bytes, Len::Arg(3)), size: Size,
        flags: Named(&names::AT)) -> Int: File, Plain;
    470 listns(request: In(Bytes, Len::Fixed(32)), ids: Out(Bytes, Len::RetTimes(8)), count: Size,
        flags: Hex) -> Int: Info, Plain;
    471 rseq_slice_yield() -> Int: Refused, Refuse(ENOSYS),
        "Belongs to rseq, which is refused. The program sees ENOSYS.";
}

/// `vmsplice` on the reading end of a pipe: what it does is `readv`'s.
pub static VMSPLICE_READS: Syscall = Syscall {
    nr: 278,
    name: "vmsplice",
    kind: Type::Recv,
    how: Block,
    args: &[
        ("fd", Fd),
        ("iov", IovOut(2)),
        ("nr_segs", Size),
        ("flags", Named(&names::SPLICE)),
    ],
    ret: Ret::Int,
    note: "",
};

/// The row for an operation of `keyctl`: what it writes differs.
pub fn keyctl(operation: u64) -> &'static Syscall {
    match operation as u32 {
        6 | 11 | 17 | 23 => &KEYCTL_READS,
        31 => &KEYCTL_CAPABILITIES,
        24..=28 => &KEYCTL_PUBLIC,
        _ => &KEYCTL,
    }
}

macro_rules! keyctl {
    ($name:ident, $how:expr, $arg2:expr, $arg3:expr) => {
        static $name: Syscall = Syscall {
            nr: 250,
            name: "keyctl",
            kind: Type::System,
            how: $how,
            args: &[
                ("operation", Named(&names::KEYCTL)),
                ("arg2", $arg2),
                ("arg3", $arg3),
                ("arg4", Size),
                ("arg5", Hex),
            ],
            ret: Ret::Int,
            note: "",
        };
    };
}

keyctl!(KEYCTL, Block, Hex, Hex);
keyctl!(KEYCTL_READS, Block, Hex, Out(Bytes, Len::RetMax(3)));
keyctl!(KEYCTL_CAPABILITIES, Block, Out(Bytes, Len::RetMax(2)), Size);
keyctl!(KEYCTL_PUBLIC, Refuse(EOPNOTSUPP), Hex, Hex);

/// In `INDEX`: no row.
const NO_ROW: u16 = u16::MAX;

/// Where in `TABLE` the row of a number is.
static INDEX: [u16; SYSCALLS_END] = {
    let mut index = [NO_ROW; SYSCALLS_END];
    let mut row = 0;
    while row < TABLE.len() {
        index[TABLE[row].nr as usize] = row as u16;
        row += 1;
    }
    index
};

/// The row of a system call.
pub fn syscall(nr: u64) -> Option<&'static Syscall> {
    let row = *INDEX.get(usize::try_from(nr).ok()?)?;
    TABLE.get(row as usize)
}

/// The row of a system call by the kernel's name for it.
pub fn by_name(name: &str) -> Option<&'static Syscall> {
    TABLE.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall::How;
    use std::collections::HashSet;

    #[test]
    fn rows_are_sorted_and_numbers_unique() {
        assert!(TABLE.is_sorted_by(|a, b| a.nr < b.nr));
        assert!(TABLE.iter().all(|row| (row.nr as usize) < SYSCALLS_END));
    }

    #[test]
    fn names_are_unique_and_found() {
        let names: HashSet<_> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for row in TABLE {
            assert_eq!(by_name(row.name).map(|found| found.nr), Some(row.nr));
        }
        assert!(by_name("no_such_call").is_none());
    }

    #[test]
    fn every_row_is_found_by_number_and_holes_are_not() {
        for row in TABLE {
            assert_eq!(
                syscall(row.nr as u64).map(|found| found.name),
                Some(row.name)
            );
        }
        for hole in [337, 400, 423, 500, 511, 512, 1 << 30, u64::MAX] {
            assert!(syscall(hole).is_none(), "{hole}");
        }
    }

    #[test]
    fn the_numbers_that_were_ever_given_out_are_covered() {
        for nr in (0..=336).chain(424..=471) {
            assert!(syscall(nr).is_some(), "no row for {nr}");
        }
    }

    #[test]
    fn the_system_header_is_covered() {
        let Ok(header) = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
        else {
            eprintln!("skipped: no asm/unistd_64.h (install linux-libc-dev)");
            return;
        };
        let mut seen = 0;
        for line in header.lines() {
            let mut words = line.split_whitespace();
            let (Some("#define"), Some(name), Some(nr)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Some(name), Ok(nr)) = (name.strip_prefix("__NR_"), nr.parse()) else {
                continue;
            };
            assert_eq!(syscall(nr).map(|row| row.name), Some(name), "{nr}");
            seen += 1;
        }
        assert!(seen > 300, "only {seen} numbers in the header");
    }

    #[test]
    fn arguments_refer_to_arguments_that_can_be_meant() {
        for row in TABLE {
            assert!(row.args.len() <= 6, "{}", row.name);
            for (name, arg) in row.args {
                let at = |i: u8| {
                    let found = row.args.get(i as usize);
                    found
                        .unwrap_or_else(|| panic!("{}: {name} refers to {i}", row.name))
                        .1
                };
                match *arg {
                    In(_, len) | Out(_, len) | InOut(_, len) => {
                        let Some(i) = len.arg() else { continue };
                        let fits = match len {
                            Len::Pointee(_) => matches!(at(i), InOut(Uint32, Len::Fixed(4))),
                            Len::Pointee64(_) => matches!(at(i), InOut(Uint64, Len::Fixed(8))),
                            Len::HeadPlus(..) => matches!(at(i), In(..) | InOut(..)),
                            Len::By(..) => matches!(at(i), Named(_)),
                            _ => matches!(at(i), Int | Uint | Size),
                        };
                        assert!(fits, "{}: {name} has its length from {i}", row.name);
                    }
                    IovIn(i) | IovOut(i) | MmsgIn(i) | MmsgOut(i) => {
                        assert!(matches!(at(i), Uint | Size), "{}: {name}", row.name);
                    }
                    _ => {}
                }
            }
            let distinct: HashSet<_> = row.args.iter().map(|arg| arg.0).collect();
            assert_eq!(distinct.len(), row.args.len(), "{}", row.name);
        }
    }

    #[test]
    fn lengths_that_need_the_result_are_not_for_inputs() {
        for row in TABLE {
            for (name, arg) in row.args {
                if let In(_, len) = *arg {
                    let known = !matches!(
                        len,
                        Len::Ret
                            | Len::RetTimes(_)
                            | Len::RetPlus(_)
                            | Len::RetMax(_)
                            | Len::RetTimesMax(..)
                            | Len::Pointee(_)
                            | Len::Pointee64(_)
                    );
                    assert!(known, "{}: {name}", row.name);
                }
            }
        }
    }

    #[test]
    fn refusals_are_explained_and_only_they_are_of_that_type() {
        for row in TABLE {
            let refused = matches!(row.how, How::Refuse(_));
            assert_eq!(refused, row.kind == Type::Refused, "{}", row.name);
            if let How::Refuse(errno) = row.how {
                let said = names::errno_name(errno).expect("a known errno");
                let explained = row.note.contains(said) || row.note.contains("See ");
                assert!(explained, "{}: {said}", row.name);
            }
        }
    }

    #[test]
    fn numbers_of_32_bits_lose_the_upper_half() {
        assert_eq!(Int.value(0xdead_beef_ffff_ffff), u64::MAX);
        assert_eq!(Int.value(0xffff_ffff), u64::MAX);
        assert_eq!(Uint.value(0xdead_beef_0000_0003), 3);
        assert_eq!(Size.value(u64::MAX), u64::MAX);
        assert_eq!(DirFd.value(0xffff_ff9c) as i64, -100);
    }
}
