//! Who asks an agent.
//!
//! One thread reads what comes and hands it to whoever waits for it; any
//! thread may ask.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wire::{Answer, Facts, FromAgent, Id, Request, Stored, ToAgent, Whom, frame, opening};

use crate::Error;
use crate::far::Line;

/// So many answers to one request wait to be looked at; then the connection
/// waits.
const WAITING: usize = 32;

enum News {
    Answer(Answer),
    End(Option<String>),
    Lost(String),
}

#[derive(Default)]
struct Waiting {
    /// Why nothing more will come, once that is so.
    lost: Option<String>,
    by_id: HashMap<Id, Sink>,
    next: Id,
}

/// Where the answers to a request go.
#[derive(Clone)]
enum Sink {
    Channel(SyncSender<News>),
    /// To who debugs: passed on where they are received, before anything else is done.
    Line(Arc<Line>),
}

/// A connection to an agent. Can be cloned, and asked by several at once.
#[derive(Clone)]
pub struct Client {
    host: Arc<str>,
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The answers to a request, as they come.
pub struct Answers {
    client: Client,
    id: Id,
    news: Receiver<News>,
    over: bool,
}

impl Client {
    /// Speaks with an agent whose opening bytes have been read, but for the
    /// version.
    pub fn begin(
        host: &str,
        mut input: impl Read + Send + 'static,
        mut output: Box<dyn Write + Send>,
        why_lost: impl FnOnce(&str) -> String + Send + 'static,
    ) -> Result<Client, Error> {
        let lost = |error: wire::Error| Error::Lost {
            host: host.to_string(),
            said: error.to_string(),
        };
        let theirs = opening::version(&mut input).map_err(lost)?;
        if theirs != opening::VERSION {
            return Err(Error::Version {
                host: host.to_string(),
                theirs,
                ours: opening::VERSION,
            });
        }
        opening::write(&mut output).map_err(lost)?;
        let client = Client {
            host: host.into(),
            out: Arc::new(Mutex::new(output)),
            waiting: Arc::default(),
        };
        let waiting = Arc::clone(&client.waiting);
        let read = move || {
            let why = receive(&mut input, &waiting);
            let why = why_lost(&why);
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for (_, sink) in waiting.by_id.drain() {
                match sink {
                    // Full, it would keep everybody else waiting: who looks at it
                    // later finds that nobody sends any more.
                    Sink::Channel(sender) => drop(sender.try_send(News::Lost(why.clone()))),
                    Sink::Line(line) => line.end(Some(why.clone())),
                }
            }
            waiting.lost = Some(why);
        };
        let spawned = std::thread::Builder::new().spawn(read);
        spawned.map_err(|error| Error::Lost {
            host: host.to_string(),
            said: format!("cannot start a thread: {error}"),
        })?;
        Ok(client)
    }

    /// The host as it was named.
    pub fn host(&self) -> &str {
        &self.host
    }

    fn lost(&self, said: impl ToString) -> Error {
        Error::Lost {
            host: self.host.to_string(),
            said: said.to_string(),
        }
    }

    pub(crate) fn send(&self, message: &ToAgent) -> Result<(), Error> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(&mut *out, message).map_err(|error| self.lost(error))
    }

    /// Asks for something.
    pub fn ask(&self, request: Request) -> Result<Answers, Error> {
        let (sender, news) = mpsc::sync_channel(WAITING);
        let id = self.begin_request(request, Sink::Channel(sender))?;
        Ok(Answers {
            client: self.clone(),
            id,
            news,
            over: false,
        })
    }

