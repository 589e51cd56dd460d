//! Rules that held in runs that were good, proposed for a person to edit.
//!
//! Messages are told apart by who sent or received them and by their first word;
//! a number behind it is captured. What is proposed are orders, answers with
//! their times and ranges of numbers; each is judged by all runs like any other
//! rule, and only what holds in all of them, and is about something in each, is
//! written down.

use std::collections::BTreeMap;

use crate::history::History as _;
use crate::recorded::Recorded;
use crate::rules::{Failed, Rules};
use crate::source::{Events as _, Symbols};
use crate::values::Value;
use crate::verdict::{Outcome, Verdict};

/// The runs that were good. They are large: one at a time is looked at.
pub trait Runs {
    /// Why a run cannot be looked at.
    type Error: From<Failed> + From<events::PatternError>;

    /// How many there are.
    fn count(&self) -> usize;

    /// Has one of them looked at.
    fn look<T>(
        &self,
        run: usize,
        how: impl FnOnce(&Recorded<'_>) -> Result<T, Self::Error>,
    ) -> Result<T, Self::Error>;

    /// Judges rules by one of them.
    fn judge(&self, run: usize, rules: &Rules) -> Result<Vec<Verdict>, Self::Error>;
}

/// Kinds of messages that are looked at, those that there are most of.
const KINDS: usize = 16;
/// How often a message must be there.
const LEAST: u64 = 3;
/// Times within which answers may come.
const TIMES: [&str; 5] = ["1ms", "10ms", "100ms", "1s", "10s"];

/// A kind of message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    program: String,
    sent: bool,
    word: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    count: u64,
    /// How many had a number.
    numbered: u64,
    range: Option<(i64, i64)>,
}

impl Kind {
    /// A name that is none of the language's words.
    fn name(&self) -> String {
        let way = if self.sent { "sent" } else { "got" };
        let text = format!("{}_{way}_{}", self.program, self.word);
        let name = text
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        // A program's name may begin with a digit.
        let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let first = if is_word { None } else { Some('p') };
        first.into_iter().chain(name).collect()
    }

    fn definition(&self, numbered: bool) -> String {
        let way = if self.sent { "send" } else { "recv" };
        let number = if numbered { r"\W(?<n>-?\d+)" } else { r"\b" };
        format!(
            "let {} = {way} and process = {}-* and bytes ~ /^{}{number}/",
            self.name(),
            self.program,
            self.word
        )
    }
}

/// What kinds of messages there are in a run.
fn kinds(recorded: &Recorded<'_>) -> Result<BTreeMap<Kind, Numbers>, events::PatternError> {
    let text = |way: &str| {
        format!(r"{way} and bytes ~ /^(?<word>[A-Za-z][A-Za-z_]{{1,19}})\b(?:\W(?<n>-?\d+))?/")
    };
    let (send, recv) = (events::parse(&text("send"))?, events::parse(&text("recv"))?);
    let symbols = Symbols::default();
    let mut all: BTreeMap<Kind, Numbers> = BTreeMap::new();
    for process in 0..recorded.processes() {
        let name = recorded.name(process);
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        let program = name.rsplit_once('-').map_or("", |(name, _)| name);
        // Others cannot be said as a family.
        if !program
            .chars()
            .all(|c| c.is_alphanumeric() || "_-.".contains(c))
        {
            continue;
        }
        recorded.scan(process, &[(0, &send), (1, &recv)], &symbols, &mut |seen| {
            for happening in seen.set {
                let [word, number] = &happening.values[..] else {
                    continue;
                };
                let own = all.entry(Kind {
                    program: program.to_string(),
                    sent: happening.letter == 0,
                    word: symbols.text(*word),
                });
                let numbers = own.or_default();
                numbers.count += 1;
                if let Value::Int(number) = symbols.value(*number) {
                    numbers.numbered += 1;
                    let (low, high) = numbers.range.unwrap_or((number, number));
                    numbers.range = Some((low.min(number), high.max(number)));
                }
            }
        });
    }
    all.retain(|_, numbers| numbers.count >= LEAST);
    Ok(all)
}

/// The rules of a text that hold in all runs, and are about something in each.
fn holding<R: Runs>(text: &str, runs: &R) -> Result<Vec<String>, R::Error> {
    let rules = Rules::parse("learnt", text, None)?;
    let mut names: Vec<String> = rules.rules.iter().map(|rule| rule.name.clone()).collect();
    for run in 0..runs.count() {
        let verdicts = runs.judge(run, &rules)?;
        names.retain(|name| {
            let own = verdicts.iter().find(|verdict| verdict.rule == *name);
            own.is_some_and(|own| own.outcome == Outcome::Holds)
        });
    }
    Ok(names)
}

