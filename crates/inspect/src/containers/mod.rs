//! Containers of the standard libraries, shown as what they hold.
//!
//! A container is known by the name of its type and by having the members
//! that its reader expects; one whose members are others (another version of
//! a library) is shown as the plain structure it is. Nothing is believed: a
//! length is cut at the number of elements that are shown anyway, and links
//! are followed only so far.

mod cpp;
mod rust;

use crate::dwarf::Language;
use crate::inspector::Inspector;
use crate::print::Printer;
use crate::types::{Kind, Ty};
use crate::value::Value;

/// How a container is shown, if it is one that is known.
pub(crate) fn show(printer: &Printer<'_>, value: &Value, ty: &Ty, depth: usize) -> Option<String> {
    let name = ty.name.as_deref()?;
    // Of unions, one is known: memory that may not hold its value yet.
    let is_known = matches!(ty.kind, Kind::Struct(_)) || rust::is_wrapper(name);
    if depth >= printer.options.depth || !is_known {
        return None;
    }
    match ty.language {
        Language::Rust => rust::show(printer, value, ty, name, depth),
        Language::Cpp => cpp::show(printer, value, ty, name, depth),
        _ => None,
    }
}

/// Type of the elements, address of the first, and number, of a container
/// whose elements lie in a row.
pub(crate) fn sequence(inspector: &Inspector<'_>, value: &Value) -> Option<(Ty, u64, u64)> {
    let ty = value.ty.peeled().complete();
    let name = ty.name.as_deref()?;
    match ty.language {
        Language::Rust => rust::sequence(inspector, value, &ty, name),
        Language::Cpp => cpp::sequence(inspector, value, &ty, name),
        _ => None,
    }
}

/// The text of a string of any language, of at most `limit` bytes.
pub(crate) fn text_of(inspector: &Inspector<'_>, value: &Value, limit: usize) -> Option<Vec<u8>> {
    let process = inspector.process;
    let ty = value.ty.peeled().complete();
    match &ty.kind {
        Kind::Pointer(to) => {
            crate::print::text::width_of(&to.get()).filter(|w| *w == 1)?;
            let address = value.pointer(process).ok()?;
            crate::target::read_string(process, address, limit).ok()
        }
        Kind::Array { .. } => {
            let mut bytes = value.bytes(process).ok()?;
            if let Some(end) = bytes.iter().position(|b| *b == 0) {
                bytes.truncate(end);
            }
            bytes.truncate(limit);
            Some(bytes)
        }
        _ => {
            let (_, start, length) = sequence(inspector, value)?;
            let mut bytes = vec![0; (length as usize).min(limit)];
            crate::target::read_exact(process, start, &mut bytes).ok()?;
            Some(bytes)
        }
    }
}

/// `{a, b, ...}` of at most as many elements as are shown, with runs of equal
/// ones counted.
fn list(
    printer: &Printer<'_>,
    elements: impl Iterator<Item = String>,
    count: u64,
    open: char,
    close: char,
) -> String {
    // Counting a gigabyte of zeros is of no use.
    const LONGEST: usize = 1 << 14;
    let (limit, repeats) = (printer.options.elements, printer.options.repeats);
    let mut elements = elements.take(LONGEST).peekable();
    let mut parts: Vec<String> = Vec::new();
    let (mut seen, mut room) = (0u64, limit);
    while room > 0
        && let Some(element) = elements.next()
    {
        let mut run = 1usize;
        while elements.next_if_eq(&element).is_some() {
            run += 1;
        }
        if run > repeats {
            parts.push(format!("{element} <repeats {run} times>"));
            seen += run as u64;
            room = room.saturating_sub(repeats);
        } else {
            let shown = run.min(room);
            parts.extend(std::iter::repeat_n(element, shown));
            seen += shown as u64;
            room -= shown;
        }
    }
    if count > seen {
        parts.push("...".to_string());
    }
    format!("{open}{}{close}", parts.join(", "))
}

fn shown(printer: &Printer<'_>, value: &Value, depth: usize) -> String {
    let mut text = String::new();
    printer.print(&mut text, value, depth + 1);
    text
}
