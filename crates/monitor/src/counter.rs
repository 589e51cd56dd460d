//! Instructions that the processor answers, the time-stamp counter first.
//!
//! `rdtsc` and its kin do not trap, and to make the kernel let them trap would
//! hit the monitor and the kernel's own clock functions too. So these
//! instructions are replaced by `ud2` in the program's code when it is mapped;
//! the recorder has found where they are. SIGILL at such a place is ours: it
//! leads here as a trapped call leads to `call::dispatch`.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use protocol::instruction::{ESCAPE, Form, Instruction, Neighbours, Site, UD2};
use protocol::record::{at, kind, tag};
use protocol::replay::{COUNTER_SITES, COUNTERS_BASE, CounterSite, CounterTable, difference, site};
use protocol::shared::ExecSlot;

use crate::arch::Regs;
use crate::state::{Thread, control, space};
use crate::sys::{self, nr};
use crate::{answers, log, mem, mode, patcher, replay, signal, turn};

const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;

fn table() -> Option<&'static CounterTable> {
    // SAFETY: `add` maps it before it says so; it is made of atomics, valid
    // when zero, and never unmapped.
    (space().has_counters.get() != 0).then(|| unsafe { &*(COUNTERS_BASE as *const CounterTable) })
}

fn sites() -> &'static [CounterSite] {
    table().map_or(&[], |table| {
        let count = (table.count.load(Relaxed) as usize).min(COUNTER_SITES);
        &table.sites[..count]
    })
}

/// Those in a range that are in a state.
fn sites_in(start: u64, len: u64, state: u32) -> impl Iterator<Item = &'static CounterSite> {
    let end = start.saturating_add(len);
    sites().iter().filter(move |s| {
        let address = s.address.load(Relaxed);
        s.state.load(Relaxed) == state && start <= address && address < end
    })
}

/// The instruction that was replaced at an address: a thread that got SIGILL
/// here was to run it.
pub fn replaced_at(address: u64) -> Option<Form> {
    let form = form_of(sites_in(address, 1, site::REPLACED).next()?)?;
    let here = mem::read::<[u8; 2]>(address + form.opcode_at());
    (here == Some([ESCAPE, UD2])).then_some(form)
}

fn form_of(site: &CounterSite) -> Option<Form> {
    Form::from_byte(site.form.load(Relaxed) as u8)
}

/// What there is at an entry of the table.
fn site_of(site: &CounterSite) -> Option<Site> {
    Some(Site {
        place: site.address.load(Relaxed),
        form: form_of(site)?,
        neighbours: Neighbours::from_bits(u64::from(site.form.load(Relaxed) >> u8::BITS)),
    })
}

/// Remembers an instruction that is to be replaced when its code may run.
fn add(site: Site) {
    if space().has_counters.get() == 0 {
        let size = (core::mem::size_of::<CounterTable>() as u64 + 4095) & !4095;
        if !sys::map_anonymous(COUNTERS_BASE, size) {
            return;
        }
        space().has_counters.set(1);
    }
    let Some(table) = table() else { return };
    let count = table.count.load(Relaxed) as usize;
    let free = sites().iter().find(|s| s.state.load(Relaxed) == site::FREE);
    let place = free.or_else(|| table.sites.get(count));
    if let Some(place) = place {
        let neighbours = Neighbours::to_bits(site.neighbours) as u32;
        let form = u32::from(site.form.to_byte());
        place.address.store(site.place, Relaxed);
        place.form.store(form | neighbours << u8::BITS, Relaxed);
        place.state.store(site::WAITING, Relaxed);
        if free.is_none() {
            table.count.store(count as u64 + 1, Relaxed);
        }
    }
}

/// A fresh image: what of its code is to be replaced.
pub fn begin(thread: &Thread, exec: &ExecSlot) {
    let interprets = exec.interprets.load(Relaxed);
    space().interprets.set(u32::from(interprets != 0));
    for code in &exec.code {
        let len = code.len.load(Relaxed);
        if len != 0 {
            let start = code.start.load(Relaxed);
            let place = code.place.load(Relaxed) as usize;
            mapped(start, len, code.offset.load(Relaxed), place);
            replace(thread, start, len, code.prot.load(Relaxed));
        }
    }
}

/// A file was mapped, for this process alone.
pub fn mapped(start: u64, len: u64, offset: u64, place: usize) {
    for word in control().counter_sites_of(place) {
        let Some(site) = Site::of_word(word.load(Acquire)) else {
            continue;
        };
        let into = site.place.wrapping_sub(offset);
        if into < len && into + u64::from(site.form.len) <= len {
            let place = start + into;
            add(Site { place, ..site });
        }
    }
}

