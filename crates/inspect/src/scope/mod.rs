//! The variables that are visible in a frame.

mod entry;
mod facts;
mod variable;

use gimli::constants as c;

use crate::dwarf::blocks::{BlockKind, Variable};
use crate::dwarf::die::Die;
use crate::error::{Error, Result};
use crate::frames::{Frame, Stack};
use crate::inspector::Inspector;
use crate::value::Value;

pub(crate) use facts::Facts;
pub(crate) use variable::{location_at, read_variable};

/// A frame of a stack, as the place where names have meaning.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The process.
    pub inspector: &'a Inspector<'a>,
    /// The stack.
    pub stack: &'a Stack,
    /// Index of the frame.
    pub level: usize,
}

/// A variable of a frame.
#[derive(Debug, Clone)]
pub struct Local {
    /// Its name.
    pub name: &'static str,
    /// Its entry.
    pub die: Die,
    /// Whether it is a parameter.
    pub parameter: bool,
}

impl Local {
    /// Whether there is any code at which it has a value.
    fn is_somewhere(&self) -> bool {
        let says = [c::DW_AT_location, c::DW_AT_const_value];
        self.die.read().is_some_and(|entry| {
            entry
                .inherited(|e| says.iter().any(|at| e.has(*at)).then_some(()))
                .is_some()
        })
    }
}

impl<'a> Scope<'a> {
    /// The scope of a frame.
    pub fn new(inspector: &'a Inspector<'a>, stack: &'a Stack, level: usize) -> Option<Self> {
        stack.frames.get(level)?;
        Some(Self {
            inspector,
            stack,
            level,
        })
    }

    /// The frame.
    pub fn frame(&self) -> Option<&'a Frame> {
        self.stack.frames.get(self.level)
    }

    /// The parameters of the frame's function. One that is nowhere stands in a variable of
    /// its name, if there is one: Rust moves what it inlines there.
    pub fn arguments(&self) -> Vec<Local> {
        let Some(block) = self.frame().and_then(Frame::function_block) else {
            return Vec::new();
        };
        let stand_in = |parameter: &Local| {
            let mut variables = named(&block.variables, false);
            variables.find(|v| v.name == parameter.name && v.is_somewhere())
        };
        let die_of = |parameter: &Local| match parameter.is_somewhere() {
            true => None,
            false => stand_in(parameter).map(|variable| variable.die),
        };
        named(&block.variables, true)
            .map(|parameter| match die_of(&parameter) {
                Some(die) => Local { die, ..parameter },
                None => parameter,
            })
            .collect()
    }

    /// The variables of the frame, innermost block first.
    pub fn locals(&self) -> Vec<Local> {
        let mut found = Vec::new();
        let Some((frame, function)) = self.frame().and_then(|f| f.function.map(|g| (f, g))) else {
            return found;
        };
        let mut at = frame.innermost;
        while let Some(block) = at.and_then(|index| function.blocks.get(index)) {
            found.extend(named(&block.variables, false));
            if !matches!(block.kind, BlockKind::Lexical) {
                break;
            }
            at = block.parent;
        }
        found
    }

    /// The innermost variable of this name.
    pub fn find(&self, name: &str) -> Option<Local> {
        let (frame, function) = self.frame().and_then(|f| f.function.map(|g| (f, g)))?;
        let mut at = frame.innermost;
        while let Some(block) = at.and_then(|index| function.blocks.get(index)) {
            let mut locals = block
                .variables
                .iter()
                .filter_map(|v| local(*v))
                .filter(|l| l.name == name);
            if let Some(first) = locals.next() {
                return match first.is_somewhere() {
                    true => Some(first),
                    false => Some(locals.find(Local::is_somewhere).unwrap_or(first)),
                };
            }
            if !matches!(block.kind, BlockKind::Lexical) {
                break;
            }
            at = block.parent;
        }
        None
    }

    /// The value of a variable in the frame.
    pub fn read(&self, die: Die) -> Result<Value> {
        let frame = self
            .frame()
            .ok_or_else(|| Error::other("No frame selected."))?;
        let module = frame
            .module
            .ok_or_else(|| Error::other("No symbol table info available."))?;
        read_variable(self, Some(frame), module, die)
    }
}

fn named(variables: &[Variable], parameter: bool) -> impl Iterator<Item = Local> {
    variables
        .iter()
        .filter(move |v| v.parameter == parameter)
        .filter_map(|v| local(*v))
        .filter(|l| {
            // Only declared here, it lives elsewhere.
            !l.die.read().is_some_and(|e| {
                e.flag(c::DW_AT_declaration)
                    || e.inherited(|e| e.flag(c::DW_AT_declaration).then_some(()))
                        .is_some()
                        && !e.has(c::DW_AT_location)
            })
        })
}

fn local(variable: Variable) -> Option<Local> {
    let name = variable.die.read()?.name()?;
    Some(Local {
        name,
        die: variable.die,
        parameter: variable.parameter,
    })
}
