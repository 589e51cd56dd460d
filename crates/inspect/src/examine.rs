//! Memory and numbers in the formats of `x` and `print/F`.

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
            let address = unsigned as u64;
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
            format!("{number} {}", text::character(unit, ""))
        }
        'f' => float::show(bytes)
            .filter(|_| is_float || matches!(bytes.len(), 4 | 8 | 10 | 16))
            .unwrap_or_else(|| integer_from(bytes, signed).to_string()),
        _ => integer_from(bytes, signed).to_string(),
    }
}
