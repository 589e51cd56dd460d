//! Structures the kernel reads and writes, decoded.
//!
//! Layouts are those of x86-64. Bytes too short for their structure are shown
//! as bytes.

mod addresses;
mod files;
mod signals;
#[cfg(test)]
mod tests;

use protocol::names;
use protocol::syscall::{Names, Shape};

use super::Context;
use super::value::Value;
use crate::frame::field;
use addresses::address;
pub(super) use files::ioctl_shape;
use files::{directory, epoll_event, file_mode, stat};
use signals::{sigaction, signal_set};
pub(super) use signals::{siginfo, signal, wait_status};

/// Reads integers at offsets.
#[derive(Clone, Copy)]
struct At<'a>(&'a [u8]);

impl At<'_> {
    fn u16(self, at: usize) -> Option<u64> {
        Some(u64::from(u16::from_le_bytes(field(self.0, at)?)))
    }
    fn i16(self, at: usize) -> Option<i64> {
        Some(i64::from(i16::from_le_bytes(field(self.0, at)?)))
    }
    fn u32(self, at: usize) -> Option<u64> {
        Some(u64::from(u32::from_le_bytes(field(self.0, at)?)))
    }
    fn i32(self, at: usize) -> Option<i64> {
        Some(i64::from(i32::from_le_bytes(field(self.0, at)?)))
    }
    fn u64(self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(field(self.0, at)?))
    }
    fn i64(self, at: usize) -> Option<i64> {
        Some(i64::from_le_bytes(field(self.0, at)?))
    }
}

/// A number in words.
pub(super) fn named(names: &Names, value: u64) -> Value {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = names.describe(value, &mut text);
    Value::Name(text)
}

/// Decodes `bytes` as `shape`; `len` is how long they really were.
pub(super) fn decode(shape: Shape, bytes: &[u8], len: u64, context: &Context<'_>) -> Value {
    shaped(shape, bytes, context).unwrap_or_else(|| Value::Text(bytes.to_vec(), len))
}

