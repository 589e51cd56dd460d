//! `mw record`: runs a program and records it.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, remark};
use crate::output::{bytes, seconds};
use crate::{record_on, select};

/// Run a command and record it and every process it starts.
///
/// Returns when the last process has ended, with the command's own exit status
/// (128 + N if signal N ended it). The first Ctrl-C goes to the program, a
/// second one ends it.
///
/// With `--on HOST CMD`, as often as wanted, the commands run on other hosts,
/// which are reached by ssh and need nothing installed. What they say is shown
/// with their host's name in front, and their recordings are joined in one.
#[derive(Args)]
pub struct Cmd {
    /// Directory to make for the recording
    /// [default: ${XDG_DATA_HOME:-~/.local/share}/meanwhile/CMD-N]
    #[arg(short = 'o', long = "output", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<PathBuf>,

    /// Do not say, on a terminal, where the recording is, nor what is said on
    /// other hosts
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// What becomes of the program when the disk is full
    #[arg(long, value_enum, default_value_t = OnFull::Stop, value_name = "WHAT")]
    pub on_full: OnFull,

    /// Run CMD on HOST, which is what ssh understands, or `tls:HOST` where an agent
    /// listens
    #[arg(long, num_args = 2, value_names = ["HOST", "CMD"], conflicts_with = "command")]
    pub on: Vec<String>,

    /// Run what a plan says, on the hosts that it names
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "on"])]
    pub plan: Option<PathBuf>,

    /// Take the program over from who records it through the same agents
    #[arg(long = "override")]
    pub takes_over: bool,

    /// Say what a plan would do, and do nothing
    #[arg(long, requires = "plan")]
    pub check: bool,

    /// Do not make it the latest recording
    #[arg(long, hide = true)]
    pub scratch: bool,

    /// The command and its arguments
    #[arg(
        required_unless_present_any = ["on", "plan"],
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// What becomes of the program when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    /// It is stopped.
    Stop,
    /// It runs on, unrecorded.
    Continue,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if !self.on.is_empty() || self.plan.is_some() {
            return record_on::run(self);
        }
        let name = self
            .command
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str);
        if is_option(&self.command) {
            return Err(
                Failure::new(format!("there is no option `{}`", name.display()))
                    .hint("see `mw record --help`; a command of that name goes behind `--`"),
            );
        }
        let path = find_command(name)?;
        check_executable(&path)?;
        let dir = choose(self.output, name)?;
        let options = agent::Options {
            dir: dir.clone(),
            path,
            on_full: match self.on_full {
                OnFull::Stop => agent::OnFull::Stop,
                OnFull::Continue => agent::OnFull::Continue,
            },
            command: self.command,
            cache: select::cache().map(|cache| cache.join("files")),
        };
        let ended = agent::record(&options).map_err(explain)?;
        if !self.scratch {
            select::point_latest_at(&dir);
        }
        if !self.quiet && std::io::stderr().is_terminal() {
            tell(&dir);
        }
        Ok(ExitCode::from(
            u8::try_from(ended.status).unwrap_or(u8::MAX),
        ))
    }
}

/// Whether the command begins with what was meant as an option: no command does,
/// unless `--` stands before it.
pub fn is_option(command: &[OsString]) -> bool {
    let words: Vec<OsString> = std::env::args_os().collect();
    let before = words.len().checked_sub(command.len() + 1);
    let marked = before.is_some_and(|at| words.get(at).is_some_and(|word| word == "--"));
    let first = command.first().map(|word| word.as_encoded_bytes());
    !marked && first.is_some_and(|word| word.starts_with(b"-") && word.len() > 1)
}

