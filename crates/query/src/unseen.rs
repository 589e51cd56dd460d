//! What may have made a replay differ though the log says nothing of it:
//! instructions that nothing traps.

use protocol::id::EventNo;
use protocol::record::tag;
use recording::calls::nr;
use recording::{Event, Process, Recording};

const PROT_EXEC: u64 = 4;
const MAP_PRIVATE: u64 = 2;
const MAP_TYPE: u64 = 3;
const MAP_ANONYMOUS: u64 = 0x20;

/// What in the recording could not be replaced by what is recorded.
pub const WHERE: &str =
    "rdtsc, cpuid, rdrand and their kin in code that a program makes while it runs";

/// What of that a process may have run up to an event, each as a sentence's
/// end.
pub fn before(recording: &Recording, process: &Process, event: EventNo) -> Vec<String> {
    let mut code = Code::default();
    let mut log = recording.log(process.number);
    while log.advance() {
        match log.event().filter(|now| now.number <= event) {
            Some(now) => code.note(&now),
            None => break,
        }
    }
    let mut found = Vec::new();
    if code.made {
        found.push("code that the program made while it ran".to_string());
    }
    if code.shared {
        found.push("code in a file that is mapped shared".to_string());
    }
    let notes = recording.notes().iter();
    found.extend(
        notes
            .filter(|note| note.kind == "counter")
            .map(|note| note.text.clone()),
    );
    found
}

/// The executable memory that has none of its instructions replaced.
#[derive(Default)]
struct Code {
    /// Memory without a file.
    anonymous: Vec<std::ops::Range<u64>>,
    made: bool,
    shared: bool,
}

impl Code {
    fn note(&mut self, event: &Event<'_>) {
        if event.is_done(nr::MMAP) {
            let [_, len, protection, flags, ..] = event.args;
            let start = event.result.and_then(|start| u64::try_from(start).ok());
            let Some(start) = start else {
                return;
            };
            let range = start..start.saturating_add(len);
            let is_code = protection & PROT_EXEC != 0;
            if flags & MAP_ANONYMOUS != 0 {
                self.made |= is_code;
                self.anonymous.push(range);
            } else if flags & MAP_TYPE != MAP_PRIVATE && event.number_in(tag::FILE).is_some() {
                self.shared |= is_code;
            }
        } else if event.is_done(nr::MPROTECT) && event.args[2] & PROT_EXEC != 0 {
            let start = event.args[0];
            self.made |= self.anonymous.iter().any(|range| range.contains(&start));
        }
    }
}
