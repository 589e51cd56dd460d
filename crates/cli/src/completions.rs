//! `mw completions` and `mw man`: what shells and `man` want to know.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

use crate::Arguments;
use crate::failure::Failure;

/// The variable by which a shell asks `mw` itself for what may come next.
const VARIABLE: &str = "MW_COMPLETE";

/// Print what makes a shell complete `mw`: commands, options, names of
/// recordings.
///
/// For bash, put `source <(mw completions bash)` into ~/.bashrc; for zsh,
/// `source <(mw completions zsh)` into ~/.zshrc; for fish,
/// `mw completions fish > ~/.config/fish/completions/mw.fish`.
#[derive(clap::Args)]
pub struct Completions {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Completions {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let shell: &dyn EnvCompleter = match self.shell {
            Shell::Bash => &Bash,
            Shell::Elvish => &Elvish,
            Shell::Fish => &Fish,
            Shell::Powershell => &Powershell,
            Shell::Zsh => &Zsh,
        };
        let mut text = Vec::new();
        shell.write_registration(VARIABLE, "mw", "mw", "mw", &mut text)?;
        std::io::stdout().lock().write_all(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Answers a shell that asks for what may come next, and ends; does nothing if
/// none does.
pub fn answer_shell() {
    if std::env::var_os(VARIABLE).is_some() {
        clap_complete::CompleteEnv::with_factory(Arguments::command)
            .var(VARIABLE)
            .bin("mw")
            .complete();
    }
}

/// Print the manual page of `mw`, or write those of all commands into a directory.
#[derive(clap::Args)]
pub struct Man {
    /// Where to put mw.1, mw-record.1 and the others
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

impl Man {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let command = Arguments::command();
        match self.dir {
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(command).render(&mut page)?;
                std::io::stdout().lock().write_all(&page)?;
            }
            Some(dir) => {
                let failed = |error: std::io::Error| {
                    Failure::new(format!(
                        "cannot write manual pages to {}: {error}",
                        dir.display()
                    ))
                };
                std::fs::create_dir_all(&dir).map_err(failed)?;
                clap_mangen::generate_to(command, &dir).map_err(failed)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
