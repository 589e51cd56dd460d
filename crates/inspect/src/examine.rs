//! Memory and numbers in the formats of `x` and `print/F`.

use protocol::id::Addr;

use crate::error::{Error, Result};
use crate::inspector::Inspector;
use crate::print::{float, text};
use crate::value::integer_from;

/// A number in the format of a letter: gdb's `x d u o t z a c f s`.
pub fn format_scalar(
    inspector: &Inspector<'_>,
    bytes: &[u8],
    format: char,
    signed: bool,
    is_float: bool,
) -> String {
    let unsigned = integer_from(bytes, false) as u128;
    match format {
        'x' => format!("{unsigned:#x}"),
        'z' => format!("0x{unsigned:0width$x}", width = bytes.len() * 2),
        'o' if unsigned == 0 => "0".to_string(),
        'o' => format!("0{unsigned:o}"),
        't' => format!("{unsigned:b}"),
        'd' => integer_from(bytes, true).to_string(),
        'u' => unsigned.to_string(),
        'a' => {
            let address = Addr(unsigned as u64);
            match inspector.symbolize(address) {
                Some(name) => format!("{address:#x} <{name}>"),
                None => format!("{address:#x}"),
            }
        }
        'c' => {
            let byte = unsigned as u8;
            let number = if signed || bytes.len() == 1 {
                integer_from(bytes, true).to_string()
            } else {
                unsigned.to_string()
            };
            let unit = if byte < 0x80 {
                text::Unit::Char(char::from(byte))
            } else {
                text::Unit::Raw(u64::from(byte))
            };
            format!("{number} {}", text::character(unit, 1, ""))
        }
        'f' => float::show(bytes)
            .filter(|_| is_float || matches!(bytes.len(), 4 | 8 | 10 | 16))
            .unwrap_or_else(|| integer_from(bytes, signed).to_string()),
        _ => integer_from(bytes, signed).to_string(),
    }
}

/// What `x/FMT` asks for: how many, which letter, how wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// How many units.
    pub count: usize,
    /// One of `x d u o t z a c f s i`.
    pub letter: char,
    /// Bytes in a unit: 1, 2, 4 or 8.
    pub size: usize,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            count: 1,
            letter: 'x',
            size: 4,
        }
    }
}

impl Format {
    /// Reads what stands behind the `/`: `20xb`, `s`, `4gx`. Letters and
    /// sizes in any order; what is not said stays as it was in `last`.
    pub fn parse(text: &str, last: Format) -> Result<Self> {
        let mut format = Format { count: 1, ..last };
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        if !digits.is_empty() {
            format.count = digits
                .parse()
                .ok()
                .filter(|n| *n <= 1 << 20)
                .ok_or_else(|| Error::other(format!("Invalid number \"{digits}\".")))?;
        }
        let mut sized = false;
        for c in text.chars().skip(digits.len()) {
            match c {
                'b' => format.size = 1,
                'h' => format.size = 2,
                'w' => format.size = 4,
                'g' => format.size = 8,
                'x' | 'd' | 'u' | 'o' | 't' | 'z' | 'a' | 'c' | 'f' | 's' | 'i' => {
                    format.letter = c
                }
                _ => return Err(Error::other(format!("Undefined output format \"{c}\"."))),
            }
            sized |= matches!(c, 'b' | 'h' | 'w' | 'g');
        }
        if !sized {
            match format.letter {
                'a' => format.size = 8,
                'c' => format.size = 1,
                'f' if format.size < 4 => format.size = 8,
                's' => format.size = 1,
                _ => {}
            }
        }
        Ok(format)
    }

    /// How many units stand on one line.
    fn per_line(self) -> usize {
        match self.letter {
            's' | 'i' => 1,
            'c' => 8,
            'a' => 2,
            't' => match self.size {
                1 => 8,
                2 => 8,
                4 => 2,
                _ => 1,
            },
            _ => match self.size {
                1 | 2 => 8,
                4 => 4,
                _ => 2,
            },
        }
    }
}

impl Inspector<'_> {
    /// The lines of `x/FMT ADDRESS`, and the address behind what was shown.
    pub fn examine(&self, address: Addr, format: Format) -> Result<(Vec<String>, Addr)> {
        let mut lines = Vec::new();
        let mut at = address;
        match format.letter {
            'i' => {
                for line in self.disassemble(address, format.count) {
                    lines.push(format!("   {}:\t{}", self.label(line.address), line.text));
                    at = line.address.plus(line.bytes.len() as u64);
                }
                if lines.is_empty() && format.count > 0 {
                    return Err(Error::Memory { address });
                }
            }
            's' => {
                for _ in 0..format.count {
                    let bytes = crate::target::read_string(self.process, at, 200)?;
                    let more = bytes.len() == 200;
                    let text = text::string(&bytes, 1, "", 200, 10, more);
                    lines.push(format!("{}:\t{text}", self.label(at)));
                    at = at.plus(bytes.len() as u64 + u64::from(!more));
                }
            }
            letter => {
                let mut left = format.count;
                while left > 0 {
                    let mut line = format!("{}:", self.label(at));
                    for _ in 0..left.min(format.per_line()) {
                        let mut bytes = vec![0; format.size];
                        crate::target::read_exact(self.process, at, &mut bytes)?;
                        line.push('\t');
                        line.push_str(&self.padded(&bytes, letter));
                        at = at.plus(format.size as u64);
                        left -= 1;
                    }
                    lines.push(line);
                }
            }
        }
        Ok((lines, at))
    }

    fn label(&self, address: Addr) -> String {
        match self.symbolize(address) {
            Some(name) => format!("{address:#x} <{name}>"),
            None => format!("{address:#x}"),
        }
    }

    /// A unit of memory: hexadecimal and binary numbers are padded.
    fn padded(&self, bytes: &[u8], letter: char) -> String {
        let value = integer_from(bytes, false) as u128;
        match letter {
            'x' => format!("0x{value:0width$x}", width = bytes.len() * 2),
            't' => format!("{value:0width$b}", width = bytes.len() * 8),
            letter => format_scalar(self, bytes, letter, true, letter == 'f'),
        }
    }
}
