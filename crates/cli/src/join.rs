//! `mw join`: makes one recording of several.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use protocol::id::{ProcessIx, Ticks};
use recording::join::{self, Joined, MemberEntry, Missing};
use recording::{Recording, Set, WriteError};

use crate::failure::{Failure, remark};
use crate::output::Output;
use crate::{causes, record, select};

/// Make one recording of several that were made apart, on one host each.
#[derive(clap::Args)]
pub struct Cmd {
    /// The recordings, or joined ones
    #[arg(required = true, num_args = 1.., value_name = "REC")]
    recordings: Vec<PathBuf>,

    /// Directory to make
    /// [default: ${XDG_DATA_HOME:-~/.local/share}/meanwhile/joined-N]
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    output: Option<PathBuf>,
}

/// A member-to-be: what it is called, and where it is.
pub struct Candidate {
    pub name: String,
    pub dir: PathBuf,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut candidates = Vec::new();
        let mut seen: HashMap<(u64, String, Ticks), PathBuf> = HashMap::new();
        for path in &self.recordings {
            let set = Set::open(&select::locate(path)?)?;
            for (number, recording) in set.members().enumerate() {
                let manifest = recording.manifest();
                let key = (
                    manifest.started_ns,
                    manifest.host.clone(),
                    manifest.clock.ticks,
                );
                if let Some(other) = seen.insert(key, recording.dir().to_path_buf()) {
                    return Err(Failure::new(format!(
                        "{} and {} are the same recording",
                        other.display(),
                        recording.dir().display()
                    ))
                    .hint("name each one once"));
                }
                let name = set.name(number as u16).unwrap_or("host");
                candidates.push(Candidate {
                    name: name.to_string(),
                    dir: recording.dir().to_path_buf(),
                });
            }
        }
        let dir = record::choose(self.output, "joined".as_ref())?;
        let made = Making::begin(&dir)?;
        let names = join::member_names(candidates.iter().map(|c| c.name.as_str()));
        for (candidate, name) in candidates.iter().zip(&names) {
            join::put_member(&candidate.dir, &made.dir.join(name)).map_err(not_written)?;
        }
        made.finish(names, Vec::new())?;
        select::point_latest_at(&dir);
        for alone in unrelated(&dir)? {
            remark(format_args!(
                "{alone} has no channel in common with the others: perhaps it is of another run"
            ));
        }
        let mut out = Output::new();
        out.line(&dir.display().to_string())?;
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Members that have nothing to do with the others: nothing that one of them
/// sent was received by another.
fn unrelated(dir: &Path) -> Result<Vec<String>, Failure> {
    let set = Arc::new(Set::open(dir)?);
    let history = causes::open(&set)?;
    let member = |place: &ProcessIx| set.member_of(*place);
    let mut related: HashSet<u16> = HashSet::new();
    for channel in (0..history.channel_count()).filter_map(|number| history.channel(number)) {
        let ends = channel.senders.iter().chain(&channel.receivers);
        let members: HashSet<u16> = ends.filter_map(member).collect();
        if members.len() > 1 {
            related.extend(members);
        }
    }
    let numbers = (0u16..).take(set.members().len());
    let alone = numbers.filter(|number| set.is_joined() && !related.contains(number));
    Ok(alone
        .filter_map(|number| set.name(number).map(str::to_string))
        .collect())
}

fn not_written(error: WriteError) -> Failure {
    Failure::new(error)
}

/// A joined recording that is being made; nothing is left of one that does not
/// come to its end.
pub struct Making {
    dir: PathBuf,
    keep: bool,
}

impl Making {
    pub fn begin(dir: &Path) -> Result<Making, Failure> {
        std::fs::create_dir_all(dir).map_err(|error| {
            Failure::new(format!("cannot create {}: {error}", dir.display()))
                .hint("name another directory with `-o DIR`")
        })?;
        Ok(Making {
            dir: dir.to_path_buf(),
            keep: false,
        })
    }

    /// Where a member is to be put.
    pub fn member(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What is there now stays, whatever follows.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// All members are there.
    pub fn finish(mut self, names: Vec<String>, missing: Vec<Missing>) -> Result<(), Failure> {
        let dirs: Vec<PathBuf> = names.iter().map(|name| self.dir.join(name)).collect();
        for dir in &dirs {
            Recording::open(dir)?;
        }
        join::keep_once(&dirs);
        let members = names.into_iter().map(|name| MemberEntry {
            directory: name.clone(),
            name,
        });
        let joined = Joined::of(members.collect(), missing);
        joined.write(&self.dir).map_err(not_written)?;
        self.keep = true;
        Ok(())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
