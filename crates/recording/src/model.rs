//! What a recording says besides the logs: the manifest and the payloads of
//! the journal's frames.
//!
//! The payloads are encoded with postcard, which does not describe itself:
//! adding or moving a field needs a new [`protocol::FORMAT_VERSION`].

use std::io::Read;
use std::os::unix::fs::MetadataExt;

use protocol::id::{ImageNo, ProcessNo, Ticks};
use serde::{Deserialize, Serialize};

/// How ticks (see [`protocol::shared::TICK_SHIFT`]) become time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The counter, already shifted, when the recording started.
    pub ticks: Ticks,
    /// `CLOCK_REALTIME` at that instant, in nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Ticks in a second.
    pub ticks_per_second: u64,
}

impl Clock {
    /// Nanoseconds from the start of the recording to `ticks` (0 if before).
    pub fn since_start_ns(&self, ticks: Ticks) -> u64 {
        let elapsed = u128::from(ticks.since(self.ticks));
        let rate = u128::from(self.ticks_per_second.max(1));
        u64::try_from(elapsed * 1_000_000_000 / rate).unwrap_or(u64::MAX)
    }

    /// Nanoseconds since the epoch at `ticks`.
    pub fn realtime_ns(&self, ticks: Ticks) -> u64 {
        self.realtime_ns.saturating_add(self.since_start_ns(ticks))
    }
}

/// `manifest.json`: what was run, where and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`protocol::FORMAT_VERSION`] of the writer.
    pub format: u32,
    /// Version of the `mw` that wrote it.
    pub writer: String,
    /// The command as it was given.
    pub command: Vec<String>,
    /// Where it was started.
    pub cwd: String,
    /// Name of the host.
    pub host: String,
    /// Kernel name, release and version.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Who started it.
    pub user: String,
    /// `CLOCK_REALTIME` at the start, in nanoseconds since the epoch.
    pub started_ns: u64,
    /// How ticks become time.
    pub clock: Clock,
    /// The descriptors that the program inherited.
    #[serde(default)]
    pub descriptors: Vec<Inherited>,
    /// Where on the network it was.
    #[serde(default)]
    pub network: Network,
    /// Of a program that was not recorded, but observed for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
}

/// A live program was observed: what is there says what happened meanwhile, and not how
/// it could be made to happen again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Which observation of the program it is: chunks of others are not its own.
    pub number: u32,
    /// The processes that ran when it began.
    pub joined: Vec<Joined>,
}

/// A process that ran already, and its descriptors then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its number.
    pub process: ProcessNo,
    /// Its descriptors.
    pub descriptors: Vec<Held>,
}

/// A descriptor of a process that ran already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What it is.
    #[serde(flatten)]
    pub descriptor: Inherited,
    /// Exec closes it.
    pub cloexec: bool,
    /// Whether it is open for reading, and for writing.
    pub reads: bool,
    /// See `reads`.
    pub writes: bool,
    /// The kernel's number for what it leads to: both ends of a pipe have one, each
    /// socket has its own, and so has an eventfd. 0 if there is none.
    pub inode: u64,
    /// Bytes that were there to be read, or the count of an eventfd.
    pub unread: u64,
    /// Bytes that were sent and had not left this end.
    pub unsent: u64,
    /// Of a socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<HeldSocket>,
}

/// A socket of a process that ran already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSocket {
    /// `AF_UNIX` and so on.
    pub domain: u16,
    /// `SOCK_STREAM` and so on.
    pub kind: u8,
    /// Its address, as the kernel has it (`sockaddr`).
    pub local: Vec<u8>,
    /// Where it is connected to; empty if it is not.
    pub peer: Vec<u8>,
    /// It waits for connections.
    pub listens: bool,
    /// Of a unix socket: the number of the one at the other end, 0 if unknown.
    pub other: u64,
}

/// A network namespace of a host: what an address means depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The kernel's name for the time since the host was started: equal on one
    /// host, different on any two.
    pub boot: String,
    /// The namespace's number on that host.
    pub namespace: u64,
    /// The addresses that it had when the recording began.
    pub addresses: Vec<std::net::IpAddr>,
}

impl Network {
    /// That of this process.
    pub fn here() -> Network {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let namespace = std::fs::metadata("/proc/self/ns/net").map(|meta| meta.ino());
        let mut addresses = Vec::new();
        // Of the routes, those that lead to this host itself.
        let routes = std::fs::read_to_string("/proc/self/net/fib_trie").unwrap_or_default();
        let mut last = None;
        for line in routes.lines().map(str::trim) {
            if let Some(leaf) = line.strip_prefix("|-- ") {
                last = leaf.parse::<std::net::Ipv4Addr>().ok();
            } else if line.starts_with("/32 host LOCAL") {
                addresses.extend(last.map(std::net::IpAddr::V4));
            }
        }
        let six = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
        for line in six.lines() {
            let number = line.split(' ').next();
            let number = number.and_then(|text| u128::from_str_radix(text, 16).ok());
            addresses.extend(number.map(|bits| std::net::IpAddr::V6(bits.into())));
        }
        addresses.sort_unstable();
        addresses.dedup();
        Network {
            boot: boot.unwrap_or_default().trim().to_string(),
            namespace: namespace.unwrap_or(0),
            addresses,
        }
    }

    /// Whether both are one: their loopback addresses mean the same then.
    pub fn is_same(&self, other: &Network) -> bool {
        !self.boot.is_empty() && (&self.boot, self.namespace) == (&other.boot, other.namespace)
    }
}

