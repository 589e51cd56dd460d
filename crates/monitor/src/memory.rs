//! Calls that change the address space: made for real, guarded so that the
//! monitor's own memory stays, with mapped files captured and shared memory
//! noticed.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::layout::{LARGE_BASE, LARGE_SIZE};
use protocol::record::tag;
use protocol::shared::SHARED_MAX;
use protocol::syscall::Syscall;

use crate::capture::Blobs;
use crate::mode::Mode;
use crate::observe::Course;
use crate::state::{Thread, control, domain, space};
use crate::sys::{self, nr};
use crate::{
    arch, call, counter, descriptors, huge, inherit, live, lock, mem, moved, patcher, poke,
    recorder, replay, served, turn,
};

const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MREMAP_FIXED: u64 = 2;
const SHM_RDONLY: u64 = 0o10000;

#[inline(never)]
pub fn perform(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> i64 {
    match space().mode.get() {
        Mode::Record => make(thread, row, args),
        Mode::Live => {
            let course = Course::begin(thread, row, &args, false);
            let result = make_live(thread, u64::from(row.nr), &args);
            if let Some(course) = course {
                course.end(thread, row, &args, result);
            }
            result
        }
        Mode::Replay => replay::memory(thread, row, &args),
    }
}

/// Whether a call is about the monitor's own memory: then this is its answer.
fn refused(number: u64, args: &[u64; 6]) -> Option<i64> {
    let is_ours = mem::is_ours;
    let fixed = args[3] & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    match number {
        nr::MMAP if fixed && is_ours(args[0], args[1]) => Some(-sys::ENOMEM),
        nr::MUNMAP if is_ours(args[0], args[1]) => Some(-sys::EINVAL),
        nr::MREMAP
            if is_ours(args[0], args[1].max(1))
                || (args[3] & MREMAP_FIXED != 0 && is_ours(args[4], args[2])) =>
        {
            Some(-sys::EFAULT)
        }
        nr::MPROTECT | nr::MADVISE if is_ours(args[0], args[1]) => Some(-sys::ENOMEM),
        nr::SHMAT if is_ours(args[1], 1) => Some(-sys::EINVAL),
        _ => None,
    }
}

/// Live: what matters is where code comes and goes.
fn make_live(thread: &Thread, number: u64, args: &[u64; 6]) -> i64 {
    const PROT_EXEC: u64 = 4;
    if let Some(answer) = refused(number, args) {
        return answer;
    }
    let moves = matches!(number, nr::MUNMAP | nr::MREMAP | nr::MMAP);
    let is_run = matches!(number, nr::MMAP | nr::MPROTECT) && args[2] & PROT_EXEC != 0;
    let _lock = (moves || is_run).then(|| live::lock(thread));
    before_move(number, args);
    let result = match number {
        nr::BRK if lock::is_on() => brk(*args),
        // SAFETY: the program's own call, and not about the monitor's memory.
        _ => unsafe { arch::syscall(number, args) },
    };
    forget_code(number, args, result);
    if number == nr::MMAP && result >= 0 && !lock::fresh(result as u64, args[1]) {
        sys::call(nr::MUNMAP, result as u64, args[1], 0, 0, 0, 0);
        return -sys::EAGAIN;
    }
    if is_run && result >= 0 && space().interprets.get() == 0 {
        let is_file = args[3] & sys::MAP_ANONYMOUS == 0 && args[3] & 3 == sys::MAP_PRIVATE;
        if number == nr::MMAP
            && is_file
            && let (_, Some(place)) = recorder::capture(thread, args[4] & 0xffff_ffff)
        {
            counter::mapped(result as u64, args[1], args[5], place);
        }
        let start = if number == nr::MMAP {
            result as u64
        } else {
            args[0]
        };
        counter::replace(thread, start, args[1], args[2]);
    }
    result
}

fn make(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    let mut more = Blobs::new();
    let mut file = None;
    if served::is_on() && space().turns.get() != 0 {
        write_back(thread, number, &args);
    }
    before_move(number, &args);
    let result = match number {
        nr::MMAP => mmap(thread, args, &mut more, &mut file),
        nr::MUNMAP | nr::MREMAP | nr::MPROTECT | nr::MADVISE
            if let Some(answer) = refused(number, &args) =>
        {
            answer
        }
        // "Free" leaves it to the kernel's mood what is read later; to be free
        // at once is one of the things it allows.
        nr::MADVISE if args[2] == MADV_FREE => {
            // What cannot be freed so (a file's pages) is refused as ever.
            match sys::call(number, args[0], args[1], MADV_FREE, 0, 0, 0) {
                0 => sys::call(number, args[0], args[1], MADV_DONTNEED, 0, 0, 0),
                error => error,
            }
        }
        nr::SHMAT => shmat(thread, args, &mut more),
        nr::BRK if lock::is_on() => brk(args),
        // SAFETY: the program's own call, and not about the monitor's memory.
        _ => unsafe { arch::syscall(number, &args) },
    };
    if result < 0
        && let done @ 1.. = done_all_the_same(number, &args, result)
    {
        more.words(tag::PIECE, &[done]);
    }
    if number == nr::MADVISE
        && result == 0
        && let Some(len) = huge::advised(args[0], args[1], args[2])
    {
        more.words(tag::PIECE, &[len]);
    }
    forget_code(number, &args, result);
    call::finish_call(thread, row, &args, result, &more);
    match number {
        nr::MMAP if result > 0 => {
            let is_private = args[3] & 3 == sys::MAP_PRIVATE;
            let is_run = is_private && space().interprets.get() == 0;
            if let Some(place) = file.filter(|_| is_run) {
                counter::mapped(result as u64, args[1], args[5], place);
                counter::replace(thread, result as u64, args[1], args[2]);
            }
        }
        nr::MPROTECT if result == 0 => counter::replace(thread, args[0], args[1], args[2]),
        _ => {}
    }
    result
}

/// Memory goes away. If it is a view of a file that can be written, the kernel waits until
/// who serves the file has taken what is new in it: so that is done before, without the
/// turn.
fn write_back(thread: &Thread, number: u64, args: &[u64; 6]) {
    const MS_SYNC: u64 = 4;
    let fixed = args[3] & sys::MAP_FIXED != 0;
    if matches!(number, nr::MUNMAP | nr::MREMAP) || number == nr::MMAP && fixed {
        turn::without(thread, || {
            sys::call(nr::MSYNC, args[0], args[1], MS_SYNC, 0, 0, 0);
        });
    }
}

/// How much of a range a call has changed before it failed. To do that much
/// again changes nothing, so the kernel can be asked. Nobody else in this
/// memory runs meanwhile.
#[cold]
fn done_all_the_same(number: u64, args: &[u64; 6], result: i64) -> u64 {
    const PAGE: u64 = 4096;
    let [start, len, what, ..] = *args;
    let is_advice =
        number == nr::MADVISE && (discards(what) || guards(what) || inherit::is_advice(what));
    let is_about_range = is_advice || matches!(number, nr::MPROTECT | nr::PKEY_MPROTECT);
    if !is_about_range || start % PAGE != 0 || mem::is_ours(start, len) {
        return 0;
    }
    if is_advice && result == -sys::ENOMEM {
        // Where nothing is mapped it goes on behind.
        return len;
    }
    let what = if what == MADV_FREE && is_advice {
        MADV_DONTNEED
    } else {
        what
    };
    let is_done = |pages: u64| {
        let result = sys::call(number, start, pages * PAGE, what, args[3], 0, 0);
        result == 0 || is_advice && result == -sys::ENOMEM
    };
    let (mut done, mut not) = (0, len.div_ceil(PAGE));
    while done + 1 < not {
        let middle = done + (not - done) / 2;
        if is_done(middle) {
            done = middle;
        } else {
            not = middle;
        }
    }
    done * PAGE
}

/// Whether advice puts guards into memory, or takes them out: who touches a page with a
/// guard is faulted, and it is empty when it has none any more.
pub fn guards(advice: u64) -> bool {
    const MADV_GUARD_INSTALL: u64 = 102;
    const MADV_GUARD_REMOVE: u64 = 103;
    matches!(advice, MADV_GUARD_INSTALL | MADV_GUARD_REMOVE)
}

/// Whether advice says that contents are not needed any more.
pub fn discards(advice: u64) -> bool {
    const MADV_REMOVE: u64 = 9;
    const MADV_DONTNEED_LOCKED: u64 = 24;
    matches!(
        advice,
        MADV_DONTNEED | MADV_FREE | MADV_REMOVE | MADV_DONTNEED_LOCKED
    )
}

/// Code that is moved must not lead to stubs. (Whatever comes of the call: replay does the
/// same.)
pub fn before_move(number: u64, args: &[u64; 6]) {
    if number == nr::MREMAP {
        patcher::put_back(args[0], args[1]);
    }
}

/// Sites that were patched in memory that is other memory now.
pub fn forget_code(number: u64, args: &[u64; 6], result: i64) {
    if result < 0 {
        return;
    }
    match number {
        nr::MUNMAP => {
            patcher::forget(args[0], args[1]);
            counter::forget(args[0], args[1]);
        }
        nr::MREMAP => {
            patcher::forget(args[0], args[1]);
            patcher::forget(result as u64, args[2]);
            if result as u64 != args[0] {
                counter::forget(result as u64, args[2]);
            }
            counter::moved(args[0], args[1], result as u64);
        }
        nr::MMAP if args[3] & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0 => {
            patcher::forget(result as u64, args[1]);
            counter::forget(result as u64, args[1]);
        }
        _ => {}
    }
}

/// `file`: the place of the file among those captured.
fn mmap(thread: &Thread, args: [u64; 6], more: &mut Blobs, file: &mut Option<usize>) -> i64 {
    let [address, len, protection, flags, fd, _] = args;
    let fixed = flags & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    if fixed && mem::is_ours(address, len) {
        return -sys::ENOMEM;
    }
    let stat = match flags & sys::MAP_ANONYMOUS {
        0 => sys::fstat(fd),
        _ => None,
    };
    let anonymous = flags & sys::MAP_ANONYMOUS != 0 || stat.as_ref().is_some_and(is_dev_zero);
    let early = match served::is_on() && !anonymous && space().turns.get() != 0 {
        true => turn::without(thread, || ask_early(thread, &args)),
        false => Early::default(),
    };
    let shared = flags & 3 != sys::MAP_PRIVATE;
    if !anonymous {
        if let Some(stat) = &stat {
            let key = key_of(stat.device, stat.inode);
            let is_code = protection & PROT_EXEC != 0;
            let is_writable = !is_code && flags_of(fd) & O_ACCMODE == O_RDWR;
            let follows = shared || is_writable || !is_code && is_shared(key);
            // Files that are only read are mapped shared too, by everybody:
            // they make nobody wait for anybody.
            let in_memory = || early.kind.or_else(|| kind_of(fd)).is_some_and(is_in_memory);
            let joins = protection & PROT_WRITE != 0 || in_memory() || is_shared(key);
            if shared && joins || is_writable {
                share(thread, key);
                control().has_shared_files.store(1, Release);
            }
            // A private mapping may see its file change, too: by the program, who
            // can write to it, or by somebody who shares it. (Code is mapped by
            // everybody, and changed by nobody.)
            if follows {
                let is_file = sys::is_regular(stat.mode);
                more.words(tag::OBJECT, &[key, stat.size][..1 + usize::from(is_file)]);
                note_mapped(key);
            }
        }
    } else if shared {
        // Children will share it: they join this order of turns.
        turn::begin(thread);
        space().shared.set(1);
    }
    // SAFETY: the program's own call, checked above.
    let result = unsafe { arch::syscall(nr::MMAP, &args) };
    if result >= 0 && !anonymous {
        // Not before: files that cannot be mapped may not even be read.
        let id;
        (id, *file) = early
            .captured
            .unwrap_or_else(|| recorder::capture(thread, fd & 0xffff_ffff));
        if id != 0 {
            more.words(tag::FILE, &[id]);
        }
    }
    if result >= 0 && !lock::fresh(result as u64, len) {
        sys::call(nr::MUNMAP, result as u64, len, 0, 0, 0, 0);
        return -sys::EAGAIN;
    }
    let block = stat.map_or(0, |stat| stat.block);
    if result >= 0
        && let Some(len) = huge::mapped(result as u64, len, flags, block)
    {
        more.words(tag::PIECE, &[len]);
    }
    result
}

/// What is asked of a file that the program may serve itself before it is mapped, without
/// the turn.
#[derive(Default)]
struct Early {
    /// Of which kind its file system is.
    kind: Option<u64>,
    captured: Option<(u64, Option<usize>)>,
}

fn ask_early(thread: &Thread, args: &[u64; 6]) -> Early {
    const FUSE: u64 = 0x6573_5546;
    let fd = args[4] & 0xffff_ffff;
    let kind = kind_of(fd);
    let is_asked_for = kind.is_some_and(|kind| !served::is_made_up(kind));
    let captured = is_asked_for.then(|| recorder::capture(thread, fd));
    if kind == Some(FUSE) {
        fetch(thread, fd, args[5], args[1]);
    }
    Early { kind, captured }
}

/// Has the kernel read a part of a file, as for those who have it mapped: who touches it
/// there has the turn.
fn fetch(thread: &Thread, fd: u64, offset: u64, len: u64) {
    const PROT_READ: u64 = 1;
    const MAP_SHARED: u64 = 1;
    const MADV_POPULATE_READ: u64 = 22;
    const PAGE: u64 = 4096;
    let room = LARGE_BASE + u64::from(thread.slot.get()) * LARGE_SIZE;
    let map = |at: u64, len: u64, kind: u64| {
        let flags = kind | sys::MAP_FIXED;
        sys::call(nr::MMAP, room, len, PROT_READ, flags, fd, at) == room as i64
    };
    let size = sys::fstat(fd).map_or(0, |stat| stat.size);
    let end = offset
        .saturating_add(len)
        .min(size.saturating_add(PAGE - 1) & !(PAGE - 1));
    let mut at = offset;
    while at < end {
        let step = (end - at).min(LARGE_SIZE);
        if !map(at, step, MAP_SHARED) && !map(at, step, sys::MAP_PRIVATE) {
            return;
        }
        sys::call(nr::MADVISE, room, step, MADV_POPULATE_READ, 0, 0, 0);
        sys::call(nr::MUNMAP, room, step, 0, 0, 0, 0);
        at += step;
    }
}

/// Whether this is `/dev/zero`: each mapping of it is memory of its own, as if
/// there were no file.
fn is_dev_zero(stat: &sys::Stat) -> bool {
    const CHARACTER_DEVICE: u32 = 0x2000;
    const ZERO: u64 = 0x105;
    stat.mode & 0xf000 == CHARACTER_DEVICE && stat.special == ZERO
}

/// `brk` where what is new shall be locked.
fn brk(args: [u64; 6]) -> i64 {
    let before = sys::call(nr::BRK, 0, 0, 0, 0, 0, 0) as u64;
    let after = sys::call(nr::BRK, args[0], 0, 0, 0, 0, 0) as u64;
    if after > before && !lock::fresh(before, after - before) {
        return sys::call(nr::BRK, before, 0, 0, 0, 0, 0);
    }
    after as i64
}

fn shmat(thread: &Thread, args: [u64; 6], more: &mut Blobs) -> i64 {
    if mem::is_ours(args[1], 1) {
        return -sys::EINVAL;
    }
    if args[2] & SHM_RDONLY == 0 {
        share(thread, key_of(u64::MAX, args[0]));
    }
    // SAFETY: the program's own call.
    let result = unsafe { arch::syscall(nr::SHMAT, &args) };
    if result >= 0 {
        // How long it is, replay cannot ask.
        let mut words = [0u64; 14];
        sys::call(nr::SHMCTL, args[0], 2, words.as_mut_ptr() as u64, 0, 0, 0);
        let whole = huge::attached(result as u64, words[6]);
        more.words(tag::PIECE, &[whole.unwrap_or(words[6])]);
        more.words(tag::OBJECT, &[key_of(u64::MAX, args[0])]);
        lock::fresh(result as u64, words[6]);
    }
    result
}

pub fn key_of(device: u64, inode: u64) -> u64 {
    ((device ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ inode)
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
        | 1
}

const O_ACCMODE: u64 = 3;
const O_RDWR: u64 = 2;
const O_TRUNC: u64 = 0o1000;
const O_APPEND: u64 = 0o2000;

fn flags_of(fd: u64) -> u64 {
    const F_GETFL: u64 = 3;
    sys::call(nr::FCNTL, fd, F_GETFL, 0, 0, 0, 0).max(0) as u64
}

/// A file is mapped: what is done to it by calls shows in memory.
fn note_mapped(key: u64) {
    let keys = &space().mapped_files;
    let count = space().maps_files.get();
    if is_noted(key) {
        return;
    }
    if let Some(place) = keys.get(count as usize) {
        place.set(key);
    }
    // More than there is room for: then every file counts.
    space().maps_files.set(count.saturating_add(1));
}

fn is_noted(key: u64) -> bool {
    let count = space().maps_files.get() as usize;
    let keys = &space().mapped_files;
    count > keys.len() || keys.iter().take(count).any(|noted| noted.get() == key)
}

/// A file is about to be written, or to get another size: if others have it mapped,
/// this process takes turns with them from now on. They see in theirs what it does.
#[inline]
pub fn before_write(thread: &Thread, number: u64, args: &[u64; 6]) {
    let fd = match number {
        nr::WRITE
        | nr::WRITEV
        | nr::PWRITE64
        | nr::PWRITEV
        | nr::PWRITEV2
        | nr::FTRUNCATE
        | nr::FALLOCATE => args[0],
        nr::SPLICE => args[2],
        _ => return,
    };
    if control().has_shared_files.load(Relaxed) != 0 {
        join_for_write(thread, fd);
    }
}

/// [`before_write`] for a descriptor. Whether it leads to a file that is mapped, by this
/// process or by who takes turns with it.
#[inline(never)]
pub fn join_for_write(thread: &Thread, fd: u64) -> bool {
    if descriptors::is_no_file(thread.process(), fd) {
        return false;
    }
    let Some(stat) = sys::fstat(fd).filter(|stat| sys::is_regular(stat.mode)) else {
        return false;
    };
    let key = key_of(stat.device, stat.inode);
    if !is_noted(key) && is_shared(key) {
        share(thread, key);
        note_mapped(key);
    }
    is_noted(key)
}

/// A file that is mapped was written, or has another size: which, where in it,
/// and how long it is now.
#[inline]
pub fn written(thread: &Thread, number: u64, args: &[u64; 6], result: i64, more: &mut Blobs) {
    if result >= 0 && (space().maps_files.get() | space().pokes.get()) != 0 {
        note_written(thread, number, args, result, more);
    }
}

fn note_written(thread: &Thread, number: u64, args: &[u64; 6], result: i64, more: &mut Blobs) {
    use protocol::record::object::NOWHERE;
    if space().pokes.get() != 0 && poke::written(thread, number, args, result, more) {
        return;
    }
    let (fd, offset) = match number {
        // Servers write to sockets all the time.
        nr::WRITE | nr::WRITEV if descriptors::is_no_file(thread.process(), args[0]) => return,
        nr::WRITE | nr::WRITEV => (args[0], None),
        nr::PWRITE64 | nr::PWRITEV => (args[0], Some(args[3])),
        nr::PWRITEV2 => (args[0], Some(args[3]).filter(|at| *at != u64::MAX)),
        nr::FALLOCATE if moved::shifts(args[1]) => (args[0], Some(args[2])),
        nr::FTRUNCATE | nr::FALLOCATE => (args[0], Some(NOWHERE)),
        nr::SENDFILE => (args[0], None),
        nr::SPLICE | nr::COPY_FILE_RANGE if args[3] == 0 => (args[2], None),
        nr::SPLICE | nr::COPY_FILE_RANGE => {
            // It is behind what was written now.
            let end = mem::read::<u64>(args[3]);
            (args[2], end.map(|end| end.saturating_sub(result as u64)))
        }
        nr::OPEN if args[1] & O_TRUNC != 0 => (result as u64, Some(NOWHERE)),
        nr::OPENAT if args[2] & O_TRUNC != 0 => (result as u64, Some(NOWHERE)),
        nr::CREAT | nr::OPENAT2 => (result as u64, Some(NOWHERE)),
        nr::TRUNCATE => {
            if let Some(stat) = sys::stat(args[0]) {
                let key = key_of(stat.device, stat.inode);
                if is_noted(key) {
                    more.words(tag::OBJECT, &[key, NOWHERE, stat.size]);
                }
            }
            return;
        }
        _ => return,
    };
    let Some(stat) = sys::fstat(fd).filter(|stat| sys::is_regular(stat.mode)) else {
        return;
    };
    let key = key_of(stat.device, stat.inode);
    if !is_noted(key) {
        return;
    }
    let offset = match offset {
        Some(NOWHERE) => NOWHERE,
        // Whatever it was told, there it goes to the end.
        _ if flags_of(fd) & O_APPEND != 0 => stat.size.saturating_sub(result as u64),
        Some(at) => at,
        None => sys::offset(fd).saturating_sub(result).max(0) as u64,
    };
    more.words(tag::OBJECT, &[key, offset, stat.size]);
    if offset != NOWHERE && moved::is_read_back(number, args) {
        let len = match number {
            nr::FALLOCATE => stat.size.saturating_sub(offset),
            _ => result as u64,
        };
        moved::read_back(thread, fd, offset, len, more);
    }
}

/// Of which kind a file's file system is.
pub fn kind_of(fd: u64) -> Option<u64> {
    const FSTATFS: u64 = 138;
    let mut words = [0u64; 16];
    let result = sys::call(FSTATFS, fd, words.as_mut_ptr() as u64, 0, 0, 0, 0);
    (result == 0).then_some(words[0])
}

/// Whether files of such a kind are only there to be shared: they are not on a disk.
fn is_in_memory(kind: u64) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const HUGETLBFS: u64 = 0x9584_58f6;
    matches!(kind, TMPFS | HUGETLBFS)
}

/// Whether somebody has this mapped already and may write to it.
fn is_shared(key: u64) -> bool {
    let table = &control().shared;
    (0..256)
        .map(|step| {
            table[(key as usize >> 3).wrapping_add(step) & (SHARED_MAX - 1)]
                .key
                .load(Acquire)
        })
        .take_while(|found| *found != 0)
        .any(|found| found == key)
}

/// Memory that other processes may map too: all who do take turns together.
fn share(thread: &Thread, key: u64) {
    turn::begin(thread);
    space().shared.set(1);
    let own = || space().domain.load(Acquire);
    let table = &control().shared;
    for step in 0..256 {
        let place = &table[(key as usize >> 3).wrapping_add(step) & (SHARED_MAX - 1)];
        match place.key.compare_exchange(0, key, AcqRel, Acquire) {
            Ok(_) => {
                domain();
                place.domain.store(u64::from(own()) + 1, Release);
                return;
            }
            Err(found) if found == key => {
                let mut other = place.domain.load(Acquire);
                while other == 0 {
                    core::hint::spin_loop();
                    other = place.domain.load(Acquire);
                }
                turn::merge(thread, other as u32 - 1);
                return;
            }
            Err(_) => {}
        }
    }
}
