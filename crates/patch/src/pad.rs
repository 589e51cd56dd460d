//! The pad of a breakpoint: a jump leads from the breakpoint's place to code beside the
//! program's, where it is judged whether to stop, and back.
//!
//! A pad, from its first byte to its last:
//!
//! ```text
//! entry:  mov  gs:[...], rcx           put aside
//!         lea  rcx, [rip + resume]
//!         jmp  [rip + slot]            to the monitor, with no flag or stack touched
//!         .quad head                   for the monitor, at rcx - 8: what is to be judged
//! resume: the instructions that the jump has taken the place of
//!         jmp  back
//! hit:    int3                         the monitor leads here who is to stop
//! slot:   .quad monitor_entry
//!         .quad ...                    addresses that moved calls return to
//! head:
//! ```
//!
//! A breakpoint may be anywhere, so unlike at a `syscall` it is not enough to look for jumps
//! that lead into the bytes of ours: one through a table is not seen. So wherever an
//! instruction of the program began inside of the jump, the jump has a byte that traps.
//! Which bytes the jump has depends on where the pad is: that is how its place is chosen
//! ([`PadPlan::entries`]). Who arrives there all the same is led to the instruction's copy.

use crate::decode::{INST_MAX, Inst, decode};
use crate::jumps::find_jump_into;
use crate::plan::{Code, ORIGINAL_MAX, Refusal};
use crate::stub::{JUMP_LEN, KEEP_RCX, Writer, jump};

/// How many instructions can begin within a jump.
pub const PAD_PIECES: usize = JUMP_LEN;

/// Every pad fits into this many bytes: what is its own, and of each instruction at most a
/// call's push, jump and return address besides the longest operands.
pub const PAD_MAX: usize = 64_usize.saturating_add(PAD_PIECES.saturating_mul(32));

/// `int3`, which is one byte and traps wherever it is.
const INT3: u8 = 0xcc;

/// Bytes that begin no instruction in 64-bit mode, the highest first: for the last byte of a
/// displacement, where `int3` may lead to a place that does not exist.
const INVALID: [u8; 11] = [
    0x3f, 0x37, 0x2f, 0x27, 0x1f, 0x1e, 0x17, 0x16, 0x0e, 0x07, 0x06,
];

/// What a breakpoint's jump takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PadPlan {
    /// Where the breakpoint is, and the jump.
    pub start: u64,
    /// The program's bytes there, whole instructions, then zeros.
    original: [u8; ORIGINAL_MAX],
    len: usize,
    /// Where in it instructions begin.
    begins: [usize; PAD_PIECES],
    count: usize,
    /// The last of them never runs into what follows.
    is_end: bool,
}

impl PadPlan {
    /// Plans the jump at `start`, where an instruction begins.
    ///
    /// # Errors
    ///
    /// If an instruction that the jump would take the place of does not do the same
    /// elsewhere, or something is seen that jumps into the middle.
    pub fn new(code: Code<'_>, start: u64) -> Result<PadPlan, Refusal> {
        let offset = start
            .checked_sub(code.base)
            .and_then(|offset| usize::try_from(offset).ok())
            .ok_or(Refusal::WindowTooSmall)?;
        let mut plan = PadPlan {
            start,
            original: [0; ORIGINAL_MAX],
            len: 0,
            begins: [0; PAD_PIECES],
            count: 0,
            is_end: false,
        };
        while plan.len < JUMP_LEN {
            let at = offset.saturating_add(plan.len);
            let bytes = code.bytes.get(at..).unwrap_or(&[]);
            let address = code.address(at);
            let inst = decode(bytes).ok_or(match bytes.len() < INST_MAX {
                true => Refusal::WindowTooSmall,
                false => Refusal::UnknownNeighbour(address),
            })?;
            let bytes = bytes.get(..inst.len).unwrap_or(&[]);
            let kind = Kind::of(bytes, &inst).ok_or(Refusal::FixedNeighbour(address))?;
            // What follows the end of a function is somebody else's, unless it fills a gap;
            // and only there nobody comes to an `int3` that does.
            if plan.is_end != matches!(kind, Kind::Filler) && (plan.is_end || bytes == [INT3]) {
                return Err(Refusal::FixedNeighbour(address));
            }
            plan.add(bytes).ok_or(Refusal::WindowTooSmall)?;
            plan.is_end |= matches!(kind, Kind::Jump(_) | Kind::Ends);
        }
        // It would be led to the copy, but by a trap. (Nothing jumps to the middle of one.)
        let known = offset..offset.saturating_add(plan.len);
        for begin in plan.begins.iter().take(plan.count).skip(1) {
            let at = offset.saturating_add(*begin);
            let target = at..at.saturating_add(1);
            if let Some(from) = find_jump_into(code, target, known.clone(), usize::MAX) {
                return Err(Refusal::JumpedInto(code.address(from)));
            }
        }
        Ok(plan)
    }

