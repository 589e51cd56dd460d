//! The kernel's objects that processes meet at: what a descriptor leads to,
//! and what was done to each.
//!
//! Nothing is matched here. Each object collects its operations, each with
//! the interval of time in which the kernel must have done it; which caused
//! which is found out when all are known (see [`crate::matching`]).

use recording::sockaddr::Address;

use crate::channel::ChannelKind;

/// One operation on an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Op {
    /// Place of the process.
    pub process: u32,
    /// Number of the thread in it.
    pub thread: u32,
    /// The event at which it may have begun to have effects.
    pub first: u32,
    /// The event at which it had its result.
    pub last: u32,
    /// Not before this time.
    pub lo: u64,
    /// Not after this time.
    pub hi: u64,
    /// Bytes, or units of a count.
    pub amount: u64,
}

impl Op {
    /// Whether it was done before anybody looked.
    pub fn is_of_old(&self) -> bool {
        self.hi == 0
    }

    /// Whether both may have been done at the same time, by different threads.
    pub fn races(&self, other: &Op) -> bool {
        (self.process, self.thread) != (other.process, other.thread)
            && self.lo <= other.hi
            && other.lo <= self.hi
    }
}

/// How what is put into a channel comes out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Byte by byte.
    Stream,
    /// Message by message.
    Packets,
    /// As a sum; `true`: in single units.
    Count(bool),
    /// Byte by byte, through the line discipline of a terminal: `true` on the
    /// way to the program that has it as its terminal.
    Terminal(u32, bool),
}

/// One direction of a conversation.
#[derive(Debug)]
pub(crate) struct Chan {
    pub kind: ChannelKind,
    pub flow: Flow,
    pub reverse: Option<u32>,
    pub forward: bool,
    pub name: String,
    pub sends: Vec<Op>,
    pub recvs: Vec<Op>,
    /// Sends that never returned: up to so many bytes may have gone.
    pub unsure: Vec<Op>,
    /// Looks that took nothing.
    pub peeks: Vec<Op>,
    /// Ends of file, and other news of the sender's end.
    pub eofs: Vec<Op>,
    /// Sends that failed because nobody receives any more.
    pub refused: Vec<Op>,
    /// When the last sender went.
    pub ended: Vec<Op>,
    /// When the last receiver went.
    pub abandoned: Vec<Op>,
    /// Open files that can send, and that can receive.
    pub writers: u32,
    pub readers: u32,
    /// One end was shut down: that was its end, whatever is closed later.
    pub shut_out: bool,
    pub shut_in: bool,
    /// What was sent and received, where it takes that to tell messages apart.
    pub sent_keys: Vec<Key>,
    pub received_keys: Vec<Key>,
    /// Waits that found something to receive here, and those that found that
    /// nobody receives any more.
    pub ready: Vec<Op>,
    pub broken: Vec<Op>,
    /// Of a count: places among the sends of those that set it, whatever it
    /// was.
    pub resets: Vec<usize>,
    /// It turned out to be another that was seen from its other end.
    pub merged: bool,
    /// Its times are those of the first member's clock.
    pub shifted: bool,
}

impl Chan {
    pub fn new(kind: ChannelKind, flow: Flow, name: String) -> Chan {
        Chan {
            kind,
            flow,
            reverse: None,
            forward: true,
            name,
            sends: Vec::new(),
            recvs: Vec::new(),
            unsure: Vec::new(),
            peeks: Vec::new(),
            eofs: Vec::new(),
            refused: Vec::new(),
            ended: Vec::new(),
            abandoned: Vec::new(),
            writers: 0,
            readers: 0,
            shut_out: false,
            shut_in: false,
            sent_keys: Vec::new(),
            received_keys: Vec::new(),
            ready: Vec::new(),
            broken: Vec::new(),
            resets: Vec::new(),
            merged: false,
            shifted: false,
        }
    }
}

/// What a message is recognized by: its length and the bytes of it that both
/// sides keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub len: u64,
    pub hash: u64,
    /// Received in part only, or not kept: recognized by its order alone.
    pub vague: bool,
}

/// How many of the first bytes of what is sent the monitor keeps.
pub(crate) const KEPT: usize = 64;

impl Key {
    /// Of a message of this length that begins with these bytes.
    pub fn new(len: u64, bytes: &[u8]) -> Key {
        let wanted = usize::try_from(len).unwrap_or(usize::MAX).min(KEPT);
        match bytes.get(..wanted) {
            Some(kept) => Key {
                len,
                hash: xxhash_rust::xxh3::xxh3_64(kept),
                vague: false,
            },
            None => Key {
                len,
                hash: 0,
                vague: true,
            },
        }
    }
}

/// What an open file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It came from outside, and its channels once it is used.
    Outside {
        input: u32,
        output: u32,
    },
    Pipe {
        channel: u32,
        read: bool,
        write: bool,
    },
    Socket(u32),
    Terminal {
        pty: u32,
        master: bool,
    },
    Counter(u32),
    /// A POSIX message queue.
    Queue {
        channel: u32,
        read: bool,
        write: bool,
    },
    Timer(u32),
    Signals,
    File(u32),
    Epoll(u32),
    Process(u32),
    Other,
}

/// No channel (yet).
pub(crate) const NONE: u32 = u32::MAX;

