//! What earlier recordings found out about files that have not changed since:
//! a copy, which a recording gets as one more link, and where the time-stamp
//! counter is read. Neither then takes time, the copy not even room. And which
//! files an executable needs.
//!
//! Every program maps the same few libraries; to copy and search them is most of
//! what it costs to start a recording. So both are also kept in a *cache*, a
//! directory of the user's, under names that say of which state of which file
//! they are. A link is a file like any other: the recording stands alone, and
//! may be moved, copied or removed.
//!
//! What makes it safe:
//! - A file is known by device, inode, size and the times of its last changes,
//!   which no write leaves as they are. Only writes through a mapping do so,
//!   for as long as its page waits to be written back; and two changes of one
//!   moment look alike. So nothing is kept of what changed lately. Devices and
//!   images of disks may be others after a reboot: so each boot of the machine
//!   has a cache of its own.
//! - A copy that somebody wrote to is recognized by its own size and time of
//!   last change, which is the original's, and is thrown away.
//! - What was found in a file counts only for the very `mw` that found it.
//! - Only a directory of the user's own that nobody else may write to is used.
//!
//! Everything here may fail: then files are copied and searched.

use std::ffi::OsStr;
use std::fs::{File, FileTimes, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use protocol::instruction::{Form, Neighbours, Site};

use crate::sites::{self, Sites};

/// How long a file must have been as it is. Pages that were written through a
/// mapping wait for half a minute before they are written back.
const SETTLED: Duration = Duration::from_secs(120);
/// Smaller files are copied in no time.
const SMALLEST: u64 = 16 * 1024;
/// How many bytes may be kept that no recording has any more.
const ALONE: u64 = 1 << 30;

/// See the module.
pub struct CaptureCache {
    /// That of this boot; None: there is no place for one.
    dir: Option<PathBuf>,
    made: OnceLock<bool>,
}

impl CaptureCache {
    /// The cache in a directory that is made when it is needed.
    pub fn new(dir: Option<&Path>) -> CaptureCache {
        let boot = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let own = dir.and_then(|dir| Some(dir.join(boot()?.trim())));
        CaptureCache {
            dir: own,
            made: OnceLock::new(),
        }
    }

    /// Makes `to` a link to the copy of a file in this state. False: there is
    /// none.
    pub fn take_copy(&self, file: &Metadata, to: &Path) -> bool {
        let Some(copy) = self.place(file).filter(|_| self.is_there()) else {
            return false;
        };
        if std::fs::hard_link(&copy, to).is_err() {
            return false;
        }
        let is_intact = std::fs::symlink_metadata(to).is_ok_and(|meta| {
            meta.is_file() && meta.size() == file.size() && modified(&meta) == modified(file)
        });
        if !is_intact {
            let _ = std::fs::remove_file(to);
            let _ = std::fs::remove_file(&copy);
        }
        is_intact
    }

    /// Keeps the copy `copy`, made of a file that is still in this state.
    pub fn put_copy(&self, file: &Metadata, copy: &File, path: &Path) {
        let put = |place: &Path| -> io::Result<()> {
            // Nobody shall write to it by mistake: it is in several recordings.
            copy.set_permissions(PermissionsExt::from_mode(0o444))?;
            copy.set_times(FileTimes::new().set_modified(file.modified()?))?;
            std::fs::hard_link(path, place)
        };
        if let Some(place) = self.place(file).filter(|_| self.is_made()) {
            let _ = put(&place);
        }
    }

    /// What was found in a file in this state.
    pub fn take_sites(&self, file: &Metadata) -> Option<Sites> {
        let place = self.place_of_sites(file).filter(|_| self.is_there())?;
        decode(&std::fs::read(place).ok()?)
    }

    /// Keeps what was found in a file that is still in this state.
    pub fn put_sites(&self, file: &Metadata, sites: &Sites) {
        if let Some(place) = self.place_of_sites(file).filter(|_| self.is_made()) {
            let _ = replace(&place, &encode(sites));
        }
    }

    /// What a program needed that began with an executable in this state.
    pub fn take_companions(&self, exe: &Metadata) -> Vec<Companion> {
        let place = self.place_of_companions(exe).filter(|_| self.is_there());
        let bytes = place.and_then(|place| std::fs::read(place).ok());
        let bytes = bytes.unwrap_or_default();
        let items = bytes.split(|byte| *byte == 0);
        items.filter_map(Companion::decode).collect()
    }

    /// Remembers what it needed.
    pub fn put_companions(&self, exe: &Metadata, companions: &[Companion]) {
        let place = self.place_of_companions(exe).filter(|_| self.is_made());
        let bytes: Vec<u8> = companions.iter().flat_map(Companion::encode).collect();
        if let Some(place) = place {
            let _ = replace(&place, &bytes);
        }
    }

    fn place_of_companions(&self, exe: &Metadata) -> Option<PathBuf> {
        let mut name = self.place(exe)?.into_os_string();
        name.push(".with");
        Some(PathBuf::from(name))
    }

    fn is_there(&self) -> bool {
        self.dir.as_deref().is_some_and(is_private)
    }

    /// Makes the cache, if it is not there, and removes those of other boots,
    /// and what nobody needs any more.
    fn is_made(&self) -> bool {
        *self.made.get_or_init(|| {
            let Some(dir) = &self.dir else { return false };
            if is_private(dir) {
                tidy(dir, ALONE);
                return true;
            }
            let mut maker = std::fs::DirBuilder::new();
            let made = maker.recursive(true).mode(0o700).create(dir);
            if made.is_err() || !is_private(dir) {
                return false;
            }
            let caches = dir.parent().and_then(|parent| parent.read_dir().ok());
            for other in caches.into_iter().flatten().flatten() {
                if other.path() != *dir {
                    let _ = std::fs::remove_dir_all(other.path());
                }
            }
            true
        })
    }

    /// Where the copy of a file in this state is, or would be. None: it is not
    /// one for the cache.
    fn place(&self, file: &Metadata) -> Option<PathBuf> {
        let dir = self.dir.as_ref()?;
        let now = SystemTime::now();
        let changed = SystemTime::UNIX_EPOCH
            + Duration::new(
                u64::try_from(file.ctime()).ok()?,
                u32::try_from(file.ctime_nsec()).ok()?,
            );
        let settled = |at: SystemTime| now.duration_since(at).is_ok_and(|age| age >= SETTLED);
        if file.size() < SMALLEST || !settled(changed) || !settled(file.modified().ok()?) {
            return None;
        }
        Some(dir.join(name(file)))
    }

    /// Where the cache has what this `mw` found in a file; `None` if it is not to
    /// be kept.
    fn place_of_sites(&self, file: &Metadata) -> Option<PathBuf> {
        static OURSELVES: OnceLock<Option<String>> = OnceLock::new();
        let place = self.place(file)?;
        let ourselves = OURSELVES.get_or_init(|| {
            let meta = std::fs::metadata("/proc/self/exe").ok()?;
            Some(name(&meta))
        });
        let mut name = place.into_os_string();
        name.push(".");
        name.push(ourselves.as_ref()?);
        Some(PathBuf::from(name))
    }
}

/// A file that a program needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Companion {
    pub path: PathBuf,
    /// It did so twice in a row.
    pub is_sure: bool,
}

