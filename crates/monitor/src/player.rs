//! A replay that somebody leads: it stops before the event it was to run to,
//! shows its threads, and waits for what comes next. Forked while it stands
//! still, it leaves a copy behind to come back to.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::replay::{NO_CALL, Player, ThreadView, VIEWS_BASE, command, reason, state};

use crate::arch::Regs;
use crate::state::{Thread, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{mem, patcher, process, replay, sharing};

/// The place of this process among the players, if somebody leads it.
pub fn this() -> Option<&'static Player> {
    let place = space().player.get();
    (place != 0)
        .then(|| &replay::header().players[(place as usize - 1) % protocol::replay::PLAYERS])
}

/// Whether the thread is to stop before the event that comes next.
pub fn is_due(thread: &Thread) -> bool {
    let Some(player) = this() else {
        return false;
    };
    let log = &thread.process().log;
    log.next_event.get() >= player.until.load(Relaxed) && replay::is_watched(thread.process())
}

/// Stops before the event that comes next, if that is wanted.
pub fn stop_if_due(thread: &Thread) {
    while is_due(thread) {
        stop(thread, reason::EVENT);
    }
}

/// So often a command is looked for before it is waited for: some ten
/// microseconds.
const SPINS: u32 = 500;

/// Stops and takes commands; returns when it is to go on.
pub fn stop(thread: &Thread, why: u32) {
    let Some(mut player) = this() else {
        return;
    };
    let views = show_threads(thread);
    sharing::show();
    let tell = |player: &Player| {
        player.pid.store(sys::getpid(), Relaxed);
        player
            .event
            .store(thread.process().log.next_event.get(), Relaxed);
        player.transfers.store(space().transfers.get(), Relaxed);
        let rip = mem::read_at(
            thread.regs_at.get(),
            core::mem::offset_of!(Regs, rip) as u64,
        );
        player.rip.store(patcher::to_program(rip), Relaxed);
        player.thread.store(thread.number.get(), Relaxed);
        player.views.store(views, Relaxed);
        player.maps.store(space().maps.get(), Relaxed);
        let actions = thread.process().actions.iter();
        for (to, action) in player.handlers.iter().zip(actions.skip(1)) {
            to.store(action.get().handler, Relaxed);
        }
        space().code_mapped.set(0);
        player.reason.store(why, Relaxed);
        player.state.store(state::STOPPED, Release);
        sys::futex_wake(&player.state, 1);
    };
    tell(player);
    let mut spins = SPINS;
    loop {
        let order = player.command.load(Acquire);
        match order {
            command::NONE => {
                // The next one mostly comes at once: a breakpoint whose
                // condition does not hold, a step of many.
                if spins != 0 {
                    spins -= 1;
                    core::hint::spin_loop();
                    continue;
                }
                sys::futex_wait(&player.command, command::NONE, 1_000_000_000);
                continue;
            }
            command::RUN => {
                // Whoever said so waits for the next stop, not for this.
                player.command.store(command::NONE, Release);
                return;
            }
            command::FORK => {
                let to = player.fork_to.load(Relaxed);
                let made = fork();
                if made == 0 {
                    space().player.set(to + 1);
                    if let Some(own) = this() {
                        player = own;
                    }
                    tell(player);
                    continue;
                }
                if made < 0 {
                    // A limit on processes or memory: whoever waits for the
                    // copy is told why there is none.
                    let players = &replay::header().players;
                    let copy = &players[to as usize % protocol::replay::PLAYERS];
                    copy.pid.store(made as u32, Relaxed);
                    copy.state.store(state::FREE, Release);
                    sys::futex_wake(&copy.state, 1);
                }
            }
            _ => loop {
                sys::call(nr::EXIT_GROUP, 0, 0, 0, 0, 0, 0);
            },
        }
        player.command.store(command::NONE, Release);
        sys::futex_wake(&player.command, 1);
    }
}

/// `CLONE_PARENT`, and SIGCHLD at its end.
pub const FORK_FLAGS: u64 = 0x8000 | 17;

/// Makes a copy of this process, a child of whoever leads it, and not to
/// outlive that one.
pub fn fork() -> i64 {
    const PR_SET_PDEATHSIG: u64 = 1;
    const SIGKILL: u64 = 9;
    let pid = sys::call(nr::CLONE, FORK_FLAGS, 0, 0, 0, 0, 0);
    if pid == 0 {
        sys::call(nr::PRCTL, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
        // Whoever leads it may have gone just before.
        let leader = i64::from(replay::header().leader.load(Relaxed));
        while sys::call(nr::GETPPID, 0, 0, 0, 0, 0, 0) != leader {
            sys::call(nr::EXIT_GROUP, 1, 0, 0, 0, 0, 0);
        }
        process::watch_calls();
    }
    pid
}

/// Writes down how each thread of this process stands. Returns how many.
fn show_threads(current: &Thread) -> u32 {
    let size = core::mem::size_of::<ThreadView>() as u64;
    let most = u64::from(space().slots_used.get());
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let len = (most * size + 4095) & !4095;
    if space().views_len.get() < len {
        sys::call(nr::MMAP, VIEWS_BASE, len, sys::PROT_RW, flags, u64::MAX, 0);
        space().views_len.set(len);
    }
    let mut fs = 0u64;
    sys::call(nr::ARCH_PRCTL, 0x1003, (&raw mut fs) as u64, 0, 0, 0, 0);
    current.fs_base.set(fs);
    let mut count = 0;
    for slot in 0..space().slots_used.get() {
        let thread = thread_in_slot(slot);
        if thread.tid_word.load(Relaxed) == 0 || !core::ptr::eq(thread.process(), current.process())
        {
            continue;
        }
        let view = view_of(thread);
        let place = VIEWS_BASE + u64::from(count) * size;
        mem::copy(place, (&raw const view) as u64, size);
        count += 1;
    }
    count
}

fn view_of(thread: &Thread) -> ThreadView {
    let mut regs = Regs::ZERO;
    let size = core::mem::size_of::<Regs>() as u64;
    mem::copy((&raw mut regs) as u64, thread.regs_at.get(), size);
    let call = thread.call.get().wrapping_sub(1);
    let rip = patcher::to_program(regs.rip);
    ThreadView {
        number: u64::from(thread.number.get()),
        tid: u64::from(thread.tid.get()),
        call,
        waits: thread.waits.get(),
        regs: [
            regs.r15,
            regs.r14,
            regs.r13,
            regs.r12,
            regs.rbp,
            regs.rbx,
            regs.r11,
            regs.r10,
            regs.r9,
            regs.r8,
            regs.rax,
            regs.rcx,
            regs.rdx,
            regs.rsi,
            regs.rdi,
            if call == NO_CALL { u64::MAX } else { call },
            rip,
            0x33,
            regs.flags,
            regs.rsp,
            0x2b,
            thread.fs_base.get(),
            0,
            0,
            0,
            0,
            0,
        ],
        blocked: thread.mask.get(),
        xmm: regs.xmm,
    }
}
