//! Sessions at the debugger's prompt, as scripts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::Command;

use harness::prompt::{debug, has_in_order};
use harness::{Recorded, Scratch, programs};

/// The program of most of these tests, recorded.
fn transfers(scratch: &Scratch) -> Recorded {
    let program = programs::for_debuggers(scratch, "debug/transfers.c", &[]);
    scratch.record(&[program])
}

#[test]
fn breakpoints_variables_and_steps() {
    let scratch = Scratch::new("debug-steps");
    let recorded = transfers(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "break transfer",
            "continue",
            "bt",
            "info args",
            "print *from",
            "p accounts[1].name",
            "next",
            "next",
            "next",
            "finish",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Breakpoint 1 at",
            "transfers.c, line 15",
            "transfer at",
            "#0  transfer (from=",
            "#1  ",
            "in main () at",
            "amount = 0",
            "{id = 1, balance = 100, name = \"ann\"",
            "= \"bob\"",
            ":17\n",
            ":18\n",
            ":19\n",
            "main at",
            ":26\n",
        ],
    );
}

#[test]
fn parts_of_stacks() {
    let scratch = Scratch::new("debug-stacks");
    let recorded = transfers(&scratch);
    let there = ["break transfer if amount == 100", "continue"];
    let bt = |words: &str| {
        let (text, status) = debug(&recorded, &[&there[..], &[words]].concat());
        assert_eq!(status, 0, "{text}");
        let at = text.find("\n#").unwrap();
        text[at + 1..].to_string()
    };
    let whole = bt("bt");
    let frames = whole.lines().count();
    assert!(whole.contains("in main ()") && frames >= 2, "{whole}");
    let first = bt("bt 1");
    assert_eq!(first.lines().count(), 2, "{first}");
    has_in_order(&first, &["#0  transfer (", "(More stack frames follow...)"]);
    let last = bt("bt -1");
    assert_eq!(last.lines().last(), whole.lines().last());
    assert_eq!(last.lines().count(), 1, "{last}");
    let full = bt("bt full 2");
    has_in_order(
        &full,
        &[
            "#0  ",
            "        No locals.",
            "#1  ",
            "        result = ",
            "        i = 2",
        ],
    );
    // As many up or down as there are.
    let (text, status) = debug(
        &recorded,
        &[
            &there[..],
            &["up 99", "down 99", "thread", "process", "goto end"],
        ]
        .concat(),
    );
    assert_eq!(status, 0, "{text}");
    let outermost = format!("\n#{}  ", frames - 1);
    has_in_order(
        &text,
        &[
            &outermost,
            "\n#0  ",
            "transfer",
            "0  main-0\ntransfer at",
            "transfers-0, main-0, before",
            "transfer at",
            "transfers-0, main-0, at its end\n",
        ],
    );
    let (text, status) = debug(&recorded, &["bt three"]);
    assert_ne!(status, 0);
    has_in_order(
        &text,
        &["`bt` does not know three", "`bt -3` for the outermost"],
    );
}

#[test]
fn backwards() {
    let scratch = Scratch::new("debug-backwards");
    let recorded = transfers(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "break transfers.c:28 if i == 3",
            "continue",
            "info locals",
            "break transfer",
            "reverse-continue",
            "info args",
            "next",
            "next",
            "print from->balance",
            "reverse-next",
            "print from->balance",
            "reverse-next",
            "reverse-next",
            "reverse-stepi",
            "stepi",
            "goto end",
            "reverse-continue",
            "print amount",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Breakpoint 1\n",
            "main at",
            ":28\n",
            "i = 3",
            "Breakpoint 2\n",
            "transfer at",
            "amount = 150",
            ":17\n",
            ":18\n",
            "$1 = ",
            ":17\n",
            "$2 = ",
            ":15\n",
            // Before its first line is the call.
            "main at",
            "has come to its end",
            "Breakpoint 2\n",
            "$3 = 200",
        ],
    );
    let value = |name: &str| -> i64 {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("$2 = "), value("$1 = ") + 150, "{text}");
}

#[test]
fn places_to_come_back_to() {
    let scratch = Scratch::new("debug-places");
    let recorded = transfers(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "tbreak transfer",
            "continue",
            "checkpoint",
            "info checkpoints",
            "goto end",
            "restart 1",
            "info breakpoints",
            "list",
            "x/2xg $rsp",
            "disassemble",
            "info registers",
            "threads",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Checkpoint 1 at transfers-0:",
            "1    transfers-0:",
            "has come to its end",
            "transfer at",
            "No breakpoints.",
            "15->",
            "=> 0x",
            "<transfer+",
            "rip ",
            "main-0",
        ],
    );
}

