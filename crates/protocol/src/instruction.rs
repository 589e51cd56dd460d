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
        place & PLACE | (self.to_byte() as u64) << FORM_SHIFT
    }

    /// The other way.
    pub const fn of_word(word: u64) -> Option<(u64, Form)> {
        match Form::from_byte((word >> FORM_SHIFT) as u8) {
            Some(form) => Some((word & PLACE, form)),
            None => None,
        }
    }
}

/// Enough for every address of a program.
const PLACE_BITS: u32 = 47;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
const FORM_SHIFT: u32 = 56;

/// How many bytes of whole instructions before and behind one that is replaced move
/// with it, so that there is room for a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbours {
    before: u8,
    after: u8,
}

impl Neighbours {
    const BEFORE_BITS: u32 = 5;
    const AFTER_BITS: u32 = 4;
    pub const BITS: u32 = Self::BEFORE_BITS + Self::AFTER_BITS;

    /// None: there is nothing to move, or more than is ever moved.
    pub const fn new(before: usize, after: usize) -> Option<Neighbours> {
        let is_some = before != 0 || after != 0;
        if is_some && before >> Self::BEFORE_BITS == 0 && after >> Self::AFTER_BITS == 0 {
            return Some(Neighbours {
                before: before as u8,
                after: after as u8,
            });
        }
        None
    }

    pub const fn before(self) -> usize {
        self.before as usize
    }

    pub const fn after(self) -> usize {
        self.after as usize
    }

    /// Zero: there are none to move.
    pub const fn to_bits(neighbours: Option<Neighbours>) -> u64 {
        match neighbours {
            Some(it) => it.before as u64 | (it.after as u64) << Self::BEFORE_BITS,
            None => 0,
        }
    }

    /// The other way.
    pub const fn from_bits(bits: u64) -> Option<Neighbours> {
        let bits = bits as usize;
        Self::new(
            bits & ((1 << Self::BEFORE_BITS) - 1),
            bits >> Self::BEFORE_BITS & ((1 << Self::AFTER_BITS) - 1),
        )
    }
}

/// An instruction that is to be replaced, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// An address, or an offset in a file.
    pub place: u64,
    pub form: Form,
    /// What moves if it becomes a jump at once, before anybody has come there. None: it
    /// becomes a trap.
    pub neighbours: Option<Neighbours>,
}

impl Site {
    /// As one word. None: it is too far behind in its file.
    pub const fn to_word(self) -> Option<u64> {
        if self.place > PLACE {
            return None;
        }
        let neighbours = Neighbours::to_bits(self.neighbours);
        Some(self.form.at(self.place) | neighbours << PLACE_BITS)
    }

    /// The other way.
    pub const fn of_word(word: u64) -> Option<Site> {
        match Form::of_word(word) {
            Some((place, form)) => Some(Site {
                place,
                form,
                neighbours: Neighbours::from_bits(word >> PLACE_BITS),
            }),
            None => None,
        }
    }
}

const _: () = assert!(PLACE_BITS + Neighbours::BITS <= FORM_SHIFT);

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

    #[test]
    fn a_site_is_a_word() {
        let neighbours = [(0, 3), (18, 0), (31, 15)];
        let neighbours = neighbours.map(|(before, after)| Neighbours::new(before, after));
        assert!(neighbours.iter().all(Option::is_some));
        for neighbours in neighbours.into_iter().chain([None]) {
            let site = Site {
                place: 0x7fff_1234_5678,
                form: Form::RDTSCP,
                neighbours,
            };
            let word = site.to_word();
            assert_eq!(word.and_then(Site::of_word), Some(site));
            let plain = Some((site.place, site.form));
            assert_eq!(word.and_then(Form::of_word), plain);
        }
        let far = Site {
            place: 1 << 47,
            form: Form::RDTSC,
            neighbours: None,
        };
        assert_eq!(far.to_word(), None);
        for (before, after) in [(0, 0), (32, 0), (0, 16)] {
            assert_eq!(Neighbours::new(before, after), None);
        }
    }
}
