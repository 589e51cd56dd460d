//! The same program recorded on one host and on three has the same links.
//!
//! Programs are random: processes that listen, connect to each other, send,
//! receive and close, with few ports, so that these are used again. On three
//! hosts the clocks are hours apart and drift.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use causality::{History, Kind};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use protocol::id::Ticks;
use protocol::record::{begin, kind, tag};
use recording::calls::nr;
use recording::synthetic::{LogBuilder, image, manifest};
use recording::{Recording, Set, Summary, Writer};

const HOSTS: usize = 3;
const PROCESSES: usize = 5;
/// So few that they are used again.
const PORTS: u16 = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// One process connects to another.
    Connect(usize, usize),
    /// On one of the connections that are open, one of its ends sends.
    Send(usize, bool, u8),
    /// It receives up to so much of what is there.
    Receive(usize, bool, u8),
    /// Both ends close.
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let process = || 0..PROCESSES;
    prop_oneof![
        2 => (process(), process()).prop_map(|(from, to)| Step::Connect(from, to)),
        4 => (any::<usize>(), any::<bool>(), 1..40u8).prop_map(|(c, e, n)| Step::Send(c, e, n)),
        4 => (any::<usize>(), any::<bool>(), 1..60u8).prop_map(|(c, e, n)| Step::Receive(c, e, n)),
        1 => any::<usize>().prop_map(Step::Close),
    ]
}

/// A host's clock: how far it is ahead of the true time, in nanoseconds, and how
/// much faster it runs, in billionths.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    ahead_ns: i64,
    drift_ppb: i64,
}

fn wrong() -> impl Strategy<Value = Wrong> {
    const HOURS: i64 = 3_600_000_000_000;
    (-5 * HOURS..5 * HOURS, -100_000..100_000i64).prop_map(|(ahead_ns, drift_ppb)| Wrong {
        ahead_ns,
        drift_ppb,
    })
}

fn host_of(process: usize) -> usize {
    process % HOSTS
}

fn ip(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1)
}

fn inet(host: usize, port: u16) -> [u8; 16] {
    let [high, low] = port.to_be_bytes();
    let [a, b, c, d] = ip(host).octets();
    [2, 0, high, low, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn listens_at(process: usize) -> u16 {
    7000 + process as u16
}

struct Connection {
    ends: [(usize, u64); 2],
    port: u16,
    /// What was sent to each end and not received.
    waiting: [u64; 2],
}

/// What the processes log, whatever their clocks say.
struct Program<'c> {
    logs: Vec<LogBuilder>,
    /// True time since the beginning.
    now: u64,
    clock: &'c dyn Fn(usize, u64) -> u64,
    next_fd: Vec<u64>,
    open: Vec<Connection>,
    /// How much went each way, so that no two connections carry the same.
    said: u64,
    /// The pairs of addresses that were connected, and how many were again.
    known: BTreeSet<(usize, u16, usize)>,
    again: u64,
    /// How many ends of connections were seen.
    ends: u64,
}

impl Program<'_> {
    /// The log of a process, a little later.
    fn log(&mut self, process: usize) -> &mut LogBuilder {
        self.now += 20_000;
        let ticks = (self.clock)(process, self.now);
        self.logs[process].at(ticks)
    }

    fn fd(&mut self, process: usize) -> u64 {
        self.next_fd[process] += 1;
        self.next_fd[process]
    }

    fn connect(&mut self, from: usize, to: usize) {
        if from == to {
            return;
        }
        let taken = |port: u16| {
            let same = |c: &Connection| {
                c.port == port && c.ends[1].0 == to && host_of(c.ends[0].0) == host_of(from)
            };
            self.open.iter().any(same)
        };
        let Some(port) = (50_000..50_000 + PORTS).find(|port| !taken(*port)) else {
            return;
        };
        let (own, peer) = (inet(host_of(from), port), inet(host_of(to), listens_at(to)));
        let (near, far) = (self.fd(from), self.fd(to));
        if !self.known.insert((host_of(from), port, to)) {
            self.again += 1;
        }
        self.log(from)
            .call(nr::SOCKET, &[2, 1, 0], near as i64, &[]);
        self.log(to).start(nr::ACCEPT4, &[3, 0, 0, 0], &[]);
        self.log(from)
            .start(nr::CONNECT, &[near, 0x6000, 16], &[(1, &peer)]);
        self.log(to).end(
            nr::ACCEPT4,
            far as i64,
            &[(tag::LOCAL, &peer), (tag::PEER, &own)],
        );
        self.log(from).end(nr::CONNECT, 0, &[(tag::LOCAL, &own)]);
        self.open.push(Connection {
            ends: [(from, near), (to, far)],
            port,
            waiting: [0, 0],
        });
    }

    fn send(&mut self, at: usize, end: usize, bytes: u64) {
        let Some(connection) = self.open.get_mut(at) else {
            return;
        };
        connection.waiting[1 - end] += bytes;
        let (process, fd) = connection.ends[end];
        self.said += 1;
        let text = format!("{:08}", self.said).repeat(8);
        let data = text.as_bytes()[..bytes as usize].to_vec();
        self.log(process)
            .start(nr::WRITE, &[fd, 0x7000, bytes], &[(1, &data)]);
        self.log(process).end(nr::WRITE, bytes as i64, &[]);
    }

    fn receive(&mut self, at: usize, end: usize, most: u64) {
        let Some(connection) = self.open.get_mut(at) else {
            return;
        };
        let bytes = connection.waiting[end].min(most);
        if bytes == 0 {
            return;
        }
        connection.waiting[end] -= bytes;
        let (process, fd) = connection.ends[end];
        self.log(process).start(nr::READ, &[fd, 0x7000, most], &[]);
        // What it was does not matter: addresses tell.
        let data = vec![b'?'; bytes as usize];
        self.log(process).end(nr::READ, bytes as i64, &[(1, &data)]);
    }

    fn close(&mut self, at: usize) {
        if at >= self.open.len() {
            return;
        }
        let closed = self.open.remove(at);
        let [(first, fd), (second, other)] = closed.ends;
        let learns = closed.waiting[1] == 0;
        if learns {
            self.log(second).start(nr::READ, &[other, 0x7000, 8], &[]);
        }
        self.log(first).call(nr::CLOSE, &[fd], 0, &[]);
        if learns {
            // At once: sooner than clocks can be told apart by what went before.
            self.ends += 1;
            let ticks = (self.clock)(second, self.now);
            self.logs[second].at(ticks).end(nr::READ, 0, &[]);
        }
        self.log(second).call(nr::CLOSE, &[other], 0, &[]);
    }
}

