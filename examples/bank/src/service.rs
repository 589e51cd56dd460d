//! What the coordinator and the account servers have in common: they listen, and they stop with
//! the launcher.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process;
use std::thread;

use crate::failure::{Context, FAILED, Result};
use crate::line::Line;

/// Serves every connection with `serve`, in a thread of its own, until standard input ends.
///
/// The kernel picks the port, so that banks can run side by side; it is reported to the launcher
/// as a line on standard output. The launcher holds the other end of standard input: it closes it
/// when the bank closes, and should the launcher die, the kernel closes it, so that no service
/// outlives its bank.
pub fn run<S>(program: &'static str, serve: S) -> Result<Infallible>
where
    S: Fn(Line) -> Result<()> + Clone + Send + 'static,
{
    let listener = listen().context(|| "cannot listen")?;
    report_port(&listener)?;
    spawn("control", move || exit_with_launcher(program))?;

    let mut connections = 0;
    loop {
        let (stream, peer) = accept(&listener).context(|| "cannot accept a connection")?;
        let serve = serve.clone();
        spawn(format!("serve-{connections}"), move || {
            // A peer that misbehaves loses its connection; the others are served on.
            if let Err(failure) = Line::new(peer.to_string(), stream).and_then(serve) {
                eprintln!("{program}: {failure}");
            }
        })?;
        connections += 1;
    }
}

/// Starts a thread with a name, for the sake of whoever looks at the process from outside.
pub fn spawn(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map(drop)
        .context(|| "cannot start a thread")
}

fn report_port(listener: &TcpListener) -> Result<()> {
    let address = listener
        .local_addr()
        .context(|| "cannot tell which port was given")?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{}", address.port())
        .and_then(|()| stdout.flush())
        .context(|| "cannot report the port")
}

/// Where `BANK_LISTEN` says, for clients on other machines; by default where only this one
/// reaches it.
fn listen() -> io::Result<TcpListener> {
    match std::env::var("BANK_LISTEN") {
        Ok(address) => TcpListener::bind(address),
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
    }
}

fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept()?;
    Ok((crate::address::with_patience(stream)?, peer))
}

fn exit_with_launcher(program: &str) -> ! {
    // The launcher is on another machine: it says so when the bank closes.
    while std::env::var_os("BANK_LISTEN").is_some() {
        thread::park();
    }
    match io::stdin().read_to_end(&mut Vec::new()) {
        Ok(_) => process::exit(0),
        Err(error) => {
            eprintln!("{program}: cannot wait for the end of standard input: {error}");
            process::exit(FAILED.into())
        }
    }
}
