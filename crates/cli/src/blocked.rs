//! `mw blocked`: who waits for whom.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;

use causality::{Blocked, Cut, History, WaitFor, Waiter, Waiting};
use serde_json::json;

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::select::Chosen;
use crate::source::{self, InMemory};

/// Tell who waits for whom, at the end of the recording or at a cut, and
/// whether it is a deadlock.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: Chosen,

    /// At the cut that is the causal past of this event: NAME:NUMBER, or a
    /// pattern for the last event that fits it
    #[arg(long, value_name = "EVENT")]
    at: Option<String>,

    /// With --at: the furthest that the other processes can have come
    #[arg(long, requires = "at")]
    latest: bool,

    /// Do not replay to find out which thread holds the lock that others wait
    /// for
    #[arg(long)]
    no_replay: bool,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Locks in memory that threads wait for, by who waits.
type Locks = HashMap<Waiter, InMemory>;

/// Who waits for a lock in memory for ever, as far as the recording tells, may
/// wait for one of many. Which, the memory of the process tells.
fn learn(history: &History, cut: &Cut, waiting: &mut Waiting) -> Locks {
    let stuck = waiting.knots.iter().flat_map(|knot| &knot.threads);
    let stuck: HashSet<Waiter> = stuck.copied().collect();
    let mut wanted: HashMap<u32, Vec<(Waiter, u64)>> = HashMap::new();
    for blocked in &waiting.blocked {
        if let WaitFor::Wake(address) = blocked.what
            && stuck.contains(&blocked.thread)
        {
            let own = wanted.entry(blocked.thread.0).or_default();
            own.push((blocked.thread, address));
        }
    }
    let mut locks = Locks::new();
    let mut holders = HashMap::new();
    for (place, waiters) in wanted {
        let Some(process) = history.process(place) else {
            continue;
        };
        let addresses: Vec<u64> = waiters.iter().map(|(_, address)| *address).collect();
        let found = source::mutexes(
            history.recording(),
            process.number,
            cut.bound(place),
            &addresses,
        );
        for (waiter, address) in waiters {
            if let Some(lock) = found.get(&address) {
                holders.extend(lock.holder.map(|holder| (waiter, (place, holder))));
                locks.insert(waiter, lock.clone());
            }
        }
    }
    waiting.learn(&holders);
    locks
}

/// What a thread waits for, with what is known of locks in memory.
fn wants(history: &History, blocked: &Blocked, locks: &Locks) -> String {
    let lock = locks.get(&blocked.thread);
    match lock.map(|lock| (&lock.name, lock.holder)) {
        Some((Some(name), Some(_))) => format!("the mutex {name}"),
        Some((Some(name), None)) => format!("a wake at {name}"),
        Some((None, Some(_))) => format!("the mutex at {}", address(blocked)),
        _ => what(history, blocked),
    }
}

