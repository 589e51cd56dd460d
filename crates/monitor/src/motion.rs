//! In replay, led by somebody: motion between two events, instruction by
//! instruction if that is wanted.
//!
//! The code of a stretch is run from translations (the `translate` crate) that
//! count the control transfers it takes. So a place in a stretch has an exact
//! name, how many were taken since the event before and the address, and can
//! be come back to. Breakpoints are addresses that are not translated: the
//! thread comes back here instead of passing them. No byte of the program
//! changes.
//!
//! Memory that is watched is looked at after each instruction that may have
//! written there, by translated code, and here whenever a thread goes on after an event. So
//! the instruction that changed it is known exactly, without debug registers
//! (which a virtual machine or a container may refuse, and of which there are
//! four); a change that a call's result, a signal's frame or another process
//! made shows at the first instruction behind it.

mod conditions;
mod guarded;

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use protocol::layout::{MOTION_BASE, MOTION_SIZE};
use protocol::replay::{Player, WatchedPiece, reason};
use translate::{Cache, Exit, Flow, Options, Piece, Source};

use crate::arch::{self, Regs};
use crate::interruption_search::{Code, PAGES, registers_of};
use crate::place::{InterruptionSite, RIP};
use crate::rounds::Rounds;
use crate::state::{Thread, space};
use crate::sys::{self, nr};
use crate::{mem, patcher, place, player, replay, sharing};

pub use conditions::Asked;
use conditions::{is_hit, is_passed};
use guarded::Guarded;

/// So many control transfers are taken in one go: some ten milliseconds, after
/// which it is seen whether somebody wants it to stop.
const LIMIT: u64 = 1 << 22;

struct Motion {
    /// The thread is in a stretch that is run from translations.
    is_on: bool,
    /// How many control transfers may be taken.
    allowed: u64,
    /// Where the log says the stretch ends, if not at a call: an interruption,
    /// or a fault of the program's own.
    place: Option<InterruptionSite>,
    is_fault: bool,
    /// The instruction there repeats itself.
    rounds: Option<Rounds>,
    /// Addresses that are not translated, and for which state of the player's
    /// list and which end that was.
    refused: [u64; REFUSED],
    refused_len: usize,
    version: u32,
    place_rip: u64,
    goal_rip: u64,
    /// Translations may be run no more.
    stale: bool,
    /// They look at memory that is watched.
    watches: bool,
    /// One instruction is under way, and that is all that was asked for.
    one: bool,
    pages: [u64; PAGES],
    patched: [u64; PAGES],
    /// Where calls that were patched are made from, and what their stubs lead back to.
    calls: Ways,
    returns: Ways,
}

/// Addresses, each with the one that it stands for, until code changes. A server makes a call
/// every few hundred instructions: what is patched is not to be gone through for each.
struct Ways([(u64, u64); WAYS]);

const WAYS: usize = 64;

impl Ways {
    const NONE: Ways = Ways([(0, 0); WAYS]);

    /// (Instructions that calls are made by lie some bytes apart.)
    fn place(&mut self, from: u64) -> &mut (u64, u64) {
        let number = (from ^ from >> 6) as usize % WAYS;
        &mut self.0[number]
    }
}

const REFUSED: usize = protocol::replay::BREAKPOINTS + 2;
const ROOM: u64 = 0x4000;
const _: () = assert!(core::mem::size_of::<Motion>() as u64 <= ROOM);

fn map() {
    if space().moves.get() != 0 {
        return;
    }
    let flags =
        sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE | sys::MAP_NORESERVE;
    let (at, len) = (MOTION_BASE, MOTION_SIZE);
    if sys::call(nr::MMAP, at, len, 7, flags, u64::MAX, 0) != at as i64 {
        sys::die(b"no memory for translated code");
    }
    let fresh = Motion {
        is_on: false,
        allowed: 0,
        place: None,
        is_fault: false,
        rounds: None,
        refused: [0; REFUSED],
        refused_len: 0,
        version: u32::MAX,
        place_rip: 0,
        goal_rip: 0,
        stale: true,
        watches: false,
        one: false,
        pages: [0; PAGES],
        patched: [0; PAGES],
        calls: Ways::NONE,
        returns: Ways::NONE,
    };
    // SAFETY: memory just mapped for it.
    unsafe { core::ptr::write(at as *mut Motion, fresh) };
    space().moves.set(1);
}

