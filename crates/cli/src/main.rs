//! The `mw` command. One file per subcommand; this one only dispatches.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod agent_command;
mod attach;
mod attach_on;
mod blocked;
mod blocked_now;
mod causes;
mod channels;
mod check;
mod commands;
mod completions;
mod cut;
mod debug;
mod events;
mod export;
mod failure;
mod find;
mod gdb;
mod higher;
mod hosts_command;
mod info;
mod join;
mod list;
mod logging;
mod order;
mod output;
mod ps;
mod pull;
mod record;
mod record_on;
mod remove;
mod rename;
mod replay;
mod select;
mod source;
mod syscalls;
mod verify;
mod why;

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
    Why(why::Cmd),
    Effects(why::Effects),
    Order(order::Cmd),
    Cut(cut::Cmd),
    Blocked(blocked::Cmd),
    Channels(channels::Cmd),
    Check(check::Cmd),
    Find(find::Cmd),
    Export(export::Cmd),
    Rename(rename::Cmd),
    Verify(verify::Cmd),
    Replay(replay::Cmd),
    Run(attach::Run),
    Attach(attach::Attach),
    Gdb(gdb::Cmd),
    ServeGdb(gdb::Serve),
    List(list::Cmd),
    Rm(remove::Rm),
    Prune(remove::Prune),
    Syscalls(syscalls::Cmd),
    Commands(commands::Cmd),
    Pull(pull::Cmd),
    Join(join::Cmd),
    Hosts(hosts_command::Cmd),
    #[command(hide = true)]
    Agent(agent_command::Cmd),
    #[command(hide = true)]
    Warden(attach::Warden),
    #[command(hide = true)]
    BeginAlive(attach::Begin),
    #[command(hide = true)]
    GovernAlive(attach::Govern),
    #[command(hide = true)]
    GovernRunning(attach::GovernRunning),
    Completions(completions::Completions),
    Man(completions::Man),
}

/// The command line of `mw record`, without the other subcommands. To describe all of them takes a
/// while, and who records waits for it.
#[derive(Parser)]
#[command(name = "mw", version, max_term_width = 100)]
struct Recording {
    #[command(subcommand)]
    command: RecordingCommand,
}

#[derive(clap::Subcommand)]
enum RecordingCommand {
    Record(record::Cmd),
}

fn parse() -> Result<Arguments, clap::Error> {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "record")
    {
        let RecordingCommand::Record(cmd) = Recording::try_parse()?.command;
        let command = Command::Record(cmd);
        return Ok(Arguments { command });
    }
    Arguments::try_parse()
}

fn main() -> ExitCode {
    completions::answer_shell();
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => return Failure::usage(&error).report(),
    };
    if let Err(failure) = logging::listen() {
        return failure.report();
    }
    let result = match arguments.command {
        Command::Record(cmd) => cmd.run(),
        Command::Ps(cmd) => cmd.run(),
        Command::Events(cmd) => cmd.run(),
        Command::Info(cmd) => cmd.run(),
        Command::Why(cmd) => cmd.run(),
        Command::Effects(cmd) => cmd.run(),
        Command::Order(cmd) => cmd.run(),
        Command::Cut(cmd) => cmd.run(),
        Command::Blocked(cmd) => cmd.run(),
        Command::Channels(cmd) => cmd.run(),
        Command::Check(cmd) => cmd.run(),
        Command::Find(cmd) => cmd.run(),
        Command::Export(cmd) => cmd.run(),
        Command::Rename(cmd) => cmd.run(),
        Command::Verify(cmd) => cmd.run(),
        Command::Replay(cmd) => cmd.run(),
        Command::Run(cmd) => cmd.run(),
        Command::Attach(cmd) => cmd.run(),
        Command::Warden(cmd) => cmd.run(),
        Command::BeginAlive(cmd) => cmd.run(),
        Command::GovernAlive(cmd) => cmd.run(),
        Command::GovernRunning(cmd) => cmd.run(),
        Command::Gdb(cmd) => cmd.run(),
        Command::ServeGdb(cmd) => cmd.run(),
        Command::List(cmd) => cmd.run(),
        Command::Rm(cmd) => cmd.run(),
        Command::Prune(cmd) => cmd.run(),
        Command::Syscalls(cmd) => cmd.run(),
        Command::Commands(cmd) => cmd.run(),
        Command::Pull(cmd) => cmd.run(),
        Command::Join(cmd) => cmd.run(),
        Command::Hosts(cmd) => cmd.run(),
        Command::Agent(cmd) => cmd.run(),
        Command::Completions(cmd) => cmd.run(),
        Command::Man(cmd) => cmd.run(),
    };
    result.unwrap_or_else(Failure::report)
}