    fn add(&mut self, bytes: &[u8]) -> Option<()> {
        *self.begins.get_mut(self.count)? = self.len;
        self.count = self.count.checked_add(1)?;
        let end = self.len.checked_add(bytes.len())?;
        let room = self.original.get_mut(self.len..end)?;
        room.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// The program's bytes that the jump takes the place of.
    #[must_use]
    pub fn overwritten(&self) -> [u8; JUMP_LEN] {
        self.original.first_chunk().copied().unwrap_or_default()
    }

    /// Where instructions of the program begin in the bytes of the jump, behind its first.
    pub fn inner(&self) -> impl Iterator<Item = u64> + '_ {
        let begins = self.begins.iter().take(self.count).skip(1);
        begins.map(|begin| self.start.wrapping_add(*begin as u64))
    }

    fn has_inner(&self, offset: usize) -> bool {
        self.begins
            .iter()
            .take(self.count)
            .any(|begin| *begin == offset)
    }

    /// Where the pad can be, below the program's code first, because heaps grow upwards from it.
    pub fn entries(&self) -> impl Iterator<Item = u64> + '_ {
        // Of the displacement, whose bytes follow the first of the jump.
        let low = |offset: usize, free: u8| match self.has_inner(offset) {
            true => INT3,
            false => free,
        };
        let (zeroth, first) = (low(1, 0), low(2, 0));
        let is_last_inner = self.has_inner(4);
        let below = (0x80..=0xff_u8)
            .rev()
            .filter(move |byte| !is_last_inner || *byte == INT3);
        let above = (0..=0x7f_u8).filter(move |_| !is_last_inner);
        let invalid = INVALID.into_iter().filter(move |_| is_last_inner);
        let last = below.chain(above).chain(invalid);
        last.flat_map(move |last| {
            let second = [0x80, 0x00, 0xc0, 0x40].into_iter();
            let second = second.map(move |free| low(3, free));
            second.map(move |second| {
                let displacement = i32::from_le_bytes([zeroth, first, second, last]);
                let next = self.start.wrapping_add(JUMP_LEN as u64);
                next.wrapping_add(i64::from(displacement).cast_unsigned())
            })
        })
    }

    /// Writes to `out` the pad that is going to be at `entry`, whose head is right behind it.
    /// rcx is kept at `rcx_at`, counted from gs. `None` if that is no place for it.
    #[must_use]
    pub fn write(&self, entry: u64, monitor: u64, rcx_at: u32, out: &mut [u8]) -> Option<Pad> {
        let jump_bytes = jump(self.start, entry)?;
        let traps = |begin: &usize| {
            let byte = jump_bytes.get(*begin);
            byte.is_none_or(|byte| *byte == INT3 || INVALID.contains(byte))
        };
        if !self.begins.iter().take(self.count).skip(1).all(traps) {
            return None;
        }
        // Where the code ends is where the addresses are that it loads: known when it has
        // been written once.
        let once = self.write_with(entry, monitor, rcx_at, entry, &mut [0; PAD_MAX])?;
        let slots = once.hit.checked_add(1)?;
        self.write_with(entry, monitor, rcx_at, slots, out)
    }

    fn write_with(
        &self,
        entry: u64,
        monitor: u64,
        rcx_at: u32,
        slots: u64,
        out: &mut [u8],
    ) -> Option<Pad> {
        let mut out = Writer {
            out,
            len: 0,
            base: entry,
        };
        let calls = self.returns().count() as u64;
        let head = slots.checked_add(calls.checked_add(1)?.checked_mul(8)?)?;
        out.put(&KEEP_RCX)?;
        out.put(&rcx_at.to_le_bytes())?;
        out.put(&[0x48, 0x8d, 0x0d])?;
        out.put(&14_u32.to_le_bytes())?; // over the jump and the head
        out.put(&[0xff, 0x25])?;
        out.displacement(slots)?;
        out.put(&head.to_le_bytes())?;
        let resume = out.here();
        let mut pad = Pad {
            entry,
            resume,
            hit: 0,
            head,
            len: 0,
            jump: jump(self.start, entry)?,
            pieces: [(0, 0); PAD_PIECES],
            count: self.count,
        };
        let mut slot = slots;
        for (begin, piece) in self.pieces().zip(&mut pad.pieces) {
            let (bytes, from) = begin?;
            *piece = (out.here(), from);
            let behind = from.checked_add(bytes.len() as u64)?;
            let inst = decode(bytes)?;
            match Kind::of(bytes, &inst)? {
                Kind::Plain | Kind::Ends | Kind::Filler => out.moved(bytes, from)?,
                Kind::Jump(to) => out.put(&jump(out.here(), behind.wrapping_add_signed(to))?)?,
                Kind::Branch(condition, to) => {
                    out.put(&[0x0f, condition])?;
                    out.displacement(behind.wrapping_add_signed(to))?;
                }
                Kind::Call(to) => {
                    slot = slot.checked_add(8)?;
                    out.push_at(slot)?;
                    out.put(&jump(out.here(), behind.wrapping_add_signed(to))?)?;
                }
                Kind::CallThrough => {
                    slot = slot.checked_add(8)?;
                    out.push_at(slot)?;
                    let mut as_jump = [0; INST_MAX];
                    let as_jump = as_jump.get_mut(..bytes.len())?;
                    as_jump.copy_from_slice(bytes);
                    // From `call` to `jmp`.
                    let modrm = as_jump.get_mut(inst.modrm?)?;
                    *modrm = *modrm & !0x38 | 4 << 3;
                    out.moved(as_jump, from)?;
                }
            }
        }
        if !self.is_end {
            let back = self.start.checked_add(self.len as u64)?;
            out.put(&jump(out.here(), back)?)?;
        }
        pad.hit = out.here();
        out.put(&[INT3])?;
        out.put(&monitor.to_le_bytes())?;
        for behind in self.returns() {
            out.put(&behind.to_le_bytes())?;
        }
        pad.len = out.len;
        Some(pad)
    }

    /// The program's instructions, and where each is.
    fn pieces(&self) -> impl Iterator<Item = Option<(&[u8], u64)>> {
        (0..self.count).map(|index| {
            let begin = *self.begins.get(index)?;
            let next = index.checked_add(1).filter(|next| *next < self.count);
            let end = next.map_or(Some(&self.len), |next| self.begins.get(next))?;
            let bytes = self.original.get(begin..*end)?;
            Some((bytes, self.start.checked_add(begin as u64)?))
        })
    }

    /// Where calls among them return to.
    fn returns(&self) -> impl Iterator<Item = u64> {
        self.pieces().flatten().filter_map(|(bytes, from)| {
            let kind = Kind::of(bytes, &decode(bytes)?)?;
            let is_call = matches!(kind, Kind::Call(_) | Kind::CallThrough);
            is_call.then(|| from.wrapping_add(bytes.len() as u64))
        })
    }
}

