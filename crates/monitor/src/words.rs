//! The words that the kernel clears when a thread ends (`set_tid_address`,
//! CLONE_CHILD_CLEARTID), for those who wait for that.
//!
//! The kernel is given a word of the monitor's, which says that the thread's slot
//! is free, and the monitor clears the program's in the thread's own turn. But
//! nobody has a turn who is killed. A child that shares its parent's memory can
//! be, while its parent goes on. Then whoever has waited, for whatever, sees that
//! the child is gone and clears its word; and that is in the log.

use core::sync::atomic::Ordering::Acquire;

use protocol::record::{Record, tag};

use crate::capture::Blobs;
use crate::state::{Thread, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{mem, mode};

/// The thread ends: its word is cleared, if there is anybody left to see it.
pub fn clear(thread: &Thread) {
    let word = thread.child_tid.replace(0);
    forget(thread);
    if word != 0 && space().threads.get() > 1 {
        clear_at(word);
    }
}

fn clear_at(word: u64) {
    const WAKE: u64 = 1;
    if mem::write(word, &0u32) && !mode::is_replay() {
        sys::call(nr::FUTEX, word, WAKE, 1, 0, 0, 0);
    }
}

/// A child that shares this memory, and has a word, is made.
pub fn begin(child: &Thread) {
    child.is_child.set(1);
    space().children.set(space().children.get() + 1);
}

/// It was not made after all.
pub fn forget(child: &Thread) {
    if child.is_child.replace(0) != 0 {
        space().children.set(space().children.get() - 1);
    }
}

/// Such children.
fn children() -> impl Iterator<Item = &'static Thread> {
    let slots = 0..space().slots_used.get();
    slots.map(thread_in_slot).filter(|t| t.is_child.get() != 0)
}

fn is_gone(child: &Thread) -> bool {
    child.tid_word.load(Acquire) == 0
}

/// A thread has waited, and has the turn: the words of those who are gone are
/// cleared, which goes into the log.
pub fn after_wait(blobs: &mut Blobs) {
    if space().children.get() == 0 {
        return;
    }
    for child in children().filter(|child| is_gone(child)) {
        let word = child.child_tid.get();
        clear(child);
        blobs.words(tag::CLEARED, &[word]);
    }
}

/// In replay: they are cleared now.
pub fn cleared(record: &Record<'_>) {
    for blob in record.blobs().filter(|blob| blob.tag == tag::CLEARED) {
        if let Some(word) = blob.as_u64() {
            mem::write(word, &0u32);
        }
    }
}

/// Who waits for a child's word without a time limit: nobody will wake it if the
/// child is killed, so it looks now and then. None: this is no such wait.
pub fn slices(number: u64, args: &[u64; 6]) -> Option<Slices> {
    const PRIVATE: u64 = 128;
    const BITSET: u64 = 9;
    const ANY: u64 = 0xffff_ffff;
    if number != nr::FUTEX || space().children.get() == 0 || args[3] != 0 {
        return None;
    }
    let is_plain = match args[1] & 0x7f {
        0 => true,
        BITSET => args[5] & ANY == ANY,
        _ => false,
    };
    let child = children().find(|child| child.child_tid.get() == args[0])?;
    is_plain.then_some(Slices {
        child,
        operation: args[1] & PRIVATE,
        time: [0, 10_000_000],
    })
}

/// A wait in slices.
pub struct Slices {
    child: &'static Thread,
    operation: u64,
    time: [u64; 2],
}

impl Slices {
    /// The arguments of one slice.
    pub fn arguments(&self, args: &mut [u64; 6]) {
        args[1] = self.operation;
        args[3] = self.time.as_ptr() as u64;
    }

    /// Whether the wait goes on after one that came to this.
    pub fn goes_on(&self, result: &mut i64) -> bool {
        if *result != -sys::ETIMEDOUT {
            return false;
        }
        if is_gone(self.child) {
            *result = 0;
            return false;
        }
        true
    }
}
