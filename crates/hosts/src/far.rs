//! Debugging on another host, from the debugger's side: a line to a warden there, and
//! the files of that host.
//!
//! The line is a socket, as to a warden on the debugger's own host. What comes is
//! written into it by whoever receives it, and so is what goes the other way by one
//! thread: nothing is looked at on the way.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::frame::DATA;
use wire::{Answer, Desk, Request, ToAgent};

use crate::client::Client;
use crate::desk::SILENCE;
use crate::followed::Followed;
use crate::{Error, stored};

/// What a program says: whether it is an error, and the bytes.
pub type Said = Box<dyn Fn(bool, &[u8]) + Send + Sync>;

/// The end of a line to a warden at which its bytes arrive.
pub struct Line {
    socket: UnixStream,
    said: Said,
    why: Mutex<Option<String>>,
    /// Told where what is started is recorded.
    recording: Mutex<Option<Sender<String>>>,
}

impl Line {
    /// A part of what the warden, or a program of its, has said.
    pub(crate) fn take(&self, answer: Answer) {
        match answer {
            // Who debugs may have gone.
            Answer::Data(bytes) => drop((&self.socket).write_all(&bytes)),
            Answer::Output { is_error, bytes } => (self.said)(is_error, &bytes),
            Answer::Started { recording, .. } => {
                if let Some(sender) = locked(&self.recording).take() {
                    // Who does not wait does not want to know.
                    let _ = sender.send(recording);
                }
            }
            _ => {}
        }
    }

