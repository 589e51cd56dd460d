//! Reading rules by recursive descent: what stands in a file.

use super::ast::*;
use super::scan::{RESERVED, Scan};
use super::{Error, Span, Text};
use crate::engine::solve::Modality;

/// Parentheses and the like inside each other.
pub(super) const DEPTH_MAX: usize = 100;

/// Words that a file's things begin with.
pub const ITEMS: [&str; 9] = [
    "let",
    "state",
    "never",
    "always",
    "find",
    "expect",
    "recognizer",
    "verifier",
    "include",
];

/// Reads a file of rules.
pub fn parse(text: &Text) -> Result<Vec<Item>, Error> {
    let mut parser = Parser::new(text);
    let mut items = Vec::new();
    loop {
        while parser.scan.take(";") {}
        if parser.scan.is_end() {
            return Ok(items);
        }
        items.push(parser.item()?);
    }
}

/// Reads a question: rules and names, and at the end a condition, which
/// becomes a rule of the name `condition`.
pub fn parse_condition(text: &Text) -> Result<Vec<Item>, Error> {
    let mut parser = Parser::new(text);
    let mut items = Vec::new();
    loop {
        while parser.scan.take(";") {}
        if parser.scan.is_end() {
            return match items.is_empty() {
                true => Err(parser.scan.error("a condition")),
                false => Ok(items),
            };
        }
        if let Some((word, _)) = parser.scan.peek_word()
            && ITEMS.contains(&word.as_str())
        {
            items.push(parser.item()?);
            continue;
        }
        let from = parser.scan.at;
        let modality = parser.modality();
        let expr = parser.expr()?;
        let span = Span {
            from,
            to: parser.scan.at,
        };
        if !parser.scan.is_end() {
            return Err(parser.scan.error("`and`, `or`, `->` or the end"));
        }
        items.push(Item::Rule(Rule {
            kind: Kind::Find,
            name: Name {
                text: "condition".to_string(),
                span,
            },
            body: RuleBody::Condition(modality, expr),
            span,
        }));
    }
}

pub(super) struct Parser<'t> {
    pub scan: Scan<'t>,
    depth: usize,
    /// The states that have been named so far.
    states: Vec<String>,
}

impl<'t> Parser<'t> {
    fn new(text: &'t Text) -> Parser<'t> {
        Parser {
            scan: Scan::new(text),
            depth: 0,
            states: Vec::new(),
        }
    }

    /// What is inside each other too often would take the stack with it.
    pub(super) fn too_deep(&mut self) -> Error {
        self.scan
            .error("something simpler: this is nested too deeply")
    }

    pub(super) fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.too_deep());
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    pub(super) fn span(&self, from: usize) -> Span {
        Span {
            from,
            to: self.scan.at,
        }
    }

    /// A name that is none of the language's own words.
    pub(super) fn name(&mut self, expected: &str) -> Result<Name, Error> {
        match self.scan.peek_word() {
            Some((text, span)) if !RESERVED.contains(&text.as_str()) => {
                self.scan.at = span.to;
                Ok(Name { text, span })
            }
            _ => Err(self.scan.error(expected)),
        }
    }

    /// `(a, b)`, names for captures; `_` for none.
    pub(super) fn arguments(&mut self) -> Result<Option<Vec<Name>>, Error> {
        if self.scan.char() != Some('(') {
            return Ok(None);
        }
        self.scan.at += 1;
        let mut names = Vec::new();
        loop {
            if self.scan.take(")") {
                return Ok(Some(names));
            }
            names.push(self.name("a name for what was captured, or `)`")?);
            if !self.scan.take(",") && !self.scan.is(")") {
                return Err(self.scan.error("`,` or `)`"));
            }
        }
    }

    /// Whether a state is called so.
    pub(super) fn is_state(&self, name: &str) -> bool {
        self.states.iter().any(|own| own == name)
    }

