//! Where the debug information of a stripped file is.
//!
//! The places are gdb's: `.build-id/xx/rest.debug` below each debug
//! directory, then the file named by `.gnu_debuglink` beside the program,
//! in `.debug` beside it, and below each debug directory. A file that is
//! found must be of the same build: same build id, or the CRC of the link.

use std::path::{Path, PathBuf};

use super::image::Image;

/// The debug file of `image`, whose path in the program's eyes is `path`.
pub fn debug_file(image: &Image, path: &str, directories: &[PathBuf]) -> Option<Image> {
    if image.has(".debug_info") || image.has(".zdebug_info") {
        return None;
    }
    let id = image.build_id();
    if let Some(id) = id {
        for directory in directories {
            if let Some(found) = open_by_id(directory, id) {
                return Some(found);
            }
        }
    }
    let (places, crc) = linked(image, path, directories)?;
    places.into_iter().find_map(|place| {
        let found = Image::open(&place).ok()?;
        // A file may name itself.
        (is_same(image, &found, &place, crc) && found.has(".debug_info")).then_some(found)
    })
}

/// Files that are where the debug information of `image` should be, and are of another
/// build. None, if it is found.
pub fn mismatched(image: &Image, path: &str, directories: &[PathBuf]) -> Vec<PathBuf> {
    let is_found = image.has(".debug_info") || debug_file(image, path, directories).is_some();
    let Some((places, crc)) = linked(image, path, directories).filter(|_| !is_found) else {
        return Vec::new();
    };
    let other = |place: &PathBuf| {
        let found = Image::open(place).ok();
        found.is_some_and(|found| found.has(".debug_info") && !is_same(image, &found, place, crc))
    };
    places.into_iter().filter(other).collect()
}

/// Where the file that `.gnu_debuglink` names may be, and its CRC.
fn linked(image: &Image, path: &str, directories: &[PathBuf]) -> Option<(Vec<PathBuf>, u32)> {
    let (link, crc) = debug_link(image)?;
    let folder = Path::new(path).parent()?;
    let mut places = vec![folder.join(&link), folder.join(".debug").join(&link)];
    for directory in directories {
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        places.push(directory.join(inside).join(&link));
    }
    Some((places, crc))
}

/// Whether a file is of the same build.
fn is_same(image: &Image, found: &Image, place: &Path, crc: u32) -> bool {
    match (image.build_id(), found.build_id()) {
        (Some(a), Some(b)) => a == b,
        _ => std::fs::read(place).is_ok_and(|bytes| crc32(&bytes) == crc),
    }
}

/// The file that `debug` shares its common debug information with (`dwz -m`).
pub fn supplementary(debug: &Image, directories: &[PathBuf]) -> Option<Image> {
    let link = debug.bytes(".gnu_debugaltlink");
    let end = link.iter().position(|&b| b == 0)?;
    let name = String::from_utf8_lossy(link.get(..end)?).into_owned();
    let id = link.get(end + 1..)?;
    let beside = Path::new(&debug.name).parent()?.join(&name);
    let named = Image::open(&beside)
        .ok()
        .filter(|image| image.build_id() == Some(id));
    named.or_else(|| directories.iter().find_map(|d| open_by_id(d, id)))
}

fn open_by_id(directory: &Path, id: &[u8]) -> Option<Image> {
    let (first, rest) = id.split_first()?;
    let mut name: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    name.push_str(".debug");
    let path = directory
        .join(".build-id")
        .join(format!("{first:02x}"))
        .join(name);
    let image = Image::open(&path).ok()?;
    (image.build_id() == Some(id)).then_some(image)
}

fn debug_link(image: &Image) -> Option<(String, u32)> {
    let bytes = image.bytes(".gnu_debuglink");
    let end = bytes.iter().position(|&b| b == 0)?;
    let name = std::str::from_utf8(bytes.get(..end)?).ok()?.to_string();
    let at = (end + 1).next_multiple_of(4);
    let crc = bytes.get(at..at + 4)?;
    Some((name, u32::from_le_bytes(crc.try_into().ok()?)))
}

/// The CRC that `.gnu_debuglink` uses (that of zlib).
fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(i as u32, |c, _| {
            if c & 1 == 1 {
                0xedb8_8320 ^ (c >> 1)
            } else {
                c >> 1
            }
        })
    });
    !bytes.iter().fold(!0u32, |crc, &byte| {
        let index = ((crc ^ u32::from(byte)) & 0xff) as usize;
        table.get(index).copied().unwrap_or(0) ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_crc_is_that_of_zlib() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
