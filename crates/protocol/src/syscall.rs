//! The vocabulary of THE syscall table (the rows are in `table.rs`).
//!
//! One row says everything Meanwhile knows about a system call: how it is
//! named and printed, what it means, what the kernel reads and writes through
//! its pointers, whether it can block, and how the recorder and the replayer
//! treat it. Recorder, replayer, printer and documentation read this one
//! table, so that they cannot disagree.

/// What kind of thing an event is, in the words a user filters by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Type {
    Send,
    Recv,
    Connect,
    Accept,
    Socket,
    Open,
    Close,
    File,
    Poll,
    Fork,
    Exec,
    Exit,
    Wait,
    Signal,
    Lock,
    Wake,
    Sleep,
    Memory,
    Time,
    Process,
    Info,
    Thread,
    Random,
    System,
    Refused,
}

impl Type {
    pub const ALL: &'static [Type] = &[
        Type::Send,
        Type::Recv,
        Type::Connect,
        Type::Accept,
        Type::Socket,
        Type::Open,
        Type::Close,
        Type::File,
        Type::Poll,
        Type::Fork,
        Type::Exec,
        Type::Exit,
        Type::Wait,
        Type::Signal,
        Type::Lock,
        Type::Wake,
        Type::Sleep,
        Type::Memory,
        Type::Time,
        Type::Process,
        Type::Info,
        Type::Thread,
        Type::Random,
        Type::System,
        Type::Refused,
    ];

    /// The name as it is typed by a user and printed in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Type::Send => "send",
            Type::Recv => "recv",
            Type::Connect => "connect",
            Type::Accept => "accept",
            Type::Socket => "socket",
            Type::Open => "open",
            Type::Close => "close",
            Type::File => "file",
            Type::Poll => "poll",
            Type::Fork => "fork",
            Type::Exec => "exec",
            Type::Exit => "exit",
            Type::Wait => "wait",
            Type::Signal => "signal",
            Type::Lock => "lock",
            Type::Wake => "wake",
            Type::Sleep => "sleep",
            Type::Memory => "memory",
            Type::Time => "time",
            Type::Process => "process",
            Type::Info => "info",
            Type::Thread => "thread",
            Type::Random => "random",
            Type::System => "system",
            Type::Refused => "refused",
        }
    }

    pub fn from_name(name: &str) -> Option<Type> {
        Type::ALL.iter().copied().find(|t| t.name() == name)
    }
}

/// How the recorder and the replayer treat a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Cannot block for long and touches nothing but what its arguments say:
    /// done for real while recording and logged as one event; in replay its
    /// result and outputs come from the log.
    Plain,
    /// May block, and touches nothing but what its arguments say: done for real
    /// while recording and logged as two events, start and end; in replay its
    /// result and outputs come from the log.
    Block,
    /// Changes the address space: replay does it again, at the recorded
    /// addresses.
    Memory,
    /// Creates, replaces or ends threads and processes, or changes how
    /// signals reach them: the monitor has code of its own for each.
    Control,
    /// Not recordable faithfully: the program gets this errno, as from a
    /// kernel built without the feature.
    Refuse(i32),
}

/// How many bytes lie behind a pointer argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Len {
    /// A fixed number.
    Fixed(u32),
    /// The value of argument `i`, in bytes. (Outputs: what was asked for.)
    Arg(u8),
    /// Argument `i` times a size of an element.
    ArgTimes(u8, u32),
    /// The call's result, in bytes.
    Ret,
    /// The call's result times the size of an element.
    RetTimes(u32),
    /// As many bytes as a set of argument-`i` descriptors takes (`fd_set`,
    /// rounded up to 8).
    Bits(u8),
    /// The `u32` (socklen_t) that argument `i` points to, after the call,
    /// but at most what it was before the call.
    Pointee(u8),
    /// `u64` version of `Pointee` (size_t).
    Pointee64(u8),
    /// The call's result, but at most argument `i` bytes: results may be
    /// larger than the buffer (`MSG_TRUNC`), or a size that was only asked
    /// for (`getxattr` with size 0, which writes nothing).
    RetMax(u8),
    /// `RetTimes`, but at most argument-`i` elements. (`getgroups`)
    RetTimesMax(u32, u8),
    /// The call's result plus a fixed number of bytes. (`msgrcv`)
    RetPlus(u32),
    /// Argument `i` plus a fixed number of bytes. (`msgsnd`)
    ArgPlus(u8, u32),
    /// One byte per page of argument-`i` bytes, the last one rounded up.
    /// (`mincore`)
    ArgPages(u8),
    /// A set of one bit less than argument `i` says, rounded up to 8 bytes:
    /// how the calls on memory policies count. (`get_mempolicy`)
    NodeBits(u8),
    /// A fixed number of bytes, and as many as the `u32` says that argument `i`
    /// points to. (`name_to_handle_at`)
    HeadPlus(u8, u32),
    /// By the value of argument `i` (a command): the listed number of bytes,
    /// none for a command that is not listed. With no bytes the argument is
    /// not a pointer and is printed as a number.
    By(u8, &'static [(u32, u32)]),
}

