//! A replaying process that is led: started, run to an event, forked, looked
//! into.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use ::target::{Condition, Handler, Inside, ONE_INSTRUCTION, Registers, ThreadState, Watch};
use inject::{Image, Injection};
use protocol::id::{EventNo, ThreadNo};
use protocol::layout::ARENA_FD;
use protocol::replay::{
    CONDITION_BYTES, CONDITIONS, FILES_FD, NO_CALL, Player as Slot, REPLAY_BIT, ThreadView,
    VIEWS_BASE, WATCHES, command, reason, state,
};

use protocol::id::Addr;

use crate::Error;
use crate::file::ReplayFile;

/// Why a player stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before the event it was to run to, or told to stop.
    Event,
    /// Its log has ended.
    End,
    /// It came to something else than the recording.
    Diverged,
    /// Before the instruction at a breakpoint.
    Breakpoint,
    /// At the place between events that it was to run to.
    Goal,
    /// What was to be stepped over has been executed.
    Stepped,
    /// Memory that is watched has changed: the number of the piece.
    Watch(usize),
    /// Other code may be mapped than before.
    Mapped,
    /// Told to stop, between two events.
    Halted,
}

/// How a player is to move between events. By default it cannot be stopped
/// there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Motion {
    /// It stops before the instructions at these addresses.
    pub breakpoints: Vec<Addr>,
    /// It stops at this place.
    pub goal: Option<Inside>,
    /// It stops after one instruction, or as many as begin in the range.
    pub step: Option<std::ops::Range<Addr>>,
    /// It stops behind an instruction that changed one of these pieces (as
    /// [`Watch::pieces`] makes them), or behind the event that did, if it does
    /// not hold what it held at first any more (nothing: it could not be read).
    pub watches: Vec<(Watch, Option<u64>)>,
    /// So many breakpoints and changes are passed before it stops at one.
    pub skip: u64,
    /// It stops when other code may be mapped.
    pub mapped: bool,
    /// Breakpoints that are passed if none of their conditions holds.
    pub conditions: Vec<Condition>,
}

/// So often it is seen whether something has come before it is waited for:
/// some ten microseconds.
const SPINS: u32 = 500;

/// A process with a slot in a [`ReplayFile`].
pub struct Player {
    pub slot: usize,
    pid: i32,
    /// It ended by itself, and was waited for: its id is somebody else's now.
    gone: Cell<bool>,
    memory: File,
}

