//! A global or static expression over the run of a process.

use std::cell::{Cell, RefCell};

use inspect::expr::Expression;
use inspect::scope::Scope;
use inspect::{Inspector, Mapping, Process, Registers, ThreadId};
use protocol::id::ProcessId;
use target::{Arrival, Cancel, MapsVersion, Position, Stops, Watch};

use super::{Changed, Moment, Trouble, Was, was};
use crate::member::Member;
use crate::program::Program;

/// Frames of a stack that are looked at, at most.
const DEEPEST: usize = 10_000;

/// A process whose memory is read, and noted which.
struct Noted<'p> {
    process: &'p dyn Process,
    notes: Cell<bool>,
    read: RefCell<Vec<(u64, u64)>>,
    /// Somebody wanted to know what is in registers.
    registers: Cell<bool>,
}

impl Process for Noted<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        if self.notes.get() {
            self.read.borrow_mut().push((address, buffer.len() as u64));
        }
        self.process.read(address, buffer)
    }

    fn threads(&self) -> Vec<ThreadId> {
        self.process.threads()
    }

    fn registers(&self, thread: ThreadId) -> inspect::Result<Registers> {
        if self.notes.get() {
            self.registers.set(true);
        }
        self.process.registers(thread)
    }

    fn mappings(&self) -> Vec<Mapping> {
        self.process.mappings()
    }
}

/// Stretches of memory, joined where they touch.
fn joined(mut all: Vec<(u64, u64)>) -> Vec<Watch> {
    all.retain(|(_, length)| *length > 0);
    all.sort_unstable();
    let mut whole: Vec<(u64, u64)> = Vec::new();
    for (from, length) in all {
        let to = from.saturating_add(length);
        match whole.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => whole.push((from, to)),
        }
    }
    let split = whole
        .iter()
        .map(|(from, to)| Watch::split(*from, to - from));
    split.flatten().collect()
}

/// What an expression is now, and what it was computed from.
struct Evaluated {
    was: Was,
    memory: Vec<Watch>,
}

/// An expression, as it means something in one program of a process.
struct Meant {
    image: usize,
    expression: Expression,
}

struct Follower<'f> {
    program: &'f Program,
    member: Member,
    text: &'f str,
    meant: Option<Meant>,
    /// Why it means nothing, where it was last looked up.
    error: Option<Trouble>,
}

