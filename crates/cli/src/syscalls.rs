//! `mw syscalls`: how each system call is treated.
//!
//! The answer to "can a program that uses X be recorded?", and the source of
//! docs/syscalls.md. Everything comes from the table in `protocol`.

use std::process::ExitCode;

use query::syscalls::{self, Row};

use crate::failure::Failure;
use crate::output::{Output, Style};

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
        let rows = syscalls::list(&self.names, self.refused)?;
        let mut out = Output::new();
        if self.markdown {
            for line in page(&rows) {
                out.line(&line)?;
            }
        } else if self.json {
            for row in &rows {
                out.json(row)?;
            }
        } else {
            table(&rows, !self.names.is_empty(), &mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn table(rows: &[Row], notes: bool, out: &mut Output) -> Result<(), Failure> {
    for row in rows {
        let line = format!(
            "{:>3} {:<24} {:<8} {}",
            row.number, row.call, row.kind, row.treatment
        );
        let style = match row.is_refused {
            true => Style::Red,
            false => Style::Plain,
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
fn page(rows: &[Row]) -> Vec<String> {
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
        let is = |row: &&Row| row.treatment.split(':').next() == Some(name);
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
            row.number,
            row.signature(),
            row.kind,
            row.treatment,
            row.note.replace('|', "\\|").replace('*', "\\*")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_treatment_has_a_meaning_and_every_call_a_row() {
        let rows = syscalls::list(&[], false).unwrap_or_default();
        assert!(!rows.is_empty());
        for row in &rows {
            let name = row.treatment.split(':').next();
            assert!(
                MEANINGS.iter().any(|(known, _)| Some(*known) == name),
                "{}",
                row.treatment
            );
        }
        let lines = page(&rows);
        let starts = |row: &Row| format!("| {} | `{}(", row.number, row.call);
        assert!(
            rows.iter()
                .map(starts)
                .all(|start| lines.iter().any(|l| l.starts_with(&start)))
        );
    }
}
