//! The journal: what each process wrote, in the order of turns, and how the
//! others get it. The only part that knows that there are others.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::replay::{Journal, difference, entry};

use crate::state::Thread;
use crate::sys;
use crate::{mem, replay};

use super::guard;
use super::kept::{Kept, OPEN_MAX, harvest, keep};
use super::mapping::resize;
use super::pages::{close, open, renew, settle, wanted};
use super::table::{CLEAN, DIRTY, PAGE, Region, holder_of, regions, set_state, state};
use super::{SHARED, UNNAMED, sharing};

fn journal() -> &'static Journal {
    &replay::header().journal
}

/// Whether this replay makes the journal: pages are watched.
pub(super) fn is_written() -> bool {
    journal().is_complete.load(Acquire) == 0 && sharing().domain.get() != 0
}

/// Writes an entry of the journal.
pub(super) fn append(kind: u64, first: u64, second: u64, from: u64, len: u64) {
    let journal = journal();
    if journal
        .lock
        .compare_exchange(0, 1, Acquire, Relaxed)
        .is_err()
    {
        while journal.lock.swap(2, Acquire) != 0 {
            sys::futex_wait(&journal.lock, 2, 1_000_000);
        }
    }
    let at = journal.len.load(Relaxed);
    let size = 32 + ((len + 7) & !7);
    if at + size <= journal.capacity.load(Relaxed) {
        let place = journal_at(at);
        let head = [kind, first, second, len];
        mem::copy(place, head.as_ptr() as u64, 32);
        mem::copy(place + 32, from, len);
        journal.len.store(at + size, Release);
    } else {
        journal.is_full.store(1, Release);
    }
    if journal.lock.swap(0, Release) == 2 {
        sys::futex_wake(&journal.lock, 1);
    }
}

fn journal_at(at: u64) -> u64 {
    protocol::layout::ARENA_BASE + journal().offset.load(Relaxed) + at
}

/// The entry at a place, and the place after it.
fn entry_at(at: u64) -> ([u64; 4], u64) {
    let mut head = [0u64; 4];
    mem::copy(head.as_mut_ptr() as u64, journal_at(at), 32);
    (head, at + 32 + ((head[3] + 7) & !7))
}

/// A fresh mapping of an object: if it was mapped before with the same
/// contents, what has been written since belongs to them.
pub(super) fn catch_up(key: u64, id: u64, end: u64) {
    let (mut at, mut is_known) = (0, false);
    let mut open = OpenPages::new();
    while at < end {
        let (head, next) = entry_at(at);
        is_known |= head[..3] == [entry::MAP, key, id];
        if is_known && head[0] == entry::BYTES && head[1] == key {
            open.apply(&head, at);
        }
        at = next;
    }
    open.close();
}

/// Pages that what others wrote is put into. There may be thousands of entries for a
/// few pages, now for one and now for another: the protection of each is changed once
/// for all of them. If this process has a page open, with it goes what is kept of it.
struct OpenPages {
    pages: [Option<OpenPage>; OPEN_AT_ONCE],
    count: usize,
    /// The one that was written last: mostly, it is the next, too.
    last: usize,
}

const OPEN_AT_ONCE: usize = 48;

#[derive(Clone, Copy)]
struct OpenPage {
    region: Region,
    page: u64,
    kept: Option<Kept>,
}

impl OpenPages {
    fn new() -> OpenPages {
        OpenPages {
            pages: [None; OPEN_AT_ONCE],
            count: 0,
            last: 0,
        }
    }

    /// Writes what another wrote.
    fn apply(&mut self, head: &[u64; 4], at: u64) {
        let [_, key, offset, len] = *head;
        let Some(open) = self.find(key, offset & !(PAGE - 1)) else {
            return;
        };
        let (within, from) = (offset & (PAGE - 1), journal_at(at) + 32);
        mem::copy(open.page + within, from, len);
        // It is not this process that wrote it.
        if let Some(kept) = &open.kept {
            mem::copy(kept.before() + within, from, len);
        }
    }

    fn find(&mut self, key: u64, offset: u64) -> Option<OpenPage> {
        let is_it = |open: &Option<OpenPage>| {
            open.is_some_and(|open| open.region.page_of(key, offset) == Some(open.page))
        };
        if !self.pages.get(self.last).is_some_and(is_it) {
            let found = self.pages.iter().take(self.count).position(is_it);
            self.last = match found {
                Some(place) => place,
                None => {
                    let open = OpenPage::new(key, offset)?;
                    if self.count == OPEN_AT_ONCE {
                        self.close();
                    }
                    let place = self.count;
                    *self.pages.get_mut(place)? = Some(open);
                    self.count += 1;
                    place
                }
            };
        }
        *self.pages.get(self.last)?
    }

