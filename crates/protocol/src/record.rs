//! The encoding of the log.
//!
//! A process's log is a stream of records, cut into chunks. A record is a
//! kind byte, a time, a few integers and any number of *blobs* (bytes the
//! kernel wrote, names the program passed). Integers are variable-length;
//! times count from the record before; the arguments of a call count from the
//! arguments of the last call with the same number, because loops repeat
//! themselves. All of that memory is forgotten at each chunk, so that reading
//! can start at any chunk.
//!
//! Records delimit themselves. The reader tells a record that is not all
//! there yet ([`Error::Incomplete`]) from one that cannot be
//! ([`Error::Corrupt`]), and never panics on any input.

mod digest;
mod kinds;
mod read;
mod write;

use crate::syscall::SYSCALLS_END;

pub use digest::digest;
pub use kinds::{answer, at, begin, clock, kind, object, tag};
pub use read::{Blob, Blobs, Error, Record, unzigzag};
pub use write::{Head, zigzag};

pub const VALUES_MAX: usize = 8;
/// Longest possible record head: kind, number, time, mask, six arguments,
/// result, or the values.
pub const HEAD_MAX: usize = 1 + 10 * (2 + 1 + VALUES_MAX + 1) + 2;

/// What writer and reader remember of earlier records.
#[repr(C)]
pub struct Memory {
    last: [[u64; 6]; SYSCALLS_END],
    stamp: [u32; SYSCALLS_END],
    epoch: u32,
    clocks: [u64; clock::COUNT],
    pub time: u64,
}

impl Memory {
    pub const fn new() -> Memory {
        Memory {
            last: [[0; 6]; SYSCALLS_END],
            stamp: [0; SYSCALLS_END],
            epoch: 1,
            clocks: [0; clock::COUNT],
            time: 0,
        }
    }

    /// Forget everything: a new chunk begins, its times counting from `time`.
    pub fn forget(&mut self, time: u64) {
        // Zeroed memory is a valid Memory whose epoch is 0: the first call
        // makes it 1, which no stamp has.
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.stamp = [0; SYSCALLS_END];
            self.epoch = 1;
        }
        self.clocks = [0; clock::COUNT];
        self.time = time;
    }

    #[inline]
    fn row(&mut self, nr: u64) -> &mut [u64; 6] {
        let index = (nr as usize).min(SYSCALLS_END - 1) & (SYSCALLS_END - 1);
        if self.stamp[index] != self.epoch {
            self.stamp[index] = self.epoch;
            self.last[index] = [0; 6];
        }
        &mut self.last[index]
    }

    #[inline]
    fn elapsed(&mut self, time: u64) -> u64 {
        // Counters of two cores may differ by a hair: never go back.
        let delta = time.saturating_sub(self.time);
        self.time += delta;
        delta
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

/// Number of blobs in a record is at most this.
pub const BLOBS_MAX: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::TICK_SHIFT;

    /// The bytes that `write` makes.
    fn head(write: impl FnOnce(&mut Head<'_>)) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_MAX];
        let mut head = Head::new(&mut bytes);
        write(&mut head);
        let len = head.len();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Memory::new();
        let mut reader = Memory::new();
        writer.forget(1000);
        reader.forget(1000);
        let mut log = Vec::new();
        let args = [5, 0x7fff_1234_5678, 4096, 0, 0, u64::MAX];
        log.extend(head(|h| writer.call(h, 0, 1010, &args, 3, 17, 1)));
        log.extend(head(|h| h.blob(1, 4)));
        log.extend(b"data");
        log.extend(head(|h| writer.start(h, 1, 1020, &args, 6, 0)));
        log.extend(head(|h| writer.end(h, 1, 1500, -11, 0)));
        log.extend(head(|h| {
            writer.clock(h, clock::GETTIMEOFDAY, 0, 1500, 7_000_000_123)
        }));
        log.extend(head(|h| {
            writer.clock(h, clock::GETTIMEOFDAY, 0, 1500, 7_000_000_500)
        }));
        log.extend(head(|h| {
            writer.other(h, kind::SIGNAL, 1501, &[11, u64::MAX], 0)
        }));

        let counter = 1510 << TICK_SHIFT | 9;
        log.extend(head(|h| {
            assert_eq!(writer.counter(h, counter, None), counter);
        }));
        // Another core is behind: the log's time stays.
        log.extend(head(|h| {
            assert_eq!(writer.counter(h, counter - 32, Some(0x1003)), counter);
        }));

        let mut at = 0;
        let mut next = || {
            let (record, len) = reader.read(&log[at..]).unwrap();
            at += len;
            record
        };
        let r = next();
        assert_eq!((r.kind, r.nr, r.time, r.result), (kind::CALL, 0, 1010, 17));
        assert_eq!(&r.args[..3], &args[..3]);
        assert_eq!(r.blob(1).unwrap().bytes, b"data");
        let r = next();
        assert_eq!((r.kind, r.nr, r.time), (kind::START, 1, 1020));
        assert_eq!(r.args, args);
        let r = next();
        assert_eq!((r.kind, r.result, r.time), (kind::END, -11, 1500));
        for value in [7_000_000_123, 7_000_000_500] {
            let r = next();
            assert_eq!((r.kind, r.nr, r.values[2]), (kind::CLOCK, 96, value));
        }
        let r = next();
        assert_eq!((r.values[0], r.values[1]), (11, u64::MAX));
        for values in [[counter, 0, 2], [counter, 0x1003, 3]] {
            let r = next();
            assert_eq!(
                (r.kind, r.time, &r.values[..3]),
                (kind::TSC, 1510, &values[..])
            );
        }
        assert_eq!(at, log.len());
    }

    #[test]
    fn every_prefix_is_incomplete_and_leaves_no_trace() {
        let mut writer = Memory::new();
        writer.forget(0);
        let args = [3, 0x7f00_0000_0000, 100, 7, 8, 9];
        let mut log = head(|h| writer.call(h, 9, 5, &args, 6, 1 << 40, 1));
        log.extend(head(|h| h.blob(3, 300)));
        log.extend([7; 300]);
        let mut reader = Memory::new();
        reader.forget(0);
        for len in 0..log.len() {
            assert_eq!(
                reader.read(&log[..len]).unwrap_err(),
                Error::Incomplete,
                "{len}"
            );
        }
        let (record, len) = reader.read(&log).unwrap();
        assert_eq!((record.args, len), (args, log.len()));
    }

    #[test]
    fn a_loop_of_reads_costs_few_bytes() {
        let mut writer = Memory::new();
        writer.forget(0);
        let args = [8, 0x7f12_3456_7890, 16384, 0, 0, 0];
        head(|h| writer.call(h, 0, 100, &args, 3, 30, 1));
        assert!(head(|h| writer.call(h, 0, 400, &args, 3, 30, 1)).len() <= 8);
    }

    #[test]
    fn garbage_never_panics() {
        let mut seed = crate::seed::seed("garbage", 1);
        for _ in 0..20_000 {
            let mut bytes = [0u8; 40];
            for byte in &mut bytes {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                *byte = (seed >> 33) as u8;
            }
            let mut memory = Memory::new();
            memory.forget(0);
            if let Ok((record, len)) = memory.read(&bytes) {
                assert!(len <= bytes.len());
                let blobs = if matches!(record.kind, kind::CLOCK | kind::TSC) {
                    0
                } else {
                    bytes[0] >> 4
                };
                assert_eq!(record.blobs().count(), usize::from(blobs));
            }
        }
    }
}
