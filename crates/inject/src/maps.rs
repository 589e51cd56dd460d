//! `/proc/PID/maps`, and how files of `/proc` are read.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use crate::Error;

/// One line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    pub start: u64,
    pub end: u64,
    /// PROT_READ | PROT_WRITE | PROT_EXEC.
    pub prot: u32,
    pub shared: bool,
    pub offset: u64,
    pub device: u64,
    pub inode: u64,
    pub name: String,
}

/// Reads a file of `/proc`, which has no length to begin with: in one piece if
/// it is of the usual size, because a program waits for it, and the kernel makes
/// the text anew for each piece.
pub fn read_proc(path: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16 * 1024);
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn read_maps(pid: i32) -> Result<Vec<Map>, Error> {
    let path = format!("/proc/{pid}/maps");
    let bytes = read_proc(&path).map_err(|source| Error::Proc { path, source })?;
    Ok(String::from_utf8_lossy(&bytes)
        .lines()
        .filter_map(parse)
        .collect())
}

fn parse(line: &str) -> Option<Map> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let flags = fields.next()?.as_bytes();
    let bit = |i: usize, letter: u8, value: u32| {
        if flags.get(i) == Some(&letter) {
            value
        } else {
            0
        }
    };
    let offset = hex(fields.next()?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    Some(Map {
        start: hex(start)?,
        end: hex(end)?,
        prot: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
        shared: flags.get(3) == Some(&b's'),
        offset,
        device: libc::makedev(hex(major)? as u32, hex(minor)? as u32),
        inode,
        name: fields.next().unwrap_or("").trim_start().to_string(),
    })
}

/// The kernel's vdso and what belongs to it, which lie side by side.
pub fn kernel_pages(maps: &[Map]) -> std::ops::Range<u64> {
    let is_kernels = |map: &&Map| map.name.starts_with("[vvar") || map.name == "[vdso]";
    let mut theirs = maps.iter().filter(is_kernels);
    let first = theirs.next();
    let last = theirs.next_back().or(first);
    first.map_or(0, |map| map.start)..last.map_or(0, |map| map.end)
}

impl Map {
    /// Where the mapped file can be opened, if it still has its name.
    pub fn path(&self, pid: i32) -> Option<PathBuf> {
        let name = self.name.strip_prefix('/')?;
        Some(PathBuf::from(format!("/proc/{pid}/root")).join(name))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line = "55d0c7a00000-55d0c7a2c000 r-xp 0002c000 fd:01 1835013    /usr/bin/a b";
        let map = parse(line).unwrap();
        assert_eq!((map.start, map.end), (0x55d0_c7a0_0000, 0x55d0_c7a2_c000));
        assert_eq!((map.prot, map.shared, map.offset), (5, false, 0x2c000));
        assert_eq!(map.inode, 1_835_013);
        assert_eq!(map.name, "/usr/bin/a b");
    }

    #[test]
    fn lines_without_a_name_and_nonsense() {
        assert_eq!(parse("7f00-7f10 rw-s 0 00:00 0 ").unwrap().name, "");
        assert!(parse("hello").is_none());
    }
}