#[test]
fn mistakes_are_answered() {
    let scratch = Scratch::new("debug-mistakes");
    let recorded = transfers(&scratch);
    for (line, answer) in [
        ("contineu", "did you mean `continue`?"),
        ("reverse", "what is to be done backwards?"),
        ("rev break", "`break` cannot be done backwards"),
        ("con", "is the beginning of condition, continue"),
        ("watch 1 + 1", "is not in memory here"),
        ("rwatch accounts", "only changes"),
        ("catch syscall wirte", "did you mean `write`?"),
        ("catch sned", "the pattern is wrong at column 1"),
        ("catch throw", "cannot be caught"),
        ("condition 9 1", "there is no breakpoint 9"),
        ("ignore 1", "how often?"),
        ("undisplay 4", "there is no display 4"),
        ("break *0x10", "nothing is mapped at 0x10"),
        ("until nowhere_at_all", "not defined"),
        ("back", "there was no motion before"),
        ("source /nowhere/at/all", "cannot read /nowhere/at/all"),
        ("process transfer-0", "did you mean `transfers-0`?"),
        ("set accounts = 0", "a recording cannot be changed"),
        ("print nonsense", "No symbol \"nonsense\""),
        ("goto transfers-0:99999", "has no event 99999"),
        ("frame 99", "there is no frame 99"),
        ("delete 7", "there is no breakpoint 7"),
        ("info nothing", "one of args, breakpoints"),
        ("info", "info about what?\n"),
        ("restart 3", "there is no checkpoint 3"),
        ("restart", "a number is missing"),
        ("up x", "`x` is not a number"),
        ("down", "this is the innermost frame"),
    ] {
        let (text, status) = debug(&recorded, &[line]);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains(answer), "{line}: {text}");
    }
    let (text, status) = debug(&recorded, &["help", "help break"]);
    assert_eq!(status, 0);
    has_in_order(&text, &["reverse-step", "goto", "(mw) break main.rs:42"]);
}

/// The whole distributed program at one cut, and back from its end in one of
/// its processes.
#[test]
fn all_of_the_bank() {
    let scratch = Scratch::new("debug-bank");
    let recorded = scratch.record(&[programs::bank()]);
    let (text, status) = debug(
        &recorded,
        &[
            "processes",
            "goto end",
            "processes",
            "process bank-coordinator-0",
            "where",
            "goto end",
            "break Poster::set",
            "reverse-continue",
            "bt",
            "reverse-continue",
            "process bank-account-1",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "* bank-0                   not begun",
            "  bank-client-2            not begun",
            "bank-0 has come to its end",
            "* bank-0                   ended",
            "bank-account-1, ",
        ],
    );
}

/// A program that executes another: breakpoints by name are where they belong in
/// each, forwards and back.
#[test]
fn breakpoints_over_an_exec() {
    let scratch = Scratch::new("debug-exec");
    let program = programs::for_debuggers(&scratch, "debug/stages.c", &[]);
    let recorded = scratch.record(&[program]);
    let text = ask(
        &recorded,
        &[
            "break first_stage",
            "break second_stage",
            "goto end",
            "rc",
            "print n",
            "rc",
            "print n",
            "rc",
            "print n",
            "rc",
            "rc",
            "print n",
            "rc",
            "c",
            "c",
            "c",
            "c",
            "print n",
            "c",
            "c",
            "info breakpoints",
        ],
    );
    has_in_order(
        &text,
        &[
            "has come to its end",
            "Breakpoint 2\n",
            "$1 = 1\n",
            "Breakpoint 2\n",
            "$2 = 0\n",
            "Breakpoint 1\n",
            "first_stage at",
            "$3 = 2\n",
            "Breakpoint 1\n",
            "$4 = 0\n",
            "This is the beginning of stages-0",
            "Breakpoint 1\n",
            "Breakpoint 1\n",
            "Breakpoint 1\n",
            "Breakpoint 2\n",
            "$5 = 0\n",
            "Breakpoint 2\n",
            "has come to its end",
            "1    first_stage, hit 6 times",
            "2    second_stage, hit 4 times",
        ],
    );
}

/// Motion moves the program: whoever is stopped first by cause is at hand then, and
/// each process keeps its position. One can be moved alone, too.
#[test]
fn the_program_moves_together() {
    let scratch = Scratch::new("debug-together");
    let program = programs::for_debuggers(&scratch, "debug/walks.c", &[]);
    let recorded = scratch.record(&[program]);
    let text = ask(
        &recorded,
        &[
            "process walks-1",
            "break got",
            "break sent",
            "continue",
            "print n",
            "continue",
            "delete 2",
            "process walks-1",
            "processes",
            "where",
            "processes",
            "continue",
            "print n",
            "delete",
            "goto start",
            "break got",
            "process walks-1",
            "continue -only",
            "processes",
            "mode alone",
            "process walks-0",
            "goto end",
            "processes",
            "mode causal",
            "processes",
        ],
    );
    // What is received was sent before, whoever leads.
    has_in_order(
        &text,
        &[
            "Breakpoint 2\n",
            "walks-0, main-0",
            "sent at",
            "$1 = 1\n",
            "Breakpoint",
            "Breakpoint 1\n",
            "got at",
            "$2 = 1\n",
            // Alone: nobody follows.
            "Breakpoint 3\n",
            "walks-1, main-0",
            "  walks-0                  not begun\n* walks-1                  about to do",
            "others stay where they are (alone)",
            "walks-0 has come to its end",
            "* walks-0                  ended\n  walks-1                  about to do",
            // With its end everything is over.
            "* walks-0                  ended\n  walks-1                  ended",
        ],
    );
    // `where` moves nobody.
    let lists: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("  walks-0    "))
        .collect();
    assert!(lists[0] == lists[1] && lists[1] == lists[2], "{text}");
}

