//! Files: their modes, what `stat` says, directories, what is waited for.

use protocol::names;
use protocol::syscall::Shape;

use super::{At, Value, fields, named, until_nul};

pub(super) fn file_mode(mode: u64) -> Value {
    let kind = match mode & 0o170000 {
        0o140000 => "S_IFSOCK",
        0o120000 => "S_IFLNK",
        0o100000 => "S_IFREG",
        0o060000 => "S_IFBLK",
        0o040000 => "S_IFDIR",
        0o020000 => "S_IFCHR",
        0o010000 => "S_IFIFO",
        _ => return Value::Octal(mode),
    };
    Value::Name(format!("{kind}|0{:03o}", mode & 0o7777))
}

pub(super) fn stat(mode: u64, device: u64, size: i64) -> Option<Value> {
    let second = match mode & 0o170000 {
        0o020000 | 0o060000 => {
            let major = device >> 8 & 0xfff | device >> 32 & !0xfff;
            let minor = device & 0xff | device >> 12 & !0xff;
            (
                "st_rdev",
                Value::Name(format!("makedev({major:#x}, {minor:#x})")),
            )
        }
        _ => ("st_size", Value::Int(size)),
    };
    fields(&[("st_mode", file_mode(mode)), second], true)
}

pub(super) fn epoll_event(at: At<'_>) -> Option<Value> {
    fields(
        &[
            ("events", named(&names::EPOLL_EVENT, at.u32(0)?)),
            ("data", Value::Hex(at.u64(4)?)),
        ],
        false,
    )
}

pub(super) fn directory(mut bytes: &[u8]) -> Option<Value> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let len = At(bytes).u16(16)? as usize;
        let entry = bytes.get(..len)?;
        entries.push(Value::Path(until_nul(entry.get(19..)?).to_vec()));
        bytes = bytes.get(len..)?;
    }
    Some(Value::List(entries))
}

/// What `ioctl` passes, for the requests whose structure is known.
pub(in crate::render) fn ioctl_shape(request: u64) -> Option<Shape> {
    Some(match request as u32 {
        0x5401..=0x5404 => Shape::Termios,
        0x5413 | 0x5414 => Shape::Winsize,
        0x540f | 0x5410 | 0x541b | 0x5411 | 0x5421 | 0x5452 => Shape::Int32,
        0x8910..=0x8970 => Shape::Ifreq,
        _ => return None,
    })
}
