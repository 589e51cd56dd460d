//! Recordings made by hand, for tests: logs written the way a monitor writes
//! them, without a program.

pub mod story;

use std::path::Path;

use protocol::id::{ImageNo, ProcessNo, Ticks};
use protocol::record::{HEAD_MAX, Head, Memory, kind};
use protocol::shared::{ARENA_MAGIC, CHUNK_HEAD, CHUNK_SIZE, CHUNKS_OFFSET, Control, chunk_state};

use crate::chunk::ChunkHead;
use crate::model::{Clock, ImageStart, Manifest};

/// Blobs to write: tag and bytes.
pub type BlobList<'a> = &'a [(u8, &'a [u8])];

/// Writes the log of one process, in chunks of any size.
pub struct LogBuilder {
    process: u32,
    capacity: usize,
    memory: Box<Memory>,
    chunks: Vec<Vec<u8>>,
    head: ChunkHead,
    bytes: Vec<u8>,
    number: u64,
    thread: u32,
    time: u64,
}

impl LogBuilder {
    /// A log whose chunks are `capacity` bytes long.
    pub fn new(process: u32, capacity: usize) -> LogBuilder {
        let mut log = LogBuilder {
            process,
            capacity: capacity.clamp(CHUNK_HEAD + 1, CHUNK_SIZE),
            memory: Box::default(),
            chunks: Vec::new(),
            head: fresh_head(process, 0),
            bytes: vec![0; CHUNK_HEAD],
            number: 0,
            thread: 0,
            time: 1000,
        };
        log.memory.forget(0);
        log
    }

    /// Time of the records that follow, in ticks.
    pub fn at(&mut self, time: u64) -> &mut LogBuilder {
        self.time = self.time.max(time);
        self
    }

    /// Number of the next event.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A call that cannot block.
    pub fn call(&mut self, nr: u64, args: &[u64], result: i64, blobs: BlobList) -> &mut Self {
        let (all, count) = six(args);
        self.begin();
        let time = self.tick();
        let count_of = blobs.len() as u8;
        let head = head(|h| self.memory.call(h, nr, time, &all, count, result, count_of));
        self.put(head, blobs, true)
    }

    /// A call that may block begins.
    pub fn start(&mut self, nr: u64, args: &[u64], blobs: BlobList) -> &mut Self {
        let (all, count) = six(args);
        self.begin();
        let time = self.tick();
        let head = head(|h| {
            self.memory
                .start(h, nr, time, &all, count, blobs.len() as u8)
        });
        self.put(head, blobs, true)
    }

    /// It returns.
    pub fn end(&mut self, nr: u64, result: i64, blobs: BlobList) -> &mut Self {
        self.begin();
        let time = self.tick();
        let head = head(|h| self.memory.end(h, nr, time, result, blobs.len() as u8));
        self.put(head, blobs, true)
    }

    /// Anything else.
    pub fn other(&mut self, kind: u8, values: &[u64], blobs: BlobList) -> &mut Self {
        self.begin();
        let time = self.tick();
        let head = head(|h| self.memory.other(h, kind, time, values, blobs.len() as u8));
        self.put(head, blobs, kind::is_event(kind))
    }

    /// Another thread runs from here.
    pub fn thread(&mut self, thread: u32) -> &mut Self {
        self.other(kind::THREAD, &[u64::from(thread)], &[]);
        self.thread = thread;
        self
    }

    fn tick(&mut self) -> u64 {
        self.time += 10;
        self.time
    }

    /// A record begins here: if it is the chunk's first, memory is forgotten.
    fn begin(&mut self) {
        if self.bytes.len() >= self.capacity {
            self.next_chunk();
        }
        if self.head.first_record.is_none() {
            self.head.first_record = Some(self.bytes.len());
            self.head.first_event = self.number;
            self.head.first_time = self.memory.time;
            self.head.first_thread = self.thread;
            let time = self.memory.time;
            self.memory.forget(time);
        }
    }

    fn put(&mut self, head: Vec<u8>, blobs: BlobList, event: bool) -> &mut Self {
        let mut record = head;
        for (tag, bytes) in blobs {
            record.extend(self::head(|h| h.blob(*tag, bytes.len())));
            record.extend_from_slice(bytes);
        }
        let mut rest = record.as_slice();
        loop {
            let room = self
                .capacity
                .saturating_sub(self.bytes.len())
                .min(rest.len());
            let (now, later) = rest.split_at(room);
            self.bytes.extend_from_slice(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
            self.next_chunk();
        }
        if event {
            self.number += 1;
        }
        self
    }

    fn next_chunk(&mut self) {
        let next = fresh_head(self.process, self.head.seq + 1);
        self.head.used = self.bytes.len();
        let mut bytes = std::mem::replace(&mut self.bytes, vec![0; CHUNK_HEAD]);
        bytes.splice(..CHUNK_HEAD, self.head.to_bytes());
        self.chunks.push(bytes);
        self.head = next;
    }

    /// The chunks, the last one as full as it is.
    pub fn chunks(mut self) -> Vec<Vec<u8>> {
        self.next_chunk();
        self.chunks
    }
}

fn fresh_head(process: u32, seq: u32) -> ChunkHead {
    ChunkHead {
        process,
        seq,
        used: CHUNK_HEAD,
        first_record: None,
        first_event: 0,
        first_time: 0,
        first_thread: 0,
    }
}

fn six(args: &[u64]) -> ([u64; 6], usize) {
    let mut all = [0; 6];
    for (place, arg) in all.iter_mut().zip(args) {
        *place = *arg;
    }
    (all, args.len().min(6))
}

/// A manifest for a clock of one tick per nanosecond that starts at tick 1000.
pub fn manifest(command: &[&str]) -> Manifest {
    let clock = Clock {
        ticks: Ticks(1000),
        realtime_ns: 1_700_000_000_000_000_000,
        ticks_per_second: 1_000_000_000,
    };
    let command = command.iter().map(|arg| arg.to_string()).collect();
    Manifest {
        // Whatever whoever runs this has open.
        descriptors: Vec::new(),
        started_ns: clock.realtime_ns,
        clock,
        ..Manifest::here(command)
    }
}

/// The start of an image.
pub fn image(process: u32, image: u32, pid: u32, argv: &[&str]) -> ImageStart {
    ImageStart {
        process: ProcessNo(process),
        image: ImageNo(image),
        pid,
        sigmask: 0,
        ignored: 0,
        name: Vec::new(),
        exe: format!("/usr/bin/{}", argv.first().copied().unwrap_or("true")).into_bytes(),
        argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        cwd: b"/home".to_vec(),
        time: Ticks(1000),
        ..ImageStart::default()
    }
}

/// Writes an arena that holds these chunks, with these states, in this order.
pub fn write_arena(path: &Path, chunks: &[(u32, &[u8])]) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path)?;
    let magic_at = std::mem::offset_of!(Control, magic) as u64;
    file.write_all_at(&ARENA_MAGIC.to_le_bytes(), magic_at)?;
    let states = std::mem::offset_of!(Control, chunk_state) as u64;
    let mut place = 0u64;
    for (state, bytes) in chunks {
        // Chunks lie anywhere.
        place += 3;
        file.write_all_at(&state.to_le_bytes(), states + 4 * place)?;
        file.write_all_at(bytes, CHUNKS_OFFSET + place * CHUNK_SIZE as u64)?;
    }
    file.set_len(CHUNKS_OFFSET + (place + 1) * CHUNK_SIZE as u64)
}

/// The state of a chunk that is being written.
pub const TAKEN: u32 = chunk_state::TAKEN;
/// The state of a chunk that is full.
pub const FULL: u32 = chunk_state::FULL;

/// The bytes of a head.
fn head(write: impl FnOnce(&mut Head<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_MAX];
    let mut head = Head::new(&mut bytes);
    write(&mut head);
    let len = head.len();
    bytes.truncate(len);
    bytes
}
