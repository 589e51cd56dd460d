//! Conditions of breakpoints, as gdb's bytecode for agents.
//!
//! The monitor evaluates them where the process stands: a breakpoint that is
//! passed a hundred thousand times then costs no conversation with whoever
//! leads it. The language is gdb's because gdb sends its conditions in it; the
//! prompt compiles its own to the same. What cannot be evaluated is left to
//! who asked: the breakpoint is one to stop at then.

/// Steps that one evaluation may take: a condition has loops only if somebody
/// makes it so by hand.
const STEPS: usize = 10_000;
/// How many values may be kept.
const DEPTH: usize = 64;

/// The operations, by gdb's numbers.
pub mod op {
    pub const ADD: u8 = 0x02;
    pub const SUB: u8 = 0x03;
    pub const MUL: u8 = 0x04;
    pub const DIV_SIGNED: u8 = 0x05;
    pub const DIV_UNSIGNED: u8 = 0x06;
    pub const REM_SIGNED: u8 = 0x07;
    pub const REM_UNSIGNED: u8 = 0x08;
    pub const LSH: u8 = 0x09;
    pub const RSH_SIGNED: u8 = 0x0a;
    pub const RSH_UNSIGNED: u8 = 0x0b;
    pub const LOG_NOT: u8 = 0x0e;
    pub const BIT_AND: u8 = 0x0f;
    pub const BIT_OR: u8 = 0x10;
    pub const BIT_XOR: u8 = 0x11;
    pub const BIT_NOT: u8 = 0x12;
    pub const EQUAL: u8 = 0x13;
    pub const LESS_SIGNED: u8 = 0x14;
    pub const LESS_UNSIGNED: u8 = 0x15;
    /// From so many bits: the operand.
    pub const EXT: u8 = 0x16;
    pub const REF8: u8 = 0x17;
    pub const REF64: u8 = 0x1a;
    /// To the operand, two bytes, counted from the beginning.
    pub const IF_GOTO: u8 = 0x20;
    pub const GOTO: u8 = 0x21;
    pub const CONST8: u8 = 0x22;
    pub const CONST64: u8 = 0x25;
    /// By gdb's number: the operand, two bytes.
    pub const REG: u8 = 0x26;
    pub const END: u8 = 0x27;
    pub const DUP: u8 = 0x28;
    pub const POP: u8 = 0x29;
    pub const ZERO_EXT: u8 = 0x2a;
    pub const SWAP: u8 = 0x2b;
    pub const PICK: u8 = 0x32;
    pub const ROT: u8 = 0x33;
}

/// What a condition is evaluated over.
pub trait Machine {
    /// A byte of the condition.
    fn code(&self, at: usize) -> Option<u8>;
    /// A register, by gdb's number for it.
    fn register(&self, number: u16) -> Option<u64>;
    /// So many bytes of memory (1, 2, 4 or 8), the lowest first.
    fn memory(&self, address: u64, size: usize) -> Option<u64>;
}

struct Stack {
    values: [u64; DEPTH],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    /// The one so far below the last.
    fn pick(&self, depth: usize) -> Option<u64> {
        let at = self.len.checked_sub(depth.checked_add(1)?)?;
        self.values.get(at).copied()
    }
}

/// Whether nothing needs to stop for a condition: it is known not to hold.
pub fn is_false(machine: &impl Machine) -> bool {
    evaluate(machine) == Some(0)
}

/// The value of a condition; `None` if it has none, or is not understood.
pub fn evaluate(machine: &impl Machine) -> Option<u64> {
    let mut stack = Stack {
        values: [0; DEPTH],
        len: 0,
    };
    let mut at = 0usize;
    for _ in 0..STEPS {
        let operation = machine.code(at)?;
        at += 1;
        // Operands follow, the high byte first.
        let mut operand = |count: usize| {
            let mut value = 0u64;
            for _ in 0..count {
                value = value << 8 | u64::from(machine.code(at)?);
                at += 1;
            }
            Some(value)
        };
        match operation {
            op::ADD..=op::RSH_UNSIGNED
            | op::BIT_AND..=op::BIT_XOR
            | op::EQUAL..=op::LESS_UNSIGNED => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.push(binary(operation, a, b)?)?;
            }
            op::LOG_NOT => {
                let value = stack.pop()?;
                stack.push(u64::from(value == 0))?;
            }
            op::BIT_NOT => {
                let value = stack.pop()?;
                stack.push(!value)?;
            }
            op::EXT | op::ZERO_EXT => {
                let bits = operand(1)?;
                let value = stack.pop()?;
                let unused = 64u32.checked_sub(bits as u32)?;
                stack.push(match (unused, operation) {
                    (64, _) => 0,
                    (unused, op::EXT) => ((value << unused) as i64 >> unused) as u64,
                    (unused, _) => value << unused >> unused,
                })?;
            }
            op::REF8..=op::REF64 => {
                let address = stack.pop()?;
                stack.push(machine.memory(address, 1 << (operation - op::REF8))?)?;
            }
            op::IF_GOTO => {
                let to = operand(2)?;
                if stack.pop()? != 0 {
                    at = to as usize;
                }
            }
            op::GOTO => at = operand(2)? as usize,
            op::CONST8..=op::CONST64 => {
                let value = operand(1 << (operation - op::CONST8))?;
                stack.push(value)?;
            }
            op::REG => {
                let number = operand(2)?;
                stack.push(machine.register(number as u16)?)?;
            }
            op::END => return stack.pop(),
            op::DUP => stack.push(stack.pick(0)?)?,
            op::POP => {
                stack.pop()?;
            }
            op::SWAP => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.push(b)?;
                stack.push(a)?;
            }
            op::PICK => {
                let depth = operand(1)? as usize;
                stack.push(stack.pick(depth)?)?;
            }
            op::ROT => {
                let (c, b, a) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.push(c)?;
                stack.push(a)?;
                stack.push(b)?;
            }
            _ => return None,
        }
    }
    None
}

