//! Files that are mapped again after parts of them were changed: only those parts
//! are copied (`protocol::captured` says how that is kept).
//!
//! A pool of shared memory is mapped by each process that joins, and is never the
//! same twice: to copy all of it each time takes as long as all else together.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use protocol::captured::PARTS_MAX;

use crate::copy::next_data;

/// What is compared in one go, and what is copied if any of it is changed.
const STEP: usize = 256 * 1024;
const PAGE: usize = 4096;

/// Smaller files are copied as soon as they are compared.
const WORTHWHILE: u64 = 256 * 1024;

/// A part of a file: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub start: u64,
    pub len: u64,
}

/// How a file differs from its base.
#[derive(Debug, PartialEq, Eq)]
pub enum Changes {
    /// In these parts; none, if it is the same.
    Parts(Vec<Part>),
    /// In so much that it is better copied in full.
    Many,
}

/// What of a file is not as in a copy of it that was `len` bytes long, as it is
/// itself.
pub fn changes(file: &File, base: &File, len: u64) -> io::Result<Changes> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut one, mut other) = (vec![0; STEP], vec![0; STEP]);
    let (mut seen, mut changed, mut at) = (0, 0, 0);
    // Where both have holes, both are zero.
    while let Some(next) = [next_data(file, at, len), next_data(base, at, len)]
        .into_iter()
        .flatten()
        .min()
    {
        let next = next - next % PAGE as u64;
        let want = usize::try_from(len - next).unwrap_or(STEP).min(STEP);
        let (Some(now), Some(then)) = (one.get_mut(..want), other.get_mut(..want)) else {
            break;
        };
        file.read_exact_at(now, next)?;
        base.read_exact_at(then, next)?;
        seen += want as u64;
        at = next + want as u64;
        if now == then {
            continue;
        }
        let pages = now.chunks(PAGE).zip(then.chunks(PAGE)).enumerate();
        for (i, _) in pages.filter(|(_, (now, then))| now != then) {
            let (start, len) = (next + (i * PAGE) as u64, PAGE as u64);
            changed += len;
            match parts.last_mut() {
                Some(last) if last.start + last.len == start => last.len += len,
                _ => parts.push(Part { start, len }),
            }
        }
        if parts.len() > PARTS_MAX {
            return Ok(Changes::Many);
        }
    }
    // Most of what there is.
    if changed > WORTHWHILE && changed > seen / 2 || len < WORTHWHILE && !parts.is_empty() {
        return Ok(Changes::Many);
    }
    Ok(Changes::Parts(parts))
}

/// Whether a copy of parts has what is in its file now.
pub fn are_same(file: &File, copy: &File, parts: &[Part], len: u64) -> io::Result<bool> {
    let (mut one, mut other) = (vec![0; STEP], vec![0; STEP]);
    for (start, want) in pieces(parts, len) {
        let (Some(now), Some(then)) = (one.get_mut(..want), other.get_mut(..want)) else {
            return Ok(false);
        };
        file.read_exact_at(now, start)?;
        copy.read_exact_at(then, start)?;
        if now != then {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Copies parts of a file, each to its own offset, and writes the list of them.
pub fn copy(file: &File, parts: &[Part], len: u64, to: &Path, list: &Path) -> io::Result<()> {
    let copy = File::create_new(to)?;
    copy.set_len(len)?;
    let mut piece = vec![0; STEP];
    for (start, want) in pieces(parts, len) {
        let piece = piece.get_mut(..want).unwrap_or_default();
        // It may have been cut short meanwhile.
        let got = file.read_at(piece, start)?;
        copy.write_all_at(piece.get(..got).unwrap_or_default(), start)?;
    }
    let words = parts.iter().flat_map(|part| [part.start, part.len]);
    let bytes: Vec<u8> = std::iter::once(parts.len() as u64)
        .chain(words)
        .flat_map(u64::to_le_bytes)
        .collect();
    std::fs::write(list, bytes)
}

/// Parts in pieces that are read in one go, no longer than their file.
fn pieces(parts: &[Part], len: u64) -> impl Iterator<Item = (u64, usize)> {
    parts.iter().flat_map(move |part| {
        let end = (part.start + part.len).min(len);
        let starts = (part.start..end).step_by(STEP);
        starts.map(move |start| {
            let want = usize::try_from(end - start).unwrap_or(STEP).min(STEP);
            (start, want)
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_changed_and_no_more() {
        const LEN: u64 = (64 << 20) + 100;
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = dir.path().join(name);
            let mut options = File::options();
            options.read(true).write(true).create(true);
            options.open(path).unwrap()
        };
        let (base, file) = (open("base"), open("file"));
        for file in [&base, &file] {
            file.set_len(LEN).unwrap();
            file.write_all_at(&[7; 4 << 20], 1 << 20).unwrap();
        }
        assert_eq!(changes(&file, &base, LEN).unwrap(), Changes::Parts(vec![]));
        // In data, in a hole, across two pages, at the very end.
        for at in [(1 << 20) + 5, 30 << 20, (40 << 20) - 1, LEN - 2] {
            file.write_all_at(b"xy", at).unwrap();
        }
        let Changes::Parts(parts) = changes(&file, &base, LEN).unwrap() else {
            panic!("too many");
        };
        let page = PAGE as u64;
        let expected = [
            (1 << 20, page),
            (30 << 20, page),
            ((40 << 20) - page, 2 * page),
        ];
        let expected = expected.into_iter().chain([(64 << 20, page)]);
        let expected: Vec<Part> = expected.map(|(start, len)| Part { start, len }).collect();
        assert_eq!(parts, expected);
        let (to, list) = (dir.path().join("2"), dir.path().join("3"));
        copy(&file, &parts, LEN, &to, &list).unwrap();
        let made = File::open(&to).unwrap();
        assert_eq!(made.metadata().unwrap().size(), LEN);
        assert!(made.metadata().unwrap().blocks() * 512 < 1 << 20);
        assert!(are_same(&file, &made, &parts, LEN).unwrap());
        file.write_all_at(b"z", LEN - 1).unwrap();
        assert!(!are_same(&file, &made, &parts, LEN).unwrap());
        let words = std::fs::read(&list).unwrap();
        assert_eq!(words.len(), 8 + 16 * parts.len());
        // All of it.
        file.write_all_at(&[8; 5 << 20], 1 << 20).unwrap();
        assert_eq!(changes(&file, &base, LEN).unwrap(), Changes::Many);
    }
}
