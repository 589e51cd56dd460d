//! Halting a program that runs under an agent, while its threads are traced.
//!
//! The halt is the agent's: a word in shared memory, and a signal for those that run,
//! which they take into the monitor, where they stand. The signal is seen here first
//! (the kernel tells the tracer of each), and passed on at once. When all stand there,
//! they are stopped by ptrace as well, which they do not notice.
//!
//! Going on is the reverse: ptrace lets go of everybody first, and nobody runs; then
//! the halt is ended, and all go on in the same instant, with their time as it was.
//!
//! A thread that is about to get a signal that is to be told of, or stands before a
//! call, is held by ptrace where it is. One that is led by single instructions leaves
//! the halt alone: the time of the program stands meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use protocol::halt::{ThreadEntry, flag};
use protocol::layout::PREEMPT_SIGNAL;

use super::events::Outcome;
use super::process::{State, Task};
use super::raw;
use super::task::Resume;
use super::{News, Warden, governed};
use crate::Error;
use crate::talk::What;

/// So long it is waited for those who do not come into the monitor: after that they
/// are held where they are.
const PARKING: Duration = Duration::from_millis(500);
/// Who does not stop is told again after so long.
const AGAIN: Duration = Duration::from_micros(500);
/// How long a look at who has stopped lasts.
const LOOK: Duration = Duration::from_micros(100);
/// So long a thread that is led may be in the monitor before others go on there too.
const LED: Duration = Duration::from_millis(2);
/// So long it is waited for a thread to come into the halt again before that ends.
const RETURNING: Duration = Duration::from_millis(20);
/// So many instructions lie between the halt and the program at most.
const WAY_OUT: usize = 5000;

impl Warden {
    /// Has every thread of the program stand in the monitor, or where it is held.
    pub fn park(&mut self) {
        if self.governor.is_none() {
            return;
        }
        let begin = Instant::now();
        if let Some(governor) = &mut self.governor {
            governor.halter.begin();
        }
        let mut told = None::<Instant>;
        loop {
            let expected = self.press_all();
            let age = begin.elapsed();
            let Some(governor) = &mut self.governor else {
                return;
            };
            let tasks = &self.tasks;
            let missing = governor.halter.missing_but(age, |entry| {
                let task = tasks.get(&(entry.tid.load(Relaxed) as i32));
                task.is_some_and(Task::cannot_come)
            });
            if missing.is_empty() && !expected {
                governor.halter.mark_complete();
                break;
            }
            if age >= PARKING {
                break;
            }
            if told.is_none_or(|told| told.elapsed() >= AGAIN) {
                governor.halter.tell_all(&missing);
                told = Some(Instant::now());
            }
            match self.next(Some(Instant::now() + LOOK)) {
                News::Of(tid, status) => self.note_aside(tid, status),
                News::Asked(request) => self.note_request(&request),
                News::Alone | News::Nothing => {}
                News::Lost => return,
            }
        }
    }

    /// The line to the agent is closed: it is gone, and the program goes on by itself; or
    /// another debugger has taken it over, and does as it likes.
    pub fn lose_agent(&mut self) {
        let Some(mut governor) = self.governor.take() else {
            return;
        };
        let is_over = governor.is_over();
        if is_over {
            governor.halter.resume();
        }
        if is_over && self.tasks.is_empty() {
            // It had nothing to do any more. What is asked of those who have ended is answered.
            self.is_over = true;
            return;
        }
        self.lost = Some(match is_over {
            true => Error::AgentGone,
            false => Error::TakenOver,
        });
    }

