//! What is stopped at, traced and run on condition: as the user said it, and what
//! became of it in the recording at hand.

use std::path::Path;
use std::sync::Arc;

use conditions::check::{names, timeline};
use conditions::engine::trace::Edge;
use conditions::history::{At, History as _};
use conditions::recorded::Recorded;
use conditions::rules::{Failed, Piece, Rules};
use conditions::syntax::ast::Kind;
use conditions::syntax::{ITEMS, Text, parse};
use conditions::timeline::{Timeline, What};
use session::Program;
use target::Cancel;

use crate::passed::{Location, Passes, Standing};
use crate::replays::Replays;
use crate::steps::Steps;

/// Why a condition is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is wrong.
    #[error(transparent)]
    Rules(#[from] Failed),
    /// Nobody sees what the program does.
    #[error(
        "conditions are decided from what a program does, and nobody sees that of one that is only traced"
    )]
    Alive,
    /// It takes replay, and the program is not recorded.
    #[error("`{0}` is of the source: to follow it takes replay, and this program is not recorded")]
    OfSource(String),
    /// There is nothing of the kind.
    #[error("there is no condition `{0}`")]
    NoSuch(String),
    /// It is one rule of a text with others.
    #[error("`{0}` is a rule among others: it cannot be deleted, only disabled")]
    OfFile(String),
    /// Nothing can be told of it here.
    #[error("it is nowhere: {0}")]
    Nowhere(String),
    /// It was stopped before it was known what they mean here.
    #[error("stopped before it was known where conditions hold")]
    Stopped,
}

/// What is shown where a condition holds: an expression, and in whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// A process, or all whose names fit; without one, whoever it is about.
    pub process: Option<String>,
    /// In the words of the source.
    pub expression: String,
}

/// What is done where a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// Everybody stops.
    Stop,
    /// Values are shown, and everybody goes on.
    Trace(Vec<Traced>),
    /// What the rule says: a recognizer's or verifier's commands; others stop.
    Rule,
}

/// Something that is stopped at, traced or run on condition.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its number, which no breakpoint has.
    pub number: u32,
    /// The name of its rule.
    pub rule: String,
    pub kind: Kind,
    /// As it was written.
    pub text: String,
    pub does: Does,
    pub enabled: bool,
    /// How often it was come to.
    pub hits: u64,
}

impl Entry {
    /// Whether everybody stops there, as far as it can say without its commands.
    pub fn stops(&self, commands: &[String]) -> bool {
        match (&self.does, self.kind) {
            (Does::Trace(_), _) => false,
            (Does::Rule, Kind::Recognizer) => commands.iter().any(|line| line == STOP),
            (Does::Rule, Kind::Verifier) => {
                commands.is_empty() || commands.iter().any(|line| line == STOP)
            }
            _ => true,
        }
    }
}

/// The command of a rule that stops everybody.
const STOP: &str = "stop";

/// The condition that was added last, where one is named.
const LAST: &str = "last";

/// What was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The numbers of new entries.
    pub numbers: Vec<u32>,
    /// Of those that there is nothing of here: number and why.
    pub nowhere: Vec<(u32, String)>,
}

/// What the texts mean in the recording.
pub(crate) struct Built {
    pub timeline: Timeline,
    pub steps: Steps,
}

/// Conditions as they were said: to be looked for in another recording of the program, or
/// in one that has grown, on any thread.
#[derive(Clone, Debug)]
pub struct Said {
    entries: Vec<Entry>,
    pieces: Vec<Piece>,
    primary: Option<u32>,
    is_observed: bool,
    passes: Arc<Passes>,
}

impl Said {
    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// What it means. None: it is wrong, which is told elsewhere.
    pub(crate) fn rules(&self) -> Option<Rules> {
        Rules::of(&self.pieces).ok()
    }

    /// For a program that is alive, and for what was recorded of it so far: who is named
    /// and not there may come yet.
    pub fn growing(&self) -> Conditions {
        Conditions {
            entries: self.entries.clone(),
            pieces: self.pieces.clone(),
            built: None,
            primary: self.primary,
            grows: true,
            is_observed: self.is_observed,
            passes: Arc::clone(&self.passes),
        }
    }
}

/// All conditions of a session.
#[derive(Default)]
pub struct Conditions {
    pub(crate) entries: Vec<Entry>,
    pieces: Vec<Piece>,
    pub(crate) built: Option<Built>,
    /// The only one that is stopped at; others are only told of.
    pub(crate) primary: Option<u32>,
    /// The recording goes on.
    grows: bool,
    /// There is none: what the program does is only observed.
    is_observed: bool,
    /// Who was seen at places that are asked about, where it is.
    passes: Arc<Passes>,
}

