//! The length of an instruction, and whether it can be moved to another address.
//!
//! This is all that patching needs to know about an instruction, so this is all that is
//! decoded: a general disassembler would be a hundred times the size. The tests compare it
//! with one, over every opcode and over whole libraries.
//!
//! It covers 64-bit mode up to AVX-512. Some encodings that a processor rejects get a length
//! here: they would fault at their new address just as at their old one.

/// What there is to know about one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inst {
    /// Its length in bytes, 1 to 15.
    pub len: usize,
    /// Whether it does the same at another address (after `rip_disp` has been adjusted, if
    /// there is one). False for all that transfers control or raises a trap by design, and
    /// for `endbr64`, which marks a place that is jumped to.
    pub movable: bool,
    /// Where in the instruction the 32-bit displacement is that counts from its own end.
    pub rip_disp: Option<usize>,
    /// Where its ModRM byte is.
    pub modrm: Option<usize>,
}

/// The longest instruction that the processor accepts.
pub const INST_MAX: usize = 15;

// What follows an opcode. A set of these describes the form of an instruction.
const PLAIN: u16 = 0;
const MODRM: u16 = 1;
const IMM8: u16 = 1 << 1;
const IMM16: u16 = 1 << 2;
/// 32 bits, or 16 with an operand size prefix.
const IMMZ: u16 = 1 << 3;
/// 32 bits, 16 with an operand size prefix, 64 with REX.W.
const IMMV: u16 = 1 << 4;
/// 64 bits of address, or 32 with an address size prefix.
const ADDRESS: u16 = 1 << 5;
/// 32 bits always.
const REL32: u16 = 1 << 6;
/// Must not be moved.
const FIXED: u16 = 1 << 7;
const INVALID: u16 = 1 << 8;

/// Decodes the instruction at the start of `bytes`; `None` if there is none, or not all of it.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Inst> {
    let mut at = Cursor { bytes, pos: 0 };
    let mut prefix = Prefixes::default();
    let mut op = at.next()?;
    while is_prefix(op) || matches!(op, 0x40..=0x4f) {
        match op {
            0x66 => prefix.operand_size = true,
            0x67 => prefix.address_size = true,
            0xf2 => prefix.repne = true,
            0xf3 => prefix.rep = true,
            0xf0 => prefix.lock = true,
            _ => {}
        }
        // A REX prefix counts only right before the opcode.
        prefix.rex = matches!(op, 0x40..=0x4f).then_some(op);
        op = at.next()?;
    }

    let mut form = match op {
        0x0f => {
            op = at.next()?;
            match op {
                0x38 => {
                    at.next()?;
                    MODRM
                }
                0x3a => {
                    at.next()?;
                    MODRM | IMM8
                }
                // extrq and insertq with two immediate bytes
                0x78 if prefix.operand_size || prefix.repne => MODRM | IMM16,
                // endbr64 and endbr32
                0x1e if prefix.rep && matches!(at.peek(), Some(0xfa | 0xfb)) => MODRM | FIXED,
                // vmcall, xend, swapgs, enclu, ...
                0x01 if at.peek()? >= 0xc0 => MODRM | FIXED,
                _ => two_byte(op),
            }
        }
        0xc5 if prefix.vector_may_follow() => {
            at.next()?;
            vector(1, at.next()?)
        }
        0xc4 if prefix.vector_may_follow() => {
            let map = at.next()? & 0x1f;
            at.next()?;
            vector(map, at.next()?)
        }
        0x62 if prefix.vector_may_follow() => {
            let map = at.next()? & 0x0f;
            if at.next()? & 0x04 == 0 {
                return None;
            }
            at.next()?;
            vector(map, at.next()?)
        }
        0xf6 | 0xf7 => match (op, reg_field(at.peek()?)) {
            (0xf6, 0 | 1) => MODRM | IMM8,
            (0xf7, 0 | 1) => MODRM | IMMZ,
            _ => MODRM,
        },
        0xff => match reg_field(at.peek()?) {
            2..=5 => MODRM | FIXED,
            7 => INVALID,
            _ => MODRM,
        },
        // xbegin, a jump in disguise
        0xc7 if at.peek()? == 0xf8 => MODRM | IMMZ | FIXED,
        // pop to memory; otherwise AMD's abandoned XOP
        0x8f if reg_field(at.peek()?) != 0 => INVALID,
        _ => one_byte(op),
    };
    if form & INVALID != 0 {
        return None;
    }

    let mut rip_disp = None;
    let modrm = (form & MODRM != 0).then_some(at.pos);
    if modrm.is_some() {
        rip_disp = at.skip_operand()?;
        if rip_disp.is_some() && prefix.address_size {
            form |= FIXED;
        }
    }
    at.skip(prefix.immediate_len(form));

    let len = at.pos;
    (len <= INST_MAX && len <= bytes.len()).then_some(Inst {
        len,
        movable: form & FIXED == 0,
        rip_disp,
        modrm,
    })
}

struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.skip(1);
        Some(byte)
    }

    fn skip(&mut self, count: usize) {
        self.pos = self.pos.saturating_add(count);
    }

    /// Skips a ModRM byte and what it calls for; tells where a displacement from rip is.
    fn skip_operand(&mut self) -> Option<Option<usize>> {
        let modrm = self.next()?;
        let (mode, rm) = (modrm >> 6, modrm & 7);
        if mode == 3 {
            return Some(None);
        }
        let base = if rm == 4 { self.next()? & 7 } else { rm };
        let disp = self.pos;
        match (mode, base) {
            (0, 5) => self.skip(4),
            (0, _) => {}
            (1, _) => self.skip(1),
            _ => self.skip(4),
        }
        Some((mode == 0 && rm == 5).then_some(disp))
    }
}

