//! Turns syscall sites that trapped into jumps to stubs.
//!
//! The plan is made by the `patch` crate; here is where the bytes go and what
//! is remembered. Stubs live in small pools of memory near the code they
//! belong to. A site whose neighbourhood does not allow it stays on the slow
//! way.

use core::cell::Cell;
use core::sync::atomic::Ordering::Acquire;

use patch::{Code, Plan, Stub};
use protocol::instruction::{Form, Site};
use protocol::record::{kind, tag};

use crate::live::Pause;
use crate::state::{PATCHES_MAX, POOLS_MAX, Patched, Pool, Thread, space, thread_in_slot};
use crate::{arch, live, log, mem, mode, motion, pads, replay, sys, traps};

const POOL_SIZE: u64 = 0x4000;
/// How much code around a site is looked at for jumps into it.
const WINDOW: u64 = 0x4000;
/// Traps before a site is patched: that costs as much as four of them, and much
/// code of a short program runs once or twice.
const TRAPS_FIRST: u16 = 3;

/// The places in the table of hashes where a site may be noted.
fn places(site: u64) -> impl Iterator<Item = &'static Cell<u16>> {
    let places = &space().patch_places;
    let hash = site.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 20;
    (hash..hash + 64).map(|index| &places[index & (places.len() - 1)])
}

fn noted(place: &Cell<u16>) -> Option<&'static Cell<Patched>> {
    let index = usize::from(place.get()).checked_sub(1)?;
    space().patches.get(index)
}

fn find(site: u64) -> Option<&'static Cell<Patched>> {
    places(site)
        .map_while(noted)
        .find(|cell| cell.get().site == site)
}

/// What is known of a site, or room for it.
fn place(site: u64) -> Option<&'static Cell<Patched>> {
    const { assert!(PATCHES_MAX < 1 << u16::BITS) };
    for place in places(site) {
        match noted(place) {
            Some(cell) if cell.get().site == site => return Some(cell),
            Some(_) => {}
            None => {
                let count = space().patch_count.get();
                let cell = space().patches.get(count as usize)?;
                space().patch_count.set(count + 1);
                place.set(count as u16 + 1);
                return Some(cell);
            }
        }
    }
    None
}

/// All that is in the table.
fn used() -> impl Iterator<Item = &'static Cell<Patched>> {
    let count = space().patch_count.get() as usize;
    space().patches.iter().take(count)
}

/// What there is at a site.
#[derive(Clone, Copy)]
pub enum What {
    Call,
    Replaced(Form),
}

impl What {
    fn len(self) -> u8 {
        match self {
            What::Call => 2,
            What::Replaced(form) => form.len,
        }
    }
}

/// The instruction that was replaced at a site that has a stub now.
pub fn replaced_at(site: u64) -> Option<Form> {
    let entry = find(site)?.get();
    Form::from_byte(entry.form).filter(|_| entry.call != 0)
}

/// A site trapped. Returns where in a stub the thread goes on, if the site is
/// patched now.
pub fn on_trap(thread: &Thread, site: u64, what: What) -> Option<u64> {
    let cell = place(site)?;
    let mut entry = cell.get();
    if entry.site != site {
        entry = Patched::new(site);
    }
    entry.traps = entry.traps.saturating_add(1);
    if entry.call != 0 {
        cell.set(entry);
        // The syscall instruction was left in place and reached directly, or
        // the code was written anew.
        return is_in_place(&entry).then_some(entry.call);
    }
    if entry.traps == TRAPS_FIRST
        && (!mode::is_replay() || replay::patches(thread, site))
        && let Some((plan, stub, pause)) = patch(thread, site, what)
    {
        entry.becomes(&plan, &stub, what);
        cell.set(entry);
        // Who goes on now finds where: not before it is noted.
        drop(pause);
    }
    cell.set(entry);
    (entry.call != 0).then_some(entry.call)
}

/// The longest that a site can be with its neighbours.
const AROUND: usize = 64;

