//! The debugger held by a server: several groups on one recording at once, each on
//! a thread of its own, with symbols and the checkpoints' budget shared.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use causality::History;
use harness::{Recorded, Scratch, programs};
use protocol::id::{EventNo, ProcessId};
use recording::Recording;
use replay::Replayer;
use session::{
    Direction, Error, Follow, FrameRef, Group, Handle, How, Move, Program, Reason, ThreadRef, What,
    Who, Whom,
};
use target::{Cancel, Position};

fn program(recorded: &Recorded) -> Arc<Program> {
    let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    let replayer = Replayer::new(history.set());
    let names = query::names::own(&history);
    Program::new(history, names, Arc::new(replayer))
}

fn eight(scratch: &Scratch) -> Recorded {
    let program = programs::for_debuggers(scratch, "debug/eight.c", &[]);
    scratch.record(&[program])
}

fn motion(process: ProcessId, how: How, back: bool) -> Move {
    Move {
        who: Who::All,
        process,
        thread: None,
        how,
        direction: match back {
            true => Direction::Backwards,
            false => Direction::Forwards,
        },
        follow: Follow::Causal,
    }
}

/// What the children call `number`, each in its frame of `work`, in order: which of
/// them began first is not said.
fn numbers(group: &mut Group) -> Vec<i64> {
    let members = group.members();
    let children = members.iter().skip(1);
    let mut numbers: Vec<i64> = children
        .map(|child| {
            let thread = ThreadRef {
                process: child.id,
                thread: None,
            };
            let frames = group.frames(thread, 100).unwrap();
            let work = frames
                .iter()
                .find(|frame| frame.function.as_deref() == Some("work"));
            let Some(work) = work else {
                panic!("{} is not in `work`: {frames:?}", child.name);
            };
            let frame = FrameRef {
                thread,
                level: work.level,
            };
            let number = group.evaluate(frame, "number").unwrap().text;
            number.parse().unwrap()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// How many processes below one are confined by a filter on their system calls.
fn confined_below(pid: u32) -> usize {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let children = threads.flat_map(|thread| {
        let list = read(format!("{}/children", thread.path().display()));
        let pids = list.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<u32>>()
    });
    children
        .map(|child| {
            let status = read(format!("/proc/{child}/status"));
            let is_confined = status.lines().any(|line| line == "Seccomp:\t2");
            usize::from(is_confined) + confined_below(child)
        })
        .sum()
}

/// Four groups ask for the values of eight processes at one cut, again and again,
/// while a fifth goes about the recording: all answers are right, nobody who only asks
/// moves, and those that are asked can do nothing to what is outside of them.
#[test]
fn eight_processes_from_four_groups_while_a_fifth_moves() {
    let scratch = Scratch::new("session-eight");
    let recorded = eight(&scratch);
    let program = program(&recorded);
    let parent = program.set().unwrap().member(0).unwrap().processes()[0]
        .number
        .of_member(0);
    let expected: Vec<i64> = (0..8).map(|i| 11 * i).collect();
    // In the second round all of them have told their numbers once.
    let mover = Handle::start(&program).unwrap();
    let at = mover
        .ask(move |group| {
            let what = What::Break("tell".to_string());
            let number = group.stops().add(what, |point| {
                point.whom = Whom::Process(parent);
                point.ignore = 8 + 4;
            });
            let stopped = group.go(&motion(parent, How::Continue, false), &Cancel::new());
            let stopped = stopped.unwrap();
            assert!(matches!(stopped.reason, Reason::Breakpoint { number: n } if n == number));
            assert_eq!(stopped.process, parent);
            stopped.at
        })
        .unwrap();
    let walking = mover
        .send(move |group| {
            let mut hits = 0;
            for back in [false, true, false] {
                loop {
                    let how = motion(parent, How::Continue, back);
                    let stopped = group.go(&how, &Cancel::new()).unwrap();
                    match stopped.reason {
                        Reason::Breakpoint { .. } => hits += 1,
                        Reason::Start | Reason::End => break,
                        other => panic!("{other:?}"),
                    }
                }
            }
            hits
        })
        .unwrap();
    let askers: Vec<_> = (0..4)
        .map(|_| {
            let (program, expected) = (Arc::clone(&program), expected.clone());
            std::thread::spawn(move || {
                let handle = Handle::start(&program).unwrap();
                handle
                    .ask(move |group| {
                        group
                            .go(&motion(parent, How::To(at), false), &Cancel::new())
                            .unwrap();
                        let before = group.positions();
                        for _ in 0..3 {
                            assert_eq!(numbers(group), expected);
                            assert_eq!(group.positions(), before);
                            assert!(confined_below(std::process::id()) >= 8);
                        }
                    })
                    .unwrap();
            })
        })
        .collect();
    for asker in askers {
        asker.join().unwrap();
    }
    // From the thirteenth of thirty-two to the end, back to the beginning, and to
    // the end again.
    assert_eq!(walking.wait().unwrap(), 32 - 13 + 32 + 32);
}

/// A value somewhere else is asked for without moving anybody, and a request that
/// has no time is given up.
#[test]
fn values_elsewhere() {
    let scratch = Scratch::new("session-elsewhere");
    let recorded = eight(&scratch);
    let program = program(&recorded);
    let mut group = Group::new(&program).unwrap();
    let child = group.members()[3].id;
    let never = Cancel::new();
    group.stops().add(What::Break("tell".to_string()), |_| {});
    let mut seen = Vec::new();
    let motion = Move {
        who: Who::One,
        ..motion(child, How::Continue, false)
    };
    for _ in 0..4 {
        let stopped = group.go(&motion, &never).unwrap();
        let frame = FrameRef {
            thread: ThreadRef {
                process: child,
                thread: None,
            },
            level: 0,
        };
        let number = group.evaluate(frame, "number").unwrap().text;
        seen.push((stopped.at, number));
    }
    let before = group.positions();
    for (at, number) in seen.iter().rev() {
        let value = group.eval_at(child, *at, "number", &never).unwrap();
        assert_eq!(value.text, *number);
        assert_eq!(group.positions(), before);
    }
    let last = Position::Event(EventNo(u64::MAX));
    let none = Cancel::after(Duration::ZERO);
    let late = group.eval_at(child, last, "number", &none);
    assert!(
        matches!(late, Err(Error::Target(target::Error::Cancelled))),
        "{late:?}"
    );
}

/// A program of C++ or of Rust whose functions have those of the language's library inlined.
fn with_library_code(scratch: &Scratch, compiler: &str, flags: &[&str], source: &str) -> Recorded {
    let program = scratch.path().join("inlined");
    let made = std::process::Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(programs::sources().join("inspect").join(source))
        .status()
        .unwrap();
    assert!(made.success());
    scratch.record(&[program])
}

/// Where the process stands: the level that is shown first, and of each frame of the
/// function that runs its name and its file.
fn shown(group: &mut Group, process: ProcessId) -> (usize, Vec<(String, String)>) {
    let level = group.first_frame(process).unwrap();
    let thread = ThreadRef {
        process,
        thread: None,
    };
    let frames = group.frames(thread, 30).unwrap();
    let cfa = frames[0].cfa;
    let here = frames.into_iter().take_while(|frame| frame.cfa == cfa);
    let named = here.map(|frame| {
        let file = frame.line.map_or(String::new(), |line| line.file.path);
        (frame.function.unwrap_or_default(), file)
    });
    (level, named.collect())
}

/// A stop at a place in a function of the library of C++ or Rust that is inlined there
/// shows the frame of the user's function first: through the library, and at the prompt.
#[test]
fn a_stop_in_inlined_library_code_shows_the_users_frame_first() {
    let cases = [
        (tool!("c++"), &["-g", "-O2"][..], "inlined.cpp"),
        (tool!("rustc"), &["-g", "-O"][..], "inlined_rust.rs"),
    ];
    for (compiler, flags, source) in cases {
        let scratch = Scratch::new("session-users-frame");
        let recorded = with_library_code(&scratch, &compiler, flags, source);
        let program = program(&recorded);
        let mut group = Group::new(&program).unwrap();
        let process = group.members()[0].id;
        let never = Cancel::new();
        let user = group
            .stops()
            .add(What::Break("library_user".to_string()), |_| {});
        let stopped = group.go(&motion(process, How::Continue, false), &never);
        assert!(matches!(stopped.unwrap().reason, Reason::Breakpoint { .. }));
        // Every place of the library's code that it comes through in that function.
        let mut places = Vec::new();
        for _ in 0..400 {
            let step = motion(process, How::Instructions(target::ONE_INSTRUCTION), false);
            group.go(&step, &never).unwrap();
            let (level, frames) = shown(&mut group, process);
            let is_library =
                |(_, file): &(String, String)| inspect::frames::is_library_source(file);
            let Some((outer, _)) = frames
                .last()
                .filter(|(name, _)| name.contains("library_user"))
            else {
                // It has called something, or returned.
                continue;
            };
            assert_eq!(
                level,
                frames
                    .iter()
                    .position(|frame| !is_library(frame))
                    .unwrap_or(0),
                "{frames:?}"
            );
            let is_users = |(_, file): &(String, String)| file.ends_with(source);
            if is_library(&frames[0]) && frames.iter().any(is_users) {
                assert!(level > 0 && is_users(&frames[level]), "{level} {frames:?}");
                let thread = ThreadRef {
                    process,
                    thread: None,
                };
                let pc = group.frames(thread, 1).unwrap()[0].pc;
                places.push((pc, level, outer.clone()));
            }
        }
        assert!(places.len() > 5, "{source}: {places:?}");

        // Stopped at by a breakpoint there.
        let (pc, level, _) = places[places.len() / 2].clone();
        group.stops().remove(user);
        group
            .go(&motion(process, How::ToStart, true), &never)
            .unwrap();
        let place = format!("*{pc}");
        group.stops().add(What::Break(place.clone()), |_| {});
        let stopped = group.go(&motion(process, How::Continue, false), &never);
        assert!(matches!(stopped.unwrap().reason, Reason::Breakpoint { .. }));
        assert_eq!(shown(&mut group, process).0, level, "{source} {place}");

        let (text, status) = harness::prompt::debug(
            &recorded,
            &[
                &format!("break {place}"),
                "continue",
                "echo FRAME",
                "frame",
                "print numbers",
            ],
        );
        assert_eq!(status, 0, "{text}");
        harness::prompt::has_in_order(
            &text,
            &[
                "Breakpoint 1\n",
                "library_user",
                &format!("{source}:"),
                "FRAME\n",
                &format!("#{level}  "),
                "library_user",
                &format!("{source}:"),
                "$1 = ",
            ],
        );
        let (stop, _) = text.split_once("FRAME\n").unwrap();
        let (_, stop) = stop.split_once("Breakpoint 1\n").unwrap();
        assert!(
            !stop.contains("/c++/") && !stop.contains("/rustc/"),
            "{text}"
        );
    }
}
