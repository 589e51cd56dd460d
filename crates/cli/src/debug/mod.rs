//! The debugger's prompt: `mw replay`, `mw attach`, `mw run`.

mod alive;
mod commands;
mod complete;
mod conditions;
mod copied;
mod debugger;
mod growing;
mod halting;
mod held;
mod info;
mod limits;
mod look;
mod moves;
mod observed;
mod past;
mod screen;
mod stops;
mod table;

use std::cell::RefCell;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

use ::replay::{Interrupts, Replayer};
use ::session::Program;
use causality::History;
use query::Names;
use recording::Set;

use crate::failure::Failure;
use commands::{Next, Prompt};
use complete::Words;
pub use conditions::failure as condition_failure;
pub use copied::{Recorded, copied, forget_copies};
use debugger::Debugger;
pub use table::{SECTIONS, page};

/// What is to be done without asking.
pub struct Script {
    pub files: Vec<PathBuf>,
    pub commands: Vec<String>,
    pub batch: bool,
}

/// The status of who was ended by Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// A recorded program to be debugged.
pub fn program(history: History, names: Names) -> Result<Arc<Program>, Failure> {
    for recording in history.set().members() {
        ::replay::check(recording).map_err(crate::verify::explain)?;
    }
    let replayer = Replayer::new(history.set());
    Ok(Program::new(history, names, Arc::new(replayer)))
}

/// A program that was observed: what happened can be asked for, and nobody can be led there.
fn observed_program(history: History, names: Names) -> Arc<Program> {
    let replayer = Replayer::new(history.set());
    Program::new(history, names, Arc::new(replayer))
}

impl From<::session::Error> for Failure {
    fn from(error: ::session::Error) -> Failure {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Runs the scripts, then asks for commands until the user has enough.
pub fn run(set: &Arc<Set>, script: &Script) -> Result<bool, Failure> {
    let history = crate::causes::open(set)?;
    let names = crate::causes::names(&history);
    run_program(&program(history, names)?, script, false, None)
}

/// Debugs a program that is alive, by a script or at the prompt; at the end its
/// processes are ended, if that is wanted.
pub fn run_living(
    program: &Arc<Program>,
    script: &Script,
    ends: bool,
    living: Living,
) -> Result<bool, Failure> {
    run_program(program, script, ends, Some(living))
}

/// What belongs to a program that is alive.
pub struct Living {
    /// Who asks its agents, one on each of its hosts.
    pub agents: Vec<live::Agent>,
    /// What it is recorded in.
    pub recorded: Recorded,
    /// Where that can be read here.
    pub recording: Option<PathBuf>,
    /// Where what it does is written down for conditions, if it is not recorded and has any.
    pub observed: Option<PathBuf>,
    /// What is written down on other hosts, or recorded there, as it comes here.
    pub followed: Vec<Box<dyn live::Followed>>,
}

/// Debugs a program that was opened, by a script or at the prompt; at the end its
/// processes are ended, if that is wanted.
fn run_program(
    program: &Arc<Program>,
    script: &Script,
    ends: bool,
    living: Option<Living>,
) -> Result<bool, Failure> {
    // From here on Ctrl-C stops what moves, not the debugger.
    let interrupts = Interrupts::catch_ctrl_c();
    let debugger = Debugger::open(program)?;
    let mut prompt = Prompt::new(debugger, interrupts);
    if program.is_alive() {
        prompt.mismatched()?;
    }
    prompt.living = living;
    let done = converse(&mut prompt, script);
    prompt.leave_past();
    prompt.observe_no_more();
    if ends {
        prompt.end_all()?;
    }
    done
}

fn converse(prompt: &mut Prompt, script: &Script) -> Result<bool, Failure> {
    let mut lines = Vec::new();
    for path in &script.files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        lines.extend(text.lines().map(str::to_string));
    }
    lines.extend(script.commands.iter().cloned());
    let mut good = true;
    for line in &lines {
        match obey(prompt, line, script.batch)? {
            Done::More(well) => good &= well,
            Done::Quit => return Ok(good),
        }
        if !good && script.batch {
            return Ok(false);
        }
    }
    if script.batch {
        return Ok(good);
    }
    if std::io::stdin().is_terminal() {
        ask(prompt)?;
        return Ok(good);
    }
    for line in std::io::stdin().lock().lines() {
        match obey(prompt, &line?, true)? {
            Done::More(well) => good &= well,
            Done::Quit => break,
        }
    }
    Ok(good)
}

/// What came of a line: whether it went well.
enum Done {
    More(bool),
    Quit,
}

/// Runs a line of a script. Ctrl-C ends it, if nobody is there to be asked
/// what now.
fn obey(prompt: &mut Prompt, line: &str, alone: bool) -> Result<Done, Failure> {
    let done = match prompt.execute(line) {
        Ok(Next::More) => Done::More(true),
        Ok(Next::Quit) => Done::Quit,
        Err(failure) => {
            failure.show();
            Done::More(false)
        }
    };
    if alone && prompt.debugger.cancel.is_cancelled() {
        return Err(Failure::new("interrupted").status(INTERRUPTED));
    }
    Ok(done)
}

fn ask(prompt: &mut Prompt) -> Result<(), Failure> {
    let trouble =
        |error: rustyline::error::ReadlineError| Failure::new(format!("the terminal: {error}"));
    let prompt = RefCell::new(prompt);
    let config = rustyline::Config::builder()
        .completion_type(rustyline::CompletionType::List)
        .history_ignore_dups(true)
        .map_err(trouble)?
        .build();
    let mut editor: rustyline::Editor<Words<'_>, rustyline::history::DefaultHistory> =
        rustyline::Editor::with_config(config).map_err(trouble)?;
    editor.set_helper(Some(Words(&prompt)));
    let past = crate::select::home().map(|home| home.join("history"));
    if let Some(past) = &past {
        let _ = editor.load_history(past);
    }
    let greeting = prompt.borrow().greeting();
    screen::say!("{greeting}")?;
    let mut last = String::new();
    loop {
        let waits_for = prompt.borrow().prompt();
        let line = match editor.readline(waits_for) {
            Ok(line) => line,
            // A line that was given up.
            Err(rustyline::error::ReadlineError::Interrupted) => continue,
            Err(rustyline::error::ReadlineError::Eof) => break,
            Err(error) => return Err(trouble(error)),
        };
        // As gdb: an empty line repeats the last command.
        let line = match line.trim() {
            "" => last.clone(),
            given => given.to_string(),
        };
        if line.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(&line);
        last.clone_from(&line);
        let next = prompt.borrow_mut().execute(&line);
        match next {
            Ok(Next::More) => {}
            Ok(Next::Quit) => break,
            Err(failure) => failure.show(),
        }
    }
    if let Some(past) = &past {
        if let Some(directory) = past.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let _ = editor.save_history(past);
    }
    Ok(())
}
