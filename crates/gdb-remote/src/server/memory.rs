//! Packets about registers and memory: `g`, `p`, `m`, `qMemoryRegionInfo`,
//! `qGetTLSAddr`.

use std::io::Write;

use super::{BAD_ADDRESS, NO_SUCH, ROOM, Reply, Server, UNKNOWN};
use crate::command::Which;
use crate::hex;

impl<W: Write> Server<'_, W> {
    pub(super) fn registers(&mut self) -> Reply {
        match self.target.registers(self.general) {
            Some(registers) => Reply::Text(registers.all()),
            None => NO_SUCH.into(),
        }
    }

    pub(super) fn register(&mut self, number: usize) -> Reply {
        let registers = self.target.registers(self.general);
        match registers.and_then(|registers| registers.text(number)) {
            Some(text) => Reply::Text(text),
            None => NO_SUCH.into(),
        }
    }

    pub(super) fn region(&mut self, address: u64) -> Reply {
        let (range, rights) = self.target.region(self.general.pid, address);
        let rights = match rights.as_str() {
            "" => String::new(),
            rights => format!("permissions:{rights};"),
        };
        let size = range.end.wrapping_sub(range.start);
        Reply::Text(format!("start:{:x};size:{size:x};{rights}", range.start))
    }

    pub(super) fn thread_local(&mut self, thread: Which, offset: u64, module: u64) -> Reply {
        let thread = self.find(thread);
        let found = thread.and_then(|thread| self.target.thread_local(thread, offset, module));
        match found {
            Some(address) => Reply::Text(format!("{address:x}")),
            None => NO_SUCH.into(),
        }
    }

    pub(super) fn read(&mut self, address: u64, length: usize) -> Reply {
        let mut buffer = vec![0; length.min(ROOM / 2)];
        let got = self.target.read(self.general.pid, address, &mut buffer);
        match buffer.get(..got).filter(|some| !some.is_empty()) {
            Some(some) => Reply::Text(hex::encode(some)),
            None if length == 0 => UNKNOWN.into(),
            None => BAD_ADDRESS.into(),
        }
    }
}