fn parts() -> (&'static mut Motion, Cache<'static>) {
    let cache = MOTION_BASE + ROOM;
    let len = (MOTION_SIZE - ROOM) as usize;
    // SAFETY: mapped and filled by `map`. Replay has one thread in the kernel,
    // and each way into this file asks once and hands both on, so nobody else
    // has a reference; translated code runs only after those are gone.
    let (motion, memory) = unsafe {
        (
            &mut *(MOTION_BASE as *mut Motion),
            core::slice::from_raw_parts_mut(cache as *mut u8, len),
        )
    };
    match Cache::new(memory, cache) {
        Some(cache) => (motion, cache),
        None => sys::die(b"the translation cache has a wrong size"),
    }
}

/// Whether the running thread came from this kind of translated code.
pub fn is_on() -> bool {
    space().moves.get() != 0 && parts().0.is_on
}

/// Code may have changed: a call about memory was made, or a site patched.
pub fn code_changed() {
    if space().moves.get() != 0 {
        parts().0.stale = true;
    }
}

/// A call about memory was made: what is mapped may be something else now.
pub fn mapped(number: u64, prot: u64) {
    const EXECUTABLE: u64 = 4;
    space().maps.set(space().maps.get() + 1);
    if matches!(number, nr::MMAP | nr::MPROTECT) && prot & EXECUTABLE != 0 {
        space().code_mapped.set(1);
    }
}

/// The stretch is over: an event comes.
pub fn end() {
    if space().moves.get() != 0 {
        parts().0.is_on = false;
    }
}

/// Whether somebody wants to stop the thread between events.
pub fn is_wanted(thread: &Thread) -> bool {
    player::this().is_some_and(|player| {
        player.motion.load(Relaxed) != 0 && replay::is_watched(thread.process())
    })
}

/// A thread is about to go on in the program: if somebody wants to stop it
/// before its next event, sees to that. Returns whether that is so; then
/// `regs` say where it goes on.
pub fn begin(thread: &Thread, regs: &mut Regs) -> bool {
    if !is_wanted(thread) {
        return false;
    }
    map();
    let (motion, mut cache) = parts();
    motion.is_on = true;
    space().transfers.set(0);
    motion.one = false;
    motion.place = replay::interruption(thread);
    motion.is_fault = false;
    if motion.place.is_none() {
        motion.place = replay::fault_to_come(thread);
        motion.is_fault = motion.place.is_some();
    }
    let rounds = |place| Rounds::at(place, &mut [0; PAGES]);
    motion.rounds = motion.place.as_ref().and_then(rounds);
    thread.regs_at.set((&raw const *regs) as u64);
    thread.call.set(0);
    // The program's own code is run, as it was before sites were patched.
    regs.rip = motion.program_at(regs.rip);
    // The event may have changed memory: by its result, or while others ran.
    let mut stopped = motion.look(thread);
    let is_mapped =
        |player: &Player| player.stop_mapped.load(Relaxed) != 0 && space().code_mapped.get() != 0;
    if player::this().is_some_and(is_mapped) {
        player::stop(thread, reason::MAPPED);
    }
    if !stopped && player::this().is_some_and(|player| is_step_over(player, regs.rip)) {
        player::stop(thread, reason::STEPPED);
        stopped = true;
    }
    if motion.go_on(&mut cache, thread, regs, None, stopped) {
        thread.slow_return.set(regs.rip);
        thread.saved_rcx.set(regs.rcx);
        regs.rip = arch::mw_entry_interrupted as *const () as u64;
    }
    true
}

