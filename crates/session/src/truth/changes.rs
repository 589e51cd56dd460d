//! A global or static expression over the run of a process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use inspect::expr::Expression;
use inspect::scope::Scope;
use inspect::{Inspector, Mapping, Process, Registers, ThreadId};
use protocol::id::{Addr, EventNo, ProcessId, ThreadNo};
use target::{Arrival, Cancel, MapsVersion, ONE_INSTRUCTION, Position, Stops, Watch};

use super::threads::{Turn, turns};
use super::{Changed, Moment, Trouble, Was, was};
use crate::member::Member;
use crate::program::Program;

/// Frames of a stack that are looked at, at most.
const DEEPEST: usize = 10_000;

/// A process whose memory is read, and noted which.
struct Noted<'p> {
    process: &'p dyn Process,
    notes: Cell<bool>,
    read: RefCell<Vec<(Addr, u64)>>,
}

/// The kind of a segment that is a program's storage of threads.
const PT_TLS: u32 = 7;
/// Where a thread's control block has the address of its table of storage.
const DTV: u64 = 8;

impl Noted<'_> {
    /// Whether any of what was read is a thread's own: the program's block of it, which
    /// ends at the thread's control block, or the table that leads to those of libraries.
    fn is_of_thread(&self, inspector: &Inspector<'_>, base: Addr) -> bool {
        let main = inspector.main_module();
        let own = main.and_then(|main| {
            let segments = main.module.image.segments.iter();
            let mut own = segments.filter(|segment| segment.kind == PT_TLS);
            own.next()
        });
        let size = own.map_or(0, |segment| {
            segment.memory_size.next_multiple_of(segment.align.max(1))
        });
        // A thread that has no block yet has its base at 0, and this goes around.
        let is_within = |address: Addr| address.minus(base.minus(size).0).0 < size;
        let read = self.read.borrow();
        let mut read = read.iter();
        read.any(|(address, _)| is_within(*address) || *address == base.plus(DTV))
    }
}

impl Process for Noted<'_> {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        if self.notes.get() {
            self.read.borrow_mut().push((address, buffer.len() as u64));
        }
        self.process.read(address, buffer)
    }

    fn threads(&self) -> Vec<ThreadId> {
        self.process.threads()
    }

    fn registers(&self, thread: ThreadId) -> inspect::Result<Registers> {
        self.process.registers(thread)
    }

    fn mappings(&self) -> Vec<Mapping> {
        self.process.mappings()
    }
}

/// Stretches of memory, joined where they touch.
fn joined(mut all: Vec<(Addr, u64)>) -> Vec<Watch> {
    all.retain(|(_, length)| *length > 0);
    all.sort_unstable();
    let mut whole: Vec<(Addr, Addr)> = Vec::new();
    for (from, length) in all {
        let to = from.saturating_plus(length);
        match whole.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => whole.push((from, to)),
        }
    }
    let split = whole
        .iter()
        .map(|(from, to)| Watch::split(*from, to.since(*from)));
    split.flatten().collect()
}

/// An expression, as it means something in one program of a process.
struct Meant {
    image: usize,
    expression: Expression,
}

/// What following an expression came to.
pub type Followed = Result<Vec<Changed>, Trouble>;

/// One of the expressions that are followed in a process.
struct Follower<'f> {
    text: &'f str,
    meant: Option<Meant>,
    /// It meant something once.
    is_known: bool,
    /// Why it means nothing, where it was last looked up.
    error: Option<Trouble>,
    /// What it was computed from.
    memory: Vec<(Addr, u64)>,
    found: Vec<Changed>,
    /// What it was last; of each thread, where each has one of its own.
    last: BTreeMap<Option<ThreadNo>, Was>,
    is_per_thread: bool,
    /// It cannot be followed any more.
    failed: Option<Trouble>,
}

