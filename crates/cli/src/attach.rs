//! `mw attach` and `mw run`: the prompt, on programs that are alive.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ::session::Program;
use inspect::{Library, Options};
use live::Candidate;

use crate::failure::{Failure, remark};
use crate::output::Output;
use crate::{attach_on, debug, record, record_on, select};

/// Debug processes that run. Without any named, list those that could be.
///
/// All of them stand still while the prompt waits, and their time does; they run when it
/// is told to have them run. On leaving they run on as if nobody had looked.
///
/// Exit status 0; 2 if a command failed or a process cannot be joined.
#[derive(clap::Args)]
pub struct Attach {
    /// Processes: by id, or all that have a name; of another host after its name and a
    /// colon. A host is what ssh understands, or `tls:HOST` where an agent listens
    #[arg(value_name = "[HOST:]PID|NAME")]
    processes: Vec<String>,

    /// A process and all that it has made
    #[arg(long, value_name = "[HOST:]PID")]
    tree: Vec<String>,

    /// By ptrace alone: nothing of the debugger is in the program, and its time goes on
    /// while it stands
    #[arg(long)]
    observe: bool,

    #[command(flatten)]
    holding: Holding,

    #[command(flatten)]
    script: Script,
}

/// Start a program under the debugger, before its first instruction.
///
/// While the prompt stands the program's time stands: it sees nothing of it. It ends
/// with the debugger unless it is let go (`detach`).
///
/// Exit status 0; 2 if a command failed or the program cannot be started.
#[derive(clap::Args)]
pub struct Run {
    /// Let it run at once
    #[arg(long)]
    go: bool,

    /// Run CMD on HOST, which is what ssh understands, or `tls:HOST` where an agent
    /// listens; again for each
    #[arg(long, num_args = 2, value_names = ["HOST", "CMD"], conflicts_with_all = ["program", "observe"])]
    on: Vec<String>,

    /// Run what a plan says, on the hosts that it names
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "program", "observe"])]
    plan: Option<PathBuf>,

    /// Record it besides
    #[arg(long, conflicts_with = "observe")]
    record: bool,

    /// Directory to make for the recording
    #[arg(short = 'o', long = "output", value_name = "DIR", requires = "record")]
    output: Option<PathBuf>,

    /// By ptrace alone: nothing of the debugger is in the program, and its time goes on
    /// while it stands
    #[arg(long)]
    observe: bool,

    #[command(flatten)]
    holding: Holding,

    #[command(flatten)]
    script: Script,

    /// The program and its arguments
    #[arg(
        required_unless_present_any = ["on", "plan"],
        trailing_var_arg = true,
        value_name = "CMD"
    )]
    program: Vec<OsString>,
}

/// How a program is held that runs under `mw`.
#[derive(clap::Args)]
struct Holding {
    /// For how long it stays halted if this debugger is lost, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    keep: u64,

    /// Take it over from another debugger
    #[arg(long = "override")]
    takes_over: bool,
}

impl Holding {
    fn how(&self, governed: bool) -> live::How {
        live::How {
            keep: Some(std::time::Duration::from_secs(self.keep)),
            overrides: self.takes_over,
            governed,
        }
    }
}

/// What is to be done without asking.
#[derive(clap::Args)]
pub struct Script {
    /// Execute the debugger's commands in FILE first
    #[arg(short = 'x', long = "command-file", id = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Execute a command of the debugger's
    #[arg(short = 'e', long = "execute", id = "command", value_name = "CMD")]
    commands: Vec<String>,

    /// Execute the given commands, then leave; stop at the first that fails
    #[arg(long)]
    batch: bool,
}

/// Traces processes for a debugger; the debugger starts it.
#[derive(clap::Args)]
pub struct Warden {
    socket: i32,
}

