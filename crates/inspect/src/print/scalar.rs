//! Numbers, characters, enumerations, pointers.

use gimli::constants as c;

use protocol::id::Addr;

use super::text::{self, Unit};
use super::{Printer, float};
use crate::dwarf::Language;
use crate::target::read_string;
use crate::types::{Enumeration, Kind, Ty};
use crate::value::{Value, integer_from, is_signed};

impl Printer<'_> {
    pub(crate) fn scalar(&self, out: &mut String, value: &Value, ty: &Ty) {
        let process = self.inspector.process;
        let number = match &ty.kind {
            Kind::Void => {
                out.push_str("void");
                return;
            }
            Kind::Function { .. } => {
                if let Some(address) = value.address() {
                    self.address(out, address, true);
                }
                return;
            }
            Kind::Base(encoding) if value.bits.is_none() && is_float(*encoding) => {
                match value.bytes(process) {
                    Ok(bytes) => {
                        let quad = ty
                            .name
                            .as_deref()
                            .is_some_and(|n| n.contains("loat128"))
                            .then(|| float::quad(&bytes))
                            .flatten();
                        let text = quad.unwrap_or_else(|| show_float(&bytes, *encoding));
                        out.push_str(&text);
                    }
                    Err(e) => self.failed(out, &e),
                }
                return;
            }
            Kind::MemberPointer { .. } => {
                self.member_pointer(out, value, ty);
                return;
            }
            _ => value.integer(process),
        };
        let number = match number {
            Ok(number) => number,
            Err(e) => {
                self.failed(out, &e);
                return;
            }
        };
        match &ty.kind {
            Kind::Base(encoding) => self.base(out, number, *encoding, &value.ty, ty),
            Kind::Enum(e) => self.enumeration(out, number, e, ty),
            Kind::Pointer(to) => self.pointer(out, Addr(number as u64), &to.get()),
            _ => out.push_str(&number.to_string()),
        }
    }

    fn base(&self, out: &mut String, number: i128, encoding: gimli::DwAte, named: &Ty, ty: &Ty) {
        match encoding {
            c::DW_ATE_boolean => match number {
                0 => out.push_str("false"),
                1 => out.push_str("true"),
                other => out.push_str(&other.to_string()),
            },
            _ => {
                out.push_str(&number.to_string());
                let width = if self.options.language == Language::Rust && encoding != c::DW_ATE_UTF
                {
                    None
                } else {
                    text::width_of(named)
                };
                if let Some(width) = width {
                    let bits = (width * 8).min(64);
                    let raw = (number as u128 & ((1u128 << bits) - 1)) as u64;
                    let unit = if width == 1 && raw >= 0x80 {
                        Unit::Raw(raw)
                    } else {
                        u32::try_from(raw)
                            .ok()
                            .and_then(char::from_u32)
                            .map_or(Unit::Raw(raw), Unit::Char)
                    };
                    out.push(' ');
                    out.push_str(&if self.options.language == Language::Rust {
                        text::rust_character(raw)
                    } else {
                        text::character(unit, width, text::prefix_of(named))
                    });
                }
                let _ = ty;
            }
        }
    }

    pub(crate) fn enumeration(&self, out: &mut String, number: i128, e: &Enumeration, ty: &Ty) {
        let prefix = enumerator_prefix(e, ty);
        if let Some((name, _)) = e.constants.iter().find(|(_, v)| *v == number) {
            out.push_str(&format!("{prefix}{name}"));
            return;
        }
        if !e.flags || e.constants.is_empty() {
            out.push_str(&number.to_string());
            return;
        }
        if number == 0 {
            out.push('0');
            return;
        }
        let mut rest = number;
        let mut parts = Vec::new();
        for (name, value) in &e.constants {
            if *value != 0 && rest & value == *value {
                parts.push(format!("{prefix}{name}"));
                rest &= !value;
            }
        }
        if rest != 0 {
            parts.push(format!("unknown: {rest:#x}"));
        }
        out.push_str(&format!("({})", parts.join(" | ")));
    }

    fn pointer(&self, out: &mut String, address: Addr, to: &Ty) {
        let code = matches!(to.peeled().kind, Kind::Function { .. });
        self.address(out, address, code);
        let rust = self.options.language == Language::Rust;
        if rust
            && let Kind::Array { element, .. } = &to.peeled().kind
            && element.get().name.as_deref() == Some("u8")
        {
            out.push(' ');
            self.print(out, &Value::in_memory(to.clone(), address), 1);
        }
        let width = if rust { None } else { text::width_of(to) };
        if let Some(width) = width
            && !address.is_null()
            && !code
        {
            out.push(' ');
            self.string_at(out, address, width, text::prefix_of(to));
        }
    }

    /// An address, with the symbol it belongs to.
    pub(crate) fn address(&self, out: &mut String, address: Addr, code: bool) {
        out.push_str(&format!("{address:#x}"));
        if (self.options.symbols || code)
            && let Some(name) = self.inspector.symbolize(address)
        {
            out.push_str(&format!(" <{name}>"));
        }
    }

    /// The string at an address.
    pub(crate) fn string_at(&self, out: &mut String, address: Addr, width: u64, prefix: &str) {
        let process = self.inspector.process;
        let limit = self.options.elements;
        if width == 1 {
            match read_string(process, address, limit + 1) {
                Ok(mut bytes) => {
                    let more = bytes.len() > limit;
                    bytes.truncate(limit);
                    // What ends because memory does says so.
                    out.push_str(&text::string(
                        &bytes,
                        1,
                        prefix,
                        limit,
                        self.options.repeats,
                        more,
                    ));
                    let end = address.plus(bytes.len() as u64);
                    let mut byte = [0u8; 1];
                    if !more && process.read(end, &mut byte) == 0 {
                        out.push_str(&format!(
                            "<error: Cannot access memory at address {end:#x}>"
                        ));
                    }
                }
                Err(e) => out.push_str(&format!("<error: {e}>")),
            }
            return;
        }
        let mut bytes = Vec::new();
        let mut more = true;
        for at in 0..limit as u64 {
            let mut one = vec![0; width as usize];
            let place = address.plus(at * width);
            if process.read(place, &mut one) < one.len() {
                out.push_str(&format!(
                    "<error: Cannot access memory at address {place:#x}>"
                ));
                return;
            }
            if one.iter().all(|b| *b == 0) {
                more = false;
                break;
            }
            bytes.extend_from_slice(&one);
        }
        out.push_str(&text::string(
            &bytes,
            width,
            prefix,
            limit,
            self.options.repeats,
            more,
        ));
    }

    fn member_pointer(&self, out: &mut String, value: &Value, ty: &Ty) {
        let Kind::MemberPointer { class, target } = &ty.kind else {
            return;
        };
        let bytes = match value.bytes(self.inspector.process) {
            Ok(bytes) => bytes,
            Err(e) => {
                self.failed(out, &e);
                return;
            }
        };
        let word = integer_from(bytes.get(..8).unwrap_or(&[]), true);
        if matches!(target.get().peeled().kind, Kind::Function { .. }) {
            let adjustment = integer_from(bytes.get(8..16).unwrap_or(&[]), true);
            if word == 0 {
                out.push_str("NULL");
                return;
            }
            if word & 1 == 1 {
                match virtual_method(&class.get(), (word - 1) as u64 / 8) {
                    Some(name) => out.push_str(&format!("&virtual {name}")),
                    None => out.push_str(&format!("&virtual table offset {}", word - 1)),
                }
            } else {
                out.push('(');
                out.push_str(&crate::types::name_of(ty));
                out.push_str(") ");
                self.address(out, Addr(word as u64), true);
            }
            if adjustment != 0 {
                out.push_str(&format!(", this adjustment {adjustment}"));
            }
            return;
        }
        if word == -1 {
            out.push_str("NULL");
            return;
        }
        let class = class.get();
        let member = class.aggregate().and_then(|a| {
            a.members.into_iter().find(|m| {
                matches!(m.place, crate::types::MemberLocation::Offset(o) if i128::from(o) == word)
                    && m.fixed.is_none()
                    && !m.base
            })
        });
        match member.and_then(|m| m.name) {
            Some(name) => {
                out.push_str(&format!("&{}::{name}", crate::types::name_of(&class)));
            }
            None => out.push_str(&word.to_string()),
        }
    }

    /// A number in the format of a letter.
    pub(crate) fn formatted(&self, out: &mut String, value: &Value, ty: &Ty, format: char) {
        let process = self.inspector.process;
        let bytes = match value.bits {
            Some(_) => value
                .integer(process)
                .map(|v| v.to_le_bytes().get(..8).unwrap_or(&[]).to_vec()),
            None => value.bytes(process),
        };
        match bytes {
            Ok(bytes) => {
                let signed = is_signed(ty);
                let float = matches!(ty.kind, Kind::Base(e) if is_float(e));
                let text =
                    crate::examine::format_scalar(self.inspector, &bytes, format, signed, float);
                out.push_str(&text);
            }
            Err(e) => self.failed(out, &e),
        }
    }
}