impl Len {
    /// The argument that the length depends on.
    pub const fn arg(self) -> Option<u8> {
        match self {
            Len::Fixed(_) | Len::Ret | Len::RetTimes(_) | Len::RetPlus(_) => None,
            Len::Arg(i)
            | Len::ArgTimes(i, _)
            | Len::Bits(i)
            | Len::Pointee(i)
            | Len::Pointee64(i)
            | Len::RetMax(i)
            | Len::RetTimesMax(_, i)
            | Len::ArgPlus(i, _)
            | Len::ArgPages(i)
            | Len::NodeBits(i)
            | Len::HeadPlus(i, _)
            | Len::By(i, _) => Some(i),
        }
    }
}

/// A structure whose layout the printer knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Nothing known: bytes.
    Bytes,
    /// Text (message payloads, file contents): printed as a C string.
    Text,
    Int32,
    Uint32,
    Int64,
    Uint64,
    /// Any number of `u32` (groups).
    Uint32s,
    /// Two descriptors (pipe, socketpair).
    FdPair,
    Timespec,
    Timeval,
    Itimerval,
    Itimerspec,
    Timezone,
    Stat,
    Statx,
    Statfs,
    Sigset,
    Sigaction,
    Siginfo,
    Sigevent,
    StackT,
    Rusage,
    Rlimit,
    Sysinfo,
    Utsname,
    Tms,
    Sockaddr,
    PollFds,
    EpollEvents,
    EpollEvent,
    FdSet,
    Flock,
    Dirents64,
    Termios,
    Winsize,
    CpuSet,
    Ifreq,
    CloneArgs,
    OpenHow,
}

/// Names for the values of an argument.
#[derive(Debug)]
pub struct Names {
    /// `true`: bits joined by `|`; `false`: one value out of a list.
    pub bits: bool,
    /// For bits: those that together are one value out of the list (the
    /// access mode in `open` flags, the type in a socket's type and flags).
    pub field: u64,
    /// `(value, name)`, in the order in which they are tried. For bits, a
    /// multi-bit name precedes the single bits it is made of.
    pub values: &'static [(u64, &'static str)],
}

impl Names {
    /// Writes a value in words; what has no name is written as a number.
    pub fn describe(&self, value: u64, out: &mut impl core::fmt::Write) -> core::fmt::Result {
        let one = |wanted: u64| self.values.iter().find(|entry| entry.0 == wanted);
        if !self.bits {
            return match one(value) {
                Some((_, name)) => out.write_str(name),
                None => number(value, out),
            };
        }
        let mut rest = value;
        let mut first = true;
        let mut join = |text: &str, out: &mut dyn core::fmt::Write| {
            if !core::mem::take(&mut first) {
                out.write_str("|")?;
            }
            out.write_str(text)
        };
        if self.field != 0
            && let Some((_, name)) = one(value & self.field)
        {
            rest &= !self.field;
            join(name, out)?;
        }
        for &(bits, name) in self.values {
            if bits & !self.field != 0 && rest & bits == bits {
                rest &= !bits;
                join(name, out)?;
            }
        }
        if rest != 0 {
            join("", out)?;
            return number(rest, out);
        }
        if first {
            return match one(0) {
                Some((_, name)) => out.write_str(name),
                None => out.write_str("0"),
            };
        }
        Ok(())
    }
}

