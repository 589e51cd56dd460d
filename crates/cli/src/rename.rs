//! `mw rename`: better names for processes and threads.

use std::process::ExitCode;

use protocol::id::ThreadNo;
use recording::names::is_name;

use crate::causes;
use crate::failure::Failure;
use crate::select::Chosen;
use events::nearest;

/// Give a process, or a thread of one, a better name. It is kept with the
/// recording.
#[derive(clap::Args)]
pub struct Cmd {
    /// The process (redis-server-0), or the thread (redis-server-0/thread-3)
    #[arg(value_name = "NAME")]
    name: String,

    /// Its new name; without one it gets its first name back
    #[arg(value_name = "NEW")]
    new: Option<String>,

    #[command(flatten)]
    recording: Chosen,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let set = self.recording.open()?;
        if let Some(new) = &self.new
            && !is_name(new)
        {
            return Err(Failure::new(format!("`{new}` cannot be a name"))
                .hint("a name has letters, digits and `-_.@+`, 64 at most"));
        }
        let (process_name, thread_name) = match self.name.split_once('/') {
            Some((process, thread)) => (process, Some(thread)),
            None => (self.name.as_str(), None),
        };
        let id = query::find::process(&set, process_name)?;
        let place = set.place(id);
        let Some((recording, process)) = place.and_then(|place| set.at(place)) else {
            return Err(query::Error::no_process(&set, process_name).into());
        };
        // It is kept with the recording of its host.
        let mut names = recording.names().clone();
        match thread_name {
            None => {
                if let Some(new) = &self.new
                    && let Some(other) = recording.process_named(new)
                    && other.number != process.number
                {
                    return Err(Failure::new(format!("there is a process `{new}` already"))
                        .hint("choose another name, or rename that one first"));
                }
                match self.new {
                    Some(new) => names.processes.insert(process.number, new),
                    None => names.processes.remove(&process.number),
                };
            }
            Some(thread_name) => {
                let history = causes::open(&set)?;
                let known = causes::names(&history).member(id.member);
                let count = place.map_or(0, |place| history.thread_count(place));
                let all: Vec<String> = (0..count)
                    .map(|thread| known.thread(process.number, ThreadNo(thread)))
                    .collect();
                let number = known
                    .thread_named(process.number, thread_name)
                    .filter(|number| number.0 < count)
                    .ok_or_else(|| {
                        let failure =
                            Failure::new(format!("{} has no thread `{thread_name}`", process.name));
                        match nearest(thread_name, all.iter().map(String::as_str)) {
                            Some(near) => failure.hint(format!("did you mean `{near}`?")),
                            None => failure.hint(format!("its threads are {}", all.join(", "))),
                        }
                    })?;
                if let Some(new) = &self.new
                    && all
                        .iter()
                        .zip(0u32..)
                        .any(|(name, n)| name == new && ThreadNo(n) != number)
                {
                    return Err(Failure::new(format!(
                        "{} has a thread `{new}` already",
                        process.name
                    ))
                    .hint("choose another name"));
                }
                let own = names.threads.entry(process.number).or_default();
                match self.new {
                    Some(new) => own.insert(number, new),
                    None => own.remove(&number),
                };
            }
        }
        names.save(recording.dir()).map_err(Failure::new)?;
        Ok(ExitCode::SUCCESS)
    }
}
