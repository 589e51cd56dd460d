//! Which processes belong to a run, wherever in the tree they are.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Every process of a run has it in its environment.
pub const VARIABLE: &str = "MW_TEST_RUN";

/// What marks the processes of one run.
pub struct Marker(String);

impl Marker {
    /// One that no other run has.
    pub fn unique() -> Marker {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Marker(format!("{}-{run}", std::process::id()))
    }

    pub fn value(&self) -> &str {
        &self.0
    }

    /// The processes that are there now. What is dead but not yet waited for
    /// has no environment, and does not count.
    pub fn processes(&self) -> Vec<Pid> {
        let wanted = format!("{VARIABLE}={}", self.0);
        let has = |pid: &Pid| {
            let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
            environment
                .unwrap_or_default()
                .split(|byte| *byte == 0)
                .any(|variable| variable == wanted.as_bytes())
        };
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .filter(has)
            .collect()
    }

    /// Kills what is there until nothing is.
    pub fn kill_all(&self) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What processes are doing, for a report of what hangs.
pub fn describe(pids: &[Pid]) -> String {
    let mut out = String::new();
    for pid in pids {
        let pid = pid.as_raw_pid();
        let read = |file: &str| {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).replace('\0', " ");
            text.trim().to_string()
        };
        out += &format!("  {pid}: {}\n", read("cmdline"));
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let task = task.file_name().display().to_string();
            let state = read(&format!("task/{task}/status"))
                .lines()
                .find_map(|line| line.strip_prefix("State:").map(str::trim).map(String::from));
            out += &format!(
                "    {task}: {}, {}, syscall {}\n",
                state.unwrap_or_default(),
                read(&format!("task/{task}/wchan")),
                read(&format!("task/{task}/syscall")),
            );
        }
    }
    out
}
