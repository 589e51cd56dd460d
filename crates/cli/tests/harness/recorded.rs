//! A recording that was made, seen through the commands.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde_json::Value;

use super::MW;
use super::event::Event;

/// How a run ended.
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
    /// The command that was run.
    pub line: String,
}

impl Outcome {
    /// As a shell tells it.
    pub fn code(&self) -> i32 {
        shell_status(self.status)
    }
}

pub fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

pub struct Recorded {
    pub dir: PathBuf,
    pub outcome: Outcome,
    processes: OnceCell<Vec<Process>>,
    events: OnceCell<Vec<Event>>,
    info: OnceCell<Value>,
}

/// A line of `mw ps --json`.
pub struct Process(Value);

impl Process {
    pub fn name(&self) -> &str {
        self.0["process"].as_str().unwrap()
    }

    pub fn parent(&self) -> Option<&str> {
        self.0["parent"].as_str()
    }

    pub fn command(&self) -> Vec<&str> {
        let words = self.0["command"].as_array().unwrap();
        words.iter().map(|word| word.as_str().unwrap()).collect()
    }

    pub fn number(&self, key: &str) -> u64 {
        self.0[key].as_u64().unwrap()
    }

    pub fn pid(&self) -> u64 {
        self.number("pid")
    }

    /// First, fork or vfork.
    pub fn began(&self) -> &str {
        self.0["began"].as_str().unwrap()
    }

    /// The status as a shell tells it, None if it is not known.
    pub fn status(&self) -> Option<i64> {
        self.0["status"].as_i64()
    }

    pub fn signal(&self) -> Option<&str> {
        self.0["signal"].as_str()
    }

    pub fn parent_event(&self) -> Option<&str> {
        self.0["parent_event"].as_str()
    }
}

impl Recorded {
    pub fn new(dir: PathBuf, outcome: Outcome) -> Recorded {
        Recorded {
            dir,
            outcome,
            processes: OnceCell::new(),
            events: OnceCell::new(),
            info: OnceCell::new(),
        }
    }

    /// The output of a command on this recording, which must succeed and have
    /// nothing to complain about.
    pub fn ask(&self, args: &[&str]) -> String {
        ask(&self.dir, args)
    }

    /// `mw ps`.
    pub fn processes(&self) -> &[Process] {
        self.processes.get_or_init(|| {
            objects(&self.ask(&["ps", "--json"]))
                .into_iter()
                .map(Process)
                .collect()
        })
    }

    /// `mw events`.
    pub fn events(&self) -> &[Event] {
        self.events.get_or_init(|| {
            objects(&self.ask(&["events", "--json"]))
                .into_iter()
                .map(Event::new)
                .collect()
        })
    }

    /// `mw info`.
    pub fn info(&self) -> &Value {
        self.info.get_or_init(|| {
            let mut found = objects(&self.ask(&["info", "--json"]));
            assert_eq!(found.len(), 1);
            found.remove(0)
        })
    }

    pub fn process(&self, name: &str) -> &Process {
        let mut all = self.processes().iter();
        all.find(|process| process.name() == name)
            .unwrap_or_else(|| panic!("there is no process {name}:\n{}", self.ask(&["ps"])))
    }

    /// What `mw info` says was refused or not recorded.
    pub fn notes(&self) -> String {
        self.info()["notes"].to_string()
    }

    /// The events that are so.
    pub fn all<'r>(&'r self, is: impl Fn(&Event) -> bool + 'r) -> impl Iterator<Item = &'r Event> {
        self.events().iter().filter(move |event| is(event))
    }

    pub fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.all(is).count()
    }

    /// The first event that is so. There must be one.
    pub fn find(&self, what: &str, is: impl Fn(&Event) -> bool) -> &Event {
        let mut all = self.events().iter();
        all.find(|event| is(event))
            .unwrap_or_else(|| panic!("there is no event: {what}"))
    }

    /// There must be an event that is so.
    pub fn has(&self, what: &str, is: impl Fn(&Event) -> bool) {
        self.find(what, is);
    }

    /// There must be this many events that are so, at least.
    pub fn has_many(&self, least: usize, what: &str, is: impl Fn(&Event) -> bool) {
        let count = self.count(is);
        assert!(
            count >= least,
            "{count} events, not at least {least}: {what}"
        );
    }

    /// There must be calls of this name that returned without an error.
    pub fn calls(&self, names: &[&str]) {
        for name in names {
            self.has(&format!("a {name} that succeeded"), |event| {
                event.call() == *name && event.succeeded()
            });
        }
    }

    /// How many processes ended so, as a shell tells it.
    pub fn ended_with(&self, status: i64) -> usize {
        let ended = self.processes().iter();
        ended.filter(|p| p.status() == Some(status)).count()
    }

    /// The number of threads of each process, by its name.
    pub fn threads(&self) -> HashMap<&str, usize> {
        let mut threads: HashMap<&str, std::collections::HashSet<&str>> = HashMap::new();
        for event in self.events() {
            threads
                .entry(event.process())
                .or_default()
                .insert(event.thread());
        }
        threads
            .into_iter()
            .map(|(name, threads)| (name, threads.len()))
            .collect()
    }

    /// Bytes that these calls moved, in whole.
    pub fn bytes(&self, is: impl Fn(&Event) -> bool) -> u64 {
        self.all(is)
            .filter_map(Event::result)
            .filter_map(|result| u64::try_from(result).ok())
            .sum()
    }
}

/// Runs a command on a recording. It must succeed.
pub fn ask(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(MW).args(args).arg(dir).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{MW} {} {}: {}\n{errors}",
        args.join(" "),
        dir.display(),
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}
