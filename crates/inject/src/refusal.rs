//! Why the monitor cannot come into a process that runs.

use crate::read_proc;

/// Why the monitor cannot come into a process that runs, or cannot leave it. Nothing
/// of the process has been changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no process {0}")]
    NoProcess(i32),
    #[error("process {pid} ({name}) may not be traced")]
    NotAllowed { pid: i32, name: String },
    #[error("process {pid} ({name}) is traced already")]
    Traced { pid: i32, name: String },
    #[error("process {pid} ({name}) is not x86-64 code")]
    NotSixtyFour { pid: i32, name: String },
    #[error("process {pid} ({name}) has a filter on its system calls (seccomp)")]
    Filtered { pid: i32, name: String },
    #[error("process {pid} ({name}) is in another pid namespace")]
    Elsewhere { pid: i32, name: String },
    #[error("process {pid} ({name}) uses what the monitor needs: {what}")]
    InUse {
        pid: i32,
        name: String,
        what: &'static str,
    },
    #[error("process {pid} ({name}) has been stopped by somebody else")]
    Suspended { pid: i32, name: String },
    #[error("process {pid} ({name}) does not stop: it is in an uninterruptible wait")]
    Uninterruptible { pid: i32, name: String },
    #[error("process {pid} ({name}) cannot take the monitor in: a call failed (error {errno})")]
    Call { pid: i32, name: String, errno: i32 },
    #[error("the kernel has no {what}, which the monitor needs for a process that runs already")]
    Kernel { what: &'static str },
    #[error("cannot {what} process {pid} ({name})")]
    Failed {
        what: &'static str,
        pid: i32,
        name: String,
    },
}

impl Refusal {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        let first = match self {
            Refusal::NoProcess(_) => return "`mw attach` lists what there is".to_string(),
            Refusal::NotAllowed { .. } => {
                return "it is another user's, or has privileges: run mw as that user, or as root"
                    .to_string();
            }
            Refusal::Traced { .. } => "another debugger has it: end that first; or",
            Refusal::Suspended { .. } => "send it SIGCONT first; or",
            Refusal::Uninterruptible { .. } => "try again when it is through with it; or",
            _ => "instead,",
        };
        format!(
            "{first} `mw attach --observe` has it traced: what can be halted then is told there"
        )
    }

    pub(crate) fn failed(pid: i32, name: &str, what: &'static str) -> Refusal {
        let name = name.to_string();
        Refusal::Failed { what, pid, name }
    }

    pub(crate) fn not_allowed(pid: i32, name: &str) -> Refusal {
        let name = name.to_string();
        match field(pid, "TracerPid:").is_some_and(|tracer| tracer != "0") {
            true => Refusal::Traced { pid, name },
            false => Refusal::NotAllowed { pid, name },
        }
    }

    pub(crate) fn of_error(pid: i32, name: &str, error: &std::io::Error) -> Refusal {
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => Refusal::not_allowed(pid, name),
            _ => Refusal::NoProcess(pid),
        }
    }
}

/// What can be seen without stopping anybody.
pub(crate) fn check(pid: i32) -> Result<String, Refusal> {
    let name = name_of(pid).ok_or(Refusal::NoProcess(pid))?;
    let its = |what: &str| field(pid, what).unwrap_or_default();
    let named = || name.clone();
    if its("TracerPid:") != "0" {
        return Err(Refusal::Traced { pid, name });
    }
    if !matches!(its("Seccomp:").as_str(), "0" | "") {
        return Err(Refusal::Filtered { pid, name });
    }
    if its("NSpid:").split_whitespace().count() > 1 {
        return Err(Refusal::Elsewhere { pid, name });
    }
    match its("State:").chars().next() {
        Some('T' | 't') => return Err(Refusal::Suspended { pid, name }),
        Some('Z' | 'X') | None => return Err(Refusal::NoProcess(pid)),
        _ => {}
    }
    let memory = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    memory.map_err(|error| Refusal::of_error(pid, &name, &error))?;
    let maps = crate::read_maps(pid).map_err(|_| Refusal::not_allowed(pid, &named()))?;
    if !crate::running::Running::is_free(&maps) {
        let what = "addresses (does mw have it already?)";
        return Err(Refusal::InUse { pid, name, what });
    }
    Ok(name)
}

/// The name of a process, if there is one.
pub(crate) fn name_of(pid: i32) -> Option<String> {
    let name = read_proc(&format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_string())
}

/// A line of a process's status.
pub(crate) fn field(pid: i32, name: &str) -> Option<String> {
    let status = read_proc(&format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_string())
}
