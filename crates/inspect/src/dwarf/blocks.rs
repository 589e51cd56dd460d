//! The blocks of a function: lexical ones, inlined functions, the variables
//! and call sites in them.
//!
//! What an optimizer left out of a concrete function but is in its abstract
//! origin is added, as gdb does: a variable then exists, without a value.

use gimli::constants as c;

use super::die::{Die, Entry};
use super::scopes;
use crate::types::Ty;

/// What a block is.
#[derive(Debug, Clone)]
pub enum BlockKind {
    /// The function itself.
    Function,
    /// Braces.
    Lexical,
    /// A function whose code is here instead of a call.
    Inlined {
        /// Number of the file in which the call is written, in the unit of
        /// the function.
        call_file: u64,
        /// Line of the call.
        call_line: u64,
    },
}

/// A variable or parameter.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its entry.
    pub die: Die,
    /// Whether it is a parameter.
    pub parameter: bool,
}

/// A block.
#[derive(Debug, Clone)]
pub struct Block {
    /// Its entry.
    pub die: Die,
    /// What it is.
    pub kind: BlockKind,
    /// Its code.
    pub ranges: Vec<(u64, u64)>,
    /// The block it is in.
    pub parent: Option<usize>,
    /// Its variables and parameters in the order of the source.
    pub variables: Vec<Variable>,
}

/// A place where a function is called.
#[derive(Debug, Clone, Copy)]
pub struct CallSite {
    /// Its entry.
    pub die: Die,
    /// The address behind the call.
    pub return_address: u64,
    /// Whether the call replaces the frame.
    pub tail: bool,
}

/// A function with its blocks.
#[derive(Debug)]
pub struct Function {
    /// Its entry.
    pub die: Die,
    /// Its full name, without parameters.
    pub name: String,
    /// Its code; the first range is the one it is entered at.
    pub ranges: Vec<(u64, u64)>,
    /// Where it is entered.
    pub entry: u64,
    /// The blocks; the first is the function.
    pub blocks: Vec<Block>,
    /// The calls it makes.
    pub calls: Vec<CallSite>,
    /// Indexes of `blocks`, inner before outer.
    order: Vec<usize>,
}

/// Blocks nest less deeply, and there are fewer of them, in code that
/// compilers make.
const MAX_DEPTH: usize = 200;
const MAX_BLOCKS: usize = 200_000;

impl Function {
    pub(crate) fn read(die: Die) -> Option<Self> {
        let entry = die.read()?;
        let ranges = entry.ranges();
        let &(start, _) = ranges.first()?;
        let mut function = Self {
            die,
            name: scopes::function_name(&entry).unwrap_or_default(),
            entry: entry.low_pc().filter(|pc| *pc != 0).unwrap_or(start),
            ranges: ranges.clone(),
            blocks: vec![Block {
                die,
                kind: BlockKind::Function,
                ranges,
                parent: None,
                variables: Vec::new(),
            }],
            calls: Vec::new(),
            order: Vec::new(),
        };
        function.fill(&entry, 0, 0);
        function.order.push(0);
        Some(function)
    }

    /// Its name as a symbol: with parameters, in C++.
    pub fn symbol_name(&self) -> String {
        let linkage = self.die.read().and_then(|e| e.linkage_name());
        match linkage {
            Some(symbol) if self.die.language() == super::Language::Cpp => {
                crate::elf::demangle::cpp_signature(symbol).unwrap_or_else(|| symbol.to_string())
            }
            None if self.die.language() == super::Language::Cpp => {
                let parameters: Vec<String> = self
                    .blocks
                    .first()
                    .into_iter()
                    .flat_map(|b| &b.variables)
                    .filter(|v| v.parameter)
                    .filter_map(|v| v.die.read())
                    .filter(|e| {
                        e.inherited(|e| e.flag(c::DW_AT_artificial).then_some(()))
                            .is_none()
                    })
                    .map(|e| {
                        let ty = e.type_die().map_or_else(Ty::void, Ty::from_die);
                        crate::types::name_of(&ty)
                    })
                    .collect();
                format!("{}({})", self.name, parameters.join(", "))
            }
            _ => self.name.clone(),
        }
    }

