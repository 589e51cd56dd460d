//! Why something happened: the chain of causes, the shortest story first.
//!
//! All that a process ever did and was told lies in the past of what it does
//! now; a person wants to know what it was *about*. A receive is explained by
//! what was sent. Anything else is explained by what its thread was told before
//! it: an answer by the question it answers and by all that the thread was told
//! in between; other things by the last thing the thread was told. The question
//! behind an answer that the story came from is not explained again: whoever
//! asked is in the story already. What a thread answers may rest on what other
//! threads of its process were told earlier; the last of that is mentioned as
//! background.

use std::collections::HashSet;

use protocol::id::{EventNo, ProcessIx, ThreadNo};

use crate::history::History;
use crate::link::{EventId, Kind, Link};

/// What a cause is to its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It led to the event itself.
    Direct,
    /// It told the event's thread something before it.
    Input,
    /// It asked for what the story came from.
    Question,
    /// It told another thread of the process something before.
    Background,
}

/// A cause, and what caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The link by which it led on.
    pub link: Link,
    /// What it is to its effect.
    pub role: Role,
    /// Its own causes are told elsewhere in the story.
    pub told: bool,
    /// Its own causes were left out, because the story is long enough.
    pub cut: bool,
    /// Why it happened.
    pub causes: Vec<Cause>,
}

/// How long a story may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Links from the event back.
    pub depth: usize,
    /// Causes of one event.
    pub width: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth: 6, width: 6 }
    }
}

struct Story<'h> {
    history: &'h History,
    limits: Limits,
    told: HashSet<EventId>,
}

/// A span of a thread that is in the story: from this event of the process
/// on.
#[derive(Clone, Copy)]
struct Span {
    process: ProcessIx,
    from: EventNo,
}

impl History {
    /// Why an event happened.
    pub fn explain(&self, event: EventId, limits: Limits) -> Vec<Cause> {
        let mut story = Story {
            history: self,
            limits,
            told: HashSet::from([event]),
        };
        let thread = self.thread_of(event);
        story.causes_of(event, thread, None, 0)
    }

    /// What an event's thread led to next, if the event itself led to nothing.
    pub fn next_effects(&self, event: EventId) -> Vec<Link> {
        // Threads are not in the index for causes: a few are looked up.
        const TRIES: usize = 64;
        let Some(thread) = self.thread_of(event) else {
            return Vec::new();
        };
        let mut causes: Vec<EventId> = self
            .effects_between(event.process, event.number.next(), EventNo::MAX)
            .take(TRIES)
            .map(|link| link.cause)
            .collect();
        causes.dedup();
        let next = causes
            .into_iter()
            .find(|cause| self.thread_of(*cause) == Some(thread));
        next.map(|cause| self.effects(cause)).unwrap_or_default()
    }

    fn thread_of(&self, event: EventId) -> Option<ThreadNo> {
        self.look(event, |event| event.thread)
    }

    /// What an event's thread was told before it, the latest first.
    fn inputs(&self, event: EventId, thread: ThreadNo, width: usize) -> Vec<Link> {
        let asked_by = self
            .uses(event)
            .iter()
            .find(|used| !used.receives)
            .and_then(|used| self.channel(used.channel)?.reverse);
        let told = self
            .causes_before(event.process, event.number)
            .filter(|link| link.thread == thread);
        let mut found: Vec<Link> = Vec::new();
        for link in told {
            let question = link.kind == Kind::Message && link.channel == asked_by;
            let wanted = matches!(link.kind, Kind::Message | Kind::Count) || found.is_empty();
            if wanted {
                found.push(link);
            }
            if question && asked_by.is_some() {
                return found;
            }
            if found.len() >= width {
                break;
            }
        }
        // No question: the last message, or else whatever it was told last.
        let message = found.iter().find(|link| link.kind == Kind::Message);
        let last = message.or(found.first()).map(|link| link.effect);
        found.retain(|link| Some(link.effect) == last);
        found
    }
}

impl Story<'_> {
    fn causes_of(
        &mut self,
        event: EventId,
        thread: Option<ThreadNo>,
        asker: Option<Span>,
        depth: usize,
    ) -> Vec<Cause> {
        let direct = self.history.causes(event);
        let role = if direct.is_empty() {
            Role::Input
        } else {
            Role::Direct
        };
        let mut links = direct;
        if links.is_empty()
            && let Some(thread) = thread
        {
            links = self.history.inputs(event, thread, self.limits.width);
        }
        links.truncate(self.limits.width);
        let from = links.iter().map(|link| link.effect.number).min();
        let own = Span {
            process: event.process,
            from: from.unwrap_or(event.number),
        };
        let mut causes = Vec::new();
        for link in links {
            let asks = asker.is_some_and(|asker| {
                link.cause.process == asker.process && link.cause.number >= asker.from
            });
            if asks {
                causes.push(Cause {
                    link,
                    role: Role::Question,
                    told: true,
                    cut: false,
                    causes: Vec::new(),
                });
            } else {
                causes.push(self.tell(link, role, own, depth));
            }
        }
        if role == Role::Input
            && causes.iter().all(|cause| cause.role == Role::Question)
            && let Some(link) = thread.and_then(|thread| self.background(event, thread))
        {
            causes.push(self.tell(link, Role::Background, own, depth));
        }
        causes
    }

    fn tell(&mut self, link: Link, role: Role, own: Span, depth: usize) -> Cause {
        let told = !self.told.insert(link.cause);
        let cut = !told && depth + 1 >= self.limits.depth;
        let causes = if told || cut {
            Vec::new()
        } else {
            let thread = match link.cause_thread {
                Some(thread) => Some(thread),
                None => self.history.thread_of(link.cause),
            };
            self.causes_of(link.cause, thread, Some(own), depth + 1)
        };
        Cause {
            link,
            role,
            told,
            cut,
            causes,
        }
    }

    /// The last message that another thread of the process got before.
    fn background(&self, event: EventId, thread: ThreadNo) -> Option<Link> {
        self.history
            .causes_before(event.process, event.number)
            .find(|link| {
                link.kind == Kind::Message
                    && link.thread != thread
                    && link.cause.process != event.process
            })
    }
}
