//! Leading one thread by single instructions, out of a range or past a breakpoint.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Warden;
use super::events::{Outcome, is_monitors};
use super::process::{Process, State};
use super::raw;
use super::task::Resume;
use crate::talk::{Report, What};

/// So many instructions are stepped with all others standing. A loop that waits for
/// another thread takes more.
const ALONE: usize = 2000;

impl Warden {
    /// Has a thread execute one instruction while everybody else stands. It gets no
    /// signal by that.
    fn single(&mut self, tid: i32) -> Outcome {
        if self.is_parked(tid) {
            return self.lead_out(tid);
        }
        let mut signal = 0;
        let outcome = loop {
            if let Some(task) = self.tasks.get_mut(&tid) {
                if let State::Stopped(stopped) = &mut task.state {
                    signal = match std::mem::take(&mut stopped.signal) {
                        0 => signal,
                        new => new,
                    };
                }
                task.steps = true;
                task.resume(Resume::Step);
            }
            let Ok(Some((tid, status))) = raw::wait(tid, false) else {
                break Outcome::Nothing;
            };
            let outcome = self.event(tid, status);
            // A stop that was asked for earlier, when something else stopped it: the
            // instruction is still to be executed.
            let is_late = matches!(
                status,
                raw::Status::Stopped {
                    event: libc::PTRACE_EVENT_STOP,
                    ..
                }
            );
            let task = self.tasks.get(&tid);
            let stopped = task.and_then(|task| task.stopped());
            if !is_late || stopped.is_none_or(|stopped| stopped.by_job_control) {
                break outcome;
            }
        };
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.steps = false;
            if let State::Stopped(stopped) = &mut task.state {
                match (signal, stopped.signal) {
                    (0, _) => {}
                    (_, 0) => stopped.signal = signal,
                    // It can hold one: the other comes again.
                    _ => drop(raw::signal_thread(tid, signal)),
                }
            }
        }
        outcome
    }

    /// Whether a thread is about to make a system call, which may take for ever.
    fn is_at_call(&self, tid: i32) -> bool {
        if self.is_in_call(tid) {
            return true;
        }
        let process = self.tasks.get(&tid).map(|task| task.process);
        let process = process.and_then(|pid| self.processes.get(&pid));
        let (Some(process), Some(address)) = (process, self.address(tid)) else {
            return false;
        };
        let mut code = [0; 2];
        process.read(address, &mut code) == 2 && matches!(code, [0x0f, 0x05 | 0x34] | [0xcd, 0x80])
    }

    /// Leads a thread out of a range of addresses, by one instruction at least, while
    /// all others stand. None: that takes others.
    pub fn step_alone(&mut self, tid: i32, range: &Range<u64>) -> Option<Report> {
        let process = self.tasks.get(&tid)?.process;
        let told = |what| {
            Some(Report {
                process,
                thread: tid,
                what,
            })
        };
        for _ in 0..ALONE {
            let signal = self.tasks.get(&tid)?.stopped()?.signal;
            if self.is_at_call(tid) || self.tasks.get(&tid)?.stopped()?.by_job_control {
                return None;
            }
            let before = self.address(tid);
            match self.single(tid) {
                Outcome::Told(what) => return told(what),
                Outcome::Passes(_) | Outcome::Nothing | Outcome::Stepped => {}
            }
            let Some(at) = self.address(tid) else {
                return told(What::Nobody);
            };
            // What leads into the monitor goes through it with the others.
            let got = self.tasks.get(&tid)?.stopped()?.signal;
            if self.is_inside(tid) || self.governor.is_some() && is_monitors(got) {
                return None;
            }
            // A signal that came first is kept for later.
            if Some(at) == before && got != signal {
                continue;
            }
            if let Some(index) = self.processes.get_mut(&process)?.changed() {
                return told(What::Watch(index));
            }
            if !range.contains(&at) {
                return told(What::Stepped);
            }
        }
        None
    }

    /// Leads threads past the breakpoints that they stand at and that were told, while
    /// everybody stands. If the leader stands at a system call that cannot be done
    /// so, its address; or what came of it.
    pub fn lead_past(&mut self, lead: i32, movers: &BTreeSet<i32>) -> Result<Option<u64>, Report> {
        let mut held = None;
        for tid in self.tasks.keys().copied().collect::<Vec<_>>() {
            let Some(task) = self.tasks.get(&tid) else {
                continue;
            };
            let pid = task.process;
            let (Some(address), Some(process)) = (self.address(tid), self.processes.get(&pid))
            else {
                continue;
            };
            let is_told = tid == lead || task.reported == Some(address);
            let is_one = process.armed.breakpoints.contains(&address);
            if !is_told || !is_one || !movers.contains(&pid) {
                continue;
            }
            if self.is_at_call(tid) {
                if tid == lead {
                    held = Some(address);
                }
                continue;
            }
            match self.single(tid) {
                Outcome::Told(what) => {
                    return Err(Report {
                        process: pid,
                        thread: tid,
                        what,
                    });
                }
                _ => {
                    let process = self.processes.get_mut(&pid);
                    if let Some(index) = process.and_then(Process::changed) {
                        return Err(Report {
                            process: pid,
                            thread: tid,
                            what: What::Watch(index),
                        });
                    }
                }
            }
        }
        Ok(held)
    }

    /// Leads a thread past a breakpoint that does not count, while the others in its
    /// address space stand: none may slip by meanwhile.
    pub fn pass_among(&mut self, tid: i32, address: u64, movers: &BTreeSet<i32>) -> Option<Report> {
        let pid = self.tasks.get(&tid)?.process;
        let space = self.processes.get(&pid)?.space;
        let sharers: Vec<i32> = self
            .tasks
            .iter()
            .filter(|(other, task)| {
                let process = self.processes.get(&task.process);
                **other != tid && process.is_some_and(|p| p.space == space)
            })
            .map(|(other, _)| *other)
            .collect();
        self.quiesce(&sharers);
        if let Some(process) = self.processes.get(&pid) {
            self.spaces.entry(space).or_default().lift(process, address);
        }
        // What cannot be stepped alone is let run without the breakpoint for as long.
        let outcome = match self.is_at_call(tid) {
            true => Outcome::Nothing,
            false => self.single(tid),
        };
        self.insert_one(pid, address);
        let told = match outcome {
            Outcome::Told(what) => Some(what),
            _ => {
                let process = self.processes.get_mut(&pid)?;
                process.changed().map(What::Watch)
            }
        };
        if let Some(what) = told {
            return Some(Report {
                process: pid,
                thread: tid,
                what,
            });
        }
        for other in sharers.into_iter().chain([tid]) {
            let task = self.tasks.get(&other);
            if task.is_some_and(|t| t.deferred.is_none() && movers.contains(&t.process)) {
                self.resume(other);
            }
        }
        None
    }
}
