//! What a packet asks for.

use std::ops::Range;

use crate::hex;
use crate::packet::unescape;
use crate::target::StopKind;

/// One of something, any, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    Any,
    All,
    One(u32),
}

/// Threads, as a client names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// `Any` where the client names no process.
    pub pid: Id,
    pub tid: Id,
}

impl Which {
    pub const ANY: Which = Which {
        pid: Id::Any,
        tid: Id::Any,
    };
    pub const ALL: Which = Which {
        pid: Id::All,
        tid: Id::All,
    };
}

/// What `vCont` wants of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// With this signal, in the protocol's numbers, or without one.
    Continue(Option<u8>),
    /// One instruction, or as many as begin in the range.
    Step(Range<u64>, Option<u8>),
}

/// A request about files (`vFile`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRequest {
    /// Paths are meant as this process sees them; `None`: as the server does.
    SetProcess(Option<u32>),
    Open {
        path: Vec<u8>,
        flags: u64,
    },
    Read {
        fd: u32,
        count: usize,
        offset: u64,
    },
    Stat(u32),
    Close(u32),
    ReadLink(Vec<u8>),
    /// One that changes something, or is not known.
    Other,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `qSupported`, with what the client understands.
    Supported(Vec<String>),
    NoAck,
    Extended,
    Why,
    /// `Hg`: what registers and memory are asked of.
    SetGeneral(Which),
    /// `Hc`: what `bc`, `bs`, `c`, `s` move.
    SetContinue(Which),
    IsAlive(Which),
    CurrentThread,
    FirstThreads,
    NextThreads,
    ThreadAbout(Which),
    /// Whether a process was there before the client.
    Attached(Option<u32>),
    /// Signals, in the protocol's numbers, that the client need not be told of.
    PassSignals(Vec<u32>),
    ReadRegisters,
    ReadRegister(usize),
    /// All of them; what is not known is left as it is.
    WriteRegisters(Vec<u8>),
    WriteRegister(usize, Vec<u8>),
    WriteMemory {
        address: u64,
        bytes: Vec<u8>,
    },
    ReadMemory {
        address: u64,
        length: usize,
    },
    MemoryRegion(u64),
    ThreadLocal {
        thread: Which,
        offset: u64,
        module: u64,
    },
    AddStop {
        kind: StopKind,
        address: u64,
        length: u64,
        conditions: Vec<Vec<u8>>,
    },
    RemoveStop {
        kind: StopKind,
        address: u64,
        length: u64,
    },
    AskContinue,
    Continue(Vec<(Action, Which)>),
    /// `c`, `s`, and with a signal `C`, `S`.
    Forwards {
        step: bool,
        signal: Option<u8>,
    },
    /// `bc` and `bs`.
    Backwards {
        step: bool,
    },
    Transfer {
        object: String,
        annex: String,
        offset: usize,
        length: usize,
    },
    File(FileRequest),
    Monitor(String),
    Detach(Option<u32>),
    Kill(Option<u32>),
    Attach(u32),
    Run,
    HostInfo,
    ProcessInfo,
    Symbols,
    /// Understood as a command, but not well formed.
    Malformed,
    /// The answer is empty: that means "not supported".
    Unknown,
}

fn id(text: &[u8]) -> Option<Id> {
    match text {
        b"-1" => Some(Id::All),
        b"0" => Some(Id::Any),
        digits => Some(Id::One(u32::try_from(hex::number(digits)?).ok()?)),
    }
}

/// `p1.2`, `p1.-1`, `p1`, `2`, `-1`, `0`.
fn which(text: &[u8]) -> Option<Which> {
    let Some(rest) = text.strip_prefix(b"p") else {
        return Some(match id(text)? {
            Id::All => Which::ALL,
            tid => Which { pid: Id::Any, tid },
        });
    };
    let (pid, tid) = match split(rest, b'.') {
        Some((pid, tid)) => (id(pid)?, id(tid)?),
        None => (id(rest)?, Id::All),
    };
    Some(Which { pid, tid })
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|byte| *byte == at)?;
    Some((text.get(..place)?, text.get(place + 1..)?))
}

