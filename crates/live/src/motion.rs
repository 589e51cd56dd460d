//! Having the processes of a program move, on all its hosts, until something stops one
//! of them.
//!
//! Each warden stops its own processes by itself, and says so before it does. That word
//! is passed on to the others at once, before anything else is done with it: so the
//! last host stops one way to the debugger and one way back after the first. Hosts that can
//! reach each other are told by who stops, at once; what they say of it here is the same.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::mpsc::Sender;

use protocol::id::{ProcessId, ProcessNo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use target::Cancel;

use crate::Error;
use crate::client::{Client, Line};
use crate::program::Wardens;
use crate::talk::{Answer, Part, Report, Request, What};

/// How often it is looked whether somebody has enough.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// A motion of one process, and of others that run along.
pub(crate) struct Motion<'m> {
    pub lead: ProcessId,
    /// The thread that is led.
    pub thread: i32,
    /// What it is to be led out of; without, all run.
    pub range: Option<Range<u64>>,
    /// Everybody who runs, the leader first.
    pub movers: &'m [ProcessId],
}

/// What all hosts are told of a motion.
#[derive(Clone, Copy)]
struct Told<'m> {
    motion: &'m Motion<'m>,
    number: u64,
}

/// One host in a motion.
struct Host<'m> {
    member: u16,
    client: &'m Client,
    line: MutexGuard<'m, Line>,
    movers: Vec<i32>,
    state: State,
    is_told: bool,
    /// Who waits for an answer of the agent, in the order in which it was asked.
    asides: VecDeque<Sender<Result<String, Error>>>,
}

enum State {
    Stands,
    Runs,
    Stopped(Report),
    Failed(Error),
}

impl Host<'_> {
    fn runs(&self) -> bool {
        matches!(self.state, State::Runs)
    }

    fn set_out(&mut self, request: &Request) {
        if self.client.host().is_some() {
            tracing::debug!(host = self.client.host(), ?request, "a round trip");
        }
        self.state = match self.line.say(request) {
            Ok(()) => State::Runs,
            Err(error) => State::Failed(error),
        };
    }

    /// Has everybody of the host stop.
    fn halt(&mut self) {
        if self.runs()
            && !std::mem::replace(&mut self.is_told, true)
            && let Err(error) = self.line.say(&Request::Halt)
        {
            self.state = State::Failed(error);
        }
    }

    /// Asks the agent what others want to know.
    fn pass_on(&mut self) {
        for aside in self.client.take_asides() {
            match self.line.say(&Request::Aside(aside.question)) {
                Ok(()) => self.asides.push_back(aside.answer),
                Err(error) => {
                    let _ = aside.answer.send(Err(error));
                }
            }
        }
    }

    /// Whether something is still to be heard from it.
    fn is_awaited(&self) -> bool {
        match self.state {
            State::Runs => true,
            State::Stopped(_) => !self.asides.is_empty(),
            State::Stands | State::Failed(_) => false,
        }
    }

    /// What somebody came to when another one was told of.
    fn take_deferred(&mut self) -> Option<Report> {
        let halts = self.line.halts;
        let (halt, report) = self.line.deferred.take()?;
        (halt == halts && self.movers.contains(&report.process)).then_some(report)
    }
}

/// What a message says to do.
enum Word {
    Nothing,
    /// Somebody has come to something.
    Halt,
    /// The others are to run.
    Go,
}

impl Wardens {
    /// Has processes move, and waits until all stand again: who has come to what. What is
    /// cancelled is halted.
    pub fn go(&self, motion: &Motion<'_>, cancel: &Cancel) -> Result<(ProcessId, Report), Error> {
        let mut hosts: Vec<Host<'_>> = Vec::new();
        for (member, client) in (0u16..).zip(self.all()) {
            let own = motion.movers.iter().filter(|id| id.member == member);
            let movers: Vec<i32> = own.map(|id| id.number.0 as i32).collect();
            if !movers.is_empty() {
                hosts.push(Host {
                    member,
                    client,
                    line: client.line(),
                    movers,
                    state: State::Stands,
                    is_told: false,
                    asides: VecDeque::new(),
                });
            }
        }
        for host in &mut hosts {
            if let Some(report) = host.take_deferred() {
                return Ok((name(host.member, &report), report));
            }
        }
        let told = Told {
            motion,
            number: self.next_motion(),
        };
        set_out(&mut hosts, told);
        let said = wait(&mut hosts, told, cancel);
        settle(hosts, &said, motion)
    }
}

fn name(member: u16, report: &Report) -> ProcessId {
    ProcessNo(report.process as u32).of_member(member)
}