/// Translated code came back. Returns whether the thread has arrived where it
/// was interrupted; if not, `regs` say where it goes on.
pub fn came_back(thread: &Thread, regs: &mut Regs) -> bool {
    let (motion, mut cache) = parts();
    let exit = cache.exit();
    let taken = motion.allowed.wrapping_sub(cache.count());
    space().transfers.set(space().transfers.get() + taken);
    motion.allowed = cache.count();
    let target = match exit {
        Exit::Open { target, .. }
        | Exit::Counted { target }
        | Exit::Stepped { target }
        | Exit::Stale { target }
        | Exit::Changed { target } => target,
        Exit::Goal { resume } => resume,
    };
    let (target, are_more) = match motion.rounds_made(regs) {
        Some(rip) => (rip, true),
        None => (target, false),
    };
    regs.rip = target;
    thread.regs_at.set((&raw const *regs) as u64);
    thread.call.set(0);
    let mut stopped = motion.look(thread);
    if core::mem::take(&mut motion.one) {
        let asked = !stopped && player::this().is_some_and(|p| is_step_over(p, target));
        if asked {
            player::stop(thread, reason::STEPPED);
            stopped = true;
        }
    }
    let is_halted = |player: &Player| player.halt.swap(0, Relaxed) != 0;
    if !stopped && matches!(exit, Exit::Counted { .. }) && player::this().is_some_and(is_halted) {
        player::stop(thread, reason::HALTED);
    }
    if are_more {
        return motion.go_on(&mut cache, thread, regs, None, true);
    }
    motion.go_on(&mut cache, thread, regs, Some(exit), stopped)
}

/// Whether the step that was asked for is done when the thread is at `pc`.
fn is_step_over(player: &Player, pc: u64) -> bool {
    let [from, to] = &player.range;
    player.step.load(Relaxed) != 0 && !(from.load(Relaxed)..to.load(Relaxed)).contains(&pc)
}

/// What a piece of watched memory holds, if it can be read.
fn held(piece: &WatchedPiece) -> Option<u64> {
    let address = piece.address.load(Relaxed);
    match piece.length.load(Relaxed) {
        1 => mem::read::<u8>(address).map(u64::from),
        2 => mem::read::<u16>(address).map(u64::from),
        4 => mem::read::<u32>(address).map(u64::from),
        _ => mem::read(address),
    }
}

impl Motion {
    /// Looks whether watched memory has changed, and stops if it has. Returns
    /// whether it stopped. Memory that cannot be read is not known to have
    /// changed until it can be read again.
    fn look(&mut self, thread: &Thread) -> bool {
        let Some(player) = player::this() else {
            return false;
        };
        let mut changed = None;
        for (number, piece) in (0u32..).zip(player.all_watches()) {
            let Some(now) = held(piece) else {
                continue;
            };
            let known = piece.is_known.swap(1, Relaxed) != 0;
            if piece.value.swap(now, Relaxed) != now && known && changed.is_none() {
                changed = Some(number);
            }
        }
        let stops = changed.is_some() && is_hit(player);
        if let Some(number) = changed.filter(|_| stops) {
            player.watch_hit.store(number, Relaxed);
            player::stop(thread, reason::WATCH);
        }
        stops
    }

    /// Tells translated code what is watched, and what it holds.
    fn show_watches(&mut self, cache: &mut Cache<'_>, player: &Player) {
        if player.watch_count.load(Relaxed) == 0 {
            return;
        }
        for (number, piece) in player.all_watches().enumerate() {
            cache.set_held(number, held(piece).map(|_| piece.value.load(Relaxed)));
        }
    }

