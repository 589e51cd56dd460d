//! A type spelled out, as `ptype` shows it.

use super::{Aggregate, AggregateKind, Kind, Ty, name};
use crate::dwarf::Language;

/// The type with its members.
pub fn describe(ty: &Ty) -> String {
    // Other names are looked through once, as gdb does.
    let shown = ty.peeled_names();
    if shown.language == Language::Rust {
        return rust(&shown);
    }
    let mut inner = shown.clone();
    // Pointers and arrays of a structure show the structure.
    for _ in 0..16 {
        let next = match &inner.kind {
            Kind::Pointer(to) | Kind::Reference(to) | Kind::RvalueReference(to) => to.get(),
            Kind::Array { element, .. } => element.get(),
            Kind::Qualified(_, to) | Kind::Typedef(to) => to.get(),
            _ => break,
        };
        inner = next;
    }
    let inner = inner.complete();
    let body = match &inner.kind {
        Kind::Struct(aggregate) => c_structure(&inner, aggregate),
        Kind::Enum(e) => {
            let mut next = 0i128;
            let mut list = Vec::new();
            for (constant, value) in &e.constants {
                if *value == next {
                    list.push((*constant).to_string());
                } else {
                    list.push(format!("{constant} = {value}"));
                }
                next = value + 1;
            }
            let word = if e.scoped { "enum class" } else { "enum" };
            let title = inner
                .name
                .as_ref()
                .map_or(String::new(), |n| format!("{n} "));
            let base = if inner.language == Language::Cpp && !e.underlying.is_void() {
                format!(": {} ", name::of(&e.underlying.get()))
            } else {
                String::new()
            };
            format!("{word} {title}{base}{{{}}}", list.join(", "))
        }
        _ => return name::of(&shown),
    };
    // The rest of the declaration stands around the body.
    let plain = name::of(&inner);
    let whole = name::of(&shown);
    match whole.find(&plain) {
        Some(at) => {
            let before = whole.get(..at).unwrap_or("");
            let after = whole.get(at + plain.len()..).unwrap_or("");
            format!("{before}{body}{after}")
        }
        None => body,
    }
}

impl Ty {
    /// Without the outermost other names; what it is made of keeps its names.
    fn peeled_names(&self) -> Ty {
        let mut at = self.clone();
        for _ in 0..super::MAX_CHAIN {
            let next = match &at.kind {
                Kind::Typedef(to) => to.get(),
                _ => return at,
            };
            at = next;
        }
        at
    }
}

fn c_structure(ty: &Ty, aggregate: &Aggregate) -> String {
    let word = match aggregate.kind {
        AggregateKind::Struct => "struct",
        AggregateKind::Class => "class",
        AggregateKind::Union => "union",
    };
    let mut text = word.to_string();
    if let Some(name) = &ty.name {
        text.push_str(&format!(" {name}"));
    }
    let bases: Vec<String> = aggregate
        .members
        .iter()
        .filter(|m| m.base)
        .map(|m| {
            let access = match m.access {
                1 => "public",
                2 => "protected",
                3 => "private",
                _ if aggregate.kind == AggregateKind::Class => "private",
                _ => "public",
            };
            let kind = if m.virtual_base { "virtual " } else { "" };
            format!("{access} {kind}{}", name::of(&m.ty.get()))
        })
        .collect();
    if !bases.is_empty() {
        text.push_str(&format!(" : {}", bases.join(", ")));
    }
    text.push_str(" {\n");
    if aggregate.incomplete {
        text.push_str("    <incomplete type>\n");
    } else if aggregate.members.iter().all(|m| m.base) && !aggregate.has_methods {
        text.push_str("    <no data fields>\n");
    }
    let default = if aggregate.kind == AggregateKind::Class {
        3
    } else {
        1
    };
    let mut section = if aggregate.kind == AggregateKind::Class {
        0
    } else {
        1
    };
    let labelled = aggregate.kind == AggregateKind::Class
        || aggregate
            .members
            .iter()
            .any(|m| !m.base && m.access > 1 && !m.artificial);
    for member in aggregate.members.iter().filter(|m| !m.base) {
        if member.artificial && member.name.is_some_and(|n| n.starts_with("_vptr")) {
            continue;
        }
        let access = if member.access == 0 {
            default
        } else {
            member.access
        };
        if labelled && access != section {
            section = access;
            let label = match access {
                1 => "public",
                2 => "protected",
                _ => "private",
            };
            text.push_str(&format!("  {label}:\n"));
        }
        let member_ty = member.ty.get();
        let anonymous = member_ty.complete();
        let line = match (&anonymous.kind, &anonymous.name) {
            (Kind::Struct(_) | Kind::Enum(_), None) => {
                let body = describe(&anonymous).replace('\n', "\n    ");
                match member.name {
                    Some(name) => format!("{body} {name}"),
                    None => body,
                }
            }
            _ => name::declaration(&member_ty, member.name.unwrap_or("")),
        };
        let fixed = if member.fixed.is_some() {
            "static "
        } else {
            ""
        };
        let width = member
            .bits
            .map_or(String::new(), |(_, w)| format!(" : {w}"));
        text.push_str(&format!("    {fixed}{line}{width};\n"));
    }
    text.push('}');
    text
}

fn rust(ty: &Ty) -> String {
    let ty = ty.complete();
    match &ty.kind {
        Kind::Struct(aggregate) => {
            let word = if aggregate.variants.is_some() {
                "enum"
            } else if aggregate.kind == AggregateKind::Union {
                "union"
            } else {
                "struct"
            };
            let mut text = format!("{word} {} {{\n", ty.name.as_deref().unwrap_or(""));
            for member in &aggregate.members {
                let line = name::declaration(&member.ty.get(), member.name.unwrap_or(""));
                text.push_str(&format!("  {line},\n"));
            }
            for variant in aggregate.variants.iter().flat_map(|v| &v.variants) {
                text.push_str(&format!("  {}", variant.member.name.unwrap_or("")));
                let fields = variant.member.ty.get().aggregate();
                let list: Vec<String> = fields
                    .iter()
                    .flat_map(|f| &f.members)
                    .map(|m| {
                        let label = m.name.unwrap_or("");
                        let shown = if label.starts_with("__") { "" } else { label };
                        name::declaration(&m.ty.get(), shown)
                    })
                    .collect();
                if !list.is_empty() {
                    text.push_str(&format!("({})", list.join(", ")));
                }
                text.push_str(",\n");
            }
            text.push('}');
            text
        }
        Kind::Enum(e) => {
            let mut text = format!("enum {} {{\n", ty.name.as_deref().unwrap_or(""));
            for (constant, _) in &e.constants {
                text.push_str(&format!("  {constant},\n"));
            }
            text.push('}');
            text
        }
        _ => name::of(&ty),
    }
}
