//! What structures and arrays are made of, part by part and in order: what the
//! tree gives as children and the printer goes through.
//!
//! A part is looked at when it is come to, and nothing is read of the rest.

use std::ops::Range;

use super::Label;
use crate::dwarf::die::Die;
use crate::dwarf::names::NameKind;
use crate::dwarf::scopes::full_name;
use crate::error::{Error, Result};
use crate::inspector::Inspector;
use crate::scope::{Scope, read_variable};
use crate::target::Process;
use crate::types::{Aggregate, Member, Ty, name_of};
use crate::value::Value;

/// A member of a structure, with its value there.
pub(crate) struct Part<'v> {
    pub member: &'v Member,
    pub value: Result<Value>,
}

impl Part<'_> {
    /// What it is to the structure.
    pub fn label(&self) -> Label {
        let name = || self.member.name.unwrap_or("").to_string();
        match (self.member.fixed, self.member.base, self.member.name) {
            (Some(_), ..) => Label::Static(name()),
            (None, true, _) => Label::Base(name_of(&self.member.ty.get())),
            (None, false, Some(_)) => Label::Member(name()),
            (None, false, None) => Label::Anonymous,
        }
    }
}

/// The members of a structure.
pub(crate) struct Members<'a, 'v> {
    inspector: &'a Inspector<'a>,
    scope: Option<Scope<'a>>,
    whole: &'v Value,
    /// With its bytes read.
    fetched: Option<Value>,
    class: &'v Ty,
    all: &'v [Member],
}

impl<'a, 'v> Members<'a, 'v> {
    /// Of a value of a class. Static ones are found where there is a scope.
    pub fn new(
        inspector: &'a Inspector<'a>,
        scope: Option<Scope<'a>>,
        whole: &'v Value,
        class: &'v Ty,
        aggregate: &'v Aggregate,
    ) -> Self {
        Self {
            inspector,
            scope,
            whole,
            fetched: None,
            class,
            all: &aggregate.members,
        }
    }

    /// One read for all, where that is cheap: parts are copies then, that have
    /// no address.
    pub fn fetched(mut self) -> Self {
        self.fetched = Some(self.whole.fetched(self.inspector.process));
        self
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Those with the numbers of a range.
    pub fn page(&self, range: Range<usize>) -> impl Iterator<Item = Part<'v>> {
        let chosen = self.all.iter().skip(range.start).take(range.len());
        chosen.map(|member| self.part(member))
    }

    /// The base classes, which are shown first.
    pub fn bases(&self) -> impl Iterator<Item = Part<'v>> {
        let bases = self.all.iter().filter(|member| member.base);
        bases.map(|member| self.part(member))
    }

    /// All that are not base classes.
    pub fn fields(&self) -> impl Iterator<Item = Part<'v>> {
        let fields = self.all.iter().filter(|member| !member.base);
        fields.map(|member| self.part(member))
    }

    fn part(&self, member: &'v Member) -> Part<'v> {
        let process = self.inspector.process;
        let value = match (member.fixed, &self.fetched) {
            (Some(die), _) => {
                let scope = self.scope.as_ref();
                let found = scope.and_then(|s| static_value(s, member, die, self.class));
                found.unwrap_or(Err(Error::OptimizedOut))
            }
            // Where those are is read elsewhere.
            (None, Some(fetched)) if !member.virtual_base => fetched.member(process, member),
            (None, _) => self.whole.member(process, member),
        };
        Part { member, value }
    }
}

/// The value of a static member, from the definition of its declaration. None:
/// there is no such definition.
pub(crate) fn static_value(
    scope: &Scope<'_>,
    member: &Member,
    die: Die,
    class: &Ty,
) -> Option<Result<Value>> {
    let declared = die.read()?;
    let module = *scope
        .inspector
        .modules()
        .iter()
        .find(|m| m.module.info().is_some_and(|i| std::ptr::eq(i, die.info)))?;
    if declared.has(gimli::constants::DW_AT_const_value) {
        return Some(read_variable(scope, None, module, die));
    }
    let wanted = format!("{}::{}", class.name.as_deref()?, member.name?);
    let found = die
        .info
        .names()
        .find(die.info, member.name?, NameKind::Variable)
        .find(|found| {
            found
                .read()
                .and_then(|e| full_name(&e))
                .is_some_and(|name| name == wanted)
        })?;
    Some(read_variable(scope, None, module, found))
}

/// The elements of an array.
pub(crate) struct Elements<'v> {
    array: &'v Value,
    count: u64,
    /// So many of the first, with their bytes read.
    fetched: Option<(u64, Value)>,
}

impl<'v> Elements<'v> {
    pub fn new(array: &'v Value) -> Self {
        Self {
            array,
            count: array.count().unwrap_or(0),
            fetched: None,
        }
    }

    /// One read for so many of the first, where that is cheap: they are copies
    /// then, that have no address.
    pub fn fetched(mut self, process: &dyn Process, element: &Ty, most: u64) -> Self {
        let window = element.clone().array(self.count.min(most));
        self.fetched = Some((most, self.array.part(window, 0).fetched(process)));
        self
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The one of a number.
    pub fn get(&self, index: u64) -> Option<Value> {
        match &self.fetched {
            Some((most, window)) if index < *most => window.element(index),
            _ => self.array.element(index),
        }
    }

    /// Those with the numbers of a range.
    pub fn page(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Value)> {
        let range = range.start.min(self.count)..range.end.min(self.count);
        range.filter_map(|index| Some((index, self.get(index)?)))
    }
}
