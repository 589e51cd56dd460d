//! What gdb's packets ask for.

use std::ops::Range;

use ::gdb_remote::{
    Direction, Failure, File, Interrupt, Motion, Refused, Registers, Stop, StopKind, StopPoint,
    Target, ThreadId, ThreadInfo,
};
use ::session::{How, Move, What, Who, Whom};
use ::target::{Cancel, Position, ThreadState};
use protocol::id::Addr;

use super::files::auxv_of;
use super::program::{Program, tid, words};

impl Target for Program {
    fn current(&mut self) -> ThreadId {
        self.running_id(self.lead)
    }

    fn processes(&mut self) -> Vec<u32> {
        // gdb numbers them in this order.
        let first = self.served.get(self.eldest).into_iter();
        let rest = (0..).zip(&self.served).filter(|(i, _)| *i != self.eldest);
        first
            .chain(rest.map(|(_, served)| served))
            .filter(|served| !served.is_gone)
            .map(|served| served.pid)
            .collect()
    }

    fn threads(&mut self, pid: u32) -> Vec<ThreadInfo> {
        let Some(i) = self.index(pid) else {
            return Vec::new();
        };
        let states = self.states(i);
        let running = self.running(i);
        let event = self.position(i).event();
        let mut names = self.living_names(i, &states).into_iter();
        let Some(served) = self.served.get(i) else {
            return Vec::new();
        };
        let shown = match served.is_introduced {
            true => states.len(),
            false => 1,
        };
        let program = self.group.program();
        let infos = states.iter().take(shown).map(|state| ThreadInfo {
            id: ThreadId::new(pid, tid(pid, state)),
            name: match names.next() {
                Some(name) => name,
                None => format!(
                    "{}/{}",
                    served.name,
                    program.thread_name(served.id, state.number)
                ),
            },
            about: match (Some(state.number) == running, state.waits) {
                _ if self.alive.is_some() => crate::debug::does(state),
                (true, _) => format!("before {}:{event}", served.name),
                (false, true) => "in a call".to_string(),
                (false, false) => "waits for its turn".to_string(),
            },
        });
        infos.collect()
    }

    fn registers(&mut self, thread: ThreadId) -> Option<Registers> {
        let i = self.index(thread.pid)?;
        let states = self.states(i);
        let state = states
            .iter()
            .find(|state| tid(thread.pid, state) == thread.tid)?;
        Some(registers_of(state))
    }

    fn read(&mut self, pid: u32, address: u64, out: &mut [u8]) -> usize {
        let Some(id) = self
            .index(pid)
            .and_then(|i| self.served.get(i))
            .map(|s| s.id)
        else {
            return 0;
        };
        match self.group.at(id) {
            Ok(view) => view.inspector().process.read(Addr(address), out),
            Err(_) => 0,
        }
    }

    fn auxv(&mut self, pid: u32) -> Option<Vec<u8>> {
        let i = self.index(pid)?;
        if self.alive.is_some() {
            return self.told_of(i, "auxv");
        }
        let image = self.image(i)?;
        auxv_of(&image, &self.regions(i))
    }

    fn executable(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.path_of(self.index(pid)?)
    }

    fn file(&mut self, pid: Option<u32>, path: &[u8]) -> Option<File> {
        let text = std::str::from_utf8(path).unwrap_or("");
        if let Some(name) = text.strip_prefix("/proc/") {
            return self.process_file(name).map(File::Bytes);
        }
        let i = match pid {
            Some(pid) => self.index(pid)?,
            None => self.lead,
        };
        self.captured(i, path).map(File::At)
    }

    fn region(&mut self, pid: u32, address: u64) -> (Range<u64>, String) {
        let Some(i) = self.index(pid) else {
            return (0..u64::MAX, String::new());
        };
        let mut hole = 0..u64::MAX;
        for region in self.regions(i) {
            if region.range.contains(&Addr(address)) {
                let write = if region.writable { "w" } else { "" };
                let execute = if region.executable { "x" } else { "" };
                let range = region.range.start.0..region.range.end.0;
                return (range, format!("r{write}{execute}"));
            }
            if region.range.end.0 <= address {
                hole.start = hole.start.max(region.range.end.0);
            } else {
                hole.end = hole.end.min(region.range.start.0);
            }
        }
        (hole, String::new())
    }

    fn thread_local(&mut self, thread: ThreadId, offset: u64, module: u64) -> Option<u64> {
        let i = self.index(thread.pid)?;
        let fs_base = Addr(self.registers(thread)?.fs_base);
        self.look(i, |inspector| {
            let bias = inspect::target::read_u64(inspector.process, Addr(module)).ok()?;
            let loaded = inspector.modules().iter().find(|m| m.bias == bias)?;
            let found = inspector.thread_local(loaded, fs_base, offset).ok()?;
            Some(found.0)
        })
    }