/// The recording of a program whose functions are inlined into each other.
fn inlined(scratch: &Scratch, compiler: &str) -> Recorded {
    let program = scratch.path().join("inlined");
    let made = Command::new(compiler)
        .args(["-g", "-O1", "-o"])
        .arg(&program)
        .arg(programs::sources().join("inspect/inlined.cpp"))
        .status()
        .unwrap();
    assert!(made.success());
    scratch.record(&[program])
}

/// A breakpoint in a function that is inlined stops in that function's own frame,
/// and its condition sees that function's variables, forwards and back.
#[test]
fn inlined_functions() {
    let scratch = Scratch::new("debug-inlined");
    let recorded = inlined(&scratch, &tool!("c++"));
    let text = ask(
        &recorded,
        &[
            "break weigh if value == 3",
            "continue",
            "print value",
            "print scale",
            "condition 1 value == 9",
            "continue",
            "print scale",
            "condition 1 value == 2 && scale == 5",
            "reverse-continue",
            "print value",
            "info breakpoints",
        ],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1 at",
            "places)",
            "Breakpoint 1\n",
            "weigh at",
            "$1 = 3\n",
            "$2 = 5\n",
            "Breakpoint 1\n",
            "weigh at",
            "$3 = 100\n",
            "Breakpoint 1\n",
            "weigh at",
            "$4 = 2\n",
            "hit 3 times",
        ],
    );
}

const INLINES: &str = r#"#include <unistd.h>
volatile int weight = 3;
static inline __attribute__((always_inline)) int weighed(int n)
{
    n += weight;
    weight = n % 7;
    n *= 2;
    return n;
}
int main(void)
{
    int n = 1;
    n = weighed(n);
    n = weighed(n + 1);
    n = weighed(n) + getpid();
    return n == 0;
}
"#;

/// `next` goes over a function that is inlined as it goes over one that is called, and
/// `step` goes into it; `reverse-next` goes back over it.
#[test]
fn next_goes_over_what_is_inlined() {
    let scratch = Scratch::new("debug-next-inlined");
    let source = scratch.path().join("inlines.c");
    std::fs::write(&source, INLINES).unwrap();
    for level in ["-O0", "-O1"] {
        let program = scratch.path().join(format!("inlines{level}"));
        let mut cc = std::process::Command::new("cc");
        let made = cc.args(["-g", level, "-o"]).args([&program, &source]);
        assert!(made.status().unwrap().success());
        let recorded = scratch.record(&[program]);
        let lines = |commands: &[&str]| -> Vec<(String, u32)> {
            let commands = [&["break main", "continue", "echo HERE"], commands].concat();
            let text = ask(&recorded, &commands);
            let (_, text) = text.split_once("HERE").unwrap();
            let places = text.lines().filter_map(|line| {
                let (function, place) = line.split_once(" at ")?;
                let (_, number) = place.split_once("inlines.c:")?;
                Some((function.to_string(), number.parse().ok()?))
            });
            places.collect()
        };
        let there = lines(&["next"; 8]);
        let main: Vec<u32> = there
            .iter()
            .filter(|(function, _)| function == "main")
            .map(|(_, line)| *line)
            // Compilers leave an instruction of another function's line in it.
            .filter(|line| *line > 10)
            .collect();
        assert!(
            !there.iter().any(|(f, _)| f == "weighed"),
            "{level} {there:?}"
        );
        assert!(main.is_sorted() && main.contains(&15), "{level} {main:?}");
        if level == "-O0" {
            assert_eq!(main[..4], [13, 14, 15, 16]);
            let back = lines(&["next", "next", "next", "reverse-next", "reverse-next"]);
            let back: Vec<u32> = back.iter().map(|(_, line)| *line).collect();
            assert_eq!(back, [13, 14, 15, 14, 13]);
        }
        let into = lines(&["step"; 8]);
        assert!(into.iter().any(|(f, _)| f == "weighed"), "{level} {into:?}");
    }
}

