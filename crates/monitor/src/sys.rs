//! The system calls the monitor makes for itself.

use crate::state::thread;
use crate::{arch, served};

pub const EINTR: i64 = 4;
pub const EAGAIN: i64 = 11;
pub const ENOMEM: i64 = 12;
pub const EFAULT: i64 = 14;
pub const EINVAL: i64 = 22;
pub const EBADF: i64 = 9;
pub const EACCES: i64 = 13;
pub const EPERM: i64 = 1;
pub const ESRCH: i64 = 3;
pub const ENOTTY: i64 = 25;
pub const EDEADLK: i64 = 35;
pub const ENOSYS: i64 = 38;
pub const ETIMEDOUT: i64 = 110;
pub const EINPROGRESS: i64 = 115;
pub const ENOPROTOOPT: i64 = 92;
pub const EOPNOTSUPP: i64 = 95;
/// What a call that is to be made again returns (never seen by the program).
pub const ERESTARTSYS: i64 = 512;

pub mod nr {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const STAT: u64 = 4;
    pub const FSTAT: u64 = 5;
    pub const POLL: u64 = 7;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const RT_SIGACTION: u64 = 13;
    pub const RT_SIGPROCMASK: u64 = 14;
    pub const RT_SIGRETURN: u64 = 15;
    pub const IOCTL: u64 = 16;
    pub const PWRITE64: u64 = 18;
    pub const WRITEV: u64 = 20;
    pub const MREMAP: u64 = 25;
    pub const SCHED_YIELD: u64 = 24;
    pub const MINCORE: u64 = 27;
    pub const MADVISE: u64 = 28;
    pub const SHMAT: u64 = 30;
    pub const GETPID: u64 = 39;
    pub const CONNECT: u64 = 42;
    pub const ACCEPT: u64 = 43;
    pub const SHMCTL: u64 = 31;
    pub const SENDTO: u64 = 44;
    pub const WAIT4: u64 = 61;
    pub const FSTATFS: u64 = 138;
    pub const SENDMSG: u64 = 46;
    pub const BIND: u64 = 49;
    pub const LISTEN: u64 = 50;
    pub const GETSOCKNAME: u64 = 51;
    pub const GETPEERNAME: u64 = 52;
    pub const SETSOCKOPT: u64 = 54;
    pub const GETSOCKOPT: u64 = 55;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const SEMCTL: u64 = 66;
    pub const FCNTL: u64 = 72;
    pub const TRUNCATE: u64 = 76;
    pub const FTRUNCATE: u64 = 77;
    pub const CREAT: u64 = 85;
    pub const GETTIMEOFDAY: u64 = 96;
    pub const GETPPID: u64 = 110;
    pub const RT_SIGPENDING: u64 = 127;
    pub const RT_SIGSUSPEND: u64 = 130;
    pub const SIGALTSTACK: u64 = 131;
    pub const MLOCKALL: u64 = 151;
    pub const MUNLOCKALL: u64 = 152;
    pub const PRCTL: u64 = 157;
    pub const ARCH_PRCTL: u64 = 158;
    pub const GETTID: u64 = 186;
    pub const GETXATTR: u64 = 191;
    pub const ADJTIMEX: u64 = 159;
    pub const SETTIMEOFDAY: u64 = 164;
    pub const TIME: u64 = 201;
    pub const CLOCK_SETTIME: u64 = 227;
    pub const CLOCK_ADJTIME: u64 = 305;
    pub const FUTEX: u64 = 202;
    pub const OPENAT: u64 = 257;
    pub const SECCOMP: u64 = 317;
    pub const PERF_EVENT_OPEN: u64 = 298;
    pub const USERFAULTFD: u64 = 323;
    pub const PRLIMIT64: u64 = 302;
    pub const SET_TID_ADDRESS: u64 = 218;
    pub const RESTART_SYSCALL: u64 = 219;
    pub const READV: u64 = 19;
    pub const SELECT: u64 = 23;
    pub const NANOSLEEP: u64 = 35;
    pub const GETITIMER: u64 = 36;
    pub const ALARM: u64 = 37;
    pub const SETITIMER: u64 = 38;
    pub const RECVFROM: u64 = 45;
    pub const RECVMSG: u64 = 47;
    pub const SYSINFO: u64 = 99;
    pub const TIMES: u64 = 100;
    pub const RT_SIGTIMEDWAIT: u64 = 128;
    pub const SEMTIMEDOP: u64 = 220;
    pub const CLOCK_NANOSLEEP: u64 = 230;
    pub const MQ_TIMEDSEND: u64 = 242;
    pub const TIMERFD_SETTIME: u64 = 286;
    pub const TIMERFD_GETTIME: u64 = 287;
    pub const RECVMMSG: u64 = 299;
    pub const FUTEX_WAITV: u64 = 449;
    pub const FUTEX_WAIT: u64 = 455;
    pub const TIMER_CREATE: u64 = 222;
    pub const TIMER_SETTIME: u64 = 223;
    pub const TIMER_GETTIME: u64 = 224;
    pub const TIMER_DELETE: u64 = 226;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const EXIT_GROUP: u64 = 231;
    pub const MQ_TIMEDRECEIVE: u64 = 243;
    pub const EPOLL_WAIT: u64 = 232;
    pub const WAITID: u64 = 247;
    pub const KILL: u64 = 62;
    pub const TKILL: u64 = 200;
    pub const TGKILL: u64 = 234;
    pub const RT_SIGQUEUEINFO: u64 = 129;
    pub const PIDFD_SEND_SIGNAL: u64 = 424;
    pub const PSELECT6: u64 = 270;
    pub const UNSHARE: u64 = 272;
    pub const SET_ROBUST_LIST: u64 = 273;
    pub const GET_ROBUST_LIST: u64 = 274;
    pub const PPOLL: u64 = 271;
    pub const DUP2: u64 = 33;
    pub const VMSPLICE: u64 = 278;
    pub const EPOLL_PWAIT: u64 = 281;
    pub const FALLOCATE: u64 = 285;
    pub const ACCEPT4: u64 = 288;
    pub const DUP3: u64 = 292;
    pub const PWRITEV: u64 = 296;
    pub const RT_TGSIGQUEUEINFO: u64 = 297;
    pub const SETNS: u64 = 308;
    pub const KEYCTL: u64 = 250;
    pub const PROCESS_VM_WRITEV: u64 = 311;
    pub const EXECVEAT: u64 = 322;
    pub const MLOCK2: u64 = 325;
    pub const PKEY_MPROTECT: u64 = 329;
    pub const PWRITEV2: u64 = 328;
    pub const SENDMMSG: u64 = 307;
    pub const NEWFSTATAT: u64 = 262;
    pub const CLOSE_RANGE: u64 = 436;
    pub const OPENAT2: u64 = 437;
    pub const MSYNC: u64 = 26;
    pub const MOUNT: u64 = 165;
    pub const FANOTIFY_INIT: u64 = 300;
    pub const STATX: u64 = 332;
    pub const FSOPEN: u64 = 430;
    pub const EPOLL_PWAIT2: u64 = 441;
    pub const PREAD64: u64 = 17;
    pub const SENDFILE: u64 = 40;
    pub const SPLICE: u64 = 275;
    pub const COPY_FILE_RANGE: u64 = 326;
    pub const GETXATTRAT: u64 = 464;
}

