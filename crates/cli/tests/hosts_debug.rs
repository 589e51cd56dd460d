//! The debugger and gdb on a program of several hosts: one program, whose processes
//! have the names of their hosts, and each the files of its own.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::joined::{debug, mw, objects, record_plan, said};
use harness::namespaces::Hosts;
use harness::prompt::has_in_order;
use harness::{Scratch, gdb, wait_for};

/// One takes what it is told to from 120, and says so; the other tells it 10, 20 and
/// 30, and gives itself a tenth of each when that was done. All of it is in turns that
/// messages put in order.
const LEDGER: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int balance, turns;
void take(int n) { balance -= n; turns++; }
void give(int n) { balance += n; turns++; }
int main(int count, char **words) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7000) };
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1, n;
    at.sin_addr.s_addr = inet_addr(words[2]);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (strcmp(words[1], "take") == 0) {
        if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 1)) return 1;
        puts("listening");
        fflush(stdout);
        int c = accept(s, 0, 0);
        balance = 120;
        while (read(c, &n, sizeof n) == sizeof n) {
            take(n);
            if (write(c, &n, sizeof n) != sizeof n) return 1;
        }
    } else {
        if (connect(s, (struct sockaddr *)&at, sizeof at)) return 1;
        balance = 5;
        for (int i = 1; i <= 3; i++) {
            n = 10 * i;
            if (write(s, &n, sizeof n) != sizeof n || read(s, &n, sizeof n) != sizeof n) return 1;
            give(n / 10);
        }
    }
    return 0;
}
"#;

fn compile(source: &Path, text: &str, program: &Path) {
    std::fs::write(source, text).unwrap();
    let made = Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([program, source])
        .status()
        .unwrap();
    assert!(made.success());
}

fn ledger(scratch: &Scratch) -> Option<PathBuf> {
    let hosts = Hosts::new(scratch, &["a", "b"])?;
    let program = scratch.path().join("ledger");
    compile(&scratch.path().join("ledger.c"), LEDGER, &program);
    let (program, address) = (program.display(), hosts.address("a"));
    let plan = format!(
        "[[run]]\nhost = \"a\"\ncommand = \"{program} take {address}\"\n\
         [[run]]\nhost = \"b\"\ncommand = \"{program} give {address}\"\n\
         after = {{ host = \"a\", says = \"listening\" }}\n"
    );
    let (dir, output) = record_plan(&hosts, scratch, &plan, true);
    assert!(output.status.success(), "{}", said(&output));
    Some(dir)
}

#[test]
fn prompt_and_gdb_lead_all_hosts() {
    let scratch = Scratch::new("hosts-debug");
    let _ = (tool!("sshd"), tool!("ip"), tool!("gdb"), tool!("cc"));
    let Some(dir) = ledger(&scratch) else {
        skip!("network namespaces take root");
    };
    one_is_verified(&dir);
    stops_and_conditions_are_of_all(&dir);
    gdb_has_all_as_inferiors(&scratch, &dir);
    gdb_goes_to_events_and_conditions(&scratch, &dir);
}

/// Where the second host sends, in order.
fn sends(dir: &Path) -> Vec<String> {
    let pattern = "host = b and call = write and send";
    let all = objects(dir, &["events", "--json", "--no-links", "-w", pattern]);
    let begun = all.iter().filter(|event| event["phase"] != "end");
    begun
        .map(|event| event["event"].as_str().unwrap().to_string())
        .collect()
}

fn one_is_verified(dir: &Path) {
    let verified = mw(dir, &["verify", "--process", "ledger-0@b"]);
    assert!(verified.contains("ledger-0@b"), "{verified}");
    assert!(!verified.contains("ledger-0@a"), "{verified}");
    assert!(mw(dir, &["verify"]).contains("all equal"));
}

