//! Channels and locks: who holds them at a cut, what is in them, which events
//! use them.

use protocol::id::{EventNo, ProcessIx};

use super::{Cut, History, number};
use crate::channel::{Channel, ChannelKind, RoundTrips};
use crate::index::build::{NO, RECEIVES};
use crate::index::layout::*;
use crate::link::EventId;

/// Which way an event used a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Number of the channel.
    pub channel: u32,
    /// It received rather than sent.
    pub receives: bool,
}

impl History {
    /// How many channels there are.
    pub fn channel_count(&self) -> u32 {
        self.index.len(Section::Channels) as u32
    }

    fn channel_record(&self, number: u32) -> Option<ChannelRec> {
        if number >= self.channel_count() {
            return None;
        }
        let found = self
            .index
            .records::<ChannelRec>(Section::Channels, number as usize, 1);
        found.all().first().copied()
    }

    /// A channel.
    pub fn channel(&self, number: u32) -> Option<Channel> {
        let record = self.channel_record(number)?;
        if record.kind == MERGED {
            return None;
        }
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for holder in self.holders(&record) {
            let list = if holder.sends.get() != 0 {
                &mut senders
            } else {
                &mut receivers
            };
            list.push(ProcessIx(holder.process.get()));
        }
        // What was used was held; who only held it and never did anything is
        // named only if nobody did.
        let mut used = [Vec::new(), Vec::new()];
        for group in self.groups(&record) {
            if let Some(list) = used.get_mut(usize::from(group.sends.get() == 0)) {
                list.push(ProcessIx(group.process.get()));
            }
        }
        let [used_out, used_in] = used;
        for (list, used) in [(&mut senders, used_out), (&mut receivers, used_in)] {
            if !used.is_empty() {
                *list = used;
            }
            list.sort_unstable();
            list.dedup();
        }
        let [count, least, most, sum] = record.trips.map(|word| word.get());
        Some(Channel {
            number,
            kind: ChannelKind::from_number(record.kind).unwrap_or(ChannelKind::Outside),
            reverse: Some(record.reverse.get()).filter(|other| *other != NO),
            forward: record.forward != 0,
            name: self.text(record.name),
            sends: record.sends.get(),
            receives: record.receives.get(),
            sent: record.sent.get(),
            received: record.received.get(),
            senders,
            receivers,
            round_trips: RoundTrips {
                count,
                least,
                most,
                sum,
            },
        })
    }

    fn holders(&self, record: &ChannelRec) -> &[HolderRec] {
        let (from, count) = (record.holders.from.get(), record.holders.count.get());
        self.index
            .records::<HolderRec>(Section::Holders, from as usize, count as usize)
            .all()
    }

    fn groups(&self, record: &ChannelRec) -> &[GroupRec] {
        let (from, count) = (record.groups.from.get(), record.groups.count.get());
        self.index
            .records::<GroupRec>(Section::Groups, from as usize, count as usize)
            .all()
    }

    /// Processes that hold the sending (or receiving) end of a channel at a
    /// cut.
    pub fn holders_at(&self, channel: u32, sends: bool, cut: &Cut) -> Vec<ProcessIx> {
        self.holders_when(channel, sends, |holder| {
            let bound = cut.bound(ProcessIx(holder.process.get()));
            number(holder.from.get()) < bound && bound <= number(holder.to.get())
        })
    }

    /// Processes that come to hold the sending (or receiving) end of a channel after a
    /// cut.
    pub fn holders_after(&self, channel: u32, sends: bool, cut: &Cut) -> Vec<ProcessIx> {
        self.holders_when(channel, sends, |holder| {
            cut.bound(ProcessIx(holder.process.get())) <= number(holder.from.get())
        })
    }

    fn holders_when(
        &self,
        channel: u32,
        sends: bool,
        is_meant: impl Fn(&HolderRec) -> bool,
    ) -> Vec<ProcessIx> {
        let Some(record) = self.channel_record(channel) else {
            return Vec::new();
        };
        let mut found: Vec<ProcessIx> = self
            .holders(&record)
            .iter()
            .filter(|holder| (holder.sends.get() != 0) == sends)
            .filter(|holder| is_meant(holder))
            .map(|holder| ProcessIx(holder.process.get()))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Bytes that were put into a channel and not taken out of it yet at a
    /// cut, and how many sends have begun.
    pub fn in_flight(&self, channel: u32, cut: &Cut) -> u64 {
        let Some(record) = self.channel_record(channel) else {
            return 0;
        };
        let mut sums = [0u64; 2];
        for group in self.groups(&record) {
            let (from, count) = (group.sums.from.get(), group.sums.count.get());
            let all = self
                .index
                .records::<SumRec>(Section::Sums, from as usize, count as usize);
            let bound = cut.bound(ProcessIx(group.process.get()));
            let inside = all.partition_point(|sum| number(sum.event.get()) < bound);
            let sum = inside.checked_sub(1).and_then(|i| all.get(i));
            if let Some(place) = sums.get_mut(usize::from(group.sends.get() == 0)) {
                *place = place.saturating_add(sum.map_or(0, |sum| sum.sum.get()));
            }
        }
        let [sent, received] = sums;
        sent.saturating_sub(received)
    }

    /// The path of the file that a lock is on.
    pub fn lock_name(&self, lock: u32) -> Option<String> {
        let count = self.index.len(Section::LockNames);
        let all = self
            .index
            .records::<LockNameRec>(Section::LockNames, 0, count)
            .all();
        let at = all
            .binary_search_by_key(&lock, |name| name.lock.get())
            .ok()?;
        Some(self.text(all.get(at)?.name))
    }

    /// The processes that have a lock at a cut.
    pub(crate) fn lock_holders(&self, lock: u32, cut: &Cut) -> Vec<ProcessIx> {
        let count = self.index.len(Section::Locks);
        let all = self.index.records::<LockRec>(Section::Locks, 0, count);
        let from = all.partition_point(|hold| hold.lock.get() < lock);
        all.forward(from)
            .take_while(|hold| hold.lock.get() == lock)
            .filter(|hold| {
                let bound = cut.bound(ProcessIx(hold.process.get()));
                number(hold.from.get()) < bound && bound <= number(hold.to.get())
            })
            .map(|hold| ProcessIx(hold.process.get()))
            .collect()
    }

    /// The channels that an event used.
    pub fn uses(&self, event: EventId) -> Vec<Use> {
        let range = self.record(event.process).uses;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<UseRec>(Section::Uses, from, count);
        let begin = all.partition_point(|used| number(used.event.get()) < event.number);
        all.forward(begin)
            .take_while(|used| number(used.event.get()) == event.number)
            .map(|used| Use {
                channel: used.channel.get() & !RECEIVES,
                receives: used.channel.get() & RECEIVES != 0,
            })
            .collect()
    }

    /// The uses that a process made of channels, in order: event, use.
    pub fn uses_of(&self, place: ProcessIx) -> impl Iterator<Item = (EventNo, Use)> + '_ {
        let range = self.record(place).uses;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<UseRec>(Section::Uses, from, count);
        all.forward(0).map(|used| {
            let own = Use {
                channel: used.channel.get() & !RECEIVES,
                receives: used.channel.get() & RECEIVES != 0,
            };
            (number(used.event.get()), own)
        })
    }
}
