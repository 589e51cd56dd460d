//! A recording, as conditions see it.

use std::rc::Rc;

use causality::{EventId, Kind};
use events::{Captured, Compiled, Condition, Field, Matcher, Operator, Pattern, Value, nearest};
use protocol::id::{EventNo, ProcessIx, ThreadNo, Ticks};
use protocol::record::kind;
use recording::descriptors::may_change;
use recording::render::{Limits, Renderer};
use recording::{Phase, Process, ThreadNames};

use crate::engine::{Happening, Sym};
use crate::history::{Arrow, At, History};
use crate::source::{Events, NoSuch, Seen, Symbols, latest};

/// A recording with its causes.
pub struct Recorded<'h> {
    history: &'h causality::History,
    names: ThreadNames,
    processes: Vec<Known>,
}

struct Known {
    name: String,
    program: String,
    /// All that it answers to.
    names: Vec<String>,
    first: u32,
    end: u32,
    ended: bool,
}

fn place(process: usize) -> ProcessIx {
    ProcessIx(process as u32)
}

fn clamp(number: EventNo) -> u32 {
    u32::try_from(number.0).unwrap_or(u32::MAX)
}

/// A pattern for the events of a process, and which letter it is.
type Asked<'m> = (u32, Matcher<'m>, Compiled);

/// Which patterns events may fit, by part and number of the call: found out where it is
/// asked first.
#[derive(Default)]
struct Candidates {
    known: [Vec<Option<Vec<usize>>>; 4],
    /// Those of a number that no kernel has, asked for last.
    other: Vec<usize>,
}

impl Candidates {
    const CALLS: usize = 512;

    /// Of a record of this kind.
    fn of(&mut self, kind: u8, nr: u64, all: &[Asked<'_>]) -> &[usize] {
        let (phase, place) = match kind {
            kind::CALL | kind::CLOCK => (Phase::Call, 0),
            kind::START => (Phase::Start, 1),
            kind::END => (Phase::End, 2),
            _ => (Phase::None, 3),
        };
        let (nr, row) = match phase {
            Phase::None => (None, 0),
            _ => (Some(nr), usize::try_from(nr).unwrap_or(usize::MAX)),
        };
        let ask = || -> Vec<usize> {
            let numbered = all.iter().enumerate();
            numbered
                .filter(|(_, (_, _, compiled))| compiled.may_fit(nr, phase))
                .map(|(i, _)| i)
                .collect()
        };
        let part = self.known.get_mut(place);
        match part.filter(|_| row < Candidates::CALLS) {
            Some(part) => {
                if part.len() <= row {
                    part.resize(row + 1, None);
                }
                match part.get_mut(row) {
                    Some(own) => own.get_or_insert_with(ask),
                    None => &[],
                }
            }
            None => {
                self.other = ask();
                &self.other
            }
        }
    }
}

impl<'h> Recorded<'h> {
    /// Of this recording, whose threads are called so.
    pub fn new(history: &'h causality::History, names: ThreadNames) -> Recorded<'h> {
        let known = |(ix, process): (ProcessIx, &Process)| {
            let (first, last) = history.span(ix);
            let empty = history.thread_count(ix) == 0;
            Known {
                name: history.set().process_name(ix),
                program: process.program.clone(),
                names: history.set().names_of(ix),
                first: clamp(first),
                end: match empty {
                    true => clamp(first),
                    false => clamp(last).saturating_add(1),
                },
                ended: !empty && history.has_exited(ix),
            }
        };
        Recorded {
            processes: history.processes().map(known).collect(),
            history,
            names,
        }
    }

    /// The causes.
    pub fn history(&self) -> &causality::History {
        self.history
    }

    /// The names of its threads.
    pub fn names(&self) -> &ThreadNames {
        &self.names
    }

    /// The name of a place: of the last event before it.
    pub fn event_name(&self, process: usize, at: At) -> String {
        let name = self.name(process);
        match at.bound.checked_sub(1) {
            Some(last) => format!("{name}:{last}"),
            None => name.to_string(),
        }
    }

    /// The links by which one event led to another, as `cause -> effect`.
    pub fn path(&self, from: (usize, At), to: (usize, At)) -> Vec<String> {
        let (Some(cause), Some(effect)) =
            (from.1.needs().checked_sub(1), to.1.bound.checked_sub(1))
        else {
            return Vec::new();
        };
        let id = |process: usize, number: u32| EventId::new(place(process), EventNo(number.into()));
        let links = self
            .history
            .path_between(id(from.0, cause), id(to.0, effect));
        let word =
            |event: EventId| format!("{}:{}", self.name(event.process.index()), event.number);
        let links = links.unwrap_or_default().into_iter();
        links
            .map(|link| format!("{} -> {}", word(link.cause), word(link.effect)))
            .collect()
    }

    /// When something was, by the first host's clock.
    fn time(&self, process: ProcessIx, ticks: Ticks) -> u64 {
        u64::try_from(self.history.time_ns(process, ticks)).unwrap_or(0)
    }

    fn known(&self, process: usize) -> Option<&Known> {
        self.processes.get(process)
    }
}

impl History for Recorded<'_> {
    fn processes(&self) -> usize {
        self.processes.len()
    }

