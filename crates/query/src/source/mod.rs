//! What only replay can tell: where in the source calls are made, what threads
//! run, who has a lock in memory.
//!
//! A recording has no stacks: what a program had on its stack at an event is
//! known only by running it again up to there. That takes time, so it is done
//! for the events that are shown, for so long and no longer, and what was found
//! is kept beside the recording ([`kept`]): whoever asks again is answered at
//! once.
//!
//! Nothing here replays by itself: who asks hands in what opens processes, and
//! says when it is enough ([`Replays`]).

mod functions;
mod kept;
mod locks;
mod text;

use std::collections::{BTreeMap, HashMap};

use causality::{EventId, History};
use inspect::frames::{Frame, Stack};
use inspect::target::ThreadId;
use inspect::{Inspector, Library, Options};
use protocol::id::{EventNo, ProcessId, ThreadNo};
use recording::Event;
use serde::{Deserialize, Serialize};
use target::{Arrival, Cancel, Opener, Position, Target};

use kept::Kept;

pub use functions::{functions, known_functions};
pub use locks::{Lock, locks};

/// Why replay came no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It was given up: its time was over, or whoever asked had enough.
    Late,
    /// The process came to something else than the recording.
    Diverged,
    /// Its log ends before.
    Short,
    /// Something else, in words.
    Other(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Trouble::Late => "replay had no more time; `--source-time` gives it more",
            Trouble::Diverged => "replay came to something else than the recording",
            Trouble::Short => "the log ends before",
            Trouble::Other(why) => why,
        })
    }
}

impl From<target::Error> for Trouble {
    fn from(error: target::Error) -> Trouble {
        match error {
            target::Error::Cancelled => Trouble::Late,
            error => Trouble::Other(error.to_string()),
        }
    }
}

/// Processes that are run again, as long as nobody has had enough.
#[derive(Clone, Copy)]
pub struct Replays<'o> {
    /// What opens them.
    pub opener: &'o dyn Opener,
    /// When it is enough.
    pub cancel: &'o Cancel,
}

impl Replays<'_> {
    fn open(&self, process: ProcessId) -> Result<Box<dyn Target>, Trouble> {
        if self.cancel.is_cancelled() {
            return Err(Trouble::Late);
        }
        Ok(self.opener.open(process, self.cancel)?)
    }

    /// Brings a process to where event `event` is next, or to its end.
    fn go_to(&self, process: &mut dyn Target, event: EventNo) -> Result<(), Trouble> {
        let past = process.history().ok_or(Trouble::Short)?;
        match past.seek(Position::Event(event), self.cancel) {
            Ok(Arrival::There | Arrival::End) => Ok(()),
            Ok(Arrival::Interrupted) => Err(Trouble::Late),
            Ok(Arrival::Diverged(_)) => Err(Trouble::Diverged),
            Ok(_) => Err(Trouble::Short),
            // It says so as an error where it stops between two events.
            Err(_) if self.cancel.is_cancelled() => Err(Trouble::Late),
            Err(error) => Err(error.into()),
        }
    }
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The function.
    pub function: String,
    /// Path of the file.
    pub file: String,
    /// The line.
    pub line: u32,
}

impl Line {
    /// Function and place, with no more of the path than tells it.
    fn text(&self) -> String {
        let file = std::path::Path::new(&self.file).file_name();
        let file = file.map_or(self.file.as_str().into(), |name| name.to_string_lossy());
        let function = text::without_generics(&self.function);
        format!("{} at {file}:{}", text::last_parts(&function), self.line)
    }

    fn of(frame: &Frame) -> Option<Line> {
        let place = frame.place.as_ref()?;
        Some(Line {
            function: frame.name.clone().unwrap_or_else(|| "?".to_string()),
            file: place.file.path.clone(),
            line: place.line,
        })
    }
}

/// A call, where it is in the source. Many programs send by a function of their
/// own that does nothing else: who called that one says what was sent and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Where it is.
    #[serde(flatten)]
    pub at: Line,
    /// Those that led there, the innermost first.
    pub callers: Vec<Line>,
}

impl Call {
    /// As many callers as are kept.
    const CALLERS: usize = 3;

    /// Where it is, and who called that: up to the first that is of another
    /// file, as what is beside a function that sends helps it to.
    pub fn text(&self) -> String {
        let mut text = self.at.text();
        for caller in &self.callers {
            text += &format!(" < {}", caller.text());
            if caller.file != self.at.file {
                break;
            }
        }
        text
    }

    /// The innermost frames that are the program's own; of a program without
    /// such, the innermost that have a line.
    fn of(stack: &Stack) -> Option<Call> {
        let is_own = |frame: &&Frame| {
            let place = frame.place.as_ref();
            place.is_some_and(|place| place.line != 0 && !text::is_library(&place.file.path))
        };
        let take = |lines: &mut dyn Iterator<Item = Line>| {
            Some(Call {
                at: lines.next()?,
                callers: lines.take(Call::CALLERS).collect(),
            })
        };
        let frames = || stack.frames.iter();
        take(&mut frames().filter(is_own).filter_map(Line::of))
            .or_else(|| take(&mut frames().filter_map(Line::of)))
    }
}