/// Where the program takes, then gives, three times; and back the same way.
fn stops_and_conditions_are_of_all(dir: &Path) {
    let mut commands = vec!["break take", "break give in ledger-0@b"];
    for motion in ["continue"; 6].into_iter().chain(["reverse-continue"; 5]) {
        commands.extend([motion, "when", "print balance"]);
    }
    let said = debug(dir, &commands);
    let stops: Vec<(&str, &str)> = said[2..commands.len()]
        .chunks(3)
        .map(|own| (own[1].split(',').next().unwrap(), own[2].trim()))
        .collect();
    let value = |printed: &str| printed.rsplit(' ').next().unwrap().parse::<i64>().unwrap();
    let stops: Vec<(&str, i64)> = stops
        .into_iter()
        .map(|(process, printed)| (process, value(printed)))
        .collect();
    let there = [
        ("ledger-0@a", 120),
        ("ledger-0@b", 5),
        ("ledger-0@a", 110),
        ("ledger-0@b", 6),
        ("ledger-0@a", 90),
        ("ledger-0@b", 8),
    ];
    assert_eq!(stops[..6], there, "{said:?}");
    let back: Vec<(&str, i64)> = there[..5].iter().rev().copied().collect();
    assert_eq!(stops[6..], back, "{said:?}");
    // A state of both hosts; then an event of the other, where both are shown.
    let sends = sends(dir);
    let last = sends.last().unwrap();
    let both = "stop if value(ledger-0@a: balance) < 100 and value(ledger-0@b: balance) >= 8";
    let commands = [
        both,
        "process ledger-0@a",
        "print balance",
        "process ledger-0@b",
        "print balance",
        &format!("goto {last}"),
        "when",
        "info processes",
        "where",
    ];
    let said = debug(dir, &commands);
    assert!(said[0].contains("ledger-0@a: balance = 90"), "{said:?}");
    assert_eq!(value(said[2].trim()), 90, "{said:?}");
    assert_eq!(value(said[4].trim()), 8, "{said:?}");
    assert!(said[6].contains(last), "{said:?}");
    for (name, shown) in [("ledger-0@a", &said[7]), ("* ledger-0@b", &said[8])] {
        assert!(shown.contains(name), "{said:?}");
    }
}

fn gdb_has_all_as_inferiors(scratch: &Scratch, dir: &Path) {
    let mut script = vec!["info inferiors", "info threads", "break take", "break give"];
    script.extend(["continue"; 6]);
    script.extend(["bt", "list", "echo ==back==\\n"]);
    script.extend(["reverse-continue"; 5]);
    script.extend([
        "echo ==each==\\n",
        "thread apply all print balance",
        "inferior 1",
        "watch balance",
        "delete 1 2",
        "continue",
        "monitor where",
    ]);
    let text = gdb::run(scratch, dir, &[], &script);
    let (there, rest) = text.split_once("==back==").unwrap();
    let (back, each) = rest.split_once("==each==").unwrap();
    // Both are there, with their names.
    let inferiors = there
        .lines()
        .filter(|line| line.trim_end().ends_with("/ledger"));
    assert!(inferiors.count() >= 2, "{text}");
    for name in ["\"ledger-0@a/main-0\"", "\"ledger-0@b/main-0\""] {
        assert!(there.contains(name), "{text}");
    }
    let hits = |text: &str| -> Vec<(String, String)> {
        let lines = text
            .lines()
            .filter(|line| line.contains(" hit Breakpoint "));
        lines
            .map(|line| {
                let name = line.split('"').nth(1).unwrap().to_string();
                let call = line.split(", ").nth(1).unwrap();
                (name, call.split(" at ").next().unwrap().to_string())
            })
            .collect()
    };
    let expected: Vec<(String, String)> = (1..=3)
        .flat_map(|n| {
            [
                (
                    "ledger-0@a/main-0".to_string(),
                    format!("take (n={})", 10 * n),
                ),
                ("ledger-0@b/main-0".to_string(), format!("give (n={n})")),
            ]
        })
        .collect();
    assert_eq!(hits(there), expected, "{text}");
    has_in_order(
        there,
        &["#0  give (n=3) at", "in main (count=", "void give(int n)"],
    );
    let backwards: Vec<(String, String)> = expected[..5].iter().rev().cloned().collect();
    assert_eq!(hits(back), backwards, "{text}");
    // At the first stop: nothing was taken, and the other has what it began with.
    has_in_order(
        each,
        &[
            "Thread 2.1",
            "= 5\n",
            "Thread 1.1",
            "= 120\n",
            "Old value = 120",
            "New value = 110",
        ],
    );
    has_in_order(each, &["* ledger-0@a is ", "  ledger-0@b is "]);
}

