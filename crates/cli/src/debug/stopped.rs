//! A replayed process that stands still, as the `inspect` crate sees one.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::replay::{Session, ThreadState};
use inspect::inspector::Layout;
use inspect::target::{Content, Mapping, Process, Registers, ThreadId};

/// See the module.
pub struct Stopped<'s> {
    session: &'s Session,
    threads: OnceCell<Vec<ThreadState>>,
    /// Instructions that are not as they are in memory.
    replaced: OnceCell<Vec<u64>>,
    /// Where files have the program's own code.
    code: Option<(Arc<Layout>, &'s CodeFiles)>,
}

/// Captured files that code is read from. Sites of system calls are patched in
/// memory; the files have what the program has.
#[derive(Default)]
pub struct CodeFiles {
    open: RefCell<HashMap<PathBuf, Option<File>>>,
}

/// A piece of a file that is mapped: where, from which offset on, which file.
pub type Mapped<'m> = (Range<u64>, u64, &'m Path);

impl CodeFiles {
    /// Puts the code that files have where `out`, read from `address` on, has
    /// what the monitor made of it.
    pub fn restore<'m>(
        &self,
        mapped: impl Iterator<Item = Mapped<'m>>,
        address: u64,
        out: &mut [u8],
    ) {
        let end = address.saturating_add(out.len() as u64);
        for (range, offset, path) in mapped {
            let (from, to) = (range.start.max(address), range.end.min(end));
            if from >= to {
                continue;
            }
            let part = (from - address) as usize..(to - address) as usize;
            let mut files = self.open.borrow_mut();
            let file = files
                .entry(path.to_path_buf())
                .or_insert_with(|| File::open(path).ok());
            if let (Some(file), Some(part)) = (file, out.get_mut(part)) {
                // What is behind the file's end stays.
                let _ = file.read_at(part, offset + (from - range.start));
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
            code: None,
        }
    }

    /// The same, with what is mapped where: code is as the program has it.
    pub fn with_code(
        session: &'s Session,
        layout: &Arc<Layout>,
        files: &'s CodeFiles,
    ) -> Stopped<'s> {
        Stopped {
            code: Some((Arc::clone(layout), files)),
            ..Stopped::new(session)
        }
    }

    /// The threads, the one that runs first.
    pub fn states(&self) -> &[ThreadState] {
        self.threads.get_or_init(|| {
            let mut threads = self.session.threads();
            let running = self.session.thread();
            threads.sort_by_key(|t| (t.number != running, t.number));
            threads
        })
    }
}

impl Process for Stopped<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let replaced = self.replaced.get_or_init(|| self.session.counter_sites());
        let got = self.session.read_code_with(replaced, address, buffer);
        if let (Some((layout, files)), Some(buffer)) = (&self.code, buffer.get_mut(..got)) {
            let code = layout.mappings().iter();
            let code = code.filter(|m| m.executable && !m.writable);
            let code = code.filter_map(|m| match &m.content {
                Content::File(path) => Some((m.start..m.end, m.offset, path.as_path())),
                _ => None,
            });
            files.restore(code, address, buffer);
        }
        got
    }

    fn threads(&self) -> Vec<ThreadId> {
        self.states().iter().map(|t| ThreadId(t.number)).collect()
    }

    fn registers(&self, thread: ThreadId) -> inspect::Result<Registers> {
        let found = self.states().iter().find(|t| t.number == thread.0);
        Ok(found.map(registers).unwrap_or_default())
    }

    fn mappings(&self) -> Vec<Mapping> {
        let regions = self.session.regions().unwrap_or_default();
        let mapping = |region: ::replay::Region| {
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

/// From the order of `user_regs_struct` to that of DWARF.
fn registers(state: &ThreadState) -> Registers {
    let r = state.by_name();
    let mut image = Box::new([0u8; 512]);
    for (place, value) in image
        .iter_mut()
        .skip(160)
        .zip(state.xmm.iter().flatten().flat_map(|w| w.to_le_bytes()))
    {
        *place = value;
    }
    Registers {
        general: [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ],
        rip: r.rip,
        eflags: r.eflags,
        segments: [r.cs as u16, r.ss as u16, 0, 0, 0, 0],
        fs_base: r.fs_base,
        gs_base: r.gs_base,
        orig_rax: r.orig_rax,
        fxsave: Some(image),
        ymm_high: None,
    }
}
