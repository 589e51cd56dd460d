//! The debugger as a library, without a prompt: random walks over processes that
//! fork and execute programs come to the same stops as a walk that only ever takes
//! single steps, and so do the prompt and gdb.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "session_walk/naive.rs"]
mod naive;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::collections::{HashMap, HashSet};
use std::process::{Command, Stdio};
use std::sync::Arc;

use causality::History;
use harness::{Recorded, Scratch, programs};
use naive::{FUNCTIONS, Kind, Naive, Walked};
use protocol::id::{Addr, ProcessId};
use recording::Recording;
use replay::Replayer;
use session::{
    Direction, Follow, FrameRef, Group, How, Move, Program, Reason, ThreadRef, What, Who,
};
use target::{Cancel, ONE_INSTRUCTION, Position};

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn open(recorded: &Recorded) -> Arc<Recording> {
    Arc::new(Recording::open(&recorded.dir).unwrap())
}

fn program(recording: &Arc<Recording>) -> Arc<Program> {
    let history = History::open(recording, &|_| {}).unwrap();
    let replayer = Replayer::new(history.set());
    let names = query::names::own(&history);
    Program::new(history, names, Arc::new(replayer))
}

fn positions(group: &Group) -> Vec<Position> {
    group.members().iter().map(|m| m.at).collect()
}

fn recorded(scratch: &Scratch) -> Recorded {
    // Static: the dynamic linker would be most of the walk.
    let program = programs::for_debuggers(scratch, "debug/walks.c", &["-static"]);
    scratch.record(&[program])
}

/// What a round of a walk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Continue,
    Instruction,
    Line { into: bool },
}

/// What the walks are begun with, unless `MW_SEED` says otherwise. The second finds it out if
/// the order in which stops were seen is forgotten, the others if what is watched in a later
/// program is.
const SEEDS: [u64; 5] = [0x5eed_0fa1, 1, 14, 17, 21];

/// Breakpoints and watched memory, runs and steps by lines and instructions, both ways,
/// whoever leads, alone and together, causal and consistent, over a fork and an exec:
/// everybody is where the naive walk says, after every motion.
#[test]
fn random_walks_equal_single_steps() {
    let scratch = Scratch::new("session-walk");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let mut naive = Naive::new(&recording);
    assert_eq!(naive.runs.len(), 2);
    let of = |run: &Walked, wanted: Kind| {
        let stops = run.stops.iter();
        stops.filter(|(_, kind)| *kind == wanted).count()
    };
    let counts: Vec<usize> = (0..3)
        .map(Kind::Function)
        .chain([0, 1].map(Kind::Changed))
        .map(|kind| naive.runs.iter().map(|run| of(run, kind)).sum())
        .collect();
    // `again(0)` changes nothing.
    assert_eq!(counts, [3, 3, 3, 6, 2]);
    let program = program(&recording);
    let given = std::env::var_os("MW_SEED").is_some();
    let defaults = SEEDS.iter().take(if given { 1 } else { SEEDS.len() });
    // A soak goes on from the seed that it is given.
    let rounds = std::env::var("MW_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for default in defaults {
        let first = seed::seed("random_walks", *default);
        for round in 0..rounds {
            let own = first + round;
            println!("seed {own}");
            let mut seed = own;
            let lines: u32 = (0..3)
                .map(|walk| walk_at_random(&mut seed, walk, &mut naive, &program))
                .sum();
            assert!(lines > 5, "seed {own}: {lines} steps by lines");
        }
    }
}

