//! Computes, and says so now and then: `bench-compute TIMES`.

use std::process::ExitCode;

/// What is computed between two calls.
fn stretch(mut state: u64) -> u64 {
    for i in 0..50_000_000u64 {
        state = (state ^ i)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23);
    }
    state
}

fn main() -> ExitCode {
    let Some(times) = std::env::args().nth(1).and_then(|text| text.parse().ok()) else {
        eprintln!("usage: bench-compute TIMES");
        return ExitCode::from(2);
    };
    let mut state = 1;
    for _ in 0u32..times {
        state = stretch(state);
        println!("{state:016x}");
    }
    ExitCode::SUCCESS
}
