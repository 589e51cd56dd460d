//! Sessions at the debugger's prompt, as scripts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::Command;

use harness::{MW, Recorded, Scratch, programs};

/// What the debugger prints, and its exit status, for each command: the
/// output is cut at the echo of the next.
fn debug(recorded: &Recorded, commands: &[&str]) -> (String, i32) {
    let mut command = Command::new(MW);
    command.arg("replay").arg(&recorded.dir).arg("--batch");
    for line in commands {
        command.args(["-e", line]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().unwrap())
}

/// The program of most of these tests, recorded.
fn transfers(scratch: &Scratch) -> Recorded {
    let source = programs::sources().join("debug/transfers.c");
    let program = scratch.path().join("transfers");
    let made = Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(made.success());
    scratch.record(&[program.to_str().unwrap()])
}

/// Checks that the text has these pieces, in this order.
fn has_in_order(text: &str, pieces: &[&str]) {
    let mut rest = text;
    for piece in pieces {
        let Some(at) = rest.find(piece) else {
            panic!("no `{piece}` in what is left of:\n{text}");
        };
        rest = &rest[at + piece.len()..];
    }
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
        ("reverse", "is the beginning of reverse-continue"),
        ("process transfer-0", "did you mean `transfers-0`?"),
        ("set accounts = 0", "a recording cannot be changed"),
        ("print nonsense", "No symbol \"nonsense\""),
        ("goto transfers-0:99999", "has no event 99999"),
        ("frame 99", "there is no frame 99"),
        ("delete 7", "there is no breakpoint 7"),
        ("info nothing", "one of locals"),
        ("restart 3", "there is no checkpoint 3"),
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
