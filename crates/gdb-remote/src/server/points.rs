//! Breakpoints and watchpoints: `Z` and `z`.

use std::io::Write;

use super::{OK, Reply, Server, UNKNOWN};
use crate::target::{Refused, StopKind, StopPoint};

impl<W: Write> Server<'_, W> {
    pub(super) fn add_stop(&mut self, stop: StopPoint) -> Reply {
        refusal(self.target.add_stop(self.general.pid, stop))
    }

    pub(super) fn remove_stop(&mut self, kind: StopKind, address: u64, length: u64) -> Reply {
        refusal(
            self.target
                .remove_stop(self.general.pid, kind, address, length),
        )
    }
}

pub(super) fn refusal(result: Result<(), Refused>) -> Reply {
    match result {
        Ok(()) => OK.into(),
        Err(Refused::Unsupported) => UNKNOWN.into(),
        Err(Refused::Errno(number)) => Reply::Text(format!("E{number:02x}")),
        Err(Refused::Words(words)) => Reply::Text(format!("E.{}", harmless(&words))),
    }
}

/// Words that can stand in a packet as they are. Clients do not undo escapes in
/// words, so what frames a packet, or would be an escape or a repetition, is
/// replaced.
fn harmless(words: &str) -> String {
    words.replace(['$', '#', '}', '*'], "_")
}
