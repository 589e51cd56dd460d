//! The `mw` command. One file per subcommand; this one only dispatches.

mod events;
mod failure;
mod info;
mod output;
mod ps;
mod record;
mod replay;
mod select;
mod suggest;
mod syscalls;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use failure::Failure;

/// Records distributed programs, replays them exactly, and shows what happened
/// before what.
#[derive(Parser)]
#[command(name = "mw", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Record(record::Cmd),
    Ps(ps::Cmd),
    Events(events::Cmd),
    Info(info::Cmd),
    Verify(verify::Cmd),
    Replay(replay::Cmd),
    Syscalls(syscalls::Cmd),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return Failure::usage(&error).report(),
    };
    let result = match arguments.command {
        Command::Record(cmd) => cmd.run(),
        Command::Ps(cmd) => cmd.run(),
        Command::Events(cmd) => cmd.run(),
        Command::Info(cmd) => cmd.run(),
        Command::Verify(cmd) => cmd.run(),
        Command::Replay(cmd) => cmd.run(),
        Command::Syscalls(cmd) => cmd.run(),
    };
    result.unwrap_or_else(Failure::report)
}
