//! Where values are: DWARF expressions computed over a stopped process.

use gimli::{EvaluationResult, Expression, Piece, Value, ValueType, constants as c};

use protocol::id::Addr;

use crate::dwarf::Slice;
use crate::dwarf::die::Die;
use crate::error::{Error, Result};
use crate::target::{Process, Registers, read_exact};
use crate::unwind::FrameRegisters;

/// What an expression may ask of the frame it is computed in.
pub trait FrameFacts {
    /// The canonical frame address.
    fn cfa(&self) -> Result<Addr>;
    /// The address that `DW_AT_frame_base` gives.
    fn frame_base(&self) -> Result<Addr>;
    /// Where a thread-local variable of the expression's module is.
    fn tls(&self, offset: u64) -> Result<Addr>;
    /// The value an expression had when the function was entered.
    fn entry_value(&self, expression: Expression<Slice>) -> Result<u64>;
    /// The value that the caller passed for a parameter.
    fn parameter(&self, die: Die) -> Result<u64>;
}

/// Everything an expression is computed over.
pub struct Machine<'a> {
    /// The process.
    pub process: &'a dyn Process,
    /// The registers of the frame.
    pub registers: Option<&'a FrameRegisters>,
    /// What to add to link-time addresses.
    pub bias: u64,
    /// An entry of the unit that the expression is from.
    pub die: Option<Die>,
    /// The frame.
    pub frame: Option<&'a dyn FrameFacts>,
    /// The address of the object, for expressions about its parts.
    pub object: Option<Addr>,
}

/// Loops in expressions are short.
const MAX_STEPS: u32 = 10_000;

impl<'a> Machine<'a> {
    /// For rules of unwinding, which know of nothing but registers and memory.
    pub fn unwinding(process: &'a dyn Process, registers: &'a FrameRegisters, bias: u64) -> Self {
        Self {
            process,
            registers: Some(registers),
            bias,
            die: None,
            frame: None,
            object: None,
        }
    }

    fn facts(&self) -> Result<&dyn FrameFacts> {
        self.frame.ok_or_else(|| Error::other("No frame selected."))
    }

    fn register(&self, number: u16) -> Result<Vec<u8>> {
        let registers = self
            .registers
            .ok_or_else(|| Error::other("No registers."))?;
        register_bytes(registers, number).ok_or(Error::OptimizedOut)
    }

    fn value_type(&self, offset: gimli::UnitOffset) -> Result<ValueType> {
        if offset.0 == 0 {
            return Ok(ValueType::Generic);
        }
        let die = self.die.ok_or(Error::OptimizedOut)?;
        let entry = Die { offset, ..die }
            .read()
            .ok_or_else(|| Error::other("damaged debug information: no such base type"))?;
        ValueType::from_entry(&entry.raw)?.ok_or_else(|| {
            Error::other("damaged debug information: an expression has a type without a size")
        })
    }
}

/// The bytes of a register by DWARF's number, as a frame has it.
pub fn register_bytes(registers: &FrameRegisters, number: u16) -> Option<Vec<u8>> {
    let now: &Registers = &registers.now;
    match number {
        0..=16 => registers.get(number).map(|v| v.to_le_bytes().to_vec()),
        17..=32 => {
            let index = usize::from(number - 17);
            let mut bytes = now.xmm(index)?.to_vec();
            if let Some(high) = now.ymm_high.as_ref().and_then(|h| h.get(index)) {
                bytes.extend_from_slice(high);
            }
            Some(bytes)
        }
        33..=40 => now.st(usize::from(number - 33)).map(|b| b.to_vec()),
        49 => Some(now.eflags.to_le_bytes().to_vec()),
        58 => Some(now.fs_base.to_le_bytes().to_vec()),
        59 => Some(now.gs_base.to_le_bytes().to_vec()),
        _ => None,
    }
}

/// GCC marks values that it takes for not set yet, at the end of the expression
/// that tells where they are. They are shown as they are.
fn without_mark(
    mut expression: Expression<Slice>,
    encoding: gimli::Encoding,
) -> Result<Expression<Slice>> {
    let len = expression.0.len();
    if expression.0.slice().last() != Some(&gimli::constants::DW_OP_GNU_uninit.0) {
        return Ok(expression);
    }
    // The byte may be part of an operation.
    let mut operations = expression.operations(encoding);
    let mut at = 0;
    while at + 1 < len && operations.next()?.is_some() {
        at = operations.offset_from(&expression);
    }
    if at + 1 == len {
        expression.0 = expression.0.range_to(..at);
    }
    Ok(expression)
}

