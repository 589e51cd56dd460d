//! Numbers, and how they compare.

use super::Error;
use super::ast::*;
use super::parse::Parser;
use crate::engine::relation::Rel;
use crate::values::{Literal, Real};

/// What a number can be.
const NUMBER: &str = "a number, a text, sum(..), count(..), value(..) or in_flight(..)";

impl Parser<'_> {
    pub(super) fn begins_number(&mut self) -> bool {
        self.scan.skip();
        let next = self.scan.char();
        let negative = next == Some('-') && self.scan.ahead(1).is_some_and(|c| c.is_ascii_digit());
        if next.is_some_and(|c| c.is_ascii_digit() || c == '"') || negative {
            return true;
        }
        self.scan.peek_word().is_some_and(|(word, span)| {
            matches!(word.as_str(), "sum" | "count" | "value" | "in_flight")
                && self.scan.text.chars.get(span.to) == Some(&'(')
        })
    }

    pub(super) fn comparison(&mut self) -> Result<Expr, Error> {
        let from = self.scan.at;
        let left = self.number()?;
        self.scan.skip();
        let signs = [
            ("==", Rel::Equal),
            ("!=", Rel::Unequal),
            ("<=", Rel::AtMost),
            (">=", Rel::AtLeast),
            ("=", Rel::Equal),
            ("<", Rel::Less),
            (">", Rel::More),
        ];
        let Some((sign, rel)) = signs.into_iter().find(|(sign, _)| self.scan.is(sign)) else {
            return Err(self.scan.error("a comparison like `==`, `<` or `>=`"));
        };
        self.scan.take(sign);
        let right = self.number()?;
        Ok(Expr {
            kind: ExprKind::Compare(left, rel, right),
            span: self.span(from),
        })
    }

    pub(super) fn number(&mut self) -> Result<Number, Error> {
        let mut list = vec![self.term()?];
        loop {
            self.scan.skip();
            let arrow = self.scan.is("->");
            if self.scan.take("+") {
                list.push(self.term()?);
            } else if !arrow && self.scan.take("-") {
                list.push(Number::Times(-1, Box::new(self.term()?)));
            } else {
                return Ok(match list.len() {
                    1 => list.remove(0),
                    _ => Number::Plus(list),
                });
            }
        }
    }

    pub(super) fn term(&mut self) -> Result<Number, Error> {
        self.scan.skip();
        if self.scan.take("(") {
            let inside = self.deeper(Parser::number)?;
            self.scan.expect(")")?;
            return Ok(inside);
        }
        if let Some((word, span)) = self.scan.peek_word() {
            self.scan.at = span.to;
            self.scan.skip_spaces();
            let number = match word.as_str() {
                "sum" => Number::Sum(self.quantity()?),
                "count" => Number::Count(self.quantity()?),
                "value" => Number::Value(self.quantity()?),
                "in_flight" => {
                    self.scan.expect("(")?;
                    let event = self.expr()?;
                    self.scan.expect(")")?;
                    Number::InFlight(Box::new(event))
                }
                _ => {
                    self.scan.at = span.from;
                    return Err(self.scan.error(NUMBER));
                }
            };
            return Ok(number);
        }
        if self.scan.char() == Some('"') {
            return Ok(Number::Literal(Literal::Text(self.quoted()?.into())));
        }
        let from = self.scan.at;
        let literal = match self.literal() {
            Some(literal) => literal,
            None => {
                self.scan.at = from;
                return Err(self.scan.error(NUMBER));
            }
        };
        let span = self.span(from);
        if !self.scan.take("*") {
            return Ok(Number::Literal(literal));
        }
        let factor = match literal {
            Literal::Int(factor) => i64::try_from(factor).ok(),
            _ => None,
        };
        let Some(factor) = factor else {
            let expected = "a whole number before `*`";
            return Err(self.scan.text.error(span, expected));
        };
        Ok(Number::Times(factor, Box::new(self.deeper(Parser::term)?)))
    }

    /// A number, with a fraction or without.
    fn literal(&mut self) -> Option<Literal> {
        let from = self.scan.at;
        let digits = |parser: &mut Self| {
            while parser.scan.char().is_some_and(|c| c.is_ascii_digit()) {
                parser.scan.at += 1;
            }
        };
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        self.scan.take("-");
        digits(self);
        let mut whole = true;
        if self.scan.char() == Some('.') && is_digit(self.scan.ahead(1)) {
            whole = false;
            self.scan.at += 1;
            digits(self);
        }
        let sign = usize::from(matches!(self.scan.ahead(1), Some('-' | '+')));
        if matches!(self.scan.char(), Some('e' | 'E')) && is_digit(self.scan.ahead(1 + sign)) {
            whole = false;
            self.scan.at += 1 + sign;
            digits(self);
        }
        let text = self.scan.text.slice(self.span(from));
        match whole {
            true => text.parse().ok().map(Literal::Int),
            false => {
                let number = text.parse().ok().filter(|own: &f64| own.is_finite());
                number.and_then(Real::new).map(Literal::Real)
            }
        }
    }

    /// A text in quotes; `\n`, `\t`, `\"` and `\\` as everywhere.
    fn quoted(&mut self) -> Result<String, Error> {
        let from = self.scan.at;
        self.scan.at += 1;
        let mut text = String::new();
        while let Some(c) = self.scan.char() {
            self.scan.at += 1;
            match c {
                '"' => return Ok(text),
                '\n' => break,
                '\\' => {
                    let next = self.scan.char();
                    self.scan.at += 1;
                    text.push(match next {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('r') => '\r',
                        Some('0') => '\0',
                        Some(other) => other,
                        None => break,
                    });
                }
                c => text.push(c),
            }
        }
        self.scan.at = self.scan.at.min(self.scan.text.chars.len());
        let span = self.span(from);
        Err(self.scan.text.error(span, "a text that ends with `\"`"))
    }

    /// What stands in `sum(..)`: the name of a state, or a state itself.
    pub(super) fn quantity(&mut self) -> Result<Quantity, Error> {
        self.scan.expect("(")?;
        self.scan.skip();
        let at = self.scan.at;
        if let Some((text, span)) = self.scan.peek_word() {
            self.scan.at = span.to;
            let names = self.arguments()?.unwrap_or_default();
            if self.scan.take(")") {
                return Ok(Quantity::Named(Name { text, span }, names));
            }
        }
        self.scan.at = at;
        let state = self.state(Some(')'))?;
        self.scan.expect(")")?;
        Ok(Quantity::Inline(state))
    }
}
