//! Addresses of sockets, as others may know them.

use protocol::record::tag;
use recording::Event;
use recording::sockaddr::Address;

use super::World;
use super::objects::*;

/// The address a peer is reached at: an unspecified one is this machine's.
pub(crate) fn reached(address: Address) -> Address {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match plain(address) {
        Address::V4(ip, port) if ip.is_unspecified() => Address::V4(Ipv4Addr::LOCALHOST, port),
        Address::V6(ip, port, _) if ip.is_unspecified() => {
            Address::V6(Ipv6Addr::LOCALHOST, port, 0)
        }
        other => other,
    }
}

/// One way to write an address that can be written in two.
pub(crate) fn plain(address: Address) -> Address {
    match address {
        Address::V6(ip, port, scope) => match ip.to_ipv4_mapped() {
            Some(v4) => Address::V4(v4, port),
            None => Address::V6(ip, port, scope),
        },
        other => other,
    }
}

impl World<'_> {
    /// An address that an event names, as others may know it.
    pub(super) fn address(&mut self, op: Op, bytes: &[u8]) -> Option<Address> {
        Some(match plain(Address::parse(bytes)?) {
            Address::UnixPath(path) => Address::UnixPath(self.absolute(op.process, None, &path)),
            other => other,
        })
    }

    pub(super) fn address_in(&mut self, op: Op, event: &Event<'_>, tag: u8) -> Option<Address> {
        let blob = event.blob(tag)?;
        self.address(op, blob.bytes)
    }

    pub(super) fn address_argument(
        &mut self,
        op: Op,
        event: &Event<'_>,
        argument: usize,
    ) -> Option<Address> {
        let data = event.argument(argument)?;
        self.address(op, data.bytes)
    }

    /// The own address, where an event tells it.
    pub(super) fn learn_local(&mut self, op: Op, event: &Event<'_>, file: u32) {
        if let Some(local) = self.address_in(op, event, tag::LOCAL)
            && let Some((_, socket)) = self.socket(file)
        {
            socket.local = Some(local);
        }
    }
}
