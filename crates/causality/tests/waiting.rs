//! Who waits for whom on two hosts: how a program that hung stood before it was told to
//! end, whatever the clocks of the hosts say, and at cuts in the middle of things.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use causality::{Cut, EventId, History, Kind, Link, WaitFor};
use protocol::id::{EventNo, ProcessIx, ProcessNo, Ticks};
use protocol::record::{at, begin, kind, tag};
use recording::calls::nr;
use recording::synthetic::{LogBuilder, image, manifest};
use recording::{Recording, Set, Status, Summary, Writer};

const HOUR: u64 = 3_600_000_000_000;
const SIGINT: u64 = 2;
const ERESTARTSYS: i64 = -512;

fn inet(host: u8, port: u16) -> [u8; 16] {
    let [high, low] = port.to_be_bytes();
    [2, 0, high, low, 10, 0, 0, host, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// A host's clock: what its counter says at the beginning, and its time of day.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks: u64,
    ahead_ns: i64,
}

/// Who answers SIGINT by doing something before it ends; the others it ends.
type Answers = [bool; 2];

/// The logs of two processes that are connected, talk, and then wait for each other.
struct Pair {
    logs: [LogBuilder; 2],
    clocks: [Clock; 2],
    now: u64,
}

impl Pair {
    /// The log of one, a little later.
    fn log(&mut self, of: usize) -> &mut LogBuilder {
        self.now += 50_000;
        let ticks = self.clocks[of].ticks + self.now;
        self.logs[of].at(ticks)
    }

    /// They are connected, and have talked.
    fn talk(&mut self) {
        self.connect();
        for turn in 0..20 {
            let (from, to) = (turn % 2, 1 - turn % 2);
            let fd = [4, 3];
            self.log(to).start(nr::READ, &[fd[to], 0x7000, 8], &[]);
            self.log(from)
                .start(nr::WRITE, &[fd[from], 0x7000, 8], &[(1, b"a letter")]);
            self.log(from).end(nr::WRITE, 8, &[]);
            // The way to the second is slow: its clock seems to be ahead.
            self.now += 400_000 * to as u64;
            self.log(to).end(nr::READ, 8, &[(1, b"a letter")]);
        }
    }

    /// Says how many events the first has when it has listened and not accepted yet.
    fn connect(&mut self) -> u64 {
        let (own, peer) = (inet(2, 50_000), inet(1, 7000));
        for of in 0..2 {
            let log = self.log(of);
            log.thread(0);
            log.other(kind::BEGIN, &[begin::FIRST, 0, 0, 100, 0, 0], &[]);
            log.call(nr::SOCKET, &[2, 1, 0], 3, &[]);
        }
        self.log(0)
            .call(nr::BIND, &[3, 0x6000, 16], 0, &[(1, &peer)]);
        self.log(0).call(nr::LISTEN, &[3, 128], 0, &[]);
        let listens = self.logs[0].number();
        self.log(0).start(nr::ACCEPT4, &[3, 0, 0, 0], &[]);
        self.log(1)
            .start(nr::CONNECT, &[3, 0x6000, 16], &[(1, &peer)]);
        let ends = [(tag::LOCAL, &peer[..]), (tag::PEER, &own[..])];
        self.log(0).end(nr::ACCEPT4, 4, &ends);
        self.log(1).end(nr::CONNECT, 0, &[(tag::LOCAL, &own)]);
        self.log(0).call(nr::CLOSE, &[3], 0, &[]);
        listens
    }

    /// Each waits for the other, for a minute.
    fn hang(&mut self) -> [u64; 2] {
        self.log(0).start(nr::READ, &[4, 0x7000, 8], &[]);
        self.log(1).start(nr::READ, &[3, 0x7000, 8], &[]);
        self.now += HOUR / 60;
        [0, 1].map(|of| self.logs[of].number())
    }

    /// SIGINT comes to one; it breaks off what it waits in, if it still does.
    fn signal(&mut self, of: usize, waits: bool, answers: bool) {
        if waits {
            self.log(of).end(nr::READ, ERESTARTSYS, &[]);
        }
        self.log(of)
            .other(kind::SIGNAL, &[SIGINT, at::CALL_EXIT], &[]);
        if answers {
            self.log(of).start(nr::EXIT_GROUP, &[1], &[]);
        }
    }
}

fn write(dir: &Path, host: usize, log: LogBuilder, clock: Clock, status: Option<i32>, end: u64) {
    let name = format!("h{host}");
    let mut manifest = manifest(&["program"]);
    manifest.host = name.clone();
    manifest.network.boot = name.clone();
    manifest.network.namespace = 1;
    manifest.network.addresses = vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1))];
    manifest.clock.ticks = Ticks(clock.ticks);
    let realtime = manifest.clock.realtime_ns;
    manifest.clock.realtime_ns = realtime.saturating_add_signed(clock.ahead_ns);
    manifest.started_ns = manifest.clock.realtime_ns;
    let writer = Writer::create(dir, &manifest).unwrap();
    let mut start = image(0, 0, 100, &[&format!("p{host}")]);
    start.time = Ticks(clock.ticks + 1);
    writer.start(&start).unwrap();
    for chunk in log.chunks() {
        writer.chunk(&chunk).unwrap();
    }
    let time = Ticks(clock.ticks + end);
    if let Some(wait_status) = status {
        writer
            .status(&Status {
                process: Some(ProcessNo(0)),
                pid: 100,
                wait_status,
                time,
            })
            .unwrap();
    }
    writer
        .finish(&Summary {
            time,
            complete: true,
            ..Summary::default()
        })
        .unwrap();
}

