//! An agent that listens on the network, for hosts that no ssh leads to.
//!
//! Whoever comes must show a certificate that holds for this host and for the user
//! that the agent runs as ([`crate::trust`]). Nobody else is answered: garbage gets
//! no answer at all, and a wrong certificate only the encrypted word that it is
//! wrong. The agent records as the user it runs as, and as nobody else.
//!
//! Whoever floods the port costs at most [`MOST`] threads and what a handshake
//! needs, and each of them for no longer than [`PATIENCE`].

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};

use crate::session::{Claims, Log, Session};
use crate::trust::Identity;
use crate::{Error, serve, tls};

/// So many may speak with an agent at once.
pub const MOST: usize = 64;

/// How long a handshake may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The longest that is kept of what could not be sent yet.
const UNSENT: usize = 4 << 20;

/// See the module.
pub struct Door {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    home: PathBuf,
    claims: Arc<Claims>,
    log: Log,
    open: Arc<AtomicUsize>,
}

/// One of the places for who comes; free again when it is dropped.
struct ConnectionSlot(Arc<AtomicUsize>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

impl Door {
    /// Listens at an address as an agent with this identity.
    pub fn open(address: &str, identity: &Identity, home: &Path, log: Log) -> Result<Door, Error> {
        let cannot = |source: io::Error| Error::Listen {
            address: address.to_string(),
            source,
        };
        let host = identity.host().unwrap_or_default();
        let user = recording::Manifest::here(Vec::new()).user;
        let config = tls::server(identity, &host, &user)?;
        let listener = TcpListener::bind(address).map_err(cannot)?;
        log(&format!("agent of {user} on {host}"));
        Ok(Door {
            listener,
            config,
            home: home.to_path_buf(),
            claims: Arc::default(),
            log,
            open: Arc::default(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves whoever comes, each on a thread of its own, for ever.
    pub fn run(&self) -> io::Error {
        loop {
            match self.listener.accept() {
                Ok((socket, from)) => self.take(socket, from),
                Err(error) => match error.kind() {
                    // It went away again.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    // No descriptors or memory: some will be free again.
                    _ if self.open.load(Acquire) > 0 => {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    _ => return error,
                },
            }
        }
    }

    fn take(&self, socket: TcpStream, from: SocketAddr) {
        let place = ConnectionSlot(Arc::clone(&self.open));
        if self.open.fetch_add(1, AcqRel) >= MOST {
            (self.log)(&format!("{from}: too many are here already"));
            return;
        }
        let (config, home) = (Arc::clone(&self.config), self.home.clone());
        let (claims, log) = (Arc::clone(&self.claims), Arc::clone(&self.log));
        // Where no thread can be had, the connection ends.
        let _ = std::thread::Builder::new().spawn(move || {
            let _place = place;
            match shake_hands(&socket, config) {
                Ok(connection) => meet(connection, socket, from, &home, &claims, &log),
                Err(why) => log(&format!("{from}: refused: {why}")),
            }
        });
    }
}

/// Why somebody who came is not listened to.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("it takes too long")]
    Slow,
    #[error("it went away")]
    Gone,
    #[error("{0}")]
    System(io::Error),
    #[error("{}", tls::words(.0))]
    Untrusted(#[from] rustls::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HandshakeError::Slow,
            _ => HandshakeError::System(error),
        }
    }
}

/// Does the handshake.
fn shake_hands(
    socket: &TcpStream,
    config: Arc<ServerConfig>,
) -> Result<ServerConnection, HandshakeError> {
    let until = Instant::now() + PATIENCE;
    let mut connection = ServerConnection::new(config)?;
    connection.set_buffer_limit(Some(UNSENT));
    let mut stream = socket;
    // Once the other side has said hello, all is encrypted.
    let mut secret = false;
    while connection.is_handshaking() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandshakeError::Slow);
        }
        socket.set_read_timeout(Some(left))?;
        socket.set_write_timeout(Some(left))?;
        if connection.wants_write() {
            connection.write_tls(&mut stream)?;
            secret = true;
            continue;
        }
        if connection.read_tls(&mut stream)? == 0 {
            return Err(HandshakeError::Gone);
        }
        if let Err(error) = connection.process_new_packets() {
            while secret && connection.wants_write() {
                if connection.write_tls(&mut stream).is_err() {
                    break;
                }
            }
            return Err(error.into());
        }
    }
    while connection.wants_write() {
        connection.write_tls(&mut stream)?;
    }
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    socket.set_nodelay(true)?;
    Ok(connection)
}

/// Serves somebody whose certificate was taken.
fn meet(
    connection: ServerConnection,
    socket: TcpStream,
    from: SocketAddr,
    home: &Path,
    claims: &Arc<Claims>,
    log: &Log,
) {
    let shown = connection.peer_certificates().and_then(|all| all.first());
    let Some(person) = shown.and_then(tls::person) else {
        return;
    };
    let session = Session::new(format!("{} from {from}", person.name), claims, log);
    session.note("is here");
    let session = Arc::new(session);
    let (reading, writing) = tls::split(connection.into(), socket);
    let reading = io::BufReader::with_capacity(64 << 10, reading);
    match serve::serve(reading, writing, home, &session) {
        Ok(()) => session.note("is gone"),
        Err(error) => session.note(&format!("is gone: {error}")),
    }
}
