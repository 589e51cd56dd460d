//! A replaying process touches nothing outside of itself, and the kernel sees
//! to it: a filter lets through the calls about the process's own memory,
//! signals and copies, the reading of captured files, and last words. Any
//! other ends the process with a report.

use protocol::replay::FILES_FD;

use crate::sys::{self, nr};

/// How captured files are opened: to be read, `O_CLOEXEC`.
pub const OPEN_FLAGS: u64 = 0o2000000;

/// `si_code` of the SIGSYS for a call that the filter stops.
pub const SYS_SECCOMP: i32 = 1;

const PR_SET_PDEATHSIG: u32 = 1;
const PR_SET_TSC: u32 = 26;
const PR_SET_SYSCALL_USER_DISPATCH: u32 = 59;

/// Calls that change nothing but this process.
const OWN: [u64; 22] = [
    nr::MMAP,
    nr::MUNMAP,
    nr::MPROTECT,
    nr::MREMAP,
    nr::MADVISE,
    nr::ARCH_PRCTL,
    nr::RT_SIGACTION,
    nr::RT_SIGPROCMASK,
    nr::RT_SIGRETURN,
    nr::SIGALTSTACK,
    nr::FUTEX,
    nr::EXIT_GROUP,
    nr::EXIT,
    nr::CLOSE,
    nr::GETPID,
    nr::GETTID,
    nr::GETPPID,
    nr::SET_ROBUST_LIST,
    nr::SET_TID_ADDRESS,
    nr::PERF_EVENT_OPEN,
    nr::USERFAULTFD,
    nr::RESTART_SYSCALL,
];

/// Calls that are let through with this low half of one argument.
const WITH: [(u64, u32, u32); 6] = [
    (nr::WRITE, 0, 2),
    (nr::CLONE, 0, crate::player::FORK_FLAGS as u32),
    (nr::PRCTL, 0, PR_SET_PDEATHSIG),
    (nr::PRCTL, 0, PR_SET_TSC),
    (nr::PRCTL, 0, PR_SET_SYSCALL_USER_DISPATCH),
    (nr::PRLIMIT64, 0, 0),
];

/// An instruction of the kernel's filter language.
#[derive(Clone, Copy)]
#[repr(C)]
struct Step {
    code: u16,
    /// How many steps to skip if so, and if not.
    yes: u8,
    no: u8,
    value: u32,
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
/// SIGSYS: our handler says which call it was.
const TRAP: u32 = 0x0003_0000;
const KILL: u32 = 0x8000_0000;

struct Filter {
    steps: [Step; 96],
    len: u16,
}

impl Filter {
    fn add(&mut self, code: u16, value: u32, yes: u8, no: u8) {
        self.steps[usize::from(self.len)] = Step {
            code,
            yes,
            no,
            value,
        };
        self.len += 1;
    }

    fn load_number(&mut self) {
        self.add(LOAD, 0, 0, 0);
    }

    fn load_argument(&mut self, index: u32) {
        self.add(LOAD, 16 + 8 * index, 0, 0);
    }
}

/// From here on, for this process and its copies.
pub fn begin() {
    const X86_64: u32 = 0xc000_003e;
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    const SET_MODE_FILTER: u64 = 1;
    let nothing = Step {
        code: RETURN,
        yes: 0,
        no: 0,
        value: KILL,
    };
    let mut filter = Filter {
        steps: [nothing; 96],
        len: 0,
    };
    filter.add(LOAD, 4, 0, 0);
    filter.add(EQUAL, X86_64, 1, 0);
    filter.add(RETURN, KILL, 0, 0);
    filter.load_number();
    for number in OWN {
        filter.add(EQUAL, number as u32, 0, 1);
        filter.add(RETURN, ALLOW, 0, 0);
    }
    for (number, index, value) in WITH {
        filter.add(EQUAL, number as u32, 0, 4);
        filter.load_argument(index);
        filter.add(EQUAL, value, 0, 1);
        filter.add(RETURN, ALLOW, 0, 0);
        filter.load_number();
    }
    // Captured files, and only to be read.
    filter.add(EQUAL, nr::OPENAT as u32, 0, 5);
    filter.load_argument(0);
    filter.add(EQUAL, FILES_FD as u32, 0, 3);
    filter.load_argument(2);
    filter.add(EQUAL, OPEN_FLAGS as u32, 0, 1);
    filter.add(RETURN, ALLOW, 0, 0);
    // Requests about breakpoints, and about guarded pages.
    filter.load_number();
    filter.add(EQUAL, nr::IOCTL as u32, 0, 5);
    filter.load_argument(1);
    filter.add(AND, 0xff00, 0, 0);
    filter.add(EQUAL, 0x2400, 1, 0);
    filter.add(EQUAL, 0xaa00, 0, 1);
    filter.add(RETURN, ALLOW, 0, 0);
    filter.add(RETURN, TRAP, 0, 0);
    let program = [u64::from(filter.len), filter.steps.as_ptr() as u64];
    sys::call(nr::PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
    let program = program.as_ptr() as u64;
    let done = sys::call(nr::SECCOMP, SET_MODE_FILTER, 0, program, 0, 0, 0);
    if done < 0 {
        sys::die_number(b"replay cannot be confined, error", -done as u64);
    }
}
