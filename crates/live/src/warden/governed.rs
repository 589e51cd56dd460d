//! A program that runs under an agent: it is halted in one consistent state, and its
//! time stands as long as it is (`agent::halting`).
//!
//! Its threads then stand in the monitor. What the program's own registers are is in
//! their entries, or where the monitor has put them when it was entered.

use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use agent::Arena;
use agent::control::{Answer, Client, Inject, Request, Status};
use agent::halting::Halter;
use protocol::halt::{Called, ThreadEntry, flag, state, stopped_in};
use protocol::layout::{
    ACTION_SIZE, MONITOR_BASE, MONITOR_END, PROCESS_ACTIONS, SPACE_POOLS_AT, THREAD_PROCESS_AT,
    THREAD_REGS_AT,
};
use protocol::replay::{COUNTER_SITES, COUNTERS_BASE, CounterSite, site};
use protocol::shared::Control;

use super::process::Process;
use super::raw::{self, General};
use super::registers::{STATE, XMM};
use crate::Error;

/// The flag that has a processor trap after each instruction.
pub const TRAP_FLAG: u64 = 0x100;
/// What the kernel shows of a call that is begun again when the thread runs on.
const BEGUN_AGAIN: u64 = -512i64 as u64;

/// The agent of a program, from the warden's side.
pub struct Governor {
    client: Client,
    control: &'static Control,
    pub halter: Halter<'static>,
    /// The agent.
    pub agent: i32,
}

/// What to do when nobody debugs the program any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// It goes on at once.
    GoOn,
    /// It stays halted for as long as was said, for another debugger to come.
    Keep,
}

impl Governor {
    /// Joins the agent at this socket: nobody else debugs its program then.
    pub fn join(
        socket: &Path,
        status: &Status,
        keep_ms: Option<u64>,
        overrides: bool,
    ) -> Result<Governor, Error> {
        let gone = |error: std::io::Error| Error::Agent(error.to_string());
        let mut client = Client::connect(socket).map_err(gone)?;
        let hold = Request::Hold {
            keep_ms,
            overrides,
            tracer: std::process::id(),
        };
        match client.ask(&hold).map_err(gone)? {
            Answer::Done => {}
            Answer::Refused { .. } => {
                return Err(Error::Held {
                    by: status.debugger.unwrap_or(0),
                });
            }
            other => return Err(Error::Agent(format!("it answered {other:?}"))),
        }
        let arena = Arena::join(&status.arena).map_err(|error| Error::Agent(error.to_string()))?;
        // For as long as the warden lives.
        let arena: &'static Arena = Box::leak(Box::new(arena));
        let control = arena.control();
        Ok(Governor {
            client,
            control,
            halter: Halter::new(control),
            agent: status.pid as i32,
        })
    }

    /// Readable without having been asked: the agent is gone, or has another debugger.
    pub fn line(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.client.as_fd()
    }

    /// Whether the agent is gone.
    pub fn is_over(&self) -> bool {
        crate::proc::Status::of(self.agent, self.agent).is_none_or(|status| status.is_zombie())
    }

    pub fn ask(&mut self, request: &Request) -> Result<Answer, Error> {
        let answer = self.client.ask(request);
        answer.map_err(|error| Error::Agent(error.to_string()))
    }

    /// Ends the halt.
    pub fn resume(&mut self) {
        if self.ask(&Request::Resume).is_err() {
            // The agent is gone, and with it whoever else could do it.
            self.halter.resume();
        }
        // Who there is need not be found out between the signals of the next halt.
        self.halter.prepare();
    }

    /// Lets the program be without a debugger.
    pub fn leave(mut self, how: Farewell) {
        if how == Farewell::GoOn && self.ask(&Request::Release).is_err() {
            self.halter.resume();
        }
    }

    /// What is put into an image that a process has just begun.
    pub fn execed(&mut self, pid: i32, thread: i32, registers: &General) -> Option<Inject> {
        self.forget(pid);
        let request = Request::Execed {
            process: pid as u32,
            thread: thread as u32,
            registers: raw::words(registers).to_vec(),
        };
        match self.ask(&request) {
            Ok(Answer::Inject(inject)) => Some(inject),
            _ => None,
        }
    }

    /// The entries of an image that is gone.
    fn forget(&self, pid: i32) {
        for entry in &self.control.entries {
            entry.free_of(pid as u32, 0);
        }
    }

