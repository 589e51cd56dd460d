//! `bench-mutex N`: four threads add to one number behind one mutex, N times each, with a little
//! work inside the lock and a little outside. Prints `elapsed_ns T`.

use std::hint::black_box;
use std::process::exit;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;

const THREADS: u64 = 4;
const WORK_INSIDE: u32 = 10;
const WORK_OUTSIDE: u32 = 50;

fn main() {
    let Some(Ok(count)) = std::env::args().nth(1).map(|count| count.parse::<u64>()) else {
        eprintln!("usage: bench-mutex N");
        exit(2);
    };
    let total = Mutex::new(0u64);
    let start_line = Barrier::new(THREADS as usize + 1);
    let start = thread::scope(|scope| {
        for thread in 0..THREADS {
            let (total, start_line) = (&total, &start_line);
            scope.spawn(move || {
                let mut state = thread;
                start_line.wait();
                for _ in 0..count {
                    state = work(state, WORK_OUTSIDE);
                    if let Ok(mut total) = total.lock() {
                        state = work(state, WORK_INSIDE);
                        *total += 1;
                    }
                }
                black_box(state);
            });
        }
        start_line.wait();
        Instant::now()
    });
    let elapsed = start.elapsed();
    let total = total.into_inner().unwrap_or(0);
    if total != THREADS * count {
        eprintln!("bench-mutex: {total} additions, not {}", THREADS * count);
        exit(1);
    }
    println!("elapsed_ns {}", elapsed.as_nanos());
}

fn work(mut state: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        state = black_box(state.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    state
}
