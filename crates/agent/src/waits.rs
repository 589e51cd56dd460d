//! Who of a program waits, and whether that will be over by itself.
//!
//! A server that was asked to end may be silent for a while: it gives its clients
//! some time. Such a wait has a limit, and began after it was asked. One that hangs
//! has none, or is where it was before.

use std::collections::HashMap;

use protocol::layout::{MONITOR_BASE, MONITOR_END};

use crate::reaper;

/// How often each thread of a program has waited.
pub struct Waits(HashMap<i32, u64>);

impl Waits {
    pub fn now(reaper: i32) -> Waits {
        let all = threads(reaper).into_iter();
        Waits(all.map(|(pid, tid)| (tid, waits_of(pid, tid))).collect())
    }

    /// Whether a thread is in a wait with a time limit that it was not in then.
    pub fn has_limited_since(&self, reaper: i32) -> bool {
        threads(reaper).into_iter().any(|(pid, tid)| {
            let is_new = self.0.get(&tid) != Some(&waits_of(pid, tid));
            is_new && is_limited(&read(pid, tid, "syscall"))
        })
    }
}

/// The threads of a program, with their processes.
fn threads(reaper: i32) -> Vec<(i32, i32)> {
    let tasks = |pid: i32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let names = tasks.into_iter().flatten().flatten();
        names.filter_map(move |task| Some((pid, task.file_name().to_str()?.parse().ok()?)))
    };
    reaper::program(reaper)
        .into_iter()
        .flat_map(tasks)
        .collect()
}

fn read(pid: i32, tid: i32, what: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{what}")).unwrap_or_default()
}

fn waits_of(pid: i32, tid: i32) -> u64 {
    let status = read(pid, tid, "status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Whether a call, as the kernel tells it (number and arguments), is a wait of the
/// program's with a time limit.
fn is_limited(call: &str) -> bool {
    let mut words = call.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse::<u32>().ok());
    let args: Vec<u64> = words
        .map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .collect();
    let arg = |index: usize| args.get(index).copied().unwrap_or(0);
    let milliseconds = |index: usize| arg(index) as i32 >= 0;
    match number {
        // nanosleep, clock_nanosleep
        Some(35 | 230) => true,
        // poll; epoll_wait, epoll_pwait
        Some(7) => milliseconds(2),
        Some(232 | 281) => milliseconds(3),
        // ppoll, rt_sigtimedwait; semtimedop, epoll_pwait2; select, pselect6, recvmmsg
        Some(271 | 128) => arg(2) != 0,
        Some(220 | 441) => arg(3) != 0,
        Some(23 | 270 | 299) => arg(4) != 0,
        // futex, but for those of the monitor's own
        Some(202) => arg(3) != 0 && !(MONITOR_BASE..MONITOR_END).contains(&arg(0)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (call, limited) in [
            ("230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x0 0x7ffd 0x7f", true),
            ("7 0x7ffd 0x1 0xffffffff 0x0 0x0 0x0 0x7ffd 0x7f", false),
            (
                "7 0x7ffd 0x1 0xffffffffffffffff 0x0 0x0 0x0 0x7ffd 0x7f",
                false,
            ),
            ("7 0x7ffd 0x1 0x3e8 0x0 0x0 0x0 0x7ffd 0x7f", true),
            ("202 0x5555 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f", false),
            ("202 0x5555 0x89 0x2 0x7ffd 0x0 0x0 0x7ffd 0x7f", true),
            (
                "202 0x6f1000000100 0x0 0x2 0x7ffd 0x0 0x0 0x7ffd 0x7f",
                false,
            ),
            ("0 0x3 0x7ffd 0x1 0x1 0x1 0x1 0x7ffd 0x7f", false),
            ("running", false),
            ("", false),
        ] {
            assert_eq!(is_limited(call), limited, "{call}");
        }
    }
}
