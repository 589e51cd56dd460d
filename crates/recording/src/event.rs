//! One event, as it stands in a log.

use protocol::id::{EventNo, ProcessNo, ThreadNo, Ticks};
use protocol::instruction::Instruction;
use protocol::record::{at, begin, kind, tag};
use protocol::syscall::{Type, int80};

use crate::calls::{self, nr};

const CLONE_THREAD: u64 = 0x1_0000;

/// Which part of a call an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All of it: a call that cannot block.
    Call,
    /// A call that may block begins.
    Start,
    /// It returned.
    End,
    /// Not a call.
    None,
}

impl Phase {
    /// As in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Call => "call",
            Phase::Start => "start",
            Phase::End => "end",
            Phase::None => "none",
        }
    }
}

/// Where a blob lies in the bytes it came with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlobAt {
    pub tag: u8,
    pub start: usize,
    pub end: usize,
}

/// A run of blobs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Blobs<'a> {
    pub bytes: &'a [u8],
    pub places: &'a [BlobAt],
}

impl<'a> Blobs<'a> {
    fn iter(self) -> impl Iterator<Item = Blob<'a>> {
        self.places.iter().filter_map(move |place| {
            Some(Blob {
                tag: place.tag,
                bytes: self.bytes.get(place.start..place.end)?,
            })
        })
    }
}

/// Bytes that belong to an event: what the kernel wrote or the program passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob<'a> {
    /// See [`protocol::record::tag`].
    pub tag: u8,
    /// The bytes as logged.
    pub bytes: &'a [u8],
}

/// Data of a call, of which perhaps only the beginning was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// What was kept.
    pub bytes: &'a [u8],
    /// How long it was.
    pub len: u64,
    /// Digest of all of it, where only the beginning was kept.
    pub digest: Option<u64>,
}

impl<'a> Blob<'a> {
    /// The data, told apart from the length and digest that follow it in a
    /// blob that holds only its beginning.
    pub fn data(&self) -> Data<'a> {
        let whole = Data {
            bytes: self.bytes,
            len: self.bytes.len() as u64,
            digest: None,
        };
        if !self.is_partial() {
            return whole;
        }
        let Some((bytes, rest)) = self
            .bytes
            .len()
            .checked_sub(16)
            .and_then(|at| self.bytes.split_at_checked(at))
        else {
            return whole;
        };
        let word = |at| crate::frame::field(rest, at).map(u64::from_le_bytes);
        Data {
            bytes,
            len: word(0).unwrap_or(0).max(bytes.len() as u64),
            digest: word(8),
        }
    }

    fn is_partial(&self) -> bool {
        self.tag & tag::PARTIAL != 0
    }
}

/// What a call that makes threads and processes made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// The process with this number in the recording.
    Process(ProcessNo),
    /// The thread with this number in its process.
    Thread(ThreadNo),
}

/// One event of a process.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Number of the process in the recording.
    pub process: ProcessNo,
    /// Position among the process's events. (Of a record that is no event:
    /// the number of the next event.)
    pub number: EventNo,
    /// Number of the thread in its process.
    pub thread: ThreadNo,
    /// When.
    pub time: Ticks,
    /// See [`protocol::record::kind`].
    pub kind: u8,
    /// Which part of a call it is.
    pub phase: Phase,
    /// Number of the system call.
    pub nr: u64,
    /// The call's arguments: those of its start, at its end.
    pub args: [u64; 6],
    /// False at the end of a call whose start is not in the log.
    pub args_known: bool,
    /// What the call returned.
    pub result: Option<i64>,
    /// Values of what is not a call.
    pub values: &'a [u64],
    /// At the end of a call: number of the event at its start.
    pub started: Option<EventNo>,
    pub(crate) own: Blobs<'a>,
    pub(crate) start: Blobs<'a>,
}

impl<'a> Event<'a> {
    /// Bytes of this event itself.
    pub fn blobs(&self) -> impl Iterator<Item = Blob<'a>> + use<'a> {
        self.own.iter()
    }

