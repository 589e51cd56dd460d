//! Translation of one block: from an address on, past conditional jumps that
//! are not taken, to the first instruction that never leads to the next.

mod copy;
mod goal;
mod guard;
mod look;

use crate::cache::{
    BLOCK_ROOM, COUNT, COUNTED_THROUGH, Cache, EXIT_DATA, Exit, SAVED_RCX, TARGET, kind,
    write_exit, write_exit_through,
};
use crate::inst::{Flow, Inst, inst};
use crate::writer::{RCX, Writer};

use copy::copy;
use goal::write_goal;
use guard::{GUARD_ROOM, GUARDED_INSTS, may_change, write_guard};
use look::Look;

/// Where the program's code is read.
pub trait Source {
    /// Reads code at `address`: how many bytes there are, up to the whole of
    /// `into`. None, if it must not be run from a translation.
    fn fetch(&mut self, address: u64, into: &mut [u8; 15]) -> usize;

    /// The word at `address` as it is in memory, if what is there may be
    /// written to while its translation is in use: code that is made at run
    /// time. Its blocks compare themselves with memory whenever they are
    /// entered. (A block that changes its own end is seen the next time.)
    fn changing(&mut self, address: u64) -> Option<u64> {
        let _ = address;
        None
    }
}

/// Something that holds when the goal is reached. Conditions are tried in
/// order, and the first that does not hold ends the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A general register (by its number in instructions) has this value.
    Register(u8, u64),
    /// The word at this address, which can be read, has this value.
    Memory(u64, u64),
    /// Half of a vector register, one of the first sixteen, has this value:
    /// twice its number for the low half, one more for the high one.
    Vector(u8, u64),
}

/// Where to stop.
#[derive(Clone, Copy, Debug)]
pub struct Goal<'a> {
    /// Before the instruction at this address,
    pub address: u64,
    /// if all of these hold. (At most [`Goal::CONDITIONS_MAX`] are looked at.)
    pub conditions: &'a [Condition],
}

impl Goal<'_> {
    /// How many conditions there may be.
    pub const CONDITIONS_MAX: usize = 64;
}

/// How to translate. The same for all blocks between two times that the cache
/// is cleared.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Where to stop, if anywhere.
    pub goal: Option<Goal<'a>>,
    /// Whether control transfers that are taken count
    /// ([`Cache::set_count`]): every jump, conditional if it is taken, every
    /// call and every return.
    pub count: bool,
    /// Whether memory is watched ([`Cache::set_watches`]): each instruction
    /// that may write is followed by a look at it.
    pub watch: bool,
}

const INSTS_MAX: usize = 96;
const EDGES_MAX: usize = INSTS_MAX;

// What one instruction, one edge and the goal take at most.
const INST_ROOM: usize = 96;
const EDGE_ROOM: usize = 176;
const CONDITION_ROOM: usize = 64;
const _: () = assert!(
    INSTS_MAX * INST_ROOM
        + EDGES_MAX * EDGE_ROOM
        + (Goal::CONDITIONS_MAX + 2) * CONDITION_ROOM
        + GUARD_ROOM
        + 2 * EXIT_DATA
        < BLOCK_ROOM
);

/// A jump out of the block to an address of the program.
#[derive(Clone, Copy)]
struct Edge {
    site: usize,
    target: u64,
    /// Whether it counts as a control transfer that was taken.
    taken: bool,
    /// Whether something was written just before: a call.
    writes: bool,
}

/// How the instructions of a block are written.
#[derive(Clone, Copy)]
struct How {
    count: bool,
    /// How watched memory is looked at, if any is.
    look: Option<Look>,
}

