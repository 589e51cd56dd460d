//! The real gdb on recordings, in scripts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../inspect/tests/common/mod.rs"]
mod inspected;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use harness::processes::{Marker, VARIABLE};
use harness::prompt::{debug, has_in_order};
use harness::{MW, Recorded, Scratch, programs, wait_for};

fn transfers(scratch: &Scratch) -> Recorded {
    let program = programs::for_debuggers(scratch, "debug/transfers.c", &[]);
    scratch.record(&[program])
}

/// Runs gdb on a recording; what it says.
fn gdb(scratch: &Scratch, recorded: &Recorded, options: &[&str], script: &[&str]) -> String {
    harness::gdb::run(scratch, &recorded.dir, options, script)
}

#[test]
fn breakpoints_variables_and_steps() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-steps");
    let recorded = transfers(&scratch);
    let text = gdb(
        &scratch,
        &recorded,
        &[],
        &[
            "break transfer",
            "continue",
            "bt",
            "print *from",
            "next",
            "next",
            "finish",
            "break transfer if amount == 150",
            "delete 1",
            "continue",
            "print accounts[0].balance",
            "info registers rip",
            "disassemble $pc,+1",
            "set var accounts[0].balance = 1",
            "print accounts[0].balance",
        ],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1, transfer (from=",
            "#0  transfer (from=",
            "in main () at",
            "{id = 1, balance = 100, name = \"ann\"",
            "\n17\t",
            "\n18\t",
            "Value returned is $2 = 0",
            "Breakpoint 2, transfer (from=",
            "amount=150",
            "= 200\n",
            "<transfer+",
            // State is read-only; a script ends with its first error.
            "Error in sourced command file",
        ],
    );
    assert!(!text.contains("= 1\n"), "{text}");
}

#[test]
fn backwards() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-backwards");
    let recorded = transfers(&scratch);
    let text = gdb(
        &scratch,
        &recorded,
        &[],
        &[
            "tbreak transfers.c:28 if i == 3",
            "continue",
            "break transfer",
            "reverse-continue",
            "info args",
            "next",
            "next",
            "print from->balance",
            "reverse-next",
            "print from->balance",
            "delete",
            // Into the first line again, perhaps in several steps: a line may
            // have several pieces of code.
            "reverse-step",
            "reverse-finish",
            "stepi",
            "bt 1",
            "reverse-stepi",
            "bt 1",
            "continue",
            "reverse-continue",
            "when",
        ],
    );
    has_in_order(
        &text,
        &[
            "Temporary breakpoint 1, main ()",
            "28\t",
            "Breakpoint 2, transfer (from=",
            "amount = 150",
            "\n17\t",
            "\n18\t",
            "$1 = ",
            "\n17\t",
            "$2 = ",
            "main () at",
            "#0  transfer (",
            "#0  ",
            "main () at",
            "No more reverse-execution history",
            "No more reverse-execution history",
            "in _start ()",
            "transfers-0 is at its beginning",
        ],
    );
    let value = |name: &str| -> i64 {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("$2 = "), value("$1 = ") + 150, "{text}");
}

/// Every value that a variable gets, in whichever way, and back again.
#[test]
fn watchpoints() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-watch");
    let program = programs::for_debuggers(&scratch, "debug/watched.c", &[]);
    let recorded = scratch.record(&[program]);
    let mut script = vec!["break main", "continue", "watch watched.value"];
    script.extend(["continue"; 7]);
    script.extend(["echo ==back==\\n", "delete 1"]);
    script.extend(["reverse-continue"; 7]);
    let text = gdb(&scratch, &recorded, &[], &script);
    let (there, back) = text.split_once("==back==").unwrap();
    let values = |text: &str, mark: &str| -> Vec<i64> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        lines.map(|value| value.parse().unwrap()).collect()
    };
    let (before, after) = (values(there, "Old value = "), values(there, "New value = "));
    assert_eq!(after.len(), 7, "{text}");
    assert_eq!(before[0], 0, "{text}");
    assert_eq!(before[1..], after[..6], "{text}");
    // What it printed are the values that it had.
    let printed: Vec<i64> = recorded
        .outcome
        .stdout
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(after[..6], printed[..6], "{text}");
    // On the way back they change the other way round.
    let mut reversed = after.clone();
    reversed.reverse();
    assert_eq!(values(back, "Old value = "), reversed, "{text}");
    let mut reversed = before;
    reversed.reverse();
    assert_eq!(values(back, "New value = "), reversed, "{text}");
    has_in_order(
        there,
        &["on_signal (number=10)", "in_thread (argument=0x0)"],
    );
    has_in_order(back, &["in_thread (argument=0x0)", "on_signal (number=10)"]);
}

