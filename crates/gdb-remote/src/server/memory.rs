//! Packets about registers and memory: `g`, `p`, `m`, `qMemoryRegionInfo`,
//! `qGetTLSAddr`, and `G`, `P`, `M`, `X`.

use std::io::Write;

use super::points::refusal;
use super::{BAD_ADDRESS, NO_SUCH, OK, READ_ONLY, ROOM, Reply, Server, UNKNOWN};
use crate::command::Which;
use crate::hex;
use crate::registers::Registers;

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

    /// Has registers changed.
    fn change(&mut self, change: impl FnOnce(&mut Registers) -> bool) -> Reply {
        if !self.target.is_alive() {
            return READ_ONLY.into();
        }
        let Some(mut registers) = self.target.registers(self.general) else {
            return NO_SUCH.into();
        };
        if !change(&mut registers) {
            return READ_ONLY.into();
        }
        refusal(self.target.set_registers(self.general, &registers))
    }

    pub(super) fn set_registers(&mut self, digits: &[u8]) -> Reply {
        self.change(|registers| registers.set_all(digits))
    }

    pub(super) fn set_register(&mut self, number: usize, value: &[u8]) -> Reply {
        self.change(|registers| registers.set(number, value))
    }

    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> Reply {
        if !self.target.is_alive() {
            return READ_ONLY.into();
        }
        match self.target.write(self.general.pid, address, bytes) == bytes.len() {
            true => OK.into(),
            false => BAD_ADDRESS.into(),
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
