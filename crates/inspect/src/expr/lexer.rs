//! Words and signs of an expression.

use crate::error::{Error, Result};

/// A word or sign.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// A name or keyword.
    Name(String),
    /// `$name`.
    Dollar(String),
    /// An integer and its suffix.
    Integer(u128, String),
    /// A number with a point, and its suffix.
    Float(f64, String),
    /// A character's number.
    Character(u32),
    /// A string.
    Text(Vec<u8>),
    /// A sign.
    Sign(&'static str),
}

/// Signs, longer ones first.
const SIGNS: &[&str] = &[
    "<<=", ">>=", "..=", "::", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "..", "+", "-", "*", "/", "%", "&", "|", "^",
    "~", "!", "<", ">", "=", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "@", ";", "#",
];

fn wrong(message: impl Into<String>, at: usize) -> Error {
    Error::Expression {
        message: message.into(),
        column: at + 1,
    }
}

/// Splits a text; each word with its column, from 0.
pub fn tokens(text: &str) -> Result<Vec<(Token, usize)>> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        if c.is_whitespace() {
            at += 1;
        } else if c.is_ascii_digit() {
            let (token, end) = number(&chars, at)?;
            found.push((token, at));
            at = end;
        } else if c.is_alphabetic() || c == '_' || c == '$' {
            let end = word_end(&chars, at + 1);
            let word: String = chars.get(at..end).unwrap_or(&[]).iter().collect();
            let token = match word.strip_prefix('$') {
                Some(name) => Token::Dollar(name.to_string()),
                None => Token::Name(word),
            };
            found.push((token, at));
            at = end;
        } else if c == '\'' {
            let (bytes, end) = quoted(&chars, at, '\'')?;
            let text: String = bytes.iter().collect();
            // 'file.c'::name
            if text.chars().count() > 1 && chars.get(end) == Some(&':') {
                found.push((Token::Name(text), at));
            } else {
                let mut one = bytes.iter();
                match (one.next(), one.next()) {
                    (Some(c), None) => found.push((Token::Character(*c as u32), at)),
                    _ => return Err(wrong("A character constant must be one character.", at)),
                }
            }
            at = end;
        } else if c == '"' {
            let (chars_in, end) = quoted(&chars, at, '"')?;
            let text: String = chars_in.iter().collect();
            found.push((Token::Text(text.into_bytes()), at));
            at = end;
        } else {
            let sign = SIGNS.iter().find(|sign| {
                sign.chars()
                    .enumerate()
                    .all(|(i, s)| chars.get(at + i) == Some(&s))
            });
            match sign {
                Some(sign) => {
                    found.push((Token::Sign(sign), at));
                    at += sign.len();
                }
                None => return Err(wrong(format!("Invalid character '{c}' in expression."), at)),
            }
        }
        if found.len() > 10_000 {
            return Err(wrong("The expression is too long.", at));
        }
    }
    Ok(found)
}

fn word_end(chars: &[char], mut at: usize) -> usize {
    while chars
        .get(at)
        .is_some_and(|c| c.is_alphanumeric() || *c == '_')
    {
        at += 1;
    }
    at
}

fn number(chars: &[char], start: usize) -> Result<(Token, usize)> {
    let take = |from: usize, ok: &dyn Fn(char) -> bool| {
        let mut at = from;
        while chars.get(at).is_some_and(|c| ok(*c) || *c == '_') {
            at += 1;
        }
        at
    };
    let text = |from: usize, to: usize| -> String {
        chars
            .get(from..to)
            .unwrap_or(&[])
            .iter()
            .filter(|c| **c != '_')
            .collect()
    };
    let second = chars.get(start + 1).copied().unwrap_or(' ');
    let radix = match (chars.get(start), second) {
        (Some('0'), 'x' | 'X') => 16,
        (Some('0'), 'b' | 'B') => 2,
        (Some('0'), 'o') => 8,
        _ => 10,
    };
    if radix != 10 {
        let end = take(start + 2, &|c| c.is_digit(radix));
        let suffix_end = word_end(chars, end);
        let digits = text(start + 2, end);
        let value =
            u128::from_str_radix(&digits, radix).map_err(|_| wrong("Invalid number.", start))?;
        return Ok((Token::Integer(value, text(end, suffix_end)), suffix_end));
    }
    let mut end = take(start, &|c| c.is_ascii_digit());
    let mut float = false;
    // `1..3` is a range, not a number.
    if chars.get(end) == Some(&'.') && chars.get(end + 1).is_some_and(char::is_ascii_digit) {
        float = true;
        end = take(end + 1, &|c| c.is_ascii_digit());
    }
    if matches!(chars.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(chars.get(end + 1), Some('+' | '-')));
        if chars.get(end + 1 + sign).is_some_and(char::is_ascii_digit) {
            float = true;
            end = take(end + 1 + sign, &|c| c.is_ascii_digit());
        }
    }
    let suffix_end = word_end(chars, end);
    let (digits, suffix) = (text(start, end), text(end, suffix_end));
    if float || matches!(suffix.as_str(), "f" | "F" | "f32" | "f64") {
        let value = digits
            .parse()
            .map_err(|_| wrong("Invalid number.", start))?;
        return Ok((Token::Float(value, suffix), suffix_end));
    }
    // C's octal.
    let octal = digits.len() > 1 && digits.starts_with('0');
    let value = if octal {
        u128::from_str_radix(&digits, 8)
    } else {
        digits.parse()
    };
    let value = value.map_err(|_| wrong(format!("Invalid number \"{digits}\"."), start))?;
    Ok((Token::Integer(value, suffix), suffix_end))
}

fn quoted(chars: &[char], start: usize, quote: char) -> Result<(Vec<char>, usize)> {
    let mut found = Vec::new();
    let mut at = start + 1;
    loop {
        match chars.get(at) {
            None => return Err(wrong("Unterminated string in expression.", start)),
            Some(c) if *c == quote => return Ok((found, at + 1)),
            Some('\\') => {
                let (c, len) = match chars.get(at + 1) {
                    Some('n') => ('\n', 2),
                    Some('t') => ('\t', 2),
                    Some('r') => ('\r', 2),
                    Some('0') => ('\0', 2),
                    Some(c) => (*c, 2),
                    None => return Err(wrong("Unterminated string in expression.", start)),
                };
                found.push(c);
                at += len;
            }
            Some(c) => {
                found.push(*c);
                at += 1;
            }
        }
    }
}
