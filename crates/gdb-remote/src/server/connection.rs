//! Packets about the connection and the processes it is for: `qSupported`,
//! `vAttach`, `vRun`, `D`, `k`, `qRcmd`, and what the machine is.

use std::io::{self, Write};

use super::{NO_SUCH, OK, ROOM, Reply, Server};
use crate::hex;
use crate::packet::{self, LONGEST};
use crate::signals;
use crate::stop::Understands;

/// What the machine is, as compilers call it.
const TRIPLE: &[u8] = b"x86_64-unknown-linux-gnu";

pub(super) fn host() -> Reply {
    Reply::Text(format!(
        "triple:{};ptrsize:8;endian:little;",
        hex::encode(TRIPLE)
    ))
}

impl<W: Write> Server<'_, W> {
    /// The acknowledgement of this packet was the last.
    pub(super) fn trusts(&mut self) -> Reply {
        self.acknowledges = false;
        OK.into()
    }

    pub(super) fn process(&self) -> Reply {
        Reply::Text(format!(
            "pid:{:x};triple:{};ostype:linux;endian:little;ptrsize:8;",
            self.general.pid,
            hex::encode(TRIPLE)
        ))
    }

    pub(super) fn attach(&mut self, pid: u32) -> Reply {
        match self.target.take_up(pid) {
            Some(thread) => self.stands(thread),
            None => NO_SUCH.into(),
        }
    }

    pub(super) fn restart(&mut self) -> io::Result<Reply> {
        Ok(match self.target.restart() {
            Ok(thread) => self.stands(thread),
            Err(why) => {
                self.tell(format!("{why}\n").as_bytes())?;
                "E01".into()
            }
        })
    }

    pub(super) fn is_attached(&mut self, pid: Option<u32>) -> Reply {
        let pid = pid.unwrap_or(self.general.pid);
        // What was there is let go when the client quits, what was not is ended.
        u8::from(self.target.was_there(pid))
            .to_string()
            .as_str()
            .into()
    }

    pub(super) fn pass_signals(&mut self, numbers: &[u32]) -> Reply {
        if !self.target.is_alive() {
            return super::UNKNOWN.into();
        }
        let signals = numbers.iter().filter_map(|n| signals::from_protocol(*n));
        let signals: Vec<u32> = signals.filter(|signal| *signal != 0).collect();
        self.target.pass_signals(&signals);
        OK.into()
    }

    /// Everybody ends, and the conversation.
    pub(super) fn kill_all(&mut self) -> Reply {
        if self.target.is_alive() {
            for pid in self.target.processes() {
                self.target.kill(pid);
            }
        }
        Reply::End
    }

    pub(super) fn kill(&mut self, pid: u32) -> Reply {
        match self.target.kill(pid) {
            true => OK.into(),
            false => NO_SUCH.into(),
        }
    }

    pub(super) fn detach(&mut self) -> io::Result<Reply> {
        self.to.write_all(&packet::frame(OK.as_bytes()))?;
        self.to.flush()?;
        Ok(Reply::End)
    }

    pub(super) fn let_go(&mut self, pid: u32) -> Reply {
        match self.target.let_go(pid) {
            true => OK.into(),
            false => NO_SUCH.into(),
        }
    }

    pub(super) fn monitor(&mut self, line: &str) -> io::Result<Reply> {
        let mut text = self.target.command(line);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for part in text.as_bytes().chunks(ROOM / 2) {
            self.tell(part)?;
        }
        Ok(OK.into())
    }

    pub(super) fn supported(&mut self, features: &[String]) -> Reply {
        let has = |name: &str| features.iter().any(|feature| feature == name);
        self.understands = Understands {
            multiprocess: has("multiprocess+"),
            swbreak: has("swbreak+"),
            hwbreak: has("hwbreak+"),
            exec: has("exec-events+"),
            fork: has("fork-events+") && self.target.is_alive(),
        };
        let mut answer = format!(
            "PacketSize={LONGEST:x};QStartNoAckMode+;vContSupported+;ReverseContinue+;\
             ReverseStep+;ConditionalBreakpoints+;qXfer:features:read+;qXfer:auxv:read+;\
             qXfer:exec-file:read+;qXfer:threads:read+"
        );
        if self.target.is_alive() {
            answer.push_str(";QPassSignals+");
        }
        for name in [
            "multiprocess+",
            "swbreak+",
            "hwbreak+",
            "exec-events+",
            "fork-events+",
        ] {
            if has(name) && (name != "fork-events+" || self.understands.fork) {
                answer.push(';');
                answer.push_str(name);
            }
        }
        Reply::Text(answer)
    }

    /// Shows something to the user, while the client waits.
    pub(super) fn tell(&mut self, words: &[u8]) -> io::Result<()> {
        let text = format!("O{}", hex::encode(words));
        self.to.write_all(&packet::frame(text.as_bytes()))
    }
}
