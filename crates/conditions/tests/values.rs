//! Numbers with fractions, texts, numbers beyond any, and messages that several receive
//! a part of: rules over them say what looking at every consistent state says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod random;
mod story;

use conditions::history::History;
use conditions::verdict::Outcome;
use random::Random;
use story::Story;

const HISTORIES: u64 = 2000;

/// A run in which processes assign to `x`, send, and receive, some messages twice.
fn run(random: &mut Random, values: &[&str]) -> String {
    let mut text = String::new();
    let processes = 2 + random.below(2);
    let mut sent = Vec::new();
    let mut time = 0;
    for process in 0..processes {
        time += 1;
        let value = values[random.below(values.len())];
        text.push_str(&format!("{time}ms p-{process} does \"x = {value}\"\n"));
    }
    for number in 0..4 + random.below(8) {
        time += 1;
        let process = random.below(processes);
        let what = match random.below(5) {
            0 | 1 => format!("does \"x = {}\"", values[random.below(values.len())]),
            2 => {
                sent.push((number, process, Vec::new()));
                format!("sends m{number} \"go {number}\"")
            }
            _ => {
                // Two may receive a part of it, each once and not who sent it.
                let free = |own: &&mut (usize, usize, Vec<usize>)| {
                    own.1 != process && !own.2.contains(&process)
                };
                match sent.iter_mut().rev().find(free) {
                    Some((number, _, receivers)) => {
                        receivers.push(process);
                        format!("receives m{number}")
                    }
                    None => "does \"nothing\"".to_string(),
                }
            }
        };
        text.push_str(&format!("{time}ms p-{process} {what}\n"));
    }
    text
}

/// A consistent state, word for word: of each process, the lines behind it.
struct State<'s> {
    lines: &'s [(usize, String)],
    bounds: Vec<u32>,
}

impl State<'_> {
    fn behind(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut counts = vec![0; self.bounds.len()];
        self.lines.iter().filter_map(move |(process, what)| {
            counts[*process] += 1;
            (counts[*process] <= self.bounds[*process]).then_some((*process, what.as_str()))
        })
    }

    /// What `x` is in a process.
    fn x(&self, process: usize) -> Option<String> {
        let own = self.behind().filter(|(own, _)| *own == process);
        let assigned = own.filter_map(|(_, what)| what.split_once("x = "));
        assigned
            .last()
            .map(|(_, value)| value.trim_matches('"').to_string())
    }

    /// Whether `x` ever is anything in a process.
    fn ever(&self, process: usize) -> bool {
        let mut own = self.lines.iter();
        own.any(|(own, what)| *own == process && what.contains("x = "))
    }

    /// Messages that were sent and that not all who ever receive them have.
    fn in_flight(&self) -> usize {
        let count = |what: &str| {
            self.behind()
                .filter(|(_, own)| own.starts_with(what))
                .count()
        };
        let sent = self.behind().filter_map(|(_, what)| {
            let name = what.strip_prefix("sends ")?.split(' ').next()?;
            Some(format!("receives {name}"))
        });
        let flies = |what: &String| {
            let all = self.lines.iter().filter(|(_, own)| own == what).count();
            // What nobody ever receives is on its way for ever.
            all == 0 || count(what) < all
        };
        sent.filter(flies).count()
    }
}

/// All consistent states of a run.
fn states<'s>(story: &Story, lines: &'s [(usize, String)]) -> Vec<State<'s>> {
    let mut all: Vec<Vec<u32>> = vec![Vec::new()];
    for process in 0..story.processes() {
        let bounds = 0..=story.end(process);
        all = all
            .iter()
            .flat_map(|own| {
                bounds
                    .clone()
                    .map(|bound| [own.as_slice(), &[bound]].concat())
            })
            .collect();
    }
    all.retain(|bounds| {
        (0..bounds.len()).all(|process| {
            let past = story.past(process, bounds[process]);
            past.iter().zip(bounds).all(|(needs, bound)| needs <= bound)
        })
    });
    let state = |bounds| State { lines, bounds };
    all.into_iter().map(state).collect()
}

fn lines(text: &str) -> Vec<(usize, String)> {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ').skip(1);
        let process = words.next().unwrap().strip_prefix("p-").unwrap();
        (process.parse().unwrap(), words.next().unwrap().to_string())
    };
    text.lines().map(line).collect()
}

