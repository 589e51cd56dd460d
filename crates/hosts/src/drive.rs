//! Runs a program on its hosts, from the first start to the last end.

use std::sync::mpsc::{self, Receiver, Sender};

use wire::{Answer, Id, Request, Whom};

use crate::Error;
use crate::client::Client;
use crate::plan::Run;

/// How it went with one of the commands.
pub struct Outcome {
    /// Name of the recording on its host, if it came to one.
    pub recording: Option<String>,
    /// How the program ended, in the shell's way of telling, or why that is
    /// not known.
    pub ended: Result<i32, Error>,
    /// Its place in the order of ends.
    pub place: usize,
}

/// Something that whoever watches wants to know.
pub enum News<'a> {
    /// A command was started.
    Started,
    /// It said something.
    Output {
        /// On its standard error.
        is_error: bool,
        /// What.
        bytes: &'a [u8],
    },
    /// It has ended, in the shell's way of telling.
    Ended(i32),
}

enum Told {
    Started(usize, Id, String),
    Output(usize, bool, Vec<u8>),
    Ended(usize, Result<i32, Error>),
    Signal(i32),
}

/// What one command has said on one stream since the last line's end.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    /// Hands out the lines that are complete now. One that is too long counts
    /// as several.
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        const LONG: usize = 64 << 10;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.0.len() > LONG {
                each(&String::from_utf8_lossy(&self.0));
                self.0.clear();
            }
        }
    }
}

struct One {
    started: bool,
    run: Option<Id>,
    recording: Option<String>,
    ended: Option<(usize, Result<i32, Error>)>,
    lines: [Line; 2],
    awaited: Option<regex::Regex>,
}

