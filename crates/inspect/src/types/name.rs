//! A type's name as its language writes it: `char *(*)(int, unsigned long)`.

use super::{AggregateKind, Count, Kind, Qualifier, Ty};
use crate::dwarf::Language;

/// Types nest less deeply than this; damaged ones may be circular.
const MAX_DEPTH: usize = 40;

/// The name of a type.
pub fn of(ty: &Ty) -> String {
    declaration(ty, "")
}

/// A declaration of `name` with the type: `int name[3]`.
pub fn declaration(ty: &Ty, name: &str) -> String {
    if matches!(ty.language, Language::Rust) {
        let text = rust(ty, MAX_DEPTH);
        return if name.is_empty() {
            text
        } else {
            format!("{name}: {text}")
        };
    }
    let mut before = String::new();
    let mut after = String::new();
    c_parts(ty, &mut before, &mut after, MAX_DEPTH, false);
    // `char *p`, but `char c`.
    let gap = if !name.is_empty() && !before.ends_with(['*', '&', '(']) {
        " "
    } else {
        ""
    };
    let open = after.starts_with(['[', '(']) && !before.ends_with(['*', '&', '(']);
    let lead = if name.is_empty() && open { " " } else { "" };
    format!("{before}{gap}{name}{lead}{after}")
}

fn keyword(kind: AggregateKind) -> &'static str {
    match kind {
        AggregateKind::Struct => "struct",
        AggregateKind::Class => "class",
        AggregateKind::Union => "union",
    }
}

/// Splits a declaration at where the declared name would be.
fn c_parts(ty: &Ty, before: &mut String, after: &mut String, depth: usize, inner: bool) {
    let Some(depth) = depth.checked_sub(1) else {
        before.push_str("...");
        return;
    };
    match &ty.kind {
        Kind::Pointer(to) | Kind::Reference(to) | Kind::RvalueReference(to) => {
            let mark = match &ty.kind {
                Kind::Pointer(_) => "*",
                Kind::Reference(_) => "&",
                _ => "&&",
            };
            // Go and others name their pointer types.
            if let (Some(name), Language::Go) = (&ty.name, ty.language) {
                before.push_str(name);
                return;
            }
            let to = to.get();
            c_parts(&to, before, after, depth, true);
            if needs_parentheses(&to) {
                if !before.ends_with(['*', '(', ' ']) {
                    before.push(' ');
                }
                before.push('(');
                before.push_str(mark);
                after.insert(0, ')');
            } else {
                if !before.ends_with(['*', '&', '(']) {
                    before.push(' ');
                }
                before.push_str(mark);
            }
        }
        Kind::Qualified(qualifier, to) => {
            let word = match qualifier {
                Qualifier::Const => "const",
                Qualifier::Volatile => "volatile",
                Qualifier::Restrict => "restrict",
                Qualifier::Atomic => "_Atomic",
            };
            let to = to.get();
            if matches!(
                to.unqualified().kind,
                Kind::Pointer(_) | Kind::Reference(_) | Kind::RvalueReference(_)
            ) {
                c_parts(&to, before, after, depth, inner);
                before.push(' ');
                before.push_str(word);
                if inner {
                    before.push(' ');
                }
                trim_end(before);
            } else {
                before.push_str(word);
                before.push(' ');
                c_parts(&to, before, after, depth, inner);
            }
        }
        Kind::Array { element, count, .. } => {
            let element = element.get();
            let mut inner_after = String::new();
            c_parts(&element, before, &mut inner_after, depth, true);
            let bound = match count {
                Count::Known(n) => n.to_string(),
                Count::Unknown => String::new(),
                _ => "variable length".to_string(),
            };
            after.push_str(&format!("[{bound}]"));
            after.push_str(&inner_after);
        }
        Kind::Function { .. } if ty.die.is_none() && ty.name.is_some() => {
            before.push_str(ty.name.as_deref().unwrap_or_default());
        }
        Kind::Function {
            result,
            parameters,
            variadic,
            prototyped,
        } => {
            let mut inner_after = String::new();
            c_parts(&result.get(), before, &mut inner_after, depth, true);
            let mut list: Vec<String> = parameters
                .iter()
                .take(64)
                .map(|p| {
                    let (mut b, mut a) = (String::new(), String::new());
                    c_parts(&p.get(), &mut b, &mut a, depth, false);
                    let gap = if a.starts_with(['[', '(']) && !b.ends_with(['*', '&', '(']) {
                        " "
                    } else {
                        ""
                    };
                    format!("{b}{gap}{a}")
                })
                .collect();
            if *variadic {
                list.push("...".to_string());
            }
            if list.is_empty() && *prototyped {
                list.push("void".to_string());
            }
            after.push_str(&format!("({})", list.join(", ")));
            after.push_str(&inner_after);
        }
        Kind::MemberPointer { class, target } => {
            let target = target.get();
            let class = of(&class.get());
            c_parts(&target, before, after, depth, true);
            if needs_parentheses(&target) {
                before.push_str(&format!(" ({class}::*"));
                after.insert(0, ')');
            } else {
                before.push_str(&format!(" {class}::*"));
            }
        }
        Kind::Struct(aggregate) => {
            let word = keyword(aggregate.kind);
            match &ty.name {
                Some(name) if ty.language == Language::C => {
                    before.push_str(&format!("{word} {name}"));
                }
                Some(name) => before.push_str(name),
                None => before.push_str(&format!("{word} {{...}}")),
            }
        }
        Kind::Enum(_) => match &ty.name {
            Some(name) if ty.language == Language::C => before.push_str(&format!("enum {name}")),
            Some(name) => before.push_str(name),
            None => before.push_str("enum {...}"),
        },
        _ => before.push_str(ty.name.as_deref().unwrap_or("void")),
    }
}

fn trim_end(text: &mut String) {
    text.truncate(text.trim_end().len());
}

fn needs_parentheses(ty: &Ty) -> bool {
    matches!(
        ty.unqualified().kind,
        Kind::Array { .. } | Kind::Function { .. }
    )
}

fn rust(ty: &Ty, depth: usize) -> String {
    let Some(depth) = depth.checked_sub(1) else {
        return "...".to_string();
    };
    if let Some(name) = &ty.name {
        return name.clone();
    }
    match &ty.kind {
        Kind::Pointer(to) | Kind::Reference(to) | Kind::RvalueReference(to) => {
            format!("*mut {}", rust(&to.get(), depth))
        }
        Kind::Array { element, count, .. } => match count {
            Count::Known(n) => format!("[{}; {n}]", rust(&element.get(), depth)),
            _ => format!("[{}]", rust(&element.get(), depth)),
        },
        Kind::Function {
            result, parameters, ..
        } => {
            let list: Vec<String> = parameters
                .iter()
                .take(64)
                .map(|p| rust(&p.get(), depth))
                .collect();
            let mut text = format!("fn ({})", list.join(", "));
            if !result.is_void() {
                text.push_str(&format!(" -> {}", rust(&result.get(), depth)));
            }
            text
        }
        Kind::Qualified(_, to) | Kind::Typedef(to) => rust(&to.get(), depth),
        _ => "()".to_string(),
    }
}
