//! In replay: brings a thread to where it was interrupted in the middle of
//! computation.
//!
//! The log says at which instruction that was and how everything looked
//! (`place`). The thread runs in translated code (the `translate` crate), which
//! at that instruction tries the likely differences in a few instructions and
//! comes back only when those are equal.
//!
//! The processor's own breakpoints would do without translation, but cannot be
//! relied upon: under some hypervisors about one in ten thousand is lost, or
//! comes without saying which it is. So they are the last resort, for what
//! cannot be translated and is run where it is.
//!
//! Until the thread has arrived, no call, no signal and no fault of it can
//! come: each would be in the log before the interruption.

use protocol::layout::{TRANSLATION_BASE, TRANSLATION_SIZE};
use protocol::replay::match_depth;
use translate::{Cache, Condition, Exit, Goal, Options, Source};

use crate::arch::{self, Regs};
use crate::place::{self, InterruptionSite, Missing, RCX, RIP, Registers};
use crate::rounds::Rounds;
use crate::state::{Thread, space};
use crate::sys::{self, nr};
use crate::{mem, patcher, replay};

/// So often the thread is looked at before it is decided which differences are
/// likely.
const LOOKS: u32 = 32;

const CONDITIONS_MAX: usize = Goal::CONDITIONS_MAX;

/// What is known of the way to the next interruption.
struct Search {
    place: InterruptionSite,
    /// Since the thread set out: how often it was looked at.
    looks: u32,
    /// How much was equal where the thread came by and most was.
    deepest: u32,
    /// What is tried in translated code, and how often each did not hold.
    conditions: [Condition; CONDITIONS_MAX],
    misses: [u32; CONDITIONS_MAX],
    used: usize,
    /// Whether they are in order, the likeliest to fail first.
    sorted: bool,
    /// The instruction repeats itself: the place may be between two rounds.
    rounds: Option<Rounds>,
    /// Pages of code that were looked at: the address, + 1 if it may be written
    /// to.
    pages: [u64; PAGES],
    /// Code was translated since the thread set out.
    translates: bool,
    missing: Missing,
}

pub const PAGES: usize = 64;

/// Room for the above; the cache comes behind.
const SEARCH_ROOM: u64 = 0x2000;
const _: () = assert!(core::mem::size_of::<Search>() as u64 <= SEARCH_ROOM);

/// Memory is there, and what is in it makes sense.
fn is_mapped() -> bool {
    space().translates.get() != 0
}

fn map() -> bool {
    if is_mapped() {
        return true;
    }
    let flags =
        sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE | sys::MAP_NORESERVE;
    let (at, len) = (TRANSLATION_BASE, TRANSLATION_SIZE);
    if sys::call(nr::MMAP, at, len, 7, flags, u64::MAX, 0) != at as i64 {
        return false;
    }
    let fresh = Search {
        place: InterruptionSite::NOWHERE,
        looks: 0,
        deepest: match_depth::NONE,
        conditions: [Condition::Register(0, 0); CONDITIONS_MAX],
        misses: [0; CONDITIONS_MAX],
        used: 0,
        sorted: false,
        rounds: None,
        pages: [0; PAGES],
        translates: false,
        missing: Missing::NONE,
    };
    // SAFETY: memory just mapped for it.
    unsafe { core::ptr::write(at as *mut Search, fresh) };
    space().translates.set(1);
    true
}

fn parts() -> (&'static mut Search, Cache<'static>) {
    let cache = TRANSLATION_BASE + SEARCH_ROOM;
    let len = (TRANSLATION_SIZE - SEARCH_ROOM) as usize;
    // SAFETY: mapped and filled by `map`. Replay has one thread in the kernel,
    // and each way into this file asks once and hands both on, so nobody else
    // has a reference; translated code runs only after those are gone.
    let (search, memory) = unsafe {
        (
            &mut *(TRANSLATION_BASE as *mut Search),
            core::slice::from_raw_parts_mut(cache as *mut u8, len),
        )
    };
    match Cache::new(memory, cache) {
        Some(cache) => (search, cache),
        None => sys::die(b"the translation cache has a wrong size"),
    }
}

/// The thread is about to go on in the program, at `rip`. If the log says that
/// it will be interrupted where no call is, sees to that. Returns where it has
/// to go on.
pub fn begin(thread: &Thread, rip: u64) -> u64 {
    let Some(place) = replay::interruption(thread) else {
        return rip;
    };
    disarm();
    if !map() {
        sys::die(b"no memory for translated code");
    }
    let (search, mut cache) = parts();
    search.begin(place);
    replay::came_near(thread, Some(match_depth::NONE));
    search.go(&mut cache, rip).unwrap_or(rip)
}

/// The processor stopped at the place: is this the time? Returns where the
/// thread goes on.
pub fn at_breakpoint(thread: &Thread, registers: &Registers, image: u64) -> u64 {
    let rip = registers[RIP];
    if !is_mapped() {
        return rip;
    }
    let (search, mut cache) = parts();
    if rip != search.place.registers[RIP] {
        return rip;
    }
    if search.is_like(thread, registers, image) {
        disarm();
        thread.slow_return.set(rip);
        thread.saved_rcx.set(registers[RCX]);
        return arch::mw_entry_interrupted as *const () as u64;
    }
    search.go(&mut cache, rip).unwrap_or(rip)
}

