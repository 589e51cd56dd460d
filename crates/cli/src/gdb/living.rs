//! A program that is alive as gdb sees it: processes come and go, get signals, and
//! can be changed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::BufRead;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use ::gdb_remote::signals::to_protocol;
use ::gdb_remote::{Motion, Refused, Registers, Stop, StopKind, StopReason, ThreadId};
use ::session::{Caught, Follow, Group, Reason, Stopped, What};
use ::target::Happening;
use protocol::id::{Addr, ProcessId, ThreadNo};

use super::program::{Program, Served, Told, stop};
use super::{Cmd, Room};
use crate::attach;
use crate::failure::Failure;

/// Processes that were joined or started to be served.
pub struct Living {
    program: Arc<::session::Program>,
    live: Arc<live::Program>,
    how: live::How,
    /// The one that was started.
    started: Option<u32>,
}

/// What is known besides of a program that is alive.
pub struct Alive {
    live: Arc<live::Program>,
    /// How one that comes later is joined.
    how: live::How,
    /// Those that were started, and whom they made.
    ours: HashSet<u32>,
    /// The point that tells of signals.
    signals: Option<u32>,
    /// Who stands before a signal that gdb was told of and has not decided on.
    signalled: Option<(ProcessId, ThreadNo)>,
}

impl Alive {
    /// Whether a process was there before it was debugged.
    pub fn was_there(&self, pid: u32) -> bool {
        !self.ours.contains(&pid)
    }
}

impl Living {
    /// Joins processes, or starts a program: under an agent, unless they are only to be
    /// observed.
    pub fn begin(
        processes: &[String],
        command: &[OsString],
        observe: bool,
    ) -> Result<Living, Failure> {
        if processes.is_empty() && command.is_empty() {
            return Err(Failure::new("which processes?").hint(
                "`mw gdb --live PID`, or a program to start: `mw gdb --live -- CMD`; \
                 `mw attach` lists what runs",
            ));
        }
        let pids = attach::named(processes, &live::candidates())?;
        let program = attach::program()?;
        let how = live::How {
            governed: !observe,
            ..live::How::default()
        };
        let started = match (processes.is_empty(), observe) {
            (true, true) => Some(program.start(command)? as u32),
            (true, false) => {
                let words = std::iter::once("--".into()).chain(command.iter().cloned());
                let words: Vec<OsString> = words.collect();
                Some(program.start_governed(&words, &how)? as u32)
            }
            (false, _) => {
                attach::tell(program.attach(&pids, &how)?);
                None
            }
        };
        let live = Arc::new(program);
        let opener: Arc<dyn ::target::Opener> = Arc::clone(&live) as _;
        Ok(Living {
            program: ::session::Program::alive(
                opener,
                inspect::Library::new(inspect::Options::default()),
            ),
            live,
            how,
            started,
        })
    }
}

impl Cmd {
    /// gdb on processes that are alive. What is wrong with them the server says.
    pub(super) fn run_living(
        &self,
        processes: &[String],
        command: &[OsString],
    ) -> Result<ExitCode, Failure> {
        let room = Room::new()?;
        let socket = room.0.join("socket");
        let mut server = serve_living(processes, command, self.observe, &socket)?;
        let Some(mut server) = server.take() else {
            // It has said why.
            return Ok(ExitCode::from(2));
        };
        let pids = attach::named(processes, &live::candidates()).unwrap_or_default();
        let sysroot = match pids.iter().all(|pid| sees_our_files(*pid)) {
            true => "/",
            false => "target:",
        };
        let script = script(&socket.to_string_lossy(), sysroot, pids.len());
        let arguments = match command.is_empty() {
            true => self.arguments.as_slice(),
            false => &[],
        };
        let error = self.become_gdb(&script, arguments);
        let _ = server.kill();
        let _ = server.wait();
        drop(room);
        Err(error)
    }
}

