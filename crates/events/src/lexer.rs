//! Words of a pattern.

use crate::PatternError;

/// One word, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name, a number, a time: whatever needs no quotes.
    Word(String),
    /// `"..."` or `'...'`: the bytes.
    Text(Vec<u8>),
    /// `/.../`.
    Regex(String),
    /// `=`, `!=`, `~`, `!~`, `<`, `<=`, `>`, `>=`.
    Operator(&'static str),
    Open,
    Close,
    End,
}

/// A word with the column it begins at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spanned {
    pub token: Token,
    pub column: usize,
    /// As it was typed.
    pub typed: String,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "_-.:*?@+%[]{}->".contains(c) && c != '>'
}

/// Cuts a pattern into words.
pub(crate) fn words(pattern: &str) -> Result<Vec<Spanned>, PatternError> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = chars.get(at).copied() {
        let column = at + 1;
        let begin = at;
        let next = chars.get(at + 1).copied();
        let token = match c {
            c if c.is_whitespace() => {
                at += 1;
                continue;
            }
            '(' => {
                at += 1;
                Token::Open
            }
            ')' => {
                at += 1;
                Token::Close
            }
            '"' | '\'' => Token::Text(quoted(&chars, &mut at, c)?),
            '/' => Token::Regex(regex(&chars, &mut at)?),
            '!' | '<' | '>' if next == Some('=') => {
                at += 2;
                Token::Operator(match c {
                    '!' => "!=",
                    '<' => "<=",
                    _ => ">=",
                })
            }
            '!' if next == Some('~') => {
                at += 2;
                Token::Operator("!~")
            }
            '=' | '~' | '<' | '>' => {
                // `==` is what programmers type.
                at += if c == '=' && next == Some('=') { 2 } else { 1 };
                Token::Operator(match c {
                    '=' => "=",
                    '~' => "~",
                    '<' => "<",
                    _ => ">",
                })
            }
            c if is_word(c) => {
                while chars.get(at).copied().is_some_and(is_word) {
                    at += 1;
                }
                Token::Word(chars.get(begin..at).unwrap_or(&[]).iter().collect())
            }
            c => {
                return Err(PatternError {
                    column,
                    expected: "a word, a condition or a parenthesis".to_string(),
                    found: format!("`{c}`"),
                    near: None,
                });
            }
        };
        found.push(Spanned {
            token,
            column,
            typed: chars.get(begin..at).unwrap_or(&[]).iter().collect(),
        });
    }
    found.push(Spanned {
        token: Token::End,
        column: chars.len() + 1,
        typed: String::new(),
    });
    Ok(found)
}

fn open_ended(column: usize, mark: char) -> PatternError {
    PatternError {
        column,
        expected: format!("`{mark}` at the end of what begins here"),
        found: "the end of the pattern".to_string(),
        near: None,
    }
}

/// A text in quotes, with the escapes of C.
fn quoted(chars: &[char], at: &mut usize, mark: char) -> Result<Vec<u8>, PatternError> {
    let column = *at + 1;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4];
    *at += 1;
    loop {
        let Some(c) = chars.get(*at).copied() else {
            return Err(open_ended(column, mark));
        };
        *at += 1;
        if c == mark {
            return Ok(bytes);
        }
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escape = chars.get(*at).copied();
        *at += 1;
        match escape {
            Some('n') => bytes.push(b'\n'),
            Some('r') => bytes.push(b'\r'),
            Some('t') => bytes.push(b'\t'),
            Some('0') => bytes.push(0),
            Some('x') => {
                let digits: String = chars.get(*at..*at + 2).unwrap_or(&[]).iter().collect();
                let Ok(byte) = u8::from_str_radix(&digits, 16) else {
                    return Err(PatternError {
                        column: *at - 1,
                        expected: "two hexadecimal digits after `\\x`".to_string(),
                        found: format!("`{digits}`"),
                        near: None,
                    });
                };
                *at += 2;
                bytes.push(byte);
            }
            Some(c) => bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
            None => return Err(open_ended(column, mark)),
        }
    }
}

/// What stands between two slashes; `\/` is a slash.
fn regex(chars: &[char], at: &mut usize) -> Result<String, PatternError> {
    let column = *at + 1;
    let mut text = String::new();
    *at += 1;
    loop {
        let Some(c) = chars.get(*at).copied() else {
            return Err(open_ended(column, '/'));
        };
        *at += 1;
        match c {
            '/' => return Ok(text),
            '\\' if chars.get(*at) == Some(&'/') => {
                *at += 1;
                text.push('/');
            }
            '\\' => {
                text.push('\\');
                if let Some(next) = chars.get(*at).copied() {
                    *at += 1;
                    text.push(next);
                }
            }
            c => text.push(c),
        }
    }
}