    pub fn entry(&self, tid: i32) -> Option<&'static ThreadEntry> {
        self.halter.entry_of(tid as u32)
    }

    pub fn is_exempt(&self, tid: i32) -> bool {
        self.entry(tid).is_some_and(|entry| entry.has(flag::EXEMPT))
    }

    /// Whether a thread stands where it can be told to go on with other registers.
    pub fn is_parked(&self, tid: i32) -> bool {
        self.entry(tid).is_some_and(is_parked)
    }

    /// Has a thread leave the halt, and trap in the program.
    pub fn lead_out(&self, tid: i32) {
        let Some(entry) = self.entry(tid) else { return };
        if let Some(flags) = entry.registers.last() {
            flags.fetch_or(TRAP_FLAG, AcqRel);
        }
        entry.set_registers.store(1, Release);
        entry.flags.fetch_or(flag::LED, AcqRel);
    }

    /// Has a thread leave the call that it is in, or not any more.
    pub fn call_out(&self, tid: i32, on: bool) {
        if let Some(entry) = self.entry(tid) {
            match on {
                true => entry.flags.fetch_or(flag::OUT, AcqRel),
                false => entry.flags.fetch_and(!flag::OUT, AcqRel),
            };
        }
    }

    /// It is out.
    pub fn is_led_out(&self, tid: i32) {
        if let Some(entry) = self.entry(tid) {
            entry.flags.fetch_and(!flag::LED, AcqRel);
        }
    }

    /// Whether an address is in the monitor's code, or in what it has put beside the
    /// program's.
    pub fn is_inside(&self, process: &Process, address: u64) -> bool {
        (MONITOR_BASE..MONITOR_END).contains(&address) || is_stub(process, address)
    }

    /// Whether a fault is the monitor's affair: it is in its own code (memory of the program
    /// that it looks at need not be there), or at an instruction that it has replaced, which it
    /// does itself then.
    pub fn answers(&self, process: &Process, signal: u32, address: u64) -> bool {
        (MONITOR_BASE..MONITOR_END).contains(&address)
            || signal == libc::SIGILL as u32 && is_replaced(process, address)
    }

    /// The registers that the program has, of a thread that stands in the monitor.
    pub fn registers(&self, process: &Process, tid: i32, own: &General) -> Option<General> {
        let entry = self.entry(tid);
        let state = entry.map_or(state::RUNS, |entry| entry.state.load(Acquire));
        let stopped = entry.map_or(0, |entry| entry.stopped_in.load(Relaxed));
        let mut seen = match entry {
            Some(entry) if state == state::STOPPED => of_entry(entry, own),
            _ => called(process, own)?,
        };
        seen.orig_rax = u64::MAX;
        let waits = matches!(state, state::CALL | state::SENDS)
            || state == state::STOPPED && stopped == stopped_in::CALL;
        if let Some(entry) = entry.filter(|_| waits) {
            seen.orig_rax = entry.call.load(Relaxed).wrapping_sub(1);
            seen.rax = BEGUN_AGAIN;
        }
        Some(seen)
    }

    /// Gives it others. False: it is in a call.
    pub fn set_registers(&self, tid: i32, general: &General) -> bool {
        let Some(entry) = self.entry(tid).filter(|entry| is_parked(entry)) else {
            return false;
        };
        for (place, value) in entry.registers.iter().zip(in_entries_order(general)) {
            place.store(value, Relaxed);
        }
        entry.set_registers.store(1, Release);
        true
    }

    /// The vector registers of the program, as XSAVE has them.
    pub fn vectors(&self, process: &Process, tid: i32, own: &General) -> Option<Vec<u8>> {
        let entry = self.entry(tid)?;
        let at = entry.xstate_at.load(Relaxed);
        if entry.state.load(Acquire) == state::STOPPED && at != 0 {
            let mut image = vec![0; 576 + 256];
            return (process.read(at, &mut image) == image.len()).then_some(image);
        }
        let called: Vec<u8> = process.piece(word(process, own.gs_base + THREAD_REGS_AT)?, 256)?;
        let mut image = vec![0; 576 + 256];
        image.get_mut(XMM..XMM + 256)?.copy_from_slice(&called);
        *image.get_mut(STATE)? = 3;
        Some(image)
    }

    /// Where its general vector registers can be written to: an address.
    pub fn vectors_at(&self, process: &Process, tid: i32, own: &General) -> Option<u64> {
        let entry = self.entry(tid).filter(|entry| is_parked(entry))?;
        match entry.xstate_at.load(Relaxed) {
            0 => word(process, own.gs_base + THREAD_REGS_AT),
            at => Some(at + XMM as u64),
        }
    }

    /// Whether a call that the monitor makes is the one that the program has made.
    pub fn makes(&self, process: &Process, own: &General, number: u64) -> bool {
        let at = word(process, own.gs_base + THREAD_REGS_AT);
        let rax = at.and_then(|at| word(process, at + 8 * (33 + 10)));
        rax == Some(number)
    }

    /// What the program does with a signal: its handler.
    pub fn action(&self, process: &Process, own: &General, signal: u32) -> Option<u64> {
        let record = word(process, own.gs_base + THREAD_PROCESS_AT)?;
        word(
            process,
            record + PROCESS_ACTIONS + ACTION_SIZE * u64::from(signal),
        )
    }
}

