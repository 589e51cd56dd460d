//! The variables that are visible in a frame.

use gimli::{AttributeValue, Expression, constants as c};

use crate::dwarf::Slice;
use crate::dwarf::blocks::{BlockKind, Variable};
use crate::dwarf::die::{Die, Entry};
use crate::error::{Error, Result};
use crate::frames::{Frame, FrameKind, Stack};
use crate::inspector::{Inspector, Loaded};
use crate::location::{
    FrameFacts, Machine, evaluate, evaluate_address, register_bytes, value_bytes,
};
use crate::tailcalls;
use crate::types::{Count, Kind, Ty, TypeRef};
use crate::value::{Data, Value};

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

    /// The parameters of the frame's function.
    pub fn arguments(&self) -> Vec<Local> {
        let Some(block) = self.frame().and_then(Frame::function_block) else {
            return Vec::new();
        };
        named(&block.variables, true).collect()
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
            let local = block
                .variables
                .iter()
                .filter_map(|v| local(*v))
                .find(|l| l.name == name);
            if local.is_some() {
                return local;
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
        let at_entry = location_at(&entry, function.entry).ok_or(Error::OptimizedOut)?;
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
    fn passed(&self, wanted: impl Fn(&Entry) -> bool) -> Result<u64> {
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
                    Some(AttributeValue::Exprloc(expression)) => evaluate_address(
                        &facts.machine(Some(site.die)),
                        expression,
                        site.die.unit.header.encoding(),
                        None,
                    )
                    .ok(),
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
        evaluate_address(
            &facts.machine(Some(site.die)),
            expression,
            site.die.unit.header.encoding(),
            None,
        )
    }
}

fn site_register(parameter: &Entry) -> Option<u16> {
    match parameter.value(c::DW_AT_location)? {
        AttributeValue::Exprloc(expression) => match expression.0.slice() {
            [op @ 0x50..=0x6f] => Some(u16::from(op - 0x50)),
            [0x90, number] => Some(u16::from(*number)),
            _ => None,
        },
        _ => None,
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

/// The expression that says where an entry is while the code at a link-time
/// address runs.
pub(crate) fn location_at(entry: &Entry, address: u64) -> Option<Expression<Slice>> {
    let value = entry.inherited(|e| e.value(c::DW_AT_location))?;
    match value {
        AttributeValue::Exprloc(expression) => Some(expression),
        value => {
            let unit = entry.die.unit.parsed(entry.die.info)?;
            let mut list = entry.die.info.dwarf.attr_locations(unit, value).ok()??;
            while let Ok(Some(found)) = list.next() {
                if found.range.begin <= address && address < found.range.end {
                    return Some(found.data);
                }
            }
            None
        }
    }
}

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
    fn cfa(&self) -> Result<u64> {
        self.frame
            .and_then(|f| f.cfa)
            .ok_or_else(|| Error::other("No frame selected."))
    }

    fn frame_base(&self) -> Result<u64> {
        let (die, expression) = self.frame_base_expression()?;
        // It must not ask for the frame base itself.
        let plain = expression.0.slice().first() != Some(&0x91);
        if !plain {
            return Err(Error::OptimizedOut);
        }
        evaluate_address(
            &self.machine(Some(die)),
            expression,
            die.unit.header.encoding(),
            None,
        )
    }

    fn tls(&self, offset: u64) -> Result<u64> {
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
            .thread_local(&self.module, registers.fs_base, offset)
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

/// The value of a variable, with a frame if it needs one.
pub(crate) fn read_variable(
    scope: &Scope<'_>,
    frame: Option<&Frame>,
    module: Loaded,
    die: Die,
) -> Result<Value> {
    let entry = die
        .read()
        .ok_or_else(|| Error::other("damaged debug information: no such variable"))?;
    let ty = entry.type_die().map_or_else(Ty::void, Ty::from_die);
    let facts = Facts {
        scope,
        frame,
        module,
    };
    let ty = resolve_bounds(&facts, ty);
    if let Some(value) = entry.inherited(|e| e.value(c::DW_AT_const_value)) {
        return Ok(constant(ty, value));
    }
    let address = frame.map_or(0, |f| module.to_link(f.lookup));
    let Some(expression) = location_at(&entry, address) else {
        return Ok(Value::optimized_out(ty));
    };
    if expression.0.is_empty() {
        return Ok(Value::optimized_out(ty));
    }
    let machine = facts.machine(Some(die));
    let encoding = die.unit.header.encoding();
    let pieces = match evaluate(&machine, expression, encoding, None) {
        Ok(pieces) => pieces,
        Err(Error::OptimizedOut) => return Ok(Value::optimized_out(ty)),
        Err(e) => return Err(e),
    };
    Ok(assemble(&machine, ty, &pieces))
}

/// Arrays whose length is a variable's value get that length.
fn resolve_bounds(facts: &Facts<'_>, ty: Ty) -> Ty {
    resolve_within(facts, &ty, 16).unwrap_or(ty)
}

fn resolve_within(facts: &Facts<'_>, ty: &Ty, depth: usize) -> Option<Ty> {
    let depth = depth.checked_sub(1)?;
    match &ty.kind {
        Kind::Array { element, count, .. } => {
            let inner = resolve_within(facts, &element.get(), depth);
            let number = match count {
                Count::Known(n) => *n,
                Count::Unknown => return None,
                Count::Upper(die, expression) | Count::Number(die, expression) => {
                    let value = evaluate_address(
                        &facts.machine(Some(*die)),
                        Expression(*expression),
                        die.unit.header.encoding(),
                        None,
                    )
                    .ok()?;
                    // The expression of a bound names where it is.
                    let value = match expression.slice().first() {
                        Some(0x91 | 0x70..=0x8f) if !ends_in_value(expression.slice()) => {
                            crate::target::read_u64(facts.scope.inspector.process, value).ok()?
                        }
                        _ => value,
                    };
                    match count {
                        Count::Upper(..) => value.wrapping_add(1),
                        _ => value,
                    }
                }
                Count::UpperIn(die) => {
                    let value = read_variable(facts.scope, facts.frame, facts.module, *die).ok()?;
                    let upper = value.integer(facts.scope.inspector.process).ok()?;
                    u64::try_from(upper + 1).ok()?
                }
            };
            if matches!(count, Count::Known(_)) && inner.is_none() {
                return None;
            }
            Some(inner.unwrap_or_else(|| element.get()).array(number))
        }
        Kind::Typedef(to) | Kind::Qualified(_, to) => resolve_within(facts, &to.get(), depth),
        Kind::Pointer(to) => {
            let to = to.get();
            if !matches!(to.kind, Kind::Array { .. }) {
                return None;
            }
            Some(resolve_within(facts, &to, depth)?.pointer())
        }
        Kind::Reference(to) => {
            let to = resolve_within(facts, &to.get(), depth)?;
            let mut made = (**ty).clone();
            made.kind = Kind::Reference(TypeRef::Made(to));
            made.name = None;
            Some(Ty::Made(std::sync::Arc::new(made)))
        }
        _ => None,
    }
}

fn ends_in_value(expression: &[u8]) -> bool {
    // DW_OP_stack_value, or a dereference: the number itself is on the stack.
    matches!(expression.last(), Some(0x9f | 0x06))
}

fn constant(ty: Ty, value: AttributeValue<Slice>) -> Value {
    let size = ty.size_of().unwrap_or(0);
    match value {
        AttributeValue::Block(bytes) => Value::from_bytes(ty, bytes.slice().to_vec()),
        AttributeValue::String(bytes) => Value::from_bytes(ty, bytes.slice().to_vec()),
        value => {
            let signed = crate::value::is_signed(&ty.peeled());
            let number = match value {
                AttributeValue::Data1(v) if signed && size > 1 => i128::from(v as i8),
                AttributeValue::Data2(v) if signed && size > 2 => i128::from(v as i16),
                AttributeValue::Data4(v) if signed && size > 4 => i128::from(v as i32),
                AttributeValue::Data16(v) => v as i128,
                AttributeValue::Sdata(v) => i128::from(v),
                value => value.udata_value().map_or(0, i128::from),
            };
            Value::from_integer(ty, number)
        }
    }
}

/// Puts a value together from its pieces.
fn assemble(machine: &Machine<'_>, ty: Ty, pieces: &[gimli::Piece<Slice>]) -> Value {
    let size = ty.size_of().unwrap_or(0);
    if let [piece] = pieces
        && piece.size_in_bits.is_none()
    {
        return match &piece.location {
            gimli::Location::Empty => Value::optimized_out(ty),
            gimli::Location::Address { address } => Value::in_memory(ty, *address),
            gimli::Location::Register { register } => {
                match machine
                    .registers
                    .and_then(|r| register_bytes(r, register.0))
                {
                    Some(bytes) => {
                        let mut bytes = bytes;
                        bytes.resize(size as usize, 0);
                        Value {
                            ty,
                            data: Data::Bytes {
                                bytes,
                                missing: None,
                                register: Some(register.0),
                            },
                            bits: None,
                        }
                    }
                    None => Value::optimized_out(ty),
                }
            }
            gimli::Location::Value { value } => {
                let mut bytes = value_bytes(*value);
                bytes.resize(size as usize, 0);
                Value::from_bytes(ty, bytes)
            }
            gimli::Location::Bytes { value } => {
                let mut bytes = value.slice().to_vec();
                bytes.resize(size as usize, 0);
                Value::from_bytes(ty, bytes)
            }
            gimli::Location::ImplicitPointer { value, byte_offset } => {
                match machine.die.and_then(|die| die.info.die_at(*value)) {
                    Some(target) => Value {
                        ty,
                        data: Data::Synthetic {
                            target,
                            offset: *byte_offset,
                        },
                        bits: None,
                    },
                    None => Value::optimized_out(ty),
                }
            }
        };
    }
    let len = usize::try_from(size.min(1 << 20)).unwrap_or(0);
    let mut bytes = vec![0u8; len];
    let mut missing = vec![true; len];
    let mut at = 0u64;
    for piece in pieces {
        let width = piece.size_in_bits.unwrap_or(size * 8);
        let part = piece_bytes(machine, piece, width.div_ceil(8));
        put(&mut bytes, &mut missing, at, width, part.as_deref());
        at = at.saturating_add(width);
        if at >= size * 8 {
            break;
        }
    }
    let missing = missing.iter().any(|m| *m).then_some(missing);
    Value {
        ty,
        data: Data::Bytes {
            bytes,
            missing,
            register: None,
        },
        bits: None,
    }
}

fn piece_bytes(machine: &Machine<'_>, piece: &gimli::Piece<Slice>, len: u64) -> Option<Vec<u8>> {
    let skip = piece.bit_offset.unwrap_or(0) / 8;
    let len = usize::try_from(len.min(1 << 20)).ok()?;
    let skip = usize::try_from(skip).ok()?;
    match &piece.location {
        gimli::Location::Address { address } => {
            let mut bytes = vec![0; len];
            crate::target::read_exact(
                machine.process,
                address.wrapping_add(skip as u64),
                &mut bytes,
            )
            .ok()?;
            Some(bytes)
        }
        gimli::Location::Register { register } => {
            let bytes = register_bytes(machine.registers?, register.0)?;
            bytes.get(skip..).map(<[u8]>::to_vec)
        }
        gimli::Location::Value { value } => value_bytes(*value).get(skip..).map(<[u8]>::to_vec),
        gimli::Location::Bytes { value } => value.slice().get(skip..).map(<[u8]>::to_vec),
        _ => None,
    }
}

fn put(bytes: &mut [u8], missing: &mut [bool], at: u64, width: u64, part: Option<&[u8]>) {
    let Some(part) = part else { return };
    // Pieces of bits are rare; bytes are what compilers use.
    for bit in 0..width {
        let to = at + bit;
        let (Some(target), Some(source)) = (
            bytes.get_mut((to / 8) as usize),
            part.get((bit / 8) as usize),
        ) else {
            return;
        };
        if (source >> (bit % 8)) & 1 == 1 {
            *target |= 1 << (to % 8);
        }
        if let Some(flag) = missing.get_mut((to / 8) as usize) {
            *flag = false;
        }
    }
}
