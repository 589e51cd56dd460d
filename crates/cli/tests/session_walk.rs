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
#[path = "../../../tests/seed.rs"]
mod seed;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use causality::{EventId, History};
use harness::{Recorded, Scratch, programs};
use inspect::{Inspector, Library, Options};
use protocol::id::{EventNo, ProcessId, ProcessIx};
use recording::Recording;
use replay::{Replayer, SharedReplay};
use session::{Direction, Follow, Group, How, Move, Program, Reason, What, Who};
use target::{Arrival, Cancel, Opener, Position};

const FUNCTIONS: [&str; 3] = ["sent", "got", "again"];

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
    let shared = Arc::new(SharedReplay::new(recording));
    let names = query::names::own(&history);
    Program::new(history, names, Arc::new(Replayer(shared)))
}

/// What stops a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Function(usize),
    /// Behind a change of `total`.
    Changed,
}

/// The run of one process, found by single steps.
struct Walked {
    id: ProcessId,
    first: EventNo,
    last: EventNo,
    /// Everywhere it was, in order.
    positions: Vec<Position>,
    /// Where it stops going forwards, in order.
    stops: Vec<(Position, Kind)>,
    /// Where it stands when it goes back over a change: before it.
    before_change: HashMap<Position, Position>,
    /// Where `total` is, in the last of its programs.
    total: Option<u64>,
}

/// Walks a process from its beginning to its end by single steps. What is where is
/// looked up whenever other code is mapped.
fn walk(opener: &dyn Opener, id: ProcessId, span: (EventNo, EventNo)) -> Walked {
    let never = Cancel::new();
    let mut target = opener.open(id, &never).unwrap();
    let library = Library::new(Options::default());
    let mut walked = Walked {
        id,
        first: span.0,
        last: span.1,
        positions: vec![target.position()],
        stops: Vec::new(),
        before_change: HashMap::new(),
        total: None,
    };
    let mut known = None;
    let (mut entries, mut total) = (Vec::new(), None);
    let mut value = None;
    loop {
        let maps = target.maps_version();
        if known != Some(maps) {
            let image = known.map(|known: target::MapsVersion| known.image);
            known = Some(maps);
            let looked = target.look();
            let inspector = Inspector::new(&library, &*looked);
            entries = FUNCTIONS
                .iter()
                .enumerate()
                .filter_map(|(i, name)| {
                    let found = inspector.resolve(name, None).ok()?;
                    Some((found.first()?.address, i))
                })
                .collect::<Vec<_>>();
            let globals = inspector.globals("total", None);
            total = globals.first().and_then(|(_, module)| {
                let symbols = module.module.symbols().all();
                let symbol = symbols.iter().find(|s| s.demangled() == "total")?;
                Some(module.to_process(symbol.address))
            });
            if image != Some(maps.image) {
                value = None;
            }
        }
        let read = |address: u64| {
            let mut word = [0; 8];
            (target.read(address, &mut word) == 8).then(|| u64::from_le_bytes(word))
        };
        if value.is_none() {
            value = total.and_then(read);
        }
        let arrival = target.step(0..0, &[], &never).unwrap();
        let at = target.position();
        let before = *walked.positions.last().unwrap();
        if at != before {
            walked.positions.push(at);
        }
        let now = total.and_then(|address| {
            let mut word = [0; 8];
            (target.read(address, &mut word) == 8).then(|| u64::from_le_bytes(word))
        });
        if target.maps_version().image == maps.image
            && now.is_some()
            && value.is_some()
            && now != value
        {
            walked.stops.push((at, Kind::Changed));
            walked.before_change.insert(at, before);
        }
        value = now;
        if let Some(address) = at.address()
            && let Some((_, i)) = entries.iter().find(|(entry, _)| *entry == address)
            && target.maps_version() == maps
        {
            walked.stops.push((at, Kind::Function(*i)));
        }
        match arrival {
            Arrival::Stepped => {}
            Arrival::End => break,
            other => panic!("{other:?} at {at:?}"),
        }
    }
    walked.total = total;
    walked
}

/// The naive debugger: lists of stops, and the order of cause and effect.
struct Naive {
    history: History,
    runs: Vec<Walked>,
    at: Vec<Position>,
    /// Which functions have a breakpoint.
    broken: [bool; 3],
}

impl Naive {
    fn end(&self, i: usize) -> Position {
        Position::Event(self.runs[i].last.next())
    }

    fn is_on(&self, kind: Kind) -> bool {
        match kind {
            Kind::Function(i) => self.broken[i],
            Kind::Changed => false,
        }
    }

