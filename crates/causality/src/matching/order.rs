//! In which order the operations on a stream were done.

use std::collections::HashMap;

use protocol::id::{EventNo, ProcessIx};
use recording::Set;

use super::stream::{self, Contents};
use crate::world::objects::Flow;
use crate::world::{World, calls};

/// Of a receive whose bytes are needed to tell its sends apart, so many are
/// kept.
const CONTENT_MAX: usize = 64 * 1024;

/// The order in which a channel's operations were done.
pub(super) struct Orders {
    pub sends: Vec<usize>,
    pub recvs: Vec<usize>,
}

/// In which order the operations on each stream were done: by time, and where
/// that does not tell, by what they carried.
pub(super) fn orders(set: &Set, world: &World<'_>) -> (Vec<Orders>, u64) {
    let mut orders = Vec::with_capacity(world.channels.len());
    let mut unsure = Vec::new();
    for (number, channel) in world.channels.iter().enumerate() {
        if channel.flow != Flow::Stream {
            orders.push(Orders {
                sends: Vec::new(),
                recvs: Vec::new(),
            });
            continue;
        }
        let (sends, sure_sends) = stream::in_order(&channel.sends);
        let (recvs, sure_recvs) = stream::in_order(&channel.recvs);
        let both = !sends.is_empty() && !recvs.is_empty();
        if both && !(sure_sends && sure_recvs) {
            unsure.push(number);
        }
        orders.push(Orders { sends, recvs });
    }
    if unsure.is_empty() {
        return (orders, 0);
    }
    let contents = contents(set, world, &unsure);
    let mut guesses = 0;
    for number in unsure {
        let (Some(channel), Some(order)) = (world.channels.get(number), orders.get_mut(number))
        else {
            continue;
        };
        let (sends, recvs, guessed) = stream::by_content(
            &channel.sends,
            &order.sends,
            &channel.recvs,
            &order.recvs,
            &contents,
        );
        guesses += guessed;
        *order = Orders { sends, recvs };
    }
    (orders, guesses)
}

/// Reads again what the operations on these channels carried.
fn contents(set: &Set, world: &World<'_>, channels: &[usize]) -> Contents {
    let mut wanted: HashMap<u32, HashMap<u32, bool>> = HashMap::new();
    for channel in channels.iter().filter_map(|c| world.channels.get(*c)) {
        for op in &channel.sends {
            wanted.entry(op.process).or_default().insert(op.first, true);
        }
        for op in &channel.recvs {
            wanted.entry(op.process).or_default().insert(op.last, false);
        }
    }
    let mut contents = Contents::new();
    for (place, events) in wanted {
        let Some(first) = events.keys().min() else {
            continue;
        };
        let Some(mut log) = set.log_near(ProcessIx(place), EventNo(u64::from(*first))) else {
            continue;
        };
        let mut left = events.len();
        while left > 0 && log.advance() {
            let Some((_, _, EventNo(number), _)) = log.glance() else {
                break;
            };
            let Ok(number) = u32::try_from(number) else {
                break;
            };
            if !events.contains_key(&number) {
                continue;
            }
            left -= 1;
            // Both kinds of vectors and messages are argument 1 as well.
            let Some(event) = log.event() else { break };
            if let Some(data) = event.argument(1) {
                let kept = data.bytes.get(..CONTENT_MAX).unwrap_or(data.bytes);
                // The digest of a vector is of its pieces, which nobody knows.
                let whole = matches!(event.nr, calls::nr::WRITE | calls::nr::SENDTO);
                let content = stream::Content {
                    bytes: kept.to_vec(),
                    digest: data.digest.filter(|_| whole),
                };
                contents.insert((place, number), content);
            }
        }
    }
    contents
}
