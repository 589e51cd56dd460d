//! The containers of libstdc++.

use super::{list, shown};
use crate::inspector::Inspector;
use crate::print::{Printer, text};
use crate::target::read_u64;
use crate::types::{Kind, Ty};
use crate::value::Value;

/// The name without the library's inner namespaces.
fn plain(name: &str) -> String {
    name.replace("std::__cxx11::", "std::")
        .replace("std::__debug::", "std::")
}

fn is(name: &str, path: &str) -> bool {
    name.strip_prefix(path)
        .is_some_and(|rest| rest.starts_with('<'))
}

fn argument(ty: &Ty, at: usize) -> Option<Ty> {
    Some(ty.aggregate()?.arguments.get(at)?.ty.get())
}

pub(super) fn sequence(
    inspector: &Inspector<'_>,
    value: &Value,
    ty: &Ty,
    name: &str,
) -> Option<(Ty, u64, u64)> {
    let process = inspector.process;
    let name = plain(name);
    let word = |v: &Value, n: &str| v.inside(process, n)?.pointer(process).ok();
    if is(&name, "std::vector") {
        let element = argument(ty, 0)?;
        if element.name.as_deref() == Some("bool") {
            return None;
        }
        let (start, end) = (word(value, "_M_start")?, word(value, "_M_finish")?);
        let size = element.size_of().filter(|s| *s > 0)?;
        return Some((element, start, end.checked_sub(start)? / size));
    }
    if is(&name, "std::basic_string") {
        let element = argument(ty, 0)?;
        let start = word(value, "_M_p")?;
        let length = word(value, "_M_string_length")?;
        return Some((element, start, length));
    }
    if is(&name, "std::basic_string_view") {
        return Some((
            argument(ty, 0)?,
            word(value, "_M_str")?,
            word(value, "_M_len")?,
        ));
    }
    if is(&name, "std::array") {
        let elements = value.inside(process, "_M_elems")?;
        return Some((argument(ty, 0)?, elements.address()?, elements.count()?));
    }
    None
}

