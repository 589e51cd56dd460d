//! What the calls' arguments and bytes mean here.

use recording::Event;

/// Numbers of the calls that make, move or end what processes meet at.
#[allow(missing_docs)]
pub(crate) mod nr {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const POLL: u64 = 7;
    pub const MMAP: u64 = 9;
    pub const MUNMAP: u64 = 11;
    pub const IOCTL: u64 = 16;
    pub const READV: u64 = 19;
    pub const WRITEV: u64 = 20;
    pub const PIPE: u64 = 22;
    pub const SELECT: u64 = 23;
    pub const DUP: u64 = 32;
    pub const DUP2: u64 = 33;
    pub const PAUSE: u64 = 34;
    pub const NANOSLEEP: u64 = 35;
    pub const ALARM: u64 = 37;
    pub const SETITIMER: u64 = 38;
    pub const SENDFILE: u64 = 40;
    pub const SOCKET: u64 = 41;
    pub const CONNECT: u64 = 42;
    pub const ACCEPT: u64 = 43;
    pub const SENDTO: u64 = 44;
    pub const RECVFROM: u64 = 45;
    pub const SENDMSG: u64 = 46;
    pub const RECVMSG: u64 = 47;
    pub const SHUTDOWN: u64 = 48;
    pub const BIND: u64 = 49;
    pub const LISTEN: u64 = 50;
    pub const GETSOCKNAME: u64 = 51;
    pub const SOCKETPAIR: u64 = 53;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const WAIT4: u64 = 61;
    pub const KILL: u64 = 62;
    pub const SEMOP: u64 = 65;
    pub const SEMCTL: u64 = 66;
    pub const MSGSND: u64 = 69;
    pub const MSGRCV: u64 = 70;
    pub const MSGCTL: u64 = 71;
    pub const FCNTL: u64 = 72;
    pub const FLOCK: u64 = 73;
    pub const CHDIR: u64 = 80;
    pub const FCHDIR: u64 = 81;
    pub const CREAT: u64 = 85;
    pub const SETSID: u64 = 112;
    pub const RT_SIGTIMEDWAIT: u64 = 128;
    pub const RT_SIGQUEUEINFO: u64 = 129;
    pub const RT_SIGSUSPEND: u64 = 130;
    pub const PRCTL: u64 = 157;
    pub const TKILL: u64 = 200;
    pub const FUTEX: u64 = 202;
    pub const EPOLL_CREATE: u64 = 213;
    pub const SET_TID_ADDRESS: u64 = 218;
    pub const SEMTIMEDOP: u64 = 220;
    pub const TIMER_SETTIME: u64 = 223;
    pub const CLOCK_NANOSLEEP: u64 = 230;
    pub const EXIT_GROUP: u64 = 231;
    pub const EPOLL_WAIT: u64 = 232;
    pub const EPOLL_CTL: u64 = 233;
    pub const TGKILL: u64 = 234;
    pub const MQ_OPEN: u64 = 240;
    pub const MQ_UNLINK: u64 = 241;
    pub const MQ_TIMEDSEND: u64 = 242;
    pub const MQ_TIMEDRECEIVE: u64 = 243;
    pub const WAITID: u64 = 247;
    pub const INOTIFY_INIT: u64 = 253;
    pub const OPENAT: u64 = 257;
    pub const PSELECT6: u64 = 270;
    pub const PPOLL: u64 = 271;
    pub const SPLICE: u64 = 275;
    pub const TEE: u64 = 276;
    pub const VMSPLICE: u64 = 278;
    pub const EPOLL_PWAIT: u64 = 281;
    pub const SIGNALFD: u64 = 282;
    pub const TIMERFD_CREATE: u64 = 283;
    pub const EVENTFD: u64 = 284;
    pub const TIMERFD_SETTIME: u64 = 286;
    pub const ACCEPT4: u64 = 288;
    pub const SIGNALFD4: u64 = 289;
    pub const EVENTFD2: u64 = 290;
    pub const EPOLL_CREATE1: u64 = 291;
    pub const DUP3: u64 = 292;
    pub const PIPE2: u64 = 293;
    pub const INOTIFY_INIT1: u64 = 294;
    pub const RT_TGSIGQUEUEINFO: u64 = 297;
    pub const RECVMMSG: u64 = 299;
    pub const SENDMMSG: u64 = 307;
    pub const MEMFD_CREATE: u64 = 319;
    pub const EXECVEAT: u64 = 322;
    pub const PREADV2: u64 = 327;
    pub const PWRITEV2: u64 = 328;
    pub const PIDFD_SEND_SIGNAL: u64 = 424;
    pub const PIDFD_OPEN: u64 = 434;
    pub const CLOSE_RANGE: u64 = 436;
    pub const OPENAT2: u64 = 437;
    pub const EPOLL_PWAIT2: u64 = 441;
}

use nr::*;

