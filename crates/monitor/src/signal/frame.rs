//! Frames on the program's stack, in the kernel's own form: built when a signal
//! is delivered, read when its handler returns. Ours, so that replay builds the
//! same.

use crate::arch::{self, Regs};
use crate::place::{FLAGS, RIP, RSP};
use crate::state::{Action, AltStack, Thread, space};
use crate::{log, mem, patcher, sys};

use super::calls::set_alt;
use super::fault::force_segv_here;
use super::{SA_ONSTACK, SS_AUTODISARM, SS_DISABLE, UContext, UNCATCHABLE, kernel_mask};

pub(super) struct Frame {
    pub(super) sp: u64,
    pub(super) context: u64,
    pub(super) info: u64,
}

/// Builds the frame a handler expects, in the kernel's own form. `save` writes
/// the floating-point state to the address it is given.
pub(super) fn build(
    thread: &Thread,
    action: &Action,
    info: &[u64; 16],
    context: &UContext,
    save: impl FnOnce(u64) -> bool,
) -> Option<Frame> {
    let alt = thread.alt.get();
    let rsp = context.gregs[RSP];
    let on_alt = rsp > alt.sp && rsp - alt.sp <= alt.size;
    let mut sp = rsp - 128;
    if action.flags & SA_ONSTACK != 0 && alt.size != 0 && !on_alt {
        sp = alt.sp + alt.size;
    }
    let xsize = u64::from(space().xstate_size.get());
    let fp = (sp - xsize - 4) & !63;
    let frame = ((fp - 440) & !15) - 8;
    if mem::is_ours(frame, sp - frame) || !save(fp) {
        return None;
    }
    let mut uc = *context;
    uc.flags = 7;
    uc.link = 0;
    uc.stack = AltStack {
        sp: alt.sp,
        flags: if alt.size == 0 {
            SS_DISABLE
        } else {
            alt.flags & SS_AUTODISARM
        },
        size: alt.size,
    };
    uc.segments = [0x33, 0, 0, 0x2b];
    uc.fpstate = fp;
    uc.reserved = [0; 8];
    if !mem::write(frame, &action.restorer)
        || !mem::write(frame + 8, &uc)
        || !mem::write(frame + 8 + 304, info)
    {
        return None;
    }
    if alt.flags & SS_AUTODISARM != 0 {
        thread.alt.set(AltStack {
            sp: 0,
            flags: 0,
            size: 0,
        });
    }
    Some(Frame {
        sp: frame,
        context: frame + 8,
        info: frame + 312,
    })
}

/// Puts an XSAVE image into a frame. The processor stores what it likes about
/// registers that nobody uses, and nothing between the parts; here equal
/// registers make equal bytes, in recording and replay.
pub(super) fn place_xstate(fp: u64, image: u64) -> bool {
    let size = u64::from(space().xstate_size.get());
    // Touch it all first: a stack that has no room is reported, not followed.
    if !mem::fill_zero(fp, size + 4) {
        return false;
    }
    let mut stored = 0u64;
    mem::copy((&raw mut stored) as u64, image + 512, 8);
    let mut in_use = 0u64;
    for (number, part) in space().xstate_parts.iter().enumerate() {
        let (start, len) = part.get();
        // Of the first, the registers: what it says about the last instruction
        // is of no use.
        let (start, len) = match number {
            0 => (32, 128),
            1 => (160, 256),
            _ => (u64::from(start), u64::from(len)),
        };
        if part.get().1 != 0 && stored & 1 << number != 0 && !is_zero(image + start, len) {
            in_use |= 1 << number;
            mem::copy(fp + start, image + start, len);
        }
    }
    // Control, status and tags of the x87.
    const FRESH: u64 = 0x37f;
    let mut words = [FRESH, 0, 0, 0];
    if stored & 1 != 0 {
        mem::copy(words.as_mut_ptr() as u64, image, 5);
        in_use |= u64::from(words[0] != FRESH);
    }
    // MXCSR and which bits of it there are.
    mem::copy((&raw mut words[3]) as u64, image + 24, 8);
    mem::write(fp, &words) && mem::write(fp + 512, &in_use) && mark_xstate(fp)
}

/// Whether memory of the monitor's own is all zero.
fn is_zero(from: u64, len: u64) -> bool {
    let mut word = 0u64;
    (0..len / 8).all(|i| mem::copy((&raw mut word) as u64, from + 8 * i, 8) && word == 0)
}

