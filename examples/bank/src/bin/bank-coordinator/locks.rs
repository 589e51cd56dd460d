//! Who may change which account.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bank::bank::Account;

/// One lock per account. Whoever changes a balance holds the account's lock from reading the old
/// balance to writing the new one.
pub struct AccountLocks(Vec<Mutex<()>>);

impl AccountLocks {
    pub fn new() -> AccountLocks {
        AccountLocks(Account::all().map(|_| Mutex::new(())).collect())
    }

    pub fn hold(&self, account: Account) -> MutexGuard<'_, ()> {
        // The lock guards no data that a worker could have left half changed by a panic.
        self.0[account.index()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
