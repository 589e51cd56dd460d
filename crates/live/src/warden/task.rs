//! A thread that is traced: running and standing are two types, and each becomes
//! the other by being consumed. What can be done to one that stands cannot be
//! written for one that runs.

use super::raw::{self, General};
use crate::proc::Status;

/// A thread that runs, as far as is known.
#[derive(Debug)]
pub struct Running {
    tid: i32,
}

/// A thread that stands still.
#[derive(Debug)]
pub struct Stopped {
    tid: i32,
    /// What it gets when it runs on; 0 for nothing.
    pub signal: u32,
    /// Job control stopped it: it is not ours to have it run.
    pub by_job_control: bool,
    /// The kernel gives it the signal that it is resumed with: it does so where a
    /// signal stopped it, not at ptrace's own events.
    pub takes_signal: bool,
    /// Nothing happened to it: it stands because it was told to, or may have left a
    /// call for that.
    pub interrupted: bool,
}

/// How a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until something happens.
    On,
    /// To its next system call at most.
    ToCall,
    /// By one instruction.
    Step,
}

impl Running {
    /// A thread that is traced by us and runs.
    pub fn new(tid: i32) -> Running {
        Running { tid }
    }

    /// Has it stop, soon. One that is gone will say so by itself.
    pub fn interrupt(&self) {
        let _ = raw::interrupt(self.tid);
    }

    /// The kernel has said that it stands.
    pub fn into_stopped(self, signal: u32, by_job_control: bool) -> Stopped {
        Stopped {
            tid: self.tid,
            signal,
            by_job_control,
            takes_signal: signal != 0,
            interrupted: false,
        }
    }
}

impl Stopped {
    /// Has it run. If it was killed meanwhile, the kernel says so next.
    pub fn resume(self, how: Resume) -> Running {
        self.begin_call_again();
        let (tid, signal) = (self.tid, self.signal_now());
        let _ = match how {
            _ if self.by_job_control => raw::listen(tid),
            Resume::On => raw::go_on(tid, signal),
            Resume::ToCall => raw::to_call(tid, signal),
            Resume::Step => raw::one_instruction(tid, signal),
        };
        Running { tid }
    }

    /// Lets it go.
    pub fn detach(self) {
        self.begin_call_again();
        let _ = raw::detach(self.tid, self.signal_now());
    }

    /// The signal that it can be resumed with.
    fn signal_now(&self) -> u32 {
        match self.takes_signal {
            true => self.signal,
            false => 0,
        }
    }

    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The signal that it is to get and cannot be resumed with: it is sent.
    pub fn to_send(&self) -> Option<u32> {
        (self.signal != 0 && !self.takes_signal).then_some(self.signal)
    }

    pub fn registers(&self) -> std::io::Result<General> {
        raw::registers(self.tid)
    }

    pub fn set_registers(&self, registers: &General) -> std::io::Result<()> {
        raw::set_registers(self.tid, registers)
    }

    pub fn vectors(&self) -> std::io::Result<Vec<u8>> {
        raw::vectors(self.tid)
    }

    pub fn set_vectors(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        raw::set_vectors(self.tid, bytes)
    }

    /// Has the call that it was taken out of come back, rather than be begun again: for
    /// one of the monitor's own, which then looks what is to be done.
    pub fn leave_call(&self) {
        const EINTR: i64 = -4;
        const RESTARTED: std::ops::Range<i64> = -516..-511;
        if let Ok(mut registers) = self.registers()
            && RESTARTED.contains(&(registers.rax as i64))
            && registers.orig_rax as i64 != -1
        {
            registers.rax = EINTR as u64;
            registers.orig_rax = u64::MAX;
            let _ = self.set_registers(&registers);
        }
    }

    /// Says what memory its writes to are to be told of: up to four places, aligned,
    /// of one, two, four or eight bytes.
    pub fn watch(&self, places: &[(u64, u8)]) -> std::io::Result<()> {
        // Off, before the addresses change.
        raw::set_debug_register(self.tid, 7, 0)?;
        let mut control = 0u64;
        for (i, (address, length)) in places.iter().take(4).enumerate() {
            raw::set_debug_register(self.tid, i, *address)?;
            let length = match length {
                1 => 0,
                2 => 1,
                8 => 2,
                _ => 3,
            };
            // This thread's, on writes.
            control |= 1 << (2 * i) | (1 | length << 2) << (16 + 4 * i);
        }
        raw::set_debug_register(self.tid, 7, control)
    }

    /// Whether watched memory was written: the processor's word is taken.
    pub fn take_watch_hit(&self) -> bool {
        let hit = raw::debug_register(self.tid, 6).is_ok_and(|word| word & 0xf != 0);
        if hit {
            let _ = raw::set_debug_register(self.tid, 6, 0);
        }
        hit
    }

    /// A call that waits without end is begun again by the kernel when it was
    /// interrupted, but for a few that then fail with EINTR. Nobody has signalled
    /// the program: these are begun again here.
    fn begin_call_again(&self) {
        const EPOLL_WAIT: u64 = 232;
        const EPOLL_PWAIT: u64 = 281;
        const SEMOP: u64 = 65;
        const RT_SIGTIMEDWAIT: u64 = 128;
        const EINTR: i64 = -4;
        if !self.interrupted || self.signal != 0 {
            return;
        }
        let Ok(mut registers) = self.registers() else {
            return;
        };
        let without_end = match registers.orig_rax {
            EPOLL_WAIT | EPOLL_PWAIT => (registers.r10 as i32) < 0,
            RT_SIGTIMEDWAIT => registers.rdx == 0,
            SEMOP => true,
            _ => false,
        };
        if registers.rax as i64 != EINTR || !without_end {
            return;
        }
        // A signal that waits to come may be what ended it.
        let status = Status::of_thread(self.tid);
        if status.is_none_or(|status| status.pending & !status.blocked != 0) {
            return;
        }
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
        registers.rip = registers.rip.wrapping_sub(2);
        let _ = self.set_registers(&registers);
    }
}
