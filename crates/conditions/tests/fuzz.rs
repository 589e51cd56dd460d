//! Rules that nobody means: whatever is typed is a file of rules, or is refused with the
//! place where it goes wrong; and what is one can be judged.
//!
//! `scripts/fuzz` goes on for longer; `MW_SEED` begins elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../../../tests/mutate.rs"]
mod mutate;
#[path = "../../../tests/seed.rs"]
mod seed;
mod story;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Instant;

use conditions::check::{Options, check};
use conditions::rules::{Failed, Rules};
use conditions::truth::Nobody;
use mutate::{Random, changed, goes_on};
use story::Story;

const WORDS: &[&[u8]] = &[
    b"let",
    b"state",
    b"never",
    b"always",
    b"find",
    b"expect",
    b"recognizer",
    b"verifier",
    b"include",
    b"a",
    b"b",
    b"s",
    b"p-0",
    b"p-*",
    b"send",
    b"recv",
    b"and",
    b"or",
    b"not",
    b"->",
    b"|",
    b"||",
    b"^3",
    b"{2,5}",
    b"{",
    b"}",
    b"(",
    b")",
    b"[",
    b"]",
    b"=",
    b"==",
    b"<",
    b">=",
    b":",
    b";",
    b",",
    b"~",
    b"/x(?<v>y)/",
    b"\"t\"",
    b"bytes",
    b"process",
    b"count(s)",
    b"sum(p-*: x)",
    b"value(",
    b"in_flight(",
    b"leads to",
    b"within 5ms",
    b"until",
    b"before",
    b"between",
    b"without",
    b"no",
    b"do",
    b"else",
    b"over",
    b"emit x(v)",
    b"happened(a)",
    b"from",
    b"last v of",
    b"running",
    b"at F in p",
    b"*",
    b"+",
    b"?",
    b"-",
    b"7",
    b"0.5",
    b"1e-9",
    b"value(p-0: x) == \"a\"",
    b"p-0/t-*",
    b"#",
    b"\n",
    b"as",
    b"_",
    "é".as_bytes(),
    b"\0",
];

/// The examples of the page, line by line, and all of them at once.
fn examples() -> (String, Vec<Vec<u8>>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conditions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let blocks = |kind: &str| -> Vec<String> {
        let mark = format!("```{kind}\n");
        let rest = page.split(&mark).skip(1);
        rest.map(|rest| rest.split("```").next().unwrap().to_string())
            .collect()
    };
    let run = blocks("run").remove(0);
    let rules = blocks("mw");
    let lines = rules.iter().flat_map(|block| block.lines());
    let lines = lines.filter(|line| !line.trim().is_empty());
    let mut texts: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).collect();
    texts.extend(rules.iter().map(|block| block.as_bytes().to_vec()));
    (run, texts)
}

/// Reads it, and checks what is said of it.
fn read(text: &str) -> Option<Rules> {
    match Rules::parse("fuzz", text, None) {
        Ok(rules) => Some(rules),
        Err(Failed::Wrong(error)) => {
            let lines = text.chars().filter(|c| *c == '\n').count() + 1;
            assert!((1..=lines).contains(&error.line), "{error}");
            assert!(error.column >= 1 && !error.expected.is_empty(), "{error}");
            None
        }
        Err(Failed::Unreadable { .. }) => None,
    }
}

/// Longer ones are read only: judging thousands of rules finds nothing new.
const LONG: usize = 4000;

#[test]
fn whatever_is_typed_is_rules_or_refused() {
    let first = seed::seed("rules", 1);
    let (run, texts) = examples();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let mut story = Story::new(&run);
    story.lenient = true;
    let begun = Instant::now();
    let (mut round, mut good) = (0, 0u64);
    while goes_on(begun, round, 10_000) {
        let seed = first.wrapping_add(round);
        let mut random = Random::new(seed);
        let bytes = changed(&mut random, &texts, WORDS);
        let text = String::from_utf8_lossy(&bytes);
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let rules = read(&text);
            let _ = Rules::question(&text, None);
            // Who is not there is found only when it is judged.
            let rules = rules.filter(|_| text.len() < LONG);
            rules.map(|rules| check(&rules, &story, &mut Nobody, Options { witnesses: 1 }).is_ok())
        }));
        match ended {
            Ok(judged) => good += u64::from(judged.is_some()),
            Err(_) => panic!("MW_SEED={seed}: {}", text.escape_debug()),
        }
        round += 1;
    }
    eprintln!("{round} texts, {good} of them rules");
    assert!(good > round / 50, "the changes leave nothing to judge");
}