    /// Finds out what is next for a thread at `regs.rip`, an address of the
    /// program; `passed`: what stops there has been seen to. Returns whether
    /// this is where it was interrupted.
    fn go_on(
        &mut self,
        cache: &mut Cache<'_>,
        thread: &Thread,
        regs: &mut Regs,
        mut exit: Option<Exit>,
        mut passed: bool,
    ) -> bool {
        loop {
            let Some(player) = player::this().filter(|p| p.motion.load(Relaxed) != 0) else {
                // From here on it runs by itself.
                self.is_on = false;
                let pc = patcher::moved_to(regs.rip);
                regs.rip = crate::interruption_search::begin(thread, pc);
                return false;
            };
            let pc = regs.rip;
            let goal = self.goal(thread, player, pc);
            self.refuse(cache, player, goal);
            if !self.is_fault && self.is_at_place(thread, regs) {
                self.is_on = false;
                return true;
            }
            if !passed && goal == Some(pc) {
                player::stop(thread, reason::GOAL);
                passed = true;
                continue;
            }
            if !passed && player.has_breakpoint(pc) {
                if is_passed(player, regs) {
                    // This may go on for as long as it likes.
                    if player.halt.swap(0, Relaxed) != 0 {
                        player::stop(thread, reason::HALTED);
                    }
                } else if is_hit(player) {
                    player::stop(thread, reason::BREAKPOINT);
                }
                passed = true;
                continue;
            }
            if self.is_fault && self.is_at_place(thread, regs) {
                // It comes by itself, where the program's code is.
                self.is_on = false;
                regs.rip = patcher::moved_to(pc);
                return false;
            }
            self.show_watches(cache, player);
            if self.rounds.is_some()
                && self.place.is_some_and(|place| place.registers[RIP] == pc)
                && let Some(way) = self.one_instruction(cache, pc)
                && self.set_out_for_rounds(regs)
            {
                regs.rip = way;
                return false;
            }
            let steps = player.step.load(Relaxed) != 0;
            let held = self.is_refused(pc);
            let way = if steps || held {
                self.one_instruction(cache, pc)
            } else {
                self.allow(cache, self.limit(thread, player));
                if let Some(stub) = self.patched_call(pc) {
                    self.one = false;
                    regs.rip = stub;
                    return false;
                }
                let exit = exit.take().unwrap_or(Exit::Open {
                    target: pc,
                    site: None,
                });
                self.run(cache, exit)
            };
            self.one = steps && way.is_some();
            // What cannot be translated is run where it is: a call, mostly.
            regs.rip = way.unwrap_or_else(|| {
                let stub = patcher::moved_to(pc);
                if !steps && !held && stub != pc {
                    *self.calls.place(pc) = (pc, stub);
                }
                stub
            });
            return false;
        }
    }

    /// The stub of a call at an address, if it is known that it was patched.
    fn patched_call(&mut self, pc: u64) -> Option<u64> {
        let (from, stub) = *self.calls.place(pc);
        (from == pc).then_some(stub)
    }

    /// See [`patcher::to_program`].
    fn program_at(&mut self, rip: u64) -> u64 {
        if self.stale {
            return patcher::to_program(rip);
        }
        let place = self.returns.place(rip);
        if place.0 != rip {
            *place = (rip, patcher::to_program(rip));
        }
        place.1
    }

    /// Whether the thread is where the log says that it was interrupted, or
    /// faults.
    fn is_at_place(&self, thread: &Thread, regs: &Regs) -> bool {
        let Some(place) = self.place.filter(|place| place.registers[RIP] == regs.rip) else {
            return false;
        };
        let registers = registers_of(regs, regs.rip);
        if self.is_fault {
            return place.has_equal_registers(&registers);
        }
        let image = place::store_vectors(thread, &regs.xmm);
        let mut missing = place::Missing::NONE;
        place.is_here(&registers, image, &mut missing)
    }

    /// If the thread was interrupted in the middle of the instruction that it
    /// is about to do, sees to it that it does no more of that.
    fn set_out_for_rounds(&mut self, regs: &mut Regs) -> bool {
        match (&self.place, &mut self.rounds) {
            (Some(place), Some(rounds)) => rounds.set_out(place, regs),
            _ => false,
        }
    }

    /// If such an instruction was under way: where the thread is, if that is
    /// still there.
    fn rounds_made(&mut self, regs: &mut Regs) -> Option<u64> {
        let (place, rounds) = (self.place.as_ref()?, self.rounds.as_mut()?);
        let are_more = rounds.are_under_way() && rounds.made(place, regs);
        are_more.then_some(place.registers[RIP])
    }

    /// The address to stop at, if the thread is between the control transfers
    /// where it is to stop.
    fn goal(&self, thread: &Thread, player: &Player, pc: u64) -> Option<u64> {
        let here = player.goal_event.load(Relaxed) == thread.process().log.next_event.get()
            && player.goal_transfers.load(Relaxed) == space().transfers.get();
        let pc = match player.goal_rip.load(Relaxed) {
            0 => pc,
            rip => rip,
        };
        here.then_some(pc)
    }

