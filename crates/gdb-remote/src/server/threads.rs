//! Packets about threads: `H`, `T`, `qC`, `qfThreadInfo`, `qThreadExtraInfo`.

use std::io::Write;

use super::{NO_SUCH, OK, Reply, Server};
use crate::command::{Id, Which};
use crate::hex;
use crate::stop;
use crate::target::{ThreadId, ThreadInfo};

impl<W: Write> Server<'_, W> {
    pub(super) fn set_general(&mut self, which: Which) -> Reply {
        match self.find(which) {
            Some(thread) => {
                self.general = thread;
                OK.into()
            }
            None => NO_SUCH.into(),
        }
    }

    pub(super) fn is_alive(&mut self, which: Which) -> Reply {
        match self.find(which) {
            Some(_) => OK.into(),
            None => NO_SUCH.into(),
        }
    }

    pub(super) fn current_thread(&self) -> Reply {
        Reply::Text(format!(
            "QC{}",
            stop::thread(self.general, self.understands)
        ))
    }

    pub(super) fn first_threads(&mut self) -> Reply {
        self.listed = self.threads();
        self.next_threads()
    }

    pub(super) fn thread_about(&mut self, which: Which) -> Reply {
        let thread = self.find(which);
        let all = self.threads();
        match all.iter().find(|info| Some(info.id) == thread) {
            Some(info) => Reply::Text(hex::encode(
                format!("{}, {}", info.name, info.about).as_bytes(),
            )),
            None => NO_SUCH.into(),
        }
    }

    /// The threads that the client is told of: one that knows one process
    /// only sees the one at hand.
    pub(super) fn threads(&mut self) -> Vec<ThreadInfo> {
        let processes = match self.understands.multiprocess {
            true => self.target.processes(),
            false => vec![self.general.pid],
        };
        let mut all = Vec::new();
        for pid in processes {
            all.extend(self.target.threads(pid));
        }
        all
    }

    pub(super) fn next_threads(&mut self) -> Reply {
        const AT_ONCE: usize = 1000;
        if self.listed.is_empty() {
            return "l".into();
        }
        let rest = self.listed.split_off(self.listed.len().min(AT_ONCE));
        let part = std::mem::replace(&mut self.listed, rest);
        let names: Vec<String> = part
            .iter()
            .map(|info| stop::thread(info.id, self.understands))
            .collect();
        Reply::Text(format!("m{}", names.join(",")))
    }

    /// The thread that is meant.
    pub(super) fn find(&mut self, which: Which) -> Option<ThreadId> {
        let pid = match which.pid {
            Id::One(pid) => pid,
            Id::Any | Id::All => self.general.pid,
        };
        let general = self.general;
        let threads = self.target.threads(pid);
        let own = |id: ThreadId| threads.iter().any(|info| info.id == id).then_some(id);
        match which.tid {
            Id::One(tid) => own(ThreadId::new(pid, tid)),
            Id::Any | Id::All => own(general).or_else(|| threads.first().map(|info| info.id)),
        }
    }

    pub(super) fn thread_list(&mut self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\"?>\n<threads>\n");
        for info in self.threads() {
            xml.push_str(&format!(
                "<thread id=\"{}\" name=\"{}\">{}</thread>\n",
                stop::thread(info.id, self.understands),
                quoted(&info.name),
                quoted(&info.about),
            ));
        }
        xml.push_str("</threads>\n");
        xml
    }
}

/// Text for XML.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
