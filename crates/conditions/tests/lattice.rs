//! What the engines say of random histories is what looking at every
//! consistent state says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod random;

use std::collections::HashSet;

use conditions::engine::relation::Rel;
use conditions::engine::solve::{Answer, Formula, Linear, Modality, Solver};
use conditions::engine::trace::{Trace, Val};
use conditions::history::{At, History};
use random::{Random, Toy};

const HISTORIES: u64 = 2000;

struct Lattice {
    places: Vec<Vec<At>>,
    states: Vec<Vec<usize>>,
}

impl Lattice {
    fn new(toy: &Toy, traces: &[Trace]) -> Lattice {
        let places: Vec<Vec<At>> = (0..toy.processes())
            .map(|p| toy.places(p, traces))
            .collect();
        let states = toy.states(&places);
        Lattice { places, states }
    }

    fn holds(&self, state: &[usize], formula: &Formula, traces: &[Trace]) -> bool {
        let value = |trace: usize| {
            let process = traces[trace].process;
            traces[trace].at(self.places[process][state[process]])
        };
        formula.holds(&value, false)
    }

    fn cut(&self, state: &[usize]) -> Vec<u32> {
        state
            .iter()
            .enumerate()
            .map(|(p, i)| self.places[p][*i].bound)
            .collect()
    }

    /// Whether every way from the first state to the last passes one that fits.
    fn definitely(&self, formula: &Formula, traces: &[Trace]) -> bool {
        let all: HashSet<&Vec<usize>> = self.states.iter().collect();
        let last: Vec<usize> = self.places.iter().map(|list| list.len() - 1).collect();
        let mut seen: HashSet<Vec<usize>> = HashSet::new();
        let mut work = vec![vec![0; self.places.len()]];
        while let Some(state) = work.pop() {
            if self.holds(&state, formula, traces) || !seen.insert(state.clone()) {
                continue;
            }
            if state == last {
                return false;
            }
            for p in 0..state.len() {
                let mut next = state.clone();
                next[p] += 1;
                if all.contains(&next) {
                    work.push(next);
                }
            }
        }
        true
    }
}

fn toy(seed: u64) -> (Toy, Random) {
    let mut random = Random::new(seed);
    let processes = 2 + random.below(3);
    let events = 4 + random.below(if processes == 4 { 12 } else { 16 });
    let toy = Toy::random(&mut random, processes, events);
    (toy, random)
}

fn minimal(cuts: &[Vec<u32>]) -> Vec<u32> {
    let mut cuts = cuts.iter();
    let first = cuts.next().unwrap().clone();
    cuts.fold(first, |a, b| {
        a.iter().zip(b).map(|(a, b)| *a.min(b)).collect()
    })
}

#[test]
fn the_first_state_of_a_conjunction_is_the_least_of_all() {
    let mut found = [0, 0, 0];
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let mut traces = Vec::new();
        let mut parts = Vec::new();
        for process in 0..toy.processes() {
            // Some are not asked about, some twice.
            for _ in 0..[0, 1, 1, 2][random.below(4)] {
                parts.push(Formula::Is(traces.len(), random.chance(70)));
                traces.push(toy.trace(&mut random, process, &[0, 0, 1]));
            }
        }
        let formula = Formula::All(parts);
        let solver = Solver {
            history: &toy,
            traces: &traces,
            floor: None,
        };
        let lattice = Lattice::new(&toy, &traces);
        let fitting: Vec<Vec<u32>> = lattice
            .states
            .iter()
            .filter(|state| lattice.holds(state, &formula, &traces))
            .map(|state| lattice.cut(state))
            .collect();
        match solver.ask(&formula, Modality::Possibly) {
            Answer::Yes(state) => {
                assert!(!fitting.is_empty(), "seed {seed}: nowhere, but {state:?}");
                assert_eq!(state.cut, minimal(&fitting), "seed {seed}");
                assert!(state.unique, "seed {seed}");
                assert!(toy.is_consistent(&state.cut), "seed {seed}");
                found[0] += 1;
            }
            Answer::No => assert!(fitting.is_empty(), "seed {seed}: {fitting:?}"),
            Answer::Unknown(why) => panic!("seed {seed}: {why}"),
        }
        match solver.ask(&formula, Modality::Definitely) {
            Answer::Yes(_) => {
                assert!(
                    lattice.definitely(&formula, &traces),
                    "seed {seed}: not definitely"
                );
                found[1] += 1;
            }
            Answer::No => {
                assert!(
                    !lattice.definitely(&formula, &traces),
                    "seed {seed}: definitely"
                );
                found[2] += 1;
            }
            Answer::Unknown(why) => panic!("seed {seed}: {why}"),
        }
    }
    // Both answers were tried often.
    assert!(found.iter().all(|count| *count > 300), "{found:?}");
}

