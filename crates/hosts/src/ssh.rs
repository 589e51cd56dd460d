//! Reaching a host by the user's own `ssh`: its configuration, keys, agent and
//! jump hosts are the user's, and so is whom to trust.
//!
//! Nothing has to be installed there. What is run there is a few lines of
//! shell: if this very `mw` is not in the cache yet, they ask for it, and it
//! comes through the same connection, is checked and put in its place in one
//! step. So the agent is always of the version that asks, and two who come at
//! once do not disturb each other. A copy of another length is what a host that
//! lost its power has kept of one: it is sent again.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::client::Client;
use crate::{Error, plan, stored};

/// What the other side says when it wants to have `mw`. As long as what an
/// agent begins with, and as unlike text.
const SEND: [u8; 8] = *b"\0mw-send";

/// What a shell may print before, for reasons of its own.
const NOISE: usize = 64 << 10;

/// How long what was begun to be said may wait to go on. (Before the first word somebody may be
/// looking for a password.)
const SILENCE: Duration = Duration::from_secs(20);

/// How long it may while `mw` is on its way there, over a slow line.
const SILENCE_IN_COPYING: Duration = Duration::from_secs(600);

/// This very `mw`, as it is put on other hosts.
pub struct Binary {
    file: std::path::PathBuf,
    length: u64,
    digest: String,
}

impl Binary {
    /// The program that runs.
    pub fn own() -> Result<Binary, Error> {
        let file = std::path::PathBuf::from("/proc/self/exe");
        let (length, (high, low)) = stored::digest(&file).map_err(|source| Error::File {
            what: "read",
            path: file.clone(),
            source,
        })?;
        Ok(Binary {
            file,
            length,
            digest: format!("{high:016x}{low:016x}"),
        })
    }

    /// Whether the program that runs is the one meant.
    pub fn is_own(digest: &str) -> bool {
        Binary::own().is_ok_and(|own| own.digest == digest)
    }

    /// Becomes an agent on the other side. Without single quotes: it is quoted
    /// with them, for whatever shell the user has there.
    fn script(&self) -> String {
        let Binary { length, digest, .. } = self;
        format!(
            "d=${{XDG_CACHE_HOME:-$HOME/.cache}}/meanwhile/bin; f=$d/mw-{digest}; \
             if ! [ -x \"$f\" ] || [ $(wc -c <\"$f\") -ne {length} ]; then \
             t=$d/.mw-{digest}.$$; mkdir -p \"$d\" || exit 70; \
             printf \"\\000mw-send\"; \
             if head -c {length} >\"$t\" && chmod 700 \"$t\" && \"$t\" agent --verify {digest}; \
             then mv \"$t\" \"$f\"; else rm -f \"$t\"; exit 71; fi; fi; \
             exec \"$f\" agent --stdio"
        )
    }
}

/// The last that somebody said.
#[derive(Clone, Default)]
struct LastWords(Arc<Mutex<String>>);

impl LastWords {
    /// Listens until the end.
    fn listen(&self, from: ChildStderr) {
        use std::io::BufRead;
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut from).take(4096).read_until(b'\n', &mut line) {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if !text.is_empty() {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text.to_string();
            }
        }
    }

    fn get(&self) -> Option<String> {
        let said = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        (!said.is_empty()).then_some(said)
    }
}

/// The program that leads to other hosts, and its arguments.
fn program() -> Result<Vec<OsString>, Error> {
    match std::env::var("MW_SSH").ok().filter(|text| !text.is_empty()) {
        Some(text) => Ok(plan::words(&text)?.into_iter().map(Into::into).collect()),
        // A host that is switched off, and one that goes away, are noticed.
        None => Ok([
            "ssh",
            "-T",
            "-oConnectTimeout=20",
            "-oServerAliveInterval=15",
        ]
        .map(Into::into)
        .to_vec()),
    }
}