impl Cache<'_> {
    /// The address in the cache at which the code at `address` of the program
    /// goes on. `None`: it cannot be translated, and has to be run where it is.
    pub fn enter(
        &mut self,
        address: u64,
        source: &mut impl Source,
        options: &Options<'_>,
    ) -> Option<u64> {
        let offset = self.block(address, source, options)?;
        Some(self.base.wrapping_add(offset as u64))
    }

    /// The address in the cache at which the program goes on after an [`Exit`]:
    /// what led out of the cache there stays in it from now on. `None`: the code
    /// cannot be translated, and has to be run where it is.
    pub fn resume(
        &mut self,
        exit: Exit,
        source: &mut impl Source,
        options: &Options<'_>,
    ) -> Option<u64> {
        let (target, site) = match exit {
            Exit::Goal { resume } => return Some(resume),
            Exit::Open { target, site } => (target, site),
            Exit::Stale { target } => {
                let old = self.find(target).map(|offset| self.site(offset, 1));
                let offset = self.translate(target, source, options)?;
                // Whatever leads to the old one leads to the new one.
                if let Some(site) = old {
                    self.link(site, offset);
                }
                return Some(self.base.wrapping_add(offset as u64));
            }
            Exit::Counted { target } | Exit::Stepped { target } | Exit::Changed { target } => {
                (target, None)
            }
        };
        let offset = self.block(target, source, options)?;
        match site {
            Some(site) => self.link(site, offset),
            None => self.promote(target),
        }
        Some(self.base.wrapping_add(offset as u64))
    }

    /// Where the one instruction at `address`, which leads to the next, is
    /// executed; then comes [`Exit::Stepped`]. The goal does not matter. The
    /// translation is used once.
    pub fn step(&mut self, address: u64, source: &mut impl Source) -> Option<u64> {
        let mut bytes = [0; 15];
        let len = source.fetch(address, &mut bytes).min(bytes.len());
        let code = bytes.get(..len)?;
        let found = inst(code, address).filter(|inst| inst.flow == Flow::Next)?;
        let room = self.memory.len().saturating_sub(BLOCK_ROOM);
        // Behind everything else, in room that is always left.
        let mut w = self.writer(room);
        w.align();
        let start = w.at;
        copy(&mut w, code, &found);
        let target = address.wrapping_add(found.len as u64);
        write_exit(&mut w, target, 0, kind::STEPPED);
        Some(self.base.wrapping_add(start as u64))
    }

    fn block(
        &mut self,
        address: u64,
        source: &mut impl Source,
        options: &Options<'_>,
    ) -> Option<usize> {
        match self.find(address) {
            Some(offset) => Some(offset),
            None => self.translate(address, source, options),
        }
    }

    fn translate(
        &mut self,
        address: u64,
        source: &mut impl Source,
        options: &Options<'_>,
    ) -> Option<usize> {
        let mut bytes = [0; 15];
        let len = source.fetch(address, &mut bytes);
        let first = inst(bytes.get(..len)?, address)?;
        let guarded = may_change(source, address, first.len);

        let start = self.begin_block(address);
        let how = How {
            count: options.count,
            look: options.watch.then(|| Look::of(self)),
        };
        let mut edges = Edges {
            list: [Edge {
                site: 0,
                target: 0,
                taken: false,
                writes: false,
            }; EDGES_MAX],
            used: 0,
        };
        let mut at = address;
        let mut end = start;
        let guard = guarded.then(|| {
            let mut w = self.writer(end);
            let site = w.jump_later(&[0xe9]);
            end = w.at;
            site
        });
        let mut falls_through = true;
        for number in 0..if guarded { GUARDED_INSTS } else { INSTS_MAX } {
            if number != 0 && self.find(at).is_some() {
                break;
            }
            let len = source.fetch(at, &mut bytes);
            let Some(code) = bytes.get(..len) else { break };
            let Some(found) = inst(code, at) else { break };
            if may_change(source, at, found.len) != guarded {
                break;
            }
            let mut w = self.writer(end);
            if let Some(goal) = options.goal.filter(|goal| goal.address == at) {
                write_goal(&mut w, &goal);
            }
            let next = at.wrapping_add(found.len as u64);
            falls_through = write(&mut w, code, &found, next, how, &mut edges);
            end = w.at;
            at = next;
            if !falls_through {
                break;
            }
        }
        if falls_through {
            let site = self.writer(end).jump_later(&[0xe9]);
            edges.add(site, at, false, false);
            end = end.wrapping_add(5);
        }
        for edge in edges.list.iter().take(edges.used) {
            let known = self.find(edge.target);
            let mut w = self.writer(end);
            write_edge(&mut w, edge, known, how);
            end = w.at;
        }
        if let Some(site) = guard {
            let mut w = self.writer(end);
            w.settle(site, end);
            write_guard(&mut w, address..at, start.wrapping_add(5), source);
            end = w.at;
        }
        let mut w = self.writer(end);
        w.align();
        let end = w.at;
        self.end_block(end);
        Some(start)
    }
}

struct Edges {
    list: [Edge; EDGES_MAX],
    used: usize,
}

impl Edges {
    fn add(&mut self, site: usize, target: u64, taken: bool, writes: bool) {
        if let Some(place) = self.list.get_mut(self.used) {
            *place = Edge {
                site,
                target,
                taken,
                writes,
            };
            self.used = self.used.wrapping_add(1);
        }
    }
}

