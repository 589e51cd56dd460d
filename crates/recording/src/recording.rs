//! Opening a recording.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use protocol::id::{EventNo, ImageNo, ProcessNo, Ticks};

use crate::arena::Arena;
use crate::catalog;
use crate::chunk::ChunkHead;
use crate::error::OpenError;
use crate::frame::{self, Kind};
use crate::journal::{Damage, Frame, FrameError, Journal};
use crate::later::Later;
use crate::log::Log;
use crate::model::{Clock, FileInfo, ImageStart, Manifest, Note, Status, Summary};
use crate::names::Names;
use crate::process::{self, Pids, Process};

/// Where a chunk of a log is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkRef {
    pub seq: u32,
    /// First event that begins in it, or [`frame::NO_EVENT`].
    pub first_event: u64,
    /// Its length, head included, not compressed.
    pub raw_len: u32,
    /// Its length in the journal; 0 in the arena.
    pub stored_len: u32,
    storage: Storage,
}

/// What holds the bytes of a chunk: a frame of the journal, or, until they are
/// written there, a slot of the arena.
#[derive(Clone, Copy, Debug)]
enum Storage {
    Journal(Frame),
    Arena { slot: u32, head: ChunkHead },
}

/// What is remembered of an image (see [`Recording::image_start`] for all).
#[derive(Clone, Debug)]
pub struct Image {
    /// Number of the process.
    pub process: ProcessNo,
    /// How many images it had before.
    pub image: ImageNo,
    /// The kernel's id of the process.
    pub pid: u32,
    /// The name it was executed by.
    pub name: Vec<u8>,
    /// Path of the executable.
    pub exe: Vec<u8>,
    /// Arguments.
    pub argv: Vec<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// When.
    pub time: Ticks,
    frame: Frame,
}

impl Image {
    /// Last part of the name it was executed by; of the executable's path if
    /// that was only a descriptor.
    pub fn program(&self) -> String {
        let by_descriptor = self.name.is_empty()
            || self.name.starts_with(b"/dev/fd/")
            || self.name.starts_with(b"/proc/");
        let path = if by_descriptor { &self.exe } else { &self.name };
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        String::from_utf8_lossy(name).into_owned()
    }
}

/// An open recording.
pub struct Recording {
    dir: PathBuf,
    manifest: Manifest,
    clock: Clock,
    journal: Journal,
    arena: Option<Arena>,
    later: Later,
    logs: BTreeMap<ProcessNo, Vec<ChunkRef>>,
    images: Vec<Image>,
    files: Vec<FileInfo>,
    notes: Vec<Note>,
    statuses: Vec<Status>,
    summary: Option<Summary>,
    damage: Vec<Damage>,
    processes: Vec<Process>,
    by_number: HashMap<ProcessNo, usize>,
    by_name: HashMap<String, ProcessNo>,
    pids: Pids,
    /// Indexes in `statuses`, by process.
    ended: HashMap<ProcessNo, usize>,
    names: Names,
    /// What the beginnings of the logs say was known without reading them.
    catalogued: bool,
}

