//! Recordings as things: listed, named, removed; and what shells and `man` are
//! told.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use harness::terminal::Terminal;
use harness::{MW, Scratch};
use serde_json::Value;

/// A user's home, with recordings in it.
struct Home {
    scratch: Scratch,
}

impl Home {
    fn new(name: &str) -> Home {
        Home {
            scratch: Scratch::new(name),
        }
    }

    /// Where `mw record` puts them.
    fn dir(&self) -> PathBuf {
        self.scratch.path().join("data/meanwhile")
    }

    fn mw(&self, args: &[&str]) -> Command {
        let mut command = harness::with_default_signals(MW);
        command
            .args(args)
            .env("XDG_DATA_HOME", self.scratch.path().join("data"))
            .env("XDG_CACHE_HOME", self.scratch.path().join("cache"))
            .current_dir(self.scratch.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.mw(args).output().unwrap()
    }

    /// What a command prints, which must succeed.
    fn ask(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        assert!(errors.is_empty(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command complains about, which must fail with 2.
    fn complaint(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Records a script; silent about itself, with the script's status.
    fn record(&self, script: &str) -> i32 {
        let output = self.run(&["record", "sh", "-c", script]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        output.status.code().unwrap()
    }

    fn list(&self) -> Vec<Value> {
        let text = self.ask(&["list", "--json"]);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn names(&self) -> Vec<String> {
        let named = |listed: &Value| listed["recording"].as_str().unwrap().to_string();
        self.list().iter().map(named).collect()
    }

    /// Starts to record a program that waits for a line, and is recorded when
    /// this returns.
    fn begin(&self) -> Child {
        use std::io::Read;
        let mut child = self
            .mw(&["record", "sh", "-c", "echo ready; read line; echo over"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        let out = child.stdout.as_mut().unwrap();
        out.read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        child
    }
}

/// Lets the program go on to its end.
fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait_with_output().unwrap();
}

/// What directories take together, files that they share once.
fn du(dirs: &[PathBuf]) -> u64 {
    let output = Command::new("du")
        .args(["-s", "-c", "-B1"])
        .args(dirs)
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let total = text.lines().last().unwrap();
    total.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn recordings_are_listed_with_what_they_are() {
    let home = Home::new("list");
    assert!(home.names().is_empty());
    assert!(home.ask(&["list"]).contains("there are no recordings"));
    assert_eq!(home.record("exit 3"), 3);
    assert_eq!(home.record("sleep 0.3"), 0);
    let waiting = home.begin();
    // Not recordings.
    std::fs::create_dir(home.dir().join("notes")).unwrap();
    std::fs::write(home.dir().join("history"), "x").unwrap();

    let listed = home.list();
    let told: Vec<(&str, &str, Option<i64>)> = listed
        .iter()
        .map(|listed| {
            let text = |key: &str| listed[key].as_str().unwrap();
            (text("recording"), text("state"), listed["exit"].as_i64())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("sh-0", "complete", Some(3)),
            ("sh-1", "complete", Some(0)),
            ("sh-2", "recording", None),
        ]
    );
    assert_eq!(
        listed[0]["command"],
        serde_json::json!(["sh", "-c", "exit 3"])
    );
    let lasted = |at: usize| listed[at]["duration_ns"].as_u64().unwrap();
    assert!(
        (300_000_000..60_000_000_000).contains(&lasted(1)),
        "{}",
        lasted(1)
    );
    let started = |at: usize| listed[at]["started_ns"].as_u64().unwrap();
    assert!(started(0) < started(1) && started(1) < started(2));
    // As `du` counts.
    let du = du(&[home.dir().join("sh-0")]);
    let told = listed[0]["bytes"].as_u64().unwrap();
    // The directory itself is not counted, and nothing else is missing.
    assert!(told <= du && du - told <= 16 * 1024, "{told} of {du}");

    let table = home.ask(&["list"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert!(lines[0].starts_with("RECORDING"), "{table}");
    assert!(
        lines[1].starts_with("sh-0") && lines[1].ends_with("sh -c 'exit 3'"),
        "{table}"
    );
    assert!(lines[4].starts_with("3 recordings, "), "{table}");
    // Elsewhere, by its directory.
    let there = home.ask(&["list", home.dir().to_str().unwrap(), "--json"]);
    assert_eq!(there.lines().count(), 3);
    assert!(
        home.complaint(&["list", "/nonexistent"])
            .starts_with("mw: cannot list /nonexistent")
    );
    end(waiting);
    assert_eq!(home.list()[2]["state"], "complete");
}

#[test]
fn a_recording_that_lost_its_recorder_is_cut_short_and_can_be_removed() {
    let home = Home::new("cut-short");
    let mut waiting = home.begin();
    assert_eq!(home.list()[0]["state"], "recording");
    // `env` has become `mw`: this is the recorder.
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    harness::wait_for("the lock to be gone", || {
        (home.list()[0]["state"] == "cut short").then_some(())
    });
    home.ask(&["rm", "sh-0"]);
    assert!(home.names().is_empty());
}

#[test]
fn the_latest_is_listed_wherever_it_is() {
    let home = Home::new("elsewhere");
    home.record("true");
    let elsewhere = home.scratch.path().join("elsewhere");
    let path = elsewhere.to_str().unwrap();
    home.ask(&["record", "-o", path, "true"]);
    assert_eq!(home.names(), ["sh-0", path]);
    assert!(home.ask(&["info", "-r", path]).contains("command    true"));
    // Only what is where recordings go is pruned.
    home.ask(&["prune", "--keep", "0"]);
    assert_eq!(home.names(), [path]);
}

#[test]
fn a_recording_is_named_as_the_list_names_it() {
    let home = Home::new("named");
    home.record("exit 1");
    home.record("exit 2");
    home.ask(&["record", "true"]);
    let exit = |args: &[&str]| {
        let info: Value = serde_json::from_str(&home.ask(args)).unwrap();
        info["exit"].as_i64().unwrap()
    };
    assert_eq!(exit(&["info", "--json", "sh-0"]), 1);
    assert_eq!(exit(&["info", "--json", "-r", "sh-1"]), 2);
    assert_eq!(exit(&["info", "--json", "-r", "tr"]), 0);
    assert_eq!(exit(&["info", "--json", "latest"]), 0);
    let path = home.dir().join("sh-0");
    assert_eq!(exit(&["info", "--json", path.to_str().unwrap()]), 1);
    assert_eq!(exit(&["info", "--json", "data/meanwhile/sh-1"]), 2);
    assert_eq!(
        home.complaint(&["info", "sh"]),
        "mw: `sh` can be any of 2 recordings\n    one of sh-0, sh-1\n"
    );
    assert_eq!(
        home.complaint(&["info", "treu-0"]),
        "mw: there is no recording `treu-0`\n    did you mean `true-0`?\n"
    );
    assert_eq!(
        home.complaint(&["info", "postgres"]),
        "mw: there is no recording `postgres`\n    \
         `mw list` shows what there is; a path is right as well\n"
    );
    // A recording here is nearer than one in the list.
    home.ask(&["record", "-o", "sh-0", "true"]);
    assert_eq!(exit(&["info", "--json", "sh-0"]), 0);
    // And something else is not.
    std::fs::create_dir(home.scratch.path().join("sh-1")).unwrap();
    assert_eq!(exit(&["info", "--json", "sh-1"]), 2);
    std::fs::create_dir(home.scratch.path().join("other")).unwrap();
    assert!(
        home.complaint(&["info", "other"])
            .contains("other is not a recording")
    );
}

#[test]
fn only_recordings_are_removed_and_none_that_is_being_made() {
    let home = Home::new("rm");
    home.record("exit 1");
    home.record("exit 2");
    home.record("exit 3");
    let waiting = home.begin();
    let dir = home.dir();
    let path = |name: &str| dir.join(name);

    assert_eq!(
        home.complaint(&["rm", "sh-3"]),
        format!(
            "mw: {} is being recorded\n    end the program first, or wait for its end\n",
            path("sh-3").display()
        )
    );
    end(waiting);
    assert!(home.ask(&["info", "sh-3"]).contains("state      complete"));

    // Names are all looked for before anything goes.
    home.complaint(&["rm", "sh-0", "nothing"]);
    assert_eq!(home.names().len(), 4);

    std::fs::create_dir(path("notes")).unwrap();
    std::fs::write(path("notes/text"), "mine").unwrap();
    let notes = path("notes");
    assert!(
        home.complaint(&["rm", notes.to_str().unwrap()])
            .contains("is not a recording")
    );
    assert!(notes.join("text").exists());

    // What somebody put into one stays, and all of it.
    for mine in [
        path("sh-0").join("mine.txt"),
        path("sh-0/files").join("mine"),
    ] {
        match mine.ends_with("mine") {
            true => std::fs::create_dir(&mine).unwrap(),
            false => std::fs::write(&mine, "x").unwrap(),
        }
        let said = home.complaint(&["rm", "sh-0"]);
        assert!(said.contains("is no part of a recording"), "{said}");
        home.ask(&["ps", "sh-0"]);
        if mine.is_dir() {
            std::fs::remove_dir(&mine).unwrap();
        } else {
            std::fs::remove_file(&mine).unwrap();
        }
    }
    // What commands keep beside it goes with it.
    home.ask(&["why", "-r", "sh-0", "type=exit"]);
    assert!(path("sh-0/causes").exists());
    home.ask(&["rm", "sh-0", "sh-3"]);
    assert!(!path("sh-0").exists() && !path("sh-3").exists());
    // The latest was among them: now it is the newest that is left.
    assert!(home.ask(&["info"]).contains("exit       3"));
    home.ask(&["rm", "latest"]);
    assert_eq!(home.names(), ["sh-1"]);
    home.ask(&["rm", "sh-1"]);
    assert!(home.complaint(&["info"]).contains("there is no latest one"));
}

#[test]
fn old_recordings_are_pruned() {
    let home = Home::new("prune");
    home.ask(&["prune", "--keep", "1"]);
    for _ in 0..4 {
        home.record("true");
    }
    let waiting = home.begin();
    std::fs::create_dir(home.dir().join("notes")).unwrap();
    let shown = home.ask(&["prune", "--keep", "2", "--dry-run"]);
    let shown: Vec<&str> = shown
        .lines()
        .map(|line| line.split("  ").next().unwrap())
        .collect();
    assert_eq!(shown, ["sh-0", "sh-1"]);
    assert_eq!(home.names().len(), 5);
    home.ask(&["prune", "--older", "1h"]);
    assert_eq!(home.names().len(), 5);

    home.ask(&["prune", "--keep", "3"]);
    assert_eq!(home.names(), ["sh-1", "sh-2", "sh-3", "sh-4"]);

    // Room for the last two, of which one is being made.
    home.ask(&["prune", "--to", "1T"]);
    assert_eq!(home.names().len(), 4);
    let two = du(&[home.dir().join("sh-3"), home.dir().join("sh-4")]);
    home.ask(&["prune", "--to", &two.to_string()]);
    assert_eq!(home.names(), ["sh-3", "sh-4"]);

    home.ask(&["prune", "--older", "0s"]);
    assert_eq!(home.names(), ["sh-4"]);
    home.ask(&["prune", "--to", "0"]);
    assert_eq!(home.names(), ["sh-4"]);
    end(waiting);
    assert!(home.dir().join("notes").exists());
    home.ask(&["prune", "--to", "0"]);
    assert!(home.names().is_empty());

    for wrong in [
        &["prune"][..],
        &["prune", "--keep", "1", "--to", "1G"],
        &["prune", "--older", "soon"],
        &["prune", "--to", "-1"],
    ] {
        home.complaint(wrong);
    }
}

/// In a terminal: what was shown.
fn in_terminal(home: &Home, args: &[&str], typed: Option<(&str, &str)>) -> String {
    let terminal = Terminal::new();
    let data = format!("XDG_DATA_HOME={}/data", home.scratch.path().display());
    let mut command = vec!["env", &data, MW];
    command.extend(args);
    let mut child = terminal.run(&command);
    if let Some((awaited, typed)) = typed {
        terminal.await_text(awaited, 1);
        terminal.type_in(typed);
    }
    terminal.wait(&mut child);
    std::thread::sleep(std::time::Duration::from_millis(50));
    terminal.screen()
}

#[test]
fn a_person_is_told_where_the_recording_is() {
    let home = Home::new("told");
    let screen = in_terminal(&home, &["record", "echo", "hello"], None);
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines.len(), 2, "{screen}");
    assert_eq!(lines[0], "hello");
    assert!(lines[1].starts_with("mw: recorded as echo-0: "), "{screen}");
    assert!(lines[1].contains("`mw ps`"), "{screen}");
    let path = home.scratch.path().join("there");
    let path = path.to_str().unwrap();
    let screen = in_terminal(&home, &["record", "-o", path, "true"], None);
    assert!(
        screen.starts_with(&format!("mw: recorded as {path}: ")),
        "{screen}"
    );
    assert_eq!(in_terminal(&home, &["record", "--quiet", "true"], None), "");
}

#[test]
fn a_person_is_asked_before_recordings_are_pruned() {
    let home = Home::new("asked");
    home.record("true");
    home.record("true");
    let prune = ["prune", "--keep", "0"];
    let screen = in_terminal(&home, &prune, Some(("[y/N]", "\n")));
    assert!(
        screen.contains("sh-0") && screen.contains("remove these 2 recordings"),
        "{screen}"
    );
    assert_eq!(home.names().len(), 2);
    in_terminal(&home, &prune, Some(("[y/N]", "y\n")));
    assert!(home.names().is_empty());
    home.record("true");
    in_terminal(&home, &["prune", "--keep", "0", "--yes"], None);
    assert!(home.names().is_empty());
}

/// What bash offers for a line, of which the last word is begun.
fn bash_offers(home: &Home, bash: &str, words: &[&str]) -> BTreeSet<String> {
    // The very words of an interactive shell: bash sets these, then calls the function.
    let script = r#"
        source <("$MW_PATH" completions bash)
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
        function=$(complete -p mw | sed 's/.*-F \([^ ]*\) .*/\1/')
        "$function" mw "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let path = std::env::var("PATH").unwrap();
    let beside = Path::new(MW).parent().unwrap();
    let output = Command::new(bash)
        .args(["--norc", "--noprofile", "-c", script, "bash"])
        .args(words)
        .env("XDG_DATA_HOME", home.scratch.path().join("data"))
        .env("MW_PATH", MW)
        .env("PATH", format!("{}:{path}", beside.display()))
        .current_dir(home.scratch.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim().to_string()).collect()
}

#[test]
fn shells_are_told_how_to_complete() {
    let home = Home::new("completions");
    home.record("true");
    home.record("true");
    home.ask(&["record", "true"]);
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = home.ask(&["completions", shell]);
        assert!(script.contains("MW_COMPLETE"), "{shell}: {script}");
    }
    assert!(home.complaint(&["completions", "tcsh"]).contains("tcsh"));
    let bash = tool!("bash");
    let offers = |words: &[&str]| bash_offers(&home, &bash, words);
    let set = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    let names: BTreeSet<String> = set(&["sh-0", "sh-1"]);
    assert_eq!(offers(&["mw", "info", "sh"]), names);
    assert_eq!(offers(&["mw", "why", "-r", "sh"]), names);
    assert_eq!(offers(&["mw", "rm", "t"]), set(&["true-0"]));
    assert_eq!(offers(&["mw", "pru"]), set(&["prune"]));
    assert!(offers(&["mw", "events", "--"]).contains("--recording"));
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let home = Home::new("man");
    let page = home.ask(&["man"]);
    assert!(page.contains(".TH mw 1"), "{page}");
    let dir = home.scratch.path().join("man/man1");
    home.ask(&["man", dir.to_str().unwrap()]);
    let help = home.ask(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(
        names.contains(&"record") && names.contains(&"man"),
        "{names:?}"
    );
    for name in names {
        let page = std::fs::read_to_string(dir.join(format!("mw-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let said = home.complaint(&["man", "/proc/nothing"]);
    assert!(
        said.starts_with("mw: cannot write manual pages to /proc/nothing"),
        "{said}"
    );
}

#[test]
fn what_goes_on_inside_is_told_when_asked_for() {
    let home = Home::new("log");
    home.record("true");
    let logged = |wanted: &str, args: &[&str]| {
        let output = home.mw(args).env("MW_LOG", wanted).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let record = logged("debug", &["record", "sh", "-c", "true"]);
    assert!(record.contains(" record: "), "{record}");
    assert!(!record.contains('\x1b'), "{record}");
    let index = logged("index=debug", &["why", "type=exit"]);
    assert!(index.contains(" index: "), "{index}");
    assert_eq!(logged("gdb=debug", &["why", "type=exit"]), "");
    assert!(logged("replay=debug", &["verify"]).contains(" replay: "));

    let file = home.scratch.path().join("log");
    let to_file = home
        .mw(&["record", "true"])
        .env("MW_LOG", "record=trace")
        .env("MW_LOG_FILE", &file)
        .output()
        .unwrap();
    assert!(to_file.stderr.is_empty());
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .contains(" record: ")
    );

    let wrong = home
        .mw(&["list"])
        .env("MW_LOG", "record=loud")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        said.starts_with("mw: MW_LOG is not understood: record=loud\n"),
        "{said}"
    );
}

/// A child that executes nothing is what its parent was when it was forked, whatever that
/// becomes.
#[test]
fn a_forked_process_has_the_command_of_that_time() {
    let scratch = Scratch::new("forked-command");
    let recorded = scratch.record(&["sh", "-c", "(:) ; exec cat /dev/null"]);
    let commands: Vec<_> = recorded.processes().iter().map(|p| p.command()).collect();
    let [parent, child] = &commands[..] else {
        panic!("{commands:?}");
    };
    assert_eq!(parent, &["cat", "/dev/null"]);
    assert_eq!(child, &["sh", "-c", "(:) ; exec cat /dev/null"]);
}
