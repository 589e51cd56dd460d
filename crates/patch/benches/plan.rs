//! How long one plan takes, over all sites of the system's libc with windows of 64 KiB, and
//! the search for jumps alone, over a window without any.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use iced_x86::Mnemonic;
use patch::{Code, plan};

const ROUNDS: u32 = 50;

fn main() {
    for text in common::libraries(&["libc.so.6"]) {
        let sites: Vec<u64> = text
            .instructions()
            .filter(|inst| inst.mnemonic() == Mnemonic::Syscall)
            .map(|inst| inst.ip())
            .collect();
        let mut times: Vec<Duration> = sites
            .iter()
            .map(|&site| best(|| plan(black_box(text.window(site)), site).is_ok()))
            .collect();
        times.sort();
        if let [fastest, .., slowest] = times[..] {
            let median = times[times.len() / 2];
            println!(
                "{}: {} sites, a plan takes {median:?} (median), {fastest:?} to {slowest:?}",
                text.name,
                times.len()
            );
        }
    }

    // `syscall; cmp rax, ...` in the midst of 64 KiB of zeros: one search over all of it.
    let mut bytes = vec![0_u8; 64 << 10];
    let offset = bytes.len() / 2;
    bytes[offset..offset + 6].copy_from_slice(&[0x0f, 0x05, 0x48, 0x83, 0xf8, 0xff]);
    let code = Code {
        base: 0x10_0000,
        bytes: &bytes,
    };
    let site = code.base + offset as u64;
    let time = best(|| plan(black_box(code), site).is_ok());
    println!("64 KiB without jumps: {time:?}");
}

/// The shortest of some rounds, which is the one that nothing else disturbed.
fn best(mut work: impl FnMut() -> bool) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed()
        })
        .min()
        .unwrap_or_default()
}