/// `finish` in an inlined function stops in its caller's frame, at the first
/// instruction that is not its own: whether its code is left at its end, by a jump out
/// of its loop, or from a function that it called. And `next` over a function that
/// begins with the code of another comes back from it.
#[test]
fn inlined_functions_are_left() {
    let scratch = Scratch::new("debug-leaves");
    let program = programs::for_debuggers(&scratch, "debug/leaves.c", &["-O1"]);
    let recorded = scratch.record(&[program]);
    let mut commands = vec!["break search"];
    for _ in 0..4 {
        commands.extend(["continue", "echo IN", "bt", "finish", "echo OUT", "bt"]);
        commands.extend(["print $pc", "print found"]);
    }
    commands.extend(["delete", "goto start", "break noted", "continue", "up"]);
    commands.extend(["echo IN", "print i", "finish", "echo OUT", "bt"]);
    commands.extend(["print $pc", "print found"]);
    let text = ask(&recorded, &commands);
    let rounds: Vec<&str> = text.split("OUT\n").skip(1).collect();
    assert_eq!(rounds.len(), 5, "{text}");
    let mut places = Vec::new();
    for (round, found) in rounds.iter().zip([-2, 3, 4, -1, 3]) {
        has_in_order(round, &["#0 ", "asks (", "#1 ", "main ("]);
        assert!(
            !round.split("$").next().unwrap().contains("search"),
            "{text}"
        );
        let values: Vec<&str> = round
            .lines()
            .filter_map(|line| line.strip_prefix('$')?.split_once(" = "))
            .map(|(_, value)| value)
            .collect();
        assert_eq!(values[1], found.to_string(), "{text}");
        places.push(values[0].to_string());
    }
    assert!(places.iter().all(|place| *place == places[0]), "{text}");

    let text = ask(
        &recorded,
        &[
            "break leaves.c:38",
            "continue",
            "next",
            "next",
            "next",
            "next",
        ],
    );
    has_in_order(
        &text,
        &[
            "leaves.c:38",
            "leaves.c:40",
            "leaves.c:38",
            "leaves.c:40",
            "leaves.c:38",
        ],
    );
}

/// `reverse-finish` in an inlined function stops in its caller's frame, at the
/// instruction that led to it: one step on it is in there, with the arguments of the
/// same call, however often it was called and whatever it has called itself.
#[test]
fn inlined_functions_are_left_backwards() {
    let scratch = Scratch::new("debug-leaves-back");
    let program = programs::for_debuggers(&scratch, "debug/leaves.c", &["-O1"]);
    let recorded = scratch.record(&[program]);
    let mut commands = vec!["break search"];
    for _ in 0..4 {
        commands.extend(["continue", "echo IN", "print wanted", "next", "echo OUT"]);
        commands.extend(["disable 1", "reverse-finish", "bt", "stepi", "bt"]);
        commands.extend(["print wanted", "enable 1"]);
    }
    // From a function that it called.
    commands.extend(["delete", "goto start", "break noted", "continue", "up"]);
    commands.extend([
        "echo IN",
        "print wanted",
        "echo OUT",
        "delete",
        "reverse-finish",
    ]);
    commands.extend(["bt", "stepi", "bt", "print wanted"]);
    let text = ask(&recorded, &commands);
    let rounds: Vec<&str> = text.split("IN\n").skip(1).collect();
    assert_eq!(rounds.len(), 5, "{text}");
    for round in rounds {
        let (before, after) = round.split_once("OUT\n").unwrap();
        has_in_order(
            after,
            &["#0 ", "main (", "#0 ", "search", "#1 ", "asks (", "main ("],
        );
        let frames: Vec<&str> = after.lines().filter(|line| line.starts_with('#')).collect();
        assert!(!frames[0].contains("search"), "{round}");
        let key = |text: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| Some(line.strip_prefix('$')?.split_once(" = ")?.1.to_string()))
        };
        assert!(key(before).is_some(), "{round}");
        assert_eq!(key(before), key(after), "{round}");
    }
}

/// Where a breakpoint stops before an inlined function, that function's frame is
/// the innermost, however often others are inlined into it at the same address;
/// once it has moved, all that is inlined there is shown.
#[test]
fn frames_of_an_inlined_function_that_is_entered() {
    let scratch = Scratch::new("debug-inlined-frames");
    let recorded = inlined(&scratch, &tool!("c++"));
    let frames = |text: &str| -> Vec<Vec<String>> {
        // The functions of each `bt`, which `echo` puts a mark before.
        let stacks = text.split("STACK\n").skip(1);
        let function = |line: &str| {
            let name = line.strip_prefix('#')?.split(" (").next()?;
            name.split_whitespace().last().map(str::to_string)
        };
        stacks
            .map(|stack| stack.lines().map_while(function).collect())
            .collect()
    };
    let entered = ["weigh", "first_user", "main"].map(str::to_string).to_vec();
    let inside = ["look_up", "weigh", "first_user", "main"]
        .map(str::to_string)
        .to_vec();

    // Going on, coming back, and once only.
    let text = ask(
        &recorded,
        &[
            "break weigh",
            "continue",
            "echo STACK",
            "bt",
            "stepi",
            "echo STACK",
            "bt",
            "reverse-continue",
            "echo STACK",
            "bt",
            "echo STACK",
            "bt all",
            "delete",
            "tbreak weigh if value == 2",
            "continue",
            "echo STACK",
            "bt",
            "break look_up",
            "continue",
            "echo STACK",
            "bt",
        ],
    );
    let stacks = frames(&text);
    assert_eq!(stacks.len(), 6, "{text}");
    assert_eq!(stacks[0], entered, "{text}");
    assert_eq!(stacks[1], inside, "{text}");
    assert_eq!(stacks[2], entered, "{text}");
    assert!(
        stacks[3].is_empty() && !text.contains("#0  look_up (key=0)"),
        "{text}"
    );
    assert_eq!(stacks[4], entered, "{text}");
    // That function is meant now.
    assert_eq!(stacks[5], inside, "{text}");

    // Frames by number, their variables, and the way out.
    let text = ask(
        &recorded,
        &[
            "break weigh if value == 3",
            "continue",
            "frame",
            "info args",
            "info locals",
            "threads",
            "up",
            "down",
            "print value",
            "up",
            "finish",
        ],
    );
    has_in_order(
        &text,
        &[
            "weigh at",
            "#0  weigh (scale=5, value=3) at",
            "scale = 5\nvalue = 3\n",
            "found = ",
            "* 0 ",
            "weigh at",
            "#1  first_user (",
            "#0  weigh (",
            "$1 = 3\n",
            "#1  first_user (",
            "main at",
        ],
    );
    assert!(!text.contains("look_up (key"), "{text}");

    // What is only passed is shown so as well.
    let text = ask(&recorded, &["trace weigh", "continue"]);
    assert_eq!(text.matches(": weigh (").count(), 6, "{text}");
}

