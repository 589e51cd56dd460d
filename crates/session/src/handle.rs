//! A group on a thread of its own.
//!
//! Processes that replay end with the thread that started them, so a group stays
//! on one thread for its whole life. Who serves several clients, or may not wait,
//! reaches it from elsewhere by a [`Handle`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::group::Group;
use crate::program::Program;
use crate::{Error, Result};

type Request = Box<dyn FnOnce(&mut Group) + Send>;

/// Reaches a [`Group`] that lives on a thread of its own. The group ends with it.
pub struct Handle {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// What will have been answered.
pub struct Answer<T>(Receiver<T>);

impl<T> Answer<T> {
    /// Waits for it.
    pub fn wait(self) -> Result<T> {
        self.0.recv().map_err(|_| Error::Gone)
    }
}

impl Handle {
    /// Starts a group on a program. Several may look at one program at once.
    pub fn start(program: &Arc<Program>) -> Result<Handle> {
        let (requests, queue) = channel::<Request>();
        let (ready, begun) = channel();
        let program = Arc::clone(program);
        let serve = move || {
            let mut group = match Group::new(&program) {
                Ok(group) => group,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let _ = ready.send(Ok(()));
            while let Ok(request) = queue.recv() {
                request(&mut group);
            }
        };
        let thread = std::thread::Builder::new()
            .name("session".to_string())
            .spawn(serve)
            .map_err(|_| Error::Gone)?;
        let handle = Handle {
            requests: Some(requests),
            thread: Some(thread),
        };
        begun.recv().map_err(|_| Error::Gone)??;
        Ok(handle)
    }

    /// Has something done there, in order, and does not wait for it.
    pub fn send<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Group) -> T + Send + 'static,
    ) -> Result<Answer<T>> {
        let (to, from) = channel();
        let request = Box::new(move |group: &mut Group| {
            let _ = to.send(request(group));
        });
        let requests = self.requests.as_ref().ok_or(Error::Gone)?;
        requests.send(request).map_err(|_| Error::Gone)?;
        Ok(Answer(from))
    }

    /// Has something done there, and waits for it.
    pub fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Group) -> T + Send + 'static,
    ) -> Result<T> {
        self.send(request)?.wait()
    }
}

/// The group and its processes end with it: what is being done is waited for.
impl Drop for Handle {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
