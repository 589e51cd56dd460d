//! Which neighbours of a `syscall` instruction make room for the jump.

use core::fmt;

use crate::decode::{INST_MAX, Inst, decode, is_prefix};
use crate::jumps::find_jump_into;
use crate::stub::JUMP_LEN;

/// The `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SYSCALL_LEN: usize = SYSCALL.len();

/// The longest instruction that traps and can be patched.
pub const TRAP_MAX: usize = 4;

/// The most original bytes that a plan holds: the site and its neighbours are too short by at
/// least one byte before the last of them, which is as long as an instruction can be, is added.
pub const ORIGINAL_MAX: usize = JUMP_LEN.saturating_sub(1).saturating_add(INST_MAX);

/// `mov rax, 15; syscall`: how a signal handler returns. Unwinders know a signal frame by
/// these very bytes, so they have to stay.
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// How far before the site decoding starts to find where the instructions begin. Code
/// decoded from a wrong start falls into step after a few instructions. At most 128.
const RUN_UP: usize = 96;

/// How far away a jump to a `syscall` that stays in place is looked for. To miss one costs
/// time only.
const SAME_FUNCTION: usize = 2048;

/// How many neighbouring starts are tried: one of them begins an instruction.
const STARTS: usize = INST_MAX;

/// A view of the program's code around a site: `bytes[i]` is at address `base + i`.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Address of the first byte.
    pub base: u64,
    /// The bytes as the program has them now.
    pub bytes: &'a [u8],
}

impl Code<'_> {
    /// The address of the byte at `offset`.
    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.base.wrapping_add(offset as u64)
    }
}

/// How one site is to be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the jump goes.
    pub patch_start: u64,
    /// How many bytes are overwritten, 5 or more, whole instructions.
    pub patch_len: usize,
    /// Address of the `syscall` instruction, or of the one that traps.
    pub site: u64,
    /// How long it is.
    pub site_len: usize,
    /// How many bytes before the `syscall` run in the stub instead.
    pub before: usize,
    /// How many bytes after the `syscall` run in the stub instead.
    pub after: usize,
    /// The program's bytes from `patch_start` up to [`Plan::back`], then zeros.
    pub original: [u8; ORIGINAL_MAX],
    /// How many bytes of `original` count: `before + site_len + after`.
    pub original_len: usize,
}

impl Plan {
    /// Where the program's own code goes on after the stub.
    #[must_use]
    pub fn back(&self) -> u64 {
        self.patch_start.wrapping_add(self.original_len as u64)
    }

    /// Whether the `syscall` instruction stays as it is, because the instructions before it
    /// made enough room. A thread that arrives there without passing the jump still traps;
    /// the site must not be planned again for that.
    #[must_use]
    pub fn keeps_syscall(&self) -> bool {
        self.patch_len <= self.before
    }

    /// The bytes that the patch overwrites, to take it back.
    #[must_use]
    pub fn overwritten(&self) -> &[u8] {
        self.original.get(..self.patch_len).unwrap_or(&[])
    }
}

/// Why a site cannot be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no `syscall` instruction at that address.
    NotASyscall,
    /// The window does not hold the site, or ends within an instruction next to it.
    WindowTooSmall,
    /// A jump like ours already leads away right before the site.
    AlreadyPatched,
    /// It is the return from a signal handler, whose bytes unwinders look for.
    SignalReturn,
    /// The neighbour at this address jumps, traps or is jumped to, so it cannot be moved.
    FixedNeighbour(u64),
    /// The bytes at this address, next to the site, are no instruction that we know.
    UnknownNeighbour(u64),
    /// What may be a jump, at this address, leads into the bytes to be patched.
    JumpedInto(u64),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, address) = match self {
            Self::NotASyscall => ("there is no syscall instruction here", None),
            Self::WindowTooSmall => ("too little of the code around the syscall is known", None),
            Self::AlreadyPatched => ("the code before the syscall is patched already", None),
            Self::SignalReturn => ("unwinders look for the bytes of this signal return", None),
            Self::FixedNeighbour(at) => ("this neighbour cannot be moved", Some(at)),
            Self::UnknownNeighbour(at) => ("this neighbour is no known instruction", Some(at)),
            Self::JumpedInto(at) => ("this may jump into the patched bytes", Some(at)),
        };
        match address {
            Some(at) => write!(f, "{text}: {at:#x}"),
            None => f.write_str(text),
        }
    }
}

impl core::error::Error for Refusal {}

