//! A stack as text, as gdb's `bt` has it.

use super::{PrintOptions, Printer};
use crate::error::Error;
use crate::frames::{Frame, FrameKind, Stack};
use crate::inspector::Inspector;
use crate::scope::{Local, Scope};
use crate::types::{Kind, Ty};
use crate::value::Value;

/// The stack, one frame a line, and a last line if it ended too soon.
pub fn backtrace(inspector: &Inspector<'_>, stack: &Stack, options: &PrintOptions) -> String {
    let mut text = String::new();
    for level in 0..stack.frames.len() {
        if let Some(scope) = Scope::new(inspector, stack, level) {
            text.push_str(&frame_line(scope, options));
            text.push('\n');
        }
    }
    if let Some(complaint) = stack.complaint() {
        text.push_str(&format!("Backtrace stopped: {complaint}\n"));
    }
    text
}

/// One frame: `#1  0x... in name (argument=value) at file:line`.
pub fn frame_line(scope: Scope<'_>, options: &PrintOptions) -> String {
    let Some(frame) = scope.frame() else {
        return String::new();
    };
    let mut text = format!("#{:<2} ", frame.level);
    if frame.kind == FrameKind::Signal {
        text.push_str("<signal handler called>");
        return text;
    }
    if frame.place.is_none() || frame.inside_line {
        text.push_str(&format!("{:#018x} in ", frame.pc));
    }
    text.push_str(frame.name.as_deref().unwrap_or("??"));
    text.push_str(&format!(" ({})", arguments(scope, options).join(", ")));
    text.push_str(&location(frame, scope.inspector));
    text
}

fn location(frame: &Frame, inspector: &Inspector<'_>) -> String {
    if let Some(place) = &frame.place {
        return format!(" at {}:{}", place.file.name, place.line);
    }
    let main = inspector.main_module().map(|m| m.start);
    match frame.module {
        Some(module) if Some(module.start) != main && !module.module.name.starts_with('[') => {
            format!(" from {}", inspector.module_name(&module))
        }
        _ => String::new(),
    }
}

fn arguments(scope: Scope<'_>, options: &PrintOptions) -> Vec<String> {
    let printer = Printer::in_scope(scope, options.clone());
    let mut list = Vec::new();
    for local in scope.arguments() {
        let (value, entry) = (scope.read(local.die), scope.entry_value(local.die).ok());
        let (value, entry) = match value {
            Ok(value) => (value, entry),
            Err(e) => {
                list.push(format!("{}=<error reading variable: {e}>", local.name));
                continue;
            }
        };
        let name = local.name;
        let process = scope.inspector.process;
        match entry {
            Some(entry) if same(&value, &entry, process) => {
                list.push(format!("{name}={name}@entry={}", short(&printer, &value)));
            }
            Some(entry) => {
                list.push(format!("{name}={}", short(&printer, &value)));
                list.push(format!("{name}@entry={}", short(&printer, &entry)));
            }
            None => list.push(format!("{name}={}", short(&printer, &value))),
        }
    }
    list
}

fn same(a: &Value, b: &Value, process: &dyn crate::target::Process) -> bool {
    match (a.bytes(process), b.bytes(process)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// A scalar, or dots.
fn short(printer: &Printer<'_>, value: &Value) -> String {
    if is_long(&value.ty) {
        return "...".to_string();
    }
    printer.value(value)
}

fn is_long(ty: &Ty) -> bool {
    let ty = ty.peeled();
    match &ty.kind {
        Kind::Struct(_) | Kind::Array { .. } => true,
        Kind::Reference(to) | Kind::RvalueReference(to) => is_long(&to.get()),
        _ => false,
    }
}

/// The lines of `info locals` or `info args`.
pub fn variables(scope: Scope<'_>, locals: &[Local], options: &PrintOptions) -> Vec<String> {
    let printer = Printer::in_scope(scope, options.clone());
    locals
        .iter()
        .map(|local| match scope.read(local.die) {
            Ok(value) => format!("{} = {}", local.name, printer.variable(&value)),
            Err(e) => format!("{} = {}", local.name, reading(local.name, &e)),
        })
        .collect()
}

fn reading(name: &str, error: &Error) -> String {
    format!("<error reading variable {name} ({error})>")
}
