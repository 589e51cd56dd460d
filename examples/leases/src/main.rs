//! A server of leases, and a client of it.
//!
//!     leases serve [--plain] SOCKET LENGTH_MS      until it is ended
//!     leases hold SOCKET RENEWALS EVERY_MS         a client
//!
//! A client that does not renew its lease in time loses it. A client that a debugger has
//! halted cannot, and does not know: by its own clock no time has passed. So before the
//! server takes a lease away it asks for the client's time, and goes by that
//! (`meanwhile-client`). With `--plain` it does not.

use std::io::{BufRead, BufReader, ErrorKind, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

/// How often a client that is halted is looked at.
const LOOK: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", "--plain", socket, length] => serve(socket, length, false),
        ["serve", socket, length] => serve(socket, length, true),
        ["hold", socket, renewals, every] => hold(socket, renewals, every),
        _ => Err(std::io::Error::other(
            "leases serve [--plain] SOCKET LENGTH_MS | leases hold SOCKET RENEWALS EVERY_MS",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leases: {error}");
            ExitCode::FAILURE
        }
    }
}

fn milliseconds(text: &str) -> Result<Duration> {
    let number = text.parse().map_err(std::io::Error::other)?;
    Ok(Duration::from_millis(number))
}

fn serve(socket: &str, length: &str, is_fair: bool) -> Result<()> {
    let length = milliseconds(length)?;
    let listener = UnixListener::bind(socket)?;
    println!("serving");
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            // A client that goes away gives its lease back.
            let _ = keep(&stream, length, is_fair);
        });
    }
    Ok(())
}

/// Keeps the lease of one client: each line renews it.
fn keep(stream: &UnixStream, length: Duration, is_fair: bool) -> Result<()> {
    let mut lines = BufReader::new(stream);
    let mut renewed = meanwhile_client::now();
    let mut left = length;
    loop {
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut line = String::new();
        match lines.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                renewed = meanwhile_client::now();
                left = length;
                continue;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        let now = meanwhile_client::now();
        let peer = match is_fair {
            true => meanwhile_client::peer_of(stream)?,
            false => None,
        };
        let elapsed = match &peer {
            Some(peer) => peer.logical(now).saturating_sub(peer.logical(renewed)),
            None => now.saturating_sub(renewed),
        };
        left = length.saturating_sub(Duration::from_nanos(elapsed));
        if left.is_zero() {
            return lost(stream);
        }
        if peer.is_some_and(|peer| peer.is_halted()) {
            left = LOOK;
        }
    }
}

fn lost(mut stream: &UnixStream) -> Result<()> {
    println!("lost");
    stream.write_all(b"lost\n")
}

fn hold(socket: &str, renewals: &str, every: &str) -> Result<()> {
    let renewals: u32 = renewals.parse().map_err(std::io::Error::other)?;
    let every = milliseconds(every)?;
    let mut stream = UnixStream::connect(socket)?;
    println!("holding");
    for _ in 0..renewals {
        stream.write_all(b"renew\n")?;
        std::thread::sleep(every);
    }
    stream.set_nonblocking(true)?;
    let mut line = String::new();
    // Nothing was said, then.
    let _ = BufReader::new(&stream).read_line(&mut line);
    match line.as_str() {
        "lost\n" => Err(std::io::Error::other("the lease is lost")),
        _ => {
            println!("kept");
            Ok(())
        }
    }
}
