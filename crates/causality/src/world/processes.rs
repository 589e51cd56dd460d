//! Processes and threads: how they begin and end, and wait for each other.

use protocol::record::tag;
use recording::Event;
use recording::event::Child;

use super::World;
use super::calls::{self, half, nr};
use super::objects::*;
use super::tables::Table;
use crate::link::Kind;

const CLONE_FILES: u64 = 0x400;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;

/// Whether the caller waits until its child has executed something or has ended.
fn waits_for_child(number: u64, args: &[u64; 6]) -> bool {
    number == nr::VFORK || number == nr::CLONE && args[0] & CLONE_VFORK != 0
}

/// What a child has from its parent.
#[derive(Debug, Default)]
pub(super) struct Birth {
    table: Table,
    /// It shares its parent's descriptors, now and later.
    shared_table: Option<usize>,
    cwd: Vec<u8>,
    memory: Vec<(u64, u64, u32, u64)>,
    terminal: Option<u32>,
}

impl World<'_> {
    /// Keeps what a child will have: its first event may come late, when its
    /// parent has closed and opened other things.
    pub(super) fn about_to_fork(&mut self, op: Op, flags: u64, number: u64) {
        let flags = if number == nr::CLONE { flags } else { 0 };
        let key = (op.process, op.first);
        if flags & CLONE_THREAD != 0 || self.begun.contains(&key) {
            return;
        }
        let birth = self.birth(op.process, flags & CLONE_FILES != 0);
        for (_, slot) in birth.table.used() {
            self.files.carry(slot.file);
        }
        self.births.insert(key, birth);
    }

    pub(super) fn birth(&mut self, parent: u32, shares_table: bool) -> Birth {
        let table = match self.table(parent) {
            Some(table) if !shares_table => table.clone(),
            _ => Table::default(),
        };
        let Some(old) = self.proc(parent) else {
            return Birth::default();
        };
        Birth {
            table,
            shared_table: shares_table.then_some(old.table),
            cwd: old.cwd.clone(),
            memory: old.shared.clone(),
            terminal: old.terminal,
        }
    }

    /// A forked process begins: with its parent's descriptors, as they were.
    pub(super) fn born(&mut self, op: Op, event: &Event<'_>) {
        let Some(parent) = self.places.get(&event.process_in(1)).copied() else {
            return;
        };
        let by = u32::try_from(event.value(2)).unwrap_or(u32::MAX);
        self.link(Kind::Fork, (parent, by), &op);
        let kept = self.births.remove(&(parent, by));
        let carried = kept.is_some();
        let birth = match kept {
            Some(birth) => birth,
            None => self.birth(parent, false),
        };
        self.begun.insert((parent, by));
        let waits = self.proc(parent).is_some_and(|old| {
            let mut calls = old.threads.iter().flat_map(|thread| &thread.pending);
            calls.any(|pending| pending.first == by && waits_for_child(pending.nr, &pending.args))
        });
        let files: Vec<u32> = birth.table.used().map(|(_, slot)| slot.file).collect();
        for file in files {
            self.files.hold(file, op.process, op.last);
            if carried {
                self.files.arrive(file);
            }
        }
        let at = match birth.shared_table {
            Some(at) => at,
            None => {
                self.tables.push(birth.table);
                self.tables.len() - 1
            }
        };
        if let Some(process) = self.proc_mut(op.process) {
            process.table = at;
            process.cwd = birth.cwd;
            process.shared = birth.memory;
            process.terminal = birth.terminal;
            process.frees = waits.then_some((parent, by));
        }
    }

    /// A call that makes threads or processes is over.
    pub(super) fn forked(&mut self, op: Op, event: &Event<'_>) {
        match event.child() {
            Some(Child::Thread(number)) => {
                let flags = event.args[0];
                let address = event.args[3];
                if let Some(thread) = self.thread_mut(op.process, number.0) {
                    thread.pending.clear();
                    thread.clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 {
                        address
                    } else {
                        0
                    };
                    // Which event its first one is is known when it comes.
                    thread.made_by = Some(op.first);
                }
            }
            Some(Child::Process(_)) if op.first == op.last => {
                self.about_to_fork(op, event.args[0], event.nr);
            }
            // It was two events because other threads went on meanwhile.
            Some(Child::Process(_)) if !waits_for_child(event.nr, &event.args) => {}
            Some(Child::Process(number)) => {
                // A vfork is over when the child is on its own.
                let child = self.places.get(&number).copied();
                if let Some(child) = child.and_then(|child| self.proc(child))
                    && let Some(freed) = child.freed
                {
                    self.link(Kind::Exec, freed, &op);
                } else if let Some(child) = child {
                    self.vforks.push((child, op));
                }
            }
            _ => {}
        }
    }

    /// A thread's first event.
    pub(super) fn thread_begins(&mut self, op: Op) {
        let made_by = self
            .thread_mut(op.process, op.thread)
            .and_then(|thread| thread.made_by.take());
        if let Some(by) = made_by {
            self.link(Kind::Thread, (op.process, by), &op);
        }
    }

    /// Where the kernel clears a word and wakes who waits for it, when this
    /// thread ends.
    pub(super) fn thread_tells(&mut self, op: Op, address: u64) {
        if let Some(thread) = self.thread_mut(op.process, op.thread) {
            thread.clear_tid = address;
        }
    }

    /// A thread names itself.
    pub(super) fn thread_named(&mut self, op: Op, event: &Event<'_>) {
        let name = event
            .argument(1)
            .map(|name| String::from_utf8_lossy(calls::text(name.bytes)).into_owned());
        if let Some(thread) = self.thread_mut(op.process, op.thread) {
            thread.comm = name;
        }
    }

    /// An exec succeeded.
    pub(super) fn new_image(&mut self, op: Op) {
        let Some(process) = self.proc_mut(op.process) else {
            return;
        };
        let exec = process.exec.take();
        process.shared.clear();
        for thread in &mut process.threads {
            thread.pending.clear();
            thread.clear_tid = 0;
        }
        if let Some(thread) = process.threads.first_mut() {
            thread.comm = None;
        }
        if process.frees.take().is_some() {
            process.freed = Some((op.process, op.last));
        }
        if let Some(exec) = exec {
            self.link(Kind::Exec, (exec.process, exec.first), &op);
        }
        self.unshare_table(op);
        let Some(table) = self.table(op.process) else {
            return;
        };
        let closed: Vec<i32> = table
            .used()
            .filter(|(_, slot)| slot.cloexec)
            .map(|(fd, _)| fd)
            .collect();
        for fd in closed {
            self.close(op, fd as u64);
        }
    }

    /// From here on the process has descriptors of its own.
    fn unshare_table(&mut self, op: Op) {
        let at = self.proc(op.process).map_or(usize::MAX, |p| p.table);
        let users = self.processes.iter().filter(|p| p.table == at && !p.ended);
        if at == usize::MAX || users.count() < 2 {
            return;
        }
        let Some(table) = self.tables.get(at).cloned() else {
            return;
        };
        for (_, slot) in table.used() {
            self.files.hold(slot.file, op.process, op.last);
        }
        self.tables.push(table);
        let new = self.tables.len() - 1;
        if let Some(process) = self.proc_mut(op.process) {
            process.table = new;
        }
    }

    /// The end of a thread wakes who waits for it.
    pub(super) fn thread_ends(&mut self, op: Op) {
        let Some(thread) = self.thread_mut(op.process, op.thread) else {
            return;
        };
        thread.died = Some(op.first);
        let address = std::mem::take(&mut thread.clear_tid);
        if address == 0 {
            return;
        }
        for shared in [false, true] {
            let futex = self.futex_at(op.process, address, shared);
            let wake = FutexOp {
                op: Op { amount: 1, ..op },
                bits: u32::MAX,
                second: None,
                moves: None,
            };
            self.futexes.entry(futex).or_default().wakes.push(wake);
            if !self.is_shared(op.process, address) {
                break;
            }
        }
    }

    /// A process ends: so do its descriptors and locks.
    pub(super) fn process_ends(&mut self, op: Op) {
        let Some(process) = self.proc_mut(op.process) else {
            return;
        };
        if std::mem::replace(&mut process.ended, true) {
            return;
        }
        if process.frees.take().is_some() {
            process.freed = Some((op.process, op.first));
        }
        let at = process.table;
        let shared = self.processes.iter().any(|p| p.table == at && !p.ended);
        if shared || at == usize::MAX {
            return;
        }
        let Some(table) = self.tables.get_mut(at).map(std::mem::take) else {
            return;
        };
        for (_, slot) in table.used() {
            self.let_go(op, slot.file);
        }
    }

    /// The log of a process is at its end. `time`: when the process was.
    pub fn log_ends(&mut self, place: u32, time: Option<u64>) {
        let Some(process) = self.proc(place) else {
            return;
        };
        let op = Op {
            process: place,
            thread: 0,
            first: process.last,
            last: process.last,
            lo: process.last_time,
            hi: time.unwrap_or(process.last_time).max(process.last_time),
            amount: 0,
        };
        let threads = process.threads.len();
        for thread in 0..threads as u32 {
            let calls = self
                .thread_mut(place, thread)
                .map(|thread| std::mem::take(&mut thread.pending))
                .unwrap_or_default();
            for pending in calls {
                let own = Op {
                    thread,
                    first: pending.first,
                    lo: pending.lo,
                    ..op
                };
                self.never_returned(own, &pending);
                self.note_wait(own, &pending, None, false);
            }
        }
        if time.is_some() {
            let mut op = op;
            if let Some(process) = self.proc_mut(place) {
                process.killed = !process.ended;
            }
            if self.proc(place).is_some_and(|process| process.killed) {
                // Behind its last event it still had all that it had.
                op.last = op.last.saturating_add(1);
            }
            self.process_ends(op);
        }
    }

    /// Everything has been read: vforks that nobody saw end.
    pub fn finish(&mut self) {
        for (child, op) in std::mem::take(&mut self.vforks) {
            let freed = self.proc(child).map(|child| match child.freed {
                Some(freed) => freed,
                None => (op.process, u32::MAX),
            });
            if let Some(freed) = freed.filter(|freed| freed.1 != u32::MAX) {
                self.link(Kind::Exec, freed, &op);
            } else if let Some(last) = self.last_event(child) {
                self.link(Kind::Exit, (child, last), &op);
            }
        }
    }

    pub(super) fn waited_for(&mut self, op: Op, event: &Event<'_>) {
        let result = event.result.unwrap_or(-1);
        let (pid, signal) = if event.nr == nr::WAIT4 {
            let told = event.argument(1).map(|data| data.bytes);
            let status = told.or_else(|| event.blob(tag::ENDED).map(|blob| blob.bytes));
            let status = status.and_then(|bytes| half(bytes, 0)).unwrap_or(0);
            if result <= 0 || status & 0xff == 0x7f || status == 0xffff {
                return;
            }
            (result as u32, status & 0x7f)
        } else {
            let Some(info) = event.argument(2).map(|data| data.bytes) else {
                return;
            };
            let code = half(info, 8).unwrap_or(0);
            let pid = half(info, 16).unwrap_or(0);
            if result != 0 || pid == 0 || !matches!(code, 1..=3) {
                return;
            }
            let status = half(info, 24).unwrap_or(0);
            (pid, if code == 1 { 0 } else { status })
        };
        if let Some(child) = self.process_with(pid, op.hi) {
            self.waited.push(Waited { op, child, signal });
        }
    }
}
