//! Who waits for whom.

use std::collections::{HashMap, HashSet};

use causality::{Cut, EventId, History, Interruption, WaitFor, Waiter, Waiting};
use serde::Serialize;

use crate::source::{Lock, Replays};
use crate::{Names, names};

/// Who waits for whom at a cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The threads that stand in a call.
    pub threads: Vec<Blocked>,
    /// How many threads run.
    pub running: usize,
    /// Those that will wait for ever.
    pub deadlocks: Vec<Deadlock>,
    /// Which moment it is about, if the program had an end of its own after it:
    /// the signal that came next, and where.
    pub before: Option<(&'static str, String)>,
}

/// A thread that stands in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Its name.
    pub thread: String,
    /// Name of its process.
    pub process: String,
    /// The event at which the call began.
    pub since: String,
    /// The call.
    pub call: String,
    /// For what, in words.
    pub waits_for: String,
    /// Threads of which any could let it go on.
    pub by: Vec<String>,
    /// Whether somebody outside, or time, could.
    pub outside: bool,
    /// The event that did, later in the recording.
    pub freed_by: Option<String>,
    /// The signal from outside before which the program stood so, if it had an end
    /// of its own after that.
    pub before: Option<String>,
    /// Which thread.
    #[serde(skip)]
    pub id: Waiter,
    /// What it waits for.
    #[serde(skip)]
    pub what: WaitFor,
    /// It would go on by itself after a time.
    #[serde(skip)]
    pub limited: bool,
    /// It waits for a lock, and who could let it go on is who has that.
    #[serde(skip)]
    pub is_held: bool,
}

/// Threads that wait for each other and for nobody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deadlock {
    /// All of them.
    #[serde(rename = "deadlock")]
    pub threads: Vec<String>,
    /// Some of them, each of which waits for the next, and the last for the
    /// first.
    pub cycle: Vec<String>,
}

/// Locks in memory that threads wait for, by who waits.
pub type Locks = HashMap<Waiter, Lock>;

/// The moment that is asked about: the causal past of an event, the furthest
/// that the others can have come without seeing past it (`latest`), or how
/// the program stood when it was over. If it was told to end, and had its own
/// answer to that, how it stood before.
pub fn moment(
    history: &History,
    at: Option<EventId>,
    latest: bool,
) -> (Cut, Waiting, Option<Interruption>) {
    let cut = match at {
        Some(event) if latest => history.latest(event),
        Some(event) => history.past(event),
        None => history.stopped(),
    };
    let waiting = history.waiting(&cut);
    let is_over = waiting.blocked.is_empty() && waiting.running.is_empty();
    let has_answered = is_over || history.has_ended_apart(&cut);
    let told = (at.is_none() && has_answered).then(|| history.interruption());
    match told.flatten() {
        Some(told) => (told.cut.clone(), history.waiting(&told.cut), Some(told)),
        None => (cut, waiting, None),
    }
}

/// Who waits for a lock in memory for ever, as far as the recording tells, may
/// wait for one of many. Which, and who has it, the memory of the process
/// tells, as it stands at the cut.
pub fn learn(history: &History, cut: &Cut, waiting: &mut Waiting, replays: Replays<'_>) -> Locks {
    let stuck = waiting.knots.iter().flat_map(|knot| &knot.threads);
    let stuck: HashSet<Waiter> = stuck.copied().collect();
    let mut wanted: HashMap<_, Vec<(Waiter, u64)>> = HashMap::new();
    for blocked in &waiting.blocked {
        if let WaitFor::Wake(address) = blocked.what
            && stuck.contains(&blocked.thread)
        {
            let own = wanted.entry(blocked.thread.process).or_default();
            own.push((blocked.thread, address));
        }
    }
    let mut locks = Locks::new();
    let mut holders = HashMap::new();
    for (process, waiters) in wanted {
        let Some(id) = history.id_of(process) else {
            continue;
        };
        let addresses: Vec<u64> = waiters.iter().map(|(_, address)| *address).collect();
        let found = crate::source::locks(history, id, cut.bound(process), &addresses, replays);
        for (waiter, address) in waiters {
            if let Some(lock) = found.get(&address) {
                let holder = lock.holder.map(|thread| Waiter { process, thread });
                holders.extend(holder.map(|holder| (waiter, holder)));
                locks.insert(waiter, lock.clone());
            }
        }
    }
    waiting.learn(&holders);
    locks
}

/// Who waits for whom, with what is known of locks in memory.
pub fn report(
    history: &History,
    names: &Names,
    waiting: &Waiting,
    locks: &Locks,
    told: Option<&Interruption>,
) -> Report {
    let before = told.map(|told| names::event(history, told.event));
    let name = |thread: &Waiter| names::thread(history, names, *thread);
    let blocked = waiting.blocked.iter().map(|blocked| {
        let process = blocked.thread.process;
        let lock = locks.get(&blocked.thread);
        Blocked {
            thread: name(&blocked.thread),
            process: names::process(history, process),
            since: names::event(history, EventId::new(process, blocked.since)),
            call: match recording::calls::row(blocked.nr) {
                Some(row) => row.name.to_string(),
                None => format!("syscall_{}", blocked.nr),
            },
            waits_for: wants(history, names, blocked, lock),
            by: blocked.by.iter().map(name).collect(),
            outside: blocked.outside,
            freed_by: blocked.freed_by.map(|event| names::event(history, event)),
            before: before.clone(),
            id: blocked.thread,
            what: blocked.what,
            limited: blocked.limited,
            is_held: match blocked.what {
                WaitFor::Lock(_) => true,
                WaitFor::Wake(_) => lock.is_some_and(|lock| lock.holder.is_some()),
                _ => false,
            },
        }
    });
    Report {
        threads: blocked.collect(),
        running: waiting.running.len(),
        deadlocks: waiting
            .knots
            .iter()
            .map(|knot| Deadlock {
                threads: knot.threads.iter().map(name).collect(),
                cycle: knot.circle.iter().map(name).collect(),
            })
            .collect(),
        before: told.map(|told| {
            let signal = protocol::names::signal_name(told.signal).unwrap_or("a signal");
            (signal, names::event(history, told.event))
        }),
    }
}

/// What a thread waits for, with what is known of the lock.
fn wants(
    history: &History,
    names: &Names,
    blocked: &causality::Blocked,
    lock: Option<&Lock>,
) -> String {
    match (lock.map(|lock| (&lock.name, lock.holder)), blocked.what) {
        (Some((Some(name), Some(_))), _) => format!("the mutex {name}"),
        (Some((Some(name), None)), _) => format!("a wake at {name}"),
        (Some((None, Some(_))), WaitFor::Wake(address)) => format!("the mutex at {address:#x}"),
        _ => what(history, names, blocked),
    }
}

/// What a thread waits for, in words.
pub fn what(history: &History, names: &Names, blocked: &causality::Blocked) -> String {
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
        WaitFor::Child(Some(child)) => format!("{} to end", names::process(history, child)),
        WaitFor::Wake(address) => format!("a wake at {address:#x}"),
        WaitFor::Thread(thread) => {
            let process = blocked.thread.process;
            let thread = names::thread(history, names, Waiter { process, thread });
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