#[derive(Default)]
struct Prefixes {
    operand_size: bool,
    address_size: bool,
    rep: bool,
    repne: bool,
    lock: bool,
    rex: Option<u8>,
}

impl Prefixes {
    fn vector_may_follow(&self) -> bool {
        !(self.operand_size || self.rep || self.repne || self.lock || self.rex.is_some())
    }

    fn immediate_len(&self, form: u16) -> usize {
        let rex_w = self.rex.is_some_and(|rex| rex & 0x08 != 0);
        let z = if self.operand_size && !rex_w { 2 } else { 4 };
        let mut len: usize = 0;
        let mut add = |flag, bytes| {
            if form & flag != 0 {
                len = len.saturating_add(bytes);
            }
        };
        add(IMM8, 1);
        add(IMM16, 2);
        add(IMMZ, z);
        add(IMMV, if rex_w { 8 } else { z });
        add(ADDRESS, if self.address_size { 4 } else { 8 });
        add(REL32, 4);
        len
    }
}

/// Whether a byte is a prefix that may stand before an instruction or not, other than REX.
pub(crate) fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

fn reg_field(modrm: u8) -> u8 {
    (modrm >> 3) & 7
}

/// The opcodes of one byte, without those that [`decode`] tells apart itself.
fn one_byte(op: u8) -> u16 {
    match op {
        0x00..=0x3f => match op & 7 {
            0..=3 => MODRM,
            4 => IMM8,
            5 => IMMZ,
            _ => INVALID,
        },
        0x50..=0x5f => PLAIN,
        0x63 => MODRM,
        0x68 => IMMZ,
        0x69 => MODRM | IMMZ,
        0x6a => IMM8,
        0x6b => MODRM | IMM8,
        0x6c..=0x6f => PLAIN,
        0x70..=0x7f => IMM8 | FIXED, // jcc
        0x80 | 0x83 => MODRM | IMM8,
        0x81 => MODRM | IMMZ,
        0x84..=0x8f => MODRM,
        0x90..=0x99 | 0x9b..=0x9f => PLAIN,
        0xa0..=0xa3 => ADDRESS,
        0xa4..=0xa7 => PLAIN,
        0xa8 => IMM8,
        0xa9 => IMMZ,
        0xaa..=0xaf => PLAIN,
        0xb0..=0xb7 => IMM8,
        0xb8..=0xbf => IMMV,
        0xc0 | 0xc1 => MODRM | IMM8,
        0xc2 | 0xca => IMM16 | FIXED,       // ret, retf
        0xc3 | 0xcb | 0xcc | 0xcf => FIXED, // ret, retf, int3, iret
        0xc6 => MODRM | IMM8,
        0xc7 => MODRM | IMMZ,
        0xc8 => IMM16 | IMM8,
        0xc9 => PLAIN,
        0xcd => IMM8 | FIXED, // int
        0xd0..=0xd3 => MODRM,
        0xd7 => PLAIN,
        0xd8..=0xdf => MODRM,
        0xe0..=0xe3 | 0xeb => IMM8 | FIXED, // loop, jrcxz, jmp
        0xe4..=0xe7 => IMM8,
        0xe8 | 0xe9 => REL32 | FIXED, // call, jmp
        0xec..=0xef => PLAIN,
        0xf1 | 0xf4 => FIXED, // int1, hlt
        0xf5 | 0xf8..=0xfd => PLAIN,
        0xfe => MODRM,
        _ => INVALID,
    }
}

/// The opcodes after 0f.
fn two_byte(op: u8) -> u16 {
    match op {
        0x00..=0x03 | 0x0d => MODRM,
        0x05 | 0x07 | 0x0b => FIXED, // syscall, sysret, ud2
        0x06 | 0x08 | 0x09 | 0x0e => PLAIN,
        0x0f => MODRM | IMM8,
        0x10..=0x1f | 0x28..=0x2f => MODRM,
        0x30..=0x33 | 0x37 => PLAIN,
        0x34 | 0x35 => FIXED, // sysenter, sysexit
        0x40..=0x6f => MODRM,
        0x70..=0x73 => MODRM | IMM8,
        0x77 => PLAIN,
        0x74..=0x76 | 0x78 | 0x79 | 0x7c..=0x7f => MODRM,
        0x80..=0x8f => REL32 | FIXED, // jcc
        0x90..=0x9f => MODRM,
        0xa0..=0xa2 | 0xa8 | 0xa9 => PLAIN,
        0xaa => FIXED, // rsm
        0xa4 | 0xac | 0xba => MODRM | IMM8,
        0xa3 | 0xa5..=0xa7 | 0xab | 0xad..=0xb8 | 0xbb..=0xbf => MODRM,
        0xb9 | 0xff => MODRM | FIXED, // ud1, ud0
        0xc0 | 0xc1 | 0xc3 | 0xc7 => MODRM,
        0xc2 | 0xc4..=0xc6 => MODRM | IMM8,
        0xc8..=0xcf => PLAIN,
        0xd0..=0xfe => MODRM,
        _ => INVALID,
    }
}

/// The opcodes after a VEX or EVEX prefix, by the map that the prefix names.
fn vector(map: u8, op: u8) -> u16 {
    match (map, op) {
        (1, 0x77) => PLAIN,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => MODRM | IMM8,
        (1 | 2 | 5 | 6, _) => MODRM,
        _ => INVALID,
    }
}
