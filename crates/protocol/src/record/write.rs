//! Writing records.
//!
//! The monitor does it while the program waits, after each call: so nothing here
//! allocates, and what can be done without a branch is.

use super::kinds::{clock, kind};
use super::{Memory, VALUES_MAX};
use crate::shared::TICK_SHIFT;

/// What a log time leaves out of the counter.
const COUNTER_LOW: u64 = (1 << TICK_SHIFT) - 1;

const _: () = assert!(COUNTER_LOW == 15, "it goes into half a byte");

/// A record's head, written straight to where it belongs.
pub struct Head<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Head<'a> {
    /// `bytes` has room for [`HEAD_MAX`]; what does not fit is not written.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Head<'a> {
        Head { bytes, len: 0 }
    }
    /// How many bytes were written.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    #[inline]
    pub fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }
    /// Seven bits a byte, the lowest first. Nearly all values are short, and
    /// how short changes from record to record, which no processor foresees: so
    /// it is found out without a branch.
    #[inline(always)]
    pub fn varint(&mut self, value: u64) {
        const SHORT: u64 = 1 << 28;
        if value < SHORT
            && let Some(place) = self.bytes.get_mut(self.len..self.len + 4)
        {
            let value = value as u32;
            let spread = value & 0x7f
                | (value & 0x3f80) << 1
                | (value & 0x1f_c000) << 2
                | (value & 0xfe0_0000) << 3;
            let more =
                u32::from(value > 0x7f) + u32::from(value > 0x3fff) + u32::from(value > 0x1f_ffff);
            let marks = 0x80_8080 & ((1 << (8 * more)) - 1);
            place.copy_from_slice(&(spread | marks).to_le_bytes());
            self.len += 1 + more as usize;
        } else {
            self.long_varint(value);
        }
    }

    #[cold]
    fn long_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }
    #[inline]
    pub fn signed(&mut self, value: i64) {
        self.varint(zigzag(value));
    }
    /// The head of a blob: tag and length.
    #[inline]
    pub fn blob(&mut self, tag: u8, len: usize) {
        self.byte(tag);
        self.varint(len as u64);
    }
}

#[inline]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

impl Memory {
    #[inline]
    fn arguments(&mut self, head: &mut Head<'_>, nr: u64, args: &[u64; 6], count: usize) {
        let row = self.row(nr);
        let place = head.len;
        let mut mask = 0u8;
        head.byte(mask);
        for (i, (last, arg)) in row.iter_mut().zip(args).take(count).enumerate() {
            if *last != *arg {
                mask |= 1 << i;
                head.signed(arg.wrapping_sub(*last) as i64);
                *last = *arg;
            }
        }
        if let Some(place) = head.bytes.get_mut(place) {
            *place = mask;
        }
    }

    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the fields of a record")]
    pub fn call(
        &mut self,
        head: &mut Head<'_>,
        nr: u64,
        time: u64,
        args: &[u64; 6],
        count: usize,
        result: i64,
        blobs: u8,
    ) {
        head.byte(kind::CALL | blobs << 4);
        head.varint(nr);
        let delta = self.elapsed(time);
        head.varint(delta);
        self.arguments(head, nr, args, count);
        head.signed(result);
    }

    #[inline]
    pub fn start(
        &mut self,
        head: &mut Head<'_>,
        nr: u64,
        time: u64,
        args: &[u64; 6],
        count: usize,
        blobs: u8,
    ) {
        head.byte(kind::START | blobs << 4);
        head.varint(nr);
        let delta = self.elapsed(time);
        head.varint(delta);
        self.arguments(head, nr, args, count);
    }

    #[inline]
    pub fn end(&mut self, head: &mut Head<'_>, nr: u64, time: u64, result: i64, blobs: u8) {
        head.byte(kind::END | blobs << 4);
        head.varint(nr);
        let delta = self.elapsed(time);
        head.varint(delta);
        head.signed(result);
    }

    /// A clock read: `value` in nanoseconds.
    #[inline(always)]
    pub fn clock(&mut self, head: &mut Head<'_>, how: u8, other: u64, time: u64, value: u64) {
        head.byte(kind::CLOCK | how << 4);
        let delta = self.elapsed(time);
        head.varint(delta);
        if how == clock::OTHER {
            head.varint(other);
        }
        let last = &mut self.clocks[usize::from(how) % clock::COUNT];
        head.signed(value.wrapping_sub(*last) as i64);
        *last = value;
    }

    /// A read of the counter itself, `rdtscp` if there is an auxiliary value.
    /// Returns what the program shall see: the counters of two cores may
    /// differ by a hair, but the log's time does not go back.
    #[inline]
    pub fn counter(&mut self, head: &mut Head<'_>, counter: u64, auxiliary: Option<u32>) -> u64 {
        let low = counter & COUNTER_LOW;
        head.byte(kind::TSC | (low as u8) << 4);
        let delta = self.elapsed(counter >> TICK_SHIFT);
        head.varint(delta << 1 | u64::from(auxiliary.is_some()));
        if let Some(auxiliary) = auxiliary {
            head.varint(auxiliary.into());
        }
        self.time << TICK_SHIFT | low
    }

    pub fn other(&mut self, head: &mut Head<'_>, kind: u8, time: u64, values: &[u64], blobs: u8) {
        head.byte((kind & 15) | blobs << 4);
        let delta = self.elapsed(time);
        head.varint(delta);
        let count = values.len().min(VALUES_MAX);
        head.byte(count as u8);
        for value in values.iter().take(count) {
            head.signed(*value as i64);
        }
    }
}
