//! What a debugger debugs, as a trait: a process that can be moved and looked
//! into.
//!
//! [`Target`] is what every process can: run until something stops it, take a
//! step, be looked into. What only some can is asked for: a process that was
//! recorded has a past to go to ([`Recorded`]), one that is alive can be changed
//! and runs along with others ([`Alive`]). Who debugs names these traits only, and so does not care
//! whether a process is replayed or lives.
//!
//! The types that motions are described with are here too: where a process is
//! ([`Position`]), what it is to stop at ([`Stops`]), what it came to
//! ([`Arrival`], [`Back`]), and how one that asked has enough ([`Cancel`]).

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod cancel;
mod error;
mod motion;
mod position;
mod registers;
mod state;
mod verdict;

use std::ops::Range;

use inspect::Process;
use protocol::id::{Addr, ProcessId, ThreadNo};

pub use cancel::Cancel;
pub use error::{Error, Result};
pub use motion::{Arrival, Back, Calls, Catches, Condition, Happening, Hit, Stops, Watch};
pub use position::{Halted, Inside, Position};
pub use registers::Registers;
pub use state::{
    CheckpointId, CheckpointInfo, Handler, ImageSpan, MapsVersion, Region, Stuck, ThreadState,
};
pub use verdict::{Difference, Ending, Outcome, Verdict};

/// What a step goes over that is to execute one instruction: no code begins in it.
pub const ONE_INSTRUCTION: Range<Addr> = Addr::NULL..Addr::NULL;

/// Asked at each stop of a search back whether it is one.
pub type Ask<'a> = dyn FnMut(&dyn Target, Hit) -> bool + 'a;

/// A process that is debugged.
///
/// It stands still whenever one of these methods can be called. All questions
/// are about where it stands. It stays on the thread that opened it (it need
/// not be `Send`): processes that replay end with the thread that started them.
pub trait Target {
    /// Which process it is.
    fn id(&self) -> ProcessId;

    /// Where it stands in its run.
    fn position(&self) -> Position;

    /// The thread that runs, or is about to do what comes next.
    fn thread(&self) -> ThreadNo;

    /// Its threads, in order of their numbers.
    fn threads(&self) -> Vec<ThreadState>;

    /// One of its threads, if it is there.
    fn thread_state(&self, number: ThreadNo) -> Option<ThreadState> {
        self.threads().into_iter().find(|t| t.number == number)
    }

    /// The thread that runs, as it stands.
    fn running(&self) -> Option<ThreadState> {
        self.thread_state(self.thread())
    }

    /// What the process does with signal 1 and those that follow.
    fn handlers(&self) -> Vec<Handler>;

    /// Reads memory as it is: how many bytes from `address` on could be had.
    fn read(&self, address: Addr, out: &mut [u8]) -> usize;

    /// Changes when what is mapped does, and is the same at the same position.
    fn maps_version(&self) -> MapsVersion;

    /// What is mapped, in order of address.
    fn regions(&self) -> Result<Vec<Region>>;

    /// The programs that it executes one after the other, as far as they are
    /// known.
    fn images(&self) -> Vec<ImageSpan>;

    /// The process to be looked into: code is as the program has it, whatever
    /// was put in its place to run it.
    fn look(&self) -> Box<dyn Process + '_>;

    /// Runs on until something says to stop, or to `until`.
    fn run(&mut self, stops: &Stops<'_>, until: Position, cancel: &Cancel) -> Result<Arrival>;

    /// Has the thread that runs execute one instruction ([`ONE_INSTRUCTION`]), or as
    /// many as begin in `range`; it stops earlier if watched memory changes.
    fn step(&mut self, range: Range<Addr>, watches: &[Watch], cancel: &Cancel) -> Result<Arrival>;

    /// Its past, if it has one that can be gone to.
    fn history(&mut self) -> Option<&mut dyn Recorded> {
        None
    }

    /// What it can because it is alive, if it is.
    fn alive(&mut self) -> Option<&mut dyn Alive> {
        None
    }

    /// Whether a descriptor leads to a file, as far as that is known here: of one that is
    /// alive.
    fn is_file(&self, _fd: i32) -> bool {
        false
    }

    /// What a thread is called, if that is known here.
    fn thread_name(&self, _number: ThreadNo) -> Option<String> {
        None
    }
}

/// What only a process that was recorded can.
pub trait Recorded {
    /// Goes to a position, forwards or back. What is cancelled stops on the way.
    fn seek(&mut self, to: Position, cancel: &Cancel) -> Result<Arrival>;

