//! Conditions in the language that the replaying process understands.

use std::sync::Arc;

use inspect::expr::Step;
use protocol::condition::op;

/// gdb's number for a register that DWARF has a number for.
fn gdb_register(dwarf: u16) -> Option<u16> {
    match dwarf {
        // rdx, rcx and rbx are in another order.
        1 => Some(3),
        2 => Some(2),
        3 => Some(1),
        0 | 4..=16 => Some(dwarf),
        _ => None,
    }
}

/// Puts steps into bytes. `None`: there are too many.
pub fn encode(steps: &[Step]) -> Option<Arc<[u8]>> {
    let mut code = Vec::new();
    // Where each step begins; and where jumps are, with the step they go to.
    let mut begins = Vec::new();
    let mut jumps = Vec::new();
    for step in steps {
        begins.push(code.len());
        let pick = |signed: bool, yes: u8, no: u8| if signed { yes } else { no };
        let plain = match step {
            Step::Constant(number) => {
                let bytes = number.to_be_bytes();
                let size = [1usize, 2, 4, 8]
                    .into_iter()
                    .find(|size| *size == 8 || *number >> (8 * size) == 0)?;
                code.push(op::CONST8 + size.trailing_zeros() as u8);
                code.extend_from_slice(bytes.get(8 - size..)?);
                continue;
            }
            Step::Register(number) => {
                code.push(op::REG);
                code.extend_from_slice(&gdb_register(*number)?.to_be_bytes());
                continue;
            }
            Step::Extend { bits, signed } => {
                code.push(pick(*signed, op::EXT, op::ZERO_EXT));
                code.push(*bits);
                continue;
            }
            Step::Jump(to) | Step::JumpIf(to) => {
                let always = matches!(step, Step::Jump(_));
                code.push(pick(always, op::GOTO, op::IF_GOTO));
                jumps.push((code.len(), *to));
                code.extend_from_slice(&[0, 0]);
                continue;
            }
            Step::Load(size) => op::REF8 + size.trailing_zeros() as u8,
            Step::Add => op::ADD,
            Step::Subtract => op::SUB,
            Step::Multiply => op::MUL,
            Step::Divide { signed } => pick(*signed, op::DIV_SIGNED, op::DIV_UNSIGNED),
            Step::Remainder { signed } => pick(*signed, op::REM_SIGNED, op::REM_UNSIGNED),
            Step::ShiftLeft => op::LSH,
            Step::ShiftRight { signed } => pick(*signed, op::RSH_SIGNED, op::RSH_UNSIGNED),
            Step::And => op::BIT_AND,
            Step::Or => op::BIT_OR,
            Step::Xor => op::BIT_XOR,
            Step::Complement => op::BIT_NOT,
            Step::Not => op::LOG_NOT,
            Step::Equal => op::EQUAL,
            Step::Less { signed } => pick(*signed, op::LESS_SIGNED, op::LESS_UNSIGNED),
            Step::Duplicate => op::DUP,
            Step::Drop => op::POP,
            Step::Swap => op::SWAP,
            // There is no such operation: nothing can be said.
            Step::Fail => 0,
        };
        code.push(plain);
    }
    begins.push(code.len());
    code.push(op::END);
    for (at, to) in jumps {
        let to = u16::try_from(*begins.get(to)?).ok()?;
        code.get_mut(at..at + 2)?.copy_from_slice(&to.to_be_bytes());
    }
    (code.len() <= protocol::replay::CONDITION_BYTES).then(|| code.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::condition::{Machine, evaluate};

    struct Here<'a>(&'a [u8]);

    impl Machine for Here<'_> {
        fn code(&self, at: usize) -> Option<u8> {
            self.0.get(at).copied()
        }

        fn register(&self, number: u16) -> Option<u64> {
            Some(u64::from(number) * 100)
        }

        fn memory(&self, address: u64, size: usize) -> Option<u64> {
            Some(address + size as u64)
        }
    }

    fn value(steps: &[Step]) -> Option<u64> {
        evaluate(&Here(&encode(steps)?))
    }

    #[test]
    fn numbers_of_all_sizes() {
        for number in [
            0,
            7,
            0xff,
            0x100,
            0xffff,
            0x1_0000,
            0xffff_ffff,
            1 << 32,
            u64::MAX,
        ] {
            assert_eq!(value(&[Step::Constant(number)]), Some(number));
        }
    }

    #[test]
    fn registers_have_other_numbers() {
        let numbers: Vec<_> = (0..17).map(|n| value(&[Step::Register(n)])).collect();
        let expected = [0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        assert_eq!(numbers, expected.map(|n| Some(n * 100)));
        assert_eq!(encode(&[Step::Register(17)]), None);
    }

    #[test]
    fn jumps_go_to_steps() {
        let steps = [
            Step::Constant(1 << 40),
            Step::JumpIf(4),
            Step::Constant(3),
            Step::Jump(5),
            Step::Constant(4),
        ];
        assert_eq!(value(&steps), Some(4));
        let fails = [
            Step::Constant(1),
            Step::JumpIf(3),
            Step::Constant(0),
            Step::Fail,
        ];
        assert_eq!(value(&fails), None);
    }

    #[test]
    fn signs_matter() {
        let minus = Step::Constant(-8i64 as u64);
        let two = Step::Constant(2);
        let of = |step| value(&[minus, two, step]);
        assert_eq!(of(Step::Less { signed: true }), Some(1));
        assert_eq!(of(Step::Less { signed: false }), Some(0));
        assert_eq!(of(Step::Divide { signed: true }), Some(-4i64 as u64));
        assert_eq!(of(Step::ShiftRight { signed: true }), Some(-2i64 as u64));
        assert_eq!(
            of(Step::ShiftRight { signed: false }),
            Some(u64::MAX / 4 - 1)
        );
        let byte = |signed| value(&[Step::Constant(0x1ff), Step::Extend { bits: 8, signed }]);
        assert_eq!((byte(true), byte(false)), (Some(u64::MAX), Some(0xff)));
        assert_eq!(value(&[Step::Constant(64), Step::Load(4)]), Some(68));
    }

    #[test]
    fn what_is_too_long_is_not_encoded() {
        assert_eq!(encode(&vec![Step::Add; 4000]), None);
    }
}