/// Starts the server, and waits until it listens. None: it does not.
fn serve_living(
    processes: &[String],
    command: &[OsString],
    observe: bool,
    socket: &Path,
) -> Result<Option<Child>, Failure> {
    let cannot = |error: std::io::Error| Failure::new(format!("cannot start mw: {error}"));
    let (said, says) = std::io::pipe().map_err(cannot)?;
    rustix::io::fcntl_setfd(&says, rustix::io::FdFlags::empty())
        .map_err(|error| cannot(error.into()))?;
    let mut server = Command::new(std::env::current_exe().map_err(cannot)?)
        .args(["serve-gdb", "--with-parent", "--unix"])
        .arg(socket)
        .arg(format!("--announce={}", says.as_raw_fd()))
        .args(observe.then_some("--observe"))
        .arg("--live")
        .args(processes)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        // Ctrl-C is for gdb.
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    drop(says);
    let mut line = String::new();
    // (A program that was started has the other end, too: it is not waited for.)
    std::io::BufReader::new(said)
        .read_line(&mut line)
        .map_err(cannot)?;
    if line.is_empty() {
        let _ = server.wait();
        return Ok(None);
    }
    Ok(Some(server))
}

/// What gdb executes first.
fn script(socket: &str, sysroot: &str, processes: usize) -> String {
    let introduce = match processes {
        0 | 1 => "",
        _ => "monitor arrange here\ncontinue\n",
    };
    format!(
        "set remotetimeout 600\n\
         set sysroot {sysroot}\n\
         set exec-file-mismatch off\n\
         set schedule-multiple on\n\
         set detach-on-fork off\n\
         set breakpoint pending on\n\
         target extended-remote {socket}\n\
         {introduce}"
    )
}

/// Whether paths mean the same to a process as to us.
fn sees_our_files(pid: i32) -> bool {
    let link = |path: String| std::fs::read_link(path).ok();
    let own = link("/proc/self/ns/mnt".to_string());
    own.is_some()
        && link(format!("/proc/{pid}/ns/mnt")) == own
        && link(format!("/proc/{pid}/root")).is_some_and(|root| root == Path::new("/"))
}

/// The path of what a process runs.
pub fn executable(pid: u32) -> Option<Vec<u8>> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.as_os_str().as_bytes().to_vec())
}

/// A file as a process sees it.
pub fn seen_by(pid: u32, path: &Path) -> Option<PathBuf> {
    let relative = path.strip_prefix("/").ok()?;
    let place = Path::new("/proc").join(pid.to_string()).join("root");
    Some(place.join(relative)).filter(|place| place.exists())
}

/// What a thread is called.
pub fn thread_name(pid: u32, tid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    name.unwrap_or_default().trim_end().to_string()
}

impl Program {
    pub fn open_living(living: &Living) -> Result<Program, Failure> {
        let mut group = Group::new(&living.program)?;
        group.stop_at_execs(true);
        // gdb is told of each process before that does anything.
        let forks = Caught::find("fork", &living.program)?;
        group.stops().add(What::Catch(forks), |_| {});
        let members = group.members().into_iter();
        let served = members.map(|member| {
            let pid = member.id.number.0;
            Served::new(member, pid)
        });
        let mut program = Program {
            served: served.collect(),
            group,
            lead: 0,
            eldest: 0,
            queue: Default::default(),
            follow: Follow::Causal,
            stops: Default::default(),
            alive: Some(Alive {
                live: Arc::clone(&living.live),
                how: living.how,
                ours: living.started.into_iter().collect(),
                signals: None,
                signalled: None,
            }),
        };
        program.settle();
        Ok(program)
    }

    /// gdb is gone: what was started for it ends.
    pub fn end(&mut self) {
        for i in 0..self.served.len() {
            let is_ours = self.served.get(i).is_some_and(|served| {
                let alive = self.alive.as_ref();
                !served.is_gone && alive.is_some_and(|alive| !alive.was_there(served.pid))
            });
            if is_ours {
                self.end_one(i);
            }
        }
    }

    /// Lets a process go as it was.
    pub(super) fn leave(&mut self, i: usize) {
        let Some(served) = self.served.get_mut(i) else {
            return;
        };
        served.is_gone = true;
        let id = served.id;
        // One that has ended is left in any case.
        let _ = self.group.leave(id);
        self.look_away(i);
    }

    pub(super) fn end_one(&mut self, i: usize) -> bool {
        let Some(served) = self.served.get_mut(i) else {
            return false;
        };
        served.is_gone = true;
        let id = served.id;
        self.forget_stops(i);
        self.look_away(i);
        // One that has ended meanwhile is what was asked for.
        let _ = self.group.kill(id);
        true
    }