/// One walk; says how many steps by lines it took.
fn walk_at_random(seed: &mut u64, walk: u32, naive: &mut Naive, program: &Arc<Program>) -> u32 {
    let never = Cancel::new();
    let mut group = Group::new(program).unwrap();
    naive.begin(positions(&group));
    let mut numbers: [Option<u32>; 3] = [None; 3];
    let mut watches: HashMap<(usize, usize), u32> = HashMap::new();
    let mut said = Vec::new();
    let mut lines = 0;
    for round in 0..120 {
        let choice = random(seed) % 12;
        let lead = (random(seed) % 2) as usize;
        let process = naive.runs[lead].id;
        let all = !random(seed).is_multiple_of(3);
        let follow = match random(seed).is_multiple_of(4) {
            true => Follow::Consistent,
            false => Follow::Causal,
        };
        if choice < 2 || round == 0 {
            let i = (random(seed) % 3) as usize;
            said.push(format!("toggle {}", FUNCTIONS[i]));
            match numbers[i].take() {
                Some(number) => {
                    assert!(group.stops().remove(number));
                }
                None => {
                    let what = What::Break(FUNCTIONS[i].to_string());
                    numbers[i] = Some(group.stops().add(what, |_| {}));
                }
            }
            naive.broken[i] = !naive.broken[i];
            continue;
        }
        if choice == 2 {
            // Of one process, in the program that it executes now.
            let key = (lead, naive.runs[lead].image(naive.at[lead]));
            said.push(format!("toggle the watch of {key:?}"));
            match watches.remove(&key) {
                Some(number) => {
                    assert!(group.stops().remove(number));
                    naive.watched.retain(|known| *known != key);
                }
                None => {
                    let frame = FrameRef {
                        thread: ThreadRef {
                            process,
                            thread: None,
                        },
                        level: 0,
                    };
                    // At its end it is not there any more.
                    let Ok(watched) = group.watched(frame, "total") else {
                        continue;
                    };
                    let what = What::Watch(Box::new(watched));
                    watches.insert(key, group.stops().add(what, |_| {}));
                    naive.watched.push(key);
                }
            }
            continue;
        }
        let back = choice.is_multiple_of(2);
        let has_line = naive.runs[lead].has_line(naive.at[lead]);
        let way = match choice {
            3..7 => Way::Continue,
            7 | 8 => Way::Instruction,
            _ if has_line => Way::Line {
                // Back, over functions only: into them is what a later line is.
                into: !back && random(seed).is_multiple_of(2),
            },
            _ => Way::Continue,
        };
        lines += u32::from(matches!(way, Way::Line { .. }));
        said.push(format!("{lead} {way:?} back={back} all={all} {follow:?}"));
        let motion = Move {
            who: if all { Who::All } else { Who::One },
            process,
            thread: None,
            how: match way {
                Way::Continue => How::Continue,
                Way::Instruction => How::Instructions(ONE_INSTRUCTION),
                Way::Line { into } => How::Line { into },
            },
            direction: if back {
                Direction::Backwards
            } else {
                Direction::Forwards
            },
            follow,
        };
        let before = naive.at.clone();
        let context = || {
            format!(
                "walk {walk}: {} from {before:?}\n{}",
                said.last().unwrap(),
                said.join("\n")
            )
        };
        let goals: Vec<Position> = match way {
            Way::Continue => Vec::new(),
            Way::Instruction => naive.step(lead, back),
            Way::Line { into } => naive.line(lead, into, back).into_iter().collect(),
        };
        let stopped = group
            .go(&motion, &never)
            .unwrap_or_else(|e| panic!("{e}\n{}", context()));
        naive.set_out(lead, back);
        let who = match way {
            Way::Continue if back => naive.backwards(lead, all),
            Way::Continue => naive.forwards(lead, all, follow),
            _ if goals.is_empty() => {
                // Past the end, or before the beginning: it says so.
                assert!(
                    matches!(stopped.reason, Reason::Start | Reason::End),
                    "{}\n{stopped:?}",
                    context()
                );
                naive.put_all(&positions(&group));
                naive.arrive(lead, false, back);
                continue;
            }
            _ => {
                // Of two that are both right, the one that it chose.
                let chosen = goals.iter().find(|goal| **goal == stopped.at);
                let mut goal = *chosen.unwrap_or(&goals[0]);
                if back && matches!(way, Way::Line { .. }) {
                    goal = naive.last(lead, goal).unwrap_or(goal);
                }
                Some(naive.step_to(lead, goal, all, follow, back))
            }
        };
        let context = format!("{}\n{stopped:?} {goals:?}", context());
        assert_eq!(positions(&group), naive.at, "{context}");
        let i = who.unwrap_or(lead);
        assert_eq!(stopped.process, naive.runs[i].id, "{context}");
        let kinds = naive.kinds(i, stopped.at, back);
        // One instruction back has nothing on its way, but may lead to a breakpoint.
        let is_short = back && way == Way::Instruction && i == lead;
        let is_stop = match is_short {
            true => !naive.functions(i).is_empty(),
            false => !kinds.is_empty(),
        };
        naive.arrive(i, is_stop, back);
        let is_right = match &stopped.reason {
            Reason::Breakpoint { .. } => kinds.iter().any(|k| matches!(k, Kind::Function(_))),
            Reason::Watch { .. } => kinds.iter().any(|k| matches!(k, Kind::Changed(_))),
            Reason::Step => goals.contains(&stopped.at),
            // Where a step leads out of a program.
            Reason::Exec => goals.contains(&stopped.at),
            Reason::Start => who.is_none() || back,
            Reason::End => who.is_none() || stopped.at >= naive.end(lead),
            _ => false,
        };
        assert!(is_right, "{context} {kinds:?}");
    }
    lines
}

/// Where the process is that stopped: its name, and the event that comes next.
type Where = (String, u64);

/// Motions in both directions, in runs, so that the ends are come to.
fn ways(seed: &mut u64) -> Vec<bool> {
    let mut ways = Vec::new();
    for run in 0..8 {
        let length = 1 + random(seed) % 5;
        ways.extend((0..length).map(|_| run % 2 == 1));
    }
    ways
}

/// How all faces go about a program.
#[derive(Clone, Debug)]
struct Tour {
    ways: Vec<bool>,
    follow: Follow,
    /// From the first stop on `total` of that process is watched.
    watches: bool,
}

