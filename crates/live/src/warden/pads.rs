//! Pads: breakpoints whose conditions the program's own monitor judges, so that one that is
//! false costs neither a trap nor a stop (`protocol::pad`, `patch::PadPlan`).
//!
//! Where the monitor is not, or the code does not allow a jump, the breakpoint is a trap, and
//! its conditions are judged here. A pad that was made stays, unused, as long as its process
//! has the same memory: a thread may be in it when the breakpoint is taken out.

use std::collections::BTreeMap;
use std::ops::Range;

use patch::{Code, PAD_MAX, Pad, PadPlan};
use protocol::layout::SPACE_PADS_AT;
use protocol::pad::{Desk, HEAD_WORDS, PAD_ROOM, PADS_MAX, condition_room};

use super::Warden;
use super::process::{Process, Space, State};
use super::raw::{self, Status};

/// How much code around a breakpoint is looked at for jumps to behind it.
const WINDOW: u64 = 0x4000;
/// So far from other memory a pad is at least: that may grow.
const APART: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// How long the jump is.
const JUMP: u64 = 5;
/// So many other things may happen to a thread before it has made a call.
const TRIES: usize = 32;

/// The pads of an address space, by where their breakpoints are.
#[derive(Clone, Debug, Default)]
pub struct Pads {
    all: BTreeMap<u64, Made>,
}

#[derive(Clone, Debug)]
struct Made {
    pad: Pad,
    /// What the program has where the jump goes.
    was: [u8; JUMP as usize],
    /// The jump is there.
    is_in: bool,
}

impl Pads {
    /// Which breakpoint's trap this is.
    pub fn hit(&self, trap: u64) -> Option<u64> {
        let mut all = self.all.iter();
        all.find(|(_, made)| made.pad.hit == trap)
            .map(|(address, _)| *address)
    }

    /// Where who has come to the middle of a jump goes on: at the copy of what was there.
    pub fn copy_of(&self, address: u64) -> Option<u64> {
        let (start, made) = self.all.range(..address).next_back()?;
        let is_within = made.is_in && address - start < JUMP;
        is_within.then(|| made.pad.from_program(address))?
    }

    /// Which of the program's instructions a thread is about to execute from its copy.
    pub fn to_program(&self, address: u64) -> Option<u64> {
        let mut all = self.all.values();
        all.find_map(|made| made.pad.to_program(address))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The breakpoints that are in.
    pub fn inserted(&self) -> Vec<u64> {
        let inserted = self.all.iter().filter(|(_, made)| made.is_in);
        inserted.map(|(address, _)| *address).collect()
    }

    /// Takes a jump out: what was there.
    pub fn lift(&mut self, process: &Process, address: u64) -> Option<[u8; JUMP as usize]> {
        let made = self.all.get_mut(&address).filter(|made| made.is_in)?;
        made.is_in = false;
        // (Other code may be there by now.)
        if process.piece(address, JUMP as usize).as_deref() == Some(&made.pad.jump) {
            process.write(address, &made.was);
        }
        Some(made.was)
    }
}

impl Warden {
    /// Puts a breakpoint with conditions in, to be judged by the monitor. False: it is left to
    /// us.
    pub fn insert_pad(&mut self, pid: i32, address: u64) -> bool {
        self.try_pad(pid, address).is_some()
    }

    fn try_pad(&mut self, pid: i32, address: u64) -> Option<()> {
        let process = self.processes.get(&pid)?;
        let armed = &process.armed;
        let own = armed.conditions.iter().filter(|(at, _)| *at == address);
        let conditions: Vec<Vec<u8>> = own.map(|(_, code)| code.clone()).collect();
        let jump = address + 1..address + JUMP;
        let has_neighbour = armed.breakpoints.iter().any(|other| jump.contains(other));
        if conditions.is_empty() || has_neighbour || process.is_stepped() {
            return None;
        }
        let space = process.space;
        if !self.is_quiet(space) {
            return None;
        }
        let process = self.processes.get(&pid)?;
        let code = self.code_around(process, address);
        let was = *code.bytes_at(address)?.first_chunk()?;
        let kept = self
            .spaces
            .get(&space)
            .and_then(|s| s.pads.all.get(&address));
        let pad = match kept.filter(|made| made.was == was) {
            Some(made) => made.pad,
            None => self.make_pad(pid, address, &code)?,
        };
        let process = self.processes.get(&pid)?;
        write_head(process, &pad, address, &conditions)?;
        let space = self.spaces.entry(space).or_default();
        for (at, byte) in (address..).zip(was) {
            space.tell(process, at, byte);
        }
        let is_in = process.write(address, &pad.jump) == pad.jump.len();
        space.pads.all.insert(address, Made { pad, was, is_in });
        if !is_in {
            space.lift_pad(process, address);
        }
        is_in.then_some(())
    }

