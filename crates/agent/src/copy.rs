//! Copies of files without what is not there: holes, and, of files in memory,
//! pages that are all zero (a pool that was allocated in advance).

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;

/// How much is looked at in one go.
const STEP: usize = 256 * 1024;
/// What is left out, if it is zero.
const PAGE: usize = 4096;

/// Copies a file.
pub fn copy_contents(from: &File, path: &Path) -> io::Result<File> {
    let copy = File::create_new(path)?;
    let len = from.metadata()?.size();
    let in_memory = is_in_memory(from);
    let mut at = 0;
    while let Some(data) = next_data(from, at, len) {
        let end = rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(len);
        let end = end.clamp(data, len);
        if in_memory {
            copy_pages(from, &copy, data, end)?;
        } else {
            copy_range(from, &copy, data, end)?;
        }
        // It may be cut short meanwhile.
        if end <= at {
            break;
        }
        at = end;
    }
    if copy.metadata()?.size() < len {
        copy.set_len(len)?;
    }
    Ok(copy)
}

/// Where a file has data from `at` on. None: only a hole, up to its end.
pub fn next_data(file: &File, at: u64, len: u64) -> Option<u64> {
    if at >= len {
        return None;
    }
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => (data < len).then_some(data),
        Err(rustix::io::Errno::NXIO) => None,
        // A file system that does not know of holes.
        Err(_) => Some(at),
    }
}

/// Copies bytes to the same place; fewer, if the file has become shorter.
fn copy_range(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut source, mut target) = (from, to);
    source.seek(io::SeekFrom::Start(start))?;
    target.seek(io::SeekFrom::Start(start))?;
    io::copy(&mut source.take(end - start), &mut target)?;
    Ok(())
}

/// Copies bytes to the same place, but for pages that are zero.
fn copy_pages(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut piece = vec![0; STEP];
    let mut at = start;
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(STEP).min(STEP);
        let got = from.read_at(piece.get_mut(..want).unwrap_or(&mut []), at)?;
        if got == 0 {
            break;
        }
        let mut place = at;
        for page in piece.get(..got).unwrap_or(&[]).chunks(PAGE) {
            if page.iter().any(|byte| *byte != 0) {
                to.write_all_at(page, place)?;
            }
            place += page.len() as u64;
        }
        at += got as u64;
    }
    Ok(())
}

fn is_in_memory(file: &File) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const HUGETLBFS: u64 = 0x9584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|fs| [TMPFS, HUGETLBFS].contains(&(fs.f_type as u64)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;
    use crate::parts::{Changes, changes};

    #[test]
    fn a_copy_has_the_bytes_and_no_more_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let memory = File::from(
            rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        let disk = File::create_new(dir.path().join("file")).unwrap();
        let disk = {
            drop(disk);
            File::options()
                .read(true)
                .write(true)
                .open(dir.path().join("file"))
                .unwrap()
        };
        for (name, file) in [("memory", &memory), ("disk", &disk)] {
            file.set_len(8 << 30).unwrap();
            file.write_all_at(b"begin", 0).unwrap();
            file.write_all_at(&[7; 10_000], 5 << 30).unwrap();
            // There, but zero.
            file.write_all_at(&[0; 1 << 20], 6 << 30).unwrap();
            let copy = copy_contents(file, &dir.path().join(name)).unwrap();
            let copy = File::open(dir.path().join(name))
                .map(|open| (copy, open))
                .unwrap()
                .1;
            assert_eq!(copy.metadata().unwrap().size(), 8 << 30);
            assert!(copy.metadata().unwrap().blocks() * 512 < 4 << 20, "{name}");
            assert_eq!(
                changes(file, &copy, 8 << 30).unwrap(),
                Changes::Parts(Vec::new()),
                "{name}"
            );
        }
    }
}