/// Whether a thread stands where it may be given other registers: anywhere but in the middle of a
/// call. (Before one it goes on as they say, too.)
fn is_parked(entry: &ThreadEntry) -> bool {
    let place = entry.stopped_in.load(Relaxed);
    entry.state.load(Acquire) == state::STOPPED
        && matches!(
            place,
            stopped_in::PROGRAM | stopped_in::ENTRY | stopped_in::EXIT
        )
}

fn word(process: &Process, address: u64) -> Option<u64> {
    let bytes: Vec<u8> = process.piece(address, 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Whether the monitor has replaced the instruction at an address.
fn is_replaced(process: &Process, address: u64) -> bool {
    let count = word(process, COUNTERS_BASE).unwrap_or(0);
    let count = (count as usize).min(COUNTER_SITES);
    let table = process.piece(COUNTERS_BASE + 8, count * size_of::<CounterSite>());
    let table: Vec<u8> = table.unwrap_or_default();
    let mut entries = table.chunks_exact(size_of::<CounterSite>());
    entries.any(|entry| {
        let at = entry
            .get(offset_of!(CounterSite, address)..)
            .unwrap_or_default();
        let state = entry
            .get(offset_of!(CounterSite, state)..)
            .unwrap_or_default();
        at.starts_with(&address.to_le_bytes()) && state.starts_with(&site::REPLACED.to_le_bytes())
    })
}

fn is_stub(process: &Process, address: u64) -> bool {
    let pools = || {
        let at = word(process, SPACE_POOLS_AT)?;
        let count: Vec<u8> = process.piece(word(process, SPACE_POOLS_AT + 8)?, 4)?;
        let count = u32::from_le_bytes(count.try_into().ok()?).min(4096);
        process.piece(at, 16 * count as usize)
    };
    let pools = pools().unwrap_or_default();
    pools.chunks_exact(16).any(|pool| {
        let number = |at: usize, len: usize| {
            let bytes = pool.get(at..at + len).unwrap_or_default();
            let bytes = bytes.iter().rev();
            bytes.fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (start, size) = (number(0, 8), number(12, 4));
        (start..start + size).contains(&address)
    })
}

/// The registers that a thread came into the monitor with.
fn called(process: &Process, own: &General) -> Option<General> {
    let at = word(process, own.gs_base + THREAD_REGS_AT)?;
    let bytes = process.piece(at, size_of::<Called>())?;
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
        .collect();
    // The vector registers and how it came are first.
    let [
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        _,
        rip,
        eflags,
        rsp,
    ] = *words.get(33..)?.first_chunk::<19>()?;
    // Stubs have the place of the call before the one where they go on.
    let rip = match is_stub(process, rip) {
        true => word(process, rip.wrapping_sub(8))? + 2,
        false => rip,
    };
    Some(General {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        rip,
        eflags,
        rsp,
        ..*own
    })
}

fn of_entry(entry: &ThreadEntry, own: &General) -> General {
    let [
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        eflags,
    ] = entry.registers.each_ref().map(|place| place.load(Relaxed));
    General {
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        eflags,
        ..*own
    }
}

fn in_entries_order(general: &General) -> [u64; 18] {
    let g = general;
    [
        g.r8, g.r9, g.r10, g.r11, g.r12, g.r13, g.r14, g.r15, g.rdi, g.rsi, g.rbp, g.rbx, g.rdx,
        g.rax, g.rcx, g.rsp, g.rip, g.eflags,
    ]
}
