//! What all groups on one program share.

use std::sync::Arc;

use causality::{Cut, EventId, History};
use inspect::{Library, Options};
use protocol::id::{EventNo, ProcessId, ProcessIx, ThreadNo};
use recording::{Recording, Set, ThreadNames};
use target::Opener;

use crate::Result;

/// A program that is debugged: its symbols, the way to its processes, and, if it
/// was recorded, its history. Several groups, each on a thread of its own, may look
/// at a program that was recorded at once; one that is alive has one.
pub struct Program {
    past: Option<Past>,
    opener: Arc<dyn Opener>,
    library: Library,
}

/// What is known of a program that was recorded.
struct Past {
    history: History,
    names: ThreadNames,
}

impl Program {
    /// A program that was recorded.
    pub fn new(history: History, names: ThreadNames, opener: Arc<dyn Opener>) -> Arc<Program> {
        Arc::new(Program {
            past: Some(Past { history, names }),
            opener,
            library: Library::new(Options::default()),
        })
    }

    /// A program that is alive, and what reads its files, which may have looked at some already.
    pub fn alive(opener: Arc<dyn Opener>, library: Library) -> Arc<Program> {
        Arc::new(Program {
            past: None,
            opener,
            library,
        })
    }

    /// Whether it is alive: it has no history then.
    pub fn is_alive(&self) -> bool {
        self.past.is_none()
    }

    fn recorded(&self) -> Result<&Past> {
        Ok(self.past.as_ref().ok_or(target::Error::NoPast)?)
    }

    /// What happened before what, if it was recorded.
    pub fn history(&self) -> Result<&History> {
        Ok(&self.recorded()?.history)
    }

    /// What its threads are called, if it was recorded.
    pub fn names(&self) -> Result<&ThreadNames> {
        Ok(&self.recorded()?.names)
    }

    /// What was recorded of it, on one host or on several, if it was.
    pub fn set(&self) -> Result<&Arc<Set>> {
        Ok(self.history()?.set())
    }

    /// The recording that holds a process.
    pub fn recording_of(&self, process: ProcessId) -> Option<&Arc<Recording>> {
        self.set().ok()?.member(process.member)
    }

    /// What a thread of a process is called; of one that is alive, its number.
    pub fn thread_name(&self, process: ProcessId, thread: ThreadNo) -> String {
        match self.names() {
            Ok(names) => names.of(process, thread),
            Err(_) => thread.to_string(),
        }
    }

    /// The symbols of all programs and libraries that were looked at.
    pub fn library(&self) -> &Library {
        &self.library
    }

    pub(crate) fn opener(&self) -> &dyn Opener {
        self.opener.as_ref()
    }

    /// What must have happened for a process to be about to do an event. None:
    /// it has done nothing yet.
    pub(crate) fn past(&self, process: ProcessIx, event: EventNo) -> Option<Cut> {
        let history = self.history().ok()?;
        Some(history.past(done(history, process, event)?))
    }

    /// What can have happened when a process is about to do an event.
    pub(crate) fn latest(&self, process: ProcessIx, event: EventNo) -> Result<Cut> {
        let history = self.history()?;
        let (first, _) = history.span(process);
        let none = EventId::new(process, first);
        Ok(history.latest(done(history, process, event).unwrap_or(none)))
    }
}

/// The last event that a process has done when it is about to do one.
fn done(history: &History, process: ProcessIx, event: EventNo) -> Option<EventId> {
    let (first, last) = history.span(process);
    let done = event.min(last.next()).0.checked_sub(1).map(EventNo)?;
    (done >= first).then(|| EventId::new(process, done))
}
