//! Which instructions can become a jump to a stub at once, before anybody has come
//! there: then nobody ever traps at them. The loader alone has some forty `cpuid`, one
//! behind the other, at every exec.
//!
//! The monitor would have to look through the code around each of them while its program
//! waits; here it is done once for a file, and in one go for all that are close to each other. The
//! plan is made on the code as the monitor will find it: with all of them replaced, and those before
//! turned into jumps.

use std::fs::File;
use std::ops::Range;

use patch::{Code, Plan, plan_trap};
use protocol::instruction::{Instruction, Neighbours, Site};

use super::search::read_up_to;

/// How far away a jump into the bytes to be moved is looked for.
const WINDOW: u64 = 0x4000;

/// How far the plan itself looks: to where short jumps reach, and decoding starts.
const CLOSE: u64 = 256;

/// What is read in one go, at most: sites that are further from each other are looked at apart.
const STRETCH_MAX: u64 = 16 * WINDOW;

/// A library that asks the processor at hundreds of places asks at few of them.
const PLANNED_MAX: usize = 64;

/// Finds the neighbours of the sites of a file, in order of their offsets.
pub(super) fn find(file: &File, sites: &mut [Site]) {
    // Those without operands: the program's own bytes are gone from a jump.
    let is_plain =
        |site: &Site| matches!(site.form.what, Instruction::Counter | Instruction::Cpuid);
    let all: Vec<Site> = sites.to_vec();
    let plain: Vec<u64> = all
        .iter()
        .filter(|site| is_plain(site))
        .map(|site| site.place)
        .take(PLANNED_MAX)
        .collect();
    let mut stretch: Option<CodeWindow> = None;
    let planned = sites.iter_mut().filter(|site| is_plain(site));
    for site in planned.take(PLANNED_MAX) {
        let known = stretch.take().filter(|stretch| stretch.has(site.place));
        let known = known.unwrap_or_else(|| CodeWindow::read(file, site.place, &plain, &all));
        let here = stretch.insert(known);
        site.neighbours = here.plan(site);
    }
}

/// A piece of the file, changed as the monitor changes it, and the jumps in it.
struct CodeWindow {
    from: u64,
    bytes: Vec<u8>,
    /// The sites it was read for.
    sites: Range<u64>,
    /// Where what may be a jump with a displacement of 32 bits to near a site leads, and
    /// where it is.
    jumps: Vec<(u64, u64)>,
}

impl CodeWindow {
    /// Reads what is around a site, and around those of `plain` that follow it closely.
    fn read(file: &File, first: u64, plain: &[u64], all: &[Site]) -> CodeWindow {
        let from = first.saturating_sub(WINDOW);
        let close = |place: &&u64| (first..from.saturating_add(STRETCH_MAX)).contains(*place);
        let last = plain.iter().filter(close).max().map_or(first, |last| *last);
        let len = last.saturating_add(WINDOW).saturating_sub(from) as usize;
        let mut bytes = vec![0; len];
        let got = read_up_to(file, &mut bytes, from).unwrap_or(0);
        bytes.truncate(got);
        let jumps = jumps(&bytes, from, &Nearness::of(plain, from..from + got as u64));
        let mut stretch = CodeWindow {
            from,
            bytes,
            sites: first..last.saturating_add(1),
            jumps,
        };
        for site in all {
            stretch.put(site.place + site.form.opcode_at(), site.form.instead());
        }
        stretch
    }

    fn has(&self, place: u64) -> bool {
        self.sites.contains(&place)
    }

    fn plan(&mut self, site: &Site) -> Option<Neighbours> {
        let plan = plan_trap(self.around(site.place), site.place, site.form.len.into()).ok()?;
        let neighbours = Neighbours::new(plan.before, plan.after)?;
        if self.is_jumped_into(plan.patch_start..plan.back()) {
            return None;
        }
        self.taken(&plan);
        Some(neighbours)
    }

    /// Whether something that is not too far away, and not in there, may jump to behind the
    /// beginning of a piece of code.
    fn is_jumped_into(&self, code: Range<u64>) -> bool {
        let inside = code.start + 1..code.end;
        let into = self.jumps.iter().filter(|(to, _)| inside.contains(to));
        into.map(|(_, at)| at)
            .any(|at| !code.contains(at) && at.abs_diff(code.start) <= WINDOW)
    }

    fn around(&self, place: u64) -> Code<'_> {
        let base = place.saturating_sub(CLOSE).max(self.from);
        let to = place.saturating_add(CLOSE).saturating_sub(self.from) as usize;
        let from = (base - self.from) as usize;
        let bytes = self.bytes.get(from..to.min(self.bytes.len()));
        Code {
            base,
            bytes: bytes.unwrap_or(&[]),
        }
    }

    /// A jump is going to be there.
    fn taken(&mut self, plan: &Plan) {
        // It leads far away from here.
        const JUMP: [u8; patch::JUMP_LEN] = [0xe9, 0, 0, 0, 0x80];
        self.put(plan.patch_start, &vec![0xcc; plan.patch_len]);
        self.put(plan.patch_start, &JUMP);
    }

    fn put(&mut self, place: u64, bytes: &[u8]) {
        for (at, byte) in (place..).zip(bytes) {
            let into = at.checked_sub(self.from);
            let into = into.and_then(|into| usize::try_from(into).ok());
            if let Some(place) = into.and_then(|into| self.bytes.get_mut(into)) {
                *place = *byte;
            }
        }
    }
}

/// Which blocks of a piece of code are close to a site.
struct Nearness {
    from: u64,
    blocks: Vec<bool>,
}

impl Nearness {
    /// More than ever moves with a site.
    const BLOCK: u64 = 64;

    fn of(sites: &[u64], code: Range<u64>) -> Nearness {
        let from = code.start;
        let count = (code.end - from) / Self::BLOCK + 1;
        let mut blocks = vec![false; count as usize];
        for place in sites.iter().filter(|place| code.contains(*place)) {
            let own = ((place - from) / Self::BLOCK) as usize;
            for block in own.saturating_sub(1)..=own + 1 {
                if let Some(block) = blocks.get_mut(block) {
                    *block = true;
                }
            }
        }
        Nearness { from, blocks }
    }

    fn has(&self, place: u64) -> bool {
        let block = place.wrapping_sub(self.from) / Self::BLOCK;
        let block = usize::try_from(block).ok();
        block.and_then(|block| self.blocks.get(block)) == Some(&true)
    }
}

/// What may be a call or a jump with a displacement of 32 bits to near a site, in code that is
/// at `from`: where it leads, and where it is.
fn jumps(bytes: &[u8], from: u64, near: &Nearness) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut note = |at: usize, disp: usize| {
        if let Some(bytes) = bytes.get(disp..).and_then(|rest| rest.first_chunk()) {
            let behind = from.wrapping_add(disp as u64 + 4);
            let to = behind.wrapping_add_signed(i32::from_le_bytes(*bytes).into());
            if near.has(to) {
                found.push((to, from + at as u64));
            }
        }
    };
    // call, jmp
    memchr::memchr2_iter(0xe8, 0xe9, bytes).for_each(|at| note(at, at + 1));
    // jcc, xbegin
    for at in memchr::memchr2_iter(0x0f, 0xc7, bytes) {
        if let (Some(0x0f), Some(0x80..=0x8f)) | (Some(0xc7), Some(0xf8)) =
            (bytes.get(at), bytes.get(at + 1))
        {
            note(at, at + 2);
        }
    }
    found
}
