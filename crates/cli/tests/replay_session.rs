//! Moves the processes of recordings to their events, forwards and back, and
//! looks at them there.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::collections::HashMap;
use std::sync::Arc;

use harness::{Recorded, Scratch, programs};
use protocol::id::Addr;
use recording::Recording;
use replay::{
    Arrival, Back, Budget, Condition, EventNo, Position, Session, SharedReplay, Stops, Watch,
};
use target::ONE_INSTRUCTION;

/// `cpuid` says which processor it is asked on, and the loader keeps that: all
/// that this thread starts runs on one. (Replay cannot change what it says.)
fn stay_on_one_processor() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set(
        (0..CpuSet::MAX_CPU)
            .find(|cpu| allowed.is_set(*cpu))
            .unwrap(),
    );
    sched_setaffinity(None, &one).unwrap();
}

/// All that can be seen of a process that stands still: registers, and the
/// bytes of all its writable memory, mixed.
fn look(session: &Session) -> (Vec<[u64; 27]>, u64) {
    let threads = session.threads();
    assert!(!threads.is_empty());
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    // Whether the kernel has neighbours as one region or as two depends on what
    // was forked when: here they are one.
    let mut ranges: Vec<std::ops::Range<Addr>> = Vec::new();
    for region in session.regions().unwrap().iter().filter(|r| r.writable) {
        match ranges.last_mut() {
            Some(last) if last.end == region.range.start => last.end = region.range.end,
            _ => ranges.push(region.range.clone()),
        }
    }
    for range in ranges {
        let mut bytes = vec![0; (range.end.since(range.start) as usize).min(1 << 20)];
        let got = session.read(range.start, &mut bytes);
        for word in bytes[..got].chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            hash = (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        }
    }
    (
        threads
            .into_iter()
            .map(|t| t.registers.user_regs())
            .collect(),
        hash,
    )
}

/// Goes to events in an order that jumps about, and sees the same each time
/// it comes to one.
fn wander(recorded: &Recorded) {
    stay_on_one_processor();
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let ground = Arc::new(SharedReplay::new(&recording));
    for process in recording.processes() {
        let mut session = Session::open_on(&ground, process.number).unwrap();
        let mut end = 0;
        if session.go_to_end().unwrap() == Arrival::End {
            end = session.event().0;
        }
        let first = process.first_event.0;
        assert!(end > first, "{}", process.name);
        let mut seen = HashMap::new();
        let mut seed = seed::seed(&process.name, u64::from(process.number.0) + 1);
        for step in 0..40 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            // Few enough places that they come again.
            let event = first + (seed >> 33) % 12 * (end - first) / 12;
            assert_eq!(
                session.go_to(EventNo(event)).unwrap(),
                Arrival::There,
                "{} {event}",
                process.name
            );
            assert_eq!(session.event(), EventNo(event), "{}", process.name);
            let now = look(&session);
            let then = seen.entry(event).or_insert_with(|| now.clone());
            assert!(
                *then == now,
                "{}:{event} is another at step {step}",
                process.name
            );
            if step % 10 == 3 {
                session.checkpoint().unwrap();
            }
        }
        let kept = session.checkpoints().iter().filter(|c| c.kept).count();
        assert!(kept >= 1);
        assert!(seen.len() > 6);
        for checkpoint in session.checkpoints() {
            session.drop_checkpoint(checkpoint.id);
        }
        assert!(
            session
                .checkpoints()
                .iter()
                .all(|c| !c.kept || c.event == process.first_event)
        );
    }
}

#[test]
fn bank() {
    let scratch = Scratch::new("session-bank");
    wander(&scratch.record(&[programs::bank()]));
}

#[test]
fn many_threads() {
    let scratch = Scratch::new("session-threads");
    wander(&scratch.record(&[programs::built().join("threads_future").to_str().unwrap()]));
}

#[test]
fn forks_and_execs() {
    let scratch = Scratch::new("session-forks");
    wander(&scratch.record(&[
        "sh",
        "-c",
        "echo a | cat; (echo b; exec cat /etc/hostname); ls / | wc -l",
    ]));
}

