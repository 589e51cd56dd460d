//! The monitor leaves a process, which is halted: each thread gives back what the
//! kernel knows of it, and goes on in the program as if it had never been elsewhere.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use protocol::adoption::{ADOPTION_BASE, Adoption};
use protocol::halt::{Called, LEFT_IN_MEMORY, REGISTERS};
use protocol::layout::{MONITOR_BASE, MONITOR_END, SLOT_SIZE, SLOTS_BASE};

use crate::detours::{Detours, PAGE};
use crate::refusal::Refusal;
use crate::regs::{self, Regs};
use crate::residue::{self, Residue};
use crate::running::{Running, Task};
use crate::slept::now_ns;
use crate::{Image, Map};

/// A thread that is halted, as its entry tells (`protocol::halt::ThreadEntry`).
#[derive(Clone, Debug)]
pub struct Departing {
    pub tid: i32,
    pub slot: u32,
    pub registers: [u64; REGISTERS],
    /// Where the state of the processor is in its memory; 0: the low halves of the
    /// vector registers are with what it made its call with, at `called_at`.
    pub xstate_at: u64,
    pub called_at: u64,
    /// What of a call that it makes again is not as the program has it.
    pub left_arg: u32,
    pub left: [u64; 2],
    pub done: u64,
    /// How long the call had taken then, if it is one with a time limit.
    pub elapsed: u64,
    /// When it stopped, which is when that was so (CLOCK_MONOTONIC, ns).
    pub stopped_ns: u64,
}

impl Departing {
    /// A thread as it is at that moment, when less is left of a call's time.
    fn after(&self, now_ns: u64) -> Departing {
        const SECOND: u64 = 1_000_000_000;
        let passed = now_ns.saturating_sub(self.stopped_ns);
        let [first, second] = self.left;
        let left = match self.left_arg & LEFT_IN_MEMORY {
            0 => [first.saturating_sub(passed / 1_000_000), second],
            _ => {
                let unit = self.unit();
                let left = (first * SECOND + second * unit).saturating_sub(passed);
                [left / SECOND, left % SECOND / unit]
            }
        };
        Departing {
            left,
            elapsed: self.elapsed + passed,
            ..self.clone()
        }
    }

    /// How many nanoseconds the second word of what is left counts.
    fn unit(&self) -> u64 {
        match self.number() == libc::SYS_select {
            true => 1000,
            false => 1,
        }
    }

    /// The call that it is before.
    fn number(&self) -> i64 {
        const RAX: usize = 13;
        self.registers.get(RAX).copied().unwrap_or(0) as i64
    }

    /// Where what is left of its time belongs, if the kernel would write it there itself
    /// when somebody stops the thread.
    fn left_at(&self, regs: &Regs, maps: &[Map]) -> Option<u64> {
        const WRITABLE: u32 = 2;
        let says = [libc::SYS_select, libc::SYS_pselect6, libc::SYS_ppoll];
        let arg = (self.left_arg & !LEFT_IN_MEMORY).checked_sub(1)?;
        let at = residue::argument(&mut regs.clone(), arg).copied()?;
        let is_writable =
            |map: &Map| map.start <= at && at + 16 <= map.end && map.prot & WRITABLE != 0;
        let is_it = self.left_arg & LEFT_IN_MEMORY != 0 && says.contains(&self.number());
        (is_it && maps.iter().any(is_writable)).then_some(at)
    }
}

/// What a thread is left with.
struct Left {
    regs: Regs,
    xstate: Vec<u8>,
    mask: u64,
}

