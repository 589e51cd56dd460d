//! Expressions in the words of the source.
//!
//! [`Expression::parse`] reads a text and looks its names up once, in a
//! frame; [`Expression::evaluate`] computes it in that frame or any later one
//! of the same function, which is what a condition of a breakpoint needs.
//! Nothing is ever written or called: what would change the process is
//! refused.

mod access;
mod compile;
mod eval;
mod lexer;
mod operators;
mod parser;
mod placement;
mod types;

use crate::error::Result;
use crate::scope::Scope;
use crate::types::Ty;
use crate::value::Value;

pub use compile::Step;
pub(crate) use eval::real;
pub(crate) use parser::{Binary, Node, NodeKind, Unary};

/// An expression whose names are known.
#[derive(Debug, Clone)]
pub struct Expression {
    root: Node,
    /// What it was read from.
    pub text: String,
}

impl Expression {
    /// Reads an expression; names mean what they mean in `scope`.
    pub fn parse(scope: &Scope<'_>, text: &str) -> Result<Self> {
        let tokens = lexer::tokens(text)?;
        let mut root = parser::parse(scope, &tokens)?;
        eval::bind(scope, &mut root)?;
        Ok(Self {
            root,
            text: text.to_string(),
        })
    }

    /// Computes it.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value> {
        eval::evaluate(scope, &self.root)
    }

    /// Computes it as a condition: whether it is not zero.
    pub fn holds(&self, scope: &Scope<'_>) -> Result<bool> {
        let value = self.evaluate(scope)?;
        eval::truth(scope, &value, &self.root)
    }

    /// Its type, without computing more than needed for that.
    pub fn type_of(&self, scope: &Scope<'_>) -> Result<Ty> {
        if let NodeKind::Type(ty) = &self.root.kind {
            return Ok(ty.clone());
        }
        Ok(self.evaluate(scope)?.ty)
    }
}

impl Scope<'_> {
    /// Computes an expression in this frame.
    pub fn evaluate(&self, text: &str) -> Result<Value> {
        Expression::parse(self, text)?.evaluate(self)
    }
}
