//! `mw replay`: re-runs a recording and shows the program's output as it was.

use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::replay::Replayer;
use query::output::{self, Piece};
use recording::Set;
use recording::descriptors::Standard;

use crate::causes;
use crate::debug;
use crate::failure::Failure;
use crate::select;
use crate::verify::{explain, told};

/// Debug a recording: all of the program at one instant, that can be moved
/// anywhere in time; or re-run it, showing its output as it was.
///
/// Exit status 0; 2 if a command failed; with `--echo`, 1 if the replay came to something else than the recording.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: select::Positional,

    /// Write what the program wrote to its standard output and error to ours;
    /// without this, the debugger's prompt comes up
    #[arg(long, conflicts_with_all = ["file", "command", "batch"])]
    echo: bool,

    /// Execute the debugger's commands in FILE first
    #[arg(short = 'x', long = "command-file", id = "file", value_name = "FILE")]
    files: Vec<std::path::PathBuf>,

    /// Execute a command of the debugger's
    #[arg(short = 'e', long = "execute", id = "command", value_name = "CMD")]
    commands: Vec<String>,

    /// Execute the given commands, then leave; stop at the first that fails
    #[arg(long)]
    batch: bool,

    /// How fast
    #[arg(
        long,
        value_enum,
        value_name = "PACE",
        default_value = "full",
        requires = "echo"
    )]
    pace: Pace,
}

/// When output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pace {
    /// As soon as it can be had
    Full,
    /// At the times of the recording
    Real,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let set = self.recording.open()?;
        if !self.echo {
            let script = debug::Script {
                files: self.files,
                commands: self.commands,
                batch: self.batch,
            };
            let good = debug::run(&set, &script)?;
            return Ok(ExitCode::from(u8::from(!good) * 2));
        }
        for recording in set.members() {
            ::replay::check(recording).map_err(explain)?;
        }
        // How clocks stand to each other is in the index.
        let history = set.is_joined().then(|| causes::open(&set)).transpose()?;
        let pieces = output::pieces(&set, history.as_ref());
        let replayer = Replayer::new(&set);
        let mut reader = output::Reader::new(&set, &replayer, &pieces);
        let mut screen = Screen::new();
        let mut missing = 0;
        let begun = Instant::now();
        for piece in &pieces {
            let found = match reader.read(piece) {
                Err(error @ output::Error::Diverged { .. }) => {
                    screen.flush()?;
                    diverged(&set, piece, &error)?;
                    return Ok(ExitCode::from(1));
                }
                found => found.map_err(not_read)?,
            };
            if self.pace == Pace::Real {
                screen.flush()?;
                let left = Duration::from_nanos(piece.time_ns).saturating_sub(begun.elapsed());
                std::thread::sleep(left);
            }
            match found {
                Some(bytes) => screen.write(piece.to, &bytes)?,
                None => missing += piece.len,
            }
        }
        screen.flush()?;
        if missing > 0 {
            return Err(Failure::new(format!(
                "{missing} bytes of the output are not in the recording"
            ))
            .hint("the kernel moved them there from a file or a pipe (sendfile, splice, copy_file_range)"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn not_read(error: output::Error) -> Failure {
    let failure = Failure::new(&error);
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Says how the replay of a process differs from its recording.
fn diverged(set: &Set, piece: &Piece, error: &output::Error) -> Result<(), Failure> {
    let mut out = crate::output::Output::to_stderr();
    out.line(&error.to_string())?;
    if let output::Error::Diverged { difference, .. } = error {
        told(&mut out, set, piece.process, difference)?;
    }
    out.finish()?;
    Ok(())
}

/// Our standard output and error, in the order of what is written to them.
struct Screen {
    out: BufWriter<std::io::Stdout>,
}

impl Screen {
    fn new() -> Screen {
        Screen {
            out: BufWriter::with_capacity(64 * 1024, std::io::stdout()),
        }
    }

    fn write(&mut self, to: Standard, bytes: &[u8]) -> Result<(), Failure> {
        match to {
            // Who writes to its input writes to the terminal.
            Standard::Output | Standard::Input => self.out.write_all(bytes)?,
            Standard::Error => {
                self.flush()?;
                std::io::stderr().write_all(bytes)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush()?;
        Ok(self.out.get_mut().flush()?)
    }
}
