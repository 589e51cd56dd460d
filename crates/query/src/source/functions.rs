//! The functions that threads run which have not given themselves a name.

use std::collections::BTreeMap;

use causality::{EventId, History};
use inspect::frames::{FrameKind, Stack};
use inspect::{Library, Options};
use protocol::id::ProcessId;

use super::kept::Kept;
use super::{Replays, Site, stacks, text};
use crate::names::Functions;

/// Of a process with more threads, the first ones get names.
const NAMED_MOST: usize = 64;

/// The functions, if they are known without replay: because they were looked
/// for before, or because every thread has a name.
pub fn known_functions(history: &History) -> Option<Functions> {
    match history.unnamed_threads().is_empty() {
        true => Some(Functions::new()),
        false => Kept::load(history.set()).threads,
    }
}

/// The functions, looked for by replay if they were not before; they are kept,
/// and not looked for again.
pub fn functions(history: &History, replays: Replays<'_>) -> Functions {
    if let Some(known) = known_functions(history) {
        return known;
    }
    let unnamed = history.unnamed_threads();
    let events: Vec<EventId> = unnamed.into_iter().map(|(_, event)| event).collect();
    let mut wanted: BTreeMap<ProcessId, Vec<Site>> = BTreeMap::new();
    history.look_all(&events, |id, event| {
        if let Some(process) = history.id_of(id.process) {
            wanted.entry(process).or_default().push(Site::of(event));
        }
    });
    let mut functions = Functions::new();
    let library = Library::new(Options::default());
    for (process, mut sites) in wanted {
        sites.truncate(NAMED_MOST);
        sites.sort_unstable();
        // A thread whose function is not found keeps its number.
        let _ = stacks(replays, &library, process, &sites, true, |site, stack| {
            if let Some(name) = stack.and_then(run_by) {
                functions.insert((process, site.thread), name);
            }
        });
    }
    let mut kept = Kept::load(history.set());
    kept.threads = Some(functions.clone());
    kept.save(history.set());
    functions
}

/// The outermost function of the program's own: what a thread was started to
/// run.
fn run_by(stack: &Stack) -> Option<String> {
    let outermost = stack.frames.iter().rev().find(|frame| {
        let place = frame.place.as_ref();
        frame.kind != FrameKind::Signal
            && place.is_some_and(|place| !text::is_library(&place.file.path))
    })?;
    text::short(outermost.name.as_deref()?)
}