impl Companion {
    fn encode(&self) -> Vec<u8> {
        let mark = if self.is_sure { b'+' } else { b'?' };
        let path = self.path.as_os_str().as_bytes();
        [&[mark], path, &[0]].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Companion> {
        let (mark, path) = bytes.split_first()?;
        let path = PathBuf::from(OsStr::from_bytes(path));
        path.is_absolute().then_some(Companion {
            path,
            is_sure: *mark == b'+',
        })
    }
}

/// Writes a file in one step.
fn replace(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = place.with_extension(format!("new-{}", std::process::id()));
    std::fs::write(&fresh, bytes)?;
    std::fs::rename(&fresh, place)
}

/// Removes copies that only the cache has, the oldest first, until they take no
/// more than `most` bytes. Those that are in recordings take no room here.
fn tidy(dir: &Path, most: u64) {
    let files = dir.read_dir().into_iter().flatten().flatten();
    let mut alone: Vec<(i64, u64, PathBuf)> = files
        .filter_map(|file| {
            let meta = file.metadata().ok()?;
            let is_alone = meta.is_file() && meta.nlink() == 1;
            is_alone.then(|| (meta.ctime(), meta.size(), file.path()))
        })
        .collect();
    alone.sort_unstable();
    let mut all: u64 = alone.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in alone {
        if all <= most {
            break;
        }
        let _ = std::fs::remove_file(path);
        all -= size;
    }
}

/// What says which state of which file is meant.
fn name(file: &Metadata) -> String {
    format!(
        "{:x}-{:x}-{:x}-{:x}_{:x}-{:x}_{:x}",
        file.dev(),
        file.ino(),
        file.size(),
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec()
    )
}

fn modified(meta: &Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

/// Whether it is a directory of ours that nobody else may write to.
fn is_private(dir: &Path) -> bool {
    std::fs::symlink_metadata(dir).is_ok_and(|meta| {
        meta.is_dir()
            && meta.uid() == rustix::process::geteuid().as_raw()
            && meta.mode() & 0o022 == 0
    })
}

/// Words: how many are confirmed; the offset of each, and its form with its neighbours;
/// the doubtful; a check.
fn encode(sites: &Sites) -> Vec<u8> {
    let mut words = vec![sites.confirmed.len() as u64];
    words.extend(sites.confirmed.iter().flat_map(|s| [s.place, shape(s)]));
    words.extend(&sites.doubtful);
    words.push(check(&words));
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn shape(site: &Site) -> u64 {
    u64::from(site.form.to_byte()) | Neighbours::to_bits(site.neighbours) << u8::BITS
}

fn decode(bytes: &[u8]) -> Option<Sites> {
    let words = bytes
        .chunks(8)
        .map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
    let words: Vec<u64> = words.collect::<Option<_>>()?;
    let (last, words) = words.split_last()?;
    if *last != check(words) {
        return None;
    }
    let (count, rest) = words.split_first()?;
    let (confirmed, doubtful) =
        rest.split_at_checked(usize::try_from(*count).ok()?.checked_mul(2)?)?;
    Some(Sites {
        confirmed: confirmed
            .chunks_exact(2)
            .filter_map(|pair| match *pair {
                [place, shape] => Some(Site {
                    place,
                    form: Form::from_byte(shape as u8)?,
                    neighbours: Neighbours::from_bits(shape >> u8::BITS),
                }),
                _ => None,
            })
            .collect(),
        doubtful: doubtful.to_vec(),
    })
}

/// What was found by other rules is not believed either.
fn check(words: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(sites::RULES);
    for word in words {
        hasher.write_u64(*word);
    }
    hasher.finish()
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_no_recording_has_is_bounded() {
        let place = TestDir::new("tidy");
        let file = |name: &str, size: u64| {
            let path = place.0.join(name);
            File::create(&path).unwrap().set_len(size).unwrap();
            path
        };
        let linked = file("linked", 1000);
        std::fs::hard_link(&linked, place.0.join("recording")).unwrap();
        let alone = [file("a", 400), file("b", 400), file("c", 400)];
        tidy(&place.0, 1200);
        assert!(alone.iter().all(|path| path.exists()));
        tidy(&place.0, 900);
        assert_eq!(alone.iter().filter(|path| path.exists()).count(), 2);
        tidy(&place.0, 0);
        assert!(!alone.iter().any(|path| path.exists()) && linked.exists());
    }

    struct TestDir(PathBuf);

    impl TestDir {
        fn new(name: &str) -> TestDir {
            let name = format!("mw-cache-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            TestDir(dir)
        }

        /// A file of 64 KiB that last changed two days ago, as it says; but
        /// the time of its change of state is now.
        fn file(&self, name: &str, byte: u8) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, vec![byte; 65536]).unwrap();
            let old = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(old).unwrap();
            path
        }
    }

    impl Drop for TestDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A library that has not changed for long: there is one on any machine.
    fn settled() -> Metadata {
        let exe = std::fs::read("/proc/self/maps").unwrap();
        let maps = String::from_utf8_lossy(&exe);
        maps.lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .filter(|name| name.starts_with('/') && name.contains(".so"))
            .filter_map(|name| std::fs::metadata(name).ok())
            .find(|meta| {
                CaptureCache::new(Some(Path::new("/")))
                    .place(meta)
                    .is_some()
            })
            .expect("a library that was installed more than two minutes ago")
    }

    #[test]
    fn what_was_put_is_taken_as_a_link() {
        let place = TestDir::new("link");
        let cache = CaptureCache::new(Some(&place.0.join("cache")));
        let meta = settled();
        let copy = place.0.join("copy");
        std::fs::write(&copy, vec![7; meta.size() as usize]).unwrap();
        assert!(!cache.take_copy(&meta, &place.0.join("early")));
        cache.put_copy(
            &meta,
            &File::options().write(true).open(&copy).unwrap(),
            &copy,
        );
        let taken = place.0.join("taken");
        assert!(cache.take_copy(&meta, &taken));
        let (one, other) = (copy.metadata().unwrap(), taken.metadata().unwrap());
        assert_eq!((one.dev(), one.ino()), (other.dev(), other.ino()));
        assert_eq!(other.nlink(), 3);
        assert_eq!(modified(&other), modified(&meta));
    }

    #[test]
    fn what_a_program_needed_is_remembered() {
        let place = TestDir::new("companions");
        let cache = CaptureCache::new(Some(&place.0.join("cache")));
        let exe = settled();
        assert_eq!(cache.take_companions(&exe), []);
        let odd = PathBuf::from(OsStr::from_bytes(b"/lib/\xff two\nlines"));
        let companions = [("/lib/libc.so.6".into(), true), (odd, false)]
            .map(|(path, is_sure)| Companion { path, is_sure });
        cache.put_companions(&exe, &companions);
        assert_eq!(cache.take_companions(&exe), companions);
        // Another executable's are its own.
        let other = Path::new("/proc/self/exe").metadata().unwrap();
        assert_eq!(cache.take_companions(&other), []);
        cache.put_companions(&exe, &[]);
        assert_eq!(cache.take_companions(&exe), []);
    }

    #[test]
    fn a_copy_that_was_written_to_is_thrown_away() {
        let place = TestDir::new("spoilt");
        let cache = CaptureCache::new(Some(&place.0.join("cache")));
        let meta = settled();
        let copy = place.0.join("copy");
        std::fs::write(&copy, vec![7; meta.size() as usize]).unwrap();
        let file = File::options().write(true).open(&copy).unwrap();
        cache.put_copy(&meta, &file, &copy);
        file.write_all_at(b"spoilt", 100).unwrap();
        let taken = place.0.join("taken");
        assert!(!cache.take_copy(&meta, &taken));
        assert!(!taken.exists());
        // And for good.
        assert_eq!(cache.dir.as_ref().unwrap().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_changed_lately_is_not_kept() {
        let place = TestDir::new("fresh");
        let cache = CaptureCache::new(Some(&place.0.join("cache")));
        let path = place.file("file", 1);
        let meta = path.metadata().unwrap();
        cache.put_copy(&meta, &File::open(&path).unwrap(), &path);
        assert!(!place.0.join("cache").exists());
        assert!(!cache.take_copy(&meta, &place.0.join("taken")));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        let place = TestDir::new("open");
        let dir = place.0.join("cache");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
        let copy = place.file("copy", 3);
        let cache = CaptureCache {
            dir: Some(dir.clone()),
            made: OnceLock::new(),
        };
        cache.put_copy(&settled(), &File::open(&copy).unwrap(), &copy);
        assert_eq!(dir.read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_was_found_is_kept_or_not_believed() {
        let place = TestDir::new("sites");
        let cache = CaptureCache::new(Some(&place.0.join("cache")));
        let meta = settled();
        let site = |place, form, neighbours| Site {
            place,
            form,
            neighbours,
        };
        let behind = Neighbours::new(0, 15);
        let sites = Sites {
            confirmed: vec![
                site(10, Form::RDTSC, behind),
                site(1 << 40, Form::RDTSCP, None),
            ],
            doubtful: vec![77],
        };
        assert_eq!(cache.take_sites(&meta), None);
        cache.put_sites(&meta, &sites);
        assert_eq!(cache.take_sites(&meta).as_ref(), Some(&sites));
        let path = cache.place_of_sites(&meta).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(cache.take_sites(&meta), None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.take_sites(&meta), None, "length {at}");
        }
    }

    #[test]
    fn shelves_of_other_boots_go() {
        let place = TestDir::new("boots");
        let dir = place.0.join("cache");
        std::fs::create_dir_all(dir.join("some-other-boot")).unwrap();
        std::fs::write(dir.join("some-other-boot/file"), "x").unwrap();
        let cache = CaptureCache::new(Some(&dir));
        cache.put_sites(&settled(), &Sites::default());
        assert!(!dir.join("some-other-boot").exists());
        assert_eq!(cache.take_sites(&settled()), Some(Sites::default()));
    }
}