    fn add_stop(&mut self, pid: u32, stop: StopPoint) -> Result<(), Refused> {
        const ENOSPC: u8 = 28;
        const ESRCH: u8 = 3;
        let i = self.index(pid).ok_or(Refused::Errno(ESRCH))?;
        let id = self.served.get(i).map(|served| served.id);
        let id = id.ok_or(Refused::Errno(ESRCH))?;
        let what = match stop.kind {
            // Only changes can be seen, not who looks.
            StopKind::Read | StopKind::Access => return Err(Refused::Unsupported),
            StopKind::Write => What::Memory {
                address: Addr(stop.address),
                length: stop.length,
            },
            StopKind::Software | StopKind::Hardware => What::Code {
                address: Addr(stop.address),
                conditions: stop
                    .conditions
                    .iter()
                    .map(|c| c.as_slice().into())
                    .collect(),
            },
        };
        let key = (id, stop.kind, stop.address, stop.length);
        let known = self.stops.get(&key).copied();
        let stops = self.group.stops();
        if let Some(point) = known.and_then(|number| stops.get_mut(number).ok()) {
            point.enabled = false;
        }
        if !stops.has_room(id, &what) {
            return Err(Refused::Errno(ENOSPC));
        }
        // gdb takes them out and puts them in again: they stay the same ones.
        match known.and_then(|number| stops.get_mut(number).ok()) {
            Some(point) => {
                point.what = what;
                point.enabled = true;
            }
            None => {
                let number = stops.add(what, |point| point.whom = Whom::Process(id));
                self.stops.insert(key, number);
            }
        }
        Ok(())
    }

    fn remove_stop(
        &mut self,
        pid: u32,
        kind: StopKind,
        address: u64,
        length: u64,
    ) -> Result<(), Refused> {
        let served = self.index(pid).and_then(|i| self.served.get(i));
        let number = served.and_then(|s| self.stops.get(&(s.id, kind, address, length)));
        if let Some(number) = number
            && let Ok(point) = self.group.stops().get_mut(*number)
        {
            point.enabled = false;
        }
        Ok(())
    }

    fn resume(&mut self, motion: &Motion, interrupt: &Interrupt) -> Result<Stop, Failure> {
        self.pass_on(motion);
        if let Some(stop) = self.next_told() {
            return Ok(stop);
        }
        let Some((lead, thread)) = self.thread_number(motion.thread) else {
            return Err("there is no such thread".into());
        };
        let Some(process) = self.served.get(lead).map(|served| served.id) else {
            return Err("there is no such process".into());
        };
        self.lead = lead;
        let motion = Move {
            who: match motion.process {
                Some(_) => Who::One,
                None => Who::All,
            },
            process,
            thread: Some(thread),
            how: motion.step.clone().map_or(How::Continue, |range| {
                How::Instructions(Addr(range.start)..Addr(range.end))
            }),
            direction: match motion.direction {
                Direction::Forwards => ::session::Direction::Forwards,
                Direction::Backwards => ::session::Direction::Backwards,
            },
            follow: self.follow,
        };
        let cancel = Cancel::by(interrupt.request());
        let stopped = self.group.go(&motion, &cancel).map_err(words)?;
        Ok(self.told(stopped)?)
    }

    fn let_go(&mut self, pid: u32) -> bool {
        let Some(i) = self.index(pid) else {
            return self.has_ended(pid);
        };
        self.forget_stops(i);
        match self.alive.is_some() {
            true => self.leave(i),
            false => self.set_gone(i, true),
        }
        true
    }

    fn is_alive(&self) -> bool {
        self.alive.is_some()
    }

    fn kill(&mut self, pid: u32) -> bool {
        match self.index(pid) {
            Some(i) if self.alive.is_some() => self.end_one(i),
            None if self.has_ended(pid) => true,
            _ => self.let_go(pid),
        }
    }

    fn was_there(&mut self, pid: u32) -> bool {
        match (&self.alive, self.served.iter().find(|s| s.pid == pid)) {
            (Some(alive), Some(served)) => alive.was_there(served.id),
            _ => true,
        }
    }

    fn write(&mut self, pid: u32, address: u64, bytes: &[u8]) -> usize {
        self.write_memory(pid, address, bytes).unwrap_or(0)
    }

    fn set_registers(&mut self, thread: ThreadId, registers: &Registers) -> Result<(), Refused> {
        self.write_registers(thread, registers)
    }

    fn pass_signals(&mut self, signals: &[u32]) {
        self.tell_of_signals(signals);
    }

    fn take_up(&mut self, pid: u32) -> Option<ThreadId> {
        if self.alive.is_some() {
            return self.join(pid);
        }
        let i = self.served.iter().position(|served| served.pid == pid)?;
        self.set_gone(i, false);
        let image = self.image_now(i);
        self.served.get_mut(i)?.told = image;
        Some(self.running_id(i))
    }

    fn restart(&mut self) -> Result<ThreadId, Failure> {
        if self.alive.is_some() {
            return Err("what is alive cannot begin again: end gdb, and start it anew".into());
        }
        for i in 0..self.served.len() {
            self.forget_stops(i);
            self.set_gone(i, false);
            if let Some(served) = self.served.get_mut(i) {
                let at = Position::Event(served.first);
                self.group.place(served.id, at).map_err(words)?;
                // The first of its images.
                served.told = Some(0);
            }
        }
        Ok(self.running_id(self.lead))
    }

    fn command(&mut self, line: &str) -> String {
        super::monitor::execute(self, line)
    }
}

impl Program {
    fn set_gone(&mut self, i: usize, is_gone: bool) {
        if let Some(served) = self.served.get_mut(i) {
            served.is_gone = is_gone;
            // It is one of the group's: nothing can be wrong with it.
            let _ = self.group.let_go(served.id, is_gone);
        }
    }
}

fn registers_of(state: &ThreadState) -> Registers {
    let r = &state.registers;
    let mut general = [0; 16];
    for (to, from) in general.iter_mut().zip(r.gdb()) {
        *to = from;
    }
    Registers {
        general,
        rip: r.rip,
        eflags: r.eflags,
        cs: r.cs as u16,
        ss: r.ss as u16,
        orig_rax: r.orig_rax,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
        xmm: r.xmm,
    }
}
