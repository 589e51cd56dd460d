//! A decoded argument, and how it is written: for people in the manner of
//! strace, for programs as JSON.

use std::fmt::Write;

use serde_json::Map;

/// A decoded argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Signed.
    Int(i64),
    /// Unsigned.
    Uint(u64),
    /// An address, or bits without names.
    Hex(u64),
    /// A file mode.
    Octal(u64),
    /// A name for a number, or several joined.
    Name(String),
    /// Data: the bytes that are known, and how long it is.
    Text(Vec<u8>, u64),
    /// Text that is never cut (a path).
    Path(Vec<u8>),
    /// A null pointer.
    Null,
    /// A descriptor and what it leads to.
    Fd(i32, Option<String>),
    /// A process id and the name of the process.
    Pid(i64, Option<String>),
    /// A structure; true if there is more in it than is shown.
    Struct(Vec<(&'static str, Value)>, bool),
    /// An array.
    List(Vec<Value>),
    /// A set, written without commas.
    Set(Vec<Value>, bool),
    /// Not in the log.
    Unknown,
}

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of data.
    pub text: usize,
    /// Elements of an array.
    pub elements: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            text: 32,
            elements: 32,
        }
    }
}

impl Value {
    /// Writes the value for people.
    pub fn write(&self, out: &mut String, limits: &Limits) {
        // Writing to a string does not fail.
        let _ = match self {
            Value::Int(value) => write!(out, "{value}"),
            Value::Uint(value) => write!(out, "{value}"),
            Value::Hex(0) => write!(out, "0"),
            Value::Hex(value) => write!(out, "{value:#x}"),
            Value::Octal(0) => write!(out, "0"),
            Value::Octal(value) => write!(out, "0{value:o}"),
            Value::Name(name) => write!(out, "{name}"),
            Value::Text(bytes, len) => {
                quote(out, bytes, *len, limits.text);
                Ok(())
            }
            Value::Path(bytes) => {
                quote(out, bytes, bytes.len() as u64, usize::MAX);
                Ok(())
            }
            Value::Null => write!(out, "NULL"),
            Value::Fd(fd, None) => write!(out, "{fd}"),
            Value::Fd(fd, Some(name)) => write!(out, "{fd}<{name}>"),
            Value::Pid(pid, None) => write!(out, "{pid}"),
            Value::Pid(pid, Some(name)) => write!(out, "{pid}<{name}>"),
            Value::Unknown => write!(out, "?"),
            Value::Struct(fields, more) => {
                out.push('{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    let _ = write!(out, "{}{name}=", if i == 0 { "" } else { ", " });
                    value.write(out, limits);
                }
                write!(out, "{}}}", if *more { ", ..." } else { "" })
            }
            Value::List(values) => {
                out.push('[');
                for (i, value) in values.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    if i == limits.elements {
                        out.push_str("...");
                        break;
                    }
                    value.write(out, limits);
                }
                write!(out, "]")
            }
            Value::Set(values, inverted) => {
                out.push_str(if *inverted { "~[" } else { "[" });
                for (i, value) in values.iter().enumerate() {
                    if i > 0 {
                        out.push(' ');
                    }
                    value.write(out, limits);
                }
                write!(out, "]")
            }
        };
    }

    /// The value for programs. Data that is text is a string; data that is
    /// not, or of which only the beginning is known or wanted, is an object.
    pub fn json(&self, limit: usize) -> serde_json::Value {
        match self {
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            // As text: they may be larger than what JSON numbers carry.
            Value::Hex(value) => format!("{value:#x}").into(),
            Value::Octal(value) => format!("0{value:o}").into(),
            Value::Name(name) => name.as_str().into(),
            Value::Path(bytes) => String::from_utf8_lossy(bytes).into(),
            Value::Text(bytes, len) => {
                let shown = bytes.get(..limit).unwrap_or(bytes);
                match std::str::from_utf8(bytes) {
                    Ok(text) if shown.len() as u64 >= *len => text.into(),
                    Ok(text) => {
                        let text = text.get(..text.floor_char_boundary(limit)).unwrap_or(text);
                        part("text", text.into(), *len)
                    }
                    Err(_) => part("hex", hex(shown).into(), *len),
                }
            }
            Value::Null | Value::Unknown => serde_json::Value::Null,
            Value::Fd(fd, _) => (*fd).into(),
            Value::Pid(pid, _) => (*pid).into(),
            Value::Struct(fields, _) => {
                let json = |(name, value): &(&str, Value)| (name.to_string(), value.json(limit));
                serde_json::Value::Object(fields.iter().map(json).collect::<Map<_, _>>())
            }
            Value::List(values) | Value::Set(values, false) => {
                values.iter().map(|value| value.json(limit)).collect()
            }
            Value::Set(values, true) => {
                let values = values.iter().map(|value| value.json(limit)).collect();
                let not = ("not".to_string(), serde_json::Value::Array(values));
                serde_json::Value::Object(Map::from_iter([not]))
            }
        }
    }
}