    /// Whether nobody runs in this memory, and it is one process's: then more than a byte can be
    /// changed at a time. (Who waits for its child's exec is in no code of the program's.)
    fn is_quiet(&self, space: i32) -> bool {
        let mut its = self.processes.values().filter(|p| p.space == space);
        let (Some(process), None) = (its.next(), its.next()) else {
            return false;
        };
        let mut tasks = self.tasks.values().filter(|t| t.process == process.pid);
        tasks.all(|task| task.stopped().is_some() || task.vforks)
    }

    /// The program's own code around an address.
    fn code_around(&self, process: &Process, address: u64) -> Around {
        let here = address & !(PAGE - 1);
        let page = |at: u64| process.piece(at, PAGE as usize);
        let pages = 0..WINDOW / PAGE;
        let after = pages.clone().map(|number| here + number * PAGE);
        let before = pages.map_while(|number| here.checked_sub((number + 1) * PAGE));
        let after: Vec<Vec<u8>> = after.map_while(page).collect();
        let before: Vec<Vec<u8>> = before.map_while(page).collect();
        let mut around = Around {
            base: here - before.len() as u64 * PAGE,
            bytes: before.into_iter().rev().chain(after).flatten().collect(),
        };
        if let Some(space) = self.spaces.get(&process.space) {
            space.hide(around.base, &mut around.bytes);
        }
        around
    }

    /// Makes a pad, which nothing leads to yet.
    fn make_pad(&mut self, pid: i32, address: u64, code: &Around) -> Option<Pad> {
        let code = Code {
            base: code.base,
            bytes: &code.bytes,
        };
        let plan = PadPlan::new(code, address).ok()?;
        let process = self.processes.get(&pid)?;
        let desk = desk(process)?;
        let table = process.piece(desk.table, 16 * PADS_MAX)?;
        let place = table
            .chunks_exact(16)
            .position(|place| place.iter().all(|byte| *byte == 0))?;
        let taken = inject::read_maps(pid).ok()?;
        let is_free = |room: &Range<u64>| {
            let near = room.start.saturating_sub(APART)..room.end.saturating_add(APART);
            let overlaps = |map: &inject::Map| map.start < near.end && near.start < map.end;
            room.start > APART && !taken.iter().any(overlaps)
        };
        let mut bytes = [0; PAD_MAX];
        let (pad, room) = plan.entries().find_map(|entry| {
            let room = entry & !(PAGE - 1)..(entry + PAD_ROOM).next_multiple_of(PAGE);
            if i64::try_from(room.end).is_err() || !is_free(&room) {
                return None;
            }
            let pad = plan.write(entry, desk.entry, desk.rcx_at as u32, &mut bytes)?;
            Some((pad, room))
        })?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        let len = room.end - room.start;
        let args = [room.start, len, prot as u64, flags as u64, u64::MAX, 0];
        if self.call_in(pid, desk.gate, libc::SYS_mmap as u64, &args)? != room.start as i64 {
            return None;
        }
        let process = self.processes.get(&pid)?;
        let bytes = bytes.get(..pad.len)?;
        let at = desk.table + 16 * place as u64;
        // The head first: where the entry is, there is a pad.
        let is_made = process.write(pad.entry, bytes) == bytes.len()
            && process.write(at + 8, &pad.head.to_le_bytes()) == 8
            && process.write(at, &pad.entry.to_le_bytes()) == 8;
        is_made.then_some(pad)
    }

