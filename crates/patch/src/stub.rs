//! The bytes: the stub that a patched site leads to, and the jump there.
//!
//! A stub, from its first byte to its last:
//!
//! ```text
//! entry:  the instructions from before the syscall
//! call:   lea  rcx, [rip + resume]     the kernel changes rcx at a syscall, so may we
//!         jmp  [rip + slot]            to the monitor, with no flag or stack touched
//!         .quad site                   for the monitor, at rcx - 8
//! resume: the instructions from after the syscall
//!         jmp  back
//! slot:   .quad monitor_entry
//! ```
//!
//! Of an instruction that keeps rcx, that is put aside first: `mov gs:[...], rcx`.

use crate::decode::decode;
use crate::plan::{ORIGINAL_MAX, Plan};

/// The length of the jump that replaces the program's instructions: `e9` and a displacement.
pub const JUMP_LEN: usize = 5;

/// How many bytes of a stub are not moved from the program.
const OWN_LEN: usize = 34 + KEEP_LEN;

/// `mov gs:[disp32], rcx`.
pub(crate) const KEEP_RCX: [u8; 5] = [0x65, 0x48, 0x89, 0x0c, 0x25];
const KEEP_LEN: usize = KEEP_RCX.len() + 4;

/// Every stub fits into this many bytes.
pub const STUB_MAX: usize = ORIGINAL_MAX.saturating_add(OWN_LEN);

/// Where the parts of a written stub are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// How many bytes were written.
    pub len: usize,
    /// The stub's address: where the jump leads.
    pub entry: u64,
    /// Where the registers are as they were at the `syscall` instruction.
    pub call: u64,
    /// Where to go on after the call, as if just behind the `syscall` instruction.
    pub resume: u64,
    /// Where the program's own code goes on.
    pub back: u64,
}

impl Stub {
    /// Where in the stub a thread goes on that stood at `pc` in the instructions that moved
    /// there, or had been about to return to there from the kernel. `None` if it can stay.
    #[must_use]
    pub fn from_program(&self, plan: &Plan, pc: u64) -> Option<u64> {
        let (before, after) = (plan.before as u64, plan.after as u64);
        let behind = plan.site.wrapping_add(plan.site_len as u64);
        within(pc, plan.patch_start, before.wrapping_add(1))
            .map(|into| self.entry.wrapping_add(into))
            .or_else(|| within(pc, behind, after).map(|into| self.resume.wrapping_add(into)))
    }

    /// Where in the program's own code a thread would be that is at `pc` in the stub.
    #[must_use]
    pub fn to_program(&self, plan: &Plan, pc: u64) -> Option<u64> {
        let (before, after) = (plan.before as u64, plan.after as u64);
        let to_resume = self.resume.wrapping_sub(self.call);
        within(pc, self.entry, before)
            .map(|into| plan.patch_start.wrapping_add(into))
            .or_else(|| within(pc, self.call, to_resume).map(|_| plan.site))
            .or_else(|| {
                within(pc, self.resume, after.wrapping_add(1)).map(|into| {
                    let behind = plan.site.wrapping_add(plan.site_len as u64);
                    behind.wrapping_add(into)
                })
            })
    }
}

/// How far `pc` is into the `len` bytes at `start`.
fn within(pc: u64, start: u64, len: u64) -> Option<u64> {
    Some(pc.wrapping_sub(start)).filter(|&into| into < len)
}

/// Writes to `out` the stub that is going to be at `stub_addr`.
///
/// `None` if `out` is too short, or the stub too far from the program's code or from data that
/// a moved instruction addresses relative to itself.
#[must_use]
pub fn write_stub(plan: &Plan, stub_addr: u64, monitor_entry: u64, out: &mut [u8]) -> Option<Stub> {
    write(plan, stub_addr, monitor_entry, None, out)
}

/// Writes to `out` the stub, as [`write_stub`] does, of an instruction that leaves rcx alone:
/// it is kept at `rcx_at`, counted from gs.
#[must_use]
pub fn write_trap_stub(
    plan: &Plan,
    stub_addr: u64,
    monitor_entry: u64,
    rcx_at: u32,
    out: &mut [u8],
) -> Option<Stub> {
    write(plan, stub_addr, monitor_entry, Some(rcx_at), out)
}

