//! Errors, for a program whose only answer to one is to say what happened and stop.

use std::fmt::{self, Display};
use std::process::{ExitCode, Termination};

pub type Result<T> = std::result::Result<T, Failure>;

/// The exit status of a process that could not do its work. 1 is taken: it says that the total is
/// wrong.
pub const FAILED: u8 = 2;

/// What could not be done, and why, in one line.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    pub fn new(what: impl Display) -> Failure {
        Failure(what.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says what was being done when an error came up.
pub trait Context<T> {
    fn context<C: Display>(self, what: impl FnOnce() -> C) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context<C: Display>(self, what: impl FnOnce() -> C) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", what())))
    }
}

/// The body of every `main`: runs `body`, and reports its failure under the name of the program.
pub fn run<T: Termination>(program: &str, body: impl FnOnce() -> Result<T>) -> ExitCode {
    match body() {
        Ok(result) => result.report(),
        Err(failure) => {
            eprintln!("{program}: {failure}");
            ExitCode::from(FAILED)
        }
    }
}