/// Computes an expression; what is left are the pieces of the value.
pub fn evaluate(
    machine: &Machine<'_>,
    expression: Expression<Slice>,
    encoding: gimli::Encoding,
    initial: Option<u64>,
) -> Result<Vec<Piece<Slice>>> {
    let mut evaluation = without_mark(expression, encoding)?.evaluation(encoding);
    evaluation.set_max_iterations(MAX_STEPS);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    if let Some(object) = machine.object {
        evaluation.set_object_address(object.0);
    }
    let mut state = evaluation.evaluate()?;
    // Each question is one operation at least, and operations are counted.
    loop {
        state = match state {
            EvaluationResult::Complete => return Ok(evaluation.result()),
            EvaluationResult::RequiresMemory {
                address,
                size,
                base_type,
                ..
            } => {
                let mut bytes = [0u8; 16];
                let part = bytes
                    .get_mut(..usize::from(size))
                    .ok_or_else(|| Error::other("damaged debug information: a long read"))?;
                read_exact(machine.process, Addr(address), part)?;
                let value = typed(machine.value_type(base_type)?, &bytes)?;
                evaluation.resume_with_memory(value)?
            }
            EvaluationResult::RequiresRegister {
                register,
                base_type,
            } => {
                let bytes = machine.register(register.0)?;
                let mut wide = [0u8; 32];
                for (to, from) in wide.iter_mut().zip(&bytes) {
                    *to = *from;
                }
                let value = typed(machine.value_type(base_type)?, &wide)?;
                evaluation.resume_with_register(value)?
            }
            EvaluationResult::RequiresFrameBase => {
                let base = machine.facts()?.frame_base()?;
                evaluation.resume_with_frame_base(base.0)?
            }
            EvaluationResult::RequiresTls(offset) => {
                let address = machine.facts()?.tls(offset)?;
                evaluation.resume_with_tls(address.0)?
            }
            EvaluationResult::RequiresCallFrameCfa => {
                let cfa = machine.facts()?.cfa()?;
                evaluation.resume_with_call_frame_cfa(cfa.0)?
            }
            EvaluationResult::RequiresAtLocation(reference) => {
                let bytes = called(machine, reference);
                evaluation.resume_with_at_location(bytes)?
            }
            EvaluationResult::RequiresEntryValue(expression) => {
                let value = machine.facts()?.entry_value(expression)?;
                evaluation.resume_with_entry_value(Value::Generic(value))?
            }
            EvaluationResult::RequiresParameterRef(offset) => {
                let die = machine.die.ok_or(Error::OptimizedOut)?;
                let value = machine.facts()?.parameter(Die { offset, ..die })?;
                evaluation.resume_with_parameter_ref(value)?
            }
            EvaluationResult::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(address.wrapping_add(machine.bias))?
            }
            EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                let die = machine.die.ok_or(Error::OptimizedOut)?;
                let unit = die.unit.parsed(die.info).ok_or(Error::OptimizedOut)?;
                let address = die.info.dwarf.address(unit, index)?;
                let bias = if relocate { machine.bias } else { 0 };
                evaluation.resume_with_indexed_address(address.wrapping_add(bias))?
            }
            EvaluationResult::RequiresBaseType(offset) => {
                let ty = machine.value_type(offset)?;
                evaluation.resume_with_base_type(ty)?
            }
        };
    }
}

fn typed(ty: ValueType, bytes: &[u8]) -> Result<Value> {
    if ty == ValueType::Generic {
        return Ok(Value::Generic(
            crate::value::integer_from(bytes.get(..8).unwrap_or(bytes), false) as u64,
        ));
    }
    Ok(Value::parse(
        ty,
        gimli::EndianSlice::new(bytes, gimli::LittleEndian),
    )?)
}

fn called(machine: &Machine<'_>, reference: gimli::DieReference) -> Slice {
    let nothing = Slice::new(&[], gimli::LittleEndian);
    let Some(die) = machine.die else {
        return nothing;
    };
    let target = match reference {
        gimli::DieReference::UnitRef(offset) => Some(Die { offset, ..die }),
        gimli::DieReference::DebugInfoRef(offset) => die.info.die_at(offset),
    };
    match target
        .and_then(Die::read)
        .and_then(|e| e.value(c::DW_AT_location))
    {
        Some(gimli::AttributeValue::Exprloc(expression)) => expression.0,
        _ => nothing,
    }
}

/// Computes an expression that gives an address or a number.
pub fn evaluate_word(
    machine: &Machine<'_>,
    expression: Expression<Slice>,
    encoding: gimli::Encoding,
    initial: Option<u64>,
) -> Result<u64> {
    let pieces = evaluate(machine, expression, encoding, initial)?;
    single(machine, &pieces)
}

/// The one number that an expression gave.
pub fn single(machine: &Machine<'_>, pieces: &[Piece<Slice>]) -> Result<u64> {
    match pieces {
        [piece] => match &piece.location {
            gimli::Location::Address { address } => Ok(*address),
            gimli::Location::Value { value } => Ok(value.to_u64(!0).or_else(|_| bits(*value))?),
            gimli::Location::Register { register } => {
                let bytes = machine.register(register.0)?;
                let mut word = [0u8; 8];
                for (to, from) in word.iter_mut().zip(&bytes) {
                    *to = *from;
                }
                Ok(u64::from_le_bytes(word))
            }
            gimli::Location::Bytes { value } => {
                Ok(crate::value::integer_from(value.slice(), false) as u64)
            }
            _ => Err(Error::OptimizedOut),
        },
        _ => Err(Error::OptimizedOut),
    }
}

/// The bits of a value that is not an integer.
fn bits(value: Value) -> gimli::Result<u64> {
    Ok(match value {
        Value::F32(v) => u64::from(v.to_bits()),
        Value::F64(v) => v.to_bits(),
        _ => return Err(gimli::Error::IntegralTypeRequired),
    })
}

/// The bytes of a value on an expression's stack, least significant first.
pub fn value_bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Generic(v) | Value::U64(v) => v.to_le_bytes().to_vec(),
        Value::I8(v) => i64::from(v).to_le_bytes().to_vec(),
        Value::U8(v) => u64::from(v).to_le_bytes().to_vec(),
        Value::I16(v) => i64::from(v).to_le_bytes().to_vec(),
        Value::U16(v) => u64::from(v).to_le_bytes().to_vec(),
        Value::I32(v) => i64::from(v).to_le_bytes().to_vec(),
        Value::U32(v) => u64::from(v).to_le_bytes().to_vec(),
        Value::I64(v) => v.to_le_bytes().to_vec(),
        Value::F32(v) => v.to_le_bytes().to_vec(),
        Value::F64(v) => v.to_le_bytes().to_vec(),
    }
}
