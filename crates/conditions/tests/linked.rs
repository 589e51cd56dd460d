//! Linked predicates, orders and sequences of random histories are what the
//! definitions say when they are read word for word.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod random;

use std::collections::{BTreeMap, BTreeSet};

use conditions::engine::automaton::{Automaton, Expr};
use conditions::engine::linked::{Concurrent, Linked, Step};
use conditions::engine::recognizer::{Purpose, Recognizer};
use conditions::engine::temporal::{Before, LeadsTo};
use conditions::engine::{Atom, Happening, Sym};
use conditions::history::{At, History};
use conditions::stream::{Mark, Moment, Stream};
use random::{Random, Toy};

const HISTORIES: u64 = 2000;
const LETTERS: usize = 4;

/// An event: where, what it is, and what it captured.
type Event = (usize, At, Vec<Happening>);

/// Some events of a history are of some kinds.
fn events(toy: &Toy, random: &mut Random, values: usize) -> Vec<Vec<Event>> {
    (0..toy.processes())
        .map(|process| {
            let mut list = Vec::new();
            for bound in 1..=toy.end(process) {
                for at in [At::bound(bound), At { bound, step: 1 }] {
                    if !random.chance(if at.step == 0 { 75 } else { 10 }) {
                        continue;
                    }
                    let happening = |random: &mut Random| Happening {
                        letter: random.below(LETTERS) as u32,
                        values: [Sym(random.below(values) as u32)].into(),
                    };
                    let mut set = vec![happening(random)];
                    if random.chance(15) {
                        set.push(happening(random));
                        set.dedup_by_key(|own| own.letter);
                    }
                    list.push((process, at, set));
                }
            }
            list
        })
        .collect()
}

fn marks(toy: &Toy, events: &[Vec<Event>]) -> Vec<Vec<Mark>> {
    let mark = |(process, at, _): &Event| Mark {
        at: *at,
        time: toy.time(*process, *at),
    };
    events
        .iter()
        .map(|list| list.iter().map(mark).collect())
        .collect()
}

/// All events in the order in which engines are given them.
fn sequence(toy: &Toy, events: &[Vec<Event>]) -> Vec<(Moment, Vec<Happening>)> {
    let marks = marks(toy, events);
    Stream::new(toy, &marks)
        .map(|moment| {
            let set = events[moment.process][moment.index].2.clone();
            (moment, set)
        })
        .collect()
}

fn toy(seed: u64) -> (Toy, Random) {
    let mut random = Random::new(seed ^ 0x5eed);
    let processes = 2 + random.below(3);
    let events = 5 + random.below(18);
    let toy = Toy::random(&mut random, processes, events);
    (toy, random)
}

#[test]
fn the_sequence_is_causal_and_clocks_are_right() {
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let events = events(&toy, &mut random, 2);
        let sequence = sequence(&toy, &events);
        let count: usize = events.iter().map(Vec::len).sum();
        assert_eq!(sequence.len(), count, "seed {seed}");
        for (i, (later, _)) in sequence.iter().enumerate() {
            for (earlier, _) in &sequence[..i] {
                let (a, b) = ((earlier.process, earlier.at), (later.process, later.at));
                assert!(!toy.before(b, a), "seed {seed}: {b:?} stands behind {a:?}");
                assert_eq!(
                    later.is_after(a.0, a.1),
                    toy.before(a, b),
                    "seed {seed}: {a:?} {b:?}"
                );
            }
        }
    }
}

fn atom(letter: u32, name: Option<usize>) -> Atom {
    Atom {
        letter,
        names: name.map(Some).into_iter().collect(),
    }
}

/// A chain of two or three steps.
fn chain(random: &mut Random) -> Vec<Step> {
    let bound = random.chance(60);
    let name = bound.then_some(0);
    let count = 1 + random.below(3);
    (0..count)
        .map(|k| {
            let mut atoms = vec![atom(random.below(LETTERS) as u32, name)];
            if random.chance(20) {
                atoms.push(atom(random.below(LETTERS) as u32, name));
            }
            let (least, most) = match random.below(6) {
                0 => (2, None),
                1 => (1, Some(2)),
                _ => (1, None),
            };
            let without = match k > 0 && random.chance(35) {
                true => vec![atom(random.below(LETTERS) as u32, name)],
                false => Vec::new(),
            };
            Step {
                atoms,
                least,
                most,
                without,
            }
        })
        .collect()
}