fn shaped(shape: Shape, bytes: &[u8], context: &Context<'_>) -> Option<Value> {
    let at = At(bytes);
    let one = |value| Some(Value::List(vec![value]));
    match shape {
        Shape::Bytes | Shape::Text => None,
        Shape::Int32 => one(Value::Int(at.i32(0)?)),
        Shape::Uint32 => one(Value::Uint(at.u32(0)?)),
        Shape::Int64 => one(Value::Int(at.i64(0)?)),
        Shape::Uint64 => one(Value::Uint(at.u64(0)?)),
        Shape::Uint32s => elements(bytes, 4, |at| Some(Value::Uint(at.u32(0)?))),
        Shape::FdPair => elements(bytes, 4, |at| Some(context.fd(at.i32(0)? as i32))),
        Shape::Timespec => several(bytes, 16, |at| pair(at, "tv_sec", "tv_nsec")),
        Shape::Timeval => several(bytes, 16, |at| pair(at, "tv_sec", "tv_usec")),
        Shape::Itimerval => interval(bytes, "tv_usec"),
        Shape::Itimerspec => interval(bytes, "tv_nsec"),
        Shape::Timezone => fields(
            &[
                ("tz_minuteswest", Value::Int(at.i32(0)?)),
                ("tz_dsttime", Value::Int(at.i32(4)?)),
            ],
            false,
        ),
        Shape::Stat => stat(at.u32(24)?, at.u64(40)?, at.i64(48)?),
        Shape::Statx => fields(
            &[
                ("stx_mask", named(&names::STATX, at.u32(0)?)),
                ("stx_mode", file_mode(at.u16(28)?)),
                ("stx_size", Value::Uint(at.u64(40)?)),
            ],
            true,
        ),
        Shape::Statfs => fields(
            &[
                ("f_type", Value::Hex(at.u64(0)?)),
                ("f_bsize", Value::Uint(at.u64(8)?)),
                ("f_blocks", Value::Uint(at.u64(16)?)),
                ("f_bfree", Value::Uint(at.u64(24)?)),
            ],
            true,
        ),
        Shape::Sigset => Some(signal_set(at.u64(0)?)),
        Shape::Sigaction => sigaction(at),
        Shape::Siginfo => siginfo(bytes, context),
        Shape::Sigevent => fields(
            &[
                ("sigev_value", Value::Hex(at.u64(0)?)),
                ("sigev_signo", signal(at.u32(8)?)),
                (
                    "sigev_notify",
                    Value::Name(match at.i32(12)? {
                        0 => "SIGEV_SIGNAL".into(),
                        1 => "SIGEV_NONE".into(),
                        2 => "SIGEV_THREAD".into(),
                        4 => "SIGEV_THREAD_ID".into(),
                        other => other.to_string(),
                    }),
                ),
            ],
            false,
        ),
        Shape::StackT => fields(
            &[
                ("ss_sp", pointer(at.u64(0)?)),
                ("ss_flags", named(&names::SS, at.u32(8)?)),
                ("ss_size", Value::Uint(at.u64(16)?)),
            ],
            false,
        ),
        Shape::Rusage => fields(
            &[
                ("ru_utime", pair(at, "tv_sec", "tv_usec")?),
                ("ru_stime", pair(At(bytes.get(16..)?), "tv_sec", "tv_usec")?),
                ("ru_maxrss", Value::Uint(at.u64(32)?)),
            ],
            true,
        ),
        Shape::Rlimit => fields(
            &[
                ("rlim_cur", limit(at.u64(0)?)),
                ("rlim_max", limit(at.u64(8)?)),
            ],
            false,
        ),
        Shape::Sysinfo => fields(
            &[
                ("uptime", Value::Int(at.i64(0)?)),
                ("totalram", Value::Uint(at.u64(32)?)),
                ("freeram", Value::Uint(at.u64(40)?)),
            ],
            true,
        ),
        Shape::Utsname => {
            let name = |i: usize| {
                let bytes = bytes.get(i * 65..(i + 1) * 65)?;
                Some(Value::Path(until_nul(bytes).to_vec()))
            };
            fields(
                &[
                    ("sysname", name(0)?),
                    ("nodename", name(1)?),
                    ("release", name(2)?),
                    ("machine", name(4)?),
                ],
                true,
            )
        }
        Shape::Tms => fields(
            &[
                ("tms_utime", Value::Int(at.i64(0)?)),
                ("tms_stime", Value::Int(at.i64(8)?)),
                ("tms_cutime", Value::Int(at.i64(16)?)),
                ("tms_cstime", Value::Int(at.i64(24)?)),
            ],
            false,
        ),
        Shape::Sockaddr => address(bytes),
        Shape::PollFds => elements(bytes, 8, |at| {
            let mut shown = vec![
                ("fd", context.fd(at.i32(0)? as i32)),
                ("events", named(&names::POLL, at.u16(4)?)),
            ];
            if at.u16(6)? != 0 {
                shown.push(("revents", named(&names::POLL, at.u16(6)?)));
            }
            Some(Value::Struct(shown, false))
        }),
        Shape::EpollEvent => epoll_event(at),
        Shape::EpollEvents => elements(bytes, 12, epoll_event),
        Shape::FdSet => Some(Value::Set(
            bits(bytes).map(|fd| context.fd(fd as i32)).collect(),
            false,
        )),
        Shape::CpuSet => Some(Value::Set(
            bits(bytes).map(|cpu| Value::Uint(cpu as u64)).collect(),
            false,
        )),
        Shape::Flock => fields(
            &[
                (
                    "l_type",
                    Value::Name(match at.i16(0)? {
                        0 => "F_RDLCK".into(),
                        1 => "F_WRLCK".into(),
                        2 => "F_UNLCK".into(),
                        other => other.to_string(),
                    }),
                ),
                ("l_whence", named(&names::SEEK, at.u16(2)?)),
                ("l_start", Value::Int(at.i64(8)?)),
                ("l_len", Value::Int(at.i64(16)?)),
                ("l_pid", context.pid(at.i32(24)?)),
            ],
            false,
        ),
        Shape::Dirents64 => directory(bytes),
        Shape::Termios => fields(
            &[
                ("c_iflag", Value::Hex(at.u32(0)?)),
                ("c_oflag", Value::Hex(at.u32(4)?)),
                ("c_cflag", Value::Hex(at.u32(8)?)),
                ("c_lflag", Value::Hex(at.u32(12)?)),
            ],
            true,
        ),
        Shape::Winsize => fields(
            &[
                ("ws_row", Value::Uint(at.u16(0)?)),
                ("ws_col", Value::Uint(at.u16(2)?)),
                ("ws_xpixel", Value::Uint(at.u16(4)?)),
                ("ws_ypixel", Value::Uint(at.u16(6)?)),
            ],
            false,
        ),
        Shape::Ifreq => fields(
            &[(
                "ifr_name",
                Value::Path(until_nul(bytes.get(..16)?).to_vec()),
            )],
            true,
        ),
        Shape::CloneArgs => fields(
            &[
                ("flags", named(&names::CLONE, at.u64(0)?)),
                ("exit_signal", signal(at.u64(32)?)),
                ("stack", pointer(at.u64(40)?)),
                ("stack_size", Value::Hex(at.u64(48)?)),
            ],
            true,
        ),
        Shape::OpenHow => fields(
            &[
                ("flags", named(&names::OPEN, at.u64(0)?)),
                ("mode", Value::Octal(at.u64(8)?)),
                ("resolve", Value::Hex(at.u64(16)?)),
            ],
            false,
        ),
    }
}

