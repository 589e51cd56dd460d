//! What an expression of the debug information may ask of a frame.

use gimli::{AttributeValue, Expression, constants as c};

use protocol::id::Addr;

use super::Scope;
use super::entry::site_register;
use crate::dwarf::Slice;
use crate::dwarf::die::Die;
use crate::error::{Error, Result};
use crate::frames::Frame;
use crate::inspector::Loaded;
use crate::location::{FrameFacts, Machine, evaluate_word};

/// Answers an expression's questions.
pub(crate) struct Facts<'a> {
    pub scope: &'a Scope<'a>,
    pub frame: Option<&'a Frame>,
    pub module: Loaded,
}

impl Facts<'_> {
    pub fn machine(&self, die: Option<Die>) -> Machine<'_> {
        Machine {
            process: self.scope.inspector.process,
            registers: self.frame.map(|f| &f.registers),
            bias: self.module.bias,
            die,
            frame: Some(self),
            object: None,
        }
    }

    /// What says where the frame's variables are, and of which function.
    pub fn frame_base_expression(&self) -> Result<(Die, Expression<Slice>)> {
        let frame = self
            .frame
            .ok_or_else(|| Error::other("No frame selected."))?;
        let function = frame.function.ok_or(Error::OptimizedOut)?;
        let entry = function.die.read().ok_or(Error::OptimizedOut)?;
        let expression = match entry.inherited(|e| e.value(c::DW_AT_frame_base)) {
            Some(AttributeValue::Exprloc(expression)) => expression,
            Some(value) => {
                let unit = function
                    .die
                    .unit
                    .parsed(function.die.info)
                    .ok_or(Error::OptimizedOut)?;
                let mut found = None;
                if let Some(mut list) = function.die.info.dwarf.attr_locations(unit, value)? {
                    let at = self.module.to_link(frame.lookup);
                    while let Some(item) = list.next()? {
                        if item.range.begin <= at && at < item.range.end {
                            found = Some(item.data);
                            break;
                        }
                    }
                }
                found.ok_or(Error::OptimizedOut)?
            }
            None => return Err(Error::OptimizedOut),
        };
        Ok((function.die, expression))
    }
}

impl FrameFacts for Facts<'_> {
    fn cfa(&self) -> Result<Addr> {
        self.frame
            .and_then(|f| f.cfa)
            .ok_or_else(|| Error::other("No frame selected."))
    }

    fn frame_base(&self) -> Result<Addr> {
        let (die, expression) = self.frame_base_expression()?;
        // It must not ask for the frame base itself.
        let plain = expression.0.slice().first() != Some(&0x91);
        if !plain {
            return Err(Error::OptimizedOut);
        }
        evaluate_word(
            &self.machine(Some(die)),
            expression,
            die.unit.header.encoding(),
            None,
        )
        .map(Addr)
    }

    fn tls(&self, offset: u64) -> Result<Addr> {
        let registers = &self
            .scope
            .stack
            .frames
            .first()
            .ok_or_else(|| Error::other("No thread selected."))?
            .registers
            .now;
        self.scope
            .inspector
            .thread_local(&self.module, Addr(registers.fs_base), offset)
    }

    fn entry_value(&self, expression: Expression<Slice>) -> Result<u64> {
        let register = match expression.0.slice() {
            [op @ 0x50..=0x6f] => u16::from(op - 0x50),
            [0x90, number] | [0xa5, number, _] => u16::from(*number),
            _ => return Err(Error::OptimizedOut),
        };
        self.scope
            .passed(|site| site_register(site) == Some(register))
    }

    fn parameter(&self, die: Die) -> Result<u64> {
        self.scope.passed(|site| {
            site.reference(c::DW_AT_call_parameter)
                .or_else(|| site.reference(c::DW_AT_abstract_origin))
                == Some(die)
        })
    }
}
