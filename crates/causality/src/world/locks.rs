//! Locks on files.

use recording::Event;

use super::World;
use super::calls::{self, word};
use super::objects::*;

impl World<'_> {
    pub(super) fn flock(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let What::File(path) = self.files.what(file) else {
            return;
        };
        let mode = match event.args[1] & 15 & !4 {
            1 => LockMode::Shared,
            2 => LockMode::Exclusive,
            _ => LockMode::Free,
        };
        self.lock(op, path, true, LockOwner::File(file), mode, (0, u64::MAX));
    }

    pub(super) fn fcntl_lock(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let command = event.args[1] as u32;
        let (What::File(path), Some(lock)) = (self.files.what(file), event.argument(2)) else {
            return;
        };
        let short = |at| calls::field(lock.bytes, at).map(i16::from_le_bytes);
        let long = |at| word(lock.bytes, at).map(|word| word as i64);
        let (Some(kind), Some(whence), Some(start), Some(len)) =
            (short(0), short(2), long(8), long(16))
        else {
            return;
        };
        let range = match (whence, len) {
            (0, 0) => (start as u64, u64::MAX),
            (0, 1..) => (start as u64, start.saturating_add(len) as u64),
            (0, _) => (start.saturating_add(len) as u64, start as u64),
            _ => (0, u64::MAX),
        };
        let mode = match kind {
            0 => LockMode::Shared,
            1 => LockMode::Exclusive,
            _ => LockMode::Free,
        };
        let owner = if command >= 37 {
            LockOwner::File(file)
        } else {
            LockOwner::Process(op.process)
        };
        self.lock(op, path, false, owner, mode, range);
    }

    pub(super) fn lock(
        &mut self,
        op: Op,
        file: u32,
        bsd: bool,
        owner: LockOwner,
        mode: LockMode,
        range: (u64, u64),
    ) {
        let key = (file, bsd, owner);
        if mode != LockMode::Free {
            *self.held.entry(key).or_default() += 1;
            if !self.open_holds.contains_key(&key) {
                self.open_holds.insert(key, self.lock_holds.len());
                self.lock_holds.push(LockHold {
                    lock: super::lock_number(file, bsd),
                    process: op.process,
                    from: op.last,
                    to: u32::MAX,
                });
            }
        } else {
            self.lets_go(op, key);
        }
        self.locks.push(LockOp {
            op,
            file,
            bsd,
            owner,
            mode,
            range,
        });
    }

    /// An owner has no lock on a file any more. (Of several on parts of it, the
    /// first that is given back counts.)
    fn lets_go(&mut self, op: Op, key: (u32, bool, LockOwner)) {
        let hold = self.open_holds.remove(&key);
        if let Some(hold) = hold.and_then(|hold| self.lock_holds.get_mut(hold)) {
            hold.to = op.last;
        }
    }

    /// All locks of an owner on a file are gone.
    pub(super) fn unlock_all(&mut self, op: Op, file: u32, owner: LockOwner) {
        for bsd in [true, false] {
            if self.held.remove(&(file, bsd, owner)).is_some() {
                self.lets_go(op, (file, bsd, owner));
                self.locks.push(LockOp {
                    op,
                    file,
                    bsd,
                    owner,
                    mode: LockMode::Free,
                    range: (0, u64::MAX),
                });
            }
        }
    }

    /// Whoever closes any descriptor of a file loses its `fcntl` locks on it.
    pub(super) fn posix_unlock(&mut self, op: Op, file: u32) {
        if self.held.is_empty() {
            return;
        }
        if let What::File(path) = self.files.what(file) {
            let owner = LockOwner::Process(op.process);
            if self.held.remove(&(path, false, owner)).is_some() {
                self.lets_go(op, (path, false, owner));
                self.locks.push(LockOp {
                    op,
                    file: path,
                    bsd: false,
                    owner,
                    mode: LockMode::Free,
                    range: (0, u64::MAX),
                });
            }
        }
    }
}
