//! The result as a page: the table, what its columns mean, what is missing, and where it was made.

use std::fmt::Write;

use crate::outcome::{Row, Series, Verdict};
use crate::table::{Align, Column, Table, number};
use crate::unit::{Target, Unit};

pub struct Report {
    pub rows: Vec<Row>,
    /// Workloads not run: name and what they lack.
    pub skipped: Vec<(String, String)>,
    /// The command line that made this.
    pub command: String,
    pub rounds: u32,
    pub machine: Vec<(&'static str, String)>,
}

const LEGEND: &str = "\
- Each value is the median of the rounds; a round runs native, recorded and strace in this order.
- ratio: speed under `mw record` relative to native, 1.00 being the same; min..max: over the rounds.
- added: what recording adds, in the row's unit.
- strace: speed under `strace -f` relative to native.
";

impl Report {
    pub fn text(&self) -> String {
        let mut out = format!("{}\n{LEGEND}", self.table().text());
        self.write_skipped(&mut out);
        self.write_failures(&mut out);
        out.push('\n');
        self.write_machine(&mut out);
        out
    }

    /// Without a date: the page changes when the figures do.
    pub fn markdown(&self) -> String {
        let mut out = String::from("Written by the benchmark itself:\n\n");
        let _ = write!(out, "    {}\n\n", self.command);
        self.write_machine(&mut out);
        let _ = write!(out, "\n{}\n{LEGEND}", self.table().markdown());
        self.write_skipped(&mut out);
        self.write_failures(&mut out);
        out
    }

    fn write_machine(&self, out: &mut String) {
        for (name, value) in &self.machine {
            let _ = writeln!(out, "- {name}: {value}");
        }
        let _ = writeln!(out, "- rounds: {}", self.rounds);
    }

    fn table(&self) -> Table {
        let left = |title| Column {
            title,
            align: Align::Left,
        };
        let right = |title| Column {
            title,
            align: Align::Right,
        };
        let mut table = Table::new(vec![
            left("workload"),
            left("unit"),
            right("native"),
            right("recorded"),
            right("ratio"),
            right("min..max"),
            right("added"),
            right("strace"),
            right("target"),
            left("reached"),
        ]);
        for row in &self.rows {
            table.push(cells(row));
        }
        table
    }

    fn write_skipped(&self, out: &mut String) {
        if !self.skipped.is_empty() {
            out.push_str("\nSkipped for want of a program:\n\n");
        }
        for (name, lacks) in &self.skipped {
            let _ = writeln!(out, "- {name}: {lacks}");
        }
    }

    fn write_failures(&self, out: &mut String) {
        let failures = || {
            self.rows.iter().flat_map(|row| {
                [
                    ("native", &row.native),
                    ("recorded", &row.recorded),
                    ("strace", &row.strace),
                ]
                .into_iter()
                .filter_map(move |(setup, series)| {
                    let failure = series.failure.as_ref()?;
                    Some((&row.title, setup, failure))
                })
            })
        };
        if failures().next().is_some() {
            out.push_str("\nFailed:\n\n");
        }
        for (title, setup, failure) in failures() {
            let _ = writeln!(out, "- {title}, {setup}: {failure}");
        }
    }

    pub fn has_failures(&self) -> bool {
        let failed = |series: &Series| series.failure.is_some();
        self.rows
            .iter()
            .any(|row| failed(&row.native) || failed(&row.recorded) || failed(&row.strace))
    }
}

fn cells(row: &Row) -> Vec<String> {
    // Bytes of a log have no native side; for all else a recorded value is due.
    let only_recorded = row.unit == Unit::BytesPerEvent;
    let dash = || "-".to_string();
    let two_digits = |value: f64| format!("{value:.2}");
    vec![
        row.title.clone(),
        row.unit.name(),
        if only_recorded {
            dash()
        } else {
            value(&row.native)
        },
        value(&row.recorded),
        row.speed().map_or_else(dash, two_digits),
        row.speed_range()
            .map_or_else(dash, |range| format!("{:.2}..{:.2}", range.min, range.max)),
        row.added().map_or_else(dash, signed),
        row.strace_speed().map_or_else(dash, |speed| match speed {
            speed if speed < 0.1 => format!("{speed:.3}"),
            speed => two_digits(speed),
        }),
        target(row.target, row.unit),
        match row.verdict() {
            Verdict::Reached => "yes",
            Verdict::NotReached => "no",
            Verdict::Unknown => "n/a",
            Verdict::NoTarget => "-",
        }
        .into(),
    ]
}

fn value(series: &Series) -> String {
    match (&series.failure, series.median()) {
        (Some(_), _) => "failed".into(),
        (None, Some(median)) => number(median),
        (None, None) => "n/a".into(),
    }
}

fn signed(value: f64) -> String {
    match number(value.abs()) {
        text if value < 0.0 && text != "0.00" => format!("-{text}"),
        text => format!("+{text}"),
    }
}

fn target(target: Target, unit: Unit) -> String {
    match target {
        Target::None => "-".into(),
        Target::Speed(least) => format!(">= {least:.2}"),
        Target::Added(most) => format!("<= +{most} {}", unit.name()),
        Target::AtMost(most) => format!("<= {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut redis = Row::new(
            "redis GET",
            Unit::PerSecond("requests"),
            Target::Speed(0.85),
        );
        redis.native.values = vec![100_000.0, 101_000.0, 99_000.0];
        redis.recorded.values = vec![90_000.0, 80_000.0, 91_000.0];
        redis.strace.values = vec![4_000.0];
        let mut call = Row::new("getppid", Unit::Nanoseconds, Target::Added(250.0));
        call.native.values = vec![120.0];
        call.recorded.values = vec![400.0];
        let log = Row::new("log", Unit::BytesPerEvent, Target::AtMost(24.0));
        let mut gcc = Row::new("gcc", Unit::Milliseconds, Target::None);
        gcc.native.values = vec![512.4];
        gcc.recorded.failure = Some("mw failed (signal: 11)".into());
        Report {
            rows: vec![redis, call, log, gcc],
            skipped: vec![("nginx".into(), "wrk (Debian package wrk)".into())],
            command: "cargo run --release -p bench -- --quick".into(),
            rounds: 3,
            machine: vec![("cores", "2".into())],
        }
    }

    #[test]
    fn the_table_for_a_terminal() {
        let expected = "\
workload   unit          native  recorded  ratio    min..max  added  strace      target  reached
redis GET  requests/s   100,000    90,000   0.90  0.79..0.92      -   0.040     >= 0.85  yes
getppid    ns               120       400   0.30  0.30..0.30   +280       -  <= +250 ns  no
log        bytes/event        -       n/a      -           -      -       -       <= 24  n/a
gcc        ms               512    failed      -           -      -       -           -  -
";
        let text = report().text();
        let table: String = text
            .lines()
            .take(5)
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(table, expected);
        assert!(text.contains("- nginx: wrk (Debian package wrk)\n"));
        assert!(text.contains("- gcc, recorded: mw failed (signal: 11)\n"));
    }

    #[test]
    fn a_sign_always_but_never_of_nothing() {
        assert_eq!(signed(280.0), "+280");
        assert_eq!(signed(-3.5), "-3.50");
        assert_eq!(signed(-0.001), "+0.00");
    }

    #[test]
    fn the_page_says_how_and_where_it_was_made() {
        let page = report().markdown();
        assert!(page.contains("    cargo run --release -p bench -- --quick\n"));
        assert!(page.contains("- cores: 2\n- rounds: 3\n"));
        assert!(page.contains("| redis GET |"));
        assert!(report().has_failures());
    }
}
