//! Where variables are, as steps over registers and memory.

use gimli::{Operation, constants as c};

use super::Step;
use super::compile::{Builder, Operand, number};
use crate::dwarf::Slice;
use crate::dwarf::die::Die;
use crate::frames::Frame;
use crate::inspector::Loaded;
use crate::scope::{Facts, location_at, read_variable};
use crate::types::Ty;
use crate::value::Data;

/// Where a variable is.
enum Found {
    Memory,
    Value,
}

impl Builder<'_> {
    /// A variable: its address, or its value if it is in a register or
    /// computed.
    pub(super) fn variable(
        &mut self,
        die: Die,
        module: Loaded,
        frame: Option<&Frame>,
    ) -> Option<Operand> {
        let entry = die.read()?;
        let ty = entry.type_die().map_or_else(Ty::void, Ty::from_die);
        if entry.inherited(|e| e.value(c::DW_AT_const_value)).is_some() {
            let value = read_variable(self.scope, frame, module, die).ok()?;
            number(&value.ty)?;
            let constant = value.integer(self.scope.inspector.process).ok()?;
            self.push(Step::Constant(constant as u64));
            return Some(Operand::Is(value.ty));
        }
        let address = frame.map_or(0, |f| module.to_link(f.lookup));
        let expression = location_at(
            &entry,
            address,
            frame.and_then(|f| f.function).map(|f| f.entry),
        )?;
        // An address that is known without the frame, in whatever form.
        if let [0x03 | 0xa1 | 0xfb, rest @ ..] = expression.0.slice()
            && !matches!(rest.last(), Some(0x9b | 0xe0 | 0x9f))
        {
            let value = read_variable(self.scope, frame, module, die).ok()?;
            let Data::Memory(address) = value.data else {
                return None;
            };
            self.push(Step::Constant(address.0));
            return Some(Operand::At(ty));
        }
        match self.location(expression, die, module, frame?)? {
            Found::Memory => Some(Operand::At(ty)),
            Found::Value => {
                self.fit(&ty)?;
                Some(Operand::Is(ty))
            }
        }
    }

    /// A DWARF expression: the steps are those of another stack machine.
    fn location(
        &mut self,
        expression: gimli::Expression<Slice>,
        die: Die,
        module: Loaded,
        frame: &Frame,
    ) -> Option<Found> {
        let mut operations = expression.operations(die.unit.header.encoding());
        let generic = gimli::UnitOffset(0);
        let mut found = Found::Memory;
        let mut first = true;
        while let Some(operation) = operations.next().ok()? {
            // Nothing follows a register or a value, but pieces.
            if matches!(found, Found::Value) {
                return None;
            }
            match operation {
                Operation::Register { register } if first => {
                    self.general(register.0)?;
                    found = Found::Value;
                }
                Operation::StackValue => found = Found::Value,
                Operation::RegisterOffset {
                    register,
                    offset,
                    base_type,
                } if base_type == generic => {
                    self.general(register.0)?;
                    self.add(offset as u64);
                }
                Operation::FrameOffset { offset } => {
                    self.frame_base(module, frame)?;
                    self.add(offset as u64);
                }
                Operation::CallFrameCFA => self.cfa(module, frame)?,
                Operation::UnsignedConstant { value } => self.push(Step::Constant(value)),
                Operation::SignedConstant { value } => self.push(Step::Constant(value as u64)),
                Operation::PlusConstant { value } => self.add(value),
                Operation::Deref {
                    base_type,
                    size,
                    space: false,
                } if base_type == generic && matches!(size, 1 | 2 | 4 | 8) => {
                    self.push(Step::Load(size));
                }
                Operation::Plus => self.push(Step::Add),
                Operation::Minus => self.push(Step::Subtract),
                Operation::Mul => self.push(Step::Multiply),
                Operation::And => self.push(Step::And),
                Operation::Or => self.push(Step::Or),
                Operation::Xor => self.push(Step::Xor),
                Operation::Not => self.push(Step::Complement),
                Operation::Neg => {
                    self.push(Step::Complement);
                    self.add(1);
                }
                Operation::Shl => self.push(Step::ShiftLeft),
                Operation::Shr => self.push(Step::ShiftRight { signed: false }),
                Operation::Shra => self.push(Step::ShiftRight { signed: true }),
                Operation::Drop => self.push(Step::Drop),
                Operation::Swap => self.push(Step::Swap),
                Operation::Pick { index: 0 } => self.push(Step::Duplicate),
                Operation::Nop => {}
                _ => return None,
            }
            first = false;
        }
        (!first).then_some(found)
    }

    fn add(&mut self, constant: u64) {
        self.push(Step::Constant(constant));
        self.push(Step::Add);
    }

    fn general(&mut self, register: u16) -> Option<()> {
        (register <= 16).then(|| self.push(Step::Register(register)))
    }

    fn frame_base(&mut self, module: Loaded, frame: &Frame) -> Option<()> {
        let facts = Facts {
            scope: self.scope,
            frame: Some(frame),
            module,
        };
        let (die, expression) = facts.frame_base_expression().ok()?;
        match expression.0.slice() {
            // A register stands for what it holds.
            [op @ 0x50..=0x6f] => self.general(u16::from(op - 0x50)),
            // It must not ask for itself.
            [0x91, ..] => None,
            _ => match self.location(expression, die, module, frame)? {
                Found::Memory => Some(()),
                Found::Value => None,
            },
        }
    }

    fn cfa(&mut self, module: Loaded, frame: &Frame) -> Option<()> {
        let rules = module.module.cfi().rules(module.to_link(frame.lookup))?;
        match rules.cfa {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                self.general(register.0)?;
                self.add(offset as u64);
                Some(())
            }
            gimli::CfaRule::Expression(_) => None,
        }
    }
}