/// The logs of a program whose processes have these clocks, how many ports it used again, and
/// how many ends of connections it saw.
fn run(
    steps: &[Step],
    number: impl Fn(usize) -> u32,
    clock: &dyn Fn(usize, u64) -> u64,
) -> (Vec<LogBuilder>, [u64; 2]) {
    let logs = (0..PROCESSES).map(|process| LogBuilder::new(number(process), 4096));
    let mut program = Program {
        logs: logs.collect(),
        now: 0,
        clock,
        next_fd: vec![3; PROCESSES],
        open: Vec::new(),
        said: 0,
        known: BTreeSet::new(),
        again: 0,
        ends: 0,
    };
    for process in 0..PROCESSES {
        let pid = 100 + process as u64;
        let own = inet(host_of(process), listens_at(process));
        let log = program.log(process);
        log.thread(0);
        log.other(kind::BEGIN, &[begin::FIRST, 0, 0, pid, 0, 0], &[]);
        log.call(nr::SOCKET, &[2, 1, 0], 3, &[]);
        log.call(nr::BIND, &[3, 0x6000, 16], 0, &[(1, &own)]);
        log.call(nr::LISTEN, &[3, 128], 0, &[]);
    }
    for step in steps {
        let open = program.open.len();
        let pick = |which: usize| which.checked_rem(open).unwrap_or(0);
        match *step {
            Step::Connect(from, to) => program.connect(from, to),
            Step::Send(c, end, bytes) => program.send(pick(c), end.into(), bytes.into()),
            Step::Receive(c, end, most) => program.receive(pick(c), end.into(), most.into()),
            Step::Close(c) => program.close(pick(c)),
        }
    }
    (program.logs, [program.again, program.ends])
}

const SECOND: u64 = 1_000_000_000;

/// Writes the processes of a host, or of all.
fn write(
    dir: &Path,
    logs: Vec<(usize, u32, LogBuilder)>,
    name: &str,
    hosts: &[usize],
    wrong: Wrong,
) {
    let mut manifest = manifest(&["program"]);
    manifest.host = name.to_string();
    manifest.network.boot = name.to_string();
    manifest.network.namespace = 1;
    manifest.network.addresses = hosts.iter().map(|host| IpAddr::V4(ip(*host))).collect();
    manifest.clock.realtime_ns = manifest
        .clock
        .realtime_ns
        .saturating_add_signed(wrong.ahead_ns);
    manifest.started_ns = manifest.clock.realtime_ns;
    let writer = Writer::create(dir, &manifest).unwrap();
    for (process, number, log) in logs {
        let name = format!("p{process}");
        writer
            .start(&image(number, 0, 100 + process as u32, &[&name]))
            .unwrap();
        for chunk in log.chunks() {
            writer.chunk(&chunk).unwrap();
        }
    }
    writer
        .finish(&Summary {
            time: Ticks(10 * SECOND),
            complete: true,
            ..Summary::default()
        })
        .unwrap();
}

