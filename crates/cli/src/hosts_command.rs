//! `mw hosts check`: whether hosts can be recorded on.

use std::process::ExitCode;

use hosts::ssh::{self, Binary};

use crate::failure::Failure;
use crate::output::{Output, Style, bytes};

/// See whether programs can be recorded on other hosts.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Check(Check),
}

/// Connect to each host, record something small there, and say what was found.
#[derive(clap::Args)]
struct Check {
    /// The hosts, as ssh understands them
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// What was found out about a host.
#[derive(serde::Serialize)]
struct Row {
    host: String,
    ok: bool,
    /// Why nothing can be recorded there.
    trouble: Option<String>,
    version: Option<String>,
    kernel: Option<String>,
    cpu: Option<String>,
    user: Option<String>,
    disk_free_bytes: Option<u64>,
    recordings: Option<String>,
    /// How far its clock is ahead of ours, and how far that may be wrong.
    clock_ahead_ns: Option<i64>,
    clock_within_ns: Option<u64>,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let Command::Check(check) = self.command;
        check.run()
    }
}

impl Check {
    fn run(self) -> Result<ExitCode, Failure> {
        let binary = Binary::own()?;
        let here = recording::cpu_model();
        let rows: Vec<Row> = std::thread::scope(|scope| {
            let binary = &binary;
            let asked: Vec<_> = self
                .hosts
                .iter()
                .map(|host| (host, scope.spawn(move || look(host, binary))))
                .collect();
            let rows = asked.into_iter().map(|(host, thread)| match thread.join() {
                Ok(row) => row,
                Err(_) => failed(host, "it could not be asked".to_string()),
            });
            rows.collect()
        });
        let mut out = Output::new();
        for row in &rows {
            if self.json {
                out.json(row)?;
            } else {
                print(row, here.as_deref(), &mut out)?;
            }
        }
        out.finish()?;
        let ok = rows.iter().all(|row| row.ok);
        Ok(ExitCode::from(if ok { 0 } else { crate::failure::TROUBLE }))
    }
}

fn failed(host: &str, trouble: String) -> Row {
    Row {
        host: host.to_string(),
        ok: false,
        trouble: Some(trouble),
        version: None,
        kernel: None,
        cpu: None,
        user: None,
        disk_free_bytes: None,
        recordings: None,
        clock_ahead_ns: None,
        clock_within_ns: None,
    }
}

fn look(host: &str, binary: &Binary) -> Row {
    let found =
        ssh::connect(host, binary).and_then(|client| Ok((client.facts()?, client.clock_offset()?)));
    let (facts, (ahead, within)) = match found {
        Ok(found) => found,
        Err(error) => {
            // The host is named in front of it already.
            let text = Failure::from(error).words();
            let text = text.lines().next().unwrap_or_default().to_string();
            return failed(host, text);
        }
    };
    Row {
        host: host.to_string(),
        ok: facts.obstacle.is_none(),
        trouble: facts.obstacle,
        version: Some(facts.version),
        kernel: Some(facts.kernel),
        cpu: Some(facts.cpu),
        user: Some(facts.user),
        disk_free_bytes: Some(facts.disk_free),
        recordings: Some(facts.home),
        clock_ahead_ns: Some(ahead),
        clock_within_ns: Some(within),
    }
}

fn print(row: &Row, here: Option<&str>, out: &mut Output) -> Result<(), Failure> {
    let verdict = match &row.trouble {
        None => out.paint(Style::Bold, "can be recorded on"),
        Some(trouble) => out.paint(Style::Red, trouble),
    };
    out.line(&format!("{}: {verdict}", row.host))?;
    let mut lines = Vec::new();
    if let (Some(kernel), Some(user)) = (&row.kernel, &row.user) {
        lines.push(("kernel", kernel.clone()));
        lines.push(("user", user.clone()));
    }
    if let Some(cpu) = &row.cpu {
        let other = here.is_some_and(|here| here != cpu);
        let note = if other {
            ": not that of this host, on which a recording may not replay"
        } else {
            ""
        };
        lines.push(("cpu", format!("{cpu}{note}")));
    }
    if let (Some(free), Some(home)) = (row.disk_free_bytes, &row.recordings) {
        lines.push(("disk", format!("{} free for {home}", bytes(free))));
    }
    if let (Some(ahead), Some(within)) = (row.clock_ahead_ns, row.clock_within_ns) {
        let way = if ahead < 0 { "behind" } else { "ahead" };
        let ms = |ns: u64| ns as f64 / 1e6;
        let text = format!(
            "{:.3} ms {way}, give or take {:.3}",
            ms(ahead.unsigned_abs()),
            ms(within)
        );
        lines.push(("clock", text));
    }
    for (label, text) in lines {
        out.line(&format!("    {label:<7} {text}"))?;
    }
    Ok(())
}
