//! An account server: holds the balances of a third of the accounts.
//!
//! Usage: bank-account SERVER
//!
//! It knows nothing of transfers; it hands out balances and takes new ones.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use bank::bank::{Account, Money, OPENING_BALANCE};
use bank::failure::{self, Context, Failure, Result};
use bank::line::Line;
use bank::protocol::{AccountReply, AccountRequest};
use bank::service;

fn main() -> ExitCode {
    failure::run("bank-account", || {
        let server: usize = std::env::args()
            .nth(1)
            .ok_or_else(|| Failure::new("usage: bank-account SERVER"))?
            .parse()
            .context(|| "SERVER must be a number")?;
        let books = Arc::new(Mutex::new(Books::open(server)));
        service::run("bank-account", move |coordinator| {
            serve(&books, coordinator)
        })
    })
}

fn serve(books: &Mutex<Books>, mut coordinator: Line) -> Result<()> {
    while let Some(request) = coordinator.receive()? {
        let reply = books
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .handle(request)?;
        coordinator.send(&reply)?;
    }
    Ok(())
}

struct Books {
    server: usize,
    /// By [`Account::slot`].
    balances: Vec<Money>,
}

impl Books {
    fn open(server: usize) -> Books {
        let balances = Account::all()
            .filter(|account| account.server() == server)
            .map(|_| OPENING_BALANCE)
            .collect();
        Books { server, balances }
    }

    fn handle(&mut self, request: AccountRequest) -> Result<AccountReply> {
        match request {
            AccountRequest::Get(account) => {
                let slot = self.slot(account)?;
                Ok(AccountReply::Balance(account, self.balances[slot]))
            }
            AccountRequest::Set(account, balance) => {
                let slot = self.slot(account)?;
                self.balances[slot] = balance;
                Ok(AccountReply::Done)
            }
            AccountRequest::Sum => Ok(AccountReply::Sum(self.balances.iter().sum())),
            AccountRequest::Close => std::process::exit(0),
        }
    }

    fn slot(&self, account: Account) -> Result<usize> {
        if account.server() == self.server {
            Ok(account.slot())
        } else {
            Err(Failure::new(format!("account {account} is not kept here")))
        }
    }
}
