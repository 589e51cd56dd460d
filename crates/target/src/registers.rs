//! The registers of a thread, by name. Everybody who shows them has an order of
//! their own: conversions to those are here, each by its name.

use inspect::target::Registers as DwarfRegisters;
use protocol::id::Addr;

/// The registers of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub eflags: u64,
    pub orig_rax: u64,
    pub cs: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
    /// The lower halves of the vector registers.
    pub xmm: [[u64; 2]; 16],
}

impl Registers {
    /// From the order of the kernel's `user_regs_struct`.
    #[must_use]
    #[rustfmt::skip]
    pub fn from_user_regs(regs: [u64; 27], xmm: [[u64; 2]; 16]) -> Registers {
        let [
            r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip,
            cs, eflags, rsp, ss, fs_base, gs_base, ds, es, fs, gs,
        ] = regs;
        Registers {
            rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, rip,
            eflags, orig_rax, cs, ss, fs_base, gs_base, ds, es, fs, gs, xmm,
        }
    }

    /// In the order of the kernel's `user_regs_struct`.
    #[must_use]
    #[rustfmt::skip]
    pub fn user_regs(&self) -> [u64; 27] {
        let r = self;
        [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx,
            r.rdx, r.rsi, r.rdi, r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base,
            r.gs_base, r.ds, r.es, r.fs, r.gs,
        ]
    }

    /// The sixteen general ones in the order in which gdb numbers them; `rip`
    /// is number 16 there and follows.
    #[must_use]
    #[rustfmt::skip]
    pub fn gdb(&self) -> [u64; 17] {
        let r = self;
        [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15, r.rip,
        ]
    }

    /// The instruction that comes next.
    #[must_use]
    pub fn pc(&self) -> Addr {
        Addr(self.rip)
    }

    /// The stack pointer.
    #[must_use]
    pub fn sp(&self) -> Addr {
        Addr(self.rsp)
    }

    /// One that can be set, by its name.
    #[must_use]
    pub fn by_name(&mut self, name: &str) -> Option<&mut u64> {
        let r = self;
        Some(match name {
            "rax" => &mut r.rax,
            "rbx" => &mut r.rbx,
            "rcx" => &mut r.rcx,
            "rdx" => &mut r.rdx,
            "rsi" => &mut r.rsi,
            "rdi" => &mut r.rdi,
            "rbp" => &mut r.rbp,
            "rsp" | "sp" => &mut r.rsp,
            "r8" => &mut r.r8,
            "r9" => &mut r.r9,
            "r10" => &mut r.r10,
            "r11" => &mut r.r11,
            "r12" => &mut r.r12,
            "r13" => &mut r.r13,
            "r14" => &mut r.r14,
            "r15" => &mut r.r15,
            "rip" | "pc" => &mut r.rip,
            "eflags" => &mut r.eflags,
            _ => return None,
        })
    }

    /// One that fits into a word, by the number that gdb has for it.
    #[must_use]
    pub fn by_gdb_number(&self, number: u16) -> Option<u64> {
        match number {
            0..=16 => self.gdb().get(usize::from(number)).copied(),
            17 => Some(self.eflags & 0xffff_ffff),
            18 => Some(self.cs & 0xffff),
            19 => Some(self.ss & 0xffff),
            // Linux keeps 0 in the other segments of 64-bit programs.
            20..=23 => Some(0),
            40..=55 => self.xmm.get(usize::from(number - 40))?.first().copied(),
            57 => Some(self.orig_rax),
            58 => Some(self.fs_base),
            59 => Some(self.gs_base),
            _ => None,
        }
    }

    /// In the order of DWARF's numbers, with all that goes with them.
    #[must_use]
    pub fn dwarf(&self) -> DwarfRegisters {
        const XMM: usize = 160;
        let r = self;
        let mut image = Box::new([0u8; 512]);
        let words = r.xmm.iter().flatten().flat_map(|word| word.to_le_bytes());
        for (byte, value) in image.iter_mut().skip(XMM).zip(words) {
            *byte = value;
        }
        DwarfRegisters {
            general: [
                r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
                r.r12, r.r13, r.r14, r.r15,
            ],
            rip: r.rip,
            eflags: r.eflags,
            segments: [r.cs as u16, r.ss as u16, 0, 0, 0, 0],
            fs_base: r.fs_base,
            gs_base: r.gs_base,
            orig_rax: r.orig_rax,
            fxsave: Some(image),
            ymm_high: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered() -> Registers {
        let mut regs = [0; 27];
        for (number, reg) in (1..).zip(&mut regs) {
            *reg = number;
        }
        Registers::from_user_regs(regs, [[7, 8]; 16])
    }

    #[test]
    fn orders_have_the_same_registers() {
        let registers = numbered();
        assert_eq!(
            Registers::from_user_regs(registers.user_regs(), registers.xmm),
            registers
        );
        let (gdb, dwarf) = (registers.gdb(), registers.dwarf());
        let mut general = dwarf.general;
        // rdx, rcx and rbx are in another order.
        general.swap(1, 3);
        assert_eq!(gdb.get(..16), Some(&general[..]));
        assert_eq!(gdb.last(), Some(&dwarf.rip));
        assert_eq!((dwarf.sp(), dwarf.pc()), (registers.sp(), registers.pc()));
        let mut xmm = [0; 16];
        let words = [7u64, 8].into_iter().flat_map(u64::to_le_bytes);
        for (byte, value) in xmm.iter_mut().zip(words) {
            *byte = value;
        }
        assert_eq!(dwarf.xmm(15), Some(xmm));
    }
}