impl Follower<'_> {
    /// Looks at the process, and at what it was asked about.
    fn evaluate(&mut self) -> Result<Evaluated, Trouble> {
        let library = self.program.library();
        let layout = self.member.layout(library)?;
        let target = self.member.target()?;
        let maps: MapsVersion = target.maps_version();
        let looked = target.look();
        let noted = Noted {
            process: &*looked,
            notes: Cell::new(false),
            read: RefCell::default(),
            registers: Cell::new(false),
        };
        let inspector = Inspector::with_layout(library, &noted, layout);
        let thread = ThreadId(target.thread().0);
        let is_known = |meant: &Meant| meant.image == maps.image;
        if !self.meant.as_ref().is_some_and(is_known) {
            self.meant = None;
            // The outermost frame has the fewest names of its own.
            let stack = inspector.stack(thread, DEEPEST)?;
            let outermost = stack.frames.len().saturating_sub(1);
            let scope = Scope::new(&inspector, &stack, outermost).ok_or(crate::Error::NoFrame)?;
            match Expression::parse(&scope, self.text) {
                Ok(expression) => {
                    let image = maps.image;
                    self.meant = Some(Meant { image, expression });
                }
                Err(error) => {
                    let main = inspector.main_module();
                    let bare = main.is_some_and(|main| main.module.info().is_none());
                    let error = Trouble::from(error);
                    self.error = Some(match (&error, bare) {
                        (Trouble::NoName { near: None, .. }, true) => Trouble::NoDebugInformation,
                        _ => error,
                    });
                }
            }
        }
        let Some(meant) = &self.meant else {
            return Ok(Evaluated {
                was: Was::Absent,
                memory: Vec::new(),
            });
        };
        let stack = inspector.stack(thread, 1)?;
        let scope = Scope::new(&inspector, &stack, 0).ok_or(crate::Error::NoFrame)?;
        noted.notes.set(true);
        let was = was(&scope, &meant.expression);
        if noted.registers.get() {
            return Err(Trouble::PerThread);
        }
        let was = match was {
            Ok(was) => was,
            Err(inspect::Error::OptimizedOut) => return Err(Trouble::OptimizedOut),
            Err(error) => Was::Unknown(error.to_string()),
        };
        let memory = joined(noted.read.take());
        let pieces = memory.iter().flat_map(|watch| watch.pieces()).count();
        if pieces > protocol::replay::WATCHES {
            return Err(Trouble::TooMuch(pieces));
        }
        Ok(Evaluated { was, memory })
    }

    /// Where the process stands, after something that was watched.
    fn moment(&self) -> Result<Moment, Trouble> {
        let target = self.member.target()?;
        let at = target.position();
        // The event before has just returned: what stands before this
        // instruction is the call.
        let by_event = match at {
            Position::Event(_) => true,
            Position::Inside(inside) if inside.transfers == 0 => {
                let mut call = [0; 2];
                let before = inside.address.wrapping_sub(2);
                target.look().read(before, &mut call) == 2 && call == [0x0f, 0x05]
            }
            Position::Inside(_) => false,
        };
        Ok(Moment {
            at,
            thread: target.thread(),
            by_event,
        })
    }
}

/// The moments at which the value of an expression over globals and statics
/// changed, from the beginning of a process's run to its end; the first of them
/// is that beginning. In programs that have nothing of its name it is absent.
pub fn changes(
    program: &Program,
    process: ProcessId,
    expression: &str,
    cancel: &Cancel,
) -> Result<Vec<Changed>, Trouble> {
    let ix = super::index(program, process)?;
    let mut follower = Follower {
        member: Member::new(program, process, ix),
        program,
        text: expression,
        meant: None,
        error: None,
    };
    let mut all: Vec<Changed> = Vec::new();
    if follower.member.is_empty() {
        return Ok(all);
    }
    follower.member.open(program, cancel)?;
    let end = follower.member.end();
    let mut is_known = false;
    loop {
        let evaluated = follower.evaluate()?;
        is_known |= follower.meant.is_some();
        if all.last().is_none_or(|last| last.was != evaluated.was) {
            let moment = follower.moment()?;
            all.push(Changed {
                moment,
                was: evaluated.was,
            });
        }
        let now = follower.member.position()?;
        let border = follower.member.next_image(now.event());
        let border = border.map(Position::Event);
        let to = border.unwrap_or(end);
        let stops = Stops {
            watches: &evaluated.memory,
            // What it means may be in code that is mapped later.
            mapped: follower.meant.is_none(),
            ..Stops::default()
        };
        let arrival = follower.member.target_mut()?.run(&stops, to, cancel)?;
        match (arrival, border) {
            (Arrival::Watch(_) | Arrival::Mapped | Arrival::Stepped | Arrival::Breakpoint, _) => {}
            (Arrival::There | Arrival::End, Some(border)) => {
                // From here on it is another program.
                if !follower.member.seek(border, cancel)? {
                    return Err(Trouble::Cancelled);
                }
            }
            (Arrival::There | Arrival::End, None) => break,
            (Arrival::Interrupted, _) => return Err(Trouble::Cancelled),
            (Arrival::Diverged(difference), _) => return Err(Trouble::Diverged(difference)),
        }
        if cancel.is_cancelled() {
            return Err(Trouble::Cancelled);
        }
    }
    match follower.error {
        Some(error) if !is_known => Err(error),
        _ => Ok(all),
    }
}