    fn begin_request(&self, request: Request, sink: Sink) -> Result<Id, Error> {
        let id = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(why) = &waiting.lost {
                return Err(self.lost(why));
            }
            let id = waiting.next;
            waiting.next = id.wrapping_add(1);
            waiting.by_id.insert(id, sink);
            id
        };
        self.send(&ToAgent::Request { id, request })?;
        Ok(id)
    }

    /// Asks for something whose bytes go through a line.
    pub(crate) fn ask_through(&self, request: Request, line: &Arc<Line>) -> Result<Id, Error> {
        self.begin_request(request, Sink::Line(Arc::clone(line)))
    }

    fn one(&self, request: Request) -> Result<Answer, Error> {
        let mut answers = self.ask(request)?;
        match answers.receive()? {
            Some(answer) => {
                while answers.receive()?.is_some() {}
                Ok(answer)
            }
            None => Err(self.lost("the answer is empty")),
        }
    }

    /// Says that a program is ours from now on; `takes_over`: also if it was
    /// somebody else's.
    pub fn claim(&self, program: &str, takes_over: bool) -> Result<(), Error> {
        let mut answers = self.ask(Request::Claim {
            program: program.to_string(),
            takes_over,
        })?;
        while answers.receive()?.is_some() {}
        Ok(())
    }

    /// What kind of host it is.
    pub fn facts(&self) -> Result<Facts, Error> {
        match self.one(Request::Facts)? {
            Answer::Facts(facts) => Ok(*facts),
            _ => Err(self.lost("the answer is to another question")),
        }
    }

    /// How far its clock is ahead of ours, in nanoseconds, and how far that
    /// may be wrong. Both are of `CLOCK_REALTIME`.
    pub fn clock_offset(&self) -> Result<(i64, u64), Error> {
        let mut best: Option<(i64, u64)> = None;
        for _ in 0..5 {
            let (before, begun) = (std::time::SystemTime::now(), Instant::now());
            let Answer::Time(theirs) = self.one(Request::Time)? else {
                return Err(self.lost("the answer is to another question"));
            };
            let half = begun.elapsed() / 2;
            let middle = before
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap_or(Duration::ZERO)
                + half;
            let offset = i128::from(theirs) - middle.as_nanos() as i128;
            let half = half.as_nanos() as u64;
            if best.is_none_or(|(_, within)| half < within) {
                best = Some((i64::try_from(offset).unwrap_or(i64::MAX), half));
            }
        }
        best.ok_or_else(|| self.lost("no answer"))
    }

    /// Its recordings, the latest first.
    pub fn recordings(&self) -> Result<Vec<Stored>, Error> {
        let mut answers = self.ask(Request::List)?;
        let mut found = Vec::new();
        while let Some(answer) = answers.receive()? {
            if let Answer::Recording(stored) = answer {
                found.push(stored);
            }
        }
        Ok(found)
    }

    /// Sends a signal to what a request started.
    pub fn signal(&self, run: Id, signal: i32, to: Whom) -> Result<(), Error> {
        let mut answers = self.ask(Request::Signal { run, signal, to })?;
        while answers.receive()?.is_some() {}
        Ok(())
    }
}

impl Answers {
    /// The id of the request.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The next answer; `None` after the last.
    pub fn receive(&mut self) -> Result<Option<Answer>, Error> {
        if self.over {
            return Ok(None);
        }
        let lost = |why: String| Err(self.client.lost(why));
        match self.news.recv() {
            Ok(News::Answer(answer)) => Ok(Some(answer)),
            Ok(News::End(failure)) => {
                self.over = true;
                match failure {
                    None => Ok(None),
                    Some(said) => Err(Error::Refused {
                        host: self.client.host.to_string(),
                        said,
                    }),
                }
            }
            Ok(News::Lost(why)) => {
                self.over = true;
                lost(why)
            }
            Err(_) => {
                self.over = true;
                let waiting = self.client.waiting.lock();
                let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
                lost(waiting.lost.clone().unwrap_or_default())
            }
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.client.send(&ToAgent::Cancel(self.id));
        }
    }
}

/// Hands out what comes, until nothing does. Returns why.
fn receive(input: &mut impl Read, waiting: &Mutex<Waiting>) -> String {
    let mut buffer = Vec::new();
    loop {
        let (id, news) = match frame::read(input, &mut buffer) {
            Ok(FromAgent::Answer { id, answer }) => (id, News::Answer(answer)),
            Ok(FromAgent::End { id, failure }) => (id, News::End(failure)),
            Err(error) => return error.to_string(),
        };
        let sink = {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            match news {
                News::End(_) => waiting.by_id.remove(&id),
                _ => waiting.by_id.get(&id).cloned(),
            }
        };
        match (sink, news) {
            (Some(Sink::Channel(sender)), news) => drop(sender.send(news)),
            (Some(Sink::Line(line)), News::Answer(answer)) => line.take(answer),
            (Some(Sink::Line(line)), News::End(failure)) => line.end(failure),
            (Some(Sink::Line(line)), News::Lost(why)) => line.end(Some(why)),
            // Who does not wait any more has cancelled.
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn begin(version: &[u8]) -> Result<Client, Error> {
        let (input, output) = (Cursor::new(version.to_vec()), Box::new(Vec::new()));
        Client::begin("a", input, output, str::to_string)
    }

    #[test]
    fn an_agent_of_another_version_is_named() {
        assert!(begin(&opening::VERSION.to_le_bytes()).is_ok());
        let other = opening::VERSION + 1;
        let Err(error) = begin(&other.to_le_bytes()) else {
            panic!("it speaks with version {other}");
        };
        let words = error.to_string();
        assert!(words.contains("the agent on a speaks version"), "{words}");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("the same mw"))
        );
        // Gone before it said so.
        assert!(matches!(begin(&[]), Err(Error::Lost { .. })));
    }
}