/// A descriptor that was there before the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// Its number.
    pub fd: i32,
    /// What it leads to, in the words of `/proc/self/fd`: a path, `pipe:[N]`,
    /// `socket:[N]`, `anon_inode:[...]`.
    pub target: String,
    /// `st_mode`.
    pub mode: u32,
}

impl Inherited {
    /// The descriptors of this process that a program it starts inherits.
    pub fn here() -> Vec<Inherited> {
        let mut found = Vec::new();
        let entries = std::fs::read_dir("/proc/self/fd");
        for entry in entries.into_iter().flatten().flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            // Ours are closed at exec, the one that lists them too.
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}"));
            let flags = info.ok().and_then(|info| {
                let line = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
                u32::from_str_radix(line.trim(), 8).ok()
            });
            const O_CLOEXEC: u32 = 0o2000000;
            let (Some(flags), Ok(target)) = (flags, std::fs::read_link(entry.path())) else {
                continue;
            };
            if flags & O_CLOEXEC == 0 {
                found.push(Inherited {
                    fd,
                    target: target.to_string_lossy().into_owned(),
                    mode: std::fs::metadata(entry.path()).map_or(0, |meta| meta.mode()),
                });
            }
        }
        found.sort_by_key(|inherited| inherited.fd);
        found
    }
}

impl Manifest {
    /// A manifest with everything about this machine filled in. The clock is
    /// to be set.
    pub fn here(command: Vec<String>) -> Manifest {
        let uname = rustix::system::uname();
        let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        Manifest {
            format: protocol::FORMAT_VERSION,
            writer: env!("CARGO_PKG_VERSION").to_string(),
            command,
            cwd: std::env::current_dir()
                .map(|p| p.to_string_lossy().into_owned())
                .unwrap_or_default(),
            host: text(uname.nodename()),
            kernel: format!(
                "{} {} {}",
                text(uname.sysname()),
                text(uname.release()),
                text(uname.version())
            ),
            cpu: cpu_model().unwrap_or_else(|| "unknown".to_string()),
            user: user_name(),
            started_ns: 0,
            clock: Clock::default(),
            descriptors: Inherited::here(),
            network: Network::here(),
            observed: None,
        }
    }
}

/// The model of this machine's CPU, as the manifest has it.
pub fn cpu_model() -> Option<String> {
    // All processors are alike, and the kernel takes its time for each.
    let mut start = [0; 2048];
    let len = std::fs::File::open("/proc/cpuinfo")
        .and_then(|mut file| file.read(&mut start))
        .ok()?;
    let info = String::from_utf8_lossy(start.get(..len)?);
    let line = info.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    std::fs::read_to_string("/etc/passwd")
        .ok()
        .and_then(|passwd| {
            passwd.lines().find_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next()?;
                (fields.nth(1)? == uid).then(|| name.to_string())
            })
        })
        .unwrap_or(uid)
}

/// A process has a new image: all it starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageStart {
    /// Number of the process.
    pub process: ProcessNo,
    /// How many images it had before.
    pub image: ImageNo,
    /// The kernel's id of the process.
    pub pid: u32,
    /// Signals blocked and ignored when it began (bit 0 = signal 1).
    pub sigmask: u64,
    /// See `sigmask`.
    pub ignored: u64,
    /// The name it was executed by: a script's own, not its interpreter's;
    /// a link's own, not its target's.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Path of the executable.
    #[serde(with = "serde_bytes")]
    pub exe: Vec<u8>,
    /// Arguments.
    pub argv: Vec<Vec<u8>>,
    /// Environment.
    pub envp: Vec<Vec<u8>>,
    /// Working directory.
    #[serde(with = "serde_bytes")]
    pub cwd: Vec<u8>,
    /// The address space before its first instruction.
    pub maps: Vec<Mapping>,
    /// Registers, in the order of `user_regs_struct`.
    pub regs: Vec<u64>,
    /// The auxiliary vector.
    pub auxv: Vec<(u64, u64)>,
    /// When.
    pub time: Ticks,
}

/// One mapping of an image at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// `PROT_` bits.
    pub prot: u32,
    /// Whether it is shared.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Captured file it maps.
    pub file: Option<u64>,
    /// Path or `[stack]` and the like.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Its bytes, where no file has them.
    #[serde(with = "serde_bytes")]
    pub contents: Option<Vec<u8>>,
}

/// A captured file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its name under `files/`.
    pub id: u64,
    /// Where it was.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Time of last change of its contents.
    pub mtime_ns: i64,
    /// `st_mode`.
    pub mode: u32,
}

/// Something a reader of the recording should know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Number of the process it is about.
    pub process: ProcessNo,
    /// In one word: "refused", "unrecorded", "disk-full".
    pub kind: String,
    /// In a sentence.
    pub text: String,
}

/// How a process ended, as its reaper saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Number of the process, if known.
    pub process: Option<ProcessNo>,
    /// The kernel's id of it.
    pub pid: u32,
    /// As `wait4` gives it.
    pub wait_status: i32,
    /// When.
    pub time: Ticks,
}

/// The end of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// When.
    pub time: Ticks,
    /// `CLOCK_REALTIME` at that instant (0 = unknown): with the clock in the
    /// manifest it gives the rate of ticks over the whole run.
    pub realtime_ns: u64,
    /// The exit status `mw record` passed on.
    pub exit_status: i32,
    /// False if the recording ended before the program (disk full).
    pub complete: bool,
}