    /// Everybody is let go.
    pub fn leave_lost(&mut self) {
        self.halt();
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            let _ = self.detach(pid);
        }
    }

    /// Has those that ptrace has stopped go on into the monitor. True: some of them have
    /// not begun there yet.
    fn press_all(&mut self) -> bool {
        let mut is_expected = false;
        for tid in self.tasks.keys().copied().collect::<Vec<_>>() {
            let Some(governor) = &self.governor else {
                return false;
            };
            let Some(task) = self.tasks.get_mut(&tid).filter(|task| !task.is_held()) else {
                continue;
            };
            let entry = governor.entry(tid);
            let is_begun = entry.is_some();
            let Some(stopped) = task.stopped() else {
                // Those that are on their way to their beginning are waited for.
                is_expected |= task.begins && !is_begun;
                continue;
            };
            if stopped.by_job_control {
                continue;
            }
            let is_still = entry.is_some_and(ThreadEntry::is_still);
            if is_still || governor.is_exempt(tid) {
                continue;
            }
            let Some(process) = self.processes.get(&task.process) else {
                continue;
            };
            if !is_begun {
                let rip = stopped.registers().map_or(0, |registers| registers.rip);
                if !governor.is_inside(process, rip) {
                    // It has no monitor: it is stopped by ptrace alone.
                    continue;
                }
                task.begins = true;
                is_expected = true;
            } else if stopped.signal != PREEMPT_SIGNAL as u32 {
                let _ = raw::signal_thread(tid, PREEMPT_SIGNAL as u32);
            }
            let reported = task.reported;
            task.resume(Resume::On);
            task.reported = reported;
        }
        is_expected
    }

    /// Has those who stand in the halt go on there, all but one: they have said that they stand
    /// before they were through with what they do then (timers are stopped), and another one may
    /// wait for that. They run nothing of the program.
    fn go_on_inside(&mut self, but: i32) {
        for (tid, task) in &mut self.tasks {
            let entry = self.governor.as_ref().and_then(|g| g.entry(*tid));
            let stands = task.stopped().is_some_and(|s| !s.by_job_control);
            if *tid != but && stands && !task.is_held() && entry.is_some_and(ThreadEntry::is_still)
            {
                let reported = task.reported;
                task.resume(Resume::On);
                task.reported = reported;
            }
        }
    }

    /// Lets everybody go on who was let go by ptrace: the halt is over.
    pub fn end_halt(&mut self) {
        if let Some(governor) = &mut self.governor {
            governor.resume();
        }
    }

    /// Whether a thread that was led out of the halt can stand in it again, to go on with the
    /// others: it computes, and nobody has to look at what it does on the way.
    pub fn can_return(&self, tid: i32, movers: &BTreeSet<i32>) -> bool {
        let task = self.tasks.get(&tid).filter(|t| movers.contains(&t.process));
        let process = task.and_then(|task| self.processes.get(&task.process));
        let is_plain = process.is_some_and(|process| process.resume() == Resume::On);
        let stands = task.and_then(Task::stopped);
        let is_free = stands.is_some_and(|s| s.signal == 0 && !s.by_job_control);
        let entry = self.governor.as_ref().and_then(|g| g.entry(tid));
        is_plain && is_free && entry.is_some_and(|entry| !entry.has(flag::EXEMPT))
    }

    /// Has threads stand in the halt again, as far as they do so soon: who does not.
    pub fn return_to_halt(&mut self, tids: &[i32], movers: &BTreeSet<i32>) -> Vec<i32> {
        for tid in tids {
            let _ = raw::signal_thread(*tid, PREEMPT_SIGNAL as u32);
            self.set_out(*tid, false, movers);
        }
        let deadline = Instant::now() + RETURNING;
        loop {
            let is_out = |tid: &i32| {
                let entry = self.governor.as_ref().and_then(|g| g.entry(*tid));
                entry.is_some_and(|entry| !entry.is_still())
            };
            let out: Vec<i32> = tids.iter().copied().filter(is_out).collect();
            if Instant::now() >= deadline || out.is_empty() {
                return out;
            }
            match self.next(Some(Instant::now() + LOOK)) {
                News::Of(tid, status) => match self.event(tid, status) {
                    Outcome::Told(what) => self.put_off(tid, what),
                    _ if self
                        .tasks
                        .get(&tid)
                        .is_some_and(|t| movers.contains(&t.process)) =>
                    {
                        self.resume(tid);
                    }
                    _ => {}
                },
                News::Asked(request) => self.note_request(&request),
                News::Alone | News::Nothing => {}
                News::Lost => return Vec::new(),
            }
        }
    }

    /// Whether a thread stands in the monitor, by the processor's own registers.
    pub fn is_inside(&self, tid: i32) -> bool {
        let inside = || {
            let governor = self.governor.as_ref()?;
            let task = self.tasks.get(&tid)?;
            let process = self.processes.get(&task.process)?;
            let registers = task.stopped()?.registers().ok()?;
            Some(governor.is_inside(process, registers.rip))
        };
        inside().unwrap_or(false)
    }

    /// Whether it stands there in the middle of a call.
    pub fn is_in_call(&self, tid: i32) -> bool {
        let is_parked = self.governor.as_ref().is_some_and(|g| g.is_parked(tid));
        self.is_inside(tid) && !is_parked
    }

    pub fn is_parked(&self, tid: i32) -> bool {
        let is_parked = self.governor.as_ref().is_some_and(|g| g.is_parked(tid));
        is_parked && self.is_inside(tid)
    }

    /// Has a thread that is parked execute one instruction of the program, while
    /// everybody else stands and so does time.
    pub fn lead_out(&mut self, tid: i32) -> Outcome {
        let Some(governor) = &self.governor else {
            return Outcome::Nothing;
        };
        governor.lead_out(tid);
        if let Some(stopped) = self.tasks.get(&tid).and_then(Task::stopped) {
            stopped.leave_call();
        }
        let mut how = Resume::On;
        let mut outcome = Outcome::Nothing;
        for _ in 0..WAY_OUT {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.steps = true;
                task.resume(how);
            }
            outcome = match self.await_led(tid) {
                Some(status) => self.event(tid, status),
                None => Outcome::Nothing,
            };
            let is_there = self.tasks.get(&tid).and_then(Task::stopped).is_some();
            if !is_there || !matches!(outcome, Outcome::Nothing | Outcome::Stepped) {
                break;
            }
            if matches!(outcome, Outcome::Stepped) {
                if !self.is_inside(tid) {
                    break;
                }
                // The trap came on the way out: by steps from here.
                how = Resume::Step;
            }
        }
        if let Some(governor) = &self.governor {
            governor.is_led_out(tid);
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.steps = false;
            if let Some(stopped) = task.stopped()
                && let Ok(mut registers) = stopped.registers()
                && registers.eflags & governed::TRAP_FLAG != 0
            {
                registers.eflags &= !governed::TRAP_FLAG;
                let _ = stopped.set_registers(&registers);
            }
        }
        outcome
    }

    /// Waits for a thread that is led through the monitor. It may have to wait there for
    /// one that was stopped in the middle of something (a lock, code that is changed):
    /// then those who are not through with it go on to where they stand in the halt.
    fn await_led(&mut self, tid: i32) -> Option<raw::Status> {
        let mut helped = false;
        let status = loop {
            if self.governor.is_none() {
                break None;
            }
            match self.next(Some(Instant::now() + LED)) {
                News::Of(of, status) if of == tid => break Some(status),
                News::Of(of, status) => self.note_aside(of, status),
                News::Asked(request) => self.note_request(&request),
                News::Alone | News::Lost => {}
                News::Nothing => helped = true,
            }
            if helped {
                self.press_all();
                self.go_on_inside(tid);
            }
        };
        if helped {
            let others = self.tasks.keys().copied().filter(|other| *other != tid);
            let others: Vec<i32> = others.filter(|other| !self.is_to_run(*other)).collect();
            self.quiesce(&others);
        }
        status
    }

    /// Takes a thread out of the call that it is in, while the program stays halted: it
    /// stands before it then, or behind it if it has come to its end.
    pub fn pull_out(&mut self, tid: i32) -> Result<(), Error> {
        let deadline = Instant::now() + PARKING;
        let Some(governor) = &self.governor else {
            return Err(self.no_agent());
        };
        governor.call_out(tid, true);
        if let Some(stopped) = self.tasks.get(&tid).and_then(Task::stopped) {
            stopped.leave_call();
        }
        let _ = raw::signal_thread(tid, PREEMPT_SIGNAL as u32);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.resume(Resume::On);
        }
        let mut is_out = false;
        let mut told = Instant::now();
        while !is_out && Instant::now() < deadline {
            if told.elapsed() >= AGAIN {
                // The signal may have come where it could not stop.
                let _ = raw::signal_thread(tid, PREEMPT_SIGNAL as u32);
                told = Instant::now();
            }
            match self.next(Some(Instant::now() + LOOK)) {
                News::Of(of, status) => self.note_aside(of, status),
                News::Asked(request) => self.note_request(&request),
                News::Alone | News::Nothing => {}
                News::Lost => return Err(Error::AgentGone),
            }
            // Those that it may wait for in the monitor go on as well.
            self.press_all();
            self.go_on_inside(tid);
            is_out = self.governor.as_ref().is_some_and(|g| g.is_parked(tid));
            if let Some(task) = self.tasks.get_mut(&tid).filter(|_| !is_out)
                && task.stopped().is_some()
            {
                // It was stopped on its way.
                task.resume(Resume::On);
            }
        }
        let others = self.tasks.keys().copied();
        let others: Vec<i32> = others.filter(|other| !self.is_to_run(*other)).collect();
        self.quiesce(&others);
        if let Some(governor) = &self.governor {
            governor.call_out(tid, false);
        }
        match is_out {
            true => Ok(()),
            false => Err(Error::InCall(tid)),
        }
    }

    /// Whether a thread runs while the program is halted.
    fn is_to_run(&self, tid: i32) -> bool {
        self.governor.as_ref().is_some_and(|g| g.is_exempt(tid))
    }

    /// A process has executed a program: the monitor is put into it.
    pub fn put_monitor(&mut self, pid: i32) -> Result<(), Error> {
        let thread = raw::event_message(pid).unwrap_or(0) as i32;
        let Some(governor) = &mut self.governor else {
            return Ok(());
        };
        let failed = |why: String| Error::Failed {
            what: "put the monitor into".to_string(),
            pid,
            why,
        };
        let registers = raw::registers(pid).map_err(|error| failed(error.to_string()))?;
        let Some(what) = governor.execed(pid, thread, &registers) else {
            // It runs without one, and is traced all the same.
            return Ok(());
        };
        let stop = inject::ExecStop::kept(pid).map_err(|error| failed(error.to_string()))?;
        let injection = inject::Injection {
            slot: what.slot,
            arena_fd: what.arena_fd,
            image_len: what.image_len,
            entry: what.entry,
            vdso: what.vdso,
        };
        stop.put(&injection, what.vdso_at)
            .map_err(|error| failed(error.to_string()))?;
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.begins = true;
        }
        Ok(())
    }

    /// What is told of a thread that must not move, or it would be past it.
    pub fn holds(what: What) -> bool {
        matches!(what, What::Signal(_) | What::Call(_))
    }
}

impl Task {
    /// It is held where it is, though it is not in the monitor.
    pub fn is_held(&self) -> bool {
        self.held && matches!(self.state, State::Stopped(_))
    }

    /// It is held, or job control has stopped it: it does not come into the monitor.
    fn cannot_come(&self) -> bool {
        self.is_held() || self.stopped().is_some_and(|stopped| stopped.by_job_control)
    }
}
