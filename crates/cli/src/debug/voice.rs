//! What is said while somebody may be typing a line: it comes above the line, which stays
//! as it is.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustyline::ExternalPrinter;

/// So long it is waited for what was said to be seen. (The line editor may take its time, if
/// it has just been left.)
const SEEN: Duration = Duration::from_secs(1);

/// Says lines by a thread of its own: who says them never waits for the editor.
#[derive(Clone)]
pub struct Voice(Sender<Said>);

/// What shows lines above the one that is edited.
pub type Above = Box<dyn ExternalPrinter + Send>;

enum Said {
    Line(String),
    Printer(Option<Above>),
    Flush(Sender<()>),
}

impl Voice {
    pub fn start() -> Voice {
        let (to, said) = channel();
        // Without it nothing is heard in the background; all else is as ever.
        let _ = std::thread::Builder::new()
            .name("voice".to_string())
            .spawn(move || speak(&said));
        Voice(to)
    }

    /// From here on what is said comes above a line that is edited; or wherever it comes.
    pub fn speak_above(&self, printer: Option<Above>) {
        let _ = self.0.send(Said::Printer(printer));
        self.flush();
    }

    pub fn say(&self, line: &str) {
        let _ = self.0.send(Said::Line(line.to_string()));
    }

    /// Waits until all that was said is seen.
    pub fn flush(&self) {
        let (to, seen) = channel();
        if self.0.send(Said::Flush(to)).is_ok() {
            let _ = seen.recv_timeout(SEEN);
        }
    }
}

fn speak(said: &Receiver<Said>) {
    let mut printer: Option<Above> = None;
    while let Ok(said) = said.recv() {
        match said {
            Said::Line(line) => {
                let seen = match &mut printer {
                    Some(printer) => printer.print(format!("{line}\n")).is_ok(),
                    None => false,
                };
                if !seen {
                    let _ = super::screen::print(format_args!("{line}"));
                }
            }
            Said::Printer(own) => printer = own,
            Said::Flush(to) => {
                let _ = to.send(());
            }
        }
    }
}
