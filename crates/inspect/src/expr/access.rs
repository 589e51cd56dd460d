//! What is inside of a value or a frame: registers, members, elements.

use protocol::id::Addr;

use super::Node;
use super::eval::wrong;
use super::types::{base_type, number_type};
use crate::error::Result;
use crate::location::register_bytes;
use crate::lookup::nearest;
use crate::scope::Scope;
use crate::target::GENERAL;
use crate::tree::parts::static_value;
use crate::types::{Count, Kind, Ty, name_of};
use crate::value::{Data, Value};

pub(super) fn referenced(scope: &Scope<'_>, value: Value) -> Result<Value> {
    match &value.ty.peeled().kind {
        Kind::Reference(to) | Kind::RvalueReference(to) => match &value.data {
            Data::Synthetic { target, offset } => {
                let object = scope.read(*target)?;
                Ok(object.part(to.get(), *offset as u64))
            }
            _ => value.target(scope.inspector.process),
        },
        _ => Ok(value),
    }
}

pub(super) fn repeated(first: Value, count: i128, node: &Node) -> Result<Value> {
    let count = u64::try_from(count)
        .ok()
        .filter(|n| *n <= 1 << 24)
        .ok_or_else(|| wrong("Too many elements.", node))?;
    let ty = first.ty.clone().array(count);
    Ok(Value { ty, ..first })
}

pub(super) fn register(scope: &Scope<'_>, name: &str, node: &Node) -> Result<Value> {
    let frame = scope
        .frame()
        .ok_or_else(|| wrong("No frame selected.", node))?;
    let registers = &frame.registers;
    let word = |value: u64, ty: Ty| Ok(Value::from_integer(ty, i128::from(value)));
    let long = || number_type(scope, "long");
    let missing = || {
        wrong(
            format!("The value of ${name} was not saved in this frame."),
            node,
        )
    };
    let code = || Ty::void().pointer();
    match name {
        "pc" | "rip" => return word(registers.pc().ok_or_else(missing)?.0, code()),
        "sp" | "rsp" => return word(registers.get(7).ok_or_else(missing)?, code()),
        "fp" | "rbp" => return word(registers.get(6).ok_or_else(missing)?, code()),
        "eflags" => return word(registers.now.eflags, number_type(scope, "int")),
        "fs_base" => return word(registers.now.fs_base, long()),
        "gs_base" => return word(registers.now.gs_base, long()),
        "orig_rax" => return word(registers.now.orig_rax, long()),
        _ => {}
    }
    if let Some(number) = GENERAL.iter().position(|r| *r == name) {
        return word(registers.get(number as u16).ok_or_else(missing)?, long());
    }
    // eax, ax, al: parts of rax.
    for (number, full) in GENERAL.iter().enumerate() {
        let rest = full.trim_start_matches('r');
        let narrow = match name {
            n if n == format!("e{rest}") || n == format!("{full}d") => Some("int"),
            n if n == rest && !rest.bytes().all(|b| b.is_ascii_digit()) => Some("short"),
            n if n == format!("{full}w") => Some("short"),
            _ => None,
        };
        if let Some(ty) = narrow {
            let value = registers.get(number as u16).ok_or_else(missing)?;
            return word(value, base_type(ty, false).unwrap_or_else(Ty::void));
        }
    }
    if let Some(number) = name
        .strip_prefix("xmm")
        .or_else(|| name.strip_prefix("ymm"))
        .and_then(|n| n.parse::<u16>().ok())
        && let Some(bytes) = register_bytes(registers, 17 + number)
    {
        let keep = if name.starts_with('x') { 16 } else { 32 };
        let bytes = bytes.get(..keep).unwrap_or(&bytes).to_vec();
        let count = bytes.len() as u64 / 4;
        let ty = number_type(scope, "float").array(count);
        return Ok(Value::from_bytes(ty, bytes));
    }
    Err(wrong(format!("Invalid register `{name}'"), node))
}