/// Makes a call whose arguments the monitor vouches for.
pub fn call(nr: u64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    // SAFETY: every caller passes memory of the monitor's own, or none.
    unsafe { arch::syscall(nr, &[a, b, c, d, e, f]) }
}

pub const PROT_RW: u64 = 3;
pub const PROT_RX: u64 = 5;
pub const MAP_SHARED: u64 = 1;
pub const MAP_PRIVATE: u64 = 2;
pub const MAP_FIXED: u64 = 0x10;
pub const MAP_ANONYMOUS: u64 = 0x20;
pub const MAP_NORESERVE: u64 = 0x4000;
/// Only in replay, for stacks.
pub const MAP_GROWSDOWN: u64 = 0x100;
pub const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

pub fn map_anonymous(address: u64, len: u64) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    call(nr::MMAP, address, len, PROT_RW, flags, u64::MAX, 0) == address as i64
}

/// Maps a part of a file at an address where nothing is mapped.
pub fn map_shared(address: u64, len: u64, fd: u64, offset: u64) -> bool {
    let flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
    call(nr::MMAP, address, len, PROT_RW, flags, fd, offset) == address as i64
}

/// Maps a part of a file that is there to be written. Else the first touch of
/// a page would make the kernel fetch its neighbours from the disk, megabytes
/// of them, of which nothing is wanted.
pub fn map_for_writing(address: u64, len: u64, fd: u64, offset: u64) -> bool {
    const MADV_RANDOM: u64 = 1;
    let mapped = map_shared(address, len, fd, offset);
    if mapped {
        call(nr::MADVISE, address, len, MADV_RANDOM, 0, 0, 0);
    }
    mapped
}

