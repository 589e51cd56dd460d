//! The index as bytes: in a file beside the recording, mapped, or in memory
//! where that cannot be written.
//!
//! A file that is damaged, cut short, of another version or of another
//! recording is not an index, and is made again. Its head is checked when it is
//! opened; every block is checked when it is first looked at, so that a question
//! that touches little reads little. Damage that is found then is remembered:
//! whoever asked must ask again of a new index.

use std::fs::File;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{BLOCK, Head, MAGIC, SECTIONS, Section, VERSION};

const HEAD: usize = size_of::<Head>();

enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// An index, open.
pub(crate) struct IndexFile {
    bytes: Bytes,
    head: Head,
    /// Offset of the checksums.
    table: usize,
    /// One bit for each block that was seen to be as it was written.
    whole: Vec<AtomicU64>,
    damaged: AtomicBool,
}

/// Part of a section. What is looked at is checked, and nothing else: a search
/// among millions of records reads a few blocks.
pub(crate) struct Records<'a, T> {
    index: &'a IndexFile,
    /// Offset of the first one.
    begin: usize,
    count: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Records<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Records<'_, T> {}

impl<'a, T: FromBytes + KnownLayout + Immutable + Unaligned + Copy + 'a> Records<'a, T> {
    /// Records that are read ahead of one who may stop at any.
    const AHEAD: usize = BLOCK / size_of::<T>() + 1;

    pub fn all(&self) -> &'a [T] {
        self.range(0, self.count)
    }

    pub fn get(&self, at: usize) -> Option<&'a T> {
        self.range(at, at.saturating_add(1)).first()
    }

    /// Those from one number up to another, as far as they are there.
    pub fn range(&self, from: usize, to: usize) -> &'a [T] {
        let to = to.min(self.count);
        let from = from.min(to);
        let begin = self.begin + from * size_of::<T>();
        let end = self.begin + to * size_of::<T>();
        let bytes = self.index.checked(begin, end);
        bytes
            .and_then(|bytes| <[T]>::ref_from_bytes(bytes).ok())
            .unwrap_or(&[])
    }

    /// How many of them, which come first, are so.
    pub fn partition_point(&self, is_so: impl Fn(&T) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle) {
                Some(record) if is_so(record) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// From this one on.
    pub fn forward(self, from: usize) -> impl Iterator<Item = &'a T> {
        let parts = (from..self.count).step_by(Self::AHEAD);
        parts.flat_map(move |part| self.range(part, part + Self::AHEAD))
    }

    /// Those from one number up to another, the last first.
    pub fn backward(self, from: usize, to: usize) -> impl Iterator<Item = &'a T> {
        let to = to.min(self.count);
        let parts = (0..to.saturating_sub(from).div_ceil(Self::AHEAD)).map(move |part| {
            let end = to - part * Self::AHEAD;
            (end.saturating_sub(Self::AHEAD).max(from), end)
        });
        parts.flat_map(move |(begin, end)| self.range(begin, end).iter().rev())
    }
}

/// Puts the sections together.
pub(crate) struct Builder {
    bytes: Vec<u8>,
    sections: [[u64; 2]; SECTIONS],
}

impl Builder {
    pub fn new() -> Builder {
        Builder {
            bytes: vec![0; HEAD],
            sections: [[0; 2]; SECTIONS],
        }
    }

    /// Appends a section. They may come in any order.
    pub fn section<T: IntoBytes + Immutable>(&mut self, section: Section, records: &[T]) {
        if let Some(entry) = self.sections.get_mut(section as usize) {
            *entry = [self.bytes.len() as u64, records.len() as u64];
        }
        self.bytes.extend_from_slice(records.as_bytes());
    }

    /// The whole file.
    pub fn finish(mut self, recording: u64, counts: [u64; 3]) -> Vec<u8> {
        let table: Vec<U64> = self
            .bytes
            .get(HEAD..)
            .unwrap_or(&[])
            .chunks(BLOCK)
            .map(|block| U64::new(xxh3_64(block)))
            .collect();
        let [events, guesses, dropped] = counts;
        let mut head = Head {
            magic: MAGIC,
            version: VERSION.into(),
            block: (BLOCK as u32).into(),
            recording: recording.into(),
            len: ((self.bytes.len() + 8 * table.len()) as u64).into(),
            blocks: (table.len() as u64).into(),
            events: events.into(),
            guesses: guesses.into(),
            dropped: dropped.into(),
            sections: self.sections.map(|pair| pair.map(U64::new)),
            table: xxh3_64(table.as_bytes()).into(),
            own: U64::ZERO,
        };
        head.own = xxh3_64(head.as_bytes()).into();
        self.bytes.extend_from_slice(table.as_bytes());
        if let Some(place) = self.bytes.get_mut(..HEAD) {
            place.copy_from_slice(head.as_bytes());
        }
        self.bytes
    }
}

