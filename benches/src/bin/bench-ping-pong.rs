//! `bench-ping-pong pipe|tcp N`: two processes send 64 bytes to and fro, N times.
//!
//! The program starts itself once more as the peer, so that a recorder sees two processes. It
//! times the round trips alone, without start-up, and prints `elapsed_ns T`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::io::{FromRawFd, RawFd};
use std::process::{Command, Stdio, exit};
use std::time::Instant;
use std::{env, fs::File};

const MESSAGE: usize = 64;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["pipe", count] => number(count).and_then(over_pipe),
        ["tcp", count] => number(count).and_then(over_tcp),
        ["pipe-peer"] => echo(standard_stream(0), standard_stream(1)),
        ["tcp-peer", port] => number(port).and_then(tcp_peer),
        _ => Err(io::Error::other("usage: bench-ping-pong pipe|tcp N")),
    };
    if let Err(error) = result {
        eprintln!("bench-ping-pong: {error}");
        exit(1);
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.parse()
        .map_err(|_| io::Error::other(format!("not a number: {text}")))
}

/// The standard streams without the buffers of `std::io`: one message must be one call.
fn standard_stream(fd: RawFd) -> File {
    // SAFETY: the peer owns its standard streams and uses each through this one `File` alone.
    File::from(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn over_pipe(count: u64) -> io::Result<()> {
    let mut peer = Command::new(env::current_exe()?)
        .arg("pipe-peer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(to), Some(from)) = (peer.stdin.take(), peer.stdout.take()) else {
        return Err(io::Error::other("the peer has no pipes"));
    };
    let to = File::from(OwnedFd::from(to));
    let from = File::from(OwnedFd::from(from));
    play(from, to, count)?;
    peer.wait().map(drop)
}

fn over_tcp(count: u64) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut peer = Command::new(env::current_exe()?)
        .args(["tcp-peer", &listener.local_addr()?.port().to_string()])
        .spawn()?;
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    play(stream.try_clone()?, stream, count)?;
    peer.wait().map(drop)
}

fn tcp_peer(port: u64) -> io::Result<()> {
    let port = u16::try_from(port).map_err(io::Error::other)?;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    echo(stream.try_clone()?, stream)
}

/// Both ends of the channel are dropped at the end, which tells the peer to finish.
fn play(mut from: impl Read, mut to: impl Write, count: u64) -> io::Result<()> {
    let mut message = [7; MESSAGE];
    let mut exchange = || {
        to.write_all(&message)?;
        from.read_exact(&mut message)
    };
    // The first exchange waits for the peer to start.
    exchange()?;
    let start = Instant::now();
    for _ in 0..count {
        exchange()?;
    }
    println!("elapsed_ns {}", start.elapsed().as_nanos());
    Ok(())
}

fn echo(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        match from.read_exact(&mut message) {
            Ok(()) => to.write_all(&message)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
