//! Structures the kernel reads and writes, decoded.
//!
//! Layouts are those of x86-64. Bytes too short for their structure are shown
//! as bytes.

use protocol::names::{self, signal_name};
use protocol::syscall::{Names, Shape};

use super::Context;
use super::value::Value;
use crate::frame::field;
use crate::sockaddr::Address;

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

/// A signal by name.
pub(super) fn signal(number: u64) -> Value {
    match signal_name(number) {
        Some(name) => Value::Name(name.to_string()),
        None => Value::Uint(number),
    }
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

fn file_mode(mode: u64) -> Value {
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

fn stat(mode: u64, device: u64, size: i64) -> Option<Value> {
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

/// The signals of a set; by those that are missing if that is shorter.
fn signal_set(set: u64) -> Value {
    let name = |number: u64| {
        let name = signal_name(number).unwrap_or("?");
        Value::Name(name.strip_prefix("SIG").unwrap_or(name).to_string())
    };
    let inverted = set.count_ones() > 32;
    let shown = if inverted { !set } else { set };
    let signals = (0..64).filter(|bit| shown >> bit & 1 == 1);
    Value::Set(signals.map(|bit| name(bit + 1)).collect(), inverted)
}

fn sigaction(at: At<'_>) -> Option<Value> {
    let handler = match at.u64(0)? {
        0 => Value::Name("SIG_DFL".into()),
        1 => Value::Name("SIG_IGN".into()),
        address => Value::Hex(address),
    };
    fields(
        &[
            ("sa_handler", handler),
            ("sa_mask", signal_set(at.u64(24)?)),
            ("sa_flags", named(&names::SA, at.u64(8)?)),
        ],
        false,
    )
}

/// A `siginfo`.
pub(super) fn siginfo(bytes: &[u8], context: &Context<'_>) -> Option<Value> {
    let at = At(bytes);
    let number = at.u32(0)?;
    let code = at.i32(8)?;
    let mut shown = vec![
        ("si_signo", signal(number)),
        ("si_code", Value::Name(code_name(number, code))),
    ];
    match (number, code) {
        // Timers.
        (_, -2) => {
            shown.push(("si_timerid", Value::Int(at.i32(16)?)));
            shown.push(("si_overrun", Value::Int(at.i32(20)?)));
        }
        // Children.
        (17, 1..=6) => {
            shown.push(("si_pid", context.pid(at.i32(16)?)));
            shown.push(("si_uid", Value::Uint(at.u32(20)?)));
            let status = at.i32(24)?;
            let status = match code {
                1 => Value::Int(status),
                _ => signal(status as u64),
            };
            shown.push(("si_status", status));
        }
        // Faults.
        (4 | 5 | 7 | 8 | 11, 1..) => shown.push(("si_addr", pointer(at.u64(16)?))),
        (29, 1..=6) => shown.push(("si_fd", context.fd(at.i32(24)? as i32))),
        (31, 1..) => shown.push(("si_syscall", Value::Int(at.i32(24)?))),
        // Sent by somebody.
        (_, -6 | -3 | -1 | 0) => {
            shown.push(("si_pid", context.pid(at.i32(16)?)));
            shown.push(("si_uid", Value::Uint(at.u32(20)?)));
            if matches!(code, -3 | -1) {
                shown.push(("si_value", Value::Hex(at.u64(24)?)));
            }
        }
        _ => {}
    }
    Some(Value::Struct(shown, false))
}

fn code_name(signal: u64, code: i64) -> String {
    let name = match (signal, code) {
        (_, 0) => "SI_USER",
        (_, 0x80) => "SI_KERNEL",
        (_, -1) => "SI_QUEUE",
        (_, -2) => "SI_TIMER",
        (_, -3) => "SI_MESGQ",
        (_, -4) => "SI_ASYNCIO",
        (_, -5) => "SI_SIGIO",
        (_, -6) => "SI_TKILL",
        (17, 1) => "CLD_EXITED",
        (17, 2) => "CLD_KILLED",
        (17, 3) => "CLD_DUMPED",
        (17, 4) => "CLD_TRAPPED",
        (17, 5) => "CLD_STOPPED",
        (17, 6) => "CLD_CONTINUED",
        (11, 1) => "SEGV_MAPERR",
        (11, 2) => "SEGV_ACCERR",
        (7, 1) => "BUS_ADRALN",
        (7, 2) => "BUS_ADRERR",
        (7, 3) => "BUS_OBJERR",
        (8, 1) => "FPE_INTDIV",
        (8, 2) => "FPE_INTOVF",
        (8, 3) => "FPE_FLTDIV",
        (4, 1) => "ILL_ILLOPC",
        (4, 2) => "ILL_ILLOPN",
        (5, 1) => "TRAP_BRKPT",
        (5, 2) => "TRAP_TRACE",
        (5, 6) => "TRAP_PERF",
        (29, 1) => "POLL_IN",
        (29, 2) => "POLL_OUT",
        (29, 6) => "POLL_HUP",
        (31, 1) => "SYS_SECCOMP",
        (31, 2) => "SYS_USER_DISPATCH",
        _ => return code.to_string(),
    };
    name.to_string()
}

fn epoll_event(at: At<'_>) -> Option<Value> {
    fields(
        &[
            ("events", named(&names::EPOLL_EVENT, at.u32(0)?)),
            ("data", Value::Hex(at.u64(4)?)),
        ],
        false,
    )
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

fn directory(mut bytes: &[u8]) -> Option<Value> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let len = At(bytes).u16(16)? as usize;
        let entry = bytes.get(..len)?;
        entries.push(Value::Path(until_nul(entry.get(19..)?).to_vec()));
        bytes = bytes.get(len..)?;
    }
    Some(Value::List(entries))
}

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

/// A status as `wait4` gives it.
pub(super) fn wait_status(bytes: &[u8]) -> Option<Value> {
    let status = At(bytes).u32(0)?;
    let name = match status & 0x7f {
        0 => format!(
            "{{WIFEXITED(s) && WEXITSTATUS(s) == {}}}",
            status >> 8 & 0xff
        ),
        0x7f if status == 0xffff => "{WIFCONTINUED(s)}".to_string(),
        0x7f => format!(
            "{{WIFSTOPPED(s) && WSTOPSIG(s) == {}}}",
            signal_name(status >> 8 & 0xff).unwrap_or("?")
        ),
        number => format!(
            "{{WIFSIGNALED(s) && WTERMSIG(s) == {}{}}}",
            signal_name(number).unwrap_or("?"),
            if status & 0x80 != 0 {
                " && WCOREDUMP(s)"
            } else {
                ""
            }
        ),
    };
    Some(Value::List(vec![Value::Name(name)]))
}

/// What `ioctl` passes, for the requests whose structure is known.
pub(super) fn ioctl_shape(request: u64) -> Option<Shape> {
    Some(match request as u32 {
        0x5401..=0x5404 => Shape::Termios,
        0x5413 | 0x5414 => Shape::Winsize,
        0x540f | 0x5410 | 0x541b | 0x5411 | 0x5421 | 0x5452 => Shape::Int32,
        0x8910..=0x8970 => Shape::Ifreq,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(shape: Shape, bytes: &[u8]) -> String {
        let mut out = String::new();
        decode(shape, bytes, bytes.len() as u64, &Context::default())
            .write(&mut out, &super::super::value::Limits::default());
        out
    }

    #[test]
    fn structures_are_shown_as_strace_shows_them() {
        let mut timespec = 1i64.to_le_bytes().to_vec();
        timespec.extend(500i64.to_le_bytes());
        assert_eq!(show(Shape::Timespec, &timespec), "{tv_sec=1, tv_nsec=500}");
        let twice = [timespec.clone(), timespec].concat();
        assert_eq!(
            show(Shape::Timespec, &twice),
            "[{tv_sec=1, tv_nsec=500}, {tv_sec=1, tv_nsec=500}]"
        );
        let mut stat = vec![0; 144];
        stat[24..28].copy_from_slice(&0o100644u32.to_le_bytes());
        stat[48..56].copy_from_slice(&1234i64.to_le_bytes());
        assert_eq!(
            show(Shape::Stat, &stat),
            "{st_mode=S_IFREG|0644, st_size=1234, ...}"
        );
        stat[24..28].copy_from_slice(&0o020620u32.to_le_bytes());
        stat[40..48].copy_from_slice(&0x8800u64.to_le_bytes());
        assert_eq!(
            show(Shape::Stat, &stat),
            "{st_mode=S_IFCHR|0620, st_rdev=makedev(0x88, 0x0), ...}"
        );
        assert_eq!(
            show(Shape::PollFds, &[3, 0, 0, 0, 1, 0, 1, 0]),
            "[{fd=3, events=POLLIN, revents=POLLIN}]"
        );
        assert_eq!(show(Shape::Sigset, &0x202u64.to_le_bytes()), "[INT USR1]");
        assert_eq!(
            show(Shape::Sigset, &(!0x202u64).to_le_bytes()),
            "~[INT USR1]"
        );
        assert_eq!(show(Shape::FdSet, &[0b1001, 0, 1]), "[0 3 16]");
        assert_eq!(show(Shape::FdPair, &[3, 0, 0, 0, 4, 0, 0, 0]), "[3, 4]");
        let v4 = [2, 0, 0, 80, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            show(Shape::Sockaddr, &v4),
            r#"{sa_family=AF_INET, sin_port=80, sin_addr="10.0.0.1"}"#
        );
        let mut info = vec![0; 128];
        info[0] = 10;
        info[8..12].copy_from_slice(&(-6i32).to_le_bytes());
        info[16] = 77;
        assert_eq!(
            show(Shape::Siginfo, &info),
            "{si_signo=SIGUSR1, si_code=SI_TKILL, si_pid=77, si_uid=0}"
        );
    }

    #[test]
    fn bytes_too_short_for_their_structure_are_shown_as_bytes() {
        let all = [
            Shape::Timespec,
            Shape::Itimerspec,
            Shape::Stat,
            Shape::Statx,
            Shape::Statfs,
            Shape::Sigset,
            Shape::Sigaction,
            Shape::Siginfo,
            Shape::Sigevent,
            Shape::StackT,
            Shape::Rusage,
            Shape::Rlimit,
            Shape::Sysinfo,
            Shape::Utsname,
            Shape::Tms,
            Shape::Sockaddr,
            Shape::EpollEvent,
            Shape::Flock,
            Shape::Dirents64,
            Shape::Termios,
            Shape::Winsize,
            Shape::Ifreq,
            Shape::CloneArgs,
            Shape::OpenHow,
        ];
        for shape in all {
            assert_eq!(show(shape, b"\x02"), "\"\\2\"", "{shape:?}");
            // And any length at all does no harm.
            for len in 0..150 {
                show(shape, &vec![0xff; len]);
                show(shape, &vec![0; len]);
            }
        }
    }

    #[test]
    fn wait_statuses_are_spelled_out() {
        let show = |status: u32| {
            let mut out = String::new();
            wait_status(&status.to_le_bytes())
                .unwrap()
                .write(&mut out, &Default::default());
            out
        };
        assert_eq!(show(0x300), "[{WIFEXITED(s) && WEXITSTATUS(s) == 3}]");
        assert_eq!(
            show(0x89),
            "[{WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL && WCOREDUMP(s)}]"
        );
        assert_eq!(show(0x137f), "[{WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP}]");
    }
}