    fn next(&self, i: usize, limit: Position) -> Option<Position> {
        let stops = self.runs[i].stops.iter();
        let mut stops = stops.filter(|(_, kind)| self.is_on(*kind));
        stops
            .find(|(at, _)| *at > self.at[i] && *at <= limit)
            .map(|(at, _)| *at)
    }

    fn last(&self, i: usize, floor: Position) -> Option<Position> {
        let stops = self.runs[i].stops.iter().rev();
        let mut stops = stops.filter(|(_, kind)| self.is_on(*kind));
        stops
            .find(|(at, _)| *at < self.at[i] && *at >= floor)
            .map(|(at, _)| *at)
    }

    /// How far the others must have come.
    fn needed(&self, i: usize, at: Position) -> Vec<u64> {
        let run = &self.runs[i];
        let done = at.event().0.min(run.last.0 + 1).checked_sub(1);
        let cut = done.filter(|done| *done >= run.first.0).map(|done| {
            self.history
                .past(EventId::new(ProcessIx(i as u32), EventNo(done)))
        });
        (0..self.runs.len())
            .map(|j| {
                let bound = cut
                    .as_ref()
                    .map_or(0, |cut| cut.bound(ProcessIx(j as u32)).0);
                bound.min(self.runs[j].last.0 + 1)
            })
            .collect()
    }

    fn forwards(&mut self, lead: usize, all: bool) -> (usize, bool) {
        let crew = self.crew(lead, all);
        let found = crew
            .iter()
            .find_map(|i| Some((*i, self.next(*i, Position::END)?)));
        let Some((mut i, mut at)) = found else {
            for i in crew {
                self.at[i] = self.end(i);
            }
            return (lead, false);
        };
        'again: loop {
            let needed = self.needed(i, at);
            for j in crew.iter().copied().filter(|j| *j != i) {
                let bound = Position::Event(EventNo(needed[j]));
                if needed[j] > self.at[j].event().0
                    && let Some(earlier) = self.next(j, bound)
                {
                    (i, at) = (j, earlier);
                    continue 'again;
                }
            }
            for j in crew.iter().copied().filter(|j| *j != i) {
                if needed[j] > self.at[j].event().0 {
                    self.at[j] = Position::Event(EventNo(needed[j]));
                }
            }
            self.at[i] = at;
            return (i, true);
        }
    }

    fn backwards(&mut self, lead: usize, all: bool) -> (usize, bool) {
        let crew = self.crew(lead, all);
        let found = crew
            .iter()
            .find_map(|i| Some((*i, self.last(*i, Position::START)?)));
        let Some((mut i, mut at)) = found else {
            for i in crew {
                self.at[i] = Position::Event(self.runs[i].first);
            }
            return (lead, false);
        };
        'again: loop {
            let event = at.event().0;
            let undone = match event <= self.runs[i].last.0 {
                true => self
                    .history
                    .future(EventId::new(ProcessIx(i as u32), EventNo(event))),
                false => Vec::new(),
            };
            let mut leave = Vec::new();
            for j in crew.iter().copied().filter(|j| *j != i) {
                let saw = undone.get(j).copied().flatten().map(|saw| saw.0);
                let Some(saw) = saw.filter(|saw| *saw < self.at[j].event().0) else {
                    continue;
                };
                let floor = Position::Event(EventNo(saw.max(self.runs[j].first.0)));
                if let Some(later) = self.last(j, floor) {
                    (i, at) = (j, later);
                    continue 'again;
                }
                leave.push((j, floor));
            }
            for (j, floor) in leave {
                self.at[j] = floor;
            }
            self.at[i] = at;
            return (i, true);
        }
    }

    fn crew(&self, lead: usize, all: bool) -> Vec<usize> {
        let others = (0..self.runs.len()).filter(|i| all && *i != lead);
        std::iter::once(lead).chain(others).collect()
    }

    /// Where a process may be after one instruction; nowhere: it is at its end, or
    /// at its beginning.
    fn step(&self, i: usize, back: bool) -> Vec<Position> {
        let (positions, now) = (&self.runs[i].positions, self.at[i]);
        if !back {
            let next = positions.iter().find(|p| **p > now);
            return next.copied().into_iter().collect();
        }
        let before = positions.partition_point(|p| *p < now);
        let mut found: Vec<Position> = positions[..before].iter().rev().copied().collect();
        match now {
            // The instruction that the event befell, or the one before that, if it
            // was not executed: both are one back.
            Position::Event(_) => found.truncate(2),
            Position::Inside(_) => found.truncate(1),
        }
        // Going back, an event has a place of its own, behind the way to it.
        let event = now
            .event()
            .0
            .checked_sub(1)
            .map(|e| Position::Event(EventNo(e)));
        let event = event.filter(|event| *event < now && event.event() >= self.runs[i].first);
        if let Some(event) = event
            && found.first().is_none_or(|found| *found <= event)
        {
            found = vec![event];
        }
        found
    }
}

