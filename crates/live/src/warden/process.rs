//! Processes that are traced, their threads, and the breakpoints in their memory.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use protocol::layout::{SPACE_TRAPS_AT, TRAPS_MAX, trap_word};

use super::pads::Pads;
use super::raw;
use super::task::{Resume, Running, Stopped};
use crate::proc::{self, Status};
use crate::talk::{Armed, What};

/// The instruction that stops who executes it.
const TRAP: u8 = 0xcc;

/// A thread.
#[derive(Debug)]
pub struct Task {
    pub process: i32,
    pub number: u32,
    pub state: State,
    /// It came to the breakpoint here, and that was told.
    pub reported: Option<u64>,
    /// Something else was told first: this is next.
    pub deferred: Option<What>,
    /// The kernel has it wait for its child's exec or end.
    pub vforks: bool,
    /// It did not stop when it was told to, and had been switched to so many times by then.
    pub stuck: Option<u64>,
    /// It stands at the entry of a system call.
    pub at_call: bool,
    /// It is being led past an instruction, which takes one more stop.
    pub steps: bool,
    /// The program has itself trap behind each instruction.
    pub owns_trap_flag: bool,
    /// What it was told to watch.
    pub watches: Vec<(u64, u8)>,
    /// It stands where it may not go on before what was told of it.
    pub held: bool,
    /// It is in the monitor and has not begun in the program.
    pub begins: bool,
    /// The signal that was told of last.
    pub told: Option<u32>,
    /// It was taken out of a call: the registers that the debugger saw before, and those
    /// that it has instead of them.
    pub pulled: Option<Box<([u64; 27], [u64; 27])>>,
    /// It stands where it began: the kernel said so before it said who made it.
    pub fresh: bool,
    /// Signals that are to be sent to it when it has taken those of the same number that
    /// wait to come: the kernel keeps one of each.
    pub owed: Vec<u32>,
}

#[derive(Debug)]
pub enum State {
    Running(Running),
    Stopped(Stopped),
    /// Between the two, for as long as it takes to say so.
    Changing,
}

impl Task {
    pub fn new(process: i32, number: u32, state: State) -> Task {
        Task {
            process,
            number,
            state,
            reported: None,
            deferred: None,
            vforks: false,
            stuck: None,
            at_call: false,
            steps: false,
            owns_trap_flag: false,
            watches: Vec::new(),
            held: false,
            begins: false,
            told: None,
            pulled: None,
            fresh: false,
            owed: Vec::new(),
        }
    }

    /// One that has just been made; it may have been heard of before.
    pub fn made(process: i32, number: u32, tid: i32, was_early: bool) -> Task {
        let mut task = Task::new(process, number, State::Running(Running::new(tid)));
        if was_early {
            task.stop(tid, 0, false);
            task.fresh = true;
        }
        task
    }

    pub fn stopped(&self) -> Option<&Stopped> {
        match &self.state {
            State::Stopped(stopped) => Some(stopped),
            _ => None,
        }
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Whether it has not run since it did not stop: it need not be waited for again.
    pub fn is_still_stuck(&self, tid: i32) -> bool {
        self.stuck
            .is_some_and(|switches| proc::switches(self.process, tid) == Some(switches))
    }

    /// The kernel has said that it stands.
    pub fn stop(&mut self, tid: i32, signal: u32, by_job_control: bool) {
        let running = match std::mem::replace(&mut self.state, State::Changing) {
            State::Running(running) => running,
            _ => Running::new(tid),
        };
        self.state = State::Stopped(running.into_stopped(signal, by_job_control));
    }

    pub fn resume(&mut self, how: Resume) {
        self.send_owed();
        self.state = match std::mem::replace(&mut self.state, State::Changing) {
            State::Stopped(stopped) => {
                self.at_call = false;
                self.held = false;
                self.fresh = false;
                self.reported = None;
                State::Running(stopped.resume(how))
            }
            other => other,
        };
    }

    /// Sends what the debugger's user has given it and what does not wait to come by now.
    fn send_owed(&mut self) {
        let Some(stopped) = self.stopped() else {
            return;
        };
        let (tid, given) = (stopped.tid(), stopped.to_send());
        self.owed.extend(given);
        if self.owed.is_empty() {
            return;
        }
        let mut waiting = Status::of_thread(tid).map_or(0, |status| status.pending_here);
        self.owed.retain(|signal| {
            let bit = 1u64 << (signal.clamp(&1, &64) - 1);
            let waits = waiting & bit != 0;
            if !waits {
                let _ = raw::signal_thread(tid, *signal);
                waiting |= bit;
            }
            waits
        });
    }

    /// Lets it go.
    pub fn detach(mut self) {
        self.send_owed();
        if let State::Stopped(stopped) = self.state {
            if !self.watches.is_empty() {
                let _ = stopped.watch(&[]);
            }
            stopped.detach();
        }
    }
}

/// A process.
#[derive(Debug)]
pub struct Process {
    pub pid: i32,
    memory: File,
    /// Whose address space it runs in: its own, or until its exec its parent's.
    pub space: i32,
    pub armed: Armed,
    /// Pieces of what is watched, aligned, with the index of what they are of, and
    /// what they were.
    pieces: Vec<(u64, u8, u32, u64)>,
    pub next_number: u32,
    /// How many programs it has begun.
    pub image: u32,
    /// Who made it, as long as the debugger does not know it.
    pub maker: Option<i32>,
    /// We started it, or who made it.
    pub is_ours: bool,
    pub ending: Option<What>,
}

/// More pieces than the processor has registers for are looked at after each
/// instruction.
const REGISTERS: usize = 4;

impl Process {
    pub fn new(pid: i32, space: i32) -> std::io::Result<Process> {
        Ok(Process {
            pid,
            memory: memory(pid)?,
            space,
            armed: Armed::default(),
            pieces: Vec::new(),
            next_number: 0,
            image: 0,
            maker: None,
            is_ours: false,
            ending: None,
        })
    }

