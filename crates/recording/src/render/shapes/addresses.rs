//! Addresses of sockets.

use protocol::names;

use super::{Value, fields, named};
use crate::sockaddr::Address;

/// A socket address.
pub(super) fn address(bytes: &[u8]) -> Option<Value> {
    let family = |name: &str| ("sa_family", Value::Name(name.to_string()));
    match Address::parse(bytes)? {
        Address::V4(ip, port) => fields(
            &[
                family("AF_INET"),
                ("sin_port", Value::Uint(u64::from(port))),
                ("sin_addr", Value::Path(ip.to_string().into_bytes())),
            ],
            false,
        ),
        Address::V6(ip, port, scope) => {
            let mut shown = vec![
                family("AF_INET6"),
                ("sin6_port", Value::Uint(u64::from(port))),
                ("sin6_addr", Value::Path(ip.to_string().into_bytes())),
            ];
            if scope != 0 {
                shown.push(("sin6_scope_id", Value::Uint(u64::from(scope))));
            }
            Some(Value::Struct(shown, false))
        }
        Address::UnixPath(path) => {
            fields(&[family("AF_UNIX"), ("sun_path", Value::Path(path))], false)
        }
        Address::UnixAbstract(name) => fields(
            &[
                family("AF_UNIX"),
                ("sun_path", Value::Path([b"@", name.as_slice()].concat())),
            ],
            false,
        ),
        Address::UnixUnnamed => fields(&[family("AF_UNIX")], false),
        Address::Netlink(port, groups) => fields(
            &[
                family("AF_NETLINK"),
                ("nl_pid", Value::Uint(u64::from(port))),
                ("nl_groups", Value::Hex(u64::from(groups))),
            ],
            false,
        ),
        Address::Other(family) => fields(
            &[("sa_family", named(&names::DOMAIN, u64::from(family)))],
            true,
        ),
    }
}