pub fn getpid() -> u32 {
    call(nr::GETPID, 0, 0, 0, 0, 0, 0) as u32
}
pub fn gettid() -> u32 {
    call(nr::GETTID, 0, 0, 0, 0, 0, 0) as u32
}

/// Waits on a futex shared with other processes while it holds `value`; at
/// most `timeout` nanoseconds.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32, timeout: u64) -> i64 {
    let limit = [timeout / 1_000_000_000, timeout % 1_000_000_000];
    call(
        nr::FUTEX,
        word.as_ptr() as u64,
        0,
        u64::from(value),
        limit.as_ptr() as u64,
        0,
        0,
    )
}

/// How many were woken, or minus the error.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: u32) -> i64 {
    call(
        nr::FUTEX,
        word.as_ptr() as u64,
        1,
        u64::from(count),
        0,
        0,
        0,
    )
}

pub fn signal_mask(mask: u64) {
    call(nr::RT_SIGPROCMASK, 2, (&raw const mask) as u64, 0, 8, 0, 0);
}

/// `(device, inode, mode, size, mtime, ctime)` of a descriptor, times mixed.
#[derive(Clone, Copy)]
pub struct Stat {
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    /// Which device it is, if it is one.
    pub special: u64,
    pub size: u64,
    /// What it is best written in.
    pub block: u64,
    pub times: [u64; 4],
}

pub fn fstat(fd: u64) -> Option<Stat> {
    match served::is_on() {
        true => stat_unasked(fd),
        false => stat_by(nr::FSTAT, fd),
    }
}

/// Of what a path of the program's leads to.
pub fn stat(path: u64) -> Option<Stat> {
    const AT_FDCWD: u64 = -100i64 as u64;
    const O_PATH_CLOEXEC: u64 = 0o1200_0000;
    const RESOLVE_CACHED: u64 = 0x20;
    if !served::is_on() {
        return stat_by(nr::STAT, path);
    }
    // As far as the kernel knows the way by itself.
    let how = [O_PATH_CLOEXEC, 0, RESOLVE_CACHED];
    let fd = call(nr::OPENAT2, AT_FDCWD, path, how.as_ptr() as u64, 24, 0, 0);
    let fd = u64::try_from(fd).ok()?;
    let stat = stat_unasked(fd);
    call(nr::CLOSE, fd, 0, 0, 0, 0, 0);
    stat
}

/// What the kernel knows of a file without asking who serves it.
fn stat_unasked(fd: u64) -> Option<Stat> {
    const AT_EMPTY_PATH: u64 = 0x1000;
    const AT_STATX_DONT_SYNC: u64 = 0x4000;
    const STATX_BASIC: u64 = 0x7ff;
    let mut words = [0u64; 32];
    let (name, to) = (c"".as_ptr() as u64, words.as_mut_ptr() as u64);
    let flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    if call(nr::STATX, fd, name, flags, STATX_BASIC, to, 0) != 0 {
        return None;
    }
    // As `stat` has devices and times: major, minor; seconds, fractions.
    let device = |word: u64| {
        let (major, minor) = (word & 0xffff_ffff, word >> 32);
        minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
    };
    let (changed, modified) = (&words[12..14], &words[14..16]);
    let low = |word: u64| word & 0xffff_ffff;
    Some(Stat {
        device: device(words[17]),
        inode: words[4],
        mode: (words[3] >> 32) as u32 & 0xffff,
        special: device(words[16]),
        size: words[5],
        block: words[0] >> 32,
        times: [modified[0], low(modified[1]), changed[0], low(changed[1])],
    })
}

fn stat_by(number: u64, what: u64) -> Option<Stat> {
    let mut words = [0u64; 18];
    if call(number, what, words.as_mut_ptr() as u64, 0, 0, 0, 0) != 0 {
        return None;
    }
    Some(Stat {
        device: words[0],
        inode: words[1],
        mode: words[3] as u32,
        special: words[5],
        size: words[6],
        block: words[7],
        times: [words[11], words[12], words[13], words[14]],
    })
}

