//! Answering the monitors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inject::Image;
use protocol::id::ProcessNo;
use protocol::shared::{Request, chunk_state, mode, request_kind, request_state};
use recording::{Note, WriteError, Writer};

use crate::arena::{self, Arena};
use crate::asker::Asker;
use crate::capture::{Captured, Captures, Why, open_file};
use crate::capture_cache::Companion;
use crate::control::Tracing;
use crate::followers;
use crate::observe::Observations;
use crate::slice;
use crate::store::Store;

/// Free chunks that are kept ready: enough for a burst while the writer is
/// busy. Fewer, as long as none has ever been full: most programs need one.
const READY: u32 = 24;
const READY_AT_FIRST: u32 = 2;

/// What the recorder's threads share.
pub struct Shared {
    pub arena: Arc<Arena>,
    pub writer: Arc<Writer>,
    pub captures: Captures,
    /// What the program is likely to map.
    pub expected: Vec<Companion>,
    pub image: Image,
    pub clock_offset: Option<u64>,
    pub over: AtomicBool,
    /// A thread stands by for the next exec, or is about to.
    pub has_spare: AtomicBool,
    /// Chunks have been full.
    pub is_busy: AtomicBool,
    /// Whether a debugger traces the program.
    pub tracing: std::sync::OnceLock<Tracing>,
    /// Threads that a debugger traces and that are about to exec, with their slots.
    pub adopting: Mutex<HashMap<i32, usize>>,
    /// Called once when there is no more room on the disk.
    pub on_full: Box<dyn Fn(&str) + Send + Sync>,
    /// Of a live program: who observes it, now and then.
    pub observations: Option<Observations>,
}

impl Shared {
    pub fn adopting(&self) -> MutexGuard<'_, HashMap<i32, usize>> {
        self.adopting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, process: ProcessNo, kind: &str, text: &str) {
        let note = Note {
            process,
            kind: kind.to_string(),
            text: text.to_string(),
        };
        let _ = self.written(self.writer.note(&note));
    }

    /// Whatever could not be written: where that is for want of room, the recording
    /// ends as it does when a chunk finds none.
    pub fn written(&self, result: Result<(), WriteError>) -> Result<(), WriteError> {
        if let Err(error) = &result
            && error.is_full()
        {
            (self.on_full)(&error.to_string());
        }
        result
    }

    /// The copy of a file that a program uses. None: it cannot be kept.
    pub fn capture(&self, file: &std::fs::File, name: &Path) -> Option<Captured> {
        let control = self.arena.control();
        let captured = self
            .captures
            .capture(control, &self.writer, file, name, Why::Needed);
        captured.ok()?
    }

    /// A process runs on without being recorded.
    pub fn note_unrecorded(&self, pid: i32, why: &str) {
        tracing::warn!(target: "record", pid, why, "a process is not recorded");
        self.note(ProcessNo(0), "unrecorded", &format!("process {pid}: {why}"));
    }

    /// Keeps chunks ready.
    fn supply(&self) {
        let control = self.arena.control();
        let ready = if self.is_busy.load(Relaxed) {
            READY
        } else {
            READY_AT_FIRST
        };
        let missing = ready.saturating_sub(control.chunks_free.load(Acquire));
        let is_written = match control.mode.load(Acquire) {
            mode::RECORD => true,
            mode::LIVE => control.observed.load(Acquire) != 0,
            _ => false,
        };
        if missing == 0 || !is_written {
            return;
        }
        // If there is no room for all of them, there may be for one.
        let added = self.arena.add_chunks(missing);
        if let Err(error) = added.or_else(|_| self.arena.add_chunks(1))
            // Recycled ones may still come.
            && control.chunks_free.load(Acquire) == 0
        {
            (self.on_full)(&error.to_string());
        }
    }
}