/// Runs all commands, each by its client, until all have ended. Signals are
/// passed on: the first interrupt to those in the foreground, the second ends
/// everything.
pub fn drive(
    runs: &[Run],
    clients: &[Client],
    signals: Receiver<i32>,
    mut watch: impl FnMut(usize, News<'_>),
) -> Vec<Outcome> {
    let (sender, told) = mpsc::channel();
    let forward = sender.clone();
    // It ends with the process: there is nobody to tell then.
    let _ = std::thread::Builder::new().spawn(move || {
        while let Ok(signal) = signals.recv() {
            if forward.send(Told::Signal(signal)).is_err() {
                return;
            }
        }
    });
    let mut all: Vec<One> = runs
        .iter()
        .map(|run| One {
            started: false,
            run: None,
            recording: None,
            ended: None,
            lines: Default::default(),
            awaited: run
                .after
                .as_ref()
                .and_then(|a| regex::Regex::new(&a.says).ok()),
        })
        .collect();
    let start = |at: usize, all: &mut Vec<One>, sender: &Sender<Told>| {
        let (Some(run), Some(client), Some(one)) = (runs.get(at), clients.get(at), all.get_mut(at))
        else {
            return;
        };
        if std::mem::replace(&mut one.started, true) {
            return;
        }
        let (client, job, own) = (client.clone(), run.job.clone(), sender.clone());
        let follow = move || {
            let ended = follow(at, &client, Request::Record(job), &own);
            let _ = own.send(Told::Ended(at, ended));
        };
        if let Err(error) = std::thread::Builder::new().spawn(follow) {
            let lost = Error::Lost {
                host: run.host.clone(),
                said: format!("cannot start a thread: {error}"),
            };
            let _ = sender.send(Told::Ended(at, Err(lost)));
        }
    };
    for (at, run) in runs.iter().enumerate() {
        if run.after.is_none() {
            start(at, &mut all, &sender);
        }
    }
    let mut interrupts = 0;
    let mut ends = 0;
    while all.iter().any(|one| one.started && one.ended.is_none()) {
        let Ok(news) = told.recv() else { break };
        match news {
            Told::Started(at, id, recording) => {
                if let Some(one) = all.get_mut(at) {
                    one.run = Some(id);
                    one.recording = Some(recording);
                }
                watch(at, News::Started);
            }
            Told::Output(at, is_error, bytes) => {
                watch(
                    at,
                    News::Output {
                        is_error,
                        bytes: &bytes,
                    },
                );
                for waiting in heard(runs, &mut all, at, is_error, &bytes) {
                    start(waiting, &mut all, &sender);
                }
            }
            Told::Ended(at, ended) => {
                let failed_to_run = ended.is_err();
                if let Ok(status) = &ended {
                    watch(at, News::Ended(*status));
                }
                let never_ran = all.get(at).is_some_and(|one| one.run.is_none());
                if let Some(one) = all.get_mut(at) {
                    one.ended = Some((ends, ended));
                    one.run = None;
                }
                ends += 1;
                // Without one of them it is not the program that was meant.
                if failed_to_run && never_ran {
                    pass_on(&all, clients, SIGTERM, Whom::All);
                }
            }
            Told::Signal(signal) => {
                interrupts += u32::from(signal == SIGINT);
                match (signal, interrupts) {
                    (SIGINT, 1) => pass_on(&all, clients, SIGINT, Whom::Foreground),
                    (SIGINT, _) => pass_on(&all, clients, SIGKILL, Whom::All),
                    (other, _) => pass_on(&all, clients, other, Whom::Foreground),
                }
                // What waits for somebody to say something is not started now.
                for one in &mut all {
                    one.awaited = None;
                }
            }
        }
    }
    let outcomes = all.into_iter().zip(runs).map(|(one, run)| {
        let (place, ended) = one.ended.unwrap_or_else(|| {
            let never = Error::Refused {
                host: run.host.clone(),
                said: "never started: nobody said what it waits for".to_string(),
            };
            (usize::MAX, Err(never))
        });
        Outcome {
            recording: one.recording,
            ended,
            place,
        }
    });
    outcomes.collect()
}

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

fn pass_on(all: &[One], clients: &[Client], signal: i32, to: Whom) {
    for (one, client) in all.iter().zip(clients) {
        if let Some(run) = one.run {
            // A connection that is lost is noticed by who follows it.
            let _ = client.signal(run, signal, to);
        }
    }
}

/// Which runs waited for what was just said.
fn heard(runs: &[Run], all: &mut [One], at: usize, is_error: bool, bytes: &[u8]) -> Vec<usize> {
    let waits = |(own, run): (usize, &Run)| {
        let one = all.get(own)?;
        let pattern = one.awaited.clone().filter(|_| !one.started)?;
        let meant = run
            .after
            .as_ref()
            .is_some_and(|after| after.who.contains(&at));
        meant.then_some((own, pattern))
    };
    let waiting: Vec<(usize, regex::Regex)> = runs.iter().enumerate().filter_map(waits).collect();
    let mut found = Vec::new();
    let line = all
        .get_mut(at)
        .and_then(|one| one.lines.get_mut(usize::from(is_error)));
    if let Some(line) = line.filter(|_| !waiting.is_empty()) {
        line.take(bytes, |line| {
            for (own, pattern) in &waiting {
                if pattern.is_match(line) && !found.contains(own) {
                    found.push(*own);
                }
            }
        });
    }
    found
}

/// Starts one and tells what comes of it.
fn follow(at: usize, client: &Client, request: Request, to: &Sender<Told>) -> Result<i32, Error> {
    let mut answers = client.ask(request)?;
    let id = answers.id();
    let mut status = None;
    while let Some(answer) = answers.receive()? {
        let told = match answer {
            Answer::Started { recording, .. } => Told::Started(at, id, recording),
            Answer::Output { is_error, bytes } => Told::Output(at, is_error, bytes),
            Answer::Ended { status: ended } => {
                status = Some(ended);
                continue;
            }
            _ => continue,
        };
        if to.send(told).is_err() {
            break;
        }
    }
    status.ok_or_else(|| Error::Lost {
        host: client.host().to_string(),
        said: "it was not told how the program ended".to_string(),
    })
}
