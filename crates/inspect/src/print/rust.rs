//! Structures, enumerations and arrays in Rust's manner, as gdb has it.

use protocol::id::Addr;

use super::{Printer, text};
use crate::tree::parts::{Elements, Members};
use crate::types::{Aggregate, Kind, Ty, VariantPart};
use crate::value::Value;

/// Fields without names of their own.
fn is_tuple(aggregate: &Aggregate) -> bool {
    let fields = || aggregate.members.iter().filter(|m| m.fixed.is_none());
    fields().next().is_some()
        && fields().enumerate().all(|(at, m)| {
            m.name
                .and_then(|n| n.strip_prefix("__"))
                .and_then(|n| n.parse::<usize>().ok())
                == Some(at)
        })
}

/// Whatever points to a slice: references, pointers, boxes. What it is called does not
/// matter to gdb, but what it is made of.
fn is_slice(aggregate: &Aggregate) -> bool {
    let fields = || aggregate.members.iter().filter(|m| m.fixed.is_none());
    let has = |name: &str| fields().any(|m| m.name == Some(name));
    fields().count() == 2 && has("data_ptr") && has("length")
}

impl Printer<'_> {
    /// Shows what Rust shows differently from C; whether it did.
    pub(crate) fn rust(&self, out: &mut String, value: &Value, ty: &Ty, depth: usize) -> bool {
        match &ty.kind {
            Kind::Struct(aggregate) => {
                if depth >= self.options.depth {
                    out.push_str("{...}");
                    return true;
                }
                let fetched = value.fetched(self.inspector.process);
                match &aggregate.variants {
                    Some(part) => self.rust_enum(out, &fetched, part, ty, depth),
                    None => self.rust_struct(out, &fetched, ty, aggregate, depth),
                }
                true
            }
            Kind::Array { element, .. } => {
                let element = element.get();
                let bytes = element.name.as_deref() == Some("u8");
                if bytes
                    && self.options.format.is_none()
                    && let count = value.count().unwrap_or(0)
                    && let run = if self.options.glance { 1 } else { 64 }
                    // Enough to see how long a run is.
                    && let wanted = count.min((self.options.elements as u64 + 1) * run)
                    && let window = value.part(element.clone().array(wanted), 0)
                    && let Ok(found) = window.bytes(self.inspector.process)
                {
                    let more = count > wanted;
                    out.push('b');
                    out.push_str(&text::string(
                        &found,
                        1,
                        "",
                        self.options.elements,
                        self.options.repeats,
                        more,
                    ));
                    return true;
                }
                if depth >= self.options.depth {
                    out.push_str("[...]");
                    return true;
                }
                let fetched = value.fetched(self.inspector.process);
                let elements = Elements::new(&fetched);
                out.push('[');
                self.elements(out, elements.count(), depth, |i| elements.get(i));
                out.push(']');
                true
            }
            Kind::Base(_) if ty.name.as_deref() == Some("()") => {
                out.push_str("()");
                true
            }
            _ => false,
        }
    }

    fn rust_struct(
        &self,
        out: &mut String,
        value: &Value,
        ty: &Ty,
        aggregate: &Aggregate,
        depth: usize,
    ) {
        let name = ty.name.as_deref().unwrap_or("");
        if name == "&str"
            && let Some(shown) = self.rust_str(value)
        {
            out.push_str(&shown);
            return;
        }
        if is_slice(aggregate)
            && let (Some(start), Some(length)) = (
                value.field(self.inspector.process, "data_ptr"),
                value.field(self.inspector.process, "length"),
            )
            && let (Some(element), Ok(address), Ok(count)) = (
                start.ty.target(),
                start.pointer(self.inspector.process),
                length.integer(self.inspector.process),
            )
        {
            let size = element.size_of().unwrap_or(0);
            out.push_str(&format!("{name} ["));
            self.elements(out, u64::try_from(count).unwrap_or(0), depth, |i| {
                Some(Value::in_memory(
                    element.clone(),
                    address.plus(i.wrapping_mul(size)),
                ))
            });
            out.push(']');
            return;
        }
        let tuple = name.starts_with('(');
        if !tuple {
            out.push_str(name);
        }
        self.rust_fields(out, value, aggregate, depth, tuple, " {");
    }

    fn rust_fields(
        &self,
        out: &mut String,
        value: &Value,
        aggregate: &Aggregate,
        depth: usize,
        tuple: bool,
        open: &str,
    ) {
        let bare = tuple || is_tuple(aggregate);
        if aggregate.members.is_empty() && !tuple {
            return;
        }
        out.push_str(match (bare, tuple || open == "{") {
            (true, true) => "(",
            (true, false) => " (",
            (false, _) => open,
        });
        let mut first = true;
        let class = value.ty.peeled().complete();
        let members = Members::new(self.inspector, self.scope, value, &class, aggregate);
        for field in members.fields().filter(|f| f.member.fixed.is_none()) {
            if self.is_full(out) {
                break;
            }
            if !first {
                out.push_str(", ");
            }
            first = false;
            if !bare {
                out.push_str(&format!("{}: ", field.member.name.unwrap_or("")));
            }
            match field.value {
                Ok(part) => self.print(out, &part, depth + 1),
                Err(e) => self.failed(out, &e),
            }
        }
        out.push(if bare { ')' } else { '}' });
    }

    fn rust_enum(
        &self,
        out: &mut String,
        value: &Value,
        part: &VariantPart,
        ty: &Ty,
        depth: usize,
    ) {
        let Some(variant) = value.chosen(self.inspector.process, part) else {
            out.push_str(&format!(
                "{}{{<the discriminant is not one of the type's>}}",
                ty.name.as_deref().unwrap_or("")
            ));
            return;
        };
        let Ok(inner) = value.member(self.inspector.process, &variant.member) else {
            out.push_str("<optimized out>");
            return;
        };
        let shape = inner.ty.peeled().complete();
        out.push_str(shape.name.as_deref().unwrap_or(""));
        if let Kind::Struct(aggregate) = &shape.kind
            && !aggregate.members.is_empty()
        {
            self.rust_fields(out, &inner, aggregate, depth, false, "{");
        }
    }

    /// The text of a `&str`.
    pub(crate) fn rust_str(&self, value: &Value) -> Option<String> {
        let process = self.inspector.process;
        let start = value.field(process, "data_ptr")?.pointer(process).ok()?;
        let length = value.field(process, "length")?.integer(process).ok()?;
        self.rust_text(start, u64::try_from(length).ok()?)
    }

    /// Text at an address, of a length.
    pub(crate) fn rust_text(&self, start: Addr, length: u64) -> Option<String> {
        let limit = self.options.elements as u64;
        let wanted = length.min(limit) as usize;
        let mut bytes = vec![0; wanted];
        if self.inspector.process.read(start, &mut bytes) < wanted {
            return Some(format!(
                "<error: Cannot access memory at address {start:#x}>"
            ));
        }
        Some(text::string(
            &bytes,
            1,
            "",
            self.options.elements,
            self.options.repeats,
            length > limit,
        ))
    }
}
