//! `bench-visits N`: calls a function N times, for the debugger to stop in, and makes a system call
//! now and then.

use std::hint::black_box;

#[inline(never)]
fn visit(n: u64) -> u64 {
    let twice = black_box(n) * 2;
    black_box(twice) + 1
}

fn main() {
    let count: u64 = match std::env::args().nth(1).map(|count| count.parse()) {
        Some(Ok(count)) => count,
        _ => {
            eprintln!("usage: bench-visits N");
            std::process::exit(2);
        }
    };
    let mut sum = 0u64;
    for n in 0..count {
        sum = sum.wrapping_add(visit(n));
        if n % 10_000 == 0 {
            println!("{sum}");
        }
    }
    println!("{sum}");
}
