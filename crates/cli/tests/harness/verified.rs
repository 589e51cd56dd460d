//! A recording that is replayed, through the commands a user has.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::MW;
use super::recorded::Recorded;

/// What `mw verify` said.
pub struct Verified {
    /// Of the command.
    pub status: i32,
    /// One object for each process.
    pub processes: Vec<Value>,
    pub stderr: String,
    /// The command that was run.
    line: String,
}

/// Runs `mw verify` on a recording.
pub fn verify(dir: &Path, options: &[&str]) -> Verified {
    let mut command = Command::new(MW);
    command.arg("verify").arg("--json").args(options).arg(dir);
    let line = format!("{MW} verify {} {}", options.join(" "), dir.display());
    let output = command.output().unwrap();
    Verified::new(&output, line)
}

impl Verified {
    pub fn new(output: &Output, line: String) -> Verified {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let object = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        Verified {
            status: super::recorded::shell_status(output.status),
            processes: text.lines().map(object).collect(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            line,
        }
    }

    /// All came as recorded.
    pub fn is_equal(&self) {
        for process in &self.processes {
            assert_eq!(process["outcome"], "equal", "{}:\n{process:#}", self.line);
            assert_eq!(process["exit_equal"], true, "{}:\n{process:#}", self.line);
            assert_eq!(process["output_equal"], true, "{}:\n{process:#}", self.line);
            assert_eq!(
                process["events"], process["recorded_events"],
                "{}:\n{process:#}",
                self.line
            );
        }
        assert_eq!(
            (self.status, self.stderr.as_str()),
            (0, ""),
            "{}",
            self.line
        );
        assert!(!self.processes.is_empty(), "{}", self.line);
    }

    /// The first process that did not come as recorded.
    pub fn first_difference(&self) -> &Value {
        let mut all = self.processes.iter();
        all.find(|process| process["outcome"] != "equal")
            .unwrap_or_else(|| panic!("all came as recorded: {}", self.line))
    }
}

/// What `mw replay --echo` wrote.
pub struct Echo {
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

pub fn echo(dir: &Path, options: &[&str]) -> Echo {
    let output = Command::new(MW)
        .args(["replay", "--echo"])
        .args(options)
        .arg(dir)
        .output()
        .unwrap();
    Echo {
        status: super::recorded::shell_status(output.status),
        stdout: output.stdout,
        stderr: output.stderr,
    }
}

impl Recorded {
    /// Replayed, every process does what it did.
    pub fn replays(&self) {
        verify(&self.dir, &[]).is_equal();
    }

    /// Replayed, it prints what it printed.
    pub fn echoes(&self) {
        let echo = echo(&self.dir, &[]);
        let errors = String::from_utf8_lossy(&echo.stderr);
        assert_eq!(echo.status, 0, "{errors}");
        assert_eq!(
            String::from_utf8_lossy(&echo.stdout),
            self.outcome.stdout.as_str(),
            "{errors}"
        );
        // `mw record` speaks there as well.
        let own = |line: &&str| !line.starts_with("mw: ") && !line.starts_with("    ");
        let recorded: Vec<&str> = self.outcome.stderr.lines().filter(own).collect();
        let replayed: Vec<&str> = errors.lines().filter(own).collect();
        assert_eq!(replayed, recorded);
    }
}
