//! An agent that listens: whom it answers, and that nobody else gets a word out
//! of it, or takes its memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use hosts::Error;
use hosts::connect::Connector;
use hosts::listen::{Door, MOST};
use hosts::session::Log;
use hosts::trust::{Authority, Identity, Person};

#[path = "../../../tests/seed.rs"]
mod seed;

const HOST: &str = "localhost";

struct Agent {
    address: SocketAddr,
    said: Arc<Mutex<Vec<String>>>,
    home: tempfile::TempDir,
}

fn tomorrow() -> SystemTime {
    SystemTime::now() + Duration::from_secs(86_400)
}

fn yesterday() -> SystemTime {
    SystemTime::now() - Duration::from_secs(86_400)
}

fn user() -> String {
    recording::Manifest::here(Vec::new()).user
}

fn authority(dir: &Path) -> Authority {
    Authority::open(dir).unwrap()
}

/// The identity of somebody who may ask agents of these hosts and users.
fn person(authority: &Authority, name: &str, host: &str, user: &str) -> PathBuf {
    let person = Person {
        name: name.to_string(),
        hosts: vec![host.to_string()],
        users: vec![user.to_string()],
    };
    authority.person(&person, tomorrow()).unwrap()
}

impl Agent {
    /// With the identity in this file. It serves until the test's process ends.
    fn start(identity: &Path) -> Agent {
        let home = tempfile::tempdir().unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let log: Log = {
            let said = Arc::clone(&said);
            Arc::new(move |what: &str| said.lock().unwrap().push(what.to_string()))
        };
        let identity = Identity::read(identity).unwrap();
        let door = Door::open("127.0.0.1:0", &identity, home.path(), log).unwrap();
        let address = door.address().unwrap();
        std::thread::spawn(move || door.run());
        Agent {
            address,
            said,
            home,
        }
    }

    fn name(&self) -> String {
        format!("tls:{HOST}:{}", self.address.port())
    }

    fn connect(&self, identity: &Path) -> Result<hosts::Client, Error> {
        let connector = Connector::new(Some(identity.to_path_buf())).unwrap();
        connector.connect(&self.name())
    }

    fn refuses(&self, identity: &Path, because: &str) {
        let Err(error) = self.connect(identity) else {
            panic!("it lets {} in", identity.display());
        };
        let words = error.to_string();
        assert!(words.contains(because), "{words}");
    }

