//! Servers: how each is started, when it is ready, and how it is stopped.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bench::Bench;
use crate::process::{self, Pid};
use crate::scratch::Fresh;
use crate::setup::{CommandLine, Setup};
use crate::tools::{self, Tool};

#[derive(Clone, Copy, Debug)]
pub enum Server {
    Redis,
    Nginx,
    Memcached,
    GoHttp,
}

const READY_LIMIT: Duration = Duration::from_secs(30);
/// With a recording to finish, the end may take a while.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Below the ports the kernel gives to clients, so that no connection takes ours before the server does.
const PORTS: std::ops::Range<u32> = 20_000..32_000;

const GO_SOURCE: &str = include_str!("../go-http/main.go");
const PAGE: &str = "<!DOCTYPE html>\n<title>meanwhile</title>\n";
const PAGE_BYTES: usize = 612;

impl Server {
    /// The command line to listen at `port`, with the files it needs put into `directory`.
    fn command_line(self, bench: &Bench, directory: &Path, port: u16) -> Result<CommandLine> {
        let port = port.to_string();
        // SAFETY: geteuid has no arguments and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let here = directory.display().to_string();
        Ok(match self {
            Server::Redis => {
                let args = "--bind 127.0.0.1 --appendonly no --daemonize no --loglevel warning";
                let mut args: Vec<&str> = args.split(' ').collect();
                args.extend(["--port", &port, "--save", "", "--dir", &here]);
                CommandLine::new(found(tools::REDIS_SERVER)?, args)
            }
            Server::Nginx => {
                let config = directory.join("nginx.conf");
                fs::write(&config, nginx_config(&here, &port, root))?;
                fs::create_dir(directory.join("www"))?;
                fs::write(
                    directory.join("www/index.html"),
                    format!("{PAGE:<PAGE_BYTES$}"),
                )?;
                let config = config.display().to_string();
                let args = ["-p", &here, "-e", "error.log", "-c", &config];
                CommandLine::new(found(tools::NGINX)?, args)
            }
            Server::Memcached => {
                let mut args = vec!["-t", "4", "-l", "127.0.0.1", "-U", "0", "-p", &port];
                // It refuses to be root unless told so by name.
                args.extend(["-u", "root"].iter().filter(|_| root));
                CommandLine::new(found(tools::MEMCACHED)?, args)
            }
            Server::GoHttp => {
                CommandLine::new(build_go_http(bench)?, [format!("127.0.0.1:{port}")])
            }
        })
    }

    pub fn start(self, bench: &Bench, setup: Setup) -> Result<Running> {
        let directory = bench.scratch.directory("server")?;
        let recording = bench.scratch.fresh("recording");
        let port = free_port()?;
        let line = self.command_line(bench, directory.path(), port)?;
        let log = directory.path().join("output.log");
        let mut command = bench.launcher.command(setup, &line, recording.path());
        command.stdout(File::create(&log)?);
        command.stderr(File::options().append(true).open(&log)?);
        process::end_with_us(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", line.program.display()))?;
        let mut running = Running {
            child: Guard(child),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            pids: Vec::new(),
            recording,
            log,
            _directory: directory,
        };
        running.wait_until_ready()?;
        running.pids = running.find(&line.program)?;
        Ok(running)
    }
}

fn found(tool: Tool) -> Result<PathBuf> {
    tool.find()
        .with_context(|| format!("{} is missing", tool.program))
}

/// One that nobody listens at; every call tries others than the last one did.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    for _ in PORTS {
        let offset = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(PORTS.start + offset)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free on 127.0.0.1");
}

/// One worker, connections kept alive for as long as the client likes, everything in one directory.
fn nginx_config(directory: &str, port: &str, root: bool) -> String {
    let user = if root { "user root;" } else { "" };
    format!(
        "{user}
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{ listen 127.0.0.1:{port}; root {directory}/www; }}
}}
"
    )
}

/// Built once a run; the source travels inside this program.
fn build_go_http(bench: &Bench) -> Result<PathBuf> {
    let binary = bench.scratch.path().join("go-http");
    if !binary.exists() {
        let source = bench.scratch.path().join("go-http.go");
        fs::write(&source, GO_SOURCE)?;
        let mut go = process::command(&found(tools::GO)?);
        go.arg("build").arg("-o").arg(&binary).arg(&source);
        go.current_dir(bench.scratch.path());
        go.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
        go.env("GOCACHE", bench.scratch.path().join("go-cache"));
        process::run(&mut go, &bench.scratch, Duration::from_secs(300))?;
    }
    Ok(binary)
}

/// A server that runs. It is stopped by [`Running::stop`], or the hard way when this goes.
pub struct Running {
    /// The server, or what it runs under.
    child: Guard,
    pub address: SocketAddr,
    /// The server's own processes, the first of them first; not those of `mw` or strace.
    pids: Vec<Pid>,
    pub recording: Fresh,
    log: PathBuf,
    _directory: Fresh,
}

impl Running {
    fn wait_until_ready(&mut self) -> Result<()> {
        let end = Instant::now() + READY_LIMIT;
        while TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_err() {
            if let Some(status) = self.child.0.try_wait()? {
                bail!("the server ended early ({status}), it{}", self.last_words());
            }
            if Instant::now() > end {
                let limit = READY_LIMIT.as_secs();
                bail!(
                    "the server was not ready within {limit} s, it{}",
                    self.last_words()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn find(&self, program: &Path) -> Result<Vec<Pid>> {
        let program = program.canonicalize()?;
        let pids: Vec<Pid> = Pid::of(&self.child.0)
            .tree()
            .into_iter()
            .filter(|pid| pid.executable().as_ref() == Some(&program))
            .collect();
        if pids.is_empty() {
            bail!("no process of {} is to be found", program.display());
        }
        Ok(pids)
    }

    /// The server's first process.
    pub fn first(&self) -> Option<Pid> {
        self.pids.first().copied()
    }

    /// Resident memory of the server's largest process, in MiB.
    pub fn resident(&self) -> Option<f64> {
        let kib = self.pids.iter().filter_map(|pid| pid.resident()).max()?;
        Some(kib as f64 / 1024.0)
    }

    pub fn last_words(&self) -> String {
        process::last_words(&self.log)
    }

    /// Asks the server itself to end, and waits for whatever it runs under to end after it.
    pub fn stop(mut self) -> Result<Fresh> {
        if let Some(server) = self.first() {
            server.terminate();
        }
        match process::wait(&mut self.child.0, STOP_LIMIT)? {
            Some(status) if is_orderly(status) => Ok(self.recording),
            Some(status) => bail!("the server ended badly ({status}), it{}", self.last_words()),
            None => bail!("the server did not stop in {} s", STOP_LIMIT.as_secs()),
        }
    }
}

/// Success, or ended by the SIGTERM we sent, which `mw` reports as a shell would.
fn is_orderly(status: ExitStatus) -> bool {
    let terminated = 128 + libc::SIGTERM;
    status.success() || status.signal() == Some(libc::SIGTERM) || status.code() == Some(terminated)
}

/// A child that does not outlive this.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            process::kill_tree(&mut self.0);
        }
    }
}