/// Replaces what waits in code that may run from now on.
pub fn replace(thread: &Thread, start: u64, len: u64, prot: u64) {
    if prot & PROT_EXEC == 0 {
        return;
    }
    choose_jumps(start, len, prot);
    exchange(start, len, prot, || {
        let fresh = || sites_in(start, len, site::FRESH);
        if let Some(mut entry) = log::other(thread, kind::SITES, &[prot], 1) {
            entry = entry.blob_begin(tag::CODE, 8 * fresh().count() as u64);
            for s in fresh() {
                let word = site_of(s).and_then(Site::to_word).unwrap_or(0);
                entry = entry.piece((&raw const word) as u64, 8);
            }
            entry.commit();
        }
        settle(thread, start, len);
    });
}

/// Of those that wait and have room for a jump: whether they become one at once. Where the
/// program may write to its code, or wants to see the traps, they do not.
fn choose_jumps(start: u64, len: u64, prot: u64) {
    let may_be = prot & PROT_WRITE == 0 && space().counters_trap.get() == 0;
    let is_within = |site: &Site| {
        let code = extent(site);
        start <= code.start && code.end <= start.saturating_add(len)
    };
    for s in sites_in(start, len, site::WAITING) {
        let site = site_of(s).filter(|site| may_be && is_within(site));
        if !site.is_some_and(|site| patcher::can_jump(&site)) {
            s.form.fetch_and(u32::from(u8::MAX), Relaxed);
        }
    }
}

/// From the first byte to the last of what is written to.
fn extent(site: &Site) -> Range<u64> {
    let moved = |bytes: fn(Neighbours) -> usize| site.neighbours.map_or(0, bytes) as u64;
    let behind = site.place + u64::from(site.form.len);
    site.place - moved(Neighbours::before)..behind + moved(Neighbours::after)
}

/// Those that are fresh are replaced: jumps, where there is room for them.
fn settle(thread: &Thread, start: u64, len: u64) {
    for s in sites_in(start, len, site::FRESH) {
        if let Some(site) = site_of(s) {
            patcher::jump_at_once(thread, &site);
        }
        s.state.store(site::REPLACED, Relaxed);
    }
}

/// Writes the instructions; those that were written are then fresh, and `also` sees them
/// while the code can still be written to. If there are none, it is not called.
fn exchange(start: u64, len: u64, prot: u64, also: impl FnOnce()) {
    let waiting = || sites_in(start, len, site::WAITING);
    let (mut from, mut to) = (u64::MAX, 0);
    for s in waiting() {
        let address = s.address.load(Relaxed);
        // The program may have changed its copy before it ran it.
        let form = form_of(s).filter(|form| has(address + form.opcode_at(), form.original()));
        if let Some(site) = site_of(s).filter(|_| form.is_some()) {
            let code = extent(&site);
            from = from.min(code.start & !4095);
            to = to.max((code.end + 4095) & !4095);
        } else {
            s.state.store(site::FREE, Relaxed);
        }
    }
    if from >= to {
        return;
    }
    // It stays executable meanwhile: where that is forbidden, so is what comes
    // after it, and nothing has been changed yet.
    let protect = |prot| sys::call(nr::MPROTECT, from, to - from, prot, 0, 0, 0) == 0;
    let is_writable = prot & PROT_WRITE != 0;
    if !is_writable && !protect(prot | PROT_READ | PROT_WRITE) {
        return;
    }
    for s in waiting() {
        if let Some(form) = form_of(s) {
            let at = s.address.load(Relaxed) + form.opcode_at();
            let instead = form.instead();
            mem::copy(at, instead.as_ptr() as u64, instead.len() as u64);
            s.state.store(site::FRESH, Relaxed);
        }
    }
    also();
    if !is_writable {
        protect(prot);
    }
}

/// Whether the program's memory has these bytes at an address.
fn has(address: u64, bytes: &[u8]) -> bool {
    let is_there = |(at, byte): (u64, &u8)| mem::read::<u8>(at) == Some(*byte);
    (address..).zip(bytes).all(is_there)
}

