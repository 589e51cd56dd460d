//! What each call needs besides being made: asked of the table once, when the
//! monitor is built, and not at every call.

use protocol::syscall::{Arg, Len, SYSCALLS_END, Type};
use protocol::table::TABLE;

use crate::sys::nr;

/// The monitor has something of its own to do, before or after.
pub const CARE: u8 = 1;
/// Some lengths have to be read before the call writes them.
pub const LENGTHS: u8 = 2;
/// The kernel reads what is worth keeping.
pub const INPUTS: u8 = 4;
/// The kernel writes.
pub const OUTPUTS: u8 = 8;
/// More is asked of the kernel once it has been made (see `capture::extra`).
pub const EXTRA: u8 = 16;
/// It may lead to a file: who serves that may be a thread of the program's.
pub const FILES: u8 = 32;

/// By number.
static NEEDS: [u8; SYSCALLS_END] = {
    let mut needs = [0; SYSCALLS_END];
    let mut row = 0;
    while row < TABLE.len() {
        let number = TABLE[row].nr;
        let mut of_args = 0;
        let mut arg = 0;
        while arg < TABLE[row].args.len() {
            of_args |= of_arg(&TABLE[row].args[arg].1);
            arg += 1;
        }
        let files = if names_files(&TABLE[row].kind) {
            u8::MAX
        } else {
            !FILES
        };
        needs[number as usize] = of_args & files | of_number(number as u64);
        row += 1;
    }
    needs
};

/// Whether descriptors of calls of a type may be those of files.
const fn names_files(kind: &Type) -> bool {
    matches!(
        kind,
        Type::File | Type::Open | Type::Close | Type::Poll | Type::System
    )
}

const fn of_arg(arg: &Arg) -> u8 {
    match arg {
        Arg::Path => INPUTS | FILES,
        Arg::Fd | Arg::DirFd => FILES,
        Arg::Str | Arg::In(..) | Arg::IovIn(_) | Arg::MsgIn => INPUTS,
        Arg::Out(_, Len::Pointee(_) | Len::Pointee64(_))
        | Arg::InOut(_, Len::Pointee(_) | Len::Pointee64(_)) => OUTPUTS | LENGTHS,
        Arg::Out(..)
        | Arg::InOut(..)
        | Arg::IovOut(_)
        | Arg::MsgOut
        | Arg::MmsgOut(_)
        | Arg::MmsgIn(_) => OUTPUTS,
        _ => 0,
    }
}

const fn of_number(number: u64) -> u8 {
    match number {
        // What `call::with_care` and `descriptors::note` know of.
        // And it writes, at times.
        nr::SETSOCKOPT => CARE | EXTRA,
        nr::CLOSE_RANGE => CARE | FILES,
        // A socket's name may be a file's.
        nr::BIND => EXTRA | FILES,
        nr::IOCTL
        | nr::GETSOCKOPT
        | nr::MLOCKALL
        | nr::MUNLOCKALL
        | nr::CLOSE
        | nr::DUP2
        | nr::DUP3
        | nr::FCNTL
        | nr::CLOCK_GETTIME
        | nr::GETTIMEOFDAY
        | nr::TIME
        | nr::UNSHARE
        | nr::SETNS
        | nr::SETTIMEOFDAY
        | nr::CLOCK_SETTIME
        | nr::ADJTIMEX
        | nr::CLOCK_ADJTIME
        | nr::TIMES
        | nr::SYSINFO
        | nr::TIMER_SETTIME
        | nr::TIMER_GETTIME
        | nr::TIMERFD_SETTIME
        | nr::TIMERFD_GETTIME
        | nr::GETITIMER
        | nr::SETITIMER
        | nr::ALARM
        | nr::KILL
        | nr::TKILL
        | nr::TGKILL
        | nr::RT_SIGQUEUEINFO
        | nr::RT_TGSIGQUEUEINFO
        | nr::PIDFD_SEND_SIGNAL
        | nr::FANOTIFY_INIT
        | nr::MOUNT
        | nr::FSOPEN
        | nr::FALLOCATE
        | nr::FTRUNCATE
        | nr::PROCESS_VM_WRITEV => CARE,
        nr::GETXATTRAT
        | nr::SEMCTL
        | nr::ACCEPT
        | nr::ACCEPT4
        | nr::CONNECT
        | nr::LISTEN
        | nr::SENDTO
        | nr::SENDMSG
        | nr::RECVMSG
        | nr::OPEN
        | nr::OPENAT
        | nr::OPENAT2
        | nr::CREAT => EXTRA,
        _ => 0,
    }
}

/// By number: which arguments are descriptors, the first as bit 0. What names
/// some in another way has bit 7.
static DESCRIPTORS: [u8; SYSCALLS_END] = {
    let mut of = [0; SYSCALLS_END];
    let mut row = 0;
    while row < TABLE.len() {
        let number = TABLE[row].nr as usize;
        let mut arg = 0;
        while arg < TABLE[row].args.len() {
            if matches!(TABLE[row].args[arg].1, Arg::Fd | Arg::DirFd) {
                of[number] |= 1 << arg;
            }
            arg += 1;
        }
        if matches!(
            number as u64,
            nr::SENDMSG | nr::SENDMMSG | nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::TRUNCATE
        ) {
            of[number] |= 1 << 7;
        }
        row += 1;
    }
    of
};

#[inline(always)]
pub fn descriptors(number: u64) -> u8 {
    DESCRIPTORS.get(number as usize).copied().unwrap_or(0)
}

#[inline(always)]
pub fn of(number: u64) -> u8 {
    match NEEDS.get(number as usize) {
        Some(needs) => *needs,
        None => CARE | LENGTHS | INPUTS | OUTPUTS | EXTRA,
    }
}
