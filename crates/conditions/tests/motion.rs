//! Asked from some place of a random history, the engines say what looking at every
//! consistent state from there on, or before it, says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod random;

use conditions::engine::relation::Rel;
use conditions::engine::solve::{Answer, Before, Formula, Linear, Modality, Solver};
use conditions::engine::trace::{Edge, Trace};
use conditions::history::{At, History};
use random::{Random, Toy};

const HISTORIES: u64 = 2000;

/// A history, traces on it, a consistent state of it, and all of them.
struct Tried {
    toy: Toy,
    traces: Vec<Trace>,
    places: Vec<Vec<At>>,
    states: Vec<Vec<usize>>,
    here: Vec<usize>,
    random: Random,
}

impl Tried {
    fn new(seed: u64, values: &[i64]) -> Tried {
        let mut random = Random::new(seed);
        let processes = 2 + random.below(3);
        let events = 4 + random.below(if processes == 4 { 12 } else { 16 });
        let toy = Toy::random(&mut random, processes, events);
        let mut traces = Vec::new();
        for process in 0..toy.processes() {
            for _ in 0..[0, 1, 1, 2][random.below(4)] {
                traces.push(toy.trace(&mut random, process, values));
            }
        }
        let places: Vec<Vec<At>> = (0..toy.processes())
            .map(|p| toy.places(p, &traces))
            .collect();
        let states = toy.states(&places);
        let here = states[random.below(states.len())].clone();
        Tried {
            toy,
            traces,
            places,
            states,
            here,
            random,
        }
    }

    fn at(&self, state: &[usize]) -> Vec<At> {
        let each = state.iter().zip(&self.places);
        each.map(|(i, list)| list[*i]).collect()
    }

    fn cut(&self, state: &[usize]) -> Vec<u32> {
        self.at(state).iter().map(|at| at.bound).collect()
    }

    fn holds(&self, state: &[usize], formula: &Formula) -> bool {
        let at = self.at(state);
        formula.holds(
            &|trace| self.traces[trace].at(at[self.traces[trace].process]),
            false,
        )
    }

    /// The states from here on (or before) in which it holds.
    fn fitting(&self, formula: &Formula, on: bool) -> Vec<Vec<u32>> {
        let side = |state: &&Vec<usize>| {
            let pairs = &mut state.iter().zip(&self.here);
            pairs.all(|(a, b)| if on { a >= b } else { a <= b })
        };
        let all = self.states.iter().filter(side);
        let all = all.filter(|state| self.holds(state, formula));
        all.map(|state| self.cut(state)).collect()
    }

    fn solver<'t>(&'t self, floor: Option<&'t [At]>) -> Solver<'t, Toy> {
        Solver {
            history: &self.toy,
            traces: &self.traces,
            floor,
        }
    }

    fn ceiling(&self) -> Vec<Edge> {
        self.at(&self.here).into_iter().map(Edge::at).collect()
    }
}

fn joined(cuts: &[Vec<u32>], pick: fn(u32, u32) -> u32) -> Vec<u32> {
    let mut cuts = cuts.iter();
    let first = cuts.next().unwrap().clone();
    cuts.fold(first, |a, b| {
        a.iter().zip(b).map(|(a, b)| pick(*a, *b)).collect()
    })
}

