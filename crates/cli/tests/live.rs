//! Programs that are alive: joined, looked at, stopped, changed, and left unharmed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::process::{Command, Stdio};

use harness::alive::{Service, mw, program};
use harness::prompt::has_in_order;
use harness::{MW, Scratch, is_root, programs, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// The service is joined, commands are executed, it is left: what was printed. It is
/// unharmed then.
fn joined(scratch: &Scratch, commands: &[&str]) -> String {
    let service = Service::start(scratch, &[]);
    let (text, status) = mw("attach", &[service.pid.to_string()], commands);
    assert_eq!(status, 0, "{text}");
    let said = service.end();
    assert!(said.contains("unharmed"), "{said}\n{text}");
    text
}

#[test]
fn a_service_is_looked_at_and_left() {
    let scratch = Scratch::new("live-look");
    let text = joined(
        &scratch,
        &[
            "processes",
            "threads",
            "thread waiter",
            "bt",
            "print accounts[0]",
            "info signals SIGTERM",
            "detach",
        ],
    );
    has_in_order(
        &text,
        &[
            "* alive-",
            "3 threads",
            "waiter",
            "waits in epoll_wait",
            "worker",
            "waiter (",
            "{id = 1, balance = ",
            "SIGTERM",
            "on_term",
            "runs on.",
        ],
    );
}

#[test]
fn breakpoints_conditions_and_steps() {
    let scratch = Scratch::new("live-steps");
    let text = joined(
        &scratch,
        &[
            "break handle if turn % 50 == 7",
            "continue",
            "print turn % 50",
            "bt 2",
            "next",
            "next",
            "print before",
            "finish",
            "stepi",
            "tbreak answer",
            "delete 1",
            "until handle",
            "info registers rip",
        ],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1 at",
            "Breakpoint 1\n",
            "worker, halted",
            "handle at",
            "$1 = 7",
            "#0  handle (turn=",
            "in worker (",
            "long before = account->balance",
            "account->balance = before + 1",
            "$2 = ",
            "worker at",
            "handle at",
            "rip",
        ],
    );
}

#[test]
fn conditions_that_are_false_are_passed_quickly_and_counted_right() {
    let scratch = Scratch::new("live-conditions");
    let text = joined(
        &scratch,
        &[
            "tbreak handle",
            "continue",
            "set var turns = 1000",
            "break handle if turn == 1500",
            "continue",
            "print turns",
            "ignore 2 0",
            "condition 2 turns >= 1600",
            "continue",
            "print turns",
        ],
    );
    has_in_order(&text, &["= 1500", "= 1600"]);
}

/// Those of one name run on; the others stand meanwhile.
#[test]
fn a_family_is_moved_by_its_name() {
    let scratch = Scratch::new("live-family");
    let program = programs::for_debuggers(&scratch, "debug/ticking.c", &[]);
    let start = |name: &str| {
        let file = scratch.path().join(name);
        std::fs::hard_link(&program, &file).unwrap();
        move || Command::new(&file).stdout(Stdio::null()).spawn().unwrap()
    };
    let (server, other) = (start("server-like"), start("other"));
    let mut children = [server(), server(), other()];
    wait_for("their names", || {
        let named = |child: &std::process::Child| {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
            comm != "live\n" && !comm.starts_with("a_family")
        };
        children.iter().all(named).then_some(())
    });
    let pids: Vec<String> = children
        .iter()
        .map(|child| child.id().to_string())
        .collect();
    let looks = |commands: &mut Vec<String>| {
        for (pid, name) in pids.iter().zip(["server-like", "server-like", "other"]) {
            commands.extend([format!("process {name}-{pid}"), "print looks".to_string()]);
        }
    };
    let mut commands = vec!["resume 300ms".to_string()];
    looks(&mut commands);
    // Whoever is at hand: the leader is one of them.
    commands.push(format!(
        "break look in server-like-{} if looks == until",
        pids[1]
    ));
    commands.push(format!("process server-like-{}", pids[1]));
    commands.push("set var until = looks + 300".to_string());
    commands.push(format!("process other-{}", pids[2]));
    commands.push("continue -only server-*".to_string());
    commands.push("print looks == until".to_string());
    looks(&mut commands);
    commands.push("delete".to_string());
    commands.push("continue -only nobody-*".to_string());
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let (text, status) = mw("attach", &pids, &commands);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(status, 2, "{text}");
    assert!(
        text.contains("no process that could move is called `nobody-*`"),
        "{text}"
    );
    let shown: Vec<i64> = text
        .lines()
        .filter_map(|line| line.strip_prefix('$')?.split_once(" = ")?.1.parse().ok())
        .collect();
    let [a, b, c, is_there, a_then, b_then, c_then] = shown[..] else {
        panic!("{text}")
    };
    assert_eq!((b_then - b, is_there, c_then), (300, 1, c), "{text}");
    assert!(a_then > a, "{text}");
}

