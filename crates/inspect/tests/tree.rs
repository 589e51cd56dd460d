//! Values as trees: pages of children, and how little is read for them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod common;

use std::cell::Cell;
use std::process::Command;

use common::Build;
use inspect::core::CoreFile;
use inspect::scope::Scope;
use inspect::tree::{Child, Label, Tree};
use inspect::value::Value;
use inspect::{Inspector, Library, Mapping, Options, Process, Registers, ThreadId};
use protocol::id::Addr;

/// A process that counts what is read of it.
struct Counting {
    core: CoreFile,
    reads: Cell<u64>,
    bytes: Cell<u64>,
}

impl Process for Counting {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        self.bytes.set(self.bytes.get() + buffer.len() as u64);
        self.core.read(address, buffer)
    }
    fn threads(&self) -> Vec<ThreadId> {
        self.core.threads()
    }
    fn registers(&self, thread: ThreadId) -> inspect::Result<Registers> {
        self.core.registers(thread)
    }
    fn mappings(&self) -> Vec<Mapping> {
        self.core.mappings()
    }
}

/// Cores of a program at the first calls of `stop`, with `look` in the frame
/// of `main` at each.
fn at_stops(source: &'static str, stop: &str, count: usize, look: impl Fn(usize, Looking<'_>)) {
    if !common::has("gdb") {
        return;
    }
    let program = Build { source, level: 0 }.compile();
    let scratch = tempfile::tempdir_in(common::workplace()).unwrap();
    let core = |at: usize| scratch.path().join(format!("core.{at}"));
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-iex", "set auto-load no"]);
    gdb.args(["-ex", &format!("break {stop}"), "-ex", "run"]);
    for at in 0..count {
        gdb.args(["-ex", &format!("generate-core-file {}", core(at).display())]);
        gdb.args(["-ex", "continue"]);
    }
    gdb.arg(&program).output().unwrap();
    for at in 0..count {
        let process = Counting {
            core: CoreFile::open(&core(at)).unwrap(),
            reads: Cell::new(0),
            bytes: Cell::new(0),
        };
        let library = Library::new(Options::default());
        let inspector = Inspector::new(&library, &process);
        let stack = inspector.stack(process.threads()[0], 100).unwrap();
        let is_main = |name: &str| name == "main" || name.ends_with("::main");
        let level = stack
            .frames
            .iter()
            .position(|f| f.name.as_deref().is_some_and(is_main))
            .unwrap();
        look(
            at,
            Looking {
                process: &process,
                scope: Scope::new(&inspector, &stack, level).unwrap(),
            },
        );
    }
}

struct Looking<'a> {
    process: &'a Counting,
    scope: Scope<'a>,
}

impl Looking<'_> {
    fn value(&self, expression: &str) -> Value {
        self.scope.evaluate(expression).unwrap()
    }

    /// A page of an expression's children, for at most so many reads and
    /// bytes.
    fn page(
        &self,
        expression: &str,
        range: std::ops::Range<usize>,
        most: (u64, u64),
    ) -> (Option<usize>, Vec<Child>) {
        let tree = Tree::in_scope(self.scope);
        let value = self.value(expression);
        let before = (self.process.reads.get(), self.process.bytes.get());
        let page = tree.children(&value, range.clone()).unwrap();
        let reads = self.process.reads.get() - before.0;
        let bytes = self.process.bytes.get() - before.1;
        eprintln!("{expression} {range:?}: {reads} reads, {bytes} bytes");
        assert!(
            reads <= most.0 && bytes <= most.1,
            "{expression} {range:?}: {reads} reads of {bytes} bytes, not {most:?}"
        );
        (page.total, page.items)
    }
}

fn rows(items: &[Child]) -> Vec<String> {
    let row = |child: &Child| format!("{} = {}", child.label, child.summary);
    items.iter().map(row).collect()
}

const FEW: (u64, u64) = (200, 40_000);

