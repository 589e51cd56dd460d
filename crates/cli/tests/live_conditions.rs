//! Conditions on a program that is alive and not recorded: what it does is observed, the
//! program is halted when something comes, and the answer says how far past it it is.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::alive::{mw, rounds};
use harness::prompt::has_in_order;
use harness::{MW, Scratch, programs, wait_for};

/// `mw run` of so many rounds, unrecorded.
fn run(program: &Path, count: &str, commands: &[&str]) -> String {
    let (text, status) = mw("run", &[program.to_str().unwrap(), count], commands);
    assert_eq!(status, 0, "{text}");
    text
}

/// How many events past the first state the program says it was halted, in all and by
/// process.
fn past(text: &str) -> (u64, Vec<(String, u64)>) {
    let line = text
        .lines()
        .find(|line| line.contains("the program was halted"))
        .unwrap_or_else(|| panic!("{text}"));
    let words = line.split_once("was halted ").unwrap().1;
    let total = words.split(' ').next().unwrap();
    let total = total.parse().unwrap_or(0);
    let each = match words.split_once('(') {
        Some((_, rest)) => rest.split_once(')').unwrap().0.split(", "),
        None => "".split(", "),
    };
    let each = each.filter(|part| !part.is_empty()).map(|part| {
        let (name, count) = part.rsplit_once(' ').unwrap();
        (name.to_string(), count.parse().unwrap())
    });
    (total, each.collect())
}

/// Between a message and its answer, on both sides.
const STATES: [&str; 2] = [
    "state asks = rounds-0: from (send) until (recv)",
    "state works = rounds-1: from (recv) until (send)",
];

#[test]
fn a_program_is_halted_where_a_conjunction_over_processes_holds() {
    let scratch = Scratch::new("observed-states");
    let text = run(
        &rounds(&scratch),
        "1000000",
        &[
            STATES[0],
            STATES[1],
            "stop if asks and works",
            "print sent > 0",
            "halted",
            "info conditions",
            "delete",
            "resume 100ms",
            "print sent > 1",
        ],
    );
    has_in_order(
        &text,
        &[
            "Condition 1: asks and works",
            ": asks",
            ": works",
            "the first state it could be halted in: the program was halted",
            "$1 = 1",
            "halt ",
            "stop if asks and works, 1 times",
            "Interrupted.",
            "$2 = 1",
        ],
    );
    let (total, each) = past(&text);
    assert_eq!(total, each.iter().map(|(_, count)| count).sum::<u64>());
}

#[test]
fn patterns_sequences_and_commands_work_on_what_is_not_recorded() {
    let scratch = Scratch::new("observed-rules");
    let rules = scratch.path().join("rules.mw");
    std::fs::write(
        &rules,
        "let told  = send and process = rounds-0\n\
         let heard = recv and process = rounds-1\n\
         recognizer turn: told heard do { emit turn }\n\
         never third: turn^3\n",
    )
    .unwrap();
    let text = run(
        &rounds(&scratch),
        "1000000",
        &[
            &format!("source {}", rules.display()),
            "trace sent, rounds-*: answered if let back = send and process = rounds-1; back^2",
            "continue",
            // It is completed by the one that hears.
            "print answered >= 3",
        ],
    );
    has_in_order(
        &text,
        &[
            "recognizer turn",
            "never third",
            "Condition 2: never third",
            "the first state it could be halted in",
            "$1 = 1",
        ],
    );
    assert!(text.contains("Trace 3, halted "), "{text}");
}

/// Ends a process that was started.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn children_of(pid: u32) -> Vec<String> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_string).collect()
}

#[test]
fn channels_of_a_program_that_is_joined_in_the_middle_of_its_life_are_known() {
    let scratch = Scratch::new("observed-joined");
    let child = Command::new(rounds(&scratch))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = Started(child);
    let pid = started.0.id();
    let other = wait_for("its child", || children_of(pid).pop());
    let (text, status) = mw(
        "attach",
        &[pid.to_string(), other],
        &[
            "let told = send and process = rounds-0",
            "let heard = recv and process = rounds-1",
            "let back = send and process = rounds-1",
            "let got = recv and process = rounds-0",
            // Only the pipes, which nobody has seen being made, say that these follow.
            "stop if told -> heard -> back -> got",
            "delete",
            STATES[0],
            STATES[1],
            "stop if asks and works",
            "detach",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1: told -> heard -> back -> got",
            "the first state it could be halted in",
            "asks and works",
            "the first state it could be halted in",
            "runs on.",
        ],
    );
}