type At2 = (usize, At);

/// The values of a name with which an event is of a kind: all, or one.
fn fits(atoms: &[Atom], set: &[Happening], value: Sym) -> bool {
    atoms.iter().any(|atom| {
        set.iter().any(|own| {
            own.letter == atom.letter && (atom.names.is_empty() || own.values[0] == value)
        })
    })
}

/// Word for word: of each step, the events at which the chain can be complete,
/// with the length of the longest run of that step's events.
fn naive_chain(toy: &Toy, all: &[Event], steps: &[Step], value: Sym) -> BTreeSet<At2> {
    let place = |event: &Event| (event.0, event.1);
    let before = |a: &Event, b: &Event| toy.before(place(a), place(b));
    let mut ends: BTreeMap<usize, u32> = BTreeMap::new();
    for (k, step) in steps.iter().enumerate() {
        let own: Vec<usize> = (0..all.len())
            .filter(|i| fits(&step.atoms, &all[*i].2, value))
            .collect();
        let may_begin = |i: usize| {
            if k == 0 {
                return true;
            }
            let last = &steps[k - 1];
            let past: Vec<(usize, u32)> = ends
                .iter()
                .filter(|(e, _)| before(&all[**e], &all[i]))
                .map(|(e, len)| (*e, *len))
                .collect();
            let longest = past.iter().map(|(_, len)| *len).max().unwrap_or(0);
            if last.most.is_some_and(|most| longest > most) {
                return false;
            }
            past.iter().any(|(e, len)| {
                *len >= last.least
                    && !(0..all.len()).any(|z| {
                        fits(&step.without, &all[z].2, value)
                            && before(&all[*e], &all[z])
                            && before(&all[z], &all[i])
                    })
            })
        };
        // The longest run that ends at each, by all that are before it.
        let mut next: BTreeMap<usize, u32> = BTreeMap::new();
        loop {
            let mut changed = false;
            for i in &own {
                // What is not counted is one event.
                let counted = step.least > 1 || step.most.is_some();
                let run = own
                    .iter()
                    .filter(|_| counted)
                    .filter(|j| before(&all[**j], &all[*i]))
                    .filter_map(|j| next.get(j))
                    .max()
                    .map(|len| len + 1);
                let len = run.or(may_begin(*i).then_some(1));
                if let Some(len) = len
                    && next.get(i) != Some(&len)
                {
                    next.insert(*i, len);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        ends = next;
    }
    let last = steps.last().unwrap();
    ends.into_iter()
        .filter(|(_, len)| *len >= last.least && last.most.is_none_or(|most| *len <= most))
        .map(|(i, _)| place(&all[i]))
        .collect()
}

#[test]
fn linked_predicates_are_complete_where_the_definition_says() {
    let mut found = 0;
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let events = events(&toy, &mut random, 2);
        let steps = chain(&mut random);
        let bound = !steps[0].atoms[0].names.is_empty();
        let all: Vec<Event> = events.iter().flatten().cloned().collect();
        let mut expected: BTreeSet<(At2, Sym)> = BTreeSet::new();
        let values = match bound {
            true => vec![Sym(0), Sym(1)],
            false => vec![Sym::NONE],
        };
        for value in values {
            let ends = naive_chain(&toy, &all, &steps, value);
            expected.extend(ends.into_iter().map(|end| (end, value)));
        }
        let mut linked = Linked::new(steps.clone(), usize::from(bound));
        let mut own: BTreeSet<(At2, Sym)> = BTreeSet::new();
        for (moment, set) in sequence(&toy, &events) {
            linked.take(&moment, &set, &mut |found| {
                let value = found.binding.first().copied().unwrap_or(Sym::NONE);
                let trail = found.trail.events();
                assert_eq!(trail.last(), Some(&(moment.process, moment.at)));
                for two in trail.windows(2) {
                    assert!(toy.before(two[0], two[1]), "seed {seed}: {trail:?}");
                }
                own.insert(((moment.process, moment.at), value));
            });
        }
        assert_eq!(own, expected, "seed {seed}: {steps:?}");
        found += own.len();
    }
    assert!(found > 2000, "{found}");
}

#[test]
fn concurrent_events_are_found_once_for_each_later_one() {
    let mut found = 0;
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let events = events(&toy, &mut random, 2);
        let name = random.chance(50).then_some(0);
        let (a, b) = (random.below(LETTERS) as u32, random.below(LETTERS) as u32);
        let mut engine = Concurrent::new(
            vec![atom(a, name)],
            vec![atom(b, name)],
            usize::from(name.is_some()),
        );
        let sequence = sequence(&toy, &events);
        for (i, (later, set)) in sequence.iter().enumerate() {
            let expected = sequence[..i].iter().any(|(earlier, other)| {
                let apart = !toy.before((earlier.process, earlier.at), (later.process, later.at))
                    && earlier.process != later.process;
                let pair = |x: u32, y: u32| {
                    set.iter().any(|own| {
                        own.letter == x
                            && other.iter().any(|o| {
                                o.letter == y && (name.is_none() || o.values == own.values)
                            })
                    })
                };
                apart && (pair(a, b) || pair(b, a))
            });
            let mut own = 0;
            engine.take(later, set, &mut |_| own += 1);
            assert_eq!(own > 0, expected, "seed {seed}");
            found += own;
        }
    }
    assert!(found > 1000, "{found}");
}

#[test]
fn what_leads_to_nothing_and_what_nothing_leads_to() {
    let mut counts = [0; 2];
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let events = events(&toy, &mut random, 2);
        let name = random.chance(50).then_some(0);
        let names = usize::from(name.is_some());
        let (a, b) = (random.below(LETTERS) as u32, random.below(LETTERS) as u32);
        let within = random.chance(50).then(|| random.below(30) as u64);
        let mut leads = LeadsTo::new(vec![atom(a, name)], vec![atom(b, name)], names, within);
        let mut before = Before::new(vec![atom(a, name)], vec![atom(b, name)], names);
        let sequence = sequence(&toy, &events);
        let mut alone: Vec<At2> = Vec::new();
        for (moment, set) in &sequence {
            leads.take(moment, set);
            before.take(moment, set, &mut |found| alone.extend(found.trail.events()));
        }
        // Word for word.
        let place = |moment: &Moment| (moment.process, moment.at);
        let same = |x: &Happening, y: &Happening| name.is_none() || x.values == y.values;
        let mut unanswered = Vec::new();
        let mut unprepared = Vec::new();
        for (moment, set) in &sequence {
            for own in set {
                let answers = sequence.iter().any(|(other, theirs)| {
                    toy.before(place(moment), place(other))
                        && within.is_none_or(|within| other.time <= moment.time + within)
                        && theirs
                            .iter()
                            .any(|their| their.letter == b && same(own, their))
                });
                if own.letter == a && !answers {
                    unanswered.push(place(moment));
                }
                let causes = sequence.iter().any(|(other, theirs)| {
                    toy.before(place(other), place(moment))
                        && theirs
                            .iter()
                            .any(|their| their.letter == a && same(own, their))
                });
                if own.letter == b && !causes {
                    unprepared.push(place(moment));
                }
            }
        }
        let mut missed: Vec<At2> = leads
            .unanswered()
            .iter()
            .flat_map(|own| own.found.trail.events())
            .collect();
        missed.sort_unstable();
        unanswered.sort_unstable();
        assert_eq!(missed, unanswered, "seed {seed}");
        alone.sort_unstable();
        unprepared.sort_unstable();
        assert_eq!(alone, unprepared, "seed {seed}");
        counts[0] += missed.len();
        counts[1] += alone.len();
    }
    assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
}

