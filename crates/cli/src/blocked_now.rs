//! `mw blocked --live`: who waits for whom, in processes that run.

use std::process::ExitCode;

use inspect::{Library, Options};
use live::{Kind, On, Waiting};

use crate::attach_on;
use crate::failure::Failure;
use crate::output::Output;

pub fn run(words: &[String], as_data: bool) -> Result<ExitCode, Failure> {
    let mut out = Output::new();
    if let Some(hosts) = attach_on::by_host(words)? {
        for (host, mut all) in attach_on::blocked(&hosts)? {
            for one in &mut all {
                one.process = format!("{}@{host}", one.process);
            }
            show(&mut out, &all)?;
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let pids = crate::attach::named(words, &live::candidates())?;
    let library = Library::new(Options::default());
    let all = live::waiting(&pids, &library)?;
    match as_data {
        true => out.line(&serde_json::to_string(&all).map_err(Failure::new)?)?,
        false => show(&mut out, &all)?,
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Who waits for whom on one host.
fn show(out: &mut Output, all: &[Waiting]) -> Result<(), Failure> {
    for one in all {
        let place = one.place.as_ref();
        let place = place.map_or(String::new(), |place| format!(" ({place})"));
        out.line(&format!("{} {}{place}", name(one), does(one, all)))?;
    }
    for ring in live::rings(all) {
        let names: Vec<String> = ring.iter().filter_map(|i| all.get(*i)).map(name).collect();
        out.line(&match names.as_slice() {
            [one] => format!("deadlock: {one} waits for itself"),
            names => format!("deadlock: {} wait for each other", names.join(", ")),
        })?;
    }
    Ok(())
}

fn name(one: &Waiting) -> String {
    format!("{}/{}", one.process, one.thread)
}

/// A thread by its id.
fn thread(pid: i32, tid: i32, all: &[Waiting]) -> String {
    let found = all.iter().find(|one| one.pid == pid && one.tid == tid);
    found.map_or(format!("thread {tid}"), name)
}

/// A process by its id.
fn process(pid: i32, all: &[Waiting]) -> String {
    let found = all.iter().find(|one| one.pid == pid);
    found.map_or(format!("process {pid}"), |one| one.process.clone())
}

fn does(one: &Waiting, all: &[Waiting]) -> String {
    match &one.on {
        On::Nothing => "runs".to_string(),
        On::Lock {
            kind,
            address,
            name,
            holder,
        } => {
            let what = match name {
                Some(name) => format!("{} {name}", kind.name()),
                None if address.0 == 0 => kind.name().to_string(),
                None => format!("{} at {address:#x}", kind.name()),
            };
            let verb = match kind {
                Kind::Condition | Kind::Barrier => "waits on",
                _ => "waits for",
            };
            match holder {
                Some(tid) => format!("{verb} {what}, which {} has", thread(one.pid, *tid, all)),
                None => format!("{verb} {what}"),
            }
        }
        On::Thread(tid) => format!("waits for the end of {}", thread(one.pid, *tid, all)),
        On::Child(Some(pid)) => format!("waits for the end of {}", process(*pid, all)),
        On::Child(None) => "waits for the end of a child".to_string(),
        On::Descriptor { number, what, from } => {
            let from: Vec<String> = from.iter().take(4).map(|pid| process(*pid, all)).collect();
            let from = match from.is_empty() {
                true => String::new(),
                false => format!(" from {}", from.join(", ")),
            };
            format!("waits for descriptor {number}, {what}{from}")
        }
        On::Time => "waits for time to pass".to_string(),
        On::Other => {
            let row = one.call.and_then(protocol::table::syscall);
            row.map_or("waits".to_string(), |row| format!("waits in {}", row.name))
        }
    }
}
