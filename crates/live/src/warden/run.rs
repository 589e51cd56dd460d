//! Running processes until something stops one of them; then all stand still.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use protocol::condition;
use protocol::layout::{PREEMPT_SIGNAL, SIGSYS};

use super::governed::Farewell;
use super::process::{Process, Space, State, Task};
use super::raw::{self, Status};
use super::task::{Resume, Running};
use super::{News, Warden};
use crate::proc;
use crate::talk::{Report, Request, What};

/// What became of a thread that was heard of.
pub enum Outcome {
    /// Something to be told.
    Told(What),
    /// It came to a breakpoint whose conditions are false.
    Passes(u64),
    /// It has executed an instruction.
    Stepped,
    /// Nothing that anybody wants to know.
    Nothing,
}

/// So long a thread may take to stop: after that it waits for something that
/// nobody can cut short.
const STOPPING: Duration = Duration::from_secs(1);

/// So many instructions are stepped with all others standing. A loop that waits for
/// another thread takes more.
const ALONE: usize = 2000;

/// Of a trap that the kernel made itself: a breakpoint; and of one for a step.
const SI_KERNEL: i32 = 0x80;
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
const TRAP_HWBKPT: i32 = 4;

impl Warden {
    /// Runs processes. A thread of one of them leads: it is not stopped by what it
    /// stands at, and if there is a range, it is led out of that. None: the debugger
    /// is gone.
    pub fn run(
        &mut self,
        lead: i32,
        pids: &[i32],
        mut range: Option<Range<u64>>,
    ) -> Option<Report> {
        let mut movers: BTreeSet<i32> = pids.iter().copied().collect();
        // A halt that came too late for what ran before is not for this.
        self.is_to_halt = false;
        if let Some(report) = self.take_deferred(&movers) {
            return Some(report);
        }
        let Some(leader) = self.tasks.get(&lead).map(|task| task.process) else {
            return Some(Report {
                process: pids.first().copied().unwrap_or(0),
                thread: lead,
                what: What::Nobody,
            });
        };
        let held = match &range {
            Some(range) => match self.step_alone(lead, range) {
                Some(report) => return Some(report),
                None => self.address(lead),
            },
            None => match self.lead_past(lead, &movers) {
                Ok(held) => held,
                Err(report) => return Some(report),
            },
        };
        // Where the leader stands is not stopped at until it is past it.
        let steps_first = held.filter(|_| range.is_none());
        self.insert(&movers, held.map(|address| (leader, address)));
        // Who has been led out of the halt goes on when that is over.
        let is_governed = self.governor.is_some();
        let tids: Vec<i32> = self.tasks.keys().copied().collect();
        let (inside, outside): (Vec<i32>, Vec<i32>) = tids
            .into_iter()
            .partition(|tid| !is_governed || self.is_inside(*tid));
        for tid in inside {
            self.set_out(tid, tid == lead && held.is_some(), &movers);
        }
        self.end_halt();
        for tid in outside {
            let steps = tid == lead && held.is_some();
            if !steps
                && self
                    .governor
                    .as_ref()
                    .is_some_and(|g| g.seat(tid).is_some())
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
                    continue;
                }
                News::Nothing | News::Alone => continue,
                News::Lost => {
                    self.leave_lost();
                    return Some(told(leader, lead, What::Nobody));
                }
            };
            let process = self.tasks.get(&tid).map_or(0, |task| task.process);
            match self.event(tid, status) {
                Outcome::Told(what @ (What::Exited(_) | What::Killed(_))) => {
                    let is_over = !self.tasks.values().any(|t| movers.contains(&t.process));
                    if process == leader || is_over {
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
                    self.join(&mut movers);
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
        self.halt();
        Some(report)
    }

    /// Has a thread run, if its process is to.
    fn set_out(&mut self, tid: i32, steps: bool, movers: &BTreeSet<i32>) {
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|t| movers.contains(&t.process)) {
            task.steps = steps;
            self.resume(tid);
        }
    }

    /// Those that were made by somebody who runs run.
    fn join(&mut self, movers: &mut BTreeSet<i32>) {
        let fresh = self.tasks.iter().filter(|(_, task)| task.fresh);
        let fresh = fresh.filter(|(_, task)| movers.contains(&task.process));
        for tid in fresh.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.resume(tid);
        }
        let new: Vec<i32> = self
            .processes
            .values()
            .filter(|p| !movers.contains(&p.pid) && p.maker.is_some_and(|m| movers.contains(&m)))
            .map(|p| p.pid)
            .collect();
        for pid in new {
            movers.insert(pid);
            for tid in self.tids(pid) {
                self.resume(tid);
            }
        }
    }

