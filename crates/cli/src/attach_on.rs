//! `mw attach HOST:PID` and `mw run --on`: the prompt, on a program on several hosts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use hosts::Client;
use hosts::connect::TLS;
use hosts::far::Far;
use hosts::followed::Followed;
use hosts::plan::Run;
use inspect::{Library, Options};
use live::{Candidate, HostError};
use recording::join;

use crate::attach::{self, Script};
use crate::debug::{self, Recorded};
use crate::failure::{Failure, remark};
use crate::output::Output;
use crate::record_on::{self, Part, Screen};
use crate::{record, select};

/// A host that was reached.
struct Reached(Far);

impl live::Host for Reached {
    fn files(&self, paths: &[String]) -> Vec<Option<PathBuf>> {
        self.0.files(paths)
    }

    fn follow(&self, dir: &Path, to: &Path) -> Result<Box<dyn live::Followed>, HostError> {
        let name = dir.to_str();
        let name = name.ok_or_else(|| HostError::NoText(dir.to_path_buf()))?;
        let followed = self.0.follow(name, to).map_err(told)?;
        Ok(Box::new(Grown(followed)))
    }

    fn why(&self) -> Option<String> {
        self.0.why()
    }
}

/// What is wrong, for somebody who says on which host.
fn told(error: hosts::Error) -> HostError {
    let hint = error.hint();
    let said = match error {
        hosts::Error::Refused { said, .. } => said,
        error => error.to_string(),
    };
    HostError::Said { said, hint }
}

/// What is written down on a host that was reached.
struct Grown(Followed);

impl live::Followed for Grown {
    fn go(&mut self) {
        self.0.go();
    }

    fn settle(&mut self) -> Result<(), HostError> {
        self.0.settle().map_err(told)
    }

    fn forget(&mut self) {
        self.0.forget();
    }
}

/// Where files of other hosts are kept.
pub fn cache() -> Result<PathBuf, Failure> {
    let cache = select::cache().ok_or_else(|| {
        Failure::new("neither HOME nor XDG_CACHE_HOME is set: there is no place for the files of other hosts")
    })?;
    Ok(cache.join("hosts"))
}

/// What reads their files: what is here may be of another build than what is there.
pub fn library() -> Result<Library, Failure> {
    let debug_directories = vec![cache()?.join("debug")];
    Ok(Library::new(Options {
        debug_directories,
        ..Options::default()
    }))
}

/// The host and the process of `HOST:PROCESS`. None: there is no host in it.
pub fn split(word: &str) -> Option<(&str, &str)> {
    // A colon of a host that is reached by TLS, or in brackets, is its own.
    let from = match word.strip_prefix(TLS) {
        Some(_) => TLS.len(),
        None => 0,
    };
    let (_, rest) = word.split_at_checked(from)?;
    let (host, process) = rest.rsplit_once(':')?;
    let is_whole = !host.is_empty() && host.matches('[').count() == host.matches(']').count();
    is_whole
        .then(|| word.split_at(from + host.len()).0)
        .map(|host| (host, process))
}

/// Processes by their hosts, as they were named.
pub fn by_host(words: &[String]) -> Result<Option<BTreeMap<&str, Vec<String>>>, Failure> {
    let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut here = Vec::new();
    for word in words {
        match split(word) {
            Some((host, process)) => all.entry(host).or_default().push(process.to_string()),
            None => here.push(word),
        }
    }
    match here.first() {
        _ if all.is_empty() => Ok(None),
        Some(word) => Err(Failure::new(format!(
            "`{word}` is a process of this host, and others are of other hosts"
        ))
        .hint("name a host for each, or attach to those of this one apart")),
        None => Ok(Some(all)),
    }
}

/// Wardens on hosts, one for each place in a list, with what is said there told under
/// the names of its members; and where those that record do that, on their hosts.
fn wardens(
    clients: &[Client],
    names: &[String],
    desks: Vec<wire::Desk>,
) -> Result<(live::Program, Vec<String>), Failure> {
    let cache = cache()?;
    let screen = Arc::new(Mutex::new(Screen::new(names, false)));
    let mut begun = Vec::new();
    for (at, (client, how)) in clients.iter().zip(desks).enumerate() {
        let records = how.records.is_some();
        let screen = Arc::clone(&screen);
        let said = Box::new(move |is_error: bool, bytes: &[u8]| {
            let screen = screen.lock();
            let mut screen = screen.unwrap_or_else(PoisonError::into_inner);
            screen.say(at, is_error, bytes);
        });
        begun.push((Far::begin(client, how, cache.clone(), said)?, records));
    }
    let mut sites = Vec::new();
    let mut recordings = Vec::new();
    for (((far, socket), records), name) in begun.into_iter().zip(names) {
        if records {
            recordings.push(far.recording()?);
        }
        sites.push(live::Site {
            name: name.clone(),
            socket,
            host: Arc::new(Reached(far)),
            debug_files: cache.join("debug"),
        });
    }
    Ok((live::Program::over(sites)?, recordings))
}

/// What processes of hosts are called at the prompt.
fn names(hosts: &[&str]) -> Vec<String> {
    join::member_names(hosts.iter().map(|host| record_on::short(host)))
}