/// Writes one instruction. Returns whether it may lead to the next.
fn write(
    w: &mut Writer<'_>,
    code: &[u8],
    inst: &Inst,
    next: u64,
    how: How,
    edges: &mut Edges,
) -> bool {
    match inst.flow {
        Flow::Next => {
            copy(w, code, inst);
            if let Some(look) = how.look {
                look.write(w, code, inst, next);
            }
        }
        Flow::Branch(condition, target) => {
            let site = w.jump_later(&[0x0f, 0x80 | condition]);
            edges.add(site, target, true, false);
        }
        Flow::Loop(op, target) => {
            if inst.address_size {
                w.bytes(&[0x67]);
            }
            w.bytes(&[op, 0x02, 0xeb, 0x05]);
            let site = w.jump_later(&[0xe9]);
            edges.add(site, target, true, false);
        }
        Flow::Jump(target) => {
            let site = w.jump_later(&[0xe9]);
            edges.add(site, target, true, false);
        }
        Flow::Call(target) => {
            push(w, next);
            let site = w.jump_later(&[0xe9]);
            edges.add(site, target, true, true);
        }
        Flow::JumpThrough => {
            w.store(SAVED_RCX, RCX);
            load_target(w, code, inst);
            go_through(w, how, false);
        }
        Flow::CallThrough => {
            w.store(SAVED_RCX, RCX);
            load_target(w, code, inst);
            push(w, next);
            go_through(w, how, true);
        }
        Flow::Return(more) => {
            w.store(SAVED_RCX, RCX);
            w.bytes(&[0x59]); // pop rcx
            if more != 0 {
                w.bytes(&[0x48, 0x8d, 0xa4, 0x24]); // lea rsp, [rsp + more]
                w.u32(u32::from(more));
            }
            go_through(w, how, false);
        }
    }
    matches!(inst.flow, Flow::Next | Flow::Branch(..) | Flow::Loop(..))
}

/// `push value`, without a register.
fn push(w: &mut Writer<'_>, value: u64) {
    w.bytes(&[0x68]);
    w.u32(value as u32);
    if value as i32 as u64 != value {
        w.bytes(&[0xc7, 0x44, 0x24, 0x04]); // mov dword ptr [rsp + 4], high half
        w.u32((value >> 32) as u32);
    }
}

/// rcx = the operand of a jump or call through a register or memory.
fn load_target(w: &mut Writer<'_>, code: &[u8], inst: &Inst) {
    if let Some(operand) = inst.operand {
        w.value(RCX, operand);
    }
    if inst.segment != 0 {
        w.bytes(&[inst.segment]);
    }
    if inst.operand.is_some() {
        w.bytes(&[0x48, 0x8b, 0x09]); // mov rcx, [rcx]
        return;
    }
    if inst.address_size {
        w.bytes(&[0x67]);
    }
    let modrm = inst.opcode.wrapping_add(1);
    let operand = code.get(modrm).copied().unwrap_or(0);
    // mov rcx, operand
    w.bytes(&[0x48 | inst.rex & 3, 0x8b, operand & 0xc7 | RCX << 3]);
    w.bytes(code.get(modrm.wrapping_add(1)..inst.len).unwrap_or(&[]));
}

/// Goes to the program's address in rcx. `writes`: memory was written for it.
fn go_through(w: &mut Writer<'_>, how: How, writes: bool) {
    if !how.count && how.look.is_none() {
        w.jump(Cache::LOOKUP);
        return;
    }
    w.store(TARGET, RCX);
    let last = how.count.then(|| count(w));
    if let Some(look) = how.look.filter(|_| writes) {
        look.at_stack(w, 0);
    }
    w.load(RCX, TARGET);
    w.jump(Cache::LOOKUP);
    if let Some(last) = last {
        w.settle_short(last);
        w.load(RCX, SAVED_RCX);
        write_exit_through(w, COUNTED_THROUGH);
    }
}

/// Counts a control transfer: a jump to settle for the last one. Changes rcx.
fn count(w: &mut Writer<'_>) -> usize {
    w.load(RCX, COUNT);
    w.bytes(&[0x48, 0x8d, 0x49, 0xff]); // lea rcx, [rcx - 1]
    w.store(COUNT, RCX);
    w.jump_if_rcx_is_zero()
}

fn write_edge(w: &mut Writer<'_>, edge: &Edge, known: Option<usize>, how: How) {
    let mut site = edge.site;
    let counts = how.count && edge.taken;
    let look = how.look.filter(|_| edge.writes);
    if counts || look.is_some() {
        w.settle(site, w.at);
        w.store(SAVED_RCX, RCX);
        let last = counts.then(|| count(w));
        match look {
            Some(look) => look.at_stack(w, edge.target),
            None => w.load(RCX, SAVED_RCX),
        }
        site = w.jump_later(&[0xe9]);
        if let Some(last) = last {
            w.settle_short(last);
            w.load(RCX, SAVED_RCX);
            write_exit(w, edge.target, 0, kind::COUNTED);
        }
    }
    match known {
        Some(offset) => w.settle(site, offset),
        None => {
            w.settle(site, w.at);
            write_exit(w, edge.target, site, kind::OPEN);
        }
    }
}
