//! `mw find`: the instants at which a condition held.

use std::path::PathBuf;
use std::process::ExitCode;

use conditions::engine::solve::Modality;
use conditions::rules::{Body, QUESTION, Rules};
use conditions::verdict::Outcome;
use serde_json::{Map, Value};

use crate::check::{add_witness, failure, judge, print_witness};
use crate::failure::{Failure, TROUBLE};
use crate::output::Output;

/// Find the instants at which a condition held: an event, events in causal
/// order, or a state of several processes.
///
/// Exit status: 0 if there is one, 1 if there is none, 2 if that could not be
/// told. The language is described in docs/conditions.md.
#[derive(clap::Args)]
pub struct Cmd {
    /// A condition, like `send and bytes ~ "GET" -> recv`; before it, separated
    /// by `;`, names and states that it uses
    #[arg(value_name = "COND")]
    condition: String,

    /// The recording [default: the latest]
    #[arg(value_name = "REC", conflicts_with = "option")]
    argument: Option<PathBuf>,

    /// The recording, too
    #[arg(id = "option", short = 'r', long = "recording", value_name = "REC")]
    option: Option<PathBuf>,

    /// A file of rules whose names and states may be used
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,

    /// Only the first
    #[arg(long, conflicts_with = "count")]
    first: bool,

    /// Only how many there are
    #[arg(long)]
    count: bool,

    /// Stop after this many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,

    /// States that were possible, in any order that causes allow (the default)
    #[arg(long, conflicts_with_all = ["definitely", "observed"])]
    possibly: bool,

    /// A state that was passed whichever way the run went
    #[arg(long, conflicts_with = "observed")]
    definitely: bool,

    /// States that were passed in the order of recorded times
    #[arg(long)]
    observed: bool,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut rules = Rules::question(&self.condition, self.with.as_deref()).map_err(failure)?;
        let wanted = match (self.definitely, self.observed) {
            (true, _) => Some(Modality::Definitely),
            (_, true) => Some(Modality::Observed),
            _ => None,
        };
        for rule in rules.rules.iter_mut().filter(|rule| rule.name == QUESTION) {
            match (&mut rule.body, wanted) {
                (Body::States { modality, .. }, Some(wanted)) => *modality = wanted,
                (Body::Events { .. }, Some(_)) => {
                    return Err(Failure::new(
                        "--definitely and --observed are for states, and this is about events",
                    )
                    .hint("an event is where it is in its process; there is nothing to choose"));
                }
                _ => {}
            }
        }
        let most = if self.first { 1 } else { self.limit };
        let judged = judge(&rules, self.argument.or(self.option), most)?;
        let Some(own) = judged.into_iter().find(|one| one.verdict.rule == QUESTION) else {
            return Err(Failure::new("there is no condition to look for")
                .hint("the last thing in it must be a condition, like `low and hot`"));
        };
        let verdict = &own.verdict;
        if verdict.outcome == Outcome::Unknown {
            let why = verdict.reason.clone().unwrap_or_default();
            return Err(Failure::new(format!("that cannot be told: {why}")).status(TROUBLE));
        }
        let mut out = Output::new();
        if self.count {
            match self.json {
                true => out.line(&serde_json::json!({ "count": verdict.count }).to_string())?,
                false => out.line(&verdict.count.to_string())?,
            }
        } else {
            for (shown, witness) in own.witnesses.iter().zip(&verdict.witnesses) {
                if self.json {
                    let mut object = Map::new();
                    add_witness(&mut object, Some(shown));
                    out.line(&Value::Object(object).to_string())?;
                } else {
                    print_witness(&mut out, shown, Some(witness))?;
                }
            }
            let left = verdict.count.saturating_sub(own.witnesses.len() as u64);
            if left > 0 && !self.json && !self.first {
                out.line(&format!("{left} more; --limit shows them"))?;
            }
            if verdict.outcome == Outcome::Vacuous && !self.json {
                let why = verdict.reason.clone().unwrap_or_default();
                out.line(&format!("nothing was found: {why}"))?;
            }
        }
        out.finish()?;
        Ok(ExitCode::from(u8::from(verdict.count == 0)))
    }
}
