//! A recording that grows, copied to another place as it does.
//!
//! Who has a copy says how much of it that is ([`Had`]), and is told what is new since, in
//! [pieces](Piece): nothing goes twice over the line between them but what the arena held
//! and the journal holds now. A [`Mirror`] puts them where they belong. It is a directory that
//! is opened as the recording itself is, at any moment: what leaves the arena is in the
//! journal before its place is taken, and the length of a chunk is told after its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use protocol::shared::{
    ARENA_MAGIC, CHUNK_HEAD, CHUNK_SIZE, CHUNKS_MAX, CHUNKS_OFFSET, ChunkHead as Shared, Control,
    chunk_state,
};
use serde::{Deserialize, Serialize};

use crate::arena::Arena;
use crate::chunk::ChunkHead;
use crate::error::OpenError;
use crate::recording::read_manifest;

/// How much of a recording somebody has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Had {
    /// The files that are made once.
    files: Vec<String>,
    /// Captured files, by their names.
    captured: BTreeSet<String>,
    /// Length of the journal.
    journal: u64,
    /// What stands at the places of the arena.
    chunks: BTreeMap<u32, Part>,
}

/// A chunk, as far as somebody has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    process: u32,
    seq: u32,
    used: u32,
}

/// A part of what is new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// A file that is made once.
    File {
        /// Its name.
        name: String,
        /// What it holds.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A captured file, which is whole and does not change: only its name. It has to be
    /// in the copy before this is taken.
    Captured {
        /// Its name among the captured files.
        name: String,
    },
    /// The journal's next bytes.
    Journal {
        /// Where they stand.
        from: u64,
        /// Them.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The next bytes of a chunk in the arena.
    Chunk {
        /// Its place.
        place: u32,
        /// Its head, which says how long it is.
        #[serde(with = "serde_bytes")]
        head: Vec<u8>,
        /// Where they stand in it.
        from: u32,
        /// Them.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Nothing stands there any more.
    Free {
        /// The place.
        place: u32,
    },
}

impl Had {
    /// As bytes, for who is to tell what is new.
    pub fn to_bytes(&self) -> Vec<u8> {
        written(self)
    }

    /// What such bytes say, if they do.
    pub fn from_bytes(bytes: &[u8]) -> Option<Had> {
        postcard::from_bytes(bytes).ok()
    }
}

impl Piece {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        written(self)
    }

    /// What such bytes say, if they do.
    pub fn from_bytes(bytes: &[u8]) -> Option<Piece> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Neither has anything that could not be written; what could not is nothing to whoever
/// reads it.
fn written<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

/// A recording that grows, where it does.
pub struct Source {
    dir: PathBuf,
    observation: u32,
    /// Files that are made once, if they are at all.
    once: Vec<String>,
}

impl Source {
    /// The recording in `dir`; besides what any recording has, there may be files of these
    /// names.
    pub fn open(dir: &Path, besides: &[&str]) -> Result<Source, OpenError> {
        let manifest = read_manifest(dir)?;
        let known = [crate::MANIFEST, crate::names::NAMES].into_iter();
        Ok(Source {
            dir: dir.to_path_buf(),
            observation: manifest.observed.map_or(0, |own| own.number),
            once: known
                .chain(besides.iter().copied())
                .map(str::to_string)
                .collect(),
        })
    }

    /// Tells what is new to who has so much of it, in pieces of not much more than `most`
    /// bytes: whether there was anything.
    pub fn news(
        &self,
        had: &Had,
        most: usize,
        mut take: impl FnMut(Piece) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut any = false;
        let mut take = |piece| {
            any = true;
            take(piece)
        };
        // The arena first: what leaves it meanwhile is in the journal then. Told in the
        // other order, for the same reason.
        let chunks = self.chunks(had)?;
        for name in self.once.iter().filter(|name| !had.files.contains(name)) {
            match std::fs::read(self.dir.join(name)) {
                Ok(bytes) => take(Piece::File {
                    name: name.clone(),
                    bytes,
                })?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let mut journal = File::open(self.dir.join(crate::JOURNAL))?;
        let mut from = journal.seek(SeekFrom::Start(had.journal))?;
        let mut rest = journal.metadata()?.len().saturating_sub(from);
        // What the journal names so far is there, and is told before it.
        for name in captured(&self.dir)? {
            if !had.captured.contains(&name) {
                take(Piece::Captured { name })?;
            }
        }
        while rest > 0 {
            let mut bytes = Vec::new();
            let piece = (&mut journal).take(rest.min(most as u64));
            let got = { piece }.read_to_end(&mut bytes)? as u64;
            if got == 0 {
                break;
            }
            take(Piece::Journal { from, bytes })?;
            from += got;
            rest -= got;
        }
        for piece in chunks {
            take(piece)?;
        }
        Ok(any)
    }

    /// What is new in the arena.
    fn chunks(&self, had: &Had) -> io::Result<Vec<Piece>> {
        let arena = Arena::open(&self.dir.join(crate::ARENA))?;
        let found = match &arena {
            Some(arena) => arena.chunks(self.observation)?,
            None => Vec::new(),
        };
        let mut new = Vec::new();
        let mut there = Vec::new();
        let mut bytes = Vec::new();
        for (place, head) in found {
            let known = had.chunks.get(&place);
            let known = known.filter(|part| part.process == head.process && part.seq == head.seq);
            let from = known.map_or(CHUNK_HEAD, |part| part.used as usize);
            if known.is_some() && from >= head.used {
                there.push(place);
                continue;
            }
            let is_there = match &arena {
                Some(arena) => arena.chunk(place, &head, &mut bytes)?,
                None => false,
            };
            // What has left its place meanwhile is in the journal.
            if !is_there {
                continue;
            }
            there.push(place);
            let mut own = bytes.get(..CHUNK_HEAD).unwrap_or_default().to_vec();
            put(&mut own, offset_of!(Shared, used), head.used as u32);
            new.push(Piece::Chunk {
                place,
                head: own,
                from: from as u32,
                bytes: bytes.get(from..head.used).unwrap_or_default().to_vec(),
            });
        }
        let gone = had.chunks.keys().filter(|place| !there.contains(place));
        new.extend(gone.map(|place| Piece::Free { place: *place }));
        Ok(new)
    }
}

/// The captured files of a recording: those that are whole.
fn captured(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir.join(crate::FILES)) {
        Ok(entries) => entries,
        // What is observed has none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.retain(|name| is_id(name));
    Ok(names)
}

/// Whether it is the name of a captured file.
fn is_id(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit()) && name.parse::<u64>().is_ok()
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    let place = bytes.iter_mut().skip(at);
    for (byte, new) in place.zip(value.to_le_bytes()) {
        *byte = new;
    }
}

/// A copy of a recording that grows somewhere else.
pub struct Mirror {
    dir: PathBuf,
    had: Had,
    journal: File,
    arena: File,
}

impl Mirror {
    /// Makes an empty one in `dir`, which is there. It can be opened when it has its
    /// manifest.
    pub fn create(dir: &Path) -> io::Result<Mirror> {
        let make = |name: &str| File::create(dir.join(name));
        std::fs::create_dir_all(dir.join(crate::FILES))?;
        let (journal, arena) = (make(crate::JOURNAL)?, make(crate::ARENA)?);
        arena.write_all_at(
            &ARENA_MAGIC.to_le_bytes(),
            offset_of!(Control, magic) as u64,
        )?;
        Ok(Mirror {
            dir: dir.to_path_buf(),
            had: Had::default(),
            journal,
            arena,
        })
    }

    /// Where a captured file of this name belongs.
    pub fn place_of(&self, name: &str) -> PathBuf {
        self.dir.join(crate::FILES).join(name)
    }

    /// How much of it is here.
    pub fn had(&self) -> &Had {
        &self.had
    }

    /// Puts a piece where it belongs. Who tells it may be anybody.
    pub fn take(&mut self, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::File { name, bytes } => {
                let is_plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
                let is_grown = [crate::JOURNAL, crate::ARENA].contains(&name.as_str());
                if !is_plain || is_grown {
                    return Err(odd());
                }
                let fresh = self.dir.join(format!(".{name}"));
                std::fs::write(&fresh, bytes)?;
                std::fs::rename(&fresh, self.dir.join(&name))?;
                self.had.files.push(name);
                Ok(())
            }
            Piece::Captured { name } => {
                if !is_id(&name) || !self.place_of(&name).is_file() {
                    return Err(odd());
                }
                self.had.captured.insert(name);
                Ok(())
            }
            Piece::Journal { from, bytes } => {
                if from != self.had.journal {
                    return Err(odd());
                }
                self.journal.write_all_at(&bytes, from)?;
                self.had.journal += bytes.len() as u64;
                Ok(())
            }
            Piece::Chunk {
                place,
                head,
                from,
                bytes,
            } => self.chunk(place, head, from, &bytes),
            Piece::Free { place } => {
                self.had.chunks.remove(&place);
                self.state(place, chunk_state::FREE)
            }
        }
    }

    fn chunk(&mut self, place: u32, mut head: Vec<u8>, from: u32, bytes: &[u8]) -> io::Result<()> {
        let own = ChunkHead::parse(&head).map_err(|_| odd())?;
        let begins = from as usize;
        let is_whole = head.len() == CHUNK_HEAD
            && (CHUNK_HEAD..=CHUNK_SIZE).contains(&begins)
            && begins + bytes.len() == own.used
            && (place as usize) < CHUNKS_MAX;
        let known = self.had.chunks.get(&place);
        let known = known.filter(|part| part.process == own.process && part.seq == own.seq);
        if !is_whole || known.map_or(CHUNK_HEAD, |part| part.used as usize) != begins {
            return Err(odd());
        }
        let at = CHUNKS_OFFSET + u64::from(place) * CHUNK_SIZE as u64;
        if known.is_none() {
            // Whoever reads what stood there sees that it does not any more.
            let mut bare = head.clone();
            put(&mut bare, offset_of!(Shared, used), CHUNK_HEAD as u32);
            self.arena.write_all_at(&bare, at)?;
        }
        self.arena.write_all_at(bytes, at + u64::from(from))?;
        put(&mut head, offset_of!(Shared, used), own.used as u32);
        self.arena.write_all_at(&head, at)?;
        self.state(place, chunk_state::TAKEN)?;
        let part = Part {
            process: own.process,
            seq: own.seq,
            used: own.used as u32,
        };
        self.had.chunks.insert(place, part);
        Ok(())
    }

    fn state(&self, place: u32, state: u32) -> io::Result<()> {
        if place as usize >= CHUNKS_MAX {
            return Err(odd());
        }
        let at = offset_of!(Control, chunk_state) as u64 + u64::from(place) * 4;
        self.arena.write_all_at(&state.to_le_bytes(), at)
    }
}

fn odd() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "what was told of the recording does not fit what was told before",
    )
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]
mod tests {
    use super::*;
    use crate::model::Observed;
    use crate::synthetic::{LogBuilder, image, manifest, write_arena};
    use crate::{Recording, Writer};
    use protocol::id::ProcessNo;