fn positions(group: &Group) -> Vec<Position> {
    group.members().iter().map(|m| m.at).collect()
}

fn recorded(scratch: &Scratch) -> Recorded {
    // Static: the dynamic linker would be most of the walk.
    let program = programs::for_debuggers(scratch, "debug/walks.c", &["-static"]);
    scratch.record(&[program])
}

fn naive(recording: &Arc<Recording>) -> Naive {
    let history = History::open(recording, &|_| {}).unwrap();
    let opener = Replayer(Arc::new(SharedReplay::new(recording)));
    let runs: Vec<Walked> = recording
        .processes()
        .iter()
        .zip(0u32..)
        .map(|(process, place)| {
            let id = ProcessId::of_first(process.number);
            walk(&opener, id, history.span(ProcessIx(place)))
        })
        .collect();
    let at = runs.iter().map(|run| Position::Event(run.first)).collect();
    Naive {
        history,
        runs,
        at,
        broken: [false; 3],
    }
}

/// Breakpoints, both ways, whoever leads, alone and together, over a fork and an
/// exec: everybody is where the naive walk says, after every motion.
#[test]
fn random_walks_equal_single_steps() {
    let mut seed = seed::seed("random_walks", 0x5eed_0fa1);
    let scratch = Scratch::new("session-walk");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let mut naive = naive(&recording);
    assert_eq!(naive.runs.len(), 2);
    let of = |run: &Walked, function: usize| {
        let stops = run.stops.iter();
        stops
            .filter(|(_, kind)| *kind == Kind::Function(function))
            .count()
    };
    let counts: Vec<usize> = (0..3)
        .map(|function| naive.runs.iter().map(|run| of(run, function)).sum())
        .collect();
    assert_eq!(counts, [3, 3, 3]);
    let program = program(&recording);
    let mut group = Group::new(&program).unwrap();
    let mut numbers: [Option<u32>; 3] = [None; 3];
    let never = Cancel::new();
    let mut said = Vec::new();
    for round in 0..120 {
        let choice = random(&mut seed) % 10;
        let lead = (random(&mut seed) % 2) as usize;
        let process = naive.runs[lead].id;
        let all = !random(&mut seed).is_multiple_of(3);
        if choice < 3 || round == 0 {
            let i = (random(&mut seed) % 3) as usize;
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
        let back = choice.is_multiple_of(2);
        let is_step = choice >= 8;
        said.push(format!("{lead} back={back} all={all} step={is_step}"));
        let motion = Move {
            who: if all && !is_step { Who::All } else { Who::One },
            process,
            thread: None,
            how: if is_step {
                How::Instructions(0..0)
            } else {
                How::Continue
            },
            direction: if back {
                Direction::Backwards
            } else {
                Direction::Forwards
            },
            follow: Follow::Causal,
        };
        let before = naive.at.clone();
        let steps = naive.step(lead, back);
        let (who, hit) = match (is_step, back) {
            (true, _) => (lead, !steps.is_empty()),
            (false, false) => naive.forwards(lead, all),
            (false, true) => naive.backwards(lead, all),
        };
        let stopped = group.go(&motion, &never).unwrap();
        let context = format!(
            "{} from {before:?}\n{}",
            said.last().unwrap(),
            said.join("\n")
        );
        if is_step && !hit {
            // Past the end, or before the beginning: it says so.
            assert!(
                matches!(stopped.reason, Reason::Start | Reason::End),
                "{context}\n{stopped:?}"
            );
            naive.at = positions(&group);
            continue;
        }
        if is_step {
            assert!(
                steps.contains(&stopped.at),
                "{context}\n{stopped:?} {steps:?}"
            );
            naive.at[lead] = stopped.at;
        }
        assert_eq!(positions(&group), naive.at, "{context}\n{stopped:?}");
        assert_eq!(stopped.process, naive.runs[who].id, "{context}");
        let is_right = match (hit, is_step) {
            (true, false) => matches!(stopped.reason, Reason::Breakpoint { .. }),
            // The step that ends the process ends there.
            (true, true) if stopped.at >= naive.end(lead) => {
                matches!(stopped.reason, Reason::Step | Reason::End)
            }
            (true, true) => matches!(stopped.reason, Reason::Step),
            (false, _) => matches!(stopped.reason, Reason::Start | Reason::End),
        };
        assert!(is_right, "{context}\n{stopped:?}");
    }
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

/// Where the library comes to, the one that stopped last leading. With `steps_off`
/// that one leaves the breakpoint that it stands at by a step of its own, forwards.
fn stops_of(program: &Arc<Program>, ways: &[bool], steps_off: bool) -> Vec<Where> {
    let never = Cancel::new();
    let mut group = Group::new(program).unwrap();
    for function in FUNCTIONS {
        group.stops().add(What::Break(function.to_string()), |_| {});
    }
    let members = group.members();
    let name = |id: ProcessId| members.iter().find(|m| m.id == id).unwrap().name.clone();
    let mut at: Option<session::Stopped> = None;
    let mut stops = Vec::new();
    for back in ways {
        let motion = |how: How, thread| Move {
            who: Who::All,
            process: at.as_ref().map_or(members[0].id, |at| at.process),
            thread,
            how,
            direction: match back {
                true => Direction::Backwards,
                false => Direction::Forwards,
            },
            follow: Follow::Causal,
        };
        if steps_off
            && !back
            && let Some(at) = &at
            && matches!(at.reason, Reason::Breakpoint { .. })
        {
            let step = motion(How::Instructions(0..0), Some(at.thread));
            group.go(&step, &never).unwrap();
        }
        let stopped = group.go(&motion(How::Continue, None), &never).unwrap();
        stops.push((name(stopped.process), stopped.at.event().0));
        at = Some(stopped);
    }
    stops
}

/// The library, the prompt and gdb come to the same stops, whoever leads.
#[test]
fn all_faces_come_to_the_same_stops() {
    let gdb = tool!("gdb");
    let mut seed = seed::seed("all_faces", 0x5eed_0fa1);
    let scratch = Scratch::new("session-faces");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let ways = ways(&mut seed);
    let program = program(&recording);
    let library = stops_of(&program, &ways, false);

    let mut commands: Vec<String> = FUNCTIONS.iter().map(|f| format!("break {f}")).collect();
    for back in &ways {
        commands.push(if *back { "rc" } else { "c" }.to_string());
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let (text, status) = harness::prompt::debug(&recorded, &commands);
    assert_eq!(status, 0, "{text}");
    let event = |text: &str| text.rsplit(':').next()?.parse::<u64>().ok();
    let prompt: Vec<Where> = text
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(", main-0, ")?;
            Some((name.to_string(), event(rest)?))
        })
        .collect();
    assert_eq!(prompt, library, "{text}");

    let mut command = std::process::Command::new(harness::MW);
    command.args(["gdb", "--gdb", &gdb]).arg(&recorded.dir);
    command.args(["--", "-nx", "-batch", "-iex", "set auto-load off"]);
    command
        .env("LC_ALL", "C.UTF-8")
        .stdin(std::process::Stdio::null());
    for function in FUNCTIONS {
        command.args(["-ex", &format!("break {function}")]);
    }
    for back in &ways {
        command.args([
            "-ex",
            if *back {
                "reverse-continue"
            } else {
                "continue"
            },
        ]);
        command.args(["-ex", "when"]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let ends: HashMap<String, (u64, u64)> = Group::new(&program)
        .unwrap()
        .members()
        .into_iter()
        .map(|member| (member.name, (member.first.0, member.last.0 + 1)))
        .collect();
    let gdb: Vec<Where> = text
        .lines()
        .filter_map(|line| {
            let line = line.split_once(", ").map_or(line, |(line, _)| line);
            let (name, place) = line.split_once(" is ")?;
            let (first, end) = *ends.get(name)?;
            let event = match place {
                "at its end" => end,
                "at its beginning" => first,
                place => place.rsplit(' ').next()?.parse().ok()?,
            };
            Some((name.to_string(), event))
        })
        .collect();
    // gdb steps off a breakpoint before it goes on, but not before it goes back.
    assert_eq!(gdb, stops_of(&program, &ways, true), "{text}");
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
                    program.history().is_consistent(&cut),
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

/// Watched memory stops behind each change, and going back before it, where single
/// steps find the changes.
#[test]
fn watched_memory_equals_single_steps() {
    let scratch = Scratch::new("session-watch");
    let recorded = recorded(&scratch);
    let recording = open(&recorded);
    let naive = naive(&recording);
    // The one that executes one program only.
    let run = &naive.runs[0];
    let changes = run.stops.iter().filter(|(_, kind)| *kind == Kind::Changed);
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
