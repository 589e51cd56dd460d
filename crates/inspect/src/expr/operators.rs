//! Operators and casts.

use gimli::constants as c;

use protocol::id::Addr;

use super::access::referenced;
use super::eval::{evaluate, integer, is_real, real, truth, wrong};
use super::types::{common, is_rust, number_type, promoted, truth_type};
use super::{Binary, Node, NodeKind, Unary};
use crate::error::Result;
use crate::scope::Scope;
use crate::target::GENERAL;
use crate::types::{Kind, Ty};
use crate::value::{Data, Value};

pub(super) fn cast(scope: &Scope<'_>, ty: &Ty, value: &Value, node: &Node) -> Result<Value> {
    let value = referenced(scope, value.clone())?;
    let to = ty.peeled().complete();
    match &to.kind {
        Kind::Base(e) if crate::print::is_float(*e) => {
            let number = if is_real(&value) {
                real(scope, &value)?
            } else {
                integer(scope, &value, node)? as f64
            };
            let bytes = if to.size_of() == Some(4) {
                (number as f32).to_le_bytes().to_vec()
            } else {
                number.to_le_bytes().to_vec()
            };
            Ok(Value::from_bytes(ty.clone(), bytes))
        }
        Kind::Base(_) | Kind::Enum(_) | Kind::Pointer(_) => {
            // An array is the address of its first element.
            let number = match (&value.ty.peeled().kind, value.address()) {
                (Kind::Array { .. } | Kind::Function { .. }, Some(address)) => {
                    i128::from(address.0)
                }
                _ => integer(scope, &value, node)?,
            };
            let boolean = matches!(to.kind, Kind::Base(c::DW_ATE_boolean));
            let number = if boolean {
                i128::from(number != 0)
            } else {
                number
            };
            Ok(Value::from_integer(ty.clone(), number))
        }
        Kind::Void => Ok(Value::from_bytes(ty.clone(), Vec::new())),
        Kind::Struct(_) | Kind::Array { .. } => {
            let fits = to.size_of() == value.ty.size_of() || value.address().is_some();
            if !fits {
                return Err(wrong("Invalid cast.", node));
            }
            Ok(Value {
                ty: ty.clone(),
                ..value
            })
        }
        _ => Err(wrong("Invalid cast.", node)),
    }
}

pub(super) fn unary(
    scope: &Scope<'_>,
    operator: Unary,
    inner: &Node,
    node: &Node,
) -> Result<Value> {
    let value = evaluate(scope, inner)?;
    match operator {
        Unary::Address => {
            let value = referenced(scope, value)?;
            if value.bits.is_some() {
                return Err(wrong(
                    "Attempt to take address of value not located in memory.",
                    node,
                ));
            }
            match &value.data {
                Data::Memory(address) => Ok(Value::from_integer(
                    value.ty.clone().pointer(),
                    i128::from(address.0),
                )),
                Data::Bytes {
                    register: Some(number),
                    ..
                } => Err(wrong(
                    format!(
                        "Attempt to take address of value not located in memory: it is in register {}.",
                        GENERAL.get(usize::from(*number)).unwrap_or(&"xmm")
                    ),
                    node,
                )),
                _ => Err(wrong(
                    "Attempt to take address of value not located in memory.",
                    node,
                )),
            }
        }
        Unary::Dereference => {
            let value = referenced(scope, value)?;
            if let Data::Synthetic { target, offset } = &value.data {
                let object = scope.read(*target)?;
                let to = value.ty.target().unwrap_or_else(Ty::void);
                return Ok(object.part(to, *offset as u64));
            }
            match &value.ty.peeled().kind {
                Kind::Pointer(to) => {
                    let to = to.get();
                    if matches!(to.peeled().kind, Kind::Void) {
                        return Err(wrong(
                            "Attempt to take contents of a non-pointer value.",
                            node,
                        ));
                    }
                    value.target(scope.inspector.process)
                }
                Kind::Array { .. } => value
                    .element(0)
                    .ok_or_else(|| wrong("The array is empty.", node)),
                Kind::Function { .. } => Ok(value),
                // gdb reads an integer as the address of a long.
                Kind::Base(_) => {
                    let address = Addr(integer(scope, &value, node)? as u64);
                    Ok(Value::in_memory(number_type(scope, "long"), address))
                }
                _ => Err(wrong(
                    "Attempt to take contents of a non-pointer value.",
                    node,
                )),
            }
        }
        Unary::Not => {
            let number = !truth(scope, &value, inner)?;
            let rust = is_rust(scope);
            if rust && !matches!(value.ty.peeled().kind, Kind::Base(c::DW_ATE_boolean)) {
                let number = !integer(scope, &value, inner)?;
                return Ok(Value::from_integer(value.ty, number));
            }
            Ok(truth_value(scope, number))
        }
        Unary::Minus | Unary::Plus | Unary::Complement => {
            let value = referenced(scope, value)?;
            if is_real(&value) && operator != Unary::Complement {
                let number = real(scope, &value)?;
                let number = if operator == Unary::Minus {
                    -number
                } else {
                    number
                };
                return cast(scope, &value.ty.clone(), &double(scope, number), node);
            }
            let number = integer(scope, &value, inner)?;
            let ty = promoted(scope, &value.ty);
            let number = match operator {
                Unary::Minus => number.wrapping_neg(),
                Unary::Complement => !number,
                _ => number,
            };
            Ok(Value::from_integer(ty, number))
        }
    }
}

