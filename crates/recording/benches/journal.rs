//! How fast a log is compressed and read, and how small it gets, on a log
//! like that of a key-value server under load.
//!
//! `cargo bench -p recording --bench journal`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use protocol::record::{begin, kind};
use recording::synthetic::{LogBuilder, manifest};
use recording::{Recording, Writer};

const REQUESTS: u64 = 300_000;

fn server_log() -> Vec<Vec<u8>> {
    let mut log = LogBuilder::new(0, 1 << 18);
    log.other(kind::BEGIN, &[begin::FIRST, 0, 0, 100, 0, 0], &[]);
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut time = 1000;
    let mut event = [0u8; 12];
    for _ in 0..REQUESTS / 5 {
        time += 300 + random(200);
        log.at(time)
            .start(232, &[5, 0x7f12_3450_0000, 10128, 100], &[]);
        let mut events = Vec::new();
        for client in 0..5u8 {
            event[0] = 1;
            event[4] = 8 + (client * 3 + random(4) as u8) % 20;
            events.extend(event);
        }
        time += random(2000);
        log.at(time).end(232, 5, &[(1, &events)]);
        for client in 0..5 {
            let fd = 8 + (client * 3 + random(4)) % 20;
            time += 100 + random(60);
            let get = format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{:012}\r\n", random(100_000));
            log.at(time)
                .start(0, &[fd, 0x7f12_4000_0000 + fd * 0x5000, 16384], &[]);
            time += 30 + random(20);
            log.at(time)
                .end(0, get.len() as i64, &[(1, get.as_bytes())]);
            time += 60 + random(40);
            log.at(time).start(
                1,
                &[fd, 0x7f12_5000_0000 + fd * 0x5000, 9],
                &[(1, b"$3\r\nxxx\r\n")],
            );
            time += 150 + random(80);
            log.at(time).end(1, 9, &[]);
        }
    }
    log.chunks()
}

fn main() {
    let chunks = server_log();
    let raw: usize = chunks.iter().map(Vec::len).sum();
    let events = REQUESTS / 5 * 2 + REQUESTS * 4 + 1;
    println!(
        "{events} events, {raw} bytes, {:.1} an event",
        raw as f64 / events as f64
    );
    for level in [-3, -1, 1, 2, 3, 4] {
        let mut compressor = zstd::bulk::Compressor::new(level).unwrap();
        let begun = Instant::now();
        let small: usize = chunks
            .iter()
            .map(|c| compressor.compress(c).unwrap().len())
            .sum();
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "zstd {level:>2}: {:>6.0} MB/s, {:>5.2} bytes an event, {:>5.1} million events/s",
            raw as f64 / seconds / 1e6,
            small as f64 / events as f64,
            events as f64 / seconds / 1e6
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &manifest(&["server"])).unwrap();
    let begun = Instant::now();
    for chunk in &chunks {
        writer.chunk(chunk).unwrap();
    }
    println!("written in {:?}", begun.elapsed());
    let begun = Instant::now();
    let recording = Recording::open(dir.path()).unwrap();
    println!("opened in {:?}", begun.elapsed());
    let begun = Instant::now();
    let mut log = recording.log(protocol::id::ProcessNo(0));
    let (mut count, mut sum) = (0u64, 0u64);
    while log.advance() {
        let event = log.event().unwrap();
        sum = sum.wrapping_add(event.time.0);
        count += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(count, events);
    println!(
        "read: {:.1} million events/s ({sum:x})",
        count as f64 / seconds / 1e6
    );
}