/// An open file: what several descriptors, also of several processes, share.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub what: What,
    /// Descriptors, and messages under way that carry one.
    pub refs: u32,
    /// Who has it, in how many descriptors, since which event.
    pub holders: Vec<Holder>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub process: u32,
    pub count: u32,
    pub from: u32,
    pub to: u32,
}

/// A socket.
#[derive(Debug, Default)]
pub(crate) struct Socket {
    /// The network namespace it is in: what its addresses mean.
    pub net: u16,
    pub domain: u16,
    pub kind: u8,
    pub local: Option<Address>,
    pub peer: Option<Address>,
    /// Its connection and the side it is on.
    pub connection: Option<(u32, usize)>,
    /// Index in the listeners.
    pub listener: Option<u32>,
    /// The other one of a pair that carries datagrams.
    pub pair: Option<u32>,
    /// Datagrams that it received.
    pub received: Vec<Received>,
    /// Waits that found a datagram here.
    pub ready: Vec<Op>,
    /// A connection was asked for without waiting for it: of whom.
    pub asked_for: Option<Op>,
    /// Messages with descriptors that wait to be received here.
    pub rights: Vec<Rights>,
}

/// A datagram was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub op: Op,
    pub key: Key,
    pub source: Option<Address>,
    pub peek: bool,
}

/// Where a datagram was sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Socket(u32),
    Address(Address),
}

/// A datagram was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub op: Op,
    pub key: Key,
    pub from: u32,
    pub to: Destination,
}

/// Descriptors under way.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    pub process: u32,
    pub first: u32,
    pub files: Vec<u32>,
}

/// A connection: two channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// From side 0 (who connected) to side 1, and back.
    pub channels: [u32; 2],
}

/// A connect or accept whose other half is not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Half {
    pub op: Op,
    pub connection: u32,
    /// The kernel's id of the process that connected, if known.
    pub pid: Option<u32>,
    /// Of an accept: where it was made.
    pub listener: Option<u32>,
}

/// A socket that listens.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    pub op: Op,
    pub address: Option<Address>,
    pub open: bool,
    /// Connections by unix sockets that nobody accepted yet.
    pub waiting: Vec<Half>,
    /// Accepted ones whose connect is not known yet.
    pub accepted: Vec<Half>,
    /// Calls that accepted, and waits that found somebody to accept.
    pub accepts: Vec<Op>,
    pub ready: Vec<Op>,
}

/// A pseudo-terminal.
#[derive(Debug)]
pub(crate) struct Pty {
    /// Its number, once somebody asked.
    pub number: Option<u32>,
    /// From the master to the terminal, and back.
    pub channels: [u32; 2],
    /// `c_iflag`, `c_oflag`, `c_lflag`, and when they were set.
    pub modes: Vec<(Op, [u32; 3])>,
    /// What was sent and received by each channel, for both.
    pub data: [Vec<Vec<u8>>; 4],
}

/// A timer descriptor.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    pub sets: Vec<Op>,
    pub reads: Vec<Op>,
    /// Waits that found it due.
    pub ready: Vec<Op>,
}

/// A thing that was locked or unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockOwner {
    /// `fcntl` locks belong to a process.
    Process(u32),
    /// `flock` and open-file-description locks belong to an open file.
    File(u32),
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    Shared,
    Exclusive,
    Free,
}

/// An operation on a file's locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockOp {
    pub op: Op,
    pub file: u32,
    /// `flock` and `fcntl` locks do not see each other.
    pub bsd: bool,
    pub owner: LockOwner,
    pub mode: LockMode,
    /// Bytes of the file: from, and the first that is not.
    pub range: (u64, u64),
}

/// A process had a lock on a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockHold {
    /// See [`super::lock_number`].
    pub lock: u32,
    pub process: u32,
    pub from: u32,
    pub to: u32,
}

/// Where threads wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Futex {
    /// In the memory of one process.
    Private { process: u32, address: u64 },
    /// In memory that is shared: which, and where in it.
    Shared { memory: u32, offset: u64 },
}

/// An operation on a futex.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FutexOp {
    pub op: Op,
    pub bits: u32,
    /// Of a wake: where up to `op.amount` in all may have been woken or moved.
    pub second: Option<Futex>,
    /// Of a requeue: how many were to be woken, the rest moved to `second`.
    pub moves: Option<u64>,
}

/// All operations on a futex.
#[derive(Debug, Default)]
pub(crate) struct FutexOps {
    pub waits: Vec<FutexOp>,
    pub wakes: Vec<FutexOp>,
}

/// A signal was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    pub op: Op,
    pub signal: u32,
    /// `None`: a group of processes.
    pub target: Option<u32>,
    pub thread: Option<u32>,
    pub value: Option<u64>,
}

/// A signal arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub op: Op,
    pub signal: u32,
    pub code: i32,
    /// The kernel's id of the sender, or of the child that ended; or the
    /// timer.
    pub pid: u32,
    /// Which process of the program on its host that is, if it is one.
    pub sender: Option<u32>,
    pub value: u64,
    /// It reached a thread, rather than a descriptor or a wait.
    pub handled: bool,
}

/// A child was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    pub op: Op,
    pub child: u32,
    /// The signal that ended it.
    pub signal: u32,
}