fn expr(random: &mut Random, depth: usize) -> Expr {
    let list = |random: &mut Random, count: usize| -> Vec<Expr> {
        (0..count).map(|_| expr(random, depth - 1)).collect()
    };
    match random.below(if depth == 0 { 1 } else { 6 }) {
        0 | 1 => Expr::One(random.below(3)),
        2 => {
            let count = 2 + random.below(2);
            Expr::Sequence(list(random, count))
        }
        3 => Expr::Either(list(random, 2)),
        4 => Expr::Permutation(list(random, 2)),
        _ => {
            let least = random.below(3) as u32;
            let most = random
                .chance(50)
                .then(|| least + random.below(2) as u32)
                .filter(|m| *m > 0);
            Expr::Repeat(Box::new(expr(random, depth - 1)), least, most)
        }
    }
}

/// What is left of a word after each beginning of it that an expression fits.
fn derive(expr: &Expr, word: &[usize]) -> BTreeSet<usize> {
    match expr {
        Expr::One(letter) => match word.first() {
            Some(own) if own == letter => [1].into(),
            _ => BTreeSet::new(),
        },
        Expr::Sequence(list) => {
            let mut ends: BTreeSet<usize> = [0].into();
            for part in list {
                let longer = ends.iter().flat_map(|from| {
                    derive(part, &word[*from..])
                        .into_iter()
                        .map(move |end| from + end)
                });
                ends = longer.collect();
            }
            ends
        }
        Expr::Either(list) => list.iter().flat_map(|part| derive(part, word)).collect(),
        Expr::Permutation(list) => {
            if list.is_empty() {
                return [0].into();
            }
            let mut ends = BTreeSet::new();
            for i in 0..list.len() {
                let mut rest = list.clone();
                let first = rest.remove(i);
                for from in derive(&first, word) {
                    let more = derive(&Expr::Permutation(rest.clone()), &word[from..]);
                    ends.extend(more.into_iter().map(|end| from + end));
                }
            }
            ends
        }
        Expr::Repeat(inner, least, most) => {
            let mut all = BTreeSet::new();
            let mut ends: BTreeSet<usize> = [0].into();
            for count in 0..=most.unwrap_or(word.len() as u32 + least) {
                if count >= *least {
                    all.extend(&ends);
                }
                let longer = ends.iter().flat_map(|from| {
                    derive(inner, &word[*from..])
                        .into_iter()
                        .map(move |end| from + end)
                });
                ends = longer.collect();
            }
            all
        }
    }
}

