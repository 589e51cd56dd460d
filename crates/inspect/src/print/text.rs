//! Characters and strings: escapes, repeats, widths.

use gimli::constants as c;

use crate::types::{Kind, Ty};

/// The width in bytes of the characters that a type is of, if it is of
/// characters.
pub fn width_of(ty: &Ty) -> Option<u64> {
    // Wide characters are known by their other names.
    let mut at = ty.clone();
    for _ in 0..16 {
        if let Some(name) = &at.name
            && matches!(name.as_str(), "wchar_t" | "char16_t" | "char32_t")
        {
            return at.size_of();
        }
        at = match &at.kind {
            Kind::Typedef(to) | Kind::Qualified(_, to) => to.get(),
            Kind::Base(c::DW_ATE_signed_char | c::DW_ATE_unsigned_char | c::DW_ATE_UTF) => {
                return at.size_of();
            }
            _ => return None,
        };
    }
    None
}

/// `L`, `u`, `U` or nothing, before a literal of such characters.
pub fn prefix_of(ty: &Ty) -> &'static str {
    let mut at = ty.clone();
    for _ in 0..16 {
        match at.name.as_deref() {
            Some("wchar_t") => return "L",
            Some("char16_t") => return "u",
            Some("char32_t") => return "U",
            _ => {}
        }
        at = match &at.kind {
            Kind::Typedef(to) | Kind::Qualified(_, to) => to.get(),
            _ => return "",
        };
    }
    ""
}

/// A character of a string, decoded or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Decoded.
    Char(char),
    /// Bytes that are none, as one number.
    Raw(u64),
}

/// Decodes bytes as characters of a width.
pub fn decode(bytes: &[u8], width: u64) -> Vec<Unit> {
    let mut units = Vec::new();
    if width == 1 {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let len = match first {
                0..=0x7f => 1,
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 0,
            };
            let decoded = rest
                .get(..len)
                .filter(|_| len > 0)
                .and_then(|b| std::str::from_utf8(b).ok())
                .and_then(|s| s.chars().next());
            match decoded {
                Some(found) => {
                    units.push(Unit::Char(found));
                    rest = rest.get(len..).unwrap_or(&[]);
                }
                None => {
                    units.push(Unit::Raw(u64::from(first)));
                    rest = rest.get(1..).unwrap_or(&[]);
                }
            }
        }
        return units;
    }
    for chunk in bytes.chunks_exact((width as usize).max(1)) {
        let value = crate::value::integer_from(chunk, false) as u64;
        let unit = u32::try_from(value)
            .ok()
            .and_then(char::from_u32)
            .map_or(Unit::Raw(value), Unit::Char);
        units.push(unit);
    }
    units
}

fn printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{fff9}'..='\u{ffff}' | '\u{e000}'..='\u{f8ff}')
        && (c as u32) < 0xe_0000
}

fn push_unit(out: &mut String, unit: Unit, quote: char, after_number: &mut bool) {
    let was = std::mem::take(after_number);
    match unit {
        Unit::Char(c) => match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c == quote || c == '\\' => {
                out.push('\\');
                out.push(c);
            }
            // A digit behind a number would become part of it.
            c if printable(c) && !(was && c.is_ascii_hexdigit()) => out.push(c),
            c => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("\\{byte:03o}"));
                }
            }
        },
        Unit::Raw(value) => {
            if value <= 0o777 {
                out.push_str(&format!("\\{value:03o}"));
            } else {
                out.push_str(&format!("\\x{value:x}"));
                *after_number = true;
            }
        }
    }
}

/// A single character in quotes.
pub fn character(unit: Unit, prefix: &str) -> String {
    let mut out = format!("{prefix}'");
    push_unit(&mut out, unit, '\'', &mut false);
    out.push('\'');
    out
}

/// A string in quotes, with runs of equal characters counted.
pub fn string(
    bytes: &[u8],
    width: u64,
    prefix: &str,
    elements: usize,
    repeats: usize,
    more: bool,
) -> String {
    let units = decode(bytes, width);
    if units.is_empty() {
        return format!("{prefix}\"\"{}", if more { "..." } else { "" });
    }
    let mut out = String::new();
    let mut open = false;
    let mut shown = 0;
    let mut after_number = false;
    let mut rest = units.as_slice();
    let mut first = true;
    while let Some(&unit) = rest.first() {
        if shown >= elements {
            break;
        }
        let run = rest.iter().take_while(|u| **u == unit).count();
        if run > repeats {
            if open {
                out.push('"');
                open = false;
            }
            if !first {
                out.push_str(", ");
            }
            out.push_str(&character(unit, prefix));
            out.push_str(&format!(" <repeats {run} times>"));
            shown += run;
            after_number = false;
            rest = rest.get(run..).unwrap_or(&[]);
        } else {
            if !open {
                if !first {
                    out.push_str(", ");
                }
                out.push_str(prefix);
                out.push('"');
                open = true;
                after_number = false;
            }
            let run = run.min(elements - shown);
            for _ in 0..run {
                push_unit(&mut out, unit, '"', &mut after_number);
            }
            shown += run;
            rest = rest.get(run..).unwrap_or(&[]);
        }
        first = false;
    }
    if open {
        out.push('"');
    }
    if !rest.is_empty() || more {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::string;

    #[test]
    fn strings_are_as_gdb_has_them() {
        let show = |bytes: &[u8]| string(bytes, 1, "", 200, 10, false);
        assert_eq!(show(b"a\n\"\\"), r#""a\n\"\\""#);
        assert_eq!(show(&[0; 16]), r"'\000' <repeats 16 times>");
        assert_eq!(show(b"\x001"), r#""\0001""#);
        assert_eq!(
            show(b"abxxxxxxxxxxxxc"),
            r#""ab", 'x' <repeats 12 times>, "c""#
        );
        assert_eq!(show("☺".as_bytes()), "\"☺\"");
        assert_eq!(show(&[0xff, b'a']), r#""\377a""#);
    }
}
