//! Locks in the memory of a process: what they are called, and who has them.

use std::collections::HashMap;

use causality::History;
use inspect::{Inspector, Library, Options};
use protocol::id::{Addr, EventNo, ProcessId, ProcessNo, ThreadNo};
use recording::Recording;

use super::Replays;

/// A lock in a process's memory, as far as it can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// The thread that has it.
    pub holder: Option<ThreadNo>,
    /// The variable that it is.
    pub name: Option<String>,
}

/// Looks into the memory of a process that stands before event `at`: who has the
/// locks at these addresses? The C library keeps in each who that is; where
/// another kind of lock is, what is there is no thread of the process. Empty
/// where replay does not get there.
pub fn locks(
    history: &History,
    process: ProcessId,
    at: EventNo,
    addresses: &[u64],
    replays: Replays<'_>,
) -> HashMap<u64, Lock> {
    const OWNER: u64 = 8;
    let mut found = HashMap::new();
    let Ok(mut target) = replays.open(process) else {
        return found;
    };
    if replays.go_to(&mut *target, at).is_err() {
        return found;
    }
    let Some(recording) = history.set().member(process.member) else {
        return found;
    };
    let threads = tids(recording, process.number);
    let library = Library::new(Options::default());
    let stopped = target.look();
    let inspector = Inspector::new(&library, &*stopped);
    let word = |address: Addr| {
        let mut bytes = [0; 4];
        (stopped.read(address, &mut bytes) == bytes.len()).then(|| u32::from_le_bytes(bytes))
    };
    for address in addresses {
        let at = Addr(*address);
        let locked = word(at).is_some_and(|word| word != 0);
        let owner = word(at.plus(OWNER)).filter(|_| locked);
        let name = inspector.symbolize(at);
        let name = name.map(|name| name.trim_matches(['<', '>']).to_string());
        let lock = Lock {
            holder: owner.and_then(|tid| threads.get(&tid).copied()),
            name: name.filter(|name| !name.contains('+')),
        };
        found.insert(*address, lock);
    }
    found
}

/// The threads of a process by the ids that the kernel gave them.
fn tids(recording: &Recording, process: ProcessNo) -> HashMap<u32, ThreadNo> {
    use protocol::record::kind;
    let mut threads = HashMap::new();
    if let Some(process) = recording.process(process) {
        threads.insert(process.own_pid, ThreadNo(0));
    }
    let mut log = recording.log(process);
    while log.advance() {
        if let Some((kind::THREAD_START, ..)) = log.glance()
            && let Some(event) = log.event()
        {
            threads.insert(event.value(1) as u32, event.thread_in(0));
        }
    }
    threads
}
