//! Replay, for what only it can tell: source lines, functions of threads,
//! holders of locks (`query::source`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::replay::{Arrival, Session, SharedReplay, Stopped};
use ::target::Cancel;
use causality::{EventId, History};
use protocol::id::{EventNo, ProcessId};
use query::source::{InCall, Lines, Replay, Replays, Site, Trouble};
use recording::Recording;

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
                let mut replayer = Replayer::new(history.recording(), time);
                query::source::lines(history, calls, budget, &mut replayer)
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

/// Leads processes to events, as long as there is time.
pub struct Replayer {
    shared: Arc<SharedReplay>,
    deadline: Instant,
}

impl Replayer {
    /// For so long from now on.
    pub fn new(recording: &Arc<Recording>, time: Duration) -> Replayer {
        Replayer {
            shared: Arc::new(SharedReplay::new(recording)),
            deadline: Instant::now() + time,
        }
    }
}

impl Replays for Replayer {
    fn open(&mut self, process: ProcessId) -> Result<Box<dyn Replay>, Trouble> {
        if Instant::now() >= self.deadline {
            return Err(Trouble::Late);
        }
        ::replay::check(self.shared.recording()).map_err(other)?;
        let cancel = Cancel::until(self.deadline);
        let opened = Session::open_with(&self.shared, process.number, cancel);
        let session = opened.map_err(|error| match error {
            ::replay::Error::Interrupted => Trouble::Late,
            error => other(error),
        })?;
        Ok(Box::new(Led {
            session,
            deadline: self.deadline,
        }))
    }
}

fn other(error: ::replay::Error) -> Trouble {
    Trouble::Other(error.to_string())
}

/// A process that is led to events.
struct Led {
    session: Session,
    deadline: Instant,
}

impl Replay for Led {
    fn go_to(&mut self, event: EventNo) -> Result<(), Trouble> {
        match self.session.go_to(event.0) {
            Ok(Arrival::There | Arrival::End) => Ok(()),
            Ok(Arrival::Interrupted) => Err(Trouble::Late),
            Ok(arrival) => Err(Trouble::Other(told(&arrival).to_string())),
            // It says so as an error where it stops between two events.
            Err(_) if Instant::now() >= self.deadline => Err(Trouble::Late),
            Err(error) => Err(other(error)),
        }
    }

    fn calls(&self) -> Vec<InCall> {
        let threads = self.session.threads();
        let in_call = threads.iter().filter_map(|thread| {
            let registers = thread.registers;
            Some(InCall {
                thread: thread.number,
                nr: thread.call?,
                args: [registers.rdi, registers.rsi],
            })
        });
        in_call.collect()
    }

    fn look(&self, look: &mut dyn FnMut(&dyn inspect::Process)) {
        look(&Stopped::new(&self.session));
    }
}

fn told(arrival: &Arrival) -> &'static str {
    match arrival {
        Arrival::Diverged(_) => "replay came to something else than the recording",
        _ => "the log ends before",
    }
}