/// Judges a rule by the engines and by all states.
fn agree(seed: u64, text: &str, rule: &str, holds: &dyn Fn(&State<'_>) -> bool) -> Outcome {
    let story = Story::new(text);
    let lines = lines(text);
    let somewhere = states(&story, &lines).iter().any(holds);
    let verdict = story.verdict(rule);
    let expected = match somewhere {
        true => Outcome::Violated,
        false => Outcome::Holds,
    };
    assert_eq!(
        verdict.outcome, expected,
        "seed {seed}: {rule}\n{text}{:?}",
        verdict.reason
    );
    expected
}

fn compared(sign: &str, order: std::cmp::Ordering) -> bool {
    match sign {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    }
}

const SIGNS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];

#[test]
fn numbers_with_fractions_compare_as_they_do() {
    // Whole ones among them, some far apart, and two that differ in the last place.
    let values = [
        "0.1",
        "0.5",
        "2",
        "-3.25",
        "0.30000000000000004",
        "0.3",
        "1e300",
        "-1e-300",
        "18446744073709551615",
    ];
    let mut found = [0, 0];
    for seed in 0..HISTORIES {
        let mut random = Random::new(seed);
        let text = run(&mut random, &values);
        let sign = SIGNS[random.below(SIGNS.len())];
        let number = |text: Option<String>| -> Option<f64> { text?.parse().ok() };
        let outcome = match random.chance(50) {
            true => {
                let rule = format!("never r: value(p-0: x) {sign} value(p-1: x)");
                agree(seed, &text, &rule, &|state| {
                    let (Some(a), Some(b)) = (number(state.x(0)), number(state.x(1))) else {
                        return false;
                    };
                    compared(sign, a.partial_cmp(&b).unwrap())
                })
            }
            false => {
                let literal = ["0.3", "2", "0.5", "1e-9"][random.below(4)];
                let rule = format!("never r: {literal} {sign} value(p-1: x)");
                agree(seed, &text, &rule, &|state| {
                    let literal: f64 = literal.parse().unwrap();
                    let own = number(state.x(1));
                    own.is_some_and(|own| compared(sign, literal.partial_cmp(&own).unwrap()))
                })
            }
        };
        found[usize::from(outcome == Outcome::Holds)] += 1;
    }
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}

#[test]
fn numbers_with_fractions_are_added_exactly() {
    let values = ["0.1", "0.2", "100.25", "-0.5", "3", "0.375"];
    let exact = |text: &str| (text.parse::<f64>().unwrap() * 2f64.powi(60)) as i128;
    let mut found = [0, 0];
    for seed in 0..HISTORIES {
        let mut random = Random::new(seed);
        let text = run(&mut random, &values);
        let sign = SIGNS[random.below(SIGNS.len())];
        let literal = ["0.3", "3.25", "100.35", "1", "103.1"][random.below(5)];
        let never = random.chance(50);
        let word = if never { "never" } else { "always" };
        let rule = format!("{word} r: sum(p-*: x) {sign} {literal}");
        let processes = Story::new(&text).processes();
        let outcome = agree(seed, &text, &rule, &|state| {
            // What the family has together, where all who ever have anything have it; what
            // those have who are there is bounded by whoever is there.
            let is_missing = |process: &usize| state.ever(*process) && state.x(*process).is_none();
            if ["==", "!="].contains(&sign) && (0..processes).any(|own| is_missing(&own)) {
                return false;
            }
            let own = (0..processes).filter_map(|process| state.x(process));
            let sum: i128 = own.map(|own| exact(&own)).sum();
            compared(sign, sum.cmp(&exact(literal))) == never
        });
        found[usize::from(outcome == Outcome::Holds)] += 1;
    }
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}

#[test]
fn texts_compare_with_texts() {
    let values = ["leader", "follower", "lead", "candidate", "7"];
    let mut found = [0, 0];
    for seed in 0..HISTORIES {
        let mut random = Random::new(seed);
        // Without numbers among them, texts have an order.
        let mixed = random.chance(50);
        let text = run(&mut random, &values[..4 + usize::from(mixed)]);
        let sign = SIGNS[random.below(if mixed { 2 } else { SIGNS.len() })];
        let outcome = match random.chance(50) {
            true => {
                let rule = format!("never r: value(p-0: x) {sign} value(p-1: x)");
                agree(seed, &text, &rule, &|state| {
                    let (Some(a), Some(b)) = (state.x(0), state.x(1)) else {
                        return false;
                    };
                    compared(sign, a.cmp(&b))
                })
            }
            false => {
                let rule = format!("never r: value(p-1: x) {sign} \"leader\"");
                agree(seed, &text, &rule, &|state| {
                    state
                        .x(1)
                        .is_some_and(|own| compared(sign, own.as_str().cmp("leader")))
                })
            }
        };
        found[usize::from(outcome == Outcome::Holds)] += 1;
    }
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}