/// What is watched stops both ways, says what it was and becomes, and ends
/// with its frame.
#[test]
fn watched_variables() {
    let scratch = Scratch::new("debug-watch");
    let recorded = transfers(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "break main",
            "continue",
            "watch accounts[1].balance",
            "continue",
            "continue",
            "info breakpoints",
            "reverse-continue",
            "reverse-continue",
            "reverse-continue",
            "condition 2 accounts[1].balance == 300",
            "continue",
            "delete 1",
            "goto end",
            "reverse-continue",
            "condition 2",
            "disable",
            "reverse-continue",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Watchpoint 2: accounts[1].balance; now 200",
            // Forwards: behind the change.
            "Watchpoint 2: accounts[1].balance\nOld value = 200\nNew value = 150",
            "transfer at",
            ":18\n",
            "Old value = 150\nNew value = 300",
            ":19\n",
            "2    watch accounts[1].balance, hit 2 times",
            // Backwards: before it.
            "about to change\nOld value = 150\nNew value = 300",
            ":18\n",
            "about to change\nOld value = 200\nNew value = 150",
            ":17\n",
            "Breakpoint 1\n",
            // If the condition holds.
            "Old value = 150\nNew value = 300",
            "has come to its end",
            "about to change\nOld value = 150\nNew value = 300",
            "Breakpoint 2 has no condition now.",
            "This is the beginning of transfers-0",
        ],
    );

    // A variable of a frame.
    let (text, status) = debug(
        &recorded,
        &[
            "break transfer if amount == 100",
            "continue",
            "delete",
            "watch amount",
            "reverse-continue",
            "continue",
            "info watchpoints",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Watchpoint 2: amount, as long as its frame is there; now 100",
            // It was given its value by the call.
            "Watchpoint 2: amount, about to change",
            "New value = 100",
            "transfer at",
        ],
    );
    let (text, status) = debug(
        &recorded,
        &[
            "break transfer",
            "continue",
            "delete",
            "watch amount",
            "continue",
            "info watchpoints",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Watchpoint 2: amount: its frame has returned, it is deleted.",
            "main at",
            "No watchpoints.",
        ],
    );
}

/// Events are caught by pattern and in gdb's words, both ways.
#[test]
fn caught_events() {
    let scratch = Scratch::new("debug-catch");
    let recorded = transfers(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "catch syscall write",
            "catch exit",
            "continue",
            "continue",
            "delete 1",
            "continue",
            "catch bytes ~ \"3 150\"",
            "reverse-continue",
            "goto start",
            "run-to call = write",
            "step --message",
            "reverse-step --message",
            "rev run-to mmap",
            "back",
            "forward",
            "info b",
        ],
    );
    assert_eq!(status, 0, "{text}");
    let writes = recorded
        .events()
        .iter()
        .filter(|e| e.call() == "write")
        .map(|e| e.number())
        .collect::<Vec<_>>();
    let at = |number: u64| format!("about to do transfers-0:{number}\n");
    has_in_order(
        &text,
        &[
            &format!(
                "Catchpoint 1: syscall write; {} events in all",
                writes.len()
            ),
            "Catchpoint 1\n",
            "write \"0 0",
            &at(writes[0]),
            "Catchpoint 1\n",
            &at(writes[1]),
            "Catchpoint 2\n",
            "exit_group",
            "Catchpoint 3\n",
            "write \"3 150",
            &at(writes[3]),
            &at(writes[0]),
            &at(writes[1]),
            &at(writes[0]),
            "2    catch exit, hit 1 times",
        ],
    );
}