/// Rules that held in all these runs, as a file.
pub fn learn<R: Runs>(runs: &R) -> Result<String, R::Error> {
    let mut common: Option<BTreeMap<Kind, Numbers>> = None;
    for run in 0..runs.count() {
        let own = runs.look(run, |recorded| Ok(kinds(recorded)?))?;
        common = Some(match common {
            None => own,
            Some(mut known) => {
                known.retain(|kind, _| own.contains_key(kind));
                for (kind, numbers) in &mut known {
                    let Some(other) = own.get(kind) else { continue };
                    numbers.count += other.count;
                    numbers.numbered += other.numbered;
                    numbers.range = match (numbers.range, other.range) {
                        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                        (a, b) => a.or(b),
                    };
                }
                known
            }
        });
    }
    let mut list: Vec<(Kind, Numbers)> = common.unwrap_or_default().into_iter().collect();
    list.sort_by_key(|(_, numbers)| std::cmp::Reverse(numbers.count));
    list.truncate(KINDS);
    list.sort_by(|a, b| a.0.cmp(&b.0));
    let always = |numbers: &Numbers| numbers.numbered == numbers.count;
    let lets: String = list
        .iter()
        .map(|(kind, numbers)| kind.definition(always(numbers)) + "\n")
        .collect();
    // Every order of two, of the same number where both always have one.
    let mut candidates = String::new();
    let mut pairs: BTreeMap<String, (usize, usize, String)> = BTreeMap::new();
    for (a, (first, numbers)) in list.iter().enumerate() {
        for (b, (then, others)) in list.iter().enumerate().filter(|(b, _)| *b != a) {
            let with = if always(numbers) && always(others) {
                "(n)"
            } else {
                ""
            };
            let (x, y) = (first.name() + with, then.name() + with);
            for (word, between) in [("before", "before"), ("leads", "leads to")] {
                let name = format!("{}_{word}_{}", first.name(), then.name());
                let rule = format!("{x} {between} {y}");
                candidates.push_str(&format!("expect {name}: {rule}\n"));
                pairs.insert(name, (a, b, rule));
            }
        }
    }
    let mut out = String::from(
        "# What held in the given runs. Keep what is meant, and change what is not.\n\n",
    );
    out.push_str(&lets);
    if list.len() > 1 {
        let held = holding(&format!("{lets}{candidates}"), runs)?;
        out.push_str(&orders(&lets, &held, &pairs, runs)?);
    }
    let mut ranges = String::new();
    for (kind, numbers) in list.iter().filter(|(_, numbers)| always(numbers)) {
        if let Some((low, high)) = numbers.range.filter(|(low, high)| low < high) {
            let name = kind.name();
            ranges.push_str(&format!(
                "state n_{name} = {}-*: last n of {name}\nnever range_{name}: value(n_{name}) < {low} or value(n_{name}) > {high}\n",
                kind.program
            ));
        }
    }
    if !ranges.is_empty() {
        out.push_str(&format!("\n# Numbers in messages.\n{ranges}"));
    }
    Ok(out)
}

/// Orders that held, without those that follow from others, answers with the
/// time they took at most.
fn orders<R: Runs>(
    lets: &str,
    held: &[String],
    pairs: &BTreeMap<String, (usize, usize, String)>,
    runs: &R,
) -> Result<String, R::Error> {
    let own = |word: &str| -> Vec<(usize, usize, &String, &String)> {
        let all = held.iter().filter(|name| name.contains(word));
        all.filter_map(|name| pairs.get(name).map(|(a, b, rule)| (*a, *b, name, rule)))
            .collect()
    };
    let direct = |list: &[(usize, usize, &String, &String)], a: usize, b: usize| {
        let has = |x: usize, y: usize| list.iter().any(|(c, d, ..)| (*c, *d) == (x, y));
        !list
            .iter()
            .any(|(c, d, ..)| *c == a && *d != b && has(*d, b) && !has(*d, a))
    };
    let before = own("_before_");
    let leads = own("_leads_");
    let mut out = String::from("\n# Orders.\n");
    for (a, b, name, rule) in &before {
        if direct(&before, *a, *b) {
            out.push_str(&format!("expect {name}: {rule}\n"));
        }
    }
    let answers: Vec<&(usize, usize, &String, &String)> = leads
        .iter()
        .filter(|(a, b, ..)| direct(&leads, *a, *b))
        .collect();
    let mut timed = lets.to_string();
    for (_, _, name, rule) in &answers {
        for time in TIMES {
            timed.push_str(&format!("expect {name}_{time}: {rule} within {time}\n"));
        }
    }
    let in_time = match answers.is_empty() {
        true => Vec::new(),
        false => holding(&timed, runs)?,
    };
    for (_, _, name, rule) in answers {
        let first = TIMES
            .iter()
            .position(|time| in_time.contains(&format!("{name}_{time}")));
        // Ten times what it took, for the day on which the machine is busy.
        let time = first.and_then(|at| TIMES.get(at + 1).or(TIMES.last()));
        let within = time.map_or(String::new(), |time| format!(" within {time}"));
        out.push_str(&format!("expect {name}: {rule}{within}\n"));
    }
    Ok(out)
}
