//! Files that gdb reads: those that were captured, and what `/proc` would have.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::target::Region;
use recording::ImageStart;

use super::program::Program;

impl Program {
    /// A captured file, by a path that a process may use for it.
    pub(super) fn captured(&mut self, i: usize, path: &[u8]) -> Option<PathBuf> {
        let wanted = Path::new(std::ffi::OsStr::from_bytes(path));
        if self.alive.is_some() {
            return self.seen_by(i, wanted);
        }
        // What it has mapped itself: its path, or what the dynamic linker
        // calls it.
        let mapped: HashMap<PathBuf, PathBuf> = self
            .regions(i)
            .iter()
            .filter_map(|region| region.file.clone())
            .map(|(captured, original)| (original, captured))
            .collect();
        if let Some(found) = mapped.get(wanted) {
            return Some(found.clone());
        }
        let id = self.served.get(i)?.id;
        let recording = Arc::clone(self.group.recording_of(id)?);
        let known: Vec<(PathBuf, u64)> = recording
            .files()
            .iter()
            .map(|file| {
                let path = Path::new(std::ffi::OsStr::from_bytes(&file.path));
                (path.to_path_buf(), file.id)
            })
            .collect();
        let in_recording = |wanted: &Path| {
            let (_, id) = known.iter().rfind(|(path, _)| path == wanted)?;
            Some(recording.captured_path(*id))
        };
        if let Some(found) = in_recording(wanted) {
            return Some(found);
        }
        let named = self.look(i, |inspector| {
            let module = inspector
                .modules()
                .iter()
                .find(|module| inspector.module_name(module).as_bytes() == path)?;
            Some(module.start)
        });
        if let Some(start) = named {
            let regions = self.regions(i);
            let region = regions.iter().find(|r| r.range.contains(&start));
            if let Some((captured, _)) = region.and_then(|r| r.file.clone()) {
                return Some(captured);
            }
        }
        // A link to it: of the same name, or as it is on this machine.
        let same_name = mapped
            .iter()
            .find(|(original, _)| original.file_name() == wanted.file_name());
        if let Some((_, captured)) = same_name {
            return Some(captured.clone());
        }
        let real = std::fs::canonicalize(wanted).ok()?;
        let (_, id) = known.iter().rfind(|(path, _)| *path == real)?;
        Some(recording.captured_path(*id))
    }

    /// A file under `/proc/PID` that gdb reads.
    pub(super) fn process_file(&mut self, name: &str) -> Option<Vec<u8>> {
        let (pid, what) = name.split_once('/')?;
        let i = self.index(pid.parse().ok()?)?;
        let what = match what.strip_prefix("task/") {
            Some(rest) => rest.split_once('/')?.1,
            None => what,
        };
        if self.alive.is_some() {
            return self.told_of(i, what);
        }
        match what {
            "maps" | "smaps" => {
                let text: String = self.regions(i).iter().map(map_line).collect();
                Some(text.into_bytes())
            }
            "cmdline" => {
                let image = self.image(i)?;
                let words = image.argv.iter();
                Some(
                    words
                        .flat_map(|word| [word.as_slice(), &[0]].concat())
                        .collect(),
                )
            }
            "auxv" => {
                let image = self.image(i)?;
                auxv_of(&image, &self.regions(i))
            }
            _ => None,
        }
    }
}

/// A line of `/proc/PID/maps`.
fn map_line(region: &Region) -> String {
    let path = match &region.file {
        Some((_, original)) => format!("  {}", original.display()),
        None if region.is_vdso => "  [vdso]".to_string(),
        None => String::new(),
    };
    format!(
        "{:x}-{:x} r{}{}p {:08x} 00:00 {}{path}\n",
        region.range.start,
        region.range.end,
        if region.writable { 'w' } else { '-' },
        if region.executable { 'x' } else { '-' },
        region.offset,
        u8::from(region.file.is_some()),
    )
}

pub(super) fn auxv_of(image: &ImageStart, regions: &[Region]) -> Option<Vec<u8>> {
    // The kernel's vdso is not there: the program has one of the monitor's.
    const AT_SYSINFO_EHDR: u64 = 33;
    let vdso = regions.iter().find(|region| region.is_vdso);
    let words = image.auxv.iter().filter_map(|(kind, value)| match *kind {
        AT_SYSINFO_EHDR => Some([*kind, vdso?.range.start.0]),
        _ => Some([*kind, *value]),
    });
    let words = words.flatten();
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    if image.auxv.last().is_none_or(|(kind, _)| *kind != 0) {
        bytes.extend([0; 16]);
    }
    Some(bytes)
}