/// The plan for a replaced instruction whose neighbours are known, if they are as they
/// were when they were chosen.
fn plan_chosen(site: &Site) -> Option<Plan> {
    let neighbours = site.neighbours?;
    let (before, after) = (neighbours.before(), neighbours.after());
    let len = usize::from(site.form.len);
    let base = site.place.checked_sub(before as u64)?;
    let mut bytes = [0; AROUND];
    let bytes = bytes.get_mut(..before + len + after)?;
    let whole = mem::copy(bytes.as_mut_ptr() as u64, base, bytes.len() as u64);
    let code = Code { base, bytes };
    patch::plan_chosen(code, site.place, len, before, after).filter(|_| whole)
}

/// Whether a replaced instruction that nobody has come to yet can become a jump at once.
pub fn can_jump(site: &Site) -> bool {
    // Some room is left for sites that are found when they are come to.
    let has_room = (space().patch_count.get() as usize) < PATCHES_MAX / 2;
    has_room
        && plan_chosen(site).is_some_and(|plan| {
            let end = plan.patch_start + plan.patch_len as u64;
            !traps::are_in(&(plan.patch_start..end))
        })
}

/// Makes one a jump whose code is writable now, and that nobody has come to. One for which
/// there is no place in reach stays a trap.
pub fn jump_at_once(thread: &Thread, site: &Site) {
    let Some(plan) = plan_chosen(site) else {
        return;
    };
    let (Some(cell), Some(address)) = (place(site.place), room(thread, site.place)) else {
        return;
    };
    let what = What::Replaced(site.form);
    let mut bytes = [0xcc; patch::STUB_MAX];
    let Some(stub) = write_stub(&plan, what, address, &mut bytes) else {
        return;
    };
    let Some(jump) = patch::jump_bytes(&plan, address) else {
        return;
    };
    mem::copy(address, bytes.as_ptr() as u64, stub.len as u64);
    let jump = jump.as_slice();
    mem::copy(plan.patch_start, jump.as_ptr() as u64, jump.len() as u64);
    use_room(stub.len as u32);
    let mut entry = Patched::new(site.place);
    entry.traps = TRAPS_FIRST;
    entry.becomes(&plan, &stub, what);
    cell.set(entry);
    if mode::is_replay() {
        motion::code_changed();
    }
}

impl Patched {
    fn new(site: u64) -> Patched {
        Patched {
            site,
            call: 0,
            resume: 0,
            start: 0,
            length: 0,
            traps: 0,
            site_len: 0,
            form: 0,
            original: [0; patch::ORIGINAL_MAX],
        }
    }

    fn becomes(&mut self, plan: &Plan, stub: &Stub, what: What) {
        self.call = stub.call;
        self.resume = stub.resume;
        self.start = plan.patch_start;
        self.length = plan.patch_len as u32;
        self.site_len = what.len();
        self.form = match what {
            What::Call => 0,
            What::Replaced(form) => form.to_byte(),
        };
        self.original = plan.original;
    }
}

fn write_stub(plan: &Plan, what: What, address: u64, bytes: &mut [u8]) -> Option<Stub> {
    match what {
        What::Call => {
            let entry = arch::mw_entry as *const () as u64;
            patch::write_stub(plan, address, entry, bytes)
        }
        What::Replaced(_) => {
            let entry = arch::mw_entry_answered as *const () as u64;
            patch::write_trap_stub(plan, address, entry, arch::OFF_RCX as u32, bytes)
        }
    }
}

fn is_in_place(entry: &Patched) -> bool {
    mem::read::<u8>(entry.start) == Some(0xe9)
}

/// The code around a site that can be read, at most `WINDOW` to each side.
fn window(site: u64) -> Option<Code<'static>> {
    let mut from = site & !4095;
    while from > site.saturating_sub(WINDOW) && mem::read::<u8>(from - 4096).is_some() {
        from -= 4096;
    }
    let mut to = (site & !4095) + 4096;
    while to < site + WINDOW && mem::read::<u8>(to).is_some() {
        to += 4096;
    }
    if mem::is_ours(from, to - from) {
        return None;
    }
    // SAFETY: just seen to be readable; nobody unmaps it while this thread has
    // the turn and looks at it.
    let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, (to - from) as usize) };
    Some(Code { base: from, bytes })
}

