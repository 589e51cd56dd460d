//! What is to run where.
//!
//! ```toml
//! directory = "/srv/bank"              # of all that do not say another
//! environment = { RUST_LOG = "info" }  # of all; a run's own come on top
//!
//! [[run]]
//! host = "a"
//! command = "bank server --listen 10.0.0.1:7000"
//!
//! [[run]]
//! host = "b"
//! command = ["bank", "client", "10.0.0.1:7000"]
//! after = { host = "a", says = "listening" }
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use wire::Job;

use crate::Error;

/// One command on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The host, as ssh understands it.
    pub host: String,
    /// What is done there.
    pub job: Job,
    /// What somebody has to have said before.
    pub after: Option<After>,
}

/// What has to have been said, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// Places in the list of runs: any of these.
    pub who: Vec<usize>,
    /// A regular expression, found in a line.
    pub says: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    directory: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    run: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    host: String,
    command: Words,
    directory: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    after: Option<Awaited>,
    restart: Option<Restart>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    Line(String),
    List(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Awaited {
    Anybody(String),
    From { host: String, says: String },
}

/// What ended has ended: there is no other way yet.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Restart {
    Never,
}

/// Reads a plan.
pub fn read(path: &Path) -> Result<Vec<Run>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::File {
        what: "read",
        path: path.to_path_buf(),
        source,
    })?;
    parse(&text).map_err(|why| Error::Plan {
        path: path.to_path_buf(),
        why,
    })
}

/// What is wrong with a plan.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It is no TOML, or has what no plan has.
    #[error("{}{what}", match line { Some(line) => format!("line {line}: "), None => String::new() })]
    Syntax {
        /// Where.
        line: Option<usize>,
        /// In the reader's words.
        what: String,
    },
    /// Nothing is to be done.
    #[error("it has no [[run]]")]
    Empty,
    /// A list without words.
    #[error("the command for {0} is empty")]
    NoCommand(String),
    /// A line that cannot be split into words: as [`Error::Command`] says it.
    #[error("{0}")]
    Command(String),
    /// What is awaited cannot be looked for.
    #[error("`{0}` is no regular expression")]
    Pattern(String),
    /// What is awaited nobody could say.
    #[error("{host} waits for {other}, where nothing else runs")]
    Alone {
        /// Who waits.
        host: String,
        /// For whom.
        other: String,
    },
    /// Each waits for another one.
    #[error("the command for {0} waits for one that waits for it")]
    Circle(String),
}

fn parse(text: &str) -> Result<Vec<Run>, PlanError> {
    let table: Table = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or_default();
            before.matches('\n').count() + 1
        });
        let what = error.message().trim_end().replace('\n', "; ");
        PlanError::Syntax { line, what }
    })?;
    if table.run.is_empty() {
        return Err(PlanError::Empty);
    }
    let hosts: Vec<String> = table.run.iter().map(|entry| entry.host.clone()).collect();
    let mut runs = Vec::new();
    for (at, entry) in table.run.into_iter().enumerate() {
        let Some(Restart::Never) = entry.restart.or(Some(Restart::Never)) else {
            continue;
        };
        let command = match entry.command {
            Words::List(list) => list,
            Words::Line(line) => {
                command(&line).map_err(|error| PlanError::Command(error.to_string()))?
            }
        };
        if command.is_empty() {
            return Err(PlanError::NoCommand(entry.host));
        }
        let mut environment = table.environment.clone();
        environment.extend(entry.environment);
        let after = match entry.after {
            None => None,
            Some(awaited) => {
                let (host, says) = match awaited {
                    Awaited::Anybody(says) => (None, says),
                    Awaited::From { host, says } => (Some(host), says),
                };
                regex::Regex::new(&says).map_err(|_| PlanError::Pattern(says.clone()))?;
                let meant = |other: &usize| {
                    *other != at
                        && host
                            .as_ref()
                            .is_none_or(|host| hosts.get(*other) == Some(host))
                };
                let who: Vec<usize> = (0..hosts.len()).filter(meant).collect();
                if who.is_empty() {
                    return Err(PlanError::Alone {
                        host: entry.host,
                        other: host.unwrap_or_else(|| "another".to_string()),
                    });
                }
                Some(After { who, says })
            }
        };
        runs.push(Run {
            host: entry.host,
            job: Job {
                command,
                directory: entry.directory.or_else(|| table.directory.clone()),
                environment: environment.into_iter().collect(),
                outlives_full_disk: false,
            },
            after,
        });
    }
    if let Some(host) = never_started(&runs) {
        return Err(PlanError::Circle(host.to_string()));
    }
    Ok(runs)
}