fn address(blocked: &Blocked) -> String {
    match blocked.what {
        WaitFor::Wake(address) => format!("{address:#x}"),
        _ => String::new(),
    }
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        let mut history = causes::open(&recording)?;
        let at = match &self.at {
            Some(text) => Some(causes::event(&history, text)?),
            None => None,
        };
        let (cut, waiting) = causes::ask(&mut history, |history| {
            let cut = match at {
                Some(event) if self.latest => history.latest(event),
                Some(event) => history.past(event),
                None => history.stopped(),
            };
            let waiting = history.waiting(&cut);
            (cut, waiting)
        })?;
        let mut waiting = waiting;
        let locks = match self.no_replay {
            true => Locks::new(),
            false => learn(&history, &cut, &mut waiting),
        };
        let mut out = Output::new();
        if self.json {
            json_lines(&mut out, &history, &waiting, &locks)?;
        } else {
            print(&mut out, &history, &waiting, &locks)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What a thread waits for, in words.
pub fn what(history: &History, blocked: &Blocked) -> String {
    let channel = |number: u32| match history.channel(number) {
        Some(channel) => format!("c{number} ({} {})", channel.kind, channel.name),
        None => format!("c{number}"),
    };
    match blocked.what {
        WaitFor::Receive(number) => format!("something to receive from {}", channel(number)),
        WaitFor::Send(number) => format!("room to send to {}", channel(number)),
        WaitFor::Connection => "somebody to connect".to_string(),
        WaitFor::Accept => "a connection to be made".to_string(),
        WaitFor::Child(None) => "a child to end".to_string(),
        WaitFor::Child(Some(child)) => {
            format!("{} to end", causes::process_name(history, child))
        }
        WaitFor::Wake(address) => format!("a wake at {address:#x}"),
        WaitFor::Thread(thread) => {
            let thread = causes::thread_name(history, (blocked.thread.0, thread));
            format!("{thread} to end")
        }
        WaitFor::Lock(lock) => match history.lock_name(lock) {
            Some(name) => format!("the lock on {name}"),
            None => "a lock on a file".to_string(),
        },
        WaitFor::Time => "time to pass".to_string(),
        WaitFor::Signal => "a signal".to_string(),
        WaitFor::Any { count, .. } => format!("something to receive from one of {count} channels"),
        WaitFor::Other => "something that the recording does not tell".to_string(),
    }
}

fn call(blocked: &Blocked) -> String {
    match recording::calls::row(blocked.nr) {
        Some(row) => row.name.to_string(),
        None => format!("syscall_{}", blocked.nr),
    }
}

/// Those who could let it go on, a few of them by name.
fn by(history: &History, blocked: &Blocked) -> String {
    const NAMED: usize = 4;
    let mut names: Vec<String> = blocked
        .by
        .iter()
        .take(NAMED)
        .map(|thread| causes::thread_name(history, *thread))
        .collect();
    if blocked.by.len() > NAMED {
        names.push(format!("{} others", blocked.by.len() - NAMED));
    }
    if blocked.outside && !blocked.limited {
        names.push("somebody outside".to_string());
    }
    match names.is_empty() {
        true => "nobody".to_string(),
        false => names.join(", "),
    }
}

fn json_lines(
    out: &mut Output,
    history: &History,
    waiting: &Waiting,
    locks: &Locks,
) -> Result<(), Failure> {
    let name = |thread: &Waiter| causes::thread_name(history, *thread);
    for blocked in &waiting.blocked {
        let object = json!({
            "thread": name(&blocked.thread),
            "process": causes::process_name(history, blocked.thread.0),
            "since": format!("{}:{}", causes::process_name(history, blocked.thread.0), blocked.since),
            "call": call(blocked),
            "waits_for": wants(history, blocked, locks),
            "by": blocked.by.iter().map(name).collect::<Vec<_>>(),
            "outside": blocked.outside,
            "freed_by": blocked.freed_by.map(|event| causes::name(history, event)),
        });
        out.line(&object.to_string())?;
    }
    for knot in &waiting.knots {
        let object = json!({
            "deadlock": knot.threads.iter().map(name).collect::<Vec<_>>(),
            "cycle": knot.circle.iter().map(name).collect::<Vec<_>>(),
        });
        out.line(&object.to_string())?;
    }
    Ok(())
}

fn print(
    out: &mut Output,
    history: &History,
    waiting: &Waiting,
    locks: &Locks,
) -> Result<(), Failure> {
    if waiting.blocked.is_empty() {
        let text = match waiting.running.len() {
            0 => "no process is alive here; `--at EVENT` asks about an earlier moment".to_string(),
            count => format!("nobody waits; {count} threads run"),
        };
        out.line(&text)?;
        return Ok(());
    }
    let names: Vec<String> = waiting
        .blocked
        .iter()
        .map(|blocked| causes::thread_name(history, blocked.thread))
        .collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    for (blocked, name) in waiting.blocked.iter().zip(&names) {
        let since = causes::name(
            history,
            causality::EventId::new(blocked.thread.0, blocked.since),
        );
        let freed = match blocked.freed_by {
            Some(event) => format!("; let go by {}", causes::name(history, event)),
            None => String::new(),
        };
        let from = match (blocked.what, locks.get(&blocked.thread)) {
            (WaitFor::Thread(_) | WaitFor::Child(Some(_)), _) => String::new(),
            (WaitFor::Wake(_), Some(lock)) if lock.holder.is_some() => {
                format!(", which {} has", by(history, blocked))
            }
            (WaitFor::Lock(_), _) => format!(", which {} has", by(history, blocked)),
            // Nobody is known who could bring it.
            (WaitFor::Other | WaitFor::Time, _) if blocked.by.is_empty() => String::new(),
            _ if blocked.by.is_empty() && blocked.limited => String::new(),
            _ => format!(" from {}", by(history, blocked)),
        };
        let limit = match (blocked.what, blocked.limited) {
            (WaitFor::Time, _) | (_, false) => "",
            _ => ", or its time to be over",
        };
        out.line(&format!(
            "{}  {} since {since}: {}{from}{limit}{}",
            out.paint(
                Style::Numbered(blocked.thread.0),
                &format!("{name:<width$}")
            ),
            call(blocked),
            wants(history, blocked, locks),
            out.paint(Style::Dim, &freed)
        ))?;
    }
    for knot in &waiting.knots {
        out.line("")?;
        let text = match knot.circle.is_empty() {
            true => format!(
                "DEADLOCK: {} will wait for ever: nobody is left to let {} go on",
                knot.threads
                    .iter()
                    .map(|thread| causes::thread_name(history, *thread))
                    .collect::<Vec<_>>()
                    .join(", "),
                if knot.threads.len() == 1 {
                    "it"
                } else {
                    "them"
                }
            ),
            false => {
                let mut circle: Vec<String> = knot
                    .circle
                    .iter()
                    .map(|thread| causes::thread_name(history, *thread))
                    .collect();
                circle.extend(circle.first().cloned());
                format!("DEADLOCK: {}", circle.join(" waits for "))
            }
        };
        out.line(&out.paint(Style::Red, &text))?;
    }
    if waiting.knots.is_empty() {
        out.line("")?;
        out.line("no deadlock: everybody waits for somebody who can go on")?;
    }
    Ok(())
}
