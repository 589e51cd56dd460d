//! What a debugger on another host is told without having asked.
//!
//! A question over a network takes longer than its answer is worth. So a stop comes
//! with what is asked of every stop: who is there, the threads of who has stopped, a
//! window of its stack, and what it has mapped if that is not as it was; of others as
//! well, as long as they are few.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use super::Warden;
use super::process::Task;
use crate::mapped::{self, Mappings};
use crate::proc;
use crate::talk::{self, Answer, Glimpse, Part, Report, Seen, Sight};

/// So much of a stack is told, in bytes: some frames.
const WINDOW: usize = 16 << 10;
const PAGE: u64 = 4096;
/// Threads of so many are looked at, besides those of who has stopped.
const THREADS: usize = 32;

/// What was told before.
#[derive(Default)]
pub struct Told {
    mappings: HashMap<i32, Mappings>,
}

/// The socket of a debugger on another host: it is the standard input.
pub fn standard_input() -> std::io::Result<OwnedFd> {
    std::io::stdin().as_fd().try_clone_to_owned()
}

/// Which signals a process ignores and catches.
pub fn masks(pid: i32) -> Answer {
    let status = proc::Status::of(pid, pid).unwrap_or_default();
    Answer::Masks(status.ignored, status.caught)
}

impl Warden {
    /// What those read who are started: not what a debugger on another host says.
    pub fn input(&self) -> Stdio {
        match self.far {
            Some(_) => Stdio::null(),
            None => Stdio::inherit(),
        }
    }

    /// Says something in the middle of a motion that others have a part in.
    pub fn say(&mut self, part: Part, word: &Answer) {
        if part != Part::Whole {
            // If nobody is there any more, that is noticed where it is listened.
            let _ = talk::send(&mut self.socket, word);
        }
    }

    /// What /proc tells of a thread, for who cannot read it.
    pub fn seen(&self, pid: i32, tid: i32, task: &Task) -> Option<Seen> {
        self.far.as_ref()?;
        let is_stuck = task.stopped().is_none();
        Some(Seen {
            name: proc::thread_name(pid, tid),
            blocked: proc::Status::of(pid, tid).map_or(0, |status| status.blocked),
            call: is_stuck.then(|| proc::call_of(pid, tid)).flatten(),
        })
    }

    /// The answer when all stand.
    pub fn stopped(&mut self, report: Report) -> Answer {
        let sight = self.sight(&report).map(Box::new);
        Answer::Stopped(report, sight)
    }

    fn sight(&mut self, report: &Report) -> Option<Sight> {
        self.far.as_ref()?;
        let processes = self.who();
        // Who has stopped comes first.
        let mut pids: Vec<i32> = processes
            .iter()
            .filter(|process| process.ending.is_none())
            .map(|process| process.pid)
            .collect();
        pids.sort_by_key(|pid| *pid != report.process);
        let mut glimpses = Vec::new();
        let mut most = THREADS;
        for pid in pids {
            let count = self.tids(pid).len();
            if count > most && pid != report.process {
                continue;
            }
            most = most.saturating_sub(count);
            let lead = Some(report.thread).filter(|_| pid == report.process);
            glimpses.extend(self.glimpse(pid, lead.unwrap_or(pid)));
        }
        Some(Sight {
            processes,
            glimpses,
        })
    }

    /// What a process has mapped, which is known then.
    pub fn mapped(&mut self, pid: i32) -> Answer {
        let mappings = mapped::of(pid);
        if let Some(told) = &mut self.far {
            told.mappings.insert(pid, mappings.clone());
        }
        Answer::Mapped(mappings)
    }

    fn glimpse(&mut self, pid: i32, lead: i32) -> Option<Glimpse> {
        let threads = self.threads(pid).ok()?;
        let memory = self.stack(lead, &threads);
        let mappings = mapped::of(pid);
        let told = &mut self.far.as_mut()?.mappings;
        let is_new = told.get(&pid) != Some(&mappings);
        if is_new {
            told.insert(pid, mappings.clone());
        }
        Some(Glimpse {
            process: pid,
            threads,
            mappings: is_new.then_some(mappings),
            memory,
        })
    }

    /// The innermost part of a thread's stack, from the page on that it begins in.
    fn stack(&self, tid: i32, threads: &[talk::Thread]) -> Option<(u64, Vec<u8>)> {
        const RSP: usize = 19;
        let thread = threads.iter().find(|thread| thread.tid == tid)?;
        let sp = *thread.registers.as_ref()?.general.get(RSP)?;
        let process = self.processes.get(&self.tasks.get(&tid)?.process)?;
        // What is below it may be in use as well.
        let from = sp.saturating_sub(128) & !(PAGE - 1);
        let mut bytes = vec![0; WINDOW + PAGE as usize];
        let got = process.read(from, &mut bytes);
        bytes.truncate(got);
        Some((from, bytes))
    }
}