/// A file that is mapped twice is seen alike at both addresses, through
/// whichever of them it was written last.
#[test]
fn one_file_under_two_mappings() {
    let scratch = Scratch::new("session-mappings");
    let recorded = scratch.record(&[programs::program("mmap_growth")]);
    let maps: Vec<u64> = recorded
        .all(|e| e.call() == "mmap" && e.file("fd").ends_with("/private"))
        .map(|e| e.result().unwrap() as u64)
        .collect();
    let [private, shared] = maps[..] else {
        panic!("{maps:x?}");
    };
    // Its third page was written through one of them just before.
    let advice = recorded.all(|e| e.call() == "madvise").collect::<Vec<_>>();
    let number = advice[1].number();
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let mut session = Session::open(&recording, recording.processes()[0].number).unwrap();
    assert_eq!(session.go_to(EventNo(number)).unwrap(), Arrival::There);
    for base in [private, shared] {
        let mut byte = [0];
        assert_eq!(session.read(Addr(base + 2 * 4096), &mut byte), 1);
        assert_eq!(byte, *b"6");
    }
    // To look does not change what comes.
    assert_eq!(session.go_to_end().unwrap(), Arrival::End);
}

/// However few checkpoints are allowed, every event is reached.
#[test]
fn a_small_budget_is_kept() {
    let scratch = Scratch::new("session-budget");
    let recorded = scratch.record(&[
        "/usr/bin/python3",
        "-c",
        "for i in range(200000):\n  if i % 500 == 0: open('/dev/null').close()",
    ]);
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let mut session = Session::open(&recording, recording.processes()[0].number).unwrap();
    session.set_budget(Budget {
        memory: u64::MAX,
        count: 2,
    });
    session.go_to_end().unwrap();
    let end = session.event().0;
    assert!(
        session.checkpoints().len() <= 2,
        "{:?}",
        session.checkpoints()
    );
    for part in [3, 1, 2] {
        assert_eq!(
            session.go_to(EventNo(end * part / 4)).unwrap(),
            Arrival::There
        );
        assert_eq!(session.event(), EventNo(end * part / 4));
    }
}

/// Two sessions on one process do not know of each other.
#[test]
fn sessions_are_independent() {
    stay_on_one_processor();
    let scratch = Scratch::new("session-two");
    let recorded = scratch.record(&[programs::bank()]);
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let number = recording
        .process_named("bank-coordinator-0")
        .unwrap()
        .number;
    let mut one = Session::open(&recording, number).unwrap();
    let mut other = Session::open(&recording, number).unwrap();
    one.go_to(EventNo(one.event().0 + 300)).unwrap();
    let here = look(&one);
    other.go_to(EventNo(other.event().0 + 700)).unwrap();
    assert!(look(&one) == here);
    other.go_to(one.event()).unwrap();
    assert!(look(&other) == here);
}

/// Registers of the thread that runs.
fn registers(session: &Session) -> [u64; 27] {
    let number = session.thread();
    let threads = session.threads();
    threads
        .iter()
        .find(|t| t.number == number)
        .unwrap()
        .registers
        .user_regs()
}

/// Steps through the code between events, instruction by instruction; comes
/// back to the places it saw, in any order, and backwards one by one.
fn step_about(program: &str, process: &str) {
    let scratch = Scratch::new("session-steps");
    let recorded = scratch.record(&[program]);
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let number = recording.process_named(process).unwrap().number;
    let mut session = Session::open(&recording, number).unwrap();
    session.go_to_end().unwrap();
    let end = session.event().0;
    let mut seed = seed::seed(process, 7);
    let mut random = |below: u64| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for _ in 0..6 {
        let first = recording.process(number).unwrap().first_event.0;
        let event = first + 1 + random(end - first - 2);
        session.go_to(EventNo(event)).unwrap();
        let mut places = vec![(session.position(), registers(&session))];
        for _ in 0..300 {
            if session.step(ONE_INSTRUCTION).unwrap() != Arrival::Stepped {
                break;
            }
            places.push((session.position(), registers(&session)));
        }
        assert!(places.len() > 20, "{event}: {}", places.len());
        for pair in places.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{pair:x?}");
        }
        for _ in 0..12 {
            let (position, regs) = &places[random(places.len() as u64) as usize];
            assert_eq!(
                session.go_to_position(*position).unwrap(),
                Arrival::There,
                "{position:x?}"
            );
            assert_eq!(session.position(), *position);
            assert_eq!(registers(&session), *regs, "{position:x?}");
        }
        let from = places.len() - 1;
        session.go_to_position(places[from].0).unwrap();
        for back in (from.saturating_sub(25)..from).rev() {
            assert!(session.step_back().unwrap());
            let then = &places[back];
            // Events have places of their own, one each.
            for _ in 0..2 {
                if session.position() == then.0 {
                    break;
                }
                assert!(
                    matches!(session.position(), Position::Event(_)),
                    "{:x?} {then:x?}",
                    session.position()
                );
                assert!(session.step_back().unwrap());
            }
            assert_eq!(session.position(), then.0);
        }
    }
}

