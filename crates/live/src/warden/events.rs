//! What becomes of threads, as the kernel tells it.

use protocol::condition;
use protocol::layout::{PREEMPT_SIGNAL, SIGSYS};

use super::Warden;
use super::process::{Process, Space, State, Task};
use super::raw::{self, Status};
use super::task::{Running, Stopped};
use crate::proc;
use crate::talk::What;

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

/// Of a trap that the kernel made itself: a breakpoint; and of one for a step.
const SI_KERNEL: i32 = 0x80;
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
const TRAP_HWBKPT: i32 = 4;
/// Of the stop at a handler's first instruction, of a thread that is stepped: no signal has come,
/// and one that it were resumed with would be sent to it.
const AT_HANDLER: i32 = libc::SIGTRAP;

impl Warden {
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
        let was_early = self.early.remove(&new);
        let group = proc::Status::of_thread(new).map_or(new, |status| status.group);
        if event == libc::PTRACE_EVENT_CLONE && group == pid {
            let process = self.processes.get_mut(&pid);
            let number = process.map_or(0, |process| {
                process.next_number += 1;
                process.next_number - 1
            });
            self.tasks
                .entry(new)
                .or_insert_with(|| Task::made(pid, number, new, was_early));
            return Outcome::Nothing;
        }
        let Some(parent) = self.processes.get(&pid) else {
            return Outcome::Nothing;
        };
        // (A process can also be made that has its maker's memory for good.)
        let shares = event == libc::PTRACE_EVENT_VFORK || raw::share_memory(pid, new);
        let space = match shares {
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
        if !shares {
            // Ids come again: what is there may be of one that is gone.
            self.spaces.insert(space, copied);
        }
        self.tasks.insert(new, Task::made(new, 0, new, was_early));
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
        if code == SI_KERNEL
            && let Some(pads) = space.map(|space| &space.pads)
            && let Some(to) = pads.hit(at).or_else(|| pads.copy_of(at))
        {
            let is_hit = pads.hit(at).is_some();
            registers.rip = to;
            let _ = stopped.set_registers(&registers);
            if !is_hit {
                // It has come to where the jump is without passing the breakpoint.
                return Outcome::Nothing;
            }
            // The monitor has judged it.
            task.reported = Some(to);
            return Outcome::Told(What::Breakpoint);
        }
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
        let is_step = matches!(code, TRAP_BRKPT | TRAP_TRACE | TRAP_HWBKPT)
            && (is_watch || task.steps || process.is_stepped());
        if is_step {
            task.owns_trap_flag = hide_step(process, stopped, &mut registers, task.owns_trap_flag);
        }
        if is_step || code == AT_HANDLER {
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
        // Nor is what the monitor does of its own accord, or in place of an instruction.
        if let Some(governor) = &self.governor
            && raw::signal_code(tid).is_ok_and(|code| code > 0)
            && let Some(own) = task.stopped().and_then(|stopped| stopped.registers().ok())
            && governor.answers(process, signal, own.rip)
        {
            return Outcome::Nothing;
        }
        // What the program does in a pad it does where it has the same instruction.
        if let Some(pads) = self.spaces.get(&process.space).map(|space| &space.pads)
            && !pads.is_empty()
            && let State::Stopped(stopped) = &mut task.state
            && let Ok(mut registers) = stopped.registers()
        {
            // (The middle of a jump need not be a trap: it may be no instruction.)
            let middle = pads.copy_of(registers.rip);
            let middle = middle.filter(|_| signal == libc::SIGILL as u32);
            if let Some(to) = middle.or_else(|| pads.to_program(registers.rip)) {
                registers.rip = to;
                let _ = stopped.set_registers(&registers);
            }
            if middle.is_some() {
                stopped.signal = 0;
                return Outcome::Nothing;
            }
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

/// The monitor's own signals: calls that trap, and the one that tells it to look.
pub fn is_monitors(signal: u32) -> bool {
    signal == SIGSYS as u32 || signal == PREEMPT_SIGNAL as u32
}

/// A thread has executed an instruction by itself. The flag that has it trap behind each is to be
/// seen neither in the flags that it has put on the stack, where whoever took them up later would
/// be stepped by nobody, nor among its registers, where the kernel forgets whose it is once an
/// instruction has set it. `is_own`: the program has set it.
fn hide_step(
    process: &Process,
    stopped: &Stopped,
    registers: &mut raw::General,
    is_own: bool,
) -> bool {
    const PUSHF: u8 = 0x9c;
    const POPF: u8 = 0x9d;
    const TRAP_FLAG: u64 = 1 << 8;
    // These are not pushed as they are: RF and VM.
    const UNSEEN: u64 = 0b11 << 16;
    let mut code = [0];
    if process.read(registers.rip.wrapping_sub(1), &mut code) != 1 {
        return is_own;
    }
    if registers.eflags & TRAP_FLAG != 0 {
        if is_own || code == [POPF] {
            return true;
        }
        registers.eflags &= !TRAP_FLAG;
        let _ = stopped.set_registers(registers);
    }
    if code == [PUSHF] {
        let pushed = process.word(registers.rsp, 8);
        if pushed == (registers.eflags | TRAP_FLAG) & !UNSEEN {
            process.write(registers.rsp, &(pushed & !TRAP_FLAG).to_le_bytes());
        }
    }
    false
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
