//! `mw commands`: the commands of the prompt, without a recording at hand, and the
//! source of docs/commands.md.

use std::process::ExitCode;

use crate::debug::{SECTIONS, page};
use crate::failure::Failure;
use crate::output::Output;

/// List the commands that the prompt of `mw replay` understands.
#[derive(clap::Args)]
pub struct Cmd {
    /// As the page docs/commands.md
    #[arg(long)]
    markdown: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut out = Output::new();
        if self.markdown {
            for line in page() {
                out.line(&line)?;
            }
        } else {
            for command in SECTIONS.iter().flat_map(|section| section.commands) {
                out.line(&format!("{:<48} {}", command.usage(), command.summary))?;
            }
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}