/// Has the leader's host begin, and the others if it does not go alone.
fn set_out(hosts: &mut [Host<'_>], told: Told<'_>) {
    let Told { motion, number } = told;
    let is_whole = hosts.len() == 1;
    for host in hosts {
        let is_leads = host.member == motion.lead.member;
        let part = match is_whole {
            true => Part::Whole,
            false => Part::Leads,
        };
        let processes = host.movers.clone();
        let thread = motion.thread;
        match (&motion.range, is_leads) {
            (Some(range), true) => host.set_out(&Request::Step {
                motion: number,
                thread,
                processes,
                range: (range.start, range.end),
                part,
            }),
            (Some(_), false) => {}
            (None, true) => host.set_out(&Request::Run {
                motion: number,
                thread,
                processes,
                part,
            }),
            (None, false) => host.set_out(&along(number, processes)),
        }
    }
}

fn along(motion: u64, processes: Vec<i32>) -> Request {
    Request::Run {
        motion,
        thread: 0,
        processes,
        part: Part::Along,
    }
}

/// Waits until all stand: which hosts said that they halt, in that order. One of them has come to
/// something, and others may have been told by it.
fn wait(hosts: &mut [Host<'_>], told: Told<'_>, cancel: &Cancel) -> Vec<u16> {
    let Told { motion, number } = told;
    let mut said = Vec::new();
    let mut is_over = false;
    while hosts.iter().any(Host::is_awaited) {
        for host in hosts.iter_mut().filter(|host| host.runs()) {
            host.pass_on();
        }
        let places: Vec<usize> = (0..hosts.len())
            .filter(|i| hosts.get(*i).is_some_and(Host::is_awaited))
            .collect();
        let mut fds: Vec<PollFd<'_>> = places
            .iter()
            .filter_map(|i| hosts.get(*i))
            .map(|host| PollFd::new(&host.line.socket, PollFlags::IN))
            .collect();
        let _ = poll(&mut fds, Some(&GLANCE));
        let ready = places.iter().zip(&fds);
        let ready = ready.filter(|(_, fd)| !fd.revents().is_empty());
        let ready: Vec<usize> = ready.map(|(i, _)| *i).collect();
        for i in ready {
            let Some(host) = hosts.get_mut(i) else {
                continue;
            };
            match listen(host) {
                Word::Nothing => {}
                Word::Halt => {
                    said.push(host.member);
                    is_over = true;
                    // Before anything else is done with it.
                    hosts.iter_mut().for_each(Host::halt);
                }
                Word::Go if is_over => {}
                Word::Go => {
                    for host in hosts.iter_mut() {
                        if host.member != motion.lead.member {
                            host.set_out(&along(number, host.movers.clone()));
                        }
                    }
                }
            }
        }
        if cancel.is_cancelled() || hosts.iter().any(|h| matches!(h.state, State::Failed(_))) {
            is_over = true;
            hosts.iter_mut().for_each(Host::halt);
        }
    }
    said
}

/// Takes one message of a host.
fn listen(host: &mut Host<'_>) -> Word {
    match host.line.next() {
        Ok(None) => match host.line.failed.is_some() {
            true => Word::Halt,
            false => Word::Nothing,
        },
        Ok(Some(Answer::Halting)) => {
            // It stops by itself.
            host.is_told = true;
            Word::Halt
        }
        Ok(Some(Answer::Going)) => Word::Go,
        Ok(Some(Answer::Aside(answer))) => {
            if let Some(asker) = host.asides.pop_front() {
                let _ = asker.send(answer);
            }
            Word::Nothing
        }
        Ok(Some(Answer::Stopped(report, sight))) => {
            host.line.stand(&report, sight);
            host.state = State::Stopped(report);
            Word::Halt
        }
        Ok(Some(other)) => {
            host.state = State::Failed(crate::client::unexpected(&other));
            Word::Halt
        }
        Err(error) => {
            host.state = State::Failed(error);
            Word::Halt
        }
    }
}

/// What is told of all that was come to: what came first. The rest is told later.
fn settle(
    mut hosts: Vec<Host<'_>>,
    said: &[u16],
    motion: &Motion<'_>,
) -> Result<(ProcessId, Report), Error> {
    let mut reports: Vec<(u16, Report)> = Vec::new();
    let mut failure = None;
    for host in &mut hosts {
        let posted = host.line.failed.take();
        match std::mem::replace(&mut host.state, State::Stands) {
            State::Failed(error) => failure = failure.or(Some(host.client.explain(error))),
            State::Stopped(report) => reports.push((host.member, report)),
            State::Stands | State::Runs => {}
        }
        failure = failure.or(posted.map(|error| host.client.explain(error)));
    }
    let news = |member: &u16| {
        let mut all = reports.iter();
        all.find(|(own, report)| own == member && is_news(report))
    };
    let told = said
        .iter()
        .find_map(news)
        .or_else(|| reports.iter().find(|(_, report)| is_news(report)))
        .or_else(|| reports.iter().find(|(m, _)| *m == motion.lead.member));
    let is_told = |member: u16| failure.is_none() && told.is_some_and(|(m, _)| *m == member);
    for host in &mut hosts {
        let own = reports.iter().find(|(member, _)| *member == host.member);
        let own = own.filter(|(member, report)| is_news(report) && !is_told(*member));
        host.line.deferred = own.map(|(_, report)| (host.line.halts, report.clone()));
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let halted = || Report {
        process: motion.lead.number.0 as i32,
        thread: motion.thread,
        what: What::Halted,
    };
    let (member, report) = told.cloned().unwrap_or((motion.lead.member, halted()));
    Ok((name(member, &report), report))
}

/// Whether somebody has come to something.
fn is_news(report: &Report) -> bool {
    !matches!(report.what, What::Halted | What::Nobody)
}
