//! Serving one client.

use bank::bank::{Account, Money};
use bank::failure::Result;
use bank::line::Line;
use bank::protocol::{AccountReply, AccountRequest, Reply, Request};

use crate::locks::AccountLocks;
use crate::poster::Poster;

/// Carries out what one client asks for.
///
/// It reads balances over connections of its own, so that workers wait for each other only where
/// they want the same account.
pub struct Worker<'a> {
    servers: Vec<Line>,
    posters: &'a [Poster],
    locks: &'a AccountLocks,
}

impl Worker<'_> {
    pub fn new<'a>(
        servers: Vec<Line>,
        posters: &'a [Poster],
        locks: &'a AccountLocks,
    ) -> Worker<'a> {
        Worker {
            servers,
            posters,
            locks,
        }
    }

    pub fn serve(mut self, mut client: Line) -> Result<()> {
        while let Some(request) = client.receive()? {
            let reply = match request {
                Request::Transfer { from, to, amount } => self.transfer(from, to, amount)?,
                Request::Finish => self.finish()?,
                Request::Audit => self.audit()?,
            };
            client.send(&reply)?;
        }
        Ok(())
    }

    fn transfer(&mut self, from: Account, to: Account, amount: Money) -> Result<Reply> {
        if !self.change(from, -amount)? {
            return Ok(Reply::Refused);
        }
        self.change(to, amount)?;
        Ok(Reply::Ok)
    }

    /// Adds `amount` to the balance of an account, unless that would overdraw it.
    fn change(&mut self, account: Account, amount: Money) -> Result<bool> {
        let _held = self.locks.hold(account);
        let balance = self.balance(account)? + amount;
        if balance < 0 {
            return Ok(false);
        }
        // The poster keeps the order in which it is given balances, so the lock can go now; there
        // is no need to keep the others waiting for the server.
        self.posters[account.server()].set(account, balance)?;
        Ok(true)
    }

    fn balance(&mut self, account: Account) -> Result<Money> {
        let server = &mut self.servers[account.server()];
        match server.ask(&AccountRequest::Get(account))? {
            AccountReply::Balance(of, balance) if of == account => Ok(balance),
            reply => Err(server.unexpected(&reply)),
        }
    }

    /// Waits until all that this worker has changed is on the books.
    fn finish(&mut self) -> Result<Reply> {
        for poster in self.posters {
            poster.flush()?;
        }
        Ok(Reply::Ok)
    }

    fn audit(&mut self) -> Result<Reply> {
        let mut total = 0;
        for server in &mut self.servers {
            match server.ask(&AccountRequest::Sum)? {
                AccountReply::Sum(sum) => total += sum,
                reply => return Err(server.unexpected(&reply)),
            }
        }
        Ok(Reply::Total(total))
    }
}
