//! Instructions that are copied: as they are, or, where they address memory by where
//! they stand, with a register in its place.

use crate::cache::SPILL;
use crate::inst::Inst;
use crate::writer::Writer;

/// Copies an instruction that leads to the next.
pub(super) fn copy(w: &mut Writer<'_>, code: &[u8], inst: &Inst) {
    let Some(code) = code.get(..inst.len) else {
        return;
    };
    let Some(address) = inst.operand else {
        w.bytes(code);
        return;
    };
    let modrm = inst.disp.wrapping_sub(1);
    let byte = |i: usize| code.get(i).copied().unwrap_or(0);
    let after = code.get(inst.disp.wrapping_add(4)..).unwrap_or(&[]);
    let op = byte(inst.opcode);
    let second = byte(inst.opcode.wrapping_add(1));
    let vector = Vector::of(code, inst);
    let register = byte(modrm) >> 3 & 7 | vector.reg_high << 3;

    let plain = inst.segment == 0 && !inst.operand_size && !vector.is_vector;
    if plain && op == 0x8d {
        // lea
        if inst.rex & 8 != 0 {
            w.value(register, address);
        } else {
            w.bytes(&[0x40 | register >> 3, 0xb8 | register & 7]);
            w.u32(address as u32);
        }
        return;
    }
    let loads = matches!(
        (op, second),
        (0x8b | 0x63, _) | (0x0f, 0xb6 | 0xb7 | 0xbe | 0xbf)
    );
    if plain && loads && !matches!(register & 7, 4 | 5) {
        // A load of a whole register: it can hold the address, too.
        w.value(register, address);
        let high = register >> 3;
        w.bytes(&[0x40 | inst.rex & 0x0e | high]);
        w.bytes(code.get(inst.opcode..modrm).unwrap_or(&[]));
        w.bytes(&[(register & 7) << 3 | register & 7]);
        return;
    }
    // A register that the instruction does not use. None that addresses
    // memory relative to rip uses rsi or rdi unless it names it.
    const CANDIDATES: [u8; 3] = [6, 7, 3];
    let scratch = CANDIDATES
        .into_iter()
        .find(|r| *r != register && Some(*r) != vector.second)
        .unwrap_or(3);
    w.store(SPILL, scratch);
    w.value(scratch, address);
    for (i, byte) in code.iter().enumerate().take(modrm) {
        let byte = match vector.base {
            Some((at, clear, set)) if at == i => byte & !clear | set,
            _ => *byte,
        };
        w.bytes(&[byte]);
    }
    w.bytes(&[byte(modrm) & 0x38 | scratch]);
    w.bytes(after);
    w.load(scratch, SPILL);
}

/// What VEX and EVEX prefixes, or REX in their stead, say about registers.
struct Vector {
    is_vector: bool,
    /// The high bit of the register that ModRM names.
    reg_high: u8,
    /// The register that the prefix names.
    second: Option<u8>,
    /// The byte that has the high bit of a base register, and what to clear
    /// and what to set in it so that the register is one of the lower eight.
    base: Option<(usize, u8, u8)>,
}

impl Vector {
    fn of(code: &[u8], inst: &Inst) -> Vector {
        let byte = |i: usize| code.get(inst.opcode.wrapping_add(i)).copied().unwrap_or(0);
        let named = |byte: u8| Some(!byte >> 3 & 15);
        match byte(0) {
            0xc5 => Vector {
                is_vector: true,
                reg_high: !byte(1) >> 7,
                second: named(byte(1)),
                base: None,
            },
            0xc4 | 0x62 => Vector {
                is_vector: true,
                reg_high: !byte(1) >> 7,
                second: named(byte(2)),
                base: Some((inst.opcode.wrapping_add(1), 0, 0x20)),
            },
            _ => Vector {
                is_vector: false,
                reg_high: inst.rex >> 2 & 1,
                second: None,
                base: (inst.rex != 0).then_some((inst.opcode.wrapping_sub(1), 1, 0)),
            },
        }
    }
}
