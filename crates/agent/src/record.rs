//! A recording, from beginning to end.

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use inject::{Attached, Image};
use protocol::layout::ARENA_FD;
use protocol::shared::mode;
use recording::{Clock, Manifest, Status, Summary, Writer};

use crate::arena::{Arena, Spare, ticks};
use crate::capture::Captures;
use crate::capture_cache::CaptureCache;
use crate::observe::Observations;
use crate::reaper::{self, Reaper, Report};
use crate::service::{self, Shared};
use crate::{Error, control, exec, failing, signals, slice, store};

/// What becomes of the program when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    Stop,
    Continue,
}

pub struct Options {
    /// The directory to make.
    pub dir: PathBuf,
    /// The command as it was typed.
    pub command: Vec<OsString>,
    /// The file to execute.
    pub path: PathBuf,
    pub on_full: OnFull,
    /// Where copies of files are kept for later recordings, if anywhere.
    pub cache: Option<PathBuf>,
}

/// How the program ended.
pub struct Ended {
    /// The shell's way of telling: the exit status, or 128 + signal.
    pub status: i32,
    /// The recording ended before the program did, and why.
    pub cut_short: Option<String>,
}

/// How a program begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// It is not recorded.
    pub is_live: bool,
    /// It stands before its first instruction until a debugger comes.
    pub is_halted: bool,
    /// Ctrl-C is the debugger's: it neither reaches the program nor ends it.
    pub is_debugged: bool,
}

/// Runs the command and records it.
pub fn record(options: &Options) -> Result<Ended, Error> {
    start(options, Start::default())
}

/// Runs the command unrecorded, such that it can be halted (see [`control`]). What
/// has to lie somewhere meanwhile does so in a directory of the user's own.
pub fn run(command: &[OsString], path: &Path, cache: Option<PathBuf>) -> Result<Ended, Error> {
    let how = Start {
        is_live: true,
        ..Start::default()
    };
    run_as(command, path, cache, how)
}

/// Runs the command as [`run`] does, begun in this way.
pub fn run_as(
    command: &[OsString],
    path: &Path,
    cache: Option<PathBuf>,
    how: Start,
) -> Result<Ended, Error> {
    let pid = std::process::id().to_string();
    let dir = control::directory().unwrap_or_else(std::env::temp_dir);
    let options = Options {
        dir: dir.join(pid),
        command: command.to_vec(),
        path: path.to_path_buf(),
        on_full: OnFull::Continue,
        cache,
    };
    // Of one that was killed and had the same number.
    let _ = std::fs::remove_dir_all(&options.dir);
    start(&options, how)
}

