//! The arguments and the result of a call, decoded by the syscall table.

use protocol::names;
use protocol::record::tag;
use protocol::syscall::{Arg, Len, Ret, Shape, Syscall};

use super::Context;
use super::shapes::{self, named, signal};
use super::value::Value;
use crate::calls::nr;
use crate::event::{Child, Data, Event};
use crate::frame::field;
use crate::process::thread_name;

const O_CREAT: u64 = 0x40;
const O_TMPFILE: u64 = 0x410000;
const F_DUPFD: u32 = 0;
const F_SETFD: u32 = 2;
const F_GETFL: u32 = 3;
const F_SETFL: u32 = 4;
const F_DUPFD_CLOEXEC: u32 = 1030;

/// How many of the row's arguments the call looks at.
fn count(event: &Event<'_>, row: &Syscall) -> usize {
    let flags = match event.nr {
        nr::OPEN => event.args[1],
        nr::OPENAT => event.args[2],
        _ => return row.args.len(),
    };
    // The mode is garbage unless a file may be made.
    if flags & O_CREAT != 0 || flags & O_TMPFILE == O_TMPFILE {
        row.args.len()
    } else {
        row.args.len().saturating_sub(1)
    }
}

/// The arguments of a call, by name.
pub(super) fn arguments(
    event: &Event<'_>,
    row: &'static Syscall,
    context: &Context<'_>,
) -> Vec<(&'static str, Value)> {
    row.args
        .iter()
        .take(count(event, row))
        .enumerate()
        .map(|(i, (name, arg))| (*name, argument(event, i, *arg, context)))
        .collect()
}

fn argument(event: &Event<'_>, i: usize, arg: Arg, context: &Context<'_>) -> Value {
    let Some(register) = event.args.get(i).copied() else {
        return Value::Unknown;
    };
    if !event.args_known {
        return Value::Unknown;
    }
    let value = arg.value(register);
    if let Some(special) = special(event, i, context) {
        return special;
    }
    let data = event.argument(i).or_else(|| event.before(i));
    match arg {
        Arg::Int | Arg::Long => Value::Int(value as i64),
        Arg::Uint | Arg::Size => Value::Uint(value),
        Arg::Hex => Value::Hex(value),
        Arg::Octal => Value::Octal(value),
        Arg::Addr => match data {
            Some(data) => Value::Text(data.bytes.to_vec(), data.len),
            None => pointer(value),
        },
        Arg::Fd => context.fd(value as i32),
        Arg::DirFd if value as i32 == -100 => Value::Name("AT_FDCWD".into()),
        Arg::DirFd => context.fd(value as i32),
        Arg::Pid => context.pid(value as i64),
        Arg::Sig if value == 0 => Value::Int(0),
        Arg::Sig => signal(value),
        Arg::Named(names) => named(names, value),
        Arg::Path | Arg::Str => match data {
            Some(data) => Value::Path(until_nul(data.bytes).to_vec()),
            None => pointer(value),
        },
        Arg::StrVec => match data {
            Some(data) => strings(data),
            None => pointer(value),
        },
        // What came of an earlier wait is not what is waited for.
        Arg::InOut(Shape::PollFds, _)
            if event.argument(i).is_none()
                && let Some(data) = data =>
        {
            let mut bytes = data.bytes.to_vec();
            for entry in bytes.chunks_exact_mut(8) {
                entry.iter_mut().skip(6).for_each(|byte| *byte = 0);
            }
            shapes::decode(Shape::PollFds, &bytes, data.len, context)
        }
        Arg::In(shape, len) | Arg::Out(shape, len) | Arg::InOut(shape, len) => match data {
            Some(data) => shapes::decode(shape, data.bytes, data.len, context),
            None => match len {
                // The end of a file or stream.
                Len::Ret | Len::RetMax(_) if shape == Shape::Text && event.result == Some(0) => {
                    Value::Text(Vec::new(), 0)
                }
                // Not a pointer with this command.
                Len::By(command, sizes)
                    if event
                        .args
                        .get(usize::from(command))
                        .is_some_and(|c| !sizes.iter().any(|(known, _)| *known == *c as u32)) =>
                {
                    number(value)
                }
                _ => pointer(value),
            },
        },
        Arg::IovIn(_) | Arg::IovOut(_) => pieces(event, i).unwrap_or_else(|| pointer(value)),
        Arg::MsgIn | Arg::MsgOut => message(event, i, context).unwrap_or_else(|| pointer(value)),
        Arg::MmsgOut(_) => data
            .and_then(|data| messages(data.bytes, context))
            .unwrap_or_else(|| pointer(value)),
        // Only the headers are kept.
        Arg::MmsgIn(_) => pointer(value),
    }
}

/// Arguments whose meaning depends on others in ways the table does not say.
fn special(event: &Event<'_>, i: usize, context: &Context<'_>) -> Option<Value> {
    let args = &event.args;
    match (event.nr, i) {
        // Where there is nobody to tell of, nothing is written.
        (nr::WAIT4, 1) if event.result.is_some_and(|pid| pid <= 0) => Some(pointer(args[1])),
        (nr::WAIT4, 1) => shapes::wait_status(event.argument(1)?.bytes),
        (nr::SETSOCKOPT | nr::GETSOCKOPT, 2) => {
            let option = args[2] as u32;
            Some(named(
                names::socket_options(args[1] as u32 as u64)?,
                option.into(),
            ))
        }
        (nr::SETSOCKOPT | nr::GETSOCKOPT, 3) => {
            let data = event.argument(3)?;
            (data.bytes.len() == 4)
                .then(|| shapes::decode(Shape::Int32, data.bytes, data.len, context))
        }
        (nr::FCNTL, 2) => match args[1] as u32 {
            F_SETFL => Some(named(&names::OPEN, args[2] as u32 as u64)),
            F_SETFD if args[2] & 1 == 1 => Some(Value::Name("FD_CLOEXEC".into())),
            _ => None,
        },
        (nr::IOCTL, 2) => {
            let data = event.argument(2)?;
            let shape = shapes::ioctl_shape(args[1])?;
            Some(shapes::decode(shape, data.bytes, data.len, context))
        }
        (nr::GETCWD, 0) => Some(Value::Path(until_nul(event.argument(0)?.bytes).to_vec())),
        (nr::PRCTL, 1) if matches!(args[0], 15 | 16) => {
            Some(Value::Path(until_nul(event.argument(1)?.bytes).to_vec()))
        }
        _ => None,
    }
}

