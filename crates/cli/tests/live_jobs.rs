//! A command that takes long goes on in the background: at the prompt, in scripts, on programs
//! that are alive and on recordings. What does not answer keeps nobody from the rest.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use harness::alive::mw;
use harness::prompt::has_in_order;
use harness::terminal::Terminal;
use harness::{MW, Scratch, is_root, programs, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// A program that says its ids in its first line, and ends with its input.
struct Told {
    child: Child,
    input: Option<ChildStdin>,
    out: BufReader<ChildStdout>,
    ids: Vec<i32>,
}

impl Told {
    /// None: the machine does not allow it.
    fn start(program: &Path, words: &[&str]) -> Option<Told> {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        if line.is_empty() {
            assert_eq!(child.wait().unwrap().code(), Some(77), "{words:?}");
            return None;
        }
        let ids = line.split_whitespace().map(|id| id.parse().unwrap());
        let ids = ids.collect();
        Some(Told {
            child,
            input,
            out,
            ids,
        })
    }

    fn comes(scratch: &Scratch) -> Told {
        let program = programs::for_debuggers(scratch, "debug/comes.c", &[]);
        Told::start(&program, &[]).unwrap()
    }

    /// Ends it; what it has said.
    fn end(mut self) -> String {
        drop(self.input.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        text
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Whether the monitor is in a process.
fn has_monitor(pid: i32) -> bool {
    let begin = format!("{:08x}-", protocol::layout::IMAGE_BASE);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().any(|line| line.starts_with(&begin))
}

fn state(pid: i32) -> char {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// The prompt in a terminal that can do what terminals can.
fn prompt(terminal: &Terminal, scratch: &Scratch, words: &[&str]) -> Child {
    let home = format!("XDG_DATA_HOME={}", scratch.path().join("data").display());
    let before = ["env", "TERM=xterm", "NO_COLOR=1", &home, MW];
    let child = terminal.run(&[&before, words].concat());
    terminal.await_text("`help` lists the commands.", 1);
    child
}

/// Types keys at once when a prompt is there.
fn type_at_prompt(terminal: &Terminal, text: &str) {
    wait_for("a prompt", || {
        let screen = terminal.screen();
        let last = screen.rsplit('\n').next().unwrap_or("").to_string();
        last.contains("(mw) ").then_some(())
    });
    terminal.type_in(text);
}

/// Types a line; waits until this text was shown once more.
fn ask(terminal: &Terminal, line: &str, answer: &str) {
    let times = terminal.screen().matches(answer).count();
    type_at_prompt(terminal, &format!("{line}\n"));
    terminal.await_text(answer, times + 1);
}

#[test]
fn what_takes_long_goes_on_in_the_background() {
    let scratch = Scratch::new("jobs-live");
    let told = Told::comes(&scratch);
    let terminal = Terminal::new();
    let pid = told.ids[0].to_string();
    let mut child = prompt(&terminal, &scratch, &["attach", &pid]);
    ask(&terminal, "jobs", "No jobs.");
    ask(&terminal, "join", "nothing is done in the background");
    ask(&terminal, "break comes", "Breakpoint 1 at");
    ask(
        &terminal,
        "set time-limit 300ms",
        "longer than 300 ms goes on",
    );
    ask(
        &terminal,
        "continue",
        "it goes on in the background as job 1",
    );
    wait_for("it to run", || (state(told.ids[0]) == 'S').then_some(()));

    // What can be asked meanwhile.
    ask(
        &terminal,
        "jobs",
        "waits for something that stops the program",
    );
    ask(&terminal, "time", "s behind)");
    ask(&terminal, "halted", "not halted: 1 thread runs");
    ask(&terminal, "timeouts", "Nobody waits with a time limit.");
    ask(&terminal, "processes", &format!("comes-{pid}"));
    ask(&terminal, "info breakpoints", "comes");
    ask(&terminal, "help join", "Ctrl-C ends the waiting");
    ask(&terminal, "echo heard", "\nheard");
    ask(&terminal, "shell echo $((6*7))", "\n42");
    // What cannot.
    ask(&terminal, "bt", "nobody can look into it meanwhile");
    ask(
        &terminal,
        "step",
        "`step` has to wait: job 1 (`continue`) is under way",
    );
    ask(
        &terminal,
        "timeouts drop all",
        "it can only be looked at meanwhile",
    );
    assert_eq!(state(told.ids[0]), 'S');

    // It comes while a line is being typed, which stays as it is.
    type_at_prompt(&terminal, "print times * 100 + 2");
    terminal.await_text("times * 100 + 2", 1);
    send(told.ids[0], Signal::USR1);
    terminal.await_text("Job 1 is done: continue", 1);
    has_in_order(
        &terminal.screen(),
        &[
            "times * 100 + 2",
            "Breakpoint 1",
            "comes at",
            "Job 1 is done: continue",
        ],
    );
    // (How the editor shows one more key is its own affair.)
    terminal.type_in("3\n");
    terminal.await_text("$1 = 23", 1);

    // In the background at once; what stops it is the panic button.
    ask(&terminal, "continue &", "Job 2: continue");
    terminal.type_in("\x03");
    terminal.await_text("Job 2 is done: continue", 1);
    has_in_order(
        &terminal.screen(),
        &["Job 2: continue", "Interrupted.", "Job 2 is done"],
    );
    ask(&terminal, "print times", "$2 = 1");

    // Who waits for it can stop waiting; or not wait, and stop it.
    ask(&terminal, "continue &", "Job 3: continue");
    type_at_prompt(&terminal, "join 3\n");
    wait_for("the waiting to end", || {
        terminal.type_in("\x03");
        std::thread::sleep(std::time::Duration::from_millis(100));
        terminal.screen().contains("no longer.").then_some(())
    });
    // (Too many of them stop what they leave.)
    if !terminal.screen().contains("Job 3 is done") {
        ask(&terminal, "interrupt 3", "Job 3 is done: continue");
    }
    ask(&terminal, "interrupt 3", "there is no job 3");
    ask(&terminal, "continue &", "Job 4: continue");
    send(told.ids[0], Signal::USR1);
    terminal.await_text("Job 4 is done: continue", 1);
    ask(&terminal, "print times", "$3 = 1");

    // Leaving stops what is under way.
    ask(&terminal, "continue &", "Job 5: continue");
    type_at_prompt(&terminal, "quit\n");
    assert_eq!(terminal.wait(&mut child), 0);
    assert!(terminal.is_empty());
    assert_eq!(told.end(), "2 times\n");
}

/// Nobody moves in a recording before it is decided where to: it is looked at meanwhile.
#[test]
fn a_recording_is_looked_at_while_it_is_searched() {
    let scratch = Scratch::new("jobs-replay");
    let program = programs::for_debuggers(&scratch, "debug/spin.c", &[]);
    let recorded = scratch.record(&[program]);
    let terminal = Terminal::new();
    let dir = recorded.dir.to_str().unwrap();
    let mut child = prompt(&terminal, &scratch, &["replay", dir]);
    ask(&terminal, "break main", "Breakpoint 1 at");
    ask(&terminal, "continue", "main at");
    ask(&terminal, "watch watched", "Watchpoint 2: watched");
    ask(&terminal, "continue &", "Job 1: continue");
    ask(&terminal, "bt", "#0");
    ask(&terminal, "print 6 * 7", "= 42");
    ask(&terminal, "info locals", "rounds = ");
    ask(&terminal, "list", "while (rounds < 1500000000UL)");
    ask(&terminal, "where", "* spin-0");
    ask(&terminal, "set var watched = 1", "has to wait: job 1");
    ask(&terminal, "reverse-continue", "has to wait: job 1");
    ask(
        &terminal,
        "jobs",
        "waits for something that stops the program",
    );
    ask(&terminal, "kill %1", "Job 1 is done: continue");
    ask(&terminal, "print rounds > 0", "= 1");
    ask(&terminal, "reverse-continue &", "Job 2: reverse-continue");
    ask(&terminal, "join", "Job 2 is done: reverse-continue");
    type_at_prompt(&terminal, "quit\n");
    assert_eq!(terminal.wait(&mut child), 0);
    assert!(terminal.is_empty(), "the replay is gone");
}

/// A script waits, unless it says otherwise.
#[test]
fn scripts_wait_unless_they_say_otherwise() {
    let scratch = Scratch::new("jobs-script");
    let program = programs::for_debuggers(&scratch, "debug/spin.c", &[]);
    let recorded = scratch.record(&[program]);
    let dir = recorded.dir.to_str().unwrap();
    let commands = [
        "break main",
        "set time-limit 50ms",
        "goto end",
        "jobs",
        "step",
    ];
    let (text, status) = mw(&format!("replay {dir}"), &[] as &[&str], &commands);
    assert_eq!(status, 2, "{text}");
    has_in_order(
        &text,
        &[
            "`goto end` takes longer than 50 ms: it goes on in the background as job 1",
            "  1  ",
            "goto end",
            "Job 1 is done: goto end",
            "`step` has to wait: job 1 (`goto end`) is under way",
            "`join 1` waits for it, `interrupt 1` stops it",
        ],
    );
    let commands = ["set time-limit 50ms", "goto end", "join", "when", "jobs"];
    let (text, status) = mw(&format!("replay {dir}"), &[] as &[&str], &commands);
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &["as job 1", "come to its end", "Job 1 is done", "No jobs."],
    );
    let (text, status) = mw(
        &format!("replay {dir}"),
        &[] as &[&str],
        &["goto end", "jobs"],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &["come to its end", "No jobs."]);
    // What fails there makes the script one that has failed.
    let commands = ["break main", "until nowhere &", "join"];
    let (text, status) = mw(&format!("replay {dir}"), &[] as &[&str], &commands);
    assert_eq!(status, 2, "{text}");
    has_in_order(
        &text,
        &["Job 1: until nowhere", "Job 1 has failed: until nowhere"],
    );
    // Also if nobody waits for it; and who waits for one that is over waits for nothing.
    let commands = [
        "break main &",
        "join",
        "print 6 * 7 &",
        "shell sleep 0.5",
        "join 2",
        "join",
    ];
    let (text, status) = mw(&format!("replay {dir}"), &[] as &[&str], &commands);
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &["Job 1 is done", "= 42", "Job 2 is done"]);
    for (command, what) in [
        ("set time-limit soon", "is not a length of time"),
        ("set time-limit", "set the time limit to what?"),
        ("interrupt", "nothing is done in the background"),
        ("join 7", "there is no job 7"),
    ] {
        let (text, status) = mw(&format!("replay {dir}"), &[] as &[&str], &[command]);
        assert!(status == 2 && text.contains(what), "{command}: {text}");
    }
}

fn stuck(scratch: &Scratch) -> PathBuf {
    programs::for_debuggers(scratch, "debug/stuck.c", &["-pthread"])
}

/// One that a signal has stopped is shown as such; others are led meanwhile.
#[test]
fn who_was_stopped_by_somebody_else_keeps_nobody() {
    let scratch = Scratch::new("jobs-stopped");
    let told = Told::start(&stuck(&scratch), &["vfork"]).unwrap();
    let [waiting, counting] = [told.ids[0], told.ids[1]];
    send(waiting, Signal::STOP);
    wait_for("it to stop", || (state(waiting) == 'T').then_some(()));
    for word in ["attach", "attach --observe"] {
        let pids = [waiting.to_string(), counting.to_string()];
        let to_counting = format!("process counts-{counting}");
        let commands = [
            "processes",
            &to_counting,
            "break count",
            "continue",
            "finish",
            "print turns > 1",
            "processes",
        ];
        let (text, status) = mw(word, &pids, &commands);
        assert_eq!(status, 0, "{word}: {text}");
        let line = format!("waits-{waiting}");
        has_in_order(
            &text,
            &[
                &line,
                "stopped by a signal",
                "Breakpoint 1",
                "count at",
                &line,
                "stopped by a signal",
            ],
        );
        wait_for("it to be let go", || (state(waiting) == 'T').then_some(()));
    }
    send(waiting, Signal::CONT);
    assert_eq!(told.end(), "");
}

/// One that waits for what nobody can cut short is not joined, and told by name; others are.
#[test]
fn who_cannot_be_stopped_is_not_joined() {
    let scratch = Scratch::new("jobs-uninterruptible");
    let told = Told::start(&stuck(&scratch), &["vfork"]).unwrap();
    let [waiting, counting] = [told.ids[0], told.ids[1]];
    send(waiting, Signal::USR1);
    wait_for("it to wait", || (state(waiting) == 'D').then_some(()));
    for word in ["attach", "attach --observe"] {
        let pids = [waiting.to_string(), counting.to_string()];
        let (text, status) = mw(word, &pids, &["bt"]);
        assert_eq!(status, 2, "{text}");
        assert!(
            text.contains(&format!("process {waiting} (waits)")),
            "{text}"
        );
        assert!(text.contains("uninterruptible wait"), "{text}");
        assert!(text.lines().count() <= 2, "{text}");
        let pids = [counting.to_string()];
        let (text, status) = mw(word, &pids, &["break count", "continue", "detach"]);
        assert_eq!(status, 0, "{text}");
        has_in_order(&text, &["Breakpoint 1", "count at", "runs on."]);
    }
    // Its child is not of this program's group: it goes with its parent.
    assert_eq!(told.end(), "");
}

/// One that comes to wait so while it is debugged is shown as such, and the others are led.
#[test]
fn who_does_not_answer_keeps_nobody_from_the_others() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("jobs-silent");
    for kind in ["vfork", "file"] {
        for word in ["attach", "attach --observe"] {
            let dir = scratch.path().join(word.len().to_string());
            let words = match kind {
                "vfork" => vec![kind],
                _ => vec![kind, dir.to_str().unwrap()],
            };
            let Some(told) = Told::start(&stuck(&scratch), &words) else {
                return;
            };
            let [waiting, counting, server] = [told.ids[0], told.ids[1], told.ids[2]];
            let pids = [waiting.to_string(), counting.to_string()];
            let (to_counting, begins) = (
                format!("process counts-{counting}"),
                format!("shell kill -USR1 {waiting}"),
            );
            let (text, status) = mw(
                word,
                &pids,
                &[
                    &to_counting,
                    "set time-limit 300ms",
                    "continue &",
                    &begins,
                    "shell sleep 0.5",
                    "interrupt",
                    "processes",
                    "set time-limit none",
                    "break count",
                    "continue",
                    "finish",
                    "print turns > 1",
                    "processes",
                    "detach all",
                ],
            );
            let what = format!("{words:?}, {word}");
            assert_eq!(status, 0, "{what}: {text}");
            let line = format!("waits-{waiting}");
            has_in_order(
                &text,
                &[
                    "Interrupted.",
                    &line,
                    "uninterruptible",
                    "Breakpoint 1",
                    "count at",
                    "$1 = 1",
                    &line,
                    "uninterruptible",
                    "runs on.",
                ],
            );
            // The monitor stays where it cannot be taken from, and nowhere else.
            if word == "attach" {
                let told = "does not come to where the monitor could leave it";
                assert!(text.contains(told), "{what}: {text}");
                assert!(has_monitor(waiting) && !has_monitor(counting), "{what}");
            }
            if server != 0 {
                send(server, Signal::USR2);
            }
            assert_eq!(told.end(), "", "{what}");
        }
    }
}