/// Where the library comes to, the one that stopped last leading. With `steps_off`
/// that one leaves the breakpoint that it stands at by a step of its own, forwards. Also how
/// often it was a watch that stopped somebody.
fn stops_of(program: &Arc<Program>, tour: &Tour, steps_off: bool) -> (Vec<Where>, usize) {
    let never = Cancel::new();
    let mut group = Group::new(program).unwrap();
    for function in FUNCTIONS {
        group.stops().add(What::Break(function.to_string()), |_| {});
    }
    let members = group.members();
    let name = |id: ProcessId| members.iter().find(|m| m.id == id).unwrap().name.clone();
    if tour.follow != Follow::Causal {
        group.regroup(members[0].id, tour.follow).unwrap();
    }
    let mut at: Option<session::Stopped> = None;
    let (mut stops, mut watched) = (Vec::new(), 0);
    for back in &tour.ways {
        let motion = |how: How, thread| Move {
            who: Who::All,
            process: at.as_ref().map_or(members[0].id, |at| at.process),
            thread,
            how,
            direction: match back {
                true => Direction::Backwards,
                false => Direction::Forwards,
            },
            follow: tour.follow,
        };
        if steps_off
            && !back
            && let Some(at) = &at
            && matches!(at.reason, Reason::Breakpoint { .. })
        {
            let step = motion(How::Instructions(ONE_INSTRUCTION), Some(at.thread));
            group.go(&step, &never).unwrap();
        }
        let stopped = group.go(&motion(How::Continue, None), &never).unwrap();
        stops.push((name(stopped.process), stopped.at.event().0));
        watched += usize::from(matches!(stopped.reason, Reason::Watch { .. }));
        if tour.watches && stops.len() == 1 {
            let thread = ThreadRef {
                process: stopped.process,
                thread: Some(stopped.thread),
            };
            let watch = group.watched(FrameRef { thread, level: 0 }, "total");
            let what = What::Watch(Box::new(watch.unwrap()));
            group.stops().add(what, |_| {});
        }
        at = Some(stopped);
    }
    (stops, watched)
}

/// gdb on a recording, with breakpoints at all functions.
fn gdb_on(recorded: &Recorded, gdb: &str) -> Command {
    let mut command = Command::new(harness::MW);
    command.args(["gdb", "--gdb", gdb]).arg(&recorded.dir);
    command.args(["--", "-nx", "-batch", "-iex", "set auto-load off"]);
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    for function in FUNCTIONS {
        command.args(["-ex", &format!("break {function}")]);
    }
    command
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The library, the prompt and gdb come to the same stops, whoever leads, in both modes,
/// with breakpoints and with watched memory.
#[test]
fn all_faces_come_to_the_same_stops() {
    let gdb = tool!("gdb");
    let mut seed = seed::seed("all_faces", 0x5eed_0fa1);
    let scratch = Scratch::new("session-faces");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let program = program(&recording);
    let ends: HashMap<String, (u64, u64)> = Group::new(&program)
        .unwrap()
        .members()
        .into_iter()
        .map(|member| (member.name, (member.first.0, member.last.0 + 1)))
        .collect();
    let (mut watched, mut different) = (0, HashSet::new());
    for (follow, watches) in [
        (Follow::Causal, false),
        (Follow::Consistent, false),
        (Follow::Causal, true),
        (Follow::Consistent, true),
    ] {
        let tour = Tour {
            ways: ways(&mut seed),
            follow,
            watches,
        };
        let (library, stopped) = stops_of(&program, &tour, false);
        let shown = prompt_on(&recorded, &tour, &ends);
        assert_eq!(shown, library, "{tour:?}");
        // gdb steps off a breakpoint before it goes on, but not before it goes back.
        let (library, again) = stops_of(&program, &tour, true);
        let shown = gdb_tours(&recorded, &gdb, &tour, &ends);
        assert_eq!(shown, library, "{tour:?}");
        watched += stopped + again;
        different.extend(library);
    }
    assert!(
        watched > 2 && different.len() > 5,
        "{watched} {different:?}"
    );
}

/// Where the prompt comes to.
fn prompt_on(recorded: &Recorded, tour: &Tour, ends: &HashMap<String, (u64, u64)>) -> Vec<Where> {
    let mut commands: Vec<String> = FUNCTIONS.iter().map(|f| format!("break {f}")).collect();
    commands.extend((tour.follow == Follow::Consistent).then(|| "mode consistent".to_string()));
    for (number, back) in tour.ways.iter().enumerate() {
        let motion = if *back { "rc" } else { "c" };
        commands.extend([motion, "echo STOP", "when"].map(String::from));
        commands.extend((tour.watches && number == 0).then(|| "watch total".to_string()));
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let (text, status) = harness::prompt::debug(recorded, &commands);
    assert_eq!(status, 0, "{text}");
    let place = |rest: &str| {
        let (name, place) = rest.lines().next()?.split_once(", main-0, ")?;
        let event = match place {
            "at its end" => ends.get(name)?.1,
            place => place.rsplit(':').next()?.parse().ok()?,
        };
        Some((name.to_string(), event))
    };
    let places = text.split("STOP\n").skip(1);
    places
        .map(|rest| place(rest).unwrap_or_else(|| panic!("{rest}\n{text}")))
        .collect()
}

/// Where gdb comes to.
fn gdb_tours(
    recorded: &Recorded,
    gdb: &str,
    tour: &Tour,
    ends: &HashMap<String, (u64, u64)>,
) -> Vec<Where> {
    let mut command = gdb_on(recorded, gdb);
    if tour.follow == Follow::Consistent {
        command.args(["-ex", "monitor mode consistent"]);
    }
    for (number, back) in tour.ways.iter().enumerate() {
        let motion = match back {
            true => "reverse-continue",
            false => "continue",
        };
        command.args(["-ex", motion, "-ex", "when"]);
        if tour.watches && number == 0 {
            command.args(["-ex", "watch total"]);
        }
    }
    let text = printed(&mut command);
    let place = |line: &str| {
        let line = line.split_once(", ").map_or(line, |(line, _)| line);
        let (name, place) = line.split_once(" is ")?;
        let (first, end) = *ends.get(name)?;
        let event = match place {
            "at its end" => end,
            "at its beginning" => first,
            place => place.rsplit(' ').next()?.parse().ok()?,
        };
        Some((name.to_string(), event))
    };
    // What is said aside comes by itself, in its own order.
    let places: Vec<Where> = text.lines().filter_map(place).collect();
    assert_eq!(places.len(), tour.ways.len(), "{text}");
    places
}

/// What a user does, in every face's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Run {
        back: bool,
    },
    Line {
        into: bool,
        back: bool,
    },
    Instruction {
        back: bool,
    },
    /// Back to where the function was called.
    Uncall,
    Watch,
    /// Another process is at hand.
    Process(usize),
    Mode(Follow),
}

