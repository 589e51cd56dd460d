//! Connections whose addresses were translated on their way (NAT, the address
//! of a service): the two ends do not have the same addresses, so what was sent
//! and received has to tell which belong together.
//!
//! Looked at are only halves that no address found another half for. Two of
//! them fit if what either end received is what the other sent, as far as both
//! are known. Where that leaves a choice, or there was too little to compare,
//! what is chosen is a guess, and counted and named as one.

use std::collections::HashMap;

use protocol::id::{EventNo, ProcessIx};

use super::World;
use super::across::Apart;
use super::objects::Op;

/// How much of each direction is compared.
const COMPARED: usize = 256;

/// So much being the same is no accident.
const TELLING: usize = 24;

/// With more halves than this there is nothing to be found by comparing all.
const MOST: usize = 1024;

/// The first bytes of both directions, as one end has them.
#[derive(Default)]
struct Beginning {
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// How many bytes two ends have in common; nothing if they contradict each other.
fn agree(sent: &[u8], received: &[u8]) -> Option<usize> {
    let common = sent.len().min(received.len());
    let same = sent.get(..common) == received.get(..common);
    // Nobody receives what was not sent.
    (same && (received.is_empty() || common > 0)).then_some(common)
}

impl World<'_> {
    /// Pairs halves by what went through them.
    pub(super) fn pair_by_contents(&mut self, apart: Vec<Apart>) -> Vec<(Apart, Apart)> {
        let (connects, accepts): (Vec<Apart>, Vec<Apart>) =
            apart.into_iter().partition(|half| half.connects);
        if connects.len() > MOST || accepts.len() > MOST {
            return Vec::new();
        }
        let read = |halves: &[Apart], out: usize| -> Vec<Beginning> {
            halves
                .iter()
                .map(|half| self.beginning(half, out))
                .collect()
        };
        // What a connect sends goes by the first of a connection's channels.
        let (asked, answered) = (read(&connects, 0), read(&accepts, 1));
        let mut fitting: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
        for (c, (connect, own)) in connects.iter().zip(&asked).enumerate() {
            for (a, (accept, other)) in accepts.iter().zip(&answered).enumerate() {
                let net = |half: &Apart| self.nets.get(usize::from(half.member));
                if net(connect) == net(accept) || !self.fits(connect, accept) {
                    continue;
                }
                let there = agree(&own.sent, &other.received);
                let back = agree(&other.sent, &own.received);
                let same = there.zip(back).map(|(there, back)| there + back);
                if let Some(same) = same.filter(|same| *same > 0) {
                    fitting.entry(c).or_default().push((a, same));
                }
            }
        }
        let mut rivals: HashMap<usize, usize> = HashMap::new();
        for (a, _) in fitting.values().flatten() {
            *rivals.entry(*a).or_default() += 1;
        }
        let mut taken: Vec<usize> = Vec::new();
        let mut pairs = Vec::new();
        let mut order: Vec<(usize, Vec<(usize, usize)>)> = fitting.into_iter().collect();
        order.sort_by_key(|(c, _)| connects.get(*c).map(|half| (half.member, half.half.op.lo)));
        for (c, found) in order {
            let mut left = found.iter().filter(|(a, _)| !taken.contains(a));
            let Some((a, same)) = left.next() else {
                continue;
            };
            let (Some(connect), Some(accept)) = (connects.get(c), accepts.get(*a)) else {
                continue;
            };
            let only = found.len() == 1 && rivals.get(a) == Some(&1);
            let sure = only && *same >= TELLING;
            self.guessed_pairs += u64::from(!sure);
            self.name_translated(connect, accept, sure);
            taken.push(*a);
            pairs.push((connect.clone(), accept.clone()));
        }
        pairs
    }

    /// What an end has of the first bytes that it sent, by this one of the
    /// connection's channels, and received.
    fn beginning(&self, half: &Apart, out: usize) -> Beginning {
        let connection = self.connections.get(half.half.connection as usize);
        let Some(channels) = connection.map(|connection| connection.channels) else {
            return Beginning::default();
        };
        let channel = |at: usize| {
            let number = channels.get(at).copied();
            number.and_then(|number| self.channels.get(number as usize))
        };
        Beginning {
            sent: channel(out).map_or(Vec::new(), |channel| self.bytes(&channel.sends)),
            received: channel(1 - out).map_or(Vec::new(), |channel| self.bytes(&channel.recvs)),
        }
    }

    /// What operations carried, as far as the logs have it.
    fn bytes(&self, operations: &[Op]) -> Vec<u8> {
        let mut ordered: Vec<&Op> = operations.iter().collect();
        ordered.sort_by_key(|op| op.lo);
        let mut bytes = Vec::new();
        for op in ordered {
            let carried = [op.last, op.first].into_iter().find_map(|number| {
                let log = self
                    .set
                    .log_at(ProcessIx(op.process), EventNo(number.into()))?;
                let event = log.event()?;
                let data = event.argument(1).filter(|data| !data.bytes.is_empty())?;
                let amount = usize::try_from(op.amount).unwrap_or(usize::MAX);
                let known = data.bytes.len().min(amount);
                Some(data.bytes.get(..known).unwrap_or_default().to_vec())
            });
            let carried = carried.unwrap_or_default();
            let is_all = carried.len() as u64 == op.amount;
            bytes.extend(carried);
            // Of what follows it is not known where it stands.
            if !is_all || bytes.len() >= COMPARED {
                break;
            }
        }
        bytes.truncate(COMPARED);
        bytes
    }

    /// Says of the channels what they were at the other end.
    fn name_translated(&mut self, connect: &Apart, accept: &Apart, sure: bool) {
        let channels = |half: &Apart| {
            let connection = self.connections.get(half.half.connection as usize);
            connection.map(|connection| connection.channels)
        };
        let (Some(own), Some(other)) = (channels(connect), channels(accept)) else {
            return;
        };
        for (to, from) in own.into_iter().zip(other) {
            let there = self.channels.get(from as usize).map(|c| c.name.clone());
            let word = if sure { "translated to" } else { "perhaps" };
            if let (Some(there), Some(channel)) = (there, self.channels.get_mut(to as usize)) {
                channel.name = format!("{} ({word} {there})", channel.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::agree;

    #[test]
    fn ends_agree_as_far_as_both_are_known() {
        assert_eq!(agree(b"hello", b"hel"), Some(3));
        assert_eq!(agree(b"hel", b"hello"), Some(3));
        assert_eq!(agree(b"hello", b"help"), None);
        assert_eq!(agree(b"", b"hello"), None);
        assert_eq!(agree(b"hello", b""), Some(0));
        assert_eq!(agree(b"", b""), Some(0));
    }
}
