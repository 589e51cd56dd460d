//! The monitor comes into a process that runs.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use protocol::adoption::{ADOPTION_BASE, Adopted, Adoption, TIMERS, result, size, timer};
use protocol::layout::{
    ARENA_FD, IMAGE_BASE, MONITOR_BASE, MONITOR_END, SLOT_SIZE, SLOTS_BASE, SLOTS_MAX,
};
use protocol::shared::IMAGE_OFFSET;

use crate::detours::{Detours, PAGE};
use crate::refusal::{self, Refusal};
use crate::regs::{self, Regs};
use crate::running::{Running, Task, is_broken_off};
use crate::{Image, Map, read_proc};

/// See [`Monitor::lead`].
pub type Lead<'a> = dyn Fn(&[u8], u64, u64) -> Option<Detours> + Sync + 'a;

/// What comes into a process.
pub struct Monitor<'a> {
    pub image: &'a Image,
    pub arena: BorrowedFd<'a>,
    /// Works out how the functions of the kernel's vdso are led to ours: its bytes,
    /// where they are, and where there is a page of memory for what has to lie beside
    /// them.
    pub lead: &'a Lead<'a>,
    /// Whether there is still somebody for whom it is: looked at before the last moment at
    /// which all can be left as it was.
    pub is_wanted: &'a (dyn Fn() -> bool + Sync + 'a),
}

/// What of a process can be found out while it runs.
pub struct Prepared {
    pid: i32,
    /// Its descriptors: whether each is a timer.
    descriptors: BTreeMap<u32, bool>,
    arena_fd: i32,
}

