//! Futexes, and the memory that processes share.

use protocol::record::tag;
use recording::Event;

use super::World;
use super::objects::*;

impl World<'_> {
    pub(super) fn is_shared(&self, place: u32, address: u64) -> bool {
        self.proc(place)
            .is_some_and(|p| p.shared.iter().any(|m| (m.0..m.1).contains(&address)))
    }

    /// Where a futex is. Memory that processes share has other addresses in
    /// each.
    pub(super) fn futex_at(&self, place: u32, address: u64, shared: bool) -> Futex {
        let mapping = self.proc(place).filter(|_| shared).and_then(|p| {
            p.shared
                .iter()
                .rev()
                .find(|m| (m.0..m.1).contains(&address))
        });
        match mapping {
            Some((from, _, memory, offset)) => Futex::Shared {
                memory: *memory,
                offset: offset + (address - from),
            },
            None => Futex::Private {
                process: place,
                address,
            },
        }
    }

    pub(super) fn futex(&mut self, mut op: Op, event: &Event<'_>) {
        const PRIVATE: u64 = 128;
        let (args, result) = (&event.args, event.result.unwrap_or(-1));
        let shared = args[1] & PRIVATE == 0;
        let first = self.futex_at(op.process, args[0], shared);
        let second = self.futex_at(op.process, args[4], shared);
        let bits = args[5] as u32;
        let mut made = FutexOp {
            op,
            bits: u32::MAX,
            second: None,
            moves: None,
        };
        match args[1] & 0x7f {
            command @ (0 | 9) => {
                if result != 0 {
                    return;
                }
                if command == 9 {
                    made.bits = bits;
                }
                self.futexes.entry(first).or_default().waits.push(made);
                return;
            }
            _ if result <= 0 => return,
            10 => made.bits = bits,
            3 => made.moves = Some(result as u64),
            4 => made.moves = Some((args[2] as u32).into()),
            1 | 5 => {}
            _ => return,
        }
        if matches!(args[1] & 0x7f, 3..=5) {
            made.second = Some(second);
        }
        op.amount = result as u64;
        made.op = op;
        self.futexes.entry(first).or_default().wakes.push(made);
    }

    pub(super) fn mapped(&mut self, op: Op, event: &Event<'_>, file: u32) {
        const SHARED: u64 = 1;
        const ANONYMOUS: u64 = 0x20;
        let args = &event.args;
        let from = event.result.unwrap_or(0) as u64;
        let to = from.saturating_add(args[1].next_multiple_of(4096));
        self.unmapped(op.process, from, args[1]);
        if args[3] & SHARED == 0 {
            return;
        }
        // What backs it, where the monitor looked; or else its name.
        let name = match (event.number_in(tag::OBJECT), self.files.what(file)) {
            (Some(object), _) if args[3] & ANONYMOUS == 0 => {
                Some(format!("object {object}").into_bytes())
            }
            (None, What::File(path)) if args[3] & ANONYMOUS == 0 => {
                self.path_names.get(path as usize).cloned()
            }
            _ => None,
        };
        let fresh = self.memories;
        let memory = match name {
            Some(name) => *self.memory_of.entry(name).or_insert(fresh),
            None => fresh,
        };
        if memory == fresh {
            self.memories += 1;
        }
        let offset = if args[3] & ANONYMOUS == 0 { args[5] } else { 0 };
        if let Some(process) = self.proc_mut(op.process) {
            process.shared.push((from, to, memory, offset));
        }
    }

    pub(super) fn unmapped(&mut self, place: u32, from: u64, len: u64) {
        let to = from.saturating_add(len.next_multiple_of(4096));
        if let Some(process) = self.proc_mut(place)
            && !process.shared.is_empty()
        {
            process.shared.retain(|m| m.1 <= from || to <= m.0);
        }
    }
}
