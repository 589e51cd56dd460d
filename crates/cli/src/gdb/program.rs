//! A recording as gdb sees it: the whole program as one target, each process
//! an inferior that is always there.
//!
//! One that has not begun yet at the cut stands at its beginning, one that has
//! ended at its end. Processes are brought to where they are said to be only
//! when somebody looks at them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::gdb_remote::{
    File, Interrupt, Motion, Refused, Registers, Stop, StopKind, StopPoint, StopReason, Target,
    ThreadId, ThreadInfo,
};
use ::replay::{Ground, Position, Region, Session, ThreadState};
use causality::{EventId, History};
use inspect::{Inspector, Library, Options};
use protocol::id::EventNo;
use query::Names;
use recording::{ImageStart, Recording};

use super::seat::{Seat, registers_of, tid};
use crate::debug::stopped::{CodeFiles, Stopped};
use crate::failure::Failure;
use crate::verify::explain;

pub struct Program {
    pub recording: Arc<Recording>,
    pub history: History,
    /// What its threads are called.
    pub names: Names,
    library: Library,
    pub seats: Vec<Seat>,
    /// The process at hand: the one that stopped last.
    pub lead: usize,
    /// The one that was at hand first.
    eldest: usize,
    /// Stops that gdb is still to be told of before anything moves.
    pub queue: VecDeque<Stop>,
    pub interrupt: Arc<Interrupt>,
    /// Captured files that code was read from.
    code: CodeFiles,
}

/// Where to begin.
pub struct Beginning {
    pub process: Option<u32>,
    /// A process and its event.
    pub at: Option<(u32, u64)>,
    /// Other processes are not served.
    pub alone: bool,
}

/// So many processes are served at once: each is replayed by several, and gdb
/// reads the symbols of each.
const MOST: usize = 200;

/// Whether a recording can be served so.
pub fn check(recording: &Recording, beginning: &Beginning) -> Result<(), Failure> {
    let count = recording.processes().len();
    if count > MOST && !beginning.alone {
        return Err(Failure::new(format!(
            "the recording has {count} processes, too many to serve them all to gdb"
        ))
        .hint("choose one with `--process NAME --alone`"));
    }
    Ok(())
}

impl Program {
    pub fn open(
        recording: Arc<Recording>,
        history: History,
        names: Names,
        beginning: &Beginning,
        interrupt: Arc<Interrupt>,
    ) -> Result<Program, Failure> {
        ::replay::check(&recording).map_err(explain)?;
        let ground = Arc::new(Ground::new(&recording));
        let mut seats: Vec<Seat> = Vec::new();
        let mut pids = HashSet::new();
        for (place, process) in history.processes() {
            let wanted = beginning
                .process
                .or(beginning.at.map(|(process, _)| process));
            if beginning.alone && wanted.is_some_and(|wanted| wanted != process.number) {
                continue;
            }
            let session = match Session::open_with(&ground, process.number, interrupt.flag()) {
                Ok(session) => session,
                // It did nothing that was recorded.
                Err(::replay::Error::NoLog { .. }) => continue,
                Err(error) => return Err(explain(error)),
            };
            // Ids come again in long runs, and on other hosts.
            let mut pid = process.pid;
            while pid == 0 || !pids.insert(pid) {
                pid = pid.wrapping_add(1 << 22);
            }
            let span = history.span(place);
            seats.push(Seat::new(&recording, place, span, pid, session));
        }
        if seats.is_empty() {
            return Err(Failure::new("the recording has no processes"));
        }
        let mut program = Program {
            recording,
            history,
            names,
            library: Library::new(Options::default()),
            seats,
            lead: 0,
            eldest: 0,
            queue: VecDeque::new(),
            code: CodeFiles::default(),
            interrupt,
        };
        let (process, event) = match (beginning.process, beginning.at) {
            (process, Some((of, event))) => {
                program.go(of, event);
                (process, None)
            }
            (Some(process), None) => {
                let seat = program.seats.iter().find(|seat| seat.number == process);
                // Where the program that it is named after begins.
                let event = seat.and_then(|seat| seat.images.last()).map(|i| i.first);
                (Some(process), event)
            }
            (None, None) => (None, None),
        };
        if let Some(process) = process {
            if let Some(event) = event {
                program.go(process, event);
            }
            program.lead = program
                .index_of(process)
                .ok_or_else(|| Failure::new("the process has no events that could be replayed"))?;
        }
        for seat in &mut program.seats {
            seat.told = seat.image_at(seat.at.event());
        }
        program.eldest = program.lead;
        let lead = program.lead;
        if let Some(seat) = program.seats.get_mut(lead) {
            seat.is_introduced = true;
        }
        program.introduce();
        Ok(program)
    }

