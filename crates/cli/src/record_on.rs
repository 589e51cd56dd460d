//! `mw record --on`, `mw record --plan`: a program on several hosts.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hosts::Client;
use hosts::connect::{Connector, TLS};
use hosts::drive::{self, News, Outcome};
use hosts::plan::{self, Run};
use hosts::pull::{self, GOES_ON, Pull};
use recording::join::{self, Missing};

use crate::failure::{Failure, TROUBLE, remark};
use crate::join::Making;
use crate::output::{Output, Progress, command_line};
use crate::record::{self, Cmd, OnFull};
use crate::select;

pub fn run(cmd: Cmd) -> Result<ExitCode, Failure> {
    let mut runs = match &cmd.plan {
        Some(file) => plan::read(file)?,
        None => from_words(&cmd.on)?,
    };
    for run in &mut runs {
        run.job.outlives_full_disk = cmd.on_full == OnFull::Continue;
    }
    if cmd.check {
        return show(&runs);
    }
    // Before any thread is started.
    let signals = agent::listen()
        .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
    let names = join::member_names(runs.iter().map(|run| short(&run.host)));
    let dir = record::choose(cmd.output.clone(), &program(&runs))?;
    let clients = connect(&runs)?;
    let program = program(&runs);
    for client in &clients {
        client.claim(&program.to_string_lossy(), cmd.takes_over)?;
    }
    let outcomes = {
        let mut screen = Screen::new(&names, cmd.quiet);
        let outcomes = drive::drive(&runs, &clients, signals, |at, news| screen.show(at, news));
        screen.finish();
        outcomes
    };
    let status = status(&outcomes);
    let all = runs.iter().zip(names).zip(clients).zip(outcomes);
    let parts = all.map(|(((run, name), client), outcome)| Part {
        host: run.host.clone(),
        name,
        client,
        recording: match (outcome.recording, outcome.ended) {
            (Some(recording), Ok(_)) => Ok(recording),
            (Some(recording), Err(error)) => Err(unfetched(&error, &run.host, &recording)),
            (None, Err(error)) => Err(error.to_string()),
            (None, Ok(_)) => Err("nothing was recorded".to_string()),
        },
        copied: None,
    });
    match collect(&parts.collect::<Vec<Part>>(), &dir) {
        Ok(_) => Ok(ExitCode::from(status)),
        // Why a command could not be run, its own status says.
        Err(failure) if status != 0 => Err(failure.status(status)),
        Err(failure) => Err(failure),
    }
}

/// `HOST CMD HOST CMD ...`
pub fn from_words(words: &[String]) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for pair in words.chunks(2) {
        let [host, line] = pair else { continue };
        runs.push(Run {
            host: host.clone(),
            job: wire::Job {
                command: plan::command(line)?,
                ..wire::Job::default()
            },
            after: None,
        });
    }
    Ok(runs)
}

/// A host's name without who goes there, and how.
pub fn short(host: &str) -> &str {
    match host.strip_prefix(TLS) {
        Some(address) => address.split(':').next().unwrap_or(address),
        None => host.rsplit('@').next().unwrap_or(host),
    }
}

/// What a program is called: as the first of its commands.
pub fn program(runs: &[Run]) -> std::ffi::OsString {
    runs.first().map_or("program", base).into()
}

/// The name of the file that a command executes.
pub fn base(run: &Run) -> &str {
    let first = run.job.command.first();
    first.map_or("program", |word| word.rsplit('/').next().unwrap_or(word))
}

fn show(runs: &[Run]) -> Result<ExitCode, Failure> {
    let mut out = Output::new();
    for run in runs {
        let command = command_line(run.job.command.iter().map(String::as_bytes));
        out.line(&format!("{}: {command}", run.host))?;
        let directory = run
            .job
            .directory
            .as_deref()
            .unwrap_or("the home directory there");
        out.line(&format!("    in     {directory}"))?;
        for (name, value) in &run.job.environment {
            out.line(&format!("    with   {name}={value}"))?;
        }
        if let Some(after) = &run.after {
            let who: Vec<&str> = after
                .who
                .iter()
                .filter_map(|at| runs.get(*at))
                .map(|run| run.host.as_str())
                .collect();
            let who = who.join(" or ");
            out.line(&format!("    after  {who} says `{}`", after.says))?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// One connection for each command; nothing is started unless all are there.
pub fn connect(runs: &[Run]) -> Result<Vec<Client>, Failure> {
    let hosts: Vec<&str> = runs.iter().map(|run| run.host.as_str()).collect();
    connect_all(&hosts)
}

/// A connection for each host of a list, which may be named more than once.
pub fn connect_all(all: &[&str]) -> Result<Vec<Client>, Failure> {
    let connector = Connector::new(select::identity())?;
    let mut hosts = all.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    let clients = hosts::at_once(&hosts, |host| connector.connect(host));
    let found: Result<HashMap<&str, Client>, hosts::Error> = hosts
        .into_iter()
        .zip(clients)
        .map(|(host, client)| Ok((host, client?)))
        .collect();
    let found = found?;
    let own = |host: &&str| found.get(host).cloned();
    Ok(all.iter().filter_map(own).collect())
}

/// What is said on the hosts, with their names in front.
pub struct Screen {
    prefixes: Vec<String>,
    quiet: bool,
    /// What has been said since the last end of a line, by command and stream.
    begun: HashMap<(usize, bool), Vec<u8>>,
}

impl Screen {
    pub fn new(names: &[String], quiet: bool) -> Screen {
        let width = names.iter().map(|name| name.chars().count()).max();
        let width = width.unwrap_or(0);
        Screen {
            prefixes: names
                .iter()
                .map(|name| format!("{name:<width$} | "))
                .collect(),
            quiet,
            begun: HashMap::new(),
        }
    }

    fn show(&mut self, at: usize, news: News<'_>) {
        if let News::Output { is_error, bytes } = news {
            self.say(at, is_error, bytes);
        }
    }

    /// Shows the lines that are whole by now.
    pub fn say(&mut self, at: usize, is_error: bool, bytes: &[u8]) {
        if self.quiet {
            return;
        }
        let mut text = Vec::new();
        let prefix = self.prefixes.get(at).map_or("", String::as_str);
        let begun = self.begun.entry((at, is_error)).or_default();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                text.extend_from_slice(prefix.as_bytes());
                text.append(begun);
            }
        }
        write(is_error, &text);
    }

    /// Lines that were not ended.
    fn finish(&mut self) {
        let mut left: Vec<_> = std::mem::take(&mut self.begun).into_iter().collect();
        left.sort();
        for ((at, is_error), mut line) in left.into_iter().filter(|(_, line)| !line.is_empty()) {
            let prefix = self.prefixes.get(at).map_or("", String::as_str);
            let mut text = prefix.as_bytes().to_vec();
            text.append(&mut line);
            text.push(b'\n');
            write(is_error, &text);
        }
    }
}

/// Whoever read our output may have gone; the program goes on.
fn write(is_error: bool, text: &[u8]) {
    if is_error {
        let _ = std::io::stderr().write_all(text);
    } else {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text).and_then(|()| out.flush());
    }
}