/// Serves until `shared.over`, and sees to it that full chunks are stored.
pub fn run(shared: &Arc<Shared>) {
    slice::shorten();
    let control = shared.arena.control();
    let mut store = Store::default();
    let mut waiting = Vec::new();
    let mut known = vec![false; protocol::shared::CHUNKS_MAX];
    let mut rung = true;
    // Most programs end before they need more than there is.
    let mut is_early = true;
    // Whoever asks comes first.
    let mut expected = shared.expected.iter().filter(|companion| companion.is_sure);
    while !shared.over.load(Acquire) {
        let bell = control.doorbell.load(Acquire);
        let mut has_answered = false;
        for (index, request) in control.requests.iter().enumerate() {
            let taken = request.state.compare_exchange(
                request_state::POSTED,
                request_state::ACTIVE,
                AcqRel,
                Relaxed,
            );
            if taken.is_ok() {
                serve(shared, index, request);
                has_answered = true;
            }
        }
        let made = control.chunks_made.load(Acquire) as usize;
        for (index, (state, known)) in control
            .chunk_state
            .iter()
            .zip(&mut known)
            .enumerate()
            .take(made)
        {
            let is_full = state.load(Acquire) == chunk_state::FULL;
            if is_full && !*known {
                waiting.push(index);
            }
            *known = is_full;
        }
        // One alone is likely the last of a process that ends, and perhaps of
        // the program: then it is stored at the end.
        if waiting.len() >= 2 || !rung {
            shared.is_busy.fetch_or(!waiting.is_empty(), Relaxed);
            for index in waiting.drain(..) {
                store.add(shared, index);
            }
        }
        if let Some(companion) = expected.next() {
            let writer = &shared.writer;
            shared.captures.expect(control, writer, &companion.path);
            continue;
        }
        // Whoever was answered is likely to go on where this thread runs, as soon
        // as that sleeps: what is not urgent comes later.
        let is_wanted = control.chunk_wanted.swap(0, AcqRel) != 0;
        let has_some = control.chunks_free.load(Acquire) != 0;
        if !is_wanted && (is_early || has_answered && has_some) {
            is_early &= arena::wait(&control.doorbell, bell, 2);
            continue;
        }
        followers::look_for_failures(shared);
        shared.supply();
        rung = arena::wait(&control.doorbell, bell, 100);
    }
    followers::dismiss(shared);
    followers::look_for_failures(shared);
}

/// Answers whoever waits for this.
pub fn answer(request: &Request, value: u64) {
    request.answer.store(value, Release);
    request.state.store(request_state::DONE, Release);
    arena::wake(&request.state, i32::MAX);
}

/// The text that came with a request.
pub fn text_of(request: &Request) -> String {
    let bytes: Vec<u8> = request
        .text
        .iter()
        .flat_map(|word| word.load(Relaxed).to_le_bytes())
        .collect();
    let text = bytes.split(|b| *b == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(text).into_owned()
}

/// Copies a file that a process maps. The copy's id; 0: there is none.
fn capture(shared: &Shared, process: u32, path: &Path) -> u64 {
    let name = std::fs::read_link(path).unwrap_or_default();
    let id = open_file(path)
        .ok()
        .and_then(|file| shared.capture(&file, &name));
    if id.is_none() && name.is_absolute() && !name.starts_with("/dev") {
        let text = format!("{} was mapped but could not be copied", name.display());
        shared.note(ProcessNo(process), "uncaptured", &text);
    }
    id.map_or(0, |captured| captured.id)
}

fn serve(shared: &Arc<Shared>, index: usize, request: &Request) {
    let arg = |i: usize| request.args.get(i).map_or(0, |a| a.load(Relaxed));
    let process = request.process.load(Relaxed);
    let asker = || Asker::of(shared.arena.file(), index, request);
    match request.kind.load(Relaxed) {
        request_kind::CAPTURE => {
            let pid = asker().map_or(0, |asker| asker.pid);
            let path = PathBuf::from(format!("/proc/{pid}/fd/{}", arg(0)));
            // Who serves the file may be a process of the program, and have something to ask
            // before it answers.
            if shared.arena.control().serves_files.load(Acquire) != 0 {
                let (shared, path) = (Arc::clone(shared), path.clone());
                let apart = move || {
                    let id = capture(&shared, process, &path);
                    if let Some(request) = shared.arena.control().requests.get(index) {
                        answer(request, id);
                    }
                };
                if std::thread::Builder::new().spawn(apart).is_ok() {
                    return;
                }
            }
            answer(request, capture(shared, process, &path));
        }
        request_kind::EXEC => {
            let follower = Arc::clone(shared);
            let follow = move || followers::serve(&follower, index);
            if let Err(error) = std::thread::Builder::new().spawn(follow) {
                let pid = request.pid.load(Relaxed) as i32;
                shared.note_unrecorded(pid, &format!("cannot start a thread: {error}"));
                answer(request, 1);
            }
        }
        request_kind::NOTE => {
            let text = text_of(request);
            if arg(1) == 1 {
                eprintln!("mw: {text}");
            }
            shared.note(ProcessNo(process), "refused", &text);
            answer(request, 0);
        }
        _ => answer(request, u64::MAX),
    }
}