/// The file that a shell would execute, or its words if there is none.
pub fn find_command(name: &OsStr) -> Result<PathBuf, Failure> {
    let missing = |why: &str| Err(Failure::new(format!("{}: {why}", name.display())).status(127));
    if name.as_encoded_bytes().contains(&b'/') {
        return match std::fs::metadata(name) {
            Ok(meta) if meta.is_dir() => {
                Err(Failure::new(format!("{}: Is a directory", name.display())).status(126))
            }
            Ok(_) => Ok(PathBuf::from(name)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(Failure::new(format!("{}: Permission denied", name.display())).status(126))
            }
            Err(_) => missing("No such file or directory"),
        };
    }
    if name.is_empty() {
        return missing("command not found");
    }
    let path =
        std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let mut found = None;
    for dir in std::env::split_paths(&path) {
        let candidate = dir.join(name);
        if candidate.is_file() {
            if is_executable(&candidate) {
                return Ok(candidate);
            }
            found.get_or_insert(candidate);
        }
    }
    match found {
        // Found but not executable: as the shell, say so.
        Some(candidate) => Ok(candidate),
        None => missing("command not found"),
    }
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Refuses what cannot be recorded before anything is made or run.
pub fn check_executable(path: &Path) -> Result<(), Failure> {
    if !is_executable(path) {
        return Err(Failure::new(format!("{}: Permission denied", path.display())).status(126));
    }
    let Ok(meta) = std::fs::metadata(path) else {
        return Ok(());
    };
    if !meta.is_file() {
        // Not to be opened: it may be a pipe. The kernel says what is wrong.
        return Ok(());
    }
    let euid = rustix::process::geteuid().as_raw();
    let mode = meta.permissions().mode();
    if euid != 0 && mode & 0o4000 != 0 && meta.uid() != euid
        || euid != 0 && mode & 0o2010 == 0o2010 && meta.gid() != rustix::process::getegid().as_raw()
    {
        return Err(Failure::new(format!(
            "{} is a set-user-ID or set-group-ID program: recorded, it would not get its rights",
            path.display()
        ))
        .hint("record it as the user it runs as (for root: `sudo mw record ...`)"));
    }
    let mut none = [0u8; 0];
    if euid != 0 && rustix::fs::getxattr(path, "security.capability", &mut none).is_ok() {
        return Err(Failure::new(format!(
            "{} has file capabilities: recorded, it would not get them",
            path.display()
        ))
        .hint("record it as root (`sudo mw record ...`), or a copy of it, which has none"));
    }
    let mut head = [0u8; 20];
    let Ok(mut file) = std::fs::File::open(path) else {
        return Ok(());
    };
    if file.read_exact(&mut head).is_err() {
        return Ok(());
    }
    // Scripts are the kernel's business; so is what is neither.
    let [0x7f, b'E', b'L', b'F', class, ..] = head else {
        return Ok(());
    };
    let machine = u16::from_le_bytes([head[18], head[19]]);
    const X86_64: u16 = 62;
    if class != 2 || machine != X86_64 {
        let what = match (class, machine) {
            (1, 3) => "a 32-bit x86 program".to_string(),
            (1, X86_64) => "an x32 program".to_string(),
            (2, 183) => "a program for 64-bit ARM".to_string(),
            (class, machine) => {
                format!("not an x86-64 program (ELF class {class}, machine {machine})")
            }
        };
        return Err(Failure::new(format!("{} is {what}", path.display()))
            .hint("only 64-bit x86 programs can be recorded: use a 64-bit build of it"));
    }
    Ok(())
}

/// Says where the recording is, how much it is, and what can be done with it.
/// Whoever does not hear it misses nothing.
pub fn tell(dir: &Path) {
    let Ok(listed) = recording::listing::Listed::read(dir) else {
        return;
    };
    let by_name = select::home().is_some_and(|home| dir.parent() == Some(&home));
    let name = match by_name {
        true => listed.name.clone(),
        false => dir.display().to_string(),
    };
    remark(format_args!(
        "recorded as {name}: {} s, {}; look at it with `mw ps`, `mw events`, `mw replay`",
        seconds(listed.duration_ns),
        bytes(listed.size)
    ));
}

/// Where the recording goes.
pub fn choose(output: Option<PathBuf>, name: &OsStr) -> Result<PathBuf, Failure> {
    if let Some(dir) = output {
        if std::fs::symlink_metadata(&dir).is_ok() {
            return Err(Failure::new(format!("{} exists already", dir.display()))
                .hint("name a directory that does not exist, or remove it first"));
        }
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        check_writable(parent)?;
        return Ok(dir);
    }
    let home = select::home().ok_or_else(|| {
        Failure::new("neither HOME nor XDG_DATA_HOME is set: there is no place for recordings")
            .hint("name a directory with `-o DIR`")
    })?;
    std::fs::create_dir_all(&home).map_err(|error| {
        Failure::new(format!("cannot create {}: {error}", home.display()))
            .hint("name another directory with `-o DIR`")
    })?;
    check_writable(&home)?;
    let base = Path::new(name)
        .file_name()
        .unwrap_or(name)
        .to_string_lossy()
        .into_owned();
    let mut number = 0u32;
    loop {
        let dir = home.join(format!("{base}-{number}"));
        if std::fs::symlink_metadata(&dir).is_err() {
            return Ok(dir);
        }
        number += 1;
    }
}

/// An existing ancestor that cannot be written to is found out about before
/// the program starts.
fn check_writable(dir: &Path) -> Result<(), Failure> {
    let mut at = dir;
    loop {
        match std::fs::metadata(at) {
            Ok(meta) if !meta.is_dir() => {
                return Err(Failure::new(format!("{} is not a directory", at.display())));
            }
            Ok(_) => {
                let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
                return rustix::fs::access(at, access).map_err(|error| {
                    Failure::new(format!("cannot write to {}: {error}", at.display()))
                        .hint("name another directory with `-o DIR`")
                });
            }
            Err(_) => match at.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => at = parent,
                _ => return Ok(()),
            },
        }
    }
}

/// What is wrong with a file that is there and cannot be executed.
fn not_executed(path: &Path) -> Option<String> {
    const BEGIN: u64 = 256;
    let mut begin = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(BEGIN).read_to_end(&mut begin).ok()?;
    if let Some(line) = begin.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line).into_owned();
        let interpreter = line.lines().next()?.split_whitespace().next()?.to_string();
        return (!Path::new(&interpreter).exists())
            .then(|| format!("its first line names {interpreter}, which is not there"));
    }
    if begin.starts_with(b"\x7fELF") {
        return None;
    }
    let is_text = |byte: &u8| *byte >= b' ' || byte.is_ascii_whitespace();
    begin.iter().all(is_text).then(|| {
        format!(
            "a script begins with a line like `#!/bin/sh`; or say what reads it: `mw record sh {}`",
            path.display()
        )
    })
}

pub fn explain(error: agent::Error) -> Failure {
    let status = match &error {
        agent::Error::Command { status, .. } => *status,
        _ => crate::failure::TROUBLE,
    };
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    let failure = Failure::new(text).status(status);
    match error {
        agent::Error::Command { command, .. } => match not_executed(Path::new(&command)) {
            Some(why) => failure.hint(why),
            None => failure,
        },
        agent::Error::NoDispatch => failure.hint(
            "Linux 5.11 or newer with CONFIG_GENERIC_ENTRY is needed; gVisor and some containers lack it",
        ),
        agent::Error::AddressSpace { .. } => {
            failure.hint("raise it with `ulimit -v`, at least for `mw`; the program's own can be lower")
        }
        _ => failure,
    }
}
