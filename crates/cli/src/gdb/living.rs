//! A program that is alive as gdb sees it: processes come and go, get signals, and
//! can be changed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::gdb_remote::signals::to_protocol;
use ::gdb_remote::{Motion, Refused, Registers, Stop, StopKind, StopReason, ThreadId};
use ::session::{Caught, Follow, Group, Reason, Stopped, What};
use ::target::{Happening, ThreadState};
use protocol::id::{Addr, ProcessId, ProcessNo, ThreadNo};

use super::program::{Program, Served, Told, free_id, stop};
use super::subjects::Living;
use crate::failure::Failure;

/// What is known besides of a program that is alive.
pub struct Alive {
    live: Arc<live::Program>,
    /// How one that comes later is joined.
    how: live::How,
    /// Those that were started, and whom they made.
    ours: HashSet<ProcessId>,
    /// The point that tells of signals.
    signals: Option<u32>,
    /// Who stands before a signal that gdb was told of and has not decided on.
    signalled: Option<(ProcessId, ThreadNo)>,
}

impl Alive {
    /// Whether a process was there before it was debugged.
    pub fn was_there(&self, process: ProcessId) -> bool {
        !self.ours.contains(&process)
    }
}

impl Program {
    pub fn open_living(living: &Living) -> Result<Program, Failure> {
        let mut group = Group::new(&living.program)?;
        group.stop_at_execs(true);
        // gdb is told of each process before that does anything.
        let forks = Caught::find("fork", &living.program)?;
        group.stops().add(What::Catch(forks), |_| {});
        let members = group.members();
        let ours = members.iter().map(|member| member.id);
        let ours = ours.filter(|_| living.is_ours).collect();
        let mut served: Vec<Served> = Vec::new();
        for member in members {
            let pid = free_id(member.id.number.0, |pid| {
                served.iter().any(|s| s.pid == pid)
            });
            served.push(Served::new(member, pid));
        }
        if served.is_empty() {
            return Err(::session::Error::NoProcesses.into());
        }
        let mut program = Program {
            served,
            group,
            lead: 0,
            eldest: 0,
            queue: Default::default(),
            follow: Follow::Causal,
            stops: Default::default(),
            alive: Some(Alive {
                live: Arc::clone(&living.live),
                how: living.how,
                ours,
                signals: None,
                signalled: None,
            }),
        };
        program.settle();
        Ok(program)
    }

    /// What a file under `/proc/PID` of a process says, or where it leads.
    pub(super) fn told_of(&self, i: usize, name: &str) -> Option<Vec<u8>> {
        let id = self.served.get(i)?.id;
        self.alive.as_ref()?.live.told_of(id, name)
    }

    /// A file as a process sees it.
    pub(super) fn seen_by(&self, i: usize, path: &Path) -> Option<PathBuf> {
        let id = self.served.get(i)?.id;
        self.alive.as_ref()?.live.seen_by(id, path)
    }

    /// What the threads of a process are called while it is alive: on other hosts after it.
    pub(super) fn living_names(&mut self, i: usize, states: &[ThreadState]) -> Vec<String> {
        let (Some(alive), Some(served)) = (&self.alive, self.served.get(i)) else {
            return Vec::new();
        };
        let prefix = match alive.live.is_far() {
            true => format!("{}/", served.name),
            false => String::new(),
        };
        let Ok(view) = self.group.at(served.id) else {
            return Vec::new();
        };
        let own = |state: &ThreadState| view.target().thread_name(state.number).unwrap_or_default();
        let names = states.iter().map(|state| format!("{prefix}{}", own(state)));
        names.collect()
    }

    /// gdb is gone: what was started for it ends.
    pub fn end(&mut self) {
        for i in 0..self.served.len() {
            let is_ours = self.served.get(i).is_some_and(|served| {
                let alive = self.alive.as_ref();
                !served.is_gone && alive.is_some_and(|alive| !alive.was_there(served.id))
            });
            if is_ours {
                self.end_one(i);
            }
        }
    }

    /// Lets a process go as it was.
    pub(super) fn leave(&mut self, i: usize) {
        let Some(served) = self.served.get_mut(i) else {
            return;
        };
        served.is_gone = true;
        let id = served.id;
        // One that has ended is left in any case.
        let _ = self.group.leave(id);
        self.look_away(i);
    }

    pub(super) fn end_one(&mut self, i: usize) -> bool {
        let Some(served) = self.served.get_mut(i) else {
            return false;
        };
        served.is_gone = true;
        let id = served.id;
        self.forget_stops(i);
        self.look_away(i);
        // One that has ended meanwhile is what was asked for.
        let _ = self.group.kill(id);
        true
    }

