//! The numbers of the encoding: kinds of records, tags of blobs, and what the values of
//! some kinds mean. Recordings contain them, so that none changes its meaning.

/// Kinds of records. The low four bits of the first byte.
pub mod kind {
    /// A call that cannot block: arguments, result, blobs.
    pub const CALL: u8 = 1;
    /// A call that may block begins: arguments, blobs.
    pub const START: u8 = 2;
    /// It returned: result, blobs.
    pub const END: u8 = 3;
    /// Another thread of the process runs from here. Not an event.
    /// Values: thread number.
    pub const THREAD: u8 = 4;
    /// A signal reached the program. Values: signal number, [`super::at`].
    /// Blobs: siginfo, and for [`super::at::PREEMPTED`] registers and digest.
    pub const SIGNAL: u8 = 5;
    /// A thread lost its turn in the middle of its code. Blobs: registers,
    /// digest.
    pub const PREEMPT: u8 = 6;
    /// A thread begins. Values: thread number, kernel's id, start address,
    /// number of the thread that made it.
    pub const THREAD_START: u8 = 7;
    /// A syscall site was patched. Not an event. Values: site, stub, patch
    /// start. Blobs: the original bytes.
    pub const PATCH: u8 = 8;
    /// The turn came from another process's log. Not an event. Values: domain,
    /// sequence number, number of the process that had it before (`u32::MAX` =
    /// nobody, one less: one that has exec'd since).
    pub const TURN: u8 = 9;
    /// A process, or a new image of it, begins. Values: [`super::begin`],
    /// parent's number, the parent's event, kernel's id (in the upper half the
    /// pid namespace it is of, 0 for the recorder's), image number, thread.
    pub const BEGIN: u8 = 10;
    /// The program read the time-stamp counter. What is otherwise the number of
    /// blobs is the low bits of the value, whose others are the time. Values:
    /// value, auxiliary, length of the instruction.
    pub const TSC: u8 = 11;
    /// The monitor took memory for stubs. Not an event. Values: address,
    /// length.
    pub const STUBS: u8 = 12;
    /// The program ran an instruction that is answered by the processor
    /// ([`crate::instruction`]). Values: which; what it was asked with; what it
    /// answered ([`super::answer`]).
    pub const ANSWER: u8 = 13;

    /// A clock was read. What is otherwise the number of blobs says by which
    /// call ([`super::clock`]); the value counts from the last one read.
    pub const CLOCK: u8 = 14;

    /// Instructions whose answers are recorded were replaced in code that was
    /// just mapped. Not an event. Values: the code's `PROT_` bits. Blobs: a word
    /// for each ([`crate::instruction::Form::at`]).
    pub const SITES: u8 = 15;

    /// Whether a record of this kind is an event with a number.
    pub const fn is_event(kind: u8) -> bool {
        !matches!(kind, THREAD | PATCH | TURN | STUBS | SITES)
    }
}

/// The values of [`kind::ANSWER`], after which instruction it was.
pub mod answer {
    /// Two words it was asked with: `eax` and `ecx` of `cpuid`, the selector of
    /// `lsl`.
    pub const ASKED: usize = 1;
    /// Four words it answered: the registers of `cpuid` (a, b, c, d); else the
    /// value, and the flag that says whether there is one.
    pub const ANSWERED: usize = 3;
    pub const VALUES: usize = 7;
}

/// Where a signal reached the program.
pub mod at {
    /// Before a call was made: the call follows when the handler returns.
    pub const CALL_ENTRY: u64 = 0;
    /// At the end of a call.
    pub const CALL_EXIT: u64 = 1;
    /// Caused by the instruction itself (a fault).
    pub const FAULT: u64 = 2;
    /// In the middle of computation: registers say where.
    pub const PREEMPTED: u64 = 3;
}

