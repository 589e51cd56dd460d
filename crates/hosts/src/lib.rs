//! A program on several hosts: the agent that records on one of them, and
//! those who ask it.
//!
//! | module | holds |
//! |---|---|
//! | [`serve`] | the agent: answers requests ([`wire`]) on a connection |
//! | [`client`] | the other end: asks, and hands out the answers |
//! | [`reach`] | how to reach a host |
//! | [`ssh`] | by the user's own `ssh`, with nothing installed there |
//! | [`listen`], [`tls`] | or where an agent listens, for who has a certificate |
//! | [`trust`] | which certificates there are, and what they hold for |
//! | [`refusal`] | why an agent does not do what it is asked |
//! | [`session`] | who speaks with an agent, and which programs are whose |
//! | [`pull`] | fetches a recording |
//! | `desk` | debugs programs of the agent's host for who asks it |
//! | [`far`] | the asker's end of that: a line to a warden there, and the host's files |
//! | [`plan`] | what is to run where |
//! | [`drive`] | runs it, from the first start to the last end |
//!
//! While a program runs, nothing of its recording crosses the network. What it
//! says goes into files on its host, which the agent reads from: so neither a
//! slow nor a broken connection is felt by the program, and the recording goes
//! on without anybody who listens.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::print_stderr, clippy::print_stdout)]

pub mod client;
pub mod connect;
mod desk;
pub mod drive;
mod error;
pub mod far;
pub mod followed;
pub mod listen;
pub mod plan;
pub mod pull;
pub mod refusal;
mod run;
pub mod serve;
pub mod session;
pub mod ssh;
mod stored;
pub mod tls;
pub mod trust;

/// Does the same with each, at the same time; one after the other where no thread can be had.
pub fn at_once<T: Sync, R: Send>(list: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let begun: Vec<_> = list
            .iter()
            .map(|item| {
                let thread = std::thread::Builder::new();
                (item, thread.spawn_scoped(scope, move || work(item)))
            })
            .collect();
        let done = begun.into_iter().map(|(item, thread)| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => work(item),
        });
        done.collect()
    })
}

pub use client::Client;
pub use error::Error;
pub use refusal::Refusal;
