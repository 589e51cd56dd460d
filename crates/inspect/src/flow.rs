//! How control flows through a function's code, as far as the code itself
//! says.

use std::collections::{HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::dwarf::blocks::Function;
use crate::inspector::{Inspector, Loaded};
use crate::target::read_exact;

/// A function of more code is not looked through.
const LARGEST: u64 = 1 << 22;

/// The instructions of a function and where each goes on, in link-time
/// addresses.
pub(crate) struct ControlFlow {
    next: HashMap<u64, [Option<u64>; 2]>,
    entry: u64,
    /// Whether a jump leads where only a register or a table knows.
    computed: bool,
}

impl ControlFlow {
    /// Decodes a function.
    pub fn of(inspector: &Inspector<'_>, module: &Loaded, function: &Function) -> Option<Self> {
        let size: u64 = function.ranges.iter().map(|(s, e)| e - s).sum();
        if size > LARGEST {
            return None;
        }
        let mut flow = Self {
            next: HashMap::new(),
            entry: function.entry,
            computed: false,
        };
        for &(start, end) in &function.ranges {
            let mut code = vec![0; usize::try_from(end - start).ok()?];
            read_exact(inspector.process, module.to_process(start), &mut code).ok()?;
            for instruction in &mut Decoder::with_ip(64, &code, start, DecoderOptions::NONE) {
                let behind = instruction.next_ip();
                let target = match instruction.op0_kind() {
                    OpKind::NearBranch64 => Some(instruction.near_branch_target()),
                    _ => None,
                };
                let next = match instruction.flow_control() {
                    FlowControl::UnconditionalBranch => [target, None],
                    FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                        [Some(behind), target]
                    }
                    FlowControl::IndirectBranch => {
                        flow.computed = true;
                        [None, None]
                    }
                    FlowControl::Return | FlowControl::Exception => [None, None],
                    _ => [Some(behind), None],
                };
                flow.next.insert(instruction.ip(), next);
            }
        }
        Some(flow)
    }

    /// What is reached from the function's entry without passing an address.
    fn reached(&self, without: Option<u64>) -> HashSet<u64> {
        let mut seen = HashSet::new();
        let mut waiting = vec![self.entry];
        while let Some(at) = waiting.pop() {
            if Some(at) == without || !self.next.contains_key(&at) || !seen.insert(at) {
                continue;
            }
            waiting.extend(self.next.get(&at).into_iter().flatten().flatten());
        }
        seen
    }

    /// The addresses at which a part of the function is entered from the rest
    /// of it. Where instructions of the rest are between those of the part, it
    /// is entered once.
    pub fn entries(&self, part: &[(u64, u64)]) -> Vec<u64> {
        let inside = |address: u64| part.iter().any(|&(s, e)| s <= address && address < e);
        // Padding that is jumped over leads nowhere.
        let reached = (!self.computed).then(|| self.reached(None));
        let is_reached = |at: &u64| reached.as_ref().is_none_or(|seen| seen.contains(at));
        let mut entries: Vec<u64> = self
            .next
            .iter()
            .filter(|(at, _)| !inside(**at) && is_reached(at))
            .flat_map(|(_, next)| next.iter().flatten().copied())
            .filter(|to| inside(*to) && self.next.contains_key(to))
            .collect();
        if inside(self.entry) {
            entries.push(self.entry);
        }
        entries.sort_unstable();
        entries.dedup();
        if self.computed || entries.len() > 16 {
            entries.truncate(1);
            return entries;
        }
        // One through which every way to another leads is the entry.
        let behind: Vec<HashSet<u64>> = entries.iter().map(|e| self.reached(Some(*e))).collect();
        let dominated = |entry: u64| {
            let others = entries.iter().zip(&behind);
            let mut others = others.filter(|(other, _)| **other != entry);
            others.any(|(_, without)| !without.contains(&entry))
        };
        entries.iter().copied().filter(|e| !dominated(*e)).collect()
    }
}