/// Translated code came back: has the thread arrived? If not, it goes on.
pub fn has_arrived(thread: &Thread, regs: &mut Regs) -> bool {
    let (search, mut cache) = parts();
    let exit = cache.exit();
    let arrived = match exit {
        Exit::Goal { resume } => {
            regs.rip = resume;
            search.at_place(&mut cache, thread, regs)
        }
        Exit::Stepped { target } => search.between_rounds(&mut cache, thread, regs, target),
        Exit::Open { target, .. }
        | Exit::Counted { target }
        | Exit::Stale { target }
        | Exit::Changed { target } => {
            search.go_on(&mut cache, regs, exit, target);
            false
        }
    };
    if arrived {
        disarm();
        regs.rip = search.place.registers[RIP];
    }
    arrived
}

impl Search {
    fn begin(&mut self, place: InterruptionSite) {
        self.place = place;
        self.looks = 0;
        self.deepest = match_depth::NONE;
        self.misses = [0; CONDITIONS_MAX];
        self.sorted = false;
        self.pages = [0; PAGES];
        self.translates = false;
        self.missing = Missing::NONE;
        self.rounds = Rounds::at(&place, &mut self.pages);
        self.used = 0;
        for condition in place.conditions() {
            if self.used < CONDITIONS_MAX && self.is_of_use(&condition) {
                self.conditions[self.used] = condition;
                self.used += 1;
            }
        }
    }

    /// Whether a condition can be tried before the instruction at the place.
    fn is_of_use(&self, condition: &Condition) -> bool {
        let repeat = self.rounds.map(|rounds| rounds.repeat());
        match *condition {
            // Registers that change from round to round.
            Condition::Register(1 | 6 | 7, _) => repeat.is_none(),
            Condition::Register(0, _) => !repeat.is_some_and(|repeat| repeat.loads),
            Condition::Memory(address, _) => {
                repeat.is_none() && mem::read::<u64>(address).is_some()
            }
            Condition::Register(..) | Condition::Vector(..) => true,
        }
    }

    fn source(&mut self) -> Code<'_> {
        Code {
            pages: &mut self.pages,
        }
    }

    /// Where translated code for `rip` is.
    fn go(&mut self, cache: &mut Cache<'_>, rip: u64) -> Option<u64> {
        if !self.translates {
            // Whether code has stayed the same since the last time is not
            // known.
            cache.clear(arch::mw_entry_translated as *const () as u64);
            self.translates = true;
        }
        self.resume(
            cache,
            Exit::Open {
                target: rip,
                site: None,
            },
        )
    }

    fn resume(&mut self, cache: &mut Cache<'_>, exit: Exit) -> Option<u64> {
        let used = if self.sorted { self.used } else { 0 };
        let options = Options {
            goal: Some(Goal {
                address: self.place.registers[RIP],
                conditions: &self.conditions[..used],
            }),
            count: false,
            watch: false,
        };
        let mut source = Code {
            pages: &mut self.pages,
        };
        cache.resume(exit, &mut source, &options)
    }

    /// What cannot be translated is run where it is, and the processor stops
    /// it at the place, if the kernel allows that.
    fn go_on(&mut self, cache: &mut Cache<'_>, regs: &mut Regs, exit: Exit, target: u64) {
        regs.rip = match self.resume(cache, exit) {
            Some(go) => go,
            None => {
                arm(self.place.registers[RIP]);
                target
            }
        };
    }

    /// The conditions hold. If this is not the time, `regs` say where to go on.
    fn at_place(&mut self, cache: &mut Cache<'_>, thread: &Thread, regs: &mut Regs) -> bool {
        let rip = self.place.registers[RIP];
        if self.is_here(thread, regs) {
            return true;
        }
        if self.rounds.is_some()
            && let Some(step) = cache.step(rip, &mut self.source())
            && let Some(rounds) = &mut self.rounds
            && rounds.set_out(&self.place, regs)
        {
            regs.rip = step;
            return false;
        }
        if !self.sorted {
            let registers = registers_of(regs, rip);
            self.look(&registers, regs.xmm.as_flattened());
            if self.sorted {
                self.translates = false;
                regs.rip = self.go(cache, rip).unwrap_or(rip);
            }
        }
        false
    }

    fn is_here(&mut self, thread: &Thread, regs: &Regs) -> bool {
        let registers = registers_of(regs, self.place.registers[RIP]);
        // Dear, so not before the rest is equal.
        self.place.has_equal_registers(&registers)
            && self.is_like(thread, &registers, place::store_vectors(thread, &regs.xmm))
    }

    fn is_like(&mut self, thread: &Thread, registers: &Registers, image: u64) -> bool {
        let depth = self.place.match_depth(registers, image, &mut self.missing);
        let is_here = depth == match_depth::HERE;
        if depth > self.deepest {
            self.deepest = depth;
            replay::came_near(thread, (!is_here).then_some(depth));
        }
        is_here
    }

    /// The rounds up to the place were made, or all of them.
    fn between_rounds(
        &mut self,
        cache: &mut Cache<'_>,
        thread: &Thread,
        regs: &mut Regs,
        next: u64,
    ) -> bool {
        let rip = self.place.registers[RIP];
        let are_more = match &mut self.rounds {
            Some(rounds) => rounds.made(&self.place, regs),
            None => false,
        };
        if !are_more {
            let exit = Exit::Stepped { target: next };
            self.go_on(cache, regs, exit, next);
            return false;
        }
        if self.is_here(thread, regs) {
            return true;
        }
        regs.rip = cache.step(rip, &mut self.source()).unwrap_or(rip);
        false
    }

    /// Notes what differs from the place; after a while the likeliest
    /// differences come first.
    fn look(&mut self, registers: &Registers, halves: &[u64]) {
        if self.sorted {
            return;
        }
        let general = place::by_number(registers);
        let at = |list: &[u64], number: u8| list.get(usize::from(number)).copied();
        let used = self.used;
        for (condition, misses) in self.conditions[..used].iter().zip(&mut self.misses) {
            let holds = match *condition {
                Condition::Register(number, value) => at(&general, number) == Some(value),
                Condition::Vector(number, value) => at(halves, number) == Some(value),
                Condition::Memory(address, value) => mem::read::<u64>(address) == Some(value),
            };
            *misses += u32::from(!holds);
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return;
        }
        self.sorted = true;
        // Few, and no allocator: by insertion, which keeps the order of equals.
        for i in 1..used {
            let mut j = i;
            while j > 0 && self.misses[j - 1] < self.misses[j] {
                self.misses.swap(j - 1, j);
                self.conditions.swap(j - 1, j);
                j -= 1;
            }
        }
    }
}