/// The bytes after an XSAVE image that tell its extent.
fn mark_xstate(fp: u64) -> bool {
    let size = space().xstate_size.get();
    let mask = space().xstate_mask.get();
    let marks = [
        0x4650_5853 | u64::from(size + 4) << 32,
        mask,
        u64::from(size),
        0,
        0,
        0,
    ];
    mem::write(fp + 464, &marks) && mem::write(fp + u64::from(size), &0x4650_5845u32)
}

/// The mask that comes back when the handler returns.
pub(super) fn mask_to_save(thread: &Thread) -> u64 {
    if thread.has_saved_mask.get() != 0 {
        thread.saved_mask.get()
    } else {
        thread.mask.get()
    }
}

/// In the order of `UContext`.
pub fn general_of(regs: &Regs, rip: u64) -> [u64; 18] {
    [
        regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rdi,
        regs.rsi, regs.rbp, regs.rbx, regs.rdx, regs.rax, regs.rcx, regs.rsp, rip, regs.flags,
    ]
}

/// The other way; not where the program goes on, nor its flags.
pub fn put_general(regs: &mut Regs, g: &[u64; 18]) {
    [regs.r8, regs.r9, regs.r10, regs.r11] = [g[0], g[1], g[2], g[3]];
    [regs.r12, regs.r13, regs.r14, regs.r15] = [g[4], g[5], g[6], g[7]];
    [regs.rdi, regs.rsi, regs.rbp, regs.rbx] = [g[8], g[9], g[10], g[11]];
    [regs.rdx, regs.rax, regs.rcx, regs.rsp] = [g[12], g[13], g[14], g[15]];
}

/// `rt_sigreturn`: back to where a handler's frame says.
pub fn sigreturn(thread: &Thread, regs: &mut Regs) {
    log::done(log::call(
        thread,
        sys::nr::RT_SIGRETURN,
        &regs.args(),
        0,
        0,
        0,
    ));
    let Some(context) = mem::read::<UContext>(regs.rsp) else {
        regs.rax = 0;
        force_segv_here(thread, 0);
        return;
    };
    let g = &context.gregs;
    put_general(regs, g);
    regs.rip = patcher::to_stub(g[RIP]);
    regs.flags = (regs.flags & !0x0005_0dd5) | (g[FLAGS] & 0x0005_0dd5) | 0x202;
    thread.mask.set(context.sigmask & !UNCATCHABLE);
    let mask = space().xstate_mask.get();
    if context.fpstate == 0 {
        // SAFETY: as in `deliver::handle`.
        unsafe {
            arch::xrstor(
                (&raw const space().initial_xstate) as u64,
                &raw mut regs.xmm,
                mask,
            );
        }
    } else if !restore_xstate(regs, context.fpstate, mask) {
        regs.rax = 0;
        force_segv_here(thread, 0);
    }
    let alt = context.stack;
    set_alt(thread, &alt, regs.rsp);
    sys::signal_mask(kernel_mask(thread.mask.get()));
}

/// False: it is none.
fn restore_xstate(regs: &mut Regs, fp: u64, mask: u64) -> bool {
    let marks = mem::read::<[u64; 2]>(fp + 464);
    let readable = mem::is_readable(fp, 576);
    let Some(marks) = marks.filter(|_| readable && fp & 63 == 0) else {
        return false;
    };
    let extended = marks[0] as u32 == 0x4650_5853;
    let parts = if extended { marks[1] & mask } else { 3 };
    if extended && !mem::is_readable(fp, u64::from(space().xstate_size.get())) {
        return false;
    }
    if !extended {
        // A frame made by hand: the old form, without the header.
        mem::write(fp + 512, &[3u64, 0, 0, 0, 0, 0, 0, 0]);
    }
    // The program may have written nonsense into the header: the processor
    // would fault on reserved bits.
    let header = mem::read::<[u64; 8]>(fp + 512).unwrap_or([0; 8]);
    if header[0] & !mask != 0 || header[1..].iter().any(|w| *w != 0) {
        return false;
    }
    // SAFETY: aligned, readable, and with a valid header.
    unsafe { arch::xrstor(fp, &raw mut regs.xmm, parts) };
    true
}
