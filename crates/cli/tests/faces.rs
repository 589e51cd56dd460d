//! The prompt and gdb are two faces of one debugger: where they were once at odds they are
//! held to each other here. (What `continue` and steps come to: `session_walk`; breakpoints
//! over an exec: `debug`, `gdb`.)
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use harness::{MW, Recorded, Scratch, programs, prompt};

fn gdb(recorded: &Recorded, gdb: &str, commands: &[String]) -> String {
    let mut command = Command::new(MW);
    command.args(["gdb", "--gdb", gdb]).arg(&recorded.dir);
    command.args(["--", "-nx", "-batch", "-iex", "set auto-load off"]);
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    for line in commands {
        command.args(["-ex", line]);
    }
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Where each process is: its next event, or that it has not begun, or has ended.
type Cut = BTreeMap<String, String>;

/// Cuts as `processes` lists them, behind each `CUT`.
fn cuts_of_prompt(text: &str) -> Vec<Cut> {
    let cut = |text: &str| {
        let lines = text.lines().skip(1).map_while(|line| {
            let (name, state) = line.get(2..)?.split_once("  ")?;
            let state = state.trim().rsplit([' ', ':']).next()?;
            line.starts_with(['*', ' '])
                .then(|| (name.to_string(), state.to_string()))
        });
        lines.collect()
    };
    text.split("CUT").skip(1).map(cut).collect()
}

/// As `monitor where` lists them, of two processes each.
fn cuts_of_gdb(text: &str) -> Vec<Cut> {
    let states = text.lines().filter_map(|line| {
        let marked = line.strip_prefix("* ").or(line.strip_prefix("  "))?;
        let (name, place) = marked.split_once(" is ")?;
        let state = match place.split(',').next()? {
            "at its end" => "ended",
            "at its beginning" => "begun",
            place => place.strip_prefix("about to do event ")?,
        };
        Some((name.to_string(), state.to_string()))
    });
    let states: Vec<(String, String)> = states.collect();
    states
        .chunks(2)
        .map(|cut| cut.iter().cloned().collect())
        .collect()
}

/// Going to an event leads everybody to one cut, in either mode, and whoever is taken at hand
/// stays where it was led.
#[test]
fn going_to_an_event_leads_to_one_cut() {
    let tool = tool!("gdb");
    let scratch = Scratch::new("faces-goto");
    let program = programs::for_debuggers(&scratch, "debug/walks.c", &["-static"]);
    let recorded = scratch.record(&[program]);
    let events = recorded.events();
    let all: Vec<&str> = events.iter().map(|event| event.name()).collect();
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    for mode in ["causal", "consistent", "causal"] {
        asked.push(format!("mode {mode}"));
        told.push(format!("monitor mode {mode}"));
        for event in all.iter().step_by(3) {
            asked.extend([
                format!("goto {event}"),
                "echo CUT".into(),
                "processes".into(),
            ]);
            told.extend([format!("monitor goto {event}"), "monitor where".into()]);
            // Another one is looked at; nobody moves.
            asked.extend(["process walks-1", "where", "echo CUT", "processes"].map(String::from));
            told.extend(["inferior 2", "bt 1", "monitor where"].map(String::from));
        }
    }
    let lines: Vec<&str> = asked.iter().map(String::as_str).collect();
    let (shown, status) = prompt::debug(&recorded, &lines);
    assert_eq!(status, 0, "{shown}");
    let text = gdb(&recorded, &tool, &told);
    let (of_prompt, of_gdb) = (cuts_of_prompt(&shown), cuts_of_gdb(&text));
    assert!(of_prompt.len() > 30, "{shown}");
    assert!(of_prompt.iter().all(|cut| cut.len() == 2), "{shown}");
    assert_eq!(of_prompt, of_gdb, "{shown}\n{text}");
    for pair in of_prompt.chunks(2) {
        assert_eq!(pair[0], pair[1], "{shown}");
    }
}

const LARGE: &str = r#"
struct large { char bytes[512]; } fits;
struct larger { char bytes[513]; } too_large;
int main(void)
{
    for (int i = 0; i < 4; i++) {
        fits.bytes[i * 170] = 1;
        too_large.bytes[0] = 1;
    }
    return 0;
}
"#;

/// As much can be watched at either face: all of what can be watched, and no byte more.
#[test]
fn as_much_is_watched_by_either() {
    let tool = tool!("gdb");
    let scratch = Scratch::new("faces-watch");
    let source = scratch.path().join("large.c");
    std::fs::write(&source, LARGE).unwrap();
    let program = scratch.path().join("large");
    let mut cc = Command::new("cc");
    let made = cc.args(["-g", "-O0", "-o"]).args([&program, &source]);
    assert!(made.status().unwrap().success());
    let recorded = scratch.record(&[program]);
    let (text, status) = prompt::debug(
        &recorded,
        &["break main", "c", "watch fits", "c", "c", "c", "c", "c"],
    );
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.matches("Watchpoint 2: fits\n").count(), 4, "{text}");
    let more = &["break main", "c", "watch too_large"];
    let (text, status) = prompt::debug(&recorded, more);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("513 bytes"), "{text}");

    let script = |what: &str| {
        let lines = ["break main", "continue", what, "continue", "continue"];
        let lines: Vec<String> = lines
            .iter()
            .chain(&["continue"; 3])
            .map(|l| l.to_string())
            .collect();
        gdb(&recorded, &tool, &lines)
    };
    let text = script("watch fits");
    assert_eq!(
        text.matches("Hardware watchpoint 2: fits\n").count(),
        5,
        "{text}"
    );
    let text = script("watch too_large");
    assert!(!text.contains("New value"), "{text}");
    assert!(text.contains("Could not insert"), "{text}");
}
