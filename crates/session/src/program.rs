//! What all groups on one program share.

use std::sync::Arc;

use causality::{Cut, EventId, History};
use inspect::{Library, Options};
use protocol::id::{EventNo, ProcessIx};
use recording::{Recording, ThreadNames};
use target::Opener;

/// A program that was recorded: its history, its symbols, and the way to have
/// its processes run again. Several groups, each on a thread of its own, may
/// look at it at once.
pub struct Program {
    history: History,
    names: ThreadNames,
    opener: Arc<dyn Opener>,
    library: Library,
}

impl Program {
    pub fn new(history: History, names: ThreadNames, opener: Arc<dyn Opener>) -> Arc<Program> {
        Arc::new(Program {
            history,
            names,
            opener,
            library: Library::new(Options::default()),
        })
    }

    /// What happened before what.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What its threads are called.
    pub fn names(&self) -> &ThreadNames {
        &self.names
    }

    pub fn recording(&self) -> &Arc<Recording> {
        self.history.recording()
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
        Some(self.history.past(self.done(process, event)?))
    }

    /// What can have happened when a process is about to do an event.
    pub(crate) fn latest(&self, process: ProcessIx, event: EventNo) -> Cut {
        let (first, _) = self.history.span(process);
        let none = EventId::new(process, first);
        self.history
            .latest(self.done(process, event).unwrap_or(none))
    }

    /// The last event that a process has done when it is about to do one.
    fn done(&self, process: ProcessIx, event: EventNo) -> Option<EventId> {
        let (first, last) = self.history.span(process);
        let done = event.min(last.next()).0.checked_sub(1).map(EventNo)?;
        (done >= first).then(|| EventId::new(process, done))
    }
}
