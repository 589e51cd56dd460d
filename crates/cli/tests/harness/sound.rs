//! What is true of every recording, whatever was recorded.

use std::collections::HashMap;

use super::event::Event;
use super::recorded::Recorded;

impl Recorded {
    /// The recording is whole, and what the commands say of it agrees.
    pub fn is_sound(&self) {
        let info = self.info();
        assert_eq!(info["complete"], true, "{info:#}");
        assert_eq!(info["state"], "complete");
        assert_eq!(info["problems"], serde_json::json!([]), "{info:#}");
        assert_eq!(info["exit"], self.outcome.code());
        for process in self.processes() {
            let name = process.name();
            assert!(process.status().is_some(), "nobody knows how {name} ended");
        }
        self.is_readable();
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
        for (key, event) in open {
            // Only what was never waited for may be left.
            let process = self.process(key.0);
            let ended = process.status().is_some();
            let alone = self.threads()[key.0] == 1;
            let dies = event.kind() == "exit" || process.signal().is_some();
            assert!(
                !(ended && alone) || dies || event.call().starts_with("exec"),
                "never returned: {}",
                event.json()
            );
        }
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
            // A parent that was killed in its fork does not know its child.
            let parent = process.parent().unwrap();
            let Some(event) = made.get(name) else {
                let parent = self.process(parent);
                assert!(
                    parent.signal().is_some() || parent.status().is_none(),
                    "{name} was made by no event"
                );
                continue;
            };
            assert_eq!(event.process(), parent);
            let by = event.started().unwrap_or(event.name());
            assert_eq!(process.parent_event(), Some(by), "{name}");
        }
    }
}