    /// How many control transfers may be taken before the thread must be
    /// looked at.
    fn limit(&self, thread: &Thread, player: &Player) -> u64 {
        if player.goal_event.load(Relaxed) != thread.process().log.next_event.get() {
            return LIMIT;
        }
        let goal = player.goal_transfers.load(Relaxed);
        goal.checked_sub(space().transfers.get())
            .filter(|left| *left != 0)
            .map_or(LIMIT, |left| left.min(LIMIT))
    }

    fn allow(&mut self, cache: &mut Cache<'_>, count: u64) {
        self.allowed = count;
        cache.set_count(count);
    }

    /// Sees to it that nothing runs past an address where it is to stop.
    fn refuse(&mut self, cache: &mut Cache<'_>, player: &Player, goal: Option<u64>) {
        let place_rip = self.place.map_or(0, |place| place.registers[RIP]);
        let goal_rip = goal.unwrap_or(0);
        let version = player.version.load(Acquire);
        if self.stale
            || version != self.version
            || place_rip != self.place_rip
            || goal_rip != self.goal_rip
        {
            self.stale = false;
            self.version = version;
            self.place_rip = place_rip;
            self.goal_rip = goal_rip;
            self.refused_len = 0;
            self.pages = [0; PAGES];
            self.patched = [0; PAGES];
            (self.calls, self.returns) = (Ways::NONE, Ways::NONE);
            for address in player.all_breakpoints().chain([place_rip, goal_rip]) {
                if address != 0 && self.refused_len < REFUSED {
                    self.refused[self.refused_len] = address;
                    self.refused_len += 1;
                }
            }
            cache.set_watches(player.all_watches().map(piece_of));
            cache.clear(arch::mw_entry_translated as *const () as u64);
            self.watches = player.watch_count.load(Relaxed) != 0;
        }
    }

    fn is_refused(&self, pc: u64) -> bool {
        self.refused[..self.refused_len].contains(&pc)
    }

    fn run(&mut self, cache: &mut Cache<'_>, exit: Exit) -> Option<u64> {
        let mut source = Guarded {
            code: Code {
                pages: &mut self.pages,
            },
            refused: &self.refused[..self.refused_len],
            passes: 0,
            also: 0,
            patched: &mut self.patched,
        };
        let options = Options {
            goal: None,
            count: true,
            watch: self.watches,
        };
        cache.resume(exit, &mut source, &options)
    }

    /// Where the one instruction at `pc` is executed, whatever stops there.
    fn one_instruction(&mut self, cache: &mut Cache<'_>, pc: u64) -> Option<u64> {
        let mut source = Guarded {
            code: Code {
                pages: &mut self.pages,
            },
            refused: &[],
            passes: 0,
            also: 0,
            patched: &mut self.patched,
        };
        let mut bytes = [0; 15];
        let len = source.fetch(pc, &mut bytes);
        let inst = translate::inst(bytes.get(..len)?, pc)?;
        if inst.flow == Flow::Next {
            self.allowed = cache.count();
            return cache.step(pc, &mut source);
        }
        // A block of it alone; it must not stay.
        source.also = pc.wrapping_add(inst.len as u64);
        source.passes = pc;
        source.refused = &self.refused[..self.refused_len];
        cache.clear(arch::mw_entry_translated as *const () as u64);
        let options = Options {
            goal: None,
            count: true,
            watch: self.watches,
        };
        let way = cache.enter(pc, &mut source, &options);
        self.stale = true;
        self.allow(cache, 1);
        way
    }
}

fn piece_of(piece: &WatchedPiece) -> Piece {
    let address = piece.address.load(Relaxed);
    let length = piece.length.load(Relaxed);
    Piece {
        address,
        length: length as u8,
        value: held(piece).map(|_| piece.value.load(Relaxed)),
        is_alone: !sharing::is_object(address, length.into()),
    }
}
