//! A load for memcached: eight clients that set and get over its text protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const CLIENTS: u64 = 8;
const KEYS: u64 = 100;
const VALUE: [u8; 100] = [b'v'; 100];
/// One in so many requests is a set.
const SET_EVERY: u64 = 10;
const LIMIT: Duration = Duration::from_secs(30);

/// Makes about `requests` requests, the same number from each client, and tells how many a second.
pub fn load(address: SocketAddr, requests: u64) -> Result<f64> {
    let each = requests.div_ceil(CLIENTS);
    let clients = (0..CLIENTS)
        .map(|number| Client::connect(address, number))
        .collect::<Result<Vec<_>>>()?;
    let start_line = Barrier::new(clients.len() + 1);
    let run = |mut client: Client| -> Result<()> {
        // A client that fails before the start must not keep the others waiting there.
        let filled = client.fill();
        start_line.wait();
        filled?;
        (0..each).try_for_each(|number| client.request(number))
    };
    let run = &run;
    let (start, results) = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(move || run(client)))
            .collect();
        start_line.wait();
        let start = Instant::now();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        (start, results)
    });
    let elapsed = start.elapsed();
    for result in results {
        match result {
            Ok(result) => result.context("a memcached client failed")?,
            Err(_) => bail!("a memcached client panicked"),
        }
    }
    Ok((each * CLIENTS) as f64 / elapsed.as_secs_f64())
}

struct Client {
    stream: BufReader<TcpStream>,
    number: u64,
    line: String,
}

impl Client {
    fn connect(address: SocketAddr, number: u64) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Client {
            stream: BufReader::new(stream),
            number,
            line: String::new(),
        })
    }

    fn fill(&mut self) -> Result<()> {
        (0..KEYS).try_for_each(|key| self.set(key))
    }

    fn request(&mut self, number: u64) -> Result<()> {
        match number.is_multiple_of(SET_EVERY) {
            true => self.set(number % KEYS),
            false => self.get(number % KEYS),
        }
    }

    fn set(&mut self, key: u64) -> Result<()> {
        let mut request =
            format!("set c{}-{key} 0 0 {}\r\n", self.number, VALUE.len()).into_bytes();
        request.extend(VALUE);
        request.extend(b"\r\n");
        self.stream.get_mut().write_all(&request)?;
        self.expect("STORED")
    }

    fn get(&mut self, key: u64) -> Result<()> {
        let name = format!("c{}-{key}", self.number);
        let request = format!("get {name}\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.expect(&format!("VALUE {name} 0 {}", VALUE.len()))?;
        let mut value = [0; VALUE.len() + 2];
        self.stream.read_exact(&mut value)?;
        if value[..VALUE.len()] != VALUE {
            bail!("get {name}: another value than was set");
        }
        self.expect("END")
    }

    fn expect(&mut self, expected: &str) -> Result<()> {
        self.line.clear();
        self.stream.read_line(&mut self.line)?;
        match self.line.trim_end() {
            line if line == expected => Ok(()),
            line => bail!("expected {expected:?} from memcached, got {line:?}"),
        }
    }
}
