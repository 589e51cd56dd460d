//! Reading a pattern: `or` binds less than `and`, `and` less than `not`.

use std::cell::RefCell;
use std::collections::HashMap;

use protocol::syscall::Type;
use regex::bytes::Regex;

use crate::PatternError;
use crate::lexer::{Spanned, Token, words};
use crate::nearest::nearest;
use crate::pattern::*;

/// Parentheses and `not`s inside each other.
const DEPTH_MAX: usize = 200;

/// Reads a pattern.
pub fn parse(text: &str) -> Result<Pattern, PatternError> {
    let mut parser = Parser {
        words: words(text)?,
        at: 0,
        depth: 0,
    };
    let pattern = parser.either()?;
    match parser.peek().token {
        Token::End => Ok(pattern),
        _ => Err(parser.error("`and`, `or` or the end of the pattern", None)),
    }
}

struct Parser {
    words: Vec<Spanned>,
    at: usize,
    depth: usize,
}

const END: Spanned = Spanned {
    token: Token::End,
    column: 1,
    typed: String::new(),
};

impl Parser {
    fn peek(&self) -> &Spanned {
        static LAST: Spanned = END;
        self.words
            .get(self.at)
            .or(self.words.last())
            .unwrap_or(&LAST)
    }

    /// The word that was read last.
    fn before(&self) -> Spanned {
        let at = self.at.saturating_sub(1);
        self.words.get(at).unwrap_or(self.peek()).clone()
    }

    fn next(&mut self) -> Spanned {
        let word = self.peek().clone();
        self.at += 1;
        word
    }

    fn error(&self, expected: &str, near: Option<&str>) -> PatternError {
        self.error_at(self.peek(), expected, near)
    }

    fn error_at(&self, word: &Spanned, expected: &str, near: Option<&str>) -> PatternError {
        PatternError {
            column: word.column,
            expected: expected.to_string(),
            found: match &word.token {
                Token::End => "the end of the pattern".to_string(),
                _ => format!("`{}`", word.typed),
            },
            near: near.map(str::to_string),
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.peek().token, Token::Word(own) if own == word)
    }