#[test]
fn steps_forwards_and_back() {
    step_about(programs::built().join("files").to_str().unwrap(), "files-0");
}

#[test]
fn steps_beside_threads_and_preemption() {
    step_about(
        programs::built().join("threads_mutex").to_str().unwrap(),
        "threads_mutex-0",
    );
}

/// Makes a program whose addresses are known before it runs.
fn build(scratch: &Scratch, source: &str, flags: &[&str]) -> String {
    let flags = [&["-no-pie"], flags].concat();
    let program = programs::for_debuggers(scratch, &format!("debug/{source}"), &flags);
    program.to_str().unwrap().to_string()
}

/// Where `nm` says a symbol is.
fn symbol(program: &str, name: &str) -> Addr {
    let output = std::process::Command::new("nm")
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!(" {name}")))
        .unwrap();
    Addr(u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap())
}

fn word(session: &Session, address: Addr) -> i64 {
    let mut bytes = [0; 8];
    assert_eq!(session.read(address, &mut bytes), 8);
    i64::from_le_bytes(bytes)
}

/// Whatever changes a variable is stopped at, once each, forwards and back.
fn watch_all_ways(name: &str, flags: &[&str]) {
    let scratch = Scratch::new(name);
    let program = build(&scratch, "watched.c", flags);
    let recorded = scratch.record(&[&program]);
    assert!(recorded.outcome.status.success());
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let number = recording.processes()[0].number;
    let mut session = Session::open(&recording, number).unwrap();
    let address = symbol(&program, "watched");
    let watch = [Watch { address, length: 8 }];

    // What it printed, and what it counted up and down in between.
    let printed: Vec<i64> = recorded
        .outcome
        .stdout
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(printed.len(), 8, "{printed:?}");
    let mut expected = printed[..6].to_vec();
    let mut value = 6;
    for i in (1..=500).chain((1..=500).rev().map(|i| -i)) {
        value += i;
        expected.push(value);
    }
    expected.extend(&printed[6..]);

    session.go_to(session.event().next()).unwrap();
    let mut places = Vec::new();
    let mut found = Vec::new();
    loop {
        match session.run_watching(&[], &watch, Position::END).unwrap() {
            Arrival::Watch(0) => {
                found.push(word(&session, address));
                places.push(session.position());
            }
            Arrival::End => break,
            other => panic!("{other:?} after {found:?}"),
        }
    }
    // The loader clears what has no value in the file; that is no change.
    assert_eq!(found, expected);
    assert!(places.is_sorted(), "{places:?}");

    // Back: each time the value is the one before, and one step on the later
    // one is there.
    for at in (expected.len() - 5..expected.len())
        .rev()
        .chain((0..6).rev())
    {
        if at == 5 {
            session.go_to_position(places[6]).unwrap();
            let back = session.run_back_watching(&[], &watch, None).unwrap();
            assert_eq!(back, Back::Watch(0));
        }
        let back = session.run_back_watching(&[], &watch, None).unwrap();
        assert_eq!(back, Back::Watch(0), "{at}");
        let before = if at == 0 { 0 } else { expected[at - 1] };
        assert_eq!(word(&session, address), before, "{at}");
        let here = session.position();
        assert!(here < places[at]);
        let arrival = session.run_watching(&[], &watch, Position::END).unwrap();
        assert_eq!(arrival, Arrival::Watch(0));
        assert_eq!(session.position(), places[at], "{at}");
        session.go_to_position(here).unwrap();
    }
    let here = session.position();
    assert_eq!(
        session.run_back_watching(&[], &watch, None).unwrap(),
        Back::Beginning
    );
    assert_eq!(session.position(), here);

    // With something that says which: the last time that it was 2.
    session.go_to_end().unwrap();
    let mut is_two = |session: &Session| word(session, address) == 2;
    let back = session
        .run_back_watching(&[], &watch, Some(&mut is_two))
        .unwrap();
    assert_eq!(back, Back::Watch(0));
    assert_eq!(word(&session, address), 1);
}