/// Where somebody stopped: the process, the event that comes next, and the
/// instruction; 0 where it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stop {
    name: String,
    event: u64,
    pc: Addr,
    line: Option<u32>,
}

/// Acts, and where each that is a motion led.
type Acts = Vec<(Act, Option<Stop>)>;

/// How many acts of a kind there are.
fn count(done: &Acts, is_wanted: impl Fn(Act) -> bool) -> usize {
    done.iter().filter(|(act, _)| is_wanted(*act)).count()
}

/// Lines whose code is in several places, with other lines between them, or that call the C
/// library, which has no lines: on the way back to one of them gdb passes where it begins.
const PASSED: [u32; 8] = [27, 31, 33, 34, 35, 42, 45, 48];

/// Does some acts that are chosen as they come, with breakpoints at all functions, until
/// there are enough. As gdb does it, a step that leads out of a program is forgotten
/// there; one that leads out of `main` stops in what called it, which has no lines, and
/// is not done, and nothing is that comes to an end of the recording.
fn acts_of(
    program: &Arc<Program>,
    seed: &mut u64,
    as_gdb: bool,
    enough: impl Fn(&Acts) -> bool,
    choose: impl Fn(u64, bool) -> Option<Act>,
) -> Acts {
    /// So often in a row it may be that nothing can be done.
    const TRIES: usize = 200;
    let never = Cancel::new();
    let mut group = Group::new(program).unwrap();
    for function in FUNCTIONS {
        group.stops().add(What::Break(function.to_string()), |_| {});
    }
    let members = group.members();
    let (mut process, mut follow) = (members[0].id, Follow::Causal);
    let mut watched = false;
    let mut done = Vec::new();
    let mut at_breakpoint = None;
    let mut tries = 0;
    while done.len() < 60 || !enough(&done) && done.len() < 300 {
        tries += 1;
        if tries > TRIES {
            break;
        }
        let thread = ThreadRef {
            process,
            thread: None,
        };
        let frames = group.frames(thread, 1).unwrap_or_default();
        let has_line = frames.first().is_some_and(|frame| frame.line.is_some());
        let Some(act) = choose(random(seed), has_line) else {
            continue;
        };
        let name = frames.first().and_then(|frame| frame.function.clone());
        let in_function = name.is_some_and(|name| FUNCTIONS.contains(&name.as_str()));
        if act == Act::Uncall && !in_function {
            continue;
        }
        let (how, back) = match act {
            Act::Watch => {
                if !has_line || watched {
                    continue;
                }
                let watch = group.watched(FrameRef { thread, level: 0 }, "total");
                let what = What::Watch(Box::new(watch.unwrap()));
                group.stops().add(what, |_| {});
                watched = true;
                done.push((act, None));
                continue;
            }
            Act::Process(i) => {
                process = members[i].id;
                done.push((act, None));
                continue;
            }
            Act::Mode(mode) => {
                if mode != follow {
                    group.regroup(process, mode).unwrap();
                }
                follow = mode;
                done.push((act, None));
                continue;
            }
            Act::Run { back } => (How::Continue, back),
            Act::Line { into, back } => (How::Line { into }, back),
            Act::Instruction { back } => (How::Instructions(ONE_INSTRUCTION), back),
            Act::Uncall => (How::Finish { level: 0 }, true),
        };
        let (before, stood) = (group.positions(), at_breakpoint);
        if let Some(thread) = at_breakpoint.take().filter(|_| as_gdb)
            && act == (Act::Run { back: false })
        {
            // gdb steps off a breakpoint before it goes on.
            let step = Move {
                who: Who::All,
                process,
                thread: Some(thread),
                how: How::Instructions(ONE_INSTRUCTION),
                direction: Direction::Forwards,
                follow,
            };
            group.go(&step, &never).unwrap();
        }
        let motion = Move {
            who: Who::All,
            process,
            thread: None,
            how,
            direction: match back {
                true => Direction::Backwards,
                false => Direction::Forwards,
            },
            follow,
        };
        let mut stopped = group.go(&motion, &never).unwrap();
        if as_gdb && matches!(stopped.reason, Reason::Exec) {
            let how = How::Continue;
            stopped = group.go(&Move { how, ..motion }, &never).unwrap();
        }
        let thread = ThreadRef {
            process: stopped.process,
            thread: Some(stopped.thread),
        };
        let frames = group.frames(thread, 1).unwrap_or_default();
        let came_to = frames.first();
        let is_out = in_function && came_to.is_some_and(|f| f.function.as_deref() == Some("main"));
        let line = came_to.and_then(|frame| Some(frame.line.as_ref()?.line));
        let is_step = matches!(act, Act::Line { .. } | Act::Uncall) && back;
        // gdb by itself, on what it has recorded by itself, gets these wrong.
        let is_lost = is_step
            && (is_out && stopped.process == members[1].id
                || line.is_some_and(|line| PASSED.contains(&line)));
        if as_gdb && (is_lost || matches!(stopped.reason, Reason::Start | Reason::End)) {
            group.restore(&before);
            at_breakpoint = stood;
            continue;
        }
        tries = 0;
        process = stopped.process;
        at_breakpoint =
            matches!(stopped.reason, Reason::Breakpoint { .. }).then_some(stopped.thread);
        let member = group.members().into_iter().find(|m| m.id == process);
        let stop = Stop {
            name: member.unwrap().name,
            event: stopped.at.event().0,
            pc: frames.first().map_or(Addr::NULL, |frame| frame.pc),
            line,
        };
        done.push((act, Some(stop)));
    }
    assert!(enough(&done), "{done:#?}");
    done
}