#[test]
fn a_million_elements_of_cpp_are_looked_at_in_pieces() {
    at_stops("large.cpp", "stop", 1, |_, main| {
        let (total, items) = main.page("vector", 999_998..1_000_010, FEW);
        assert_eq!(total, Some(1_000_000));
        assert_eq!(rows(&items), ["[999998] = 2999994", "[999999] = 2999997"]);
        assert!(
            items
                .iter()
                .all(|c| !c.has_children && c.type_name == "int")
        );
        let (total, items) = main.page("row", 500_000..500_002, FEW);
        assert_eq!(total, Some(1_000_000));
        assert_eq!(rows(&items), ["[500000] = 500000", "[500001] = 500001"]);
        let (total, items) = main.page("deque", 300_000..300_001, FEW);
        assert_eq!(total, Some(1_000_000));
        assert_eq!(rows(&items), ["[300000] = -27680"]);
        let (total, items) = main.page("vector", 2_000_000..2_000_010, FEW);
        assert_eq!((total, items.len()), (Some(1_000_000), 0));

        // A map is walked from the nearer end, one read for each node.
        let (total, items) = main.page("map", 0..3, FEW);
        assert_eq!(total, Some(1_000_000));
        assert_eq!(rows(&items), ["[0] = 0", "[1] = 2", "[2] = 4"]);
        assert_eq!(items[2].label, Label::Key(2, "2".to_string()));
        assert!(items[2].key.is_some());
        let (_, items) = main.page("map", 999_997..1_000_000, FEW);
        assert_eq!(
            rows(&items),
            [
                "[999997] = 1999994",
                "[999998] = 1999996",
                "[999999] = 1999998"
            ]
        );
        let (_, items) = main.page("map", 400_000..400_001, (400_100, 6_500_000));
        assert_eq!(rows(&items), ["[400000] = 800000"]);
        let (total, items) = main.page("list", 50_000..50_001, (50_100, 500_000));
        assert_eq!(total, Some(100_000));
        assert_eq!(rows(&items), ["[50000] = 50000"]);
        let (total, items) = main.page("table", 0..100_000, (600_000, 4_000_000));
        assert_eq!((total, items.len()), (Some(100_000), 100_000));
        let mut keys: Vec<u32> = items
            .iter()
            .map(|c| match &c.label {
                Label::Key(_, key) => key.parse().unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..100_000));

        // The summary of all of it is short, and so is the way to it.
        let tree = Tree::in_scope(main.scope);
        for name in ["vector", "row", "deque", "map", "list", "table", "texts"] {
            let value = main.value(name);
            let before = main.process.reads.get();
            let root = tree.root(name, value);
            let reads = main.process.reads.get() - before;
            assert!(root.has_children && root.summary.len() < 120, "{root:?}");
            assert!(reads < 300, "{name}: {reads} reads for {}", root.summary);
        }
        let (_, items) = main.page("texts", 10..12, FEW);
        assert_eq!(rows(&items), ["[10] = \"10\"", "[11] = \"11\""]);
        assert!(!items[0].has_children);
        let raw = Tree::in_scope(main.scope).raw();
        let page = raw.children(&main.value("vector"), 0..10).unwrap();
        assert!(matches!(page.items[0].label, Label::Base(_)), "{page:?}");
    });
}

#[test]
fn deep_values_are_followed_level_by_level() {
    at_stops("large.cpp", "stop", 1, |_, main| {
        let tree = Tree::in_scope(main.scope);
        let mut at = tree.root("deep", main.value("deep"));
        for level in (0..60).rev() {
            assert!(at.summary.len() < 120, "{}", at.summary);
            let page = tree.children(&at.value, 0..10).unwrap();
            assert_eq!(page.total, Some(2));
            at = page.items[1].clone();
            assert_eq!(at.label, Label::Member("inner".to_string()));
            let inside = tree.children(&at.value, 0..1).unwrap();
            assert_eq!(rows(&inside.items), [format!("level = {level}")]);
        }
        let mut at = tree.root("chain", main.value("chain"));
        let before = main.process.reads.get();
        for number in (0..1000).rev() {
            let target = tree.children(&at.value, 0..1).unwrap().items.remove(0);
            assert_eq!(target.label, Label::Target);
            let members = tree.children(&target.value, 0..2).unwrap().items;
            assert_eq!(members[0].summary, number.to_string());
            at = members[1].clone();
            assert_eq!(at.has_children, number > 0);
        }
        let reads = main.process.reads.get() - before;
        assert!(reads < 20_000, "{reads}");
    });
}