/// In replay: what was replaced here then is replaced now.
pub fn replace_again(thread: &Thread) {
    while let Some((prot, words)) = replay::sites_here(thread) {
        let (mut from, mut to) = (u64::MAX, 0);
        let mut count = 0;
        for word in words.as_chunks::<8>().0 {
            let Some(site) = Site::of_word(u64::from_le_bytes(*word)) else {
                replay::diverge(thread, difference::MEMORY, 2, u64::from_le_bytes(*word), 0);
            };
            add(site);
            from = from.min(site.place);
            to = to.max(site.place + 1);
            count += 1;
        }
        let len = to.saturating_sub(from);
        let mut replaced = 0;
        exchange(from, len, prot, || {
            replaced = sites_in(from, len, site::FRESH).count();
            settle(thread, from, len);
        });
        if replaced != count {
            replay::diverge(thread, difference::MEMORY, 2, from, to);
        }
    }
}

/// Code was unmapped or replaced.
pub fn forget(start: u64, len: u64) {
    for state in [site::WAITING, site::REPLACED] {
        for s in sites_in(start, len, state) {
            s.state.store(site::FREE, Relaxed);
        }
    }
}

/// The monitor leaves: the program's own instructions are put back. (Their stubs are
/// gone.)
pub fn undo_all() {
    for s in sites_in(0, u64::MAX, site::REPLACED) {
        let address = s.address.load(Relaxed);
        let Some(form) = replaced_at(address) else {
            continue;
        };
        let at = address + form.opcode_at();
        let (page, end) = (at & !4095, (at + 4 + 4095) & !4095);
        let protect = |prot| sys::call(nr::MPROTECT, page, end - page, prot, 0, 0, 0);
        protect(PROT_READ | PROT_WRITE | PROT_EXEC);
        let original = form.original();
        mem::copy(at, original.as_ptr() as u64, original.len() as u64);
        protect(PROT_READ | PROT_EXEC);
        s.state.store(site::FREE, Relaxed);
    }
}

/// Code is at another address now.
pub fn moved(from: u64, len: u64, to: u64) {
    for state in [site::WAITING, site::REPLACED] {
        for s in sites_in(from, len, state) {
            let into = s.address.load(Relaxed) - from;
            s.address.store(to + into, Relaxed);
        }
    }
}

/// The thread is at an instruction that was replaced (`regs.rip`).
pub fn read(thread: &Thread, regs: &mut Regs) {
    let address = regs.rip;
    let form = patcher::replaced_at(address).or_else(|| replaced_at(address));
    let form = form.unwrap_or(Form::RDTSC);
    thread.call_site.set(address);
    if signal::may_come(thread) {
        signal::deliver(thread, regs, at::CALL_ENTRY);
        if regs.rip != address {
            return;
        }
    }
    turn::at_call(thread, false);
    match form.what {
        Instruction::Counter => read_counter(thread, regs, form == Form::RDTSCP),
        _ => answers::give(thread, regs, form),
    }
    regs.rip = address + u64::from(form.len);
    signal::deliver(thread, regs, at::CALL_EXIT);
}

fn read_counter(thread: &Thread, regs: &mut Regs, with_auxiliary: bool) {
    let (value, auxiliary) = mode::answer(
        || log::counter(thread, with_auxiliary),
        || replay::read_counter(thread),
    );
    regs.rax = value & 0xffff_ffff;
    regs.rdx = value >> 32;
    if with_auxiliary {
        regs.rcx = u64::from(auxiliary);
    }
}

const PR_GET_TSC: u64 = 25;
const PR_SET_TSC: u64 = 26;
const PR_TSC_ENABLE: u32 = 1;
const PR_TSC_SIGSEGV: u32 = 2;

/// The program may ask that reading the counter be a fault. None: this is
/// about something else.
pub fn prctl(thread: &Thread, args: &[u64; 6]) -> Option<i64> {
    let faults = &thread.counter_faults;
    match (args[0] & 0xffff_ffff, args[1] as u32) {
        (PR_GET_TSC, _) => {
            let now = PR_TSC_ENABLE + faults.get();
            let written = mem::write(args[1], &now);
            Some(if written { 0 } else { -sys::EFAULT })
        }
        (PR_SET_TSC, how @ (PR_TSC_ENABLE | PR_TSC_SIGSEGV)) => {
            faults.set(how - PR_TSC_ENABLE);
            if how == PR_TSC_SIGSEGV {
                space().counters_trap.set(1);
                patcher::undo_replaced();
            }
            Some(0)
        }
        (PR_SET_TSC, _) => Some(-sys::EINVAL),
        _ => None,
    }
}