impl<'f> Follower<'f> {
    fn new(text: &'f str) -> Follower<'f> {
        Follower {
            text,
            meant: None,
            is_known: false,
            error: None,
            memory: Vec::new(),
            found: Vec::new(),
            last: BTreeMap::new(),
            is_per_thread: false,
            failed: None,
        }
    }

    /// Notes what it is now, if that is something else.
    fn note(&mut self, owner: Option<ThreadNo>, was: Was, member: &Member) -> Result<(), Trouble> {
        if self.last.get(&owner) != Some(&was) {
            self.found.push(Changed {
                moment: moment(member)?,
                owner,
                was: was.clone(),
            });
            self.last.insert(owner, was);
        }
        Ok(())
    }

    /// A thread has ended: there is none of its own any more.
    fn end(&mut self, thread: ThreadNo, member: &Member) -> Result<(), Trouble> {
        match self.last.contains_key(&Some(thread)) {
            true => self.note(Some(thread), Was::Absent, member),
            false => Ok(()),
        }
    }

    /// Looks at the process, and notes what it is now if that is something else.
    fn look(
        &mut self,
        program: &Program,
        member: &mut Member,
        ended: &[ThreadNo],
    ) -> Result<(), Trouble> {
        self.memory.clear();
        if !self.is_per_thread {
            let thread = member.target()?.thread();
            match self.evaluate(program, member, thread)? {
                Some(was) => self.note(None, was, member)?,
                // Found out now: begun anew, a value for each of them.
                None => self.is_per_thread = true,
            }
        }
        if self.is_per_thread {
            self.memory.clear();
            let threads = member.target()?.threads();
            let threads: Vec<ThreadNo> = threads.iter().map(|own| own.number).collect();
            for thread in threads.iter().filter(|own| !ended.contains(own)) {
                let was = self.evaluate(program, member, *thread)?;
                self.note(Some(*thread), was.unwrap_or(Was::Absent), member)?;
            }
            let known: Vec<ThreadNo> = self.last.keys().flatten().copied().collect();
            for thread in known.iter().filter(|own| !threads.contains(own)) {
                self.end(*thread, member)?;
            }
        }
        self.is_known |= self.meant.is_some();
        let pieces = pieces(&joined(self.memory.clone()));
        match pieces > protocol::replay::WATCHES {
            true => Err(Trouble::TooMuch(pieces)),
            false => Ok(()),
        }
    }

    /// What it is in a thread; what that was computed from is added to what is watched.
    /// Nothing, if each thread has one of its own and that was not known.
    fn evaluate(
        &mut self,
        program: &Program,
        member: &mut Member,
        thread: ThreadNo,
    ) -> Result<Option<Was>, Trouble> {
        let library = program.library();
        let layout = member.layout(library)?;
        let target = member.target()?;
        let maps: MapsVersion = target.maps_version();
        let looked = target.look();
        let noted = Noted {
            process: &*looked,
            notes: Cell::new(false),
            read: RefCell::default(),
        };
        let inspector = Inspector::with_layout(library, &noted, layout);
        let is_known = |meant: &Meant| meant.image == maps.image;
        if !self.meant.as_ref().is_some_and(is_known) {
            self.meant = None;
            // The outermost frame has the fewest names of its own.
            let stack = inspector.stack(ThreadId(target.thread().0), DEEPEST)?;
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
            return Ok(Some(Was::Absent));
        };
        let stack = inspector.stack(ThreadId(thread.0), 1)?;
        let scope = Scope::new(&inspector, &stack, 0).ok_or(crate::Error::NoFrame)?;
        noted.notes.set(true);
        let was = was(&scope, &meant.expression);
        let base = Addr(looked.registers(ThreadId(thread.0))?.fs_base);
        if !self.is_per_thread && noted.is_of_thread(&inspector, base) {
            return Ok(None);
        }
        let was = match was {
            Ok(was) => was,
            Err(inspect::Error::OptimizedOut) => return Err(Trouble::OptimizedOut),
            // A thread whose storage is not there yet has no such variable; and what
            // a pointer that leads nowhere should lead to is not there either.
            Err(_) if self.is_per_thread => Was::Absent,
            Err(inspect::Error::Memory { .. }) => Was::Absent,
            Err(error) => Was::Unknown(error.to_string()),
        };
        self.memory.extend(noted.read.take());
        Ok(Some(was))
    }

    fn answer(self) -> Followed {
        match (self.failed, self.error) {
            (Some(failed), _) => Err(failed),
            (None, Some(error)) if !self.is_known => Err(error),
            _ => Ok(self.found),
        }
    }
}

/// How many words have to be watched for this.
fn pieces(memory: &[Watch]) -> usize {
    memory.iter().flat_map(|watch| watch.pieces()).count()
}

/// Where a process stands, after something that was watched.
fn moment(member: &Member) -> Result<Moment, Trouble> {
    let target = member.target()?;
    let at = target.position();
    // The event before has just returned: what stands before this
    // instruction is the call.
    let by_event = match at {
        Position::Event(_) => true,
        Position::Inside(inside) if inside.transfers == 0 => {
            let mut call = [0; 2];
            let before = inside.address.minus(2);
            target.look().read(before, &mut call) == 2 && call == [0x0f, 0x05]
        }
        Position::Inside(_) | Position::Halted(_) => false,
    };
    Ok(Moment {
        at,
        thread: target.thread(),
        by_event,
    })
}

/// The moments at which the values of expressions over globals and statics changed,
/// from the beginning of a process's run to its end; the first of each is that
/// beginning. In programs that have nothing of its name an expression is absent.
///
/// All are followed in one run, as long as they are computed from no more memory
/// together than can be watched at once; the others in one more.
pub fn changes(
    program: &Program,
    process: ProcessId,
    expressions: &[&str],
    cancel: &Cancel,
) -> Result<Vec<Followed>, Trouble> {
    let ix = super::index(program, process)?;
    let mut answers: Vec<Option<Followed>> = Vec::new();
    answers.resize_with(expressions.len(), || None);
    let mut left: Vec<usize> = (0..expressions.len()).collect();
    while !left.is_empty() {
        let texts: Vec<&str> = left
            .iter()
            .filter_map(|i| expressions.get(*i).copied())
            .collect();
        let followed = follow(
            program,
            Member::new(program.history()?, process, ix),
            &texts,
            cancel,
        )?;
        // Those that there was no room for are followed by themselves.
        let mut put_off = Vec::new();
        for (i, followed) in left.iter().zip(followed) {
            match followed {
                Some(answer) => {
                    if let Some(place) = answers.get_mut(*i) {
                        *place = Some(answer);
                    }
                }
                None => put_off.push(*i),
            }
        }
        left = put_off;
    }
    Ok(answers.into_iter().flatten().collect())
}

/// One run. What there is no room for has no answer; the first always has one.
fn follow(
    program: &Program,
    mut member: Member,
    expressions: &[&str],
    cancel: &Cancel,
) -> Result<Vec<Option<Followed>>, Trouble> {
    let mut followers: Vec<Option<Follower<'_>>> = expressions
        .iter()
        .map(|text| Some(Follower::new(text)))
        .collect();
    let answers = |followers: Vec<Option<Follower<'_>>>| {
        let each = followers.into_iter();
        Ok(each.map(|own| own.map(Follower::answer)).collect())
    };
    if member.is_empty() {
        return answers(followers);
    }
    member.open(program, cancel)?;
    let end = member.end();
    // Where threads begin and end, once that matters.
    let mut threads: Option<Vec<(EventNo, Turn)>> = None;
    let mut ended: Vec<ThreadNo> = Vec::new();
    let mut passed: Option<EventNo> = None;
    loop {
        let mut read: Vec<(Addr, u64)> = Vec::new();
        let mut watched: Vec<Watch> = Vec::new();
        let mut mapped = false;
        let mut per_thread = false;
        let mut all_failed = true;
        for place in &mut followers {
            let Some(own) = place.as_mut().filter(|own| own.failed.is_none()) else {
                continue;
            };
            match own.look(program, &mut member, &ended) {
                Ok(()) => {}
                Err(Trouble::Cancelled) => return Err(Trouble::Cancelled),
                Err(trouble) => {
                    own.failed = Some(trouble);
                    continue;
                }
            }
            // Several may be computed from the same.
            let mut all = read.clone();
            all.extend(&own.memory);
            let together = joined(all.clone());
            if pieces(&together) > protocol::replay::WATCHES {
                *place = None;
                continue;
            }
            all_failed = false;
            (read, watched) = (all, together);
            // What it means may be in code that is mapped later.
            mapped |= own.meant.is_none();
            per_thread |= own.is_per_thread;
        }
        if all_failed {
            return answers(followers);
        }
        let now = member.position()?;
        let border = member.next_image(now.event());
        let border = border.map(Position::Event);
        let turn = match per_thread {
            true => {
                let all = threads.get_or_insert_with(|| turns(program, member.id));
                let behind = |(event, _): &&(EventNo, Turn)| {
                    *event >= now.event() && passed.is_none_or(|passed| *event > passed)
                };
                all.iter().find(behind).copied()
            }
            false => None,
        };
        let turn = turn.filter(|(event, _)| border.is_none_or(|to| Position::Event(*event) < to));
        let to = turn.map(|(event, _)| Position::Event(event));
        let to = to.or(border).unwrap_or(end);
        let stops = Stops {
            watches: &watched,
            mapped,
            ..Stops::default()
        };
        let arrival = member.target_mut()?.run(&stops, to, cancel)?;
        match (arrival, border) {
            (Arrival::Watch(_) | Arrival::Mapped | Arrival::Stepped | Arrival::Breakpoint, _) => {}
            (Arrival::There, _) if turn.is_some_and(|(event, _)| to == Position::Event(event)) => {
                let Some((event, turn)) = turn else { continue };
                passed = Some(event);
                match turn {
                    Turn::Begins => {
                        member
                            .target_mut()?
                            .step(ONE_INSTRUCTION, &watched, cancel)?;
                    }
                    Turn::Ends(thread) => {
                        ended.push(thread);
                        for own in followers.iter_mut().flatten() {
                            own.end(thread, &member)?;
                        }
                    }
                }
            }
            (Arrival::There | Arrival::End, Some(border)) => {
                // From here on it is another program.
                if !member.seek(border, cancel)? {
                    return Err(Trouble::Cancelled);
                }
            }
            (Arrival::There | Arrival::End, None) => return answers(followers),
            (Arrival::Interrupted, _) => return Err(Trouble::Cancelled),
            // What is alive has no run that could be gone from its beginning.
            (Arrival::Happened(_) | Arrival::Elsewhere(..), _) => {
                return Err(target::Error::NoPast.into());
            }
            (Arrival::Diverged(difference), _) => return Err(Trouble::Diverged(difference)),
        }
        if cancel.is_cancelled() {
            return Err(Trouble::Cancelled);
        }
    }
}