    /// Goes back to the last stop behind `floor`. At a breakpoint it then
    /// stands there; of watched memory it stands before what changed it. If
    /// `ask` is given it is asked at each stop (behind the change, for memory),
    /// which takes longer. If there is none, or it is cancelled, the process
    /// stands where it stood.
    fn last(
        &mut self,
        stops: &Stops<'_>,
        floor: Position,
        cancel: &Cancel,
        ask: Option<&mut Ask<'_>>,
    ) -> Result<Back>;

    /// Goes back by one instruction of whichever thread did the last one.
    /// False: this is the beginning.
    fn step_back(&mut self, cancel: &Cancel) -> Result<bool>;

    /// Keeps what it takes to come back here at once.
    fn checkpoint(&mut self) -> Result<CheckpointId>;

    /// What is kept, in order of position.
    fn checkpoints(&self) -> Vec<CheckpointInfo>;

    /// Says that nobody will go back, so that no checkpoints need be left on the
    /// way.
    fn only_forwards(&mut self) {}

    /// Gives a checkpoint up. False: there is none of that name.
    fn drop_checkpoint(&mut self, id: CheckpointId) -> bool;
}

/// What only a process that is alive can: be changed, and run along while another
/// one is led.
///
/// Everything here is done while it stands still.
pub trait Alive {
    /// Writes memory: how many bytes from `address` on could be written.
    fn write_memory(&mut self, address: Addr, bytes: &[u8]) -> Result<usize>;

    /// Gives a thread other registers.
    fn write_registers(&mut self, thread: ThreadNo, registers: &Registers) -> Result<()>;

    /// Takes a thread as the one that runs: it is the one that is stepped.
    fn choose(&mut self, thread: ThreadNo) -> Result<()>;

    /// Says what stops it while another process is led.
    fn arm(&mut self, stops: &Stops<'_>) -> Result<()>;

    /// Says who runs along when this one is run: without these, all others that are
    /// there now stand. Who is made from now on by one that runs, runs.
    fn accompany(&mut self, others: &[ProcessId]);

    /// The signal that a thread is about to get when it runs on.
    fn pending(&self, thread: ThreadNo) -> Option<u32>;

    /// Has a thread get this signal when it runs on, or none.
    fn set_pending(&mut self, thread: ThreadNo, signal: Option<u32>) -> Result<()>;

    /// The call that a thread is about to make, and at which it was stopped, is not made: it
    /// fails with this error.
    fn refuse_call(&mut self, thread: ThreadNo, errno: i32) -> Result<()>;

    /// Ends it.
    fn kill(&mut self) -> Result<()>;

    /// Lets it go, as it was before it was debugged.
    fn detach(&mut self) -> Result<()>;

    /// How it ended, if it has.
    fn ending(&self) -> Option<Happening>;
}

/// A process that is alive, without looking into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    pub id: ProcessId,
    /// What it is called on its host.
    pub name: String,
    /// Its host, if that is another one than the debugger's.
    pub host: Option<String>,
    /// The program that it executes.
    pub program: String,
}

/// Opens processes to be debugged.
///
/// What they have in common is kept behind it. A process that was recorded may
/// be open several times at once: a second one can be elsewhere, so that something
/// is asked there without moving the first.
pub trait Opener: Send + Sync {
    /// Opens a process. One that was recorded stands at its beginning then. It
    /// belongs to the thread that calls: it may be of no use when that has ended.
    fn open(&self, process: ProcessId, cancel: &Cancel) -> Result<Box<dyn Target>>;

    /// The processes of a program that is alive, as there are now: more may come
    /// when it runs, and those that have ended are not among them.
    fn living(&self) -> Option<Vec<Living>> {
        None
    }
}
