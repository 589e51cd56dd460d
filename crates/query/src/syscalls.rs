//! How each system call is treated.

use protocol::names::errno_name;
use protocol::syscall::{How, Syscall};
use protocol::table::{TABLE, by_name};
use serde::Serialize;

use crate::Error;

/// How a system call is treated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub call: &'static str,
    /// Names of its arguments.
    pub args: Vec<&'static str>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How it is treated, in a few words.
    pub treatment: String,
    /// The error that the program gets instead.
    pub refused: Option<&'static str>,
    /// What else there is to say.
    pub note: &'static str,
    /// Whether it is refused to the program.
    #[serde(skip)]
    pub is_refused: bool,
}

impl Row {
    fn new(row: &'static Syscall) -> Row {
        Row {
            number: row.nr,
            call: row.name,
            args: row.args.iter().map(|(name, _)| *name).collect(),
            kind: row.kind.name(),
            treatment: treatment(row.how),
            refused: match row.how {
                How::Refuse(errno) => errno_name(errno),
                _ => None,
            },
            note: row.note,
            is_refused: matches!(row.how, How::Refuse(_)),
        }
    }

    /// The call with the names of its arguments.
    pub fn signature(&self) -> String {
        format!("{}({})", self.call, self.args.join(", "))
    }
}

/// How a call is treated, in a few words.
fn treatment(how: How) -> String {
    match how {
        How::Plain => "recorded".to_string(),
        How::Block => "recorded, may block".to_string(),
        How::Memory => "recorded, repeated".to_string(),
        How::Control => "handled".to_string(),
        How::Refuse(errno) => format!("refused: {}", errno_name(errno).unwrap_or("error")),
    }
}

/// The calls of these names, all if there are none; `refused` leaves those that
/// are refused to the program.
pub fn list(names: &[String], refused: bool) -> Result<Vec<Row>, Error> {
    let rows: Vec<&'static Syscall> = match names.is_empty() {
        true => TABLE.iter().collect(),
        false => {
            let named = names
                .iter()
                .map(|name| by_name(name).ok_or_else(|| Error::NoCall { name: name.clone() }));
            named.collect::<Result<_, _>>()?
        }
    };
    let rows = rows.into_iter().map(Row::new);
    Ok(rows.filter(|row| !refused || row.is_refused).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_selected_by_name_and_by_refusal() {
        let named = |names: &[&str], refused| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            list(&names, refused).map(|rows| rows.iter().map(|row| row.call).collect::<Vec<_>>())
        };
        assert_eq!(
            named(&["read", "rseq"], false).ok(),
            Some(vec!["read", "rseq"])
        );
        assert_eq!(named(&["read", "rseq"], true).ok(), Some(vec!["rseq"]));
        assert_eq!(
            named(&[], false).ok().map(|rows| rows.len()),
            Some(TABLE.len())
        );
        assert!(named(&["raed"], false).is_err());
    }
}