    /// Has gdb told of the programs of those that it only knows by number.
    pub fn introduce(&mut self) {
        for i in 0..self.seats.len() {
            if self.seats.get(i).is_some_and(|seat| !seat.is_introduced) {
                let path = self.path_of(i).unwrap_or_default();
                let number = self.states(i).first().map_or(0, |state| state.number);
                let thread = self.thread_id(i, number);
                let reason = StopReason::Executed(path);
                self.queue.push_back(stop(thread, reason));
            }
        }
    }

    /// The next stop that gdb is to be told of without anything moving.
    pub fn next_queued(&mut self) -> Option<Stop> {
        let stop = self.queue.pop_front()?;
        if matches!(stop.reason, StopReason::Executed(_))
            && let Some(i) = self.index(stop.thread.pid)
            && let Some(seat) = self.seats.get_mut(i)
        {
            seat.is_introduced = true;
            // It takes them to be gone with the old program.
            seat.stops.clear();
        }
        Some(stop)
    }

    pub fn index_of(&self, number: u32) -> Option<usize> {
        self.seats.iter().position(|seat| seat.number == number)
    }

    pub fn index(&self, pid: u32) -> Option<usize> {
        let found = self.seats.iter().position(|seat| seat.pid == pid);
        found.filter(|i| self.seats.get(*i).is_some_and(|seat| !seat.is_gone))
    }

    /// Says that everybody is at the earliest cut that explains an event.
    pub fn go(&mut self, process: u32, event: u64) {
        let Some(lead) = self.index_of(process) else {
            return;
        };
        let bounds = self
            .seats
            .get(lead)
            .and_then(|seat| self.needed(seat, event));
        for (i, seat) in self.seats.iter_mut().enumerate() {
            let bound = bounds.as_ref().map_or(0, |cut| cut.bound(seat.place).0);
            let event = if i == lead { event } else { bound };
            seat.put(Position::Event(event.clamp(seat.first, seat.last + 1)));
        }
        self.lead = lead;
    }

    /// What must have happened for a process to be about to do an event.
    pub fn needed(&self, seat: &Seat, event: u64) -> Option<causality::Cut> {
        let done = event.min(seat.last + 1).checked_sub(1)?;
        let done = (done >= seat.first).then_some(EventNo(done))?;
        Some(self.history.past(EventId::new(seat.place, done)))
    }

    /// The process, brought to where it is said to be.
    pub fn here(&mut self, i: usize) -> Result<&mut Seat, String> {
        let Some(seat) = self.seats.get_mut(i) else {
            return Err("there is no such process".to_string());
        };
        if seat.session.position() != seat.at {
            // It is to get there, whatever the client says meanwhile.
            let was = self.interrupt.arm(false);
            let arrival = seat.session.go_to_position(seat.at);
            self.interrupt.arm(was);
            arrival.map_err(|error| crate::verify::explain(error).words())?;
            seat.put(seat.session.position());
        }
        Ok(seat)
    }

    pub fn states(&mut self, i: usize) -> Vec<ThreadState> {
        let Ok(seat) = self.here(i) else {
            return Vec::new();
        };
        let session = &seat.session;
        seat.threads
            .get_or_insert_with(|| {
                let mut threads = session.threads();
                threads.sort_by_key(|thread| thread.number);
                threads
            })
            .clone()
    }

    /// gdb's name for a thread of a process.
    pub fn thread_id(&mut self, i: usize, number: u32) -> ThreadId {
        let pid = self.seats.get(i).map_or(0, |seat| seat.pid);
        let states = self.states(i);
        let state = states.iter().find(|state| state.number == number);
        let state = state.or(states.first());
        ThreadId::new(pid, state.map_or(pid, |state| tid(pid, state)))
    }

    /// The number of a thread in its process.
    pub fn thread_number(&mut self, thread: ThreadId) -> Option<(usize, u32)> {
        let i = self.index(thread.pid)?;
        let states = self.states(i);
        let state = states
            .iter()
            .find(|state| tid(thread.pid, state) == thread.tid)?;
        Some((i, state.number))
    }

