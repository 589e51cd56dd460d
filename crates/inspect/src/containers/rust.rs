//! The containers of Rust's standard library.

use super::{list, shown};
use crate::inspector::Inspector;
use crate::print::Printer;
use crate::types::{Kind, Ty};
use crate::value::Value;

fn is(name: &str, path: &str) -> bool {
    name == path
        || name
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('<'))
}

/// Whether a type only says how its one value may be used.
pub(super) fn is_wrapper(name: &str) -> bool {
    const WRAPPERS: [&str; 3] = [
        "core::mem::maybe_uninit::MaybeUninit",
        "core::mem::manually_drop::ManuallyDrop",
        "core::mem::maybe_dangling::MaybeDangling",
    ];
    WRAPPERS.iter().any(|wrapper| is(name, wrapper))
}

/// The first type argument.
fn argument(ty: &Ty, at: usize) -> Option<Ty> {
    Some(ty.aggregate()?.arguments.get(at)?.ty.get())
}

/// The pointer somewhere inside of a value that only wraps it.
fn inner_pointer(inspector: &Inspector<'_>, value: &Value, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    if let Kind::Pointer(_) = value.ty.peeled().kind {
        return Some(value.clone());
    }
    let aggregate = value.ty.aggregate()?;
    aggregate
        .members
        .iter()
        .filter(|m| m.ty.get().size_of().unwrap_or(0) > 0)
        .find_map(|m| {
            let part = value.member(inspector.process, m).ok()?;
            inner_pointer(inspector, &part, depth)
        })
}

/// The number somewhere inside of a value that only wraps it.
fn inner_number(inspector: &Inspector<'_>, value: &Value, depth: usize) -> Option<i128> {
    let depth = depth.checked_sub(1)?;
    if let Kind::Base(_) = value.ty.peeled().kind {
        return value.integer(inspector.process).ok();
    }
    let aggregate = value.ty.aggregate()?;
    let member = aggregate
        .members
        .iter()
        .find(|m| m.ty.get().size_of().unwrap_or(0) > 0)?;
    let part = value.member(inspector.process, member).ok()?;
    inner_number(inspector, &part, depth)
}

