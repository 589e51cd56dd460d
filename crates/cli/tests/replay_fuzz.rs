//! Recordings with random changes: whatever they say, the commands end soon,
//! with a message and a status, and the monitor in the replaying process
//! survives what it reads.
//!
//! A short run by default; `scripts/fuzz MINUTES` makes it a long one. Each
//! change follows from a seed, which is printed when something is found;
//! `MW_SEED` begins with it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::programs::program;
use harness::recorded::shell_status;
use harness::rewrite::{self, Parts};
use harness::{MW, Scratch};

/// How long one command may take.
const TIME: Duration = Duration::from_secs(60);
/// How much memory `mw` may take, in KiB. (Not counting what it maps of the
/// file that a replay reads.)
const MEMORY: u64 = 1 << 20;

/// Numbers that look random (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A number as programs and attackers like them.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => self.next() % 4096,
            4 => (1u64 << 47) - self.next() % 8192,
            _ => self.next(),
        }
    }

    fn pick<'a, T>(&mut self, list: &'a mut [T]) -> Option<&'a mut T> {
        let at = self.below(list.len());
        list.get_mut(at)
    }
}

/// Changes bytes: a few flips, a stretch cut out, doubled or overwritten.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len());
    let end = (at + 1 + random.below(16)).min(bytes.len());
    match random.below(6) {
        0..=2 => {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        3 => drop(bytes.drain(at..end)),
        4 => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => {
            for byte in &mut bytes[at..end] {
                *byte = random.next() as u8;
            }
        }
    }
}

/// Changes what a recording says, its checksums right.
fn change_parts(parts: &mut Parts, random: &mut Random) {
    match random.below(10) {
        // Most of all what the monitor reads: records, whole ones too.
        0..=6 => {
            let Some(chunk) = random.pick(&mut parts.chunks) else {
                return;
            };
            let records = chunk.records();
            let one = records.get(random.below(records.len())).copied();
            match (random.below(4), one) {
                (0, Some(place)) => drop(chunk.bytes.drain(place.start..place.end)),
                (1, Some(place)) => {
                    let copy = chunk.bytes[place.start..place.end].to_vec();
                    chunk.bytes.splice(place.start..place.start, copy);
                }
                (2, Some(place)) => {
                    let mut bytes = chunk.bytes[place.start..place.end].to_vec();
                    change(&mut bytes, random);
                    chunk.bytes.splice(place.start..place.end, bytes);
                }
                _ => change(&mut chunk.bytes, random),
            }
            chunk.bytes.truncate(200 << 10);
            chunk.head.used = protocol::shared::CHUNK_HEAD + chunk.bytes.len();
        }
        7 => {
            let number = random.number();
            if let Some(chunk) = random.pick(&mut parts.chunks) {
                match number % 5 {
                    0 => chunk.head.process = number as u32,
                    1 => chunk.head.seq = number as u32,
                    2 => chunk.head.first_event = number,
                    3 => chunk.head.first_time = number,
                    _ => chunk.head.first_thread = number as u32,
                }
            }
        }
        8 => {
            let number = random.number();
            let which = random.below(3);
            let Some(start) = random.pick(&mut parts.starts) else {
                return;
            };
            match which {
                0 => {
                    if let Some(register) = random.pick(&mut start.regs) {
                        *register = number;
                    }
                }
                1 => {
                    if let Some(map) = random.pick(&mut start.maps) {
                        match number % 5 {
                            0 => map.start = number & !4095,
                            1 => map.end = number,
                            2 => map.offset = number & !4095,
                            3 => map.file = Some(number),
                            _ => map.prot = number as u32,
                        }
                    }
                }
                _ => {
                    if let Some(map) = random.pick(&mut start.maps)
                        && let Some(contents) = &mut map.contents
                    {
                        change(contents, random);
                    }
                }
            }
        }
        _ => {
            if let Some(status) = random.pick(&mut parts.statuses) {
                status.wait_status = random.next() as i32;
            }
            parts.manifest.clock.ticks_per_second = random.number();
        }
    }
}

