//! The types that expressions compute with: base types by name, promotions.

use gimli::constants as c;

use crate::dwarf::Language;
use crate::scope::Scope;
use crate::types::{Kind, Ty};
use crate::value::is_signed;

/// A base type that needs no debug information.
pub(super) fn base_type(name: &str, rust: bool) -> Option<Ty> {
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

pub(super) fn is_rust(scope: &Scope<'_>) -> bool {
    scope.frame().map(|f| f.language()) == Some(Language::Rust)
}

/// A base type of the scope's language, by C's name.
pub(super) fn number_type(scope: &Scope<'_>, name: &str) -> Ty {
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

/// The type of comparisons.
pub(super) fn truth_type(scope: &Scope<'_>) -> Ty {
    let frame = scope.frame().map(|f| f.language());
    match frame {
        Some(Language::C | Language::Assembly) | None => number_type(scope, "int"),
        _ => base_type("bool", is_rust(scope)).unwrap_or_else(Ty::void),
    }
}

/// C's integer promotion.
pub(super) fn promoted(scope: &Scope<'_>, ty: &Ty) -> Ty {
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
pub(super) fn common(scope: &Scope<'_>, left: &Ty, right: &Ty, right_literal: bool) -> Ty {
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
