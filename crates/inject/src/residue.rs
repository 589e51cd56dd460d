//! What is left of the monitor for a while after it has left: the code in which a thread
//! makes a call again with less time, or with the rest of what it was to write. The
//! program finds behind the call what it would have found.
//!
//! When the monitor comes again, a thread that is still there is taken out of it, to where
//! the program has its call: code of the program's is changed then, and what is left here
//! would lead into the middle of it. Nothing is left here afterwards.

use protocol::halt::LEFT_IN_MEMORY;

use crate::Map;
use crate::depart::Departing;
use crate::detours::PAGE;
use crate::regs::Regs;
use crate::running::Running;

/// What such memory begins with.
pub(crate) const MARK: [u8; 64] =
    *b"\xcc\xcc\xcc\xcc What is left of a call: see residue.rs of Meanwhile. \xcc\xcc\xcc\xcc\xcc\xcc";

/// How much of it one thread needs, and where in that its data begin.
const SIZE: u64 = 256;
const DATA_AT: u64 = 144;
/// Where the code is that goes on with more than nothing done, by instructions.
const JOIN_AT: u64 = 14;
const ADD_AT: u64 = 16;
const DONE_AT: u64 = 22;
/// The call itself.
const CALL_LEN: u64 = 2;

/// How much memory so many threads need.
pub(crate) fn size(threads: usize) -> u64 {
    (MARK.len() as u64 + threads as u64 * SIZE).next_multiple_of(PAGE)
}

/// The places of threads in it.
pub(crate) fn places(room: u64) -> impl Iterator<Item = u64> {
    (room + MARK.len() as u64..).step_by(SIZE as usize)
}

/// What is left of one thread's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Residue {
    /// Where its code is.
    place: u64,
    /// Where the program goes on.
    after: u64,
    /// How much was written before.
    done: u64,
    /// How long the call had taken when the thread was let go, and when that was
    /// (CLOCK_MONOTONIC, ns). 0: that is of no interest.
    elapsed: u64,
    released: u64,
    /// Arguments that are not as the program has them: which, and what it has.
    kept: Vec<(u32, u64)>,
    /// What one of them may lead to.
    left: [u64; 2],
}

impl Residue {
    /// If a thread needs it: it will go on there, with these registers.
    pub(crate) fn of(thread: &Departing, place: u64, regs: &mut Regs, now: u64) -> Option<Residue> {
        if thread.left_arg == 0 && thread.done == 0 {
            return None;
        }
        let mut kept = Vec::new();
        if thread.done != 0 {
            kept.extend([(1, regs.rsi), (2, regs.rdx)]);
            regs.rsi += thread.done;
            regs.rdx -= thread.done;
        }
        if let Some(arg) = (thread.left_arg & !LEFT_IN_MEMORY).checked_sub(1)
            && let Some(register) = argument(regs, arg)
        {
            kept.push((arg, *register));
            *register = match thread.left_arg & LEFT_IN_MEMORY {
                0 => thread.left[0],
                _ => place + SIZE - 16,
            };
        }
        let after = std::mem::replace(&mut regs.rip, place) + CALL_LEN;
        Some(Residue {
            place,
            after,
            done: thread.done.min(i32::MAX as u64),
            elapsed: thread.elapsed,
            released: now,
            kept,
            left: thread.left,
        })
    }