#[test]
fn threads() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-threads");
    let program = programs::for_debuggers(&scratch, "c/threads_mutex.c", &[]);
    let recorded = scratch.record(&[program]);
    let text = gdb(
        &scratch,
        &recorded,
        &[],
        &[
            "break count",
            "continue",
            "continue",
            "continue",
            "continue",
            "info threads",
            "echo ==all==\\n",
            "thread apply all bt",
            "echo ==step==\\n",
            "thread 1",
            "stepi",
            "reverse-stepi",
            "thread",
        ],
    );
    // Each of the four comes by.
    for name in ["thread-1", "thread-2", "thread-3", "thread-4"] {
        let hit = format!("\"threads_mutex-0/{name}\" hit Breakpoint 1, count (index=");
        assert!(text.contains(&hit), "no {hit} in\n{text}");
    }
    let (list, rest) = text.split_once("==all==").unwrap();
    let (stacks, steps) = rest.split_once("==step==").unwrap();
    assert!(list.contains("\"threads_mutex-0/main-0\" ("), "{text}");
    // The last one is at work, and the first has started it.
    has_in_order(stacks, &["count (index=", " in start_thread ("]);
    has_in_order(stacks, &[" in run (body=", " in main () at"]);
    assert!(steps.contains("[Current thread is 1 "), "{text}");
}

/// One connection, eight inferiors; motion of all and of one.
#[test]
fn all_processes() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-bank");
    let recorded = scratch.record(&[programs::bank()]);
    let mut script = vec!["info inferiors".to_string()];
    for inferior in 1..=8 {
        script.push(format!("inferior {inferior}"));
        script.push("echo ==stack==\\n".to_string());
        script.push("bt -3".to_string());
    }
    script.push("echo ==cut==\\n".to_string());
    script.push("monitor where".to_string());
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    // Before the bank waits for its clients the last time.
    let wait = recorded.events().iter().rfind(|event| {
        event.process() == "bank-0" && event.kind() == "wait" && event.phase() == "end"
    });
    let at = wait.unwrap().name().to_string();
    let text = gdb(&scratch, &recorded, &["--at", &at], &script);
    for (program, count) in [
        ("bank", 1),
        ("bank-account", 3),
        ("bank-coordinator", 1),
        ("bank-client", 3),
    ] {
        let lines = text.lines().filter(|line| {
            line.contains("process ") && line.trim_end().ends_with(&format!("/{program}"))
        });
        // In the list of inferiors, and when gdb is told what they execute.
        assert!(lines.count() >= count, "{program}:\n{text}");
    }
    let stacks = text.split("==stack==").skip(1);
    for stack in stacks.clone() {
        let is_whole = stack.contains(" in _start ()") || stack.contains(" in main ()");
        assert!(is_whole, "{stack}\n{text}");
    }
    assert_eq!(stacks.count(), 8, "{text}");
    let (_, cut) = text.split_once("==cut==").unwrap();
    let number = at.rsplit(':').next().unwrap();
    assert!(
        cut.contains(&format!("* bank-0 is about to do event {number}")),
        "{text}"
    );
    for process in recorded.processes() {
        let name = process.name();
        assert!(cut.contains(&format!(" {name} is ")), "{name}: {text}");
    }
}

