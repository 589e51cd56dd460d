//! Where a service listens.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Context, Result};

/// How long a service on another machine may take to begin to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// `PORT` of this machine, or `IP:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(SocketAddr);

impl From<u16> for Address {
    fn from(port: u16) -> Address {
        Address((Ipv4Addr::LOCALHOST, port).into())
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Address, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(port.into());
        }
        text.parse()
            .map(Address)
            .map_err(|_| format!("`{text}` is neither a port nor an address like 10.0.0.1:7000"))
    }
}

impl Address {
    /// Connects to the service that calls itself `peer`.
    pub fn connect(self, peer: &str) -> Result<TcpStream> {
        let Address(address) = self;
        let begun = Instant::now();
        let is_awaited = |error: &io::Error| {
            error.kind() == ErrorKind::ConnectionRefused
                && !address.ip().is_loopback()
                && begun.elapsed() < PATIENCE
        };
        loop {
            match TcpStream::connect(address) {
                Err(error) if is_awaited(&error) => thread::sleep(Duration::from_millis(50)),
                other => {
                    return other
                        .and_then(with_patience)
                        .context(|| format!("cannot connect to {peer} at {address}"));
                }
            }
        }
    }
}

/// For how long one may hear nothing of another: so many milliseconds as `BANK_PATIENCE` says, or
/// for ever.
pub fn patience() -> Option<Duration> {
    let text = std::env::var("BANK_PATIENCE").ok()?;
    text.parse().ok().map(Duration::from_millis)
}

/// A connection whose other end is given up if it is silent for too long, be it that it owes an
/// answer or that the connection is kept for it.
pub fn with_patience(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(patience())?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_of_this_machine() {
        assert_eq!("7000".parse(), Ok(Address::from(7000)));
        assert_eq!("127.0.0.1:7000".parse(), Ok(Address::from(7000)));
        assert!("10.0.0.1".parse::<Address>().is_err());
    }
}
