//! Registers, masks and vector state of a thread that is stopped: what ptrace has no
//! safe form for.

use std::mem::MaybeUninit;

pub(crate) type Regs = libc::user_regs_struct;

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
const NT_X86_XSTATE: usize = 0x202;

pub(crate) fn get(tid: i32) -> Option<Regs> {
    let mut regs = MaybeUninit::<Regs>::uninit();
    // SAFETY: the kernel fills the structure, or says that it did not.
    unsafe {
        let answer = libc::ptrace(libc::PTRACE_GETREGS, tid, 0, regs.as_mut_ptr());
        (answer == 0).then(|| regs.assume_init())
    }
}

pub(crate) fn set(tid: i32, regs: &Regs) -> Option<()> {
    // SAFETY: the kernel reads the structure.
    let answer = unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0, &raw const *regs) };
    (answer == 0).then_some(())
}

/// The low halves of the vector registers.
pub(crate) fn xmm(tid: i32) -> Option<[[u64; 2]; 16]> {
    let mut regs = MaybeUninit::<libc::user_fpregs_struct>::uninit();
    // SAFETY: as in `get`.
    let regs = unsafe {
        let answer = libc::ptrace(libc::PTRACE_GETFPREGS, tid, 0, regs.as_mut_ptr());
        (answer == 0).then(|| regs.assume_init())?
    };
    let mut words = [[0; 2]; 16];
    for (to, from) in words.iter_mut().flatten().zip(regs.xmm_space.chunks(2)) {
        if let [low, high] = from {
            *to = u64::from(*low) | u64::from(*high) << 32;
        }
    }
    Some(words)
}

/// All of the vector state, as XSAVE lays it out.
pub(crate) fn xstate(tid: i32) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; 16 * 1024];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes no more than the vector says, and how much it was.
    let answer =
        unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut vector) };
    bytes.truncate(vector.iov_len);
    (answer == 0).then_some(bytes)
}

pub(crate) fn set_xstate(tid: i32, bytes: &[u8]) -> Option<()> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel only reads what the vector leads to.
    let answer =
        unsafe { libc::ptrace(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, &raw mut vector) };
    (answer == 0).then_some(())
}

/// The mask of a thread: the one that it has when a call that set another for itself
/// is over.
pub(crate) fn mask(tid: i32) -> Option<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes eight bytes, as it is told.
    let answer = unsafe { libc::ptrace(PTRACE_GETSIGMASK, tid, 8, &raw mut mask) };
    (answer == 0).then_some(mask)
}

pub(crate) fn set_mask(tid: i32, mask: u64) -> Option<()> {
    // SAFETY: the kernel reads eight bytes, as it is told.
    let answer = unsafe { libc::ptrace(PTRACE_SETSIGMASK, tid, 8, &raw const mask) };
    (answer == 0).then_some(())
}

/// Whether a thread has asked for its own system calls to be told. (Kernels before 6.4
/// do not say.)
pub(crate) fn dispatches(tid: i32) -> bool {
    let mut config = [0u64; 4];
    // SAFETY: the kernel writes as many bytes as it is told.
    let answer = unsafe {
        let (number, size) = (
            PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
            size_of_val(&config),
        );
        libc::ptrace(number, tid, size, config.as_mut_ptr())
    };
    answer == 0 && config[0] != 0
}