/// Makes a recording out of one.
fn make(from: &Path, to: &Path, random: &mut Random) {
    if random.below(4) != 0 {
        let mut parts = Parts::read(from);
        for _ in 0..=random.below(3) {
            change_parts(&mut parts, random);
        }
        parts.write(from, to);
        return;
    }
    // As a bad disk would: no checksum is right.
    rewrite::copy(from, to);
    let name = match random.below(4) {
        0 => recording::MANIFEST,
        _ => recording::JOURNAL,
    };
    let mut bytes = std::fs::read(to.join(name)).unwrap();
    if random.below(3) == 0 {
        bytes.truncate(random.below(bytes.len()));
    } else {
        change(&mut bytes, random);
    }
    std::fs::write(to.join(name), bytes).unwrap();
}

/// Runs a command; says what is wrong with how it went.
fn run(args: &[&str], dir: &Path, scratch: &Path) -> Result<(), String> {
    let file = |name: &str| scratch.join(name);
    let out = std::fs::File::create(file("out")).unwrap();
    let err = std::fs::File::create(file("err")).unwrap();
    let mut child = Command::new(MW)
        .args(args)
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let mut most = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        most = most.max(anonymous_memory(child.id()));
        if begun.elapsed() > TIME {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it is not over after {TIME:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let said =
        |name: &str| String::from_utf8_lossy(&std::fs::read(file(name)).unwrap()).into_owned();
    let (out, err) = (said("out"), said("err"));
    let code = shell_status(status);
    if !matches!(code, 0..=2) {
        return Err(format!("status {code}\n{err}"));
    }
    if code == 2 && !err.starts_with("mw: ") && !err.contains("\nmw: ") {
        return Err(format!("status 2 without a message\n{err}"));
    }
    for text in ["panicked", "internal error in the monitor"] {
        if out.contains(text) || err.contains(text) {
            return Err(format!("{out}\n{err}"));
        }
    }
    if most > MEMORY {
        return Err(format!("it took {most} KiB of memory"));
    }
    Ok(())
}

fn anonymous_memory(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.trim().split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn changed_recordings_are_survived() {
    let scratch = Scratch::new("fuzz");
    let names = [
        "exit_42",
        "nolibc",
        "pipes",
        "signals_basic",
        "atomics",
        "fork_exec_wait",
        "mmap_growth",
        "vfork_fail",
    ];
    let originals: Vec<PathBuf> = names
        .iter()
        .map(|name| scratch.record(&[program(name)]).dir)
        .collect();
    let time = Duration::from_secs_f64(60.0 * setting("MW_FUZZ_MINUTES").unwrap_or(0.4));
    let first = seed::seed("recordings", 1);
    let begun = Instant::now();
    let mut count = 0;
    let mut found = Vec::new();
    while begun.elapsed() < time && found.len() < 20 {
        let seed = first.wrapping_add(count);
        count += 1;
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let from = &originals[random.below(originals.len())];
        let dir = scratch.path().join("changed");
        make(from, &dir, &mut random);
        let mut commands = vec![vec!["verify", "--patience", "3"]];
        match random.below(4) {
            0 => commands.push(vec!["replay", "--echo"]),
            1 => commands.push(vec!["events", "--json"]),
            2 => commands.push(vec!["info"]),
            _ => {}
        }
        let mut kept = false;
        for args in commands {
            if let Err(what) = run(&args, &dir, scratch.path()) {
                let keep = scratch.path().join(format!("found-{seed}"));
                if !kept {
                    rewrite::copy(&dir, &keep);
                    kept = true;
                }
                found.push(format!(
                    "MW_SEED={seed}: mw {} {}: {what}",
                    args.join(" "),
                    keep.display()
                ));
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    println!("{count} recordings, seeds from {first}");
    assert!(found.is_empty(), "{}", found.join("\n\n"));
    assert!(count > 10, "only {count} in {time:?}");
}
