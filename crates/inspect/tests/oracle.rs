//! Stacks and variables at random stops are what gdb says they are.
//!
//! `MW_SEED` chooses other stops. `MW_ORACLE_STOPS=2000` with the ignored test
//! `search` (`scripts/soak --stops 2000`) looks at that many with seeds of the
//! clock; each difference comes with the seed that shows it again.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod common;

use common::Build;
use common::normal::{unescaped, unread, without_entry_values, without_hashes, without_signature};
use inspect::core::CoreFile;
use inspect::dwarf::die::Entry;
use inspect::frames::FrameKind;
use inspect::print::PrintOptions;
use inspect::print::backtrace::{backtrace, variables};
use inspect::scope::{Local, Scope};
use inspect::{Inspector, Library, Options, Process, ThreadId};

/// `name = value` entries; gdb's order inside of a block is that of a hash
/// table.
fn entries(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .filter(|l| l.contains(" = "))
        .map(unescaped)
        // It takes numbers of which a piece is missing for such pointers.
        .map(|l| {
            if l.contains('{') || l.contains('(') || l.contains("core::") {
                l.replace("<synthetic pointer>", "<optimized out>")
            } else {
                l
            }
        })
        .collect();
    lines.sort();
    lines
}

/// Variables that gdb does not list although it knows their values: constants
/// that are kept as bytes (it forgets that kind of symbol in `info locals`,
/// `print` has them).
fn unlisted(local: &Local) -> bool {
    let constant = |entry: &Entry| entry.value(gimli::constants::DW_AT_const_value);
    local.name == "null"
        || matches!(
            local.die.read().and_then(|entry| entry.inherited(constant)),
            Some(gimli::AttributeValue::Block(_) | gimli::AttributeValue::Data16(_))
        )
}

/// Whether two lines say the same, but for what gdb makes up.
fn agree(ours: &str, theirs: &str) -> bool {
    if ours == theirs {
        return true;
    }
    // A function as a type has no bytes. As a structure's last member it has
    // the offset of the end, and gdb shows what lies behind the structure.
    const BEHIND: &str = "char_eq: <optimized out>";
    if let Some((before, after)) = ours.split_once(BEHIND) {
        return theirs.strip_suffix(after).is_some_and(|rest| {
            let made_up = rest.strip_prefix(before);
            made_up.is_some_and(|m| m.starts_with("char_eq: 0x") && !m.contains(','))
        });
    }
    // It forgets the character before bytes that are the beginning of one.
    if let Some((before, after)) = theirs.split_once("<incomplete sequence ") {
        let before = before.strip_suffix(", ").unwrap_or(before);
        let before = before.strip_suffix('"').unwrap_or(before);
        let (bytes, after) = after.split_once('>').unwrap();
        let rest = ours.strip_prefix(before);
        return rest
            .and_then(|r| r.split_once(bytes))
            .is_some_and(|(lost, rest)| {
                let rest = rest.strip_prefix('"');
                lost.len() <= 5 && rest.is_some_and(|rest| agree(rest, after))
            });
    }
    // A slice whose length is gone is not an empty one, nor is a string whose
    // length is more than it can count.
    if let Some(slice) = theirs.strip_suffix(" []") {
        let rest = ours.strip_prefix(slice).unwrap_or("");
        return rest.starts_with(" {data_ptr: ") && rest.ends_with("length: <optimized out>}");
    }
    theirs.strip_suffix("\"\"").is_some_and(|name| {
        let rest = ours.strip_prefix(name);
        rest.is_some_and(|r| {
            r.ends_with("length: <optimized out>}") && r.starts_with("&str {data_ptr: ")
                || r.starts_with("<error: Cannot access memory at address ")
        })
    })
}

/// Lines of gdb that are plainly wrong, and why.
fn allowed(line: &str) -> bool {
    // Labels that the optimizer removed are no variables.
    const LABELS: [&str; 2] = ["do_longlong_number", "nomem"];
    // It does not know `decltype(nullptr)`.
    let null = line.ends_with("(Attempt to dereference a generic pointer.)>")
        || line == "null = <incomplete type>";
    // It prints complaints into its answers, and fails where a length is gone.
    let failed = line.contains("Internal error") || line.contains("<error reading variable");
    // Of an enumeration of which parts are gone it names one variant and shows
    // the fields of another.
    let mixed = line.contains("::Vacant(std::collections::hash::map::OccupiedEntry<");
    null || mixed
        || failed
        || LABELS
            .iter()
            .any(|label| line == format!("{label} = <optimized out>"))
}

/// Names that an argument shares with a variable of the same function, as
/// Rust's macros make them: gdb shows the variable's value for both.
fn shared_names(scope: Scope<'_>) -> Vec<String> {
    let locals = scope.locals();
    let arguments = scope.arguments();
    let names = arguments.iter().map(|argument| argument.name.to_string());
    names
        .filter(|name| locals.iter().any(|local| local.name == *name))
        .collect()
}

/// A line of a backtrace without the values of some arguments.
fn without_values(line: &str, names: &[String]) -> String {
    let mut line = line.to_string();
    for name in names {
        let Some(at) = line.find(&format!("{name}=")) else {
            continue;
        };
        let end = line[at..]
            .find([',', ')'])
            .map_or(line.len(), |len| at + len);
        line.replace_range(at..end, "");
    }
    line
}

/// How many stops were compared, and what was not equal, each difference once.
struct Compared {
    stops: usize,
    differences: Vec<String>,
}

