//! Values as trees: what a value is made of, a page at a time.
//!
//! A value has children by number: the members of a structure, the elements
//! of an array, what a container of a library holds, what a pointer leads to,
//! the fields of the variant that an enumeration has now. They are made when
//! they are asked for, in ranges, so that a value of a million elements is
//! looked at in pieces and nothing is read of the rest; a page of a map or a
//! list has to walk to its beginning, but reads links only.
//!
//! A [`Child`] carries its value, from which the next level is asked for; its
//! summary is one line made by [`crate::print`].

pub(crate) mod parts;

use std::ops::Range;

use protocol::id::Addr;

use crate::containers::{Container, Entry, container};
use crate::dwarf::Language;
use crate::error::Result;
use crate::inspector::Inspector;
use crate::print::{PrintOptions, Printer};
use crate::scope::Scope;
use crate::types::{Aggregate, Kind, Ty, name_of};
use crate::value::{Data, Value};

use parts::{Elements, Members, Part};

/// What a child is to its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Label {
    /// A member of this name.
    Member(String),
    /// A member without a name, whose members are the parent's too.
    Anonymous,
    /// A base class of this name.
    Base(String),
    /// A static member of this name.
    Static(String),
    /// The element of this number.
    Index(u64),
    /// The entry of this number in a map; the text is its key's.
    Key(u64, String),
    /// What a pointer leads to.
    Target,
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Member(name) | Self::Static(name) => f.write_str(name),
            Self::Anonymous => f.write_str("<anonymous>"),
            Self::Base(name) => write!(f, "<{name}>"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(_, key) => write!(f, "[{key}]"),
            Self::Target => f.write_str("*"),
        }
    }
}

/// A value in the tree.
#[derive(Debug, Clone)]
pub struct Child {
    /// What it is to its parent.
    pub label: Label,
    /// The key, if the parent is a map.
    pub key: Option<Value>,
    /// The value; its children are asked for with it.
    pub value: Value,
    /// The name of its type.
    pub type_name: String,
    /// The value in one line, with dots where it is longer.
    pub summary: String,
    /// Whether it has children.
    pub has_children: bool,
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// How long the whole list is, if that is known.
    pub total: Option<usize>,
    /// The part that was asked for; shorter where the list ends.
    pub items: Vec<T>,
}

impl<T> Page<T> {
    fn empty() -> Self {
        Self {
            total: Some(0),
            items: Vec::new(),
        }
    }
}

/// Elements that a summary shows.
const ELEMENTS: usize = 8;
/// Levels that a summary shows.
const LEVELS: usize = 3;
/// References to references are followed so far.
const REFERENCES: usize = 8;

/// Looks at values of one process as trees.
pub struct Tree<'a> {
    inspector: &'a Inspector<'a>,
    scope: Option<Scope<'a>>,
    containers: bool,
    summaries: PrintOptions,
}

/// What the children of a value are, before any is looked at.
enum Shape {
    Nothing,
    /// Members of a structure, in this value.
    Members(Value, Aggregate),
    /// Elements of an array.
    Elements(Value),
    /// What a pointer leads to.
    Target(Value),
    /// What a container holds.
    Container(Container),
}

impl<'a> Tree<'a> {
    /// For values that need no frame. Static members and pointers that only
    /// exist in the debug information are not followed.
    pub fn new(inspector: &'a Inspector<'a>) -> Self {
        Self {
            inspector,
            scope: None,
            containers: true,
            summaries: PrintOptions {
                elements: ELEMENTS,
                depth: LEVELS,
                glance: true,
                ..PrintOptions::default()
            },
        }
    }

    /// For values of a frame; summaries are in the language of its function.
    pub fn in_scope(scope: Scope<'a>) -> Self {
        Self {
            scope: Some(scope),
            ..Self::new(scope.inspector)
        }
    }

