//! What /proc tells of processes.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A process that could be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    pub pid: i32,
    pub parent: i32,
    pub user: u32,
    /// As the kernel has it.
    pub name: String,
    /// Its command line.
    pub command: String,
    pub threads: usize,
    /// Who traces it, if somebody does.
    pub tracer: i32,
}

/// All processes but the kernel's, in order of their ids.
pub fn candidates() -> Vec<Candidate> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut pids: Vec<i32> = numbers.collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(candidate).collect()
}

fn candidate(pid: i32) -> Option<Candidate> {
    let status = Status::of(pid, pid)?;
    if status.is_kernel() {
        return None;
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    Some(Candidate {
        pid,
        parent: status.parent,
        user: std::fs::metadata(format!("/proc/{pid}")).ok()?.uid(),
        command: words.join(" "),
        threads: status.threads,
        tracer: status.tracer,
        name: status.name,
    })
}

/// A process and all that it has made and they have, in order of their ids.
pub fn descendants(of: i32, all: &[Candidate]) -> Vec<i32> {
    let mut found = BTreeSet::from([of]);
    loop {
        let before = found.len();
        let children = all.iter().filter(|c| found.contains(&c.parent));
        let children: Vec<i32> = children.map(|c| c.pid).collect();
        found.extend(children);
        if found.len() == before {
            return found.into_iter().collect();
        }
    }
}

/// What `status` says of a thread.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub name: String,
    pub state: char,
    pub group: i32,
    pub parent: i32,
    pub tracer: i32,
    pub threads: usize,
    pub blocked: u64,
    pub ignored: u64,
    pub caught: u64,
    /// Of this thread, and of all.
    pub pending: u64,
    /// Of this thread alone.
    pub pending_here: u64,
    has_memory: bool,
}

impl Status {
    pub fn of(pid: i32, tid: i32) -> Option<Status> {
        let mut text = Vec::with_capacity(4096);
        let mut file = std::fs::File::open(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        file.read_to_end(&mut text).ok()?;
        Some(Status::parse(&String::from_utf8_lossy(&text)))
    }

    /// Of a thread whose process is not known.
    pub fn of_thread(tid: i32) -> Option<Status> {
        let text = std::fs::read(format!("/proc/{tid}/status")).ok()?;
        Some(Status::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> Status {
        let mut status = Status::default();
        let mask = |value: &str| u64::from_str_radix(value, 16).unwrap_or(0);
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let number = || value.parse().unwrap_or(0);
            match key {
                "Name" => status.name = value.to_string(),
                "State" => status.state = value.chars().next().unwrap_or('?'),
                "Tgid" => status.group = number(),
                "PPid" => status.parent = number(),
                "TracerPid" => status.tracer = number(),
                "Threads" => status.threads = value.parse().unwrap_or(0),
                "VmSize" => status.has_memory = true,
                "SigBlk" => status.blocked = mask(value),
                "SigIgn" => status.ignored = mask(value),
                "SigCgt" => status.caught = mask(value),
                "SigPnd" => {
                    status.pending_here = mask(value);
                    status.pending |= status.pending_here;
                }
                "ShdPnd" => status.pending |= mask(value),
                _ => {}
            }
        }
        status
    }

    /// A thread of the kernel's own.
    pub fn is_kernel(&self) -> bool {
        !self.has_memory && !self.is_zombie()
    }

    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut tids: Vec<i32> = numbers.collect();
    tids.sort_unstable();
    tids
}

/// What a file under `/proc/PID` says, no more than there is room for in an answer; where it
/// leads, if it is a link.
pub fn told(pid: i32, name: &str) -> Option<Vec<u8>> {
    const MOST: u64 = 16 << 20;
    let is_below = |part: &str| !part.is_empty() && !part.starts_with('.');
    if !name.split('/').all(is_below) {
        return None;
    }
    let path = Path::new("/proc").join(pid.to_string()).join(name);
    if let Ok(target) = std::fs::read_link(&path) {
        return Some(target.into_os_string().into_vec());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Whether the program of a process is 64-bit code. None: it cannot be told.
pub fn is_64_bit(pid: i32) -> Option<bool> {
    let mut head = [0; 20];
    let mut file = std::fs::File::open(format!("/proc/{pid}/exe")).ok()?;
    file.read_exact(&mut head).ok()?;
    let is_elf = head.starts_with(b"\x7fELF");
    // Its class, and x86-64 as the machine.
    (is_elf).then(|| head.get(4) == Some(&2) && head.get(18..20) == Some(&[62, 0]))
}

/// Whether processes have no children but each other, as far as the kernel says so quickly.
pub fn are_all(pids: &[i32]) -> bool {
    let mut tasks = pids.iter().flat_map(|pid| {
        let tids = threads(*pid).into_iter();
        tids.map(move |tid| format!("/proc/{pid}/task/{tid}/children"))
    });
    tasks.all(|path| {
        let text = std::fs::read_to_string(path);
        text.is_ok_and(|text| {
            let mut children = text.split_whitespace().map(str::parse::<i32>);
            children.all(|child| child.is_ok_and(|child| pids.contains(&child)))
        })
    })
}

/// Whether something is mapped in a process from an address on.
pub fn maps_at(pid: i32, address: u64) -> bool {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let start = format!("{address:08x}-");
    let text = String::from_utf8_lossy(&text);
    text.lines().any(|line| line.starts_with(&start))
}

/// What a process is called.
pub fn name(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_string()
}

/// Whether a descriptor of a process leads to a file.
pub fn is_file(pid: i32, fd: i32) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let meta = std::fs::metadata(format!("/proc/{pid}/fd/{fd}"));
    meta.is_ok_and(|meta| {
        let kind = meta.file_type();
        !kind.is_socket() && !kind.is_fifo() && !kind.is_char_device()
    })
}

/// The call that a thread is in.
pub fn call_of(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// How often a thread was switched to, whether it had waited or not.
pub fn switches(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let counts = text.lines().filter_map(|line| {
        let (key, count) = line.split_once(':')?;
        key.ends_with("ctxt_switches")
            .then(|| count.trim().parse::<u64>())?
            .ok()
    });
    Some(counts.sum())
}

/// What a thread is called.
pub fn thread_name(pid: i32, tid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    name.trim_end().to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_them() {
        let all = candidates();
        let pid = std::process::id() as i32;
        let own = all.iter().find(|c| c.pid == pid).unwrap();
        assert!(own.threads >= 1 && !own.command.is_empty());
        assert!(descendants(own.parent, &all).contains(&pid));
        assert_eq!(is_64_bit(pid), Some(true));
        assert!(threads(pid).contains(&pid));
    }

    #[test]
    fn masks_are_read() {
        let status = Status::parse(
            "Name:\ta b\nState:\tT (stopped)\nTgid:\t7\nVmSize:\t 1 kB\nSigCgt:\t0000000000000400\n",
        );
        assert_eq!(
            (status.name.as_str(), status.state, status.group),
            ("a b", 'T', 7)
        );
        assert_eq!(status.caught, 1 << 10);
        assert!(!status.is_kernel());
    }
}
