//! The descriptors of processes.

use super::objects::{Holder, NONE, OpenFile, What};

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub file: u32,
    pub cloexec: bool,
}

const EMPTY: Slot = Slot {
    file: NONE,
    cloexec: false,
};

/// Descriptors beyond this are not followed: no kernel gives them out by
/// default, and a log that is not one may name any.
const MOST: usize = 1 << 20;

/// The descriptors of a process, or of several that share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
}

impl Table {
    pub fn get(&self, fd: i32) -> Option<Slot> {
        let slot = *self.slots.get(usize::try_from(fd).ok()?)?;
        (slot.file != NONE).then_some(slot)
    }

    /// Puts `slot` there; what was there before.
    pub fn put(&mut self, fd: i32, slot: Slot) -> Option<Slot> {
        let place = usize::try_from(fd).ok().filter(|fd| *fd < MOST)?;
        if self.slots.len() <= place {
            self.slots.resize(place + 1, EMPTY);
        }
        let old = std::mem::replace(self.slots.get_mut(place)?, slot);
        (old.file != NONE).then_some(old)
    }

    pub fn take(&mut self, fd: i32) -> Option<Slot> {
        let place = self.slots.get_mut(usize::try_from(fd).ok()?)?;
        let old = std::mem::replace(place, EMPTY);
        (old.file != NONE).then_some(old)
    }

    pub fn slot_mut(&mut self, fd: i32) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::try_from(fd).ok()?)?;
        (slot.file != NONE).then_some(slot)
    }

    /// All descriptors in use.
    pub fn used(&self) -> impl Iterator<Item = (i32, Slot)> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.file != NONE)
            .map(|(fd, slot)| (fd as i32, *slot))
    }
}

/// All open files there ever were.
#[derive(Debug, Default)]
pub(crate) struct Files(Vec<OpenFile>);

impl Files {
    pub fn make(&mut self, what: What) -> u32 {
        self.0.push(OpenFile {
            what,
            refs: 0,
            holders: Vec::new(),
        });
        (self.0.len() - 1) as u32
    }

    pub fn what(&self, file: u32) -> What {
        self.0.get(file as usize).map_or(What::Other, |f| f.what)
    }

    pub fn set(&mut self, file: u32, what: What) {
        if let Some(open) = self.0.get_mut(file as usize) {
            open.what = what;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &OpenFile> {
        self.0.iter()
    }

    pub fn holders(&self, file: u32) -> &[Holder] {
        self.0.get(file as usize).map_or(&[], |f| &f.holders)
    }

    /// One more descriptor of `process` leads to it, from event `number` on.
    pub fn hold(&mut self, file: u32, process: u32, number: u32) {
        let Some(open) = self.0.get_mut(file as usize) else {
            return;
        };
        open.refs += 1;
        let held = open
            .holders
            .iter_mut()
            .rev()
            .find(|holder| holder.process == process && holder.count > 0);
        match held {
            Some(holder) => holder.count += 1,
            None => open.holders.push(Holder {
                process,
                count: 1,
                from: number,
                to: u32::MAX,
            }),
        }
    }

    /// One fewer does. True if none does any more.
    pub fn release(&mut self, file: u32, process: u32, number: u32) -> bool {
        let Some(open) = self.0.get_mut(file as usize) else {
            return false;
        };
        let held = open
            .holders
            .iter_mut()
            .rev()
            .find(|holder| holder.process == process && holder.count > 0);
        if let Some(holder) = held {
            holder.count -= 1;
            if holder.count == 0 {
                holder.to = number;
            }
        }
        open.refs = open.refs.saturating_sub(1);
        open.refs == 0
    }

    /// A message under way carries it.
    pub fn carry(&mut self, file: u32) {
        if let Some(open) = self.0.get_mut(file as usize) {
            open.refs += 1;
        }
    }

    /// The message arrived, or is lost. True if nobody has it any more.
    pub fn arrive(&mut self, file: u32) -> bool {
        let Some(open) = self.0.get_mut(file as usize) else {
            return false;
        };
        open.refs = open.refs.saturating_sub(1);
        open.refs == 0
    }
}
