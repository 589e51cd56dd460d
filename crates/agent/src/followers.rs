//! Threads that follow an exec each. One that has done so waits for the next: a program that
//! starts many others would wait for as many threads to be made.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// So many are kept.
const IDLE: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub struct Followers {
    idle: Mutex<Vec<Sender<Job>>>,
}

impl Followers {
    /// Does something in a thread of its own, which has no children.
    pub fn run(self: &Arc<Self>, mut job: Job) -> std::io::Result<()> {
        while let Some(idle) = self.lock().pop() {
            match idle.send(job) {
                Ok(()) => return Ok(()),
                Err(unsent) => job = unsent.0,
            }
        }
        let followers = Arc::downgrade(self);
        let all = move || {
            let mut next = Some(job);
            while let Some(job) = next {
                job();
                next = wait(&followers);
            }
        };
        std::thread::Builder::new().spawn(all).map(|_| ())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sender<Job>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for something to do. None: there are enough others, or the recording is over.
fn wait(followers: &Weak<Followers>) -> Option<Job> {
    let (sender, receiver) = mpsc::channel();
    {
        let followers = followers.upgrade()?;
        let mut idle = followers.lock();
        if idle.len() >= IDLE {
            return None;
        }
        idle.push(sender);
    }
    receiver.recv().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;
    use std::thread::ThreadId;

    #[test]
    fn a_thread_is_used_again_and_ends_with_the_recording() {
        let followers = Arc::new(Followers::default());
        let (said, heard) = mpsc::channel::<ThreadId>();
        let ask = || {
            let said = said.clone();
            let job = move || said.send(std::thread::current().id()).unwrap();
            followers.run(Box::new(job)).unwrap();
            heard.recv().unwrap()
        };
        let first = ask();
        // It says so before it waits again.
        while followers.lock().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(ask(), first);
        while followers.lock().is_empty() {
            std::thread::yield_now();
        }
        let weak = Arc::downgrade(&followers);
        drop(followers);
        assert!(weak.upgrade().is_none(), "a waiting thread keeps nothing");
    }

    #[test]
    fn those_who_work_at_a_time_are_as_many_as_needed() {
        let followers = Arc::new(Followers::default());
        let (said, heard) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let said_first = said.clone();
        let waits = move || {
            said_first.send(1).unwrap();
            gone.recv().unwrap();
        };
        followers.run(Box::new(waits)).unwrap();
        assert_eq!(heard.recv().unwrap(), 1);
        followers
            .run(Box::new(move || said.send(2).unwrap()))
            .unwrap();
        assert_eq!(heard.recv().unwrap(), 2);
        go.send(()).unwrap();
    }
}
