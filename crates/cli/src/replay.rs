//! `mw replay`: re-runs a recording and shows the program's output as it was.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::replay::{Arrival, Session, SharedReplay};
use protocol::id::{EventNo, ProcessId, ProcessNo};
use protocol::syscall::Arg;
use recording::descriptors::{Births, Descriptors, Standard};
use recording::{Event, Set, Timeline, calls};

use crate::causes;
use crate::debug;
use crate::failure::Failure;
use crate::select;
use crate::verify::{explain, told};

/// Debug a recording: all of the program at one instant, that can be moved
/// anywhere in time; or re-run it, showing its output as it was.
///
/// Exit status 0; 2 if a command failed; with `--echo`, 1 if the replay came to something else than the recording.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: select::Positional,

    /// Write what the program wrote to its standard output and error to ours;
    /// without this, the debugger's prompt comes up
    #[arg(long, conflicts_with_all = ["file", "command", "batch"])]
    echo: bool,

    /// Execute the debugger's commands in FILE first
    #[arg(short = 'x', long = "command-file", id = "file", value_name = "FILE")]
    files: Vec<std::path::PathBuf>,

    /// Execute a command of the debugger's
    #[arg(short = 'e', long = "execute", id = "command", value_name = "CMD")]
    commands: Vec<String>,

    /// Execute the given commands, then leave; stop at the first that fails
    #[arg(long)]
    batch: bool,

    /// How fast
    #[arg(
        long,
        value_enum,
        value_name = "PACE",
        default_value = "full",
        requires = "echo"
    )]
    pace: Pace,
}

/// When output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pace {
    /// As soon as it can be had
    Full,
    /// At the times of the recording
    Real,
}

/// Something the program wrote to where it was started.
struct Piece {
    process: ProcessId,
    /// The event at which the memory holds it.
    event: EventNo,
    /// When it was written, since the recording began.
    time_ns: u64,
    to: Standard,
    len: u64,
    bytes: Bytes,
}

