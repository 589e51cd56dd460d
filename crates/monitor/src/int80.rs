//! 32-bit calls (`int 0x80`) in a 64-bit program.
//!
//! Their numbers are others, and most structures, too. Those that take only
//! numbers, strings and bytes are the same calls by another name: they are made
//! by that. The rest is refused, as by a kernel that has no such call.

use protocol::syscall::INT80;

use crate::arch::Regs;
use crate::recorder::{self, topic};
use crate::state::Thread;
use crate::{call, filter, log, mode, replay, sys};

/// `(number in the 32-bit table, in ours)`.
const SAME: &[(u16, u16)] = &[
    (1, 60),    // exit
    (3, 0),     // read
    (4, 1),     // write
    (5, 2),     // open
    (6, 3),     // close
    (7, 61),    // waitpid, which is wait4 without its last argument
    (8, 85),    // creat
    (9, 86),    // link
    (10, 87),   // unlink
    (12, 80),   // chdir
    (15, 90),   // chmod
    (20, 39),   // getpid
    (27, 37),   // alarm
    (33, 21),   // access
    (36, 162),  // sync
    (37, 62),   // kill
    (38, 82),   // rename
    (39, 83),   // mkdir
    (40, 84),   // rmdir
    (41, 32),   // dup
    (42, 22),   // pipe
    (60, 95),   // umask
    (61, 161),  // chroot
    (63, 33),   // dup2
    (64, 110),  // getppid
    (65, 111),  // getpgrp
    (66, 112),  // setsid
    (83, 88),   // symlink
    (85, 89),   // readlink
    (91, 11),   // munmap
    (94, 91),   // fchmod
    (118, 74),  // fsync
    (125, 10),  // mprotect
    (132, 121), // getpgid
    (133, 81),  // fchdir
    (143, 73),  // flock
    (147, 124), // getsid
    (148, 75),  // fdatasync
    (158, 24),  // sched_yield
    (183, 79),  // getcwd
    (199, 102), // getuid
    (200, 104), // getgid
    (201, 107), // geteuid
    (202, 108), // getegid
    (224, 186), // gettid
    (238, 200), // tkill
    (252, 231), // exit_group
    (270, 234), // tgkill
    (295, 257), // openat
    (296, 258), // mkdirat
    (301, 263), // unlinkat
    (307, 269), // faccessat
    (328, 290), // eventfd2
    (329, 291), // epoll_create1
    (330, 292), // dup3
    (331, 293), // pipe2
    (355, 318), // getrandom
    (356, 319), // memfd_create
];

/// A call was made so.
#[cold]
#[inline(never)]
pub fn perform(thread: &Thread, regs: &mut Regs, site: u64) {
    // Unlike `syscall`, the instruction changes nothing but rax.
    regs.rcx = thread.saved_rcx.get();
    let number = regs.rax & 0xffff_ffff;
    let args =
        [regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp].map(|arg| arg & 0xffff_ffff);
    let named = INT80 | number;
    let answer = mode::answer(
        || filter::judged(thread, number, &args, site, true),
        || replay::filtered(thread, named),
    );
    let same = SAME.iter().find(|(old, _)| u64::from(*old) == number);
    if let Some(answer) = answer {
        call::do_not_make(thread, regs, (named, &args, 6), answer, site);
    } else if let Some((old, new)) = same {
        let mut args = args;
        if *old == 7 {
            args[3] = 0;
        }
        // To whoever looks, this is the call.
        thread.call.set(u64::from(*new) + 1);
        call::perform(thread, regs, site, u64::from(*new), args);
    } else {
        log::done(log::call(thread, named, &args, 6, -sys::ENOSYS, 0));
        let text = b"a 32-bit system call (int 0x80) was made: the program got ENOSYS";
        recorder::note(thread, topic::INT80, 1, text);
        regs.rax = -sys::ENOSYS as u64;
    }
}