    fn either(&mut self) -> Result<Pattern, PatternError> {
        let mut left = self.both()?;
        while self.is_word("or") {
            self.at += 1;
            let right = self.both()?;
            left = Pattern::Or(Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Pattern, PatternError> {
        let mut left = self.one()?;
        while self.is_word("and") {
            self.at += 1;
            let right = self.one()?;
            left = Pattern::And(Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Pattern, PatternError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("a simpler pattern: this one is nested too deeply", None));
        }
        let found = self.one_inside();
        self.depth -= 1;
        found
    }

    fn one_inside(&mut self) -> Result<Pattern, PatternError> {
        if self.is_word("not") {
            self.at += 1;
            return Ok(Pattern::Not(Box::new(self.one()?)));
        }
        match &self.peek().token {
            Token::Open => {
                self.at += 1;
                let inside = self.either()?;
                match self.peek().token {
                    Token::Close => {
                        self.at += 1;
                        Ok(inside)
                    }
                    _ => Err(self.error("`)`, `and` or `or`", None)),
                }
            }
            Token::Word(_) => Ok(Pattern::Is(self.condition()?)),
            _ => Err(self.error(
                "a type of event, a call, or a condition like `process = NAME`",
                None,
            )),
        }
    }

    fn condition(&mut self) -> Result<Condition, PatternError> {
        let word = self.next();
        let Token::Word(name) = &word.token else {
            return Err(self.error_at(&word, "a word", None));
        };
        if let Token::Operator(sign) = self.peek().token
            && let Some(operator) = Operator::parse(sign)
        {
            let field = self.field(&word, name)?;
            self.at += 1;
            let value = self.value(&field, operator)?;
            return Ok(Condition::Field(field, operator, value));
        }
        if self.is_word("as") {
            let field = self.field(&word, name)?;
            self.at += 1;
            return Ok(Condition::Capture(field, self.capture_name()?));
        }
        self.alone(&word, name)
    }

    /// The name behind `as`.
    fn capture_name(&mut self) -> Result<String, PatternError> {
        let word = self.next();
        let is_start = |c: char| c.is_alphabetic() || c == '_';
        match &word.token {
            Token::Word(name)
                if name.starts_with(is_start)
                    && name.chars().all(|c| c.is_alphanumeric() || c == '_') =>
            {
                Ok(name.clone())
            }
            _ => Err(self.error_at(&word, "a name for what is captured, like `fd as f`", None)),
        }
    }

    /// A word that is a condition by itself.
    fn alone(&self, word: &Spanned, name: &str) -> Result<Condition, PatternError> {
        if let Some(kind) = Type::from_name(name) {
            return Ok(Condition::Types(vec![kind]));
        }
        if let Some(types) = class(name) {
            return Ok(Condition::Types(types));
        }
        match name {
            "failed" => return Ok(Condition::Failed),
            "outside" => return Ok(Condition::Outside),
            "linked" => return Ok(Condition::Linked),
            _ => {}
        }
        if is_call(name) {
            return Ok(Condition::Call(name.to_string()));
        }
        if FIELDS.iter().any(|(field, _)| *field == name) {
            return Err(self.error("a comparison like `=`, `~` or `<`, or `as NAME`", None));
        }
        let near = nearest(name, known_words());
        Err(self.error_at(
            word,
            "a type of event, a class, a system call or a field",
            near,
        ))
    }

    fn field(&self, word: &Spanned, name: &str) -> Result<Field, PatternError> {
        Ok(match name {
            "type" => Field::Type,
            "call" => Field::Call,
            "process" => Field::Process,
            "host" => Field::Host,
            "thread" => Field::Thread,
            "channel" => Field::Channel,
            "peer" => Field::Peer,
            "link" => Field::Link,
            "bytes" | "data" => Field::Bytes,
            "length" => Field::Length,
            "result" => Field::Result,
            "error" => Field::Error,
            "number" => Field::Number,
            "time" => Field::Time,
            "phase" => Field::Phase,
            name => {
                let argument = name.strip_prefix("arg.").unwrap_or(name);
                if !is_argument(argument) {
                    let fields = FIELDS.iter().map(|(field, _)| *field);
                    let near = nearest(argument, fields.chain(argument_names()));
                    return Err(self.error_at(word, "a field or the name of an argument", near));
                }
                Field::Argument(argument.to_string())
            }
        })
    }

    fn value(&mut self, field: &Field, operator: Operator) -> Result<Value, PatternError> {
        let ordered = matches!(
            field,
            Field::Length | Field::Result | Field::Number | Field::Time | Field::Argument(_)
        );
        if operator.is_order() && !ordered {
            let sign = self.before();
            return Err(self.error_at(&sign, "`=`, `!=`, `~` or `!~`", None));
        }
        let word = self.next();
        let wanted = expected(field);
        let value = match &word.token {
            Token::Word(text) => match (field, operator) {
                (Field::Time, _) => {
                    Value::Number(duration(text).ok_or_else(|| self.error_at(&word, wanted, None))?)
                }
                (Field::Length | Field::Number, _) => {
                    Value::Number(number(text).ok_or_else(|| self.error_at(&word, wanted, None))?)
                }
                (_, operator) if operator.is_order() => Value::Number(
                    number(text).ok_or_else(|| self.error_at(&word, "a number", None))?,
                ),
                _ => match number(text) {
                    Some(number)
                        if matches!(field, Field::Result | Field::Argument(_))
                            && !matches!(operator, Operator::Like | Operator::Unlike) =>
                    {
                        Value::Number(number)
                    }
                    _ => Value::Text(text.clone().into_bytes()),
                },
            },
            Token::Text(bytes) if !operator.is_order() => Value::Text(bytes.clone()),
            Token::Regex(text) if matches!(operator, Operator::Like | Operator::Unlike) => {
                let regex = compiled(text).map_err(|error| {
                    let why = error.to_string();
                    let why = why.lines().last().unwrap_or("").trim().to_string();
                    self.error_at(&word, &format!("a regular expression ({why})"), None)
                })?;
                Value::Regex(regex)
            }
            Token::Regex(_) => {
                return Err(self.error_at(&word, "a word or text; for /.../ use `~`", None));
            }
            _ => return Err(self.error_at(&word, wanted, None)),
        };
        self.check(&word, field, operator, &value)?;
        Ok(value)
    }

    /// What can never be is said at once.
    fn check(
        &self,
        word: &Spanned,
        field: &Field,
        operator: Operator,
        value: &Value,
    ) -> Result<(), PatternError> {
        let Value::Text(text) = value else {
            return Ok(());
        };
        if matches!(operator, Operator::Like | Operator::Unlike) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(text);
        match field {
            Field::Type if Type::from_name(&text).is_none() && class(&text).is_none() => {
                let types = Type::ALL.iter().map(|kind| kind.name());
                Err(self.error_at(word, "a type of event", nearest(&text, types)))
            }
            Field::Call if !is_call(&text) && !text.contains(['*', '?']) => {
                let calls = protocol::table::TABLE.iter().map(|row| row.name);
                Err(self.error_at(word, "the name of a system call", nearest(&text, calls)))
            }
            Field::Error if !errors().any(|name| name == text) => {
                Err(self.error_at(word, "the name of an error", nearest(&text, errors())))
            }
            Field::Phase if !["call", "start", "end", "none"].contains(&&*text) => {
                Err(self.error_at(word, "`call`, `start`, `end` or `none`", None))
            }
            Field::Link if link_kind(&text).is_none() => {
                let kinds = causality::Kind::ALL.iter().map(|kind| kind.name());
                Err(self.error_at(word, "a kind of link", nearest(&text, kinds)))
            }
            _ => Ok(()),
        }
    }
}

fn expected(field: &Field) -> &'static str {
    match field {
        Field::Time => "a time like 1.5s or 20ms",
        Field::Length | Field::Number => "a number",
        Field::Bytes => "a word, a \"text\" or a /regular expression/",
        _ => "a value",
    }
}

/// The names of all errors.
fn errors() -> impl Iterator<Item = &'static str> {
    (1..=600).filter_map(protocol::names::errno_name)
}

/// Events that are not calls have names, too.
const OTHERS: [&str; 5] = ["begin", "thread-start", "signal", "preempt", "tsc"];

fn is_call(name: &str) -> bool {
    protocol::table::by_name(name).is_some() || OTHERS.contains(&name) || is_instruction(name)
}

/// Those that the processor answers are events, too.
fn is_instruction(name: &str) -> bool {
    let mut all = protocol::instruction::Instruction::ALL.iter();
    all.any(|what| what.name() == name)
}

fn argument_names() -> impl Iterator<Item = &'static str> {
    let rows = protocol::table::TABLE.iter();
    rows.flat_map(|row| row.args.iter().map(|(name, _)| *name))
}

