//! Conditions of breakpoints, as the bytecode that gdb compiles them to.
//!
//! Evaluated here, a breakpoint that is passed a hundred thousand times does
//! not cost as many conversations with gdb. What cannot be evaluated is left
//! to gdb: the breakpoint is one to stop at then.

use crate::registers::Registers;

/// Steps that one evaluation may take: a condition has loops only if somebody
/// makes it so by hand.
const STEPS: usize = 10_000;
/// How many values may be kept.
const DEPTH: usize = 256;

/// Whether a breakpoint with these conditions is one to stop at.
pub fn holds(
    conditions: &[Vec<u8>],
    registers: &Registers,
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
) -> bool {
    conditions.is_empty()
        || conditions
            .iter()
            .any(|code| evaluate(code, registers, &mut read).is_none_or(|value| value != 0))
}

/// The value of an expression; `None` if it has none, or is not understood.
fn evaluate(
    code: &[u8],
    registers: &Registers,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<u64> {
    let mut stack: Vec<u64> = Vec::new();
    let mut at = 0usize;
    for _ in 0..STEPS {
        let operation = *code.get(at)?;
        at += 1;
        // Operands follow, the high byte first.
        let mut operand = |count: usize| {
            let bytes = code.get(at..at + count)?;
            at += count;
            Some(bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte)))
        };
        match operation {
            0x02..=0x0b | 0x0f..=0x11 | 0x13..=0x15 => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.push(binary(operation, a, b)?);
            }
            // not, bit_not
            0x0e => {
                let value = stack.pop()?;
                stack.push(u64::from(value == 0));
            }
            0x12 => {
                let value = stack.pop()?;
                stack.push(!value);
            }
            // ext, zero_ext: from so many bits
            0x16 | 0x2a => {
                let bits = operand(1)?;
                let value = stack.pop()?;
                let unused = 64u32.checked_sub(u32::try_from(bits).ok()?)?;
                stack.push(match (unused, operation) {
                    (64, _) => 0,
                    (unused, 0x16) => ((value << unused) as i64 >> unused) as u64,
                    (unused, _) => value << unused >> unused,
                });
            }
            // ref8 to ref64
            0x17..=0x1a => {
                let size = 1usize << (operation - 0x17);
                let mut bytes = [0; 8];
                if !read(stack.pop()?, bytes.get_mut(..size)?) {
                    return None;
                }
                stack.push(u64::from_le_bytes(bytes));
            }
            // if_goto, goto
            0x20 => {
                let to = operand(2)?;
                if stack.pop()? != 0 {
                    at = usize::try_from(to).ok()?;
                }
            }
            0x21 => at = usize::try_from(operand(2)?).ok()?,
            // const8 to const64
            0x22..=0x25 => {
                let value = operand(1 << (operation - 0x22))?;
                stack.push(value);
            }
            // reg
            0x26 => {
                let number = usize::try_from(operand(2)?).ok()?;
                let bytes = registers.value(number)?.ok()?;
                let mut word = [0; 8];
                for (to, byte) in word.iter_mut().zip(bytes) {
                    *to = byte;
                }
                stack.push(u64::from_le_bytes(word));
            }
            // end
            0x27 => return stack.pop(),
            // dup, pop, swap
            0x28 => stack.push(*stack.last()?),
            0x29 => {
                stack.pop()?;
            }
            0x2b => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.extend([b, a]);
            }
            // pick, rot
            0x32 => {
                let depth = usize::try_from(operand(1)?).ok()?;
                let place = stack.len().checked_sub(depth + 1)?;
                stack.push(*stack.get(place)?);
            }
            0x33 => {
                let (c, b, a) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.extend([c, a, b]);
            }
            _ => return None,
        }
        if stack.len() > DEPTH {
            return None;
        }
    }
    None
}

fn binary(operation: u8, a: u64, b: u64) -> Option<u64> {
    let (signed_a, signed_b) = (a as i64, b as i64);
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    Some(match operation {
        0x02 => a.wrapping_add(b),
        0x03 => a.wrapping_sub(b),
        0x04 => a.wrapping_mul(b),
        0x05 => signed_a.checked_div(signed_b)? as u64,
        0x06 => a.checked_div(b)?,
        0x07 => signed_a.checked_rem(signed_b)? as u64,
        0x08 => a.checked_rem(b)?,
        0x09 => a.checked_shl(shift).unwrap_or(0),
        0x0a => signed_a.checked_shr(shift).unwrap_or(signed_a >> 63) as u64,
        0x0b => a.checked_shr(shift).unwrap_or(0),
        0x0f => a & b,
        0x10 => a | b,
        0x11 => a ^ b,
        0x13 => u64::from(a == b),
        0x14 => u64::from(signed_a < signed_b),
        0x15 => u64::from(a < b),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn value(code: &[u8]) -> Option<u64> {
        let mut registers = Registers::default();
        registers.general[6] = 0x1000;
        evaluate(code, &registers, &mut |address, out| {
            for (i, byte) in out.iter_mut().enumerate() {
                *byte = (address as usize + i) as u8;
            }
            address >= 0x1000
        })
    }

    #[test]
    fn a_variable_on_the_stack_is_compared() {
        // *(int *)($rbp + 4) == 0x07060504
        let code = [
            0x26, 0, 6, 0x22, 4, 0x02, 0x19, 0x16, 32, 0x24, 7, 6, 5, 4, 0x13, 0x27,
        ];
        assert_eq!(value(&code), Some(1));
    }

    #[test]
    fn numbers_have_signs_and_widths() {
        // (signed char)0xff < 1
        assert_eq!(value(&[0x22, 0xff, 0x16, 8, 0x22, 1, 0x14, 0x27]), Some(1));
        assert_eq!(value(&[0x22, 0xff, 0x2a, 8, 0x22, 1, 0x15, 0x27]), Some(0));
        assert_eq!(value(&[0x22, 1, 0x22, 64, 0x09, 0x27]), Some(0));
        assert_eq!(
            value(&[0x22, 8, 0x12, 0x22, 2, 0x05, 0x27]),
            Some(-4i64 as u64)
        );
    }

    #[test]
    fn it_jumps() {
        // 0 ? 7 : 9
        let code = [0x22, 0, 0x20, 0, 8, 0x22, 9, 0x27, 0x22, 7, 0x27];
        assert_eq!(value(&code), Some(9));
        assert_eq!(value(&[0x21, 0, 0]), None, "for ever");
    }

    #[test]
    fn what_cannot_be_evaluated_is_for_gdb() {
        for code in [
            &[][..],
            &[0x27],
            &[0x22],
            &[0x22, 1, 0x22, 0, 0x05, 0x27],
            &[0x22, 1, 0x19, 0x27],
            &[0x26, 0xff, 0xff, 0x27],
            &[0x22, 1, 0x16, 65, 0x27],
            &[0x0c, 0x27],
        ] {
            assert_eq!(value(code), None, "{code:x?}");
        }
        let registers = Registers::default();
        assert!(holds(&[vec![0x0c]], &registers, |_, _| true));
        assert!(holds(&[], &registers, |_, _| true));
        assert!(!holds(&[vec![0x22, 0, 0x27]], &registers, |_, _| true));
        let two = [vec![0x22, 0, 0x27], vec![0x22, 1, 0x27]];
        assert!(holds(&two, &registers, |_, _| true));
    }
}