    /// The code, and what it was made of.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut code = vec![0x0f, 0x05]; // syscall
        if self.done != 0 {
            let done = (self.done as u32).to_le_bytes();
            code.extend([0x48, 0x85, 0xc0, 0x79, 0x09]); // test rax, rax; jns over
            code.extend([0x48, 0xc7, 0xc0]); // mov rax, done
            code.extend(done);
            code.extend([0xeb, 0x06]); // jmp behind
            code.extend([0x48, 0x05]); // over: add rax, done
            code.extend(done);
        }
        // movabs, by argument.
        const LOADS: [[u8; 2]; 6] = [
            [0x48, 0xbf],
            [0x48, 0xbe],
            [0x48, 0xba],
            [0x49, 0xba],
            [0x49, 0xb8],
            [0x49, 0xb9],
        ];
        for (arg, value) in &self.kept {
            code.extend(LOADS.get(*arg as usize).into_iter().flatten());
            code.extend(value.to_le_bytes());
        }
        code.extend([0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
        code.extend(self.after.to_le_bytes());
        code.resize(DATA_AT as usize, 0xcc);
        let mut words = vec![self.after, self.done, self.elapsed, self.released];
        words.push(self.kept.len() as u64);
        for (arg, value) in &self.kept {
            words.extend([u64::from(*arg), *value]);
        }
        words.resize(((SIZE - DATA_AT) / 8 - 2) as usize, 0);
        words.extend(self.left);
        code.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        code
    }

    fn read(place: u64, bytes: &[u8]) -> Option<Residue> {
        let data = bytes.get(DATA_AT as usize..SIZE as usize)?;
        let words: Vec<u64> = data
            .chunks_exact(8)
            .map(|eight| eight.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        let [
            after,
            done,
            elapsed,
            released,
            count,
            rest @ ..,
            first,
            second,
        ] = words.as_slice()
        else {
            return None;
        };
        let kept = rest.chunks_exact(2).take(*count as usize);
        let kept = kept.filter_map(|pair| match pair {
            [arg, value] => Some((*arg as u32, *value)),
            _ => None,
        });
        Some(Residue {
            place,
            after: *after,
            done: *done,
            elapsed: *elapsed,
            released: *released,
            kept: kept.collect(),
            left: [*first, *second],
        })
    }

    /// Takes a thread out of it: its registers are the program's, as if it had been in the
    /// program's own call, or were behind it. If it is in the call: how long that has
    /// taken at a moment, and how much of it is done.
    pub(crate) fn leave(&self, regs: &mut Regs, now: u64) -> Option<(u64, u64)> {
        const ERESTARTSYS: i64 = 512;
        for (arg, value) in &self.kept {
            if let Some(register) = argument(regs, *arg) {
                *register = *value;
            }
        }
        let at = std::mem::replace(&mut regs.rip, self.after).wrapping_sub(self.place);
        let is_before = at == 0;
        if is_before {
            regs.orig_rax = regs.rax;
            regs.rax = -ERESTARTSYS as u64;
        }
        if is_before || at == CALL_LEN && crate::running::is_broken_off(regs) {
            let elapsed = match self.elapsed {
                0 => 0,
                elapsed => elapsed + now.saturating_sub(self.released),
            };
            return Some((elapsed, self.done));
        }
        let is_summed = at == JOIN_AT || at >= DONE_AT;
        if self.done != 0 && !is_summed {
            let is_more = (regs.rax as i64) >= 0;
            debug_assert!(is_more || at != ADD_AT);
            regs.rax = self.done + if is_more { regs.rax } else { 0 };
        }
        None
    }
}

impl Running {
    /// What was left of calls when the monitor left before.
    pub(crate) fn residues(&self, maps: &[Map]) -> Vec<Map> {
        const CODE: u32 = 1 | 4;
        let is_one = |map: &&Map| {
            map.inode == 0
                && map.prot == CODE
                && map.name.is_empty()
                && self.read(map.start, MARK.len()).as_deref() == Some(&MARK)
        };
        maps.iter().filter(is_one).cloned().collect()
    }

    /// What is left of the call that a thread is in.
    pub(crate) fn residue_at(&self, rooms: &[Map], rip: u64) -> Option<Residue> {
        let room = rooms
            .iter()
            .find(|room| (room.start..room.end).contains(&rip))?;
        let number = rip.checked_sub(room.start + MARK.len() as u64)? / SIZE;
        let place = places(room.start).nth(number as usize)?;
        Residue::read(place, &self.read(place, SIZE as usize)?)
    }
}

/// The register of an argument.
pub(crate) fn argument(regs: &mut Regs, arg: u32) -> Option<&mut u64> {
    Some(match arg {
        0 => &mut regs.rdi,
        1 => &mut regs.rsi,
        2 => &mut regs.rdx,
        3 => &mut regs.r10,
        4 => &mut regs.r8,
        5 => &mut regs.r9,
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    fn regs() -> Regs {
        // SAFETY: a structure of integers.
        let mut regs: Regs = unsafe { std::mem::zeroed() };
        regs.rip = 0x4000;
        [regs.rdi, regs.rsi, regs.rdx] = [3, 0x7000, 100];
        regs.rax = libc::SYS_write as u64;
        regs
    }

    fn departing(left_arg: u32, done: u64) -> Departing {
        Departing {
            tid: 1,
            slot: 0,
            registers: [0; protocol::halt::REGISTERS],
            xstate_at: 0,
            called_at: 0,
            left_arg,
            left: [5, 6],
            done,
            elapsed: 1000,
            stopped_ns: 0,
        }
    }

    #[test]
    fn what_was_written_can_be_read_back() {
        let mut with = regs();
        let residue = Residue::of(&departing(3 | LEFT_IN_MEMORY, 0), 0x9040, &mut with, 7).unwrap();
        assert_eq!(with.rip, 0x9040);
        assert_eq!(with.rdx, 0x9040 + SIZE - 16);
        let bytes = residue.bytes();
        assert_eq!(bytes.len() as u64, SIZE);
        assert_eq!(Residue::read(0x9040, &bytes).unwrap(), residue);
        assert!(Residue::of(&departing(0, 0), 0x9040, &mut with, 7).is_none());
    }

    #[test]
    fn who_is_in_the_call_is_in_the_programs() {
        let mut with = regs();
        let residue = Residue::of(&departing(0, 40), 0x9040, &mut with, 7).unwrap();
        assert_eq!((with.rsi, with.rdx), (0x7000 + 40, 60));
        // Not begun.
        let mut before = with;
        assert_eq!(residue.leave(&mut before, 17), Some((1010, 40)));
        assert_eq!((before.rip, before.rsi, before.rdx), (0x4002, 0x7000, 100));
        assert!(crate::running::is_broken_off(&before));
        // Taken out of it.
        let mut inside = with;
        inside.rip += CALL_LEN;
        inside.orig_rax = inside.rax;
        inside.rax = -514i64 as u64;
        assert_eq!(residue.leave(&mut inside, 17), Some((1010, 40)));
        assert_eq!(inside.rip, 0x4002);
    }

    #[test]
    fn who_is_behind_it_has_its_result() {
        let mut with = regs();
        let residue = Residue::of(&departing(0, 40), 0x9040, &mut with, 7).unwrap();
        for (at, result, sum) in [
            (CALL_LEN, 60, 100),
            (CALL_LEN, -32, 40),
            (ADD_AT, 60, 100),
            (JOIN_AT, 40, 40),
            (DONE_AT, 100, 100),
        ] {
            let mut behind = with;
            behind.rip = 0x9040 + at;
            behind.orig_rax = u64::MAX;
            behind.rax = i64::from(result) as u64;
            assert_eq!(residue.leave(&mut behind, 17), None);
            assert_eq!((behind.rip, behind.rax), (0x4002, sum), "{at}");
            assert_eq!((behind.rsi, behind.rdx), (0x7000, 100));
        }
    }
}