/// Plans how to patch the `syscall` instruction at address `site`.
///
/// `code` is what the process has there now, earlier patches included. The more of it on both
/// sides, the more jumps are seen that might lead into the patched bytes; 32 KiB each way is
/// reasonable.
///
/// # Errors
///
/// If there is no safe way, says what is wrong with the site, or else what forbids to move the
/// instructions after it; those before it could not be moved either.
pub fn plan(code: Code<'_>, site: u64) -> Result<Plan, Refusal> {
    let offset = site
        .checked_sub(code.base)
        .and_then(|offset| usize::try_from(offset).ok())
        .ok_or(Refusal::WindowTooSmall)?;
    let end = offset
        .checked_add(SYSCALL_LEN)
        .ok_or(Refusal::WindowTooSmall)?;
    let here = code.bytes.get(offset..end).ok_or(Refusal::WindowTooSmall)?;
    if here != SYSCALL {
        return Err(Refusal::NotASyscall);
    }
    let up_to_end = code.bytes.get(..end).unwrap_or(&[]);
    let up_to_site = code.bytes.get(..offset).unwrap_or(&[]);
    if up_to_end.ends_with(&SIGNAL_RETURN) {
        return Err(Refusal::SignalReturn);
    }
    if ends_in_jump(up_to_site) {
        return Err(Refusal::AlreadyPatched);
    }

    let site = Site { code, offset, end };
    match site.replace_one_before(true) {
        Some(plan) => Ok(plan),
        None => site.move_neighbours(),
    }
}

/// Plans how to patch an instruction of `len` bytes that traps, whatever it is.
///
/// # Errors
///
/// As for [`plan`].
pub fn plan_trap(code: Code<'_>, site: u64, len: usize) -> Result<Plan, Refusal> {
    let offset = site
        .checked_sub(code.base)
        .and_then(|offset| usize::try_from(offset).ok())
        .ok_or(Refusal::WindowTooSmall)?;
    let end = offset.checked_add(len).ok_or(Refusal::WindowTooSmall)?;
    if len > TRAP_MAX || end > code.bytes.len() {
        return Err(Refusal::WindowTooSmall);
    }
    if ends_in_jump(code.bytes.get(..offset).unwrap_or(&[])) {
        return Err(Refusal::AlreadyPatched);
    }
    Site { code, offset, end }.move_neighbours()
}

/// The plan for an instruction of `len` bytes that traps, if it is known which neighbours move:
/// `before` and `after` bytes. That nothing jumps among them was seen by who chose them; that
/// they are instructions which can be moved is looked at here.
#[must_use]
pub fn plan_chosen(
    code: Code<'_>,
    site: u64,
    len: usize,
    before: usize,
    after: usize,
) -> Option<Plan> {
    let offset = usize::try_from(site.checked_sub(code.base)?).ok()?;
    let end = offset.checked_add(len)?;
    let (start, last) = (offset.checked_sub(before)?, end.checked_add(after)?);
    let is_long_enough = last.checked_sub(start)? >= JUMP_LEN;
    // Where those before are enough nothing behind moves.
    let is_one_way = before < JUMP_LEN || after == 0;
    if len > TRAP_MAX || last > code.bytes.len() || !is_long_enough || !is_one_way {
        return None;
    }
    let site = Site { code, offset, end };
    (site.are_movable(start, offset) && site.are_movable(end, last))
        .then(|| site.make(start, last))
        .flatten()
}

/// Whether `bytes` end in a jump as [`crate::jump_bytes`] makes it. Were the `syscall` behind
/// it patched too, the way back from the first stub would lead into the second jump.
fn ends_in_jump(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for _ in 0..=ORIGINAL_MAX {
        let jump = rest.len().checked_sub(JUMP_LEN);
        if jump.and_then(|at| rest.get(at)) == Some(&0xe9) {
            return true;
        }
        match rest.split_last() {
            Some((&0xcc, shorter)) => rest = shorter,
            _ => return false,
        }
    }
    false
}

/// A `syscall` instruction in its window, from `offset` to `end`.
struct Site<'a> {
    code: Code<'a>,
    offset: usize,
    end: usize,
}

