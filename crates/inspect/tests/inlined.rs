//! Stops in functions that are inlined, and which frame is shown there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Build;
use inspect::core::CoreFile;
use inspect::dwarf::die::Entry;
use inspect::frames::{FrameKind, frame_of, is_library_source, user_frame};
use inspect::scope::Scope;
use inspect::unwind::FrameRegisters;
use inspect::{Inspector, Library, Options, Process};

const LIMIT: usize = 100;

/// A core at the program's beginning, and one at each passing of some
/// addresses.
fn cores(program: &Path, main: &str, scratch: &Path, addresses: &[u64]) -> Vec<PathBuf> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-iex", "set auto-load no"]);
    gdb.args(["-ex", &format!("break {main}"), "-ex", "run"]);
    let core = |at: usize| scratch.join(format!("core.{}.{at}", addresses.len()));
    gdb.args(["-ex", &format!("generate-core-file {}", core(0).display())]);
    for address in addresses {
        gdb.args(["-ex", &format!("break *{address:#x}")]);
    }
    if !addresses.is_empty() {
        for at in 1..40 {
            gdb.args(["-ex", "continue", "-ex"]);
            gdb.arg(format!("generate-core-file {}", core(at).display()));
        }
    }
    gdb.arg(program).output().unwrap();
    (0..40).map(core).take_while(|core| core.exists()).collect()
}

/// Calls of `weigh`, in order: value and scale.
const CALLS: [(i64, i64); 6] = [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (9, 100)];

/// `break weigh` stops once for each call, in its own frame, at its own first
/// line, where its arguments are known.
fn stops_in_its_own_frame(build: Build, main: &str, first_line: &str) {
    if !common::has("gdb") {
        return;
    }
    let program = build.compile();
    let scratch = tempfile::tempdir_in(common::workplace()).unwrap();
    let library = Library::new(Options::default());
    let source = common::repository().join("tests/programs/inspect");
    let text = std::fs::read_to_string(source.join(build.source)).unwrap();
    let first_line = 1 + text.lines().position(|l| l.contains(first_line)).unwrap() as u32;

    let begun = cores(&program, main, scratch.path(), &[]);
    let process = CoreFile::open(&begun[0]).unwrap();
    let inspector = Inspector::new(&library, &process);
    let locations = inspector.resolve("weigh", None).unwrap();
    let inlined: Vec<_> = locations.iter().filter(|l| l.inlined).collect();
    assert!(inlined.len() >= 2, "{locations:?}");
    for location in &inlined {
        assert!(location.function.as_deref().unwrap().contains("weigh"));
        assert_eq!(
            location.place.as_ref().unwrap().line,
            first_line,
            "{build:?}"
        );
    }

    let addresses: Vec<u64> = locations.iter().map(|l| l.address.0).collect();
    let mut seen = Vec::new();
    for core in cores(&program, main, scratch.path(), &addresses)
        .iter()
        .skip(1)
    {
        let process = CoreFile::open(core).unwrap();
        let inspector = Inspector::new(&library, &process);
        let whole = inspector.stack(process.threads()[0], LIMIT).unwrap();
        let pc = whole.frames[0].pc;
        let location = locations.iter().find(|l| l.address == pc);
        let Some(location) = location else {
            // The program's end, or its beginning.
            continue;
        };
        let stack = whole.entering(location);
        let frame = &stack.frames[0];
        assert_eq!(frame.level, 0);
        assert_eq!(frame.kind, FrameKind::Inlined);
        assert!(
            frame.name.as_deref().unwrap().contains("weigh"),
            "{build:?}"
        );
        assert_eq!(frame.place.as_ref().unwrap().line, first_line);
        assert_eq!(frame_of(&stack, location), Some(0));
        assert_eq!(user_frame(&stack), 0);
        let scope = Scope::new(&inspector, &stack, 0).unwrap();
        let number = |name: &str, passed: i64| {
            let parameter = scope.find(name).unwrap().die.read().unwrap();
            let value = scope.evaluate(name).unwrap();
            let kept = |e: &Entry| e.value(gimli::constants::DW_AT_location).map(|_| ());
            match value.integer(&process) {
                Ok(number) => number as i64,
                // The compiler kept it nowhere: nobody can know.
                Err(_) if parameter.inherited(kept).is_none() => passed,
                Err(e) => panic!("{build:?}: {name}: {e}"),
            }
        };
        let passed = CALLS[seen.len()];
        assert_eq!(number("value", i64::MIN), passed.0, "{build:?}");
        seen.push((passed.0, number("scale", passed.1)));
    }
    assert_eq!(seen, CALLS, "{build:?}");
}

/// At every line of a function the frame that is shown is the user's, with
/// nothing but the library's inside of it.
fn the_users_frame_comes_first(build: Build, main: &str) {
    if !common::has("gdb") {
        return;
    }
    let program = build.compile();
    let scratch = tempfile::tempdir_in(common::workplace()).unwrap();
    let library = Library::new(Options::default());
    let core = cores(&program, main, scratch.path(), &[]);
    let process = CoreFile::open(&core[0]).unwrap();
    let inspector = Inspector::new(&library, &process);
    let user = inspector.resolve("library_user", None).unwrap();
    assert_eq!(user.len(), 1);
    let registers = process.registers(process.threads()[0]).unwrap();
    let (mut inside, mut outside) = (0, 0);
    for address in inspector.line_starts(user[0].address) {
        let mut registers = registers.clone();
        registers.rip = address.0;
        let stack = inspector.stack_from(FrameRegisters::new(registers), LIMIT);
        let level = user_frame(&stack);
        let path = |level: usize| {
            let place = stack.frames[level].place.as_ref();
            place.map_or("", |p| p.file.path.as_str())
        };
        // Lines of the library may be without a function around them.
        let plain = stack.frames[level].kind == FrameKind::Normal;
        assert!(
            plain || path(level).ends_with(build.source),
            "{address:#x}: {}",
            path(level)
        );
        assert!((0..level).all(|inner| is_library_source(path(inner))));
        *(if level > 0 { &mut inside } else { &mut outside }) += 1;
    }
    assert!(inside > 3 && outside > 1, "{build:?}: {inside} {outside}");
}

#[test]
fn a_function_inlined_in_cpp_is_stopped_in_its_own_frame() {
    for level in [1, 2, 3] {
        let build = Build {
            source: "inlined.cpp",
            level,
        };
        stops_in_its_own_frame(build, "main", "int found = look_up(value);");
    }
}

#[test]
fn a_function_inlined_in_rust_is_stopped_in_its_own_frame() {
    for level in [1, 2, 3] {
        let build = Build {
            source: "inlined_rust.rs",
            level,
        };
        stops_in_its_own_frame(
            build,
            "inlined_rust::main",
            "let mut found = look_up(value);",
        );
    }
}

#[test]
fn the_users_frame_comes_before_the_librarys() {
    let of = |source| Build { source, level: 2 };
    the_users_frame_comes_first(of("inlined.cpp"), "main");
    the_users_frame_comes_first(of("inlined_rust.rs"), "inlined_rust::main");
}