/// Where the parts of a written pad are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pad {
    /// Where the jump leads.
    pub entry: u64,
    /// Where who is not to stop goes on.
    pub resume: u64,
    /// Where who is to stop is led to: a trap.
    pub hit: u64,
    /// What is to be judged lies here, right behind the pad.
    pub head: u64,
    /// How many bytes were written.
    pub len: usize,
    /// What the program has instead of its own bytes.
    pub jump: [u8; JUMP_LEN],
    pieces: [(u64, u64); PAD_PIECES],
    count: usize,
}

impl Pad {
    fn pieces(&self) -> impl Iterator<Item = &(u64, u64)> {
        self.pieces.iter().take(self.count)
    }

    /// Where the copy is of the instruction that the program has at `pc`.
    #[must_use]
    pub fn from_program(&self, pc: u64) -> Option<u64> {
        let mut pieces = self.pieces();
        pieces.find(|(_, from)| *from == pc).map(|(copy, _)| *copy)
    }

    /// Which instruction of the program a thread at `pc` is about to execute, if it is at the
    /// beginning of a copy, or at where it would be told to stop.
    #[must_use]
    pub fn to_program(&self, pc: u64) -> Option<u64> {
        let mut pieces = self.pieces();
        match pc == self.hit {
            true => pieces.next().map(|(_, from)| *from),
            false => pieces.find(|(copy, _)| *copy == pc).map(|(_, from)| *from),
        }
    }
}