/// Whoever leads, what is received was sent before; and back again.
#[test]
fn stops_come_in_the_order_of_cause_and_effect() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-order");
    let source = scratch.path().join("order.c");
    std::fs::write(
        &source,
        "#include <unistd.h>\n#include <sys/wait.h>\n\
         void sent(int n) { (void)n; }\n\
         void got(int n) { (void)n; }\n\
         int main(void) {\n\
         int p[2], n;\n\
         if (pipe(p)) return 1;\n\
         if (fork() == 0) {\n\
         for (int i = 0; i < 3; i++) { if (read(p[0], &n, sizeof n) != sizeof n) return 1; got(n); }\n\
         return 0; }\n\
         for (n = 0; n < 3; n++) { sent(n); if (write(p[1], &n, sizeof n) != sizeof n) return 1; }\n\
         wait(&n);\n\
         return 0; }\n",
    )
    .unwrap();
    let program = scratch.path().join("order");
    let made = Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(made.success());
    let recorded = scratch.record(&[program]);
    let mut script = vec!["break sent", "break got"];
    script.extend(["continue"; 7]);
    script.push("echo ==back==\\n");
    script.extend(["reverse-continue"; 7]);
    script.extend([
        "echo ==one==\\n",
        "set schedule-multiple off",
        "monitor where",
        "continue",
        "monitor where",
    ]);
    // The one that receives leads.
    let text = gdb(&scratch, &recorded, &["--process", "order-1"], &script);
    let (there, rest) = text.split_once("==back==").unwrap();
    let (back, one) = rest.split_once("==one==").unwrap();
    let hits = |text: &str| -> Vec<(bool, u32)> {
        let lines = text.lines().filter(|line| line.contains("hit Breakpoint"));
        let hit = |line: &str| {
            let n = line.split("n=").nth(1).unwrap().split(')').next().unwrap();
            (line.contains("sent (n="), n.parse().unwrap())
        };
        lines.map(hit).collect()
    };
    let forwards = hits(there);
    assert_eq!(forwards.len(), 6, "{text}");
    let place = |hits: &[(bool, u32)], what| hits.iter().position(|hit| *hit == what).unwrap();
    for n in 0..3 {
        assert!(
            place(&forwards, (true, n)) < place(&forwards, (false, n)),
            "{text}"
        );
    }
    assert!(
        there.contains("No more reverse-execution history"),
        "{text}"
    );
    let backwards = hits(back);
    assert_eq!(backwards.len(), 6, "{text}");
    for n in 0..3 {
        assert!(
            place(&backwards, (false, n)) < place(&backwards, (true, n)),
            "{text}"
        );
    }
    assert!(back.contains("No more reverse-execution history"), "{text}");
    // One alone: the other stays where it is.
    assert_eq!(hits(one).len(), 1, "{text}");
    let beginnings = one.matches(" is at its beginning").count();
    assert_eq!(beginnings, 3, "{text}");
}

/// A program that executes another: gdb follows, forwards and back.
#[test]
fn programs_that_execute_others() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-exec");
    let program = programs::for_debuggers(&scratch, "debug/transfers.c", &[]);
    let line = format!("exec {}", program.display());
    let recorded = scratch.record(&["/bin/sh", "-c", &line]);
    let text = gdb(
        &scratch,
        &recorded,
        &[],
        &[
            "break transfer",
            "continue",
            "bt",
            "delete",
            "reverse-continue",
            "info inferiors",
        ],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1 (transfer) pending.",
            "is executing new program: ",
            "Breakpoint 1, transfer (from=",
            "in main () at",
            "is executing new program: ",
            "No more reverse-execution history",
        ],
    );
    let last = text.lines().rfind(|line| line.starts_with("* 1 ")).unwrap();
    assert!(!last.contains("transfers"), "{text}");
    // A process begins where the program that it is named after does.
    let name = recorded.processes()[0].name().to_string();
    let text = gdb(
        &scratch,
        &recorded,
        &["--process", &name],
        &["break transfer", "continue", "bt"],
    );
    has_in_order(
        &text,
        &["Breakpoint 1 at ", "Breakpoint 1, transfer (from="],
    );
    assert!(!text.contains("executing new program"), "{text}");
}

#[test]
fn the_original_is_gone() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-gone");
    let recorded = transfers(&scratch);
    let program = scratch.path().join("transfers");
    std::fs::remove_file(&program).unwrap();
    let text = gdb(
        &scratch,
        &recorded,
        &[],
        &["break transfer", "continue", "bt", "info sharedlibrary"],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1, transfer (from=",
            "#1  ",
            "in main () at",
            "target:",
            "libc.so.6",
        ],
    );
}