    /// Reads what is in `entry` into block `into`.
    fn fill(&mut self, entry: &Entry, into: usize, depth: usize) {
        if depth > MAX_DEPTH || self.blocks.len() > MAX_BLOCKS {
            return;
        }
        let children = entry.children();
        // What concrete entries stand for.
        let mut present: Vec<Die> = Vec::new();
        for child in &children {
            if !matches!(child.tag(), c::DW_TAG_call_site | c::DW_TAG_GNU_call_site) {
                let mut at = child.reference(c::DW_AT_abstract_origin);
                for _ in 0..8 {
                    let Some(origin) = at else { break };
                    let next = origin
                        .read()
                        .and_then(|e| e.reference(c::DW_AT_abstract_origin));
                    if next.is_none() {
                        present.push(origin);
                    }
                    at = next;
                }
            }
            self.take(child, into, depth);
        }
        let Some(origin) = entry.reference(c::DW_AT_abstract_origin) else {
            return;
        };
        for child in origin.children() {
            if !present.contains(&child.die) {
                self.take(&child, into, depth);
            }
        }
    }

    fn take(&mut self, child: &Entry, into: usize, depth: usize) {
        match child.tag() {
            tag @ (c::DW_TAG_variable | c::DW_TAG_formal_parameter) => {
                if let Some(block) = self.blocks.get_mut(into) {
                    block.variables.push(Variable {
                        die: child.die,
                        parameter: tag == c::DW_TAG_formal_parameter,
                    });
                }
            }
            c::DW_TAG_lexical_block => {
                let bounded = child.has(c::DW_AT_low_pc) || child.has(c::DW_AT_ranges);
                if bounded {
                    let ranges = child.ranges();
                    if !ranges.is_empty() {
                        self.open(child, BlockKind::Lexical, ranges, into, depth);
                    }
                } else {
                    self.fill(child, into, depth + 1);
                }
            }
            c::DW_TAG_inlined_subroutine => {
                let ranges = child.ranges();
                let (Some(call_file), Some(call_line)) = (
                    child.number(c::DW_AT_call_file),
                    child.number(c::DW_AT_call_line),
                ) else {
                    return;
                };
                if ranges.is_empty() || child.name().is_none() {
                    return;
                }
                let kind = BlockKind::Inlined {
                    call_file,
                    call_line,
                };
                self.open(child, kind, ranges, into, depth);
            }
            c::DW_TAG_call_site | c::DW_TAG_GNU_call_site => {
                let return_address = child
                    .die
                    .unit
                    .parsed(child.die.info)
                    .zip(
                        child
                            .value(c::DW_AT_call_return_pc)
                            .or_else(|| child.value(c::DW_AT_low_pc)),
                    )
                    .and_then(|(unit, value)| {
                        child.die.info.dwarf.attr_address(unit, value).ok()?
                    });
                if let Some(return_address) = return_address {
                    self.calls.push(CallSite {
                        die: child.die,
                        return_address,
                        tail: child.flag(c::DW_AT_call_tail_call)
                            || child.flag(c::DW_AT_GNU_tail_call),
                    });
                }
            }
            _ => {}
        }
    }

    fn open(
        &mut self,
        entry: &Entry,
        kind: BlockKind,
        ranges: Vec<(u64, u64)>,
        parent: usize,
        depth: usize,
    ) {
        let index = self.blocks.len();
        self.blocks.push(Block {
            die: entry.die,
            kind,
            ranges,
            parent: Some(parent),
            variables: Vec::new(),
        });
        self.fill(entry, index, depth + 1);
        self.order.push(index);
    }

    /// The innermost block at an address.
    pub fn block_at(&self, address: u64) -> Option<usize> {
        self.order.iter().copied().find(|&index| {
            self.blocks
                .get(index)
                .is_some_and(|b| b.ranges.iter().any(|&(s, e)| s <= address && address < e))
        })
    }

    /// Whether the function's code includes an address.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges
            .iter()
            .any(|&(start, end)| start <= address && address < end)
    }

    /// The chain of blocks from the innermost at `address` to the function.
    pub fn chain(&self, address: u64) -> Vec<usize> {
        let mut chain = Vec::new();
        let mut at = self.block_at(address);
        while let Some(index) = at {
            chain.push(index);
            at = self.blocks.get(index).and_then(|b| b.parent);
        }
        chain
    }
}