/// Whether a call is of any interest here.
pub(crate) fn is_followed(number: u64) -> bool {
    const COUNT: usize = 512;
    const FOLLOWED: [bool; COUNT] = {
        let mut followed = [false; COUNT];
        let list = [
            READ,
            WRITE,
            OPEN,
            CLOSE,
            POLL,
            MMAP,
            MUNMAP,
            IOCTL,
            READV,
            WRITEV,
            PIPE,
            SELECT,
            DUP,
            DUP2,
            PAUSE,
            NANOSLEEP,
            ALARM,
            SETITIMER,
            SENDFILE,
            SOCKET,
            CONNECT,
            ACCEPT,
            SENDTO,
            RECVFROM,
            SENDMSG,
            RECVMSG,
            SHUTDOWN,
            BIND,
            LISTEN,
            GETSOCKNAME,
            SOCKETPAIR,
            CLONE,
            FORK,
            VFORK,
            EXECVE,
            EXIT,
            WAIT4,
            KILL,
            SEMOP,
            SEMCTL,
            MSGSND,
            MSGRCV,
            MSGCTL,
            SEMTIMEDOP,
            MQ_UNLINK,
            MQ_TIMEDSEND,
            MQ_TIMEDRECEIVE,
            FCNTL,
            FLOCK,
            CHDIR,
            FCHDIR,
            CREAT,
            SETSID,
            RT_SIGTIMEDWAIT,
            RT_SIGQUEUEINFO,
            RT_SIGSUSPEND,
            PRCTL,
            TKILL,
            FUTEX,
            EPOLL_CREATE,
            SET_TID_ADDRESS,
            TIMER_SETTIME,
            CLOCK_NANOSLEEP,
            EXIT_GROUP,
            EPOLL_WAIT,
            EPOLL_CTL,
            TGKILL,
            MQ_OPEN,
            WAITID,
            INOTIFY_INIT,
            OPENAT,
            PSELECT6,
            PPOLL,
            SPLICE,
            TEE,
            VMSPLICE,
            EPOLL_PWAIT,
            SIGNALFD,
            TIMERFD_CREATE,
            EVENTFD,
            TIMERFD_SETTIME,
            ACCEPT4,
            SIGNALFD4,
            EVENTFD2,
            EPOLL_CREATE1,
            DUP3,
            PIPE2,
            INOTIFY_INIT1,
            RT_TGSIGQUEUEINFO,
            RECVMMSG,
            SENDMMSG,
            MEMFD_CREATE,
            EXECVEAT,
            PREADV2,
            PWRITEV2,
            PIDFD_SEND_SIGNAL,
            PIDFD_OPEN,
            CLOSE_RANGE,
            OPENAT2,
            EPOLL_PWAIT2,
        ];
        let mut i = 0;
        #[allow(clippy::indexing_slicing, reason = "checked when it is compiled")]
        while i < list.len() {
            followed[list[i] as usize] = true;
            i += 1;
        }
        followed
    };
    FOLLOWED.get(number as usize).copied().unwrap_or(false)
}

/// Whether a thread makes a call while it is set up, before it runs what it is
/// there for.
pub(crate) fn is_housekeeping(number: u64) -> bool {
    matches!(number, MMAP | MUNMAP | PRCTL | SET_TID_ADDRESS | EXIT)
}

/// The descriptors that a call is about.
pub(crate) fn descriptors(number: u64, args: &[u64; 6]) -> (Option<u64>, Option<u64>) {
    match number {
        READ | WRITE | READV | WRITEV | SENDTO | RECVFROM | SENDMSG | RECVMSG | RECVMMSG
        | SENDMMSG | PREADV2 | PWRITEV2 | VMSPLICE | CONNECT | ACCEPT | ACCEPT4 | BIND | LISTEN
        | GETSOCKNAME | SHUTDOWN | DUP | DUP2 | DUP3 | FCNTL | FLOCK | IOCTL | TIMERFD_SETTIME
        | EPOLL_CTL | EPOLL_WAIT | EPOLL_PWAIT | EPOLL_PWAIT2 | FCHDIR | PIDFD_SEND_SIGNAL
        | MQ_TIMEDSEND | MQ_TIMEDRECEIVE => (Some(args[0]), None),
        // Where the bytes come from, and where they go.
        SPLICE => (Some(args[0]), Some(args[2])),
        TEE => (Some(args[0]), Some(args[1])),
        SENDFILE => (Some(args[1]), Some(args[0])),
        MMAP if args[4] as u32 as i32 >= 0 && args[3] & 0x20 == 0 => (Some(args[4]), None),
        WAITID if args[0] == 3 => (Some(args[1]), None),
        _ => (None, None),
    }
}

/// Whether a call moves bytes.
pub(crate) fn is_transfer(number: u64) -> bool {
    matches!(
        number,
        READ | WRITE
            | READV
            | WRITEV
            | SENDTO
            | RECVFROM
            | SENDMSG
            | RECVMSG
            | RECVMMSG
            | SENDMMSG
            | PREADV2
            | PWRITEV2
            | VMSPLICE
            | SPLICE
            | TEE
            | SENDFILE
    )
}

/// The bytes at `at`, if there are so many.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    field(bytes, at).map(u64::from_le_bytes)
}

pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u32> {
    field(bytes, at).map(u32::from_le_bytes)
}

/// Up to the first NUL.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or(bytes)
}

/// Two descriptors that the kernel wrote.
pub(crate) fn pair(event: &Event<'_>, argument: usize) -> Option<(i64, i64)> {
    let bytes = event.argument(argument)?.bytes;
    let fd = |at| field(bytes, at).map(|b| i64::from(i32::from_le_bytes(b)));
    Some((fd(0)?, fd(4)?))
}

/// The descriptors in ancillary data.
pub(crate) fn rights(mut control: &[u8]) -> Vec<i32> {
    const HEADER: usize = 16;
    let mut found = Vec::new();
    while let (Some(len), Some(level), Some(kind)) =
        (word(control, 0), half(control, 8), half(control, 12))
    {
        let Ok(len) = usize::try_from(len) else { break };
        let Some(data) = control.get(HEADER..len) else {
            break;
        };
        // SOL_SOCKET, SCM_RIGHTS
        if (level, kind) == (1, 1) {
            found.extend(data.chunks_exact(4).filter_map(|fd| {
                let fd = field(fd, 0)?;
                Some(i32::from_le_bytes(fd))
            }));
        }
        let Some(rest) = control.get(len.next_multiple_of(8).max(HEADER)..) else {
            break;
        };
        control = rest;
    }
    found
}
