//! `mw record`: runs a program and records it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// Run a command and record it and every process it starts.
#[derive(Args)]
pub struct Cmd {
    /// Directory to make for the recording
    /// [default: ${XDG_DATA_HOME:-~/.local/share}/meanwhile/CMD-N]
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// What becomes of the program when the disk is full
    #[arg(long, value_enum, default_value_t = OnFull::Stop, value_name = "WHAT")]
    pub on_full: OnFull,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

/// What becomes of the program when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    /// It is stopped.
    Stop,
    /// It runs on, unrecorded.
    Continue,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let _ = (self.output, self.on_full, self.command);
        Err(Failure::new("`record` is unimplemented in this build"))
    }
}
