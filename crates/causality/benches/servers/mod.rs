//! Recordings as large as wanted: servers that all talk to a few others over
//! TCP, with waits for events in between.

use std::path::Path;

use protocol::id::Ticks;
use protocol::record::{begin, kind, tag};
use recording::synthetic::story::inet;
use recording::synthetic::{LogBuilder, image, manifest};
use recording::{Summary, Writer};

/// How many there are.
pub const PROCESSES: usize = 100;
/// Each process connects to those so many places further.
const NEIGHBOURS: [usize; 3] = [1, 7, 31];

/// The descriptor that each waits for all others with.
const EPOLL: u64 = 1000;

/// A descriptor that is to be watched, or is ready.
fn watched(fd: u64) -> [u8; 12] {
    let mut event = [0u8; 12];
    event[0] = 1;
    event[4..].copy_from_slice(&fd.to_le_bytes());
    event
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Makes one with about so many events.
pub fn make(dir: &Path, events: u64) {
    let mut logs: Vec<LogBuilder> = Vec::new();
    let mut now = 2000u64;
    for i in 0..PROCESSES {
        let mut log = LogBuilder::new(i as u32, 1 << 18);
        let (how, by) = if i == 0 {
            (begin::FIRST, 0)
        } else {
            (begin::FORK, i as u64)
        };
        log.at(now)
            .other(kind::BEGIN, &[how, 0, by, 100 + i as u64, 0, 0], &[]);
        logs.push(log);
        now += 100;
        if i + 1 < PROCESSES {
            let child = ((i + 1) as u64).to_le_bytes();
            logs[0]
                .at(now)
                .call(57, &[], 101 + i as i64, &[(tag::CHILD, &child)]);
        }
        now += 100;
    }
    let port = |i: usize| 10_000 + i as u16;
    for (i, log) in logs.iter_mut().enumerate() {
        now += 100;
        log.at(now);
        log.call(41, &[2, 1, 0], 3, &[]);
        log.call(49, &[3, 0x6000, 16], 0, &[(1, &inet(port(i)))]);
        log.call(50, &[3, 128], 0, &[]);
        log.call(291, &[0], EPOLL as i64, &[]);
    }
    // Descriptor of each end of each connection.
    let mut out = vec![Vec::new(); PROCESSES];
    let mut next_fd = vec![4u64; PROCESSES];
    let mut queues = Vec::new();
    let mut ends = Vec::new();
    for i in 0..PROCESSES {
        for (n, step) in NEIGHBOURS.iter().enumerate() {
            let other = (i + step) % PROCESSES;
            let from = inet(30_000 + (i * 10 + n) as u16);
            let to = inet(port(other));
            let (fd, accepted) = (next_fd[i], next_fd[other]);
            next_fd[i] += 1;
            next_fd[other] += 1;
            now += 100;
            let log = logs[i].at(now);
            log.call(41, &[2, 1, 0], fd as i64, &[]);
            log.start(42, &[fd, 0x6000, 16], &[(1, &to)]);
            log.end(42, 0, &[(tag::LOCAL, &from)]);
            now += 100;
            let log = logs[other].at(now);
            log.start(288, &[3, 0, 0, 0], &[]);
            log.end(
                288,
                accepted as i64,
                &[(tag::LOCAL, &to), (tag::PEER, &from)],
            );
            for (own, fd, peer) in [(i, fd, accepted), (other, accepted, fd)] {
                let far = if own == i { other } else { i };
                now += 10;
                logs[own]
                    .at(now)
                    .call(233, &[EPOLL, 1, fd, 0x6000], 0, &[(3, &watched(fd))]);
                out[own].push(queues.len());
                queues.push(std::collections::VecDeque::new());
                ends.push((own, fd, far, peer));
            }
        }
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut full: Vec<usize> = Vec::new();
    let mut made = 0;
    let mut message = 0u64;
    while made < events {
        now += 20 + random.below(200) as u64;
        if full.len() < 300 && (full.is_empty() || random.below(2) == 0) {
            let own = random.below(PROCESSES);
            let channel = out[own][random.below(out[own].len())];
            let (_, fd, ..) = ends[channel];
            let text = format!("request {message:012} of process {own:03}\n");
            message += 1;
            let log = logs[own].at(now);
            log.start(
                44,
                &[fd, 0x7f00_0000, text.len() as u64, 0x4000, 0, 0],
                &[(1, text.as_bytes())],
            );
            now += 30;
            logs[own].at(now).end(44, text.len() as i64, &[]);
            queues[channel].push_back(text);
            full.push(channel);
            made += 2;
        } else {
            let channel = full.swap_remove(random.below(full.len()));
            let Some(text) = queues[channel].pop_front() else {
                continue;
            };
            let (_, _, far, fd) = ends[channel];
            let log = logs[far].at(now);
            log.start(232, &[EPOLL, 0x7f12_3450_0000, 10128, 100], &[]);
            now += 20;
            let log = logs[far].at(now);
            log.end(232, 1, &[(1, &watched(fd))]);
            log.start(45, &[fd, 0x7f00_0000, 16384, 0, 0, 0], &[]);
            now += 10;
            logs[far]
                .at(now)
                .end(45, text.len() as i64, &[(1, text.as_bytes())]);
            made += 4;
        }
    }
    let writer = Writer::create(dir, &manifest(&["servers"])).unwrap();
    writer.start(&image(0, 0, 100, &["server"])).unwrap();
    for log in logs {
        for chunk in log.chunks() {
            writer.chunk(&chunk).unwrap();
        }
    }
    writer
        .finish(&Summary {
            time: Ticks(now + 1000),
            complete: true,
            ..Summary::default()
        })
        .unwrap();
}
