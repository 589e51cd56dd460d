//! What several hosts cost: recording there, fetching what was recorded, starting on many,
//! joining.
//!
//! The hosts are agents on this one, at ports of 127.0.0.1, that are spoken to as they would be
//! across a network: encrypted, each connection with certificates. Where an ssh server can be had,
//! all is measured through that as well. What a plain copy takes is measured in the same run.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::bench::Bench;
use crate::process;
use crate::replay::Figure;
use crate::stats;
use crate::tools;

#[path = "../../crates/causality/benches/servers/mod.rs"]
#[allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)]
mod servers;

/// How much is recorded to be fetched.
const MEBIBYTES: u64 = 256;

/// On so many hosts something is started.
const HOSTS: usize = 20;

/// Of so many hosts recordings are joined.
const JOINED: usize = 10;

/// An agent that listens, until it is dropped.
struct Agent {
    child: Child,
    port: String,
    home: PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The certificates: those of the agents and of who asks.
struct Trust {
    agent: PathBuf,
    asker: PathBuf,
}

pub fn measure(bench: &Bench, mw: &Path) -> Result<Vec<Figure>> {
    let dir = bench.scratch.directory("hosts")?;
    let trust = trust(mw, dir.path())?;
    let mut figures = Vec::new();
    let agent = start(mw, &trust, &dir.path().join("home"))?;
    let size = record(bench, mw, &agent.home.join("meanwhile/big"))?;
    let journal = agent.home.join("meanwhile/big").join(recording::JOURNAL);
    let target = format!("tls:localhost:{}:big", agent.port);
    let mut pull = Command::new(mw);
    pull.args(["pull", &target])
        .env("MW_IDENTITY", &trust.asker);
    let to = dir.path().join("by-tls");
    let plain = copy(&journal, &dir.path().join("copy"))?;
    let took = fetch(pull, &to)?;
    figures.push(each_100_mb(
        "fetching 100 MB from an agent that listens (TLS)",
        took,
        size,
    ));
    figures.push(Figure {
        title: "the same, against a plain copy by TCP",
        value: took.as_secs_f64() / plain.as_secs_f64(),
        most: 4.0,
        unit: "",
    });
    if let Some(server) = Server::start(dir.path(), "bench", &agent.home)? {
        server.prepare(mw)?;
        let mut pull = Command::new(mw);
        pull.args(["pull", "bench:big"])
            .env("MW_SSH", &server.client);
        let plain = server.cat(&journal, &dir.path().join("cat"))?;
        let took = fetch(pull, &dir.path().join("by-ssh"))?;
        figures.push(each_100_mb("fetching 100 MB through ssh", took, size));
        figures.push(Figure {
            title: "the same, against `ssh cat`",
            value: took.as_secs_f64() / plain.as_secs_f64(),
            most: 1.5,
            unit: "",
        });
        figures.push(elsewhere(bench, mw, &server, dir.path())?);
    }
    figures.push(many_by_tls(mw, &trust, dir.path())?);
    figures.extend(many_by_ssh(mw, dir.path())?);
    figures.extend(joined(bench, mw, dir.path())?);
    Ok(figures)
}

fn trust(mw: &Path, dir: &Path) -> Result<Trust> {
    let trust = dir.join("trust");
    let made = Command::new(mw)
        .args(["hosts", "trust", "--person", "bench", "--as", "*", "--dir"])
        .arg(&trust)
        .arg("localhost")
        .stdout(Stdio::null())
        .status()?;
    ensure!(made.success(), "no certificates can be made");
    Ok(Trust {
        agent: trust.join("localhost.pem"),
        asker: trust.join("bench@.pem"),
    })
}

fn start(mw: &Path, trust: &Trust, home: &Path) -> Result<Agent> {
    let mut command = Command::new(mw);
    command
        .args(["agent", "--listen", "127.0.0.1:0", "--identity"])
        .arg(&trust.agent)
        .env("XDG_DATA_HOME", home)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = process::end_with_us(&mut command).spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().context("it has no output")?;
    BufReader::new(out).read_line(&mut line)?;
    let port = line.trim().rsplit(':').next().unwrap_or_default();
    ensure!(!port.is_empty(), "the agent does not listen");
    Ok(Agent {
        child,
        port: port.to_string(),
        home: home.to_path_buf(),
    })
}

/// Records something that does not compress. How long the recording is.
fn record(bench: &Bench, mw: &Path, dir: &Path) -> Result<u64> {
    let mebibytes = if bench.quick {
        MEBIBYTES / 4
    } else {
        MEBIBYTES
    };
    let recorded = Command::new(mw)
        .args(["record", "-o"])
        .arg(dir)
        .args(["--", "dd", "if=/dev/urandom", "of=/dev/null", "bs=64k"])
        .arg(format!("count={}", mebibytes * 16))
        .stderr(Stdio::null())
        .status()?;
    ensure!(recorded.success(), "dd cannot be recorded");
    let journal = dir.join(recording::JOURNAL).metadata()?.len();
    ensure!(journal >= mebibytes << 20, "it was recorded elsewhere");
    Ok(journal)
}

/// How long a file takes from one end of a connection to a file at the other.
fn copy(from: &Path, to: &Path) -> Result<Duration> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut source = std::fs::File::open(from)?;
    let begun = Instant::now();
    let sender = std::thread::spawn(move || -> std::io::Result<u64> {
        let (mut socket, _) = listener.accept()?;
        let mut buffer = vec![0; 256 << 10];
        let mut sent = 0;
        loop {
            let got = std::io::Read::read(&mut source, &mut buffer)?;
            let Some(bytes) = buffer.get(..got).filter(|bytes| !bytes.is_empty()) else {
                return Ok(sent);
            };
            std::io::Write::write_all(&mut socket, bytes)?;
            sent += got as u64;
        }
    });
    let mut socket = BufReader::with_capacity(256 << 10, std::net::TcpStream::connect(address)?);
    let mut target = std::fs::File::create(to)?;
    let mut received = 0;
    loop {
        let bytes = socket.fill_buf()?;
        let count = bytes.len();
        if count == 0 {
            break;
        }
        std::io::Write::write_all(&mut target, bytes)?;
        socket.consume(count);
        received += count as u64;
    }
    let sent = sender.join().map_err(|_| anyhow!("the sender is gone"))??;
    ensure!(sent == received, "{sent} bytes became {received}");
    Ok(begun.elapsed())
}