type Link = (Kind, (usize, u64), (usize, u64));

/// All links, by the processes of the program, wherever they ran.
fn links(set: &Arc<Set>, process: impl Fn(u16, u32) -> usize) -> BTreeSet<String> {
    let history = History::build_of(set, &|_| {}).unwrap();
    assert_eq!(history.guesses(), 0);
    assert_eq!(history.dropped(), 0);
    let own = |place| {
        let id = set.id(place).unwrap();
        process(id.member, id.number.0)
    };
    let told = history.links().map(|link| -> Link {
        (
            link.kind,
            (own(link.cause.process), link.cause.number.0),
            (own(link.effect.process), link.effect.number.0),
        )
    });
    told.map(|link| format!("{link:?}")).collect()
}

/// What the programs have, so that it is certain that what is to be tested is.
#[derive(Default)]
struct Coverage {
    ports_again: Cell<u64>,
    ends: Cell<u64>,
    across: Cell<usize>,
    hours_apart: Cell<u64>,
    drifting: Cell<u64>,
}

#[test]
fn one_host_and_three_have_the_same_links() {
    let config = ProptestConfig::with_cases(300);
    let mut runner = TestRunner::new(config);
    let covered = Coverage::default();
    let programs = (
        prop::collection::vec(step(), 0..120),
        prop::collection::vec(wrong(), HOSTS),
    );
    let run = runner.run(&programs, |(steps, clocks)| {
        on_one_and_three(&steps, &clocks, &covered);
        Ok(())
    });
    assert!(run.is_ok(), "{run:?}");
    assert!(covered.ports_again.get() > 100 && covered.ends.get() > 100);
    assert!(covered.across.get() > 1000);
    assert!(covered.hours_apart.get() > 200 && covered.drifting.get() > 200);
}

fn on_one_and_three(steps: &[Step], clocks: &[Wrong], covered: &Coverage) {
    let dir = tempfile::tempdir().unwrap();
    // On one host.
    let whole = dir.path().join("whole");
    let (logs, [again, ends]) = run(steps, |process| process as u32, &|_, now| 2000 + now);
    let logs = logs
        .into_iter()
        .enumerate()
        .map(|(p, log)| (p, p as u32, log));
    let right = Wrong {
        ahead_ns: 0,
        drift_ppb: 0,
    };
    write(&whole, logs.collect(), "one", &[0, 1, 2], right);
    let whole = Set::of(Arc::new(Recording::open(&whole).unwrap()));
    let on_one = links(&Arc::new(whole), |_, number| number as usize);
    // On three.
    let place = |process: usize| (process / HOSTS) as u32;
    let ticks = |process: usize, now: u64| {
        let drift = clocks[host_of(process)].drift_ppb;
        let more = i128::from(now) * i128::from(drift) / 1_000_000_000;
        2000 + (i128::from(now) + more) as u64
    };
    let mut hosts: HashMap<usize, Vec<(usize, u32, LogBuilder)>> = HashMap::new();
    for (process, log) in run(steps, place, &ticks).0.into_iter().enumerate() {
        let own = hosts.entry(host_of(process)).or_default();
        own.push((process, place(process), log));
    }
    let mut members = Vec::new();
    for (host, clock) in clocks.iter().enumerate() {
        let own = dir.path().join(host.to_string());
        let logs = hosts.remove(&host).unwrap();
        write(&own, logs, &format!("h{host}"), &[host], *clock);
        members.push(Arc::new(Recording::open(&own).unwrap()));
    }
    let set = Arc::new(Set::of_all(members));
    let on_three = links(&set, |member, number| {
        usize::from(member) + number as usize * HOSTS
    });
    assert_eq!(on_one, on_three);
    let add = |cell: &Cell<u64>, more: u64| cell.set(cell.get() + more);
    add(&covered.ports_again, again);
    add(&covered.ends, ends);
    covered.across.set(covered.across.get() + on_three.len());
    let apart = clocks[0].ahead_ns.abs_diff(clocks[1].ahead_ns) > 3600 * SECOND;
    add(&covered.hours_apart, apart.into());
    let drifts = clocks.iter().any(|clock| clock.drift_ppb.abs() > 10_000);
    add(&covered.drifting, drifts.into());
}