    /// Containers of libraries as the structures they are.
    pub fn raw(self) -> Self {
        Self {
            containers: false,
            summaries: PrintOptions {
                containers: false,
                ..self.summaries.clone()
            },
            ..self
        }
    }

    /// A value as a child: the root of a tree.
    pub fn root(&self, name: &str, value: Value) -> Child {
        self.child(Label::Member(name.to_string()), value)
    }

    /// How many children a value has, if that can be told without looking at
    /// them.
    pub fn count(&self, value: &Value) -> Option<usize> {
        let count = match self.shape(value, REFERENCES) {
            Shape::Nothing | Shape::Container(Container::Text(_) | Container::Wrapper(_)) => 0,
            Shape::Members(_, aggregate) => aggregate.members.len(),
            Shape::Elements(array) => usize::try_from(array.count().unwrap_or(0)).ok()?,
            Shape::Target(_) => 1,
            Shape::Container(Container::Items(_, items)) => usize::try_from(items.count).ok()?,
            Shape::Container(Container::Holder(_, parts)) => parts.len(),
        };
        Some(count)
    }

    /// The children of a value with the numbers of a range.
    pub fn children(&self, value: &Value, range: Range<usize>) -> Result<Page<Child>> {
        match self.shape(value, REFERENCES) {
            Shape::Nothing | Shape::Container(Container::Text(_) | Container::Wrapper(_)) => {
                Ok(Page::empty())
            }
            Shape::Members(whole, aggregate) => {
                let class = whole.ty.peeled().complete();
                let members = Members::new(self.inspector, self.scope, &whole, &class, &aggregate);
                let chosen = members.page(range);
                Ok(Page {
                    total: Some(members.count()),
                    items: chosen.map(|part| self.member(&class, part)).collect(),
                })
            }
            Shape::Elements(array) => Ok(self.elements(&array, range)),
            Shape::Target(target) => Ok(Page {
                total: Some(1),
                items: if range.contains(&0) {
                    vec![self.child(Label::Target, target)]
                } else {
                    Vec::new()
                },
            }),
            Shape::Container(Container::Items(_, items)) => {
                let numbers = range.start as u64..range.end as u64;
                let found = items.range(self.inspector.process, numbers.clone())?;
                let entries = numbers.zip(found);
                Ok(Page {
                    total: usize::try_from(items.count).ok(),
                    items: entries.map(|(at, found)| self.entry(at, found)).collect(),
                })
            }
            Shape::Container(Container::Holder(_, parts)) => {
                let total = Some(parts.len());
                let chosen = parts.into_iter().skip(range.start).take(range.len());
                let items = chosen.map(|part| {
                    let value = part
                        .value
                        .unwrap_or_else(|| Value::from_bytes(Ty::void(), Vec::new()));
                    self.child(Label::Member(part.name), value)
                });
                Ok(Page {
                    total,
                    items: items.collect(),
                })
            }
        }
    }

    fn shape(&self, value: &Value, depth: usize) -> Shape {
        let Some(depth) = depth.checked_sub(1) else {
            return Shape::Nothing;
        };
        let process = self.inspector.process;
        let ty = value.ty.peeled().complete();
        if let Data::Synthetic { .. } = value.data {
            return match self.behind(value) {
                Some(target) if is_reference(&ty) => self.shape(&target, depth),
                Some(target) => Shape::Target(target),
                None => Shape::Nothing,
            };
        }
        if value.bits.is_some() || matches!(value.data, Data::OptimizedOut) {
            return Shape::Nothing;
        }
        if self.containers
            && let Some(found) = container(self.inspector, value)
        {
            return match found {
                Container::Wrapper(inner) => self.shape(&inner, depth),
                found => Shape::Container(found),
            };
        }
        match &ty.kind {
            Kind::Struct(aggregate) if aggregate.variants.is_some() => {
                let variant = value.variant(process);
                match variant.and_then(|v| v.ty.aggregate().map(|a| (v, a))) {
                    Some((variant, aggregate)) => Shape::Members(variant, aggregate),
                    None => Shape::Nothing,
                }
            }
            Kind::Struct(aggregate) => Shape::Members(value.clone(), (**aggregate).clone()),
            Kind::Array { .. } => Shape::Elements(value.clone()),
            Kind::Reference(_) | Kind::RvalueReference(_) => match value.target(process) {
                Ok(target) => self.shape(&target, depth),
                Err(_) => Shape::Nothing,
            },
            Kind::Pointer(to) => {
                let to = to.get().peeled().complete();
                let is_value = !matches!(to.kind, Kind::Void | Kind::Function { .. });
                match value.target(process) {
                    Ok(target) if is_value && target.address() != Some(Addr::NULL) => {
                        Shape::Target(target)
                    }
                    _ => Shape::Nothing,
                }
            }
            _ => Shape::Nothing,
        }
    }

