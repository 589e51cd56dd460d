//! A replayed process that stands still, as the `inspect` crate sees one: code is
//! as the program has it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ::target::{Region, ThreadState};
use inspect::target::{Content, Mapping, Process, Registers, ThreadId};

use protocol::id::Addr;

use crate::Session;

/// See the module.
pub struct Stopped<'s> {
    session: &'s Session,
    threads: OnceCell<Vec<ThreadState>>,
    /// Instructions that are not as they are in memory.
    replaced: OnceCell<Vec<u64>>,
    /// Where files have the program's own code.
    mapped: OnceCell<Arc<[Region]>>,
}

/// Captured files that code is read from. Sites of system calls are patched in
/// memory; the files have what the program has.
#[derive(Default)]
pub(crate) struct CodeFiles {
    open: Mutex<HashMap<PathBuf, Option<File>>>,
}

/// A piece of a file that is mapped: where, from which offset on, which file.
type Mapped<'m> = (Range<Addr>, u64, &'m Path);

impl CodeFiles {
    /// Puts the code that files have where `out`, read from `address` on, has
    /// what the monitor made of it.
    fn restore<'m>(&self, mapped: impl Iterator<Item = Mapped<'m>>, address: Addr, out: &mut [u8]) {
        let end = address.saturating_plus(out.len() as u64);
        for (range, offset, path) in mapped {
            let (from, to) = (range.start.max(address), range.end.min(end));
            if from >= to {
                continue;
            }
            let part = from.since(address) as usize..to.since(address) as usize;
            let mut files = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let file = files
                .entry(path.to_path_buf())
                .or_insert_with(|| File::open(path).ok());
            if let (Some(file), Some(part)) = (file, out.get_mut(part)) {
                // What is behind the file's end stays.
                let _ = file.read_at(part, offset + from.since(range.start));
            }
        }
    }
}

impl<'s> Stopped<'s> {
    pub fn new(session: &'s Session) -> Stopped<'s> {
        Stopped {
            session,
            threads: OnceCell::new(),
            replaced: OnceCell::new(),
            mapped: OnceCell::new(),
        }
    }

    /// The threads, the one that runs first.
    fn states(&self) -> &[ThreadState] {
        self.threads.get_or_init(|| {
            let mut threads = self.session.threads();
            let running = self.session.thread();
            threads.sort_by_key(|t| (t.number != running, t.number));
            threads
        })
    }
}

impl Process for Stopped<'_> {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        let replaced = self.replaced.get_or_init(|| self.session.counter_sites());
        let got = self.session.read_code_with(replaced, address, buffer);
        if let Some(buffer) = buffer.get_mut(..got) {
            let mapped = self.mapped.get_or_init(|| self.session.mapped_code());
            let code = mapped.iter().filter_map(|region| {
                let (captured, _) = region.file.as_ref()?;
                Some((region.range.clone(), region.offset, captured.as_path()))
            });
            self.session.code_files().restore(code, address, buffer);
        }
        got
    }

    fn threads(&self) -> Vec<ThreadId> {
        self.states().iter().map(|t| ThreadId(t.number.0)).collect()
    }

    fn registers(&self, thread: ThreadId) -> inspect::Result<Registers> {
        let found = self.states().iter().find(|t| t.number.0 == thread.0);
        found
            .map(|state| state.registers.dwarf())
            .ok_or(inspect::Error::NoThread(thread.0))
    }

    fn mappings(&self) -> Vec<Mapping> {
        let regions = self.session.regions().unwrap_or_default();
        let mapping = |region: Region| {
            let (content, name) = match region.file {
                Some((captured, original)) => (
                    Content::File(captured),
                    original.to_string_lossy().into_owned(),
                ),
                None if region.is_vdso => (Content::Memory, "[vdso]".to_string()),
                None => (Content::Memory, String::new()),
            };
            Mapping {
                start: region.range.start,
                end: region.range.end,
                offset: region.offset,
                name,
                executable: region.executable,
                writable: region.writable,
                content,
            }
        };
        regions.into_iter().map(mapping).collect()
    }
}