/// Whether some word that begins so fits: tried letter by letter.
fn goes_on(expr: &Expr, word: &[usize], depth: usize) -> bool {
    if derive(expr, word).contains(&word.len()) {
        return true;
    }
    depth > 0
        && (0..3).any(|letter| {
            let longer = [word, &[letter]].concat();
            goes_on(expr, &longer, depth - 1)
        })
}

#[test]
fn automata_fit_the_words_that_expressions_do() {
    let mut fitting = 0;
    for seed in 0..HISTORIES {
        let mut random = Random::new(seed + 77);
        let expr = expr(&mut random, 2);
        let mut automaton = Automaton::new(&expr).unwrap();
        for _ in 0..20 {
            let count = 1 + random.below(5);
            let word: Vec<usize> = (0..count).map(|_| random.below(3)).collect();
            let mut state = conditions::engine::automaton::START;
            let mut dead = false;
            for (i, letter) in word.iter().enumerate() {
                state = automaton.step(state, 1 << letter);
                if state == conditions::engine::automaton::DEAD {
                    dead = true;
                    let tried = goes_on(&expr, &word[..=i], 4);
                    assert!(!tried, "seed {seed}: {expr:?} {word:?} at {i}");
                    break;
                }
            }
            let fits = derive(&expr, &word).contains(&word.len());
            assert_eq!(
                !dead && automaton.is_final(state),
                fits,
                "seed {seed}: {expr:?} {word:?}"
            );
            fitting += usize::from(fits);
        }
    }
    assert!(fitting > 1000, "{fitting}");
}