/// Nobody else goes on as long as what is returned lives.
fn patch(thread: &Thread, site: u64, what: What) -> Option<(Plan, Stub, Pause)> {
    let code = window(site)?;
    let plan = match what {
        What::Call => patch::plan(code, site),
        What::Replaced(form) => patch::plan_trap(code, site, form.len.into()),
    };
    let plan = plan.ok()?;
    let end = plan.patch_start + plan.patch_len as u64;
    // (A breakpoint would go into the stub, and what is put back over it into the jump.)
    let is_taken =
        || is_somebody_in(plan.patch_start, end) || traps::are_in(&(plan.patch_start..end));
    if !mode::is_replay() && is_taken() {
        return None;
    }
    let protection = protection_of(plan.patch_start)?;
    let address = room(thread, site)?;
    let mut bytes = [0xcc; patch::STUB_MAX];
    let stub = write_stub(&plan, what, address, &mut bytes)?;
    let jump = patch::jump_bytes(&plan, address)?;
    let pause = live::pause_others(thread);
    if mode::is_live() && is_somebody_in(plan.patch_start, end) {
        return None;
    }
    let page = plan.patch_start & !4095;
    let len = (end - page + 4095) & !4095;
    if sys::call(sys::nr::MPROTECT, page, len, 7, 0, 0, 0) != 0
        && sys::call(sys::nr::MPROTECT, page, len, 3, 0, 0, 0) != 0
    {
        return None;
    }
    mem::copy(address, bytes.as_ptr() as u64, stub.len as u64);
    let jump = jump.as_slice();
    let original = plan.overwritten();
    mem::copy(plan.patch_start, jump.as_ptr() as u64, jump.len() as u64);
    sys::call(sys::nr::MPROTECT, page, len, protection, 0, 0, 0);
    use_room(stub.len as u32);
    if mode::is_replay() {
        replay::patched(thread, address);
    }
    if let Some(entry) = log::other(
        thread,
        kind::PATCH,
        &[site, address, plan.patch_start, plan.patch_len as u64],
        1,
    ) {
        entry
            .blob(tag::CODE, original.as_ptr() as u64, original.len() as u64)
            .commit();
    }
    Some((plan, stub, pause))
}

/// Whether a thread was interrupted in the middle of this code.
fn is_somebody_in(start: u64, end: u64) -> bool {
    (0..space().slots_used.get()).any(|slot| {
        let at = thread_in_slot(slot).interrupted_at.load(Acquire);
        start < at && at < end
    })
}

/// Program text is readable and executable; code that is writable too (made
/// at run time) is left alone, because the program may change it under us.
fn protection_of(address: u64) -> Option<u64> {
    let byte = mem::read::<u8>(address)?;
    // To try it costs a signal. (Since Linux 5.14 the kernel can be asked.)
    let ask = |address: u64| {
        let page = address & !4095;
        sys::populate(page, 4096)
    };
    let tells = &space().tells_writable;
    if tells.get() == 0 {
        tells.set(if ask(tells.as_ptr() as u64) { 1 } else { 2 });
    }
    let is_writable = match tells.get() {
        1 => ask(address),
        _ => mem::write(address, &byte),
    };
    (!is_writable).then_some(sys::PROT_RX)
}

