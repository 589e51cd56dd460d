//! `mw export`: the recording in forms that people have viewers for.

use std::process::ExitCode;

use crate::failure::Failure;

/// x
#[derive(clap::Args)]
pub struct Cmd {}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        Ok(ExitCode::SUCCESS)
    }
}