fn fetch(mut pull: Command, to: &Path) -> Result<Duration> {
    let begun = Instant::now();
    let pulled = pull.arg("-o").arg(to).stdout(Stdio::null()).status()?;
    ensure!(pulled.success(), "{} could not be fetched", to.display());
    Ok(begun.elapsed())
}

fn each_100_mb(title: &'static str, took: Duration, size: u64) -> Figure {
    Figure {
        title,
        value: took.as_secs_f64() * 100e6 / size as f64,
        most: 1.0,
        unit: " s",
    }
}

/// What a program costs that is recorded on another host, against the same recorded
/// here: by its own clock, so that starting it does not count.
fn elsewhere(bench: &Bench, mw: &Path, server: &Server, dir: &Path) -> Result<Figure> {
    let count = if bench.quick { "300000" } else { "2000000" };
    let line = format!("dd if=/dev/zero of=/dev/null bs=1k count={count}");
    let time = |output: std::process::Output| -> Result<f64> {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = said
            .split("copied, ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        told.and_then(|word| word.parse().ok())
            .with_context(|| format!("dd says: {said}"))
    };
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let mut own = Command::new(mw);
        own.args(["record", "-o"])
            .arg(dir.join(format!("here-{round}")));
        own.arg("--").args(line.split(' ')).env("LC_ALL", "C");
        here.push(time(own.output()?)?);
        let mut other = Command::new(mw);
        other
            .args(["record", "-o"])
            .arg(dir.join(format!("there-{round}")));
        other.args(["--on", "bench", &format!("env LC_ALL=C {line}")]);
        there.push(time(other.env("MW_SSH", &server.client).output()?)?);
    }
    let median = |times: &[f64]| stats::median(times).context("nothing was measured");
    Ok(Figure {
        title: "recording on a host, against the same alone",
        value: median(&there)? / median(&here)?,
        most: 1.1,
        unit: "",
    })
}