/// Room for a stub within reach of `site`; its pool is the last one used.
fn room(thread: &Thread, site: u64) -> Option<u64> {
    let space = space();
    let count = space.pool_count.get() as usize;
    for (index, cell) in space.pools.iter().take(count).enumerate() {
        let pool = cell.get();
        let near = pool.start.abs_diff(site) < 0x7000_0000;
        if near && pool.used + patch::STUB_MAX as u32 <= pool.size {
            space.pool_current.set(index as u32);
            return Some(pool.start + u64::from(pool.used));
        }
    }
    if count == POOLS_MAX {
        return None;
    }
    if mode::is_replay() {
        let address = replay::stub_pool(thread)?;
        space.pools[count].set(Pool {
            start: address,
            used: 0,
            size: POOL_SIZE as u32,
        });
        space.pool_count.set(count as u32 + 1);
        space.pool_current.set(count as u32);
        return Some(address);
    }
    // Below the code first: heaps grow upwards from it.
    let base = site & !0xf_ffff;
    for step in 1..0x600 {
        for address in [base.checked_sub(step << 20), base.checked_add(step << 20)] {
            let Some(address) = address.filter(|a| *a >= 0x1_0000) else {
                continue;
            };
            if mem::is_ours(address, POOL_SIZE) {
                continue;
            }
            let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
            let got = sys::call(sys::nr::MMAP, address, POOL_SIZE, 7, flags, u64::MAX, 0);
            if got == address as i64 {
                log::done(log::other(thread, kind::STUBS, &[address, POOL_SIZE], 0));
                space.pools[count].set(Pool {
                    start: address,
                    used: 0,
                    size: POOL_SIZE as u32,
                });
                space.pool_count.set(count as u32 + 1);
                space.pool_current.set(count as u32);
                return Some(address);
            }
            if got > 0 {
                sys::call(sys::nr::MUNMAP, got as u64, POOL_SIZE, 0, 0, 0, 0);
            }
        }
    }
    None
}

fn use_room(len: u32) {
    let cell = &space().pools[space().pool_current.get() as usize & (POOLS_MAX - 1)];
    let mut pool = cell.get();
    pool.used += (len + 15) & !15;
    cell.set(pool);
}

/// A page with code of the injector's, which no thread is in for long: it is none of
/// the program's.
pub fn adopt(page: u64) {
    space().pools[0].set(Pool {
        start: page,
        used: 4096,
        size: 4096,
    });
    space().pool_count.set(1);
}

pub fn in_stub(rip: u64) -> bool {
    let space = space();
    space
        .pools
        .iter()
        .take(space.pool_count.get() as usize)
        .any(|cell| {
            let pool = cell.get();
            (pool.start..pool.start + u64::from(pool.size)).contains(&rip)
        })
        || pads::has(rip)
}

/// Where the program's own code has what the stub has at `rip`: what a handler
/// or a debugger is shown.
pub fn to_program(rip: u64) -> u64 {
    if !in_stub(rip) {
        return rip;
    }
    entries()
        .find_map(|entry| {
            let parts = Parts::of(&entry);
            if (parts.entry..entry.call).contains(&rip) {
                Some(entry.start + (rip - parts.entry))
            } else if (entry.call..entry.resume).contains(&rip) {
                Some(entry.site)
            } else if (entry.resume..=parts.back_jump).contains(&rip) {
                Some(entry.site + u64::from(entry.site_len) + (rip - entry.resume))
            } else {
                None
            }
        })
        .unwrap_or(rip)
}

fn entries() -> impl Iterator<Item = Patched> {
    used().map(Cell::get).filter(|entry| entry.call != 0)
}

/// Where the parts of a stub are (see the `patch` crate).
struct Parts {
    entry: u64,
    /// The jump back to the program.
    back_jump: u64,
}

impl Parts {
    fn of(entry: &Patched) -> Parts {
        let end = entry.start + u64::from(entry.length);
        Parts {
            entry: entry.call - entry.site.saturating_sub(entry.start),
            back_jump: entry.resume + end.saturating_sub(entry.site + u64::from(entry.site_len)),
        }
    }
}

/// Where the instruction that the program has at `rip` is run from, if it was
/// moved to a stub.
pub fn moved_to(rip: u64) -> u64 {
    let entry = entries().find(|entry| entry.site == rip || is_inside(entry, rip));
    match entry {
        Some(entry) if rip == entry.site => entry.call,
        Some(entry) if rip < entry.site => Parts::of(&entry).entry + (rip - entry.start),
        Some(entry) => entry.resume + (rip - entry.site - u64::from(entry.site_len)),
        None => rip,
    }
}

