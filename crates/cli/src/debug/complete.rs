//! What TAB offers: names of commands, processes, functions, variables and
//! topics, whichever can stand there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::commands::Prompt;
use super::table::{TOPICS, Takes, commands, find};
use super::worker::Worker;

/// So many are enough.
const OFFERED_MAX: usize = 200;

/// Looks words up where the debugger stands.
pub struct Words {
    pub worker: Worker,
    /// It is not busy.
    pub is_free: Arc<AtomicBool>,
}

impl rustyline::completion::Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or(line);
        if let Some(found) = of_commands(typed) {
            return Ok(found);
        }
        let found = match self.is_free.load(Relaxed) {
            true => self.worker.words(typed),
            false => None,
        };
        Ok(found.unwrap_or((at, Vec::new())))
    }
}

impl rustyline::hint::Hinter for Words {
    type Hint = String;
}
impl rustyline::highlight::Highlighter for Words {}
impl rustyline::validate::Validator for Words {}
impl rustyline::Helper for Words {}

impl Prompt {
    /// What the last word of a line may become, and where it begins.
    pub(super) fn complete(&mut self, typed: &str) -> (usize, Vec<String>) {
        if let Some(found) = of_commands(typed) {
            return found;
        }
        let (first, rest) = typed
            .trim_start()
            .split_once(char::is_whitespace)
            .unwrap_or_default();
        let first = first.split('/').next().unwrap_or(first);
        let takes = find(first).map_or(Takes::Nothing, |c| c.takes);
        // The word under the cursor: for expressions, the name in it.
        let is_part = |c: char| match takes {
            Takes::Variable => c.is_alphanumeric() || c == '_' || c == '$',
            _ => !c.is_whitespace(),
        };
        let word = rest.rsplit(|c| !is_part(c)).next().unwrap_or("");
        let start = typed.len() - word.len();
        let before = rest.get(..rest.len() - word.len()).unwrap_or("");
        let names_process = before.ends_with(" in ") || before.ends_with("process = ");
        let found = match takes {
            _ if names_process => begun(self.process_names(), word),
            Takes::Command if before.is_empty() => begun(command_names(), word),
            Takes::Process => begun(self.process_names(), word),
            Takes::Topic => begun(TOPICS.iter().map(|topic| topic.name.to_string()), word),
            Takes::Event => {
                let types = protocol::syscall::Type::ALL.iter().map(|t| t.name());
                let more = ["and", "or", "not", "process", "syscall", "start", "end"];
                let names = types.chain(more).map(str::to_string);
                begun(names.chain(self.process_names()), word)
            }
            Takes::Function => begun(self.functions(word), word),
            Takes::Variable => begun(self.variable_names(), word),
            Takes::Nothing | Takes::Command => Vec::new(),
        };
        (start, found)
    }

    /// Functions of the program whose names begin so.
    fn functions(&mut self, word: &str) -> Vec<String> {
        let found = self.debugger.look(|inspector, _, _| {
            let mut found = BTreeSet::new();
            let Some(main) = inspector.main_module() else {
                return found;
            };
            let names = main.module.symbols().all().iter().filter(|s| s.code);
            for symbol in names {
                let name = symbol.demangled();
                let name = name.split('(').next().unwrap_or(&name);
                if name.starts_with(word) {
                    found.insert(name.to_string());
                }
                // `Poster::set` of `bank::coordinator::Poster::set`.
                let short = name
                    .match_indices("::")
                    .filter_map(|(at, _)| name.get(at + 2..));
                found.extend(short.filter(|s| s.starts_with(word)).map(str::to_string));
                if found.len() > OFFERED_MAX {
                    break;
                }
            }
            found
        });
        found.unwrap_or_default().into_iter().collect()
    }

    /// Variables of the frame.
    fn variable_names(&mut self) -> Vec<String> {
        let names = self.debugger.in_frame(|_, scope| {
            let all = scope.locals().into_iter().chain(scope.arguments());
            Ok(all.map(|local| local.name.to_string()).collect())
        });
        names.unwrap_or_default()
    }
}

/// What the first word of a line may become, for which nobody needs to be asked. None: it is
/// not the first.
fn of_commands(typed: &str) -> Option<(usize, Vec<String>)> {
    let trimmed = typed.trim_start();
    let is_first = !trimmed.contains(char::is_whitespace);
    is_first.then(|| (typed.len() - trimmed.len(), begun(command_names(), trimmed)))
}

fn command_names() -> impl Iterator<Item = String> {
    commands().map(|c| c.name.to_string())
}

fn begun(names: impl IntoIterator<Item = String>, word: &str) -> Vec<String> {
    let found: BTreeSet<String> = names.into_iter().filter(|n| n.starts_with(word)).collect();
    found.into_iter().collect()
}
