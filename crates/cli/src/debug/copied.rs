//! What is recorded of a program on other hosts, in copies here.
//!
//! A program that runs on several hosts is recorded on each, apart. Whoever goes back in it
//! has what there is of each brought here first, once it is halted, as one recording of all
//! of them; what comes later is what is new since. While conditions wait for something
//! to come it comes as it is written.

use std::path::{Path, PathBuf};

use recording::join::{Joined, MemberEntry};

use super::commands::Prompt;
use super::observed::{own_place, place, unwritable};
use crate::failure::Failure;

/// What a program that is alive is recorded in.
pub enum Recorded {
    /// Nothing.
    Nowhere,
    /// A recording of this host.
    Here(PathBuf),
    /// Recordings of other hosts: their paths there, in the order of the hosts.
    There(Vec<PathBuf>),
}

/// Where there is a copy of what a host has recorded of the program, if there is one.
pub fn copied(number: u16) -> Option<PathBuf> {
    let dir = member(&own_place().ok()?, number);
    dir.exists().then_some(dir)
}

/// Nobody wants the copies any more.
pub fn forget_copies() {
    if let Ok(place) = own_place() {
        let _ = std::fs::remove_dir_all(place);
    }
}

/// Where the copy is of what is recorded on a host, in the place of all copies.
pub(super) fn member(place: &Path, number: u16) -> PathBuf {
    place.join(directory(number))
}

fn directory(number: u16) -> String {
    format!("host-{number}")
}

impl Recorded {
    /// Where it can be read here, once it was brought there.
    pub fn place(&self) -> Result<Option<PathBuf>, Failure> {
        match self {
            Recorded::Nowhere => Ok(None),
            Recorded::Here(dir) => Ok(Some(dir.clone())),
            Recorded::There(_) => place().map(Some),
        }
    }
}

impl Prompt {
    /// Has all here that is recorded on other hosts, now that the program is halted.
    pub(super) fn bring_recorded(&mut self, place: &Path) -> Result<(), Failure> {
        let Some(living) = &mut self.living else {
            return Ok(());
        };
        let Recorded::There(recorded) = &living.recorded else {
            return Ok(());
        };
        if !living.followed.is_empty() {
            return self.settle_hosts();
        }
        let mut entries = Vec::new();
        let mut followed = Vec::new();
        for (agent, there) in living.agents.iter().zip(recorded) {
            let own = member(place, agent.member());
            // It may have been begun in vain.
            let _ = std::fs::remove_dir_all(&own);
            std::fs::create_dir(&own).map_err(|error| unwritable(&own, &error))?;
            followed.extend(agent.follow(there, &own)?);
            entries.push(MemberEntry {
                name: agent.host().unwrap_or_default().to_string(),
                directory: directory(agent.member()),
            });
        }
        let joined = Joined::of(entries, Vec::new());
        joined.write(place).map_err(Failure::new)?;
        living.followed = followed;
        Ok(())
    }
}