#[test]
fn watched_memory() {
    watch_all_ways("session-watch", &["-O0"]);
}

#[test]
fn watched_memory_in_optimized_code() {
    watch_all_ways("session-watch-o2", &["-O2"]);
}

/// A condition on a register of the program that counts from 0 on.
fn counted(address: Addr, operation: u8, number: u32) -> Condition {
    let [a, b, c, d] = number.to_be_bytes();
    // rsi, as gdb numbers it, and a number, compared.
    let code = [0x26, 0, 4, 0x24, a, b, c, d, operation, 0x27];
    Condition {
        address,
        code: code.as_slice().into(),
    }
}

/// Breakpoints whose conditions do not hold are passed by the replaying
/// process itself: one motion leads to the first that does, or to the end.
#[test]
fn conditions_are_tested_on_the_way() {
    const EQUAL: u8 = 0x13;
    let scratch = Scratch::new("session-conditions");
    let program = build(&scratch, "visits.c", &["-O2"]);
    let recorded = scratch.record(&[&program]);
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let mut session = Session::open(&recording, recording.processes()[0].number).unwrap();
    let address = symbol(&program, "visit");
    let rsi = |session: &Session| session.threads()[0].registers.rsi;
    let end = Position::END;
    let mut run = |conditions: &[Condition]| {
        session.go_to(EventNo(0)).unwrap();
        let stops = Stops {
            breakpoints: &[address],
            conditions,
            ..Stops::default()
        };
        let arrival = session.run_to(&stops, end).unwrap();
        (arrival == Arrival::Breakpoint).then(|| rsi(&session))
    };
    assert_eq!(run(&[]), Some(0));
    assert_eq!(run(&[counted(address, EQUAL, 1234)]), Some(1234));
    assert_eq!(run(&[counted(address, EQUAL, 1_000_000)]), None);
    // One of several is enough; one that cannot be tested is left to others.
    let two = [7, 5].map(|number| counted(address, EQUAL, number));
    assert_eq!(run(&two), Some(5));
    assert_eq!(
        run(&[counted(address, 0x0c, 9), counted(address, EQUAL, 9)]),
        Some(0)
    );
    // Another address has nothing to do with it; nor have too many.
    assert_eq!(run(&[counted(address.plus(1), EQUAL, 9)]), Some(0));
    assert_eq!(run(&vec![counted(address, EQUAL, 9); 1000]), Some(0));
}

/// A condition that never holds, where nothing else happens, can be stopped:
/// where it was, not where it began.
#[test]
fn a_condition_that_never_holds_can_be_stopped() {
    let scratch = Scratch::new("session-conditions-stop");
    let program = build(&scratch, "visits.c", &["-O2", "-DROUNDS=200000000"]);
    let recorded = scratch.record(&[&program]);
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let mut session = Session::open(&recording, recording.processes()[0].number).unwrap();
    let address = symbol(&program, "visit");
    let conditions = [counted(address, 0x13, 0xffff_ffff)];
    let stops = Stops {
        breakpoints: &[address],
        conditions: &conditions,
        ..Stops::default()
    };
    let cancel = target::Cancel::new();
    session.set_cancel(&cancel);
    let asks = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        cancel.cancel();
    });
    let arrival = session.run_to(&stops, Position::END).unwrap();
    asks.join().unwrap();
    assert_eq!(arrival, Arrival::Interrupted);
    assert!(
        matches!(session.position(), Position::Inside(inside) if inside.transfers > 0),
        "{:?}",
        session.position()
    );
}