/// Runs the command in this way.
pub fn start(options: &Options, how: Start) -> Result<Ended, Error> {
    let is_live = how.is_live;
    check_dispatch()?;
    check_address_space()?;
    let calibration = Calibration::begin();
    let mask = signals::blocked();
    let inherited = signals::Inherited::note();
    signals::ignore_file_size();
    let image = Image::embedded();
    let unfinished = Unfinished::make(&options.dir)?;
    let path = options.dir.join(recording::ARENA);
    let arena = Arc::new(Arena::create(&path, image.bytes.len() as u64)?);
    let mode = match is_live {
        true => mode::LIVE,
        false => mode::RECORD,
    };
    arena.control().mode.store(mode, Release);
    if how.is_halted {
        arena.control().halt.begin(crate::halting::now());
    }
    let arena_fd = arena_descriptor();
    let file = arena.file().as_raw_fd();
    let mut reaper = Reaper::start(&options.command, &options.path, inherited, file, arena_fd)?;
    // Not before: the program has its own.
    slice::shorten();
    let (sender, image_written) = mpsc::channel();
    let its = Arc::clone(&arena);
    let write_image = move || {
        let _ = sender.send(its.write_image(image.bytes));
    };
    let its = Arc::clone(&arena);
    // What is not recorded cannot be seen to hang.
    let looks = std::sync::atomic::AtomicU64::new(0);
    let progress = move || match is_live {
        true => looks.fetch_add(1, AcqRel),
        false => its.progress(),
    };
    signals::hold(reaper.pid(), how.is_debugged, write_image, progress).map_err(no_thread)?;
    let first = First::let_go(&mut reaper)?;
    tracing::info!(target: "record", pid = first.pid, dir = %options.dir.display(), "the program begins");

    // The kernel now makes the program's image, and stops it before its first
    // instruction. Meanwhile:
    let command = options
        .command
        .iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    let clock_offset = inject::kernel_clock_offset();
    let mut manifest = Manifest::here(command);
    calibration.end(&mut manifest);
    arena
        .control()
        .halt
        .rate
        .store(rate_of(&manifest.clock), Release);
    let control = control::Server::start(&arena, &manifest.command, reaper.pid());
    let writer = Arc::new(Writer::create(&options.dir, &manifest)?);
    let cut_short = Arc::new(std::sync::Mutex::new(None));
    let cache = CaptureCache::new(options.cache.as_deref());
    let captures = match is_live {
        true => Captures::of_live(&options.dir, cache),
        false => Captures::new(&options.dir, cache),
    };
    let exe = std::fs::metadata(&options.path).ok();
    let shared = Arc::new(Shared {
        expected: exe
            .as_ref()
            .filter(|_| !is_live)
            .map_or_else(Vec::new, |exe| captures.expected(exe)),
        captures,
        image,
        clock_offset,
        over: AtomicBool::new(false),
        is_busy: AtomicBool::new(false),
        has_spare: AtomicBool::new(false),
        on_full: disk_full(options.on_full, &arena, &cut_short, reaper.pid()),
        tracing: std::sync::OnceLock::new(),
        adopting: std::sync::Mutex::default(),
        observations: is_live.then(|| Observations::new(&options.dir, &manifest)),
        arena,
        writer,
    });
    if let Some(control) = &control {
        let _ = shared.tracing.set(control.tracing());
        control.serves_for(&shared);
        if how.is_halted {
            control.await_debugger();
        }
    }
    match image_written.recv() {
        Ok(written) => written?,
        Err(gone) => return Err(no_thread(std::io::Error::other(gone))),
    }
    let alive = Alive::show(&shared.arena);
    let serving = {
        let shared = Arc::clone(&shared);
        thread::Builder::new().spawn(move || service::run(&shared))
    };
    let serving = serving.map_err(no_thread)?;

    let outcome = follow(&shared, &mut reaper, first, arena_fd, mask, options);
    shared.over.store(true, Release);
    shared.arena.control().doorbell.fetch_add(1, AcqRel);
    crate::arena::wake(&shared.arena.control().doorbell, i32::MAX);
    let _ = serving.join();
    drop(alive);
    let status = outcome?;
    let is_held = control.as_ref().is_some_and(control::Server::is_held);
    if let Some(observations) = &shared.observations {
        observations.finish(&shared.arena, is_held);
    }
    drop(control);
    if is_live {
        return Ok(Ended {
            status,
            cut_short: None,
        });
    }
    unfinished.keep();
    let cut_short = cut_short.lock().map(|mut c| c.take()).unwrap_or_default();
    if let Some(exe) = exe {
        let control = shared.arena.control();
        shared.captures.remember(control, &exe, &shared.expected);
    }
    if cut_short.is_some() {
        shared.arena.release_spare(Spare::All);
    }
    let drained = store::drain(&shared.arena, &shared.writer);
    tracing::info!(
        target: "record",
        status,
        drained,
        journal = shared.writer.journal_len(),
        "the program has ended"
    );
    let summary = Summary {
        time: ticks(),
        realtime_ns: realtime_ns(),
        exit_status: status,
        complete: drained && cut_short.is_none(),
    };
    if shared.writer.finish(&summary).is_ok() && drained {
        let _ = std::fs::remove_file(shared.arena.path());
    }
    Ok(Ended { status, cut_short })
}

/// The program's first process, which is about to exec. Dropped, it does not
/// come to it.
struct First {
    pid: i32,
    attached: Option<Attached>,
}

impl First {
    /// Attaches to it and lets it exec.
    fn let_go(reaper: &mut Reaper) -> Result<First, Error> {
        let Some(Report::First { pid }) = reaper.next() else {
            let error = std::io::Error::last_os_error();
            return Err(Error::System("cannot start the program", error));
        };
        let attached = Attached::to_process(pid).map_err(|_| {
            Error::System(
                "cannot attach to the program (is ptrace allowed here?)",
                std::io::ErrorKind::PermissionDenied.into(),
            )
        })?;
        reaper.go();
        Ok(First {
            pid,
            attached: Some(attached),
        })
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if let Some(attached) = self.attached.take() {
            // SAFETY: a plain system call, about a process that is not waited
            // for yet.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            let _ = attached.wait();
        }
    }
}