/// From the beginning of `mw record --on` to when the last of the commands has begun.
fn many(title: &'static str, mut command: Command, hosts: &[String], to: &Path) -> Result<Figure> {
    command.args(["record", "-o"]).arg(to);
    for host in hosts {
        command.args(["--on", host, "date +%s%N"]);
    }
    let begun = std::time::SystemTime::now();
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "they cannot be started: {said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let ends = text
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let times: Vec<u64> = ends.collect();
    ensure!(
        times.len() == hosts.len(),
        "{} of {} began",
        times.len(),
        hosts.len()
    );
    let last = times.into_iter().max().context("none began")?;
    let first = begun.duration_since(std::time::UNIX_EPOCH)?;
    Ok(Figure {
        title,
        value: Duration::from_nanos(last)
            .saturating_sub(first)
            .as_secs_f64(),
        most: 2.0,
        unit: " s",
    })
}

fn many_by_tls(mw: &Path, trust: &Trust, dir: &Path) -> Result<Figure> {
    let mut agents = Vec::new();
    for number in 0..HOSTS {
        agents.push(start(mw, trust, &dir.join(format!("home-{number}")))?);
    }
    let hosts: Vec<String> = agents
        .iter()
        .map(|agent| format!("tls:localhost:{}", agent.port))
        .collect();
    let mut command = Command::new(mw);
    command.env("MW_IDENTITY", &trust.asker);
    let title = "starting on 20 hosts by TLS, until the last has begun";
    many(title, command, &hosts, &dir.join("many-tls"))
}

/// By ssh to as many servers, each with directories of its own, on which `mw` is
/// already.
fn many_by_ssh(mw: &Path, dir: &Path) -> Result<Vec<Figure>> {
    let mut servers = Vec::new();
    for number in 0..HOSTS {
        let name = format!("h{number}");
        let home = dir.join(format!("ssh-{number}"));
        std::fs::create_dir_all(&home)?;
        match Server::start(&home, &name, &home)? {
            Some(server) => servers.push((name, server)),
            None => return Ok(Vec::new()),
        }
    }
    let mut config = String::new();
    for (_, server) in &servers {
        server.prepare(mw)?;
        config.push_str(&std::fs::read_to_string(&server.config)?);
    }
    let all = dir.join("ssh_config-all");
    std::fs::write(&all, config)?;
    let mut command = Command::new(mw);
    command.env("MW_SSH", format!("ssh -F {}", all.display()));
    let hosts: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
    // What ssh itself takes to reach them all.
    let begun = Instant::now();
    let mut plain = Vec::new();
    for host in &hosts {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(&all).args(["-T", host, "true"]);
        plain.push(ssh.stdin(Stdio::null()).spawn()?);
    }
    for mut child in plain {
        ensure!(child.wait()?.success(), "ssh does not reach all of them");
    }
    let plain = begun.elapsed().as_secs_f64();
    let title = "starting on 20 hosts by ssh, until the last has begun";
    let figure = many(title, command, &hosts, &dir.join("many-ssh"))?;
    let ratio = Figure {
        title: "the same, against `ssh true` to all of them",
        value: figure.value / plain,
        most: 2.0,
        unit: "",
    };
    Ok(vec![figure, ratio])
}

/// Writes the recordings of a program on several hosts, for [`joined`]: in a process of
/// its own, whose memory is not measured.
pub fn make(dir: &Path, events: u64) {
    let dirs: Vec<PathBuf> = (0..JOINED)
        .map(|host| dir.join(format!("h{host}")))
        .collect();
    let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
    servers::make_on(&dirs, events);
}

