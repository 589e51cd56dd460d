//! Orders over time: what leads to what, before, between, within.

use super::Error;
use super::ast::*;
use super::parse::Parser;

impl Parser<'_> {
    pub(super) fn expectation(&mut self) -> Result<Expectation, Error> {
        if self.scan.take_word("no") {
            let event = self.event()?;
            if self.scan.take_word("between") {
                let after = self.event()?;
                self.scan.expect_word("and")?;
                return Ok(Expectation::NoBetween(event, after, self.event()?));
            }
            if self.scan.take_word("after") {
                let after = self.event()?;
                let until = match self.scan.take_word("until") {
                    true => Some(self.event()?),
                    false => None,
                };
                return Ok(Expectation::NoAfter(event, after, until));
            }
            if self.scan.take_word("before") {
                return Ok(Expectation::NoBefore(event, self.event()?));
            }
            return Err(self.scan.error("`between`, `after` or `before`"));
        }
        let first = self.expr()?;
        if self.scan.take_word("leads") {
            self.scan.expect_word("to")?;
            let then = self.expr()?;
            let within = match self.scan.take_word("within") {
                true => Some(self.duration()?),
                false => None,
            };
            return Ok(Expectation::LeadsTo(first, then, within));
        }
        if self.scan.take_word("before") {
            return Ok(Expectation::Before(first, self.expr()?));
        }
        if self.scan.take_word("until") {
            return Ok(Expectation::Until(first, self.expr()?));
        }
        match self.is_over() {
            true => Ok(Expectation::Always(first)),
            false => Err(self
                .scan
                .error("`leads to`, `before`, `until` or the end of the rule")),
        }
    }

    /// `50ms`, in nanoseconds.
    pub(super) fn duration(&mut self) -> Result<u64, Error> {
        self.scan.skip();
        let from = self.scan.at;
        while self
            .scan
            .char()
            .is_some_and(|c| c.is_ascii_alphanumeric() || c == '.')
        {
            self.scan.at += 1;
        }
        let span = self.span(from);
        let text = self.scan.text.slice(span);
        events::duration(&text)
            .and_then(|ns| u64::try_from(ns).ok())
            .ok_or_else(|| self.scan.text.error(span, "a time like 1.5s or 50ms"))
    }
}