/// How a clock was read: programs do it so often that it has a record of its
/// own.
pub mod clock {
    pub const MONOTONIC: u8 = 0;
    pub const REALTIME: u8 = 1;
    /// `clock_gettime` of the clock whose number follows.
    pub const OTHER: u8 = 2;
    pub const GETTIMEOFDAY: u8 = 3;
    pub const TIME: u8 = 4;
    pub(in crate::record) const COUNT: usize = 5;

    /// System call number and clock of each.
    pub const fn call(how: u8, other: u64) -> (u64, u64) {
        match how {
            MONOTONIC => (228, 1),
            REALTIME => (228, 0),
            OTHER => (228, other),
            GETTIMEOFDAY => (96, 0),
            _ => (201, 0),
        }
    }
}

/// How a process began (value 0 of [`kind::BEGIN`]).
pub mod begin {
    pub const FIRST: u64 = 0;
    pub const EXEC: u64 = 1;
    pub const FORK: u64 = 2;
    /// Shares its parent's memory until it execs or exits.
    pub const VFORK: u64 = 3;
    /// It ran already when it began to be observed.
    pub const JOINED: u64 = 4;
}

/// What [`tag::OBJECT`] says of a call.
pub mod object {
    /// In place of the offset: nothing was written.
    pub const NOWHERE: u64 = u64::MAX;
    /// In place of the key, which is odd: the process's own memory, and the
    /// offset is an address.
    pub const MEMORY: u64 = 0;
}

/// Tags of blobs. Below 6: what the argument of that number points to.
pub mod tag {
    /// The blob is the beginning of longer data, followed by the data's
    /// length and a digest of it (8 bytes each).
    pub const PARTIAL: u8 = 0x40;
    /// The blob is what was there before the call (of an argument the kernel
    /// both reads and writes).
    pub const BEFORE: u8 = 0x20;
    /// A word (its address, u64) that the kernel had cleared by then, because a child
    /// that shares the memory was killed.
    pub const CLEARED: u8 = 0x08;
    /// Robust locks (their addresses, u64 each) that the kernel had marked by then,
    /// because their owner was killed; lowest bit: somebody waits for it.
    pub const MARKED: u8 = 0x09;
    /// How a child ended (u32), where the program did not want to know.
    pub const ENDED: u8 = 0x0a;
    pub const SIGINFO: u8 = 0x10;
    pub const REGISTERS: u8 = 0x11;
    pub const DIGEST: u8 = 0x12;
    /// Own and other address of the socket a call made or connected.
    pub const LOCAL: u8 = 0x13;
    pub const PEER: u8 = 0x14;
    /// Captured file: its id (u64).
    pub const FILE: u8 = 0x15;
    /// Sender of received ancillary data, control bytes.
    pub const CONTROL: u8 = 0x16;
    pub const NAME: u8 = 0x17;
    /// `msg_flags`, and lengths written back to a message header.
    pub const HEADER: u8 = 0x18;
    /// Number of a process (u64) a call made.
    pub const CHILD: u8 = 0x19;
    /// Identity of a descriptor: device, inode, mode (u64 each).
    pub const IDENTITY: u8 = 0x1a;
    /// Original bytes of a patched site; the sites of [`super::kind::SITES`].
    pub const CODE: u8 = 0x1b;
    /// The path a descriptor-made name resolves to.
    pub const PATH: u8 = 0x1c;
    /// Second piece of an argument (messages of a vector).
    pub const PIECE: u8 = 0x1d;
    /// What memory is backed by that shows changes: a key of its own (u64). Of a
    /// file that is mapped, its size follows. Of a call that wrote to one or
    /// changed its size, the offset ([`super::object`]) and the size it has then.
    pub const OBJECT: u8 = 0x1e;
    /// Process that is at the other end of an accepted unix socket: the
    /// kernel's id of it (u64).
    pub const CREDENTIALS: u8 = 0x1f;
    /// The call was not made: what a filter of the program's own said (u64).
    pub const FILTERED: u8 = 0x2f;
}
