//! Who is meant, where in the source, and what is true over stretches of a run.

use super::Error;
use super::ast::*;
use super::parse::Parser;

impl Parser<'_> {
    /// `at`, `call of`, `return of`, `change of`.
    pub(super) fn deed(&mut self) -> Option<Deed> {
        let start = self.scan.at;
        if self.scan.take_word("at") {
            return Some(Deed::At);
        }
        for (word, deed) in [
            ("call", Deed::Call),
            ("return", Deed::Return),
            ("change", Deed::Change),
        ] {
            if self.scan.take_word(word) {
                if self.scan.take_word("of") {
                    return Some(deed);
                }
                self.scan.at = start;
            }
        }
        None
    }

    /// A function, a line (`file.rs:12`), a label or a variable.
    pub(super) fn place_in_source(&mut self) -> Result<Source, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut depth = 0usize;
        while let Some(c) = self.scan.char() {
            // Names of generic functions have spaces inside `<>`.
            match c {
                '<' => depth += 1,
                '>' => depth = depth.saturating_sub(1),
                c if c.is_whitespace() && depth == 0 => break,
                ':' if self.scan.ahead(1).is_none_or(char::is_whitespace) => break,
                '\n' => break,
                _ => {}
            }
            self.scan.at += 1;
        }
        let span = self.span(from);
        match span.from == span.to {
            true => Err(self.scan.error("a function, a line, a label or a variable")),
            false => Ok(Source {
                text: self.scan.text.slice(span),
                span,
            }),
        }
    }

    pub(super) fn selector(&mut self) -> Result<Selector, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let is_part = |c: char| c.is_alphanumeric() || "_-.*?@+%".contains(c);
        let part = |parser: &mut Self| {
            let from = parser.scan.at;
            while parser.scan.char().is_some_and(is_part) {
                parser.scan.at += 1;
            }
            parser.scan.text.slice(parser.span(from))
        };
        let process = part(self);
        let thread = match self.scan.char() {
            Some('/') => {
                self.scan.at += 1;
                Some(part(self))
            }
            _ => None,
        };
        if process.is_empty() || thread.as_ref().is_some_and(String::is_empty) {
            return Err(self
                .scan
                .error("names of processes, like server-* or server-0/worker-*"));
        }
        Ok(Selector {
            process,
            thread,
            span: self.span(from),
        })
    }

    /// `server-* at PLACE: ...`; inside something that `close` closes, or up
    /// to the end of the line.
    pub(super) fn state(&mut self, close: Option<char>) -> Result<State, Error> {
        let selector = self.selector()?;
        let place = match self.scan.take_word("at") {
            true => Some(self.place_in_source()?),
            false => None,
        };
        self.scan.expect(":")?;
        let start = self.scan.at;
        let body = if place.is_some() {
            Body::Source(self.source(close)?, place)
        } else if self.scan.take_word("from") {
            let from = self.deeper(Parser::postfix)?;
            let until = match self.scan.take_word("until") {
                true => Some(Box::new(self.deeper(Parser::postfix)?)),
                false => None,
            };
            Body::Between(Box::new(from), until)
        } else if self.scan.take_word("running") && self.is_state_over(close) {
            Body::Running
        } else if self.rewind(start) && self.scan.take_word("last") && self.is_last() {
            let name = self.name("the name of a capture")?;
            self.scan.expect_word("of")?;
            let event = self.deeper(Parser::postfix)?;
            Body::Last(name, Box::new(event))
        } else {
            self.scan.at = start;
            Body::Source(self.source(close)?, None)
        };
        Ok(State { selector, body })
    }

    pub(super) fn rewind(&mut self, at: usize) -> bool {
        self.scan.at = at;
        true
    }

    /// Whether `NAME of` follows.
    pub(super) fn is_last(&mut self) -> bool {
        let at = self.scan.at;
        let Some((_, span)) = self.scan.peek_word() else {
            return false;
        };
        self.scan.at = span.to;
        let is = self.scan.is_word("of");
        self.scan.at = at;
        is
    }

    pub(super) fn is_state_over(&mut self, close: Option<char>) -> bool {
        match close {
            Some(close) => self.scan.is(&close.to_string()),
            None => self.is_over(),
        }
    }

    pub(super) fn source(&mut self, close: Option<char>) -> Result<Source, Error> {
        let (text, span) = match close {
            Some(close) => self.scan.until_closed(close)?,
            None => self.scan.rest_of_line(),
        };
        match text.is_empty() {
            true => Err(self
                .scan
                .text
                .error(span, "an expression in the words of the source")),
            false => Ok(Source { text, span }),
        }
    }
}