/// Follows the program from its first process to its last.
fn follow(
    shared: &Arc<Shared>,
    reaper: &mut Reaper,
    mut first: First,
    arena_fd: i32,
    mask: u64,
    options: &Options,
) -> Result<i32, Error> {
    let control = shared.arena.control();
    let number = control.next_process.fetch_add(1, AcqRel);
    if let Some(slot) = control.execs.first() {
        slot.taken.store(number + 1, Release);
        slot.process.store(number, Release);
        slot.sigmask.store(mask, Release);
        slot.arena_fd.store(arena_fd as u32, Release);
    }
    // By this thread, which has nothing else to do until then.
    if let Some(attached) = first.attached.take() {
        exec::wait_for(shared, attached, first.pid, 0);
    }

    let mut status = None;
    let mut failure = None;
    while let Some(report) = reaper.next() {
        match report {
            Report::First { .. } => {}
            Report::Failed { errno } => failure = Some(errno),
            Report::Ended {
                pid,
                status: wait_status,
            } => {
                if pid == first.pid {
                    status = Some(wait_status);
                }
                tracing::debug!(target: "record", pid, wait_status, "a process has ended");
                let frame = Status {
                    process: None,
                    pid: pid as u32,
                    wait_status,
                    time: ticks(),
                };
                let _ = shared.writer.status(&frame);
                if let Some(observations) = &shared.observations {
                    observations.ended(&frame);
                }
            }
        }
    }
    if let Some(errno) = failure {
        return Err(command_error(options, errno));
    }
    Ok(shell_status(status.unwrap_or(0)))
}

/// What a shell says and returns when a command cannot be executed.
fn command_error(options: &Options, errno: i32) -> Error {
    let command = options.path.display().to_string();
    let (reason, status) = match errno {
        libc::ENOENT => ("No such file or directory".to_string(), 127),
        libc::EACCES => ("Permission denied".to_string(), 126),
        libc::ENOEXEC => (
            "cannot execute binary file: Exec format error".to_string(),
            126,
        ),
        _ => {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            (
                text.split(" (os error").next().unwrap_or("").to_string(),
                126,
            )
        }
    };
    Error::Command {
        command,
        reason,
        status,
    }
}

fn shell_status(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    }
}

/// The directory of a recording that may come to nothing: then nothing is left
/// behind.
pub(crate) struct Unfinished(Option<PathBuf>);

impl Unfinished {
    pub(crate) fn make(dir: &Path) -> Result<Unfinished, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let fail = failing(dir);
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(fail("cannot create"))?;
        }
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .map_err(fail("cannot create"))?;
        let unfinished = Unfinished(Some(dir.to_path_buf()));
        std::fs::create_dir(dir.join(recording::FILES)).map_err(fail("cannot create"))?;
        Ok(unfinished)
    }

    /// The program has run: what there is of it stays.
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

pub(crate) fn no_thread(source: std::io::Error) -> Error {
    Error::System("cannot start a thread", source)
}

/// The kernel can tell us of every system call.
pub(crate) fn check_dispatch() -> Result<(), Error> {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    // SAFETY: switches off what is not on.
    let answer = unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) };
    if answer == 0 {
        Ok(())
    } else {
        Err(Error::NoDispatch)
    }
}

/// The recorder's threads, the compressor and what waits to be compressed must
/// have room: to run out of it in the middle would end the recording.
pub(crate) fn check_address_space() -> Result<(), Error> {
    const MIB: u64 = 1 << 20;
    const NEEDED: u64 = 256;
    match rustix::process::getrlimit(rustix::process::Resource::As).current {
        Some(limit) if limit < NEEDED * MIB => Err(Error::AddressSpace {
            limit: limit / MIB,
            needed: NEEDED,
        }),
        _ => Ok(()),
    }
}

/// The highest descriptor below ours that the limit allows.
fn arena_descriptor() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit
        .current
        .map_or(i32::MAX, |n| i32::try_from(n).unwrap_or(i32::MAX));
    ARENA_FD.min(most.saturating_sub(1))
}

/// How ticks become time: measured while the rest is set up.
pub(crate) struct Calibration {
    begin: (Instant, u64),
}

impl Calibration {
    /// The shortest stretch that measures well enough: setting up takes longer,
    /// as a rule.
    const SHORTEST: Duration = Duration::from_micros(500);

    pub(crate) fn begin() -> Calibration {
        Calibration {
            begin: Calibration::look(),
        }
    }

    /// Both clocks, read as close to each other as a few tries allow.
    fn look() -> (Instant, u64) {
        let tries = (0..4).map(|_| {
            let (before, now, after) = (ticks().0, Instant::now(), ticks().0);
            (after - before, (now, before.midpoint(after)))
        });
        let best = tries.min_by_key(|(apart, _)| *apart);
        best.map_or_else(|| (Instant::now(), ticks().0), |(_, look)| look)
    }

