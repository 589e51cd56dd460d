//! What the commands about causes share: opening the index, with progress on a
//! terminal, and asking what threads are called.

use std::sync::Arc;
use std::time::Duration;

use causality::History;
use query::Names;
use recording::Set;

use crate::failure::Failure;
use crate::output::Progress;
use crate::source::within;

/// How long is looked for the functions that threads run, once.
const NAMING: Duration = Duration::from_secs(5);

/// The causes in what was recorded. Tells how far it is, on a terminal, where
/// that takes long.
pub fn open(set: &Arc<Set>) -> Result<History, Failure> {
    let history = with_progress(|progress| History::of(set, progress))?;
    set.members().for_each(|recording| recording.keep_catalog());
    Ok(history)
}

/// What the threads of a recording are called. Those that have not given
/// themselves a name are called after their functions, which takes replay the
/// first time.
pub fn names(history: &History) -> Names {
    let functions = query::source::known_functions(history).unwrap_or_else(|| {
        within(history.set(), NAMING, |replays| {
            query::source::functions(history, replays)
        })
    });
    query::names::after_functions(history, &functions)
}

/// Runs something that tells how many events it has read.
fn with_progress<T>(
    work: impl FnOnce(causality::Progress<'_>) -> Result<T, causality::Error>,
) -> Result<T, Failure> {
    let progress = Progress::counting("reading the logs");
    work(&|events| progress.set(events)).map_err(Failure::new)
}

/// Asks the causes something. An index that turns out to be damaged is made
/// again, and asked again.
pub fn ask<T>(history: &mut History, question: impl Fn(&History) -> T) -> Result<T, Failure> {
    with_progress(|progress| history.ask(progress, &question))
}
