//! The debugger's prompt: `mw replay`.

mod commands;
mod debugger;
pub mod stopped;

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use recording::Recording;

use crate::failure::Failure;
use commands::{COMMANDS, Next, Prompt};
use debugger::Debugger;

/// What is to be done without asking.
pub struct Script {
    pub files: Vec<PathBuf>,
    pub commands: Vec<String>,
    pub batch: bool,
}

/// Runs the scripts, then asks for commands until the user has enough.
pub fn run(recording: &Recording, script: &Script) -> Result<bool, Failure> {
    let history = crate::causes::open(recording)?;
    let debugger = Debugger::open(recording, history)?;
    let mut prompt = Prompt::new(debugger);
    let mut lines = Vec::new();
    for path in &script.files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        lines.extend(text.lines().map(str::to_string));
    }
    lines.extend(script.commands.iter().cloned());
    let mut good = true;
    for line in &lines {
        match prompt.execute(line) {
            Ok(Next::More) => {}
            Ok(Next::Quit) => return Ok(good),
            Err(failure) => {
                failure.show();
                good = false;
                if script.batch {
                    return Ok(false);
                }
            }
        }
    }
    if script.batch {
        return Ok(good);
    }
    if std::io::stdin().is_terminal() {
        ask(&mut prompt)?;
        return Ok(good);
    }
    for line in std::io::stdin().lock().lines() {
        match prompt.execute(&line?) {
            Ok(Next::More) => {}
            Ok(Next::Quit) => break,
            Err(failure) => {
                failure.show();
                good = false;
            }
        }
    }
    Ok(good)
}

/// Completes the names of commands and processes.
struct Words(Vec<String>);

impl rustyline::completion::Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or(line);
        let start = typed.rfind(' ').map_or(0, |space| space + 1);
        let word = typed.get(start..).unwrap_or("");
        let found = self.0.iter().filter(|w| w.starts_with(word)).cloned();
        Ok((start, found.collect()))
    }
}

impl rustyline::hint::Hinter for Words {
    type Hint = String;
}
impl rustyline::highlight::Highlighter for Words {}
impl rustyline::validate::Validator for Words {}
impl rustyline::Helper for Words {}

fn ask(prompt: &mut Prompt<'_>) -> Result<(), Failure> {
    let trouble =
        |error: rustyline::error::ReadlineError| Failure::new(format!("the terminal: {error}"));
    let mut editor: rustyline::Editor<Words, rustyline::history::DefaultHistory> =
        rustyline::Editor::new().map_err(trouble)?;
    let names = prompt.process_names().into_iter();
    let words = COMMANDS.iter().map(|c| c.name.to_string()).chain(names);
    editor.set_helper(Some(Words(words.collect())));
    let past = crate::select::home().map(|home| home.join("history"));
    if let Some(past) = &past {
        let _ = editor.load_history(past);
    }
    println!("{}", prompt.greeting());
    let mut last = String::new();
    loop {
        let line = match editor.readline("(mw) ") {
            Ok(line) => line,
            // A line that was given up.
            Err(rustyline::error::ReadlineError::Interrupted) => continue,
            Err(rustyline::error::ReadlineError::Eof) => break,
            Err(error) => return Err(trouble(error)),
        };
        let line = match line.trim() {
            "" => last.clone(),
            given => given.to_string(),
        };
        if line.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(&line);
        // As gdb: an empty line repeats the last command that moves or shows
        // more.
        last.clone_from(&line);
        match prompt.execute(&line) {
            Ok(Next::More) => {}
            Ok(Next::Quit) => break,
            Err(failure) => failure.show(),
        }
    }
    if let Some(past) = &past {
        let _ = editor.save_history(past);
    }
    Ok(())
}
