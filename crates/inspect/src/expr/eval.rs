//! Meaning and value of a tree.

use gimli::constants as c;

use super::{Binary, Node, NodeKind, Unary};
use crate::dwarf::Language;
use crate::dwarf::names::NameKind;
use crate::error::{Error, Result};
use crate::location::register_bytes;
use crate::lookup::nearest;
use crate::print::float;
use crate::scope::{Scope, read_variable};
use crate::target::GENERAL;
use crate::types::{Count, Kind, Ty, name_of};
use crate::value::{Data, Value, is_signed};

fn wrong(message: impl Into<String>, node: &Node) -> Error {
    Error::Expression {
        message: message.into(),
        column: node.column + 1,
    }
}

/// A base type that needs no debug information.
pub fn base_type(name: &str, rust: bool) -> Option<Ty> {
    let (size, encoding, shown) = if rust {
        match name {
            "i8" => (1, c::DW_ATE_signed, "i8"),
            "i16" => (2, c::DW_ATE_signed, "i16"),
            "i32" => (4, c::DW_ATE_signed, "i32"),
            "i64" => (8, c::DW_ATE_signed, "i64"),
            "isize" => (8, c::DW_ATE_signed, "isize"),
            "i128" => (16, c::DW_ATE_signed, "i128"),
            "u8" => (1, c::DW_ATE_unsigned, "u8"),
            "u16" => (2, c::DW_ATE_unsigned, "u16"),
            "u32" => (4, c::DW_ATE_unsigned, "u32"),
            "u64" => (8, c::DW_ATE_unsigned, "u64"),
            "usize" => (8, c::DW_ATE_unsigned, "usize"),
            "u128" => (16, c::DW_ATE_unsigned, "u128"),
            "f32" => (4, c::DW_ATE_float, "f32"),
            "f64" => (8, c::DW_ATE_float, "f64"),
            "bool" => (1, c::DW_ATE_boolean, "bool"),
            "char" => (4, c::DW_ATE_UTF, "char"),
            _ => return None,
        }
    } else {
        // The order of words does not matter in C.
        let mut words: Vec<&str> = name.split(' ').collect();
        words.sort_unstable();
        match words.join(" ").as_str() {
            "void" => return Some(Ty::void()),
            "char" => (1, c::DW_ATE_signed_char, "char"),
            "char signed" => (1, c::DW_ATE_signed_char, "signed char"),
            "char unsigned" => (1, c::DW_ATE_unsigned_char, "unsigned char"),
            "short" | "int short" | "short signed" => (2, c::DW_ATE_signed, "short"),
            "short unsigned" | "int short unsigned" => (2, c::DW_ATE_unsigned, "unsigned short"),
            "int" | "signed" | "int signed" => (4, c::DW_ATE_signed, "int"),
            "unsigned" | "int unsigned" => (4, c::DW_ATE_unsigned, "unsigned int"),
            "long" | "int long" | "long signed" => (8, c::DW_ATE_signed, "long"),
            "long unsigned" | "int long unsigned" => (8, c::DW_ATE_unsigned, "unsigned long"),
            "long long" | "int long long" => (8, c::DW_ATE_signed, "long long"),
            "long long unsigned" | "int long long unsigned" => {
                (8, c::DW_ATE_unsigned, "unsigned long long")
            }
            "float" => (4, c::DW_ATE_float, "float"),
            "double" => (8, c::DW_ATE_float, "double"),
            "double long" => (16, c::DW_ATE_float, "long double"),
            "_Bool" | "bool" => (1, c::DW_ATE_boolean, "bool"),
            _ => return None,
        }
    };
    let language = if rust { Language::Rust } else { Language::C };
    Some(Ty::base(shown, size, encoding, language))
}

pub fn is_rust(scope: &Scope<'_>) -> bool {
    scope.frame().map(|f| f.language()) == Some(Language::Rust)
}

/// A base type of the scope's language, by C's name.
fn number_type(scope: &Scope<'_>, name: &str) -> Ty {
    let rust = is_rust(scope);
    let name = match (rust, name) {
        (true, "int") => "i32",
        (true, "unsigned int") => "u32",
        (true, "long") => "i64",
        (true, "unsigned long") => "u64",
        (true, "double") => "f64",
        (true, "float") => "f32",
        (_, other) => other,
    };
    base_type(name, rust).unwrap_or_else(Ty::void)
}

