//! The debugger's prompt in a terminal: editing, history, completion, colours,
//! Ctrl-C and Ctrl-D.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::{Child, Command};
use std::time::Duration;

use harness::terminal::Terminal;
use harness::{MW, Recorded, Scratch, programs};

fn record(scratch: &Scratch, name: &str) -> Recorded {
    let program = programs::for_debuggers(scratch, &format!("debug/{name}.c"), &[]);
    scratch.record(&[program])
}

/// Opens the prompt in a terminal that can do what terminals can.
fn open(terminal: &Terminal, scratch: &Scratch, recorded: &Recorded) -> Child {
    let home = format!("XDG_DATA_HOME={}", scratch.path().join("data").display());
    let dir = recorded.dir.to_str().unwrap();
    let child = terminal.run(&[
        "env",
        "-u",
        "NO_COLOR",
        "TERM=xterm",
        &home,
        MW,
        "replay",
        dir,
    ]);
    terminal.await_text("`help` lists the commands.", 1);
    child
}

/// What is on a screen, without what is said to the terminal.
fn plain(screen: &str) -> String {
    let mut pieces = screen.split("\x1b[");
    let mut text = pieces.next().unwrap_or("").to_string();
    for piece in pieces {
        // Numbers, and a letter that says what they mean.
        let end = piece.find(|c: char| c.is_ascii_alphabetic());
        text.push_str(end.map_or("", |at| &piece[at + 1..]));
    }
    text.replace('\r', "")
}

/// Waits until the prompt has the terminal: before, Ctrl-C and Ctrl-D are the terminal's own.
fn await_prompt(terminal: &Terminal) {
    harness::wait_for("a prompt", || {
        plain(&terminal.screen()).ends_with("(mw) ").then_some(())
    });
}

#[test]
fn lines_are_edited_completed_and_remembered() {
    let scratch = Scratch::new("prompt-lines");
    let recorded = record(&scratch, "transfers");
    let terminal = Terminal::new();
    let mut child = open(&terminal, &scratch, &recorded);

    // A function, then a command, completed.
    terminal.type_in("break transf\t\n");
    terminal.await_text("Breakpoint 1 at", 1);
    terminal.type_in("conti\t\n");
    terminal.await_text("\x1b[1mBreakpoint 1\x1b[0m", 1);
    // In colours.
    terminal.await_text("\x1b[33mtransfer\x1b[0m at \x1b[32m", 1);
    terminal.await_text("\x1b[36mtransfers-0\x1b[0m", 1);

    // A line that is given up is not run.
    await_prompt(&terminal);
    terminal.type_in("nonsense\x03");
    harness::wait_for("a fresh prompt", || {
        plain(&terminal.screen())
            .contains("nonsense\n(mw) ")
            .then_some(())
    });
    // A variable, completed; and the cursor moved to the beginning.
    terminal.type_in("print amou\t\n");
    terminal.await_text("$1 = 0", 1);
    terminal.type_in("amount\x01print \n");
    terminal.await_text("$2 = 0", 1);

    // The line before the last, again; then an empty line repeats it.
    terminal.type_in("\x1b[A\x1b[A\n");
    terminal.await_text("\x1b[1mBreakpoint 1\x1b[0m", 2);
    terminal.type_in("\n");
    terminal.await_text("\x1b[1mBreakpoint 1\x1b[0m", 3);
    terminal.type_in("print amount\n");
    terminal.await_text("$3 = 100", 1);
    assert!(
        !terminal.screen().contains("no command"),
        "{}",
        terminal.screen()
    );
    await_prompt(&terminal);
    terminal.type_in("\x04");
    assert_eq!(terminal.wait(&mut child), 0);
    assert!(terminal.is_empty(), "the replay is gone");

    // Another session knows what was typed in this.
    let terminal = Terminal::new();
    let mut child = open(&terminal, &scratch, &recorded);
    terminal.type_in("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\n");
    terminal.await_text("Breakpoint 1 at", 1);
    terminal.type_in("quit\n");
    assert_eq!(terminal.wait(&mut child), 0);
}

