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

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use protocol::id::{EventNo, ProcessId};
use recording::Set;
use session::{Group, MemberInfo, Program};
use target::Position;

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
pub trait Open: Fn() -> Result<Option<Arc<Program>>, Untold> + Send + 'static {}

impl<F: Fn() -> Result<Option<Arc<Program>>, Untold> + Send + 'static> Open for F {}

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
                match comes(&open, &said, &from) {
                    Ok(true) => return found.store(true, Relaxed),
                    Ok(false) => {}
                    // Where it is decided they are told.
                    Err(why) => tracing::debug!(target: "growing", %why, "cannot be told"),
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

/// Whether anything comes in what was recorded so far.
fn comes(open: &impl Open, said: &Said, from: &Frontier) -> Result<bool, Untold> {
    let Some(program) = open()? else {
        return Ok(true);
    };
    let mut group = Group::new(&program)?;
    from.place(&mut group)?;
    Ok(said.growing().comes(&group)?)
}
