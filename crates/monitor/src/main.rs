//! The monitor: the part of Meanwhile that lives inside each process of the
//! program.
//!
//! It sees every system call (at patched sites, or by the kernel's syscall
//! user dispatch), makes it in the program's stead, and appends what happened
//! to a log in memory shared with the recorder. It lets one thread of a
//! process run at a time and decides when signals reach the program, so that
//! the log determines the run.
//!
//! It has no libc, no allocator and no data segment: its state lies in memory
//! that it maps itself at fixed addresses (`state`). It runs on stacks of its
//! own, keeps its per-thread record behind `gs`, and preserves all registers.
#![no_std]
#![no_main]

mod adopt;
mod answers;
mod arch;
mod call;
mod capture;
mod clock;
mod confine;
mod counter;
mod deaths;
mod descriptors;
mod filter;
mod halt;
mod huge;
mod inherit;
mod int80;
mod interruption_search;
mod ioctl;
mod live;
mod lock;
mod log;
mod maps;
mod mem;
mod memory;
mod mode;
mod motion;
mod moved;
mod needs;
mod observe;
mod pads;
mod patcher;
mod pi;
mod place;
mod player;
mod pointer_walk;
mod poke;
mod process;
mod recorder;
mod replay;
mod rounds;
mod scratch;
mod served;
mod sharing;
mod signal;
mod stack;
mod state;
mod sys;
mod time;
mod timers;
mod traps;
mod turn;
mod words;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::die(b"a check failed")
}

const VDSO_LEN: usize = include_bytes!(concat!(env!("OUT_DIR"), "/vdso.so")).len();

#[repr(C, align(4096))]
pub struct Vdso([u8; VDSO_LEN]);

/// The vdso that the program is shown (see vdso.S); the injector looks for it
/// by name.
#[unsafe(no_mangle)]
#[used]
pub static MW_VDSO: Vdso = Vdso(*include_bytes!(concat!(env!("OUT_DIR"), "/vdso.so")));

/// Where the injector sends threads of a process that runs already, and where they
/// say that they are done: it looks for this by name.
#[unsafe(no_mangle)]
#[used]
pub static MW_ENTRIES: [extern "C" fn(); 5] = arch::ENTRIES;
