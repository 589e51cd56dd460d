//! Programs that read the time-stamp counter are replayed with what they read.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::Command;
use std::sync::Arc;

use harness::{Recorded, Scratch, find_tool, programs};
use protocol::id::Addr;
use protocol::instruction::Form;
use recording::Recording;
use replay::Session;

/// Replays all of it. What the program writes is compared, so what it read is.
fn replays(recorded: &Recorded) {
    assert_eq!(recorded.outcome.code(), 0, "{}", recorded.outcome.stderr);
    let mut verify = Command::new(env!("CARGO_BIN_EXE_mw"));
    let output = verify.arg("verify").arg(&recorded.dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("equal"), "{text}");
}

#[test]
fn what_was_read_is_written_again() {
    let scratch = Scratch::new("counter-order");
    let recorded = scratch.record(&[&programs::program("rdtsc"), "order"]);
    assert!(recorded.outcome.stdout.contains("digest"));
    recorded.has_many(1000, "reads of the counter", |e| e.call() == "tsc");
    replays(&recorded);
}

#[test]
fn traps_alarms_and_spinning_threads() {
    let scratch = Scratch::new("counter-traps");
    replays(&scratch.record(&[&programs::program("counter_traps")]));
}

/// Go's runtime reads it on its own.
#[test]
fn a_go_program() {
    if find_tool("go").is_none() {
        return;
    }
    let scratch = Scratch::new("counter-go");
    let source = scratch.path().join("main.go");
    let program = scratch.path().join("main");
    let code = r#"package main

import (
	"fmt"
	"sync"
)

func main() {
	var group sync.WaitGroup
	var mutex sync.Mutex
	sum := 0
	for i := 0; i < 20; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			mutex.Lock()
			sum += i
			mutex.Unlock()
		}(i)
	}
	group.Wait()
	fmt.Println(sum)
}
"#;
    std::fs::write(&source, code).unwrap();
    let mut go = Command::new("go");
    go.arg("build").arg("-o").arg(&program).arg(&source);
    assert!(go.status().unwrap().success());
    let recorded = scratch.record(&[program.to_str().unwrap()]);
    assert_eq!(recorded.outcome.stdout, "190\n");
    recorded.has("a read of the counter", |e| e.call() == "tsc");
    replays(&recorded);
}

/// Who looks at the code of a replayed process sees the program's own.
#[test]
fn code_is_shown_as_it_was() {
    let scratch = Scratch::new("counter-code");
    let recorded = scratch.record(&[&programs::program("rdtsc")]);
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let mut session = Session::open(&recording, recording.processes()[0].number).unwrap();
    session.go_to_end().unwrap();
    let sites = session.counter_sites();
    assert!(sites.len() > 10, "{} sites", sites.len());
    let mut trapping = 0;
    for site in sites {
        let (address, form) = Form::of_word(site).unwrap();
        let address = Addr(address + form.opcode_at());
        let len = form.original().len();
        let mut shown = vec![0; len];
        let mut there = vec![0; len];
        assert_eq!(session.read_code(address, &mut shown), len);
        assert_eq!(session.read(address, &mut there), len);
        assert_eq!(shown, form.original(), "{address:x}");
        assert_ne!(there, form.original(), "{address:x}");
        // The others were executed often enough to be a jump by now.
        trapping += usize::from(there == form.instead());
    }
    assert!(trapping > 0);
}

/// Where a difference can come from an instruction that nothing traps, that is
/// said.
#[test]
fn made_code_is_named_where_it_may_differ() {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    if !flags.split_whitespace().any(|flag| flag == "rdrand") {
        return;
    }
    let scratch = Scratch::new("counter-made");
    let program = programs::for_debuggers(&scratch, "debug/made_code.c", &[]);
    let out = scratch.path().join("recording");
    let mut mw = Command::new(env!("CARGO_BIN_EXE_mw"));
    let recorded = mw.arg("record").arg("-o").arg(&out).arg(&program).output();
    assert!(recorded.unwrap().status.success());
    let verify = |json: &[&str]| {
        let mut mw = Command::new(env!("CARGO_BIN_EXE_mw"));
        let output = mw.arg("verify").args(json).arg(&out).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = verify(&[]);
    let line = "an instruction that nothing traps (rdtsc, cpuid, rdrand): \
                code that the program made while it ran";
    assert!(text.contains(line), "{text}");
    assert!(verify(&["--json"]).contains("\"unseen\""));
}

/// A million reads of the counter take a second when recorded: those that
/// recur do not trap.
#[test]
#[cfg(not(debug_assertions))]
fn many_reads_are_fast() {
    let scratch = Scratch::new("counter-many");
    let program = programs::for_debuggers(&scratch, "debug/many_reads.c", &["-O2"]);
    let recorded = scratch.record(&[program.to_str().unwrap()]);
    recorded.has_many(1_000_000, "reads of the counter", |e| e.call() == "tsc");
    // Ten times what it takes on a machine that has nothing else to do.
    let took = recorded.outcome.took;
    assert!(took.as_secs_f64() < 4.0, "{took:?}");
    replays(&recorded);
}

/// An instruction that takes from the monitor what it needs is named, and the
/// program gets a fault.
#[test]
fn a_program_that_sets_the_gs_base_is_told_so() {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    if !flags.split_whitespace().any(|flag| flag == "fsgsbase") {
        return;
    }
    let scratch = Scratch::new("counter-gs");
    let program = programs::for_debuggers(&scratch, "debug/gs_base.c", &["-mfsgsbase"]);
    let recorded = scratch.record(&[program.to_str().unwrap()]);
    assert_eq!(recorded.outcome.stdout, "SIGILL\n");
    let told = &recorded.outcome.stderr;
    assert!(
        told.contains("the program sets the gs base (wrgsbase)"),
        "{told}"
    );
    replays(&recorded);
}

/// Programs that read the machine code of others see it as it is.
#[test]
fn valgrind_runs() {
    let Some(valgrind) = find_tool("valgrind") else {
        return;
    };
    let scratch = Scratch::new("counter-valgrind");
    let recorded = scratch.record(&[valgrind.to_str().unwrap(), "-q", "/bin/echo", "text"]);
    assert_eq!(recorded.outcome.stdout, "text\n");
    replays(&recorded);
}

/// Nothing sees calls by that page: replay says so, and goes on with nothing else.
#[test]
fn calls_by_the_vsyscall_page_are_named() {
    let scratch = Scratch::new("counter-vsyscall");
    let program = programs::for_debuggers(&scratch, "debug/vsyscall.c", &[]);
    let native = Command::new(&program).output().unwrap();
    if !native.status.success() {
        skip!("this kernel has no such page");
    }
    let recorded = scratch.record(&[program.to_str().unwrap()]);
    assert_eq!(recorded.outcome.stdout, "asks\n1\n");
    let mut mw = Command::new(env!("CARGO_BIN_EXE_mw"));
    let output = mw.arg("verify").arg(&recorded.dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let line = "a call through the vsyscall page is not in the recording";
    assert!(text.contains(line), "{text}");
}
