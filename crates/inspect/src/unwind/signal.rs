//! Signal frames without rules: the kernel's own layout.

use protocol::id::Addr;

use crate::target::{Process, read_u64};

use super::step::FrameRegisters;

/// `mov $15,%rax; syscall`: how every C library returns from a handler.
const RESTORE_WIDE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// The instructions that end a signal handler, in the form with
/// `mov $15,%eax`.
const RESTORE: [u8; 7] = [0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Whether `pc` is in code that ends a signal handler.
pub fn is_trampoline(process: &dyn Process, pc: Addr) -> bool {
    for code in [&RESTORE_WIDE[..], &RESTORE[..]] {
        let second = code.len() as u64 - 2;
        for into in [0, second] {
            let mut bytes = [0u8; 9];
            let Some(bytes) = bytes.get_mut(..code.len()) else {
                continue;
            };
            if process.read(pc.minus(into), bytes) == code.len() && bytes == code {
                return true;
            }
        }
    }
    false
}

/// Offsets in `struct ucontext` of the registers in DWARF's order.
const SAVED: [u64; 17] = [
    144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168,
];

/// The registers that the handler interrupted. The stack pointer is at the
/// `ucontext` when the handler has returned.
pub fn interrupted(
    process: &dyn Process,
    rsp: Addr,
    base: &FrameRegisters,
) -> Option<FrameRegisters> {
    let mut registers = base.clone();
    for (number, offset) in SAVED.iter().enumerate() {
        let place = rsp.plus(*offset);
        let value = read_u64(process, place).ok()?;
        registers.set_saved(number as u16, value, place);
    }
    Some(registers)
}