#[test]
fn memory_is_watched() {
    let scratch = Scratch::new("live-watch");
    let text = joined(
        &scratch,
        &[
            "watch accounts[1].balance",
            "continue",
            "continue",
            "info watchpoints",
        ],
    );
    let values: Vec<i64> = text
        .lines()
        .filter_map(|line| line.split_once(" value = "))
        .map(|(_, value)| value.parse().unwrap())
        .collect();
    assert_eq!(values.len(), 4, "{text}");
    assert_eq!(values[1], values[0] + 1, "{text}");
    assert_eq!(values[2], values[1], "{text}");
    assert_eq!(values[3], values[2] + 1, "{text}");
    assert!(text.contains("hit 2 times"), "{text}");
}

/// More than the processor has registers for.
#[test]
fn much_memory_is_watched_by_stepping() {
    let scratch = Scratch::new("live-watch-much");
    let text = joined(&scratch, &["watch accounts", "continue"]);
    has_in_order(&text, &["Watchpoint 1: accounts", "Old value", "New value"]);
}

#[test]
fn calls_and_signals_are_caught() {
    let scratch = Scratch::new("live-catch");
    let service = Service::start(&scratch, &[]);
    let (text, status) = mw(
        "attach",
        &[service.pid.to_string()],
        &[
            "catch syscall write",
            "continue",
            "bt",
            "delete",
            "catch syscall clock_nanosleep",
            "continue -only",
            "delete",
            "catch signal SIGUSR1",
            &format!("shell kill -USR1 {}", service.pid),
            "continue",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "about to call write",
            "about to call clock_nanosleep",
            "about to get SIGUSR1",
        ],
    );
    let said = service.end();
    assert!(
        said.contains("unharmed") && said.contains("1 signals"),
        "{said}"
    );
}

/// A signal that would come is kept from the program, and one comes that nobody sent.
#[test]
fn signals_are_kept_back_and_sent() {
    let scratch = Scratch::new("live-signals");
    let service = Service::start(&scratch, &[]);
    let (text, status) = mw(
        "attach",
        &[service.pid.to_string()],
        &[
            "catch signal SIGUSR1",
            &format!("shell kill -USR1 {}", service.pid),
            "continue",
            "delete",
            "tbreak handle",
            "signal 0",
            "tbreak handle",
            "thread 0",
            "signal SIGUSR1",
            "tbreak handle",
            "thread 0",
            "signal SIGUSR1",
        ],
    );
    assert_eq!(status, 0, "{text}");
    let said = service.end();
    assert!(
        said.contains("unharmed") && said.contains("2 signals"),
        "{said}\n{text}"
    );
}

#[test]
fn variables_are_set_and_functions_called() {
    let scratch = Scratch::new("live-change");
    let text = joined(
        &scratch,
        &[
            "tbreak handle",
            "continue",
            "call square(7)",
            "print turn",
            "next",
        ],
    );
    has_in_order(&text, &["$1 = 49", "$2 = ", "handle at"]);
    let service = Service::start(&scratch, &[]);
    let (text, status) = mw(
        "attach",
        &[service.pid.to_string()],
        &[
            "set var accounts[2].balance = 7000",
            "print accounts[2].balance",
            "set accounts[2].name = accounts[0].name",
            "print accounts[2].name",
            "tbreak square",
            "thread worker",
            "up",
            "set $rip = 1",
        ],
    );
    // A register of an outer frame cannot be set; the rest was done.
    assert_eq!(status, 2, "{text}");
    has_in_order(
        &text,
        &["= 7000", "= 7000", "= \"ann", "there is no register `rip`"],
    );
    assert!(service.end().contains("unharmed"));
}