#[test]
fn places_in_time() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-places");
    let recorded = transfers(&scratch);
    let writes: Vec<String> = recorded
        .events()
        .iter()
        .filter(|event| event.call() == "write" && event.phase() != "end")
        .map(|event| event.name().to_string())
        .collect();
    let goto = format!("goto {}", writes[4]);
    let text = gdb(
        &scratch,
        &recorded,
        &["--at", &writes[1]],
        &[
            "when",
            "up-silently 20",
            "print i",
            &goto,
            "when",
            "up-silently 20",
            "print i",
            "goto nobody:1",
            "when",
            "goto end",
            "when",
            "goto start",
            "when",
            "run",
            "monitor nonsense",
            "monitor help",
        ],
    );
    let number = |event: &str| event.rsplit(':').next().unwrap().to_string();
    has_in_order(
        &text,
        &[
            &format!("transfers-0 is about to do event {}", number(&writes[1])),
            "$1 = 1",
            &format!("transfers-0 is about to do event {}", number(&writes[4])),
            "$2 = 4",
            "the recording has no process `nobody`",
            &format!("transfers-0 is about to do event {}", number(&writes[4])),
            "transfers-0 is at its end",
            "transfers-0 is at its beginning",
            "there is no monitor command `nonsense`",
            "goto EVENT|start|end",
        ],
    );
}

#[test]
fn conditions_over_several_processes() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-conditions");
    let program = programs::for_debuggers(&scratch, "debug/ledger.c", &["-static"]);
    let recorded = scratch.record(&[program]);
    let text = gdb(
        &scratch,
        &recorded,
        &[],
        &[
            "monitor stop if value(ledger-0: accounts[0]) < 100 and value(ledger-1: limit) >= 8",
            "maintenance flush register-cache",
            "print accounts[0]",
            "monitor rstop if value(ledger-0: accounts[0]) == 110",
            "maintenance flush register-cache",
            "print accounts[0]",
            "monitor rstop if value(ledger-0: accounts[0]) == 60",
            "monitor stop if sned",
        ],
    );
    has_in_order(
        &text,
        &[
            "ledger-0: accounts[0] = 90",
            "ledger-1: limit = 8",
            "$1 = 90",
            "accounts[0] = 110",
            "$2 = 110",
            "there is no such state in this direction",
            "did you mean `send`?",
        ],
    );
}

#[test]
fn letting_go_leaves_nothing_behind() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-detach");
    let recorded = transfers(&scratch);
    for last in ["detach", "kill", "disconnect", "quit"] {
        let text = gdb(
            &scratch,
            &recorded,
            &[],
            &["break transfer", "continue", last],
        );
        has_in_order(&text, &["Breakpoint 1, transfer (from="]);
    }
}

/// A client that speaks the protocol by hand.
struct Client {
    server: Child,
    stream: TcpStream,
}