impl Recording {
    /// Opens the recording in `dir`. One that was cut short opens as well,
    /// and so does one that is damaged, as far as it can be read: see
    /// [`Recording::damage`] and [`Recording::is_complete`].
    pub fn open(dir: &Path) -> Result<Recording, OpenError> {
        let manifest = read_manifest(dir)?;
        // The arena first: what leaves it meanwhile is in the journal then.
        let arena_path = dir.join(crate::ARENA);
        let arena = Arena::open(&arena_path).map_err(|error| OpenError::io(&arena_path, error))?;
        let observation = manifest.observed.as_ref().map_or(0, |own| own.number);
        let left = match &arena {
            Some(arena) => arena
                .chunks(observation)
                .map_err(|error| OpenError::io(&arena_path, error))?,
            None => Vec::new(),
        };
        let journal_path = dir.join(crate::JOURNAL);
        let journal = match Journal::open(&journal_path) {
            Ok(journal) => journal,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Missing {
                    path: dir.to_path_buf(),
                    missing: "its journal",
                });
            }
            Err(error) => return Err(OpenError::io(&journal_path, error)),
        };

        let mut recording = Recording {
            dir: dir.to_path_buf(),
            clock: manifest.clock,
            manifest,
            journal,
            arena,
            later: Later::new(&journal_path),
            logs: BTreeMap::new(),
            images: Vec::new(),
            files: Vec::new(),
            notes: Vec::new(),
            statuses: Vec::new(),
            summary: None,
            damage: Vec::new(),
            processes: Vec::new(),
            by_number: HashMap::new(),
            by_name: HashMap::new(),
            pids: Pids::default(),
            ended: HashMap::new(),
            names: Names::load(dir)?,
            catalogued: false,
        };
        recording.index(left)?;
        recording.clock = refined(&recording.manifest, recording.summary.as_ref());
        let whole = recording.arena.is_none() && recording.damage.is_empty();
        let count = recording.process_numbers().len();
        let known = whole.then(|| catalog::load(dir, count)).flatten();
        recording.catalogued = known.is_some();
        let mut processes = process::find(&recording, known);
        let original: Vec<(String, ProcessNo)> = processes
            .iter()
            .flat_map(|process| {
                let names = [Some(process.name.clone()), process.other_name.clone()];
                let names = names.into_iter().flatten();
                names.map(|name| (name, process.number))
            })
            .collect();
        for process in &mut processes {
            if let Some(name) = recording.names.processes.get(&process.number) {
                process.name = name.clone();
            }
        }
        recording.set_processes(processes);
        // Who was renamed still answers to its first name, if nobody else does.
        for (name, number) in original {
            recording.by_name.entry(name).or_insert(number);
        }
        Ok(recording)
    }

    /// Reads everything in the journal but the chunks, and notes where those
    /// are, there and in the arena.
    fn index(&mut self, left: Vec<(u32, ChunkHead)>) -> Result<(), OpenError> {
        let (frames, damage) = self.journal.walk().map_err(|e| self.unreadable(e))?;
        self.damage = damage;
        let mut chunks: BTreeMap<(ProcessNo, u32), ChunkRef> = BTreeMap::new();
        for frame in frames {
            // Frames of kinds that a later version added are stepped over.
            let Some(kind) = Kind::from_number(frame.head.kind) else {
                continue;
            };
            if kind == Kind::Chunk {
                let key = (ProcessNo(frame.head.process), frame.head.seq);
                let chunk = ChunkRef {
                    seq: frame.head.seq,
                    first_event: frame.head.first_event,
                    raw_len: frame.head.raw_len,
                    stored_len: frame.head.stored_len + frame::HEAD as u32,
                    storage: Storage::Journal(frame),
                };
                // Of two with one name one may be another, its head damaged.
                let Some(other) = chunks.get(&key) else {
                    chunks.insert(key, chunk);
                    continue;
                };
                let is_better = self.load(other, key.0, &mut Vec::new()).is_err();
                let worse = if is_better {
                    chunks.insert(key, chunk)
                } else {
                    Some(chunk)
                };
                if let Some(worse) = worse
                    && let Storage::Journal(frame) = worse.storage
                    && (is_better || self.load(&worse, key.0, &mut Vec::new()).is_err())
                {
                    self.damage.push(Damage::of(&frame));
                }
                continue;
            }
            if let Err(error) = self.take(kind, frame) {
                match error {
                    FrameError::Damaged { .. } => self.damage.push(Damage::of(&frame)),
                    error => return Err(self.unreadable(error)),
                }
            }
        }
        for (slot, head) in left {
            let key = (ProcessNo(head.process), head.seq);
            let better = match chunks.get(&key) {
                None => true,
                Some(journalled) => self.load(journalled, key.0, &mut Vec::new()).is_err(),
            };
            if better {
                let first_event = match head.first_record {
                    Some(_) => head.first_event,
                    None => frame::NO_EVENT,
                };
                let chunk = ChunkRef {
                    seq: head.seq,
                    first_event,
                    raw_len: head.used as u32,
                    stored_len: 0,
                    storage: Storage::Arena { slot, head },
                };
                chunks.insert(key, chunk);
            }
        }
        for ((process, _), chunk) in chunks {
            self.logs.entry(process).or_default().push(chunk);
        }
        Ok(())
    }

    fn take(&mut self, kind: Kind, frame: Frame) -> Result<(), FrameError> {
        match kind {
            Kind::Chunk => {}
            Kind::Start => {
                let start: ImageStart = self.journal.value(&frame)?;
                self.images.push(Image {
                    process: start.process,
                    image: start.image,
                    pid: start.pid,
                    name: start.name,
                    exe: start.exe,
                    argv: start.argv,
                    cwd: start.cwd,
                    time: start.time,
                    frame,
                });
            }
            Kind::File => self.files.push(self.journal.value(&frame)?),
            Kind::Note => self.notes.push(self.journal.value(&frame)?),
            Kind::Status => self.statuses.push(self.journal.value(&frame)?),
            Kind::End => self.summary = Some(self.journal.value(&frame)?),
        }
        Ok(())
    }

    fn unreadable(&self, error: FrameError) -> OpenError {
        let source = match error {
            FrameError::Io { source, .. } => source,
            error => io::Error::other(error.to_string()),
        };
        OpenError::io(self.journal.path(), source)
    }

    fn set_processes(&mut self, processes: Vec<Process>) {
        self.by_number = processes
            .iter()
            .enumerate()
            .map(|(i, process)| (process.number, i))
            .collect();
        self.by_name = processes
            .iter()
            .map(|process| (process.name.clone(), process.number))
            .collect();
        self.pids = Pids::new(&processes);
        for (i, status) in self.statuses.iter().enumerate() {
            let meant = status
                .process
                .or_else(|| self.pids.at(0, status.pid, status.time));
            if let Some(number) = meant {
                self.ended.entry(number).or_insert(i);
            }
        }
        self.processes = processes;
        // A chunk of nobody is somebody's: the process in its head is wrong.
        let of_nobody = self.logs.iter();
        let of_nobody = of_nobody.filter(|(process, _)| !self.by_number.contains_key(process));
        for chunk in of_nobody.flat_map(|(_, chunks)| chunks) {
            if let Storage::Journal(frame) = &chunk.storage {
                self.damage.push(Damage::of(frame));
            }
        }
        self.damage.sort_by_key(|damage| damage.at);
    }

    /// Reads a chunk, from its head to its `used`. On failure says why.
    pub(crate) fn load(
        &self,
        chunk: &ChunkRef,
        process: ProcessNo,
        out: &mut Vec<u8>,
    ) -> Result<ChunkHead, String> {
        match &chunk.storage {
            Storage::Journal(frame) => {
                self.journal
                    .payload(frame, out)
                    .map_err(|error| error.to_string())?;
                let head = ChunkHead::parse(out).map_err(str::to_string)?;
                if head.process != process.0 || head.seq != chunk.seq || head.used != out.len() {
                    return Err("its head does not agree with the journal".to_string());
                }
                Ok(head)
            }
            Storage::Arena { slot, head } => {
                let arena = self.arena.as_ref().ok_or("the arena is gone")?;
                let still_there = arena
                    .chunk(*slot, head, out)
                    .map_err(|error| format!("the arena cannot be read: {error}"))?;
                if !still_there {
                    // The recording goes on: it was written to the journal since.
                    self.later.load((process, chunk.seq), head.used, out)?;
                }
                Ok(*head)
            }
        }
    }

    /// Where the recording is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What was run, where and when.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How ticks become time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The end of the recording, if it came to one.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Whether the recording holds the whole run: it came to its end, and
    /// nothing of the journal is damaged.
    pub fn is_complete(&self) -> bool {
        self.summary
            .as_ref()
            .is_some_and(|summary| summary.complete)
            && self.damage.is_empty()
    }

    /// Whether it has an arena: it is under way or was cut short.
    pub fn has_arena(&self) -> bool {
        self.arena.is_some()
    }

    /// What of the journal cannot be read.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Length of the journal.
    pub fn journal_len(&self) -> u64 {
        self.journal.len
    }

    /// What the recorder noted.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Captured files.
    pub fn files(&self) -> &[FileInfo] {
        &self.files
    }

    /// Where the captured file `id` is.
    pub fn captured_path(&self, id: u64) -> PathBuf {
        crate::captured_path(&self.dir, id)
    }

    /// How processes ended, as the recorder saw it.
    pub fn statuses(&self) -> &[Status] {
        &self.statuses
    }

    /// What the recorder saw of the end of a process.
    pub fn status_of(&self, process: &Process) -> Option<&Status> {
        self.statuses.get(*self.ended.get(&process.number)?)
    }

    pub(crate) fn pids(&self) -> &Pids {
        &self.pids
    }

    /// All images, in the order they were started.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// All that an image started from.
    pub fn image_start(&self, image: &Image) -> Result<ImageStart, OpenError> {
        self.journal
            .value(&image.frame)
            .map_err(|error| self.unreadable(error))
    }

    /// The processes, in order of birth.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The process with this number.
    pub fn process(&self, number: ProcessNo) -> Option<&Process> {
        self.processes.get(*self.by_number.get(&number)?)
    }

    /// Where the process with this number stands among [`Recording::processes`].
    pub fn index_of(&self, number: ProcessNo) -> Option<u32> {
        self.by_number.get(&number).map(|index| *index as u32)
    }

    /// The process with this name.
    pub fn process_named(&self, name: &str) -> Option<&Process> {
        self.process(*self.by_name.get(name)?)
    }

    /// The names that people gave.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Numbers of all processes that have a log or an image.
    pub(crate) fn process_numbers(&self) -> BTreeSet<ProcessNo> {
        let images = self.images.iter().map(|image| image.process);
        self.logs.keys().copied().chain(images).collect()
    }

    pub(crate) fn is_catalogued(&self) -> bool {
        self.catalogued
    }

    pub(crate) fn chunks(&self, process: ProcessNo) -> &[ChunkRef] {
        self.logs.get(&process).map_or(&[], Vec::as_slice)
    }

    /// The chunks of a process's log, in order: calls `take` with each one's
    /// head and the bytes behind it. Ends at the first that cannot be read.
    pub fn each_chunk(&self, process: ProcessNo, mut take: impl FnMut(&ChunkHead, &[u8])) {
        let mut bytes = Vec::new();
        let mut seq = None;
        for chunk in self.chunks(process) {
            if seq.is_some_and(|seq| chunk.seq != seq) {
                return;
            }
            seq = Some(chunk.seq.wrapping_add(1));
            match self.load(chunk, process, &mut bytes) {
                Ok(head) => take(
                    &head,
                    bytes.get(protocol::shared::CHUNK_HEAD..).unwrap_or(&[]),
                ),
                Err(_) => return,
            }
        }
    }

    /// The log of a process, from its beginning. (Empty if there is no such
    /// process.)
    pub fn log(&self, process: ProcessNo) -> Log<'_> {
        Log::new(self, process, self.chunks(process))
    }

    /// The log of a process, so that the next events lead to event `number`
    /// soon. Use [`Log::advance_to`] from there.
    pub fn log_near(&self, process: ProcessNo, number: EventNo) -> Log<'_> {
        Log::near(self, process, self.chunks(process), number, 0).0
    }

    /// The log of a process, at event `number`; `None` if there is none. An event
    /// that ends a call has what is known of its start, however far before it that
    /// is: twice as much is read each time until it is found.
    pub fn log_at(&self, process: ProcessNo, number: EventNo) -> Option<Log<'_>> {
        let mut found = None;
        let mut back = 0;
        loop {
            let (mut log, more) = Log::near(self, process, self.chunks(process), number, back);
            // What lies further back may be damaged.
            if !log.advance_to(number) {
                return found;
            }
            if !more || !log.lacks_start() {
                return Some(log);
            }
            found = Some(log);
            back = 2 * back + 1;
        }
    }
}