/// Starts a process that replays what `file` says, in process group `group`
/// (0: one of its own). It is to end with the thread that called. What it says
/// goes to `words`.
pub fn start(file: &ReplayFile, image: &Image, group: i32, words: Stdio) -> Result<i32, Error> {
    let fds = [
        (file.file().as_raw_fd(), ARENA_FD),
        (file.captured().as_raw_fd(), FILES_FD),
    ];
    let leader = std::process::id() as i32;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("mw-replay")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(words);
    // SAFETY: plain system calls.
    unsafe {
        command.pre_exec(move || {
            // A replay does not outlive the one who wanted it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != leader {
                libc::_exit(1);
            }
            // Ctrl-C is for the one who leads it.
            libc::setpgid(0, group);
            for (fd, to) in fds {
                if libc::dup2(fd, to) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let stop = inject::start_stopped(&mut command)?;
    let pid = stop.pid();
    let injection = Injection {
        slot: REPLAY_BIT | image.bytes.len() as u64,
        arena_fd: ARENA_FD,
        image_len: image.bytes.len() as u64,
        entry: image.entry,
        vdso: image.vdso,
    };
    stop.inject(&injection, (0, &[]))?;
    Ok(pid)
}

impl Player {
    /// The first process of a file, which stands before its first event.
    /// What it says goes to `words`.
    pub fn start(
        file: &ReplayFile,
        image: &Image,
        slot: usize,
        words: Stdio,
    ) -> Result<Player, Error> {
        let at = slot_in(file, slot);
        at.until.store(0, Relaxed);
        at.command.store(command::NONE, Relaxed);
        at.state.store(state::RUNNING, Release);
        let pid = start(file, image, 0, words)?;
        let player = Player {
            slot,
            pid,
            gone: Cell::new(false),
            memory: open_memory(pid)?,
        };
        player.wait(file, None)?;
        Ok(player)
    }

    /// The kernel's id of it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    fn at<'f>(&self, file: &'f ReplayFile) -> &'f Slot {
        slot_in(file, self.slot)
    }

    /// The event it is about to do.
    pub fn event(&self, file: &ReplayFile) -> u64 {
        self.at(file).event.load(Relaxed)
    }

    /// The thread that is about to do it.
    pub fn thread(&self, file: &ReplayFile) -> u32 {
        self.at(file).thread.load(Relaxed)
    }

    pub fn stop(&self, file: &ReplayFile) -> Stop {
        match self.at(file).reason.load(Relaxed) {
            reason::END => Stop::End,
            reason::DIVERGED => Stop::Diverged,
            reason::BREAKPOINT => Stop::Breakpoint,
            reason::GOAL => Stop::Goal,
            reason::STEPPED => Stop::Stepped,
            reason::MAPPED => Stop::Mapped,
            reason::HALTED => Stop::Halted,
            reason::WATCH => Stop::Watch(self.at(file).watch_hit.load(Relaxed) as usize),
            _ => Stop::Event,
        }
    }

    /// Lets it run; it will stop before `event`.
    pub fn run(&self, file: &ReplayFile, event: u64) -> Result<(), Error> {
        let slot = self.at(file);
        slot.until.store(event, Relaxed);
        slot.state.store(state::RUNNING, Release);
        slot.command.store(command::RUN, Release);
        futex_wake(&slot.command);
        Ok(())
    }

    /// The place it stands at.
    pub fn inside(&self, file: &ReplayFile) -> Inside {
        let slot = self.at(file);
        Inside {
            event: EventNo(slot.event.load(Relaxed)),
            transfers: slot.transfers.load(Relaxed),
            address: Addr(slot.rip.load(Relaxed)),
        }
    }

    /// Says how it is to move from now on.
    pub fn set_motion(&self, file: &ReplayFile, motion: &Motion) {
        set_motion(self.at(file), motion);
    }

    /// How many breakpoints and changes of watched memory it came to since it
    /// was told how to move.
    pub fn hits(&self, file: &ReplayFile) -> u64 {
        self.at(file).hits.load(Relaxed)
    }

    /// What the pieces of watched memory held when they were last looked at.
    pub fn watched(&self, file: &ReplayFile) -> Vec<Option<u64>> {
        self.at(file)
            .all_watches()
            .map(|piece| (piece.is_known.load(Relaxed) != 0).then(|| piece.value.load(Relaxed)))
            .collect()
    }

    /// What the program does with signal 1 and those that follow.
    pub fn handlers(&self, file: &ReplayFile) -> Vec<Handler> {
        let handlers = self.at(file).handlers.iter();
        let of = |handler: u64| match handler {
            0 => Handler::System,
            1 => Handler::Ignored,
            address => Handler::Function(Some(Addr(address))),
        };
        handlers.map(|handler| of(handler.load(Relaxed))).collect()
    }

    /// How often what is mapped was changed, up to here.
    pub fn maps_version(&self, file: &ReplayFile) -> u64 {
        self.at(file).maps.load(Relaxed)
    }

    /// Has it stop as soon as it can: between events, if it was told how to
    /// move there.
    pub fn interrupt(&self, file: &ReplayFile) {
        let slot = self.at(file);
        slot.halt.store(1, Relaxed);
        slot.until.store(0, Relaxed);
    }

    /// Has it stop at the next event it comes to.
    pub fn halt(&self, file: &ReplayFile) {
        self.at(file).until.store(0, Relaxed);
    }

    /// Waits until it stands still, or the time is over: true if it does.
    pub fn wait(&self, file: &ReplayFile, limit: Option<Instant>) -> Result<bool, Error> {
        let slot = self.at(file);
        self.wait_while(&slot.state, state::RUNNING, limit)
    }

    fn wait_while(
        &self,
        word: &AtomicU32,
        value: u32,
        limit: Option<Instant>,
    ) -> Result<bool, Error> {
        const LOOK: Duration = Duration::from_millis(50);
        // Most ways are short: the next breakpoint, a step.
        for _ in 0..SPINS {
            if word.load(Acquire) != value {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        loop {
            if word.load(Acquire) != value {
                return Ok(true);
            }
            let mut wait = LOOK;
            if let Some(limit) = limit {
                wait = wait.min(limit.saturating_duration_since(Instant::now()));
                if wait.is_zero() {
                    return Ok(false);
                }
            }
            futex_wait(word, value, wait);
            if word.load(Acquire) == value && self.has_ended() {
                return Err(Error::Died {
                    pid: self.pid,
                    words: String::new(),
                });
            }
        }
    }

    fn has_ended(&self) -> bool {
        let mut status = 0;
        if !self.gone.get() {
            // SAFETY: asks about our own child.
            let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
            self.gone.set(pid == self.pid);
        }
        self.gone.get()
    }

    fn order(&self, file: &ReplayFile, what: u32) -> Result<(), Error> {
        let slot = self.at(file);
        slot.command.store(what, Release);
        futex_wake(&slot.command);
        self.wait_while(&slot.command, what, None)?;
        Ok(())
    }

    /// A copy of it that stands at the same place.
    pub fn fork(&self, file: &ReplayFile, to: usize) -> Result<Player, Error> {
        let slot = slot_in(file, to);
        slot.command.store(command::NONE, Relaxed);
        slot.until.store(0, Relaxed);
        set_motion(slot, &Motion::default());
        slot.state.store(state::RUNNING, Release);
        self.at(file).fork_to.store(to as u32, Relaxed);
        self.order(file, command::FORK)?;
        self.wait_while(&slot.state, state::RUNNING, None)?;
        let pid = slot.pid.load(Relaxed) as i32;
        if slot.state.load(Acquire) == state::FREE {
            let source = std::io::Error::from_raw_os_error(pid.wrapping_neg());
            return Err(Error::NoCopy(source));
        }
        Ok(Player {
            slot: to,
            pid,
            gone: Cell::new(false),
            memory: open_memory(pid)?,
        })
    }

    /// Reads its memory: how many bytes could be had.
    pub fn read(&self, address: Addr, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.memory.read_at(rest, address.plus(done as u64).0) {
                Ok(0) | Err(_) => break,
                Ok(count) => done += count,
            }
        }
        done
    }

    pub fn threads(&self, file: &ReplayFile) -> Vec<ThreadState> {
        let count = self.at(file).views.load(Relaxed) as usize;
        let size = size_of::<ThreadView>();
        let mut bytes = vec![0; count.min(8192) * size];
        let got = self.read(Addr(VIEWS_BASE), &mut bytes);
        bytes.truncate(got);
        let views = bytes.chunks_exact(size);
        views.map(thread_from).collect()
    }

    /// Its mappings, in the words of the kernel.
    pub fn maps(&self) -> Result<String, Error> {
        let path = format!("/proc/{}/maps", self.pid);
        std::fs::read_to_string(&path).map_err(|source| Error::File { path, source })
    }

    /// Memory that is its own, in bytes; what it shares counts in part.
    pub fn memory_used(&self) -> u64 {
        // What the kernel keeps of every process, about.
        const KERNEL: u64 = 64 << 10;
        let field = |file: &str, name: &str| {
            let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.pid));
            let text = text.unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
            kib.unwrap_or(0) * 1024
        };
        KERNEL + field("status", "VmPTE:") + field("smaps_rollup", "Pss_Anon:")
    }
}

/// It ends with the one who led it.
impl Drop for Player {
    fn drop(&mut self) {
        if !self.gone.get() {
            // SAFETY: our own child, not waited for yet: nobody else has its
            // id.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                let mut status = 0;
                libc::waitpid(self.pid, &raw mut status, 0);
            }
        }
    }
}