/// What is done at breakpoints, shown at stops, passed over, and only said.
#[test]
fn what_stops_do() {
    let scratch = Scratch::new("debug-commands");
    let recorded = transfers(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "break transfer",
            "commands",
            "silent",
            "print amount",
            "continue",
            "end",
            "break transfers.c:31",
            "continue",
            "info b",
            "delete 1",
            "goto start",
            "trace transfer",
            "continue",
            "delete 3",
            "goto start",
            "tbreak transfer",
            "ignore 4 2",
            "c",
            "display amount",
            "display/x to->balance",
            "next",
            "info display",
            "undisplay 1",
            "n",
            "finish",
            "whatis accounts",
            "info line",
            "info symbol transfer",
            "info source",
            "info sharedlibrary",
            "info registers rip",
            "rev next",
            "reverse-finish",
            "nexti",
            "echo done\\n",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "$1 = 0\n$2 = 50\n$3 = 100\n$4 = 150\n$5 = 200\nBreakpoint 2\n",
            "transfers.c:32\n",
            "1    transfer, hit 5 times\n        silent\n        print amount\n        continue\n",
            "Tracepoint 3 at",
            "Tracepoint 3, transfers-0 before transfers-0:",
            "transfer (from=",
            "amount=200)",
            "Breakpoint 2\n",
            "The next 2 times that 4 is come to are passed over.",
            "Breakpoint 4\n",
            "1: amount = 100\n",
            "2: to->balance = 0x",
            ":17\n",
            "1: amount = 100\n2: to->balance = 0x",
            "1: amount\n2: to->balance\n",
            ":18\n",
            "main at",
            "type = struct account [3]",
            "Line 26 of ",
            "transfer of ",
            "its text is at hand",
            "lines and variables",
            "rip ",
            "done\n",
        ],
    );
    assert_eq!(text.matches("Tracepoint 3, ").count(), 5, "{text}");
}

/// A place that is come to often, where few of the times are meant: the
/// conditions that the replaying process can test by itself, and one that it
/// cannot, lead to the same places forwards and back.
#[test]
fn conditions() {
    for level in ["-O0", "-O2"] {
        let scratch = Scratch::new("debug-conditions");
        let program = programs::for_debuggers(&scratch, "debug/visits.c", &[level]);
        let recorded = scratch.record(&[program]);
        for (condition, expected) in [
            ("n == 777", vec![777]),
            ("n > 19997", vec![19998, 19999]),
            ("small >= 19999", vec![19999]),
            ("v->number == 5", vec![5]),
            ("v->delta == -1", vec![9999]),
            ("v->delta < -9998", vec![0, 1]),
            ("v->day == 255 && n > 19500", vec![19711, 19967]),
            ("v->mood == WILD || n == 3", vec![3, 15000]),
            ("v->last == 0", vec![0]),
            ("v->last != 0 && v->last->number == 100", vec![101]),
            ("v->marks[n % 4] == 4242", vec![4242]),
            ("total == 10", vec![5]),
            ("(n ^ 4096) == 0", vec![4096]),
            ("(char)n == 'a' && n < 600", vec![97, 353]),
            ("$rip == 0", vec![]),
            // Text is compared outside.
            ("n > 12000 && n < 12400 && v->name == \"here\"", vec![12345]),
        ] {
            let point = format!("break visit if {condition}");
            let mut commands = vec![point.as_str()];
            for _ in &expected {
                commands.extend(["continue", "print n"]);
            }
            commands.push("continue");
            for _ in &expected {
                commands.extend(["reverse-continue", "print n"]);
            }
            commands.extend(["reverse-continue", "info breakpoints"]);
            let (text, status) = debug(&recorded, &commands);
            assert_eq!(status, 0, "{level} {condition}: {text}");
            let shown = text.lines().filter_map(|line| {
                let (_, value) = line.strip_prefix('$')?.split_once(" = ")?;
                value.parse::<u64>().ok()
            });
            let there_and_back: Vec<u64> = expected
                .iter()
                .chain(expected.iter().rev())
                .copied()
                .collect();
            assert_eq!(
                shown.collect::<Vec<_>>(),
                there_and_back,
                "{level} {condition}: {text}"
            );
            let count = format!("hit {} times", there_and_back.len());
            has_in_order(&text, &["has come to its end", "This is the beginning"]);
            assert!(expected.is_empty() || text.contains(&count), "{text}");
        }
    }
}