    /// What a pointer that the optimizer removed leads to.
    fn behind(&self, value: &Value) -> Option<Value> {
        let Data::Synthetic { target, offset } = &value.data else {
            return None;
        };
        let object = self.scope.as_ref()?.read(*target).ok()?;
        Some(object.part(value.ty.target()?, *offset as u64))
    }

    fn member(&self, class: &Ty, part: Part<'_>) -> Child {
        let label = match part.label() {
            Label::Member(name) => Label::Member(field_name(class, &name).to_string()),
            label => label,
        };
        match part.value {
            Ok(value) => self.child(label, value),
            Err(e) => {
                let value = Value::optimized_out(part.member.ty.get());
                let mut summary = String::new();
                self.printer(class.language).failed(&mut summary, &e);
                Child {
                    summary,
                    ..self.child(label, value)
                }
            }
        }
    }

    fn elements(&self, array: &Value, range: Range<usize>) -> Page<Child> {
        let elements = Elements::new(array);
        let chosen = elements.page(range.start as u64..range.end as u64);
        let items = chosen.map(|(index, element)| self.child(Label::Index(index), element));
        Page {
            total: Some(usize::try_from(elements.count()).unwrap_or(usize::MAX)),
            items: items.collect(),
        }
    }

    fn entry(&self, index: u64, entry: Entry) -> Child {
        let label = match &entry.key {
            Some(key) => Label::Key(index, self.summary(key)),
            None => Label::Index(index),
        };
        Child {
            key: entry.key,
            ..self.child(label, entry.value)
        }
    }

    fn child(&self, label: Label, value: Value) -> Child {
        Child {
            label,
            key: None,
            type_name: name_of(&value.ty),
            summary: self.summary(&value),
            has_children: self.count(&value) != Some(0),
            value,
        }
    }

    fn printer(&self, language: Language) -> Printer<'_> {
        match self.scope {
            Some(scope) => Printer::in_scope(scope, self.summaries.clone()),
            None => Printer::new(
                self.inspector,
                PrintOptions {
                    language,
                    ..self.summaries.clone()
                },
            ),
        }
    }

    /// A value in one line of no more than about a hundred characters.
    pub fn summary(&self, value: &Value) -> String {
        const WIDTH: usize = 100;
        let text = self.printer(value.ty.language).value(value);
        match text.char_indices().nth(WIDTH) {
            Some((end, _)) => format!("{}...", text.get(..end).unwrap_or(&text)),
            None => text,
        }
    }
}

/// The name of a member; the fields of Rust's tuples have numbers.
fn field_name<'n>(class: &Ty, name: &'n str) -> &'n str {
    let number = name.strip_prefix("__").filter(|n| n.parse::<u32>().is_ok());
    match number {
        Some(number) if class.language == Language::Rust => number,
        _ => name,
    }
}

fn is_reference(ty: &Ty) -> bool {
    matches!(ty.kind, Kind::Reference(_) | Kind::RvalueReference(_))
}
