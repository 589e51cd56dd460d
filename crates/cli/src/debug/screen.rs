//! What the prompt prints: in colours on a terminal, plain elsewhere.

use std::sync::OnceLock;

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

pub fn line(text: std::fmt::Arguments<'_>) -> Result<(), crate::failure::Failure> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
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
