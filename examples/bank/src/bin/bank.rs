//! The launcher: opens the bank, waits for the clients, and audits the books.
//!
//! Usage: bank [ACCOUNT-SERVER...]: those are on other machines already, the others it starts

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use bank::bank::{CLIENTS, EXPECTED_TOTAL, Money, SERVERS};
use bank::failure::{self, Context, Failure, Result};
use bank::line::Line;
use bank::protocol::{AccountRequest, Reply, Request};

fn main() -> ExitCode {
    failure::run("bank", || {
        let total = run_bank()?;
        let right = total == EXPECTED_TOTAL;
        let verdict = if right { "ok" } else { "WRONG" };
        println!("total {total}, expected {EXPECTED_TOTAL}: {verdict}");
        Ok(if right {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

/// Runs the bank from opening to closing, and says what the balances add up to at the end.
fn run_bank() -> Result<Money> {
    let servers = (elsewhere().count()..SERVERS)
        .map(|server| Service::start("bank-account", [server.to_string()]))
        .collect::<Result<Vec<_>>>()?;
    let ports = servers.iter().map(|server| server.port.to_string());
    let coordinator = Service::start("bank-coordinator", elsewhere().chain(ports))?;

    let clients = (0..CLIENTS)
        .map(|client| {
            let arguments = [client.to_string(), coordinator.port.to_string()];
            Process::start("bank-client", arguments, Stdio::null(), Stdio::inherit())
        })
        .collect::<Result<Vec<_>>>()?;
    for client in clients {
        client.wait()?;
    }

    let total = audit(coordinator.port)?;
    coordinator.stop()?;
    for server in servers {
        server.stop()?;
    }
    close_elsewhere().map(|()| total)
}

fn audit(port: u16) -> Result<Money> {
    let mut coordinator = Line::connect("the coordinator", port)?;
    match coordinator.ask(&Request::Audit)? {
        Reply::Total(total) => Ok(total),
        reply => Err(coordinator.unexpected(&reply)),
    }
}

/// A process of the bank. If it goes out of scope before it was waited for, it is killed.
struct Process {
    program: &'static str,
    child: Child,
}

impl Process {
    /// Starts a program that lies next to this one.
    fn start(
        program: &'static str,
        arguments: impl IntoIterator<Item = String>,
        stdin: Stdio,
        stdout: Stdio,
    ) -> Result<Process> {
        let path = sibling(program)?;
        let child = Command::new(&path)
            .args(arguments)
            .stdin(stdin)
            .stdout(stdout)
            .spawn()
            .context(|| format!("cannot start {}", path.display()))?;
        Ok(Process { program, child })
    }

    /// Waits for the process to end, and to end well.
    fn wait(mut self) -> Result<()> {
        let status = self
            .child
            .wait()
            .context(|| format!("cannot wait for {}", self.program))?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new(format!("{}: {status}", self.program)))
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if the process has been waited for, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sibling(program: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context(|| "cannot tell where this program lies")?;
    let path = this.with_file_name(program);
    if path.exists() {
        Ok(path)
    } else {
        Err(Failure::new(format!(
            "{} is missing; `cargo build -p bank` builds all programs of the bank",
            path.display()
        )))
    }
}

/// A process that listens on a port until its standard input is closed.
struct Service {
    process: Process,
    port: u16,
}

impl Service {
    fn start(
        program: &'static str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Service> {
        let mut process = Process::start(program, arguments, Stdio::piped(), Stdio::piped())?;
        let port = reported_port(&mut process.child)
            .context(|| format!("cannot learn the port of {program}"))?;
        Ok(Service { process, port })
    }

    /// Tells the service to end, and waits until it has.
    fn stop(mut self) -> Result<()> {
        drop(self.process.child.stdin.take());
        self.process.wait()
    }
}

fn reported_port(child: &mut Child) -> Result<u16> {
    let stdout = child
        .stdout
        .take()
        .ok_or_else(|| Failure::new("its standard output is not a pipe"))?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .context(|| "cannot read its standard output")?;
    line.trim_end()
        .parse()
        .context(|| format!("it wrote `{}`", line.trim_end()))
}

/// The account servers that are on other machines, the first ones.
fn elsewhere() -> impl Iterator<Item = String> {
    std::env::args().skip(1).take(SERVERS)
}

/// Tells them that the bank closes.
fn close_elsewhere() -> Result<()> {
    for server in elsewhere() {
        let address: bank::address::Address = server
            .parse()
            .context(|| "ACCOUNT-SERVER must be an address")?;
        Line::connect(&server, address)?.send(&AccountRequest::Close)?;
    }
    Ok(())
}
