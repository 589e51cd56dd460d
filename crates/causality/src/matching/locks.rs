//! File locks: who got one because others gave it back.

use std::collections::HashMap;

use crate::world::objects::{LockMode, LockOp, LockOwner, Op};

#[derive(Clone, Copy)]
struct Lock {
    owner: LockOwner,
    exclusive: bool,
    range: (u64, u64),
}

#[derive(Clone, Copy)]
struct Release {
    op: Op,
    lock: Lock,
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// Pairs what ended locks with the locks that were got thereafter.
pub(crate) fn pair(mut ops: Vec<LockOp>, mut emit: impl FnMut(&Op, &Op)) {
    // What was given back counts from its beginning, what was got from its
    // end: so whatever had to come first does.
    ops.sort_by_key(|lock| match lock.mode {
        LockMode::Free => (lock.op.lo, 0),
        _ => (lock.op.hi, 1),
    });
    let mut files: HashMap<(u32, bool), (Vec<Lock>, Vec<Release>)> = HashMap::new();
    for lock in ops {
        let (held, released) = files.entry((lock.file, lock.bsd)).or_default();
        let exclusive = lock.mode == LockMode::Exclusive;
        if lock.mode != LockMode::Free {
            for release in released.iter() {
                let conflicts = exclusive || release.lock.exclusive;
                if conflicts
                    && release.lock.owner != lock.owner
                    && overlap(release.lock.range, lock.range)
                {
                    emit(&release.op, &lock.op);
                }
            }
        }
        // What the owner had there before is gone, but for what lies outside.
        let mut kept = Vec::new();
        for old in std::mem::take(held) {
            if old.owner != lock.owner || !overlap(old.range, lock.range) {
                kept.push(old);
                continue;
            }
            for range in [
                (old.range.0, lock.range.0.max(old.range.0)),
                (lock.range.1.min(old.range.1), old.range.1),
            ] {
                if range.0 < range.1 {
                    kept.push(Lock { range, ..old });
                }
            }
            if !exclusive && (old.exclusive || lock.mode == LockMode::Free) {
                let range = (old.range.0.max(lock.range.0), old.range.1.min(lock.range.1));
                released.push(Release {
                    op: lock.op,
                    lock: Lock { range, ..old },
                });
            }
        }
        *held = kept;
        if lock.mode != LockMode::Free {
            held.push(Lock {
                owner: lock.owner,
                exclusive,
                range: lock.range,
            });
        }
        if exclusive {
            // Whoever comes next comes after this one.
            released.retain(|release| {
                !(lock.range.0 <= release.lock.range.0 && release.lock.range.1 <= lock.range.1)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u32, mode: LockMode, lo: u64, hi: u64) -> LockOp {
        LockOp {
            op: Op {
                process: owner,
                lo,
                hi,
                ..Op::default()
            },
            file: 0,
            bsd: true,
            owner: LockOwner::Process(owner),
            mode,
            range: (0, u64::MAX),
        }
    }

    fn run(ops: Vec<LockOp>) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        pair(ops, |a, b| found.push((a.lo, b.hi)));
        found
    }

    #[test]
    fn a_lock_follows_the_one_before_it() {
        use LockMode::*;
        // The second was got before the first one's unlock had returned.
        let found = run(vec![
            lock(1, Exclusive, 0, 1),
            lock(2, Exclusive, 2, 6),
            lock(1, Free, 5, 7),
            lock(2, Free, 8, 9),
            lock(3, Exclusive, 10, 11),
        ]);
        assert_eq!(found, [(5, 6), (8, 11)]);
    }

    #[test]
    fn an_exclusive_lock_waits_for_all_who_share() {
        use LockMode::*;
        let found = run(vec![
            lock(1, Shared, 0, 1),
            lock(2, Shared, 0, 2),
            lock(1, Free, 3, 4),
            lock(2, Free, 5, 6),
            lock(3, Exclusive, 0, 7),
            lock(3, Free, 8, 8),
            lock(1, Shared, 9, 9),
            lock(2, Shared, 9, 10),
        ]);
        assert_eq!(found, [(3, 7), (5, 7), (8, 9), (8, 10)]);
    }
}
