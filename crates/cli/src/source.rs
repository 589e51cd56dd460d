//! Where in the source events are, and what threads run: found by replay.
//!
//! A recording has no stacks: what a program had on its stack at an event is
//! known only by running it again up to there. That takes time, so it is done
//! for the events that are shown, for so long and no longer, and what was found
//! is kept beside the recording: whoever asks again is answered at once.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::replay::{Arrival, Ground, Session};
use causality::{EventId, History};
use inspect::frames::{Frame, FrameKind, Stack};
use inspect::target::ThreadId;
use inspect::{Inspector, Library, Options};
use recording::{Event, Recording};
use serde_json::{Value, json};

use crate::debug::Stopped;

/// Name of the file that what was found is kept in.
const KEPT: &str = "source.json";
/// Raised whenever what is kept, or how it is found, changes.
const VERSION: u64 = 2;

/// How long is looked for the functions that threads run, once.
const NAMING: Duration = Duration::from_secs(5);
/// Of a process with more threads, the first ones get names.
const NAMED_MOST: usize = 64;

const LATE: &str = "replay had no more time; `--source-time` gives it more";

/// A place in the source that a call was made at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub function: String,
    pub file: String,
    pub line: u32,
}

impl Line {
    /// Function and place, with no more of the path than tells it.
    fn text(&self) -> String {
        let file = Path::new(&self.file).file_name();
        let file = file.map_or(self.file.as_str().into(), |name| name.to_string_lossy());
        let function = without_generics(&self.function);
        format!("{} at {file}:{}", last_parts(&function), self.line)
    }

    fn json(&self) -> Value {
        json!({ "function": self.function, "file": self.file, "line": self.line })
    }

    fn from_json(value: &Value) -> Option<Line> {
        Some(Line {
            function: value.get("function")?.as_str()?.to_string(),
            file: value.get("file")?.as_str()?.to_string(),
            line: u32::try_from(value.get("line")?.as_u64()?).ok()?,
        })
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
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

    pub fn json(&self) -> Value {
        let mut value = self.at.json();
        let callers: Vec<Value> = self.callers.iter().map(Line::json).collect();
        if let Some(object) = value.as_object_mut() {
            object.insert("callers".to_string(), Value::Array(callers));
        }
        value
    }

    fn from_json(value: &Value) -> Option<Call> {
        let callers = value.get("callers")?.as_array()?.iter();
        Some(Call {
            at: Line::from_json(value)?,
            callers: callers.map(Line::from_json).collect::<Option<Vec<_>>>()?,
        })
    }
}

/// A call of which the stack is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub event: u64,
    /// The thread that makes it.
    pub thread: u32,
    pub nr: u64,
    pub args: [u64; 2],
}

