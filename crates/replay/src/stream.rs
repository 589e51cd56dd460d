//! Logs as replay reads them: one stretch of bytes for each image of a
//! process.

use protocol::record::{Memory, begin, kind};
use recording::Recording;

/// One image's log.
#[derive(Clone, Debug)]
pub struct Stream {
    pub process: u32,
    pub image: u32,
    pub how: u64,
    pub parent: u32,
    pub parent_event: u64,
    pub first_event: u64,
    pub bytes: Vec<u8>,
    /// Position, time, event, thread of each chunk's first record.
    pub marks: Vec<[u64; 4]>,
}

/// The streams of all processes.
pub fn all_streams(recording: &Recording) -> Vec<Stream> {
    let processes = recording.processes().iter();
    processes
        .flat_map(|process| streams_of(recording, process.number))
        .collect()
}

/// Cuts the log of a process into streams, one for each of its images.
pub fn streams_of(recording: &Recording, process: u32) -> Vec<Stream> {
    let mut all: Vec<Stream> = Vec::new();
    let mut current: Option<Stream> = None;
    recording.each_chunk(process, |head, bytes| {
        // An image's log begins with a chunk of its own.
        let first = head.first_record.and_then(|at| {
            let mut memory = Memory::new();
            memory.forget(head.first_time);
            let at = at.checked_sub(protocol::shared::CHUNK_HEAD)?;
            // Which thread it is, and whose turn it was, come first.
            let mut next = at;
            loop {
                let (record, used) = memory.read(bytes.get(next..)?).ok()?;
                if !matches!(record.kind, kind::THREAD | kind::TURN) {
                    return (record.kind == kind::BEGIN && at == 0).then_some(record.values);
                }
                next += used;
            }
        });
        if let Some(values) = first {
            all.extend(current.take());
            current = Some(Stream {
                process,
                image: values[4] as u32,
                how: values[0],
                parent: values[1] as u32,
                parent_event: values[2],
                first_event: head.first_event,
                bytes: Vec::new(),
                marks: Vec::new(),
            });
        }
        if let Some(stream) = &mut current {
            if let Some(at) = head.first_record {
                let at = stream.bytes.len() + at - protocol::shared::CHUNK_HEAD;
                let thread = u64::from(head.first_thread);
                stream
                    .marks
                    .push([at as u64, head.first_time, head.first_event, thread]);
            }
            stream.bytes.extend_from_slice(bytes);
        }
    });
    all.extend(current);
    all
}

impl Stream {
    /// Whether it begins from an image alone, not in a parent's memory.
    pub fn is_start(&self) -> bool {
        matches!(self.how, begin::FIRST | begin::EXEC)
    }
}