pub(super) fn double(scope: &Scope<'_>, number: f64) -> Value {
    Value::from_bytes(number_type(scope, "double"), number.to_le_bytes().to_vec())
}

pub(super) fn truth_value(scope: &Scope<'_>, yes: bool) -> Value {
    Value::from_integer(truth_type(scope), i128::from(yes))
}

pub(super) fn binary(
    scope: &Scope<'_>,
    operator: Binary,
    left: &Node,
    right: &Node,
    node: &Node,
) -> Result<Value> {
    let a = evaluate(scope, left)?;
    if matches!(operator, Binary::BothTrue | Binary::OneTrue) {
        let first = truth(scope, &a, left)?;
        if first == (operator == Binary::OneTrue) {
            return Ok(truth_value(scope, first));
        }
        let b = evaluate(scope, right)?;
        return Ok(truth_value(scope, truth(scope, &b, right)?));
    }
    let b = evaluate(scope, right)?;
    let (a, b) = (referenced(scope, a)?, referenced(scope, b)?);
    if let Some(equal) = same_text(scope, &a, &b)
        && matches!(operator, Binary::Equal | Binary::NotEqual)
    {
        return Ok(truth_value(scope, equal == (operator == Binary::Equal)));
    }
    if let Some(value) = pointers(scope, operator, &a, &b, left, right, node)? {
        return Ok(value);
    }
    if is_real(&a) || is_real(&b) {
        let number = |v: &Value, n: &Node| -> Result<f64> {
            if is_real(v) {
                real(scope, v)
            } else {
                Ok(integer(scope, v, n)? as f64)
            }
        };
        return reals(
            scope,
            operator,
            number(&a, left)?,
            number(&b, right)?,
            &a,
            &b,
            node,
        );
    }
    let literal = matches!(right.kind, NodeKind::Integer(..));
    let ty = common(scope, &a.ty, &b.ty, literal);
    let fit = |n: i128| Value::from_integer(ty.clone(), n).integer(scope.inspector.process);
    let (x, y) = (
        fit(integer(scope, &a, left)?)?,
        fit(integer(scope, &b, right)?)?,
    );
    let result = match operator {
        Binary::Add => x.wrapping_add(y),
        Binary::Subtract => x.wrapping_sub(y),
        Binary::Multiply => x.wrapping_mul(y),
        Binary::Divide | Binary::Remainder if y == 0 => {
            return Err(wrong("Division by zero", node));
        }
        Binary::Divide => x.wrapping_div(y),
        Binary::Remainder => x.wrapping_rem(y),
        Binary::ShiftLeft => x.checked_shl(u32::try_from(y).unwrap_or(128)).unwrap_or(0),
        Binary::ShiftRight => x
            .checked_shr(u32::try_from(y).unwrap_or(128))
            .unwrap_or(if x < 0 { -1 } else { 0 }),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        _ => return Ok(truth_value(scope, compared(operator, x.cmp(&y)))),
    };
    Ok(Value::from_integer(ty, result))
}

pub(super) fn compared(operator: Binary, order: std::cmp::Ordering) -> bool {
    match operator {
        Binary::Equal => order.is_eq(),
        Binary::NotEqual => order.is_ne(),
        Binary::Less => order.is_lt(),
        Binary::LessEqual => order.is_le(),
        Binary::Greater => order.is_gt(),
        Binary::GreaterEqual => order.is_ge(),
        _ => false,
    }
}