/// Takes the monitor out of a process all of whose threads are halted. How long it
/// stood still for that.
pub fn depart(
    pid: i32,
    image: &Image,
    arena: BorrowedFd<'_>,
    threads: &[Departing],
) -> Result<Duration, Refusal> {
    let mut running = Running::stop(pid)?;
    let maps = running.maps()?;
    let vdso = maps.iter().find(|map| map.name == "[vdso]");
    let vdso = vdso.ok_or(Refusal::Kernel { what: "vdso" })?;
    // The call by which a thread says that it is done.
    running.use_gate(image.entries.done - 2);
    let of = |task: &Task| threads.iter().find(|thread| thread.tid == task.tid);
    let plans: Option<Vec<(Task, &Departing)>> = running
        .tasks
        .iter()
        .map(|task| Some((task.clone(), of(task)?)))
        .collect();
    let Some(plans) = plans else {
        // A thread that has no entry is on its way into the program, or out of it.
        return Err(running.fail("halt all threads of"));
    };
    let mut left = Vec::new();
    for (task, thread) in &plans {
        let state = running.state_of(task, thread);
        left.push(state.ok_or_else(|| running.fail("read the memory of"))?);
    }
    let told: Vec<Option<u64>> = plans
        .iter()
        .zip(&left)
        .map(|((_, thread), left)| thread.left_at(&left.regs, &maps))
        .collect();
    let needs = plans
        .iter()
        .zip(&told)
        .any(|((_, thread), told)| thread.done != 0 || thread.left_arg != 0 && told.is_none());
    let room = match needs {
        true => Some(running.make_room(&plans)?),
        false => None,
    };
    let fd = descriptor_of(pid, arena);
    let is_adopted = maps.iter().any(|map| map.start == ADOPTION_BASE);
    let detours = running.detours(is_adopted);
    // From here on there is no way back.
    let slot = |thread: &Departing| SLOTS_BASE + u64::from(thread.slot) * SLOT_SIZE;
    let entries = &image.entries;
    for ((task, thread), left) in plans.iter().zip(&mut left).skip(1) {
        let ran = running.run(task.tid, entries.depart, [slot(thread), 0], entries.done);
        left.mask = ran
            .ok_or_else(|| running.fail("take the monitor out of"))?
            .rbx;
    }
    if let (Some((task, thread)), Some(left)) = (plans.first(), left.first_mut()) {
        for patch in &detours.patches {
            running.write(patch.at, &patch.original);
        }
        for entry in [entries.depart_process, entries.depart] {
            let ran = running.run(task.tid, entry, [slot(thread), 0], entries.done);
            left.mask = ran
                .ok_or_else(|| running.fail("take the monitor out of"))?
                .rbx;
        }
        running.find_gate(vdso);
        // One that was started with the monitor keeps the functions of its vdso.
        let from = if is_adopted { MONITOR_BASE } else { SLOTS_BASE };
        let len = MONITOR_END - from;
        running.call(task.tid, libc::SYS_munmap, [from, len, 0, 0, 0, 0]);
        if let Some(fd) = fd {
            running.call(task.tid, libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
        }
    }
    let room = room.unwrap_or(0);
    if room != 0 {
        running.write(room, &residue::MARK);
    }
    let each = plans
        .iter()
        .zip(&mut left)
        .zip(told)
        .zip(residue::places(room));
    for ((((_, thread), left), told), place) in each {
        let mut thread = thread.after(now_ns());
        if let Some(at) = told {
            let words = thread.left.iter().flat_map(|word| word.to_le_bytes());
            running.write(at, &words.collect::<Vec<u8>>());
            thread.left_arg = 0;
        }
        if let Some(residue) = Residue::of(&thread, place, &mut left.regs, now_ns()) {
            running.write(place, &residue.bytes());
        }
    }
    for (task, left) in running.tasks.iter_mut().zip(left) {
        regs::set_xstate(task.tid, &left.xstate);
        task.regs = left.regs;
        task.mask = left.mask;
    }
    Ok(running.release())
}

impl Running {
    /// What a thread is to go on with.
    fn state_of(&self, task: &Task, thread: &Departing) -> Option<Left> {
        let mut regs = task.regs;
        let g = &thread.registers;
        [regs.r8, regs.r9, regs.r10, regs.r11] = [g[0], g[1], g[2], g[3]];
        [regs.r12, regs.r13, regs.r14, regs.r15] = [g[4], g[5], g[6], g[7]];
        [regs.rdi, regs.rsi, regs.rbp, regs.rbx] = [g[8], g[9], g[10], g[11]];
        [regs.rdx, regs.rax, regs.rcx, regs.rsp] = [g[12], g[13], g[14], g[15]];
        [regs.rip, regs.eflags] = [g[16], g[17]];
        regs.orig_rax = u64::MAX;
        regs.gs_base = 0;
        let mut xstate = regs::xstate(task.tid)?;
        // The kernel keeps notes of its own in the middle of it.
        const NOTES: std::ops::Range<usize> = 464..512;
        const XMM: usize = 160;
        const PARTS: usize = 512;
        const SSE: u8 = 2;
        match thread.xstate_at {
            0 => {
                let at = thread.called_at + std::mem::offset_of!(Called, xmm) as u64;
                let low = self.read(at, 256)?;
                xstate.get_mut(XMM..XMM + 256)?.copy_from_slice(&low);
                *xstate.get_mut(PARTS)? |= SSE;
            }
            at => {
                let image = self.read(at, xstate.len())?;
                for (i, (to, from)) in xstate.iter_mut().zip(image).enumerate() {
                    if !NOTES.contains(&i) {
                        *to = from;
                    }
                }
            }
        }
        Some(Left {
            regs,
            xstate,
            mask: task.mask,
        })
    }

    /// The functions of the vdso that were led to the monitor.
    fn detours(&self, is_adopted: bool) -> Detours {
        let at = std::mem::offset_of!(Adoption, detours) as u64;
        let page = is_adopted
            .then(|| self.read(ADOPTION_BASE + at, 8))
            .flatten();
        let page = page.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let page = page.and_then(|page| self.read(page, PAGE as usize));
        page.map_or_else(Detours::default, |page| Detours::of_page(&page))
    }

    /// Memory for those that make a call again which is not as the program has it.
    fn make_room(&self, plans: &[(Task, &Departing)]) -> Result<u64, Refusal> {
        let leader = plans.first().map_or(self.pid, |(leader, _)| leader.tid);
        let len = residue::size(plans.len());
        let prot = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let args = [0, len.next_multiple_of(PAGE), prot, flags, u64::MAX, 0];
        self.must(leader, libc::SYS_mmap, args)
    }
}

/// The descriptor of a process that leads to the arena.
fn descriptor_of(pid: i32, arena: BorrowedFd<'_>) -> Option<i32> {
    use std::os::unix::fs::MetadataExt;
    let arena = std::fs::metadata(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&arena)
    ));
    let arena = arena.ok()?;
    (3..=protocol::layout::ARENA_FD).rev().find(|fd| {
        let there = std::fs::metadata(format!("/proc/{pid}/fd/{fd}"));
        there.is_ok_and(|there| (there.dev(), there.ino()) == (arena.dev(), arena.ino()))
    })
}
