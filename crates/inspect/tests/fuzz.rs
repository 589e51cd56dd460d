//! Expressions and object files with random changes: nothing may panic, hang
//! or grow without end.
//!
//! A short run by default; `scripts/fuzz MINUTES` makes it a long one. Each case
//! follows from a seed, which is printed when something is found; `MW_SEED`
//! begins with it. Files are kept once they were read (see `inspect::module`), so
//! a long run is done by many children, each with some of the cases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

use common::Build;
use common::seed::seed;
use inspect::core::CoreFile;
use inspect::expr::Expression;
use inspect::print::{PrintOptions, Printer, backtrace};
use inspect::scope::Scope;
use inspect::tree::Tree;
use inspect::{Content, Inspector, Library, Mapping, Options, Process, Registers, ThreadId};
use protocol::id::Addr;

/// How long one case may take.
const TIME: Duration = Duration::from_secs(20);
/// Cases of one child.
const CHUNK: u64 = 150;
/// What the cases of one child may add to the memory, in KiB.
const MEMORY: u64 = 3 << 20;

/// Numbers that look random and come again with the seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs cases until the time is over, in children if it is long.
fn cases(test: &str, short: u64, case: impl Fn(u64)) {
    let begun = Instant::now();
    if let Ok(range) = std::env::var("MW_FUZZ_CASES") {
        let (first, count) = range.split_once('+').unwrap();
        let first: u64 = first.parse().unwrap();
        run(first..first.wrapping_add(count.parse().unwrap()), &case);
        return;
    }
    let first = seed(test, 1);
    let Ok(minutes) = std::env::var("MW_FUZZ_MINUTES") else {
        run(first..first.wrapping_add(short), &case);
        return;
    };
    let time = Duration::from_secs_f64(60.0 * minutes.parse::<f64>().unwrap());
    let mut at = first;
    while begun.elapsed() < time {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env("MW_FUZZ_CASES", format!("{at}+{CHUNK}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}");
        at = at.wrapping_add(CHUNK);
    }
    eprintln!(
        "{test}: {} cases, seeds from {first}",
        at.wrapping_sub(first)
    );
}

fn run(seeds: std::ops::Range<u64>, case: &impl Fn(u64)) {
    let before = memory();
    for seed in seeds {
        let start = Instant::now();
        if catch_unwind(AssertUnwindSafe(|| case(seed))).is_err() {
            panic!("MW_SEED={seed}: it panicked");
        }
        let took = start.elapsed();
        assert!(took < TIME, "MW_SEED={seed}: it took {took:?}");
        let grown = memory().saturating_sub(before);
        assert!(grown < MEMORY, "MW_SEED={seed}: {grown} KiB more");
    }
}

/// Words that mean something in some expression.
const WORDS: &[&str] = &[
    "first",
    "round",
    "argc",
    "argv",
    "head",
    "main",
    "x",
    "self",
    "account",
    "shapes",
    "shared",
    "map",
    "sizeof",
    "struct",
    "union",
    "unsigned",
    "long",
    "int",
    "char",
    "u8",
    "f64",
    "Vec",
    "as",
    "mut",
    "const",
    "void",
    "$rip",
    "$rsp",
    "$xmm0",
    "$st0",
    "$_",
    "$1",
    "0",
    "1",
    "-1",
    "0x10",
    "18446744073709551615",
    "340282366920938463463374607431768211455",
    "1e308",
    "1.5f",
    "0b11",
    "'a'",
    "'\\n'",
    "\"text\"",
    "\"",
    "'",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "<<",
    ">>",
    "->",
    ".",
    "::",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "&&",
    "|",
    "||",
    "^",
    "~",
    "!",
    "=",
    "==",
    "!=",
    "<=",
    ">=",
    "?",
    ":",
    ",",
    ";",
    "@",
    "@3",
    "@1000000000000",
    "++",
    "+=",
    "\\",
    "#",
    "é",
    "\0",
    "operator",
    "std",
    "core",
    "geometry",
    "Shape",
    "(int)",
    "(char *)",
    "*(int *)",
    "&*",
    "[0]",
    "[-1]",
    "[9223372036854775807]",
    ".0",
    ".__0",
    "as u8",
    "as *const u8",
];

/// A text that may be an expression.
fn expression(random: &mut Random, known: &[String]) -> String {
    let mut text = String::new();
    for _ in 0..1 + random.below(12) {
        match random.below(8) {
            0 | 1 if !known.is_empty() => text.push_str(&known[random.below(known.len())]),
            2 => text.push(' '),
            3 => text.push(char::from(32 + random.below(95) as u8)),
            4 if random.below(40) == 0 => text.push_str(&"(-".repeat(random.below(5000))),
            5 if random.below(40) == 0 => text.push_str(&"*".repeat(random.below(5000))),
            _ => text.push_str(random.pick(WORDS)),
        }
    }
    text
}

/// Expressions, well formed and not, in frames of programs of three languages.
#[test]
fn any_text_is_an_expression_or_an_error() {
    if !common::has("gdb") {
        return;
    }
    let builds = [
        ("basics.c", 0),
        ("shapes.cpp", 2),
        ("values.rs", 0),
        ("values.rs", 2),
    ];
    let cores: Vec<CoreFile> = builds
        .iter()
        .map(|&(source, level)| {
            let answers = Build { source, level }.stops(10, 3);
            let core = answers[3 % answers.len()]["core"].as_str().unwrap();
            CoreFile::open(core.as_ref()).unwrap()
        })
        .collect();
    let library = Library::new(Options::default());
    let inspectors: Vec<Inspector<'_>> = cores
        .iter()
        .map(|core| Inspector::new(&library, core))
        .collect();
    let stacks: Vec<_> = inspectors
        .iter()
        .zip(&cores)
        .map(|(inspector, core)| inspector.stack(core.threads()[0], 50).unwrap())
        .collect();
    let options = PrintOptions {
        elements: 20,
        depth: 4,
        ..PrintOptions::default()
    };
    cases("any_text_is_an_expression_or_an_error", 600, |seed| {
        let mut random = Random::new(seed);
        let which = random.below(cores.len());
        let (inspector, stack) = (&inspectors[which], &stacks[which]);
        let level = random.below(stack.frames.len());
        let scope = Scope::new(inspector, stack, level).unwrap();
        let locals = scope.locals().into_iter().chain(scope.arguments());
        let known: Vec<String> = locals.map(|l| l.name.to_string()).collect();
        let text = expression(&mut random, &known);
        let _ = inspector.resolve(&text, None);
        let Ok(parsed) = Expression::parse(&scope, &text) else {
            return;
        };
        let _ = parsed.holds(&scope);
        let _ = parsed.compile(&scope);
        if let Ok(ty) = parsed.type_of(&scope) {
            let _ = inspect::types::describe(&ty);
        }
        if let Ok(value) = parsed.evaluate(&scope) {
            let _ = Printer::in_scope(scope, options.clone()).top(&value);
            let from = random.below(1000);
            let _ = Tree::in_scope(scope).children(&value, from..from + 10);
            let _ = value.snapshot(inspector.process);
        }
    });
}

/// A process whose only file has these bytes, and whose memory is any.
struct Strange {
    file: std::sync::Arc<[u8]>,
    /// Where its code is, in the file and behind [`BASE`], and how long.
    text: (u64, u64),
    pc: u64,
    seed: u64,
}

const BASE: u64 = 0x5555_5555_4000;

impl Process for Strange {
    fn read(&self, Addr(address): Addr, buffer: &mut [u8]) -> usize {
        let offset = address.wrapping_sub(BASE) as usize;
        if let Some(code) = self.file.get(offset..offset.saturating_add(buffer.len())) {
            buffer.copy_from_slice(code);
            return buffer.len();
        }
        // Pages here and there are missing; words are often pointers.
        if (address >> 12) % 7 == 3 {
            return 0;
        }
        for (at, byte) in (address..).zip(buffer.iter_mut()) {
            let mut word = Random::new((at / 8) ^ self.seed);
            let value = match word.below(3) {
                0 => word.next() % 64,
                1 => 0x7fff_ffff_0000 + word.next() % 0x1_0000,
                _ => word.next(),
            };
            *byte = value.to_le_bytes()[(at % 8) as usize];
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
        vec![Mapping {
            start: Addr(BASE + self.text.0),
            end: Addr(BASE + self.text.0 + self.text.1),
            offset: self.text.0,
            name: "/changed".to_string(),
            executable: true,
            writable: false,
            content: Content::Bytes(self.file.clone()),
        }]
    }
}

/// Where the code of a file is: offset, which is its address too, and length.
fn text(file: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let count = u16::from_le_bytes(file[0x38..0x3a].try_into().unwrap());
    let headers = (0..usize::from(count)).map(|i| word(0x20) as usize + 56 * i);
    let mut loaded = headers.filter(|at| file[*at..*at + 8] == [1, 0, 0, 0, 5, 0, 0, 0]);
    let code = loaded.next().unwrap();
    assert_eq!(word(code + 8), word(code + 16));
    (word(code + 8), word(code + 32).next_multiple_of(0x1000))
}

/// Where the sections of a file are that are read here: first and last byte.
fn sections(file: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&file[at..at + len]);
        u64::from_le_bytes(bytes) as usize
    };
    let (table, size, count) = (word(0x28, 8), word(0x3a, 2), word(0x3c, 2));
    let headers = (0..count).map(|i| table + i * size);
    let found = headers.map(|at| (word(at + 0x18, 8), word(at + 0x20, 8)));
    found
        .filter(|(start, len)| *len > 0 && start + len <= file.len())
        .map(|(start, len)| (start, start + len))
        .collect()
}