/// Connects to the agent on a host.
pub fn connect(host: &str, binary: &Binary) -> Result<Client, Error> {
    let words = program()?;
    let (first, rest) = words.split_first().ok_or_else(|| Error::NoSsh {
        program: String::new(),
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    let spawned = Command::new(first)
        .args(rest)
        .arg("--")
        .arg(host)
        .arg(format!("exec sh -c '{}'", binary.script()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|source| Error::NoSsh {
        program: first.to_string_lossy().into_owned(),
        source,
    })?;
    let (Some(mut input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(unreachable(host, "it has no pipes"));
    };
    let words = LastWords::default();
    let listening = {
        let words = words.clone();
        std::thread::Builder::new().spawn(move || words.listen(errors))
    };
    let listening = listening.map_err(|error| unreachable(host, &error.to_string()))?;
    let mut output = BufReader::with_capacity(256 << 10, output);
    let opened = open(&mut output, &mut input, binary);
    if let Err(noise) = opened {
        if noise.goes_on {
            // It waits for something that nobody will say.
            let _ = child.kill();
        }
        drop((input, output));
        let status = end(child);
        let _ = listening.join();
        let noise = noise.line;
        let said = words.get();
        // Of ssh's own failures this is the status.
        const SSH: i32 = 255;
        return Err(match (status, said) {
            (Some(SSH), said) => unreachable(host, &said.unwrap_or_default()),
            (None, said) if noise.is_none() => unreachable(host, &said.unwrap_or_default()),
            (_, said) => Error::NoAgent {
                host: host.to_string(),
                said: said.or(noise).unwrap_or_else(|| "nothing".to_string()),
            },
        });
    }
    Client::begin(host, output, Box::new(input), move |why| {
        end(child);
        let _ = listening.join();
        words.get().unwrap_or_else(|| why.to_string())
    })
}

fn unreachable(host: &str, said: &str) -> Error {
    Error::Unreachable {
        host: host.to_string(),
        said: if said.is_empty() {
            "ssh ended without a word".to_string()
        } else {
            said.to_string()
        },
    }
}

/// Ends a child whose pipes are closed. Its exit status, if it had one.
fn end(mut child: Child) -> Option<i32> {
    child.wait().ok()?.code()
}

/// What came instead of an agent.
struct Noise {
    /// The first line of it.
    line: Option<String>,
    /// Whether who said it is still there.
    goes_on: bool,
}

/// Waits for the agent, and sends `mw` if it is wanted. Otherwise what came
/// instead.
fn open(
    from: &mut BufReader<ChildStdout>,
    to: &mut impl Write,
    binary: &Binary,
) -> Result<(), Noise> {
    let mut seen = Vec::new();
    let mut sent = false;
    let mut goes_on = false;
    let mut window = [0u8; 8];
    while seen.len() < NOISE {
        let patience = match sent {
            true => SILENCE_IN_COPYING,
            false => SILENCE,
        };
        if !seen.is_empty() && !comes(from, patience) {
            goes_on = true;
            break;
        }
        let mut byte = [0];
        if !matches!(from.read(&mut byte), Ok(1)) {
            break;
        }
        window.rotate_left(1);
        let [.., last] = &mut window;
        *last = byte[0];
        seen.push(byte[0]);
        if seen.len() < window.len() {
            continue;
        }
        if window == wire::opening::MAGIC {
            return Ok(());
        }
        if window == SEND && !std::mem::replace(&mut sent, true) {
            // What is wrong with it, the other side says.
            let copied = File::open(&binary.file)
                .and_then(|file| std::io::copy(&mut file.take(binary.length), to));
            if copied.and_then(|_| to.flush()).is_err() {
                break;
            }
        }
    }
    let noise = String::from_utf8_lossy(&seen);
    let line = noise.lines().find(|line| !line.trim().is_empty());
    Err(Noise {
        line: line.map(|line| format!("`{}`", line.trim().replace('\0', ""))),
        goes_on: goes_on || seen.len() >= NOISE,
    })
}

/// Whether something, be it the end, comes within some time.
fn comes(from: &BufReader<ChildStdout>, within: Duration) -> bool {
    if !from.buffer().is_empty() {
        return true;
    }
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(left).ok();
        let mut polled = [PollFd::new(from.get_ref(), PollFlags::IN)];
        match poll(&mut polled, time.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            // What is wrong with it reading tells.
            Err(_) => return true,
            Ok(count) => return count > 0,
        }
    }
}