    pub(crate) fn end(self, manifest: &mut Manifest) {
        let (begin, begin_ticks) = self.begin;
        if let Some(rest) = Calibration::SHORTEST.checked_sub(begin.elapsed()) {
            thread::sleep(rest);
        }
        let (end, end_ticks) = Calibration::look();
        let elapsed = end.duration_since(begin).as_nanos().max(1);
        let rate = u128::from(end_ticks - begin_ticks) * 1_000_000_000 / elapsed;
        manifest.clock = Clock {
            ticks: ticks(),
            realtime_ns: realtime_ns(),
            ticks_per_second: u64::try_from(rate).unwrap_or(1).max(1),
        };
        manifest.started_ns = manifest.clock.realtime_ns;
    }
}

/// How many nanoseconds 2^32 ticks of the time-stamp counter are.
pub(crate) fn rate_of(clock: &Clock) -> u64 {
    let hertz = u128::from(clock.ticks_per_second) << protocol::shared::TICK_SHIFT;
    u64::try_from((1_000_000_000u128 << 32) / hertz.max(1)).unwrap_or(u64::MAX)
}

fn realtime_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

type Told = Arc<std::sync::Mutex<Option<String>>>;

/// What is done, once, when the disk is full.
fn disk_full(
    how: OnFull,
    arena: &Arc<Arena>,
    told: &Told,
    reaper: i32,
) -> Box<dyn Fn(&str) + Send + Sync> {
    let (arena, told) = (Arc::clone(arena), Arc::clone(told));
    Box::new(move |why| {
        let Ok(mut told) = told.lock() else { return };
        if told.is_some() {
            return;
        }
        arena.release_spare(match how {
            OnFull::Stop => Spare::Some,
            OnFull::Continue => Spare::All,
        });
        let consequence = match how {
            OnFull::Stop => "the program is stopped",
            OnFull::Continue => "the program runs on unrecorded",
        };
        // Rust adds the number of an error to its words.
        let why = why.split(" (os error").next().unwrap_or(why);
        eprintln!(
            "mw: no room for the recording in {}: {why}; it ends here, and {consequence}",
            arena.path().parent().unwrap_or(arena.path()).display()
        );
        tracing::warn!(target: "record", why, "there is no room");
        *told = Some(why.to_string());
        match how {
            OnFull::Continue => arena.end(mode::PASS),
            OnFull::Stop => {
                arena.end(mode::STOP);
                reaper::signal_all(reaper, libc::SIGTERM);
                let later = move || {
                    thread::sleep(Duration::from_secs(2));
                    reaper::signal_all(reaper, libc::SIGKILL);
                };
                if thread::Builder::new().spawn(later).is_err() {
                    reaper::signal_all(reaper, libc::SIGKILL);
                }
            }
        }
    })
}

/// Shows the monitors that the recorder is alive: this thread holds a futex
/// that the kernel marks when the thread dies, in whatever way, so that
/// monitors that wait see that nobody will answer. It must be the thread that
/// makes the recording from beginning to end.
pub(crate) struct Alive {
    arena: Arc<Arena>,
    /// The list of the C library's, of whose locks this thread uses none.
    before: (*const RobustList, usize),
}

#[repr(C)]
struct RobustList {
    next: *const RobustList,
    offset: isize,
    pending: *const RobustList,
}

impl Alive {
    pub(crate) fn show(arena: &Arc<Arena>) -> Alive {
        let word = &arena.control().recorder_alive;
        let entry: &'static mut [*const RobustList; 1] = Box::leak(Box::new([std::ptr::null()]));
        let entry_address = entry.as_ptr() as isize;
        let head = Box::leak(Box::new(RobustList {
            next: entry.as_ptr().cast(),
            offset: (word.as_ptr() as isize).wrapping_sub(entry_address),
            pending: std::ptr::null(),
        }));
        entry[0] = &raw const *head;
        let mut before = (std::ptr::null(), 0);
        // SAFETY: asks for this thread's list; then sets one that is leaked,
        // so that it is there when the thread dies.
        unsafe {
            libc::syscall(
                libc::SYS_get_robust_list,
                0,
                &raw mut before.0,
                &raw mut before.1,
            );
            word.store(libc::gettid() as u32, Release);
            libc::syscall(
                libc::SYS_set_robust_list,
                &raw const *head,
                size_of::<RobustList>(),
            );
        }
        let arena = Arc::clone(arena);
        Alive { arena, before }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.arena.control().recorder_alive.store(0, Release);
        // SAFETY: sets the list that this thread had before.
        unsafe { libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1) };
    }
}