    /// Whether a process has ended that gdb was to be told of next: it need not be, then.
    pub(super) fn has_ended(&mut self, pid: u32) -> bool {
        let before = self.queue.len();
        self.queue.retain(|told| match told {
            Told::Stop(stop) => stop.thread.pid != pid,
            Told::Program(_) => true,
        });
        self.alive.is_some() && self.queue.len() < before
    }

    /// Another one is at hand if this one was.
    fn look_away(&mut self, i: usize) {
        if self.lead == i {
            let mut left = (0..).zip(&self.served).filter(|(_, s)| !s.is_gone);
            self.lead = left.next().map_or(i, |(other, _)| other);
        }
    }

    /// Joins one more process.
    pub(super) fn join(&mut self, pid: u32) -> Option<ThreadId> {
        if self.index(pid).is_none() {
            let alive = self.alive.as_ref()?;
            let mut hosts = alive.live.agents().into_iter();
            // A number alone does not say which of several it is on.
            let (host, None) = (hosts.next()?.member(), hosts.next()) else {
                return None;
            };
            let pids = vec![i32::try_from(pid).ok()?];
            alive.live.attach_on(&[pids], &alive.how).ok()?;
            self.group.take_in();
            self.welcome(ProcessNo(pid).of_member(host))?;
        }
        let i = self.index(pid)?;
        self.lead = i;
        Some(self.running_id(i))
    }

    /// A process that has come: gdb knows it from here on.
    fn welcome(&mut self, process: ProcessId) -> Option<usize> {
        let mut members = self.group.members().into_iter();
        let member = members.find(|member| member.id == process)?;
        // Ids come again.
        self.served
            .retain(|served| served.id != process || !served.is_gone);
        let is_taken = |pid| self.served.iter().any(|served| served.pid == pid);
        let pid = free_id(process.number.0, is_taken);
        self.served.push(Served::new(member, pid));
        let i = self.served.len() - 1;
        let image = self.image_now(i);
        let served = self.served.get_mut(i)?;
        served.is_introduced = true;
        served.told = image;
        Some(i)
    }

    /// What gdb is told of where a motion led.
    pub(super) fn told_alive(&mut self, i: usize, stopped: &Stopped) -> Stop {
        let id = stopped.process;
        let pid = self.served.get(i).map_or(0, |served| served.pid);
        let ending = self.group.alive(id).ok().and_then(|alive| alive.ending());
        let what = match &stopped.reason {
            Reason::Happened { what, .. } => Some(*what),
            // Nobody could run.
            Reason::End => ending,
            _ => None,
        };
        let image = self.image_now(i);
        let known = self.served.get(i).and_then(|served| served.told);
        if known.is_some() && image.is_some() && known != image {
            // Breakpoints are gone with the memory they were in.
            self.forget_stops(i);
        }
        if let Some(served) = self.served.get_mut(i) {
            served.told = image.or(known);
        }
        self.lead = i;
        let reason = match (&stopped.reason, what) {
            (_, Some(Happening::Exec)) | (Reason::Exec, _) => {
                StopReason::Executed(self.path_of(i).unwrap_or_default())
            }
            (_, Some(Happening::Forked(child))) => {
                let child = ProcessNo(child).of_member(id.member);
                let is_ours = self.alive.as_ref().is_some_and(|a| !a.was_there(id));
                if let (true, Some(alive)) = (is_ours, self.alive.as_mut()) {
                    alive.ours.insert(child);
                }
                match self.welcome(child) {
                    Some(i) => {
                        let pid = self.served.get(i).map_or(0, |served| served.pid);
                        StopReason::Forked(ThreadId::new(pid, pid))
                    }
                    // It is gone already.
                    None => StopReason::Arrived,
                }
            }
            (_, Some(Happening::Signal(number))) => {
                if let Some(alive) = &mut self.alive {
                    alive.signalled = Some((id, stopped.thread));
                }
                StopReason::Signal(to_protocol(number))
            }
            (_, Some(Happening::Exited(status))) => StopReason::Exited(status as u8),
            (_, Some(Happening::Killed(signal))) => StopReason::Killed(to_protocol(signal)),
            (Reason::Breakpoint { number }, _) => {
                let kind = self.kind_of(*number).map(|(kind, _)| kind);
                StopReason::Breakpoint(kind.unwrap_or(StopKind::Software))
            }
            (Reason::Watch { number, .. }, _) => match self.kind_of(*number) {
                Some((kind, address)) => StopReason::Watch(kind, address),
                None => StopReason::Arrived,
            },
            (Reason::Interrupted, _) => StopReason::Interrupted,
            _ => StopReason::Arrived,
        };
        let thread = match reason {
            StopReason::Exited(_) | StopReason::Killed(_) => ThreadId::new(pid, pid),
            _ => self.thread_id(i, Some(stopped.thread)),
        };
        if matches!(reason, StopReason::Exited(_) | StopReason::Killed(_)) {
            if let Some(served) = self.served.get_mut(i) {
                served.is_gone = true;
            }
            self.look_away(i);
        }
        self.note_ends();
        stop(thread, reason)
    }