fn set_motion(slot: &Slot, motion: &Motion) {
    /// So that no two lists of breakpoints are taken for the same.
    static VERSION: AtomicU32 = AtomicU32::new(0);
    let watches = motion.watches.iter().take(WATCHES);
    let same_watches = slot
        .all_watches()
        .map(|piece| (piece.address.load(Relaxed), piece.length.load(Relaxed)))
        .eq(watches
            .clone()
            .map(|(w, _)| (w.address.0, u32::from(w.length))));
    for (to, (watch, value)) in slot.watches.iter().zip(watches.clone()) {
        to.address.store(watch.address.0, Relaxed);
        to.length.store(u32::from(watch.length), Relaxed);
        to.value.store(value.unwrap_or(0), Relaxed);
        to.is_known.store(u32::from(value.is_some()), Relaxed);
    }
    slot.watch_count.store(watches.len() as u32, Relaxed);
    slot.skip.store(motion.skip, Relaxed);
    slot.halt.store(0, Relaxed);
    slot.stop_mapped.store(u32::from(motion.mapped), Relaxed);
    slot.hits.store(0, Relaxed);
    let same_breakpoints = slot
        .all_breakpoints()
        .eq(motion.breakpoints.iter().map(|address| address.0));
    if !same_breakpoints || !same_watches {
        for (to, address) in slot.breakpoints.iter().zip(&motion.breakpoints) {
            to.store(address.0, Relaxed);
        }
        let count = motion.breakpoints.len().min(slot.breakpoints.len());
        slot.breakpoint_count.store(count as u32, Relaxed);
        slot.version
            .store(VERSION.fetch_add(1, Relaxed) + 1, Release);
    }
    set_conditions(slot, &motion.conditions);
    let nowhere = Inside {
        event: EventNo::MAX,
        transfers: u64::MAX,
        address: Addr::MAX,
    };
    let goal = motion.goal.unwrap_or(nowhere);
    slot.goal_event.store(goal.event.0, Relaxed);
    slot.goal_transfers.store(goal.transfers, Relaxed);
    slot.goal_rip.store(goal.address.0, Relaxed);
    let range = motion.step.clone().unwrap_or(ONE_INSTRUCTION);
    slot.range[0].store(range.start.0, Relaxed);
    slot.range[1].store(range.end.0, Relaxed);
    let steps = motion.step.is_some();
    slot.step.store(u32::from(steps), Relaxed);
    let moves = *motion != Motion::default();
    slot.motion.store(u32::from(moves), Release);
}