/// Whether anything on a page was patched.
pub fn is_on_page(page: u64) -> bool {
    entries().any(|entry| {
        let end = entry.start + u64::from(entry.length);
        entry.start < page + 4096 && page < end
    })
}

/// Puts the program's own bytes over patched ones: `bytes` are those at
/// `address`.
pub fn show_original(address: u64, bytes: &mut [u8]) {
    for entry in entries().filter(is_in_place) {
        let original = entry.original.iter().take(entry.length as usize);
        for (i, byte) in (0..).zip(original) {
            if let Some(at) = (entry.start + i).checked_sub(address)
                && let Some(place) = bytes.get_mut(at as usize)
            {
                *place = *byte;
            }
        }
    }
}

/// Where a thread that is to go on at `rip` must go on now: in the stub, if
/// the place has become the middle of a jump.
pub fn to_stub(rip: u64) -> u64 {
    if let Some(entry) = find(rip).map(Cell::get)
        && entry.call != 0
        && is_inside(&entry, rip)
    {
        return entry.call;
    }
    const LONGEST: u64 = patch::TRAP_MAX as u64;
    for len in 2..=LONGEST {
        if let Some(entry) = find(rip.wrapping_sub(len)).map(Cell::get)
            && entry.call != 0
            && u64::from(entry.site_len) == len
            && is_inside(&entry, rip)
        {
            return entry.resume;
        }
    }
    rip
}

fn is_inside(entry: &Patched, rip: u64) -> bool {
    entry.start < rip && rip < entry.start + u64::from(entry.length) && is_in_place(entry)
}

/// The program's own bytes are put back.
fn undo(entry: &Patched) {
    if is_in_place(entry) {
        let page = entry.start & !4095;
        let len = (entry.start + u64::from(entry.length) - page + 4095) & !4095;
        let protect = |prot| sys::call(sys::nr::MPROTECT, page, len, prot, 0, 0, 0);
        protect(7);
        let original = entry.original.as_ptr() as u64;
        mem::copy(entry.start, original, entry.length.into());
        protect(sys::PROT_RX);
    }
}

/// The monitor leaves: no thread is in a stub, nor will be.
pub fn undo_all() {
    for cell in used() {
        let mut entry = cell.get();
        if entry.call != 0 {
            undo(&entry);
            entry.call = 0;
            cell.set(entry);
        }
    }
    let count = space().pool_count.replace(0) as usize;
    for pool in space().pools.iter().take(count).map(Cell::get) {
        let size = u64::from(pool.size);
        sys::call(sys::nr::MUNMAP, pool.start, size, 0, 0, 0, 0);
    }
}

/// Takes the stubs of replaced instructions away, for good: they are to trap
/// from now on.
pub fn undo_replaced() {
    for cell in used() {
        let mut entry = cell.get();
        if entry.form == 0 || entry.call == 0 {
            continue;
        }
        undo(&entry);
        entry.call = 0;
        entry.traps = TRAPS_FIRST;
        cell.set(entry);
    }
    if mode::is_replay() {
        motion::code_changed();
    }
}

/// Code is about to be moved elsewhere: what leads to stubs leads there from where it is.
pub fn put_back(start: u64, len: u64) {
    let end = start.saturating_add(len);
    for cell in used() {
        let mut entry = cell.get();
        if entry.call != 0 && entry.site >= start && entry.site < end {
            undo(&entry);
            entry.call = 0;
            entry.traps = 0;
            cell.set(entry);
        }
    }
}

/// Code was unmapped or replaced: what was patched there is gone.
pub fn forget(start: u64, len: u64) {
    let end = start.saturating_add(len);
    for cell in used() {
        let mut entry = cell.get();
        if entry.site >= start && entry.site < end {
            entry.call = 0;
            entry.traps = 0;
            cell.set(entry);
        }
    }
}