fn fields(list: &[(&'static str, Value)], more: bool) -> Option<Value> {
    Some(Value::Struct(list.to_vec(), more))
}

fn elements(bytes: &[u8], size: usize, element: impl Fn(At<'_>) -> Option<Value>) -> Option<Value> {
    bytes
        .chunks_exact(size)
        .map(|bytes| element(At(bytes)))
        .collect::<Option<Vec<Value>>>()
        .map(Value::List)
}

/// One of a kind by itself, or an array if there are more.
fn several(bytes: &[u8], size: usize, element: impl Fn(At<'_>) -> Option<Value>) -> Option<Value> {
    if bytes.len() >= 2 * size {
        elements(bytes, size, element)
    } else {
        element(At(bytes))
    }
}

fn pair(at: At<'_>, first: &'static str, second: &'static str) -> Option<Value> {
    let second_value = match (second, at.i64(8)?) {
        ("tv_nsec", 0x3fff_ffff) => Value::Name("UTIME_NOW".into()),
        ("tv_nsec", 0x3fff_fffe) => Value::Name("UTIME_OMIT".into()),
        (_, other) => Value::Int(other),
    };
    fields(
        &[(first, Value::Int(at.i64(0)?)), (second, second_value)],
        false,
    )
}

fn interval(bytes: &[u8], unit: &'static str) -> Option<Value> {
    fields(
        &[
            ("it_interval", pair(At(bytes), "tv_sec", unit)?),
            ("it_value", pair(At(bytes.get(16..)?), "tv_sec", unit)?),
        ],
        false,
    )
}

fn pointer(value: u64) -> Value {
    match value {
        0 => Value::Null,
        value => Value::Hex(value),
    }
}

fn limit(value: u64) -> Value {
    match value {
        u64::MAX => Value::Name("RLIM_INFINITY".into()),
        value => Value::Uint(value),
    }
}

/// Numbers of the bits that are set.
fn bits(bytes: &[u8]) -> impl Iterator<Item = usize> + use<'_> {
    bytes.iter().enumerate().flat_map(|(i, byte)| {
        (0..8)
            .filter(move |bit| byte >> bit & 1 == 1)
            .map(move |bit| i * 8 + bit)
    })
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or(bytes)
}