    /// It has begun another program: nothing of the old one is left.
    pub fn begin_again(&mut self) -> std::io::Result<()> {
        self.memory = memory(self.pid)?;
        self.space = self.pid;
        self.image += 1;
        self.armed = Armed::default();
        self.pieces.clear();
        Ok(())
    }

    pub fn read(&self, address: u64, into: &mut [u8]) -> usize {
        // Addresses behind the middle are the kernel's.
        if i64::try_from(address).is_err() {
            return 0;
        }
        let mut got = 0;
        while let Some(rest) = into.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.memory.read_at(rest, address + got as u64) {
                Ok(0) | Err(_) => break,
                Ok(more) => got += more,
            }
        }
        got
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> usize {
        if i64::try_from(address).is_err() {
            return 0;
        }
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.memory.write_at(rest, address + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(more) => done += more,
            }
        }
        done
    }

    /// Memory, if all of it is there.
    pub fn piece(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        (self.read(address, &mut bytes) == length).then_some(bytes)
    }

    pub fn word(&self, address: u64, length: u8) -> u64 {
        let mut bytes = [0; 8];
        if let Some(into) = bytes.get_mut(..usize::from(length)) {
            self.read(address, into);
        }
        u64::from_le_bytes(bytes)
    }

    /// Says what stops it. What is watched is looked at.
    pub fn arm(&mut self, armed: Armed) {
        let mut pieces = Vec::new();
        for ((address, length), index) in armed.watches.iter().zip(0..) {
            for (at, length) in aligned(*address, *length) {
                pieces.push((at, length, index, self.word(at, length)));
            }
        }
        self.pieces = pieces;
        self.armed = armed;
    }

    /// What its threads are to be told to watch; nothing if they are to be stepped.
    pub fn watches(&self) -> Vec<(u64, u8)> {
        if self.is_stepped() {
            return Vec::new();
        }
        self.pieces
            .iter()
            .map(|(at, length, ..)| (*at, *length))
            .collect()
    }

    /// Whether each instruction has to be looked at.
    pub fn is_stepped(&self) -> bool {
        self.pieces.len() > REGISTERS
    }

    /// Which watched memory is not what it was; it is taken as it is.
    pub fn changed(&mut self) -> Option<u32> {
        let now: Vec<u64> = self
            .pieces
            .iter()
            .map(|(at, length, ..)| self.word(*at, *length))
            .collect();
        let mut found = None;
        for ((_, _, index, was), is) in self.pieces.iter_mut().zip(now) {
            if *was != is {
                found = found.or(Some(*index));
                *was = is;
            }
        }
        found
    }

    /// How its threads go on.
    pub fn resume(&self) -> Resume {
        if self.is_stepped() {
            Resume::Step
        } else if self.armed.calls.is_some() {
            Resume::ToCall
        } else {
            Resume::On
        }
    }

