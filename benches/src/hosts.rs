//! What several hosts cost: fetching what was recorded, and starting on many.
//!
//! The hosts are agents on this one, at ports of 127.0.0.1, that are spoken to as they would be
//! across a network: encrypted, each connection with certificates. Where an ssh server can be had,
//! fetching is measured through that as well.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::process;
use crate::replay::Figure;
use crate::tools;

/// How much is recorded to be fetched.
const MEBIBYTES: u64 = 256;

/// On so many hosts something is started.
const HOSTS: usize = 20;

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
    let size = record(mw, &agent.home.join("meanwhile/big"))?;
    let target = format!("tls:localhost:{}:big", agent.port);
    let mut pull = Command::new(mw);
    pull.args(["pull", &target])
        .env("MW_IDENTITY", &trust.asker);
    figures.push(fetch(
        "fetching 100 MB from an agent that listens (TLS)",
        pull,
        &dir.path().join("by-tls"),
        size,
    )?);
    if let Some(server) = Server::start(dir.path(), &agent.home)? {
        let mut pull = Command::new(mw);
        pull.args(["pull", "bench:big"])
            .env("MW_SSH", &server.client);
        // `mw` is put there first, once.
        let check = Command::new(mw)
            .args(["pull", "bench:"])
            .env("MW_SSH", &server.client)
            .stdout(Stdio::null())
            .status()?;
        ensure!(check.success(), "the ssh server does not let us in");
        let to = dir.path().join("by-ssh");
        figures.push(fetch("fetching 100 MB through ssh", pull, &to, size)?);
    }
    figures.push(many(mw, &trust, dir.path())?);
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
fn record(mw: &Path, dir: &Path) -> Result<u64> {
    let recorded = Command::new(mw)
        .args(["record", "-o"])
        .arg(dir)
        .args(["--", "dd", "if=/dev/urandom", "of=/dev/null", "bs=64k"])
        .arg(format!("count={}", MEBIBYTES * 16))
        .stderr(Stdio::null())
        .status()?;
    ensure!(recorded.success(), "dd cannot be recorded");
    let journal = dir.join(recording::JOURNAL).metadata()?.len();
    ensure!(journal >= MEBIBYTES << 20, "it was recorded elsewhere");
    Ok(journal)
}

fn fetch(title: &'static str, mut pull: Command, to: &Path, size: u64) -> Result<Figure> {
    let begun = Instant::now();
    let pulled = pull.arg("-o").arg(to).stdout(Stdio::null()).status()?;
    ensure!(pulled.success(), "{title}: it failed");
    Ok(Figure {
        title,
        value: begun.elapsed().as_secs_f64() * 100e6 / size as f64,
        most: 1.0,
        unit: " s",
    })
}

/// From the beginning of `mw record --on` to when the last of the commands has begun.
fn many(mw: &Path, trust: &Trust, dir: &Path) -> Result<Figure> {
    let mut agents = Vec::new();
    for number in 0..HOSTS {
        agents.push(start(mw, trust, &dir.join(format!("home-{number}")))?);
    }
    let mut command = Command::new(mw);
    command
        .args(["record", "-o"])
        .arg(dir.join("many"))
        .env("MW_IDENTITY", &trust.asker);
    for agent in &agents {
        let host = format!("tls:localhost:{}", agent.port);
        command.args(["--on", &host, "date +%s%N"]);
    }
    let begun = std::time::SystemTime::now();
    let output = command.output()?;
    ensure!(output.status.success(), "they cannot be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let ends = text
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let times: Vec<u64> = ends.collect();
    ensure!(times.len() == HOSTS, "{} of {HOSTS} began", times.len());
    let last = times.into_iter().max().context("none began")?;
    let first = begun.duration_since(std::time::UNIX_EPOCH)?;
    Ok(Figure {
        title: "starting on 20 hosts, until the last has begun",
        value: Duration::from_nanos(last)
            .saturating_sub(first)
            .as_secs_f64(),
        most: 2.0,
        unit: " s",
    })
}

/// An ssh server of our own, until it is dropped.
struct Server {
    child: Child,
    client: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// None where there is none to be had.
    fn start(dir: &Path, home: &Path) -> Result<Option<Server>> {
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
                 SetEnv XDG_DATA_HOME={home} XDG_CACHE_HOME={at}/cache\n"
            ),
        )?;
        std::fs::write(
            dir.join("ssh_config"),
            format!(
                "Host bench\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {at}/user\n  \
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
            client: format!("ssh -F {at}/ssh_config"),
        };
        Ok(listens.then_some(server))
    }
}