#[test]
fn a_condition_is_decided_when_the_program_has_ended() {
    let scratch = Scratch::new("observed-ended");
    let program = rounds(&scratch);
    let last = "stop if let last = exit and process = rounds-0; last";
    let text = run(&program, "3", &[last]);
    has_in_order(&text, &["Condition 1: last", "the program was halted"]);
    let none = "stop if let none = send and process = rounds-0 and length = 17; none";
    let text = run(&program, "3", &[none]);
    assert!(text.contains("has ended."), "{text}");
    assert!(!text.contains("the program was halted"), "{text}");
}

/// The bank has eight processes, and one of them many threads.
#[test]
fn the_bank_is_halted_by_a_rule_over_several_processes_and_its_time_stands() {
    let scratch = Scratch::new("observed-bank");
    let rules = scratch.path().join("rules.mw");
    std::fs::write(
        &rules,
        "let asked = send and process = bank-client-* and bytes ~ /^transfer/\n\
         let gets  = recv and process = bank-account-* and bytes ~ /^get/\n\
         state asks  = bank-client-*: from (asked) until (recv)\n\
         state works = bank-account-*: from (gets) until (send)\n\
         never busy: count(asks) >= 2 and count(works) >= 1\n\
         never caused: asked -> gets\n",
    )
    .unwrap();
    let (text, status) = mw(
        "run",
        // It is still at it when the first rule is done with.
        &["env", "BANK_TRANSFERS=2000", &programs::bank()],
        &[
            &format!("source {}", rules.display()),
            "disable caused",
            "continue",
            "halted",
            "shell sleep 1",
            "time",
            "disable busy",
            // Through a thread of the coordinator that others run beside.
            "enable caused",
            "continue",
            "disable",
            "continue",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1: never busy\n",
            "bank-client-",
            "bank-account-",
            "the first state it could be halted in",
            "halts are taken out of the program's time",
            "Condition 2: never caused",
            "  bank-client-",
            "  bank-account-",
            "the first state it could be halted in",
        ],
    );
    assert_eq!(text.matches(" transfers made, ").count(), 3, "{text}");
}

#[test]
fn a_call_is_held_back_before_it_is_made() {
    let scratch = Scratch::new("stop-before");
    let program = rounds(&scratch);
    let text = run(
        &program,
        "3",
        &[
            "stop before send and process = rounds",
            "print sent",
            "continue",
            // Only the child sends then: it has the number of its own.
            "print answered",
            "delete",
            // The child ends first.
            "stop before write and bytes ~ \"rounds\"",
            "continue",
            "print sent",
            "kill",
        ],
    );
    has_in_order(
        &text,
        &[
            "Catchpoint 1: before send",
            "is about to call write.",
            "$1 = 1",
            "is about to call write.",
            "$2 = 1",
            "Catchpoint 2: before write",
            "is about to call write.",
            "$3 = 3",
            "was killed.",
        ],
    );
    // It was about to say so, and did not.
    assert!(!text.contains("3 rounds"), "{text}");
    // It can come later, and it can fail.
    let text = run(
        &program,
        "3",
        &[
            "stop before send and process = rounds",
            "delay 100ms",
            "refuse EPIPE",
            "continue",
        ],
    );
    has_in_order(
        &text,
        &[
            "is about to call write.",
            "was held back while the others ran for 100ms.",
            "It will fail with EPIPE",
            "has ended with status 1.",
        ],
    );
}

#[test]
fn what_takes_replay_is_refused_where_nothing_is_recorded() {
    let scratch = Scratch::new("observed-source");
    let program = rounds(&scratch);
    for command in [
        "stop if value(rounds-0: sent) == 3",
        "trace sent + 1 if value(rounds-0: sent) == 3",
        "never much: value(rounds-0: sent) > 3",
        "stop if let a = change of sent in rounds-0; a",
        "stop if let a = return of begin_round in rounds-0; a",
    ] {
        let (text, status) = mw("run", &[program.to_str().unwrap(), "3"], &[command]);
        assert_eq!(status, 2, "{command}: {text}");
        has_in_order(&text, &["takes replay", "mw run --record"]);
    }
    let traced = ["stop if let a = send and process = rounds-0; a"];
    let (text, status) = mw("run --observe", &[program.to_str().unwrap(), "3"], &traced);
    assert_eq!(status, 2, "{text}");
    has_in_order(&text, &["only traced", "without `--observe`"]);
}

