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
    if width == 2 {
        let pairs = bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&pair| u16::from_le_bytes(pair));
        return char::decode_utf16(pairs)
            .map(|decoded| {
                decoded.map_or_else(
                    |alone| Unit::Raw(u64::from(alone.unpaired_surrogate())),
                    Unit::Char,
                )
            })
            .collect();
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

/// What gdb takes from the C library's `iswprint`: all that Unicode has assigned, but for controls
/// and separators of lines and paragraphs.
fn printable(c: char) -> bool {
    use unicode_general_category::GeneralCategory as Is;
    !matches!(
        unicode_general_category::get_general_category(c),
        Is::Control | Is::Unassigned | Is::Surrogate | Is::LineSeparator | Is::ParagraphSeparator
    )
}

/// The numbers that a character is made of in an encoding with units of this many bytes.
fn code_units(c: char, width: u64) -> Vec<u64> {
    match width {
        1 => c.encode_utf8(&mut [0; 4]).bytes().map(u64::from).collect(),
        2 => c
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|&unit| u64::from(unit))
            .collect(),
        _ => vec![u64::from(u32::from(c))],
    }
}

fn push_number(out: &mut String, value: u64, after_number: &mut bool) {
    if value <= 0o777 {
        out.push_str(&format!("\\{value:03o}"));
    } else {
        out.push_str(&format!("\\x{value:x}"));
        *after_number = true;
    }
}

fn push_unit(out: &mut String, unit: Unit, width: u64, quote: char, after_number: &mut bool) {
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
                for value in code_units(c, width) {
                    push_number(out, value, after_number);
                }
            }
        },
        Unit::Raw(value) => push_number(out, value, after_number),
    }
}

/// A single character in quotes.
pub fn character(unit: Unit, width: u64, prefix: &str) -> String {
    let mut out = format!("{prefix}'");
    push_unit(&mut out, unit, width, '\'', &mut false);
    out.push('\'');
    out
}

/// A `char` of Rust in quotes, as its source would have it.
pub fn rust_character(value: u64) -> String {
    let known = u32::try_from(value).ok().and_then(char::from_u32);
    let inside = match known {
        Some(c @ ('\\' | '\'')) => format!("\\{c}"),
        Some('\n') => "\\n".to_string(),
        Some('\r') => "\\r".to_string(),
        Some('\t') => "\\t".to_string(),
        Some('\0') => "\\0".to_string(),
        Some(c) if printable(c) => c.to_string(),
        _ if value <= 0xff => format!("\\x{value:02x}"),
        _ => format!("\\u{{{value:06x}}}"),
    };
    format!("'{inside}'")
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
            out.push_str(&character(unit, width, prefix));
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
                push_unit(&mut out, unit, width, '"', &mut after_number);
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
    use super::{rust_character, string};

    #[test]
    fn characters_of_rust_are_as_its_source_has_them() {
        let cases = [
            (0, "'\\0'"),
            (7, "'\\x07'"),
            (39, "'\\''"),
            (65, "'A'"),
            (0xdf, "'ß'"),
            (0x5555, "'啕'"),
            (0xd800, "'\\u{00d800}'"),
            (0xffff_ffff, "'\\u{ffffffff}'"),
        ];
        for (value, shown) in cases {
            assert_eq!(rust_character(value), shown);
        }
    }

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
        assert_eq!(show("\u{2d73}7b".as_bytes()), r#""\342\265\2637b""#);
    }

    #[test]
    fn wide_strings_are_as_gdb_has_them() {
        let wide = |text: &[u16]| {
            let bytes: Vec<u8> = text.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            string(&bytes, 2, "u", 200, 10, false)
        };
        // Nothing has been assigned to the first; a digit behind its number would belong to it.
        assert_eq!(
            wide(&[0x2d73, 0x37, 1, 0x37, 0x61, 0x2d73, 0x62]),
            r#"u"\x2d73\067\0017a\x2d73\142""#
        );
        assert_eq!(
            wide(&[0xd83d, 0xde00, 0x61, 0xd800, 0x62]),
            r#"u"😀a\xd800\142""#
        );
    }
}