pub(crate) fn read_manifest(dir: &Path) -> Result<Manifest, OpenError> {
    let not_a_recording = |why| OpenError::NotARecording {
        path: dir.to_path_buf(),
        why,
    };
    let metadata = std::fs::metadata(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::NotFound(dir.to_path_buf()),
        _ => OpenError::io(dir, error),
    })?;
    if !metadata.is_dir() {
        return Err(not_a_recording("it is not a directory"));
    }
    let path = dir.join(crate::MANIFEST);
    let bytes = std::fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_a_recording("it has no manifest.json"),
        _ => OpenError::io(&path, error),
    })?;
    let bad = |error: serde_json::Error| OpenError::BadManifest {
        path: path.clone(),
        why: error.to_string(),
    };
    // The version first, by itself: the rest may be other than we know.
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_slice(&bytes).map_err(bad)?;
    if version.format > protocol::FORMAT_VERSION {
        return Err(OpenError::Newer {
            path: dir.to_path_buf(),
            format: version.format,
        });
    }
    serde_json::from_slice(&bytes).map_err(bad)
}

/// The clock of the manifest, its rate taken over the whole run if the end
/// of the run is known.
pub(crate) fn refined(manifest: &Manifest, summary: Option<&Summary>) -> Clock {
    let clock = manifest.clock;
    let Some(summary) = summary else {
        return clock;
    };
    let ticks = summary.time.since(clock.ticks);
    let ns = summary.realtime_ns.saturating_sub(clock.realtime_ns);
    // A short run measures worse than the calibration did; and a wall clock
    // that was set meanwhile must not bend time.
    if ns < 1_000_000_000 {
        return clock;
    }
    let rate = u128::from(ticks) * 1_000_000_000 / u128::from(ns);
    let rate = u64::try_from(rate).unwrap_or(u64::MAX);
    if rate.abs_diff(clock.ticks_per_second) > clock.ticks_per_second / 100 {
        return clock;
    }
    Clock {
        ticks_per_second: rate,
        ..clock
    }
}