impl Client {
    fn new(recorded: &Recorded) -> Client {
        let mut server = Command::new(MW)
            .args(["serve-gdb", "--once"])
            .arg(&recorded.dir)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("listening at ").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(harness::LIMIT)).unwrap();
        Client { server, stream }
    }

    fn send(&mut self, data: &str) {
        let sum = data.bytes().fold(0u8, |sum, byte| sum.wrapping_add(byte));
        write!(self.stream, "${data}#{sum:02x}").unwrap();
    }

    fn receive(&mut self) -> String {
        let mut byte = || {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            byte[0]
        };
        while byte() != b'$' {}
        let mut data = Vec::new();
        loop {
            match byte() {
                b'#' => break,
                other => data.push(other),
            }
        }
        byte();
        byte();
        String::from_utf8_lossy(&data).into_owned()
    }

    fn ask(&mut self, data: &str) -> String {
        self.send(data);
        self.receive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A loop that takes long, without a system call in it: the interruption
/// comes while it runs.
#[test]
fn ctrl_c() {
    let scratch = Scratch::new("gdb-interrupt");
    let source = scratch.path().join("spin.c");
    std::fs::write(
        &source,
        "volatile unsigned long n;\n\
         int main(int argc, char **argv) {\n\
         while (n < 1000000000ul) { n++; if (argc > 1) break; }\n\
         return 0; }\n",
    )
    .unwrap();
    let program = scratch.path().join("spin");
    let made = Command::new("cc")
        .args(["-g", "-O1", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(made.success());
    let recorded = scratch.record(&[program]);
    let mut client = Client::new(&recorded);
    assert!(
        client
            .ask("qSupported:multiprocess+")
            .contains("ReverseStep+")
    );
    let here = client.ask("?");
    let thread = here.split("thread:").nth(1).unwrap();
    let thread = thread.trim_end_matches(';').to_string();
    // A breakpoint that is never come to: it runs in steps that can be told
    // apart, which is slow.
    assert_eq!(client.ask("Z0,1000,1"), "OK");
    client.send("vCont;c");
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.stream.write_all(&[3]).unwrap();
    let stop = client.receive();
    assert!(stop.starts_with("T02"), "{stop}");
    assert!(stop.contains(&thread), "{stop}");
    // It stands, and can be looked at.
    assert!(client.ask("g").len() > 500);
    assert!(client.ask("vCont;s").starts_with("T05"));
    // One that comes when nothing runs is forgotten.
    client.stream.write_all(&[3]).unwrap();
    assert!(client.ask("vCont;s").starts_with("T05"));
    // The client goes away while it runs.
    client.send("vCont;c");
    client.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let status = wait_for("the end of the server", || {
        client.server.try_wait().unwrap()
    });
    assert!(status.success());
}

#[test]
fn bad_packets_are_answered() {
    let scratch = Scratch::new("gdb-packets");
    let recorded = transfers(&scratch);
    let mut client = Client::new(&recorded);
    for (packet, answer) in [
        ("qSupported", "PacketSize="),
        ("vMustReplyEmpty", ""),
        ("Hgp1.1", "E03"),
        ("m0,8", "E0e"),
        ("mzz,8", "E16"),
        ("M401000,1:00", "E1e"),
        ("G00", "E1e"),
        ("Z3,1000,8", ""),
        ("Z2,1000,10000", "E1c"),
        ("vFile:open:2f6574632f706173737764,0,0", "F-1,2"),
        ("vFile:open:2f746d702f78,1,1ff", "F-1,1e"),
        ("vFile:pread:7,10,0", "F-1,9"),
        ("qXfer:exec-file:read:ffff:0,100", "E00"),
        ("qXfer:nonsense:read::0,100", ""),
        ("vKill;ffffff", "E03"),
        ("g", ""),
    ] {
        let found = client.ask(packet);
        match answer {
            "" if packet == "g" => assert!(found.len() > 500),
            "" => assert_eq!(found, "", "{packet}"),
            answer => assert!(found.starts_with(answer), "{packet}: {found}"),
        }
    }
    // A wrong sum is asked for again.
    client.stream.write_all(b"$g#00").unwrap();
    let mut byte = [0];
    client.stream.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"-");
}

#[test]
fn mistakes_are_told() {
    let scratch = Scratch::new("gdb-mistakes");
    let recorded = transfers(&scratch);
    let dir = recorded.dir.to_str().unwrap();
    for (arguments, message) in [
        (
            vec!["gdb", dir, "--process", "transfer-0"],
            "the recording has no process `transfer-0`",
        ),
        (
            vec!["gdb", dir, "--at", "transfers-0:999999"],
            "transfers-0 has no event 999999",
        ),
        (
            vec!["serve-gdb", dir, "--at", "nonsense"],
            "the pattern is wrong at column 1",
        ),
        (vec!["gdb", "/nonexistent"], "/nonexistent"),
        (
            vec!["gdb", dir, "--gdb", "no-such-gdb"],
            "there is no program `no-such-gdb`",
        ),
        (
            vec!["serve-gdb", dir, "--listen", "nowhere"],
            "cannot listen at nowhere",
        ),
        (
            vec!["serve-gdb", dir, "--unix", "/nonexistent/socket"],
            "cannot listen at /nonexistent/socket",
        ),
    ] {
        let output = Command::new(MW).args(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
        assert!(text.lines().count() <= 2, "{arguments:?}: {text}");
    }
}

/// gdb is killed: what it started ends, too.
#[test]
fn gdb_is_killed() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-killed");
    let recorded = transfers(&scratch);
    let marker = Marker::unique();
    let mut child = Command::new(MW)
        .arg("gdb")
        .arg(&recorded.dir)
        .args(["--", "-nx", "--interpreter=mi"])
        .env(VARIABLE, marker.value())
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("*stopped") {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "gdb does not come up");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the end of what gdb started", || {
        let left = marker.processes();
        left.is_empty().then_some(())
    });
    let left = std::fs::read_dir(scratch.path()).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let rooms: Vec<String> = names.filter(|name| name.starts_with("mw-gdb-")).collect();
    assert!(rooms.is_empty(), "{rooms:?}");
}

/// A number that looks random, and the same every time.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// The stacks in a text: lines that begin with a number, one after the other.
fn stack(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(str::trim_end).collect()
}

