//! Conditions over variables and places of the source: what they were over the runs
//! of two processes equals what a walk by single steps sees, and rules made of them
//! find the first instant.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::{Command, Output};
use std::sync::Arc;

use causality::History;
use harness::{MW, Recorded, Scratch, programs};
use inspect::{Inspector, Library, Options};
use protocol::id::ProcessId;
use recording::Recording;
use replay::Replayer;
use serde_json::Value;
use session::Program;
use session::truth::{self, Deed, Passing, Was};
use target::{Arrival, Cancel, ONE_INSTRUCTION, Opener, Position};

fn recorded(scratch: &Scratch) -> Recorded {
    // Static: the dynamic linker would be most of the walk.
    let program = programs::for_debuggers(scratch, "debug/ledger.c", &["-static"]);
    scratch.record(&[program])
}

/// What a walk by single steps sees: values of a global and where they begin, and
/// where a function is entered.
#[derive(Default)]
struct Walked {
    values: Vec<(Position, i64)>,
    entered: Vec<Position>,
}

fn walk(opener: &dyn Opener, id: ProcessId, global: &str, function: &str) -> Walked {
    let never = Cancel::new();
    let mut target = opener.open(id, &never).unwrap();
    let library = Library::new(Options::default());
    let (entry, address) = {
        let looked = target.look();
        let inspector = Inspector::new(&library, &*looked);
        let found = inspector.resolve(function, None).unwrap();
        let globals = inspector.globals(global, None);
        let (_, module) = globals.first().unwrap();
        let symbols = module.module.symbols().all();
        let symbol = symbols.iter().find(|s| s.demangled() == global).unwrap();
        (found[0].address, module.to_process(symbol.address))
    };
    let mut walked = Walked::default();
    let mut before = None;
    loop {
        let at = target.position();
        let mut word = [0; 8];
        assert_eq!(target.read(address, &mut word), 8);
        let value = i64::from_le_bytes(word);
        if walked.values.last().is_none_or(|(_, last)| *last != value) {
            walked.values.push((at, value));
        }
        if at.address() == Some(entry) && before != Some(at) {
            walked.entered.push(at);
        }
        before = Some(at);
        match target.step(ONE_INSTRUCTION, &[], &never).unwrap() {
            Arrival::Stepped => {}
            Arrival::End => return walked,
            other => panic!("{other:?} at {at:?}"),
        }
    }
}

