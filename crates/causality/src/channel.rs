//! Channels: one direction of a byte stream or of a flow of datagrams between
//! two endpoints.

use std::fmt;

use protocol::id::ProcessIx;

/// What a channel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChannelKind {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp = 1,
    /// A unix socket that carries a stream.
    UnixStream = 2,
    /// A unix socket that carries datagrams or packets.
    UnixDatagram = 3,
    /// A pipe or FIFO.
    Pipe = 4,
    /// A pseudo-terminal.
    Terminal = 5,
    /// An eventfd.
    Counter = 6,
    /// Something that came from outside the program, and what it is is not
    /// known.
    Outside = 7,
    /// A message queue, System V's or POSIX's.
    Queue = 8,
    /// A System V semaphore.
    Semaphore = 9,
}

impl ChannelKind {
    const ALL: [ChannelKind; 10] = [
        ChannelKind::Tcp,
        ChannelKind::Udp,
        ChannelKind::UnixStream,
        ChannelKind::UnixDatagram,
        ChannelKind::Pipe,
        ChannelKind::Terminal,
        ChannelKind::Counter,
        ChannelKind::Outside,
        ChannelKind::Queue,
        ChannelKind::Semaphore,
    ];

    pub(crate) fn from_number(number: u8) -> Option<ChannelKind> {
        ChannelKind::ALL.get(usize::from(number)).copied()
    }

    /// As it is typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            ChannelKind::Tcp => "tcp",
            ChannelKind::Udp => "udp",
            ChannelKind::UnixStream => "unix",
            ChannelKind::UnixDatagram => "unix-datagram",
            ChannelKind::Pipe => "pipe",
            ChannelKind::Terminal => "terminal",
            ChannelKind::Counter => "eventfd",
            ChannelKind::Outside => "outside",
            ChannelKind::Queue => "queue",
            ChannelKind::Semaphore => "semaphore",
        }
    }

    /// Whether messages keep their boundaries.
    pub fn has_messages(self) -> bool {
        matches!(
            self,
            ChannelKind::Udp | ChannelKind::UnixDatagram | ChannelKind::Queue
        )
    }
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long requests on a conversation waited for the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// How many there were.
    pub count: u64,
    /// The shortest, in ticks.
    pub least: u64,
    /// The longest, in ticks.
    pub most: u64,
    /// All together, in ticks.
    pub sum: u64,
}

impl RoundTrips {
    pub(crate) fn add(&mut self, ticks: u64) {
        self.least = if self.count == 0 {
            ticks
        } else {
            self.least.min(ticks)
        };
        self.most = self.most.max(ticks);
        self.count += 1;
        self.sum += ticks;
    }

    /// The mean, in ticks.
    pub fn mean(&self) -> u64 {
        self.sum / self.count.max(1)
    }
}

/// A channel, as far as a recording tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its number.
    pub number: u32,
    /// What it is made of.
    pub kind: ChannelKind,
    /// The channel in the other direction, if there is one.
    pub reverse: Option<u32>,
    /// Whether this is the direction from who asked for the conversation
    /// (connected, or is named first) to the other.
    pub forward: bool,
    /// The two endpoints in words: an address each, or what it is.
    pub name: String,
    /// Messages (or calls) that put something in.
    pub sends: u64,
    /// Those that took something out.
    pub receives: u64,
    /// Bytes put in.
    pub sent: u64,
    /// Bytes taken out.
    pub received: u64,
    /// Processes that sent, or held the sending end.
    pub senders: Vec<ProcessIx>,
    /// Processes that received, or held the receiving end.
    pub receivers: Vec<ProcessIx>,
    /// Round trips that the sender saw: from a request on this channel to the
    /// answer on the other.
    pub round_trips: RoundTrips,
}

impl Channel {
    /// Whether nobody in the program holds the sending end.
    pub fn is_from_outside(&self) -> bool {
        self.senders.is_empty()
    }

    /// Whether nobody in the program holds the receiving end.
    pub fn is_to_outside(&self) -> bool {
        self.receivers.is_empty()
    }
}
