//! The program's own filters on system calls (seccomp).
//!
//! The kernel is not told of them: they would judge the monitor's calls, too.
//! What a filter says is found out here, at each call of a thread that has
//! one, by the same rules: all filters of a thread are asked, and the strictest
//! answer counts. In replay nobody is asked; the log says which calls were not
//! made, and what happened instead.
//!
//! Filters are kept in the arena, where they survive an exec. They are never
//! changed or freed; one that is installed again, by the next worker of a
//! server, is the same one.
//!
//! A filter is at a place in the pool: its head (which filter was there before
//! it, and how long it is), then its instructions, one in a word each.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::layout::SIGSYS;
use protocol::shared::FILTERS_MAX;

use crate::arch::{self, Regs};
use crate::recorder::{self, topic};
use crate::state::{Thread, control, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{mem, process, signal};

const ARCH_X86_64: u32 = 0xc000_003e;
const ARCH_I386: u32 = 0x4000_0003;

/// What filters answer, without what comes with it.
pub mod action {
    pub const KILL_PROCESS: u32 = 0x8000_0000;
    pub const KILL_THREAD: u32 = 0;
    pub const TRAP: u32 = 0x0003_0000;
    pub const ERRNO: u32 = 0x0005_0000;
    pub const USER_NOTIF: u32 = 0x7fc0_0000;
    pub const TRACE: u32 = 0x7ff0_0000;
    pub const LOG: u32 = 0x7ffc_0000;
    pub const ALLOW: u32 = 0x7fff_0000;
    /// Not a filter's: strict mode kills otherwise.
    pub const STRICT: u32 = 0x8001_0000;
    pub const PARTS: u32 = 0xffff_0000;
}

const MODE_STRICT: u64 = 1;
const MODE_FILTER: u64 = 2;

/// In place of a filter's length: strict mode.
const STRICT_LEN: u64 = u32::MAX as u64;
const INSTRUCTIONS_MAX: u64 = 4096;
/// What the kernel counts for each filter in a chain, and the most in all.
const PENALTY: u64 = 4;
const PATH_MAX: u64 = 32768;

/// What the thread's filters say about a call; None: it is made. They do not see
/// what the C library does through the vdso: natively that is no call.
#[cold]
#[inline(never)]
pub fn judged(
    thread: &Thread,
    number: u64,
    args: &[u64; 6],
    site: u64,
    is_32: bool,
) -> Option<u32> {
    if thread.filter.get() == 0 || site == 0 {
        return None;
    }
    let mut data = [0u32; 16];
    data[0] = number as u32;
    data[1] = if is_32 { ARCH_I386 } else { ARCH_X86_64 };
    let ip = site + 2;
    (data[2], data[3]) = (ip as u32, (ip >> 32) as u32);
    for (pair, arg) in data[4..].chunks_exact_mut(2).zip(args) {
        pair[0] = *arg as u32;
        pair[1] = if is_32 { 0 } else { (*arg >> 32) as u32 };
    }
    let mut strictest = action::ALLOW;
    let mut at = thread.filter.get();
    while at != 0 {
        let (before, len) = head(at);
        let answer = match len {
            STRICT_LEN => strict(number),
            _ => run(at, len, &data),
        };
        if rank(answer) < rank(strictest) {
            strictest = answer;
        }
        at = before;
    }
    match strictest & action::PARTS {
        action::ALLOW | action::LOG => None,
        _ => Some(strictest),
    }
}

/// The smaller, the stricter; an answer that is none is the strictest.
fn rank(answer: u32) -> i32 {
    match answer & action::PARTS {
        known @ (action::KILL_PROCESS
        | action::STRICT
        | action::KILL_THREAD
        | action::TRAP
        | action::ERRNO
        | action::USER_NOTIF
        | action::TRACE
        | action::LOG
        | action::ALLOW) => known as i32,
        _ => i32::MIN,
    }
}

/// read, write, exit and rt_sigreturn.
fn strict(number: u64) -> u32 {
    match number {
        nr::READ | nr::WRITE | nr::EXIT | nr::RT_SIGRETURN => action::ALLOW,
        _ => action::STRICT,
    }
}

fn word(at: u32) -> u64 {
    let pool = &control().filters;
    pool.get(at as usize).map_or(0, |word| word.load(Acquire))
}

/// Which filter there was before this one, and how long it is.
fn head(at: u32) -> (u32, u64) {
    let head = word(at);
    (head as u32, head >> 32)
}

/// An instruction: code, steps to skip if so and if not, value.
fn decode(word: u64) -> (u16, u64, u64, u32) {
    let (yes, no) = (word >> 16 & 0xff, word >> 24 & 0xff);
    (word as u16, yes, no, (word >> 32) as u32)
}

/// Runs a filter on what it may know of a call.
fn run(at: u32, len: u64, data: &[u32; 16]) -> u32 {
    let (mut a, mut x) = (0u32, 0u32);
    let mut cells = [0u32; 16];
    let mut pc = 0;
    while pc < len {
        let (code, yes, no, k) = decode(word(at.wrapping_add(1 + pc as u32)));
        pc += 1;
        let cell = k as usize & 15;
        let operand = if code & 8 != 0 { x } else { k };
        let mut jump = |so: bool| pc += if so { yes } else { no };
        match code {
            0x20 => a = data[(k as usize / 4) & 15],
            0x00 => a = k,
            0x01 => x = k,
            0x60 => a = cells[cell],
            0x61 => x = cells[cell],
            0x80 => a = 64,
            0x81 => x = 64,
            0x02 => cells[cell] = a,
            0x03 => cells[cell] = x,
            0x07 => x = a,
            0x87 => a = x,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => match a.checked_div(operand) {
                Some(quotient) => a = quotient,
                None => return action::KILL_THREAD,
            },
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0x64 | 0x6c => a = a.wrapping_shl(operand),
            0x74 | 0x7c => a = a.wrapping_shr(operand),
            0x84 => a = a.wrapping_neg(),
            0xa4 | 0xac => a ^= operand,
            0x05 => pc += u64::from(k),
            0x15 | 0x1d => jump(a == operand),
            0x25 | 0x2d => jump(a > operand),
            0x35 | 0x3d => jump(a >= operand),
            0x45 | 0x4d => jump(a & operand != 0),
            0x06 => return k,
            0x16 => return a,
            _ => break,
        }
    }
    action::KILL_PROCESS
}

/// Whether the kernel would take these instructions, and if not why.
fn check(len: u64, from: u64) -> Result<(), i64> {
    for pc in 0..len {
        let word = mem::read::<u64>(from + 8 * pc).ok_or(sys::EFAULT)?;
        let (code, yes, no, k) = decode(word);
        let left = len - pc - 1;
        let is_valid = match code {
            0x20 => k < 64 && k % 4 == 0,
            0x60 | 0x61 | 0x02 | 0x03 => k < 16,
            0x34 => k != 0,
            0x64 | 0x74 => k < 32,
            0x05 => u64::from(k) < left,
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => yes < left && no < left,
            0x06 | 0x16 => true,
            _ if left == 0 => false,
            0x00 | 0x01 | 0x80 | 0x81 | 0x07 | 0x87 | 0x84 => true,
            0x04 | 0x0c | 0x14 | 0x1c | 0x24 | 0x2c | 0x3c | 0x44 | 0x4c | 0x54 | 0x5c | 0x6c
            | 0x7c | 0xa4 | 0xac => true,
            _ => false,
        };
        if !is_valid || left == 0 && !matches!(code, 0x06 | 0x16) {
            return Err(sys::EINVAL);
        }
    }
    Ok(())
}

/// Puts a filter of so many instructions behind another: where it is.
fn install(before: u32, len: u64, from: u64) -> Result<u32, i64> {
    check(len, from)?;
    let mut total = len;
    let mut at = before;
    while at != 0 {
        let (next, len) = head(at);
        total += if len == STRICT_LEN { 0 } else { len } + PENALTY;
        at = next;
    }
    if total > PATH_MAX {
        return Err(sys::ENOMEM);
    }
    let place = control().filters_used.fetch_add(1 + len as u32, AcqRel) + 1;
    let pool = control().filters.get(place as usize..);
    let Some(pool) = pool.and_then(|pool| pool.get(..1 + len as usize)) else {
        return Err(sys::ENOMEM);
    };
    for (i, to) in (0..len).zip(pool.iter().skip(1)) {
        to.store(mem::read::<u64>(from + 8 * i).unwrap_or(0), Relaxed);
    }
    if let Some(head) = pool.first() {
        head.store(u64::from(before) | len << 32, Release);
    }
    Ok(place)
}

/// A filter that is the same and stands at the same place.
fn known(before: u32, len: u64, from: u64) -> Option<u32> {
    let wanted = u64::from(before) | len << 32;
    let same =
        |at: u32| (0..len).all(|i| mem::read::<u64>(from + 8 * i) == Some(word(at + 1 + i as u32)));
    let mut at = 1;
    while (at as usize) < FILTERS_MAX {
        let found = word(at);
        if found == 0 {
            break;
        }
        if found == wanted && (len == STRICT_LEN || same(at)) {
            return Some(at);
        }
        let len = found >> 32;
        at += 1 + if len == STRICT_LEN { 0 } else { len as u32 };
    }
    None
}

/// `seccomp`.
pub fn seccomp(thread: &Thread, args: &[u64; 6]) -> i64 {
    const SET_MODE_STRICT: u32 = 0;
    const SET_MODE_FILTER: u32 = 1;
    const GET_ACTION_AVAIL: u32 = 2;
    let [operation, flags, at, ..] = *args;
    match operation as u32 {
        SET_MODE_STRICT if flags == 0 && at == 0 => set_strict(thread),
        SET_MODE_FILTER => set_filter(thread, flags as u32, at),
        GET_ACTION_AVAIL if flags == 0 => match mem::read::<u32>(at) {
            None => -sys::EFAULT,
            Some(action::USER_NOTIF) => -sys::EOPNOTSUPP,
            // SAFETY: the program's own call; it reads a number.
            Some(_) => unsafe { arch::syscall(nr::SECCOMP, args) },
        },
        _ => -sys::EINVAL,
    }
}

/// What a `prctl` about filters returns; None: this one is about something else.
pub fn prctl(thread: &Thread, args: &[u64; 6]) -> Option<i64> {
    let now = thread.filter.get();
    match (args[0] as u32, args[1]) {
        (PR_GET_SECCOMP, _) if now == 0 => Some(0),
        (PR_GET_SECCOMP, _) => Some(MODE_FILTER as i64),
        (PR_SET_SECCOMP, MODE_STRICT) => Some(set_strict(thread)),
        (PR_SET_SECCOMP, MODE_FILTER) => Some(set_filter(thread, 0, args[2])),
        (PR_SET_SECCOMP, _) => Some(-sys::EINVAL),
        _ => None,
    }
}

const PR_GET_SECCOMP: u32 = 21;
const PR_SET_SECCOMP: u32 = 22;

/// Whether a `prctl` is about filters.
pub fn is_prctl(option: u64) -> bool {
    matches!(option as u32, PR_GET_SECCOMP | PR_SET_SECCOMP)
}

fn set_strict(thread: &Thread) -> i64 {
    if thread.filter.get() != 0 {
        return -sys::EINVAL;
    }
    let place = known(0, STRICT_LEN, 0).unwrap_or_else(|| {
        let place = control().filters_used.fetch_add(1, AcqRel) + 1;
        if let Some(head) = control().filters.get(place as usize) {
            head.store(STRICT_LEN << 32, Release);
        }
        place
    });
    thread.filter.set(place);
    0
}

fn set_filter(thread: &Thread, flags: u32, at: u64) -> i64 {
    const TSYNC: u32 = 1;
    const NEW_LISTENER: u32 = 8;
    const TSYNC_ESRCH: u32 = 16;
    const FLAGS: u32 = 0x3f;
    let now = thread.filter.get();
    if flags & !FLAGS != 0 || now != 0 && head(now).1 == STRICT_LEN {
        return -sys::EINVAL;
    }
    if flags & NEW_LISTENER != 0 {
        let text = b"a seccomp filter with a listener";
        recorder::note(thread, topic::LISTENER, 0, text);
        return -sys::EINVAL;
    }
    let (Some(len), Some(from)) = (mem::read::<u16>(at), mem::read::<u64>(at + 8)) else {
        return -sys::EFAULT;
    };
    let len = u64::from(len);
    if len == 0 || len > INSTRUCTIONS_MAX {
        return -sys::EINVAL;
    }
    if !may_filter() {
        return -sys::EACCES;
    }
    if flags & TSYNC != 0
        && let Some(other) = others(thread).find(|other| !is_before(other.filter.get(), now))
    {
        return match flags & TSYNC_ESRCH {
            0 => i64::from(other.tid.get()),
            _ => -sys::ESRCH,
        };
    }
    let found = match known(now, len, from) {
        Some(place) => Ok(place),
        None => install(now, len, from),
    };
    match found {
        Err(errno) => -errno,
        Ok(place) => {
            thread.filter.set(place);
            if flags & TSYNC != 0 {
                others(thread).for_each(|other| other.filter.set(place));
            }
            0
        }
    }
}

/// The other threads of the process.
fn others(thread: &Thread) -> impl Iterator<Item = &'static Thread> {
    let process = core::ptr::from_ref(thread.process());
    let own = thread.slot.get();
    (0..space().slots_used.get())
        .filter(move |slot| *slot != own)
        .map(thread_in_slot)
        .filter(move |other| {
            other.tid_word.load(Acquire) != 0 && core::ptr::eq(other.process(), process)
        })
}

