//! Conditions on a program that is alive and recorded.
//!
//! While it runs its recording grows, and is looked at again and again: whether anything
//! comes in it. What is read then was written at different moments, so the answer is only
//! a reason to halt the program. What is recorded of a halted program is whole; there the
//! conditions are decided, as those of any recording are.
//!
//! What is new is looked at by itself first ([`Tail`]). Where nothing of it may matter the
//! rest need not be looked at, and where something may the program is halted at once, if
//! it was not halted in vain for the like too often ([`Patience`]); else the whole is looked
//! at beside it. So looking costs what the program does, not what it has done.
//!
//! A look at the whole may take longer than the program took to do it: what a look that comes too
//! late says is of a moment long past, and to go back there from where the program is by then takes
//! longer still. So the program leads by as much as it had done at most: when that has
//! doubled the look is given up, and the program halted until it is decided.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use protocol::id::{EventNo, ProcessId};
use recording::Set;
use session::{Group, MemberInfo, Program};
use target::{Cancel, Position};

use crate::table::{Error, Said};
use crate::tail::Tail;

/// How often what is new is looked at, at most, and how many times as long as a look
/// takes is waited before the next.
const GLANCE: Duration = Duration::from_millis(5);
const GLANCES: u32 = 4;
/// How often all of it is, and how long that is put off at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// Looking takes its time, and the program is to have more.
const SHARE: u32 = 2;
/// How soon it is noticed that nobody needs it any more.
const TICK: Duration = Duration::from_millis(5);
/// How long a look may take however little there is, and how often it is asked how much there is
/// by then.
const LEAD: Duration = Duration::from_millis(300);
/// Halts that were in vain may take one part in so many of the time.
const VAIN: u32 = 10;

/// How far everybody had come when the program was halted: the number of the event that
/// comes next. What is looked for comes after that.
#[derive(Clone, Debug, Default)]
pub struct Frontier(HashMap<ProcessId, Position>);

impl Frontier {
    /// All that a group knows of.
    pub fn of(group: &Group) -> Frontier {
        let next = |member: &MemberInfo| match member.is_empty {
            true => EventNo(0),
            false => member.last.next(),
        };
        let members = group.members().into_iter();
        let at = members.map(|member| (member.id, Position::way_to(next(&member))));
        Frontier(at.collect())
    }

    /// Where everybody of a group stands.
    pub fn at(group: &Group) -> Frontier {
        let members = group.members().into_iter();
        Frontier(members.map(|member| (member.id, member.at)).collect())
    }

    /// Says that everybody is there; who has begun since is at the beginning.
    pub fn place(&self, group: &mut Group) -> session::Result<()> {
        for member in group.members() {
            let at = self.0.get(&member.id).copied();
            group.place(member.id, at.unwrap_or(Position::START))?;
        }
        Ok(())
    }

    /// The events that come next.
    pub(crate) fn events(&self) -> HashMap<ProcessId, EventNo> {
        let all = self.0.iter();
        all.map(|(process, at)| (*process, at.event())).collect()
    }

    /// The event of a process that comes next; the first, of who has done nothing yet.
    pub fn next(&self, process: ProcessId) -> EventNo {
        let at = self.0.get(&process);
        at.map_or(EventNo(0), Position::event)
    }

    /// Who had come further than a group stands, and by how many events.
    pub fn beyond(&self, group: &Group) -> Vec<(ProcessId, u64)> {
        let members = group.members().into_iter();
        let further = members.filter_map(|member| {
            let next = self.0.get(&member.id)?.event();
            let events = next.0.saturating_sub(member.at.event().0);
            (events > 0).then_some((member.id, events))
        });
        further.collect()
    }
}

/// Why it cannot be told whether anything comes.
#[derive(Debug, thiserror::Error)]
pub enum Untold {
    /// What was recorded so far cannot be opened.
    #[error("{0}")]
    NotOpened(Box<dyn std::error::Error + Send + Sync>),
    /// It cannot be replayed to where it is to be looked at.
    #[error(transparent)]
    NotReplayed(#[from] session::Error),
    /// The conditions cannot be decided there.
    #[error(transparent)]
    NotDecided(#[from] Error),
}

/// Opens what was recorded so far. None: there will be no more of it, and who waits for
/// something is to be told.
pub trait Open: Fn() -> Result<Option<Arc<Program>>, Untold> + Send + Sync + 'static {}

impl<F: Fn() -> Result<Option<Arc<Program>>, Untold> + Send + Sync + 'static> Open for F {}

/// How readily the program is halted because something may have come: less, the more of
/// its time such halts have taken in vain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// Not before this.
    until: Option<Instant>,
}

impl Patience {
    /// It was halted for so long, in vain.
    pub fn was_in_vain(&mut self, length: Duration) {
        self.until = Instant::now().checked_add(length * VAIN);
    }