/// The variables in a text that are plain numbers, by name.
fn numbers(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parts = lines.filter_map(|line| line.trim_end().split_once(" = "));
    parts
        .filter(|(_, value)| value.trim_start_matches('-').parse::<f64>().is_ok())
        .collect()
}

/// Whether a frame is gdb's, wherever gdb has a value.
fn is_equal(ours: &str, gdbs: &str) -> bool {
    use inspected::normal::{unread, without_entry_values};
    let plain = |line: &str| without_entry_values(&unread(line));
    let (ours, gdbs) = (plain(ours), plain(gdbs));
    let mut pieces = gdbs.split("<optimized out>");
    let mut rest = match ours.strip_prefix(pieces.next().unwrap()) {
        Some(rest) => rest,
        None => return false,
    };
    let mut last = "";
    for piece in pieces {
        last = piece;
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    match gdbs.contains("<optimized out>") {
        true => ours.ends_with(last),
        false => rest.is_empty(),
    }
}

/// A frame's number, address, function and line.
fn without_arguments(line: &str) -> String {
    let function = line.split(" (").next().unwrap();
    let place = line.rsplit_once(") ").map_or("", |(_, place)| place);
    format!("{function} {place}")
}

/// At random places, from the dynamic linker's beginning on, the prompt's
/// stack is gdb's, and so are the variables that are numbers.
fn compare_stacks(source: &'static str, level: u8, seed: u64) {
    let mut seed = inspected::seed::seed(&format!("stacks of {source} -O{level}"), seed);
    // Over 200 in all.
    const STOPS: usize = 35;
    let scratch = Scratch::new("gdb-stacks");
    let program = inspected::Build { source, level }.compile();
    let recorded = scratch.record(&[program]);
    let name = recorded.processes()[0].name().to_string();
    let events = recorded.events();
    let events = events.iter().map(|event| event.number());
    let (first, last) = (events.clone().min().unwrap(), events.max().unwrap());
    let mut script = Vec::new();
    let begins = match source.ends_with(".rs") {
        true => "break values::main",
        false => "break main",
    };
    let text = debug(&recorded, &[begins, "continue"]).0;
    let mark = format!("before {name}:");
    let main = text.split(&mark).nth(1).unwrap().lines().next().unwrap();
    let main: u64 = main.trim().parse().unwrap();
    for stop in 0..STOPS {
        // Most of them in the program, some in the dynamic linker.
        let first = if stop % 4 == 0 { first } else { main };
        let event = first + random(&mut seed) % (last - first);
        let steps = random(&mut seed) % 300;
        script.push("echo ==stop==\\n".to_string());
        script.push(format!("goto {name}:{event}"));
        if steps > 0 {
            script.push(format!("stepi {steps}"));
        }
        script.extend(["bt", "info locals"].map(String::from));
    }
    let lines: Vec<&str> = script.iter().map(String::as_str).collect();
    let theirs = gdb(&scratch, &recorded, &[], &lines);
    let ours = debug(&recorded, &lines).0;
    let parts = |text: &str| -> Vec<String> {
        let parts = text.split("==stop==").skip(1);
        parts.map(str::to_string).collect()
    };
    let (ours, theirs) = (parts(&ours), parts(&theirs));
    assert_eq!((ours.len(), theirs.len()), (STOPS, STOPS));
    let stops = script.split(|line| line.starts_with("echo")).skip(1);
    let mut differences = Vec::new();
    let mut values = 0;
    for ((stop, ours), theirs) in stops.zip(&ours).zip(&theirs) {
        let (own, gdbs) = (stack(ours), stack(theirs));
        let same_values = numbers(theirs).iter().all(|(name, value)| {
            values += 1;
            let mut ours = ours
                .lines()
                .filter_map(|line| line.trim_end().split_once(" = "));
            ours.any(|(n, v)| n == *name && v == *value)
        });
        // Where functions are inlined, gdb reads what one was entered with in a
        // wrong frame (`fbp=fbp@entry=0x7ffe10` there, `header=0x8`, which is
        // `&fbp->buf`, here); the dynamic linker is full of them.
        let is_linker = gdbs
            .iter()
            .any(|line| line.contains(" from /lib64/ld-linux"));
        let same_frame = |a: &str, b: &str| match is_linker {
            true => without_arguments(a) == without_arguments(b),
            false => is_equal(a, b),
        };
        let equal = own.len() == gdbs.len() && own.iter().zip(&gdbs).all(|(a, b)| same_frame(a, b));
        if own.is_empty() || !equal || !same_values {
            differences.push(format!("{stop:?}\nours:\n{ours}\ngdb's:\n{theirs}"));
        }
    }
    assert!(
        differences.is_empty(),
        "{source} -O{level}: {} of {STOPS} stops\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(level > 0 || values > 0);
}

/// Rust moves a parameter of what it inlines into a variable of the same name, and says of the
/// parameter itself nothing.
#[test]
fn parameters_that_were_moved_are_shown() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-moved");
    let source = "values.rs";
    let program = inspected::Build { source, level: 0 }.compile();
    let recorded = scratch.record(&[program]);
    // A map of the standard library is taken apart when `main` ends. gdb does not know its
    // functions by the names that people write.
    let begins = "break hashbrown::raw::RawTableInner::drop_elements";
    let text = debug(&recorded, &[begins]).0;
    let address = text.split("Breakpoint 1 at ").nth(1).unwrap();
    let begins = format!("break *{}", address.split(':').next().unwrap());
    let mut lines = vec![begins.as_str(), "continue"];
    for _ in 0..60 {
        lines.extend(["stepi 2", "bt 1"]);
    }
    let (theirs, ours) = (
        gdb(&scratch, &recorded, &[], &lines),
        debug(&recorded, &lines).0,
    );
    let (theirs, ours) = (stack(&theirs), stack(&ours));
    let is_moved = |line: &&str| line.contains("add<u8> (self=") && line.contains("count=16)");
    assert!(theirs.iter().any(is_moved), "{theirs:#?}");
    assert_eq!(ours.len(), theirs.len());
    for (own, gdbs) in ours.iter().zip(&theirs) {
        assert!(is_equal(own, gdbs), "{own}\n{gdbs}");
    }
}

macro_rules! stacks {
    ($($name:ident: $source:literal, $level:literal;)*) => {$(
        #[test]
        fn $name() {
            tool!("gdb");
            compare_stacks($source, $level, 0x1234_5678_9abc_def1 + $level);
        }
    )*};
}

stacks! {
    stacks_of_c: "basics.c", 0;
    stacks_of_optimized_c: "basics.c", 2;
    stacks_of_cpp: "shapes.cpp", 0;
    stacks_of_optimized_cpp: "shapes.cpp", 2;
    stacks_of_rust: "values.rs", 0;
    stacks_of_optimized_rust: "values.rs", 2;
}

/// What stands behind the address and the mark of where it is, of each
/// instruction that a text shows.
fn instructions(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .map(|line| line.trim_start_matches("=>").trim());
    let shown = lines.filter(|line| line.starts_with("0x") && line.contains(":\t"));
    // gdb makes up names for entries of jump tables that have none.
    let named = shown.map(|line| line.split(" <*ABS*").next().unwrap());
    named.map(str::to_string).collect()
}

/// A program without debug information, as a distribution has it: stacks,
/// symbols and instructions are gdb's all the same.
#[test]
fn redis_without_debug_information() {
    tool!("gdb");
    let (server, cli) = (tool!("redis-server"), tool!("redis-cli"));
    let scratch = Scratch::new("gdb-redis");
    let socket = scratch.path().join("socket");
    let (socket, log) = (socket.display(), scratch.path().join("log"));
    let script = format!(
        "{server} --port 0 --unixsocket {socket} --save '' --logfile '{}' &
        until {cli} -s {socket} ping; do sleep 0.1; done
        {cli} -s {socket} set answer 42
        {cli} -s {socket} get answer
        {cli} -s {socket} rpush list a b c
        {cli} -s {socket} shutdown nosave
        wait",
        log.display()
    );
    let recorded = scratch.record(&["sh", "-c", &script]);
    let name = "redis-server-0";
    // From where it begins to wait for clients. gdb moves one of its threads on,
    // the prompt all of them: so it is gone to events, no further.
    let own = |e: &harness::Event| e.process() == name && e.thread() == "main-0";
    let waits = recorded.all(|e| own(e) && e.call() == "epoll_wait").next();
    let first = waits.unwrap().number();
    let events = recorded.all(|e| own(e) && e.number() >= first);
    let events: Vec<u64> = events.map(|event| event.number()).collect();
    let mut seed = inspected::seed::seed("stops of redis", 0x1234_5678_9abc_def1);
    let mut lines = vec![format!("goto {name}:{first}")];
    for function in ["processCommand", "addReply"] {
        lines.extend([
            "echo ==stop==\\n".to_string(),
            format!("tbreak {function}"),
            "continue".to_string(),
        ]);
        lines.extend(["bt", "x/5i $pc", "info symbol $pc"].map(String::from));
    }
    for _ in 0..12 {
        let event = events[random(&mut seed) as usize % events.len()];
        lines.extend([
            "echo ==stop==\\n".to_string(),
            format!("goto {name}:{event}"),
        ]);
        lines.extend(["bt", "x/5i $pc", "info symbol $pc"].map(String::from));
    }
    let mut own = vec![format!("process {name}")];
    own.extend(lines.clone());
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let (ours, status) = debug(&recorded, &own);
    assert_eq!(status, 0, "{ours}");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let theirs = gdb(&scratch, &recorded, &["--process", name], &lines);
    let parts = |text: &str| -> Vec<String> {
        let parts = text.split("==stop==").skip(1);
        parts.map(str::to_string).collect()
    };
    let (ours, theirs) = (parts(&ours), parts(&theirs));
    assert_eq!((ours.len(), theirs.len()), (14, 14));
    // The symbol of an address, and how far behind it that is. Functions of the
    // C library have several names; which one is taken is a matter of taste.
    let symbol = |text: &str| {
        let line = text
            .lines()
            .find(|l| l.contains(" of /") || l.starts_with("No symbol"));
        let line = line.unwrap_or_default();
        let symbol = line.split(" in section ").next().unwrap_or_default();
        let symbol = symbol.split(" of /").next().unwrap_or_default();
        let (name, offset) = symbol.split_once(" + ").unwrap_or((symbol, ""));
        let name = if line.contains("redis") { name } else { "" };
        (name.to_string(), offset.to_string())
    };
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let (own, gdbs) = (stack(ours), stack(theirs));
        let equal = own.len() == gdbs.len() && own.iter().zip(&gdbs).all(|(a, b)| is_equal(a, b));
        assert!(equal && !own.is_empty(), "ours:\n{ours}\ngdb's:\n{theirs}");
        let (own, gdbs) = (instructions(ours), instructions(theirs));
        assert_eq!(own.len(), 5, "{ours}");
        assert_eq!(own, gdbs, "ours:\n{ours}\ngdb's:\n{theirs}");
        assert_eq!(
            symbol(ours),
            symbol(theirs),
            "ours:\n{ours}\ngdb's:\n{theirs}"
        );
    }
    // Functions that it exports are there by name.
    has_in_order(&ours[0], &["Breakpoint ", "processCommand", " in main ()"]);
}

