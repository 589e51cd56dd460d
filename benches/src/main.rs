//! `mw-bench`: what recording costs.
//!
//! Runs each workload natively, under `mw record` and under `strace -f`, interleaved in one run so
//! that a noisy machine disturbs all three alike, and prints one table. It installs nothing, listens
//! on 127.0.0.1 only, and ends only what it started.
//!
//! The way of the data: [`workloads`] says what to measure; [`bench`] goes through the rounds;
//! [`server`], [`load`] and [`program`] run things under a [`setup`]; an [`outcome`] is a row of
//! values and what follows from them; [`report`] and [`table`] print it.

mod bench;
mod cargo;
mod conditions;
mod debug;
mod hosts;
mod live;
mod load;
mod machine;
mod memcached;
mod noise;
mod outcome;
mod process;
mod program;
mod replay;
mod report;
mod scratch;
mod server;
mod setup;
mod stats;
mod table;
mod tools;
mod unit;
mod workloads;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::bench::Bench;
use crate::noise::Noise;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::setup::{CommandLine, Launcher, Setup};
use crate::workloads::{WORKLOADS, Workload};

/// Measures what recording costs: each workload natively, under `mw record`, under `strace -f`.
#[derive(Parser)]
#[command(name = "mw-bench")]
struct Options {
    /// Run only these workloads (see --list)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// How often each setup of a workload runs [default: 9, quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Smaller sizes and fewer rounds: a rough look in about a minute
    #[arg(long)]
    quick: bool,
    /// Also write the result as a page of Markdown
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The `mw` to measure [default: the one beside this program, or on the PATH]
    #[arg(long, value_name = "PATH")]
    mw: Option<PathBuf>,
    /// Leave strace out
    #[arg(long)]
    no_strace: bool,
    /// Under `cargo run`: measure what is built already
    #[arg(long)]
    no_build: bool,
    /// Put recordings and all else below this directory [default: the one for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure replaying instead: against the recording, and against the native run
    #[arg(long)]
    replay: bool,
    /// Measure the debugger's prompt instead: opening, steps, conditions
    #[arg(long)]
    debug: bool,
    /// Measure several hosts instead: recording there, fetching, starting on many, joining
    #[arg(long)]
    hosts: bool,
    /// Measure programs under the debugger while they run instead: joined, halted, stopped
    #[arg(long)]
    live: bool,
    /// Only make recordings of ten hosts there, with so many events
    #[arg(long, hide = true, num_args = 2, value_names = ["DIR", "EVENTS"])]
    make_hosts: Vec<String>,
    /// Measure conditions over variables instead: against the plain replay
    #[arg(long)]
    conditions: bool,
    /// List the workloads and what they need
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        list();
        return ExitCode::SUCCESS;
    }
    if let [dir, events] = options.make_hosts.as_slice() {
        hosts::make(Path::new(dir), events.parse().unwrap_or(0));
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(_) if process::interrupted() => ExitCode::from(130),
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mw-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn list() {
    for workload in WORKLOADS {
        let lacks = tools::missing(workload.tools);
        let lacks = lacks.map_or_else(String::new, |lacks| format!("  (missing: {lacks})"));
        println!("{:<15} {}{lacks}", workload.name, workload.title);
    }
}

/// True if everything that was run could be measured, whether or not it reached its target.
fn run(options: &Options) -> Result<bool> {
    let selected = select(&options.only)?;
    if let Some(parent) = options.write.as_deref().and_then(Path::parent) {
        // Now, not after minutes of measuring.
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    let programs = cargo::programs_directory()?;
    if !options.no_build {
        cargo::build(&programs)?;
    }
    process::adopt_orphans();
    process::watch_for_interrupt();
    let scratch = Scratch::new(options.dir.as_deref())?;
    let launcher = launcher(options, &programs, &scratch)?;
    let bench = Bench {
        launcher,
        scratch,
        programs,
        rounds: options.rounds.unwrap_or(if options.quick { 3 } else { 9 }),
        quick: options.quick,
    };
    let noise = Noise::start();
    if options.replay || options.debug || options.conditions || options.hosts || options.live {
        let mw = &bench.launcher.mw;
        let (title, figures) = if options.debug {
            ("# What the debugger costs", debug::measure(&bench, mw)?)
        } else if options.hosts {
            ("# What several hosts cost", hosts::measure(&bench, mw)?)
        } else if options.live {
            let figures = live::measure(&bench, mw)?;
            ("# What the debugger costs a program that runs", figures)
        } else if options.conditions {
            let figures = conditions::measure(&bench, mw)?;
            ("# What conditions over variables cost", figures)
        } else {
            ("# What replaying costs", replay::measure(&bench, mw)?)
        };
        let reached = replay::print(&figures);
        let mut machine = machine::facts(bench.scratch.path());
        machine.push(("other load", noise.describe()));
        println!("other load: {}", noise.describe());
        if let Some(file) = &options.write {
            let command = cargo::command_line(&bench.programs);
            write_part(file, title, &replay::markdown(&figures, &command, &machine))?;
        }
        return Ok(reached);
    }
    let mut report = Report {
        rows: Vec::new(),
        skipped: Vec::new(),
        command: cargo::command_line(&bench.programs),
        rounds: bench.rounds,
        machine: machine::facts(bench.scratch.path()),
    };
    for workload in selected {
        if process::interrupted() {
            return Ok(false);
        }
        match tools::missing(workload.tools) {
            Some(lacks) => report.skipped.push((workload.name.into(), lacks)),
            None => report.rows.extend(bench.measure(workload)),
        }
    }
    if process::interrupted() {
        return Ok(false);
    }
    report.machine.push(("other load", noise.describe()));
    print!("{}", report.text());
    if let Some(file) = &options.write {
        write_part(file, "# What recording costs", &report.markdown())?;
    }
    Ok(!report.has_failures())
}

/// Puts a part into a file, see [`with_part`].
fn write_part(file: &Path, title: &str, text: &str) -> Result<()> {
    let page = fs::read_to_string(file).unwrap_or_default();
    fs::write(file, with_part(&page, title, text))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// A page with a part in place of the one with the same title: each kind of
/// benchmark writes its own.
fn with_part(page: &str, title: &str, text: &str) -> String {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for line in page.lines() {
        match parts.last_mut() {
            Some((_, lines)) if !line.starts_with("# ") => *lines += &format!("{line}\n"),
            _ => parts.push((line, String::new())),
        }
    }
    match parts.iter_mut().find(|(known, _)| *known == title) {
        Some((_, lines)) => *lines = text.to_string(),
        None => parts.push((title, text.to_string())),
    }
    let parts = parts.iter();
    let parts: Vec<String> = parts
        .map(|(title, lines)| format!("{title}\n\n{}\n", lines.trim()))
        .collect();
    parts.join("\n")
}

fn select(only: &[String]) -> Result<Vec<&'static Workload>> {
    let known = |name: &String| WORKLOADS.iter().any(|workload| workload.name == name);
    if let Some(name) = only.iter().find(|name| !known(name)) {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        bail!("no workload {name:?}; there are {}", names.join(", "));
    }
    let wanted = |workload: &&Workload| only.is_empty() || only.iter().any(|n| n == workload.name);
    Ok(WORKLOADS.iter().filter(wanted).collect())
}

/// Finds `mw` and strace, and tries both on /bin/true.
fn launcher(options: &Options, programs: &Path, scratch: &Scratch) -> Result<Launcher> {
    let mw = match &options.mw {
        Some(mw) => Some(mw.canonicalize().context(format!("{}", mw.display()))?),
        None => Some(programs.join("mw"))
            .filter(|mw| tools::is_executable(mw))
            .or_else(|| tools::find("mw")),
    };
    let mw = mw.context("there is no mw: build it (cargo build --release) or say --mw PATH")?;
    let mut launcher = Launcher {
        mw,
        strace: tools::STRACE.find().filter(|_| !options.no_strace),
        data_home: scratch.path().join("data"),
    };
    let try_out = |setup| {
        let line = CommandLine::new("/bin/true", [""; 0]);
        let recording = scratch.fresh("recording");
        let mut command = launcher.command(setup, &line, recording.path());
        process::run(&mut command, scratch, Duration::from_secs(30))
    };
    try_out(Setup::Recorded).context("cannot record even /bin/true")?;
    eprintln!("mw: {}", launcher.mw.display());
    match &launcher.strace {
        None if options.no_strace => {}
        None => eprintln!("strace: missing (Debian package {})", tools::STRACE.package),
        Some(_) => {
            if let Err(error) = try_out(Setup::Strace) {
                eprintln!("strace: left out, {error:#}");
                launcher.strace = None;
            }
        }
    }
    Ok(launcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_benchmark_writes_its_part() {
        let page = with_part("", "# One", "a\n\n- b\n");
        let page = with_part(&page, "# Two", "c");
        assert_eq!(page, "# One\n\na\n\n- b\n\n# Two\n\nc\n");
        let page = with_part(&page, "# One", "    d");
        assert_eq!(page, "# One\n\nd\n\n# Two\n\nc\n");
    }
}
