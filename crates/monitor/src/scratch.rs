//! Redirecting what a call writes while its thread does not have the turn.
//!
//! A call that may block is made without the turn, so the kernel would write
//! into the program's memory while another thread runs: replay could not tell
//! when. So the results go into scratch memory of the thread's, and from there
//! into the program's when the turn has come.

use protocol::layout::{LARGE_BASE, LARGE_SIZE, SCRATCH_BASE, SCRATCH_SIZE};
use protocol::syscall::{Arg, Len, Syscall};

use crate::capture::{self, Message};
use crate::state::Thread;
use crate::sys::nr;
use crate::{mem, served, sys};

/// Results larger than this are not redirected in one go.
const ROOM: u64 = 0x10_0000;
/// How much of its scratch memory a thread keeps resident: the first ones, which
/// most programs have no more than, enough for usual sizes; hundreds of them
/// little, so that all together stay small.
const KEEP: u64 = 0x2_0000;
const KEEPERS: u32 = 16;
const KEEP_OF_OTHERS: u64 = 0x2000;

#[derive(Clone, Copy)]
enum Back {
    /// As many bytes as the length says for the result.
    Result {
        to: u64,
        from: u64,
        len: Len,
        capacity: u64,
    },
    /// All of it, whatever the result.
    All {
        to: u64,
        from: u64,
        capacity: u64,
    },
    Vector {
        iov: u64,
        count: u64,
        from: u64,
    },
    Message {
        header: u64,
        copy: u64,
        data: u64,
    },
    /// The headers of messages, each of which knows its data's place.
    Messages {
        vector: u64,
        copy: u64,
    },
}

/// A header of `recvmmsg`: a message's, and how long what came is.
const MESSAGE: u64 = 64;
const MESSAGE_LEN: u64 = 56;

pub struct Redirected {
    args: [u64; 6],
    original: [u64; 6],
    back: [Option<Back>; 6],
    direct: bool,
    base: u64,
    used: u64,
    /// Whether the thread's large room is mapped, for this call alone.
    large: bool,
    /// The call takes a message from a queue.
    is_queue: bool,
}

impl Redirected {
    /// Nothing is redirected.
    pub fn none(args: [u64; 6]) -> Redirected {
        Redirected {
            args,
            original: args,
            back: [None; 6],
            direct: true,
            base: 0,
            used: 0,
            large: false,
            is_queue: false,
        }
    }

