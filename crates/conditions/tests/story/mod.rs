//! A run that is written down, for rules to be judged by:
//!
//! ```text
//! 1ms  client-0  sends m1 "hello"
//! 2ms  server-0  receives m1
//! 3ms  server-0  does "x = 1"
//! 4ms  server-0  forks worker-0
//! ```
//!
//! A line is an event of its process; events are counted from 0. What is sent is
//! received by whom it is received by, with the same text.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::collections::HashMap;

use conditions::check::{Options, Report, check};
use conditions::engine::{Happening, Sym};
use conditions::history::{Arrow, At, History};
use conditions::rules::{Failed, Rules};
use conditions::source::{Events, NoSuch, Seen, Symbols, latest};
use conditions::truth::{Changed, Pass, Question, Trouble, Truth, Was};
use conditions::verdict::{Outcome, Verdict};
use events::{Condition, Field, Operator, Pattern, Value};
use protocol::syscall::Type;

#[derive(Clone, Debug)]
struct Deed {
    kind: Type,
    text: String,
    time: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Story {
    names: Vec<String>,
    deeds: Vec<Vec<Deed>>,
    links: Vec<((usize, u32), (usize, u32))>,
    /// What stories have nothing of fits nothing, instead of being a mistake of the test.
    pub lenient: bool,
}

impl Story {
    pub fn new(text: &str) -> Story {
        let mut story = Story::default();
        let mut sent: HashMap<String, ((usize, u32), String)> = HashMap::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [time, name, verb, ..] = words.as_slice() else {
                panic!("not an event: {line}");
            };
            let time = events::duration(time).unwrap() as u64;
            let process = story.process(name);
            let number = story.deeds[process].len() as u32;
            let text = line.split('"').nth(1).unwrap_or("").to_string();
            let (kind, text) = match *verb {
                "sends" => {
                    sent.insert(words[3].to_string(), ((process, number), text.clone()));
                    (Type::Send, text)
                }
                "receives" => {
                    let (cause, text) = sent[words[3]].clone();
                    story.links.push((cause, (process, number)));
                    (Type::Recv, text)
                }
                "forks" => {
                    let child = story.process(words[3]);
                    story.links.push(((process, number), (child, 0)));
                    story.deeds[child].push(Deed {
                        kind: Type::Process,
                        text: String::new(),
                        time,
                    });
                    (Type::Fork, String::new())
                }
                "does" => (Type::File, text),
                other => panic!("nobody `{other}`: {line}"),
            };
            story.deeds[process].push(Deed { kind, text, time });
        }
        story
    }

    fn process(&mut self, name: &str) -> usize {
        if let Some(known) = self.names.iter().position(|own| own == name) {
            return known;
        }
        self.names.push(name.to_string());
        self.deeds.push(Vec::new());
        self.names.len() - 1
    }

    pub fn number(&self, name: &str) -> usize {
        self.names.iter().position(|own| own == name).unwrap()
    }

    fn fits(
        &self,
        process: usize,
        deed: &Deed,
        pattern: &Pattern,
        into: &mut Vec<(String, String)>,
    ) -> bool {
        match pattern {
            Pattern::And(a, b) => {
                self.fits(process, deed, a, into) && self.fits(process, deed, b, into)
            }
            Pattern::Or(a, b) => {
                self.fits(process, deed, a, into) || self.fits(process, deed, b, into)
            }
            Pattern::Not(a) => !self.fits(process, deed, a, &mut Vec::new()),
            Pattern::Is(Condition::Types(types)) => types.contains(&deed.kind),
            Pattern::Is(Condition::Field(Field::Process, Operator::Equal, Value::Text(glob))) => {
                events::glob(glob, self.names[process].as_bytes())
            }
            Pattern::Is(Condition::Field(Field::Bytes, Operator::Like, value)) => match value {
                Value::Text(text) => {
                    deed.text.contains(&*String::from_utf8_lossy(text)) && !deed.text.is_empty()
                }
                Value::Regex(regex) => match regex.captures(deed.text.as_bytes()) {
                    Some(found) => {
                        for name in regex.capture_names().flatten() {
                            let text = found.name(name).map_or(&b""[..], |own| own.as_bytes());
                            into.push((name.to_string(), String::from_utf8_lossy(text).into()));
                        }
                        true
                    }
                    None => false,
                },
                Value::Number(_) => false,
            },
            Pattern::Is(Condition::Capture(Field::Process, name)) => {
                into.push((name.clone(), self.names[process].clone()));
                true
            }
            _ if self.lenient => false,
            other => panic!("no story has {other:?}"),
        }
    }

