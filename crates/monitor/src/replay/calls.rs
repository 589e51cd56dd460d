//! Calls and instructions that are answered from the log alone: nothing outside
//! of the process is asked.

use core::sync::atomic::Ordering::Relaxed;

use protocol::instruction::Instruction;
use protocol::record::{answer, clock, kind, tag};
use protocol::replay::{EXITED, NO_CALL, difference};
use protocol::syscall::{Syscall, Type};

use crate::arch::Regs;
use crate::capture;
use crate::state::Thread;
use crate::sys::nr;
use crate::{mem, motion, player, poke, stack};

use super::apply::{answer_request, apply, write_through};
use super::compare::{compare, diverge, diverge_call};
use super::stream::{consume, next_for, next_unseen_for, peek, stream_of};

/// A thread came into the monitor: by a call, or where it was interrupted.
pub fn arrived(thread: &Thread, regs: &Regs) {
    let interrupted = regs.slow == crate::call::INTERRUPTED;
    thread.regs_at.set((&raw const *regs) as u64);
    thread.waits.set(0);
    motion::end();
    thread.call.set(if interrupted {
        0
    } else {
        regs.rax.wrapping_add(1)
    });
}

/// Whether the call that the thread makes was forbidden by a filter of the
/// program's own, and what that said.
pub fn filtered(thread: &Thread, number: u64) -> Option<u32> {
    peek(thread.process())?;
    let record = next_unseen_for(thread);
    if record.kind != kind::CALL || record.nr != number {
        return None;
    }
    let answer = record.blob(tag::FILTERED)?.as_u64()?;
    Some(answer as u32)
}

/// A call that is one event.
pub fn plain(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    compare(thread, &record, kind::CALL, row, args);
    apply(row, args, &record);
    let number = u64::from(row.nr);
    answer_request(row, args, &record);
    if number == nr::SETSOCKOPT
        && let (Some(blob), Some((to, _))) = (record.blob(tag::PIECE), capture::old_counters(args))
    {
        mem::copy(to, blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
    }
    if number == nr::PROCESS_VM_WRITEV && record.result > 0 {
        poke::copy_again(args, record.result as u64);
    }
    write_through(row, args, &record);
    let result = record.result;
    if result == 0 {
        stack::learn(number, args, u64::from(thread.process().pid.get()));
    }
    count_output(thread, row, result);
    consume(thread.process());
    result
}

/// What was written or sent was compared before: here it is counted.
fn count_output(thread: &Thread, row: &Syscall, result: i64) {
    if matches!(row.kind, Type::Send) && result > 0 {
        let output = &stream_of(thread.process()).output;
        output.store(output.load(Relaxed) + result as u64, Relaxed);
    }
}

/// Lets those run who ran before this thread's next record.
pub fn settle(thread: &Thread) {
    next_for(thread);
}

/// Whether the log has this call in two halves. (Whether a descriptor makes
/// calls wait is known only to the log.)
pub fn is_blocking(thread: &Thread) -> bool {
    next_for(thread).kind == kind::START
}

/// The first half of a call.
pub fn start(thread: &Thread, row: &Syscall, args: &[u64; 6]) {
    let record = next_for(thread);
    compare(thread, &record, kind::START, row, args);
    consume(thread.process());
    thread.waits.set(1);
}

/// The second half: its result.
pub fn finish(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    thread.waits.set(0);
    if record.kind != kind::END || record.nr != u64::from(row.nr) {
        diverge_call(thread, &record, u64::from(row.nr));
    }
    apply(row, args, &record);
    answer_request(row, args, &record);
    crate::words::cleared(&record);
    crate::deaths::marked(&record);
    write_through(row, args, &record);
    let result = record.result;
    count_output(thread, row, result);
    consume(thread.process());
    result
}

/// A record that the monitor's own code would have written now: it must be
/// there.
pub fn expect(
    thread: &Thread,
    wanted: u8,
    number: u64,
    args: Option<&[u64; 6]>,
    result: Option<i64>,
) {
    let record = next_for(thread);
    if record.kind != wanted || record.nr != number {
        diverge_call(thread, &record, number);
    }
    if let Some(args) = args {
        let count = protocol::table::syscall(number).map_or(0, |row| row.args.len());
        for (i, (expected, found)) in record.args.iter().zip(args).enumerate().take(count) {
            if expected != found {
                diverge(thread, difference::ARGUMENT, i as u32, *expected, *found);
            }
        }
        if number == nr::EXIT_GROUP || number == nr::EXIT && thread.number.get() == 0 {
            let exit = &stream_of(thread.process()).exit;
            exit.store(EXITED | args[0] & 0xff, Relaxed);
        }
    }
    if let Some(result) = result
        && record.result != result
    {
        diverge(
            thread,
            difference::RESULT,
            0,
            record.result as u64,
            result as u64,
        );
    }
    consume(thread.process());
}

/// A clock read. None: the log has something else first, the long way finds
/// out.
pub fn read_clock(thread: &Thread, number: u64, first: u64, second: u64) -> Option<i64> {
    let process = thread.process();
    let taken = thread.clock_taken.replace(0);
    if taken != 0 {
        return Some(taken as i64 - 1);
    }
    let record = peek(process)?;
    if record.kind != kind::CLOCK
        || process.log.thread.get() != thread.number.get()
        || record.nr != number
        || player::is_due(thread)
    {
        return None;
    }
    let value = record.values[2];
    let now = [value / 1_000_000_000, value % 1_000_000_000];
    let result = match record.values[0] as u8 {
        clock::GETTIMEOFDAY => {
            mem::write(first, &[now[0], now[1] / 1000]);
            0
        }
        clock::TIME => {
            if first != 0 {
                mem::write(first, &now[0]);
            }
            now[0] as i64
        }
        _ => {
            mem::write(second, &now);
            0
        }
    };
    consume(process);
    Some(result)
}

/// What the thread read from the time-stamp counter: value and auxiliary.
pub fn read_counter(thread: &Thread) -> (u64, u32) {
    let record = next_for(thread);
    let values = &record.values;
    let read = match record.kind {
        kind::TSC => (values[0], values[1] as u32),
        // In a program that has been halted.
        kind::ANSWER if values[0] == Instruction::Counter as u64 => (
            values[answer::ANSWERED],
            values[answer::ANSWERED + 2] as u32,
        ),
        _ => diverge_call(thread, &record, NO_CALL),
    };
    consume(thread.process());
    read
}

/// What an instruction answered, that was asked so.
pub fn answer(thread: &Thread, what: Instruction, asked: [u64; 2]) -> [u64; 4] {
    let record = next_for(thread);
    let values = &record.values;
    let is_it = record.kind == kind::ANSWER
        && values[0] == what as u64
        && values[answer::ASKED..answer::ANSWERED] == asked;
    if !is_it {
        diverge_call(thread, &record, NO_CALL - what as u64);
    }
    consume(thread.process());
    let mut answered = [0; 4];
    answered.copy_from_slice(&values[answer::ANSWERED..answer::VALUES]);
    answered
}
