//! What is replayed together: an image from its first instruction, and all
//! that was forked from it; and all that share memory with each other.
//!
//! Each image starts from what the recording says of it, not from what was
//! before, so these units are independent of each other. A unit's logs are
//! read when its turn comes, so that the cost is that of reading each log
//! once, and no more is in memory than is being replayed.

use std::collections::{BTreeMap, HashMap, HashSet};

use protocol::id::{EventNo, ImageNo, ProcessNo};
use protocol::record::begin;
use recording::{ImageStart, Recording};

use crate::Error;
use crate::group::image_start;
use crate::stream::{Stream, streams_of, streams_where};
use crate::turns::{Turns, domains_of};

/// A log without its bytes: the beginning of an image.
#[derive(Clone, Debug)]
pub struct Outline {
    pub process: ProcessNo,
    pub image: ImageNo,
    pub how: u64,
    pub parent: ProcessNo,
    pub parent_event: EventNo,
    pub first_event: EventNo,
    /// The first event behind it that is another image's.
    pub end_event: EventNo,
    /// How many bytes of log it has.
    pub len: u64,
    /// In which domains it has turns.
    pub domains: HashSet<u64>,
}

impl Outline {
    fn of(stream: &Stream) -> Outline {
        Outline {
            process: stream.process,
            image: stream.image,
            how: stream.how,
            parent: stream.parent,
            parent_event: stream.parent_event,
            first_event: stream.first_event,
            end_event: EventNo::MAX,
            len: stream.bytes.len() as u64,
            domains: domains_of(stream),
        }
    }

    fn is_start(&self) -> bool {
        matches!(self.how, begin::FIRST | begin::EXEC)
    }
}

/// Images and what they forked, by their places in [`Plan::outlines`].
pub struct Unit {
    pub members: Vec<usize>,
    /// Which of the members start from an image, by place among them.
    starts: Vec<usize>,
    /// Where processes with different memory have turns.
    pub domains: HashSet<u64>,
}

impl Unit {
    /// What its images start from, with their places among the members.
    pub fn starts(
        &self,
        recording: &Recording,
        plan: &Plan,
    ) -> Result<Vec<(usize, ImageStart)>, Error> {
        let outline = |place: usize| plan.outlines.get(*self.members.get(place)?);
        let starts = self.starts.iter().filter_map(|place| {
            let outline = outline(*place)?;
            let start = image_start(recording, outline.process, outline.image);
            Some(start.map(|start| (*place, start)))
        });
        starts.collect()
    }
}

/// All units of a recording.
pub struct Plan {
    pub outlines: Vec<Outline>,
    pub units: Vec<Unit>,
}

impl Plan {
    /// Of the whole recording, or of what leads to process `only`.
    pub fn new(recording: &Recording, only: Option<ProcessNo>) -> Plan {
        let mut outlines = Vec::new();
        for process in recording.processes() {
            let mut own: Vec<Outline> = streams_of(recording, process.number)
                .iter()
                .map(Outline::of)
                .collect();
            let ends: Vec<EventNo> = own.iter().skip(1).map(|next| next.first_event).collect();
            for (outline, end) in own.iter_mut().zip(ends) {
                outline.end_event = end;
            }
            outlines.append(&mut own);
        }
        let mut units = units(&outlines);
        if let Some(only) = only {
            units.retain(|unit| {
                let mut members = unit.members.iter().filter_map(|i| outlines.get(*i));
                members.any(|outline| outline.process == only)
            });
        }
        // The longest first: it is what the end has to wait for.
        let len = |unit: &Unit| -> u64 {
            let members = unit.members.iter().filter_map(|i| outlines.get(*i));
            members.map(|outline| outline.len).sum()
        };
        units.sort_by_key(|unit| std::cmp::Reverse(len(unit)));
        Plan { outlines, units }
    }

    /// Reads the logs of a unit, in the unit's order.
    pub fn load(&self, recording: &Recording, unit: &Unit) -> Vec<Stream> {
        let mut wanted: BTreeMap<ProcessNo, Vec<(ImageNo, usize)>> = BTreeMap::new();
        for (place, outline) in unit
            .members
            .iter()
            .enumerate()
            .filter_map(|(place, i)| Some((place, self.outlines.get(*i)?)))
        {
            let list = wanted.entry(outline.process).or_default();
            list.push((outline.image, place));
        }
        let mut loaded: BTreeMap<usize, Stream> = BTreeMap::new();
        for (process, images) in wanted {
            let is_wanted = |image| images.iter().any(|(wanted, _)| *wanted == image);
            for stream in streams_where(recording, process, is_wanted) {
                let place = images.iter().find(|(image, _)| *image == stream.image);
                if let Some((_, place)) = place {
                    loaded.insert(*place, stream);
                }
            }
        }
        loaded.into_values().collect()
    }
}

/// One unit for each image, but one for all that share memory.
fn units(outlines: &[Outline]) -> Vec<Unit> {
    let mut children: HashMap<ProcessNo, Vec<usize>> = HashMap::new();
    for (i, outline) in outlines.iter().enumerate() {
        if !outline.is_start() && outline.image == ImageNo(0) {
            children.entry(outline.parent).or_default().push(i);
        }
    }
    let turns = Turns::of(outlines);
    let mut together = Unit {
        members: Vec::new(),
        starts: Vec::new(),
        domains: turns.domains.clone(),
    };
    let mut units = Vec::new();
    let starts = (0..outlines.len()).filter(|i| outlines.get(*i).is_some_and(Outline::is_start));
    for start in starts {
        let members = closure(outlines, &children, start);
        if members.iter().any(|member| turns.streams.contains(member)) {
            together.starts.push(together.members.len());
            together.members.extend(members);
        } else {
            units.push(Unit {
                members,
                starts: vec![0],
                domains: HashSet::new(),
            });
        }
    }
    if !together.members.is_empty() {
        units.push(together);
    }
    units
}

/// The image at `start` and all that was forked from it, directly or not.
fn closure(
    outlines: &[Outline],
    children: &HashMap<ProcessNo, Vec<usize>>,
    start: usize,
) -> Vec<usize> {
    let mut members = vec![start];
    let mut at = 0;
    while let Some(outline) = members.get(at).and_then(|i| outlines.get(*i)) {
        let made = outline.first_event..outline.end_event;
        let of_it = children.get(&outline.process).into_iter().flatten();
        let of_it = of_it.filter(|i| {
            let child = outlines.get(**i);
            child.is_some_and(|child| made.contains(&child.parent_event))
        });
        // A damaged log may name its own descendant as its parent.
        let new: Vec<usize> = of_it.copied().filter(|i| !members.contains(i)).collect();
        members.extend(new);
        at += 1;
    }
    members
}
