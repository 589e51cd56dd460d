//! Replays each of the test programs (`tests/programs`): everything comes as
//! it was recorded, and what the program printed is printed again.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use harness::programs::{self, program, script};
use harness::verified::verify;
use harness::{Recorded, Scratch, instants};
use protocol::record::kind;

/// Programs whose output the kernel moved from elsewhere: it is not in their
/// memory.
const MOVED: &[&str] = &["pipeline"];

/// Programs with too many processes, or too much memory, to go to each instant of.
const LARGE: &[&str] = &["relay", "changed_files"];

/// What there is to see in some of them: kinds of events, and more than so
/// many. (How often a thread that computes is preempted is up to how long that takes.)
const SEEN: &[(&str, u8, u32)] = &[
    ("busy_syscalls", kind::CALL, 100_000),
    ("pipe_pingpong", kind::START, 20_000),
    ("signals_fault", kind::SIGNAL, 15),
    ("interrupted", kind::PREEMPT, 4),
];

fn check(name: &str, command: &[&str]) {
    let scratch = Scratch::new(name);
    let recorded = programs::record(&scratch, name, command);
    replay(name, &recorded);
}

fn replay(name: &str, recorded: &Recorded) {
    recorded.replays();
    if !LARGE.contains(&name) {
        let seen = instants::shows_what_was(recorded);
        for (whose, what, least) in SEEN {
            if *whose == name {
                assert!(seen.get(what) > Some(least), "{seen:?}");
            }
        }
    }
    if MOVED.contains(&name) {
        let echo = harness::verified::echo(&recorded.dir, &[]);
        let errors = String::from_utf8_lossy(&echo.stderr);
        assert!(errors.contains("are not in the recording"), "{errors}");
        assert_eq!(echo.status, 2);
    } else {
        recorded.echoes();
    }
}

macro_rules! programs {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                check(stringify!($name), &[&program(stringify!($name))]);
            }
        )*
        const PROGRAMS: &[&str] = &[$(stringify!($name)),*];
    };
}

macro_rules! languages {
    ($($(#[$attribute:meta])* $test:ident, $name:literal, $tool:literal, $command:expr;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                let tool = tool!($tool);
                let command: fn(String) -> Vec<String> = $command;
                let command = command(tool);
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                check($name, &words);
            }
        )*
        const LANGUAGES: &[&str] = &[$($name),*];
    };
}

programs! {
    fork_exec_wait,
    raw_clone,
    moved_code,
    netfilter,
    own_killers,
    own_stops,
    counter_traps,
    first_of_namespace,
    odd_mappings,
    own_descriptors,
    requests,
    sparse_files,
    changed_files,
    relay,
    reused_files,
    written_by_others,
    moved_bytes,
    behind_end,
    written_back,
    tid_address,
    waiting_calls,
    served_files,
    handed_device,
    threads_yield,
    cleared_words,
    processor_answers,
    random_device,
    huge_pages,
    lock_memory,
    memory_use,
    memory_advice,
    odd_calls,
    rights,
    seccomp,
    odd_ioctls,
    poked_memory,
    vfork_fail,
    daemonize,
    thread_exit_group,
    sigkill,
    sigchld,
    ptys,
    exit_42,
    crash_segv,
    crash_abort,
    threads_mutex,
    futexes,
    robust_locks,
    atomics,
    interrupted,
    copies,
    spinlock,
    threads_many,
    rounding,
    spam_alloc,
    shared_memory,
    shared_bulk,
    shared_execs,
    shared_views,
    signals_basic,
    signal_frames,
    signals_async,
    signals_fault,
    signalfd_eventfd_timerfd,
    sockets_inet,
    sockets_unix,
    pipes,
    epoll_poll_select,
    message_queues,
    pipe_pingpong,
    tcp_pingpong,
    files,
    mmap_files,
    mmap_growth,
    time,
    rdtsc,
    misc_calls,
    raw_calls,
    busy_syscalls,
    static_hello,
    static_pie,
    nolibc,
    deep_stack_tiny_altstack,
    stack_limits,
    syscall_registers,
    syscall_sites,
    exceptions,
    threads_future,
    counted_channels,
    time_limits,
    timers_set,
}

languages! {
    rust_std, "rust-std", "cargo", |_| vec![program("rust-std")];
    rust_tokio, "rust-tokio", "cargo", |_| vec![program("rust-tokio")];
    go, "goroutines", "go", |_| vec![program("goroutines")];
    python, "threads_subprocess", "python3", |_| {
        // Debian's own: others may be scripts that choose among several.
        vec!["/usr/bin/python3".into(), script("python/threads_subprocess.py")]
    };
    python_that_computes, "compute", "python3", |_| {
        vec!["/usr/bin/python3".into(), script("python/compute.py")]
    };
    node, "http", "node", |node| vec![node, script("node/http.js")];
    shell, "pipeline", "sh", |_| vec![script("sh/pipeline.sh")];
}

/// The bundled example: eight processes that talk to each other.
#[test]
fn bank() {
    let scratch = Scratch::new("replay-bank");
    let recorded = scratch.record(&[programs::bank()]);
    replay("bank", &recorded);
    // As often as wanted, and one of them alone.
    let verified = verify(&recorded.dir, &["--repeat", "3"]);
    verified.is_equal();
    assert_eq!(verified.processes.len(), 3 * 8);
    let verified = verify(&recorded.dir, &["--process", "bank-coordinator-0"]);
    verified.is_equal();
    assert_eq!(verified.processes.len(), 1);
}

#[test]
fn every_program_is_replayed() {
    let mut expected: Vec<String> = std::fs::read_dir(programs::sources().join("expected"))
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            Some(name.to_str()?.strip_suffix(".txt")?.to_string())
        })
        // They have tests of their own.
        .filter(|name| !name.starts_with("ground_truth") && name != "attached_to")
        .collect();
    expected.sort();
    let mut tested = [PROGRAMS, LANGUAGES].concat();
    tested.sort_unstable();
    assert_eq!(tested, expected);
}
