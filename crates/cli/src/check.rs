//! `mw check`: whether rules hold in recordings.

mod formats;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ::replay::Replayer;
use ::session::Program;
use ::target::Position;
use conditions::check::{Options, check};
use conditions::history::{At, History as _};
use conditions::recorded::Recorded;
use conditions::rules::{Failed, Rules};
use conditions::verdict::{Outcome, Verdict, Witness};
use serde_json::{Map, Value, json};

use crate::causes;
use crate::failure::{Failure, TROUBLE};
use crate::output::{Output, Style, command_line};
use crate::select;
use instants::{Replays, Steps};

/// Check whether rules hold in recordings: what must never be, what must
/// follow, in which order.
///
/// Exit status: 0 if all rules hold, 1 if one does not, 2 if one could not be
/// judged, 3 if nothing that a rule is about ever happened. The language is
/// described in docs/conditions.md.
#[derive(clap::Args)]
pub struct Cmd {
    /// A file of rules (with --learn, a recording)
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Recordings [default: the latest]
    #[arg(value_name = "REC")]
    recordings: Vec<PathBuf>,

    /// One JSON object a line
    #[arg(long, conflicts_with_all = ["junit", "sarif"])]
    json: bool,

    /// JUnit's XML, for systems that collect results of tests
    #[arg(long, conflicts_with = "sarif")]
    junit: bool,

    /// SARIF, for systems that collect findings
    #[arg(long)]
    sarif: bool,

    /// A rule that there is nothing to judge by is no failure
    #[arg(long)]
    allow_vacuous: bool,

    /// Propose rules that hold in all given recordings, as a file to edit
    #[arg(long, conflicts_with_all = ["json", "junit", "sarif", "allow_vacuous"])]
    learn: bool,
}

/// What is told of each rule.
const WITNESSES: usize = 20;

/// The exit status where there was nothing to judge.
const VACUOUS: u8 = 3;

/// What came of a rule in one recording.
pub struct Judged {
    pub recording: String,
    pub verdict: Verdict,
    pub witnesses: Vec<Shown>,
}

/// A witness in words.
pub struct Shown {
    /// Process and its last event inside.
    pub cut: Vec<(String, u32)>,
    pub events: Vec<String>,
    pub values: BTreeMap<String, String>,
    pub captures: Vec<(String, String)>,
    /// The links that prove the order of the events.
    pub path: Vec<String>,
    /// The command that goes there.
    pub goto: String,
}

/// Rules that could not be read, or are wrong.
pub fn failure(error: Failed) -> Failure {
    match error {
        Failed::Wrong(error) => {
            let near = error.near.clone();
            let failure = Failure::new(&error);
            match near {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("the language of rules is described in docs/conditions.md"),
            }
        }
        error => Failure::new(&error),
    }
}

/// Recordings that rules are learnt from.
struct GoodRuns(Vec<PathBuf>);

impl conditions::learn::Runs for GoodRuns {
    type Error = Failure;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn look<T>(
        &self,
        run: usize,
        how: impl FnOnce(&Recorded<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let history = causes::open(&select::open(self.0.get(run).cloned())?)?;
        how(&Recorded::new(&history, query::names::own(&history)))
    }

    fn judge(&self, run: usize, rules: &Rules) -> Result<Vec<Verdict>, Failure> {
        let judged = judge(rules, self.0.get(run).cloned(), 1)?;
        Ok(judged.into_iter().map(|one| one.verdict).collect())
    }
}

impl From<Failed> for Failure {
    fn from(error: Failed) -> Self {
        failure(error)
    }
}

impl From<events::PatternError> for Failure {
    fn from(error: events::PatternError) -> Self {
        Failure::new(error)
    }
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if self.learn {
            let all = std::iter::once(&self.file).chain(&self.recordings);
            let runs = GoodRuns(all.cloned().collect());
            let mut out = Output::new();
            out.line(conditions::learn::learn(&runs)?.trim_end())?;
            out.finish()?;
            return Ok(ExitCode::SUCCESS);
        }
        let rules = Rules::read(&self.file).map_err(failure)?;
        if rules.rules.is_empty() {
            return Err(
                Failure::new(format!("{} has no rules", self.file.display()))
                    .hint("`never NAME: CONDITION` is one; see docs/conditions.md"),
            );
        }
        let recordings: Vec<Option<PathBuf>> = match self.recordings.is_empty() {
            true => vec![None],
            false => self.recordings.iter().cloned().map(Some).collect(),
        };
        let mut out = Output::new();
        let mut all = Vec::new();
        for path in recordings {
            let judged = judge(&rules, path, WITNESSES)?;
            if self.json {
                for one in &judged {
                    out.line(&object(one).to_string())?;
                }
            } else if !self.junit && !self.sarif {
                print(&mut out, &judged)?;
            }
            all.extend(judged);
        }
        if self.junit {
            out.line(&formats::junit(&all))?;
        } else if self.sarif {
            out.line(&formats::sarif(&all).to_string())?;
        }
        out.finish()?;
        Ok(ExitCode::from(status(&all, self.allow_vacuous)))
    }
}