impl Conditions {
    /// In the order of their numbers.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The only one that is stopped at, if one was chosen.
    pub fn primary(&self) -> Option<u32> {
        self.primary
    }

    /// Whether any can stop or tell anything.
    pub fn any(&self) -> bool {
        self.entries.iter().any(|entry| entry.enabled)
    }

    /// Whether a text is rules, and not commands of the debugger.
    pub fn is_rules(text: &str) -> bool {
        let text = Text::new("", text);
        let first = text.chars.iter().collect::<String>();
        let first = first
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'));
        let word = first.and_then(|line| line.split_whitespace().next());
        word.is_some_and(|word| ITEMS.contains(&word)) && parse(&text).is_ok()
    }

    /// Whether a line defines names or rules.
    pub fn is_item(word: &str) -> bool {
        ITEMS.contains(&word)
    }

    /// A condition to be stopped at, or traced.
    pub fn add(
        &mut self,
        program: &Arc<Program>,
        number: u32,
        text: &str,
        does: Does,
    ) -> Result<Added, Error> {
        let piece = Piece::question(text, &number.to_string());
        self.take(program, piece, does, &mut || number)
    }

    /// A file of rules.
    pub fn read(
        &mut self,
        program: &Arc<Program>,
        path: &Path,
        number: &mut dyn FnMut() -> u32,
    ) -> Result<Added, Error> {
        self.take(program, Piece::read(path)?, Does::Rule, number)
    }

    /// Rules and names that were typed.
    pub fn define(
        &mut self,
        program: &Arc<Program>,
        text: &str,
        number: &mut dyn FnMut() -> u32,
    ) -> Result<Added, Error> {
        self.take(program, Piece::typed(text), Does::Rule, number)
    }

    fn take(
        &mut self,
        program: &Arc<Program>,
        piece: Piece,
        does: Does,
        number: &mut dyn FnMut() -> u32,
    ) -> Result<Added, Error> {
        let mut pieces = self.pieces.clone();
        pieces.push(piece);
        let rules = Rules::of(&pieces)?;
        if let Some(what) = rules.of_replay().filter(|_| self.is_observed) {
            return Err(Error::OfSource(what.to_string()));
        }
        let mut entries = self.entries.clone();
        let mut numbers = Vec::new();
        for rule in rules.rules.iter().skip(entries.len()) {
            let own = number();
            numbers.push(own);
            let text = rules.text(rule.place);
            entries.push(Entry {
                number: own,
                rule: rule.name.clone(),
                kind: rule.kind,
                text: text.split_whitespace().collect::<Vec<_>>().join(" "),
                does: does.clone(),
                enabled: true,
                hits: 0,
            });
        }
        // Of a program that is alive nobody knows what will be.
        let built = match program.is_alive() {
            true => None,
            false => Some(build(
                program,
                &rules,
                &entries,
                self.how(),
                &Cancel::new(),
            )?),
        };
        let told = built.iter().flat_map(|built| &built.timeline.told);
        let nowhere: Vec<(u32, String)> = entries
            .iter()
            .zip(told)
            .filter(|(entry, _)| numbers.contains(&entry.number))
            .filter_map(|(entry, told)| Some((entry.number, nowhere(program, &told.what)?)))
            .collect();
        // A question that has no answer is none; of a file the others count.
        if let (Some((_, why)), true) = (nowhere.first(), does != Does::Rule) {
            return Err(Error::Nowhere(why.clone()));
        }
        self.pieces = pieces;
        self.entries = entries;
        self.built = built;
        Ok(Added { numbers, nowhere })
    }

    /// All that was said, without what it means in the recording at hand.
    pub fn said(&self) -> Said {
        Said {
            entries: self.entries.clone(),
            pieces: self.pieces.clone(),
            primary: self.primary,
            is_observed: self.is_observed,
            passes: Arc::clone(&self.passes),
        }
    }

    /// What the program does is observed, not recorded: from now on nothing is taken that
    /// only replay can tell. What was observed before is not known any more.
    pub fn observe(&mut self) {
        self.is_observed = true;
        self.passes = Arc::default();
    }