fn gdb_goes_to_events_and_conditions(scratch: &Scratch, dir: &Path) {
    let second = &sends(dir)[1];
    let text = gdb::run(
        scratch,
        dir,
        &["--process", "ledger-0@b"],
        &[
            &format!("goto {second}"),
            "when",
            "print balance",
            "inferior 2",
            "print balance",
            "when",
            "monitor arrange stop if value(ledger-0@a: balance) == 60",
            "continue",
            "echo ==there==\\n",
            "monitor where",
            "inferior 2",
            "print balance",
        ],
    );
    let number = second.rsplit(':').next().unwrap();
    has_in_order(
        &text,
        &[
            &format!("ledger-0@b is about to do event {number}"),
            "$1 = 6\n",
            "$2 = 110\n",
            "ledger-0@a is ",
            "==there==",
            "$3 = 60\n",
        ],
    );
}

/// Two hosts whose kernels gave out the same ids, and on which different programs have
/// the same path: gdb has two inferiors, and each is shown what its own host had.
#[test]
fn hosts_may_have_the_same_ids_and_paths() {
    let scratch = Scratch::new("hosts-same");
    let _ = (tool!("unshare"), tool!("gdb"), tool!("cc"));
    if !harness::is_root() {
        skip!("namespaces take root");
    }
    let program = scratch.path().join("same");
    let (mut members, mut wanted) = (Vec::new(), None);
    for version in ["one", "two"] {
        let text = format!(
            "int {version} = 1;\nint of_{version}(void) {{ return {version}; }}\n\
             int main(void) {{ return of_{version}() - 1; }}\n"
        );
        let _ = std::fs::remove_file(&program);
        compile(
            &scratch.path().join(format!("{version}.c")),
            &text,
            &program,
        );
        // Which id it gets depends on how many threads the recorder has by then: it is
        // recorded until it has the same as the first.
        let dir = wait_for("the same id", || {
            let dir = scratch.fresh(version);
            let recorded = Command::new("unshare")
                .args(["--pid", "--fork", "--mount-proc"])
                .args([harness::MW, "record", "-o"])
                .arg(&dir)
                .arg(&program)
                .output()
                .unwrap();
            assert!(recorded.status.success(), "{}", said(&recorded));
            let pid = objects(&dir, &["ps", "--json"])[0]["pid"].clone();
            (*wanted.get_or_insert_with(|| pid.clone()) == pid).then_some(dir)
        });
        members.push(dir);
    }
    std::fs::remove_file(&program).unwrap();
    let dir = scratch.fresh("joined");
    let joined = Command::new(harness::MW)
        .arg("join")
        .args(&members)
        .args(["-o", dir.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(joined.status.success(), "{}", said(&joined));
    let rows = objects(&dir, &["ps", "--json"]);
    assert_eq!(rows[0]["pid"], rows[1]["pid"], "{rows:?}");
    assert_ne!(rows[0]["process"], rows[1]["process"], "{rows:?}");
    assert!(mw(&dir, &["verify"]).contains("all equal"));
    let text = gdb::run(
        &scratch,
        &dir,
        &[],
        &[
            "break of_one",
            "break of_two",
            "continue",
            "continue",
            "info inferiors",
            "inferior 1",
            "print one",
            "list of_one",
            "inferior 2",
            "print two",
            "list of_two",
        ],
    );
    // Neither knew of the other.
    for stop in ["Breakpoint 1, of_one ()", "Breakpoint 2, of_two ()"] {
        assert!(text.contains(stop), "{text}");
    }
    has_in_order(
        &text,
        &["$1 = 1\n", "of_one(void)", "$2 = 1\n", "of_two(void)"],
    );
}
