//! Numbers, and how they compare.

use super::Error;
use super::ast::*;
use super::parse::Parser;
use crate::engine::relation::Rel;

impl Parser<'_> {
    pub(super) fn begins_number(&mut self) -> bool {
        self.scan.skip();
        let next = self.scan.char();
        let negative = next == Some('-') && self.scan.ahead(1).is_some_and(|c| c.is_ascii_digit());
        if next.is_some_and(|c| c.is_ascii_digit()) || negative {
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
                    return Err(self
                        .scan
                        .error("a number, sum(..), count(..), value(..) or in_flight(..)"));
                }
            };
            return Ok(number);
        }
        let from = self.scan.at;
        self.scan.take("-");
        while self.scan.char().is_some_and(|c| c.is_ascii_digit()) {
            self.scan.at += 1;
        }
        let Ok(literal) = self.scan.text.slice(self.span(from)).parse::<i64>() else {
            self.scan.at = from;
            return Err(self
                .scan
                .error("a number, sum(..), count(..), value(..) or in_flight(..)"));
        };
        match self.scan.take("*") {
            true => Ok(Number::Times(literal, Box::new(self.deeper(Parser::term)?))),
            false => Ok(Number::Literal(literal)),
        }
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
