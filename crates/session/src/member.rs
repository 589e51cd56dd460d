//! One process of a group: where it is said to be, and what is known of its way.
//!
//! The process is opened when it is first looked at or moved, and brought to
//! where it is said to be only then. A search may lead it elsewhere; that it is
//! elsewhere is only said when the motion is decided.

use std::collections::HashMap;
use std::sync::Arc;

use causality::History;
use inspect::inspector::Layout;
use inspect::lookup::Location;
use inspect::{Inspector, Library};
use protocol::id::{Addr, EventNo, ProcessId, ProcessIx, ThreadNo};
use target::{Alive, Arrival, Cancel, ImageSpan, Living, MapsVersion, Position, Recorded, Target};

use crate::conditions::{Conditions, Judge};
use crate::found::Known;
use crate::plan::Plan;
use crate::program::Program;
use crate::stops::{Key, StopTable};
use crate::trail::Stand;
use crate::{Error, Result};

/// What a search goes by.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    pub program: &'c Program,
    pub stops: &'c StopTable,
    /// A process stops when it begins another program.
    pub execs: bool,
    pub cancel: &'c Cancel,
    /// Those that run along, of a program that is alive.
    pub company: Option<&'c dyn Company>,
}

/// Processes that run along while one is led, of a program that is alive.
pub(crate) trait Company {
    /// Says in each what stops it.
    fn arm(&self) -> Result<()>;

    /// One of them came to something: whether that stops everybody.
    fn came(&self, process: ProcessId, arrival: Arrival) -> Result<bool>;
}

/// See the module.
pub(crate) struct Member {
    pub id: ProcessId,
    pub ix: ProcessIx,
    pub name: String,
    pub program: String,
    /// What it is called on its host, and with its host.
    called: (String, String),
    pub first: EventNo,
    pub last: EventNo,
    /// Where it is said to be.
    pub at: Position,
    /// The inlined function that it is about to enter there, if a breakpoint at
    /// that function stopped it: what is inlined into it is not entered yet.
    entered: Option<Location>,
    /// The stop that it stands at there, if it came to one.
    pub stand: Option<Stand>,
    /// Nobody wants it moved.
    pub is_let_go: bool,
    is_empty: bool,
    target: Option<Box<dyn Target>>,
    /// To look at elsewhere.
    probe: Option<Box<dyn Target>>,
    pub images: Option<Vec<ImageSpan>>,
    pub ahead: Option<Known>,
    pub behind: Option<Known>,
    layout: Option<(MapsVersion, Arc<Layout>)>,
    pub plan: Option<(MapsVersion, Key, Arc<Plan>)>,
    pub conditions: Conditions,
    /// Whose events follow each other: the first of each run, and the thread.
    turns: Option<Vec<(EventNo, ThreadNo)>>,
}

/// The name of a process that is alive, with its host if that is another one.
fn full_name(living: &Living) -> String {
    match &living.host {
        Some(host) => format!("{}@{host}", living.name),
        None => living.name.clone(),
    }
}

impl Member {
    /// A process that was recorded, at its beginning.
    pub fn new(history: &History, id: ProcessId, ix: ProcessIx) -> Member {
        let set = history.set();
        let process = set.process(ix);
        let runs = process.map_or_else(Default::default, |process| process.program.clone());
        let own = process.map_or_else(Default::default, |process| process.name.clone());
        let host = set.name(id.member).map(|host| format!("{own}@{host}"));
        let (first, last) = history.span(ix);
        Member {
            called: (own.clone(), host.unwrap_or(own)),
            first,
            last,
            at: Position::Event(first),
            is_empty: history.thread_count(ix) == 0,
            ..Member::bare(id, ix, set.process_name(ix), runs)
        }
    }

    /// A process that is alive, and where it stands among all.
    pub fn alive((living, ix): (Living, u32)) -> Member {
        let name = full_name(&living);
        Member {
            called: (living.name, name.clone()),
            ..Member::bare(living.id, ProcessIx(ix), name, living.program)
        }
    }

    /// What is known of it without looking into it, and whether it has ended.
    pub fn as_living(&self) -> (Living, bool) {
        let own = &self.called.0;
        let host = self.name.strip_prefix(own.as_str());
        let living = Living {
            id: self.id,
            name: own.clone(),
            host: host
                .and_then(|rest| rest.strip_prefix('@'))
                .map(str::to_string),
            program: self.program.clone(),
        };
        (living, self.is_empty)
    }

    /// What it is called now.
    pub fn rename(&mut self, living: &Living) {
        self.name = full_name(living);
        self.called = (living.name.clone(), self.name.clone());
        self.program.clone_from(&living.program);
    }

