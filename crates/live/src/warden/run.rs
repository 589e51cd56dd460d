//! Running processes until something stops one of them; then all stand still.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use protocol::layout::PREEMPT_SIGNAL;

use super::events::Outcome;
use super::governed::Farewell;
use super::process::{Process, State, Task};
use super::raw;
use super::task::Resume;
use super::{News, Warden};
use crate::proc;
use crate::talk::{Answer, Part, Report, Request, What};

/// So long a thread may take to stop: after that it waits for something that
/// nobody can cut short.
const STOPPING: Duration = Duration::from_secs(1);

impl Warden {
    /// Runs processes in a motion of the program. A thread of one of them leads: it is not
    /// stopped by what it stands at, and if there is a range, it is led out of that. None: the
    /// debugger is gone.
    pub fn go(
        &mut self,
        motion: u64,
        lead: i32,
        pids: &[i32],
        range: Option<Range<u64>>,
        part: Part,
    ) -> Option<Report> {
        // A halt that came too late for what ran before is not for this. What has come too
        // early is: another host was told to run before this one, and stands already.
        let with_others = part != Part::Whole && range.is_none();
        self.is_to_halt = self.neighbours.begin(motion, with_others);
        let report = self.run(lead, pids, range, part);
        // (Who has run has told of it before it stood.)
        self.neighbours.end(report.as_ref().is_some_and(is_news));
        report
    }

    fn run(
        &mut self,
        lead: i32,
        pids: &[i32],
        mut range: Option<Range<u64>>,
        part: Part,
    ) -> Option<Report> {
        let mut movers: BTreeSet<i32> = pids.iter().copied().collect();
        self.gather(&mut movers);
        if let Some(report) = self.take_deferred(&movers) {
            return Some(report);
        }
        let leader = match part {
            Part::Along => Some(0),
            Part::Whole | Part::Leads => self.tasks.get(&lead).map(|task| task.process),
        };
        let Some(leader) = leader else {
            return Some(Report {
                process: pids.first().copied().unwrap_or(0),
                thread: lead,
                what: What::Nobody,
            });
        };
        if std::mem::take(&mut self.is_to_halt) {
            return Some(Report {
                process: leader,
                thread: lead,
                what: What::Halted,
            });
        }
        let held = match &range {
            Some(range) => match self.step_alone(lead, range) {
                Some(report) => return Some(report),
                None => {
                    self.say(part, &Answer::Going);
                    if part != Part::Whole {
                        self.neighbours.join_in();
                    }
                    self.address(lead)
                }
            },
            None => match self.lead_past(lead, &movers) {
                Ok(held) => held,
                Err(report) => return Some(report),
            },
        };
        // Where the leader stands is not stopped at until it is past it.
        let steps_first = held.filter(|_| range.is_none());
        // (Who is led by single instructions must not be led through a pad.)
        let judged = range.is_none();
        self.insert(&movers, held.map(|address| (leader, address)), judged);
        // Who has been led out of the halt goes on when that is over.
        let is_governed = self.governor.is_some();
        let tids: Vec<i32> = self.tasks.keys().copied().collect();
        let (inside, outside): (Vec<i32>, Vec<i32>) = tids
            .into_iter()
            .partition(|tid| !is_governed || self.is_inside(*tid));
        for tid in inside {
            self.set_out(tid, tid == lead && held.is_some(), &movers);
        }
        // Those who can come into the halt again are in it when that ends: what is between a
        // halt's end and a thread's first instruction is time that the program sees.
        let (back, outside): (Vec<i32>, Vec<i32>) = outside
            .into_iter()
            .partition(|tid| !(*tid == lead && held.is_some()) && self.can_return(*tid, &movers));
        let late = self.return_to_halt(&back, &movers);
        if let Some(report) = self.take_deferred(&movers) {
            self.halt();
            return Some(report);
        }
        self.end_halt();
        for tid in late {
            // As below.
            let _ = raw::signal_thread(tid, PREEMPT_SIGNAL as u32);
        }
        for tid in outside {
            let steps = tid == lead && held.is_some();
            if !steps
                && self
                    .governor
                    .as_ref()
                    .is_some_and(|g| g.entry(tid).is_some())
            {
                // Timers of its process may be its to set again.
                let _ = raw::signal_thread(tid, PREEMPT_SIGNAL as u32);
            }
            self.set_out(tid, steps, &movers);
        }
        let told = |process, thread, what| Report {
            process,
            thread,
            what,
        };
        let report = loop {
            for tid in self.gather(&mut movers) {
                self.resume(tid);
            }
            // Either may have come while threads were made to stand (`quiesce`).
            if self.alone {
                self.farewell = Farewell::GoOn;
                self.halt();
                return None;
            }
            if std::mem::take(&mut self.is_to_halt) {
                break told(leader, lead, What::Halted);
            }
            let (tid, status) = match self.next(None) {
                News::Of(tid, status) => (tid, status),
                News::Asked(request) => {
                    self.note_request(&request);
                    self.answer_asides();
                    continue;
                }
                News::Nothing | News::Alone => continue,
                // Here nothing is left of the program; elsewhere it goes on.
                News::Lost if self.lost.is_none() => continue,
                News::Lost => {
                    self.leave_lost();
                    return Some(told(leader, lead, What::Nobody));
                }
            };
            let process = self.tasks.get(&tid).map_or(0, |task| task.process);
            match self.event(tid, status) {
                Outcome::Told(what @ (What::Exited(_) | What::Killed(_))) => {
                    if self.is_end_told(process, leader, part, &movers) {
                        break told(process, tid, what);
                    }
                }
                Outcome::Told(what) => break told(process, tid, what),
                Outcome::Passes(address) => {
                    if let Some(report) = self.pass_among(tid, address, &movers) {
                        break report;
                    }
                }
                Outcome::Stepped if tid == lead && self.is_inside(lead) => self.resume(tid),
                Outcome::Stepped if tid == lead => {
                    let at = self.address(lead).unwrap_or(0);
                    match &mut range {
                        Some(range) if !range.contains(&at) => {
                            break told(process, tid, What::Stepped);
                        }
                        Some(_) => {}
                        None => {
                            if let Some(address) = steps_first {
                                self.insert_one(leader, address);
                            }
                            if let Some(task) = self.tasks.get_mut(&tid) {
                                task.steps = false;
                            }
                        }
                    }
                    self.resume(tid);
                }
                Outcome::Stepped | Outcome::Nothing => {
                    let is_mover = self
                        .tasks
                        .get(&tid)
                        .is_some_and(|t| movers.contains(&t.process));
                    if is_mover {
                        self.resume(tid);
                    }
                }
            }
            if let Some(report) = self.take_deferred(&movers) {
                break report;
            }
        };
        self.say(part, &Answer::Halting);
        self.neighbours.end(is_news(&report));
        self.halt();
        Some(match report.what {
            What::Halted => self.last_end(leader, part, &movers).unwrap_or(report),
            _ => report,
        })
    }

