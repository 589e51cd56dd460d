//! The arena, from the recorder's side.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use protocol::id::Ticks;
use protocol::shared::{
    ARENA_MAGIC, CHUNK_HEAD, CHUNK_MAGIC, CHUNK_SIZE, CHUNKS_MAX, CHUNKS_OFFSET, CONTROL_SIZE,
    ChunkHead, Control, IMAGE_OFFSET, chunk_state, mode,
};

use crate::{Error, failing};

/// How much of the first chunk is filled while nothing runs yet: most programs
/// need no more.
const FIRST_FILL: usize = 96 * 1024;

/// The file, and the mapping of its control block. Lives as long as the
/// recorder.
pub struct Arena {
    file: File,
    path: PathBuf,
    image_len: u64,
    base: *mut u8,
}

/// How much of the spare room is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spare {
    Some,
    All,
}

// SAFETY: what lies behind `base` is shared memory, accessed through atomics.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Makes it, but for the monitor's image.
    pub fn create(path: &Path, image_len: u64) -> Result<Arena, Error> {
        let fail = failing(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(fail("cannot create"))?;
        // The fixed part must never run out of disk while it is written to.
        allocate(&file, 0, CHUNKS_OFFSET).map_err(fail("no room for"))?;
        let base = map(&file).map_err(fail("cannot map"))?;
        let arena = Arena {
            file,
            path: path.to_path_buf(),
            image_len,
            base,
        };
        let control = arena.control();
        control.version.store(protocol::FORMAT_VERSION, Release);
        control.next_process.store(1, Release);
        control.next_domain.store(1, Release);
        control.magic.store(ARENA_MAGIC, Release);
        // There must be something to write to before anything runs.
        arena.add_chunks(1).map_err(fail("no room for"))?;
        Ok(arena)
    }

    /// The arena of an agent that runs, for one who halts its program beside it. It
    /// writes to nothing but what says who is halted.
    pub fn join(path: &Path) -> Result<Arena, Error> {
        let fail = failing(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(fail("cannot open"))?;
        let len = file.metadata().map_err(fail("cannot read"))?.len();
        if len < CONTROL_SIZE {
            return Err(fail("cannot use")(std::io::ErrorKind::InvalidData.into()));
        }
        let base = map(&file).map_err(fail("cannot map"))?;
        let arena = Arena {
            file,
            path: path.to_path_buf(),
            image_len: 0,
            base,
        };
        let control = arena.control();
        let is_ours = control.magic.load(Acquire) == ARENA_MAGIC
            && control.version.load(Acquire) == protocol::FORMAT_VERSION;
        match is_ours {
            true => Ok(arena),
            false => Err(fail("cannot use")(std::io::ErrorKind::InvalidData.into())),
        }
    }

    /// The monitor, which processes map from here.
    pub fn write_image(&self, image: &[u8]) -> Result<(), Error> {
        let fail = failing(&self.path);
        self.file
            .write_all_at(image, IMAGE_OFFSET)
            .map_err(fail("cannot write"))
    }

    /// The disk is full: gives back what nobody needs of the fixed part, so that
    /// what is still to be written finds a place. Of a program that is being ended,
    /// `Some` is enough until it has: it may be the one that fills the disk.
    pub fn release_spare(&self, how_much: Spare) {
        use rustix::fs::FallocateFlags;
        let spare = IMAGE_OFFSET + self.image_len.next_multiple_of(CHUNK_SIZE as u64);
        let end = match how_much {
            Spare::Some => CHUNKS_OFFSET.min(spare + 4 * CHUNK_SIZE as u64),
            Spare::All => CHUNKS_OFFSET,
        };
        // If the file system cannot do that, there is nothing to be done.
        let _ = rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            spare,
            end.saturating_sub(spare),
        );
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn control(&self) -> &Control {
        // SAFETY: mapped for good, large enough, aligned, made of atomics.
        unsafe { &*self.base.cast::<Control>() }
    }

    /// Backs more chunks with disk space and sets them free, one by one: some
    /// process may wait for the first. If there is no room for all of them,
    /// there will be none.
    pub fn add_chunks(&self, count: u32) -> std::io::Result<()> {
        let control = self.control();
        let made = control.chunks_made.load(Acquire);
        let end = made.saturating_add(count);
        if end as usize > CHUNKS_MAX {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        let len = u64::from(count) * CHUNK_SIZE as u64;
        allocate(&self.file, offset_of_chunk(made as usize), len)?;
        for index in made..end {
            self.fill(
                index as usize,
                if index == 0 { FIRST_FILL } else { CHUNK_SIZE },
            );
            if let Some(state) = control.chunk_state.get(index as usize) {
                state.store(chunk_state::FREE, Release);
            }
            let free = control.chunks_free.fetch_add(1, AcqRel);
            control.chunks_made.store(index + 1, Release);
            if free == 0 || index + 1 == end {
                self.tell_supply();
            }
        }
        Ok(())
    }

    /// Fills a chunk that nobody uses yet with zeroes, in one piece: the kernel
    /// then keeps it in one piece of memory, which a process that maps it gets
    /// at the first touch. Else it would get page by page what has to be found
    /// room for page by page, which takes ten times as long.
    fn fill(&self, index: usize, len: usize) {
        const PIECE: usize = 16 * 1024;
        static ZEROES: [u8; PIECE] = [0; PIECE];
        let pieces = [IoSlice::new(&ZEROES); CHUNK_SIZE / PIECE];
        let pieces = pieces.get(..len / PIECE).unwrap_or(&pieces);
        // What is not filled is room all the same.
        let _ = rustix::io::pwritev(&self.file, pieces, offset_of_chunk(index));
    }

    /// A copy of what is whole in a chunk; None if it holds nothing. `room` is
    /// memory to use for it.
    pub fn chunk<'a>(&self, index: usize, room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let offset = offset_of_chunk(index);
        let mut head = [0; CHUNK_HEAD];
        self.file.read_exact_at(&mut head, offset).ok()?;
        let word = |at: usize| {
            let bytes = head.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let used = word(offset_of!(ChunkHead, used))?;
        if word(offset_of!(ChunkHead, magic))? != CHUNK_MAGIC
            || !(CHUNK_HEAD + 1..=CHUNK_SIZE).contains(&(used as usize))
        {
            return None;
        }
        if room.len() < used as usize {
            room.resize(used as usize, 0);
        }
        let bytes = room.get_mut(..used as usize)?;
        self.file.read_exact_at(bytes, offset).ok()?;
        // A writer that goes on meanwhile does not count.
        let place = offset_of!(ChunkHead, used);
        bytes
            .get_mut(place..place + 4)?
            .copy_from_slice(&used.to_le_bytes());
        Some(bytes)
    }

    /// A number that changes whenever any process of the program logs something.
    pub fn progress(&self) -> u64 {
        let control = self.control();
        let made = control.chunks_made.load(Acquire) as usize;
        let written = (0..made.min(CHUNKS_MAX)).map(|index| {
            let mut used = [0; 4];
            let at = offset_of_chunk(index) + offset_of!(ChunkHead, used) as u64;
            match self.file.read_exact_at(&mut used, at) {
                Ok(()) => u64::from(u32::from_le_bytes(used)),
                Err(_) => 0,
            }
        });
        written.fold(control.doorbell.load(Acquire).into(), |sum: u64, used| {
            sum.wrapping_mul(31).wrapping_add(used)
        })
    }

    /// A chunk whose bytes are safe elsewhere may be used again.
    pub fn recycle(&self, index: usize) {
        let control = self.control();
        // It holds nothing any more, should everything end now. (Its space is
        // there: this cannot fail for want of it.)
        let magic = offset_of_chunk(index) + offset_of!(ChunkHead, magic) as u64;
        let _ = self.file.write_all_at(&[0; 4], magic);
        if let Some(state) = control.chunk_state.get(index) {
            state.store(chunk_state::FREE, Release);
        }
        control.chunks_free.fetch_add(1, AcqRel);
        self.tell_supply();
    }

    pub fn tell_supply(&self) {
        let supply = &self.control().supply;
        supply.fetch_add(1, AcqRel);
        wake(supply, i32::MAX);
    }

    /// The recording is over: monitors pass calls through, or end.
    pub fn end(&self, how: u32) {
        let _ = self
            .control()
            .mode
            .compare_exchange(mode::RECORD, how, AcqRel, Acquire);
        self.tell_supply();
    }
}

/// Maps the control block, for good.
fn map(file: &File) -> std::io::Result<*mut u8> {
    // SAFETY: a fresh mapping of a file of this length; never unmapped.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            CONTROL_SIZE as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // The first touch of a page must not make the kernel read ahead: that
    // takes milliseconds, and there is nothing yet to read.
    // SAFETY: advice about the mapping just made.
    unsafe { libc::madvise(base, CONTROL_SIZE as usize, libc::MADV_RANDOM) };
    Ok(base.cast())
}

fn offset_of_chunk(index: usize) -> u64 {
    CHUNKS_OFFSET + (index.min(CHUNKS_MAX - 1) * CHUNK_SIZE) as u64
}

fn allocate(file: &File, offset: u64, len: u64) -> std::io::Result<()> {
    use rustix::fs::FallocateFlags;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len) {
        Ok(()) => Ok(()),
        // A file system that cannot promise space: find out by writing.
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let zeroes = [0u8; 65536];
            let mut done = 0;
            while done < len {
                let step = (len - done).min(65536) as usize;
                file.write_all_at(zeroes.get(..step).unwrap_or(&zeroes), offset + done)?;
                done += step as u64;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits on a futex in the arena; `timeout` in milliseconds. False: in vain.
pub fn wait(word: &AtomicU32, value: u32, timeout: u64) -> bool {
    let limit = libc::timespec {
        tv_sec: (timeout / 1000) as i64,
        tv_nsec: (timeout % 1000 * 1_000_000) as i64,
    };
    // SAFETY: both pointers are valid for the time of the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const limit,
        );
    }
    word.load(Acquire) != value
}

pub fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the pointer is valid for the time of the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// The log's clock.
pub fn ticks() -> Ticks {
    Ticks(counter() >> protocol::shared::TICK_SHIFT)
}

/// The time-stamp counter.
pub fn counter() -> u64 {
    // SAFETY: rdtsc has no effect on memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}