/// lldb as a client: stops, stacks, variables, steps and watchpoints. It is
/// large, and not needed for anything else: where it is not, this is not tested.
#[test]
fn lldb() {
    let Some(lldb) = harness::find_tool("lldb") else {
        skip!("lldb is not installed");
    };
    let scratch = Scratch::new("gdb-lldb");
    let program = programs::for_debuggers(&scratch, "debug/transfers.c", &[]);
    let recorded = scratch.record(&[&program]);
    let mut server = Command::new(MW)
        .args(["serve-gdb", "--once"])
        .arg(&recorded.dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening at ").unwrap();
    let create = format!("target create {}", program.display());
    let connect = format!("gdb-remote {address}");
    let mut command = Command::new(lldb);
    command.args(["--no-lldbinit", "--batch"]);
    for line in [
        &create,
        &connect,
        "breakpoint set -n transfer",
        "continue",
        "bt",
        "frame variable amount",
        "next",
        "finish",
        "watchpoint set variable accounts[0].balance",
        "breakpoint delete 1",
        "continue",
        "thread list",
        "detach",
    ] {
        command.args(["-o", line]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(server.wait().unwrap().success());
    has_in_order(
        &String::from_utf8_lossy(&output.stdout),
        &[
            "stop reason = breakpoint 1.1",
            "frame #0:",
            "transfer(from=",
            "frame #1:",
            "main at transfers.c:26",
            "(long) amount = 0",
            "stop reason = step over",
            "transfers.c:17",
            "stop reason = step out",
            "Watchpoint 1 hit:",
            "stop reason = watchpoint 1",
            "thread #1: tid = ",
            "detached",
        ],
    );
}