/// Lines and instructions, both ways, watches, another process at hand and another
/// mode: the prompt comes to where the library does.
#[test]
fn the_prompt_steps_and_watches_as_the_library_does() {
    let mut seed = seed::seed("prompt_steps", 0x5eed_0fa2);
    let scratch = Scratch::new("session-prompt");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let program = program(&recording);
    // Each kind of act, both ways, and stops of both processes and of what executes again.
    let everything = |done: &Acts| {
        let runs = |back| count(done, |act| act == Act::Run { back });
        let lines = |back| {
            count(
                done,
                |act| matches!(act, Act::Line { back: own, .. } if own == back),
            )
        };
        let steps = |back| count(done, |act| act == Act::Instruction { back });
        let modes = [Follow::Causal, Follow::Consistent]
            .map(|mode| count(done, |act| act == Act::Mode(mode)));
        let processes = [0, 1].map(|i| count(done, |act| act == Act::Process(i)));
        let both = [false, true].map(|back| runs(back).min(lines(back)).min(steps(back)));
        let stops = |name: &str| {
            done.iter()
                .filter_map(|(_, stop)| stop.as_ref())
                .filter(|stop| stop.name == name)
                .count()
        };
        let least = [both, modes, processes, ["walks-0", "walks-1"].map(stops)];
        count(done, |act| act == Act::Watch) > 0 && least.iter().flatten().all(|count| *count > 0)
    };
    let done = acts_of(
        &program,
        &mut seed,
        false,
        everything,
        |choice, has_line| {
            let back = choice.is_multiple_of(3);
            Some(match choice / 8 % 12 {
                0..4 => Act::Run { back },
                4 | 5 => Act::Instruction { back },
                6 => Act::Process((choice / 128 % 2) as usize),
                7 if back => Act::Uncall,
                7 => Act::Watch,
                8 => Act::Mode(match choice / 128 % 2 {
                    0 => Follow::Causal,
                    _ => Follow::Consistent,
                }),
                _ if has_line => Act::Line {
                    into: choice / 128 % 2 == 0,
                    back,
                },
                _ => return None,
            })
        },
    );
    let mut commands: Vec<String> = FUNCTIONS.iter().map(|f| format!("break {f}")).collect();
    for (act, stop) in &done {
        commands.push(
            match act {
                Act::Run { back: false } => "continue",
                Act::Run { back: true } => "reverse-continue",
                Act::Line { into: true, back } if *back => "reverse-step",
                Act::Line { into: true, .. } => "step",
                Act::Line { back: true, .. } => "reverse-next",
                Act::Line { .. } => "next",
                Act::Instruction { back: false } => "stepi",
                Act::Instruction { back: true } => "reverse-stepi",
                Act::Uncall => "reverse-finish",
                Act::Watch => "watch total",
                Act::Process(0) => "process walks-0",
                Act::Process(_) => "process walks-1",
                Act::Mode(Follow::Causal) => "mode causal",
                Act::Mode(Follow::Consistent) => "mode consistent",
            }
            .to_string(),
        );
        if let Some(stop) = stop {
            commands.extend(["echo STOP", "when"].map(str::to_string));
            // Who has ended has none.
            commands.extend((!stop.pc.is_null()).then(|| "print $pc".to_string()));
        }
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let (text, status) = harness::prompt::debug(&recorded, &commands);
    assert_eq!(status, 0, "{text}");
    let members = Group::new(&program).unwrap().members().into_iter();
    let ends: HashMap<String, u64> = members.map(|m| (m.name, m.last.0 + 1)).collect();
    // What `when` says, and the address.
    let shown: Vec<(String, u64, Addr)> = text
        .split("STOP\n")
        .skip(1)
        .map(|rest| {
            let mut lines = rest.lines();
            let (name, place) = lines.next().unwrap().split_once(", main-0, ").unwrap();
            let event = match place {
                "at its end" => ends[name],
                place => place.rsplit(':').next().unwrap().parse().unwrap(),
            };
            let pc = lines.find_map(|line| line.strip_prefix('$')?.split_once("0x"));
            let pc = pc.map_or(Addr::NULL, |(_, rest)| {
                let digits = rest.split(' ').next().unwrap();
                Addr(u64::from_str_radix(digits, 16).unwrap())
            });
            (name.to_string(), event, pc)
        })
        .collect();
    let stops = done.iter().filter_map(|(_, stop)| stop.as_ref());
    let expected: Vec<(String, u64, Addr)> = stops
        .map(|stop| (stop.name.clone(), stop.event, stop.pc))
        .collect();
    assert_eq!(shown, expected, "{done:#?}\n{text}");
}

/// Lines, instructions and watches forwards, runs both ways: gdb, which steps by its own
/// lights, comes to the lines that the library comes to.
#[test]
fn gdb_steps_and_watches_as_the_library_does() {
    let gdb = tool!("gdb");
    let mut seed = seed::seed("gdb_steps", 0x5eed_0fa3);
    let scratch = Scratch::new("session-gdb");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    // gdb steps off a breakpoint by itself before it goes on, and others may stop then:
    // what it comes to is the same as long as it goes by lines and instructions. In
    // another program it knows no step any more.
    let program = program(&recording);
    let lines = |done: &Acts| count(done, |act| matches!(act, Act::Line { .. })) > 10;
    let done = acts_of(&program, &mut seed, true, lines, |choice, has_line| {
        Some(match choice / 8 % 8 {
            0 if !has_line => Act::Run { back: false },
            1 => Act::Watch,
            2 => Act::Instruction { back: false },
            _ if has_line => Act::Line {
                into: choice / 128 % 2 == 0,
                back: false,
            },
            _ => return None,
        })
    });
    gdb_does(&recorded, &gdb, &done);
}

/// Lines into functions and over them, instructions, and out of functions to where they
/// were called, backwards, with lines and runs forwards between them: gdb comes to where
/// the library comes to.
#[test]
fn gdb_steps_back_as_the_library_does() {
    let gdb = tool!("gdb");
    let mut seed = seed::seed("gdb_steps_back", 0x5eed_0fa4);
    let scratch = Scratch::new("session-gdb-back");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let program = program(&recording);
    let lines_back = |done: &Acts, into| count(done, |act| act == Act::Line { into, back: true });
    let enough = |done: &Acts| {
        let both = [false, true].map(|into| lines_back(done, into) > 5);
        both == [true, true] && count(done, |act| act == Act::Uncall) > 1
    };
    let done = acts_of(&program, &mut seed, true, enough, |choice, has_line| {
        let into = choice / 128 % 2 == 0;
        Some(match choice / 8 % 8 {
            _ if !has_line => Act::Run { back: false },
            0 => Act::Run { back: into },
            1 => Act::Instruction { back: true },
            2 => Act::Uncall,
            3 | 4 => Act::Line { into, back: false },
            _ => Act::Line { into, back: true },
        })
    });
    gdb_does(&recorded, &gdb, &done);
}

/// Has gdb do what was done, and compares where each motion led.
fn gdb_does(recorded: &Recorded, gdb: &str, done: &[(Act, Option<Stop>)]) {
    // Going back, gdb stops at every row of its table of lines, and so more than once in a
    // line that has several: it is to go on, in that line, to where the line begins.
    const SETTLE: &str = "python def settle(line, pc, words): \
        [gdb.execute(words) for _ in range(3) if gdb.selected_frame().pc() != pc \
         and gdb.selected_frame().find_sal().line == line]";
    let mut command = gdb_on(recorded, gdb);
    command.args(["-ex", SETTLE]);
    for (act, stop) in done {
        let words = match act {
            Act::Run { back: false } => "continue",
            Act::Run { back: true } => "reverse-continue",
            Act::Line { into, back: false } => ["next", "step"][usize::from(*into)],
            Act::Line { into, back: true } => ["reverse-next", "reverse-step"][usize::from(*into)],
            Act::Instruction { back: false } => "stepi",
            Act::Instruction { back: true } => "reverse-stepi",
            Act::Uncall => "reverse-finish",
            Act::Watch => "watch total",
            Act::Process(_) | Act::Mode(_) => continue,
        };
        command.args(["-ex", words]);
        if let (Act::Line { back: true, .. }, Some(stop)) = (act, stop)
            && let Some(line) = stop.line
        {
            let settle = format!("python settle({line}, {}, '{words}')", stop.pc);
            command.args(["-ex", &settle]);
        }
        if stop.is_some() {
            command.args(["-ex", r#"printf "STOP %d %lu\n", $_inferior, $pc"#]);
        }
    }
    let text = printed(&mut command);
    let shown: Vec<(u64, Addr)> = text
        .lines()
        .filter_map(|line| {
            let (inferior, pc) = line.strip_prefix("STOP ")?.split_once(' ')?;
            Some((inferior.parse().ok()?, Addr(pc.parse().ok()?)))
        })
        .collect();
    let stops = done.iter().filter_map(|(_, stop)| stop.as_ref());
    let expected: Vec<(u64, Addr)> = stops
        .map(|stop| (u64::from(stop.name == "walks-1") + 1, stop.pc))
        .collect();
    assert_eq!(shown, expected, "{done:#?}\n{text}");
}

/// Others go as far as they can, but nobody passes what stops them, and what is shown
/// could have been at one time: forwards to the end, and back.
#[test]
fn going_far_misses_nothing() {
    let scratch = Scratch::new("session-far");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let program = program(&recording);
    let mut group = Group::new(&program).unwrap();
    for function in FUNCTIONS {
        group.stops().add(What::Break(function.to_string()), |_| {});
    }
    let members = group.members();
    for lead in [0, 1] {
        for direction in [Direction::Forwards, Direction::Backwards] {
            let mut hits = HashSet::new();
            let mut process = members[lead].id;
            loop {
                let motion = Move {
                    who: Who::All,
                    process,
                    thread: None,
                    how: How::Continue,
                    direction,
                    follow: Follow::Consistent,
                };
                let stopped = group.go(&motion, &Cancel::new()).unwrap();
                process = stopped.process;
                let events = positions(&group).into_iter().map(|at| at.event().0 as u32);
                let cut = causality::Cut::new(events.collect());
                assert!(
                    program.history().unwrap().is_consistent(&cut),
                    "{stopped:?} {:?}",
                    positions(&group)
                );
                match stopped.reason {
                    Reason::Breakpoint { .. } => {
                        assert!(hits.insert((process, stopped.at)), "{stopped:?}");
                    }
                    Reason::End | Reason::Start => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(hits.len(), 9, "{lead} {direction:?}");
        }
    }
}

/// What is watched in a program that a process executes later is stopped at from where it
/// executes another one, with nothing else on the way.
#[test]
fn a_watch_of_a_later_program_is_come_to() {
    let scratch = Scratch::new("session-later");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let mut group = Group::new(&program(&recording)).unwrap();
    let process = group.members()[1].id;
    let go = |group: &mut Group, how, direction| {
        let motion = Move {
            who: Who::One,
            process,
            thread: None,
            how,
            direction,
            follow: Follow::Causal,
        };
        group.go(&motion, &Cancel::new()).unwrap()
    };
    let again = group.stops().add(What::Break("again".to_string()), |_| {});
    go(&mut group, How::Continue, Direction::Forwards);
    assert!(group.stops().remove(again));
    let thread = ThreadRef {
        process,
        thread: None,
    };
    let watched = group.watched(FrameRef { thread, level: 0 }, "total");
    let what = What::Watch(Box::new(watched.unwrap()));
    group.stops().add(what, |_| {});
    let there = go(&mut group, How::Continue, Direction::Forwards);
    assert!(matches!(there.reason, Reason::Watch { .. }), "{there:?}");
    go(&mut group, How::ToStart, Direction::Backwards);
    let from_start = go(&mut group, How::Continue, Direction::Forwards);
    assert_eq!(from_start.at, there.at, "{from_start:?}");
}

/// Back to where a function was called, from where it was just called.
#[test]
fn back_out_of_a_function_from_its_first_instruction() {
    let scratch = Scratch::new("session-uncall");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let mut group = Group::new(&program(&recording)).unwrap();
    let process = group.members()[0].id;
    let go = |group: &mut Group, how, direction| {
        let motion = Move {
            who: Who::One,
            process,
            thread: None,
            how,
            direction,
            follow: Follow::Causal,
        };
        group.go(&motion, &Cancel::new()).unwrap()
    };
    let function = |group: &mut Group| {
        let thread = ThreadRef {
            process,
            thread: None,
        };
        group.frames(thread, 1).unwrap()[0]
            .function
            .clone()
            .unwrap()
    };
    group.stops().add(What::Break("sent".to_string()), |_| {});
    go(&mut group, How::Continue, Direction::Forwards);
    let mut called = group.position(process).unwrap();
    loop {
        let one = How::Instructions(ONE_INSTRUCTION);
        let call = go(&mut group, one, Direction::Backwards);
        if function(&mut group) != "sent" {
            go(&mut group, How::To(called), Direction::Forwards);
            let back = go(&mut group, How::Finish { level: 0 }, Direction::Backwards);
            assert_eq!(back.at, call.at);
            return;
        }
        called = call.at;
    }
}

/// Instructions over calls lead back over the same calls, unless something stops there.
#[test]
fn calls_are_gone_back_over_as_they_were_gone_over() {
    let scratch = Scratch::new("session-calls");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let mut group = Group::new(&program(&recording)).unwrap();
    let process = group.members()[0].id;
    let go = |group: &mut Group, how, direction| {
        let motion = Move {
            who: Who::One,
            process,
            thread: None,
            how,
            direction,
            follow: Follow::Causal,
        };
        group.go(&motion, &Cancel::new()).unwrap()
    };
    let main = group.stops().add(What::Break("main".to_string()), |_| {});
    go(&mut group, How::Continue, Direction::Forwards);
    assert!(group.stops().remove(main));
    let mut came = vec![group.position(process).unwrap()];
    let mut calls = 0;
    loop {
        let next = go(&mut group, How::NextInstruction, Direction::Forwards);
        let thread = ThreadRef {
            process,
            thread: None,
        };
        let function = group.frames(thread, 1).unwrap()[0].function.clone();
        if function.as_deref() != Some("main") {
            break;
        }
        calls += usize::from(next.at.event() != came.last().unwrap().event());
        came.push(next.at);
    }
    assert!(came.len() > 20 && calls > 3, "{calls} calls in {came:?}");
    let end = *came.last().unwrap();
    go(&mut group, How::To(end), Direction::Forwards);
    for before in came.iter().rev().skip(1) {
        let back = go(&mut group, How::NextInstruction, Direction::Backwards);
        assert_eq!(back.at, *before, "{came:?}");
        assert!(matches!(back.reason, Reason::Step), "{back:?}");
    }
    // What is called stops it on the way.
    go(&mut group, How::To(end), Direction::Forwards);
    group.stops().add(What::Break("sent".to_string()), |_| {});
    let mut stops = 0;
    while group.position(process).unwrap() > came[0] {
        let back = go(&mut group, How::NextInstruction, Direction::Backwards);
        if matches!(back.reason, Reason::Breakpoint { .. }) {
            stops += 1;
            go(&mut group, How::Finish { level: 0 }, Direction::Backwards);
        }
    }
    assert_eq!(stops, 3);
}

/// Who stands at a breakpoint when the others go on is stopped at again when they come
/// back, also if it was a step that led there, and if another breakpoint was set meanwhile.
#[test]
fn who_stands_at_a_stop_is_come_back_to() {
    let scratch = Scratch::new("session-stands");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let program = program(&recording);
    for (stepped, another) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut group = Group::new(&program).unwrap();
        let [parent, child] = [0, 1].map(|i| group.members()[i].id);
        let go = |group: &mut Group, process, how, direction| {
            let motion = Move {
                who: Who::All,
                process,
                thread: None,
                how,
                direction,
                follow: Follow::Causal,
            };
            group.go(&motion, &Cancel::new()).unwrap()
        };
        group.stops().add(What::Break("got".to_string()), |_| {});
        let got = go(&mut group, child, How::Continue, Direction::Forwards);
        assert_eq!(got.process, child);
        if stepped {
            let one = || How::Instructions(ONE_INSTRUCTION);
            go(&mut group, child, one(), Direction::Backwards);
            let onto = go(&mut group, child, one(), Direction::Forwards);
            assert_eq!(onto.at, got.at);
        }
        // It knows of the number sent before, and not of the next.
        group.stops().add(What::Break("sent".to_string()), |_| {});
        let sent = go(&mut group, parent, How::Continue, Direction::Forwards);
        assert_eq!((sent.process, positions(&group)[1]), (parent, got.at));
        if another {
            group.stops().add(What::Break("again".to_string()), |_| {});
        }
        let back = go(&mut group, parent, How::Continue, Direction::Backwards);
        assert_eq!(
            (back.process, back.at),
            (child, got.at),
            "stepped {stepped}, another {another}"
        );
        assert!(matches!(back.reason, Reason::Breakpoint { .. }));
    }
}

/// Watched memory stops behind each change, and going back before it, where single
/// steps find the changes.
#[test]
fn watched_memory_equals_single_steps() {
    let scratch = Scratch::new("session-watch");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let naive = Naive::new(&recording);
    // The one that executes one program only.
    let run = &naive.runs[0];
    let changes = run
        .stops
        .iter()
        .filter(|(_, kind)| matches!(kind, Kind::Changed(_)));
    let changes: Vec<Position> = changes.map(|(at, _)| *at).collect();
    assert_eq!(changes.len(), 3);
    let program = program(&recording);
    let mut group = Group::new(&program).unwrap();
    let what = What::Memory {
        address: run.total.unwrap(),
        length: 8,
    };
    let number = group.stops().add(what, |point| {
        point.whom = session::Whom::Process(run.id);
    });
    let mut walk = |direction: Direction| {
        let mut stops = Vec::new();
        loop {
            let motion = Move {
                who: Who::All,
                process: run.id,
                thread: None,
                how: How::Continue,
                direction,
                follow: Follow::Causal,
            };
            let stopped = group.go(&motion, &Cancel::new()).unwrap();
            match stopped.reason {
                Reason::Watch { number: n, .. } => {
                    assert_eq!((n, stopped.process), (number, run.id));
                    stops.push(stopped.at);
                }
                Reason::End | Reason::Start => return stops,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(walk(Direction::Forwards), changes);
    let before: Vec<Position> = changes
        .iter()
        .rev()
        .map(|at| run.before_change[at])
        .collect();
    assert_eq!(walk(Direction::Backwards), before);
}
