//! What can still be done about something that is about to happen, and was held back: to have it
//! fail, or come later.

use std::collections::BTreeSet;
use std::time::Duration;

use ::session::{Direction, Error, How, Reason, Who};
use protocol::id::ProcessId;

use super::commands::Prompt;
use super::limits::duration;
use super::screen::say;
use crate::failure::Failure;

/// What a call fails with if nothing is said.
const EPERM: i32 = 1;

impl Prompt {
    /// `refuse [ERROR]`: the call that the thread at hand is about to make fails.
    pub(super) fn refuse(&mut self, text: &str) -> Result<(), Failure> {
        let errno = match text {
            "" => EPERM,
            name => errno_of(name)?,
        };
        let process = self.debugger.process;
        let chosen = self.debugger.thread;
        let thread = chosen.unwrap_or(self.debugger.view()?.target().thread());
        let alive = self.debugger.group.alive(process)?;
        alive.refuse_call(thread, errno).map_err(Error::from)?;
        let name = protocol::names::errno_name(errno).unwrap_or("error");
        say!("It will fail with {name}; `continue` goes on.")
    }

    /// `delay TIME`: all others run meanwhile.
    pub(super) fn delay(&mut self, text: &str) -> Result<(), Failure> {
        let length = Duration::from_nanos(duration(text)?);
        let held = self.debugger.process;
        let members = self.debugger.group.members();
        let others = members.iter().filter(|m| m.id != held && !m.is_empty);
        let others: BTreeSet<ProcessId> = others.map(|member| member.id).collect();
        let Some(other) = others.first().copied() else {
            return Err(
                Failure::new("there is no other process that could run meanwhile")
                    .hint("`continue` lets what is held back be done"),
            );
        };
        let (thread, frame) = (self.debugger.thread, self.debugger.frame);
        let from = self.debugger.instant();
        self.debugger.choose(other);
        let cancel = self.debugger.cancel.clone();
        self.debugger.cancel = cancel.within(length);
        let mut motion = self
            .debugger
            .motion(How::Continue, Direction::Forwards, false);
        motion.who = Who::These(others);
        let stopped = self.debugger.follow_motion(&motion);
        self.debugger.cancel = cancel;
        self.moved(from, None)?;
        let stopped = stopped?;
        self.say_traced(&stopped)?;
        if !matches!(stopped.reason, Reason::Interrupted) {
            return self.say_where(&stopped);
        }
        self.debugger.choose(held);
        (self.debugger.thread, self.debugger.frame) = (thread, frame);
        let name = self.debugger.name(held);
        say!("{name} was held back while the others ran for {text}.")
    }
}

/// An error by its name or number.
fn errno_of(name: &str) -> Result<i32, Failure> {
    const MOST: i32 = 133;
    let upper = name.to_ascii_uppercase();
    let by_name = (1..=MOST).find(|n| protocol::names::errno_name(*n) == Some(upper.as_str()));
    let number = name.parse().ok().filter(|n| (1..=MOST).contains(n));
    by_name.or(number).ok_or_else(|| {
        Failure::new(format!("`{name}` is no error of the kernel's")).hint("`refuse ECONNRESET`")
    })
}
