//! The containers of libstdc++.

use protocol::id::Addr;

use super::items::{Arrangement, Items, NodeLayout};
use super::{Collection, Container, Holder, Part, Text};
use crate::inspector::Inspector;
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
) -> Option<(Ty, Addr, u64)> {
    let process = inspector.process;
    let name = plain(name);
    let word = |v: &Value, n: &str| v.inside(process, n)?.pointer(process).ok();
    let number = |n: &str| u64::try_from(value.inside(process, n)?.integer(process).ok()?).ok();
    if is(&name, "std::vector") {
        let element = argument(ty, 0)?;
        if element.name.as_deref() == Some("bool") {
            return None;
        }
        let (start, end) = (word(value, "_M_start")?, word(value, "_M_finish")?);
        let size = element.size_of().filter(|s| *s > 0)?;
        return Some((element, start, end.checked_since(start)? / size));
    }
    if is(&name, "std::basic_string") {
        let element = argument(ty, 0)?;
        let start = word(value, "_M_p")?;
        let length = number("_M_string_length")?;
        return Some((element, start, length));
    }
    if is(&name, "std::basic_string_view") {
        return Some((argument(ty, 0)?, word(value, "_M_str")?, number("_M_len")?));
    }
    if is(&name, "std::array") {
        let elements = value.inside(process, "_M_elems")?;
        return Some((argument(ty, 0)?, elements.address()?, elements.count()?));
    }
    None
}

/// What a value of a type of the library means.
pub(super) fn container(
    inspector: &Inspector<'_>,
    value: &Value,
    ty: &Ty,
    name: &str,
) -> Option<Container> {
    let process = inspector.process;
    let short = plain(name);
    if is(&short, "std::basic_string") || is(&short, "std::basic_string_view") {
        let (element, start, length) = sequence(inspector, value, ty, name)?;
        return Some(Container::Text(Text {
            element,
            start,
            length,
        }));
    }
    if let Some((element, start, count)) = sequence(inspector, value, ty, name) {
        // An object that is not made yet has any bytes.
        if count > MOST {
            return None;
        }
        let size = element.size_of()?;
        let collection = if is(&short, "std::array") {
            Collection::Array
        } else {
            let end = value.inside(process, "_M_end_of_storage")?;
            let end = end.pointer(process).ok()?;
            Collection::Vector {
                capacity: end.checked_since(start)? / size.max(1),
            }
        };
        let arrangement = Arrangement::Row { element, start };
        return Some(Container::Items(collection, Items { count, arrangement }));
    }
    if is(&short, "std::deque") {
        let items = deque(inspector, value, ty)?;
        return Some(Container::Items(Collection::Deque, items));
    }
    if is(&short, "std::list") {
        let items = linked(inspector, value, ty)?;
        return Some(Container::Items(Collection::List, items));
    }
    for (path, set) in [
        ("std::map", false),
        ("std::multimap", false),
        ("std::set", true),
        ("std::multiset", true),
    ] {
        if is(&short, path) {
            let items = tree(inspector, value, ty, set)?;
            return Some(Container::Items(Collection::Named(path), items));
        }
    }
    for (path, set) in [
        ("std::unordered_map", false),
        ("std::unordered_multimap", false),
        ("std::unordered_set", true),
        ("std::unordered_multiset", true),
    ] {
        if is(&short, path) {
            let items = hash_table(inspector, value, ty, set)?;
            return Some(Container::Items(Collection::Named(path), items));
        }
    }
    holder(inspector, value, ty, &short)
}

/// No container has more elements.
const MOST: u64 = 1 << 32;

