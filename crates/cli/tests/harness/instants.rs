//! What a process shows at its instants, against what its log says of them.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::id::{Addr, EventNo, ThreadNo};
use protocol::record::{kind, tag};
use protocol::syscall::int80;
use recording::Recording;
use replay::{Arrival, Session};

use super::Recorded;

/// What a thread shows before each of its events is what the log says that it
/// had then: the arguments of calls; all registers where it faulted or was
/// interrupted.
///
/// Returns how many events of each kind were looked at.
pub fn shows_what_was(recorded: &Recorded) -> HashMap<u8, u32> {
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let mut seen = HashMap::new();
    for process in recording.processes() {
        let mut session = Session::open(&recording, process.number).unwrap();
        let mut log = recording.log(process.number);
        while log.advance() {
            let event = log.event().unwrap();
            let name = format!("{}:{} {}", process.name, event.number, event.name());
            let registers_then = event.blob(tag::REGISTERS);
            let is_call = event.is_call() && event.started.is_none() && event.kind != kind::CLOCK;
            if !is_call && registers_then.is_none() {
                continue;
            }
            assert_eq!(
                session.go_to(event.number).unwrap(),
                Arrival::There,
                "{name}"
            );
            assert_eq!(session.thread(), event.thread, "{name}");
            let threads = session.threads();
            let thread = threads
                .iter()
                .find(|t| t.number == session.thread())
                .unwrap();
            let now = thread.registers;
            *seen.entry(event.kind).or_insert(0) += 1;
            if let Some(then) = registers_then {
                let then: Vec<u64> = then
                    .bytes
                    .chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                    .collect();
                let now = [
                    now.r8, now.r9, now.r10, now.r11, now.r12, now.r13, now.r14, now.r15, now.rdi,
                    now.rsi, now.rbp, now.rbx, now.rdx, now.rax, now.rcx, now.rsp, now.rip,
                ];
                assert_eq!(then[..17], now, "{name}");
            } else {
                let count = recording::calls::row(event.nr).map_or(0, |row| row.args.len());
                let mut args = [now.rdi, now.rsi, now.rdx, now.r10, now.r8, now.r9];
                // `int 0x80` has them elsewhere.
                let is_int80 = |at: Addr| {
                    let mut code = [0; 2];
                    session.read_code(at, &mut code) == 2 && code == [0xcd, 0x80]
                };
                if is_int80(now.pc()) || is_int80(now.pc().minus(2)) {
                    args = [now.rbx, now.rcx, now.rdx, now.rsi, now.rdi, now.rbp];
                }
                let number = int80(event.nr).unwrap_or(event.nr);
                assert_eq!(now.orig_rax, number, "{name}");
                assert_eq!(args[..count], event.args[..count], "{name}");
            }
        }
    }
    seen
}
