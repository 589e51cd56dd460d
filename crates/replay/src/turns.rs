//! Which processes share memory: those whose logs say that one had its turn
//! after the other, though they have memory of their own each.

use std::collections::{HashMap, HashSet};

use protocol::record::{Memory, begin, kind};

use crate::plan::Outline;
use crate::stream::Stream;

/// What the logs say of turns.
#[derive(Debug, Default)]
pub struct Turns {
    /// Domains in which processes with different memory have turns.
    pub domains: HashSet<u64>,
    /// The streams, by index, that have turns there.
    pub streams: HashSet<usize>,
}

impl Turns {
    pub fn of(streams: &[Outline]) -> Turns {
        let spaces = spaces(streams);
        let mut holders: HashMap<u64, HashSet<usize>> = HashMap::new();
        for (index, stream) in streams.iter().enumerate() {
            for domain in &stream.domains {
                holders.entry(*domain).or_default().insert(spaces[index]);
            }
        }
        // Domains may have been joined: a space that had turns in two joins
        // them.
        let mut groups: Vec<(HashSet<u64>, HashSet<usize>)> = Vec::new();
        for (domain, members) in holders {
            let mut all = (HashSet::from([domain]), members);
            groups.retain_mut(|(domains, spaces)| {
                let apart = spaces.is_disjoint(&all.1);
                if !apart {
                    all.0.extend(domains.drain());
                    all.1.extend(spaces.drain());
                }
                apart
            });
            groups.push(all);
        }
        let mut turns = Turns::default();
        for (domains, members) in groups.into_iter().filter(|(_, spaces)| spaces.len() > 1) {
            turns.domains.extend(domains);
            let streams = (0..streams.len()).filter(|i| members.contains(&spaces[*i]));
            turns.streams.extend(streams);
        }
        turns
    }
}

/// For each stream, the stream whose memory it runs in: its own, but for
/// vfork children.
fn spaces(streams: &[Outline]) -> Vec<usize> {
    (0..streams.len())
        .map(|index| {
            let mut at = index;
            for _ in 0..streams.len() {
                let Some(stream) = streams.get(at).filter(|s| s.how == begin::VFORK) else {
                    break;
                };
                match parent_of(streams, stream) {
                    Some(parent) => at = parent,
                    None => break,
                }
            }
            at
        })
        .collect()
}

/// The stream that has the event a stream was forked at.
pub fn parent_of(streams: &[Outline], stream: &Outline) -> Option<usize> {
    streams
        .iter()
        .enumerate()
        .filter(|(_, s)| s.process == stream.parent && s.first_event <= stream.parent_event)
        .max_by_key(|(_, s)| s.first_event)
        .map(|(index, _)| index)
}

/// The domains that a log has turns in.
pub fn domains_of(stream: &Stream) -> HashSet<u64> {
    let mut domains = HashSet::new();
    each_turn(stream, |[domain, ..]| {
        domains.insert(domain);
        true
    });
    domains
}

/// Whether a log has a turn that another process had before: what that wrote
/// matters then.
pub fn follows_others(stream: &Stream) -> bool {
    const NOBODY: u64 = u32::MAX as u64;
    let mut follows = false;
    each_turn(stream, |[_, _, before]| {
        follows = before != NOBODY;
        !follows
    });
    follows
}

/// Domain, sequence number and who had it before, of each turn, as long as
/// more are wanted.
fn each_turn(stream: &Stream, mut take: impl FnMut([u64; 3]) -> bool) {
    let mut memory = Memory::new();
    let mut marks = stream.marks.iter().peekable();
    let mut at = 0;
    while let Some(bytes) = stream.bytes.get(at..).filter(|bytes| !bytes.is_empty()) {
        if let Some(mark) = marks.next_if(|mark| mark[0] == at as u64) {
            memory.forget(mark[1]);
        }
        let Ok((record, used)) = memory.read(bytes) else {
            break;
        };
        let [domain, sequence, before, ..] = record.values;
        if record.kind == kind::TURN && !take([domain, sequence, before]) {
            break;
        }
        at += used;
    }
}
