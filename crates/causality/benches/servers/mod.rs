//! Recordings as large as wanted: servers that all talk to a few others over
//! TCP, with waits for events in between.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use protocol::id::Ticks;
use protocol::record::{begin, kind, tag};
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

/// The address of a host.
fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, host as u8 + 1)
}

/// Makes one with about so many events, on one host.
pub fn make(dir: &Path, events: u64) {
    make_on(&[dir], events);
}

/// Makes one for each host, with about so many events in all. Each process but the
/// first is on the host that follows that of the one before. The clocks are a second
/// apart, from host to host.
pub fn make_on(dirs: &[&Path], events: u64) {
    let hosts = dirs.len();
    let inet = |process: usize, port: u16| {
        let ([high, low], [a, b, c, d]) = (port.to_be_bytes(), address(process % hosts).octets());
        [2, 0, high, low, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
    };
    let mut logs: Vec<LogBuilder> = Vec::new();
    let mut now = 2000u64;
    for i in 0..PROCESSES {
        let mut log = LogBuilder::new((i / hosts) as u32, 1 << 18);
        // The first of a host makes its others.
        let first = i % hosts;
        let (how, by) = if i == first {
            (begin::FIRST, 0)
        } else {
            now += 100;
            let maker = &mut logs[first];
            let by = maker.number();
            let child = ((i / hosts) as u64).to_le_bytes();
            let pid = 100 + (i / hosts) as i64;
            maker.at(now).call(57, &[], pid, &[(tag::CHILD, &child)]);
            now += 100;
            (begin::FORK, by)
        };
        let pid = 100 + (i / hosts) as u64;
        log.at(now)
            .other(kind::BEGIN, &[how, 0, by, pid, 0, 0], &[]);
        logs.push(log);
    }
    let port = |i: usize| 10_000 + i as u16;
    for (i, log) in logs.iter_mut().enumerate() {
        now += 100;
        log.at(now);
        log.call(41, &[2, 1, 0], 3, &[]);
        log.call(49, &[3, 0x6000, 16], 0, &[(1, &inet(i, port(i)))]);
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
            let from = inet(i, 30_000 + (i * 10 + n) as u16);
            let to = inet(other, port(other));
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
    let mut logs: Vec<Option<LogBuilder>> = logs.into_iter().map(Some).collect();
    for (host, dir) in dirs.iter().enumerate() {
        let mut manifest = manifest(&["servers"]);
        manifest.host = format!("h{host}");
        manifest.network.boot = format!("h{host}");
        manifest.network.namespace = 1;
        manifest.network.addresses = vec![IpAddr::V4(address(host))];
        manifest.clock.realtime_ns += host as u64 * 1_000_000_000;
        manifest.started_ns = manifest.clock.realtime_ns;
        let writer = Writer::create(dir, &manifest).unwrap();
        writer.start(&image(0, 0, 100, &["server"])).unwrap();
        let own = logs.iter_mut().skip(host).step_by(hosts);
        for log in own.filter_map(Option::take) {
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
}