/// Word for word: one sequence for each value, as the page says.
fn naive_recognizer(
    expr: &Expr,
    alphabet: &[Atom],
    filtered: bool,
    verify: bool,
    input: &[(Moment, Vec<Happening>)],
) -> Vec<(At2, Sym)> {
    let mut told = Vec::new();
    let mut open: BTreeMap<Sym, Vec<usize>> = BTreeMap::new();
    for (moment, set) in input {
        // The last kind is the filter's own.
        if filtered && !set.iter().any(|own| own.letter == LETTERS as u32) {
            continue;
        }
        let place = (moment.process, moment.at);
        let own: Vec<(usize, Sym)> = alphabet
            .iter()
            .enumerate()
            .flat_map(|(i, atom)| {
                let fitting = set.iter().filter(move |own| own.letter == atom.letter);
                fitting.map(move |own| (i, own.values[0]))
            })
            .collect();
        if own.is_empty() {
            if !filtered {
                continue;
            }
            match verify {
                true => told.extend(open.keys().map(|value| (place, *value))),
                false => open.clear(),
            }
            continue;
        }
        for (letter, value) in own {
            let mut word = open.remove(&value).unwrap_or_default();
            word.push(letter);
            let alive = |word: &[usize]| goes_on(expr, word, 4);
            if !alive(&word) {
                if verify && word.len() > 1 {
                    told.push((place, value));
                    word.pop();
                    open.insert(value, word);
                    continue;
                }
                word = vec![letter];
                if !alive(&word) {
                    continue;
                }
            }
            let complete = derive(expr, &word).contains(&word.len());
            if complete && !verify {
                told.push((place, value));
            }
            let over = match verify {
                true => complete,
                false => !(0..3).any(|next| alive(&[word.as_slice(), &[next]].concat())),
            };
            if !over {
                open.insert(value, word);
            }
        }
    }
    told
}

#[test]
fn recognizers_and_verifiers_tell_what_the_definition_says() {
    let mut counts = [0; 2];
    for seed in 0..HISTORIES {
        let (toy, mut random) = toy(seed);
        let expr = match random.below(4) {
            0 => Expr::Sequence(vec![Expr::One(0), Expr::One(1)]),
            1 => Expr::Sequence(vec![
                Expr::One(0),
                Expr::Repeat(Box::new(Expr::One(1)), 0, None),
                Expr::One(2),
            ]),
            2 => Expr::Permutation(vec![Expr::One(0), Expr::One(1), Expr::One(2)]),
            _ => Expr::Sequence(vec![
                Expr::One(0),
                Expr::Repeat(Box::new(Expr::One(1)), 0, Some(1)),
                Expr::Either(vec![Expr::One(2), Expr::One(0)]),
            ]),
        };
        let alphabet: Vec<Atom> = (0..3).map(|letter| atom(letter, Some(0))).collect();
        let filtered = random.chance(50);
        let verify = random.chance(50);
        let purpose = match verify {
            true => Purpose::Verify,
            false => Purpose::Recognize,
        };
        let mut events = events(&toy, &mut random, 2);
        for (_, _, set) in events.iter_mut().flatten() {
            // One kind of event at a time; most pass the filter.
            set.truncate(1);
            if random.chance(80) {
                set.push(Happening {
                    letter: LETTERS as u32,
                    values: [].into(),
                });
            }
        }
        let input = sequence(&toy, &events);
        let mut recognizer = Recognizer::new(
            purpose,
            Automaton::new(&expr).unwrap(),
            alphabet.clone(),
            filtered.then_some(LETTERS as u32),
            1,
        );
        let mut told: Vec<(At2, Sym)> = Vec::new();
        let wanted = recognizer.letters();
        let mut passed = 0;
        for (moment, set) in &input {
            let has = |letter: u32| set.iter().any(|happening| happening.letter == letter);
            passed += u64::from(has(LETTERS as u32));
            // It is given no more than it asks for.
            if wanted.iter().any(|letter| has(*letter)) {
                recognizer.take(moment, set, passed, &mut |own| {
                    told.push(((moment.process, moment.at), own.found.binding[0]));
                });
            }
        }
        let mut expected = naive_recognizer(&expr, &alphabet, filtered, verify, &input);
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(
            told, expected,
            "seed {seed}: {expr:?} filtered {filtered} verify {verify}"
        );
        counts[usize::from(verify)] += told.len();
    }
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}
