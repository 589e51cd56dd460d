//! `bench-calls syscall|clock N`: N cheap calls in a loop, and nothing else.
//!
//! `syscall` makes the raw system call getppid, the cheapest there is; `clock` reads the monotonic
//! clock the way every program does, through the vdso. Prints `elapsed_ns T`.

use std::hint::black_box;
use std::process::exit;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (call, count): (fn(), _) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["syscall", count] => (getppid, count.parse::<u64>()),
        ["clock", count] => (read_clock, count.parse::<u64>()),
        _ => usage(),
    };
    let Ok(count) = count else { usage() };
    // The first calls find the way (lazy binding, first trap at a site); they are not what is timed.
    for _ in 0..100 {
        call();
    }
    let start = Instant::now();
    for _ in 0..count {
        call();
    }
    println!("elapsed_ns {}", start.elapsed().as_nanos());
}

fn usage() -> ! {
    eprintln!("usage: bench-calls syscall|clock N");
    exit(2);
}

fn getppid() {
    // SAFETY: getppid takes no arguments and writes no memory.
    black_box(unsafe { libc::syscall(libc::SYS_getppid) });
}

fn read_clock() {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec to write to, alive during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    black_box(now);
}
