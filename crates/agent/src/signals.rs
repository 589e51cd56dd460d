//! Signals: which the program inherits as ignored, and what the recorder does
//! with those that reach it.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

use crate::reaper;
use crate::waits::Waits;

/// Signals that the recorder or the reaper ignores, for the program's sake:
/// those that a terminal or an administrator sends to the whole group, those
/// of a reader that went away, and that of a limit on the size of files, whose
/// error says the same.
const IGNORED: [i32; 7] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGPIPE,
    libc::SIGUSR1,
    libc::SIGXFSZ,
];

/// What SIGPIPE did when `mw` was started: Rust's runtime has it ignored
/// before `main`.
static SIGPIPE_BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Called before the runtime begins.
extern "C" fn note_sigpipe() {
    SIGPIPE_BEFORE.store(handler(libc::SIGPIPE), Relaxed);
}

// SAFETY: the C library calls what lies in this section once, before `main`,
// with arguments that may be left unread.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_sigpipe;

fn handler(signal: i32) -> usize {
    // SAFETY: asks only; the structure is valid when zero.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action.sa_sigaction
    }
}

/// What signals did when `mw` was started.
#[derive(Clone, Copy)]
pub struct Inherited([usize; IGNORED.len()]);

impl Inherited {
    /// Takes note, before anything is changed.
    pub fn note() -> Inherited {
        Inherited(IGNORED.map(|signal| match signal {
            libc::SIGPIPE => SIGPIPE_BEFORE.load(Relaxed),
            other => handler(other),
        }))
    }

    /// Makes them do so again, in the process that becomes the program.
    pub fn restore(&self) {
        for (signal, action) in IGNORED.iter().zip(&self.0) {
            // SAFETY: the default, or ignoring: `mw` was started with no other.
            unsafe { libc::signal(*signal, *action) };
        }
    }
}

/// The reaper outlives what is meant for the program.
pub fn ignore_all() {
    for signal in IGNORED {
        ignore(signal);
    }
}

/// A write beyond the limit on the size of files shall fail like one on a full
/// disk, not kill the recorder.
pub fn ignore_file_size() {
    ignore(libc::SIGXFSZ);
}

fn ignore(signal: i32) {
    // SAFETY: there is no handler that could be unsafe.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// The signals that are blocked, as the kernel counts them.
pub fn blocked() -> u64 {
    let mut mask = 0u64;
    // SAFETY: asks for the mask; the kernel's mask is eight bytes.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            0,
            std::ptr::null::<u64>(),
            &raw mut mask,
            8,
        );
    }
    mask
}

static REAPER: AtomicI32 = AtomicI32::new(0);
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static TERMINATIONS: AtomicU32 = AtomicU32::new(0);

/// A program that was asked to end and sleeps without a call for so long hangs.
const HANGS: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Signals meant for the program do not end the recorder: those from the
/// terminal reach the program anyway, the others are passed on. A second
/// Ctrl-C ends everything, and so does a second SIGTERM, or one that the program
/// does not answer by anything: `progress` changes whenever it does something.
/// The thread that waits for them does `first` before. If the program is debugged,
/// what the terminal sends is the debugger's.
pub fn hold(
    reaper: i32,
    is_debugged: bool,
    first: impl FnOnce() + Send + 'static,
    progress: impl Fn() -> u64 + Send + Sync + 'static,
) -> std::io::Result<()> {
    let progress = Arc::new(progress);
    REAPER.store(reaper, Release);
    // A thread of its own waits for them, so that nothing has to be
    // async-signal-safe.
    let signals = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
    // SAFETY: plain calls on a set of our own.
    let set = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    };
    std::thread::Builder::new().spawn(move || {
        first();
        loop {
            let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: waits for blocked signals; writes `info`.
            let signal = unsafe { libc::sigwaitinfo(&raw const set, info.as_mut_ptr()) };
            if signal <= 0 {
                continue;
            }
            // SAFETY: sigwaitinfo has filled it in.
            let from_terminal = unsafe { info.assume_init() }.si_code == libc::SI_KERNEL;
            if is_debugged && from_terminal {
                continue;
            }
            let before = (signal == libc::SIGTERM).then(|| Waits::now(reaper));
            on_signal(signal, from_terminal);
            if let Some(before) = before
                && TERMINATIONS.fetch_add(1, AcqRel) == 0
            {
                let progress = Arc::clone(&progress);
                let watch = move || end_what_hangs(&*progress, &before);
                // Where no thread can be had, a second one ends it.
                let _ = std::thread::Builder::new().spawn(watch);
            }
        }
    })?;
    Ok(())
}

fn on_signal(signal: i32, from_terminal: bool) {
    let reaper = REAPER.load(Acquire);
    let is_second = match signal {
        libc::SIGINT => INTERRUPTS.fetch_add(1, AcqRel) >= 1,
        libc::SIGTERM => TERMINATIONS.load(Acquire) >= 1,
        _ => false,
    };
    if is_second {
        reaper::signal_all(reaper, libc::SIGKILL);
    } else if !from_terminal && let Some(first) = reaper::program(reaper).first() {
        // SAFETY: a plain system call.
        unsafe { libc::kill(*first, signal) };
    }
}

/// The program was asked to end. If it stands still, it is ended.
fn end_what_hangs(progress: &dyn Fn() -> u64, before: &Waits) {
    let mut last = progress();
    let mut since = Instant::now();
    loop {
        std::thread::sleep(LOOK_EVERY);
        let now = progress();
        let reaper = REAPER.load(Acquire);
        // Who computes or waits for a disk is busy ending.
        if now != last || !reaper::is_asleep(reaper) {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= HANGS && !before.has_limited_since(reaper) {
            break;
        }
    }
    eprintln!("mw: the program does nothing since it was asked to end (SIGTERM): it is killed");
    // Again, for those that are just being made.
    loop {
        reaper::signal_all(REAPER.load(Acquire), libc::SIGKILL);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// From now on Ctrl-C and its like do not end this process but are told to who
/// listens. Programs that are started afterwards ignore Ctrl-C. To be called
/// before any thread is started.
pub fn listen() -> std::io::Result<std::sync::mpsc::Receiver<i32>> {
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    ignore(libc::SIGINT);
    // SAFETY: plain calls on a set of our own.
    let set = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        loop {
            // SAFETY: waits for blocked signals, and wants to know no more.
            let signal = unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
            if signal > 0 && sender.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}