pub(super) fn reals(
    scope: &Scope<'_>,
    operator: Binary,
    x: f64,
    y: f64,
    a: &Value,
    b: &Value,
    node: &Node,
) -> Result<Value> {
    let result = match operator {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => x * y,
        Binary::Divide => x / y,
        Binary::Equal | Binary::NotEqual => {
            return Ok(truth_value(scope, (x == y) == (operator == Binary::Equal)));
        }
        Binary::Less | Binary::LessEqual | Binary::Greater | Binary::GreaterEqual => {
            let holds = x.partial_cmp(&y).is_some_and(|o| compared(operator, o));
            return Ok(truth_value(scope, holds));
        }
        _ => {
            return Err(wrong(
                "Integer-only operation on floating-point numbers.",
                node,
            ));
        }
    };
    let single = |v: &Value| !is_real(v) || v.size() == 4;
    if single(a) && single(b) {
        let ty = number_type(scope, "float");
        return Ok(Value::from_bytes(
            ty,
            (result as f32).to_le_bytes().to_vec(),
        ));
    }
    Ok(double(scope, result))
}

/// Whether two strings are equal, if both are strings and one is written in
/// the expression: what a condition on a name needs.
pub(super) fn same_text(scope: &Scope<'_>, a: &Value, b: &Value) -> Option<bool> {
    let literal = |v: &Value| {
        matches!(v.data, Data::Bytes { .. })
            && matches!(v.ty.kind, Kind::Array { .. })
            && v.ty.die.is_none()
    };
    let (text, other) = match (literal(a), literal(b)) {
        (true, false) => (a, b),
        (false, true) => (b, a),
        _ => return None,
    };
    let mut wanted = text.bytes(scope.inspector.process).ok()?;
    if wanted.last() == Some(&0) {
        wanted.pop();
    }
    let found = crate::containers::text_of(scope.inspector, other, wanted.len() + 1)?;
    Some(found == wanted)
}

pub(super) fn pointers(
    scope: &Scope<'_>,
    operator: Binary,
    a: &Value,
    b: &Value,
    left: &Node,
    right: &Node,
    node: &Node,
) -> Result<Option<Value>> {
    let as_pointer = |v: &Value| -> Option<(Ty, Addr)> {
        match &v.ty.peeled().kind {
            Kind::Pointer(to) => Some((to.get(), v.pointer(scope.inspector.process).ok()?)),
            Kind::Array { element, .. } => Some((element.get(), v.address()?)),
            Kind::Function { .. } => Some((Ty::void(), v.address()?)),
            _ => None,
        }
    };
    let (p, q) = (as_pointer(a), as_pointer(b));
    let size = |ty: &Ty| i128::from(ty.size_of().unwrap_or(1).max(1));
    let moved = |to: &Ty, base: Addr, by: i128| {
        let address = base.plus(by.wrapping_mul(size(to)) as u64);
        Value::from_integer(to.clone().pointer(), i128::from(address.0))
    };
    match (operator, p, q) {
        (_, None, None) => Ok(None),
        (Binary::Add, Some((to, base)), None) => {
            Ok(Some(moved(&to, base, integer(scope, b, right)?)))
        }
        (Binary::Add, None, Some((to, base))) => {
            Ok(Some(moved(&to, base, integer(scope, a, left)?)))
        }
        (Binary::Subtract, Some((to, base)), None) => {
            Ok(Some(moved(&to, base, -integer(scope, b, right)?)))
        }
        (Binary::Subtract, Some((to, x)), Some((_, y))) => {
            let distance = (i128::from(x.0) - i128::from(y.0)) / size(&to);
            Ok(Some(Value::from_integer(
                number_type(scope, "long"),
                distance,
            )))
        }
        (
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual,
            p,
            q,
        ) => {
            let number = |p: Option<(Ty, Addr)>, v: &Value, n: &Node| match p {
                Some((_, address)) => Ok(i128::from(address.0)),
                None => integer(scope, v, n),
            };
            let (x, y) = (number(p, a, left)?, number(q, b, right)?);
            Ok(Some(truth_value(scope, compared(operator, x.cmp(&y)))))
        }
        _ => Err(wrong(
            "Argument to arithmetic operation not a number or boolean.",
            node,
        )),
    }
}