    const GETPID: u64 = 39;

    /// The log of a process that made so many calls.
    fn log(count: u64) -> Vec<Vec<u8>> {
        let mut log = LogBuilder::new(0, 256);
        for number in 0..count {
            log.at(100 + number).call(GETPID, &[], number as i64, &[]);
        }
        log.chunks()
    }

    fn results(dir: &Path) -> Vec<i64> {
        let recording = Recording::open(dir).unwrap();
        assert!(recording.damage().is_empty());
        let mut log = recording.log(ProcessNo(0));
        let mut found = Vec::new();
        while log.advance() {
            found.extend(log.event().and_then(|event| event.result));
        }
        found
    }

    /// What a copy lacks goes to it, by way of bytes: how many those are.
    fn catch_up(source: &Path, copy: &mut Mirror) -> usize {
        let had = Had::from_bytes(&copy.had().to_bytes()).unwrap();
        let mut went = 0;
        let source = Source::open(source, &["full"]).unwrap();
        let any = source.news(&had, 64, |piece| {
            let bytes = piece.to_bytes();
            went += bytes.len();
            copy.take(Piece::from_bytes(&bytes).unwrap())
        });
        assert_eq!(any.unwrap(), went > 0);
        went
    }

    #[test]
    fn a_copy_has_what_is_in_the_journal_and_in_the_arena_and_gets_what_is_new_only() {
        let scratch = tempfile::tempdir().unwrap();
        let (source, copied) = (scratch.path().join("a"), scratch.path().join("b"));
        for dir in [&source, &copied] {
            std::fs::create_dir(dir).unwrap();
        }
        let said = manifest(&["/bin/true"]);
        assert_eq!(said.observed, None::<Observed>);
        let writer = Writer::create(&source, &said).unwrap();
        writer.start(&image(0, 0, 7, &["/bin/true"])).unwrap();
        let mut copy = Mirror::create(&copied).unwrap();
        let arena = source.join(crate::ARENA);

        // In the arena, at a place that is not the first.
        let before = log(20);
        write_arena(&arena, &[(3, &before[0])]).unwrap();
        catch_up(&source, &mut copy);
        let seen = results(&copied);
        assert_eq!(seen, results(&source));
        assert!(!seen.is_empty());
        assert_eq!(catch_up(&source, &mut copy), 0);

        // More of it, another chunk beside it, and the first one in the journal, its place
        // taken by the next.
        let few = seen.len();
        let all = log(200);
        assert!(all.len() > 2);
        writer.chunk(&all[0]).unwrap();
        write_arena(&arena, &[(3, &all[2]), (4, &all[1])]).unwrap();
        let went = catch_up(&source, &mut copy);
        let seen = results(&copied);
        assert_eq!(seen, results(&source));
        assert!(seen.len() > few, "{}", seen.len());
        let new: usize = all.iter().take(3).map(Vec::len).sum();
        assert!(went < new + 600, "{went} {new}");

        // The arena is gone: all is in the journal.
        for chunk in all.iter().skip(1) {
            writer.chunk(chunk).unwrap();
        }
        std::fs::remove_file(&arena).unwrap();
        std::fs::write(source.join("full"), b"").unwrap();
        catch_up(&source, &mut copy);
        assert_eq!(results(&copied), (0..200).collect::<Vec<i64>>());
        assert!(copied.join("full").exists());
    }

