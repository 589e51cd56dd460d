//! What came of a replay, read from the memory that it is led by.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use protocol::instruction::Instruction;
use protocol::record::kind;
use protocol::replay::{EXECUTED, EXITED, difference, match_depth, outcome};

use ::target::{Difference, Ending, Outcome, Verdict};
use protocol::id::{EventNo, ImageNo, ProcessId, ThreadNo};

use protocol::id::Addr;

use crate::file::ReplayFile;

/// What became of the stream at place `index` of a file's table. `ended` says
/// how the process with this id ended, where it did not end as it should.
pub fn judge(
    file: &ReplayFile,
    index: usize,
    (process, image): (ProcessId, ImageNo),
    ended: impl Fn(u32) -> String,
) -> Verdict {
    let mut verdict = Verdict::none(process, image);
    let Some(entry) = file.header().table.get(index) else {
        return verdict;
    };
    let pid = entry.pid.load(Acquire);
    if pid == 0 {
        return verdict;
    }
    let next = entry.event.load(Relaxed);
    verdict.events = next.saturating_sub(entry.first_event.load(Relaxed));
    verdict.output = entry.output.load(Relaxed);
    let exit = entry.exit.load(Relaxed);
    let signal = entry.signal.load(Relaxed) as i32;
    if exit & EXITED != 0 {
        verdict.ending = Some(Ending::Exited((exit & 0xff) as i32));
    } else if exit & EXECUTED != 0 {
        verdict.ending = Some(Ending::Executed);
    } else if signal != 0 && entry.signal_event.load(Relaxed).checked_add(1) == Some(next) {
        // It was the last thing that happened.
        verdict.ending = Some(Ending::Signal(signal));
    }
    verdict.outcome = match entry.outcome.load(Acquire) {
        outcome::EQUAL => Outcome::Equal,
        outcome::HELD_UP => Outcome::HeldUp(format!(
            "it waits for turn {}.{} of another process that shares its memory",
            entry.expected.load(Relaxed),
            entry.found.load(Relaxed)
        )),
        outcome::DIVERGED => Outcome::Diverged(difference_of(file, index)),
        _ => Outcome::Failed(ended(pid) + &missed_place(entry)),
    };
    verdict
}

/// How the replay of a stream differs from it.
pub fn difference_of(file: &ReplayFile, index: usize) -> Difference {
    let table = &file.header().table;
    let entry = &table[index % table.len()];
    let (expected, found) = describe(entry);
    Difference {
        event: EventNo(entry.event.load(Relaxed)),
        thread: ThreadNo(entry.thread.load(Relaxed)),
        expected,
        found,
        address: Addr(entry.rip.load(Relaxed)),
    }
}

/// If the process was on its way to where it was interrupted then: how near it
/// came.
fn missed_place(entry: &protocol::replay::Stream) -> String {
    let differed = match entry.likest.load(Relaxed).checked_sub(1) {
        None => return String::new(),
        Some(likest) => match likest as u32 {
            match_depth::NONE => {
                return "; it did not come to where it was interrupted, or not with the same \
                        registers"
                    .into();
            }
            match_depth::REGISTERS => "the top of the stack",
            match_depth::STACK => "the vector registers",
            match_depth::VECTORS => "what the next instructions use",
            match_depth::OPERANDS => "the stack further up",
            match_depth::FRAMES => "what registers point to",
            match_depth::POINTED => "what pointers lead to",
            _ => "what pointers lead to, some steps away",
        },
    };
    format!("; it came to where it was interrupted, but {differed} differed")
}

fn describe(entry: &protocol::replay::Stream) -> (String, String) {
    let (expected, found) = (entry.expected.load(Relaxed), entry.found.load(Relaxed));
    let index = entry.index.load(Relaxed);
    let name = |nr: u64| {
        if let Some(what) = Instruction::from_number(protocol::replay::NO_CALL.wrapping_sub(nr)) {
            return match what {
                Instruction::Counter => "a read of the time-stamp counter".to_string(),
                what => format!("the instruction {}", what.name()),
            };
        }
        protocol::table::syscall(nr).map_or(format!("system call {nr}"), |row| row.name.to_string())
    };
    match entry.difference.load(Relaxed) {
        difference::CALL => {
            let wanted = entry.expected_nr.load(Relaxed);
            let expected = match expected as u8 {
                kind::CALL => name(wanted),
                kind::START => format!("{} begins", name(wanted)),
                kind::END => format!("{} returns", name(wanted)),
                kind::CLOCK => format!("{} (a clock)", name(wanted)),
                kind::TSC => name(protocol::replay::NO_CALL),
                kind::ANSWER => "an instruction that the processor answers".to_string(),
                kind::SIGNAL => "a signal".to_string(),
                kind::PREEMPT => "a preemption".to_string(),
                other => format!("a record of kind {other}"),
            };
            (expected, name(entry.found_nr.load(Relaxed)))
        }
        difference::ARGUMENT => (
            format!("argument {index} = {expected:#x}"),
            format!("{found:#x}"),
        ),
        difference::DATA => (
            format!("the recorded data behind argument {index}"),
            "other data".into(),
        ),
        difference::RESULT => (
            format!("result {}", expected as i64),
            format!("{}", found as i64),
        ),
        difference::SIGNAL => (
            "no fault".into(),
            format!("signal {index} at {expected:#x}, address {found:#x}"),
        ),
        difference::MEMORY => (
            format!("memory at {expected:#x}"),
            format!("it could not be had ({found:#x})"),
        ),
        difference::POSITION => (
            "a place to be interrupted at".into(),
            "it is recorded in a form that is not known".into(),
        ),
        difference::PLACE => {
            let expected = match expected as u8 {
                kind::SIGNAL => "a signal",
                _ => "a preemption",
            };
            let found = name(entry.found_nr.load(Relaxed));
            (expected.into(), format!("{found}{}", missed_place(entry)))
        }
        difference::THREAD => (
            format!("thread {expected} to run"),
            "there is no such thread".into(),
        ),
        other => (
            format!("{expected:#x}"),
            format!("{found:#x} (difference {other})"),
        ),
    }
}
