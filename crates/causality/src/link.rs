//! A link: one event that caused another.

use std::fmt;

use protocol::id::{EventNo, ProcessIx, ThreadNo};

/// An event by its process and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Where its process stands among those of the history, in order of birth.
    pub process: ProcessIx,
    /// Its number there.
    pub number: EventNo,
}

impl EventId {
    /// Event `number` of this process.
    pub fn new(process: ProcessIx, number: EventNo) -> EventId {
        EventId { process, number }
    }
}

/// What kind of cause a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes or a datagram: send to receive.
    Message = 0,
    /// A connection: connect to accept.
    Connect = 1,
    /// A port was open: listen to connect.
    Listen = 2,
    /// The other end was closed: close, shutdown or exit to end of file.
    Close = 3,
    /// A process was made: fork to its first event.
    Fork = 4,
    /// A thread was made: clone to its first event.
    Thread = 5,
    /// Another image: exec to its first event, and to the end of a vfork.
    Exec = 6,
    /// A process ended: its last event to wait, or to SIGCHLD.
    Exit = 7,
    /// A thread that waited at a futex was woken: wake, or the end of a
    /// thread, to wait.
    Wake = 8,
    /// A signal: kill to delivery.
    Signal = 9,
    /// A count: write of an eventfd to read.
    Count = 10,
    /// A timer that was set: setting to expiry.
    Timer = 11,
    /// A file lock was free: unlock to lock.
    Lock = 12,
    /// A wait for several descriptors found one ready: what made it so to
    /// `poll`, `select` or `epoll_wait`.
    Ready = 13,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 14] = [
        Kind::Message,
        Kind::Connect,
        Kind::Listen,
        Kind::Close,
        Kind::Fork,
        Kind::Thread,
        Kind::Exec,
        Kind::Exit,
        Kind::Wake,
        Kind::Signal,
        Kind::Count,
        Kind::Timer,
        Kind::Lock,
        Kind::Ready,
    ];

    /// As it is typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Message => "message",
            Kind::Connect => "connect",
            Kind::Listen => "listen",
            Kind::Close => "close",
            Kind::Fork => "fork",
            Kind::Thread => "thread",
            Kind::Exec => "exec",
            Kind::Exit => "exit",
            Kind::Wake => "wake",
            Kind::Signal => "signal",
            Kind::Count => "count",
            Kind::Timer => "timer",
            Kind::Lock => "lock",
            Kind::Ready => "ready",
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One event that caused another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The earlier one. Of a call that may block it is the start: what it
    /// caused may have happened before it returned.
    pub cause: EventId,
    /// The later one. Of a call that may block it is the end.
    pub effect: EventId,
    /// The thread whose event the effect is.
    pub thread: ThreadNo,
    /// The thread whose event the cause is, where that is known without
    /// looking.
    pub cause_thread: Option<ThreadNo>,
    /// What kind of cause.
    pub kind: Kind,
    /// The channel, if it went by one.
    pub channel: Option<u32>,
    /// How many bytes (of a message), or how much (of a count).
    pub amount: u64,
}