impl Site<'_> {
    /// How many bytes of neighbours the jump needs besides the site itself.
    fn needed(&self) -> usize {
        JUMP_LEN.saturating_sub(self.end.saturating_sub(self.offset))
    }

    fn move_neighbours(&self) -> Result<Plan, Refusal> {
        self.move_after().or_else(|refusal| {
            self.move_before()
                .or_else(|| self.replace_one_before(false))
                .ok_or(refusal)
        })
    }

    /// One long instruction before the `syscall` gives its place to the jump.
    ///
    /// Nothing can jump into the middle of it, save behind a prefix (there is code that skips
    /// a `lock`). A jump to the `syscall` works, but never takes the fast way; with
    /// `fast_only` that is not good enough.
    fn replace_one_before(&self, fast_only: bool) -> Option<Plan> {
        let start = self.movable_before(1, JUMP_LEN)?;
        let first = *self.code.bytes.get(start)?;
        let jumped_into = if is_prefix(first) {
            self.jumped_into(start, self.end)
        } else if fast_only {
            let syscall = self.offset..self.end;
            find_jump_into(self.code, syscall, start..self.end, SAME_FUNCTION)
        } else {
            None
        };
        match jumped_into {
            None => self.make(start, self.end),
            Some(_) => None,
        }
    }

    /// The `syscall` and as few instructions after it as will do.
    fn move_after(&self) -> Result<Plan, Refusal> {
        let mut end = self.end;
        while end.saturating_sub(self.end) < self.needed() {
            let inst = self.movable_at(end)?;
            end = end.saturating_add(inst.len);
        }
        match self.jumped_into(self.offset, end) {
            None => self.make(self.offset, end).ok_or(Refusal::WindowTooSmall),
            Some(from) => Err(Refusal::JumpedInto(self.code.address(from))),
        }
    }

    /// As few instructions before the `syscall` as will do.
    fn move_before(&self) -> Option<Plan> {
        let start = self.movable_before(self.needed(), self.needed())?;
        match self.jumped_into(start, self.end) {
            None => self.make(start, self.end),
            Some(_) => None,
        }
    }

    fn movable_at(&self, offset: usize) -> Result<Inst, Refusal> {
        let at = self.code.address(offset);
        let bytes = self.code.bytes.get(offset..).unwrap_or(&[]);
        match decode(bytes) {
            Some(inst) if inst.movable => Ok(inst),
            Some(_) => Err(Refusal::FixedNeighbour(at)),
            None if bytes.len() < INST_MAX => Err(Refusal::WindowTooSmall),
            None => Err(Refusal::UnknownNeighbour(at)),
        }
    }

    /// Whether there are whole instructions from `start` to `end` that can be moved.
    fn are_movable(&self, start: usize, end: usize) -> bool {
        let mut at = start;
        while at < end {
            match self.movable_at(at) {
                Ok(inst) => at = at.saturating_add(inst.len),
                Err(_) => return false,
            }
        }
        at == end
    }

    /// Where the shortest run of movable instructions begins that ends at the `syscall` and
    /// is at least `min_len` long, of at most `max_count` instructions.
    fn movable_before(&self, max_count: usize, min_len: usize) -> Option<usize> {
        let mut start = self.offset;
        for _ in 0..max_count {
            start = self.previous(start)?;
            self.movable_at(start).ok()?;
            if self.offset.saturating_sub(start) >= min_len {
                return Some(start);
            }
        }
        None
    }

    /// Where the instruction begins that ends at `offset`, itself the beginning of one.
    ///
    /// Code can be read forwards only. The site has been executed, so if the code before it
    /// is code, one of the starts is right and arrives here by the right steps. If all those
    /// that arrive take the same last step, then that is it; if not, there is no telling.
    fn previous(&self, offset: usize) -> Option<usize> {
        let first = self.offset.saturating_sub(RUN_UP);
        let mut found = None;
        // Bit i: an instruction at `first + i` has been followed already.
        let mut followed: u128 = 0;
        for start in first..first.saturating_add(STARTS).min(offset) {
            let mut at = start;
            while at < offset {
                let bit = 1_u128.wrapping_shl(at.saturating_sub(first) as u32);
                if followed & bit != 0 {
                    break;
                }
                followed |= bit;
                let Some(inst) = self.code.bytes.get(at..).and_then(decode) else {
                    break;
                };
                let next = at.saturating_add(inst.len);
                if next == offset && found.replace(at).is_some() {
                    return None;
                }
                at = next;
            }
        }
        found
    }

    /// What may jump to between `start` and `end`, where all instructions are known.
    fn jumped_into(&self, start: usize, end: usize) -> Option<usize> {
        let inside = start.saturating_add(1)..end;
        find_jump_into(self.code, inside, start..end, usize::MAX)
    }

    /// The plan to move the instructions from `start` to `end`.
    fn make(&self, start: usize, end: usize) -> Option<Plan> {
        let before = self.offset.saturating_sub(start);
        let original_len = end.saturating_sub(start);
        let mut original = [0; ORIGINAL_MAX];
        let room = original.get_mut(..original_len)?;
        for (to, from) in room.iter_mut().zip(self.code.bytes.get(start..end)?) {
            *to = *from;
        }
        Some(Plan {
            patch_start: self.code.address(start),
            patch_len: if before >= JUMP_LEN {
                before
            } else {
                original_len
            },
            site: self.code.address(self.offset),
            site_len: self.end.saturating_sub(self.offset),
            before,
            after: end.saturating_sub(self.end),
            original,
            original_len,
        })
    }
}
