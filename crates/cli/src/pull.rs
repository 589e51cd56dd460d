//! `mw pull`: fetches a recording from another host.

use std::path::PathBuf;
use std::process::ExitCode;

use hosts::connect::{Connector, TLS};
use hosts::pull::{self, Pull};

use crate::failure::Failure;
use crate::output::{Output, Progress, command_line, date};
use crate::{record, select};

/// Fetch a recording from another host; with `HOST:` alone, list those that are
/// there. What was fetched before the connection broke is not fetched again.
#[derive(clap::Args)]
pub struct Cmd {
    /// The host, as ssh understands it, and the name or path of the recording
    #[arg(value_name = "HOST:REC")]
    what: String,

    /// Directory to make for the recording
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        // Where an agent listens, the name of the host has colons itself.
        let parts = match self.what.starts_with(TLS) {
            true => self.what.rsplit_once(':'),
            false => self.what.split_once(':'),
        };
        let named = |host: &str| !host.is_empty() && !TLS.starts_with(host);
        let Some((host, name)) = parts.filter(|(host, _)| named(host)) else {
            return Err(Failure::new(format!("`{}` names no host", self.what))
                .hint("write HOST:REC, or HOST: to see which recordings are there"));
        };
        let client = Connector::new(select::identity())?.connect(host)?;
        if name.is_empty() {
            let mut out = Output::new();
            for stored in client.recordings()? {
                let (day, time) = date(stored.started_ns);
                let time = time.get(..8).unwrap_or(&time);
                let state = if stored.goes_on { "  goes on" } else { "" };
                let command = command_line(stored.command.iter().map(String::as_bytes));
                out.line(&format!(
                    "{host}:{}  {day} {time}{state}  {command}",
                    stored.name
                ))?;
            }
            out.finish()?;
            return Ok(ExitCode::SUCCESS);
        }
        let base = name
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or(name);
        // Under a name that is still free here, and the same one when it is
        // fetched again after it broke off.
        let output = self
            .output
            .or_else(|| Some(select::home()?.join(format!("{base}@{host}"))));
        let dir = record::choose(output, base.as_ref())?;
        let pulls = [Pull {
            client: &client,
            recording: name.to_string(),
            to: dir.clone(),
        }];
        let progress = Progress::bytes("fetching");
        let outcome = pull::all(&pulls, &|done, all| progress.set_of(done, all));
        drop(progress);
        for result in outcome {
            result?;
        }
        recording::Recording::open(&dir)?;
        select::point_latest_at(&dir);
        let mut out = Output::new();
        out.line(&dir.display().to_string())?;
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}