/// Both hang; then SIGINT comes to the first host, and some milliseconds later, when the other
/// has seen at once what became of that, to the second one.
fn hung(dir: &Path, clocks: [Clock; 2], answers: Answers) -> (History, [u64; 2]) {
    let logs = clocks.map(|_| LogBuilder::new(0, 4096));
    let mut pair = Pair {
        logs,
        clocks,
        now: 2000,
    };
    pair.talk();
    let stood = pair.hang();
    pair.signal(0, true, answers[0]);
    // Its connection is over, and it looks what to do about that.
    pair.log(1).end(nr::READ, 0, &[]);
    pair.log(1).call(nr::CLOSE, &[3], 0, &[]);
    pair.now += 5_000_000;
    pair.signal(1, false, answers[1]);
    let end = pair.now + 1_000_000;
    let mut members = Vec::new();
    for (host, log) in pair.logs.into_iter().enumerate() {
        let own = dir.join(host.to_string());
        let status = match answers[host] {
            true => 1 << 8,
            false => SIGINT as i32,
        };
        write(&own, host, log, clocks[host], Some(status), end);
        members.push(Arc::new(Recording::open(&own).unwrap()));
    }
    let set = Arc::new(Set::of_all(members));
    let history = History::build_of(&set, &|_| {}).unwrap();
    assert_eq!((history.guesses(), history.dropped()), (0, 0));
    (history, stood)
}

#[test]
fn what_hung_on_two_hosts_is_told_as_it_stood_before_it_was_told_to_end() {
    let far = |hours: i64| Clock {
        ticks: 1000 + 9 * HOUR,
        ahead_ns: hours * HOUR as i64,
    };
    let near = Clock {
        ticks: 1000,
        ahead_ns: 0,
    };
    for clocks in [[near, near], [near, far(3)], [far(-2), near]] {
        // (Without an answer, too, the second has seen the first one's end before it was told.)
        for answers in [[true, true], [false, true], [true, false], [false, false]] {
            let dir = tempfile::tempdir().unwrap();
            let (history, stood) = hung(dir.path(), clocks, answers);
            let context = format!("{clocks:?} {answers:?}");
            let stopped = history.stopped();
            let waiting = history.waiting(&stopped);
            let is_over = waiting.blocked.is_empty() && waiting.running.is_empty();
            assert!(
                is_over || history.has_ended_apart(&stopped),
                "{context}: {stopped:?}"
            );
            // What it saw has its cause, though by the clocks that was later.
            let end = history.causes(EventId::new(ProcessIx(1), EventNo(stood[1])));
            let is_end =
                |link: &Link| (link.kind, link.cause.process) == (Kind::Close, ProcessIx(0));
            assert!(end.iter().any(is_end), "{context}: {end:?}");
            let told = history.interruption().unwrap();
            assert_eq!((told.event.process, told.signal), (ProcessIx(0), SIGINT));
            for (process, stood) in (0..2).map(ProcessIx).zip(stood) {
                assert_eq!(told.cut.bound(process), EventNo(stood), "{context}");
            }
            let waiting = history.waiting(&told.cut);
            assert_eq!(waiting.blocked.len(), 2, "{context}");
            for (at, blocked) in waiting.blocked.iter().enumerate() {
                let other = ProcessIx(1 - at as u32);
                assert!(matches!(blocked.what, WaitFor::Receive(_)), "{context}");
                let by: Vec<ProcessIx> = blocked.by.iter().map(|by| by.process).collect();
                assert_eq!((by, blocked.outside), (vec![other], false), "{context}");
            }
            assert_eq!(waiting.knots.len(), 1, "{context}");
        }
    }
    // Ended as it stood, without a word: there is nothing before that to be told of.
    let dir = tempfile::tempdir().unwrap();
    let logs = [near, near].map(|_| LogBuilder::new(0, 4096));
    let mut pair = Pair {
        logs,
        clocks: [near, near],
        now: 2000,
    };
    pair.talk();
    let stood = pair.hang();
    pair.signal(0, true, false);
    pair.signal(1, true, false);
    let mut members = Vec::new();
    for (host, log) in pair.logs.into_iter().enumerate() {
        let own = dir.path().join(host.to_string());
        write(&own, host, log, near, Some(SIGINT as i32), pair.now + 10);
        members.push(Arc::new(Recording::open(&own).unwrap()));
    }
    let history = History::build_of(&Arc::new(Set::of_all(members)), &|_| {}).unwrap();
    let stopped = history.stopped();
    assert!(!history.has_ended_apart(&stopped));
    for (process, stood) in (0..2).map(ProcessIx).zip(stood) {
        // The call that was broken off is not over.
        assert_eq!(stopped.bound(process), EventNo(stood));
    }
    assert_eq!(history.waiting(&stopped).knots.len(), 1);
}

