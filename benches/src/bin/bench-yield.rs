//! `bench-yield THREADS N`: so many threads do nothing but let the others run, N times each.

use std::process::exit;
use std::thread;

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Some(Ok(threads)), Some(Ok(count))) = (words.next(), words.next()) else {
        eprintln!("usage: bench-yield THREADS N");
        exit(2);
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..count).for_each(|_| thread::yield_now()));
        }
    });
}