#[test]
fn of_a_conjunction_the_first_from_here_and_the_last_before_are_what_the_lattice_says() {
    let mut found = [0; 4];
    for seed in 0..HISTORIES {
        let mut tried = Tried::new(seed, &[0, 0, 1]);
        let parts = (0..tried.traces.len()).map(|i| Formula::Is(i, tried.random.chance(70)));
        let formula = Formula::All(parts.collect());
        let fitting = tried.fitting(&formula, true);
        let floor = tried.at(&tried.here);
        match tried.solver(Some(&floor)).ask(&formula, Modality::Possibly) {
            Answer::Yes(state) => {
                assert!(!fitting.is_empty(), "seed {seed}: nowhere, but {state:?}");
                assert_eq!(state.cut, joined(&fitting, u32::min), "seed {seed}");
                found[0] += 1;
            }
            Answer::No => {
                assert!(fitting.is_empty(), "seed {seed}: {fitting:?}");
                found[1] += 1;
            }
            Answer::Unknown(why) => panic!("seed {seed}: {why}"),
        }
        let fitting = tried.fitting(&formula, false);
        match tried.solver(None).last(&formula, &tried.ceiling()) {
            Before::Yes(edges) => {
                assert!(!fitting.is_empty(), "seed {seed}: nowhere, but {edges:?}");
                let cut: Vec<u32> = edges.iter().map(|edge| edge.bound()).collect();
                assert_eq!(cut, joined(&fitting, u32::max), "seed {seed}");
                assert!(tried.toy.is_consistent(&cut), "seed {seed}");
                let value = |i: usize| edges[tried.traces[i].process].value(&tried.traces[i]);
                assert!(formula.holds(&value, false), "seed {seed}: {edges:?}");
                found[2] += 1;
            }
            Before::No => {
                assert!(fitting.is_empty(), "seed {seed}: {fitting:?}");
                found[3] += 1;
            }
            Before::Unknown(why) => panic!("seed {seed}: {why}"),
        }
    }
    // All answers were given often.
    assert!(found.iter().all(|count| *count > 300), "{found:?}");
}

/// A condition of any shape.
fn any(random: &mut Random, traces: usize, depth: usize) -> Formula {
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
            is_whole: false,
        }),
        3 => Formula::All((0..2).map(|_| any(random, traces, depth - 1)).collect()),
        _ => Formula::Any((0..2).map(|_| any(random, traces, depth - 1)).collect()),
    }
}

#[test]
fn any_condition_is_found_from_here_and_before_if_the_lattice_has_it_there() {
    let mut found = [0; 4];
    for seed in 0..HISTORIES {
        let mut tried = Tried::new(seed, &[0, 1, 2]);
        if tried.traces.is_empty() {
            continue;
        }
        let formula = any(&mut tried.random, tried.traces.len(), 2);
        let floor = tried.at(&tried.here);
        let is_some = !tried.fitting(&formula, true).is_empty();
        match tried.solver(Some(&floor)).ask(&formula, Modality::Possibly) {
            Answer::Yes(state) => {
                assert!(is_some, "seed {seed}: nowhere, but {state:?}: {formula:?}");
                let past = state.cut.iter().zip(&floor);
                assert!(past.clone().all(|(a, b)| *a >= b.bound), "seed {seed}");
                assert!(tried.toy.is_consistent(&state.cut), "seed {seed}");
                let value = |i: usize| {
                    let process = tried.traces[i].process;
                    let own = state.places.iter().find(|(p, _)| *p == process);
                    let at = own.map_or(floor[process], |(_, at)| floor[process].max(*at));
                    tried.traces[i].at(at)
                };
                assert!(formula.holds(&value, false), "seed {seed}: {state:?}");
                found[0] += 1;
            }
            Answer::No => {
                assert!(!is_some, "seed {seed}: {formula:?}");
                found[1] += 1;
            }
            Answer::Unknown(why) => panic!("seed {seed}: {why}"),
        }
        let is_some = !tried.fitting(&formula, false).is_empty();
        match tried.solver(None).last(&formula, &tried.ceiling()) {
            Before::Yes(edges) => {
                assert!(is_some, "seed {seed}: nowhere, but {edges:?}: {formula:?}");
                let cut: Vec<u32> = edges.iter().map(|edge| edge.bound()).collect();
                assert!(tried.toy.is_consistent(&cut), "seed {seed}");
                let value = |i: usize| edges[tried.traces[i].process].value(&tried.traces[i]);
                assert!(formula.holds(&value, false), "seed {seed}: {edges:?}");
                found[2] += 1;
            }
            Before::No => {
                assert!(!is_some, "seed {seed}: {formula:?}");
                found[3] += 1;
            }
            Before::Unknown(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(found.iter().all(|count| *count > 200), "{found:?}");
}