    /// Has a thread go on as its process is to.
    fn resume(&mut self, tid: i32) {
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

    fn address(&self, tid: i32) -> Option<u64> {
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

    /// Puts breakpoints in. One place of one process is left out.
    fn insert(&mut self, movers: &BTreeSet<i32>, but: Option<(i32, u64)>) {
        for process in self.processes.values().filter(|p| movers.contains(&p.pid)) {
            let space = self.spaces.entry(process.space).or_default();
            for address in &process.armed.breakpoints {
                if but != Some((process.pid, *address)) {
                    space.insert(process, *address);
                }
            }
        }
    }

    /// Puts a breakpoint in, if there is to be one.
    fn insert_one(&mut self, pid: i32, address: u64) {
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
        for task in self.tasks.values_mut() {
            task.steps = false;
        }
        for process in self.processes.values_mut() {
            process.maker = None;
        }
    }

    /// While somebody runs there is one thing to ask for: that all stop.
    pub fn note_request(&mut self, request: &Request) {
        self.is_to_halt |= matches!(request, Request::Halt);
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
                task.is_some_and(|task| task.is_running() && !task.vforks)
            };
            if !tids.iter().any(is_awaited) {
                break;
            }
            match self.next(Some(deadline)) {
                News::Of(tid, status) => self.note_aside(tid, status),
                News::Asked(request) => self.note_request(&request),
                News::Alone | News::Lost => {}
                News::Nothing => break,
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

    /// Has a thread execute one instruction while everybody else stands. It gets no
    /// signal by that.
    fn single(&mut self, tid: i32) -> Outcome {
        if self.is_parked(tid) {
            return self.lead_out(tid);
        }
        let mut signal = 0;
        if let Some(task) = self.tasks.get_mut(&tid) {
            if let State::Stopped(stopped) = &mut task.state {
                signal = std::mem::take(&mut stopped.signal);
            }
            task.steps = true;
            task.resume(Resume::Step);
        }
        let outcome = match raw::wait(tid, false) {
            Ok(Some((tid, status))) => self.event(tid, status),
            _ => Outcome::Nothing,
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
    fn step_alone(&mut self, tid: i32, range: &Range<u64>) -> Option<Report> {
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
    fn lead_past(&mut self, lead: i32, movers: &BTreeSet<i32>) -> Result<Option<u64>, Report> {
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
    fn pass_among(&mut self, tid: i32, address: u64, movers: &BTreeSet<i32>) -> Option<Report> {
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

    /// Something became of a thread: what that is.
    pub fn event(&mut self, tid: i32, status: Status) -> Outcome {
        let outcome = self.become_of(tid, status);
        if let (Outcome::Told(what), Some(task)) = (&outcome, self.tasks.get_mut(&tid)) {
            task.held = Warden::holds(*what);
        }
        outcome
    }

    fn become_of(&mut self, tid: i32, status: Status) -> Outcome {
        let (signal, event) = match status {
            Status::Exited(code) => return self.ended(tid, What::Exited(code)),
            Status::Killed(signal) => return self.ended(tid, What::Killed(signal)),
            Status::Stopped { signal, event } => (signal, event),
        };
        let Some(task) = self.tasks.get_mut(&tid) else {
            self.early.insert(tid);
            return Outcome::Nothing;
        };
        match event {
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                task.stop(tid, 0, false);
                task.vforks = event == libc::PTRACE_EVENT_VFORK;
                self.made(tid, event)
            }
            libc::PTRACE_EVENT_VFORK_DONE => {
                task.stop(tid, 0, false);
                task.vforks = false;
                Outcome::Nothing
            }
            libc::PTRACE_EVENT_EXEC => self.execed(tid),
            libc::PTRACE_EVENT_STOP => {
                let by_job_control = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
                task.stop(tid, 0, by_job_control.contains(&signal));
                if let State::Stopped(stopped) = &mut task.state {
                    stopped.interrupted = true;
                }
                Outcome::Nothing
            }
            _ if signal == libc::SIGTRAP | 0x80 => {
                task.stop(tid, 0, false);
                self.at_call(tid)
            }
            _ if signal == libc::SIGTRAP => {
                task.stop(tid, 0, false);
                self.trapped(tid)
            }
            _ => {
                task.stop(tid, signal as u32, false);
                self.signalled(tid, signal as u32)
            }
        }
    }

    fn ended(&mut self, tid: i32, what: What) -> Outcome {
        let Some(task) = self.tasks.remove(&tid) else {
            self.early.remove(&tid);
            return Outcome::Nothing;
        };
        // The first thread's end is told when all others are gone.
        if tid != task.process && !self.tids(task.process).is_empty() {
            return Outcome::Nothing;
        }
        if let Some(process) = self.processes.get_mut(&task.process) {
            process.ending = Some(what);
        }
        Outcome::Told(what)
    }

    /// A thread has made another, or a process.
    fn made(&mut self, maker: i32, event: i32) -> Outcome {
        let new = raw::event_message(maker).unwrap_or(0) as i32;
        let Some(pid) = self.tasks.get(&maker).map(|task| task.process) else {
            return Outcome::Nothing;
        };
        let state = match self.early.remove(&new) {
            true => State::Stopped(Running::new(new).into_stopped(0, false)),
            false => State::Running(Running::new(new)),
        };
        let group = proc::Status::of_thread(new).map_or(new, |status| status.group);
        if event == libc::PTRACE_EVENT_CLONE && group == pid {
            let process = self.processes.get_mut(&pid);
            let number = process.map_or(0, |process| {
                process.next_number += 1;
                process.next_number - 1
            });
            let task = self
                .tasks
                .entry(new)
                .or_insert_with(|| Task::new(pid, number, state));
            task.fresh = task.stopped().is_some();
            return Outcome::Nothing;
        }
        let Some(parent) = self.processes.get(&pid) else {
            return Outcome::Nothing;
        };
        let space = match event == libc::PTRACE_EVENT_VFORK {
            true => parent.space,
            false => new,
        };
        // What is in its memory is a copy, breakpoints included.
        let copied = self.spaces.get(&parent.space).cloned().unwrap_or_default();
        let (armed, forks) = (parent.armed.clone(), parent.armed.forks);
        let is_ours = parent.is_ours;
        let Ok(mut process) = Process::new(new, space) else {
            return Outcome::Nothing;
        };
        process.arm(armed);
        process.next_number = 1;
        process.maker = Some(pid);
        process.is_ours = is_ours;
        self.processes.insert(new, process);
        self.spaces.entry(space).or_insert(copied);
        self.tasks.insert(new, Task::new(new, 0, state));
        match forks {
            true => Outcome::Told(What::Forked(new)),
            false => Outcome::Nothing,
        }
    }

    /// A process has begun another program, by one of its threads: that is the first
    /// now, and the only one.
    fn execed(&mut self, pid: i32) -> Outcome {
        for tid in self.tids(pid) {
            if tid != pid {
                self.tasks.remove(&tid);
            }
        }
        let mut task = Task::new(pid, 0, State::Running(Running::new(pid)));
        task.stop(pid, 0, false);
        self.tasks.insert(pid, task);
        let Some(process) = self.processes.get_mut(&pid) else {
            return Outcome::Nothing;
        };
        process.next_number = 1;
        if self.governor.is_some() && proc::is_64_bit(pid) != Some(false) {
            // What cannot be is plainly traced.
            let _ = self.put_monitor(pid);
        }
        let Some(process) = self.processes.get_mut(&pid) else {
            return Outcome::Nothing;
        };
        if process.begin_again().is_err() || proc::is_64_bit(pid) == Some(false) {
            // Nothing that could be debugged any more.
            let _ = self.detach(pid);
            return Outcome::Nothing;
        }
        self.spaces.insert(pid, Space::default());
        Outcome::Told(What::Exec)
    }

    fn at_call(&mut self, tid: i32) -> Outcome {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return Outcome::Nothing;
        };
        let Some(number) = raw::entered_call(tid) else {
            // Behind a call. If that was cut short to have it stop, this is the stop:
            // the kernel makes no other.
            if let State::Stopped(stopped) = &mut task.state {
                stopped.interrupted = true;
                stopped.takes_signal = true;
            }
            return Outcome::Nothing;
        };
        let process = self.processes.get(&task.process);
        // The monitor makes calls of its own: those of the program have its numbers.
        if let (Some(governor), Some(process)) = (&self.governor, process)
            && let Some(own) = task.stopped().and_then(|stopped| stopped.registers().ok())
            && governor.is_inside(process, own.rip)
            && !governor.makes(process, &own, number)
        {
            return Outcome::Nothing;
        }
        let calls = process.and_then(|process| process.armed.calls.as_ref());
        match calls.is_some_and(|calls| calls.is_empty() || calls.contains(&number)) {
            true => {
                task.at_call = true;
                Outcome::Told(What::Call(number))
            }
            false => Outcome::Nothing,
        }
    }

    /// A trap: a breakpoint, a step, watched memory, or the program's own.
    fn trapped(&mut self, tid: i32) -> Outcome {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return Outcome::Nothing;
        };
        let code = raw::signal_code(tid).unwrap_or(0);
        let State::Stopped(stopped) = &mut task.state else {
            return Outcome::Nothing;
        };
        stopped.takes_signal = true;
        let (Ok(mut registers), Some(process)) =
            (stopped.registers(), self.processes.get_mut(&task.process))
        else {
            return Outcome::Nothing;
        };
        let at = registers.rip.wrapping_sub(1);
        let space = self.spaces.get(&process.space);
        if matches!(code, SI_KERNEL | TRAP_BRKPT) && space.is_some_and(|space| space.has(at)) {
            registers.rip = at;
            let _ = stopped.set_registers(&registers);
            if !counts(process, at, &registers) {
                return Outcome::Passes(at);
            }
            task.reported = Some(at);
            return Outcome::Told(What::Breakpoint);
        }
        let is_watch = stopped.take_watch_hit();
        // A step out of a call that was cut short looks like any other.
        stopped.interrupted = matches!(code, TRAP_BRKPT | TRAP_TRACE);
        if (is_watch || process.is_stepped())
            && let Some(index) = process.changed()
        {
            return Outcome::Told(What::Watch(index));
        }
        if matches!(code, TRAP_BRKPT | TRAP_TRACE | TRAP_HWBKPT)
            && (is_watch || task.steps || process.is_stepped())
        {
            return match task.steps {
                true => Outcome::Stepped,
                false => Outcome::Nothing,
            };
        }
        let trap = libc::SIGTRAP as u32;
        stopped.signal = trap;
        self.signalled(tid, trap)
    }

    /// A signal is about to come to a thread: it is told of if it is asked for, or if
    /// it would end the process.
    fn signalled(&mut self, tid: i32, signal: u32) -> Outcome {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return Outcome::Nothing;
        };
        let Some(process) = self.processes.get(&task.process) else {
            return Outcome::Nothing;
        };
        if self.governor.is_some() && is_monitors(signal) {
            if raw::says_exec_failed(tid)
                && let State::Stopped(stopped) = &mut task.state
            {
                // For who has waited for that.
                stopped.signal = 0;
            }
            return Outcome::Nothing;
        }
        let is_asked = process.armed.signals >> (signal.clamp(1, 64) - 1) & 1 != 0;
        if signal == libc::SIGINT as u32
            && process.is_ours
            && raw::signal_code(tid).is_ok_and(|code| code == SI_KERNEL)
        {
            // Ctrl-C at the terminal that it shares with the debugger: for that one.
            if let State::Stopped(stopped) = &mut task.state {
                stopped.signal = 0;
            }
            return Outcome::Told(What::Halted);
        }
        // The kernel knows the monitor's handlers only. What the program itself has done
        // wrong the monitor looks at first, and has it done again if it is deadly.
        let action = self.governor.as_ref().and_then(|governor| {
            let is_fault = raw::signal_code(tid).is_ok_and(|code| code > 0);
            let own = task.stopped().filter(|_| !is_fault)?.registers().ok()?;
            governor.action(process, &own, signal)
        });
        // The monitor has a deadly one happen again when the program is to end by it.
        let is_again =
            self.governor.is_some() && task.told == Some(signal) && process.ends_by(signal, None);
        match !is_again && (is_asked || process.ends_by(signal, action)) {
            true => {
                task.told = Some(signal);
                Outcome::Told(What::Signal(signal))
            }
            false => Outcome::Nothing,
        }
    }
}

/// The monitor's own signals: calls that trap, the one that tells it to look, and what
/// instructions that it has replaced raise.
fn is_monitors(signal: u32) -> bool {
    signal == SIGSYS as u32 || signal == PREEMPT_SIGNAL as u32
}

/// Whether a breakpoint is one to stop at: it has no condition, or one of them is
/// not false.
fn counts(process: &Process, address: u64, registers: &raw::General) -> bool {
    let own = process.armed.conditions.iter();
    let mut own = own.filter(|(at, _)| *at == address).peekable();
    if own.peek().is_none() {
        return true;
    }
    let registers = target::Registers::from_user_regs(raw::words(registers), [[0; 2]; 16]);
    own.any(|(_, code)| {
        !condition::is_false(&Machine {
            code,
            registers: &registers,
            process,
        })
    })
}

/// A condition, where a thread stands.
struct Machine<'a> {
    code: &'a [u8],
    registers: &'a target::Registers,
    process: &'a Process,
}

impl condition::Machine for Machine<'_> {
    fn code(&self, at: usize) -> Option<u8> {
        self.code.get(at).copied()
    }

    fn register(&self, number: u16) -> Option<u64> {
        // The vector registers were not asked for.
        self.registers
            .by_gdb_number(number)
            .filter(|_| !(40..=55).contains(&number))
    }

    fn memory(&self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let into = bytes.get_mut(..size)?;
        (self.process.read(address, into) == size).then(|| u64::from_le_bytes(bytes))
    }
}
