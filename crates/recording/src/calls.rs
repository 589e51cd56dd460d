//! Looking things up in the syscall table.

use protocol::syscall::Syscall;

/// The table's row for a system call.
pub fn row(nr: u64) -> Option<&'static Syscall> {
    protocol::table::syscall(nr)
}

/// Numbers of the system calls this crate itself knows something about.
#[allow(missing_docs, reason = "they are what they are called")]
pub mod nr {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const CLOSE: u64 = 3;
    pub const IOCTL: u64 = 16;
    pub const PIPE: u64 = 22;
    pub const DUP: u64 = 32;
    pub const DUP2: u64 = 33;
    pub const SOCKET: u64 = 41;
    pub const CONNECT: u64 = 42;
    pub const ACCEPT: u64 = 43;
    pub const BIND: u64 = 49;
    pub const LISTEN: u64 = 50;
    pub const GETSOCKNAME: u64 = 51;
    pub const GETPEERNAME: u64 = 52;
    pub const SOCKETPAIR: u64 = 53;
    pub const SETSOCKOPT: u64 = 54;
    pub const GETSOCKOPT: u64 = 55;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const WAIT4: u64 = 61;
    pub const FCNTL: u64 = 72;
    pub const GETCWD: u64 = 79;
    pub const CHDIR: u64 = 80;
    pub const FCHDIR: u64 = 81;
    pub const CREAT: u64 = 85;
    pub const PRCTL: u64 = 157;
    pub const TIME: u64 = 201;
    pub const FUTEX: u64 = 202;
    pub const EPOLL_CREATE: u64 = 213;
    pub const EXIT_GROUP: u64 = 231;
    pub const MQ_OPEN: u64 = 240;
    pub const WAITID: u64 = 247;
    pub const INOTIFY_INIT: u64 = 253;
    pub const OPENAT: u64 = 257;
    pub const SIGNALFD: u64 = 282;
    pub const TIMERFD_CREATE: u64 = 283;
    pub const EVENTFD: u64 = 284;
    pub const ACCEPT4: u64 = 288;
    pub const SIGNALFD4: u64 = 289;
    pub const EVENTFD2: u64 = 290;
    pub const EPOLL_CREATE1: u64 = 291;
    pub const DUP3: u64 = 292;
    pub const PIPE2: u64 = 293;
    pub const INOTIFY_INIT1: u64 = 294;
    pub const MEMFD_CREATE: u64 = 319;
    pub const EXECVEAT: u64 = 322;
    pub const PIDFD_OPEN: u64 = 434;
    pub const CLONE3: u64 = 435;
    pub const CLOSE_RANGE: u64 = 436;
    pub const OPENAT2: u64 = 437;
}
