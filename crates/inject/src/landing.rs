//! The way of a fresh image into the monitor in one step.
//!
//! The monitor is mapped by a call that the process itself has to make. To make it by
//! ptrace is to let the process run and to wait for it once more, and on a loaded
//! machine each such wait takes milliseconds. So a few instructions are put where the
//! process has room that nobody uses, behind the end of the kernel's vdso on its last page: they
//! make the call and go on in the monitor. If the call fails, they say so in the arena and the
//! program begins as if nobody had been there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::image::kernel_vdso;

const PAGE: usize = 4096;

/// Expects, besides the arguments of `mmap`: rbx = where it must be, rbp = the monitor's entry,
/// r12 and r13 = its arguments, r13 being the arena's descriptor, r14 = where the
/// auxiliary vector has the vdso (or 0), r15 = where in the arena an error goes.
const CODE: [u8; 117] = [
    0xb8, 9, 0, 0, 0, //                   mov eax, mmap
    0x0f, 0x05, //                         syscall
    0x48, 0x39, 0xd8, //                   cmp rax, rbx
    0x75, 0x08, //                         jne failed
    0x4c, 0x89, 0xe7, //                   mov rdi, r12
    0x4c, 0x89, 0xee, //                   mov rsi, r13
    0xff, 0xe5, //                         jmp rbp
    0x48, 0x89, 0x44, 0x24, 0xf8, // failed: mov [rsp-8], rax
    0x4c, 0x89, 0xef, //                   mov rdi, r13
    0x48, 0x8d, 0x74, 0x24, 0xf8, //       lea rsi, [rsp-8]
    0xba, 8, 0, 0, 0, //                   mov edx, 8
    0x4d, 0x89, 0xfa, //                   mov r10, r15
    0xb8, 18, 0, 0, 0, //                  mov eax, pwrite64
    0x0f, 0x05, //                         syscall
    0x4c, 0x89, 0xef, //                   mov rdi, r13
    0xb8, 3, 0, 0, 0, //                   mov eax, close
    0x0f, 0x05, //                         syscall
    0x4d, 0x85, 0xf6, //                   test r14, r14
    0x74, 0x0a, //                         jz begin
    0x48, 0x8b, 0x05, 47, 0, 0, 0, //      mov rax, [vdso]
    0x49, 0x89, 0x06, //                   mov [r14], rax
    0x31, 0xc0, 0x31, 0xdb, 0x31, 0xc9, // begin: registers as exec leaves them: zero
    0x31, 0xd2, 0x31, 0xf6, 0x31, 0xff, //
    0x31, 0xed, 0x45, 0x31, 0xc0, //
    0x45, 0x31, 0xc9, 0x45, 0x31, 0xd2, //
    0x45, 0x31, 0xdb, 0x45, 0x31, 0xe4, //
    0x45, 0x31, 0xed, 0x45, 0x31, 0xf6, //
    0x45, 0x31, 0xff, //
    0xff, 0x25, 8, 0, 0,
    0, //             jmp [entry]
       // Then the words `vdso` and `entry`.
];

/// Where in the kernel's vdso the instructions go, the same in every process. None: there
/// is no vdso, or no room.
pub(crate) fn place() -> Option<u64> {
    static PLACE: OnceLock<Option<u64>> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let vdso = kernel_vdso()?.data();
        let at = vdso.len().next_multiple_of(16);
        let room = at.next_multiple_of(PAGE).checked_sub(at)?;
        let mut there = vec![1; code(0, 0).len()];
        // Nothing may be there, whatever kernel this is.
        let memory = File::open("/proc/self/mem").ok()?;
        let read = memory.read_exact_at(&mut there, vdso.as_ptr() as u64 + at as u64);
        let is_free = read.is_ok() && there.iter().all(|byte| *byte == 0);
        (is_free && there.len() <= room).then_some(at as u64)
    })
}

/// The instructions, for a program that begins at `entry` and has the kernel's vdso at
/// `vdso`.
pub(crate) fn code(vdso: u64, entry: u64) -> Vec<u8> {
    let mut code = CODE.to_vec();
    code.extend(vdso.to_le_bytes());
    code.extend(entry.to_le_bytes());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where its jumps lead, and which words it reads, is written by hand.
    #[test]
    fn it_is_what_a_disassembler_reads() {
        use iced_x86::{Decoder, DecoderOptions, Mnemonic};
        let code = code(0, 0);
        let mut decoder = Decoder::with_ip(64, &code[..CODE.len()], 0, DecoderOptions::NONE);
        let all: Vec<_> = decoder.iter().collect();
        let at = |mnemonic: Mnemonic| all.iter().filter(move |i| i.mnemonic() == mnemonic);
        assert_eq!(at(Mnemonic::INVALID).count(), 0);
        let failed = at(Mnemonic::Jne).next().map(|i| i.near_branch64());
        let behind = at(Mnemonic::Jmp).next().map(iced_x86::Instruction::next_ip);
        assert_eq!(failed, behind);
        let begins = at(Mnemonic::Je).next().map(|i| i.near_branch64());
        assert_eq!(begins, at(Mnemonic::Xor).next().map(|i| i.ip()));
        assert_eq!(at(Mnemonic::Xor).count(), 15, "all but the stack pointer");
        let words: Vec<u64> = all
            .iter()
            .filter(|i| i.is_ip_rel_memory_operand())
            .map(|i| i.ip_rel_memory_address())
            .collect();
        let end = CODE.len() as u64;
        assert_eq!(words, [end, end + 8]);
    }
}
