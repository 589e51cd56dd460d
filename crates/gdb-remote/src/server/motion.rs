//! Packets that set something moving, and where it came to stand: `vCont`, `c`,
//! `s`, `bc`, `bs`, `?`.

use std::io::{self, Write};

use super::{Reply, Server};
use crate::command::{Action, Id, Which};
use crate::signals;
use crate::stop::{self, Stop, StopReason};
use crate::target::{Direction, Motion, ThreadId};

impl<W: Write> Server<'_, W> {
    /// From what `vCont` says: the first that is to step leads; all processes
    /// that are named, or all, may move.
    pub(super) fn motion(&mut self, actions: &[(Action, Which)]) -> Motion {
        let step = actions.iter().find_map(|(action, which)| match action {
            Action::Step(range, _) => Some((range.clone(), *which)),
            Action::Continue(_) => None,
        });
        let signal = actions.iter().find_map(|(action, which)| match action {
            Action::Step(_, Some(signal)) | Action::Continue(Some(signal)) => {
                Some((*signal, *which))
            }
            _ => None,
        });
        let everybody = actions
            .iter()
            .any(|(_, which)| matches!(which.pid, Id::All));
        let named = actions.iter().find_map(|(_, which)| match which.pid {
            Id::One(pid) => Some(pid),
            _ => None,
        });
        let leader = step.as_ref().map(|(_, which)| *which);
        let leader = leader.or(signal.map(|(_, which)| which));
        let leader = leader.or_else(|| actions.first().map(|(_, which)| *which));
        let thread = leader.and_then(|which| self.find(which));
        let thread = thread.unwrap_or(self.general);
        Motion {
            direction: Direction::Forwards,
            process: (!everybody || !self.understands.multiprocess)
                .then_some(named.unwrap_or(thread.pid)),
            thread,
            step: step.map(|(range, _)| range),
            signal: signal.and_then(|(signal, _)| signals::from_protocol(signal.into())),
        }
    }

    /// From what `Hc` said.
    pub(super) fn motion_of(
        &mut self,
        direction: Direction,
        step: bool,
        signal: Option<u8>,
    ) -> Motion {
        let which = self.moves;
        let thread = self.find(which).unwrap_or(self.general);
        let process = match which.pid {
            Id::One(pid) => Some(pid),
            _ if !self.understands.multiprocess => Some(thread.pid),
            _ => None,
        };
        Motion {
            direction,
            process,
            thread,
            step: step.then_some(0..0),
            signal: signal.and_then(|signal| signals::from_protocol(signal.into())),
        }
    }

    pub(super) fn resume(&mut self, motion: &Motion) -> io::Result<Reply> {
        let mut result = self.target.resume(motion, self.interrupt);
        // A client that knows one process is not told what others execute.
        while !self.understands.multiprocess
            && let Ok(stop) = &result
            && stop.thread.pid != motion.thread.pid
        {
            result = self.target.resume(motion, self.interrupt);
        }
        let stop = match result {
            Ok(stop) => stop,
            Err(why) => {
                self.tell(format!("{why}\n").as_bytes())?;
                Stop {
                    thread: motion.thread,
                    reason: StopReason::Signal(0),
                }
            }
        };
        let has_ended = matches!(stop.reason, StopReason::Exited(_) | StopReason::Killed(_));
        self.general = match has_ended {
            // Another one is at hand then, if there is one.
            true => self.target.current(),
            false => stop.thread,
        };
        self.object = None;
        self.last = stop;
        Ok(self.last_stop())
    }

    pub(super) fn last_stop(&mut self) -> Reply {
        let registers = self.target.registers(self.last.thread);
        Reply::Text(stop::reply(
            &self.last,
            registers.as_ref(),
            self.understands,
        ))
    }

    pub(super) fn stands(&mut self, thread: ThreadId) -> Reply {
        self.general = thread;
        self.object = None;
        self.last = Stop {
            thread,
            reason: StopReason::Arrived,
        };
        self.last_stop()
    }
}
