//! Values as text, in gdb's manner for each language.

mod aggregate;
pub mod backtrace;
mod container;
pub(crate) mod float;
mod rust;
mod scalar;
pub(crate) mod text;

pub(crate) use scalar::is_float;

use crate::dwarf::Language;
use crate::error::Error;
use crate::inspector::Inspector;
use crate::scope::Scope;
use crate::types::{Kind, Ty, name_of};
use crate::value::{Data, Value};

/// How values are shown.
#[derive(Debug, Clone)]
pub struct PrintOptions {
    /// The language whose manner is used.
    pub language: Language,
    /// How many elements or characters are shown.
    pub elements: usize,
    /// From how many equal ones on they are counted instead.
    pub repeats: usize,
    /// How deep structures are followed.
    pub depth: usize,
    /// Whether containers of the libraries are shown as what they hold.
    pub containers: bool,
    /// A letter as in `print/x`.
    pub format: Option<char>,
    /// Whether addresses of symbols are named.
    pub symbols: bool,
    /// Whether it is only a glance: no more is read than is shown, so that
    /// runs of equal elements are not counted beyond that.
    pub glance: bool,
}

impl Default for PrintOptions {
    fn default() -> Self {
        Self {
            language: Language::C,
            elements: 200,
            repeats: 10,
            depth: 20,
            containers: true,
            format: None,
            symbols: true,
            glance: false,
        }
    }
}

/// Shows values of one process.
pub struct Printer<'a> {
    pub(crate) inspector: &'a Inspector<'a>,
    /// For pointers that only exist in the debug information.
    pub(crate) scope: Option<Scope<'a>>,
    pub(crate) options: PrintOptions,
}

/// A text of this length is enough for anybody; damaged types could make it
/// endless.
const MAX_OUTPUT: usize = 1 << 20;

/// A text of this length is more than a line.
const MAX_GLANCE: usize = 400;

impl<'a> Printer<'a> {
    /// Shows values as `options` says.
    pub fn new(inspector: &'a Inspector<'a>, options: PrintOptions) -> Self {
        Self {
            inspector,
            scope: None,
            options,
        }
    }

    /// Shows values in a frame's language.
    pub fn in_scope(scope: Scope<'a>, options: PrintOptions) -> Self {
        let language = scope.frame().map_or(options.language, |f| f.language());
        Self {
            inspector: scope.inspector,
            scope: Some(scope),
            options: PrintOptions {
                language,
                ..options
            },
        }
    }

    /// A value as a variable's or a member's.
    pub fn value(&self, value: &Value) -> String {
        let mut out = String::new();
        self.print(&mut out, value, 0);
        out
    }

    /// A value as `info locals` shows it.
    pub fn variable(&self, value: &Value) -> String {
        // What a reference leads to is the variable.
        if let Kind::Reference(to) | Kind::RvalueReference(to) = &value.ty.peeled().kind
            && let Ok(address) = value.pointer(self.inspector.process)
            && let Err(e) = Value::in_memory(to.get(), address).bytes(self.inspector.process)
        {
            return format!("<error reading variable: {e}>");
        }
        self.value(value)
    }

    /// A value as `print` shows it: pointers say their type.
    pub fn top(&self, value: &Value) -> String {
        let peeled = value.ty.peeled();
        let mut out = String::new();
        if self.options.format.is_none() && !value.is_optimized_out() {
            match &peeled.kind {
                Kind::Pointer(to) if self.options.language != Language::Rust => {
                    // Characters speak for themselves.
                    let plain = matches!(value.ty.kind, Kind::Pointer(_))
                        && text::width_of(&to.get()).is_some();
                    if !plain {
                        out.push_str(&format!("({}) ", name_of(&value.ty)));
                    }
                }
                Kind::Reference(_) | Kind::RvalueReference(_) => {
                    out.push_str(&format!("({}) ", name_of(&value.ty)));
                }
                Kind::Pointer(_) => {
                    out.push_str(&format!("({}) ", name_of(&value.ty)));
                }
                Kind::Function { .. } => {
                    out.push_str(&format!("{{{}}} ", name_of(&value.ty)));
                }
                _ => {}
            }
        }
        self.print(&mut out, value, 0);
        out
    }

    /// Whether a text is so long that nothing is added.
    pub(crate) fn is_full(&self, out: &str) -> bool {
        let most = if self.options.glance {
            MAX_GLANCE
        } else {
            MAX_OUTPUT
        };
        out.len() > most
    }

    pub(crate) fn print(&self, out: &mut String, value: &Value, depth: usize) {
        if self.is_full(out) {
            return;
        }
        let ty = value.ty.peeled().complete();
        // A part of something that is partly there is shown down to what is
        // missing.
        let opened = depth > 0
            && matches!(value.data, Data::Bytes { .. })
            && matches!(ty.kind, Kind::Struct(_) | Kind::Array { .. });
        if value.is_optimized_out() && value.bits.is_none() && !opened {
            out.push_str("<optimized out>");
            return;
        }
        if let Data::Synthetic { .. } = value.data {
            self.synthetic(out, value, &ty);
            return;
        }
        if let Some(format) = self.options.format
            && !matches!(ty.kind, Kind::Struct(_) | Kind::Array { .. })
        {
            self.formatted(out, value, &ty, format);
            return;
        }
        if self.options.containers
            && self.options.format.is_none()
            && let Some(shown) = self.container(value, depth)
        {
            out.push_str(&shown);
            return;
        }
        if self.options.language == Language::Rust && self.rust(out, value, &ty, depth) {
            return;
        }
        match &ty.kind {
            Kind::Struct(aggregate) => self.structure(out, value, &ty, aggregate, depth),
            Kind::Array { element, .. } => self.array(out, value, &element.get(), depth),
            Kind::Reference(to) | Kind::RvalueReference(to) => {
                self.reference(out, value, &to.get(), depth);
            }
            _ => self.scalar(out, value, &ty),
        }
    }

    fn synthetic(&self, out: &mut String, value: &Value, ty: &Ty) {
        let reference = matches!(ty.kind, Kind::Reference(_) | Kind::RvalueReference(_));
        if !reference {
            out.push_str("<synthetic pointer>");
            return;
        }
        out.push_str("@<synthetic pointer>");
        if let (Data::Synthetic { target, offset }, Some(scope)) = (&value.data, &self.scope)
            && let Some(to) = value.ty.target()
            && let Ok(object) = scope.read(*target)
        {
            out.push_str(": ");
            let part = object.part(to, *offset as u64);
            self.print(out, &part, 1);
        }
    }

    fn reference(&self, out: &mut String, value: &Value, to: &Ty, depth: usize) {
        match value.pointer(self.inspector.process) {
            Ok(address) => {
                out.push_str(&format!("@{address:#x}"));
                // Only a reference itself is followed, not one in a structure.
                if depth == 0 {
                    out.push_str(": ");
                    self.print(out, &Value::in_memory(to.clone(), address), 0);
                }
            }
            Err(e) => self.failed(out, &e),
        }
    }

    pub(crate) fn failed(&self, out: &mut String, error: &Error) {
        match error {
            Error::OptimizedOut => out.push_str("<optimized out>"),
            other => out.push_str(&format!("<error: {other}>")),
        }
    }
}