impl Site {
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
    fn is_here(&self, session: &Session) -> bool {
        session.threads().iter().any(|thread| {
            let registers = thread.by_name();
            thread.number == self.thread
                && thread.call == Some(self.nr)
                && [registers.rdi, registers.rsi] == self.args
        })
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Lines {
    found: HashMap<EventId, Call>,
    /// Events that replay did not come to.
    unreached: usize,
    /// Why it came no further.
    trouble: Option<String>,
    /// Replay may find more.
    partial: bool,
}

impl Lines {
    pub fn of(&self, event: EventId) -> Option<&Call> {
        self.found.get(&event)
    }

    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// What there is to say of those that were not found.
    pub fn note(&self) -> Option<String> {
        let why = self.trouble.as_deref().filter(|_| self.unreached > 0)?;
        let events = match self.unreached {
            1 => "1 event".to_string(),
            count => format!("{count} events"),
        };
        Some(format!("(no source line of {events}: {why})"))
    }
}

/// What is kept: by process and event; `None` for what has no source.
#[derive(Default)]
struct Kept {
    lines: BTreeMap<(u32, u64), Option<Call>>,
    /// For how long events of a process were looked for in vain.
    tried: BTreeMap<u32, u64>,
    /// Functions that threads run, once that was looked for.
    threads: Option<BTreeMap<(u32, u32), String>>,
}

/// What the recording was when something was found in it.
fn journal(recording: &Recording) -> Value {
    let meta = std::fs::metadata(recording.dir().join(recording::JOURNAL));
    match meta {
        Ok(meta) => json!([VERSION, meta.len(), meta.mtime(), meta.mtime_nsec()]),
        Err(_) => Value::Null,
    }
}

impl Kept {
    fn load(recording: &Recording) -> Kept {
        Kept::read(recording).unwrap_or_default()
    }

    fn read(recording: &Recording) -> Option<Kept> {
        let text = std::fs::read(recording.dir().join(KEPT)).ok()?;
        let all: Value = serde_json::from_slice(&text).ok()?;
        if all.get("recording")? != &journal(recording) {
            return None;
        }
        let mut kept = Kept::default();
        for entry in all.get("lines")?.as_array()? {
            let number = |at: usize| entry.get(at)?.as_u64();
            let process = u32::try_from(number(0)?).ok()?;
            kept.lines
                .insert((process, number(1)?), Call::from_json(entry.get(2)?));
        }
        for entry in all.get("tried")?.as_array()? {
            let number = |at: usize| entry.get(at)?.as_u64();
            let process = u32::try_from(number(0)?).ok()?;
            kept.tried.insert(process, number(1)?);
        }
        if let Some(threads) = all.get("threads")?.as_array() {
            let mut names = BTreeMap::new();
            for entry in threads {
                let number = |at: usize| u32::try_from(entry.get(at)?.as_u64()?).ok();
                let name = entry.get(2)?.as_str()?.to_string();
                names.insert((number(0)?, number(1)?), name);
            }
            kept.threads = Some(names);
        }
        Some(kept)
    }

    /// Where it cannot be written it is found again the next time.
    fn save(&self, recording: &Recording) {
        let lines = self.lines.iter();
        let lines = lines
            .map(|((process, event), call)| json!([process, event, call.as_ref().map(Call::json)]));
        let threads = self.threads.as_ref().map(|threads| {
            let threads = threads.iter();
            let list = threads.map(|((process, thread), name)| json!([process, thread, name]));
            list.collect::<Vec<_>>()
        });
        let all = json!({
            "recording": journal(recording),
            "lines": lines.collect::<Vec<_>>(),
            "tried": self.tried.iter().map(|(process, ms)| json!([process, ms])).collect::<Vec<_>>(),
            "threads": threads,
        });
        let path = recording.dir().join(KEPT);
        let temporary = recording
            .dir()
            .join(format!("{KEPT}.{}", std::process::id()));
        let written = std::fs::write(&temporary, all.to_string());
        if written
            .and_then(|()| std::fs::rename(&temporary, &path))
            .is_err()
        {
            let _ = std::fs::remove_file(&temporary);
        }
    }
}

/// Whether and for how long source lines are looked for.
#[derive(clap::Args)]
pub struct Wish {
    /// Do not show the source line of each event's call
    #[arg(long)]
    no_source: bool,

    /// Replay for so many seconds at most to find source lines that are not
    /// known yet
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    source_time: f64,
}

impl Wish {
    /// Where these calls are in the source, as far as it is wished to know.
    pub fn lines(&self, history: &History, calls: &[(EventId, Site)]) -> Lines {
        lines(history, calls, self.time())
    }

    /// The same, as far as it is known without replay. Whether there is more to
    /// be found is [`Lines::is_partial`].
    pub fn known(&self, history: &History, calls: &[(EventId, Site)]) -> Lines {
        let mut known = lines(history, calls, self.time().map(|_| Duration::ZERO));
        known.partial = known.unreached > 0 && self.time().is_some_and(|time| !time.is_zero());
        known
    }

    fn time(&self) -> Option<Duration> {
        let time = Duration::try_from_secs_f64(self.source_time).unwrap_or(Duration::ZERO);
        (!self.no_source).then_some(time)
    }
}

/// Where these calls are in the source, if that is wished. Looks for what is not
/// known yet for `time`.
fn lines(history: &History, calls: &[(EventId, Site)], time: Option<Duration>) -> Lines {
    let Some(time) = time else {
        return Lines::default();
    };
    let recording = history.recording();
    let mut kept = Kept::load(recording);
    let mut lines = Lines::default();
    let mut wanted: BTreeMap<u32, Vec<Site>> = BTreeMap::new();
    let number_of = |id: &EventId| history.process(id.process).map(|process| process.number);
    for (id, site) in calls {
        let Some(number) = number_of(id) else {
            continue;
        };
        if !kept.lines.contains_key(&(number, id.number)) {
            let own = wanted.entry(number).or_default();
            own.push(*site);
        }
    }
    if !wanted.is_empty() && !time.is_zero() {
        let mut new = Vec::new();
        let mut replayer = Replayer::new(recording, time);
        let mut failed = false;
        let budget = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        for (number, mut events) in wanted {
            // What was not reached then is not reached now.
            if kept.tried.get(&number).is_some_and(|ms| *ms >= budget) {
                lines.trouble.get_or_insert(LATE.to_string());
                continue;
            }
            events.sort_unstable();
            events.dedup();
            let done = replayer.stacks(number, &events, false, |site, stack| {
                new.push(((number, site.event), stack.and_then(users)));
            });
            if let Err(trouble) = done {
                lines.trouble.get_or_insert(trouble);
                kept.tried.insert(number, budget);
                failed = true;
            }
        }
        if failed || !new.is_empty() {
            kept.lines.extend(new);
            kept.save(recording);
        }
    }
    for (id, _) in calls {
        let Some(number) = number_of(id) else {
            continue;
        };
        match kept.lines.get(&(number, id.number)) {
            Some(Some(call)) => {
                lines.found.insert(*id, call.clone());
            }
            Some(None) => {}
            None => lines.unreached += 1,
        }
    }
    lines
}

/// The functions that threads run which have not given themselves a name:
/// number of the process and of the thread. Looked for once.
pub fn thread_functions(history: &History) -> BTreeMap<(u32, u32), String> {
    let recording = history.recording();
    let unnamed = history.unnamed_threads();
    if unnamed.is_empty() {
        return BTreeMap::new();
    }
    let mut kept = Kept::load(recording);
    if let Some(known) = kept.threads {
        return known;
    }
    let mut wanted: BTreeMap<u32, Vec<Site>> = BTreeMap::new();
    let events: Vec<EventId> = unnamed
        .into_iter()
        .map(|(place, _, event)| EventId::new(place, event))
        .collect();
    history.look_all(&events, |_, event| {
        let own = wanted.entry(event.process).or_default();
        own.push(Site::of(event));
    });
    let mut found = BTreeMap::new();
    let mut replayer = Replayer::new(recording, NAMING);
    for (number, mut threads) in wanted {
        threads.truncate(NAMED_MOST);
        threads.sort_unstable();
        // A thread whose function is not found keeps its number.
        let _ = replayer.stacks(number, &threads, true, |site, stack| {
            if let Some(name) = stack.and_then(run_by) {
                found.insert((number, site.thread), name);
            }
        });
    }
    kept.threads = Some(found.clone());
    kept.save(recording);
    found
}

/// Leads processes to events, as long as there is time.
struct Replayer {
    ground: Arc<Ground>,
    library: Library,
    deadline: Instant,
}

impl Replayer {
    fn new(recording: &Arc<Recording>, time: Duration) -> Replayer {
        Replayer {
            ground: Arc::new(Ground::new(recording)),
            library: Library::new(Options::default()),
            deadline: Instant::now() + time,
        }
    }

    /// Leads a process through these calls, which are in order, and shows the
    /// stack that each one's thread has there: nothing if the thread is not in
    /// the call, unless whatever it has then (`any`) will do. On failure says why
    /// it came no further.
    fn stacks(
        &mut self,
        process: u32,
        sites: &[Site],
        any: bool,
        mut look: impl FnMut(&Site, Option<&Stack>),
    ) -> Result<(), String> {
        const FRAMES: usize = 200;
        if Instant::now() >= self.deadline {
            return Err(LATE.to_string());
        }
        ::replay::check(self.ground.recording()).map_err(|error| error.to_string())?;
        let interrupt = Arc::new(AtomicBool::new(false));
        let watch = Watch::new(Arc::clone(&interrupt), self.deadline);
        let opened = Session::open_with(&self.ground, process, interrupt);
        let mut session = opened.map_err(|error| match error {
            ::replay::Error::Interrupted => LATE.to_string(),
            error => error.to_string(),
        })?;
        for site in sites {
            // Before the event, or behind it where its thread waits in it.
            for event in [site.event, site.event + 1] {
                match session.go_to(event).map_err(|error| error.to_string()) {
                    Ok(Arrival::There | Arrival::End) => {}
                    Ok(Arrival::Interrupted) => return Err(LATE.to_string()),
                    Ok(other) => return Err(told(&other).to_string()),
                    // It says so as an error where it stops between two events.
                    Err(_) if Instant::now() >= self.deadline => return Err(LATE.to_string()),
                    Err(error) => return Err(error),
                }
                let here = site.is_here(&session);
                if !here && !any && event == site.event {
                    continue;
                }
                let stopped = Stopped::new(&session);
                let inspector = Inspector::new(&self.library, &stopped);
                let stack = inspector.stack(ThreadId(site.thread), FRAMES).ok();
                look(site, stack.as_ref().filter(|_| here || any));
                if here {
                    break;
                }
            }
        }
        drop(watch);
        Ok(())
    }
}

/// A lock in a process's memory, as far as it can be told.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    /// The thread that has it.
    pub holder: Option<u32>,
    /// The variable that it is.
    pub name: Option<String>,
}

/// Looks into the memory of a process that stands before event `at`: who has the
/// locks at these addresses? The C library keeps in each who that is; where
/// another kind of lock is, what is there is no thread of the process.
pub fn mutexes(
    recording: &Arc<Recording>,
    process: u32,
    at: u64,
    addresses: &[u64],
) -> HashMap<u64, InMemory> {
    const OWNER: u64 = 8;
    let mut found = HashMap::new();
    if ::replay::check(recording).is_err() {
        return found;
    }
    let Ok(mut session) = Session::open(recording, process) else {
        return found;
    };
    let watch = Watch::new(session.interrupter(), Instant::now() + NAMING);
    if !matches!(session.go_to(at), Ok(Arrival::There | Arrival::End)) {
        return found;
    }
    drop(watch);
    let threads = tids(recording, process);
    let library = Library::new(Options::default());
    let stopped = Stopped::new(&session);
    let inspector = Inspector::new(&library, &stopped);
    let word = |address: u64| {
        let mut bytes = [0; 4];
        (session.read(address, &mut bytes) == bytes.len()).then(|| u32::from_le_bytes(bytes))
    };
    for address in addresses {
        let locked = word(*address).is_some_and(|word| word != 0);
        let owner = word(address.wrapping_add(OWNER)).filter(|_| locked);
        let name = inspector.symbolize(*address);
        let name = name.map(|name| name.trim_matches(['<', '>']).to_string());
        let mutex = InMemory {
            holder: owner.and_then(|tid| threads.get(&tid).copied()),
            name: name.filter(|name| !name.contains('+')),
        };
        found.insert(*address, mutex);
    }
    found
}

/// The threads of a process by the ids that the kernel gave them.
fn tids(recording: &Recording, process: u32) -> HashMap<u32, u32> {
    use protocol::record::kind;
    let mut threads = HashMap::new();
    if let Some(process) = recording.process(process) {
        threads.insert(process.own_pid, 0);
    }
    let mut log = recording.log(process);
    while log.advance() {
        if let Some((kind::THREAD_START, ..)) = log.glance()
            && let Some(event) = log.event()
        {
            threads.insert(event.value(1) as u32, event.value(0) as u32);
        }
    }
    threads
}

fn told(arrival: &Arrival) -> &'static str {
    match arrival {
        Arrival::Diverged(_) => "replay came to something else than the recording",
        _ => "the log ends before",
    }
}

