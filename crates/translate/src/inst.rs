//! What translation has to know about an instruction.

use patch::decode::decode;

use crate::writer::Writer;

/// Where an instruction leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next one.
    Next,
    /// `jmp`.
    Jump(u64),
    /// A conditional jump with this condition (the low half of its opcode).
    Branch(u8, u64),
    /// `loop`, `loope`, `loopne`, `jrcxz`: the opcode.
    Loop(u8, u64),
    /// `call`.
    Call(u64),
    /// `jmp` to where a register or memory says.
    JumpThrough,
    /// `call` of where a register or memory says.
    CallThrough,
    /// `ret`, with how much more to take off the stack.
    Return(u16),
}

/// How a string instruction with a repeat prefix goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// How much of an operand one round takes.
    pub size: u64,
    /// Whether rsi moves.
    pub source: bool,
    /// Whether rdi moves.
    pub destination: bool,
    /// Whether it ends by what it finds, too: goes on as long as ZF is this.
    pub while_zero: Option<bool>,
    /// Whether each round changes rax.
    pub loads: bool,
}

/// What an instruction does to one general register, where that is easy to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The register gets what its operand in memory holds (64 bits).
    Load(u8),
    /// The register gets the address of its operand.
    Address(u8),
    /// The first register gets what the second holds.
    Copy(u8, u8),
}

/// An instruction that can be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inst {
    /// Its length.
    pub len: usize,
    /// Where it leads.
    pub flow: Flow,
    /// The address of its operand, if that is relative to `rip`.
    pub operand: Option<u64>,
    /// How it repeats, if it does.
    pub repeat: Option<Repeat>,
    /// Where its opcode begins: `0f`, VEX and EVEX prefixes belong to it.
    pub(crate) opcode: usize,
    /// Where the displacement of `operand` is.
    pub(crate) disp: usize,
    pub(crate) modrm: Option<usize>,
    pub(crate) rex: u8,
    /// The prefix of fs or gs, 0 if none.
    pub segment: u8,
    pub(crate) operand_size: bool,
    pub(crate) address_size: bool,
}

/// Looks at the instruction at the start of `bytes`, whose address is `at`.
/// `None`: it cannot be translated.
#[must_use]
pub fn inst(bytes: &[u8], at: u64) -> Option<Inst> {
    let decoded = decode(bytes)?;
    let bytes = bytes.get(..decoded.len)?;
    let mut inst = Inst {
        len: decoded.len,
        flow: Flow::Next,
        operand: None,
        repeat: None,
        opcode: 0,
        disp: decoded.rip_disp.unwrap_or(0),
        modrm: decoded.modrm,
        rex: 0,
        segment: 0,
        operand_size: false,
        address_size: false,
    };
    let (mut lock, mut rep) = (false, None);
    let mut op = *bytes.first()?;
    loop {
        match op {
            0x64 | 0x65 => inst.segment = op,
            0x66 => inst.operand_size = true,
            0x67 => inst.address_size = true,
            0xf0 => lock = true,
            0xf2 | 0xf3 => rep = Some(op),
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f => {}
            _ => break,
        }
        // It counts only right before the opcode.
        inst.rex = if matches!(op, 0x40..=0x4f) { op } else { 0 };
        inst.opcode = inst.opcode.wrapping_add(1);
        op = *bytes.get(inst.opcode)?;
    }
    let next = at.wrapping_add(inst.len as u64);
    let opcode = inst.opcode;
    let byte = |i: usize| bytes.get(opcode.wrapping_add(i)).copied();
    let near = |i: usize| Some(next.wrapping_add(i64::from(byte(i)? as i8) as u64));
    let far = |i: usize| relative(bytes, opcode.wrapping_add(i), next);

    inst.operand = match decoded.rip_disp {
        Some(disp) => Some(relative(bytes, disp, next)?),
        None => None,
    };
    if decoded.movable {
        inst.repeat = rep.and_then(|prefix| repeat(op, prefix, &inst));
        return Some(inst);
    }
    // Prefixes that mean something else on one make of processor than on
    // another.
    if lock || inst.operand_size && inst.rex & 8 == 0 {
        return None;
    }
    inst.flow = match op {
        0x70..=0x7f => Flow::Branch(op & 15, near(1)?),
        0xe0..=0xe3 => Flow::Loop(op, near(1)?),
        0xeb => Flow::Jump(near(1)?),
        0xe9 => Flow::Jump(far(1)?),
        0xe8 => Flow::Call(far(1)?),
        0xc3 => Flow::Return(0),
        0xc2 => Flow::Return(u16::from_le_bytes([byte(1)?, byte(2)?])),
        0xff if inst.address_size && inst.operand.is_some() => return None,
        0xff => match byte(1)? >> 3 & 7 {
            2 => Flow::CallThrough,
            4 => Flow::JumpThrough,
            _ => return None,
        },
        0x0f => match (byte(1)?, byte(2)) {
            (second @ 0x80..=0x8f, _) => Flow::Branch(second & 15, far(2)?),
            // endbr64, endbr32
            (0x1e, _) => Flow::Next,
            // xgetbv, xtest, serialize, rdpkru, wrpkru, rdtscp, clzero, rdpru
            (0x01, Some(0xd0 | 0xd6 | 0xe8 | 0xee | 0xef | 0xf9 | 0xfc | 0xfd)) => Flow::Next,
            _ => return None,
        },
        _ => return None,
    };
    Some(inst)
}