/// Waits until it is traced and becomes a program; the warden starts it.
#[derive(clap::Args)]
pub struct Begin {
    gate: i32,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Starts a program such that it can be halted, and stands before its first
/// instruction; the warden starts it.
#[derive(clap::Args)]
pub struct Govern {
    gate: i32,
    #[arg(long)]
    record: Option<PathBuf>,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Brings the monitor into processes that run, and takes it out when nobody debugs them
/// any more; the warden starts it.
#[derive(clap::Args)]
pub struct GovernRunning {
    gate: i32,
    #[arg(required = true)]
    processes: Vec<i32>,
}

/// The hidden command that begins a program.
const BEGIN: &str = "begin-alive";

impl From<live::HostError> for Failure {
    fn from(error: live::HostError) -> Failure {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<live::Error> for Failure {
    fn from(error: live::Error) -> Failure {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// A program behind a warden of its own.
pub fn program() -> Result<live::Program, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    Ok(live::Program::new(&own, &["warden"])?)
}

impl Script {
    pub fn debug(
        self,
        program: live::Program,
        library: Library,
        first: Option<&str>,
        ends: bool,
        recorded: debug::Recorded,
    ) -> Result<ExitCode, Failure> {
        let commands = first.map(str::to_string).into_iter().chain(self.commands);
        let script = debug::Script {
            files: self.files,
            commands: commands.collect(),
            batch: self.batch,
        };
        let living = debug::Living {
            agents: program.agents(),
            recording: recorded.place()?,
            recorded,
            observed: None,
            followed: Vec::new(),
        };
        let program = Program::alive(Arc::new(program), library);
        let good = debug::run_living(&program, &script, ends, living)?;
        Ok(ExitCode::from(u8::from(!good) * 2))
    }
}

impl Attach {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if self.processes.is_empty() && self.tree.is_empty() {
            return list();
        }
        let all: Vec<String> = self.processes.iter().chain(&self.tree).cloned().collect();
        if let Some(hosts) = attach_on::by_host(&all)? {
            let roots = attach_on::by_host(&self.tree)?.unwrap_or_default();
            let how = self.holding.how(!self.observe);
            return attach_on::attach(&hosts, &roots, &how, self.script);
        }
        let tree = self.tree.iter().map(|word| id(word));
        let tree: Vec<i32> = tree.collect::<Result<_, Failure>>()?;
        // They stand from when they are joined: what can be found out before is.
        let mut all = live::candidates();
        let mut pids = named(&self.processes, &all)?;
        let program = program()?;
        let how = self.holding.how(!self.observe);
        let library = Library::new(Options::default());
        if tree.is_empty() {
            live::look_ahead(&pids, &library);
            tell(program.attach(&pids, &how)?);
        }
        // Who is made while the others are being joined is joined too.
        for root in &tree {
            loop {
                let new = live::descendants(*root, &all).into_iter();
                let new: Vec<i32> = new.filter(|pid| !pids.contains(pid)).collect();
                if new.is_empty() {
                    break;
                }
                live::look_ahead(&new, &library);
                tell(program.attach(&new, &how)?);
                pids.extend(new);
                if live::are_all(&pids) {
                    break;
                }
                all = live::candidates();
            }
        }
        tell_of_others(&pids, &all);
        let recorded = match recording(&program.agent()) {
            Some(dir) => debug::Recorded::Here(dir),
            None => debug::Recorded::Nowhere,
        };
        self.script.debug(program, library, None, false, recorded)
    }
}

/// The id of a process.
pub fn id(word: &str) -> Result<i32, Failure> {
    word.parse().map_err(|_| {
        Failure::new(format!("`{word}` is not the id of a process"))
            .hint("`mw attach` lists those that could be joined, with their ids")
    })
}

/// Says who of a program was not joined: what a process has made already runs on.
fn tell_of_others(pids: &[i32], all: &[Candidate]) {
    let made: Vec<i32> = pids
        .iter()
        .flat_map(|pid| live::descendants(*pid, all))
        .collect();
    let own = live::descendants(std::process::id() as i32, all);
    let is_left = |c: &&Candidate| {
        made.contains(&c.pid) && c.tracer == 0 && !pids.contains(&c.pid) && !own.contains(&c.pid)
    };
    let left: Vec<String> = all
        .iter()
        .filter(is_left)
        .map(|c| format!("{} ({})", c.pid, c.name))
        .collect();
    let Some((first, more)) = left.split_first() else {
        return;
    };
    let who = match more.len() {
        0 => format!("its child {first} runs"),
        count => format!("its child {first} and {count} more run"),
    };
    remark(format_args!(
        "{who} on, in real time: `--tree` joins those that it has made as well"
    ));
}

/// Where the program of an agent is recorded, if it is: on its host.
pub fn recording(agent: &live::Agent) -> Option<PathBuf> {
    // Without an agent it is not.
    let answer = agent.ask(&agent::control::Request::Status).ok()?;
    match answer {
        agent::control::Answer::Status(status) if status.is_recording => {
            status.arena.parent().map(Path::to_path_buf)
        }
        _ => None,
    }
}

/// Says what is not as it could be.
pub fn tell(why: Option<String>) {
    if let Some(why) = why {
        remark(format_args!(
            "{why}: it is traced, and its time goes on while it stands"
        ));
    }
}

impl GovernRunning {
    pub fn run(self) -> Result<ExitCode, Failure> {
        live::leave_nothing_behind(self.gate);
        let attachment = match agent::attach(&self.processes) {
            Ok(attachment) => attachment,
            Err(error) => {
                live::refuse(self.gate, &error.to_string());
                // Who started it says why.
                return Ok(ExitCode::from(127));
            }
        };
        attachment.serve().map_err(record::explain)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Run {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if !self.on.is_empty() || self.plan.is_some() {
            let runs = match &self.plan {
                Some(file) => attach_on::planned(file)?,
                None => record_on::from_words(&self.on)?,
            };
            let how = attach_on::Start {
                first: self.go.then_some("continue"),
                how: self.holding.how(true),
                dir: match self.record {
                    true => Some(record::choose(self.output, &record_on::program(&runs))?),
                    false => None,
                },
            };
            return attach_on::run(&runs, how, self.script);
        }
        let name = self
            .program
            .first()
            .map_or(std::ffi::OsStr::new(""), OsString::as_os_str);
        let dir = match self.record {
            true => Some(record::choose(self.output, name)?),
            false => None,
        };
        let program = program()?;
        if self.observe {
            program.start(&self.program)?;
        } else {
            let mut words = Vec::new();
            if let Some(dir) = &dir {
                words.extend(["--record".into(), dir.clone().into_os_string()]);
            }
            words.push("--".into());
            words.extend(self.program.iter().cloned());
            program.start_governed(&words, &self.holding.how(true))?;
        }
        let first = self.go.then_some("continue");
        let library = Library::new(Options::default());
        let recorded = match &dir {
            Some(dir) => debug::Recorded::Here(dir.clone()),
            None => debug::Recorded::Nowhere,
        };
        let done = self.script.debug(program, library, first, true, recorded);
        if let Some(dir) = dir {
            select::point_latest_at(&dir);
            record::tell(&dir);
        }
        done
    }
}

impl Govern {
    pub fn run(self) -> Result<ExitCode, Failure> {
        live::leave_nothing_behind(self.gate);
        match self.start() {
            Ok(status) => Ok(status),
            Err(failure) => {
                live::refuse(self.gate, failure.message());
                // Who started it says why.
                Ok(ExitCode::from(127))
            }
        }
    }

    fn start(&self) -> Result<ExitCode, Failure> {
        let name = self
            .command
            .first()
            .map_or(std::ffi::OsStr::new(""), OsString::as_os_str);
        let path = record::find_command(name)?;
        record::check_executable(&path)?;
        let cache = select::cache().map(|cache| cache.join("files"));
        let how = agent::Start {
            is_live: self.record.is_none(),
            is_halted: true,
            is_debugged: true,
        };
        let ended = match &self.record {
            None => agent::run_as(&self.command, &path, cache, how),
            Some(dir) => agent::start(
                &agent::Options {
                    dir: dir.clone(),
                    command: self.command.clone(),
                    path,
                    on_full: agent::OnFull::Continue,
                    cache,
                },
                how,
            ),
        };
        let ended = ended.map_err(record::explain)?;
        Ok(ExitCode::from(
            u8::try_from(ended.status).unwrap_or(u8::MAX),
        ))
    }
}

impl Warden {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let own = std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
        live::warden::serve(self.socket, (own, BEGIN.to_string()))
            .map_err(|error| Failure::new(format!("the warden cannot work: {error}")))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Begin {
    pub fn run(self) -> Result<ExitCode, Failure> {
        live::start(self.gate, &self.command);
        // Who started it knows why.
        Ok(ExitCode::from(127))
    }
}

/// The processes that words stand for.
pub fn named(words: &[String], all: &[Candidate]) -> Result<Vec<i32>, Failure> {
    let own = std::process::id() as i32;
    let mut pids = Vec::new();
    for word in words {
        let found: Vec<i32> = match word.parse::<i32>() {
            Ok(pid) => vec![pid],
            Err(_) => all
                .iter()
                .filter(|c| c.pid != own && (c.name == *word || base(&c.command) == word))
                .map(|c| c.pid)
                .collect(),
        };
        if found.is_empty() {
            let names = all.iter().map(|c| c.name.as_str());
            let failure = Failure::new(format!("no process is called `{word}`"));
            return Err(match events::nearest(word, names) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("`mw attach` lists what there is"),
            });
        }
        pids.extend(found);
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// The name of the program in a command line.
fn base(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or("");
    program.rsplit('/').next().unwrap_or(program)
}

/// What could be joined: this user's processes, or all for who may.
fn list() -> Result<ExitCode, Failure> {
    let own = std::process::id() as i32;
    let user = rustix::process::geteuid().as_raw();
    let mut out = Output::new();
    out.line(&format!(
        "{:>8}  {:<20} {:>7}  {}",
        "PID", "NAME", "THREADS", "COMMAND"
    ))?;
    let agents = agent::control::list().into_iter().map(|(_, status)| {
        let how = match status.is_recording {
            true => "under mw record",
            false => "under mw run",
        };
        let registered = status.threads.iter().map(|thread| thread.pid as i32);
        let mut pids = agent::program_of(status.pid as i32);
        let how = if pids.is_empty() {
            "under mw attach"
        } else {
            how
        };
        pids.extend(registered);
        (pids, how)
    });
    let agents: Vec<(Vec<i32>, &str)> = agents.collect();
    for c in live::candidates() {
        let is_ours = user == 0 || c.user == user;
        if !is_ours || c.pid == own {
            continue;
        }
        let agent = agents.iter().find(|(pids, _)| pids.contains(&c.pid));
        let traced = match (agent, c.tracer) {
            (Some((_, how)), 0) => format!("({how}) "),
            (Some((_, how)), _) => format!("({how}, debugged) "),
            (None, 0) => String::new(),
            (None, by) => format!("(traced by {by}) "),
        };
        let line = format!(
            "{:>8}  {:<20} {:>7}  {traced}{}",
            c.pid, c.name, c.threads, c.command
        );
        let short: String = line.chars().take(160).collect();
        out.line(short.trim_end())?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