/// Data of which not all is there, or which is not text.
fn part(key: &str, value: serde_json::Value, length: u64) -> serde_json::Value {
    let length = ("length".to_string(), length.into());
    serde_json::Value::Object(Map::from_iter([(key.to_string(), value), length]))
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Writes bytes as a C string, cut after `limit` bytes.
fn quote(out: &mut String, bytes: &[u8], len: u64, limit: usize) {
    let shown = bytes.get(..limit).unwrap_or(bytes);
    out.push('"');
    escape(out, shown);
    out.push('"');
    if (shown.len() as u64) < len {
        out.push_str("...");
    }
}

/// Writes bytes with C escapes. Text that is valid UTF-8 stays as it is.
pub fn escape(out: &mut String, bytes: &[u8]) {
    for piece in bytes.utf8_chunks() {
        let mut chars = piece.valid().chars().peekable();
        while let Some(c) = chars.next() {
            // A short octal escape must not run into a digit that follows.
            let digit_follows = chars.peek().is_some_and(char::is_ascii_digit);
            escape_char(out, c, digit_follows);
        }
        for byte in piece.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

fn escape_char(out: &mut String, c: char, digit_follows: bool) {
    let _ = match c {
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        '\x0b' => write!(out, "\\v"),
        '\x0c' => write!(out, "\\f"),
        '"' => write!(out, "\\\""),
        '\\' => write!(out, "\\\\"),
        c if (c as u32) < 0x20 || c == '\x7f' => {
            if digit_follows {
                write!(out, "\\{:03o}", c as u32)
            } else {
                write!(out, "\\{:o}", c as u32)
            }
        }
        // Control characters of the upper half, and what reorders text on a
        // terminal, could make a line look other than it is.
        c if c.is_control()
            || ('\u{200e}'..='\u{200f}').contains(&c)
            || ('\u{2028}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c) =>
        {
            write!(out, "\\u{{{:x}}}", c as u32)
        }
        c => {
            out.push(c);
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn show(value: &Value) -> String {
        let mut out = String::new();
        value.write(&mut out, &Limits::default());
        out
    }

    #[test]
    fn data_is_quoted_escaped_and_cut() {
        let text = |bytes: &[u8]| Value::Text(bytes.to_vec(), bytes.len() as u64);
        assert_eq!(show(&text(b"PING\r\n\"\\")), r#""PING\r\n\"\\""#);
        assert_eq!(show(&text(b"\x01\x02\x003\xff")), r#""\1\2\0003\xff""#);
        assert_eq!(
            show(&text("h\u{e9}\u{202e}".as_bytes())),
            "\"h\u{e9}\\u{202e}\""
        );
        assert_eq!(
            show(&text(&[b'a'; 40])),
            format!("\"{}\"...", "a".repeat(32))
        );
        assert_eq!(show(&Value::Text(b"ab".to_vec(), 3)), "\"ab\"...");
        let json = |value: Value| value.json(usize::MAX);
        assert_eq!(json(text(b"ok\n")), json!("ok\n"));
        assert_eq!(json(text(b"\xff")), json!({ "hex": "ff", "length": 1 }));
        assert_eq!(
            text("a\u{e9}".as_bytes()).json(2),
            json!({ "text": "a", "length": 3 })
        );
        assert_eq!(
            json(Value::Text(b"ab".to_vec(), 9)),
            json!({ "text": "ab", "length": 9 })
        );
    }

    #[test]
    fn structures_nest() {
        let value = Value::List(vec![Value::Struct(
            vec![
                ("fd", Value::Fd(3, Some("pipe".into()))),
                (
                    "set",
                    Value::Set(
                        vec![Value::Name("INT".into()), Value::Name("HUP".into())],
                        true,
                    ),
                ),
                ("mode", Value::Octal(0o644)),
            ],
            true,
        )]);
        assert_eq!(
            show(&value),
            "[{fd=3<pipe>, set=~[INT HUP], mode=0644, ...}]"
        );
        assert_eq!(
            value.json(9),
            json!([{ "fd": 3, "set": { "not": ["INT", "HUP"] }, "mode": "0644" }])
        );
    }
}