#[test]
fn a_message_is_in_flight_until_all_who_receive_a_part_have() {
    let mut found = [0, 0];
    let mut shared = 0;
    for seed in 0..HISTORIES {
        let mut random = Random::new(seed);
        let text = run(&mut random, &["1"]);
        let received: Vec<&str> = text
            .lines()
            .filter_map(|l| l.split_once("receives "))
            .map(|(_, m)| m)
            .collect();
        shared += u64::from((0..received.len()).any(|i| received[..i].contains(&received[i])));
        if !text.contains("sends") {
            continue;
        }
        let sign = SIGNS[random.below(SIGNS.len())];
        let count = random.below(3);
        // On either side of the comparison.
        let rule = match random.chance(50) {
            true => format!("never r: in_flight(send) {sign} {count}"),
            false => format!("never r: 0 {sign} {count} - in_flight(send)"),
        };
        let turned = rule.contains(" - ");
        let outcome = agree(seed, &text, &rule, &|state| {
            let flying = state.in_flight();
            match turned {
                true => compared(sign, 0.cmp(&(count as i64 - flying as i64))),
                false => compared(sign, flying.cmp(&count)),
            }
        });
        found[usize::from(outcome == Outcome::Holds)] += 1;
    }
    assert!(found.iter().all(|count| *count > 80), "{found:?}");
    assert!(shared > 100, "{shared}");
}

#[test]
fn what_a_family_has_together_is_judged_where_all_of_it_is_there() {
    let begun = "1ms p-0 does \"x = 1000\"\n2ms p-1 does \"x = 500\"\n3ms p-2 does \"x = 1300\"\n";
    let moved = format!("{begun}4ms p-0 does \"x = 900\"\n5ms p-0 sends m1 \"100\"\n");
    let exact = "always money: sum(p-*: x) == 2800";
    let bound = "always some: sum(p-*: x) > 500";
    let outcome = |text: &str, rule: &str| Story::new(text).verdict(rule).outcome;
    assert_eq!(outcome(begun, exact), Outcome::Holds);
    assert_eq!(outcome(&moved, exact), Outcome::Violated);
    assert_eq!(
        outcome(&moved, "never lost: sum(p-*: x) != 2800"),
        Outcome::Violated
    );
    assert_eq!(
        outcome(&moved, "never all: sum(p-*: x) == 1500"),
        Outcome::Holds
    );
    // A bound is one for whoever is there.
    assert_eq!(outcome(begun, bound), Outcome::Violated);
}

#[test]
fn what_has_no_measure_is_unknown_and_says_why() {
    let story = Story::new(
        "1ms p-0 does \"x = leader\"\n2ms p-1 does \"x = 1e300\"\n3ms p-2 does \"x = 1e-300\"\n4ms p-0 does \"y = 3\"",
    );
    for (rule, why) in [
        ("never r: sum(p-0: x) > 3", "texts can be compared"),
        (
            "never r: sum(p-0: x) + value(p-1: x) > 3",
            "texts can be compared",
        ),
        (
            "never r: value(p-1: x) + value(p-2: x) > 3",
            "too far apart",
        ),
        ("never r: value(p-0: x) < 3", "a number and a text"),
        ("never r: value(p-1: x) < \"a\"", "a number and a text"),
        ("state s = p-0: x\nnever r: s", "neither true nor false"),
        ("never r: count(p-0: x) > 0", "neither true nor false"),
    ] {
        let verdict = story.verdict(rule);
        assert_eq!(verdict.outcome, Outcome::Unknown, "{rule}");
        let reason = verdict.reason.unwrap();
        assert!(reason.contains(why), "{rule}: {reason}");
    }
    // Two that are compared need not be added.
    let far = "never r: value(p-1: x) > value(p-2: x)";
    assert_eq!(story.outcome(far), Outcome::Violated);
}

#[test]
fn witnesses_show_values_as_they_are() {
    let story = Story::new("1ms p-0 does \"x = lead er\"\n2ms p-1 does \"x = 0.25\"");
    let verdict = story.verdict("find r: value(p-0: x) == \"lead er\" and value(p-1: x) < 0.3");
    let witness = &verdict.witnesses[0];
    let values: Vec<&str> = witness
        .values
        .iter()
        .map(|(.., own)| own.as_str())
        .collect();
    assert_eq!(values, ["\"lead er\"", "0.25"]);
}