    fn wait_until_it_said(&self, what: &str) {
        let begun = Instant::now();
        while !self.said.lock().unwrap().iter().any(|l| l.contains(what)) {
            let said = self.said.lock().unwrap().clone();
            assert!(begun.elapsed() < Duration::from_secs(60), "{said:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends bytes and then nothing more. What came back.
    fn poke(&self, bytes: &[u8]) -> Vec<u8> {
        let mut socket = TcpStream::connect(self.address).unwrap();
        // It may have hung up already.
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let mut back = Vec::new();
        let _ = socket.read_to_end(&mut back);
        back
    }
}

#[test]
fn who_has_a_certificate_is_served_and_named_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let own = authority(dir.path());
    let agent = Agent::start(&own.host(HOST, tomorrow()).unwrap());
    let ann = person(&own, "ann", HOST, &user());
    let client = agent.connect(&ann).unwrap();
    let facts = client.facts().unwrap();
    assert_eq!(facts.user, user());
    assert_eq!(facts.home, agent.home.path().display().to_string());
    assert_eq!(client.recordings().unwrap(), Vec::new());
    agent.wait_until_it_said("ann from 127.0.0.1:");
    drop(client);
}

#[test]
fn certificates_hold_only_for_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let own = authority(dir.path());
    let agent = Agent::start(&own.host(HOST, tomorrow()).unwrap());
    // Not for this host, not for this user.
    let elsewhere = person(&own, "bob", "another", &user());
    agent.refuses(&elsewhere, "does not hold for that host");
    let other = person(&own, "eve", HOST, "somebody-else");
    agent.refuses(&other, "does not hold for that host");
    // Expired.
    let late = Person {
        name: "old".to_string(),
        hosts: vec![HOST.to_string()],
        users: vec![user()],
    };
    let late = own.person(&late, yesterday()).unwrap();
    agent.refuses(&late, "our certificate has expired");
    // A host's is nobody's who asks.
    let host = own.host("b", tomorrow()).unwrap();
    agent.refuses(&host, "");
    // Another authority: either side says so.
    let dir = tempfile::tempdir().unwrap();
    let foreign = authority(dir.path());
    let mallory = person(&foreign, "mallory", HOST, &user());
    agent.refuses(&mallory, "its certificate is of another authority");
    // Who believes ours, and is signed by another.
    let text = std::fs::read_to_string(&mallory).unwrap();
    let ours = std::fs::read_to_string(&elsewhere).unwrap();
    let tail = ours.rfind("-----BEGIN CERTIFICATE-----").unwrap();
    let head = text.rfind("-----BEGIN CERTIFICATE-----").unwrap();
    let mixed = dir.path().join("mixed.pem");
    std::fs::write(&mixed, format!("{}{}", &text[..head], &ours[tail..])).unwrap();
    agent.refuses(&mixed, "another authority than it believes");
    agent.wait_until_it_said("refused: its certificate is of another authority");
    // Nothing was done for any of them.
    let said = agent.said.lock().unwrap().clone();
    assert!(
        !said.iter().any(|line| line.contains("is here")),
        "{said:?}"
    );
}

#[test]
fn an_agent_must_be_of_the_host_it_is_reached_at() {
    let dir = tempfile::tempdir().unwrap();
    let own = authority(dir.path());
    let ann = person(&own, "ann", "a", &user());
    let agent = Agent::start(&own.host("a", tomorrow()).unwrap());
    agent.refuses(&ann, "its certificate is for another host");
    let late = Agent::start(&own.host(HOST, yesterday()).unwrap());
    late.refuses(&ann, "its certificate has expired");
    // Files that are none.
    let nothing = dir.path().join("nothing.pem");
    agent.refuses(&nothing, "cannot read");
    std::fs::write(&nothing, "-----BEGIN NOTHING-----\n").unwrap();
    agent.refuses(&nothing, "cannot be used as identity");
}

#[test]
fn one_session_has_a_program_until_another_takes_it_over() {
    let dir = tempfile::tempdir().unwrap();
    let own = authority(dir.path());
    let agent = Agent::start(&own.host(HOST, tomorrow()).unwrap());
    let ann = agent.connect(&person(&own, "ann", HOST, &user())).unwrap();
    let bob = agent.connect(&person(&own, "bob", "*", "*")).unwrap();
    ann.claim("etcd", false).unwrap();
    let refused = bob.claim("etcd", false).unwrap_err().to_string();
    assert!(refused.contains("by ann from"), "{refused}");
    bob.claim("etcd", true).unwrap();
    // What the first asks now is refused, and nothing is started.
    let job = wire::Job {
        command: vec!["true".to_string()],
        ..wire::Job::default()
    };
    let mut answers = ann.ask(wire::Request::Record(job)).unwrap();
    let stale = answers.receive().unwrap_err().to_string();
    assert!(stale.contains("taken over by bob"), "{stale}");
    agent.wait_until_it_said("takes etcd over from ann");
    assert_eq!(std::fs::read_dir(agent.home.path()).unwrap().count(), 0);
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// More memory than nonsense may cost, in KiB.
const MUCH: u64 = 64 << 10;

/// What this process, and so its agent, has in memory, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap().trim_end_matches("kB").trim().parse().unwrap()
}

/// The two ends of a conversation of somebody who may ask, but need not make sense.
fn admitted(agent: &Agent, identity: &Path) -> (hosts::tls::Reading, hosts::tls::Writing) {
    let socket = TcpStream::connect(agent.address).unwrap();
    let identity = Identity::read(identity).unwrap();
    let connection = hosts::tls::client(&identity, HOST, &socket).unwrap();
    hosts::tls::split(connection, socket)
}

/// A certificate makes nobody sensible: garbage ends the conversation, and who asks
/// without listening waits; neither costs the agent its memory, nor others theirs.
#[test]
fn nonsense_of_who_may_ask_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let own = authority(dir.path());
    let agent = Agent::start(&own.host(HOST, tomorrow()).unwrap());
    let ann = person(&own, "ann", HOST, &user());
    let mut random = Random(seed::seed("nonsense of who may ask", 21));
    let before = memory();
    for _ in 0..60 {
        let (mut reading, mut writing) = admitted(&agent, &ann);
        let mut bytes = Vec::new();
        if !random.next().is_multiple_of(4) {
            wire::opening::write(&mut bytes).unwrap();
        }
        let length = random.next() % 300;
        if random.next().is_multiple_of(2) {
            // Of any length that it says.
            bytes.extend((random.next() as u32).to_le_bytes());
        } else {
            bytes.extend((length as u32).to_le_bytes());
        }
        bytes.extend((0..length).map(|_| random.next() as u8));
        // It may have hung up already.
        let _ = writing.write_all(&bytes);
        drop(writing);
        let mut back = Vec::new();
        let _ = reading.read_to_end(&mut back);
        assert!(back.len() < 4096, "{} bytes came back", back.len());
    }
    // Somebody who asks and asks, and never hears.
    let (_reading, mut writing) = admitted(&agent, &ann);
    wire::opening::write(&mut writing).unwrap();
    let asking = std::thread::spawn(move || {
        for id in 0..400_000 {
            let request = wire::Request::List;
            let message = wire::ToAgent::Request { id, request };
            if wire::frame::write(&mut writing, &message).is_err() {
                return;
            }
        }
    });
    // Meanwhile others are served.
    for _ in 0..20 {
        let client = agent.connect(&ann).unwrap();
        assert_eq!(client.recordings().unwrap(), Vec::new());
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < MUCH, "it took {grown} KiB");
    // It waits for ever, or was done.
    drop(asking);
}