    /// Whether a process has ended that gdb was to be told of next: it need not be, then.
    pub(super) fn has_ended(&mut self, pid: u32) -> bool {
        let before = self.queue.len();
        self.queue.retain(|told| match told {
            Told::Stop(stop) => stop.thread.pid != pid,
            Told::Program(_) => true,
        });
        self.alive.is_some() && self.queue.len() < before
    }

    /// Another one is at hand if this one was.
    fn look_away(&mut self, i: usize) {
        if self.lead == i {
            let mut left = (0..).zip(&self.served).filter(|(_, s)| !s.is_gone);
            self.lead = left.next().map_or(i, |(other, _)| other);
        }
    }

    /// Joins one more process.
    pub(super) fn join(&mut self, pid: u32) -> Option<ThreadId> {
        if self.index(pid).is_none() {
            let alive = self.alive.as_ref()?;
            let pids = [i32::try_from(pid).ok()?];
            alive.live.attach(&pids, &alive.how).ok()?;
            self.group.take_in();
            self.welcome(pid)?;
        }
        let i = self.index(pid)?;
        self.lead = i;
        Some(self.running_id(i))
    }

    /// A process that has come: gdb knows it from here on.
    fn welcome(&mut self, pid: u32) -> Option<usize> {
        let mut members = self.group.members().into_iter();
        let member = members.find(|member| member.id.number.0 == pid)?;
        // Ids come again.
        self.served
            .retain(|served| served.pid != pid || !served.is_gone);
        self.served.push(Served::new(member, pid));
        let i = self.served.len() - 1;
        let image = self.image_now(i);
        let served = self.served.get_mut(i)?;
        served.is_introduced = true;
        served.told = image;
        Some(i)
    }

    /// What gdb is told of where a motion led.
    pub(super) fn told_alive(&mut self, i: usize, stopped: &Stopped) -> Stop {
        let id = stopped.process;
        let pid = self.served.get(i).map_or(0, |served| served.pid);
        let ending = self.group.alive(id).ok().and_then(|alive| alive.ending());
        let what = match &stopped.reason {
            Reason::Happened { what, .. } => Some(*what),
            // Nobody could run.
            Reason::End => ending,
            _ => None,
        };
        let image = self.image_now(i);
        let known = self.served.get(i).and_then(|served| served.told);
        if known.is_some() && image.is_some() && known != image {
            // Breakpoints are gone with the memory they were in.
            self.forget_stops(i);
        }
        if let Some(served) = self.served.get_mut(i) {
            served.told = image.or(known);
        }
        self.lead = i;
        let reason = match (&stopped.reason, what) {
            (_, Some(Happening::Exec)) | (Reason::Exec, _) => {
                StopReason::Executed(self.path_of(i).unwrap_or_default())
            }
            (_, Some(Happening::Forked(child))) => {
                let is_ours = self.alive.as_ref().is_some_and(|a| !a.was_there(pid));
                if let (true, Some(alive)) = (is_ours, self.alive.as_mut()) {
                    alive.ours.insert(child);
                }
                match self.welcome(child) {
                    Some(_) => StopReason::Forked(ThreadId::new(child, child)),
                    // It is gone already.
                    None => StopReason::Arrived,
                }
            }
            (_, Some(Happening::Signal(number))) => {
                if let Some(alive) = &mut self.alive {
                    alive.signalled = Some((id, stopped.thread));
                }
                StopReason::Signal(to_protocol(number))
            }
            (_, Some(Happening::Exited(status))) => StopReason::Exited(status as u8),
            (_, Some(Happening::Killed(signal))) => StopReason::Killed(to_protocol(signal)),
            (Reason::Breakpoint { number }, _) => {
                let kind = self.kind_of(*number).map(|(kind, _)| kind);
                StopReason::Breakpoint(kind.unwrap_or(StopKind::Software))
            }
            (Reason::Watch { number, .. }, _) => match self.kind_of(*number) {
                Some((kind, address)) => StopReason::Watch(kind, address),
                None => StopReason::Arrived,
            },
            (Reason::Interrupted, _) => StopReason::Interrupted,
            _ => StopReason::Arrived,
        };
        let thread = match reason {
            StopReason::Exited(_) | StopReason::Killed(_) => ThreadId::new(pid, pid),
            _ => self.thread_id(i, Some(stopped.thread)),
        };
        if matches!(reason, StopReason::Exited(_) | StopReason::Killed(_)) {
            if let Some(served) = self.served.get_mut(i) {
                served.is_gone = true;
            }
            self.look_away(i);
        }
        self.note_ends();
        stop(thread, reason)
    }

