//! Reading rules by recursive descent.
//!
//! Conditions of patterns (`bytes ~ "ok"`) are handed to the crate that reads
//! patterns, so that there is one language for events everywhere.

use super::ast::*;
use super::scan::{RESERVED, Scan};
use super::{Error, Span, Text};
use crate::engine::relation::Rel;
use crate::engine::solve::Modality;

/// Parentheses and the like inside each other.
const DEPTH_MAX: usize = 100;

/// Words that a file's things begin with.
const ITEMS: [&str; 9] = [
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
}

impl<'t> Parser<'t> {
    fn new(text: &'t Text) -> Parser<'t> {
        Parser {
            scan: Scan::new(text),
            depth: 0,
        }
    }

    pub(super) fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self
                .scan
                .error("something simpler: this is nested too deeply"));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn span(&self, from: usize) -> Span {
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
    fn is_over(&mut self) -> bool {
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
            false => Err(self.scan.error("`and`, `or`, `->` or the end of the line")),
        }
    }

    /// `at`, `call of`, `return of`, `change of`.
    fn deed(&mut self) -> Option<Deed> {
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
    fn place_in_source(&mut self) -> Result<Source, Error> {
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

    fn selector(&mut self) -> Result<Selector, Error> {
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
    fn state(&mut self, close: Option<char>) -> Result<State, Error> {
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

    fn rewind(&mut self, at: usize) -> bool {
        self.scan.at = at;
        true
    }

    /// Whether `NAME of` follows.
    fn is_last(&mut self) -> bool {
        let at = self.scan.at;
        let Some((_, span)) = self.scan.peek_word() else {
            return false;
        };
        self.scan.at = span.to;
        let is = self.scan.is_word("of");
        self.scan.at = at;
        is
    }

    fn is_state_over(&mut self, close: Option<char>) -> bool {
        match close {
            Some(close) => self.scan.is(&close.to_string()),
            None => self.is_over(),
        }
    }

    fn source(&mut self, close: Option<char>) -> Result<Source, Error> {
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

    /// `||` binds least, then `->`; `or`, `and` and `not` bind more, as what
    /// they join are mostly the conditions of one pattern.
    pub(super) fn expr(&mut self) -> Result<Expr, Error> {
        self.deeper(|parser| parser.concurrent(&Parser::joined))
    }

    /// An event where `and` is another word of the rule.
    fn event(&mut self) -> Result<Expr, Error> {
        self.deeper(|parser| parser.concurrent(&Parser::alternatives))
    }

    fn joined(&mut self) -> Result<Expr, Error> {
        self.list("or", ExprKind::Or, |parser| {
            parser.list("and", ExprKind::And, Parser::negated)
        })
    }

    fn list(
        &mut self,
        word: &str,
        make: fn(Vec<Expr>) -> ExprKind,
        read: impl Fn(&mut Self) -> Result<Expr, Error>,
    ) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut list = vec![read(self)?];
        while self.scan.take_word(word) {
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

    fn negated(&mut self) -> Result<Expr, Error> {
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

    fn concurrent(
        &mut self,
        operand: &dyn Fn(&mut Self) -> Result<Expr, Error>,
    ) -> Result<Expr, Error> {
        self.scan.skip();
        let from = self.scan.at;
        let mut left = self.chain(operand)?;
        while self.scan.take("||") {
            let right = self.chain(operand)?;
            left = Expr {
                kind: ExprKind::Concurrent(Box::new(left), Box::new(right)),
                span: self.span(from),
            };
        }
        Ok(left)
    }

    fn chain(&mut self, operand: &dyn Fn(&mut Self) -> Result<Expr, Error>) -> Result<Expr, Error> {
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

    fn alternatives(&mut self) -> Result<Expr, Error> {
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

    fn postfix(&mut self) -> Result<Expr, Error> {
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

    fn primary(&mut self) -> Result<Expr, Error> {
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
    fn is_field(&mut self) -> bool {
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
    fn leaf(&mut self, from: usize) -> Result<Expr, Error> {
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
                Err(Error {
                    file: self.scan.text.name.clone(),
                    line,
                    column,
                    expected: error.expected,
                    found,
                    near: error.near,
                })
            }
        }
    }

    fn begins_number(&mut self) -> bool {
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

    fn comparison(&mut self) -> Result<Expr, Error> {
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

    fn number(&mut self) -> Result<Number, Error> {
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

    fn term(&mut self) -> Result<Number, Error> {
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
            true => Ok(Number::Times(literal, Box::new(self.term()?))),
            false => Ok(Number::Literal(literal)),
        }
    }

    /// What stands in `sum(..)`: the name of a state, or a state itself.
    fn quantity(&mut self) -> Result<Quantity, Error> {
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

    fn expectation(&mut self) -> Result<Expectation, Error> {
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
    fn duration(&mut self) -> Result<u64, Error> {
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