pub(super) fn member(scope: &Scope<'_>, value: Value, name: &str, node: &Node) -> Result<Value> {
    let process = scope.inspector.process;
    let mut value = referenced(scope, value)?;
    // `.` and `->` both do what is meant, as in gdb; smart pointers of Rust
    // are followed by hand.
    for _ in 0..4 {
        if let Kind::Pointer(_) = value.ty.peeled().kind {
            value = match &value.data {
                Data::Synthetic { target, offset } => {
                    let to = value.ty.target().unwrap_or_else(Ty::void);
                    scope.read(*target)?.part(to, *offset as u64)
                }
                _ => value.target(process)?,
            };
        }
    }
    let label = if name.bytes().all(|b| b.is_ascii_digit()) {
        format!("__{name}")
    } else {
        name.to_string()
    };
    if let Some(found) = value.field(process, &label) {
        return Ok(found);
    }
    let ty = value.ty.peeled().complete();
    let Kind::Struct(aggregate) = &ty.kind else {
        return Err(wrong(
            format!(
                "Attempt to extract a component of a value that is not a structure; it is {}.",
                name_of(&value.ty)
            ),
            node,
        ));
    };
    // A field of the shape that an enumeration of Rust has now.
    if let Some(part) = &aggregate.variants
        && let Some(variant) = value.chosen(process, part)
        && let Ok(shape) = value.member(process, &variant.member)
    {
        if variant.member.name == Some(name) {
            return Ok(shape);
        }
        if let Some(found) = shape.field(process, &label) {
            return Ok(found);
        }
    }
    if let Some(member) = aggregate
        .members
        .iter()
        .find(|m| m.name == Some(name) && m.fixed.is_some())
        && let Some(die) = member.fixed
        && let Some(found) = static_value(scope, member, die, &ty)
    {
        return found;
    }
    let names: Vec<&str> = aggregate.members.iter().filter_map(|m| m.name).collect();
    Err(wrong(
        format!(
            "There is no member named {name}.{}",
            nearest(name, names.into_iter())
        ),
        node,
    ))
}

/// The element type, first address and number of elements of a container of
/// Rust or C++ whose elements lie in a row.
pub(super) fn sequence(scope: &Scope<'_>, value: &Value) -> Option<(Ty, Addr, u64)> {
    match &value.ty.peeled().kind {
        Kind::Array {
            element,
            count: Count::Known(count),
            ..
        } => Some((element.get(), value.address()?, *count)),
        _ => crate::containers::sequence(scope.inspector, value),
    }
}

pub(super) fn element(scope: &Scope<'_>, value: Value, index: i128, node: &Node) -> Result<Value> {
    let value = referenced(scope, value)?;
    if let Kind::Array { .. } = value.ty.peeled().kind {
        let index = u64::try_from(index).map_err(|_| wrong("The index is negative.", node))?;
        return value
            .element(index)
            .ok_or_else(|| wrong("The elements have no size.", node));
    }
    if let Kind::Pointer(to) = &value.ty.peeled().kind {
        let to = to.get();
        let base = value.pointer(scope.inspector.process)?;
        let size = i128::from(to.size_of().unwrap_or(1).max(1));
        let address = base.plus(index.wrapping_mul(size) as u64);
        return Ok(Value::in_memory(to, address));
    }
    if let Some((ty, start, count)) = sequence(scope, &value) {
        let at = u64::try_from(index).ok().filter(|i| *i <= count);
        let at = at.ok_or_else(|| {
            wrong(
                format!("The index {index} is out of range: there are {count} elements."),
                node,
            )
        })?;
        let size = ty.size_of().unwrap_or(0);
        return Ok(Value::in_memory(ty, start.plus(at.wrapping_mul(size))));
    }
    Err(wrong(
        "cannot subscript something that is no array or pointer",
        node,
    ))
}