/// Where what was written can be had.
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

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let set = self.recording.open()?;
        if !self.echo {
            let script = debug::Script {
                files: self.files,
                commands: self.commands,
                batch: self.batch,
            };
            let good = debug::run(&set, &script)?;
            return Ok(ExitCode::from(u8::from(!good) * 2));
        }
        for recording in set.members() {
            ::replay::check(recording).map_err(explain)?;
        }
        let pieces = find(&set)?;
        let mut last: HashMap<ProcessId, usize> = HashMap::new();
        for (i, piece) in pieces.iter().enumerate() {
            last.insert(piece.process, i);
        }
        let grounds: Vec<Arc<SharedReplay>> = set
            .members()
            .map(|own| Arc::new(SharedReplay::new(own)))
            .collect();
        let mut sessions = HashMap::new();
        let mut screen = Screen::new();
        let mut missing = 0;
        let begun = Instant::now();
        for (i, piece) in pieces.iter().enumerate() {
            let found = match &piece.bytes {
                Bytes::Logged(bytes) => Some(bytes.clone()),
                Bytes::Nowhere => None,
                memory => match from_memory(&set, &grounds, &mut sessions, piece, memory)? {
                    Some(bytes) => Some(bytes),
                    None => {
                        screen.flush()?;
                        return Ok(ExitCode::from(1));
                    }
                },
            };
            if self.pace == Pace::Real {
                screen.flush()?;
                let left = Duration::from_nanos(piece.time_ns).saturating_sub(begun.elapsed());
                std::thread::sleep(left);
            }
            match found {
                Some(bytes) => screen.write(piece.to, &bytes)?,
                None => missing += piece.len,
            }
            if last.get(&piece.process) == Some(&i) {
                sessions.remove(&piece.process);
            }
        }
        screen.flush()?;
        if missing > 0 {
            return Err(Failure::new(format!(
                "{missing} bytes of the output are not in the recording"
            ))
            .hint("the kernel moved them there from a file or a pipe (sendfile, splice, copy_file_range)"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Everything that was written to where the program was started, in order of
/// time.
fn find(set: &Arc<Set>) -> Result<Vec<Piece>, Failure> {
    // How clocks stand to each other is in the index.
    let history = set.is_joined().then(|| causes::open(set)).transpose()?;
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
            let time_ns = || match (&history, set.place(process)) {
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
    Ok(found)
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
    let arg = |i: usize| event.args.get(i).copied().unwrap_or(0);
    let to = descriptors.get(arg(fd) as i32)?.standard?;
    let bytes = if moved {
        Bytes::Nowhere
    } else {
        let place = match row.args.get(1)?.1 {
            Arg::In(..) => Bytes::At(arg(1)),
            Arg::IovIn(count) => Bytes::Vector(arg(1), arg(usize::from(count))),
            Arg::MsgIn => Bytes::Message(arg(1)),
            _ => return None,
        };
        if !matches!(
            row.kind,
            protocol::syscall::Type::Send | protocol::syscall::Type::File
        ) {
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

/// Runs the process to where it wrote, and reads what it wrote there. None:
/// it did not come there; the difference has been reported.
fn from_memory(
    set: &Set,
    grounds: &[Arc<SharedReplay>],
    sessions: &mut HashMap<ProcessId, Session>,
    piece: &Piece,
    place: &Bytes,
) -> Result<Option<Vec<u8>>, Failure> {
    use std::collections::hash_map::Entry;
    let session = match sessions.entry(piece.process) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(free) => {
            let ground = grounds.get(usize::from(piece.process.member));
            let number = piece.process.number;
            let nothing = ::replay::Error::NoLog {
                process: piece.process,
            };
            let ground = ground.ok_or(nothing).map_err(explain)?;
            let mut session = Session::open_on(ground, number).map_err(explain)?;
            // Nobody goes back.
            session.set_budget(::replay::Budget {
                memory: u64::MAX,
                count: 1,
            });
            free.insert(session)
        }
    };
    let name = || {
        let place = set.place(piece.process);
        place.map_or(String::new(), |place| set.process_name(place))
    };
    match session.go_to(piece.event).map_err(explain)? {
        Arrival::There => {}
        Arrival::Diverged(difference) => {
            let mut out = crate::output::Output::to_stderr();
            out.line(&format!("{} diverged", name()))?;
            told(&mut out, set, piece.process, &difference)?;
            out.finish()?;
            return Ok(None);
        }
        Arrival::End
        | Arrival::Interrupted
        | Arrival::Breakpoint
        | Arrival::Stepped
        | Arrival::Mapped
        | Arrival::Happened(_)
        | Arrival::Elsewhere(..)
        | Arrival::Watch(_) => {
            return Err(Failure::new(format!(
                "the replay of {} ends before event {}",
                name(),
                piece.event
            )));
        }
    }
    let memory = Memory { session };
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
    match bytes {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(Failure::new(format!(
            "what {} wrote at event {} is not in its memory",
            name(),
            piece.event
        ))),
    }
}

/// The memory of a process that stands still.
struct Memory<'s> {
    session: &'s Session,
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
            if self.session.read(from, &mut step) != step.len() {
                return None;
            }
            bytes.append(&mut step);
        }
        Some(bytes)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        (self.session.read(address, &mut word) == 8).then(|| u64::from_le_bytes(word))
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

/// Our standard output and error, in the order of what is written to them.
struct Screen {
    out: BufWriter<std::io::Stdout>,
}

impl Screen {
    fn new() -> Screen {
        Screen {
            out: BufWriter::with_capacity(64 * 1024, std::io::stdout()),
        }
    }

    fn write(&mut self, to: Standard, bytes: &[u8]) -> Result<(), Failure> {
        match to {
            // Who writes to its input writes to the terminal.
            Standard::Output | Standard::Input => self.out.write_all(bytes)?,
            Standard::Error => {
                self.flush()?;
                std::io::stderr().write_all(bytes)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush()?;
        Ok(self.out.get_mut().flush()?)
    }
}