#[test]
fn control_c_stops_a_motion() {
    let scratch = Scratch::new("prompt-interrupt");
    let recorded = record(&scratch, "spin");
    let terminal = Terminal::new();
    let mut child = open(&terminal, &scratch, &recorded);
    // Until it is heard: it may come before the motion has begun.
    let interrupt = |times: usize| {
        for _ in 0..200 {
            terminal.type_in("\x03");
            std::thread::sleep(Duration::from_millis(100));
            if terminal.screen().matches("Interrupted.").count() >= times {
                return;
            }
        }
        panic!("it does not stop");
    };

    // In code that is looked at on its way.
    terminal.type_in("break main\n");
    terminal.await_text("Breakpoint 1 at", 1);
    terminal.type_in("continue\n");
    terminal.await_text("\x1b[1mBreakpoint 1\x1b[0m", 1);
    terminal.type_in("watch watched\n");
    terminal.await_text("Watchpoint 2: watched", 1);
    let mut times = 0;
    loop {
        times += 1;
        terminal.type_in("continue\n");
        // Ctrl-C would take back what has not been read yet.
        terminal.await_text("continue", 1 + times);
        interrupt(times);
        terminal.type_in("print rounds > 0 && rounds < 1500000000\n");
        let shown = harness::wait_for("the answer", || {
            let screen = terminal.screen();
            let (_, rest) = screen.split_once(&format!("${times} = "))?;
            rest.chars().next()
        });
        // (It was stopped before it had done anything.)
        assert!(times < 20, "it does not get on");
        if shown == '1' {
            break;
        }
    }
    // It can go on from there, and backwards.
    terminal.type_in("reverse-continue\n");
    terminal.await_text("\x1b[1mBreakpoint 1\x1b[0m", 2);
    // In code that runs by itself: it comes back to where it can be stopped.
    terminal.type_in("delete\n");
    await_prompt(&terminal);
    terminal.type_in("goto end\n");
    terminal.await_text("goto end", 1);
    interrupt(times + 1);
    terminal.type_in("print 6 * 7\n");
    terminal.await_text(&format!("${} = 42", times + 1), 1);
    await_prompt(&terminal);
    terminal.type_in("\x04");
    assert_eq!(terminal.wait(&mut child), 0);
    assert!(terminal.is_empty(), "the replay is gone");
}

/// In a script there is nobody to ask: it ends, with a status that says so.
#[test]
fn control_c_ends_a_script() {
    let scratch = Scratch::new("prompt-script");
    let recorded = record(&scratch, "spin");
    let terminal = Terminal::new();
    let dir = recorded.dir.to_str().unwrap();
    let mut child = terminal.run(&[
        MW,
        "replay",
        dir,
        "--batch",
        "-e",
        "echo ready\\n",
        "-e",
        "watch watched",
        "-e",
        "continue",
        "-e",
        "echo never\\n",
    ]);
    terminal.await_text("Watchpoint 1", 1);
    let status = loop {
        terminal.type_in("\x03");
        std::thread::sleep(Duration::from_millis(100));
        if let Some(status) = child.try_wait().unwrap() {
            break harness::recorded::shell_status(status);
        }
    };
    assert_eq!(status, 130, "{}", terminal.screen());
    assert!(
        !terminal.screen().contains("never"),
        "{}",
        terminal.screen()
    );
    assert!(terminal.is_empty(), "the replay is gone");
}

#[test]
fn no_colours_in_a_pipe() {
    let scratch = Scratch::new("prompt-pipe");
    let recorded = record(&scratch, "transfers");
    let output = Command::new(MW)
        .arg("replay")
        .arg(&recorded.dir)
        .args([
            "--batch",
            "-e",
            "break transfer",
            "-e",
            "continue",
            "-e",
            "where",
        ])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("transfer at "), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");

    // Whoever reads may stop reading: that is no error.
    let script = format!(
        "'{MW}' replay '{}' -e help --batch | head -1",
        recorded.dir.display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Who talks to the prompt through pipes sees what each line has led to before it says the next.
#[test]
fn what_a_line_leads_to_is_seen_at_once_in_a_pipe() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let scratch = Scratch::new("prompt-pipe");
    let program = programs::for_debuggers(&scratch, "debug/transfers.c", &[]);
    let recorded = scratch.record(&[&program]);
    let (dir, file) = (recorded.dir.to_str().unwrap(), program.to_str().unwrap());
    for words in [["replay", dir].as_slice(), &["run", "--", file]] {
        let mut child = Command::new(MW)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tell = child.stdin.take().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ask = |line: &str, answer: &str| {
            writeln!(tell, "{line}").unwrap();
            let found = said.find(|line| line.as_ref().unwrap().contains(answer));
            assert!(found.is_some(), "{words:?}: {line}");
        };
        ask("break main", "Breakpoint 1 at");
        ask("continue", "main at ");
        ask("print 6 * 7", "= 42");
        ask("next", ".c:");
        drop(tell);
        child.wait().unwrap();
    }
}