/// A function that crashes leaves no trace.
#[test]
fn a_call_that_fails_is_undone() {
    let scratch = Scratch::new("live-call");
    for word in ["attach", "attach --observe"] {
        // By a thread that computes, and by one that waits in a call.
        for place in [["tbreak handle", "continue"], ["thread waiter", "bt 1"]] {
            let service = Service::start(&scratch, &[]);
            let commands = ["print harmed", place[0], place[1], "call abort()"];
            let (text, status) = mw(word, &[service.pid.to_string()], &commands);
            assert_eq!(status, 2, "{word}: {text}");
            assert!(
                text.contains("SIGABRT came") || text.contains("cannot be called"),
                "{word}: {text}"
            );
            assert!(service.end().contains("unharmed"), "{word}: {text}");
        }
    }
}

#[test]
fn a_program_is_run_from_its_beginning() {
    let scratch = Scratch::new("live-run");
    let (text, status) = mw(
        "run",
        &[program(&scratch)],
        &[
            "break main",
            "continue",
            "next",
            "break answer",
            "continue",
            "bt 1",
            "delete",
            "break handle",
            "continue",
            "processes",
            "set var limit = 5",
            "delete",
            "continue",
            "bt",
            "continue",
            "processes",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Breakpoint 1\n",
            "main at",
            "Breakpoint 2\n",
            "answers-",
            "#0  answer (",
            "Breakpoint 3\n",
            "* alive-",
            "answers-",
            "is about to get SIGABRT",
            "in worker",
            "was ended by SIGABRT",
            "ended",
        ],
    );
}

#[test]
fn programs_that_are_executed_are_followed() {
    let scratch = Scratch::new("live-exec");
    let service = program(&scratch);
    // Who begins stays, whoever executes first.
    let line = format!("{} & exec sleep 1000", service.display());
    let (text, status) = mw(
        "run",
        &["/bin/sh", "-c", &line],
        &[
            "break handle",
            "catch exec",
            "continue",
            "delete 2",
            "continue",
            "bt 1",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "not in the code that sh-",
            "has begun another program",
            "Breakpoint 1",
            "#0  handle (turn=",
        ],
    );
}

/// Whoever is first, in whatever order the kernel tells of them: each thread of each
/// process that comes while the others run comes to the breakpoints, once.
#[test]
fn nobody_is_missed_in_a_storm_of_processes() {
    const PROCESSES: usize = 8;
    const THREADS: usize = 6;
    let scratch = Scratch::new("live-storm");
    let storm = programs::for_debuggers(&scratch, "debug/storm.c", &["-ldl"]);
    let library = scratch.path().join("storm.so");
    let made = Command::new("cc")
        .args(["-g", "-O0", "-shared", "-fPIC", "-DLIBRARY", "-o"])
        .arg(&library)
        .arg(programs::sources().join("debug/storm.c"))
        .status()
        .unwrap();
    assert!(made.success());
    let words = [
        storm.display().to_string(),
        library.display().to_string(),
        PROCESSES.to_string(),
        THREADS.to_string(),
    ];
    let commands = ["trace in_thread", "trace in_library", "continue"];
    // Under an agent a thread that is led past a breakpoint may have to wait for one that
    // was stopped in the monitor.
    for how in ["run", "run --observe"] {
        let (text, status) = mw(how, &words, &commands);
        assert_eq!(status, 0, "{how}: {text}");
        assert!(text.contains(&format!("0 of {PROCESSES} failed")), "{text}");
        let passed = |function: &str| {
            let shown = text.lines().filter(|line| line.contains(function));
            shown.filter(|line| line.contains("number=")).count()
        };
        assert_eq!(passed("in_thread ("), PROCESSES * THREADS, "{how}: {text}");
        assert_eq!(passed("in_library ("), PROCESSES, "{how}: {text}");
    }
}