/// Debugs processes on their hosts, and of some all that they have made.
pub fn attach(
    by_host: &BTreeMap<&str, Vec<String>>,
    roots: &BTreeMap<&str, Vec<String>>,
    how: &live::How,
    script: Script,
) -> Result<ExitCode, Failure> {
    let Some(program) = join(by_host, roots, how)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let recorded = recorded(&program);
    let done = script.debug(program, library()?, None, false, recorded);
    debug::forget_copies();
    done
}

/// What a program that was joined is recorded in: all of it, or it is taken for one that is
/// not.
fn recorded(program: &live::Program) -> Recorded {
    let mut there = Vec::new();
    let mut not = Vec::new();
    for agent in program.agents() {
        match attach::recording(&agent) {
            Some(dir) => there.push(dir),
            None => not.extend(agent.host().map(str::to_string)),
        }
    }
    match (there.is_empty(), not.is_empty()) {
        (false, true) => Recorded::There(there),
        (true, _) => Recorded::Nowhere,
        (false, false) => {
            let who = not.join(", ");
            remark(format_args!(
                "what runs on {who} is not recorded: nobody goes back in the program"
            ));
            Recorded::Nowhere
        }
    }
}

/// Joins processes on their hosts, and of some all that they have made. None: nobody was
/// named, and who could be joined is listed.
pub fn join(
    by_host: &BTreeMap<&str, Vec<String>>,
    roots: &BTreeMap<&str, Vec<String>>,
    how: &live::How,
) -> Result<Option<live::Program>, Failure> {
    let hosts: Vec<&str> = by_host.keys().copied().collect();
    let names = names(&hosts);
    let clients = record_on::connect_all(&hosts)?;
    let desks = vec![wire::Desk::default(); names.len()];
    let (program, _) = wardens(&clients, &names, desks)?;
    let is_asked = |words: &Vec<String>| words.iter().any(|word| word.parse::<i32>().is_err());
    let candidates = match !roots.is_empty() || by_host.values().any(is_asked) {
        true => program.candidates()?,
        false => vec![Vec::new(); names.len()],
    };
    if by_host
        .values()
        .all(|words| words.iter().all(String::is_empty))
    {
        return list(&names, &candidates).map(|()| None);
    }
    let mut pids = Vec::new();
    for ((words, all), name) in by_host.values().zip(&candidates).zip(&names) {
        pids.push(attach::named(words, all).map_err(|failure| failure.on(name))?);
    }
    let mut trees: Vec<Vec<i32>> = Vec::new();
    for host in &hosts {
        let words = roots.get(host).into_iter().flatten();
        let ids = words.map(|word| attach::id(word));
        trees.push(ids.collect::<Result<_, Failure>>()?);
    }
    for ((pids, roots), all) in pids.iter_mut().zip(&trees).zip(&candidates) {
        add_made(pids, roots, all);
    }
    let mut new = pids.clone();
    while new.iter().any(|pids| !pids.is_empty()) {
        for (why, name) in program.attach_on(&new, how)?.into_iter().zip(&names) {
            attach::tell(why.map(|why| format!("{name}: {why}")));
        }
        if roots.is_empty() {
            break;
        }
        // Who is made while the others are being joined is joined too.
        new = Vec::new();
        let candidates = program.candidates()?;
        for ((pids, roots), all) in pids.iter_mut().zip(&trees).zip(&candidates) {
            new.push(add_made(pids, roots, all));
        }
    }
    Ok(Some(program))
}

/// Adds those that some processes have made and who are not there yet: who that is.
fn add_made(pids: &mut Vec<i32>, roots: &[i32], all: &[Candidate]) -> Vec<i32> {
    let mut new = Vec::new();
    for pid in roots.iter().flat_map(|root| live::descendants(*root, all)) {
        if !pids.contains(&pid) {
            pids.push(pid);
            new.push(pid);
        }
    }
    new
}

/// What a plan says is to be started.
pub fn planned(file: &Path) -> Result<Vec<Run>, Failure> {
    let runs = hosts::plan::read(file)?;
    match runs.iter().find(|run| run.after.is_some()) {
        None => Ok(runs),
        Some(run) => Err(Failure::new(format!(
            "{}: what runs on {} waits for what another says (`after`), and under the debugger all begin at once",
            file.display(),
            run.host
        ))
        .hint("leave `after` out and have one go on first (`continue -only`); `mw record --plan` knows it")),
    }
}

/// How programs are started to be debugged.
pub struct Start<'a> {
    /// The first command.
    pub first: Option<&'a str>,
    /// How they are held.
    pub how: live::How,
    /// Where they are recorded, if they are: here, when they are over.
    pub dir: Option<PathBuf>,
}

/// Programs that stand on their hosts, and what is recorded of them there.
struct Started {
    program: live::Program,
    names: Vec<String>,
    clients: Vec<Client>,
    recordings: Vec<String>,
}

