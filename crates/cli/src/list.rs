//! `mw list`: the recordings that there are.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use recording::Manifest;
use recording::listing::{self, Listed, State};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, Style, age, bytes, command_line, cut, now_ns, seconds};
use crate::select;

/// Show the recordings: what was run, when, for how long, how it ended, and what
/// it takes on the disk.
///
/// The oldest comes first. Every command takes a name from this list, or its
/// beginning, with `-r`.
#[derive(clap::Args)]
pub struct Cmd {
    /// Where to look [default: where `mw record` puts them]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recordings = match &self.dir {
            Some(dir) => in_directory(dir)?,
            None => kept()?,
        };
        let mut out = Output::new();
        if self.json {
            for listed in &recordings {
                out.line(&object(listed).to_string())?;
            }
        } else {
            table(&recordings, &mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The recordings where `mw record` puts them; and the latest, wherever that is.
fn kept() -> Result<Vec<Listed>, Failure> {
    let Some(home) = select::home() else {
        return Ok(Vec::new());
    };
    let mut found = match home.exists() {
        true => in_directory(&home)?,
        false => Vec::new(),
    };
    let latest = std::fs::canonicalize(home.join("latest"));
    if let Some(path) = latest.ok().filter(|path| path.parent() != Some(&home))
        && let Ok(mut listed) = Listed::read(&path)
        && !found.iter().any(|other| is_same(&other.path, &path))
    {
        listed.name = path.to_string_lossy().into_owned();
        found.push(listed);
    }
    Ok(found)
}

fn is_same(a: &Path, b: &Path) -> bool {
    std::fs::canonicalize(a).is_ok_and(|a| a == b)
}

/// The recordings in a directory, which must be there.
pub fn in_directory(dir: &Path) -> Result<Vec<Listed>, Failure> {
    listing::list(dir).map_err(|error| {
        Failure::new(format!("cannot list {}: {error}", dir.display()))
            .hint("name the directory that recordings are in")
    })
}

fn state(listed: &Listed) -> &'static str {
    match listed.state {
        State::Complete => "complete",
        State::EndedEarly => "ended early",
        State::BeingRecorded => "recording",
        State::CutShort => "cut short",
    }
}

fn object(listed: &Listed) -> serde_json::Value {
    let hosts: Vec<&str> = listed
        .members
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    json!({
        "recording": listed.name,
        "path": listed.path.to_string_lossy(),
        "command": listed.manifest.command,
        "hosts": hosts,
        "cwd": listed.manifest.cwd,
        "started_ns": listed.manifest.started_ns,
        "duration_ns": listed.duration_ns,
        "exit": listed.end.as_ref().map(|end| end.exit_status),
        "state": state(listed),
        "bytes": listed.size,
    })
}

fn table(recordings: &[Listed], out: &mut Output) -> Result<(), Failure> {
    if recordings.is_empty() {
        out.line("there are no recordings; `mw record CMD` makes one")?;
        return Ok(());
    }
    let now = now_ns();
    let heading = ["RECORDING", "WHEN", "LASTED", "EXIT", "SIZE"].map(String::from);
    let mut rows = vec![heading];
    rows.extend(recordings.iter().map(|listed| row(listed, now)));
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let commands = recordings.iter().map(ran);
    let commands = std::iter::once("COMMAND".to_string()).chain(commands);
    let states = std::iter::once(None).chain(recordings.iter().map(|listed| Some(listed.state)));
    let room = out.width().map(|width| {
        let taken: usize = widths.iter().map(|width| width + 2).sum();
        width.saturating_sub(taken).max(10)
    });
    for ((cells, command), state) in rows.iter().zip(commands).zip(states) {
        let [name, when, lasted, exit, size] = cells;
        let [w0, w1, w2, w3, w4] = widths;
        let command = room.map_or(command.clone(), |room| cut(&command, room));
        let style = match state {
            None => Style::Bold,
            Some(State::Complete) => Style::Plain,
            Some(State::BeingRecorded) => Style::Cyan,
            Some(State::EndedEarly | State::CutShort) => Style::Yellow,
        };
        let line =
            format!("{name:w0$}  {when:>w1$}  {lasted:>w2$}  {exit:>w3$}  {size:>w4$}  {command}");
        out.line(&out.paint(style, &line))?;
    }
    let together = bytes(listing::size_together(recordings));
    let count = match recordings.len() {
        1 => "1 recording".to_string(),
        count => format!("{count} recordings"),
    };
    out.line(&out.paint(Style::Dim, &format!("{count}, {together} together")))?;
    Ok(())
}

/// What was run; on several hosts, what on each.
fn ran(listed: &Listed) -> String {
    let line = |manifest: &Manifest| {
        let words = manifest.command.iter();
        command_line(words.map(|word| word.as_bytes()))
    };
    if listed.members.is_empty() {
        return line(&listed.manifest);
    }
    let all: Vec<String> = listed
        .members
        .iter()
        .map(|(name, manifest)| format!("{name}: {}", line(manifest)))
        .collect();
    all.join("; ")
}

fn row(listed: &Listed, now: u64) -> [String; 5] {
    let exit = match (&listed.end, listed.state) {
        (Some(end), State::Complete) => end.exit_status.to_string(),
        _ => state(listed).to_string(),
    };
    [
        listed.name.clone(),
        age(now.saturating_sub(listed.manifest.started_ns)),
        seconds(listed.duration_ns),
        exit,
        bytes(listed.size),
    ]
}
