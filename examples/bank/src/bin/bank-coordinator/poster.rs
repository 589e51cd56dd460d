//! Posting new balances to the account servers.

use std::sync::mpsc::{self, Receiver, SyncSender};

use bank::bank::{Account, Money};
use bank::failure::{Failure, Result};
use bank::line::Line;
use bank::protocol::{AccountReply, AccountRequest};
use bank::service;

/// How many posts may wait. A server that falls behind slows the workers down instead of letting
/// the queue grow.
const QUEUE: usize = 1;

/// Posts new balances to one account server, for all workers.
///
/// Two workers may set the same account shortly after one another. On connections of their own
/// the older balance could arrive last and stay; so all that is set goes through one queue and
/// over one connection, and the next `set` leaves when the one before is done.
pub struct Poster {
    queue: SyncSender<Post>,
}

enum Post {
    Set(Account, Money),
    /// Asks to be told when all that was queued before is done.
    Flush(SyncSender<()>),
}

impl Poster {
    pub fn start(number: usize, server: Line) -> Result<Poster> {
        let (queue, posts) = mpsc::sync_channel(QUEUE);
        service::spawn(format!("poster-{number}"), move || {
            // The workers find out when they next use the queue: nobody is at its other end.
            if let Err(failure) = post_all(posts, server) {
                eprintln!("bank-coordinator: {failure}");
            }
        })?;
        Ok(Poster { queue })
    }

    pub fn set(&self, account: Account, balance: Money) -> Result<()> {
        self.post(Post::Set(account, balance))
    }

    /// Waits until all that was queued before is done.
    pub fn flush(&self) -> Result<()> {
        let (flushed, done) = mpsc::sync_channel(1);
        self.post(Post::Flush(flushed))?;
        done.recv().map_err(|_| stopped())
    }

    fn post(&self, post: Post) -> Result<()> {
        self.queue.send(post).map_err(|_| stopped())
    }
}

fn post_all(posts: Receiver<Post>, mut server: Line) -> Result<()> {
    for post in posts {
        match post {
            Post::Set(account, balance) => {
                match server.ask(&AccountRequest::Set(account, balance))? {
                    AccountReply::Done => {}
                    reply => return Err(server.unexpected(&reply)),
                }
            }
            // If the worker has gone, then nobody needs to know.
            Post::Flush(flushed) => _ = flushed.send(()),
        }
    }
    Ok(())
}

fn stopped() -> Failure {
    Failure::new("balances can no longer be posted")
}
