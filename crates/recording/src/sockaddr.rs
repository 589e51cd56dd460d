//! Socket addresses in words.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::frame::field;

/// A socket address, as the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `AF_INET`.
    V4(Ipv4Addr, u16),
    /// `AF_INET6`: address, port, scope.
    V6(Ipv6Addr, u16, u32),
    /// `AF_UNIX` with a path.
    UnixPath(Vec<u8>),
    /// `AF_UNIX` in the abstract name space.
    UnixAbstract(Vec<u8>),
    /// `AF_UNIX` without a name.
    UnixUnnamed,
    /// `AF_NETLINK`: port id and groups.
    Netlink(u32, u32),
    /// Another family.
    Other(u16),
}

/// `AF_UNIX`.
pub const UNIX: u16 = 1;
/// `AF_INET`.
pub const INET: u16 = 2;
/// `AF_INET6`.
pub const INET6: u16 = 10;
/// `AF_NETLINK`.
pub const NETLINK: u16 = 16;

impl Address {
    /// Reads a `sockaddr`; `None` if it is too short to be one.
    pub fn parse(bytes: &[u8]) -> Option<Address> {
        let family = u16::from_le_bytes(field(bytes, 0)?);
        let port = || Some(u16::from_be_bytes(field(bytes, 2)?));
        Some(match family {
            INET => Address::V4(Ipv4Addr::from(field::<4>(bytes, 4)?), port()?),
            INET6 => Address::V6(
                Ipv6Addr::from(field::<16>(bytes, 8)?),
                port()?,
                field(bytes, 24).map_or(0, u32::from_le_bytes),
            ),
            UNIX => match bytes.get(2..) {
                None | Some([]) => Address::UnixUnnamed,
                Some([0, name @ ..]) if name.iter().all(|b| *b == 0) => Address::UnixUnnamed,
                Some([0, name @ ..]) => Address::UnixAbstract(name.to_vec()),
                Some(path) => {
                    let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
                    Address::UnixPath(path.get(..end).unwrap_or(path).to_vec())
                }
            },
            NETLINK => Address::Netlink(
                u32::from_le_bytes(field(bytes, 4)?),
                u32::from_le_bytes(field(bytes, 8)?),
            ),
            other => Address::Other(other),
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::V4(ip, port) => write!(f, "{ip}:{port}"),
            Address::V6(ip, port, 0) => write!(f, "[{ip}]:{port}"),
            Address::V6(ip, port, scope) => write!(f, "[{ip}%{scope}]:{port}"),
            Address::UnixPath(path) => write!(f, "unix:{}", String::from_utf8_lossy(path)),
            Address::UnixAbstract(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
            Address::UnixUnnamed => f.write_str("unix"),
            Address::Netlink(port, _) => write!(f, "netlink:{port}"),
            Address::Other(family) => write!(f, "family {family}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let show = |bytes: &[u8]| Address::parse(bytes).map(|a| a.to_string());
        let v4 = [2, 0, 0x18, 0xeb, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(show(&v4).unwrap(), "127.0.0.1:6379");
        let mut v6 = vec![10, 0, 0, 80, 0, 0, 0, 0];
        v6.extend([0; 15]);
        v6.extend([1, 0, 0, 0, 0]);
        assert_eq!(show(&v6).unwrap(), "[::1]:80");
        assert_eq!(show(b"\x01\0/tmp/s\0\0").unwrap(), "unix:/tmp/s");
        assert_eq!(show(b"\x01\0\0name").unwrap(), "unix:@name");
        assert_eq!(show(b"\x01\0").unwrap(), "unix");
        assert_eq!(show(b"\x02\0\0"), None);
        assert_eq!(show(b""), None);
    }
}
