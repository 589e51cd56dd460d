//! Copies of what the program runs and maps, so that the recording stands
//! alone.
//!
//! What a program needed each of the last times, such as its libraries, is
//! captured while the kernel still makes its first image: then nobody has to
//! wait for it. The [`CaptureCache`] remembers what that was.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::id::ProcessNo;
use protocol::instruction::Site;
use protocol::shared::{CAPTURED_MAX, CAPTURED_PROBES, Control, file_key, find_captured};
use recording::{FileInfo, Note, Writer};

use crate::capture_cache::{CaptureCache, Companion};
use crate::copy::copy_contents;
use crate::parts::{self, Changes, Part};
use crate::sites::{self, Sites};

/// How many files are remembered of a program.
const COMPANIONS: usize = 64;

/// Smaller files are searched faster than a thread is made.
const WORTH_A_THREAD: u64 = 1 << 20;

/// The captured files of one recording.
pub struct Captures {
    dir: PathBuf,
    next: AtomicU64,
    /// One at a time: the same library is asked for by many at once.
    lock: Mutex<Known>,
    /// Whether copies are made; else only what is to be replaced is looked for.
    copies: bool,
    /// Not known to be otherwise.
    can_clone: AtomicBool,
    cache: CaptureCache,
    /// What it captured, in this order, and where in the arena's table it is.
    made: Mutex<Vec<(PathBuf, Option<usize>)>>,
}

/// What is known of the files that were captured.
#[derive(Default)]
struct Known {
    /// How many of the arena's counter sites are in use.
    sites: usize,
    /// The last copy of each file that was copied, by device and inode.
    last: HashMap<(u64, u64), Last>,
}

struct Last {
    /// The last copy of all of it, and how long it was.
    whole: u64,
    size: u64,
    sites: Sites,
    /// It is a program, or a library: what reads such files wants all of it.
    is_code: bool,
    /// What it was called last (`protocol::captured`), and which parts are not as in
    /// the whole copy.
    name: u64,
    parts: Vec<Part>,
}

/// A file that is to be captured.
#[derive(Clone, Copy)]
struct Subject<'a> {
    file: &'a File,
    meta: &'a Metadata,
    path: &'a Path,
}

/// Why a file is captured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Somebody maps it.
    Needed,
    /// Somebody is likely to.
    Expected,
}

/// A file that has been captured.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// As the log names it (`protocol::captured`).
    pub id: u64,
    /// Its place in the arena's table; none if there was no room.
    pub place: Option<usize>,
}

impl Captures {
    pub fn new(dir: &Path, cache: CaptureCache) -> Captures {
        Captures {
            dir: dir.to_path_buf(),
            next: AtomicU64::new(1),
            copies: true,
            lock: Mutex::default(),
            can_clone: AtomicBool::new(may_clone(dir)),
            cache,
            made: Mutex::new(Vec::new()),
        }
    }

    /// Those of a program that is not recorded: nothing is copied, and only reads
    /// of the time-stamp counter are replaced, and what the monitor stands on.
    pub fn of_live(dir: &Path, cache: CaptureCache) -> Captures {
        Captures {
            copies: false,
            ..Captures::new(dir, cache)
        }
    }

    /// What a program that begins with this executable is likely to need.
    pub fn expected(&self, exe: &Metadata) -> Vec<Companion> {
        self.cache.take_companions(exe)
    }

    /// Captures a file that is likely to be needed.
    pub fn expect(&self, control: &Control, writer: &Writer, path: &Path) {
        if let Ok(file) = open_file(path) {
            // What cannot be captured now is told when it is needed.
            let _ = self.capture(control, writer, &file, path, Why::Expected);
        }
    }

