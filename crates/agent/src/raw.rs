//! System calls for a process that shares the recorder's memory: those of the C
//! library tell of errors in a place that it would share too.

use std::ffi::c_long;

/// A system call; its result, or minus the error.
///
/// # Safety
/// As for the call itself.
pub unsafe fn call(number: c_long, args: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11, and what the caller knows.
    unsafe {
        std::arch::asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2], in("r10") args[3],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}
