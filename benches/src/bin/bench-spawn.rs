//! `bench-spawn N`: starts /bin/true and waits for it, N times. Prints `elapsed_ns T`.
//!
//! What one more process costs inside a running recording, without what it costs to begin one.

use std::process::{Command, exit};
use std::time::Instant;

fn main() {
    let Some(Ok(count)) = std::env::args().nth(1).map(|count| count.parse::<u64>()) else {
        eprintln!("usage: bench-spawn N");
        exit(2);
    };
    let start = Instant::now();
    for _ in 0..count {
        match Command::new("/bin/true").status() {
            Ok(status) if status.success() => {}
            other => {
                eprintln!("bench-spawn: /bin/true: {other:?}");
                exit(1);
            }
        }
    }
    println!("elapsed_ns {}", start.elapsed().as_nanos());
}
