//! Reading rules: what is written, with where it stands.

pub mod ast;
mod expectation;
mod expr;
mod number;
mod parse;
mod scan;
mod sequence;
mod states;

pub use parse::{ITEMS, parse, parse_condition};

/// Where something stands in a text: the first character, and the first
/// behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first character.
    pub from: usize,
    /// The first behind it.
    pub to: usize,
}

/// Rules that are none: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: expected {expected}, found {found}")]
pub struct Error {
    /// Which text.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
    /// What could stand there.
    pub expected: String,
    /// What stands there.
    pub found: String,
    /// The word that was perhaps meant.
    pub near: Option<String>,
}

/// A text with a name, in which places become lines and columns.
#[derive(Clone, Debug)]
pub struct Text {
    /// Its name: that of its file.
    pub name: String,
    /// Its characters.
    pub chars: Vec<char>,
}

impl Text {
    /// This text, under this name.
    pub fn new(name: impl Into<String>, text: &str) -> Text {
        Text {
            name: name.into(),
            chars: text.chars().collect(),
        }
    }

    /// Line and column of a character, counted from 1.
    pub fn place(&self, at: usize) -> (usize, usize) {
        let before = self.chars.get(..at.min(self.chars.len())).unwrap_or(&[]);
        let line = before.iter().filter(|c| **c == '\n').count() + 1;
        let column = before.iter().rev().take_while(|c| **c != '\n').count() + 1;
        (line, column)
    }

    /// What stands there.
    pub fn slice(&self, span: Span) -> String {
        let chars = self.chars.get(span.from..span.to.min(self.chars.len()));
        chars.unwrap_or(&[]).iter().collect()
    }

    /// Something is wrong there.
    pub fn error(&self, span: Span, expected: impl Into<String>) -> Error {
        let (line, column) = self.place(span.from);
        let typed = self.slice(span);
        let typed = typed.lines().next().unwrap_or("").trim().to_string();
        Error {
            file: self.name.clone(),
            line,
            column,
            expected: expected.into(),
            found: match typed.is_empty() {
                true if span.from >= self.chars.len() => "the end".to_string(),
                true => "the end of the line".to_string(),
                false => format!("`{typed}`"),
            },
            near: None,
        }
    }
}

impl Error {
    /// With the word that was perhaps meant.
    pub fn near(mut self, near: Option<&str>) -> Error {
        self.near = near.map(str::to_string);
        self
    }
}