/// Small numbers in decimal, others in hexadecimal.
fn number(value: u64, out: &mut impl core::fmt::Write) -> core::fmt::Result {
    if value < 256 {
        write!(out, "{value}")
    } else {
        write!(out, "{value:#x}")
    }
}

/// One argument: how it is printed and what lies behind it.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// Signed decimal, a C `int`: the upper half of the register is not part
    /// of it (see [`Arg::value`]).
    Int,
    /// Unsigned decimal, a C `unsigned`: 32 bits.
    Uint,
    /// Signed decimal, 64 bits (offsets).
    Long,
    /// Unsigned decimal, 64 bits (sizes).
    Size,
    /// Hexadecimal.
    Hex,
    /// Octal (file modes).
    Octal,
    /// An address, not followed.
    Addr,
    /// A file descriptor.
    Fd,
    /// A directory descriptor, AT_FDCWD by name.
    DirFd,
    /// A process or thread id.
    Pid,
    /// A signal number.
    Sig,
    /// A value with names.
    Named(&'static Names),
    /// A NUL-terminated path name, read by the kernel. Captured for printing.
    Path,
    /// Another NUL-terminated string, read by the kernel. Captured.
    Str,
    /// A NULL-terminated vector of strings (argv). Captured, joined by NUL.
    StrVec,
    /// Read by the kernel and captured for printing and for comparison in
    /// replay. Long payloads are captured in part.
    In(Shape, Len),
    /// Written by the kernel if the call succeeds: captured in full.
    Out(Shape, Len),
    /// Written by the kernel even when the call fails, or read and written,
    /// or not always written when the call succeeds: captured in full after
    /// the call whatever the result, as far as it is readable. When the call
    /// failed with EINVAL or EFAULT only lengths that are `Fixed` or `By` can
    /// be trusted, and the others are left out. A recorder that has the
    /// kernel write elsewhere copies the old content there first.
    InOut(Shape, Len),
    /// `iovec` array whose count is argument `i`, data going out of the
    /// program.
    IovIn(u8),
    /// `iovec` array whose count is argument `i`, filled by the call (result
    /// = bytes).
    IovOut(u8),
    /// `msghdr` to send.
    MsgIn,
    /// `msghdr` to receive into.
    MsgOut,
    /// `mmsghdr` array to send; count is argument `i`. The kernel writes
    /// `msg_len` into as many as the result says.
    MmsgIn(u8),
    /// `mmsghdr` array to receive into; count is argument `i`, filled ones =
    /// the result.
    MmsgOut(u8),
}

impl Arg {
    /// What the kernel makes of the register: arguments of 32 bits lose the
    /// upper half, signed ones (as `i64`) are extended. Lengths and printing
    /// start from this, never from the raw register.
    pub const fn value(self, register: u64) -> u64 {
        match self {
            Arg::Int | Arg::Fd | Arg::DirFd | Arg::Pid | Arg::Sig => {
                register as u32 as i32 as i64 as u64
            }
            Arg::Uint | Arg::Octal | Arg::Named(_) => register as u32 as u64,
            _ => register,
        }
    }
}

/// How a result is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ret {
    Int,
    Hex,
    Fd,
    Pid,
    None,
}

/// One row.
#[derive(Debug)]
pub struct Syscall {
    pub nr: u16,
    pub name: &'static str,
    pub kind: Type,
    pub how: How,
    pub args: &'static [(&'static str, Arg)],
    pub ret: Ret,
    /// What a reader of docs/syscalls.md should know; empty if nothing.
    pub note: &'static str,
}

/// In the number of a call: it was made by `int 0x80`, with a number of the
/// 32-bit table, which this one is not. Always refused.
pub const INT80: u64 = 1 << 31;

/// The number in the 32-bit table, if a call was made that way. (A program may
/// use any number, also -1.)
#[must_use]
pub const fn int80(nr: u64) -> Option<u64> {
    if nr >> 31 == 1 {
        Some(nr & !INT80)
    } else {
        None
    }
}

/// One more than the largest syscall number the table covers.
pub const SYSCALLS_END: usize = 512;