/// Stops a session when its time is over.
struct Watch {
    over: Arc<AtomicBool>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Watch {
    fn new(interrupt: Arc<AtomicBool>, deadline: Instant) -> Watch {
        const STEP: Duration = Duration::from_millis(10);
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                // Each motion clears it: it is set until it is heard.
                if Instant::now() >= deadline {
                    interrupt.store(true, Ordering::Relaxed);
                }
                std::thread::park_timeout(STEP);
            }
        });
        Watch {
            over,
            thread: Mutex::new(Some(thread)),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.get_mut().ok().and_then(Option::take);
        if let Some(thread) = thread {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Whether a source file is a library's that came with the language.
fn is_library(path: &str) -> bool {
    const MARKS: [&str; 8] = [
        "/rustc/",
        "/rustlib/",
        "/.cargo/registry/",
        "/usr/include/",
        "/usr/lib/",
        "/usr/local/go/",
        "/sysdeps/",
        "/nptl/",
    ];
    MARKS.iter().any(|mark| path.contains(mark)) || path.starts_with("./")
}

/// The innermost frames that are the program's own; of a program without such,
/// the innermost that have a line.
fn users(stack: &Stack) -> Option<Call> {
    let is_own = |frame: &&Frame| {
        let place = frame.place.as_ref();
        place.is_some_and(|place| place.line != 0 && !is_library(&place.file.path))
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

/// The outermost function of the program's own: what a thread was started to
/// run.
fn run_by(stack: &Stack) -> Option<String> {
    let outermost = stack.frames.iter().rev().find(|frame| {
        let place = frame.place.as_ref();
        frame.kind != FrameKind::Signal && place.is_some_and(|place| !is_library(&place.file.path))
    })?;
    short(outermost.name.as_deref()?)
}

/// A function's name without the types it is made for, which take more room than
/// they tell.
fn without_generics(name: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0usize;
    let mut last = ' ';
    for c in name.chars() {
        let is_arrow = std::mem::replace(&mut last, c) == '-' && c == '>';
        match c {
            // Of a generic: `<T as Trait>::f` and `operator<` are something else.
            '<' if depth > 0 || plain.ends_with(|c: char| c.is_alphanumeric() || c == '_') => {
                if depth == 0 && plain.ends_with("operator") {
                    plain.push(c);
                } else {
                    depth += 1;
                }
            }
            '>' if depth > 0 && !is_arrow => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    match depth {
        0 => plain,
        _ => name.to_string(),
    }
}

/// The last two parts of a path: a function, and what it belongs to.
fn last_parts(name: &str) -> &str {
    let path = name.split(['(', '<']).next().unwrap_or(name);
    match path.rmatch_indices("::").nth(1) {
        Some((at, separator)) => name.get(at + separator.len()..).unwrap_or(name),
        None => name,
    }
}

/// The last part of a function's name that says something, as a name.
fn short(name: &str) -> Option<String> {
    // Without what is in angle brackets and round ones.
    let mut plain = String::new();
    let mut depth = 0usize;
    for c in name.chars() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let parts = plain.split("::").flat_map(|part| part.split('.'));
    let named = parts.filter(|part| !part.is_empty() && !part.starts_with('{'));
    let last = named.last()?.trim();
    recording::names::is_name(last).then(|| last.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_left_out_of_names() {
        for (function, name) in [
            ("serve", "serve"),
            ("send<bank::Reply>", "send"),
            ("ask<Vec<u8>, Option<T>>", "ask"),
            ("map<int, std::less<int> >::find(int)", "map::find(int)"),
            ("<T as Trait>::f", "<T as Trait>::f"),
            (
                "operator<(A const&, B const&)",
                "operator<(A const&, B const&)",
            ),
            ("map<T, fn(T) -> U>", "map"),
            ("odd<T", "odd<T"),
        ] {
            assert_eq!(without_generics(function), name, "{function}");
        }
        for (function, name) in [
            ("serve", "serve"),
            ("Line::send", "Line::send"),
            ("bank::line::Line::send", "Line::send"),
            ("a::b::c(x::y::z)", "b::c(x::y::z)"),
            ("<a::B as c::D>::f", "<a::B as c::D>::f"),
        ] {
            assert_eq!(last_parts(function), name, "{function}");
        }
    }

    #[test]
    fn functions_are_named_by_what_says_something() {
        for (function, name) in [
            ("worker", "worker"),
            ("bank::worker::serve", "serve"),
            ("bank::main::{closure#0}", "main"),
            ("bank::serve::{{closure}}", "serve"),
            ("Pool<int>::work(int, char const*)", "work"),
            ("main.handle.func1", "func1"),
        ] {
            assert_eq!(short(function).as_deref(), Some(name), "{function}");
        }
    }
}