/// Changes bytes: in one section, in the headers, or anywhere.
fn change(file: &mut Vec<u8>, random: &mut Random) {
    let sections = sections(file);
    let (start, end) = match random.below(8) {
        0 => (0, file.len()),
        1 => (0, 64),
        2 => (file.len() - 64 * sections.len(), file.len()),
        _ => sections[random.below(sections.len())],
    };
    for _ in 0..1 + random.below(40) {
        let at = start + random.below(end - start);
        match random.below(6) {
            0 => file[at] ^= 1 << random.below(8),
            1 => file[at] = 0xff,
            2 => file[at] = 0,
            3 => file[at] = file[at].wrapping_add(1),
            4 => {
                let from = start + random.below(end - start);
                let len = random.below(32).min(end - at).min(end - from);
                file.copy_within(from..from + len, at);
            }
            _ => file[at] = random.next() as u8,
        }
    }
    if random.below(20) == 0 {
        file.truncate(random.below(file.len()));
    }
}

/// Asks everything about one process.
fn interrogate(process: &Strange, random: &mut Random) {
    let library = Library::new(Options {
        debug_directories: Vec::new(),
        source_map: Vec::new(),
    });
    let inspector = Inspector::new(&library, process);
    let options = PrintOptions {
        elements: 20,
        depth: 4,
        ..PrintOptions::default()
    };
    let stack = inspector.stack(ThreadId(1), 50).unwrap();
    let _ = backtrace::backtrace(&inspector, &stack, &options);
    let _ = inspect::frames::user_frame(&stack);
    for level in 0..stack.frames.len().min(6) {
        let scope = Scope::new(&inspector, &stack, level).unwrap();
        let locals = scope.locals();
        let _ = backtrace::variables(scope, &locals, &options);
        let tree = Tree::in_scope(scope);
        for local in &locals {
            if let Ok(value) = scope.read(local.die)
                && let Ok(page) = tree.children(&value, 0..5)
            {
                for child in page.items {
                    let _ = tree.children(&child.value, 3..6);
                }
            }
        }
        for name in [
            "first",
            "main",
            "sizeof(struct nested)",
            "BLUE",
            "per_thread",
            "account",
        ] {
            if let Ok(value) = scope.evaluate(name) {
                let _ = Printer::in_scope(scope, options.clone()).top(&value);
                let _ = inspect::types::describe(&value.ty);
            }
        }
    }
    for place in [
        "main",
        "weigh",
        "largest",
        "area",
        "basics.c:158",
        "values.rs:80",
    ] {
        let _ = inspector.resolve(place, None);
    }
    let at = Addr(BASE + random.next() % 0x2_0000);
    let _ = inspector.disassemble(at, 20);
    let _ = inspector.symbolize(at);
    let _ = inspector.line_starts(at);
    let _ = inspector.in_prologue(at);
}

