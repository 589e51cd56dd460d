//! The facts about the bank that every process must agree on.

use std::fmt::{self, Display};
use std::num::ParseIntError;
use std::str::FromStr;

/// An amount of money, or a balance. Signed, because a debit is a negative change.
pub type Money = i64;

pub const SERVERS: usize = 3;
pub const CLIENTS: u32 = 3;
pub const ACCOUNTS_PER_CLIENT: u32 = 9;

/// The clients' accounts and the bank's own.
pub const ACCOUNTS: u32 = 1 + CLIENTS * ACCOUNTS_PER_CLIENT;

pub const OPENING_BALANCE: Money = 100;

/// What all the balances must add up to, however the money has moved.
pub const EXPECTED_TOTAL: Money = ACCOUNTS as Money * OPENING_BALANCE;

/// The number of an account, from 0 up to [`ACCOUNTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(u32);

impl Account {
    /// The bank's own account. The clients' accounts follow it.
    pub const BANK: Account = Account(0);

    pub fn new(number: u32) -> Option<Account> {
        (number < ACCOUNTS).then_some(Account(number))
    }

    pub fn all() -> impl Iterator<Item = Account> {
        (0..ACCOUNTS).map(Account)
    }

    pub fn of_client(client: u32) -> impl Iterator<Item = Account> + Clone {
        let first = 1 + client * ACCOUNTS_PER_CLIENT;
        (first..first + ACCOUNTS_PER_CLIENT).map(Account)
    }

    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Which of the account servers holds this account.
    pub fn server(self) -> usize {
        self.index() % SERVERS
    }

    /// Which of its server's accounts this is.
    pub fn slot(self) -> usize {
        self.index() / SERVERS
    }
}

impl Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Account, String> {
        let number = text
            .parse()
            .map_err(|error: ParseIntError| format!("`{text}` is not an account: {error}"))?;
        Account::new(number).ok_or_else(|| format!("there is no account {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_has_a_place_of_its_own() {
        let mut places: Vec<_> = Account::all()
            .map(|account| (account.server(), account.slot()))
            .collect();
        assert!(places.iter().all(|&(server, _)| server < SERVERS));
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), ACCOUNTS as usize);
    }

    #[test]
    fn every_account_has_one_owner() {
        let owned = (0..CLIENTS).flat_map(Account::of_client);
        let accounts: Vec<_> = std::iter::once(Account::BANK).chain(owned).collect();
        assert_eq!(accounts, Account::all().collect::<Vec<_>>());
    }

    #[test]
    fn accounts_are_checked_when_parsed() {
        assert_eq!("7".parse(), Ok(Account(7)));
        assert!(ACCOUNTS.to_string().parse::<Account>().is_err());
        assert!("-1".parse::<Account>().is_err());
        assert!("".parse::<Account>().is_err());
    }
}