/// What the call returned.
pub(super) fn result(event: &Event<'_>, row: Option<&Syscall>, context: &Context<'_>) -> Value {
    let Some(result) = event.result else {
        return Value::Unknown;
    };
    let ret = match (event.nr, row) {
        (nr::FCNTL, _) => match event.args[1] as u32 {
            F_DUPFD | F_DUPFD_CLOEXEC => Ret::Fd,
            F_GETFL => return named(&names::OPEN, result as u64),
            _ => Ret::Int,
        },
        (_, Some(row)) => row.ret,
        (_, None) => Ret::Int,
    };
    match ret {
        Ret::Int => Value::Int(result),
        Ret::Hex => Value::Hex(result as u64),
        Ret::Fd => context.fd(result as i32),
        Ret::Pid => match event.child() {
            Some(Child::Process(number)) => Value::Pid(result, context.process_name(number)),
            Some(Child::Thread(number)) => Value::Pid(result, Some(thread_name(number))),
            None => context.pid(result),
        },
        Ret::None => Value::Unknown,
    }
}

fn pointer(value: u64) -> Value {
    match value {
        0 => Value::Null,
        value => Value::Hex(value),
    }
}

/// Small numbers in decimal, others in hexadecimal.
fn number(value: u64) -> Value {
    if (value as i64).unsigned_abs() < 65536 {
        Value::Int(value as i64)
    } else {
        Value::Hex(value)
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or(bytes)
}

/// Strings that were joined by NUL.
fn strings(data: Data<'_>) -> Value {
    let bytes = data.bytes.strip_suffix(&[0]).unwrap_or(data.bytes);
    if bytes.is_empty() {
        return Value::List(Vec::new());
    }
    let string = |s: &[u8]| Value::Text(s.to_vec(), s.len() as u64);
    Value::List(bytes.split(|b| *b == 0).map(string).collect())
}

fn text(data: Data<'_>) -> Value {
    Value::Text(data.bytes.to_vec(), data.len)
}

/// The data of a vector, in as many pieces as it was kept.
fn pieces(event: &Event<'_>, i: usize) -> Option<Value> {
    let tag = u8::try_from(i).ok()?;
    let mut pieces: Vec<Value> = event
        .blobs_with(tag)
        .map(|blob| text(blob.data()))
        .collect();
    pieces.extend(event.blobs_with(tag::PIECE).map(|blob| text(blob.data())));
    (!pieces.is_empty()).then_some(Value::List(pieces))
}

fn message(event: &Event<'_>, i: usize, context: &Context<'_>) -> Option<Value> {
    let mut shown = Vec::new();
    if let Some(name) = event.blob(tag::NAME) {
        let address = shapes::decode(
            Shape::Sockaddr,
            name.bytes,
            name.bytes.len() as u64,
            context,
        );
        shown.push(("msg_name", address));
    }
    if let Some(pieces) = pieces(event, i) {
        shown.push(("msg_iov", pieces));
    }
    if let Some(control) = event.blob(tag::CONTROL) {
        let rights = crate::descriptors::rights(control.bytes);
        let value = if rights.is_empty() {
            text(control.data())
        } else {
            let fds = rights.into_iter().map(|fd| context.fd(fd)).collect();
            Value::Struct(vec![("SCM_RIGHTS", Value::List(fds))], false)
        };
        shown.push(("msg_control", value));
    }
    if let Some(flags) = event
        .blob(tag::HEADER)
        .and_then(|header| field(header.bytes, 16))
    {
        // Behind the lengths of name and control data.
        let flags = u64::from_le_bytes(flags);
        if flags != 0 {
            shown.push(("msg_flags", named(&names::MSG, flags)));
        }
    }
    (!shown.is_empty()).then_some(Value::Struct(shown, false))
}

/// Received messages, each behind four lengths and flags (u32 each): data,
/// name, control, flags; name, control, data.
fn messages(mut bytes: &[u8], context: &Context<'_>) -> Option<Value> {
    const NAME_MAX: usize = 128;
    const CONTROL_MAX: usize = 65536;
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let word = |at| Some(u32::from_le_bytes(field(bytes, at)?) as usize);
        let (data, name, control) = (word(0)?, word(4)?, word(8)?);
        let (name, rest) = bytes.get(16..)?.split_at_checked(name.min(NAME_MAX))?;
        let (_, rest) = rest.split_at_checked(control.min(CONTROL_MAX))?;
        let (data, rest) = rest.split_at_checked(data)?;
        let mut shown = Vec::new();
        if !name.is_empty() {
            let address = shapes::decode(Shape::Sockaddr, name, name.len() as u64, context);
            shown.push(("msg_name", address));
        }
        let data = Value::Text(data.to_vec(), data.len() as u64);
        shown.push(("msg_iov", Value::List(vec![data])));
        found.push(Value::Struct(shown, false));
        bytes = rest;
    }
    Some(Value::List(found))
}
