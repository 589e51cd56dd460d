//! A recording that grows on another host, such that it can be looked at here: what is
//! new of it comes while it grows.
//!
//! Who has a copy asks for what is new, and the agent there answers when there is anything:
//! a program that does nothing costs a question now and then. When it is halted the rest is
//! asked for once more; then the copy is as whole as what it is of. Captured files do not
//! change, and are fetched by what they hold.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use recording::growth::{Had, Mirror, Piece, Source};
use wire::frame::DATA;
use wire::{Answer, Id, Request, ToAgent};

use crate::far::Files;
use crate::{Error, Refusal};

/// How often an agent looks whether there is anything new.
const GLANCE: Duration = Duration::from_millis(5);
/// For how long an answer is waited for that nothing is.
const WAIT: Duration = Duration::from_millis(500);

/// Tells what is new in a recording that grows, when there is anything.
pub(crate) fn tell(
    dir: &Path,
    had: &[u8],
    wait: Duration,
    is_over: impl Fn() -> bool,
    send: impl Fn(Answer) -> io::Result<()>,
) -> Result<(), Refusal> {
    let had = Had::from_bytes(had).ok_or(Refusal::NotHad)?;
    let source = Source::open(dir, &[agent::FULL_OBSERVATION])?;
    let begun = Instant::now();
    loop {
        let news = source.news(&had, DATA, |piece| send(Answer::Data(piece.to_bytes())));
        let any = news.map_err(|source| Refusal::NotRead {
            dir: dir.to_path_buf(),
            source,
        })?;
        if any || begun.elapsed() >= wait || is_over() {
            return Ok(());
        }
        std::thread::sleep(GLANCE.min(wait));
    }
}

/// A copy of a recording that grows on another host.
pub struct Followed {
    shared: Arc<Shared>,
    follows: Option<JoinHandle<()>>,
}

struct Shared {
    files: Files,
    /// There.
    dir: String,
    copy: Mutex<Mirror>,
    asked: Mutex<Asked>,
}

/// What was asked while the recording grows.
#[derive(Default)]
struct Asked {
    id: Option<Id>,
    is_over: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Followed {
    /// Copies what there is in a directory of the host so far to one here.
    pub(crate) fn begin(files: Files, dir: &str, to: &Path) -> Result<Followed, Error> {
        let copy = Mirror::create(to).map_err(|source| Error::File {
            what: "write",
            path: to.to_path_buf(),
            source,
        })?;
        let mut followed = Followed {
            shared: Arc::new(Shared {
                files,
                dir: dir.to_string(),
                copy: Mutex::new(copy),
                asked: Mutex::default(),
            }),
            follows: None,
        };
        followed.settle()?;
        Ok(followed)
    }

    /// Has what is new come as it does, until [`Followed::settle`].
    pub fn go(&mut self) {
        if self.follows.is_some() {
            return;
        }
        *locked(&self.shared.asked) = Asked::default();
        let shared = Arc::clone(&self.shared);
        let follow = move || {
            // Who waits for the rest is told why it does not come.
            while let Ok(true) = shared.follow() {}
        };
        self.follows = std::thread::Builder::new().spawn(follow).ok();
    }

    /// Has all come that there is now, and nothing any more behind it.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.stop();
        let shared = &self.shared;
        let mut copy = locked(&shared.copy);
        let answers = shared
            .files
            .client
            .ask(shared.request(&copy, Duration::ZERO))?;
        shared.take(&mut copy, answers)
    }

    /// What it is a copy of is not needed any more; it goes, if nobody writes to it.
    pub fn forget(&mut self) {
        self.stop();
        let dir = self.shared.dir.clone();
        if let Ok(mut answers) = self.shared.files.client.ask(Request::Forget { dir }) {
            while let Ok(Some(_)) = answers.receive() {}
        }
    }

    fn stop(&mut self) {
        let Some(follows) = self.follows.take() else {
            return;
        };
        {
            let mut asked = locked(&self.shared.asked);
            asked.is_over = true;
            if let Some(id) = asked.id {
                // If it does not get there, no answer will come either.
                let _ = self.shared.files.client.send(&ToAgent::Cancel(id));
            }
        }
        let _ = follows.join();
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn request(&self, copy: &Mirror, wait: Duration) -> Request {
        Request::Grown {
            dir: self.dir.clone(),
            had: copy.had().to_bytes(),
            wait_ms: wait.as_millis() as u32,
        }
    }

    /// Waits for something new: whether more is wanted.
    fn follow(&self) -> Result<bool, Error> {
        let mut copy = locked(&self.copy);
        let answers = {
            let mut asked = locked(&self.asked);
            if asked.is_over {
                return Ok(false);
            }
            let answers = self.files.client.ask(self.request(&copy, WAIT))?;
            asked.id = Some(answers.id());
            answers
        };
        self.take(&mut copy, answers).map(|()| true)
    }

    fn take(&self, copy: &mut Mirror, mut answers: crate::client::Answers) -> Result<(), Error> {
        while let Some(answer) = answers.receive()? {
            let Answer::Data(bytes) = answer else {
                continue;
            };
            let kept = |error: io::Error| Error::Refused {
                host: self.files.host().to_string(),
                said: format!("what {} holds cannot be kept here: {error}", self.dir),
            };
            let piece =
                Piece::from_bytes(&bytes).ok_or_else(|| kept(io::ErrorKind::InvalidData.into()))?;
            if let Piece::Captured { name } = &piece {
                self.fetch(name, &copy.place_of(name), kept)?;
            }
            copy.take(piece).map_err(kept)?;
        }
        Ok(())
    }

    /// Has a captured file here, which may be of several recordings and of several hosts.
    fn fetch(
        &self,
        name: &str,
        place: &Path,
        kept: impl Fn(io::Error) -> Error,
    ) -> Result<(), Error> {
        let path = format!("{}/{}/{name}", self.dir, recording::FILES);
        let copies = self.files.fetch(&[path]);
        for copy in copies.into_iter().collect::<Result<Vec<_>, Error>>()? {
            std::fs::hard_link(&copy, place)
                .or_else(|_| std::fs::copy(&copy, place).map(drop))
                .map_err(&kept)?;
        }
        Ok(())
    }
}
