//! One process of the program: where it is said to be, what stops it, and how
//! it is moved.

use ::gdb_remote::{Registers, StopKind, StopPoint, StopReason};
use ::replay::{Condition, Position, Region, Session, ThreadState, Watch};
use protocol::condition;
use protocol::id::{EventNo, ProcessIx};
use recording::Recording;

/// One of the programs that a process ran.
pub struct ImageSpan {
    /// Its first event.
    pub first: u64,
    /// Whose it was, and which: a forked process begins with its parent's.
    pub process: u32,
    pub image: u32,
}

/// Something that stops a process on its way.
#[derive(Clone, Debug)]
pub struct Found {
    pub seat: usize,
    pub at: Position,
    pub thread: u32,
    pub reason: StopReason,
}

/// What was found out about a way: from a place on, nothing stops the process
/// before another place, where perhaps something does.
pub struct Known {
    /// What it was to stop at.
    pub stops: Vec<StopPoint>,
    pub from: Position,
    pub to: Position,
    pub found: Option<Found>,
}

/// See the module.
pub struct Seat {
    pub number: u32,
    pub name: String,
    pub pid: u32,
    /// Its place in the history, and its first and last event there.
    pub place: ProcessIx,
    pub first: u64,
    pub last: u64,
    pub session: Session,
    /// Where it is said to be.
    pub at: Position,
    pub images: Vec<ImageSpan>,
    /// Which of the images gdb knows.
    pub told: usize,
    /// What it is to stop at, in order.
    pub stops: Vec<StopPoint>,
    /// gdb let go of it.
    pub is_gone: bool,
    /// gdb knows where its program and libraries are. It finds that out by
    /// itself for the process that it sees first; of the others it has to be
    /// told that they execute a program, and forgets all threads but one then.
    pub is_introduced: bool,
    pub ahead: Option<Known>,
    pub behind: Option<Known>,
    pub threads: Option<Vec<ThreadState>>,
    pub regions: Option<Vec<Region>>,
    /// Whose events follow each other: the first of each run, and the thread.
    pub turns: Option<Vec<(u64, u32)>>,
}

impl Seat {
    pub fn new(
        recording: &Recording,
        place: ProcessIx,
        (first, last): (EventNo, EventNo),
        pid: u32,
        session: Session,
    ) -> Seat {
        let number = session.process();
        let name = recording
            .process(number)
            .map(|process| process.name.clone());
        Seat {
            number,
            name: name.unwrap_or_default(),
            pid,
            place,
            first: first.0,
            last: last.0,
            at: session.position(),
            images: spans(recording, &session),
            session,
            told: 0,
            stops: Vec::new(),
            is_gone: false,
            is_introduced: false,
            ahead: None,
            behind: None,
            threads: None,
            regions: None,
            turns: None,
        }
    }

    /// Says where it is.
    pub fn put(&mut self, at: Position) {
        self.at = at;
        self.forget();
    }

    /// Forgets what was read where it stood.
    pub fn forget(&mut self) {
        self.threads = None;
        self.regions = None;
    }

    pub fn beginning(&self) -> Position {
        Position::Event(self.first)
    }

    pub fn end(&self) -> Position {
        Position::Event(self.last + 1)
    }

    pub fn image_at(&self, event: u64) -> usize {
        let after = self.images.partition_point(|image| image.first <= event);
        after.saturating_sub(1)
    }

    /// The first event of the image that is there at an event.
    pub fn image_begins(&self, event: u64) -> u64 {
        let image = self.images.get(self.image_at(event));
        image.map_or(self.first, |image| image.first)
    }

    /// The first event of the image after that.
    pub fn next_image(&self, event: u64) -> Option<u64> {
        let image = self.images.get(self.image_at(event) + 1);
        image.map(|image| image.first)
    }