pub(super) fn show(
    printer: &Printer<'_>,
    value: &Value,
    ty: &Ty,
    name: &str,
    depth: usize,
) -> Option<String> {
    let inspector = printer.inspector;
    let process = inspector.process;
    let short = plain(name);
    let word = |v: &Value, n: &str| v.inside(process, n)?.pointer(process).ok();
    if is(&short, "std::basic_string") || is(&short, "std::basic_string_view") {
        let (element, start, length) = sequence(inspector, value, ty, name)?;
        let width = text::width_of(&element)?;
        let limit = (printer.options.elements as u64).min(length);
        let mut bytes = vec![0; usize::try_from(limit.checked_mul(width)?).ok()?];
        if process.read(start, &mut bytes) < bytes.len() {
            return None;
        }
        return Some(text::string(
            &bytes,
            width,
            text::prefix_of(&element),
            printer.options.elements,
            printer.options.repeats,
            length > limit,
        ));
    }
    if let Some((element, start, count)) = sequence(inspector, value, ty, name) {
        // An object that is not made yet has any bytes.
        if count > 1 << 32 {
            return None;
        }
        let size = element.size_of()?;
        let items = (0..count).map(|i| {
            let item = Value::in_memory(element.clone(), start.wrapping_add(i.wrapping_mul(size)));
            shown(printer, &item, depth)
        });
        let items = list(printer, items, count, '{', '}');
        if is(&short, "std::array") {
            return Some(items);
        }
        let end = word(value, "_M_end_of_storage")?;
        let capacity = end.checked_sub(start)? / size.max(1);
        return Some(format!(
            "std::vector of length {count}, capacity {capacity} = {items}"
        ));
    }
    if is(&short, "std::deque") {
        return deque(printer, value, ty, depth);
    }
    if is(&short, "std::list") {
        return linked(printer, value, ty, depth);
    }
    for (path, word, set) in [
        ("std::map", "std::map", false),
        ("std::multimap", "std::multimap", false),
        ("std::set", "std::set", true),
        ("std::multiset", "std::multiset", true),
    ] {
        if is(&short, path) {
            return tree(printer, value, ty, word, set, depth);
        }
    }
    for (path, set) in [
        ("std::unordered_map", false),
        ("std::unordered_multimap", false),
        ("std::unordered_set", true),
        ("std::unordered_multiset", true),
    ] {
        if is(&short, path) {
            return hash_table(printer, value, ty, path, set, depth);
        }
    }
    if is(&short, "std::optional") {
        let engaged = value.inside(process, "_M_engaged")?.integer(process).ok()? != 0;
        return Some(if engaged {
            let inner = value.inside(process, "_M_value")?;
            format!("std::optional = {{{}}}", shown(printer, &inner, depth))
        } else {
            "std::optional [no contained value]".to_string()
        });
    }
    if is(&short, "std::unique_ptr") {
        let pointer = find_pointer(inspector, value, 8)?;
        return Some(format!(
            "std::unique_ptr = {{get() = {}}}",
            shown(printer, &pointer, depth)
        ));
    }
    if is(&short, "std::shared_ptr") || is(&short, "std::weak_ptr") {
        let pointer = value.inside(process, "_M_ptr")?;
        let word = if is(&short, "std::shared_ptr") {
            "shared_ptr"
        } else {
            "weak_ptr"
        };
        let block = value.inside(process, "_M_refcount")?;
        let counts = block
            .inside(process, "_M_pi")
            .and_then(|p| p.target(process).ok());
        let uses = counts
            .and_then(|c| c.inside(process, "_M_use_count"))
            .and_then(|c| c.integer(process).ok())
            .unwrap_or(0);
        return Some(format!(
            "std::{word} (use count {uses}) = {{get() = {}}}",
            shown(printer, &pointer, depth)
        ));
    }
    if is(&short, "std::pair") {
        let (first, second) = (
            value.inside(process, "first")?,
            value.inside(process, "second")?,
        );
        return Some(format!(
            "{{first = {}, second = {}}}",
            shown(printer, &first, depth),
            shown(printer, &second, depth)
        ));
    }
    if is(&short, "std::tuple") {
        let mut parts = Vec::new();
        heads(printer, value, depth, 16, &mut parts);
        return Some(format!("std::tuple containing = {{{}}}", parts.join(", ")));
    }
    if is(&short, "std::variant") {
        let index = value.inside(process, "_M_index")?.integer(process).ok()?;
        let Some(inner) = usize::try_from(index).ok().and_then(|i| argument(ty, i)) else {
            return Some("std::variant [no contained value]".to_string());
        };
        let storage = value.inside(process, "_M_u")?;
        let held = storage.part(inner, 0);
        return Some(format!(
            "std::variant [index {index}] = {{{}}}",
            shown(printer, &held, depth)
        ));
    }
    None
}

fn find_pointer(inspector: &Inspector<'_>, value: &Value, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    if let Kind::Pointer(_) = value.ty.peeled().kind {
        return Some(value.clone());
    }
    value.ty.aggregate()?.members.iter().find_map(|m| {
        let part = value.member(inspector.process, m).ok()?;
        find_pointer(inspector, &part, depth)
    })
}

/// The elements of a tuple, which are one base class inside of another.
fn heads(printer: &Printer<'_>, value: &Value, depth: usize, left: usize, out: &mut Vec<String>) {
    let Some(left) = left.checked_sub(1) else {
        return;
    };
    let Some(aggregate) = value.ty.aggregate() else {
        return;
    };
    let process = printer.inspector.process;
    let mut rest = None;
    for member in aggregate.members.iter().filter(|m| m.base) {
        let Ok(part) = value.member(process, member) else {
            continue;
        };
        let name = part.ty.name.clone().unwrap_or_default();
        if name.contains("_Head_base<") {
            match part.inside(process, "_M_head_impl") {
                Some(head) => {
                    out.push(format!(
                        "[{}] = {}",
                        out.len(),
                        shown(printer, &head, depth)
                    ));
                }
                None => out.push(format!("[{}] = {{}}", out.len())),
            }
        } else {
            rest = Some(part);
        }
    }
    if let Some(rest) = rest {
        heads(printer, &rest, depth, left, out);
    }
}