/// Joining recordings that have ten million events, which makes their index, and
/// asking thereafter.
fn joined(bench: &Bench, mw: &Path, dir: &Path) -> Result<Vec<Figure>> {
    let events: u64 = if bench.quick { 1_000_000 } else { 10_000_000 };
    let home = dir.join("apart");
    std::fs::create_dir_all(&home)?;
    let made = Command::new(std::env::current_exe()?)
        .arg("--make-hosts")
        .arg(&home)
        .arg(events.to_string())
        .status()?;
    ensure!(made.success(), "the recordings could not be made");
    let together = dir.join("together");
    let begun = Instant::now();
    let mut command = Command::new(mw);
    command.arg("join");
    for host in 0..JOINED {
        command.arg(home.join(format!("h{host}")));
    }
    command.arg("-o").arg(&together).stdout(Stdio::null());
    let mut child = process::end_with_us(&mut command).spawn()?;
    let pid = process::Pid::of(&child);
    let mut most = 0;
    let status = loop {
        most = most.max(pid.most_resident().unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let took = begun.elapsed();
    ensure!(status.success(), "they cannot be joined");
    let slowest = ask(&together, events)?;
    let figure = |title, value, most, unit| Figure {
        title,
        value,
        most,
        unit,
    };
    Ok(vec![
        figure(
            "joining 10 million events of 10 hosts",
            took.as_secs_f64(),
            20.0,
            " s",
        ),
        figure(
            "memory for that",
            most as f64 / (1 << 20) as f64,
            1.5,
            " GiB",
        ),
        figure(
            "the slowest of five answers about them",
            slowest * 1000.0,
            20.0,
            " ms",
        ),
    ])
}

/// Seconds that the slowest of some questions takes.
fn ask(dir: &Path, events: u64) -> Result<f64> {
    use causality::{EventId, History, Limits};
    use protocol::id::{EventNo, ProcessIx};
    let set = std::sync::Arc::new(recording::Set::open(dir)?);
    let history = History::of(&set, &|_| {})?;
    ensure!(!history.was_built(), "joining left no index");
    ensure!(history.events() >= events, "some events are missing");
    ensure!(history.guesses() == 0, "there are guesses");
    let place = |part: usize| ProcessIx((set.len() * part / 100) as u32);
    let end = |part: usize| history.span(place(part)).1.0;
    let late = EventId::new(place(42), EventNo(end(42).saturating_sub(5)));
    let early = EventId::new(place(17), EventNo(300));
    let middle = EventId::new(place(63), EventNo(end(63) / 2));
    let questions: [&dyn Fn() -> bool; 5] = [
        &|| history.order(middle, late) != causality::Order::Same,
        &|| history.path_between(early, late).is_some(),
        &|| history.past(late).has(early),
        &|| history.latest(early).has(early),
        &|| !history.explain(late, Limits::default()).is_empty(),
    ];
    let mut slowest = 0f64;
    for question in questions {
        let begun = Instant::now();
        ensure!(question(), "a question has no answer");
        slowest = slowest.max(begun.elapsed().as_secs_f64());
    }
    Ok(slowest)
}

/// An ssh server of our own, until it is dropped.
struct Server {
    child: Child,
    /// How the client finds it, as a file.
    config: PathBuf,
    client: String,
    /// What the client calls it.
    name: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Puts `mw` there, which is done once.
    fn prepare(&self, mw: &Path) -> Result<()> {
        let check = Command::new(mw)
            .args(["pull", &format!("{}:", self.name)])
            .env("MW_SSH", &self.client)
            .stdout(Stdio::null())
            .status()?;
        ensure!(check.success(), "the ssh server does not let us in");
        Ok(())
    }

    /// How long a file takes by ssh alone.
    fn cat(&self, from: &Path, to: &Path) -> Result<Duration> {
        let mut words = self.client.split(' ');
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        let begun = Instant::now();
        let status = command
            .args(words)
            .args(["-T", &self.name, "cat"])
            .arg(from)
            .stdout(std::fs::File::create(to)?)
            .status()?;
        ensure!(status.success(), "ssh cannot copy");
        Ok(begun.elapsed())
    }

    /// None where there is none to be had.
    fn start(dir: &Path, name: &str, home: &Path) -> Result<Option<Server>> {
        let (Some(sshd), Some(keygen)) = (tools::find("sshd"), tools::find("ssh-keygen")) else {
            return Ok(None);
        };
        for key in ["host", "user"] {
            let made = Command::new(&keygen)
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(key))
                .status()?;
            ensure!(made.success(), "no key can be made");
        }
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let (at, home) = (dir.display(), home.display());
        std::fs::write(
            dir.join("sshd_config"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nPidFile none\n\
                 AuthorizedKeysFile {at}/user.pub\nStrictModes no\nUsePAM no\n\
                 SetEnv HOME={home} XDG_DATA_HOME={home} XDG_CACHE_HOME={at}/cache\n"
            ),
        )?;
        std::fs::write(
            dir.join("ssh_config"),
            format!(
                "Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {at}/user\n  \
                 StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
            ),
        )?;
        let mut command = Command::new(sshd);
        command
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = process::end_with_us(&mut command).spawn()?;
        let errors = child.stderr.take().context("it has no output")?;
        let mut lines = BufReader::new(errors).lines();
        let listens = lines.any(|line| line.is_ok_and(|line| line.contains("listening")));
        // What it says later nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        let server = Server {
            child,
            config: dir.join("ssh_config"),
            client: format!("ssh -F {at}/ssh_config"),
            name: name.to_string(),
        };
        Ok(listens.then_some(server))
    }
}