    /// Nothing more will come.
    pub(crate) fn end(&self, why: Option<String>) {
        *locked(&self.why) = why;
        drop(locked(&self.recording).take());
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A warden on another host.
pub struct Far {
    files: Files,
    line: Arc<Line>,
    /// Tells where what is started there is recorded.
    recording: Mutex<Receiver<String>>,
}

/// The files of another host, and where they are kept here.
#[derive(Clone)]
pub(crate) struct Files {
    pub client: Client,
    cache: PathBuf,
}

impl Far {
    /// Starts a warden on a host. The socket leads to it, as if it were here.
    pub fn begin(
        client: &Client,
        how: Desk,
        cache: PathBuf,
        said: Said,
    ) -> Result<(Far, UnixStream), Error> {
        let lost = |error: io::Error| Error::Lost {
            host: client.host().to_string(),
            said: error.to_string(),
        };
        let (theirs, ours) = UnixStream::pair().map_err(lost)?;
        let socket = ours.try_clone().map_err(lost)?;
        let (sender, recording) = mpsc::channel();
        let line = Arc::new(Line {
            socket,
            said,
            why: Mutex::default(),
            recording: Mutex::new(Some(sender)),
        });
        let id = client.ask_through(Request::Debug(how), &line)?;
        let to = client.clone();
        let pass_on = move || {
            pass_on(ours, &to, id);
            let _ = to.send(&ToAgent::Cancel(id));
        };
        std::thread::Builder::new().spawn(pass_on).map_err(lost)?;
        let far = Far {
            files: Files {
                client: client.clone(),
                cache,
            },
            line,
            recording: Mutex::new(recording),
        };
        Ok((far, theirs))
    }

    /// Why the line has ended, if it is not the warden's own end.
    pub fn why(&self) -> Option<String> {
        locked(&self.line.why).clone()
    }

    /// Where what is started there will be recorded, if that was asked for: its path there.
    pub fn recording(&self) -> Result<String, Error> {
        let told = locked(&self.recording).recv();
        told.map_err(|_| Error::Refused {
            host: self.files.client.host().to_string(),
            said: self.why().unwrap_or_else(|| "it has ended".to_string()),
        })
    }

    /// Where copies are of files of the host; none of those that cannot be had. What was
    /// fetched once, under whatever name and from whichever host, is not fetched again.
    pub fn files(&self, paths: &[String]) -> Vec<Option<PathBuf>> {
        let copies = self.files.fetch(paths).into_iter();
        copies.map(Result::ok).collect()
    }

    /// Follows a recording of the host that grows, in a directory here, which is there.
    pub fn follow(&self, dir: &str, to: &Path) -> Result<Followed, Error> {
        Followed::begin(self.files.clone(), dir, to)
    }
}

impl Files {
    /// The host as it was named.
    pub fn host(&self) -> &str {
        self.client.host()
    }

    /// Where copies are of files of the host, or why there is none.
    pub fn fetch(&self, paths: &[String]) -> Vec<Result<PathBuf, Error>> {
        // All are asked for before the first answer is waited for.
        let asked = paths.iter().map(|path| {
            let request = Request::Identify { path: path.clone() };
            (path, self.client.ask(request))
        });
        let asked: Vec<_> = asked.collect();
        let copies = asked.into_iter().map(|(path, answers)| {
            match answers.and_then(|mut answers| answers.receive())? {
                Some(Answer::File(file)) => self.copy(path, &file),
                _ => Err(Error::Refused {
                    host: self.host().to_string(),
                    said: format!("it says nothing of {path}"),
                }),
            }
        });
        copies.collect()
    }

    /// Fetches a file, unless it is here.
    fn copy(&self, path: &str, file: &wire::File) -> Result<PathBuf, Error> {
        let failed = |what: &'static str, path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::File { what, path, source }
        };
        let (high, low) = file.digest.unwrap_or_default();
        let place = self.cache.join(format!("{high:016x}{low:016x}"));
        if std::fs::metadata(&place).is_ok_and(|data| data.len() == file.length) {
            return Ok(place);
        }
        std::fs::create_dir_all(&self.cache).map_err(failed("create", &self.cache))?;
        filled(&place, |begun| {
            self.receive(path, begun)?;
            let (_, digest) = stored::digest(begun).map_err(failed("read", begun))?;
            if Some(digest) != file.digest {
                return Err(Error::Damaged {
                    host: self.host().to_string(),
                    recording: "the program".to_string(),
                    file: path.to_string(),
                });
            }
            Ok(())
        })?;
        Ok(place)
    }

    fn receive(&self, path: &str, to: &Path) -> Result<(), Error> {
        let failed = |source| Error::File {
            what: "write",
            path: to.to_path_buf(),
            source,
        };
        let mut file = File::create(to).map_err(failed)?;
        let mut answers = self.client.ask(Request::Copy {
            path: path.to_string(),
        })?;
        let mut length = 0;
        while let Some(answer) = answers.receive()? {
            match answer {
                Answer::Data(bytes) => {
                    length += bytes.len() as u64;
                    file.write_all(&bytes).map_err(failed)?;
                }
                Answer::Zeroes(count) => {
                    length += count;
                    file.seek(io::SeekFrom::Start(length)).map_err(failed)?;
                }
                _ => {}
            }
        }
        file.set_len(length).map_err(failed)
    }
}

/// Has a file appear whole: `fill` writes it elsewhere. The same one may be fetched from several
/// hosts at once, each time beside the others.
fn filled(place: &Path, fill: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
    static FETCHES: AtomicU64 = AtomicU64::new(0);
    let number = FETCHES.fetch_add(1, Relaxed);
    let begun = place.with_extension(format!("{}-{number}.part", std::process::id()));
    let filled = fill(&begun).and_then(|()| {
        std::fs::rename(&begun, place).map_err(|source| Error::File {
            what: "write",
            path: place.to_path_buf(),
            source,
        })
    });
    if filled.is_err() {
        let _ = std::fs::remove_file(&begun);
    }
    filled
}

/// Passes on what is said to a warden, and that somebody is there who could say
/// something.
fn pass_on(mut from: UnixStream, to: &Client, id: wire::Id) {
    let _ = from.set_read_timeout(Some(SILENCE / 4));
    let mut bytes = vec![0; DATA];
    loop {
        let message = match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(got) => ToAgent::Data {
                id,
                bytes: bytes.get(..got).unwrap_or_default().to_vec(),
            },
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ToAgent::Alive,
                io::ErrorKind::Interrupted => continue,
                _ => return,
            },
        };
        if to.send(&message).is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Both hosts of a program have the same library, and what is new of both comes at once.
    #[test]
    fn what_two_hosts_have_is_fetched_from_both_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path().join("0123456789abcdef");
        let both = Barrier::new(2);
        let fetch = || {
            filled(&place, |begun| {
                std::fs::write(begun, "half").unwrap();
                both.wait();
                let mut file = File::options().append(true).open(begun).unwrap();
                file.write_all(b" and half").unwrap();
                both.wait();
                assert_eq!(std::fs::read_to_string(begun).unwrap(), "half and half");
                Ok(())
            })
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(fetch);
            fetch().unwrap();
            other.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "half and half");
        let left = std::fs::read_dir(scratch.path()).unwrap();
        assert_eq!(left.count(), 1);
    }
}