/// A cut may be in the middle of things that come to their end by themselves: nobody waits
/// for ever there.
#[test]
fn what_is_under_way_at_a_cut_is_no_deadlock() {
    let near = Clock {
        ticks: 1000,
        ahead_ns: 0,
    };
    let logs = [near, near].map(|_| LogBuilder::new(0, 4096));
    let mut pair = Pair {
        logs,
        clocks: [near, near],
        now: 2000,
    };
    let listens = pair.connect();
    // The second asks; the first is answered for, and asks itself.
    pair.log(1)
        .start(nr::WRITE, &[3, 0x7000, 8], &[(1, b"a letter")]);
    let sends = pair.logs[1].number();
    pair.log(1).end(nr::WRITE, 8, &[]);
    pair.log(1).start(nr::READ, &[3, 0x7000, 8], &[]);
    let waits = pair.logs[1].number();
    pair.log(0).start(nr::READ, &[4, 0x7000, 8], &[]);
    pair.log(0).end(nr::READ, 8, &[(1, b"a letter")]);
    pair.log(0).start(nr::READ, &[4, 0x7000, 8], &[]);
    let asks = pair.logs[0].number();
    let dir = tempfile::tempdir().unwrap();
    let mut members = Vec::new();
    for (host, log) in pair.logs.into_iter().enumerate() {
        let own = dir.path().join(host.to_string());
        write(&own, host, log, near, None, pair.now + 10);
        members.push(Arc::new(Recording::open(&own).unwrap()));
    }
    let history = History::build_of(&Arc::new(Set::of_all(members)), &|_| {}).unwrap();
    let at = |bounds: [u64; 2]| {
        let cut = Cut::new(bounds.map(|bound| bound as u32).to_vec());
        history.waiting(&cut)
    };
    // An answer is waited for from who has not accepted the connection yet, and may.
    let waiting = at([listens, waits]);
    assert_eq!(waiting.blocked.len(), 1, "{waiting:?}");
    let by: Vec<ProcessIx> = waiting.blocked[0].by.iter().map(|by| by.process).collect();
    assert_eq!(by, [ProcessIx(0)], "{waiting:?}");
    assert!(waiting.knots.is_empty(), "{waiting:?}");
    // What is being sent has arrived: who sends it goes on.
    let waiting = at([asks, sends]);
    assert_eq!(waiting.blocked.len(), 1, "{waiting:?}");
    assert_eq!(waiting.blocked[0].thread.process, ProcessIx(0));
    assert_eq!(waiting.running.len(), 1, "{waiting:?}");
    assert!(waiting.knots.is_empty(), "{waiting:?}");
    // And then both wait for each other.
    let waiting = at([asks, waits]);
    assert_eq!(waiting.knots.len(), 1, "{waiting:?}");
}

/// Two hosts have processes of the same id, and a signal is from the one on its own host.
#[test]
fn a_signal_is_from_a_process_of_its_own_host() {
    const SIGUSR1: u64 = 10;
    const GETPID: u64 = 39;
    const KILL: u64 = 62;
    let clock = Clock {
        ticks: 1000,
        ahead_ns: 0,
    };
    let mut info = [0; 48];
    info[0] = SIGUSR1 as u8;
    // Of the process that has this id, which is the same on both.
    info[16] = 100;
    let dir = tempfile::tempdir().unwrap();
    let mut members = Vec::new();
    for host in 0..3 {
        let mut log = LogBuilder::new(0, 4096);
        log.at(2000).thread(0);
        log.other(kind::BEGIN, &[begin::FIRST, 0, 0, 100, 0, 0], &[]);
        for time in 0..=host {
            log.at(3000 + 100 * time as u64).call(GETPID, &[], 100, &[]);
        }
        log.at(5000).call(KILL, &[100, SIGUSR1], 0, &[]);
        log.at(6000).other(
            kind::SIGNAL,
            &[SIGUSR1, at::CALL_EXIT],
            &[(tag::SIGINFO, &info)],
        );
        let own = dir.path().join(host.to_string());
        write(&own, host, log, clock, None, 9000);
        members.push(Arc::new(Recording::open(&own).unwrap()));
    }
    let history = History::build_of(&Arc::new(Set::of_all(members)), &|_| {}).unwrap();
    for host in 0..3u32 {
        let arrived = EventId::new(ProcessIx(host), EventNo(u64::from(host) + 3));
        let causes = history.causes(arrived);
        let [link] = causes[..] else {
            panic!("host {host}: {causes:?}");
        };
        let sent = EventId::new(ProcessIx(host), EventNo(u64::from(host) + 2));
        assert_eq!((link.kind, link.cause), (Kind::Signal, sent), "host {host}");
    }
}