/// A call of which the stack is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The event.
    pub event: EventNo,
    /// The thread that makes it.
    pub thread: ThreadNo,
    /// Number of the call.
    pub nr: u64,
    /// Its first arguments.
    pub args: [u64; 2],
}

impl Site {
    /// Of a call.
    pub fn of(event: &Event<'_>) -> Site {
        Site {
            event: event.number,
            thread: event.thread,
            nr: event.nr,
            args: [event.args[0], event.args[1]],
        }
    }

    /// Whether its thread is in this call, or about to make it. A thread whose
    /// turn has just come may still be where it was before.
    fn is_here(&self, process: &dyn Target) -> bool {
        process.thread_state(self.thread).is_some_and(|thread| {
            let args = [thread.registers.rdi, thread.registers.rsi];
            thread.call == Some(self.nr) && args == self.args
        })
    }
}

/// Source lines of calls.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    found: HashMap<EventId, Call>,
    /// Events that replay did not come to.
    unreached: usize,
    /// Why it came no further.
    trouble: Option<Trouble>,
}

impl Lines {
    /// Where a call is.
    pub fn of(&self, event: EventId) -> Option<&Call> {
        self.found.get(&event)
    }

    /// Whether replay may find more.
    pub fn is_partial(&self) -> bool {
        self.unreached > 0
    }

    /// What there is to say of those that were not found.
    pub fn note(&self) -> Option<String> {
        let why = self.trouble.as_ref().filter(|_| self.unreached > 0)?;
        let events = match self.unreached {
            1 => "1 event".to_string(),
            count => format!("{count} events"),
        };
        Some(format!("(no source line of {events}: {why})"))
    }
}

/// Where these calls are in the source, as far as that was found before.
pub fn known(history: &History, calls: &[(EventId, Site)]) -> Lines {
    collect(history, &Kept::load(history.set()), calls, None)
}

fn collect(
    history: &History,
    kept: &Kept,
    calls: &[(EventId, Site)],
    trouble: Option<Trouble>,
) -> Lines {
    let mut lines = Lines {
        trouble,
        ..Lines::default()
    };
    for (id, _) in calls {
        let Some(process) = history.id_of(id.process) else {
            continue;
        };
        match kept.lines.get(&(process, id.number)) {
            Some(Some(call)) => {
                lines.found.insert(*id, call.clone());
            }
            Some(None) => {}
            None => lines.unreached += 1,
        }
    }
    lines
}

/// Where these calls are in the source. What was not found before is looked
/// for by replay, and kept. `budget_ms` is for how long that may go on: what
/// could not be found in so much time is not looked for again with no more.
pub fn lines(
    history: &History,
    calls: &[(EventId, Site)],
    budget_ms: u64,
    replays: Replays<'_>,
) -> Lines {
    let mut kept = Kept::load(history.set());
    let mut wanted: BTreeMap<ProcessId, Vec<Site>> = BTreeMap::new();
    for (id, site) in calls {
        if let Some(process) = history.id_of(id.process)
            && !kept.lines.contains_key(&(process, id.number))
        {
            wanted.entry(process).or_default().push(*site);
        }
    }
    let mut new = Vec::new();
    let mut trouble = None;
    let mut failed = false;
    let library = Library::new(Options::default());
    for (process, mut sites) in wanted {
        // What was not reached then is not reached now.
        if kept.tried.get(&process).is_some_and(|ms| *ms >= budget_ms) {
            trouble.get_or_insert(Trouble::Late);
            continue;
        }
        sites.sort_unstable();
        sites.dedup();
        let found = |site: &Site, stack: Option<&Stack>| {
            new.push(((process, site.event), stack.and_then(Call::of)));
        };
        if let Err(why) = stacks(replays, &library, process, &sites, false, found) {
            trouble.get_or_insert(why);
            kept.tried.insert(process, budget_ms);
            failed = true;
        }
    }
    if failed || !new.is_empty() {
        kept.lines.extend(new);
        kept.save(history.set());
    }
    collect(history, &kept, calls, trouble)
}

/// Leads a process through these calls, which are in order, and shows the
/// stack that each one's thread has there: nothing if the thread is not in the
/// call, unless whatever it has then (`any`) will do.
fn stacks(
    replays: Replays<'_>,
    library: &Library,
    process: ProcessId,
    sites: &[Site],
    any: bool,
    mut found: impl FnMut(&Site, Option<&Stack>),
) -> Result<(), Trouble> {
    const FRAMES: usize = 200;
    let mut target = replays.open(process)?;
    for site in sites {
        // Before the event, or behind it where its thread waits in it.
        for event in [site.event, site.event.next()] {
            replays.go_to(&mut *target, event)?;
            let here = site.is_here(&*target);
            if !here && !any && event == site.event {
                continue;
            }
            let stopped = target.look();
            let inspector = Inspector::new(library, &*stopped);
            let stack = inspector.stack(ThreadId(site.thread.0), FRAMES).ok();
            found(site, stack.as_ref().filter(|_| here || any));
            if here {
                break;
            }
        }
    }
    Ok(())
}
