//! Answering the monitors.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::mpsc::Sender;

use inject::Image;
use protocol::shared::{Request, chunk_state, mode, request_kind, request_state};
use recording::{Note, Writer};

use crate::arena::{self, Arena};
use crate::asker::Asker;
use crate::capture::Captures;
use crate::exec;

/// Free chunks that are kept ready: enough for a burst while the writer is
/// busy.
const READY: u32 = 24;

/// What the recorder's threads share.
pub struct Shared {
    pub arena: Arc<Arena>,
    pub writer: Arc<Writer>,
    pub captures: Captures,
    pub image: Image,
    pub clock_offset: Option<u64>,
    pub over: AtomicBool,
    /// Called once when there is no more room on the disk.
    pub on_full: Box<dyn Fn(&str) + Send + Sync>,
}

impl Shared {
    fn note(&self, process: u32, kind: &str, text: &str) {
        let note = Note {
            process,
            kind: kind.to_string(),
            text: text.to_string(),
        };
        // If the note cannot be written the disk is full, which the writer
        // thread reports.
        let _ = self.writer.note(&note);
    }

    /// A process runs on without being recorded.
    pub fn note_unrecorded(&self, pid: i32, why: &str) {
        self.note(0, "unrecorded", &format!("process {pid}: {why}"));
    }

    /// Keeps chunks ready.
    pub fn supply(&self) {
        let control = self.arena.control();
        let mut made = false;
        while control.chunks_free.load(Acquire) < READY
            && control.mode.load(Acquire) == mode::RECORD
        {
            match self.arena.add_chunk() {
                Ok(()) => made = true,
                Err(error) => {
                    // Recycled ones may still come.
                    if control.chunks_free.load(Acquire) == 0 {
                        (self.on_full)(&error.to_string());
                    }
                    break;
                }
            }
        }
        if made {
            self.arena.tell_supply();
        }
    }
}

/// Serves until `shared.over`. Full chunks go to `full`.
pub fn run(shared: &Arc<Shared>, full: &Sender<usize>) {
    let control = shared.arena.control();
    let mut sent = vec![false; protocol::shared::CHUNKS_MAX];
    while !shared.over.load(Acquire) {
        let bell = control.doorbell.load(Acquire);
        for (index, request) in control.requests.iter().enumerate() {
            let taken = request.state.compare_exchange(
                request_state::POSTED,
                request_state::ACTIVE,
                AcqRel,
                Relaxed,
            );
            if taken.is_ok() {
                serve(shared, index, request);
            }
        }
        let made = control.chunks_made.load(Acquire) as usize;
        for (index, (state, sent)) in control
            .chunk_state
            .iter()
            .zip(&mut sent)
            .enumerate()
            .take(made)
        {
            let is_full = state.load(Acquire) == chunk_state::FULL;
            if is_full && !*sent {
                let _ = full.send(index);
            }
            *sent = is_full;
        }
        shared.supply();
        arena::wait(&control.doorbell, bell, 100);
    }
}

fn answer(request: &Request, value: u64) {
    request.answer.store(value, Release);
    request.state.store(request_state::DONE, Release);
    arena::wake(&request.state, i32::MAX);
}

/// The text that came with a request.
fn text_of(request: &Request) -> String {
    let bytes: Vec<u8> = request
        .text
        .iter()
        .flat_map(|word| word.load(Relaxed).to_le_bytes())
        .collect();
    let text = bytes.split(|b| *b == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(text).into_owned()
}

fn serve(shared: &Arc<Shared>, index: usize, request: &Request) {
    let arg = |i: usize| request.args.get(i).map_or(0, |a| a.load(Relaxed));
    let process = request.process.load(Relaxed);
    let asker = || Asker::of(shared.arena.file(), index, request);
    match request.kind.load(Relaxed) {
        request_kind::CAPTURE => {
            let pid = asker().map_or(0, |asker| asker.pid);
            let path = PathBuf::from(format!("/proc/{pid}/fd/{}", arg(0)));
            let name = std::fs::read_link(&path).unwrap_or_default();
            let id = File::open(&path).ok().and_then(|file| {
                let control = shared.arena.control();
                shared
                    .captures
                    .capture(control, &shared.writer, &file, &name)
                    .ok()?
            });
            if id.is_none() && name.is_absolute() && !name.starts_with("/dev") {
                let text = format!("{} was mapped but could not be copied", name.display());
                shared.note(process, "uncaptured", &text);
            }
            answer(request, id.map_or(0, |captured| captured.id));
        }
        request_kind::EXEC => {
            if arg(1) != 0 {
                let text = format!(
                    "{} has rights of its own (set-user-ID, set-group-ID or file capabilities): \
                     it ran unrecorded",
                    text_of(request)
                );
                shared.note(process, "unrecorded", &text);
                answer(request, 1);
                return;
            }
            let Some(Asker { pid, tid }) = asker() else {
                let text = "a process that the recorder cannot see executed a program";
                shared.note(process, "unrecorded", text);
                answer(request, 1);
                return;
            };
            let slot = arg(0) as usize;
            let follower = Arc::clone(shared);
            let follow = move || {
                exec::follow(&follower, tid, slot, |go| {
                    if let Some(request) = follower.arena.control().requests.get(index) {
                        answer(request, u64::from(!go));
                    }
                });
            };
            if let Err(error) = std::thread::Builder::new().spawn(follow) {
                shared.note_unrecorded(pid, &format!("cannot start a thread: {error}"));
                answer(request, 1);
            }
        }
        request_kind::NOTE => {
            let text = text_of(request);
            if arg(1) == 1 {
                eprintln!("mw: {text}");
            }
            shared.note(process, "refused", &text);
            answer(request, 0);
        }
        _ => answer(request, u64::MAX),
    }
}
