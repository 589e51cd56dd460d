//! Programs that run already, started by anyone: they become live programs of this
//! agent's, and are left as they were.
//!
//! The monitor comes into each process while all of its threads stand still for a few
//! milliseconds (`inject`). From then on they are like those that the agent started
//! itself (see [`crate::run`]): they can be halted, their children come under the agent
//! too, and nobody traces them.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use inject::{Image, Monitor, Prepared, Refusal};
use protocol::shared::mode;
use recording::{Manifest, Writer};

use crate::arena::{self, Arena};
use crate::capture::Captures;
use crate::capture_cache::CaptureCache;
use crate::companion::{self, Wanted};
use crate::halting::{Gathered, Halter};
use crate::observe::Observations;
use crate::record::{self, Alive, Calibration, Unfinished};
use crate::service::{self, Shared};
use crate::{Error, control, vdso};

/// How long it is waited for threads that do not come to where the monitor can leave
/// them: in a call that cannot be interrupted, or for a child that has their memory.
const LEAVE: Duration = Duration::from_secs(5);
/// How long it is waited for threads to say that they have the monitor. (One that has
/// been killed meanwhile will not.)
const REGISTERED: Duration = Duration::from_secs(5);
/// How often it is looked whether anybody is left.
const LOOK: Duration = Duration::from_millis(50);
/// How often it is tried to find all threads at rest: one may just have been made, or have
/// begun another program.
const TRIES: u32 = 20;

/// Processes that have the monitor. Dropped without [`Attachment::detach`], they keep
/// it: they run on, with the time that they have.
pub struct Attachment {
    shared: Arc<Shared>,
    serving: Option<JoinHandle<()>>,
    server: Option<control::Server>,
    /// How long each process stood still when the monitor came.
    stood: Vec<(i32, Duration)>,
    _alive: Alive,
    _files: Unfinished,
}

/// How the monitor left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// How long each process stood still for it.
    pub stood: Vec<(i32, Duration)>,
    /// By how much the program's clocks were behind: they are not any more.
    pub shift: Duration,
}

/// How many attachments this process has made.
static ATTACHMENTS: AtomicU32 = AtomicU32::new(0);

/// Attaches to processes. This thread must be there as long as the attachment is: its
/// end is taken for the agent's.
pub fn attach(pids: &[i32]) -> Result<Attachment, Error> {
    record::check_dispatch()?;
    record::check_address_space()?;
    let prepared = pids.iter().map(|pid| Prepared::new(*pid));
    let prepared = prepared.collect::<Result<Vec<Prepared>, Refusal>>()?;
    let calibration = Calibration::begin();
    let dir = control::directory().unwrap_or_else(std::env::temp_dir);
    let dir = dir.join(control::own_name(&ATTACHMENTS));
    // Of one that was killed and had the same number.
    let _ = std::fs::remove_dir_all(&dir);
    let files = Unfinished::make(&dir)?;
    let image = Image::embedded();
    let arena = Arena::create(&dir.join(recording::ARENA), image.bytes.len() as u64)?;
    let arena = Arc::new(arena);
    arena.control().mode.store(mode::LIVE, Release);
    arena.write_image(image.bytes)?;
    let mut manifest = Manifest::here(commands(pids));
    calibration.end(&mut manifest);
    let rate = record::rate_of(&manifest.clock);
    arena.control().halt.rate.store(rate, Release);
    let writer = Arc::new(Writer::create(&dir, &manifest)?);
    let shared = Arc::new(Shared {
        expected: Vec::new(),
        captures: Captures::of_live(&dir, CaptureCache::new(None)),
        image,
        clock_offset: inject::kernel_clock_offset(),
        over: AtomicBool::new(false),
        is_busy: AtomicBool::new(false),
        has_spare: AtomicBool::new(false),
        on_full: Box::new(|_| {}),
        tracing: std::sync::OnceLock::new(),
        adopting: std::sync::Mutex::default(),
        observations: Some(Observations::new(&dir, &manifest)),
        arena: Arc::clone(&arena),
        writer,
    });
    let alive = Alive::show(&arena);
    let its = Arc::clone(&shared);
    let serving = thread::Builder::new().spawn(move || service::run(&its));
    let mut attachment = Attachment {
        serving: Some(serving.map_err(record::no_thread)?),
        shared,
        server: None,
        stood: Vec::new(),
        _alive: alive,
        _files: files,
    };
    for prepared in prepared {
        if let Err(error) = attachment.adopt(prepared) {
            // Those that have it already are left again.
            attachment.leave()?;
            return Err(error);
        }
    }
    attachment.server = control::Server::start(&arena, &manifest.command, 0);
    if let Some(server) = &attachment.server {
        let _ = attachment.shared.tracing.set(server.tracing());
        server.serves_for(&attachment.shared);
    }
    Ok(attachment)
}

