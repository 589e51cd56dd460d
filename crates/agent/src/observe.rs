//! Observing a live program: as long as a debugger has conditions on it its monitors write
//! down what it does, and this stores it, in a directory of its own beside that of the
//! program.
//!
//! It is read as a recording that grows is. It says which of the kernel's objects the
//! processes had when it began, because nobody has seen those being made; and it cannot
//! be replayed. How large it may become is bounded: beyond that the observation is over,
//! and the debugger is told. When the program ends before its debugger has gone, what is
//! there is left to that one, which has not looked at the end of it yet.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::id::{ImageNo, ProcessNo, ThreadNo};
use protocol::shared::{CHUNK_HEAD, ChunkHead, chunk_state};
use recording::model::Observed;
use recording::names::Names;
use recording::{ImageStart, Manifest, Writer};

use crate::arena::{Arena, ticks};
use crate::halting::{Halter, Stop};
use crate::{Error, failing};

mod held;
mod peers;

/// The directory of an observation is called as that of the live program, and this.
const OBSERVED: &str = "-observed";
/// What was left by those who were killed is removed after so long.
const FORGOTTEN: Duration = Duration::from_secs(24 * 60 * 60);
/// The file in it that says that there was more than may be stored.
pub const FULL: &str = "full";
/// How much may be stored, in MiB, unless `MW_OBSERVE_LIMIT` says otherwise.
const MOST: u64 = 1024;

/// Observations of a live program: one at a time.
pub struct Observations {
    /// What the manifests of all of them say.
    manifest: Manifest,
    dir: PathBuf,
    most: u64,
    current: Mutex<Option<Current>>,
}

struct Current {
    number: u32,
    writer: Writer,
    /// There was more than may be stored.
    is_full: bool,
}