    /// The places of the source that are asked about, where somebody is to be halted there
    /// because nothing can be replayed.
    pub fn places(&self) -> Result<Vec<Location>, Error> {
        match self.is_observed && self.any() {
            true => Ok(Location::of(&Rules::of(&self.pieces)?)),
            false => Ok(Vec::new()),
        }
    }

    /// Somebody stands at such a place.
    pub fn passed(&mut self, place: &Location, standing: Standing) {
        self.built = None;
        Arc::make_mut(&mut self.passes).add(place, standing);
    }

    fn how(&self) -> Reading<'_> {
        Reading {
            grows: self.grows,
            passes: self.is_observed.then_some(&*self.passes),
        }
    }

    /// Why one has no meaning in what was recorded so far, if it has none; or who is named
    /// by any and not there.
    pub fn meaningless(
        &mut self,
        program: &Arc<Program>,
        number: u32,
        cancel: &Cancel,
    ) -> Result<Option<String>, Error> {
        self.build(program, cancel)?;
        let told = self.built.iter().flat_map(|built| &built.timeline.told);
        let mut own = self.entries.iter().zip(told);
        let own = own.find(|(entry, _)| entry.number == number);
        if let Some((_, told)) = own
            && let What::Nothing(why) = &told.what
        {
            return Ok(Some(why.clone()));
        }
        let missing = names(&Rules::of(&self.pieces)?, &recorded(program)?);
        Ok(missing.err().map(|why| why.to_string()))
    }

    /// What it all means now. After an error there are no conditions at work.
    pub(crate) fn build(&mut self, program: &Arc<Program>, cancel: &Cancel) -> Result<(), Error> {
        if self.built.is_none() && !self.entries.is_empty() {
            let rules = Rules::of(&self.pieces)?;
            let built = build(program, &rules, &self.entries, self.how(), cancel)?;
            self.built = Some(built);
        }
        Ok(())
    }

    fn position(&self, which: &str) -> Result<usize, Error> {
        let number = which.parse::<u32>().ok();
        let is_it = |entry: &Entry| Some(entry.number) == number || entry.rule == which;
        let found = self.entries.iter().position(is_it);
        let last = || self.entries.len().checked_sub(1).filter(|_| which == LAST);
        found
            .or_else(last)
            .ok_or_else(|| Error::NoSuch(which.to_string()))
    }

    /// One, by number or by the name of its rule; `last` is the one that was added last.
    pub fn get(&self, which: &str) -> Option<&Entry> {
        self.entries.get(self.position(which).ok()?)
    }

    /// Switches one on or off. What is off finds nothing and emits nothing.
    pub fn enable(&mut self, which: &str, on: bool) -> Result<(), Error> {
        let at = self.position(which)?;
        if let Some(entry) = self.entries.get_mut(at)
            && entry.enabled != on
        {
            entry.enabled = on;
            self.built = None;
        }
        Ok(())
    }

    /// Switches all on or off.
    pub fn enable_all(&mut self, on: bool) {
        for entry in &mut self.entries {
            entry.enabled = on;
        }
        self.built = None;
    }

    /// From now on only this one is stopped at, and the others are told of; or all are
    /// stopped at again.
    pub fn switch(&mut self, which: Option<&str>) -> Result<(), Error> {
        self.primary = match which {
            None => None,
            Some(which) => {
                let at = self.position(which)?;
                self.entries.get(at).map(|entry| entry.number)
            }
        };
        Ok(())
    }

    /// Gives one up that was asked for by itself.
    pub fn remove(&mut self, which: &str) -> Result<(), Error> {
        let at = self.position(which)?;
        let rule = self.entries.get(at).map(|entry| entry.rule.clone());
        let piece = self.pieces.iter().position(|piece| piece.rule == rule);
        let Some(piece) = piece else {
            return Err(Error::OfFile(which.to_string()));
        };
        let mut left = self.pieces.clone();
        left.remove(piece);
        Rules::of(&left)?;
        self.pieces = left;
        self.entries.remove(at);
        self.built = None;
        Ok(())
    }

    /// Gives all up.
    pub fn clear(&mut self) {
        *self = Conditions {
            is_observed: self.is_observed,
            grows: self.grows,
            passes: Arc::clone(&self.passes),
            ..Conditions::default()
        };
    }

    /// All that was said, as lines that say it again.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in &self.pieces {
            let Some(rule) = &piece.rule else {
                let own = piece.text.lines();
                lines.extend(own.map(|line| found_anywhere(line, piece.dir.as_deref())));
                continue;
            };
            let entry = self.entries.iter().find(|entry| entry.rule == *rule);
            let text = piece.text.trim();
            match entry.map(|entry| &entry.does) {
                Some(Does::Trace(shown)) => {
                    let shown: Vec<String> = shown.iter().map(Traced::to_string).collect();
                    lines.push(format!("trace {} if {text}", shown.join(", ")));
                }
                _ => lines.push(format!("stop later if {text}")),
            }
            // Its number may be another when this is read.
            lines.extend(
                entry
                    .into_iter()
                    .flat_map(|entry| self.changes(entry, LAST)),
            );
        }
        let rules = self.entries.iter().filter(|own| own.does == Does::Rule);
        lines.extend(rules.flat_map(|entry| self.changes(entry, &entry.rule)));
        lines
    }

    /// What makes a condition as it is now, by its name, as commands.
    fn changes(&self, entry: &Entry, name: &str) -> Vec<String> {
        let disabled = (!entry.enabled).then(|| format!("disable {name}"));
        let is_primary = self.primary == Some(entry.number);
        let switched = is_primary.then(|| format!("switch {name}"));
        disabled.into_iter().chain(switched).collect()
    }
}