impl Prepared {
    /// Looks whether a process can take the monitor in.
    pub fn new(pid: i32) -> Result<Prepared, Refusal> {
        let name = refusal::check(pid)?;
        let arena_fd = free_descriptor(pid).ok_or(Refusal::InUse {
            pid,
            name,
            what: "all of its descriptors",
        })?;
        Ok(Prepared {
            pid,
            descriptors: descriptors_of(pid, &BTreeMap::new()),
            arena_fd,
        })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Puts the monitor into it. How long it stood still, and how many threads it has:
    /// each takes its entry when it goes on.
    pub fn adopt(self, monitor: &Monitor<'_>) -> Result<(Duration, usize), Refusal> {
        let mut running = Running::stop(self.pid)?;
        let maps = running.maps()?;
        running.check(&maps)?;
        let leader = running.tasks.first().map_or(self.pid, |task| task.tid);
        // The others get theirs when they are let go: until then they are as they were, should
        // this process come to its end.
        regs::set_mask(leader, u64::MAX);
        let mut opened = Vec::new();
        if let Err(refusal) = running.enter(&self, monitor, &maps, leader, &mut opened) {
            let len = MONITOR_END - MONITOR_BASE;
            running.call(leader, libc::SYS_munmap, [MONITOR_BASE, len, 0, 0, 0, 0]);
            for fd in opened {
                running.call(leader, libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
            }
            // It stands behind another call now, where the kernel begins none again.
            if let Some(task) = running.tasks.first_mut() {
                task.regs = where_it_goes_on(&task.regs).0;
                task.regs.orig_rax = u64::MAX;
            }
            return Err(refusal);
        }
        let threads = running.tasks.len();
        Ok((running.release(), threads))
    }
}

impl Running {
    /// What can be seen only of one that is stopped.
    fn check(&mut self, maps: &[Map]) -> Result<(), Refusal> {
        const USER_64: u64 = 0x33;
        let (pid, name) = (self.pid, self.name.clone());
        let in_use = |what| Refusal::InUse {
            pid,
            name: name.clone(),
            what,
        };
        if self.tasks.iter().any(|task| task.regs.cs != USER_64) {
            return Err(Refusal::NotSixtyFour { pid, name });
        }
        let has_gs = |task: &Task| task.regs.gs_base != 0 || task.regs.gs != 0;
        if self.tasks.iter().any(has_gs) {
            return Err(in_use("the gs register"));
        }
        if self.tasks.iter().any(|task| regs::dispatches(task.tid)) {
            return Err(in_use("syscall user dispatch"));
        }
        if self.tasks.len() as u64 > SLOTS_MAX {
            return Err(in_use("more threads than there is room for"));
        }
        if !Running::is_free(maps) {
            return Err(in_use("addresses (does mw have it already?)"));
        }
        let vdso = maps.iter().find(|map| map.name == "[vdso]");
        vdso.and_then(|vdso| self.find_gate(vdso))
            .ok_or(Refusal::Kernel { what: "vdso" })
    }

    fn enter(
        &mut self,
        prepared: &Prepared,
        monitor: &Monitor<'_>,
        maps: &[Map],
        leader: i32,
        opened: &mut Vec<u64>,
    ) -> Result<(), Refusal> {
        let map = |at: u64, len: u64, prot: i32, flags: i32, fd: u64, offset: u64| {
            let flags = flags | libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
            let args = [at, len, prot as u64, flags as u64, fd, offset];
            self.must(leader, libc::SYS_mmap, args)
        };
        let count = self.tasks.len() as u64;
        let len = size(count).max(PAGE).next_multiple_of(PAGE);
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        map(
            ADOPTION_BASE,
            len,
            writable,
            libc::MAP_ANONYMOUS,
            u64::MAX,
            0,
        )?;
        let fd = self.hand_over(leader, monitor.arena, prepared.arena_fd, opened)?;
        let image_len = monitor.image.bytes.len() as u64;
        let runnable = libc::PROT_READ | libc::PROT_EXEC;
        map(IMAGE_BASE, image_len, runnable, 0, fd, IMAGE_OFFSET)?;
        let (code, beside) = beside_vdso(maps).ok_or(Refusal::Kernel { what: "vdso" })?;
        let bytes = self.read(code.start, (code.end - code.start) as usize);
        let bytes = bytes.ok_or_else(|| self.fail("read the memory of"))?;
        let detours = (monitor.lead)(&bytes, code.start, beside).ok_or(Refusal::Kernel {
            what: "vdso that can be led elsewhere",
        })?;
        map(beside, PAGE, runnable, libc::MAP_ANONYMOUS, u64::MAX, 0)?;
        let done = self.take_over(prepared, monitor, fd, leader, maps, (&detours, beside));
        if done.is_err() {
            self.call(leader, libc::SYS_munmap, [beside, PAGE, 0, 0, 0, 0]);
        }
        done
    }

    /// From here on nothing can be refused but by the monitor's first look.
    fn take_over(
        &mut self,
        prepared: &Prepared,
        monitor: &Monitor<'_>,
        fd: u64,
        leader: i32,
        maps: &[Map],
        (detours, beside): (&Detours, u64),
    ) -> Result<(), Refusal> {
        let failed = || self.fail("write to the memory of");
        self.write(beside, &detours.page()).ok_or_else(failed)?;
        let kernels = crate::kernel_pages(maps);
        let mut words = vec![
            fd,
            monitor.image.bytes.len() as u64,
            detours.clock,
            kernels.start,
            kernels.end,
            self.tasks.len() as u64,
            result::NONE,
            beside,
        ];
        let timers = timers_of(prepared);
        words.push(timers.len() as u64);
        let timers = timers
            .into_iter()
            .chain(std::iter::repeat([0; 2]))
            .take(TIMERS);
        words.extend(timers.map(|[kind, id]| u64::from(kind) | u64::from(id) << 32));
        debug_assert_eq!(words.len() * 8, size_of::<Adoption>());
        let rooms = self.residues(maps);
        for task in &self.tasks {
            words.extend(self.describe(task, detours, &rooms).ok_or_else(failed)?);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(ADOPTION_BASE, &bytes).ok_or_else(failed)?;
        if !(monitor.is_wanted)() {
            return Err(self.fail("stay with"));
        }
        let slots = self.tasks.len() as u64 * SLOT_SIZE;
        let entries = &monitor.image.entries;
        let ran = self.run(leader, entries.adopt, [0, slots], entries.done);
        let at = std::mem::offset_of!(Adoption, result) as u64;
        let said = self.read(ADOPTION_BASE + at, 8);
        let said = said.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        match (ran, said) {
            (Some(_), Some(result::DONE)) => {}
            (Some(_), Some(result::NO_TID_ADDRESS)) => {
                let what = "PR_GET_TID_ADDRESS";
                return Err(Refusal::Kernel { what });
            }
            (Some(_), Some(result::NO_ROOM)) => {
                return Err(Refusal::Call {
                    pid: self.pid,
                    name: self.name.clone(),
                    errno: libc::ENOMEM,
                });
            }
            _ => return Err(self.fail("bring the monitor into")),
        }
        // They are the kernel's own pages: nobody else sees what is written to them.
        for patch in &detours.patches {
            self.write(patch.at, &patch.new);
        }
        for room in &rooms {
            let len = room.end - room.start;
            self.call(leader, libc::SYS_munmap, [room.start, len, 0, 0, 0, 0]);
        }
        for (slot, task) in (0..).zip(&mut self.tasks) {
            task.regs.rip = entries.adopted;
            task.regs.rdi = SLOTS_BASE + slot * SLOT_SIZE;
            task.regs.orig_rax = u64::MAX;
            task.regs.eflags = 0x202;
            task.mask = u64::MAX;
        }
        Ok(())
    }

    /// Hands a descriptor to the process, as `wanted`: over a pair of sockets that it
    /// makes, of which one end is taken out of it. So it does not matter what it
    /// could open by itself.
    fn hand_over(
        &self,
        leader: i32,
        arena: BorrowedFd<'_>,
        wanted: i32,
        opened: &mut Vec<u64>,
    ) -> Result<u64, Refusal> {
        let room = ADOPTION_BASE;
        let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
        let args = [libc::AF_UNIX as u64, kind, 0, room, 0, 0];
        self.must(leader, libc::SYS_socketpair, args)?;
        let failed = || self.fail("hand a descriptor to");
        let pair = self.read(room, 8).ok_or_else(failed)?;
        let ends: Vec<u64> = pair
            .chunks_exact(4)
            .filter_map(|four| Some(u32::from_le_bytes(four.try_into().ok()?).into()))
            .collect();
        let [ours, theirs] = *ends.as_slice() else {
            return Err(failed());
        };
        opened.extend([ours, theirs]);
        let end = take_descriptor(self.pid, ours as i32).ok_or_else(failed)?;
        send_descriptor(&end, arena).ok_or_else(failed)?;
        // A message with room for one byte and one descriptor.
        let (byte, vector, control) = (room + 0x100, room + 0x110, room + 0x120);
        let message = [0, 0, vector, 1, control, 24, 0];
        let bytes = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        self.write(room, &bytes(&message)).ok_or_else(failed)?;
        self.write(vector, &bytes(&[byte, 1])).ok_or_else(failed)?;
        self.must(leader, libc::SYS_recvmsg, [theirs, room, 0, 0, 0, 0])?;
        let got = self.read(control + 16, 4).ok_or_else(failed)?;
        let got = got.try_into().map_or(-1, i32::from_le_bytes) as u64;
        opened.push(got);
        self.must(leader, libc::SYS_dup2, [got, wanted as u64, 0, 0, 0, 0])?;
        for fd in opened.drain(..) {
            self.call(leader, libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        }
        opened.push(wanted as u64);
        Ok(wanted as u64)
    }

    /// What the monitor is told of a thread.
    fn describe(&self, task: &Task, detours: &Detours, rooms: &[Map]) -> Option<Vec<u64>> {
        let mut task = task.clone();
        // It may be in what is left of a call that it was in when the monitor left before.
        let residue = self.residue_at(rooms, task.regs.rip);
        let left = residue.and_then(|residue| residue.leave(&mut task.regs, task.stopped_ns));
        let (mut regs, is_call) = where_it_goes_on(&task.regs);
        let (waited, done) = match left {
            Some(known) => known,
            None if is_call && waits_anew(regs.rax) => (task.waited.unwrap_or(0), 0),
            None => (0, 0),
        };
        regs.rip = detours.moved(regs.rip);
        let is_call = is_call && can_end(&task.regs);
        let mut words = vec![task.tid as u64, task.mask, waited, task.stopped_at];
        words.extend([is_call.into(), done]);
        words.extend(regs::xmm(task.tid)?.into_iter().flatten());
        words.push(0);
        words.extend([
            regs.r15, regs.r14, regs.r13, regs.r12, regs.rbp, regs.rbx, regs.r11, regs.r10,
            regs.r9, regs.r8, regs.rax, regs.rcx, regs.rdx, regs.rsi, regs.rdi,
        ]);
        words.extend([regs.rax, regs.rip, regs.eflags, regs.rsp]);
        debug_assert_eq!(words.len() * 8, size_of::<Adopted>());
        Some(words)
    }
}

/// Where a thread goes on that was stopped: one that was taken out of a call makes it
/// again, by the monitor this time. Whether it does.
fn where_it_goes_on(regs: &Regs) -> (Regs, bool) {
    let is_call = is_broken_off(regs);
    let mut regs = *regs;
    if is_call {
        regs.rax = regs.orig_rax;
        regs.rip -= 2;
    }
    (regs, is_call)
}

/// Whether a signal can end a call that a thread was taken out of: some are always begun
/// again.
fn can_end(regs: &Regs) -> bool {
    const ERESTARTNOINTR: i64 = 513;
    -(regs.rax as i64) != ERESTARTNOINTR
}

/// Whether a call that is made again would wait for all of its time again: some have
/// written down what is left of it.
fn waits_anew(number: u64) -> bool {
    !matches!(
        i64::try_from(number).unwrap_or(-1),
        libc::SYS_select | libc::SYS_pselect6 | libc::SYS_ppoll
    )
}

/// The kernel's vdso, and a free page within reach of it.
fn beside_vdso(maps: &[Map]) -> Option<(&Map, u64)> {
    const FAR: u64 = 0x7000_0000;
    const STEP: u64 = 0x1_0000;
    let vdso = maps.iter().find(|map| map.name == "[vdso]")?;
    let is_free = |at: u64| {
        // Stacks grow: a gap is kept.
        let (start, end) = (at.saturating_sub(STEP), at + PAGE + STEP);
        maps.iter().all(|map| map.end <= start || map.start >= end)
    };
    let limit = 0x7fff_ffff_f000;
    let above = (1..FAR / STEP).map(|step| vdso.end + step * STEP);
    let above = above.take_while(|at| at + PAGE + STEP < limit);
    // The main stack lies below, and may grow by some megabytes: further away first.
    let below = (0x1000..FAR / STEP).map(|step| vdso.start.saturating_sub(step * STEP));
    let at = above.chain(below).find(|at| is_free(*at))?;
    Some((vdso, at))
}

/// The timers of a process that is stopped, by kind and id.
fn timers_of(prepared: &Prepared) -> Vec<[u32; 2]> {
    let pid = prepared.pid;
    let text = read_proc(&format!("/proc/{pid}/timers")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let ids = text.lines().filter_map(|line| line.strip_prefix("ID:"));
    let ids = ids.filter_map(|id| id.trim().parse().ok());
    let posix = ids.map(|id| [timer::POSIX, id]);
    let now = descriptors_of(pid, &prepared.descriptors);
    let timers = now.iter().filter(|(_, is_timer)| **is_timer);
    let timers = timers.map(|(fd, _)| [timer::DESCRIPTOR, *fd]);
    posix.chain(timers).take(TIMERS).collect()
}

/// The descriptors of a process, and whether each is a timer. Those that are known are
/// not looked at again.
fn descriptors_of(pid: i32, known: &BTreeMap<u32, bool>) -> BTreeMap<u32, bool> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    let descriptors = entries.filter_map(|entry| {
        let fd: u32 = entry.file_name().to_str()?.parse().ok()?;
        let looked = || {
            let link = std::fs::read_link(entry.path()).ok()?;
            Some(link.as_os_str() == "anon_inode:[timerfd]")
        };
        Some((fd, known.get(&fd).copied().or_else(looked)?))
    });
    descriptors.collect()
}

/// The highest descriptor up to the arena's usual one that is free and allowed.
fn free_descriptor(pid: i32) -> Option<i32> {
    let limits = read_proc(&format!("/proc/{pid}/limits")).unwrap_or_default();
    let limits = String::from_utf8_lossy(&limits).into_owned();
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|line| line.split_whitespace().next())
        .and_then(|limit| limit.parse::<i32>().ok())
        .unwrap_or(i32::MAX);
    let is_free = |fd: &i32| std::fs::symlink_metadata(format!("/proc/{pid}/fd/{fd}")).is_err();
    (3..=ARENA_FD.min(soft.saturating_sub(1)))
        .rev()
        .find(is_free)
}

/// A descriptor of another process, as one of ours.
fn take_descriptor(pid: i32, fd: i32) -> Option<OwnedFd> {
    // SAFETY: plain system calls; each descriptor that they give is owned once.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let process = (process >= 0).then(|| OwnedFd::from_raw_fd(process as i32))?;
        let got = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        (got >= 0).then(|| OwnedFd::from_raw_fd(got as i32))
    }
}

/// Sends a descriptor, with one byte.
fn send_descriptor(to: &OwnedFd, fd: BorrowedFd<'_>) -> Option<()> {
    let mut byte = [0u8];
    let mut vector = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // A header of 16 bytes (its length, SOL_SOCKET, SCM_RIGHTS), and the number.
    let kind = u64::from(libc::SOL_SOCKET as u32) | u64::from(libc::SCM_RIGHTS as u32) << 32;
    let mut control = [20u64, kind, fd.as_raw_fd() as u64];
    // SAFETY: all zero is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = 24;
    // SAFETY: all that the message leads to is on this stack.
    let sent = unsafe { libc::sendmsg(to.as_raw_fd(), &raw const message, 0) };
    (sent == 1).then_some(())
}
