//! Which transfers a client makes. They are the same in every run; only their timing differs.

use std::time::Duration;

use crate::bank::{Account, Money};
use crate::protocol::Request;

/// How many transfers a client makes, if `BANK_TRANSFERS` does not say.
const TRANSFERS: usize = 80;
const LARGEST_AMOUNT: u32 = 20;

/// One transfer in so many pays the bank for its services.
const PAYS_BANK: u32 = 30;

/// With this seed about one run of ten goes wrong: see the README.
const SEED: u32 = 118;

/// The transfers of a client. Its accounts take turns; now and then one of them pays the bank.
pub fn transfers(client: u32) -> impl Iterator<Item = Request> {
    let mut random = Random::new(SEED + client);
    let mut turns = Account::of_client(client).cycle();
    let transfer = move || {
        let from = turns.next()?;
        let to = if random.below(PAYS_BANK) == 0 {
            Account::BANK
        } else {
            turns.next()?
        };
        let amount = Money::from(1 + random.below(LARGEST_AMOUNT));
        Some(Request::Transfer { from, to, amount })
    };
    let count = std::env::var("BANK_TRANSFERS").ok();
    let count = count.and_then(|count| count.parse().ok());
    std::iter::from_fn(transfer).take(count.unwrap_or(TRANSFERS))
}

/// How long a client pauses before each transfer: so many milliseconds as `BANK_PAUSE` says.
pub fn pause() -> Option<Duration> {
    let text = std::env::var("BANK_PAUSE").ok()?;
    text.parse().ok().map(Duration::from_millis)
}

/// A linear congruential generator with Knuth's constants: enough to vary a workload.
struct Random(u64);

impl Random {
    fn new(seed: u32) -> Random {
        let mut random = Random(u64::from(seed));
        // The first value shows how small the seed is.
        random.below(1);
        random
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The low bits of such a generator hardly vary.
        (self.0 >> 33) as u32 % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::CLIENTS;

    #[test]
    fn a_client_makes_the_same_transfers_in_every_run() {
        for client in 0..CLIENTS {
            assert!(transfers(client).eq(transfers(client)));
            assert_eq!(transfers(client).count(), TRANSFERS);
        }
    }

    #[test]
    fn a_client_spends_only_its_own_money() {
        for client in 0..CLIENTS {
            for request in transfers(client) {
                let Request::Transfer { from, to, amount } = request else {
                    panic!("not a transfer: {request}");
                };
                assert!(Account::of_client(client).any(|own| own == from));
                assert_ne!(from, to);
                assert!(amount > 0);
            }
        }
    }
}
