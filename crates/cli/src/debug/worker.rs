//! Who does what lines say: a thread with a prompt, which stays on it.
//!
//! There is one that may move the program, for as long as it is debugged, and one beside
//! it that looks while the first is busy.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::commands::Prompt;
use super::job::{Job, Outcome};
use super::meanwhile::Snapshot;
use super::screen;
use crate::failure::Failure;

/// What a worker is asked for.
pub enum Asked {
    Line(Arc<Job>),
    /// What the last word of a line may become, and where it begins.
    Words {
        typed: String,
        to: Sender<(usize, Vec<String>)>,
    },
}

/// What the console hears.
pub enum Heard {
    Over(Arc<Job>),
    /// Ctrl-C.
    Interrupted,
}

/// So long it is waited for words to be offered.
const OFFERED: Duration = Duration::from_secs(2);

/// A worker, from elsewhere.
#[derive(Clone)]
pub struct Worker(Sender<Asked>);

impl Worker {
    pub fn new() -> (Worker, Receiver<Asked>) {
        let (to, asked) = channel();
        (Worker(to), asked)
    }

    /// Starts one that looks where another one was.
    pub fn beside(snapshot: Snapshot, heard: Sender<Heard>) -> Result<Worker, Failure> {
        let (worker, asked) = Worker::new();
        std::thread::Builder::new()
            .name("looks".to_string())
            .spawn(move || match Prompt::beside(snapshot) {
                Ok(mut prompt) => work(&mut prompt, &asked, &heard),
                Err(failure) => refuse(&failure, &asked, &heard),
            })
            .map_err(|error| Failure::new(format!("cannot look meanwhile: {error}")))?;
        Ok(worker)
    }

    /// Has a line done. False: there is nobody who could.
    pub fn begin(&self, job: &Arc<Job>) -> bool {
        self.0.send(Asked::Line(Arc::clone(job))).is_ok()
    }

    /// What the last word of a line may become.
    pub fn words(&self, typed: &str) -> Option<(usize, Vec<String>)> {
        let (to, words) = channel();
        let typed = typed.to_string();
        self.0.send(Asked::Words { typed, to }).ok()?;
        words.recv_timeout(OFFERED).ok()
    }
}

/// Does what is asked for until nobody is there who could ask.
pub fn work(prompt: &mut Prompt, asked: &Receiver<Asked>, heard: &Sender<Heard>) {
    while let Ok(asked) = asked.recv() {
        let job = match asked {
            Asked::Line(job) => job,
            Asked::Words { typed, to } => {
                let _ = to.send(prompt.complete(&typed));
                continue;
            }
        };
        if !prompt.is_beside {
            job.begins_at(prompt.snapshot());
        }
        screen::belongs_to(Some(&job));
        let done = prompt.execute(&job);
        screen::belongs_to(None);
        over(&job, done, prompt.prompt(), heard);
    }
}

fn refuse(failure: &Failure, asked: &Receiver<Asked>, heard: &Sender<Heard>) {
    while let Ok(asked) = asked.recv() {
        if let Asked::Line(job) = asked {
            let failure = Failure::new(failure.words());
            over(&job, Err(failure), super::commands::PROMPT, heard);
        }
    }
}

fn over(
    job: &Arc<Job>,
    done: Result<super::commands::Next, Failure>,
    prompt: &'static str,
    heard: &Sender<Heard>,
) {
    job.ends(Outcome { done, prompt });
    let _ = heard.send(Heard::Over(Arc::clone(job)));
}
