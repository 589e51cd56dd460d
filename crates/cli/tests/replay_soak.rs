//! The short form of `scripts/soak`: a round under bad conditions.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::process::Command;

#[test]
fn a_few_programs_under_bad_conditions() {
    let only = "atomics,daemonize,epoll_poll_select,exceptions,files,fork_exec_wait,pipes,\
                pipe_pingpong,rust-std,signals_basic,sockets_inet,tcp_pingpong,threads_many";
    let seed = seed::seed("programs under bad conditions", 71);
    let output = Command::new(harness::repository().join("scripts/soak"))
        .args(["3", "--no-build", "--only", &only.replace(' ', "")])
        .args(["--seed", &seed.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.contains("round 3: 39 runs"), "{said}");
}