fn binary(operation: u8, a: u64, b: u64) -> Option<u64> {
    let (signed_a, signed_b) = (a as i64, b as i64);
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    Some(match operation {
        op::ADD => a.wrapping_add(b),
        op::SUB => a.wrapping_sub(b),
        op::MUL => a.wrapping_mul(b),
        op::DIV_SIGNED => signed_a.checked_div(signed_b)? as u64,
        op::DIV_UNSIGNED => a.checked_div(b)?,
        op::REM_SIGNED => signed_a.checked_rem(signed_b)? as u64,
        op::REM_UNSIGNED => a.checked_rem(b)?,
        op::LSH => a.checked_shl(shift).unwrap_or(0),
        op::RSH_SIGNED => signed_a.checked_shr(shift).unwrap_or(signed_a >> 63) as u64,
        op::RSH_UNSIGNED => a.checked_shr(shift).unwrap_or(0),
        op::BIT_AND => a & b,
        op::BIT_OR => a | b,
        op::BIT_XOR => a ^ b,
        op::EQUAL => u64::from(a == b),
        op::LESS_SIGNED => u64::from(signed_a < signed_b),
        op::LESS_UNSIGNED => u64::from(a < b),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Here<'a>(&'a [u8]);

    impl Machine for Here<'_> {
        fn code(&self, at: usize) -> Option<u8> {
            self.0.get(at).copied()
        }

        fn register(&self, number: u16) -> Option<u64> {
            (number < 60).then_some(if number == 6 { 0x1000 } else { 0 })
        }

        fn memory(&self, address: u64, size: usize) -> Option<u64> {
            let byte = |i: u64| (address + i) & 0xff;
            let all = (0..size as u64).map(|i| byte(i) << (8 * i)).sum();
            (address >= 0x1000).then_some(all)
        }
    }

    fn value(code: &[u8]) -> Option<u64> {
        evaluate(&Here(code))
    }

    #[test]
    fn a_variable_on_the_stack_is_compared() {
        // *(int *)($rbp + 4) == 0x07060504
        let code = [
            0x26, 0, 6, 0x22, 4, 0x02, 0x19, 0x16, 32, 0x24, 7, 6, 5, 4, 0x13, 0x27,
        ];
        assert_eq!(value(&code), Some(1));
        assert!(!is_false(&Here(&code)));
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
    fn values_change_places() {
        assert_eq!(
            value(&[0x22, 7, 0x22, 5, 0x2b, 0x03, 0x27]),
            Some(-2i64 as u64)
        );
        assert_eq!(value(&[0x22, 7, 0x22, 5, 0x32, 1, 0x27]), Some(7));
        assert_eq!(
            value(&[0x22, 1, 0x22, 2, 0x22, 3, 0x33, 0x29, 0x27]),
            Some(1)
        );
        assert_eq!(value(&[0x22, 4, 0x28, 0x04, 0x27]), Some(16));
    }

    #[test]
    fn it_jumps() {
        // 0 ? 7 : 9
        let code = [0x22, 0, 0x20, 0, 8, 0x22, 9, 0x27, 0x22, 7, 0x27];
        assert_eq!(value(&code), Some(9));
        assert_eq!(value(&[0x21, 0, 0]), None, "for ever");
    }

    #[test]
    fn what_cannot_be_evaluated_is_left_to_who_asked() {
        let deep = [[0x22, 1]; 100].concat();
        for code in [
            &[][..],
            &[0x27],
            &[0x22],
            &[0x22, 1, 0x22, 0, 0x05, 0x27],
            &[0x22, 1, 0x19, 0x27],
            &[0x26, 0xff, 0xff, 0x27],
            &[0x22, 1, 0x16, 65, 0x27],
            &[0x22, 1, 0x32, 7, 0x27],
            &[0x0c, 0x27],
            &deep,
        ] {
            assert_eq!(value(code), None, "{code:x?}");
            assert!(!is_false(&Here(code)));
        }
        assert!(is_false(&Here(&[0x22, 0, 0x27])));
    }
}
