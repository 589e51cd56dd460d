//! The program's time: real time less what it was halted (`protocol::halt`), and
//! time limits of calls that go by it.
//!
//! A call that waits with a limit is made with it as it is. Only if it comes back
//! because the limit is over, and the program was halted meanwhile, it is made
//! again with what is left. So a program that is never halted pays for one
//! comparison.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use protocol::halt::{Halt, LEFT_IN_MEMORY, flag, limit, on_limit};

use crate::arch;
use crate::state::{Thread, control};
use crate::sys::{self, nr};
use crate::{halt, mem};

pub const SECOND: u64 = 1_000_000_000;

/// A time that does not come, and that the kernel takes (ns).
const NEVER: u64 = 200 * 365 * 24 * 3600 * SECOND;

fn shared() -> &'static Halt {
    &control().halt
}

/// By how much clocks are behind.
#[inline(always)]
pub fn shift() -> u64 {
    shared().shift.load(Relaxed)
}

/// By how much they are behind for this thread. One that runs on while the
/// others are halted sees no halt, so its clocks must not go back by one.
pub fn shift_of(thread: &Thread) -> u64 {
    let is_exempt = halt::entry(thread).is_some_and(|entry| entry.has(flag::EXEMPT));
    if !is_exempt {
        thread.shift.set(shift());
    }
    thread.shift.get()
}

/// By how much the time-stamp counter is behind.
pub fn shift_ticks() -> u64 {
    shared().shift_ticks.load(Relaxed)
}

/// By how much it is behind for this thread, which has read it just now. For one that is led while
/// all others stand it stands, too: it would have to go back when they go on.
pub fn shift_ticks_of(thread: &Thread, counter: u64) -> u64 {
    let stood = halt::stands_since(thread).map_or(0, |since| counter.saturating_sub(since));
    shift_ticks().wrapping_add(stood)
}

/// Whether a clock shows the time: others show what a thread has computed.
pub fn is_shifted(clock: u64) -> bool {
    matches!(clock as u32, 0 | 1 | 4..=9 | 11)
}

/// A stretch of the program's time.
#[derive(Clone, Copy)]
pub struct Span {
    pub counter: u64,
    shift: u64,
    shift_ticks: u64,
    /// What it measures has begun before.
    is_late: bool,
}

impl Span {
    #[inline(always)]
    pub fn begin() -> Span {
        Span {
            counter: arch::counter(),
            shift: shift(),
            shift_ticks: shift_ticks(),
            is_late: false,
        }
    }

    /// When it began, by the program's time-stamp counter.
    #[inline(always)]
    pub fn since(&self) -> u64 {
        self.counter.wrapping_sub(self.shift_ticks)
    }

    /// This span, begun earlier (the time-stamp counter in the program's time; 0: it was
    /// not).
    pub fn begun_at(self, counter: u64) -> Span {
        match counter {
            0 => self,
            _ => Span {
                counter: counter.wrapping_add(self.shift_ticks),
                is_late: true,
                ..self
            },
        }
    }

    /// When it began, for that.
    pub fn began(&self) -> u64 {
        self.since().max(1)
    }

    /// Whether the program was halted since.
    #[inline(always)]
    fn has_halts(&self) -> bool {
        shift() != self.shift
    }

    /// How long it is by now.
    pub fn elapsed(&self) -> u64 {
        self.signed().max(0) as u64
    }

    /// How long it is, with its sign. What began after a halt was asked for, but before this thread had
    /// stopped, may be shorter than nothing: that time is taken back.
    pub fn signed(&self) -> i64 {
        let real = arch::counter().wrapping_sub(self.counter);
        let halted = shift_ticks().wrapping_sub(self.shift_ticks);
        let length = shared().ns_of(real.abs_diff(halted)) as i64;
        if real < halted { -length } else { length }
    }
}

/// How a limit is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Milliseconds,
    Timespec,
    Timeval,
    /// A timespec: when it is over.
    Absolute,
}

/// The time limit of a call.
pub struct Limit {
    number: u64,
    arg: usize,
    form: Form,
    /// How long, or when it is over, in the program's time (ns).
    value: u64,
    span: Span,
    /// The shift that went into `made`.
    shift: u64,
    /// What the kernel is given instead.
    made: [u64; 2],
    /// Whether it is.
    is_ours: bool,
}