/// A line of rules, as it can be read from anywhere: what it includes is looked for where
/// it was.
fn found_anywhere(line: &str, dir: Option<&Path>) -> String {
    let dir = dir.filter(|dir| !dir.as_os_str().is_empty());
    let dir = std::path::absolute(dir.unwrap_or(Path::new("."))).ok();
    let quoted = line.trim_start().strip_prefix("include");
    let quoted = quoted.and_then(|rest| rest.trim_start().strip_prefix('"'));
    match (quoted.and_then(|rest| rest.split_once('"')), dir) {
        (Some((name, rest)), Some(dir)) => {
            format!("include \"{}\"{rest}", dir.join(name).display())
        }
        _ => line.to_string(),
    }
}

impl std::fmt::Display for Traced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.process {
            Some(process) => write!(f, "{process}: {}", self.expression),
            None => f.write_str(&self.expression),
        }
    }
}

/// Why something is nowhere in the recording, if it is.
fn nowhere(program: &Program, what: &What) -> Option<String> {
    match what {
        What::Nothing(why) => Some(why.clone()),
        What::Events(fired, _) => fired
            .is_empty()
            .then(|| "no event of the recording completes it".to_string()),
        What::States(stretches) => {
            let recorded = recorded(program).ok()?;
            let first = |process| At::bound(recorded.first(process));
            let start: Vec<At> = (0..recorded.processes()).map(first).collect();
            let edges: Vec<Edge> = start.iter().map(|at| Edge::at(*at)).collect();
            // What cannot be told may be somewhere.
            let is_nowhere = stretches.here(&edges).is_none()
                && matches!(stretches.next(&recorded, &start), Ok(None));
            is_nowhere.then(|| "there is no consistent state in which it holds".to_string())
        }
        What::State(_) => None,
    }
}

/// What was recorded of a program, as conditions see it.
pub(crate) fn recorded(program: &Program) -> Result<Recorded<'_>, Error> {
    let history = program.history().map_err(|_| Error::Alive)?;
    let names = program.names().map_err(|_| Error::Alive)?;
    Ok(Recorded::new(history, names.clone()))
}

/// How what was recorded is read.
struct Reading<'p> {
    /// There is more to come: who is not there may come yet.
    grows: bool,
    /// Nothing can be replayed; these were seen at places.
    passes: Option<&'p Passes>,
}

/// What rules mean in a recording.
fn build(
    program: &Arc<Program>,
    rules: &Rules,
    entries: &[Entry],
    how: Reading<'_>,
    cancel: &Cancel,
) -> Result<Built, Error> {
    let recorded = recorded(program)?;
    if !how.grows {
        names(rules, &recorded)?;
    }
    let mut truth = match how.passes {
        Some(passes) => Replays::of_passes(program, &recorded, passes),
        None => Replays::new(program, &recorded).until(cancel),
    };
    let is_off = |rule: &str| {
        let entry = entries.iter().find(|entry| entry.rule == rule);
        entry.is_some_and(|entry| !entry.enabled)
    };
    let timeline = timeline(rules, &recorded, &mut truth, &is_off);
    // What could not be found because of that is no answer.
    if cancel.is_cancelled() {
        return Err(Error::Stopped);
    }
    let steps = truth.into_steps();
    Ok(Built { timeline, steps })
}