    #[test]
    fn pieces_that_do_not_fit_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let mut copy = Mirror::create(scratch.path()).unwrap();
        let bytes = vec![1, 2, 3];
        let chunk = log(3).remove(0);
        let part = |place: u32, from: u32, rest: &[u8]| Piece::Chunk {
            place,
            head: chunk.get(..CHUNK_HEAD).unwrap().to_vec(),
            from,
            bytes: rest.to_vec(),
        };
        let body = chunk.get(CHUNK_HEAD..).unwrap();
        for piece in [
            Piece::File {
                name: "../x".to_string(),
                bytes: bytes.clone(),
            },
            Piece::File {
                name: crate::JOURNAL.to_string(),
                bytes: bytes.clone(),
            },
            Piece::Journal { from: 5, bytes },
            Piece::Free { place: u32::MAX },
            part(u32::MAX, CHUNK_HEAD as u32, body),
            part(0, u32::MAX, body),
            part(0, CHUNK_HEAD as u32 + 1, body),
            part(0, CHUNK_HEAD as u32, &[]),
        ] {
            assert!(copy.take(piece.clone()).is_err(), "{piece:?}");
        }
        assert_eq!(copy.had(), &Had::default());
        assert!(Had::from_bytes(&[255; 9]).is_none());
    }
}
