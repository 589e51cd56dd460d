//! The descriptors that processes begin with: those that their parents had where they
//! forked.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::id::{EventNo, ProcessNo};

use super::Descriptors;
use super::target::{held, inherited};
use crate::recording::Recording;

/// The descriptors that processes are born with.
pub struct Births<'r> {
    recording: &'r Recording,
    known: HashMap<ProcessNo, Descriptors>,
    children: HashMap<ProcessNo, Vec<(EventNo, ProcessNo)>>,
}

impl<'r> Births<'r> {
    /// Knows nothing yet: ancestors are followed when a descendant is asked
    /// for.
    pub fn new(recording: &'r Recording) -> Births<'r> {
        let mut children: HashMap<ProcessNo, Vec<(EventNo, ProcessNo)>> = HashMap::new();
        for process in recording.processes() {
            if let (Some(parent), Some(event)) = (process.parent, process.parent_event) {
                children
                    .entry(parent)
                    .or_default()
                    .push((event, process.number));
            }
        }
        for list in children.values_mut() {
            list.sort_unstable();
        }
        Births {
            recording,
            known: HashMap::new(),
            children,
        }
    }

    /// The descriptors that process `number` was born with.
    pub fn of(&mut self, number: ProcessNo) -> Descriptors {
        // Up to the first ancestor that is known or has no parent, then down.
        let mut line = vec![number];
        while let Some(last) = line.last().copied()
            && !self.known.contains_key(&last)
            && let Some(parent) = self.recording.process(last).and_then(|p| p.parent)
            && !line.contains(&parent)
        {
            line.push(parent);
        }
        if let Some(eldest) = line.last().copied() {
            let found = self.known.entry(eldest).or_insert_with(|| {
                let image = self
                    .recording
                    .process(eldest)
                    .and_then(|process| self.recording.images_of(process).next());
                let manifest = self.recording.manifest();
                let joined = manifest.observed.iter().flat_map(|own| &own.joined);
                let mut joined = joined.filter(|own| own.process == eldest);
                let table = match joined.next() {
                    Some(joined) => held(&joined.descriptors),
                    None => inherited(&manifest.descriptors),
                };
                Descriptors {
                    table: Arc::new(table),
                    cwd: Arc::new(image.map(|image| image.cwd.clone()).unwrap_or_default()),
                    ..Descriptors::default()
                }
            });
            if line.len() == 1 {
                return found.clone();
            }
        }
        line.pop();
        while let Some(next) = line.pop() {
            let parent = self
                .recording
                .process(next)
                .and_then(|process| process.parent);
            if let Some(parent) = parent
                && !self.known.contains_key(&next)
            {
                self.follow(parent);
            }
        }
        self.known.get(&number).cloned().unwrap_or_default()
    }

    /// Follows a process as far as its last child, noting what each child
    /// gets.
    fn follow(&mut self, parent: ProcessNo) {
        let mut now = self.known.get(&parent).cloned().unwrap_or_default();
        let children = self.children.get(&parent).map_or(&[][..], Vec::as_slice);
        let mut next = children.iter().peekable();
        let mut log = self.recording.log(parent);
        while next.peek().is_some() && log.advance() {
            let Some(event) = log.event() else { break };
            while let Some((_, child)) = next.next_if(|(at, _)| *at <= event.number) {
                self.known.insert(*child, now.clone());
            }
            now.before(&event);
            now.after(&event);
        }
        for (_, child) in next {
            self.known.insert(*child, now.clone());
        }
    }
}
