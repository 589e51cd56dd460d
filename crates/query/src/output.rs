//! What a program wrote to where it was started, in order of time.
//!
//! The log has the bytes of calls whose output goes elsewhere; of what was
//! written to standard output and error it may have only how much. The rest is
//! in the memory of the process that wrote it, which is run again to there.

use std::collections::HashMap;
use std::sync::Arc;

use causality::History;
use protocol::id::{Addr, EventNo, ProcessId, ProcessNo};
use protocol::syscall::{Arg, Type};
use recording::descriptors::{Births, Descriptors, Standard};
use recording::{Event, Set, Timeline, calls};
use target::{Arrival, Cancel, Difference, Opener, Position, Target};

/// Something the program wrote to where it was started.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Who wrote it.
    pub process: ProcessId,
    /// The event at which the memory holds it.
    pub event: EventNo,
    /// When it was written, since the recording began.
    pub time_ns: u64,
    /// To what.
    pub to: Standard,
    /// How much.
    pub len: u64,
    bytes: Bytes,
}

/// Where what was written can be had.
#[derive(Clone, Debug)]
enum Bytes {
    /// The log has all of it.
    Logged(Vec<u8>),
    /// One stretch of memory.
    At(u64),
    /// An array of so many stretches.
    Vector(u64, u64),
    /// A message's header.
    Message(u64),
    /// The kernel moved it from elsewhere; it was never in the program's
    /// memory.
    Nowhere,
}

/// Why it cannot be told what was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The replay came to something else than the recording.
    #[error("{process} diverged")]
    Diverged {
        /// Who.
        process: String,
        /// How.
        difference: Difference,
    },
    /// The replay ended before.
    #[error("the replay of {process} ends before event {event}")]
    Ends {
        /// Whose.
        process: String,
        /// Where it was to go to.
        event: EventNo,
    },
    /// There is no such memory.
    #[error("what {process} wrote at event {event} is not in its memory")]
    NotThere {
        /// Who.
        process: String,
        /// Where.
        event: EventNo,
    },
    /// Nothing can be replayed.
    #[error(transparent)]
    Target(#[from] target::Error),
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Target(error) => error.hint(),
            _ => None,
        }
    }
}

/// Everything that was written to where the program was started, in order of
/// time. Of a set of several members, `history` knows how their clocks stand to
/// each other.
pub fn pieces(set: &Set, history: Option<&History>) -> Vec<Piece> {
    let mut found = Vec::new();
    for (recording, member) in set.members().zip(0u16..) {
        let mut births = Births::new(recording);
        let mut descriptors: HashMap<ProcessNo, Descriptors> = HashMap::new();
        let numbers = recording.processes().iter().map(|process| process.number);
        let mut timeline = Timeline::new(recording, numbers);
        while timeline.advance() {
            let Some(event) = timeline.event() else { break };
            let own = descriptors
                .entry(event.process)
                .or_insert_with(|| births.of(event.process));
            own.before(&event);
            let process = event.process.of_member(member);
            let time_ns = || match (history, set.place(process)) {
                (Some(history), Some(place)) => history.shown_ns(place, event.time),
                _ => recording.clock().since_start_ns(event.time),
            };
            let piece = written(&event, own).map(|(event, to, len, bytes)| Piece {
                process,
                event,
                time_ns: time_ns(),
                to,
                len,
                bytes,
            });
            found.extend(piece);
            own.after(&event);
        }
    }
    found.sort_by_key(|piece| piece.time_ns);
    found
}

/// What an event wrote to where the program was started, if it did: where the
/// memory holds it, to what it was written, and how much.
fn written(
    event: &Event<'_>,
    descriptors: &Descriptors,
) -> Option<(EventNo, Standard, u64, Bytes)> {
    const SENDFILE: u64 = 40;
    const SPLICE: u64 = 275;
    const TEE: u64 = 276;
    const COPY_FILE_RANGE: u64 = 326;
    let len = u64::try_from(event.result?).ok().filter(|len| *len > 0)?;
    if !event.args_known || !event.is_call() {
        return None;
    }
    let row = calls::row(event.nr)?;
    let (fd, moved) = match event.nr {
        SENDFILE => (0, true),
        TEE => (1, true),
        SPLICE | COPY_FILE_RANGE => (2, true),
        _ => (0, false),
    };
    let arg = |i: usize| event.args.get(i).copied();
    let to = descriptors.get(arg(fd)? as i32)?.standard?;
    let bytes = if moved {
        Bytes::Nowhere
    } else {
        let place = match row.args.get(1)?.1 {
            Arg::In(..) => Bytes::At(arg(1)?),
            Arg::IovIn(count) => Bytes::Vector(arg(1)?, arg(usize::from(count))?),
            Arg::MsgIn => Bytes::Message(arg(1)?),
            _ => return None,
        };
        if !matches!(row.kind, Type::Send | Type::File) {
            return None;
        }
        match event.argument(1) {
            Some(data) if data.digest.is_none() && data.bytes.len() as u64 >= len => {
                Bytes::Logged(data.bytes.get(..len as usize)?.to_vec())
            }
            _ => place,
        }
    };
    Some((event.started.unwrap_or(event.number), to, len, bytes))
}

