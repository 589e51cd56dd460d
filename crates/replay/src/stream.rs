//! Logs as replay reads them: one stretch of bytes for each image of a
//! process.

use std::sync::Arc;

use protocol::id::{EventNo, ImageNo, ProcessNo};
use protocol::record::{Memory, begin, kind};
use recording::Recording;
use recording::chunk::ChunkHead;

/// One image's log.
#[derive(Clone, Debug)]
pub struct Stream {
    pub process: ProcessNo,
    pub image: ImageNo,
    pub how: u64,
    pub parent: ProcessNo,
    pub parent_event: EventNo,
    pub first_event: EventNo,
    pub bytes: Arc<Vec<u8>>,
    /// Position, time, event, thread of each chunk's first record.
    pub marks: Vec<[u64; 4]>,
}

/// Cuts the log of a process into streams, one for each of its images.
pub fn streams_of(recording: &Recording, process: ProcessNo) -> Vec<Stream> {
    streams_where(recording, process, |_| true)
}

/// The streams of those images of a process that are wanted.
pub fn streams_where(
    recording: &Recording,
    process: ProcessNo,
    wanted: impl Fn(ImageNo) -> bool,
) -> Vec<Stream> {
    let mut all: Vec<Stream> = Vec::new();
    let mut takes = false;
    recording.each_chunk(process, |head, bytes| {
        if let Some(values) = beginning(head, bytes) {
            let image = ImageNo(values[4] as u32);
            takes = wanted(image);
            if takes {
                all.push(Stream {
                    process,
                    image,
                    how: values[0],
                    parent: ProcessNo(values[1] as u32),
                    parent_event: EventNo(values[2]),
                    first_event: EventNo(head.first_event),
                    bytes: Arc::default(),
                    marks: Vec::new(),
                });
            }
        }
        if let Some(stream) = all.last_mut().filter(|_| takes) {
            if let Some(at) = head.first_record {
                let at = stream.bytes.len() + at - protocol::shared::CHUNK_HEAD;
                let thread = u64::from(head.first_thread);
                stream
                    .marks
                    .push([at as u64, head.first_time, head.first_event, thread]);
            }
            // Nobody else has it yet.
            Arc::make_mut(&mut stream.bytes).extend_from_slice(bytes);
        }
    });
    all
}

/// What the beginning of an image says, if the chunk begins with one: an
/// image's log has a chunk of its own for its first.
fn beginning(head: &ChunkHead, bytes: &[u8]) -> Option<[u64; protocol::record::VALUES_MAX]> {
    let mut memory = Memory::new();
    memory.forget(head.first_time);
    let at = head
        .first_record?
        .checked_sub(protocol::shared::CHUNK_HEAD)?;
    // Which thread it is, and whose turn it was, come first.
    let mut next = at;
    loop {
        let (record, used) = memory.read(bytes.get(next..)?).ok()?;
        if !matches!(record.kind, kind::THREAD | kind::TURN) {
            return (record.kind == kind::BEGIN && at == 0).then_some(record.values);
        }
        next += used;
    }
}

impl Stream {
    /// Whether it begins from an image alone, not in a parent's memory.
    pub fn is_start(&self) -> bool {
        matches!(self.how, begin::FIRST | begin::EXEC)
    }
}
