//! How much of the machine went to others while we measured: what the figures are worth.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Duration;

/// CPU time since the machine started, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    /// By all processes.
    processes: f64,
    /// Doing nothing, or serving interrupts.
    rest: f64,
    /// Ours, but given to another virtual machine.
    stolen: f64,
    /// By this process and those below it that have ended.
    own: f64,
}

pub struct Noise(Used);

impl Noise {
    pub fn start() -> Noise {
        Noise(Used::now())
    }

    pub fn describe(&self) -> String {
        describe(self.0, Used::now())
    }
}

fn describe(before: Used, after: Used) -> String {
    let processes = after.processes - before.processes;
    let stolen = after.stolen - before.stolen;
    let total = processes + stolen + after.rest - before.rest;
    let others = (processes - (after.own - before.own)).max(0.0);
    // The clock of /proc/stat has a step of ten milliseconds: nothing is to be said of less.
    if total < 0.1 {
        return "unknown".into();
    }
    let percent = |part: f64| 100.0 * part / total;
    format!(
        "{:.0}% of the CPU time by other processes, {:.0}% stolen by the host",
        percent(others),
        percent(stolen)
    )
}

impl Used {
    fn now() -> Used {
        // SAFETY: sysconf touches no memory.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = usage(libc::RUSAGE_SELF) + usage(libc::RUSAGE_CHILDREN);
        Used {
            own,
            ..Used::in_stat(&stat, ticks)
        }
    }

    /// From `cpu user nice system idle iowait irq softirq steal ...`, in ticks.
    fn in_stat(stat: &str, ticks: f64) -> Used {
        let line = stat.lines().next().unwrap_or_default();
        let fields: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0.0) / ticks)
            .collect();
        let sum =
            |range: std::ops::Range<usize>| fields.get(range).unwrap_or_default().iter().sum();
        Used {
            processes: sum(0..3),
            rest: sum(3..7),
            stolen: sum(7..8),
            own: 0.0,
        }
    }
}

/// CPU time of the processes below this one that have ended.
pub fn children_used() -> Duration {
    Duration::from_secs_f64(usage(libc::RUSAGE_CHILDREN))
}

/// The user and system time of `who`, in seconds.
fn usage(who: i32) -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the structure; all zero is a valid one should it not.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_proc_stat() {
        let used = Used::in_stat("cpu  100 0 300 500 0 0 100 50 0 0\ncpu0 1 2 3\n", 100.0);
        let expected = Used {
            processes: 4.0,
            rest: 6.0,
            stolen: 0.5,
            own: 0.0,
        };
        assert_eq!(used, expected);
        assert_eq!(Used::in_stat("", 100.0), Used::default());
    }

    #[test]
    fn what_is_ours_is_no_noise() {
        let after = Used {
            processes: 6.0,
            rest: 3.0,
            stolen: 1.0,
            own: 5.0,
        };
        assert_eq!(
            describe(Used::default(), after),
            "10% of the CPU time by other processes, 10% stolen by the host"
        );
        assert_eq!(describe(after, after), "unknown");
    }
}