fn status(all: &[Judged], allow_vacuous: bool) -> u8 {
    let any = |outcome: Outcome| all.iter().any(|one| one.verdict.outcome == outcome);
    if any(Outcome::Violated) {
        1
    } else if any(Outcome::Unknown) {
        TROUBLE
    } else if any(Outcome::Vacuous) && !allow_vacuous {
        VACUOUS
    } else {
        0
    }
}

/// Judges rules by one recording.
pub fn judge(
    rules: &Rules,
    path: Option<PathBuf>,
    witnesses: usize,
) -> Result<Vec<Judged>, Failure> {
    let set = select::open(path)?;
    let name = select::shown_as(set.dir());
    let history = causes::open(&set)?;
    // Their names may take replay: only for who asks for them.
    let names = match rules.names_threads() {
        true => causes::names(&history),
        false => query::names::own(&history),
    };
    let opener = Arc::new(Replayer::new(&set));
    let program = Program::new(history, names.clone(), opener);
    let recorded = Recorded::new(program.history()?, names);
    let refused = || {
        let mut checked = set.members().map(|own| ::replay::check(own));
        let wrong = checked.find_map(Result::err);
        wrong.map(|error| error.to_string())
    };
    let mut truth = Replays::new(&program, &recorded).unless(refused);
    let report = check(rules, &recorded, &mut truth, Options { witnesses }).map_err(failure)?;
    let steps = truth.into_steps();
    let judged = report.verdicts.into_iter().map(|verdict| {
        let witnesses = verdict.witnesses.iter();
        let shown = witnesses.map(|own| shown(&recorded, &steps, set.dir(), own));
        Judged {
            recording: name.clone(),
            witnesses: shown.collect(),
            verdict,
        }
    });
    Ok(judged.collect())
}

fn shown(recorded: &Recorded<'_>, steps: &Steps, dir: &Path, witness: &Witness) -> Shown {
    let bounds = witness.cut.iter().enumerate();
    let cut = bounds.filter_map(|(process, bound)| {
        let last = bound
            .checked_sub(1)
            .filter(|last| *last >= recorded.first(process))?;
        Some((recorded.name(process).to_string(), last))
    });
    let events: Vec<String> = witness
        .events
        .iter()
        .map(|(process, at)| recorded.event_name(*process, *at))
        .collect();
    let values = witness.values.iter().map(|(process, state, value)| {
        let name = recorded.name(*process);
        let key = match state.starts_with(&format!("{name}:")) {
            true => state.clone(),
            false => format!("{name}: {state}"),
        };
        (key, value.clone())
    });
    let states = witness.is_state || events.is_empty();
    let pairs = witness.events.windows(2);
    let path = match states {
        true => Vec::new(),
        false => pairs
            .flat_map(|two| match two {
                [from, to] => recorded.path(*from, *to),
                _ => Vec::new(),
            })
            .collect(),
    };
    // Of a state everybody it is about has to get there; of events the last one has all
    // the others before it, and what is told is the event itself.
    let goal = match (states, witness.events.as_slice()) {
        (false, [.., (process, at)]) if at.step == 0 => {
            format!("goto {}", recorded.event_name(*process, *at))
        }
        (false, [.., last]) => format!("goto cut {}", place(recorded, steps, *last)),
        (_, places) => {
            let places = places
                .iter()
                .filter(|(p, at)| at.bound > recorded.first(*p));
            let places: Vec<String> = places.map(|own| place(recorded, steps, *own)).collect();
            // It may be where nobody has done anything yet.
            match places.is_empty() {
                true => String::new(),
                false => format!("goto cut {}", places.join(" ")),
            }
        }
    };
    let dir = select::shown_as(dir);
    let mut words = vec!["mw", "replay", &dir];
    if !goal.is_empty() {
        words.extend(["-e", &goal]);
    }
    Shown {
        cut: cut.collect(),
        values: values.collect(),
        captures: witness.captures.clone(),
        goto: command_line(words.iter().map(|word| word.as_bytes())),
        path,
        events,
    }
}

/// A place as `goto cut` takes it: the last event before it, and how far behind that.
fn place(recorded: &Recorded<'_>, steps: &Steps, (process, at): (usize, At)) -> String {
    let name = recorded.event_name(process, at);
    match steps.position(process, at) {
        Some(Position::Inside(inside)) => {
            format!("{name}+{}@{:#x}", inside.transfers, inside.address)
        }
        _ => name,
    }
}

