//! Servers on the loopback interface, and clients for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::running::Running;

/// A port that nobody listens on just now, and that the kernel gives to nobody
/// who does not ask for it (it gives those from 32768 on).
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Tests that run at the same time begin at different places.
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (std::process::id().wrapping_mul(97) + next) % 20_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until a recorded server takes connections.
pub fn await_port(server: &mut Running<'_>, port: u16) {
    super::wait_for(&format!("somebody to listen on port {port}"), || {
        assert!(!server.is_over(), "the server ended: {}", server.stdout());
        TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
    });
}

/// A connection that speaks lines.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream: BufReader::new(stream),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    pub fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// An HTTP request on a connection that stays; its status and body.
    pub fn http(&mut self, request: &str, body: &str) -> (String, String) {
        let length = body.len();
        self.send(
            format!(
                "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        let status = self.line();
        let mut length = 0;
        let mut chunked = false;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let length = usize::from_str_radix(&self.line(), 16).unwrap();
                body.extend(self.read(length));
                self.line();
                if length == 0 {
                    break;
                }
            }
        } else {
            body = self.read(length);
        }
        (status, String::from_utf8(body).unwrap())
    }
}

/// A program of the newest PostgreSQL that is installed.
pub fn postgres_program(name: &str) -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").unwrap();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = versions.map(|entry| entry.unwrap().path());
    let newest = versions.max_by_key(number).unwrap();
    newest.join("bin").join(name).to_str().unwrap().to_string()
}

/// Who servers run as that refuse to be root's.
const NOBODY: u32 = 65534;

/// What stands in front of the command of a server that refuses to be root's; nothing
/// if it would not be.
pub fn not_as_root(setpriv: &str) -> Vec<String> {
    let user = NOBODY.to_string();
    let words = [
        setpriv,
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
    ];
    let words = words.iter().filter(|_| super::is_root());
    words.map(|word| word.to_string()).collect()
}

/// Gives a directory to who such servers run as.
pub fn give_away(dir: &Path) {
    if super::is_root() {
        std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}
