//! Places of the source in a program that is alive and not recorded.
//!
//! Nobody can replay it, so it is halted where conditions ask about a place, and what is
//! there then is kept: the answers that replay would have given.

use std::collections::BTreeMap;

use conditions::rules::Rules;
use conditions::syntax::ast::Deed;
use protocol::id::{Addr, EventNo, ProcessId, ThreadNo};
use session::truth::{Moment, Was};
use target::{Inside, Position};

use crate::kept::Key;
use crate::replays::{Answer, Seen};

/// A place in the code that conditions ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    deed: Deed,
    /// The function, line or label.
    pub text: String,
    /// It counts only where this holds.
    pub condition: Option<String>,
    /// What is asked there.
    pub value: Option<String>,
}

impl Location {
    /// Those that rules ask about, each once.
    pub(crate) fn of(rules: &Rules) -> Vec<Location> {
        let mut all: Vec<Location> = Vec::new();
        for (deed, text, expression, is_value) in rules.places() {
            let expression = expression.map(str::to_string);
            let (condition, value) = match is_value {
                true => (None, expression),
                false => (expression, None),
            };
            let place = Location {
                deed,
                text: text.to_string(),
                condition,
                value,
            };
            if !all.contains(&place) {
                all.push(place);
            }
        }
        all
    }

    fn key(&self, process: ProcessId) -> Key {
        Key {
            member: process.member,
            process: process.number,
            deed: Some(self.deed.words().to_string()),
            place: Some(self.text.clone()),
            expression: self.condition.clone().or_else(|| self.value.clone()),
            value: self.value.is_some(),
        }
    }
}

/// A thread that stands at a place.
#[derive(Clone, Debug)]
pub struct Standing {
    /// As it is called in what was observed.
    pub process: ProcessId,
    pub thread: ThreadNo,
    /// The event of its process that comes next.
    pub next: EventNo,
    pub address: Addr,
    /// What is asked there, if anything is.
    pub was: Option<Was>,
}

/// All that were seen, in order.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    answers: BTreeMap<Key, Answer>,
    count: u64,
}

impl Passes {
    /// A thread has got to a place: in the run of its process that is behind everything
    /// that was told before.
    pub(crate) fn add(&mut self, place: &Location, standing: Standing) {
        self.count += 1;
        let at = Position::Inside(Inside {
            event: standing.next,
            transfers: self.count,
            address: standing.address,
        });
        let moment = Moment {
            at,
            thread: standing.thread,
            by_event: false,
        };
        let answer = self.answers.entry(place.key(standing.process)).or_default();
        answer.push(Seen {
            moment,
            owner: None,
            was: standing.was,
        });
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Answer> {
        self.answers.get(key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use protocol::id::ProcessNo;

    #[test]
    fn passes_are_answers_to_the_questions_of_their_rules() {
        let text = "let a = at f in p-0 if x > 1\nstate s = p-*: running\n\
                    state h = p-0 at g: y\nfind r: a\nnever n: value(h) > 3 and s\n";
        let rules = Rules::parse("rules", text, None).unwrap();
        let places = Location::of(&rules);
        assert_eq!(places.len(), 2);
        let process = ProcessNo(4).of_member(0);
        let mut passes = Passes::default();
        for (place, next) in places.iter().zip([7, 7]) {
            let standing = Standing {
                process,
                thread: ThreadNo(0),
                next: EventNo(next),
                address: Addr(16),
                was: place.value.as_ref().map(|_| Was::Number(5)),
            };
            passes.add(place, standing);
        }
        let told: Vec<&Answer> = places
            .iter()
            .map(|place| passes.get(&place.key(process)).unwrap())
            .collect();
        let position = |answer: &Answer| answer.first().unwrap().moment.at;
        assert!(position(told[0]) < position(told[1]));
        assert_eq!(told[1].first().unwrap().was, Some(Was::Number(5)));
        let other = ProcessNo(5).of_member(0);
        assert!(
            places
                .iter()
                .all(|own| passes.get(&own.key(other)).is_none())
        );
    }
}
