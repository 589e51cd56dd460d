//! `mw agent`: what `mw` runs on another host to record there.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::select;

/// Record on this host for an `mw` on another. Started by that; nothing for
/// people.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("how").required(true)))]
pub struct Cmd {
    /// Speak on standard input and output
    #[arg(long, group = "how")]
    stdio: bool,

    /// Only say, by the exit status, whether this is the program meant
    #[arg(long, group = "how", value_name = "DIGEST")]
    verify: Option<String>,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if let Some(digest) = self.verify {
            if hosts::ssh::Binary::is_own(&digest) {
                return Ok(ExitCode::SUCCESS);
            }
            return Err(Failure::new("the copy of mw that arrived is damaged"));
        }
        let home = select::home().ok_or_else(|| {
            Failure::new("neither HOME nor XDG_DATA_HOME is set: there is no place for recordings")
        })?;
        // What reaches the group of whoever connected is not for the agent: it
        // ends when nobody speaks to it any more. (A leader has a session.)
        let _ = rustix::process::setsid();
        let served = hosts::serve::serve(
            std::io::BufReader::with_capacity(64 << 10, std::io::stdin()),
            std::io::stdout(),
            &home,
        );
        served
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| Failure::new(format!("the conversation ends: {error}")))
    }
}
