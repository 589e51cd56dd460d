//! The coordinator: carries out the transfers of the clients on the account servers.
//! Usage: bank-coordinator ACCOUNT-SERVER...

mod locks;
mod poster;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use bank::address::Address;
use bank::bank::SERVERS;
use bank::failure::{self, Context, Failure, Result};
use bank::line::Line;
use bank::service;

use locks::AccountLocks;
use poster::Poster;
use worker::Worker;

fn main() -> ExitCode {
    failure::run("bank-coordinator", || {
        let ports = std::env::args()
            .skip(1)
            .map(|port| port.parse())
            .collect::<std::result::Result<Vec<Address>, _>>()
            .context(|| "ACCOUNT-SERVER must be a port or an address")?;
        if ports.len() != SERVERS {
            return Err(Failure::new(format!(
                "usage: bank-coordinator ACCOUNT-SERVER... ({SERVERS} of them)"
            )));
        }
        let posters = connect(&ports)?
            .into_iter()
            .enumerate()
            .map(|(server, line)| Poster::start(server, line))
            .collect::<Result<Vec<_>>>()?;
        let posters = Arc::new(posters);
        let locks = Arc::new(AccountLocks::new());
        service::run("bank-coordinator", move |client| {
            Worker::new(connect(&ports)?, &posters, &locks).serve(client)
        })
    })
}

/// A new connection to each of the account servers.
fn connect(ports: &[Address]) -> Result<Vec<Line>> {
    ports
        .iter()
        .enumerate()
        .map(|(server, port)| Line::connect(format!("account server {server}"), *port))
        .collect()
}