/// Executables with changed headers, symbols, unwinding rules and debug
/// information.
#[test]
fn changed_object_files_are_survived() {
    let builds = [
        ("basics.c", 0),
        ("basics.c", 2),
        ("inlined.cpp", 2),
        ("shapes.cpp", 0),
    ];
    let originals: Vec<Vec<u8>> = builds
        .iter()
        .map(|&(source, level)| std::fs::read(Build { source, level }.compile()).unwrap())
        .collect();
    // Unchanged, everything is found: the cases below do look deeply.
    for (file, (source, _)) in originals.iter().zip(builds) {
        let mut process = Strange {
            file: file.clone().into(),
            text: text(file),
            pc: 0,
            seed: 1,
        };
        let library = Library::new(Options::default());
        let main = Inspector::new(&library, &process).resolve("main", None);
        process.pc = main.unwrap()[0].address.0;
        let inspector = Inspector::new(&library, &process);
        let frame = &inspector.stack(ThreadId(1), 5).unwrap().frames[0];
        assert_eq!(frame.name.as_deref(), Some("main"));
        let place = frame.place.as_ref().unwrap();
        assert!(place.file.path.ends_with(source), "{place:?}");
    }
    cases("changed_object_files_are_survived", 1_000, |seed| {
        let mut random = Random::new(seed);
        let mut file = originals[random.below(originals.len())].clone();
        let text = text(&file);
        change(&mut file, &mut random);
        let process = Strange {
            file: file.into(),
            text,
            pc: BASE + text.0 + random.next() % text.1,
            seed: random.next(),
        };
        interrogate(&process, &mut random);
    });
}