impl Attachment {
    fn adopt(&mut self, mut prepared: Prepared) -> Result<(), Error> {
        let (shared, pid) = (&self.shared, prepared.pid());
        let mut tries = 0;
        let lead = |code: &[u8], base: u64, page: u64| vdso::lead(&shared.image, code, base, page);
        let wanted = Wanted::here();
        let monitor = Monitor {
            image: &shared.image,
            arena: shared.arena.file().as_fd(),
            lead: &lead,
            is_wanted: &|| wanted.is_so(),
        };
        let (stood, threads) = loop {
            tries += 1;
            match on_its_own(|| prepared.adopt(&monitor), pid) {
                // It has become another program in the middle of it, as a rule.
                Err(Error::Refused(Refusal::Failed { .. })) if tries < TRIES => {
                    prepared = Prepared::new(pid)?;
                }
                done => break done?,
            }
        };
        tracing::info!(target: "live", pid, ?stood, threads, "the monitor is in");
        // Each thread makes itself known as the first thing it does.
        let begin = Instant::now();
        let halter = self.halter();
        let is_registered = |tid: &i32| halter.entry_of(*tid as u32).is_some();
        while !inject::threads_of(pid).iter().all(is_registered) && begin.elapsed() < REGISTERED {
            thread::sleep(Duration::from_micros(200));
        }
        self.stood.push((pid, stood));
        Ok(())
    }

    /// How long each process stood still when the monitor came.
    pub fn stood(&self) -> &[(i32, Duration)] {
        &self.stood
    }

    /// Halts what was attached to, and so on.
    pub fn halter(&self) -> Halter<'_> {
        Halter::new(self.shared.arena.control())
    }

    /// Waits for a debugger, and until that has gone, or no process is left.
    pub fn serve(self) -> Result<Detached, Error> {
        if let Some(server) = &self.server {
            server.await_debugger();
        }
        self.wait()
    }

    /// Waits until no process is left, or somebody has asked that they be left alone.
    pub fn wait(mut self) -> Result<Detached, Error> {
        let mut alive = BTreeSet::new();
        loop {
            let mut halter = self.halter();
            halter.prepare();
            // Who leaves its entry to end has not ended yet.
            alive.extend(halter.pids());
            alive.retain(|pid| is_alive(*pid));
            let is_wanted = self.server.as_ref().is_some_and(control::Server::is_over);
            if is_wanted || alive.is_empty() {
                break;
            }
            drop(halter);
            thread::sleep(LOOK);
        }
        self.leave()
    }

    /// The monitor leaves all processes, those too that came of them.
    pub fn detach(mut self) -> Result<Detached, Error> {
        self.leave()
    }

    fn leave(&mut self) -> Result<Detached, Error> {
        let control = self.shared.arena.control();
        let mut detached = Detached::default();
        let begin = Instant::now();
        let mut tries = 0;
        loop {
            let mut halter = Halter::new(control);
            halter.prepare();
            if halter.pids().is_empty() {
                // One that becomes another program has no entry for a while, and neither has a
                // child that was made a moment before.
                let known = self.stood.iter().chain(&detached.stood);
                let mut known = known.flat_map(|(pid, _)| with_children(*pid));
                if begin.elapsed() < LEAVE && known.any(is_ours_still) {
                    thread::sleep(Duration::from_micros(200));
                    continue;
                }
                break;
            }
            let left = LEAVE.saturating_sub(begin.elapsed());
            let Gathered {
                come: gathered,
                stuck,
            } = halter.gather(left).map_err(unmoved)?;
            let pids = gathered.iter().map(|(pid, _)| *pid as i32);
            let pids: BTreeSet<i32> = pids.collect();
            let mut refused = None;
            for pid in pids {
                let its = gathered.iter().filter(|(of, _)| *of as i32 == pid);
                let its: Vec<inject::Departing> = its.map(|(_, thread)| thread.clone()).collect();
                let (image, arena) = (&self.shared.image, self.shared.arena.file().as_fd());
                match on_its_own(|| inject::depart(pid, image, arena, &its), pid) {
                    Ok(stood) => {
                        detached.stood.push((pid, stood));
                        halter.forget(pid as u32);
                    }
                    Err(refusal) => refused = Some(refusal),
                }
            }
            halter.end_gathering();
            tries += 1;
            match refused {
                // The others have been left; who cannot be keeps the monitor.
                None if stuck.is_some() => return Err(unmoved(stuck)),
                Some(refusal) if tries >= TRIES => return Err(refusal),
                Some(_) => thread::sleep(Duration::from_millis(1)),
                None => {}
            }
        }
        detached.shift = Duration::from_nanos(control.halt.shift.load(Acquire));
        Ok(detached)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let is_held = self.server.take().is_some_and(|server| server.is_held());
        self.shared.over.store(true, Release);
        let control = self.shared.arena.control();
        control.doorbell.fetch_add(1, AcqRel);
        arena::wake(&control.doorbell, i32::MAX);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
        if let Some(observations) = &self.shared.observations {
            observations.finish(&self.shared.arena, is_held);
        }
    }
}

