//! Posting new balances to an account server.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use bank::bank::{Account, Money};
use bank::failure::{Failure, Result};
use bank::line::Line;
use bank::protocol::{AccountReply, AccountRequest};

/// Writes the new balances of one account server's accounts, for all workers.
///
/// There is one per server, and it waits for each `set` to be done before it sends the next: if
/// the workers sent them, each on its own connection, then an older balance might arrive after a
/// newer one and replace it. The workers need not wait meanwhile.
pub struct Poster {
    queue: Sender<Post>,
}

enum Post {
    Set(Account, Money),
    /// A request to hear when all that was queued before has been done.
    Flush(Sender<()>),
}

impl Poster {
    pub fn start(server: Line) -> Poster {
        let (queue, posts) = mpsc::channel();
        thread::spawn(move || {
            // The workers notice that the queue has no reader any more.
            if let Err(failure) = post_all(server, posts) {
                eprintln!("bank-coordinator: {failure}");
            }
        });
        Poster { queue }
    }

    pub fn set(&self, account: Account, balance: Money) -> Result<()> {
        self.post(Post::Set(account, balance))
    }

    /// Waits until the server has done all that was queued so far.
    pub fn flush(&self) -> Result<()> {
        let (flushed, wait) = mpsc::channel();
        self.post(Post::Flush(flushed))?;
        wait.recv().map_err(|_| stopped())
    }

    fn post(&self, post: Post) -> Result<()> {
        self.queue.send(post).map_err(|_| stopped())
    }
}

fn stopped() -> Failure {
    Failure::new("new balances cannot be posted any more")
}

fn post_all(mut server: Line, posts: Receiver<Post>) -> Result<()> {
    for post in posts {
        match post {
            Post::Set(account, balance) => {
                match server.ask(&AccountRequest::Set(account, balance))? {
                    AccountReply::Done => {}
                    reply => return Err(server.unexpected(&reply)),
                }
            }
            // A worker that stopped waiting is no concern of the poster's.
            Post::Flush(flushed) => _ = flushed.send(()),
        }
    }
    Ok(())
}