#[test]
fn a_million_elements_of_rust_are_looked_at_in_pieces() {
    at_stops("millions.rs", "millions::stop", 1, |_, main| {
        let (total, items) = main.page("vector", 999_999..1_000_010, FEW);
        assert_eq!(total, Some(1_000_000));
        assert_eq!(rows(&items), ["[999999] = 2999997"]);
        let (total, items) = main.page("zeros", 40_000_000..40_000_002, FEW);
        assert_eq!(total, Some(50_000_000));
        assert_eq!(rows(&items), ["[40000000] = 0", "[40000001] = 0"]);
        let (total, items) = main.page("tree", 0..2, FEW);
        assert_eq!(total, Some(1_000_000));
        assert_eq!(rows(&items), ["[0] = 0", "[1] = 2"]);
        let (_, items) = main.page("tree", 999_998..1_000_000, FEW);
        assert_eq!(rows(&items), ["[999998] = 1999996", "[999999] = 1999998"]);
        let (_, items) = main.page("tree", 600_000..600_001, (200_000, 1_000_000));
        assert_eq!(rows(&items), ["[600000] = 1200000"]);
        let (total, items) = main.page("set", 500..503, (1000, 20_000));
        assert_eq!(total, Some(1000));
        assert_eq!(rows(&items), ["[500] = 500", "[501] = 501", "[502] = 502"]);
        // The end of a hash table: its bytes are passed in large pieces.
        let (total, items) = main.page("table", 999_000..1_000_000, (9000, 4_000_000));
        assert_eq!((total, items.len()), (Some(1_000_000), 1000));
        for child in &items {
            let Label::Key(_, key) = &child.label else {
                panic!("{child:?}");
            };
            assert_eq!(child.summary, (key.parse::<u32>().unwrap() + 1).to_string());
        }
        let (total, items) = main.page("ring", 99_999..100_000, FEW);
        assert_eq!(total, Some(100_000));
        assert_eq!(rows(&items), ["[99999] = 99999"]);
        let (_, items) = main.page("names", 7..8, FEW);
        assert_eq!(rows(&items), ["[7] = \"name 7\""]);

        let (total, shapes) = main.page("shapes", 0..3, FEW);
        assert_eq!(total, Some(3));
        let has: Vec<bool> = shapes.iter().map(|c| c.has_children).collect();
        assert_eq!(has, [false, true, true]);
        let tree = Tree::in_scope(main.scope);
        let fields = |child: &Child| rows(&tree.children(&child.value, 0..9).unwrap().items);
        assert_eq!(fields(&shapes[1]), ["0 = 1.5"]);
        assert_eq!(fields(&shapes[2]), ["width = 3", "height = 4"]);

        let mut at = main.value("deep");
        for level in (0..500).rev() {
            let members = tree.children(&at, 0..2).unwrap().items;
            assert_eq!(members[0].summary, level.to_string());
            assert_eq!(members[1].label, Label::Member("inner".to_string()));
            let held = tree.children(&members[1].value, 0..1).unwrap().items;
            if level == 0 {
                assert!(held.is_empty());
            } else {
                let boxed = tree.children(&held[0].value, 0..1).unwrap().items;
                at = boxed[0].value.clone();
            }
        }
        for name in ["vector", "zeros", "tree", "table", "ring", "names", "deep"] {
            let value = main.value(name);
            let before = main.process.reads.get();
            let root = tree.root(name, value);
            let reads = main.process.reads.get() - before;
            assert!(root.has_children && root.summary.len() < 120, "{root:?}");
            assert!(reads < 300, "{name}: {reads} reads for {}", root.summary);
        }
    });
}

/// Values are compared as bytes of a type.
#[test]
fn a_value_that_changed_is_another() {
    let kept = std::cell::RefCell::new(Vec::new());
    at_stops("large.cpp", "stop", 2, |at, main| {
        let names = [
            "flags.low",
            "flags.high",
            "flags",
            "vector[0]",
            "vector[1]",
            "&map",
        ];
        let now: Vec<_> = names
            .iter()
            .map(|name| main.value(name).snapshot(main.process).unwrap())
            .collect();
        if at == 0 {
            kept.replace(now);
            return;
        }
        let changed: Vec<&str> = names
            .iter()
            .zip(kept.borrow().iter().zip(&now))
            .filter(|(_, (old, new))| old != new)
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(changed, ["flags.high", "flags", "vector[0]"]);
        // Equal bytes of another type are another value.
        let unlike = main
            .value("(char)flags.low")
            .snapshot(main.process)
            .unwrap();
        assert_ne!(unlike, now[0]);
    });
}
