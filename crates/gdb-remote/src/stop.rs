//! Why something stands still, in the words of a stop reply.

use crate::hex;
use crate::registers::Registers;
use crate::target::{StopKind, ThreadId};

/// Why a thread stands where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It was to come here, or to step.
    Arrived,
    Breakpoint(StopKind),
    /// Watched memory at this address was touched.
    Watch(StopKind, u64),
    /// The client asked for it.
    Interrupted,
    /// There is nothing before.
    Beginning,
    /// There is nothing after.
    End,
    /// It runs another program than before: its path.
    Executed(Vec<u8>),
    /// Its libraries are others than before.
    Libraries,
    /// It is about to get this signal, in the protocol's numbers.
    Signal(u8),
    /// It has made a process: that one's first thread.
    Forked(ThreadId),
    /// It has ended: with this status, or by this signal in the protocol's numbers.
    Exited(u8),
    Killed(u8),
}

/// What stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub thread: ThreadId,
    pub reason: StopReason,
}

/// What the client said it understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Understands {
    pub multiprocess: bool,
    pub swbreak: bool,
    pub hwbreak: bool,
    pub exec: bool,
    pub fork: bool,
}

/// A thread as the client writes it.
pub fn thread(id: ThreadId, understands: Understands) -> String {
    if understands.multiprocess {
        id.to_string()
    } else {
        format!("{:x}", id.tid)
    }
}

/// The reply, with the registers that a client asks for first.
pub fn reply(stop: &Stop, registers: Option<&Registers>, understands: Understands) -> String {
    const TRAP: u8 = 5;
    const INT: u8 = 2;
    let whose = match understands.multiprocess {
        true => format!(";process:{:x}", stop.thread.pid),
        false => String::new(),
    };
    match stop.reason {
        StopReason::Exited(status) => return format!("W{status:02x}{whose}"),
        StopReason::Killed(signal) => return format!("X{signal:02x}{whose}"),
        _ => {}
    }
    let (signal, why) = match &stop.reason {
        StopReason::Arrived => (TRAP, String::new()),
        StopReason::Breakpoint(StopKind::Hardware) if understands.hwbreak => {
            (TRAP, "hwbreak:;".to_string())
        }
        StopReason::Breakpoint(StopKind::Software) if understands.swbreak => {
            (TRAP, "swbreak:;".to_string())
        }
        StopReason::Breakpoint(_) => (TRAP, String::new()),
        StopReason::Watch(kind, address) => {
            let word = match kind {
                StopKind::Read => "rwatch",
                StopKind::Access => "awatch",
                _ => "watch",
            };
            (TRAP, format!("{word}:{address:x};"))
        }
        StopReason::Interrupted => (INT, String::new()),
        StopReason::Beginning => (TRAP, "replaylog:begin;".to_string()),
        StopReason::End => (TRAP, "replaylog:end;".to_string()),
        StopReason::Executed(path) if understands.exec => {
            (TRAP, format!("exec:{};", hex::encode(path)))
        }
        StopReason::Executed(_) => (TRAP, String::new()),
        StopReason::Libraries => (TRAP, "library:;".to_string()),
        StopReason::Signal(signal) => (*signal, String::new()),
        StopReason::Forked(child) if understands.fork => (TRAP, format!("fork:{child};")),
        // (Those that end were told above.)
        StopReason::Forked(_) | StopReason::Exited(_) | StopReason::Killed(_) => {
            (TRAP, String::new())
        }
    };
    let mut reply = format!("T{signal:02x}{why}");
    // Where it is and its stack: most stops are looked at no closer.
    for (number, value) in registers.map(Registers::expedited).unwrap_or_default() {
        reply.push_str(&format!("{number:02x}:{};", hex::encode(&value)));
    }
    reply.push_str(&format!("thread:{};", thread(stop.thread, understands)));
    reply
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    const ALL: Understands = Understands {
        multiprocess: true,
        swbreak: true,
        hwbreak: true,
        exec: true,
        fork: true,
    };

    fn of(reason: StopReason, understands: Understands) -> String {
        let thread = ThreadId::new(0x1a, 0x1b);
        reply(&Stop { thread, reason }, None, understands)
    }

    #[test]
    fn reasons_have_their_words() {
        let breakpoint = StopReason::Breakpoint(StopKind::Software);
        assert_eq!(of(breakpoint.clone(), ALL), "T05swbreak:;thread:p1a.1b;");
        assert_eq!(of(breakpoint, Understands::default()), "T05thread:1b;");
        assert_eq!(
            of(StopReason::Watch(StopKind::Write, 0x1000), ALL),
            "T05watch:1000;thread:p1a.1b;"
        );
        assert_eq!(
            of(StopReason::Beginning, ALL),
            "T05replaylog:begin;thread:p1a.1b;"
        );
        assert_eq!(
            of(StopReason::Executed(b"/a".to_vec()), ALL),
            "T05exec:2f61;thread:p1a.1b;"
        );
        assert_eq!(of(StopReason::Interrupted, ALL), "T02thread:p1a.1b;");
        assert_eq!(
            of(StopReason::Forked(ThreadId::new(0x2a, 0x2a)), ALL),
            "T05fork:p2a.2a;thread:p1a.1b;"
        );
        assert_eq!(of(StopReason::Exited(3), ALL), "W03;process:1a");
        assert_eq!(of(StopReason::Killed(9), Understands::default()), "X09");
    }

    #[test]
    fn the_place_and_the_stack_come_along() {
        let mut registers = Registers::default();
        registers.general[7] = 0x7ffc;
        registers.rip = 0x401000;
        let thread = ThreadId::new(1, 1);
        let reason = StopReason::Arrived;
        assert_eq!(
            reply(&Stop { thread, reason }, Some(&registers), ALL),
            "T0506:0000000000000000;07:fc7f000000000000;10:0010400000000000;thread:p1.1;"
        );
    }
}