    pub fn judge(&self, rules: &str) -> Report {
        self.try_judge(rules)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_judge(&self, rules: &str) -> Result<Report, Failed> {
        let rules = Rules::parse("rules.mw", rules, None)?;
        check(&rules, self, &mut self.clone(), Options { witnesses: 50 })
    }

    /// What came of one rule.
    pub fn verdict(&self, rules: &str) -> Verdict {
        self.judge(rules).verdicts.pop().unwrap()
    }

    pub fn outcome(&self, rules: &str) -> Outcome {
        self.verdict(rules).outcome
    }

    /// The name of an event.
    pub fn name_of(&self, (process, at): (usize, At)) -> String {
        format!("{}:{}", self.names[process], at.bound.saturating_sub(1))
    }

    /// The first witness: `p:1 q:2`.
    pub fn places(&self, verdict: &Verdict) -> String {
        let Some(witness) = verdict.witnesses.first() else {
            return String::new();
        };
        let names: Vec<String> = witness
            .events
            .iter()
            .map(|own| self.name_of(*own))
            .collect();
        names.join(" ")
    }
}

impl History for Story {
    fn processes(&self) -> usize {
        self.names.len()
    }
    fn name(&self, process: usize) -> &str {
        &self.names[process]
    }
    fn program(&self, process: usize) -> &str {
        self.names[process]
            .rsplit_once('-')
            .map_or("", |(program, _)| program)
    }
    fn first(&self, _: usize) -> u32 {
        0
    }
    fn end(&self, process: usize) -> u32 {
        self.deeds[process].len() as u32
    }
    fn ended(&self, _: usize) -> bool {
        false
    }
    fn causes(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>) {
        let own = self.links.iter().filter(|(_, effect)| effect.0 == process);
        let own = own.filter(|(_, effect)| (from..to).contains(&effect.1));
        let mut own: Vec<Arrow> = own
            .map(|(cause, effect)| Arrow {
                own: effect.1,
                other: cause.0 as u32,
                number: cause.1,
            })
            .collect();
        own.sort_unstable();
        found.extend(own);
    }
    fn effects(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>) {
        let own = self.links.iter().filter(|(cause, _)| cause.0 == process);
        let own = own.filter(|(cause, _)| (from..to).contains(&cause.1));
        let mut own: Vec<Arrow> = own
            .map(|(cause, effect)| Arrow {
                own: cause.1,
                other: effect.0 as u32,
                number: effect.1,
            })
            .collect();
        own.sort_unstable();
        found.extend(own);
    }
    fn past(&self, process: usize, bound: u32) -> Vec<u32> {
        let mut bounds = vec![0; self.names.len()];
        bounds[process] = bound;
        loop {
            let before = bounds.clone();
            for (cause, effect) in &self.links {
                if effect.1 < bounds[effect.0] {
                    bounds[cause.0] = bounds[cause.0].max(cause.1 + 1);
                }
            }
            if before == bounds {
                return bounds;
            }
        }
    }
}

impl Events for Story {
    fn scan(
        &self,
        process: usize,
        wanted: &[(u32, &Pattern)],
        symbols: &Symbols,
        take: &mut dyn FnMut(Seen<'_>),
    ) {
        for (number, deed) in (0u32..).zip(&self.deeds[process]) {
            let mut set = Vec::new();
            for (letter, pattern) in wanted {
                let mut captured = Vec::new();
                if self.fits(process, deed, pattern, &mut captured) {
                    let values = pattern.captures().into_iter().map(|name| {
                        let own = captured.iter().find(|(own, _)| *own == name);
                        own.map_or(Sym::NONE, |(_, text)| symbols.number(text.as_bytes()))
                    });
                    set.push(Happening {
                        letter: *letter,
                        values: values.collect(),
                    });
                }
            }
            if !set.is_empty() {
                take(Seen {
                    at: At::after(number),
                    time: deed.time,
                    thread: 0,
                    set: &set,
                });
            }
        }
    }
    fn thread_name(&self, _: usize, _: u32) -> String {
        "main-0".to_string()
    }
    fn received(&self, process: usize, number: u32) -> Vec<(usize, u32)> {
        let own = self
            .links
            .iter()
            .filter(|(cause, _)| *cause == (process, number));
        let all: Vec<(usize, u32)> = own.map(|(_, effect)| *effect).collect();
        latest(self, &all)
    }
    fn times(&self, events: &[(usize, u32)]) -> Vec<u64> {
        events
            .iter()
            .map(|(p, n)| self.deeds[*p][*n as usize].time)
            .collect()
    }
    fn last_time(&self) -> u64 {
        self.deeds
            .iter()
            .flatten()
            .map(|deed| deed.time)
            .max()
            .unwrap_or(0)
    }
    fn check(&self, _: &Pattern) -> Result<(), NoSuch> {
        Ok(())
    }
}

/// Variables: `x = 1` is done where it is done; expressions are `x`, `x == 1`,
/// `x < 1`, `x > 1`. Places are texts that are done.
impl Truth for Story {
    fn values(&mut self, question: &Question<'_>) -> Result<Vec<Vec<Changed>>, Trouble> {
        let words: Vec<&str> = question
            .expression
            .unwrap_or("")
            .split_whitespace()
            .collect();
        let variable = words[0];
        let mut changes = Vec::new();
        for (number, deed) in (0u32..).zip(&self.deeds[question.process]) {
            let Some((name, value)) = deed.text.split_once(" = ") else {
                continue;
            };
            if name != variable {
                continue;
            }
            let whole = value.parse::<i128>();
            let compared = |fits: fn(&i128, &i128) -> bool, wanted: &str| {
                let holds = fits(whole.as_ref().unwrap(), &wanted.parse().unwrap());
                Was::Number(holds.into())
            };
            let was = match (words.as_slice(), &whole, value.parse::<f64>()) {
                ([_], Ok(number), _) => Was::Number(*number),
                ([_], _, Ok(number)) => Was::Real(number),
                ([_], ..) => Was::Text(value.as_bytes().to_vec()),
                ([_, "==", wanted], ..) => compared(i128::eq, wanted),
                ([_, "<", wanted], ..) => compared(i128::lt, wanted),
                ([_, ">", wanted], ..) => compared(i128::gt, wanted),
                (other, ..) => panic!("{other:?}"),
            };
            changes.push(Changed {
                at: At::after(number),
                time: deed.time,
                was,
            });
        }
        match changes.is_empty() {
            true => Err(Trouble {
                why: format!("there is no `{variable}`"),
                near: None,
            }),
            false => Ok(vec![changes]),
        }
    }

    fn passes(&mut self, question: &Question<'_>) -> Result<Vec<Pass>, Trouble> {
        let (_, place) = question.place.unwrap();
        let deeds = (0u32..).zip(&self.deeds[question.process]);
        let own = deeds.filter(|(_, deed)| deed.text == place);
        Ok(own
            .map(|(number, deed)| Pass {
                at: At {
                    bound: number,
                    step: 1,
                },
                time: deed.time,
                thread: 0,
            })
            .collect())
    }
}