impl Inst {
    /// The address of the operand in memory, given the general registers by
    /// their numbers and the fs base. `code` is what the instruction was found
    /// in. Not known for EVEX with a short displacement, whose unit depends on
    /// the instruction; not right for the few whose index is a vector.
    #[must_use]
    pub fn address(&self, code: &[u8], registers: &[u64; 16], fs: u64) -> Option<u64> {
        let base = if self.segment == 0x64 { fs } else { 0 };
        if let Some(operand) = self.operand {
            return Some(base.wrapping_add(operand));
        }
        let modrm = self.modrm?;
        let byte = |i: usize| code.get(modrm.wrapping_add(i)).copied();
        let operand = byte(0)?;
        let (mode, rm) = (operand >> 6, operand & 7);
        let first = *code.get(self.opcode)?;
        if mode == 3 || self.segment == 0x65 || first == 0x62 && mode == 1 {
            return None;
        }
        let (base_high, index_high) = match first {
            0xc4 | 0x62 => {
                let bits = !code.get(self.opcode.wrapping_add(1))?;
                (bits >> 5 & 1, bits >> 6 & 1)
            }
            0xc5 => (0, 0),
            _ => (self.rex & 1, self.rex >> 1 & 1),
        };
        let register = |number: u8| registers.get(usize::from(number)).copied();
        let mut address = 0u64;
        let (mut place, mut wide) = (1, mode == 2);
        if rm == 4 {
            let sib = byte(1)?;
            place = 2;
            let index = sib >> 3 & 7 | index_high << 3;
            if index != 4 {
                address = address.wrapping_add(register(index)? << (sib >> 6));
            }
            if sib & 7 == 5 && mode == 0 {
                wide = true;
            } else {
                address = address.wrapping_add(register(sib & 7 | base_high << 3)?);
            }
        } else {
            address = address.wrapping_add(register(rm | base_high << 3)?);
        }
        if wide {
            let at = modrm.wrapping_add(place);
            address = relative(code, at, address)?;
        } else if mode == 1 {
            address = address.wrapping_add(i64::from(byte(place)? as i8) as u64);
        }
        if self.address_size {
            address &= 0xffff_ffff;
        }
        Some(base.wrapping_add(address))
    }
}

