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
use protocol::record::counter_site;
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
    for site in sites {
        let len = counter_site::len(site) as usize;
        let address = counter_site::place(site);
        let mut shown = vec![0; len];
        let mut there = vec![0; len];
        assert_eq!(session.read_code(address, &mut shown), len);
        assert_eq!(session.read(address, &mut there), len);
        let (original, instead): (&[u8], &[u8]) = match len {
            2 => (b"\x0f\x31", b"\x0f\x0b"),
            _ => (b"\x0f\x01\xf9", b"\x0f\x0b\x90"),
        };
        assert_eq!((&shown[..], &there[..]), (original, instead), "{address:x}");
    }
}
