//! What is true of every recording, whatever was recorded.

use std::collections::HashMap;

use super::event::Event;
use super::recorded::{Process, Recorded};

impl Recorded {
    /// The recording is whole, and what the commands say of it agrees.
    pub fn is_sound(&self) {
        let info = self.info();
        assert_eq!(info["complete"], true, "{info:#}");
        assert_eq!(info["state"], "complete");
        for problem in info["problems"].as_array().unwrap() {
            // Whoever is killed may be about to write something down.
            let (name, what) = problem
                .as_str()
                .unwrap()
                .split_once(": ")
                .unwrap_or_else(|| panic!("{problem}"));
            assert_eq!(what, "the log ends in the middle of a record");
            assert_eq!(self.process(name).signal(), Some("SIGKILL"), "{problem}");
        }
        assert_eq!(info["exit"], self.outcome.code());
        for process in self.processes() {
            assert!(
                process.status().is_some() || self.parent_died_waiting(process),
                "nobody knows how {} ended",
                process.name()
            );
        }
        self.is_readable();
    }

    /// Whether the parent was killed in a wait, perhaps after that had told it
    /// how the child ended.
    fn parent_died_waiting(&self, process: &Process) -> bool {
        let Some(parent) = process.parent().map(|name| self.process(name)) else {
            return false;
        };
        let last = self.all(|event| event.process() == parent.name()).last();
        let waits = last.is_some_and(|last| last.kind() == "wait" && last.phase() == "start");
        parent.signal() == Some("SIGKILL") && waits
    }

    /// The commands agree, on a recording that may have been cut short.
    pub fn is_readable(&self) {
        let info = self.info();
        assert_eq!(info["events"], self.events().len());
        assert_eq!(info["processes"], self.processes().len());
        let lines = self.ask(&["events"]).lines().count();
        assert_eq!(lines, self.events().len(), "a line for each event");
        // And the heading.
        let lines = self.ask(&["ps"]).lines().count();
        assert_eq!(lines, self.processes().len() + 1, "a line for each process");
        self.events_follow_each_other();
        self.calls_are_paired();
        self.processes_have_parents();
    }

    /// Events of a process are numbered without gaps, in order of time.
    fn events_follow_each_other(&self) {
        let mut last: HashMap<&str, &Event> = HashMap::new();
        let mut counts: HashMap<&str, u64> = HashMap::new();
        for event in self.events() {
            *counts.entry(event.process()).or_default() += 1;
            let Some(before) = last.insert(event.process(), event) else {
                assert_eq!(event.call(), "begin", "{}", event.json());
                continue;
            };
            assert_eq!(event.number(), before.number() + 1, "{}", event.json());
            assert!(event.time_ns() >= before.time_ns(), "{}", event.json());
        }
        for process in self.processes() {
            let count = counts.get(process.name()).copied().unwrap_or(0);
            assert_eq!(process.number("events"), count, "{}", process.name());
        }
    }

    /// A call that may block has two events. A thread is in one call at most.
    fn calls_are_paired(&self) {
        let mut open: HashMap<(&str, &str), &Event> = HashMap::new();
        for event in self.events() {
            let key = (event.process(), event.thread());
            match (event.phase(), event.call()) {
                ("start", _) => {
                    if let Some(other) = open.insert(key, event) {
                        panic!("{} inside of {}", event.json(), other.json());
                    }
                }
                ("end", _) => {
                    let start = open.remove(&key);
                    let start = start.unwrap_or_else(|| panic!("no start: {}", event.json()));
                    assert_eq!(event.started(), Some(start.name()), "{}", event.json());
                    assert_eq!(event.call(), start.call(), "{}", event.json());
                }
                ("call", _) => {
                    if let Some(other) = open.get(&key) {
                        panic!("{} inside of {}", event.json(), other.json());
                    }
                }
                // An exec that succeeds does not return: another image begins,
                // in the main thread, and the other threads are gone.
                (_, "begin") if event.word("how") == "exec" => {
                    let before = open.len();
                    open.retain(|(process, _), start| {
                        *process != event.process() || !start.call().starts_with("exec")
                    });
                    assert_eq!(before - open.len(), 1, "one exec: {}", event.json());
                    open.retain(|(process, _), _| *process != event.process());
                }
                _ => {}
            }
        }
        if self.info()["complete"] == true {
            for ((name, _), event) in open {
                self.may_stay_open(name, event);
            }
        }
    }

    /// Of a process with one thread, the last call may be without an end if it
    /// is the process's end. If there are more threads, one ends the others
    /// wherever they are.
    fn may_stay_open(&self, name: &str, event: &Event) {
        let process = self.process(name);
        let killed = process.signal().is_some() || process.status().is_none();
        let dies = event.kind() == "exit" || killed;
        let alone = self.threads()[name] == 1;
        assert!(dies || !alone, "never returned: {}", event.json());
    }

    /// Every process but the first was made by an event of another, which
    /// says so.
    fn processes_have_parents(&self) {
        let mut made: HashMap<&str, &Event> = HashMap::new();
        for event in self.events() {
            if let Some(child) = event.child() {
                let other = made.insert(child, event);
                assert!(other.is_none(), "{child} was made twice");
            }
        }
        for process in self.processes() {
            let name = process.name();
            if process.began() == "first" {
                assert_eq!(process.parent(), None);
                continue;
            }
            if process.began() == "unknown" {
                // It was killed before its first instruction.
                assert_eq!(process.number("events"), 0, "{name}");
                continue;
            }
            let parent = process.parent().unwrap();
            let Some(event) = made.get(name) else {
                // A parent that was killed in its fork does not know its child.
                // The fork is then without an end, or an event that never
                // came to be.
                let last = self.all(|event| event.process() == parent).last().unwrap();
                let unknown = format!("{parent}:{}", last.number() + 1);
                let by = process.parent_event().unwrap();
                assert!(
                    last.kind() == "fork" && by == last.name() || by == unknown,
                    "{name} was made by no event: {last:?}, {by}"
                );
                continue;
            };
            assert_eq!(event.process(), parent);
            let by = event.started().unwrap_or(event.name());
            assert_eq!(process.parent_event(), Some(by), "{name}");
        }
    }
}