impl IndexFile {
    /// Opens the index in a file; `None` if there is none of this recording.
    pub fn open(path: &Path, recording: u64) -> Option<IndexFile> {
        let file = File::open(path).ok()?;
        let map = map(&file).ok()?;
        IndexFile::new(Bytes::Mapped(map), recording)
    }

    /// An index in memory.
    pub fn owned(bytes: Vec<u8>, recording: u64) -> Option<IndexFile> {
        IndexFile::new(Bytes::Owned(bytes), recording)
    }

    fn new(bytes: Bytes, recording: u64) -> Option<IndexFile> {
        let all = bytes.get();
        let (head, _) = Head::read_from_prefix(all).ok()?;
        let mut unsigned = head;
        unsigned.own = U64::ZERO;
        let fits = head.magic == MAGIC
            && head.version.get() == VERSION
            && head.block.get() as usize == BLOCK
            && head.recording.get() == recording
            && head.len.get() == all.len() as u64
            && head.own.get() == xxh3_64(unsigned.as_bytes());
        if !fits {
            return None;
        }
        let blocks = usize::try_from(head.blocks.get()).ok()?;
        let table = all.len().checked_sub(blocks.checked_mul(8)?)?;
        if xxh3_64(all.get(table..)?) != head.table.get() {
            return None;
        }
        let mut whole = Vec::new();
        whole.resize_with(blocks.div_ceil(64), AtomicU64::default);
        Some(IndexFile {
            head,
            table,
            whole,
            damaged: AtomicBool::new(false),
            bytes,
        })
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Whether something that was looked at is not as it was written.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    fn hurt(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// How many records a section has.
    pub fn len(&self, section: Section) -> usize {
        let entry = self.head.sections.get(section as usize);
        entry.map_or(0, |entry| entry[1].get() as usize)
    }

    /// `count` records of a section, from number `from` on. None if there are
    /// fewer: then the index is damaged.
    pub fn records<T>(&self, section: Section, from: usize, count: usize) -> Records<'_, T> {
        let begin = self.offset::<T>(section, from, count);
        if begin.is_none() {
            self.hurt();
        }
        Records {
            index: self,
            begin: begin.unwrap_or(HEAD),
            count: if begin.is_some() { count } else { 0 },
            kind: PhantomData,
        }
    }

    /// Where so many records of a section begin, if it has them.
    fn offset<T>(&self, section: Section, from: usize, count: usize) -> Option<usize> {
        let [offset, len] = self.head.sections.get(section as usize)?;
        if from.checked_add(count)? > len.get() as usize {
            return None;
        }
        let offset = offset.get() as usize;
        let begin = offset.checked_add(from.checked_mul(size_of::<T>())?)?;
        let end = begin.checked_add(count.checked_mul(size_of::<T>())?)?;
        (begin >= HEAD && end <= self.table).then_some(begin)
    }

    /// Bytes of which every block is as it was written.
    fn checked(&self, begin: usize, end: usize) -> Option<&[u8]> {
        if begin < end {
            let blocks = (begin - HEAD) / BLOCK..=(end - 1 - HEAD) / BLOCK;
            if !blocks.into_iter().all(|block| self.is_whole(block)) {
                self.hurt();
                return None;
            }
        }
        self.bytes.get().get(begin..end)
    }

    /// How many bytes were looked at so far.
    pub fn looked_at(&self) -> u64 {
        let words = self.whole.iter();
        let blocks: u32 = words
            .map(|word| word.load(Ordering::Relaxed).count_ones())
            .sum();
        u64::from(blocks) * BLOCK as u64
    }

    fn is_whole(&self, block: usize) -> bool {
        let Some(word) = self.whole.get(block / 64) else {
            return false;
        };
        let bit = 1u64 << (block % 64);
        if word.load(Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let all = self.bytes.get();
        let from = HEAD + block * BLOCK;
        let data = all.get(from..(from + BLOCK).min(self.table));
        let at = self.table + 8 * block;
        let wanted = all
            .get(at..at + 8)
            .and_then(|b| U64::read_from_bytes(b).ok());
        let whole = match (data, wanted) {
            (Some(data), Some(wanted)) => xxh3_64(data) == wanted.get(),
            _ => false,
        };
        if whole {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        whole
    }
}

#[allow(
    unsafe_code,
    reason = "mapping a file is what makes opening an index instant"
)]
fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: an index is written under another name and renamed when it is
    // whole, and never written to again: nobody changes the mapped file in
    // place. (One who cuts it short from outside gets what the kernel does to
    // such readers, SIGBUS; no rule of Rust's is broken by bytes that change,
    // because they are only ever copied out as plain numbers.)
    unsafe { memmap2::Mmap::map(file) }
}

/// Writes an index so that it is there whole or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".{}", std::process::id()));
    let temporary = Path::new(&name);
    let mut file = File::create(temporary)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| std::fs::rename(temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(temporary);
    }
    written
}