fn is_argument(name: &str) -> bool {
    // What is not a call has these.
    matches!(name, "signal" | "how" | "exe" | "pid" | "parent")
        || argument_names().any(|n| n == name)
}

fn known_words() -> impl Iterator<Item = &'static str> {
    let types = Type::ALL.iter().map(|kind| kind.name());
    let classes = CLASSES.iter().map(|(name, _)| *name);
    let fields = FIELDS.iter().map(|(name, _)| *name);
    let calls = protocol::table::TABLE.iter().map(|row| row.name);
    types.chain(classes).chain(fields).chain(calls)
}

fn number(text: &str) -> Option<i64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|value| value as i64);
    }
    text.parse().ok()
}

/// A time, in nanoseconds: `1.5s`, `20ms`, `30us`, `7ns`, `2m`.
pub fn duration(text: &str) -> Option<i64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (digits, unit) = text.split_at(at);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    let value: f64 = digits.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value * scale).round() as i64)
}

/// Expressions that are kept.
const KEPT: usize = 256;

thread_local! {
    static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default();
}

/// A regular expression. To compile one costs more than to read all else of a pattern, and
/// rules are read again whenever one is added to them, and whenever a program that is alive
/// is looked at: those that were seen last are kept.
fn compiled(text: &str) -> Result<Regex, regex::Error> {
    KNOWN.with_borrow_mut(|known| {
        if let Some(regex) = known.get(text) {
            return Ok(regex.clone());
        }
        let regex = Regex::new(text)?;
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(text.to_string(), regex.clone());
        Ok(regex)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> PatternError {
        parse(text).unwrap_err()
    }

    #[test]
    fn and_binds_more_than_or_and_not_more_than_both() {
        let shape = |text: &str| {
            fn show(pattern: &Pattern) -> String {
                match pattern {
                    Pattern::And(a, b) => format!("({} & {})", show(a), show(b)),
                    Pattern::Or(a, b) => format!("({} | {})", show(a), show(b)),
                    Pattern::Not(a) => format!("!{}", show(a)),
                    Pattern::Is(Condition::Types(types)) => types[0].name().to_string(),
                    Pattern::Is(_) => "?".to_string(),
                }
            }
            show(&parse(text).unwrap())
        };
        assert_eq!(
            shape("send or recv and not open"),
            "(send | (recv & !open))"
        );
        assert_eq!(shape("(send or recv) and open"), "((send | recv) & open)");
        assert_eq!(shape("not not send"), "!!send");
        assert_eq!(shape("send or recv or open"), "((send | recv) | open)");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_column() {
        let e = error("");
        assert_eq!((e.column, e.found.as_str()), (1, "the end of the pattern"));
        let e = error("sned and recv");
        assert_eq!((e.column, e.near.as_deref()), (1, Some("send")));
        let e = error("send and proces = x");
        assert_eq!((e.column, e.near.as_deref()), (10, Some("process")));
        let e = error("send and process =");
        assert_eq!((e.column, e.found.as_str()), (19, "the end of the pattern"));
        assert_eq!(error("(send and recv").column, 15);
        assert_eq!(error("send recv").column, 6);
        assert_eq!(error("bytes ~ \"abc").column, 9);
        assert_eq!(error("bytes ~ /a(b/").column, 9);
        assert_eq!(error("time > 5").expected, "a time like 1.5s or 20ms");
        assert_eq!(error("length > many").expected, "a number");
        assert_eq!(
            error("channel").expected,
            "a comparison like `=`, `~` or `<`, or `as NAME`"
        );
        assert_eq!(error("bytes ~ \"\\xzz\"").column, 10);
        let e = error("link = mesage");
        assert_eq!((e.column, e.near.as_deref()), (8, Some("message")));
        let e = error("error = EAGIAN");
        assert_eq!((e.column, e.near.as_deref()), (9, Some("EAGAIN")));
        let e = error("send and process < 3");
        assert_eq!(
            (e.column, e.expected.as_str()),
            (18, "`=`, `!=`, `~` or `!~`")
        );
        assert_eq!(error("send & recv").column, 6);
        assert_eq!(error(&"(".repeat(5000)).column, 201);
    }

    #[test]
    fn the_forms_of_values_are_read() {
        for good in [
            "send",
            "message and failed",
            "process = redis-server-0",
            "process = redis-*",
            "bytes ~ /^(get|set) 0\\b/",
            "bytes = \"a\\n\\x00\"",
            "time >= 1.5s and time < 20ms",
            "result < 0 or error = EAGAIN",
            "channel = c12 or channel ~ \"127.0.0.1:80\"",
            "fd = 3 and arg.fd != 4",
            "call = recvfrom or recvfrom",
            "type = send",
            "outside and linked",
            "lock and uaddr as m and process as p",
            "bytes ~ /^set (?<a>\\d+)/",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good).err());
        }
    }

    #[test]
    fn captures_are_named_in_order() {
        let names = |text: &str| parse(text).unwrap().captures();
        assert_eq!(
            names("bytes ~ /(?<b>x)(?<a>y)/ and fd as f"),
            ["b", "a", "f"]
        );
        assert_eq!(
            names("send and bytes ~ /(?<a>x)/ or recv and fd as a"),
            ["a"]
        );
        assert_eq!(names("not bytes ~ /(?<a>x)/"), [""; 0]);
        assert_eq!(error("fd as 3").column, 7);
        assert_eq!(error("process as").column, 11);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            if let Err(error) = parse(&text) {
                prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
            }
        }

        #[test]
        fn no_words_make_it_panic(words in prop::collection::vec(
            prop::sample::select(vec!["send", "and", "or", "not", "(", ")", "process", "=", "~",
                "/a/", "\"b\"", "5", "1s", "<", "bytes", "c1", "!=", "fd"]), 0..12)) {
            let text = words.join(" ");
            if let Err(error) = parse(&text) {
                prop_assert!(error.column <= text.len() + 1);
            }
        }
    }
}