    /// Whether the end of a process is something to stop for.
    fn is_end_told(&self, process: i32, leader: i32, part: Part, movers: &BTreeSet<i32>) -> bool {
        let is_over = !self.tasks.values().any(|t| movers.contains(&t.process));
        let ended = self.processes.get(&process);
        process == leader
            || is_over && part != Part::Along
            || ended.is_some_and(|ended| ended.armed.ends)
    }

    /// Who has ended while all were made to stand because that was asked for: nobody would
    /// hear of it later, and there may be nobody left who could run.
    fn last_end(&self, leader: i32, part: Part, movers: &BTreeSet<i32>) -> Option<Report> {
        let movers_ends = movers.iter().filter_map(|pid| {
            let what = self.processes.get(pid)?.ending?;
            self.is_end_told(*pid, leader, part, movers)
                .then_some(Report {
                    process: *pid,
                    thread: *pid,
                    what,
                })
        });
        movers_ends.max_by_key(|report| report.process == leader)
    }

    /// Has a thread run, if its process is to.
    pub fn set_out(&mut self, tid: i32, steps: bool, movers: &BTreeSet<i32>) {
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|t| movers.contains(&t.process)) {
            task.steps = steps;
            self.resume(tid);
        }
    }

    /// Those that were made by somebody who runs run, unless the debugger knows them:
    /// which threads stand that are to run.
    fn gather(&mut self, movers: &mut BTreeSet<i32>) -> Vec<i32> {
        let mut new = Vec::new();
        loop {
            let is_new = |p: &&Process| {
                !movers.contains(&p.pid) && p.maker.is_some_and(|m| movers.contains(&m))
            };
            let Some(pid) = self.processes.values().find(is_new).map(|p| p.pid) else {
                break;
            };
            movers.insert(pid);
            new.extend(self.tids(pid));
        }
        // A thread's first stop may have been told before its beginning was: nothing
        // more will be heard of it.
        let begin = self.tasks.iter();
        let begin = begin.filter(|(_, t)| t.fresh && movers.contains(&t.process));
        new.extend(begin.map(|(tid, _)| *tid));
        new
    }

    /// Has a thread go on as its process is to.
    pub fn resume(&mut self, tid: i32) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let Some(process) = self.processes.get(&task.process) else {
            return;
        };
        let watches = process.watches();
        if task.watches != watches
            && let Some(stopped) = task.stopped()
            && stopped.watch(&watches).is_ok()
        {
            task.watches = watches;
        }
        let how = match task.steps {
            true => Resume::Step,
            false => process.resume(),
        };
        task.resume(how);
    }

    pub fn address(&self, tid: i32) -> Option<u64> {
        let task = self.tasks.get(&tid)?;
        let own = task.stopped()?.registers().ok()?;
        let seen = || {
            let governor = self.governor.as_ref()?;
            let process = self.processes.get(&task.process)?;
            let is_inside = governor.is_inside(process, own.rip);
            is_inside.then(|| governor.registers(process, tid, &own))?
        };
        Some(seen().map_or(own.rip, |seen| seen.rip))
    }

    /// Puts breakpoints in. One place of one process is left out. If they may be, those with
    /// conditions are judged in the process itself.
    fn insert(&mut self, movers: &BTreeSet<i32>, but: Option<(i32, u64)>, judged: bool) {
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            let process = self.processes.get(&pid).filter(|_| movers.contains(&pid));
            let all = process.map(|process| process.armed.breakpoints.clone());
            for address in all.unwrap_or_default() {
                if but == Some((pid, address)) {
                    continue;
                }
                let has_pad = judged && self.insert_pad(pid, address);
                if !has_pad {
                    self.insert_one(pid, address);
                }
            }
        }
    }

    /// Puts a breakpoint in, if there is to be one.
    pub fn insert_one(&mut self, pid: i32, address: u64) {
        if let Some(process) = self.processes.get(&pid)
            && process.armed.breakpoints.contains(&address)
        {
            let space = self.spaces.entry(process.space).or_default();
            space.insert(process, address);
        }
    }

    /// Stops everybody, and takes all breakpoints out.
    pub fn halt(&mut self) {
        self.park();
        let is_exempt = |tid: &i32| self.governor.as_ref().is_some_and(|g| g.is_exempt(*tid));
        let all = self.tasks.keys().copied();
        let all: Vec<i32> = all.filter(|tid| !is_exempt(tid)).collect();
        self.quiesce(&all);
        for process in self.processes.values() {
            if let Some(space) = self.spaces.get_mut(&process.space) {
                space.lift_all(process);
            }
        }
        self.leave_pads();
        for task in self.tasks.values_mut() {
            task.steps = false;
        }
    }

    /// While somebody runs there is one thing to ask for: that all stop. And the agent can be
    /// asked; what it says is told when nobody waits for more.
    pub fn note_request(&mut self, request: &Request) {
        match request {
            Request::Halt => self.is_to_halt = true,
            Request::Aside(question) => self.asides.push(question.clone()),
            _ => {}
        }
    }

    /// Has threads stop, and waits for them. What happens to them meanwhile is told
    /// later.
    pub fn quiesce(&mut self, tids: &[i32]) {
        for tid in tids {
            if let Some(State::Running(running)) = self.tasks.get(tid).map(|task| &task.state) {
                running.interrupt();
            }
        }
        let deadline = Instant::now() + STOPPING;
        loop {
            let is_awaited = |tid: &i32| {
                let task = self.tasks.get(tid);
                let is_awaited = |task: &&Task| task.is_running() && !task.vforks;
                let task = task.filter(is_awaited);
                task.is_some_and(|task| !task.is_still_stuck(*tid))
            };
            if !tids.iter().any(is_awaited) {
                break;
            }
            match self.next(Some(deadline)) {
                News::Of(tid, status) => self.note_aside(tid, status),
                News::Asked(request) => self.note_request(&request),
                News::Alone | News::Lost => {}
                News::Nothing => {
                    self.note_stuck(tids);
                    break;
                }
            }
        }
        // A trap that is on its way comes before the next instruction. It is of a
        // breakpoint, or of a step, that will not be there any more.
        for tid in tids {
            let Some(task) = self.tasks.get_mut(tid) else {
                continue;
            };
            let is_ours = task
                .stopped()
                .is_some_and(|s| s.interrupted && !s.by_job_control);
            if !is_ours || !raw::has_trap(*tid) {
                continue;
            }
            if let State::Stopped(stopped) = &mut task.state {
                stopped.interrupted = false;
            }
            task.resume(Resume::On);
            if let Ok(Some((tid, status))) = raw::wait(*tid, false) {
                self.note_aside(tid, status);
            }
        }
    }

    /// Takes note of those who did not stop in time: they are not waited for again as long as
    /// they do not run.
    fn note_stuck(&mut self, tids: &[i32]) {
        for tid in tids {
            if let Some(task) = self.tasks.get_mut(tid)
                && task.is_running()
                && !task.vforks
            {
                task.stuck = proc::switches(task.process, *tid);
            }
        }
    }

    /// What was put off.
    fn take_deferred(&mut self, movers: &BTreeSet<i32>) -> Option<Report> {
        let mut all = self.tasks.iter_mut();
        let (tid, task) = all.find(|(_, t)| t.deferred.is_some() && movers.contains(&t.process))?;
        Some(Report {
            process: task.process,
            thread: *tid,
            what: task.deferred.take()?,
        })
    }
}

/// Whether somebody has come to something by itself.
fn is_news(report: &Report) -> bool {
    report.what != What::Halted
}