/// A debug file that is of another build is told, and not believed.
#[test]
fn a_debug_file_of_another_build_is_told() {
    tool!("objcopy");
    let scratch = Scratch::new("live-build-id");
    let other = programs::for_debuggers(&scratch, "debug/storm.c", &["-ldl", "-Wl,--build-id"]);
    let service = programs::for_debuggers(&scratch, "debug/alive.c", &["-Wl,--build-id"]);
    let debug = scratch.path().join("alive.debug");
    let objcopy = |words: &[&str]| {
        let status = Command::new("objcopy")
            .args(words)
            .current_dir(scratch.path())
            .status();
        assert!(status.unwrap().success(), "{words:?}");
    };
    objcopy(&["--only-keep-debug", "alive", "alive.debug"]);
    objcopy(&["--strip-debug", "--add-gnu-debuglink=alive.debug", "alive"]);
    let look = || {
        let (text, status) = mw("run", &[&service], &["break handle", "continue", "bt 1"]);
        assert_eq!(status, 0, "{text}");
        text
    };
    let text = look();
    assert!(!text.contains("another build"), "{text}");
    assert!(text.contains("alive.c:"), "{text}");
    objcopy(&[
        "--only-keep-debug",
        &other.display().to_string(),
        "alive.debug",
    ]);
    let text = look();
    has_in_order(
        &text,
        &[
            &format!("note: {}", debug.display()),
            "another build",
            "handle",
        ],
    );
    assert!(!text.contains("alive.c:"), "{text}");
}

#[test]
fn what_is_alive_has_no_past() {
    let scratch = Scratch::new("live-past");
    for command in ["reverse-continue", "rs", "goto 3", "why", "run-to send"] {
        let service = Service::start(&scratch, &[]);
        let (text, status) = mw("attach", &[service.pid.to_string()], &[command]);
        assert_eq!(status, 2, "{command}: {text}");
        assert!(
            text.contains("no past") && text.contains("mw record"),
            "{command}: {text}"
        );
        assert!(service.end().contains("unharmed"), "{command}");
    }
}