/// What is there where somebody gets to a place is known without a recording, and where that
/// is among the events of everybody.
#[test]
fn places_of_the_source_are_events_and_states_of_what_is_not_recorded() {
    let scratch = Scratch::new("observed-places");
    let program = rounds(&scratch);
    let text = run(
        &program,
        "1000000",
        &[
            "stop if let tenth = at begin_round in rounds-0 if sent == 10; tenth",
            "print sent",
            "where",
            "info breakpoints",
            "delete",
            // One caused the other, which only the pipe between them says.
            "let told = at begin_round in rounds-0 if sent == 12",
            "let heard = at answer in rounds-1 if answered > 2",
            "stop if told -> heard",
            "print answered",
            "delete",
            "state much = rounds-1 at answer: answered",
            "stop if value(much) == 20 and value(rounds-0 at begin_round: sent) == 21",
            "print sent",
            "disable",
            // Nobody is halted there any more.
            "resume 100ms",
            "print sent > 30 || answered > 30",
        ],
    );
    has_in_order(
        &text,
        &[
            "Condition 1: tenth",
            "the first state it could be halted in",
            "begin_round",
            "$1 = 10",
            "begin_round",
            "No breakpoints.",
            "told -> heard",
            "the first state it could be halted in",
            "answer",
            "$2 = 12",
            "much",
            "= 20",
            "= 21",
            "the first state it could be halted in",
            "$3 = 21",
            "Interrupted.",
            "$4 = 1",
        ],
    );
    // A place that is nowhere is told at once.
    let nowhere = "stop if let a = at begin_runds in rounds-0; a";
    let text = run(&program, "3", &[nowhere]);
    has_in_order(&text, &["`begin_runds` is in no code", "has ended."]);
    // What is traced there goes on.
    let traced = "trace sent if let a = at begin_round in rounds-0; a";
    let text = run(&program, "5", &[traced, "continue"]);
    for sent in 0..5 {
        let line = format!(": sent = {sent}\n");
        assert_eq!(text.matches(&line).count(), 1, "{sent}: {text}");
    }
}

/// The name that a process has at the prompt means it in conditions, too.
#[test]
fn a_process_is_called_alike_by_conditions_and_the_prompt() {
    let scratch = Scratch::new("observed-names");
    let child = Command::new(rounds(&scratch))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = Started(child);
    let pid = started.0.id();
    let other = wait_for("its child", || children_of(pid).pop());
    let name = format!("rounds-{other}");
    let (text, status) = mw(
        "attach",
        &[pid.to_string(), other],
        &[
            &format!("stop if let heard = recv and process = {name}; heard"),
            "delete",
            &format!("state works = {name}: from (recv) until (send)"),
            "stop if works",
            "delete",
            &format!("stop if let a = at answer in {name}; a"),
            &format!("process {name}"),
            "print answered > 0",
            "detach",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1: heard",
            &format!("  {name}:"),
            "the first state it could be halted in",
            &format!("{name}: works"),
            &format!("  before {name}:"),
            "$1 = 1",
        ],
    );
}

/// A message as its sender wrote it down: which of its own it is, whether it is hot, and how
/// many of everybody's were known then.
struct Sent {
    number: u64,
    is_hot: bool,
    known: [u64; 3],
}

fn sent(dir: &Path, process: usize) -> Vec<Sent> {
    let text = std::fs::read_to_string(dir.join(format!("told-{process}"))).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        Sent {
            number: number(2),
            is_hot: words[3] == "hot",
            known: [number(4), number(5), number(6)],
        }
    };
    text.lines().map(line).collect()
}

