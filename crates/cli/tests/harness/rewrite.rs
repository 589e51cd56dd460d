//! Recordings that say something else than what happened, with every checksum
//! right.

use std::path::Path;

use protocol::record::Memory;
use protocol::shared::CHUNK_HEAD;
use recording::chunk::ChunkHead;
use recording::{FileInfo, ImageStart, Manifest, Note, Recording, Status, Summary, Writer};

/// All that a recording says.
pub struct Parts {
    pub manifest: Manifest,
    pub chunks: Vec<Chunk>,
    pub starts: Vec<ImageStart>,
    pub files: Vec<FileInfo>,
    pub notes: Vec<Note>,
    pub statuses: Vec<Status>,
    pub summary: Option<Summary>,
}

#[derive(Clone)]
pub struct Chunk {
    pub head: ChunkHead,
    /// What is behind the head.
    pub bytes: Vec<u8>,
}

/// Where a record is in its chunk, and of what kind.
#[derive(Clone, Copy, Debug)]
pub struct RecordAt {
    pub start: usize,
    pub end: usize,
    pub kind: u8,
    pub values: [u64; protocol::record::VALUES_MAX],
}

impl Chunk {
    /// The records that begin and end in it.
    pub fn records(&self) -> Vec<RecordAt> {
        let mut memory = Memory::new();
        memory.forget(self.head.first_time);
        let mut found = Vec::new();
        let Some(mut at) = self.head.first_record.map(|at| at - CHUNK_HEAD) else {
            return found;
        };
        while let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Ok((record, used)) = memory.read(rest) else {
                break;
            };
            found.push(RecordAt {
                start: at,
                end: at + used,
                kind: record.kind,
                values: record.values,
            });
            at += used;
        }
        found
    }

    /// Takes out what is in `range`.
    pub fn cut(&mut self, range: std::ops::Range<usize>) {
        self.bytes.drain(range);
        self.head.used = CHUNK_HEAD + self.bytes.len();
    }
}

impl Parts {
    pub fn read(dir: &Path) -> Parts {
        let recording = Recording::open(dir).unwrap();
        let mut chunks = Vec::new();
        for process in recording.processes() {
            recording.each_chunk(process.number, |head, bytes| {
                chunks.push(Chunk {
                    head: *head,
                    bytes: bytes.to_vec(),
                });
            });
        }
        let starts = recording.images().iter();
        Parts {
            manifest: recording.manifest().clone(),
            chunks,
            starts: starts.map(|i| recording.image_start(i).unwrap()).collect(),
            files: recording.files().to_vec(),
            notes: recording.notes().to_vec(),
            statuses: recording.statuses().to_vec(),
            summary: recording.summary().cloned(),
        }
    }

    /// Makes a recording of it in `to`, with the captured files of `from`.
    pub fn write(&self, from: &Path, to: &Path) {
        std::fs::create_dir(to).unwrap();
        link_files(from, to);
        let writer = Writer::create(to, &self.manifest).unwrap();
        for start in &self.starts {
            writer.start(start).unwrap();
        }
        for file in &self.files {
            writer.file(file).unwrap();
        }
        for note in &self.notes {
            writer.note(note).unwrap();
        }
        for chunk in &self.chunks {
            let mut bytes = chunk.head.to_bytes().to_vec();
            bytes.extend_from_slice(&chunk.bytes);
            // A head that is none is refused by whoever writes: left out.
            let _ = writer.chunk(&bytes);
        }
        for status in &self.statuses {
            writer.status(status).unwrap();
        }
        if let Some(summary) = &self.summary {
            writer.finish(summary).unwrap();
        }
    }
}

/// Captured files are never changed, so a link will do.
pub fn link_files(from: &Path, to: &Path) {
    let files = to.join(recording::FILES);
    std::fs::create_dir_all(&files).unwrap();
    for entry in std::fs::read_dir(from.join(recording::FILES)).unwrap() {
        let entry = entry.unwrap();
        std::fs::hard_link(entry.path(), files.join(entry.file_name())).unwrap();
    }
}

/// A copy of a recording that may be changed.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    link_files(from, to);
    for name in [recording::MANIFEST, recording::JOURNAL] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}