    /// Remembers what was needed, for the next time.
    pub fn remember(&self, control: &Control, exe: &Metadata, expected: &[Companion]) {
        let made = lock(&self.made);
        let was_needed = |place: &Option<usize>| {
            let entry = place.and_then(|place| control.captured.get(place));
            entry.is_none_or(|entry| entry.needed.load(Acquire) != 0)
        };
        let needed = made.iter().filter(|(_, place)| was_needed(place));
        let now: Vec<Companion> = needed
            .take(COMPANIONS)
            .map(|(path, _)| Companion {
                path: path.clone(),
                is_sure: expected.iter().any(|known| known.path == *path),
            })
            .collect();
        // Who comes first of two that are captured at once is chance.
        let is_known = now.len() == expected.len() && now.iter().all(|c| expected.contains(c));
        if !is_known {
            self.cache.put_companions(exe, &now);
        }
    }

    /// The copy of an open file, made now if there is none. None: it is not a
    /// regular file.
    pub fn capture(
        &self,
        control: &Control,
        writer: &Writer,
        file: &File,
        name: &Path,
        why: Why,
    ) -> io::Result<Option<Captured>> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(None);
        }
        let times = [
            meta.mtime() as u64,
            meta.mtime_nsec() as u64,
            meta.ctime() as u64,
            meta.ctime_nsec() as u64,
        ];
        let key = file_key(meta.dev(), meta.ino(), meta.size(), times);
        let mut known = lock(&self.lock);
        let found = find_captured(&control.captured, key);
        if let Some(place) = found.filter(|_| is_dated(&meta)) {
            let entry = control.captured.get(place);
            if let Some(entry) = entry.filter(|_| why == Why::Needed) {
                entry.needed.store(1, Release);
            }
            return Ok(entry.map(|entry| Captured {
                id: entry.id.load(Acquire),
                place: Some(place),
            }));
        }
        let place = free_place(control, key);
        let subject = Subject {
            file,
            meta: &meta,
            path: name,
        };
        if let Some(id) = self.again(control, writer, &mut known, subject, place)? {
            if let Some(entry) = place.and_then(|place| control.captured.get(place)) {
                entry.id.store(id, Release);
                entry.needed.store(u64::from(why == Why::Needed), Release);
                entry.key.store(key, Release);
            }
            return Ok(Some(Captured { id, place }));
        }
        let id = self.next.fetch_add(1, AcqRel);
        let sites = match self.copies {
            true => self.whole(id, |path| self.copy_and_search(file, &meta, path))?,
            false => self.search(file, &meta)?,
        };
        note_copy(writer, id, &meta, name)?;
        let kept = keep_sites(control, place, &sites, &mut known.sites);
        if !kept || !sites.doubtful.is_empty() {
            let left = if kept {
                sites.doubtful.len()
            } else {
                sites.doubtful.len() + sites.confirmed.len()
            };
            let note = Note {
                process: ProcessNo(0),
                kind: "counter".to_string(),
                text: format!(
                    "{}: {left} instructions that may ask the processor (rdtsc, cpuid, rdrand and kin) stay as they are",
                    name.display()
                ),
            };
            writer.note(&note).map_err(io::Error::other)?;
        }
        if let Some(entry) = place.and_then(|place| control.captured.get(place)) {
            entry.id.store(id, Release);
            entry.needed.store(u64::from(why == Why::Needed), Release);
            entry.key.store(key, Release);
        }
        lock(&self.made).push((name.to_path_buf(), place));
        let last = Last {
            whole: id,
            size: meta.size(),
            is_code: is_code(file) || sites != Sites::default(),
            sites,
            name: id,
            parts: Vec::new(),
        };
        known.last.insert((meta.dev(), meta.ino()), last);
        Ok(Some(Captured { id, place }))
    }

    /// A file that was touched since it was copied: a copy of what is not as it was. None: all of
    /// it is to be copied. That may be nothing (a shared file's times change when its name goes, its
    /// rights change, or what was there is written again), and it has a name of its own all the
    /// same: replay follows what is written to a file by way of memory, and goes on from there where the
    /// name is one that it knows. A file that was removed and made again looks like the one that was there.
    /// Of a program or library nobody wants to know.
    fn again(
        &self,
        control: &Control,
        writer: &Writer,
        known: &mut Known,
        Subject { file, meta, path }: Subject<'_>,
        place: Option<usize>,
    ) -> io::Result<Option<u64>> {
        let Some(last) = known.last.get_mut(&(meta.dev(), meta.ino())) else {
            return Ok(None);
        };
        if last.size != meta.size() || !self.copies {
            return Ok(None);
        }
        let copy_of = |id: u64| File::open(recording::captured_path(&self.dir, id));
        let whole = copy_of(last.whole)?;
        // It may have become shorter meanwhile.
        let Ok(Changes::Parts(parts)) = parts::changes(file, &whole, last.size) else {
            return Ok(None);
        };
        if last.is_code && !parts.is_empty() {
            return Ok(None);
        }
        if !last.is_code {
            // And one for the list.
            let id = self.next.fetch_add(2, AcqRel);
            let name = protocol::captured::parts_of(id, last.whole);
            let path_of = |id: u64| recording::captured_path(&self.dir, id);
            let list_of = |name: u64| path_of(protocol::captured::list(name));
            let is_linked = last.parts == parts && !parts.is_empty() && {
                let copy = path_of(protocol::captured::id(last.name));
                let links = || {
                    std::fs::hard_link(&copy, path_of(id))?;
                    std::fs::hard_link(list_of(last.name), list_of(name))
                };
                parts::are_same(file, &File::open(&copy)?, &parts, last.size).unwrap_or(false)
                    && links().is_ok()
            };
            if !is_linked {
                self.whole(id, |to| {
                    self.whole(protocol::captured::list(name), |list| {
                        parts::copy(file, &parts, last.size, to, list)
                    })
                })?;
            }
            note_copy(writer, id, meta, path)?;
            (last.name, last.parts) = (name, parts);
        }
        let kept = keep_sites(control, place, &last.sites, &mut known.sites);
        Ok(kept.then_some(last.name))
    }

    /// Makes a file of the recording. It gets its name when it is whole: who looks at a
    /// recording that grows takes what has one.
    fn whole<T>(&self, id: u64, make: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let path = recording::captured_path(&self.dir, id);
        let begun = path.with_extension("part");
        let made = make(&begun)?;
        std::fs::rename(&begun, &path)?;
        Ok(made)
    }

    /// Looks for the instructions that matter in a program that is not recorded.
    fn search(&self, file: &File, meta: &Metadata) -> io::Result<Sites> {
        use protocol::instruction::Instruction::{Counter, Wrgsbase};
        let mut sites = match self.cache.take_sites(meta) {
            Some(sites) => sites,
            None => {
                let found = sites::find(file)?;
                if state(&file.metadata()?) == state(meta) {
                    self.cache.put_sites(meta, &found);
                }
                found
            }
        };
        let matters = |site: &Site| matches!(site.form.what, Counter | Wrgsbase);
        sites.confirmed.retain(matters);
        Ok(sites)
    }

    /// Copies a file and looks for the instructions that matter in it, as far
    /// as that has not been done before.
    fn copy_and_search(&self, file: &File, meta: &Metadata, path: &Path) -> io::Result<Sites> {
        let is_dated = is_dated(meta);
        let known = match is_dated {
            true => self.cache.take_sites(meta),
            false => None,
        };
        let is_copied = self.share(file, meta, path)?;
        // Both read all of a large file: at the same time.
        let (copied, found) = std::thread::scope(|scope| {
            let find = || match &known {
                Some(sites) => Ok(sites.clone()),
                None => sites::find(file),
            };
            let alone = is_copied || known.is_some() || meta.size() < WORTH_A_THREAD;
            let finding = if alone {
                None
            } else {
                std::thread::Builder::new().spawn_scoped(scope, find).ok()
            };
            let copied = if is_copied {
                Ok(None)
            } else {
                copy_contents(file, path).map(Some)
            };
            let found = finding.and_then(|thread| thread.join().ok());
            (copied, found.unwrap_or_else(find))
        });
        let (copied, found) = (copied?, found?);
        if is_dated && state(&file.metadata()?) == state(meta) {
            if let Some(copy) = copied.filter(|copy| len_of(copy) == Some(meta.size())) {
                self.cache.put_copy(meta, &copy, path);
            }
            if known.is_none() {
                self.cache.put_sites(meta, &found);
            }
        }
        Ok(found)
    }

    /// A copy without copying: by sharing the blocks, if the file system can, or
    /// by a link to a copy that was made before. False: there is none.
    fn share(&self, file: &File, meta: &Metadata, path: &Path) -> io::Result<bool> {
        if self.can_clone.load(Relaxed) {
            let copy = File::create_new(path)?;
            match clone_contents(file, &copy) {
                Ok(()) => return Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    self.can_clone.store(false, Relaxed);
                }
                Err(_) => {}
            }
            std::fs::remove_file(path)?;
        }
        Ok(is_dated(meta) && self.cache.take_copy(meta, path))
    }
}