impl Limit {
    /// The limit of a call, if it has one that is not over at once.
    #[inline]
    pub fn of(number: u64, args: &[u64; 6], span: Span) -> Option<Limit> {
        let (arg, form) = place(number, args)?;
        let value = match form {
            Form::Milliseconds => match args[arg] as i32 {
                ms @ 1.. => ms as u64 * 1_000_000,
                _ => return None,
            },
            _ => {
                let [seconds, rest] = mem::read::<[u64; 2]>(args[arg])?;
                let rest = match form {
                    Form::Timeval => rest.saturating_mul(1000),
                    _ => rest,
                };
                seconds.saturating_mul(SECOND).saturating_add(rest)
            }
        };
        (value != 0).then_some(Limit {
            number,
            arg,
            form,
            value,
            span,
            shift: 0,
            made: [0; 2],
            is_ours: false,
        })
    }

    /// How long it lasts, for those who look.
    #[inline]
    pub fn length(&self) -> u64 {
        match self.form {
            Form::Absolute => limit::UNTIL,
            _ => self.value,
        }
    }

    /// If it is a moment, when that is.
    #[inline]
    pub fn show(&self, thread: &Thread, args: &[u64; 6]) {
        if self.form == Form::Absolute
            && let Some(entry) = halt::entry(thread)
        {
            entry.until.store(self.value, Relaxed);
            entry
                .until_clock
                .store(clock_of(self.number, args), Relaxed);
        }
    }

    /// Before the call is made for the first time.
    #[inline]
    pub fn begin(&mut self, args: &mut [u64; 6]) {
        let is_other = match self.form {
            Form::Absolute => self.span.shift != 0,
            _ => self.span.is_late,
        };
        if is_other {
            self.set(args);
        }
    }

    /// Of a call that is to be made again without the monitor: which argument it has
    /// instead of its own. A moment is one of real time then.
    pub fn told(&self, args: &[u64; 6]) -> Option<(u32, [u64; 2])> {
        let arg = self.arg as u32 + 1;
        match self.form {
            Form::Absolute => None,
            Form::Milliseconds => Some((arg, [args[self.arg], 0])),
            _ if args[self.arg] == 0 => None,
            _ => Some((arg | LEFT_IN_MEMORY, self.made)),
        }
    }

    /// What is left of it.
    fn left(&self) -> u64 {
        self.value.saturating_sub(self.span.elapsed())
    }

    /// Gives the kernel what is left.
    fn set(&mut self, args: &mut [u64; 6]) {
        self.shift = shift();
        let ns = match self.form {
            Form::Absolute => self.value.saturating_add(self.shift),
            _ => self.left(),
        };
        self.is_ours = true;
        match self.form {
            Form::Milliseconds => {
                args[self.arg] = ns.div_ceil(1_000_000).min(i32::MAX as u64);
                return;
            }
            Form::Timeval => self.made = [ns / SECOND, ns % SECOND / 1000],
            _ => self.made = [ns / SECOND, ns % SECOND],
        }
        args[self.arg] = self.made.as_ptr() as u64;
    }

