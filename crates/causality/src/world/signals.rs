//! Signals: sent, and how they arrived.

use protocol::record::tag;
use recording::Event;

use super::World;
use super::calls::{half, nr, word};
use super::objects::*;

impl World<'_> {
    pub(super) fn killed(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let args = &event.args;
        let value = |argument: usize| {
            let info = event.argument(argument)?;
            word(info.bytes, 24)
        };
        let thread_target = |world: &Self, tid: u64| world.thread_with(tid as u32, op.hi);
        let (target, thread, signal, value) = match event.nr {
            nr::KILL => {
                let pid = args[0] as u32 as i32;
                let target = (pid > 0).then(|| self.process_with(pid as u32, op.hi));
                match target {
                    // Somebody outside.
                    Some(None) => return,
                    target => (target.flatten(), None, args[1], None),
                }
            }
            nr::TKILL => match thread_target(self, args[0]) {
                Some((place, thread)) => (Some(place), Some(thread), args[1], None),
                None => return,
            },
            nr::TGKILL => match thread_target(self, args[1]) {
                Some((place, thread)) => (Some(place), Some(thread), args[2], None),
                None => return,
            },
            nr::RT_SIGQUEUEINFO => match self.process_with(args[0] as u32, op.hi) {
                Some(place) => (Some(place), None, args[1], value(2)),
                None => return,
            },
            nr::RT_TGSIGQUEUEINFO => match thread_target(self, args[1]) {
                Some((place, thread)) => (Some(place), Some(thread), args[2], value(3)),
                None => return,
            },
            _ => match self.files.what(file) {
                What::Process(place) => (Some(place), None, args[1], value(2)),
                _ => return,
            },
        };
        let signal = signal as u32;
        if signal != 0 {
            self.kills.push(Kill {
                op,
                signal,
                target,
                thread,
                value,
            });
        }
    }

    /// A signal reached a thread.
    pub(super) fn signal(&mut self, op: Op, event: &Event<'_>) {
        let Some(info) = event.blob(tag::SIGINFO) else {
            return;
        };
        self.arrived(op, info.bytes, event.value(0) as u32, true);
    }

    fn arrived(&mut self, op: Op, info: &[u8], signal: u32, handled: bool) {
        let code = half(info, 8).unwrap_or(0) as i32;
        let pid = half(info, 16).unwrap_or(0);
        let value = word(info, 24).unwrap_or(0);
        let sender = self.process_with(pid, op.hi);
        self.arrivals.push(Arrival {
            op,
            signal,
            code,
            pid,
            sender,
            value,
            handled,
        });
    }

    /// A thread took a signal that it waited for.
    pub(super) fn signal_taken(&mut self, op: Op, event: &Event<'_>) {
        let signal = event.result.unwrap_or(0) as u32;
        let info = event.argument(1).map(|data| data.bytes).unwrap_or(&[]);
        if half(info, 0) == Some(signal) {
            self.arrived(op, info, signal, false);
        } else {
            // Not asked who it was from.
            self.arrivals.push(Arrival {
                op,
                signal,
                code: 0,
                pid: 0,
                sender: None,
                value: 0,
                handled: false,
            });
        }
    }

    /// Signals were read from a descriptor.
    pub(super) fn signals_read(&mut self, op: Op, event: &Event<'_>) {
        const SIZE: usize = 128;
        let Some(data) = event.argument(1) else {
            return;
        };
        for info in data.bytes.chunks_exact(SIZE) {
            let at = |at| half(info, at).unwrap_or(0);
            let pid = at(12);
            let sender = self.process_with(pid, op.hi);
            self.arrivals.push(Arrival {
                op,
                signal: at(0),
                code: at(8) as i32,
                pid,
                sender,
                value: word(info, 48).unwrap_or(0),
                handled: false,
            });
        }
    }
}
