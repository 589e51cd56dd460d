//! Replay, for what only it can tell: source lines, functions of threads,
//! holders of locks (`query::source`).

use std::time::Duration;

use ::replay::Replayer;
use causality::{EventId, History};
use protocol::id::ProcessId;
use query::source::{Lines, Replays, Site};
use recording::Set;
use target::{Cancel, Opener, Target};

/// Whether and for how long source lines are looked for.
#[derive(clap::Args)]
pub struct Wish {
    /// Do not show the source line of each event's call
    #[arg(long)]
    no_source: bool,

    /// Replay for so many seconds at most to find source lines that are not
    /// known yet
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    source_time: f64,
}

impl Wish {
    /// Where these calls are in the source, as far as it is wished to know.
    pub fn lines(&self, history: &History, calls: &[(EventId, Site)]) -> Lines {
        match self.time() {
            None => Lines::default(),
            Some(Duration::ZERO) => query::source::known(history, calls),
            Some(time) => {
                let budget = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                within(history.set(), time, |replays| {
                    query::source::lines(history, calls, budget, replays)
                })
            }
        }
    }

    /// What is known of that without replay, if there is more to be found.
    pub fn draft(&self, history: &History, calls: &[(EventId, Site)]) -> Option<Lines> {
        self.time().filter(|time| !time.is_zero())?;
        let known = query::source::known(history, calls);
        known.is_partial().then_some(known)
    }

    fn time(&self) -> Option<Duration> {
        let time = Duration::try_from_secs_f64(self.source_time).unwrap_or(Duration::ZERO);
        (!self.no_source).then_some(time)
    }
}

/// Replays members whose files are all there.
struct Checked(Replayer);

impl Opener for Checked {
    fn open(&self, process: ProcessId, cancel: &Cancel) -> target::Result<Box<dyn Target>> {
        self.0.check(process)?;
        self.0.open(process, cancel)
    }
}

/// Asks what only replay can tell, which may take so long.
pub fn within<T>(set: &Set, time: Duration, ask: impl FnOnce(Replays<'_>) -> T) -> T {
    let checked = Checked(Replayer::new(set));
    let cancel = Cancel::after(time);
    ask(Replays {
        opener: &checked,
        cancel: &cancel,
    })
}