#[test]
fn every_time_a_conjunction_holds_is_a_state_in_which_it_does() {
    let mut times = 0;
    for seed in 0..HISTORIES / 2 {
        let (toy, mut random) = toy(seed);
        let traces: Vec<Trace> = (0..2.min(toy.processes()))
            .map(|p| toy.trace(&mut random, p, &[0, 1]))
            .collect();
        let formula = Formula::All((0..traces.len()).map(|i| Formula::Is(i, true)).collect());
        let solver = Solver {
            history: &toy,
            traces: &traces,
            floor: None,
        };
        let all = solver.occurrences(&formula, 1000).unwrap();
        let first = solver.ask(&formula, Modality::Possibly);
        match (all.first(), first) {
            (Some(state), Answer::Yes(own)) => assert_eq!(state.cut, own.cut, "seed {seed}"),
            (None, Answer::No) => {}
            other => panic!("seed {seed}: {other:?}"),
        }
        for state in &all {
            assert!(toy.is_consistent(&state.cut), "seed {seed}");
            for (process, at) in &state.places {
                let trace = traces
                    .iter()
                    .find(|trace| trace.process == *process)
                    .unwrap();
                assert_eq!(trace.at(*at), Val::Int(1), "seed {seed}");
            }
        }
        times += all.len();
    }
    assert!(times > 500, "{times}");
}

/// A condition of any shape.
fn formula(random: &mut Random, traces: usize, depth: usize) -> Formula {
    match random.below(if depth == 0 { 2 } else { 5 }) {
        0 | 1 => Formula::Is(random.below(traces), random.chance(60)),
        2 => Formula::Compare(Linear {
            terms: (0..1 + random.below(3))
                .map(|_| (1 + random.below(2) as i64, random.below(traces)))
                .collect(),
            constant: -(random.below(4) as i128),
            rel: [Rel::Equal, Rel::Less, Rel::AtLeast, Rel::Unequal][random.below(4)],
            present: match random.chance(50) {
                true => vec![random.below(traces)],
                false => Vec::new(),
            },
            absent: random.chance(30),
            is_whole: random.chance(30),
        }),
        3 => Formula::All((0..2).map(|_| formula(random, traces, depth - 1)).collect()),
        _ => Formula::Any((0..2).map(|_| formula(random, traces, depth - 1)).collect()),
    }
}