    fn item(&mut self) -> Result<Item, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let Some((word, span)) = self.scan.peek_word() else {
            return Err(self.scan.error(format!("one of {}", ITEMS.join(", "))));
        };
        self.scan.at = span.to;
        let kind = match word.as_str() {
            "let" => return self.let_item(),
            "state" => {
                let name = self.name("the name of a state")?;
                self.states.push(name.text.clone());
                let names = self.arguments()?.unwrap_or_default();
                self.scan.expect("=")?;
                return Ok(Item::State(name, names, self.state(None)?));
            }
            "include" => {
                self.scan.skip();
                let from = self.scan.at;
                if self.scan.char() != Some('"') {
                    return Err(self.scan.error("the name of a file in quotes"));
                }
                self.scan.skip_value();
                let span = self.span(from);
                let text = self.scan.text.slice(span).trim_matches('"').to_string();
                return Ok(Item::Include(Name { text, span }));
            }
            "never" => Kind::Never,
            "always" => Kind::Always,
            "find" => Kind::Find,
            "expect" => Kind::Expect,
            "recognizer" => Kind::Recognizer,
            "verifier" => Kind::Verifier,
            _ => {
                let near = events::nearest(&word, ITEMS);
                let error = self
                    .scan
                    .text
                    .error(span, format!("one of {}", ITEMS.join(", ")));
                return Err(error.near(near));
            }
        };
        let name = self.name("a name for the rule")?;
        let body = match kind {
            Kind::Recognizer | Kind::Verifier => self.sequence_rule(kind)?,
            Kind::Expect => {
                self.scan.expect(":")?;
                RuleBody::Expectation(self.expectation()?)
            }
            _ => {
                self.scan.expect(":")?;
                let modality = self.modality();
                RuleBody::Condition(modality, self.expr()?)
            }
        };
        let span = self.span(from);
        if !self.is_over() {
            return Err(self.scan.error("the end of the rule"));
        }
        Ok(Item::Rule(Rule {
            kind,
            name,
            body,
            span,
        }))
    }

    /// Whether a thing of the file can end here.
    pub(super) fn is_over(&mut self) -> bool {
        self.scan.is_end()
            || self.scan.is(";")
            || self
                .scan
                .peek_word()
                .is_some_and(|(word, _)| ITEMS.contains(&word.as_str()))
    }

    fn let_item(&mut self) -> Result<Item, Error> {
        let name = self.name("a name for the event")?;
        self.scan.expect("=")?;
        let deed = self.deed();
        if let Some(deed) = deed {
            let place = self.place_in_source()?;
            self.scan.expect_word("in")?;
            let selector = self.selector()?;
            let condition = match self.scan.take_word("if") {
                true => {
                    let (text, span) = self.scan.rest_of_line();
                    Some(Source { text, span })
                }
                false => None,
            };
            return Ok(Item::Passing(
                name,
                Passing {
                    deed,
                    place,
                    selector,
                    condition,
                },
            ));
        }
        let expr = self.expr()?;
        match self.is_over() {
            true => Ok(Item::Let(name, expr)),
            false => {
                // The next line may begin with a word that was mistyped.
                let word = self.scan.peek_word().map(|(word, _)| word);
                let near = word.and_then(|word| events::nearest(&word, ITEMS));
                let error = self.scan.error("`and`, `or`, `->` or the end of the line");
                Err(error.near(near))
            }
        }
    }

    fn modality(&mut self) -> Modality {
        if self.scan.take_word("definitely") {
            Modality::Definitely
        } else if self.scan.take_word("observed") {
            Modality::Observed
        } else {
            self.scan.take_word("possibly");
            Modality::Possibly
        }
    }

    fn sequence_rule(&mut self, kind: Kind) -> Result<RuleBody, Error> {
        let over = match self.scan.take_word("over") {
            true => Some(self.expr()?),
            false => None,
        };
        self.scan.expect(":")?;
        let sequence = self.sequence()?;
        let word = match kind {
            Kind::Recognizer => "do",
            _ => "else",
        };
        let commands = match self.scan.take_word(word) {
            true => self.commands()?,
            false if self.is_over() => Vec::new(),
            false => return Err(self.scan.error(format!("an event, `|`, `*` or `{word}`"))),
        };
        Ok(RuleBody::Sequence(over, sequence, commands))
    }
}
