//! Containers of the standard libraries, read as what they hold.
//!
//! A container is known by the name of its type and by having the members
//! that its reader expects; one whose members are others (another version of
//! a library) is the plain structure it is. Nothing is believed: a length is
//! no more than what is asked for, and links are followed only so far.
//!
//! This is data. [`crate::print`] makes text of it, [`crate::tree`] children.

mod cpp;
pub(crate) mod items;
mod rust;

use protocol::id::Addr;

use crate::dwarf::Language;
use crate::inspector::Inspector;
use crate::types::{Kind, Ty};
use crate::value::Value;

pub(crate) use items::{Entry, Items};

/// A value of a library's type, as what it means.
pub(crate) enum Container {
    /// Characters.
    Text(Text),
    /// Any number of elements.
    Items(Collection, Items),
    /// One value, or a few.
    Holder(Holder, Vec<Part>),
    /// Nothing but the value in it.
    Wrapper(Value),
}

/// Characters in memory.
pub(crate) struct Text {
    /// The type of one.
    pub element: Ty,
    /// The first one's address.
    pub start: Addr,
    /// How many.
    pub length: u64,
}

/// A part of a [`Holder`].
pub(crate) struct Part {
    /// What it is called.
    pub name: String,
    /// The value; some are empty.
    pub value: Option<Value>,
}

impl Part {
    fn new(name: &str, value: Value) -> Self {
        Self {
            name: name.to_string(),
            value: Some(value),
        }
    }
}

/// What kind of container elements are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collection {
    /// `Vec`.
    Vec,
    /// A slice of Rust, borrowed or boxed.
    Slice,
    /// `VecDeque`.
    VecDeque,
    /// `HashMap`, `BTreeMap` and the sets.
    RustMap,
    /// `std::array`.
    Array,
    /// `std::vector`.
    Vector {
        /// Elements that fit without growing.
        capacity: u64,
    },
    /// `std::deque`.
    Deque,
    /// `std::list`.
    List,
    /// A map or set of C++, by its name.
    Named(&'static str),
}

/// What kind of value holds others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// `std::optional`.
    Optional,
    /// `std::unique_ptr`.
    UniquePtr,
    /// `std::shared_ptr`, with the number of its owners.
    SharedPtr(i128),
    /// `std::weak_ptr`, with the number of owners.
    WeakPtr(i128),
    /// `std::pair`.
    Pair,
    /// `std::tuple`.
    Tuple,
    /// `std::variant`, with the number of the alternative it holds.
    Variant(i128),
    /// `Rc`, with the numbers of strong and weak references.
    Rc(i128, i128),
    /// `Arc`, with the numbers of strong and weak references.
    Arc(i128, i128),
    /// `Cell`.
    Cell,
    /// `UnsafeCell`.
    UnsafeCell,
    /// `RefCell`: how often it is borrowed, below 0 for writing.
    RefCell(i128),
    /// `Mutex`, and whether it is locked.
    Mutex(bool),
}

/// What a value of a library's type means, if it is one that is known.
pub(crate) fn container(inspector: &Inspector<'_>, value: &Value) -> Option<Container> {
    let ty = value.ty.peeled().complete();
    let name = ty.name.as_deref()?;
    // Of unions, one is known: memory that may not hold its value yet.
    if !matches!(ty.kind, Kind::Struct(_)) && !rust::is_wrapper(name) {
        return None;
    }
    match ty.language {
        Language::Rust => rust::container(inspector, value, &ty, name),
        Language::Cpp => cpp::container(inspector, value, &ty, name),
        _ => None,
    }
}

/// Type of the elements, address of the first, and number, of a container
/// whose elements lie in a row.
pub(crate) fn sequence(inspector: &Inspector<'_>, value: &Value) -> Option<(Ty, Addr, u64)> {
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
