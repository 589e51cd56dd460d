//! The past of a program that is alive and recorded: what there is of it so far, beside
//! the program itself, which stands meanwhile.
//!
//! A halted program writes nothing, so what is recorded of it is as whole as a recording
//! that came to its end there. It is opened when somebody goes back, debugged by a group
//! of its own as any recording, and closed again at the front: the program that runs on
//! has more of a past the next time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::session::{Counterparts, Program, Side};
use ::target::Position;
use causality::History;
use protocol::id::ProcessId;

use super::commands::Prompt;
use super::debugger::{Debugger, Instant};
use super::screen::say;
use super::table::{Call, Command, When};
use crate::failure::Failure;
use crate::{causes, select};

/// The program as it is now, while its past is looked at.
pub struct Front {
    debugger: Debugger,
    behind: Vec<Instant>,
    ahead: Vec<Instant>,
    known: Counterparts,
    /// Both have the same breakpoints.
    shares_points: bool,
}

impl Front {
    /// Who somebody of the past is in the program as it is now.
    pub fn alive_of(&self, past: ProcessId) -> Option<ProcessId> {
        self.known.alive(past)
    }

    /// Who somebody of the program as it is now is in the past.
    pub fn recorded_of(&self, alive: ProcessId) -> Option<ProcessId> {
        self.known.recorded(alive)
    }
}

/// What was recorded so far of a program that is alive.
pub fn open(dir: &Path) -> Result<Arc<Program>, Failure> {
    let set = select::open(Some(dir.to_path_buf()))?;
    let history = History::in_memory(&set).map_err(Failure::new)?;
    let names = causes::names(&history);
    let mut members = set.members();
    match members.any(|recording| recording.manifest().observed.is_some()) {
        true => Ok(super::observed_program(history, names)),
        false => super::program(history, names),
    }
}

impl Prompt {
    /// Where the program that is alive is recorded, if it is.
    pub(super) fn recording(&self) -> Option<PathBuf> {
        self.living.as_ref().and_then(|l| l.recording.clone())
    }

    /// Does what a line says, in the time that it is about.
    pub(super) fn in_its_time(
        &mut self,
        command: &Command,
        call: &Call<'_>,
    ) -> Result<(), Failure> {
        match (command.when, self.recording()) {
            (When::Now, _) if self.front.is_some() => Err(Failure::new(format!(
                "`{}` is about the program as it is now, and this is its past",
                command.name
            ))
            .hint("`live` returns to the front")),
            (When::Past, Some(dir)) if self.debugger.is_alive() => {
                self.enter_past(&dir)?;
                self.share_points();
                let done = (command.handler)(self, call);
                match done {
                    Ok(()) => say!("(in what was recorded so far; `live` returns to the front)"),
                    Err(failure) => {
                        self.leave_past();
                        Err(failure)
                    }
                }
            }
            _ => (command.handler)(self, call),
        }
    }

    /// Has what was recorded so far at hand; everybody is where that ends.
    pub(super) fn enter_past(&mut self, dir: &Path) -> Result<(), Failure> {
        self.bring_recorded(dir)?;
        let mut past = Debugger::open(&open(dir)?)?;
        for member in past.group.members() {
            past.group.place(member.id, Position::END)?;
        }
        let known = Counterparts::new(&self.debugger.group, &past.group);
        if let Some(process) = known.recorded(self.debugger.process) {
            past.choose(process);
        }
        past.conditions = self.debugger.conditions.said().growing();
        past.cancel = self.debugger.cancel.clone();
        past.mode = self.debugger.mode;
        self.front = Some(Front {
            debugger: std::mem::replace(&mut self.debugger, past),
            behind: std::mem::take(&mut self.behind),
            ahead: std::mem::take(&mut self.ahead),
            known,
            shares_points: false,
        });
        Ok(())
    }

    /// The breakpoints of the program that is alive are those of its past, too.
    pub(super) fn share_points(&mut self) {
        if let Some(front) = &mut self.front {
            front.shares_points = true;
            let known = &front.known;
            let points = front.debugger.group.points();
            let stops = self.debugger.group.stops();
            stops.adopt(points, |whom| known.whom(whom, Side::Recorded));
        }
    }

    /// Has the program as it is now at hand, if its past was.
    pub(super) fn leave_past(&mut self) {
        let Some(front) = self.front.take() else {
            return;
        };
        let past = std::mem::replace(&mut self.debugger, front.debugger);
        self.behind = front.behind;
        self.ahead = front.ahead;
        self.debugger.cancel = past.cancel.clone();
        self.debugger.conditions = past.conditions.said().growing();
        if front.shares_points {
            let stops = self.debugger.group.stops();
            stops.adopt(past.group.points(), |whom| {
                front.known.whom(whom, Side::Alive)
            });
        }
    }

    /// `live`: back to the program as it is now.
    pub(super) fn live(&mut self) -> Result<(), Failure> {
        if self.living.is_none() {
            return Err(
                Failure::new("a recording has no front: it says what happened")
                    .hint("`goto end` is the last of it"),
            );
        }
        self.leave_past();
        let members = self.debugger.group.members();
        let own = members.iter().find(|m| m.id == self.debugger.process);
        // Of one that has ended there is nothing to be seen.
        if own.is_none_or(|member| member.is_empty) {
            return self.show_cut(false);
        }
        let stopped = self.debugger.stands()?;
        self.say_where(&stopped)
    }
}