/// Reads what was written, piece after piece. Processes whose memory has some of
/// it run again, each once, and are let go behind their last piece.
pub struct Reader<'o> {
    set: Arc<Set>,
    opener: &'o dyn Opener,
    cancel: Cancel,
    open: HashMap<ProcessId, Box<dyn Target>>,
    /// How many pieces of each are to come.
    left: HashMap<ProcessId, usize>,
}

impl<'o> Reader<'o> {
    /// Of these pieces, which are to be asked for in order.
    pub fn new(set: &Arc<Set>, opener: &'o dyn Opener, pieces: &[Piece]) -> Reader<'o> {
        let mut left: HashMap<ProcessId, usize> = HashMap::new();
        for piece in pieces {
            *left.entry(piece.process).or_default() += 1;
        }
        Reader {
            set: Arc::clone(set),
            opener,
            cancel: Cancel::new(),
            open: HashMap::new(),
            left,
        }
    }

    /// The bytes of a piece. None: they are nowhere in the recording, since the
    /// kernel moved them.
    pub fn read(&mut self, piece: &Piece) -> Result<Option<Vec<u8>>, Error> {
        let bytes = match &piece.bytes {
            Bytes::Logged(bytes) => Some(bytes.clone()),
            Bytes::Nowhere => None,
            memory => Some(self.memory_of(piece, memory)?),
        };
        if let Some(left) = self.left.get_mut(&piece.process) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.open.remove(&piece.process);
            }
        }
        Ok(bytes)
    }

    fn name(&self, process: ProcessId) -> String {
        let place = self.set.place(process);
        place.map_or(String::new(), |place| self.set.process_name(place))
    }

    fn memory_of(&mut self, piece: &Piece, place: &Bytes) -> Result<Vec<u8>, Error> {
        use std::collections::hash_map::Entry;
        let (process, event) = (self.name(piece.process), piece.event);
        let target = match self.open.entry(piece.process) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => {
                let mut target = self.opener.open(piece.process, &self.cancel)?;
                if let Some(past) = target.history() {
                    past.only_forwards();
                }
                free.insert(target)
            }
        };
        let past = target.history().ok_or(target::Error::NoPast)?;
        match past.seek(Position::Event(event), &self.cancel)? {
            Arrival::There => {}
            Arrival::Diverged(difference) => {
                return Err(Error::Diverged {
                    process,
                    difference,
                });
            }
            _ => return Err(Error::Ends { process, event }),
        }
        let memory = Memory {
            target: target.as_ref(),
        };
        let bytes = match *place {
            Bytes::At(address) => memory.read(address, piece.len),
            Bytes::Vector(address, count) => memory.gather(address, count, piece.len),
            Bytes::Message(address) => {
                let word = |offset| memory.word(address.wrapping_add(offset));
                word(16)
                    .zip(word(24))
                    .and_then(|(vector, count)| memory.gather(vector, count, piece.len))
            }
            Bytes::Logged(_) | Bytes::Nowhere => None,
        };
        bytes.ok_or(Error::NotThere { process, event })
    }
}

/// The memory of a process that stands still.
struct Memory<'t> {
    target: &'t dyn Target,
}

impl Memory<'_> {
    /// At most this much is written by one call.
    const MOST: u64 = 0x7fff_f000;

    fn read(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let len = usize::try_from(len.min(Self::MOST)).ok()?;
        // Read in steps: what is not there is not made room for.
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let mut step = vec![0; (len - bytes.len()).min(1 << 20)];
            let from = address.wrapping_add(bytes.len() as u64);
            if self.target.read(Addr(from), &mut step) != step.len() {
                return None;
            }
            bytes.append(&mut step);
        }
        Some(bytes)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        (self.target.read(Addr(address), &mut word) == 8).then(|| u64::from_le_bytes(word))
    }

    /// The first `len` bytes of the stretches in an array.
    fn gather(&self, vector: u64, count: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for i in 0..count.min(1024) {
            let entry = vector.wrapping_add(16 * i);
            let (address, size) = (self.word(entry)?, self.word(entry.wrapping_add(8))?);
            let left = len.saturating_sub(bytes.len() as u64);
            bytes.extend(self.read(address, size.min(left))?);
        }
        (bytes.len() as u64 == len).then_some(bytes)
    }
}
