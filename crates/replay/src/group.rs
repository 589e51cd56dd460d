//! Processes that share memory, replayed side by side: each waits for its
//! turn, and what it writes is put into a journal (see the monitor's
//! `sharing`). With the journal each of them can be replayed alone.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use ::target::Cancel;
use inject::Image;
use protocol::id::{ImageNo, ProcessNo};
use recording::{ImageStart, Recording};

use crate::Error;
use crate::Pool;
use crate::file::ReplayFile;
use crate::plan::{Plan, Unit};
use crate::stopped::CodeFiles;
use crate::stream::Stream;
use crate::turns;
use crate::watch::{self, Limits};

/// What an image of a process started from.
pub fn image_start(
    recording: &Recording,
    process: ProcessNo,
    image: ImageNo,
) -> Result<ImageStart, Error> {
    let found = recording
        .images()
        .iter()
        .rfind(|i| i.process == process && i.image == image)
        .ok_or(Error::NoImage { process })?;
    let start = recording.image_start(found)?;
    let captured = |id: u64| recording.files().iter().any(|file| file.id == id);
    if !start.maps.iter().filter_map(|map| map.file).all(captured) {
        return Err(Error::BadImage { process });
    }
    Ok(start)
}

/// What it takes to replay a process that shares memory alone.
pub struct Shared {
    pub journal: Vec<u8>,
    pub domains: HashSet<u64>,
}

/// What the sessions of one recording have in common, found out once and only
/// if one of them needs it: it takes reading all logs, and replaying all
/// processes that share memory.
pub struct SharedReplay {
    recording: Arc<Recording>,
    /// Which member of a set that recording is.
    member: u16,
    pool: Arc<Pool>,
    code: CodeFiles,
    shared: Mutex<Option<Option<Arc<Shared>>>>,
}

impl SharedReplay {
    pub fn new(recording: &Arc<Recording>) -> SharedReplay {
        SharedReplay::of_member(recording, 0, Arc::default())
    }

    /// Of a member of a set; what checkpoints may take is shared with others.
    pub fn of_member(recording: &Arc<Recording>, member: u16, pool: Arc<Pool>) -> SharedReplay {
        SharedReplay {
            recording: Arc::clone(recording),
            member,
            pool,
            code: CodeFiles::default(),
            shared: Mutex::default(),
        }
    }

    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// Which member of a set the recording is.
    pub fn member(&self) -> u16 {
        self.member
    }

    /// That a process of it has no log.
    pub(crate) fn no_log(&self, process: ProcessNo) -> Error {
        let process = process.of_member(self.member);
        Error::NoLog { process }
    }

    /// Captured files that code was read from.
    pub(crate) fn code(&self) -> &CodeFiles {
        &self.code
    }

    /// What checkpoints may take.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// What other processes wrote into the memory of those that have these
    /// logs, if they did.
    pub(crate) fn shared(
        &self,
        image: &Image,
        streams: &[Stream],
        cancel: &Cancel,
    ) -> Result<Option<Arc<Shared>>, Error> {
        // What runs alone shares with nobody; of others, the logs say it.
        let is_alone = self.recording.processes().len() < 2 && self.recording.images().len() < 2;
        if is_alone || !streams.iter().any(turns::follows_others) {
            return Ok(None);
        }
        let mut known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = &*known {
            return Ok(shared.clone());
        }
        let shared = journal(&self.recording, image, cancel)?.map(Arc::new);
        *known = Some(shared.clone());
        Ok(shared)
    }
}

/// What the processes of a recording that share memory wrote, if any do.
fn journal(recording: &Recording, image: &Image, cancel: &Cancel) -> Result<Option<Shared>, Error> {
    let plan = Plan::new(recording, None);
    let Some(unit) = plan.units.iter().find(|unit| !unit.domains.is_empty()) else {
        return Ok(None);
    };
    let mut file = prepare(recording, image, &plan, unit)?;
    let starts = unit.starts(recording, &plan)?;
    let nothing = |_, _| std::time::Duration::ZERO;
    watch::run(
        &mut file,
        image,
        &starts,
        Limits::default(),
        &|| cancel.is_cancelled(),
        nothing,
        |_| {},
    )?;
    if file.header().journal.is_full.load(Relaxed) != 0 {
        return Err(Error::JournalFull);
    }
    Ok(Some(Shared {
        journal: file.journal(),
        domains: unit.domains.clone(),
    }))
}

/// A file that holds what a unit needs, but for what its images start from.
pub fn prepare(
    recording: &Recording,
    image: &Image,
    plan: &Plan,
    unit: &Unit,
) -> Result<ReplayFile, Error> {
    let streams = plan.load(recording, unit);
    let file = ReplayFile::create(image, &streams, recording)?;
    file.set_shared(&unit.domains);
    Ok(file)
}