fn deque(printer: &Printer<'_>, value: &Value, ty: &Ty, depth: usize) -> Option<String> {
    let process = printer.inspector.process;
    let element = argument(ty, 0)?;
    let size = element.size_of().filter(|s| *s > 0)?;
    let per_block = if size < 512 { 512 / size } else { 1 };
    let start = value.inside(process, "_M_start")?;
    let finish = value.inside(process, "_M_finish")?;
    let word = |v: &Value, n: &str| v.inside(process, n)?.pointer(process).ok();
    let (first, cur, node) = (
        word(&start, "_M_first")?,
        word(&start, "_M_cur")?,
        word(&start, "_M_node")?,
    );
    let (last_first, last_cur, last_node) = (
        word(&finish, "_M_first")?,
        word(&finish, "_M_cur")?,
        word(&finish, "_M_node")?,
    );
    let offset = cur.checked_sub(first)? / size;
    let blocks = last_node.checked_sub(node)? / 8;
    let count =
        (blocks * per_block + last_cur.checked_sub(last_first)? / size).checked_sub(offset)?;
    if count > 1 << 32 {
        return None;
    }
    let items = (0..count).map(|i| {
        let at = i + offset;
        match read_u64(process, node.wrapping_add(at / per_block * 8)) {
            Ok(block) => {
                let place = block.wrapping_add(at % per_block * size);
                shown(printer, &Value::in_memory(element.clone(), place), depth)
            }
            Err(e) => format!("<error: {e}>"),
        }
    });
    Some(format!(
        "std::deque with {count} elements = {}",
        list(printer, items, count, '{', '}')
    ))
}

fn linked(printer: &Printer<'_>, value: &Value, ty: &Ty, depth: usize) -> Option<String> {
    let process = printer.inspector.process;
    let element = argument(ty, 0)?;
    let head = value.inside(process, "_M_node")?;
    // The bytes may be here only; the list's end is its own address.
    let mut at = head.inside(process, "_M_next")?.pointer(process).ok()?;
    let size = head
        .inside(process, "_M_size")
        .and_then(|v| v.integer(process).ok());
    let count = u64::try_from(size?).ok()?;
    let mut items = Vec::new();
    for _ in 0..count.min(printer.options.elements as u64) {
        // A node is two links and the element.
        let place = at.wrapping_add(16u64.next_multiple_of(8));
        items.push(shown(
            printer,
            &Value::in_memory(element.clone(), place),
            depth,
        ));
        at = read_u64(process, at).ok()?;
    }
    Some(format!(
        "std::list = {}",
        list(printer, items.into_iter(), count, '{', '}')
    ))
}

/// In the order of a search tree: left, the node, right.
fn tree(
    printer: &Printer<'_>,
    value: &Value,
    ty: &Ty,
    word: &str,
    set: bool,
    depth: usize,
) -> Option<String> {
    let process = printer.inspector.process;
    let count = u64::try_from(
        value
            .inside(process, "_M_node_count")?
            .integer(process)
            .ok()?,
    )
    .ok()?;
    let header = value.inside(process, "_M_header")?;
    let mut at = header.inside(process, "_M_left")?.pointer(process).ok()?;
    let (key, mapped) = (argument(ty, 0)?, argument(ty, 1));
    let key_size = key.size_of()?;
    let mut items = Vec::new();
    for _ in 0..count.min(printer.options.elements as u64) {
        // Colour, parent, left, right; then the element.
        let place = at.wrapping_add(32);
        let k = Value::in_memory(key.clone(), place);
        items.push(match mapped.as_ref().filter(|_| !set) {
            Some(mapped) => {
                let align = alignment(mapped, 8);
                let v = Value::in_memory(
                    mapped.clone(),
                    place.wrapping_add(key_size.next_multiple_of(align)),
                );
                format!(
                    "[{}] = {}",
                    shown(printer, &k, depth),
                    shown(printer, &v, depth)
                )
            }
            None => shown(printer, &k, depth),
        });
        at = successor(process, at)?;
    }
    let noun = if count == 1 { "element" } else { "elements" };
    Some(format!(
        "{word} with {count} {noun} = {}",
        list(printer, items.into_iter(), count, '{', '}')
    ))
}