/// That of the first that failed.
fn status(outcomes: &[Outcome]) -> u8 {
    let failed = outcomes
        .iter()
        .filter(|outcome| !matches!(outcome.ended, Ok(0)));
    failed
        .min_by_key(|outcome| outcome.place)
        .map_or(0, |outcome| match &outcome.ended {
            Ok(status) => u8::try_from(*status).unwrap_or(u8::MAX),
            Err(_) => TROUBLE,
        })
}

/// What is recorded of a program on one of its hosts.
pub struct Part {
    /// The host as it was named.
    pub host: String,
    /// What it is called in the program.
    pub name: String,
    pub client: Client,
    /// Its recording there; why there is none, otherwise.
    pub recording: Result<String, String>,
    /// Where there is a copy of it, perhaps not of all.
    pub copied: Option<PathBuf>,
}

/// What was not fetched can be: how.
fn unfetched(why: &dyn std::fmt::Display, host: &str, recording: &str) -> String {
    let name = recording.rsplit('/').next().unwrap_or(recording);
    format!("{why}; fetch it with `mw pull {host}:{name}`")
}

/// Fetches what was recorded and joins it. False: all of it goes on still.
pub fn collect(parts: &[Part], dir: &Path) -> Result<bool, Failure> {
    let mut making = Making::begin(dir)?;
    let mut pulls = Vec::new();
    let mut pulled = Vec::new();
    let mut missing = Vec::new();
    for part in parts {
        match &part.recording {
            Ok(recording) => {
                let to = making.member(&part.name);
                if let Some(copied) = &part.copied {
                    pull::begin_with(copied, &to);
                }
                pulls.push(Pull {
                    client: &part.client,
                    recording: recording.clone(),
                    to,
                });
                pulled.push((part, recording));
            }
            Err(why) => missing.push(Missing {
                name: part.name.clone(),
                why: why.clone(),
            }),
        }
    }
    let progress = Progress::bytes("collecting");
    let results = pull::all(&pulls, &|done, all| progress.set_of(done, all));
    drop(progress);
    let mut members = Vec::new();
    let mut goes_on = 0;
    for ((part, recording), result) in pulled.into_iter().zip(results) {
        let why = match result {
            Ok(()) => {
                members.push(part.name.clone());
                continue;
            }
            // It was let go.
            Err(hosts::Error::Refused { said, .. }) if said.ends_with(GOES_ON) => {
                goes_on += 1;
                pull::forget(&making.member(&part.name));
                unfetched(&said, &part.host, recording)
            }
            // A command that could not be run leaves none, and has said why.
            Err(hosts::Error::Refused { .. }) => "nothing was recorded there".to_string(),
            Err(error) => {
                let why = Failure::from(error).words();
                let why = why.lines().next().unwrap_or_default();
                unfetched(&why, &part.host, recording)
            }
        };
        missing.push(Missing {
            name: part.name.clone(),
            why,
        });
    }
    if members.is_empty() && goes_on == parts.len() {
        for Missing { name, why } in &missing {
            remark(format_args!("{name}: {why}"));
        }
        return Ok(false);
    }
    for missing in &missing {
        tell_missing(dir, missing);
    }
    if members.is_empty() {
        return Err(Failure::new("nothing was recorded on any host"));
    }
    making.keep();
    making.finish(members, missing)?;
    select::point_latest_at(dir);
    Ok(true)
}

fn tell_missing(dir: &Path, missing: &Missing) {
    let Missing { name, why } = missing;
    Failure::new(format!("{} lacks {name}: {why}", dir.display())).show();
}
