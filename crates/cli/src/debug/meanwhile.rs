//! A prompt beside the one that is busy: it looks at what stands meanwhile.
//!
//! While a recorded program is moved everybody is where the motion began until it is
//! decided where they go, and can be looked at there, by processes of its own. A program
//! that is alive runs meanwhile: its agent can be asked, and what is known of it.

use ::session::Aside;
use inspect::examine::Format;
use instants::Said;
use protocol::id::{ProcessId, ThreadNo};

use super::commands::Prompt;
use super::debugger::{Debugger, Mode, Named};
use super::{Living, Recorded};
use crate::failure::Failure;

/// What a prompt had at hand, to be handed to another thread.
pub struct Snapshot {
    aside: Aside,
    process: ProcessId,
    thread: Option<ThreadNo>,
    frame: usize,
    mode: Mode,
    named: Vec<Named>,
    conditions: Said,
    agents: Option<Vec<live::Agent>>,
    values: u32,
    format: Format,
    displays: Vec<(u32, String, Option<char>)>,
}

impl Prompt {
    pub(super) fn snapshot(&self) -> Snapshot {
        let debugger = &self.debugger;
        Snapshot {
            aside: debugger.group.aside(),
            process: debugger.process,
            thread: debugger.thread,
            frame: debugger.frame,
            mode: debugger.mode,
            named: debugger.named.clone(),
            conditions: debugger.conditions.said(),
            agents: self.living.as_ref().map(|living| living.agents.clone()),
            values: self.values,
            format: self.format,
            displays: self.displays.clone(),
        }
    }

    /// One that looks where another one was. It stays on this thread.
    pub(super) fn beside(snapshot: Snapshot) -> Result<Prompt, Failure> {
        let group = snapshot.aside.open()?;
        let mut debugger = Debugger::of(group, snapshot.process);
        debugger.thread = snapshot.thread;
        debugger.frame = snapshot.frame;
        debugger.mode = snapshot.mode;
        debugger.named = snapshot.named;
        debugger.conditions = snapshot.conditions.growing();
        let mut prompt = Prompt::new(debugger);
        prompt.is_beside = true;
        prompt.living = snapshot.agents.map(|agents| Living {
            agents,
            recorded: Recorded::Nowhere,
            recording: None,
            observed: None,
            followed: Vec::new(),
        });
        prompt.values = snapshot.values;
        prompt.format = snapshot.format;
        prompt.displays = snapshot.displays;
        Ok(prompt)
    }
}