/// Those of a breakpoint that do not fit are not looked at on the way: it is
/// stopped at then.
fn set_conditions(slot: &Slot, conditions: &[Condition]) {
    let mut sorted: Vec<&Condition> = conditions.iter().collect();
    sorted.sort_by_key(|condition| condition.address);
    let (mut count, mut used) = (0, 0);
    for of_one in sorted.chunk_by(|a, b| a.address == b.address) {
        let length: usize = of_one.iter().map(|c| c.code.len()).sum();
        if count + of_one.len() > CONDITIONS || used + length > CONDITION_BYTES {
            continue;
        }
        for (to, condition) in slot.conditions.iter().skip(count).zip(of_one) {
            to.address.store(condition.address.0, Relaxed);
            to.from.store(used as u32, Relaxed);
            to.len.store(condition.code.len() as u32, Relaxed);
            let room = slot.condition_code.iter().skip(used);
            for (to, byte) in room.zip(condition.code.iter()) {
                to.store(*byte, Relaxed);
            }
            used += condition.code.len();
        }
        count += of_one.len();
    }
    slot.condition_count.store(count as u32, Relaxed);
}

fn slot_in(file: &ReplayFile, slot: usize) -> &Slot {
    let slots = &file.header().players;
    &slots[slot % slots.len()]
}

fn open_memory(pid: i32) -> Result<File, Error> {
    let path = format!("/proc/{pid}/mem");
    File::open(&path).map_err(|source| Error::File { path, source })
}

/// As the monitor wrote it: words, one after the other.
fn thread_from(bytes: &[u8]) -> ThreadState {
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or([0; 8])));
    let mut next = || words.next().unwrap_or(0);
    let (number, tid, call, waits) = (next(), next(), next(), next());
    let regs = std::array::from_fn(|_| next());
    let blocked = next();
    ThreadState {
        number: ThreadNo(number as u32),
        tid: tid as u32,
        call: (call != NO_CALL).then_some(call),
        waits: waits != 0,
        registers: Registers::from_user_regs(regs, std::array::from_fn(|_| [next(), next()])),
        blocked,
        stuck: None,
    }
}

fn futex_wait(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: the word and the limit outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const limit,
        );
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}
