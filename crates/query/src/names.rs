//! What things are called, and how threads come by their names.
//!
//! People give names, and threads give themselves names; both are in the
//! recording or its index. After which functions the others are called only
//! replay can tell: that is asked for explicitly (see [`crate::source`]), and
//! is part of no opening.

use std::collections::{BTreeMap, HashMap, HashSet};

use causality::{EventId, History, Waiter};
use protocol::id::{ProcessId, ProcessIx, ProcessNo, ThreadNo};

/// What the threads of a recording are called.
pub use recording::ThreadNames as Names;

/// The functions that threads run, by process and thread.
pub type Functions = BTreeMap<(ProcessId, ThreadNo), String>;

/// The names that are known without replay: those that people gave, and those
/// that threads gave themselves.
pub fn own(history: &History) -> Names {
    after_functions(history, &Functions::new())
}

/// The names that people gave, those that threads gave themselves, and for the
/// others names after the functions that they run.
pub fn after_functions(history: &History, functions: &Functions) -> Names {
    let all = history.thread_names();
    Names::of_members(
        history
            .set()
            .members()
            .zip(0u16..)
            .map(|(recording, member)| {
                let own: Vec<(ProcessNo, ThreadNo, String)> = all
                    .iter()
                    .filter_map(|(process, thread, name)| {
                        let id = history.id_of(*process).filter(|id| id.member == member)?;
                        Some((id.number, *thread, name.clone()))
                    })
                    .collect();
                let taken: HashSet<(ProcessNo, String)> = own
                    .iter()
                    .map(|(process, _, name)| (*process, name.clone()))
                    .collect();
                let functions = functions.iter().filter(|((id, _), _)| id.member == member);
                let named = numbered(functions, &taken);
                Names::found(recording, own.into_iter().chain(named))
            }),
    )
}

/// Names after functions, numbered: `worker-3` is the fourth of its process
/// that runs `worker`.
fn numbered<'f>(
    functions: impl IntoIterator<Item = (&'f (ProcessId, ThreadNo), &'f String)>,
    taken: &HashSet<(ProcessNo, String)>,
) -> Vec<(ProcessNo, ThreadNo, String)> {
    let mut counts: HashMap<(ProcessNo, &str), u32> = HashMap::new();
    let mut names = Vec::new();
    for ((process, thread), function) in functions {
        let process = process.number;
        // The first thread is main-0.
        let first = u32::from(function == "main");
        let count = counts.entry((process, function)).or_insert(first);
        let mut name = format!("{function}-{count}");
        while taken.contains(&(process, name.clone())) {
            *count += 1;
            name = format!("{function}-{count}");
        }
        *count += 1;
        names.push((process, *thread, name));
    }
    names
}

/// The name of a process.
pub fn process(history: &History, process: ProcessIx) -> String {
    match history.process(process) {
        Some(_) => history.set().process_name(process),
        None => format!("process {process}"),
    }
}

/// The name of an event.
pub fn event(history: &History, event: EventId) -> String {
    format!("{}:{}", process(history, event.process), event.number)
}

/// Process and thread; the process alone, if that is its only thread.
pub fn thread(history: &History, names: &Names, thread: Waiter) -> String {
    match history.id_of(thread.process) {
        Some(own) if history.thread_count(thread.process) > 1 => {
            let name = names.of(own, thread.thread);
            format!("{}/{name}", process(history, thread.process))
        }
        _ => process(history, thread.process),
    }
}

/// The name of a channel.
pub fn channel(number: u32) -> String {
    format!("c{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_function_are_numbered_around_names_that_are_taken() {
        let id = |thread| (ProcessId::of_first(7), ThreadNo(thread));
        let functions = Functions::from([
            (id(1), "worker".to_string()),
            (id(2), "main".to_string()),
            (id(3), "worker".to_string()),
            (id(4), "worker".to_string()),
        ]);
        let taken = HashSet::from([
            (ProcessNo(7), "worker-1".to_string()),
            (ProcessNo(8), "worker-0".to_string()),
        ]);
        let names: Vec<String> = numbered(&functions, &taken)
            .into_iter()
            .map(|(_, _, name)| name)
            .collect();
        assert_eq!(names, ["worker-0", "main-1", "worker-2", "worker-3"]);
    }
}
