//! Containers of the libraries are shown as what they hold.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::process::Command;

use common::Build;
use inspect::core::CoreFile;
use inspect::print::{PrintOptions, Printer};
use inspect::scope::Scope;
use inspect::{Inspector, Library, Options, Process};

fn check(source: &'static str, at: &str, expected: &[(&str, &str)]) {
    if !common::has("gdb") {
        return;
    }
    let program = Build { source, level: 0 }.compile();
    let core = common::workplace().join(format!("{source}.core"));
    let _ = std::fs::remove_file(&core);
    Command::new("gdb")
        .args(["-q", "-nx", "-batch", "-iex", "set auto-load no"])
        .args(["-ex", &format!("break {at}"), "-ex", "run", "-ex"])
        .arg(format!("generate-core-file {}", core.display()))
        .args(["-ex", "kill"])
        .arg(&program)
        .output()
        .unwrap();
    let process = CoreFile::open(&core).unwrap();
    let library = Library::new(Options::default());
    let inspector = Inspector::new(&library, &process);
    let stack = inspector.stack(process.threads()[0], 100).unwrap();
    let level = stack
        .frames
        .iter()
        .position(|f| {
            f.name
                .as_deref()
                .is_some_and(|n| n == "main" || n.ends_with("::main"))
        })
        .unwrap();
    let scope = Scope::new(&inspector, &stack, level).unwrap();
    let printer = Printer::in_scope(scope, PrintOptions::default());
    let mut differences = Vec::new();
    for (expression, wanted) in expected {
        let shown = match scope.evaluate(expression) {
            Ok(value) => printer.value(&value),
            Err(e) => format!("error: {e}"),
        };
        // Addresses differ from run to run.
        let shown: String = match shown.find("0x") {
            Some(start) if wanted.contains("0x") => {
                let end = shown[start + 2..]
                    .find(|c: char| !c.is_ascii_hexdigit())
                    .map_or(shown.len(), |e| start + 2 + e);
                format!("{}0x{}", &shown[..start], &shown[end..])
            }
            _ => shown,
        };
        if shown != *wanted {
            differences.push(format!(
                "{expression}\n  shown:  {shown}\n  wanted: {wanted}"
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn containers_of_cpp() {
    check(
        "containers.cpp",
        "stop",
        &[
            ("short_text", "\"short\""),
            (
                "long_text",
                "\"a text that is too long for the string itself\"",
            ),
            ("view", "\"text\""),
            ("vector", "std::vector of length 3, capacity 3 = {1, 2, 3}"),
            ("vector[1]", "2"),
            (
                "words",
                "std::vector of length 2, capacity 2 = {\"one\", \"two\"}",
            ),
            ("words[1]", "\"two\""),
            ("array", "{7, 8, 9}"),
            ("deque", "std::deque with 3 elements = {297, 298, 299}"),
            ("list", "std::list = {0.5, 1.5}"),
            (
                "map",
                "std::map with 3 elements = {[\"a\"] = 1, [\"b\"] = 2, [\"c\"] = 3}",
            ),
            (
                "narrow",
                "std::map with 2 elements = {[120 'x'] = 10, [121 'y'] = 20}",
            ),
            ("set", "std::set with 3 elements = {3, 4, 5}"),
            (
                "hashed",
                "std::unordered_map with 1 element = {[1] = \"uno\"}",
            ),
            ("hashed_set", "std::unordered_set with 1 element = {42}"),
            ("some", "std::optional = {6}"),
            ("none", "std::optional [no contained value]"),
            ("variant", "std::variant [index 1] = {\"held\"}"),
            ("unique", "std::unique_ptr = {get() = 0x}"),
            ("shared", "std::shared_ptr (use count 2) = {get() = 0x}"),
            ("pair", "{first = 1, second = 99 'c'}"),
            (
                "tuple",
                "std::tuple containing = {[0] = 1, [1] = \"two\", [2] = 3}",
            ),
            ("short_text == \"short\"", "true"),
        ],
    );
}

#[test]
fn containers_of_rust() {
    check(
        "collections.rs",
        "collections.rs:44",
        &[
            ("string", "\"text\""),
            ("slice", "\"ex\""),
            ("vector", "vec![1, 2, 3]"),
            ("vector[1]", "2"),
            ("vector[1..]", "[2, 3]"),
            ("empty", "vec![]"),
            ("words", "vec![\"one\", \"two\"]"),
            ("part", "[2, 3]"),
            ("deque", "VecDeque[4, 5, 6, 7, 100, 101, 102, 103]"),
            ("map", "{\"k\": 5}"),
            ("set", "{9}"),
            ("tree", "{1: \"a\", 2: \"b\", 3: \"c\"}"),
            ("tree_set", "{1, 3}"),
            (
                "some",
                "core::option::Option<alloc::string::String>::Some(\"inside\")",
            ),
            (
                "good",
                "core::result::Result<u8, alloc::string::String>::Ok(1)",
            ),
            (
                "bad",
                "core::result::Result<u8, alloc::string::String>::Err(\"why\")",
            ),
            ("*boxed", "7"),
            ("rc", "Rc(strong=2, weak=0) 8"),
            ("arc", "Arc(strong=1, weak=0) Mutex(9) locked"),
            ("cell", "Cell(10)"),
            ("ref_cell", "RefCell(vec![11])"),
            ("buffer", "[98, 0 <repeats 8191 times>]"),
            (
                "runs",
                "vec![1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2 <repeats 11 times>, 3]",
            ),
            ("string == \"text\"", "true"),
        ],
    );
}
