//! What a function was called with: values at its entry, from what the call
//! site of its caller says.

use gimli::{AttributeValue, constants as c};

use protocol::id::Addr;

use super::{Facts, Scope, location_at};
use crate::dwarf::die::{Die, Entry};
use crate::error::{Error, Result};
use crate::frames::FrameKind;
use crate::location::{evaluate_word, register_bytes};
use crate::tailcalls;
use crate::types::Ty;
use crate::value::Value;

impl Scope<'_> {
    /// The value that a parameter had when the function was entered, from what
    /// the caller passed.
    pub fn entry_value(&self, die: Die) -> Result<Value> {
        let entry = die.read().ok_or(Error::OptimizedOut)?;
        let ty = entry.type_die().map_or_else(Ty::void, Ty::from_die);
        // The register in which it was passed is where it is at the entry.
        let frame = self.frame().ok_or(Error::OptimizedOut)?;
        if frame.kind == FrameKind::Inlined {
            return Err(Error::OptimizedOut);
        }
        let function = frame.function.ok_or(Error::OptimizedOut)?;
        let at_entry =
            location_at(&entry, function.entry, Some(function.entry)).ok_or(Error::OptimizedOut)?;
        let register = match at_entry.0.slice() {
            [op @ 0x50..=0x6f] => u16::from(op - 0x50),
            [0x90, number] => u16::from(*number),
            _ => return Err(Error::OptimizedOut),
        };
        let value = self.passed(|site| site_register(site) == Some(register))?;
        let size = ty.size_of().unwrap_or(8).min(8) as usize;
        let bytes = value.to_le_bytes();
        Ok(Value::from_bytes(
            ty,
            bytes.get(..size).unwrap_or(&bytes).to_vec(),
        ))
    }

    /// What the caller passed in the parameter of its call site that `wanted`
    /// picks.
    pub(super) fn passed(&self, wanted: impl Fn(&Entry) -> bool) -> Result<u64> {
        let frame = self.frame().ok_or(Error::OptimizedOut)?;
        let caller_level = self
            .stack
            .frames
            .iter()
            .enumerate()
            .skip(self.level + 1)
            .find(|(_, f)| f.physical > frame.physical || f.kind == FrameKind::TailCall)
            .map(|(level, _)| level)
            .ok_or(Error::OptimizedOut)?;
        let caller = self
            .stack
            .frames
            .get(caller_level)
            .ok_or(Error::OptimizedOut)?;
        // A call passes nothing to the function that a signal interrupts.
        let between = self
            .stack
            .frames
            .iter()
            .any(|f| f.physical == frame.physical && f.kind == FrameKind::Signal);
        if between || caller.kind == FrameKind::Signal {
            return Err(Error::OptimizedOut);
        }
        let (function, module) = caller
            .function
            .zip(caller.module)
            .ok_or(Error::OptimizedOut)?;
        let site = function
            .calls
            .iter()
            .find(|site| site.return_address == module.to_link(caller.pc))
            .ok_or(Error::OptimizedOut)?;
        let entry = site.die.read().ok_or(Error::OptimizedOut)?;
        // The call must have been of this function, not of one that then
        // jumped to it.
        let callee = frame.function.ok_or(Error::OptimizedOut)?;
        let scope = Scope {
            level: caller_level,
            ..*self
        };
        let facts = Facts {
            scope: &scope,
            frame: Some(caller),
            module,
        };
        let callee_module = frame.module.ok_or(Error::OptimizedOut)?;
        let called = match tailcalls::target_of(site) {
            Some(target) => tailcalls::function_of(self.inspector, &module, target)
                .map(|(f, m)| m.to_process(f.entry)),
            None => {
                let target = entry
                    .value(c::DW_AT_call_target)
                    .or_else(|| entry.value(c::DW_AT_GNU_call_site_target));
                match target {
                    Some(AttributeValue::Exprloc(expression)) => evaluate_word(
                        &facts.machine(Some(site.die)),
                        expression,
                        site.die.unit.header.encoding(),
                        None,
                    )
                    .ok()
                    .map(Addr),
                    _ => None,
                }
            }
        };
        if called != Some(callee_module.to_process(callee.entry))
            || tailcalls::may_call_itself_last(self.inspector, &callee_module, callee)
        {
            return Err(Error::OptimizedOut);
        }
        let parameter = entry
            .children()
            .into_iter()
            .find(|p| {
                matches!(
                    p.tag(),
                    c::DW_TAG_call_site_parameter | c::DW_TAG_GNU_call_site_parameter
                ) && wanted(p)
            })
            .ok_or(Error::OptimizedOut)?;
        let value = parameter
            .value(c::DW_AT_call_value)
            .or_else(|| parameter.value(c::DW_AT_GNU_call_site_value));
        let Some(AttributeValue::Exprloc(expression)) = value else {
            return Err(Error::OptimizedOut);
        };
        // Floating-point numbers stand alone: they are values, not addresses.
        match expression.0.slice() {
            [0xa4, _, size, rest @ ..] if usize::from(*size) == rest.len() => {
                return Ok(crate::value::integer_from(rest.get(..8).unwrap_or(rest), false) as u64);
            }
            [0xa5, register, _] => {
                let bytes = register_bytes(&caller.registers, u16::from(*register))
                    .ok_or(Error::OptimizedOut)?;
                let low = bytes.get(..8).unwrap_or(&bytes);
                return Ok(crate::value::integer_from(low, false) as u64);
            }
            _ => {}
        }
        evaluate_word(
            &facts.machine(Some(site.die)),
            expression,
            site.die.unit.header.encoding(),
            None,
        )
    }
}

pub(super) fn site_register(parameter: &Entry) -> Option<u16> {
    match parameter.value(c::DW_AT_location)? {
        AttributeValue::Exprloc(expression) => match expression.0.slice() {
            [op @ 0x50..=0x6f] => Some(u16::from(op - 0x50)),
            [0x90, number] => Some(u16::from(*number)),
            _ => None,
        },
        _ => None,
    }
}