/// Tells the recording of a copy.
fn note_copy(writer: &Writer, id: u64, meta: &Metadata, path: &Path) -> io::Result<()> {
    let info = FileInfo {
        id,
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        dev: meta.dev(),
        ino: meta.ino(),
        size: meta.size(),
        mtime_ns: meta
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(meta.mtime_nsec()),
        mode: meta.mode(),
    };
    writer.file(&info).map_err(io::Error::other)?;
    tracing::debug!(
        target: "record",
        id,
        size = info.size,
        path = %path.display(),
        "a file is captured"
    );
    Ok(())
}

fn is_code(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}

/// Opens a regular file of the program's to read it; what is none is not opened
/// at all. To open a pipe would wait for its other end, or be that for somebody
/// who waits; a device may do anything.
pub fn open_file(path: &Path) -> io::Result<File> {
    let place = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    if !place.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let name = format!("/proc/self/fd/{}", place.as_raw_fd());
    OpenOptions::new()
        .read(true)
        // Nor for who has a lease on it.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What of a file changes when its contents do.
fn state(meta: &Metadata) -> (u64, [i64; 4]) {
    let times = [
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ];
    (meta.size(), times)
}

/// Whether a file says when it was changed. Who serves one (FUSE) need not: it may be another each
/// time.
fn is_dated(meta: &Metadata) -> bool {
    state(meta).1 != [0; 4]
}

fn len_of(file: &File) -> Option<u64> {
    Some(file.metadata().ok()?.size())
}

/// Where a file goes in the table. None: the table is full around there, and
/// the file is captured again next time.
fn free_place(control: &Control, key: u64) -> Option<usize> {
    (0..CAPTURED_PROBES)
        .map(|step| (key as usize).wrapping_add(step) & (CAPTURED_MAX - 1))
        .find(|at| {
            let entry = control.captured.get(*at);
            entry.is_some_and(|entry| entry.key.load(Acquire) == 0)
        })
}

/// Tells the monitors what in a file is to be replaced. False: there is no
/// room for that.
fn keep_sites(control: &Control, place: Option<usize>, sites: &Sites, used: &mut usize) -> bool {
    let words = sites.confirmed.iter().map(|site| site.to_word());
    let Some(words) = words.collect::<Option<Vec<u64>>>() else {
        return false;
    };
    let count = words.len();
    if count == 0 {
        return true;
    }
    let end = used.saturating_add(count);
    let (Some(place), Some(room)) = (place, control.counter_sites.get(*used..end)) else {
        return false;
    };
    for (place, word) in room.iter().zip(words) {
        place.store(word, Relaxed);
    }
    control.set_counter_sites_of(place, *used, count);
    *used = end;
    true
}

/// False: its file system is one of the usual ones that cannot share blocks.
fn may_clone(dir: &Path) -> bool {
    const EXT4: u64 = 0xef53;
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(dir).map_or(true, |fs| ![EXT4, TMPFS].contains(&(fs.f_type as u64)))
}

/// Shares the blocks of a file.
fn clone_contents(from: &File, to: &File) -> io::Result<()> {
    const FICLONE: libc::Ioctl = 0x4004_9409_u32 as libc::Ioctl;
    // SAFETY: FICLONE takes a descriptor, and touches no memory.
    match unsafe { libc::ioctl(to.as_raw_fd(), FICLONE, from.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
