//! Meaning and value of a tree.

use super::access::{element, member, referenced, register, repeated, sequence};
use super::operators::{binary, cast, unary};
use super::types::{base_type, is_rust, number_type};
use super::{Node, NodeKind};
use crate::dwarf::names::NameKind;
use crate::error::{Error, Result};
use crate::lookup::nearest;
use crate::print::float;
use crate::scope::{Scope, read_variable};
use crate::types::{Kind, Ty};
use crate::value::Value;

pub(super) fn wrong(message: impl Into<String>, node: &Node) -> Error {
    Error::Expression {
        message: message.into(),
        column: node.column + 1,
    }
}

/// Looks names up.
pub(super) fn bind(scope: &Scope<'_>, node: &mut Node) -> Result<()> {
    match &mut node.kind {
        NodeKind::Name(name) => {
            let name = name.clone();
            node.kind = meaning(scope, &name, node)?;
            Ok(())
        }
        NodeKind::Unary(_, a) | NodeKind::Cast(_, a) | NodeKind::SizeOf(a) => bind(scope, a),
        NodeKind::Member(a, _) => bind(scope, a),
        NodeKind::Binary(_, a, b) | NodeKind::Index(a, b) | NodeKind::At(a, b) => {
            bind(scope, a)?;
            bind(scope, b)
        }
        NodeKind::Choice(a, b, d) => {
            bind(scope, a)?;
            bind(scope, b)?;
            bind(scope, d)
        }
        NodeKind::Slice(a, b, d, _) => {
            bind(scope, a)?;
            for part in [b, d].into_iter().flatten() {
                bind(scope, part)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn meaning(scope: &Scope<'_>, name: &str, node: &Node) -> Result<NodeKind> {
    if let Some(local) = scope.find(name) {
        return Ok(NodeKind::Local(local.die));
    }
    // A member of the object that a method runs on.
    if let Some(this) = scope.find("this")
        && let Ok(value) = scope.read(this.die)
        && let Ok(object) = value.target(scope.inspector.process)
        && object.field(scope.inspector.process, name).is_some()
    {
        let this = Node {
            kind: NodeKind::Local(this.die),
            column: node.column,
        };
        return Ok(NodeKind::Member(Box::new(this), name.to_string()));
    }
    let near = scope.frame().and_then(|f| f.function).map(|f| f.die);
    if let Some((die, module)) = scope.inspector.globals(name, near).into_iter().next() {
        return Ok(NodeKind::Global(die, module));
    }
    if let Some((ty, value)) = scope.inspector.enumerator(name) {
        return Ok(NodeKind::Constant(ty, value));
    }
    let inspector = scope.inspector;
    for module in inspector.modules() {
        let symbols = module.module.symbols();
        let found = symbols.named(name).chain(symbols.demangled(name)).next();
        if let Some(symbol) = found {
            let address = module.to_process(symbol.address);
            let function = inspector.code_at(address).and_then(|p| p.function);
            let ty = match function {
                Some(function) if symbol.code => Ty::from_die(function.die),
                None if symbol.code => Ty::code(),
                _ => number_type(scope, "int"),
            };
            return Ok(NodeKind::Symbol(address, ty));
        }
    }
    if let Some(ty) = inspector.find_type(name, near) {
        return Ok(NodeKind::Type(ty));
    }
    let mut names: Vec<&str> = Vec::new();
    names.extend(scope.locals().iter().map(|l| l.name));
    names.extend(scope.arguments().iter().map(|l| l.name));
    for module in inspector.modules() {
        if let Some(info) = module.module.info() {
            names.extend(info.names().all(NameKind::Variable));
        }
    }
    Err(Error::NoSymbol {
        name: name.to_string(),
        hint: nearest(name, names.into_iter()),
    })
}

/// Computes a tree.
pub(super) fn evaluate(scope: &Scope<'_>, node: &Node) -> Result<Value> {
    match &node.kind {
        NodeKind::Integer(value, suffix) => Ok(integer_literal(scope, *value, suffix)),
        NodeKind::Float(value, suffix) => {
            let single = matches!(suffix.as_str(), "f" | "F" | "f32");
            let ty = number_type(scope, if single { "float" } else { "double" });
            let bytes = if single {
                (*value as f32).to_le_bytes().to_vec()
            } else {
                value.to_le_bytes().to_vec()
            };
            Ok(Value::from_bytes(ty, bytes))
        }
        NodeKind::Character(value) => {
            let ty = base_type("char", is_rust(scope)).unwrap_or_else(Ty::void);
            Ok(Value::from_integer(ty, i128::from(*value)))
        }
        NodeKind::Text(text) => {
            let rust = is_rust(scope);
            let element =
                base_type(if rust { "u8" } else { "char" }, rust).unwrap_or_else(Ty::void);
            let mut bytes = text.clone();
            if !rust {
                bytes.push(0);
            }
            let count = bytes.len() as u64;
            Ok(Value::from_bytes(element.array(count), bytes))
        }
        NodeKind::Boolean(value) => {
            let ty = base_type("bool", is_rust(scope)).unwrap_or_else(Ty::void);
            Ok(Value::from_integer(ty, i128::from(*value)))
        }
        NodeKind::Name(name) => Err(wrong(
            format!("No symbol \"{name}\" in current context."),
            node,
        )),
        NodeKind::Local(die) => scope.read(*die),
        NodeKind::Global(die, module) => read_variable(scope, None, *module, *die),
        NodeKind::Symbol(address, ty) => Ok(Value::in_memory(ty.clone(), *address)),
        NodeKind::Constant(ty, value) => Ok(Value::from_integer(ty.clone(), *value)),
        NodeKind::Register(name) => register(scope, name, node),
        NodeKind::Type(_) => Err(wrong(
            "Attempt to use a type name as an expression; `ptype` and `sizeof` take types.",
            node,
        )),
        NodeKind::SizeOf(inner) => {
            let ty = match &inner.kind {
                NodeKind::Type(ty) => ty.clone(),
                _ => evaluate(scope, inner)?.ty,
            };
            let size = ty.complete().size_of().unwrap_or(0);
            Ok(Value::from_integer(
                number_type(scope, "unsigned long"),
                i128::from(size),
            ))
        }
        NodeKind::Cast(ty, inner) => {
            let value = evaluate(scope, inner)?;
            cast(scope, ty, &value, node)
        }
        NodeKind::Unary(operator, inner) => unary(scope, *operator, inner, node),
        NodeKind::Binary(operator, left, right) => binary(scope, *operator, left, right, node),
        NodeKind::Choice(condition, yes, no) => {
            let value = evaluate(scope, condition)?;
            if truth(scope, &value, condition)? {
                evaluate(scope, yes)
            } else {
                evaluate(scope, no)
            }
        }
        NodeKind::Member(inner, name) => {
            let value = evaluate(scope, inner)?;
            member(scope, value, name, node)
        }
        NodeKind::Index(inner, index) => {
            let value = evaluate(scope, inner)?;
            let at = evaluate(scope, index)?;
            let at = integer(scope, &at, index)?;
            element(scope, value, at, node)
        }
        NodeKind::Slice(inner, first, end, closed) => {
            let value = evaluate(scope, inner)?;
            let number = |part: &Option<Box<Node>>| -> Result<Option<i128>> {
                part.as_ref()
                    .map(|p| integer(scope, &evaluate(scope, p)?, p))
                    .transpose()
            };
            let start = number(first)?.unwrap_or(0);
            let end = match number(end)? {
                Some(end) => end + i128::from(*closed),
                None => sequence(scope, &value).map_or(0, |(_, _, n)| i128::from(n)),
            };
            if end < start {
                return Err(wrong("The range ends before it begins.", node));
            }
            let first = element(scope, value, start, node)?;
            repeated(first, end - start, node)
        }
        NodeKind::At(inner, count) => {
            let value = evaluate(scope, inner)?;
            let count_value = evaluate(scope, count)?;
            let number = integer(scope, &count_value, count)?;
            if number < 1 {
                return Err(wrong("Invalid number of repetitions.", node));
            }
            if value.address().is_none() {
                return Err(wrong(
                    "Only values in memory can be extended with '@'.",
                    node,
                ));
            }
            repeated(value, number, node)
        }
    }
}

pub(super) fn integer_literal(scope: &Scope<'_>, value: u128, suffix: &str) -> Value {
    let lower = suffix.to_ascii_lowercase();
    if is_rust(scope) {
        let ty = base_type(&lower, true)
            .or_else(|| base_type(if value > 0x7fff_ffff { "i64" } else { "i32" }, true))
            .unwrap_or_else(Ty::void);
        return Value::from_integer(ty, value as i128);
    }
    let (unsigned, long) = (lower.contains('u'), lower.contains('l'));
    let name = match (unsigned, long) {
        (false, false) if value <= 0x7fff_ffff => "int",
        (true, false) if value <= 0xffff_ffff => "unsigned int",
        (false, _) if value <= i64::MAX as u128 => "long",
        _ => "unsigned long",
    };
    Value::from_integer(number_type(scope, name), value as i128)
}

pub(super) fn integer(scope: &Scope<'_>, value: &Value, node: &Node) -> Result<i128> {
    let value = referenced(scope, value.clone())?;
    match &value.ty.peeled().kind {
        Kind::Base(e) if crate::print::is_float(*e) => Ok(real(scope, &value)? as i128),
        Kind::Base(_) | Kind::Enum(_) | Kind::Pointer(_) => value.integer(scope.inspector.process),
        _ => Err(wrong(
            "Argument to arithmetic operation not a number or boolean.",
            node,
        )),
    }
}

pub(crate) fn real(scope: &Scope<'_>, value: &Value) -> Result<f64> {
    let bytes = value.bytes(scope.inspector.process)?;
    Ok(match bytes.len() {
        4 => f32::from_le_bytes(bytes.as_slice().try_into().unwrap_or_default()).into(),
        8 => f64::from_le_bytes(bytes.as_slice().try_into().unwrap_or_default()),
        _ => float::show(&bytes)
            .and_then(|text| text.parse().ok())
            .unwrap_or(f64::NAN),
    })
}

pub(super) fn is_real(value: &Value) -> bool {
    matches!(&value.ty.peeled().kind, Kind::Base(e) if crate::print::is_float(*e))
}

/// Whether a value is not zero.
pub(super) fn truth(scope: &Scope<'_>, value: &Value, node: &Node) -> Result<bool> {
    let value = referenced(scope, value.clone())?;
    if is_real(&value) {
        return Ok(real(scope, &value)? != 0.0);
    }
    if matches!(
        value.ty.peeled().kind,
        Kind::Array { .. } | Kind::Function { .. }
    ) {
        return Ok(true);
    }
    Ok(integer(scope, &value, node)? != 0)
}