/// How many messages everybody had sent in the first consistent state in which all are hot:
/// from their own words, by leaving each stretch that another has seen the end of.
fn first_hot(all: &[Vec<Sent>; 3]) -> [u64; 3] {
    // Of each stretch, where it begins and the message that ends it.
    let stretches = all.each_ref().map(|own| {
        let mut found: Vec<(&Sent, u64)> = Vec::new();
        let mut is_hot = false;
        for message in own {
            match (message.is_hot, is_hot) {
                (true, false) => found.push((message, u64::MAX)),
                (false, true) => found.last_mut().unwrap().1 = message.number,
                _ => {}
            }
            is_hot = message.is_hot;
        }
        found
    });
    let mut at = [0; 3];
    loop {
        let now = [0, 1, 2].map(|own| &stretches[own][at[own]]);
        let known = [0, 1, 2].map(|own| now.map(|(begin, _)| begin.known[own]));
        let known = known.map(|all| all.into_iter().max().unwrap());
        let Some(over) = (0..3).find(|own| now[*own].1 <= known[*own]) else {
            return known;
        };
        at[over] += 1;
    }
}

#[test]
fn the_first_state_is_the_one_that_messages_themselves_tell_of() {
    let scratch = Scratch::new("observed-told");
    let program = programs::for_debuggers(&scratch, "debug/told.c", &["-static"]);
    let first = seed::seed("what is sent", 1);
    for seed in first..first + 6 {
        let dir = scratch.path().join(seed.to_string());
        std::fs::create_dir(&dir).unwrap();
        let mut lines = Vec::new();
        // Which child is born first is not the order in which they are made: each is known
        // by what it sends.
        for own in 0..3 {
            lines.push(format!(
                "state hot{own} = told-*: from (send and bytes ~ /^m {own} \\d+ hot /) until (send and bytes ~ /^m {own} \\d+ cold /)"
            ));
            lines.push(format!(
                "state n{own} = told-*: last n of (send and bytes ~ /^m {own} (?<n>\\d+) /)"
            ));
        }
        let parts = (0..3).map(|own| format!("hot{own} and value(n{own}) > 0"));
        let parts: Vec<String> = parts.collect();
        lines.push(format!("stop if {}", parts.join(" and ")));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let words = [
            program.to_str().unwrap(),
            &seed.to_string(),
            dir.to_str().unwrap(),
        ];
        let (text, status) = mw("run", &words, &lines);
        assert_eq!(status, 0, "{text}");
        let said = [0, 1, 2].map(|own| {
            let mark = format!(": n{own} = ");
            let line = text.lines().find_map(|line| line.split_once(&mark));
            let value = line.unwrap_or_else(|| panic!("seed {seed}: {text}")).1;
            value.parse::<u64>().unwrap()
        });
        let told = first_hot(&[0, 1, 2].map(|own| sent(&dir, own)));
        assert_eq!(said, told, "seed {seed}: {text}");
    }
}

/// `mw run` with a variable of the environment.
fn run_with(program: &Path, variable: (&str, &str), commands: &[&str]) -> String {
    let mut command = Command::new(MW);
    command.args(["run", "--batch"]);
    for line in commands {
        command.args(["-e", line]);
    }
    let output = command
        .arg("--")
        .arg(program)
        .env(variable.0, variable.1)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_is_observed_takes_no_more_room_than_it_may() {
    let scratch = Scratch::new("observed-full");
    let never = "stop if let a = send and process = rounds-0 and length = 17; a";
    let text = run_with(
        &rounds(&scratch),
        ("MW_OBSERVE_LIMIT", "0"),
        &[never, "info conditions", "enable", "print sent > 100"],
    );
    has_in_order(
        &text,
        &[
            "takes more room than it may (MW_OBSERVE_LIMIT)",
            "conditions are not looked at any more",
            "(disabled)",
            "$1 = 1",
        ],
    );
}

#[test]
fn what_was_observed_is_not_taken_for_a_recording_and_goes_with_the_debugger() {
    let scratch = Scratch::new("observed-kept");
    let home = scratch.path().join("run");
    std::fs::create_dir(&home).unwrap();
    let program = rounds(&scratch);
    let look = format!("shell {MW} verify {}/meanwhile/*-observed", home.display());
    let replay = format!(
        "shell {MW} replay --batch -e where {}/meanwhile/*-observed",
        home.display()
    );
    let stop = "stop if let a = send and process = rounds-0; a";
    let lines = [stop, &look, &replay];
    let text = run_with(
        &program,
        ("XDG_RUNTIME_DIR", home.to_str().unwrap()),
        &lines,
    );
    let refusals = text.matches("this was observed, not recorded").count();
    assert_eq!(refusals, 2, "{text}");
    let left = std::fs::read_dir(home.join("meanwhile")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