fn compare(seed: u64, toy: &Toy, traces: &[Trace], formula: &Formula, counts: &mut [usize; 4]) {
    let solver = Solver {
        history: toy,
        traces,
        floor: None,
    };
    let lattice = Lattice::new(toy, traces);
    let somewhere = lattice
        .states
        .iter()
        .any(|state| lattice.holds(state, formula, traces));
    match solver.ask(formula, Modality::Possibly) {
        Answer::Yes(state) => {
            assert!(
                somewhere,
                "seed {seed}: nowhere, but {state:?}: {formula:?}"
            );
            assert!(toy.is_consistent(&state.cut), "seed {seed}");
            // Nobody has seen more of a process than it has done where it is said to be.
            for (process, at) in &state.places {
                assert!(at.bound >= state.cut[*process], "seed {seed}: {state:?}");
            }
            // What it says of the processes makes it true.
            let value = |trace: usize| {
                let own = state
                    .places
                    .iter()
                    .find(|(p, _)| *p == traces[trace].process);
                own.map_or(Val::Absent, |(_, at)| traces[trace].at(*at))
            };
            assert!(
                formula.holds(&value, false),
                "seed {seed}: {state:?} {formula:?}"
            );
            counts[0] += 1;
        }
        Answer::No => {
            assert!(
                !somewhere,
                "seed {seed}: {formula:?} {traces:?} {:?}",
                toy.links
            );
            counts[1] += 1;
        }
        Answer::Unknown(why) => panic!("seed {seed}: {why}"),
    }
    let definitely = lattice.definitely(formula, traces);
    match solver.ask(formula, Modality::Definitely) {
        Answer::Yes(_) => {
            assert!(definitely, "seed {seed}: not definitely {formula:?}");
            counts[2] += 1;
        }
        Answer::No => {
            assert!(!definitely, "seed {seed}: definitely {formula:?}");
            counts[3] += 1;
        }
        Answer::Unknown(why) => panic!("seed {seed}: {why}"),
    }
    // What was observed is possible, and what is definite is observed.
    let observed = matches!(solver.ask(formula, Modality::Observed), Answer::Yes(_));
    assert!(
        !observed || somewhere,
        "seed {seed}: observed and impossible"
    );
    assert!(
        observed || !definitely,
        "seed {seed}: definite and not observed"
    );
}

#[test]
fn any_condition_is_decided_as_the_lattice_decides_it() {
    let mut counts = [0; 4];
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let traces: Vec<Trace> = (0..1 + random.below(4))
            .map(|_| {
                let process = random.below(toy.processes());
                toy.trace(&mut random, process, &[0, 1, 2])
            })
            .collect();
        let formula = formula(&mut random, traces.len(), 2);
        compare(seed, &toy, &traces, &formula, &mut counts);
    }
    assert!(counts.iter().all(|count| *count > 200), "{counts:?}");
}

#[test]
fn counts_and_sums_are_what_the_lattice_says() {
    let mut counts = [0; 4];
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let values: &[i64] = [&[0, 1][..], &[0, 1, 1], &[0, 3, -2], &[5, 7]][random.below(4)];
        let traces: Vec<Trace> = (0..toy.processes())
            .map(|process| toy.trace(&mut random, process, values))
            .collect();
        let rels = [
            Rel::Equal,
            Rel::Unequal,
            Rel::Less,
            Rel::AtMost,
            Rel::More,
            Rel::AtLeast,
        ];
        let linear = Linear {
            terms: (0..traces.len()).map(|trace| (1, trace)).collect(),
            constant: -(random.below(7) as i128) + 1,
            rel: rels[random.below(rels.len())],
            present: match random.chance(50) {
                true => (0..traces.len()).collect(),
                false => Vec::new(),
            },
            absent: false,
            is_whole: random.chance(50),
        };
        compare(seed, &toy, &traces, &Formula::Compare(linear), &mut counts);
    }
    assert!(counts.iter().all(|count| *count > 200), "{counts:?}");
}

#[test]
fn relations_between_two_processes_are_what_the_lattice_says() {
    let mut counts = [0; 4];
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        if toy.processes() < 2 {
            continue;
        }
        let traces: Vec<Trace> = (0..2)
            .map(|process| toy.trace(&mut random, process, &[0, 1, 2, 3]))
            .collect();
        let rels = [
            Rel::Equal,
            Rel::Unequal,
            Rel::Less,
            Rel::AtMost,
            Rel::More,
            Rel::AtLeast,
        ];
        let linear = Linear {
            terms: vec![(1, 0), (-1, 1)],
            constant: random.below(5) as i128 - 2,
            rel: rels[random.below(rels.len())],
            present: vec![0, 1],
            absent: random.chance(25),
            is_whole: false,
        };
        compare(seed, &toy, &traces, &Formula::Compare(linear), &mut counts);
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