    pub fn new(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> Redirected {
        let base = SCRATCH_BASE + u64::from(thread.slot.get()) * SCRATCH_SIZE;
        let mut it = Redirected {
            base,
            direct: false,
            is_queue: u64::from(row.nr) == nr::MQ_TIMEDRECEIVE,
            ..Redirected::none(*args)
        };
        for (i, (_, arg)) in row.args.iter().enumerate() {
            let value = args[i % 6];
            if value == 0 {
                continue;
            }
            let fits = match *arg {
                Arg::Out(_, len) => it.output(thread, i, value, len),
                Arg::InOut(_, len) => it.both_ways(thread, i, value, len),
                Arg::IovOut(count) => it.vector(thread, i, value, args[usize::from(count) % 6]),
                Arg::MsgOut => it.message(thread, i, value),
                Arg::MmsgOut(count) => it.messages(thread, i, value, usize::from(count) % 6),
                _ => true,
            };
            if !fits {
                it.give_back();
                return Redirected::none(*args);
            }
        }
        it
    }

    /// Only an argument that the kernel reads and writes, so many bytes of it.
    pub fn argument(thread: &Thread, args: &[u64; 6], both: Option<(usize, u64)>) -> Redirected {
        let base = SCRATCH_BASE + u64::from(thread.slot.get()) * SCRATCH_SIZE;
        let mut it = Redirected {
            base,
            direct: false,
            ..Redirected::none(*args)
        };
        if let Some((i, len)) = both
            && args[i % 6] != 0
            && len != 0
            && !it.both_ways(thread, i, args[i % 6], Len::Fixed(len as u32))
        {
            it.give_back();
            return Redirected::none(*args);
        }
        it
    }

    pub fn args(&self) -> [u64; 6] {
        self.args
    }

    /// The call writes straight into the program's memory: the turn is kept.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Room for one long result.
    fn take_large(&mut self, thread: &Thread) -> Option<u64> {
        let address = LARGE_BASE + u64::from(thread.slot.get()) * LARGE_SIZE;
        if self.large || !sys::map_anonymous(address, LARGE_SIZE) {
            return None;
        }
        self.large = true;
        Some(address)
    }

    fn give_back(&self) {
        if self.large {
            let slot = (self.base - SCRATCH_BASE) / SCRATCH_SIZE;
            let address = LARGE_BASE + slot * LARGE_SIZE;
            sys::call(sys::nr::MUNMAP, address, LARGE_SIZE, 0, 0, 0, 0);
        }
    }

    fn take(&mut self, thread: &Thread, len: u64) -> Option<u64> {
        if self.used + len > SCRATCH_SIZE {
            return None;
        }
        if thread.scratch_mapped.get() == 0 {
            if !sys::map_anonymous(self.base, SCRATCH_SIZE) {
                return None;
            }
            thread.scratch_mapped.set(1);
        }
        let address = self.base + self.used;
        self.used += (len + 15) & !15;
        Some(address)
    }

    /// A buffer. One that is too large for the scratch memory is either a
    /// regular file's, which does not block, or may be filled in part.
    fn output(&mut self, thread: &Thread, i: usize, to: u64, len: Len) -> bool {
        let mut capacity = capture::capacity(i, len, &self.original);
        let mut is_large = false;
        if capacity > ROOM {
            let is_device = || sys::fstat(self.original[0]).is_some_and(|s| served::is_device(&s));
            let is_file = || sys::fstat(self.original[0]).is_none_or(|s| sys::is_regular(s.mode));
            match len {
                // A message queue's messages come whole or not at all.
                // So do the requests to a file system.
                Len::Ret if self.is_queue || is_device() => is_large = true,
                Len::RetPlus(head) => {
                    capacity = capacity.min(LARGE_SIZE);
                    self.args[(i + 1) % 6] = capacity - u64::from(head);
                    is_large = true;
                }
                Len::RetTimes(one) => {
                    let count = ROOM / u64::from(one);
                    capacity = count * u64::from(one);
                    self.args[(i + 1) % 6] = count;
                }
                Len::Ret | Len::RetMax(_) if is_file() => match served::is_on() {
                    false => return false,
                    true => {
                        capacity = capacity.min(LARGE_SIZE);
                        self.args[(i + 1) % 6] = capacity;
                        is_large = true;
                    }
                },
                Len::Ret => {
                    capacity = ROOM;
                    self.args[(i + 1) % 6] = ROOM;
                }
                Len::RetMax(size) => {
                    capacity = ROOM;
                    self.args[usize::from(size) % 6] = ROOM;
                }
                _ => return false,
            }
        }
        // A bad address is for the kernel to refuse, before it takes anything
        // out of a pipe. (Of a large buffer, how much is used nobody knows.)
        if capacity == 0 || !mem::is_writable(to, if is_large { 1 } else { capacity }) {
            return true;
        }
        let from = match is_large {
            true if capacity > LARGE_SIZE => None,
            true => self.take_large(thread),
            false => self.take(thread, capacity),
        };
        let Some(from) = from else {
            return false;
        };
        self.args[i] = from;
        self.back[i] = Some(Back::Result {
            to,
            from,
            len,
            capacity,
        });
        true
    }

    fn both_ways(&mut self, thread: &Thread, i: usize, to: u64, len: Len) -> bool {
        let capacity = capture::capacity(i, len, &self.original);
        let from = match capacity {
            0 => return true,
            _ if capacity <= ROOM => self.take(thread, capacity),
            _ if capacity <= LARGE_SIZE => self.take_large(thread),
            _ => None,
        };
        let Some(from) = from else {
            return false;
        };
        if mem::copy(from, to, capacity) && mem::is_writable(to, capacity) {
            self.args[i] = from;
            self.back[i] = Some(Back::All { to, from, capacity });
        }
        // Else the kernel says what is wrong with the address.
        true
    }

    fn vector(&mut self, thread: &Thread, i: usize, iov: u64, count: u64) -> bool {
        let count = count.min(1024);
        let mut good = true;
        capture::each_piece(iov, count, ROOM, |address, len| {
            good &= mem::is_writable(address, len)
        });
        if !good {
            return true;
        }
        let Some(copy) = self.take(thread, 16 * count) else {
            return false;
        };
        let Some(data) = self.pieces(thread, copy, iov, count) else {
            return false;
        };
        self.args[i] = copy;
        self.back[i] = Some(Back::Vector {
            iov,
            count,
            from: data,
        });
        true
    }

    /// Lays the pieces of an iovec array out one behind the other in scratch
    /// memory, and writes the array that says so.
    fn pieces(&mut self, thread: &Thread, copy: u64, iov: u64, count: u64) -> Option<u64> {
        let room = (SCRATCH_SIZE - self.used).min(ROOM) & !15;
        let total = capture::each_piece(iov, count, room, |_, _| {});
        let data = self.take(thread, total)?;
        let mut at = data;
        for k in 0..count {
            let [_, len] = mem::read::<[u64; 2]>(iov + 16 * k)?;
            let len = len.min(data + total - at);
            mem::copy(copy + 16 * k, [at, len].as_ptr() as u64, 16);
            at += len;
        }
        Some(data)
    }

    fn message(&mut self, thread: &Thread, i: usize, header: u64) -> bool {
        let Some(m) = Message::read(header) else {
            return true;
        };
        let Some(copy) = self.take(thread, 56) else {
            return false;
        };
        let Some((words, data)) = self.header(thread, &m) else {
            return false;
        };
        mem::copy(copy, words.as_ptr() as u64, 56);
        self.args[i] = copy;
        self.back[i] = Some(Back::Message { header, copy, data });
        true
    }

    /// The header of a message whose parts are in scratch memory, and where its
    /// data is.
    fn header(&mut self, thread: &Thread, m: &Message) -> Option<([u64; 7], u64)> {
        let count = m.iov_count.min(1024);
        let name_len = if m.name == 0 { 0 } else { m.name_len.min(4096) };
        let control_len = if m.control == 0 {
            0
        } else {
            m.control_len.min(0x1_0000)
        };
        let iov = self.take(thread, 16 * count)?;
        let name = self.take(thread, name_len)?;
        let control = self.take(thread, control_len)?;
        let data = self.pieces(thread, iov, m.iov, count)?;
        let words = [
            if m.name == 0 { 0 } else { name },
            name_len,
            iov,
            count,
            if m.control == 0 { 0 } else { control },
            control_len,
            u64::from(m.flags),
        ];
        Some((words, data))
    }

    /// As many messages as there is room for, at least one: who asks for many
    /// takes fewer, too.
    fn messages(&mut self, thread: &Thread, i: usize, vector: u64, count_arg: usize) -> bool {
        /// What the last message may take besides its data.
        const HEADS: u64 = 0x8000;
        let count = (self.original[count_arg] & 0xffff_ffff).min(1024);
        let Some(copy) = self.take(thread, MESSAGE * count) else {
            return false;
        };
        let mut fit = 0;
        for k in 0..count {
            let header = vector + MESSAGE * k;
            let Some(m) = Message::read(header) else {
                // The kernel says what is wrong with the address.
                return true;
            };
            let data = capture::each_piece(m.iov, m.iov_count.min(1024), u64::MAX, |_, _| {});
            let needed = data.saturating_add(HEADS).saturating_add(m.control_len);
            if k > 0 && self.used.saturating_add(needed) > SCRATCH_SIZE {
                break;
            }
            let Some((words, _)) = self.header(thread, &m) else {
                return false;
            };
            mem::copy(copy + MESSAGE * k, words.as_ptr() as u64, 56);
            fit = k + 1;
        }
        self.args[i] = copy;
        self.args[count_arg] = fit;
        self.back[i] = Some(Back::Messages { vector, copy });
        true
    }

    /// What the call left in a length that it was given by its address.
    fn length_at<const BYTES: usize>(&self, argument: u8) -> u64 {
        let mut length = [0; 8];
        let from = self.args[usize::from(argument) % 6];
        mem::copy(length.as_mut_ptr() as u64, from, BYTES as u64);
        u64::from_le_bytes(length)
    }

    /// The call is over and the thread has the turn: everything goes where
    /// the program wanted it.
    pub fn finish(&self, thread: &Thread, result: i64) -> i64 {
        let mut all = true;
        // How far the scratch memory was written to.
        let mut touched = 0;
        let mut touch = |from: u64, len: u64| touched = touched.max(from + len - self.base);
        for back in self.back.iter().flatten() {
            all &= match *back {
                Back::Result {
                    to,
                    from,
                    len,
                    capacity,
                } => {
                    let written = match len {
                        Len::Ret | Len::RetMax(_) => result.max(0) as u64,
                        Len::RetTimes(n) | Len::RetTimesMax(n, _) => {
                            result.max(0) as u64 * u64::from(n)
                        }
                        Len::RetPlus(n) => result.max(0) as u64 + u64::from(n),
                        // The kernel has said how long it is, and written no
                        // more: what lies behind stays the program's own.
                        Len::Pointee(at) => self.length_at::<4>(at),
                        Len::Pointee64(at) => self.length_at::<8>(at),
                        _ => capacity,
                    };
                    touch(from, written.min(capacity));
                    result < 0 || mem::copy(to, from, written.min(capacity))
                }
                Back::All { to, from, capacity } => {
                    touch(from, capacity);
                    mem::copy(to, from, capacity)
                }
                Back::Vector { iov, count, from } => {
                    touch(from, result.max(0) as u64);
                    result <= 0 || scatter(iov, count, from, result as u64)
                }
                Back::Message { header, copy, data } => {
                    touch(data, result.max(0) as u64);
                    result < 0 || message_back(header, copy, data, result as u64)
                }
                Back::Messages { vector, copy } => {
                    touch(self.base, self.used);
                    (0..result.max(0) as u64).all(|k| one_message_back(vector, copy, k))
                }
            };
        }
        let keep = if thread.slot.get() < KEEPERS {
            KEEP
        } else {
            KEEP_OF_OTHERS
        };
        self.give_back();
        if touched > keep {
            const MADV_DONTNEED: u64 = 4;
            let (start, len) = (self.base + keep, touched - keep);
            sys::call(sys::nr::MADVISE, start, len, MADV_DONTNEED, 0, 0, 0);
        }
        if all { result } else { -sys::EFAULT }
    }
}

fn scatter(iov: u64, count: u64, from: u64, len: u64) -> bool {
    let (mut at, mut all) = (from, true);
    capture::each_piece(iov, count, len, |address, len| {
        all &= mem::copy(address, at, len);
        at += len;
    });
    all
}

/// One of several: its length came with it.
fn one_message_back(vector: u64, copy: u64, index: u64) -> bool {
    let (header, copy) = (vector + MESSAGE * index, copy + MESSAGE * index);
    let mut length = 0u32;
    mem::copy((&raw mut length) as u64, copy + MESSAGE_LEN, 4);
    let data = read_own(copy).map_or(0, |words| {
        // The pieces lie one behind the other, from the first on.
        let mut first = 0u64;
        if words[3] != 0 {
            mem::copy((&raw mut first) as u64, words[2], 8);
        }
        first
    });
    message_back(header, copy, data, length.into()) && mem::write(header + MESSAGE_LEN, &length)
}

fn message_back(header: u64, copy: u64, data: u64, result: u64) -> bool {
    let (Some(m), Some(words)) = (Message::read(header), read_own(copy)) else {
        return false;
    };
    let name_len = words[1] & 0xffff_ffff;
    let named = m.name == 0 || mem::copy(m.name, words[0], name_len.min(m.name_len));
    let control = m.control == 0 || mem::copy(m.control, words[4], words[5].min(m.control_len));
    let room = capture::each_piece(m.iov, m.iov_count, u64::MAX, |_, _| {});
    let len = result.min(room);
    // The kernel leaves the name length alone if no name was asked for.
    let name_ok = m.name == 0 || mem::write(header + 8, &(name_len as u32));
    scatter(m.iov, m.iov_count, data, len)
        && named
        && control
        && name_ok
        && mem::write(header + 40, &words[5])
        && mem::write(header + 48, &(words[6] as u32))
}

fn read_own(address: u64) -> Option<[u64; 7]> {
    let mut words = [0; 7];
    mem::copy(words.as_mut_ptr() as u64, address, 56).then_some(words)
}
