//! Sequences of recognizers and verifiers, and their commands.

use super::ast::*;
use super::parse::{DEPTH_MAX, Parser};
use super::scan::RESERVED;
use super::{Error, Span};

impl Parser<'_> {
    pub(super) fn sequence(&mut self) -> Result<Sequence, Error> {
        self.deeper(|parser| {
            let mut list = vec![parser.one_after_the_other()?];
            while parser.scan.take("|") {
                list.push(parser.one_after_the_other()?);
            }
            Ok(match list.len() {
                1 => list.remove(0),
                _ => Sequence::Either(list),
            })
        })
    }

    fn begins_sequence(&mut self) -> bool {
        if self.scan.is("(") || self.scan.is("[") {
            return true;
        }
        let word = self.scan.peek_word();
        word.is_some_and(|(word, _)| !RESERVED.contains(&word.as_str()))
    }

    fn one_after_the_other(&mut self) -> Result<Sequence, Error> {
        let mut list = vec![self.repeated()?];
        while self.begins_sequence() {
            list.push(self.repeated()?);
        }
        Ok(match list.len() {
            1 => list.remove(0),
            _ => Sequence::All(list),
        })
    }

    fn repeated(&mut self) -> Result<Sequence, Error> {
        let mut own = self.element()?;
        for _ in 0..DEPTH_MAX {
            let (least, most) = if self.scan.take("*") {
                (0, None)
            } else if self.scan.take("+") {
                (1, None)
            } else if self.scan.take("?") {
                (0, Some(1))
            } else if let Some(counts) = self.counts()? {
                counts
            } else {
                return Ok(own);
            };
            own = Sequence::Repeat(Box::new(own), least, most);
        }
        Err(self.too_deep())
    }

    fn element(&mut self) -> Result<Sequence, Error> {
        if self.scan.take("(") {
            let inside = self.sequence()?;
            self.scan.expect(")")?;
            return Ok(inside);
        }
        if self.scan.take("[") {
            let mut list = Vec::new();
            while !self.scan.take("]") {
                if !self.begins_sequence() {
                    return Err(self.scan.error("an event or `]`"));
                }
                list.push(self.deeper(Parser::repeated)?);
            }
            return match list.is_empty() {
                true => Err(self.scan.error("events between `[` and `]`")),
                false => Ok(Sequence::AnyOrder(list)),
            };
        }
        let name = self.name("an event, `(` or `[`")?;
        let names = self.arguments()?.unwrap_or_default();
        Ok(Sequence::One(name, names))
    }

    /// `{ emit session(c); print c }`
    pub(super) fn commands(&mut self) -> Result<Vec<Command>, Error> {
        self.scan.expect("{")?;
        let mut list = Vec::new();
        loop {
            if self.scan.take("}") {
                return Ok(list);
            }
            if self.scan.take(";") {
                continue;
            }
            if self.scan.is_end() {
                return Err(self.scan.error("a command or `}`"));
            }
            if self.scan.take_word("emit") {
                let name = self.name("the name of an event")?;
                let names = self.arguments()?.unwrap_or_default();
                list.push(Command::Emit(name, names));
            } else if self.scan.take_word("enable") {
                list.push(Command::Enable(self.name("the name of a rule")?));
            } else if self.scan.take_word("disable") {
                list.push(Command::Disable(self.name("the name of a rule")?));
            } else {
                list.push(Command::Other(self.command()?));
                continue;
            }
            if !self.scan.is(";") && !self.scan.is("}") {
                return Err(self.scan.error("`;` or `}`"));
            }
        }
    }

    /// A command of the debugger: up to `;` or the end of the list.
    fn command(&mut self) -> Result<Source, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut quoted = false;
        let mut depth = 0usize;
        while let Some(c) = self.scan.char() {
            match c {
                '"' => quoted = !quoted,
                _ if quoted => {}
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ';' => break,
                _ => {}
            }
            self.scan.at += 1;
        }
        let to = self.scan.at;
        let text = self.scan.text.slice(Span { from, to }).trim().to_string();
        Ok(Source {
            text,
            span: Span { from, to },
        })
    }
}