impl Observations {
    /// Of the live program whose files are in `dir`.
    pub fn new(dir: &Path, manifest: &Manifest) -> Observations {
        let said = std::env::var("MW_OBSERVE_LIMIT").ok();
        let most = said.and_then(|text| text.parse().ok()).unwrap_or(MOST);
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        forget_others(dir);
        Observations {
            manifest: manifest.clone(),
            dir: dir.with_file_name(format!("{name}{OBSERVED}")),
            most: most << 20,
            current: Mutex::new(None),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to observe a program that is halted, anew if it was observed already.
    /// Where that is.
    pub fn begin(&self, arena: &Arena, halter: &Halter<'_>) -> Result<PathBuf, Error> {
        let control = arena.control();
        self.end(arena);
        let mut current = self.current();
        let dir = self.dir.clone();
        let _ = std::fs::remove_dir_all(&dir);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        // What has not been stored yet is read where it is written.
        let link = || std::os::unix::fs::symlink(arena.path(), dir.join(recording::ARENA));
        made.and_then(|()| link())
            .map_err(failing(&dir)("cannot create"))?;
        let number = next_number();
        let stops = halter.look();
        let processes = processes(&stops);
        let observed = Observed {
            number,
            joined: held::all(&processes),
        };
        let manifest = Manifest {
            observed: Some(observed),
            ..self.manifest.clone()
        };
        thread_names(&stops).save(&dir)?;
        let writer = Writer::create(&dir, &manifest)?;
        for (process, pid) in &processes {
            writer.start(&image_of(*process, *pid))?;
        }
        *current = Some(Current {
            number,
            writer,
            is_full: false,
        });
        control.observed.store(number, Release);
        // Somebody will want a chunk.
        control.chunk_wanted.store(1, Release);
        control.doorbell.fetch_add(1, AcqRel);
        crate::arena::wake(&control.doorbell, i32::MAX);
        tracing::info!(target: "live", number, processes = processes.len(), "observed");
        Ok(dir)
    }

    /// Nobody wants to know any more.
    pub fn end(&self, arena: &Arena) {
        arena.control().observed.store(0, Release);
        // Who waits for a chunk waits in vain.
        arena.tell_supply();
        if self.current().take().is_some() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    /// The program has ended: what it did last is stored. If nobody wants to look at it
    /// any more it goes.
    pub fn finish(&self, arena: &Arena, is_wanted: bool) {
        if !is_wanted {
            return self.end(arena);
        }
        let control = arena.control();
        let made = control.chunks_made.load(Acquire) as usize;
        let mut room = Vec::new();
        for (index, state) in control.chunk_state.iter().enumerate().take(made) {
            let state = state.load(Acquire);
            if matches!(state, chunk_state::TAKEN | chunk_state::FULL)
                && let Some(bytes) = arena.chunk(index, &mut room)
            {
                self.store(arena, bytes);
            }
        }
        *self.current() = None;
    }

    /// Stores what is whole in a chunk of the arena, if it is of the observation that is
    /// under way. That it was not stored for want of room ends the observation.
    pub fn store(&self, arena: &Arena, bytes: &[u8]) {
        let mut current = self.current();
        let Some(own) = current.as_mut() else { return };
        if observation_of(bytes) != Some(own.number) || own.is_full {
            return;
        }
        let is_stored = own.writer.chunk(bytes).is_ok();
        if !is_stored || own.writer.journal_len() > self.most {
            own.is_full = true;
            let _ = std::fs::write(self.dir.join(FULL), b"");
            arena.control().observed.store(0, Release);
            arena.tell_supply();
        }
    }

    /// A process has another image.
    pub fn started(&self, start: &ImageStart) {
        if let Some(own) = self.current().as_ref() {
            // What its memory held is for replay.
            let bare = ImageStart {
                maps: Vec::new(),
                ..start.clone()
            };
            let _ = own.writer.start(&bare);
        }
    }

    /// A process has ended.
    pub fn ended(&self, status: &recording::Status) {
        if let Some(own) = self.current().as_ref() {
            let _ = own.writer.status(status);
        }
    }
}

/// Removes what agents that are gone have left to debuggers that were killed.
fn forget_others(dir: &Path) {
    let entries = dir.parent().map(std::fs::read_dir);
    for entry in entries.into_iter().flatten().flatten().flatten() {
        let name = entry.file_name();
        let is_one = name.to_string_lossy().ends_with(OBSERVED);
        let age = entry.metadata().and_then(|meta| meta.modified());
        let age = age.ok().and_then(|at| at.elapsed().ok());
        if is_one && is_free(&entry.path()) && age.is_some_and(|age| age > FORGOTTEN) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether nobody writes to it any more: who is alive has it locked.
fn is_free(dir: &Path) -> bool {
    let journal = std::fs::File::open(dir.join(recording::JOURNAL));
    journal.is_ok_and(|journal| {
        let shared = rustix::fs::FlockOperation::NonBlockingLockShared;
        rustix::fs::flock(&journal, shared).is_ok()
    })
}

/// Removes an observation that an agent which is gone has left to a debugger; nothing else.
pub fn forget(dir: &Path) {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(OBSERVED) && is_free(dir) {
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// Whether an observation is over because there was more than may be stored.
pub fn is_full(dir: &Path) -> bool {
    dir.join(FULL).exists()
}

/// Observations are counted, so that what an earlier one has left in the arena is not taken
/// for a later one's.
fn next_number() -> u32 {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    NUMBERS.fetch_add(1, AcqRel)
}

/// The observation that a chunk is of.
fn observation_of(bytes: &[u8]) -> Option<u32> {
    let at = std::mem::offset_of!(ChunkHead, observation);
    let word = bytes.get(..CHUNK_HEAD)?.get(at..at + 4)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// The processes of the program: number, and the kernel's id.
fn processes(stops: &[Stop]) -> BTreeMap<ProcessNo, u32> {
    let each = stops.iter().filter(|stop| stop.pid != 0);
    each.map(|stop| (ProcessNo(stop.process), stop.pid))
        .collect()
}

/// What the threads that there are call themselves.
fn thread_names(stops: &[Stop]) -> Names {
    let mut names = Names::default();
    for stop in stops.iter().filter(|stop| stop.pid != stop.tid) {
        let path = format!("/proc/{}/task/{}/comm", stop.pid, stop.tid);
        let comm = std::fs::read_to_string(path).unwrap_or_default();
        let comm = comm.trim();
        if recording::names::is_name(comm) {
            let own = names.threads.entry(ProcessNo(stop.process)).or_default();
            own.insert(ThreadNo(stop.thread), comm.to_string());
        }
    }
    names
}

/// What a process runs that runs already.
fn image_of(process: ProcessNo, pid: u32) -> ImageStart {
    use std::os::unix::ffi::OsStrExt;
    let link = |what: &str| {
        let path = std::fs::read_link(format!("/proc/{pid}/{what}"));
        path.map_or_else(|_| Vec::new(), |path| path.as_os_str().as_bytes().to_vec())
    };
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut argv: Vec<Vec<u8>> = line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    argv.pop();
    let exe = link("exe");
    ImageStart {
        process,
        image: ImageNo(0),
        pid,
        name: exe.clone(),
        exe,
        argv,
        cwd: link("cwd"),
        time: ticks(),
        ..ImageStart::default()
    }
}