pub fn is_regular(mode: u32) -> bool {
    matches!(mode & 0xf000, 0x8000 | 0x6000)
}

/// Where in a file a descriptor reads; negative: what it leads to has no places.
pub fn offset(fd: u64) -> i64 {
    const LSEEK: u64 = 8;
    const SEEK_CUR: u64 = 1;
    call(LSEEK, fd, 0, SEEK_CUR, 0, 0, 0)
}

/// Whether a read of what a descriptor leads to would not wait.
pub fn is_readable(fd: u64) -> bool {
    let mut poll = [fd as u32, 1]; // POLLIN
    call(nr::POLL, poll.as_mut_ptr() as u64, 1, 0, 0, 0, 0);
    poll[1] >> 16 != 0
}

/// Makes all pages of a range present that can be written. False: some cannot,
/// or the kernel is older than 5.14.
pub fn populate(address: u64, len: u64) -> bool {
    const MADV_POPULATE_WRITE: u64 = 23;
    call(nr::MADVISE, address, len, MADV_POPULATE_WRITE, 0, 0, 0) == 0
}

/// Whether a process is dead, be it that nobody has waited for it yet.
pub fn has_ended(pid: u32) -> bool {
    const PIDFD_OPEN: u64 = 434;
    let fd = call(PIDFD_OPEN, u64::from(pid), 0, 0, 0, 0, 0);
    if fd < 0 {
        return fd == -ESRCH;
    }
    let mut poll = [fd as u32, 1]; // POLLIN
    call(nr::POLL, poll.as_mut_ptr() as u64, 1, 0, 0, 0, 0);
    call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    poll[1] >> 16 != 0
}

/// The kernel's function that a thread waits in: its name, or the beginning of it.
pub fn waits_in(tid: u32) -> [u8; 32] {
    const READ_ONLY: u64 = 0;
    let mut name = [0; 32];
    let path = crate::call::proc_path(tid);
    let fd = call(nr::OPEN, path.as_ptr() as u64, READ_ONLY, 0, 0, 0, 0);
    if fd >= 0 {
        call(nr::READ, fd as u64, name.as_mut_ptr() as u64, 32, 0, 0, 0);
        call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    }
    name
}

/// Last words: something that must never happen did, and to whom.
pub fn die(text: &[u8]) -> ! {
    say(b"mw: internal error in the monitor: ");
    say(text);
    let thread = thread();
    let process = thread.process();
    let whose: [(&[u8], u64); 3] = [
        (b" (process ", process.number.get().into()),
        (b", thread ", thread.number.get().into()),
        (b", event ", process.log.next_event.get()),
    ];
    for (what, number) in whose {
        say(what);
        say_number(number);
    }
    end_with(b")")
}

/// Last words of an image that has not begun: there is no thread yet.
pub fn die_early(text: &[u8]) -> ! {
    say(b"mw: internal error in the monitor: ");
    end_with(text)
}

fn say_number(number: u64) {
    let mut digits = [0u8; 20];
    crate::call::write_decimal(&mut digits, number);
    let zeroes = digits[..19]
        .iter()
        .take_while(|digit| **digit == b'0')
        .count();
    say(&digits[zeroes..]);
}

pub fn die_number(text: &[u8], number: u64) -> ! {
    let (line, len) = with_number(text, number);
    die(&line[..len])
}

/// Last words: the recording says what cannot be.
pub fn refuse(text: &[u8], number: u64) -> ! {
    let (line, len) = with_number(text, number);
    end_with(&line[..len])
}

fn say(text: &[u8]) {
    let (from, len) = (text.as_ptr() as u64, text.len() as u64);
    call(nr::WRITE, 2, from, len, 0, 0, 0);
}

fn end_with(text: &[u8]) -> ! {
    say(text);
    say(b"\n");
    loop {
        call(nr::EXIT_GROUP, 127, 0, 0, 0, 0, 0);
    }
}

/// A line with a number at its end, and its length.
fn with_number(text: &[u8], number: u64) -> ([u8; 96], usize) {
    let mut line = [b' '; 96];
    let mut len = 0;
    for byte in text.iter().take(70) {
        line[len] = *byte;
        len += 1;
    }
    len += 1;
    for i in 0..16 {
        line[len] = b"0123456789abcdef"[(number >> (60 - 4 * i)) as usize & 15];
        len += 1;
    }
    (line, len)
}
