//! Where threads of a process begin and end, and get storage of their own.
//!
//! A variable of which each thread has one lies where the thread's own storage does.
//! Where that is changes at few events, and the log says which.

use protocol::id::{EventNo, ProcessId, ThreadNo};

use crate::program::Program;

/// What an event is to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Behind it there may be one more, or one may have its storage elsewhere.
    Begins,
    /// It is the last of this thread.
    Ends(ThreadNo),
}

const CLONE: u64 = 56;
const CLONE3: u64 = 435;
const ARCH_PRCTL: u64 = 158;
const EXIT: u64 = 60;

/// Those of a process, in order.
pub(super) fn turns(program: &Program, process: ProcessId) -> Vec<(EventNo, Turn)> {
    let mut found = Vec::new();
    let Some(recording) = program.recording_of(process) else {
        return found;
    };
    let mut log = recording.log(process.number);
    while log.advance() {
        let Some(event) = log.event() else { break };
        let turn = match event.nr {
            _ if !event.is_call() => continue,
            CLONE | CLONE3 | ARCH_PRCTL => Turn::Begins,
            EXIT => Turn::Ends(event.thread),
            _ => continue,
        };
        found.push((event.number, turn));
    }
    found
}