    /// Runs of events by one thread.
    pub fn turns(&mut self, i: usize) -> &[(u64, u32)] {
        let recording = Arc::clone(&self.recording);
        let Some(seat) = self.seats.get_mut(i) else {
            return &[];
        };
        let number = seat.number;
        seat.turns.get_or_insert_with(|| {
            let mut runs: Vec<(u64, u32)> = Vec::new();
            let mut log = recording.log(number);
            while log.advance() {
                let Some(event) = log.event() else { break };
                if runs
                    .last()
                    .is_none_or(|(_, thread)| *thread != event.thread)
                {
                    runs.push((event.number, event.thread));
                }
            }
            runs
        })
    }

    fn regions(&mut self, i: usize) -> &[Region] {
        if self.here(i).is_err() {
            return &[];
        }
        let Some(seat) = self.seats.get_mut(i) else {
            return &[];
        };
        let session = &seat.session;
        seat.regions
            .get_or_insert_with(|| session.regions().unwrap_or_default())
    }

    /// What the present image of a process started from.
    fn image(&self, i: usize) -> Option<ImageStart> {
        self.image_of(i, self.seats.get(i)?.at.event())
    }

    fn image_of(&self, i: usize, event: u64) -> Option<ImageStart> {
        let seat = self.seats.get(i)?;
        let span = seat.images.get(seat.image_at(event))?;
        let image = self
            .recording
            .images()
            .iter()
            .rfind(|image| image.process == span.process && image.image == span.image)?;
        self.recording.image_start(image).ok()
    }

    /// The path of what a process runs.
    pub fn path_of(&self, i: usize) -> Option<Vec<u8>> {
        self.image(i).map(|image| image.exe)
    }

    /// The same for when it is about to do an event.
    pub fn path_at(&self, i: usize, event: u64) -> Option<Vec<u8>> {
        self.image_of(i, event).map(|image| image.exe)
    }

    /// Looks into a process.
    fn look<T>(
        &mut self,
        i: usize,
        question: impl FnOnce(&Inspector<'_>, &Session) -> Option<T>,
    ) -> Option<T> {
        self.here(i).ok()?;
        let session = &self.seats.get(i)?.session;
        let stopped = Stopped::new(session);
        let inspector = Inspector::new(&self.library, &stopped);
        question(&inspector, session)
    }

    /// A captured file, by a path that a process may use for it.
    fn captured(&mut self, i: usize, path: &[u8]) -> Option<PathBuf> {
        let wanted = Path::new(std::ffi::OsStr::from_bytes(path));
        // What it has mapped itself: its path, or what the dynamic linker
        // calls it.
        let mapped: HashMap<PathBuf, PathBuf> = self
            .regions(i)
            .iter()
            .filter_map(|region| region.file.clone())
            .map(|(captured, original)| (original, captured))
            .collect();
        if let Some(found) = mapped.get(wanted) {
            return Some(found.clone());
        }
        let known: Vec<(PathBuf, u64)> = self
            .recording
            .files()
            .iter()
            .map(|file| {
                let path = Path::new(std::ffi::OsStr::from_bytes(&file.path));
                (path.to_path_buf(), file.id)
            })
            .collect();
        let in_recording = |wanted: &Path| {
            let (_, id) = known.iter().rfind(|(path, _)| path == wanted)?;
            Some(self.recording.captured_path(*id))
        };
        if let Some(found) = in_recording(wanted) {
            return Some(found);
        }
        let named = self.look(i, |inspector, _| {
            let module = inspector
                .modules()
                .iter()
                .find(|module| inspector.module_name(module).as_bytes() == path)?;
            Some(module.start)
        });
        if let Some(start) = named {
            let region = self.regions(i).iter().find(|r| r.range.contains(&start));
            if let Some((captured, _)) = region.and_then(|r| r.file.clone()) {
                return Some(captured);
            }
        }
        // A link to it: of the same name, or as it is on this machine.
        let same_name = mapped
            .iter()
            .find(|(original, _)| original.file_name() == wanted.file_name());
        if let Some((_, captured)) = same_name {
            return Some(captured.clone());
        }
        let known: Vec<(PathBuf, u64)> = known;
        let real = std::fs::canonicalize(wanted).ok()?;
        let (_, id) = known.iter().rfind(|(path, _)| *path == real)?;
        Some(self.recording.captured_path(*id))
    }

    /// A file under `/proc/PID` that gdb reads.
    fn process_file(&mut self, name: &str) -> Option<Vec<u8>> {
        let (pid, what) = name.split_once('/')?;
        let i = self.index(pid.parse().ok()?)?;
        let what = match what.strip_prefix("task/") {
            Some(rest) => rest.split_once('/')?.1,
            None => what,
        };
        match what {
            "maps" | "smaps" => {
                let text: String = self.regions(i).iter().map(map_line).collect();
                Some(text.into_bytes())
            }
            "cmdline" => {
                let image = self.image(i)?;
                let words = image.argv.iter();
                Some(
                    words
                        .flat_map(|word| [word.as_slice(), &[0]].concat())
                        .collect(),
                )
            }
            "auxv" => {
                let image = self.image(i)?;
                auxv_of(&image, self.regions(i))
            }
            _ => None,
        }
    }
}

/// A line of `/proc/PID/maps`.
fn map_line(region: &Region) -> String {
    let path = match &region.file {
        Some((_, original)) => format!("  {}", original.display()),
        None if region.is_vdso => "  [vdso]".to_string(),
        None => String::new(),
    };
    format!(
        "{:x}-{:x} r{}{}p {:08x} 00:00 {}{path}\n",
        region.range.start,
        region.range.end,
        if region.writable { 'w' } else { '-' },
        if region.executable { 'x' } else { '-' },
        region.offset,
        u8::from(region.file.is_some()),
    )
}

fn auxv_of(image: &ImageStart, regions: &[Region]) -> Option<Vec<u8>> {
    // The kernel's vdso is not there: the program has one of the monitor's.
    const AT_SYSINFO_EHDR: u64 = 33;
    let vdso = regions.iter().find(|region| region.is_vdso);
    let words = image.auxv.iter().filter_map(|(kind, value)| match *kind {
        AT_SYSINFO_EHDR => Some([*kind, vdso?.range.start]),
        _ => Some([*kind, *value]),
    });
    let words = words.flatten();
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    if image.auxv.last().is_none_or(|(kind, _)| *kind != 0) {
        bytes.extend([0; 16]);
    }
    Some(bytes)
}

impl Target for Program {
    fn current(&mut self) -> ThreadId {
        let lead = self.lead;
        let number = match self.here(lead) {
            Ok(seat) => seat.session.thread(),
            Err(_) => 0,
        };
        self.thread_id(lead, number)
    }