#[test]
fn processes_that_cannot_be_joined_say_why() {
    let scratch = Scratch::new("live-refused");
    let fails = |words: &[String], what: &str| {
        let (text, status) = mw("attach", words, &["bt"]);
        assert_eq!(status, 2, "{text}");
        assert!(text.contains(what), "{what}: {text}");
    };
    fails(&["999999999".to_string()], "there is no process");
    fails(
        &["no-such-name-anywhere".to_string()],
        "no process is called",
    );
    let mut over = Command::new("true").spawn().unwrap();
    wait_for("it to end", || {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", over.id())).unwrap();
        state.contains(") Z").then_some(())
    });
    fails(&[over.id().to_string()], "has ended");
    over.wait().unwrap();
    // One that is debugged already, and one that is fine beside it: none is joined.
    let first = Service::start(&scratch, &[]);
    let second = Service::start(&scratch, &[]);
    let mut holder = Command::new(MW)
        .args(["attach", "--observe", &first.pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let is_traced = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", first.pid)).unwrap();
        (!status.contains("TracerPid:\t0")).then_some(())
    };
    wait_for("it to be joined", is_traced);
    fails(
        &[second.pid.to_string(), first.pid.to_string()],
        "is traced by",
    );
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(first.end().contains("unharmed"));
    assert!(second.end().contains("unharmed"));
    if is_root() {
        fails(&["2".to_string()], "a thread of the kernel");
    }
}

/// Another user's process is left alone.
#[test]
fn another_users_process_is_refused() {
    let scratch = Scratch::new("live-user");
    let Some(nobody) = harness::nobody::Nobody::new("live-user") else {
        return;
    };
    let service = Service::start(&scratch, &[]);
    let output = nobody.run(&["attach", "--batch", &service.pid.to_string()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("may not be traced"), "{text}");
    assert!(service.end().contains("unharmed"));
}

/// A service that job control has stopped is looked at, and stays stopped.
#[test]
fn a_stopped_process_stays_stopped() {
    let scratch = Scratch::new("live-stopped");
    let service = Service::start(&scratch, &[]);
    service.signal(Signal::STOP);
    let state = || {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", service.pid)).unwrap();
        text.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    wait_for("it to stop", || (state() == 'T').then_some(()));
    let (text, status) = mw(
        "attach",
        &[service.pid.to_string()],
        &["threads", "print turns"],
    );
    assert_eq!(status, 0, "{text}");
    wait_for("it to be let go", || (state() == 'T').then_some(()));
    service.signal(Signal::CONT);
    assert!(service.end().contains("unharmed"));
}

/// The debugger is killed at any moment, with a breakpoint in code that is executed all
/// the time: the program runs on. `MW_ROUNDS` says how often.
#[test]
fn the_debugger_is_killed_at_any_moment() {
    let scratch = Scratch::new("live-killed");
    let rounds = std::env::var("MW_ROUNDS").map_or(12, |text| text.parse().unwrap());
    let mut state = seed::seed("when the debugger is killed", 0x5eed);
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let service = Service::start(&scratch, &["fast"]);
    for round in 0..rounds {
        let mut debugger = Command::new(MW)
            .args(["attach", "--keep", "1", &service.pid.to_string()])
            .args(["-e", "break handle if turn == -1", "-e", "watch limit"])
            .args(["-e", "trace answer", "-e", "continue"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_micros(below(400_000)));
        debugger.kill().unwrap();
        debugger.wait().unwrap();
        wait_for("it to be let go", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid));
            let status = status.unwrap_or_else(|_| panic!("round {round}: it is gone"));
            status.contains("TracerPid:\t0").then_some(())
        });
    }
    let said = service.end();
    assert!(said.contains("unharmed"), "{said}");
}

/// The agent of a program that was joined is killed, or the warden, or both, at any
/// moment: the program runs on. `MW_ROUNDS` says how often.
#[test]
fn what_was_joined_runs_on_when_its_agent_is_killed() {
    let scratch = Scratch::new("live-agent-killed");
    let rounds = std::env::var("MW_ROUNDS").map_or(6, |text| text.parse().unwrap());
    let mut state = seed::seed("when the agent is killed", 0xa6e7);
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    for round in 0..rounds {
        let service = Service::start(&scratch, &[]);
        let pid = service.pid.to_string();
        let mut debugger = Command::new(MW)
            .args(["attach", "--keep", "1", &pid, "-e", "continue"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let descendants = || {
            let all = live::candidates();
            let pids = live::descendants(debugger.id() as i32, &all);
            let is_one = |word: &str| {
                let its = all.iter().filter(|c| pids.contains(&c.pid));
                let mut its = its.filter(|c| c.command.contains(word));
                its.next().map(|c| c.pid)
            };
            (is_one(" warden "), is_one(" govern-running "))
        };
        let (warden, agent) = wait_for("the agent", || match descendants() {
            (Some(warden), Some(agent)) => Some((warden, agent)),
            _ => None,
        });
        // (In the middle of injection itself: `live_lost`.)
        wait_for("the monitor to be in", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let tracer = format!("TracerPid:\t{warden}\n");
            status.contains(&tracer).then_some(())
        });
        std::thread::sleep(std::time::Duration::from_micros(below(300_000)));
        let victims = match round % 3 {
            0 => vec![agent],
            1 => vec![warden],
            _ => vec![warden, agent],
        };
        for victim in victims {
            let _ = kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL);
        }
        wait_for("it to be let go", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            let status = status.unwrap_or_else(|_| panic!("round {round}: it is gone"));
            status.contains("TracerPid:\t0").then_some(())
        });
        let said = service.end();
        assert!(said.contains("unharmed"), "round {round}: {said}");
        debugger.kill().unwrap();
        debugger.wait().unwrap();
    }
}