/// Does what traces a process in a process of its own: it is brought to its end though this one
/// is killed, and whatever is still traced then is let go.
fn on_its_own<T>(work: impl FnOnce() -> Result<T, Refusal>, pid: i32) -> Result<T, Error> {
    match companion::complete(work)? {
        Some(result) => Ok(result?),
        None => Err(Refusal::NoProcess(pid).into()),
    }
}

/// Who does not come, and what it does instead.
fn unmoved(who: Option<crate::halting::Stop>) -> Error {
    let Some(stop) = who else {
        return Error::Unmoved(String::new());
    };
    let state = inject::state_of(stop.pid as i32, stop.tid as i32);
    let state = state.map_or("gone".to_string(), String::from);
    let (tid, pid) = (stop.tid, stop.pid);
    Error::Unmoved(format!(
        " (thread {tid} of process {pid}: {:?}, {state})",
        stop.state
    ))
}

/// Whether there is a process, and more of it than its status.
fn is_alive(pid: u32) -> bool {
    let state = inject::state_of(pid as i32, pid as i32);
    state.is_some_and(|state| !"ZX".contains(state))
}

/// A process, and those that it has made.
fn with_children(pid: i32) -> Vec<i32> {
    let children = inject::threads_of(pid).into_iter().flat_map(|tid| {
        let path = format!("/proc/{pid}/task/{tid}/children");
        let text = inject::read_proc(&path).unwrap_or_default();
        let pids = String::from_utf8_lossy(&text).into_owned();
        let pids = pids.split_whitespace().map(str::parse::<i32>);
        pids.filter_map(Result::ok).collect::<Vec<i32>>()
    });
    std::iter::once(pid).chain(children).collect()
}

/// Whether a process has the monitor, or is about to have it again: a thread of this agent
/// traces it while it becomes another program.
fn is_ours_still(pid: i32) -> bool {
    let maps = inject::read_maps(pid).unwrap_or_default();
    let has_it = |map: &inject::Map| map.start == protocol::layout::IMAGE_BASE;
    let is_traced = || {
        let own = inject::threads_of(std::process::id() as i32);
        inject::tracer_of(pid, pid).is_some_and(|tracer| own.contains(&tracer))
    };
    maps.iter().any(has_it) || is_traced()
}

/// The commands that processes were started with, one behind the other.
fn commands(pids: &[i32]) -> Vec<String> {
    let words = pids.iter().flat_map(|pid| {
        let line = inject::read_proc(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty());
        let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        words.collect::<Vec<String>>()
    });
    words.collect()
}
