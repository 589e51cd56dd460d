//! Calls about memory: the only ones that replay makes again, at the recorded
//! addresses, with captured files where the program had mapped its own.

use protocol::record::{kind, tag};
use protocol::replay::difference;
use protocol::syscall::Syscall;

use crate::sharing::Object;
use crate::state::{Process, Thread, space};
use crate::sys::{self, nr};
use crate::{counter, inherit, mem, motion, sharing};

use super::compare::{compare, diverge};
use super::files::map_file;
use super::stream::{consume, next_for};

pub fn map_anonymous(start: u64, len: u64, prot: u64, grows: bool) -> bool {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let flags = flags | if grows { sys::MAP_GROWSDOWN } else { 0 };
    sys::call(nr::MMAP, start, len, prot, flags, u64::MAX, 0) == start as i64
}

/// Calls that change the address space: done again.
pub fn memory(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    compare(thread, &record, kind::CALL, row, args);
    let result = record.result;
    let number = u64::from(row.nr);
    let file = record.blob(tag::FILE).and_then(|blob| blob.as_u64());
    let size = record.blob(tag::PIECE).and_then(|blob| blob.as_u64());
    let object = record.blob(tag::OBJECT);
    let key = object.and_then(|blob| blob.as_u64());
    let object_size = object.and_then(|blob| mem::read_own::<[u64; 2]>(blob.bytes));
    consume(process_of(thread));
    crate::memory::before_move(number, args);
    if number == nr::BRK {
        brk(thread, result as u64);
        return result;
    }
    if result < 0 {
        // What it did before it failed, it did.
        let args = [args[0], size.unwrap_or(0), args[2], args[3], 0, 0];
        match number {
            nr::MPROTECT | nr::PKEY_MPROTECT if args[1] != 0 => {
                mprotect(&args);
            }
            nr::MADVISE => madvise(thread, &args),
            _ => {}
        }
        return result;
    }
    let at = result as u64;
    let done = match number {
        nr::MMAP => {
            let [_, len, prot, flags, _, offset] = *args;
            // Whole huge pages, if it is in such.
            let len = size.unwrap_or(len);
            let shared = flags & 3 != sys::MAP_PRIVATE;
            sharing::forget(thread, at, len);
            inherit::forget(thread, at, len);
            let done = match file {
                Some(id) => map_file(id, at, len, prot, offset),
                None => map_anonymous(at, len, prot, flags & sys::MAP_GROWSDOWN != 0),
            };
            if done && (shared || key.is_some()) {
                let object = Object {
                    // Without one, only children will have it too.
                    key: key.unwrap_or_else(|| own_key(thread)),
                    file: file.unwrap_or(sharing::NO_FILE),
                    size: object_size.map(|[_, size]| size),
                    kind: match (shared, key) {
                        (true, Some(_)) => sharing::SHARED,
                        (true, None) => sharing::UNNAMED,
                        (false, _) => sharing::PRIVATE,
                    },
                };
                let offset = if key.is_some() { offset } else { 0 };
                sharing::map(thread, &object, at, len, prot, offset);
            }
            done
        }
        nr::SHMAT => {
            let len = size.unwrap_or(4096);
            let prot = if args[2] & 0o10000 != 0 { 1 } else { 3 };
            let done = map_anonymous(at, len, prot, false);
            if let Some(key) = key.filter(|_| done) {
                let object = Object {
                    key,
                    file: sharing::NO_FILE,
                    size: None,
                    kind: sharing::SHARED,
                };
                sharing::map(thread, &object, at, len, prot, 0);
            }
            done
        }
        SHMDT => {
            if let Some(len) = sharing::length_at(args[0]) {
                sharing::forget(thread, args[0], len);
                inherit::forget(thread, args[0], len);
                sys::call(nr::MUNMAP, args[0], len, 0, 0, 0, 0);
            }
            true
        }
        nr::MREMAP => {
            const DONTUNMAP: u64 = 4;
            let [old, old_len, len, flags, _, _] = *args;
            let stays = flags & DONTUNMAP != 0;
            inherit::moved(thread, old, old_len, at, len, stays);
            sharing::remap(thread, old, old_len, at, len, stays)
        }
        nr::MUNMAP => {
            sharing::forget(thread, args[0], args[1]);
            inherit::forget(thread, args[0], args[1]);
            sys::call(number, args[0], args[1], 0, 0, 0, 0) == result
        }
        nr::MPROTECT | nr::PKEY_MPROTECT => mprotect(args),
        nr::MADVISE => {
            let [start, len, advice, ..] = *args;
            let len = size.unwrap_or(len);
            if len != 0 {
                madvise(thread, &[start, len, advice, 0, 0, 0]);
            }
            true
        }
        _ => true,
    };
    if !done {
        diverge(thread, difference::MEMORY, 0, at, args[0]);
    }
    crate::memory::forget_code(number, args, result);
    motion::code_changed();
    motion::mapped(number, args[2]);
    counter::replace_again(thread);
    result
}

fn mprotect(args: &[u64; 6]) -> bool {
    let done = sys::call(nr::MPROTECT, args[0], args[1], args[2], 0, 0, 0) == 0;
    sharing::protected(args[0], args[1], args[2]);
    done
}

fn madvise(thread: &Thread, args: &[u64; 6]) {
    const REMOVE: u64 = 9;
    let [start, len, advice, ..] = *args;
    if crate::memory::discards(advice) {
        sharing::discard(start, len, advice == REMOVE);
    } else if crate::memory::guards(advice) {
        sys::call(nr::MADVISE, start, len, advice, 0, 0, 0);
    } else {
        inherit::advise(thread, start, len, advice);
    }
}

fn process_of(thread: &Thread) -> &'static Process {
    thread.process()
}

const SHMDT: u64 = 67;

/// A key for shared memory that has no file: the call that made it.
fn own_key(thread: &Thread) -> u64 {
    let process = thread.process();
    (u64::from(process.number.get()) << 40 ^ process.log.next_event.get())
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        | 1
}

/// The heap's end: memory is mapped up to it.
fn brk(thread: &Thread, to: u64) {
    let space = space();
    let now = space.brk.get();
    let up = |address: u64| (address + 4095) & !4095;
    if now != 0 && up(to) > up(now) {
        if !map_anonymous(up(now), up(to) - up(now), 3, false) {
            diverge(thread, difference::MEMORY, 0, now, to);
        }
    } else if now != 0 && up(to) < up(now) {
        inherit::forget(thread, up(to), up(now) - up(to));
        sys::call(nr::MUNMAP, up(to), up(now) - up(to), 0, 0, 0, 0);
    }
    space.brk.set(to);
}
