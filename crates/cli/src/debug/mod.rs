//! The debugger's prompt: `mw replay`, `mw attach`, `mw run`.

mod alive;
mod commands;
mod complete;
mod conditions;
mod console;
mod copied;
mod debugger;
mod growing;
mod halting;
mod held;
mod info;
mod job;
mod limits;
mod look;
mod meanwhile;
mod moves;
mod observed;
mod past;
mod screen;
mod stops;
mod table;
mod voice;
mod worker;

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

use ::replay::{Interrupts, Replayer};
use ::session::Program;
use causality::History;
use query::Names;
use recording::Set;

use crate::failure::Failure;
use commands::Prompt;
use complete::Words;
pub use conditions::failure as condition_failure;
use console::Console;
pub use copied::{Recorded, copied, forget_copies};
use debugger::Debugger;
pub use look::does;
pub use table::{SECTIONS, page};
use voice::Above;
use worker::{Heard, Worker};

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
    let mut prompt = Prompt::new(debugger);
    if program.is_alive() {
        prompt.mismatched()?;
    }
    prompt.living = living;
    let done = serve(&mut prompt, &interrupts, script);
    prompt.leave_past();
    prompt.observe_no_more();
    if ends {
        prompt.end_all()?;
    }
    done
}

/// Has a prompt do what is typed, or what a script says. Who takes the lines is another
/// thread: processes stay on the one that moves them.
fn serve(prompt: &mut Prompt, interrupts: &Interrupts, script: &Script) -> Result<bool, Failure> {
    let (mover, asked) = Worker::new();
    let (hears, heard) = channel();
    let told = hears.clone();
    interrupts.tell(move || drop(told.send(Heard::Interrupted)));
    let greeting = prompt.greeting();
    let limit = Arc::clone(&prompt.limit);
    std::thread::scope(|scope| {
        let its = (hears.clone(), heard);
        let talk = move || {
            let mut console = Console::new(mover, its, limit);
            let done = converse(&mut console, script, &greeting);
            if !console.leave() {
                // It is left as it is, and ends with this process.
                Failure::new("what was under way does not stop: it is left behind").show();
                std::process::exit(i32::from(crate::failure::TROUBLE));
            }
            done
        };
        let console = std::thread::Builder::new()
            .name("console".to_string())
            .spawn_scoped(scope, talk)
            .map_err(|error| {
                Failure::new(format!("cannot start a thread for the prompt: {error}"))
                    .hint("`ulimit -u` says how many processes and threads this user may have")
            })?;
        worker::work(prompt, &asked, &hears);
        match console.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn converse(console: &mut Console, script: &Script, greeting: &str) -> Result<bool, Failure> {
    let mut lines = Vec::new();
    for path in &script.files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        lines.extend(text.lines().map(str::to_string));
    }
    lines.extend(script.commands.iter().cloned());
    for line in &lines {
        obey(console, line, script.batch)?;
        if console.quits() || !console.is_good() && script.batch {
            return Ok(console.is_good());
        }
    }
    if script.batch {
        return Ok(console.is_good());
    }
    if std::io::stdin().is_terminal() {
        let good = console.is_good();
        ask(console, greeting)?;
        return Ok(good);
    }
    for line in std::io::stdin().lock().lines() {
        obey(console, &line?, true)?;
        if console.quits() {
            break;
        }
    }
    Ok(console.is_good())
}

/// Runs a line of a script. Ctrl-C ends it, if nobody is there to be asked
/// what now.
fn obey(console: &mut Console, line: &str, alone: bool) -> Result<(), Failure> {
    let done = console.execute(line);
    if alone && done.is_interrupted {
        return Err(Failure::new("interrupted").status(INTERRUPTED));
    }
    Ok(())
}

fn ask(console: &mut Console, greeting: &str) -> Result<(), Failure> {
    let trouble =
        |error: rustyline::error::ReadlineError| Failure::new(format!("the terminal: {error}"));
    let config = rustyline::Config::builder()
        .completion_type(rustyline::CompletionType::List)
        .history_ignore_dups(true)
        .map_err(trouble)?
        .build();
    let mut editor: rustyline::Editor<Words, rustyline::history::DefaultHistory> =
        rustyline::Editor::with_config(config).map_err(trouble)?;
    let is_free = Arc::new(AtomicBool::new(true));
    editor.set_helper(Some(Words {
        worker: console.mover().clone(),
        is_free: Arc::clone(&is_free),
    }));
    console.is_typed();
    let past = crate::select::home().map(|home| home.join("history"));
    if let Some(past) = &past {
        let _ = editor.load_history(past);
    }
    screen::say!("{greeting}")?;
    let mut last = String::new();
    let mut is_above = false;
    while !console.quits() {
        is_free.store(console.is_free(), Relaxed);
        let printer = match console.has_jobs() {
            // (A terminal that can do nothing shows lines wherever they come.)
            true => editor.create_external_printer().ok(),
            false => None,
        };
        // What is typed before the editor has the terminal is the terminal's own to make sense
        // of (Ctrl-C, Ctrl-D): it is given to the editor at once where nothing has changed.
        if printer.is_some() || is_above {
            is_above = printer.is_some();
            let printer = printer.map(|printer| Box::new(printer) as Above);
            console.voice().speak_above(printer);
        }
        let line = match editor.readline(console.prompt()) {
            Ok(line) => line,
            // A line that was given up; and whatever moves is to stop.
            Err(rustyline::error::ReadlineError::Interrupted) => {
                console.panic();
                continue;
            }
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
        console.execute(&line);
    }
    if let Some(past) = &past {
        if let Some(directory) = past.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let _ = editor.save_history(past);
    }
    Ok(())
}
