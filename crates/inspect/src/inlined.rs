//! Where to stop in a function that is inlined.
//!
//! GCC says where an instance is entered. LLVM does not, and the lowest address
//! of an instance may be the end of a loop around it, or padding: the entry is
//! then where the code around it leads into it.
//!
//! Arguments may not be at their places at the entry. So the way from the entry is followed as long as there
//! is only one and the function is still in its first line, to where they are
//! known: such a place is passed once for each call that the instance stands
//! for, as the entry is.
//!
//! The code there is often that of another function that is inlined into this
//! one in turn. Its frame is inside of the one that was asked for;
//! [`crate::frames::Stack::entering`] leaves it out.

use std::collections::HashMap;

use gimli::constants as c;

use protocol::id::Addr;

use crate::dwarf::blocks::{Block, BlockKind, Function};
use crate::dwarf::die::{Die, Entry};
use crate::dwarf::lines::LineTable;
use crate::flow::ControlFlow;
use crate::inspector::{Inspector, Loaded};
use crate::scope::location_at;
use crate::stepping::Flow;

/// Instructions that are looked at from an instance's entry on.
const FURTHEST: usize = 512;

/// One instance of an inlined function.
struct Instance<'a> {
    function: &'static Function,
    block: &'a Block,
    index: usize,
    lines: &'static LineTable,
}

impl Instance<'_> {
    fn contains(&self, address: u64) -> bool {
        let within = |&(start, end): &(u64, u64)| start <= address && address < end;
        self.block.ranges.iter().any(within)
    }

    /// The line that the function is in at an address of its code: where it
    /// calls what is inlined there, if something is.
    fn line(&self, address: u64) -> Option<u64> {
        let mut line = u64::from(self.lines.at(address)?.line);
        for index in self.function.chain(address) {
            if index == self.index {
                return Some(line);
            }
            if let BlockKind::Inlined { call_line, .. } = self.function.blocks.get(index)?.kind {
                line = call_line;
            }
        }
        None
    }

    /// Whether every parameter that is kept anywhere is known at an address.
    fn knows_parameters(&self, address: u64) -> bool {
        let parameters = self.block.variables.iter().filter(|v| v.parameter);
        let entries = parameters.filter_map(|v| v.die.read());
        let mut kept = entries.filter(|e| e.inherited(|e| e.value(c::DW_AT_location)).is_some());
        kept.all(|e| location_at(&e, address, None).is_some_and(|l| !l.0.is_empty()))
    }
}

/// Where the debug information says that an instance is entered: GCC does.
fn said_entry(entry: &Entry, first: u64) -> Option<u64> {
    let parsed = entry.die.unit.parsed(entry.die.info)?;
    let value = entry.value(c::DW_AT_entry_pc)?;
    match entry.die.info.dwarf.attr_address(parsed, value) {
        Ok(Some(address)) => Some(address),
        // A number is counted from the first address.
        _ => Some(first.wrapping_add(value.udata_value()?)),
    }
}

/// What is known of the code of functions that instances are in.
pub(crate) type Flows = HashMap<usize, Option<ControlFlow>>;

impl Inspector<'_> {
    /// The addresses, in the process, at which to stop in an instance of an
    /// inlined function: one, unless the optimizer has made copies of it.
    pub(crate) fn inlined_bodies(
        &self,
        module: &Loaded,
        instance: Die,
        flows: &mut Flows,
    ) -> Vec<Addr> {
        let entries = instance
            .read()
            .map(|entry| self.instance_entries(module, &entry, flows));
        let places = entries.into_iter().flatten().map(|start| {
            let found = self.with_parameters(module, instance, start);
            module.to_process(found.unwrap_or(start))
        });
        places.collect()
    }

    /// The link-time addresses at which an instance is entered.
    fn instance_entries(&self, module: &Loaded, entry: &Entry, flows: &mut Flows) -> Vec<u64> {
        let ranges = entry.ranges();
        let Some(&(first, _)) = ranges.first() else {
            return Vec::new();
        };
        let within = |pc: &u64| ranges.iter().any(|&(s, e)| s <= *pc && *pc < e);
        if let Some(said) = said_entry(entry, first).filter(within) {
            return vec![said];
        }
        // Others do not say, and the first address may be anywhere in it.
        let function = self
            .code_at(module.to_process(first))
            .and_then(|place| place.function);
        let flow = function.and_then(|function| {
            let key = function.die.global();
            let flow = flows
                .entry(key)
                .or_insert_with(|| ControlFlow::of(self, module, function));
            flow.as_ref()
        });
        let found = flow.map_or(Vec::new(), |flow| flow.entries(&ranges));
        if found.is_empty() { vec![first] } else { found }
    }

    /// Where the parameters of an instance are known, in its first line.
    fn with_parameters(&self, module: &Loaded, die: Die, start: u64) -> Option<u64> {
        let place = self.code_at(module.to_process(start))?;
        let function = place.function?;
        let (index, block) = function
            .blocks
            .iter()
            .enumerate()
            .find(|(_, block)| block.die == die)?;
        let instance = Instance {
            function,
            block,
            index,
            lines: place.unit.lines(place.info),
        };
        let first = instance.line(start)?;
        let mut at = start;
        for _ in 0..FURTHEST {
            if instance.line(at) != Some(first) {
                break;
            }
            if instance.knows_parameters(at) {
                return Some(at);
            }
            let instruction = self.instruction(module.to_process(at), None)?;
            at = match instruction.flow {
                Flow::Next | Flow::Call(_) | Flow::SystemCall => {
                    at.wrapping_add(instruction.length)
                }
                Flow::Jump {
                    target: Some(target),
                    conditional: false,
                } => module.to_link(target),
                _ => break,
            };
            if !instance.contains(at) {
                break;
            }
        }
        None
    }
}
