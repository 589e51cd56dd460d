//! Events and conditions: what is joined, chained, counted.
//!
//! Conditions of patterns (`bytes ~ "ok"`) are handed to the crate that reads
//! patterns, so that there is one language for events everywhere.

use super::Error;
use super::ast::*;
use super::parse::{DEPTH_MAX, Parser};
use super::scan::RESERVED;

/// Conditions that `and` or `or` joins.
const JOINED_MAX: usize = 1000;

impl Parser<'_> {
    /// `||` binds least, then `->`; `or`, `and` and `not` bind more, as what
    /// they join are mostly the conditions of one pattern.
    pub(super) fn expr(&mut self) -> Result<Expr, Error> {
        self.deeper(|parser| parser.concurrent(&Parser::joined))
    }

    /// An event where `and` is another word of the rule.
    pub(super) fn event(&mut self) -> Result<Expr, Error> {
        self.deeper(|parser| parser.concurrent(&Parser::alternatives))
    }

    pub(super) fn joined(&mut self) -> Result<Expr, Error> {
        self.list("or", ExprKind::Or, |parser| {
            parser.list("and", ExprKind::And, Parser::negated)
        })
    }

    pub(super) fn list(
        &mut self,
        word: &str,
        make: fn(Vec<Expr>) -> ExprKind,
        read: impl Fn(&mut Self) -> Result<Expr, Error>,
    ) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut list = vec![read(self)?];
        while self.scan.take_word(word) {
            // They become a pattern, in which each is inside the one before.
            if list.len() >= JOINED_MAX {
                return Err(self.too_deep());
            }
            list.push(read(self)?);
        }
        Ok(match list.len() {
            1 => list.remove(0),
            _ => Expr {
                kind: make(list),
                span: self.span(from),
            },
        })
    }

    pub(super) fn negated(&mut self) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        if self.scan.take_word("not") {
            let inner = self.deeper(Parser::negated)?;
            return Ok(Expr {
                kind: ExprKind::Not(Box::new(inner)),
                span: self.span(from),
            });
        }
        self.alternatives()
    }

    pub(super) fn concurrent(
        &mut self,
        operand: &dyn Fn(&mut Self) -> Result<Expr, Error>,
    ) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut left = self.chain(operand)?;
        let mut depth = 0;
        while self.scan.take("||") {
            depth += 1;
            if depth > DEPTH_MAX {
                return Err(self.too_deep());
            }
            let right = self.chain(operand)?;
            left = Expr {
                kind: ExprKind::Concurrent(Box::new(left), Box::new(right)),
                span: self.span(from),
            };
        }
        Ok(left)
    }

    pub(super) fn chain(
        &mut self,
        operand: &dyn Fn(&mut Self) -> Result<Expr, Error>,
    ) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut steps = vec![(operand(self)?, None)];
        while self.scan.take("->") {
            let step = operand(self)?;
            let without = match self.scan.take_word("without") {
                true => Some(operand(self)?),
                false => None,
            };
            steps.push((step, without));
        }
        Ok(match steps.len() {
            1 => steps.remove(0).0,
            _ => Expr {
                kind: ExprKind::Chain(steps),
                span: self.span(from),
            },
        })
    }

    pub(super) fn alternatives(&mut self) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut list = vec![self.postfix()?];
        while self.scan.is("|") && self.scan.ahead(1) != Some('|') {
            self.scan.take("|");
            list.push(self.postfix()?);
        }
        Ok(match list.len() {
            1 => list.remove(0),
            _ => Expr {
                kind: ExprKind::Alternatives(list),
                span: self.span(from),
            },
        })
    }

    /// `^3`, `{2}`, `{2,5}`, `{2,}`.
    pub(super) fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, Error> {
        const COUNT_MAX: u32 = 1000;
        self.scan.skip();
        let from = self.scan.at;
        let counts = if self.scan.take("^") {
            let count = self.scan.number()?;
            (count, Some(count))
        } else if self.scan.char() == Some('{')
            && self.scan.ahead(1).is_some_and(|c| c.is_ascii_digit())
        {
            self.scan.at += 1;
            let least = self.scan.number()?;
            let most = match self.scan.take(",") {
                true if self.scan.is("}") => None,
                true => Some(self.scan.number()?),
                false => Some(least),
            };
            self.scan.expect("}")?;
            (least, most)
        } else {
            return Ok(None);
        };
        let (least, most) = counts;
        if most.is_some_and(|most| most < least || most == 0) || most.unwrap_or(least) > COUNT_MAX {
            let span = self.span(from);
            let expected = format!("a count of 1 to {COUNT_MAX}, the smaller first");
            return Err(self.scan.text.error(span, expected));
        }
        Ok(Some(counts))
    }

    pub(super) fn postfix(&mut self) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut own = self.primary()?;
        let start = self.scan.at;
        let power = self.scan.is("^");
        self.scan.at = start;
        if let Some((least, most)) = self.counts()? {
            if least == 0 {
                let span = self.span(start);
                return Err(self.scan.text.error(span, "a count of at least 1"));
            }
            // `a^3` is three, one after the other; more do not hurt.
            let most = most.filter(|_| !power);
            own = Expr {
                kind: ExprKind::Count(Box::new(own), least, most),
                span: self.span(from),
            };
        }
        Ok(own)
    }

    pub(super) fn primary(&mut self) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        if self.begins_number() {
            return self.comparison();
        }
        if self.scan.take("(") {
            let inside = self.expr()?;
            self.scan.expect(")")?;
            return Ok(Expr {
                span: self.span(from),
                ..inside
            });
        }
        let Some((word, span)) = self.scan.peek_word() else {
            return Err(self.scan.error("an event, a state or a condition"));
        };
        if word == "happened" && self.scan.text.chars.get(span.to) == Some(&'(') {
            self.scan.at = span.to + 1;
            let inside = self.expr()?;
            self.scan.expect(")")?;
            return Ok(Expr {
                kind: ExprKind::Happened(Box::new(inside)),
                span: self.span(from),
            });
        }
        if RESERVED.contains(&word.as_str()) {
            return Err(self.scan.error("an event, a state or a condition"));
        }
        self.scan.at = span.to;
        let name = Name { text: word, span };
        let arguments = self.arguments()?;
        if arguments.is_some() || !self.is_field() {
            return Ok(Expr {
                kind: ExprKind::Name(name, arguments),
                span: self.span(from),
            });
        }
        self.leaf(from)
    }

    /// Whether a comparison of a pattern follows a word.
    pub(super) fn is_field(&mut self) -> bool {
        let at = self.scan.at;
        self.scan.skip_spaces();
        let (next, after) = (self.scan.char(), self.scan.ahead(1));
        let sign = match next {
            Some('=' | '~' | '<' | '>') => true,
            Some('!') => matches!(after, Some('=' | '~')),
            _ => false,
        };
        let is = sign || self.scan.is_word("as");
        self.scan.at = at;
        is
    }

    /// `FIELD OPERATOR VALUE`, read as patterns are read everywhere.
    pub(super) fn leaf(&mut self, from: usize) -> Result<Expr, Error> {
        self.scan.skip_spaces();
        if self.scan.take_word("as") {
            self.scan.skip_spaces();
            if let Some((_, span)) = self.scan.peek_word() {
                self.scan.at = span.to;
            }
        } else {
            while self.scan.char().is_some_and(|c| "=~<>!".contains(c)) {
                self.scan.at += 1;
            }
            self.scan.skip_value();
        }
        let span = self.span(from);
        let text = self.scan.text.slice(span);
        match events::parse(&text) {
            Ok(pattern) => Ok(Expr {
                kind: ExprKind::Leaf(pattern),
                span,
            }),
            Err(error) => {
                let at = from + error.column - 1;
                let (line, column) = self.scan.text.place(at);
                let found = match error.found.as_str() {
                    "the end of the pattern" => self.scan.error("").found,
                    _ => error.found,
                };
                // A state that is compared as if it were a field.
                let name = found.trim_matches('`');
                let (expected, near) = match self.is_state(name) {
                    true => (
                        format!("`value({name})`: that is what compares a state"),
                        None,
                    ),
                    false => (error.expected, error.near),
                };
                Err(Error {
                    file: self.scan.text.name.clone(),
                    line,
                    column,
                    expected,
                    found,
                    near,
                })
            }
        }
    }
}
