//! What people see: standard output, buffered; colours, where there is a terminal
//! that has them; progress; numbers and times in words.

mod progress;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::mem;
use std::time::SystemTime;

pub use progress::Progress;

/// Where a command prints what it was asked for.
pub struct Output {
    out: BufWriter<Box<dyn Write>>,
    colours: bool,
    /// Columns and rows of the terminal.
    size: Option<(usize, usize)>,
    /// Lines that are held back.
    held: Option<Vec<String>>,
}

/// What stands on the screen and can be taken back.
pub struct Draft {
    rows: usize,
}

/// A colour, or a manner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
    BoldBlue,
    /// One of a few, for the thing with this number.
    Numbered(u32),
}

impl Style {
    /// Text as a terminal shows it so.
    pub fn paint(self, text: &str) -> String {
        match self.code() {
            "" => text.to_string(),
            code => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Red => "31",
            Style::Green => "32",
            Style::Yellow => "33",
            Style::Cyan => "36",
            Style::BoldBlue => "1;34",
            Style::Numbered(number) => {
                let colours = ["32", "34", "35", "36", "92", "94", "95", "96"];
                colours.get(number as usize % colours.len()).unwrap_or(&"")
            }
        }
    }
}

/// Whether what is written there may move the cursor about.
pub fn can_move_about(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Whether what is written there may have colours (see <https://no-color.org>).
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    can_move_about(stream) && !refused
}

impl Output {
    pub fn new() -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output {
            colours: has_colours(&stdout),
            size: terminal
                .then(terminal_size::terminal_size)
                .flatten()
                .map(|(width, height)| (width.0.into(), height.0.into())),
            held: None,
            out: BufWriter::with_capacity(64 * 1024, Box::new(stdout.lock())),
        }
    }

    /// Standard error instead, for what was not asked for.
    pub fn to_stderr() -> Output {
        Output {
            colours: false,
            size: None,
            held: None,
            out: BufWriter::new(Box::new(io::stderr().lock())),
        }
    }

    /// `text` in a style, as it must be written here.
    pub fn paint(&self, style: Style, text: &str) -> String {
        match self.colours {
            true => style.paint(text),
            false => text.to_string(),
        }
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        if let Some(held) = &mut self.held {
            held.push(text.to_string());
            return Ok(());
        }
        self.out.write_all(text.as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Prints a value as JSON, on a line.
    pub fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        self.line(&text)
    }

    /// Columns of the terminal, if it is one.
    pub fn width(&self) -> Option<usize> {
        self.size.map(|(width, _)| width)
    }

    /// Prints at once what can later be replaced by something better (see
    /// [`Output::take_back`]): on a terminal that can do that and has room for
    /// it. `None` where nothing was printed.
    pub fn draft<E: From<io::Error>>(
        &mut self,
        print: impl FnOnce(&mut Output) -> Result<(), E>,
    ) -> Result<Option<Draft>, E> {
        let Some((width, height)) = self.size.filter(|_| self.colours) else {
            return Ok(None);
        };
        self.held = Some(Vec::new());
        let printed = print(self);
        let lines = mem::take(&mut self.held).unwrap_or_default();
        printed?;
        let rows = lines.iter().map(|line| rows(line, width)).sum();
        if rows >= height {
            return Ok(None);
        }
        for line in lines {
            self.line(&line)?;
        }
        self.out.flush()?;
        Ok(Some(Draft { rows }))
    }

    /// Clears the screen of a draft; what is printed next stands in its place.
    pub fn take_back(&mut self, draft: Draft) -> io::Result<()> {
        match draft.rows {
            0 => Ok(()),
            rows => write!(self.out, "\x1b[{rows}A\r\x1b[J"),
        }
    }

    /// Everything must have been written before a command has succeeded.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A number of bytes for people.
pub use query::info::size as bytes;

/// Seconds with microseconds.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// How long ago something was, in its largest unit.
pub fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (count, unit) = match seconds {
        0..60 => (seconds, "s"),
        60..3600 => (seconds / 60, "min"),
        3600..86_400 => (seconds / 3600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{count} {unit} ago")
}

/// Now, in nanoseconds since the epoch.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// A point in time, in UTC: date and time of day with microseconds.
pub fn date(ns: u64) -> (String, String) {
    let seconds = ns / 1_000_000_000;
    let (days, rest) = (seconds / 86400, seconds % 86400);
    // Civil calendar from days (Howard Hinnant's algorithm), years that begin
    // in March.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!(
            "{:02}:{:02}:{:02}.{:06}",
            rest / 3600,
            rest / 60 % 60,
            rest % 60,
            ns % 1_000_000_000 / 1000
        ),
    )
}

/// A command line as it could be typed again.
pub fn command_line<'a>(argv: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut line = String::new();
    for arg in argv {
        if !line.is_empty() {
            line.push(' ');
        }
        let text = String::from_utf8_lossy(arg);
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+^~".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            line.push_str(&text);
        } else if text.chars().any(char::is_control) {
            // What the shell understands, on one line.
            line.push_str(&format!("$'{}'", text.escape_default()));
        } else {
            line.push_str(&format!("'{}'", text.replace('\'', r"'\''")));
        }
    }
    line
}

/// Rows that a line takes on a terminal so wide.
fn rows(line: &str, width: usize) -> usize {
    let mut columns = 0usize;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            // A colour.
            '\x1b' => _ = chars.find(|c| *c == 'm'),
            _ => columns += 1,
        }
    }
    columns.div_ceil(width.max(1)).max(1)
}

/// `text`, cut to `width` columns.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        assert_eq!(seconds(1_234_567_890), "1.234567");
        assert_eq!(age(59_999_999_999), "59 s ago");
        assert_eq!(age(60_000_000_000), "1 min ago");
        assert_eq!(age(86_400_000_000_000 * 40), "40 d ago");
        let (day, time) = date(1_700_000_000_123_456_789);
        assert_eq!(
            (day.as_str(), time.as_str()),
            ("2023-11-14", "22:13:20.123456")
        );
        assert_eq!(date(951_782_400_000_000_000).0, "2000-02-29");
    }

    #[test]
    fn rows_are_what_a_terminal_makes_of_a_line() {
        assert_eq!(rows("", 80), 1);
        assert_eq!(rows(&"x".repeat(80), 80), 1);
        assert_eq!(rows(&"x".repeat(81), 80), 2);
        assert_eq!(rows("\x1b[1mfour\x1b[0m", 4), 1);
        assert_eq!(rows("\x1b[92mfive!\x1b[0m", 4), 2);
    }

    #[test]
    fn command_lines_can_be_typed_again() {
        let line = |argv: &[&str]| command_line(argv.iter().map(|arg| arg.as_bytes()));
        assert_eq!(
            line(&["redis-server", "--port", "6379"]),
            "redis-server --port 6379"
        );
        assert_eq!(line(&["sh", "-c", "echo it's"]), r"sh -c 'echo it'\''s'");
        assert_eq!(line(&["x", "", "a\nb"]), r"x '' $'a\nb'");
    }
}