/// Starts programs on their hosts.
fn start(runs: &[Run], how: &live::How, records: bool) -> Result<Started, Failure> {
    let hosts: Vec<&str> = runs.iter().map(|run| run.host.as_str()).collect();
    let names = names(&hosts);
    let clients = record_on::connect(runs)?;
    let records = records.then(|| record_on::program(runs).to_string_lossy().into_owned());
    for client in clients.iter().filter(|_| records.is_some()) {
        client.claim(records.as_deref().unwrap_or_default(), how.overrides)?;
    }
    let desks = runs.iter().map(|run| wire::Desk {
        starts: true,
        directory: run.job.directory.clone(),
        environment: run.job.environment.clone(),
        records: records.as_ref().map(|_| record_on::base(run).to_string()),
    });
    let (program, recordings) = wardens(&clients, &names, desks.collect())?;
    let words = runs.iter().enumerate().map(|(at, run)| {
        let dir = recordings.get(at).into_iter();
        let record = dir.flat_map(|dir| ["--record".to_string(), dir.clone()]);
        let separator = std::iter::once("--".to_string());
        let words = record.chain(separator);
        words.chain(run.job.command.iter().cloned()).collect()
    });
    program.start_on(&words.collect::<Vec<Vec<String>>>(), how)?;
    Ok(Started {
        program,
        names,
        clients,
        recordings,
    })
}

/// Programs that were started on their hosts, and stand before their first instructions.
pub fn started(runs: &[Run], how: &live::How) -> Result<live::Program, Failure> {
    Ok(start(runs, how, false)?.program)
}

/// Debugs programs that are started on their hosts. What was recorded there is fetched and
/// joined when that is over.
pub fn run(runs: &[Run], start: Start<'_>, script: Script) -> Result<ExitCode, Failure> {
    let started = self::start(runs, &start.how, start.dir.is_some())?;
    let recorded = match &start.dir {
        Some(_) => Recorded::There(started.recordings.iter().map(PathBuf::from).collect()),
        None => Recorded::Nowhere,
    };
    let program = started.program;
    let done = script.debug(program, library()?, start.first, true, recorded);
    let Some(dir) = &start.dir else {
        return done;
    };
    let parts = runs.iter().zip(started.names).zip(started.clients);
    let parts = parts.zip(started.recordings).zip(0u16..);
    let parts: Vec<Part> = parts
        .map(|((((run, name), client), recording), number)| Part {
            host: run.host.clone(),
            name,
            client,
            recording: Ok(recording),
            copied: debug::copied(number),
        })
        .collect();
    let collected = record_on::collect(&parts, dir);
    debug::forget_copies();
    match collected {
        Ok(true) => record::tell(dir),
        Ok(false) => {}
        Err(failure) if done.is_ok() => return Err(failure),
        Err(failure) => failure.show(),
    }
    done
}

/// Who could be joined there.
fn list(names: &[String], candidates: &[Vec<Candidate>]) -> Result<(), Failure> {
    let mut out = Output::new();
    out.line(&format!(
        "{:<12} {:>8}  {:<20} {:>7}  {}",
        "HOST", "PID", "NAME", "THREADS", "COMMAND"
    ))?;
    for (name, all) in names.iter().zip(candidates) {
        for c in all {
            let line = format!(
                "{name:<12} {:>8}  {:<20} {:>7}  {}",
                c.pid, c.name, c.threads, c.command
            );
            let short: String = line.chars().take(160).collect();
            out.line(short.trim_end())?;
        }
    }
    out.finish()?;
    Ok(())
}

/// Who waits for whom in processes of other hosts, of each host by its name.
pub fn blocked(
    by_host: &BTreeMap<&str, Vec<String>>,
) -> Result<Vec<(String, Vec<live::Waiting>)>, Failure> {
    let hosts: Vec<&str> = by_host.keys().copied().collect();
    let names = names(&hosts);
    let clients = record_on::connect_all(&hosts)?;
    let mut all = Vec::new();
    // All are asked before the first has answered: it is one moment, as far as that goes.
    let asked: Result<Vec<_>, hosts::Error> = clients
        .iter()
        .zip(by_host.values())
        .map(|(client, words)| {
            client.ask(wire::Request::Blocked {
                words: words.clone(),
            })
        })
        .collect();
    for (mut answers, name) in asked?.into_iter().zip(names) {
        let mut bytes = Vec::new();
        while let Some(answer) = answers.receive()? {
            if let wire::Answer::Data(more) = answer {
                bytes.extend(more);
            }
        }
        let waiting = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::new(format!("{name} answered something else: {error}")))?;
        all.push((name, waiting));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn hosts_and_processes_are_told_apart() {
        assert_eq!(split("a:12"), Some(("a", "12")));
        assert_eq!(split("ann@a.example:etcd"), Some(("ann@a.example", "etcd")));
        assert_eq!(split("tls:a:12"), Some(("tls:a", "12")));
        assert_eq!(split("tls:a:7462:12"), Some(("tls:a:7462", "12")));
        assert_eq!(split("tls:[::1]:12"), Some(("tls:[::1]", "12")));
        assert_eq!(split("a:"), Some(("a", "")));
        for here in ["12", "etcd", ":12", ""] {
            assert_eq!(split(here), None, "{here}");
        }
    }
}
