//! Processes and threads: how they begin and end, wait for each other, signal
//! and wake each other, and lock files.

use protocol::record::tag;
use recording::Event;
use recording::event::Child;

use super::World;
use super::calls::{self, half, nr, word};
use super::objects::*;
use super::tables::Table;
use crate::link::Kind;

const CLONE_FILES: u64 = 0x400;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;

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

    fn birth(&mut self, parent: u32, shares_table: bool) -> Birth {
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
        let Some(parent) = self.places.get(&(event.value(1) as u32)).copied() else {
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
            calls.any(|pending| pending.first == by)
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
                if let Some(thread) = self.thread_mut(op.process, number) {
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
            let status = event.argument(1).and_then(|data| half(data.bytes, 0));
            let status = status.unwrap_or(0);
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

    // Signals.

    pub(super) fn killed(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let args = &event.args;
        let value = |argument: usize| {
            let info = event.argument(argument)?;
            word(info.bytes, 24)
        };
        let thread_target = |world: &Self, tid: u64| world.thread_with(tid as u32, op.hi);
        let (target, thread, signal, value) = match event.nr {
            nr::KILL => {
                let pid = args[0] as u32 as i32;
                let target = (pid > 0).then(|| self.process_with(pid as u32, op.hi));
                match target {
                    // Somebody outside.
                    Some(None) => return,
                    target => (target.flatten(), None, args[1], None),
                }
            }
            nr::TKILL => match thread_target(self, args[0]) {
                Some((place, thread)) => (Some(place), Some(thread), args[1], None),
                None => return,
            },
            nr::TGKILL => match thread_target(self, args[1]) {
                Some((place, thread)) => (Some(place), Some(thread), args[2], None),
                None => return,
            },
            nr::RT_SIGQUEUEINFO => match self.process_with(args[0] as u32, op.hi) {
                Some(place) => (Some(place), None, args[1], value(2)),
                None => return,
            },
            nr::RT_TGSIGQUEUEINFO => match thread_target(self, args[1]) {
                Some((place, thread)) => (Some(place), Some(thread), args[2], value(3)),
                None => return,
            },
            _ => match self.files.what(file) {
                What::Process(place) => (Some(place), None, args[1], value(2)),
                _ => return,
            },
        };
        let signal = signal as u32;
        if signal != 0 {
            self.kills.push(Kill {
                op,
                signal,
                target,
                thread,
                value,
            });
        }
    }

    /// A signal reached a thread.
    pub(super) fn signal(&mut self, op: Op, event: &Event<'_>) {
        let Some(info) = event.blob(tag::SIGINFO) else {
            return;
        };
        self.arrived(op, info.bytes, event.value(0) as u32, true);
    }

    fn arrived(&mut self, op: Op, info: &[u8], signal: u32, handled: bool) {
        let code = half(info, 8).unwrap_or(0) as i32;
        let pid = half(info, 16).unwrap_or(0);
        let value = word(info, 24).unwrap_or(0);
        self.arrivals.push(Arrival {
            op,
            signal,
            code,
            pid,
            value,
            handled,
        });
    }

    /// A thread took a signal that it waited for.
    pub(super) fn signal_taken(&mut self, op: Op, event: &Event<'_>) {
        let signal = event.result.unwrap_or(0) as u32;
        let info = event.argument(1).map(|data| data.bytes).unwrap_or(&[]);
        if half(info, 0) == Some(signal) {
            self.arrived(op, info, signal, false);
        } else {
            // Not asked who it was from.
            self.arrivals.push(Arrival {
                op,
                signal,
                code: 0,
                pid: 0,
                value: 0,
                handled: false,
            });
        }
    }

    /// Signals were read from a descriptor.
    pub(super) fn signals_read(&mut self, op: Op, event: &Event<'_>) {
        const SIZE: usize = 128;
        let Some(data) = event.argument(1) else {
            return;
        };
        for info in data.bytes.chunks_exact(SIZE) {
            let at = |at| half(info, at).unwrap_or(0);
            self.arrivals.push(Arrival {
                op,
                signal: at(0),
                code: at(8) as i32,
                pid: at(12),
                value: word(info, 48).unwrap_or(0),
                handled: false,
            });
        }
    }

    // Futexes.

    fn is_shared(&self, place: u32, address: u64) -> bool {
        self.proc(place)
            .is_some_and(|p| p.shared.iter().any(|m| (m.0..m.1).contains(&address)))
    }

    /// Where a futex is. Memory that processes share has other addresses in
    /// each.
    fn futex_at(&self, place: u32, address: u64, shared: bool) -> Futex {
        let mapping = self.proc(place).filter(|_| shared).and_then(|p| {
            p.shared
                .iter()
                .rev()
                .find(|m| (m.0..m.1).contains(&address))
        });
        match mapping {
            Some((from, _, memory, offset)) => Futex::Shared {
                memory: *memory,
                offset: offset + (address - from),
            },
            None => Futex::Private {
                process: place,
                address,
            },
        }
    }

    pub(super) fn futex(&mut self, mut op: Op, event: &Event<'_>) {
        const PRIVATE: u64 = 128;
        let (args, result) = (&event.args, event.result.unwrap_or(-1));
        let shared = args[1] & PRIVATE == 0;
        let first = self.futex_at(op.process, args[0], shared);
        let second = self.futex_at(op.process, args[4], shared);
        let bits = args[5] as u32;
        let mut made = FutexOp {
            op,
            bits: u32::MAX,
            second: None,
            moves: None,
        };
        match args[1] & 0x7f {
            command @ (0 | 9) => {
                if result != 0 {
                    return;
                }
                if command == 9 {
                    made.bits = bits;
                }
                self.futexes.entry(first).or_default().waits.push(made);
                return;
            }
            _ if result <= 0 => return,
            10 => made.bits = bits,
            3 => made.moves = Some(result as u64),
            4 => made.moves = Some((args[2] as u32).into()),
            1 | 5 => {}
            _ => return,
        }
        if matches!(args[1] & 0x7f, 3..=5) {
            made.second = Some(second);
        }
        op.amount = result as u64;
        made.op = op;
        self.futexes.entry(first).or_default().wakes.push(made);
    }

    pub(super) fn mapped(&mut self, op: Op, event: &Event<'_>, file: u32) {
        const SHARED: u64 = 1;
        const ANONYMOUS: u64 = 0x20;
        let args = &event.args;
        let from = event.result.unwrap_or(0) as u64;
        let to = from.saturating_add(args[1].next_multiple_of(4096));
        self.unmapped(op.process, from, args[1]);
        if args[3] & SHARED == 0 {
            return;
        }
        // What backs it, where the monitor looked; or else its name.
        let name = match (event.number_in(tag::OBJECT), self.files.what(file)) {
            (Some(object), _) if args[3] & ANONYMOUS == 0 => {
                Some(format!("object {object}").into_bytes())
            }
            (None, What::File(path)) if args[3] & ANONYMOUS == 0 => {
                self.path_names.get(path as usize).cloned()
            }
            _ => None,
        };
        let fresh = self.memories;
        let memory = match name {
            Some(name) => *self.memory_of.entry(name).or_insert(fresh),
            None => fresh,
        };
        if memory == fresh {
            self.memories += 1;
        }
        let offset = if args[3] & ANONYMOUS == 0 { args[5] } else { 0 };
        if let Some(process) = self.proc_mut(op.process) {
            process.shared.push((from, to, memory, offset));
        }
    }

    pub(super) fn unmapped(&mut self, place: u32, from: u64, len: u64) {
        let to = from.saturating_add(len.next_multiple_of(4096));
        if let Some(process) = self.proc_mut(place)
            && !process.shared.is_empty()
        {
            process.shared.retain(|m| m.1 <= from || to <= m.0);
        }
    }

    // Locks.

    pub(super) fn flock(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let What::File(path) = self.files.what(file) else {
            return;
        };
        let mode = match event.args[1] & 15 & !4 {
            1 => LockMode::Shared,
            2 => LockMode::Exclusive,
            _ => LockMode::Free,
        };
        self.lock(op, path, true, LockOwner::File(file), mode, (0, u64::MAX));
    }

    pub(super) fn fcntl_lock(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let command = event.args[1] as u32;
        let (What::File(path), Some(lock)) = (self.files.what(file), event.argument(2)) else {
            return;
        };
        let short = |at| calls::field(lock.bytes, at).map(i16::from_le_bytes);
        let long = |at| word(lock.bytes, at).map(|word| word as i64);
        let (Some(kind), Some(whence), Some(start), Some(len)) =
            (short(0), short(2), long(8), long(16))
        else {
            return;
        };
        let range = match (whence, len) {
            (0, 0) => (start as u64, u64::MAX),
            (0, 1..) => (start as u64, start.saturating_add(len) as u64),
            (0, _) => (start.saturating_add(len) as u64, start as u64),
            _ => (0, u64::MAX),
        };
        let mode = match kind {
            0 => LockMode::Shared,
            1 => LockMode::Exclusive,
            _ => LockMode::Free,
        };
        let owner = if command >= 37 {
            LockOwner::File(file)
        } else {
            LockOwner::Process(op.process)
        };
        self.lock(op, path, false, owner, mode, range);
    }

    fn lock(
        &mut self,
        op: Op,
        file: u32,
        bsd: bool,
        owner: LockOwner,
        mode: LockMode,
        range: (u64, u64),
    ) {
        let key = (file, bsd, owner);
        if mode != LockMode::Free {
            *self.held.entry(key).or_default() += 1;
            if !self.open_holds.contains_key(&key) {
                self.open_holds.insert(key, self.lock_holds.len());
                self.lock_holds.push(LockHold {
                    lock: super::lock_number(file, bsd),
                    process: op.process,
                    from: op.last,
                    to: u32::MAX,
                });
            }
        } else {
            self.lets_go(op, key);
        }
        self.locks.push(LockOp {
            op,
            file,
            bsd,
            owner,
            mode,
            range,
        });
    }

    /// An owner has no lock on a file any more. (Of several on parts of it, the
    /// first that is given back counts.)
    fn lets_go(&mut self, op: Op, key: (u32, bool, LockOwner)) {
        let hold = self.open_holds.remove(&key);
        if let Some(hold) = hold.and_then(|hold| self.lock_holds.get_mut(hold)) {
            hold.to = op.last;
        }
    }

    /// All locks of an owner on a file are gone.
    pub(super) fn unlock_all(&mut self, op: Op, file: u32, owner: LockOwner) {
        for bsd in [true, false] {
            if self.held.remove(&(file, bsd, owner)).is_some() {
                self.lets_go(op, (file, bsd, owner));
                self.locks.push(LockOp {
                    op,
                    file,
                    bsd,
                    owner,
                    mode: LockMode::Free,
                    range: (0, u64::MAX),
                });
            }
        }
    }

    /// Whoever closes any descriptor of a file loses its `fcntl` locks on it.
    pub(super) fn posix_unlock(&mut self, op: Op, file: u32) {
        if self.held.is_empty() {
            return;
        }
        if let What::File(path) = self.files.what(file) {
            let owner = LockOwner::Process(op.process);
            if self.held.remove(&(path, false, owner)).is_some() {
                self.lets_go(op, (path, false, owner));
                self.locks.push(LockOp {
                    op,
                    file: path,
                    bsd: false,
                    owner,
                    mode: LockMode::Free,
                    range: (0, u64::MAX),
                });
            }
        }
    }
}