/// Whether a filter is another, or stands before it.
fn is_before(filter: u32, other: u32) -> bool {
    let mut at = other;
    loop {
        if at == filter {
            return true;
        }
        if at == 0 {
            return false;
        }
        at = head(at).0;
    }
}

/// Only who gets no more rights by an exec, or has them all, may have filters.
fn may_filter() -> bool {
    const PR_GET_NO_NEW_PRIVS: u64 = 39;
    const CAPGET: u64 = 125;
    const VERSION_3: u64 = 0x2008_0522;
    const SYS_ADMIN: u32 = 21;
    if sys::call(nr::PRCTL, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) == 1 {
        return true;
    }
    let mut head = [VERSION_3];
    let mut sets = [0u32; 6];
    let (at, to) = (head.as_mut_ptr() as u64, sets.as_mut_ptr() as u64);
    sys::call(CAPGET, at, to, 0, 0, 0, 0) == 0 && sets[0] & 1 << SYS_ADMIN != 0
}

/// A call that is not made: what happens in its stead. The same in recording
/// and replay.
pub fn enforce(thread: &Thread, regs: &mut Regs, number: u64, answer: u32, site: u64) {
    const SYS_SECCOMP: u64 = 1;
    const SIGKILL: i32 = 9;
    let data = answer & 0xffff;
    let is_last = thread.process().threads.get() <= 1;
    match answer & action::PARTS {
        action::TRAP => {
            let (arch, number) = match protocol::syscall::int80(number) {
                Some(number) => (ARCH_I386, number),
                None => (ARCH_X86_64, number),
            };
            let mut info = [0; 16];
            info[0] = SIGSYS as u64 | u64::from(data) << 32;
            info[1] = SYS_SECCOMP;
            info[2] = site + 2;
            info[3] = number & 0xffff_ffff | u64::from(arch) << 32;
            // The registers are as they were before the call.
            signal::force_here(thread, SIGSYS, false, &info);
        }
        action::KILL_THREAD | action::STRICT if !is_last => process::vanish(thread, regs),
        action::STRICT => signal::end_by(thread, SIGKILL),
        action::ERRNO | action::TRACE | action::USER_NOTIF => {
            regs.rax = result_of(answer) as u64;
        }
        _ => signal::end_by(thread, SIGSYS),
    }
}

/// What the log says that the call returned.
pub fn result_of(answer: u32) -> i64 {
    const ERRNO_MAX: u32 = 4095;
    match answer & action::PARTS {
        action::ERRNO => -i64::from((answer & 0xffff).min(ERRNO_MAX)),
        _ => -sys::ENOSYS,
    }
}