/// The function at an index of a class's virtual table.
fn virtual_method(class: &Ty, index: u64) -> Option<String> {
    let class = class.peeled().complete();
    class.die?.children().into_iter().find_map(|entry| {
        let gimli::AttributeValue::Exprloc(place) = entry.value(c::DW_AT_vtable_elem_location)?
        else {
            return None;
        };
        // `DW_OP_constu N`
        let here = match place.0.slice() {
            [0x10, n] => u64::from(*n),
            [op @ 0x30..=0x4f] => u64::from(op - 0x30),
            _ => return None,
        };
        let symbol = entry.linkage_name()?;
        (here == index).then(|| crate::elf::demangle::demangle(symbol).into_owned())
    })
}

pub(crate) fn is_float(encoding: gimli::DwAte) -> bool {
    matches!(
        encoding,
        c::DW_ATE_float | c::DW_ATE_complex_float | c::DW_ATE_imaginary_float
    )
}

fn show_float(bytes: &[u8], encoding: gimli::DwAte) -> String {
    let shown = |part: &[u8]| float::show(part).unwrap_or_else(|| "<invalid float value>".into());
    if encoding == c::DW_ATE_complex_float {
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        return format!("{} + {}i", shown(real), shown(imaginary));
    }
    shown(bytes)
}

/// The path before the names of an enumeration's constants.
fn enumerator_prefix(e: &Enumeration, ty: &Ty) -> String {
    let Some(name) = &ty.name else {
        return String::new();
    };
    match ty.language {
        Language::Cpp if e.scoped => format!("{name}::"),
        Language::Rust => format!("{name}::"),
        // Constants are beside their enumeration.
        Language::Cpp => match name.rfind("::") {
            Some(at) if !name.ends_with('>') => name.get(..at + 2).unwrap_or("").to_string(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}