/// Looks names up.
pub fn bind(scope: &Scope<'_>, node: &mut Node) -> Result<()> {
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

fn meaning(scope: &Scope<'_>, name: &str, node: &Node) -> Result<NodeKind> {
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
pub fn evaluate(scope: &Scope<'_>, node: &Node) -> Result<Value> {
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

fn referenced(scope: &Scope<'_>, value: Value) -> Result<Value> {
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

fn repeated(first: Value, count: i128, node: &Node) -> Result<Value> {
    let count = u64::try_from(count)
        .ok()
        .filter(|n| *n <= 1 << 24)
        .ok_or_else(|| wrong("Too many elements.", node))?;
    let ty = first.ty.clone().array(count);
    Ok(Value { ty, ..first })
}

fn integer_literal(scope: &Scope<'_>, value: u128, suffix: &str) -> Value {
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

fn register(scope: &Scope<'_>, name: &str, node: &Node) -> Result<Value> {
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
        "pc" | "rip" => return word(registers.pc(), code()),
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

fn integer(scope: &Scope<'_>, value: &Value, node: &Node) -> Result<i128> {
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

fn real(scope: &Scope<'_>, value: &Value) -> Result<f64> {
    let bytes = value.bytes(scope.inspector.process)?;
    Ok(match bytes.len() {
        4 => f32::from_le_bytes(bytes.as_slice().try_into().unwrap_or_default()).into(),
        8 => f64::from_le_bytes(bytes.as_slice().try_into().unwrap_or_default()),
        _ => float::show(&bytes)
            .and_then(|text| text.parse().ok())
            .unwrap_or(f64::NAN),
    })
}

fn is_real(value: &Value) -> bool {
    matches!(&value.ty.peeled().kind, Kind::Base(e) if crate::print::is_float(*e))
}

/// Whether a value is not zero.
pub fn truth(scope: &Scope<'_>, value: &Value, node: &Node) -> Result<bool> {
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

fn cast(scope: &Scope<'_>, ty: &Ty, value: &Value, node: &Node) -> Result<Value> {
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
                (Kind::Array { .. } | Kind::Function { .. }, Some(address)) => i128::from(address),
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

fn unary(scope: &Scope<'_>, operator: Unary, inner: &Node, node: &Node) -> Result<Value> {
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
                    i128::from(*address),
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
                    let address = integer(scope, &value, node)? as u64;
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

fn double(scope: &Scope<'_>, number: f64) -> Value {
    Value::from_bytes(number_type(scope, "double"), number.to_le_bytes().to_vec())
}

fn truth_value(scope: &Scope<'_>, yes: bool) -> Value {
    Value::from_integer(truth_type(scope), i128::from(yes))
}

/// The type of comparisons.
pub fn truth_type(scope: &Scope<'_>) -> Ty {
    let frame = scope.frame().map(|f| f.language());
    match frame {
        Some(Language::C | Language::Assembly) | None => number_type(scope, "int"),
        _ => base_type("bool", is_rust(scope)).unwrap_or_else(Ty::void),
    }
}

/// C's integer promotion.
pub fn promoted(scope: &Scope<'_>, ty: &Ty) -> Ty {
    let peeled = ty.peeled();
    if is_rust(scope) || peeled.size_of().unwrap_or(4) > 4 {
        return ty.clone();
    }
    if peeled.size_of() == Some(4) && !is_signed(&peeled) && matches!(peeled.kind, Kind::Base(_)) {
        return number_type(scope, "unsigned int");
    }
    number_type(scope, "int")
}

/// The type in which two integers are computed.
pub fn common(scope: &Scope<'_>, left: &Ty, right: &Ty, right_literal: bool) -> Ty {
    if is_rust(scope) {
        let literal_left = left.size_of() < right.size_of() && !right_literal;
        return if literal_left {
            right.clone()
        } else {
            left.clone()
        };
    }
    let (a, b) = (promoted(scope, left), promoted(scope, right));
    let (x, y) = (a.peeled(), b.peeled());
    let size = x.size_of().max(y.size_of()).unwrap_or(4);
    let unsigned = |t: &Ty| !is_signed(t) && t.size_of() == Some(size);
    let name = match (size > 4, unsigned(&x) || unsigned(&y)) {
        (false, false) => "int",
        (false, true) => "unsigned int",
        (true, false) => "long",
        (true, true) => "unsigned long",
    };
    if size > 8 {
        return if x.size_of() == Some(size) { a } else { b };
    }
    number_type(scope, name)
}

fn binary(
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

fn compared(operator: Binary, order: std::cmp::Ordering) -> bool {
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

fn reals(
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
fn same_text(scope: &Scope<'_>, a: &Value, b: &Value) -> Option<bool> {
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

fn pointers(
    scope: &Scope<'_>,
    operator: Binary,
    a: &Value,
    b: &Value,
    left: &Node,
    right: &Node,
    node: &Node,
) -> Result<Option<Value>> {
    let as_pointer = |v: &Value| -> Option<(Ty, u64)> {
        match &v.ty.peeled().kind {
            Kind::Pointer(to) => Some((to.get(), v.pointer(scope.inspector.process).ok()?)),
            Kind::Array { element, .. } => Some((element.get(), v.address()?)),
            Kind::Function { .. } => Some((Ty::void(), v.address()?)),
            _ => None,
        }
    };
    let (p, q) = (as_pointer(a), as_pointer(b));
    let size = |ty: &Ty| i128::from(ty.size_of().unwrap_or(1).max(1));
    let moved = |to: &Ty, base: u64, by: i128| {
        let address = (i128::from(base)).wrapping_add(by.wrapping_mul(size(to))) as u64;
        Value::from_integer(to.clone().pointer(), i128::from(address))
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
            let distance = (i128::from(x) - i128::from(y)) / size(&to);
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
            let number = |p: Option<(Ty, u64)>, v: &Value, n: &Node| match p {
                Some((_, address)) => Ok(i128::from(address)),
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

fn member(scope: &Scope<'_>, value: Value, name: &str, node: &Node) -> Result<Value> {
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
    {
        let printer = crate::print::Printer::in_scope(*scope, Default::default());
        if let Some(found) = printer.static_value(member, die, &ty) {
            return found;
        }
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
fn sequence(scope: &Scope<'_>, value: &Value) -> Option<(Ty, u64, u64)> {
    match &value.ty.peeled().kind {
        Kind::Array {
            element,
            count: Count::Known(count),
            ..
        } => Some((element.get(), value.address()?, *count)),
        _ => crate::containers::sequence(scope.inspector, value),
    }
}

fn element(scope: &Scope<'_>, value: Value, index: i128, node: &Node) -> Result<Value> {
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
        let address = i128::from(base).wrapping_add(index.wrapping_mul(size)) as u64;
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
        return Ok(Value::in_memory(
            ty,
            start.wrapping_add(at.wrapping_mul(size)),
        ));
    }
    Err(wrong(
        "cannot subscript something that is no array or pointer",
        node,
    ))
}
