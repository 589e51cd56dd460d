//! Instructions that ask the processor, and get another answer each time or on
//! each core: nothing traps at them, so they are replaced in the program's code
//! and their answers are in the log.
//!
//! Their second opcode byte becomes that of `ud2`; prefixes and operands stay
//! where they are, so that what the program had can be told from what is there.

/// Which one (value 0 of [`crate::record::kind::ANSWER`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Instruction {
    /// `rdtsc` and `rdtscp`: the time-stamp counter.
    Counter = 0,
    Cpuid = 1,
    Rdrand = 2,
    Rdseed = 3,
    Rdpid = 4,
    /// `lsl` between registers: a segment's limit, which for one segment is the
    /// number of the processor.
    Lsl = 5,
    /// `wrgsbase`: gives no answer, but takes from the monitor what it stands on.
    /// The program gets the fault of a processor without it.
    Wrgsbase = 6,
}

impl Instruction {
    pub const ALL: [Instruction; 7] = [
        Instruction::Counter,
        Instruction::Cpuid,
        Instruction::Rdrand,
        Instruction::Rdseed,
        Instruction::Rdpid,
        Instruction::Lsl,
        Instruction::Wrgsbase,
    ];

    pub const fn from_number(number: u64) -> Option<Instruction> {
        if number < Self::ALL.len() as u64 {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Instruction::Counter => "rdtsc",
            Instruction::Cpuid => "cpuid",
            Instruction::Rdrand => "rdrand",
            Instruction::Rdseed => "rdseed",
            Instruction::Rdpid => "rdpid",
            Instruction::Lsl => "lsl",
            Instruction::Wrgsbase => "wrgsbase",
        }
    }
}

/// The first byte of all of them, and the second of what stands in their place.
pub const ESCAPE: u8 = 0x0f;
pub const UD2: u8 = 0x0b;

/// Which instruction, and how long it is with its prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Form {
    pub what: Instruction,
    /// 2 to 15.
    pub len: u8,
}

impl Form {
    pub const RDTSC: Form = Form {
        what: Instruction::Counter,
        len: 2,
    };
    pub const RDTSCP: Form = Form {
        what: Instruction::Counter,
        len: 3,
    };

    pub const fn to_byte(self) -> u8 {
        (self.what as u8) << 4 | self.len & 15
    }

    pub const fn from_byte(byte: u8) -> Option<Form> {
        let len = byte & 15;
        match Instruction::from_number(byte as u64 >> 4) {
            // None of the first has prefixes.
            Some(Instruction::Counter) if len != 2 && len != 3 => None,
            Some(what) if len >= Self::tail(what, len) && len >= 2 => Some(Form { what, len }),
            _ => None,
        }
    }

    /// How long it is from its opcode on.
    const fn tail(what: Instruction, len: u8) -> u8 {
        match what {
            Instruction::Counter => len,
            Instruction::Cpuid => 2,
            _ => 3,
        }
    }

    /// Where its opcode is, behind its prefixes.
    pub const fn opcode_at(self) -> u64 {
        (self.len - Self::tail(self.what, self.len)) as u64
    }

    /// What the program had from its opcode on: as many bytes as the monitor
    /// replaces, none of which are operands.
    pub const fn original(self) -> &'static [u8] {
        match self.what {
            Instruction::Counter if self.len == 2 => &[ESCAPE, 0x31],
            Instruction::Counter => &[ESCAPE, 0x01, 0xf9],
            Instruction::Cpuid => &[ESCAPE, 0xa2],
            Instruction::Rdrand | Instruction::Rdseed | Instruction::Rdpid => &[ESCAPE, 0xc7],
            Instruction::Lsl => &[ESCAPE, 0x03],
            Instruction::Wrgsbase => &[ESCAPE, 0xae],
        }
    }

    /// What stands there instead.
    pub const fn instead(self) -> &'static [u8] {
        const NOP: u8 = 0x90;
        match self.what {
            Instruction::Counter if self.len == 3 => &[ESCAPE, UD2, NOP],
            _ => &[ESCAPE, UD2],
        }
    }

    /// As one word: where it is (an address, or an offset in a file), and its
    /// form in the highest byte.
    pub const fn at(self, place: u64) -> u64 {
        place & PLACE | (self.to_byte() as u64) << PLACE_BITS
    }

    /// The other way.
    pub const fn of_word(word: u64) -> Option<(u64, Form)> {
        match Form::from_byte((word >> PLACE_BITS) as u8) {
            Some(form) => Some((word & PLACE, form)),
            None => None,
        }
    }
}

const PLACE_BITS: u32 = 56;
const PLACE: u64 = (1 << PLACE_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_told_apart() {
        for what in Instruction::ALL {
            for len in 2..=15 {
                let form = Form { what, len };
                let is_one = match what {
                    Instruction::Counter => len <= 3,
                    Instruction::Cpuid => true,
                    _ => len >= 3,
                };
                let read = Form::of_word(form.at(0x7fff_1234_5678));
                assert_eq!(read, is_one.then_some((0x7fff_1234_5678, form)));
                if is_one {
                    assert_eq!(form.original().len(), form.instead().len());
                }
            }
        }
        // As they were before there were others than the counter.
        assert_eq!(Form::RDTSC.at(5), 5 | 2 << 56);
        assert_eq!(Form::RDTSCP.at(5), 5 | 3 << 56);
        for byte in 0..=u8::MAX {
            if let Some(form) = Form::from_byte(byte) {
                assert_eq!(form.to_byte(), byte);
                assert!(form.opcode_at() < u64::from(form.len));
            }
        }
    }
}