    /// Makes a system call in the name of a thread of a process, which is as it was afterwards.
    /// None: there is no thread that could.
    fn call_in(&mut self, pid: i32, gate: u64, number: u64, args: &[u64; 6]) -> Option<i64> {
        let tid = self.tids(pid).into_iter().find(|tid| {
            self.tasks.get(tid).is_some_and(|task| {
                let stopped = task.stopped();
                let is_free = stopped.is_some_and(|s| s.signal == 0 && !s.by_job_control);
                is_free && !task.at_call && !task.vforks && !task.held
            })
        })?;
        let before = raw::registers(tid).ok()?;
        let [rdi, rsi, rdx, r10, r8, r9] = *args;
        let during = raw::General {
            rip: gate,
            rax: number,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..before
        };
        raw::set_registers(tid, &during).ok()?;
        let mut came = Vec::new();
        let mut result = None;
        for _ in 0..TRIES {
            raw::one_instruction(tid, 0).ok()?;
            match raw::wait(tid, false) {
                Ok(Some((_, Status::Stopped { signal, event: 0 }))) if signal != libc::SIGTRAP => {
                    came.push(signal as u32);
                }
                Ok(Some((_, Status::Stopped { .. }))) => {}
                Ok(Some((_, ended))) => {
                    self.note_aside(tid, ended);
                    return None;
                }
                _ => return None,
            }
            let now = raw::registers(tid).ok()?;
            // Behind the instruction, which is two bytes.
            if now.rip == gate + 2 {
                result = Some(now.rax as i64);
                break;
            }
        }
        raw::set_registers(tid, &before).ok()?;
        if let Some(State::Stopped(stopped)) = self.tasks.get_mut(&tid).map(|task| &mut task.state)
        {
            stopped.takes_signal = true;
        }
        for signal in came {
            // They come again, to who is as it was.
            let _ = raw::signal_thread(tid, signal);
        }
        result
    }

    /// Threads that stand where only pads lead are where the program has what they are about to
    /// execute: the breakpoints are out.
    pub fn leave_pads(&mut self) {
        for task in self.tasks.values() {
            let space = self.processes.get(&task.process).map(|p| p.space);
            let pads = space.and_then(|space| self.spaces.get(&space));
            let pads = pads
                .map(|space| &space.pads)
                .filter(|pads| !pads.is_empty());
            if let (Some(pads), Some(stopped)) = (pads, task.stopped())
                && let Ok(mut registers) = stopped.registers()
                && let Some(address) = pads.to_program(registers.rip)
            {
                registers.rip = address;
                let _ = stopped.set_registers(&registers);
            }
        }
    }
}

/// Code of the program's.
struct Around {
    base: u64,
    bytes: Vec<u8>,
}

impl Around {
    fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        self.bytes.get((address.checked_sub(self.base)?) as usize..)
    }
}

/// What the monitor of a process tells of itself.
fn desk(process: &Process) -> Option<Desk> {
    let bytes = process.piece(SPACE_PADS_AT, size_of::<Desk>())?;
    let mut words = bytes.chunks_exact(8).map_while(|word| {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        (word != 0).then_some(word)
    });
    Some(Desk {
        table: words.next()?,
        entry: words.next()?,
        rcx_at: words.next()?,
        gate: words.next()?,
    })
}

/// Writes what is to be judged. None: it is too much.
fn write_head(process: &Process, pad: &Pad, address: u64, conditions: &[Vec<u8>]) -> Option<()> {
    let count = conditions.len() as u64;
    let head: [u64; HEAD_WORDS] = [address, pad.hit, pad.resume, count];
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    for code in conditions {
        let len = code.len() as u64;
        let end = bytes.len() + condition_room(len) as usize;
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(code);
        bytes.resize(end, 0);
    }
    let is_room = pad.len as u64 + bytes.len() as u64 <= PAD_ROOM;
    let is_written = is_room && process.write(pad.head, &bytes) == bytes.len();
    is_written.then_some(())
}

impl Space {
    /// Puts the program's own bytes over breakpoints: `bytes` are those at `base`.
    fn hide(&self, base: u64, bytes: &mut [u8]) {
        let mut put = |address: u64, was: u8| {
            let place = address.checked_sub(base);
            if let Some(place) = place.and_then(|place| bytes.get_mut(place as usize)) {
                *place = was;
            }
        };
        for (address, was) in self.traps() {
            put(address, was);
        }
        for (start, made) in self.pads.all.iter().filter(|(_, made)| made.is_in) {
            for (address, was) in (*start..).zip(made.was) {
                put(address, was);
            }
        }
    }

    /// Takes the jump to a pad out.
    fn lift_pad(&mut self, process: &Process, address: u64) {
        if self.pads.lift(process, address).is_some() {
            for at in address..address + JUMP {
                self.untell(process, at);
            }
        }
    }

    /// Takes all of them out.
    pub fn lift_pads(&mut self, process: &Process) {
        for address in self.pads.inserted() {
            self.lift_pad(process, address);
        }
    }
}