/// Smart pointers, pairs, tuples and what may be empty.
fn holder(inspector: &Inspector<'_>, value: &Value, ty: &Ty, short: &str) -> Option<Container> {
    let process = inspector.process;
    let (holder, parts) = if is(short, "std::optional") {
        let engaged = value.inside(process, "_M_engaged")?.integer(process).ok()? != 0;
        let held = if engaged {
            vec![Part::new("value", value.inside(process, "_M_value")?)]
        } else {
            Vec::new()
        };
        (Holder::Optional, held)
    } else if is(short, "std::unique_ptr") {
        let pointer = find_pointer(inspector, value, 8)?;
        (Holder::UniquePtr, vec![Part::new("get()", pointer)])
    } else if is(short, "std::shared_ptr") || is(short, "std::weak_ptr") {
        let pointer = value.inside(process, "_M_ptr")?;
        let block = value.inside(process, "_M_refcount")?;
        let counts = block
            .inside(process, "_M_pi")
            .and_then(|p| p.target(process).ok());
        let uses = counts
            .and_then(|c| c.inside(process, "_M_use_count"))
            .and_then(|c| c.integer(process).ok())
            .unwrap_or(0);
        let holder = if is(short, "std::shared_ptr") {
            Holder::SharedPtr(uses)
        } else {
            Holder::WeakPtr(uses)
        };
        (holder, vec![Part::new("get()", pointer)])
    } else if is(short, "std::pair") {
        let part = |name| Some(Part::new(name, value.inside(process, name)?));
        (Holder::Pair, vec![part("first")?, part("second")?])
    } else if is(short, "std::tuple") {
        let mut parts = Vec::new();
        heads(inspector, value, 16, &mut parts);
        (Holder::Tuple, parts)
    } else if is(short, "std::variant") {
        let index = value.inside(process, "_M_index")?.integer(process).ok()?;
        let held = usize::try_from(index).ok().and_then(|i| argument(ty, i));
        let parts = match held {
            Some(inner) => {
                let storage = value.inside(process, "_M_u")?;
                vec![Part::new("value", storage.part(inner, 0))]
            }
            None => Vec::new(),
        };
        (Holder::Variant(index), parts)
    } else {
        return None;
    };
    Some(Container::Holder(holder, parts))
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
fn heads(inspector: &Inspector<'_>, value: &Value, left: usize, out: &mut Vec<Part>) {
    let Some(left) = left.checked_sub(1) else {
        return;
    };
    let Some(aggregate) = value.ty.aggregate() else {
        return;
    };
    let process = inspector.process;
    let mut rest = None;
    for member in aggregate.members.iter().filter(|m| m.base) {
        let Ok(part) = value.member(process, member) else {
            continue;
        };
        let name = part.ty.name.clone().unwrap_or_default();
        if name.contains("_Head_base<") {
            out.push(Part {
                name: format!("[{}]", out.len()),
                value: part.inside(process, "_M_head_impl"),
            });
        } else {
            rest = Some(part);
        }
    }
    if let Some(rest) = rest {
        heads(inspector, &rest, left, out);
    }
}

fn deque(inspector: &Inspector<'_>, value: &Value, ty: &Ty) -> Option<Items> {
    let process = inspector.process;
    let element = argument(ty, 0)?;
    let size = element.size_of().filter(|s| *s > 0)?;
    let per_block = if size < 512 { 512 / size } else { 1 };
    let start = value.inside(process, "_M_start")?;
    let finish = value.inside(process, "_M_finish")?;
    let word = |v: &Value, n: &str| v.inside(process, n)?.pointer(process).ok();
    let (first, cur, table) = (
        word(&start, "_M_first")?,
        word(&start, "_M_cur")?,
        word(&start, "_M_node")?,
    );
    let (last_first, last_cur, last_node) = (
        word(&finish, "_M_first")?,
        word(&finish, "_M_cur")?,
        word(&finish, "_M_node")?,
    );
    let offset = cur.checked_since(first)? / size;
    let blocks = last_node.checked_since(table)? / 8;
    let last = last_cur.checked_since(last_first)? / size;
    let count = blocks.checked_mul(per_block)?.checked_add(last)?;
    let count = count.checked_sub(offset).filter(|count| *count <= MOST)?;
    let arrangement = Arrangement::Blocks {
        element,
        table,
        offset,
        per_block,
    };
    Some(Items { count, arrangement })
}

fn linked(inspector: &Inspector<'_>, value: &Value, ty: &Ty) -> Option<Items> {
    let process = inspector.process;
    let head = value.inside(process, "_M_node")?;
    let first = head.inside(process, "_M_next")?.pointer(process).ok()?;
    let size = head.inside(process, "_M_size")?.integer(process).ok()?;
    // A node is two links and the element.
    let node = NodeLayout {
        skip: 16,
        element: argument(ty, 0)?,
        mapped: None,
    };
    Some(Items {
        count: u64::try_from(size).ok()?,
        arrangement: Arrangement::Linked { node, first },
    })
}

/// What the nodes of a map or set hold behind `skip` bytes.
fn node_layout(ty: &Ty, skip: u64, set: bool) -> Option<NodeLayout> {
    let element = argument(ty, 0)?;
    let size = element.size_of()?;
    let mapped = if set { None } else { argument(ty, 1) };
    let mapped = mapped.map(|ty| {
        let offset = size.next_multiple_of(alignment(&ty, 8));
        (ty, offset)
    });
    Some(NodeLayout {
        skip,
        element,
        mapped,
    })
}

fn tree(inspector: &Inspector<'_>, value: &Value, ty: &Ty, set: bool) -> Option<Items> {
    let process = inspector.process;
    let count = value.inside(process, "_M_node_count")?;
    let count = u64::try_from(count.integer(process).ok()?).ok()?;
    let header = value.inside(process, "_M_header")?;
    let root = header.inside(process, "_M_parent")?.pointer(process).ok()?;
    // Colour, parent, left, right; then the element.
    let node = node_layout(ty, 32, set)?;
    let arrangement = Arrangement::SearchTree { node, root };
    Some(Items { count, arrangement })
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

fn hash_table(inspector: &Inspector<'_>, value: &Value, ty: &Ty, set: bool) -> Option<Items> {
    let process = inspector.process;
    let table = value.inside(process, "_M_h")?;
    let count = table.inside(process, "_M_element_count")?;
    let count = u64::try_from(count.integer(process).ok()?).ok()?;
    let before = table.inside(process, "_M_before_begin")?;
    let first = before.inside(process, "_M_nxt")?.pointer(process).ok()?;
    // A link, then the element.
    let node = node_layout(ty, 8, set)?;
    let aligned = node
        .mapped
        .as_ref()
        .map_or(1, |(mapped, _)| alignment(mapped, 8))
        .max(alignment(&node.element, 8));
    let node = NodeLayout {
        skip: 8u64.next_multiple_of(aligned),
        ..node
    };
    Some(Items {
        count,
        arrangement: Arrangement::Linked { node, first },
    })
}