    fn bare(id: ProcessId, ix: ProcessIx, name: String, program: String) -> Member {
        Member {
            id,
            ix,
            called: (name.clone(), name.clone()),
            name,
            program,
            first: EventNo(0),
            last: EventNo::MAX.previous(),
            at: Position::START,
            entered: None,
            stand: None,
            is_let_go: false,
            is_empty: false,
            target: None,
            probe: None,
            images: None,
            ahead: None,
            behind: None,
            layout: None,
            plan: None,
            conditions: HashMap::new(),
            turns: None,
        }
    }

    /// Whether a name can mean it: of the process, with its host or without, or
    /// of the program that it executes.
    pub fn is_called(&self, name: &str) -> bool {
        let (own, with_host) = &self.called;
        [&self.name, &self.program, own, with_host]
            .iter()
            .any(|n| *n == name)
    }

    /// Whether it did nothing that was recorded.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// It is alive no more.
    pub fn end_of_life(&mut self) {
        self.is_empty = true;
    }

    pub fn beginning(&self) -> Position {
        Position::Event(self.first)
    }

    pub fn end(&self) -> Position {
        Position::Event(self.last.next())
    }

    /// A position within its run.
    pub fn within(&self, at: Position) -> Position {
        at.clamp(self.beginning(), self.end())
    }

    /// Says where it is.
    pub fn put(&mut self, at: Position) {
        if self.at != at {
            self.at = at;
            self.entered = None;
            self.stand = None;
        }
    }

    /// Says which inlined function it is about to enter where it is.
    pub fn enter(&mut self, function: Option<Location>) {
        self.entered = function;
    }

    /// The inlined function that it is about to enter where it is.
    pub fn entered(&self) -> Option<&Location> {
        self.entered.as_ref()
    }

    /// The process, wherever it is now.
    pub fn open(&mut self, program: &Program, cancel: &Cancel) -> Result<&mut dyn Target> {
        if self.target.is_none() {
            let target = program.opener().open(self.id, cancel)?;
            self.images = Some(target.images());
            self.target = Some(target);
        }
        match &mut self.target {
            Some(target) => Ok(target.as_mut()),
            None => Err(Error::NoProcess(self.id)),
        }
    }

    /// The process, which was opened before.
    pub fn target(&self) -> Result<&dyn Target> {
        self.target.as_deref().ok_or(Error::NoProcess(self.id))
    }

    pub fn target_mut(&mut self) -> Result<&mut (dyn Target + 'static)> {
        let id = self.id;
        self.target.as_deref_mut().ok_or(Error::NoProcess(id))
    }

    /// Its past.
    pub fn recorded(&mut self) -> Result<&mut dyn Recorded> {
        let target = self.target_mut()?;
        target.history().ok_or(Error::Target(target::Error::NoPast))
    }

    /// What it can because it is alive.
    pub fn living(&mut self) -> Result<&mut dyn Alive> {
        let target = self.target_mut()?;
        Ok(target.alive().ok_or(target::Error::NotAlive)?)
    }

    /// The process, brought to where it is said to be: it gets there, whoever
    /// wants to stop what it is asked for. If it cannot get there, it is where
    /// it got. One that is alive is where it stands.
    pub fn here(&mut self, program: &Program) -> Result<&mut dyn Target> {
        let at = self.at;
        let never = Cancel::new();
        let now = self.open(program, &never)?.position();
        if program.is_alive() {
            self.put(now);
        } else if now != at {
            self.recorded()?.seek(at, &never)?;
            let got = self.target()?.position();
            self.put(got);
        }
        self.open(program, &never)
    }

    /// Leads the process somewhere. True: it got there.
    pub fn seek(&mut self, at: Position, cancel: &Cancel) -> Result<bool> {
        Ok(self.recorded()?.seek(at, cancel)? == Arrival::There)
    }

    pub fn position(&self) -> Result<Position> {
        Ok(self.target()?.position())
    }

    pub fn thread(&self) -> Result<ThreadNo> {
        Ok(self.target()?.thread())
    }

    /// The stack pointer of the thread that runs.
    pub fn stack_pointer(&self) -> Result<Option<Addr>> {
        let running = self.target()?.running();
        Ok(running.map(|thread| thread.registers.sp()))
    }

    /// Which of its programs it is in at an event.
    pub fn image_at(&self, event: EventNo) -> usize {
        let images = self.images.as_deref().unwrap_or_default();
        let after = images.partition_point(|image| image.first <= event);
        after.saturating_sub(1)
    }