#[test]
fn what_was_true_equals_single_steps() {
    let scratch = Scratch::new("truth-walk");
    let recorded = recorded(&scratch);
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    let opener = Replayer::new(history.set());
    let names = query::names::own(&history);
    let replayer = Replayer::new(history.set());
    let program = Program::new(history, names, Arc::new(replayer));
    let never = Cancel::new();
    let mut seen = Vec::new();
    for process in recording.processes() {
        let id = process.number.of_member(0);
        for (global, expression, function) in [
            ("accounts", "accounts[0]", "spend"),
            ("limit", "limit", "raise_limit"),
        ] {
            let walked = walk(&opener, id, global, function);
            // With others beside it, computed from the same and from other memory.
            let beside = [expression, "limit + accounts[0]", "accounts[0] < 100"];
            let mut all = truth::changes(&program, id, &beside, &never).unwrap();
            let changes = all.remove(0).unwrap();
            let found: Vec<(Position, i64)> = changes
                .iter()
                .map(|change| match change.was {
                    Was::Number(number) => (change.moment.at, i64::try_from(number).unwrap()),
                    ref other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(found, walked.values, "{expression} in {}", process.name);
            let passing = |deed| Passing {
                deed,
                place: function,
                condition: None,
                value: None,
            };
            let both = [passing(Deed::At), passing(Deed::Return)];
            let mut both = truth::passes(&program, id, &both, &never).unwrap();
            let returns = both.remove(1).unwrap();
            let calls = both.remove(0).unwrap();
            let at: Vec<Position> = calls.iter().map(|pass| pass.moment.at).collect();
            assert_eq!(at, walked.entered, "{function} in {}", process.name);
            assert_eq!(returns.len(), calls.len());
            for (call, back) in calls.iter().zip(&returns) {
                assert!(call.moment.at < back.moment.at);
            }
            seen.push(found.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        }
    }
    let expected = [
        vec![120, 110, 90, 60],
        vec![5],
        vec![120],
        vec![5, 6, 8, 11],
    ];
    // What was taken before the fork is the same in both.
    assert_eq!(seen, expected);
}

fn check(scratch: &Scratch, recorded: &Recorded, rules: &str) -> (Output, Vec<Value>) {
    let file = scratch.path().join("rules.mw");
    std::fs::write(&file, rules).unwrap();
    let mut command = Command::new(MW);
    command.args(["check", "--json"]).arg(&file);
    let output = command.arg(&recorded.dir).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let objects = text.lines();
    let objects = objects.map(|line| serde_json::from_str(line).unwrap());
    let objects = objects.collect();
    (output, objects)
}

#[test]
fn rules_over_variables_find_the_first_instant() {
    let scratch = Scratch::new("truth-rules");
    let recorded = recorded(&scratch);
    let rules = "\
state low  = ledger-0: accounts[0] < 100
state rich = ledger-0: accounts[0] > 110
state high = ledger-1: limit >= 8
state some = ledger-1: limit >= 6
state last = ledger-0 at spend: amount > 20
let spent  = call of spend in ledger-0
let much   = at spend in ledger-0 if amount == 20
let raised = change of limit in ledger-1
let done   = return of raise_limit in ledger-1
never  both: low and high
never  early: rich and some
never  end: last and value(ledger-1: limit) == 11
find   four: spent^4
find   three: spent^3
find   once: much
find   twice: much^2
find   answered: much -> raised
expect order: raised before done
";
    let (output, verdicts) = check(&scratch, &recorded, rules);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let of = |name: &str| verdicts.iter().find(|own| own["rule"] == name).unwrap();
    for (rule, verdict) in [
        ("both", "violated"),
        ("early", "holds"),
        ("end", "violated"),
        ("four", "holds"),
        ("three", "matched"),
        ("once", "matched"),
        ("twice", "holds"),
        ("answered", "matched"),
        ("order", "holds"),
    ] {
        assert_eq!(of(rule)["verdict"], verdict, "{rule}: {said}");
    }
    assert_eq!(of("once")["count"], 1, "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    // The same again replays nothing: nothing is left to be replayed from.
    let arena = recorded.dir.join("files");
    let hidden = scratch.path().join("hidden");
    std::fs::rename(&arena, &hidden).unwrap();
    let (_, again) = check(&scratch, &recorded, rules);
    std::fs::rename(&hidden, &arena).unwrap();
    assert_eq!(again, verdicts);
}

#[test]
fn names_that_nothing_has_say_what_was_perhaps_meant() {
    let scratch = Scratch::new("truth-names");
    let recorded = recorded(&scratch);
    let rules = "\
state low  = ledger-0: acounts[0] < 100
let spent  = at spemd in ledger-0
let odd    = at spend in ledger-0 if amuont == 1
never  low: low
find   spent: spent
find   odd: odd
";
    let (output, verdicts) = check(&scratch, &recorded, rules);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for (rule, near) in [("low", "accounts"), ("spent", "spend"), ("odd", "amount")] {
        let own = verdicts.iter().find(|own| own["rule"] == rule).unwrap();
        assert_eq!(own["verdict"], "unknown", "{said}");
        let reason = own["reason"].as_str().unwrap();
        assert!(
            reason.contains(&format!("did you mean `{near}`?")),
            "{said}"
        );
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
}

/// What the compiler did not keep is unknown, and where that was asked is said.
#[test]
fn what_the_compiler_did_not_keep_is_unknown() {
    let compiler = tool!("cc");
    let scratch = Scratch::new("truth-dropped");
    let (source, program) = (scratch.path().join("gone.c"), scratch.path().join("gone"));
    let text = "#include <stdio.h>\n#include <stdlib.h>\nint main(void)\n{\n    int gone = atoi(\"7\");\n    \
                printf(\"%d\\n\", gone);\n    fflush(stdout);\n    puts(\"later\");\n    return 0;\n}\n";
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command.args(["-g", "-O2", "-o"]).args([&program, &source]);
    assert!(command.status().unwrap().success());
    let recorded = scratch.record(&[&program]);
    let rules = "let later = at gone.c:8 in gone-* if gone == 7\n\
                 state high = gone-* at gone.c:8: gone > 3\n\
                 find  place: later   # => unknown\n\
                 never value: high    # => unknown\n";
    are_judged_so(&scratch, &recorded, rules);
    let (_, said) = judged(&scratch, &recorded, rules);
    for part in [
        "rules.mw:1:16: `at gone.c:8` in gone-0: the compiler did not keep it",
        "rules.mw:2:34: `gone > 3` in gone-0: the compiler did not keep it",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The verdicts of rules, by name, and what was said.
fn judged(scratch: &Scratch, recorded: &Recorded, rules: &str) -> (Vec<(String, String)>, String) {
    let (output, verdicts) = check(scratch, recorded, rules);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let word = |own: &Value, name: &str| own[name].as_str().unwrap_or("").to_string();
    let verdicts = verdicts.iter();
    let verdicts = verdicts.map(|own| (word(own, "rule"), word(own, "verdict")));
    (verdicts.collect(), said)
}

/// Rules, each with what comes of it behind `# =>`.
fn are_judged_so(scratch: &Scratch, recorded: &Recorded, rules: &str) {
    let (verdicts, said) = judged(scratch, recorded, rules);
    let mut count = 0;
    for line in rules.lines() {
        let Some((rule, expected)) = line.split_once("# =>") else {
            continue;
        };
        let name = rule
            .split([' ', ':'])
            .filter(|word| !word.is_empty())
            .nth(1);
        let own = verdicts.iter().find(|(own, _)| Some(own.as_str()) == name);
        assert_eq!(own.unwrap().1, expected.trim(), "{line}\n{said}");
        count += 1;
    }
    assert!(count > 0);
}

/// Texts, numbers with fractions, and numbers beyond any signed one.
#[test]
fn values_need_not_be_whole_numbers() {
    let scratch = Scratch::new("truth-values");
    let program = programs::for_debuggers(&scratch, "debug/values.c", &["-static"]);
    let recorded = scratch.record(&[program]);
    let rules = "\
state led = values-0: role == \"leader\"
state low = values-0: load < 0.2
find   led: led                                                       # => matched
find   text: value(values-0: role) == \"leader\"                      # => matched
find   odd: value(values-0: role) == \"king\"                         # => holds
find   sorted: value(values-1: role) < \"folk\"                       # => matched
never  two_candidates: value(values-0: role) == \"candidate\" and value(values-1: role) == \"candidate\"  # => violated
never  two_leaders: value(values-0: role) == \"leader\" and value(values-1: role) == \"leader\"           # => holds
never  alike: value(values-0: role) == value(values-1: role)          # => violated
find   motto: value(values-0: motto) == \"go\"                        # => matched
find   stays: value(values-1: motto) != \"wait\"                      # => holds
find   low: low                                                       # => matched
find   high: value(values-1: load) > 0.7                              # => matched
find   rel: value(values-0: load) + 0.5 < value(values-1: load)       # => matched
never  together: sum(values-*: load) > 0.875                          # => holds
always some: sum(values-*: load) >= 0.25                              # => violated
find   share: value(values-0: share) == 0.1                           # => holds
find   shares: value(values-0: share) > 0.1                           # => matched
find   most: value(values-0: most) == 18446744073709551615            # => matched
";
    are_judged_so(&scratch, &recorded, rules);
    let (output, verdicts) = check(&scratch, &recorded, rules);
    let said = String::from_utf8_lossy(&output.stdout);
    let own = verdicts.iter().find(|own| own["rule"] == "rel").unwrap();
    assert!(own["values"].to_string().contains("0.125"), "{said}");
    let own = verdicts.iter().find(|own| own["rule"] == "text").unwrap();
    assert!(own["values"].to_string().contains("leader"), "{said}");
}

/// Where a call was made from there is other code later, which is run as it is then.
#[test]
fn code_that_is_made_again_is_followed() {
    let scratch = Scratch::new("truth-remade");
    let program = programs::for_debuggers(&scratch, "debug/remade.c", &["-static"]);
    let recorded = scratch.record(&[program]);
    let rules = "\
let    counts = change of counted in remade-0
state  five = remade-0: counted == 5
find   first: five                           # => matched
find   last: value(remade-0: counted) == 20  # => matched
find   more: value(remade-0: counted) > 20   # => holds
find   all: counts^20                        # => matched
find   called: (call = getpid)^20            # => matched
find   too_many: (call = getpid)^21          # => holds
";
    are_judged_so(&scratch, &recorded, rules);
}

/// A variable of which each thread has one: each thread is a state by itself.
#[test]
fn threads_have_variables_of_their_own() {
    for options in [&["-static"][..], &[]] {
        let scratch = Scratch::new("truth-threads");
        let program = programs::for_debuggers(&scratch, "debug/values.c", options);
        let recorded = scratch.record(&[program]);
        let rules = "\
state busy = values-0/worker-*: handled > 0
let raised = change of handled in values-0/worker-*
find   one: count(busy) >= 1                              # => matched
find   two: count(busy) == 2                              # => matched
find   three: count(busy) > 2                             # => holds
find   all: sum(values-0/worker-*: handled) == 8          # => matched
never  more: sum(values-0/worker-*: handled) > 8          # => holds
find   best: value(values-0/worker-*: handled) == 5       # => matched
find   none: value(values-0/main-*: handled) > 0          # => holds
find   changes: raised^8                                  # => matched
find   nine: raised^9                                     # => holds
";
        are_judged_so(&scratch, &recorded, rules);
    }
}

#[test]
fn texts_of_other_languages() {
    let scratch = Scratch::new("truth-texts");
    for (compiler, source, options, rules) in [
        (
            tool!("c++"),
            "debug/strings.cpp",
            &["-g", "-O0"][..],
            "\
state third = strings-0: name == \"third\"
find   third: third                                                   # => matched
find   second: value(strings-0: name) == \"second\"                   # => matched
find   long: value(strings-0: where) == \"a text that is too long to be kept in the object itself\"  # => matched
find   other: value(strings-0: name) == \"fourth\"                    # => holds
",
        ),
        (
            tool!("rustc"),
            "debug/strings.rs",
            &["-g", "-Copt-level=0", "-Astatic_mut_refs"],
            "\
find   second: value(strings-0: strings::SLICE) == \"second\"         # => matched
find   third: value(strings-0: strings::SLICE) == \"third\"           # => matched
find   text: value(strings-0: strings::TEXT) == \"long live the text\"  # => matched
find   other: value(strings-0: strings::SLICE) == \"fourth\"          # => holds
",
        ),
    ] {
        let program = scratch.path().join("strings");
        let mut compile = Command::new(compiler);
        compile.args(options).arg("-o").arg(&program);
        compile.arg(programs::sources().join(source));
        assert!(compile.status().unwrap().success());
        let recorded = scratch.record(&[program]);
        are_judged_so(&scratch, &recorded, rules);
    }
}
