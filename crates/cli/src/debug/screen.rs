//! What the prompt prints: in colours on a terminal, plain elsewhere.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use super::job::Job;
use crate::failure::Failure;

use crate::output::Style;

/// Prints a line, which is seen at once: who reads it through a pipe may wait for it before it
/// says what comes next. Whoever read it may have gone away: that is a failure that
/// nobody hears of.
macro_rules! say {
    ($($what:tt)*) => {
        $crate::debug::screen::line(format_args!($($what)*))
    };
}
pub(super) use say;

thread_local! {
    /// Whose lines this thread says.
    static JOB: RefCell<Option<Arc<Job>>> = const { RefCell::new(None) };
}

/// From here on what this thread says belongs to this job.
pub fn belongs_to(job: Option<&Arc<Job>>) {
    JOB.set(job.map(Arc::clone));
}

fn job() -> Option<Arc<Job>> {
    JOB.with_borrow(Option::clone)
}

pub fn line(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    match job() {
        Some(job) => job.say(text)?,
        None => print(text)?,
    }
    Ok(())
}

/// Prints a line at once, whoever says it.
pub fn print(text: std::fmt::Arguments<'_>) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Says what has failed, for who goes on afterwards.
pub fn show(failure: Failure) {
    match job() {
        Some(job) => job.show(failure),
        None => failure.show(),
    }
}

/// What a word is, for its colour: as gdb has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Process,
    Function,
    File,
    /// Why it stopped.
    Why,
    /// The number of the line that comes next.
    Line,
}

fn has_colours() -> bool {
    static COLOURS: OnceLock<bool> = OnceLock::new();
    *COLOURS.get_or_init(|| crate::output::has_colours(&std::io::stdout()))
}

/// A word in its colour.
pub fn paint(part: Part, text: &str) -> String {
    if !has_colours() {
        return text.to_string();
    }
    let style = match part {
        Part::Process => Style::Cyan,
        Part::Function => Style::Yellow,
        Part::File => Style::Green,
        Part::Why => Style::Bold,
        Part::Line => Style::BoldBlue,
    };
    style.paint(text)
}
