//! The three ways to run a program: as it is, under `mw record`, under `strace -f`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;
use crate::scratch::Scratch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    Native,
    Recorded,
    Strace,
}

impl Setup {
    pub fn name(self) -> &'static str {
        match self {
            Setup::Native => "native",
            Setup::Recorded => "recorded",
            Setup::Strace => "strace",
        }
    }
}

/// A program and its arguments, not yet put under anything.
pub struct CommandLine {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl CommandLine {
    pub fn new<A: Into<OsString>>(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
    ) -> CommandLine {
        CommandLine {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
        }
    }
}

pub struct Launcher {
    pub mw: PathBuf,
    /// None where there is no strace, or none that works.
    pub strace: Option<PathBuf>,
    /// Where `mw` keeps what it keeps for its user: not among that of the user who runs this.
    pub data_home: PathBuf,
}

impl Launcher {
    /// The setups to interleave, in this order.
    pub fn setups(&self) -> Vec<Setup> {
        let strace = self.strace.as_ref().map(|_| Setup::Strace);
        [Setup::Native, Setup::Recorded]
            .into_iter()
            .chain(strace)
            .collect()
    }

    /// `line` under `setup`; a recording, if one is made, goes to `recording`.
    pub fn command(&self, setup: Setup, line: &CommandLine, recording: &Path) -> Command {
        let mut command = match (setup, &self.strace) {
            (Setup::Recorded, _) => {
                let mut command = process::command(&self.mw);
                command.arg("record").arg("-o").arg(recording).arg("--");
                command.arg(&line.program);
                command
            }
            (Setup::Strace, Some(strace)) => {
                let mut command = process::command(strace);
                command.args(["-f", "-o", "/dev/null"]).arg(&line.program);
                command
            }
            (Setup::Native | Setup::Strace, _) => process::command(&line.program),
        };
        // The same environment for all three, the size of it moves the stack.
        command
            .args(&line.args)
            .env("XDG_DATA_HOME", &self.data_home);
        command
    }

    pub fn info(&self, recording: &Path, scratch: &Scratch) -> Result<LogInfo> {
        let mut command = process::command(&self.mw);
        command.args(["info", "--json"]).arg(recording);
        let finished = process::run(&mut command, scratch, Duration::from_secs(60))?;
        LogInfo::parse(&finished.stdout)
    }
}

/// What `mw info --json` says of the size of the log; what it does not say is None.
#[derive(Debug, Default, PartialEq)]
pub struct LogInfo {
    events: Option<f64>,
    bytes: Option<f64>,
    data_bytes: Option<f64>,
    compressed_bytes: Option<f64>,
}

impl LogInfo {
    fn parse(json: &str) -> Result<LogInfo> {
        let info: Value = serde_json::from_str(json).context("mw info --json is not JSON")?;
        let number = |key| info.get(key).and_then(Value::as_f64);
        Ok(LogInfo {
            events: number("events").filter(|&events| events > 0.0),
            bytes: number("log_bytes"),
            data_bytes: number("log_data_bytes"),
            compressed_bytes: number("log_compressed_bytes"),
        })
    }

    pub fn bytes_beyond_data(&self) -> Option<f64> {
        Some((self.bytes? - self.data_bytes?) / self.events?)
    }

    /// With the data, since compression does not keep the two apart: an upper bound.
    pub fn compressed_bytes(&self) -> Option<f64> {
        Some(self.compressed_bytes? / self.events?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_whole_and_of_an_empty_info() -> Result<()> {
        let info = LogInfo::parse(
            r#"{"events":100,"log_bytes":5000,"log_data_bytes":3000,"log_compressed_bytes":400}"#,
        )?;
        assert_eq!(info.bytes_beyond_data(), Some(20.0));
        assert_eq!(info.compressed_bytes(), Some(4.0));
        assert_eq!(LogInfo::parse("{}")?.bytes_beyond_data(), None);
        let none = LogInfo::parse(r#"{"events":0,"log_bytes":1,"log_data_bytes":0}"#)?;
        assert_eq!(none.bytes_beyond_data(), None);
        assert!(LogInfo::parse("events: 3").is_err());
        Ok(())
    }

    #[test]
    fn the_program_goes_behind_the_double_dash() {
        let launcher = Launcher {
            mw: "/opt/mw".into(),
            strace: None,
            data_home: "/tmp/d".into(),
        };
        let line = CommandLine::new("/bin/echo", ["-o", "x"]);
        let command = launcher.command(Setup::Recorded, &line, Path::new("/tmp/r"));
        let words: Vec<_> = command.get_args().filter_map(|arg| arg.to_str()).collect();
        assert_eq!(
            words,
            ["record", "-o", "/tmp/r", "--", "/bin/echo", "-o", "x"]
        );
        assert_eq!(launcher.setups(), [Setup::Native, Setup::Recorded]);
    }
}