    fn processes(&mut self) -> Vec<u32> {
        // gdb numbers them in this order.
        let first = self.seats.get(self.eldest).into_iter();
        let rest = (0..).zip(&self.seats).filter(|(i, _)| *i != self.eldest);
        first
            .chain(rest.map(|(_, seat)| seat))
            .filter(|seat| !seat.is_gone)
            .map(|seat| seat.pid)
            .collect()
    }

    fn threads(&mut self, pid: u32) -> Vec<ThreadInfo> {
        let Some(i) = self.index(pid) else {
            return Vec::new();
        };
        let states = self.states(i);
        let Some(seat) = self.seats.get(i) else {
            return Vec::new();
        };
        let running = seat.session.thread();
        let shown = match seat.is_introduced {
            true => states.len(),
            false => 1,
        };
        let names = states.iter().take(shown).map(|state| ThreadInfo {
            id: ThreadId::new(pid, tid(pid, state)),
            name: format!(
                "{}/{}",
                seat.name,
                self.names.thread(seat.number, state.number)
            ),
            about: match (state.number == running, state.waits) {
                (true, _) => format!("before {}:{}", seat.name, seat.at.event()),
                (false, true) => "in a call".to_string(),
                (false, false) => "waits for its turn".to_string(),
            },
        });
        names.collect()
    }

    fn registers(&mut self, thread: ThreadId) -> Option<Registers> {
        let i = self.index(thread.pid)?;
        let states = self.states(i);
        let state = states
            .iter()
            .find(|state| tid(thread.pid, state) == thread.tid)?;
        Some(registers_of(state))
    }

    fn read(&mut self, pid: u32, address: u64, out: &mut [u8]) -> usize {
        let Some(i) = self.index(pid) else {
            return 0;
        };
        let Ok(seat) = self.here(i) else {
            return 0;
        };
        let got = seat.session.read_code(address, out);
        self.regions(i);
        let regions = self.seats.get(i).and_then(|seat| seat.regions.as_deref());
        let code = regions.unwrap_or_default().iter();
        let code = code.filter(|region| region.executable && !region.writable);
        let code = code.filter_map(|region| {
            let (captured, _) = region.file.as_ref()?;
            Some((region.range.clone(), region.offset, captured.as_path()))
        });
        self.code
            .restore(code, address, out.get_mut(..got).unwrap_or_default());
        got
    }