fn write(
    plan: &Plan,
    stub_addr: u64,
    monitor_entry: u64,
    rcx_at: Option<u32>,
    out: &mut [u8],
) -> Option<Stub> {
    let original = plan.original.get(..plan.original_len)?;
    let before = original.get(..plan.before)?;
    let after = original.get(plan.original_len.checked_sub(plan.after)?..)?;
    let back = plan.back();
    let behind = back.wrapping_sub(plan.after as u64);

    let mut out = Writer {
        out,
        len: 0,
        base: stub_addr,
    };
    out.moved(before, plan.patch_start)?;
    let call = out.here();
    if let Some(rcx_at) = rcx_at {
        out.put(&KEEP_RCX)?;
        out.put(&rcx_at.to_le_bytes())?;
    }
    out.put(&[0x48, 0x8d, 0x0d])?;
    out.put(&14_u32.to_le_bytes())?; // over the jump and the site
    out.put(&[0xff, 0x25])?;
    // over the site, the moved instructions and the jump back
    let to_slot = plan.after.checked_add(8)?.checked_add(JUMP_LEN)?;
    out.put(&u32::try_from(to_slot).ok()?.to_le_bytes())?;
    out.put(&plan.site.to_le_bytes())?;
    let resume = out.here();
    out.moved(after, behind)?;
    let jump = jump(out.here(), back)?;
    out.put(&jump)?;
    out.put(&monitor_entry.to_le_bytes())?;
    Some(Stub {
        len: out.len,
        entry: stub_addr,
        call,
        resume,
        back,
    })
}

pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut [u8],
    pub(crate) len: usize,
    pub(crate) base: u64,
}

impl Writer<'_> {
    pub(crate) fn here(&self) -> u64 {
        self.base.wrapping_add(self.len as u64)
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        let room = self.out.get_mut(self.len..end)?;
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.len = end;
        Some(())
    }

    /// The four bytes of an instruction's end that lead from there to `to`.
    pub(crate) fn displacement(&mut self, to: u64) -> Option<()> {
        let next = self.here().wrapping_add(4);
        let disp = i32::try_from(to.wrapping_sub(next).cast_signed()).ok()?;
        self.put(&disp.to_le_bytes())
    }

    /// `push [rip + ...]`: pushes the word at `address`.
    pub(crate) fn push_at(&mut self, address: u64) -> Option<()> {
        self.put(&[0xff, 0x35])?;
        self.displacement(address)
    }

    /// Writes instructions that were at address `from`.
    pub(crate) fn moved(&mut self, mut bytes: &[u8], from: u64) -> Option<()> {
        // Lengths do not change, so all move by the same distance.
        let distance = from.wrapping_sub(self.here()).cast_signed();
        while !bytes.is_empty() {
            let inst = decode(bytes)?;
            let (this, rest) = bytes.split_at_checked(inst.len)?;
            match inst.rip_disp {
                None => self.put(this)?,
                Some(at) => {
                    let (head, tail) = this.split_at_checked(at)?;
                    let (disp, tail) = tail.split_first_chunk::<4>()?;
                    let disp = i64::from(i32::from_le_bytes(*disp)).checked_add(distance)?;
                    self.put(head)?;
                    self.put(&i32::try_from(disp).ok()?.to_le_bytes())?;
                    self.put(tail)?;
                }
            }
            bytes = rest;
        }
        Some(())
    }
}

/// The bytes that replace the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    bytes: [u8; ORIGINAL_MAX],
    len: usize,
}

impl Jump {
    /// The new bytes from [`Plan::patch_start`] on: the jump, then `int3` up to the end of the
    /// last instruction that is overwritten. Only the first [`JUMP_LEN`] are ever reached.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Makes the bytes that lead from the program's code to the stub at `stub_addr`. `None` if it
/// is more than 2 GiB away.
#[must_use]
pub fn jump_bytes(plan: &Plan, stub_addr: u64) -> Option<Jump> {
    let mut bytes = [0xcc; ORIGINAL_MAX];
    *bytes.first_chunk_mut()? = jump(plan.patch_start, stub_addr)?;
    (JUMP_LEN..=ORIGINAL_MAX)
        .contains(&plan.patch_len)
        .then_some(Jump {
            bytes,
            len: plan.patch_len,
        })
}

/// `jmp to`, at address `at`.
pub(crate) fn jump(at: u64, to: u64) -> Option<[u8; JUMP_LEN]> {
    let next = at.wrapping_add(JUMP_LEN as u64);
    let disp = i32::try_from(to.wrapping_sub(next).cast_signed()).ok()?;
    let [a, b, c, d] = disp.to_le_bytes();
    Some([0xe9, a, b, c, d])
}