/// A run that would wait for ever.
fn never_started(runs: &[Run]) -> Option<&str> {
    let mut started = vec![false; runs.len()];
    loop {
        let ready = runs.iter().enumerate().find(|(at, run)| {
            let is_started = |at: &usize| started.get(*at).copied().unwrap_or(false);
            let free = run
                .after
                .as_ref()
                .is_none_or(|after| after.who.iter().any(is_started));
            free && !is_started(at)
        });
        match ready {
            Some((at, _)) => {
                if let Some(own) = started.get_mut(at) {
                    *own = true;
                }
            }
            None => break,
        }
    }
    let at = started.iter().position(|started| !started)?;
    runs.get(at).map(|run| run.host.as_str())
}

/// A line as a command: its words, or a shell that understands it if it takes
/// one.
pub fn command(line: &str) -> Result<Vec<String>, Error> {
    const FOR_A_SHELL: &[char] = &[
        '|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '?', '[', ']', '#', '~', '{', '}', '\n',
    ];
    let assigns = line
        .split_whitespace()
        .next()
        .is_some_and(|word| word.contains('='));
    if line.contains(FOR_A_SHELL) || assigns {
        return Ok(vec!["/bin/sh".into(), "-c".into(), line.into()]);
    }
    words(line)
}

/// Splits a line into words, as a shell does.
pub fn words(line: &str) -> Result<Vec<String>, Error> {
    let fail = |why| Error::Command {
        command: line.to_string(),
        why,
    };
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => loop {
                let word = word.get_or_insert_default();
                match chars.next().ok_or(fail("a quotation is not closed"))? {
                    '\'' => break,
                    c => word.push(c),
                }
            },
            '"' => loop {
                let word = word.get_or_insert_default();
                match chars.next().ok_or(fail("a quotation is not closed"))? {
                    '"' => break,
                    '\\' => {
                        let next = chars.next().ok_or(fail("a quotation is not closed"))?;
                        if !matches!(next, '"' | '\\' | '$' | '`') {
                            word.push('\\');
                        }
                        word.push(next);
                    }
                    c => word.push(c),
                }
            },
            '\\' => {
                let next = chars.next().ok_or(fail("it ends in a backslash"))?;
                word.get_or_insert_default().push(next);
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let empty = fail("it is empty");
    if words.is_empty() {
        Err(empty)
    } else {
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_are_a_shells() {
        let split = |line| words(line).unwrap();
        assert_eq!(split("a  b\tc"), ["a", "b", "c"]);
        assert_eq!(
            split(r#"a 'b c' "d \"e\" \n" f\ g ''"#),
            ["a", "b c", "d \"e\" \\n", "f g", ""]
        );
        for bad in ["a 'b", "a \"b", "a\\", "", "  "] {
            assert!(words(bad).is_err(), "{bad}");
        }
        assert_eq!(command("a b").unwrap(), ["a", "b"]);
        assert_eq!(command("a | b").unwrap(), ["/bin/sh", "-c", "a | b"]);
        assert_eq!(command("X=1 a").unwrap(), ["/bin/sh", "-c", "X=1 a"]);
    }

    #[test]
    fn a_plan_says_who_waits_for_whom() {
        let runs = parse(
            r#"
            directory = "/srv"
            environment = { A = "1", B = "2" }
            [[run]]
            host = "a"
            command = "server -v"
            [[run]]
            host = "b"
            command = ["client", "x y"]
            directory = "/tmp"
            environment = { B = "3" }
            after = { host = "a", says = "list.*" }
            restart = "never"
            [[run]]
            host = "c"
            command = "true"
            after = "ready"
            "#,
        )
        .unwrap();
        assert_eq!(runs.len(), 3);
        assert_eq!(runs[1].job.directory.as_deref(), Some("/tmp"));
        assert_eq!(runs[0].job.directory.as_deref(), Some("/srv"));
        let b = ("B".to_string(), "3".to_string());
        assert!(runs[1].job.environment.contains(&b));
        assert_eq!(runs[1].after.as_ref().unwrap().who, [0]);
        assert_eq!(runs[2].after.as_ref().unwrap().who, [0, 1]);
    }

    #[test]
    fn what_is_wrong_with_a_plan_is_said() {
        let why = |text: &str| parse(text).unwrap_err().to_string();
        let one = "[[run]]\nhost = \"a\"\ncommand = \"x\"\n";
        assert!(why("").contains("no [[run]]"));
        assert!(
            why(&format!("{one}colour = 1\n")).starts_with("line 4"),
            "{}",
            why(&format!("{one}colour = 1\n"))
        );
        assert!(why("[[run]\n").starts_with("line 1"));
        assert!(why(&format!("{one}after = \"(\"\n")).contains("regular expression"));
        assert!(why(&format!("{one}after = \"x\"\n")).contains("nothing else runs"));
        assert!(why(&format!("{one}restart = \"always\"\n")).contains("always"));
        let circle = format!(
            "{one}after = {{ host = \"b\", says = \"x\" }}\n[[run]]\nhost = \"b\"\ncommand = \"y\"\nafter = \"z\"\n"
        );
        assert!(why(&circle).contains("waits for"));
    }
}