/// One line of `--json`.
pub fn object(judged: &Judged) -> Value {
    let verdict = &judged.verdict;
    let mut object = Map::new();
    object.insert("recording".into(), judged.recording.clone().into());
    object.insert("rule".into(), verdict.rule.clone().into());
    object.insert("kind".into(), verdict.kind.name().into());
    object.insert("verdict".into(), verdict.outcome.name().into());
    object.insert("count".into(), verdict.count.into());
    object.insert("reason".into(), verdict.reason.clone().into());
    object.insert("file".into(), verdict.file.clone().into());
    object.insert("line".into(), verdict.line.into());
    object.insert("commands".into(), verdict.commands.clone().into());
    add_witness(&mut object, judged.witnesses.first());
    Value::Object(object)
}

/// Where a witness is, as keys of an object.
pub fn add_witness(object: &mut Map<String, Value>, witness: Option<&Shown>) {
    let pairs = |list: Vec<(&String, Value)>| -> Value {
        let pairs = list.into_iter().map(|(key, value)| (key.clone(), value));
        Value::Object(pairs.collect())
    };
    let cut = witness.map(|w| w.cut.iter().map(|(n, e)| (n, json!(e))).collect());
    object.insert("cut".into(), cut.map_or(json!({}), pairs));
    let events = witness.map(|w| w.events.clone()).unwrap_or_default();
    object.insert("events".into(), events.into());
    let values = witness.map(|w| w.values.iter().map(|(n, v)| (n, json!(v))).collect());
    object.insert("values".into(), values.map_or(json!({}), pairs));
    let captures = witness.map(|w| w.captures.iter().map(|(n, v)| (n, json!(v))).collect());
    object.insert("captures".into(), captures.map_or(json!({}), pairs));
    let path = witness.map(|w| w.path.clone()).unwrap_or_default();
    object.insert("path".into(), path.into());
    object.insert("goto".into(), witness.map(|w| w.goto.clone()).into());
}

fn print(out: &mut Output, judged: &[Judged]) -> Result<(), Failure> {
    let Some(first) = judged.first() else {
        return Ok(());
    };
    out.line(&out.paint(Style::Bold, &first.recording))?;
    let names = judged.iter().map(|one| {
        let verdict = &one.verdict;
        verdict.kind.name().len() + 1 + verdict.rule.chars().count()
    });
    let width = names.max().unwrap_or(0);
    for one in judged {
        let verdict = &one.verdict;
        let style = match verdict.outcome {
            Outcome::Holds => Style::Plain,
            Outcome::Matched => Style::Cyan,
            Outcome::Violated => Style::Red,
            Outcome::Vacuous | Outcome::Unknown => Style::Yellow,
        };
        let word = out.paint(style, &format!("{:<8}", verdict.outcome.name()));
        let name = format!("{} {}", verdict.kind.name(), verdict.rule);
        let mut more = Vec::new();
        if verdict.count > 1 {
            more.push(format!("{} times", verdict.count));
        }
        more.extend(verdict.reason.clone());
        let line = format!("  {word}  {name:<width$}  {}", more.join("; "));
        out.line(line.trim_end())?;
        let Some(witness) = one.witnesses.first() else {
            continue;
        };
        if verdict.outcome == Outcome::Holds {
            continue;
        }
        print_witness(out, witness, verdict.witnesses.first())?;
    }
    Ok(())
}

/// Where it is, below what was found.
pub fn print_witness(
    out: &mut Output,
    shown: &Shown,
    witness: Option<&Witness>,
) -> Result<(), Failure> {
    let indent = " ".repeat(12);
    let first = match witness.is_some_and(|witness| witness.first) {
        true => "first ",
        false => "",
    };
    let captures: Vec<String> = shown
        .captures
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let captures = match captures.is_empty() {
        true => String::new(),
        false => format!("  ({})", captures.join(", ")),
    };
    let arrow = match witness.is_some_and(|witness| witness.is_state) {
        true => ", ",
        false => " -> ",
    };
    let events = match shown.events.len() {
        0..=8 => shown.events.join(arrow),
        count => {
            let head = shown.events.iter().take(3).cloned().collect::<Vec<_>>();
            let tail = shown.events.last().cloned().unwrap_or_default();
            format!(
                "{}{arrow}... {} more ...{arrow}{tail}",
                head.join(arrow),
                count - 4
            )
        }
    };
    out.line(&format!("{indent}{first}at {events}{captures}"))?;
    for (name, value) in &shown.values {
        out.line(&format!("{indent}  {name} = {value}"))?;
    }
    for link in shown.path.iter().take(8) {
        out.line(&out.paint(Style::Dim, &format!("{indent}  by {link}")))?;
    }
    out.line(&out.paint(Style::Dim, &format!("{indent}{}", shown.goto)))?;
    Ok(())
}