    /// Has gdb told next of those that have ended meanwhile.
    fn note_ends(&mut self) {
        let members = self.group.members();
        for i in 0..self.served.len() {
            let Some(served) = self.served.get(i).filter(|served| !served.is_gone) else {
                continue;
            };
            let (id, pid) = (served.id, served.pid);
            let is_over = members.iter().any(|m| m.id == id && m.is_empty);
            if !is_over {
                continue;
            }
            let ending = self.group.alive(id).ok().and_then(|alive| alive.ending());
            let reason = match ending {
                Some(Happening::Killed(signal)) => StopReason::Killed(to_protocol(signal)),
                Some(Happening::Exited(status)) => StopReason::Exited(status as u8),
                _ => StopReason::Exited(0),
            };
            if let Some(served) = self.served.get_mut(i) {
                served.is_gone = true;
            }
            self.look_away(i);
            let told = stop(ThreadId::new(pid, pid), reason);
            self.queue.push_back(Told::Stop(told));
        }
    }

    /// gdb has decided what becomes of the signal that it was told of, or gives one
    /// of its own.
    pub(super) fn pass_on(&mut self, motion: &Motion) {
        let Some(alive) = &mut self.alive else {
            return;
        };
        let waits = alive.signalled.take();
        let led = self.thread_number(motion.thread).and_then(|(i, thread)| {
            let served = self.served.get(i)?;
            Some((served.id, thread))
        });
        for (process, thread) in waits.into_iter().chain(led) {
            let is_led = led == Some((process, thread));
            let signal = motion.signal.filter(|signal| is_led && *signal != 0);
            if signal.is_none() && waits != Some((process, thread)) {
                continue;
            }
            if let Ok(alive) = self.group.alive(process) {
                // One that is gone gets none.
                let _ = alive.set_pending(thread, signal);
            }
        }
    }

    /// gdb is to be told of all signals but these.
    pub(super) fn tell_of_signals(&mut self, but: &[u32]) {
        let old = self.alive.as_mut().and_then(|alive| alive.signals.take());
        if let Some(number) = old {
            self.group.stops().remove(number);
        }
        let told = (1..=64).filter(|signal| !but.contains(signal));
        let words: Vec<String> = told.map(|signal: u32| signal.to_string()).collect();
        if words.is_empty() {
            return;
        }
        let text = format!("signal {}", words.join(" "));
        let Ok(caught) = Caught::find(&text, self.group.program()) else {
            return;
        };
        let number = self.group.stops().add(What::Catch(caught), |_| {});
        if let Some(alive) = &mut self.alive {
            alive.signals = Some(number);
        }
    }

    pub(super) fn write_memory(&mut self, pid: u32, address: u64, bytes: &[u8]) -> Option<usize> {
        let id = self.served.get(self.index(pid)?)?.id;
        self.group
            .alive(id)
            .ok()?
            .write_memory(Addr(address), bytes)
            .ok()
    }

    pub(super) fn write_registers(
        &mut self,
        thread: ThreadId,
        registers: &Registers,
    ) -> Result<(), Refused> {
        const ESRCH: u8 = 3;
        let gone = Refused::Errno(ESRCH);
        let (i, number) = self.thread_number(thread).ok_or(gone.clone())?;
        let states = self.states(i);
        let state = states.iter().find(|state| state.number == number);
        let mut all = state.ok_or(gone.clone())?.registers;
        let id = self.served.get(i).ok_or(gone)?.id;
        let [
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
        ] = registers.general;
        all = ::target::Registers {
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip: registers.rip,
            eflags: registers.eflags,
            orig_rax: registers.orig_rax,
            fs_base: registers.fs_base,
            gs_base: registers.gs_base,
            xmm: registers.xmm,
            ..all
        };
        let words = |error: ::target::Error| Refused::Words(error.to_string());
        let alive = self.group.alive(id);
        let alive = alive.map_err(|error| Refused::Words(super::program::words(error)))?;
        alive.write_registers(number, &all).map_err(words)?;
        self.forget_seen(i);
        Ok(())
    }
}
