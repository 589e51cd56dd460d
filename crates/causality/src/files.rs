//! Which descriptors lead to files, and when: so that the type of any event is
//! known without following its process from its beginning (reading a file is
//! not receiving).

use std::collections::{BTreeMap, HashMap};

use protocol::id::EventNo;
use recording::descriptors::{Births, Descriptor, Descriptors, may_change};
use recording::{Log, Recording};

/// A descriptor led to a file, as events from `from` up to `to` see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileSpan {
    pub process: u32,
    pub fd: i32,
    pub from: u32,
    pub to: u32,
}

/// A process, where its log has been read to.
struct Followed {
    now: Descriptors,
    /// Since when a descriptor leads to a file.
    open: BTreeMap<i32, u32>,
}

/// Follows the descriptors of all processes while their logs are read.
pub(crate) struct Files<'r> {
    recording: &'r Recording,
    /// By place of the parent: the events at which children were made, in
    /// order, and their places.
    children: Vec<Vec<(u64, u32)>>,
    /// What children were born with whose parents have got there.
    born: HashMap<u32, Descriptors>,
    /// What others were.
    births: Births<'r>,
    followed: Vec<Option<Followed>>,
    spans: Vec<FileSpan>,
}

impl<'r> Files<'r> {
    pub fn new(recording: &'r Recording) -> Files<'r> {
        let processes = recording.processes();
        let mut children: Vec<Vec<(u64, u32)>> = vec![Vec::new(); processes.len()];
        for (child, place) in processes.iter().zip(0u32..) {
            let parent = child.parent.and_then(|parent| recording.index_of(parent));
            let list = parent.and_then(|parent| children.get_mut(parent as usize));
            if let (Some(list), Some(event)) = (list, child.parent_event) {
                list.push((event.0, place));
            }
        }
        // The earliest last, to be taken from there.
        for list in &mut children {
            list.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut followed = Vec::new();
        followed.resize_with(processes.len(), || None);
        Files {
            recording,
            children,
            born: HashMap::new(),
            births: Births::new(recording),
            followed,
            spans: Vec::new(),
        }
    }

    /// Takes in the event that the log of a process stands at. Each must be
    /// shown, in order.
    pub fn pass(&mut self, place: u32, log: &Log<'_>) {
        let Some((_, _, EventNo(number), _)) = log.glance() else {
            return;
        };
        let next = self
            .children
            .get(place as usize)
            .and_then(|list| list.last());
        if next.is_some_and(|(at, _)| *at <= number) {
            self.forked(place, number);
        }
        if !may_change(log) {
            return;
        }
        let Some(event) = log.event() else { return };
        let at = u32::try_from(number).unwrap_or(u32::MAX);
        let Some(followed) = self.follow(place) else {
            return;
        };
        followed.now.before(&event);
        let mut ended = followed.note(at);
        followed.now.after(&event);
        ended.extend(followed.note(at.saturating_add(1)));
        self.end(place, ended);
    }

    /// The log of a process is at its end; said once.
    pub fn ended(&mut self, place: u32) {
        self.forked(place, u64::MAX);
        if let Some(followed) = self.follow(place) {
            let open = std::mem::take(&mut followed.open);
            let ended = open.into_iter().map(|(fd, from)| (fd, from, u32::MAX));
            let ended = ended.collect();
            self.end(place, ended);
        }
        if let Some(followed) = self.followed.get_mut(place as usize) {
            *followed = None;
        }
    }

    /// What was found, by process, descriptor and event, once every log has
    /// ended.
    pub fn finish(mut self) -> Vec<FileSpan> {
        self.spans.sort_unstable();
        self.spans
    }

    fn end(&mut self, place: u32, ended: Vec<(i32, u32, u32)>) {
        let spans = ended.into_iter().map(|(fd, from, to)| FileSpan {
            process: place,
            fd,
            from,
            to,
        });
        self.spans.extend(spans.filter(|span| span.from < span.to));
    }

    /// Children that were made up to an event get what their parent has before
    /// it.
    fn forked(&mut self, place: u32, number: u64) {
        loop {
            let list = self.children.get_mut(place as usize);
            let next = list.and_then(|list| list.pop_if(|(at, _)| *at <= number));
            let Some((_, child)) = next else { return };
            if let Some(followed) = self.follow(place) {
                let now = followed.now.clone();
                self.born.insert(child, now);
            }
        }
    }

    fn follow(&mut self, place: u32) -> Option<&mut Followed> {
        let slot = self.followed.get_mut(place as usize)?;
        if slot.is_none() {
            let number = self.recording.processes().get(place as usize)?.number;
            let births = &mut self.births;
            let now = self.born.remove(&place);
            let mut now = now.unwrap_or_else(|| births.of(number));
            now.changed();
            let files = now.all().filter(|(_, descriptor)| descriptor.is_file());
            let open = files.map(|(fd, _)| (fd, 0)).collect();
            *slot = Some(Followed { now, open });
        }
        slot.as_mut()
    }
}

impl Followed {
    /// Notes what begins to lead to a file at an event. Returns what led to one
    /// up to there: since when.
    fn note(&mut self, at: u32) -> Vec<(i32, u32, u32)> {
        let mut ended = Vec::new();
        let is_file = |now: &Descriptors, fd: i32| now.get(fd).is_some_and(Descriptor::is_file);
        let Some(changed) = self.now.changed() else {
            let open = std::mem::take(&mut self.open);
            for (fd, descriptor) in self.now.all() {
                if descriptor.is_file() {
                    self.open.insert(fd, open.get(&fd).copied().unwrap_or(at));
                }
            }
            let gone = open
                .into_iter()
                .filter(|(fd, _)| !self.open.contains_key(fd));
            ended.extend(gone.map(|(fd, from)| (fd, from, at)));
            return ended;
        };
        for fd in changed {
            if is_file(&self.now, fd) {
                self.open.entry(fd).or_insert(at);
            } else if let Some(from) = self.open.remove(&fd) {
                ended.push((fd, from, at));
            }
        }
        ended
    }
}
