//! Signals, sets of them, what came with one, and how a child ended.

use protocol::names::{self, signal_name};

use super::{At, Context, Value, fields, named, pointer};

/// A signal by name.
pub(in crate::render) fn signal(number: u64) -> Value {
    match signal_name(number) {
        Some(name) => Value::Name(name.to_string()),
        None => Value::Uint(number),
    }
}

/// The signals of a set; by those that are missing if that is shorter.
pub(super) fn signal_set(set: u64) -> Value {
    let name = |number: u64| {
        let name = signal_name(number).unwrap_or("?");
        Value::Name(name.strip_prefix("SIG").unwrap_or(name).to_string())
    };
    let inverted = set.count_ones() > 32;
    let shown = if inverted { !set } else { set };
    let signals = (0..64).filter(|bit| shown >> bit & 1 == 1);
    Value::Set(signals.map(|bit| name(bit + 1)).collect(), inverted)
}

pub(super) fn sigaction(at: At<'_>) -> Option<Value> {
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
pub(in crate::render) fn siginfo(bytes: &[u8], context: &Context<'_>) -> Option<Value> {
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

/// A status as `wait4` gives it.
pub(in crate::render) fn wait_status(bytes: &[u8]) -> Option<Value> {
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