    fn name(&self, process: usize) -> &str {
        self.known(process).map_or("", |known| &known.name)
    }

    fn program(&self, process: usize) -> &str {
        self.known(process).map_or("", |known| &known.program)
    }

    fn other_names(&self, process: usize) -> &[String] {
        self.known(process).map_or(&[], |known| &known.names)
    }

    fn first(&self, process: usize) -> u32 {
        self.known(process).map_or(0, |known| known.first)
    }

    fn end(&self, process: usize) -> u32 {
        self.known(process).map_or(0, |known| known.end)
    }

    fn ended(&self, process: usize) -> bool {
        self.known(process).is_some_and(|known| known.ended)
    }

    fn causes(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>) {
        let range = (EventNo(from.into()), EventNo(to.into()));
        let links = self
            .history
            .causes_between(place(process), range.0, range.1);
        found.extend(links.map(|link| Arrow {
            own: clamp(link.effect.number),
            other: link.cause.process.0,
            number: clamp(link.cause.number),
        }));
    }

    fn effects(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>) {
        let range = (EventNo(from.into()), EventNo(to.into()));
        let links = self
            .history
            .effects_between(place(process), range.0, range.1);
        found.extend(links.map(|link| Arrow {
            own: clamp(link.cause.number),
            other: link.effect.process.0,
            number: clamp(link.effect.number),
        }));
    }