    fn auxv(&mut self, pid: u32) -> Option<Vec<u8>> {
        let i = self.index(pid)?;
        let image = self.image(i)?;
        auxv_of(&image, self.regions(i))
    }

    fn executable(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.path_of(self.index(pid)?)
    }

    fn file(&mut self, pid: Option<u32>, path: &[u8]) -> Option<File> {
        let text = std::str::from_utf8(path).unwrap_or("");
        if let Some(name) = text.strip_prefix("/proc/") {
            return self.process_file(name).map(File::Bytes);
        }
        let i = match pid {
            Some(pid) => self.index(pid)?,
            None => self.lead,
        };
        self.captured(i, path).map(File::At)
    }

    fn region(&mut self, pid: u32, address: u64) -> (Range<u64>, String) {
        let Some(i) = self.index(pid) else {
            return (0..u64::MAX, String::new());
        };
        let mut hole = 0..u64::MAX;
        for region in self.regions(i) {
            if region.range.contains(&address) {
                let write = if region.writable { "w" } else { "" };
                let execute = if region.executable { "x" } else { "" };
                return (region.range.clone(), format!("r{write}{execute}"));
            }
            if region.range.end <= address {
                hole.start = hole.start.max(region.range.end);
            } else {
                hole.end = hole.end.min(region.range.start);
            }
        }
        (hole, String::new())
    }

    fn thread_local(&mut self, thread: ThreadId, offset: u64, module: u64) -> Option<u64> {
        let i = self.index(thread.pid)?;
        let fs_base = self.registers(thread)?.fs_base;
        self.look(i, |inspector, session| {
            let mut bias = [0; 8];
            if session.read(module, &mut bias) != bias.len() {
                return None;
            }
            let bias = u64::from_le_bytes(bias);
            let loaded = inspector.modules().iter().find(|m| m.bias == bias)?;
            inspector.thread_local(loaded, fs_base, offset).ok()
        })
    }

    fn add_stop(&mut self, pid: u32, stop: StopPoint) -> Result<(), Refused> {
        const ENOSPC: u8 = 28;
        const ESRCH: u8 = 3;
        let i = self.index(pid).ok_or(Refused::Errno(ESRCH))?;
        let seat = self.seats.get_mut(i).ok_or(Refused::Errno(ESRCH))?;
        match stop.kind {
            // Only changes can be seen, not who looks.
            StopKind::Read | StopKind::Access => Err(Refused::Unsupported),
            _ if seat.add_stop(stop) => Ok(()),
            _ => Err(Refused::Errno(ENOSPC)),
        }
    }

    fn remove_stop(
        &mut self,
        pid: u32,
        kind: StopKind,
        address: u64,
        length: u64,
    ) -> Result<(), Refused> {
        if let Some(seat) = self.index(pid).and_then(|i| self.seats.get_mut(i)) {
            seat.remove_stop(kind, address, length);
        }
        Ok(())
    }

    fn resume(&mut self, motion: &Motion, interrupt: &Interrupt) -> Result<Stop, String> {
        interrupt.arm(true);
        let stop = self.move_by(motion, interrupt);
        interrupt.arm(false);
        stop
    }

    fn let_go(&mut self, pid: u32) -> bool {
        match self.index(pid).and_then(|i| self.seats.get_mut(i)) {
            Some(seat) => {
                seat.is_gone = true;
                seat.stops.clear();
                true
            }
            None => false,
        }
    }

    fn take_up(&mut self, pid: u32) -> Option<ThreadId> {
        let i = self.seats.iter().position(|seat| seat.pid == pid)?;
        let seat = self.seats.get_mut(i)?;
        seat.is_gone = false;
        seat.told = seat.image_at(seat.at.event());
        let number = self.here(i).ok()?.session.thread();
        Some(self.thread_id(i, number))
    }

    fn restart(&mut self) -> Result<ThreadId, String> {
        let lead = self.lead;
        for seat in &mut self.seats {
            seat.is_gone = false;
            seat.stops.clear();
            seat.put(seat.beginning());
        }
        let number = self.here(lead)?.session.thread();
        for seat in &mut self.seats {
            seat.told = seat.image_at(seat.at.event());
        }
        Ok(self.thread_id(lead, number))
    }

    fn command(&mut self, line: &str) -> String {
        super::monitor::execute(self, line)
    }
}

/// A stop of a process at hand.
pub fn stop(thread: ThreadId, reason: StopReason) -> Stop {
    Stop { thread, reason }
}