    /// The addresses it is to stop at.
    pub fn breakpoints(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self
            .stops
            .iter()
            .filter(|stop| is_breakpoint(stop))
            .map(|stop| stop.address)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The memory whose changes stop it.
    pub fn watches(&self) -> Vec<Watch> {
        watched(&self.stops).map(|(watch, _)| watch).collect()
    }

    /// Why a change of the watch with this number stops it.
    pub fn watch_reason(&self, number: usize) -> StopReason {
        let stop = watched(&self.stops).nth(number).map(|(_, stop)| stop);
        match stop {
            Some(stop) => StopReason::Watch(stop.kind, stop.address),
            None => StopReason::Arrived,
        }
    }

    /// Whether it has a breakpoint where it is not known beforehand that it is
    /// one to stop at.
    /// Conditions that the replaying process can test by itself: of addresses
    /// at which every breakpoint has one.
    pub fn passable(&self) -> Vec<Condition> {
        let breakpoints = || self.stops.iter().filter(|stop| is_breakpoint(stop));
        let is_plain = |address: u64| {
            breakpoints().any(|stop| stop.address == address && stop.conditions.is_empty())
        };
        let all = breakpoints().filter(|stop| !is_plain(stop.address));
        all.flat_map(|stop| {
            let address = stop.address;
            let codes = stop.conditions.iter();
            codes.map(move |code| Condition {
                address,
                code: code.as_slice().into(),
            })
        })
        .collect()
    }

    pub fn has_conditions(&self) -> bool {
        self.stops.iter().any(|stop| !stop.conditions.is_empty())
    }

    /// Adds a place to stop at. False: there are too many.
    pub fn add_stop(&mut self, stop: StopPoint) -> bool {
        self.remove_stop(stop.kind, stop.address, stop.length);
        let key = |stop: &StopPoint| (stop.kind, stop.address, stop.length);
        let at = self.stops.partition_point(|other| key(other) < key(&stop));
        self.stops.insert(at, stop);
        let fits = self.breakpoints().len() <= protocol::replay::BREAKPOINTS
            && pieces(&self.watches()) <= protocol::replay::WATCHES;
        if !fits {
            self.stops.remove(at);
        }
        fits
    }

    pub fn remove_stop(&mut self, kind: StopKind, address: u64, length: u64) {
        self.stops
            .retain(|s| (s.kind, s.address, s.length) != (kind, address, length));
    }
}

fn is_breakpoint(stop: &StopPoint) -> bool {
    matches!(stop.kind, StopKind::Software | StopKind::Hardware)
}

/// Watched memory, in parts that are not longer than a part may be, and what
/// each part is of.
fn watched(stops: &[StopPoint]) -> impl Iterator<Item = (Watch, &StopPoint)> {
    const LONGEST: u64 = 128;
    stops
        .iter()
        .filter(|stop| !is_breakpoint(stop))
        .flat_map(|stop| {
            // More than fits is refused when it is added.
            let most = protocol::replay::WATCHES as u64 * 8 + 1;
            let parts = (0..stop.length.min(most)).step_by(LONGEST as usize);
            parts.map(move |from| {
                let watch = Watch {
                    address: stop.address.wrapping_add(from),
                    length: (stop.length - from).min(LONGEST) as u8,
                };
                (watch, stop)
            })
        })
}

/// How many pieces of one, two, four or eight bytes watched memory has.
fn pieces(watches: &[Watch]) -> usize {
    let count = |watch: &Watch| {
        let length = usize::from(watch.length);
        length / 8 + (length % 8).count_ones() as usize
    };
    watches.iter().map(count).sum()
}

/// Whether the place where a process stands is one to stop at, and of which
/// kind: a breakpoint whose condition holds.
pub fn breakpoint_here(session: &Session, stops: &[StopPoint]) -> Option<StopKind> {
    let Position::Inside(inside) = session.position() else {
        return None;
    };
    let mut here = stops
        .iter()
        .filter(|stop| is_breakpoint(stop) && stop.address == inside.address);
    let holds = |stop: &&StopPoint| {
        if stop.conditions.is_empty() {
            return true;
        }
        let registers = session.running().as_ref().map(registers_of);
        let registers = registers.unwrap_or_default();
        // What cannot be evaluated is left to gdb.
        let mut conditions = stop.conditions.iter();
        conditions.any(|code| {
            !condition::is_false(&Asked {
                code,
                registers: &registers,
                session,
            })
        })
    };
    here.find(holds).map(|stop| stop.kind)
}

/// A condition of gdb's, where a process stands.
struct Asked<'a> {
    code: &'a [u8],
    registers: &'a Registers,
    session: &'a Session,
}

impl condition::Machine for Asked<'_> {
    fn code(&self, at: usize) -> Option<u8> {
        self.code.get(at).copied()
    }

    fn register(&self, number: u16) -> Option<u64> {
        let bytes = self.registers.value(number.into())?.ok()?;
        let low = bytes.iter().take(8).rev();
        Some(low.fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    fn memory(&self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let into = bytes.get_mut(..size)?;
        (self.session.read(address, into) == size).then(|| u64::from_le_bytes(bytes))
    }
}

/// gdb's number for a thread. The first one has its process's, before it has
/// asked for its own, too; of another one that has none in the recording, one
/// that no other has.
pub fn tid(pid: u32, state: &ThreadState) -> u32 {
    match (state.number, state.tid) {
        (0, _) => pid,
        (number, 0) => (1 << 23) + number,
        (_, tid) => tid,
    }
}

/// From the order of `user_regs_struct` to that of gdb.
pub fn registers_of(state: &ThreadState) -> Registers {
    let r = state.by_name();
    Registers {
        general: [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ],
        rip: r.rip,
        eflags: r.eflags,
        cs: r.cs as u16,
        ss: r.ss as u16,
        orig_rax: r.orig_rax,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
        xmm: state.xmm,
    }
}

/// Which programs a process ran, and from which event on.
fn spans(recording: &Recording, session: &Session) -> Vec<ImageSpan> {
    session
        .images()
        .into_iter()
        .map(|(image, first)| {
            let (process, image) = whose(recording, session.process(), image);
            ImageSpan {
                first,
                process,
                image,
            }
        })
        .collect()
}

/// An image of a process, or of the process that it was forked from.
fn whose(recording: &Recording, process: u32, image: u32) -> (u32, u32) {
    let (mut process, mut image) = (process, image);
    for _ in 0..protocol::replay::PATH_STREAMS {
        let mut all = recording.images().iter();
        if all.any(|i| i.process == process && i.image == image) {
            break;
        }
        let Some(info) = recording.process(process) else {
            break;
        };
        let Some(parent) = info.parent else {
            break;
        };
        // What the parent ran when it forked.
        let ran = recording
            .images()
            .iter()
            .rfind(|i| i.process == parent && i.time <= info.birth);
        process = parent;
        image = ran.map_or(0, |i| i.image);
    }
    (process, image)
}