/// Bytes that are no handshake get no answer; those that begin like one neither.
/// Whoever keeps connections open is sent away, and the others are served again.
#[test]
fn garbage_and_floods_get_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let own = authority(dir.path());
    let agent = Agent::start(&own.host(HOST, tomorrow()).unwrap());
    let ann = person(&own, "ann", HOST, &user());
    let mut random = Random(seed::seed("garbage at an agent's port", 20));
    let minutes: Option<f64> = std::env::var("MW_FUZZ_MINUTES")
        .ok()
        .and_then(|text| text.parse().ok());
    let (begun, before) = (Instant::now(), memory());
    let more = |round: u32| match minutes {
        Some(minutes) => begun.elapsed().as_secs_f64() < minutes * 60.0,
        None => round < 300,
    };
    let mut round = 0;
    while more(round) {
        round += 1;
        let length = random.next() % 2000;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let head: Vec<u8> = match random.next() % 4 {
            // A record of a handshake, of whatever length it says.
            0 => vec![22, 3, 1, random.next() as u8, random.next() as u8],
            // A hello, garbled behind its beginning.
            1 => vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
            2 => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            _ => wire::opening::MAGIC.to_vec(),
        };
        bytes.splice(..0, head);
        let back = agent.poke(&bytes);
        assert!(back.is_empty(), "round {round}: {back:?}");
    }
    // More than it takes, who say nothing.
    let idle: Vec<TcpStream> = (0..2 * MOST)
        .map(|_| TcpStream::connect(agent.address).unwrap())
        .collect();
    agent.wait_until_it_said("too many are here already");
    let grown = memory().saturating_sub(before);
    assert!(grown < MUCH, "it took {grown} KiB");
    drop(idle);
    let begun = Instant::now();
    loop {
        match agent.connect(&ann) {
            Ok(client) => {
                assert_eq!(client.recordings().unwrap(), Vec::new());
                break;
            }
            Err(error) => {
                assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
