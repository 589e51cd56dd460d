//! Damaged files and processes never make anything panic, hang or grow.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::{Duration, Instant};

use common::Build;
use inspect::print::{PrintOptions, Printer, backtrace};
use inspect::scope::Scope;
use inspect::{Content, Inspector, Library, Mapping, Options, Process, Registers, ThreadId};
use protocol::id::Addr;

/// A process whose only file has these bytes, and whose memory is any.
struct Strange {
    file: std::sync::Arc<[u8]>,
    pc: u64,
    seed: u64,
}

const BASE: u64 = 0x5555_5555_4000;

impl Process for Strange {
    fn read(&self, Addr(address): Addr, buffer: &mut [u8]) -> usize {
        // Pages here and there are missing.
        if (address >> 12) % 7 == 3 {
            return 0;
        }
        let mut state = address ^ self.seed;
        for byte in buffer.iter_mut() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        buffer.len()
    }
    fn threads(&self) -> Vec<ThreadId> {
        vec![ThreadId(1)]
    }
    fn registers(&self, _: ThreadId) -> inspect::Result<Registers> {
        let mut registers = Registers {
            rip: self.pc,
            fs_base: 0x7fff_f000_0000,
            ..Registers::default()
        };
        registers.general = [0x7fff_ffff_0000; 16];
        Ok(registers)
    }
    fn mappings(&self) -> Vec<Mapping> {
        // As the kernel would map a small program's text.
        vec![Mapping {
            start: Addr(BASE + 0x1000),
            end: Addr(BASE + 0x20000),
            offset: 0x1000,
            name: "/damaged".to_string(),
            executable: true,
            writable: false,
            content: Content::Bytes(self.file.clone()),
        }]
    }
}

/// Asks everything about one process.
fn interrogate(process: &Strange) {
    let library = Library::new(Options {
        debug_directories: Vec::new(),
        source_map: Vec::new(),
    });
    let inspector = Inspector::new(&library, process);
    let stack = inspector.stack(ThreadId(1), 50).unwrap();
    let options = PrintOptions {
        elements: 20,
        depth: 4,
        ..PrintOptions::default()
    };
    let _ = backtrace::backtrace(&inspector, &stack, &options);
    for level in 0..stack.frames.len().min(5) {
        let scope = Scope::new(&inspector, &stack, level).unwrap();
        let _ = backtrace::variables(scope, &scope.locals(), &options);
        for name in [
            "first",
            "main",
            "visit",
            "sizeof(struct nested)",
            "BLUE",
            "per_thread",
        ] {
            if let Ok(value) = scope.evaluate(name) {
                let _ = Printer::in_scope(scope, options.clone()).top(&value);
                let _ = inspect::types::describe(&value.ty);
            }
        }
    }
    let _ = inspector.resolve("main", None);
    let _ = inspector.resolve("basics.c:158", None);
    let _ = inspector.disassemble(Addr(process.pc), 20);
    let _ = inspector.symbolize(Addr(process.pc));
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn damaged_files_are_survived() {
    for level in [0, 2] {
        let program = Build {
            source: "basics.c",
            level,
        }
        .compile();
        let whole = std::fs::read(program).unwrap();
        // Undamaged, everything is found: the rounds below do look deeply.
        let process = Strange {
            file: whole.clone().into(),
            pc: BASE + 0x1260,
            seed: 1,
        };
        let library = Library::new(Options::default());
        let inspector = Inspector::new(&library, &process);
        let main = inspector.resolve("main", None).unwrap();
        assert!(inspector.line_at(main[0].address).is_some());
        assert!(inspector.function_name(Addr(process.pc)).is_some());
        let mut state = common::seed::seed("damage", 0x2545_f491_4f6c_dd1d) ^ u64::from(level);
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let before = memory();
        let rounds = 300;
        for round in 0..rounds {
            let mut bytes = whole.clone();
            match round % 3 {
                0 => bytes.truncate(random() as usize % whole.len()),
                1 => {
                    for _ in 0..1 + random() % 30 {
                        let at = random() as usize % bytes.len();
                        bytes[at] ^= 1 << (random() % 8);
                    }
                }
                _ => {
                    // In the debug information only, so that more is read.
                    for _ in 0..1 + random() % 200 {
                        let at = bytes.len() / 2 + random() as usize % (bytes.len() / 2);
                        bytes[at] = random() as u8;
                    }
                }
            }
            let process = Strange {
                file: bytes.into(),
                pc: BASE + 0x1060 + random() % 0xa00,
                seed: random(),
            };
            let start = Instant::now();
            interrogate(&process);
            let took = start.elapsed();
            assert!(
                took < Duration::from_secs(10),
                "round {round} took {took:?}"
            );
        }
        let grown = memory().saturating_sub(before) / 1024;
        // Files are kept on purpose; each round has one of its own.
        assert!(grown < 1500, "{grown} MiB more after {rounds} rounds");
    }
}