pub fn registers_of(regs: &Regs, rip: u64) -> Registers {
    [
        regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rdi,
        regs.rsi, regs.rbp, regs.rbx, regs.rdx, regs.rax, regs.rcx, regs.rsp, rip, regs.flags,
    ]
}

/// The program's code.
pub struct Code<'a> {
    pub pages: &'a mut [u64; PAGES],
}

impl Source for Code<'_> {
    fn fetch(&mut self, address: u64, into: &mut [u8; 15]) -> usize {
        let len = into.len() as u64;
        let first = 4096 - (address & 4095);
        let to = into.as_mut_ptr() as u64;
        // The monitor itself is no part of the program: calls lead into it, and
        // are made by it, not by a translation of it.
        if mem::is_ours(address, 1) && !is_shown(address) {
            return 0;
        }
        if mem::copy(to, address, len) {
            len as usize
        } else if first < len && mem::copy(to, address, first) {
            first as usize
        } else {
            0
        }
    }

    fn changing(&mut self, address: u64) -> Option<u64> {
        let page = address & !4095;
        let place = &mut self.pages[(page >> 12) as usize % PAGES];
        if *place & !1 != page || *place == 0 {
            *place = page | u64::from(!is_constant(address));
        }
        if *place & 1 == 0 {
            return None;
        }
        mem::read(address)
    }
}

/// Whether the code there is the monitor's, but run as the program's: the vdso
/// that it is shown, and what patched sites lead to.
fn is_shown(address: u64) -> bool {
    let vdso = (&raw const crate::MW_VDSO) as u64;
    let len = core::mem::size_of_val(&crate::MW_VDSO) as u64;
    (vdso..vdso + len).contains(&address) || patcher::in_stub(address)
}

/// Whether the code there stays as it is as long as no call is made. What can
/// be written may change under the translation.
fn is_constant(address: u64) -> bool {
    if is_shown(address) {
        return true;
    }
    mem::read::<u8>(address).is_some_and(|byte| !mem::write(address, &byte))
}

/// Tells the processor to stop at `rip`. False if the kernel does not allow it.
fn arm(rip: u64) -> bool {
    if space().breakpoint.get() != 0 {
        return true;
    }
    let mut attributes = [0u64; 17];
    attributes[0] = 5 | 136 << 32; // PERF_TYPE_BREAKPOINT, size
    attributes[2] = 1; // every time
    // exclude_kernel, exclude_hv, remove_on_exec, sigtrap
    attributes[5] = 1 << 5 | 1 << 6 | 1 << 36 | 1 << 37;
    attributes[6] = 4 << 32; // HW_BREAKPOINT_X
    attributes[7] = rip;
    attributes[8] = 8;
    const PERF_EVENT_OPEN: u64 = 298;
    let attributes = attributes.as_ptr() as u64;
    let fd = sys::call(PERF_EVENT_OPEN, attributes, 0, u64::MAX, u64::MAX, 0, 0);
    if fd >= 0 {
        space().breakpoint.set(fd as i32 + 1);
    }
    fd >= 0
}

fn disarm() {
    let fd = space().breakpoint.replace(0);
    if fd != 0 {
        sys::call(nr::CLOSE, fd as u64 - 1, 0, 0, 0, 0, 0);
    }
}