/// Where a program faults all is shown as it was there; its handler is a
/// function like others; and an instruction back from there is one back, also
/// where the fault came in the middle of a copy.
#[test]
fn faults() {
    let scratch = Scratch::new("debug-faults");
    let program = programs::for_debuggers(&scratch, "debug/faults.c", &[]);
    let recorded = scratch.record(&[program]);
    let events = recorded.all(|e| e.delivers("SIGSEGV"));
    let events: Vec<u64> = events.map(|e| e.number()).collect();
    let [first, in_copy, last] = events[..] else {
        panic!("{events:?}");
    };
    let goto = |event: u64| format!("goto faults-0:{event}");
    let (first, in_copy, last) = (goto(first), goto(in_copy), goto(last));
    let text = ask(
        &recorded,
        &[
            &last,
            "bt",
            &first,
            "bt",
            "break note",
            "c",
            "bt 4",
            "c",
            "bt 4",
            "c",
            "bt 1",
            "rc",
            "rc",
            "bt 4",
            "rc",
        ],
    );
    let handler = [
        "#0  note (number=11) at ",
        "#1  0x",
        " in on_fault (number=11) at ",
        "#2  <signal handler called>",
    ];
    let looks = ["#0  0x", " in look (depth=0) at ", " in look (depth=1) at "];
    has_in_order(
        &text,
        &[
            &["about to do faults-0:", "return *nowhere; /* here */"],
            &looks[..],
            &[" in look (depth=2) at ", " in main () at "],
            &["about to do faults-0:", "return *nowhere; /* here */"],
            &looks,
            &[" in look (depth=3) at ", " in main () at "],
            &["Breakpoint 1", "caught = caught + number;"],
            &handler,
            &["#3  0x", " in look (depth=0) at "],
            &["Breakpoint 1"],
            &handler,
            &["#3  0x", " in copy (to=0x"],
            &["faults-0 has come to its end.", " in look (depth=0) at "],
            &["Breakpoint 1", "Breakpoint 1"],
            &handler,
            &["#3  0x", " in look (depth=0) at "],
            &["This is the beginning of faults-0."],
        ]
        .concat(),
    );
    // Instructions, and a breakpoint at the one that faults.
    let text = ask(
        &recorded,
        &[
            &in_copy,
            "p $pc",
            "p/d $rcx",
            "rsi",
            "p $pc",
            "si",
            "p $pc",
            "p/d $rcx",
            "si",
            "bt 1",
            "rsi",
            "p/d $rcx",
            "break *$pc",
            "rsi",
            "c",
            "p/d $rcx",
        ],
    );
    let value = |number: u32| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(&format!("${number} = ")));
        line.unwrap_or_else(|| panic!("{number}: {text}"))
    };
    // 6000 were to be copied to 100 bytes behind the beginning of a page.
    assert_eq!((value(2), value(5)), ("2004", "6000"), "{text}");
    assert_ne!(value(1), value(3), "{text}");
    assert_eq!(value(1), value(4), "{text}");
    has_in_order(
        &text,
        &[
            "$5 = ",
            "#0  on_fault (number=",
            "$6 = 2004",
            "Breakpoint 1",
            "$7 = 6000",
        ],
    );
    let text = ask(
        &recorded,
        &["watch caught", "c", "c", "c", "rc", "rc", "rc"],
    );
    let change = |from: &str, to: &str| {
        [
            format!("Old value = {from}\n"),
            format!("New value = {to}\n"),
        ]
        .concat()
    };
    let (one, other) = (change("0", "11"), change("11", "22"));
    has_in_order(
        &text,
        &[&one, &other, "its end", &other, &one, "the beginning"],
    );
}

fn ask(recorded: &Recorded, lines: &[&str]) -> String {
    let (text, status) = debug(recorded, lines);
    assert_eq!(status, 0, "{text}");
    text
}

/// What gdb's users ask about, in gdb's words.
#[test]
fn information() {
    let scratch = Scratch::new("debug-information");
    let program = programs::for_debuggers(&scratch, "debug/signals.c", &[]);
    let recorded = scratch.record(&[program]);
    let ask = |lines: &[&str]| {
        let (text, status) = debug(&recorded, lines);
        assert_eq!(status, 0, "{text}");
        text
    };
    // Whoever starts the tests may ignore some.
    let text = ask(&["info signals"]);
    assert!(!text.contains("SIGUSR1"), "{text}");
    let there = ["break on_user", "continue"];
    let text = ask(&[&there[..], &["info signals", "echo ==", "info handle"]].concat());
    for half in text.split("==") {
        has_in_order(half, &["SIGUSR1      0x", " on_user, blocked by main-0\n"]);
        assert!(half.contains("SIGPIPE      ignored\n"), "{half}");
        assert!(
            half.contains("SIGTERM      default, blocked by main-0\n"),
            "{half}"
        );
    }
    let one = ["info signals 2", "info signals SIGUSR1", "info signal term"];
    let text = ask(&[&there[..], &one].concat());
    has_in_order(
        &text,
        &[
            "SIGINT       default\n",
            "on_user",
            "SIGTERM      default, ",
        ],
    );
    assert!(!text.contains("SIGPIPE"), "{text}");
    // The stack that a signal interrupted.
    let text = ask(&[&there[..], &["bt", "info frame", "info program"]].concat());
    has_in_order(
        &text,
        &[
            "#0  on_user (number=10) at ",
            "#1  <signal handler called>\n",
            " in main () at ",
            "Frame 0: 0x",
            " in on_user",
            "frame address 0x",
            "signals-0, main-0, before signals-0:",
        ],
    );
    let rest = [
        "info b",
        "info watchpoints",
        "info inferiors",
        "info files",
        "info proc mappings",
        "info line on_user",
        "info symbol on_user",
        "info source",
        "info all-registers rip",
    ];
    has_in_order(
        &ask(&[&there[..], &rest].concat()),
        &[
            "1    on_user, hit 1 times",
            "No watchpoints.",
            "signals-0",
            "lines and variables",
            "linux-vdso.so.1",
            "libc.so.6",
            "/signals\n",
            "[vdso]\n",
            "Line ",
            "on_user of ",
            "its text is at hand",
            "rip ",
        ],
    );
    for (line, answer) in [
        ("handle SIGUSR1 nostop", "it gets those it got"),
        ("info signals SIGNONE", "there is no signal `SIGNONE`"),
        ("info macro", "one of args, breakpoints"),
    ] {
        let (text, status) = debug(&recorded, &[line]);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains(answer), "{line}: {text}");
    }
    // Clocks are read in code that is not the program's, but has names.
    let clock = recorded
        .all(|e| e.call() == "clock_gettime")
        .last()
        .unwrap();
    let text = ask(&[&format!("goto {}", clock.name()), "bt", "info symbol $pc"]);
    has_in_order(
        &text,
        &[
            "#0  0x",
            " in __vdso_clock_gettime ()\n",
            " in main () at ",
            "__vdso_clock_gettime + ",
            " of linux-vdso.so.1",
        ],
    );
}