    fn past(&self, process: usize, bound: u32) -> Vec<u32> {
        let Some(last) = bound
            .checked_sub(1)
            .filter(|last| *last >= self.first(process))
        else {
            return vec![0; self.processes.len()];
        };
        let cut = self
            .history
            .past(EventId::new(place(process), EventNo(last.into())));
        (0..self.processes.len())
            .map(|process| clamp(cut.bound(place(process))))
            .collect()
    }
}

impl Events for Recorded<'_> {
    fn scan(
        &self,
        process: usize,
        wanted: &[(u32, &Pattern)],
        symbols: &Symbols,
        take: &mut dyn FnMut(Seen<'_>),
    ) {
        let ix = place(process);
        let set = self.history.set();
        let (Some((recording, known)), Some(member)) = (set.at(ix), set.member_of(ix)) else {
            return;
        };
        let all: Vec<Asked<'_>> = wanted
            .iter()
            .map(|(letter, pattern)| {
                let matcher = Matcher::new((*pattern).clone(), self.history, &self.names);
                let compiled = Compiled::new(pattern, &matcher, ix);
                (*letter, matcher, compiled)
            })
            .filter(|(_, _, compiled)| !compiled.is_never())
            .collect();
        if all.is_empty() {
            return;
        }
        let mut candidates = Candidates::default();
        let names = self.names.member(member);
        let mut renderer = Renderer::new(recording, &names, Limits::default());
        let mut log = recording.log(known.number);
        let mut captured = Captured::new();
        let mut set: Vec<Happening> = Vec::new();
        let nothing: Rc<[Sym]> = Rc::new([]);
        // With it comes what the process has from those that made it.
        let mut is_first = true;
        while log.advance() {
            let Some((kind, nr, ..)) = log.glance() else {
                break;
            };
            // Most events are nobody's: of them nothing more is read.
            let follows = std::mem::take(&mut is_first) || may_change(&log);
            let own = candidates.of(kind, nr, &all);
            if own.is_empty() && !follows {
                continue;
            }
            let Some(event) = log.event() else { break };
            if follows {
                renderer.before(&event);
            }
            if own.is_empty() {
                renderer.after(&event);
                continue;
            }
            let kind = renderer.type_of(&event);
            set.clear();
            for (letter, matcher, compiled) in own.iter().filter_map(|i| all.get(*i)) {
                if compiled.happens(matcher, &event, &renderer, kind, &mut captured) {
                    let values = match captured.is_empty() {
                        true => nothing.clone(),
                        false => captured
                            .iter()
                            .map(|text| match text {
                                Some(text) => symbols.number(text),
                                None => Sym::NONE,
                            })
                            .collect(),
                    };
                    set.push(Happening {
                        letter: *letter,
                        values,
                    });
                }
            }
            if !set.is_empty() {
                take(Seen {
                    at: At::after(clamp(event.number)),
                    time: self.time(ix, event.time),
                    thread: event.thread.0,
                    set: &set,
                });
            }
            if follows {
                renderer.after(&event);
            }
        }
    }

    fn thread_name(&self, process: usize, thread: u32) -> String {
        match self.history.id_of(place(process)) {
            Some(id) => self.names.of(id, ThreadNo(thread)),
            None => String::new(),
        }
    }

    fn received(&self, process: usize, number: u32) -> Vec<(usize, u32)> {
        let links = self
            .history
            .effects(EventId::new(place(process), EventNo(number.into())));
        let messages = links.into_iter().filter(|link| link.kind == Kind::Message);
        let all: Vec<(usize, u32)> = messages
            .map(|link| (link.effect.process.index(), clamp(link.effect.number)))
            .collect();
        latest(self, &all)
    }

    fn times(&self, events: &[(usize, u32)]) -> Vec<u64> {
        let id = |(process, number): &(usize, u32)| {
            EventId::new(place(*process), EventNo((*number).into()))
        };
        let ids: Vec<EventId> = events.iter().map(id).collect();
        let mut found = std::collections::HashMap::new();
        self.history.look_all(&ids, |id, event| {
            found.insert(id, self.time(id.process, event.time));
        });
        ids.iter()
            .map(|id| found.get(id).copied().unwrap_or(0))
            .collect()
    }

    fn last_time(&self) -> u64 {
        let lasts: Vec<(usize, u32)> = (0..self.processes.len())
            .filter(|process| self.end(*process) > self.first(*process))
            .map(|process| (process, self.end(process) - 1))
            .collect();
        self.times(&lasts).into_iter().max().unwrap_or(0)
    }

    fn check(&self, pattern: &Pattern) -> Result<(), NoSuch> {
        let condition = match pattern {
            Pattern::And(a, b) | Pattern::Or(a, b) => {
                self.check(a)?;
                return self.check(b);
            }
            Pattern::Not(inner) => return self.check(inner),
            Pattern::Is(condition) => condition,
        };
        let Condition::Field(
            Field::Process | Field::Peer,
            Operator::Equal | Operator::Unequal,
            Value::Text(text),
        ) = condition
        else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(text);
        let set = self.history.set();
        let named =
            |known: &Known| known.name == *text || known.names.iter().any(|own| *own == text);
        // Of several hosts, one may be named that is the only one of its name, and
        // all that have a name.
        let known = self.processes.iter().any(named)
            || set.process_named(&text).is_some()
            || !set.hosts_with(&text).is_empty();
        if text.contains(['*', '?']) || known {
            return Ok(());
        }
        let names = self.processes.iter().map(|known| known.name.as_str());
        Err(NoSuch {
            what: format!("process `{text}`, which it has not"),
            name: text.to_string(),
            near: nearest(&text, names).map(str::to_string),
        })
    }
}