fn compare(build: Build, count: usize, seed: u64) -> Compared {
    let answers = build.stops(count, seed);
    let library = Library::new(Options::default());
    let options = PrintOptions {
        containers: false,
        ..PrintOptions::default()
    };
    let mut differences = Vec::new();
    let (mut stacks, mut frames, mut values) = (0, 0, 0);
    for answer in &answers {
        let path = answer["core"].as_str().unwrap();
        let core = CoreFile::open(path.as_ref()).unwrap();
        let inspector = Inspector::new(&library, &core);
        for thread in answer["threads"].as_array().unwrap() {
            let tid = ThreadId(thread["tid"].as_u64().unwrap() as u32);
            assert!(core.threads().contains(&tid), "{path}: thread {tid:?}");
            let stack = inspector.stack(tid, 10_000).unwrap();
            stacks += 1;
            let ours = unescaped(&backtrace(&inspector, &stack, &options));
            let theirs = without_hashes(thread["bt"].as_str().unwrap());
            let theirs = unescaped(&theirs);
            for (level, (a, b)) in ours.lines().zip(theirs.lines()).enumerate() {
                let inlined = stack
                    .frames
                    .get(level)
                    .is_some_and(|f| f.kind == FrameKind::Inlined);
                let shared = Scope::new(&inspector, &stack, level).map(shared_names);
                let shared = shared.unwrap_or_default();
                if a != b
                    && unread(b) != a
                    && without_signature(b) != without_signature(a)
                    && !(inlined && without_entry_values(b) == a)
                    && without_values(a, &shared) != without_values(b, &shared)
                {
                    differences.push(format!("{path} bt\n  ours: {a}\n  gdb:  {b}"));
                }
            }
            if ours.lines().count() != theirs.lines().count() {
                differences.push(format!("{path} bt\n--ours:\n{ours}\n--gdb:\n{theirs}"));
                continue;
            }
            for (level, frame) in thread["frames"].as_array().unwrap().iter().enumerate() {
                let Some(scope) = Scope::new(&inspector, &stack, level) else {
                    break;
                };
                frames += 1;
                let shared = shared_names(scope);
                let is_shared = |line: &str| {
                    let name = line.split(" = ").next().unwrap();
                    shared.iter().any(|shared| shared == name)
                };
                for (what, locals) in [("locals", scope.locals()), ("args", scope.arguments())] {
                    let theirs = entries(frame[what].as_str().unwrap());
                    let texts = variables(scope, &locals, &options);
                    let mut ours: Vec<(String, bool)> = texts
                        .into_iter()
                        .zip(&locals)
                        .map(|(text, local)| (unescaped(&text), unlisted(local)))
                        .collect();
                    ours.sort();
                    values += theirs.len();
                    for line in &theirs {
                        match ours.iter().position(|(ours, _)| agree(ours, line)) {
                            Some(at) => {
                                ours.remove(at);
                            }
                            None if allowed(line) || what == "args" && is_shared(line) => {
                                let name = format!("{} = ", line.split(" = ").next().unwrap());
                                ours.retain(|(text, _)| !text.starts_with(&name));
                            }
                            None => {
                                differences.push(format!("{path} #{level} {what}\n  gdb:  {line}"))
                            }
                        }
                    }
                    for (line, unlisted) in ours {
                        if !unlisted {
                            differences.push(format!("{path} #{level} {what}\n  ours: {line}"));
                        }
                    }
                }
            }
        }
    }
    eprintln!("{build:?}: {stacks} stacks, {frames} frames, {values} values");
    // The same difference at many stops is one.
    let mut seen = std::collections::HashSet::new();
    differences.retain(|d| seen.insert(d.split_once(' ').unwrap().1.to_string()));
    Compared {
        stops: answers.len(),
        differences,
    }
}

fn check(build: Build) {
    if !common::has("gdb") {
        return;
    }
    let seed = common::seed::seed(&format!("{build:?}"), 1);
    let found = compare(build, 35, seed).differences;
    assert!(
        found.is_empty(),
        "MW_SEED={seed}: {} differences\n{}",
        found.len(),
        found.join("\n")
    );
}

macro_rules! oracle {
    ($($name:ident: $source:literal, $level:literal;)*) => {
        const BUILDS: &[Build] = &[$(Build { source: $source, level: $level }),*];

        $(
            #[test]
            fn $name() {
                check(Build { source: $source, level: $level });
            }
        )*
    };
}

oracle! {
    c_unoptimized: "basics.c", 0;
    c_optimized: "basics.c", 2;
    cpp_unoptimized: "shapes.cpp", 0;
    cpp_optimized: "shapes.cpp", 2;
    rust_unoptimized: "values.rs", 0;
    rust_optimized: "values.rs", 2;
}

/// Many more stops, with seeds of the clock.
#[test]
#[ignore = "takes hours: scripts/soak --stops N"]
fn search() {
    if !common::has("gdb") {
        return;
    }
    let wanted: usize = std::env::var("MW_ORACLE_STOPS").map_or(2000, |text| text.parse().unwrap());
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let first = common::seed::seed("search", clock);
    let mut stops = 0;
    let mut all = Vec::new();
    for (round, build) in BUILDS.iter().cycle().enumerate() {
        if stops >= wanted {
            break;
        }
        let seed = first.wrapping_add(round as u64);
        let found = compare(*build, 40, seed);
        stops += found.stops;
        if found.differences.is_empty() {
            build.forget(seed);
        }
        for difference in &found.differences {
            eprintln!("MW_SEED={seed} {build:?}: {difference}");
        }
        all.extend(found.differences);
        eprintln!("{stops} stops, {} differences", all.len());
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
