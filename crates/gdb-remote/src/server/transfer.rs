//! Objects that are read piece by piece: `qXfer`.

use std::io::Write;

use super::{ROOM, Reply, Server, UNKNOWN};
use crate::hex;
use crate::packet;
use crate::registers;

impl<W: Write> Server<'_, W> {
    pub(super) fn transfer(
        &mut self,
        object: &str,
        annex: &str,
        offset: usize,
        length: usize,
    ) -> Reply {
        let name = format!("{object}:{annex}:{}", self.general.pid);
        let known = matches!(&self.object, Some((kept, _)) if *kept == name);
        if !known || offset == 0 {
            let Some(bytes) = self.make(object, annex) else {
                return match object {
                    "features" | "auxv" | "exec-file" | "threads" => "E00".into(),
                    _ => UNKNOWN.into(),
                };
            };
            self.object = Some((name, bytes));
        }
        let bytes: &[u8] = self.object.as_ref().map_or(&[], |(_, bytes)| bytes);
        let rest = bytes.get(offset..).unwrap_or(&[]);
        let part = rest.get(..length).unwrap_or(rest);
        let (data, used) = packet::escape_within(part, ROOM);
        let mut answer = vec![if used < rest.len() { b'm' } else { b'l' }];
        answer.extend(data);
        Reply::Bytes(answer)
    }

    pub(super) fn make(&mut self, object: &str, annex: &str) -> Option<Vec<u8>> {
        match object {
            "features" if annex == "target.xml" => Some(registers::description().into_bytes()),
            "auxv" => self.target.auxv(self.general.pid),
            "exec-file" => {
                let pid = match annex {
                    "" => self.general.pid,
                    annex => u32::try_from(hex::number(annex.as_bytes())?).ok()?,
                };
                self.target.executable(pid)
            }
            "threads" => Some(self.thread_list().into_bytes()),
            _ => None,
        }
    }
}
