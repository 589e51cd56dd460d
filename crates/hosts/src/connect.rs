//! Reaching a host, however it is reached: by ssh, or, where its name begins with
//! `tls:`, an agent that listens there.

use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use crate::client::Client;
use crate::ssh::{self, Binary};
use crate::trust::Identity;
use crate::{Error, tls};

/// What the name of a host begins with on which an agent listens.
pub const TLS: &str = "tls:";

/// Where agents listen, unless told otherwise.
pub const PORT: u16 = 7462;

/// How long a host may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How hosts are reached: what is needed for that, found when it is needed.
pub struct Connector {
    /// This very program, for hosts that ssh leads to.
    binary: Binary,
    /// The file of who asks, for agents that listen.
    identity: Option<PathBuf>,
}

impl Connector {
    /// With this file as identity, where agents listen.
    pub fn new(identity: Option<PathBuf>) -> Result<Connector, Error> {
        Ok(Connector {
            binary: Binary::own()?,
            identity,
        })
    }

    /// Connects to the agent on a host.
    pub fn connect(&self, host: &str) -> Result<Client, Error> {
        match host.strip_prefix(TLS) {
            Some(address) => self.connect_tls(host, address),
            None => ssh::connect(host, &self.binary),
        }
    }

    fn connect_tls(&self, host: &str, address: &str) -> Result<Client, Error> {
        let unreachable = |said: String| Error::NotThere {
            host: host.to_string(),
            said,
        };
        let Some(path) = &self.identity else {
            return Err(unreachable(
                "there is no home directory that would have an identity".to_string(),
            ));
        };
        let identity = Identity::read(path)?;
        let (name, port) = split(address);
        let found = (name, port).to_socket_addrs();
        let mut said = "it has no address".to_string();
        let mut socket = None;
        for at in found.map_err(|error| unreachable(error.to_string()))? {
            match TcpStream::connect_timeout(&at, PATIENCE) {
                Ok(found) => {
                    socket = Some(found);
                    break;
                }
                Err(error) => said = error.to_string(),
            }
        }
        let socket = socket.ok_or_else(|| unreachable(said))?;
        let set_up = socket
            .set_nodelay(true)
            .and_then(|()| socket.set_read_timeout(Some(PATIENCE)));
        set_up.map_err(|error| unreachable(error.to_string()))?;
        let connection = tls::client(&identity, name, &socket)?;
        let handle = socket.try_clone();
        let handle = handle.map_err(|error| unreachable(error.to_string()))?;
        let (mut reading, writing) = tls::split(connection, socket);
        // The first that comes says whether our certificate was taken.
        let mut magic = [0; wire::opening::MAGIC.len()];
        reading
            .read_exact(&mut magic)
            .map_err(|error| Error::Unsafe {
                host: host.to_string(),
                said: match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => {
                        "it closed the connection without a word".to_string()
                    }
                    _ => error.to_string(),
                },
            })?;
        if magic != wire::opening::MAGIC {
            return Err(unreachable("it speaks otherwise than an agent".to_string()));
        }
        handle
            .set_read_timeout(None)
            .map_err(|error| unreachable(error.to_string()))?;
        Client::begin(host, reading, Box::new(writing), str::to_string)
    }
}

/// `NAME`, `NAME:PORT`, `[V6]:PORT` or an address of version 6.
fn split(address: &str) -> (&str, u16) {
    if let Some(rest) = address.strip_prefix('[')
        && let Some((name, port)) = rest.split_once(']')
    {
        let port = port.strip_prefix(':').and_then(|port| port.parse().ok());
        return (name, port.unwrap_or(PORT));
    }
    match address.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => match port.parse() {
            Ok(port) => (name, port),
            Err(_) => (address, PORT),
        },
        _ => (address, PORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_names_and_ports() {
        assert_eq!(split("a"), ("a", PORT));
        assert_eq!(split("a.example:99"), ("a.example", 99));
        assert_eq!(split("10.0.0.1:99"), ("10.0.0.1", 99));
        assert_eq!(split("::1"), ("::1", PORT));
        assert_eq!(split("[::1]:99"), ("::1", 99));
        assert_eq!(split("[::1]"), ("::1", PORT));
    }
}
