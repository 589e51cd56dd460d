//! Structures and arrays in C's manner.

use super::{Printer, text};
use crate::tree::Label;
use crate::tree::parts::{Elements, Members};
use crate::types::{Aggregate, Kind, Ty, name_of};
use crate::value::Value;

/// Whether a static member is of a type that is being shown.
fn is_seen(label: &Label, part: &Value, class: &Ty, depth: usize) -> bool {
    matches!(label, Label::Static(_)) && (name_of(&part.ty) == name_of(class) || depth > 3)
}

impl Printer<'_> {
    pub(crate) fn structure(
        &self,
        out: &mut String,
        value: &Value,
        ty: &Ty,
        aggregate: &Aggregate,
        depth: usize,
    ) {
        if aggregate.incomplete {
            out.push_str("<incomplete type>");
            return;
        }
        if depth >= self.options.depth {
            out.push_str("{...}");
            return;
        }
        let members = Members::new(self.inspector, self.scope, value, ty, aggregate).fetched();
        out.push('{');
        let mut first = true;
        for base in members.bases() {
            if !first {
                out.push_str(", ");
            }
            first = false;
            out.push_str(&format!("{} = ", base.label()));
            match base.value {
                Ok(part) => {
                    let peeled = part.ty.peeled().complete();
                    match &peeled.kind {
                        Kind::Struct(inner) => {
                            self.structure(out, &part, &peeled, inner, depth + 1);
                        }
                        _ => self.print(out, &part, depth + 1),
                    }
                }
                Err(e) => self.failed(out, &e),
            }
        }
        let mut any = false;
        for field in members.fields() {
            if self.is_full(out) {
                break;
            }
            any = true;
            if !first {
                out.push_str(", ");
            }
            first = false;
            let label = field.label();
            match label {
                Label::Static(_) => out.push_str(&format!("static {label} = ")),
                Label::Anonymous => {}
                _ => out.push_str(&format!("{label} = ")),
            }
            match field.value {
                // A class may have itself as a static member.
                Ok(part) if is_seen(&label, &part, ty, depth) => {
                    out.push_str("<same as static member of an already seen type>");
                }
                Ok(part) => self.print(out, &part, depth + 1),
                Err(e) => self.failed(out, &e),
            }
        }
        if !any {
            if !first {
                out.push_str(", ");
            }
            out.push_str("<No data fields>");
        }
        out.push('}');
    }

    pub(crate) fn array(&self, out: &mut String, value: &Value, element: &Ty, depth: usize) {
        if depth >= self.options.depth {
            out.push_str("{...}");
            return;
        }
        let count = value.count().unwrap_or(0);
        if element.size_of().is_none_or(|size| size == 0) {
            out.push_str("{}");
            return;
        }
        if let Some(width) = text::width_of(element)
            && self.options.format.is_none()
            && self.characters(out, value, count, width, text::prefix_of(element))
        {
            return;
        }
        let limit = self.options.elements as u64;
        // One read for all that is shown, if it can be had.
        let ahead = if self.options.glance {
            limit
        } else {
            limit * 8
        };
        let elements = Elements::new(value).fetched(self.inspector.process, element, ahead);
        out.push('{');
        self.elements(out, count, depth, |index| elements.get(index));
        out.push('}');
    }

    /// Elements, with runs of equal ones counted.
    pub(crate) fn elements(
        &self,
        out: &mut String,
        count: u64,
        depth: usize,
        element: impl Fn(u64) -> Option<Value>,
    ) {
        let limit = self.options.elements;
        let repeats = self.options.repeats as u64;
        let longest = if self.options.glance {
            limit as u64
        } else {
            1 << 16
        };
        let mut at = 0u64;
        let mut shown = 0usize;
        let mut texts: std::collections::VecDeque<String> = std::collections::VecDeque::new();
        let text_of = |index: u64| {
            let mut text = String::new();
            match element(index) {
                Some(value) => self.print(&mut text, &value, depth + 1),
                None => text.push_str("<error>"),
            }
            text
        };
        while at < count && shown < limit {
            if self.is_full(out) {
                break;
            }
            if at > 0 {
                out.push_str(", ");
            }
            let text = texts.pop_front().unwrap_or_else(|| text_of(at));
            // Elements that read the same are the same.
            let mut run = 1u64;
            while at + run < count {
                let next = text_of(at + run);
                if next == text {
                    run += 1;
                } else {
                    texts.clear();
                    texts.push_back(next);
                    break;
                }
                // Counting a gigabyte of zeros is of no use.
                if run > longest {
                    break;
                }
            }
            if run > repeats {
                out.push_str(&format!("{text} <repeats {run} times>"));
                at += run;
                shown += self.options.repeats;
            } else {
                out.push_str(&text);
                at += 1;
                shown += 1;
                if run > 1 {
                    // The rest of the run is known without printing again.
                    texts.clear();
                    texts.push_back(text);
                }
            }
        }
        if at < count {
            out.push_str("...");
        }
    }

    fn characters(
        &self,
        out: &mut String,
        value: &Value,
        count: u64,
        width: u64,
        prefix: &str,
    ) -> bool {
        let limit = self.options.elements as u64;
        if count == 0 {
            return false;
        }
        // Enough to see how long a run is.
        let run = if self.options.glance { 1 } else { 64 };
        let wanted = count.min((limit + 1) * run);
        let element = match value.element(0) {
            Some(first) => first.ty,
            None => return false,
        };
        let Ok(bytes) = value
            .part(element.array(wanted), 0)
            .bytes(self.inspector.process)
        else {
            return false;
        };
        let width_bytes = width as usize;
        let mut bytes = bytes.as_slice();
        let whole = wanted == count;
        if whole
            && let Some(cut) = bytes.len().checked_sub(width_bytes)
            && bytes
                .get(cut..)
                .is_some_and(|last| last.iter().all(|b| *b == 0))
        {
            bytes = bytes.get(..cut).unwrap_or(bytes);
        }
        out.push_str(&text::string(
            bytes,
            width,
            prefix,
            self.options.elements,
            self.options.repeats,
            !whole,
        ));
        true
    }
}
