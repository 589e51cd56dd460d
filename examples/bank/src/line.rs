//! A TCP connection that carries one message per line.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::str::FromStr;

use crate::address::Address;
use crate::failure::{Context, Failure, Result};

pub struct Line {
    /// Who is at the other end, for messages about it.
    peer: String,
    reader: BufReader<TcpStream>,
}

impl Line {
    /// Connects to the service that calls itself `peer` and listens at that address.
    pub fn connect(peer: impl Into<String>, address: impl Into<Address>) -> Result<Line> {
        let peer = peer.into();
        let stream = address.into().connect(&peer)?;
        Line::new(peer, stream)
    }

    pub fn new(peer: impl Into<String>, stream: TcpStream) -> Result<Line> {
        let peer = peer.into();
        // Every message is small and somebody waits for it: do not hold it back to fill a packet.
        stream
            .set_nodelay(true)
            .context(|| format!("cannot set up the connection to {peer}"))?;
        let reader = BufReader::new(stream);
        Ok(Line { peer, reader })
    }

    pub fn send(&mut self, message: &impl Display) -> Result<()> {
        // One write for the whole line, so that a message is one packet.
        let line = format!("{message}\n");
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .context(|| format!("cannot send `{message}` to {}", self.peer))
    }

    /// The next message, or `None` if the peer has closed the connection.
    pub fn receive<M: FromStr<Err = String>>(&mut self) -> Result<Option<M>> {
        let mut line = String::new();
        let length = self
            .reader
            .read_line(&mut line)
            .context(|| format!("cannot receive from {}", self.peer))?;
        if length == 0 {
            return Ok(None);
        }
        line.trim_end()
            .parse()
            .map(Some)
            .context(|| format!("{} sent something odd", self.peer))
    }

    /// Sends a request and waits for its reply.
    pub fn ask<M: FromStr<Err = String>>(&mut self, request: &impl Display) -> Result<M> {
        self.send(request)?;
        self.receive()?.ok_or_else(|| {
            Failure::new(format!(
                "{} closed the connection instead of answering `{request}`",
                self.peer
            ))
        })
    }

    /// The failure of a peer to give a reply that fits the request.
    pub fn unexpected(&self, reply: &impl Display) -> Failure {
        Failure::new(format!("{} answered by `{reply}`, out of turn", self.peer))
    }
}
