//! A replayed process that stands still, as the `inspect` crate sees one.

use std::cell::OnceCell;

use ::replay::{Session, ThreadState};
use inspect::target::{Content, Mapping, Process, Registers, ThreadId};

/// See the module.
pub struct Stopped<'s, 'r> {
    session: &'s Session<'r>,
    threads: OnceCell<Vec<ThreadState>>,
    /// Instructions that are not as they are in memory.
    replaced: OnceCell<Vec<u64>>,
}

impl<'s, 'r> Stopped<'s, 'r> {
    pub fn new(session: &'s Session<'r>) -> Stopped<'s, 'r> {
        Stopped {
            session,
            threads: OnceCell::new(),
            replaced: OnceCell::new(),
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

impl Process for Stopped<'_, '_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let replaced = self.replaced.get_or_init(|| self.session.counter_sites());
        self.session.read_code_with(replaced, address, buffer)
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
