//! The writer thread: chunks that are full go into the journal, compressed,
//! and come back as free ones.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use protocol::shared::chunk_state;
use recording::Writer;

use crate::arena::Arena;
use crate::service::Shared;
use crate::slice;

/// The writer thread, which is started when there is something to write: most
/// programs end before that.
#[derive(Default)]
pub struct Store {
    thread: Option<(Sender<usize>, JoinHandle<()>)>,
    /// Without a thread: storing has failed.
    failed: bool,
}

impl Store {
    /// Gives it a full chunk.
    pub fn add(&mut self, shared: &Arc<Shared>, index: usize) {
        if self.thread.is_none() {
            let (sender, receiver) = mpsc::channel();
            let its = Arc::clone(shared);
            let thread = std::thread::Builder::new().spawn(move || run(&its, &receiver));
            self.thread = thread.ok().map(|thread| (sender, thread));
        }
        match &self.thread {
            Some((sender, _)) => {
                let _ = sender.send(index);
            }
            // A limit on threads: then here, as well as it goes.
            None => self.failed = self.failed || !store(shared, index, &mut Vec::new()),
        }
    }
}

impl Drop for Store {
    /// The recording is over: what has not been written by now is for
    /// [`drain`], which does it with more haste.
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// Stores chunks as long as the recording goes on. If one cannot be stored
/// (the disk is full), chunks stay where they are from then on.
fn run(shared: &Shared, full: &Receiver<usize>) {
    // What is stored can wait; the program and its clients cannot.
    slice::reset();
    // SAFETY: changes this thread's own priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, 19) };
    let mut failed = false;
    let mut room = Vec::new();
    for index in full {
        failed = failed || !shared.over.load(Acquire) && !store(shared, index, &mut room);
    }
}

/// Moves one chunk into the journal. False: there is no room.
fn store(shared: &Shared, index: usize, room: &mut Vec<u8>) -> bool {
    let stored = match (shared.arena.chunk(index, room), &shared.observations) {
        (Some(bytes), Some(observations)) => {
            observations.store(&shared.arena, bytes);
            Ok(())
        }
        (Some(bytes), None) => shared.writer.chunk(bytes),
        (None, _) => Ok(()),
    };
    match stored {
        Ok(()) => shared.arena.recycle(index),
        Err(error) => {
            (shared.on_full)(&error.to_string());
            return false;
        }
    }
    true
}

/// Moves what is left in the arena into the journal. True: nothing is left.
pub fn drain(arena: &Arena, writer: &Writer) -> bool {
    let control = arena.control();
    let made = control.chunks_made.load(Acquire) as usize;
    let mut room = Vec::new();
    for (index, state) in control.chunk_state.iter().enumerate().take(made) {
        let state = state.load(Acquire);
        if (state == chunk_state::TAKEN || state == chunk_state::FULL)
            && let Some(bytes) = arena.chunk(index, &mut room)
            && writer.last_chunk(bytes).is_err()
        {
            return false;
        }
    }
    true
}
