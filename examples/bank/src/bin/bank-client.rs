//! A client: makes its transfers, one after the other.
//!
//! Usage: bank-client CLIENT COORDINATOR-PORT

use std::process::ExitCode;
use std::time::Instant;

use bank::address;
use bank::failure::{self, Context, Failure, Result};
use bank::line::Line;
use bank::protocol::{Reply, Request};
use bank::workload;

fn main() -> ExitCode {
    failure::run("bank-client", || {
        let usage = || Failure::new("usage: bank-client CLIENT COORDINATOR-PORT");
        let mut arguments = std::env::args().skip(1);
        let client: u32 = arguments
            .next()
            .ok_or_else(usage)?
            .parse()
            .context(|| "CLIENT must be a number")?;
        let port: u16 = arguments
            .next()
            .ok_or_else(usage)?
            .parse()
            .context(|| "COORDINATOR-PORT must be a port")?;
        make_transfers(client, port)
    })
}

fn make_transfers(client: u32, port: u16) -> Result<()> {
    let mut coordinator = Line::connect("the coordinator", port)?;
    let mut made = 0;
    let mut refused = 0;
    let (pause, patience) = (workload::pause(), address::patience());
    let mut last = Instant::now();
    for transfer in workload::transfers(client) {
        if let Some(pause) = pause {
            std::thread::sleep(pause);
        }
        match coordinator.ask(&transfer)? {
            Reply::Ok => made += 1,
            Reply::Refused => refused += 1,
            reply => return Err(coordinator.unexpected(&reply)),
        }
        // The bank keeps its place for as long and no longer.
        if patience.is_some_and(|patience| last.elapsed() > patience) {
            let ms = last.elapsed().as_millis();
            return Err(Failure::new(format!(
                "the lease is lost: {ms} ms for a transfer"
            )));
        }
        last = Instant::now();
    }
    match coordinator.ask(&Request::Finish)? {
        Reply::Ok => {}
        reply => return Err(coordinator.unexpected(&reply)),
    }
    println!("client {client}: {made} transfers made, {refused} refused");
    Ok(())
}