/// What has to be seen to when an instruction is run elsewhere.
enum Kind {
    /// Nothing but what it addresses relative to itself.
    Plain,
    /// It does nothing, and is there for what follows to be aligned.
    Filler,
    /// It never goes on behind itself, and does the same anywhere.
    Ends,
    /// A jump, so far from its end.
    Jump(i64),
    /// One that depends on flags, by its second opcode in the long form.
    Branch(u8, i64),
    /// A call, so far from its end.
    Call(i64),
    /// A call through a register or memory.
    CallThrough,
}

impl Kind {
    fn of(bytes: &[u8], inst: &Inst) -> Option<Kind> {
        let near = |at: usize| Some(i64::from(bytes.get(at)?.cast_signed()));
        let far = |at: usize| {
            let disp = bytes.get(at..)?.first_chunk::<4>()?;
            Some(i64::from(i32::from_le_bytes(*disp)))
        };
        Some(match bytes {
            // (There is code that skips a `lock`: an instruction begins behind it, too.)
            [0xf0, ..] => return None,
            [0x90] | [INT3] | [0x66, 0x90] => Kind::Filler,
            [0x0f, 0x1f, ..] | [0x66, 0x0f, 0x1f, ..] | [0x66, 0x2e, 0x0f, 0x1f, ..] => {
                Kind::Filler
            }
            // A mark for the processor, where jumps may lead.
            [0xf3, 0x0f, 0x1e, 0xfa] => Kind::Plain,
            [0xc3] | [0xf3, 0xc3] | [0xc2, _, _] => Kind::Ends,
            [0xe8, ..] if bytes.len() == 5 => Kind::Call(far(1)?),
            [0xe9, ..] if bytes.len() == 5 => Kind::Jump(far(1)?),
            [0xeb, _] => Kind::Jump(near(1)?),
            [short @ 0x70..=0x7f, _] => Kind::Branch(short.checked_add(0x10)?, near(1)?),
            [0x0f, long @ 0x80..=0x8f, ..] if bytes.len() == 6 => Kind::Branch(*long, far(2)?),
            _ if inst.movable => Kind::Plain,
            _ => {
                let modrm = inst.modrm?;
                let opcode = bytes.get(modrm.checked_sub(1)?)?;
                let modrm = *bytes.get(modrm)?;
                let (is_memory, through_stack) = (modrm < 0xc0, modrm & 7 == 4);
                match (opcode, modrm >> 3 & 7) {
                    // What it goes to would be looked for from another stack pointer.
                    (0xff, 2) if !(is_memory && through_stack) && modrm != 0xd4 => {
                        Kind::CallThrough
                    }
                    (0xff, 4) => Kind::Ends,
                    _ => return None,
                }
            }
        })
    }
}
