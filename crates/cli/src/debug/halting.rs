//! Halting and the program's time, of a program that runs under an agent.

use ::session::Direction;
use agent::channels::{Channel, Kind};
use agent::control::{Answer, Request, Who};
use agent::halting::{State, Stop};
use protocol::id::ProcessNo;

use super::commands::Prompt;
use super::limits::duration;
use super::screen::say;
use crate::failure::Failure;

impl Prompt {
    /// Who asks the agents of the program, one on each of its hosts.
    fn agents(&self) -> Result<Vec<live::Agent>, Failure> {
        match &self.living {
            Some(living) => Ok(living.agents.clone()),
            None => Err(
                Failure::new("a recording is not halted: it says what happened")
                    .hint("`mw run CMD` or `mw attach` debug a program that is alive"),
            ),
        }
    }

    /// Asks the agents of the program, each on its host: the member that the host's
    /// processes are of, and the answer. Where nothing of the program is left there is nobody to
    /// be asked, unless that is so everywhere.
    pub(super) fn ask_agents(&self, request: &Request) -> Result<Vec<(u16, Answer)>, Failure> {
        let mut answers = Vec::new();
        let mut over = None;
        for agent in self.agents()? {
            match self.put(&agent, request) {
                Ok(answer) => answers.push((agent.member(), answer)),
                Err(error) if error.is_over() => over = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        match over.filter(|_| answers.is_empty()) {
            Some(error) => Err(error.into()),
            None => Ok(answers),
        }
    }

    /// Asks the agent on one of the program's hosts.
    pub(super) fn ask_agent_of(&self, member: u16, request: &Request) -> Result<Answer, Failure> {
        let agents = self.agents()?;
        let agent = agents.iter().find(|agent| agent.member() == member);
        let agent = agent.ok_or_else(|| Failure::new("the program has no agent there"))?;
        Ok(self.put(agent, request)?)
    }

    /// Asks one of the agents; beside who moves the program, by the way.
    fn put(&self, agent: &live::Agent, request: &Request) -> Result<Answer, live::Error> {
        match self.is_beside {
            true => agent.ask_aside(request),
            false => agent.ask(request),
        }
    }

    /// Says whose what follows is, if there are several hosts.
    fn head(&self, member: u16) -> Result<(), Failure> {
        let agents = self.agents()?;
        let agent = agents.iter().find(|agent| agent.member() == member);
        match agent.and_then(live::Agent::host) {
            Some(host) if agents.len() > 1 => say!("{host}:"),
            _ => Ok(()),
        }
    }

    /// What the agents say, by the member that the processes of their hosts are of.
    pub(super) fn status(&self) -> Result<Vec<(u16, agent::control::Status)>, Failure> {
        let answers = self.ask_agents(&Request::Status)?.into_iter();
        answers
            .map(|(member, answer)| match answer {
                Answer::Status(status) => Ok((member, status)),
                other => Err(unexpected(&other)),
            })
            .collect()
    }

    /// Everything stands whenever the prompt does: says so.
    pub(super) fn halt(&mut self) -> Result<(), Failure> {
        let all = self.status()?;
        let threads = all.iter().map(|(_, status)| status.threads.len()).sum();
        if self.is_beside {
            return say!(
                "it runs: {}; `interrupt` halts it.",
                counted(threads, "thread")
            );
        }
        let hosts = match all.len() {
            0 | 1 => String::new(),
            count => format!(" on {}", counted(count, "host")),
        };
        say!(
            "halted: {}{hosts}; `halted` shows where, `resume` lets it go on.",
            counted(threads, "thread")
        )
    }

    /// Who stands where, in the order in which they stopped, and what is under way; of
    /// each host, whose clock tells the times.
    pub(super) fn halted(&mut self) -> Result<(), Failure> {
        for (member, status) in self.status()? {
            self.head(member)?;
            self.halted_on(member, status)?;
        }
        Ok(())
    }

    fn halted_on(&mut self, member: u16, status: agent::control::Status) -> Result<(), Failure> {
        let mut stops = status.threads;
        stops.sort_by_key(|stop| (stop.after_ns, stop.process, stop.thread));
        let times = || stops.iter().filter_map(|stop| stop.after_ns);
        let skew = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        let waiting = stops.iter().filter(|stop| stop.after_ns.is_none()).count();
        if !status.is_halted {
            say!("not halted: {} run", counted(stops.len(), "thread"))?;
        } else {
            say!(
                "halt {}: {}, {waiting} of them in calls before it; from the first to the last {} us",
                status.halts,
                counted(stops.len(), "thread"),
                skew / 1000
            )?;
        }
        for stop in &stops {
            let name = self.thread_of(member, stop);
            if !status.is_halted {
                say!("  {name:<28} {}", does_meanwhile(stop))?;
                continue;
            }
            let when = match stop.after_ns {
                Some(after) => format!("{:>8} us", after / 1000),
                None => format!("{:>11}", "before"),
            };
            let place = self.line_of(member, stop);
            say!("{when}  {name:<28} {}{place}", does(stop))?;
        }
        let answer = self.ask_agent_of(member, &Request::Channels)?;
        let Answer::Channels { channels } = answer else {
            return Ok(());
        };
        let filled = channels.iter().filter(|c| c.unread != 0 || c.unsent != 0);
        let filled: Vec<&Channel> = filled.collect();
        say!(
            "{}, {} of them not empty",
            counted(channels.len(), "channel"),
            filled.len()
        )?;
        for channel in filled {
            let kind = match channel.kind {
                Kind::Pipe => "pipe",
                Kind::Socket => "socket",
            };
            let holders: Vec<String> = channel
                .holders
                .iter()
                .map(|(pid, fd)| format!("{} fd {fd}", self.process_of(member, *pid)))
                .collect();
            let unsent = match channel.unsent {
                0 => String::new(),
                bytes => format!(", {} not sent", crate::output::bytes(bytes)),
            };
            say!(
                "  {kind} {}: {} not read{unsent} ({})",
                channel.inode,
                crate::output::bytes(channel.unread),
                holders.join(", ")
            )?;
        }
        Ok(())
    }

    pub(super) fn process_of(&self, member: u16, pid: u32) -> String {
        let name = self.debugger.name(ProcessNo(pid).of_member(member));
        match name.is_empty() {
            true => pid.to_string(),
            false => name,
        }
    }

    fn thread_of(&self, member: u16, stop: &Stop) -> String {
        let process = self.process_of(member, stop.pid);
        match stop.pid == stop.tid {
            true => process,
            false => format!("{process}/{}", stop.tid),
        }
    }

    /// Where in the source a thread stands, as far as that is known.
    fn line_of(&mut self, member: u16, stop: &Stop) -> String {
        let found = self.line_of_thread(ProcessNo(stop.pid).of_member(member), stop.tid);
        found.map_or(String::new(), |place| format!(" ({place})"))
    }

    /// Runs on, all of it; for so long if that is said.
    pub(super) fn resume(&mut self, text: &str) -> Result<(), Failure> {
        self.status()?;
        if text.is_empty() {
            return self.run_on("", Direction::Forwards);
        }
        let length = std::time::Duration::from_nanos(duration(text)?);
        let cancel = self.debugger.cancel.clone();
        self.debugger.cancel = cancel.within(length);
        let done = self.run_on("", Direction::Forwards);
        self.debugger.cancel = cancel;
        done
    }

    /// Who runs on when the others are halted.
    pub(super) fn exempt(&mut self, text: &str) -> Result<(), Failure> {
        let (on, text) = match text.strip_prefix("--off") {
            Some(rest) => (false, rest.trim()),
            None => (true, text),
        };
        let mut member = None;
        let who = if let Some(port) = text.strip_prefix("--port") {
            let port = port.trim().parse();
            Who::Port(port.map_err(|_| {
                Failure::new("which port?").hint("`exempt --port 8080`: a number up to 65535")
            })?)
        } else if let Some(thread) = text.strip_prefix("--thread") {
            let process = self.debugger.process;
            member = Some(process.member);
            let thread = self.thread_named(thread.trim())?;
            let state = self
                .debugger
                .group
                .at(process)?
                .target()
                .thread_state(thread);
            Who::Thread(state.map_or(0, |state| state.tid))
        } else {
            let process = match text {
                "" => self.debugger.process,
                name => self.living_process(name)?,
            };
            member = Some(process.member);
            let mut all = self.status()?.into_iter();
            let threads = all.find(|(own, _)| *own == process.member);
            let threads = threads.map_or_else(Vec::new, |(_, status)| status.threads);
            let own = threads.iter().find(|t| t.pid == process.number.0);
            Who::Process(own.map_or(0, |stop| stop.process))
        };
        let request = Request::Exempt { who, on };
        let answer = match member {
            Some(member) => self.ask_agent_of(member, &request)?,
            None => self.ask_any(&request)?,
        };
        match answer {
            Answer::Changed { count } => {
                let run = if on {
                    "run on"
                } else {
                    "stand with the others"
                };
                say!(
                    "{} {run} when the program is halted.",
                    counted(count as usize, "thread")
                )
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Asks all agents for something that is to be done wherever it can be; refused only
    /// if it can be nowhere.
    pub(super) fn ask_any(&self, request: &Request) -> Result<Answer, Failure> {
        let mut changed = None;
        let mut refused = None;
        for agent in self.agents()? {
            match self.put(&agent, request) {
                Ok(Answer::Changed { count }) => *changed.get_or_insert(0) += count,
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => refused = Some(error),
            }
        }
        match (changed, refused) {
            (None, Some(error)) => Err(error.into()),
            (changed, _) => Ok(Answer::Changed {
                count: changed.unwrap_or(0),
            }),
        }
    }

    /// The program's time and the real one; each host has its own.
    pub(super) fn time(&mut self) -> Result<(), Failure> {
        for (member, answer) in self.ask_agents(&Request::Time)? {
            if let Answer::Time(time) = answer {
                self.head(member)?;
                self.show_time(&time)?;
            }
        }
        Ok(())
    }

    fn show_time(&self, time: &agent::control::Time) -> Result<(), Failure> {
        say!("real     {}", moment(time.real_ns))?;
        say!(
            "logical  {}  ({} s behind)",
            moment(time.logical_ns),
            precise(time.real_ns.saturating_sub(time.logical_ns))
        )?;
        let kind = match time.is_real {
            true => "the program sees the time of its halts (set time logical)",
            false => "halts are taken out of the program's time (set time real)",
        };
        say!("{kind}")?;
        for halt in &time.halts {
            let seen = match halt.is_hidden {
                true => "",
                false => ", seen by the program",
            };
            say!(
                "  halt {:<4} {:>12} s{seen}",
                halt.number,
                precise(halt.length_ns)
            )?;
        }
        match time.current_ns {
            Some(current) => say!("  now       {:>12} s so far", precise(current)),
            None => Ok(()),
        }
    }

    /// `set time real|logical`.
    pub(super) fn set_time(&mut self, text: &str) -> Result<(), Failure> {
        let on = match text {
            "real" => true,
            "logical" => false,
            _ => {
                return Err(Failure::new("set time to what?")
                    .hint("`set time logical` takes halts out of it, `set time real` does not"));
            }
        };
        self.ask_agents(&Request::RealTime { on })?;
        match on {
            true => say!("The program sees the time that it is halted, from this halt on."),
            false => {
                say!("The program does not see the time that it is halted, this halt included.")
            }
        }
    }

    /// The program is left in real time: what was taken out of its time comes back.
    pub(super) fn catch_up(&mut self) -> Result<(), Failure> {
        self.ask_agents(&Request::CatchUp).map(drop)
    }
}

pub(super) fn unexpected(answer: &Answer) -> Failure {
    Failure::new(format!("the program's agent answered {answer:?}"))
}

pub(super) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

pub(super) fn call_name(number: u64) -> String {
    protocol::table::syscall(number).map_or_else(|| number.to_string(), |row| row.name.to_string())
}

fn does(stop: &Stop) -> String {
    let call = stop.call.map(call_name).unwrap_or_default();
    match stop.state {
        State::Runs => "does not answer".to_string(),
        State::Computed => "computed".to_string(),
        State::Edge => "between the program and a call".to_string(),
        State::Call => format!("waits in {call}"),
        State::Sends => format!("waits in {call}, perhaps half done"),
        State::Turn => "waits for its turn".to_string(),
        State::Away => "waits for a child, or for its new image".to_string(),
        State::Suspended => "is held by the debugger".to_string(),
    }
}

/// What a thread does while nobody is halted.
fn does_meanwhile(stop: &Stop) -> String {
    match stop.state {
        State::Runs => "runs".to_string(),
        _ => does(stop),
    }
}

/// Seconds, to the microsecond.
pub(super) fn precise(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// A moment of a day, in UTC.
fn moment(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:06} UTC",
        seconds % 60,
        ns % 1_000_000_000 / 1000
    )
}