    /// Whether the call is to be made again, with what is left of its time.
    /// `is_interrupted`: it came back for nothing.
    #[inline]
    pub fn goes_on(
        &mut self,
        thread: &Thread,
        args: &mut [u64; 6],
        result: &mut i64,
        is_interrupted: bool,
    ) -> bool {
        let is_over = *result == timed_out(self.number);
        if is_interrupted || is_over && self.span.has_halts() {
            return self.look_again(thread, args, result, is_over);
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn look_again(
        &mut self,
        thread: &Thread,
        args: &mut [u64; 6],
        result: &mut i64,
        is_over: bool,
    ) -> bool {
        if let Some(entry) = halt::entry(thread) {
            let extended = entry.extended.swap(0, AcqRel);
            self.value = self.value.saturating_add_signed(extended);
            match entry.on_limit.swap(on_limit::KEEP, AcqRel) {
                on_limit::FIRE => {
                    *result = timed_out(self.number);
                    return false;
                }
                on_limit::DROP => {
                    // Sleeps have no way to say that there is none.
                    self.value = NEVER;
                    match (self.number, self.form) {
                        (nr::NANOSLEEP | nr::CLOCK_NANOSLEEP, _) => self.set(args),
                        (_, Form::Milliseconds) => args[self.arg] = u64::MAX,
                        _ => args[self.arg] = 0,
                    }
                    return true;
                }
                _ if extended != 0 => {
                    self.set(args);
                    return true;
                }
                _ => {}
            }
        }
        match self.form {
            // If it is over all the same, the kernel says so at once.
            Form::Absolute if is_over && self.shift == shift() && self.is_ours => return false,
            Form::Absolute => {}
            _ if is_over && self.left() == 0 => return false,
            _ => {}
        }
        self.set(args);
        true
    }

    /// The thread leaves the call, to make it again later. Some have said by then how much
    /// of their time is left, and say so now: that is what they begin with then. Whether
    /// this is one of them.
    pub fn leave(&self, args: &[u64; 6]) -> bool {
        let says = matches!(self.number, nr::SELECT | nr::PSELECT6 | nr::PPOLL);
        if says {
            self.tell_left(args, -sys::EINTR);
        }
        says
    }

    /// After the call: some say how much of their time is left. `args` are those
    /// that it was first made with.
    #[inline]
    pub fn finish(&self, args: &[u64; 6], result: i64) {
        if self.is_ours || self.span.has_halts() {
            self.tell_left(args, result);
        }
    }

    #[cold]
    fn tell_left(&self, args: &[u64; 6], result: i64) {
        let place = match (self.number, self.form) {
            (_, Form::Absolute) => return,
            (nr::SELECT | nr::PSELECT6 | nr::PPOLL | nr::RECVMMSG, _) => args[self.arg],
            (nr::NANOSLEEP, _) if result == -sys::EINTR => args[1],
            (nr::CLOCK_NANOSLEEP, _) if result == -sys::EINTR => args[3],
            _ => return,
        };
        let left = self.left();
        let rest = match self.form {
            Form::Timeval => left % SECOND / 1000,
            _ => left % SECOND,
        };
        let left = [left / SECOND, rest];
        if place != 0 {
            mem::copy(place, left.as_ptr() as u64, 16);
        }
    }
}

/// By which clock a moment is meant.
fn clock_of(number: u64, args: &[u64; 6]) -> u32 {
    const BY_REALTIME: u64 = 256;
    const FUTEX_LOCK_PI: u64 = 6;
    let is_realtime = match number {
        nr::FUTEX => args[1] & BY_REALTIME != 0 || args[1] & 0x7f == FUTEX_LOCK_PI,
        nr::FUTEX_WAITV => args[4] == 0,
        nr::FUTEX_WAIT => args[5] == 0,
        nr::CLOCK_NANOSLEEP => matches!(args[0] as u32, 0 | 8 | 11),
        _ => true,
    };
    match is_realtime {
        true => limit::REALTIME,
        false => limit::MONOTONIC,
    }
}

/// Which argument of a call is a time limit, if any, and what it looks like.
fn place(number: u64, args: &[u64; 6]) -> Option<(usize, Form)> {
    const ABSOLUTE: u64 = 1;
    const FUTEX_WAIT: u64 = 0;
    const FUTEX_LOCK_PI: u64 = 6;
    const FUTEX_WAIT_BITSET: u64 = 9;
    const FUTEX_LOCK_PI2: u64 = 13;
    let (arg, form) = match number {
        nr::POLL => (2, Form::Milliseconds),
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT => (3, Form::Milliseconds),
        nr::SELECT => (4, Form::Timeval),
        nr::PSELECT6 => (4, Form::Timespec),
        nr::PPOLL => (2, Form::Timespec),
        nr::EPOLL_PWAIT2 => (3, Form::Timespec),
        nr::NANOSLEEP => (0, Form::Timespec),
        nr::CLOCK_NANOSLEEP if !is_shifted(args[0]) => return None,
        nr::CLOCK_NANOSLEEP if args[1] & ABSOLUTE != 0 => (2, Form::Absolute),
        nr::CLOCK_NANOSLEEP => (2, Form::Timespec),
        nr::FUTEX => match args[1] & 0x7f {
            FUTEX_WAIT => (3, Form::Timespec),
            FUTEX_WAIT_BITSET | FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => (3, Form::Absolute),
            _ => return None,
        },
        nr::FUTEX_WAITV => (3, Form::Absolute),
        nr::FUTEX_WAIT => (4, Form::Absolute),
        nr::RT_SIGTIMEDWAIT => (2, Form::Timespec),
        nr::SEMTIMEDOP => (3, Form::Timespec),
        nr::MQ_TIMEDSEND | nr::MQ_TIMEDRECEIVE => (4, Form::Absolute),
        nr::RECVMMSG => (4, Form::Timespec),
        _ => return None,
    };
    (args[arg] != 0).then_some((arg, form))
}

/// What a call returns when its time is over.
fn timed_out(number: u64) -> i64 {
    match number {
        nr::FUTEX | nr::FUTEX_WAITV | nr::FUTEX_WAIT | nr::MQ_TIMEDSEND | nr::MQ_TIMEDRECEIVE => {
            -sys::ETIMEDOUT
        }
        nr::RT_SIGTIMEDWAIT | nr::SEMTIMEDOP => -sys::EAGAIN,
        _ => 0,
    }
}

/// The sets of descriptors that `select` takes: the kernel clears them when the
/// time is over.
pub struct Sets {
    words: [[u64; Sets::WORDS]; 3],
    len: u64,
}

impl Sets {
    const WORDS: usize = 16;

    /// None: the call takes none, or more than there is room for.
    pub fn of(number: u64, args: &[u64; 6]) -> Option<Sets> {
        if !matches!(number, nr::SELECT | nr::PSELECT6) {
            return None;
        }
        let len = (args[0] & 0xffff_ffff).div_ceil(64) * 8;
        if len > 8 * Sets::WORDS as u64 {
            return None;
        }
        let mut words = [[0; Sets::WORDS]; 3];
        for (set, from) in words.iter_mut().zip(&args[1..4]) {
            if *from != 0 {
                mem::copy(set.as_mut_ptr() as u64, *from, len);
            }
        }
        Some(Sets { words, len })
    }

    pub fn restore(&self, args: &[u64; 6]) {
        for (set, to) in self.words.iter().zip(&args[1..4]) {
            if *to != 0 {
                mem::copy(*to, set.as_ptr() as u64, self.len);
            }
        }
    }
}

/// A call on a socket came back because the socket's own time limit is over, but
/// the program was halted meanwhile: waits for what is left of it. True: the call
/// is to be made again.
#[inline]
pub fn socket_goes_on(
    thread: &Thread,
    number: u64,
    args: &[u64; 6],
    result: &mut i64,
    span: &Span,
) -> bool {
    let is_over = *result == -sys::EAGAIN || *result == -sys::EINPROGRESS;
    // It was taken out of its call.
    let is_for_nothing = *result == -sys::EINTR && thread.pending.load(Acquire) == 0;
    if !(is_over || is_for_nothing) || !span.has_halts() {
        return false;
    }
    match wait_for_socket(thread, number, args[0], span) {
        Socket::Ready => true,
        Socket::Over if is_for_nothing => {
            *result = match number {
                nr::CONNECT => -sys::EINPROGRESS,
                _ => -sys::EAGAIN,
            };
            false
        }
        Socket::Over | Socket::NoLimit => false,
    }
}

enum Socket {
    /// There is something to do, or a signal has come.
    Ready,
    /// The time is over.
    Over,
    /// There is no time limit.
    NoLimit,
}

#[cold]
#[inline(never)]
fn wait_for_socket(thread: &Thread, number: u64, fd: u64, span: &Span) -> Socket {
    const SOL_SOCKET: u64 = 1;
    const SO_RCVTIMEO: u64 = 20;
    const SO_SNDTIMEO: u64 = 21;
    const POLLIN: u32 = 1;
    const POLLOUT: u32 = 4;
    let (option, event) = match number {
        nr::READ | nr::READV | nr::RECVFROM | nr::RECVMSG | nr::ACCEPT | nr::ACCEPT4 => {
            (SO_RCVTIMEO, POLLIN)
        }
        nr::WRITE | nr::WRITEV | nr::SENDTO | nr::SENDMSG | nr::CONNECT => (SO_SNDTIMEO, POLLOUT),
        _ => return Socket::NoLimit,
    };
    let (mut time, mut len) = ([0u64; 2], 16u32);
    let (to, len_at) = (time.as_mut_ptr() as u64, (&raw mut len) as u64);
    if sys::call(nr::GETSOCKOPT, fd, SOL_SOCKET, option, to, len_at, 0) != 0 {
        return Socket::NoLimit;
    }
    let limit = time[0] * SECOND + time[1] * 1000;
    if limit == 0 {
        return Socket::NoLimit;
    }
    loop {
        let left = limit.saturating_sub(span.elapsed());
        if left == 0 {
            return Socket::Over;
        }
        let mut poll = [fd as u32, event];
        let time = [left / SECOND, left % SECOND];
        let wait = [poll.as_mut_ptr() as u64, 1, time.as_ptr() as u64, 0, 8, 0];
        halt::enter(thread, number, span.since(), limit);
        // SAFETY: what the kernel reads and writes is on this stack.
        let result = unsafe {
            arch::syscall_interruptible(nr::PPOLL, &raw const wait, thread.pending.as_ptr())
        };
        halt::back(thread, result);
        if result > 0 || thread.pending.load(Acquire) != 0 {
            return Socket::Ready;
        }
    }
}