    /// The blob with this tag, of this event or of the start of its call.
    /// A blob that holds only the beginning of the data counts as well.
    pub fn blob(&self, tag: u8) -> Option<Blob<'a>> {
        let wanted = |blob: &Blob| blob.tag & !tag::PARTIAL == tag;
        self.own
            .iter()
            .find(wanted)
            .or_else(|| self.start.iter().find(wanted))
    }

    /// All blobs with this tag, those of the start of the call first.
    pub fn blobs_with(&self, tag: u8) -> impl Iterator<Item = Blob<'a>> + use<'a> {
        self.start
            .iter()
            .chain(self.own.iter())
            .filter(move |blob| blob.tag & !tag::PARTIAL == tag)
    }

    /// What argument `i` points to, if it was kept.
    pub fn argument(&self, i: usize) -> Option<Data<'a>> {
        self.blob(u8::try_from(i).ok()?).map(|blob| blob.data())
    }

    /// What argument `i` pointed to before the call.
    pub fn before(&self, i: usize) -> Option<Data<'a>> {
        self.blob(tag::BEFORE | u8::try_from(i).ok()?)
            .map(|blob| blob.data())
    }

    /// A number that came as a blob.
    pub fn number_in(&self, tag: u8) -> Option<u64> {
        crate::frame::field(self.blob(tag)?.bytes, 0).map(u64::from_le_bytes)
    }

    /// The process or thread that the call made.
    pub fn child(&self) -> Option<Child> {
        let number = self.number_in(tag::CHILD)? as u32;
        Some(
            if self.nr == nr::CLONE && self.args[0] & CLONE_THREAD != 0 {
                Child::Thread(ThreadNo(number))
            } else {
                Child::Process(ProcessNo(number))
            },
        )
    }

    /// Value `i` of what is not a call (0 if it has none).
    pub fn value(&self, i: usize) -> u64 {
        self.values.get(i).copied().unwrap_or(0)
    }

    /// Value `i`, which is the number of a process.
    pub fn process_in(&self, i: usize) -> ProcessNo {
        ProcessNo(self.value(i) as u32)
    }

    /// Value `i`, which is the number of a thread of the process.
    pub fn thread_in(&self, i: usize) -> ThreadNo {
        ThreadNo(self.value(i) as u32)
    }

    /// Value `i`, which is the number of an event.
    pub fn event_in(&self, i: usize) -> EventNo {
        EventNo(self.value(i))
    }

    /// Whether this is all of, or the end of, system call `nr`.
    pub fn is_done(&self, nr: u64) -> bool {
        self.nr == nr && matches!(self.phase, Phase::Call | Phase::End)
    }

    /// Whether it is a call.
    pub fn is_call(&self) -> bool {
        self.phase != Phase::None
    }

    /// Whether the call failed.
    pub fn failed(&self) -> bool {
        self.errno().is_some()
    }

    /// The error the call returned.
    pub fn errno(&self) -> Option<i32> {
        match self.result {
            Some(result @ -4095..=-1) => Some(-result as i32),
            _ => None,
        }
    }

    /// What the event is called: the call's name, or that of its kind.
    pub fn name(&self) -> String {
        if self.is_call() {
            return match (calls::row(self.nr), int80(self.nr)) {
                (Some(row), _) => row.name.to_string(),
                (None, Some(number)) => format!("int80_{number}"),
                (None, None) => format!("syscall_{}", self.nr.cast_signed()),
            };
        }
        if self.kind == kind::ANSWER
            && let Some(what) = Instruction::from_number(self.value(0))
        {
            return what.name().to_string();
        }
        kind_name(self.kind).to_string()
    }

    /// The type a user filters by, as far as the event itself tells. (Whether
    /// a `read` receives or reads a file depends on the descriptor: see
    /// [`crate::descriptors::Descriptors::type_of`].)
    pub fn type_(&self) -> Type {
        match self.kind {
            kind::SIGNAL => return Type::Signal,
            kind::PREEMPT | kind::THREAD_START => return Type::Thread,
            kind::TSC | kind::CLOCK => return Type::Time,
            kind::ANSWER => return Type::System,
            kind::BEGIN if self.value(0) == begin::EXEC => return Type::Exec,
            kind::BEGIN => return Type::Process,
            _ => {}
        }
        match self.nr {
            nr::CLONE if self.args[0] & CLONE_THREAD != 0 => Type::Thread,
            nr::FUTEX => match self.args[1] & 0x7f {
                // Wait, lock, wait by bits, wait and requeue, lock.
                0 | 6 | 8 | 9 | 11 | 13 => Type::Lock,
                _ => Type::Wake,
            },
            _ => calls::row(self.nr).map_or(Type::System, |row| row.kind),
        }
    }

    /// For a signal: whether it came in the middle of computation.
    pub fn preempted(&self) -> bool {
        self.kind == kind::PREEMPT || self.kind == kind::SIGNAL && self.value(1) == at::PREEMPTED
    }
}

/// The name of what is not a call.
fn kind_name(kind: u8) -> &'static str {
    match kind {
        kind::THREAD => "thread",
        kind::SIGNAL => "signal",
        kind::PREEMPT => "preempt",
        kind::THREAD_START => "thread-start",
        kind::PATCH => "patch",
        kind::TURN => "turn",
        kind::BEGIN => "begin",
        kind::TSC => "tsc",
        kind::STUBS => "stubs",
        kind::ANSWER => "answer",
        kind::SITES => "sites",
        _ => "unknown",
    }
}