    /// Whether a signal ends it, because it has nothing of its own for it. `action` is
    /// what it does, if the kernel does not know.
    pub fn ends_by(&self, signal: u32, action: Option<u64>) -> bool {
        // These do nothing: CHLD, CONT, URG, WINCH; and these stop: STOP, TSTP, TTIN, TTOU.
        let harmless = [17, 18, 19, 20, 21, 22, 23, 28];
        if harmless.contains(&signal) {
            return false;
        }
        if let Some(handler) = action {
            return handler == 0;
        }
        let bit = 1u64 << (signal.clamp(1, 64) - 1);
        let status = proc::Status::of(self.pid, self.pid);
        status.is_some_and(|status| (status.caught | status.ignored) & bit == 0)
    }
}

/// Memory in pieces that a debug register can have.
fn aligned(address: u64, length: u8) -> Vec<(u64, u8)> {
    let (mut at, mut left) = (address, u64::from(length));
    let mut pieces = Vec::new();
    while left > 0 {
        let fits = |size: &u64| *size <= left && at.is_multiple_of(*size);
        let size = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        pieces.push((at, size as u8));
        at = at.wrapping_add(size);
        left -= size;
    }
    pieces
}

fn memory(pid: i32) -> std::io::Result<File> {
    let path = format!("/proc/{pid}/mem");
    OpenOptions::new().read(true).write(true).open(path)
}

/// The breakpoints in an address space: where, and what was there.
#[derive(Clone, Debug, Default)]
pub struct Space {
    inserted: BTreeMap<u64, u8>,
    /// Those that the monitor judges.
    pub pads: Pads,
    /// Which bytes the program's monitor is told of, by their places in its table.
    told: Vec<Option<u64>>,
}

impl Space {
    pub fn has(&self, address: u64) -> bool {
        self.inserted.contains_key(&address)
    }

    /// Where there is a trap, and what was there.
    pub fn traps(&self) -> impl Iterator<Item = (u64, u8)> {
        self.inserted.iter().map(|(address, was)| (*address, *was))
    }

    pub fn insert(&mut self, process: &Process, address: u64) {
        let mut byte = [0];
        if self.has(address) || process.read(address, &mut byte) != 1 {
            return;
        }
        let [was] = byte;
        self.tell(process, address, was);
        if process.write(address, &[TRAP]) == 1 {
            self.inserted.insert(address, was);
        } else {
            self.untell(process, address);
        }
    }

    /// Puts back what was there.
    pub fn lift(&mut self, process: &Process, address: u64) {
        if let Some(was) = self.inserted.remove(&address) {
            process.write(address, &[was]);
            self.untell(process, address);
        }
    }

    pub fn lift_all(&mut self, process: &Process) {
        for address in self.inserted.keys().copied().collect::<Vec<_>>() {
            self.lift(process, address);
        }
        self.lift_pads(process);
    }

    /// The monitor, if there is one, records memory without the breakpoint.
    pub fn tell(&mut self, process: &Process, address: u64, was: u8) {
        let free = self.told.iter().position(Option::is_none);
        let place = free.unwrap_or(self.told.len());
        if place < TRAPS_MAX && set_trap(process, place, trap_word(address, was)) {
            if place == self.told.len() {
                self.told.push(None);
            }
            if let Some(told) = self.told.get_mut(place) {
                *told = Some(address);
            }
        }
    }

    pub fn untell(&mut self, process: &Process, address: u64) {
        let is_it = |told: &Option<u64>| *told == Some(address);
        if let Some(place) = self.told.iter().position(is_it) {
            set_trap(process, place, 0);
            if let Some(told) = self.told.get_mut(place) {
                *told = None;
            }
        }
    }
}

/// Writes to the table of the monitor's. False: there is no monitor in the process.
fn set_trap(process: &Process, place: usize, word: u64) -> bool {
    match process.word(SPACE_TRAPS_AT, 8) {
        0 => false,
        table => process.write(table + 8 * place as u64, &word.to_le_bytes()) == 8,
    }
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn pieces_are_aligned_and_whole() {
        for (address, length) in [(0x1000, 8), (0x1001, 8), (0x1004, 8), (0x1003, 29), (7, 1)] {
            let mut at = address;
            for (start, size) in aligned(address, length) {
                assert_eq!(start, at);
                assert!(start.is_multiple_of(u64::from(size)) && [1, 2, 4, 8].contains(&size));
                at += u64::from(size);
            }
            assert_eq!(at, address + u64::from(length));
        }
        assert_eq!(aligned(0x1004, 8).len(), 2);
    }
}