    fn is_ready(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }
}

/// Somebody who looks at a recording that grows, on a thread of their own, until something
/// comes or this is dropped.
pub struct Watch {
    is_over: Arc<AtomicBool>,
    found: Arc<AtomicBool>,
}

impl Watch {
    /// Looks for what was said in the recording in `dir`, from the frontier on; what was seen
    /// of it brought nothing by itself.
    pub fn start(
        dir: &Path,
        open: impl Open,
        said: Said,
        (from, seen): (Frontier, Frontier),
        patience: Patience,
    ) -> Watch {
        let watch = Watch {
            is_over: Arc::default(),
            found: Arc::default(),
        };
        let (is_over, found) = (Arc::clone(&watch.is_over), Arc::clone(&watch.found));
        let dir = dir.to_path_buf();
        let look = move || {
            let mut tail = said
                .rules()
                .and_then(|rules| Tail::new(&rules, &seen, said.is_observed()));
            let mut pause = match tail {
                Some(_) => GLANCE,
                None => PAUSE,
            };
            // When all of it may be looked at, and is to be, whatever is new.
            let mut earliest = Instant::now();
            let mut latest = Instant::now() + PAUSE_MOST;
            let mut is_wanted = tail.is_none();
            loop {
                let begun = Instant::now();
                while begun.elapsed() < pause {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    std::thread::sleep(TICK.min(pause));
                }
                let begun = Instant::now();
                if let Some(tail) = &mut tail {
                    let new = Set::open(&dir).map_or(0, |set| tail.look(&set));
                    if new > 0 && patience.is_ready() {
                        return found.store(true, Relaxed);
                    }
                    is_wanted |= new > 0;
                    pause = (begun.elapsed() * GLANCES).clamp(GLANCE, PAUSE_MOST);
                    let now = Instant::now();
                    if now < earliest || !is_wanted && now < latest {
                        continue;
                    }
                }
                let begun = Instant::now();
                match look_beside(&dir, &is_over, |cancel| comes(&open, &said, &from, cancel)) {
                    Look::Comes | Look::Overtaken => return found.store(true, Relaxed),
                    Look::Nothing => {}
                    Look::Over => return,
                }
                let rest = (begun.elapsed() * SHARE).clamp(PAUSE, PAUSE_MOST);
                earliest = Instant::now() + rest;
                latest = earliest + PAUSE_MOST;
                if tail.is_none() {
                    pause = rest;
                } else {
                    is_wanted = false;
                }
            }
        };
        // Without it they are decided when something else stops the program.
        let _ = std::thread::Builder::new()
            .name("conditions".to_string())
            .spawn(look);
        watch
    }

    /// Set when something comes: the program is to be halted.
    pub fn found(&self) -> &Arc<AtomicBool> {
        &self.found
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// What a look at the whole has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Comes,
    Nothing,
    /// There was twice as much before it had come to its end.
    Overtaken,
    /// Nobody wants to know any more.
    Over,
}

/// Looks at all that was recorded in a directory, beside the program that writes it.
fn look_beside(
    dir: &Path,
    is_over: &AtomicBool,
    look: impl Fn(&Cancel) -> Result<bool, Untold> + Sync,
) -> Look {
    let cancel = Cancel::new();
    let told = |came: Result<bool, Untold>| match came {
        Ok(true) => Look::Comes,
        Ok(false) => Look::Nothing,
        // Where it is decided they are told.
        Err(why) => {
            tracing::debug!(target: "growing", %why, "cannot be told");
            Look::Nothing
        }
    };
    let before = amount(dir);
    std::thread::scope(|scope| {
        let looking = std::thread::Builder::new().spawn_scoped(scope, || look(&cancel));
        // Where no thread can be had it takes as long as it takes.
        let Ok(looking) = looking else {
            return told(look(&cancel));
        };
        let mut asked = Instant::now();
        let given_up = loop {
            if looking.is_finished() {
                break None;
            }
            std::thread::sleep(TICK);
            if is_over.load(Relaxed) {
                break Some(Look::Over);
            }
            if asked.elapsed() >= LEAD {
                asked = Instant::now();
                if amount(dir) >= 2 * before {
                    break Some(Look::Overtaken);
                }
            }
        };
        if given_up.is_some() {
            cancel.cancel();
        }
        let came = looking.join();
        let came = came.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        given_up.unwrap_or_else(|| told(came))
    })
}

/// How much was recorded of everybody together, in bytes of their logs.
fn amount(dir: &Path) -> u64 {
    let Ok(set) = Set::open(dir) else {
        return 0;
    };
    let all = set.members().flat_map(|member| member.processes());
    all.map(|process| process.log_bytes).sum()
}

/// Whether anything comes in what was recorded so far.
fn comes(open: &impl Open, said: &Said, from: &Frontier, cancel: &Cancel) -> Result<bool, Untold> {
    let Some(program) = open()? else {
        return Ok(true);
    };
    let mut group = Group::new(&program)?;
    from.place(&mut group)?;
    Ok(said.growing().comes(&group, cancel)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    fn is_cancelled(cancel: &Cancel) -> bool {
        let begun = Instant::now();
        while !cancel.is_cancelled() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(TICK);
        }
        cancel.is_cancelled()
    }

    #[test]
    fn a_look_is_given_up_when_it_is_overtaken_or_not_wanted() {
        let nowhere = Path::new("/nowhere/at/all");
        let never = AtomicBool::new(false);
        assert_eq!(look_beside(nowhere, &never, |_| Ok(true)), Look::Comes);
        assert_eq!(look_beside(nowhere, &never, |_| Ok(false)), Look::Nothing);
        let cannot = |_: &Cancel| Err(Untold::NotOpened("it cannot be told".into()));
        assert_eq!(look_beside(nowhere, &never, cannot), Look::Nothing);
        // There is as much as twice nothing.
        let waits = |cancel: &Cancel| Ok(!is_cancelled(cancel));
        assert_eq!(look_beside(nowhere, &never, waits), Look::Overtaken);
        let over = AtomicBool::new(true);
        assert_eq!(look_beside(nowhere, &over, waits), Look::Over);
    }
}
