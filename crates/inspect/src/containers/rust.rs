//! The containers of Rust's standard library.

use protocol::id::Addr;

use super::items::{Arrangement, BTreeLayout, Items};
use super::{Collection, Container, Holder, Part, Text};
use crate::inspector::Inspector;
use crate::target::Process;
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
) -> Option<(Ty, Addr, u64)> {
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

/// What a value of a type of the library means.
pub(super) fn container(
    inspector: &Inspector<'_>,
    value: &Value,
    ty: &Ty,
    name: &str,
) -> Option<Container> {
    if is(name, "alloc::string::String")
        || name == "&str"
        || name == "&mut str"
        || name.starts_with("alloc::boxed::Box<str")
    {
        let (element, start, length) = sequence(inspector, value, ty, name)?;
        return Some(Container::Text(Text {
            element,
            start,
            length,
        }));
    }
    if let Some((element, start, count)) = sequence(inspector, value, ty, name) {
        element.size_of()?;
        let collection = if is(name, "alloc::vec::Vec") {
            Collection::Vec
        } else {
            Collection::Slice
        };
        let arrangement = Arrangement::Row { element, start };
        return Some(Container::Items(collection, Items { count, arrangement }));
    }
    if is(name, "alloc::collections::vec_deque::VecDeque") {
        let items = deque(inspector, value, ty)?;
        return Some(Container::Items(Collection::VecDeque, items));
    }
    if let Some(items) = map(inspector, value, name) {
        return Some(Container::Items(Collection::RustMap, items));
    }
    holder(inspector, value, name)
}

/// Smart pointers, cells and wrappers.
fn holder(inspector: &Inspector<'_>, value: &Value, name: &str) -> Option<Container> {
    let process = inspector.process;
    let one = |holder, inner| Some(Container::Holder(holder, vec![Part::new("value", inner)]));
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
        // One is kept for all strong ones together.
        let (strong, weak) = (counts("strong")?, counts("weak")? - 1);
        return if name.contains("::rc::") {
            one(Holder::Rc(strong, weak), inside)
        } else {
            one(Holder::Arc(strong, weak), inside)
        };
    }
    if is_wrapper(name) {
        let inner = value.field(process, "value");
        return Some(Container::Wrapper(
            inner.or_else(|| value.field(process, "__0"))?,
        ));
    }
    if is(name, "core::cell::Cell") || is(name, "core::cell::UnsafeCell") {
        let mut inner = value.field(process, "value")?;
        let bare = |n: &str| is(n, "core::cell::UnsafeCell");
        if let Some(deeper) = inner.field(process, "value")
            && inner.ty.name.as_deref().is_some_and(bare)
        {
            inner = deeper;
        }
        return if bare(name) {
            one(Holder::UnsafeCell, inner)
        } else {
            one(Holder::Cell, inner)
        };
    }
    if is(name, "core::cell::RefCell") {
        let borrowed = inner_number(inspector, &value.field(process, "borrow")?, 6)?;
        let inner = value.field(process, "value")?.field(process, "value")?;
        return one(Holder::RefCell(borrowed), inner);
    }
    if is(name, "std::sync::poison::mutex::Mutex") || is(name, "std::sync::mutex::Mutex") {
        let locked = inner_number(inspector, &value.field(process, "inner")?, 8)? != 0;
        let inner = value.field(process, "data")?.field(process, "value")?;
        return one(Holder::Mutex(locked), inner);
    }
    None
}

fn deque(inspector: &Inspector<'_>, value: &Value, ty: &Ty) -> Option<Items> {
    let process = inspector.process;
    let element = argument(ty, 0)?;
    element.size_of()?;
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
    let arrangement = Arrangement::Ring {
        element,
        start,
        head,
        capacity,
    };
    Some(Items { count, arrangement })
}

/// Maps and sets.
fn map(inspector: &Inspector<'_>, value: &Value, name: &str) -> Option<Items> {
    if is(name, "std::collections::hash::map::HashMap")
        || is(name, "hashbrown::map::HashMap")
        || is(name, "std::collections::hash::set::HashSet")
        || is(name, "hashbrown::set::HashSet")
    {
        return hash_table(inspector, value, name.contains("::set::"));
    }
    if is(name, "alloc::collections::btree::map::BTreeMap") {
        return btree(inspector, value, false);
    }
    if is(name, "alloc::collections::btree::set::BTreeSet") {
        return btree(inspector, &value.field(inspector.process, "map")?, true);
    }
    None
}

fn hash_table(inspector: &Inspector<'_>, value: &Value, set: bool) -> Option<Items> {
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
    let pair = argument(&value_table_type(value, process)?, 0)?;
    pair.size_of()?;
    let mask = u64::try_from(inner.field(process, "bucket_mask")?.integer(process).ok()?).ok()?;
    let count = u64::try_from(inner.field(process, "items")?.integer(process).ok()?).ok()?;
    let control = inner_pointer(inspector, &inner.field(process, "ctrl")?, 4)?
        .pointer(process)
        .ok()?;
    let arrangement = Arrangement::Buckets {
        pair,
        control,
        mask,
        set,
    };
    Some(Items { count, arrangement })
}

/// The type `RawTable<T>` inside of a map or set.
fn value_table_type(value: &Value, process: &dyn Process) -> Option<Ty> {
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

fn btree(inspector: &Inspector<'_>, map: &Value, set: bool) -> Option<Items> {
    let process = inspector.process;
    let ty = map.ty.peeled().complete();
    let (key, mapped) = (argument(&ty, 0)?, argument(&ty, 1)?);
    let count = u64::try_from(map.field(process, "length")?.integer(process).ok()?).ok()?;
    if count == 0 {
        let arrangement = Arrangement::Row {
            element: key,
            start: Addr::NULL,
        };
        return Some(Items { count, arrangement });
    }
    let root = some(process, &map.field(process, "root")?);
    let node = inner_pointer(inspector, &root.field(process, "node")?, 4)?;
    let height = root.field(process, "height")?.integer(process).ok()?;
    // Every node begins with what a leaf is; an inner one has its edges behind
    // that.
    let leaf = Value::in_memory(node.ty.target()?, Addr::NULL);
    let offset = |name: &str| Some(leaf.field(process, name)?.address()?.since(Addr::NULL));
    key.size_of()?;
    mapped.size_of()?;
    let layout = BTreeLayout {
        len: offset("len")?,
        keys: offset("keys")?,
        values: offset("vals").unwrap_or(0),
        edges: leaf.ty.size_of()?.next_multiple_of(8),
        mapped: offset("vals").filter(|_| !set).map(|_| mapped),
        key,
    };
    let arrangement = Arrangement::BTree {
        layout,
        root: node.pointer(process).ok()?,
        height: u64::try_from(height).ok()?,
    };
    Some(Items { count, arrangement })
}

/// The shape `Some` of an option, or the value itself.
fn some(process: &dyn Process, value: &Value) -> Value {
    match value.variant(process) {
        Some(shape) => shape.field(process, "__0").unwrap_or(shape),
        None => value.clone(),
    }
}