fn size(text: &[u8]) -> Option<usize> {
    usize::try_from(hex::number(text)?).ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two numbers with a comma between.
fn pair(text: &[u8]) -> Option<(u64, u64)> {
    let (a, b) = split(text, b',')?;
    Some((hex::number(a)?, hex::number(b)?))
}

/// Understands a packet. Never fails: what is not understood is a command,
/// too.
pub fn parse(data: &[u8]) -> Command {
    understand(data).unwrap_or(Command::Malformed)
}

fn understand(data: &[u8]) -> Option<Command> {
    let Some((first, rest)) = data.split_first() else {
        return Some(Command::Unknown);
    };
    Some(match first {
        b'!' => Command::Extended,
        b'?' => Command::Why,
        b'H' => match rest.split_first()? {
            (b'g', rest) => Command::SetGeneral(which(rest)?),
            (b'c', rest) => Command::SetContinue(which(rest)?),
            _ => Command::Malformed,
        },
        b'T' => Command::IsAlive(which(rest)?),
        b'g' => Command::ReadRegisters,
        b'p' => Command::ReadRegister(size(rest)?),
        b'G' => Command::WriteRegisters(rest.to_vec()),
        b'P' => {
            let (number, value) = split(rest, b'=')?;
            Command::WriteRegister(size(number)?, hex::decode(value)?)
        }
        b'M' | b'X' => {
            let (place, data) = split(rest, b':')?;
            let (address, length) = pair(place)?;
            let bytes = match first {
                b'M' => hex::decode(data)?,
                _ => binary(data),
            };
            // What is not as long as it says is broken.
            if bytes.len() as u64 != length {
                return None;
            }
            Command::WriteMemory { address, bytes }
        }
        b'm' => {
            let (address, length) = pair(rest)?;
            let length = usize::try_from(length).ok()?;
            Command::ReadMemory { address, length }
        }
        b'Z' | b'z' => stop_point(*first == b'Z', rest)?,
        b'c' | b's' => Command::Forwards {
            step: *first == b's',
            signal: None,
        },
        b'C' | b'S' => Command::Forwards {
            step: *first == b'S',
            signal: Some(signal(
                split(rest, b';').map_or(rest, |(number, _)| number),
            )?),
        },
        b'b' => match rest {
            b"c" => Command::Backwards { step: false },
            b"s" => Command::Backwards { step: true },
            _ => Command::Unknown,
        },
        b'D' => match rest.strip_prefix(b";") {
            Some(pid) => Command::Detach(Some(u32::try_from(hex::number(pid)?).ok()?)),
            None => Command::Detach(None),
        },
        b'k' => Command::Kill(None),
        b'R' => Command::Run,
        b'v' => several_letters(rest)?,
        b'q' | b'Q' => question(data)?,
        _ => Command::Unknown,
    })
}

fn stop_point(add: bool, rest: &[u8]) -> Option<Command> {
    let mut parts = rest.split(|byte| *byte == b';');
    let place = parts.next()?;
    let (number, place) = split(place, b',')?;
    let kind = match number {
        b"0" => StopKind::Software,
        b"1" => StopKind::Hardware,
        b"2" => StopKind::Write,
        b"3" => StopKind::Read,
        b"4" => StopKind::Access,
        _ => return Some(Command::Unknown),
    };
    let (address, length) = pair(place)?;
    if !add {
        return Some(Command::RemoveStop {
            kind,
            address,
            length,
        });
    }
    let mut conditions = Vec::new();
    for part in parts.filter(|part| !part.is_empty()) {
        // X<length>,<bytes>, one after the other.
        let mut left = part;
        while let Some(rest) = left.strip_prefix(b"X") {
            let (length, rest) = split(rest, b',')?;
            let digits = size(length)?.checked_mul(2)?;
            conditions.push(hex::decode(rest.get(..digits)?)?);
            left = rest.get(digits..)?;
        }
        if !left.is_empty() {
            // Commands to be run by the target: not asked for.
            return None;
        }
    }
    Some(Command::AddStop {
        kind,
        address,
        length,
        conditions,
    })
}

fn several_letters(rest: &[u8]) -> Option<Command> {
    if rest == b"Cont?" {
        return Some(Command::AskContinue);
    }
    if let Some(actions) = rest.strip_prefix(b"Cont;") {
        let actions = actions.split(|byte| *byte == b';');
        return actions
            .map(action)
            .collect::<Option<_>>()
            .map(Command::Continue);
    }
    if let Some(request) = rest.strip_prefix(b"File:") {
        return Some(Command::File(file_request(request)?));
    }
    let pid = |text: &[u8]| u32::try_from(hex::number(text)?).ok();
    if let Some(rest) = rest.strip_prefix(b"Kill;") {
        return Some(Command::Kill(Some(pid(rest)?)));
    }
    if let Some(rest) = rest.strip_prefix(b"Attach;") {
        return Some(Command::Attach(pid(rest)?));
    }
    if rest == b"Run" || rest.starts_with(b"Run;") {
        return Some(Command::Run);
    }
    Some(Command::Unknown)
}

fn signal(text: &[u8]) -> Option<u8> {
    u8::try_from(hex::number(text)?).ok()
}

fn action(text: &[u8]) -> Option<(Action, Which)> {
    let (what, who) = match split(text, b':') {
        Some((what, who)) => (what, which(who)?),
        None => (text, Which::ALL),
    };
    let action = match what.split_first()? {
        (b'c', _) => Action::Continue(None),
        (b'C', number) => Action::Continue(Some(signal(number)?)),
        (b's', _) => Action::Step(0..0, None),
        (b'S', number) => Action::Step(0..0, Some(signal(number)?)),
        (b'r', range) => {
            let (start, end) = pair(range)?;
            Action::Step(start..end, None)
        }
        _ => return None,
    };
    Some((action, who))
}

fn file_request(request: &[u8]) -> Option<FileRequest> {
    let (name, rest) = split(request, b':')?;
    let mut parts = rest.split(|byte| *byte == b',');
    let mut next = || parts.next();
    let descriptor = |text: &[u8]| u32::try_from(hex::number(text)?).ok();
    Some(match name {
        b"setfs" => match hex::number(next()?)? {
            0 => FileRequest::SetProcess(None),
            pid => FileRequest::SetProcess(Some(u32::try_from(pid).ok()?)),
        },
        b"open" => FileRequest::Open {
            path: hex::decode(next()?)?,
            flags: hex::number(next()?)?,
        },
        b"pread" => FileRequest::Read {
            fd: descriptor(next()?)?,
            count: size(next()?)?,
            offset: hex::number(next()?)?,
        },
        b"fstat" => FileRequest::Stat(descriptor(next()?)?),
        b"close" => FileRequest::Close(descriptor(next()?)?),
        b"readlink" => FileRequest::ReadLink(hex::decode(next()?)?),
        _ => FileRequest::Other,
    })
}

fn question(data: &[u8]) -> Option<Command> {
    if let Some(features) = data.strip_prefix(b"qSupported") {
        let features = features.strip_prefix(b":").unwrap_or(features);
        let features = features.split(|byte| *byte == b';').map(text);
        return Some(Command::Supported(features.collect()));
    }
    if let Some(rest) = data.strip_prefix(b"qXfer:") {
        let mut parts = rest.splitn(4, |byte| *byte == b':');
        let object = text(parts.next()?);
        if parts.next()? != b"read" {
            return Some(Command::Unknown);
        }
        let annex = text(parts.next()?);
        let (offset, length) = pair(parts.next()?)?;
        return Some(Command::Transfer {
            object,
            annex,
            offset: usize::try_from(offset).ok()?,
            length: usize::try_from(length).ok()?,
        });
    }
    if let Some(line) = data.strip_prefix(b"qRcmd,") {
        return Some(Command::Monitor(text(&hex::decode(line)?)));
    }
    if let Some(rest) = data.strip_prefix(b"qThreadExtraInfo,") {
        return Some(Command::ThreadAbout(which(rest)?));
    }
    if let Some(rest) = data.strip_prefix(b"qGetTLSAddr:") {
        let (thread, rest) = split(rest, b',')?;
        let (offset, module) = pair(rest)?;
        return Some(Command::ThreadLocal {
            thread: which(thread)?,
            offset,
            module,
        });
    }
    if let Some(rest) = data.strip_prefix(b"qMemoryRegionInfo:") {
        return Some(Command::MemoryRegion(hex::number(rest)?));
    }
    if let Some(rest) = data.strip_prefix(b"qAttached") {
        let pid = rest.strip_prefix(b":");
        let pid = pid.map(|pid| u32::try_from(hex::number(pid)?).ok());
        return Some(Command::Attached(match pid {
            Some(pid) => Some(pid?),
            None => None,
        }));
    }
    if let Some(rest) = data.strip_prefix(b"QPassSignals:") {
        let numbers = rest.split(|byte| *byte == b';');
        let numbers = numbers.filter(|number| !number.is_empty());
        let numbers = numbers.map(|number| u32::try_from(hex::number(number)?).ok());
        return numbers.collect::<Option<_>>().map(Command::PassSignals);
    }
    if data.starts_with(b"qSymbol:") {
        return Some(Command::Symbols);
    }
    Some(match data {
        b"QStartNoAckMode" => Command::NoAck,
        b"qC" => Command::CurrentThread,
        b"qfThreadInfo" => Command::FirstThreads,
        b"qsThreadInfo" => Command::NextThreads,
        b"qHostInfo" => Command::HostInfo,
        b"qProcessInfo" => Command::ProcessInfo,
        _ => Command::Unknown,
    })
}

/// Bytes that came in a packet as they are.
pub fn binary(data: &[u8]) -> Vec<u8> {
    unescape(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pid: u32, tid: u32) -> Which {
        Which {
            pid: Id::One(pid),
            tid: Id::One(tid),
        }
    }

    #[test]
    fn threads_of_processes() {
        assert_eq!(parse(b"Hgp1a.2b"), Command::SetGeneral(one(0x1a, 0x2b)));
        let whole = Which {
            pid: Id::One(1),
            tid: Id::All,
        };
        assert_eq!(parse(b"Hcp1.-1"), Command::SetContinue(whole));
        assert_eq!(parse(b"Hc-1"), Command::SetContinue(Which::ALL));
        assert_eq!(parse(b"Hg0"), Command::SetGeneral(Which::ANY));
        assert_eq!(parse(b"Hgp"), Command::Malformed);
        assert_eq!(parse(b"Hx1"), Command::Malformed);
        assert_eq!(parse(b"Tp1.2"), Command::IsAlive(one(1, 2)));
    }

    #[test]
    fn motion() {
        assert_eq!(
            parse(b"vCont;s:p1.2;c"),
            Command::Continue(vec![
                (Action::Step(0..0, None), one(1, 2)),
                (Action::Continue(None), Which::ALL)
            ])
        );
        assert_eq!(
            parse(b"vCont;r401000,401010:p1.2"),
            Command::Continue(vec![(Action::Step(0x401000..0x401010, None), one(1, 2))])
        );
        assert_eq!(
            parse(b"vCont;C05"),
            Command::Continue(vec![(Action::Continue(Some(5)), Which::ALL)])
        );
        assert_eq!(parse(b"vCont;x"), Command::Malformed);
        assert_eq!(parse(b"bc"), Command::Backwards { step: false });
        assert_eq!(parse(b"bs"), Command::Backwards { step: true });
    }

    #[test]
    fn writing() {
        assert_eq!(
            parse(b"P10=0010400000000000"),
            Command::WriteRegister(16, vec![0, 0x10, 0x40, 0, 0, 0, 0, 0])
        );
        assert_eq!(parse(b"Gxx"), Command::WriteRegisters(b"xx".to_vec()));
        let memory = Command::WriteMemory {
            address: 0x1000,
            bytes: vec![b'#', 2],
        };
        assert_eq!(parse(b"M1000,2:2302"), memory);
        assert_eq!(parse(b"X1000,2:}\x03\x02"), memory);
        for bad in ["M1000,3:2302", "M1000:23", "P=1", "P1", "X1000,2:", "C"] {
            assert_eq!(parse(bad.as_bytes()), Command::Malformed, "{bad}");
        }
        assert_eq!(
            parse(b"C1e"),
            Command::Forwards {
                step: false,
                signal: Some(30)
            }
        );
        assert_eq!(
            parse(b"QPassSignals:e;14;"),
            Command::PassSignals(vec![14, 20])
        );
        assert_eq!(parse(b"qAttached:1a"), Command::Attached(Some(26)));
        assert_eq!(parse(b"qAttached"), Command::Attached(None));
    }

    #[test]
    fn places_to_stop_at() {
        assert_eq!(
            parse(b"Z0,401000,1"),
            Command::AddStop {
                kind: StopKind::Software,
                address: 0x401000,
                length: 1,
                conditions: Vec::new(),
            }
        );
        assert_eq!(
            parse(b"Z0,401000,1;X2,2227X1,27"),
            Command::AddStop {
                kind: StopKind::Software,
                address: 0x401000,
                length: 1,
                conditions: vec![vec![0x22, 0x27], vec![0x27]],
            }
        );
        assert_eq!(parse(b"Z0,401000,1;Xff,22"), Command::Malformed);
        assert_eq!(
            parse(b"z2,1000,8"),
            Command::RemoveStop {
                kind: StopKind::Write,
                address: 0x1000,
                length: 8,
            }
        );
        assert_eq!(parse(b"Z9,1,1"), Command::Unknown);
    }

    #[test]
    fn files_and_objects() {
        assert_eq!(
            parse(b"vFile:open:2f6c6962,0,1c0"),
            Command::File(FileRequest::Open {
                path: b"/lib".to_vec(),
                flags: 0
            })
        );
        assert_eq!(
            parse(b"vFile:pread:5,1000,20"),
            Command::File(FileRequest::Read {
                fd: 5,
                count: 0x1000,
                offset: 0x20
            })
        );
        assert_eq!(parse(b"vFile:unlink:2f"), Command::File(FileRequest::Other));
        assert_eq!(
            parse(b"qXfer:exec-file:read:1a:0,ffb"),
            Command::Transfer {
                object: "exec-file".to_string(),
                annex: "1a".to_string(),
                offset: 0,
                length: 0xffb,
            }
        );
        assert_eq!(parse(b"qXfer:siginfo:write::0:"), Command::Unknown);
        assert_eq!(
            parse(b"qRcmd,7768656e"),
            Command::Monitor("when".to_string())
        );
    }

    #[test]
    fn what_is_not_known_is_said_to_be() {
        for unknown in ["", "vMustReplyEmpty", "qTStatus", "i", "bz"] {
            assert_eq!(parse(unknown.as_bytes()), Command::Unknown, "{unknown}");
        }
        for malformed in ["m", "m1", "mx,1", "p", "Z0", "D;x", "vKill;", "H"] {
            assert_eq!(
                parse(malformed.as_bytes()),
                Command::Malformed,
                "{malformed}"
            );
        }
    }
}