pub(super) fn sequence(
    inspector: &Inspector<'_>,
    value: &Value,
    ty: &Ty,
    name: &str,
) -> Option<(Ty, u64, u64)> {
    let process = inspector.process;
    let field = |v: &Value, n: &str| v.field(process, n);
    if is(name, "alloc::vec::Vec") {
        let start = inner_pointer(inspector, &field(value, "buf")?, 12)?;
        let count = inner_number(inspector, &field(value, "len")?, 4)?;
        return Some((
            argument(ty, 0)?,
            start.pointer(process).ok()?,
            u64::try_from(count).ok()?,
        ));
    }
    if is(name, "alloc::string::String") {
        let inner = field(value, "vec")?;
        let ty = inner.ty.peeled().complete();
        return sequence(inspector, &inner, &ty, ty.name.as_deref()?);
    }
    if name.starts_with("&[")
        || name.starts_with("&mut [")
        || name == "&str"
        || name == "&mut str"
        || name.starts_with("alloc::boxed::Box<[")
        || name.starts_with("alloc::boxed::Box<str")
    {
        let start = field(value, "data_ptr")?;
        let count = field(value, "length")?.integer(process).ok()?;
        return Some((
            start.ty.target()?,
            start.pointer(process).ok()?,
            u64::try_from(count).ok()?,
        ));
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
    if is(name, "alloc::string::String")
        || name == "&str"
        || name == "&mut str"
        || name.starts_with("alloc::boxed::Box<str")
    {
        let (_, start, length) = sequence(inspector, value, ty, name)?;
        return printer.rust_text(start, length);
    }
    if let Some((element, start, count)) = sequence(inspector, value, ty, name) {
        let size = element.size_of()?;
        let items = (0..count).map(|i| {
            let item = Value::in_memory(element.clone(), start.wrapping_add(i.wrapping_mul(size)));
            shown(printer, &item, depth)
        });
        let text = list(printer, items, count, '[', ']');
        let vector = is(name, "alloc::vec::Vec");
        return Some(if vector { format!("vec!{text}") } else { text });
    }
    if is(name, "alloc::collections::vec_deque::VecDeque") {
        return deque(printer, value, ty, depth);
    }
    if is(name, "std::collections::hash::map::HashMap")
        || is(name, "hashbrown::map::HashMap")
        || is(name, "std::collections::hash::set::HashSet")
        || is(name, "hashbrown::set::HashSet")
    {
        return hash_table(printer, value, name.contains("::set::"), depth);
    }
    if is(name, "alloc::collections::btree::map::BTreeMap") {
        return btree(printer, value, false, depth);
    }
    if is(name, "alloc::collections::btree::set::BTreeSet") {
        return btree(printer, &value.field(process, "map")?, true, depth);
    }
    if is(name, "alloc::rc::Rc") || is(name, "alloc::sync::Arc") {
        let target = inner_pointer(inspector, value, 6)?.target(process).ok()?;
        let counts = |n: &str| {
            target
                .field(process, n)
                .and_then(|v| inner_number(inspector, &v, 6))
        };
        let inside = target
            .field(process, "value")
            .or_else(|| target.field(process, "data"))?;
        let strong = counts("strong")?;
        // One is kept for all strong ones together.
        let weak = counts("weak")? - 1;
        let word = if name.contains("::rc::") { "Rc" } else { "Arc" };
        return Some(format!(
            "{word}(strong={strong}, weak={weak}) {}",
            shown(printer, &inside, depth)
        ));
    }
    if is_wrapper(name) {
        let inner = value
            .field(process, "value")
            .or_else(|| value.field(process, "__0"))?;
        let mut text = String::new();
        printer.print(&mut text, &inner, depth);
        return Some(text);
    }
    if is(name, "core::cell::Cell") || is(name, "core::cell::UnsafeCell") {
        let mut inner = value.field(process, "value")?;
        if let Some(deeper) = inner.field(process, "value")
            && inner
                .ty
                .name
                .as_deref()
                .is_some_and(|n| is(n, "core::cell::UnsafeCell"))
        {
            inner = deeper;
        }
        let word = if is(name, "core::cell::Cell") {
            "Cell"
        } else {
            "UnsafeCell"
        };
        return Some(format!("{word}({})", shown(printer, &inner, depth)));
    }
    if is(name, "core::cell::RefCell") {
        let borrowed = inner_number(inspector, &value.field(process, "borrow")?, 6)?;
        let inner = value.field(process, "value")?.field(process, "value")?;
        let state = match borrowed {
            0 => String::new(),
            n if n > 0 => format!(" borrowed {n} times"),
            _ => " mutably borrowed".to_string(),
        };
        return Some(format!("RefCell({}){state}", shown(printer, &inner, depth)));
    }
    if is(name, "std::sync::poison::mutex::Mutex") || is(name, "std::sync::mutex::Mutex") {
        let locked = inner_number(inspector, &value.field(process, "inner")?, 8)? != 0;
        let inner = value.field(process, "data")?.field(process, "value")?;
        let state = if locked { " locked" } else { "" };
        return Some(format!("Mutex({}){state}", shown(printer, &inner, depth)));
    }
    None
}

fn deque(printer: &Printer<'_>, value: &Value, ty: &Ty, depth: usize) -> Option<String> {
    let inspector = printer.inspector;
    let process = inspector.process;
    let element = argument(ty, 0)?;
    let size = element.size_of()?;
    let buffer = value.field(process, "buf")?;
    let start = inner_pointer(inspector, &buffer, 12)?
        .pointer(process)
        .ok()?;
    let number = |v: Value| u64::try_from(inner_number(inspector, &v, 6)?).ok();
    let head = number(value.field(process, "head")?)?;
    let count = number(value.field(process, "len")?)?;
    let capacity = buffer
        .field(process, "cap")
        .or_else(|| buffer.field(process, "inner")?.field(process, "cap"))
        .and_then(number)
        .filter(|c| *c > 0)?;
    let items = (0..count).map(|i| {
        let at = (head.wrapping_add(i)) % capacity;
        let item = Value::in_memory(element.clone(), start.wrapping_add(at.wrapping_mul(size)));
        shown(printer, &item, depth)
    });
    Some(format!("VecDeque{}", list(printer, items, count, '[', ']')))
}

/// The full buckets of a hashbrown table: the control bytes begin at the
/// pointer, the buckets lie before it, last first.
fn hash_table(printer: &Printer<'_>, value: &Value, set: bool, depth: usize) -> Option<String> {
    let inspector = printer.inspector;
    let process = inspector.process;
    let find = |v: &Value, names: &[&str]| -> Option<Value> {
        let mut at = v.clone();
        for _ in 0..6 {
            let next = names.iter().find_map(|n| at.field(process, n))?;
            if next.field(process, "bucket_mask").is_some() {
                return Some(next);
            }
            at = next;
        }
        None
    };
    let inner = find(value, &["base", "map", "table"])?;
    let table = value_table_type(value, process)?;
    let bucket = argument(&table, 0)?;
    let size = bucket.size_of()?;
    let mask = u64::try_from(inner.field(process, "bucket_mask")?.integer(process).ok()?).ok()?;
    let count = u64::try_from(inner.field(process, "items")?.integer(process).ok()?).ok()?;
    let control = inner_pointer(inspector, &inner.field(process, "ctrl")?, 4)?
        .pointer(process)
        .ok()?;
    let mut items = Vec::new();
    let limit = printer.options.elements.min(count as usize);
    for index in 0..=mask.min(1 << 20) {
        if items.len() >= limit {
            break;
        }
        let mut byte = [0u8; 1];
        if process.read(control.wrapping_add(index), &mut byte) == 0 {
            break;
        }
        // The top bit marks an empty place.
        if byte.first().is_none_or(|b| b & 0x80 != 0) {
            continue;
        }
        let place = control.wrapping_sub((index + 1).wrapping_mul(size));
        let pair = Value::in_memory(bucket.clone(), place);
        let key = pair.field(process, "__0")?;
        items.push(if set {
            shown(printer, &key, depth)
        } else {
            let value = pair.field(process, "__1")?;
            format!(
                "{}: {}",
                shown(printer, &key, depth),
                shown(printer, &value, depth)
            )
        });
    }
    Some(list(printer, items.into_iter(), count, '{', '}'))
}

/// The type `RawTable<T>` inside of a map or set.
fn value_table_type(value: &Value, process: &dyn crate::target::Process) -> Option<Ty> {
    let mut at = value.clone();
    for _ in 0..6 {
        let ty = at.ty.peeled().complete();
        if ty.name.as_deref().is_some_and(|n| n.contains("RawTable<")) {
            return Some(ty);
        }
        at = ["base", "map", "table"]
            .iter()
            .find_map(|n| at.field(process, n))?;
    }
    None
}

fn btree(printer: &Printer<'_>, map: &Value, set: bool, depth: usize) -> Option<String> {
    let inspector = printer.inspector;
    let process = inspector.process;
    let ty = map.ty.peeled().complete();
    let (key, value) = (argument(&ty, 0)?, argument(&ty, 1)?);
    let count = u64::try_from(map.field(process, "length")?.integer(process).ok()?).ok()?;
    let mut items = Vec::new();
    if count > 0 {
        let root = map.field(process, "root")?;
        let node = inner_pointer_in_option(printer, &root)?;
        let height = inner_named(inspector, &root, printer, "height")?;
        let limit = printer.options.elements;
        walk(
            printer,
            &node,
            height.min(24) as u64,
            &key,
            &value,
            set,
            depth,
            limit,
            &mut items,
        )?;
    }
    Some(list(printer, items.into_iter(), count, '{', '}'))
}

/// The shape `Some` of an option, or the value itself.
fn some(printer: &Printer<'_>, value: &Value) -> Value {
    if let Some(aggregate) = value.ty.aggregate()
        && let Some(part) = &aggregate.variants
        && let Some(variant) = crate::print::chosen(printer, value, part)
        && let Ok(shape) = value.member(printer.inspector.process, &variant.member)
    {
        return shape
            .field(printer.inspector.process, "__0")
            .unwrap_or(shape);
    }
    value.clone()
}

fn inner_pointer_in_option(printer: &Printer<'_>, value: &Value) -> Option<Value> {
    let root = some(printer, value);
    inner_pointer(
        printer.inspector,
        &root.field(printer.inspector.process, "node")?,
        4,
    )
}

fn inner_named(
    inspector: &Inspector<'_>,
    value: &Value,
    printer: &Printer<'_>,
    name: &str,
) -> Option<i128> {
    some(printer, value)
        .field(inspector.process, name)?
        .integer(inspector.process)
        .ok()
}

#[allow(clippy::too_many_arguments, reason = "a recursion over one tree")]
fn walk(
    printer: &Printer<'_>,
    node: &Value,
    height: u64,
    key: &Ty,
    value: &Ty,
    set: bool,
    depth: usize,
    limit: usize,
    items: &mut Vec<String>,
) -> Option<()> {
    let process = printer.inspector.process;
    let leaf = node.target(process).ok()?;
    let count = u64::try_from(leaf.field(process, "len")?.integer(process).ok()?).ok()?;
    let keys = leaf.field(process, "keys")?.address()?;
    let values = leaf.field(process, "vals").and_then(|v| v.address());
    let leaf_size = leaf.ty.size_of()?;
    let address = leaf.address()?;
    let child = |at: u64| -> Option<Value> {
        // An inner node is a leaf followed by its edges.
        let place = address
            .wrapping_add(leaf_size.next_multiple_of(8))
            .wrapping_add(at * 8);
        Some(Value::in_memory(node.ty.clone(), place))
    };
    for at in 0..count.min(11) {
        if items.len() >= limit {
            return Some(());
        }
        if height > 0 {
            walk(
                printer,
                &child(at)?,
                height - 1,
                key,
                value,
                set,
                depth,
                limit,
                items,
            )?;
        }
        let k = Value::in_memory(key.clone(), keys.wrapping_add(at * key.size_of()?));
        items.push(match values.filter(|_| !set) {
            Some(values) => {
                let v = Value::in_memory(value.clone(), values.wrapping_add(at * value.size_of()?));
                format!(
                    "{}: {}",
                    shown(printer, &k, depth),
                    shown(printer, &v, depth)
                )
            }
            None => shown(printer, &k, depth),
        });
    }
    if height > 0 && items.len() < limit {
        walk(
            printer,
            &child(count.min(11))?,
            height - 1,
            key,
            value,
            set,
            depth,
            limit,
            items,
        )?;
    }
    Some(())
}