impl Inst {
    /// Whether it may write to memory: no only if that is certain. (Calls are
    /// not among those that are asked about.)
    #[must_use]
    pub fn may_write(&self, code: &[u8]) -> bool {
        let byte = |i: usize| code.get(self.opcode.wrapping_add(i)).copied().unwrap_or(0);
        let modrm = self.modrm.and_then(|at| code.get(at)).copied();
        let in_memory = modrm.is_some_and(|modrm| modrm < 0xc0);
        let reg = modrm.unwrap_or(0) >> 3 & 7;
        match byte(0) {
            0x0f => match byte(1) {
                // Loads, prefetches, comparisons, conditional moves.
                0x10 | 0x12 | 0x14..=0x16 | 0x18 | 0x1e | 0x1f | 0x28 | 0x2a | 0x2c..=0x2f => false,
                0x40..=0x76 | 0xa3 | 0xaf | 0xb6..=0xb9 | 0xbc..=0xbf => false,
                0xc2 | 0xc4..=0xc6 | 0xc8..=0xd5 | 0xd7..=0xe6 | 0xe8..=0xf6 | 0xf8..=0xff => false,
                // setcc, movd, movq, movdqa, stores of vectors
                0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7e | 0x7f | 0x90..=0x9f => in_memory,
                0xc3 | 0xd6 | 0xe7 => in_memory,
                0x38 => byte(2) >= 0xf0,
                0x3a => in_memory && matches!(byte(2), 0x14..=0x17),
                _ => true,
            },
            // add, or, adc, sbb, and, sub, xor: to the operand, or from it.
            op @ 0x00..=0x37 => op & 7 < 2 && in_memory,
            // cmp, cdq and its kin, test, mov to registers
            0x38..=0x3f | 0x90 | 0x98 | 0x99 | 0xa8 | 0xa9 | 0xb0..=0xbf => false,
            // pop, movsxd, imul, test, mov, lea, leave
            0x58..=0x5f | 0x63 | 0x69 | 0x6b | 0x84 | 0x85 | 0x8a | 0x8b | 0x8d | 0xc9 => false,
            // To an operand that may be a register.
            0x80..=0x83 => in_memory && reg != 7,
            0x86..=0x89 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xd8..=0xdf => in_memory,
            0xf6 | 0xf7 => in_memory && matches!(reg, 2 | 3),
            0xfe => in_memory,
            0xff => in_memory || reg > 1,
            // VEX: the common loads and sums.
            0xc5 | 0xc4 => {
                let (map, op) = match byte(0) {
                    0xc5 => (1, byte(2)),
                    _ => (byte(1) & 31, byte(3)),
                };
                !(map == 1
                    && matches!(op, 0x10 | 0x12 | 0x14..=0x16 | 0x28 | 0x2e | 0x2f | 0x50..=0x76
                        | 0xd0..=0xd5 | 0xd7..=0xe6 | 0xe8..=0xf6 | 0xf8..=0xfe))
            }
            _ => true,
        }
    }

    /// What it does to a general register, if it is one of the moves that
    /// pointers are followed with.
    #[must_use]
    pub fn effect(&self, code: &[u8]) -> Option<Effect> {
        let op = *code.get(self.opcode)?;
        let modrm = *code.get(self.modrm?)?;
        if self.rex & 8 == 0 || self.operand_size {
            return None;
        }
        let reg = modrm >> 3 & 7 | (self.rex >> 2 & 1) << 3;
        let rm = modrm & 7 | (self.rex & 1) << 3;
        match (op, modrm >> 6) {
            (0x8b, 3) => Some(Effect::Copy(reg, rm)),
            (0x89, 3) => Some(Effect::Copy(rm, reg)),
            (0x8b, _) => Some(Effect::Load(reg)),
            (0x8d, 0..=2) => Some(Effect::Address(reg)),
            _ => None,
        }
    }
}

/// Where an instruction writes, as it can be told behind it.
#[derive(Clone, Copy)]
pub(crate) enum Written {
    /// At this address.
    At(u64),
    /// At its operand, which is still addressed by this.
    Operand(Lea),
    /// It was pushed.
    Stack,
    /// That cannot be told.
    Anywhere,
}

/// The address of an operand, as instructions say it.
#[derive(Clone, Copy)]
pub(crate) struct Lea {
    /// The high bits of index and base, as in a REX prefix.
    rex: u8,
    /// ModRM and what follows it.
    bytes: [u8; 6],
    len: usize,
}

impl Lea {
    /// Writes `lea register, operand`, for one of the lower eight.
    pub(crate) fn write(&self, w: &mut Writer<'_>, register: u8) {
        let [modrm, rest @ ..] = self.bytes;
        w.bytes(&[0x48 | self.rex, 0x8d, modrm & 0xc7 | register << 3]);
        w.bytes(rest.get(..self.len.wrapping_sub(1)).unwrap_or(&[]));
    }
}

impl Inst {
    /// Where it writes, if it [may](Inst::may_write): 64 bytes at most, if that is told.
    pub(crate) fn written(&self, code: &[u8]) -> Written {
        let byte = |i: usize| code.get(self.opcode.wrapping_add(i)).copied().unwrap_or(0);
        let Some(at) = self.modrm else {
            // push, pushf
            return match byte(0) {
                0x50..=0x57 | 0x68 | 0x6a | 0x9c => Written::Stack,
                _ => Written::Anywhere,
            };
        };
        let modrm = code.get(at).copied().unwrap_or(0);
        let reg = modrm >> 3 & 7;
        if byte(0) == 0xff && reg == 6 {
            return Written::Stack;
        }
        // Those that leave the registers that address their operand.
        let unit = match byte(0) {
            op @ 0x00..=0x37 if op & 7 < 2 && op != 0x0f => Some(1),
            0x80 | 0x81 | 0x83 | 0x88 | 0x89 | 0xc0 | 0xc1 | 0xd0..=0xd3 => Some(1),
            0xc6 | 0xc7 if reg == 0 => Some(1),
            0xf6 | 0xf7 if matches!(reg, 2 | 3) => Some(1),
            0xfe | 0xff if reg < 2 => Some(1),
            0x0f => stores_vector_or_byte(byte(1)).then_some(1),
            0xc5 => stores_vector(byte(2)).then_some(1),
            0xc4 => (byte(1) & 31 == 1 && stores_vector(byte(3))).then_some(1),
            0x62 => self.stores_evex(code),
            _ => None,
        };
        let Some(unit) = unit.filter(|_| modrm < 0xc0 && self.segment == 0 && !self.address_size)
        else {
            return Written::Anywhere;
        };
        if let Some(address) = self.operand {
            return Written::At(address);
        }
        self.lea(code, at, unit)
            .map_or(Written::Anywhere, Written::Operand)
    }

