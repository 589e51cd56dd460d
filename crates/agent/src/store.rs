//! The writer thread: chunks that are full go into the journal, compressed,
//! and come back as free ones.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::Receiver;

use protocol::shared::chunk_state;
use recording::Writer;

use crate::arena::Arena;

/// Runs until the sender is gone. An error (the disk is full) goes to
/// `trouble`, and chunks stay where they are from then on.
pub fn run(
    arena: &Arc<Arena>,
    writer: &Arc<Writer>,
    full: &Receiver<usize>,
    trouble: impl Fn(&recording::WriteError),
) {
    // What is stored can wait; the program and its clients cannot.
    // SAFETY: changes this thread's own priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, 19) };
    let mut failed = false;
    for index in full {
        if failed {
            continue;
        }
        let bytes = arena.chunk(index).unwrap_or_default();
        match if bytes.is_empty() {
            Ok(())
        } else {
            writer.chunk(&bytes)
        } {
            Ok(()) => arena.recycle(index),
            Err(error) => {
                failed = true;
                trouble(&error);
            }
        }
    }
}

/// Moves what is left in the arena into the journal. True: nothing is left.
pub fn drain(arena: &Arena, writer: &Writer) -> bool {
    let control = arena.control();
    let made = control.chunks_made.load(Acquire) as usize;
    for (index, state) in control.chunk_state.iter().enumerate().take(made) {
        let state = state.load(Acquire);
        if (state == chunk_state::TAKEN || state == chunk_state::FULL)
            && let Some(bytes) = arena.chunk(index)
            && writer.chunk(&bytes).is_err()
        {
            return false;
        }
    }
    true
}