fn successor(process: &dyn crate::target::Process, node: u64) -> Option<u64> {
    let read = |at: u64, offset: u64| read_u64(process, at.wrapping_add(offset)).ok();
    let (parent, left, right) = (8, 16, 24);
    let mut at = node;
    let down = read(at, right)?;
    // Trees are no deeper than twice the logarithm of their size.
    if down != 0 {
        at = down;
        for _ in 0..128 {
            match read(at, left)? {
                0 => break,
                next => at = next,
            }
        }
        return Some(at);
    }
    let mut up = read(at, parent)?;
    for _ in 0..128 {
        if read(up, right)? != at {
            break;
        }
        at = up;
        up = read(at, parent)?;
    }
    Some(up)
}

/// The alignment of a type, which debug information does not say.
fn alignment(ty: &Ty, depth: usize) -> u64 {
    let Some(depth) = depth.checked_sub(1) else {
        return 8;
    };
    let ty = ty.peeled().complete();
    match &ty.kind {
        Kind::Struct(aggregate) => aggregate
            .members
            .iter()
            .filter(|m| m.fixed.is_none())
            .map(|m| alignment(&m.ty.get(), depth))
            .max()
            .unwrap_or(1),
        Kind::Array { element, .. } => alignment(&element.get(), depth),
        _ => ty.size_of().unwrap_or(8).clamp(1, 16),
    }
}

fn hash_table(
    printer: &Printer<'_>,
    value: &Value,
    ty: &Ty,
    word: &str,
    set: bool,
    depth: usize,
) -> Option<String> {
    let process = printer.inspector.process;
    let table = value.inside(process, "_M_h")?;
    let count = u64::try_from(
        table
            .inside(process, "_M_element_count")?
            .integer(process)
            .ok()?,
    )
    .ok()?;
    let before = table.inside(process, "_M_before_begin")?;
    let mut at = before.inside(process, "_M_nxt")?.pointer(process).ok()?;
    let (key, mapped) = (argument(ty, 0)?, argument(ty, 1));
    let key_size = key.size_of()?;
    let mut items = Vec::new();
    for _ in 0..count.min(printer.options.elements as u64) {
        if at == 0 {
            break;
        }
        let pair_align = mapped
            .as_ref()
            .filter(|_| !set)
            .map_or(1, |m| alignment(m, 8))
            .max(alignment(&key, 8));
        // A link, then the element.
        let place = at.wrapping_add(8u64.next_multiple_of(pair_align));
        let k = Value::in_memory(key.clone(), place);
        items.push(match mapped.as_ref().filter(|_| !set) {
            Some(mapped) => {
                let offset = key_size.next_multiple_of(alignment(mapped, 8));
                let v = Value::in_memory(mapped.clone(), place.wrapping_add(offset));
                format!(
                    "[{}] = {}",
                    shown(printer, &k, depth),
                    shown(printer, &v, depth)
                )
            }
            None => shown(printer, &k, depth),
        });
        at = read_u64(process, at).ok()?;
    }
    let noun = if count == 1 { "element" } else { "elements" };
    Some(format!(
        "{word} with {count} {noun} = {}",
        list(printer, items.into_iter(), count, '{', '}')
    ))
}