    /// The unit of short displacements of an EVEX instruction that stores whole vectors.
    fn stores_evex(&self, code: &[u8]) -> Option<i32> {
        let byte = |i: usize| code.get(self.opcode.wrapping_add(i)).copied().unwrap_or(0);
        let (map, prefix, long) = (byte(1) & 15, byte(2) & 3, byte(3) >> 5 & 3);
        let is_whole = match byte(4) {
            0x11 | 0x29 | 0x2b => prefix < 2,
            0x7f => prefix > 0,
            0xe7 => prefix == 1,
            _ => false,
        };
        let is_known = map == 1 && byte(2) & 4 != 0 && long < 3;
        (is_whole && is_known).then_some(16 << long)
    }

    /// The operand's address; `unit` is that of short displacements.
    fn lea(&self, code: &[u8], at: usize, unit: i32) -> Option<Lea> {
        let byte = |i: usize| code.get(at.wrapping_add(i)).copied();
        let modrm = byte(0)?;
        let rex = match *code.get(self.opcode)? {
            0xc4 | 0x62 => !code.get(self.opcode.wrapping_add(1))? >> 5 & 3,
            0xc5 => 0,
            _ => self.rex & 3,
        };
        let (mode, has_sib) = (modrm >> 6, modrm & 7 == 4);
        let head: usize = if has_sib { 2 } else { 1 };
        let base = byte(head.wrapping_sub(1))? & 7;
        let displacement = match mode {
            0 if base == 5 => 4,
            0 => 0,
            1 => 1,
            _ => 4,
        };
        let mut bytes = [0; 6];
        let len = head.wrapping_add(displacement);
        let own = code.get(at..at.wrapping_add(len))?;
        bytes.get_mut(..len)?.copy_from_slice(own);
        if mode == 1 && unit != 1 {
            let distance = i32::from(byte(head)? as i8).wrapping_mul(unit);
            let wide = bytes.get_mut(head..head.wrapping_add(4))?;
            wide.copy_from_slice(&distance.to_le_bytes());
            *bytes.first_mut()? = modrm & 0x3f | 0x80;
            let len = head.wrapping_add(4);
            return Some(Lea { rex, bytes, len });
        }
        Some(Lea { rex, bytes, len })
    }
}

/// Whether an opcode of the second map stores a vector.
fn stores_vector(op: u8) -> bool {
    matches!(
        op,
        0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7e | 0x7f | 0xd6 | 0xe7
    )
}

/// Whether an opcode of the second map without VEX stores a vector, a general register or a
/// flag.
fn stores_vector_or_byte(op: u8) -> bool {
    stores_vector(op) || matches!(op, 0x90..=0x9f | 0xc3)
}

fn relative(bytes: &[u8], place: usize, next: u64) -> Option<u64> {
    let field = bytes.get(place..place.wrapping_add(4))?;
    let value = i32::from_le_bytes(field.try_into().ok()?);
    Some(next.wrapping_add(i64::from(value) as u64))
}

fn repeat(op: u8, prefix: u8, inst: &Inst) -> Option<Repeat> {
    let size = match (op & 1, inst.rex & 8, inst.operand_size) {
        (0, ..) => 1,
        (_, 8, _) => 8,
        (_, _, true) => 2,
        _ => 4,
    };
    let (source, destination, searches, loads) = match op {
        0xa4 | 0xa5 => (true, true, false, false),
        0xa6 | 0xa7 => (true, true, true, false),
        0xaa | 0xab => (false, true, false, false),
        0xac | 0xad => (true, false, false, true),
        0xae | 0xaf => (false, true, true, false),
        _ => return None,
    };
    (!inst.address_size).then_some(Repeat {
        size,
        source,
        destination,
        while_zero: searches.then_some(prefix == 0xf3),
        loads,
    })
}
