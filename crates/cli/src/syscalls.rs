//! `mw syscalls`: how each system call is treated.
//!
//! The answer to "can a program that uses X be recorded?", and the source of
//! docs/syscalls.md. Everything comes from the table in `protocol`.

use std::process::ExitCode;

use protocol::names::errno_name;
use protocol::syscall::{How, Syscall};
use protocol::table::{TABLE, by_name};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, Style};
use events::nearest;

/// Show how system calls are treated: recorded, repeated in replay, or refused
/// to the program.
#[derive(clap::Args)]
pub struct Cmd {
    /// Only these system calls [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Only those that are refused to the program
    #[arg(long)]
    refused: bool,

    /// One JSON object a line
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// As the page docs/syscalls.md
    #[arg(long, conflicts_with_all = ["names", "refused"])]
    markdown: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let rows = select(&self.names, self.refused)?;
        let mut out = Output::new();
        if self.markdown {
            for line in page(&rows) {
                out.line(&line)?;
            }
        } else if self.json {
            for row in rows {
                out.line(&object(row).to_string())?;
            }
        } else {
            table(&rows, !self.names.is_empty(), &mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn select(names: &[String], refused: bool) -> Result<Vec<&'static Syscall>, Failure> {
    let rows: Vec<&Syscall> = if names.is_empty() {
        TABLE.iter().collect()
    } else {
        let named = names
            .iter()
            .map(|name| by_name(name).ok_or_else(|| unknown(name)));
        named.collect::<Result<_, _>>()?
    };
    let wanted = |row: &&Syscall| !refused || matches!(row.how, How::Refuse(_));
    Ok(rows.into_iter().filter(wanted).collect())
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::new(format!("there is no system call `{name}` in the table"));
    match nearest(name, TABLE.iter().map(|row| row.name)) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint("the names are the kernel's; `mw syscalls` lists them"),
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

/// The call with the names of its arguments.
fn signature(row: &Syscall) -> String {
    let args: Vec<&str> = row.args.iter().map(|(name, _)| *name).collect();
    format!("{}({})", row.name, args.join(", "))
}

fn object(row: &Syscall) -> serde_json::Value {
    json!({
        "number": row.nr,
        "call": row.name,
        "args": row.args.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        "type": row.kind.name(),
        "treatment": treatment(row.how),
        "refused": match row.how {
            How::Refuse(errno) => errno_name(errno),
            _ => None,
        },
        "note": row.note,
    })
}

fn table(rows: &[&Syscall], notes: bool, out: &mut Output) -> Result<(), Failure> {
    for row in rows {
        let line = format!(
            "{:>3} {:<24} {:<8} {}",
            row.nr,
            row.name,
            row.kind.name(),
            treatment(row.how)
        );
        let style = match row.how {
            How::Refuse(_) => Style::Red,
            _ => Style::Plain,
        };
        out.line(&out.paint(style, &line))?;
        if notes && !row.note.is_empty() {
            out.line(&format!("    {}", row.note))?;
        }
    }
    Ok(())
}

/// What each treatment means, for the page.
const MEANINGS: &[(&str, &str)] = &[
    (
        "recorded",
        "The monitor makes the call and logs it as one event with its result and all that the \
         kernel wrote. Replay takes both from the log.",
    ),
    (
        "recorded, may block",
        "The same, as two events: one when the call begins and one when it returns. The thread \
         gives up its turn in between. Where a call cannot wait (a descriptor in non-blocking \
         mode, a file on disk, a time limit of zero) it is one event.",
    ),
    (
        "recorded, repeated",
        "It changes the address space: logged as one event, and made again in replay, at the \
         recorded addresses.",
    ),
    (
        "handled",
        "It makes, replaces or ends threads and processes, or concerns signals: the monitor has \
         code of its own for it.",
    ),
    (
        "refused",
        "It cannot be recorded faithfully. It is not made; the program gets the error shown, as \
         from a kernel without the feature, and `mw info` lists it (but for clone3, rseq and \
         restart_syscall, which C libraries ask for in every process and do without).",
    ),
];

/// The lines of docs/syscalls.md.
fn page(rows: &[&Syscall]) -> Vec<String> {
    let mut lines: Vec<String> = [
        "# System calls",
        "",
        "<!-- Made from the table in crates/protocol/src/table.rs. To make it again:",
        "     cargo run -q -p mw -- syscalls --markdown > docs/syscalls.md -->",
        "",
        "How Meanwhile treats every x86-64 system call. `mw syscalls NAME` says it for one.",
        "",
        "| treatment | calls | meaning |",
        "|---|---|---|",
    ]
    .map(str::to_string)
    .to_vec();
    for (name, meaning) in MEANINGS {
        let is = |row: &&&Syscall| treatment(row.how).split(':').next() == Some(name);
        let count = rows.iter().filter(is).count();
        lines.push(format!("| {name} | {count} | {meaning} |"));
    }
    lines.extend(
        [
            "",
            "A number that has no row here (337 to 423, and what later kernels add) is refused with",
            "ENOSYS; the user is told at once, and `mw info` lists it.",
            "",
            "What a call that is recorded still may not do is in [limits.md](limits.md).",
            "",
            "| number | call | type | treatment | note |",
            "|---|---|---|---|---|",
        ]
        .map(str::to_string),
    );
    for row in rows {
        lines.push(format!(
            "| {} | `{}` | {} | {} | {} |",
            row.nr,
            signature(row),
            row.kind.name(),
            treatment(row.how),
            row.note.replace('|', "\\|").replace('*', "\\*")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_selected_by_name_and_by_refusal() {
        let named = |names: &[&str], refused| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            select(&names, refused).map(|rows| rows.iter().map(|row| row.name).collect::<Vec<_>>())
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

    #[test]
    fn every_treatment_has_a_meaning_and_every_call_a_row() {
        let rows: Vec<&Syscall> = TABLE.iter().collect();
        for row in &rows {
            let treatment = treatment(row.how);
            let name = treatment.split(':').next();
            assert!(
                MEANINGS.iter().any(|(known, _)| Some(*known) == name),
                "{treatment}"
            );
        }
        let lines = page(&rows);
        let starts = |row: &&Syscall| format!("| {} | `{}(", row.nr, row.name);
        assert!(
            rows.iter()
                .map(starts)
                .all(|start| lines.iter().any(|l| l.starts_with(&start)))
        );
    }
}
