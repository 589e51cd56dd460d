//! Conditions on a program that is alive and recorded.
//!
//! While it runs its recording grows, and is looked at again and again: whether anything
//! comes in it. What is read then was written at different moments, so the answer is only
//! a reason to halt the program. What is recorded of a halted program is whole; there the
//! conditions are decided, as those of any recording are.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use protocol::id::{EventNo, ProcessId};
use session::{Group, Program};
use target::Position;

use crate::table::{Error, Said};

/// How often it is looked at least, and how long that is put off at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// Looking takes its time, and the program is to have more.
const SHARE: u32 = 2;
/// How soon it is noticed that nobody needs it any more.
const TICK: Duration = Duration::from_millis(5);

/// How far everybody had come when the program was halted: the number of the event that
/// comes next. What is looked for comes after that.
#[derive(Clone, Debug, Default)]
pub struct Frontier(HashMap<ProcessId, EventNo>);

impl Frontier {
    /// All that a group knows of.
    pub fn of(group: &Group) -> Frontier {
        let members = group.members().into_iter();
        let begun = members.filter(|member| !member.is_empty);
        Frontier(
            begun
                .map(|member| (member.id, member.last.next()))
                .collect(),
        )
    }

    /// Says that everybody is there; who has begun since is at the beginning.
    pub fn place(&self, group: &mut Group) -> session::Result<()> {
        for member in group.members() {
            let at = match self.0.get(&member.id) {
                Some(next) => Position::way_to(*next),
                None => Position::START,
            };
            group.place(member.id, at)?;
        }
        Ok(())
    }

    /// Who had come further than a group stands, and by how many events.
    pub fn beyond(&self, group: &Group) -> Vec<(ProcessId, u64)> {
        let members = group.members().into_iter();
        let further = members.filter_map(|member| {
            let next = self.0.get(&member.id)?;
            let events = next.0.saturating_sub(member.at.event().0);
            (events > 0).then_some((member.id, events))
        });
        further.collect()
    }
}

/// Opens what was recorded so far.
pub trait Open: Fn() -> Result<Arc<Program>, String> + Send + 'static {}

impl<F: Fn() -> Result<Arc<Program>, String> + Send + 'static> Open for F {}

/// Somebody who looks at a recording that grows, on a thread of their own, until something
/// comes or this is dropped.
pub struct Watch {
    is_over: Arc<AtomicBool>,
    found: Arc<AtomicBool>,
}

impl Watch {
    /// Looks for what was said, from the frontier on.
    pub fn start(open: impl Open, said: Said, from: Frontier) -> Watch {
        let watch = Watch {
            is_over: Arc::default(),
            found: Arc::default(),
        };
        let (is_over, found) = (Arc::clone(&watch.is_over), Arc::clone(&watch.found));
        let look = move || {
            let mut pause = PAUSE;
            loop {
                let begun = Instant::now();
                while begun.elapsed() < pause {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    std::thread::sleep(TICK);
                }
                let begun = Instant::now();
                match comes(&open, &said, &from) {
                    Ok(true) => return found.store(true, Relaxed),
                    Ok(false) => {}
                    // Where it is decided they are told.
                    Err(why) => tracing::debug!(target: "growing", why, "cannot be told"),
                }
                pause = (begun.elapsed() * SHARE).clamp(PAUSE, PAUSE_MOST);
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
fn comes(open: &impl Open, said: &Said, from: &Frontier) -> Result<bool, String> {
    let program = open()?;
    let words = |error: session::Error| error.to_string();
    let mut group = Group::new(&program).map_err(words)?;
    from.place(&mut group).map_err(words)?;
    let found = said.growing().comes(&group);
    found.map_err(|error: Error| error.to_string())
}