    /// The first event of the program that it is in at an event.
    pub fn image_begins(&self, event: EventNo) -> EventNo {
        let images = self.images.as_deref().unwrap_or_default();
        let image = images.get(self.image_at(event));
        image.map_or(self.first, |image| image.first)
    }

    /// The first event of the program after that.
    pub fn next_image(&self, event: EventNo) -> Option<EventNo> {
        let images = self.images.as_deref().unwrap_or_default();
        images
            .get(self.image_at(event) + 1)
            .map(|image| image.first)
    }

    /// What it has mapped where the process is now.
    pub fn layout(&mut self, library: &Library) -> Result<Arc<Layout>> {
        let target = self.target()?;
        let version = target.maps_version();
        if let Some((known, layout)) = &self.layout
            && *known == version
        {
            return Ok(Arc::clone(layout));
        }
        let looked = target.look();
        let layout = Inspector::new(library, &*looked).layout();
        drop(looked);
        self.layout = Some((version, Arc::clone(&layout)));
        Ok(layout)
    }

    /// Looks at the process where it is now.
    pub fn look<T>(
        &mut self,
        library: &Library,
        question: impl FnOnce(&Inspector<'_>, &dyn Target) -> T,
    ) -> Result<T> {
        let layout = self.layout(library)?;
        let target = self.target()?;
        let looked = target.look();
        let inspector = Inspector::with_layout(library, &*looked, layout);
        Ok(question(&inspector, target))
    }

    /// A second one of the same process, led to a position.
    pub fn probe(
        &mut self,
        program: &Program,
        at: Position,
        cancel: &Cancel,
    ) -> Result<&dyn Target> {
        Ok(self.probe_mut(program, at, cancel)?)
    }

    /// A second target on the recording, to be led on from there.
    pub fn probe_mut(
        &mut self,
        program: &Program,
        at: Position,
        cancel: &Cancel,
    ) -> Result<&mut (dyn Target + 'static)> {
        if self.probe.is_none() {
            self.probe = Some(program.opener().open(self.id, cancel)?);
        }
        let Some(probe) = &mut self.probe else {
            return Err(Error::NoProcess(self.id));
        };
        if probe.position() != at {
            let past = probe.history().ok_or(target::Error::NoPast)?;
            if past.seek(at, cancel)? == Arrival::Interrupted {
                return Err(target::Error::Cancelled.into());
            }
        }
        Ok(&mut **probe)
    }

    /// Runs of events by one thread.
    fn turns(&mut self, program: &Program) -> &[(EventNo, ThreadNo)] {
        let id = self.id;
        self.turns.get_or_insert_with(|| {
            let mut runs: Vec<(EventNo, ThreadNo)> = Vec::new();
            let Some(recording) = program.recording_of(id) else {
                return runs;
            };
            let mut log = recording.log(id.number);
            while log.advance() {
                let Some(event) = log.event() else { break };
                let thread = event.thread;
                if runs.last().is_none_or(|(_, last)| *last != thread) {
                    runs.push((event.number, thread));
                }
            }
            runs
        })
    }

    /// The next event of a thread, from one on.
    pub fn next_turn(
        &mut self,
        program: &Program,
        thread: ThreadNo,
        from: EventNo,
    ) -> Option<EventNo> {
        let turns = self.turns(program);
        let at = turns.partition_point(|(first, _)| *first <= from);
        let mut rest = turns.get(at.saturating_sub(1)..)?.iter();
        rest.find(|(_, whose)| *whose == thread)
            .map(|(first, _)| (*first).max(from))
    }

    /// The last event of a thread before one.
    pub fn last_turn(
        &mut self,
        program: &Program,
        thread: ThreadNo,
        before: EventNo,
    ) -> Option<EventNo> {
        let turns = self.turns(program);
        let to = turns.partition_point(|(first, _)| *first < before);
        let mut next = before;
        for (first, whose) in turns.get(..to)?.iter().rev() {
            if *whose == thread {
                return Some(next.previous());
            }
            next = *first;
        }
        None
    }
}

impl Member {
    /// The process, and who tests conditions in it.
    pub fn judge_mut<'m>(
        &'m mut self,
        context: Context<'m>,
    ) -> Result<(&'m mut (dyn Target + 'static), Judge<'m>)> {
        let Some(target) = self.target.as_deref_mut() else {
            return Err(Error::NoProcess(self.id));
        };
        let judge = Judge {
            library: context.program.library(),
            layout: &mut self.layout,
            known: &mut self.conditions,
        };
        Ok((target, judge))
    }
}
