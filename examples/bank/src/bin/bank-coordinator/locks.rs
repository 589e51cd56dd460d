//! Who may change which account.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bank::bank::Account;

/// One lock per account. A worker that changes a balance holds it from reading the old balance to
/// posting the new one.
pub struct AccountLocks(Vec<Mutex<()>>);

impl AccountLocks {
    pub fn new() -> AccountLocks {
        AccountLocks(Account::all().map(|_| Mutex::new(())).collect())
    }

    pub fn hold(&self, account: Account) -> MutexGuard<'_, ()> {
        // There is no data in the lock that a panic could have left half changed.
        self.0[account.index()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