    fn close(&mut self) {
        for place in self.pages.iter_mut().take(self.count) {
            if let Some(open) = place.take()
                && wanted(&open.region, open.page) & 3 != 3
            {
                close(&open.region, open.page);
            }
        }
        self.count = 0;
    }
}

impl OpenPage {
    /// Opens a page where it is accessible. None: it is not mapped here, or not there.
    fn new(key: u64, offset: u64) -> Option<OpenPage> {
        let (region, page) = holder_of(key, offset)?;
        if region.is_behind_end(page) {
            // It has been cut since, and what cut it comes later in the journal.
            return None;
        }
        let mut it = OpenPage {
            region,
            page,
            kept: None,
        };
        if state(region.state(page)) == DIRTY {
            let mut kept = (0..sharing().kept.get()).map(Kept::at);
            it.kept = kept.find(|kept| kept.key() == key && kept.offset() == offset);
        }
        if wanted(&region, page) & 3 != 3 {
            open(&region, page);
            // What others write they will write again, and this process may
            // as well: it stays open, too.
            let count = sharing().kept.get();
            let is_shared = region.kind == SHARED || region.kind == UNNAMED;
            if is_written() && is_shared && region.prot & 3 == 3 && count < OPEN_MAX {
                keep(key, offset, page);
                set_state(region.state(page), DIRTY);
                it.kept = Some(Kept::at(count));
            }
        }
        Some(it)
    }
}

/// The log says that the turn came to this process: from whom, if not from
/// nobody. What others wrote before arrives now.
pub fn turn(thread: &Thread, domain: u64, sequence: u64, before: u64) {
    if !replay::is_shared(domain) {
        return;
    }
    publish();
    let sharing = sharing();
    let is_first = sharing.domain.get() == 0;
    sharing.domain.set(domain + 1);
    sharing.sequence.set(sequence);
    if before != u64::from(u32::MAX) {
        follow_to(thread, domain, sequence.wrapping_sub(1));
    }
    if is_first && is_written() {
        regions().for_each(|region| renew(&region));
    }
}

/// Applies the journal up to the end of a turn; waits until it is there.
fn follow_to(thread: &Thread, domain: u64, sequence: u64) {
    let journal = journal();
    let waits_at = &replay::stream_of(thread.process()).waits_at;
    let mut open = OpenPages::new();
    loop {
        let word = journal.turn_word(domain, sequence);
        let ended = word.load(Acquire);
        let mut at = sharing().seen.get();
        let end = journal.len.load(Acquire);
        // One who has something to do does not wait, however long that takes.
        waits_at.store(0, Release);
        while at < end {
            let (head, next) = entry_at(at);
            match head[0] {
                entry::BYTES => open.apply(&head, at),
                entry::SIZE => {
                    open.close();
                    resize(head[1], head[2]);
                }
                _ => {}
            }
            at = next;
            sharing().seen.set(at);
            if head[..3] == [entry::TURN, domain, sequence] {
                open.close();
                return;
            }
        }
        open.close();
        let complete = journal.is_complete.load(Acquire) != 0;
        if complete || journal.is_hopeless.load(Acquire) != 0 || journal.is_full.load(Acquire) != 0
        {
            replay::diverge(thread, difference::SHARED_MEMORY, 0, domain, sequence);
        }
        waits_at.store(end + 1, Release);
        sys::futex_wait(word, ended, 100_000_000);
    }
}

/// The turn is over: others may see what was written in it.
pub fn publish() {
    let sharing = sharing();
    let domain = sharing.domain.get();
    if domain == 0 || journal().is_complete.load(Acquire) != 0 || sharing.sequence.get() == 0 {
        return;
    }
    harvest();
    let sequence = sharing.sequence.replace(0);
    append(entry::TURN, domain - 1, sequence, 0, 0);
    wake(journal().turn_word(domain - 1, sequence));
}

fn wake(word: &AtomicU32) {
    word.fetch_add(1, Release);
    sys::futex_wake(word, u32::MAX >> 1);
}

/// This process does not get to the end of its turns: nobody shall wait.
pub fn give_up() {
    if sharing().domain.get() != 0 && journal().is_complete.load(Acquire) == 0 {
        journal().is_hopeless.store(1, Release);
        journal().turns.iter().for_each(wake);
    }
}

/// A forked child: the turn, and what was written in it so far, are its
/// parent's.
pub fn forked() {
    let sharing = sharing();
    guard::forked();
    if sharing.domain.get() == 0 {
        return;
    }
    sharing.sequence.set(0);
    for i in 0..sharing.kept.replace(0) {
        let kept = Kept::at(i);
        if let Some((region, page)) = holder_of(kept.key(), kept.offset()) {
            set_state(region.state(page), CLEAN);
            if !guard::is_watched(&region) {
                settle(&region, page);
            }
        }
    }
    // Guards are not inherited.
    for region in regions().filter(guard::is_watched) {
        renew(&region);
    }
}