    /// Has gdb told next of those that have ended meanwhile.
    fn note_ends(&mut self) {
        let members = self.group.members();
        for i in 0..self.served.len() {
            let Some(served) = self.served.get(i).filter(|served| !served.is_gone) else {
                continue;
            };
            let (id, pid) = (served.id, served.pid);
            let is_over = members.iter().any(|m| m.id == id && m.is_empty);
            if !is_over {
                continue;
            }
            let ending = self.group.alive(id).ok().and_then(|alive| alive.ending());
            let reason = match ending {
                Some(Happening::Killed(signal)) => StopReason::Killed(to_protocol(signal)),
                Some(Happening::Exited(status)) => StopReason::Exited(status as u8),
                _ => StopReason::Exited(0),
            };
            if let Some(served) = self.served.get_mut(i) {
                served.is_gone = true;
            }
            self.look_away(i);
            let told = stop(ThreadId::new(pid, pid), reason);
            self.queue.push_back(Told::Stop(told));
        }
    }

    /// gdb has decided what becomes of the signal that it was told of, or gives one
    /// of its own.
    pub(super) fn pass_on(&mut self, motion: &Motion) {
        let Some(alive) = &mut self.alive else {
            return;
        };
        let waits = alive.signalled.take();
        let led = self.thread_number(motion.thread).and_then(|(i, thread)| {
            let served = self.served.get(i)?;
            Some((served.id, thread))
        });
        for (process, thread) in waits.into_iter().chain(led) {
            let is_led = led == Some((process, thread));
            let signal = motion.signal.filter(|signal| is_led && *signal != 0);
            if signal.is_none() && waits != Some((process, thread)) {
                continue;
            }
            if let Ok(alive) = self.group.alive(process) {
                // One that is gone gets none.
                let _ = alive.set_pending(thread, signal);
            }
        }
    }

    /// gdb is to be told of all signals but these.
    pub(super) fn tell_of_signals(&mut self, but: &[u32]) {
        let old = self.alive.as_mut().and_then(|alive| alive.signals.take());
        if let Some(number) = old {
            self.group.stops().remove(number);
        }
        let told = (1..=64).filter(|signal| !but.contains(signal));
        let words: Vec<String> = told.map(|signal: u32| signal.to_string()).collect();
        if words.is_empty() {
            return;
        }
        let text = format!("signal {}", words.join(" "));
        let Ok(caught) = Caught::find(&text, self.group.program()) else {
            return;
        };
        let number = self.group.stops().add(What::Catch(caught), |_| {});
        if let Some(alive) = &mut self.alive {
            alive.signals = Some(number);
        }
    }

    pub(super) fn write_memory(&mut self, pid: u32, address: u64, bytes: &[u8]) -> Option<usize> {
        let id = self.served.get(self.index(pid)?)?.id;
        self.group
            .alive(id)
            .ok()?
            .write_memory(Addr(address), bytes)
            .ok()
    }

    pub(super) fn write_registers(
        &mut self,
        thread: ThreadId,
        registers: &Registers,
    ) -> Result<(), Refused> {
        const ESRCH: u8 = 3;
        let gone = Refused::Errno(ESRCH);
        let (i, number) = self.thread_number(thread).ok_or(gone.clone())?;
        let states = self.states(i);
        let state = states.iter().find(|state| state.number == number);
        let mut all = state.ok_or(gone.clone())?.registers;
        let id = self.served.get(i).ok_or(gone)?.id;
        let [
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
        ] = registers.general;
        all = ::target::Registers {
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip: registers.rip,
            eflags: registers.eflags,
            orig_rax: registers.orig_rax,
            fs_base: registers.fs_base,
            gs_base: registers.gs_base,
            xmm: registers.xmm,
            ..all
        };
        let words = |error: ::target::Error| Refused::Words(error.to_string());
        let alive = self.group.alive(id);
        let alive = alive.map_err(|error| Refused::Words(super::program::words(error)))?;
        alive.write_registers(number, &all).map_err(words)?;
        self.forget_seen(i);
        Ok(())
    }
}
