//! Where a variable is, and its value put together from there.

use gimli::{AttributeValue, Expression, constants as c};

use protocol::id::Addr;

use super::{Facts, Scope};
use crate::dwarf::Slice;
use crate::dwarf::die::{Die, Entry};
use crate::error::{Error, Result};
use crate::frames::Frame;
use crate::inspector::Loaded;
use crate::location::{Machine, evaluate, evaluate_word, register_bytes, value_bytes};
use crate::target::{read_exact, read_u64};
use crate::types::{Count, Kind, Ty, TypeRef};
use crate::value::{Data, Value};

/// The expression that says where an entry is while the code at a link-time
/// address runs; `entry_point` is where its function is entered.
pub(crate) fn location_at(
    entry: &Entry,
    address: u64,
    entry_point: Option<u64>,
) -> Option<Expression<Slice>> {
    let value = entry.inherited(|e| e.value(c::DW_AT_location))?;
    match value {
        AttributeValue::Exprloc(expression) => Some(expression),
        value => {
            let unit = entry.die.unit.parsed(entry.die.info)?;
            let dwarf = &entry.die.info.dwarf;
            if entry_point == Some(address)
                && let Some(found) = location_at_entry(dwarf, unit, value, address)
            {
                return Some(found);
            }
            let mut list = dwarf.attr_locations(unit, value).ok()??;
            while let Ok(Some(found)) = list.next() {
                if found.range.begin <= address && address < found.range.end {
                    return Some(found.data);
                }
            }
            None
        }
    }
}

/// A location that holds for no code at all, at a function's first address, is
/// meant for the moment of the call: GCC says so of what an instruction at that
/// address is about to change.
fn location_at_entry(
    dwarf: &gimli::Dwarf<Slice>,
    unit: &gimli::Unit<Slice>,
    value: AttributeValue<Slice>,
    address: u64,
) -> Option<Expression<Slice>> {
    use gimli::RawLocListEntry as Raw;
    let offset = dwarf.attr_locations_offset(unit, value).ok()??;
    let mut list = dwarf.raw_locations(unit, offset).ok()?;
    let mut base = unit.low_pc;
    while let Ok(Some(raw)) = list.next() {
        let (begin, end, data) = match raw {
            Raw::BaseAddress { addr } => {
                base = addr;
                continue;
            }
            Raw::BaseAddressx { addr } => {
                base = dwarf.address(unit, addr).ok()?;
                continue;
            }
            Raw::AddressOrOffsetPair { begin, end, data }
            | Raw::OffsetPair { begin, end, data } => {
                (base.wrapping_add(begin), base.wrapping_add(end), data)
            }
            Raw::StartEnd { begin, end, data } => (begin, end, data),
            Raw::StartLength {
                begin,
                length,
                data,
            } => (begin, begin.wrapping_add(length), data),
            Raw::StartxLength {
                begin,
                length,
                data,
            } => {
                let begin = dwarf.address(unit, begin).ok()?;
                (begin, begin.wrapping_add(length), data)
            }
            Raw::StartxEndx { begin, end, data } => (
                dwarf.address(unit, begin).ok()?,
                dwarf.address(unit, end).ok()?,
                data,
            ),
            Raw::DefaultLocation { .. } => continue,
        };
        if begin == address && end == address {
            return Some(data);
        }
    }
    None
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
    let entry_point = frame.and_then(|f| f.function).map(|f| f.entry);
    let Some(expression) = location_at(&entry, address, entry_point) else {
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
                    let value = evaluate_word(
                        &facts.machine(Some(*die)),
                        Expression(*expression),
                        die.unit.header.encoding(),
                        None,
                    )
                    .ok()?;
                    // The expression of a bound names where it is.
                    let value = match expression.slice().first() {
                        Some(0x91 | 0x70..=0x8f) if !ends_in_value(expression.slice()) => {
                            read_u64(facts.scope.inspector.process, Addr(value)).ok()?
                        }
                        _ => value,
                    };
                    // Bounds have a sign, as gdb reads them: before an array has
                    // its length, anything may be where that will be.
                    let number = match count {
                        Count::Upper(..) => (value as i64).saturating_add(1),
                        _ => value as i64,
                    };
                    u64::try_from(number).unwrap_or(0)
                }
                Count::UpperIn(die) => {
                    let value = read_variable(facts.scope, facts.frame, facts.module, *die).ok()?;
                    let upper = value.integer(facts.scope.inspector.process).ok()?;
                    u64::try_from(upper.saturating_add(1)).unwrap_or(0)
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
            gimli::Location::Address { address } => Value::in_memory(ty, Addr(*address)),
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
            let start = Addr(*address).plus(skip as u64);
            read_exact(machine.process, start, &mut bytes).ok()?;
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