/// Where system calls were made, the program's own code is shown, not what
/// leads to the monitor.
#[test]
fn patched_code_is_shown_as_it_was() {
    let scratch = Scratch::new("debug-patched");
    let recorded = transfers(&scratch);
    let write = recorded.all(|e| e.call() == "write").last().unwrap();
    let lines = [
        &format!("goto {}", write.name()),
        "x/2i $pc - 2",
        "x/2xb $pc - 2",
    ];
    let (text, status) = debug(&recorded, &lines);
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &[":\tsyscall", "\n=> 0x", ":\tcmp ", "0x0f\t0x05\n"]);
}

/// Breakpoints in code that no file has: it is made while the program runs.
#[test]
fn code_made_at_run_time() {
    let scratch = Scratch::new("debug-jit");
    let program = programs::for_debuggers(&scratch, "debug/jit.c", &[]);
    let recorded = scratch.record(&[program]);
    let printed = recorded.outcome.stdout.lines().next().unwrap();
    let (fixed, loose) = printed.split_once(' ').unwrap();
    let at_fixed = format!("break *{fixed} if $rdi == 70");
    let at_loose = format!("break *{loose}+4 if $rdi > 7");
    let (text, status) = debug(
        &recorded,
        &[
            // Before there is any.
            &at_fixed,
            &at_loose,
            "continue",
            "bt",
            "x/3i $pc",
            "stepi 2",
            "print $rax",
            "continue",
            "print $rdi",
            "x/2i $pc",
            "finish",
            "continue",
            "print $rdi",
            "reverse-continue",
            "print $rdi",
            "reverse-continue",
            "print $rdi",
            "reverse-continue",
        ],
    );
    assert_eq!(status, 0, "{text}");
    let first = format!("#0  0x{:0>16} in ?? ()\n", fixed.trim_start_matches("0x"));
    has_in_order(
        &text,
        &[
            "Breakpoint 1: not in the code that jit-0 has mapped yet",
            "Breakpoint 2: not in the code that jit-0 has mapped yet",
            "Breakpoint 1\n",
            " in ??\n",
            &first,
            "#1  0x",
            " in main () at ",
            "lea    (%rdi,%rdi,2),%rax\n",
            "add    $0x1,%rax\n",
            "ret",
            "$1 = 211\n",
            "Breakpoint 2\n",
            "$2 = 8\n",
            "add    $0x8,%rax\n",
            "ret",
            "main at ",
            "Breakpoint 2\n",
            "$3 = 9\n",
            "Breakpoint 2\n",
            "$4 = 8\n",
            "Breakpoint 1\n",
            "$5 = 70\n",
            "This is the beginning of jit-0.",
        ],
    );
}

/// Go: functions, lines, stacks and plain variables.
#[test]
fn a_program_in_go() {
    let scratch = Scratch::new("debug-go");
    let source = programs::sources().join("debug/accounts.go");
    let program = scratch.path().join("accounts");
    let made = Command::new("go")
        .args(["build", "-gcflags=all=-N -l", "-o"])
        .args([&program, &source])
        .env("GOCACHE", scratch.path().join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .status()
        .unwrap();
    assert!(made.success());
    let recorded = scratch.record(&[program.to_str().unwrap()]);
    let (text, status) = debug(
        &recorded,
        &[
            "break main.transfer",
            "continue",
            "bt",
            "info args",
            "print amount",
            "print from.balance",
            "next",
            "next",
            "next",
            "print from.balance",
            "reverse-next",
            "finish",
            "delete 1",
            "break accounts.go:33",
            "continue",
            "print moved",
            "info locals",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "accounts.go, line 15",
            "main.transfer at",
            "#0  main.transfer (",
            "#1  ",
            "in main.main () at",
            "amount = 10",
            "$1 = 10",
            "$2 = 100",
            "accounts.go:16",
            "accounts.go:19",
            "accounts.go:20",
            "$3 = 90",
            "accounts.go:19",
            "main.main at",
            "accounts.go:33",
            "$4 = 60",
            "moved = 60",
        ],
    );
}
