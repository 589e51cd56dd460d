//! Going through a text character by character.
//!
//! There are no tokens: what a `*` is depends on where it stands (a name of
//! processes, a sequence), and so does where a word ends.

use super::{Error, Span, Text};

/// Words that begin or divide rules, and name nothing.
pub const RESERVED: &[&str] = &[
    "let",
    "state",
    "never",
    "always",
    "find",
    "expect",
    "recognizer",
    "verifier",
    "include",
    "and",
    "or",
    "not",
    "do",
    "else",
    "over",
    "without",
    "within",
    "until",
    "leads",
    "before",
    "between",
    "after",
    "no",
    "possibly",
    "definitely",
    "observed",
    "from",
];

/// A place in a text, and how to go on from it.
pub struct Scan<'t> {
    pub text: &'t Text,
    pub at: usize,
}

impl<'t> Scan<'t> {
    pub fn new(text: &'t Text) -> Scan<'t> {
        Scan { text, at: 0 }
    }

    pub fn char(&self) -> Option<char> {
        self.text.chars.get(self.at).copied()
    }

    pub fn ahead(&self, by: usize) -> Option<char> {
        self.text.chars.get(self.at + by).copied()
    }

    /// Behind spaces, ends of lines and comments.
    pub fn skip(&mut self) {
        while let Some(c) = self.char() {
            match c {
                '#' => self.skip_line(),
                c if c.is_whitespace() => self.at += 1,
                _ => break,
            }
        }
    }

    fn skip_line(&mut self) {
        while self.char().is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    /// Behind spaces of this line.
    pub fn skip_spaces(&mut self) {
        while self.char().is_some_and(|c| c == ' ' || c == '\t') {
            self.at += 1;
        }
    }

    pub fn is_end(&mut self) -> bool {
        self.skip();
        self.char().is_none()
    }

    /// Whether this sign comes next.
    pub fn is(&mut self, sign: &str) -> bool {
        self.skip();
        sign.chars()
            .enumerate()
            .all(|(i, c)| self.ahead(i) == Some(c))
    }

    /// Goes behind a sign, if it comes next.
    pub fn take(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        if is {
            self.at += sign.chars().count();
        }
        is
    }

    pub fn expect(&mut self, sign: &str) -> Result<(), Error> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.error(format!("`{sign}`"))),
        }
    }

    /// The word that comes next: letters, digits, `_`, `.`, and `-` inside.
    pub fn peek_word(&mut self) -> Option<(String, Span)> {
        self.skip();
        let from = self.at;
        let first = self.char()?;
        if !first.is_alphabetic() && first != '_' {
            return None;
        }
        let mut to = from + 1;
        while let Some(c) = self.text.chars.get(to).copied() {
            let next = self.text.chars.get(to + 1).copied();
            let inside = |next: Option<char>| next.is_some_and(|n| n.is_alphanumeric() || n == '_');
            let part = c.is_alphanumeric() || c == '_' || "-.".contains(c) && inside(next);
            if !part {
                break;
            }
            to += 1;
        }
        let span = Span { from, to };
        Some((self.text.slice(span), span))
    }

    /// Whether this word comes next.
    pub fn is_word(&mut self, word: &str) -> bool {
        self.peek_word().is_some_and(|(own, _)| own == word)
    }

    /// Goes behind a word, if it comes next.
    pub fn take_word(&mut self, word: &str) -> bool {
        match self.peek_word() {
            Some((own, span)) if own == word => {
                self.at = span.to;
                true
            }
            _ => false,
        }
    }

    pub fn expect_word(&mut self, word: &str) -> Result<(), Error> {
        match self.take_word(word) {
            true => Ok(()),
            false => Err(self.error(format!("`{word}`"))),
        }
    }

    /// Where the next thing stands: a word, a number or a sign.
    pub fn next_span(&mut self) -> Span {
        if let Some((_, span)) = self.peek_word() {
            return span;
        }
        let from = self.at;
        let digit = |c: Option<&char>| c.is_some_and(char::is_ascii_alphanumeric);
        let mut to = from + usize::from(self.char().is_some());
        if self.char().is_some_and(|c| c.is_ascii_digit()) {
            while digit(self.text.chars.get(to)) {
                to += 1;
            }
        }
        Span { from, to }
    }

    /// Something else was expected here.
    pub fn error(&mut self, expected: impl Into<String>) -> Error {
        let span = self.next_span();
        self.text.error(span, expected)
    }

    /// A whole number.
    pub fn number(&mut self) -> Result<u32, Error> {
        self.skip();
        let from = self.at;
        while self.char().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let span = Span { from, to: self.at };
        match self.text.slice(span).parse() {
            Ok(number) => Ok(number),
            Err(_) => {
                self.at = from;
                Err(self.error("a number"))
            }
        }
    }

    /// The rest of the line, without a comment.
    pub fn rest_of_line(&mut self) -> (String, Span) {
        self.skip_spaces();
        let from = self.at;
        let mut to = from;
        let mut quote = None;
        while let Some(c) = self.char() {
            match (c, quote) {
                ('\n', _) => break,
                ('#', None)
                    if self.at == from || self.before().is_some_and(char::is_whitespace) =>
                {
                    break;
                }
                (';', None) => break,
                ('"' | '\'', None) if c == '"' => quote = Some(c),
                (c, Some(mark)) if c == mark => quote = None,
                _ => {}
            }
            self.at += 1;
            if !c.is_whitespace() {
                to = self.at;
            }
        }
        let span = Span { from, to };
        (self.text.slice(span), span)
    }

    fn before(&self) -> Option<char> {
        self.text.chars.get(self.at.checked_sub(1)?).copied()
    }

    /// Up to the parenthesis or bracket that closes what is open here.
    pub fn until_closed(&mut self, close: char) -> Result<(String, Span), Error> {
        self.skip();
        let from = self.at;
        let mut depth = 0usize;
        let mut quoted = false;
        while let Some(c) = self.char() {
            match c {
                '"' => quoted = !quoted,
                _ if quoted => {}
                c if c == close && depth == 0 => {
                    let to = self.at;
                    let text = self.text.slice(Span { from, to });
                    let kept = text.trim_end().chars().count();
                    let span = Span {
                        from,
                        to: from + kept,
                    };
                    return Ok((text.trim_end().to_string(), span));
                }
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
        Err(self.error(format!("`{close}`")))
    }

    /// What is behind an operator in a pattern, as far as it goes.
    pub fn skip_value(&mut self) {
        self.skip_spaces();
        match self.char() {
            Some(mark @ ('"' | '\'' | '/')) => {
                self.at += 1;
                while let Some(c) = self.char() {
                    self.at += 1;
                    match c {
                        '\\' => self.at += 1,
                        c if c == mark => break,
                        _ => {}
                    }
                }
                self.at = self.at.min(self.text.chars.len());
            }
            _ => {
                let is_part = |c: char| c.is_alphanumeric() || "_-.:*?@+%[]".contains(c);
                while let Some(c) = self.char() {
                    let arrow = c == '-' && self.ahead(1) == Some('>');
                    // `over process = server-*: ...`
                    let colon = c == ':' && self.ahead(1).is_none_or(char::is_whitespace);
                    if !is_part(c) || arrow || colon {
                        break;
                    }
                    self.at += 1;
                }
            }
        }
    }
}
